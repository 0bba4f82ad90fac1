/* SPDX-License-Identifier: BSD-3-Clause */
/* Notes, by which a receiver announces what it has posted: those that are written to, on the write
 * path, and all from the first group on. A note is a message with number 0 that comes back to the
 * sender, over the fabric.
 *
 * A sender of small messages may have closed before their receives are posted. So a note that finds
 * nobody is no error: once the peer has left (ofi_control.c) nothing waits for its note, and only
 * what cannot come without it fails with a note that was lost.
 *
 * A sender that is late with its receives for notes leaves them to the provider, as all messages
 * that come early. No more is announced at a time than the completion queue holds pieces of.
 *
 * Notes are posted in isend, irecv and test, never in progress: between a deregMr with requests in
 * flight and the close that must follow, their memory is not named any more.
 * Thread: the comm's. Nothing here allocates, locks or logs, but for create. */
#include "base/alloc.h"
#include "ofi_int.h"

#define NO_NOTE "what is no note of a receive"
/* What waits for a note that was lost waits so long: the note may have come all the same. */
#define LOST_NS (5 * XCCL_NS_PER_S)

/* Of each receive, in a note. */
static uint32_t targets_of(const struct ofi_comm *comm)
{
    return comm->writes ? comm->rail_count : 0;
}

xcclResult_t ofi_note_create(struct ofi_comm *comm)
{
    struct ofi_notes *notes = &comm->notes;

    notes->idle = comm->is_send ? UINT32_MAX : 0;
    for (uint32_t i = 0; i < OFI_REQUESTS; i++) {
        notes->ops[i].kind = OFI_NOTE;
        notes->ops[i].place = i;
    }
    notes->stride = ofi_note_bytes(OFI_PARTS, targets_of(comm));
    notes->bytes = xccl_calloc_aligned(64, OFI_REQUESTS * notes->stride);
    if (!notes->bytes)
        return xcclSystemError;
    return ofi_mem_register(comm, notes->bytes, OFI_REQUESTS * notes->stride, 0, &notes->mem);
}

static uint8_t *bytes_of(const struct ofi_notes *notes, uint32_t place)
{
    return notes->bytes + place * notes->stride;
}

/* --- the provider's calls; all give 0 for "not now" --- */

/* Sender: receives for notes, which are all alike. */
static int post_places(struct ofi_comm *comm)
{
    struct ofi_notes *notes = &comm->notes;

    while (notes->idle) {
        uint32_t place = (uint32_t)__builtin_ctz(notes->idle);
        struct ofi_op *op = &notes->ops[place];
        struct ofi_rail *rail;
        ssize_t err;

        /* Each rail keeps its own. */
        op->rail = ofi_failover_next(comm, place);
        if (op->rail == OFI_RAILS_MAX)
            return 1;
        rail = &comm->rails[op->rail];
        err = fi_trecv(rail->end.ep, bytes_of(notes, place), notes->stride,
                       ofi_mem_desc(rail, notes->mem), FI_ADDR_UNSPEC, comm->secret, 0, op);
        if (err == -FI_EAGAIN)
            return 0;
        if (err) {
            ofi_failover_fail(comm, op->rail, (int)-err, "awaiting notes of", "");
            return 1;
        }
        op->busy = 1;
        notes->idle &= ~(1u << place);
    }
    return 1;
}

static int may_be_written(const struct ofi_comm *comm, const struct ofi_message *message)
{
    return comm->writes && message->bytes > comm->eager_max;
}

void ofi_note_begin(struct ofi_comm *comm, struct ofi_group *group)
{
    for (uint32_t i = 0; i < group->count; i++) {
        const struct ofi_message *message = &comm->messages[(group->first + i) % OFI_MESSAGES];

        if (may_be_written(comm, message))
            group->pieces += ofi_piece_count(comm, message->bytes);
    }
    if (!group->pieces && group->row == OFI_NO_ROW)
        return;
    group->notice = OFI_NOTICE_DUE;
    group->left++;
    comm->notes.due++;
}

void ofi_note_withdraw(struct ofi_group *group)
{
    struct ofi_comm *comm = group->comm;
    struct ofi_notes *notes = &comm->notes;
    uint32_t bit = 1u << (uint32_t)(group - comm->groups);

    if (group->notice == OFI_NOTICE_DUE) {
        group->notice = OFI_NOTICE_NONE;
        group->pieces = 0;
        notes->due--;
    } else if (group->notice == OFI_NOTICE_GIVEN && notes->out & bit) {
        notes->out &= ~bit; /* its writes may be on their way yet */
        notes->again &= ~bit;
    } else {
        return;
    }
    ofi_request_less(group);
}

/* No more notes are given, so the bytes of one that the provider still has stay as they are. */
static void withdraw_all(struct ofi_comm *comm)
{
    for (int i = 0; i < OFI_REQUESTS && (comm->notes.due || comm->notes.out); i++) {
        if (comm->groups[i].state == OFI_ACTIVE)
            ofi_note_withdraw(&comm->groups[i]);
    }
}

/* Its sender may have closed, after a message that needed none; that is told elsewhere. */
static void lost(struct ofi_group *group, int err)
{
    struct ofi_notes *notes = &group->comm->notes;
    uint32_t place = (uint32_t)(group - group->comm->groups);

    notes->lost |= 1u << place;
    notes->lost_err = err;
    notes->lost_rail = notes->ops[place].rail;
    group->lost_ns = xccl_clock_ns();
    ofi_note_withdraw(group);
}

/* What comes later than the time of a lost note. */
void ofi_note_missed(struct ofi_group *group)
{
    if (group->lost_ns)
        group->comm->notes.lost |= 1u << (uint32_t)(group - group->comm->groups);
}

static size_t fill(struct ofi_comm *comm, const struct ofi_group *group, uint8_t *bytes_out)
{
    struct ofi_note note = {.first = group->first, .count = group->count, .row = group->row};

    for (uint32_t i = 0; i < group->count; i++) {
        const struct ofi_message *message = &comm->messages[(group->first + i) % OFI_MESSAGES];
        struct ofi_part *part = &note.parts[i];

        part->tag = message->tag;
        part->number = message->number;
        part->room = message->bytes;
        memset(part->targets, 0, sizeof(part->targets));
        /* irecv has looked: it is registered. */
        for (uint32_t k = 0; k < comm->rail_count && may_be_written(comm, message); k++)
            (void)ofi_mem_remote(&comm->rails[k], message->mem, message->data, &part->targets[k]);
    }
    return ofi_note_encode(&note, targets_of(comm), bytes_out);
}

static ssize_t send_note(struct ofi_comm *comm, const struct ofi_group *group)
{
    struct ofi_notes *notes = &comm->notes;
    uint32_t place = (uint32_t)(group - comm->groups);
    struct ofi_op *op = &notes->ops[place];
    struct ofi_rail *rail;
    ssize_t err;

    op->rail = ofi_failover_next(comm, place);
    if (op->rail == OFI_RAILS_MAX)
        return -FI_EAGAIN;
    rail = &comm->rails[op->rail];
    err = fi_tsend(rail->end.ep, bytes_of(notes, place), fill(comm, group, bytes_of(notes, place)),
                   ofi_mem_desc(rail, notes->mem), rail->end.peer, comm->secret, op);
    op->busy = !err;
    return err && err != -FI_EAGAIN && ofi_failover_doubt(comm, op->rail, (int)-err) ? -FI_EAGAIN
                                                                                     : err;
}

/* Those that have gone by a rail that may have lost them. */
static int post_again(struct ofi_comm *comm)
{
    struct ofi_notes *notes = &comm->notes;

    while (notes->again) {
        struct ofi_group *group = &comm->groups[__builtin_ctz(notes->again)];
        ssize_t err = send_note(comm, group);

        if (err == -FI_EAGAIN)
            return 0;
        notes->again &= notes->again - 1;
        if (err)
            lost(group, (int)-err);
    }
    return 1;
}

static int post_note(struct ofi_comm *comm, struct ofi_group *group)
{
    struct ofi_notes *notes = &comm->notes;
    ssize_t err = send_note(comm, group);

    if (err == -FI_EAGAIN)
        return 0;
    if (err) {
        lost(group, (int)-err);
        return 1;
    }
    group->notice = OFI_NOTICE_GIVEN;
    notes->out |= 1u << (uint32_t)(group - comm->groups);
    notes->pieces += group->pieces;
    notes->due--;
    return 1;
}

/* Those whose receives the provider has, in their order. */
static int post_notes(struct ofi_comm *comm)
{
    uint32_t pieces_max = ofi_piece_most(comm->device);

    if (!post_again(comm))
        return 0;
    for (uint32_t back = OFI_REQUESTS; back && comm->notes.due; back--) {
        struct ofi_group *group = &comm->groups[(comm->groups_taken - back) % OFI_REQUESTS];

        if (group->state != OFI_ACTIVE || group->notice != OFI_NOTICE_DUE)
            continue;
        if ((int32_t)(group->first + group->count - comm->posted) > 0 ||
            comm->notes.pieces + group->pieces > OFI_REQUESTS * pieces_max)
            return 1;
        if (!post_note(comm, group))
            return 0;
    }
    return 1;
}

void ofi_note_push(struct ofi_comm *comm)
{
    int taken = 1;

    if (comm->rc != xcclSuccess)
        return;
    if (comm->is_send && (comm->writes || comm->match.told))
        taken = post_places(comm);
    else if (comm->is_send)
        return;
    else if (comm->peer_left)
        withdraw_all(comm);
    else
        taken = post_notes(comm);
    if (!taken)
        comm->refused = 1;
}

/* --- completions --- */

static void noted(struct ofi_comm *comm, const struct ofi_op *op, size_t bytes)
{
    struct ofi_note note;

    comm->notes.idle |= 1u << op->place;
    if (bytes > comm->notes.stride ||
        !ofi_note_decode(bytes_of(&comm->notes, op->place), bytes, targets_of(comm), &note)) {
        ofi_request_damaged(comm, NO_NOTE);
        return;
    }
    if ((int32_t)(note.first + note.count - comm->posted) > (int32_t)OFI_MESSAGES) {
        ofi_request_damaged(comm, "a note of a receive that cannot be in flight");
        return;
    }
    ofi_group_noted(comm, &note);
}

void ofi_note_completed(struct ofi_comm *comm, const struct ofi_op *op, size_t bytes)
{
    if (comm->is_send)
        noted(comm, op, bytes);
    else if (comm->notes.out & 1u << op->place)
        ofi_note_withdraw(&comm->groups[op->place]);
}

void ofi_note_over(struct ofi_comm *comm, uint32_t rail)
{
    for (int i = 0; i < OFI_REQUESTS; i++) {
        struct ofi_op *op = &comm->notes.ops[i];

        if (!op->busy || op->rail != rail)
            continue;
        op->busy = 0;
        if (comm->is_send)
            comm->notes.idle |= 1u << i;
    }
}

/* Those of groups that wait for a message, which may be without it; the sender takes no notice of
 * what it knows. */
void ofi_note_again(struct ofi_comm *comm, uint32_t rail)
{
    struct ofi_notes *notes = &comm->notes;

    for (uint32_t i = 0; i < OFI_REQUESTS && !comm->is_send; i++) {
        struct ofi_group *group = &comm->groups[i];

        if (group->state != OFI_ACTIVE || group->notice != OFI_NOTICE_GIVEN || group->lost_ns ||
            notes->ops[i].rail != rail || notes->ops[i].busy)
            continue;
        notes->again |= 1u << i;
        group->left += !(notes->out >> i & 1);
        notes->out |= 1u << i;
    }
}

int ofi_note_failed(struct ofi_comm *comm, const struct fi_cq_err_entry *entry)
{
    struct ofi_op *op = entry->op_context;

    if (entry->flags & FI_REMOTE_WRITE || !op || op->kind != OFI_NOTE)
        return 0;
    if (comm->is_send && entry->err != FI_ETRUNC)
        return 0;
    op->busy = 0;
    if (comm->is_send)
        ofi_request_damaged(comm, NO_NOTE);
    else if (comm->notes.out & 1u << op->place) {
        if (ofi_failover_doubt(comm, op->rail, entry->err))
            comm->notes.again |= 1u << op->place;
        else
            lost(&comm->groups[op->place], entry->err);
    }
    return 1;
}

/* 1: one of its messages was to be written, or none comes without the note. */
static int needs_note(const struct ofi_group *group)
{
    const struct ofi_comm *comm = group->comm;

    if (group->row != OFI_NO_ROW)
        return 1;
    for (uint32_t i = 0; i < group->count; i++) {
        const struct ofi_message *message = &comm->messages[(group->first + i) % OFI_MESSAGES];

        if (message->state == OFI_ACTIVE && message->wanted)
            return 1;
    }
    return 0;
}

void ofi_note_look(struct ofi_comm *comm)
{
    struct ofi_notes *notes = &comm->notes;
    uint64_t now_ns;

    if (!notes->lost)
        return;
    now_ns = xccl_clock_ns();
    for (int i = 0; i < OFI_REQUESTS; i++) {
        const struct ofi_group *group = &comm->groups[i];

        if (!(notes->lost >> i & 1) || now_ns - group->lost_ns < LOST_NS)
            continue;
        if (needs_note(group))
            ofi_comm_fail_rail(comm, &comm->rails[notes->lost_rail], notes->lost_err,
                               "announcing to", "");
        /* Its message may come whole, for all that is known now: that tells of itself. */
        notes->lost &= ~(1u << i);
    }
}

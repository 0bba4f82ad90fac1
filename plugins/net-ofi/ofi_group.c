/* SPDX-License-Identifier: BSD-3-Clause */
/* Grouped receives: which message is for which part. The sender chooses, in the order of its sends,
 * and gives the message the number of the part, so that the receiver's provider puts it there.
 *
 *   receiver                                       sender
 *   single receives: a message has its own number  sends without being asked
 *   the first group, from message f on
 *      GROUPS f (control connection) ---------->   has sent all before s by their own numbers
 *                               <---------------   SWITCH s
 *   a note of each receive, in rows of numbers -->  message n >= s: waits for the note that has n
 *
 * Messages before s, early ones, may be done and their sender may do something else for long, so
 * nobody waits for its answer: as long as s is not known, or is not reached, the next message may
 * be an early one. It is received by its number, one at a time, into the largest part that is free,
 * and says its tag itself, beside its number: then it is moved to the first free part with that
 * tag. Once s is known and reached, the parts that are left have the numbers that are left. So only
 * the first messages of the first group are copied, and without groups nothing of this happens.
 *
 * Receives that are in rows have each a note, which names its row, as notes overtake each other. A
 * group of early messages alone is no row; it has a note where one of them is to be written.
 *
 * A message that fits no part ends the comm: an early one at the receiver; a later one at the
 * sender, once the receiver, which is told, has counted those before it.
 * Thread: the comm's. Nothing here allocates, locks or logs. */
#include <string.h>

#include "ofi_int.h"

/* An early message's number comes again after 2^32 others. */
static void early_look(struct ofi_comm *comm)
{
    struct ofi_match *match = &comm->match;

    if ((match->told || match->answered) && comm->posted - match->early_end == OFI_MESSAGES)
        match->early_over = 1;
}

static int is_early(const struct ofi_match *match, uint32_t number)
{
    return !match->early_over && (int32_t)(match->early_end - number) > 0;
}

/* The guess may turn out to be any part of its group, so its receive takes any tag of the caller's;
 * every other message has the number of the part with its tag. */
uint64_t ofi_group_tag(const struct ofi_message *message, uint64_t *ignore_out)
{
    const struct ofi_comm *comm = message->comm;
    uint64_t tag = comm->secret | (message->number & OFI_TAG_NUMBER);

    if (comm->tells_tag)
        tag ^= (uint64_t)message->tag << OFI_TAG_SHIFT;
    *ignore_out = comm->match.guess == message ? OFI_TAG_CALLER : 0;
    return tag & ~*ignore_out;
}

/* --- receiver --- */

void ofi_group_taken(struct ofi_comm *comm, const struct ofi_group *group)
{
    struct ofi_match *match = &comm->match;

    if (match->asked || group->count == 1)
        return;
    match->asked = 1;
    match->from = group->first;
}

static struct ofi_message *part_at(struct ofi_comm *comm, const struct ofi_group *group, uint32_t i)
{
    return &comm->messages[(group->first + i) % OFI_MESSAGES];
}

static void number_set(struct ofi_comm *comm, struct ofi_message *message, uint32_t number)
{
    message->number = number;
    message->state = OFI_MATCHED;
    comm->by_number[number % OFI_MESSAGES] = (uint8_t)(message - comm->messages);
}

/* All parts have their numbers. */
static void group_numbered(struct ofi_comm *comm, struct ofi_group *group, uint32_t row)
{
    group->numbered = 1;
    group->row = row;
    ofi_note_begin(comm, group);
}

/* Those that are left: free parts, in the order of the caller's. */
static void number_rest(struct ofi_comm *comm, struct ofi_group *group, uint32_t number)
{
    int is_row = number != group->first + group->count || comm->match.guess;

    for (uint32_t i = 0; i < group->count; i++) {
        if (part_at(comm, group, i)->state == OFI_TAKEN)
            number_set(comm, part_at(comm, group, i), number++);
    }
    comm->match.guess = NULL;
    group_numbered(comm, group, is_row ? comm->match.row++ & OFI_ROW_MASK : OFI_NO_ROW);
}

static struct ofi_message *largest(struct ofi_comm *comm, const struct ofi_group *group)
{
    struct ofi_message *most = NULL;

    for (uint32_t i = 0; i < group->count; i++) {
        struct ofi_message *part = part_at(comm, group, i);

        if (part->state == OFI_TAKEN && (!most || part->bytes > most->bytes))
            most = part;
    }
    return most;
}

/* The next message is an early one, for all that is known: it has its own number. */
static struct ofi_message *recv_guess(struct ofi_comm *comm, struct ofi_group *group)
{
    struct ofi_match *match = &comm->match;

    if (match->guess)
        return NULL;
    match->guess = largest(comm, group);
    number_set(comm, match->guess, comm->posted);
    return match->guess;
}

/* That the sender does not know of groups yet is told once. */
static void ask(struct ofi_comm *comm)
{
    struct ofi_match *match = &comm->match;

    if (match->asked == 1 && ofi_control_groups(comm, match->from))
        match->asked = 2;
}

/* 1: the message is known to be none of the early ones. */
static int is_later(const struct ofi_match *match, uint32_t number)
{
    return match->answered && !is_early(match, number);
}

void ofi_group_move(struct ofi_comm *comm)
{
    const struct ofi_message *guess = comm->match.guess;

    if (guess && is_later(&comm->match, guess->number))
        number_rest(comm, &comm->groups[guess->group], guess->number + 1);
}

static struct ofi_message *recv_next(struct ofi_comm *comm)
{
    struct ofi_message *message = &comm->messages[comm->posted % OFI_MESSAGES];
    struct ofi_group *group = &comm->groups[message->group];
    struct ofi_match *match = &comm->match;

    if (match->asked && comm->posted == match->from)
        match->by_row = 1;
    if (!match->by_row && message->state == OFI_TAKEN) {
        number_set(comm, message, comm->posted);
        group_numbered(comm, group, OFI_NO_ROW);
    }
    if (!match->by_row)
        return message;
    ask(comm);
    early_look(comm);
    if (match->misfit)
        return NULL;
    if (!group->numbered && !match->guess && is_later(match, comm->posted))
        number_rest(comm, group, comm->posted);
    /* The parts of a row in the order of their numbers. */
    if (group->numbered)
        return &comm->messages[comm->by_number[comm->posted % OFI_MESSAGES]];
    if (match->guess && match->guess->state == OFI_MATCHED)
        return match->guess; /* the provider has refused it */
    return recv_guess(comm, group);
}

static struct ofi_message *part_with(struct ofi_comm *comm, const struct ofi_group *group,
                                     const struct ofi_message *guess, uint32_t tag)
{
    for (uint32_t i = 0; i < group->count; i++) {
        struct ofi_message *part = part_at(comm, group, i);

        if (part->tag == tag && (part->state == OFI_TAKEN || part == guess))
            return part;
    }
    return NULL;
}

void ofi_group_misfit(struct ofi_comm *comm, uint32_t tag)
{
    comm->match.misfit = 1;
    comm->match.misfit_tag = tag;
    comm->left_ns = xccl_clock_ns();
}

struct ofi_message *ofi_group_came(struct ofi_message *guess, uint32_t tag, size_t bytes)
{
    struct ofi_comm *comm = guess->comm;
    struct ofi_group *group = &comm->groups[guess->group];
    struct ofi_message *part = part_with(comm, group, guess, tag);

    comm->match.guess = NULL;
    if (!part) {
        ofi_group_misfit(comm, tag);
        return NULL;
    }
    if (bytes > part->bytes) {
        ofi_request_truncated(comm, bytes - part->bytes);
        return NULL;
    }
    if (part != guess) {
        if (bytes)
            memcpy((void *)(uintptr_t)part->data, guess->data, bytes);
        number_set(comm, part, guess->number);
        part->state = OFI_ACTIVE;
        part->op = guess->op;
        part->left = guess->left;
        ofi_piece_begin(part);
        guess->state = OFI_TAKEN;
    }
    return part;
}

void ofi_group_look(struct ofi_comm *comm, const struct ofi_message *message)
{
    struct ofi_group *group = &comm->groups[message->group];

    /* The last of its messages was an early one. */
    if (!group->numbered && comm->match.by_row && !comm->match.guess &&
        comm->posted == group->first + group->count)
        number_rest(comm, group, comm->posted);
}

/* --- sender --- */

static void misfit(struct ofi_comm *comm, uint32_t tag)
{
    /* Those before it first, and once. */
    if (comm->match.misfit || comm->moved != comm->posted)
        return;
    ofi_group_misfit(comm, tag);
    ofi_control_misfit(comm, tag);
}

static int part_find(const struct ofi_row *row, uint32_t tag)
{
    for (int part = 0; row->free >> part; part++) {
        if (row->free >> part & 1 && row->tags[part] == tag)
            return part;
    }
    return -1;
}

static int send_match(struct ofi_comm *comm, struct ofi_message *message)
{
    struct ofi_match *match = &comm->match;
    struct ofi_row *row = &match->rows[match->row % OFI_REQUESTS];
    int part;

    if (!row->valid)
        return 0;
    if (comm->posted - row->first >= row->count) {
        ofi_request_damaged(comm, "notes of receives that do not follow each other");
        return 0;
    }
    part = part_find(row, message->tag);
    if (part < 0) {
        misfit(comm, message->tag);
        return 0;
    }
    message->number = row->numbers[part];
    message->state = OFI_MATCHED;
    row->free &= ~(1u << part);
    if (!row->free) {
        row->valid = 0;
        match->row++;
    }
    return 1;
}

static struct ofi_message *send_next(struct ofi_comm *comm)
{
    struct ofi_message *message = &comm->messages[comm->posted % OFI_MESSAGES];
    struct ofi_match *match = &comm->match;

    if (match->told && comm->posted == match->early_end)
        match->by_row = 1;
    early_look(comm);
    if (match->by_row)
        return message->state == OFI_MATCHED || send_match(comm, message) ? message : NULL;
    message->number = comm->posted;
    return message;
}

struct ofi_message *ofi_group_next(struct ofi_comm *comm)
{
    return comm->is_send ? send_next(comm) : recv_next(comm);
}

/* 1: they are the messages of the group, each once. */
static int are_numbers(const struct ofi_note *note)
{
    uint32_t seen = 0;

    for (uint32_t i = 0; i < note->count; i++) {
        uint32_t at = note->parts[i].number - note->first;

        if (at >= note->count || seen >> at & 1)
            return 0;
        seen |= 1u << at;
    }
    return 1;
}

/* 1: the note has come before, by a rail that has failed since. */
static int is_known(const struct ofi_comm *comm, const struct ofi_note *note)
{
    const struct ofi_match *match = &comm->match;
    const struct ofi_row *row = &match->rows[note->row % OFI_REQUESTS];

    if (!comm->failover.on || !match->told || note->row > OFI_ROW_MASK)
        return 0;
    if (row->valid && row->first == note->first)
        return 1;
    return ((match->row - note->row - 1) & OFI_ROW_MASK) < OFI_REQUESTS;
}

static int row_take(struct ofi_comm *comm, const struct ofi_note *note)
{
    struct ofi_match *match = &comm->match;
    struct ofi_row *row = &match->rows[note->row % OFI_REQUESTS];

    if (is_known(comm, note))
        return 1;
    if (!match->told || note->row > OFI_ROW_MASK ||
        ((note->row - match->row) & OFI_ROW_MASK) >= OFI_REQUESTS || row->valid)
        return 0;
    *row = (struct ofi_row){.first = note->first, .count = note->count};
    for (uint32_t i = 0; i < note->count; i++) {
        row->tags[i] = note->parts[i].tag;
        row->numbers[i] = note->parts[i].number;
        row->free |= (uint32_t)!is_early(match, row->numbers[i]) << i;
    }
    row->valid = row->free != 0;
    return row->valid;
}

void ofi_group_noted(struct ofi_comm *comm, const struct ofi_note *note)
{
    if (!are_numbers(note) || (note->row != OFI_NO_ROW && !row_take(comm, note))) {
        ofi_request_damaged(comm, "a note of a receive that cannot be in flight");
        return;
    }
    for (uint32_t i = 0; i < note->count && comm->writes; i++)
        ofi_piece_noted(comm, note->parts[i].number, &note->parts[i]);
}

/* --- frames --- */

int ofi_group_asked(struct ofi_comm *comm, uint32_t from)
{
    struct ofi_match *match = &comm->match;

    if (match->told)
        return 0;
    match->told = 1;
    match->early_end = (int32_t)(from - comm->posted) > 0 ? from : comm->posted;
    ofi_control_switch(comm, match->early_end);
    return 1;
}

int ofi_group_answered(struct ofi_comm *comm, uint32_t end)
{
    struct ofi_match *match = &comm->match;

    if (match->answered || match->asked != 2)
        return 0;
    match->answered = 1;
    match->early_end = end;
    return 1;
}

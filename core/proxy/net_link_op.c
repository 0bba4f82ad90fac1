/* SPDX-License-Identifier: BSD-3-Clause */
/* The op of a link over a network plugin: moves slots between the executor and the plugin. A link
 * is SEND or RECV for life and carries one operation at a time.
 *
 * Each message of an operation goes through these states. They are not stored: the three cursors of
 * the op (posted, done, total) and the flag word of the slot say where a message is.
 *
 *   SEND  WAIT   message >= posted, flag not there          send_post() looks for the flag
 *         POST   flag there, plugin busy or not asked       send_post() posts it: posted + 1
 *         TEST   done <= message < posted                   send_reap() tests the oldest: done + 1,
 *         CREDIT                                            and the head goes on: slot free again
 *
 *   RECV  POST   message >= posted, slot free, not busy     recv_post() posts it: posted + 1
 *                (not before CHECK into a buffer)
 *         TEST   done <= message < posted                   recv_reap() tests the oldest,
 *         CHECK  only message 0 of an operation             recv_check() compares the preamble,
 *         FLUSH  only into a room that needs it             recv_reap_flushed(), several at once
 *         HAND   evidence, then flag: the executor's now    recv_hand_over(): done + 1
 *
 * A message that is longer than the buffer it was to be received in is the plugin's error; it is
 * handed over with a size that nobody expects, and the executor finds it as it does in a slot.
 *
 * Links with a room at one of their ends, at least, send the preamble ahead as a message of its
 * own, which is bare as well: it uses no slot, and is number 0.
 *
 * Plugins of NCCL's contract need not tell the size of a receive, and some tell the size that was
 * posted. So over those each message of a communicator of the host begins with its length, behind
 * the preamble. Where rooms of a device may be used, what the plugin says must do.
 *
 * What must hold: posted - done <= nslots. Steps are posted and finished in order. A slot is posted
 * for receiving only when the reader's head has passed its last use. An operation without messages
 * ("bare") sends 16 bytes from a line of its own, and receives into the next free slot without
 * using it up: there a message of another operation fits too and can be told from a match.
 *
 * Thread: the holder of the communicator's crank. Nothing here allocates or logs. */
#include "proxy/net_link_int.h"

#include "base/copy.h"
#include "base/error.h"
#include "base/wire.h"

/* ---- the op: what both ends share ---- */

static struct xccl_slot_header *header_at(struct xccl_net_link *link, uint32_t slot_idx)
{
    return (struct xccl_slot_header *)(void *)(link->memory + slot_idx * XCCL_LINE_BYTES);
}

/* In a room: an address of the device, which is only passed on. */
static char *payload_at(struct xccl_net_link *link, uint32_t slot_idx)
{
    char *first = link->room_mem ? link->room.at : link->memory + PAGE_BYTES;

    return first + (size_t)slot_idx * link->view.payload_stride;
}

static int goes_apart(const struct xccl_net_link *link)
{
    return link->apart && !link->op.plain;
}

/* A message that is a preamble and nothing else. */
static int is_bare(const struct xccl_net_link *link, uint32_t message)
{
    return link->op.messages == 0 || (message == 0 && goes_apart(link));
}

/* Do messages begin with their length? */
static int is_counted(const struct xccl_net_link *link)
{
    return link->net->counts;
}

static xcclNetRequest_t *request_at(struct xccl_net_link *link, uint32_t message, uint32_t slot_idx)
{
    return &link->requests[is_bare(link, message) ? XCCL_NET_SLOTS : slot_idx];
}

static uint32_t slot_after(uint32_t slot_idx)
{
    return slot_idx + 1 == XCCL_NET_SLOTS ? 0 : slot_idx + 1;
}

static uint64_t flag_of(const struct xccl_net_link *link, uint32_t step)
{
    return (uint64_t)(step + 1u) << 32 | link->op.flag_low;
}

static void preamble_encode(const struct xccl_net_op *op, char *bytes_out)
{
    struct xccl_wire wire = xccl_wire_over(bytes_out, XCCL_NET_PREAMBLE_BYTES);

    xccl_wire_put_u64(&wire, op->seq);
    xccl_wire_put_u64(&wire, op->signature);
}

/* Right before the payload. */
static void count_encode(uint32_t bytes, char *payload)
{
    struct xccl_wire wire = xccl_wire_over(payload - XCCL_NET_COUNT_BYTES, XCCL_NET_COUNT_BYTES);

    xccl_wire_put_u64(&wire, bytes);
}

void xccl_net_link_begin(struct xccl_net_link *link, const struct xccl_net_op *op)
{
    assert(xccl_net_link_idle(link));
    /* What is told ahead counts messages, of which the first one is a payload there. */
    assert(!link->apart || !op->ahead);
    link->op = *op;
    link->total = op->messages || op->plain ? op->messages : 1;
    link->total += op->messages && goes_apart(link);
    link->posted = 0;
    link->tested = link->flushing = 0;
    link->done = 0;
    link->told = 0;
    link->is_lent = 0;
}

int xccl_net_link_idle(const struct xccl_net_link *link)
{
    return link->done == link->total;
}

uint32_t xccl_net_link_count(const struct xccl_net_link *link)
{
    const struct xccl_slot_header *header = (const void *)(link->memory +
                                                           link->post_slot * XCCL_LINE_BYTES);

    if (!link->sends)
        return link->post_step - (link->posted - link->done);
    return link->post_step + (atomic_load_explicit(&header->flag, memory_order_relaxed) ==
                              flag_of(link, link->post_step));
}

/* The post succeeded: bare messages use no slot up. */
static void posted_one(struct xccl_net_link *link, xcclNetRequest_t request)
{
    uint32_t message = link->posted++;

    *request_at(link, message, link->post_slot) = request;
    if (is_bare(link, message))
        return;
    link->post_step++;
    link->post_slot = slot_after(link->post_slot);
}

static void finished_one(struct xccl_net_link *link)
{
    uint32_t message = link->done++;

    if (!is_bare(link, message))
        link->done_slot = slot_after(link->done_slot);
}

/* The first message of an operation, but for plain ones, begins with the preamble. */
static int has_preamble(const struct xccl_net_link *link, uint32_t message)
{
    return message == 0 && !link->op.plain;
}

/* Bytes of a message before its payload. */
static size_t front_bytes(const struct xccl_net_link *link, uint32_t message)
{
    return (has_preamble(link, message) ? XCCL_NET_PREAMBLE_BYTES : 0) +
           (is_counted(link) ? XCCL_NET_COUNT_BYTES : 0);
}

/* ---- the op: send end ---- */

/* A message that begins with the preamble is sent from its slot. */
static void take_home(struct xccl_net_link *link, char *payload, uint32_t bytes)
{
    struct xccl_offer *offer = &link->offers[link->post_slot];

    if (offer->at && bytes)
        xccl_copy(payload, offer->at, bytes);
    offer->at = NULL; /* once: the plugin may be busy */
}

/* What to send next. 0: the executor has not filled the slot yet. */
static int send_take(struct xccl_net_link *link, const char **data_out, size_t *bytes_out)
{
    struct xccl_slot_header *header = header_at(link, link->post_slot);
    char *payload = payload_at(link, link->post_slot);
    size_t front = front_bytes(link, link->posted);

    if (is_bare(link, link->posted)) {
        preamble_encode(&link->op, link->memory + BARE_OFFSET);
        *data_out = link->memory + BARE_OFFSET;
        *bytes_out = XCCL_NET_PREAMBLE_BYTES;
        return 1;
    }
    /* Acquire: payload and bytes were written before. Pairs with the executor's release store. */
    if (atomic_load_explicit(&header->flag, memory_order_acquire) != flag_of(link, link->post_step))
        return 0;
    /* This process wrote it; a length that does not fit is a bug of the executor. */
    assert(header->bytes <= link->view.slot_bytes);
    *data_out = payload - front;
    *bytes_out = header->bytes + front;
    if (is_counted(link))
        count_encode(header->bytes, payload);
    if (front) {
        take_home(link, payload, header->bytes);
        if (has_preamble(link, link->posted))
            preamble_encode(&link->op, payload - front);
    } else if (link->offers[link->post_slot].at && header->bytes) {
        *data_out = link->offers[link->post_slot].at;
        link->is_lent = 1;
    }
    return 1;
}

/* What a message's bytes are registered by. */
static xcclNetMem_t memory_of(const struct xccl_net_link *link, uint32_t message)
{
    return link->room_mem && !is_bare(link, message) ? link->room_mem : link->mem;
}

/* WAIT and POST: as many as are filled, until the plugin is busy. */
static xcclResult_t send_post(struct xccl_net_link *link, int *moved_out)
{
    const char *data;
    size_t bytes;

    while (link->posted < link->total && link->posted - link->done < XCCL_NET_SLOTS &&
           send_take(link, &data, &bytes)) {
        xcclNetRequest_t request = NULL;
        xcclResult_t rc;

        net_enter(link, XCCL_NET_ISEND);
        rc = link->net->calls.isend(link->comm, data, bytes, 0, memory_of(link, link->posted),
                                    &request);
        net_leave(link);
        if (rc != xcclSuccess)
            return xccl_net_link_failed(link, rc, "send");
        if (!request)
            return xcclSuccess;
        posted_one(link, request);
        *moved_out = 1;
    }
    return xcclSuccess;
}

/* TEST and CREDIT: the oldest first, until one is not done. */
static xcclResult_t send_reap(struct xccl_net_link *link, int *moved_out)
{
    while (link->done < link->posted) {
        int done = 0;
        xcclResult_t rc;

        net_enter(link, XCCL_NET_TEST);
        rc = link->net->calls.test(*request_at(link, link->done, link->done_slot), &done, NULL);
        net_leave(link);
        if (rc != xcclSuccess)
            return xccl_net_link_failed(link, rc, "finish a send");
        if (!done)
            return xcclSuccess;
        if (!is_bare(link, link->done)) {
            uint32_t head = atomic_load_explicit(link->head, memory_order_relaxed);

            /* Release: the plugin has read the slot. Pairs with the executor's look at heads. */
            atomic_store_explicit(link->head, head + 1, memory_order_release);
        }
        finished_one(link);
        *moved_out = 1;
    }
    return xcclSuccess;
}

/* ---- the op: receive end ---- */

static uint32_t recv_slots_free(const struct xccl_net_link *link)
{
    /* Acquire: the executor has read the slot. Pairs with its release store of the head. */
    uint32_t head = atomic_load_explicit(link->head, memory_order_acquire);

    return XCCL_NET_SLOTS - (link->post_step - head);
}

int xccl_net_link_knows(const struct xccl_net_link *link)
{
    return (int32_t)(link->told - link->posted) > 0;
}

/* Those that were posted before they were told of are in slots. */
int xccl_net_link_expect(struct xccl_net_link *link, void *at, uint32_t bytes)
{
    if ((int32_t)(link->told - link->posted) >= XCCL_NET_SLOTS)
        return 0;
    link->targets[link->told++ % XCCL_NET_SLOTS] = (struct target){
        bytes < link->reach.min_bytes ? NULL : at, bytes};
    return 1;
}

/* Where a preamble comes: before the payload; or, as the host cannot read there, by itself. */
static char *preamble_at(struct xccl_net_link *link, uint32_t message, uint32_t slot_idx)
{
    return link->apart ? link->memory + BARE_OFFSET
                       : payload_at(link, slot_idx) - front_bytes(link, message);
}

/* Where the next message goes. 0: not before the preamble has been checked. */
static int recv_place(struct xccl_net_link *link, void **data_out, size_t *bytes_out)
{
    size_t room = front_bytes(link, link->posted);
    const struct target *target = &link->targets[link->posted % XCCL_NET_SLOTS];
    struct xccl_offer *offer = &link->offers[link->post_slot];

    if (link->apart && is_bare(link, link->posted)) {
        *data_out = preamble_at(link, link->posted, link->post_slot);
        *bytes_out = XCCL_LINE_BYTES;
        return 1;
    }
    *data_out = payload_at(link, link->post_slot) - room;
    *bytes_out = link->view.slot_bytes + room;
    offer->at = NULL;
    if (!link->op.ahead || !link->op.messages)
        return 1;
    if (!xccl_net_link_knows(link))
        link->op.ahead(link->op.ahead_owner, link);
    if (room || !xccl_net_link_knows(link) || !target->at)
        return 1;
    if (!link->op.plain && !link->done)
        return 0;
    *data_out = target->at;
    *bytes_out = target->bytes;
    offer->at = target->at;
    link->is_lent = 1;
    return 1;
}

/* Is it the error of a message that is longer than its buffer? No slot is too small. */
static int is_too_long(const struct xccl_net_link *link, xcclResult_t rc)
{
    return rc == xcclInvalidUsage && link->is_lent && link->done < link->posted;
}

/* POST: all free slots, as far as messages are left. */
static xcclResult_t recv_post(struct xccl_net_link *link, int *moved_out)
{
    void *data;
    size_t bytes;

    while (link->posted < link->total && recv_slots_free(link) > 0 &&
           recv_place(link, &data, &bytes)) {
        uint32_t tag = 0;
        xcclNetMem_t mem = memory_of(link, link->posted);
        xcclNetRequest_t request = NULL;
        xcclResult_t rc;

        net_enter(link, XCCL_NET_IRECV);
        rc = link->net->calls.irecv(link->comm, 1, &data, &bytes, &tag, &mem, &request);
        net_leave(link);
        if (is_too_long(link, rc))
            return xcclSuccess; /* of an earlier one, which is tested next */
        if (rc != xcclSuccess)
            return xccl_net_link_failed(link, rc, "receive");
        if (!request)
            return xcclSuccess;
        posted_one(link, request);
        *moved_out = 1;
    }
    return xcclSuccess;
}

/* CHECK: the first message of an operation says which operation the sender is in. */
static xcclResult_t recv_check(struct xccl_net_link *link, size_t bytes)
{
    char *preamble = preamble_at(link, link->done, link->done_slot);
    struct xccl_wire wire = xccl_wire_over(preamble, XCCL_NET_PREAMBLE_BYTES);
    uint64_t seq = xccl_wire_get_u64(&wire), signature = xccl_wire_get_u64(&wire);

    if (bytes < XCCL_NET_PREAMBLE_BYTES && !is_counted(link)) {
        link->state = LINK_FAILED;
        link->is_other = 1;
        link->other_seq = UINT64_MAX; /* no call's */
        return xccl_fail_quietly(
            xcclInvalidUsage, 0, "use a network that only this job can reach",
            "the first message of an operation has %zu bytes, fewer than the %d of its preamble",
            bytes, XCCL_NET_PREAMBLE_BYTES);
    }
    if (seq == link->op.seq && signature == link->op.signature)
        return xcclSuccess;
    link->state = LINK_FAILED;
    link->is_other = 1;
    link->other_seq = seq;
    link->other_signature = signature;
    return xccl_fail_quietly(xcclInvalidUsage, 0,
                             "call the same operations in the same order on all ranks",
                             "the peer called a different operation: its sequence number is %llu, "
                             "this rank's is %llu; signatures %016llx and %016llx",
                             (unsigned long long)seq, (unsigned long long)link->op.seq,
                             (unsigned long long)signature, (unsigned long long)link->op.signature);
}

/* HAND: evidence first, then the flag. */
static void recv_hand_over(struct xccl_net_link *link, size_t bytes)
{
    struct xccl_slot_header *header = header_at(link, link->done_slot);
    /* The oldest posted step; posts and hand-overs are in order. */
    uint32_t step = link->post_step - (link->posted - link->done);

    header->bytes = (uint32_t)bytes;
    /* Release: payload and bytes come first. Pairs with the executor's acquire load of the flag. */
    atomic_store_explicit(&header->flag, flag_of(link, step), memory_order_release);
}

/* The length that the message itself says; UINT32_MAX, which nobody expects: more than a slot has.
 */
static size_t counted_bytes(struct xccl_net_link *link)
{
    char *at = payload_at(link, link->done_slot) - XCCL_NET_COUNT_BYTES;
    struct xccl_wire wire = xccl_wire_over(at, XCCL_NET_COUNT_BYTES);
    uint64_t bytes = xccl_wire_get_u64(&wire);

    return bytes <= link->view.slot_bytes ? (size_t)bytes : UINT32_MAX;
}

/* The length of a payload, from that of the whole message as the plugin tells it, or as the message
 * itself says. */
static xcclResult_t recv_size(struct xccl_net_link *link, uint32_t message, size_t *bytes_io)
{
    if (is_counted(link)) {
        *bytes_io = counted_bytes(link);
        return xcclSuccess;
    }
    if (*bytes_io != XCCL_NET_SIZE_UNKNOWN) {
        *bytes_io -= front_bytes(link, message);
        return xcclSuccess;
    }
    link->state = LINK_FAILED;
    return xccl_fail_quietly(
        xcclSystemError, 0, "use another plugin with CUDA devices",
        "network plugin %s does not say how large the messages are that it receives, which a "
        "communicator of CUDA devices needs",
        link->net->calls.name);
}

/* TEST: the oldest first, until one is not done. */
static xcclResult_t recv_reap(struct xccl_net_link *link, int *moved_out)
{
    while (link->done < link->posted) {
        size_t bytes = 0;
        int done = 0;
        xcclResult_t rc;

        net_enter(link, XCCL_NET_TEST);
        rc = link->net->calls.test(*request_at(link, link->done, link->done_slot), &done, &bytes);
        net_leave(link);
        if (is_too_long(link, rc)) {
            link->too_long = 1;
            *moved_out = 1;
            recv_hand_over(link, UINT32_MAX);
            return xcclSuccess;
        }
        if (rc != xcclSuccess)
            return xccl_net_link_failed(link, rc, "finish a receive");
        if (!done)
            return xcclSuccess;
        *moved_out = 1;
        if (has_preamble(link, link->done)) {
            rc = recv_check(link, bytes);
            if (rc != xcclSuccess)
                return rc;
        }
        if (!is_bare(link, link->done))
            rc = recv_size(link, link->done, &bytes);
        if (rc != xcclSuccess)
            return rc;
        /* A bare operation whose peer sent data has an equal signature and so cannot get here with
         * payload; nothing waits for it in any case. */
        if (!is_bare(link, link->done))
            recv_hand_over(link, bytes);
        finished_one(link);
    }
    return xcclSuccess;
}

/* ---- the op: receive end, into a room that is flushed ---- */

/* The slot of a message behind `done`. */
static uint32_t slot_of(const struct xccl_net_link *link, uint32_t message)
{
    uint32_t ahead = message - link->done - is_bare(link, link->done);

    return (link->done_slot + ahead) % XCCL_NET_SLOTS;
}

/* TEST: those that have come, in order. A preamble is checked, and needs no flush. */
static xcclResult_t recv_test(struct xccl_net_link *link, int *moved_out)
{
    while (link->tested < link->posted) {
        int bare = is_bare(link, link->tested), done = 0;
        uint32_t slot = bare ? XCCL_NET_SLOTS : slot_of(link, link->tested);
        size_t bytes = 0;
        xcclResult_t rc;

        net_enter(link, XCCL_NET_TEST);
        rc = link->net->calls.test(link->requests[slot], &done, &bytes);
        net_leave(link);
        if (rc != xcclSuccess)
            return xccl_net_link_failed(link, rc, "finish a receive");
        if (!done)
            return xcclSuccess;
        *moved_out = 1;
        link->tested++;
        if (!bare) {
            rc = recv_size(link, link->tested, &bytes);
            if (rc != xcclSuccess)
                return rc;
            link->came[slot] = (uint32_t)bytes;
            continue;
        }
        rc = recv_check(link, bytes);
        if (rc != xcclSuccess)
            return rc;
        finished_one(link);
        link->flushing = link->done;
    }
    return xcclSuccess;
}

/* FLUSH: of what has come, as much as one flush takes. */
static xcclResult_t recv_flush(struct xccl_net_link *link)
{
    void *data[XCCL_NET_SLOTS];
    size_t bytes[XCCL_NET_SLOTS];
    xcclNetMem_t mems[XCCL_NET_SLOTS];
    uint32_t count = 0;
    xcclResult_t rc;

    while (link->flushing < link->tested && count < link->flush_max) {
        uint32_t slot = slot_of(link, link->flushing++);

        data[count] = payload_at(link, slot);
        bytes[count] = link->came[slot];
        mems[count++] = link->room_mem;
    }
    if (!count)
        return xcclSuccess;
    net_enter(link, XCCL_NET_IFLUSH);
    rc = link->net->calls.iflush(link->comm, (int)count, data, bytes, mems, &link->flush);
    net_leave(link);
    return rc == xcclSuccess ? rc : xccl_net_link_failed(link, rc, "flush memory of a CUDA device");
}

/* HAND: what has been flushed. */
static void recv_hand_flushed(struct xccl_net_link *link)
{
    while (link->done < link->flushing) {
        recv_hand_over(link, link->came[link->done_slot]);
        finished_one(link);
    }
}

static xcclResult_t recv_reap_flushed(struct xccl_net_link *link, int *moved_out)
{
    xcclResult_t rc = recv_test(link, moved_out);
    int done = 1;

    if (rc == xcclSuccess && !link->flush && link->done == link->flushing)
        rc = recv_flush(link);
    if (rc != xcclSuccess)
        return rc;
    if (link->flush) {
        net_enter(link, XCCL_NET_TEST);
        rc = link->net->calls.test(link->flush, &done, NULL);
        net_leave(link);
    }
    if (rc != xcclSuccess)
        return xccl_net_link_failed(link, rc, "flush memory of a CUDA device");
    if (!done || link->done == link->flushing)
        return xcclSuccess;
    link->flush = NULL;
    *moved_out = 1;
    recv_hand_flushed(link);
    return xcclSuccess;
}

typedef xcclResult_t op_step_fn(struct xccl_net_link *link, int *moved_out);

xcclResult_t xccl_net_link_progress(struct xccl_net_link *link, int *moved_out)
{
    /* Post first: what the plugin moves at once is then reaped in the same turn. */
    static op_step_fn *const steps[3][2] = {
        {recv_post, recv_reap}, {send_post, send_reap}, {recv_post, recv_reap_flushed}};
    int end = link->sends ? 1 : link->room_mem && link->room.flushes ? 2 : 0;
    xcclResult_t rc;

    if (link->done == link->total || link->too_long)
        return xcclSuccess;
    if (link->state != LINK_UP)
        return xccl_net_link_not_up(link);
    rc = steps[end][0](link, moved_out);
    if (rc == xcclSuccess)
        rc = steps[end][1](link, moved_out);
    return rc;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* From entries to launches. A call whose links are missing waits for all ranks, inside a capture
 * too: that part is the host's, and runs side by side for all communicators of the group.
 *
 * Thread: the user's. */
#include "base/alloc.h"
#include "call/call_group.h"
#include "comm/comm_list.h"
#include "cuda/cuda_int.h"
#include "watch/comm_verdict.h"

#define FEW 16

/* What a group asks of CUDA communicators. */
struct launch {
    struct xccl_cuda_op *ops;
    struct xccl_entry *connects; /* those that have to be connected first */
    struct xccl_p2p_item *items; /* room for the messages of a communicator */
    uint32_t count, connect_count;
};

/* An operation of a CUDA communicator; those of other devices are passed over. */
static int is_own(const struct xccl_entry *entry)
{
    return entry->kind <= XCCL_ENTRY_P2P && entry->task.comm->ops == &xccl_device_cuda;
}

static struct xccl_cuda_op op_of(const struct xccl_entry *entry)
{
    return (struct xccl_cuda_op){.task = entry->task,
                                 .is_p2p = entry->kind == XCCL_ENTRY_P2P,
                                 .p2p = entry->p2p,
                                 .stream = entry->stream};
}

static xcclResult_t shares_thread(const struct xcclComm *comm)
{
    return xccl_fail(xcclInvalidUsage, 0,
                     "call for all of them between xcclGroupStart and xcclGroupEnd",
                     "the first call of its kind creates connections, and this thread has another "
                     "rank of the communicator of rank %d: use a group",
                     comm->rank);
}

/* Calls of the communicator that come before it in the group; what is captured has no place among
 * them. */
static uint32_t calls_ahead(const struct launch *launch, const struct xccl_cuda_op *op)
{
    const struct xcclComm *comm = op->task.comm;
    struct xccl_cuda_place place;
    uint32_t count = 0;
    xcclResult_t rc = xccl_cuda_enter(comm->cuda->device);

    if (!rc) {
        rc = xccl_cuda_place_of(comm->cuda->device, op->stream, &place);
        xccl_cuda_leave(comm->cuda->device);
    }
    if (rc || place.is_captured) /* a launch will say what is wrong */
        return XCCL_NOT_ORDERED;
    for (uint32_t i = 0; i < launch->count; i++)
        count += launch->ops[i].task.comm == comm && !launch->ops[i].is_p2p;
    return count;
}

/* An entry that only makes links. */
static void add_connect(struct launch *launch, const struct xccl_entry *entry,
                        const struct xccl_cuda_op *op)
{
    struct xccl_entry *connect = &launch->connects[launch->connect_count++];

    *connect = *entry;
    connect->stream = NULL;
    connect->task.ahead = calls_ahead(launch, op);
    if (!connect->task.connects)
        connect->task.connects = XCCL_CONNECTS_CALL;
    if (entry->kind == XCCL_ENTRY_P2P && !entry->p2p.connects) { /* the kernel moves them */
        connect->p2p.connects = XCCL_CONNECTS_CALL;
        connect->p2p.awaited = entry->p2p.bytes;
        connect->p2p.bytes = 0;
    }
}

static xcclResult_t add(struct launch *launch, const struct xccl_entry *entry, int alone)
{
    struct xccl_cuda_op op = op_of(entry);
    int needs,
        connects = entry->kind == XCCL_ENTRY_CALL ? entry->task.connects : entry->p2p.connects;
    xcclResult_t rc = xccl_comm_error(entry->task.comm);

    if (rc) /* its device may be gone */
        return rc;
    rc = xccl_cuda_needs_links(&op, &needs);
    if (rc)
        return rc;
    if (needs && alone && xccl_comm_shares_thread(entry->task.comm))
        return shares_thread(entry->task.comm);
    if (needs)
        add_connect(launch, entry, &op);
    if (!connects)
        launch->ops[launch->count++] = op;
    return xcclSuccess;
}

/* Sends to oneself need receives of the same sizes. */
static xcclResult_t check_messages(struct launch *launch)
{
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = 0; i < launch->count && !rc; i++) {
        struct xcclComm *comm = launch->ops[i].task.comm;
        uint32_t messages = 0;

        for (uint32_t k = 0; k < launch->count; k++) {
            if (!launch->ops[k].is_p2p || launch->ops[k].task.comm != comm)
                continue;
            if (k < i)
                break;
            launch->items[messages++] = launch->ops[k].p2p;
        }
        if (messages)
            rc = xccl_comm_check_p2p(comm, launch->items, messages);
    }
    return rc;
}

static void pause_watches(const struct launch *launch)
{
    for (uint32_t i = 0; i < launch->connect_count; i++) {
        struct xcclComm *comm = launch->connects[i].task.comm;
        uint32_t first = 0;

        while (launch->connects[first].task.comm != comm)
            first++;
        if (first == i)
            xccl_cuda_pause(comm);
    }
}

static xcclResult_t connect_all(const struct launch *launch)
{
    xcclResult_t rc;

    if (!launch->connect_count)
        return xcclSuccess;
    pause_watches(launch);
    rc = xccl_call_group(launch->connects, launch->connect_count);
    /* Those that came to their end have been; one that could not begin has not. */
    for (uint32_t i = 0; i < launch->connect_count; i++)
        xccl_cuda_resume(launch->connects[i].task.comm);
    return rc;
}

/* Calls of its communicator before that one in the group. */
static uint32_t ordinal_of(const struct launch *launch, uint32_t at)
{
    uint32_t ordinal = 0;

    for (uint32_t i = 0; i < at; i++)
        ordinal += !launch->ops[i].is_p2p && launch->ops[i].task.comm == launch->ops[at].task.comm;
    return ordinal;
}

/* Fails both if these ranks of a communicator call something else as the same number. */
static xcclResult_t compare_two(const struct launch *launch, uint32_t a, uint32_t b)
{
    struct xcclComm *one = launch->ops[a].task.comm, *other = launch->ops[b].task.comm;
    uint64_t seq = one->cuda->given + ordinal_of(launch, a) + 1;
    struct xccl_board_call mine, theirs;
    xcclResult_t rc;

    if (other->cuda->given + ordinal_of(launch, b) + 1 != seq)
        return xcclSuccess;
    mine = xccl_comm_board_call(&launch->ops[a].task.call, seq);
    theirs = xccl_comm_board_call(&launch->ops[b].task.call, seq);
    rc = xccl_comm_compare_calls(one, other->rank, &mine, &theirs);
    return rc ? xccl_comm_compare_calls(other, one->rank, &theirs, &mine) : xcclSuccess;
}

/* Do the ranks that this thread has of a communicator call the same? Kernels that differ would be
 * behind each other in a stream that the ranks share, and wait for each other for ever. */
static xcclResult_t compare_ranks(const struct launch *launch)
{
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = 1; i < launch->count; i++) {
        const struct xcclComm *comm = launch->ops[i].task.comm, *last = NULL;

        for (uint32_t k = i; k-- > 0 && !launch->ops[i].is_p2p && !rc;) {
            const struct xcclComm *other = launch->ops[k].task.comm;

            if (launch->ops[k].is_p2p || other == comm || (last && other != last) ||
                !xccl_cuda_is_one(other->cuda, comm->cuda))
                continue;
            last = other; /* one of the others will do */
            rc = compare_two(launch, i, k);
        }
    }
    return rc;
}

static xcclResult_t launch_all(struct launch *launch, const struct xccl_entry *entries,
                               uint32_t count)
{
    xcclResult_t rc = xcclSuccess, more;

    for (uint32_t i = 0; i < count && !rc; i++)
        if (is_own(&entries[i]))
            rc = add(launch, &entries[i], count == 1);
    if (!rc)
        rc = check_messages(launch);
    if (rc)
        return rc;
    rc = compare_ranks(launch); /* other communicators go on */
    more = connect_all(launch);
    if (!more)
        more = xccl_cuda_launch_all(launch->ops, launch->count);
    return rc ? rc : more;
}

/* The program hears of these errors now. */
static void note_told(const struct xccl_entry *entries, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct xcclComm *comm = entries[i].task.comm;

        if (is_own(&entries[i]) && atomic_load_explicit(&comm->error, memory_order_relaxed))
            xccl_comm_set_told(comm);
    }
}

xcclResult_t xccl_cuda_submit(const struct xccl_entry *entries, uint32_t count)
{
    struct xccl_cuda_op few_ops[FEW];
    struct xccl_entry few_connects[FEW];
    struct xccl_p2p_item few_items[FEW];
    struct launch launch = {.ops = few_ops, .connects = few_connects, .items = few_items};
    xcclResult_t rc = xcclSuccess;

    if (count > FEW) {
        launch.ops = xccl_calloc(count, sizeof *launch.ops);
        launch.connects = xccl_calloc(count, sizeof *launch.connects);
        launch.items = xccl_calloc(count, sizeof *launch.items);
        if (!launch.ops || !launch.connects || !launch.items)
            rc = xcclSystemError;
    }
    if (!rc)
        rc = launch_all(&launch, entries, count);
    if (rc)
        note_told(entries, count);
    if (count > FEW) {
        xccl_free(launch.ops);
        xccl_free(launch.connects);
        xccl_free(launch.items);
    }
    return rc;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* From entries to launches. A call whose links are missing waits for all ranks, inside a capture
 * too: that part is the host's, and runs side by side for all communicators of the group.
 *
 * Thread: the user's. */
#include "base/alloc.h"
#include "call/call_group.h"
#include "comm/comm_list.h"
#include "cuda/cuda_int.h"

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

/* An entry that only makes links. */
static void add_connect(struct launch *launch, const struct xccl_entry *entry)
{
    struct xccl_entry *connect = &launch->connects[launch->connect_count++];

    *connect = *entry;
    connect->stream = NULL;
    connect->task.connects = 1;
    connect->p2p.connects = 1;
    connect->p2p.bytes = 0; /* they are the kernel's to move */
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
        add_connect(launch, entry);
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

static xcclResult_t launch_all(struct launch *launch, const struct xccl_entry *entries,
                               uint32_t count)
{
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = 0; i < count && !rc; i++)
        if (is_own(&entries[i]))
            rc = add(launch, &entries[i], count == 1);
    if (!rc)
        rc = check_messages(launch);
    if (!rc)
        rc = connect_all(launch);
    return rc ? rc : xccl_cuda_launch_all(launch->ops, launch->count);
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
    if (count > FEW) {
        xccl_free(launch.ops);
        xccl_free(launch.connects);
        xccl_free(launch.items);
    }
    return rc;
}

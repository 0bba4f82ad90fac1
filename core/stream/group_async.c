/* SPDX-License-Identifier: BSD-3-Clause */
/* From entries to a batch: for each communicator its sends and receives as one operation, then its
 * calls in their order, as in groups without streams. A batch is given as a whole or, where
 * something is wrong with one of its entries, not at all. A group with any asynchronous work is
 * given completely, also operations that could be done at once: so they all go side by side.
 * Thread: the user's. */
#include "stream/group_async.h"

#include "base/alloc.h"
#include "comm/device_ops.h"

/* Sends and receives of a communicator. */
struct messages {
    struct xccl_p2p_item *items;
    struct xccl_host_stream **streams;
    uint32_t count;
};

static int is_operation(const struct xccl_entry *entry)
{
    return (entry->kind == XCCL_ENTRY_CALL || entry->kind == XCCL_ENTRY_P2P) &&
           !entry->task.comm->ops->queues;
}

int xccl_group_is_async(const struct xccl_entry *entries, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (is_operation(&entries[i]) &&
            (entries[i].stream || entries[i].task.comm->is_nonblocking ||
             xccl_comm_is_async(entries[i].task.comm)))
            return 1;
    return 0;
}

/* 1: this is the first operation of its communicator. */
static int is_first(const struct xccl_entry *entries, uint32_t at)
{
    for (uint32_t i = 0; i < at; i++)
        if (is_operation(&entries[i]) && entries[i].task.comm == entries[at].task.comm)
            return 0;
    return 1;
}

static xcclResult_t add_messages(struct xccl_async_batch *batch, struct messages *messages,
                                 const struct xccl_entry *entries, uint32_t from, uint32_t count)
{
    struct xcclComm *comm = entries[from].task.comm;

    messages->count = 0;
    for (uint32_t i = from; i < count; i++) {
        if (entries[i].kind != XCCL_ENTRY_P2P || entries[i].task.comm != comm)
            continue;
        messages->items[messages->count] = entries[i].p2p;
        messages->streams[messages->count++] = entries[i].stream;
    }
    if (!messages->count)
        return xcclSuccess;
    return xccl_async_add_p2p(batch, comm, messages->items, messages->streams, messages->count);
}

static xcclResult_t add_calls(struct xccl_async_batch *batch, const struct xccl_entry *entries,
                              uint32_t from, uint32_t count)
{
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = from; i < count && !rc; i++)
        if (entries[i].kind == XCCL_ENTRY_CALL && entries[i].task.comm == entries[from].task.comm)
            rc = xccl_async_add_call(batch, &entries[i].task, entries[i].stream);
    return rc;
}

static xcclResult_t add_all(struct xccl_async_batch *batch, const struct xccl_entry *entries,
                            uint32_t count)
{
    struct messages messages = {.items = xccl_calloc(count, sizeof *messages.items),
                                .streams = xccl_calloc(count, sizeof(void *))};
    xcclResult_t rc = messages.items && messages.streams ? xcclSuccess : xcclSystemError;

    for (uint32_t i = 0; i < count && !rc; i++) {
        if (!is_operation(&entries[i]) || !is_first(entries, i))
            continue;
        rc = add_messages(batch, &messages, entries, i, count);
        if (!rc)
            rc = add_calls(batch, entries, i, count);
    }
    xccl_free(messages.items);
    xccl_free(messages.streams);
    return rc;
}

static xcclResult_t add_one(struct xccl_async_batch *batch, const struct xccl_entry *entry)
{
    if (entry->kind == XCCL_ENTRY_CALL)
        return xccl_async_add_call(batch, &entry->task, entry->stream);
    return xccl_async_add_p2p(batch, entry->task.comm, &entry->p2p, &entry->stream, 1);
}

/* 1: somebody has to ask whether it is done. */
static int goes_on(const struct xccl_entry *entries, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (is_operation(&entries[i]) && !entries[i].stream && entries[i].task.comm->is_nonblocking)
            return 1;
    return 0;
}

xcclResult_t xccl_group_submit(const struct xccl_entry *entries, uint32_t count)
{
    struct xccl_async_batch batch;
    xcclResult_t rc;

    xccl_async_batch_init(&batch);
    rc = count == 1 ? add_one(&batch, entries) : add_all(&batch, entries, count);
    if (rc) {
        xccl_async_drop(&batch);
        return rc;
    }
    rc = xccl_async_submit(&batch);
    return !rc && goes_on(entries, count) ? xcclInProgress : rc;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests over NCCL's contract. Each of the plugin's is wrapped in one of the comm's own array, so
 * that a request may end in progress, or beside another one's error, before the caller's test:
 *
 *   free --isend, irecv, iflush--> in flight --the plugin's test: done--> done --test--> free
 *
 * A comm takes as many as the plugin's contract allows, 32 (8 in version 6), a sender maxRecvs
 * times as many; beyond that the answer is "busy". Flushes have as many places of their own, since
 * they cannot be told "busy". Sizes that the plugin's version does not carry are refused, never
 * cut. After an error of the plugin the comm keeps the text for each later call; the others in
 * flight are asked once more then, and those that are done stay done.
 *
 * Thread: one at a time a comm; progress beside none. Nothing here allocates or locks. */
#include "plugin/nccl_adapter_int.h"

#include <sched.h>
#include <string.h>

#include "base/clock.h"

#define NONE NCCL_REQUESTS_MAX

/* The old hint, and NCCL's way to say it. */
static void *const hint_optional = (void *)1;

/* ---- the list of those in flight ---- */

/* A free one of those from first to before end, not yet in flight; NULL: busy. */
static struct nccl_request *request_find(struct nccl_comm *comm, int first, int end)
{
    for (int word = first / 64; word * 64 < end; word++) {
        uint64_t unused = ~comm->taken[word];

        if (word * 64 < first)
            unused &= ~0ull << (first % 64);
        if (unused) {
            int at = word * 64 + __builtin_ctzll(unused);

            return at < end ? &comm->requests[at] : NULL;
        }
    }
    return NULL;
}

static uint16_t request_index(const struct nccl_request *request)
{
    return (uint16_t)(request - request->comm->requests);
}

/* Into the list's end. */
static void request_begin(struct nccl_request *request, void *inner)
{
    struct nccl_comm *comm = request->comm;
    uint16_t index = request_index(request);

    request->inner = inner;
    request->done = 0;
    request->before = comm->last;
    request->after = NONE;
    if (comm->last == NONE)
        comm->first = index;
    else
        comm->requests[comm->last].after = index;
    comm->last = index;
    comm->taken[index / 64] |= 1ull << (index % 64);
    comm->in_flight++;
}

/* Out of the list: done, but not told yet. */
static void request_end(struct nccl_request *request)
{
    struct nccl_comm *comm = request->comm;

    if (request->before == NONE)
        comm->first = request->after;
    else
        comm->requests[request->before].after = request->after;
    if (request->after == NONE)
        comm->last = request->before;
    else
        comm->requests[request->after].before = request->before;
    request->done = 1;
    request->inner = NULL;
    comm->in_flight--;
}

static void request_free(struct nccl_request *request)
{
    uint16_t index = request_index(request);

    request->comm->taken[index / 64] &= ~(1ull << (index % 64));
    request->done = 0;
}

/* ---- errors ---- */

static xcclResult_t comm_error(const struct nccl_comm *comm)
{
    memcpy(nccl_here.text, comm->text, sizeof(nccl_here.text));
    return comm->rc;
}

/* Keeps the thread's error text for all later calls. */
static xcclResult_t comm_fail(struct nccl_comm *comm, xcclResult_t rc)
{
    if (comm->rc == xcclSuccess) {
        comm->rc = rc;
        memcpy(comm->text, nccl_here.text, sizeof(comm->text));
    }
    return rc;
}

/* ---- one look at the plugin ---- */

/* What came, or 0: the plugin tells nonsense. */
static int sizes_take(struct nccl_request *request, const int *sizes)
{
    const struct nccl_comm *comm = request->comm;

    if (comm->is_send || request->is_flush)
        return 1;
    for (int i = 0; i < request->count; i++) {
        int bytes = sizes[i];

        /* An optional receive may end before its size is known. */
        if (bytes == -1 && request->optional)
            bytes = 0;
        if (bytes < 0 || (size_t)bytes > request->bytes[i]) {
            nccl_refuse(comm->instance, "test", xcclInternalError,
                        "a receive of %zu bytes is done with a size of %d", request->bytes[i],
                        bytes);
            return 0;
        }
        request->bytes[i] = (size_t)bytes;
    }
    return 1;
}

/* Asks for one in flight, which is out of the list afterwards when it is done. */
static xcclResult_t request_look(struct nccl_request *request)
{
    struct nccl_comm *comm = request->comm;
    struct nccl_instance *instance = comm->instance;
    int sizes[XCCL_NET_MAX_RECVS], done = 0, result;

    memset(sizes, 0xff, sizeof(sizes));
    result = instance->common.test(request->inner, &done, sizes);
    if (result)
        return nccl_failed(instance, "test", result);
    if (!done)
        return xcclSuccess;
    if (!sizes_take(request, sizes))
        return xcclInternalError;
    request_end(request);
    return xcclSuccess;
}

/* Asks for each in flight once, in the order of posting, but for one. Errors are the comm's when
 * it has none yet. Returns how many ended in an error. */
static int comm_look(struct nccl_comm *comm, const struct nccl_request *but)
{
    uint16_t at = comm->first;
    int failed = 0;

    while (at != NONE) {
        struct nccl_request *request = &comm->requests[at];
        xcclResult_t rc;

        at = request->after;
        if (request == but)
            continue;
        rc = request_look(request);
        if (rc == xcclSuccess)
            continue;
        failed++;
        comm_fail(comm, rc);
    }
    return failed;
}

int nccl_comm_drain(struct nccl_comm *comm, int limit_ms)
{
    struct xccl_limit limit;
    int failed = 0;

    if (comm->in_flight == 0)
        return 0;
    limit = xccl_limit_ms((uint64_t)limit_ms, NULL);
    for (;;) {
        failed = comm_look(comm, NULL);
        /* One whose test is an error has ended, too. */
        if (failed == comm->in_flight || xccl_limit_passed(&limit))
            return comm->in_flight - failed;
        sched_yield();
    }
}

/* ---- the contract's entries ---- */

xcclResult_t nccl_isend(xcclNetSendComm_t comm_, const void *data, size_t bytes, uint32_t tag,
                        xcclNetMem_t mem, xcclNetRequest_t *request_out)
{
    struct nccl_comm *comm = comm_;
    struct nccl_instance *instance = comm->instance;
    struct nccl_request *request;
    void *inner = NULL;
    int result;

    if (comm->rc != xcclSuccess)
        return comm_error(comm);
    if (bytes > comm->max_bytes)
        return nccl_refuse(instance, "isend", xcclInvalidArgument,
                           "a message of %zu bytes, at most %zu; split it", bytes, comm->max_bytes);
    request = request_find(comm, 0, comm->request_count);
    if (!request) {
        *request_out = NULL;
        return xcclSuccess;
    }
    nccl_enter(instance->log);
    result = instance->ops->isend(instance, comm->inner, (void *)(uintptr_t)data, bytes, (int)tag,
                                  nccl_mem_inner(mem), &inner);
    nccl_leave();
    if (result)
        return comm_fail(comm, nccl_failed(instance, "isend", result));
    *request_out = inner ? request : NULL;
    if (!inner)
        return xcclSuccess;
    request->count = 1;
    request->is_flush = request->optional = 0;
    request->bytes[0] = bytes;
    request_begin(request, inner);
    return xcclSuccess;
}

/* Copies the parts into the plugin's types. */
static xcclResult_t parts_take(const struct nccl_comm *comm, const char *entry, int count,
                               void *const *data, const size_t *bytes, const xcclNetMem_t *mems,
                               struct nccl_parts *parts_out)
{
    if (count < 1 || count > comm->max_recvs)
        return nccl_refuse(comm->instance, entry, xcclInvalidArgument,
                           "%d receives at once, the device takes 1 to %d", count, comm->max_recvs);
    parts_out->count = count;
    for (int i = 0; i < count; i++) {
        if (bytes[i] > comm->max_bytes)
            return nccl_refuse(comm->instance, entry, xcclInvalidArgument,
                               "a message of %zu bytes, at most %zu; split it", bytes[i],
                               comm->max_bytes);
        parts_out->data[i] = data[i];
        parts_out->bytes[i] = bytes[i];
        parts_out->mems[i] = nccl_mem_inner(mems[i]);
    }
    return xcclSuccess;
}

xcclResult_t nccl_irecv(xcclNetRecvComm_t comm_, int count, void *const *data, const size_t *bytes,
                        const uint32_t *tags, const xcclNetMem_t *mems,
                        xcclNetRequest_t *request_io)
{
    struct nccl_comm *comm = comm_;
    struct nccl_instance *instance = comm->instance;
    int optional = instance->ops->hints && *request_io == XCCL_NET_RECV_OPTIONAL;
    void *inner = optional ? hint_optional : NULL;
    struct nccl_request *request;
    struct nccl_parts parts;
    xcclResult_t rc;
    int result;

    if (comm->rc != xcclSuccess)
        return comm_error(comm);
    rc = parts_take(comm, "irecv", count, data, bytes, mems, &parts);
    if (rc != xcclSuccess)
        return rc;
    for (int i = 0; i < count; i++)
        parts.tags[i] = (int)tags[i];
    request = request_find(comm, 0, comm->request_count);
    if (!request) {
        *request_io = NULL;
        return xcclSuccess;
    }
    nccl_enter(instance->log);
    result = instance->ops->irecv(instance, comm->inner, &parts, &inner);
    nccl_leave();
    if (result)
        return comm_fail(comm, nccl_failed(instance, "irecv", result));
    /* The hint left where it was is no request either. */
    if (inner == hint_optional)
        inner = NULL;
    *request_io = inner ? request : NULL;
    if (!inner)
        return xcclSuccess;
    request->count = (uint8_t)count;
    request->is_flush = 0;
    request->optional = (uint8_t)optional;
    memcpy(request->bytes, bytes, (size_t)count * sizeof(*bytes));
    request_begin(request, inner);
    return xcclSuccess;
}

xcclResult_t nccl_iflush(xcclNetRecvComm_t comm_, int count, void *const *data, const size_t *bytes,
                         const xcclNetMem_t *mems, xcclNetRequest_t *request_out)
{
    struct nccl_comm *comm = comm_;
    struct nccl_instance *instance = comm->instance;
    int sizes[XCCL_NET_MAX_RECVS], result;
    struct nccl_request *request;
    struct nccl_parts parts;
    void *inner = NULL;
    xcclResult_t rc;

    if (comm->rc != xcclSuccess)
        return comm_error(comm);
    rc = parts_take(comm, "iflush", count, data, bytes, mems, &parts);
    if (rc != xcclSuccess)
        return rc;
    for (int i = 0; i < count; i++)
        sizes[i] = (int)bytes[i];
    if (!instance->common.iflush) {
        *request_out = NULL;
        return xcclSuccess;
    }
    request = request_find(comm, comm->request_count, 2 * comm->request_count);
    if (!request)
        return nccl_refuse(instance, "iflush", xcclInvalidUsage,
                           "%d flushes in flight; test some first", comm->request_count);
    nccl_enter(instance->log);
    result = instance->common.iflush(comm->inner, count, parts.data, sizes, parts.mems, &inner);
    nccl_leave();
    if (result)
        return comm_fail(comm, nccl_failed(instance, "iflush", result));
    *request_out = inner ? request : NULL;
    if (!inner)
        return xcclSuccess;
    request->count = (uint8_t)count;
    request->is_flush = 1;
    request->optional = 0;
    memcpy(request->bytes, bytes, (size_t)count * sizeof(*bytes));
    request_begin(request, inner);
    return xcclSuccess;
}

xcclResult_t nccl_test(xcclNetRequest_t request_, int *done_out, size_t *bytes_out)
{
    struct nccl_request *request = request_;
    struct nccl_comm *comm = request->comm;
    xcclResult_t rc;

    if (!request->done) {
        if (comm->rc != xcclSuccess)
            return comm_error(comm);
        if (!request->inner)
            return nccl_refuse(comm->instance, "test", xcclInvalidUsage,
                               "a request is tested again after it was done");
        nccl_enter(comm->instance->log);
        rc = request_look(request);
        if (rc != xcclSuccess) {
            comm_fail(comm, rc);
            comm_look(comm, request);
            comm_error(comm);
        }
        nccl_leave();
        if (rc != xcclSuccess)
            return comm->rc;
        if (!request->done) {
            *done_out = 0;
            return xcclSuccess;
        }
    }
    if (bytes_out)
        memcpy(bytes_out, request->bytes, (size_t)request->count * sizeof(*bytes_out));
    request_free(request);
    *done_out = 1;
    return xcclSuccess;
}

xcclResult_t nccl_progress(xcclNetContext_t ctx, int *pending_out)
{
    struct nccl_instance *instance = ctx;
    int pending = 0;

    nccl_enter(instance->log);
    for (struct nccl_comm *comm = instance->comms; comm; comm = comm->next) {
        if (comm->in_flight == 0 || comm->rc != xcclSuccess)
            continue;
        /* An error is told by the next test of that comm, whose sends are in flight: none of them
         * was called done. */
        comm_look(comm, NULL);
        if (comm->is_send && comm->rc == xcclSuccess && comm->in_flight > 0)
            pending = 1;
    }
    nccl_leave();
    *pending_out = pending;
    return xcclSuccess;
}

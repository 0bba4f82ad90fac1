/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests over NCCL's contract. Each of the plugin's is wrapped in one of the comm's own array, so
 * that a request may end in progress, or beside another one's error, before the caller's test:
 *
 *   free --isend, irecv, iflush--> in flight --the plugin's test: done--> done --test--> free
 *
 * The plugin is only ever tested for the oldest message and the oldest flush in flight, since
 * NCCL's proxy does nothing else and plugins rely on it: NCCL's net_socket.cc reads the size of the
 * next message for whichever request is tested. A caller's test of a later one tests those before
 * it.
 *
 * A comm takes as many as the plugin's contract allows, 32 (8 in version 6), a sender maxRecvs
 * times as many; beyond that the answer is "busy". Flushes have as many places of their own, since
 * they cannot be told "busy". Sizes that the plugin's version does not carry are refused, never
 * cut. After an error of the plugin the comm keeps the text for each later call; the others in
 * flight are asked once more then, and those that are done stay done.
 *
 * Thread: one at a time a comm; progress beside none. Nothing here allocates or locks, and init's
 * log is not called: what a plugin warns of here is in the error's text, and in XCCL's own log. */
#include "plugin/nccl_adapter_int.h"

#include <sched.h>
#include <string.h>

#include "base/clock.h"

#define NONE        NCCL_REQUESTS_MAX
#define SIZE_UNTOLD (-1) /* before a test; NCCL has 0 there */

/* The old hint, and NCCL's way to say it. */
static void *const hint_optional = (void *)1;

/* ---- the lists of those in flight ---- */

static struct nccl_in_flight *list_of(struct nccl_request *request)
{
    return request->is_flush ? &request->comm->flushes : &request->comm->messages;
}

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
    struct nccl_in_flight *list = list_of(request);
    uint16_t index = request_index(request);

    request->inner = inner;
    request->done = 0;
    request->after = NONE;
    if (list->last == NONE)
        list->first = index;
    else
        comm->requests[list->last].after = index;
    list->last = index;
    comm->taken[index / 64] |= 1ull << (index % 64);
    comm->in_flight++;
}

/* The oldest leaves its list: done, but not told yet; or ended by an error, which the comm has. The
 * plugin is not asked for it again, since it may be gone there. */
static void request_end(struct nccl_request *request, int done)
{
    struct nccl_in_flight *list = list_of(request);

    list->first = request->after;
    if (list->first == NONE)
        list->last = NONE;
    request->done = (uint8_t)done;
    request->inner = NULL;
    request->comm->in_flight--;
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
static void comm_fail(struct nccl_comm *comm, xcclResult_t rc)
{
    if (comm->rc != xcclSuccess)
        return;
    comm->rc = rc;
    memcpy(comm->text, nccl_here.text, sizeof(comm->text));
}

/* ---- one look at the plugin ---- */

/* Keeps the sizes that the plugin tells; 0: they are impossible. NCCL needs no size, so a plugin
 * may leave it out; and an optional receive may end before its size is known. */
static int sizes_take(struct nccl_request *request, const int *sizes)
{
    const struct nccl_comm *comm = request->comm;

    if (comm->is_send || request->is_flush)
        return 1;
    for (int i = 0; i < request->count; i++) {
        int bytes = sizes[i];

        if (bytes == SIZE_UNTOLD) {
            request->bytes[i] = XCCL_NET_SIZE_UNKNOWN;
            continue;
        }
        if (bytes < 0 || (size_t)bytes > request->bytes[i]) {
            nccl_refuse(comm->instance, "test", xcclInternalError,
                        "a receive of %zu bytes was completed with a size of %d", request->bytes[i],
                        bytes);
            return 0;
        }
        request->bytes[i] = (size_t)bytes;
    }
    return 1;
}

/* Tests the oldest of its list, which leaves the list unless it goes on. */
static xcclResult_t request_look(struct nccl_request *request)
{
    struct nccl_comm *comm = request->comm;
    struct nccl_instance *instance = comm->instance;
    int sizes[XCCL_NET_MAX_RECVS], done = 0, result;
    xcclResult_t rc = xcclSuccess;

    for (int i = 0; i < request->count; i++)
        sizes[i] = SIZE_UNTOLD;
    result = instance->common.test(request->inner, &done, sizes);
    if (result)
        rc = nccl_failed(instance, "test", result);
    else if (!done)
        return xcclSuccess;
    else if (!sizes_take(request, sizes))
        rc = xcclInternalError;
    request_end(request, rc == xcclSuccess);
    return rc;
}

/* Tests the oldest, then the next, until one goes on. The first error becomes the comm's, if it has
 * none yet; those behind it are tested all the same. */
static void list_look(struct nccl_comm *comm, const struct nccl_in_flight *list)
{
    while (list->first != NONE) {
        struct nccl_request *request = &comm->requests[list->first];
        xcclResult_t rc = request_look(request);

        if (rc != xcclSuccess)
            comm_fail(comm, rc);
        else if (!request->done)
            return;
    }
}

static void comm_look(struct nccl_comm *comm)
{
    list_look(comm, &comm->messages);
    list_look(comm, &comm->flushes);
}

/* Tests those up to this one, until one goes on. */
static xcclResult_t look_up_to(struct nccl_request *request)
{
    const struct nccl_in_flight *list = list_of(request);
    struct nccl_request *oldest = NULL;
    xcclResult_t rc;

    do {
        oldest = &request->comm->requests[list->first];
        rc = request_look(oldest);
    } while (rc == xcclSuccess && oldest->done && oldest != request);
    return rc;
}

/* The comm fails with the thread's error text. What is complete now stays complete. */
static xcclResult_t comm_break(struct nccl_comm *comm, xcclResult_t rc)
{
    comm_fail(comm, rc);
    nccl_enter(NULL);
    comm_look(comm);
    return comm_error(comm);
}

int nccl_comm_drain(struct nccl_comm *comm, int limit_ms)
{
    struct xccl_limit limit;

    if (comm->in_flight == 0)
        return 0;
    limit = xccl_limit_ms((uint64_t)limit_ms, NULL);
    for (;;) {
        comm_look(comm);
        if (comm->in_flight == 0 || xccl_limit_passed(&limit))
            return comm->in_flight;
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
        return nccl_refuse(
            instance, "isend", xcclInvalidArgument,
            "a message of %zu bytes is too large: at most %zu are possible; split it", bytes,
            comm->max_bytes);
    request = request_find(comm, 0, comm->request_count);
    if (!request) {
        *request_out = NULL;
        return xcclSuccess;
    }
    nccl_enter(NULL);
    result = instance->ops->isend(instance, comm->inner, (void *)(uintptr_t)data, bytes, (int)tag,
                                  nccl_mem_inner(mem), &inner);
    if (result)
        return comm_break(comm, nccl_failed(instance, "isend", result));
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
                           "cannot post %d receives together: the device accepts 1 to %d", count,
                           comm->max_recvs);
    parts_out->count = count;
    for (int i = 0; i < count; i++) {
        if (bytes[i] > comm->max_bytes)
            return nccl_refuse(
                comm->instance, entry, xcclInvalidArgument,
                "a message of %zu bytes is too large: at most %zu are possible; split it", bytes[i],
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
    nccl_enter(NULL);
    result = instance->ops->irecv(instance, comm->inner, &parts, &inner);
    if (result)
        return comm_break(comm, nccl_failed(instance, "irecv", result));
    /* The hint left where it was is no request either. */
    if (inner == hint_optional)
        inner = NULL;
    *request_io = inner ? request : NULL;
    if (!inner)
        return xcclSuccess;
    request->count = (uint8_t)count;
    request->is_flush = 0;
    request->optional = (uint8_t)optional;
    for (int i = 0; i < count; i++)
        request->bytes[i] = bytes[i];
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
                           "%d flushes are already in flight; test some first",
                           comm->request_count);
    nccl_enter(NULL);
    result = instance->common.iflush(comm->inner, count, parts.data, sizes, parts.mems, &inner);
    if (result)
        return comm_break(comm, nccl_failed(instance, "iflush", result));
    *request_out = inner ? request : NULL;
    if (!inner)
        return xcclSuccess;
    request->count = (uint8_t)count;
    request->is_flush = 1;
    request->optional = 0;
    for (int i = 0; i < count; i++)
        request->bytes[i] = bytes[i];
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
        nccl_enter(NULL);
        rc = look_up_to(request);
        if (rc != xcclSuccess)
            return comm_break(comm, rc);
        if (!request->done) {
            *done_out = 0;
            return xcclSuccess;
        }
    }
    for (int i = 0; bytes_out && i < request->count; i++)
        bytes_out[i] = request->bytes[i];
    request_free(request);
    *done_out = 1;
    return xcclSuccess;
}

xcclResult_t nccl_progress(xcclNetContext_t ctx, int *pending_out)
{
    struct nccl_instance *instance = ctx;
    int pending = 0;

    nccl_enter(NULL);
    for (struct nccl_comm *comm = instance->comms; comm; comm = comm->next) {
        if (comm->in_flight == 0 || comm->rc != xcclSuccess)
            continue;
        /* An error is told by the next test of that comm, whose sends are in flight: none of them
         * was called done. */
        comm_look(comm);
        if (comm->is_send && comm->rc == xcclSuccess && comm->in_flight > 0)
            pending = 1;
    }
    *pending_out = pending;
    return xcclSuccess;
}

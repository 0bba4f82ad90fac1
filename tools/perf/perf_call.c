/* SPDX-License-Identifier: BSD-3-Clause */
/* One call of what `xccl perf` measures, and the kinds of memory that XCCL has for its buffers.
 *
 * Thread: the rank's. */
#include "perf/perf.h"

/* To the next rank, and from the one before. */
static xcclResult_t send_recv(const struct xccl_perf_job *job, const void *send, void *recv,
                              size_t count)
{
    int next = (job->rank + 1) % job->nranks, before = (job->rank + job->nranks - 1) % job->nranks;
    xcclResult_t rc = xcclGroupStart(), ended;

    if (!rc)
        rc = xcclSend(send, count, job->type, next, job->comm, job->stream);
    if (!rc)
        rc = xcclRecv(recv, count, job->type, before, job->comm, job->stream);
    ended = xcclGroupEnd();
    return rc ? rc : ended;
}

/* There and back. */
static xcclResult_t ping(const struct xccl_perf_job *job, const void *send, void *recv,
                         size_t count)
{
    xcclResult_t rc = xcclSuccess;

    if (job->rank == 0) {
        rc = xcclSend(send, count, job->type, 1, job->comm, job->stream);
        return rc ? rc : xcclRecv(recv, count, job->type, 1, job->comm, job->stream);
    }
    rc = xcclRecv(recv, count, job->type, 0, job->comm, job->stream);
    return rc ? rc : xcclSend(send, count, job->type, 0, job->comm, job->stream);
}

/* This rank's ends of a message; both where it goes to itself, which needs a group. */
static xcclResult_t message(const struct xccl_perf_job *job, const void *send, void *recv,
                            size_t count)
{
    xcclResult_t rc = xcclSuccess;

    if (job->rank == job->root)
        rc = xcclSend(send, count, job->type, job->peer, job->comm, job->stream);
    if (!rc && job->rank == job->peer)
        rc = xcclRecv(recv, count, job->type, job->root, job->comm, job->stream);
    return rc;
}

static xcclResult_t call_uneven(const struct xccl_perf_job *job, const void *send, void *recv)
{
    const size_t *sent = job->blocks[XCCL_PERF_SENT], *got = job->blocks[XCCL_PERF_GOT];
    const size_t *sent_at = job->blocks[XCCL_PERF_SENT_AT];
    const size_t *got_at = job->blocks[XCCL_PERF_GOT_AT];

    switch (job->coll->which) {
    case XCCL_PERF_ALL_GATHERV:
        return xcclAllGatherv(send, got[job->rank], recv, got, got_at, job->type, job->comm,
                              job->stream);
    case XCCL_PERF_REDUCE_SCATTERV:
        return xcclReduceScatterv(send, sent, sent_at, recv, sent[job->rank], job->type, job->op,
                                  job->comm, job->stream);
    default:
        return xcclAlltoAllv(send, sent, sent_at, recv, got, got_at, job->type, job->comm,
                             job->stream);
    }
}

xcclResult_t xccl_perf_call(const struct xccl_perf_job *job, const void *send, void *recv,
                            size_t count)
{
    xcclDataType_t type = job->type;
    int root = job->root;
    xcclComm_t comm = job->comm;

    switch (job->coll->which) {
    case XCCL_PERF_ALL_REDUCE:
        return xcclAllReduce(send, recv, count, type, job->op, comm, job->stream);
    case XCCL_PERF_ALL_GATHER:
        return xcclAllGather(send, recv, count, type, comm, job->stream);
    case XCCL_PERF_BROADCAST:
        return xcclBroadcast(send, recv, count, type, root, comm, job->stream);
    case XCCL_PERF_REDUCE:
        return xcclReduce(send, recv, count, type, job->op, root, comm, job->stream);
    case XCCL_PERF_REDUCE_SCATTER:
        return xcclReduceScatter(send, recv, count, type, job->op, comm, job->stream);
    case XCCL_PERF_ALLTOALL:
        return xcclAlltoAll(send, recv, count, type, comm, job->stream);
    case XCCL_PERF_GATHER:
        return xcclGather(send, recv, count, type, root, comm, job->stream);
    case XCCL_PERF_SCATTER:
        return xcclScatter(send, recv, count, type, root, comm, job->stream);
    case XCCL_PERF_SENDRECV:
        return send_recv(job, send, recv, count);
    case XCCL_PERF_PING:
        return ping(job, send, recv, count);
    case XCCL_PERF_MESSAGE:
        return message(job, send, recv, count);
    case XCCL_PERF_BARRIER:
        return xcclBarrier(comm, job->stream);
    default:
        return call_uneven(job, send, recv);
    }
}

void *xccl_perf_take_shared(size_t bytes)
{
    void *memory = NULL;

    return xcclMemAlloc(&memory, bytes) == xcclSuccess ? memory : NULL;
}

void xccl_perf_give_shared(void *memory)
{
    (void)xcclMemFree(memory);
}

xcclResult_t xccl_perf_register(const struct xccl_perf_job *job, size_t bytes)
{
    xcclResult_t rc = xcclSuccess;
    void *handle;

    for (int i = 0; i < 2 && !rc; i++)
        rc = xcclCommRegister(job->comm, job->memory[i], bytes + XCCL_PERF_MARGINS, &handle);
    return rc;
}

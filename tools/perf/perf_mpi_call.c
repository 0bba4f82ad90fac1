/* SPDX-License-Identifier: BSD-3-Clause */
/* The collectives of `xccl perf` in MPI's words. MPI has no averages, no reductions of short
 * floats, and a broadcast only in place; counts are an int's.
 *
 * Thread: the program's only one. */
#include <limits.h>

#include "perf/perf_mpi.h"

/* 0: there is none. What is only moved may be of any type of the same size. */
static int find_type(const struct xccl_perf_job *job, MPI_Datatype *type_out)
{
    switch ((int)job->type) {
    case xcclInt8:
        *type_out = MPI_INT8_T;
        return 1;
    case xcclUint8:
        *type_out = MPI_UINT8_T;
        return 1;
    case xcclInt32:
        *type_out = MPI_INT32_T;
        return 1;
    case xcclUint32:
        *type_out = MPI_UINT32_T;
        return 1;
    case xcclInt64:
        *type_out = MPI_INT64_T;
        return 1;
    case xcclUint64:
        *type_out = MPI_UINT64_T;
        return 1;
    case xcclFloat32:
        *type_out = MPI_FLOAT;
        return 1;
    case xcclFloat64:
        *type_out = MPI_DOUBLE;
        return 1;
    default:
        *type_out = xccl_perf_types[job->type].bytes == 1 ? MPI_UINT8_T : MPI_UINT16_T;
        return !job->coll->reduces;
    }
}

static int find_op(const struct xccl_perf_job *job, MPI_Op *op_out)
{
    switch ((int)job->op) {
    case xcclSum:
        *op_out = MPI_SUM;
        return 1;
    case xcclProd:
        *op_out = MPI_PROD;
        return 1;
    case xcclMax:
        *op_out = MPI_MAX;
        return 1;
    case xcclMin:
        *op_out = MPI_MIN;
        return 1;
    default:
        *op_out = MPI_SUM;
        return !job->coll->reduces;
    }
}

/* Where MPI looks for data in place: it says so instead of giving the address. */
static void place(struct perf_mpi_call *call, const struct xccl_perf_shape *shape, int in_place)
{
    const struct xccl_perf_job *job = call->job;
    struct xccl_perf_buffers at = xccl_perf_buffers_of(job, shape, in_place);

    call->send = at.send;
    call->recv = at.recv;
    if (!in_place)
        return;
    switch (job->coll->which) {
    case XCCL_PERF_SCATTER:
        if (job->rank == job->root)
            call->recv = MPI_IN_PLACE;
        break;
    case XCCL_PERF_REDUCE:
    case XCCL_PERF_GATHER:
        if (job->rank == job->root)
            call->send = MPI_IN_PLACE;
        break;
    default:
        call->send = MPI_IN_PLACE;
        call->recv = job->recv; /* a reduce-scatter leaves its block at the beginning */
    }
}

int perf_mpi_call_init(struct perf_mpi_call *call, const struct xccl_perf_job *job,
                       const struct xccl_perf_shape *shape, int in_place)
{
    call->job = job;
    if (!find_type(job, &call->type) || !find_op(job, &call->op) ||
        shape->bytes / (size_t)xccl_perf_types[job->type].bytes > INT_MAX ||
        (job->coll->which == XCCL_PERF_BROADCAST && !in_place))
        return 0;
    call->count = (int)shape->count;
    for (int k = 0; k < XCCL_PERF_BLOCKS; k++) {
        for (int i = 0; i < job->nranks; i++)
            call->blocks[k][i] = (int)job->blocks[k][i];
    }
    place(call, shape, in_place);
    return 1;
}

static int run_uneven(const struct perf_mpi_call *call)
{
    const int *sent = call->blocks[XCCL_PERF_SENT], *sent_at = call->blocks[XCCL_PERF_SENT_AT];
    const int *got = call->blocks[XCCL_PERF_GOT], *got_at = call->blocks[XCCL_PERF_GOT_AT];
    int own = got[call->job->rank];

    switch (call->job->coll->which) {
    case XCCL_PERF_ALL_GATHERV:
        return MPI_Allgatherv(call->send, own, call->type, call->recv, got, got_at, call->type,
                              MPI_COMM_WORLD);
    case XCCL_PERF_REDUCE_SCATTERV:
        return MPI_Reduce_scatter(call->send, call->recv, sent, call->type, call->op,
                                  MPI_COMM_WORLD);
    default:
        return MPI_Alltoallv(call->send, sent, sent_at, call->type, call->recv, got, got_at,
                             call->type, MPI_COMM_WORLD);
    }
}

int perf_mpi_call_run(const struct perf_mpi_call *call)
{
    const struct xccl_perf_job *job = call->job;
    int n = call->count, root = job->root, next = (job->rank + 1) % job->nranks;
    int before = (job->rank + job->nranks - 1) % job->nranks;
    MPI_Datatype type = call->type;

    switch (job->coll->which) {
    case XCCL_PERF_ALL_REDUCE:
        return MPI_Allreduce(call->send, call->recv, n, type, call->op, MPI_COMM_WORLD);
    case XCCL_PERF_ALL_GATHER:
        return MPI_Allgather(call->send, n, type, call->recv, n, type, MPI_COMM_WORLD);
    case XCCL_PERF_BROADCAST:
        return MPI_Bcast(call->recv, n, type, root, MPI_COMM_WORLD);
    case XCCL_PERF_REDUCE:
        return MPI_Reduce(call->send, call->recv, n, type, call->op, root, MPI_COMM_WORLD);
    case XCCL_PERF_REDUCE_SCATTER:
        return MPI_Reduce_scatter_block(call->send, call->recv, n, type, call->op, MPI_COMM_WORLD);
    case XCCL_PERF_ALLTOALL:
        return MPI_Alltoall(call->send, n, type, call->recv, n, type, MPI_COMM_WORLD);
    case XCCL_PERF_GATHER:
        return MPI_Gather(call->send, n, type, call->recv, n, type, root, MPI_COMM_WORLD);
    case XCCL_PERF_SCATTER:
        return MPI_Scatter(call->send, n, type, call->recv, n, type, root, MPI_COMM_WORLD);
    case XCCL_PERF_SENDRECV:
        return MPI_Sendrecv(call->send, n, type, next, 0, call->recv, n, type, before, 0,
                            MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    case XCCL_PERF_BARRIER:
        return MPI_Barrier(MPI_COMM_WORLD);
    default:
        return run_uneven(call);
    }
}

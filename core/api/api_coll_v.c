/* SPDX-License-Identifier: BSD-3-Clause */
/* The collectives whose blocks have a size each. The user's arrays are turned into tables of bytes
 * here, checked entry by entry, and not looked at again; errors name the array and the index.
 * Blocks of size 0 lie nowhere. Blocks that are written must not share memory with one another or
 * with what is read, but for the in-place form. Thread: the user's. */
#include "xccl.h"

#include <stddef.h>
#include <stdlib.h>

#include "api/api_int.h"
#include "api/group.h"
#include "base/alloc.h"
#include "comm/device_ops.h"

#define BYTES_MAX (SIZE_MAX / 4) /* of a buffer, as in api_coll.c */

/* A side of a call: its buffer, and the arrays that say where blocks lie in it. Without arrays it
 * is one block of `count` elements. */
struct side {
    const void *buffer;
    const char *buffer_name, *counts_name, *displs_name;
    const size_t *counts, *displs;
    size_t count;
    int is_array; /* 1: one block for each rank */
};

/* A call as it came. */
struct vcall {
    const char *name;
    struct xcclComm *comm;
    struct xccl_call call;
    struct side sides[2]; /* XCCL_BUFFER_IN, OUT */
    struct xccl_call_sizes *sizes;
};

/* ---- arguments alone ---- */

static xcclResult_t bad_number(const struct vcall *v, const char *name, int value, int count)
{
    return xccl_fail(xcclInvalidArgument, 0, NULL, "%s: %s is %d, not 0..%d", v->name, name, value,
                     count - 1);
}

static xcclResult_t check_plain(const struct vcall *v, xcclStream_t stream)
{
    xcclResult_t rc = xccl_api_check_comm(v->name, v->comm);

    if (!rc && stream && !v->comm->ops->queues)
        rc = xccl_api_check_stream(v->name, stream);
    if (rc)
        return rc;
    if ((unsigned)v->call.type >= xcclNumTypes)
        return bad_number(v, "datatype", (int)v->call.type, xcclNumTypes);
    /* A call that does not reduce has op 0. */
    if ((unsigned)v->call.op >= xcclNumOps) {
        const struct xccl_task task = {.comm = v->comm, .call = v->call};

        rc = xccl_api_check_op(v->name, &task);
        if (rc)
            return rc;
    }
    for (int i = 0; i < 2; i++)
        if (v->sides[i].is_array && !v->sides[i].counts)
            return xccl_fail(xcclInvalidArgument, 0, "give an entry for each rank",
                             "%s: %s is NULL", v->name, v->sides[i].counts_name);
    return xcclSuccess;
}

/* ---- tables ---- */

static xcclResult_t too_large(const struct vcall *v, const struct side *side, uint32_t i)
{
    if (!side->is_array)
        return xccl_fail(xcclInvalidArgument, 0, NULL, "%s: %s is %zu, too much", v->name,
                         side->counts_name, side->count);
    if (side->displs)
        return xccl_fail(xcclInvalidArgument, 0, NULL,
                         "%s: %s[%u] is %zu and %s[%u] %zu, too much for elements of %zu bytes",
                         v->name, side->counts_name, i, side->counts[i], side->displs_name, i,
                         side->displs[i], xccl_type_bytes(v->call.type));
    return xccl_fail(xcclInvalidArgument, 0, NULL,
                     "%s: %s[%u] is %zu, too much for elements of %zu bytes behind the blocks "
                     "before it",
                     v->name, side->counts_name, i, side->counts[i], xccl_type_bytes(v->call.type));
}

/* Bytes and place of each block of a side. */
static xcclResult_t fill_side(const struct vcall *v, int buffer)
{
    const struct side *side = &v->sides[buffer];
    size_t elem_bytes = xccl_type_bytes(v->call.type), all = 0, packed = 0;

    for (uint32_t i = 0; i < v->sizes->chunks[buffer]; i++) {
        size_t count = side->is_array ? side->counts[i] : side->count;
        size_t bytes, offset = packed, end;

        if (__builtin_mul_overflow(count, elem_bytes, &bytes))
            return too_large(v, side, i);
        if (side->is_array && side->displs && count &&
            __builtin_mul_overflow(side->displs[i], elem_bytes, &offset))
            return too_large(v, side, i);
        if (__builtin_add_overflow(offset, bytes, &end) || end > BYTES_MAX ||
            __builtin_add_overflow(all, bytes, &all) || all > BYTES_MAX)
            return too_large(v, side, i);
        packed += bytes;
        v->sizes->sizes[buffer][i] = bytes;
        v->sizes->offsets[buffer][i] = bytes ? offset : 0;
    }
    return xcclSuccess;
}

/* What both sides say of the rank's own block. */
static xcclResult_t check_own(const struct vcall *v)
{
    const struct side *in = &v->sides[XCCL_BUFFER_IN], *out = &v->sides[XCCL_BUFFER_OUT];
    int rank = v->comm->rank;
    size_t sent = in->is_array ? in->counts[rank] : in->count;
    size_t taken = out->is_array ? out->counts[rank] : out->count;

    if (sent == taken)
        return xcclSuccess;
    if (in->is_array && out->is_array)
        return xccl_fail(xcclInvalidArgument, 0,
                         "a rank must send itself as much as it receives from itself",
                         "%s: %s[%d] is %zu, but %s[%d], of this rank too, is %zu", v->name,
                         in->counts_name, rank, sent, out->counts_name, rank, taken);
    if (in->is_array)
        return xccl_fail(xcclInvalidArgument, 0, NULL,
                         "%s: %s is %zu, but %s[%d], of this rank, is %zu", v->name,
                         out->counts_name, taken, in->counts_name, rank, sent);
    return xccl_fail(xcclInvalidArgument, 0, NULL,
                     "%s: %s is %zu, but %s[%d], of this rank, is %zu", v->name, in->counts_name,
                     sent, out->counts_name, rank, taken);
}

static xcclResult_t check_pointers(const struct vcall *v)
{
    for (int buffer = XCCL_BUFFER_IN; buffer <= XCCL_BUFFER_OUT; buffer++) {
        const struct side *side = &v->sides[buffer];

        for (uint32_t i = 0; i < v->sizes->chunks[buffer] && !side->buffer; i++) {
            if (!v->sizes->sizes[buffer][i])
                continue;
            if (side->is_array)
                return xccl_fail(xcclInvalidArgument, 0, NULL, "%s: %s is NULL and %s[%u] is %zu",
                                 v->name, side->buffer_name, side->counts_name, i, side->counts[i]);
            return xccl_fail(xcclInvalidArgument, 0, NULL, "%s: %s is NULL and %s is %zu", v->name,
                             side->buffer_name, side->counts_name, side->count);
        }
    }
    return xcclSuccess;
}

/* ---- overlaps ---- */

/* Memory of a block that is not empty. */
struct span {
    uintptr_t begin, end;
    uint32_t block;
};

static int by_begin(const void *a, const void *b)
{
    const struct span *left = a, *right = b;

    return left->begin < right->begin ? -1 : left->begin > right->begin;
}

static struct span span_of(const struct vcall *v, int buffer, uint32_t block)
{
    uintptr_t begin = (uintptr_t)v->sides[buffer].buffer + v->sizes->offsets[buffer][block];

    return (struct span){begin, begin + v->sizes->sizes[buffer][block], block};
}

/* The blocks of a side, in their order in memory. Free the list. NULL: there is no memory. */
static struct span *list_spans(const struct vcall *v, int buffer, uint32_t *count_out)
{
    uint32_t count = 0, chunks = v->sizes->chunks[buffer];
    struct span *spans = xccl_calloc(chunks + 1u, sizeof *spans);
    int sorted = 1;

    if (!spans)
        return NULL;
    for (uint32_t i = 0; i < chunks; i++) {
        if (!v->sizes->sizes[buffer][i])
            continue;
        spans[count] = span_of(v, buffer, i);
        sorted = sorted && (!count || spans[count - 1].begin <= spans[count].begin);
        count++;
    }
    if (!sorted)
        qsort(spans, count, sizeof *spans, by_begin);
    *count_out = count;
    return spans;
}

/* From the first byte of all blocks to the last. */
static struct span hull_of(const struct vcall *v, int buffer)
{
    struct span hull = {UINTPTR_MAX, 0, 0};

    for (uint32_t i = 0; i < v->sizes->chunks[buffer]; i++) {
        struct span span = span_of(v, buffer, i);

        if (span.begin == span.end)
            continue;
        hull.begin = span.begin < hull.begin ? span.begin : hull.begin;
        hull.end = span.end > hull.end ? span.end : hull.end;
    }
    return hull;
}

static int meet(const struct span *a, const struct span *b)
{
    return a->begin < b->end && b->begin < a->end;
}

/* 1: each block lies behind the one before it, as packed ones do. */
static int is_ascending(const struct vcall *v, int buffer)
{
    size_t end = 0;

    for (uint32_t i = 0; i < v->sizes->chunks[buffer]; i++) {
        if (!v->sizes->sizes[buffer][i])
            continue;
        if (v->sizes->offsets[buffer][i] < end)
            return 0;
        end = v->sizes->offsets[buffer][i] + v->sizes->sizes[buffer][i];
    }
    return 1;
}

static xcclResult_t check_written(const struct vcall *v)
{
    const struct side *out = &v->sides[XCCL_BUFFER_OUT];
    xcclResult_t rc = xcclSuccess;
    struct span *spans;
    uint32_t count;

    if (is_ascending(v, XCCL_BUFFER_OUT))
        return xcclSuccess;
    spans = list_spans(v, XCCL_BUFFER_OUT, &count);
    if (!spans)
        return xcclSystemError;
    for (uint32_t i = 1; i < count && !rc; i++)
        if (meet(&spans[i - 1], &spans[i]))
            rc = xccl_fail(xcclInvalidArgument, 0, NULL,
                           "%s: blocks %u and %u of %s overlap: see %s and %s", v->name,
                           spans[i - 1].block, spans[i].block, out->buffer_name, out->counts_name,
                           out->displs_name);
    xccl_free(spans);
    return rc;
}

/* "sendbuff", "block 3 of recvbuff" */
static xcclResult_t bad_overlap(const struct vcall *v, uint32_t in_block, uint32_t out_block)
{
    const struct side *in = &v->sides[XCCL_BUFFER_IN], *out = &v->sides[XCCL_BUFFER_OUT];
    const char *hint = "there is no in-place form of it; use two buffers that do not overlap";

    if (in->is_array && out->is_array)
        return xccl_fail(xcclInvalidArgument, 0, hint,
                         "%s: block %u of %s and block %u of %s overlap", v->name, in_block,
                         in->buffer_name, out_block, out->buffer_name);
    if (in->is_array)
        return xccl_fail(xcclInvalidArgument, 0,
                         "for in place, pass recvbuff == sendbuff + displs[rank]; otherwise keep "
                         "the buffers apart",
                         "%s: block %u of %s and %s overlap", v->name, in_block, in->buffer_name,
                         out->buffer_name);
    return xccl_fail(
        xcclInvalidArgument, 0,
        "for in place, pass sendbuff == recvbuff + displs[rank]; otherwise keep the buffers apart",
        "%s: %s and block %u of %s overlap", v->name, in->buffer_name, out_block, out->buffer_name);
}

/* May these two lie at the same place? The rank's own block, where one side is that alone. */
static int is_in_place(const struct vcall *v, const struct span *in, const struct span *out)
{
    uint32_t rank = (uint32_t)v->comm->rank;
    int in_array = v->sides[XCCL_BUFFER_IN].is_array,
        out_array = v->sides[XCCL_BUFFER_OUT].is_array;

    if (in_array == out_array || in->begin != out->begin)
        return 0;
    return (in_array ? in->block : out->block) == rank;
}

/* What is written lies apart from what is read. `out`: written blocks, in their order, disjoint. */
static xcclResult_t compare_spans(const struct vcall *v, const struct span *out, uint32_t count)
{
    for (uint32_t i = 0; i < v->sizes->chunks[XCCL_BUFFER_IN]; i++) {
        struct span in = span_of(v, XCCL_BUFFER_IN, i);
        uint32_t low = 0, high = count;

        while (low < high) { /* the first one that ends behind its beginning */
            uint32_t middle = low + (high - low) / 2;

            if (out[middle].end <= in.begin)
                low = middle + 1;
            else
                high = middle;
        }
        for (; low < count && in.begin < in.end && meet(&in, &out[low]); low++)
            if (!is_in_place(v, &in, &out[low]))
                return bad_overlap(v, i, out[low].block);
    }
    return xcclSuccess;
}

static xcclResult_t check_overlap(const struct vcall *v)
{
    struct span in = hull_of(v, XCCL_BUFFER_IN), out = hull_of(v, XCCL_BUFFER_OUT), *spans;
    xcclResult_t rc = check_written(v);
    uint32_t count;

    if (rc || !meet(&in, &out))
        return rc;
    spans = list_spans(v, XCCL_BUFFER_OUT, &count);
    if (!spans)
        return xcclSystemError;
    rc = compare_spans(v, spans, count);
    xccl_free(spans);
    return rc;
}

/* ---- calls ---- */

static uint32_t chunks_of(const struct vcall *v, int buffer)
{
    return v->sides[buffer].is_array ? (uint32_t)v->comm->nranks : 1;
}

/* The checks that need tables, which are made here. */
static xcclResult_t check_tables(struct vcall *v)
{
    xcclResult_t rc = xccl_call_sizes_create(chunks_of(v, XCCL_BUFFER_IN),
                                             chunks_of(v, XCCL_BUFFER_OUT), &v->sizes);

    if (!rc)
        rc = fill_side(v, XCCL_BUFFER_IN);
    if (!rc)
        rc = fill_side(v, XCCL_BUFFER_OUT);
    if (!rc)
        rc = check_own(v);
    if (!rc)
        rc = check_pointers(v);
    return rc ? rc : check_overlap(v);
}

static xcclResult_t submit(struct vcall *v, xcclStream_t stream)
{
    struct xccl_entry entry = {.kind = XCCL_ENTRY_CALL, .stream = stream};
    xcclResult_t rc = check_plain(v, stream);

    if (!rc)
        rc = check_tables(v);
    if (rc) {
        xccl_call_sizes_put(v->sizes);
        return xccl_group_lack(v->comm, rc);
    }
    xccl_call_sizes_seal(v->sizes, v->call.coll);
    v->call.sizes = v->sizes;
    entry.task.comm = v->comm;
    entry.task.send = v->sides[XCCL_BUFFER_IN].buffer;
    entry.task.recv = (void *)(uintptr_t)v->sides[XCCL_BUFFER_OUT].buffer;
    entry.task.call = v->call;
    rc = xccl_api_add(v->name, v->comm->device, &entry);
    xccl_call_sizes_put(v->sizes);
    return rc;
}

/* tidy: allow parameters because MPI's call has these */
xcclResult_t xcclAllGatherv(const void *sendbuff, size_t sendcount, void *recvbuff,
                            const size_t recvcounts[], const size_t displs[],
                            xcclDataType_t datatype, xcclComm_t comm, xcclStream_t stream)
{
    struct vcall v = {.name = "xcclAllGatherv",
                      .comm = comm,
                      .call = {.coll = XCCL_COLL_ALL_GATHER, .type = datatype},
                      .sides = {{.buffer = sendbuff,
                                 .buffer_name = "sendbuff",
                                 .counts_name = "sendcount",
                                 .count = sendcount},
                                {.buffer = recvbuff,
                                 .buffer_name = "recvbuff",
                                 .counts_name = "recvcounts",
                                 .displs_name = "displs",
                                 .counts = recvcounts,
                                 .displs = displs,
                                 .is_array = 1}}};

    return submit(&v, stream);
}

/* tidy: allow parameters because MPI's call has these */
xcclResult_t xcclReduceScatterv(const void *sendbuff, const size_t sendcounts[],
                                const size_t displs[], void *recvbuff, size_t recvcount,
                                xcclDataType_t datatype, xcclRedOp_t op, xcclComm_t comm,
                                xcclStream_t stream)
{
    struct vcall v = {.name = "xcclReduceScatterv",
                      .comm = comm,
                      .call = {.coll = XCCL_COLL_REDUCE_SCATTER, .type = datatype, .op = op},
                      .sides = {{.buffer = sendbuff,
                                 .buffer_name = "sendbuff",
                                 .counts_name = "sendcounts",
                                 .displs_name = "displs",
                                 .counts = sendcounts,
                                 .displs = displs,
                                 .is_array = 1},
                                {.buffer = recvbuff,
                                 .buffer_name = "recvbuff",
                                 .counts_name = "recvcount",
                                 .count = recvcount}}};

    return submit(&v, stream);
}

/* tidy: allow parameters because MPI's call has these */
xcclResult_t xcclAlltoAllv(const void *sendbuff, const size_t sendcounts[], const size_t sdispls[],
                           void *recvbuff, const size_t recvcounts[], const size_t rdispls[],
                           xcclDataType_t datatype, xcclComm_t comm, xcclStream_t stream)
{
    struct vcall v = {.name = "xcclAlltoAllv",
                      .comm = comm,
                      .call = {.coll = XCCL_COLL_ALL_TO_ALL, .type = datatype},
                      .sides = {{.buffer = sendbuff,
                                 .buffer_name = "sendbuff",
                                 .counts_name = "sendcounts",
                                 .displs_name = "sdispls",
                                 .counts = sendcounts,
                                 .displs = sdispls,
                                 .is_array = 1},
                                {.buffer = recvbuff,
                                 .buffer_name = "recvbuff",
                                 .counts_name = "recvcounts",
                                 .displs_name = "rdispls",
                                 .counts = recvcounts,
                                 .displs = rdispls,
                                 .is_array = 1}}};

    return submit(&v, stream);
}

XCCL_TWIN(xcclResult_t, xcclAllGatherv,
          (const void *sendbuff, size_t sendcount, void *recvbuff, const size_t recvcounts[],
           const size_t displs[], xcclDataType_t datatype, xcclComm_t comm, xcclStream_t stream));
XCCL_TWIN(xcclResult_t, xcclReduceScatterv,
          (const void *sendbuff, const size_t sendcounts[], const size_t displs[], void *recvbuff,
           size_t recvcount, xcclDataType_t datatype, xcclRedOp_t op, xcclComm_t comm,
           xcclStream_t stream));
XCCL_TWIN(xcclResult_t, xcclAlltoAllv,
          (const void *sendbuff, const size_t sendcounts[], const size_t sdispls[], void *recvbuff,
           const size_t recvcounts[], const size_t rdispls[], xcclDataType_t datatype,
           xcclComm_t comm, xcclStream_t stream));

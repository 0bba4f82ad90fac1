/* SPDX-License-Identifier: BSD-3-Clause */
/* The collectives: one table says what each reads and writes, and one function checks every
 * argument by it before a task is handed on. What a rank does not use is not looked at, and the
 * task does not have it. Everything is inlined into each call, so that a repeated call pays a few
 * comparisons; the texts of errors are out of the way. Thread: the user's. */
#include "xccl.h"

#include <stddef.h>

#include "api/api_int.h"
#include "api/group.h"
#include "api/range.h"
#include "comm/device_ops.h"

#define COLD           __attribute__((noinline, cold))
#define INLINE         static inline __attribute__((always_inline))
#define UNLIKELY(cond) __builtin_expect(!!(cond), 0)

#define BYTES_MAX (SIZE_MAX / 4) /* of a buffer: what planning counts with */

/* What a collective does with its buffers. ALL: a block for each rank, else one. AT_ROOT: the other
 * ranks have no such buffer. APART: there is no in-place form. */
enum sides { SEND_ALL = 1, RECV_ALL = 2, SEND_AT_ROOT = 4, RECV_AT_ROOT = 8, APART = 16 };

struct form {
    const char *call; /* its public name */
    const char *send_name, *recv_name, *count_name; /* of its arguments */
    int reduces, rooted;
    unsigned sides; /* a set of enum sides */
};

static const struct form forms[] = {
    [XCCL_COLL_BROADCAST] = {"xcclBroadcast", "sendbuff", "recvbuff", "count", 0, 1, SEND_AT_ROOT},
    [XCCL_COLL_REDUCE] = {"xcclReduce", "sendbuff", "recvbuff", "count", 1, 1, RECV_AT_ROOT},
    [XCCL_COLL_ALL_GATHER] = {"xcclAllGather", "sendbuff", "recvbuff", "sendcount", 0, 0, RECV_ALL},
    [XCCL_COLL_REDUCE_SCATTER] = {"xcclReduceScatter", "sendbuff", "recvbuff", "recvcount", 1, 0,
                                  SEND_ALL},
    [XCCL_COLL_ALL_REDUCE] = {"xcclAllReduce", "sendbuff", "recvbuff", "count", 1, 0, 0},
    [XCCL_COLL_ALL_TO_ALL] = {"xcclAlltoAll", "sendbuff", "recvbuff", "count", 0, 0,
                              SEND_ALL | RECV_ALL | APART},
    [XCCL_COLL_GATHER] = {"xcclGather", "sendbuff", "recvbuff", "count", 0, 1,
                          RECV_ALL | RECV_AT_ROOT},
    [XCCL_COLL_SCATTER] = {"xcclScatter", "sendbuff", "recvbuff", "count", 0, 1,
                           SEND_ALL | SEND_AT_ROOT},
    [XCCL_COLL_BARRIER] = {"xcclBarrier", "", "", "count", 0, 0, 0},
};
static const struct form bcast = {"xcclBcast", "buff", "buff", "count", 0, 1, SEND_AT_ROOT};

/* ---- texts ---- */

COLD static xcclResult_t bad_number(const struct form *form, const char *name, int value, int count)
{
    return xccl_fail(xcclInvalidArgument, 0, NULL, "%s: %s is %d, not 0..%d", form->call, name,
                     value, count - 1);
}

COLD static xcclResult_t bad_count(const struct form *form, const struct xccl_task *task)
{
    return xccl_fail(xcclInvalidArgument, 0, "split the call",
                     "%s: %s is %zu, too much for elements of %zu bytes and %d ranks", form->call,
                     form->count_name, task->call.count, xccl_type_bytes(task->call.type),
                     task->comm->nranks);
}

COLD static xcclResult_t bad_pointer(const struct form *form, const struct xccl_task *task,
                                     const char *name)
{
    return xccl_fail(xcclInvalidArgument, 0, NULL, "%s: %s is NULL and %s is %zu", form->call, name,
                     form->count_name, task->call.count);
}

COLD static xcclResult_t bad_overlap(const struct form *form)
{
    const char *hint = "use one buffer for both, or two that do not overlap";

    if (form->sides & APART)
        hint = "there is no in-place form of it; use two buffers that do not overlap";
    else if (form->sides & RECV_ALL)
        hint = "in place is sendbuff == recvbuff + this rank's block; else keep them apart";
    else if (form->sides & SEND_ALL)
        hint = "in place is recvbuff == sendbuff + this rank's block; else keep them apart";
    return xccl_fail(xcclInvalidArgument, 0, hint, "%s: %s and %s overlap%s", form->call,
                     form->send_name, form->recv_name, form->sides & APART ? "" : " in part");
}

/* ---- checks ---- */

/* Bytes of the blocks on a side of the call; 0: this rank does not use that buffer. */
struct extents {
    size_t block, send, recv;
};

INLINE int measure(const struct form *form, const struct xccl_task *task, struct extents *sizes)
{
    size_t all;
    int is_root = task->call.root == task->comm->rank;
    int both = form->sides & (SEND_ALL | RECV_ALL);

    if (__builtin_mul_overflow(task->call.count, xccl_type_bytes(task->call.type), &sizes->block))
        return 0;
    all = sizes->block;
    if (both && __builtin_mul_overflow(all, (size_t)task->comm->nranks, &all))
        return 0;
    if (all > BYTES_MAX)
        return 0;
    sizes->send = form->sides & SEND_ALL ? all : sizes->block;
    sizes->recv = form->sides & RECV_ALL ? all : sizes->block;
    if (form->sides & SEND_AT_ROOT && !is_root)
        sizes->send = 0;
    if (form->sides & RECV_AT_ROOT && !is_root)
        sizes->recv = 0;
    return 1;
}

/* 1 when the buffers share memory and do not lie as the in-place form has them. */
INLINE int is_overlap(const struct form *form, const struct xccl_task *task,
                      const struct extents *sizes)
{
    uintptr_t send = (uintptr_t)task->send, recv = (uintptr_t)task->recv;
    uintptr_t own = sizes->block * (size_t)task->comm->rank;
    uintptr_t in_place = recv;

    if (form->sides & RECV_ALL)
        in_place += own;
    else if (form->sides & SEND_ALL)
        in_place -= own;
    if (!sizes->send || !sizes->recv || (!(form->sides & APART) && send == in_place))
        return 0;
    return send < recv ? recv - send < sizes->send : send - recv < sizes->recv;
}

INLINE xcclResult_t check(const struct form *form, const struct xccl_task *task,
                          xcclStream_t stream, struct extents *sizes)
{
    const struct xccl_call *call = &task->call;

    if (UNLIKELY(!task->comm || xccl_comm_magic(task->comm) != XCCL_COMM_MAGIC)) {
        xcclResult_t rc = xccl_api_check_comm(form->call, task->comm);

        if (rc || !task->comm) /* NULL is an error, which clang's analyzer does not see */
            return rc;
    }
    if (UNLIKELY(stream != NULL) && !task->comm->ops->queues) {
        xcclResult_t rc = xccl_api_check_stream(form->call, stream);

        if (rc)
            return rc;
    }
    if (UNLIKELY((unsigned)call->type >= xcclNumTypes))
        return bad_number(form, "datatype", (int)call->type, xcclNumTypes);
    if (form->reduces && UNLIKELY((unsigned)call->op >= xcclNumOps)) {
        xcclResult_t rc = xccl_api_check_op(form->call, task);

        if (rc)
            return rc;
    }
    if (form->rooted && UNLIKELY((unsigned)call->root >= (unsigned)task->comm->nranks))
        return bad_number(form, "root", call->root, task->comm->nranks);
    if (UNLIKELY(!measure(form, task, sizes)))
        return bad_count(form, task);
    if (UNLIKELY(sizes->send && !task->send))
        return bad_pointer(form, task, form->send_name);
    if (UNLIKELY(sizes->recv && !task->recv))
        return bad_pointer(form, task, form->recv_name);
    if (UNLIKELY(is_overlap(form, task, sizes)))
        return bad_overlap(form);
    return xcclSuccess;
}

COLD static xcclResult_t add_in_range(const char *call, const struct xccl_task *task,
                                      xcclStream_t stream)
{
    xcclResult_t rc;

    xccl_range_push(call);
    rc = xccl_group_add_call(task, stream);
    xccl_range_pop();
    return rc;
}

/* Checks a task and hands it on, without the buffers that this rank does not use. */
INLINE xcclResult_t submit(const struct form *form, struct xccl_task *task, xcclStream_t stream)
{
    struct extents sizes = {0};
    xcclResult_t rc = check(form, task, stream, &sizes);

    if (UNLIKELY(rc != xcclSuccess))
        return xccl_group_reject(rc);
    if (form->sides & SEND_AT_ROOT && !sizes.send)
        task->send = NULL;
    if (form->sides & RECV_AT_ROOT && !sizes.recv)
        task->recv = NULL;
    /* Relaxed: set before the communicator was given to the program. */
    if (UNLIKELY(atomic_load_explicit(&task->comm->detour, memory_order_relaxed) &
                 XCCL_DETOUR_DEVICE))
        return add_in_range(form->call, task, stream);
    return xccl_group_add_call(task, stream);
}

/* ---- calls ---- */

xcclResult_t xcclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                           xcclDataType_t datatype, xcclRedOp_t op, xcclComm_t comm,
                           xcclStream_t stream)
{
    struct xccl_call call = {XCCL_COLL_ALL_REDUCE, datatype, op, count, 0, NULL};

    return submit(&forms[XCCL_COLL_ALL_REDUCE],
                  &(struct xccl_task){comm, sendbuff, recvbuff, call, 0, 0}, stream);
}

xcclResult_t xcclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                           xcclDataType_t datatype, int root, xcclComm_t comm, xcclStream_t stream)
{
    struct xccl_call call = {XCCL_COLL_BROADCAST, datatype, xcclSum, count, root, NULL};

    return submit(&forms[XCCL_COLL_BROADCAST],
                  &(struct xccl_task){comm, sendbuff, recvbuff, call, 0, 0}, stream);
}

xcclResult_t xcclBcast(void *buff, size_t count, xcclDataType_t datatype, int root, xcclComm_t comm,
                       xcclStream_t stream)
{
    struct xccl_call call = {XCCL_COLL_BROADCAST, datatype, xcclSum, count, root, NULL};

    return submit(&bcast, &(struct xccl_task){comm, buff, buff, call, 0, 0}, stream);
}

/* tidy: allow parameters because NCCL's call has these */
xcclResult_t xcclReduce(const void *sendbuff, void *recvbuff, size_t count, xcclDataType_t datatype,
                        xcclRedOp_t op, int root, xcclComm_t comm, xcclStream_t stream)
{
    struct xccl_call call = {XCCL_COLL_REDUCE, datatype, op, count, root, NULL};

    return submit(&forms[XCCL_COLL_REDUCE],
                  &(struct xccl_task){comm, sendbuff, recvbuff, call, 0, 0}, stream);
}

xcclResult_t xcclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                           xcclDataType_t datatype, xcclComm_t comm, xcclStream_t stream)
{
    struct xccl_call call = {XCCL_COLL_ALL_GATHER, datatype, xcclSum, sendcount, 0, NULL};

    return submit(&forms[XCCL_COLL_ALL_GATHER],
                  &(struct xccl_task){comm, sendbuff, recvbuff, call, 0, 0}, stream);
}

xcclResult_t xcclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                               xcclDataType_t datatype, xcclRedOp_t op, xcclComm_t comm,
                               xcclStream_t stream)
{
    struct xccl_call call = {XCCL_COLL_REDUCE_SCATTER, datatype, op, recvcount, 0, NULL};

    return submit(&forms[XCCL_COLL_REDUCE_SCATTER],
                  &(struct xccl_task){comm, sendbuff, recvbuff, call, 0, 0}, stream);
}

xcclResult_t xcclAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                          xcclDataType_t datatype, xcclComm_t comm, xcclStream_t stream)
{
    struct xccl_call call = {XCCL_COLL_ALL_TO_ALL, datatype, xcclSum, count, 0, NULL};

    return submit(&forms[XCCL_COLL_ALL_TO_ALL],
                  &(struct xccl_task){comm, sendbuff, recvbuff, call, 0, 0}, stream);
}

xcclResult_t xcclGather(const void *sendbuff, void *recvbuff, size_t count, xcclDataType_t datatype,
                        int root, xcclComm_t comm, xcclStream_t stream)
{
    struct xccl_call call = {XCCL_COLL_GATHER, datatype, xcclSum, count, root, NULL};

    return submit(&forms[XCCL_COLL_GATHER],
                  &(struct xccl_task){comm, sendbuff, recvbuff, call, 0, 0}, stream);
}

xcclResult_t xcclScatter(const void *sendbuff, void *recvbuff, size_t count,
                         xcclDataType_t datatype, int root, xcclComm_t comm, xcclStream_t stream)
{
    struct xccl_call call = {XCCL_COLL_SCATTER, datatype, xcclSum, count, root, NULL};

    return submit(&forms[XCCL_COLL_SCATTER],
                  &(struct xccl_task){comm, sendbuff, recvbuff, call, 0, 0}, stream);
}

xcclResult_t xcclBarrier(xcclComm_t comm, xcclStream_t stream)
{
    struct xccl_call call = {XCCL_COLL_BARRIER, xcclInt8, xcclSum, 0, 0, NULL};

    return submit(&forms[XCCL_COLL_BARRIER], &(struct xccl_task){comm, NULL, NULL, call, 0, 0},
                  stream);
}

XCCL_TWIN(xcclResult_t, xcclAllReduce,
          (const void *sendbuff, void *recvbuff, size_t count, xcclDataType_t datatype,
           xcclRedOp_t op, xcclComm_t comm, xcclStream_t stream));
XCCL_TWIN(xcclResult_t, xcclBroadcast,
          (const void *sendbuff, void *recvbuff, size_t count, xcclDataType_t datatype, int root,
           xcclComm_t comm, xcclStream_t stream));
XCCL_TWIN(xcclResult_t, xcclBcast,
          (void *buff, size_t count, xcclDataType_t datatype, int root, xcclComm_t comm,
           xcclStream_t stream));
XCCL_TWIN(xcclResult_t, xcclReduce,
          (const void *sendbuff, void *recvbuff, size_t count, xcclDataType_t datatype,
           xcclRedOp_t op, int root, xcclComm_t comm, xcclStream_t stream));
XCCL_TWIN(xcclResult_t, xcclAllGather,
          (const void *sendbuff, void *recvbuff, size_t sendcount, xcclDataType_t datatype,
           xcclComm_t comm, xcclStream_t stream));
XCCL_TWIN(xcclResult_t, xcclReduceScatter,
          (const void *sendbuff, void *recvbuff, size_t recvcount, xcclDataType_t datatype,
           xcclRedOp_t op, xcclComm_t comm, xcclStream_t stream));
XCCL_TWIN(xcclResult_t, xcclAlltoAll,
          (const void *sendbuff, void *recvbuff, size_t count, xcclDataType_t datatype,
           xcclComm_t comm, xcclStream_t stream));
XCCL_TWIN(xcclResult_t, xcclGather,
          (const void *sendbuff, void *recvbuff, size_t count, xcclDataType_t datatype, int root,
           xcclComm_t comm, xcclStream_t stream));
XCCL_TWIN(xcclResult_t, xcclScatter,
          (const void *sendbuff, void *recvbuff, size_t count, xcclDataType_t datatype, int root,
           xcclComm_t comm, xcclStream_t stream));
XCCL_TWIN(xcclResult_t, xcclBarrier, (xcclComm_t comm, xcclStream_t stream));

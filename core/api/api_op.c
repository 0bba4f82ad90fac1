/* SPDX-License-Identifier: BSD-3-Clause */
/* The public calls about operators of a program's own. They belong to a communicator and have
 * numbers from xcclNumOps on. Thread: the user's. */
#include "xccl.h"

#include "api/api_int.h"
#include "comm/device_ops.h"

/* What every use of an operator's number must be. */
static const struct xccl_user_op *find(const struct xcclComm *comm, xcclRedOp_t op)
{
    return xccl_planner_op(&comm->planner, op);
}

xcclResult_t xccl_api_check_op(const char *call, const struct xccl_task *task)
{
    const struct xccl_user_op *op = find(task->comm, task->call.op);

    if (!op)
        return xccl_fail(xcclInvalidArgument, 0, NULL, "%s: op is %d, not 0..%d", call,
                         (int)task->call.op, xcclNumOps - 1);
    if (op->type != task->call.type)
        return xccl_fail(xcclInvalidArgument, 0, "create one for each datatype",
                         "%s: op %d was created for datatype %d, but datatype is %d", call,
                         (int)task->call.op, (int)op->type, (int)task->call.type);
    return xcclSuccess;
}

static xcclResult_t check_create(const xcclRedOp_t *op, const void *scalar, xcclDataType_t datatype,
                                 xcclScalarResidence_t residence, int is_device)
{
    const char *call = "xcclRedOpCreatePreMulSum";

    if (!op || !scalar)
        return xccl_fail(xcclInvalidArgument, 0, NULL, "%s: %s is NULL", call,
                         op ? "scalar" : "op");
    if ((unsigned)datatype >= xcclNumTypes)
        return xccl_fail(xcclInvalidArgument, 0, NULL, "%s: datatype is %d, not 0..%d", call,
                         (int)datatype, xcclNumTypes - 1);
    if (residence == xcclScalarDevice && !is_device)
        return xccl_fail(xcclInvalidArgument, 0, "pass xcclScalarHostImmediate",
                         "%s: residence is xcclScalarDevice, but the communicator is on the host",
                         call);
    if (residence != xcclScalarHostImmediate && residence != xcclScalarDevice)
        return xccl_fail(xcclInvalidArgument, 0, NULL, "%s: residence is %d, not 0..1", call,
                         (int)residence);
    return xcclSuccess;
}

xcclResult_t xcclRedOpCreatePreMulSum(xcclRedOp_t *op, void *scalar, xcclDataType_t datatype,
                                      xcclScalarResidence_t residence, xcclComm_t comm)
{
    static const char none[8]; /* of any type */
    xcclResult_t rc = xccl_api_check_comm("xcclRedOpCreatePreMulSum", comm);

    if (!rc)
        rc = check_create(op, scalar, datatype, residence, comm->ops->reads_scalars);
    if (!rc)
        rc = xccl_comm_enter_aside(comm);
    if (rc)
        return rc;
    if (residence == xcclScalarDevice)
        rc = xccl_planner_add_op(&comm->planner, datatype, none, scalar, op);
    else
        rc = xccl_planner_add_op(&comm->planner, datatype, scalar, NULL, op);
    xccl_comm_leave_aside(comm);
    return rc;
}

xcclResult_t xcclRedOpDestroy(xcclRedOp_t op, xcclComm_t comm)
{
    xcclResult_t rc = xccl_api_check_known("xcclRedOpDestroy", comm);

    if (!rc)
        rc = xccl_comm_enter_aside(comm);
    if (rc)
        return rc;
    if (!find(comm, op))
        rc = xccl_fail(
            xcclInvalidArgument, 0,
            "destroy each operator once, with the communicator that created it",
            "xcclRedOpDestroy: op is %d, which is not an operator that this communicator created",
            (int)op);
    else
        xccl_planner_remove_op(&comm->planner, op);
    xccl_comm_leave_aside(comm);
    return rc;
}

XCCL_TWIN(xcclResult_t, xcclRedOpCreatePreMulSum,
          (xcclRedOp_t * op, void *scalar, xcclDataType_t datatype, xcclScalarResidence_t residence,
           xcclComm_t comm));
XCCL_TWIN(xcclResult_t, xcclRedOpDestroy, (xcclRedOp_t op, xcclComm_t comm));

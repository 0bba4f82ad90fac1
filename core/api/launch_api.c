/* SPDX-License-Identifier: BSD-3-Clause */
/* The public calls that ask the launcher: which rank of how many, and an id that all ranks share.
 * Thread: the user's, one at a time. */
#include "xccl.h"

#include "api/api_int.h"
#include "base/error.h"
#include "bootstrap/launcher/launcher.h"

xcclResult_t xcclGetLaunch(xcclUniqueId *id, int *nranks, int *rank)
{
    struct xccl_launch launch;
    xcclResult_t rc = xcclSuccess;

    if (!nranks || !rank)
        return xccl_fail(xcclInvalidArgument, 0, NULL, "xcclGetLaunch: %s is NULL",
                         nranks ? "rank" : "nranks");
    rc = xccl_api_check_fork("xcclGetLaunch");
    if (rc)
        return rc;
    rc = id ? xccl_launcher_id(id, &launch) : xccl_launcher_place(&launch);
    if (rc)
        return rc;
    *nranks = launch.nranks;
    *rank = launch.rank;
    return xcclSuccess;
}

xcclResult_t xcclGetLaunchLocal(int *local_nranks, int *local_rank)
{
    struct xccl_launch launch;
    xcclResult_t rc = xcclSuccess;

    if (!local_rank || !local_nranks)
        return xccl_fail(xcclInvalidArgument, 0, NULL, "xcclGetLaunchLocal: %s is NULL",
                         local_rank ? "local_nranks" : "local_rank");
    rc = xccl_api_check_fork("xcclGetLaunchLocal");
    if (!rc)
        rc = xccl_launcher_place(&launch);
    if (rc)
        return rc;
    *local_rank = launch.local_rank;
    *local_nranks = launch.local_nranks;
    return xcclSuccess;
}

XCCL_TWIN(xcclResult_t, xcclGetLaunch, (xcclUniqueId * id, int *nranks, int *rank));
XCCL_TWIN(xcclResult_t, xcclGetLaunchLocal, (int *local_nranks, int *local_rank));

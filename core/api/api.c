/* SPDX-License-Identifier: BSD-3-Clause */
/* The public calls about ids, communicators and errors: look at every argument, say what is wrong
 * with which one, and hand on. The collectives are in api_coll.c. Thread: the user's. */
#include "xccl.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "api/api_int.h"
#include "api/group.h"
#include "api/range.h"
#include "base/fork.h"
#include "base/os.h"
#include "base/param.h"
#include "comm/comm_list.h"
#include "cuda/cuda_device.h"
#include "join/join.h"

xcclResult_t xcclGetVersion(int *version)
{
    if (!version)
        return xccl_fail(xcclInvalidArgument, 0, NULL, "xcclGetVersion: version is NULL");
    *version = XCCL_VERSION_CODE;
    return xcclSuccess;
}

xcclResult_t xccl_api_check_fork(const char *call)
{
    int user = xccl_fork_refused_by();

    return user ? xccl_fail(xcclInvalidUsage, 0,
                            "call exec first, or fork before the first communicator is created",
                            "%s: this process was forked from process %d, which uses the library",
                            call, user)
                : xcclSuccess;
}

xcclResult_t xcclGetUniqueId(xcclUniqueId *id)
{
    xcclResult_t rc;

    if (!id)
        return xccl_fail(xcclInvalidArgument, 0, NULL, "xcclGetUniqueId: id is NULL");
    rc = xccl_api_check_fork("xcclGetUniqueId");
    if (!rc)
        rc = xccl_param_load();
    return rc ? rc : xccl_unique_id_create(id);
}

/* The arguments that all calls which join have. */
static xcclResult_t check_join(const char *call, const struct xccl_join_args *args)
{
    if (!args->comm_out)
        return xccl_fail(xcclInvalidArgument, 0, NULL, "%s: comm is NULL", call);
    if (args->nranks < 1 || args->nranks > XCCL_API_RANKS_MAX)
        return xccl_fail(xcclInvalidArgument, 0, "give the number of ranks",
                         "%s: nranks is %d, not 1..%d", call, args->nranks, XCCL_API_RANKS_MAX);
    if (args->rank < 0 || args->rank >= args->nranks)
        return xccl_fail(xcclInvalidArgument, 0, "pass a rank from 0", "%s: rank is %d, not 0..%d",
                         call, args->rank, args->nranks - 1);
    if (args->id_count < 1 || args->id_count > args->nranks)
        return xccl_fail(xcclInvalidArgument, 0, NULL, "%s: nId is %d, not 1..%d", call,
                         args->id_count, args->nranks);
    if (!args->ids)
        return xccl_fail(xcclInvalidArgument, 0, NULL, "%s: ids is NULL", call);
    *args->comm_out = NULL;
    return xcclSuccess;
}

/* What this library does not know it must not pass over in silence. */
static xcclResult_t check_config(const char *call, const xcclConfig_t *config)
{
    if (config->magic != XCCL_CONFIG_MAGIC || config->size < offsetof(xcclConfig_t, netName))
        return xccl_fail(xcclInvalidArgument, 0, "set it to XCCL_CONFIG_INITIALIZER first",
                         "%s: config is not an initialized xcclConfig_t", call);
    if (config->size > sizeof *config)
        return xccl_fail(xcclInvalidArgument, 0,
                         "use a library of that version, or build with this library's xccl.h",
                         "%s: config has %zu bytes of version %u, but this library, version %d, "
                         "knows only the first %zu",
                         call, config->size, config->version, XCCL_VERSION_CODE, sizeof *config);
    return xcclSuccess;
}

/* What a config has, as the newest config has it. */
static xcclConfig_t newest(const xcclConfig_t *config)
{
    xcclConfig_t full = XCCL_CONFIG_INITIALIZER;

    memcpy(&full, config, config->size);
    return full;
}

/* 0 and 1 are meant, and unset. */
static xcclResult_t check_flag(const char *call, const char *name, int value)
{
    if (value == 0 || value == 1 || value == XCCL_CONFIG_UNDEF_INT)
        return xcclSuccess;
    return xccl_fail(xcclInvalidArgument, 0, NULL, "%s: %s is %d, not 0..1", call, name, value);
}

static xcclResult_t check_flags(const char *call, const xcclConfig_t *config)
{
    xcclResult_t rc = check_flag(call, "blocking", config->blocking);

    return rc ? rc : check_flag(call, "splitShare", config->splitShare);
}

/* A field that goes into lines of logs, to a place of `room` bytes. */
static xcclResult_t take_text(const char *call, const char *field, const char *text, char *text_out,
                              size_t room)
{
    size_t bytes = strnlen(text, room);

    if (bytes == room)
        return xccl_fail(xcclInvalidArgument, 0, "shorten it", "%s: %s has more than %zu bytes",
                         call, field, room - 1);
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 127)
            return xccl_fail(xcclInvalidArgument, 0, NULL, "%s: %s has a control character at %zu",
                             call, field, i);
    memcpy(text_out, text, bytes + 1);
    return xcclSuccess;
}

/* Where there is nothing between two commas or beside one; -1: nowhere. */
static long find_empty_label(const char *labels)
{
    const char *at = labels;

    while (*labels) {
        size_t bytes = strcspn(at, ",");

        if (!bytes)
            return at - labels;
        at += bytes;
        if (!*at)
            break;
        at++;
    }
    return -1;
}

static xcclResult_t take_labels(const char *call, const char *labels, struct xccl_join_args *args)
{
    xcclResult_t rc = take_text(call, "commLabels", labels, args->labels, sizeof args->labels);
    long empty = rc ? -1 : find_empty_label(args->labels);

    args->has_labels = !rc;
    if (empty >= 0)
        return xccl_fail(xcclInvalidArgument, 0, "write them as \"tp=0,dp=3\"",
                         "%s: commLabels has an empty label at %ld", call, empty);
    return rc;
}

xcclResult_t xccl_api_take_config(const char *call, const xcclConfig_t *config,
                                  struct xccl_join_args *args)
{
    xcclConfig_t full;
    xcclResult_t rc;

    if (!config)
        return xcclSuccess;
    rc = check_config(call, config);
    if (rc)
        return rc;
    full = newest(config);
    if (full.netName && (size_t)snprintf(args->net_list, sizeof args->net_list, "%s",
                                         full.netName) >= sizeof args->net_list)
        return xccl_fail(xcclInvalidArgument, 0, "name fewer plugins",
                         "%s: netName has more than %zu bytes", call, sizeof args->net_list - 1);
    rc = check_flags(call, &full);
    if (full.blocking != XCCL_CONFIG_UNDEF_INT)
        args->is_nonblocking = !full.blocking;
    if (!rc && full.commName)
        rc = take_text(call, "commName", full.commName, args->name, sizeof args->name);
    if (!rc && full.device != XCCL_CONFIG_UNDEF_INT) {
        args->device = full.device;
        args->has_device = 1;
        if (full.device < XCCL_DEVICE_HOST)
            rc = xccl_fail(xcclInvalidArgument, 0,
                           "pass a device number from 0, or XCCL_DEVICE_HOST", "%s: device is %d",
                           call, full.device);
    }
    return rc || !full.commLabels ? rc : take_labels(call, full.commLabels, args);
}

xcclResult_t xccl_api_add(const char *call, int device, const struct xccl_entry *entry)
{
    xcclResult_t rc;

    if (device == XCCL_DEVICE_HOST)
        return xccl_group_add(entry);
    xccl_range_push(call);
    rc = xccl_group_add(entry);
    xccl_range_pop();
    return rc;
}

xcclResult_t xccl_api_join(const char *call, const struct xccl_join_args *args,
                           const xcclConfig_t *config)
{
    struct xccl_join_args join = *args;
    struct xccl_entry entry = {.kind = XCCL_ENTRY_INIT, .join = &join};
    xcclResult_t rc = check_join(call, args);

    if (!rc)
        rc = xccl_api_check_fork(call);
    if (rc)
        return xccl_group_reject(rc);
    xccl_fork_forbid();
    xccl_group_watch_forks();
    rc = xccl_api_take_config(call, config, &join);
    if (!rc && !join.has_device)
        rc = xccl_cuda_default_device(&join.device);
    if (!rc)
        return xccl_api_add(call, join.device, &entry);
    xccl_comm_decline(args, 1, rc); /* nobody shall wait for this rank */
    return xccl_group_reject(rc);
}

xcclResult_t xcclCommInitRank(xcclComm_t *comm, int nranks, xcclUniqueId id, int rank)
{
    struct xccl_join_args args = {
        .comm_out = comm, .nranks = nranks, .rank = rank, .ids = &id, .id_count = 1};
    xcclResult_t rc = xccl_api_join("xcclCommInitRank", &args, NULL);

    explicit_bzero(&id, sizeof id); /* it holds a secret */
    return rc;
}

xcclResult_t xcclCommInitRankScalable(xcclComm_t *comm, int nranks, int rank, int nId,
                                      const xcclUniqueId *ids, xcclConfig_t *config)
{
    struct xccl_join_args args = {
        .comm_out = comm, .nranks = nranks, .rank = rank, .ids = ids, .id_count = nId};

    return xccl_api_join("xcclCommInitRankScalable", &args, config);
}

/* One that was not joined when it was last looked at. */
static xcclResult_t check_joined(const char *call, struct xcclComm *comm)
{
    xcclResult_t rc = xccl_comm_check_joined(comm);

    if (rc != xcclInProgress)
        return rc;
    return xccl_fail(xcclInvalidUsage, 0,
                     "call xcclCommGetAsyncError until it no longer returns xcclInProgress",
                     "%s: comm, rank %d, has not joined yet", call, comm->rank);
}

/* A pointer that is no communicator is caught when the memory still is readable; no more can be
 * done. */
xcclResult_t xccl_api_check_comm(const char *call, const struct xcclComm *comm)
{
    if (__builtin_expect(comm && xccl_comm_magic(comm) == XCCL_COMM_MAGIC, 1))
        return xcclSuccess;
    if (comm && xccl_comm_magic(comm) == XCCL_COMM_JOINING)
        return check_joined(call, (struct xcclComm *)(uintptr_t)comm); /* it becomes one */
    if (comm && xccl_comm_magic(comm) == XCCL_COMM_FINAL)
        return xccl_fail(xcclInvalidUsage, 0, "destroy it",
                         "%s: comm, rank %d of %d, was finalized", call, comm->rank, comm->nranks);
    if (comm && xccl_comm_magic(comm) == XCCL_COMM_FORKED)
        return xccl_fail(xcclInvalidUsage, 0, "call exec in this process first",
                         "%s: comm belongs to the process that forked this one", call);
    return xccl_fail(
        xcclInvalidArgument, 0, "pass a communicator from xcclCommInitRank",
        comm ? "%s: comm is not a communicator, or has been destroyed" : "%s: comm is NULL", call);
}

xcclResult_t xccl_api_check_known(const char *call, const struct xcclComm *comm)
{
    return comm && xccl_comm_magic(comm) == XCCL_COMM_FINAL ? xcclSuccess
                                                            : xccl_api_check_comm(call, comm);
}

/* What could not join may be destroyed. */
static xcclResult_t check_end(struct xcclComm *comm)
{
    if (atomic_load_explicit(&comm->join_state, memory_order_acquire) == XCCL_JOIN_FAILED)
        return xcclSuccess;
    return check_joined("xcclCommDestroy", comm);
}

xcclResult_t xcclCommDestroy(xcclComm_t comm)
{
    struct xccl_entry entry = {.kind = XCCL_ENTRY_DESTROY, .task.comm = comm};
    xcclResult_t rc;

    if (!comm)
        return xcclSuccess;
    rc = xccl_comm_magic(comm) == XCCL_COMM_JOINING ? check_end(comm)
                                                    : xccl_api_check_known("xcclCommDestroy", comm);
    return rc ? xccl_group_reject(rc) : xccl_api_add("xcclCommDestroy", comm->device, &entry);
}

xcclResult_t xcclCommAbort(xcclComm_t comm)
{
    xcclResult_t rc;

    if (!comm)
        return xcclSuccess;
    rc = xccl_comm_magic(comm) == XCCL_COMM_JOINING ? xcclSuccess
                                                    : xccl_api_check_known("xcclCommAbort", comm);
    if (rc)
        return rc;
    xccl_group_forget(comm);
    xccl_comm_abort(comm);
    return xcclSuccess;
}

xcclResult_t xcclCommCount(const xcclComm_t comm, int *count)
{
    xcclResult_t rc = xccl_api_check_known("xcclCommCount", comm);

    if (rc)
        return rc;
    if (!count)
        return xccl_fail(xcclInvalidArgument, 0, NULL, "xcclCommCount: count is NULL");
    *count = comm->nranks;
    return xcclSuccess;
}

xcclResult_t xcclCommUserRank(const xcclComm_t comm, int *rank)
{
    xcclResult_t rc = xccl_api_check_known("xcclCommUserRank", comm);

    if (rc)
        return rc;
    if (!rank)
        return xccl_fail(xcclInvalidArgument, 0, NULL, "xcclCommUserRank: rank is NULL");
    *rank = comm->rank;
    return xcclSuccess;
}

const char *xcclGetErrorString(xcclResult_t result)
{
    return xccl_result_text(result);
}

const char *xcclCommGetLastError(const xcclComm_t comm)
{
    if (comm &&
        (xccl_comm_magic(comm) == XCCL_COMM_MAGIC || xccl_comm_magic(comm) == XCCL_COMM_FINAL ||
         xccl_comm_magic(comm) == XCCL_COMM_JOINING) &&
        xccl_comm_error(comm))
        return xccl_comm_error_text(comm);
    return "";
}

const char *xcclGetLastError(const xcclComm_t comm)
{
    const char *text = xcclCommGetLastError(comm);

    return *text ? text : xccl_error_text();
}

XCCL_TWIN(xcclResult_t, xcclGetVersion, (int *version));
XCCL_TWIN(xcclResult_t, xcclGetUniqueId, (xcclUniqueId * id));
XCCL_TWIN(xcclResult_t, xcclCommInitRank,
          (xcclComm_t * comm, int nranks, xcclUniqueId id, int rank));
XCCL_TWIN(xcclResult_t, xcclCommInitRankScalable,
          (xcclComm_t * comm, int nranks, int rank, int nId, const xcclUniqueId *ids,
           xcclConfig_t *config));
XCCL_TWIN(xcclResult_t, xcclCommDestroy, (xcclComm_t comm));
XCCL_TWIN(xcclResult_t, xcclCommAbort, (xcclComm_t comm));
XCCL_TWIN(xcclResult_t, xcclCommCount, (const xcclComm_t comm, int *count));
XCCL_TWIN(xcclResult_t, xcclCommUserRank, (const xcclComm_t comm, int *rank));
XCCL_TWIN(const char *, xcclGetErrorString, (xcclResult_t result));
XCCL_TWIN(const char *, xcclCommGetLastError, (const xcclComm_t comm));
XCCL_TWIN(const char *, xcclGetLastError, (const xcclComm_t comm));

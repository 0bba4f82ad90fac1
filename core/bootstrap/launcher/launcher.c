/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds what started this process, and lets it tell rank, number of ranks and id. The first way
 * that is present counts; the order is that of the table: what a user sets by hand first, then
 * torchrun, whose workers inherit the variables of the srun or mpirun that started its agents, then
 * those that can carry a secret, then those that cannot.
 *
 * Thread: one at a time. The lock is only tried: a second thread gets an error and no wait. */
#include "bootstrap/launcher/launcher.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/param.h"
#include "bootstrap/job.h"
#include "bootstrap/launcher/launcher_int.h"

#define RANKS_MAX        (1 << 20)
#define ERROR_SENT_BYTES 256 /* of rank 0's error text */

static const struct xccl_launcher *const launchers[] = {
    &xccl_launcher_manual,       &xccl_launcher_torchrun,   &xccl_launcher_pmix,
    &xccl_launcher_pmi,          &xccl_launcher_torch_vars, &xccl_launcher_slurm,
    &xccl_launcher_openmpi_vars, &xccl_launcher_none,
};

static struct {
    struct xccl_lock lock;
    pid_t owner; /* the process that made ids; 0: none yet */
    unsigned ids; /* made so far */
} state = {.lock = XCCL_LOCK(NULL)};

static const struct xccl_launcher *find(void)
{
    size_t i = 0;

    /* The last one is always present. */
    while (!launchers[i]->present())
        i++;
    return launchers[i];
}

const char *xccl_launcher_name(int *is_job_out)
{
    const struct xccl_launcher *launcher = find();

    if (is_job_out)
        *is_job_out = launcher != &xccl_launcher_none;
    return launcher->name;
}

int xccl_launcher_env_has(const char *name)
{
    const char *text = getenv(name);

    return text && *text;
}

/* Decimal digits only; -1: anything else. */
static long number_of(const char *text)
{
    size_t digits = strspn(text, "0123456789");

    if (digits == 0 || digits > 9 || text[digits])
        return -1;
    return strtol(text, NULL, 10);
}

xcclResult_t xccl_launcher_env_int(const char *name, int low, int high, int *value_out)
{
    const char *text = getenv(name);
    long value = text ? number_of(text) : -1;

    if (!text) {
        return xccl_fail(xcclInvalidUsage, 0,
                         "pass all of the launcher's variables on to the ranks, or set XCCL_RANK, "
                         "XCCL_NRANKS and XCCL_COMM_ID",
                         "this process seems to be started by %s, but %s is not set",
                         xccl_launcher_name(NULL), name);
    }
    if (value < low || value > high) {
        return xccl_fail(xcclInvalidUsage, 0,
                         "unset it, or set XCCL_RANK, XCCL_NRANKS and XCCL_COMM_ID",
                         "the launcher's variable %s is \"%.40s\", not a number from %d to %d",
                         name, text, low, high);
    }
    *value_out = (int)value;
    return xcclSuccess;
}

int xccl_launcher_env_maybe(const char *name, int fallback)
{
    const char *text = getenv(name);
    long value = text ? number_of(text) : -1;

    return value < 0 ? fallback : (int)value;
}

xcclResult_t xccl_launcher_env_place(const char *rank_name, const char *nranks_name,
                                     struct xccl_launch *launch)
{
    xcclResult_t rc = xccl_launcher_env_int(nranks_name, 1, RANKS_MAX, &launch->nranks);

    return rc ? rc : xccl_launcher_env_int(rank_name, 0, launch->nranks - 1, &launch->rank);
}

/* --- the manual way, and none at all --- */

static int manual_present(void)
{
    return xccl_param_is_set(XCCL_P_RANK) || xccl_param_is_set(XCCL_P_NRANKS);
}

static xcclResult_t manual_place(struct xccl_launch *launch, const struct xccl_limit *limit)
{
    int64_t rank = xccl_param_int(XCCL_P_RANK), nranks = xccl_param_int(XCCL_P_NRANKS);

    (void)limit;
    if (nranks < 1 || rank < 0 || rank >= nranks) {
        return xccl_fail(
            xcclInvalidUsage, 0, "set both, with XCCL_RANK from 0 to XCCL_NRANKS - 1, or neither",
            "XCCL_RANK is %lld and XCCL_NRANKS is %lld", (long long)rank, (long long)nranks);
    }
    launch->rank = (int)rank;
    launch->nranks = (int)nranks;
    /* xccl run starts all ranks on one host; who sets the variables by hand may not. */
    if (xccl_param_int(XCCL_P_ROOT) == 1 || nranks == 1) {
        launch->local_rank = launch->rank;
        launch->local_nranks = launch->nranks;
    }
    return xcclSuccess;
}

static xcclResult_t manual_meet(const struct xccl_launch *launch, unsigned number,
                                const struct xccl_limit *limit, xcclUniqueId *id_out)
{
    (void)number;
    (void)limit;
    if (launch->nranks > 1 && !xccl_param_is_set(XCCL_P_COMM_ID)) {
        return xccl_fail(xcclInvalidUsage, 0,
                         "set XCCL_COMM_ID to rank 0's HOST:PORT, and XCCL_JOB_KEY, on every rank; "
                         "or start the ranks with xccl run",
                         "XCCL_RANK and XCCL_NRANKS are set, but no address where the ranks meet");
    }
    return xccl_unique_id_create(id_out);
}

const struct xccl_launcher xccl_launcher_manual = {
    "XCCL_RANK and XCCL_NRANKS, as xccl run sets them", manual_present, manual_place, manual_meet};

static int none_present(void)
{
    return 1;
}

static xcclResult_t none_place(struct xccl_launch *launch, const struct xccl_limit *limit)
{
    (void)limit;
    launch->nranks = 1;
    launch->local_rank = 0;
    launch->local_nranks = 1;
    return xcclSuccess;
}

static xcclResult_t none_meet(const struct xccl_launch *launch, unsigned number,
                              const struct xccl_limit *limit, xcclUniqueId *id_out)
{
    (void)launch;
    (void)number;
    (void)limit;
    return xccl_unique_id_create(id_out);
}

const struct xccl_launcher xccl_launcher_none = {"no launcher, a job of one rank", none_present,
                                                 none_place, none_meet};

/* --- an id that travels as text --- */

static void hex_encode(const void *bytes, size_t count, char *text_out)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *at = bytes;

    for (size_t i = 0; i < count; i++) {
        text_out[2 * i] = digits[at[i] >> 4];
        text_out[2 * i + 1] = digits[at[i] & 15];
    }
    text_out[2 * count] = '\0';
}

/* The bytes of a text that is hex from end to end and at most room bytes; -1: it is not. */
static long hex_decode(const char *text, void *bytes_out, size_t room)
{
    size_t digits = strspn(text, "0123456789abcdef");
    uint8_t *at = bytes_out;

    if (text[digits] || digits % 2 || digits / 2 > room)
        return -1;
    for (size_t i = 0; i < digits; i++) {
        int value = text[i] <= '9' ? text[i] - '0' : text[i] - 'a' + 10;

        at[i / 2] = (uint8_t)(i % 2 ? at[i / 2] | value : value << 4);
    }
    return (long)(digits / 2);
}

/* "I" and the id, or "E", the code and the text. */
static void make_text(xcclResult_t rc, const xcclUniqueId *id, char *text)
{
    char error[ERROR_SENT_BYTES];

    if (!rc) {
        text[0] = 'I';
        hex_encode(id->internal, sizeof(id->internal), text + 1);
        return;
    }
    text[0] = 'E';
    text[1] = (char)('0' + (int)rc % 10);
    snprintf(error, sizeof(error), "%s", xccl_error_text());
    hex_encode(error, strlen(error), text + 2);
}

static xcclResult_t read_text(const char *text, xcclUniqueId *id_out)
{
    char error[ERROR_SENT_BYTES];
    xcclUniqueId id;
    long bytes = 0;

    if (text[0] == 'I' &&
        hex_decode(text + 1, id.internal, sizeof(id.internal)) == (long)sizeof(id.internal)) {
        *id_out = id;
        explicit_bzero(&id, sizeof(id));
        return xcclSuccess;
    }
    if (text[0] == 'E' && text[1] > '0' && text[1] < '0' + (int)xcclNumResults) {
        bytes = hex_decode(text + 2, error, sizeof(error) - 1);
        if (bytes >= 0) {
            error[bytes] = '\0';
            return xccl_fail((xcclResult_t)(text[1] - '0'), 0, NULL,
                             "rank 0 could not make a unique id: %s", error);
        }
    }
    return xccl_fail(xcclRemoteError, 0, "use one version of xccl everywhere",
                     "the data that the launcher passed on from rank 0 is not a unique id");
}

xcclResult_t xccl_launcher_carry(const struct xccl_launch *launch, unsigned number,
                                 xccl_launch_share_fn *share, const struct xccl_limit *limit,
                                 xcclUniqueId *id_out)
{
    char text[XCCL_LAUNCH_TEXT_BYTES] = "";
    char kept[XCCL_ERROR_TEXT_BYTES] = "";
    xcclUniqueId id = {{0}};
    xcclResult_t made = xcclSuccess, rc = xcclSuccess;

    if (launch->nranks == 1)
        return xccl_unique_id_create(id_out);
    if (launch->rank == 0) {
        made = xccl_unique_id_create(&id);
        make_text(made, &id, text);
        snprintf(kept, sizeof(kept), "%s", made ? xccl_error_text() : "");
    }
    rc = share(launch, number, text, limit);
    if (made) {
        /* The first reason is the one to be told. */
        xccl_error_set_text(kept);
        rc = made;
    } else if (!rc && launch->rank == 0) {
        *id_out = id;
    } else if (!rc) {
        rc = read_text(text, id_out);
    }
    explicit_bzero(text, sizeof(text));
    explicit_bzero(&id, sizeof(id));
    return rc;
}

/* --- the calls --- */

static xcclResult_t locate(const struct xccl_launcher *launcher, const struct xccl_limit *limit,
                           struct xccl_launch *launch_out)
{
    struct xccl_launch launch = {.launcher = launcher->name, .local_rank = -1};
    xcclResult_t rc = launcher->place(&launch, limit);

    if (rc)
        return rc;
    if (launch.local_rank < 0 || launch.local_nranks < 1 ||
        launch.local_rank >= launch.local_nranks) {
        launch.local_rank = -1;
        launch.local_nranks = 0;
    }
    *launch_out = launch;
    return xcclSuccess;
}

/* Settings, the lock, and the rule about children. */
static xcclResult_t enter(struct xccl_limit *limit_out)
{
    xcclResult_t rc = xccl_param_load();

    if (rc)
        return rc;
    if (!xccl_lock_try(&state.lock)) {
        return xccl_fail(xcclInvalidUsage, 0, "call it from one thread of a rank's process",
                         "another thread is already querying the launcher");
    }
    if (state.owner && state.owner != getpid() && find() != &xccl_launcher_none) {
        xccl_lock_give(&state.lock);
        return xccl_fail(
            xcclInvalidUsage, 0,
            "make the call in the process that the launcher started, and pass the id on",
            "this process was forked by process %d after that process had queried the launcher, "
            "which does not know this one",
            (int)state.owner);
    }
    *limit_out = xccl_limit_ms((uint64_t)xccl_param_int(XCCL_P_TIMEOUT_INIT_S) * 1000, NULL);
    return xcclSuccess;
}

xcclResult_t xccl_launcher_place(struct xccl_launch *launch_out)
{
    struct xccl_limit limit;
    xcclResult_t rc = enter(&limit);

    if (rc)
        return rc;
    state.owner = getpid();
    rc = locate(find(), &limit, launch_out);
    xccl_lock_give(&state.lock);
    return rc;
}

xcclResult_t xccl_launcher_id(xcclUniqueId *id_out, struct xccl_launch *launch_out)
{
    const struct xccl_launcher *launcher = NULL;
    struct xccl_launch launch;
    struct xccl_limit limit;
    xcclResult_t rc = enter(&limit);

    if (rc)
        return rc;
    state.owner = getpid();
    launcher = find();
    rc = locate(launcher, &limit, &launch);
    if (!rc)
        rc = launcher->meet(&launch, state.ids, &limit, id_out);
    if (!rc) {
        xccl_log(XCCL_LOG_INFO, "rank %d of %d, by %s", launch.rank, launch.nranks, launcher->name);
        *launch_out = launch;
    }
    /* Also after a failure: the others may have counted. */
    state.ids++;
    xccl_lock_give(&state.lock);
    return rc;
}

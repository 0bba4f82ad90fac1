/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that join side by side in one thread: each is called in turn (comm_init.c), and the thread
 * sleeps on one bell for all of them when none can go on. They join all or none: with the first
 * error the others give up too. All are told first, by the service thread, and only then is
 * anything taken down, so that no rank waits for one that is on its way out.
 *
 * Limits: a rank whose service thread does not answer holds up the others for at most 5 s.
 * Thread: the joining one. */
#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/os.h"
#include "base/param.h"
#include "comm/comm_list.h"
#include "comm/comm_record.h"
#include "comm/device_ops.h"
#include "join/comm_tune.h"
#include "plugin/algo_library.h"
#include "schedule/algo_plugin.h"
#include "stream/async_job.h"
#include "stream/comm_async.h"

#define LOOK_MS    1000 /* without a ring: as often as that all the same */
#define SPLIT_MS   20 /* and for errors of a communicator that is split, which ring no bell */
#define NAP_MAX_MS 8
#define NAPPERS    16 /* ranks for which one nap is longer by 1 ms: they may be of one host */
#define SILENT_NS  (400 * XCCL_NS_PER_MS) /* a decline that takes longer was in vain */

struct xccl_joins {
    struct xccl_async_job job; /* in the background; first, so that one is the other */
    const struct xccl_join_args *args;
    struct xccl_init **inits; /* NULL: not begun */
    uint32_t count;
    const struct xccl_join_args *unreadable; /* its ids are, so there is nobody to tell; or NULL */
    struct xccl_bell *bell; /* of all of them */
    int splits; /* 1: some are */
    uint64_t nap_ms;
    /* In the background: */
    int later; /* 1: so it is */
    struct xccl_join_args *own_args; /* the same as args, with ids of their own */
    struct xcclComm **comms; /* that the user has; NULL: not this one */
};
static_assert(offsetof(struct xccl_joins, job) == 0, "the progress thread has the job alone");

/* Returns how long it took. */
static uint64_t decline_one(const struct xccl_join_args *join, xcclResult_t rc)
{
    uint64_t start_ns = xccl_clock_ns();
    struct xccl_job job;
    char text[XCCL_ERROR_TEXT_BYTES];

    snprintf(text, sizeof text, "%s", xccl_error_text());
    if (xccl_job_init(join->ids, join->id_count, join->rank, join->nranks, &job) == xcclSuccess) {
        xccl_error_set_text(text);
        xccl_bootstrap_decline(&job, join->rank, join->nranks, rc);
    }
    explicit_bzero(&job, sizeof job);
    xccl_error_set_text(text);
    return xccl_clock_ns() - start_ns;
}

/* Ranks that decline one after the other. Each is told of, so that the root need not wait for any;
 * but a root that does not answer is asked once. */
struct decliner {
    const struct xccl_join_args *silent; /* a join whose root did not answer, NULL: none */
};

static void decline_next(struct decliner *decliner, const struct xccl_join_args *join,
                         xcclResult_t rc)
{
    const struct xccl_join_args *silent = decliner->silent;

    if (join->parent) {
        xccl_split_refuse(join->parent, 0, rc);
        return;
    }
    if (silent && silent->id_count == join->id_count &&
        memcmp(silent->ids, join->ids, (size_t)join->id_count * sizeof *join->ids) == 0)
        return;
    if (decline_one(join, rc) > SILENT_NS)
        decliner->silent = join;
}

void xccl_comm_decline(const struct xccl_join_args *joins, uint32_t count, xcclResult_t rc)
{
    struct decliner decliner = {NULL};

    for (uint32_t i = 0; i < count; i++)
        decline_next(&decliner, &joins[i], rc);
}

/* --- beginning --- */

/* Takes job over. */
static xcclResult_t make_init(struct xccl_joins *joins, const struct xccl_join_args *join,
                              const struct xccl_job *job, struct xccl_init **init_out)
{
    uint64_t timeout_ms = (uint64_t)xccl_param_int(XCCL_P_TIMEOUT_INIT_S) * 1000;
    struct xccl_init *init = xccl_calloc(1, sizeof *init);

    if (!init)
        return xcclSystemError;
    init->comm = xccl_comm_alloc(job, join->rank, join->nranks);
    if (!init->comm) {
        xccl_init_free(init);
        return xcclSystemError;
    }
    init->job = *job;
    init->comm->device = join->device;
    init->comm->ops = join->device == XCCL_DEVICE_HOST ? &xccl_device_host : &xccl_device_cuda;
    snprintf(init->comm->net_list, sizeof init->comm->net_list, "%s",
             join->net_list[0] ? join->net_list
             : join->parent    ? join->parent->net_list
                               : xccl_param_string(XCCL_P_NET_PLUGIN));
    memcpy(init->comm->name, join->name, sizeof init->comm->name);
    memcpy(init->comm->labels,
           join->parent && !join->has_labels ? join->parent->labels : join->labels,
           sizeof init->comm->labels);
    xccl_comm_record_open(init->comm);
    init->bell = joins->bell;
    init->limit = xccl_limit_ms(timeout_ms, NULL);
    init->begin_ns = init->phase_ns = xccl_clock_ns();
    *init_out = init;
    return xcclSuccess;
}

static xcclResult_t begin_split(struct xccl_joins *joins, uint32_t idx)
{
    const struct xccl_join_args *join = &joins->args[idx];
    struct xcclComm *parent = join->parent;
    struct xccl_job job;
    xcclResult_t rc;

    /* Relaxed: as for a call. */
    if (joins->count == 1 && !joins->later &&
        (atomic_load_explicit(&parent->detour, memory_order_relaxed) & XCCL_DETOUR_GROUP) &&
        xccl_comm_shares_thread(parent))
        return xccl_fail(
            xcclInvalidUsage, 0,
            "call xcclCommSplit for all of them between xcclGroupStart and xcclGroupEnd",
            "this thread has another rank of the communicator of rank %d: use a group",
            parent->rank);
    memset(&job, 0, sizeof job);
    joins->splits = 1;
    rc = make_init(joins, join, &job, &joins->inits[idx]);
    return rc ? rc : xccl_split_init(joins->inits[idx], join, joins->inits, idx);
}

static xcclResult_t begin_one(struct xccl_joins *joins, uint32_t idx)
{
    const struct xccl_join_args *join = &joins->args[idx];
    struct xccl_job job;
    xcclResult_t rc;

    if (join->parent)
        return begin_split(joins, idx);
    rc = xccl_job_init(join->ids, join->id_count, join->rank, join->nranks, &job);
    if (rc)
        joins->unreadable = join;
    else
        rc = make_init(joins, join, &job, &joins->inits[idx]);
    explicit_bzero(&job, sizeof job);
    return rc;
}

static xcclResult_t begin_all(struct xccl_joins *joins)
{
    struct xccl_tuner_library *tuner;
    xcclResult_t rc = xccl_param_load();

    if (rc)
        return rc;
    if (strlen(xccl_param_string(XCCL_P_NET_PLUGIN)) >= XCCL_NET_LIST_BYTES)
        return xccl_fail(xcclInvalidUsage, 0, "name fewer plugins",
                         "XCCL_NET_PLUGIN has more than %d characters", XCCL_NET_LIST_BYTES - 1);
    rc = xccl_algo_libraries_load(xccl_param_string(XCCL_P_ALGO_PLUGIN), xccl_algo_plugin_add);
    if (!rc)
        rc = xccl_comm_tuner_load(&tuner);
    if (rc)
        return rc;
    joins->inits = xccl_calloc(joins->count, sizeof(void *));
    if (!joins->inits)
        return xcclSystemError;
    for (uint32_t i = 0; i < joins->count && !rc; i++)
        rc = begin_one(joins, i);
    return rc;
}

/* --- on the way --- */

/* Each rank once. *most_out: what the most urgent of them waits for. */
static xcclResult_t run_each(struct xccl_joins *joins, enum xccl_init_state *most_out)
{
    enum xccl_init_state most = XCCL_INIT_DONE;
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = 0; i < joins->count && !rc; i++) {
        struct xccl_init *init = joins->inits[i];
        enum xccl_init_state step = XCCL_INIT_DONE;

        if (xccl_init_is_done(init))
            continue;
        xccl_log_set_rank(init->comm->rank);
        rc = xccl_init_run(init, &step);
        if (step > most)
            most = step;
    }
    xccl_log_set_rank(-1);
    *most_out = most;
    return rc;
}

/* How long to wait for a ring in this state. */
static struct xccl_limit nap_for(struct xccl_joins *joins, enum xccl_init_state most)
{
    uint64_t most_ms = NAP_MAX_MS + (uint64_t)joins->args[0].nranks / NAPPERS;
    struct xccl_limit limit = xccl_limit_ms(joins->splits ? SPLIT_MS : LOOK_MS, NULL);

    if (most != XCCL_INIT_POLL) {
        joins->nap_ms = 1;
        return limit;
    }
    limit = xccl_limit_ms(joins->nap_ms, NULL);
    joins->nap_ms *= 2;
    if (joins->nap_ms > most_ms)
        joins->nap_ms = most_ms;
    return limit;
}

static xcclResult_t run_all(struct xccl_joins *joins)
{
    for (;;) { /* each rank has a deadline */
        uint32_t heard = xccl_bell_listen(joins->bell);
        enum xccl_init_state most;
        struct xccl_limit limit;
        xcclResult_t rc = run_each(joins, &most);

        if (rc || most == XCCL_INIT_DONE)
            return rc;
        if (most == XCCL_INIT_MORE)
            continue;
        limit = nap_for(joins, most);
        xccl_bell_wait(joins->bell, heard, &limit);
    }
}

/* --- the end --- */

/* What the other ranks of this one hear, by whichever way there is. */
static void tell_others(const struct xccl_joins *joins, uint32_t idx, struct decliner *decliner,
                        xcclResult_t rc)
{
    const struct xccl_init *init = joins->inits ? joins->inits[idx] : NULL;

    if (&joins->args[idx] == joins->unreadable)
        return;
    if (init && init->parent && !init->found) {
        xccl_split_refuse(init->parent, init->begun, rc);
    } else if (!init || !xccl_init_is_done(init)) {
        if (!init || !xccl_init_tell(init, rc))
            decline_next(decliner, &joins->args[idx], rc);
    } else if (!init->is_none && init->comm->nranks > 1) {
        (void)xccl_comm_fail_own(init->comm, xcclRemoteError, XCCL_TROUBLE_GROUP_NOT_JOINED);
    }
}

/* 1: the user has the communicator already. */
static int is_out(const struct xccl_joins *joins, uint32_t idx)
{
    return joins->comms && joins->comms[idx];
}

static void give_up(struct xccl_joins *joins, xcclResult_t rc)
{
    struct decliner decliner = {NULL};
    char text[XCCL_ERROR_TEXT_BYTES];

    snprintf(text, sizeof text, "%s", xccl_error_text());
    for (uint32_t i = 0; i < joins->count; i++) {
        xccl_error_set_text(text);
        tell_others(joins, i, &decliner, rc);
    }
    for (uint32_t i = 0; joins->inits && i < joins->count; i++) {
        struct xccl_init *init = joins->inits[i];

        if (!init)
            continue;
        xccl_log_set_rank(init->comm->rank);
        if (!init->is_none)
            xccl_init_undo(init);
        if (is_out(joins, i))
            (void)xccl_comm_set_error(init->comm, rc, text);
        else
            xccl_comm_free(init->comm);
    }
    xccl_log_set_rank(-1);
    xccl_error_set_text(text);
}

/* comm_out: NULL in the background, where the user has it. */
static void hand_over(const struct xccl_init *init, struct xcclComm **comm_out)
{
    if (init->is_none) {
        xccl_comm_free(init->comm);
        return; /* *comm_out is NULL */
    }
    xccl_bootstrap_set_bell(init->comm->boot, NULL);
    if (!comm_out)
        return;
    xccl_comm_publish(init->comm, XCCL_COMM_MAGIC);
    *comm_out = init->comm;
}

static void drop_inits(struct xccl_joins *joins)
{
    for (uint32_t i = 0; joins->inits && i < joins->count; i++) {
        struct xccl_init *init = joins->inits[i];

        if (!init)
            continue;
        xccl_split_fini(init);
        xccl_async_gate_close(init->gate);
        xccl_init_free(init);
    }
    xccl_free(joins->inits);
    joins->inits = NULL;
}

xcclResult_t xccl_comm_create(const struct xccl_join_args *args, uint32_t count)
{
    struct xccl_bell bell = {0};
    struct xccl_joins joins = {.args = args, .count = count, .bell = &bell, .nap_ms = 1};
    xcclResult_t rc = begin_all(&joins);

    if (!rc)
        rc = run_all(&joins);
    if (rc)
        give_up(&joins, rc);
    for (uint32_t i = 0; i < count && !rc; i++)
        hand_over(joins.inits[i], args[i].comm_out);
    drop_inits(&joins);
    return rc;
}

/* --- in the background --- */

/* With the secrets. */
static void drop_joins(struct xccl_joins *joins)
{
    for (uint32_t i = 0; joins->own_args && i < joins->count; i++) {
        void *ids = (void *)(uintptr_t)joins->own_args[i].ids; /* copy_args() made it */

        if (ids)
            explicit_bzero(ids, (size_t)joins->own_args[i].id_count * sizeof *joins->args->ids);
        xccl_free(ids);
    }
    xccl_free(joins->own_args);
    xccl_free(joins->comms);
    xccl_free(joins);
}

static xcclResult_t copy_args(struct xccl_joins *joins, const struct xccl_join_args *args)
{
    for (uint32_t i = 0; i < joins->count; i++) {
        void *ids = xccl_calloc((size_t)args[i].id_count, sizeof *args[i].ids);

        if (!ids)
            return xcclSystemError;
        joins->own_args[i] = args[i];
        joins->own_args[i].comm_out = NULL;
        memcpy(ids, args[i].ids, (size_t)args[i].id_count * sizeof *args[i].ids);
        joins->own_args[i].ids = ids;
    }
    return xcclSuccess;
}

static xcclResult_t make_joins(const struct xccl_join_args *args, uint32_t count,
                               struct xccl_joins **joins_out)
{
    struct xccl_joins *joins = xccl_calloc(1, sizeof *joins);
    xcclResult_t rc;

    if (!joins)
        return xcclSystemError;
    joins->count = count;
    joins->nap_ms = 1;
    joins->later = 1;
    joins->bell = xccl_async_thread_bell();
    joins->own_args = xccl_calloc(count, sizeof *joins->own_args);
    joins->comms = xccl_calloc(count, sizeof(void *));
    joins->args = joins->own_args;
    rc = joins->own_args && joins->comms ? copy_args(joins, args) : xcclSystemError;
    if (rc)
        drop_joins(joins);
    else
        *joins_out = joins;
    return rc;
}

static xcclResult_t hold_thread(struct xcclComm *comm)
{
    xcclResult_t rc = comm->holds_thread ? xcclSuccess : xccl_async_thread_get();

    comm->holds_thread = !rc;
    return rc;
}

/* The communicators that the user gets, and the parents, keep the progress thread. */
static xcclResult_t hold_threads(const struct xccl_joins *joins)
{
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = 0; i < joins->count && !rc; i++) {
        const struct xccl_join_args *args = &joins->args[i];

        if (args->parent)
            rc = hold_thread(args->parent);
        if (!rc && (!args->parent || args->color != XCCL_NO_COLOR))
            rc = hold_thread(joins->inits[i]->comm);
    }
    return rc;
}

/* Nobody has them yet. */
static void let_threads_go(const struct xccl_joins *joins)
{
    for (uint32_t i = 0; joins->inits && i < joins->count; i++) {
        struct xcclComm *comm = joins->inits[i] ? joins->inits[i]->comm : NULL;

        if (!comm || !comm->holds_thread)
            continue;
        comm->holds_thread = 0;
        xccl_async_thread_put();
    }
}

/* 1: the user has aborted one of them. Acquire: nothing has to be seen with it. */
static int is_unwanted(const struct xccl_joins *joins)
{
    for (uint32_t i = 0; i < joins->count; i++)
        if (atomic_load_explicit(&joins->inits[i]->comm->aborted, memory_order_acquire))
            return 1;
    return 0;
}

/* The states are the last that is touched: the user may free a communicator then. */
static void end_joins(struct xccl_joins *joins, xcclResult_t rc)
{
    if (rc)
        give_up(joins, rc);
    for (uint32_t i = 0; i < joins->count && !rc; i++)
        hand_over(joins->inits[i], NULL);
    drop_inits(joins);
    for (uint32_t i = 0; i < joins->count; i++)
        if (is_out(joins, i)) /* release: all of it. Pairs with the loads in comm_end.c. */
            atomic_store_explicit(&joins->comms[i]->join_state,
                                  rc ? XCCL_JOIN_FAILED : XCCL_JOIN_DONE, memory_order_release);
    drop_joins(joins);
}

/* Each rank once. */
static enum xccl_async_state step(struct xccl_async_job *job)
{
    struct xccl_joins *joins = (struct xccl_joins *)job;
    enum xccl_init_state most = XCCL_INIT_DONE;
    xcclResult_t rc;

    if (is_unwanted(joins))
        rc = xccl_fail_quietly(xcclInvalidUsage, 0, NULL,
                               "rank %d (host %s, pid %d) was aborted while it was joining the "
                               "communicator",
                               joins->inits[0]->comm->rank, xccl_os_hostname(), (int)getpid());
    else
        rc = run_each(joins, &most);
    if (rc || most == XCCL_INIT_DONE) {
        end_joins(joins, rc);
        return XCCL_ASYNC_DONE;
    }
    job->due_ns = most == XCCL_INIT_MORE ? 0 : nap_for(joins, most).deadline_ns;
    return most == XCCL_INIT_MORE ? XCCL_ASYNC_MORE : XCCL_ASYNC_WAIT;
}

xcclResult_t xccl_comm_create_later(const struct xccl_join_args *args, uint32_t count)
{
    struct xccl_joins *joins;
    xcclResult_t rc = make_joins(args, count, &joins);

    if (rc) {
        xccl_comm_decline(args, count, rc);
        return rc;
    }
    rc = begin_all(joins);
    if (!rc)
        rc = hold_threads(joins);
    if (rc) {
        let_threads_go(joins);
        give_up(joins, rc);
        drop_inits(joins);
        drop_joins(joins);
        return rc;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct xcclComm *comm = joins->inits[i]->comm;

        if (!comm->holds_thread) /* without a color */
            continue;
        joins->comms[i] = comm;
        comm->is_nonblocking = 1;
        atomic_fetch_or_explicit(&comm->detour, XCCL_DETOUR_ASYNC, memory_order_relaxed);
        xccl_comm_publish(comm, XCCL_COMM_JOINING);
        *args[i].comm_out = comm;
    }
    joins->job.step = step;
    xccl_async_give_job(&joins->job);
    return xcclSuccess;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Joining a communicator: a table of phases, each a step that is called until it says that it is
 * done, and what undoes it. A step may begin an out-of-band operation; the next phase comes when
 * that has ended. No step blocks, so one thread can bring up any number of ranks side by side. A
 * phase that fails says why once; what was done before is undone in reverse order. The bootstrap
 * stays until the end of the communicator, but for the ring connections, which become the control
 * plane's. Thread: the joining one. */
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/param.h"
#include "call/comm_p2p.h"
#include "call/comm_plan.h"
#include "comm/comm_progress.h"
#include "comm/comm_record.h"
#include "comm/comm_where.h"
#include "comm/device_ops.h"
#include "connect/comm_bind.h"
#include "join/comm_usage.h"
#include "join/join_int.h"
#include "transport/arena.h"
#include "watch/control.h"

/* How much later than its limit an out-of-band operation may end. */
#define GRACE_NS (3 * XCCL_NS_PER_S)

struct phase {
    const char *name;
    xccl_init_step_fn *step;
    void (*undo)(struct xcclComm *comm);
};

static xcclResult_t step_service(struct xccl_init *init, enum xccl_init_state *state_out)
{
    *state_out = XCCL_INIT_DONE;
    return xccl_service_get(&init->comm->loop);
}

static void undo_service(struct xcclComm *comm)
{
    if (comm->loop)
        xccl_service_put();
    comm->loop = NULL;
}

static xcclResult_t step_bootstrap(struct xccl_init *init, enum xccl_init_state *state_out)
{
    struct xcclComm *comm = init->comm;

    if (init->parent)
        return xccl_split_step(init, state_out);
    *state_out = XCCL_INIT_DONE;
    return xccl_bootstrap_start(&init->job, comm->rank, comm->nranks, &init->limit, init->bell,
                                &comm->boot);
}

static void undo_bootstrap(struct xcclComm *comm)
{
    xccl_bootstrap_close(comm->boot);
    comm->boot = NULL;
    xccl_comm_bind_free(comm->bind);
    comm->bind = NULL;
    xccl_comm_p2p_free(comm->p2p);
    comm->p2p = NULL;
}

static void undo_nothing(struct xcclComm *comm)
{
    (void)comm;
}

static void undo_peers(struct xcclComm *comm)
{
    if (comm->holds_arena)
        xccl_arena_drop();
    comm->holds_arena = 0;
    if (comm->boot)
        xccl_bootstrap_set_places(comm->boot, NULL);
    xccl_free(comm->peers);
    comm->peers = NULL;
}

static void undo_shm(struct xcclComm *comm)
{
    /* The ranks of this host see it if they still wait for this one. After an error they are told
     * the error instead. */
    if (comm->shm && !xccl_comm_error(comm))
        atomic_store_explicit(&comm->board->outside, 2, memory_order_release);
    xccl_shm_destroy(comm->shm);
    comm->shm = NULL;
}

static xcclResult_t step_progress(struct xccl_init *init, enum xccl_init_state *state_out)
{
    *state_out = XCCL_INIT_DONE;
    return xccl_init_progress(init->comm);
}

/* All is in place here: when all ranks are this far, calls may begin. */
static xcclResult_t step_ready(struct xccl_init *init, enum xccl_init_state *state_out)
{
    struct xcclComm *comm = init->comm;
    uint64_t timeout_s = (uint64_t)xccl_param_int(XCCL_P_TIMEOUT_S);

    if (comm->shm)
        comm->board = xccl_shm_board(comm->shm, xccl_shm_index_of(comm->shm, comm->rank));
    atomic_store_explicit(&comm->board->outside, 1, memory_order_release);
    comm->timeout_ns = timeout_s ? timeout_s * XCCL_NS_PER_S : XCCL_NEVER_NS;
    *state_out = XCCL_INIT_DONE;
    return xccl_bootstrap_barrier_start(comm->boot, NULL, &init->limit);
}

/* The last phase that can fail: from here on errors travel through the control plane. */
static xcclResult_t step_control(struct xccl_init *init, enum xccl_init_state *state_out)
{
    struct xcclComm *comm = init->comm;
    struct xccl_conn *next, *prev;

    *state_out = XCCL_INIT_DONE;
    xccl_bootstrap_take_ring(comm->boot, &next, &prev);
    return xccl_control_open(comm, next, prev, &comm->control);
}

static xcclResult_t step_device(struct xccl_init *init, enum xccl_init_state *state_out)
{
    return init->comm->ops->open(init, state_out);
}

static void undo_device(struct xcclComm *comm)
{
    comm->ops->close(comm);
}

static xcclResult_t step_device_meet(struct xccl_init *init, enum xccl_init_state *state_out)
{
    return init->comm->ops->meet(init, state_out);
}

static void undo_device_meet(struct xcclComm *comm)
{
    comm->ops->unlink(comm);
}

static xcclResult_t step_device_links(struct xccl_init *init, enum xccl_init_state *state_out)
{
    return init->comm->ops->try_links(init, state_out);
}

static xcclResult_t step_device_watch(struct xccl_init *init, enum xccl_init_state *state_out)
{
    *state_out = XCCL_INIT_DONE;
    return init->comm->ops->ready(init->comm);
}

static void undo_device_watch(struct xcclComm *comm)
{
    comm->ops->stop(comm);
}

static void undo_control(struct xcclComm *comm)
{
    xccl_control_close(comm->control, comm->seq); /* afterwards its callbacks raise no errors */
    comm->control = NULL;
    comm->tell = NULL;
}

/* Of the first ones; the others follow in their order. */
enum { PHASE_SERVICE, PHASE_DEVICE, PHASE_BOOTSTRAP };

static const struct phase phases[] = {
    [PHASE_SERVICE] = {"service", step_service, undo_service},
    [PHASE_DEVICE] = {"device", step_device, undo_device},
    [PHASE_BOOTSTRAP] = {"bootstrap", step_bootstrap, undo_bootstrap},
    {"introduction", xccl_init_introduce, undo_peers},
    {"peers", xccl_init_check_peers, undo_nothing},
    {"segment", xccl_init_segment, undo_shm},
    {"shared memory", xccl_init_fetch, undo_nothing},
    {"agreement", xccl_init_agree, undo_nothing},
    {"devices", step_device_meet, undo_device_meet},
    {"device links", step_device_links, undo_nothing},
    {"watch", xccl_init_watch, xccl_comm_watch_stop},
    {"plugins", xccl_init_nets, xccl_comm_nets_close},
    {"choice", xccl_init_choose, undo_nothing},
    {"planner", xccl_init_planner, xccl_comm_plan_fini},
    {"tuner", xccl_init_tune, undo_nothing},
    {"choices", xccl_init_compare, undo_nothing},
    {"connections", xccl_init_connect, undo_nothing},
    {"progress", step_progress, xccl_comm_progress_destroy},
    {"ready", step_ready, undo_nothing},
    {"control", step_control, undo_control},
    {"device watch", step_device_watch, undo_device_watch},
};
#define PHASE_COUNT (sizeof phases / sizeof phases[0])

static void undo(struct xcclComm *comm, size_t count)
{
    while (count > 0)
        phases[--count].undo(comm);
}

/* One line a communicator: how many ranks, how long, and which way the data goes. */
static void tell_joined(const struct xcclComm *comm, uint64_t took_ns)
{
    int locals = comm->shm ? xccl_shm_nlocal(comm->shm) : 1;
    size_t kib = comm->shm ? xccl_shm_bytes(comm->shm) >> 10 : 0;
    char label[XCCL_COMM_NAME_BYTES + XCCL_COMM_LABELS_BYTES + 3];

    xccl_comm_label_text(comm, label, sizeof label);
    xccl_log(
        XCCL_LOG_INFO,
        "joined %s%sas rank %d of %d in %llu us: %d others by shared memory (%zu KiB), %d others "
        "by network plugin %s, slices of %u KiB",
        label, label[0] ? " " : "", comm->rank, comm->nranks, (unsigned long long)(took_ns / 1000),
        locals - 1, kib, comm->nranks - locals, comm->net_count ? comm->nets[0]->wire_id : "none",
        comm->slice_bytes >> 10);
}

static void tell_phase(struct xccl_init *init, const char *what)
{
    uint64_t now_ns = xccl_clock_ns();

    xccl_log(XCCL_LOG_DEBUG, "init: %s %s after %llu us", phases[init->phase].name, what,
             (unsigned long long)(now_ns - init->phase_ns) / 1000);
    init->phase_ns = now_ns;
}

/* The out-of-band operation at work, and news of ranks that have failed. */
static xcclResult_t ask_bootstrap(const struct xccl_init *init, int *ended_out)
{
    xcclResult_t rc;

    *ended_out = 1;
    if (!init->comm->boot)
        return xcclSuccess;
    rc = xccl_bootstrap_test(init->comm->boot, ended_out);
    /* Ranks that went with the parent may never come to the child. */
    if (!rc && !*ended_out && init->parent && init->phase == PHASE_BOOTSTRAP + 1)
        rc = xccl_comm_error(init->parent);
    if (!rc && !*ended_out && xccl_clock_ns() > init->limit.deadline_ns + GRACE_NS)
        rc = xccl_fail(xcclTimeout, 0,
                       "raise XCCL_TIMEOUT_INIT_S, or check what delays the other ranks",
                       "rank %d still waits for other ranks before phase \"%s\", and its service "
                       "thread reports no cause",
                       init->comm->rank, phases[init->phase].name);
    return rc;
}

xcclResult_t xccl_init_run(struct xccl_init *init, enum xccl_init_state *state_out)
{
    struct xccl_comm_usage usage;

    while (init->phase < PHASE_COUNT) {
        int ended;
        xcclResult_t rc = ask_bootstrap(init, &ended);

        *state_out = XCCL_INIT_WAIT;
        if (!rc && ended)
            rc = phases[init->phase].step(init, state_out);
        if (rc)
            tell_phase(init, "failed");
        if (rc || *state_out != XCCL_INIT_DONE)
            return rc;
        tell_phase(init, "done");
        init->phase++;
        if (init->phase < PHASE_COUNT)
            xccl_record_phase(init->comm->record, (unsigned)init->phase, phases[init->phase].name);
        if (init->is_none) {
            undo(init->comm, init->phase);
            init->phase = PHASE_COUNT;
            return xcclSuccess;
        }
    }
    xccl_comm_record_ready(init->comm);
    xccl_comm_usage(init->comm, &usage);
    init->comm->joined_bytes = usage.total;
    tell_joined(init->comm, xccl_clock_ns() - init->begin_ns);
    return xcclSuccess;
}

int xccl_init_is_done(const struct xccl_init *init)
{
    return init->phase == PHASE_COUNT;
}

int xccl_init_tell(const struct xccl_init *init, xcclResult_t rc)
{
    if (init->phase < PHASE_BOOTSTRAP)
        return 0;
    if (!init->comm->boot)
        return 1; /* xccl_bootstrap_start has told */
    xccl_bootstrap_fail(init->comm->boot, rc);
    return !xccl_bootstrap_is_unheard(init->comm->boot);
}

void xccl_init_undo(struct xccl_init *init)
{
    /* The phase that failed may have left something behind: its undo takes what is there. */
    undo(init->comm, init->phase < PHASE_COUNT ? init->phase + 1 : PHASE_COUNT);
}

void xccl_init_free(struct xccl_init *init)
{
    if (!init)
        return;
    xccl_free(init->parts);
    xccl_free(init->locals);
    explicit_bzero(init, sizeof *init);
    xccl_free(init);
}

void xccl_comm_undo_all(struct xcclComm *comm)
{
    /* First, while the other ranks still hear of errors, and before anything it needs is closed. */
    comm->ops->stop(comm);
    xccl_comm_progress_leave(comm);
    undo(comm, PHASE_COUNT);
    xccl_record_close(&comm->record);
}

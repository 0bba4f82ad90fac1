/* SPDX-License-Identifier: BSD-3-Clause */
/* Joining a communicator: a table of phases, each with what undoes it. A phase that fails says why
 * once; what was done before is undone in reverse order. Ranks that are ahead notice a failed one
 * by its closed connections and fail too. Thread: the joining one. */
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/param.h"
#include "comm/comm_int.h"
#include "comm/comm_progress.h"
#include "comm/control.h"

struct phase {
    const char *name;
    xcclResult_t (*run)(struct xccl_init *init);
    void (*undo)(struct xcclComm *comm);
};

static xcclResult_t run_service(struct xccl_init *init)
{
    xcclResult_t rc = xccl_service_get(&init->comm->loop);

    /* Later phases tell the others by their bootstrap connections. */
    if (rc)
        xccl_bootstrap_decline(&init->job, init->comm->rank, init->comm->nranks, rc);
    return rc;
}

static void undo_service(struct xcclComm *comm)
{
    (void)comm;
    xccl_service_put();
}

static xcclResult_t run_bootstrap(struct xccl_init *init)
{
    return xccl_bootstrap_open(&init->job, init->comm->rank, init->comm->nranks, &init->limit,
                               &init->boot);
}

static void undo_nothing(struct xcclComm *comm)
{
    (void)comm;
}

static void undo_peers(struct xcclComm *comm)
{
    xccl_free(comm->peers);
}

static void undo_shm(struct xcclComm *comm)
{
    /* The ranks of this host see it if they still wait for this one. After an error they are told
     * the error instead. */
    if (comm->shm && !xccl_comm_error(comm))
        atomic_store_explicit(&comm->board->outside, 2, memory_order_release);
    xccl_shm_destroy(comm->shm);
}

static void undo_net(struct xcclComm *comm)
{
    xccl_comm_links_destroy(comm->links);
    xccl_net_close(comm->net);
}

static void undo_bindings(struct xcclComm *comm)
{
    xccl_planner_fini(&comm->planner);
}

/* The last phase that can fail: from here on errors travel through the control plane. */
static xcclResult_t run_control(struct xccl_init *init)
{
    struct xcclComm *comm = init->comm;
    struct xccl_conn *next, *prev;
    uint64_t timeout_s = (uint64_t)xccl_param_int(XCCL_P_TIMEOUT_S);
    xcclResult_t rc;

    if (comm->shm)
        comm->board = xccl_shm_board(comm->shm, xccl_shm_index_of(comm->shm, comm->rank));
    atomic_store_explicit(&comm->board->outside, 1, memory_order_release);
    comm->timeout_ns = timeout_s ? timeout_s * XCCL_NS_PER_S : XCCL_NEVER_NS;
    rc = xccl_bootstrap_barrier(init->boot, NULL, &init->limit); /* all are this far */
    if (rc)
        return rc;
    xccl_bootstrap_take_ring(init->boot, &next, &prev);
    return xccl_control_open(comm, next, prev, &comm->control);
}

static void undo_control(struct xcclComm *comm)
{
    xccl_control_close(comm->control, comm->seq);
    comm->control = NULL;
}

static const struct phase phases[] = {
    {"service", run_service, undo_service},
    {"bootstrap", run_bootstrap, undo_nothing},
    {"peers", xccl_init_peers, undo_peers},
    {"shared memory", xccl_init_shm, undo_shm},
    {"network", xccl_init_net, undo_net},
    {"schedules", xccl_init_bindings, undo_bindings},
    {"progress", xccl_init_progress, xccl_comm_progress_destroy},
    {"control", run_control, undo_control},
};
#define PHASE_COUNT (sizeof phases / sizeof phases[0])

static void undo(struct xcclComm *comm, size_t done)
{
    while (done > 0)
        phases[--done].undo(comm);
}

/* One line a communicator: how many ranks, how long, and which way the data goes. */
static void tell_joined(const struct xcclComm *comm, uint64_t took_ns)
{
    int locals = comm->shm ? xccl_shm_nlocal(comm->shm) : 1;
    size_t kib = comm->shm ? xccl_shm_bytes(comm->shm) >> 10 : 0;

    xccl_log(
        XCCL_LOG_INFO,
        "joined as rank %d of %d in %llu us: %d others by shared memory (%zu KiB), %d others by "
        "network plugin %s, slices of %u KiB",
        comm->rank, comm->nranks, (unsigned long long)(took_ns / 1000), locals - 1, kib,
        comm->nranks - locals, comm->net ? comm->net->wire_id : "none",
        comm->planner.bindings[XCCL_ALGO_RING][XCCL_PROTO_SLICES]->slot_bytes >> 10);
}

xcclResult_t xccl_comm_init(struct xcclComm *comm, const struct xccl_job *job)
{
    uint64_t timeout_ms = (uint64_t)xccl_param_int(XCCL_P_TIMEOUT_INIT_S) * 1000;
    struct xccl_init init = {.comm = comm, .job = *job, .limit = xccl_limit_ms(timeout_ms, NULL)};
    uint64_t begin_ns = xccl_clock_ns();
    xcclResult_t rc = xcclSuccess;
    size_t done = 0;

    while (done < PHASE_COUNT && !rc) {
        uint64_t start_ns = xccl_clock_ns();

        rc = phases[done].run(&init);
        xccl_log(XCCL_LOG_DEBUG, "init: %s %s after %llu us", phases[done].name,
                 rc ? "failed" : "done", (unsigned long long)(xccl_clock_ns() - start_ns) / 1000);
        done++; /* a failed phase may have left something behind: its undo takes what is there */
    }
    if (rc)
        xccl_bootstrap_fail(init.boot, rc);
    xccl_bootstrap_close(init.boot);
    explicit_bzero(&init.job, sizeof init.job);
    if (rc)
        undo(comm, done == 1 ? 0 : done);
    else
        tell_joined(comm, xccl_clock_ns() - begin_ns);
    return rc;
}

void xccl_comm_undo_all(struct xcclComm *comm)
{
    /* First, while the other ranks still hear of errors, and before anything it needs is closed. */
    xccl_comm_progress_leave(comm);
    undo(comm, PHASE_COUNT);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Starting, moving and waiting for runs. The wait is one loop for any number of runs: poll with one
 * pause between polls; after `spins` of them yield the core each time; after yield_ns of yielding
 * sleep 50 us at a time. Clock, errors, deadlines and the other ranks' boards are looked at every
 * 64th poll only, and on every sleep. Thread: the holder of the crank. */
#include "exec/exec.h"

#include <sched.h>
#include <time.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/os.h"
#include "exec/host/interp.h"
#include "schedule/decode.h"

#define SLOW_EVERY 64u
#define SLEEP_NS   50000
#define SPINS_ALONE                                                                                \
    256u /* a core for each rank: yielding earlier costs up to four times at 8 bytes */
#define SPINS_CROWD 16u /* more ranks than cores: spinning longer keeps the others from running */
#define YIELD_NS    (10 * XCCL_NS_PER_MS)

struct xccl_wait_policy xccl_wait_policy_for(int ranks_on_host, int cores)
{
    return (struct xccl_wait_policy){.spins = ranks_on_host > cores ? SPINS_CROWD : SPINS_ALONE,
                                     .yield_ns = YIELD_NS};
}

/* Of what a schedule can say, the interpreter knows steps of one chunk an occurrence, from IN and
 * to OUT, on one lane. */
static int step_is_known(const struct xccl_schedule *schedule, const struct xccl_step *step)
{
    uint32_t nrecv = step->op & XCCL_STEP_RECV
                         ? xccl_schedule_fan(schedule, 0, step->rconn, step->fan & 15u)
                         : 0;

    return !(step->op & (XCCL_STEP_ACC | XCCL_STEP_XCHG)) && step->cnt == 1 &&
           (step->op & (XCCL_STEP_SRC | XCCL_STEP_DST)) && nrecv <= XCCL_ONESHOT_MAX_RANKS &&
           xccl_step_waits(step) == 0 &&
           !(step->bufs & (XCCL_STEP_SRC_LIST | XCCL_STEP_DST_LIST)) &&
           (!(step->op & XCCL_STEP_SRC) || xccl_step_src_buffer(step) == XCCL_BUFFER_IN) &&
           (!(step->op & XCCL_STEP_DST) || xccl_step_dst_buffer(step) == XCCL_BUFFER_OUT);
}

static xcclResult_t check_schedule(const struct xccl_schedule *schedule)
{
    int good = schedule->coll == XCCL_COLL_ALL_REDUCE && schedule->nlanes == 1;

    for (uint32_t i = 0; good && i < schedule->nsteps; i++)
        good = step_is_known(schedule, &schedule->steps[i]);
    if (good)
        return xcclSuccess;
    return xccl_fail(xcclInternalError, 0, "report this as a bug of the choice of algorithms",
                     "the executor does not know all that %s of %s asks of rank %u of %u",
                     schedule->name, xccl_coll_name((enum xccl_coll)schedule->coll), schedule->rank,
                     schedule->nranks);
}

xcclResult_t xccl_binding_create(struct xccl_schedule *schedule, enum xccl_proto proto,
                                 struct xccl_binding **binding_out)
{
    size_t nconns = schedule->nconns ? schedule->nconns : 1;
    struct xccl_binding *binding;
    xcclResult_t rc = check_schedule(schedule);

    if (rc) {
        xccl_schedule_destroy(schedule);
        return rc;
    }
    binding = xccl_calloc(1, sizeof *binding);
    if (!binding) {
        xccl_schedule_destroy(schedule);
        return xcclSystemError;
    }
    binding->schedule = schedule;
    binding->proto = proto;
    binding->links = xccl_calloc(nconns, sizeof(void *));
    binding->nets = xccl_calloc(nconns, sizeof(void *));
    binding->net_conns = xccl_calloc(nconns, sizeof *binding->net_conns);
    binding->fans = xccl_calloc(schedule->nsteps, sizeof *binding->fans);
    if (!binding->links || !binding->nets || !binding->net_conns || !binding->fans) {
        xccl_binding_destroy(binding);
        return xcclSystemError;
    }
    for (uint32_t i = 0; i < schedule->nsteps; i++) {
        const struct xccl_step *step = &schedule->steps[i];

        if (step->op & XCCL_STEP_RECV)
            binding->fans[i].nrecv = (uint16_t)xccl_schedule_fan(schedule, 0, step->rconn,
                                                                 step->fan & 15u);
        if (step->op & XCCL_STEP_SEND)
            binding->fans[i].nsend = (uint16_t)xccl_schedule_fan(schedule, 0, step->sconn,
                                                                 step->fan >> 4);
    }
    *binding_out = binding;
    return xcclSuccess;
}

void xccl_binding_destroy(struct xccl_binding *binding)
{
    if (!binding)
        return;
    xccl_schedule_destroy(binding->schedule);
    xccl_free(binding->links);
    xccl_free(binding->nets);
    xccl_free(binding->net_conns);
    xccl_free(binding->fans);
    xccl_free(binding);
}

static void start_lane(struct xccl_run_lane *lane, const struct xccl_schedule *schedule,
                       uint32_t index)
{
    const struct xccl_step *first = schedule->steps + schedule->lanes[index].step0;

    *lane = (struct xccl_run_lane){.step = first,
                                   .first = first,
                                   .end = first + schedule->lanes[index].nstep,
                                   .src = first->src,
                                   .dst = first->dst};
}

void xccl_run_start(struct xccl_run *run, const struct xccl_plan *plan, const void *in, void *out,
                    uint64_t seq)
{
    const struct xccl_binding *binding = plan->binding;

    run->plan = plan;
    run->in = in;
    run->out = out;
    run->flag_low = xccl_flag_low(plan->signature, seq);
    run->rc = xcclSuccess;
    run->bad_peer = -1;
    run->bad_link = NULL;
    run->bad_net = NULL;
    run->nlanes = plan->tiles ? binding->schedule->nlanes : 0;
    run->lanes_left = run->nlanes;
    for (uint32_t i = 0; i < run->nlanes; i++)
        start_lane(&run->lanes[i], binding->schedule, i);
    for (uint32_t i = 0; i < binding->net_count; i++) {
        struct xccl_net_op op = {.seq = seq,
                                 .signature = plan->signature,
                                 .flag_low = run->flag_low,
                                 .messages = plan->net_messages[i]};

        xccl_net_link_begin(binding->nets[binding->net_conns[i]], &op);
    }
}

static int progress_nets(struct xccl_run *run)
{
    const struct xccl_binding *binding = run->plan->binding;
    int moved = 0;

    for (uint32_t i = 0; i < binding->net_count && !run->rc; i++) {
        struct xccl_net_link *net = binding->nets[binding->net_conns[i]];

        run->rc = xccl_net_link_progress(net, &moved);
        if (run->rc) {
            run->bad_peer = xccl_net_link_peer(net);
            run->bad_net = net;
        }
    }
    return moved;
}

static int progress_lanes(struct xccl_run *run,
                          int (*move)(struct xccl_run *, struct xccl_run_lane *))
{
    int moved = 0;

    for (uint32_t i = 0; i < run->nlanes; i++)
        while (!run->lanes[i].done && move(run, &run->lanes[i]))
            moved = 1;
    return moved;
}

int xccl_run_progress(struct xccl_run *run)
{
    int moved = 0;

    switch (run->plan->binding->proto) {
    case XCCL_PROTO_LINES:
        moved = progress_lanes(run, xccl_interp_lines);
        break;
    case XCCL_PROTO_SMALL:
        moved = progress_lanes(run, xccl_interp_small);
        break;
    default:
        moved = progress_lanes(run, xccl_interp_slices);
        break;
    }
    if (run->plan->binding->net_count)
        moved |= progress_nets(run);
    return moved;
}

int xccl_run_done(const struct xccl_run *run)
{
    const struct xccl_binding *binding = run->plan->binding;

    if (run->lanes_left)
        return 0;
    for (uint32_t i = 0; i < binding->net_count; i++)
        if (!xccl_net_link_idle(binding->nets[binding->net_conns[i]]))
            return 0;
    return 1;
}

/* Looks after everything but the data; the wait's slow branch. */
static void check_runs(struct xccl_run *const *runs, unsigned count, uint64_t waited_ns)
{
    for (unsigned i = 0; i < count; i++)
        if (runs[i]->check && !runs[i]->rc)
            runs[i]->rc = runs[i]->check(runs[i], waited_ns);
}

/* How long nothing has moved. */
struct idle {
    uint32_t rounds;
    int sleepy; /* the yielding is over: look after everything and sleep in each round */
    uint64_t since_ns; /* 0: not known yet */
};

static void idle_round(struct xccl_run *const *runs, unsigned count,
                       const struct xccl_wait_policy *policy, struct idle *idle)
{
    idle->rounds++;
    if (idle->sleepy || idle->rounds % SLOW_EVERY == 0) {
        uint64_t now_ns = xccl_clock_ns();

        if (!idle->since_ns)
            idle->since_ns = now_ns;
        check_runs(runs, count, now_ns - idle->since_ns);
        idle->sleepy = now_ns - idle->since_ns > policy->yield_ns;
    }
    if (idle->sleepy)
        nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    else if (idle->rounds > policy->spins)
        sched_yield();
    else
        xccl_os_pause();
}

void xccl_exec_wait(struct xccl_run *const *runs, unsigned count,
                    const struct xccl_wait_policy *policy, unsigned *which_out)
{
    struct idle idle = {0};

    for (;;) {
        int moved = 0;

        for (unsigned i = 0; i < count; i++) {
            moved |= xccl_run_progress(runs[i]);
            if (!runs[i]->rc && !xccl_run_done(runs[i]))
                continue;
            *which_out = i;
            return;
        }
        if (moved)
            idle = (struct idle){0};
        else
            idle_round(runs, count, policy, &idle);
        for (unsigned i = 0; i < count; i++) {
            if (!runs[i]->rc)
                continue;
            *which_out = i;
            return;
        }
    }
}

/* What one step adds: occurrences whose chunk has slices, times slices. */
static uint32_t step_messages(const struct xccl_plan *plan, const struct xccl_step *step,
                              uint32_t first, uint32_t fan, uint32_t conn)
{
    const struct xccl_schedule *schedule = plan->binding->schedule;
    uint32_t count = xccl_schedule_fan(schedule, 0, first, fan), messages = 0;
    uint32_t chunk = (step->op & XCCL_STEP_SRC) ? step->src : step->dst;
    int32_t delta = (step->op & XCCL_STEP_SRC) ? step->dsrc : step->ddst;

    for (uint32_t i = 0; i < step->rep;
         i++, chunk = xccl_chunk_add(chunk, delta, schedule->nchunks)) {
        uint32_t from = first + i * (uint32_t)step->dconn;
        size_t start = (size_t)chunk * plan->chunk_bytes, bytes;

        if (conn < from || conn >= from + count || start >= plan->total_bytes)
            continue;
        bytes = plan->total_bytes - start;
        if (bytes > plan->chunk_bytes)
            bytes = plan->chunk_bytes;
        messages += (uint32_t)((bytes + plan->slice_bytes - 1) / plan->slice_bytes);
    }
    return messages;
}

uint32_t xccl_plan_messages(const struct xccl_plan *plan, uint32_t conn)
{
    const struct xccl_schedule *schedule = plan->binding->schedule;
    uint32_t messages = 0;

    for (uint32_t i = 0; i < schedule->nsteps; i++) {
        const struct xccl_step *step = &schedule->steps[i];

        if ((step->op & XCCL_STEP_RECV) && schedule->conns[conn].dir == XCCL_CONN_RECV)
            messages += step_messages(plan, step, step->rconn, step->fan & 15u, conn);
        if ((step->op & XCCL_STEP_SEND) && schedule->conns[conn].dir == XCCL_CONN_SEND)
            messages += step_messages(plan, step, step->sconn, step->fan >> 4, conn);
    }
    return messages;
}

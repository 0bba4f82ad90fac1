/* SPDX-License-Identifier: BSD-3-Clause */
/* Starting, moving and waiting for runs. The wait is one loop for any number of runs: poll with one
 * pause between polls; after `spins` of them yield the core each time; after yield_ns of yielding
 * sleep 50 us at a time, or longer in a crowd: its waking up would keep the cores from the thread
 * that it waits for. There a sleep is a sixteenth of the wait so far, up to a bound, for along a
 * chain of ranks each may sleep so long before it goes on. Clock, errors, deadlines and the other
 * ranks' boards are looked at every 64th poll only, and on every sleep. Thread: the holder of the
 * crank. */
#include "exec/exec.h"

#include <sched.h>
#include <time.h>

#include "base/os.h"
#include "exec/ahead.h"
#include "exec/host/interp.h"
#include "transport/arena.h"

#define SLOW_EVERY 64u
#define SLEEP_NS   50000
#define SLEEPERS   64 /* ranks a core that may wake up so often */
#define FEW        16 /* ranks a core that may do so for as long as they wait */
#define LONG_NS    25000 /* for each rank of a core: so 40,000 of them wake up in a second */
#define SPINS_ALONE                                                                                \
    256u /* a core for each rank: yielding earlier costs up to four times at 8 bytes */
#define SPINS_CROWD  1u /* more ranks than cores: spinning longer keeps the others from running */
#define YIELD_NS     (10 * XCCL_NS_PER_MS)
#define SLEEP_MAX_NS (100 * XCCL_NS_PER_MS) /* errors are to be seen in time */

struct xccl_wait_policy xccl_wait_policy_for(int ranks_on_host, int cores)
{
    /* Once for more ranks, once more since each has longer to wait. */
    uint64_t ranks_a_core = (uint64_t)ranks_on_host / (uint64_t)cores;
    uint64_t crowd = ranks_a_core / SLEEPERS;
    struct xccl_wait_policy policy = {.spins = ranks_on_host > cores ? SPINS_CROWD : SPINS_ALONE,
                                      .yield_ns = YIELD_NS,
                                      .sleep_ns = SLEEP_NS * (crowd ? crowd * crowd : 1)};

    policy.sleep_max_ns = ranks_a_core < FEW ? policy.sleep_ns : LONG_NS * ranks_a_core;
    if (policy.sleep_ns > SLEEP_MAX_NS)
        policy.sleep_ns = SLEEP_MAX_NS;
    if (policy.sleep_max_ns > SLEEP_MAX_NS)
        policy.sleep_max_ns = SLEEP_MAX_NS;
    return policy;
}

void xccl_run_clear(struct xccl_run *run)
{
    run->plan = NULL;
    run->finished = 0;
    run->rc = xcclSuccess;
    run->bad_peer = -1;
    run->bad_link = NULL;
    run->other_size = 0;
    run->bad_net = NULL;
    run->direct = 0;
    run->offers = 0;
    run->by_address = 0;
    run->nlanes = 0;
    run->lanes_left = 0;
}

/* Sets the cursor on the first move of a lane that is decoded on the way; 0: it has none. */
static __attribute__((noinline)) int start_lane(struct xccl_run *run, struct xccl_run_lane *lane,
                                                uint32_t number)
{
    const struct xccl_plan *plan = run->plan;

    if (!plan->binding->schedule->lanes[number].nstep)
        return 0;
    lane->place = xccl_place_first(plan, number);
    xccl_move_make(plan, &lane->place, &lane->now);
    lane->move = &lane->now;
    lane->end = NULL;
    return 1;
}

/* Sets the cursor on the first move of a lane whose moves the plan lists; 0: it has none. */
static inline int start_listed(const struct xccl_plan *plan, struct xccl_run_lane *lane,
                               uint32_t number)
{
    lane->move = plan->moves + plan->lane_moves[number];
    lane->end = plan->moves + plan->lane_moves[number + 1];
    return lane->move < lane->end;
}

static void start_lanes(struct xccl_run *run)
{
    const struct xccl_plan *plan = run->plan;
    const struct xccl_binding *binding = plan->binding;
    uint32_t lanes = plan->tiles ? binding->schedule->nlanes : 0;

    run->lanes = binding->lanes;
    run->signals = binding->signals;
    run->nlanes = 0;
    for (uint32_t i = 0; i < binding->nsignals; i++)
        run->signals[i] = 0;
    for (uint32_t i = 0; i < lanes; i++) {
        struct xccl_run_lane *lane = &run->lanes[run->nlanes];

        lane->waited = 0;
        lane->ahead = 0;
        lane->ahead_ends = 0;
        run->nlanes += (uint32_t)(plan->moves ? start_listed(plan, lane, i)
                                              : start_lane(run, lane, i));
    }
    run->lanes_left = run->nlanes;
}

/* Which of them are in the arena, and are they one memory? Where they overlap, they lie as the
 * in-place form of the collective has them. */
static void look_at_buffers(struct xccl_run *run)
{
    const struct xccl_layout *layouts = run->plan->layouts;
    uintptr_t in = (uintptr_t)run->buffers[XCCL_BUFFER_IN];
    uintptr_t out = (uintptr_t)run->buffers[XCCL_BUFFER_OUT];
    int apart = in < out ? out - in >= layouts[XCCL_BUFFER_IN].total
                         : in - out >= layouts[XCCL_BUFFER_OUT].total;

    run->direct = apart ? XCCL_DIRECT_SEND | XCCL_DIRECT_RECV
                        : XCCL_DIRECT_SEND_IN_PLACE | XCCL_DIRECT_RECV_IN_PLACE |
                              XCCL_DIRECT_SEND_KEPT;
    for (int i = 0; i < 2; i++)
        run->places[i] = xccl_arena_place(run->buffers[i], layouts[i].total);
}

/* Network links learn what this call sends. */
static __attribute__((noinline)) void start_nets(struct xccl_run *run,
                                                 const struct xccl_run_args *args)
{
    const struct xccl_binding *binding = run->plan->binding;

    for (uint32_t i = 0; i < binding->net_count; i++) {
        struct xccl_net_op op = {.seq = args->seq,
                                 .signature = run->plan->signature ^ args->mark,
                                 .flag_low = run->flag_low,
                                 .messages = run->plan->net_messages[i]};

        xccl_ahead_for(run, binding->net_conns[i], &op);
        xccl_net_link_begin(binding->nets[binding->net_conns[i]], &op);
    }
}

void xccl_run_start(struct xccl_run *run, const struct xccl_plan *plan,
                    const struct xccl_run_args *args)
{
    const struct xccl_binding *binding = plan->binding;

    xccl_run_clear(run);
    run->plan = plan;
    run->by_address = plan->by_address;
    /* The executor only reads from IN. */
    run->buffers[XCCL_BUFFER_IN] = (char *)(uintptr_t)args->in;
    run->buffers[XCCL_BUFFER_OUT] = args->out;
    run->buffers[XCCL_BUFFER_SCRATCH] = args->scratch;
    run->buffers[XCCL_BUFFER_ZERO] = NULL;
    run->room = args->scratch ? (char *)args->scratch + plan->scratch_bytes : NULL;
    run->flag_low = xccl_flag_low(plan->signature ^ args->mark, args->seq);
    if (binding->offer_count || binding->ahead_count)
        look_at_buffers(run);
    start_lanes(run);
    if (binding->ahead_count)
        xccl_ahead_start(run);
    if (binding->net_count)
        start_nets(run, args);
}

void xccl_run_start_again(struct xccl_run *run, struct xccl_run_args *args)
{
    const struct xccl_plan *plan = run->plan;

    if (plan->again == XCCL_AGAIN_WHOLE) {
        args->mark = xccl_mark_after(args->mark, plan->signature);
        xccl_run_start(run, plan, args);
        return;
    }
    run->buffers[XCCL_BUFFER_IN] = (char *)(uintptr_t)args->in;
    run->buffers[XCCL_BUFFER_OUT] = args->out;
    run->lanes_left = 1;
    if (plan->again == XCCL_AGAIN_ALONE) /* no other rank looks at its flag words */
        return;
    args->mark = xccl_mark_after(args->mark, plan->signature);
    run->flag_low = xccl_flag_low(plan->signature ^ args->mark, args->seq);
    run->lanes->ahead = 0;
    run->lanes->ahead_ends = 0;
    run->lanes->move = plan->moves;
    run->lanes->end = plan->moves_end;
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

static inline __attribute__((always_inline)) int progress(struct xccl_run *run)
{
    int moved = 0;

    if (__builtin_expect(!run->plan, 0))
        return run->rc ? 0 : run->kind->step(run);
    if (run->plan->again == XCCL_AGAIN_ALONE)
        return xccl_interp_alone(run);
    switch (run->plan->binding->proto) {
    case XCCL_PROTO_LINES:
        moved = xccl_interp_lines(run);
        break;
    case XCCL_PROTO_SMALL:
        moved = xccl_interp_small(run);
        break;
    case XCCL_PROTO_SLICES:
        moved = xccl_interp_slices(run);
        break;
    default:
        moved = xccl_interp_tight(run);
        break;
    }
    if (run->plan->binding->net_count)
        moved |= progress_nets(run);
    return moved;
}

int xccl_run_progress(struct xccl_run *run)
{
    return progress(run);
}

static __attribute__((noinline)) int are_nets_idle(const struct xccl_binding *binding)
{
    for (uint32_t i = 0; i < binding->net_count; i++)
        if (!xccl_net_link_idle(binding->nets[binding->net_conns[i]]))
            return 0;
    return 1;
}

static inline int is_done(struct xccl_run *run)
{
    if (!run->plan)
        return run->finished;
    if (run->lanes_left || (run->plan->binding->net_count && !are_nets_idle(run->plan->binding)))
        return 0;
    return !run->offers || xccl_interp_all_read(run);
}

int xccl_run_done(struct xccl_run *run)
{
    return is_done(run);
}

/* Looks after everything but the data; the wait's slow branch. */
static void check_runs(struct xccl_run *const *runs, unsigned count, uint64_t waited_ns)
{
    for (unsigned i = 0; i < count; i++)
        if (runs[i]->kind && !runs[i]->rc)
            runs[i]->rc = runs[i]->kind->check(runs[i], waited_ns);
}

/* How long nothing has moved. */
struct idle {
    uint32_t rounds;
    int sleepy; /* the yielding is over: look after everything and sleep in each round */
    uint64_t since_ns; /* 0: not known yet */
};

static void sleep_on(const struct xccl_wait_policy *policy, uint64_t waited_ns)
{
    uint64_t ns = waited_ns / 16;

    if (ns > policy->sleep_max_ns)
        ns = policy->sleep_max_ns;
    if (ns < policy->sleep_ns)
        ns = policy->sleep_ns;
    nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
}

static void idle_round(struct xccl_run *const *runs, unsigned count,
                       const struct xccl_wait_policy *policy, struct idle *idle)
{
    uint64_t waited_ns = 0;

    idle->rounds++;
    if (idle->sleepy || idle->rounds % SLOW_EVERY == 0) {
        uint64_t now_ns = xccl_clock_ns();

        if (!idle->since_ns)
            idle->since_ns = now_ns;
        waited_ns = now_ns - idle->since_ns;
        check_runs(runs, count, waited_ns);
        idle->sleepy = waited_ns > policy->yield_ns;
    }
    if (idle->sleepy)
        sleep_on(policy, waited_ns);
    else if (idle->rounds > policy->spins)
        sched_yield();
    else
        xccl_os_pause();
}

/* Until one of them is done or has failed: its index. */
static inline __attribute__((always_inline)) unsigned
wait_for_any(struct xccl_run *const *runs, unsigned count, const struct xccl_wait_policy *policy)
{
    struct idle idle = {0};

    for (;;) {
        int moved = 0;

        for (unsigned i = 0; i < count; i++) {
            moved |= progress(runs[i]);
            if (runs[i]->rc || is_done(runs[i]))
                return i;
        }
        if (moved)
            idle = (struct idle){0};
        else
            idle_round(runs, count, policy, &idle);
        for (unsigned i = 0; i < count; i++)
            if (runs[i]->rc)
                return i;
    }
}

static __attribute__((noinline)) void wait_longer(struct xccl_run *run,
                                                  const struct xccl_wait_policy *policy)
{
    (void)wait_for_any(&run, 1, policy);
}

void xccl_exec_wait_links(struct xccl_run *run, const struct xccl_wait_policy *policy)
{
    (void)progress(run);
    if (!run->rc && !is_done(run))
        wait_longer(run, policy);
}

void xccl_exec_wait(struct xccl_run *const *runs, unsigned count,
                    const struct xccl_wait_policy *policy, unsigned *which_out)
{
    *which_out = wait_for_any(runs, count, policy);
}

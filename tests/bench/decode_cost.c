/* SPDX-License-Identifier: BSD-3-Clause */
/* What decoding a schedule costs: nanoseconds for each chunk of a step, for a few algorithms, with
 * the records of one rank read in order as an executor does (least, median and most of 9 rounds);
 * the same up to bytes and links (a move, median of 9); and microseconds from a call of 64 MiB on a
 * network to its plan, schedule included (median of 9).
 *
 *   build/release/tests/decode_cost [N]
 *
 * Thread: one. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "plan/plan.h"
#include "schedule/decode.h"
#include "schedule/generators.h"

#define ROUNDS    9
#define ROUND_NS  20000000
#define RANKS     512
#define RANKS_MAX 4096

static const struct {
    enum xccl_coll coll;
    const char *name;
} which[] = {
    {XCCL_COLL_ALL_REDUCE, "ring"},     {XCCL_COLL_ALL_REDUCE, "nhr"},
    {XCCL_COLL_ALL_REDUCE, "rhd"},      {XCCL_COLL_ALL_REDUCE, "pat"},
    {XCCL_COLL_ALL_REDUCE, "dtree"},    {XCCL_COLL_ALL_REDUCE, "oneshot"},
    {XCCL_COLL_ALL_TO_ALL, "pairwise"}, {XCCL_COLL_ALL_TO_ALL, "bruck"},
    {XCCL_COLL_REDUCE_SCATTER, "mesh"}, {XCCL_COLL_ALL_GATHER, "mesh"},
};

static uint64_t decode_step(const struct xccl_schedule *schedule, uint32_t lane,
                            const struct xccl_step *step)
{
    uint64_t sum = 0;

    for (uint32_t occ = 0; occ < step->rep; occ++) {
        for (uint32_t j = 0; j < step->cnt; j++) {
            struct xccl_event event;

            xccl_event_decode(schedule, lane, step, occ, j, &event);
            sum += event.src + event.dst + event.rconn + event.sconn;
        }
    }
    return sum;
}

/* All moves of one tile, once. */
static uint64_t move_all(const struct xccl_plan *plan, uint64_t *moves)
{
    const struct xccl_schedule *schedule = plan->binding->schedule;
    uint64_t sum = 0;

    for (uint32_t lane = 0; lane < schedule->nlanes; lane++) {
        struct xccl_place place = xccl_place_first(plan, lane);

        if (!schedule->lanes[lane].nstep)
            continue;
        do {
            struct xccl_move move;

            xccl_move_make(plan, &place, &move);
            sum += move.src + move.dst + move.bytes;
            ++*moves;
        } while (xccl_place_next(plan, &place) && place.tile == 0);
    }
    return sum;
}

/* All events of one tile, once. */
static uint64_t decode_all(const struct xccl_schedule *schedule, uint64_t *events)
{
    uint64_t sum = 0;

    for (uint32_t lane = 0; lane < schedule->nlanes; lane++) {
        const struct xccl_schedule_lane *of = &schedule->lanes[lane];

        for (uint32_t i = 0; i < of->nstep; i++) {
            const struct xccl_step *step = &schedule->steps[of->step0 + i];

            sum += decode_step(schedule, lane, step);
            *events += (uint64_t)step->rep * step->cnt;
        }
    }
    return sum;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Keeps the compiler from leaving anything out. */
static uint64_t sum_of_all;

static void must(xcclResult_t rc)
{
    if (rc != xcclSuccess)
        exit(1);
}

/* The plan of a new planner, which has links in name only. */
static const struct xccl_plan *plan_anew(struct xccl_planner *planner,
                                         const struct xccl_generator *generator, int nranks)
{
    struct xccl_call call = {.coll = generator->coll, .type = xcclFloat32, .count = 16u << 20};
    struct xccl_found found;
    char setting[64];

    *planner = (struct xccl_planner){.nranks = nranks, .rank = nranks / 2};
    snprintf(setting, sizeof(setting), "%s:%s", xccl_coll_name(generator->coll), generator->name);
    must(xccl_planner_init(planner, setting));
    must(xccl_plan_get(planner, &call, &found));
    found.binding->slot_bytes = 128u << 10;
    /* All peers are on other hosts: messages are counted for each connection. */
    found.binding->net_count = found.binding->schedule->nconns;
    for (uint16_t i = 0; i < found.binding->net_count; i++)
        found.binding->net_conns[i] = i;
    found.binding->ready = 1;
    must(xccl_plan_get(planner, &call, &found));
    return found.plan;
}

/* Medians: microseconds to a plan, nanoseconds for a move of it. */
static void measure_plan(const struct xccl_generator *generator, int nranks, double *plan_us_out,
                         double *move_ns_out)
{
    double us[ROUNDS], ns[ROUNDS];

    for (int i = 0; i < ROUNDS; i++) {
        struct xccl_planner planner;
        uint64_t begin_ns = xccl_clock_ns(), end_ns, moves = 0;
        const struct xccl_plan *plan = plan_anew(&planner, generator, nranks);

        us[i] = (double)(xccl_clock_ns() - begin_ns) / 1000;
        begin_ns = end_ns = xccl_clock_ns();
        while (end_ns - begin_ns < ROUND_NS) {
            sum_of_all += move_all(plan, &moves);
            end_ns = xccl_clock_ns();
        }
        ns[i] = (double)(end_ns - begin_ns) / (double)moves;
        xccl_planner_fini(&planner);
    }
    qsort(us, ROUNDS, sizeof(us[0]), by_size);
    qsort(ns, ROUNDS, sizeof(ns[0]), by_size);
    *plan_us_out = us[ROUNDS / 2];
    *move_ns_out = ns[ROUNDS / 2];
}

static void measure(const struct xccl_generator *generator, int nranks)
{
    double plan_us, move_ns;
    struct xccl_generator_for what = {.nranks = nranks, .rank = nranks / 2};
    struct xccl_schedule *schedule;
    uint64_t once = 0;
    double ns[ROUNDS];

    if (xccl_generator_make(generator, &what, &schedule) != xcclSuccess)
        exit(1);
    sum_of_all += decode_all(schedule, &once);
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t begin_ns = xccl_clock_ns(), end_ns = begin_ns, events = 0;

        while (end_ns - begin_ns < ROUND_NS) {
            sum_of_all += decode_all(schedule, &events);
            end_ns = xccl_clock_ns();
        }
        ns[i] = (double)(end_ns - begin_ns) / (double)events;
    }
    qsort(ns, ROUNDS, sizeof(ns[0]), by_size);
    measure_plan(generator, nranks, &plan_us, &move_ns);
    printf("%-14s %-10s %7u %8llu %8.2f %8.2f %8.2f %8.2f %8.1f\n", xccl_coll_name(generator->coll),
           generator->name, schedule->nsteps, (unsigned long long)once, ns[0], ns[ROUNDS / 2],
           ns[ROUNDS - 1], move_ns, plan_us);
    xccl_schedule_destroy(schedule);
}

int main(int argc, char **argv)
{
    int nranks = argc > 1 ? atoi(argv[1]) : RANKS;

    if (nranks < 2 || nranks > RANKS_MAX) {
        fprintf(stderr, "decode_cost: 2 to %d ranks\n", RANKS_MAX);
        return 2;
    }
    printf("# %d ranks, one of them\n%-14s %-10s %7s %8s %8s %8s %8s %8s %8s\n", nranks,
           "# collective", "algorithm", "records", "events", "ns least", "median", "most",
           "move ns", "plan us");
    for (size_t i = 0; i < sizeof(which) / sizeof(which[0]); i++) {
        int param;
        const struct xccl_generator *generator = xccl_generator_find(which[i].coll, which[i].name,
                                                                     &param);

        if (generator)
            measure(generator, nranks);
    }
    return sum_of_all == 1;
}

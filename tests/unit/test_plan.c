/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice of algorithm and protocol, the geometry of plans, and the cache. The planners here
 * have schedules without links: nothing is run, so the tests need neither ranks nor shared memory.
 * One thread. */
#include "plan/plan.h"

#include "base/alloc.h"
#include "xt.h"

/* A planner with bindings that have schedules but no links: nothing runs here. */
static void planner_open(struct xccl_planner *planner, int nranks, int all_local, int mesh)
{
    uint8_t marks[XCCL_ONESHOT_MAX_RANKS];

    memset(planner, 0, sizeof *planner);
    memset(marks, all_local, sizeof marks);
    XT_OK(xccl_planner_init(planner));
    planner->nranks = nranks;
    for (int proto = 0; proto < XCCL_PROTO_COUNT; proto++) {
        struct xccl_schedule *schedule;

        if (!mesh || (!all_local && proto != XCCL_PROTO_SLICES))
            continue;
        XT_OK(xccl_gen_oneshot(nranks, 0, marks, &schedule));
        XT_OK(xccl_binding_create(schedule, (enum xccl_proto)proto,
                                  &planner->bindings[XCCL_ALGO_ONESHOT][proto]));
        planner->bindings[XCCL_ALGO_ONESHOT][proto]->slot_bytes = 64u << 10;
    }
    {
        struct xccl_schedule *schedule;

        XT_OK(xccl_gen_ring(nranks, 0, &schedule));
        XT_OK(xccl_binding_create(schedule, XCCL_PROTO_SLICES,
                                  &planner->bindings[XCCL_ALGO_RING][XCCL_PROTO_SLICES]));
        planner->bindings[XCCL_ALGO_RING][XCCL_PROTO_SLICES]->slot_bytes = 64u << 10;
    }
}

static void planner_close(struct xccl_planner *planner)
{
    for (int algo = 0; algo < XCCL_ALGO_COUNT; algo++)
        for (int proto = 0; proto < XCCL_PROTO_COUNT; proto++)
            xccl_binding_destroy(planner->bindings[algo][proto]);
    xccl_planner_fini(planner);
}

static void expect(const struct xccl_planner *planner, size_t bytes, enum xccl_algo want_algo,
                   enum xccl_proto want_proto)
{
    enum xccl_algo algo;
    enum xccl_proto proto;

    xccl_plan_choose(planner, bytes, &algo, &proto);
    XT_CHECK_TEXT(xccl_algo_name(algo), xccl_algo_name(want_algo));
    XT_CHECK_INT(proto, want_proto);
}

XT_TEST(small_calls_go_in_lines_then_small_slots_then_slices_then_round_the_ring)
{
    struct xccl_planner planner;

    planner_open(&planner, 2, 1, 1);
    expect(&planner, 0, XCCL_ALGO_ONESHOT, XCCL_PROTO_LINES);
    expect(&planner, 224, XCCL_ALGO_ONESHOT, XCCL_PROTO_LINES);
    expect(&planner, 228, XCCL_ALGO_ONESHOT, XCCL_PROTO_SMALL);
    expect(&planner, 8192, XCCL_ALGO_ONESHOT, XCCL_PROTO_SMALL);
    expect(&planner, 8196, XCCL_ALGO_ONESHOT, XCCL_PROTO_SLICES);
    expect(&planner, 65536, XCCL_ALGO_ONESHOT, XCCL_PROTO_SLICES);
    expect(&planner, 65540, XCCL_ALGO_RING, XCCL_PROTO_SLICES);
    planner.forced = XCCL_ALGO_RING;
    expect(&planner, 8, XCCL_ALGO_RING, XCCL_PROTO_SLICES);
    planner.forced = XCCL_ALGO_ONESHOT;
    expect(&planner, 1u << 30, XCCL_ALGO_ONESHOT, XCCL_PROTO_SLICES);
    planner_close(&planner);
}

XT_TEST(network_ranks_use_slices_and_many_of_them_the_ring_alone)
{
    struct xccl_planner planner;

    planner_open(&planner, 4, 0, 1);
    expect(&planner, 8, XCCL_ALGO_ONESHOT, XCCL_PROTO_SLICES);
    expect(&planner, 8196, XCCL_ALGO_RING, XCCL_PROTO_SLICES);
    planner_close(&planner);
    planner_open(&planner, 12, 0, 0);
    expect(&planner, 8, XCCL_ALGO_RING, XCCL_PROTO_SLICES);
    planner_close(&planner);
}

static const struct xccl_plan *plan_of(struct xccl_planner *planner, size_t count)
{
    struct xccl_call call = {XCCL_COLL_ALL_REDUCE, xcclFloat32, xcclSum, count};
    const struct xccl_plan *plan;

    XT_OK(xccl_plan_get(planner, &call, &plan));
    return plan;
}

XT_TEST(slices_cover_every_byte_once_and_messages_count_them)
{
    struct xccl_planner planner;

    planner_open(&planner, 5, 0, 0);
    for (size_t count = 0; count < 400000; count = count * 3 + 1) {
        const struct xccl_plan *plan = plan_of(&planner, count);
        size_t bytes = 0;
        uint32_t slices = 0;

        for (uint32_t chunk = 0; chunk < 5; chunk++)
            for (uint32_t tile = 0; tile < plan->tiles; tile++) {
                size_t here = xccl_slice_bytes(plan, chunk, tile);

                XT_CHECK(here <= plan->slice_bytes && here % 4 == 0);
                bytes += here;
                slices += here != 0;
            }
        XT_CHECK_INT(bytes, count * 4);
        /* Rank 0 of a ring sends every chunk twice but its next one's and its own once. */
        XT_CHECK(xccl_plan_messages(plan, 0) <= 2 * slices);
        XT_CHECK((xccl_plan_messages(plan, 0) == 0) == (count == 0));
    }
    planner_close(&planner);
}

XT_TEST(plans_are_kept_and_a_full_cache_is_emptied)
{
    struct xccl_planner planner;
    const struct xccl_plan *first;

    planner_open(&planner, 2, 1, 1);
    first = plan_of(&planner, 100);
    XT_CHECK(plan_of(&planner, 101) != first);
    XT_CHECK(plan_of(&planner, 100) == first);
    XT_CHECK(plan_of(&planner, 100)->signature != plan_of(&planner, 101)->signature);
    for (size_t count = 0; count < 5000; count++)
        XT_CHECK_INT(plan_of(&planner, count)->total_bytes, count * 4);
    XT_CHECK(planner.plan_count <= 1024);
    planner_close(&planner);
}

XT_TEST(counts_that_overflow_are_refused)
{
    struct xccl_planner planner;
    struct xccl_call call = {XCCL_COLL_ALL_REDUCE, xcclFloat32, xcclSum, SIZE_MAX / 3};
    const struct xccl_plan *plan;

    planner_open(&planner, 2, 1, 1);
    XT_CHECK_RC(xccl_plan_get(&planner, &call, &plan), xcclInvalidArgument);
    planner_close(&planner);
}

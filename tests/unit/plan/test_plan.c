/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice of algorithm and protocol, the setting XCCL_ALGO, the geometry of plans, and the
 * cache. Bindings here have no links: nothing is run, so the tests need neither ranks nor shared
 * memory. One thread. */
#include "plan/plan.h"

#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "exec/exec.h"
#include "xt.h"

#ifdef XCCL_SANITIZED
#define SLOWER 20
#else
#define SLOWER 1
#endif

static const char *const no_setting = "auto";

static void planner_open(struct xccl_planner *planner, int nranks, int all_local,
                         const char *setting)
{
    memset(planner, 0, sizeof *planner);
    planner->nranks = nranks;
    planner->all_local = all_local;
    XT_OK(xccl_planner_init(planner, setting));
}

static struct xccl_call call_of(enum xccl_coll coll, size_t count)
{
    return (struct xccl_call){.coll = coll, .type = xcclFloat32, .op = xcclSum, .count = count};
}

static void expect(const struct xccl_planner *planner, enum xccl_coll coll, size_t count,
                   const char *want_algo, enum xccl_proto want_proto)
{
    struct xccl_call call = call_of(coll, count);
    struct xccl_choice choice;

    XT_OK(xccl_plan_choose(planner, &call, &choice));
    XT_CHECK_TEXT(choice.generator->name, want_algo);
    XT_CHECK_INT(choice.proto, want_proto);
}

XT_TEST(small_calls_go_in_lines_then_small_slots_then_slices_then_round_the_ring)
{
    struct xccl_planner planner;

    planner_open(&planner, 2, 1, no_setting);
    expect(&planner, XCCL_COLL_ALL_REDUCE, 0, "oneshot", XCCL_PROTO_LINES);
    expect(&planner, XCCL_COLL_ALL_REDUCE, 224 / 4, "oneshot", XCCL_PROTO_LINES);
    expect(&planner, XCCL_COLL_ALL_REDUCE, 228 / 4, "oneshot", XCCL_PROTO_SMALL);
    expect(&planner, XCCL_COLL_ALL_REDUCE, 8192 / 4, "oneshot", XCCL_PROTO_SMALL);
    expect(&planner, XCCL_COLL_ALL_REDUCE, 8196 / 4, "oneshot", XCCL_PROTO_SLICES);
    expect(&planner, XCCL_COLL_ALL_REDUCE, 64 << 20, "oneshot", XCCL_PROTO_SLICES);
    xccl_planner_fini(&planner);
    planner_open(&planner, 4, 1, no_setting);
    expect(&planner, XCCL_COLL_ALL_REDUCE, 32768 / 4, "oneshot", XCCL_PROTO_SLICES);
    expect(&planner, XCCL_COLL_ALL_REDUCE, 32772 / 4, "ring", XCCL_PROTO_SLICES);
    expect(&planner, XCCL_COLL_REDUCE_SCATTER, 1024 / 4, "mesh", XCCL_PROTO_SMALL);
    expect(&planner, XCCL_COLL_REDUCE_SCATTER, 1028 / 4, "ring", XCCL_PROTO_SMALL);
    xccl_planner_fini(&planner);
}

XT_TEST(ranks_that_are_more_than_cores_take_few_rounds)
{
    struct xccl_planner planner;

    planner_open(&planner, 4, 1, no_setting);
    planner.is_crowded = 1;
    expect(&planner, XCCL_COLL_ALL_REDUCE, 8192 / 4, "oneshot", XCCL_PROTO_SMALL);
    expect(&planner, XCCL_COLL_ALL_REDUCE, 8196 / 4, "twoshot", XCCL_PROTO_SMALL);
    expect(&planner, XCCL_COLL_ALL_REDUCE, 64 << 20, "twoshot", XCCL_PROTO_SLICES);
    expect(&planner, XCCL_COLL_REDUCE_SCATTER, 64 << 20, "mesh", XCCL_PROTO_SLICES);
    xccl_planner_fini(&planner);
    planner_open(&planner, 3, 1, no_setting);
    planner.is_crowded = 1;
    expect(&planner, XCCL_COLL_ALL_REDUCE, 32768 / 4, "oneshot", XCCL_PROTO_SLICES);
    expect(&planner, XCCL_COLL_ALL_REDUCE, 32772 / 4, "ring", XCCL_PROTO_SLICES);
    expect(&planner, XCCL_COLL_REDUCE_SCATTER, 1028 / 4, "ring", XCCL_PROTO_SMALL);
    xccl_planner_fini(&planner);
    planner_open(&planner, 16, 1, no_setting); /* then bytes count */
    planner.is_crowded = 1;
    expect(&planner, XCCL_COLL_ALL_REDUCE, (1 << 20) / 4, "twoshot", XCCL_PROTO_SLICES);
    expect(&planner, XCCL_COLL_ALL_REDUCE, (1 << 20) / 4 + 1, "ring", XCCL_PROTO_SLICES);
    expect(&planner, XCCL_COLL_REDUCE_SCATTER, 32768 / 4, "mesh", XCCL_PROTO_SLICES);
    expect(&planner, XCCL_COLL_REDUCE_SCATTER, 32772 / 4, "ring", XCCL_PROTO_SLICES);
    xccl_planner_fini(&planner);
    planner_open(&planner, 33, 1, no_setting);
    planner.is_crowded = 1;
    expect(&planner, XCCL_COLL_ALL_REDUCE, 64 << 20, "ring", XCCL_PROTO_SLICES);
    expect(&planner, XCCL_COLL_REDUCE_SCATTER, 64 << 20, "ring", XCCL_PROTO_SLICES);
    xccl_planner_fini(&planner);
}

XT_TEST(network_ranks_use_slices_and_many_of_them_few_messages_when_small)
{
    struct xccl_planner planner;

    planner_open(&planner, 4, 0, no_setting);
    expect(&planner, XCCL_COLL_ALL_REDUCE, 2, "oneshot", XCCL_PROTO_SLICES);
    expect(&planner, XCCL_COLL_ALL_REDUCE, 8196 / 4, "ring", XCCL_PROTO_SLICES);
    xccl_planner_fini(&planner);
    planner_open(&planner, 12, 0, no_setting);
    expect(&planner, XCCL_COLL_ALL_REDUCE, 2, "rd", XCCL_PROTO_SLICES);
    expect(&planner, XCCL_COLL_ALL_REDUCE, 8196 / 4, "ring", XCCL_PROTO_SLICES);
    xccl_planner_fini(&planner);
}

XT_TEST(hosts_with_several_ranks_go_in_stages_in_whatever_order_ranks_come)
{
    static const int block[] = {0, 0, 0, 1, 1, 1}, turns[] = {0, 1, 0, 1, 0, 1};
    static const int alone[] = {0, 1, 2, 3, 4, 5}, uneven[] = {0, 1, 1, 0, 1, 1};
    static const int *const several[] = {block, turns, uneven};
    struct xccl_planner planner;

    planner_open(&planner, 6, 0, no_setting);
    for (size_t i = 0; i < sizeof several / sizeof several[0]; i++) {
        planner.nodes = several[i];
        expect(&planner, XCCL_COLL_ALL_REDUCE, 8192 / 4, "oneshot", XCCL_PROTO_SLICES);
        expect(&planner, XCCL_COLL_ALL_REDUCE, 8196 / 4, "hier", XCCL_PROTO_SLICES);
        expect(&planner, XCCL_COLL_ALL_GATHER, 0, "hier", XCCL_PROTO_SLICES);
        expect(&planner, XCCL_COLL_REDUCE_SCATTER, 1, "hier", XCCL_PROTO_SLICES);
        expect(&planner, XCCL_COLL_BROADCAST, 32 << 10, "hier", XCCL_PROTO_SLICES);
        expect(&planner, XCCL_COLL_BROADCAST, 3 << 20, "rails", XCCL_PROTO_SLICES);
        expect(&planner, XCCL_COLL_REDUCE, 3 << 20, "rails", XCCL_PROTO_SLICES);
        expect(&planner, XCCL_COLL_REDUCE, (3 << 20) + 1, "rails", XCCL_PROTO_SLICES);
        expect(&planner, XCCL_COLL_REDUCE, 1, "hier", XCCL_PROTO_SLICES);
        expect(&planner, XCCL_COLL_GATHER, 1 << 20, "direct", XCCL_PROTO_SLICES);
        expect(&planner, XCCL_COLL_ALL_TO_ALL, 1 << 20, "pairwise", XCCL_PROTO_SLICES);
    }
    planner.nodes = alone;
    expect(&planner, XCCL_COLL_ALL_REDUCE, 8196 / 4, "ring", XCCL_PROTO_SLICES);
    expect(&planner, XCCL_COLL_BROADCAST, 64 << 20, "chain", XCCL_PROTO_SLICES);
    planner.nodes = block;
    planner.any_place = 1;
    expect(&planner, XCCL_COLL_ALL_REDUCE, 8196 / 4, "twoshot", XCCL_PROTO_SLICES);
    expect(&planner, XCCL_COLL_ALL_GATHER, 1 << 20, "hier", XCCL_PROTO_SLICES);
    xccl_planner_fini(&planner);
    planner_open(&planner, 6, 0, "^hier");
    planner.nodes = turns;
    expect(&planner, XCCL_COLL_ALL_REDUCE, 64 << 20, "ring", XCCL_PROTO_SLICES);
    xccl_planner_fini(&planner);
}

static uint64_t sign(const struct xccl_planner *planner, enum xccl_coll coll, size_t count)
{
    struct xccl_call call = call_of(coll, count);
    struct xccl_choice choice;

    XT_OK(xccl_plan_choose(planner, &call, &choice));
    return xccl_plan_signature(planner, &call, &choice);
}

XT_TEST(a_call_in_another_order_of_ranks_is_another_call_where_the_order_counts)
{
    static const uint16_t order[] = {0, 2, 4, 1, 3, 5};
    static const enum xccl_coll colls[] = {XCCL_COLL_ALL_REDUCE, XCCL_COLL_ALL_GATHER};
    struct xccl_planner planner;

    planner_open(&planner, 6, 0, "^hier");
    for (size_t i = 0; i < 2; i++) {
        uint64_t by_rank = sign(&planner, colls[i], 1 << 20), by_place;
        uint64_t small = sign(&planner, colls[i], 2);

        planner.order = order;
        planner.order_hash = 77;
        by_place = sign(&planner, colls[i], 1 << 20);
        XT_CHECK(by_place != by_rank);
        planner.order_hash = 78;
        XT_CHECK(sign(&planner, colls[i], 1 << 20) != by_place);
        XT_CHECK(sign(&planner, colls[i], 2) == small); /* all send to all */
        planner.order = NULL;
    }
    xccl_planner_fini(&planner);
}

/* rd and rhd take an order, but not where bits may not depend on the places of ranks. */
XT_TEST(sums_that_are_alike_in_any_place_keep_the_order_of_ranks)
{
    static const uint16_t order[] = {0, 2, 4, 1, 3, 5, 8, 7, 6};
    struct xccl_planner planner;
    uint64_t by_rank;

    planner_open(&planner, 9, 0, "^hier");
    planner.any_place = 1;
    planner.order_hash = 77;
    expect(&planner, XCCL_COLL_ALL_REDUCE, 1 << 20, "rhd", XCCL_PROTO_SLICES);
    by_rank = sign(&planner, XCCL_COLL_ALL_REDUCE, 1 << 20);
    planner.order = order;
    XT_CHECK(sign(&planner, XCCL_COLL_ALL_REDUCE, 1 << 20) == by_rank);
    XT_CHECK(sign(&planner, XCCL_COLL_ALL_GATHER, 1 << 20) != by_rank);
    xccl_planner_fini(&planner);
}

/* Hosts of 5, 7, 8 and 9 ranks: shares that divide by all of them are 2,520 slices. */
XT_TEST(hosts_of_odd_sizes_go_in_stages_when_their_many_chunks_are_not_tiny)
{
    static const int sizes[] = {5, 7, 8, 9};
    int nodes[29], rank = 0;
    struct xccl_planner planner;

    for (int host = 0; host < 4; host++)
        for (int i = 0; i < sizes[host]; i++)
            nodes[rank++] = host;
    planner_open(&planner, 29, 0, no_setting);
    planner.nodes = nodes;
    expect(&planner, XCCL_COLL_ALL_REDUCE, 1 << 20, "ring", XCCL_PROTO_SLICES);
    expect(&planner, XCCL_COLL_ALL_REDUCE, 2 << 20, "hier", XCCL_PROTO_SLICES);
    expect(&planner, XCCL_COLL_REDUCE_SCATTER, 1, "hier", XCCL_PROTO_SLICES);
    xccl_planner_fini(&planner);
}

/* For one rank too, and for more than any table has. */
XT_TEST(every_collective_has_an_algorithm_for_every_number_of_ranks)
{
    static const int ranks[] = {1, 2, 3, 8, 9, 64, 65, 1000};

    for (int coll = 0; coll <= XCCL_COLL_BARRIER; coll++)
        for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++)
            for (size_t count = 0; count < 1u << 24; count = count * 9 + 1) {
                struct xccl_call call = call_of((enum xccl_coll)coll, count);
                struct xccl_planner planner = {.nranks = ranks[i], .all_local = (int)(count & 1)};
                struct xccl_choice choice;

                XT_OK(xccl_plan_choose(&planner, &call, &choice));
                XT_CHECK_INT(choice.generator->coll, coll);
            }
}

XT_TEST(the_setting_names_algorithms_for_all_collectives_or_for_one)
{
    struct xccl_planner planner;

    planner_open(&planner, 4, 1, "ring");
    expect(&planner, XCCL_COLL_ALL_REDUCE, 2, "ring", XCCL_PROTO_LINES);
    expect(&planner, XCCL_COLL_ALL_GATHER, 2, "ring", XCCL_PROTO_LINES);
    expect(&planner, XCCL_COLL_BROADCAST, 2, "binomial", XCCL_PROTO_LINES); /* has no ring */
    xccl_planner_fini(&planner);
    planner_open(&planner, 4, 1, "AllReduce:nhr,ring;all_gather:pat:4");
    expect(&planner, XCCL_COLL_ALL_REDUCE, 2, "nhr", XCCL_PROTO_LINES); /* not the usual one */
    expect(&planner, XCCL_COLL_ALL_REDUCE, 1u << 20, "ring", XCCL_PROTO_SLICES); /* the usual one */
    expect(&planner, XCCL_COLL_ALL_GATHER, 2, "pat", XCCL_PROTO_LINES);
    xccl_planner_fini(&planner);
    planner_open(&planner, 4, 1, "allreduce:^oneshot,ring");
    expect(&planner, XCCL_COLL_ALL_REDUCE, 2, "dtree", XCCL_PROTO_LINES);
    expect(&planner, XCCL_COLL_ALL_GATHER, 2, "mesh", XCCL_PROTO_LINES);
    xccl_planner_fini(&planner);
    planner_open(&planner, 4, 1, "");
    expect(&planner, XCCL_COLL_ALL_REDUCE, 2, "oneshot", XCCL_PROTO_LINES);
    xccl_planner_fini(&planner);
}

XT_TEST(a_setting_that_names_nothing_is_refused_with_the_word)
{
    static const char *const bad[] = {
        "rinf", "all_reduce:rinf", "all_reduce:ring,rinf", "all_reduce:pat:3000000000", "rinf:ring",
        "^rinf"};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct xccl_planner planner = {.nranks = 4};

        XT_CHECK_RC(xccl_planner_init(&planner, bad[i]), xcclInvalidUsage);
        XT_CHECK_HAS(xccl_error_text(), "XCCL_ALGO: \"");
        xccl_planner_fini(&planner);
    }
}

/* A plan whose binding has slots of so many bytes, without links. */
static const struct xccl_plan *plan_of(struct xccl_planner *planner, const struct xccl_call *call,
                                       uint32_t slot_bytes)
{
    struct xccl_found found;

    XT_OK(xccl_plan_get(planner, call, &found));
    if (!found.plan) {
        found.binding->slot_bytes = slot_bytes;
        found.binding->ready = 1;
        XT_OK(xccl_plan_get(planner, call, &found));
    }
    XT_CHECK(found.plan != NULL);
    return found.plan;
}

XT_TEST(a_call_gets_a_plan_when_its_binding_is_ready)
{
    struct xccl_call call = call_of(XCCL_COLL_ALL_REDUCE, 100);
    struct xccl_planner planner;
    struct xccl_found first, second;

    planner_open(&planner, 4, 1, no_setting);
    XT_OK(xccl_plan_get(&planner, &call, &first));
    XT_CHECK(!first.plan && first.binding);
    XT_OK(xccl_plan_get(&planner, &call, &second));
    XT_CHECK(!second.plan && second.binding == first.binding);
    first.binding->slot_bytes = 8192;
    first.binding->ready = 1;
    XT_OK(xccl_plan_get(&planner, &call, &second));
    XT_CHECK(second.plan && second.plan->binding == first.binding);
    XT_CHECK(second.signature == first.signature);
    xccl_planner_fini(&planner);
}

/* Processor time of this process, so that other programs do not count. */
static uint64_t processor_ns(void)
{
    struct timespec now;

    XT_CHECK_INT(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now), 0);
    return (uint64_t)now.tv_sec * XCCL_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* The best of a few: another program may have had the cache. Links are not part of it. */
XT_TEST(a_ring_of_4096_ranks_is_planned_within_5_ms)
{
    const struct xccl_call call = call_of(XCCL_COLL_ALL_REDUCE, 16u << 20);
    uint64_t best_ns = UINT64_MAX;

    for (int i = 0; i < 9; i++) {
        struct xccl_planner planner;
        uint64_t begin_ns, took_ns;

        planner_open(&planner, 4096, 0, "ring");
        begin_ns = processor_ns();
        (void)plan_of(&planner, &call, 128u << 10);
        took_ns = processor_ns() - begin_ns;
        best_ns = took_ns < best_ns ? took_ns : best_ns;
        xccl_planner_fini(&planner);
    }
    printf("planned in %.2f ms\n", (double)best_ns / 1e6);
    XT_CHECK(best_ns <= 5000000 * SLOWER);
}

/* By adding up the slices of each chunk, tile by tile, as the copy of a ring's first rank. */
XT_TEST(slices_cover_every_byte_of_a_vector_once)
{
    struct xccl_planner planner;

    planner_open(&planner, 5, 0, "ring");
    for (size_t count = 0; count < 400000; count = count * 3 + 1) {
        struct xccl_call call = call_of(XCCL_COLL_ALL_REDUCE, count);
        const struct xccl_plan *plan = plan_of(&planner, &call, 64u << 10);
        const struct xccl_step copy = {.op = XCCL_STEP_SRC | XCCL_STEP_DST,
                                       .bufs = XCCL_STEP_BUFS(XCCL_BUFFER_IN, XCCL_BUFFER_OUT),
                                       .cnt = 5,
                                       .cstride = 1,
                                       .run = 1,
                                       .rep = 1};
        struct xccl_step *steps = plan->binding->schedule->steps; /* where moves are looked for */
        size_t bytes = 0, end = 0;

        steps[0] = copy;
        for (uint32_t chunk = 0; chunk < 5; chunk++)
            for (uint32_t tile = 0; tile < plan->tiles; tile++) {
                struct xccl_place place = {.chunk = chunk, .tile = tile, .step = steps};
                struct xccl_move move;

                xccl_move_make(plan, &place, &move);
                XT_CHECK(move.bytes <= plan->slice_bytes && move.bytes % 4 == 0);
                XT_CHECK(!move.bytes || move.src == end);
                end = move.bytes ? move.src + move.bytes : end;
                bytes += move.bytes;
            }
        XT_CHECK_INT(bytes, count * 4);
    }
    xccl_planner_fini(&planner);
}

XT_TEST(plans_are_kept_and_a_full_cache_is_emptied)
{
    struct xccl_call call = call_of(XCCL_COLL_ALL_REDUCE, 100), other = call;
    struct xccl_planner planner;
    const struct xccl_plan *first;

    other.count = 101;
    planner_open(&planner, 2, 1, no_setting);
    first = plan_of(&planner, &call, 8192);
    XT_CHECK(plan_of(&planner, &other, 8192) != first);
    XT_CHECK(plan_of(&planner, &call, 8192) == first);
    XT_CHECK(plan_of(&planner, &call, 8192)->signature !=
             plan_of(&planner, &other, 8192)->signature);
    for (other.count = 0; other.count < 5000; other.count++)
        XT_CHECK_INT(plan_of(&planner, &other, 8192)->layouts[0].total, other.count * 4);
    XT_CHECK(planner.plan_count <= 1024);
    xccl_planner_fini(&planner);
}

/* Who has kept one must not take it for what it was, although none was made in its place. */
XT_TEST(an_emptied_cache_shows_also_where_the_next_plan_cannot_be_made)
{
    struct xccl_call call = call_of(XCCL_COLL_ALL_REDUCE, 0);
    struct xccl_planner planner;
    struct xccl_found found;
    uint64_t made;

    planner_open(&planner, 2, 1, no_setting);
    while (planner.plan_count < 1024) {
        call.count++;
        (void)plan_of(&planner, &call, 8192);
    }
    made = planner.plans_made;
    call.type = xcclFloat32;
    call.op = xcclNumOps; /* there is none */
    XT_CHECK_RC(xccl_plan_get(&planner, &call, &found), xcclInvalidArgument);
    XT_CHECK_INT(planner.plan_count, 0);
    XT_CHECK(planner.plans_made != made);
    xccl_planner_fini(&planner);
}

XT_TEST(whatever_differs_in_a_call_differs_in_its_signature)
{
    struct xccl_call calls[] = {
        call_of(XCCL_COLL_BROADCAST, 100), call_of(XCCL_COLL_BROADCAST, 100),
        call_of(XCCL_COLL_BROADCAST, 100), call_of(XCCL_COLL_REDUCE, 100),
        call_of(XCCL_COLL_REDUCE, 100),    call_of(XCCL_COLL_BROADCAST, 101),
    };
    struct xccl_planner planner;
    struct xccl_found found[6];

    calls[1].root = 1;
    calls[2].type = xcclInt32;
    calls[4].op = xcclMax;
    planner_open(&planner, 4, 1, no_setting);
    for (int i = 0; i < 6; i++) {
        XT_OK(xccl_plan_get(&planner, &calls[i], &found[i]));
        for (int j = 0; j < i; j++)
            XT_CHECK(found[i].signature != found[j].signature);
    }
    xccl_planner_fini(&planner);
}

XT_TEST(counts_that_overflow_are_refused)
{
    struct xccl_planner planner;
    struct xccl_call call = call_of(XCCL_COLL_ALL_REDUCE, SIZE_MAX / 3);
    struct xccl_found found;

    planner_open(&planner, 2, 1, no_setting);
    XT_CHECK_RC(xccl_plan_get(&planner, &call, &found), xcclInvalidArgument);
    xccl_planner_fini(&planner);
}

static uint64_t signature_of(uint8_t key, size_t count, uint32_t tile_bytes)
{
    struct xccl_planner planner;
    struct xccl_call call = call_of(XCCL_COLL_ALL_REDUCE, count);
    struct xccl_choice choice;
    uint64_t signature;

    planner_open(&planner, 4, 0, no_setting);
    planner.key[15] = key;
    XT_OK(xccl_plan_choose(&planner, &call, &choice));
    choice.tile_bytes = tile_bytes;
    signature = xccl_plan_signature(&planner, &call, &choice);
    xccl_planner_fini(&planner);
    return signature;
}

XT_TEST(a_signature_is_of_the_key_the_call_and_the_way_it_is_done)
{
    uint64_t signature = signature_of(7, 10, 0);

    XT_CHECK(signature_of(7, 10, 0) == signature);
    XT_CHECK(signature_of(8, 10, 0) != signature);
    XT_CHECK(signature_of(7, 11, 0) != signature);
    XT_CHECK(signature_of(7, 10, 4096) != signature);
}

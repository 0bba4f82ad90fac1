/* SPDX-License-Identifier: BSD-3-Clause */
/* The interpreter with data, all ranks in one thread and moved in a random order: every algorithm
 * over every protocol, slot counts from the fewest, sizes around slots and chunks, in place and
 * not, from lists of moves and by decoding, with operators that change contributions and results,
 * and messages of another call. */
#include "exec/exec.h"

#include <stdio.h>

#include "base/error.h"
#include "exec/host/interp.h"
#include "exec_world.h"
#include "unit/schedule/schedule_ranks.h"

/* Calls of one world. */
static void some_calls(struct world *world, uint64_t *seed)
{
    enum xccl_coll coll = world->generator->coll;
    size_t most;

    world_open(world);
    most = 3 * world->slot_bytes / 4;
    if (coll == XCCL_COLL_ALL_REDUCE || coll == XCCL_COLL_BROADCAST || coll == XCCL_COLL_REDUCE)
        most *= world->bindings[0]->schedule->nchunks;
    if (world->proto != XCCL_PROTO_SLICES)
        most = world->slot_bytes / 4; /* a message is one slot there */
    for (int i = 0; i < 6; i++) {
        world->in_place = (int)(xt_random(seed) & 1) && coll != XCCL_COLL_ALL_TO_ALL;
        world->keeps_list = (int)(xt_random(seed) & 1);
        world->twists = (int)(xt_random(seed) & 1);
        world_call(world, i == 0 ? 0 : i == 1 ? 1 : xt_random(seed) % (most + 1), seed);
    }
    world_close(world);
}

/* Does what is sent from IN and OUT stay there, where a schedule allows it? A message of which the
 * sender's part is over makes the sender wait. */
static int play_direct(const struct xccl_generator *generator, int n, uint64_t *seed)
{
    static const int ways[] = {WORLD_PLACES, WORLD_OFFERS,    WORLD_ADDRESSES,
                               WORLD_OFFERS, WORLD_ADDRESSES, WORLD_OFFERS};
    struct world *world = malloc(sizeof *world);
    uint8_t marks[WORLD_RANKS];
    int nodes[WORLD_RANKS], stayed = 0;

    XT_CHECK(world != NULL);
    for (int i = 0; i < n; i++) {
        marks[i] = 1;
        nodes[i] = i % (1 + n / 3);
    }
    for (int i = 0; i < 6; i++) {
        memset(world, 0, sizeof *world);
        world->generator = generator;
        world->n = n;
        world->root = xccl_coll_rooted(generator->coll) ? (int)(xt_random(seed) % (uint64_t)n) : 0;
        world->proto = XCCL_PROTO_SLICES;
        world->nodes = nodes;
        world->multicast = i & 2 ? marks : NULL;
        world->lag = 1;
        world->nslots = (uint32_t)generator->slots + (uint32_t)(i & 1) * 3;
        world->direct = ways[i];
        world->mixes = i & 1;
        some_calls(world, seed);
        stayed += world->stayed;
    }
    free(world);
    return stayed;
}

static void play(const struct xccl_generator *generator, int n, int param, uint64_t *seed)
{
    static const enum xccl_proto protos[] = {XCCL_PROTO_LINES, XCCL_PROTO_SMALL, XCCL_PROTO_SLICES};
    struct world *world = malloc(sizeof *world);
    uint8_t marks[WORLD_RANKS];
    int nodes[WORLD_RANKS];

    XT_CHECK(world != NULL);
    for (int i = 0; i < n; i++) {
        marks[i] = 1;
        nodes[i] = i % (1 + n / 3);
    }
    for (int i = 0; i < 6; i++) {
        memset(world, 0, sizeof *world);
        world->generator = generator;
        world->n = n;
        world->param = param;
        world->root = xccl_coll_rooted(generator->coll) ? (int)(xt_random(seed) % (uint64_t)n) : 0;
        world->proto = protos[i % 3];
        world->nodes = nodes;
        world->multicast = i < 3 ? marks : NULL;
        world->lag = 1 + (uint32_t)(xt_random(seed) % 3);
        world->nslots = (uint32_t)generator->slots + world->lag - 1 + (uint32_t)(i & 1);
        some_calls(world, seed);
    }
    free(world);
}

static void play_all(int from, int to)
{
    uint64_t seed = xt_seed();

    for (const struct xccl_generator *const *at = xccl_generators; *at; at++)
        for (int n = from; n <= to; n++) {
            struct xccl_generator_for what = {.nranks = n};

            if ((*at)->serves && !(*at)->serves(&what))
                continue;
            play(*at, n, 0, &seed);
            if ((*at)->param_max)
                play(*at, n, (*at)->param_min, &seed);
        }
}

XT_TEST(every_algorithm_gives_right_results_for_1_to_5_ranks)
{
    play_all(1, 5);
}

XT_TEST(every_algorithm_gives_right_results_for_6_to_9_ranks)
{
    play_all(6, WORLD_RANKS);
}

/* Two lanes that hand scratch memory over by signals, with one to three buffers of it. */
XT_TEST(lanes_that_wait_for_one_another_share_scratch_memory)
{
    uint64_t seed = xt_seed();

    for (int i = 0; i < 60; i++) {
        struct ranks ranks = staged(1 + i % 3, 1 + i % 3);
        struct world *world = calloc(1, sizeof *world);
        int param;

        XT_CHECK(world != NULL);
        world->generator = xccl_generator_find(XCCL_COLL_ALL_REDUCE, "ring", &param);
        world->given = ranks.schedules;
        world->n = 2;
        world->lag = 1;
        world->nslots = 1 + (uint32_t)i % 4;
        world->proto = XCCL_PROTO_SLICES;
        world_open(world);
        for (int call = 0; call < 4; call++)
            world_call(world, xt_random(&seed) % 300, &seed);
        world_close(world);
        free(world);
    }
}

XT_TEST(a_wait_for_a_signal_that_no_step_gives_is_refused)
{
    struct ranks ranks = staged(1, 1);
    struct xccl_binding *binding;

    ranks.schedules[0]->waits[0].sig = 99;
    XT_CHECK_RC(xccl_binding_create(ranks.schedules[0], XCCL_PROTO_SLICES, &binding),
                xcclInternalError);
    XT_CHECK_HAS(xccl_error_text(), "waits for a signal that no step sends");
    xccl_schedule_destroy(ranks.schedules[1]);
}

/* A barrier: nobody is done while somebody has not begun. */
XT_TEST(a_barrier_holds_everybody_until_the_last_one_has_come)
{
    uint64_t seed = xt_seed();

    for (int late = 0; late < 5; late++) {
        struct world *world = calloc(1, sizeof *world);
        int param;

        XT_CHECK(world != NULL);
        world->generator = xccl_generator_find(XCCL_COLL_BARRIER, "dissemination", &param);
        world->n = 5;
        world->nslots = 2;
        world->lag = 1;
        world->proto = late & 1 ? XCCL_PROTO_LINES : XCCL_PROTO_SLICES;
        world_open(world);
        world->seq = 1;
        for (int r = 0; r < 5; r++)
            if (r != late)
                world_start(world, r, 0);
        for (int i = 0; i < 500; i++) {
            int r = (int)(xt_random(&seed) % 5);

            if (r != late)
                (void)xccl_run_progress(&world->runs[r]);
        }
        for (int r = 0; r < 5; r++)
            XT_CHECK(r == late || !xccl_run_done(&world->runs[r]));
        world_start(world, late, 0);
        for (int i = 0; i < 500; i++)
            (void)xccl_run_progress(&world->runs[xt_random(&seed) % 5]);
        for (int r = 0; r < 5; r++) {
            XT_CHECK(xccl_run_done(&world->runs[r]));
            world_finish(world, r);
        }
        world_close(world);
        free(world);
    }
}

static struct world *two_ranks(enum xccl_proto proto)
{
    struct world *world = calloc(1, sizeof *world);
    int param;

    XT_CHECK(world != NULL);
    world->generator = xccl_generator_find(XCCL_COLL_ALL_REDUCE, "oneshot", &param);
    world->n = 2;
    world->nslots = 4;
    world->lag = 2;
    world->proto = proto;
    world->seq = 1;
    world_open(world);
    return world;
}

/* Two ranks make different calls with the same number: whoever looks finds out and touches nothing.
 */
static void disagree(enum xccl_proto proto)
{
    struct world *world = two_ranks(proto);
    int found = 0;

    world_start(world, 0, 10);
    world_start(world, 1, 11);
    for (int i = 0; i < 10; i++)
        for (int r = 0; r < 2; r++)
            if (!world->runs[r].rc)
                (void)xccl_run_progress(&world->runs[r]);
    for (int r = 0; r < 2; r++) {
        found += world->runs[r].rc == xcclInvalidUsage && world->runs[r].bad_peer == 1 - r;
        world_finish(world, r);
    }
    XT_CHECK_INT(found, 2);
    world_close(world);
    free(world);
}

XT_TEST(a_message_of_another_call_is_an_error_over_lines)
{
    disagree(XCCL_PROTO_LINES);
}
XT_TEST(a_message_of_another_call_is_an_error_over_small_slots)
{
    disagree(XCCL_PROTO_SMALL);
}
XT_TEST(a_message_of_another_call_is_an_error_over_slices)
{
    disagree(XCCL_PROTO_SLICES);
}

/* What waits to receive sends further tiles meanwhile, as many as there are slots, also in place.
 */
static void send_ahead(int in_place)
{
    struct world *world = two_ranks(XCCL_PROTO_SLICES);
    const struct xccl_binding *binding = world->bindings[0];
    uint64_t seed = xt_seed();

    world->in_place = in_place;
    world_start(world, 0, 200); /* of nine slices */
    XT_CHECK(xccl_run_progress(&world->runs[0]));
    for (int i = 0; i < binding->schedule->nconns; i++)
        XT_CHECK_INT(binding->links[i]->step,
                     binding->schedule->conns[i].dir == XCCL_CONN_SEND ? world->nslots : 0);
    XT_CHECK(!xccl_run_progress(&world->runs[0]));
    world_start(world, 1, 200);
    for (int i = 0; i < 200; i++)
        (void)xccl_run_progress(&world->runs[xt_random(&seed) % 2]);
    for (int r = 0; r < 2; r++) {
        XT_CHECK(xccl_run_done(&world->runs[r]));
        for (size_t i = 0; i < 200; i++)
            XT_CHECK_INT((uint32_t)world->out[r][i], world_want(world, r, 200, i));
        world_finish(world, r);
    }
    world_close(world);
    free(world);
}

XT_TEST(what_waits_to_receive_sends_further_tiles)
{
    send_ahead(0);
}
XT_TEST(what_waits_to_receive_sends_further_tiles_in_place)
{
    send_ahead(1);
}

static struct world *slices_of(enum xccl_coll coll, const char *name, int n, int keeps_list)
{
    struct world *world = calloc(1, sizeof *world);

    XT_CHECK(world != NULL);
    world->generator = generator_of(coll, name);
    world->n = n;
    world->nslots = 4;
    world->lag = 2;
    world->proto = XCCL_PROTO_SLICES;
    world->keeps_list = keeps_list;
    world->seq = 1;
    return world;
}

/* Messages that each link of a rank has got, as a number whose first digit is that of the first
 * link. */
static int sent_by(const struct xccl_binding *binding)
{
    const struct xccl_schedule *schedule = binding->schedule;
    int sent = 0;

    for (int i = 0; i < schedule->nconns; i++)
        if (schedule->conns[i].dir == XCCL_CONN_SEND)
            sent = 10 * sent + (int)binding->links[i]->step;
    return sent;
}

/* By rank 0 while no other of four ranks is there. */
static int sent_alone(enum xccl_coll coll, const char *name, int keeps_list, size_t count)
{
    struct world *world = slices_of(coll, name, 4, keeps_list);
    uint64_t seed = xt_seed();
    int sent;

    world_open(world);
    world_start(world, 0, count);
    (void)xccl_run_progress(&world->runs[0]);
    XT_CHECK(!xccl_run_progress(&world->runs[0]));
    sent = sent_by(world->bindings[0]);
    for (int r = 1; r < 4; r++)
        world_start(world, r, count);
    for (int i = 0; i < 4000; i++)
        (void)xccl_run_progress(&world->runs[xt_random(&seed) % 4]);
    for (int r = 0; r < 4; r++) {
        XT_CHECK(xccl_run_done(&world->runs[r]));
        for (size_t i = 0; i < count; i++)
            XT_CHECK_INT((uint32_t)world->out[r][i], world_want(world, r, count, i));
        world_finish(world, r);
    }
    world_close(world);
    free(world);
    return sent;
}

/* An exchange with several ranks does not wait for one before it sends to the next, but for slots;
 * what is still to come, or says that something has come, is not sent. */
XT_TEST(exchanges_send_to_all_that_they_can)
{
    for (int list = 0; list < 2; list++) {
        XT_CHECK_INT(sent_alone(XCCL_COLL_ALL_TO_ALL, "pairwise", list, 10), 111);
        XT_CHECK_INT(sent_alone(XCCL_COLL_ALL_TO_ALL, "bruck", list, 10), 21);
        XT_CHECK_INT(sent_alone(XCCL_COLL_ALL_GATHER, "ring", list, 10), 1);
        XT_CHECK_INT(sent_alone(XCCL_COLL_BARRIER, "dissemination", list, 0), 10);
    }
    XT_CHECK_INT(sent_alone(XCCL_COLL_ALL_TO_ALL, "pairwise", 0, 100), 444);
}

/* Over a network an exchange goes on to the next rank when it has heard of the one before. */
XT_TEST(exchanges_over_networks_go_from_rank_to_rank)
{
    struct world *world = slices_of(XCCL_COLL_ALL_TO_ALL, "pairwise", 4, 1);

    world_open(world);
    world_start(world, 0, 10);
    world->bindings[0]->net_count = 1; /* there is none: only the interpreter is asked */
    (void)xccl_interp_slices(&world->runs[0]);
    XT_CHECK_INT(sent_by(world->bindings[0]), 100);
    world->bindings[0]->net_count = 0;
    (void)xccl_interp_slices(&world->runs[0]);
    XT_CHECK_INT(sent_by(world->bindings[0]), 100); /* it has been decided */
    world_finish(world, 0);
    world_close(world);
    free(world);
}

/* Lane 0 stores what lane 1 sends behind an exchange. Only messages hold lane 1 back until then:
 * the peer may answer the exchange after it has sent to lane 0. */
static struct ranks lanes_in_order(void)
{
    struct ranks ranks = make(&(struct by_hand){
        .coll = XCCL_COLL_ALL_TO_ALL, .n = 2, .nchunks = 2, .nsteps = 3, .nconns = 3, .split = 1});

    for (int r = 0; r < 2; r++) {
        struct xccl_schedule *s = ranks.schedules[r];

        s->lanes[0].nconn = 1;
        s->lanes[1].conn0 = 1;
        s->lanes[1].nconn = 2;
        for (int i = 0; i < 3; i++)
            s->conns[i] = (struct xccl_schedule_conn){.peer = (uint16_t)(1 - r),
                                                      .dir = i == 1 ? XCCL_CONN_SEND
                                                                    : XCCL_CONN_RECV,
                                                      .id = (uint16_t)(i > 0),
                                                      .group = (uint16_t)i};
        s->steps[0] = step_of(RECV | DST, IN_OUT, 0, 1);
        s->steps[0].rconn = 0;
        s->steps[1] = step_of(SRC | DST | RECV | SEND | XCHG, IN_OUT, 1, 0);
        s->steps[2] = step_of(SRC | SEND, OUT_OUT, 1, 0);
    }
    return ranks;
}

XT_TEST(nothing_is_sent_that_another_lane_may_have_to_store)
{
    for (int list = 0; list < 2; list++) {
        struct ranks ranks = lanes_in_order();
        struct world *world = slices_of(XCCL_COLL_ALL_TO_ALL, "pairwise", 2, list);

        world->given = ranks.schedules;
        world_open(world);
        world_start(world, 0, 10);
        (void)xccl_run_progress(&world->runs[0]);
        XT_CHECK_INT(world->bindings[0]->links[1]->step, 1); /* the exchange's */
        world_finish(world, 0);
        world_close(world);
        free(world);
    }
}

static xcclResult_t give_up(struct xccl_run *run, uint64_t waited_ns)
{
    (void)run;
    return waited_ns > 20 * XCCL_NS_PER_MS ? xcclTimeout : xcclSuccess;
}

XT_TEST(a_wait_ends_when_its_check_says_so)
{
    static const struct xccl_run_kind kind = {.name = "test", .check = give_up};
    struct xccl_wait_policy policy = xccl_wait_policy_for(1, 1);
    struct world *world = two_ranks(XCCL_PROTO_LINES);
    struct xccl_run *run = &world->runs[0];
    unsigned which = 7;

    world_start(world, 0, 10); /* rank 1 never comes */
    run->kind = &kind;
    xccl_exec_wait(&run, 1, &policy, &which);
    XT_CHECK_INT(which, 0);
    XT_CHECK_RC(run->rc, xcclTimeout);
    world_finish(world, 0);
    world_close(world);
    free(world);
}

/* Nothing that is read in place may be overwritten before, in whatever order ranks come; and where
 * an algorithm moves what nobody writes any more, some of it does stay. */
XT_TEST(every_algorithm_gives_right_results_when_slices_stay_in_buffers)
{
    uint64_t seed = xt_seed();
    int without = 0, count = 0, stayed;

    XT_OK(xccl_arena_hold());
    for (const struct xccl_generator *const *at = xccl_generators; *at; at++)
        for (int n = 2; n <= WORLD_RANKS; n++) {
            struct xccl_generator_for what = {.nranks = n};

            if ((*at)->coll == XCCL_COLL_BARRIER || ((*at)->serves && !(*at)->serves(&what)))
                continue;
            count++;

            stayed = play_direct(*at, n, &seed) != 0;
            without += !stayed;
            if (!stayed)
                printf("nothing stays: %s of %s, n = %d\n", (*at)->name,
                       xccl_coll_name((*at)->coll), n);
        }
    xccl_arena_drop();
    /* Recursive doubling sends sums on their way; others do in the few calls that were drawn. */
    XT_CHECK(without < count / 10);
}

/* Rank 0 has sent to rank 1 by address, which sends on to rank 2. */
static struct world *three_in_a_chain(void)
{
    struct world *world = calloc(1, sizeof *world);
    int param;

    XT_CHECK(world != NULL);
    world->generator = xccl_generator_find(XCCL_COLL_BROADCAST, "chain", &param);
    world->param = param;
    world->n = 3;
    world->nslots = 4;
    world->lag = 1;
    world->proto = XCCL_PROTO_SLICES;
    world->direct = WORLD_ADDRESSES;
    world->seq = 1;
    world_open(world);
    for (int r = 0; r < 3; r++)
        world_start(world, r, 100);
    XT_CHECK(xccl_run_progress(&world->runs[0]));
    XT_CHECK(world->runs[0].offers);
    return world;
}

static struct xccl_link *link_to(const struct world *world, int from, int to)
{
    const struct xccl_binding *binding = world->bindings[from];

    for (int i = 0; i < binding->schedule->nconns; i++)
        if (binding->schedule->conns[i].dir == XCCL_CONN_SEND &&
            binding->schedule->conns[i].peer == to)
            return binding->links[i];
    XT_FAIL("no link from rank %d to rank %d", from, to);
}

static void end_chain(struct world *world)
{
    XT_CHECK_INT(link_to(world, 1, 2)->step, 0);
    for (int r = 0; r < 3; r++) {
        XT_CHECK(!xccl_run_done(&world->runs[r]));
        world_finish(world, r);
    }
    world_close(world);
    free(world);
}

XT_TEST(what_a_failed_sender_took_back_is_not_read)
{
    struct world *world = three_in_a_chain();
    struct xccl_binding *binding = world->bindings[0];

    for (uint32_t i = 0; i < binding->offer_count; i++)
        xccl_reach_revoke(binding->reaches[binding->offer_conns[i]],
                          binding->links[binding->offer_conns[i]]);
    memset(world->out[1], 0x11, 400);
    for (int i = 0; i < 100; i++)
        for (int r = 1; r < 3; r++)
            (void)xccl_run_progress(&world->runs[r]);
    for (int i = 0; i < 100; i++)
        XT_CHECK_INT(world->out[1][i], 0x11111111);
    XT_CHECK_INT(world->runs[1].rc, 0); /* why is told by other ways */
    end_chain(world);
}

XT_TEST(a_message_that_cannot_be_read_fails_the_call_and_goes_no_further)
{
    struct world *world = three_in_a_chain();
    struct xccl_slot_header *header = (void *)link_to(world, 0, 1)->header;

    atomic_store_explicit(&header->place, XCCL_PLACE_ADDRESS | 8, memory_order_relaxed);
    XT_CHECK(!xccl_run_progress(&world->runs[1]));
    XT_CHECK_RC(world->runs[1].rc, xcclRemoteError);
    XT_CHECK_INT(world->runs[1].bad_peer, 0);
    XT_CHECK_HAS(xccl_error_text(), "cannot be read");
    XT_CHECK_HAS(xccl_error_text(), "XCCL_PEER_MEMORY=off");
    (void)xccl_run_progress(&world->runs[2]);
    end_chain(world);
}

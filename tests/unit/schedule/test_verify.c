/* SPDX-License-Identifier: BSD-3-Clause */
/* The verifier proves schedules that are right, and refuses those that are not, by the right name
 * and place: rings and one-shots that were damaged, races of two lanes over scratch, exchanges that
 * cannot be direct, and small schedules made by hand for the other collectives. */
#include "schedule/verify.h"

#include "base/alloc.h"
#include "schedule_ranks.h"
#include "xt.h"

__attribute__((constructor)) static void sources(void)
{
    xt_set_alloc_source(xccl_alloc_live);
}

static struct xccl_verdict verdict_for(const struct ranks *ranks, struct xccl_verify_for how)
{
    struct xccl_verdict verdict;

    XT_OK(xccl_verify(ranks->schedules, ranks->n, &how, &verdict));
    XT_CHECK((verdict.kind == XCCL_VERDICT_PROVEN) == (verdict.text[0] == '\0'));
    return verdict;
}

static struct xccl_verdict verdict_of(const struct ranks *ranks)
{
    return verdict_for(ranks, (struct xccl_verify_for){0});
}

static void expect_proven(const struct ranks *ranks, struct xccl_verify_for how)
{
    struct xccl_verdict verdict = verdict_for(ranks, how);

    XT_CHECK_TEXT(verdict.text, "");
}

/* ---- what is right ---- */

XT_TEST(ring_is_proven_with_two_slots_in_every_way)
{
    for (int n = 1; n <= RANKS_MAX; n++) {
        struct ranks ranks = ring_of(n);
        struct xccl_verdict verdict;

        for (int way = 0; way < 8; way++)
            expect_proven(&ranks, (struct xccl_verify_for){.in_place = way & 1,
                                                           .direct = way >> 1 & 1,
                                                           .nslots = way & 4 ? 8 : 0});
        XT_OK(xccl_prove(ranks.schedules, n, &verdict));
        XT_CHECK_TEXT(verdict.text, "");
        XT_CHECK_INT(verdict.minslots, n == 1 ? 1 : 2);
        XT_CHECK_INT(verdict.class, n <= 2 ? 3 : 2);
        XT_CHECK_INT(verdict.flags, 0);
        for (int r = 0; r < n; r++) {
            XT_CHECK_INT(ranks.schedules[r]->minslots, verdict.minslots);
            XT_CHECK_INT(ranks.schedules[r]->class, verdict.class);
        }
        if (n > 2) { /* the steps that receive, store and pass on are direct at both ends */
            XT_CHECK(ranks.schedules[0]->steps[3].flags & XCCL_FLAG_DIRECT_SEND);
            XT_CHECK(ranks.schedules[0]->steps[3].flags & XCCL_FLAG_DIRECT_RECV);
            XT_CHECK(!(ranks.schedules[0]->steps[1].flags &
                       (XCCL_FLAG_DIRECT_SEND | XCCL_FLAG_DIRECT_RECV)));
        }
        ranks_free(&ranks);
    }
}

XT_TEST(oneshot_is_proven_with_one_slot_and_one_order_for_all)
{
    for (int n = 1; n <= RANKS_MAX; n++) {
        for (int split = 0; split <= n; split += n < 3 ? 1 : n / 3) {
            struct ranks ranks = oneshot_of(n, split);
            struct xccl_verdict verdict;

            XT_OK(xccl_prove(ranks.schedules, n, &verdict));
            XT_CHECK_TEXT(verdict.text, "");
            XT_CHECK_INT(verdict.minslots, 1);
            XT_CHECK_INT(verdict.class, 3);
            ranks_free(&ranks);
        }
    }
}

XT_TEST(oneshot_that_is_not_in_rank_order_gives_ranks_different_bits)
{
    struct ranks ranks = oneshot_of(4, 0);

    for (int r = 0; r < 4; r++)
        ranks.schedules[r]->steps[1].flags &= (uint8_t)~XCCL_FLAG_ORDERED;
    XT_CHECK_INT(verdict_of(&ranks).class, 1);
    ranks_free(&ranks);
}

XT_TEST(hash_tells_results_not_slots_or_tiles)
{
    struct ranks ranks = ring_of(5), other = oneshot_of(5, 0);
    uint64_t hash = verdict_of(&ranks).hash;

    XT_CHECK(hash == verdict_for(&ranks, (struct xccl_verify_for){.nslots = 8, .tiles = 7}).hash);
    XT_CHECK(hash == verdict_for(&ranks, (struct xccl_verify_for){.in_place = 1}).hash);
    XT_CHECK(hash != verdict_of(&other).hash);
    ranks_free(&ranks);
    ranks_free(&other);
}

XT_TEST(tiles_that_chunks_do_not_have_are_skipped_at_both_ends)
{
    uint64_t random = xt_seed();

    for (int n = 2; n <= 12; n++) {
        struct ranks ranks = ring_of(n);

        for (int turn = 0; turn < 10; turn++) {
            uint8_t sizes[RANKS_MAX];

            for (int c = 0; c < n; c++)
                sizes[c] = (uint8_t)(xt_random(&random) % 4);
            expect_proven(&ranks, (struct xccl_verify_for){.sizes = sizes, .direct = turn & 1});
        }
        ranks_free(&ranks);
    }
}

XT_TEST(more_ranks_than_a_machine_word_are_proven)
{
    struct xccl_schedule *schedules[330];
    struct xccl_verdict verdict;

    for (int n = 65; n <= 330; n += 265) { /* the second uses the memo of unions */
        for (int r = 0; r < n; r++)
            schedules[r] = ring_at(n, r);
        XT_OK(xccl_verify(schedules, n, &(struct xccl_verify_for){.in_place = 1}, &verdict));
        XT_CHECK_TEXT(verdict.text, "");
        schedules[n - 1]->steps[2].flags &= (uint8_t)~XCCL_FLAG_POST;
        XT_OK(xccl_verify(schedules, n, &(struct xccl_verify_for){0}, &verdict));
        XT_CHECK_INT(verdict.kind, XCCL_VERDICT_PRE_POST);
        for (int r = 0; r < n; r++)
            xccl_schedule_destroy(schedules[r]);
    }
}

/* ---- what is wrong ---- */

static void expect(struct ranks *ranks, enum xccl_verdict_kind kind, const char *words)
{
    struct xccl_verdict verdict = verdict_of(ranks);

    XT_CHECK_HAS(verdict.text, words);
    XT_CHECK_INT(verdict.kind, kind);
    ranks_free(ranks);
}

XT_TEST(dropped_and_doubled_steps_are_refused)
{
    struct ranks ranks = ring_of(5);

    drop_step(ranks.schedules[2], 4);
    expect(&ranks, XCCL_VERDICT_LEFT_OVER,
           "rank 2 lane 0 ends without reading 1 messages from rank 1");
    ranks = ring_of(5);
    double_step(&ranks.schedules[2], 4);
    expect(&ranks, XCCL_VERDICT_DEADLOCK,
           "rank 2 lane 0 step 5 (recv) chunk 3 tile 0 waits for a message from rank 1 lane 0, "
           "which has ended");
    ranks = ring_of(5);
    drop_step(ranks.schedules[2], 0);
    expect(&ranks, XCCL_VERDICT_DEADLOCK, "waits for a message from rank");
    ranks = oneshot_of(4, 0);
    drop_step(ranks.schedules[1], 1);
    expect(&ranks, XCCL_VERDICT_LEFT_OVER,
           "rank 1 lane 0 ends without reading 1 messages from rank");
    ranks = oneshot_of(4, 4);
    double_step(&ranks.schedules[3], 0);
    expect(&ranks, XCCL_VERDICT_LEFT_OVER, "ends without reading 1 messages from rank 3 lane 0");
}

XT_TEST(wrong_chunks_are_refused_by_size_contribution_and_result)
{
    struct ranks ranks = ring_of(5);
    struct xccl_verdict verdict;

    ranks.schedules[2]->steps[1].src = 3;
    verdict = verdict_of(&ranks);
    XT_CHECK_INT(verdict.kind, XCCL_VERDICT_SIZE);
    XT_CHECK_INT(verdict.place.rank, 2);
    XT_CHECK_INT(verdict.place.step, 1);
    XT_CHECK_INT(verdict.other.rank, 1);
    expect(&ranks, XCCL_VERDICT_SIZE,
           "rank 2 lane 0 step 1 (recv+reduce+send) chunk 3 tile 0 gets chunk 0");
    ranks = ring_of(5);
    ranks.schedules[2]->steps[4].dst = 0;
    expect(&ranks, XCCL_VERDICT_SIZE, "rank 2 lane 0 step 4 (recv) chunk 0");
    ranks = make(&(struct by_hand){.coll = XCCL_COLL_BROADCAST, .n = 1, .nchunks = 2, .nsteps = 1});
    ranks.schedules[0]->steps[0] = step_of(SRC | DST, IN_OUT, 1, 1);
    expect(&ranks, XCCL_VERDICT_RESULT, "no step has written: chunk 0, tile 0");
    ranks = make(
        &(struct by_hand){.coll = XCCL_COLL_ALL_REDUCE, .n = 1, .nchunks = 1, .nsteps = 2});
    ranks.schedules[0]->steps[0] = step_of(SRC | DST, IN_OUT, 0, 0);
    ranks.schedules[0]->steps[0].flags = XCCL_FLAG_PRE;
    ranks.schedules[0]->steps[1] = step_of(SRC | DST | ACC, IN_OUT, 0, 0);
    ranks.schedules[0]->steps[1].flags = XCCL_FLAG_PRE;
    expect(&ranks, XCCL_VERDICT_TWICE, "adds the contribution of rank 0");
}

XT_TEST(reads_of_nothing_and_writes_to_the_input_are_refused)
{
    struct ranks ranks = ring_of(3);

    ranks.schedules[1]->steps[2].bufs = OUT_OUT;
    ranks.schedules[1]->steps[2].flags = XCCL_FLAG_POST;
    expect(&ranks, XCCL_VERDICT_UNWRITTEN,
           "reads chunk 1 of the output, which no step has written");
    ranks = ring_of(3);
    ranks.schedules[1]->steps[4].bufs = XCCL_STEP_BUFS(XCCL_BUFFER_IN, XCCL_BUFFER_IN);
    expect(&ranks, XCCL_VERDICT_RESULT, "writes to chunk 2 of the input");
}

XT_TEST(each_contribution_has_one_pre_and_each_output_one_post)
{
    struct ranks ranks = ring_of(4);

    ranks.schedules[1]->steps[2].flags = XCCL_FLAG_PRE;
    expect(&ranks, XCCL_VERDICT_PRE_POST, "had no POST");
    ranks = ring_of(4);
    ranks.schedules[1]->steps[1].flags |= XCCL_FLAG_POST;
    expect(&ranks, XCCL_VERDICT_PRE_POST, "applies POST to a sum of 2 of 4 contributions");
    ranks = ring_of(4);
    ranks.schedules[1]->steps[3].flags |= XCCL_FLAG_POST;
    expect(&ranks, XCCL_VERDICT_PRE_POST, "applies POST to a value a second time");
    ranks = ring_of(4);
    ranks.schedules[1]->steps[1].flags = 0;
    expect(&ranks, XCCL_VERDICT_PRE_POST, "uses the contribution of rank 1 without PRE");
    ranks = ring_of(4);
    ranks.schedules[1]->steps[3].flags |= XCCL_FLAG_PRE;
    expect(&ranks, XCCL_VERDICT_PRE_POST, "has PRE but no src");
    ranks = ring_of(1);
    double_step(&ranks.schedules[0], 0);
    ranks.schedules[0]->steps[0].flags = XCCL_FLAG_PRE;
    ranks.schedules[0]->steps[1].bufs = OUT_OUT;
    expect(&ranks, XCCL_VERDICT_PRE_POST,
           "has PRE, but chunk 0 of the output is not a contribution");
    ranks = swap_in_scratch(0);
    ranks.schedules[1]->steps[0].flags = XCCL_FLAG_PRE;
    expect(&ranks, XCCL_VERDICT_PRE_POST, "does not reduce");
}

XT_TEST(ends_of_connections_must_fit)
{
    struct ranks ranks = ring_of(4);

    ranks.schedules[1]->conns[0].peer = 3;
    expect(&ranks, XCCL_VERDICT_SHAPE, "has no sender on that rank");
    ranks = ring_of(4);
    ranks.schedules[1]->conns[1].id = 9;
    expect(&ranks, XCCL_VERDICT_SHAPE, "rank 1 lane 0: the connection from rank 0 with id 9");
    ranks = oneshot_of(4, 4);
    for (int r = 1; r < 4; r++) /* nobody reads the multicast of rank 0, each its FIFO */
        ranks.schedules[r]->conns[1].kind = XCCL_CONN_FIFO;
    expect(&ranks, XCCL_VERDICT_SHAPE, "has no sender on that rank");
    ranks = oneshot_of(3, 3);
    ranks.schedules[1]->conns[0].peer = 2;
    expect(&ranks, XCCL_VERDICT_SHAPE, "does not name its sender");
    ranks = ring_of(4);
    ranks.schedules[2]->steps[0].op = RECV;
    expect(&ranks, XCCL_VERDICT_SHAPE, "not well-formed");
    ranks = ring_of(4);
    ranks.schedules[2]->rank = 3;
    expect(&ranks, XCCL_VERDICT_SHAPE, "is for rank 3");
}

XT_TEST(too_few_slots_are_told_as_a_circle_of_ranks)
{
    struct ranks ranks = ring_of(4);
    struct xccl_verdict verdict = verdict_for(&ranks, (struct xccl_verify_for){.nslots = 1});

    XT_CHECK_INT(verdict.kind, XCCL_VERDICT_DEADLOCK);
    XT_CHECK_INT(verdict.minslots, 2);
    XT_CHECK_HAS(verdict.text, "waits for a free slot to rank");
    XT_CHECK_HAS(verdict.text, ", which at step 1 (recv+reduce+send)");
    XT_CHECK_HAS(verdict.text, "slots: 1");
    ranks_free(&ranks);
}

/* ---- lanes ---- */

XT_TEST(scratch_that_is_used_again_too_early_is_a_race_at_that_tile)
{
    for (int scrbufs = 1; scrbufs <= 3; scrbufs++) {
        struct ranks ranks = staged(scrbufs, 0);
        struct xccl_verdict verdict;

        expect_proven(&ranks, (struct xccl_verify_for){.tiles = scrbufs});
        verdict = verdict_of(&ranks);
        XT_CHECK_INT(verdict.kind, XCCL_VERDICT_RACE);
        XT_CHECK(verdict.place.tile == scrbufs || verdict.other.tile == scrbufs);
        XT_CHECK_INT(verdict.place.lane + verdict.other.lane, 1);
        ranks_free(&ranks);
        ranks = staged(scrbufs, scrbufs);
        XT_OK(xccl_prove(ranks.schedules, 2, &verdict));
        XT_CHECK_TEXT(verdict.text, "");
        XT_CHECK_INT(verdict.flags, XCCL_SCHEDULE_EQUAL);
        ranks_free(&ranks);
    }
}

XT_TEST(lanes_that_do_not_wait_at_all_are_refused)
{
    struct ranks ranks = staged(2, 2);
    struct xccl_verdict verdict;

    for (int r = 0; r < 2; r++)
        ranks.schedules[r]->steps[2].flags &= (uint8_t)~XCCL_FLAG_WAITS(3);
    verdict = verdict_of(&ranks);
    XT_CHECK(verdict.kind == XCCL_VERDICT_RACE || verdict.kind == XCCL_VERDICT_UNWRITTEN);
    ranks_free(&ranks);
    ranks = staged(2, 2);
    ranks.schedules[0]->waits[0].sig = 99;
    expect(&ranks, XCCL_VERDICT_SHAPE, "which no step of that lane sends");
    ranks = staged(1, 1);
    ranks.schedules[1]->waits[1].dist = 0;
    expect(&ranks, XCCL_VERDICT_DEADLOCK, "waits for a signal from rank 1 lane");
}

XT_TEST(parts_of_chunks_are_proven_one_by_one)
{
    struct ranks ranks = make(&(struct by_hand){
        .coll = XCCL_COLL_BROADCAST, .n = 1, .nchunks = 1, .nsteps = 2, .split = 1});
    struct xccl_schedule *s = ranks.schedules[0];

    s->steps[0] = s->steps[1] = step_of(SRC | DST, IN_OUT, 0, 0);
    XT_CHECK_INT(verdict_of(&ranks).kind, XCCL_VERDICT_RACE);
    s->lanes[0].nparts = s->lanes[1].nparts = 2;
    s->lanes[1].part = 1;
    expect_proven(&ranks, (struct xccl_verify_for){0});
    s->lanes[1].nparts = 3;
    expect(&ranks, XCCL_VERDICT_SHAPE, "divides chunks into 3 parts");
}

/* ---- exchanges and direct transfers ---- */

XT_TEST(swap_in_place_goes_through_slots_but_not_directly)
{
    uint8_t both = XCCL_FLAG_DIRECT_SEND | XCCL_FLAG_DIRECT_RECV;
    struct ranks ranks = swap_in_scratch(both);
    struct xccl_verdict verdict;

    expect_proven(&ranks, (struct xccl_verify_for){0});
    XT_CHECK_INT(verdict_of(&ranks).minslots, 1);
    verdict = verdict_for(&ranks, (struct xccl_verify_for){.direct = 1, .nslots = 8});
    XT_CHECK_INT(verdict.kind, XCCL_VERDICT_DEADLOCK);
    XT_CHECK_HAS(verdict.text, "its message directly");
    XT_OK(xccl_prove(ranks.schedules, 2, &verdict));
    XT_CHECK_TEXT(verdict.text, "");
    XT_CHECK((ranks.schedules[0]->steps[2].flags & both) != both);
    expect_proven(&ranks, (struct xccl_verify_for){.direct = 1});
    ranks_free(&ranks);
    ranks = swap_in_scratch(XCCL_FLAG_DIRECT_SEND);
    expect_proven(&ranks, (struct xccl_verify_for){.direct = 1});
    ranks_free(&ranks);
}

XT_TEST(direct_marks_stay_where_source_and_destination_differ)
{
    struct ranks ranks = make(&(struct by_hand){
        .coll = XCCL_COLL_ALL_GATHER, .n = 2, .nchunks = 2, .nsteps = 2, .nconns = 2});
    uint8_t both = XCCL_FLAG_DIRECT_SEND | XCCL_FLAG_DIRECT_RECV;
    struct xccl_verdict verdict;

    for (int r = 0; r < 2; r++) {
        struct xccl_schedule *s = ranks.schedules[r];

        s->steps[0] = step_of(SRC | DST, IN_OUT, 0, r);
        s->steps[1] = step_of(SRC | DST | RECV | SEND | XCHG, OUT_OUT, r, 1 - r);
        connect_pair(s, 1 - r, 1 - r, 0);
    }
    XT_OK(xccl_prove(ranks.schedules, 2, &verdict));
    XT_CHECK_TEXT(verdict.text, "");
    XT_CHECK_INT(verdict.class, 3);
    XT_CHECK_INT(verdict.flags, 0);
    XT_CHECK((ranks.schedules[1]->steps[1].flags & both) == both);
    ranks_free(&ranks);
}

/* All-reduce of two ranks: rank 1 sends its input on one lane and receives the result on another.
 */
static struct ranks up_and_down(void)
{
    struct ranks ranks = make(&(struct by_hand){
        .coll = XCCL_COLL_ALL_REDUCE, .n = 2, .nchunks = 1, .nsteps = 2, .nconns = 2, .split = 1});
    struct xccl_schedule *up = ranks.schedules[1], *root = ranks.schedules[0];

    root->steps[0] = step_of(SRC | DST | RECV | SEND, IN_OUT, 0, 0);
    root->steps[0].flags = XCCL_FLAG_PRE | XCCL_FLAG_POST;
    root->nsteps = 1;
    root->nlanes = 1;
    connect_pair(root, 1, 1, 0);
    up->steps[0] = step_of(SRC | SEND, IN_OUT, 0, 0);
    up->steps[0].flags = XCCL_FLAG_PRE;
    up->steps[1] = step_of(RECV | DST, IN_OUT, 0, 0);
    up->steps[1].rconn = 0;
    connect_pair(up, 0, 0, 0);
    up->lanes[0].nconn = up->lanes[1].nconn = 1;
    up->lanes[1].conn0 = 1;
    return ranks;
}

XT_TEST(direct_receive_is_ordered_by_what_the_sender_knows)
{
    struct ranks ranks = up_and_down();
    struct xccl_verdict verdict;

    XT_OK(xccl_prove(ranks.schedules, 2, &verdict));
    XT_CHECK_TEXT(verdict.text, "");
    XT_CHECK(ranks.schedules[1]->steps[1].flags & XCCL_FLAG_DIRECT_RECV);
    ranks_free(&ranks);
}

XT_TEST(exchange_that_receives_into_a_later_source_is_refused)
{
    struct ranks ranks = make(&(struct by_hand){
        .coll = XCCL_COLL_ALL_GATHER, .n = 2, .nchunks = 2, .nsteps = 2, .nconns = 2});

    for (int r = 0; r < 2; r++) {
        struct xccl_schedule *s = ranks.schedules[r];

        s->steps[0] = step_of(SRC | DST, IN_OUT, 0, r);
        s->steps[1] = step_of(SRC | DST | RECV | SEND | XCHG, OUT_OUT, r, 1 - r);
        s->steps[1].cnt = 2;
        s->steps[1].cstride = 1;
        connect_pair(s, 1 - r, 1 - r, 0);
    }
    expect(&ranks, XCCL_VERDICT_EXCHANGE,
           "which it also sends as number 1: that send may run before");
}

XT_TEST(lanes_that_run_each_step_through_all_tiles_need_steps_that_fit)
{
    struct ranks ranks = oneshot_of(3, 0); /* all sends of all tiles before the first receive */

    for (int r = 0; r < 3; r++)
        ranks.schedules[r]->lanes[0].order = XCCL_STEP_MAJOR;
    expect(&ranks, XCCL_VERDICT_DEADLOCK, "waits for a free slot to rank");
    ranks = swap_in_scratch(0); /* one buffer of scratch for all tiles */
    for (int r = 0; r < 2; r++)
        ranks.schedules[r]->lanes[0].order = XCCL_STEP_MAJOR;
    expect(&ranks, XCCL_VERDICT_RESULT, "contains the data of tile");
    for (int r = 0; r < 2; r++) {
        ranks = swap_in_scratch(0);
        ranks.schedules[r]->lanes[0].order = XCCL_STEP_MAJOR;
        XT_CHECK(verdict_of(&ranks).kind != XCCL_VERDICT_PROVEN);
        ranks_free(&ranks);
    }
}

/* ---- other collectives ---- */

/* Dissemination: in round k rank r tells r + 2^k. */
static struct ranks barrier_of(int n, int rounds)
{
    struct ranks ranks = make(&(struct by_hand){
        .coll = XCCL_COLL_BARRIER, .n = n, .nchunks = 1, .nsteps = rounds, .nconns = 2 * rounds});

    for (int r = 0; r < n; r++) {
        struct xccl_schedule *s = ranks.schedules[r];

        for (int k = 0; k < rounds; k++) {
            s->steps[k] = step_of(SRC | DST | RECV | SEND | XCHG, ZERO_ZERO, 0, 0);
            s->steps[k].sconn = (uint16_t)(2 * k);
            s->steps[k].rconn = (uint16_t)(2 * k + 1);
            s->conns[2 * k] = (struct xccl_schedule_conn){
                .peer = (uint16_t)((r + (1 << k)) % n), .dir = XCCL_CONN_SEND, .id = (uint16_t)k};
            s->conns[2 * k + 1] = (struct xccl_schedule_conn){
                .peer = (uint16_t)((r + n - (1 << k)) % n),
                .dir = XCCL_CONN_RECV,
                .id = (uint16_t)k};
        }
    }
    return ranks;
}

XT_TEST(barrier_is_proven_when_all_know_of_all)
{
    for (int n = 2; n <= RANKS_MAX; n++) {
        int rounds = 1;
        struct ranks ranks;

        while (1 << rounds < n)
            rounds++;
        ranks = barrier_of(n, rounds);
        expect_proven(&ranks, (struct xccl_verify_for){0});
        ranks_free(&ranks);
        if (rounds == 1)
            continue;
        ranks = barrier_of(n, rounds - 1);
        expect(&ranks, XCCL_VERDICT_RESULT, "can leave the barrier before rank");
    }
}

/* Root 0 of three ranks: scatter and gather, straight. */
static struct ranks rooted(enum xccl_coll coll)
{
    int out = coll == XCCL_COLL_SCATTER;
    struct ranks ranks = make(
        &(struct by_hand){.coll = coll, .n = 3, .nchunks = 3, .nsteps = 3, .nconns = 2});

    for (int r = 0; r < 3; r++) {
        struct xccl_schedule *s = ranks.schedules[r];

        s->nsteps = s->lanes[0].nstep = r ? 1 : 3;
        s->nconns = s->lanes[0].nconn = r ? 1 : 2;
        s->steps[0] = r == 0 ? step_of(SRC | DST, IN_OUT, 0, 0)
                             : step_of(out ? RECV | DST : SRC | SEND, IN_OUT, 0, 0);
        s->steps[0].rconn = 0;
        for (int i = 1; i < 3 && !r; i++) {
            s->steps[i] = step_of(out ? SRC | SEND : RECV | DST, IN_OUT, out ? i : 0, out ? 0 : i);
            s->steps[i].rconn = s->steps[i].sconn = (uint16_t)(i - 1);
            if (out)
                s->steps[i].rconn = 0;
            else
                s->steps[i].sconn = 0;
        }
        for (int i = 0; i < s->nconns; i++)
            s->conns[i] = (struct xccl_schedule_conn){
                .peer = (uint16_t)(r ? 0 : i + 1),
                .dir = (out != 0) == (r == 0) ? XCCL_CONN_SEND : XCCL_CONN_RECV};
    }
    return ranks;
}

XT_TEST(rooted_collectives_are_proven_in_both_forms)
{
    enum xccl_coll colls[] = {XCCL_COLL_SCATTER, XCCL_COLL_GATHER};

    for (int i = 0; i < 2; i++) {
        struct ranks ranks = rooted(colls[i]);
        struct xccl_verdict verdict;

        XT_OK(xccl_prove(ranks.schedules, 3, &verdict));
        XT_CHECK_TEXT(verdict.text, "");
        XT_CHECK_INT(verdict.class, 3);
        ranks_free(&ranks);
    }
}

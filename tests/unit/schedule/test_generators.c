/* SPDX-License-Identifier: BSD-3-Clause */
/* Every generator of the table, for many numbers of ranks and roots: what it makes is well-formed,
 * both ends of each connection count the same messages, it is proven, and it takes no more records
 * and slots than it should. */
#include "schedule/generators.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/inject.h"
#include "schedule/decode.h"
#include "schedule/verify.h"
#include "xt.h"

#define RANKS_MAX 1024

__attribute__((constructor)) static void sources(void)
{
    xt_set_error_source(xccl_error_text);
    xt_set_alloc_source(xccl_alloc_live);
}

/* All ranks of a call. */
struct crowd {
    const struct xccl_generator *generator;
    struct xccl_generator_for what;
    struct xccl_schedule *schedules[RANKS_MAX];
};

/* Who is reached by multicast: nobody, all, the upper half, two of three. */
#define NMARKS 4

static const uint8_t *marks_of(int nranks, int form)
{
    static uint8_t marks[RANKS_MAX];

    for (int r = 0; r < nranks; r++)
        marks[r] = (uint8_t)(form == 1 ? 1 : form == 2 ? r >= nranks / 2 : r % 3 != 1);
    return form == 0 ? NULL : marks;
}

static int knows_multicast(const struct xccl_generator *generator)
{
    return strcmp(generator->name, "oneshot") == 0 || strcmp(generator->name, "twoshot") == 0 ||
           (strcmp(generator->name, "mesh") == 0 && generator->coll == XCCL_COLL_ALL_GATHER);
}

static struct crowd crowd_make(const struct xccl_generator *generator, int nranks, int root,
                               int param, int marks)
{
    struct crowd crowd = {
        .generator = generator,
        .what = {
            .nranks = nranks, .root = root, .param = param, .multicast = marks_of(nranks, marks)}};

    XT_OK(xccl_generator_make_all(generator, &crowd.what, crowd.schedules));
    return crowd;
}

static void crowd_free(struct crowd *crowd)
{
    for (int r = 0; r < crowd->what.nranks; r++)
        xccl_schedule_destroy(crowd->schedules[r]);
}

/* The roots that are tried: all of few ranks, some of many. The next one, or -1. */
static int next_root(const struct xccl_generator *generator, int nranks, int root)
{
    if (!xccl_coll_rooted(generator->coll) || root == nranks - 1)
        return -1;
    if (nranks <= 8 || root == 0)
        return root + 1;
    return root < nranks / 2 ? nranks / 2 : nranks - 1;
}

/* For every root and form of multicast. */
static void for_roots(const struct xccl_generator *generator, int nranks, int param,
                      void (*fn)(struct crowd *crowd))
{
    int forms = knows_multicast(generator) ? NMARKS : 1;

    for (int root = 0; root >= 0; root = next_root(generator, nranks, root))
        for (int marks = 0; marks < forms; marks++) {
            struct crowd crowd = crowd_make(generator, nranks, root, param, marks);

            fn(&crowd);
            crowd_free(&crowd);
        }
}

/* Calls fn for every generator, parameter, number of ranks, root and form of multicast. */
static void for_all(int nranks_max, void (*fn)(struct crowd *crowd))
{
    for (const struct xccl_generator *const *at = xccl_generators; *at; at++)
        for (int n = 1; n <= nranks_max; n++)
            for (int param = 0; param <= (*at)->param_max && param <= 2 * n;
                 param += param ? param : 1)
                for_roots(*at, n, param, fn);
}

/* ---- form ---- */

/* Messages of a connection of a rank in one tile. */
static long messages(const struct xccl_schedule *s, uint32_t conn)
{
    long count = 0;

    for (uint32_t lane = 0; lane < s->nlanes; lane++)
        for (uint32_t i = 0; i < s->lanes[lane].nstep; i++) {
            const struct xccl_step *step = &s->steps[s->lanes[lane].step0 + i];

            for (uint32_t occ = 0; occ < step->rep; occ++) {
                struct xccl_event event;

                xccl_event_decode(s, lane, step, occ, 0, &event);
                if (conn - event.rconn < event.nrecv || conn - event.sconn < event.nsend)
                    count += step->cnt;
            }
        }
    return count;
}

/* The other end of a connection, which is there once: the sender's, for multicasts. */
static uint32_t other_end(const struct crowd *crowd, int rank,
                          const struct xccl_schedule_conn *conn)
{
    const struct xccl_schedule *peer = crowd->schedules[conn->peer];
    uint32_t found = 0, count = 0;

    for (uint32_t i = 0; i < peer->nconns; i++)
        if (peer->conns[i].peer == (conn->kind == XCCL_CONN_FIFO ? rank : conn->peer) &&
            peer->conns[i].id == conn->id && peer->conns[i].kind == conn->kind &&
            peer->conns[i].dir != conn->dir) {
            found = i;
            count++;
        }
    XT_CHECK_INT(count, 1);
    return found;
}

static void ends_fit(struct crowd *crowd)
{
    for (int r = 0; r < crowd->what.nranks; r++) {
        const struct xccl_schedule *s = crowd->schedules[r];

        XT_OK(xccl_schedule_check(s));
        for (uint32_t i = 0; i < s->nconns; i++) {
            const struct xccl_schedule_conn *conn = &s->conns[i];
            long mine = messages(s, i);

            XT_CHECK(mine > 0);
            if (conn->kind == XCCL_CONN_MULTICAST && conn->dir == XCCL_CONN_SEND) {
                XT_CHECK_INT(conn->peer, r);
                continue; /* its readers look at it */
            }
            XT_CHECK(conn->peer != r);
            XT_CHECK_INT(messages(crowd->schedules[conn->peer], other_end(crowd, r, conn)), mine);
        }
    }
}

XT_TEST_DEADLINE(both_ends_of_each_connection_count_the_same_messages, 120)
{
    for_all(24, ends_fit);
}

/* ---- proof ---- */

static void proven(struct crowd *crowd)
{
    struct xccl_verdict verdict;
    const struct xccl_generator *of = crowd->generator;

    XT_OK(xccl_prove(crowd->schedules, crowd->what.nranks, &verdict));
    if (verdict.kind != XCCL_VERDICT_PROVEN)
        XT_FAIL("%s %s, %d ranks, root %d, param %d: %d %s", xccl_coll_name(of->coll), of->name,
                crowd->what.nranks, crowd->what.root, crowd->what.param, verdict.kind,
                verdict.text);
}

XT_TEST_DEADLINE(every_algorithm_is_proven_for_1_to_16_ranks, 120)
{
    for_all(16, proven);
}

/* With the least slots, in one form: minslots do not depend on the others. */
static void slots_suffice(struct crowd *crowd)
{
    const struct xccl_generator *of = crowd->generator;
    struct xccl_verdict verdict;

    for (int r = 0; r < crowd->what.nranks; r++)
        XT_CHECK_INT(crowd->schedules[r]->minslots, of->slots);
    XT_OK(xccl_verify(crowd->schedules, crowd->what.nranks, &(struct xccl_verify_for){.tiles = 1},
                      &verdict));
    if (verdict.kind != XCCL_VERDICT_PROVEN || verdict.minslots > of->slots)
        XT_FAIL("%s %s, %d ranks, root %d, param %d: %d slots, not %d; %s",
                xccl_coll_name(of->coll), of->name, crowd->what.nranks, crowd->what.root,
                crowd->what.param, verdict.minslots, of->slots, verdict.text);
}

#ifdef XCCL_SANITIZED /* one thread at work on small integers */
#define SLOTS_RANKS 24
#else
#define SLOTS_RANKS 64
#endif
XT_TEST_DEADLINE(declared_slots_suffice_for_1_to_64_ranks, 120)
{
    for_all(SLOTS_RANKS, slots_suffice);
}

/* What goes to all is sent once to those who are marked, and to each of the others. */
static void multicast_is_used(struct crowd *crowd)
{
    const uint8_t *marks = crowd->what.multicast;
    int n = crowd->what.nranks, marked = 0;

    for (int r = 0; marks && r < n; r++)
        marked += marks[r];
    for (int r = 0; r < n; r++) {
        const struct xccl_schedule *s = crowd->schedules[r];
        int peers = marked > 1 && marks[r] ? marked - 1 : 0, found[2] = {0}, spread = 0;

        for (int i = 0; i < s->nconns; i++)
            found[s->conns[i].dir] += s->conns[i].kind == XCCL_CONN_MULTICAST;
        XT_CHECK_INT(found[XCCL_CONN_RECV], peers);
        XT_CHECK_INT(found[XCCL_CONN_SEND], peers > 0);
        for (int i = 0; i < s->nsteps; i++)
            if (s->steps[i].fan >> 4 == XCCL_FAN_ALL)
                spread += (int)xccl_schedule_group(s, 0, s->steps[i].sconn);
        XT_CHECK_INT(spread, n == 1 ? 0 : n - 1 - peers + (peers > 0));
    }
}

XT_TEST(one_message_goes_to_all_that_a_multicast_reaches)
{
    for (const struct xccl_generator *const *at = xccl_generators; *at; at++)
        for (int n = 1; n <= 24 && knows_multicast(*at); n++)
            for_roots(*at, n, 0, multicast_is_used);
}

/* As one host of several has it. */
XT_TEST(multicast_takes_few_records)
{
    for (const struct xccl_generator *const *at = xccl_generators; *at; at++) {
        struct crowd crowd;

        if (!knows_multicast(*at))
            continue;
        crowd = crowd_make(*at, 64, 0, 0, 2);
        for (int r = 0; r < 64; r++)
            XT_CHECK(crowd.schedules[r]->nsteps <= 7);
        crowd_free(&crowd);
    }
}

static const struct promise {
    enum xccl_coll coll;
    const char *name;
    int class, minslots;
    int records; /* of a rank among 512, at most */
    int equal; /* chunks of one size only: serves no v-collective */
} promises[] = {
    {XCCL_COLL_ALL_REDUCE, "ring", 2, 2, 5, 0},
    {XCCL_COLL_ALL_REDUCE, "dtree", 2, 1, 4, 0},
    {XCCL_COLL_ALL_REDUCE, "oneshot", 3, 1, 2, 0},
    {XCCL_COLL_ALL_REDUCE, "twoshot", 3, 2, 4, 0},
    {XCCL_COLL_ALL_REDUCE, "rd", 3, 1, 10, 0},
    {XCCL_COLL_ALL_REDUCE, "rhd", 3, 1, 19, 0},
    {XCCL_COLL_ALL_REDUCE, "nhr", 2, 1, 19, 0},
    {XCCL_COLL_ALL_REDUCE, "nb", 2, 1, 19, 0},
    {XCCL_COLL_ALL_REDUCE, "pat", 2, 1, 195, 0},
    {XCCL_COLL_REDUCE_SCATTER, "ring", 2, 2, 3, 0},
    {XCCL_COLL_REDUCE_SCATTER, "mesh", 3, 1, 2, 0},
    {XCCL_COLL_REDUCE_SCATTER, "rhd", 3, 1, 11, 1},
    {XCCL_COLL_REDUCE_SCATTER, "nhr", 2, 1, 11, 1},
    {XCCL_COLL_REDUCE_SCATTER, "nb", 2, 1, 11, 1},
    {XCCL_COLL_REDUCE_SCATTER, "pat", 2, 1, 194, 1},
    {XCCL_COLL_ALL_GATHER, "ring", 3, 2, 3, 0},
    {XCCL_COLL_ALL_GATHER, "mesh", 3, 1, 3, 0},
    {XCCL_COLL_ALL_GATHER, "rhd", 3, 1, 10, 0},
    {XCCL_COLL_ALL_GATHER, "nhr", 3, 1, 10, 0},
    {XCCL_COLL_ALL_GATHER, "nb", 3, 1, 10, 0},
    {XCCL_COLL_ALL_GATHER, "pat", 3, 1, 98, 0},
    {XCCL_COLL_BROADCAST, "chain", 3, 1, 1, 0},
    {XCCL_COLL_BROADCAST, "binomial", 3, 1, 1, 0},
    {XCCL_COLL_BROADCAST, "sag", 3, 1, 12, 0},
    {XCCL_COLL_REDUCE, "chain", 3, 1, 1, 0},
    {XCCL_COLL_REDUCE, "binomial", 3, 1, 1, 0},
    {XCCL_COLL_SCATTER, "direct", 3, 1, 2, 0},
    {XCCL_COLL_SCATTER, "binomial", 3, 1, 10, 1},
    {XCCL_COLL_GATHER, "direct", 3, 1, 2, 0},
    {XCCL_COLL_GATHER, "binomial", 3, 1, 10, 1},
    {XCCL_COLL_ALL_TO_ALL, "pairwise", 3, 1, 2, 0},
    {XCCL_COLL_ALL_TO_ALL, "bruck", 3, 1, 33, 1},
    {XCCL_COLL_BARRIER, "dissemination", 3, 1, 9, 0},
    {XCCL_COLL_ALL_REDUCE, "hier", 2, 2, 6, 0},
    {XCCL_COLL_REDUCE_SCATTER, "hier", 2, 2, 3, 0},
    {XCCL_COLL_ALL_GATHER, "hier", 3, 2, 3, 0},
    {XCCL_COLL_BROADCAST, "hier", 3, 1, 1, 0},
    {XCCL_COLL_REDUCE, "hier", 3, 1, 1, 0},
    {XCCL_COLL_BARRIER, "hier", 3, 1, 9, 0},
    {XCCL_COLL_ALL_TO_ALL, "hier", 3, 1, 2, 0},
    {XCCL_COLL_GATHER, "hier", 3, 1, 10, 1},
    {XCCL_COLL_SCATTER, "hier", 3, 1, 10, 1},
    {XCCL_COLL_BROADCAST, "rails", 3, 2, 9, 0},
    {XCCL_COLL_REDUCE, "rails", 2, 2, 9, 1},
};

static const struct xccl_generator *find(const struct promise *promise)
{
    int param;
    const struct xccl_generator *generator = xccl_generator_find(promise->coll, promise->name,
                                                                 &param);

    XT_CHECK(generator);
    XT_CHECK_INT(param, 0);
    return generator;
}

static const struct promise *promise_of(const struct xccl_generator *generator)
{
    const struct promise *promise = promises;

    while (promise->coll != generator->coll || strcmp(promise->name, generator->name) != 0)
        promise++;
    return promise;
}

/* Sizes of all chunks by chance: none at all, or one to three tiles. Both ends skip what is not
 * there, and what is left is as right as before. Not for schedules that need chunks of one size. */
static void sizes_are_proven(struct crowd *crowd)
{
    static uint8_t sizes[RANKS_MAX];
    static uint64_t random;
    const struct xccl_generator *of = crowd->generator;
    int n = crowd->what.nranks, chunks = crowd->schedules[0]->nchunks;
    uint32_t classes = (uint32_t)(of->coll == XCCL_COLL_ALL_TO_ALL ? n * n : chunks);
    struct xccl_verify_for how = {.sizes = sizes, .tiles = 3};
    struct xccl_verdict verdict;

    if (random == 0)
        random = xt_seed();
    XT_OK(xccl_prove(crowd->schedules, n, &verdict));
    XT_CHECK(classes <= RANKS_MAX);
    if (!promise_of(of)->equal)
        XT_CHECK_INT(verdict.flags & XCCL_SCHEDULE_EQUAL, 0);
    for (int i = 0; i < 8 && !(verdict.flags & XCCL_SCHEDULE_EQUAL); i++) {
        uint64_t empty = xt_random(&random) % 5;

        for (uint32_t k = 0; k < classes; k++)
            sizes[k] = xt_random(&random) % 4 < empty ? 0 : (uint8_t)(1 + xt_random(&random) % 3);
        how.direct = i & 1;
        how.in_place = i >> 1 & 1;
        how.nslots = i & 4 ? 8 : 0;
        XT_OK(xccl_verify(crowd->schedules, n, &how, &verdict));
        if (verdict.kind != XCCL_VERDICT_PROVEN)
            XT_FAIL("%s of %s, %d ranks, root %d: %s", of->name, xccl_coll_name(of->coll), n,
                    crowd->what.root, verdict.text);
    }
}

XT_TEST_DEADLINE(chunks_of_any_sizes_are_proven_for_what_serves_v_collectives, 60)
{
    for_all(12, sizes_are_proven);
}

XT_TEST(classes_slots_and_equal_sizes_are_those_expected)
{
    for (size_t i = 0; i < sizeof(promises) / sizeof(promises[0]); i++) {
        const struct promise *promise = &promises[i];
        struct crowd crowd = crowd_make(find(promise), 13, 0, 0, 0);
        struct xccl_verdict verdict;

        XT_OK(xccl_prove(crowd.schedules, 13, &verdict));
        if (verdict.class != promise->class || verdict.minslots != promise->minslots ||
            (verdict.flags & XCCL_SCHEDULE_EQUAL) != promise->equal)
            XT_FAIL("%s %s: class %d, slots %d, flags %d", xccl_coll_name(promise->coll),
                    promise->name, verdict.class, verdict.minslots, verdict.flags);
        crowd_free(&crowd);
    }
}

/* ---- size ---- */

XT_TEST(records_at_512_ranks_are_few)
{
    XT_CHECK(xccl_generators[sizeof(promises) / sizeof(promises[0])] == NULL);
    for (size_t i = 0; i < sizeof(promises) / sizeof(promises[0]); i++) {
        struct crowd crowd = crowd_make(find(&promises[i]), 512, 0, 0, 0);
        int most = 0;

        for (int r = 0; r < 512; r++)
            if (crowd.schedules[r]->nsteps > most)
                most = crowd.schedules[r]->nsteps;
        if (most > promises[i].records)
            XT_FAIL("%s %s: %d records", xccl_coll_name(promises[i].coll), promises[i].name, most);
        crowd_free(&crowd);
    }
}

/* What links every two ranks of a host takes memory by the square of the ranks, and says so, for
 * then its slots are small. Rank 1 is neither root nor leader. */
static void check_links(struct crowd *crowd)
{
    const struct xccl_schedule *s = crowd->schedules[1];
    int links = 0;

    for (uint32_t i = 0; i < s->nconns; i++)
        links += s->conns[i].kind == XCCL_CONN_FIFO && s->conns[i].dir == XCCL_CONN_SEND;
    if (links > 16 && !crowd->generator->links_all)
        XT_FAIL("%s of %s: %d links of one rank", crowd->generator->name,
                xccl_coll_name(crowd->generator->coll), links);
}

XT_TEST(what_links_all_ranks_of_a_host_says_so)
{
    for (const struct xccl_generator *const *at = xccl_generators; *at; at++) {
        struct xccl_generator_for what = {.nranks = 64};
        struct crowd crowd;

        if ((*at)->serves && !(*at)->serves(&what))
            continue;
        crowd = crowd_make(*at, 64, 0, 0, 1); /* all share memory */
        check_links(&crowd);
        crowd_free(&crowd);
    }
}

XT_TEST(ring_of_4096_ranks_has_no_more_records)
{
    struct xccl_generator_for what = {.nranks = 4096, .rank = 4095};
    struct xccl_schedule *schedule;

    XT_OK(xccl_generator_make(find(&promises[0]), &what, &schedule));
    XT_CHECK_INT(schedule->nsteps, 5);
    xccl_schedule_destroy(schedule);
}

/* Scratch memory of pat grows with the aggregation and the logarithm of n, not with n. */
XT_TEST(pat_needs_scratch_for_its_aggregation_at_each_level)
{
    static const struct {
        int param, nscratch;
    } sizes[] = {{1, 10}, {2, 18}, {4, 32}, {0, 32}, {16, 96}, {1024, 512}};
    int param;
    const struct xccl_generator *pat = xccl_generator_find(XCCL_COLL_REDUCE_SCATTER, "pat", &param);

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct xccl_generator_for what = {.nranks = 1024, .rank = 5, .param = sizes[i].param};
        struct xccl_schedule *schedule;

        XT_OK(xccl_generator_make(pat, &what, &schedule));
        XT_CHECK_INT(schedule->nscratch, sizes[i].nscratch);
        xccl_schedule_destroy(schedule);
    }
}

/* Sends of an exchange may run ahead of its receives, so that as one exchange of several distances
 * a rank would pass without having heard of anybody. */
XT_TEST(a_barrier_goes_to_the_next_distance_only_after_the_message_of_the_one_before)
{
    int param;
    const struct xccl_generator *barrier = xccl_generator_find(XCCL_COLL_BARRIER, "dissemination",
                                                               &param);

    for (int n = 2; n <= 64; n++) {
        struct crowd crowd = crowd_make(barrier, n, 0, 0, 0);

        for (int i = 0; i < crowd.schedules[0]->nsteps; i++)
            XT_CHECK_INT(crowd.schedules[0]->steps[i].rep * crowd.schedules[0]->steps[i].cnt, 1);
        crowd_free(&crowd);
    }
}

XT_TEST(names_are_unique_and_parameters_are_checked)
{
    struct xccl_schedule *schedule;
    const struct xccl_generator *pat;
    struct xccl_generator_for what = {.nranks = 8, .param = 3};
    int param;

    for (const struct xccl_generator *const *at = xccl_generators; *at; at++) {
        XT_CHECK(xccl_generator_find((*at)->coll, (*at)->name, &param) == *at);
        XT_CHECK(strlen((*at)->help) > 0 && strlen((*at)->help) < 100);
    }
    pat = xccl_generator_find(XCCL_COLL_ALL_GATHER, "pat:16", &param);
    XT_CHECK(pat);
    XT_CHECK_INT(param, 16);
    XT_CHECK_RC(xccl_generator_make(pat, &what, &schedule), xcclInvalidArgument);
    what.param = INT32_MIN;
    XT_CHECK_RC(xccl_generator_make(pat, &what, &schedule), xcclInvalidArgument);
    XT_CHECK(!xccl_generator_find(XCCL_COLL_ALL_GATHER, "ring:2", &param));
    XT_CHECK(!xccl_generator_find(XCCL_COLL_BARRIER, "ring", &param));
}

XT_TEST(a_failed_allocation_leaves_nothing_behind)
{
    for (const struct xccl_generator *const *at = xccl_generators; *at; at++) {
        struct xccl_generator_for what = {.nranks = 9};
        struct xccl_schedule *schedules[9];
        uint64_t live = xccl_alloc_live();
        xcclResult_t rc = xcclSystemError;

        for (uint64_t k = 1; rc; k++) {
            xccl_inject_arm(k);
            rc = xccl_generator_make_all(*at, &what, schedules);
            if (rc)
                XT_CHECK_RC(rc, xcclSystemError);
            else
                for (int r = 0; r < 9; r++)
                    xccl_schedule_destroy(schedules[r]);
            XT_CHECK_INT(xccl_alloc_live(), live);
        }
        xccl_inject_arm(0);
    }
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Hierarchies of all collectives that have one: proven for nodes of equal and of different sizes,
 * all roots and many pairs of algorithms; how many records and slots they take; what cannot be is
 * refused in words; nothing leaks. */
#include "schedule/generators.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/inject.h"
#include "schedule/decode.h"
#include "schedule/text.h"
#include "schedule/verify.h"
#include "xt.h"

#define RANKS_MAX 512
#define IDS_MAX   15 /* links of a pair of ranks, one way: XCCL_P2P_ID of connect/comm_links.h */

__attribute__((constructor)) static void sources(void)
{
    xt_set_error_source(xccl_error_text);
    xt_set_alloc_source(xccl_alloc_live);
}

static const enum xccl_coll colls[] = {
    XCCL_COLL_ALL_REDUCE, XCCL_COLL_REDUCE_SCATTER, XCCL_COLL_ALL_GATHER,
    XCCL_COLL_BROADCAST,  XCCL_COLL_REDUCE,         XCCL_COLL_BARRIER,
    XCCL_COLL_ALL_TO_ALL, XCCL_COLL_GATHER,         XCCL_COLL_SCATTER};
#define NCOLLS (int)(sizeof(colls) / sizeof(colls[0]))

/* Sizes of nodes, up to the first 0. */
struct shape {
    int sizes[12];
};

/* Of g nodes and l ranks each, and some of different sizes. */
static const int even_shapes[][2] = {{1, 4}, {2, 2}, {2, 4}, {3, 4},
                                     {4, 3}, {5, 2}, {4, 1}, {8, 8}};
static const struct shape shapes[] = {{{3, 1, 4}}, {{1, 2, 3, 4}}, {{5, 3}},         {{1, 1, 7}},
                                      {{4, 4, 2}}, {{2, 1}},       {{1, 3, 1, 3, 2}}};

/* All ranks of a call. */
struct crowd {
    struct xccl_generator_for what;
    const struct xccl_generator *generator;
    int nodes[RANKS_MAX];
    struct xccl_schedule *schedules[RANKS_MAX];
};

static struct crowd crowd_of(enum xccl_coll coll, const char *name)
{
    struct crowd crowd = {0};
    int param;

    crowd.generator = xccl_generator_find(coll, name, &param);
    XT_CHECK(crowd.generator);
    return crowd;
}

static struct crowd crowd_begin(enum xccl_coll coll)
{
    return crowd_of(coll, "hier");
}

static void crowd_even(struct crowd *crowd, int nnodes, int size)
{
    crowd->what.nranks = nnodes * size;
    for (int r = 0; r < crowd->what.nranks; r++)
        crowd->nodes[r] = r / size;
}

static void crowd_uneven(struct crowd *crowd, const struct shape *shape)
{
    crowd->what.nranks = 0;
    for (int node = 0; shape->sizes[node]; node++)
        for (int i = 0; i < shape->sizes[node]; i++)
            crowd->nodes[crowd->what.nranks++] = node;
}

static void crowd_make(struct crowd *crowd)
{
    crowd->what.nodes = crowd->nodes;
    XT_OK(xccl_generator_make_all(crowd->generator, &crowd->what, crowd->schedules));
}

static void crowd_free(struct crowd *crowd)
{
    for (int r = 0; r < crowd->what.nranks; r++)
        xccl_schedule_destroy(crowd->schedules[r]);
}

static int crowd_records(const struct crowd *crowd)
{
    int most = 0;

    for (int r = 0; r < crowd->what.nranks; r++)
        if (crowd->schedules[r]->nsteps > most)
            most = crowd->schedules[r]->nsteps;
    return most;
}

static void connections_have_messages(const struct xccl_schedule *s)
{
    uint8_t used[RANKS_MAX * 4] = {0};

    XT_CHECK(s->nlanes == 1 && s->nconns <= sizeof(used));
    for (uint32_t i = 0; i < s->nsteps; i++)
        for (uint32_t occ = 0; occ < s->steps[i].rep; occ++) {
            struct xccl_event event;

            xccl_event_decode(s, 0, &s->steps[i], occ, 0, &event);
            memset(used + event.rconn, 1, event.nrecv);
            memset(used + event.sconn, 1, event.nsend);
        }
    for (uint32_t i = 0; i < s->nconns; i++)
        XT_CHECK(used[i] && s->conns[i].id < IDS_MAX);
}

/* No two ranks of different nodes meet more often than the generator says. */
static void meetings_are_bounded(const struct crowd *crowd)
{
    int most = crowd->generator->meetings(crowd->generator->coll, &crowd->what);

    for (int r = 0; r < crowd->what.nranks; r++) {
        const struct xccl_schedule *s = crowd->schedules[r];

        for (uint32_t i = 0; i < s->nconns; i++)
            if (crowd->nodes[s->conns[i].peer] != crowd->nodes[r] && s->conns[i].id >= most)
                XT_FAIL("%s of %s, %d ranks: connection %d of ranks %d and %d, %d are foretold",
                        crowd->generator->name, xccl_coll_name(crowd->generator->coll),
                        crowd->what.nranks, s->conns[i].id, r, s->conns[i].peer, most);
    }
}

static struct xccl_verdict crowd_prove(struct crowd *crowd)
{
    const struct xccl_generator_for *what = &crowd->what;
    struct xccl_verdict verdict;

    crowd_make(crowd);
    XT_OK(xccl_prove(crowd->schedules, what->nranks, &verdict));
    if (verdict.kind != XCCL_VERDICT_PROVEN)
        XT_FAIL("%s, %d ranks, last in node %d, root %d, %s in %s: %s",
                xccl_coll_name(crowd->generator->coll), what->nranks,
                crowd->nodes[what->nranks - 1], what->root, what->inner ? what->inner : "-",
                what->outer ? what->outer : "-", verdict.text);
    XT_CHECK(verdict.minslots <= crowd->generator->slots);
    for (int r = 0; r < what->nranks; r++)
        connections_have_messages(crowd->schedules[r]);
    meetings_are_bounded(crowd);
    crowd_free(crowd);
    return verdict;
}

/* All roots, or the only one. */
static void prove_roots(struct crowd *crowd)
{
    int roots = xccl_coll_rooted(crowd->generator->coll) ? crowd->what.nranks : 1;

    for (crowd->what.root = 0; crowd->what.root < roots; crowd->what.root++)
        (void)crowd_prove(crowd);
    crowd->what.root = 0;
}

/* ---- proofs ---- */

XT_TEST_DEADLINE(nodes_of_one_size_are_proven_for_all_roots, 120)
{
    for (int c = 0; c < NCOLLS; c++)
        for (size_t i = 0; i < sizeof(even_shapes) / sizeof(even_shapes[0]); i++) {
            struct crowd crowd = crowd_begin(colls[c]);

            crowd_even(&crowd, even_shapes[i][0], even_shapes[i][1]);
            prove_roots(&crowd);
        }
}

XT_TEST_DEADLINE(nodes_of_different_sizes_are_proven_for_all_roots, 120)
{
    for (int c = 0; c < NCOLLS; c++)
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
            struct crowd crowd = crowd_begin(colls[c]);

            crowd_uneven(&crowd, &shapes[i]);
            prove_roots(&crowd);
        }
}

XT_TEST_DEADLINE(roots_whose_nodes_carry_shares_are_proven, 120)
{
    static const int anywhere[] = {7, 0, 7, 3, 3, 0, 7, 2, 0, 3};
    static const enum xccl_coll rooted[] = {XCCL_COLL_BROADCAST, XCCL_COLL_REDUCE};

    for (int c = 0; c < 2; c++) {
        struct crowd crowd = crowd_of(rooted[c], "rails");

        for (size_t i = 0; i < sizeof(even_shapes) / sizeof(even_shapes[0]); i++) {
            crowd_even(&crowd, even_shapes[i][0], even_shapes[i][1]);
            prove_roots(&crowd);
        }
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
            crowd_uneven(&crowd, &shapes[i]);
            prove_roots(&crowd);
        }
        crowd.what.nranks = 10;
        memcpy(crowd.nodes, anywhere, sizeof(anywhere));
        prove_roots(&crowd);
    }
}

/* Ranks of a node need not be neighbours, nor nodes numbered without gaps. */
XT_TEST_DEADLINE(ranks_may_lie_on_any_nodes, 120)
{
    static const int nodes[] = {7, 0, 7, 3, 3, 0, 7, 2, 0, 3};

    for (int c = 0; c < NCOLLS; c++) {
        struct crowd crowd = crowd_begin(colls[c]);

        crowd.what.nranks = 10;
        memcpy(crowd.nodes, nodes, sizeof(nodes));
        prove_roots(&crowd);
    }
}

/* Where nothing lies in scratch memory, which does not know how much it has. */
XT_TEST(an_all_gather_serves_blocks_of_any_sizes_in_any_nodes)
{
    uint64_t random = xt_seed();

    for (size_t i = 0; i < 16 * sizeof(shapes) / sizeof(shapes[0]); i++) {
        static const char *const parts[] = {NULL, "ring", "nhr", "nb"};
        struct crowd crowd = crowd_begin(XCCL_COLL_ALL_GATHER);
        struct xccl_verdict verdict;
        uint8_t sizes[RANKS_MAX];

        crowd_uneven(&crowd, &shapes[i / 16]);
        crowd.what.inner = parts[i % 4];
        crowd.what.outer = i % 4 ? parts[i / 4 % 4] : "mesh";
        crowd_make(&crowd);
        XT_OK(xccl_prove(crowd.schedules, crowd.what.nranks, &verdict));
        XT_CHECK_INT(verdict.flags, 0);
        for (int r = 0; r < crowd.what.nranks; r++)
            sizes[r] = (uint8_t)(xt_random(&random) % 4);
        XT_OK(xccl_verify(
            crowd.schedules, crowd.what.nranks,
            &(struct xccl_verify_for){
                .sizes = sizes, .tiles = 3, .direct = i & 1, .in_place = (int)i >> 1 & 1},
            &verdict));
        XT_CHECK_TEXT(verdict.text, "");
        crowd_free(&crowd);
    }
}

XT_TEST(what_goes_through_scratch_memory_needs_blocks_of_one_size)
{
    static const enum xccl_coll scratch[] = {XCCL_COLL_REDUCE_SCATTER, XCCL_COLL_ALL_TO_ALL,
                                             XCCL_COLL_GATHER, XCCL_COLL_SCATTER};

    for (size_t i = 0; i < sizeof(scratch) / sizeof(scratch[0]); i++) {
        struct crowd crowd = crowd_begin(scratch[i]);

        crowd_even(&crowd, 3, 4);
        XT_CHECK_INT(crowd_prove(&crowd).flags, XCCL_SCHEDULE_EQUAL);
    }
}

static const struct pair {
    enum xccl_coll coll;
    const char *inner, *outer;
    int equal; /* nodes of one size only */
} pairs[] = {
    {XCCL_COLL_ALL_REDUCE, "ring", "ring", 0},     {XCCL_COLL_ALL_REDUCE, "mesh", "rd", 0},
    {XCCL_COLL_ALL_REDUCE, "rhd", "rhd", 0},       {XCCL_COLL_ALL_REDUCE, "nhr", "nb", 0},
    {XCCL_COLL_ALL_REDUCE, "pat:2", "pat", 0},     {XCCL_COLL_ALL_REDUCE, "mesh", "twoshot", 0},
    {XCCL_COLL_ALL_REDUCE, "mesh", "oneshot", 0},  {XCCL_COLL_REDUCE_SCATTER, "ring", "mesh", 0},
    {XCCL_COLL_REDUCE_SCATTER, "mesh", "mesh", 0}, {XCCL_COLL_REDUCE_SCATTER, "nhr", "rhd", 1},
    {XCCL_COLL_REDUCE_SCATTER, "pat", "nb", 1},    {XCCL_COLL_ALL_GATHER, "ring", "mesh", 0},
    {XCCL_COLL_ALL_GATHER, "nhr", "ring", 0},      {XCCL_COLL_ALL_GATHER, "nb", "nhr", 0},
    {XCCL_COLL_ALL_GATHER, "rhd", "pat", 1},       {XCCL_COLL_BROADCAST, "chain", "binomial", 0},
    {XCCL_COLL_BROADCAST, "sag", "sag", 0},        {XCCL_COLL_REDUCE, "chain", "binomial", 0},
    {XCCL_COLL_GATHER, "binomial", "direct", 0},   {XCCL_COLL_GATHER, "direct", "binomial", 1},
    {XCCL_COLL_SCATTER, "binomial", "direct", 0},  {XCCL_COLL_SCATTER, "direct", "binomial", 1},
};

XT_TEST_DEADLINE(pairs_of_algorithms_are_proven, 120)
{
    for (size_t p = 0; p < sizeof(pairs) / sizeof(pairs[0]); p++) {
        struct crowd crowd = crowd_begin(pairs[p].coll);

        crowd.what.inner = pairs[p].inner;
        crowd.what.outer = pairs[p].outer;
        for (size_t i = 0; i + 1 < sizeof(even_shapes) / sizeof(even_shapes[0]); i++) {
            crowd_even(&crowd, even_shapes[i][0], even_shapes[i][1]);
            prove_roots(&crowd);
        }
        for (size_t i = 0; !pairs[p].equal && i < sizeof(shapes) / sizeof(shapes[0]); i++) {
            crowd_uneven(&crowd, &shapes[i]);
            prove_roots(&crowd);
        }
    }
}

/* ---- sizes ---- */

/* With the least slots; what was declared is enough. Returns how many. */
static int slots_of(struct crowd *crowd)
{
    struct xccl_verdict verdict;

    crowd_make(crowd);
    XT_CHECK_INT(crowd->schedules[0]->minslots, crowd->generator->slots);
    XT_OK(xccl_verify(crowd->schedules, crowd->what.nranks, &(struct xccl_verify_for){.tiles = 1},
                      &verdict));
    XT_CHECK_TEXT(verdict.text, "");
    XT_CHECK(verdict.minslots <= crowd->generator->slots);
    meetings_are_bounded(crowd);
    crowd_free(crowd);
    return verdict.minslots;
}

/* No part has more chunks on the way than go at a time, and one more where it passes them on; that
 * is reached, so that no smaller number would do. */
XT_TEST(declared_slots_are_reached_by_some_nodes)
{
    static const struct {
        enum xccl_coll coll;
        struct shape shape;
    } most[] = {{XCCL_COLL_ALL_REDUCE, {{4, 2, 1, 1, 2, 7, 1, 2, 1, 9}}},
                {XCCL_COLL_REDUCE_SCATTER, {{10, 2, 10, 16, 10, 12}}},
                {XCCL_COLL_ALL_GATHER, {{2, 3, 14, 5, 12, 4, 11, 12}}}};

    for (size_t i = 0; i < sizeof(most) / sizeof(most[0]); i++) {
        struct crowd crowd = crowd_begin(most[i].coll);

        crowd_uneven(&crowd, &most[i].shape);
        XT_CHECK_INT(slots_of(&crowd), crowd.generator->slots);
    }
}

XT_TEST_DEADLINE(declared_slots_suffice_for_random_nodes, 120)
{
    uint64_t random = xt_seed();

    for (int i = 0; i < 40 * (NCOLLS + 2); i++) {
        int c = i % (NCOLLS + 2);
        struct crowd crowd = c < NCOLLS    ? crowd_begin(colls[c])
                             : c == NCOLLS ? crowd_of(XCCL_COLL_BROADCAST, "rails")
                                           : crowd_of(XCCL_COLL_REDUCE, "rails");
        int nnodes = (int)(1 + xt_random(&random) % 9), most = (int)(1 + xt_random(&random) % 6);
        struct shape shape = {{0}};

        for (int node = 0; node < nnodes; node++)
            shape.sizes[node] = (int)(1 + xt_random(&random) % (uint32_t)most);
        crowd_uneven(&crowd, &shape);
        for (int r = 0; r < crowd.what.nranks && i / (NCOLLS + 2) % 2; r++) { /* ranks anywhere */
            int other = (int)(xt_random(&random) % (uint32_t)crowd.what.nranks);
            int node = crowd.nodes[r];

            crowd.nodes[r] = crowd.nodes[other];
            crowd.nodes[other] = node;
        }
        if (xccl_coll_rooted(crowd.generator->coll))
            crowd.what.root = (int)(xt_random(&random) % (uint32_t)crowd.what.nranks);
        (void)slots_of(&crowd);
    }
}

static const struct {
    enum xccl_coll coll;
    int slots, records_8x8, records_64x8;
} promises[] = {
    {XCCL_COLL_ALL_REDUCE, 4, 15, 92},  {XCCL_COLL_REDUCE_SCATTER, 4, 9, 58},
    {XCCL_COLL_ALL_GATHER, 4, 9, 55},   {XCCL_COLL_BROADCAST, 1, 2, 2},
    {XCCL_COLL_REDUCE, 1, 2, 2},        {XCCL_COLL_BARRIER, 1, 6, 9},
    {XCCL_COLL_ALL_TO_ALL, 1, 28, 182}, {XCCL_COLL_GATHER, 1, 5, 5},
    {XCCL_COLL_SCATTER, 1, 5, 5},
};

XT_TEST(records_and_slots_are_few)
{
    for (int i = 0; i < NCOLLS; i++) {
        struct crowd crowd = crowd_begin(promises[i].coll);

        crowd_even(&crowd, 8, 8);
        XT_CHECK_INT(crowd_prove(&crowd).minslots, promises[i].slots);
        crowd_make(&crowd);
        XT_CHECK_INT(crowd_records(&crowd), promises[i].records_8x8);
        crowd_free(&crowd);
        crowd_even(&crowd, 64, 8);
        crowd_make(&crowd);
        XT_CHECK_INT(crowd_records(&crowd), promises[i].records_64x8);
        crowd_free(&crowd);
    }
}

/* Between nodes goes what has to go: each rank sends 7 of 8 parts of its share twice. */
XT_TEST(a_rank_sends_only_its_share_to_other_nodes)
{
    struct crowd crowd = crowd_begin(XCCL_COLL_ALL_REDUCE);
    int count = 0;

    crowd_even(&crowd, 8, 8);
    crowd_make(&crowd);
    XT_CHECK_INT(crowd.schedules[0]->nchunks, 64);
    for (int i = 0; i < crowd.schedules[0]->nsteps; i++) {
        const struct xccl_step *step = &crowd.schedules[0]->steps[i];

        if ((step->op & XCCL_STEP_SEND) && crowd.schedules[0]->conns[step->sconn].peer >= 8)
            count += step->rep * step->cnt;
    }
    XT_CHECK_INT(count, 14);
    crowd_free(&crowd);
}

/* Whom ranks of other nodes a rank sends to, and from how many it receives; and messages to them.
 */
static void crossings(const struct crowd *crowd, int rank, int peers_out[2], int *messages_out)
{
    const struct xccl_schedule *s = crowd->schedules[rank];

    peers_out[XCCL_CONN_SEND] = 0;
    peers_out[XCCL_CONN_RECV] = 0;
    *messages_out = 0;
    for (int i = 0; i < s->nconns; i++)
        peers_out[s->conns[i].dir] += crowd->nodes[s->conns[i].peer] != crowd->nodes[rank];
    for (int i = 0; i < s->nsteps; i++)
        for (uint32_t occ = 0; occ < s->steps[i].rep; occ++) {
            struct xccl_event event;

            xccl_event_decode(s, 0, &s->steps[i], occ, 0, &event);
            if (event.nsend && crowd->nodes[s->conns[event.sconn].peer] != crowd->nodes[rank])
                *messages_out += s->steps[i].cnt;
        }
}

XT_TEST(an_all_to_all_crosses_between_ranks_of_one_place)
{
    struct crowd crowd = crowd_begin(XCCL_COLL_ALL_TO_ALL);

    crowd_even(&crowd, 8, 8);
    crowd_make(&crowd);
    for (int r = 0; r < 64; r++) {
        int peers[2], messages;

        crossings(&crowd, r, peers, &messages);
        XT_CHECK_INT(peers[XCCL_CONN_SEND], 7); /* pairwise: 56 */
        XT_CHECK_INT(peers[XCCL_CONN_RECV], 7);
        XT_CHECK_INT(messages, 56);
        XT_CHECK_INT(crowd.schedules[r]->nscratch, 49);
    }
    crowd_free(&crowd);
}

XT_TEST(only_leaders_gather_and_scatter_between_nodes)
{
    static const enum xccl_coll both[] = {XCCL_COLL_GATHER, XCCL_COLL_SCATTER};

    for (int i = 0; i < 2; i++) {
        struct crowd crowd = crowd_begin(both[i]);

        crowd_even(&crowd, 4, 5);
        crowd.what.root = 7; /* in node 1 */
        crowd_make(&crowd);
        for (int r = 0; r < 20; r++) {
            int leads = r == 7 || (r % 5 == 0 && r != 5), peers[2], messages;

            crossings(&crowd, r, peers, &messages);
            XT_CHECK_INT(peers[0] + peers[1], r == 7 ? 3 : leads);
            XT_CHECK_INT(messages, (i == 0 ? r != 7 : r == 7) && leads ? i ? 15 : 5 : 0);
            XT_CHECK_INT(crowd.schedules[r]->nscratch, leads && r != 7 ? 4 : 0);
        }
        crowd_free(&crowd);
    }
}

/* ---- the text form ---- */

XT_TEST(a_hierarchy_is_printed_and_read_back)
{
    struct crowd crowd = crowd_begin(XCCL_COLL_ALL_REDUCE);
    struct xccl_schedule_set set;
    struct xccl_verdict verdict;
    char *texts[2];
    size_t bytes;

    crowd_uneven(&crowd, &shapes[0]);
    crowd_make(&crowd);
    for (int again = 0; again < 2; again++) {
        FILE *file = open_memstream(&texts[again], &bytes);

        XT_CHECK(file);
        XT_CHECK_INT(
            xccl_schedule_print(file, again ? set.schedules : crowd.schedules, crowd.what.nranks),
            0);
        XT_CHECK_INT(fclose(file), 0);
        if (!again)
            XT_OK(xccl_schedule_read(texts[0], bytes, "text", &set));
    }
    XT_CHECK(strcmp(texts[0], texts[1]) == 0);
    XT_OK(xccl_prove(set.schedules, set.nranks, &verdict));
    XT_CHECK_INT(verdict.kind, XCCL_VERDICT_PROVEN);
    xccl_schedule_set_fini(&set);
    free(texts[0]);
    free(texts[1]);
    crowd_free(&crowd);
}

/* ---- refusals ---- */

static void refused(const struct crowd *crowd, const char *text)
{
    struct xccl_generator_for what = crowd->what;
    struct xccl_schedule *schedule;

    what.nodes = crowd->nodes;
    XT_CHECK_RC(xccl_generator_make(crowd->generator, &what, &schedule), xcclInvalidArgument);
    XT_CHECK_HAS(xccl_error_text(), text);
}

XT_TEST(algorithms_that_do_not_fit_are_refused_in_words)
{
    struct crowd crowd = crowd_begin(XCCL_COLL_ALL_REDUCE);

    crowd_even(&crowd, 2, 3);
    crowd.what.outer = "dtree";
    refused(&crowd, "several lanes");
    crowd.what.outer = "hier";
    refused(&crowd, "cannot use hier for the outer all_reduce of 2 ranks");
    crowd.what.outer = "ring:2";
    refused(&crowd, "cannot use ring:2");
    crowd.what.outer = NULL;
    crowd.what.inner = "oneshot";
    refused(&crowd, "cannot use oneshot for the inner reduce_scatter of 3 ranks");
    crowd = crowd_begin(XCCL_COLL_REDUCE_SCATTER);
    crowd_uneven(&crowd, &shapes[1]);
    crowd.what.outer = "nhr";
    refused(&crowd, "scratch memory, which cannot work on nodes of different sizes");
}

XT_TEST(relays_and_scratch_memory_are_refused_where_blocks_differ_in_number)
{
    struct crowd crowd = crowd_begin(XCCL_COLL_ALL_TO_ALL);

    crowd_even(&crowd, 2, 4);
    crowd.what.inner = "bruck";
    refused(&crowd, "choose mesh, ring, pairwise or direct");
    crowd = crowd_begin(XCCL_COLL_GATHER);
    crowd_uneven(&crowd, &shapes[1]);
    crowd.what.outer = "binomial";
    crowd.what.rank = 1; /* passes on */
    crowd.what.root = 9;
    refused(&crowd, "cannot work on nodes of different sizes");
}

XT_TEST(layouts_that_cannot_be_are_refused_in_words)
{
    static const struct shape primes = {{31, 29, 23, 19}};
    struct crowd crowd = crowd_begin(XCCL_COLL_ALL_REDUCE);

    crowd_uneven(&crowd, &primes);
    refused(&crowd, "more chunks than allowed (65535)");
    crowd_even(&crowd, 2, 3);
    crowd.nodes[4] = -1;
    refused(&crowd, "a node's number is too large or negative (-1)");
    crowd.nodes[4] = 6;
    refused(&crowd, "a node's number is too large or negative (6)");
}

XT_TEST(a_failed_allocation_leaves_nothing_behind)
{
    for (int c = 0; c < NCOLLS; c++) {
        struct crowd crowd = crowd_begin(colls[c]);
        uint64_t live = xccl_alloc_live();
        xcclResult_t rc = xcclSystemError;

        crowd_uneven(&crowd, &shapes[0]);
        crowd.what.nodes = crowd.nodes;
        for (uint64_t k = 1; rc; k++) {
            xccl_inject_arm(k);
            rc = xccl_generator_make_all(crowd.generator, &crowd.what, crowd.schedules);
            if (rc)
                XT_CHECK_RC(rc, xcclSystemError);
            else
                crowd_free(&crowd);
            XT_CHECK_INT(xccl_alloc_live(), live);
        }
        xccl_inject_arm(0);
    }
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Schedules in which ranks stand in another order than that of their numbers: proven for random
 * orders, numbers of ranks and roots of every generator that takes one, with slots and class as
 * without; a ring over hosts in turns leaves each host once; how many records that takes. One
 * thread. */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "schedule/generators.h"
#include "schedule/text.h"
#include "schedule/verify.h"
#include "xt.h"

#define PROVEN_MAX 16
#define RANKS_MAX  512

__attribute__((constructor)) static void sources(void)
{
    xt_set_error_source(xccl_error_text);
    xt_set_alloc_source(xccl_alloc_live);
}

static void shuffle(uint16_t *order, int n, uint64_t *random)
{
    for (int i = 0; i < n; i++)
        order[i] = (uint16_t)i;
    for (int i = n - 1; i > 0; i--) {
        int other = (int)(xt_random(random) % (uint64_t)(i + 1));
        uint16_t taken = order[i];

        order[i] = order[other];
        order[other] = taken;
    }
}

/* Ranks 0, hosts, 2 * hosts, ..., then 1 and so on: of hosts that have ranks in turns. */
static void by_hosts(uint16_t *order, int n, int hosts)
{
    int at = 0;

    for (int host = 0; host < hosts; host++)
        for (int rank = host; rank < n; rank += hosts)
            order[at++] = (uint16_t)rank;
}

static struct xccl_verdict prove(const struct xccl_generator *generator,
                                 const struct xccl_generator_for *what)
{
    struct xccl_schedule *schedules[PROVEN_MAX];
    struct xccl_verdict verdict;

    XT_OK(xccl_generator_make_all(generator, what, schedules));
    XT_OK(xccl_prove(schedules, what->nranks, &verdict));
    for (int rank = 0; rank < what->nranks; rank++) {
        XT_CHECK_INT(schedules[rank]->rank, rank);
        XT_CHECK_INT(schedules[rank]->root, what->root);
        xccl_schedule_destroy(schedules[rank]);
    }
    return verdict;
}

static void prove_order(const struct xccl_generator *generator, int n, uint64_t *random)
{
    uint16_t order[PROVEN_MAX];
    struct xccl_generator_for what = {.nranks = n};
    struct xccl_verdict plain, ordered;

    if (xccl_coll_rooted(generator->coll))
        what.root = (int)(xt_random(random) % (uint64_t)n);
    if (generator->serves && !generator->serves(&what))
        return;
    plain = prove(generator, &what);
    shuffle(order, n, random);
    what.order = order;
    ordered = prove(generator, &what);
    if (ordered.kind != XCCL_VERDICT_PROVEN || ordered.class != plain.class ||
        ordered.minslots != plain.minslots)
        XT_FAIL("%s of %s, %d ranks, root %d: class %d and %d, slots %d and %d: %s",
                generator->name, xccl_coll_name(generator->coll), n, what.root, plain.class,
                ordered.class, (int)plain.minslots, (int)ordered.minslots, ordered.text);
}

XT_TEST_DEADLINE(every_generator_that_takes_an_order_is_proven_in_random_ones, 120)
{
    uint64_t random = xt_seed();
    int takes = 0;

    for (int i = 0; xccl_generators[i]; i++) {
        if (!xccl_generators[i]->takes_order)
            continue;
        takes++;
        for (int n = 1; n <= PROVEN_MAX; n++)
            for (int again = 0; again < 3; again++)
                prove_order(xccl_generators[i], n, &random);
    }
    XT_CHECK_INT(takes, 24);
}

static char *text_of(const struct xccl_generator *generator, const struct xccl_generator_for *what)
{
    struct xccl_schedule *schedules[PROVEN_MAX];
    char *text = NULL;
    size_t bytes;
    FILE *file = open_memstream(&text, &bytes);

    XT_CHECK(file != NULL);
    XT_OK(xccl_generator_make_all(generator, what, schedules));
    XT_CHECK_INT(xccl_schedule_print(file, schedules, what->nranks), 0);
    fclose(file);
    for (int rank = 0; rank < what->nranks; rank++)
        xccl_schedule_destroy(schedules[rank]);
    return text;
}

XT_TEST(the_others_stay_in_the_order_of_ranks)
{
    static const uint16_t order[] = {3, 0, 5, 1, 4, 2};
    static const int nodes[] = {0, 1, 0, 1, 0, 1};

    for (int i = 0; xccl_generators[i]; i++) {
        struct xccl_generator_for what = {.nranks = 6, .root = 2, .nodes = nodes};
        char *plain, *ordered;

        if (xccl_generators[i]->takes_order)
            continue;
        plain = text_of(xccl_generators[i], &what);
        what.order = order;
        ordered = text_of(xccl_generators[i], &what);
        XT_CHECK_TEXT(ordered, plain);
        free(plain);
        free(ordered);
    }
}

/* Messages to another host, of all ranks. */
static int count_edges(const struct xccl_generator *generator,
                       const struct xccl_generator_for *what, int hosts)
{
    int edges = 0;

    for (int rank = 0; rank < what->nranks; rank++) {
        struct xccl_generator_for one = *what;
        struct xccl_schedule *schedule;

        one.rank = rank;
        XT_OK(xccl_generator_make(generator, &one, &schedule));
        for (int i = 0; i < schedule->nconns; i++)
            edges += schedule->conns[i].dir == XCCL_CONN_SEND &&
                     schedule->conns[i].peer % hosts != rank % hosts;
        xccl_schedule_destroy(schedule);
    }
    return edges;
}

XT_TEST(rings_and_chains_leave_each_host_once)
{
    static const struct {
        enum xccl_coll coll;
        const char *name;
        int turns, together; /* messages to another host in the order of ranks, and by hosts */
    } rows[] = {{XCCL_COLL_ALL_REDUCE, "ring", 24, 4},
                {XCCL_COLL_ALL_GATHER, "ring", 24, 4},
                {XCCL_COLL_REDUCE_SCATTER, "ring", 24, 4},
                {XCCL_COLL_BROADCAST, "chain", 23, 3},
                {XCCL_COLL_REDUCE, "chain", 23, 4}};
    uint16_t order[RANKS_MAX];

    by_hosts(order, 24, 4);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct xccl_generator_for what = {.nranks = 24};
        const struct xccl_generator *generator = xccl_generator_find(rows[i].coll, rows[i].name,
                                                                     &what.param);

        XT_CHECK_INT(count_edges(generator, &what, 4), rows[i].turns);
        what.order = order;
        XT_CHECK_INT(count_edges(generator, &what, 4), rows[i].together);
    }
}

/* Blocks in an order that no stride describes lie in the index list; records stay as few. */
XT_TEST(an_order_costs_list_entries_and_hardly_a_record)
{
    static const struct {
        enum xccl_coll coll;
        const char *name;
        unsigned steps, list;
    } rows[] = {{XCCL_COLL_ALL_REDUCE, "ring", 5, 0},       {XCCL_COLL_ALL_GATHER, "ring", 3, 600},
                {XCCL_COLL_REDUCE_SCATTER, "ring", 3, 600}, {XCCL_COLL_BROADCAST, "chain", 1, 0},
                {XCCL_COLL_ALL_REDUCE, "dtree", 4, 0},      {XCCL_COLL_ALL_GATHER, "nhr", 20, 1100},
                {XCCL_COLL_REDUCE_SCATTER, "nhr", 300, 0}};
    uint64_t random = xt_seed();
    uint16_t order[RANKS_MAX];

    shuffle(order, RANKS_MAX, &random);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct xccl_generator_for what = {.nranks = RANKS_MAX, .rank = 77, .order = order};
        const struct xccl_generator *generator = xccl_generator_find(rows[i].coll, rows[i].name,
                                                                     &what.param);
        struct xccl_schedule *schedule;

        XT_OK(xccl_generator_make(generator, &what, &schedule));
        printf("%s of %s: %u records, %u list entries\n", rows[i].name,
               xccl_coll_name(rows[i].coll), (unsigned)schedule->nsteps, (unsigned)schedule->nlist);
        if (schedule->nsteps > rows[i].steps || schedule->nlist > rows[i].list)
            XT_FAIL("%s of %s takes %u records and %u list entries", rows[i].name,
                    xccl_coll_name(rows[i].coll), (unsigned)schedule->nsteps,
                    (unsigned)schedule->nlist);
        xccl_schedule_destroy(schedule);
    }
}

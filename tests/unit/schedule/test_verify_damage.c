/* SPDX-License-Identifier: BSD-3-Clause */
/* The verifier against damage at random: one change of a right schedule is refused or changes no
 * result; any number of changes, and memory that runs out, do no harm. */
#include "schedule/verify.h"

#include "base/alloc.h"
#include "base/inject.h"
#include "schedule_ranks.h"
#include "xt.h"

__attribute__((constructor)) static void sources(void)
{
    xt_set_alloc_source(xccl_alloc_live);
}

static uint64_t hash_of(const struct ranks *ranks)
{
    struct xccl_verdict verdict;

    XT_OK(xccl_verify(ranks->schedules, ranks->n, &(struct xccl_verify_for){0}, &verdict));
    XT_CHECK_TEXT(verdict.text, "");
    return verdict.hash;
}

/* One random damage of one rank's schedule; 0 when it hit nothing. */
static int mutate(struct ranks *ranks, uint64_t *random)
{
    struct xccl_schedule **schedule = &ranks->schedules[xt_random(random) % (uint32_t)ranks->n];
    struct xccl_schedule *s = *schedule;
    uint32_t pick = s->nsteps ? (uint32_t)(xt_random(random) % s->nsteps) : 0;
    struct xccl_step *step = &s->steps[pick], other;

    if (s->nsteps == 0)
        return 0;
    switch (xt_random(random) % 10) {
    case 0:
        drop_step(s, (int)pick);
        return 1;
    case 1:
        double_step(schedule, (int)pick);
        return 1;
    case 2:
        other = s->steps[(pick + 1) % s->nsteps];
        s->steps[(pick + 1) % s->nsteps] = *step;
        *step = other;
        return s->nsteps > 1;
    case 3:
        step->src = (uint16_t)((step->src + 1) % s->nchunks);
        return 1;
    case 4:
        step->dst = (uint16_t)((step->dst + 1) % s->nchunks);
        return 1;
    case 5:
        if (s->nconns > 0)
            s->conns[xt_random(random) % s->nconns].peer = (uint16_t)(xt_random(random) %
                                                                      (uint32_t)ranks->n);
        return s->nconns > 0;
    case 6:
        step->rep = (uint16_t)(step->rep + 1);
        return 1;
    case 7:
        step->flags ^= (uint8_t)(1u << xt_random(random) % 2);
        return 1;
    case 8:
        step->op ^= (uint8_t)(1u << xt_random(random) % 6);
        return 1;
    default:
        step->dsrc = step->ddst = (int16_t)(step->dsrc + 1);
        return 1;
    }
}

/* One mutant of these; 1 when it was refused. */
static int judge_mutant(struct ranks *ranks, uint64_t *random)
{
    uint64_t hash = hash_of(ranks);
    struct xccl_verdict verdict;

    if (!mutate(ranks, random))
        return 0;
    XT_OK(
        xccl_verify(ranks->schedules, ranks->n, &(struct xccl_verify_for){.nslots = 4}, &verdict));
    /* Swapped steps may add up in another order, which is right as well. */
    XT_CHECK(verdict.kind != XCCL_VERDICT_PROVEN || verdict.hash == hash ||
             xccl_coll_reduces((enum xccl_coll)ranks->schedules[0]->coll));
    XT_CHECK((verdict.kind == XCCL_VERDICT_PROVEN) == (verdict.text[0] == '\0'));
    return verdict.kind != XCCL_VERDICT_PROVEN;
}

XT_TEST(mutants_with_multicast_are_refused_or_give_the_same_results)
{
    uint64_t random = xt_seed();
    int refused = 0;

    for (int i = 0; i < 1000; i++) {
        int n = (int)(3 + xt_random(&random) % 6);
        struct ranks ranks = oneshot_of(n, (int)(xt_random(&random) % (uint32_t)(n + 1)));

        refused += judge_mutant(&ranks, &random);
        ranks_free(&ranks);
    }
    XT_CHECK(refused > 500);
}

XT_TEST_DEADLINE(mutants_of_every_generator_are_refused_or_give_the_same_results, 60)
{
    uint64_t random = xt_seed();
    int made = 0, refused = 0;

    for (int i = 0; i < 100; i++) {
        for (const struct xccl_generator *const *at = xccl_generators; *at; at++, made++) {
            int n = (int)(2 + xt_random(&random) % 8);
            struct ranks ranks = generated(*at, n, (int)(xt_random(&random) % (uint32_t)n));

            refused += judge_mutant(&ranks, &random);
            ranks_free(&ranks);
        }
    }
    XT_CHECK(refused > made / 2);
}

/* Overwrites a field of a table with a small number, or any. */
static void scribble(struct xccl_schedule *s, uint64_t *random)
{
    uint32_t steps = s->nsteps * 16u, conns = s->nconns * 4u, waits = s->nwaits * 2u;
    uint32_t at = (uint32_t)(xt_random(random) % (steps + conns + waits));
    uint16_t number = (uint16_t)(xt_random(random) % 8 ? xt_random(random) % 5 : xt_random(random));
    void *table = at < steps ? (void *)s->steps : at < steps + conns ? (void *)s->conns : s->waits;

    at -= at < steps ? 0 : at < steps + conns ? steps : steps + conns;
    memcpy((char *)table + 2 * (size_t)at, &number, sizeof(number));
    for (uint32_t i = 0; i < s->nsteps; i++) { /* nobody waits for billions of chunks */
        s->steps[i].cnt &= 31;
        s->steps[i].rep &= 31;
    }
}

XT_TEST_DEADLINE(any_tables_are_proven_or_refused_without_harm, 60)
{
    uint64_t random = xt_seed();

    for (int i = 0; i < 4000; i++) {
        uint8_t both = XCCL_FLAG_DIRECT_SEND | XCCL_FLAG_DIRECT_RECV;
        struct ranks ranks = i % 4 == 0   ? ring_of(5)
                             : i % 4 == 1 ? oneshot_of(4, 3)
                             : i % 4 == 2 ? staged(2, 2)
                                          : swap_in_scratch(both);
        struct xccl_verify_for how = {
            .in_place = i >> 2 & 1, .direct = i >> 3 & 1, .nslots = i >> 4 & 3};
        struct xccl_verdict verdict;

        for (int k = i % 3; k >= 0; k--)
            scribble(ranks.schedules[xt_random(&random) % (uint32_t)ranks.n], &random);
        XT_OK(xccl_verify(ranks.schedules, ranks.n, &how, &verdict));
        XT_CHECK((verdict.kind == XCCL_VERDICT_PROVEN) == (verdict.text[0] == '\0'));
        XT_OK(xccl_prove(ranks.schedules, ranks.n, &verdict));
        XT_CHECK((verdict.kind == XCCL_VERDICT_PROVEN) == (verdict.text[0] == '\0'));
        ranks_free(&ranks);
    }
}

XT_TEST(every_allocation_may_fail)
{
    struct ranks many[] = {ring_of(3), oneshot_of(4, 3), staged(2, 2),
                           swap_in_scratch(XCCL_FLAG_DIRECT_SEND | XCCL_FLAG_DIRECT_RECV)};

    for (size_t i = 0; i < sizeof(many) / sizeof(many[0]); i++) {
        struct xccl_verdict verdict;
        xcclResult_t rc = xcclSystemError;

        for (uint64_t k = 1; rc; k++) {
            xccl_inject_arm(k);
            rc = xccl_prove(many[i].schedules, many[i].n, &verdict);
            XT_CHECK(rc == xcclSuccess || rc == xcclSystemError);
            XT_CHECK(k < 10000);
        }
        xccl_inject_arm(0);
        XT_CHECK_TEXT(verdict.text, "");
        ranks_free(&many[i]);
    }
}

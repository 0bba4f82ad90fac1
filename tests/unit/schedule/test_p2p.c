/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups of sends and receives: whatever lists the ranks have, as long as both ends of each message
 * name it, their schedules end with one slot, and message k of a rank to another one comes as its
 * k-th receive from there. Small groups are enumerated, up to 32 ranks they are random. */
#include "schedule/gen_p2p.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/inject.h"
#include "schedule/text.h"
#include "schedule/verify.h"
#include "xt.h"

#define RANKS_MAX 32
#define LIST_MAX  256 /* messages of a rank, each way */

__attribute__((constructor)) static void sources(void)
{
    xt_set_error_source(xccl_error_text);
    xt_set_alloc_source(xccl_alloc_live);
}

/* How many messages each rank sends to each, and the lists of all ranks. */
struct group {
    int n;
    uint8_t count[RANKS_MAX][RANKS_MAX];
    struct list {
        int nsends, nreceives;
        uint16_t sends[LIST_MAX], receives[LIST_MAX];
    } lists[RANKS_MAX];
    struct xccl_schedule *schedules[RANKS_MAX];
};

static void shuffle(uint16_t *list, int count, uint64_t *random)
{
    for (int i = count - 1; i > 0; i--) {
        int other = (int)(xt_random(random) % (uint64_t)(i + 1));
        uint16_t peer = list[i];

        list[i] = list[other];
        list[other] = peer;
    }
}

/* In any order; random NULL: in that of the ranks. */
static void group_lists(struct group *group, uint64_t *random)
{
    for (int r = 0; r < group->n; r++) {
        struct list *list = &group->lists[r];

        list->nsends = 0;
        list->nreceives = 0;
        for (int peer = 0; peer < group->n; peer++) {
            for (int i = 0; i < group->count[r][peer]; i++)
                list->sends[list->nsends++] = (uint16_t)peer;
            for (int i = 0; i < group->count[peer][r]; i++)
                list->receives[list->nreceives++] = (uint16_t)peer;
        }
        if (!random)
            continue;
        shuffle(list->sends, list->nsends, random);
        shuffle(list->receives, list->nreceives, random);
    }
}

static xcclResult_t make(const struct list *list, int n, int rank,
                         struct xccl_schedule **schedule_out)
{
    return xccl_p2p_make(&(struct xccl_p2p_for){.nranks = n,
                                                .rank = rank,
                                                .nsends = list->nsends,
                                                .nreceives = list->nreceives,
                                                .sends = list->sends,
                                                .receives = list->receives},
                         schedule_out);
}

static void group_make(struct group *group)
{
    for (int r = 0; r < group->n; r++)
        XT_OK(make(&group->lists[r], group->n, r, &group->schedules[r]));
}

static void group_free(struct group *group)
{
    for (int r = 0; r < group->n; r++)
        xccl_schedule_destroy(group->schedules[r]);
}

static struct xccl_verdict verdict_for(const struct group *group, struct xccl_verify_for how)
{
    struct xccl_verdict verdict;

    how.nslots = XCCL_P2P_SLOTS;
    XT_OK(xccl_verify(group->schedules, group->n, &how, &verdict));
    return verdict;
}

/* What was marked from the beginning is what the proof marks. */
static void direct_as_proven(const struct group *group)
{
    for (int r = 0; r < group->n; r++) {
        const struct list *list = &group->lists[r];
        const struct xccl_schedule *proven = group->schedules[r];
        struct xccl_schedule *marked;

        XT_OK(xccl_p2p_make(&(struct xccl_p2p_for){.nranks = group->n,
                                                   .rank = r,
                                                   .nsends = list->nsends,
                                                   .nreceives = list->nreceives,
                                                   .sends = list->sends,
                                                   .receives = list->receives,
                                                   .direct = 1},
                            &marked));
        XT_CHECK_INT(marked->nsteps, proven->nsteps);
        XT_CHECK(memcmp(marked->steps, proven->steps, proven->nsteps * sizeof(*proven->steps)) ==
                 0);
        xccl_schedule_destroy(marked);
    }
}

/* With messages of one size, of none, and of random sizes from none to three tiles; through slots,
 * and direct. Where buffers share memory, contents may be lost, but nobody waits for ever. */
static void group_prove(struct group *group, uint64_t *random)
{
    static uint8_t sizes[RANKS_MAX * LIST_MAX];
    struct xccl_verdict verdict;

    group_make(group);
    for (size_t i = 0; i < sizeof(sizes); i++)
        sizes[i] = (uint8_t)(xt_random(random) % 4);
    XT_OK(xccl_prove(group->schedules, group->n, &verdict));
    XT_CHECK_TEXT(verdict.text, "");
    XT_CHECK_INT(verdict.minslots, XCCL_P2P_SLOTS);
    XT_CHECK_INT(verdict.flags, 0);
    direct_as_proven(group);
    for (int direct = 0; direct < 2; direct++) {
        verdict = verdict_for(group, (struct xccl_verify_for){.direct = direct});
        XT_CHECK_TEXT(verdict.text, "");
        verdict = verdict_for(
            group, (struct xccl_verify_for){.direct = direct, .sizes = sizes, .tiles = 3});
        XT_CHECK_TEXT(verdict.text, "");
    }
    verdict = verdict_for(group, (struct xccl_verify_for){.in_place = 1});
    if (verdict.kind != XCCL_VERDICT_PROVEN && verdict.kind != XCCL_VERDICT_RESULT &&
        verdict.kind != XCCL_VERDICT_SIZE && verdict.kind != XCCL_VERDICT_EXCHANGE)
        XT_FAIL("in place: %d %s", verdict.kind, verdict.text);
    group_free(group);
}

/* ---- proofs ---- */

XT_TEST_DEADLINE(all_groups_of_two_ranks_with_up_to_two_messages_each_way_are_proven, 60)
{
    uint64_t random = xt_seed();

    for (int code = 0; code < 81; code++) {
        struct group group = {.n = 2,
                              .count = {{(uint8_t)(code % 3), (uint8_t)(code / 3 % 3)},
                                        {(uint8_t)(code / 9 % 3), (uint8_t)(code / 27)}}};

        group_lists(&group, &random);
        group_prove(&group, &random);
    }
}

/* Every set of pairs; to oneself too. */
static void prove_masks(int n, uint32_t masks, uint32_t step, uint64_t *random)
{
    for (uint32_t mask = 0; mask < masks; mask += step) {
        static struct group group;

        memset(group.count, 0, sizeof(group.count));
        group.n = n;
        for (int i = 0; i < n * n; i++)
            group.count[i / n][i % n] = (uint8_t)(mask >> i & 1);
        group_lists(&group, random);
        group_prove(&group, random);
    }
}

XT_TEST_DEADLINE(all_sets_of_pairs_of_three_and_many_of_four_ranks_are_proven, 120)
{
    uint64_t random = xt_seed();

    prove_masks(3, 1 << 9, 1, &random);
#ifdef XCCL_SANITIZED
    prove_masks(4, 1 << 16, 61, &random);
#else
    prove_masks(4, 1 << 16, 7, &random);
#endif
}

/* Of n ranks, where each pair has messages with a probability of share in 8, up to most. */
static void random_group(struct group *group, int n, uint32_t share, uint32_t most,
                         uint64_t *random)
{
    group->n = n;
    for (int i = 0; i < n * n; i++) {
        int is_there = xt_random(random) % 8 < share;

        group->count[i / n][i % n] = (uint8_t)(is_there ? 1 + xt_random(random) % most : 0);
    }
    group_lists(group, random);
}

XT_TEST_DEADLINE(random_groups_of_up_to_32_ranks_are_proven, 120)
{
    uint64_t random = xt_seed();

    for (int n = 1; n <= 9; n++)
        for (uint32_t i = 0; i < 160; i++) {
            static struct group group;

            random_group(&group, n, i % 9, 1 + i / 9 % 4, &random);
            group_prove(&group, &random);
        }
    for (int n = 10; n <= RANKS_MAX; n++)
        for (uint32_t i = 1; i < 9; i++) {
            static struct group group;

            random_group(&group, n, i, 1 + i % 3, &random);
            group_prove(&group, &random);
        }
}

/* A send and a receive of the same round may share memory: what was there is sent. */
XT_TEST(rings_in_place_give_on_what_they_have_through_slots)
{
    for (int n = 2; n <= 9; n++)
        for (int k = 1; k < n; k++) {
            struct group group = {.n = n};
            struct xccl_verdict verdict;

            for (int r = 0; r < n; r++)
                group.count[r][(r + k) % n] = 1;
            group_lists(&group, NULL);
            group_make(&group);
            verdict = verdict_for(&group, (struct xccl_verify_for){.in_place = 1});
            XT_CHECK_TEXT(verdict.text, "");
            group_free(&group);
        }
}

/* ---- what is refused ---- */

XT_TEST(lists_that_do_not_match_are_refused_by_the_verifier)
{
    struct group group = {.n = 3, .count = {{0, 1, 0}, {0, 0, 1}, {1, 0, 0}}};
    struct xccl_verdict verdict;

    group_lists(&group, NULL);
    group.lists[1].nreceives = 0;
    group_make(&group);
    verdict = verdict_for(&group, (struct xccl_verify_for){0});
    XT_CHECK_INT(verdict.kind, XCCL_VERDICT_SHAPE);
    XT_CHECK_HAS(verdict.text, "rank 0 sends a message to rank 1, which does not receive it");
    group_free(&group);
    group_lists(&group, NULL);
    group.lists[2].nsends = 0;
    group_make(&group);
    verdict = verdict_for(&group, (struct xccl_verify_for){0});
    XT_CHECK_HAS(verdict.text, "rank 0 receives a message from rank 2, which does not send it");
    group_free(&group);
}

XT_TEST(messages_that_pass_one_another_are_refused_by_the_verifier)
{
    struct group group = {.n = 2, .count = {{0, 2}, {0, 0}}};
    struct xccl_verdict verdict;

    group_lists(&group, NULL);
    group_make(&group);
    XT_CHECK_INT(group.schedules[1]->steps[0].cstride, 1);
    group.schedules[1]->steps[0].dst = 1; /* the second first: chunks count modulo 2 */
    verdict = verdict_for(&group, (struct xccl_verify_for){0});
    XT_CHECK_INT(verdict.kind, XCCL_VERDICT_SIZE);
    group_free(&group);
}

static void refused(const struct xccl_p2p_for *what, const char *text)
{
    struct xccl_schedule *schedule;

    XT_CHECK_RC(xccl_p2p_make(what, &schedule), xcclInvalidArgument);
    XT_CHECK_HAS(xccl_error_text(), text);
}

XT_TEST(lists_that_cannot_be_are_refused_in_words)
{
    static const uint16_t peers[] = {1, 0, 3, 65535};
    struct xccl_p2p_for what = {
        .nranks = 3, .rank = 1, .nsends = 2, .nreceives = 0, .sends = peers, .receives = peers};

    refused(&what, "1 sends of rank 1 to itself and 0 receives from itself");
    what.nsends = 0;
    what.nreceives = 1;
    refused(&what, "0 sends of rank 1 to itself and 1 receives");
    what.nreceives = 3;
    refused(&what, "receive 2 of rank 1 names rank 3 of 3");
    what.nsends = 4;
    refused(&what, "send 2 of rank 1 names rank 3 of 3");
    what.nsends = 65536;
    refused(&what, "a group has 65536 sends of rank 1, more than 65535");
    what.nsends = -1;
    refused(&what, "a group has -1 sends");
    what.nranks = 1;
    refused(&what, "a group of rank 1 of 1 is not possible");
}

/* ---- size ---- */

/* As few as the pairwise all-to-all; peers in any order take an index list. */
XT_TEST(a_full_group_has_two_records)
{
    static uint16_t peers[512];
    struct xccl_p2p_for what = {
        .nranks = 512, .nsends = 512, .nreceives = 512, .sends = peers, .receives = peers};
    struct xccl_schedule *schedule;
    uint64_t random = xt_seed();

    for (int i = 0; i < 512; i++)
        peers[i] = (uint16_t)i;
    XT_OK(xccl_p2p_make(&what, &schedule));
    XT_CHECK_INT(schedule->nsteps, 2);
    xccl_schedule_destroy(schedule);
    shuffle(peers, 512, &random);
    XT_OK(xccl_p2p_make(&what, &schedule));
    XT_CHECK(schedule->nsteps <= 512);
    xccl_schedule_destroy(schedule);
}

XT_TEST(a_rank_without_messages_has_no_steps)
{
    struct xccl_p2p_for what = {.nranks = 4, .rank = 2};
    struct xccl_schedule *schedule;

    XT_OK(xccl_p2p_make(&what, &schedule));
    XT_CHECK_INT(schedule->nsteps, 0);
    XT_CHECK_INT(schedule->nconns, 0);
    xccl_schedule_destroy(schedule);
}

/* ---- the text form ---- */

XT_TEST(a_group_is_printed_and_read_back_in_both_forms)
{
    uint64_t random = xt_seed();

    for (int i = 0; i < 20; i++) {
        static struct group group;
        int json = i & 1;
        struct xccl_schedule_set set;
        char *texts[2];
        size_t bytes;

        random_group(&group, 1 + i / 2, 5, 3, &random);
        group_make(&group);
        for (int again = 0; again < 2; again++) {
            struct xccl_schedule **from = again ? set.schedules : group.schedules;
            FILE *file = open_memstream(&texts[again], &bytes);

            XT_CHECK(file);
            XT_CHECK_INT(json ? xccl_schedule_print_json(file, from, group.n)
                              : xccl_schedule_print(file, from, group.n),
                         0);
            XT_CHECK_INT(fclose(file), 0);
            if (!again)
                XT_OK(json ? xccl_schedule_read_json(texts[0], bytes, "json", &set)
                           : xccl_schedule_read(texts[0], bytes, "text", &set));
        }
        XT_CHECK_TEXT(texts[1], texts[0]);
        for (int r = 0; r < group.n; r++) {
            const struct xccl_schedule *schedule = set.schedules[r];
            const struct list *list = &group.lists[r];

            XT_CHECK_INT(schedule->nin, list->nsends);
            XT_CHECK_INT(schedule->nout, list->nreceives);
            XT_CHECK(memcmp(schedule->peers, list->sends, 2 * (size_t)list->nsends) == 0);
            XT_CHECK(memcmp(schedule->peers + list->nsends, list->receives,
                            2 * (size_t)list->nreceives) == 0);
        }
        xccl_schedule_set_fini(&set);
        free(texts[0]);
        free(texts[1]);
        group_free(&group);
    }
}

static void text_refused(const char *text, const char *words)
{
    struct xccl_schedule_set set;

    XT_CHECK_RC(xccl_schedule_read(text, strlen(text), "text", &set), xcclInvalidArgument);
    XT_CHECK_HAS(xccl_error_text(), words);
}

XT_TEST(peers_that_cannot_be_are_refused_with_the_line)
{
    text_refused("schedule a all_reduce ranks 1 chunks 1\nrank 0\nsends 0\n",
                 "text:2: sends or receives of rank 0, but only send_recv has them");
    text_refused("schedule a send_recv ranks 1 chunks 1\nrank 0\nsends 1\n", "text:2: ");
    text_refused("schedule a send_recv ranks 1 chunks 1\nrank 0\nreceives x\n",
                 "text:3: \"x\" where a rank belongs");
    text_refused("schedule a send_recv ranks 1 chunks 1\nrank 0\nsends @1 0\n", "text:3: \"@1\"");
    text_refused("schedule a send_recv ranks 1 chunks 1\nsends 0\n", "text:2: sends outside of");
}

XT_TEST(a_failed_allocation_leaves_nothing_behind)
{
    struct group group = {.n = 3, .count = {{1, 2, 0}, {0, 0, 1}, {1, 3, 0}}};
    uint64_t live = xccl_alloc_live();
    xcclResult_t rc = xcclSystemError;
    struct xccl_schedule *schedule;
    struct xccl_verdict verdict;

    group_lists(&group, NULL);
    for (uint64_t k = 1; rc; k++) {
        xccl_inject_arm(k);
        rc = make(&group.lists[0], 3, 0, &schedule);
        if (rc)
            XT_CHECK_RC(rc, xcclSystemError);
        else
            xccl_schedule_destroy(schedule);
        XT_CHECK_INT(xccl_alloc_live(), live);
    }
    xccl_inject_arm(0);
    group_make(&group);
    live = xccl_alloc_live();
    rc = xcclSystemError;
    for (uint64_t k = 1; rc; k++) {
        xccl_inject_arm(k);
        rc = xccl_prove(group.schedules, 3, &verdict);
        XT_CHECK(rc == xcclSuccess || rc == xcclSystemError);
        XT_CHECK_INT(xccl_alloc_live(), live);
    }
    xccl_inject_arm(0);
    XT_CHECK_TEXT(verdict.text, "");
    group_free(&group);
}

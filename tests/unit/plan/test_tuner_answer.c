/* SPDX-License-Identifier: BSD-3-Clause */
/* What the planner asks a tuner, and what it makes of answers: good ones count, all others leave
 * the built-in choice and cost one warning a process. One thread. */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/error.h"
#include "base/log.h"
#include "base/param.h"
#include "plan/plan.h"
#include "plugin/algo_library.h"
#include "schedule/algo_plugin.h"
#include "xt.h"

typedef int32_t answer_fn(const xcclTunerQuery_v1_t *query,
                          xcclTunerCandidate_v1_t *const *candidates, int32_t count);

static answer_fn *answer; /* of the tuner */
static int asked, warnings;
static char warning[1100];
static _Atomic int warned;

static int32_t choose(void *ctx, const xcclTunerQuery_v1_t *query,
                      xcclTunerCandidate_v1_t *const *candidates, int32_t count)
{
    XT_CHECK(ctx == &asked);
    asked++;
    return answer(query, candidates, count);
}

static void finalize(void *ctx)
{
    (void)ctx;
}

static const char *last_error(void)
{
    return "the moon is full";
}

static const xcclTunerPlugin_v1_t calls = {.size = sizeof calls,
                                           .name = "test",
                                           .choose = choose,
                                           .finalize = finalize,
                                           .lastError = last_error};

static void keep_line(enum xccl_log_level level, const char *line)
{
    if (level > XCCL_LOG_WARN)
        return;
    warnings++;
    snprintf(warning, sizeof warning, "%s", line);
}

static void planner_open(struct xccl_planner *planner, int nranks, int all_local, answer_fn *how)
{
    answer = how;
    asked = warnings = 0;
    atomic_store_explicit(&warned, 0, memory_order_relaxed);
    xccl_log_set_sink(keep_line);
    *planner = (struct xccl_planner){.nranks = nranks, .all_local = all_local};
    planner->tuner = (struct xccl_plan_tuner){&calls, &asked, "test (here)", &warned};
    XT_OK(xccl_planner_init(planner, "auto"));
}

static struct xccl_choice choice_of(const struct xccl_planner *planner, enum xccl_coll coll,
                                    size_t bytes)
{
    struct xccl_call call = {.coll = coll, .type = xcclInt32, .count = bytes / 4};
    struct xccl_choice choice;

    XT_OK(xccl_plan_choose(planner, &call, &choice));
    return choice;
}

static xcclTunerCandidate_v1_t *find(xcclTunerCandidate_v1_t *const *candidates, int32_t count,
                                     const char *algorithm, const char *protocol)
{
    for (int32_t i = 0; i < count; i++)
        if (strcmp(candidates[i]->algorithm, algorithm) == 0 &&
            strcmp(candidates[i]->protocol, protocol) == 0)
            return candidates[i];
    XT_FAIL("there is no candidate %s in %s", algorithm, protocol);
    return NULL;
}

/* ---- the question ---- */

static int32_t look(const xcclTunerQuery_v1_t *query, xcclTunerCandidate_v1_t *const *candidates,
                    int32_t count)
{
    int usable = 0;

    XT_CHECK_INT(query->size, sizeof *query);
    XT_CHECK_TEXT(query->collective, "all_reduce");
    XT_CHECK_INT(query->bytes, 4096);
    XT_CHECK_INT(query->elemBytes, 4);
    XT_CHECK_INT(query->root, 0);
    XT_CHECK_TEXT(candidates[0]->algorithm, "oneshot");
    XT_CHECK_TEXT(candidates[0]->protocol, "small");
    XT_CHECK(candidates[0]->cost == 1);
    XT_CHECK(find(candidates, count, "ring", "small")->cost == 2); /* its usual protocol */
    XT_CHECK(find(candidates, count, "ring", "slices")->cost == 3);
    for (int32_t i = 0; i < count; i++) {
        const xcclTunerCandidate_v1_t *one = candidates[i];

        XT_CHECK_INT(one->size, sizeof *one);
        XT_CHECK(one->tileBytes == one->tileMax && one->tileMin && one->tileAlign);
        XT_CHECK_INT(one->tileMax % one->tileAlign, 0);
        XT_CHECK_INT(one->lanes + one->lanesMax, 0);
        XT_CHECK_INT(one->paramMax > 0, strcmp(one->algorithm, "pat") == 0);
        usable += one->cost >= 0;
        for (int32_t j = 0; j < i; j++)
            XT_CHECK(strcmp(candidates[j]->algorithm, one->algorithm) != 0 ||
                     strcmp(candidates[j]->protocol, one->protocol) != 0);
    }
    XT_CHECK(usable >= 27 && count % XCCL_PROTO_NAMED == 0);
    return 0;
}

XT_TEST(all_algorithms_in_all_protocols_are_candidates_and_the_built_in_choice_is_the_first)
{
    struct xccl_planner planner;

    planner_open(&planner, 4, 1, look);
    XT_CHECK_TEXT(choice_of(&planner, XCCL_COLL_ALL_REDUCE, 4096).generator->name, "oneshot");
    XT_CHECK_INT(asked, 1);
    XT_CHECK_INT(warnings, 0);
    xccl_planner_fini(&planner);
}

static int32_t look_at_settings(const xcclTunerQuery_v1_t *query,
                                xcclTunerCandidate_v1_t *const *candidates, int32_t count)
{
    (void)query;
    XT_CHECK_TEXT(candidates[0]->algorithm, "nhr");
    XT_CHECK(find(candidates, count, "ring", "slices")->cost < 0);
    XT_CHECK(find(candidates, count, "nhr", "lines")->cost < 0);
    XT_CHECK(find(candidates, count, "pat", "slices")->cost > 0);
    XT_CHECK_INT(find(candidates, count, "pat", "slices")->param, 4);
    XT_CHECK_INT(find(candidates, count, "pat", "slices")->paramMin, 4);
    XT_CHECK_INT(find(candidates, count, "pat", "slices")->paramMax, 4);
    return 0;
}

XT_TEST(what_settings_leave_out_is_not_to_be_used)
{
    struct xccl_planner planner;

    planner_open(&planner, 4, 1, look_at_settings);
    XT_OK(xccl_algo_setting_parse("all_reduce:nhr,pat:4", &planner.setting));
    XT_OK(xccl_proto_setting_parse("^LL", &planner.protos));
    (void)choice_of(&planner, XCCL_COLL_ALL_REDUCE, 8);
    XT_CHECK_INT(asked, 1);
    xccl_planner_fini(&planner);
}

static int32_t look_at_net(const xcclTunerQuery_v1_t *query,
                           xcclTunerCandidate_v1_t *const *candidates, int32_t count)
{
    (void)query;
    XT_CHECK(find(candidates, count, "ring", "slices")->cost >= 0);
    XT_CHECK(find(candidates, count, "ring", "lines")->cost < 0);
    XT_CHECK(find(candidates, count, "ring", "small")->cost < 0);
    return 0;
}

XT_TEST(over_a_network_only_slices_are_to_be_used)
{
    struct xccl_planner planner;

    planner_open(&planner, 4, 0, look_at_net);
    (void)choice_of(&planner, XCCL_COLL_ALL_REDUCE, 8);
    XT_CHECK_INT(asked, 1);
    xccl_planner_fini(&planner);
}

/* ---- good answers ---- */

static int32_t want_twoshot(const xcclTunerQuery_v1_t *query,
                            xcclTunerCandidate_v1_t *const *candidates, int32_t count)
{
    xcclTunerCandidate_v1_t *one;

    if (strcmp(query->collective, "all_reduce") != 0)
        return 0;
    one = find(candidates, count, "twoshot", "slices");
    one->cost = 0;
    one->tileBytes = 4096;
    return 1;
}

XT_TEST(the_cheapest_candidate_is_chosen_with_its_tile)
{
    struct xccl_planner planner;
    struct xccl_choice choice;

    planner_open(&planner, 4, 1, want_twoshot);
    choice = choice_of(&planner, XCCL_COLL_ALL_REDUCE, 4096);
    XT_CHECK_TEXT(choice.generator->name, "twoshot");
    XT_CHECK_INT(choice.proto, XCCL_PROTO_SLICES);
    XT_CHECK_INT(choice.tile_bytes, 4096);
    XT_CHECK_INT(choice.tuned, 1);
    choice = choice_of(&planner, XCCL_COLL_BARRIER, 0);
    XT_CHECK_INT(choice.tuned, 0);
    XT_CHECK_INT(warnings, 0);
    xccl_planner_fini(&planner);
}

/* A plan whose binding has slots of so many bytes, without links. */
static const struct xccl_plan *plan_of(struct xccl_planner *planner, size_t count)
{
    struct xccl_call call = {.coll = XCCL_COLL_ALL_REDUCE, .type = xcclInt32, .count = count};
    struct xccl_found found;

    XT_OK(xccl_plan_get(planner, &call, &found));
    if (!found.plan) {
        found.binding->slot_bytes = 64u << 10;
        found.binding->ready = 1;
        XT_OK(xccl_plan_get(planner, &call, &found));
    }
    XT_CHECK(found.plan != NULL);
    return found.plan;
}

XT_TEST(the_tile_cuts_the_plan_and_a_kept_plan_asks_nobody)
{
    struct xccl_planner planner;
    const struct xccl_plan *plan;
    uint64_t tuned;

    planner_open(&planner, 4, 1, want_twoshot);
    plan = plan_of(&planner, 1u << 20);
    XT_CHECK_INT(plan->slice_bytes, 4096);
    XT_CHECK_INT(plan->tiles, 256);
    tuned = plan->signature;
    asked = 0;
    XT_CHECK(plan_of(&planner, 1u << 20) == plan);
    XT_CHECK_INT(asked, 0);
    xccl_planner_fini(&planner);
    /* Who chose otherwise is in another call. */
    planner_open(&planner, 4, 1, want_twoshot);
    XT_OK(xccl_algo_setting_parse("twoshot", &planner.setting));
    planner.tuner.calls = NULL;
    plan = plan_of(&planner, 1u << 20);
    XT_CHECK_INT(plan->slice_bytes, 64u << 10);
    XT_CHECK(plan->signature != tuned);
    xccl_planner_fini(&planner);
}

static int32_t forbid_built_in(const xcclTunerQuery_v1_t *query,
                               xcclTunerCandidate_v1_t *const *candidates, int32_t count)
{
    (void)query;
    for (int32_t i = 0; i < count; i++)
        if (strcmp(candidates[i]->algorithm, "oneshot") == 0)
            candidates[i]->cost = -1;
    find(candidates, count, "nhr", "small")->cost = 1.5;
    return 1;
}

XT_TEST(what_is_forbidden_is_not_chosen)
{
    struct xccl_planner planner;

    planner_open(&planner, 4, 1, forbid_built_in);
    XT_CHECK_TEXT(choice_of(&planner, XCCL_COLL_ALL_REDUCE, 4096).generator->name, "nhr");
    xccl_planner_fini(&planner);
}

static int32_t pat_3(const xcclTunerQuery_v1_t *query, xcclTunerCandidate_v1_t *const *candidates,
                     int32_t count)
{
    xcclTunerCandidate_v1_t *pat = find(candidates, count, "pat", "small");

    (void)query;
    pat->cost = 0;
    pat->param = 3;
    return 1;
}

XT_TEST(a_parameter_is_chosen_where_there_is_one)
{
    struct xccl_planner planner;
    struct xccl_choice choice;

    planner_open(&planner, 4, 1, pat_3);
    choice = choice_of(&planner, XCCL_COLL_ALL_GATHER, 4096);
    XT_CHECK_TEXT(choice.generator->name, "pat");
    XT_CHECK_INT(choice.param, 3);
    xccl_planner_fini(&planner);
}

XT_TEST(calls_with_sizes_and_ranks_alone_are_asked_about_by_nobody)
{
    struct xccl_planner planner;

    planner_open(&planner, 1, 1, want_twoshot);
    (void)choice_of(&planner, XCCL_COLL_ALL_REDUCE, 4096);
    XT_CHECK_INT(asked, 0);
    xccl_planner_fini(&planner);
}

/* ---- answers that are none ---- */

static const char *defect; /* which one is at work */

static int is(const char *word)
{
    return strcmp(defect, word) == 0;
}

static int32_t nonsense(const xcclTunerQuery_v1_t *query,
                        xcclTunerCandidate_v1_t *const *candidates, int32_t count)
{
    xcclTunerCandidate_v1_t *first = candidates[0];

    (void)query;
    /* Whatever else it says. */
    find(candidates, count, "twoshot", "small")->cost = 0.5;
    if (is("failed (-2): the moon is full"))
        return -2;
    if (is("returned 2"))
        return 2;
    if (is("edited nothing")) {
        find(candidates, count, "twoshot", "small")->cost = 2;
        return 1;
    }
    if (is("changed the names"))
        first->algorithm = (const char *)(uintptr_t)1; /* no text at all */
    else if (is("field of"))
        find(candidates, count, "rd", "lines")->size = 0;
    else if (is("cost of oneshot in small is no number"))
        first->cost = NAN;
    else if (is("which is not to be used here"))
        find(candidates, count, "hier", "slices")->cost = 0;
    else if (is("forbids all"))
        for (int32_t i = 0; i < count; i++)
            candidates[i]->cost = -1;
    else if (is("the tile of oneshot in small is 0 bytes"))
        first->tileBytes = 0;
    else if (is("in steps of 32"))
        first->tileBytes = first->tileMin + 1;
    else if (is("not 64 to 8192"))
        first->tileBytes = 16384;
    else if (is("the parameter of oneshot is 1"))
        first->param = 1;
    else if (is("oneshot cannot have 2 lanes"))
        first->lanes = 2;
    if (!is("forbids all") && first->cost > 0)
        first->cost = 0;
    return 1;
}

XT_TEST(each_kind_of_nonsense_leaves_the_built_in_choice_and_costs_one_warning)
{
    static const char *const defects[] = {
        "failed (-2): the moon is full",
        "returned 2",
        "edited nothing",
        "changed the names",
        "field of",
        "cost of oneshot in small is no number",
        "forbids all",
        "the tile of oneshot in small is 0 bytes",
        "in steps of 32",
        "not 64 to 8192",
        "the parameter of oneshot is 1",
        "oneshot cannot have 2 lanes",
    };

    for (size_t i = 0; i < sizeof defects / sizeof defects[0]; i++) {
        struct xccl_planner planner;

        defect = defects[i];
        planner_open(&planner, 4, 1, nonsense);
        for (int round = 0; round < 3; round++) {
            struct xccl_choice choice = choice_of(&planner, XCCL_COLL_ALL_REDUCE, 4096);

            XT_CHECK_TEXT(choice.generator->name, "oneshot");
            XT_CHECK_INT(choice.tuned, 0);
        }
        XT_CHECK_INT(asked, 3);
        XT_CHECK_INT(warnings, 1);
        XT_CHECK_HAS(warning, "tuner plugin test (here), queried about all_reduce of 4096 bytes");
        XT_CHECK_HAS(warning, defects[i]);
        XT_CHECK_HAS(warning, "the built-in choice is used");
        xccl_planner_fini(&planner);
    }
}

static int32_t want_unusable(const xcclTunerQuery_v1_t *query,
                             xcclTunerCandidate_v1_t *const *candidates, int32_t count)
{
    (void)query;
    find(candidates, count, "ring", "lines")->cost = 0;
    return 1;
}

XT_TEST(a_protocol_that_cannot_be_used_is_not_taken)
{
    struct xccl_planner planner;

    planner_open(&planner, 4, 0, want_unusable);
    XT_CHECK_INT(choice_of(&planner, XCCL_COLL_ALL_REDUCE, 4096).tuned, 0);
    XT_CHECK_INT(warnings, 1);
    XT_CHECK_HAS(warning, "it gave a cost to ring in lines, which is not to be used here");
    xccl_planner_fini(&planner);
}

static int32_t want_wrong(const xcclTunerQuery_v1_t *query,
                          xcclTunerCandidate_v1_t *const *candidates, int32_t count)
{
    (void)query;
    find(candidates, count, "line", "lines")->cost = 0;
    return 1;
}

XT_TEST(an_algorithm_of_a_plugin_that_its_proof_refuses_leaves_the_built_in_choice)
{
    struct xccl_call call = {.coll = XCCL_COLL_BROADCAST, .type = xcclInt32, .count = 2};
    struct xccl_planner planner;
    struct xccl_binding *binding = NULL;
    struct xccl_choice choice;

    xt_setenv("XCCL_PLUGIN_PATH", XT_BUILD_DIR "/lib/fixtures");
    XT_OK(xccl_param_load());
    XT_OK(xccl_algo_libraries_load("fx-wrong", xccl_algo_plugin_add));
    planner_open(&planner, 4, 1, want_wrong);
    XT_OK(xccl_plan_bind(&planner, &call, &choice, &binding));
    XT_CHECK_TEXT(choice.generator->name, "binomial");
    XT_CHECK_INT(choice.tuned, 0);
    XT_CHECK(binding != NULL);
    XT_CHECK_HAS(warning, "it chose line, which cannot be used: algorithm line of broadcast");
    xccl_planner_fini(&planner);
}

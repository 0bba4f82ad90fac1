/* SPDX-License-Identifier: BSD-3-Clause */
/* The setting XCCL_PROTO: its grammar, what the choice makes of it, and that ranks compare it. One
 * thread; each test is a process of its own.
 */
#include "plan/plan.h"

#include "base/error.h"
#include "base/param.h"
#include "xt.h"

#define ALL_OF(coll) (allowed(&setting, XCCL_COLL_##coll))

/* As letters of the three protocols. */
static const char *allowed(const struct xccl_proto_setting *setting, enum xccl_coll coll)
{
    static char letters[2][4];
    static int turn;
    char *at = letters[turn ^= 1];
    int count = 0;

    for (int proto = 0; proto < XCCL_PROTO_NAMED; proto++)
        if (xccl_proto_setting_allows(setting, coll, (enum xccl_proto)proto))
            at[count++] = "lms"[proto];
    at[count] = '\0';
    return at;
}

XT_TEST(all_protocols_have_names_and_one_cannot_be_asked_for)
{
    struct xccl_proto_setting setting;

    for (int proto = 0; proto < XCCL_PROTO_COUNT; proto++)
        XT_CHECK(strlen(xccl_proto_name((enum xccl_proto)proto)) > 0);
    XT_CHECK_TEXT(xccl_proto_name(XCCL_PROTO_TIGHT), "tight slices");
    XT_CHECK_RC(xccl_proto_setting_parse("tight slices", &setting), xcclInvalidUsage);
}

XT_TEST(names_are_ours_or_nccls_in_any_case_and_a_caret_leaves_out)
{
    static const struct {
        const char *text, *all_reduce, *broadcast;
    } cases[] = {
        {"", "lms", "lms"},
        {"auto", "lms", "lms"},
        {"lines", "l", "l"},
        {"LL", "l", "l"},
        {"ll128,SIMPLE", "ms", "ms"},
        {"Small,slices", "ms", "ms"},
        {"^lines", "ms", "ms"},
        {"^LL,Simple", "m", "m"},
        {"^LL;AllReduce:LL", "l", "ms"},
        {"all_reduce:LL;^LL", "l", "ms"},
        {"all_reduce:^small;broadcast:slices", "ls", "s"},
        {"lines;", "l", "l"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct xccl_proto_setting setting;

        XT_OK(xccl_proto_setting_parse(cases[i].text, &setting));
        XT_CHECK_TEXT(ALL_OF(ALL_REDUCE), cases[i].all_reduce);
        XT_CHECK_TEXT(ALL_OF(BROADCAST), cases[i].broadcast);
    }
}

XT_TEST(a_word_that_is_no_protocol_is_an_error_that_shows_it)
{
    static const struct {
        const char *text, *word;
    } cases[] = {
        {"slics", "\"slics\" is not a protocol"},
        {"lines,", "\"\" is not a protocol"},
        {"lines,,small", "\"\" is not a protocol"},
        {"^", "\"\" is not a protocol"},
        {"lines,^small", "\"^small\" is not a protocol"},
        {"allreduse:LL", "\"allreduse\" is not a collective"},
        {"send_recv:LL", "\"send_recv\" is not a collective"}, /* it has no schedules */
        {"all_reduce:", "\"\" is not a protocol"},
        {"^all_reduce:LL", "\"^all_reduce\" is not a collective"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct xccl_proto_setting setting;

        XT_CHECK_RC(xccl_proto_setting_parse(cases[i].text, &setting), xcclInvalidUsage);
        XT_CHECK_HAS(xccl_error_text(), cases[i].word);
    }
}

static enum xccl_proto chosen(struct xccl_planner *planner, size_t bytes)
{
    struct xccl_call call = {.coll = XCCL_COLL_ALL_REDUCE, .type = xcclInt8, .count = bytes};
    struct xccl_choice choice;

    XT_OK(xccl_plan_choose(planner, &call, &choice));
    return choice.proto;
}

XT_TEST(what_is_left_out_gives_way_to_the_next_larger_then_the_next_smaller)
{
    struct xccl_planner planner = {.nranks = 4, .all_local = 1};

    XT_OK(xccl_proto_setting_parse("^lines", &planner.protos));
    XT_CHECK_INT(chosen(&planner, 8), XCCL_PROTO_SMALL);
    XT_CHECK_INT(chosen(&planner, 1u << 20), XCCL_PROTO_SLICES);
    XT_OK(xccl_proto_setting_parse("^small", &planner.protos));
    XT_CHECK_INT(chosen(&planner, 8), XCCL_PROTO_LINES);
    XT_CHECK_INT(chosen(&planner, 4096), XCCL_PROTO_SLICES);
    XT_OK(xccl_proto_setting_parse("lines,small", &planner.protos));
    XT_CHECK_INT(chosen(&planner, 1u << 20), XCCL_PROTO_SMALL);
}

XT_TEST(over_a_network_only_slices_are_left)
{
    struct xccl_planner planner = {.nranks = 4};
    struct xccl_call call = {.coll = XCCL_COLL_ALL_REDUCE, .type = xcclInt8, .count = 8};
    struct xccl_choice choice;

    XT_OK(xccl_proto_setting_parse("LL", &planner.protos));
    XT_CHECK_RC(xccl_plan_choose(&planner, &call, &choice), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "XCCL_PROTO leaves no protocol of all_reduce for 4 ranks over");
    XT_OK(xccl_proto_setting_parse("Simple", &planner.protos));
    XT_CHECK_INT(chosen(&planner, 8), XCCL_PROTO_SLICES);
}

XT_TEST(a_rank_alone_sends_nothing_so_nothing_can_be_left_out)
{
    struct xccl_planner planner = {.nranks = 1, .all_local = 1};

    XT_OK(xccl_proto_setting_parse("LL", &planner.protos));
    XT_CHECK_INT(chosen(&planner, 8), XCCL_PROTO_SLICES);
}

XT_TEST(ranks_with_different_settings_are_told_apart)
{
    uint64_t before;

    XT_OK(xccl_param_load());
    before = xccl_param_job_hash();
    xt_setenv("XCCL_PROTO", "^lines");
    xccl_param_reset();
    XT_CHECK(xccl_param_job_hash() != before);
}

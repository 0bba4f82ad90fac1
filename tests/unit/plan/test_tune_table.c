/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of the tuner that comes with XCCL: its text form, how a call is looked up, and that the
 * table it ships says what the library would choose. One thread. */
#include "tune_table.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "plan/plan.h"
#include "tune_builtin.h"
#include "xt.h"

#define HEAD "tuner-table 1\n"

static struct tune_table table;
static xcclTunerComm_v1_t about;

static void read_text(const char *text)
{
    char error[TUNE_ERROR_BYTES] = "";

    tune_table_free(&table);
    if (!tune_table_read(text, strlen(text), &table, error))
        XT_FAIL("refused: %s", error);
}

static void refused(const char *text, const char *why)
{
    struct tune_table none = {NULL, 7};
    char error[TUNE_ERROR_BYTES] = "";

    XT_CHECK_INT(tune_table_read(text, strlen(text), &none, error), 0);
    XT_CHECK_HAS(error, why);
    XT_CHECK_INT(none.count, 7);
}

XT_TEST(a_row_is_nine_words_and_a_comment_is_none)
{
    read_text("# first\n\n" HEAD "  all_reduce 8-64K 2 1- local pat:4 small 3 32K # tail\n"
              "barrier\t*  *  *  *  dissemination auto auto auto");
    XT_CHECK_INT(table.count, 2);
    XT_CHECK_TEXT(table.rows[0].collective, "all_reduce");
    XT_CHECK_INT(table.rows[0].bytes.low, 8);
    XT_CHECK_INT(table.rows[0].bytes.high, 64 << 10);
    XT_CHECK_INT(table.rows[0].ranks.low, 2);
    XT_CHECK_INT(table.rows[0].ranks.high, 2);
    XT_CHECK_INT(table.rows[0].nodes.low, 1);
    XT_CHECK_INT(table.rows[0].nodes.high, INT32_MAX);
    XT_CHECK_INT(table.rows[0].links, TUNE_LINKS_LOCAL);
    XT_CHECK_TEXT(table.rows[0].algorithm, "pat");
    XT_CHECK_INT(table.rows[0].param, 4);
    XT_CHECK_TEXT(table.rows[0].protocol, "small");
    XT_CHECK_INT(table.rows[0].lanes, 3);
    XT_CHECK_INT(table.rows[0].tile, 32 << 10);
    XT_CHECK(table.rows[1].bytes.low == 0 && table.rows[1].bytes.high == UINT64_MAX);
    XT_CHECK(!table.rows[1].protocol && !table.rows[1].lanes && !table.rows[1].tile);
    tune_table_free(&table);
}

XT_TEST(what_is_no_table_is_refused_with_its_line_and_what_to_write)
{
    static const struct {
        const char *row, *why;
    } cases[] = {
        {"all_reduse * * * * ring auto auto auto", "word 1 is \"all_reduse\"; write a collective"},
        {"all_reduce 8-4 * * * ring auto auto auto", "line 2: word 2 is \"8-4\"; write bytes"},
        {"all_reduce 8- 0-3000000000 * * ring auto auto auto", "word 3 is \"0-3000000000\""},
        {"all_reduce 99999999999999999999 * * * ring auto auto auto", "word 2 is"},
        {"all_reduce 17179869184G * * * ring auto auto auto", "word 2 is"},
        {"all_reduce -8 * * * ring auto auto auto", "word 2 is \"-8\""},
        {"all_reduce 8k * * * ring auto auto auto", "word 2 is \"8k\""},
        {"all_reduce * * x * ring auto auto auto", "word 4 is \"x\"; write nodes"},
        {"all_reduce * * * far ring auto auto auto", "word 5 is \"far\"; write local"},
        {"all_reduce * * * * Ring auto auto auto", "word 6 is \"Ring\"; write an algorithm"},
        {"all_reduce * * * * pat: auto auto auto", "word 6 is \"pat:\""},
        {"all_reduce * * * * pat:0 auto auto auto", "word 6 is \"pat:0\""},
        {"all_reduce * * * * ring LL auto auto", "word 7 is \"LL\"; write lines"},
        {"all_reduce * * * * ring auto 0 auto", "word 8 is \"0\""},
        {"all_reduce * * * * ring auto auto 0", "word 9 is \"0\""},
        {"all_reduce * * * * ring auto auto", "but this one has 8"},
        {"all_reduce * * * * ring auto auto auto auto", "but this one has more"},
        {"\x1b[31m * * * * ring auto auto auto", "word 1 is \"?[31m\""},
        {"tuner-table 1", "but this one has 2"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256];

        snprintf(text, sizeof text, HEAD "%s\n", cases[i].row);
        refused(text, cases[i].why);
    }
    refused("", "the table is empty");
    refused("# nothing\n", "the table is empty");
    refused("tuner-table 2\n", "line 1: a table begins with \"tuner-table 1\"");
    refused("all_reduce * * * * ring auto auto auto\n", "a table begins with");
}

XT_TEST(text_that_is_too_much_is_refused)
{
    char *text = calloc(1, TUNE_TEXT_BYTES_MAX + 2), error[TUNE_ERROR_BYTES];
    struct tune_table none;
    size_t used;

    XT_CHECK(text != NULL);
    memset(text, 'x', 400);
    refused(text, "line 1: it has more than 255 letters");
    XT_CHECK_INT(tune_table_read(HEAD "\0", sizeof HEAD, &none, error), 0);
    XT_CHECK_HAS(error, "line 2: there is a zero byte");
    memset(text, '\n', TUNE_TEXT_BYTES_MAX + 1);
    XT_CHECK_INT(tune_table_read(text, TUNE_TEXT_BYTES_MAX + 1, &none, error), 0);
    XT_CHECK_HAS(error, "more than 1048576 bytes");
    used = (size_t)sprintf(text, HEAD);
    for (int i = 0; i <= TUNE_ROWS_MAX; i++)
        used += (size_t)sprintf(text + used, "reduce * * * * chain auto auto auto\n");
    XT_CHECK_INT(tune_table_read(text, used, &none, error), 0);
    XT_CHECK_HAS(error, "line 4098: there are more than 4096 rows");
    free(text);
}

/* ---- looking up, through the planner that asks ---- */

static int32_t choose(void *ctx, const xcclTunerQuery_v1_t *query,
                      xcclTunerCandidate_v1_t *const *candidates, int32_t count)
{
    (void)ctx;
    return tune_table_choose(&table, &about, query, candidates, count);
}

static void finalize(void *ctx)
{
    (void)ctx;
}

static const xcclTunerPlugin_v1_t calls = {
    .size = sizeof calls, .name = "table", .choose = choose, .finalize = finalize};
static _Atomic int warned;

/* cores 0: not known. */
static void planner_open(struct xccl_planner *planner, int nranks, int all_local, int cores)
{
    *planner = (struct xccl_planner){.nranks = nranks,
                                     .all_local = all_local,
                                     .is_crowded = all_local && cores && nranks > cores};
    planner->tuner = (struct xccl_plan_tuner){&calls, NULL, "table", &warned};
    about = (xcclTunerComm_v1_t){.size = sizeof about,
                                 .nranks = nranks,
                                 .nnodes = all_local ? 1 : 2,
                                 .allLocal = all_local,
                                 .cores = cores};
}

static struct xccl_choice choice_of(const struct xccl_planner *planner, enum xccl_coll coll,
                                    size_t bytes)
{
    struct xccl_call call = {.coll = coll, .type = xcclInt8, .count = bytes};
    struct xccl_choice choice;

    XT_OK(xccl_plan_choose(planner, &call, &choice));
    XT_CHECK_INT(atomic_load_explicit(&warned, memory_order_relaxed), 0);
    return choice;
}

static void check_same(struct xccl_planner *planner, enum xccl_coll coll, size_t bytes)
{
    struct xccl_choice tuned = choice_of(planner, coll, bytes), plain;

    planner->tuner.calls = NULL;
    plain = choice_of(planner, coll, bytes);
    planner->tuner.calls = &calls;
    if ((!tuned.tuned && planner->all_local) || tuned.generator != plain.generator ||
        tuned.proto != plain.proto || tuned.param != plain.param ||
        tuned.tile_bytes != plain.tile_bytes)
        XT_FAIL("%s of %zu bytes on %d ranks (%s): the table says %s, protocol %d%s, and the "
                "library %s, %d",
                xccl_coll_name(coll), bytes, planner->nranks, planner->all_local ? "local" : "net",
                tuned.generator->name, (int)tuned.proto, tuned.tuned ? "" : " by no row",
                plain.generator->name, (int)plain.proto);
}

XT_TEST(the_table_that_is_shipped_says_what_the_library_would_choose)
{
    static const int ranks[] = {2, 3, 4, 5, 8, 9, 16, 17, 32, 33, 64, 65, 200};
    static const size_t edges[] = {1,     224,      1024,     8192,    9000,
                                   32768, 64 << 10, 65 << 10, 1 << 20, 64 << 20};
    static const int cores[] = {0, 1, 2, 8, 16};

    read_text(tune_builtin);
    for (size_t i = 0; i < 10 * sizeof ranks / sizeof ranks[0]; i++) {
        struct xccl_planner planner;

        planner_open(&planner, ranks[i / 10], (int)(i & 1), cores[i / 2 % 5]);
        for (int hosts = 0; hosts <= 3; hosts++) {
            int nodes[200];

            for (int rank = 0; rank < ranks[i / 10] && hosts; rank++)
                nodes[rank] = rank % hosts;
            planner.nodes = hosts && !planner.all_local ? nodes : NULL;
            for (int coll = 0; coll <= XCCL_COLL_BARRIER; coll++)
                for (size_t j = 0; j < 3 * sizeof edges / sizeof edges[0]; j++)
                    check_same(&planner, (enum xccl_coll)coll, edges[j / 3] + j % 3 - 1);
        }
    }
    tune_table_free(&table);
}

XT_TEST(rows_for_a_crowd_hold_where_ranks_share_memory_and_are_more_than_cores)
{
    static const struct {
        int nranks, all_local, cores;
        const char *want;
    } cases[] = {{4, 1, 3, "rd"},   {4, 1, 4, "nhr"}, {4, 1, 0, "nhr"},
                 {4, 0, 3, "ring"}, {2, 1, 1, "rd"},  {2, 1, 2, "nhr"}};

    read_text(HEAD "all_reduce * * * crowded rd   auto auto auto\n"
                   "all_reduce * * * local   nhr  auto auto auto\n"
                   "all_reduce * * * net     ring auto auto auto\n");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct xccl_planner planner;

        planner_open(&planner, cases[i].nranks, cases[i].all_local, cases[i].cores);
        XT_CHECK_TEXT(choice_of(&planner, XCCL_COLL_ALL_REDUCE, 100).generator->name,
                      cases[i].want);
    }
    tune_table_free(&table);
}

XT_TEST(the_first_row_that_holds_and_can_be_used_is_taken)
{
    struct xccl_planner planner;
    struct xccl_choice choice;

    read_text(HEAD "all_reduce 100- 2- 1  net   ring    auto   auto auto\n"
                   "all_reduce 100- 2- 1  local unknown auto   auto auto\n"
                   "all_reduce 100- 8- 1  local ring    auto   auto auto\n"
                   "all_reduce 100- 2- 2- *     ring    auto   auto auto\n"
                   "all_reduce 100- 4  1  local pat:999999 auto auto auto\n"
                   "all_reduce 100- 4  1  local pat:2   small  8    1001\n"
                   "all_reduce *    4  1  local rd      slices auto 1G\n");
    planner_open(&planner, 4, 1, 2);
    choice = choice_of(&planner, XCCL_COLL_ALL_REDUCE, 100000);
    XT_CHECK_TEXT(choice.generator->name, "pat");
    XT_CHECK_INT(choice.param, 2);
    XT_CHECK_INT(choice.proto, XCCL_PROTO_SMALL);
    XT_CHECK_INT(choice.tile_bytes, 992); /* a multiple; the lanes are not to be chosen */
    choice = choice_of(&planner, XCCL_COLL_ALL_REDUCE, 99);
    XT_CHECK_TEXT(choice.generator->name, "rd");
    XT_CHECK_INT(choice.proto, XCCL_PROTO_SLICES);
    XT_CHECK_INT(choice.tile_bytes, 0); /* as large as can be */
    choice = choice_of(&planner, XCCL_COLL_ALL_GATHER, 99);
    XT_CHECK_INT(choice.tuned, 0);
    tune_table_free(&table);
}

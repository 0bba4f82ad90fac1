/* SPDX-License-Identifier: BSD-3-Clause */
/* Algorithms of plugins: found and used like built-in ones, proven before that, refused with the
 * place where they are wrong; whatever numbers they give do no harm.
 *
 * Each test is a process of its own, so what a test adds is gone with it. Thread: one a test, but
 * where a test says so. */
#include "schedule/algo_plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/log.h"
#include "base/param.h"
#include "plugin/algo_library.h"
#include "schedule/verify.h"
#include "xt.h"

#define EXAMPLES XT_BUILD_DIR "/lib/xccl"
#define FIXTURES XT_BUILD_DIR "/lib/fixtures"

static int generator_count(void)
{
    int count = 0;

    while (xccl_generator_at(count))
        count++;
    return count;
}

static xcclResult_t load(const char *list)
{
    xt_setenv("XCCL_PLUGIN_PATH", EXAMPLES ":" FIXTURES);
    XT_OK(xccl_param_load());
    return xccl_algo_libraries_load(list, xccl_algo_plugin_add);
}

static const struct xccl_generator *found(enum xccl_coll coll, const char *name)
{
    int param;
    const struct xccl_generator *generator = xccl_generator_find(coll, name, &param);

    XT_CHECK(generator != NULL);
    return generator;
}

static xcclResult_t proven(const struct xccl_generator *generator, int nranks)
{
    const struct xccl_generator_for what = {.nranks = nranks};

    return xccl_algo_plugin_prove(generator, &what, NULL);
}

/* ---- files ---- */

XT_TEST(an_algorithm_of_a_plugin_is_found_and_proven_like_a_built_in_one)
{
    const struct xccl_generator *hello, *mesh = found(XCCL_COLL_ALL_GATHER, "mesh");
    int before = generator_count();

    XT_OK(load(" hello ,"));
    XT_CHECK_INT(generator_count(), before + 1);
    hello = found(XCCL_COLL_ALL_GATHER, "hello");
    XT_CHECK_HAS(xccl_algo_plugin_path(hello), "/libxccl-algo-hello.so");
    XT_CHECK(!xccl_algo_plugin_path(mesh));
    for (int n = 1; n <= 9; n++) {
        const struct xccl_generator_for what = {.nranks = n, .rank = n / 2};
        struct xccl_schedule *ours, *theirs;

        XT_OK(xccl_algo_plugin_prove(hello, &what, &theirs));
        XT_OK(xccl_algo_plugin_prove(mesh, &what, &ours));
        XT_CHECK_INT(theirs->rank, n / 2);
        XT_CHECK_INT(theirs->class, ours->class);
        XT_CHECK_INT(theirs->minslots, ours->minslots);
        XT_CHECK_INT(theirs->nsteps, ours->nsteps);
        XT_CHECK(memcmp(theirs->steps, ours->steps, ours->nsteps * sizeof(*ours->steps)) == 0);
        XT_CHECK_INT(theirs->nconns, ours->nconns);
        XT_CHECK(memcmp(theirs->conns, ours->conns, ours->nconns * sizeof(*ours->conns)) == 0);
        xccl_schedule_destroy(ours);
        xccl_schedule_destroy(theirs);
    }
}

XT_TEST(a_plugin_that_is_loaded_again_is_there_once)
{
    int before = generator_count();

    XT_OK(load("hello," EXAMPLES "/libxccl-algo-hello.so"));
    XT_OK(load("hello"));
    XT_CHECK_INT(generator_count(), before + 1);
}

XT_TEST(a_hierarchy_has_an_algorithm_of_a_plugin_as_a_part)
{
    const int nodes[] = {0, 0, 0, 0, 1, 1, 1, 2};
    const struct xccl_generator_for what = {
        .nranks = 8, .nodes = nodes, .inner = "hello", .outer = "hello"};

    XT_OK(load("hello"));
    XT_OK(xccl_algo_plugin_prove(found(XCCL_COLL_ALL_GATHER, "hier"), &what, NULL));
}

static void is_refused(const char *item, const char *why)
{
    int before = generator_count();

    XT_CHECK_RC(load(item), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), why);
    XT_CHECK_INT(generator_count(), before);
}

XT_TEST(a_file_that_is_no_algorithm_plugin_is_refused_and_the_error_says_why)
{
    is_refused("not-there", "no such file in " EXAMPLES ", " FIXTURES);
    is_refused("not-there", "correct XCCL_ALGO_PLUGIN");
    is_refused("libxccl-algo-hello.so", "a path must contain a slash");
    is_refused("/not/there.so", "No such file");
    is_refused(XT_SOURCE_DIR "/README.md", "README.md");
    is_refused("fx-no-symbol", "it has no symbol xcclAlgoPlugin_v1");
    is_refused("fx-short-table", "its table has 16 bytes; version 1 has");
    is_refused("fx-null-entry", "algorithm line has no emit: it is NULL");
    is_refused("fx-clash", "chain of broadcast is a built-in algorithm");
    is_refused("socket", "no such file");
    XT_OK(load(""));
    XT_OK(load("hello"));
}

XT_TEST(a_file_that_anybody_can_change_is_not_loaded)
{
    char command[512], path[300];

    snprintf(path, sizeof(path), "%s/libxccl-algo-open.so", xt_tmpdir());
    snprintf(command, sizeof(command), "cp %s/libxccl-algo-hello.so %s", EXAMPLES, path);
    XT_CHECK_INT(system(command), 0);
    XT_CHECK_INT(chmod(path, 0777), 0);
    is_refused(path, "is world-writable: chmod o-w it");
    XT_CHECK_INT(chmod(path, 0755), 0);
    XT_OK(load(path));
}

XT_TEST(a_wrong_algorithm_is_refused_with_a_counter_example)
{
    const struct xccl_generator *wrong;

    XT_OK(load("fx-wrong"));
    wrong = found(XCCL_COLL_BROADCAST, "line");
    XT_CHECK_RC(proven(wrong, 4), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "algorithm line of broadcast (" FIXTURES);
    XT_CHECK_HAS(xccl_error_text(), "is refused for 4 ranks: ");
    XT_CHECK_HAS(xccl_error_text(), "rank 3");
    /* With two ranks and the last one as root nobody is forgotten. */
    XT_OK(
        xccl_algo_plugin_prove(wrong, &(struct xccl_generator_for){.nranks = 2, .root = 1}, NULL));
}

XT_TEST(a_step_that_cannot_be_is_told_by_algorithm_rank_and_step)
{
    XT_OK(load("fx-bad-step"));
    XT_CHECK_RC(proven(found(XCCL_COLL_BROADCAST, "line"), 4), xcclInvalidArgument);
    XT_CHECK_HAS(xccl_error_text(), "algorithm line of plugin fx, rank 0 of 4, lane 0, step 0: "
                                    "src has 70000 chunks, not 1 to 65535");
}

/* ---- tables ---- */

static void emit_nothing(const xcclAlgoBuilder_v1_t *build, const xcclAlgoFor_v1_t *what)
{
    (void)build;
    (void)what;
}

static xcclAlgorithm_v1_t good_algorithm(void)
{
    return (xcclAlgorithm_v1_t){.size = sizeof(xcclAlgorithm_v1_t),
                                .name = "mine",
                                .help = "of a test",
                                .coll = xcclAlgoAllReduce,
                                .emit = emit_nothing};
}

/* Tables have to stay as long as the process. */
static xcclResult_t add_table(const xcclAlgorithm_v1_t *const *algorithms, int count)
{
    static xcclAlgoPlugin_v1_t tables[64];
    static int used;
    xcclAlgoPlugin_v1_t *table = &tables[used++];

    *table = (xcclAlgoPlugin_v1_t){
        .size = sizeof(*table), .name = "test", .count = count, .algorithms = algorithms};
    return xccl_algo_plugin_add(table, "/a/test.so");
}

static void table_is_refused(const xcclAlgorithm_v1_t *algorithm, const char *why)
{
    int before = generator_count();

    XT_CHECK_RC(add_table(&algorithm, 1), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "algorithm plugin /a/test.so: ");
    XT_CHECK_HAS(xccl_error_text(), why);
    XT_CHECK_INT(generator_count(), before);
}

#define WITH(field, value, why)                                                                    \
    do {                                                                                           \
        xcclAlgorithm_v1_t algorithm = good_algorithm();                                           \
        algorithm.field = (value);                                                                 \
        table_is_refused(&algorithm, why);                                                         \
    } while (0)

XT_TEST(an_algorithm_that_is_not_as_the_contract_says_is_refused)
{
    char long_help[300];

    memset(long_help, 'x', sizeof(long_help));
    table_is_refused(NULL, "algorithm 0 is NULL");
    WITH(size, 0, "algorithm 0 has 0 bytes; version 1 has at least 64");
    WITH(size, sizeof(xcclAlgorithm_v1_t) - 8, "algorithm 0 has 56 bytes");
    WITH(size, SIZE_MAX, "algorithm 0 has 18446744073709551615 bytes");
    WITH(name, NULL, "the name of algorithm 0 must have");
    WITH(name, "", "the name of algorithm 0 must have");
    WITH(name, "Ring", "the name of algorithm 0 must have");
    WITH(name, "a:4", "the name of algorithm 0 must have");
    WITH(name, "../a", "the name of algorithm 0 must have");
    WITH(name, long_help, "the name of algorithm 0 must have");
    WITH(help, NULL, "the help of algorithm mine must be");
    WITH(help, "two\nlines", "the help of algorithm mine must be");
    WITH(help, long_help, "the help of algorithm mine must be");
    WITH(coll, -1, "is for collective -1; collectives are 0 to 8");
    WITH(coll, 9, "is for collective 9");
    WITH(scrbufs, -1, "has scrbufs -1");
    WITH(scrbufs, 1 << 30, "has scrbufs 1073741824");
    WITH(emit, NULL, "has no emit");
    WITH(name, "ring", "ring of all_reduce is a built-in algorithm");
}

XT_TEST(a_table_that_is_not_as_the_contract_says_is_refused)
{
    const xcclAlgorithm_v1_t one = good_algorithm();
    const xcclAlgorithm_v1_t *two[] = {&one, &one}, *many[33];
    xcclAlgoPlugin_v1_t table = {.size = sizeof(table), .count = 1, .algorithms = two};
    int before = generator_count();

    XT_CHECK_RC(xccl_algo_plugin_add(&table, "x"), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "its name must have");
    XT_CHECK_RC(add_table(NULL, 1), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "it has no algorithms: count is 1, algorithms is NULL");
    XT_CHECK_RC(add_table(two, -7), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "it has no algorithms: count is -7");
    XT_CHECK_RC(add_table(two, 2), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "it has two algorithms mine of all_reduce");
    for (int i = 0; i < 33; i++)
        many[i] = &one;
    XT_CHECK_RC(add_table(many, 33), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "it has 33 algorithms; a process has room for 32");
    XT_CHECK_INT(generator_count(), before);
    XT_OK(add_table(two, 1));
    XT_CHECK_INT(generator_count(), before + 1);
    XT_CHECK_RC(add_table(two, 1), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "mine of all_reduce already exists, from /a/test.so");
}

XT_TEST(a_process_has_room_for_32_algorithms_and_each_calls_its_own_functions)
{
    static xcclAlgorithm_v1_t algorithms[32];
    static char names[32][16];
    const xcclAlgorithm_v1_t *table[32];

    for (int i = 0; i < 32; i++) {
        algorithms[i] = good_algorithm();
        snprintf(names[i], sizeof(names[i]), "a%d", i);
        algorithms[i].name = names[i];
        table[i] = &algorithms[i];
    }
    XT_OK(add_table(table, 32));
    for (int i = 0; i < 32; i++) {
        char text[96];

        snprintf(text, sizeof(text),
                 "algorithm a%d of plugin test, rank 0 of 2: it creates no lane", i);
        XT_CHECK_RC(proven(found(XCCL_COLL_ALL_REDUCE, names[i]), 2), xcclInvalidArgument);
        XT_CHECK_HAS(xccl_error_text(), text);
    }
    XT_CHECK_RC(add_table(table, 1), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "and 0 are left");
}

/* An algorithm of a later version of the contract: with a field more. */
struct longer_algorithm {
    xcclAlgorithm_v1_t known;
    void (*more)(void);
};

static void emit_longer(const xcclAlgoBuilder_v1_t *build, const xcclAlgoFor_v1_t *what)
{
    struct {
        xcclAlgoStep_v1_t known;
        int64_t more;
    } step = {.known = {.size = sizeof(step),
                        .op = XCCL_ALGO_SRC | XCCL_ALGO_DST,
                        .flags = XCCL_ALGO_PRE | XCCL_ALGO_POST,
                        .src = {.buffer = xcclAlgoIn, .count = 1},
                        .dst = {.buffer = xcclAlgoOut, .count = 1}}};

    XT_CHECK_INT(what->size, sizeof(*what));
    XT_CHECK_INT(build->size, sizeof(*build));
    step.more = what->nranks == 1 ? 0 : 4;
    build->step(build, build->lane(build), &step.known);
}

XT_TEST(longer_structs_are_taken_but_for_steps_that_mean_more)
{
    static struct longer_algorithm longer;
    const xcclAlgorithm_v1_t *table = &longer.known;

    longer.known = good_algorithm();
    longer.known.size = sizeof(longer);
    longer.known.emit = emit_longer;
    longer.more = NULL;
    XT_OK(add_table(&table, 1));
    XT_OK(proven(found(XCCL_COLL_ALL_REDUCE, "mine"), 1));
    XT_CHECK_RC(proven(found(XCCL_COLL_ALL_REDUCE, "mine"), 2), xcclInvalidArgument);
    XT_CHECK_HAS(xccl_error_text(), "rank 0 of 2, lane 0, step 0: the step has fields that this "
                                    "XCCL does not know");
}

/* ---- hostile values ---- */

#define COPY_OP (XCCL_ALGO_SRC | XCCL_ALGO_DST)
#define ADD_OP  (XCCL_ALGO_SRC | XCCL_ALGO_RECV | XCCL_ALGO_DST)
#define XCHG_OP (COPY_OP | XCCL_ALGO_RECV | XCCL_ALGO_SEND | XCCL_ALGO_XCHG)
#define ONE_IN                                                                                     \
    {                                                                                              \
        .buffer = xcclAlgoIn, .count = 1                                                           \
    }
#define ONE_OUT                                                                                    \
    {                                                                                              \
        .buffer = xcclAlgoOut, .count = 1                                                          \
    }

/* A step that each rank emits over connections 0 (to the next), 1 and 2 (from the next and the one
 * after that, one group), and what is said about it. */
static const struct hostile {
    xcclAlgoStep_v1_t step;
    const char *why;
} hostile[] = {
    {{.op = 0}, "op 0x0 is not one of the twelve"},
    {{.op = 0xffffffff}, "op 0xffffffff is not one of"},
    {{.op = 256 | COPY_OP}, "op 0x103 is not one"},
    {{.op = XCCL_ALGO_ACC | XCCL_ALGO_SEND}, "op 0x18 is not one"},
    {{.op = COPY_OP, .flags = 16}, "flags 0x10 has unknown bits"},
    {{.op = COPY_OP, .reserved = 1}, "the step has fields that this XCCL does not know"},
    {{.op = COPY_OP, .flags = 64}, "flags 0x40 has unknown bits"},
    {{.op = COPY_OP, .src = {.buffer = -1, .count = 1}}, "src is buffer -1"},
    {{.op = COPY_OP, .src = {.buffer = 4, .count = 1}}, "src is buffer 4"},
    {{.op = COPY_OP, .src = {.buffer = xcclAlgoIn, .count = 0}}, "src has 0 chunks"},
    {{.op = COPY_OP, .src = {.buffer = xcclAlgoIn, .count = -5}}, "src has -5 chunks"},
    {{.op = COPY_OP, .src = {.buffer = xcclAlgoIn, .count = INT32_MAX}}, "src has 2147483647"},
    {{.op = COPY_OP, .src = ONE_IN, .dst = {.buffer = xcclAlgoOut, .count = 2}},
     "src has 1 chunks, but dst has 2"},
    {{.op = COPY_OP, .src = ONE_IN, .dst = {.buffer = xcclAlgoScratch, .count = 1, .first = -1}},
     "dst is chunk -1 of scratch memory"},
    {{.op = COPY_OP,
      .src = {.buffer = xcclAlgoScratch, .count = 3, .first = INT32_MAX, .stride = INT32_MAX}},
     "src is chunk 2147483647 of scratch memory"},
    {{.op = COPY_OP | XCCL_ALGO_ACC, .src = ONE_IN, .dst = {.buffer = xcclAlgoZero, .count = 1}},
     "the step adds to Zero"},
    {{.op = ADD_OP, .src = ONE_IN, .dst = ONE_OUT, .rconn = 1}, "nrecv is 0"},
    {{.op = ADD_OP, .src = ONE_IN, .dst = ONE_OUT, .rconn = 1, .nrecv = 257}, "nrecv is 257"},
    {{.op = ADD_OP, .src = ONE_IN, .dst = ONE_OUT, .rconn = 65537, .nrecv = 1},
     "rconn is 65537, but the lane has 3 connections"},
    {{.op = ADD_OP, .src = ONE_IN, .dst = ONE_OUT, .rconn = -1, .nrecv = 1}, "rconn is -1"},
    {{.op = ADD_OP, .src = ONE_IN, .dst = ONE_OUT, .rconn = 1, .nrecv = 3},
     "nrecv is 3 from connection 1 on, but the lane has 3"},
    {{.op = ADD_OP, .src = ONE_IN, .dst = ONE_OUT, .rconn = 0, .nrecv = 1},
     "connection 0 has the wrong direction for recv"},
    {{.op = XCCL_ALGO_SRC | XCCL_ALGO_SEND, .src = ONE_IN, .sconn = 0, .nsend = 2},
     "connection 1 has the wrong direction for send"},
    {{.op = XCHG_OP,
      .src = ONE_IN,
      .dst = ONE_OUT,
      .rconn = 1,
      .nrecv = 1,
      .sconn = INT32_MAX,
      .nsend = 15},
     "sconn is 2147483647"},
    {{.op = ADD_OP,
      .flags = XCCL_ALGO_ORDERED,
      .src = ONE_IN,
      .dst = ONE_OUT,
      .rconn = 1,
      .nrecv = 15},
     "its peers are not in rising order"},
    {{.op = COPY_OP, .flags = XCCL_ALGO_ORDERED, .src = ONE_IN, .dst = ONE_OUT},
     "the step is ORDERED, but it receives nothing"},
    {{.op = COPY_OP, .flags = XCCL_ALGO_SIGNAL, .src = ONE_IN, .dst = ONE_OUT, .sig = 65536},
     "sig is 65536"},
    {{.op = COPY_OP, .src = ONE_IN, .dst = ONE_OUT, .nwaits = 4}, "nwaits is 4"},
    {{.op = COPY_OP, .src = ONE_IN, .dst = ONE_OUT, .nwaits = -1}, "nwaits is -1"},
    {{.op = COPY_OP, .src = ONE_IN, .dst = ONE_OUT, .nwaits = 1, .waits = {{0, 256, 0}}},
     "wait 0 is for lane 0, dist 256"},
    {{.op = COPY_OP, .src = ONE_IN, .dst = ONE_OUT, .nwaits = 1, .waits = {{7, 0, 0}}},
     "step 0 of lane 0 waits for lane 7, but the number of lanes is 1"},
};
static const struct hostile *hostile_at;

static void emit_hostile(const xcclAlgoBuilder_v1_t *build, const xcclAlgoFor_v1_t *what)
{
    int lane = build->lane(build), rank = what->rank;
    xcclAlgoStep_v1_t step = hostile_at->step;

    step.size = sizeof(step);
    XT_CHECK_INT(build->conn(build, lane, xcclAlgoSend, (rank + 1) % 4, 0, 0), 0);
    XT_CHECK_INT(build->conn(build, lane, xcclAlgoRecv, (rank + 3) % 4, 0, 0), 1);
    XT_CHECK_INT(build->conn(build, lane, xcclAlgoRecv, (rank + 2) % 4, 0, 1), 2);
    build->step(build, lane, &step);
}

static const struct xccl_generator *add_emit(void (*emit)(const xcclAlgoBuilder_v1_t *build,
                                                          const xcclAlgoFor_v1_t *what))
{
    static xcclAlgorithm_v1_t algorithm;
    const xcclAlgorithm_v1_t *table = &algorithm;

    algorithm = good_algorithm();
    algorithm.emit = emit;
    XT_OK(add_table(&table, 1));
    return found(XCCL_COLL_ALL_REDUCE, "mine");
}

XT_TEST(a_number_that_cannot_be_is_refused_where_it_is_emitted)
{
    const struct xccl_generator *generator = add_emit(emit_hostile);

    for (size_t i = 0; i < sizeof(hostile) / sizeof(hostile[0]); i++) {
        hostile_at = &hostile[i];
        XT_CHECK_RC(proven(generator, 4), xcclInvalidArgument);
        XT_CHECK_HAS(xccl_error_text(), "algorithm mine of plugin test, rank 0 of 4");
        XT_CHECK_HAS(xccl_error_text(), hostile[i].why);
    }
}

/* Calls that are wrong by themselves. */
static int call_at;

static void emit_calls(const xcclAlgoBuilder_v1_t *build, const xcclAlgoFor_v1_t *what)
{
    int lane = build->lane(build);
    xcclAlgoStep_v1_t step = {.size = sizeof(step), .op = COPY_OP, .src = ONE_IN, .dst = ONE_OUT};

    XT_CHECK_INT(build->failed(build), 0);
    XT_CHECK_INT(build->lane(NULL), 0);
    XT_CHECK_INT(build->conn(NULL, 0, xcclAlgoSend, 0, 0, 0), 0);
    XT_CHECK_INT(build->failed(NULL), 1);
    build->step(NULL, 0, &step);
    build->fail(NULL, "x");
    switch (call_at) {
    case 0:
        build->step(build, lane, NULL);
        break;
    case 1:
        step.size = 8;
        build->step(build, lane, &step);
        break;
    case 2:
        step.size = SIZE_MAX;
        build->step(build, lane, &step);
        break;
    case 3:
        build->step(build, 9, &step);
        break;
    case 4:
        build->conn(build, 1, xcclAlgoSend, 1, 0, 0);
        break;
    case 5:
        build->conn(build, lane, (xcclAlgoDir_t)2, 1, 0, 0);
        break;
    case 6:
        build->conn(build, lane, xcclAlgoSend, what->rank, 0, 0);
        break;
    case 7:
        build->conn(build, lane, xcclAlgoSend, 4, 0, 0);
        break;
    case 8:
        build->conn(build, lane, xcclAlgoSend, 1, 65536, 0);
        break;
    case 9:
        build->conn(build, lane, xcclAlgoSend, 1, 0, 0);
        build->conn(build, lane, xcclAlgoRecv, 1, 0, 1);
        break;
    case 10:
        while (!build->failed(build))
            build->lane(build);
        break;
    case 11:
        while (!build->failed(build))
            build->conn(build, lane, xcclAlgoSend, 1, 0, 0);
        break;
    case 12:
        build->fail(build, "of a reason of its own");
        break;
    default:
        build->fail(build, NULL);
        break;
    }
    XT_CHECK_INT(build->failed(build), 1);
    /* Nothing counts any more. */
    build->step(build, lane, &step);
    build->fail(build, "second");
    XT_CHECK_INT(build->conn(build, lane, xcclAlgoSend, 1, 0, 0), 0);
}

XT_TEST(a_call_that_cannot_be_is_refused_and_ends_what_the_builder_takes)
{
    static const char *const whys[] = {
        "the step is NULL",
        "the step has size 8; version 1 has",
        "the step has size 18446744073709551615",
        "a step is for lane 9, but the number of lanes is 1",
        "a connection is for lane 1, which is not the last one",
        "a connection has direction 2",
        "a connection names rank 0, which is not another rank from 0 to 3",
        "a connection names rank 4",
        "a connection has id 65536",
        "a group has connections of both directions",
        "it creates more than 255 lanes",
        "it creates more than 65535 connections",
        "of a reason of its own",
        "it gives up and does not say why",
    };
    const struct xccl_generator *generator = add_emit(emit_calls);

    for (call_at = 0; call_at < (int)(sizeof(whys) / sizeof(whys[0])); call_at++) {
        XT_CHECK_RC(proven(generator, 4), xcclInvalidArgument);
        XT_CHECK_HAS(xccl_error_text(), whys[call_at]);
    }
}

static void emit_endless(const xcclAlgoBuilder_v1_t *build, const xcclAlgoFor_v1_t *what)
{
    int lane = build->lane(build);
    xcclAlgoStep_v1_t step = {.size = sizeof(step),
                              .op = COPY_OP,
                              .src = {.buffer = xcclAlgoIn, .count = 60000},
                              .dst = {.buffer = xcclAlgoOut, .count = 60000}};

    (void)what;
    while (!build->failed(build))
        build->step(build, lane, &step);
}

XT_TEST(an_endless_algorithm_meets_a_bound_before_memory_does)
{
    XT_CHECK_RC(proven(add_emit(emit_endless), 2), xcclInvalidArgument);
    XT_CHECK_HAS(xccl_error_text(), "it emits more than 1048576 steps or 16777216 chunks");
}

static int32_t chunks_given;

static int32_t give_chunks(const xcclAlgoFor_v1_t *what)
{
    (void)what;
    return chunks_given;
}

static int32_t serves_even(const xcclAlgoFor_v1_t *what)
{
    return what->nranks % 2 == 0;
}

XT_TEST(a_number_of_chunks_that_cannot_be_is_refused_alone_and_in_a_hierarchy)
{
    static xcclAlgorithm_v1_t algorithm;
    const xcclAlgorithm_v1_t *table = &algorithm;
    const int nodes[] = {0, 0, 1, 1}, bad[] = {0, -1, 65536, INT32_MIN, INT32_MAX};
    const struct xccl_generator_for in_nodes = {
        .nranks = 4, .nodes = nodes, .inner = "mine", .outer = "mine"};

    algorithm = good_algorithm();
    algorithm.coll = xcclAlgoBroadcast;
    algorithm.chunks = give_chunks;
    algorithm.serves = serves_even;
    XT_OK(add_table(&table, 1));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        chunks_given = bad[i];
        XT_CHECK_RC(proven(found(XCCL_COLL_BROADCAST, "mine"), 4), xcclInvalidArgument);
        XT_CHECK_HAS(xccl_error_text(), "with 65536 chunks");
        XT_CHECK_RC(xccl_algo_plugin_prove(found(XCCL_COLL_BROADCAST, "hier"), &in_nodes, NULL),
                    xcclInvalidArgument);
    }
    XT_CHECK_RC(proven(found(XCCL_COLL_BROADCAST, "mine"), 3), xcclInvalidArgument);
    XT_CHECK_HAS(xccl_error_text(), "mine of broadcast does not support 3 ranks");
}

/* ---- random values: only that nothing breaks ---- */

static uint64_t dice;

/* Small most of the time, so that some steps are taken. */
static int32_t any(int32_t most)
{
    uint64_t drawn = xt_random(&dice);

    return drawn % 256 ? (int32_t)(drawn >> 8) % (most + 1) : (int32_t)(drawn >> 32);
}

static xcclAlgoChunks_t any_chunks(void)
{
    static const uint16_t list[8] = {0, 3, 1, 65535, 2, 2, 7, 0};
    xcclAlgoChunks_t chunks = {.buffer = any(3), .count = 1, .first = any(3), .stride = any(2)};

    if (xt_random(&dice) % 4 == 0)
        chunks.count = any(4);
    if (chunks.count <= 8 && xt_random(&dice) % 4 == 0)
        chunks.list = list;
    return chunks;
}

static void emit_random(const xcclAlgoBuilder_v1_t *build, const xcclAlgoFor_v1_t *what)
{
    for (int lane = (int)(xt_random(&dice) % 3); lane >= 0; lane--)
        build->lane(build);
    for (int i = (int)(xt_random(&dice) % 12); i > 0 && !build->failed(build); i--) {
        xcclAlgoStep_v1_t step = {.size = sizeof(step),
                                  .op = (uint32_t)any(63),
                                  .flags = (uint32_t)(any(15) & any(15)),
                                  .src = any_chunks(),
                                  .dst = any_chunks(),
                                  .rconn = any(4),
                                  .nrecv = 1 + any(1),
                                  .sconn = any(4),
                                  .nsend = 1 + any(1),
                                  .sig = any(3),
                                  .nwaits = any(1),
                                  .waits = {{any(1), any(1), any(3)}}};

        if (xt_random(&dice) % 2)
            build->conn(build, any(2), (xcclAlgoDir_t)(any(1) & 3), any(what->nranks - 1), any(2),
                        any(1));
        else if (xccl_step_legal((uint8_t)step.op) || xt_random(&dice) % 8 == 0)
            build->step(build, any(2), &step);
    }
}

XT_TEST_DEADLINE(random_numbers_do_no_harm, 120)
{
    const struct xccl_generator *generator = add_emit(emit_random);
    int proofs = 0;

    dice = xt_seed();
    xt_setenv("XCCL_DEBUG_FILE", "/dev/null");
    for (int i = 0; i < 20000; i++)
        proofs += proven(generator, 1 + (int)(xt_random(&dice) % 4)) != xcclInvalidArgument;
    xccl_log_reset();
    XT_CHECK(proofs > 0); /* some came as far as the proof */
}

XT_TEST_DEADLINE(random_numbers_do_no_harm_inside_a_hierarchy, 120)
{
    const int nodes[] = {0, 0, 1, 1, 1, 2};
    const struct xccl_generator_for what = {.nranks = 6, .nodes = nodes, .outer = "mine"};
    const struct xccl_generator *hier = found(XCCL_COLL_ALL_REDUCE, "hier");

    (void)add_emit(emit_random);
    dice = xt_seed();
    xt_setenv("XCCL_DEBUG_FILE", "/dev/null");
    for (int i = 0; i < 10000; i++)
        (void)xccl_algo_plugin_prove(hier, &what, NULL);
    xccl_log_reset();
}

/* ---- threads ---- */

static xcclAlgorithm_v1_t shared_algorithm;
static const xcclAlgorithm_v1_t *const shared_list = &shared_algorithm;
static xcclAlgoPlugin_v1_t shared = {
    .size = sizeof(shared), .name = "shared", .count = 1, .algorithms = &shared_list};

static void add_and_find(int thread, int nthreads, void *user)
{
    (void)thread;
    (void)nthreads;
    (void)user;
    XT_OK(xccl_algo_plugin_add(&shared, "/a/shared.so"));
    XT_CHECK_TEXT(xccl_algo_plugin_path(found(XCCL_COLL_ALL_REDUCE, "mine")), "/a/shared.so");
}

XT_TEST(threads_that_add_the_same_plugin_have_it_once)
{
    int before = generator_count();

    shared_algorithm = good_algorithm();
    xt_threads_run(8, add_and_find, NULL);
    XT_CHECK_INT(generator_count(), before + 1);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Tuner plugins in communicators: a fixture steers the choice, nonsense is survived with one
 * warning a process, and ranks whose tuners differ, or answer differently, get an error that says
 * so. Every result is looked at. */
#include "world.h"

#include <fcntl.h>
#include <unistd.h>

#define FIXTURES   XT_BUILD_DIR "/lib/fixtures"
#define RANKS      4
#define LATE_BYTES 12344 /* of which the fixture answers by rank, and nobody asks in init */

static char log_path[512];
static char log_buffer[1 << 18];
static int usual_output = -1; /* where standard error went before */

/* Plugin of this rank, before the library looks. */
static void prepare(int rank, const char *plugin, const char *what)
{
    char text[16];

    snprintf(text, sizeof text, "%d", rank);
    xt_setenv("XCCL_PLUGIN_PATH", FIXTURES);
    xt_setenv("XCCL_TUNER_PLUGIN", plugin);
    xt_setenv("FX_TUNER", what);
    xt_setenv("FX_TUNER_RANK", text);
}

/* The log goes to a file from here on, until it is read. */
static void log_begin(void)
{
    int fd;

    snprintf(log_path, sizeof log_path, "%s/log", xt_tmpdir());
    xt_setenv("XCCL_DEBUG", "debug");
    usual_output = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    fd = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    XT_CHECK(usual_output >= 0 && fd >= 0 && dup2(fd, STDERR_FILENO) == STDERR_FILENO);
    close(fd);
}

static const char *log_read(void)
{
    int fd = open(log_path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, log_buffer, sizeof log_buffer - 1) : -1;

    XT_CHECK(dup2(usual_output, STDERR_FILENO) == STDERR_FILENO);
    close(usual_output);
    close(fd);
    XT_CHECK(got >= 0);
    log_buffer[got] = '\0';
    return log_buffer;
}

static int count(const char *text, const char *part)
{
    int found = 0;

    while ((text = strstr(text, part))) {
        found++;
        text += strlen(part);
    }
    return found;
}

/* All-reduces of some sizes, twice each, in place too. */
static void reduce_some(xcclComm_t comm, int rank, int nranks)
{
    static const size_t counts[] = {2, 1000, 3086, 50001};

    for (int i = 0; i < 16; i++)
        world_all_reduce(
            comm, rank, nranks,
            &(struct world_case){
                .count = counts[i / 4], .type = xcclFloat32, .in_place = i & 1, .round = i});
}

/* ---- steering ---- */

static void is_steered(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm;

    prepare(rank, "fx", "twoshot small 512");
    log_begin();
    comm = world_join(world, rank, nranks);
    reduce_some(comm, rank, nranks);
    XT_OK(xcclBarrier(comm, NULL));
    XT_OK(xcclCommDestroy(comm));
    XT_CHECK_HAS(log_read(),
                 "plan: all_reduce of 200004 bytes: twoshot in small, tiles of 512 bytes, "
                 "chosen by tuner fixture (libxccl-tuner-fx.so)");
    XT_CHECK_HAS(log_buffer, "plan: all_reduce of 8 bytes: twoshot in small");
    XT_CHECK_HAS(log_buffer, "plan: barrier of 0 bytes: dissemination in lines, tiles of 0 bytes, "
                             "chosen by the built-in table");
    XT_CHECK_INT(count(log_buffer, "warn: "), 0);
}

XT_TEST(a_tuner_chooses_algorithm_protocol_and_tile)
{
    xt_mp_run(RANKS, is_steered, world_create());
}

static void is_steered_over_sockets(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm;

    prepare(rank, "fx", "nhr slices 4096");
    log_begin();
    xt_setenv("XCCL_PLUGIN_PATH", FIXTURES ":" XT_BUILD_DIR "/lib/xccl");
    xt_setenv("XCCL_SHM_DISABLE", "1");
    comm = world_join(world, rank, nranks);
    reduce_some(comm, rank, nranks);
    XT_OK(xcclCommDestroy(comm));
    XT_CHECK_HAS(log_read(),
                 "plan: all_reduce of 200004 bytes: nhr in slices, tiles of 4096 bytes");
    XT_CHECK_INT(count(log_buffer, "warn: "), 0);
}

XT_TEST(a_tuner_chooses_over_sockets_too)
{
    xt_mp_run(RANKS, is_steered_over_sockets, world_create());
}

/* A child asks for itself. */
static void is_split(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm, child = NULL;

    prepare(rank, "fx", "rd slices");
    log_begin();
    comm = world_join(world, rank, nranks);
    XT_OK(xcclCommSplit(comm, rank & 1, rank, &child, NULL));
    reduce_some(child, rank / 2, nranks / 2);
    XT_OK(xcclCommDestroy(child));
    reduce_some(comm, rank, nranks);
    XT_OK(xcclCommDestroy(comm));
    XT_CHECK_INT(count(log_read(), "tuner plugin: fixture: began"), 2);
    XT_CHECK_INT(count(log_buffer, "plan: all_reduce of 200004 bytes: rd in slices"), 2);
}

XT_TEST(a_split_communicator_has_the_tuner_too)
{
    xt_mp_run(RANKS, is_split, world_create());
}

/* ---- nonsense ---- */

static void survives(int rank, int nranks, void *arg)
{
    struct world *world = arg;

    prepare(rank, "fx", world->text);
    xt_setenv("XCCL_ALGO", "^nb"); /* so that there is something which is not to be used */
    log_begin();
    /* Two communicators of one process, still one warning. */
    for (int i = 0; i < 2; i++) {
        xcclComm_t comm = NULL;

        XT_OK(xcclCommInitRank(&comm, nranks, world_id(world, rank, i), rank));
        reduce_some(comm, rank, nranks);
        XT_OK(xcclCommDestroy(comm));
    }
    XT_CHECK_INT(count(log_read(), "warn: "), 1);
    XT_CHECK_INT(count(log_buffer, "error: "), 0);
    XT_CHECK_INT(count(log_buffer, "warn: tuner plugin fixture (libxccl-tuner-fx.so)"), 1);
    XT_CHECK_HAS(log_buffer, "the built-in choice is used");
    XT_CHECK_HAS(log_buffer, "plan: all_reduce of 8 bytes: oneshot in lines, tiles of 32 bytes, "
                             "chosen by the built-in table");
    XT_CHECK(!strstr(log_buffer, "chosen by tuner"));
}

XT_TEST(nonsense_is_survived_with_one_warning)
{
    static const char *const kinds[] = {
        "init",  "error",    "seven",     "name",     "protocol",   "bounds", "unusable", "nan",
        "param", "infinite", "tile-zero", "tile-odd", "tile-large", "lanes",  "nothing",  "forbid"};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct world *world = world_create();

        world->text = kinds[i];
        xt_mp_run(2, survives, world);
    }
}

/* ---- crashes ---- */

static void outlives(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm;

    prepare(rank, "fx", world->text);
    xt_setenv("XCCL_PLUGIN_PROBE_S", "2");
    log_begin();
    comm = world_join(world, rank, nranks);
    reduce_some(comm, rank, nranks);
    XT_OK(xcclCommDestroy(comm));
    XT_CHECK_INT(count(log_read(), "warn: "), 1);
    XT_CHECK_HAS(log_buffer, "warn: tuner plugin fx cannot be used: ");
    XT_CHECK_HAS(log_buffer, "libxccl-tuner-fx.so: it ");
    XT_CHECK_HAS(log_buffer, "the built-in choice is used");
    XT_CHECK(!strstr(log_buffer, "chosen by tuner"));
}

XT_TEST(a_tuner_that_crashes_or_hangs_costs_a_warning_and_no_call)
{
    static const char *const kinds[] = {"crash-load", "crash-init", "crash-choose", "hang-init"};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct world *world = world_create();

        world->text = kinds[i];
        xt_mp_run(2, outlives, world);
    }
}

/* ---- ranks that differ ---- */

static void answers_differ(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = NULL;

    prepare(rank, "fx", "by-rank");
    XT_CHECK_RC(xcclCommInitRank(&comm, nranks, world_id(world, rank, 0), rank), xcclInvalidUsage);
    XT_CHECK_HAS(xcclGetLastError(NULL), "rank 1 (host ");
    XT_CHECK_HAS(xcclGetLastError(NULL),
                 "would run calls differently than rank 0: tuner plugin fixture "
                 "(libxccl-tuner-fx.so) does not give the same answers");
    XT_CHECK_HAS(xcclGetLastError(NULL), "XCCL_TUNER_PLUGIN=none");
}

XT_TEST(a_tuner_that_answers_by_rank_is_found_when_ranks_join)
{
    xt_mp_run(RANKS, answers_differ, world_create());
}

static void answers_differ_late(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    char *data = calloc(1, LATE_BYTES);
    xcclComm_t comm;

    XT_CHECK(data != NULL);
    prepare(rank, "fx", "by-rank-late");
    if (world->param) {
        xt_setenv("XCCL_PLUGIN_PATH", FIXTURES ":" XT_BUILD_DIR "/lib/xccl");
        xt_setenv("XCCL_SHM_DISABLE", "1");
    }
    comm = world_join(world, rank, nranks);
    world_all_reduce(comm, rank, nranks, &(struct world_case){.count = 5, .type = xcclFloat32});
    XT_CHECK_RC(xcclAllReduce(data, data, LATE_BYTES, xcclInt8, xcclSum, comm, NULL),
                xcclInvalidUsage);
    XT_CHECK_HAS(xcclGetLastError(comm), "ranks disagree");
    XT_CHECK_HAS(xcclGetLastError(comm), "call 2: all-reduce of 12344 int8, sum");
    XT_CHECK_HAS(xcclGetLastError(comm), "tuner ");
    XT_CHECK_HAS(xcclGetLastError(comm), "fixture (libxccl-tuner-fx.so) chose differently there");
    XT_OK(xcclCommDestroy(comm));
    free(data);
}

XT_TEST(an_answer_by_rank_in_one_call_is_an_error_that_names_the_tuner)
{
    xt_mp_run(RANKS, answers_differ_late, world_create());
}

XT_TEST(an_answer_by_rank_in_one_call_over_sockets_is_an_error_that_names_the_tuner)
{
    struct world *world = world_create();

    world->param = 1;
    xt_mp_run(2, answers_differ_late, world);
}

static void plugins_differ(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = NULL;

    prepare(rank, rank == 2 ? "none" : "fx", "ring slices");
    XT_CHECK_RC(xcclCommInitRank(&comm, nranks, world_id(world, rank, 0), rank), xcclInvalidUsage);
    /* The first to notice tells the others. */
    XT_CHECK_HAS(xcclGetLastError(NULL), "rank 2 ");
    XT_CHECK_HAS(xcclGetLastError(NULL), "has tuner plugin ");
    XT_CHECK_HAS(xcclGetLastError(NULL), "none");
    XT_CHECK_HAS(xcclGetLastError(NULL), "fixture");
    XT_CHECK_HAS(xcclGetLastError(NULL), "install the same tuner plugin and set the same");
}

XT_TEST(ranks_with_different_tuners_are_told_which)
{
    xt_mp_run(RANKS, plugins_differ, world_create());
}

static void digests_differ(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = NULL;

    prepare(rank, "fx", "");
    xt_setenv("FX_TUNER_DIGEST", rank == 1 ? "5" : "6");
    XT_CHECK_RC(xcclCommInitRank(&comm, nranks, world_id(world, rank, 0), rank), xcclInvalidUsage);
    XT_CHECK_HAS(xcclGetLastError(NULL), "but a different file or table of it");
}

XT_TEST(ranks_with_different_tables_are_told_so)
{
    xt_mp_run(2, digests_differ, world_create());
}

/* ---- XCCL_PROTO ---- */

static void has_protocols(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm;

    prepare(rank, "none", "");
    xt_setenv("XCCL_PROTO", world->text);
    xt_setenv("XCCL_ALGO", "all_reduce:oneshot"); /* else cores have a say, too */
    log_begin();
    comm = world_join(world, rank, nranks);
    reduce_some(comm, rank, nranks);
    XT_OK(xcclBarrier(comm, NULL));
    XT_OK(xcclCommDestroy(comm));
    XT_CHECK_INT(count(log_read(), " in lines, "), world->param & 1 ? 2 : 0);
    XT_CHECK_INT(count(log_buffer, " in small, "), world->param >> 1);
}

/* A call may be of any size in each. */
XT_TEST(protocols_that_are_left_out_are_not_used_and_results_are_the_same)
{
    static const struct {
        const char *text;
        int lines_and_small; /* lines: 1; plans in small times 2 */
    } cases[] = {{"LL128", 10}, {"^lines", 6}, {"lines,slices", 1}, {"Simple", 0}, {"^Simple", 7}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct world *world = world_create();

        world->text = cases[i].text;
        world->param = cases[i].lines_and_small;
        xt_mp_run(RANKS, has_protocols, world);
    }
}

/* ---- how it is found ---- */

static void names_nobody(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = NULL;

    prepare(rank, "nobody", "");
    XT_CHECK_RC(xcclCommInitRank(&comm, nranks, world_id(world, rank, 0), rank), xcclInvalidUsage);
    XT_CHECK_HAS(xcclGetLastError(NULL), "tuner plugin nobody cannot be used: no such file in");
}

XT_TEST(a_tuner_that_was_named_and_is_not_there_is_an_error)
{
    xt_mp_run(2, names_nobody, world_create());
}

/* The plugin beside the library, with a table of one's own. */
static void reads_a_table(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    char path[256];
    xcclComm_t comm;
    FILE *file;

    prepare(rank, "auto", "");
    log_begin();
    snprintf(path, sizeof path, "%s/my.tune", xt_tmpdir());
    file = fopen(path, "we");
    XT_CHECK(file != NULL);
    fputs("tuner-table 1\nall_reduce 100K- 2-8 1 local nb slices auto 16K # mine\n", file);
    fclose(file);
    xt_setenv("XCCL_TUNER_FILE", path);
    comm = world_join(world, rank, nranks);
    reduce_some(comm, rank, nranks);
    XT_OK(xcclCommDestroy(comm));
    XT_CHECK_HAS(log_read(),
                 "plan: all_reduce of 200004 bytes: nb in slices, tiles of 16384 bytes, "
                 "chosen by tuner table (libxccl-tuner.so)");
    XT_CHECK_HAS(log_buffer, "plan: all_reduce of 8 bytes: oneshot in lines, tiles of 32 bytes, "
                             "chosen by the built-in table");
}

XT_TEST(a_table_of_ones_own_needs_no_plugin_of_ones_own)
{
    xt_mp_run(RANKS, reads_a_table, world_create());
}

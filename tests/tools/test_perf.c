/* SPDX-License-Identifier: BSD-3-Clause */
/* `xccl perf` through the built program: columns, checks, JSON, exit statuses. A library that
 * computes wrong sums is played by a small one that is compiled here and put in front of the real
 * one.
 *
 * Thread: one a test. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "xt.h"

#define XCCL      XT_BUILD_DIR "/bin/xccl"
#define ARGS_MAX  32
#define DEPTH_MAX 8

/* Runs `xccl perf` with the words of args; returns the exit status. */
static int run_words(const char *args, const char **output_out)
{
    char words[512];
    const char *argv[ARGS_MAX + 1] = {XCCL, "perf"};
    int count = 2;
    int status = 0;

    snprintf(words, sizeof(words), "%s", args);
    for (char *word = strtok(words, " "); word && count < ARGS_MAX; word = strtok(NULL, " "))
        argv[count++] = word;
    status = xt_run_program(argv, output_out);
    XT_CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int run_perf(const char *args, const char **output_out)
{
    char words[512];

    snprintf(words, sizeof(words), "all_reduce %s", args);
    return run_words(words, output_out);
}

struct row {
    unsigned long long bytes, count;
    char type[16], redop[16];
    int root;
    double us[2], algbw[2], busbw[2];
    long long wrong[2];
};

/* Reads the lines of a table that are figures; returns how many. Where there is no in-place form,
 * its figures are -1. */
static int read_rows(const char *output, struct row *rows, int max)
{
    int count = 0;

    for (const char *at = output; at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL) {
        struct row row = {.us = {-1, -1}, .algbw = {-1, -1}, .busbw = {-1, -1}, .wrong = {-1, -1}};
        int fields = sscanf(at, "%llu %llu %15s %15s %d %lf %lf %lf %lld %lf %lf %lf %lld",
                            &row.bytes, &row.count, row.type, row.redop, &row.root, &row.us[0],
                            &row.algbw[0], &row.busbw[0], &row.wrong[0], &row.us[1], &row.algbw[1],
                            &row.busbw[1], &row.wrong[1]);

        if (fields != 13 && fields != 9)
            continue;
        XT_CHECK(count < max);
        rows[count++] = row;
    }
    return count;
}

XT_TEST_DEADLINE(the_table_has_the_columns_and_right_sums, 120)
{
    struct row rows[4];
    const char *output = NULL;

    XT_CHECK_INT(run_perf("--ranks 2 -b 8 -e 64K -f 128", &output), 0);
    XT_CHECK_HAS(output, "size         count      type   redop    root     time   algbw   busbw "
                         "#wrong     time   algbw   busbw #wrong\n");
    XT_CHECK_HAS(output, "# Out of bounds values : 0 OK\n");
    XT_CHECK_HAS(output, "# Avg bus bandwidth    : ");
    XT_CHECK_HAS(output, "#  Rank   1 Pid ");
    XT_CHECK_INT(read_rows(output, rows, 4), 2);
    XT_CHECK_INT(rows[0].bytes, 8);
    XT_CHECK_INT(rows[1].bytes, 1024);
    XT_CHECK_INT(rows[1].count, 256);
    XT_CHECK_TEXT(rows[1].type, "float");
    XT_CHECK_TEXT(rows[1].redop, "sum");
    XT_CHECK_INT(rows[1].root, -1);
    for (int i = 0; i < 2; i++) {
        XT_CHECK_INT(rows[1].wrong[i], 0);
        XT_CHECK(rows[1].us[i] > 0);
    }
}

XT_TEST_DEADLINE(sizes_grow_by_steps_and_types_differ, 120)
{
    struct row rows[4];
    const char *output = NULL;

    XT_CHECK_INT(run_perf("--ranks 3 -b 0 -e 2K -i 1K -d int32 -n 3 -w 0 -m 2", &output), 0);
    XT_CHECK_INT(read_rows(output, rows, 4), 3);
    XT_CHECK_INT(rows[0].bytes, 0);
    XT_CHECK_INT(rows[2].bytes, 2048);
    XT_CHECK_TEXT(rows[2].type, "int32");
    XT_CHECK_INT(rows[2].wrong[0] + rows[2].wrong[1], 0);
}

/* What a line of figures must say for a collective. */
static const struct expected {
    const char *coll, *redop;
    unsigned long long bytes, count; /* of a size of 1,000 bytes on 3 ranks */
    int root, has_in_place;
    double bus; /* busbw / algbw */
} expected[] = {
    {"all_reduce", "sum", 1000, 250, -1, 1, 4.0 / 3},
    {"all_gather", "none", 960, 80, -1, 1, 2.0 / 3},
    {"broadcast", "none", 1000, 250, 1, 1, 1},
    {"reduce", "sum", 1000, 250, 1, 1, 1},
    {"reduce_scatter", "sum", 960, 80, -1, 1, 2.0 / 3},
    {"alltoall", "none", 960, 80, -1, 0, 2.0 / 3},
    {"gather", "none", 960, 80, 1, 1, 2.0 / 3},
    {"scatter", "none", 960, 80, 1, 1, 2.0 / 3},
    {"sendrecv", "none", 1000, 250, -1, 0, 1},
};

static void check_row(const struct expected *want, const struct row *row)
{
    XT_CHECK_INT(row->bytes, want->bytes);
    XT_CHECK_INT(row->count, want->count);
    XT_CHECK_TEXT(row->type, "float");
    XT_CHECK_TEXT(row->redop, want->redop);
    XT_CHECK_INT(row->root, want->root);
    for (int i = 0; i < 1 + want->has_in_place; i++) {
        XT_CHECK_INT(row->wrong[i], 0);
        XT_CHECK(row->us[i] > 0);
        /* Both have two digits behind the point. */
        XT_CHECK(row->busbw[i] <= (row->algbw[i] + 0.005) * want->bus + 0.0051);
        XT_CHECK(row->busbw[i] >= (row->algbw[i] - 0.005) * want->bus - 0.0051);
    }
    if (!want->has_in_place)
        XT_CHECK_INT(row->wrong[1], -1);
}

XT_TEST_DEADLINE(every_collective_has_sizes_and_bandwidths_as_nccl_tests, 240)
{
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        char args[128];
        struct row rows[2];
        const char *output = NULL;

        snprintf(args, sizeof(args), "%s --ranks 3 -b 1000 -e 1000 -n 20 -r 1", expected[i].coll);
        XT_CHECK_INT(run_words(args, &output), 0);
        XT_CHECK_HAS(output, "# Out of bounds values : 0 OK\n");
        XT_CHECK_INT(read_rows(output, rows, 2), 1);
        check_row(&expected[i], &rows[0]);
        XT_CHECK((strstr(output, "N/A") == NULL) == expected[i].has_in_place);
    }
}

XT_TEST_DEADLINE(a_barrier_has_one_row_without_bytes, 120)
{
    const char *output = NULL;
    struct row rows[2];

    XT_CHECK_INT(run_words("barrier --ranks 3 -n 50 -c 20", &output), 0);
    XT_CHECK_INT(read_rows(output, rows, 2), 1);
    XT_CHECK_INT(rows[0].bytes + rows[0].count, 0);
    XT_CHECK_INT(rows[0].wrong[0], 0);
    XT_CHECK_TEXT(rows[0].type, "none");
}

XT_TEST_DEADLINE(roots_and_types_take_turns, 120)
{
    static const char *const types[] = {"int8", "uint8", "int32",  "uint32",   "int64",  "uint64",
                                        "half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2"};
    struct row rows[24];
    const char *output = NULL;

    XT_CHECK_INT(run_words("broadcast --ranks 2 -b 64 -e 64 -n 1 -w 0 -d all -r -1", &output), 0);
    XT_CHECK_INT(read_rows(output, rows, 24), 24);
    for (int i = 0; i < 24; i++) {
        XT_CHECK_TEXT(rows[i].type, types[i / 2]);
        XT_CHECK_INT(rows[i].root, i % 2);
        XT_CHECK_INT(rows[i].wrong[0] + rows[i].wrong[1], 0);
    }
}

XT_TEST_DEADLINE(every_type_and_operator_is_exact_on_any_number_of_ranks, 240)
{
    static struct row rows[60];

    for (int ranks = 1; ranks <= 5; ranks++) {
        char args[128];
        const char *output = NULL;

        snprintf(args, sizeof(args), "%s --ranks %d -b 60000 -e 60000 -n 1 -w 0 -d all -o all",
                 ranks & 1 ? "all_reduce" : "reduce_scatter", ranks);
        XT_CHECK_INT(run_words(args, &output), 0);
        XT_CHECK_INT(read_rows(output, rows, 60), 60);
        for (int i = 0; i < 60; i++)
            XT_CHECK_INT(rows[i].wrong[0] + rows[i].wrong[1], 0);
    }
}

XT_TEST_DEADLINE(names_of_nccl_tests_are_understood, 120)
{
    static const char *const names[] = {"allreduce", "all_gather_perf", "reducescatter",
                                        "alltoall_perf", "all_to_all"};
    const char *output = NULL;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char args[128];

        snprintf(args, sizeof(args), "%s --ranks 2 -b 64 -e 64 -n 1", names[i]);
        XT_CHECK_INT(run_words(args, &output), 0);
        XT_CHECK_HAS(output, "# Out of bounds values : 0 OK\n");
    }
}

XT_TEST_DEADLINE(buffers_are_private_shared_or_registered, 120)
{
    static const char *const kinds[] = {"0", "1", "2"};
    const char *output;
    char args[100];

    for (int i = 0; i < 3; i++) {
        snprintf(args, sizeof(args), "--ranks 2 -b 4M -e 4M -n 2 -R %s", kinds[i]);
        XT_CHECK_INT(run_perf(args, &output), 0);
        XT_CHECK_HAS(output, "# Out of bounds values : 0 OK");
    }
}

XT_TEST_DEADLINE(without_a_check_nothing_is_claimed, 120)
{
    const char *output = NULL;

    XT_CHECK_INT(run_perf("--ranks 2 -b 8 -e 8 -n 1 -c 0", &output), 0);
    XT_CHECK_HAS(output, " N/A");
}

XT_TEST_DEADLINE(it_is_one_rank_under_the_launcher, 120)
{
    const char *argv[] = {XCCL, "run", "-n", "2",  "--", XCCL, "perf", "all_reduce",
                          "-b", "8",   "-e", "64", "-n", "2",  NULL};
    const char *output = NULL;

    XT_CHECK_INT(xt_run_program(argv, &output), 0);
    XT_CHECK_HAS(output, "[0] # Out of bounds values : 0 OK\n");
    XT_CHECK(strstr(output, "[1] ") == NULL);
}

/* A strict reader of JSON, only as far as a test needs it: each gives the byte after what it read,
 * or NULL when that is not JSON. */
static const char *json_value(const char *at, int depth);

static const char *json_space(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

static const char *json_text(const char *at)
{
    if (*at++ != '"')
        return NULL;
    for (; *at != '"'; at++) {
        if ((unsigned char)*at < 0x20)
            return NULL;
        if (*at == '\\' && !*++at)
            return NULL;
    }
    return at + 1;
}

static const char *json_number(const char *at)
{
    char *end = NULL;

    if (!isdigit((unsigned char)*at) && *at != '-')
        return NULL;
    strtod(at, &end);
    return end == at ? NULL : end;
}

static const char *json_word(const char *at)
{
    static const char *const words[] = {"true", "false", "null"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strncmp(at, words[i], strlen(words[i])) == 0)
            return at + strlen(words[i]);
    }
    return NULL;
}

/* An object or an array. */
static const char *json_list(const char *at, int depth)
{
    char close = *at == '{' ? '}' : ']';

    at = json_space(at + 1);
    if (*at == close)
        return at + 1;
    for (;;) {
        if (close == '}') {
            at = json_text(json_space(at));
            at = at ? json_space(at) : NULL;
            if (!at || *at++ != ':')
                return NULL;
        }
        at = json_value(json_space(at), depth + 1);
        if (!at)
            return NULL;
        at = json_space(at);
        if (*at == close)
            return at + 1;
        if (*at++ != ',')
            return NULL;
    }
}

static const char *json_value(const char *at, int depth)
{
    if (depth > DEPTH_MAX)
        return NULL;
    if (*at == '{' || *at == '[')
        return json_list(at, depth);
    if (*at == '"')
        return json_text(at);
    return json_word(at) ? json_word(at) : json_number(at);
}

/* Runs `xccl perf` with these words and -J; what it wrote, which is JSON. */
static void run_json(const char *words, char *text, size_t room)
{
    char args[400];
    char path[200];
    const char *output = NULL;
    const char *end = NULL;
    FILE *file = NULL;
    size_t bytes = 0;

    snprintf(path, sizeof(path), "%s/figures.json", xt_tmpdir());
    snprintf(args, sizeof(args), "%s -J %s", words, path);
    XT_CHECK_INT(run_words(args, &output), 0);
    file = fopen(path, "re");
    XT_CHECK(file != NULL);
    bytes = fread(text, 1, room - 1, file);
    fclose(file);
    text[bytes] = '\0';
    end = json_value(json_space(text), 0);
    XT_CHECK(end != NULL);
    XT_CHECK_TEXT(json_space(end), "");
}

XT_TEST_DEADLINE(the_json_file_is_json_with_real_values, 120)
{
    char text[8192];

    run_json("all_reduce --ranks 2 -b 8 -e 64 -n 2", text, sizeof(text));
    XT_CHECK_HAS(text, "\"out_of_bounds\": {\"count\": 0, \"okay\": true}");
    XT_CHECK_HAS(text, "\"collective\": \"all_reduce\"");
    XT_CHECK_HAS(text, "\"nranks\": 2,");
    XT_CHECK_HAS(text, "\"size\": 8, \"count\": 2, \"type\": \"float\"");
    XT_CHECK_HAS(text, "\"redop\": \"sum\", \"root\": -1,");
    XT_CHECK_HAS(text, "\"error\": null");
    run_json("alltoall --ranks 2 -b 64 -e 64 -n 2 -d half", text, sizeof(text));
    XT_CHECK_HAS(text, "\"collective\": \"alltoall\"");
    XT_CHECK_HAS(text, "\"size\": 64, \"count\": 16, \"type\": \"half\", \"redop\": \"none\"");
    XT_CHECK_HAS(text, "\"in_place\": null");
    run_json("gather --ranks 2 -b 64 -e 64 -n 2 -r 1", text, sizeof(text));
    XT_CHECK_HAS(text, "\"redop\": \"none\", \"root\": 1,");
}

XT_TEST_DEADLINE(a_file_that_cannot_be_written_is_an_error, 120)
{
    const char *output = NULL;

    XT_CHECK_INT(run_perf("--ranks 1 -b 8 -e 8 -n 1 -J /nowhere/figures.json", &output), 1);
    XT_CHECK_HAS(output, "cannot write /nowhere/figures.json: No such file or directory");
}

XT_TEST(wrong_arguments_are_usage_errors)
{
    static const struct {
        const char *args, *says;
    } cases[] = {
        {"-o mul", "-o mul: must be sum, prod, max, min, avg or all"},
        {"-d real", "-d real: must be int8, uint8"},
        {"-r 1x", "-r 1x: must be a whole number"},
        {"-b 5X", "must be a number of bytes"},
        {"-b 64 -e 8", "-b 64 is more than -e 8"},
        {"-e 1M -i 4", "more than 4096 sizes"},
        {"-f 1", "must be a whole number from 2"},
        {"--ranks 0", "--ranks 0: must be"},
        {"--ranks 2 twice", "unexpected argument twice"},
        {"--minbites 8", "did you mean --minbytes?"},
        {"-n", "-n needs a value"},
    };
    const char *output = NULL;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        XT_CHECK_INT(run_perf(cases[i].args, &output), 2);
        XT_CHECK_HAS(output, cases[i].says);
    }
    XT_CHECK_INT(run_words("all_redoce", &output), 2);
    XT_CHECK_HAS(output, "did you mean all_reduce?");
    XT_CHECK_INT(run_words("hypercube", &output), 2);
    XT_CHECK_HAS(output, "there are all_reduce, all_gather,");
    XT_CHECK_INT(run_words("", &output), 2);
    XT_CHECK_HAS(output, "no collective is named");
    XT_CHECK_INT(run_words("reduce --ranks 2 -r 2", &output), 2);
    XT_CHECK_HAS(output, "-r 2: must be a rank from 0 to 1");
}

/* Compiles a library that stands in front of the real one; its path. */
static const char *make_falsifier(void)
{
    static char source[200];
    static char path[200];
    const char *argv[] = {"cc", "-shared", "-fPIC", "-I", XT_SOURCE_DIR "/include",
                          "-o", path,      source,  NULL};
    const char *output = NULL;
    FILE *file = NULL;

    snprintf(source, sizeof(source), "%s/falsifier.c", xt_tmpdir());
    snprintf(path, sizeof(path), "%s/falsifier.so", xt_tmpdir());
    file = fopen(source, "we");
    XT_CHECK(file != NULL);
    fputs("#include <stdlib.h>\n"
          "#include <xccl.h>\n"
          "xcclResult_t xcclAllReduce(const void *send, void *recv, size_t count,\n"
          "    xcclDataType_t type, xcclRedOp_t op, xcclComm_t comm, xcclStream_t stream)\n"
          "{\n"
          "    xcclResult_t rc = pxcclAllReduce(send, recv, count, type, op, comm, stream);\n"
          "    if (!rc && count == 64 && atoi(getenv(\"XCCL_RANK\")) == 1)\n"
          "        ((int *)recv)[atoi(getenv(\"FALSE_ELEMENT\"))] ^= 0x00400000;\n"
          "    return rc;\n"
          "}\n"
          "xcclResult_t xcclReduceScatter(const void *send, void *recv, size_t count,\n"
          "    xcclDataType_t type, xcclRedOp_t op, xcclComm_t comm, xcclStream_t stream)\n"
          "{\n"
          "    xcclResult_t rc = pxcclReduceScatter(send, recv, count, type, op, comm, stream);\n"
          "    if (!rc && count == 64 && atoi(getenv(\"XCCL_RANK\")) == 1)\n"
          "        ((int *)recv)[atoi(getenv(\"FALSE_ELEMENT\"))] ^= 0x00400000;\n"
          "    return rc;\n"
          "}\n"
          "xcclResult_t xcclBarrier(xcclComm_t comm, xcclStream_t stream)\n"
          "{\n"
          "    return comm && !stream ? xcclSuccess : xcclInvalidArgument;\n"
          "}\n",
          file);
    fclose(file);
    if (xt_run_program(argv, &output) != 0)
        XT_SKIP("no compiler to make a false library with: %s", output);
    return path;
}

XT_TEST_DEADLINE(a_wrong_value_on_any_rank_fails_the_run, 120)
{
    struct row rows[2];
    const char *output = NULL;

    if (XT_SANITIZED)
        XT_SKIP("a sanitizer wants to be the first library");
    xt_setenv("FALSE_ELEMENT", "63");
    xt_setenv("LD_PRELOAD", make_falsifier());
    XT_CHECK_INT(run_perf("--ranks 2 -b 256 -e 256 -n 1", &output), 1);
    XT_CHECK_INT(read_rows(output, rows, 2), 1);
    XT_CHECK_INT(rows[0].wrong[0], 1);
    XT_CHECK_INT(rows[0].wrong[1], 1);
    XT_CHECK_HAS(output, "# Out of bounds values : 2 FAILED\n");
}

XT_TEST_DEADLINE(a_write_behind_the_buffer_fails_the_run, 120)
{
    const char *output = NULL;

    if (XT_SANITIZED)
        XT_SKIP("a sanitizer wants to be the first library");
    xt_setenv("FALSE_ELEMENT", "64");
    xt_setenv("LD_PRELOAD", make_falsifier());
    XT_CHECK_INT(run_perf("--ranks 2 -b 256 -e 256 -n 1", &output), 1);
    XT_CHECK_HAS(output, "rank 1: 1 bytes outside of the receive buffer of 256 bytes were written");
}

/* In place what a rank sent and does not receive must stay. */
XT_TEST_DEADLINE(a_write_to_the_rest_of_the_buffer_fails_the_run, 120)
{
    struct row rows[2] = {0};
    const char *output = NULL;

    if (XT_SANITIZED)
        XT_SKIP("a sanitizer wants to be the first library");
    xt_setenv("FALSE_ELEMENT", "-1");
    xt_setenv("LD_PRELOAD", make_falsifier());
    XT_CHECK_INT(run_words("reduce_scatter --ranks 2 -b 512 -e 512 -n 1", &output), 1);
    XT_CHECK_INT(read_rows(output, rows, 2), 1);
    XT_CHECK_INT(rows[0].wrong[0], 1); /* a guard's byte */
    XT_CHECK_INT(rows[0].wrong[1], 1);
}

XT_TEST_DEADLINE(a_barrier_that_does_not_wait_fails_the_run, 120)
{
    const char *output = NULL;

    if (XT_SANITIZED)
        XT_SKIP("a sanitizer wants to be the first library");
    xt_setenv("LD_PRELOAD", make_falsifier());
    XT_CHECK_INT(run_words("barrier --ranks 2 -n 1 -c 20", &output), 1);
    XT_CHECK_HAS(output, "FAILED\n");
}

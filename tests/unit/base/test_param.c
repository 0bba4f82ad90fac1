/* SPDX-License-Identifier: BSD-3-Clause */
/* Settings: where values come from, what is refused, what is warned about, what is told.
 * Every test sets its own environment and reads the log from a file in its own folder.
 * Each runs in a process of its own, one thread unless it says otherwise. */
#include "base/param.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "log_text.h"
#include "xt.h"

static const char *folder;
static char conf_path[512];

static void write_file(const char *path, const char *text, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    XT_CHECK(fd >= 0);
    XT_CHECK_INT(write(fd, text, bytes), bytes);
    close(fd);
}

/* An environment without settings but a log file, and a settings file with this text. */
static void start_with_file(const char *text)
{
    xt_set_error_source(xccl_error_text);
    xt_set_alloc_source(xccl_alloc_live);
    for (int id = 0; id < XCCL_PARAM_COUNT; id++) {
        struct xccl_param_info info;

        xccl_param_info((enum xccl_param_id)id, &info);
        xt_setenv(info.name, NULL);
    }
    if (!folder)
        folder = xt_tmpdir();
    snprintf(log_path, sizeof(log_path), "%s/log", folder);
    snprintf(conf_path, sizeof(conf_path), "%s/conf", folder);
    write_file(conf_path, text, strlen(text));
    xt_setenv("XCCL_DEBUG_FILE", log_path);
    xt_setenv("XCCL_CONF_FILE", conf_path);
    xccl_param_reset();
}

static void start(void)
{
    start_with_file("");
}

static int count_in(const char *text, const char *part)
{
    int count = 0;

    for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part))
        count++;
    return count;
}

static void take_nothing(void *user, const struct xccl_param_line *line)
{
    (void)user;
    (void)line;
}

XT_TEST(defaults_hold_when_nothing_is_set)
{
    struct xccl_param_info info;

    start();
    XT_OK(xccl_param_load());
    XT_CHECK_INT(xccl_param_int(XCCL_P_TIMEOUT_S), 600);
    XT_CHECK_INT(xccl_param_int(XCCL_P_BUFFER_BYTES), 64 << 20);
    XT_CHECK_INT(xccl_param_int(XCCL_P_RANK), -1);
    XT_CHECK_INT(xccl_param_int(XCCL_P_DEBUG), XCCL_LOG_WARN);
    XT_CHECK_TEXT(xccl_param_string(XCCL_P_NET_PLUGIN), "auto");
    XT_CHECK_TEXT(xccl_param_string(XCCL_P_COMM_ID), "");
    XT_CHECK(!xccl_param_is_set(XCCL_P_TIMEOUT_S));
    xccl_param_info(XCCL_P_TIMEOUT_S, &info);
    XT_CHECK_INT(info.origin, XCCL_ORIGIN_DEFAULT);
    XT_CHECK_TEXT(info.name, "XCCL_TIMEOUT_S");
    XT_CHECK_TEXT(log_text(), "");
}

XT_TEST(every_default_is_a_legal_value_and_rows_are_sorted)
{
    struct xccl_param_info info;
    char before[64] = "";

    start();
    for (int id = 0; id < XCCL_PARAM_COUNT; id++) {
        xccl_param_info((enum xccl_param_id)id, &info);
        XT_CHECK(strcmp(before, info.name) < 0);
        snprintf(before, sizeof(before), "%s", info.name);
        XT_CHECK(info.help[0]);
        if (id != XCCL_P_CONF_FILE && id != XCCL_P_DEBUG_FILE)
            xt_setenv(info.name, info.fallback);
    }
    xccl_param_reset();
    XT_OK(xccl_param_load());
}

XT_TEST(environment_wins_over_the_file_and_the_file_over_the_default)
{
    struct xccl_param_info info;

    start_with_file("# comment\n\n  XCCL_TIMEOUT_S = 20 \r\nXCCL_TIMEOUT_INIT_S=30\n");
    xt_setenv("XCCL_TIMEOUT_S", "10");
    XT_OK(xccl_param_load());
    XT_CHECK_INT(xccl_param_int(XCCL_P_TIMEOUT_S), 10);
    XT_CHECK_INT(xccl_param_int(XCCL_P_TIMEOUT_INIT_S), 30);
    XT_CHECK_INT(xccl_param_int(XCCL_P_HEARTBEAT_S), 1);
    xccl_param_info(XCCL_P_TIMEOUT_S, &info);
    XT_CHECK_INT(info.origin, XCCL_ORIGIN_ENV);
    XT_CHECK(info.file == NULL);
    xccl_param_info(XCCL_P_TIMEOUT_INIT_S, &info);
    XT_CHECK_INT(info.origin, XCCL_ORIGIN_FILE);
    XT_CHECK_TEXT(info.file, conf_path);
    XT_CHECK_INT(info.line, 4);
    XT_CHECK_TEXT(info.value, "30");
    XT_CHECK(xccl_param_is_set(XCCL_P_TIMEOUT_INIT_S));
}

XT_TEST(home_file_is_read_when_no_file_is_named)
{
    char path[600];

    start();
    xt_setenv("XCCL_CONF_FILE", NULL);
    xt_setenv("HOME", folder);
    snprintf(path, sizeof(path), "%s/.xccl.conf", folder);
    write_file(path, "XCCL_RANK=7\n", 12);
    XT_OK(xccl_param_load());
    XT_CHECK_INT(xccl_param_int(XCCL_P_RANK), 7);
}

XT_TEST(later_line_of_a_file_wins)
{
    start_with_file("XCCL_RANK=1\nXCCL_RANK=2");
    XT_OK(xccl_param_load());
    XT_CHECK_INT(xccl_param_int(XCCL_P_RANK), 2);
}

XT_TEST(named_file_that_is_absent_is_an_error)
{
    start();
    xt_setenv("XCCL_CONF_FILE", "/nowhere/xccl.conf");
    XT_CHECK_RC(xccl_param_load(), xcclInvalidArgument);
    XT_CHECK_HAS(xccl_error_text(), "/nowhere/xccl.conf");
    XT_CHECK_HAS(xccl_error_text(), "No such file");
    XT_CHECK_HAS(xccl_error_text(), "XCCL_CONF_FILE");
    XT_CHECK_HAS(log_text(), "error: cannot read the settings file /nowhere/xccl.conf");
}

XT_TEST(named_pipe_as_file_is_an_error_and_no_wait)
{
    char path[600];

    start();
    snprintf(path, sizeof(path), "%s/pipe", folder);
    XT_CHECK_INT(mkfifo(path, 0600), 0);
    xt_setenv("XCCL_CONF_FILE", path);
    XT_CHECK_RC(xccl_param_load(), xcclInvalidArgument);
    XT_CHECK_HAS(log_text(), "error: cannot read");
}

XT_TEST(numbers_suffixes_and_words_are_read_whole_or_refused)
{
    static const struct {
        const char *name, *value;
        enum xccl_param_id id;
        int64_t want; /* -99: refused */
    } cases[] = {
        {"XCCL_BUFFER_BYTES", "2M", XCCL_P_BUFFER_BYTES, 2 << 20},
        {"XCCL_BUFFER_BYTES", "2048k", XCCL_P_BUFFER_BYTES, 2 << 20},
        {"XCCL_BUFFER_BYTES", "1g", XCCL_P_BUFFER_BYTES, 1 << 30},
        {"XCCL_BUFFER_BYTES", "1048576", XCCL_P_BUFFER_BYTES, 1 << 20},
        {"XCCL_BUFFER_BYTES", "1048575", XCCL_P_BUFFER_BYTES, -99},
        {"XCCL_BUFFER_BYTES", "1024G", XCCL_P_BUFFER_BYTES, 1ll << 40},
        {"XCCL_BUFFER_BYTES", "1025G", XCCL_P_BUFFER_BYTES, -99},
        {"XCCL_BUFFER_BYTES", "9223372036854775807G", XCCL_P_BUFFER_BYTES, -99},
        {"XCCL_BUFFER_BYTES", "99999999999999999999", XCCL_P_BUFFER_BYTES, -99},
        {"XCCL_BUFFER_BYTES", "2MB", XCCL_P_BUFFER_BYTES, -99},
        {"XCCL_BUFFER_BYTES", "M", XCCL_P_BUFFER_BYTES, -99},
        {"XCCL_BUFFER_BYTES", "1 ", XCCL_P_BUFFER_BYTES, -99},
        {"XCCL_TIMEOUT_S", "1K", XCCL_P_TIMEOUT_S, -99},
        {"XCCL_TIMEOUT_S", "0x10", XCCL_P_TIMEOUT_S, -99},
        {"XCCL_TIMEOUT_S", " 5", XCCL_P_TIMEOUT_S, -99},
        {"XCCL_TIMEOUT_S", "", XCCL_P_TIMEOUT_S, -99},
        {"XCCL_TIMEOUT_S", "-", XCCL_P_TIMEOUT_S, -99},
        {"XCCL_TIMEOUT_S", "-1", XCCL_P_TIMEOUT_S, -99},
        {"XCCL_TIMEOUT_S", "+5", XCCL_P_TIMEOUT_S, 5},
        {"XCCL_RANK", "-1", XCCL_P_RANK, -1},
        {"XCCL_RANK", "-9223372036854775809", XCCL_P_RANK, -99},
        {"XCCL_SHM_DISABLE", "yes", XCCL_P_SHM_DISABLE, 1},
        {"XCCL_SHM_DISABLE", "ON", XCCL_P_SHM_DISABLE, 1},
        {"XCCL_SHM_DISABLE", "True", XCCL_P_SHM_DISABLE, 1},
        {"XCCL_SHM_DISABLE", "no", XCCL_P_SHM_DISABLE, 0},
        {"XCCL_SHM_DISABLE", "off", XCCL_P_SHM_DISABLE, 0},
        {"XCCL_SHM_DISABLE", "false", XCCL_P_SHM_DISABLE, 0},
        {"XCCL_SHM_DISABLE", "2", XCCL_P_SHM_DISABLE, -99},
        {"XCCL_SHM_DISABLE", "0|1", XCCL_P_SHM_DISABLE, -99},
        {"XCCL_SOCKET_WAIT", "uring", XCCL_P_SOCKET_WAIT, 2},
        {"XCCL_SOCKET_WAIT", "AUTO", XCCL_P_SOCKET_WAIT, 0},
        {"XCCL_SOCKET_WAIT", "urin", XCCL_P_SOCKET_WAIT, -99},
        {"XCCL_SOCKET_WAIT", "", XCCL_P_SOCKET_WAIT, -99},
    };

    start();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        xcclResult_t want = cases[i].want == -99 ? xcclInvalidArgument : xcclSuccess;

        xt_setenv(cases[i].name, cases[i].value);
        xccl_param_reset();
        if (xccl_param_load() != want)
            XT_FAIL("%s=%s: not %d", cases[i].name, cases[i].value, want);
        if (want == xcclSuccess)
            XT_CHECK_INT(xccl_param_int(cases[i].id), cases[i].want);
        xt_setenv(cases[i].name, NULL);
    }
    XT_CHECK_HAS(log_text(), "error: XCCL_SOCKET_WAIT=urin ");
}

/* Ranks whose values differ would run schedules that do not fit together. */
XT_TEST(job_wide_settings_differ_when_their_values_do_and_not_their_spelling)
{
    static const char *const algos[] = {"ring", "nhr", "ring:2", "all_reduce:ring"};
    static const char *const beats[] = {"5", "05", "6"};
    uint64_t hashes[4];
    char text[512];

    start();
    for (int i = 0; i < 4; i++) {
        xt_setenv("XCCL_ALGO", algos[i]);
        xccl_param_reset();
        hashes[i] = xccl_param_job_hash();
        for (int j = 0; j < i; j++)
            XT_CHECK(hashes[i] != hashes[j]);
    }
    xccl_param_job_text(text, sizeof text);
    XT_CHECK_HAS(text, "XCCL_ALGO=all_reduce:ring");
    for (int i = 0; i < 3; i++) {
        xt_setenv("XCCL_HEARTBEAT_S", beats[i]);
        xccl_param_reset();
        hashes[i] = xccl_param_job_hash();
    }
    XT_CHECK(hashes[0] == hashes[1]);
    XT_CHECK(hashes[0] != hashes[2]);
}

XT_TEST(bad_value_error_names_setting_value_range_and_origin)
{
    start();
    xt_setenv("XCCL_TIMEOUT_INIT_S", "0");
    XT_CHECK_RC(xccl_param_load(), xcclInvalidArgument);
    XT_CHECK_TEXT(xccl_error_text(), "XCCL_TIMEOUT_INIT_S=0 is not an allowed value "
                                     "(environment); use 1..86400 s");
    XT_CHECK_HAS(log_text(), "error: XCCL_TIMEOUT_INIT_S=0 is not");
    XT_CHECK_INT(xccl_param_int(XCCL_P_TIMEOUT_INIT_S), 300);
}

XT_TEST(bad_value_in_the_file_names_file_and_line)
{
    char want[600];

    start_with_file("\nXCCL_ROOT=tree\n");
    XT_CHECK_RC(xccl_param_load(), xcclInvalidArgument);
    snprintf(want, sizeof(want), "(%s:2); use rank0|launcher", conf_path);
    XT_CHECK_HAS(xccl_error_text(), want);
    XT_CHECK_HAS(log_text(), want);
}

XT_TEST(every_bad_value_is_logged_and_the_first_is_the_error)
{
    start_with_file("XCCL_ROOT=tree\nXCCL_RANK=x\n");
    XT_CHECK_RC(xccl_param_load(), xcclInvalidArgument);
    XT_CHECK_HAS(xccl_error_text(), "XCCL_ROOT=tree");
    XT_CHECK_HAS(log_text(), "XCCL_ROOT=tree");
    XT_CHECK_HAS(log_text(), "XCCL_RANK=x");
}

XT_TEST(verdict_is_kept_and_logged_once)
{
    start();
    xt_setenv("XCCL_RANK", "many");
    XT_CHECK_RC(xccl_param_load(), xcclInvalidArgument);
    xt_setenv("XCCL_RANK", "1");
    xccl_error_set_text("another");
    XT_CHECK_RC(xccl_param_load(), xcclInvalidArgument);
    XT_CHECK_HAS(xccl_error_text(), "XCCL_RANK=many");
    XT_CHECK_INT(count_in(log_text(), "XCCL_RANK=many"), 1);
    xccl_param_reset();
    XT_OK(xccl_param_load());
    XT_CHECK_INT(xccl_param_int(XCCL_P_RANK), 1);
}

XT_TEST(value_over_the_greatest_length_is_an_error)
{
    static char value[XCCL_PARAM_VALUE_BYTES + 2];

    start();
    memset(value, 'a', XCCL_PARAM_VALUE_BYTES);
    xt_setenv("XCCL_JOB_KEY", value);
    XT_OK(xccl_param_load());
    XT_CHECK_TEXT(xccl_param_string(XCCL_P_JOB_KEY), value);
    value[XCCL_PARAM_VALUE_BYTES] = 'a';
    xt_setenv("XCCL_JOB_KEY", value);
    xccl_param_reset();
    XT_CHECK_RC(xccl_param_load(), xcclInvalidArgument);
    XT_CHECK(strstr(xccl_error_text(), "aaaa") == NULL);
    XT_CHECK(strstr(log_text(), "aaaa") == NULL);
}

XT_TEST(unknown_name_in_the_environment_is_warned_about_once_with_the_nearest)
{
    start();
    xt_setenv("XCCL_NET_PLUGNI", "ib");
    xt_setenv("XCCL_COMPLETELY_UNRELATED_WORDS", "1");
    XT_OK(xccl_param_load());
    XT_OK(xccl_param_load());
    XT_CHECK_INT(count_in(log_text(), "warn: "), 2);
    XT_CHECK_HAS(text_buffer, "warn: unknown setting XCCL_NET_PLUGNI (environment); did you mean "
                              "XCCL_NET_PLUGIN?");
    XT_CHECK_HAS(text_buffer, "unknown setting XCCL_COMPLETELY_UNRELATED_WORDS (environment); "
                              "`xccl env` lists");
}

XT_TEST(nearest_name_is_told_only_within_three_edits_or_a_third)
{
    static const struct {
        const char *name, *nearest;
    } cases[] = {
        {"XCCL_DEBG", "XCCL_DEBUG"},
        {"XCCL_debug", NULL},
        {"XCCL_SOCKET_INTERFACE", NULL}, /* 7 edits from IFNAME and from FAMILY, 5 allowed */
        {"XCCL_SOCKETIFNAMES", "XCCL_SOCKET_IFNAME"},
        {"XCCL_TIMEOUT_INIT_SECS", "XCCL_TIMEOUT_INIT_S"},
        {"XCCL_TIMEOUT_INITIAL_S", "XCCL_TIMEOUT_INIT_S"},
        {"XCCL_ALGOXYZ", "XCCL_ALGO"},
        {"XCCL_ALGOWXYZ", NULL},
        {"XCCL_BUFFER_BYTESVWXYZ", "XCCL_BUFFER_BYTES"}, /* 5 of 17 characters */
        {"XCCL_BUFFER_BYTESTUVWXYZ", NULL},
        {"XCCL_X", NULL},
        {"XCCL_", NULL},
        {"XCCL_XYZW", NULL},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char want[128];

        start();
        unlink(log_path);
        xt_setenv(cases[i].name, "1");
        XT_OK(xccl_param_load());
        xt_setenv(cases[i].name, NULL);
        if (cases[i].nearest)
            snprintf(want, sizeof(want), "did you mean %s?", cases[i].nearest);
        else
            snprintf(want, sizeof(want), "setting %s (environment); `xccl env`", cases[i].name);
        XT_CHECK_HAS(log_text(), want);
    }
}

XT_TEST(unknown_name_in_the_file_is_warned_about_with_file_and_line)
{
    char want[700];

    start_with_file("XCCL_RANK=1\nXCCL_NRANK=2\nDEBUG=info\n");
    XT_OK(xccl_param_load());
    snprintf(want, sizeof(want), "unknown setting XCCL_NRANK (%s:2); did you mean XCCL_NRANKS?",
             conf_path);
    XT_CHECK_HAS(log_text(), want);
    snprintf(want, sizeof(want), "unknown setting DEBUG (%s:3); did you mean XCCL_DEBUG?",
             conf_path);
    XT_CHECK_HAS(text_buffer, want);
}

XT_TEST(crowd_of_unknown_names_hides_no_error_and_is_bounded)
{
    char text[8192] = "";
    size_t used = 0;

    for (int i = 0; i < 100; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "XCCL_ZZZZZZZZZZ%d=1\n", i);
    snprintf(text + used, sizeof(text) - used, "XCCL_RANK=x\n");
    start_with_file(text);
    XT_CHECK_RC(xccl_param_load(), xcclInvalidArgument);
    XT_CHECK_HAS(xccl_error_text(), "XCCL_RANK=x");
    XT_CHECK_HAS(log_text(), "XCCL_RANK=x");
    XT_CHECK(count_in(text_buffer, "\n") <= 40);
    XT_CHECK_HAS(text_buffer, "69 more messages about settings");
}

XT_TEST(name_of_the_file_inside_a_file_is_warned_about)
{
    start_with_file("XCCL_CONF_FILE=/etc/other\n");
    XT_OK(xccl_param_load());
    XT_CHECK_HAS(log_text(), "has no effect; set it in the environment");
    XT_CHECK_TEXT(xccl_param_string(XCCL_P_CONF_FILE), conf_path);
}

XT_TEST(malformed_line_is_an_error_with_file_and_line_and_without_its_contents)
{
    char want[700];

    start_with_file("XCCL_RANK=1\nXCCL_JOB_KEY: s3cr3t\n");
    XT_CHECK_RC(xccl_param_load(), xcclInvalidArgument);
    snprintf(want, sizeof(want), "%s:2: the line has no '='", conf_path);
    XT_CHECK_HAS(xccl_error_text(), want);
    XT_CHECK(strstr(xccl_error_text(), "s3cr3t") == NULL);
    XT_CHECK(strstr(log_text(), "s3cr3t") == NULL);
}

XT_TEST(parser_refuses_what_is_no_line_of_settings)
{
    static const char *const bad[] = {
        "NAME", "=1", " = 1", "A B=1", "A-B=1", "A=\x01", "A=1\rB=2", "\x7f=1", "A.B=1",
    };

    xt_set_error_source(xccl_error_text);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (xccl_param_parse_file("f", bad[i], strlen(bad[i]), take_nothing, NULL) !=
            xcclInvalidArgument)
            XT_FAIL("taken: %s", bad[i]);
        XT_CHECK_HAS(xccl_error_text(), "f:1: ");
    }
    XT_CHECK_RC(xccl_param_parse_file("f", "A=1\0", 4, take_nothing, NULL), xcclInvalidArgument);
    XT_OK(xccl_param_parse_file("f", NULL, 0, take_nothing, NULL));
    XT_OK(xccl_param_parse_file("f", "\n#x=\n \t\r\nA=\nB==", 15, take_nothing, NULL));
}

XT_TEST(parser_bounds_are_exact)
{
    static char text[XCCL_PARAM_FILE_BYTES + 1];

    xt_set_error_source(xccl_error_text);
    memset(text, 'x', sizeof(text));
    memcpy(text, "A=", 2);
    XT_OK(xccl_param_parse_file("f", text, XCCL_PARAM_LINE_BYTES, take_nothing, NULL));
    XT_CHECK_RC(xccl_param_parse_file("f", text, XCCL_PARAM_LINE_BYTES + 1, take_nothing, NULL),
                xcclInvalidArgument);
    XT_CHECK_HAS(xccl_error_text(), "2,048");
    memset(text, '\n', sizeof(text));
    XT_OK(xccl_param_parse_file("f", text, XCCL_PARAM_FILE_BYTES, take_nothing, NULL));
    XT_CHECK_RC(xccl_param_parse_file("f", text, XCCL_PARAM_FILE_BYTES + 1, take_nothing, NULL),
                xcclInvalidArgument);
}

XT_TEST(parser_stays_inside_random_bytes)
{
    uint64_t state = xt_seed();

    for (int round = 0; round < 2000; round++) {
        static const char letters[] = "AZ_= \t\r\n#\0\x01\xff=\n";
        size_t bytes = xt_random(&state) % 64;
        char *text = malloc(bytes + 1); /* exact, so that a sanitizer sees one byte too far */

        for (size_t i = 0; i < bytes; i++)
            text[i] = letters[xt_random(&state) % (sizeof(letters) - 1)];
        text = realloc(text, bytes ? bytes : 1);
        xccl_param_parse_file("f", text, bytes, take_nothing, NULL);
        free(text);
    }
}

/* A text may name code or a file. A new one has to be guarded, or be added here because it names
 * neither. */
XT_TEST(texts_that_name_code_or_files_are_guarded)
{
    static const enum xccl_param_id others[] = {
        XCCL_P_ALGO,        XCCL_P_COMM_ID,   XCCL_P_IB_ADDR_RANGE,     XCCL_P_IB_HCA,
        XCCL_P_JOB_KEY,     XCCL_P_NET_FAULT, XCCL_P_OFI_PROVIDER,      XCCL_P_PORT_RANGE,
        XCCL_P_PROTO,       XCCL_P_UCX_TLS,   XCCL_P_SOCKET_CONGESTION, XCCL_P_SOCKET_IFNAME,
        XCCL_P_UCX_DEVICES,
    };
    struct xccl_param_info info;

    start();
    for (int id = 0; id < XCCL_PARAM_COUNT; id++) {
        int is_other = 0;

        xccl_param_info((enum xccl_param_id)id, &info);
        for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
            is_other |= others[i] == (enum xccl_param_id)id;
        if (info.is_guarded != (info.type == XCCL_PARAM_STRING && !is_other))
            XT_FAIL("%s: guarded %d", info.name, info.is_guarded);
    }
}

/* ---- files that others can change ---- */

#define NOT_READ "warn: the settings file "

/* The file is there, and was not read; the log says why. */
static void check_unread(const char *why)
{
    XT_OK(xccl_param_load());
    XT_CHECK_INT(xccl_param_int(XCCL_P_RANK), -1);
    XT_CHECK_HAS(log_text(), NOT_READ);
    XT_CHECK_HAS(text_buffer, " is not read: ");
    XT_CHECK_HAS(text_buffer, why);
    XT_CHECK_INT(count_in(text_buffer, NOT_READ), 1);
    xccl_param_reset();
    unlink(log_path);
}

static void check_read(void)
{
    XT_OK(xccl_param_load());
    XT_CHECK_INT(xccl_param_int(XCCL_P_RANK), 7);
    XT_CHECK_INT(count_in(log_text(), NOT_READ), 0);
    xccl_param_reset();
    unlink(log_path);
}

XT_TEST(file_that_others_can_write_is_not_read)
{
    start_with_file("XCCL_RANK=7\n");
    check_read();
    XT_CHECK_INT(chmod(conf_path, 0646), 0);
    check_unread("mode 0646) is world-writable: chmod o-w it");
    XT_CHECK_INT(chmod(conf_path, 0644), 0);
    check_read();
    XT_CHECK_INT(chmod(folder, 0777), 0);
    check_unread("mode 0777) is world-writable: chmod o-w it");
    XT_CHECK_INT(chmod(folder, 01777), 0);
    check_read();
}

XT_TEST(file_of_another_user_is_not_read)
{
    char link_path[600];

    if (geteuid() != 0)
        XT_SKIP("only root gives files away");
    start_with_file("XCCL_RANK=7\n");
    XT_CHECK_INT(chown(conf_path, 12345, 0), 0);
    check_unread(
        "conf (owner 12345, mode 0600) belongs neither to root nor to this user: chown it");
    /* Owners of plugins have no say in settings. */
    xt_setenv("XCCL_PLUGIN_OWNERS", "12345");
    check_unread("belongs neither to root nor to this user: chown it");
    XT_CHECK_INT(chown(conf_path, 0, 12345), 0);
    XT_CHECK_INT(chmod(conf_path, 0660), 0);
    check_unread("group 12345, mode 0660): its group");
    XT_CHECK_INT(chown(conf_path, 0, 0), 0);
    check_read();
    XT_CHECK_INT(chown(folder, 12345, 0), 0);
    check_unread("(owner 12345, mode 0700) belongs neither");
    XT_CHECK_INT(chown(folder, 0, 0), 0);
    snprintf(link_path, sizeof(link_path), "%s/link", folder);
    XT_CHECK_INT(symlink("conf", link_path), 0);
    xt_setenv("XCCL_CONF_FILE", link_path);
    check_read();
    XT_CHECK_INT(lchown(link_path, 12345, 0), 0);
    check_unread("link (owner 12345, mode 0777) belongs neither");
}

XT_TEST(home_file_of_another_user_is_not_read)
{
    char path[600];

    if (geteuid() != 0)
        XT_SKIP("only root gives files away");
    start();
    xt_setenv("XCCL_CONF_FILE", NULL);
    xt_setenv("HOME", folder);
    snprintf(path, sizeof(path), "%s/.xccl.conf", folder);
    write_file(path, "XCCL_RANK=7\n", 12);
    check_read();
    XT_CHECK_INT(chown(path, 12345, 0), 0);
    check_unread(".xccl.conf (owner 12345, mode 0600) belongs neither to root nor to this user");
}

XT_TEST(endless_file_is_an_error)
{
    start();
    xt_setenv("XCCL_CONF_FILE", "/dev/zero");
    XT_CHECK_RC(xccl_param_load(), xcclInvalidArgument);
    XT_CHECK_HAS(xccl_error_text(), "65536");
    XT_CHECK_HAS(log_text(), "65536");
}

XT_TEST(empty_device_is_an_empty_file)
{
    start();
    xt_setenv("XCCL_CONF_FILE", "/dev/null");
    XT_OK(xccl_param_load());
}

static char printed[65536];

static void keep_line(void *user, const char *text)
{
    (void)user;
    strncat(printed, text, sizeof(printed) - strlen(printed) - 2);
    strcat(printed, "\n");
}

XT_TEST(print_tells_value_origin_default_range_unit_and_help)
{
    start_with_file("XCCL_TIMEOUT_INIT_S=30\n");
    xt_setenv("XCCL_TIMEOUT_S", "10");
    XT_CHECK_INT(xccl_param_print("", keep_line, NULL), XCCL_PARAM_COUNT);
    XT_CHECK_INT(count_in(printed, "\nXCCL_") + 1, XCCL_PARAM_COUNT);
    XT_CHECK_HAS(printed, "XCCL_TIMEOUT_S=10 (environment; default 600)\n"
                          "    allowed: 0..1073741824 s\n"
                          "    time limit in seconds for a call that waits for other ranks\n"
                          "    0: no limit");
    XT_CHECK_HAS(printed, "XCCL_BUFFER_BYTES=64M (default)\n    allowed: 1M..1024G bytes\n");
    XT_CHECK_HAS(printed, "XCCL_TIMEOUT_INIT_S=30 (");
    XT_CHECK_HAS(printed, "conf:1; default 300)\n");
    XT_CHECK_HAS(printed, "XCCL_COMM_ID= (default)\n    address");
    for (const char *at = printed; *at; at += strcspn(at, "\n") + 1)
        XT_CHECK(strcspn(at, "\n") <= 88);
}

XT_TEST(print_shows_the_settings_whose_name_has_the_word)
{
    start();
    XT_CHECK_INT(xccl_param_print("timeout", keep_line, NULL), 3);
    XT_CHECK_HAS(printed, "XCCL_IB_TIMEOUT=");
    XT_CHECK_HAS(printed, "XCCL_TIMEOUT_INIT_S=");
    XT_CHECK_INT(xccl_param_print("elephant", keep_line, NULL), 0);
}

XT_TEST(print_shows_a_value_in_one_line_whatever_it_is)
{
    start();
    xt_setenv("XCCL_COMM_ID", "a\nb\033[2J");
    xccl_param_print("comm_id", keep_line, NULL);
    XT_CHECK_HAS(printed, "XCCL_COMM_ID=a?b?[2J (environment; default empty)\n");
    XT_CHECK(strchr(printed, '\033') == NULL);
}

XT_TEST(secret_is_never_told)
{
    struct xccl_param_info info;

    start();
    xt_setenv("XCCL_JOB_KEY", "s3cr3t");
    xt_setenv("XCCL_DEBUG", "trace");
    xccl_param_print("", keep_line, NULL);
    xccl_param_page(keep_line, NULL);
    xccl_param_info(XCCL_P_JOB_KEY, &info);
    XT_CHECK_TEXT(info.value, "(set)");
    XT_CHECK_HAS(printed, "XCCL_JOB_KEY=(set) (environment");
    XT_CHECK(strstr(printed, "s3cr3t") == NULL);
    XT_CHECK(strstr(log_text(), "s3cr3t") == NULL);
    XT_CHECK_TEXT(xccl_param_string(XCCL_P_JOB_KEY), "s3cr3t");
}

XT_TEST(page_has_one_row_a_setting_and_no_values)
{
    start();
    xt_setenv("XCCL_COMM_ID", "somewhere:1");
    xccl_param_page(keep_line, NULL);
    XT_CHECK_INT(count_in(printed, "| `XCCL_"), XCCL_PARAM_COUNT);
    XT_CHECK_HAS(printed, "# Settings\n");
    XT_CHECK_HAS(printed, "rank0\\|launcher");
    /* The longest help is there to its end. */
    XT_CHECK_HAS(printed, "auto: chosen by message size; must be equal on all ranks |\n");
    XT_CHECK(strstr(printed, "somewhere") == NULL);
}

static void get_many(int rank, int nranks, void *arg)
{
    (void)nranks;
    (void)arg;
    for (int i = 0; i < 1000; i++) {
        if (rank == 0)
            XT_CHECK_RC(xccl_param_load(), xcclInvalidArgument);
        XT_CHECK_INT(xccl_param_int(XCCL_P_TIMEOUT_S), 42);
        XT_CHECK_TEXT(xccl_param_string(XCCL_P_NET_PLUGIN), "a,b");
        XT_CHECK(!xccl_param_is_set(XCCL_P_ALGO));
    }
}

XT_TEST(getters_in_two_threads_load_once)
{
    start();
    xt_setenv("XCCL_TIMEOUT_S", "42");
    xt_setenv("XCCL_NET_PLUGIN", "a,b");
    xt_setenv("XCCL_RANK", "x");
    xt_setenv("XCCL_UNKNOWN_THING", "1");
    xt_threads_run(2, get_many, NULL);
    XT_CHECK_INT(count_in(log_text(), "XCCL_UNKNOWN_THING"), 1);
    XT_CHECK_INT(count_in(text_buffer, "XCCL_RANK=x"), 1);
}

XT_TEST(getter_leaves_error_text_and_errno_alone)
{
    start_with_file("rubbish\n");
    xccl_error_set_text("mine");
    errno = EXDEV;
    XT_CHECK_INT(xccl_param_int(XCCL_P_RANK), -1);
    XT_CHECK_INT(errno, EXDEV);
    XT_CHECK_TEXT(xccl_error_text(), "mine");
    XT_CHECK_TEXT(log_text(), ""); /* a getter loads in silence */
    XT_CHECK_RC(xccl_param_load(), xcclInvalidArgument);
    XT_CHECK_INT(count_in(log_text(), "conf:1: "), 1);
    XT_CHECK_RC(xccl_param_load(), xcclInvalidArgument);
    XT_CHECK_INT(count_in(log_text(), "conf:1: "), 1); /* told once */
}

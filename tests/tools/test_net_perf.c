/* SPDX-License-Identifier: BSD-3-Clause */
/* `xccl net perf` through the built program: columns, comparison, JSON, drawing, and how it ends
 * when a side dies, hangs or falsifies data. Figures are not judged: only that there are some.
 *
 * Thread: one a test. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "xt.h"

#define XCCL     XT_BUILD_DIR "/bin/xccl"
#define FIXTURES XT_BUILD_DIR "/lib/fixtures"
#define SCHEMA   XT_SOURCE_DIR "/tools/schema/net_perf.schema.json"
#define ARGS_MAX 32

/* Splits the words of args behind `xccl net perf`; words holds their letters. */
static void make_argv(const char *args, char *words, size_t bytes, const char **argv)
{
    char *rest = NULL;
    int count = 3;

    argv[0] = XCCL;
    argv[1] = "net";
    argv[2] = "perf";
    snprintf(words, bytes, "%s", args);
    for (char *word = strtok_r(words, " ", &rest); word && count < ARGS_MAX;
         word = strtok_r(NULL, " ", &rest))
        argv[count++] = word;
    argv[count] = NULL;
}

/* Returns the exit status. */
static int run_any_perf(const char *args, const char **output_out)
{
    char words[1024];
    const char *argv[ARGS_MAX + 1];
    int status = 0;

    make_argv(args, words, sizeof(words), argv);
    status = xt_run_program(argv, output_out);
    XT_CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Runs `xccl net perf` over the loopback device; returns the exit status. */
static int run_perf(const char *args, const char **output_out)
{
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    return run_any_perf(args, output_out);
}

struct row {
    unsigned long long bytes;
    int flows, directions, window;
    double lat, p99, gbs, spread, rate, cpu, busy,
        least; /* lat and p99 are -1 where the table has none */
};

static double cell(const char *text)
{
    return strcmp(text, "-") == 0 ? -1 : strtod(text, NULL);
}

/* Reads the lines of a table that are figures; returns how many. */
static int read_rows(const char *output, struct row *rows, int max)
{
    int count = 0;

    for (const char *at = output; at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL) {
        struct row row;
        char lat[32], p99[32];
        int fields = sscanf(at, "%llu %d %d %d %31s %31s %lf %lf %lf %lf %lf %lf", &row.bytes,
                            &row.flows, &row.directions, &row.window, lat, p99, &row.gbs,
                            &row.spread, &row.rate, &row.cpu, &row.busy, &row.least);

        if (fields != 12)
            continue;
        row.lat = cell(lat);
        row.p99 = cell(p99);
        XT_CHECK(count < max);
        rows[count++] = row;
    }
    return count;
}

XT_TEST_DEADLINE(the_table_has_a_row_for_each_size_flows_and_direction, 120)
{
    struct row rows[16];
    const char *output = NULL;
    int count = 0;

    XT_CHECK_INT(
        run_perf("socket -b 8 -e 64K -f 8192 --flows 1,3 --both -n 20 --rounds 3", &output), 0);
    XT_CHECK_HAS(output, "size  flows  dir  window    lat us    p99 us     GB/s   +-%   Mmsg/s  "
                         "cpu s/GiB  busy   least\n");
    count = read_rows(output, rows, 16);
    XT_CHECK_INT(count, 8);
    for (int i = 0; i < count; i++) {
        XT_CHECK_INT(rows[i].bytes, i < 4 ? 8 : 65536);
        XT_CHECK_INT(rows[i].flows, i % 4 < 2 ? 1 : 3);
        XT_CHECK_INT(rows[i].directions, 1 + i % 2);
        XT_CHECK((rows[i].lat > 0) == (rows[i].directions == 1));
        XT_CHECK(rows[i].p99 >= rows[i].lat);
        XT_CHECK(rows[i].rate > 0);
        XT_CHECK(rows[i].cpu > 0);
        XT_CHECK(rows[i].busy > 0);
        XT_CHECK(rows[i].least >= 0);
    }
}

XT_TEST_DEADLINE(rounds_by_time_sleeping_and_threads_work_too, 120)
{
    struct row rows[4];
    const char *output = NULL;

    XT_CHECK_INT(run_perf("socket -b 0 -e 1 --seconds 0.02 --rounds 2 --wait", &output), 0);
    XT_CHECK_INT(read_rows(output, rows, 4), 1); /* the row of 0 bytes has no cpu s/GiB */
    XT_CHECK_INT(rows[0].bytes, 1);
    XT_CHECK_INT(run_perf("socket -b 4K -e 4K --seconds 0.02 --threads --window 4", &output), 0);
    XT_CHECK_INT(read_rows(output, rows, 4), 1);
    XT_CHECK_INT(rows[0].window, 4);
}

XT_TEST_DEADLINE(a_large_window_of_large_messages_arrives_intact, 120)
{
    struct row rows[4];
    const char *output = NULL;

    XT_CHECK_INT(
        run_perf("socket -b 3000001 -e 3000001 -n 3 --rounds 1 --both --window 32", &output), 0);
    XT_CHECK_INT(read_rows(output, rows, 4), 2);
}

XT_TEST_DEADLINE(two_plugins_take_turns_and_get_a_ratio, 120)
{
    struct row rows[4];
    const char *output = NULL;
    double gbs[3], lat[3];

    XT_CHECK_INT(run_perf("socket --vs socket -b 64 -e 64 -n 50 --rounds 3", &output), 0);
    XT_CHECK_HAS(output, "# A sender");
    XT_CHECK_HAS(output, "# B receiver");
    XT_CHECK_HAS(output, "above 1: A is better");
    XT_CHECK_INT(read_rows(output, rows, 4), 1);
    /* Behind the row's head and the eight figures of each: two ratios. */
    XT_CHECK_INT(sscanf(strstr(output, "\n          64 "),
                        "%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s%*s "
                        "%lf (%lf to %lf) %lf (%lf to %lf)",
                        &gbs[0], &gbs[1], &gbs[2], &lat[0], &lat[1], &lat[2]),
                 6);
    XT_CHECK(gbs[1] > 0 && gbs[1] <= gbs[0] && gbs[0] <= gbs[2]);
    XT_CHECK(lat[1] > 0 && lat[1] <= lat[0] && lat[0] <= lat[2]);
}

XT_TEST_DEADLINE(the_json_file_has_machine_plugins_and_every_round, 120)
{
    static const char code[] =
        "import json, sys\n"
        "found = json.load(open(sys.argv[1]))\n"
        "assert found['error'] is None\n"
        "assert found['machine']['cores'] > 0 and found['date'].endswith('Z')\n"
        "assert [p['sender']['item'] for p in found['plugins']] == ['socket', 'socket']\n"
        "rows = found['results']\n"
        "assert [(r['size'], r['directions']) for r in rows] == [(8, 1), (8, 2)], rows\n"
        "for row in rows:\n"
        "    assert row['ratio']['gb_per_s']['median'] > 0\n"
        "    assert ('latency' in row['ratio']) == (row['directions'] == 1)\n"
        "    for figure in row['figures']:\n"
        "        assert figure['messages'] == 10\n"
        "        assert len(figure['gb_per_s']['rounds']) == 3\n"
        "        spread = figure['mmsg_per_s']['spread']\n"
        "        assert 0 < spread['low'] <= spread['median'] <= spread['high']\n";
    char args[512], path[256];
    const char *argv[] = {"python3", "-c", code, path, NULL};
    const char *output = NULL;

    snprintf(path, sizeof(path), "%s/figures.json", xt_tmpdir());
    snprintf(args, sizeof(args), "socket --vs socket -b 8 -e 8 --both -n 10 --rounds 3 -J %s",
             path);
    XT_CHECK_INT(run_perf(args, &output), 0);
    if (xt_run_program(argv, &output) != 0)
        XT_FAIL("%s", xt_why(output));
}

XT_TEST_DEADLINE(the_json_is_what_its_schema_says, 120)
{
    static const char code[] = "import json, sys\n"
                               "try:\n"
                               "    import jsonschema\n"
                               "except ImportError:\n"
                               "    raise SystemExit(77)\n"
                               "schema, found = (json.load(open(path)) for path in sys.argv[1:])\n"
                               "jsonschema.Draft7Validator.check_schema(schema)\n"
                               "jsonschema.validate(found, schema)\n"
                               "for damage in ('least_flow_gb_per_s', 'busy_cores', 'gb_per_s'):\n"
                               "    broken = json.loads(json.dumps(found))\n"
                               "    del broken['results'][0]['figures'][0][damage]\n"
                               "    try:\n"
                               "        jsonschema.validate(broken, schema)\n"
                               "    except jsonschema.ValidationError:\n"
                               "        continue\n"
                               "    raise SystemExit('the schema misses ' + damage)\n";
    char args[512], path[256];
    const char *argv[] = {"python3", "-c", code, SCHEMA, path, NULL};
    const char *output = NULL;
    int status = 0;

    snprintf(path, sizeof(path), "%s/figures.json", xt_tmpdir());
    snprintf(args, sizeof(args), "socket --vs socket -b 8 -e 8 --both -n 10 --rounds 3 -J %s",
             path);
    XT_CHECK_INT(run_perf(args, &output), 0);
    status = xt_run_program(argv, &output);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        XT_SKIP("python3 has no module jsonschema");
    if (status != 0)
        XT_FAIL("the schema does not fit: %s", xt_why(output));
}

XT_TEST_DEADLINE(each_side_may_be_on_a_host_of_its_own, 120)
{
    static const char *const devices[] = {"sender ", "receiver"};
    struct row rows[4];
    const char *output = NULL;
    int status = 0;

    xt_setenv("XCCL_SOCKET_FAMILY", "ipv4");
    status = run_any_perf("socket -b 64K -e 64K --flows 2 --both -n 20 --rounds 1 --hosts",
                          &output);
    if (status != 0 && strstr(output, "xccl net perf: --hosts: "))
        XT_SKIP("%s", output);
    XT_CHECK_INT(status, 0);
    XT_CHECK_INT(read_rows(output, rows, 4), 2);
    for (int i = 0; i < 2; i++) {
        char device[32];
        const char *line = strstr(output, devices[i]);

        snprintf(device, sizeof(device), "device xcf%d,", i);
        XT_CHECK(line != NULL);
        XT_CHECK_HAS(line, device);
    }
}

XT_TEST_DEADLINE(the_drawing_is_well_formed_and_has_a_line_for_each_plugin, 120)
{
    static const char code[] =
        "import sys, xml.dom.minidom\n"
        "svg = xml.dom.minidom.parse(sys.argv[1]).documentElement\n"
        "assert svg.tagName == 'svg'\n"
        "lines = svg.getElementsByTagName('polyline')\n"
        "assert len(lines) == 4, len(lines)\n"
        "points = [len(line.getAttribute('points').split()) for line in lines]\n"
        "assert points == [3, 3, 3, 3], points\n"
        "text = ' '.join(t.firstChild.data for t in svg.getElementsByTagName('text'))\n"
        "for part in ('A: socket', 'B: ', 'GB/s', 'latency', 'message size', '64 B'):\n"
        "    assert part in text, part\n"
        "assert 'nan' not in svg.toxml() and 'inf' not in svg.toxml()\n";
    char args[1024], path[256];
    const char *argv[] = {"python3", "-c", code, path, NULL};
    const char *output = NULL;

    snprintf(path, sizeof(path), "%s/figures.svg", xt_tmpdir());
    snprintf(args, sizeof(args),
             "socket --vs %s/lib/xccl/libxccl-net-socket.so -b 64 -e 16K -f 16 -n 10 --rounds 2 "
             "--plot %s",
             XT_BUILD_DIR, path);
    XT_CHECK_INT(run_perf(args, &output), 0);
    if (xt_run_program(argv, &output) != 0)
        XT_FAIL("%s", xt_why(output));
}

XT_TEST(wrong_arguments_are_named)
{
    static const struct {
        const char *args, *says;
    } cases[] = {
        {"", "no plugin is named"},
        {"socket socket", "--peer or --vs"},
        {"socket -b 5X", "must be a number of bytes"},
        {"socket -b 64 -e 8", "-b 64 is more than -e 8"},
        {"socket -f 1", "must be a whole number from 2"},
        {"socket --flows 0", "from 1 to 64"},
        {"socket --flows 1,65", "from 1 to 64"},
        {"socket --flows ,", "must be numbers such as 1,4,16"},
        {"socket --flows 1,1,1,1,1,1,1,1,1", "at most 8 numbers"},
        {"socket --window 33", "from 1 to 32"},
        {"socket --rounds 0", "from 1 to 99"},
        {"socket --timeout 0", "--timeout 0: must be more than 0"},
        {"socket --hosts --threads", "cannot be combined"},
        {"socket --hosts=left", "must be two network namespaces"},
        {"socket --seconds 0", "--seconds 0: must be more than 0"},
        {"socket --flos 1", "did you mean --flows?"},
        {"socket -n", "-n needs a value"},
    };
    const char *output = NULL;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        XT_CHECK_INT(run_perf(cases[i].args, &output), 2);
        XT_CHECK_HAS(output, cases[i].says);
    }
}

XT_TEST_DEADLINE(what_keeps_a_run_from_beginning_is_told, 120)
{
    const char *output = NULL;

    xt_setenv("XCCL_PLUGIN_PATH", FIXTURES);
    XT_CHECK_INT(run_perf("nowhere", &output), 1);
    XT_CHECK_HAS(output, "libxccl-net-nowhere.so");
    XT_CHECK_INT(run_perf("fx-minimal", &output), 1);
    XT_CHECK_HAS(output, "listen of flow 0");
    XT_CHECK_HAS(output, "the fixture was told to fail");
    XT_CHECK_INT(run_perf("fx-minimal -b 1025", &output), 1);
    XT_CHECK_HAS(output, "the largest message of the device has 1024 bytes");
    XT_CHECK_INT(run_perf("socket --device nil0", &output), 1);
    XT_CHECK_HAS(output, "there is no device nil0");
    XT_CHECK_INT(run_perf("socket -b 8G -e 8G --flows 64 --window 32", &output), 1);
    XT_CHECK_HAS(output, "choose a smaller -e, --flows or --window");
    XT_CHECK_INT(run_perf("socket --hosts=/nowhere/a,/nowhere/b", &output), 1);
    XT_CHECK_HAS(output, "--hosts: cannot open /nowhere/a: No such file");
    XT_CHECK_INT(run_perf("socket -J /nowhere/at/all.json", &output), 1);
    XT_CHECK_HAS(output, "cannot write /nowhere/at/all.json");
}

/* Compiles a library that changes one bit of what a socket brings; its path. */
static const char *make_falsifier(void)
{
    static char source[200];
    static char path[200];
    const char *argv[] = {"cc", "-shared", "-fPIC", "-o", path, source, "-ldl", NULL};
    const char *output = NULL;
    FILE *file = NULL;

    snprintf(source, sizeof(source), "%s/falsifier.c", xt_tmpdir());
    snprintf(path, sizeof(path), "%s/falsifier.so", xt_tmpdir());
    file = fopen(source, "we");
    XT_CHECK(file != NULL);
    fputs("#define _GNU_SOURCE\n"
          "#include <dlfcn.h>\n"
          "#include <sys/socket.h>\n"
          "ssize_t recvmsg(int fd, struct msghdr *message, int flags)\n"
          "{\n"
          "    ssize_t (*next)(int, struct msghdr *, int) = dlsym(RTLD_NEXT, \"recvmsg\");\n"
          "    ssize_t got = next(fd, message, flags);\n"
          "    if (got >= 1000 && message->msg_iov[0].iov_len >= 1000)\n"
          "        ((char *)message->msg_iov[0].iov_base)[999] ^= 4;\n"
          "    return got;\n"
          "}\n",
          file);
    fclose(file);
    if (xt_run_program(argv, &output) != 0)
        XT_SKIP("no compiler to make a false library with: %s", output);
    return path;
}

XT_TEST_DEADLINE(a_wrong_byte_fails_the_run, 120)
{
    char path[256], line[128], args[512];
    const char *output = NULL;
    FILE *file = NULL;
    int found = 0;

    if (XT_SANITIZED)
        XT_SKIP("a sanitizer wants to be the first library");
    xt_setenv("LD_PRELOAD", make_falsifier());
    snprintf(path, sizeof(path), "%s/figures.json", xt_tmpdir());
    snprintf(args, sizeof(args), "socket -b 64K -e 64K -n 2 --rounds 1 -J %s", path);
    XT_CHECK_INT(run_perf(args, &output), 1);
    XT_CHECK_HAS(output, "socket: the receiver: wrong data: byte ");
    XT_CHECK_HAS(output, " of flow 0 (65536 bytes) is 0x");
    file = fopen(path, "re");
    XT_CHECK(file != NULL);
    while (fgets(line, sizeof(line), file))
        found |= strstr(line, "\"error\": \"socket: the receiver: wrong data") != NULL;
    fclose(file);
    XT_CHECK(found);
}

/* A run that is hurt while it goes on. */
struct run {
    pid_t pid;
    int fd; /* its output */
    char text[8192];
    size_t used;
};

static void run_start(struct run *run, const char *args)
{
    char words[1024];
    const char *argv[ARGS_MAX + 1];
    int fds[2];

    memset(run, 0, sizeof(*run));
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    make_argv(args, words, sizeof(words), argv);
    XT_CHECK(pipe2(fds, O_CLOEXEC) == 0);
    run->pid = fork();
    XT_CHECK(run->pid >= 0);
    if (run->pid == 0) {
        dup2(fds[1], STDOUT_FILENO);
        dup2(fds[1], STDERR_FILENO);
        execv(XCCL, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(fds[1]);
    run->fd = fds[0];
}

/* Reads on; 0 at the end, which comes when no process holds the pipe any more. */
static int run_read(struct run *run)
{
    ssize_t got = 0;

    XT_CHECK(run->used + 1 < sizeof(run->text));
    got = read(run->fd, run->text + run->used, sizeof(run->text) - 1 - run->used);
    XT_CHECK(got >= 0);
    run->used += (size_t)got;
    return got > 0;
}

/* Reads until a row of figures is there, so that the next one is being measured. */
static void run_wait_for_row(struct run *run)
{
    struct row rows[16];

    do {
        XT_CHECK(run_read(run));
    } while (read_rows(run->text, rows, 16) == 0);
}

/* The process of a side, from the head of the table. */
static pid_t run_side(const struct run *run, const char *side)
{
    char key[32];
    const char *at = NULL;

    snprintf(key, sizeof(key), "# A %-8s pid ", side);
    at = strstr(run->text, key);
    XT_CHECK(at != NULL);
    return (pid_t)strtol(at + strlen(key), NULL, 10);
}

/* Its exit status. The pipe's end shows that no side is left. */
static int run_end(struct run *run)
{
    int status = 0;

    while (run_read(run))
        continue;
    close(run->fd);
    XT_CHECK(waitpid(run->pid, &status, 0) == run->pid);
    XT_CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Longer than a row takes on a busy machine. */
#define STOP_S "5"

/* The first rows come fast, also where a message waits for a core that another program has, and
 * there are more rows than a test waits for. */
#define MANY_ROWS "socket -b 8 -e 64M -n 50 --rounds 20"

XT_TEST_DEADLINE(a_side_that_dies_ends_the_run_and_leaves_no_process, 60)
{
    static const char *const sides[] = {"sender", "receiver"};

    for (int i = 0; i < 2; i++) {
        struct run run;
        pid_t side = 0;
        char says[64];

        run_start(&run, MANY_ROWS);
        run_wait_for_row(&run);
        side = run_side(&run, sides[i]);
        XT_CHECK(kill(side, SIGKILL) == 0);
        XT_CHECK_INT(run_end(&run), 1);
        snprintf(says, sizeof(says), "socket: the %s was killed by signal 9", sides[i]);
        XT_CHECK_HAS(run.text, says);
        XT_CHECK_HAS(run.text, "while measuring the ");
        XT_CHECK(kill(run_side(&run, sides[!i]), 0) == -1 && errno == ESRCH);
    }
}

XT_TEST_DEADLINE(a_side_that_stops_is_given_up_after_the_timeout, 60)
{
    struct run run;

    run_start(&run, MANY_ROWS " --timeout " STOP_S);
    run_wait_for_row(&run);
    XT_CHECK(kill(run_side(&run, "receiver"), SIGSTOP) == 0);
    XT_CHECK_INT(run_end(&run), 1);
    XT_CHECK_HAS(run.text, "while measuring the ");
    XT_CHECK(kill(run_side(&run, "receiver"), 0) == -1 && errno == ESRCH);
}

XT_TEST_DEADLINE(the_sides_end_with_a_program_that_is_killed, 60)
{
    struct run run;
    int status = 0;

    run_start(&run, MANY_ROWS);
    run_wait_for_row(&run);
    XT_CHECK(kill(run.pid, SIGKILL) == 0);
    while (run_read(&run)) /* ends when the sides do, for they hold the pipe */
        continue;
    close(run.fd);
    XT_CHECK(waitpid(run.pid, &status, 0) == run.pid);
    XT_CHECK(WIFSIGNALED(status));
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The hook trace: a whole line for each call, in a file that is the user's alone, also when threads
 * share it and when nobody reads it; alone and together with the hook fault. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hook_chain.h"

#define PAIRS 3

struct lines {
    char *text;
    int count;
};

static struct lines lines_read(const char *path)
{
    FILE *file = fopen(path, "r");
    struct lines lines = {.text = calloc(1, 4 << 20)};
    size_t got;

    if (!file || !lines.text)
        XT_FAIL("cannot read %s", path);
    got = fread(lines.text, 1, (4 << 20) - 1, file);
    fclose(file);
    XT_CHECK(got > 0 && lines.text[got - 1] == '\n');
    for (size_t i = 0; i < got; i++)
        lines.count += lines.text[i] == '\n';
    return lines;
}

/* Lines that have the part. */
static int lines_with(const struct lines *lines, const char *part)
{
    int count = 0;

    for (const char *at = lines->text; *at;) {
        size_t bytes = strcspn(at, "\n");

        count += memmem(at, bytes, part, strlen(part)) != NULL;
        at += bytes + 1;
    }
    return count;
}

/* Each line: seconds.nanoseconds thread entry ... = result. */
static void check_whole(const struct lines *lines)
{
    for (const char *at = lines->text; *at;) {
        size_t bytes = strcspn(at, "\n");
        unsigned long long seconds, thread;
        char entry[32];

        if (sscanf(at, "%llu.%*9[0-9] %llu %31s ", &seconds, &thread, entry) != 3 ||
            !memmem(at, bytes, " = ", 3) || bytes > 511)
            XT_FAIL("not a line: %.*s", (int)bytes, at);
        XT_CHECK(seconds > 1500000000 && thread > 0);
        at += bytes + 1;
    }
}

XT_TEST(a_trace_has_a_whole_line_for_each_call)
{
    const char *folder = xt_tmpdir();
    struct traffic traffic;
    struct lines lines;
    struct stat stat_;
    char path[512];

    snprintf(path, sizeof(path), "%s/%%r-%%p-%%h-%%%%", folder);
    run_under("trace:socket", NULL, path, 300, &traffic);
    {
        char host[256];

        XT_CHECK(gethostname(host, sizeof(host)) == 0);
        host[strcspn(host, ".")] = 0;
        snprintf(path, sizeof(path), "%s/3-%d-%s-%%", folder, (int)getpid(), host);
    }
    XT_CHECK(stat(path, &stat_) == 0);
    XT_CHECK_INT(stat_.st_mode & 0777, 0600);
    lines = lines_read(path);
    check_whole(&lines);
    XT_CHECK_INT(lines_with(&lines, " init socket rank 3 of 8, communicator 0000000000001267 = ok"),
                 1);
    XT_CHECK_INT(lines_with(&lines, " listen device 0 listen 1 = ok"), 1);
    XT_CHECK_INT(lines_with(&lines, " connect device 0 send 1, asked "), 1);
    XT_CHECK_INT(lines_with(&lines, " accept listen 1 recv 1, asked "), 1);
    XT_CHECK_INT(lines_with(&lines, " regMr "), 2);
    XT_CHECK_INT(lines_with(&lines, " isend send 1 request "), 300);
    XT_CHECK_INT(lines_with(&lines, " irecv recv 1 request "), 300);
    XT_CHECK_INT(lines_with(&lines, " test send 1 request "), 300);
    XT_CHECK_INT(lines_with(&lines, " test recv 1 request "), 300);
    XT_CHECK_INT(lines_with(&lines, " closeSend send 1 in flight 0"), 1);
    XT_CHECK_INT(lines_with(&lines, " finalize progress calls 0, lines lost 0 = ok"), 1);
    free(lines.text);
}

XT_TEST(an_error_is_told_in_its_line)
{
    xcclNetProperties_v1 props = {.size = sizeof(props)};
    const char *folder = xt_tmpdir();
    struct lines lines;
    struct chain chain;
    char path[512];

    snprintf(path, sizeof(path), "%s/trace", folder);
    chain_open(&chain, "trace:socket", NULL, path);
    XT_CHECK_RC(told(&chain, chain.calls->properties(chain.ctx, 99, &props)), xcclInvalidArgument);
    chain_close(&chain);
    lines = lines_read(path);
    check_whole(&lines);
    XT_CHECK_INT(lines_with(&lines, " ns: device 99 does not exist"), 1);
    free(lines.text);
}

/* SIGPIPE has its default action here, which would end the process. */
XT_TEST(reader_of_a_named_pipe_may_go_away)
{
    xcclNetProperties_v1 props = {.size = sizeof(props)};
    struct chain chain;
    char path[512], bytes[256];
    int reader;

    snprintf(path, sizeof(path), "%s/pipe", xt_tmpdir());
    XT_CHECK_INT(mkfifo(path, 0600), 0);
    reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    chain_open(&chain, "trace:socket", NULL, path);
    XT_CHECK(read(reader, bytes, sizeof(bytes)) > 0);
    close(reader);
    for (int i = 0; i < 100; i++)
        XT_OK(told(&chain, chain.calls->properties(chain.ctx, 0, &props)));
    chain_close(&chain);
}

XT_TEST(hooks_nest_in_any_order)
{
    const char *const items[] = {"trace:fault:socket", "fault:trace:socket",
                                 "trace:fault:trace:socket"};
    const char *folder = xt_tmpdir();

    for (int i = 0; i < 3; i++) {
        struct traffic traffic;
        struct lines lines;
        char path[512];

        snprintf(path, sizeof(path), "%s/trace%d", folder, i);
        run_under(items[i], "seed=8,busy=0.3,partial=0.3,delay=0.1,reorder=0.2", path, 200,
                  &traffic);
        lines = lines_read(path);
        check_whole(&lines);
        XT_CHECK_INT(lines_with(&lines, " isend send 1 request "), i == 2 ? 400 : 200);
        free(lines.text);
    }
}

XT_TEST(a_trace_file_that_is_a_symbolic_link_is_refused)
{
    const char *folder = xt_tmpdir();
    struct chain chain;
    char path[512], target[512];

    snprintf(path, sizeof(path), "%s/link", folder);
    snprintf(target, sizeof(target), "%s/target", folder);
    XT_CHECK(symlink(target, path) == 0);
    xt_setenv("XCCL_NET_TRACE", path);
    chain_load(&chain, "trace:socket");
    XT_CHECK_RC(chain_init(&chain), xcclSystemError);
    XT_CHECK_HAS(xccl_error_text(), "cannot open the trace file");
    XT_CHECK_HAS(xccl_error_text(), "not a symbolic link");
    XT_CHECK(access(target, F_OK) != 0);
    chain_unload(&chain);
}

/* A thread that sends and receives while a second one registers. */
static void thread_run(int rank, int nranks, void *arg)
{
    struct pair *pair = (struct pair *)arg + rank / 2;
    const xcclNetPlugin_v1_t *calls = pair->chain->calls;
    struct traffic traffic;

    (void)nranks;
    if (rank % 2 == 0) {
        traffic_run(&traffic, pair, 200, (uint64_t)rank);
        return;
    }
    for (int i = 0; i < 200; i++) {
        xcclNetStats_v1 stats = {.size = sizeof(stats)};
        xcclNetMem_t mem;

        XT_OK(calls->regMr(pair->send, pair->out, 64, XCCL_NET_PTR_HOST, &mem));
        XT_OK(calls->deregMr(pair->send, mem));
        XT_OK(calls->stats(pair->chain->ctx, 0, &stats));
    }
}

XT_TEST(threads_share_an_instance_and_a_file)
{
    const char *folder = xt_tmpdir();
    struct pair pairs[PAIRS];
    struct chain chain;
    struct lines lines;
    char path[512];

    snprintf(path, sizeof(path), "%s/trace", folder);
    chain_open(&chain, "fault:trace:socket", "seed=2", path);
    for (int i = 0; i < PAIRS; i++)
        pair_open(&pairs[i], &chain);
    xt_threads_run(2 * PAIRS, thread_run, pairs);
    for (int i = 0; i < PAIRS; i++)
        pair_close(&pairs[i]);
    chain_close(&chain);
    lines = lines_read(path);
    check_whole(&lines);
    XT_CHECK_INT(lines_with(&lines, " isend send 2 request "), 200);
    XT_CHECK_INT(lines_with(&lines, " regMr send "), PAIRS * 200);
    XT_CHECK_INT(lines_with(&lines, " stats device 0 = ok"), PAIRS * 200);
    free(lines.text);
}

XT_TEST(a_pipe_that_nobody_reads_stops_nothing)
{
    const char *folder = xt_tmpdir();
    struct traffic traffic;
    struct lines lines;
    char path[512], copy[512];
    static char bytes[1 << 16];
    ssize_t got;
    FILE *file;
    int fd;

    snprintf(path, sizeof(path), "%s/pipe", folder);
    snprintf(copy, sizeof(copy), "%s/copy", folder);
    XT_CHECK(mkfifo(path, 0600) == 0);
    fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    XT_CHECK(fd >= 0 && fcntl(fd, F_SETPIPE_SZ, 8192) > 0);
    run_under("trace:socket", NULL, path, 500, &traffic);
    got = read(fd, bytes, sizeof(bytes));
    close(fd);
    XT_CHECK(got > 0 && got <= 8192);
    file = fopen(copy, "w");
    XT_CHECK(file && fwrite(bytes, 1, (size_t)got, file) == (size_t)got);
    fclose(file);
    lines = lines_read(copy);
    check_whole(&lines);
    free(lines.text);
}

XT_TEST(without_a_file_lines_go_to_standard_error)
{
    const char *folder = xt_tmpdir();
    struct traffic traffic;
    struct lines lines;
    char path[512];
    int fd, kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);

    snprintf(path, sizeof(path), "%s/stderr", folder);
    fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    XT_CHECK(fd >= 0 && kept >= 0);
    XT_CHECK(dup2(fd, STDERR_FILENO) == STDERR_FILENO);
    close(fd);
    run_under("trace:socket", NULL, NULL, 20, &traffic);
    XT_CHECK(dup2(kept, STDERR_FILENO) == STDERR_FILENO);
    close(kept);
    lines = lines_read(path);
    check_whole(&lines);
    XT_CHECK_INT(lines_with(&lines, " test recv 1 request "), 20);
    free(lines.text);
}

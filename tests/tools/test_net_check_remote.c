/* SPDX-License-Identifier: BSD-3-Clause */
/* `xccl net check --serve` and `--remote`: the suite between two programs that know each other by
 * TCP only, as on two hosts. Cases pass in both directions, a defect of either end is found and
 * told by the side that runs, strangers are not served, and the end of one side ends the other.
 *
 * Thread: one a test. */
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "xt.h"

#define XCCL   XT_BUILD_DIR "/bin/xccl"
#define BROKEN XT_BUILD_DIR "/lib/fixtures/libxccl-net-fx-broken.so"
#define TOKEN  "a word of two hosts"

struct server {
    pid_t pid;
    int output; /* what it prints */
    char address[32];
};

/* A port that nobody has at the moment. */
static int free_port(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    XT_CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&addr, bytes) == 0);
    XT_CHECK(getsockname(fd, (struct sockaddr *)&addr, &bytes) == 0);
    close(fd);
    return ntohs(addr.sin_port);
}

/* Reads what the server prints until it has said words, or has ended. */
static void server_hear(const struct server *server, const char *words)
{
    char text[4096] = "";
    size_t used = 0;

    while (!strstr(text, words)) {
        ssize_t got = read(server->output, text + used, sizeof(text) - 1 - used);

        if (got <= 0)
            XT_FAIL("the server does not say '%s': %s", words, text);
        used += (size_t)got;
        text[used] = 0;
    }
}

/* A plugin with this defect, or the socket plugin without one. */
static struct server server_start(const char *plugin, const char *defect)
{
    struct server server;
    int ends[2];

    snprintf(server.address, sizeof(server.address), "127.0.0.1:%d", free_port());
    XT_CHECK(pipe(ends) == 0);
    server.output = ends[0];
    server.pid = fork();
    XT_CHECK(server.pid >= 0);
    if (server.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        setenv("XCCL_PLUGIN_PATH", XT_BUILD_DIR "/lib/xccl", 1);
        if (defect)
            setenv("FX_BROKEN", defect, 1);
        execl(XCCL, "xccl", "net", "check", "--serve", server.address, "--token", TOKEN, plugin,
              (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    server_hear(&server, "for one run");
    return server;
}

/* It ends by itself, well, when the run has ended. */
static void server_end(struct server *server)
{
    int status = -1;

    server_hear(server, "the run has ended");
    XT_CHECK(waitpid(server->pid, &status, 0) == server->pid);
    XT_CHECK_INT(status, 0);
    close(server->output);
}

static void server_kill(struct server *server)
{
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
    close(server->output);
}

/* Exit status of a quick run against it. */
static int run(const struct server *server, const char *token, const char *const more[],
               const char **output_out)
{
    const char *argv[20] = {XCCL,      "net", "check",  "--remote", server->address,
                            "--token", token, "--quick"};
    int count = 8, status;

    xt_setenv("XCCL_PLUGIN_PATH", XT_BUILD_DIR "/lib/xccl");
    for (int i = 0; more[i]; i++)
        argv[count++] = more[i];
    status = xt_run_program(argv, output_out);
    XT_CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

#define RUN(server, token, output_out, ...)                                                        \
    run(server, token, (const char *const[]){__VA_ARGS__, NULL}, output_out)

XT_TEST_DEADLINE(the_socket_plugin_passes_between_two_programs, 120)
{
    struct server server = server_start("socket", NULL);
    const char *output = NULL;

    if (RUN(&server, TOKEN, &output, "socket") != 0)
        XT_FAIL("does not pass: %s", xt_why(output));
    XT_CHECK_HAS(output, " 0 failed, ");
    XT_CHECK_HAS(output, "passed  every_size_arrives                 remote");
    XT_CHECK_HAS(output, "passed  sender_is_killed_mid_message       remote");
    XT_CHECK_HAS(output, "the plugin has no one-sided transfers"); /* what the server says */
    server_end(&server);
}

/* The second run has another seed, from which both ends draw. */
XT_TEST_DEADLINE(both_ends_draw_the_same_in_each_run, 60)
{
    struct server server = server_start("socket", NULL);
    const char *output = NULL;

    if (RUN(&server, TOKEN, &output, "--repeat", "2", "--case", "any_address*", "socket") != 0)
        XT_FAIL("does not pass: %s", xt_why(output));
    XT_CHECK_HAS(output, "2 passed, 0 failed, ");
    server_end(&server);
}

XT_TEST_DEADLINE(the_two_may_change_roles, 120)
{
    struct server server = server_start(BROKEN, NULL);
    const char *output = NULL;

    if (RUN(&server, TOKEN, &output, "--reverse", BROKEN) != 0)
        XT_FAIL("does not pass: %s", xt_why(output));
    XT_CHECK_HAS(output, "passed  tags_choose_the_part               remote");
    XT_CHECK_HAS(output, "passed  receiver_is_killed                 remote");
    server_end(&server);
}

XT_TEST_DEADLINE(a_defect_of_the_end_that_serves_is_told_by_the_other, 60)
{
    struct server server = server_start(BROKEN, "posted-size");
    const char *output = NULL;

    XT_CHECK_INT(RUN(&server, TOKEN, &output, "--case", "larger_receive_*", BROKEN), 1);
    XT_CHECK_HAS(output, "failed  larger_receive_gives_true_size     remote");
    XT_CHECK_HAS(output, "receiver: ");
    XT_CHECK_HAS(output, "true size (rule 5)");
    server_end(&server);
}

XT_TEST_DEADLINE(a_crash_of_the_end_that_serves_is_told_with_its_call, 60)
{
    struct server server = server_start(BROKEN, "crash");
    const char *output = NULL;

    XT_CHECK_INT(RUN(&server, TOKEN, &output, "--reverse", "--case", "every_size_*", BROKEN), 1);
    XT_CHECK_HAS(output, "was killed by SIGABRT inside isend");
    server_end(&server);
}

XT_TEST_DEADLINE(another_token_is_not_served_and_does_no_harm, 60)
{
    struct server server = server_start("socket", NULL);
    const char *output = NULL;

    XT_CHECK_INT(RUN(&server, "another word", &output, "socket"), 1);
    XT_CHECK_HAS(output, "or with another --token");
    if (RUN(&server, TOKEN, &output, "--case", "life_*", "socket") != 0)
        XT_FAIL("does not pass: %s", xt_why(output));
    server_end(&server);
}

/* Each byte of a session's word is wrong once; none is answered, and the next run passes. */
XT_TEST_DEADLINE(damaged_words_are_not_answered, 60)
{
    struct server server = server_start("socket", NULL);
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    uint8_t good[160] = "XCCR\1\0\0\0" TOKEN;
    const char *output = NULL;
    int answered = 0;

    good[40] = 1;
    addr.sin_port = htons((uint16_t)atoi(strchr(server.address, ':') + 1));
    for (int i = 0; i < 48; i++) {
        uint8_t bytes[160], byte;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        memcpy(bytes, good, sizeof(bytes));
        bytes[i] ^= 0x40;
        XT_CHECK(connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
        XT_CHECK(write(fd, bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes));
        answered += read(fd, &byte, 1) == 1;
        close(fd);
    }
    XT_CHECK_INT(answered, 0);
    if (RUN(&server, TOKEN, &output, "--case", "life_*", "socket") != 0)
        XT_FAIL("does not pass: %s", xt_why(output));
    server_end(&server);
}

XT_TEST_DEADLINE(two_hosts_with_two_plugins_are_told_so, 60)
{
    struct server server = server_start(BROKEN, NULL);
    const char *output = NULL;

    XT_CHECK_INT(RUN(&server, TOKEN, &output, "socket"), 1);
    XT_CHECK_HAS(output, "name the same");
    server_end(&server);
}

XT_TEST_DEADLINE(nobody_who_serves_is_told_with_what_to_start, 60)
{
    struct server server = {.pid = -1};
    const char *output = NULL;

    snprintf(server.address, sizeof(server.address), "127.0.0.1:%d", free_port());
    XT_CHECK_INT(RUN(&server, TOKEN, &output, "socket"), 1);
    XT_CHECK_HAS(output, "nobody serves at 127.0.0.1:");
    XT_CHECK_HAS(output, "xccl net check --serve");
}

/* The suite goes on and says so, case by case. */
XT_TEST_DEADLINE(the_death_of_the_one_who_serves_is_told, 120)
{
    struct server server = server_start(BROKEN, "hang");
    const char *output = NULL;
    pid_t killer = fork();

    XT_CHECK(killer >= 0);
    if (killer == 0) {
        sleep(2);
        kill(server.pid, SIGKILL);
        _exit(0);
    }
    XT_CHECK_INT(RUN(&server, TOKEN, &output, "--reverse", "--timeout", "10", "--case",
                     "every_size_*", BROKEN),
                 1);
    waitpid(killer, NULL, 0);
    if (!strstr(output, "the host that serves has gone"))
        XT_CHECK_HAS(output, "the other role has ended early");
    server_kill(&server);
}

XT_TEST(options_that_do_not_fit_are_refused)
{
    static const struct {
        const char *words[6], *says;
    } wrong[] = {
        {{"--serve", "127.0.0.1:7"}, "need the same --token"},
        {{"--remote", "127.0.0.1:7", "--token", ""}, "need the same --token"},
        {{"--remote", "127.0.0.1:7", "--serve", "127.0.0.1:8"}, "--remote for the other"},
        {{"--remote", "127.0.0.1:7", "--token", "a", "--jobs", "2"}, "one case at a time"},
        {{"--reverse"}, "goes with --remote"},
        {{"--form", "remote"}, "asked for by --remote"},
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const char *argv[12] = {XCCL, "net", "check"}, *output = NULL;
        int count = 3, status;

        for (int j = 0; j < 6 && wrong[i].words[j]; j++)
            argv[count++] = wrong[i].words[j];
        argv[count] = "socket";
        status = xt_run_program(argv, &output);
        XT_CHECK(WIFEXITED(status));
        XT_CHECK_INT(WEXITSTATUS(status), 2);
        XT_CHECK_HAS(output, wrong[i].says);
    }
}

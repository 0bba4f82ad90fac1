/* SPDX-License-Identifier: BSD-3-Clause */
/* `xccl net check --serve` and `--remote`: the suite between two programs that know each other by
 * TCP only, as on two hosts. Cases pass in both directions, a defect of either end is found and
 * told by the side that runs, strangers are not served, and the end of one side ends the other.
 *
 * Thread: one a test. */
#include "cf_remote.h"

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
    size_t used;
    char text[16384]; /* of that, what has come */
    char address[64];
};

/* Reads what the server prints until it has said words, or has ended. */
static const char *server_hear(struct server *server, const char *words)
{
    const char *found;

    while (!(found = strstr(server->text, words))) {
        ssize_t got = read(server->output, server->text + server->used,
                           sizeof(server->text) - 1 - server->used);

        if (got <= 0)
            XT_FAIL("the server does not say '%s': %s", words, server->text);
        server->used += (size_t)got;
        server->text[server->used] = 0;
    }
    return found;
}

static _Noreturn void server_become(const int ends[2], const char *plugin, const char *defect)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(ends[1], 1);
    dup2(ends[1], 2);
    close(ends[0]);
    close(ends[1]);
    setenv("XCCL_PLUGIN_PATH", XT_BUILD_DIR "/lib/xccl", 1);
    if (defect)
        setenv("FX_BROKEN", defect, 1);
    execl(XCCL, "xccl", "net", "check", "--serve", "127.0.0.1:0", "--token", TOKEN, "--max-bytes",
          "16M", plugin, (char *)NULL);
    _exit(127);
}

/* A plugin with this defect, or the socket plugin without one. */
static void server_start(struct server *server, const char *plugin, const char *defect)
{
    int ends[2];

    memset(server, 0, sizeof(*server));
    XT_CHECK(pipe(ends) == 0);
    server->output = ends[0];
    server->pid = fork();
    XT_CHECK(server->pid >= 0);
    if (server->pid == 0)
        server_become(ends, plugin, defect);
    close(ends[1]);
    server_hear(server, ", for one run\n");
    XT_CHECK(sscanf(server_hear(server, ", at "), ", at %63[0-9.:]", server->address) == 1);
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

/* Fails with what it says unless it passes. */
#define EXPECT_PASS(server, output_out, ...)                                                       \
    do {                                                                                           \
        if (RUN(server, TOKEN, output_out, __VA_ARGS__) != 0)                                      \
            XT_FAIL("does not pass: %s", xt_why(*(output_out)));                                   \
    } while (0)
#define RUN(server, token, output_out, ...)                                                        \
    run(server, token, (const char *const[]){__VA_ARGS__, NULL}, output_out)

XT_TEST_DEADLINE(the_socket_plugin_passes_between_two_programs, 120)
{
    struct server server;
    const char *output = NULL;

    server_start(&server, "socket", NULL);
    EXPECT_PASS(&server, &output, "socket");
    XT_CHECK_HAS(output, " 0 failed, ");
    XT_CHECK_HAS(output, "passed  every_size_arrives                 remote");
    XT_CHECK_HAS(output, "passed  sender_is_killed_mid_message       remote");
    XT_CHECK_HAS(output, "the plugin has no one-sided transfers"); /* what the server says */
    server_end(&server);
}

/* The second run has another seed, from which both ends draw. */
XT_TEST_DEADLINE(both_ends_draw_the_same_in_each_run, 60)
{
    struct server server;
    const char *output = NULL;

    server_start(&server, "socket", NULL);
    EXPECT_PASS(&server, &output, "--repeat", "2", "--case", "any_address*", "socket");
    XT_CHECK_HAS(output, "2 passed, 0 failed, ");
    server_end(&server);
}

XT_TEST_DEADLINE(the_two_may_change_roles, 120)
{
    struct server server;
    const char *output = NULL;

    server_start(&server, BROKEN, NULL);
    EXPECT_PASS(&server, &output, "--reverse", BROKEN);
    XT_CHECK_HAS(output, "passed  tags_choose_the_part               remote");
    XT_CHECK_HAS(output, "passed  receiver_is_killed                 remote");
    server_end(&server);
}

XT_TEST_DEADLINE(a_defect_of_the_end_that_serves_is_told_by_the_other, 60)
{
    struct server server;
    const char *output = NULL;

    server_start(&server, BROKEN, "posted-size");
    XT_CHECK_INT(RUN(&server, TOKEN, &output, "--case", "larger_receive_*", BROKEN), 1);
    XT_CHECK_HAS(output, "failed  larger_receive_gives_true_size     remote");
    XT_CHECK_HAS(output, "receiver: ");
    XT_CHECK_HAS(output, "true size (rule 5)");
    server_end(&server);
}

XT_TEST_DEADLINE(a_crash_of_the_end_that_serves_is_told_with_its_call, 60)
{
    struct server server;
    const char *output = NULL;

    server_start(&server, BROKEN, "crash");
    XT_CHECK_INT(RUN(&server, TOKEN, &output, "--reverse", "--case", "every_size_*", BROKEN), 1);
    XT_CHECK_HAS(output, "was killed by SIGABRT inside isend");
    server_end(&server);
}

XT_TEST_DEADLINE(another_token_is_not_served_and_does_no_harm, 60)
{
    struct server server;
    const char *output = NULL;

    server_start(&server, "socket", NULL);
    XT_CHECK_INT(RUN(&server, "another word", &output, "socket"), 1);
    XT_CHECK_HAS(output, "no server with this --token");
    EXPECT_PASS(&server, &output, "--case", "life_*", "socket");
    server_end(&server);
}

static uint16_t port_of(const struct server *server)
{
    return (uint16_t)atoi(strchr(server->address, ':') + 1);
}

/* A connection that says these bytes. */
static int stranger(const struct server *server, const uint8_t bytes[CF_WORD_BYTES])
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    addr.sin_port = htons(port_of(server));
    XT_CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
    XT_CHECK(write(fd, bytes, CF_WORD_BYTES) == CF_WORD_BYTES);
    return fd;
}

static int stranger_of_kind(const struct server *server, uint32_t kind)
{
    const struct cf_word word = {.kind = kind};
    uint8_t bytes[CF_WORD_BYTES];

    cf_word_encode(&word, TOKEN, bytes);
    return stranger(server, bytes);
}

/* The answer to a session's word. */
static struct cf_answer hear_answer(int fd)
{
    uint8_t bytes[CF_ANSWER_BYTES];
    struct cf_answer answer = {.good = 0};

    XT_CHECK(recv(fd, bytes, sizeof(bytes), MSG_WAITALL) == (ssize_t)sizeof(bytes));
    XT_CHECK(cf_answer_decode(bytes, &answer));
    return answer;
}

static void expect_closed(int fd)
{
    char byte;

    XT_CHECK(read(fd, &byte, 1) <= 0);
    close(fd);
}

/* Each byte of a session's word is wrong once; none is answered, and the right word is. */
XT_TEST_DEADLINE(damaged_words_are_not_answered, 60)
{
    const struct cf_word word = {.kind = CF_WORD_SESSION};
    uint8_t good[CF_WORD_BYTES], bytes[CF_WORD_BYTES];
    struct server server;
    struct cf_answer answer;
    int fd;

    server_start(&server, "socket", NULL);
    cf_word_encode(&word, TOKEN, good);
    for (size_t i = 0; i < sizeof(good); i++) {
        memcpy(bytes, good, sizeof(bytes));
        bytes[i] ^= 0x40;
        expect_closed(stranger(&server, bytes));
    }
    fd = stranger(&server, good);
    answer = hear_answer(fd);
    XT_CHECK_INT(answer.good, 1);
    XT_CHECK_TEXT(answer.plugin, "socket");
    XT_CHECK_INT(answer.max_bytes, 16 << 20); /* the server's, where that is the smaller one */
    close(fd);
    server_end(&server);
}

/* What does not fit to the run is closed, and does it no harm. */
XT_TEST_DEADLINE(words_out_of_turn_end_their_connection_only, 60)
{
    struct server server;
    const char *output = NULL;
    int session;

    server_start(&server, "socket", NULL);
    expect_closed(stranger_of_kind(&server, CF_WORD_CASE));
    expect_closed(stranger_of_kind(&server, CF_WORD_CHANNEL));
    session = stranger_of_kind(&server, CF_WORD_SESSION);
    XT_CHECK_INT(hear_answer(session).good, 1);
    XT_CHECK_INT(RUN(&server, TOKEN, &output, "socket"), 1);
    XT_CHECK_HAS(output, "another run is in progress on that host");
    /* A byte where none is due ends the session. */
    XT_CHECK(write(session, "", 1) == 1);
    server_end(&server);
    close(session);
}

/* The kernel's table names the timer of a connection: 2 is that of keepalive. */
XT_TEST_DEADLINE(a_session_is_kept_alive_by_the_kernel, 60)
{
    struct sockaddr_in own = {.sin_port = 0};
    socklen_t bytes = sizeof(own);
    struct server server;
    char line[512];
    unsigned from, to, timer = 0;
    FILE *table;
    int fd;

    server_start(&server, "socket", NULL);
    fd = stranger_of_kind(&server, CF_WORD_SESSION);
    XT_CHECK_INT(hear_answer(fd).good, 1);
    XT_CHECK(getsockname(fd, (struct sockaddr *)&own, &bytes) == 0);
    /* Until what was sent has been acknowledged another timer is there. */
    for (int turn = 0; turn < 100 && timer != 2; turn++) {
        table = fopen("/proc/net/tcp", "re");
        XT_CHECK(table != NULL);
        while (fgets(line, sizeof(line), table)) {
            unsigned found;

            if (sscanf(line, " %*u: %*x:%x %*x:%x %*x %*x:%*x %x:", &from, &to, &found) == 3 &&
                to == ntohs(own.sin_port) && from == port_of(&server))
                timer = found;
        }
        fclose(table);
        usleep(10000);
    }
    XT_CHECK_INT(timer, 2);
    close(fd);
    server_end(&server);
}

XT_TEST_DEADLINE(two_hosts_with_two_plugins_are_told_so, 60)
{
    struct server server;
    const char *output = NULL;

    server_start(&server, BROKEN, NULL);
    XT_CHECK_INT(RUN(&server, TOKEN, &output, "socket"), 1);
    XT_CHECK_HAS(output, "name the same");
    server_end(&server);
}

XT_TEST_DEADLINE(two_hosts_with_two_contracts_are_told_so, 60)
{
    struct server server;
    const char *output = NULL;

    server_start(&server, "socket", NULL);
    XT_CHECK_INT(RUN(&server, TOKEN, &output, XT_BUILD_DIR "/lib/xccl/libxccl-net-socket.so@v10"),
                 1);
    XT_CHECK_HAS(output, "has contract xcclNetPlugin_v1, but this host has ncclNet");
    server_end(&server);
}

/* The port is taken, so nobody else has it, and nobody listens there. */
XT_TEST_DEADLINE(nobody_who_serves_is_told_with_what_to_start, 60)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(addr);
    struct server server = {.pid = -1};
    const char *output = NULL;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    XT_CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&addr, bytes) == 0);
    XT_CHECK(getsockname(fd, (struct sockaddr *)&addr, &bytes) == 0);
    snprintf(server.address, sizeof(server.address), "127.0.0.1:%d", ntohs(addr.sin_port));
    XT_CHECK_INT(RUN(&server, TOKEN, &output, "socket"), 1);
    XT_CHECK_HAS(output, "no server with this --token answers at 127.0.0.1:");
    XT_CHECK_HAS(output, "xccl net check --serve");
    close(fd);
}

/* The deadline of there comes first, and the call is named. */
XT_TEST_DEADLINE(a_hang_of_the_end_that_serves_is_told_with_its_call, 60)
{
    struct server server;
    const char *output = NULL;

    server_start(&server, BROKEN, "hang");
    XT_CHECK_INT(RUN(&server, TOKEN, &output, "--reverse", "--timeout", "8", "--case",
                     "every_size_*", BROKEN),
                 1);
    XT_CHECK_HAS(output, "closeSend (sender)");
    server_end(&server);
}

/* In the middle of the first case: that one and those behind it say so, and the latter at once. */
XT_TEST_DEADLINE(the_death_of_the_one_who_serves_is_told, 60)
{
    struct server server;
    const char *output = NULL, *second;
    pid_t killer;

    server_start(&server, BROKEN, "hang");
    killer = fork();
    XT_CHECK(killer >= 0);
    if (killer == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        server_hear(&server, "# case every_size_arrives");
        kill(server.pid, SIGKILL);
        _exit(0);
    }
    XT_CHECK_INT(
        RUN(&server, TOKEN, &output, "--reverse", "--timeout", "4", "--case", "*_size*", BROKEN),
        1);
    waitpid(killer, NULL, 0);
    XT_CHECK_HAS(output, "failed  every_size_arrives ");
    XT_CHECK_HAS(output, "the host with --serve has disconnected");
    second = strstr(output, "failed  larger_receive_gives_true_size");
    XT_CHECK(second != NULL);
    XT_CHECK_HAS(second, "      0 ms");
    XT_CHECK_HAS(second, "the host with --serve has disconnected");
    server_kill(&server);
}

XT_TEST(options_that_do_not_fit_are_refused)
{
    static const struct {
        const char *words[6], *says;
    } wrong[] = {
        {{"--serve", "127.0.0.1:7"}, "need the same --token"},
        {{"--remote", "127.0.0.1:7", "--token", ""}, "need the same --token"},
        {{"--remote", "127.0.0.1:7", "--serve", "127.0.0.1:8"}, "--remote on the other"},
        {{"--remote", "127.0.0.1:7", "--token", "a", "--jobs", "2"}, "one case at a time"},
        {{"--reverse"}, "--reverse needs --remote"},
        {{"--form", "remote"}, "selected by --remote"},
        {{"--form", "single", "--remote", "127.0.0.1:7", "--token", "a"},
         "cannot be combined with --form"},
        {{"--token", "a"}, "--token needs"},
        {{"--serve", "127.0.0.1:0", "--token", "a", "--case", "life_*"},
         "--case cannot be combined with --serve"},
        {{"--serve", "127.0.0.1:0", "--token", "a", "-J", "-"},
         "--json cannot be combined with --serve"},
        {{"--serve", "127.0.0.1:0", "--token", "a", "--quick"},
         "--quick cannot be combined with --serve"},
        {{"--serve", "127.0.0.1:0", "--token", "a", "--repeat", "1"},
         "--repeat cannot be combined with --serve"},
        {{"--serve", "127.0.0.1", "--token", "a"}, "--serve: \"127.0.0.1\" is not an address"},
        {{"--remote", "127.0.0.1:x", "--token", "a"},
         "--remote: \"127.0.0.1:x\" is not an address"},
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

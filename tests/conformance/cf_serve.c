/* SPDX-License-Identifier: BSD-3-Clause */
/* Form remote, the side that serves: one run, one case at a time, each in a process of its own as
 * the runner's. Strangers stay at the door: who does not know the token gets no answer.
 *
 *   waits --session--> idle --case, channel--> running --its process ends--> idle
 *                                              running --its deadline--> idle
 *                                              running --the runner gives it up--> idle
 *                      --the session ends--> over
 *
 * Thread: one, the only one of its process: cases are forks of it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "kit/kit_doorstep.h"
#include "base/error.h"
#include "base/tcp.h"
#include "cf_remote.h"
#include "pulse.h"

#define SEND_MS  5000u
#define EARLY_NS (5 * XCCL_NS_PER_S)
#define GRACE_MS 300u /* for a role to say why it fails, once the other one has */
#define AHEAD_MS 2000u /* of the runner's deadline, at most */

struct serve {
    struct xccl_conformance_options options;
    struct cf_shared plugin; /* what the first look found */
    struct kit_doorstep step;
    int listen_fd, session_fd;
    struct cf_word word; /* of the present case */
    int case_fd; /* its connection; -1: there is none */
    int given_up; /* by the runner */
    struct cf_task task; /* pid 0: it has no channel yet */
    uint64_t count; /* cases that have ended */
};

static const struct cf_case *case_of(const char *name)
{
    const struct cf_case *test;

    for (int i = 0; (test = cf_case_at(i)); i++) {
        if (strcmp(test->name, name) == 0)
            return cf_has_form(test, CF_REMOTE) ? test : NULL;
    }
    return NULL;
}

/* The runner says no more on a session, and on that of a case: whatever comes is its end. */
static int has_moved(int fd)
{
    char byte;

    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0 || xccl_tcp_has_ended(fd);
}

/* ---- the present case ---- */

static void case_drop(struct serve *serve)
{
    if (serve->task.pid > 0)
        cf_task_end(&serve->task, CF_AT_DEADLINE);
    cf_task_drop(&serve->task);
    xccl_tcp_close(&serve->case_fd);
    serve->given_up = 0;
}

static void case_say(struct serve *serve, int verdict, const char *text)
{
    struct xccl_limit limit = xccl_limit_ms(SEND_MS, NULL);
    uint8_t bytes[CF_END_BYTES];

    cf_end_encode(verdict, text, bytes);
    /* A runner that has gone shows by its session. */
    (void)xccl_tcp_send_all(serve->case_fd, bytes, sizeof(bytes), &limit);
    case_drop(serve);
}

static void case_begin(struct serve *serve, int fd, const struct cf_word *word)
{
    case_drop(serve);
    serve->case_fd = fd;
    serve->word = *word;
    serve->task = (struct cf_task){.test = case_of(word->name),
                                   .form = CF_REMOTE,
                                   .seed = word->seed,
                                   .role = (int)word->role,
                                   .channel = -1,
                                   .give_ms = word->timeout_ms,
                                   .pidfd = -1,
                                   .output_fd = -1};
    if (!serve->task.test)
        case_say(serve, CF_FAILED,
                 "the host with --serve does not know this case; install the same version on both "
                 "hosts");
}

static void case_start(struct serve *serve, int channel)
{
    struct xccl_conformance_options options = serve->options;
    struct cf_task *task = &serve->task;
    uint64_t ahead_ms = serve->word.timeout_ms / 8;

    options.quick = (int)serve->word.quick;
    options.timeout_ms = serve->word.timeout_ms;
    if (serve->word.max_bytes < options.max_bytes)
        options.max_bytes = serve->word.max_bytes ? serve->word.max_bytes : 1;
    task->channel = channel;
    fcntl(channel, F_SETFL, fcntl(channel, F_GETFL) & ~O_NONBLOCK);
    if (cf_task_start(&options, NULL, &serve->plugin, task, 0)) {
        /* The runner still listens when the call is named that has no end here. */
        task->end_ns -= (ahead_ms < AHEAD_MS ? ahead_ms : AHEAD_MS) * CF_MS;
        printf("# case %s, %s\n", task->test->name,
               task->role == CF_SENDER ? "sender" : "receiver");
        fflush(stdout);
    } else {
        case_say(serve, CF_SKIPPED, "the host with --serve cannot start a process");
    }
    close(channel);
}

/* The runner needs no more than the reason why it has failed. */
static void case_give_up(struct serve *serve)
{
    uint64_t end_ns = cf_now() + GRACE_MS * CF_MS;

    serve->given_up = 1;
    if (serve->task.pid <= 0)
        case_drop(serve);
    else if (end_ns < serve->task.end_ns)
        serve->task.end_ns = end_ns;
}

/* Ends what has ended, late or given up. */
static void case_look(struct serve *serve)
{
    if (serve->case_fd >= 0 && !serve->given_up && has_moved(serve->case_fd))
        case_give_up(serve);
    if (serve->task.pid > 0 && cf_tasks_wait(&serve->task, 1) > 0) {
        serve->count++;
        case_say(serve, serve->task.verdict, serve->task.text);
    }
}

/* ---- who comes ---- */

static void session_begin(struct serve *serve, int fd)
{
    struct xccl_limit limit = xccl_limit_ms(SEND_MS, NULL);
    struct cf_answer answer = {.good = serve->session_fd < 0,
                               .max_bytes = serve->options.max_bytes};
    uint8_t bytes[CF_ANSWER_BYTES];
    uint64_t most = serve->plugin.props.maxBytes;

    if (most && most < answer.max_bytes)
        answer.max_bytes = most;
    snprintf(answer.plugin, sizeof(answer.plugin), "%s", serve->plugin.name);
    snprintf(answer.contract, sizeof(answer.contract), "%s", serve->plugin.contract);
    if (!answer.good)
        snprintf(answer.why, sizeof(answer.why), "another run is in progress on that host");
    cf_answer_encode(&answer, bytes);
    if (xccl_tcp_send_all(fd, bytes, sizeof(bytes), &limit) != xcclSuccess || !answer.good)
        xccl_tcp_close(&fd);
    else
        cf_remote_keep(serve->session_fd = fd);
}

/* Takes the connection from him, unless it is a channel whose case has not come yet. */
static void welcome(struct serve *serve, struct kit_stranger *stranger, const struct cf_word *word,
                    uint64_t now_ns)
{
    int fd = stranger->fd;

    if (word->kind == CF_WORD_CHANNEL && (serve->case_fd < 0 || word->id != serve->word.id)) {
        if (now_ns - stranger->since_ns > EARLY_NS || xccl_tcp_has_ended(fd))
            kit_doorstep_drop(&serve->step, stranger, "a channel without a case");
        return;
    }
    stranger->fd = -1;
    if (word->kind == CF_WORD_SESSION)
        session_begin(serve, fd);
    else if (serve->session_fd >= 0 && word->kind == CF_WORD_CASE)
        case_begin(serve, fd, word);
    else if (word->kind == CF_WORD_CHANNEL && serve->task.pid <= 0)
        case_start(serve, fd);
    else
        xccl_tcp_close(&fd);
}

static xcclResult_t doors_look(struct serve *serve)
{
    uint64_t now_ns = xccl_clock_ns();
    xcclResult_t rc = kit_doorstep_fill(&serve->step, serve->listen_fd, now_ns);

    for (int i = 0; i < KIT_DOORSTEP_PLACES; i++) {
        struct kit_stranger *stranger = &serve->step.places[i];
        struct cf_word word;

        if (stranger->fd < 0 || !kit_doorstep_read(&serve->step, stranger, CF_WORD_BYTES, now_ns))
            continue;
        if (cf_word_decode(stranger->hello, serve->options.token, &word))
            welcome(serve, stranger, &word, now_ns);
        else
            kit_doorstep_drop(&serve->step, stranger, "a wrong word");
    }
    return rc;
}

/* ---- the run ---- */

/* Until something may have happened, or a beat is due. */
static void rest(struct serve *serve)
{
    struct pollfd fds[KIT_DOORSTEP_PLACES + 4];
    nfds_t count = 0;

    fds[count++] = (struct pollfd){.fd = serve->listen_fd, .events = POLLIN};
    fds[count++] = (struct pollfd){.fd = serve->session_fd, .events = POLLIN};
    fds[count++] = (struct pollfd){.fd = serve->given_up ? -1 : serve->case_fd, .events = POLLIN};
    fds[count++] = (struct pollfd){.fd = serve->task.pid > 0 ? serve->task.pidfd : -1,
                                   .events = POLLIN};
    for (int i = 0; i < KIT_DOORSTEP_PLACES; i++) {
        const struct kit_stranger *stranger = &serve->step.places[i];

        /* A channel whose case has not come is looked at with each beat. */
        fds[count++] = (struct pollfd){.fd = stranger->have < CF_WORD_BYTES ? stranger->fd : -1,
                                       .events = POLLIN};
    }
    if (poll(fds, count, PULSE_BEAT_MS) < 0 && errno != EINTR)
        cf_sleep_ms(1);
    cf_beat();
}

static int serve_run(struct serve *serve)
{
    int over = 0;

    while (!over) {
        if (doors_look(serve) != xcclSuccess) {
            fprintf(stderr, "xccl net check: cannot take a connection: %s\n", xccl_error_text());
            return 1;
        }
        case_look(serve);
        over = serve->session_fd >= 0 && has_moved(serve->session_fd);
        if (!over)
            rest(serve);
    }
    case_drop(serve);
    printf("# the run has ended: %llu cases finished\n", (unsigned long long)serve->count);
    return 0;
}

/* HOST:PORT; port 0 is any. */
static int address_read(const char *address, struct xccl_addr *addr_out)
{
    size_t bytes = strlen(address);
    int any = bytes > 2 && strcmp(address + bytes - 2, ":0") == 0;
    char text[512];

    snprintf(text, sizeof(text), "%.*s%s", (int)(any ? bytes - 1 : bytes), address, any ? "1" : "");
    if (!cf_address_read("--serve", text, addr_out))
        return 0;
    if (any)
        xccl_addr_set_port(addr_out, 0);
    return 1;
}

static int serve_listen(struct serve *serve, const struct xccl_addr *addr)
{
    struct xccl_addr bound;
    char text[XCCL_ADDR_TEXT_BYTES];
    xcclResult_t rc = kit_doorstep_init(&serve->step, CF_WORD_BYTES);

    if (rc == xcclSuccess)
        rc = xccl_tcp_listen(addr, &serve->listen_fd, &bound);
    if (rc != xcclSuccess) {
        xccl_addr_format(addr, text);
        fprintf(stderr, "xccl net check: cannot serve at %s: %s\n", text, xccl_error_text());
        return 0;
    }
    xccl_addr_format(&bound, text);
    printf("# serves %s, contract %s, device %d (%s), at %s, for one run\n", serve->plugin.name,
           serve->plugin.contract, (int)serve->options.device, serve->plugin.device, text);
    fflush(stdout);
    return 1;
}

int xccl_conformance_serve(const struct xccl_conformance_options *options, const char *address)
{
    static struct serve serve;
    struct xccl_addr addr;
    int status = 1;

    if (!address_read(address, &addr))
        return 2;
    serve = (struct serve){.options = *options, .listen_fd = -1, .session_fd = -1, .case_fd = -1};
    cf_beat();
    if (cf_look(options, 0, &serve.plugin) && serve_listen(&serve, &addr))
        status = serve_run(&serve);
    kit_doorstep_fini(&serve.step);
    xccl_tcp_close(&serve.session_fd);
    xccl_tcp_close(&serve.listen_fd);
    return status;
}

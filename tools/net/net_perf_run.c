/* SPDX-License-Identifier: BSD-3-Clause */
/* Starts the two sides of a pair, tells them what to do, and looks after them.
 *
 *   start: fork, then OPEN one side after the other    connect: LISTEN both, CONNECT both
 *   round: ROUND both, as often as wanted              finish: QUIT both, wait for their end
 *
 * A side that neither answers nor gets on for --timeout is killed, one that dies is named with its
 * signal, and when one fails the other is given a moment to say what it saw. The processes die with
 * this one (PR_SET_PDEATHSIG), however it ends.
 *
 * Thread: the program's main thread, which never opens a plugin and has no other threads, so that
 * fork is harmless. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/net_perf_side.h"

#define BOTH       3u
#define LOOK_MS    100
#define LAST_MS    300 /* for the other side's words when one has failed */
#define GRACE_MS   1000 /* a side has its own deadline and says more: it comes first */
#define FLIGHT     (UINT64_C(4) << 20) /* bytes in flight a flow, unless a window is given */
#define WINDOW_LOW 2
#define ROOM_BYTES (UINT64_C(1) << 30) /* of all flows, for messages that come, likewise */

static const char *const side_names[2] = {"sender", "receiver"};

uint64_t xccl_netperf_stride(uint64_t bytes)
{
    return (bytes + 63) / 64 * 64 + (bytes ? 0 : 64);
}

int xccl_netperf_window(const struct xccl_netperf_options *options, uint64_t bytes, int flows)
{
    uint64_t stride = xccl_netperf_stride(bytes), fits = FLIGHT / stride;

    if (options->window)
        return (int)options->window;
    if (stride * (uint64_t)flows * WINDOW_LOW > ROOM_BYTES)
        return 1;
    if (fits > XCCL_NET_MAX_REQUESTS)
        return XCCL_NET_MAX_REQUESTS;
    return fits < WINDOW_LOW ? WINDOW_LOW : (int)fits;
}

/* ---- errors ---- */

/* Tells it, and keeps the first. told: the log has it already. Always 0. */
__attribute__((format(printf, 3, 4))) static int pair_fail(struct xccl_netperf_pair *pair, int told,
                                                           const char *fmt, ...)
{
    char text[XCCL_NETPERF_TEXT_BYTES];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (!told)
        fprintf(stderr, "xccl net perf: %s\n", text);
    if (!pair->error[0])
        memcpy(pair->error, text, sizeof(text));
    return 0;
}

/* ---- processes ---- */

static void *thread_main(void *args)
{
    xccl_netperf_side_run(args);
    return NULL;
}

/* The child's part: one side, or both as threads. */
static _Noreturn void child_main(struct xccl_netperf_side_args *args, int count, pid_t parent)
{
    struct sigaction plain = {.sa_handler = SIG_DFL};
    pthread_t thread;

    sigaction(SIGTERM, &plain, NULL);
    /* The parent may have ended before the first call took effect. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
        _exit(1);
    if (count == 2 && pthread_create(&thread, NULL, thread_main, &args[1]) != 0)
        _exit(1);
    xccl_netperf_side_run(&args[0]);
    if (count == 2)
        pthread_join(thread, NULL);
    fflush(NULL);
    _exit(0);
}

/* Forks a process for count sides from args on; fds are their ends here. */
static pid_t fork_sides(struct xccl_netperf_side_args *args, int count, const int fds[2])
{
    pid_t parent = getpid(), pid = -1;

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        for (int i = 0; i < 2; i++) {
            if (fds[i] >= 0)
                close(fds[i]);
        }
        child_main(args, count, parent);
    }
    return pid;
}

/* Socketpairs and forks. */
static int start_processes(struct xccl_netperf_pair *pair)
{
    struct xccl_netperf_side_args args[2];
    int threads = pair->options->threads;
    int here[2] = {-1, -1};
    int there[2] = {-1, -1};

    for (int i = 0; i < 2; i++) {
        int ends[2];

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
            goto out;
        here[i] = pair->sides[i].fd = ends[0];
        there[i] = ends[1];
        args[i] = (struct xccl_netperf_side_args){.options = pair->options,
                                                  .item = pair->items[i],
                                                  .shared = pair->shared,
                                                  .number = i,
                                                  .fd = ends[1]};
        if (threads && i == 0)
            continue;
        pair->sides[i].pid = fork_sides(threads ? args : &args[i], threads ? 2 : 1, here);
        if (pair->sides[i].pid < 0)
            goto out;
        close(there[i]);
        there[i] = -1;
    }
    if (there[0] >= 0)
        close(there[0]);
    return 1;
out:
    pair_fail(pair, 0, "cannot start a process: %s", strerror(errno));
    for (int i = 0; i < 2; i++) {
        if (there[i] >= 0)
            close(there[i]);
    }
    return 0;
}

/* 1 when the side's process is no more; its status is then known. */
static int side_ended(struct xccl_netperf_pair *pair, int number)
{
    int at = pair->options->threads ? 1 : number;

    if (pair->sides[at].pid > 0 &&
        waitpid(pair->sides[at].pid, &pair->sides[at].wait_status, WNOHANG) > 0)
        pair->sides[at].pid = 0;
    return pair->sides[at].pid == 0;
}

static void tell_death(struct xccl_netperf_pair *pair, int number)
{
    int status = pair->sides[pair->options->threads ? 1 : number].wait_status;
    const char *who = pair->options->threads ? "process of both sides" : side_names[number];

    if (WIFSIGNALED(status))
        pair_fail(pair, 0, "%s: the %s was killed by signal %d (%s) while %s", pair->items[number],
                  who, WTERMSIG(status), strsignal(WTERMSIG(status)), pair->doing);
    else
        pair_fail(pair, 0, "%s: the %s ended with status %d while %s", pair->items[number], who,
                  WEXITSTATUS(status), pair->doing);
}

static void kill_all(struct xccl_netperf_pair *pair)
{
    for (int i = 0; i < 2; i++) {
        if (pair->sides[i].pid <= 0)
            continue;
        kill(pair->sides[i].pid, SIGKILL);
        while (waitpid(pair->sides[i].pid, &pair->sides[i].wait_status, 0) < 0 && errno == EINTR)
            continue;
        pair->sides[i].pid = 0;
    }
}

/* ---- questions and answers ---- */

static int ask(struct xccl_netperf_pair *pair, int number,
               const struct xccl_netperf_message *message)
{
    ssize_t sent = 0;

    do {
        sent = send(pair->sides[number].fd, message, sizeof(*message), MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    /* A side that is gone is found when its answer is waited for. */
    return sent == (ssize_t)sizeof(*message);
}

/* What is known while answers are waited for. */
struct wait {
    struct xccl_netperf_message *answers; /* one a side */
    unsigned missing; /* sides that have not answered, as bits */
    unsigned gone; /* whose end of the socketpair is closed */
    unsigned failed;
    int first_failed; /* the side whose error came first; -1: none */
    uint64_t moved[2], deadline_ns;
};

static void take_answer(struct xccl_netperf_pair *pair, struct wait *wait, int i)
{
    ssize_t got = recv(pair->sides[i].fd, &wait->answers[i], sizeof(wait->answers[i]), 0);

    if (got < 0 && errno == EINTR)
        return;
    wait->missing &= ~(1u << i);
    if (got == (ssize_t)sizeof(wait->answers[i]) && wait->answers[i].kind != XCCL_NETPERF_ERROR)
        return;
    if (got == (ssize_t)sizeof(wait->answers[i])) {
        wait->failed |= 1u << i;
        if (wait->first_failed < 0)
            wait->first_failed = i;
    } else {
        wait->gone |= 1u << i;
    }
}

/* Puts the deadline off while a side gets on. */
static void look_for_life(struct xccl_netperf_pair *pair, struct wait *wait, uint64_t now_ns)
{
    for (int i = 0; i < 2; i++) {
        /* Relaxed: see note_moved(). */
        uint64_t moved = atomic_load_explicit(&pair->shared->moved[i].count, memory_order_relaxed);

        if (moved == wait->moved[i])
            continue;
        wait->moved[i] = moved;
        wait->deadline_ns = now_ns + (pair->options->timeout_ms + GRACE_MS) * XCCL_NS_PER_MS;
    }
}

/* Waits until all of missing have answered, one has failed, or the deadline has passed. */
static void wait_answers(struct xccl_netperf_pair *pair, struct wait *wait)
{
    int hurt = 0;

    while (wait->missing) {
        struct pollfd fds[2];
        uint64_t now_ns = xccl_clock_ns();

        if (!hurt)
            look_for_life(pair, wait, now_ns);
        if (now_ns >= wait->deadline_ns)
            return;
        for (int i = 0; i < 2; i++)
            fds[i] = (struct pollfd){.fd = wait->missing & (1u << i) ? pair->sides[i].fd : -1,
                                     .events = POLLIN};
        if (poll(fds, 2, LOOK_MS) < 0)
            continue;
        for (int i = 0; i < 2; i++) {
            if (fds[i].revents)
                take_answer(pair, wait, i);
        }
        if (!hurt && (wait->gone || wait->failed)) {
            hurt = 1;
            wait->deadline_ns = xccl_clock_ns() + LAST_MS * XCCL_NS_PER_MS;
        }
    }
}

/* A closed socketpair says little: the process's end says more, and comes a moment later. */
static int tell_deaths(struct xccl_netperf_pair *pair, unsigned gone)
{
    uint64_t deadline_ns = xccl_clock_ns() + LAST_MS * XCCL_NS_PER_MS;
    int told = 0;

    for (int i = 0; i < 2 && !(told && pair->options->threads); i++) {
        while ((gone & (1u << i)) && !side_ended(pair, i) && xccl_clock_ns() < deadline_ns)
            poll(NULL, 0, 1);
        if (!side_ended(pair, i) || !pair->sides[pair->options->threads ? 1 : i].wait_status)
            continue;
        tell_death(pair, i);
        told = 1;
    }
    return told;
}

/* Says what came of it. The first error is the cause, and what the other saw mostly follows from
 * it; but an answer may be the slower one. */
static int judge(struct xccl_netperf_pair *pair, const struct wait *wait)
{
    const struct xccl_netperf_message *answer = NULL;
    int first = wait->first_failed;

    if (!wait->gone && !wait->failed && !wait->missing)
        return 1;
    if (tell_deaths(pair, wait->gone))
        return 0;
    if (first >= 0 && wait->failed == 3 && wait->answers[first].error.follows)
        first = 1 - first;
    if (first >= 0) {
        answer = &wait->answers[first];
        return pair_fail(pair, answer->error.told, "%s: the %s: %s; while %s%s", pair->items[first],
                         side_names[first], answer->error.text, pair->doing,
                         wait->missing ? "; the other side does not answer" : "");
    }
    for (int i = 0; i < 2; i++) {
        if (wait->gone & (1u << i))
            return pair_fail(pair, 0, "%s: the %s has disconnected while %s", pair->items[i],
                             side_names[i], pair->doing);
    }
    first = wait->missing & 1u ? 0 : 1;
    return pair_fail(pair, 0,
                     "%s: the %s has not returned from the plugin for %" PRIu64
                     " ms while %s; its process is killed",
                     pair->items[first], side_names[first], pair->options->timeout_ms + GRACE_MS,
                     pair->doing);
}

/* Asks the sides that are set, and waits for their answers, which replace the questions. */
static int converse(struct xccl_netperf_pair *pair, unsigned sides,
                    struct xccl_netperf_message messages[2])
{
    struct wait wait = {.answers = messages, .missing = sides, .first_failed = -1};
    int32_t kind = messages[sides & 1u ? 0 : 1].kind;

    wait.deadline_ns = xccl_clock_ns() + (pair->options->timeout_ms + GRACE_MS) * XCCL_NS_PER_MS;
    for (int i = 0; i < 2; i++) {
        if (sides & (1u << i))
            ask(pair, i, &messages[i]);
    }
    wait_answers(pair, &wait);
    for (int i = 0; i < 2 && !wait.failed; i++) {
        if ((sides & (1u << i)) && messages[i].kind != kind)
            return pair_fail(pair, 0, "%s: the %s sent a wrong answer", pair->items[i],
                             side_names[i]);
    }
    return judge(pair, &wait);
}

/* ---- the steps ---- */

int xccl_netperf_pair_start(struct xccl_netperf_pair *pair,
                            const struct xccl_netperf_options *options, const char *first,
                            const char *second)
{
    struct xccl_netperf_message messages[2];
    void *shared = mmap(NULL, sizeof(*pair->shared), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    memset(pair, 0, sizeof(*pair));
    pair->options = options;
    pair->items[0] = first;
    pair->items[1] = second;
    pair->sides[0].fd = pair->sides[1].fd = -1;
    snprintf(pair->doing, sizeof(pair->doing), "opening the plugin");
    if (shared == MAP_FAILED)
        return pair_fail(pair, 0, "no memory: %s", strerror(errno));
    pair->shared = shared;
    if (!start_processes(pair))
        return 0;
    /* One after the other: what keeps a plugin from opening is said once. */
    for (int i = 0; i < 2; i++) {
        messages[i] = (struct xccl_netperf_message){.kind = XCCL_NETPERF_OPEN};
        if (!converse(pair, 1u << i, messages))
            return 0;
        pair->about[i] = messages[i].about;
    }
    return 1;
}

int xccl_netperf_pair_connect(struct xccl_netperf_pair *pair, int flows, uint64_t max_bytes,
                              uint64_t room_bytes)
{
    struct xccl_netperf_message messages[2];
    xcclNetHandle_t handles[XCCL_NETPERF_FLOWS];

    snprintf(pair->doing, sizeof(pair->doing), "connecting %d flow%s", flows,
             flows == 1 ? "" : "s");
    for (int i = 0; i < 2; i++)
        messages[i] = (struct xccl_netperf_message){.kind = XCCL_NETPERF_LISTEN, .count = flows};
    if (!converse(pair, BOTH, messages))
        return 0;
    memcpy(handles, messages[0].handles, sizeof(handles));
    memcpy(messages[0].handles, messages[1].handles, sizeof(handles));
    memcpy(messages[1].handles, handles, sizeof(handles));
    for (int i = 0; i < 2; i++) {
        messages[i].kind = XCCL_NETPERF_CONNECT;
        messages[i].max_bytes = max_bytes;
        messages[i].room_bytes = room_bytes;
    }
    if (!converse(pair, BOTH, messages))
        return 0;
    for (int i = 0; i < 2; i++)
        pair->about[i].can_sleep = messages[i].about.can_sleep;
    return 1;
}

int xccl_netperf_pair_round(struct xccl_netperf_pair *pair, struct xccl_netperf_round *round,
                            struct xccl_netperf_result *result_out)
{
    struct xccl_netperf_message messages[2];
    const struct xccl_netperf_result *results[2] = {&messages[0].result, &messages[1].result};

    pair->barrier += 2;
    round->barrier = pair->barrier;
    snprintf(pair->doing, sizeof(pair->doing), "measuring the %s of %llu bytes over %d flow%s%s",
             round->what == XCCL_NETPERF_LATENCY ? "latency" : "bandwidth",
             (unsigned long long)round->bytes, round->flows, round->flows == 1 ? "" : "s",
             round->both ? " both ways" : "");
    for (int i = 0; i < 2; i++)
        messages[i] = (struct xccl_netperf_message){.kind = XCCL_NETPERF_ROUND, .round = *round};
    if (!converse(pair, BOTH, messages))
        return 0;
    *result_out = *results[0];
    if (results[1]->start_ns < result_out->start_ns)
        result_out->start_ns = results[1]->start_ns;
    if (results[1]->end_ns > result_out->end_ns)
        result_out->end_ns = results[1]->end_ns;
    result_out->cpu_ns += results[1]->cpu_ns;
    if (results[1]->busy > result_out->busy)
        result_out->busy = results[1]->busy;
    /* Both know in rows of two directions; the lesser counts. */
    if (result_out->first_end_ns == 0 ||
        (results[1]->first_end_ns && results[1]->least_bytes < result_out->least_bytes)) {
        result_out->least_bytes = results[1]->least_bytes;
        result_out->first_end_ns = results[1]->first_end_ns;
    }
    return 1;
}

int xccl_netperf_pair_finish(struct xccl_netperf_pair *pair)
{
    struct xccl_netperf_message messages[2];
    uint64_t deadline_ns = 0;

    snprintf(pair->doing, sizeof(pair->doing), "closing");
    for (int i = 0; i < 2; i++)
        messages[i] = (struct xccl_netperf_message){.kind = XCCL_NETPERF_QUIT};
    if (!converse(pair, BOTH, messages))
        return 0;
    deadline_ns = xccl_clock_ns() + (pair->options->timeout_ms + GRACE_MS) * XCCL_NS_PER_MS;
    while (!(side_ended(pair, 0) && side_ended(pair, 1)) && xccl_clock_ns() < deadline_ns)
        poll(NULL, 0, 1);
    if (tell_deaths(pair, 0))
        return 0;
    if (!side_ended(pair, 0) || !side_ended(pair, 1))
        return pair_fail(pair, 0, "%s: a process does not end after everything was closed",
                         pair->items[0]);
    return 1;
}

void xccl_netperf_pair_stop(struct xccl_netperf_pair *pair)
{
    if (!pair->options)
        return;
    kill_all(pair);
    for (int i = 0; i < 2; i++) {
        if (pair->sides[i].fd >= 0)
            close(pair->sides[i].fd);
        pair->sides[i].fd = -1;
    }
    if (pair->shared)
        munmap(pair->shared, sizeof(*pair->shared));
    pair->shared = NULL;
}

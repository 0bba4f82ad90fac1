/* SPDX-License-Identifier: BSD-3-Clause */
/* See path_stage.h. Words are futexes: a waiting process costs nothing.
 *
 * Thread: the main one of each process. */
#include "path_stage.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)256 << 10)

double path_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void path_nap_ms(long ms)
{
    struct timespec nap = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL);
}

void *path_shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    XT_CHECK(memory != MAP_FAILED);
    return memory;
}

/* ---- words ---- */

void path_word_set(_Atomic uint32_t *word, uint32_t value)
{
    /* Release: what was written before is seen by who has read the word. Pairs with
     * path_word_get(). */
    atomic_store_explicit(word, value, memory_order_release);
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint32_t path_word_get(const _Atomic uint32_t *word)
{
    /* Acquire: pairs with path_word_set(). */
    return atomic_load_explicit(word, memory_order_acquire);
}

int path_word_within(_Atomic uint32_t *word, uint32_t value, int ms)
{
    const struct timespec turn = {.tv_nsec = 100000000};
    double end = path_seconds() + ms * 1e-3;
    uint32_t now;

    while ((now = path_word_get(word)) < value) {
        if (path_seconds() >= end)
            return 0;
        (void)syscall(SYS_futex, word, FUTEX_WAIT, now, &turn, NULL, 0);
    }
    return 1;
}

void path_word_await(_Atomic uint32_t *word, uint32_t value)
{
    if (!path_word_within(word, value, PATH_WAIT_MS))
        XT_FAIL("another process of the test did not get so far in %d s", PATH_WAIT_MS / 1000);
}

void path_tell(_Atomic uint32_t *word, uint32_t number, int yes)
{
    path_word_set(word, 2 * number + (yes != 0));
}

int path_ask(_Atomic uint32_t *word, uint32_t number)
{
    path_word_await(word, 2 * number);
    return path_word_get(word) & 1;
}

void path_figure(const char *fmt, ...)
{
    const char *path = getenv("XT_PATH_FIGURES");
    FILE *file = path && path[0] ? fopen(path, "ae") : NULL;
    va_list args;
    char line[512];

    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    printf("%s\n", line);
    if (!file)
        return;
    fprintf(file, "%s\n", line);
    fclose(file);
}

void path_ranks_end(struct xt_mp *mp, int nranks, unsigned killed)
{
    int statuses[32], bad = -1;

    XT_CHECK(nranks <= 32);
    xt_mp_wait(mp, statuses);
    for (int rank = nranks - 1; rank >= 0; rank--) {
        int good = killed & 1u << rank
                       ? WIFSIGNALED(statuses[rank]) && WTERMSIG(statuses[rank]) == SIGKILL
                       : statuses[rank] == 0;

        if (!good)
            bad = rank;
    }
    if (bad >= 0)
        XT_FAIL("rank %d ended with status %#x; its words are above", bad, (unsigned)statuses[bad]);
}

/* ---- a plain stream ---- */

static socklen_t socket_address(const char *text, uint16_t port, struct sockaddr_storage *out)
{
    struct sockaddr_in *in4 = (struct sockaddr_in *)out;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;

    memset(out, 0, sizeof(*out));
    if (inet_pton(AF_INET, text, &in4->sin_addr) == 1) {
        in4->sin_family = AF_INET;
        in4->sin_port = htons(port);
        return sizeof(*in4);
    }
    XT_CHECK_INT(inet_pton(AF_INET6, text, &in6->sin6_addr), 1);
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(port);
    return sizeof(*in6);
}

static int stream_open(struct path_meet *meet, int is_send, const char *address)
{
    struct sockaddr_storage to;
    socklen_t bytes = 0;
    int yes = 1, fd, listener;

    if (is_send)
        path_word_await(&meet->ready, 1);
    bytes = socket_address(address, is_send ? meet->port : 0, &to);
    fd = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    XT_CHECK(fd >= 0);
    if (is_send) {
        XT_CHECK_INT(connect(fd, (struct sockaddr *)&to, bytes), 0);
        XT_CHECK_INT(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)), 0);
        return fd;
    }
    listener = fd;
    XT_CHECK_INT(bind(listener, (struct sockaddr *)&to, bytes), 0);
    XT_CHECK_INT(listen(listener, 1), 0);
    XT_CHECK_INT(getsockname(listener, (struct sockaddr *)&to, &bytes), 0);
    /* The port is at the same place in both. */
    meet->port = ntohs(((struct sockaddr_in *)&to)->sin_port);
    path_word_set(&meet->ready, 1);
    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    XT_CHECK(fd >= 0);
    close(listener);
    return fd;
}

double path_plain_rate(struct path_meet *meet, int is_send, const char *address, double warm_s,
                       double time_s)
{
    static char piece[PIECE_BYTES];
    const struct timeval patience = {.tv_sec = PATH_WAIT_MS / 1000};
    int fd = stream_open(meet, is_send, address);
    double begin = path_seconds(), first = 0, last = 0;
    uint64_t bytes = 0;

    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (is_send) {
        /* Until the receiver has enough and closes. */
        while (send(fd, piece, sizeof(piece), MSG_NOSIGNAL) > 0)
            ;
        close(fd);
        return 0;
    }
    while (last < begin + warm_s + time_s) {
        ssize_t got = recv(fd, piece, sizeof(piece), 0);

        XT_CHECK(got > 0);
        last = path_seconds();
        if (first > 0)
            bytes += (uint64_t)got;
        else if (last >= begin + warm_s)
            first = last;
    }
    close(fd);
    return (double)bytes / (last - first);
}

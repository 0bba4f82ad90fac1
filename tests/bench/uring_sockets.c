/* SPDX-License-Identifier: BSD-3-Clause */
/* Is io_uring worth it for the data of sockets? Moves messages between two threads over 1, 4 and 8
 * TCP connections of the loopback interface, in three ways, and prints throughput, latency and
 * processor time side by side:
 *
 *   plain   send and recv without waiting, a call for each message and line, poll when none moves
 *   uring   a send or recv request a line, all lines' in one io_uring_enter
 *   fixed   the same with registered buffers (read and write requests)
 *
 * The ways take turns; what is shown are medians of the rounds. Latency is half a round trip on one
 * line, both sides asleep in between. Built by hand, needs the headers of Linux 6.1:
 *     cc -O3 -pthread -D_GNU_SOURCE tests/bench/uring_sockets.c -o uring_sockets
 * Argument: the number of rounds (default 7). Each thread owns its side; nothing is shared. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define LINES_MAX  8
#define ROUNDS_MAX 31
#define BYTES_MAX  ((size_t)256 << 10)
#define RING_SIZE  64
#define PINGS      2000

enum way { WAY_PLAIN, WAY_URING, WAY_FIXED, WAY_COUNT };

static const char *const way_names[WAY_COUNT] = {"plain", "uring", "fixed"};

struct ring {
    int fd;
    struct io_uring_sqe *sqes;
    struct io_uring_cqe *cqes;
    _Atomic uint32_t *sq_tail, *cq_head, *cq_tail;
    uint32_t sq_mask, cq_mask, unsubmitted;
};

/* One end of all lines, for one thread. */
struct side {
    enum way way;
    int is_send, line_count;
    int fds[LINES_MAX];
    char *buffers[LINES_MAX];
    size_t bytes; /* of a message */
    size_t moved[LINES_MAX]; /* of the line's present message */
    uint64_t left[LINES_MAX]; /* messages */
    struct ring ring;
};

static void check(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "uring_sockets: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_s(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static double cpu_s(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

/* ---- io_uring ---- */

/* In the thread that uses it: the kernel may then do all its work inside io_uring_enter. */
static void ring_open(struct ring *ring)
{
    struct io_uring_params params = {.flags = IORING_SETUP_SINGLE_ISSUER |
                                              IORING_SETUP_DEFER_TASKRUN};
    uint32_t *array;
    char *base;
    size_t bytes;

    ring->fd = (int)syscall(SYS_io_uring_setup, RING_SIZE, &params);
    if (ring->fd < 0) { /* before Linux 6.1 */
        params = (struct io_uring_params){.flags = 0};
        ring->fd = (int)syscall(SYS_io_uring_setup, RING_SIZE, &params);
    }
    check(ring->fd >= 0, "io_uring_setup");
    bytes = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe) +
            params.sq_entries * sizeof(uint32_t);
    base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, IORING_OFF_SQ_RING);
    ring->sqes = mmap(NULL, params.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE,
                      MAP_SHARED, ring->fd, IORING_OFF_SQES);
    check(base != MAP_FAILED && ring->sqes != MAP_FAILED, "mmap");
    ring->sq_tail = (void *)(base + params.sq_off.tail);
    ring->cq_head = (void *)(base + params.cq_off.head);
    ring->cq_tail = (void *)(base + params.cq_off.tail);
    ring->cqes = (void *)(base + params.cq_off.cqes);
    ring->sq_mask = params.sq_entries - 1;
    ring->cq_mask = params.cq_entries - 1;
    ring->unsubmitted = 0;
    array = (void *)(base + params.sq_off.array);
    for (uint32_t i = 0; i < params.sq_entries; i++)
        array[i] = i;
}

static void ring_enter(struct ring *ring, uint32_t at_least)
{
    long got = syscall(SYS_io_uring_enter, ring->fd, ring->unsubmitted, at_least,
                       IORING_ENTER_GETEVENTS, NULL, 0);

    check(got >= 0 || errno == EINTR, "io_uring_enter");
    if (got > 0)
        ring->unsubmitted -= (uint32_t)got;
}

/* What is left of the line's message. */
static void line_submit(struct side *side, int line)
{
    struct ring *ring = &side->ring;
    uint32_t tail = atomic_load_explicit(ring->sq_tail, memory_order_relaxed);
    struct io_uring_sqe *sqe = &ring->sqes[tail & ring->sq_mask];

    memset(sqe, 0, sizeof(*sqe));
    if (side->way == WAY_FIXED)
        sqe->opcode = side->is_send ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED;
    else
        sqe->opcode = side->is_send ? IORING_OP_SEND : IORING_OP_RECV;
    if (side->way == WAY_URING)
        sqe->msg_flags = MSG_WAITALL | (side->is_send ? MSG_NOSIGNAL : 0);
    sqe->fd = side->fds[line];
    sqe->addr = (uintptr_t)(side->buffers[line] + side->moved[line]);
    sqe->len = (uint32_t)(side->bytes - side->moved[line]);
    sqe->buf_index = (uint16_t)line;
    sqe->user_data = (uint64_t)line;
    /* Release: the kernel sees the request before the tail that covers it. */
    atomic_store_explicit(ring->sq_tail, tail + 1, memory_order_release);
    ring->unsubmitted++;
}

/* Bytes of a line have moved. Returns 1 when a message is whole. */
static int line_account(struct side *side, int line, size_t bytes)
{
    side->moved[line] += bytes;
    if (side->moved[line] < side->bytes)
        return 0;
    side->moved[line] = 0;
    side->left[line]--;
    return 1;
}

/* Takes what has ended; a line goes on with the rest of its message, or with the next one when
 * go_on says so. Returns how many messages became whole. */
static int ring_reap(struct side *side, int go_on)
{
    struct ring *ring = &side->ring;
    uint32_t head = atomic_load_explicit(ring->cq_head, memory_order_relaxed);
    /* Acquire: the completions before the tail are there. */
    uint32_t tail = atomic_load_explicit(ring->cq_tail, memory_order_acquire);
    int whole = 0;

    for (; head != tail; head++) {
        const struct io_uring_cqe *cqe = &ring->cqes[head & ring->cq_mask];
        int line = (int)cqe->user_data, ended;

        errno = -cqe->res;
        check(cqe->res > 0, "a request");
        ended = line_account(side, line, (size_t)cqe->res);
        whole += ended;
        if (!ended || (go_on && side->left[line] > 0))
            line_submit(side, line);
    }
    /* Release: the places may be filled again. */
    atomic_store_explicit(ring->cq_head, head, memory_order_release);
    return whole;
}

static uint64_t messages_left(const struct side *side)
{
    uint64_t left = 0;

    for (int i = 0; i < side->line_count; i++)
        left += side->left[i];
    return left;
}

static void move_uring(struct side *side)
{
    uint64_t left = messages_left(side);

    for (int i = 0; i < side->line_count; i++)
        line_submit(side, i);
    while (left > 0) {
        ring_enter(&side->ring, 1);
        left -= (uint64_t)ring_reap(side, 1);
    }
}

/* ---- plain calls ---- */

/* Returns 1 when bytes moved. */
static int line_move(struct side *side, int line)
{
    char *at = side->buffers[line] + side->moved[line];
    size_t bytes = side->bytes - side->moved[line];
    ssize_t moved = side->is_send ? send(side->fds[line], at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL)
                                  : recv(side->fds[line], at, bytes, MSG_DONTWAIT);

    check(moved > 0 || (moved < 0 && errno == EAGAIN), side->is_send ? "send" : "recv");
    if (moved > 0)
        (void)line_account(side, line, (size_t)moved);
    return moved > 0;
}

static void wait_for_lines(const struct side *side)
{
    struct pollfd fds[LINES_MAX];

    for (int i = 0; i < side->line_count; i++)
        fds[i] = (struct pollfd){.fd = side->left[i] ? side->fds[i] : -1,
                                 .events = side->is_send ? POLLOUT : POLLIN};
    check(poll(fds, (nfds_t)side->line_count, -1) > 0, "poll");
}

static void move_plain(struct side *side)
{
    while (messages_left(side) > 0) {
        int moved = 0;

        for (int i = 0; i < side->line_count; i++)
            moved |= side->left[i] > 0 && line_move(side, i);
        if (!moved && messages_left(side) > 0)
            wait_for_lines(side);
    }
}

/* ---- a side ---- */

static void side_open(struct side *side)
{
    struct iovec buffers[LINES_MAX];

    if (side->way == WAY_PLAIN)
        return;
    ring_open(&side->ring);
    for (int i = 0; i < side->line_count; i++)
        buffers[i] = (struct iovec){side->buffers[i], BYTES_MAX};
    if (side->way == WAY_FIXED)
        check(syscall(SYS_io_uring_register, side->ring.fd, IORING_REGISTER_BUFFERS, buffers,
                      side->line_count) == 0,
              "registering buffers (ulimit -l)");
}

/* The maps stay: a few pages a run. */
static void side_close(struct side *side)
{
    if (side->way != WAY_PLAIN)
        close(side->ring.fd);
}

static void one_message(struct side *side, int is_send)
{
    side->is_send = is_send;
    side->left[0] = 1;
    if (side->way == WAY_PLAIN)
        move_plain(side);
    else
        move_uring(side);
}

static void ping_pong(struct side *side)
{
    int first = side->is_send;

    for (int i = 0; i < PINGS; i++) {
        one_message(side, first);
        one_message(side, !first);
    }
    side->is_send = first;
}

static void *side_stream(void *side_)
{
    struct side *side = side_;

    side_open(side);
    if (side->way == WAY_PLAIN)
        move_plain(side);
    else
        move_uring(side);
    side_close(side);
    return NULL;
}

static void *side_ping(void *side_)
{
    struct side *side = side_;

    side_open(side);
    ping_pong(side);
    side_close(side);
    return NULL;
}

/* ---- runs ---- */

static void lines_connect(struct side *sender, struct side *receiver)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(addr);
    const int on = 1;
    int listener = socket(AF_INET, SOCK_STREAM, 0);

    check(listener >= 0 && bind(listener, (struct sockaddr *)&addr, sizeof(addr)) == 0 &&
              listen(listener, LINES_MAX) == 0 &&
              getsockname(listener, (struct sockaddr *)&addr, &bytes) == 0,
          "listening on 127.0.0.1");
    for (int i = 0; i < LINES_MAX; i++) {
        sender->fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        check(connect(sender->fds[i], (struct sockaddr *)&addr, sizeof(addr)) == 0, "connect");
        receiver->fds[i] = accept(listener, NULL, NULL);
        check(receiver->fds[i] >= 0, "accept");
        setsockopt(sender->fds[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        setsockopt(receiver->fds[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        setsockopt(sender->fds[i], IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
        setsockopt(receiver->fds[i], IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
        sender->buffers[i] = aligned_alloc(4096, BYTES_MAX);
        receiver->buffers[i] = aligned_alloc(4096, BYTES_MAX);
        check(sender->buffers[i] && receiver->buffers[i], "memory");
        memset(sender->buffers[i], 1, BYTES_MAX);
        memset(receiver->buffers[i], 2, BYTES_MAX);
    }
    close(listener);
}

struct figures {
    double seconds, cpu;
};

static struct figures both_run(struct side *sides, void *(*run)(void *))
{
    struct figures figures = {.seconds = now_s(), .cpu = cpu_s()};
    pthread_t thread;

    check(pthread_create(&thread, NULL, run, &sides[1]) == 0, "pthread_create");
    run(&sides[0]);
    pthread_join(thread, NULL);
    figures.seconds = now_s() - figures.seconds;
    figures.cpu = cpu_s() - figures.cpu;
    return figures;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(*values), compare);
    return values[count / 2];
}

static void sides_prepare(struct side *sides, enum way way, int line_count, size_t bytes)
{
    uint64_t messages = bytes < 4096 ? 100000 : ((uint64_t)512 << 20) / bytes;

    for (int i = 0; i < 2; i++) {
        sides[i].way = way;
        sides[i].is_send = i == 0;
        sides[i].line_count = line_count;
        sides[i].bytes = bytes;
        for (int line = 0; line < line_count; line++) {
            sides[i].left[line] = messages / (uint64_t)line_count;
            sides[i].moved[line] = 0;
        }
    }
}

static void row(struct side *sides, int line_count, size_t bytes, int rounds)
{
    double rate[WAY_COUNT][ROUNDS_MAX], cpu[WAY_COUNT][ROUNDS_MAX], lat[WAY_COUNT][ROUNDS_MAX];

    for (int round = 0; round < rounds; round++) {
        for (int way = 0; way < WAY_COUNT; way++) {
            struct figures figures;
            double total;

            sides_prepare(sides, (enum way)way, line_count, bytes);
            total = (double)messages_left(&sides[0]) * (double)bytes;
            figures = both_run(sides, side_stream);
            rate[way][round] = total / figures.seconds * 1e-9;
            cpu[way][round] = figures.cpu / (total / 1073741824.0);
            sides_prepare(sides, (enum way)way, 1, bytes);
            figures = both_run(sides, side_ping);
            lat[way][round] = figures.seconds / PINGS / 2 * 1e6;
        }
    }
    for (int way = 0; way < WAY_COUNT; way++)
        printf("%8zu %6d  %-6s %9.3f %9.2f %11.3f\n", bytes, line_count, way_names[way],
               median(rate[way], rounds), median(lat[way], rounds), median(cpu[way], rounds));
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {64, 64 << 10, 256 << 10};
    static const int counts[] = {1, 4, 8};
    static struct side sides[2];
    int rounds = argc > 1 ? atoi(argv[1]) : 7;

    if (rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: uring_sockets [ROUNDS], 1 to %d\n", ROUNDS_MAX);
        return 2;
    }
    lines_connect(&sides[0], &sides[1]);
    printf("#  bytes  lines  way         GB/s    lat us   cpu s/GiB\n");
    for (size_t i = 0; i < 3; i++) {
        for (size_t j = 0; j < 3; j++)
            row(sides, counts[j], sizes[i], rounds);
    }
    return 0;
}

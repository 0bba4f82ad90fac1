/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases about what comes after test: delivery without further calls, progress, stats, waitFd and
 * errorDetail. Thread: the role's. */
#include "cf_int.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

/* ---- delivery ---- */

#define OWED 12

/* After the last done this role makes no call but progress, and that only with needsProgress. */
static void delivery_send(struct cf *me)
{
    void *comm = cf_open(me);
    struct cf_buffer buffer;
    char word;

    cf_buffer_make(me, comm, 12000, 0, &buffer);
    for (size_t i = 0; i < OWED; i++)
        cf_send(me, comm, &buffer, i * 1000, i);
    cf_hear(me, &word, 1);
    cf_close(me, comm);
}

static void delivery_recv(struct cf *me)
{
    void *comm = cf_open(me);
    struct cf_buffer buffer;
    char word = 1;

    cf_buffer_make(me, comm, 12000, 0, &buffer);
    cf_sleep_ms(10);
    for (size_t i = 0; i < OWED; i++)
        cf_recv(me, comm, &buffer, i * 1000, i);
    cf_tell(me, &word, 1);
    cf_close(me, comm);
}

static void progress_ends(struct cf *me)
{
    struct cf_pair pair;
    uint64_t end_ns = cf_now() + 1000 * CF_SLOW * CF_MS;
    int pending = 1;

    cf_pair_open(me, &pair);
    cf_pair_pass(me, &pair, 1000, 1);
    while (pending) {
        uint64_t begin_ns = cf_enter(me, "progress");

        cf_ok(me, me->net->calls.progress(me->net->ctx, &pending), "progress");
        cf_leave(me, "progress", begin_ns);
        if (cf_now() > end_ns)
            cf_fail(
                me,
                "progress has reported pending work for a second after everything was received");
    }
    cf_pair_close(me, &pair);
}

/* ---- stats ---- */

static void take(struct cf *me, xcclNetStats_v1 *stats)
{
    memset(stats, 0, sizeof(*stats));
    stats->size = sizeof(*stats);
    cf_enter(me, "stats");
    cf_ok(me, me->net->calls.stats(me->net->ctx, me->dev, stats), "stats");
}

static void stats_count(struct cf *me)
{
    xcclNetStats_v1 last, now;
    struct cf_pair pair;

    cf_pair_open(me, &pair);
    take(me, &last);
    for (size_t i = 0; i < 10; i++) {
        cf_pair_pass(me, &pair, i * 1000, i);
        take(me, &now);
        if (now.sendBytes < last.sendBytes || now.recvBytes < last.recvBytes ||
            now.sendCount < last.sendCount || now.recvCount < last.recvCount ||
            now.busyCount < last.busyCount)
            cf_fail(me, "a counter of stats has decreased");
        if (i == 0 && !now.sendCount && !now.recvCount)
            cf_skip(me, "the plugin counts nothing");
        if (now.sendCount != last.sendCount + 1 || now.recvCount != last.recvCount + 1)
            cf_fail(me, "one message counts as %llu sent and %llu received",
                    (unsigned long long)(now.sendCount - last.sendCount),
                    (unsigned long long)(now.recvCount - last.recvCount));
        if (now.sendBytes != last.sendBytes + i * 1000 ||
            now.recvBytes != last.recvBytes + i * 1000)
            cf_fail(me, "a message of %zu bytes counts as %llu sent and %llu received", i * 1000,
                    (unsigned long long)(now.sendBytes - last.sendBytes),
                    (unsigned long long)(now.recvBytes - last.recvBytes));
        last = now;
    }
    cf_pair_close(me, &pair);
}

/* ---- waitFd ---- */

#define WAKES 8

static void wait_send(struct cf *me)
{
    void *comm = cf_open(me);
    struct cf_buffer buffer;

    cf_buffer_make(me, comm, 60000, 0, &buffer);
    for (size_t i = 0; i < WAKES; i++) {
        cf_barrier(me);
        cf_sleep_ms(i % 3);
        cf_send(me, comm, &buffer, i * 8000, i);
    }
    cf_barrier(me);
    cf_close(me, comm);
}

/* Posts, tests once, and from then on tests only when poll says so. */
static void wait_recv(struct cf *me)
{
    void *comm = cf_open(me);
    struct cf_buffer buffer;
    int fd = -1;

    cf_ok(me, me->net->calls.waitFd(comm, &fd), "waitFd");
    if (fd < 0)
        cf_skip(me, "waitFd returned -1: there is nothing to wait on");
    cf_buffer_make(me, comm, 60000, 0, &buffer);
    for (size_t i = 0; i < WAKES; i++) {
        xcclNetRequest_t request = cf_recv_post(me, comm, &buffer, 60000, 7);
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        size_t sizes[XCCL_NET_MAX_RECVS];
        int done = 0;

        cf_barrier(me);
        cf_ok(me, cf_test(me, request, &done, sizes), "test");
        while (!done) {
            if (poll(&wait, 1, 3000 * CF_SLOW) == 0)
                cf_fail(me,
                        "message %zu of %zu bytes was sent, but the descriptor of waitFd does not "
                        "poll readable",
                        i, i * 8000);
            cf_ok(me, cf_test(me, request, &done, sizes), "test");
        }
        cf_expect(me, buffer.data, i * 8000, i, "a message");
    }
    cf_barrier(me);
    cf_close(me, comm);
}

/* A sender that is held up sleeps until there is room. */
static void wait_room_send(struct cf *me)
{
    void *comm = cf_open(me);
    struct cf_buffer buffer;
    xcclNetRequest_t request;
    int done = 0, fd = -1;
    size_t bytes = cf_at_most(me, (size_t)8 << 20);

    cf_ok(me, me->net->calls.waitFd(comm, &fd), "waitFd");
    if (fd < 0)
        cf_skip(me, "waitFd returned -1: there is nothing to wait on");
    cf_buffer_make(me, comm, bytes, 0, &buffer);
    cf_fill(buffer.data, bytes, 1);
    request = cf_send_post(me, comm, &buffer, bytes, 7);
    cf_barrier(me);
    cf_ok(me, cf_test(me, request, &done, NULL), "test");
    while (!done) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};

        if (poll(&wait, 1, 3000 * CF_SLOW) == 0)
            cf_fail(me,
                    "a send could continue, but the descriptor of waitFd does not poll readable");
        cf_ok(me, cf_test(me, request, &done, NULL), "test");
    }
    cf_barrier(me);
    cf_close(me, comm);
}

static void wait_room_recv(struct cf *me)
{
    void *comm = cf_open(me);
    struct cf_buffer buffer;
    size_t bytes = cf_at_most(me, (size_t)8 << 20);

    cf_buffer_make(me, comm, bytes, 0, &buffer);
    cf_barrier(me);
    cf_sleep_ms(5);
    cf_recv(me, comm, &buffer, bytes, 1);
    cf_barrier(me);
    cf_close(me, comm);
}

/* ---- errorDetail ---- */

static void no_error(struct cf *me)
{
    unsigned char room[sizeof(xcclNetError_v1) + 32];
    xcclNetError_v1 *error = (void *)room;
    size_t size = offsetof(xcclNetError_v1, vendorCode);
    struct cf_pair pair;

    cf_pair_open(me, &pair);
    memset(room, 0xa5, sizeof(room));
    memset(room, 0, size);
    error->size = size;
    cf_enter(me, "errorDetail");
    cf_ok(me, me->net->calls.errorDetail(pair.send, error), "errorDetail with a smaller size");
    for (size_t at = size; at < sizeof(room); at++) {
        if (room[at] != 0xa5)
            cf_fail(me, "errorDetail with size %zu writes byte %zu", size, at);
    }
    if (error->cause != xcclNetCauseNone && error->cause != xcclNetCauseUnknown)
        cf_fail(me, "errorDetail reports cause %d for a comm that has not failed", error->cause);
    cf_pair_close(me, &pair);
}

const struct cf_case cf_cases_extras[] = {
    {.name = "done_sends_arrive",
     .rule = 8,
     .forms = CF_PAIRED,
     .send = delivery_send,
     .recv = delivery_recv,
     .text = "sends that are done arrive without further calls, or through progress with "
             "needsProgress"},
    {.name = "progress_comes_to_an_end",
     .forms = CF_SINGLE,
     .solo = progress_ends,
     .text = "progress reports nothing pending after everything has arrived"},
    {.name = "stats_count",
     .forms = CF_SINGLE,
     .flags = CF_OWN,
     .solo = stats_count,
     .text = "counters grow by the messages and bytes transferred",
     .why = "it has no stats"},
    {.name = "receiver_sleeps_on_wait_fd",
     .forms = CF_PAIRED,
     .flags = CF_OWN,
     .send = wait_send,
     .recv = wait_recv,
     .text = "waitFd's descriptor polls readable when a message arrives",
     .why = "it has no waitFd"},
    {.name = "sender_sleeps_on_wait_fd",
     .forms = CF_PAIRED,
     .flags = CF_OWN,
     .send = wait_room_send,
     .recv = wait_room_recv,
     .text = "waitFd's descriptor polls readable when there is room",
     .why = "it has no waitFd"},
    {.name = "error_detail_without_an_error",
     .forms = CF_SINGLE,
     .flags = CF_OWN,
     .solo = no_error,
     .text = "errorDetail respects the size and reports no cause",
     .why = "it has no errorDetail"},
    {.name = NULL},
};

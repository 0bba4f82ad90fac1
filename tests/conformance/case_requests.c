/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases about requests: 32 in flight, busy beyond, tests in any order, a receiver that comes late.
 * Thread: the role's. */
#include "cf_int.h"

#include <stdio.h>
#include <string.h>

#define REQUESTS XCCL_NET_MAX_REQUESTS
#define BYTES    512

/* NCCL's oldest contract has fewer; its adapter offers what the plugin has. */
static size_t requests_of(const struct cf *me)
{
    return strcmp(me->shared->contract, "ncclNetPlugin_v6") == 0 ? 8 : REQUESTS;
}

static void shuffle(struct cf *me, size_t *order, size_t count)
{
    for (size_t i = 0; i < count; i++)
        order[i] = i;
    for (size_t i = count; i > 1; i--) {
        size_t k = cf_pick(me, i), kept = order[i - 1];

        order[i - 1] = order[k];
        order[k] = kept;
    }
}

/* Tests in another order each round until all are done. */
static void reap(struct cf *me, xcclNetRequest_t *requests, size_t count, size_t sizes[][8])
{
    struct cf_patience patience = cf_patience("the end of all requests in flight");
    size_t order[REQUESTS * XCCL_NET_MAX_RECVS], left = count;

    while (left > 0) {
        shuffle(me, order, count);
        for (size_t i = 0; i < count; i++) {
            size_t at = order[i];
            int done = 0;

            if (!requests[at])
                continue;
            cf_ok(me, cf_test(me, requests[at], &done, sizes ? sizes[at] : NULL), "test");
            if (!done)
                continue;
            requests[at] = NULL;
            left--;
        }
        cf_turn(me, &patience);
    }
}

/* ---- 32 groups in flight ---- */

static struct cf_recv all_parts(struct cf *me, struct cf_buffer *buffer, size_t first)
{
    struct cf_recv recv = {.count = me->props.maxRecvs};

    for (int i = 0; i < recv.count; i++) {
        recv.data[i] = buffer->data + (first * (size_t)recv.count + (size_t)i) * BYTES;
        recv.bytes[i] = BYTES;
        recv.tags[i] = (uint32_t)i + 1;
        recv.mems[i] = buffer->mem;
    }
    return recv;
}

/* A moment's busy is allowed (the wire may be full), staying busy is not. */
static xcclNetRequest_t post_within(struct cf *me, void *comm, const struct cf_recv *recv)
{
    uint64_t end_ns = cf_now() + 300 * CF_MS;
    xcclNetRequest_t request = NULL;

    while (!request && cf_now() < end_ns)
        cf_ok(me, cf_irecv(me, comm, recv, &request), "irecv");
    return request;
}

static void flight_recv(struct cf *me)
{
    xcclNetRequest_t requests[REQUESTS];
    size_t count = requests_of(me), parts = (size_t)me->props.maxRecvs;
    size_t sizes[REQUESTS][8];
    struct cf_buffer buffer;
    void *comm = cf_open(me);
    char what[64];

    cf_warm(me, comm);
    cf_buffer_make(me, comm, REQUESTS * parts * BYTES, 0, &buffer);
    for (size_t i = 0; i < count; i++) {
        struct cf_recv recv = all_parts(me, &buffer, i);

        requests[i] = post_within(me, comm, &recv);
        if (!requests[i])
            cf_fail(me, "irecv stays busy with %zu requests in flight; a comm must accept %zu", i,
                    count);
    }
    cf_barrier(me);
    reap(me, requests, count, sizes);
    for (size_t i = 0; i < count * parts; i++) {
        snprintf(what, sizeof(what), "message %zu of %zu in flight", i, count * parts);
        if (!cf_size_is(me, sizes[i / parts][i % parts], BYTES))
            cf_fail(me, "%s: test reported %zu bytes", what, sizes[i / parts][i % parts]);
        cf_expect(me, buffer.data + i * BYTES, BYTES, i, what);
    }
    cf_barrier(me);
    cf_close(me, comm);
}

static void flight_send(struct cf *me)
{
    xcclNetRequest_t requests[REQUESTS * XCCL_NET_MAX_RECVS];
    size_t parts = (size_t)me->props.maxRecvs, count = requests_of(me) * parts;
    struct cf_buffer buffer;
    void *comm = cf_open(me);

    cf_warm(me, comm);
    cf_buffer_make(me, comm, count * BYTES, 0, &buffer);
    cf_barrier(me);
    for (size_t i = 0; i < count; i++) {
        struct cf_buffer part = buffer;

        part.data = buffer.data + i * BYTES;
        cf_fill(part.data, BYTES, i);
        requests[i] = cf_send_post(me, comm, &part, BYTES, (uint32_t)(i % parts) + 1);
    }
    reap(me, requests, count, NULL);
    cf_barrier(me);
    cf_close(me, comm);
}

/* Without receives there must be a bound, and busy harms nothing. */
#define BUSY_MANY 4096

static void busy_recv(struct cf *me)
{
    struct cf_buffer buffer;
    void *comm = cf_open(me);
    size_t bytes = cf_at_most(me, 64 << 10);
    uint32_t posted = 0;

    cf_warm(me, comm);
    cf_buffer_make(me, comm, bytes, 0, &buffer);
    cf_hear(me, &posted, sizeof(posted));
    for (uint32_t i = 0; i < posted; i++)
        cf_recv(me, comm, &buffer, bytes, i % 8);
    cf_barrier(me);
    cf_close(me, comm);
}

static void busy_send(struct cf *me)
{
    struct cf_buffer buffers[8];
    xcclNetRequest_t requests[BUSY_MANY];
    size_t bytes = cf_at_most(me, 64 << 10);
    uint32_t posted = 0, busy = 0;
    void *comm = cf_open(me);

    cf_warm(me, comm);
    for (uint64_t i = 0; i < 8; i++) {
        cf_buffer_make(me, comm, bytes, 0, &buffers[i]);
        cf_fill(buffers[i].data, bytes, i);
    }
    while (posted < BUSY_MANY && busy < 100) {
        xcclNetRequest_t request = NULL;

        cf_ok(me,
              cf_isend(me, comm, buffers[posted % 8].data, bytes, 7, buffers[posted % 8].mem,
                       &request),
              "isend without a receive");
        if (request)
            requests[posted++] = request;
        else
            busy++;
    }
    if (posted == BUSY_MANY)
        cf_fail(me, "%d sends of %zu bytes without a receive were accepted, and none was busy",
                BUSY_MANY, bytes);
    cf_tell(me, &posted, sizeof(posted));
    for (uint32_t i = 0; i < posted; i++)
        cf_wait(me, requests[i], NULL, "the end of a send once its receive is posted");
    cf_barrier(me);
    cf_close(me, comm);
}

/* Receives: after 32 the next may be refused, and what was posted works on. */
static void busy_receives(struct cf *me)
{
    struct cf_pair pair;
    struct cf_buffer from, to;
    xcclNetRequest_t requests[1024];
    size_t posted = 0, busy = 0;

    cf_pair_open(me, &pair);
    cf_pair_warm(me, &pair);
    cf_buffer_make(me, pair.recv, 1024 * 16, 0, &to);
    cf_buffer_make(me, pair.send, 16, 0, &from);
    while (posted < 1024 && busy < 100) {
        struct cf_recv one = {1, {to.data + posted * 16}, {16}, {7}, {to.mem}};
        xcclNetRequest_t request = NULL;

        cf_ok(me, cf_irecv(me, pair.recv, &one, &request), "irecv");
        if (request)
            requests[posted++] = request;
        else
            busy++;
    }
    if (posted < requests_of(me))
        cf_fail(me, "irecv is busy with %zu requests in flight; a comm must accept %zu", posted,
                requests_of(me));
    for (size_t i = 0; i < posted; i++) {
        xcclNetRequest_t sending;

        cf_fill(from.data, 16, i);
        sending = cf_send_post(me, pair.send, &from, 16, 7);
        cf_wait_both(me, sending, requests[i], NULL, "a message whose receive was posted first");
        cf_expect(me, to.data + i * 16, 16, i, "a message");
    }
    cf_pair_close(me, &pair);
}

/* ---- a receiver that comes late ---- */

#define LATE      300
#define LATE_MOST 16 /* sends in flight */

static void late_send(struct cf *me)
{
    struct cf_buffer buffers[LATE_MOST];
    xcclNetRequest_t requests[LATE_MOST] = {NULL};
    size_t places = requests_of(me) < LATE_MOST ? requests_of(me) : LATE_MOST;
    void *comm = cf_open(me);

    for (size_t i = 0; i < places; i++)
        cf_buffer_make(me, comm, 20000, 0, &buffers[i]);
    for (size_t i = 0; i < LATE; i++) {
        size_t at = i % places, bytes = i * 61 % 20000;

        if (requests[at])
            cf_wait(me, requests[at], NULL, "the end of a send to a receiver that is late");
        cf_fill(buffers[at].data, bytes, i);
        requests[at] = cf_send_post(me, comm, &buffers[at], bytes, 7);
    }
    for (size_t i = 0; i < places; i++)
        cf_wait(me, requests[(LATE + i) % places], NULL, "the end of the last sends");
    cf_barrier(me);
    cf_close(me, comm);
}

static void late_recv(struct cf *me)
{
    struct cf_buffer buffer;
    void *comm = cf_open(me);

    cf_buffer_make(me, comm, 20000, 0, &buffer);
    for (size_t i = 0; i < LATE; i++) {
        if (i % 50 == 0)
            cf_sleep_ms(5);
        cf_recv(me, comm, &buffer, i * 61 % 20000, i);
    }
    cf_barrier(me);
    cf_close(me, comm);
}

/* ---- what done means ---- */

/* A receive is not done before its message was sent, and a send gives its memory back. */
static void not_done_early(struct cf *me)
{
    struct cf_pair pair;
    struct cf_buffer from, to;
    xcclNetRequest_t receiving, sending;
    uint64_t end_ns;
    int done = 0, sent = 0;

    cf_pair_open(me, &pair);
    cf_pair_warm(me, &pair);
    cf_buffer_make(me, pair.send, 30000, 0, &from);
    cf_buffer_make(me, pair.recv, 30000, 0, &to);
    receiving = cf_recv_post(me, pair.recv, &to, 30000, 7);
    for (end_ns = cf_now() + 5 * CF_MS; cf_now() < end_ns;) {
        cf_ok(me, cf_test(me, receiving, &done, NULL), "test of a receive");
        if (done)
            cf_fail(me, "test reported a receive as done before its message was sent");
    }
    cf_fill(from.data, 30000, 1);
    sending = cf_send_post(me, pair.send, &from, 30000, 7);
    for (struct cf_patience patience = cf_patience("the end of a send"); !sent;) {
        cf_ok(me, cf_test(me, sending, &sent, NULL), "test of a send");
        if (!sent && !done)
            cf_ok(me, cf_test(me, receiving, &done, NULL), "test of a receive");
        cf_turn(me, &patience);
    }
    memset(from.data, 0, 30000);
    if (!done)
        cf_wait(me, receiving, NULL, "the end of a receive");
    cf_expect(me, to.data, 30000, 1, "a message whose source was reused after test said done");
    cf_pair_close(me, &pair);
}

const struct cf_case cf_cases_requests[] = {
    {.name = "done_means_done",
     .rule = 8,
     .forms = CF_SINGLE,
     .solo = not_done_early,
     .text = "a receive waits for its message; the memory of a done send may be reused"},
    {.name = "all_requests_in_flight",
     .rule = 7,
     .forms = CF_PAIRED,
     .send = flight_send,
     .recv = flight_recv,
     .text = "32 requests in flight, tested in any order, all end"},
    {.name = "busy_sends_lose_nothing",
     .rule = 7,
     .forms = CF_PAIRED,
     .send = busy_send,
     .recv = busy_recv,
     .text = "isend beyond the plugin's limit is busy; nothing is lost"},
    {.name = "busy_receives_lose_nothing",
     .rule = 7,
     .forms = CF_SINGLE,
     .solo = busy_receives,
     .text = "irecv beyond the plugin's limit is busy; nothing is lost"},
    {.name = "receiver_may_come_late",
     .rule = 7,
     .forms = CF_PAIRED,
     .send = late_send,
     .recv = late_recv,
     .text = "sends wait for their receives; nothing is lost"},
    {.name = NULL},
};

/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases about closing (rule 10): with nothing in flight what was done arrives; with work in flight
 * it ends at once and memory is the caller's again. Thread: the role's. */
#include "cf_int.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define DRAINS "its adapter drains before it closes, and then leaks on purpose"

/* ---- what was done arrives ---- */

#define LAST 16

static void done_send(struct cf *me)
{
    void *comm = cf_open(me);
    struct cf_buffer buffer;

    cf_buffer_make(me, comm, 9000, 0, &buffer);
    for (size_t i = 0; i < LAST; i++)
        cf_send(me, comm, &buffer, i * 600, i);
    cf_fill(buffer.data, 9000, 99);
    cf_buffer_free(me, &buffer);
    cf_close(me, comm); /* finalize follows, and the end of the process */
}

static void done_recv(struct cf *me)
{
    void *comm = cf_open(me);
    struct cf_buffer buffer;

    cf_buffer_make(me, comm, 9000, 0, &buffer);
    for (size_t i = 0; i < LAST; i++) {
        if (i % 8 == 4)
            cf_sleep_ms(20);
        cf_recv(me, comm, &buffer, i * 600, i);
    }
    cf_buffer_free(me, &buffer);
    cf_close(me, comm);
}

/* ---- what was done before any receive was posted ---- */

#define EARLY       4
#define EARLY_BYTES 100
#define ALONE_MS    1000ull /* for a send whose receive is not posted */

/* 1: the send is done although nobody receives yet. */
static int done_alone(struct cf *me, void *comm, const struct cf_buffer *from)
{
    uint64_t end_ns = cf_now() + ALONE_MS * CF_SLOW * CF_MS;
    xcclNetRequest_t request = NULL;
    int done = 0;

    while (!done && cf_now() < end_ns) {
        if (request)
            cf_ok(me, cf_test(me, request, &done, NULL), "test of a send");
        else
            cf_ok(me, cf_isend(me, comm, from->data, EARLY_BYTES, 7, from->mem, &request), "isend");
    }
    return done;
}

static void early_send(struct cf *me)
{
    void *comm = cf_open(me);
    struct cf_buffer from[EARLY];
    uint32_t done = 0;

    for (uint32_t i = 0; i < EARLY; i++) {
        cf_buffer_make(me, comm, EARLY_BYTES, 0, &from[i]);
        cf_fill(from[i].data, EARLY_BYTES, i);
    }
    while (done < EARLY && done_alone(me, comm, &from[done]))
        done++;
    if (done < EARLY)
        cf_skip(me, "the plugin reports no send as done before its receive is posted");
    cf_close(me, comm);
    cf_barrier(me);
}

/* The receives are as large as slots are: a plugin may want an answer to such a one. */
static void early_recv(struct cf *me)
{
    void *comm = cf_open(me);
    struct cf_buffer buffer;

    cf_buffer_make(me, comm, cf_at_most(me, (size_t)1 << 20), 0, &buffer);
    cf_barrier(me);
    for (uint32_t i = 0; i < EARLY; i++)
        cf_recv(me, comm, &buffer, EARLY_BYTES, i);
    cf_buffer_free(me, &buffer);
    cf_close(me, comm);
}

/* ---- with work in flight ---- */

#define FLYING_BYTES ((size_t)1 << 20)

#define SENDS 6

/* Posts up to SENDS sends that nobody receives; returns how many the plugin took. */
static int flying_post(struct cf *me, void *comm, size_t bytes, struct cf_buffer from[SENDS])
{
    int taken = 0;

    for (int i = 0; i < SENDS; i++) {
        xcclNetRequest_t request = NULL;

        cf_buffer_make(me, comm, bytes, 0, &from[i]);
        cf_fill(from[i].data, bytes, (uint64_t)taken);
        for (int tries = 0; tries < 50 && !request; tries++)
            cf_ok(me, cf_isend(me, comm, from[i].data, bytes, 7, from[i].mem, &request), "isend");
        taken += request != NULL;
    }
    return taken;
}

/* Receives one message whole, or finds the error that ends the comm (0). */
static int flying_take(struct cf *me, void *comm, struct cf_buffer *to, uint64_t salt)
{
    struct cf_patience patience = cf_patience("the end of a receive whose sender has closed");
    const struct cf_recv one = {1, {to->data}, {to->bytes}, {7}, {to->mem}};
    size_t sizes[XCCL_NET_MAX_RECVS];
    xcclNetRequest_t request = NULL;
    xcclResult_t rc = xcclSuccess;
    int done = 0;

    while (!request && rc == xcclSuccess) {
        rc = cf_irecv(me, comm, &one, &request);
        cf_turn(me, &patience);
    }
    while (rc == xcclSuccess && !done) {
        rc = cf_test(me, request, &done, sizes);
        cf_turn(me, &patience);
    }
    if (rc == xcclSuccess)
        cf_expect(me, to->data, sizes[0], salt, "a message whose sender closed before it was done");
    return rc == xcclSuccess;
}

/* Sends are closed away, their memory is unmapped: a thread of the plugin that still reads it
 * crashes. What arrives is whole or does not arrive. */
static void sends_in_flight(struct cf *me)
{
    struct cf_pair pair;
    struct cf_buffer from[SENDS], to;
    size_t bytes = cf_at_most(me, FLYING_BYTES);
    int taken, arrived = 0;

    cf_pair_open(me, &pair);
    cf_buffer_make(me, pair.recv, bytes, 0, &to);
    taken = flying_post(me, pair.send, bytes, from);
    cf_ok(me, cf_close_send(me, pair.send), "closeSend with sends in flight");
    for (int i = 0; i < SENDS; i++)
        munmap(from[i].base, from[i].base_bytes);
    while (arrived < taken && flying_take(me, pair.recv, &to, (uint64_t)arrived))
        arrived++;
    cf_ok(me, cf_close_recv(me, pair.recv), "closeRecv after the sender has closed");
    if (arrived == taken)
        cf_skip(me, "the plugin had sent everything before the close");
}

static uint64_t checksum(const struct cf_buffer *buffer)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < buffer->base_bytes; i++)
        sum = sum * 31 + (unsigned char)buffer->base[i];
    return sum;
}

/* Receives are closed away half-way through a message; their memory stays as it is. */
static void receives_in_flight(struct cf *me)
{
    enum { RECEIVES = 4 };
    struct cf_pair pair;
    struct cf_buffer from, to[RECEIVES];
    xcclNetRequest_t sending, requests[RECEIVES];
    size_t bytes = cf_at_most(me, 8 * FLYING_BYTES);
    uint64_t sums[RECEIVES], end_ns;
    int done = 0, sent = 0;

    cf_pair_open(me, &pair);
    cf_buffer_make(me, pair.send, bytes, 0, &from);
    for (int i = 0; i < RECEIVES; i++) {
        cf_buffer_make(me, pair.recv, i ? bytes / 8 : bytes, 0, &to[i]);
        requests[i] = cf_recv_post(me, pair.recv, &to[i], to[i].bytes, 7);
    }
    sending = cf_send_post(me, pair.send, &from, bytes, 7);
    for (int i = 0; i < 3 && !done; i++) {
        cf_ok(me, cf_test(me, requests[0], &done, NULL), "test of a receive");
        if (!sent)
            cf_ok(me, cf_test(me, sending, &sent, NULL), "test of a send");
    }
    cf_ok(me, cf_close_recv(me, pair.recv), "closeRecv with receives in flight");
    for (int i = 0; i < RECEIVES; i++) {
        memset(to[i].base, 0x11 * (i + 1), to[i].base_bytes);
        sums[i] = checksum(&to[i]);
    }
    /* The sender goes on or fails; it does not wait for ever. */
    for (end_ns = cf_now() + 5000 * CF_SLOW * CF_MS; !sent && cf_now() < end_ns;) {
        if (cf_test(me, sending, &sent, NULL) != xcclSuccess)
            sent = 1;
    }
    if (!sent)
        cf_fail(me, "a send to a receiver that has closed neither ends nor fails within 5 s");
    cf_sleep_ms(50 * CF_SLOW);
    for (int i = 0; i < RECEIVES; i++) {
        if (checksum(&to[i]) != sums[i])
            cf_fail(me, "the memory of receive %d was written after closeRecv had returned", i);
    }
    cf_ok(me, cf_close_send(me, pair.send), "closeSend");
}

/* A receive that nothing was sent for. */
static void idle_receives(struct cf *me)
{
    struct cf_pair pair;
    struct cf_buffer to;

    cf_pair_open(me, &pair);
    cf_buffer_make(me, pair.recv, 4096, 0, &to);
    for (int i = 0; i < 8; i++)
        cf_recv_post(me, pair.recv, &to, 4096, 7);
    cf_ok(me, cf_close_recv(me, pair.recv), "closeRecv with receives in flight");
    munmap(to.base, to.base_bytes);
    cf_ok(me, cf_close_send(me, pair.send), "closeSend after the peer's");
    cf_pair_open(me, &pair);
    cf_pair_pass(me, &pair, 100, 1);
    cf_pair_close(me, &pair);
}

/* ---- before anything is connected ---- */

static void listen_alone(struct cf *me)
{
    xcclNetHandle_t handle;
    xcclNetListenComm_t listen = NULL;
    void *comm = NULL;

    for (int i = 0; i < 20; i++) {
        memset(&handle, 0, sizeof(handle));
        cf_ok(me, cf_listen(me, me->dev, &handle, &listen), "listen");
        if (i % 2)
            cf_ok(me, cf_accept(me, listen, &comm), "accept");
        cf_ok(me, cf_close_listen(me, listen), "closeListen before a sender connected");
    }
}

/* The connect is given up at every stage, with and without a receiver that looks. */
static void half_open_connect(struct cf *me)
{
    for (int turns = 1; turns < 6; turns++) {
        xcclNetHandle_t handle;
        xcclNetListenComm_t listen = NULL;
        xcclNetConnect_t state = NULL;
        void *send = NULL, *recv = NULL;

        memset(&handle, 0, sizeof(handle));
        cf_ok(me, cf_listen(me, me->dev, &handle, &listen), "listen");
        for (int i = 0; i < turns && !send; i++) {
            cf_ok(me, cf_connect(me, me->dev, &handle, &state, &send), "connect");
            if (turns % 2 && !recv)
                cf_ok(me, cf_accept(me, listen, &recv), "accept");
        }
        if (send)
            cf_ok(me, cf_close_send(me, send), "closeSend");
        else if (state)
            cf_ok(me, cf_close_connect(me, state), "closeConnect");
        for (int i = 0; i < 5 && !recv; i++)
            cf_ok(me, cf_accept(me, listen, &recv),
                  "accept of a sender that has cancelled its connect");
        if (recv)
            cf_ok(me, cf_close_recv(me, recv), "closeRecv");
        cf_ok(me, cf_close_listen(me, listen), "closeListen");
    }
}

/* A sender is at the door and the listener closes. */
static void listen_with_sender(struct cf *me)
{
    struct cf_patience patience = cf_patience("the end of a connect whose listener has closed");
    xcclNetHandle_t handle;
    xcclNetListenComm_t listen = NULL;
    xcclNetConnect_t state = NULL;
    void *send = NULL;
    xcclResult_t rc;

    memset(&handle, 0, sizeof(handle));
    cf_ok(me, cf_listen(me, me->dev, &handle, &listen), "listen");
    cf_ok(me, cf_connect(me, me->dev, &handle, &state, &send), "connect");
    cf_ok(me, cf_close_listen(me, listen), "closeListen while a sender connects");
    for (rc = xcclSuccess; rc == xcclSuccess && !send && patience.turns < 1000;) {
        rc = cf_connect(me, me->dev, &handle, &state, &send);
        cf_turn(me, &patience);
    }
    if (rc != xcclSuccess && state)
        cf_fail(me, "connect failed, but left *state set; it must be NULL after an error");
    if (send)
        cf_ok(me, cf_close_send(me, send), "closeSend");
    else if (state)
        cf_ok(me, cf_close_connect(me, state), "closeConnect");
}

/* finalize frees connects under way. */
static void finalize_with_connect(struct cf *me)
{
    struct xccl_net *net = NULL, *first = me->net;
    xcclNetHandle_t handle;
    xcclNetListenComm_t listen = NULL;
    xcclNetConnect_t state = NULL;
    void *send = NULL;

    memset(&handle, 0, sizeof(handle));
    cf_ok(me, cf_listen(me, me->dev, &handle, &listen), "listen");
    if (cf_init(me, &net) != xcclSuccess)
        cf_fail(me, "a second instance does not open");
    me->net = net;
    cf_ok(me, cf_connect(me, me->dev, &handle, &state, &send), "connect");
    if (send)
        cf_ok(me, cf_close_send(me, send), "closeSend");
    cf_fini(me, net);
    me->net = first;
    cf_ok(me, cf_close_listen(me, listen), "closeListen");
}

const struct cf_case cf_cases_close[] = {
    {.name = "done_sends_arrive_after_close",
     .rule = 10,
     .forms = CF_PAIRED,
     .send = done_send,
     .recv = done_recv,
     .text = "messages that test reported as done before a close still arrive"},
    {.name = "early_sends_arrive_after_close",
     .rule = 10,
     .forms = CF_PAIRED,
     .send = early_send,
     .recv = early_recv,
     .text = "messages done before a close also arrive in large receives posted later"},
    {.name = "close_with_sends_in_flight",
     .rule = 10,
     .forms = CF_SINGLE,
     .flags = CF_OWN,
     .solo = sends_in_flight,
     .text = "closeSend ends sends in flight; their memory is no longer read",
     .why = DRAINS},
    {.name = "close_with_receives_in_flight",
     .rule = 10,
     .forms = CF_SINGLE,
     .flags = CF_OWN,
     .solo = receives_in_flight,
     .text = "closeRecv ends receives in flight; their memory is no longer written",
     .why = DRAINS},
    {.name = "close_with_idle_receives",
     .rule = 10,
     .forms = CF_SINGLE,
     .flags = CF_OWN,
     .solo = idle_receives,
     .text = "receives without a message end with closeRecv",
     .why = DRAINS},
    {.name = "close_listen_before_a_sender",
     .rule = 10,
     .forms = CF_SINGLE,
     .solo = listen_alone,
     .text = "a listening comm may be closed at any time"},
    {.name = "close_half_open_connect",
     .rule = 10,
     .forms = CF_SINGLE,
     .flags = CF_OWN,
     .solo = half_open_connect,
     .text = "a connect may be cancelled at every stage",
     .why = "it cannot cancel a connect, so the adapter leaks it on purpose"},
    {.name = "close_listen_with_a_sender",
     .rule = 10,
     .forms = CF_SINGLE,
     .flags = CF_OWN,
     .solo = listen_with_sender,
     .text = "closeListen during a connect harms neither side",
     .why = "it cannot cancel a connect, so the adapter leaks it on purpose"},
    {.name = "finalize_frees_connects",
     .forms = CF_SINGLE,
     .flags = CF_OWN,
     .solo = finalize_with_connect,
     .text = "finalize frees the resources of unfinished connects",
     .why = "it cannot cancel a connect, so the adapter leaks it on purpose"},
    {.name = NULL},
};

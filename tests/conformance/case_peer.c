/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases about a peer that dies: requests end with an error soon, the error stays, other comms live
 * on. The role that dies ends itself with SIGKILL. Thread: the role's. */
#include "cf_int.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DEAD_MS   (2000 * CF_SLOW) /* a killed process has closed all by then */
#define SOON_MS   (5000ull * CF_SLOW)
#define BIG_BYTES ((size_t)16 << 20)

static _Noreturn void die(struct cf *me)
{
    atomic_store_explicit(&me->shared->may_die[me->role], 1, memory_order_release);
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

/* After so much time without an error. NCCL's contract does not say that a plugin notices a dead
 * peer, and XCCL does by connections of its own; so that is no failure of a plugin of NCCL's. */
static void expect_time_left(struct cf *me, uint64_t begin_ns, const char *what)
{
    if (cf_now() - begin_ns <= SOON_MS * CF_MS)
        return;
    cf_breach(me, "%s: no error within 5 s (rule 11)", what);
}

static void expect_own_error(struct cf *me, xcclNetRequest_t request, const char *what)
{
    uint64_t begin_ns = cf_now();
    xcclResult_t rc = cf_wait_error(me, request, what);

    if ((cf_now() - begin_ns) / CF_MS > SOON_MS)
        cf_fail(me, "%s: the error took %llu ms", what,
                (unsigned long long)((cf_now() - begin_ns) / CF_MS));
    if (rc != xcclRemoteError)
        cf_fail(me, "%s: %s instead of remote error (rule 11)", what, cf_result_name(rc));
    if (!me->net->calls.lastError(me->net->ctx)[0])
        cf_fail(me, "%s: lastError is empty", what);
}

/* Waits until rc of a test is an error; then the same error comes again, from each call. */
static void expect_error(struct cf *me, xcclNetRequest_t request, const char *what)
{
    uint64_t begin_ns = cf_now();
    int done = 0;

    if (me->own_contract) {
        expect_own_error(me, request, what);
        return;
    }
    while (cf_test(me, request, &done, NULL) == xcclSuccess && !done) {
        expect_time_left(me, begin_ns, what);
        cf_sleep_ms(1);
    }
    if (done)
        cf_fail(me, "%s: test reported done", what);
    if (!me->net->calls.lastError(me->net->ctx)[0])
        cf_fail(me, "%s: lastError is empty", what);
}

static void expect_sticky(struct cf *me, void *comm, struct cf_buffer *buffer, int sends)
{
    const struct cf_recv one = {1, {buffer->data}, {100}, {7}, {buffer->mem}};
    char mark;

    for (int i = 0; i < 3; i++) {
        xcclNetRequest_t request = &mark;
        xcclResult_t rc = sends ? cf_isend(me, comm, buffer->data, 100, 7, buffer->mem, &request)
                                : cf_irecv(me, comm, &one, &request);

        if (rc == xcclSuccess)
            cf_fail(me, "%s succeeds on a comm that has failed (rule 9: the same error again)",
                    sends ? "isend" : "irecv");
        if (request != &mark && me->own_contract)
            cf_fail(me, "%s failed, but changed *request (rule 4)", sends ? "isend" : "irecv");
    }
}

/* An unknown cause without a text is what the loader fills in for a plugin that does not tell. */
static void expect_cause(struct cf *me, void *comm)
{
    xcclNetError_v1 error;

    memset(&error, 0, sizeof(error));
    error.size = sizeof(error);
    cf_enter(me, "errorDetail");
    cf_ok(me, me->net->calls.errorDetail(comm, &error), "errorDetail");
    if (!error.text)
        cf_fail(me, "errorDetail's text is NULL");
    if (error.cause == xcclNetCauseUnknown && !error.text[0])
        return;
    if (error.cause == xcclNetCauseNone)
        cf_fail(me, "errorDetail reports that a comm whose peer died has not failed");
    if (error.cause != xcclNetCausePeerGone && error.cause != xcclNetCauseUnknown &&
        error.cause != xcclNetCauseLinkDown && error.cause != xcclNetCauseTimeout)
        cf_fail(me, "errorDetail reports cause %d after the peer died, instead of %d (peer gone)",
                error.cause, xcclNetCausePeerGone);
}

/* ---- the sender dies ---- */

static void idle_death_send(struct cf *me)
{
    void *comm = cf_open(me);
    struct cf_buffer buffer;

    cf_buffer_make(me, comm, 1000, 0, &buffer);
    cf_send(me, comm, &buffer, 1000, 1);
    cf_barrier(me);
    die(me);
}

/* A message that came before stays good; a pair of our own on the same instance lives on. */
static void idle_death_recv(struct cf *me)
{
    void *comm = cf_open(me);
    struct cf_buffer buffer;
    struct cf_pair own;

    cf_pair_open(me, &own);
    cf_buffer_make(me, comm, 1000, 0, &buffer);
    cf_recv(me, comm, &buffer, 1000, 1);
    cf_pair_pass(me, &own, 1000, 2);
    cf_barrier(me);
    expect_error(me, cf_recv_post(me, comm, &buffer, 1000, 7), "a receive whose sender was killed");
    expect_sticky(me, comm, &buffer, 0);
    if (me->own_contract)
        expect_cause(me, comm);
    cf_pair_pass(me, &own, 1000, 3);
    cf_close_recv(me, comm);
    cf_pair_pass(me, &own, 60000, 4);
    cf_pair_close(me, &own);
}

/* The receiver looks away while the sender dies, so that what is in flight is bounded by what the
 * network holds. */
static void mid_death_send(struct cf *me)
{
    void *comm = cf_open(me);
    struct cf_buffer buffer;
    size_t bytes = cf_at_most(me, BIG_BYTES);
    xcclNetRequest_t request;
    int done = 0;

    cf_buffer_make(me, comm, bytes, 0, &buffer);
    cf_fill(buffer.data, bytes, 1);
    request = cf_send_post(me, comm, &buffer, bytes, 7);
    cf_barrier(me);
    for (int i = 0; i < 3 && !done; i++)
        cf_ok(me, cf_test(me, request, &done, NULL), "test of a send");
    die(me);
}

static void await_death(struct cf *me)
{
    char word;

    while (read(me->channel, &word, 1) > 0)
        ;
}

static void mid_death_recv(struct cf *me)
{
    struct cf_patience patience = cf_patience("an error after the sender was killed mid-message");
    void *comm = cf_open(me);
    struct cf_buffer buffer;
    size_t bytes = cf_at_most(me, BIG_BYTES);
    xcclNetRequest_t request;
    xcclResult_t rc = xcclSuccess;
    int done = 0;

    cf_buffer_make(me, comm, bytes, 0, &buffer);
    request = cf_recv_post(me, comm, &buffer, bytes, 7);
    cf_ok(me, cf_test(me, request, &done, NULL), "test of a receive");
    cf_barrier(me);
    await_death(me);
    for (uint64_t begin_ns = cf_now(); rc == xcclSuccess && !done;) {
        rc = cf_test(me, request, &done, NULL);
        if (!me->own_contract)
            expect_time_left(me, begin_ns, "a message whose sender was killed");
        cf_turn(me, &patience);
    }
    if (done) {
        cf_expect(me, buffer.data, bytes, 1, "a message whose sender was killed");
        cf_skip(
            me,
            "the network accepted all %zu bytes at once, so the message could not be interrupted",
            bytes);
    }
    if (me->own_contract && rc != xcclRemoteError)
        cf_fail(me, "an interrupted message returned %s instead of remote error (rule 11)",
                cf_result_name(rc));
    expect_sticky(me, comm, &buffer, 0);
    cf_expect_guards(me, &buffer, bytes, "an interrupted message");
    cf_close_recv(me, comm);
}

/* ---- the receiver dies ---- */

static void receiver_death_recv(struct cf *me)
{
    void *comm = cf_open(me);
    struct cf_buffer buffer;

    cf_buffer_make(me, comm, 1000, 0, &buffer);
    cf_recv(me, comm, &buffer, 1000, 1);
    cf_barrier(me);
    die(me);
}

/* Sends until the network shows it. */
static void receiver_death_send(struct cf *me)
{
    struct cf_patience patience = cf_patience("an error of sends to a receiver that was killed");
    void *comm = cf_open(me);
    struct cf_buffer buffer;
    xcclResult_t rc = xcclSuccess;
    uint64_t begin_ns;

    cf_buffer_make(me, comm, 65536, 0, &buffer);
    cf_send(me, comm, &buffer, 1000, 1);
    cf_barrier(me);
    begin_ns = cf_now();
    while (rc == xcclSuccess) {
        xcclNetRequest_t request = NULL;
        int done = 0;

        rc = cf_isend(me, comm, buffer.data, 65536, 7, buffer.mem, &request);
        while (rc == xcclSuccess && request && !done) {
            rc = cf_test(me, request, &done, NULL);
            expect_time_left(me, begin_ns, "sends to a receiver that was killed");
            cf_turn(me, &patience);
        }
        expect_time_left(me, begin_ns, "sends to a receiver that was killed");
        cf_turn(me, &patience);
    }
    if (me->own_contract && rc != xcclRemoteError)
        cf_fail(me, "a send to a receiver that was killed returned %s instead of remote error",
                cf_result_name(rc));
    expect_sticky(me, comm, &buffer, 1);
    if (me->own_contract)
        expect_cause(me, comm);
    cf_close_send(me, comm);
}

/* ---- nobody is there any more ---- */

static void dead_listener_recv(struct cf *me)
{
    xcclNetListenComm_t listen = NULL;
    xcclNetHandle_t handle;

    memset(&handle, 0, sizeof(handle));
    cf_ok(me, cf_listen(me, me->dev, &handle, &listen), "listen");
    cf_tell(me, &handle, sizeof(handle));
    die(me);
}

/* One connect, for at most 300 ms; the comm that it gives, or NULL. */
static void *connect_to_dead(struct cf *me, const xcclNetHandle_t *handle)
{
    uint64_t end_ns = cf_now() + 300 * CF_MS;
    xcclNetConnect_t state = NULL;
    xcclResult_t rc = xcclSuccess;
    void *comm = NULL;

    while (rc == xcclSuccess && cf_now() < end_ns && !comm)
        rc = cf_connect(me, me->dev, handle, &state, &comm);
    if (rc != xcclSuccess && state)
        cf_fail(me, "connect failed, but left *state set; it must be NULL after an error");
    if (state)
        cf_ok(me, cf_close_connect(me, state), "closeConnect");
    return comm;
}

/* The kernel closes a dead process's descriptors one after the other, which takes its time on a
 * busy machine: a connection may still come about with a listener that nobody serves. */
static void dead_listener_send(struct cf *me)
{
    xcclNetHandle_t handle;
    uint64_t end_ns;
    void *comm;

    cf_hear(me, &handle, sizeof(handle));
    await_death(me);
    end_ns = cf_now() + DEAD_MS * CF_MS;
    do {
        cf_sleep_ms(50);
        comm = connect_to_dead(me, &handle);
        if (comm)
            cf_close_send(me, comm);
    } while (comm && cf_now() < end_ns);
    if (comm)
        cf_fail(me, "connect to a receiver that was killed still returns a comm after %d ms",
                (int)DEAD_MS);
}

/* ---- closed, not killed ---- */

static void peer_closes_send(struct cf *me)
{
    void *comm = cf_open(me);
    struct cf_buffer buffer;

    cf_buffer_make(me, comm, 1000, 0, &buffer);
    cf_send(me, comm, &buffer, 1000, 1);
    cf_close(me, comm);
    cf_barrier(me);
}

static void peer_closes_recv(struct cf *me)
{
    void *comm = cf_open(me);
    struct cf_buffer buffers[2];
    xcclNetRequest_t requests[2];

    for (int i = 0; i < 2; i++) {
        cf_buffer_make(me, comm, 1000, 0, &buffers[i]);
        requests[i] = cf_recv_post(me, comm, &buffers[i], 1000, 7);
    }
    /* The second is tested first: its error must not take the first one's message away. */
    expect_error(me, requests[1], "a receive whose sender has closed");
    cf_wait(me, requests[0], NULL, "a message that was complete before the sender closed (rule 9)");
    cf_expect(me, buffers[0].data, 1000, 1, "a message that was complete before the error");
    cf_barrier(me);
    cf_close_recv(me, comm);
}

/* The error of test itself: what it was given is as it was. */
static void test_outputs_recv(struct cf *me)
{
    struct cf_patience patience = cf_patience("an error of a receive whose sender has closed");
    void *comm = cf_open(me);
    struct cf_buffer buffer;
    xcclNetRequest_t request;
    xcclResult_t rc = xcclSuccess;
    size_t size = 0;
    int done = 0;

    cf_buffer_make(me, comm, 1000, 0, &buffer);
    cf_recv(me, comm, &buffer, 1000, 1);
    request = cf_recv_post(me, comm, &buffer, 1000, 7);
    while (rc == xcclSuccess) {
        done = 77;
        size = 77;
        rc = cf_test(me, request, &done, &size);
        cf_turn(me, &patience);
    }
    if (done != 77)
        cf_fail(me, "test failed, but changed *done");
    if (size != 77)
        cf_fail(me, "test failed, but changed *bytes");
    cf_barrier(me);
    cf_close_recv(me, comm);
}

#define DIES (CF_PROCESSES | CF_NAMESPACES)

const struct cf_case cf_cases_peer[] = {
    {.name = "sender_is_killed_while_idle",
     .rule = 11,
     .forms = DIES,
     .send = idle_death_send,
     .recv = idle_death_recv,
     .text = "remote error within 5 s; it persists, and other comms still work"},
    {.name = "sender_is_killed_mid_message",
     .rule = 11,
     .forms = DIES,
     .send = mid_death_send,
     .recv = mid_death_recv,
     .text = "an interrupted message is a remote error"},
    {.name = "receiver_is_killed",
     .rule = 11,
     .forms = DIES,
     .send = receiver_death_send,
     .recv = receiver_death_recv,
     .text = "sends to a killed receiver are a remote error within 5 s"},
    {.name = "listener_is_killed",
     .forms = DIES,
     .flags = CF_OWN,
     .send = dead_listener_send,
     .recv = dead_listener_recv,
     .text = "connect to a killed receiver returns no comm",
     .why = "it cannot cancel a connect, so the adapter leaks it on purpose"},
    {.name = "test_keeps_outputs_on_error",
     .rule = 4,
     .forms = CF_THREADS,
     .flags = CF_OWN,
     .send = peer_closes_send,
     .recv = test_outputs_recv,
     .text = "an error of test leaves *done and *bytes unchanged",
     .why = "it says nothing about outputs after errors"},
    {.name = "complete_before_the_error_stays",
     .rule = 9,
     .forms = CF_PAIRED,
     .flags = CF_OWN,
     .send = peer_closes_send,
     .recv = peer_closes_recv,
     .text = "requests that were complete before an error stay complete",
     .why = "it says nothing about requests after an error"},
    {.name = NULL},
};

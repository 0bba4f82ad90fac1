/* SPDX-License-Identifier: BSD-3-Clause */
/* What merged ports of the ib plugin do when their side channel fails and not the ports alone: no
 * wait for a peer that says nothing lasts for ever, and the error names the channel. The channel
 * goes through a relay in this process, which falls silent when told to, or says what no end has
 * said: that ends in an error at most. Over the verbs library of
 * one process (fixtures/verbs_fixture.c). */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "base/netaddr.h"
#include "base/tcp.h"
#include "ib_rails.h"

#define ADDR_OFFSET 40 /* in the handle */
#define TURN_MS     10
#define NOTE_BYTES  128

struct relay {
    pthread_t thread;
    int listener;
    struct xccl_addr here, there;
    _Atomic int silent, stop; /* relaxed: nothing hangs on them but when it ends */
    /* A note for end heckled - 1, read by the thread: release pairs with acquire; 0 again: it has
     * gone out. */
    _Atomic int heckled;
    uint8_t note[NOTE_BYTES];
};

static int is_set(const _Atomic int *flag)
{
    return atomic_load_explicit(flag, memory_order_relaxed);
}

/* What lies at one end goes to the other one. */
static void relay_some(int from, int to)
{
    struct xccl_limit limit = xccl_limit_ms(patience_ms, NULL);
    char bytes[4096];
    ssize_t got = recv(from, bytes, sizeof(bytes), MSG_DONTWAIT);

    if (got > 0)
        (void)xccl_tcp_send_all(to, bytes, (size_t)got, &limit);
    if (got == 0)
        shutdown(to, SHUT_WR);
}

/* Between two notes, for each goes out in one. */
static void heckle(struct relay *relay, const int *ends)
{
    struct xccl_limit limit = xccl_limit_ms(patience_ms, NULL);
    int end = atomic_load_explicit(&relay->heckled, memory_order_acquire);

    if (end == 0)
        return;
    (void)xccl_tcp_send_all(ends[end - 1], relay->note, NOTE_BYTES, &limit);
    atomic_store_explicit(&relay->heckled, 0, memory_order_release);
}

static void *relay_run(void *relay_)
{
    struct relay *relay = relay_;
    struct xccl_limit limit = xccl_limit_ms(patience_ms, NULL);
    struct pollfd wait = {.fd = relay->listener, .events = POLLIN};
    int ends[2] = {-1, -1};

    while (ends[0] < 0 && !is_set(&relay->stop)) {
        (void)poll(&wait, 1, TURN_MS);
        XT_OK(xccl_tcp_accept(relay->listener, &ends[0], NULL));
    }
    XT_OK(xccl_tcp_connect(&relay->there, &limit, &ends[1]));
    while (!is_set(&relay->stop)) {
        struct pollfd waits[2] = {{.fd = ends[0], .events = POLLIN},
                                  {.fd = ends[1], .events = POLLIN}};

        (void)poll(waits, is_set(&relay->silent) ? 0 : 2, TURN_MS);
        for (int i = 0; i < 2 && !is_set(&relay->silent); i++) {
            if (waits[i].revents)
                relay_some(ends[i], ends[1 - i]);
        }
        heckle(relay, ends);
    }
    xccl_tcp_close(&ends[0]);
    xccl_tcp_close(&ends[1]);
    return NULL;
}

/* Between the two ends of a connection that is to be. */
static void relay_start(struct relay *relay, struct pair *pair)
{
    struct xccl_addr any;

    memset(relay, 0, sizeof(*relay));
    XT_OK(xccl_addr_decode((const uint8_t *)&pair->handle + ADDR_OFFSET, &relay->there));
    any = relay->there;
    xccl_addr_set_port(&any, 0);
    XT_OK(xccl_tcp_listen(&any, &relay->listener, &relay->here));
    xccl_addr_encode(&relay->here, (uint8_t *)&pair->handle + ADDR_OFFSET);
    XT_CHECK_INT(pthread_create(&relay->thread, NULL, relay_run, relay), 0);
}

static void relay_end(struct relay *relay)
{
    atomic_store_explicit(&relay->stop, 1, memory_order_relaxed);
    pthread_join(relay->thread, NULL);
    xccl_tcp_close(&relay->listener);
}

/* Until one of the two fails. */
static xcclResult_t step_until_error(struct pair *pair, struct traffic *traffic)
{
    struct xccl_limit limit = xccl_limit_ms(patience_ms, NULL);
    xcclResult_t rc = xcclSuccess;

    while (rc == xcclSuccess && !is_through(traffic)) {
        rc = traffic_step(pair, traffic, 8);
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    return rc;
}

/* Once traffic has failed: on a busy machine the receiver may be the first to find out. */
static xcclNetError_v1 sender_error(struct pair *pair, struct traffic *traffic)
{
    struct xccl_limit limit = xccl_limit_ms(patience_ms, NULL);
    xcclNetError_v1 error = {.size = sizeof(error)};

    while (test_sends(pair, traffic) == xcclSuccess)
        XT_CHECK(!xccl_limit_passed(&limit));

    XT_OK(pair->nets[0]->calls.errorDetail(pair->send, &error));
    return error;
}

/* One port fails and the other one is well, but the peer is not heard of that. */
XT_TEST_DEADLINE(peer_that_does_not_answer_an_end_is_an_error, 60)
{
    struct traffic traffic;
    struct relay relay;
    struct pair pair;

    need_plugin();
    xt_setenv("XCCL_IB_TIMEOUT", "10"); /* 8 times 4 ms; an end may take 2 s at least */
    pair_listen(&pair, 2, 2);
    relay_start(&relay, &pair);
    pair_connect(&pair);
    traffic_begin(&traffic, MIX_STRIPED, 1);
    for (int i = 0; i < 5; i++)
        step(&pair, &traffic);
    atomic_store_explicit(&relay.silent, 1, memory_order_relaxed);
    set_port(0, PORT_LOSES);
    XT_CHECK_INT(step_until_error(&pair, &traffic), xcclRemoteError);
    XT_CHECK_HAS(pair.nets[0]->calls.lastError(pair.nets[0]->ctx), "over the side channel");
    XT_CHECK_HAS(pair.nets[0]->calls.lastError(pair.nets[0]->ctx), "XCCL_SOCKET_IFNAME");
    XT_CHECK_INT(sender_error(&pair, &traffic).cause, xcclNetCauseTimeout);
    set_port(0, PORT_UP);
    pair_close(&pair);
    relay_end(&relay);
}

/* The sender's end: its peer is the relay. */
static int channel_find(const struct relay *relay)
{
    for (int fd = 0; fd < 1024; fd++) {
        struct xccl_addr addr = {.bytes = sizeof(addr.sa)};

        if (getpeername(fd, &addr.sa.any, &addr.bytes) == 0 &&
            addr.sa.any.sa_family == relay->here.sa.any.sa_family &&
            xccl_addr_port(&addr) == xccl_addr_port(&relay->here))
            return fd;
    }
    XT_FAIL("there is no side channel");
}

/* A network that fails is not a peer that has gone. */
XT_TEST(error_of_the_side_channel_is_told)
{
    struct traffic traffic;
    struct relay relay;
    struct pair pair;
    int fd;

    need_plugin();
    pair_listen(&pair, 2, 2);
    relay_start(&relay, &pair);
    pair_connect(&pair);
    /* No socket any more: the one error that is to be had at once. */
    fd = eventfd(0, EFD_CLOEXEC);
    XT_CHECK(fd >= 0 && dup2(fd, channel_find(&relay)) >= 0);
    close(fd);
    traffic_begin(&traffic, MIX_STRIPED, 1);
    traffic.posted_groups = traffic.group_count; /* nothing is received, so the sender waits */
    for (int i = 0; i < traffic.group_count; i++)
        traffic.groups[i].came = 1;
    XT_CHECK_INT(step_until_error(&pair, &traffic), xcclRemoteError);
    XT_CHECK_HAS(pair.nets[0]->calls.lastError(pair.nets[0]->ctx), "side channel");
    XT_CHECK_HAS(pair.nets[0]->calls.lastError(pair.nets[0]->ctx), strerror(ENOTSOCK));
    XT_CHECK_INT(sender_error(&pair, &traffic).sysErrno, ENOTSOCK);
    pair_close(&pair);
    relay_end(&relay);
}

static void put(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(value >> (8 * i));
}

/* A note that could be one, mostly. */
static void note_draw(uint8_t note[NOTE_BYTES], uint64_t *random)
{
    memset(note, 0, NOTE_BYTES);
    put(note, 0x4e494358);
    put(note + 4, 1 + (uint32_t)(xt_random(random) % 8));
    for (int i = 0; i < 4; i++)
        put(note + 24 + 4 * i, (uint32_t)(xt_random(random) % 8 ? xt_random(random) % 40 : ~0u));
    put(note + 88, (uint32_t)(xt_random(random) % 8 ? xt_random(random) % 2 : 2));
    put(note + 92, (uint32_t)(xt_random(random) % 3));
    put(note + 96, (uint32_t)(xt_random(random) % 5000));
    put(note + 100, (uint32_t)xt_random(random));
    if (xt_random(random) % 32 == 0)
        note[xt_random(random) % 24] ^= 0x55;
}

/* The peer is whoever was told the token, and may still be out of its mind. */
XT_TEST_DEADLINE(notes_that_nobody_sent_are_an_error_at_most, 120)
{
    uint64_t random = xt_seed();

    need_plugin();
    xt_setenv("XCCL_IB_TIMEOUT", "10");
    for (int round = 0; round < 60; round++) {
        struct traffic traffic;
        struct relay relay;
        struct pair pair;
        xcclResult_t rc = xcclSuccess;

        pair_listen(&pair, 2, 2);
        relay_start(&relay, &pair);
        pair_connect(&pair);
        traffic_begin(&traffic, MIX_ALL, (uint64_t)round);
        traffic.forged = 1;
        if (round % 3)
            set_port(round % 2, 1 + round % (PORT_KINDS - 1));
        for (int turn = 0; turn < 400 && rc == xcclSuccess; turn++) {
            if (turn % 40 == 5 && atomic_load_explicit(&relay.heckled, memory_order_acquire) == 0) {
                note_draw(relay.note, &random);
                atomic_store_explicit(&relay.heckled, 1 + (int)(xt_random(&random) % 2),
                                      memory_order_release);
            }
            rc = traffic_step(&pair, &traffic, 8);
            if (turn == 200)
                set_port(round % 2, PORT_UP);
        }
        (void)late_come();
        pair_close(&pair);
        relay_end(&relay);
        set_port(round % 2, PORT_UP);
    }
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Rounds of `xccl net perf`: moves messages over connections that are up, and takes the time.
 *
 * A latency round is the same machine as one for bandwidth: a side may send as many messages as it
 * has been allowed, and the answering side allows itself one for each that has come.
 *
 * Limits: host memory, one receive a request. Nothing here waits without a deadline: a side that
 * sees nothing move for --timeout gives up.
 * Thread: one a side. */
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/os.h"
#include "net/net_perf_side_int.h"
#include "plugin/net_plugin.h"

#define SAMPLE_BYTES 4096u /* of a sampled check, each */
#define SAMPLES      16u
/* Idle turns before the core is offered to others. Where two sides have to share a core this is
 * what a message waits for, and where they do not an offer costs less than a look at a socket. */
#define SPINS         100
#define SPINS_CROWDED 20
#define SLEEP_MS      100
/* In a row, of a receive whose message is all that a side waits for. */
#define ASKS 8

/* ---- waiting ---- */

static void note_moved(struct netperf_side *side)
{
    _Atomic uint64_t *count = &side->args->shared->moved[side->args->number].count;

    side->idle = 0;
    side->idle_since_ns = 0;
    /* Relaxed: a sign of life; nothing hangs on it. Only this side writes it. */
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

/* Sleeps until a request may have moved. 0: there is something that cannot be slept on. */
static int sleep_on_comms(struct netperf_side *side)
{
    struct pollfd fds[2 * XCCL_NETPERF_FLOWS];
    nfds_t count = 0;

    if (side->sleepless)
        return 0;
    for (int i = 0; i < 2 * side->round.flows; i++) {
        struct netperf_end *end = &side->flows[i / 2].ends[i % 2];
        int fd = -1;

        if (end->posted == end->done)
            continue;
        if (side->net->calls.waitFd(end->comm, &fd) != xcclSuccess || fd < 0)
            return 0;
        fds[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
    return count > 0 && poll(fds, count, SLEEP_MS) >= 0;
}

/* After a turn in which nothing moved. 0: nothing has moved for too long, or progress failed. */
static int idle(struct netperf_side *side)
{
    uint64_t timeout_ms = side->args->options->timeout_ms, now = 0;
    int slept = 0, pending = 0;
    xcclResult_t rc;

    side->idle++;
    if (side->needs_progress) {
        rc = side->net->calls.progress(side->net->ctx, &pending);
        if (rc != xcclSuccess)
            return netperf_call_failed(side, rc, "progress", 0);
    }
    if (side->args->options->wait && !pending)
        slept = sleep_on_comms(side);
    if (!slept && side->idle <= (side->crowded ? SPINS_CROWDED : SPINS)) {
        xccl_os_pause();
        return 1;
    }
    /* On a crowded machine this may take a while, so the clock is looked at each time. */
    if (!slept)
        sched_yield();
    now = xccl_clock_ns();
    if (!side->idle_since_ns)
        side->idle_since_ns = now;
    if (now - side->idle_since_ns < timeout_ms * XCCL_NS_PER_MS)
        return 1;
    return netperf_fail(side, "no data has moved for %" PRIu64 " ms (--timeout)", timeout_ms);
}

/* Both sides leave it at about the same time. */
static int barrier(struct netperf_side *side)
{
    _Atomic uint64_t *arrived = &side->args->shared->arrived;
    uint64_t deadline_ns = xccl_clock_ns() + side->args->options->timeout_ms * XCCL_NS_PER_MS;

    /* Release and acquire: no more is needed than that the other side has come this far. */
    atomic_fetch_add_explicit(arrived, 1, memory_order_acq_rel);
    for (uint32_t turns = 0;; turns++) {
        /* Pairs with the line above in the other side. */
        if (atomic_load_explicit(arrived, memory_order_acquire) >= side->round.barrier)
            return 1;
        if (turns <= SPINS_CROWDED)
            continue;
        sched_yield();
        if (xccl_clock_ns() > deadline_ns)
            return netperf_fail(side, "the other side does not start the round");
    }
}

/* ---- contents ---- */

static char *message_data(struct netperf_side *side, int sender, int flow, uint64_t number)
{
    return side->pattern + xccl_netperf_pattern_at(side->round.salt, sender, flow, number);
}

static char *message_slot(struct netperf_side *side, int flow, uint64_t number)
{
    uint64_t slot = (uint64_t)flow * (uint64_t)side->round.window +
                    number % (uint64_t)side->round.window;

    return side->room + slot * xccl_netperf_stride(side->round.bytes);
}

static int compare(struct netperf_side *side, int flow, uint64_t number, uint64_t at,
                   uint64_t bytes)
{
    const char *got = message_slot(side, flow, number) + at;
    const char *want = message_data(side, !side->args->number, flow, number) + at;
    uint64_t wrong = xccl_netperf_same_bytes(got, want, bytes);

    if (wrong == bytes)
        return 1;
    return netperf_fail(side,
                        "wrong data: byte %" PRIu64 " of message %" PRIu64 " of flow %d (%" PRIu64
                        " bytes) is 0x%02x, 0x%02x was sent",
                        at + wrong, number, flow, side->round.bytes, (unsigned char)got[wrong],
                        (unsigned char)want[wrong]);
}

/* Pieces of the last message of each flow, first and last bytes among them. */
static int compare_samples(struct netperf_side *side)
{
    uint64_t bytes = side->round.bytes;

    for (int i = 0; i < side->round.flows; i++) {
        uint64_t count = side->flows[i].ends[NETPERF_IN].done;
        uint64_t step = (bytes - 1) / SAMPLES;

        if (count == 0 || bytes == 0)
            continue;
        if (bytes <= (uint64_t)SAMPLES * SAMPLE_BYTES) {
            if (!compare(side, i, count - 1, 0, bytes))
                return 0;
            continue;
        }
        for (uint64_t at = 0; at + SAMPLE_BYTES < bytes; at += step) {
            if (!compare(side, i, count - 1, at, SAMPLE_BYTES))
                return 0;
        }
        if (!compare(side, i, count - 1, bytes - SAMPLE_BYTES, SAMPLE_BYTES))
            return 0;
    }
    return 1;
}

/* ---- messages ---- */

static xcclResult_t post_one(struct netperf_side *side, int flow, int way,
                             xcclNetRequest_t *request)
{
    struct netperf_end *end = &side->flows[flow].ends[way];
    uint32_t tag = (uint32_t)flow;
    size_t bytes = side->round.bytes;
    void *data = NULL;

    if (way == NETPERF_OUT)
        return side->net->calls.isend(end->comm,
                                      message_data(side, side->args->number, flow, end->posted),
                                      bytes, tag, end->mem, request);
    data = message_slot(side, flow, end->posted);
    return side->net->calls.irecv(end->comm, 1, &data, &bytes, &tag, &end->mem, request);
}

/* Posts what is allowed and fits. How many; -1 after an error. */
static int end_post(struct netperf_side *side, int flow, int way)
{
    struct netperf_end *end = &side->flows[flow].ends[way];
    int posted = 0;

    while (end->posted < end->total && end->posted - end->done < (uint64_t)side->round.window) {
        xcclNetRequest_t request = NULL;
        xcclResult_t rc = post_one(side, flow, way, &request);

        if (rc != xcclSuccess) {
            netperf_call_failed(side, rc, way == NETPERF_OUT ? "isend" : "irecv", flow);
            return -1;
        }
        if (!request) {
            /* Busy. With nothing in flight no descriptor will tell when that is over. */
            side->sleepless |= end->posted == end->done;
            break;
        }
        end->requests[end->posted % XCCL_NET_MAX_REQUESTS] = request;
        end->posted++;
        posted++;
    }
    return posted;
}

/* How often a receive is asked before anything else is: where one message is under way, and nobody
 * wants the core or a call of progress, the loop around must not be part of the time it takes. */
static int asks_of(const struct netperf_side *side, const struct netperf_end *ends, int way)
{
    return way == NETPERF_IN && side->asks && ends[NETPERF_OUT].done == ends[NETPERF_OUT].posted
               ? ASKS
               : 1;
}

/* Takes back what is through, oldest first, of questions and answers one. How many; -1 after an
 * error. */
static int end_reap(struct netperf_side *side, int flow, int way)
{
    struct netperf_end *end = &side->flows[flow].ends[way];
    int asks = asks_of(side, side->flows[flow].ends, way), reaped = 0;
    uint64_t most = side->round.what == XCCL_NETPERF_LATENCY ? 1 : UINT64_MAX;

    while (end->done < end->posted && (uint64_t)reaped < most) {
        xcclNetRequest_t request = end->requests[end->done % XCCL_NET_MAX_REQUESTS];
        size_t bytes[XCCL_NET_MAX_RECVS] = {0};
        xcclResult_t rc = xcclSuccess;
        int done = 0;

        for (int i = 0; i < asks && !done && rc == xcclSuccess; i++)
            rc = side->net->calls.test(request, &done, bytes);
        if (rc != xcclSuccess) {
            netperf_call_failed(side, rc,
                                way == NETPERF_OUT ? "test of a send" : "test of a receive", flow);
            return -1;
        }
        if (!done)
            break;
        if (bytes[0] == XCCL_NET_SIZE_UNKNOWN)
            bytes[0] = side->round.bytes;
        if (way == NETPERF_IN && bytes[0] != side->round.bytes) {
            netperf_fail(side,
                         "message %" PRIu64 " of flow %d arrived with %zu bytes, but %" PRIu64
                         " were sent",
                         end->done, flow, bytes[0], side->round.bytes);
            return -1;
        }
        if (way == NETPERF_IN && side->round.check && !compare(side, flow, end->done, 0, bytes[0]))
            return -1;
        end->done++;
        reaped++;
    }
    side->done += (uint64_t)reaped;
    return reaped;
}

/* After a question or an answer has come the next receive waits for a turn without one, so that
 * the answer, or the next question, goes first. The tools of the libraries do so, too. */
static int end_step(struct netperf_side *side, int flow, int way)
{
    int first = side->round.what == XCCL_NETPERF_LATENCY && way == NETPERF_IN;
    int reaped = end_reap(side, flow, way);
    int posted = reaped < 0 ? -1 : 0;

    if (reaped == 0 || (reaped > 0 && !first))
        posted = end_post(side, flow, way);
    return posted < 0 ? -1 : reaped + posted;
}

/* One turn over all flows. answers: each message that has come allows one to go. */
static int turn(struct netperf_side *side, int answers)
{
    int moved = 0;

    side->sleepless = 0;
    for (int i = 0; i < side->round.flows; i++) {
        struct netperf_end *ends = side->flows[i].ends;

        for (int way = NETPERF_IN; way >= NETPERF_OUT; way--) {
            int step = 0;

            if (way == NETPERF_OUT && answers)
                ends[NETPERF_OUT].total = ends[NETPERF_IN].done;
            if (ends[way].done == ends[way].total)
                continue;
            step = end_step(side, i, way);
            if (step < 0)
                return 0;
            moved += step;
        }
    }
    if (!moved)
        return idle(side);
    note_moved(side);
    return 1;
}

/* ---- rounds ---- */

/* How many of count messages go over a flow when they take turns. */
static uint64_t share(uint64_t count, int flows, int flow)
{
    return (count + (uint64_t)(flows - 1 - flow)) / (uint64_t)flows;
}

/* Clears the ends, and posts the receives, so that the first message finds one. */
static int round_prepare(struct netperf_side *side, uint64_t *target_out)
{
    const struct xccl_netperf_round *round = &side->round;
    int latency = round->what == XCCL_NETPERF_LATENCY;
    uint64_t target = 0;

    side->done = 0;
    side->idle = 0;
    side->idle_since_ns = 0;
    side->asks = latency && round->flows == 1 && !side->crowded && !side->needs_progress &&
                 !side->args->options->wait;
    for (int i = 0; i < round->flows; i++) {
        struct netperf_end *ends = side->flows[i].ends;

        for (int way = NETPERF_OUT; way <= NETPERF_IN; way++) {
            int active = latency || round->both ||
                         (way == NETPERF_OUT) == (side->args->number == 0);
            uint64_t count = latency ? share(round->iters, round->flows, i) : round->iters;

            ends[way].posted = ends[way].done = 0;
            ends[way].total = active ? count : 0;
            target += ends[way].total;
            if (latency && way == NETPERF_OUT)
                ends[NETPERF_OUT].total = 0;
        }
        if (end_post(side, i, NETPERF_IN) < 0)
            return 0;
    }
    *target_out = target;
    return 1;
}

/* When the first flow has all its messages: what the last one has by then. */
static void note_least(struct netperf_side *side)
{
    uint64_t least = UINT64_MAX;
    int ended = 0;

    for (int i = 0; i < side->round.flows; i++) {
        const struct netperf_end *end = &side->flows[i].ends[NETPERF_IN];

        if (end->total == 0)
            return;
        ended |= end->done == end->total;
        least = end->done < least ? end->done : least;
    }
    if (!ended)
        return;
    side->least_bytes = least * side->round.bytes;
    side->first_end_ns = xccl_clock_ns();
}

static int run_stream(struct netperf_side *side, uint64_t target)
{
    while (side->done < target) {
        if (!turn(side, 0))
            return 0;
        if (side->first_end_ns == 0 && side->idle == 0)
            note_least(side);
    }
    return 1;
}

static int by_size(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

/* The first side asks; flows take turns, and all of them are looked at all the time. */
static int run_questions(struct netperf_side *side, uint64_t target,
                         struct xccl_netperf_result *result)
{
    uint64_t iters = side->round.iters, last_ns = xccl_clock_ns(), now_ns = 0;
    uint64_t every = (iters + NETPERF_SAMPLES - 1) / NETPERF_SAMPLES;
    size_t count = 0;

    for (uint64_t i = 0; i < iters; i++) {
        struct netperf_end *ends = side->flows[i % (uint64_t)side->round.flows].ends;

        ends[NETPERF_OUT].total++;
        if (end_post(side, (int)(i % (uint64_t)side->round.flows), NETPERF_OUT) < 0)
            return 0;
        while (ends[NETPERF_IN].done < ends[NETPERF_OUT].total) {
            if (!turn(side, 0))
                return 0;
        }
        now_ns = xccl_clock_ns();
        if (i % every == 0)
            side->samples[count++] = (double)(now_ns - last_ns) / 2000.0;
        last_ns = now_ns;
    }
    while (side->done < target) {
        if (!turn(side, 0))
            return 0;
    }
    qsort(side->samples, count, sizeof(*side->samples), by_size);
    result->p50_us = side->samples[count / 2];
    result->p99_us = side->samples[count - 1 - count / 100];
    return 1;
}

static int run_answers(struct netperf_side *side, uint64_t target)
{
    while (side->done < target) {
        if (!turn(side, 1))
            return 0;
    }
    return 1;
}

int netperf_flush(struct netperf_side *side)
{
    uint64_t deadline_ns = xccl_clock_ns() + side->args->options->timeout_ms * XCCL_NS_PER_MS;
    int pending = side->needs_progress;

    while (pending) {
        xcclResult_t rc = side->net->calls.progress(side->net->ctx, &pending);

        if (rc != xcclSuccess)
            return netperf_call_failed(side, rc, "progress", 0);
        if (pending && xccl_clock_ns() > deadline_ns)
            return netperf_fail(side, "progress still reports pending work after --timeout");
        if (pending)
            sched_yield();
    }
    return 1;
}

static uint64_t cpu_ns(const struct netperf_side *side)
{
    struct timespec time = {0, 0};

    /* In one process the time of helper threads cannot be told apart, and is left out. */
    clock_gettime(side->args->options->threads ? CLOCK_THREAD_CPUTIME_ID : CLOCK_PROCESS_CPUTIME_ID,
                  &time);
    return (uint64_t)time.tv_sec * XCCL_NS_PER_S + (uint64_t)time.tv_nsec;
}

int netperf_round(struct netperf_side *side, struct xccl_netperf_message *message)
{
    struct xccl_netperf_result result = {0};
    uint64_t target = 0;
    int fine = 0;

    side->round = message->round;
    if (!round_prepare(side, &target) || !barrier(side))
        return 0;
    result.cpu_ns = cpu_ns(side);
    result.start_ns = xccl_clock_ns();
    side->first_end_ns = side->least_bytes = 0;
    if (side->round.what == XCCL_NETPERF_STREAM)
        fine = run_stream(side, target);
    else if (side->args->number == 0)
        fine = run_questions(side, target, &result);
    else
        fine = run_answers(side, target);
    result.end_ns = xccl_clock_ns();
    if (!fine || !netperf_flush(side))
        return 0;
    result.cpu_ns = cpu_ns(side) - result.cpu_ns;
    result.busy = (double)result.cpu_ns / (double)(xccl_clock_ns() - result.start_ns + 1);
    result.least_bytes = side->least_bytes;
    result.first_end_ns = side->first_end_ns;
    if (!compare_samples(side))
        return 0;
    message->result = result;
    return 1;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases about many comms, many instances and several threads (rule 3). Thread: as each case says.
 */
#include "cf_int.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- many comms on one instance ---- */

#define MANY 64

static size_t many_of(const struct cf *me)
{
    size_t count = me->quick ? 16 : MANY;

    if (me->props.maxComms > 0 && count > (size_t)me->props.maxComms / 2)
        count = (size_t)me->props.maxComms / 2;
    return count ? count : 1;
}

static void many_comms(struct cf *me)
{
    struct cf_pair *pairs = calloc(MANY, sizeof(*pairs));
    size_t count = many_of(me);

    if (!pairs)
        cf_skip(me, "no memory");
    for (size_t i = 0; i < count; i++)
        cf_pair_open(me, &pairs[i]);
    for (size_t round = 0; round < 3; round++) {
        for (size_t i = 0; i < count; i++)
            cf_pair_pass(me, &pairs[(i * 7 + round) % count], 100 + i, i);
    }
    for (size_t i = 0; i < count; i++)
        cf_pair_close(me, &pairs[i]);
    free(pairs);
}

/* All at once: every comm has a message under way while the next one's is posted. */
static void many_at_once(struct cf *me)
{
    enum { COMMS = 8, BYTES = 60000 };
    struct cf_pair pairs[COMMS];
    struct cf_buffer from[COMMS], to[COMMS];
    xcclNetRequest_t sending[COMMS], receiving[COMMS];

    for (uint64_t i = 0; i < COMMS; i++) {
        cf_pair_open(me, &pairs[i]);
        cf_pair_warm(me, &pairs[i]);
        cf_buffer_make(me, pairs[i].send, BYTES, 0, &from[i]);
        cf_buffer_make(me, pairs[i].recv, BYTES, 0, &to[i]);
        cf_fill(from[i].data, BYTES, i);
    }
    for (int i = 0; i < COMMS; i++) {
        receiving[i] = cf_recv_post(me, pairs[i].recv, &to[i], BYTES, 7);
        sending[i] = cf_send_post(me, pairs[i].send, &from[i], BYTES, 7);
    }
    for (int i = COMMS - 1; i >= 0; i--) {
        cf_wait_both(me, sending[i], receiving[i], NULL, "a message beside seven others");
        cf_expect(me, to[i].data, BYTES, (uint64_t)i, "a message beside seven others");
        cf_expect_guards(me, &to[i], BYTES, "a message beside seven others");
    }
    for (int i = 0; i < COMMS; i++)
        cf_pair_close(me, &pairs[i]);
}

/* ---- many instances ---- */

static void many_instances(struct cf *me)
{
    enum { INSTANCES = 6 };
    struct xccl_net *first = me->net, *nets[INSTANCES];
    struct cf_pair pairs[INSTANCES];

    for (int i = 0; i < INSTANCES; i++) {
        if (cf_init(me, &nets[i]) != xcclSuccess)
            cf_fail(me, "instance %d beside the others does not open", i + 2);
        me->net = nets[i];
        cf_pair_open(me, &pairs[i]);
    }
    for (int i = 0; i < INSTANCES; i += 2) {
        me->net = nets[i];
        cf_pair_pass(me, &pairs[i], 1000, 1);
        cf_pair_close(me, &pairs[i]);
        cf_fini(me, nets[i]);
    }
    for (int i = 1; i < INSTANCES; i += 2) {
        me->net = nets[i];
        cf_pair_pass(me, &pairs[i], 1000, 2);
        cf_pair_close(me, &pairs[i]);
        cf_fini(me, nets[i]);
    }
    me->net = first;
}

/* ---- several threads ---- */

#define THREADS 4

struct lane {
    struct cf me;
    pthread_t thread;
    struct cf_pair pair;
    int idx;
};

/* Connects, passes messages and closes, beside the other lanes of the same instance. */
static void *lane_run(void *arg)
{
    struct lane *lane = arg;
    int rounds = lane->me.quick ? 3 : 10;

    for (int round = 0; round < rounds; round++) {
        cf_pair_open(&lane->me, &lane->pair);
        for (size_t i = 0; i < 10; i++)
            cf_pair_pass(&lane->me, &lane->pair, 5000 * i, i + (size_t)lane->idx);
        cf_pair_close(&lane->me, &lane->pair);
    }
    return NULL;
}

static void need_free_threads(struct cf *me)
{
    if (me->props.needsProgress)
        cf_skip(me, "needsProgress: progress must not run beside another call, so only one thread "
                    "at a time");
}

static void comms_in_threads(struct cf *me)
{
    struct lane lanes[THREADS];

    need_free_threads(me);
    memset(lanes, 0, sizeof(lanes));
    for (int i = 0; i < THREADS; i++) {
        lanes[i].me = cf_share(me, (uint64_t)i);
        lanes[i].idx = i;
        if (pthread_create(&lanes[i].thread, NULL, lane_run, &lanes[i]) != 0)
            cf_skip(me, "cannot start a thread");
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(lanes[i].thread, NULL);
}

static void *instance_run(void *arg)
{
    struct lane *lane = arg;

    for (int round = 0; round < 3; round++) {
        if (cf_init(&lane->me, &lane->me.net) != xcclSuccess)
            cf_fail(&lane->me, "init beside inits of other threads fails");
        cf_pair_open(&lane->me, &lane->pair);
        cf_pair_pass(&lane->me, &lane->pair, 1000, (uint64_t)lane->idx);
        cf_pair_close(&lane->me, &lane->pair);
        cf_fini(&lane->me, lane->me.net);
    }
    return NULL;
}

static void instances_in_threads(struct cf *me)
{
    struct lane lanes[THREADS];

    memset(lanes, 0, sizeof(lanes));
    for (int i = 0; i < THREADS; i++) {
        lanes[i].me = cf_share(me, (uint64_t)i);
        lanes[i].idx = i;
        if (pthread_create(&lanes[i].thread, NULL, instance_run, &lanes[i]) != 0)
            cf_skip(me, "cannot start a thread");
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(lanes[i].thread, NULL);
}

/* ---- another thread each time ---- */

static void *pass_one(void *arg)
{
    struct lane *lane = arg;

    cf_pair_pass(&lane->me, &lane->pair, 3000, (uint64_t)lane->idx);
    return NULL;
}

static void *open_one(void *arg)
{
    struct lane *lane = arg;

    cf_pair_open(&lane->me, &lane->pair);
    return NULL;
}

static void in_thread(struct lane *lane, void *(*run)(void *))
{
    if (pthread_create(&lane->thread, NULL, run, lane) != 0)
        cf_skip(&lane->me, "cannot start a thread");
    pthread_join(lane->thread, NULL);
}

static void hand_over(struct cf *me)
{
    struct lane lane = {.me = cf_share(me, 1)};

    in_thread(&lane, open_one);
    for (lane.idx = 0; lane.idx < 8; lane.idx++)
        in_thread(&lane, pass_one);
    cf_pair_close(me, &lane.pair);
}

/* Posted by one thread, tested by another. */
struct posted {
    struct cf me;
    xcclNetRequest_t sending, receiving;
};

static void *test_both(void *arg)
{
    struct posted *posted = arg;

    cf_wait_both(&posted->me, posted->sending, posted->receiving, NULL,
                 "a message posted by one thread and tested by another");
    return NULL;
}

static void hand_over_requests(struct cf *me)
{
    struct posted posted = {.me = cf_share(me, 2)};
    struct cf_pair pair;
    struct cf_buffer from, to;
    pthread_t thread;

    cf_pair_open(me, &pair);
    cf_pair_warm(me, &pair);
    cf_buffer_make(me, pair.send, 65000, 0, &from);
    cf_buffer_make(me, pair.recv, 65000, 0, &to);
    for (uint64_t i = 0; i < 5; i++) {
        cf_fill(from.data, 65000, i);
        posted.receiving = cf_recv_post(me, pair.recv, &to, 65000, 7);
        posted.sending = cf_send_post(me, pair.send, &from, 65000, 7);
        if (pthread_create(&thread, NULL, test_both, &posted) != 0)
            cf_skip(me, "cannot start a thread");
        pthread_join(thread, NULL);
        cf_expect(me, to.data, 65000, i, "a message that changed threads");
    }
    cf_pair_close(me, &pair);
}

const struct cf_case cf_cases_threads[] = {
    {.name = "many_comms",
     .forms = CF_SINGLE,
     .flags = CF_LONG,
     .solo = many_comms,
     .text = "64 connections on one instance"},
    {.name = "many_messages_at_once",
     .forms = CF_SINGLE,
     .flags = CF_LONG,
     .solo = many_at_once,
     .text = "messages of several comms are in flight together"},
    {.name = "many_instances",
     .forms = CF_SINGLE,
     .flags = CF_LONG,
     .solo = many_instances,
     .text = "instances work and end independently"},
    {.name = "comms_in_several_threads",
     .rule = 3,
     .forms = CF_SINGLE,
     .solo = comms_in_threads,
     .text = "different comms of an instance in different threads at once"},
    {.name = "instances_in_several_threads",
     .rule = 3,
     .forms = CF_SINGLE,
     .solo = instances_in_threads,
     .text = "several instances may be created at once"},
    {.name = "comm_changes_threads",
     .rule = 3,
     .forms = CF_SINGLE,
     .solo = hand_over,
     .text = "the calling thread may change between calls"},
    {.name = "request_changes_threads",
     .rule = 3,
     .forms = CF_SINGLE,
     .solo = hand_over_requests,
     .text = "one thread posts, another tests"},
    {.name = NULL},
};

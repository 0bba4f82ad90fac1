/* SPDX-License-Identifier: BSD-3-Clause */
/* Two ends of a connection of the ib plugin over merged ports, in one thread, with traffic between
 * them that is checked byte by byte, over the verbs library of one process
 * (fixtures/verbs_fixture.c). */
#ifndef TESTS_PLUGINS_IB_IB_RAILS_H
#define TESTS_PLUGINS_IB_IB_RAILS_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../fixtures/verbs_counts.h"
#include "base/clock.h"
#include "base/error.h"
#include "plugin/net_plugin.h"
#include "xt.h"

#define PLUGIN   XT_BUILD_DIR "/lib/xccl/libxccl-net-ib.so"
#define LIBRARY  XT_BUILD_DIR "/lib/fixtures/libverbs-fixture.so"
#define MESSAGES 48
#define ROOM     (512u << 10)
#define PARTS    3
#define GIVEN    0x5a /* what its owner puts where a message was */

/* As the fixture has them. */
enum { PORT_UP, PORT_DOWN, PORT_LOSES, PORT_DEAF, PORT_LATE, PORT_BREAKS, PORT_KINDS };

static void (*set_port)(int card, int kind);
static int (*late_come)(void);
static long (*posts_of)(int card);
static int (*fail_call)(const char *name);
static int (*hold_start)(int on);
static void (*slow_down)(int ms);

static void (*take_counts)(long counts[COUNT_KINDS]);

enum mix { MIX_SMALL, MIX_STRIPED, MIX_GROUPED, MIX_ALL, MIX_COUNT };

/* Two ends, an instance each. */
struct pair {
    struct xccl_net *nets[2]; /* of the sender, of the receiver */
    int devs[2];
    xcclNetListenComm_t listener;
    xcclNetHandle_t handle;
    void *send, *recv;
    xcclNetMem_t send_mem, recv_mem;
};

struct message {
    size_t bytes;
    uint32_t tag;
    xcclNetRequest_t request;
    int sent;
};

/* A request of the receiver: messages first to first + count - 1. */
struct group {
    int first, count;
    xcclNetRequest_t request;
    int came;
};

struct traffic {
    enum mix mix;
    uint64_t random;
    struct message messages[MESSAGES];
    struct group groups[MESSAGES];
    int group_count, posted_sends, posted_groups, came;
    int forged; /* notes that the receiver never sent may have pieces written again */
};

static uint8_t *out, *in;
static uint64_t patience_ms = 20000;

static inline int is_real(void)
{
    return getenv("IB_RAILS_REAL") != NULL;
}

static inline void set_real_port(int card, int kind)
{
    const char *const argv[] = {"ip", "link", "set", card ? "rail1" : "rail0", kind ? "down" : "up",
                                NULL};

    XT_CHECK_INT(xt_run_program(argv, NULL), 0);
}

static inline int nothing_late(void)
{
    return 0;
}

static inline void prepare(void)
{
    xt_setenv("XCCL_PLUGIN_PATH", XT_BUILD_DIR "/lib/xccl");
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    out = malloc((size_t)MESSAGES * ROOM);
    in = malloc((size_t)MESSAGES * ROOM);
    XT_CHECK(out && in);
}

static inline void need_rails(void)
{
    if (!is_real())
        XT_SKIP("for a machine with two ports that may fail: ci/vm/check_ib rails");
    set_port = set_real_port;
    late_come = nothing_late;
    patience_ms = 250000;
    prepare();
}

static inline void need_plugin(void)
{
    void *library = is_real() ? NULL : dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

    if (is_real())
        XT_SKIP("over the verbs library of one process");
    if (access(PLUGIN, R_OK) != 0 || !library)
        XT_SKIP("net-ib is not built: there is no infiniband/verbs.h");
    *(void **)&set_port = dlsym(library, "verbs_fixture_port");
    *(void **)&late_come = dlsym(library, "verbs_fixture_late");
    *(void **)&posts_of = dlsym(library, "verbs_fixture_posts");
    *(void **)&fail_call = dlsym(library, "verbs_fixture_fail");
    *(void **)&hold_start = dlsym(library, "verbs_fixture_hold");
    *(void **)&slow_down = dlsym(library, "verbs_fixture_slow");
    *(void **)&take_counts = dlsym(library, "verbs_fixture_counts");
    XT_CHECK(set_port && late_come && posts_of && fail_call && hold_start && slow_down);
    XT_CHECK(take_counts != NULL);
    xt_setenv("XCCL_IB_LIBRARY", LIBRARY);
    xt_setenv("VERBS_FIXTURE_CARDS", "4");
    prepare();
}

static inline void end_open(struct pair *pair, int which, int ports)
{
    static const struct xccl_net_open_args args = {.nranks = 2, .comm_name = "test"};
    static const int devs[] = {0, 1, 2, 3};

    XT_OK(xccl_net_open_item("ib", &args, &pair->nets[which]));
    XT_OK(pair->nets[which]->calls.mergeDevices(pair->nets[which]->ctx, devs, ports,
                                                &pair->devs[which]));
}

static inline void pair_listen(struct pair *pair, int send_ports, int recv_ports)
{
    memset(pair, 0, sizeof(*pair));
    end_open(pair, 0, send_ports);
    end_open(pair, 1, recv_ports);
    XT_OK(pair->nets[1]->calls.listen(pair->nets[1]->ctx, pair->devs[1], &pair->handle,
                                      &pair->listener));
}

static inline void pair_connect(struct pair *pair)
{
    struct xccl_limit limit = xccl_limit_ms(patience_ms, NULL);
    xcclNetConnect_t state = NULL;

    while (!pair->send || !pair->recv) {
        if (!pair->send)
            XT_OK(pair->nets[0]->calls.connect(pair->nets[0]->ctx, pair->devs[0], &pair->handle,
                                               &state, &pair->send));
        if (!pair->recv)
            XT_OK(pair->nets[1]->calls.accept(pair->listener, &pair->recv));
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    XT_OK(pair->nets[0]->calls.regMr(pair->send, out, (size_t)MESSAGES * ROOM, XCCL_NET_PTR_HOST,
                                     &pair->send_mem));
    XT_OK(pair->nets[1]->calls.regMr(pair->recv, in, (size_t)MESSAGES * ROOM, XCCL_NET_PTR_HOST,
                                     &pair->recv_mem));
}

static inline void pair_open(struct pair *pair, int send_ports, int recv_ports)
{
    pair_listen(pair, send_ports, recv_ports);
    pair_connect(pair);
}

/* Both connections are closed. */
static inline void pair_end(struct pair *pair)
{
    XT_OK(pair->nets[1]->calls.closeListen(pair->listener));
    xccl_net_close(pair->nets[0]);
    xccl_net_close(pair->nets[1]);
}

static inline void pair_close(struct pair *pair)
{
    XT_OK(pair->nets[0]->calls.closeSend(pair->send));
    XT_OK(pair->nets[1]->calls.closeRecv(pair->recv));
    pair_end(pair);
}

static inline xcclNetStats_v1 stats_of(const struct pair *pair, int which)
{
    xcclNetStats_v1 stats = {.size = sizeof(stats)};

    XT_OK(pair->nets[which]->calls.stats(pair->nets[which]->ctx, pair->devs[which], &stats));
    return stats;
}

/* ---- traffic ---- */

static inline uint8_t byte_of(int message, size_t at)
{
    return (uint8_t)((size_t)message * 31 + at * 7 + (at >> 9));
}

static inline size_t size_of(struct traffic *traffic)
{
    uint64_t draw = xt_random(&traffic->random);

    if (traffic->mix == MIX_SMALL || (traffic->mix == MIX_ALL && draw % 2))
        return draw / 2 % 5000;
    return 200000 + draw / 2 % (ROOM - 200000);
}

static inline void traffic_begin(struct traffic *traffic, enum mix mix, uint64_t seed)
{
    memset(traffic, 0, sizeof(*traffic));
    traffic->mix = mix;
    traffic->random = seed;
    memset(in, 0, (size_t)MESSAGES * ROOM);
    for (int i = 0; i < MESSAGES;) {
        struct group *group = &traffic->groups[traffic->group_count++];
        int grouped = mix == MIX_GROUPED || (mix == MIX_ALL && xt_random(&traffic->random) % 3);

        group->first = i;
        group->count = grouped && MESSAGES - i >= PARTS ? PARTS : 1;
        for (int k = 0; k < group->count; k++, i++) {
            struct message *message = &traffic->messages[i];

            message->bytes = size_of(traffic);
            message->tag = (uint32_t)k;
            for (size_t at = 0; at < message->bytes; at++)
                out[(size_t)i * ROOM + at] = byte_of(i, at);
        }
    }
}

static inline xcclResult_t group_post(struct pair *pair, const struct traffic *traffic,
                                      struct group *group)
{
    void *data[PARTS];
    size_t bytes[PARTS];
    uint32_t tags[PARTS];
    xcclNetMem_t mems[PARTS];

    for (int k = 0; k < group->count; k++) {
        data[k] = in + (size_t)(group->first + k) * ROOM;
        bytes[k] = ROOM;
        tags[k] = traffic->messages[group->first + k].tag;
        mems[k] = pair->recv_mem;
    }
    return pair->nets[1]->calls.irecv(pair->recv, group->count, data, bytes, tags, mems,
                                      &group->request);
}

static inline xcclResult_t send_post(struct pair *pair, struct traffic *traffic)
{
    struct message *message = &traffic->messages[traffic->posted_sends];
    xcclResult_t rc = pair->nets[0]->calls.isend(
        pair->send, out + (size_t)traffic->posted_sends * ROOM, message->bytes, message->tag,
        pair->send_mem, &message->request);

    traffic->posted_sends += rc == xcclSuccess && message->request != NULL;
    return rc;
}

/* What came is right, and is the owner's from now on. */
static inline void group_take(const struct traffic *traffic, struct group *group,
                              const size_t *bytes)
{
    group->came = 1;
    if (XT_TSAN && traffic->forged) /* the same bytes once more: right, but a race to TSan */
        return;
    for (int k = 0; k < group->count; k++) {
        int i = group->first + k;
        uint8_t *at = in + (size_t)i * ROOM;

        XT_CHECK_INT(bytes[k], traffic->messages[i].bytes);
        for (size_t n = 0; n < bytes[k]; n++) {
            if (at[n] != byte_of(i, n))
                XT_FAIL("byte %zu of message %d is wrong", n, i);
        }
        memset(at, GIVEN, ROOM);
    }
}

static inline xcclResult_t test_sends(struct pair *pair, struct traffic *traffic)
{
    for (int i = 0; i < traffic->posted_sends; i++) {
        struct message *message = &traffic->messages[i];
        xcclResult_t rc;

        if (message->sent)
            continue;
        rc = pair->nets[0]->calls.test(message->request, &message->sent, NULL);
        if (rc != xcclSuccess)
            return rc;
        if (message->sent) /* its owner writes something else there */
            memset(out + (size_t)i * ROOM, 0, message->bytes);
    }
    return xcclSuccess;
}

static inline xcclResult_t test_recvs(struct pair *pair, struct traffic *traffic)
{
    xcclResult_t first = xcclSuccess;

    for (int i = 0; i < traffic->posted_groups; i++) {
        struct group *group = &traffic->groups[i];
        size_t bytes[PARTS];
        int done = 0;
        xcclResult_t rc;

        if (group->came)
            continue;
        rc = pair->nets[1]->calls.test(group->request, &done, bytes);
        if (first == xcclSuccess)
            first = rc;
        if (rc == xcclSuccess && done)
            group_take(traffic, group, bytes);
        traffic->came += rc == xcclSuccess && done;
    }
    return first;
}

/* One turn: posts what may be, tests all. */
static inline xcclResult_t traffic_step(struct pair *pair, struct traffic *traffic, int window)
{
    xcclResult_t rc;

    if (traffic->posted_groups < traffic->group_count &&
        traffic->posted_groups - traffic->came < window) {
        struct group *group = &traffic->groups[traffic->posted_groups];

        rc = group_post(pair, traffic, group);
        if (rc != xcclSuccess)
            return rc;
        traffic->posted_groups += group->request != NULL;
    }
    if (traffic->posted_sends < MESSAGES) {
        rc = send_post(pair, traffic);
        if (rc != xcclSuccess)
            return rc;
    }
    rc = test_sends(pair, traffic);
    return rc == xcclSuccess ? test_recvs(pair, traffic) : rc;
}

static inline void step(struct pair *pair, struct traffic *traffic)
{
    if (traffic_step(pair, traffic, 8) != xcclSuccess)
        XT_FAIL("%s", pair->nets[0]->calls.lastError(pair->nets[0]->ctx));
}

static inline int is_through(const struct traffic *traffic)
{
    for (int i = 0; i < MESSAGES; i++) {
        if (!traffic->messages[i].sent)
            return 0;
    }
    return traffic->came == traffic->group_count;
}

static inline void traffic_end(struct pair *pair, struct traffic *traffic)
{
    struct xccl_limit limit = xccl_limit_ms(patience_ms, NULL);

    while (!is_through(traffic)) {
        step(pair, traffic);
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    (void)late_come();
    for (size_t i = 0; i < (size_t)MESSAGES * ROOM; i++) {
        if (in[i] != GIVEN)
            XT_FAIL("byte %zu of message %zu was written when it was its owner's", i % ROOM,
                    i / ROOM);
    }
}

static inline int has_recovered(const struct pair *pair, int which)
{
    xcclNetStats_v1 stats = stats_of(pair, which);

    return stats.failoverCount > 0 && stats.recoveryCount == stats.failoverCount;
}

/* Both ends go on until both have all ways again. */
static inline void wait_for_recovery(struct pair *pair)
{
    struct xccl_limit limit = xccl_limit_ms(patience_ms, NULL);
    struct traffic traffic;

    while (!has_recovered(pair, 0) || !has_recovered(pair, 1)) {
        traffic_begin(&traffic, MIX_SMALL, 1);
        traffic_end(pair, &traffic);
        XT_CHECK(!xccl_limit_passed(&limit));
    }
}

#endif

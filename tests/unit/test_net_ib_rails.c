/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports of the ib plugin as one device, and what happens when one of them fails under traffic:
 * every message arrives whole and once, whatever was under way and wherever it got lost; nothing
 * lands in memory that was given back; a port that returns is used again. Over the verbs library of
 * one process, whose ports fail on demand (fixtures/verbs_fixture.c). With IB_RAILS_REAL=1 over the
 * machine's own: two ports on the interfaces rail0 and rail1, which are taken down; ci/vm/check_ib
 * runs the test for that. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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

enum mix { MIX_SMALL, MIX_STRIPED, MIX_GROUPED, MIX_ALL, MIX_COUNT };

/* Two ends, an instance each. */
struct pair {
    struct xccl_net *nets[2]; /* of the sender, of the receiver */
    int devs[2];
    xcclNetListenComm_t listener;
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
};

static uint8_t *out, *in;
static uint64_t patience_ms = 20000;

static int is_real(void)
{
    return getenv("IB_RAILS_REAL") != NULL;
}

static void set_real_port(int card, int kind)
{
    char command[64];

    snprintf(command, sizeof(command), "ip link set rail%d %s", card, kind ? "down" : "up");
    XT_CHECK_INT(system(command), 0);
}

static int nothing_late(void)
{
    return 0;
}

static void prepare(void)
{
    xt_setenv("XCCL_PLUGIN_PATH", XT_BUILD_DIR "/lib/xccl");
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    out = malloc((size_t)MESSAGES * ROOM);
    in = malloc((size_t)MESSAGES * ROOM);
    XT_CHECK(out && in);
}

static void need_rails(void)
{
    if (!is_real())
        XT_SKIP("for a machine with two ports that may fail: ci/vm/check_ib rails");
    set_port = set_real_port;
    late_come = nothing_late;
    patience_ms = 250000;
    prepare();
}

static void need_plugin(void)
{
    void *library = is_real() ? NULL : dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

    if (is_real())
        XT_SKIP("over the verbs library of one process");
    if (access(PLUGIN, R_OK) != 0 || !library)
        XT_SKIP("net-ib is not built: there is no infiniband/verbs.h");
    *(void **)&set_port = dlsym(library, "verbs_fixture_port");
    *(void **)&late_come = dlsym(library, "verbs_fixture_late");
    *(void **)&posts_of = dlsym(library, "verbs_fixture_posts");
    XT_CHECK(set_port && late_come && posts_of);
    xt_setenv("XCCL_IB_LIBRARY", LIBRARY);
    xt_setenv("VERBS_FIXTURE_CARDS", "4");
    prepare();
}

static void end_open(struct pair *pair, int which, int ports)
{
    static const struct xccl_net_open_args args = {.nranks = 2, .comm_name = "test"};
    static const int devs[] = {0, 1, 2, 3};

    XT_OK(xccl_net_open_item("ib", &args, &pair->nets[which]));
    XT_OK(pair->nets[which]->calls.mergeDevices(pair->nets[which]->ctx, devs, ports,
                                                &pair->devs[which]));
}

static void pair_open(struct pair *pair, int send_ports, int recv_ports)
{
    struct xccl_limit limit = xccl_limit_ms(patience_ms, NULL);
    xcclNetConnect_t state = NULL;
    xcclNetHandle_t handle;

    memset(pair, 0, sizeof(*pair));
    end_open(pair, 0, send_ports);
    end_open(pair, 1, recv_ports);
    XT_OK(pair->nets[1]->calls.listen(pair->nets[1]->ctx, pair->devs[1], &handle, &pair->listener));
    while (!pair->send || !pair->recv) {
        if (!pair->send)
            XT_OK(pair->nets[0]->calls.connect(pair->nets[0]->ctx, pair->devs[0], &handle, &state,
                                               &pair->send));
        if (!pair->recv)
            XT_OK(pair->nets[1]->calls.accept(pair->listener, &pair->recv));
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    XT_OK(pair->nets[0]->calls.regMr(pair->send, out, (size_t)MESSAGES * ROOM, XCCL_NET_PTR_HOST,
                                     &pair->send_mem));
    XT_OK(pair->nets[1]->calls.regMr(pair->recv, in, (size_t)MESSAGES * ROOM, XCCL_NET_PTR_HOST,
                                     &pair->recv_mem));
}

static void pair_close(struct pair *pair)
{
    XT_OK(pair->nets[0]->calls.closeSend(pair->send));
    XT_OK(pair->nets[1]->calls.closeRecv(pair->recv));
    XT_OK(pair->nets[1]->calls.closeListen(pair->listener));
    xccl_net_close(pair->nets[0]);
    xccl_net_close(pair->nets[1]);
}

static xcclNetStats_v1 stats_of(const struct pair *pair, int which)
{
    xcclNetStats_v1 stats = {.size = sizeof(stats)};

    XT_OK(pair->nets[which]->calls.stats(pair->nets[which]->ctx, pair->devs[which], &stats));
    return stats;
}

/* ---- traffic ---- */

static uint8_t byte_of(int message, size_t at)
{
    return (uint8_t)((size_t)message * 31 + at * 7 + (at >> 9));
}

static size_t size_of(struct traffic *traffic)
{
    uint64_t draw = xt_random(&traffic->random);

    if (traffic->mix == MIX_SMALL || (traffic->mix == MIX_ALL && draw % 2))
        return draw / 2 % 5000;
    return 200000 + draw / 2 % (ROOM - 200000);
}

static void traffic_begin(struct traffic *traffic, enum mix mix, uint64_t seed)
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

static void group_post(struct pair *pair, const struct traffic *traffic, struct group *group)
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
    XT_OK(pair->nets[1]->calls.irecv(pair->recv, group->count, data, bytes, tags, mems,
                                     &group->request));
}

/* What came is right, and is the owner's from now on. */
static void group_take(const struct traffic *traffic, struct group *group, const size_t *bytes)
{
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
    group->came = 1;
}

static xcclResult_t test_sends(struct pair *pair, struct traffic *traffic)
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

static xcclResult_t test_recvs(struct pair *pair, struct traffic *traffic)
{
    for (int i = 0; i < traffic->posted_groups; i++) {
        struct group *group = &traffic->groups[i];
        size_t bytes[PARTS];
        int done = 0;
        xcclResult_t rc;

        if (group->came)
            continue;
        rc = pair->nets[1]->calls.test(group->request, &done, bytes);
        if (rc != xcclSuccess)
            return rc;
        if (done)
            group_take(traffic, group, bytes);
        traffic->came += done;
    }
    return xcclSuccess;
}

/* One turn: posts what may be, tests all. */
static xcclResult_t traffic_step(struct pair *pair, struct traffic *traffic, int window)
{
    xcclResult_t rc;

    if (traffic->posted_groups < traffic->group_count &&
        traffic->posted_groups - traffic->came < window) {
        struct group *group = &traffic->groups[traffic->posted_groups];

        group_post(pair, traffic, group);
        traffic->posted_groups += group->request != NULL;
    }
    if (traffic->posted_sends < MESSAGES) {
        struct message *message = &traffic->messages[traffic->posted_sends];

        XT_OK(pair->nets[0]->calls.isend(pair->send, out + (size_t)traffic->posted_sends * ROOM,
                                         message->bytes, message->tag, pair->send_mem,
                                         &message->request));
        traffic->posted_sends += message->request != NULL;
    }
    rc = test_sends(pair, traffic);
    return rc == xcclSuccess ? test_recvs(pair, traffic) : rc;
}

static void step(struct pair *pair, struct traffic *traffic)
{
    if (traffic_step(pair, traffic, 8) != xcclSuccess)
        XT_FAIL("%s", pair->nets[0]->calls.lastError(pair->nets[0]->ctx));
}

static int is_through(const struct traffic *traffic)
{
    for (int i = 0; i < MESSAGES; i++) {
        if (!traffic->messages[i].sent)
            return 0;
    }
    return traffic->came == traffic->group_count;
}

static void traffic_end(struct pair *pair, struct traffic *traffic)
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

static int has_recovered(const struct pair *pair, int which)
{
    xcclNetStats_v1 stats = stats_of(pair, which);

    return stats.failoverCount > 0 && stats.recoveryCount == stats.failoverCount;
}

/* Both ends go on until both have all ways again. */
static void wait_for_recovery(struct pair *pair)
{
    struct xccl_limit limit = xccl_limit_ms(patience_ms, NULL);
    struct traffic traffic;

    while (!has_recovered(pair, 0) || !has_recovered(pair, 1)) {
        traffic_begin(&traffic, MIX_SMALL, 1);
        traffic_end(pair, &traffic);
        XT_CHECK(!xccl_limit_passed(&limit));
    }
}

/* ---- tests ---- */

static void sizes_arrive(int send_ports, int recv_ports)
{
    struct traffic traffic;
    struct pair pair;

    need_plugin();
    pair_open(&pair, send_ports, recv_ports);
    for (int mix = 0; mix < MIX_COUNT; mix++) {
        traffic_begin(&traffic, (enum mix)mix, (uint64_t)mix + 1);
        traffic_end(&pair, &traffic);
    }
    for (int card = 0; card < 4; card++) {
        int used = card < send_ports || card < recv_ports;

        /* A card of the receiver alone has lines only if they go by its first one. */
        if (card < send_ports)
            XT_CHECK(posts_of(card) > 50);
        if (!used)
            XT_CHECK_INT(posts_of(card), 0);
    }
    pair_close(&pair);
}

XT_TEST(messages_go_by_all_ports)
{
    sizes_arrive(2, 2);
}

XT_TEST(four_ports_talk_to_four)
{
    sizes_arrive(4, 4);
}

XT_TEST(one_port_talks_to_two)
{
    sizes_arrive(1, 2);
}

XT_TEST(two_ports_talk_to_one)
{
    sizes_arrive(2, 1);
}

XT_TEST(two_ports_talk_to_four)
{
    sizes_arrive(2, 4);
}

XT_TEST(merged_device_says_what_it_is_made_of)
{
    xcclNetProperties_v1 props = {.size = sizeof(props)};
    static const int twice[] = {1, 1}, beyond[] = {0, 9}, five[] = {0, 1, 2, 3, 0};
    struct pair pair = {.devs = {0}};
    int dev = -1, again[] = {0, 4}, same[] = {0, 1, 2};

    need_plugin();
    end_open(&pair, 0, 3);
    XT_CHECK_INT(pair.devs[0], 4); /* behind the four */
    XT_OK(pair.nets[0]->calls.properties(pair.nets[0]->ctx, 4, &props));
    XT_CHECK_TEXT(props.name, "fx0:1+fx1:1+fx2:1");
    XT_CHECK_INT(props.memberCount, 3);
    XT_CHECK_INT(props.members[2], 2);
    XT_CHECK_INT(props.speedMbps, 300000);
    XT_CHECK(pair.nets[0]->calls.mergeDevices(pair.nets[0]->ctx, twice, 2, &dev) != xcclSuccess);
    XT_CHECK(pair.nets[0]->calls.mergeDevices(pair.nets[0]->ctx, beyond, 2, &dev) != xcclSuccess);
    XT_CHECK(pair.nets[0]->calls.mergeDevices(pair.nets[0]->ctx, five, 5, &dev) != xcclSuccess);
    XT_CHECK(pair.nets[0]->calls.mergeDevices(pair.nets[0]->ctx, again, 2, &dev) != xcclSuccess);
    XT_CHECK_INT(dev, -1);
    XT_OK(pair.nets[0]->calls.mergeDevices(pair.nets[0]->ctx, same, 3, &dev));
    XT_CHECK_INT(dev, 4);
    xccl_net_close(pair.nets[0]);
}

/* A port fails in the middle of a mix, in every way, at several moments, and comes back. */
static void port_fails(int kind)
{
    struct traffic traffic;
    struct pair pair;
    uint64_t before = 0;

    need_plugin();
    pair_open(&pair, 2, 2);
    for (int round = 0; round < 2 * MIX_COUNT; round++) {
        int card = round % 2, turns = 3 + 17 * (round / MIX_COUNT);

        traffic_begin(&traffic, (enum mix)(round % MIX_COUNT),
                      100 * (uint64_t)kind + (uint64_t)round);
        for (int i = 0; i < turns; i++)
            step(&pair, &traffic);
        set_port(card, kind);
        traffic_end(&pair, &traffic);
        XT_CHECK(stats_of(&pair, 0).failoverCount > before);
        XT_CHECK(stats_of(&pair, 1).failoverCount > 0);
        set_port(card, PORT_UP);
        before = stats_of(&pair, 0).failoverCount;
        wait_for_recovery(&pair);
    }
    pair_close(&pair);
}

XT_TEST_DEADLINE(queue_pairs_of_a_port_that_is_down_are_in_error, 120)
{
    port_fails(PORT_DOWN);
}

XT_TEST_DEADLINE(port_loses_what_is_posted, 120)
{
    port_fails(PORT_LOSES);
}

XT_TEST_DEADLINE(acknowledgements_are_lost, 120)
{
    port_fails(PORT_DEAF);
}

XT_TEST_DEADLINE(late_writes_land_nowhere, 120)
{
    port_fails(PORT_LATE);
}

XT_TEST_DEADLINE(work_of_a_port_that_is_up_fails, 120)
{
    port_fails(PORT_BREAKS);
}

/* Now one, now the other, while the same messages are under way. */
XT_TEST_DEADLINE(ports_fail_again_and_again, 120)
{
    struct traffic traffic;
    struct pair pair;
    uint64_t random = 5;

    need_plugin();
    pair_open(&pair, 2, 2);
    for (int round = 0; round < 8; round++) {
        struct xccl_limit limit = xccl_limit_ms(patience_ms, NULL);
        int card = 0, kind = PORT_UP;

        traffic_begin(&traffic, MIX_ALL, (uint64_t)round);
        for (int turn = 0; !is_through(&traffic); turn++) {
            step(&pair, &traffic);
            XT_CHECK(!xccl_limit_passed(&limit));
            if (turn % 20 == 19)
                usleep(20000); /* so that ports have come back */
            if (xt_random(&random) % 8)
                continue;
            set_port(card, PORT_UP);
            kind = 1 + (int)(xt_random(&random) % (PORT_KINDS - 1));
            card = (int)(xt_random(&random) % 2);
            (void)late_come();
            set_port(card, kind);
        }
        set_port(card, PORT_UP);
        traffic_end(&pair, &traffic);
    }
    XT_CHECK(stats_of(&pair, 0).failoverCount > 4);
    wait_for_recovery(&pair);
    pair_close(&pair);
}

/* Receives are posted, and nothing is sent yet: their lines are what is lost. */
XT_TEST_DEADLINE(lines_that_are_lost_are_written_again, 60)
{
    need_plugin();
    for (int kind = PORT_DOWN; kind < PORT_KINDS; kind++) {
        struct traffic traffic;
        struct pair pair;

        pair_open(&pair, 2, 2);
        traffic_begin(&traffic, MIX_GROUPED, (uint64_t)kind);
        for (int i = 0; i < 12; i++) {
            if (i == 6)
                set_port(0, kind);
            group_post(&pair, &traffic, &traffic.groups[i]);
            if (!traffic.groups[i].request)
                break;
            traffic.posted_groups++;
        }
        traffic_end(&pair, &traffic);
        XT_CHECK(stats_of(&pair, 1).failoverCount > 0);
        set_port(0, PORT_UP);
        pair_close(&pair);
    }
}

/* Where one end has one port only, its other end's may fail. */
XT_TEST_DEADLINE(one_of_two_ports_at_one_end_fails, 60)
{
    need_plugin();
    for (int end = 0; end < 2; end++) {
        struct traffic traffic;
        struct pair pair;

        pair_open(&pair, end ? 1 : 2, end ? 2 : 1);
        traffic_begin(&traffic, MIX_ALL, 3);
        for (int i = 0; i < 9; i++)
            step(&pair, &traffic);
        set_port(1, PORT_DOWN);
        traffic_end(&pair, &traffic);
        XT_CHECK(stats_of(&pair, 0).failoverCount > 0);
        set_port(1, PORT_UP);
        wait_for_recovery(&pair);
        pair_close(&pair);
    }
}

/* A card is used again once its port is back. */
XT_TEST_DEADLINE(port_that_returns_has_work_again, 60)
{
    struct traffic traffic;
    struct pair pair;
    long before;

    need_plugin();
    pair_open(&pair, 2, 2);
    traffic_begin(&traffic, MIX_SMALL, 1);
    traffic_end(&pair, &traffic);
    set_port(1, PORT_DOWN);
    traffic_begin(&traffic, MIX_STRIPED, 2);
    traffic_end(&pair, &traffic);
    before = posts_of(1);
    traffic_begin(&traffic, MIX_STRIPED, 3);
    traffic_end(&pair, &traffic);
    XT_CHECK_INT(posts_of(1), before);
    set_port(1, PORT_UP);
    wait_for_recovery(&pair);
    before = posts_of(1);
    traffic_begin(&traffic, MIX_STRIPED, 4);
    traffic_end(&pair, &traffic);
    XT_CHECK(posts_of(1) >= before + MESSAGES);
    pair_close(&pair);
}

/* 8 times 4 ms is for how long a packet would be sent again. */
XT_TEST_DEADLINE(without_any_port_the_error_says_so, 60)
{
    struct xccl_limit limit;
    xcclResult_t rc = xcclSuccess;
    struct traffic traffic;
    struct pair pair;

    need_plugin();
    xt_setenv("XCCL_IB_TIMEOUT", "10");
    limit = xccl_limit_ms(patience_ms, NULL);
    pair_open(&pair, 2, 2);
    traffic_begin(&traffic, MIX_STRIPED, 1);
    for (int i = 0; i < 5; i++)
        step(&pair, &traffic);
    set_port(0, PORT_DOWN);
    set_port(1, PORT_LOSES);
    while (rc == xcclSuccess && !xccl_limit_passed(&limit)) {
        rc = traffic_step(&pair, &traffic, 8);
    }
    XT_CHECK_INT(rc, xcclRemoteError);
    XT_CHECK_HAS(pair.nets[0]->calls.lastError(pair.nets[0]->ctx), "no port is left");
    XT_CHECK_HAS(pair.nets[0]->calls.lastError(pair.nets[0]->ctx), " of 127.0.0.1:");
    set_port(0, PORT_UP);
    set_port(1, PORT_UP);
    pair_close(&pair);
}

/* At any moment of a failover an end may close; what its sender was told is done has arrived. */
XT_TEST_DEADLINE(close_in_the_middle_of_a_failover, 120)
{
    need_plugin();
    for (int round = 0; round < 40; round++) {
        struct traffic traffic;
        struct pair pair;
        int turns = round % 20;

        pair_open(&pair, 2, 2);
        traffic_begin(&traffic, (enum mix)(round % MIX_COUNT), (uint64_t)round);
        for (int i = 0; i < 6; i++)
            step(&pair, &traffic);
        set_port(round % 2, 1 + round % (PORT_KINDS - 1));
        for (int i = 0; i < turns; i++)
            step(&pair, &traffic);
        pair_close(&pair);
        set_port(round % 2, PORT_UP);
        (void)late_come();
    }
}

/* ---- over the machine's own ports ---- */

XT_TEST_DEADLINE(rail_that_is_taken_down_costs_nothing, 900)
{
    struct traffic traffic;
    struct pair pair;

    need_rails();
    pair_open(&pair, 2, 2);
    for (int card = 1; card >= 0; card--) {
        uint64_t before = stats_of(&pair, 0).failoverCount;

        traffic_begin(&traffic, MIX_ALL, (uint64_t)card);
        for (int i = 0; i < 12; i++)
            step(&pair, &traffic);
        set_port(card, PORT_DOWN);
        traffic_end(&pair, &traffic);
        XT_CHECK(stats_of(&pair, 0).failoverCount > before);
        XT_CHECK(stats_of(&pair, 1).failoverCount > 0);
        set_port(card, PORT_UP);
        wait_for_recovery(&pair);
    }
    traffic_begin(&traffic, MIX_STRIPED, 7);
    traffic_end(&pair, &traffic);
    pair_close(&pair);
}

XT_TEST_DEADLINE(rails_of_one_end_only, 600)
{
    need_rails();
    for (int end = 0; end < 2; end++) {
        struct traffic traffic;
        struct pair pair;

        pair_open(&pair, end ? 1 : 2, end ? 2 : 1);
        traffic_begin(&traffic, MIX_ALL, 1);
        traffic_end(&pair, &traffic);
        pair_close(&pair);
    }
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Several rails of the plugin ofi between two hosts: large messages take them all, by either path,
 * and so they do where the two ends have merged different numbers of them, in another order. One
 * that is cut, the first one too, drops out once its host does not answer, or ends the connection,
 * as the provider bears it, and a connection comes up without it. What rxd bears in order alone
 * goes so. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "path_flow.h"

#define TIME_S    0.7
#define RAILS     3
#define RXM       "tcp;ofi_rxm"
#define RXD       "udp;ofi_rxd"
#define RXD_BYTES ((size_t)64 << 10) /* it takes no more */
#define LIBRARY   "libfabric.so.1"
#define SILENCE   "2" /* s, after which a host is gone */
#define CUT_S     7.0 /* of traffic, with the cut after one */
#define GAP_S     5.0 /* without a message: the silence, and what is between */
#define EARLY_S   0.5 /* in which receives are not posted */
#define UP_S      20.0 /* to come up without a rail: a way is given up after 5 */

struct stage {
    struct path_hosts hosts;
    struct path_meet there, back, before;
    size_t bytes, most;
    struct {
        int count, rails[RAILS];
    } of[2]; /* of the two hosts */
    int cut; /* the rail */
    int left_out; /* of rails, at either end, when the connection has come up */
    int loses; /* the provider loses memory */
    enum path_cut how;
};

static int merge(const struct xccl_net *net, const struct stage *stage, int rank)
{
    int devs[RAILS], dev = -1;

    for (int i = 0; i < stage->of[rank].count; i++)
        devs[i] = path_net_device(net, stage->of[rank].rails[i]);
    XT_OK(net->calls.mergeDevices(net->ctx, devs, stage->of[rank].count, &dev));
    return dev;
}

/* The rank's host, and its rails as one device. */
static struct xccl_net *enter(const struct stage *stage, int rank, int *dev_out)
{
    struct xccl_net *net;

    if (stage->loses)
        xt_allow_leaks("libfabric's net loses 2.4 KB a connection (1.17)");
    path_hosts_enter(&stage->hosts, rank);
    net = path_net_open_item("ofi", 0);
    *dev_out = merge(net, stage, rank);
    return net;
}

static void flow_by(struct stage *stage, struct xccl_net *net, int dev, struct path_meet *meet,
                    int is_send)
{
    struct path_flow flow = {.bytes = stage->bytes, .most = stage->most};

    path_flow_open(&flow, net, dev, meet, is_send);
    path_flow_rate(&flow, 0, TIME_S);
    path_flow_close(&flow);
}

/* What each rail that both have has carried to this host. */
static void rails_carried(const struct path_counters *before, int rails)
{
    uint64_t bytes[RAILS], sum = 0;

    for (int i = 0; i < rails; i++) {
        struct path_counters now;

        path_counters_read(i, &now);
        bytes[i] = now.recv_bytes - before[i].recv_bytes;
        sum += bytes[i];
    }
    for (int i = 0; i < rails; i++) {
        if (bytes[i] <= sum / (uint64_t)(3 * rails))
            XT_FAIL("rail %d has carried %llu of %llu bytes", i, (unsigned long long)bytes[i],
                    (unsigned long long)sum);
    }
}

static void host_run(int rank, int nranks, void *arg)
{
    struct stage *stage = arg;
    struct path_counters before[RAILS];
    int fewest = stage->of[0].count < stage->of[1].count ? stage->of[0].count : stage->of[1].count;
    struct xccl_net *net;
    int dev;

    (void)nranks;
    net = enter(stage, rank, &dev);
    for (int i = 0; i < fewest; i++)
        path_counters_read(i, &before[i]);
    flow_by(stage, net, dev, &stage->there, rank == 0);
    if (rank == 1 && (stage->bytes || stage->most))
        rails_carried(before, fewest);
    flow_by(stage, net, dev, &stage->back, rank == 1);
    xccl_net_close(net);
}

static void use(struct stage *stage, const char *provider, const char *path)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

    if (!library)
        XT_SKIP("libfabric1 is not installed");
    dlclose(library);
    xt_setenv("XCCL_PLUGIN_PROBE_S", "0");
    xt_setenv("XCCL_OFI_PROVIDER", provider);
    xt_setenv("XCCL_OFI_PATH", path);
    xt_setenv("FI_PROVIDER", "tcp,ofi_rxm,udp,ofi_rxd,net");
    xt_setenv("FI_NET_MAX_SAVED", "64"); /* net takes no writes with less */
    xt_setenv("FI_OFI_RXM_BUFFER_SIZE", "2048");
    xt_setenv("FI_OFI_RXM_MSG_RX_SIZE", "64");
    if (strcmp(provider, RXD) == 0)
        stage->most = RXD_BYTES;
    stage->loses = strcmp(provider, "net") == 0;
}

static void carry_over(const char *provider, const char *path, size_t bytes,
                       const struct stage *like)
{
    static const struct path_rail rails[RAILS] = {{1, 0, 0}, {1, 0, 1}, {1, 0, 2}};
    struct stage *stage = path_shared(sizeof(*stage));

    use(stage, provider, path);
    memcpy(stage->of, like->of, sizeof(stage->of));
    stage->bytes = bytes;
    path_hosts_make(&stage->hosts, rails, RAILS);
    xt_mp_run(2, host_run, stage);
    path_hosts_drop(&stage->hosts);
}

static void carry(const char *path, size_t bytes, const struct stage *like)
{
    carry_over(RXM, path, bytes, like);
}

/* --- a rail that is cut --- */

static uint64_t failovers(const struct xccl_net *net, int dev)
{
    xcclNetStats_v1 stats = {.size = sizeof(stats)};

    XT_OK(net->calls.stats(net->ctx, dev, &stats));
    return stats.failoverCount;
}

static void cut_run(int rank, int nranks, void *arg)
{
    struct stage *stage = arg;
    struct path_flow flow = {.bytes = stage->bytes, .most = stage->most};
    struct xccl_net *net;
    int dev;

    (void)nranks;
    if (rank == 2) {
        path_word_await(&stage->back.ready, 1);
        path_nap_ms(1000);
        path_rail_cut(&stage->hosts, stage->cut, stage->how);
        return;
    }
    net = enter(stage, rank, &dev);
    path_flow_open(&flow, net, dev, &stage->there, rank == 0);
    path_word_set(&stage->back.ready, 1);
    path_flow_rate(&flow, 0, CUT_S);
    XT_CHECK(flow.gap_s < GAP_S);
    XT_CHECK_INT(failovers(net, dev), 1);
    XT_CHECK_INT(failovers(net, path_net_device(net, stage->cut)), 1);
    path_flow_close(&flow);
    xccl_net_close(net);
}

/* Over a provider whose rails do not stand in for each other both ends hear of it in time. */
static void end_run(int rank, int nranks, void *arg)
{
    struct stage *stage = arg;
    struct path_flow flow = {.bytes = stage->bytes, .most = stage->most};
    struct xccl_net *net;
    double start_s;
    char card[16];
    int dev;

    (void)nranks;
    if (rank == 2) {
        path_word_await(&stage->back.ready, 1);
        path_rail_cut(&stage->hosts, stage->cut, stage->how);
        return;
    }
    net = enter(stage, rank, &dev);
    path_flow_open(&flow, net, dev, &stage->there, rank == 0);
    path_word_set(&stage->back.ready, 1);
    start_s = path_seconds();
    while (flow.rc == xcclSuccess && path_seconds() - start_s < CUT_S)
        path_flow_turn(&flow);
    XT_CHECK_INT(flow.rc, xcclRemoteError);
    XT_CHECK(flow.failed_s - start_s < GAP_S);
    snprintf(card, sizeof(card), "rail%d", stage->cut);
    XT_CHECK_HAS(flow.text, card);
    path_flow_close(&flow);
    xccl_net_close(net);
}

/* The rail is dead before anybody connects. */
static void without_run(int rank, int nranks, void *arg)
{
    struct stage *stage = arg;
    struct path_flow flow = {.bytes = stage->bytes, .most = stage->most};
    struct xccl_net *net;
    double start_s;
    int dev;

    (void)nranks;
    if (rank == 2) {
        path_word_await(&stage->back.ready, 2);
        path_rail_cut(&stage->hosts, stage->cut, stage->how);
        path_word_set(&stage->back.ready, 3);
        return;
    }
    net = enter(stage, rank, &dev);
    /* The kernel knows the neighbours from now on, so what is cut is silent at once. */
    flow_by(stage, net, dev, &stage->before, rank == 0);
    if (rank == 1)
        path_word_await(&stage->back.ready, 1);
    path_word_set(&stage->back.ready, 1 + rank);
    path_word_await(&stage->back.ready, 3);
    start_s = path_seconds();
    path_flow_open(&flow, net, dev, &stage->there, rank == 0);
    XT_CHECK(path_seconds() - start_s < UP_S);
    path_flow_rate(&flow, 0, TIME_S);
    XT_CHECK_INT(failovers(net, dev), stage->left_out);
    path_flow_close(&flow);
    xccl_net_close(net);
}

static void cut_one(struct stage *stage, int rails, int cut, enum path_cut how, xt_rank_fn *run)
{
    static const struct path_rail all[RAILS] = {{1, 0, 0}, {1, 0, 1}, {1, 0, 2}};

    xt_setenv("XCCL_SOCKET_SILENCE_S", SILENCE);
    stage->cut = cut;
    stage->how = how;
    path_hosts_make(&stage->hosts, all, rails);
    xt_mp_run(3, run, stage);
    path_hosts_drop(&stage->hosts);
}

static void carry_on(const char *provider, const char *path, int rails, int cut, enum path_cut how,
                     xt_rank_fn *run)
{
    struct stage *stage = path_shared(sizeof(*stage));

    use(stage, provider, path);
    stage->left_out = 1;
    stage->bytes = run == without_run && !stage->most ? 1 << 20 : 0;
    for (int host = 0; host < 2; host++) {
        stage->of[host].count = rails;
        for (int i = 0; i < rails; i++)
            stage->of[host].rails[i] = i;
    }
    cut_one(stage, rails, cut, how, run);
}

XT_TEST_DEADLINE(a_rail_that_is_cut_drops_out_and_nothing_is_lost, 120)
{
    carry_on(RXM, "message", 2, 0, PATH_CUT_SILENT, cut_run);
    carry_on(RXM, "write", 2, 1, PATH_CUT_SILENT, cut_run);
    carry_on(RXM, "message", 3, 1, PATH_CUT_LINK, cut_run);
    carry_on(RXM, "write", 3, 0, PATH_CUT_LINK, cut_run);
}

XT_TEST_DEADLINE(a_rail_that_no_other_one_stands_in_for_ends_its_connection, 120)
{
    carry_on("net", "message", 2, 0, PATH_CUT_SILENT, end_run);
    carry_on("net", "write", 3, 1, PATH_CUT_LINK, end_run);
    carry_on("net", "message", 2, 1, PATH_CUT_SILENT, without_run);
    carry_on(RXD, "message", 2, 0, PATH_CUT_SILENT, end_run);
    carry_on(RXD, "write", 3, 1, PATH_CUT_LINK, end_run);
    carry_on(RXD, "message", 2, 1, PATH_CUT_SILENT, without_run);
}

XT_TEST_DEADLINE(a_connection_comes_up_without_the_rail_that_is_dead, 120)
{
    carry_on(RXM, "message", 2, 0, PATH_CUT_SILENT, without_run);
    carry_on(RXM, "write", 3, 1, PATH_CUT_SILENT, without_run);
    carry_on(RXM, "write", 2, 0, PATH_CUT_LINK, without_run);
    carry_on(RXM, "message", 3, 2, PATH_CUT_LINK, without_run);
    /* Not the last one of those that it is joined with, one after the other. */
    carry_on(RXM, "message", 3, 2, PATH_CUT_SILENT, without_run);
    carry_on(RXM, "write", 2, 1, PATH_CUT_ROUTE, without_run);
    carry_on(RXM, "message", 3, 1, PATH_CUT_ROUTE, without_run);
}

/* It has no other rail to go by, but the receiver has another address. */
XT_TEST_DEADLINE(a_single_card_finds_the_other_address, 60)
{
    struct stage *stage = path_shared(sizeof(*stage));

    use(stage, RXM, "message");
    stage->bytes = 1 << 20;
    stage->of[0].count = 1;
    stage->of[0].rails[0] = 1;
    stage->of[1].count = 2;
    stage->of[1].rails[1] = 1;
    cut_one(stage, 2, 0, PATH_CUT_SILENT, without_run);
}

XT_TEST_DEADLINE(large_messages_take_all_rails, 60)
{
    static const struct stage like = {.of = {{2, {0, 1}}, {2, {0, 1}}}};

    carry("message", 1 << 20, &like);
    carry("write", 1 << 20, &like);
}

XT_TEST_DEADLINE(messages_of_all_sizes_arrive_whole_and_in_order_over_rails, 60)
{
    static const struct stage like = {.of = {{3, {0, 1, 2}}, {3, {0, 1, 2}}}};

    carry("message", 0, &like);
    carry("write", 0, &like);
}

/* Each takes its rail whole. */
XT_TEST_DEADLINE(datagrams_of_all_sizes_arrive_whole_and_in_order_over_rails, 60)
{
    static const struct stage like = {.of = {{3, {0, 1, 2}}, {3, {0, 1, 2}}}};

    carry_over(RXD, "message", 0, &like);
    carry_over(RXD, "write", 0, &like);
}

/* A large message and a small one behind it, which is not sent before the large one is written:
 * their receives are not posted for a while. */
static void small_behind(int rank, int nranks, void *arg)
{
    struct stage *stage = arg;
    struct path_flow flow = {.bytes = 0};
    const xcclNetPlugin_v1_t *calls;
    xcclNetRequest_t requests[2] = {NULL, NULL};
    int done[2] = {0, 0}, dev, is_send = rank == 0, pending;
    double end_s;

    (void)nranks;
    flow.net = enter(stage, rank, &dev);
    calls = &flow.net->calls;
    path_flow_open(&flow, flow.net, dev, &stage->there, is_send);
    for (end_s = path_seconds() + EARLY_S; !is_send && path_seconds() < end_s;)
        XT_OK(calls->progress(flow.net->ctx, &pending));
    if (!is_send)
        path_word_set(&stage->back.ready, 1);
    for (end_s = path_seconds() + UP_S; !done[0] || !done[1];) {
        for (uint32_t i = 0; i < 2; i++) {
            void *data = flow.memory + i * PATH_MESSAGE_MAX;
            size_t bytes = i ? 8 : RXD_BYTES;

            if (!requests[i] && !done[i] && is_send)
                XT_OK(calls->isend(flow.comm, data, bytes, i, flow.mem, &requests[i]));
            else if (!requests[i] && !done[i])
                XT_OK(calls->irecv(flow.comm, 1, &data, &bytes, &i, &flow.mem, &requests[i]));
            if (requests[i])
                XT_OK(calls->test(requests[i], &done[i], &bytes));
            if (done[i])
                requests[i] = NULL;
        }
        XT_CHECK(!is_send || !done[1] || path_word_get(&stage->back.ready));
        XT_CHECK(path_seconds() < end_s);
    }
    path_flow_close(&flow);
    xccl_net_close(flow.net);
}

XT_TEST_DEADLINE(no_datagram_is_sent_before_one_that_is_to_be_written, 60)
{
    struct stage *stage = path_shared(sizeof(*stage));
    static const struct path_rail rail = {1, 0, 0};

    use(stage, RXD, "write");
    stage->of[0].count = stage->of[1].count = 1;
    path_hosts_make(&stage->hosts, &rail, 1);
    xt_mp_run(2, small_behind, stage);
    path_hosts_drop(&stage->hosts);
}

/* Rails of one subnet find each other, and what is over stays idle. */
XT_TEST_DEADLINE(ends_with_different_rails_use_those_that_both_have, 60)
{
    static const struct stage like = {.of = {{3, {2, 0, 1}}, {2, {1, 0}}}};

    carry("message", 1 << 20, &like);
    carry("write", 1 << 20, &like);
    carry("write", 0, &like);
}

XT_TEST_DEADLINE(one_rail_meets_a_device_of_three, 60)
{
    static const struct stage like = {.of = {{1, {0}}, {3, {1, 2, 0}}}};

    carry("message", 0, &like);
    carry("write", 0, &like);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* One of two rails fails under traffic: every message arrives, once, in order and undamaged, and
 * traffic goes on. Each rail fails in turn, so the line with the headers is hit too. Both fail: an
 * error that names the peer, and no hang.
 *
 * XT_CUTS: how many random cuts are made in a row (default 3). */
#include <stdlib.h>

#include "path_flow.h"

#define KBIT      100000
#define SILENCE_S "2" /* XCCL_SOCKET_SILENCE_S: no word from the peer's kernel, though asked */
#ifdef XCCL_SANITIZED /* they look at memory; how long it takes is for the others */
#define GOES_ON_S 15.0
#else
#define GOES_ON_S 5.0 /* after a cut */
#endif
#define ERROR_S        6.0 /* after both rails were cut, at either end */
#define COMES_BACK_S   10.0 /* a restored rail carries again */
#define DRAINED_MS     100 /* what waits in a shaper has left, or been dropped */
#define PROBES_BYTES   (64 << 10) /* what may still go into a rail that is cut */
#define WARM_MESSAGES  30
#define AFTER_MESSAGES 40 /* more than were in flight at the cut, so others came after it */

static const struct path_rail rails[2] = {{1, KBIT, 0}, {1, KBIT, 1}};

struct stage {
    struct path_hosts hosts;
    int sender; /* its host */
    struct path_meet meet;
    _Atomic uint32_t received; /* messages, so far */
    _Atomic uint32_t both_cut, over;
    double cut_s;
    void (*direct)(struct stage *stage);
};

/* ---- the two hosts ---- */

static void check_error(const struct stage *stage, const struct path_flow *flow)
{
    char first[PATH_ADDR_BYTES], second[PATH_ADDR_BYTES];
    double took = flow->failed_s - stage->cut_s;
    int peer = flow->is_send ? !stage->sender : stage->sender;

    path_figure("cuts: both rails: the %s had an error after %.1f s: %s",
                flow->is_send ? "sender" : "receiver", took, flow->text);
    XT_CHECK_INT(flow->rc, xcclRemoteError);
    path_rail_address(&stage->hosts, 0, peer, 0, first);
    path_rail_address(&stage->hosts, 1, peer, 0, second);
    if (!strstr(flow->text, first) && !strstr(flow->text, second))
        XT_FAIL("neither %s nor %s is named: %s", first, second, flow->text);
    XT_CHECK(took <= ERROR_S);
}

/* Until the error that must come. */
static void await_error(const struct stage *stage, struct path_flow *flow)
{
    while (flow->rc == xcclSuccess) {
        path_flow_turn(flow);
        if (path_word_get(&stage->both_cut) && path_seconds() > stage->cut_s + ERROR_S + 1)
            XT_FAIL("no error %.1f s after both rails were cut", ERROR_S + 1);
    }
    XT_CHECK(path_word_get(&stage->both_cut) == 1);
    check_error(stage, flow);
}

static void host_run(struct stage *stage, int rank)
{
    struct path_flow flow = {.bytes = 0};
    struct xccl_net *net;
    int dev, is_send = rank == stage->sender;

    path_hosts_enter(&stage->hosts, rank);
    net = path_net_open(0);
    dev = path_net_merge(net);
    path_flow_open(&flow, net, dev, &stage->meet, is_send);
    while (!path_word_get(&stage->over) && !path_word_get(&stage->both_cut)) {
        path_flow_turn(&flow);
        /* A sender that knew sooner that it is over may have closed: path_flow_end judges that. */
        if (flow.rc != xcclSuccess && !path_word_get(&stage->both_cut) &&
            !path_word_get(&stage->over))
            XT_FAIL("%s after %u messages: %s", is_send ? "send" : "receive", (unsigned)flow.done,
                    flow.text);
        if (!is_send)
            path_word_set(&stage->received, (uint32_t)flow.done);
    }
    if (path_word_get(&stage->both_cut))
        await_error(stage, &flow);
    else
        path_flow_end(&flow);
    if (!is_send)
        path_figure("cuts: %u messages, the longest time without one %.2f s", (unsigned)flow.done,
                    flow.gap_s);
    path_flow_close(&flow);
    xccl_net_close(net);
}

/* ---- the director ---- */

/* So that a failure here is told without waiting for the two hosts. */
static void curtain(struct stage *stage)
{
    path_word_set(&stage->over, 1);
}

static void messages_await(struct stage *stage, uint32_t count, double limit_s, const char *what)
{
    uint32_t begin = path_word_get(&stage->received);

    if (path_word_within(&stage->received, begin + count, (int)(limit_s * 1000)))
        return;
    curtain(stage);
    XT_FAIL("%s: %u messages in %.0f s, want %u", what, path_word_get(&stage->received) - begin,
            limit_s, count);
}

static void rank_run(int rank, int nranks, void *arg)
{
    struct stage *stage = arg;

    (void)nranks;
    if (rank < 2) {
        host_run(stage, rank);
        return;
    }
    messages_await(stage, WARM_MESSAGES, PATH_WAIT_MS * 1e-3, "before the first cut");
    stage->direct(stage);
    curtain(stage);
}

/* Whether the plugin merges devices is known at once, so that the director need not wait. */
static void merge_or_skip(int rank, int nranks, void *arg)
{
    struct stage *stage = arg;
    struct xccl_net *net;

    (void)rank, (void)nranks;
    path_hosts_enter(&stage->hosts, 0);
    net = path_net_open(0);
    (void)path_net_merge(net);
    xccl_net_close(net);
}

/* script: "" or what both hosts run first. */
static void cuts_on(const char *script, int sender, void (*direct)(struct stage *stage))
{
    struct stage *stage = path_shared(sizeof(*stage));

    path_hosts_make(&stage->hosts, rails, 2);
    for (int host = 0; host < 2 && script[0]; host++)
        path_hosts_run(&stage->hosts, host, script);
    stage->sender = sender;
    stage->direct = direct;
    xt_setenv("XCCL_SOCKET_SILENCE_S", SILENCE_S);
    xt_mp_run(1, merge_or_skip, stage);
    xt_mp_run(3, rank_run, stage);
    path_hosts_drop(&stage->hosts);
}

static void cuts_run(int sender, void (*direct)(struct stage *stage))
{
    cuts_on("", sender, direct);
}

static uint64_t rail_bytes(const struct stage *stage, int rail)
{
    struct path_counters counters;

    path_host_counters(&stage->hosts, stage->sender, rail, &counters);
    return counters.send_bytes;
}

/* The other rail alone carries what comes now. */
static void cut_and_go_on(struct stage *stage, int rail, enum path_cut how)
{
    double cut_s = path_seconds();
    uint64_t bytes;

    path_rail_cut(&stage->hosts, rail, how);
    path_nap_ms(DRAINED_MS);
    bytes = rail_bytes(stage, rail);
    messages_await(stage, AFTER_MESSAGES, GOES_ON_S - (path_seconds() - cut_s), "after a cut");
    bytes = rail_bytes(stage, rail) - bytes;
    if (bytes <= PROBES_BYTES)
        return;
    curtain(stage);
    XT_FAIL("rail %d was cut, and carried %llu bytes", rail, (unsigned long long)bytes);
}

static void cut_link_0(struct stage *stage)
{
    cut_and_go_on(stage, 0, PATH_CUT_LINK);
}

static void cut_link_1(struct stage *stage)
{
    cut_and_go_on(stage, 1, PATH_CUT_LINK);
}

static void cut_route_0(struct stage *stage)
{
    cut_and_go_on(stage, 0, PATH_CUT_ROUTE);
}

static void cut_route_1(struct stage *stage)
{
    cut_and_go_on(stage, 1, PATH_CUT_ROUTE);
}

static void cut_silent_0(struct stage *stage)
{
    cut_and_go_on(stage, 0, PATH_CUT_SILENT);
}

static void cut_both(struct stage *stage)
{
    for (int rail = 0; rail < 2; rail++)
        path_rail_cut(&stage->hosts, rail, PATH_CUT_SILENT);
    stage->cut_s = path_seconds();
    path_word_set(&stage->both_cut, 1);
}

/* One rail of the seed's choice, again and again: no other line needs to come back for that. */
static void cut_at_random(struct stage *stage)
{
    uint64_t state = xt_seed();
    const char *text = getenv("XT_CUTS");
    int cuts = text ? atoi(text) : 3, rail = (int)(xt_random(&state) % 2);

    for (int i = 0; i < cuts; i++) {
        path_rail_cut(&stage->hosts, rail, (enum path_cut)(xt_random(&state) % 3));
        if (xt_random(&state) % 2)
            messages_await(stage, AFTER_MESSAGES, GOES_ON_S, "after a random cut");
        else
            path_nap_ms((long)(xt_random(&state) % 1500));
        path_rail_restore(&stage->hosts, rail);
        messages_await(stage, AFTER_MESSAGES, GOES_ON_S, "after a rail was restored");
        path_nap_ms((long)(xt_random(&state) % 500));
    }
}

/* Until it is used again. */
static void rail_comes_back(struct stage *stage, int rail)
{
    uint64_t first = rail_bytes(stage, rail);
    double limit = path_seconds() + COMES_BACK_S;

    while (rail_bytes(stage, rail) < first + (4 << 20)) {
        path_nap_ms(20);
        if (path_seconds() < limit)
            continue;
        curtain(stage);
        XT_FAIL("rail %d was restored, and is not used again in %.0f s", rail, COMES_BACK_S);
    }
}

static void cut_in_turn(struct stage *stage)
{
    cut_and_go_on(stage, 0, PATH_CUT_LINK);
    path_rail_restore(&stage->hosts, 0);
    rail_comes_back(stage, 0);
    cut_and_go_on(stage, 1, PATH_CUT_SILENT);
}

/* ---- tests ---- */

XT_TEST_DEADLINE(nothing_is_lost_when_the_link_of_the_first_rail_goes_down, 60)
{
    cuts_run(0, cut_link_0);
}

XT_TEST_DEADLINE(nothing_is_lost_when_the_link_of_the_second_rail_goes_down, 60)
{
    cuts_run(1, cut_link_1);
}

XT_TEST_DEADLINE(nothing_is_lost_when_the_first_rail_leads_into_a_black_hole, 60)
{
    cuts_run(0, cut_route_0);
}

XT_TEST_DEADLINE(nothing_is_lost_when_the_second_rail_leads_into_a_black_hole, 60)
{
    cuts_run(1, cut_route_1);
}

XT_TEST_DEADLINE(nothing_is_lost_when_the_first_rail_falls_silent, 60)
{
    cuts_run(1, cut_silent_0);
}

/* A second is usual where the round trip is not known, and no less than twice that the next time.
 */
XT_TEST_DEADLINE(a_kernel_that_waits_long_before_it_sends_again_is_not_waited_for, 60)
{
    static const char waits_long[] =
        "for rail in rail0 rail1; do"
        " ip route change $(ip -o route show dev $rail) dev $rail rto_min 6000ms || exit 1; done";

    cuts_on(waits_long, 0, cut_silent_0);
}

/* The first packets on the second rail are lost: its line has to be there all the same when the
 * first rail is cut. */
XT_TEST_DEADLINE(a_rail_that_loses_the_first_packets_is_used_all_the_same, 60)
{
    static const char late[] = "tc qdisc replace dev rail1 root blackhole || exit 1;"
                               " (sleep 0.8; tc qdisc del dev rail1 root) >/dev/null 2>&1 &";

    cuts_on(late, 0, cut_link_0);
}

XT_TEST_DEADLINE(cutting_both_rails_is_an_error_that_names_the_peer, 60)
{
    cuts_run(0, cut_both);
}

XT_TEST_DEADLINE(random_cuts_of_a_rail_lose_nothing, 60)
{
    cuts_run((int)(xt_seed() >> 8 & 1), cut_at_random);
}

XT_TEST_DEADLINE(a_restored_rail_carries_again_so_that_the_other_may_fail, 90)
{
    cuts_run(0, cut_in_turn);
}

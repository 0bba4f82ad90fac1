/* SPDX-License-Identifier: BSD-3-Clause */
/* What one process of the socket plugin sees of peers that die, vanish, come back without memory,
 * or stop: an error that names the peer, in time, on the connection that sends and on the one that
 * only waits, and none for the stopped one. A connection of the same instance to one more peer goes
 * on at full rate all the while.
 *
 * Rank 0 is on host 0. Each other rank is a peer on a host of its own behind a rail of its own, and
 * has two connections with rank 0: rank 0 sends on one as fast as it can, and waits on the other,
 * where nothing comes. The test itself does what happens to the peers. */
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "path_flow.h"

#define KBIT      50000
#define RAIL_RATE (KBIT / 8.0 * 1e3)

/* What the plugin must keep to. */
#define SILENCE_S    2 /* XCCL_SOCKET_SILENCE_S: no word from the peer's kernel, though asked */
#define SILENCE_TEXT "2" /* the same */
#define GONE_S       2.0 /* the peer's kernel says so at once */
/* Nothing comes back: to a sender with data outstanding, or to an idle receiver that asks. */
#define LOST_S    (SILENCE_S + 3.0)
#define STOPPED_S 20.0 /* a stopped peer is no error for as long as this, at least */
#define GOES_ON_S 5.0 /* when it continues */
#define HEALTHY_SHARE                                                                              \
    xt_bound(0.9, 0.7) /* of the rate before, or of the rail's where buffers helped before */
#define HEALTHY_GAP_S xt_bound(1, 1.8) /* the longest time without a message */

#define PEERS_MAX 6

enum fate { HEALTHY, KILLED, SILENT, ROUTE, LINK, REBORN, STOPPED };

static const char *const fate_names[] = {"healthy",   "killed", "silent", "without a route",
                                         "link down", "reborn", "stopped"};

struct peer {
    enum fate fate;
    struct path_meet to, from; /* rank 0 sends, rank 0 receives */
    _Atomic uint32_t forget; /* 1: its sockets shall leave nothing in the kernel, 2: so be it */
    double cut_s; /* of REBORN: when it was cut off */
    double since_s; /* when its fate was sealed */
};

struct stage {
    struct path_hosts hosts;
    int count; /* of peers; peer i is rank 1 + i on host 1 + i */
    struct peer peers[PEERS_MAX];
    _Atomic uint32_t up, sealed, stopped_judged, continued, over;
};

/* ---- a peer ---- */

/* Its sockets will go at once with their process, with all that the kernel keeps for them. */
static void forget(struct peer *peer)
{
    const struct linger none = {.l_onoff = 1, .l_linger = 0};

    for (int fd = 0; fd < 1024; fd++)
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
    path_word_set(&peer->forget, 2);
}

static void peer_run(struct stage *stage, int rank)
{
    struct peer *peer = &stage->peers[rank - 1];
    struct path_flow in = {.bytes = 0}, out = {.bytes = 1};
    struct path_flow *flows[2] = {&in, &out};
    struct xccl_net *net;
    int dev;

    path_hosts_enter(&stage->hosts, rank);
    net = path_net_open(0);
    dev = path_net_device(net, rank - 1);
    path_flow_open(&in, net, dev, &peer->to, 0);
    path_flow_open(&out, net, dev, &peer->from, 1);
    out.quiet = 1;
    /* Of a host that is cut off the errors are not looked at here, and there may be none. */
    while (!path_word_get(&stage->over)) {
        if (!path_flow_move(&in) || in.rc != xcclSuccess)
            path_flow_rest(flows, in.rc == xcclSuccess, 5);
        if (path_word_get(&peer->forget) == 1)
            forget(peer);
        /* Rank 0 closes once it is over. */
        if ((peer->fate == HEALTHY || peer->fate == STOPPED) && !path_word_get(&stage->over))
            XT_CHECK_INT(in.rc, xcclSuccess);
    }
    path_flow_close(&in);
    path_flow_close(&out);
    xccl_net_close(net);
}

/* ---- rank 0 ---- */

struct survivor {
    struct path_flow flows[2 * PEERS_MAX], *all[2 * PEERS_MAX]; /* to and from, by peer */
    int count;
};

static void survivor_turn(struct survivor *survivor)
{
    int moved = 0;

    for (int i = 0; i < survivor->count; i++) {
        if (survivor->flows[i].rc == xcclSuccess)
            moved += path_flow_move(&survivor->flows[i]);
    }
    if (!moved)
        path_flow_rest(survivor->all, survivor->count, 2);
}

static void survivor_run_for(struct survivor *survivor, double time_s)
{
    double end = path_seconds() + time_s;

    while (path_seconds() < end)
        survivor_turn(survivor);
}

static double limit_of(enum fate fate)
{
    switch (fate) {
    case KILLED:
        return GONE_S;
    case SILENT:
    case ROUTE:
    case LINK:
    case REBORN:
        return LOST_S;
    default:
        return 0; /* no error */
    }
}

/* Until each flow that must fail has failed, or its time is over. */
static void await_errors(struct stage *stage, struct survivor *survivor)
{
    int waiting = 1;

    while (waiting) {
        waiting = 0;
        survivor_turn(survivor);
        for (int i = 0; i < survivor->count; i++) {
            const struct peer *peer = &stage->peers[i / 2];
            double limit = limit_of(peer->fate);

            if (limit > 0 && survivor->flows[i].rc == xcclSuccess &&
                path_seconds() < peer->since_s + limit + 0.5)
                waiting = 1;
            if (peer->fate == STOPPED && path_seconds() < peer->since_s + STOPPED_S)
                waiting = 1;
        }
    }
}

/* A host that was back before its silence could be told: its kernel's word is what ends the
 * connections. With so short a silence a receiver asks only once, which may be within the cut: then
 * it is the silence all the same. So it is for a sender beside other programs: round trips that
 * took long there make TCP repeat a segment only after the silence. */
static int cause_fits(const struct peer *peer, const struct path_flow *flow)
{
    double back_s = peer->since_s - peer->cut_s;

    if (peer->fate != REBORN || flow->cause == xcclNetCausePeerGone)
        return 1;
    return flow->cause == xcclNetCauseTimeout &&
           (!flow->is_send || back_s >= xt_bound(SILENCE_S / 4.0, 0));
}

/* Returns 1 when the flow did what it should. */
static int check_flow(const struct stage *stage, const struct path_flow *flow, int peer_idx)
{
    const struct peer *peer = &stage->peers[peer_idx];
    double limit = limit_of(peer->fate);
    char address[PATH_ADDR_BYTES];
    int good;

    path_rail_address(&stage->hosts, peer_idx, 1, 0, address);
    if (flow->rc == xcclSuccess) {
        path_figure("death: %s, rank 0 %s: no error%s", fate_names[peer->fate],
                    flow->is_send ? "sends" : "waits", limit > 0 ? ", but there should be" : "");
        return limit <= 0;
    }
    good = flow->rc == xcclRemoteError && limit > 0 && flow->failed_s - peer->since_s <= limit &&
           cause_fits(peer, flow) && strstr(flow->text, address) && strstr(flow->peer, address);
    path_figure("death: %s, rank 0 %s: error %d, cause %d after %.2f s (limit %.0f): %s%s",
                fate_names[peer->fate], flow->is_send ? "sends" : "waits", flow->rc, flow->cause,
                flow->failed_s - peer->since_s, limit, flow->text, good ? "" : " WRONG");
    return good;
}

/* The rates of the healthy one before and after. */
static int check_healthy(const struct path_flow *flow, double before, double after)
{
    path_figure("death: the healthy one: %.2f MB/s before, %.2f after (%.3f of it), at most %.2f s "
                "without a message",
                before * 1e-6, after * 1e-6, after / before, flow->gap_s);
    return after >= HEALTHY_SHARE * (before < RAIL_RATE ? before : RAIL_RATE) &&
           flow->gap_s <= HEALTHY_GAP_S;
}

static struct path_flow *flow_to(const struct stage *stage, struct survivor *survivor,
                                 enum fate fate)
{
    for (int i = 0; i < stage->count; i++) {
        if (stage->peers[i].fate == fate)
            return &survivor->flows[2 * i];
    }
    return NULL;
}

static void survivor_open(struct stage *stage, struct survivor *survivor, struct xccl_net *net)
{
    for (int i = 0; i < stage->count; i++) {
        int dev = path_net_device(net, i);

        path_flow_open(&survivor->flows[2 * i], net, dev, &stage->peers[i].to, 1);
        path_flow_open(&survivor->flows[2 * i + 1], net, dev, &stage->peers[i].from, 0);
    }
    survivor->count = 2 * stage->count;
    for (int i = 0; i < survivor->count; i++)
        survivor->all[i] = &survivor->flows[i];
}

/* Its data waited all the time, and arrives. */
static void stopped_continues(struct stage *stage, struct survivor *survivor)
{
    struct path_flow *flow = flow_to(stage, survivor, STOPPED);
    double end = path_seconds() + GOES_ON_S;
    uint64_t done;

    if (!flow)
        return;
    path_word_set(&stage->stopped_judged, 1);
    path_word_await(&stage->continued, 1);
    done = flow->done;
    while (flow->rc == xcclSuccess && flow->done < done + 2 * PATH_DEPTH) {
        survivor_turn(survivor);
        XT_CHECK(path_seconds() < end);
    }
    XT_CHECK_INT(flow->rc, xcclSuccess);
}

static void survivor_run(struct stage *stage)
{
    static struct survivor survivor;
    struct path_flow *healthy;
    double begin, before, after;
    uint64_t payload;
    struct xccl_net *net;
    int good = 1;

    path_hosts_enter(&stage->hosts, 0);
    net = path_net_open(0);
    survivor_open(stage, &survivor, net);
    healthy = flow_to(stage, &survivor, HEALTHY);
    survivor_run_for(&survivor, 0.8);
    payload = healthy->payload;
    begin = path_seconds();
    survivor_run_for(&survivor, 1.0);
    before = (double)(healthy->payload - payload) / (path_seconds() - begin);
    payload = healthy->payload;
    healthy->gap_s = 0;
    begin = path_seconds();
    path_word_set(&stage->up, 1);
    while (!path_word_get(&stage->sealed))
        survivor_turn(&survivor);
    await_errors(stage, &survivor);
    survivor_run_for(&survivor, 1.0);
    after = (double)(healthy->payload - payload) / (path_seconds() - begin);
    for (int i = 0; i < survivor.count; i++)
        good &= check_flow(stage, &survivor.flows[i], i / 2);
    good &= check_healthy(healthy, before, after);
    stopped_continues(stage, &survivor);
    path_word_set(&stage->over, 1);
    for (int i = 0; i < survivor.count; i++)
        path_flow_close(&survivor.flows[i]);
    xccl_net_close(net);
    XT_CHECK(good);
}

static void rank_run(int rank, int nranks, void *arg)
{
    struct stage *stage = arg;

    (void)nranks;
    if (rank == 0)
        survivor_run(stage);
    else
        peer_run(stage, rank);
}

/* ---- what happens ---- */

/* Power off and on, within a moment: nothing of the old process's connections leaves its host or is
 * left in it. */
static void reborn(struct stage *stage, struct xt_mp *mp, int i)
{
    path_word_set(&stage->peers[i].forget, 1);
    (void)path_word_within(&stage->peers[i].forget, 2, PATH_WAIT_MS);
    stage->peers[i].cut_s = path_seconds();
    path_rail_cut(&stage->hosts, i, PATH_CUT_SILENT);
    xt_mp_kill(mp, 1 + i, SIGKILL);
    path_hosts_run(&stage->hosts, 1 + i,
                   "for i in $(seq 100); do [ $(wc -l < /proc/net/tcp) -gt 1 ] || exit 0;"
                   "sleep 0.01; done; cat /proc/net/tcp; exit 1");
    stage->peers[i].since_s = path_seconds();
    path_rail_restore(&stage->hosts, i);
}

static void seal(struct stage *stage, struct xt_mp *mp, int i)
{
    stage->peers[i].since_s = path_seconds();
    switch (stage->peers[i].fate) {
    case KILLED:
        xt_mp_kill(mp, 1 + i, SIGKILL);
        break;
    case SILENT:
        path_rail_cut(&stage->hosts, i, PATH_CUT_SILENT);
        break;
    case ROUTE:
        path_rail_cut(&stage->hosts, i, PATH_CUT_ROUTE);
        break;
    case LINK:
        path_rail_cut(&stage->hosts, i, PATH_CUT_LINK);
        break;
    case REBORN:
        reborn(stage, mp, i);
        break;
    case STOPPED:
        xt_mp_kill(mp, 1 + i, SIGSTOP);
        break;
    case HEALTHY:
        break;
    }
}

static void fates_run(const enum fate *fates, int count)
{
    struct stage *stage = path_shared(sizeof(*stage));
    struct path_rail rails[PEERS_MAX];
    unsigned killed = 0;
    struct xt_mp *mp;

    for (int i = 0; i < count; i++) {
        rails[i] = (struct path_rail){.host = 1 + i, .kbit = KBIT, .subnet = i};
        stage->peers[i].fate = fates[i];
        if (fates[i] == KILLED || fates[i] == REBORN)
            killed |= 2u << i;
    }
    path_hosts_make(&stage->hosts, rails, count);
    stage->count = count;
    xt_setenv("XCCL_SOCKET_SILENCE_S", SILENCE_TEXT);
    mp = xt_mp_start(1 + count, rank_run, stage);
    if (path_word_within(&stage->up, 1, PATH_WAIT_MS)) {
        for (int i = 0; i < count; i++)
            seal(stage, mp, i);
        path_word_set(&stage->sealed, 1);
    }
    for (int i = 0; i < count; i++) {
        if (fates[i] != STOPPED)
            continue;
        (void)path_word_within(&stage->stopped_judged, 1, 40000);
        xt_mp_kill(mp, 1 + i, SIGCONT);
        path_word_set(&stage->continued, 1);
    }
    /* A failed survivor ends its peers, too. */
    (void)path_word_within(&stage->over, 1, 40000);
    path_word_set(&stage->over, 1);
    path_ranks_end(mp, 1 + count, killed);
    path_hosts_drop(&stage->hosts);
}

XT_TEST_DEADLINE(a_killed_peer_is_an_error_at_once_that_names_it, 120)
{
    static const enum fate fates[] = {KILLED, HEALTHY};

    fates_run(fates, 2);
}

XT_TEST_DEADLINE(a_lost_or_reborn_host_is_an_error_in_time_and_a_stopped_peer_is_none, 120)
{
    static const enum fate fates[] = {SILENT, ROUTE, LINK, STOPPED, REBORN, HEALTHY};

    fates_run(fates, 6);
}

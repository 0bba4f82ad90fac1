/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports of the ib plugin as one device, and what happens when one of them fails under traffic:
 * every message arrives whole and once, whatever was under way and wherever it got lost; nothing
 * lands in memory that was given back; a port that returns is used again. Over the verbs library of
 * one process, whose ports fail on demand (fixtures/verbs_fixture.c). With IB_RAILS_REAL=1 over the
 * machine's own: two ports on the interfaces rail0 and rail1, which are taken down; ci/vm/check_ib
 * runs the test for that. */
#include "ib_rails.h"

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

/* What is under way comes now and then, until all is through. */
static int step_with_late(struct pair *pair, struct traffic *traffic)
{
    int late = 0;

    for (int i = 0; i < 400 && !is_through(traffic); i++) {
        step(pair, traffic);
        if (i % 8 == 7)
            late += late_come();
    }
    return late;
}

/* A port fails in the middle of a mix, in every way, at several moments, and comes back. */
static void port_fails_of(int ports, int kind)
{
    struct traffic traffic;
    struct pair pair;
    uint64_t before = 0;
    int late = 0;

    need_plugin();
    pair_open(&pair, ports, ports);
    for (int round = 0; round < 2 * MIX_COUNT; round++) {
        int card = round % ports, turns = 3 + 17 * (round / MIX_COUNT);

        traffic_begin(&traffic, (enum mix)(round % MIX_COUNT),
                      100 * (uint64_t)kind + (uint64_t)round);
        for (int i = 0; i < turns; i++)
            step(&pair, &traffic);
        set_port(card, kind);
        late += step_with_late(&pair, &traffic);
        traffic_end(&pair, &traffic);
        XT_CHECK(stats_of(&pair, 0).failoverCount > before);
        XT_CHECK(stats_of(&pair, 1).failoverCount > 0);
        set_port(card, PORT_UP);
        before = stats_of(&pair, 0).failoverCount;
        wait_for_recovery(&pair);
    }
    XT_CHECK(kind != PORT_LATE || late > 0);
    pair_close(&pair);
}

static void port_fails(int kind)
{
    port_fails_of(2, kind);
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

XT_TEST_DEADLINE(all_queue_pairs_of_a_port_fail, 120)
{
    xt_setenv("XCCL_IB_QPS_PER_CONNECTION", "2");
    port_fails_of(2, PORT_DOWN);
}

XT_TEST_DEADLINE(all_queue_pairs_of_a_port_lose_acknowledgements, 120)
{
    xt_setenv("XCCL_IB_QPS_PER_CONNECTION", "2");
    port_fails_of(2, PORT_DEAF);
}

XT_TEST_DEADLINE(one_of_four_ports_fails, 120)
{
    port_fails_of(4, PORT_DOWN);
}

XT_TEST_DEADLINE(one_of_four_ports_delivers_late, 120)
{
    xt_setenv("XCCL_IB_QPS_PER_CONNECTION", "2");
    port_fails_of(4, PORT_LATE);
}

/* Where one may come back: not for long, for its port may be the one that has failed. */
static void give_time_to_recover(const struct pair *pair)
{
    struct xccl_limit limit = xccl_limit_ms(20, NULL);
    uint64_t before = stats_of(pair, 0).recoveryCount;

    while (stats_of(pair, 0).failoverCount > before && stats_of(pair, 0).recoveryCount == before &&
           !xccl_limit_passed(&limit))
        usleep(500); /* the services talk */
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
                give_time_to_recover(&pair);
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
            XT_OK(group_post(&pair, &traffic, &traffic.groups[i]));
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

/* A connection that is made while a port is down does without; one that is made later has it. */
XT_TEST(port_that_is_down_is_left_out_of_a_new_connection)
{
    struct traffic traffic;
    struct pair pair;

    need_plugin();
    for (int card = 0; card < 2; card++) {
        long before = posts_of(card);

        pair_listen(&pair, 2, 2);
        set_port(card, card ? PORT_LOSES : PORT_DOWN); /* without a GID, and with one */
        pair_connect(&pair);
        traffic_begin(&traffic, MIX_STRIPED, 1);
        traffic_end(&pair, &traffic);
        XT_CHECK_INT(stats_of(&pair, 0).failoverCount, 0);
        XT_CHECK_INT(posts_of(card), before);
        pair_close(&pair);
        set_port(card, PORT_UP);
        pair_open(&pair, 2, 2);
        traffic_begin(&traffic, MIX_STRIPED, 1);
        traffic_end(&pair, &traffic);
        XT_CHECK(posts_of(card) >= before + MESSAGES);
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

/* One port goes down, traffic goes on by the other one, and this is what the first returns to. */
static void fail_first_port(struct pair *pair)
{
    struct traffic traffic;

    pair_open(pair, 2, 2);
    traffic_begin(&traffic, MIX_SMALL, 1);
    for (int i = 0; i < 5; i++)
        step(pair, &traffic);
    set_port(0, PORT_DOWN);
    traffic_end(pair, &traffic);
}

/* A receiver that cannot take its end of a new queue pair refuses it, and is asked again later. */
XT_TEST(queue_pair_that_gets_no_receives_is_refused)
{
    struct xccl_limit limit = xccl_limit_ms(patience_ms, NULL);
    struct pair pair;

    need_plugin();
    fail_first_port(&pair);
    (void)fail_call("post_recv");
    set_port(0, PORT_UP);
    while (fail_call("post_recv") == 0) {
        usleep(1000); /* the services talk */
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    (void)fail_call(NULL);
    wait_for_recovery(&pair);
    XT_CHECK_INT(stats_of(&pair, 1).failoverCount, 1); /* the other way was up all the while */
    pair_close(&pair);
}

/* The third time comes 100, 200 and 400 ms after the port is back, and the fourth 800 ms later. */
XT_TEST(start_that_fails_is_tried_less_and_less_often)
{
    struct xccl_limit limit = xccl_limit_ms(patience_ms, NULL);
    struct pair pair;
    uint64_t first_ns = 0;
    int fails = 0;

    need_plugin();
    fail_first_port(&pair);
    (void)fail_call("start_of_sender");
    set_port(0, PORT_UP);
    while (fails < 4) {
        fails += fail_call("start_of_sender");
        if (fails && !first_ns)
            first_ns = xccl_clock_ns();
        usleep(1000);
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    XT_CHECK(xccl_clock_ns() - first_ns > 1000 * XCCL_NS_PER_MS);
    (void)fail_call(NULL);
    wait_for_recovery(&pair);
    pair_close(&pair);
}

/* A process that is slow, or was stopped, finds what came before its queue pair failed only after
 * the time that a drain may take. It counts: the sender's card was told that it came. */
XT_TEST(what_came_before_a_failure_counts_however_late_it_is_read)
{
    struct xccl_limit limit = xccl_limit_ms(patience_ms, NULL);
    struct traffic traffic;
    struct pair pair;

    need_plugin();
    pair_open(&pair, 2, 2);
    traffic_begin(&traffic, MIX_GROUPED, 1);
    for (int i = 0; i + 1 < traffic.group_count; i++, traffic.posted_groups++)
        XT_OK(group_post(&pair, &traffic, &traffic.groups[i]));
    traffic.posted_sends = 0;
    for (int done = 0; done < MESSAGES - PARTS;) {
        if (traffic.posted_sends < MESSAGES - PARTS)
            XT_OK(send_post(&pair, &traffic));
        XT_OK(test_sends(&pair, &traffic));
        done = 0;
        for (int i = 0; i < traffic.posted_sends; i++)
            done += traffic.messages[i].sent;
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    /* All of it lies unread. The first line that is written now ends its queue pair. */
    slow_down(25);
    (void)fail_call("post_send");
    XT_OK(group_post(&pair, &traffic, &traffic.groups[traffic.posted_groups]));
    XT_CHECK_INT(fail_call(NULL), 1);
    traffic.posted_groups += traffic.groups[traffic.posted_groups].request != NULL;
    traffic_end(&pair, &traffic);
    slow_down(0);
    wait_for_recovery(&pair);
    pair_close(&pair);
}

/* The kernel may take long to set up a queue pair again: other comms of both instances come and go
 * meanwhile, and a call for this one comes back. */
XT_TEST(queue_pair_that_starts_slowly_holds_up_no_other_comm)
{
    struct xccl_limit limit = xccl_limit_ms(patience_ms, NULL);
    struct traffic traffic;
    struct pair pair, other;

    need_plugin();
    fail_first_port(&pair);
    (void)hold_start(1);
    set_port(0, PORT_UP);
    traffic_begin(&traffic, MIX_SMALL, 2);
    while (!hold_start(1)) {
        if (!is_through(&traffic))
            step(&pair, &traffic);
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    other = pair;
    other.send = other.recv = NULL;
    XT_OK(other.nets[1]->calls.listen(other.nets[1]->ctx, other.devs[1], &other.handle,
                                      &other.listener));
    pair_connect(&other);
    XT_OK(other.nets[0]->calls.closeSend(other.send));
    XT_OK(other.nets[1]->calls.closeRecv(other.recv));
    XT_OK(other.nets[1]->calls.closeListen(other.listener));
    for (int i = 0; i < 100 && !is_through(&traffic); i++)
        step(&pair, &traffic);
    XT_CHECK(hold_start(0)); /* all the while */
    traffic_end(&pair, &traffic);
    wait_for_recovery(&pair);
    pair_close(&pair);
}

/* One call of each end; none takes long. */
static void connect_once(struct pair *pair, xcclNetConnect_t *state)
{
    double begin = xt_seconds();

    if (!pair->send)
        XT_OK(pair->nets[0]->calls.connect(pair->nets[0]->ctx, pair->devs[0], &pair->handle, state,
                                           &pair->send));
    if (!pair->recv)
        XT_OK(pair->nets[1]->calls.accept(pair->listener, &pair->recv));
    XT_CHECK(xt_seconds() - begin < xt_bound(1, 5));
}

/* The kernel may take seconds for the way to the peer: of the sender first, then of the receiver.
 */
XT_TEST(connect_and_accept_do_not_wait_for_the_kernel)
{
    struct xccl_limit limit = xccl_limit_ms(patience_ms, NULL);
    xcclNetConnect_t state = NULL;
    struct pair pair;

    need_plugin();
    pair_listen(&pair, 1, 1);
    for (int end = 0; end < 2; end++) {
        while (!hold_start(1)) {
            connect_once(&pair, &state);
            XT_CHECK(!xccl_limit_passed(&limit));
        }
        for (int i = 0; i < 100; i++)
            connect_once(&pair, &state);
        XT_CHECK(!pair.recv && !pair.send == !end);
        XT_CHECK(hold_start(0)); /* all the while */
        while (!pair.send) {
            hold_start(1); /* the receiver's, which starts behind it */
            connect_once(&pair, &state);
            XT_CHECK(!xccl_limit_passed(&limit));
        }
    }
    pair_connect(&pair);
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
    XT_CHECK_HAS(pair.nets[0]->calls.lastError(pair.nets[0]->ctx),
                 "all ports of the connection are down");
    XT_CHECK_HAS(pair.nets[0]->calls.lastError(pair.nets[0]->ctx), " of 127.0.0.1:");
    set_port(0, PORT_UP);
    set_port(1, PORT_UP);
    pair_close(&pair);
}

/* The sender closes; the receiver has what comes still, until it hears of that. */
static void close_and_count(struct pair *pair, struct traffic *traffic)
{
    struct xccl_limit limit = xccl_limit_ms(patience_ms, NULL);
    xcclResult_t rc = xcclSuccess;

    XT_OK(pair->nets[0]->calls.closeSend(pair->send));
    while (rc == xcclSuccess && traffic->came < traffic->posted_groups) {
        rc = test_recvs(pair, traffic);
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    /* The call that failed may have taken what belongs to one that was asked before. */
    (void)test_recvs(pair, traffic);
    for (int i = 0; i < traffic->posted_groups; i++) {
        const struct group *group = &traffic->groups[i];
        int sent = 0;

        for (int k = 0; k < group->count; k++)
            sent += traffic->messages[group->first + k].sent;
        XT_CHECK(group->came || sent < group->count);
    }
    XT_OK(pair->nets[1]->calls.closeRecv(pair->recv));
    pair_end(pair);
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
        close_and_count(&pair, &traffic);
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

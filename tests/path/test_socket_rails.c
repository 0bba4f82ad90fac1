/* SPDX-License-Identifier: BSD-3-Clause */
/* Two rails between two hosts as one device of the socket plugin: it carries what both carry. Each
 * rail is measured alone in the same run. Rails of unequal speed, and rails in one subnet, where
 * the system's routes alone would lead everything to the first one. */
#include <string.h>

#include "path_flow.h"

#define ATTEMPTS 3
#define WARM_S   0.4
#define ALONE_S  0.6
#define TIME_S   1.2

struct stage {
    struct path_hosts hosts;
    size_t bytes; /* of a message; 0: all sizes */
    double share; /* that both must carry of the sum of each alone */
    const char *name;
    struct path_meet alone[2], both;
    _Atomic uint32_t good;
    double rates[2]; /* of the rails, alone; the receiver's */
};

static void rail_alone(struct stage *stage, struct xccl_net *net, int rail, int is_send)
{
    struct path_flow flow = {.bytes = 256 << 10};

    path_flow_open(&flow, net, path_net_device(net, rail), &stage->alone[rail], is_send);
    stage->rates[rail] = path_flow_rate(&flow, WARM_S, ALONE_S);
    path_flow_close(&flow);
}

static void rails_together(struct stage *stage, struct xccl_net *net, int dev, int is_send)
{
    struct path_flow flow = {.bytes = 512 << 10};
    int good = 0;

    path_flow_open(&flow, net, dev, &stage->both, is_send);
    for (uint32_t i = 0; i < ATTEMPTS && !good; i++) {
        double got = path_flow_rate(&flow, WARM_S, TIME_S);

        if (!is_send) {
            double sum = stage->rates[0] + stage->rates[1];

            path_figure("rails: %s: alone %.2f and %.2f MB/s, together %.2f (%.3f of the sum)",
                        stage->name, stage->rates[0] * 1e-6, stage->rates[1] * 1e-6, got * 1e-6,
                        got / sum);
            path_tell(&stage->good, i + 1, got >= stage->share * sum);
            if (got < stage->share * sum && i == ATTEMPTS - 1)
                XT_FAIL("two rails carry %.3f of what each carries alone, want %.3f", got / sum,
                        stage->share);
        }
        good = path_ask(&stage->good, i + 1);
    }
    path_flow_close(&flow);
}

/* The merged device comes first: a plugin without it ends the test. */
static void host_run(int rank, int nranks, void *arg)
{
    struct stage *stage = arg;
    struct xccl_net *merged, *single;
    int dev;

    (void)nranks;
    path_hosts_enter(&stage->hosts, rank);
    merged = path_net_open(0);
    dev = path_net_merge(merged);
    single = path_net_open(0);
    rail_alone(stage, single, 0, rank == 0);
    rail_alone(stage, single, 1, rank == 0);
    rails_together(stage, merged, dev, rank == 0);
    xccl_net_close(single);
    xccl_net_close(merged);
}

static void rails_carry(const struct path_rail rails[2], double share, const char *name)
{
    struct stage *stage = path_shared(sizeof(*stage));

    path_hosts_make(&stage->hosts, rails, 2);
    stage->share = share;
    stage->name = name;
    xt_mp_run(2, host_run, stage);
    path_hosts_drop(&stage->hosts);
}

XT_TEST_DEADLINE(two_rails_carry_nearly_twice_as_much_as_one, 60)
{
    static const struct path_rail rails[2] = {{1, 100000, 0}, {1, 100000, 1}};

    rails_carry(rails, 1.85 / 2, "100 and 100 Mbit/s");
}

XT_TEST_DEADLINE(two_rails_of_unequal_speed_carry_their_sum, 60)
{
    static const struct path_rail rails[2] = {{1, 100000, 0}, {1, 25000, 1}};

    rails_carry(rails, 0.9, "100 and 25 Mbit/s");
}

XT_TEST_DEADLINE(two_rails_in_one_subnet_carry_nearly_twice_as_much_as_one, 60)
{
    static const struct path_rail rails[2] = {{1, 100000, 0}, {1, 100000, 0}};

    rails_carry(rails, 1.85 / 2, "100 and 100 Mbit/s in one subnet");
}

static void host_run_all_sizes(int rank, int nranks, void *arg)
{
    struct stage *stage = arg;
    struct path_flow flow = {.bytes = 0};
    struct xccl_net *net;
    int dev;

    (void)nranks;
    path_hosts_enter(&stage->hosts, rank);
    net = path_net_open(0);
    dev = path_net_merge(net);
    path_flow_open(&flow, net, dev, &stage->both, rank == 0);
    flow.bytes = stage->bytes;
    path_flow_rate(&flow, 0, 1.0);
    path_flow_close(&flow);
    xccl_net_close(net);
}

XT_TEST_DEADLINE(messages_of_all_sizes_arrive_whole_and_in_order_over_unequal_rails, 60)
{
    static const struct path_rail rails[2] = {{1, 200000, 0}, {1, 5000, 1}};
    struct stage *stage = path_shared(sizeof(*stage));

    path_hosts_make(&stage->hosts, rails, 2);
    xt_mp_run(2, host_run_all_sizes, stage);
    path_hosts_drop(&stage->hosts);
}

/* What comes back on the second rail is read now and then only, and is old by then. */
XT_TEST_DEADLINE(a_thousand_messages_between_two_looks_at_a_rail_are_none_too_many, 60)
{
    static const struct path_rail rails[2] = {{1, 0, 0}, {1, 0, 1}};
    static const size_t sizes[2] = {64, 8192};
    struct stage *stage = path_shared(sizeof(*stage));

    path_hosts_make(&stage->hosts, rails, 2);
    for (int i = 0; i < 2; i++) {
        memset(&stage->both, 0, sizeof(stage->both));
        stage->bytes = sizes[i];
        xt_mp_run(2, host_run_all_sizes, stage);
    }
    path_hosts_drop(&stage->hosts);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The counters of the socket plugin against those of the interface below it: the payload is there,
 * and what comes on top is the framing of TCP and a little of the plugin's own. Both ends count the
 * same. */
#include <stdio.h>

#include "path_flow.h"

#define TIME_S      0.7
#define SLACK_BYTES 65536 /* connecting, neighbour discovery, a probe */
#define OWN_SHARE   0.002 /* of the payload: the plugin's own headers */
#define OWN_MESSAGE 64 /* and for each message */
#define ACK_SHARE   0.06 /* of the payload, the other way: acknowledgements */

struct stage {
    struct path_hosts hosts;
    struct path_meet meet;
    xcclNetStats_v1 stats[2];
    uint64_t messages[2], payload[2];
    _Atomic uint32_t there[2];
};

/* Segments that this host has sent again, at most so many bytes. */
static double sent_again(void)
{
    FILE *file = fopen("/proc/net/snmp", "re");
    unsigned long segments = 0;
    char line[512];

    XT_CHECK(file != NULL);
    while (fgets(line, sizeof(line), file))
        (void)sscanf(line, "Tcp: %*d %*d %*d %*d %*d %*d %*d %*d %*d %*d %*d %lu", &segments);
    fclose(file);
    return (double)segments * (PATH_MTU + 14);
}

/* The sender's host: what has left, and what has come back. */
static void check_interface(const struct path_flow *flow, const struct path_counters *before,
                            const struct path_counters *after, double again)
{
    double payload = (double)flow->payload, messages = (double)flow->done;
    double sent = (double)(after->send_bytes - before->send_bytes);
    double packets = (double)(after->send_packets - before->send_packets);
    double back = (double)(after->recv_bytes - before->recv_bytes);
    double segment = PATH_MTU + 14 - PATH_HEADER_BYTES;
    double most = payload * (1 + PATH_HEADER_BYTES / segment + OWN_SHARE) +
                  messages * (OWN_MESSAGE + PATH_HEADER_BYTES) + SLACK_BYTES + again;
    double bare = sent - packets * PATH_HEADER_BYTES;
    double bare_most = payload * (1 + OWN_SHARE) + messages * OWN_MESSAGE + SLACK_BYTES + again;

    path_figure("counters: %.0f messages, %.0f bytes; the interface sent %.0f in %.0f packets "
                "(%.4f of the payload, %.5f without TCP's framing), %.0f came back",
                messages, payload, sent, packets, sent / payload, bare / payload, back);
    XT_CHECK(sent >= payload);
    XT_CHECK(sent <= most);
    XT_CHECK(bare >= payload);
    XT_CHECK(bare <= bare_most);
    XT_CHECK(back <= payload * ACK_SHARE + SLACK_BYTES);
}

static void host_run(int rank, int nranks, void *arg)
{
    struct stage *stage = arg;
    struct path_flow flow = {.bytes = 0};
    struct path_counters before, after;
    struct xccl_net *net;
    double again;
    int dev;

    (void)nranks;
    path_hosts_enter(&stage->hosts, rank);
    net = path_net_open(0);
    dev = path_net_device(net, 0);
    again = sent_again();
    path_counters_read(0, &before);
    path_flow_open(&flow, net, dev, &stage->meet, rank == 0);
    path_flow_rate(&flow, 0, TIME_S);
    stage->stats[rank].size = sizeof(stage->stats[rank]);
    XT_OK(net->calls.stats(net->ctx, dev, &stage->stats[rank]));
    stage->messages[rank] = flow.done;
    stage->payload[rank] = flow.payload;
    path_word_set(&stage->there[rank], 1);
    path_word_await(&stage->there[!rank], 1);
    /* Now all of it has left the queues, too. */
    path_counters_read(0, &after);
    XT_CHECK_INT(stage->messages[0], stage->messages[1]);
    XT_CHECK_INT(stage->stats[0].sendBytes, stage->payload[0]);
    XT_CHECK_INT(stage->stats[0].sendCount, stage->messages[0]);
    XT_CHECK_INT(stage->stats[1].recvBytes, stage->stats[0].sendBytes);
    XT_CHECK_INT(stage->stats[1].recvCount, stage->stats[0].sendCount);
    XT_CHECK_INT(stage->stats[rank].sendBytes * stage->stats[rank].recvBytes, 0);
    if (rank == 0)
        check_interface(&flow, &before, &after, sent_again() - again);
    path_flow_close(&flow);
    xccl_net_close(net);
}

static void counters_agree(const char *streams, int kbit)
{
    struct stage *stage = path_shared(sizeof(*stage));
    struct path_rail rail = {.host = 1, .kbit = kbit};

    path_hosts_make(&stage->hosts, &rail, 1);
    xt_setenv("XCCL_SOCKET_STREAMS", streams);
    xt_mp_run(2, host_run, stage);
    path_hosts_drop(&stage->hosts);
}

XT_TEST(counters_agree_with_those_of_the_interface)
{
    counters_agree("1", 0);
}

XT_TEST(counters_agree_with_those_of_the_interface_with_four_streams)
{
    counters_agree("4", 0);
}

XT_TEST(counters_agree_with_those_of_a_shaped_interface)
{
    counters_agree("4", 100000);
}

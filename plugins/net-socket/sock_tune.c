/* SPDX-License-Identifier: BSD-3-Clause */
/* Socket options of a line, and what TCP knows about its path. A kernel that refuses an option
 * still moves bytes, so no result is looked at.
 *
 * A sender's socket has no TCP_USER_TIMEOUT on purpose: it also ends a connection whose peer is
 * alive but does not read for that long, such as a rank that computes. What a sender needs to know
 * is told by TCP_INFO instead: a peer that does not read still acknowledges. A receiver only writes
 * few small acknowledgements, which wait for no reader; there the option is what is needed.
 *
 * Thread: the comm's. */
#include "sock_int.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define UNIX_ROOM_BYTES (256 << 10) /* more no longer stays in the caches */
/* A stream is full when more than that waits to be sent. */
#define STREAM_BACKLOG_BYTES (128 << 10)
#define MS_PER_S             1000
#define NEAR_RTT_US          1000 /* shorter: no path for which BBR was made */
#define NEAR_CONGESTION      "cubic"
#define CONGESTION_BYTES     16 /* a name's most, TCP_CA_NAME_MAX of the kernel */
#define PROBES               3
#define PROBES_FROM_S        6 /* for a shorter silence one has to do */
#define RETRIES_SILENT       3 /* of data or probes, each after twice the time of the one before */

static void set_int(int fd, int level, int option, int value)
{
    (void)setsockopt(fd, level, option, &value, sizeof(value));
}

/* Keepalive finds a host that has vanished while nothing is under way. */
static void tune_silence(int fd, int silence_s)
{
    int probes = silence_s >= PROBES_FROM_S ? PROBES : 1;
    int interval = silence_s >= PROBES_FROM_S ? silence_s / (2 * PROBES + 1) : 1;
    int idle = silence_s - probes * interval;

    if (interval < 1)
        interval = 1;
    set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle < 1 ? 1 : idle);
    set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval);
    set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, probes);
    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
}

static int is_auto(const struct sock_ctx *ctx)
{
    return strcmp(ctx->congestion, "auto") == 0;
}

static void set_congestion(int fd, const char *name)
{
    (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name));
}

/* Near by, BBR has half the throughput of CUBIC (the README has figures). A socket that ever had
 * BBR sends by the clock for good, whatever it has later: over veth that is done on the receiver's
 * core and on the sender's in turn, and half of the throughput goes to what looks lost but comes
 * late. So the choice is made before the connection, and taken back when the path turns out to be
 * long. */
void sock_tune_congestion_early(const struct sock_ctx *ctx, int fd)
{
    if (is_auto(ctx))
        set_congestion(fd, NEAR_CONGESTION);
    else if (strcmp(ctx->congestion, "system") != 0)
        set_congestion(fd, ctx->congestion);
}

static void set_congestion_of_system(int fd, int family)
{
    int fresh = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char name[CONGESTION_BYTES] = "";
    socklen_t bytes = sizeof(name);

    if (fresh < 0)
        return;
    if (getsockopt(fresh, IPPROTO_TCP, TCP_CONGESTION, name, &bytes) == 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, bytes);
    close(fresh);
}

/* A route may have a choice of its own: auto leaves it. */
static void tune_congestion(const struct sock_ctx *ctx, int fd, int family)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof(info), name_bytes = CONGESTION_BYTES;
    char name[CONGESTION_BYTES] = "";

    if (!is_auto(ctx))
        sock_tune_congestion_early(ctx, fd);
    else if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 &&
             info.tcpi_rtt >= NEAR_RTT_US &&
             getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &name_bytes) == 0 &&
             strncmp(name, NEAR_CONGESTION, sizeof(name)) == 0)
        set_congestion_of_system(fd, family);
}

static void tune_tcp(const struct sock_comm *comm, int fd, int family)
{
    set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    tune_silence(fd, (int)(comm->ctx->silence_ms / MS_PER_S));
    if (comm->ctx->traffic_class >= 0) {
        set_int(fd, IPPROTO_IP, IP_TOS, comm->ctx->traffic_class);
        set_int(fd, IPPROTO_IPV6, IPV6_TCLASS, comm->ctx->traffic_class);
    }
    if (comm->is_send)
        tune_congestion(comm->ctx, fd, family);
    else
        set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (int)comm->ctx->silence_ms);
}

void sock_tune_line(struct sock_comm *comm, int line, int fd, const struct xccl_addr *peer)
{
    comm->lines[line].fd = fd;
    if (peer->sa.any.sa_family == AF_UNIX)
        set_int(fd, SOL_SOCKET, SO_SNDBUF, UNIX_ROOM_BYTES);
    else
        tune_tcp(comm, fd, peer->sa.any.sa_family);
    if (line == 0) {
        sock_address_peer(fd, peer, comm->peer_text);
        return;
    }
    set_int(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, STREAM_BACKLOG_BYTES);
    sock_zerocopy_init(comm, &comm->lines[line]);
}

void sock_path_silence(int fd, struct sock_silence *silence_out)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof(info);

    *silence_out = (struct sock_silence){0};
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0)
        return; /* a Unix socket has no path */
    if (info.tcpi_retransmits >= RETRIES_SILENT || info.tcpi_probes >= RETRIES_SILENT)
        silence_out->asked_ms = info.tcpi_last_ack_recv;
    if (info.tcpi_unacked > 0)
        silence_out->waits_ms = info.tcpi_last_data_sent < info.tcpi_last_ack_recv
                                    ? info.tcpi_last_data_sent
                                    : info.tcpi_last_ack_recv;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Strangers at the TCP ports of a job: every port where its ranks listen, the library's own and
 * those of libfabric and UCX, is connected to over and over, by some who say nothing, some who say
 * what begins like a hello of a plugin, like a message of libfabric or of UCX, and some who babble.
 * They have no secret and read no wire. Over every plugin all elements must be right, no rank may
 * hang or die, and no job may be lost; see inject_town.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/wire.h"
#include "inject_town.h"
#include "xt.h"

#define PLUGINS    XT_BUILD_DIR "/lib/xccl/libxccl-net-"
#define CROWD      24 /* connections at a time */
#define SAID_BYTES 1200
#define OFI_MAGIC  0x6f666931u
#define UCX_MAGIC  0x5843554cu
#define XCCL_MAGIC 0x4c434358u
#define ROUND_MS   2
#define SILENT     3000
#define AT_ONCE    8
#define FEW_FDS    450 /* of 1,024; below 280 where the silent are cut, above 610 where not */

/* The beginning of what somebody could have to say there; the rest is drawn. */
static size_t begin(uint8_t *said, uint64_t dice)
{
    struct xccl_wire wire = xccl_wire_over(said, SAID_BYTES);

    switch (dice % 8) {
    case 0: /* a hello of the ofi plugin */
        xccl_wire_put_u32(&wire, OFI_MAGIC);
        xccl_wire_put_u32(&wire, 6);
        break;
    case 1: /* of the ucx plugin */
        xccl_wire_put_u32(&wire, UCX_MAGIC);
        xccl_wire_put_u32(&wire, 3);
        break;
    case 2: /* of the bootstrap */
        xccl_wire_put_u32(&wire, XCCL_MAGIC);
        xccl_wire_put_u16(&wire, 2);
        break;
    case 3: /* a connection request of libfabric's tcp: version, type, size */
        xccl_wire_put_u8(&wire, 3);
        xccl_wire_put_u8(&wire, 1 + (uint8_t)(dice >> 8 & 3));
        xccl_wire_put_u16(&wire, (uint16_t)(dice >> 16));
        xccl_wire_put_u32(&wire, (uint32_t)(dice >> 32));
        break;
    case 4: /* of UCX's tcp: id of a message, then its length */
        xccl_wire_put_u8(&wire, (uint8_t)(dice >> 8 & 63));
        xccl_wire_put_u32(&wire, (uint32_t)(dice >> 16 & 0xff));
        break;
    case 5: /* UCX's magic number first */
        xccl_wire_put_u64(&wire, 0xCAFEBABEull);
        break;
    default:
        break;
    }
    return SAID_BYTES - xccl_wire_left(&wire);
}

static void talk(int fd, uint64_t *dice)
{
    uint64_t kind = xt_random(dice);
    uint8_t said[SAID_BYTES];
    size_t at = begin(said, kind), bytes = 1 + (kind >> 8) % sizeof(said);

    if (kind % 8 == 7)
        return; /* silent */
    for (; at < sizeof(said); at++)
        said[at] = kind % 8 == 6 ? 0 : (uint8_t)xt_random(dice);
    (void)send(fd, said, bytes, MSG_NOSIGNAL);
}

static int visit(uint16_t port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0 || errno == EINPROGRESS)
        return fd;
    close(fd);
    return -1;
}

/* The oldest makes room for a new one; each says its piece a little after it has come. */
static void come_and_go(struct town *town, const uint16_t *ports, int port_count, uint64_t seed)
{
    uint64_t dice = seed;
    int fds[CROWD], at = 0;

    memset(fds, -1, sizeof(fds));
    while (!town_is_over(town) && port_count) {
        if (fds[at] >= 0)
            close(fds[at]);
        fds[at] = visit(ports[xt_random(&dice) % (uint64_t)port_count]);
        (void)poll(NULL, 0, ROUND_MS);
        if (fds[at] >= 0)
            talk(fds[at], &dice);
        atomic_fetch_add_explicit(&town->shots, fds[at] >= 0, memory_order_relaxed);
        at = (at + 1) % CROWD;
    }
}

/* Connects as often as it can, says nothing and stays. */
static void come_and_stay(struct town *town, const uint16_t *ports, int port_count, uint64_t seed)
{
    struct rlimit limit;
    uint64_t dice = seed;
    int come = 0;

    XT_CHECK_INT(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    XT_CHECK_INT(setrlimit(RLIMIT_NOFILE, &limit), 0);
    while (!town_is_over(town) && port_count) {
        if (come < SILENT && visit(ports[xt_random(&dice) % (uint64_t)port_count]) >= 0)
            atomic_fetch_add_explicit(&town->shots, 1, memory_order_relaxed);
        if (come++ % AT_ONCE == 0)
            (void)poll(NULL, 0, 1);
    }
}

static void attacked(const char *name, town_attack_fn *attack, uint64_t seeds, double attack_s,
                     struct town_sum *sum_out)
{
    static const size_t counts[3] = {300000, 2, 20000};
    char library[256];

    snprintf(library, sizeof(library), "%s%s.so", PLUGINS, name);
    if (access(library, R_OK) != 0)
        XT_SKIP("plugin %s was not built: the headers of its library are missing", name);
    xt_allow_leaks("libraries of others keep threads and memory");
    xt_setenv("XCCL_NET_PLUGIN", library);
    xt_setenv("XCCL_PLUGIN_PROBE_S", "0");
    xt_setenv("XCCL_OFI_PROVIDER", "tcp;ofi_rxm");
    xt_setenv("FI_PROVIDER", "tcp,ofi_rxm");
    xt_setenv("FI_OFI_RXM_BUFFER_SIZE", "2048");
    xt_setenv("FI_OFI_RXM_MSG_RX_SIZE", "64");
    xt_setenv("UCX_TLS", "tcp,self");
    xt_setenv("XCCL_SOCKET_UNIX", "0");
    town_run_seeds(name, 2, counts, attack, seeds, attack_s, sum_out);
    XT_CHECK(sum_out->jobs > 0 && sum_out->shots > 0);
    XT_CHECK_INT(sum_out->wrong, 0);
    XT_CHECK_INT(sum_out->hung, 0);
    XT_CHECK_INT(sum_out->died, 0);
    XT_CHECK_INT(sum_out->lost, 0);
}

static void visited(const char *name, uint64_t seeds)
{
    struct town_sum sum;

    attacked(name, come_and_go, seeds, 0.5, &sum);
}

/* Thousands want in, and each rank keeps room for what it needs itself. */
static void crowded(const char *name)
{
    struct town_sum sum;

    attacked(name, come_and_stay, 1, 3, &sum);
    printf("%s: %llu came, a rank has %d descriptors\n", name, (unsigned long long)sum.shots,
           sum.fds);
    XT_CHECK(sum.shots > SILENT / 4);
    XT_CHECK(sum.fds > 0 && sum.fds < FEW_FDS);
}

XT_TEST_DEADLINE(strangers_at_the_ports_of_the_socket_plugin_change_nothing, 60)
{
    visited("socket", 1);
}

XT_TEST_DEADLINE(strangers_at_the_ports_of_libfabric_change_nothing, 60)
{
    visited("ofi", 1);
}

XT_TEST_DEADLINE(strangers_at_the_ports_of_ucx_change_nothing, 60)
{
    visited("ucx", 1);
}

XT_TEST_DEADLINE(a_silent_crowd_at_the_ports_of_libfabric_is_cut, 60)
{
    crowded("ofi");
}

XT_TEST_DEADLINE(a_silent_crowd_at_the_ports_of_ucx_is_cut, 60)
{
    crowded("ucx");
}

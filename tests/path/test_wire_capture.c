/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads the wire of whole jobs, as tcpdump would: a packet socket on the loopback interface of a
 * network of the test's own takes every packet from joining to destroy. Ranks broadcast known
 * random bytes. With XCCL_NET_ENCRYPT=1 no 16 of these bytes in a row are on the wire, with 0 and
 * mac they are, so the search can find them. The 32 secret bytes of the unique id are on no wire,
 * whatever plugin carries the data.
 *
 * Thread: one a process. Needs root. */
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "bootstrap/job.h"
#include "collective/world.h"
#include "xt.h"

#define RANKS         2
#define PAYLOAD_BYTES ((size_t)64 << 10)
#define CALLS         8
#define WINDOW        16
#define SLOTS         ((size_t)1 << 18) /* of a table of windows */
#define QUIET_MS      200 /* without a packet after the job: all has been read */

struct shared {
    struct world *world;
    _Atomic int is_listening, ended; /* ranks that have */
    _Atomic uint64_t packets, bytes, dropped, payload_hits, secret_hits;
};

static uint8_t payload[PAYLOAD_BYTES];

static void payload_make(void)
{
    uint64_t random = xt_seed();

    for (size_t i = 0; i < PAYLOAD_BYTES; i++)
        payload[i] = (uint8_t)xt_random(&random);
}

/* A network with nothing but a loopback interface. */
static void own_network(void)
{
    struct ifreq request = {.ifr_name = "lo"};
    int fd;

    if (unshare(CLONE_NEWNET) != 0)
        XT_SKIP("needs the right to make a network namespace");
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    XT_CHECK(fd >= 0);
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    XT_CHECK_INT(ioctl(fd, SIOCSIFFLAGS, &request), 0);
    close(fd);
}

/* ---- the job ---- */

static void rank_run(struct shared *shared, int rank)
{
    static uint8_t data[PAYLOAD_BYTES];
    xcclComm_t comm;

    while (!atomic_load_explicit(&shared->is_listening, memory_order_acquire))
        sched_yield(); /* bounded by the test's deadline */
    comm = world_join(shared->world, rank, RANKS);
    for (int i = 0; i < CALLS; i++) {
        memset(data, 0, sizeof(data));
        if (rank == 0)
            memcpy(data, payload, sizeof(data));
        XT_OK(xcclBroadcast(data, data, sizeof(data), xcclInt8, 0, comm, NULL));
        XT_CHECK(memcmp(data, payload, sizeof(data)) == 0);
    }
    XT_OK(xcclCommDestroy(comm));
    atomic_fetch_add_explicit(&shared->ended, 1, memory_order_acq_rel);
}

/* ---- the reader ---- */

static uint64_t first_8(const uint8_t *at)
{
    uint64_t word;

    memcpy(&word, at, sizeof(word));
    return word;
}

static size_t slot_of(uint64_t word)
{
    return (word * 0x9e3779b97f4a7c15ull) >> 46;
}

/* For each window its offset and 1, by its first bytes; 0: empty. */
static uint32_t *table_make(const uint8_t *bytes, size_t count)
{
    uint32_t *table = calloc(SLOTS, sizeof(*table));

    XT_CHECK(table != NULL);
    for (size_t i = 0; i + WINDOW <= count; i++) {
        size_t slot = slot_of(first_8(bytes + i));

        while (table[slot])
            slot = (slot + 1) % SLOTS;
        table[slot] = (uint32_t)i + 1;
    }
    return table;
}

/* Windows of these bytes that are in the packet. */
static uint64_t hits(const uint32_t *table, const uint8_t *bytes, const uint8_t *packet,
                     size_t count)
{
    uint64_t found = 0;

    for (size_t i = 0; i + WINDOW <= count; i++) {
        for (size_t slot = slot_of(first_8(packet + i)); table[slot]; slot = (slot + 1) % SLOTS)
            found += memcmp(bytes + table[slot] - 1, packet + i, WINDOW) == 0;
    }
    return found;
}

/* The secret of the job, which its ranks know. */
static void secret_get(const struct world *world, uint8_t secret_out[32])
{
    struct xccl_meeting meeting;

    XT_OK(xccl_unique_id_decode(&world->ids[0], &meeting));
    memcpy(secret_out, meeting.secret, 32);
}

static int tap_open(void)
{
    const int room = 256 << 20;
    struct sockaddr_ll lo = {.sll_family = AF_PACKET,
                             .sll_protocol = htons(ETH_P_ALL),
                             .sll_ifindex = (int)if_nametoindex("lo")};
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));

    XT_CHECK(fd >= 0);
    XT_CHECK_INT(setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)), 0);
    XT_CHECK_INT(bind(fd, (struct sockaddr *)&lo, sizeof(lo)), 0);
    return fd;
}

static void reader_run(struct shared *shared)
{
    static uint8_t packet[1 << 18], secret[32];
    uint32_t *table = table_make(payload, PAYLOAD_BYTES), *secrets = NULL;
    struct tpacket_stats stats;
    socklen_t bytes = sizeof(stats);
    struct pollfd wait = {.fd = tap_open(), .events = POLLIN};
    int quiet = 0;

    atomic_store_explicit(&shared->is_listening, 1, memory_order_release);
    while (!quiet) {
        ssize_t got;

        if (poll(&wait, 1, QUIET_MS) == 0) {
            quiet = atomic_load_explicit(&shared->ended, memory_order_acquire) == RANKS;
            continue;
        }
        got = recv(wait.fd, packet, sizeof(packet), MSG_DONTWAIT | MSG_TRUNC);
        XT_CHECK(got > 0 && (size_t)got <= sizeof(packet));
        if (!secrets && atomic_load_explicit(&shared->world->ready[0], memory_order_acquire)) {
            secret_get(shared->world, secret);
            secrets = table_make(secret, sizeof(secret));
        }
        shared->packets++;
        shared->bytes += (uint64_t)got;
        shared->payload_hits += hits(table, payload, packet, (size_t)got);
        if (secrets)
            shared->secret_hits += hits(secrets, secret, packet, (size_t)got);
    }
    XT_CHECK_INT(getsockopt(wait.fd, SOL_PACKET, PACKET_STATISTICS, &stats, &bytes), 0);
    shared->dropped = stats.tp_drops;
    XT_CHECK(secrets && hits(secrets, secret, secret, sizeof(secret)) > 0);
    free(table);
    free(secrets);
    close(wait.fd);
}

static void one_of_all(int rank, int nranks, void *arg)
{
    if (rank + 1 < nranks)
        rank_run(arg, rank);
    else
        reader_run(arg);
}

/* Gives the payload's windows that were on the wire. */
static uint64_t read_wire(const char *plugin, const char *encrypt)
{
    struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    XT_CHECK(shared != MAP_FAILED);
    own_network();
    payload_make();
    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_SOCKET_UNIX", "0");
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xt_setenv("XCCL_NET_PLUGIN", plugin);
    xt_setenv("XCCL_NET_ENCRYPT", encrypt);
    xt_setenv("UCX_TLS", "tcp");
    xt_setenv("XCCL_OFI_PROVIDER", "tcp;ofi_rxm");
    shared->world = world_create();
    xt_mp_run(RANKS + 1, one_of_all, shared);
    printf("%s, %s: %llu packets, %llu bytes, %llu dropped, %llu windows of the payload\n", plugin,
           encrypt, (unsigned long long)shared->packets, (unsigned long long)shared->bytes,
           (unsigned long long)shared->dropped, (unsigned long long)shared->payload_hits);
    XT_CHECK_INT(shared->dropped, 0);
    XT_CHECK_INT(shared->secret_hits, 0);
    XT_CHECK(shared->bytes > CALLS * PAYLOAD_BYTES);
    return shared->payload_hits;
}

/* All of it, but for windows that two packets share. */
#define MOST ((uint64_t)CALLS * PAYLOAD_BYTES * 9 / 10)

XT_TEST_DEADLINE(a_job_without_encryption_shows_its_payload_and_no_secret, 60)
{
    XT_CHECK(read_wire("socket", "0") > MOST);
}

XT_TEST_DEADLINE(a_job_with_mac_shows_its_payload_and_no_secret, 60)
{
    XT_CHECK(read_wire("socket", "mac") > MOST);
}

XT_TEST_DEADLINE(a_job_with_encryption_shows_nothing, 60)
{
    XT_CHECK_INT(read_wire("socket", "1"), 0);
}

XT_TEST_DEADLINE(a_job_with_encryption_over_streams_shows_nothing, 60)
{
    xt_setenv("XCCL_SOCKET_STREAMS", "3");
    XT_CHECK_INT(read_wire("socket", "1"), 0);
}

XT_TEST_DEADLINE(a_job_over_ofi_shows_no_secret, 60)
{
    if (access(XT_BUILD_DIR "/lib/xccl/libxccl-net-ofi.so", F_OK) != 0)
        XT_SKIP("built without libfabric's headers");
    XT_CHECK(read_wire("ofi", "0") > MOST);
}

XT_TEST_DEADLINE(a_job_over_ucx_shows_no_secret, 60)
{
    if (access(XT_BUILD_DIR "/lib/xccl/libxccl-net-ucx.so", F_OK) != 0)
        XT_SKIP("built without UCX's headers");
    XT_CHECK(read_wire("ucx", "0") > MOST);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Blind injection over libfabric: a stranger with an endpoint of the same provider sends to the
 * endpoints of a job whatever it may believe to be its own: payload under numbers that come next,
 * whole operations with a preamble, notes of receives, writes. He is told the ports, and knows the
 * program, which calls it makes and how messages are numbered; he has no secret and reads no wire.
 * No element may be wrong and no rank may hang; see inject_town.h. XT_INJECT_KIND=0 to 5: one kind
 * of shot alone. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/wire.h"
#include "inject_town.h"
#include "xt.h"

#define LIBRARY     XT_BUILD_DIR "/lib/xccl/libxccl-net-ofi.so"
#define SHOT_BYTES  (256 << 10)
#define SLICE_BYTES (128 << 10) /* most messages of a large call have that size */
#define IN_FLIGHT   512u /* shots whose completion is not awaited */
#define CONNECT_S   0.06 /* for a port to answer as an endpoint does */
#define NOTE_MAGIC  0x6f666931u
#define AHEAD       32 /* numbers between what is done and the nearest shot */
#define AHEAD_MORE  192 /* and from there to the farthest */
#define WHOLE_SHOTS 4096u /* of a job, beside those of its kind: they stay in the ranks' memory */

/* The test's choice, which the attacker inherits: the provider, and how many messages a call sends
 * over a connection, on average. */
static const char *provider;
static uint32_t call_messages;

struct gun {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_ep *ep;
    struct fid_cq *cq;
    struct fid_av *av;
    struct fid_mr *mr;
    void *desc;
    uint8_t *bytes; /* 256 KiB that no rank sends */
    fi_addr_t targets[TOWN_PORTS_MAX];
    uint8_t dead[TOWN_PORTS_MAX]; /* nobody of libfabric listens there */
    struct fi_context2 contexts[IN_FLIGHT];
    int of_shot[IN_FLIGHT]; /* target */
    uint32_t shots, done;
    int target_count;
    uint64_t dice;
};

static void *symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);

    if (!found)
        _exit(3);
    return found;
}

static int gun_open_library(struct gun *gun)
{
    void *library = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
    struct fi_info *(*dupinfo)(const struct fi_info *);
    int (*getinfo)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *,
                   struct fi_info **);
    int (*fabric)(struct fi_fabric_attr *, struct fid_fabric **, void *);
    struct fi_info *hints;

    if (!library)
        return 0;
    *(void **)&dupinfo = symbol(library, "fi_dupinfo");
    *(void **)&getinfo = symbol(library, "fi_getinfo");
    *(void **)&fabric = symbol(library, "fi_fabric");
    hints = dupinfo(NULL);
    hints->caps = FI_TAGGED | FI_RMA;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY |
                                  FI_MR_ENDPOINT;
    hints->fabric_attr->prov_name = strdup(provider);
    if (getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, hints, &gun->info))
        return 0;
    return fabric(gun->info->fabric_attr, &gun->fabric, NULL) == 0;
}

static int gun_open(struct gun *gun)
{
    struct fi_cq_attr cq = {.size = 4096, .format = FI_CQ_FORMAT_TAGGED};
    struct fi_av_attr av = {.type = FI_AV_TABLE, .count = TOWN_PORTS_MAX};

    gun->bytes = mmap(NULL, SHOT_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!gun_open_library(gun) || fi_domain(gun->fabric, gun->info, &gun->domain, NULL) ||
        fi_cq_open(gun->domain, &cq, &gun->cq, NULL) ||
        fi_av_open(gun->domain, &av, &gun->av, NULL) ||
        fi_endpoint(gun->domain, gun->info, &gun->ep, NULL) ||
        fi_ep_bind(gun->ep, &gun->cq->fid, FI_SEND | FI_RECV) ||
        fi_ep_bind(gun->ep, &gun->av->fid, 0) || fi_enable(gun->ep))
        return 0;
    if (fi_mr_reg(gun->domain, gun->bytes, SHOT_BYTES, FI_SEND | FI_READ | FI_REMOTE_READ, 0, 77, 0,
                  &gun->mr, NULL) == 0)
        gun->desc = fi_mr_desc(gun->mr);
    for (size_t i = 0; i < SHOT_BYTES; i++)
        gun->bytes[i] = (uint8_t)xt_random(&gun->dice);
    return 1;
}

static void gun_aim(struct gun *gun, const uint16_t *ports, int port_count)
{
    for (int i = 0; i < port_count; i++) {
        struct sockaddr_in at = {.sin_family = AF_INET,
                                 .sin_port = htons(ports[i]),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

        if (fi_av_insert(gun->av, &at, 1, &gun->targets[gun->target_count], 0, NULL) == 1)
            gun->target_count++;
    }
}

static void gun_reap(struct gun *gun)
{
    struct fi_cq_tagged_entry entries[16];
    struct fi_cq_err_entry failed = {.err = 0};
    ssize_t got = fi_cq_read(gun->cq, entries, 16);

    if (got > 0)
        gun->done += (uint32_t)got;
    if (got != -FI_EAVAIL || fi_cq_readerr(gun->cq, &failed, 0) != 1)
        return;
    gun->done++;
    if (failed.op_context)
        gun->dead[gun->of_shot[(struct fi_context2 *)failed.op_context - gun->contexts]] = 1;
}

/* A number that the job reaches soon. */
static uint32_t number_next(struct gun *gun, const struct town *town)
{
    uint64_t calls = atomic_load_explicit(&town->ranks[0].calls, memory_order_relaxed);

    return (uint32_t)calls * call_messages + AHEAD + (uint32_t)(xt_random(&gun->dice) % AHEAD_MORE);
}

/* A preamble as the job makes them, but for what only the job knows. */
static void preamble_put(struct gun *gun, const struct town *town)
{
    struct xccl_wire wire = xccl_wire_over(gun->bytes, 16);
    uint64_t call = atomic_load_explicit(&town->ranks[0].calls, memory_order_relaxed);

    xccl_wire_put_u64(&wire, call + xt_random(&gun->dice) % 4);
    xccl_wire_put_u64(&wire, xt_random(&gun->dice));
}

static void note_put(struct gun *gun, uint32_t number)
{
    struct xccl_wire wire = xccl_wire_over(gun->bytes, 64);

    xccl_wire_put_u32(&wire, NOTE_MAGIC);
    xccl_wire_put_u32(&wire, number);
    xccl_wire_put_u32(&wire, 1);
    xccl_wire_put_u32(&wire, xt_random(&gun->dice) & 1 ? UINT32_MAX : 0);
    xccl_wire_put_u32(&wire, 0);
    xccl_wire_put_u32(&wire, number);
    xccl_wire_put_u64(&wire, SHOT_BYTES);
    xccl_wire_put_u64(&wire, 0x1000);
    xccl_wire_put_u64(&wire, xt_random(&gun->dice));
}

/* Fires a shot of a kind at a target, under a number. */
static ssize_t shoot(struct gun *gun, struct town *town, int kind, int target, uint32_t number)
{
    static const size_t sizes[] = {SHOT_BYTES, 128 << 10, 64 << 10, 32 << 10, 4096, 24, 16, 8};
    struct fi_context2 *context = &gun->contexts[gun->shots % IN_FLIGHT];
    size_t bytes = sizes[xt_random(&gun->dice) % 8];
    uint64_t tag = number & 0x7fff;
    fi_addr_t at = gun->targets[target];
    int with_size = (int)(xt_random(&gun->dice) & 1);

    gun->of_shot[gun->shots % IN_FLIGHT] = target;
    switch (kind) {
    case 1: /* whole operations, small: large ones that no receive takes stay in flight */
        preamble_put(gun, town);
        bytes = sizes[5 + xt_random(&gun->dice) % 3];
        break;
    case 2: /* notes of receives */
        note_put(gun, number);
        return fi_tsend(gun->ep, gun->bytes, 48, gun->desc, at, 0, context);
    case 3: /* any tag */
        tag = xt_random(&gun->dice) >> (xt_random(&gun->dice) & 63);
        break;
    case 4: /* writes */
        return fi_writedata(gun->ep, gun->bytes, xt_random(&gun->dice) & 1 ? 4096 : 0, gun->desc,
                            (uint64_t)number << 8, at, xt_random(&gun->dice) & 0xfffffffff000,
                            xt_random(&gun->dice), context);
    case 5: /* pieces */
        tag |= 0x8000 | (xt_random(&gun->dice) & 3) << 16;
        break;
    default: /* payload */
        bytes = SLICE_BYTES;
        break;
    }
    if (with_size)
        return fi_tsenddata(gun->ep, gun->bytes, bytes, gun->desc, bytes, at, tag, context);
    return fi_tsend(gun->ep, gun->bytes, bytes, gun->desc, at, tag, context);
}

/* Every target gets a shot in turn. Every second one is a whole operation, which meets a receive if
 * tags can be guessed, whatever the job's kind. */
static void attack(struct town *town, const uint16_t *ports, int port_count, uint64_t seed)
{
    const char *text = getenv("XT_INJECT_KIND");
    static struct gun gun;
    uint32_t rounds = 0, end;
    double limit = xt_seconds() + CONNECT_S;
    int kind, target = 0;
    ssize_t err;

    gun.dice = seed;
    kind = text ? atoi(text) : (int)(seed % 6);
    if (!gun_open(&gun))
        _exit(2);
    gun_aim(&gun, ports, port_count);
    /* Few payloads, which fit well: one that does not fit would end the job before. */
    end = kind ? UINT32_MAX : 1 + (uint32_t)(xt_random(&gun.dice) % 3);
    while (!town_is_over(town)) {
        int is_whole = kind && gun.shots % 2 && gun.shots < WHOLE_SHOTS;

        gun_reap(&gun);
        if (gun.shots - gun.done >= IN_FLIGHT - 16 || rounds == end)
            continue;
        err = gun.dead[target]
                  ? 0
                  : shoot(&gun, town, is_whole ? 1 : kind, target, number_next(&gun, town));
        /* While a connection comes up the provider refuses. */
        if (err && xt_seconds() < limit)
            continue;
        gun.dead[target] |= err != 0;
        if (!gun.dead[target]) {
            gun.shots++;
            atomic_fetch_add_explicit(&town->shots, 1, memory_order_relaxed);
        }
        limit = xt_seconds() + CONNECT_S;
        target = (target + 1) % gun.target_count;
        rounds += target == 0 && gun.shots > 0;
        if (target == 0 && gun.shots == 0) /* a busy machine */
            memset(gun.dead, 0, sizeof(gun.dead));
    }
}

static void use(const char *name, const char *path)
{
    void *library = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

    if (access(LIBRARY, R_OK) != 0 || !library)
        XT_SKIP("the plugin was not built, or libfabric1 is not installed");
    dlclose(library);
    provider = name;
    call_messages = strstr(name, "rxd") ? 76 : 7; /* four ranks, two ranks */
    xt_allow_leaks("libfabric keeps threads and memory");
    xt_setenv("XCCL_NET_PLUGIN", LIBRARY);
    xt_setenv("XCCL_PLUGIN_PROBE_S", "0");
    xt_setenv("XCCL_OFI_PROVIDER", name);
    xt_setenv("XCCL_OFI_PATH", path);
    xt_setenv("FI_PROVIDER", "tcp,ofi_rxm,udp,ofi_rxd,net");
    xt_setenv("FI_OFI_RXM_BUFFER_SIZE", "2048");
    xt_setenv("FI_OFI_RXM_MSG_RX_SIZE", "64");
    /* udp;ofi_rxd sends no more than 64 KiB at once. */
    xt_setenv("XCCL_BUFFER_BYTES", strstr(name, "rxd") ? "1048576" : NULL);
}

static const size_t counts[3] = {300000, 2, 300000};

/* may_end: a stranger can bring the provider itself to an end (plugins/net-ofi/README.md). */
static void injected(const char *name, const char *path, int ranks, uint64_t seeds, int may_end)
{
    struct town_sum sum;
    char what[64];

    use(name, path);
    snprintf(what, sizeof(what), "%s by %s", name, path);
    town_run_seeds(what, ranks, counts, attack, seeds, 0.4, &sum);
    XT_CHECK(sum.jobs > 0 && sum.shots > 0);
    XT_CHECK_INT(sum.wrong, 0);
    XT_CHECK_INT(sum.hung, 0);
    if (!may_end)
        XT_CHECK_INT(sum.lost, 0);
}

XT_TEST_DEADLINE(blind_shots_over_tcp_change_nothing, 60)
{
    injected("tcp;ofi_rxm", "message", 2, 3, 0);
}

XT_TEST_DEADLINE(blind_shots_at_writes_over_tcp_change_nothing, 60)
{
    injected("tcp;ofi_rxm", "write", 2, 1, 0);
}

XT_TEST_DEADLINE(blind_shots_over_udp_change_nothing, 60)
{
    injected("udp;ofi_rxd", "message", 4, 1, 0);
}

XT_TEST_DEADLINE(blind_shots_over_net_change_nothing, 60)
{
    injected("net", "message", 2, 1, 0);
}

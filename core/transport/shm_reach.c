/* SPDX-License-Identifier: BSD-3-Clause */
/* Who reads whose memory in place (reach.h). Ranks of one process share offers, which lie beside
 * the segment that the link lies in. Arenas of other processes come over the connections that hand
 * out segments, once for all ranks of a process; either all ranks of a host have all of them, or
 * nobody uses any. Thread: see shm.h. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "transport/arena.h"
#include "transport/shm_int.h"

#define DIRECT_MIN    4096u
#define ADDRESS_MIN   (16u << 10) /* bytes of a message that are worth a system call */
#define MULTICAST_KEY UINT64_MAX /* FIFOs have their place in the pool as a key */

/* Nobody listens there: it names the arena of a process in the table of segments. */
static struct xccl_addr arena_name(uint64_t process)
{
    struct xccl_addr name = {0};
    char *at = name.sa.un.sun_path + 1;

    name.sa.un.sun_family = AF_UNIX;
    name.bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                             (size_t)snprintf(at, 32, "xccl-arena-%016llx",
                                              (unsigned long long)process));
    return name;
}

xcclResult_t xccl_shm_note_processes(struct xccl_shm *shm, const struct xccl_shm_args *args)
{
    size_t n = (size_t)args->nlocal;

    if (!args->processes)
        return xcclSuccess;
    shm->processes = xccl_calloc(n, sizeof *shm->processes);
    shm->arenas = xccl_calloc(n, sizeof(void *));
    shm->has_arenas = 1;
    if (!shm->processes || !shm->arenas)
        return xcclSystemError;
    memcpy(shm->processes, args->processes, n * sizeof *shm->processes);
    return xcclSuccess;
}

static int is_near(const struct xccl_shm *shm, int index)
{
    return shm->processes[index].id == shm->processes[shm->local_index].id;
}

static int are_all_near(const struct xccl_shm *shm)
{
    for (int i = 0; i < shm->nlocal; i++)
        if (!is_near(shm, i))
            return 0;
    return 1;
}

struct fetch {
    const struct xccl_shm *shm;
    const struct xccl_addr *addr;
    const struct xccl_limit *limit;
    size_t bytes;
};

static xcclResult_t fetch_map(void *owner, struct xccl_map *map_out)
{
    const struct fetch *fetch = owner;
    int fd = -1;
    xcclResult_t rc = xccl_shm_ask(fetch->shm, fetch->addr, XCCL_PURPOSE_ARENA, 0, fetch->limit,
                                   &fd);

    if (!rc)
        rc = xccl_map_open_to_read(fd, fetch->bytes, map_out);
    if (rc)
        return rc;
    xccl_tcp_close(&map_out->fd); /* the map keeps the memory */
    return xcclSuccess;
}

void xccl_shm_fetch_arena(struct xccl_shm *shm, int index, const struct xccl_addr *addr,
                          const struct xccl_limit *limit)
{
    struct fetch fetch = {shm, addr, limit, 0};
    struct xccl_addr name;
    xcclResult_t rc;

    if (!shm->has_arenas || is_near(shm, index) || !shm->processes[index].arena_bytes)
        return;
    fetch.bytes = (size_t)shm->processes[index].arena_bytes;
    name = arena_name(shm->processes[index].id);
    rc = xccl_segment_get(&name, limit, fetch_map, &fetch, &shm->arenas[index]);
    if (!rc && xccl_segment_bytes(shm->arenas[index]) != fetch.bytes)
        rc = xccl_fail_quietly(xcclRemoteError, 0, NULL,
                               "its size differs from the announced size");
    shm->has_arenas = !rc;
    if (rc)
        xccl_log(XCCL_LOG_INFO, "memory of rank %d is not read in place: %s",
                 shm->local_ranks[index], xccl_error_text());
}

int xccl_shm_has_arenas(const struct xccl_shm *shm)
{
    return shm->has_arenas;
}

int xccl_shm_unread_peer(const struct xccl_shm *shm)
{
    if (!shm->processes) {
        (void)xccl_fail_quietly(xcclSystemError, 0, NULL,
                                "XCCL_DIRECT is 0 on a rank of this host");
        return shm->local_ranks[0];
    }
    for (int i = 0; i < shm->nlocal; i++) {
        const struct xccl_shm_process *process = &shm->processes[i];

        if (!is_near(shm, i) && xccl_peer_try((int)process->pid, &process->mark) != xcclSuccess)
            return shm->local_ranks[i];
    }
    return -1;
}

xcclResult_t xccl_shm_agree(struct xccl_shm *shm, int arenas, int peers)
{
    shm->reaches = arenas && shm->has_arenas;
    if (!peers)
        return xcclSuccess;
    shm->room = xccl_calloc_aligned(4096, shm->sizes.slice_bytes);
    shm->reads_peers = shm->room != NULL;
    return shm->room ? xcclSuccess : xcclSystemError;
}

int xccl_shm_takes_addresses(const struct xccl_shm *shm)
{
    return shm->reads_peers;
}

int xccl_shm_reads_in_place(const struct xccl_shm *shm, int *all_out)
{
    *all_out = shm->reaches && are_all_near(shm);
    return shm->reaches && shm->processes[shm->local_index].arena_bytes;
}

void xccl_shm_drop_arenas(struct xccl_shm *shm)
{
    for (int i = 0; shm->arenas && i < shm->nlocal; i++)
        xccl_segment_put(shm->arenas[i]);
    xccl_free(shm->arenas);
    xccl_free(shm->room);
    xccl_free(shm->processes);
}

/* --- the ends --- */

static xcclResult_t share_offers(struct xccl_shm *shm, int owner, uint64_t key,
                                 struct xccl_reach *reach)
{
    reach->offers = xccl_segment_side(shm->segments[owner], key,
                                      XCCL_SHM_SLOTS * sizeof *reach->offers);
    return reach->offers ? xcclSuccess : xcclSystemError;
}

static uint64_t fifo_key(const struct xccl_shm *shm, int sender, uint32_t id)
{
    return (uint64_t)id * (uint64_t)shm->nlocal + (uint64_t)sender;
}

static void send_to_arenas(const struct xccl_shm *shm, struct xccl_reach *reach)
{
    reach->takes_places = shm->processes[shm->local_index].arena_bytes != 0;
}

static void read_arena(const struct xccl_shm *shm, int from, struct xccl_reach *reach)
{
    if (!shm->processes[from].arena_bytes)
        return;
    reach->arena_bytes = (size_t)shm->processes[from].arena_bytes;
    if (is_near(shm, from))
        /* Relaxed: this rank has held it since before the links. */
        reach->arena = atomic_load_explicit(&xccl_arena.base, memory_order_relaxed);
    else
        reach->arena = xccl_segment_base(shm->arenas[from]);
}

static void read_private(const struct xccl_shm *shm, int from, struct xccl_reach *reach)
{
    if (!shm->reads_peers)
        return;
    reach->pid = (int)shm->processes[from].pid;
    reach->room = shm->room;
}

xcclResult_t xccl_shm_fifo_send_reach(struct xccl_shm *shm, int to_index, uint32_t id,
                                      struct xccl_reach *reach_out)
{
    *reach_out = (struct xccl_reach){.min_bytes = DIRECT_MIN, .address_min = ADDRESS_MIN};
    reach_out->takes_addresses = shm->reads_peers && !is_near(shm, to_index);
    if (!shm->reaches)
        return xcclSuccess;
    send_to_arenas(shm, reach_out);
    if (!is_near(shm, to_index))
        return xcclSuccess;
    return share_offers(shm, to_index, fifo_key(shm, shm->local_index, id), reach_out);
}

xcclResult_t xccl_shm_fifo_recv_reach(struct xccl_shm *shm, int from_index, uint32_t id,
                                      struct xccl_reach *reach_out)
{
    *reach_out = (struct xccl_reach){.min_bytes = DIRECT_MIN, .address_min = ADDRESS_MIN};
    read_private(shm, from_index, reach_out);
    if (!shm->reaches)
        return xcclSuccess;
    read_arena(shm, from_index, reach_out);
    if (!is_near(shm, from_index))
        return xcclSuccess;
    return share_offers(shm, shm->local_index, fifo_key(shm, from_index, id), reach_out);
}

xcclResult_t xccl_shm_multicast_send_reach(struct xccl_shm *shm, struct xccl_reach *reach_out)
{
    *reach_out = (struct xccl_reach){.min_bytes = DIRECT_MIN, .address_min = ADDRESS_MIN};
    reach_out->takes_addresses = (uint8_t)shm->reads_peers;
    if (!shm->reaches)
        return xcclSuccess;
    send_to_arenas(shm, reach_out);
    if (!are_all_near(shm))
        return xcclSuccess;
    return share_offers(shm, shm->local_index, MULTICAST_KEY, reach_out);
}

xcclResult_t xccl_shm_multicast_recv_reach(struct xccl_shm *shm, int from_index,
                                           struct xccl_reach *reach_out)
{
    *reach_out = (struct xccl_reach){.min_bytes = DIRECT_MIN, .address_min = ADDRESS_MIN};
    read_private(shm, from_index, reach_out);
    if (!shm->reaches)
        return xcclSuccess;
    read_arena(shm, from_index, reach_out);
    if (!are_all_near(shm))
        return xcclSuccess;
    return share_offers(shm, from_index, MULTICAST_KEY, reach_out);
}

static void revoke_offers(struct xccl_offer *offers)
{
    /* Sequentially consistent: see begin_reading() in exec/host/slots.h. */
    for (uint32_t i = 0; i < XCCL_SHM_SLOTS; i++)
        atomic_store_explicit(&offers[i].at, XCCL_OFFER_REVOKED, memory_order_seq_cst);
    for (uint32_t i = 0; i < XCCL_SHM_SLOTS; i++)
        while (atomic_load_explicit(&offers[i].readers, memory_order_seq_cst))
            sched_yield(); /* they are threads of this process, in the middle of a copy */
}

static void revoke_addresses(const struct xccl_link *link)
{
    for (uint32_t i = 0; i < link->nslots; i++) {
        struct xccl_slot_header *header = (void *)(link->header + (size_t)i * link->header_stride);

        /* Relaxed: only this rank writes it. */
        if (atomic_load_explicit(&header->place, memory_order_relaxed) & XCCL_PLACE_ADDRESS)
            atomic_store_explicit(&header->place, XCCL_PLACE_REVOKED, memory_order_relaxed);
    }
    /* Release: before what the program writes there next. Pairs with read_peer() in
     * exec/host/slots.h. */
    atomic_thread_fence(memory_order_release);
}

void xccl_reach_revoke(struct xccl_reach *reach, const struct xccl_link *link)
{
    if (!reach->is_open)
        return;
    if (reach->offers)
        revoke_offers(reach->offers);
    else if (reach->takes_addresses)
        revoke_addresses(link);
    else
        return;
    reach->is_open = 0;
}

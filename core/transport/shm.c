/* SPDX-License-Identifier: BSD-3-Clause */
/* The segment's layout, and how segments travel. All offsets follow from two numbers, the ranks on
 * the host and the slice size, which every rank computes for itself; nothing that a peer writes
 * into a segment is ever used as an offset or a length. A segment is large and nearly empty: only
 * the pools of links that were made have memory. Thread: see shm.h. */
#include "transport/shm.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "bootstrap/acceptor.h"

#define SEGMENT_MAGIC 0x3143435832304853ull
#define PAGE          4096u
#define LINE_SLOTS    16u
/* Of multicasts and of FIFOs. Six with a lag of two are five for schedules, the most that they ask
 * for; multicasts ask for two at most. */
#define SMALL_SLOTS     16u
#define SMALL_SLOTS_ONE 6u
#define SLICE_SLOTS     3u
#define SLICE_SLOTS_ONE 6u
#define LINES_PER_SLOT  (XCCL_LINES_MAX_BYTES / XCCL_LINE_DATA)
#define LINE_SLOT_BYTES (LINES_PER_SLOT * XCCL_LINE_BYTES)
#define SMALL_STRIDE    (XCCL_LINE_BYTES + XCCL_SMALL_MAX_BYTES)
#define SLICE_STRIDE    128u
#define SLICE_MIN       (8u << 10)
#define HANDOUT_MS      1000

static_assert(LINES_PER_SLOT * XCCL_LINE_DATA == XCCL_LINES_MAX_BYTES, "lines are used whole");

struct segment_head {
    uint64_t magic;
    uint32_t nlocal, local_index, slice_bytes, reserved;
};

/* Where the slots of one protocol lie, from the start of what has them. */
struct pool {
    size_t heads, headers, payload, end;
    uint32_t header_stride, payload_stride, slot_bytes;
    uint32_t nslots;
    uint16_t lag;
};

/* Offsets in a segment; those of FIFO pools are from the start of their region. */
struct layout {
    size_t board;
    struct pool multicast[XCCL_PROTO_COUNT], fifo[XCCL_PROTO_COUNT];
    size_t regions, region_bytes; /* by index of the sender, then by id */
    size_t bytes;
};

struct xccl_shm {
    int nlocal, local_index, rank, nranks;
    uint32_t slice_bytes;
    int *local_ranks;
    struct layout layout;
    size_t taken; /* bytes of the own segment */
    struct xccl_map *maps; /* by local index */
    struct xccl_acceptor *acceptor;
    uint8_t comm_id[16], key[32];
};

static size_t reserve(size_t *at, size_t align, size_t bytes)
{
    size_t start = (*at + align - 1) & ~(align - 1);

    *at = start + bytes;
    return start;
}

/* Readers publish their head for half of the slots at a time, or for as many as leave schedules
 * what they ask for. */
static uint16_t lag_of(uint32_t nslots)
{
    if (nslots <= 3)
        return 1;
    return nslots < 2 * XCCL_SLOTS_MAX ? (uint16_t)(nslots - XCCL_SLOTS_MAX + 1)
                                       : (uint16_t)(nslots / 2);
}

static struct pool pool_at(size_t *at, enum xccl_proto proto, uint32_t nheads, uint32_t nslots,
                           uint32_t slice_bytes)
{
    struct pool pool = {.heads = reserve(at, PAGE, (size_t)nheads * XCCL_HEAD_STRIDE),
                        .nslots = nslots,
                        .lag = lag_of(nslots)};

    switch (proto) {
    case XCCL_PROTO_LINES:
        pool.header_stride = pool.payload_stride = LINE_SLOT_BYTES;
        pool.slot_bytes = XCCL_LINES_MAX_BYTES;
        pool.headers = pool.payload = reserve(at, XCCL_HEAD_STRIDE,
                                              (size_t)nslots * LINE_SLOT_BYTES);
        break;
    case XCCL_PROTO_SMALL:
        pool.header_stride = pool.payload_stride = SMALL_STRIDE;
        pool.slot_bytes = XCCL_SMALL_MAX_BYTES;
        pool.headers = reserve(at, XCCL_HEAD_STRIDE, (size_t)nslots * SMALL_STRIDE);
        pool.payload = pool.headers + XCCL_LINE_BYTES;
        break;
    default:
        pool.header_stride = SLICE_STRIDE;
        pool.payload_stride = pool.slot_bytes = slice_bytes;
        pool.headers = reserve(at, SLICE_STRIDE, (size_t)nslots * SLICE_STRIDE);
        pool.payload = reserve(at, PAGE, (size_t)nslots * slice_bytes);
        break;
    }
    pool.end = *at;
    return pool;
}

static struct layout layout_of(int nlocal, uint32_t slice_bytes)
{
    static const uint32_t multicast_slots[] = {LINE_SLOTS, SMALL_SLOTS, SLICE_SLOTS};
    static const uint32_t fifo_slots[] = {LINE_SLOTS, SMALL_SLOTS_ONE, SLICE_SLOTS_ONE};
    size_t at = sizeof(struct segment_head), in_region = 0;
    struct layout layout;

    layout.board = reserve(&at, XCCL_HEAD_STRIDE, sizeof(struct xccl_board));
    for (int proto = 0; proto < XCCL_PROTO_COUNT; proto++) {
        layout.multicast[proto] = pool_at(&at, (enum xccl_proto)proto, (uint32_t)nlocal,
                                          multicast_slots[proto], slice_bytes);
        layout.fifo[proto] = pool_at(&in_region, (enum xccl_proto)proto, 1, fifo_slots[proto],
                                     slice_bytes);
    }
    layout.region_bytes = (in_region + PAGE - 1) & ~(size_t)(PAGE - 1);
    layout.regions = reserve(&at, PAGE, layout.region_bytes * XCCL_SHM_IDS * (size_t)nlocal);
    layout.bytes = at;
    return layout;
}

/* With every pair of ranks linked once, over slots of all kinds. */
static size_t bytes_taken(int nlocal, uint32_t slice_bytes)
{
    struct layout layout = layout_of(nlocal, slice_bytes);

    return layout.regions + layout.region_bytes * (size_t)(nlocal - 1);
}

/* All slots of a host should stay well inside its last cache, so slices shrink as ranks grow. */
uint32_t xccl_shm_slice_bytes(int nlocal, uint64_t budget_bytes)
{
    uint32_t slice = nlocal <= 2 ? 128u << 10 : nlocal <= 4 ? 64u << 10 : 32u << 10;

    if (nlocal > 16)
        slice = 16u << 10;
    while (slice > SLICE_MIN && bytes_taken(nlocal, slice) > budget_bytes)
        slice /= 2;
    return slice;
}

xcclResult_t xccl_shm_new_addr(struct xccl_addr *addr_out)
{
    struct xccl_addr addr = {0};
    uint8_t random[16];
    char *at = addr.sa.un.sun_path + 1; /* an abstract name begins with a zero byte */
    int bytes;
    xcclResult_t rc;

    rc = xccl_os_random(random, sizeof random);
    if (rc)
        return rc;
    addr.sa.un.sun_family = AF_UNIX;
    bytes = snprintf(at, 8, "xccl-");
    for (size_t i = 0; i < sizeof random; i++)
        bytes += snprintf(at + bytes, 3, "%02x", random[i]);
    addr.bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)bytes);
    *addr_out = addr;
    return xcclSuccess;
}

/* On the service thread: a rank of this host wants the segment. */
static void hand_out(void *owner, struct xccl_conn *conn)
{
    struct xccl_limit limit = xccl_limit_ms(HANDOUT_MS, NULL);
    struct xccl_shm *shm = owner;

    if (xccl_conn_hello(conn)->purpose == XCCL_PURPOSE_SEGMENT)
        (void)xccl_tcp_send_fd(xccl_conn_fd(conn), shm->maps[shm->local_index].fd, &limit);
    xccl_conn_close(conn);
}

static xcclResult_t listen_for_peers(struct xccl_shm *shm, const struct xccl_shm_args *args)
{
    struct xccl_acceptor_args acceptor = {.loop = args->loop,
                                          .addr = args->addr,
                                          .on_conn = hand_out,
                                          .owner = shm,
                                          .rank = (uint32_t)args->rank,
                                          .nranks = (uint32_t)args->nranks};

    memcpy(acceptor.key, args->key, sizeof acceptor.key);
    memcpy(acceptor.comm_id, args->comm_id, sizeof acceptor.comm_id);
    return xccl_acceptor_open(&acceptor, &shm->acceptor);
}

static xcclResult_t make_segment(struct xccl_shm *shm)
{
    struct xccl_map *map = &shm->maps[shm->local_index];
    struct segment_head *head;
    xcclResult_t rc;

    rc = xccl_map_create("xccl", shm->layout.bytes, map);
    if (rc)
        return rc;
    head = map->base;
    head->nlocal = (uint32_t)shm->nlocal;
    head->local_index = (uint32_t)shm->local_index;
    head->slice_bytes = shm->slice_bytes;
    head->magic = SEGMENT_MAGIC;
    shm->taken = PAGE;
    xccl_log(XCCL_LOG_DEBUG,
             "shared memory: room for %zu bytes, %u-byte slices, %d ranks on this host",
             shm->layout.bytes, shm->slice_bytes, shm->nlocal);
    return xcclSuccess;
}

xcclResult_t xccl_shm_create(const struct xccl_shm_args *args, struct xccl_shm **shm_out)
{
    struct xccl_shm *shm = xccl_calloc(1, sizeof *shm);
    xcclResult_t rc = xcclSystemError;

    if (!shm)
        return rc;
    shm->nlocal = args->nlocal;
    shm->local_index = args->local_index;
    shm->rank = args->rank;
    shm->nranks = args->nranks;
    shm->slice_bytes = args->slice_bytes;
    shm->layout = layout_of(args->nlocal, args->slice_bytes);
    memcpy(shm->comm_id, args->comm_id, sizeof shm->comm_id);
    memcpy(shm->key, args->key, sizeof shm->key);
    shm->local_ranks = xccl_calloc((size_t)args->nlocal, sizeof *shm->local_ranks);
    shm->maps = xccl_calloc((size_t)args->nlocal, sizeof *shm->maps);
    if (!shm->local_ranks || !shm->maps)
        goto fail;
    memcpy(shm->local_ranks, args->local_ranks, (size_t)args->nlocal * sizeof *shm->local_ranks);
    rc = make_segment(shm);
    if (rc)
        goto fail;
    rc = listen_for_peers(shm, args);
    if (rc)
        goto fail;
    *shm_out = shm;
    return xcclSuccess;
fail:
    xccl_shm_destroy(shm);
    return rc;
}

static xcclResult_t check_segment(const struct xccl_shm *shm, int index)
{
    const struct segment_head *head = shm->maps[index].base;

    if (head->magic == SEGMENT_MAGIC && head->nlocal == (uint32_t)shm->nlocal &&
        head->local_index == (uint32_t)index && head->slice_bytes == shm->slice_bytes)
        return xcclSuccess;
    return xccl_fail(xcclRemoteError, 0, "use the same XCCL version on all ranks",
                     "the shared memory segment of rank %d has another layout",
                     shm->local_ranks[index]);
}

xcclResult_t xccl_shm_fetch(struct xccl_shm *shm, int index, const struct xccl_addr *addr,
                            const struct xccl_limit *limit)
{
    struct xccl_hello hello = {.rank = (uint32_t)shm->rank,
                               .nranks = (uint32_t)shm->nranks,
                               .purpose = XCCL_PURPOSE_SEGMENT};
    struct xccl_conn *conn;
    xcclResult_t rc;
    int fd = -1;

    if (index == shm->local_index)
        return xcclSuccess;
    memcpy(hello.comm_id, shm->comm_id, sizeof hello.comm_id);
    rc = xccl_conn_open(addr, shm->key, &hello, limit, &conn);
    if (rc)
        return rc;
    rc = xccl_tcp_recv_fd(xccl_conn_fd(conn), limit, &fd);
    xccl_conn_close(conn);
    if (rc)
        return rc;
    rc = xccl_map_open(fd, shm->layout.bytes, &shm->maps[index]);
    if (rc)
        return rc;
    xccl_tcp_close(&shm->maps[index].fd); /* the map keeps the memory */
    return check_segment(shm, index);
}

void xccl_shm_seal(struct xccl_shm *shm)
{
    xccl_acceptor_close(shm->acceptor);
    shm->acceptor = NULL;
    xccl_tcp_close(&shm->maps[shm->local_index].fd);
}

void xccl_shm_destroy(struct xccl_shm *shm)
{
    if (!shm)
        return;
    xccl_acceptor_close(shm->acceptor);
    for (int i = 0; shm->maps && i < shm->nlocal; i++)
        xccl_map_close(&shm->maps[i]);
    xccl_free(shm->maps);
    xccl_free(shm->local_ranks);
    xccl_free(shm);
}

int xccl_shm_nlocal(const struct xccl_shm *shm)
{
    return shm->nlocal;
}

int xccl_shm_rank_of(const struct xccl_shm *shm, int index)
{
    return shm->local_ranks[index];
}

int xccl_shm_index_of(const struct xccl_shm *shm, int rank)
{
    for (int i = 0; i < shm->nlocal; i++)
        if (shm->local_ranks[i] == rank)
            return i;
    return -1;
}

size_t xccl_shm_bytes(const struct xccl_shm *shm)
{
    return shm->taken;
}

static char *segment_at(struct xccl_shm *shm, int index, size_t offset)
{
    return (char *)shm->maps[index].base + offset;
}

struct xccl_board *xccl_shm_board(struct xccl_shm *shm, int index)
{
    return (void *)segment_at(shm, index, shm->layout.board);
}

/* A link on the slots of a pool that begins at offset in owner's segment. */
static xcclResult_t link_on(struct xccl_shm *shm, int owner, size_t offset, const struct pool *pool,
                            struct xccl_link *link_out)
{
    xcclResult_t rc = xccl_map_touch(segment_at(shm, owner, offset + pool->heads),
                                     pool->end - pool->heads);

    if (rc)
        return rc;
    if (owner == shm->local_index)
        shm->taken += pool->end - pool->heads;
    *link_out = (struct xccl_link){
        .header = segment_at(shm, owner, offset + pool->headers),
        .payload = segment_at(shm, owner, offset + pool->payload),
        .header_stride = pool->header_stride,
        .payload_stride = pool->payload_stride,
        .slot_bytes = pool->slot_bytes,
        .nslots = pool->nslots,
        .limit = pool->nslots,
        .lag = pool->lag,
        .heads = (void *)segment_at(shm, owner, offset + pool->heads),
        .nheads = 1,
        .own_head = UINT16_MAX,
    };
    return xcclSuccess;
}

xcclResult_t xccl_shm_multicast_send(struct xccl_shm *shm, enum xccl_proto proto,
                                     struct xccl_link *link_out)
{
    xcclResult_t rc = link_on(shm, shm->local_index, 0, &shm->layout.multicast[proto], link_out);

    if (rc)
        return rc;
    link_out->nheads = (uint16_t)shm->nlocal;
    link_out->own_head = (uint16_t)shm->local_index;
    link_out->peer = (uint16_t)shm->rank;
    return xcclSuccess;
}

xcclResult_t xccl_shm_multicast_recv(struct xccl_shm *shm, enum xccl_proto proto, int from_index,
                                     struct xccl_link *link_out)
{
    xcclResult_t rc = link_on(shm, from_index, 0, &shm->layout.multicast[proto], link_out);

    if (rc)
        return rc;
    link_out->heads += (size_t)shm->local_index * (XCCL_HEAD_STRIDE / sizeof *link_out->heads);
    link_out->peer = (uint16_t)shm->local_ranks[from_index];
    return xcclSuccess;
}

/* In the receiver's segment. */
static xcclResult_t fifo_on(struct xccl_shm *shm, enum xccl_proto proto, int receiver, int sender,
                            uint32_t id, struct xccl_link *link_out)
{
    const struct layout *layout = &shm->layout;

    if (id >= XCCL_SHM_IDS)
        return xccl_fail(xcclInternalError, 0, "use another algorithm",
                         "connection %u of one pair of ranks, and shared memory has room for %d",
                         id, XCCL_SHM_IDS);
    return link_on(shm, receiver,
                   layout->regions + layout->region_bytes * ((size_t)sender * XCCL_SHM_IDS + id),
                   &layout->fifo[proto], link_out);
}

xcclResult_t xccl_shm_fifo_send(struct xccl_shm *shm, enum xccl_proto proto, int to_index,
                                uint32_t id, struct xccl_link *link_out)
{
    xcclResult_t rc = fifo_on(shm, proto, to_index, shm->local_index, id, link_out);

    if (rc == xcclSuccess)
        link_out->peer = (uint16_t)shm->local_ranks[to_index];
    return rc;
}

xcclResult_t xccl_shm_fifo_recv(struct xccl_shm *shm, enum xccl_proto proto, int from_index,
                                uint32_t id, struct xccl_link *link_out)
{
    xcclResult_t rc = fifo_on(shm, proto, shm->local_index, from_index, id, link_out);

    if (rc == xcclSuccess)
        link_out->peer = (uint16_t)shm->local_ranks[from_index];
    return rc;
}

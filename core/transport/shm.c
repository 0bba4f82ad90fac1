/* SPDX-License-Identifier: BSD-3-Clause */
/* The segment's layout, and how segments travel. All offsets follow from two numbers, the ranks on
 * the host and the slice size, which every rank computes for itself; nothing that a peer writes
 * into a segment is ever used as an offset or a length. Thread: see shm.h. */
#include "transport/shm.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "bootstrap/acceptor.h"

#define SEGMENT_MAGIC   0x3143435832304853ull
#define PAGE            4096u
#define LINE_SLOTS      16u
#define SMALL_SLOTS     16u
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

/* Offsets in a segment. */
struct layout {
    size_t board, ring_head, heads[XCCL_PROTO_COUNT];
    size_t lines, smalls, slice_headers, ring_headers;
    size_t slices, ring_slices;
    size_t bytes;
};

struct xccl_shm {
    int nlocal, local_index, rank, nranks;
    uint32_t slice_bytes;
    int *local_ranks;
    struct layout layout;
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

static struct layout layout_of(int nlocal, uint32_t slice_bytes)
{
    size_t at = sizeof(struct segment_head);
    struct layout layout;

    layout.board = reserve(&at, XCCL_HEAD_STRIDE, sizeof(struct xccl_board));
    layout.ring_head = reserve(&at, XCCL_HEAD_STRIDE, XCCL_HEAD_STRIDE);
    for (int proto = 0; proto < XCCL_PROTO_COUNT; proto++)
        layout.heads[proto] = reserve(&at, XCCL_HEAD_STRIDE, (size_t)nlocal * XCCL_HEAD_STRIDE);
    layout.lines = reserve(&at, XCCL_HEAD_STRIDE, (size_t)LINE_SLOTS * LINE_SLOT_BYTES);
    layout.smalls = reserve(&at, XCCL_HEAD_STRIDE, (size_t)SMALL_SLOTS * SMALL_STRIDE);
    layout.slice_headers = reserve(&at, SLICE_STRIDE, (size_t)XCCL_SHM_SLICES * SLICE_STRIDE);
    layout.ring_headers = reserve(&at, SLICE_STRIDE, (size_t)XCCL_SHM_SLICES * SLICE_STRIDE);
    layout.slices = reserve(&at, PAGE, (size_t)XCCL_SHM_SLICES * slice_bytes);
    layout.ring_slices = reserve(&at, PAGE, (size_t)XCCL_SHM_SLICES * slice_bytes);
    layout.bytes = (at + PAGE - 1) & ~(size_t)(PAGE - 1);
    return layout;
}

/* All slots of a host should stay well inside its last cache, so slices shrink as ranks grow. */
uint32_t xccl_shm_slice_bytes(int nlocal, uint64_t budget_bytes)
{
    uint32_t slice = nlocal <= 2 ? 256u << 10 : nlocal <= 4 ? 128u << 10 : 64u << 10;

    if (nlocal > 16)
        slice = 32u << 10;
    while (slice > SLICE_MIN && layout_of(nlocal, slice).bytes > budget_bytes)
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
    xccl_log(XCCL_LOG_DEBUG, "shared memory: %zu bytes, %u-byte slices, %d ranks on this host",
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
    return shm->layout.bytes;
}

static char *segment_at(struct xccl_shm *shm, int index, size_t offset)
{
    return (char *)shm->maps[index].base + offset;
}

struct xccl_board *xccl_shm_board(struct xccl_shm *shm, int index)
{
    return (void *)segment_at(shm, index, shm->layout.board);
}

/* The slots of a multicast, in its writer's segment. */
static void multicast_slots(struct xccl_shm *shm, enum xccl_proto proto, int writer,
                            struct xccl_link *link)
{
    const struct layout *layout = &shm->layout;

    *link = (struct xccl_link){.heads = (void *)segment_at(shm, writer, layout->heads[proto])};
    switch (proto) {
    case XCCL_PROTO_LINES:
        link->header = link->payload = segment_at(shm, writer, layout->lines);
        link->header_stride = link->payload_stride = LINE_SLOT_BYTES;
        link->nslots = LINE_SLOTS;
        link->slot_bytes = XCCL_LINES_MAX_BYTES;
        break;
    case XCCL_PROTO_SMALL:
        link->header = segment_at(shm, writer, layout->smalls);
        link->payload = link->header + XCCL_LINE_BYTES;
        link->header_stride = link->payload_stride = SMALL_STRIDE;
        link->nslots = SMALL_SLOTS;
        link->slot_bytes = XCCL_SMALL_MAX_BYTES;
        break;
    default:
        link->header = segment_at(shm, writer, layout->slice_headers);
        link->payload = segment_at(shm, writer, layout->slices);
        link->header_stride = SLICE_STRIDE;
        link->payload_stride = link->slot_bytes = shm->slice_bytes;
        link->nslots = XCCL_SHM_SLICES;
        break;
    }
    link->limit = link->nslots;
}

void xccl_shm_multicast_send(struct xccl_shm *shm, enum xccl_proto proto,
                             struct xccl_link *link_out)
{
    multicast_slots(shm, proto, shm->local_index, link_out);
    link_out->nheads = (uint16_t)shm->nlocal;
    link_out->own_head = (uint16_t)shm->local_index;
    link_out->peer = (uint16_t)shm->rank;
}

void xccl_shm_multicast_recv(struct xccl_shm *shm, enum xccl_proto proto, int from_index,
                             struct xccl_link *link_out)
{
    multicast_slots(shm, proto, from_index, link_out);
    link_out->heads += (size_t)shm->local_index * (XCCL_HEAD_STRIDE / sizeof *link_out->heads);
    link_out->nheads = 1;
    link_out->own_head = UINT16_MAX;
    link_out->peer = (uint16_t)shm->local_ranks[from_index];
}

/* The slots of the ring, in the receiver's segment. */
static void ring_slots(struct xccl_shm *shm, int receiver, int peer_index, struct xccl_link *link)
{
    *link = (struct xccl_link){
        .header = segment_at(shm, receiver, shm->layout.ring_headers),
        .payload = segment_at(shm, receiver, shm->layout.ring_slices),
        .header_stride = SLICE_STRIDE,
        .payload_stride = shm->slice_bytes,
        .slot_bytes = shm->slice_bytes,
        .nslots = XCCL_SHM_SLICES,
        .limit = XCCL_SHM_SLICES,
        .heads = (void *)segment_at(shm, receiver, shm->layout.ring_head),
        .nheads = 1,
        .own_head = UINT16_MAX,
        .peer = (uint16_t)shm->local_ranks[peer_index],
    };
}

void xccl_shm_ring_send(struct xccl_shm *shm, int to_index, struct xccl_link *link_out)
{
    ring_slots(shm, to_index, to_index, link_out);
}

void xccl_shm_ring_recv(struct xccl_shm *shm, int from_index, struct xccl_link *link_out)
{
    ring_slots(shm, shm->local_index, from_index, link_out);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The segment's layout, and how segments travel. All offsets follow from two numbers, the ranks on
 * the host and the slice size, which every rank computes for itself; nothing that a peer writes
 * into a segment is ever used as an offset or a length. A segment is large and nearly empty: only
 * the pools of links that were made have memory, and links of a kind lie side by side, so that many
 * of them share pages and page tables.
 *
 * Ranks of one process use one map of each segment (segments.h): the owner's, or that of the first
 * who fetched it. Thread: see shm.h. */
#include "transport/shm.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "bootstrap/acceptor.h"
#include "transport/arena.h"
#include "transport/shm_int.h"

#define SEGMENT_MAGIC 0x3143435832304853ull
#define PAGE          4096u
#define LINE_SLOTS    16u
/* Of multicasts and of FIFOs. Six with a lag of two are five for schedules, the most that they ask
 * for; multicasts ask for two at most. */
#define SMALL_SLOTS     16u
#define SMALL_SLOTS_ONE 6u
#define SLICE_SLOTS     3u
#define SLICE_SLOTS_ONE XCCL_SHM_SLOTS
#define LINES_PER_SLOT  (XCCL_LINES_MAX_BYTES / XCCL_LINE_DATA)
#define LINE_SLOT_BYTES (LINES_PER_SLOT * XCCL_LINE_BYTES)
#define SMALL_STRIDE    (XCCL_LINE_BYTES + XCCL_SMALL_MAX_BYTES)
#define SLICE_STRIDE    128u
#define SLICE_MIN       (8u << 10)
#define HANDOUT_MS      1000

/* Of tight slots. A link between every two ranks of a host, and another for sends and receives,
 * takes memory that grows with the square of the ranks: all of them together shall stay within so
 * much on a host, whatever each rank may take. */
#define HOST_BYTES     (2ull << 30)
#define TIGHT_SLOTS    3u
#define TIGHT_STRIDE   XCCL_LINE_BYTES
#define TIGHT_LINK_MIN 2048u
#define TIGHT_LINK_MAX (64u << 10) /* beyond, slices have room */

static_assert(LINES_PER_SLOT * XCCL_LINE_DATA == XCCL_LINES_MAX_BYTES, "lines are used whole");

struct segment_head {
    uint64_t magic;
    uint32_t nlocal, local_index, slice_bytes, tight_bytes;
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

/* Offsets within the place of a link with so many readers. */
static struct pool pool_of(enum xccl_proto proto, uint32_t nheads, uint32_t nslots,
                           const struct xccl_shm_sizes *sizes)
{
    struct pool pool = {.nslots = nslots, .lag = lag_of(nslots)};
    size_t at = (size_t)nheads * XCCL_HEAD_STRIDE;

    switch (proto) {
    case XCCL_PROTO_LINES:
        pool.header_stride = pool.payload_stride = LINE_SLOT_BYTES;
        pool.slot_bytes = XCCL_LINES_MAX_BYTES;
        pool.headers = pool.payload = reserve(&at, XCCL_HEAD_STRIDE,
                                              (size_t)nslots * LINE_SLOT_BYTES);
        break;
    case XCCL_PROTO_SMALL:
        pool.header_stride = pool.payload_stride = SMALL_STRIDE;
        pool.slot_bytes = XCCL_SMALL_MAX_BYTES;
        pool.headers = reserve(&at, XCCL_HEAD_STRIDE, (size_t)nslots * SMALL_STRIDE);
        pool.payload = pool.headers + XCCL_LINE_BYTES;
        break;
    case XCCL_PROTO_TIGHT:
        pool.header_stride = TIGHT_STRIDE;
        pool.payload_stride = pool.slot_bytes = sizes->tight_bytes;
        pool.headers = reserve(&at, XCCL_LINE_BYTES, (size_t)nslots * TIGHT_STRIDE);
        pool.payload = reserve(&at, XCCL_LINE_BYTES, (size_t)nslots * sizes->tight_bytes);
        break;
    default:
        pool.lag = 1; /* who sent from its own memory waits for the head */
        pool.header_stride = SLICE_STRIDE;
        pool.payload_stride = pool.slot_bytes = sizes->slice_bytes;
        pool.headers = reserve(&at, SLICE_STRIDE, (size_t)nslots * SLICE_STRIDE);
        pool.payload = reserve(&at, PAGE, (size_t)nslots * sizes->slice_bytes);
        break;
    }
    pool.end = at;
    pool.bytes = reserve(&at, XCCL_HEAD_STRIDE, 0);
    return pool;
}

/* So many places side by side. Those of slices begin with a page, since their payload does. */
static void put_places(size_t *at, size_t places, struct pool *pool)
{
    pool->start = reserve(at, PAGE, places * pool->bytes);
}

static struct layout layout_of(int nlocal, const struct xccl_shm_sizes *sizes)
{
    static const uint32_t multicast_slots[] = {LINE_SLOTS, SMALL_SLOTS, SLICE_SLOTS, TIGHT_SLOTS};
    static const uint32_t fifo_slots[] = {LINE_SLOTS, SMALL_SLOTS_ONE, SLICE_SLOTS_ONE,
                                          TIGHT_SLOTS};
    size_t at = sizeof(struct segment_head);
    struct layout layout;

    layout.board = reserve(&at, XCCL_HEAD_STRIDE, sizeof(struct xccl_board));
    for (int proto = 0; proto < XCCL_PROTO_COUNT; proto++) {
        layout.multicast[proto] = pool_of((enum xccl_proto)proto, (uint32_t)nlocal,
                                          multicast_slots[proto], sizes);
        layout.fifo[proto] = pool_of((enum xccl_proto)proto, 1, fifo_slots[proto], sizes);
        put_places(&at, 1, &layout.multicast[proto]);
        put_places(&at, (size_t)nlocal * XCCL_SHM_IDS, &layout.fifo[proto]);
    }
    layout.extra = reserve(&at, PAGE, sizes->extra_bytes);
    layout.bytes = reserve(&at, PAGE, 0);
    return layout;
}

/* With every pair of ranks linked once, over slots of all kinds but tight ones. */
static size_t bytes_taken(int nlocal, const struct xccl_shm_sizes *sizes)
{
    struct layout layout = layout_of(nlocal, sizes);
    size_t bytes = PAGE;

    for (int proto = 0; proto < XCCL_PROTO_TIGHT; proto++)
        bytes += layout.multicast[proto].bytes + layout.fifo[proto].bytes * (size_t)(nlocal - 1);
    return bytes;
}

/* The sizes of tight slots, and whether they are needed. Every two ranks may have two links: one
 * for algorithms, one for sends and receives, which have lines and small slots besides. */
static void set_tight(int nlocal, uint64_t budget_bytes, struct xccl_shm_sizes *sizes)
{
    uint64_t link = TIGHT_LINK_MAX, links = 2 * (uint64_t)nlocal;
    uint64_t host = HOST_BYTES / (uint64_t)nlocal;
    uint64_t small = pool_of(XCCL_PROTO_LINES, 1, LINE_SLOTS, sizes).bytes +
                     pool_of(XCCL_PROTO_SMALL, 1, SMALL_SLOTS_ONE, sizes).bytes;

    if (budget_bytes > host)
        budget_bytes = host;
    sizes->is_tight = links * pool_of(XCCL_PROTO_SLICES, 1, SLICE_SLOTS_ONE, sizes).bytes +
                          links / 2 * small >
                      budget_bytes;
    while (link > TIGHT_LINK_MIN && links * link > budget_bytes)
        link /= 2;
    sizes->tight_bytes = (uint32_t)(link - XCCL_HEAD_STRIDE - TIGHT_SLOTS * TIGHT_STRIDE) /
                             TIGHT_SLOTS &
                         ~(XCCL_LINE_BYTES - 1u);
}

/* All slots of a host should stay well inside its last cache, so slices shrink as ranks grow. */
struct xccl_shm_sizes xccl_shm_sizes(int nlocal, uint64_t budget_bytes)
{
    struct xccl_shm_sizes sizes = {.slice_bytes = nlocal <= 2   ? 128u << 10
                                                  : nlocal <= 4 ? 64u << 10
                                                                : 32u << 10};

    if (nlocal > 16)
        sizes.slice_bytes = 16u << 10;
    while (sizes.slice_bytes > SLICE_MIN && bytes_taken(nlocal, &sizes) > budget_bytes)
        sizes.slice_bytes /= 2;
    set_tight(nlocal, budget_bytes, &sizes);
    return sizes;
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

/* On the service thread: a rank of this host wants the segment, this process's arena, or what this
 * rank gives. */
static void hand_out(void *owner, struct xccl_conn *conn)
{
    struct xccl_limit limit = xccl_limit_ms(HANDOUT_MS, NULL);
    struct xccl_shm *shm = owner;
    enum xccl_purpose purpose = (enum xccl_purpose)xccl_conn_hello(conn)->purpose;
    int fd = -1;

    pthread_mutex_lock(&shm->given_lock);
    if (purpose == XCCL_PURPOSE_SEGMENT)
        fd = shm->fd;
    else if (purpose == XCCL_PURPOSE_ARENA && shm->arenas)
        fd = xccl_arena_fd();
    if (purpose == XCCL_PURPOSE_GIVEN)
        xccl_shm_send_given(shm, conn, &limit);
    else if (fd >= 0)
        (void)xccl_tcp_send_fd(xccl_conn_fd(conn), fd, &limit);
    pthread_mutex_unlock(&shm->given_lock);
    xccl_conn_close(conn);
}

static xcclResult_t listen_for_peers(struct xccl_shm *shm, const struct xccl_shm_args *args)
{
    struct xccl_acceptor_args acceptor = {.loop = args->loop,
                                          .addr = args->addr,
                                          .on_conn = hand_out,
                                          .owner = shm,
                                          .any_target = 1,
                                          .rank = (uint32_t)args->rank,
                                          .nranks = (uint32_t)args->nranks};

    memcpy(acceptor.key, args->key, sizeof acceptor.key);
    memcpy(acceptor.comm_id, args->comm_id, sizeof acceptor.comm_id);
    return xccl_acceptor_open(&acceptor, &shm->acceptor);
}

static xcclResult_t make_segment(struct xccl_shm *shm, const struct xccl_addr *name)
{
    struct segment_head *head;
    struct xccl_map map;
    xcclResult_t rc = xccl_map_create("xccl", shm->layout.bytes, &map);

    if (rc)
        return rc;
    shm->fd = map.fd;
    head = map.base;
    head->nlocal = (uint32_t)shm->nlocal;
    head->local_index = (uint32_t)shm->local_index;
    head->slice_bytes = shm->sizes.slice_bytes;
    head->tight_bytes = shm->sizes.tight_bytes;
    head->magic = SEGMENT_MAGIC;
    shm->taken = PAGE;
    xccl_log(XCCL_LOG_DEBUG,
             "shared memory: room for %zu bytes, %u-byte slices, %d ranks on this host",
             shm->layout.bytes, shm->sizes.slice_bytes, shm->nlocal);
    return xccl_segment_add(name, &map, &shm->segments[shm->local_index]);
}

/* Places by index and by rank. */
static xcclResult_t note_ranks(struct xccl_shm *shm, const struct xccl_shm_args *args)
{
    shm->local_ranks = xccl_calloc((size_t)args->nlocal, sizeof *shm->local_ranks);
    shm->segments = xccl_calloc((size_t)args->nlocal, sizeof(void *));
    shm->index_of = xccl_calloc((size_t)args->nranks, sizeof *shm->index_of);
    if (!shm->local_ranks || !shm->segments || !shm->index_of)
        return xcclSystemError;
    memcpy(shm->local_ranks, args->local_ranks, (size_t)args->nlocal * sizeof *shm->local_ranks);
    for (int i = 0; i < args->nranks; i++)
        shm->index_of[i] = -1;
    for (int i = 0; i < args->nlocal; i++)
        shm->index_of[args->local_ranks[i]] = i;
    return xcclSuccess;
}

xcclResult_t xccl_shm_create(const struct xccl_shm_args *args, struct xccl_shm **shm_out)
{
    struct xccl_shm *shm = xccl_calloc(1, sizeof *shm);
    xcclResult_t rc;

    if (!shm)
        return xcclSystemError;
    pthread_mutex_init(&shm->given_lock, NULL);
    shm->fd = -1;
    shm->nlocal = args->nlocal;
    shm->local_index = args->local_index;
    shm->rank = args->rank;
    shm->nranks = args->nranks;
    shm->sizes = args->sizes;
    shm->layout = layout_of(args->nlocal, &args->sizes);
    memcpy(shm->comm_id, args->comm_id, sizeof shm->comm_id);
    memcpy(shm->key, args->key, sizeof shm->key);
    rc = note_ranks(shm, args);
    if (!rc)
        rc = xccl_shm_note_processes(shm, args);
    if (!rc)
        rc = make_segment(shm, &args->addr);
    if (!rc && args->one_process)
        xccl_tcp_close(&shm->fd); /* the map keeps the memory */
    else if (!rc)
        rc = listen_for_peers(shm, args);
    if (rc)
        xccl_shm_destroy(shm);
    else
        *shm_out = shm;
    return rc;
}

static xcclResult_t check_segment(const struct xccl_shm *shm, int index)
{
    const struct xccl_segment *segment = shm->segments[index];
    const struct segment_head *head = (const void *)xccl_segment_base(segment);

    if (xccl_segment_bytes(segment) == shm->layout.bytes && head->magic == SEGMENT_MAGIC &&
        head->nlocal == (uint32_t)shm->nlocal && head->local_index == (uint32_t)index &&
        head->slice_bytes == shm->sizes.slice_bytes && head->tight_bytes == shm->sizes.tight_bytes)
        return xcclSuccess;
    return xccl_fail(xcclRemoteError, 0, "use the same XCCL version on all ranks",
                     "the shared memory segment of rank %d has a different layout",
                     shm->local_ranks[index]);
}

/* What a fetch needs. */
struct fetch {
    const struct xccl_shm *shm;
    const struct xccl_addr *addr;
    const struct xccl_limit *limit;
};

xcclResult_t xccl_shm_ask(const struct xccl_shm *shm, const struct xccl_addr *addr,
                          enum xccl_purpose purpose, uint32_t detail,
                          const struct xccl_limit *limit, int *fd_out)
{
    struct xccl_hello hello = {.rank = (uint32_t)shm->rank,
                               .nranks = (uint32_t)shm->nranks,
                               .purpose = (uint16_t)purpose,
                               .detail = (uint16_t)detail};
    struct xccl_conn *conn;
    xcclResult_t rc;

    memcpy(hello.comm_id, shm->comm_id, sizeof hello.comm_id);
    rc = xccl_conn_open(addr, shm->key, &hello, limit, &conn);
    if (rc)
        return rc;
    rc = xccl_tcp_recv_fd(xccl_conn_fd(conn), limit, fd_out);
    xccl_conn_close(conn);
    return rc;
}

static xcclResult_t fetch_segment(void *owner, struct xccl_map *map_out)
{
    const struct fetch *fetch = owner;
    int fd = -1;
    xcclResult_t rc = xccl_shm_ask(fetch->shm, fetch->addr, XCCL_PURPOSE_SEGMENT, 0, fetch->limit,
                                   &fd);

    if (!rc)
        rc = xccl_map_open(fd, fetch->shm->layout.bytes, map_out);
    if (rc)
        return rc;
    xccl_tcp_close(&map_out->fd); /* the map keeps the memory */
    return xcclSuccess;
}

xcclResult_t xccl_shm_fetch(struct xccl_shm *shm, int index, const struct xccl_addr *addr,
                            const struct xccl_limit *limit)
{
    struct fetch fetch = {shm, addr, limit};
    xcclResult_t rc;

    if (index == shm->local_index)
        return xcclSuccess;
    rc = xccl_segment_get(addr, limit, fetch_segment, &fetch, &shm->segments[index]);
    if (!rc)
        rc = check_segment(shm, index);
    if (!rc)
        xccl_shm_fetch_arena(shm, index, addr, limit);
    return rc;
}

xcclResult_t xccl_shm_find(struct xccl_shm *shm, int index, const struct xccl_addr *addr,
                           int *found_out)
{
    *found_out = 1;
    if (index == shm->local_index)
        return xcclSuccess;
    shm->segments[index] = xccl_segment_find(addr);
    *found_out = shm->segments[index] != NULL;
    return *found_out ? check_segment(shm, index) : xcclSuccess;
}

void xccl_shm_seal(struct xccl_shm *shm, int gives)
{
    if (!gives) {
        xccl_acceptor_close(shm->acceptor);
        shm->acceptor = NULL;
    }
    pthread_mutex_lock(&shm->given_lock);
    xccl_tcp_close(&shm->fd);
    pthread_mutex_unlock(&shm->given_lock);
}

void xccl_shm_destroy(struct xccl_shm *shm)
{
    if (!shm)
        return;
    xccl_shm_seal(shm, 0);
    xccl_shm_drop_given(shm);
    pthread_mutex_destroy(&shm->given_lock);
    for (int i = 0; shm->segments && i < shm->nlocal; i++)
        xccl_segment_put(shm->segments[i]);
    xccl_shm_drop_arenas(shm);
    xccl_free(shm->segments);
    xccl_free(shm->local_ranks);
    xccl_free(shm->index_of);
    explicit_bzero(shm->key, sizeof shm->key);
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
    return shm->index_of[rank];
}

int xccl_shm_is_tight(const struct xccl_shm *shm)
{
    return shm->sizes.is_tight;
}

size_t xccl_shm_bytes(const struct xccl_shm *shm)
{
    return shm->taken;
}

size_t xccl_shm_table_bytes(const struct xccl_shm *shm)
{
    return xccl_alloc_bytes(shm) + xccl_alloc_bytes(shm->local_ranks) +
           xccl_alloc_bytes(shm->index_of) + xccl_alloc_bytes(shm->segments) +
           xccl_alloc_bytes(shm->processes) + xccl_alloc_bytes(shm->room) +
           xccl_alloc_bytes(shm->arenas);
}

uint64_t xccl_shm_mapped_bytes(const struct xccl_shm *shm)
{
    return (uint64_t)shm->layout.bytes * (uint64_t)shm->nlocal;
}

static char *segment_at(struct xccl_shm *shm, int index, size_t offset)
{
    return xccl_segment_base(shm->segments[index]) + offset;
}

struct xccl_board *xccl_shm_board(struct xccl_shm *shm, int index)
{
    return (void *)segment_at(shm, index, shm->layout.board);
}

char *xccl_shm_extra(struct xccl_shm *shm, int index, size_t *bytes_out)
{
    *bytes_out = shm->sizes.extra_bytes & ~(size_t)(PAGE - 1);
    return xccl_segment_base(shm->segments[index]) + shm->layout.extra;
}

/* A link on one of the places of a pool in owner's segment, whatever memory there is. */
static struct xccl_link place_on(struct xccl_shm *shm, int owner, size_t place,
                                 const struct pool *pool)
{
    size_t offset = pool->start + place * pool->bytes;

    return (struct xccl_link){
        .header = segment_at(shm, owner, offset + pool->headers),
        .payload = segment_at(shm, owner, offset + pool->payload),
        .header_stride = pool->header_stride,
        .payload_stride = pool->payload_stride,
        .slot_bytes = pool->slot_bytes,
        .nslots = pool->nslots,
        .limit = pool->nslots,
        .lag = pool->lag,
        .heads = (void *)segment_at(shm, owner, offset),
        .nheads = 1,
        .own_head = UINT16_MAX,
    };
}

/* A link as place_on() makes it, after the memory of its place was taken. */
static xcclResult_t link_on(struct xccl_shm *shm, int owner, size_t place, const struct pool *pool,
                            struct xccl_link *link_out)
{
    size_t offset = pool->start + place * pool->bytes;
    xcclResult_t rc = xccl_map_touch(segment_at(shm, owner, offset), pool->end);

    if (rc)
        return rc;
    if (owner == shm->local_index)
        shm->taken += pool->end;
    *link_out = place_on(shm, owner, place, pool);
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

static size_t fifo_place(const struct xccl_shm *shm, int sender, uint32_t id)
{
    return id * (size_t)shm->nlocal + (size_t)sender;
}

/* In the receiver's segment. */
static xcclResult_t fifo_on(struct xccl_shm *shm, enum xccl_proto proto, int receiver, int sender,
                            uint32_t id, struct xccl_link *link_out)
{
    if (id >= XCCL_SHM_IDS)
        return xccl_fail(
            xcclInternalError, 0, "use another algorithm",
            "a pair of ranks needs connection %u, but shared memory has room for only %d", id,
            XCCL_SHM_IDS);
    return link_on(shm, receiver, fifo_place(shm, sender, id), &shm->layout.fifo[proto], link_out);
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

xcclResult_t xccl_shm_fifo_look(struct xccl_shm *shm, enum xccl_proto proto, int from_index,
                                uint32_t id, struct xccl_link *link_out)
{
    *link_out = place_on(shm, shm->local_index, fifo_place(shm, from_index, id),
                         &shm->layout.fifo[proto]);
    return xccl_map_touch(link_out->header, XCCL_LINE_BYTES);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of this plugin share: the instance, its ports, registrations, the two comms and
 * their requests. An instance's devices never change after init, but for their registrations and
 * counters. A comm belongs to one thread at a time. */
#ifndef IB_INT_H
#define IB_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/net_entry.h"
#include "ib_choice.h"
#include "ib_verbs.h"
#include "ib_wire.h"

#define IB_DEVICES_MAX 32
#define IB_RECVS       XCCL_NET_MAX_REQUESTS /* requests in flight of a receiver */
#define IB_PARTS       XCCL_NET_MAX_RECVS /* receives of one of them */
#define IB_SENDS       (IB_RECVS * IB_PARTS) /* in flight of a sender */
#define IB_LINES       IB_SENDS /* of the clear-to-send ring */
#define IB_PIECE_BYTES ((size_t)128 << 10) /* messages are not cut into less */
#define IB_QUEUE_DEPTH 64 /* work requests under way on one queue pair */
#define IB_BATCH       16 /* of them in one call */
#define IB_MESSAGE_MAX (IB_CHUNK_BYTES * IB_IMM_CHUNKS_MAX)
#define IB_IDLE_TURNS  64 /* turns without news before the side channel is looked at */

static_assert((IB_RECVS & (IB_RECVS - 1)) == 0, "counters of receives wrap");
static_assert((IB_SENDS & (IB_SENDS - 1)) == 0, "counters of sends wrap");
static_assert(IB_RECVS == 32 && IB_PARTS == 8, "they fit the immediate value");

/* Registered pages; kept while somebody uses them. */
struct ib_region {
    uintptr_t begin, end; /* whole pages */
    struct ibv_mr *mr;
    int refs; /* memories that lie in it */
};

/* What a comm has registered. All but mr: under the lock of the device's cache. */
struct ib_memory {
    struct ib_region *region; /* NULL: of no bytes */
    struct ibv_mr *mr; /* the region's */
    struct ib_memory *next, **link;
};

struct ib_place {
    struct ib_region *region;
    uintptr_t reach; /* greatest end of the regions up to this one */
};

/* Regions in the order of their begins. */
struct ib_cache {
    pthread_mutex_t lock;
    struct ib_place *places;
    int count, room;
};

/* One active port. */
struct ib_device {
    struct ibv_context *context;
    struct ibv_pd *pd;
    int owns_context; /* the first port of a card does */
    int port;
    struct ibv_port_attr attr;
    char name[80]; /* "mlx5_0:1" */
    char card[64]; /* "mlx5_0" */
    char netdev[16]; /* "" when there is none */
    char pci_path[256]; /* "" when there is none */
    uint64_t guid;
    uint32_t speed_mbps;
    int max_qp;
    struct ib_cache cache;
    /* Out of asynchronous events, whoever takes them; relaxed, nothing hangs on them. */
    _Atomic uint64_t looked_ns; /* when they were last asked for */
    _Atomic uint64_t down_ns; /* since when the port is down; 0: it is up */
    _Atomic int has_failed; /* the whole card */
    struct xccl_net_counters counters;
};

struct ib_ctx {
    const struct ib_verbs *verbs;
    xcclNetLogger_t log;
    int traffic_class; /* -1: the setting's */
    int device_count;
    struct ib_device devices[IB_DEVICES_MAX];
};

struct ib_pair {
    struct ibv_qp *qp;
    uint32_t psn;
    /* Work requests of the send queue, counted round. A signalled one completes all before it. */
    uint32_t posted, completed, signalled;
    uint32_t last_pieces; /* of the sender: posted; of the receiver: that have come */
    uint32_t came; /* of the sender, once has_end: last pieces that the receiver has */
};

/* The queue pairs of a comm, with one completion queue. A wr_id is the pair's index in its upper
 * half, the work request's number in the lower. */
struct ib_queue {
    struct ibv_cq *cq;
    struct ib_pair pairs[IB_PAIRS_MAX];
    uint32_t count;
    uint32_t inline_bytes;
    int gid_idx;
    union ibv_gid gid;
    enum ib_gid_type gid_type;
};

static inline struct ib_pair *ib_pair_of(struct ib_queue *queue, const struct ibv_wc *wc)
{
    return &queue->pairs[wc->wr_id >> 32 & (IB_PAIRS_MAX - 1)];
}

enum ib_state { IB_FREE, IB_WAITS, IB_WRITES, IB_POSTED, IB_DONE };

struct ib_comm;

struct ib_request {
    struct ib_comm *comm;
    enum ib_state state;
};

/* What both ends have. */
struct ib_comm {
    struct ib_ctx *ctx;
    struct ib_device *device;
    int is_send;
    struct ib_memory *memories;
    int fd; /* the side channel: tells that the peer has gone, and why */
    int ended; /* nothing comes on it any more */
    uint32_t idle; /* turns without news */
    uint8_t note[IB_NOTE_BYTES]; /* as far as it has come */
    size_t note_have;
    struct ib_queue queue;
    uint64_t flushed_ns; /* when a work request was found that others took with them; 0: none */
    _Atomic int event; /* of its queues: 1 and the number of an event that ends it; relaxed */
    struct ib_block peer;
    char peer_text[XCCL_ADDR_TEXT_BYTES];
    /* The first error, which stays. */
    xcclResult_t rc;
    xcclNetCause_t cause;
    int64_t vendor_code;
    int sys_errno;
    char error_text[XCCL_ERROR_TEXT_BYTES];
};

struct ib_send {
    struct ib_request request;
    const uint8_t *data;
    size_t bytes;
    uint32_t tag, lkey;
    uint32_t imm; /* all but the chunks */
    /* Piece i is on pair (pair + i) mod their count; the number of its last work request, and how
     * many such last ones the pair has had with it. */
    uint32_t pair, pieces;
    uint32_t last[IB_PAIRS_MAX], last_piece[IB_PAIRS_MAX];
    uint64_t addr;
    uint32_t rkey;
};

struct ib_sender {
    struct ib_comm comm;
    struct ib_line ring[IB_LINES]; /* written by the receiver */
    struct ibv_mr *ring_mr;
    struct ib_send sends[IB_SENDS]; /* in the order of posting, counted round */
    /* taken >= matched >= written >= reached: sends posted by the caller, that have their receive,
     * that are wholly posted, that have arrived. */
    uint64_t taken, matched, written, reached;
    /* The send in turn: how much of each piece is posted, and which ones are not whole. */
    size_t piece_bytes, piece_done[IB_PAIRS_MAX];
    uint32_t pieces_left;
    uint32_t pair_turn; /* where the next one begins */
    int has_end; /* the receiver has closed, and has said what came */
    /* The receive in turn. */
    uint32_t group; /* its number, from 1 */
    uint32_t group_count; /* 0: not there yet */
    uint32_t group_left; /* parts without a send, one bit each */
    struct ib_line parts[IB_PARTS];
};

struct ib_recv {
    struct ib_request request;
    int count;
    uint32_t left; /* parts that have not come, one bit each */
    size_t room[IB_PARTS], bytes[IB_PARTS];
    uint8_t pieces[IB_PARTS]; /* that have come */
};

struct ib_receiver {
    struct ib_comm comm;
    struct ib_line lines[IB_LINES]; /* as they are written to the sender */
    struct ibv_mr *lines_mr;
    struct ib_recv recvs[IB_RECVS];
    uint32_t number; /* of the last receive posted */
};

/* ---- ib_device.c ---- */
xcclResult_t ib_init(const xcclNetInit_v1 *init, xcclNetContext_t *ctx_out);
xcclResult_t ib_finalize(xcclNetContext_t ctx);
xcclResult_t ib_devices(xcclNetContext_t ctx, int *count_out);
xcclResult_t ib_properties(xcclNetContext_t ctx, int dev, xcclNetProperties_v1 *props);
xcclResult_t ib_stats(xcclNetContext_t ctx, int dev, xcclNetStats_v1 *stats);
struct ib_device *ib_device_get(struct ib_ctx *ctx, int dev);

/* ---- ib_gid.c ---- */
/* The entry that XCCL_IB_GID_INDEX names, or the best of the table as it is now. */
xcclResult_t ib_gid_choose(const struct ib_ctx *ctx, const struct ib_device *device,
                           struct ib_queue *queue);
/* Whether two ends can talk; otherwise says why not, with both GIDs. */
xcclResult_t ib_reach_check(const struct ib_block *here, const struct ib_block *there);

/* ---- ib_memory.c ---- */
xcclResult_t ib_cache_init(struct ib_cache *cache);
void ib_cache_fini(const struct ib_ctx *ctx, struct ib_cache *cache);
xcclResult_t ib_reg_mr(void *comm, void *data, size_t bytes, uint32_t type, xcclNetMem_t *mem_out);
xcclResult_t ib_dereg_mr(void *comm, xcclNetMem_t mem);
void ib_dereg_all(struct ib_comm *comm); /* what is left; its queue pair is gone */
/* Registers memory of a comm's own, outside of the cache. */
xcclResult_t ib_pin(const struct ib_comm *comm, void *data, size_t bytes, struct ibv_mr **mr_out);

/* ---- ib_queue.c ---- */
xcclResult_t ib_queue_init(struct ib_comm *comm, uint32_t pairs);
/* The peer wants fewer pairs. */
void ib_queue_cut(struct ib_comm *comm, uint32_t pairs);
/* Towards the peer, whose block the comm has. May ask the kernel for the way to its address. */
xcclResult_t ib_queue_start(struct ib_comm *comm);
void ib_queue_fini(struct ib_comm *comm); /* one that is zeroed or half made is fine */
void ib_queue_tell(const struct ib_comm *comm, struct ib_block *block_out);
/* Work requests that may be posted now. */
static inline uint32_t ib_pair_room(const struct ib_pair *pair)
{
    return IB_QUEUE_DEPTH - (pair->posted - pair->completed);
}
static inline uint64_t ib_wr_id(uint32_t pair_idx, uint32_t number)
{
    return (uint64_t)pair_idx << 32 | number;
}
/* Posts a chain of count, whose numbers begin behind posted; the caller has looked for room. An
 * error is the comm's. */
void ib_queue_post(struct ib_comm *comm, uint32_t pair_idx, struct ibv_send_wr *first,
                   uint32_t count);

/* ---- ib_comm.c ---- */
struct ib_comm *ib_comm_create(struct ib_ctx *ctx, struct ib_device *device, int is_send);
xcclResult_t ib_close_send(xcclNetSendComm_t comm);
xcclResult_t ib_close_recv(xcclNetRecvComm_t comm);
xcclResult_t ib_error_detail(void *comm, xcclNetError_v1 *error);
/* Keeps the thread's error text as the comm's first error. */
void ib_comm_fail(struct ib_comm *comm, xcclNetCause_t cause, xcclResult_t rc);
/* One completion that failed. What was flushed tells nothing of the cause, which may be behind it:
 * then the comm fails with the cause, or 0.2 s later (ib_comm_flushed, while nothing comes). */
void ib_comm_fail_wc(struct ib_comm *comm, const struct ibv_wc *wc);
void ib_comm_flushed(struct ib_comm *comm);
xcclResult_t ib_comm_error(const struct ib_comm *comm);
/* Now and then: what the peer has to say, or that it has gone. 1: note_out has come. */
int ib_comm_listen(struct ib_comm *comm, struct ib_note *note_out);
/* Tells the peer without waiting; a note that does not fit the socket is lost. */
void ib_comm_tell(struct ib_comm *comm, const struct ib_note *note);
void ib_comm_fail_gone(struct ib_comm *comm);

/* ---- ib_event.c ---- */
xcclResult_t ib_events_open(struct ibv_context *context); /* so that asking never waits */
/* Takes what events there are. */
void ib_events_take(struct ib_ctx *ctx, const struct ib_device *device);
/* Now and then, while nothing comes: fails the comm if its queues, its card or its port have, the
 * port for as long as packets are sent again. */
void ib_events_look(struct ib_comm *comm);
/* For messages: asks the port itself, too. */
int ib_port_is_down(const struct ib_comm *comm);
/* For how long the port has been down, in ms; 0: it is up. */
uint64_t ib_down_ms(const struct ib_device *device);

/* ---- ib_connect.c, ib_listen.c ---- */
xcclResult_t ib_connect(xcclNetContext_t ctx, int dev, const xcclNetHandle_t *handle,
                        xcclNetConnect_t *state, xcclNetSendComm_t *comm_out);
xcclResult_t ib_close_connect(xcclNetContext_t ctx, xcclNetConnect_t state);
xcclResult_t ib_listen(xcclNetContext_t ctx, int dev, xcclNetHandle_t *handle_out,
                       xcclNetListenComm_t *listen_out);
xcclResult_t ib_accept(xcclNetListenComm_t listen, xcclNetRecvComm_t *comm_out);
xcclResult_t ib_close_listen(xcclNetListenComm_t listen);

/* ---- ib_send.c, ib_recv.c, ib_request.c ---- */
xcclResult_t ib_isend(xcclNetSendComm_t comm, const void *data, size_t bytes, uint32_t tag,
                      xcclNetMem_t mem, xcclNetRequest_t *request_out);
void ib_send_move(struct ib_sender *sender);
xcclResult_t ib_recv_start(struct ib_receiver *receiver); /* before the sender may write */
xcclResult_t ib_irecv(xcclNetRecvComm_t comm, int count, void *const *data, const size_t *bytes,
                      const uint32_t *tags, const xcclNetMem_t *mems,
                      xcclNetRequest_t *request_out);
void ib_recv_move(struct ib_receiver *receiver);
xcclResult_t ib_test(xcclNetRequest_t request, int *done_out, size_t *bytes_out);

#endif

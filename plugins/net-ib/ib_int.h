/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of this plugin share: the instance, its ports, registrations, the two comms and
 * their requests. An instance's devices never change after init and merges, but for their
 * registrations and counters. A comm belongs to one thread at a time: its user's, or, where it has
 * several ports, that of ib_service.c; its claim says to which. */
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
#include "kit/kit_side.h"

#define IB_DEVICES_MAX 32
#define IB_MERGED_MAX  8
#define IB_RECVS       XCCL_NET_MAX_REQUESTS /* requests in flight of a receiver */
#define IB_PARTS       XCCL_NET_MAX_RECVS /* receives of one of them */
#define IB_SENDS       (IB_RECVS * IB_PARTS) /* in flight of a sender */
#define IB_LINES       IB_SENDS /* of the clear-to-send ring */
#define IB_PIECE_BYTES ((size_t)128 << 10) /* messages are not cut into less */
#define IB_QUEUE_DEPTH 64 /* work requests under way on one queue pair */
#define IB_CQ_MAX      (2 * IB_PAIRS_MAX * (IB_QUEUE_DEPTH + IB_SENDS)) /* see ib_queue.c */
#define IB_BATCH       16 /* of them in one call */
#define IB_WRITE_BYTES ((size_t)1 << 20) /* of one RDMA write; whole units of the wire */
#define IB_MESSAGE_MAX (IB_UNIT_BYTES * IB_IMM_UNITS_MAX)
#define IB_IDLE_TURNS  64 /* turns without news before the side channel is looked at */
#define IB_NO_PAIR     0xff
/* What to do about a side channel on which nothing comes. */
#define IB_CHANNEL_TODO "see that XCCL_SOCKET_IFNAME names a network that is up"

static_assert((IB_RECVS & (IB_RECVS - 1)) == 0, "counters of receives wrap");
static_assert((IB_SENDS & (IB_SENDS - 1)) == 0, "counters of sends wrap");
static_assert(IB_RECVS == 32 && IB_PARTS == 8, "they fit the immediate value");
static_assert(IB_WRITE_BYTES % IB_UNIT_BYTES == 0, "the immediate value counts units");

/* Registered pages; kept while somebody uses them. */
struct ib_region {
    uintptr_t begin, end; /* whole pages */
    struct ibv_mr *mr;
    int refs; /* memories that lie in it */
};

/* What a comm has registered, at each of its ports. The list: under the lock of the first one's
 * cache; the regions: each under that of its own. */
struct ib_memory {
    struct ib_region *regions[IB_PORTS_MAX]; /* NULL: of no bytes */
    int is_device; /* not the host's */
    uint32_t lkeys[IB_PORTS_MAX], rkeys[IB_PORTS_MAX];
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

/* One active port, or several that act as one: that has no context, and what it says of hardware
 * is its first port's. */
struct ib_device {
    struct ib_device *ports[IB_PORTS_MAX];
    uint32_t port_count;
    struct ibv_context *context;
    struct ibv_pd *pd;
    int owns_context; /* the first port of a card does */
    int port;
    struct ibv_port_attr attr;
    char name[320]; /* "mlx5_0:1", or "mlx5_0:1+mlx5_1:1" */
    char card[64]; /* "mlx5_0" */
    char netdev[16]; /* "" when there is none, and of several ports */
    char pci_path[256]; /* "" when there is none */
    int is_alone; /* another port may reach other peers */
    uint64_t guid;
    uint32_t speed_mbps;
    uint32_t memory_kinds; /* XCCL_NET_PTR_ bits that can be registered */
    int max_qp;
    struct ib_cache cache;
    /* Out of asynchronous events, whoever takes them; relaxed, nothing hangs on them. */
    _Atomic uint64_t looked_ns; /* when they were last asked for */
    _Atomic uint64_t down_ns; /* since when the port is down; 0: it is up */
    _Atomic int has_failed; /* the whole card */
    struct xccl_net_tally tally;
};

/* The thread that looks after comms of several ports; ib_service.c. */
struct ib_service {
    pthread_mutex_t lock; /* of all but what is constant while runs; not held while a comm moves */
    pthread_cond_t idle; /* busy is NULL again */
    pthread_t thread;
    int runs, stop;
    int epoll_fd, wake_fd;
    struct ib_comm *comms;
    struct ib_comm *turn; /* the next one to be looked at */
    struct ib_comm *busy; /* the one that the thread moves */
};

struct ib_ctx {
    const struct ib_verbs *verbs;
    xcclNetLogger_t log;
    int traffic_class; /* -1: the setting's */
    struct xccl_addr met; /* by which the ranks have met; bytes 0: not known */
    int device_count;
    struct ib_device devices[IB_DEVICES_MAX + IB_MERGED_MAX];
    struct ib_service service;
};

/* A port as a comm uses it. */
struct ib_port {
    struct ib_device *device;
    struct ibv_cq *cq;
    int is_left_out; /* it is down or has no GID, and others are well: no queue pair goes there */
    int spreads; /* large messages may go by several ways through the network */
    int gid_idx;
    union ibv_gid gid;
    enum ib_gid_type gid_type;
};

/* The life of a queue pair; only one with others beside it leaves UP, see ib_failover.c. */
enum ib_pair_state {
    IB_PAIR_NONE, /* before the comm is up */
    IB_PAIR_UP,
    IB_PAIR_ENDS, /* in error; what came is still taken */
    IB_PAIR_ENDED, /* destroyed here, and the peer is told */
    IB_PAIR_GONE, /* at both ends, and nothing hangs on it any more */
    IB_PAIR_OFFERED, /* the sender has made a new one */
    IB_PAIR_ANSWERED /* the receiver, too: it takes messages, but may not send yet */
};

struct ib_pair {
    struct ib_comm *comm;
    struct ibv_qp *qp;
    enum ib_pair_state state;
    uint32_t port, peer_port; /* index at this end and at the other */
    uint32_t psn;
    struct ibv_ece ece; /* what this end offers or has taken of the vendor's; zero: nothing */
    uint64_t load; /* of the sender: bytes that it was given, and that have not arrived */
    uint32_t generation; /* how many were in its place before */
    int peer_ended; /* the peer's end is destroyed */
    uint64_t since_ns, pause_ns; /* ENDS: when it began; GONE: from when on, and how long */
    /* Work requests of the send queue, counted round. A signalled one completes all before it. */
    uint32_t posted, completed, signalled;
    uint32_t receives; /* of the receiver: posted and not complete */
    uint32_t last_pieces; /* of the sender: posted; of the receiver: that have come */
    uint32_t came; /* of the sender, once has_end or peer_ended: last pieces the receiver has */
    _Atomic int event; /* 1 and the number of an event that ends it; relaxed */
};

/* The queue pairs of a comm, with one completion queue a port. A wr_id is made by ib_wr_id. */
struct ib_queue {
    struct ib_port ports[IB_PORTS_MAX];
    struct ib_pair pairs[IB_PAIRS_MAX];
    uint32_t port_count, count;
    uint32_t inline_bytes;
    uint32_t turn; /* of the ports, to be asked for completions */
    uint8_t up[IB_PAIRS_MAX]; /* the pairs that are */
    uint32_t up_count;
};

enum ib_state { IB_FREE, IB_WAITS, IB_WRITES, IB_POSTED, IB_DONE };

struct ib_comm;

struct ib_request {
    struct ib_comm *comm;
    int is_flush; /* constant */
    enum ib_state state;
};

/* What both ends have. */
struct ib_comm {
    struct ib_ctx *ctx;
    struct ib_device *device;
    struct xccl_net_counters counters; /* with the claim */
    int is_send;
    struct ib_memory *memories;
    struct kit_side side; /* tells that the peer has gone, and why */
    uint32_t idle; /* turns without news */
    uint8_t note[KIT_SEALED(IB_NOTE_BYTES)]; /* as far as it has come */
    struct ib_queue queue;
    uint64_t flushed_ns; /* when a work request was found that others took with them; 0: none */
    _Atomic int event; /* of its completion queues, as that of a pair */
    /* Failover. */
    int has_spare; /* 1: a queue pair may end, others go on; constant once the comm is up */
    _Atomic int claimed; /* somebody moves it */
    int served; /* 1: the service watches its side channel; with the claim, or before it is up */
    int is_serviced; /* with the claim: the service has it, and may take its time */
    struct ib_comm *next, **link; /* among those of the service, under its lock */
    int is_listed; /* there; written by who opens and closes the comm */
    uint32_t unsettled; /* queue pairs that are not up */
    uint64_t dark_ns; /* since when none is; 0: one is */
    uint8_t out[2 * IB_PAIRS_MAX *
                KIT_SEALED(IB_NOTE_BYTES)]; /* notes that wait for the side channel */
    struct ib_block peer;
    char peer_text[XCCL_ADDR_TEXT_BYTES];
    /* The first error, which stays; has_failed is written last: ib_error_detail has no claim. */
    _Atomic int has_failed;
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
    uint32_t tag;
    uint32_t imm; /* all but what differs between the pieces */
    const struct ib_memory *memory;
    uint8_t pieces;
    /* One bit a piece: not wholly posted; has arrived, as the receiver says. */
    uint8_t todo, got;
    uint8_t pair[IB_PIECES_MAX]; /* by which it goes; IB_NO_PAIR: not known yet */
    /* The number of its last work request there, and how many such last ones the pair has had with
     * it. */
    uint32_t last[IB_PIECES_MAX], last_piece[IB_PIECES_MAX];
    uint64_t addr;
    uint32_t rkeys[IB_PORTS_MAX];
};

struct ib_sender {
    struct ib_comm comm;
    struct ib_line ring[IB_LINES]; /* written by the receiver */
    struct ibv_mr *ring_mrs[IB_PORTS_MAX];
    struct ib_send sends[IB_SENDS]; /* in the order of posting, counted round */
    /* taken >= matched >= written >= reached: sends posted by the caller, that have their receive,
     * that are wholly posted, that have arrived. */
    uint64_t taken, matched, written, reached;
    size_t piece_done[IB_PIECES_MAX]; /* of the send in turn: how much of each is posted */
    uint32_t pair_turn; /* where the next one begins */
    /* Pieces of sends before it that must be posted once more, and how much of one of them is. */
    uint32_t again;
    uint64_t again_number;
    uint32_t again_piece;
    size_t again_done;
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
    uint8_t pieces[IB_PARTS]; /* that have come, one bit each */
};

/* Reads what has been written to a device's memory: a read pushes the writes before it there. A
 * queue pair that is connected to itself, one a port. */
struct ib_flush_way {
    struct ib_pair pair; /* its queue pair, NULL where the port is left out, and counters */
    struct ibv_cq *cq;
    struct ibv_mr *mr; /* of word */
    int has_failed; /* with a port that stands beside others; made anew once it is up */
};

struct ib_flush {
    struct ib_request request;
    uint32_t until[IB_PORTS_MAX]; /* reads that must be complete */
};

struct ib_flusher {
    struct ib_flush_way ways[IB_PORTS_MAX];
    struct ib_flush flushes[IB_RECVS];
    uint32_t word; /* where reads land; nobody looks at it */
};

struct ib_receiver {
    struct ib_comm comm;
    /* NULL before the first memory of a device. Release by the one who opens it, acquire by iflush:
     * a registration may come from another thread. */
    struct ib_flusher *_Atomic flusher;
    _Atomic uint32_t came_ports; /* by which data has come, one bit each; relaxed */
    struct ib_line lines[IB_LINES]; /* as they are written to the sender */
    struct ibv_mr *lines_mrs[IB_PORTS_MAX];
    struct ib_recv recvs[IB_RECVS];
    uint32_t number; /* of the last receive posted */
    uint32_t line_pair; /* lines go by this one until it is gone at both ends */
    uint32_t lines_due; /* slots whose lines must be written once more, one bit each */
};

/* ---- ib_device.c ---- */
xcclResult_t ib_init(const xcclNetInit_v1 *init, xcclNetContext_t *ctx_out);
xcclResult_t ib_finalize(xcclNetContext_t ctx);
xcclResult_t ib_devices(xcclNetContext_t ctx, int *count_out);
xcclResult_t ib_properties(xcclNetContext_t ctx, int dev, xcclNetProperties_v1 *props);
xcclResult_t ib_stats(xcclNetContext_t ctx, int dev, xcclNetStats_v1 *stats);
struct ib_device *ib_device_get(struct ib_ctx *ctx, int dev);
xcclResult_t ib_merge(xcclNetContext_t ctx, const int *devs, int count, int *dev_out);

/* ---- ib_subnet.c ---- */
/* Once all devices are known. */
xcclResult_t ib_subnets_look(struct ib_ctx *ctx);

/* ---- ib_gid.c ---- */
/* The entry that XCCL_IB_GID_INDEX names, or the best of the table as it is now. */
xcclResult_t ib_gid_choose(const struct ib_ctx *ctx, struct ib_port *port);
void ib_gid_tell(const struct ib_port *port, struct ib_port_info *info_out);
/* Says why the two ends cannot talk, with the GIDs of their first ports. */
xcclResult_t ib_reach_refuse(const struct ib_block *here, const struct ib_block *there);

/* ---- ib_memory.c ---- */
xcclResult_t ib_cache_init(struct ib_cache *cache);
void ib_cache_fini(const struct ib_ctx *ctx, struct ib_cache *cache);
xcclResult_t ib_reg_mr(void *comm, void *data, size_t bytes, uint32_t type, xcclNetMem_t *mem_out);
xcclResult_t ib_reg_mr_dmabuf(void *comm, void *data, size_t bytes, uint32_t type, uint64_t offset,
                              int fd, xcclNetMem_t *mem_out);
xcclResult_t ib_dereg_mr(void *comm, xcclNetMem_t mem);
void ib_dereg_all(struct ib_comm *comm); /* what is left; its queue pair is gone */
/* Registers memory of a comm's own at each of its ports, outside of the cache. */
xcclResult_t ib_pin(const struct ib_comm *comm, void *data, size_t bytes,
                    struct ibv_mr *mrs_out[IB_PORTS_MAX]);
void ib_unpin(const struct ib_comm *comm, struct ibv_mr *mrs[IB_PORTS_MAX]);

/* ---- ib_flush.c ---- */
/* Before the receiver's first memory of a device is registered. */
xcclResult_t ib_flush_open(struct ib_receiver *receiver);
void ib_flush_close(struct ib_receiver *receiver);
xcclResult_t ib_iflush(xcclNetRecvComm_t comm, int count, void *const *data, const size_t *bytes,
                       const xcclNetMem_t *mems, xcclNetRequest_t *request_out);
xcclResult_t ib_flush_test(struct ib_request *request, int *done_out);

/* ---- ib_queue.c ---- */
/* The way to a GID, or within an InfiniBand subnet to a LID. */
struct ibv_ah_attr ib_way_to(const struct ib_port *port, const struct ib_port_info *peer,
                             int traffic_class);
int ib_traffic_class(const struct ib_comm *comm);
/* Finds the GIDs of the comm's ports; of several, those that are down are left out. */
xcclResult_t ib_queue_init(struct ib_comm *comm);
/* Makes a queue pair for each link, and what completes their work. */
xcclResult_t ib_queue_make(struct ib_comm *comm, const struct ib_link *links, uint32_t count);
/* Towards the peer, whose block the comm has. May ask the kernel for the way to its address. */
xcclResult_t ib_queue_start(struct ib_comm *comm);
void ib_queue_fini(struct ib_comm *comm); /* one that is zeroed or half made is fine */
void ib_queue_tell(const struct ib_comm *comm, struct ib_block *block_out);
void ib_queue_count_up(struct ib_comm *comm); /* after a state has changed */
xcclResult_t ib_pair_make(struct ib_comm *comm, struct ib_pair *pair);
xcclResult_t ib_pair_start(struct ib_comm *comm, struct ib_pair *pair);
void ib_pair_destroy(struct ib_comm *comm, struct ib_pair *pair);
/* Completions of the ports in turns; count_out: as poll_cq's. The port is the last one asked. */
int ib_queue_poll(struct ib_comm *comm, int max, struct ibv_wc *wcs);
/* 0: of a queue pair that was in its place before. */
static inline int ib_is_of(const struct ib_pair *pair, const struct ibv_wc *wc)
{
    return (uint32_t)(wc->wr_id >> 41) == (pair->generation & 0x7fffff);
}
/* The pair of a completion; NULL: of one that was in its place before. */
static inline struct ib_pair *ib_pair_of(struct ib_queue *queue, const struct ibv_wc *wc)
{
    struct ib_pair *pair = &queue->pairs[wc->wr_id >> 32 & (IB_PAIRS_MAX - 1)];

    return ib_is_of(pair, wc) ? pair : NULL;
}
static inline int ib_is_receive(const struct ibv_wc *wc)
{
    return wc->wr_id >> 40 & 1;
}
/* 23 bits generation, 1 bit for a receive, 8 bits index of the pair, 32 bits number. */
static inline uint64_t ib_wr_id(const struct ib_pair *pair, uint32_t pair_idx, int is_receive,
                                uint32_t number)
{
    return (uint64_t)pair->generation << 41 | (uint64_t)is_receive << 40 |
           (uint64_t)pair_idx << 32 | number;
}
/* Work requests that may be posted now. */
static inline uint32_t ib_pair_room(const struct ib_pair *pair)
{
    return pair->state == IB_PAIR_UP ? IB_QUEUE_DEPTH - (pair->posted - pair->completed) : 0;
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
/* With what the card or the system says; 0: nothing. */
void ib_comm_fail_code(struct ib_comm *comm, xcclNetCause_t cause, int64_t vendor_code,
                       int sys_errno, xcclResult_t rc);
/* One completion that failed. What was flushed tells nothing of the cause, which may be behind it:
 * then the comm fails with the cause, or 0.2 s later (ib_comm_flushed, while nothing comes). */
void ib_comm_fail_wc(struct ib_comm *comm, struct ib_pair *pair, const struct ibv_wc *wc);
void ib_comm_flushed(struct ib_comm *comm);
xcclResult_t ib_comm_error(const struct ib_comm *comm);
/* Now and then: what the peer has to say, or that it has gone. 1: note_out has come. */
int ib_comm_listen(struct ib_comm *comm, struct ib_note *note_out);
/* Tells the peer without waiting; what does not fit the socket goes with a later turn. */
void ib_comm_tell(struct ib_comm *comm, const struct ib_note *note);
/* The side channel has ended. */
void ib_comm_fail_gone(struct ib_comm *comm);

/* ---- ib_event.c ---- */
xcclResult_t ib_events_open(struct ibv_context *context); /* so that asking never waits */
/* Takes what events there are. */
void ib_events_take(struct ib_ctx *ctx, const struct ib_device *device);
/* Now and then, while nothing comes: fails the comm if its queues, its card or its port have, the
 * port for as long as packets are sent again. */
void ib_events_look(struct ib_comm *comm);
/* Asks the port itself, too. */
int ib_port_is_down(struct ib_ctx *ctx, struct ib_device *device);
/* For how long a port may be away. */
uint64_t ib_patience_ms(void);
/* For how long the port has been down, in ms; 0: it is up. */
uint64_t ib_down_ms(const struct ib_device *device);

/* ---- ib_failover.c ---- */
/* Ends a queue pair that has failed, if the comm has others; 0: it has none. */
int ib_pair_break(struct ib_comm *comm, struct ib_pair *pair);
/* Moves on what is not settled. */
void ib_failover_move(struct ib_comm *comm);
/* 1: the note asks for a queue pair to be made or started, which is left to the service. */
int ib_failover_leaves(const struct ib_comm *comm, const struct ib_note *note);
/* 1: the note was about a queue pair, and is dealt with. */
int ib_failover_hear(struct ib_comm *comm, const struct ib_note *note);

/* ---- ib_service.c ---- */
xcclResult_t ib_service_init(struct ib_service *service);
void ib_service_fini(struct ib_service *service);
/* Of a comm that has come up; one of a single port is left alone. Starts the thread with the first.
 */
xcclResult_t ib_service_add(struct ib_comm *comm);
void ib_service_remove(struct ib_comm *comm);
/* Something is not settled: the thread looks at it until it is. */
void ib_service_wake(struct ib_service *service);

/* 1: the comm is the caller's until release. Acquire pairs with release's store: what the one
 * before has done is seen. */
static inline int ib_comm_claim(struct ib_comm *comm)
{
    return !comm->has_spare || !atomic_exchange_explicit(&comm->claimed, 1, memory_order_acquire);
}
static inline void ib_comm_release(struct ib_comm *comm)
{
    if (comm->has_spare)
        atomic_store_explicit(&comm->claimed, 0, memory_order_release);
}

/* ---- ib_start.c ---- */
/* Zeroed before its first use, and again for another comm. */
struct ib_starter {
    struct ib_comm *comm; /* NULL: not begun */
    int runs; /* the thread has not been joined */
    pthread_t thread;
    _Atomic int is_over;
    xcclResult_t rc; /* these two once it is over */
    char text[XCCL_ERROR_TEXT_BYTES];
};
/* Starts the queue pairs of a comm whose peer's block is there, and looks whether that is over. */
xcclResult_t ib_start_move(struct ib_starter *starter, struct ib_comm *comm, int *done_out);
/* Waits until nothing touches the comm. */
void ib_start_fini(struct ib_starter *starter);

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
/* A pair is gone at both ends: what has not come by it goes by others. */
void ib_send_move_pieces(struct ib_sender *sender, uint32_t pair_idx);
/* Posts the empty receives of a pair, before the sender may write. */
xcclResult_t ib_recv_start(struct ib_receiver *receiver, uint32_t pair_idx);
/* All completions that are here now; each port is asked in turn, so none hides another's. */
void ib_recv_drain(struct ib_receiver *receiver);
void ib_recv_move_lines(struct ib_receiver *receiver, uint32_t pair_idx);
xcclResult_t ib_irecv(xcclNetRecvComm_t comm, int count, void *const *data, const size_t *bytes,
                      const uint32_t *tags, const xcclNetMem_t *mems,
                      xcclNetRequest_t *request_out);
void ib_recv_move(struct ib_receiver *receiver);
void ib_comm_move(struct ib_comm *comm);
xcclResult_t ib_test(xcclNetRequest_t request, int *done_out, size_t *bytes_out);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of CUDA communicators share. Stays in this folder.
 *
 *   cuda_device.c  joining and leaving: device and status
 *   cuda_pool.c    device memory, kept from call to call
 *   cuda_group.c   operations of a group: missing links first, then launches
 *   cuda_edges.c   which kind of memory each pair of ranks of a host has its links in
 *   cuda_memory.c  memory of links, its own and that of other ranks
 *   cuda_agree.c   trying out whether the ranks of a host open each other's
 *   cuda_links.c   links of bindings, and the tables that kernels find them in
 *   cuda_call.c    a call: plan, image, launch
 *   cuda_batch.c   which ranks go in one launch
 *   cuda_order.c   order of launches, also between streams and graphs
 *   cuda_p2p.c     links for sends and receives
 *   cuda_messages.c  launches of them
 *   cuda_stand.c   what their kernels wait for, and whether it can come
 *   cuda_room.c    device memory for slots of network links
 *   cuda_ways.c    which way each link goes, and why, for the record
 *   cuda_watch.c   the thread: network links, what takes too long, errors
 *
 * Thread: what the lock guards is said beside it; the rest is the caller's. */
#ifndef XCCL_CUDA_CUDA_INT_H
#define XCCL_CUDA_CUDA_INT_H

#include <string.h>

#include "base/cuda_driver.h"
#include "cuda/cuda_device.h"
#include "exec/cuda/device.h"
#include "exec/cuda/device_abi.h"
#include "exec/cuda/handle_memory.h"
#include "exec/cuda/plan_image.h"
#include "watch/standstill.h"

/* Words of XCCL_DEVICE. */
#define XCCL_DEVICE_SETTING_HOST 1
#define XCCL_DEVICE_SETTING_CUDA 2

#define XCCL_CUDA_HOMES 4096u

/* How memory that one rank offers for links gets to another one of its host: each pair, and each of
 * the two as the owner, has a kind of its own. */
enum xccl_cuda_memory {
    XCCL_CUDA_MEMORY_NONE, /* of a rank to itself */
    XCCL_CUDA_MEMORY_DEVICE, /* of its device: the peer has the address, or opens it by IPC */
    XCCL_CUDA_MEMORY_HOST, /* pinned, in its shared segment: its device cannot be reached */
    XCCL_CUDA_MEMORY_HANDLE, /* of its device: the peer has the address, or gets a descriptor */
    XCCL_CUDA_MEMORY_FABRIC, /* the same memory, by a fabric handle */
    XCCL_CUDA_MEMORY_END
};

/* What is offered lies in pieces, one for each sort of memory that some peer is to have. A kind
 * that is refused is followed by one of a later piece. */
enum xccl_cuda_which {
    XCCL_CUDA_BY_HANDLE,
    XCCL_CUDA_BY_DEVICE,
    XCCL_CUDA_BY_HOST,
    XCCL_CUDA_PIECES
};

/* Why it is no better kind. */
enum xccl_cuda_why_code {
    XCCL_CUDA_WHY_NONE,
    XCCL_CUDA_WHY_SETTING, /* XCCL_CUDA_P2P=0 */
    XCCL_CUDA_WHY_APART, /* the device of `rank` does not reach the owner's */
    XCCL_CUDA_WHY_HIDDEN, /* the owner's process does not see the device of `rank` */
    XCCL_CUDA_WHY_CUMEM_OFF, /* XCCL_CUDA_CUMEM=0 */
    XCCL_CUDA_WHY_CUMEM_LACKS, /* driver or device have no such handles */
    XCCL_CUDA_WHY_CUMEM_FABRIC, /* XCCL_CUDA_CUMEM=fabric: no descriptors */
    XCCL_CUDA_WHY_FABRIC_LACKS, /* the device has no fabric handles */
    /* `rank` was refused, with the driver's result: */
    XCCL_CUDA_WHY_CREATE, /* the allocation */
    XCCL_CUDA_WHY_EXPORT, /* a descriptor of it */
    XCCL_CUDA_WHY_IMPORT, /* what another rank had exported; result 0: the descriptor itself */
    XCCL_CUDA_WHY_IPC_GET,
    XCCL_CUDA_WHY_IPC_OPEN,
    XCCL_CUDA_WHY_FABRIC_CREATE,
    XCCL_CUDA_WHY_FABRIC_EXPORT,
    XCCL_CUDA_WHY_FABRIC_IMPORT,
    XCCL_CUDA_WHY_END
};
struct xccl_cuda_why {
    uint32_t code, rank, result;
};

#define XCCL_CUDA_WHYS     3 /* no HANDLE; no DEVICE either; no FABRIC, where that was sought */
#define XCCL_CUDA_NO_PLACE UINT16_MAX

/* How one rank reaches what another one, the owner, offers. */
struct xccl_cuda_edge {
    uint8_t kind; /* enum xccl_cuda_memory */
    uint16_t place; /* of its slots and heads in the piece for messages; NO_PLACE: not yet */
    struct xccl_cuda_why why[XCCL_CUDA_WHYS];
};

/* All of them on this host, by local index. Its ranks know the same (cuda_edges.c). */
struct xccl_cuda_edges {
    uint32_t count; /* ranks that share memory with this one, itself included; 0: none do */
    uint32_t widest; /* the most of any host, as all ranks count them */
    struct xccl_cuda_edge *own, *theirs; /* of each to this rank's memory; of it to theirs */
    uint8_t *kinds; /* [owner * count + peer] */
};

/* A piece as it is offered. */
struct xccl_cuda_piece {
    uint32_t memory; /* NONE: nobody needs it; HOST in place of better memory: why */
    uint32_t number; /* HANDLE: of the descriptor that is given; 0: nobody needs it */
    uint64_t base; /* of device memory: the address in its process; HOST: from the segment's room */
    uint64_t heads; /* of send ends: from base */
    uint64_t bytes;
    struct xccl_cu_ipc ipc; /* BY_DEVICE */
    struct xccl_cu_fabric fabric; /* BY_HANDLE, where it has one */
    struct xccl_cuda_why why;
};

/* As it travels, XCCL_CUDA_OFFER_BYTES. */
struct xccl_cuda_offer {
    uint32_t channels, slot_bytes, nslots;
    uint32_t has_rooms; /* 1: some of its network links may have their slots in device memory */
    uint64_t place_bytes; /* of each channel's slots; they begin at a piece's base */
    struct xccl_cuda_piece pieces[XCCL_CUDA_PIECES];
};

/* What a piece is to be. */
struct xccl_cuda_want {
    size_t bytes;
    uint32_t times; /* so many ranks of other processes will open it, once each, */
    uint32_t fabrics; /* and so many by its fabric handle */
};

/* What a piece is about, for its owner. */
struct xccl_cuda_held {
    xccl_cu_ptr at; /* as this device sees it */
    uint32_t memory, number; /* as offered */
    size_t bytes; /* DEVICE */
    struct xccl_cuda_block block; /* HANDLE */
};

/* One side of a link between ranks of a host: in which piece it is, and where. */
struct xccl_cuda_side {
    const struct xccl_cuda_offer *offer;
    const struct xccl_cuda_piece *piece;
    xccl_cu_ptr base; /* of the piece, as this process sees it */
    uint32_t place;
};

/* What this rank knows of a binding besides the host's part. */
struct xccl_cuda_binding {
    struct xccl_binding *binding;
    enum xccl_dev_proto proto;
    uint32_t channels; /* most that a call may use: the least of all ranks' */
    int apart; /* 1: some rank has rooms, so preambles go by themselves */
    struct xccl_cuda_offer own;
    struct xccl_cuda_held held[XCCL_CUDA_PIECES];
    struct xccl_dev_link *links; /* while they are made: [conn * channels + channel] */
    xccl_cu_ptr table, signals; /* in device memory */
    size_t table_bytes, signals_bytes;
    struct xccl_cuda_binding *next;
};

/* Send links whose receivers write heads to one place. */
struct xccl_cuda_reading {
    xccl_cu_ptr table; /* struct xccl_dev_link[] */
    uint32_t links; /* in it */
    xccl_cu_ptr heads;
    uint32_t head_count;
    const uint32_t *link_of; /* by head; UINT32_MAX: it is not used */
};

/* A plan in device memory. */
struct xccl_cuda_image {
    uint64_t key[2], signature;
    const struct xccl_binding *binding;
    struct xccl_cuda_binding *cuda;
    struct xccl_call call; /* for texts; its sizes are not held */
    struct xccl_board_call told; /* as boards tell it, with its sizes but without a number */
    xccl_cu_ptr at;
    xccl_cu_function function;
    uint32_t number; /* its id: place in the table */
    uint32_t blocks;
    size_t bytes, scratch_bytes;
    uint32_t *net_messages; /* as of the plan; owned */
    struct xccl_plan_traffic traffic;
    int is_sized; /* of a v-collective: given up when many others have come, and good for */
    const struct xccl_plan *plan; /* this very plan, */
    uint64_t plans; /* made when there were so many */
    int is_captured; /* a graph may replay it */
    struct xccl_cuda_image *next_gone; /* no longer in the table */
};

/* Device memory on a list. */
struct xccl_cuda_spare {
    struct xccl_cuda_spare *next;
    xccl_cu_ptr at;
    size_t bytes;
};

/* Where a launch goes. */
struct xccl_cuda_place {
    xccl_cu_stream stream;
    int is_captured; /* 1: into `graph` */
    uint64_t id; /* of the capture, else of the stream; 0: unknown */
    xccl_cu_graph graph;
};

/* The messages that the rank's kernel waited for in the last look. */
struct xccl_cuda_stand {
    uint32_t ask; /* number of the question that was put last */
    uint32_t count; /* of items */
    int is_sure; /* 1: all of its blocks that have not ended wait, and the items are theirs */
    int left; /* a peer of an item that has left, as seen before this was answered */
    uint64_t launch; /* messages_done */
    uint64_t since_ns; /* it has been so */
    struct xccl_still_item items[XCCL_STILL_ITEMS];
};

struct xccl_cuda_captured; /* cuda_order.c */
struct xccl_stream;
struct xccl_cuda_pin; /* cuda_memory.c */
struct xccl_cuda_opened; /* likewise */
struct xccl_cuda_home; /* cuda_links.c */
struct xccl_cuda_room; /* cuda_room.c */
struct xccl_cuda_p2p; /* cuda_p2p.c */
struct xccl_cuda_watch; /* cuda_watch.c */
struct xccl_cuda_thread; /* likewise */
struct xccl_cuda_ways; /* cuda_ways.c */

struct xccl_cuda_comm {
    struct xcclComm *comm;
    struct xccl_cuda_device *device;
    const struct xccl_cuda_driver *driver;
    uint32_t sharers; /* ranks of the communicator on this device, this one included */
    uint32_t blocks; /* that it may have at work at a time */
    uint32_t channels; /* of a lane, at most */
    struct xccl_cuda_edges edges;
    struct xccl_cuda_why no_fabric; /* code 0: its memory has fabric handles, as far as known */
    struct xccl_cuda_why fallen[XCCL_CUDA_PIECES]; /* what was refused once all had joined */
    uint32_t agree_rounds; /* in which the ranks of the host tried to open each other's */
    int agree_asks; /* 1: what was gathered are verdicts, 0: offers */
    uint8_t *agree_offers; /* meanwhile */
    struct xccl_cuda_ways *ways;
    struct xccl_dev_status *status; /* pinned */
    xccl_cu_ptr status_at, comm_at; /* as the device sees it; struct xccl_dev_comm */

    struct xccl_cuda_binding *bindings;
    struct xccl_cuda_binding *binding_now; /* that is getting its links */
    struct xccl_cuda_opened *opened;
    struct xccl_cuda_pin *pins; /* host memory that was pinned for it */
    struct xccl_cuda_room *rooms;
    size_t extra_used; /* of the own segment's extra room */
    struct xccl_cuda_home *homes; /* network links that bindings share */
    xccl_cu_ptr homes_at; /* struct xccl_dev_home[XCCL_CUDA_HOMES], NULL: there are none */

    /* Images, by number; the lock guards the table, which only grows. */
    struct xccl_cuda_image **images;
    uint32_t image_count, image_room;
    struct xccl_cuda_image *last; /* of the last call */
    uint64_t given; /* calls that were launched or captured */
    _Atomic uint64_t launched; /* likewise; 0: not known, for graphs may be replayed */

    xccl_cu_ptr scratch;
    size_t scratch_bytes;
    struct xccl_cuda_spare *spares; /* for what comes */
    struct xccl_cuda_spare *lent; /* to launches that may not have ended */
    struct xccl_cuda_spare *kept; /* graphs may still use it */

    struct xccl_cuda_worker worker; /* its launches, as others on the device see them */
    uint64_t stream; /* number of that of the last launch outside of captures */
    xccl_cu_event joins; /* streams of a group that wait for each other */
    struct xccl_cuda_captured *captured; /* captures with launches, the latest first */
    uint64_t talks; /* calls that made links, which count by themselves */
    uint64_t retired; /* the last operation that has ended, as the thread has seen */
    struct xccl_cuda_stand stand; /* the thread's */

    uint64_t device_bytes;
    _Atomic uint64_t failed_ns; /* when kernels were told to end; 0: they were not */
    struct xccl_cuda_p2p *p2p;
    struct xccl_cuda_watch *watch;
    struct xccl_cuda_thread *thread; /* held; NULL: not yet */
    pthread_mutex_t lock; /* of the tables above, and of network operations */
};

static inline int xccl_cuda_same_process(const struct xcclComm *comm, int peer)
{
    const struct xccl_peer *self = &comm->peers[comm->rank], *other = &comm->peers[peer];

    return other->process == self->process && other->host_hash == self->host_hash;
}

/* What a device has written. */
static inline uint64_t xccl_cuda_word(const uint64_t *word)
{
    /* Acquire: what the device wrote before it. Pairs with the kernels' release. */
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* 1: both are ranks of one communicator. */
static inline int xccl_cuda_is_one(const struct xccl_cuda_comm *a, const struct xccl_cuda_comm *b)
{
    return memcmp(a->comm->id, b->comm->id, sizeof a->comm->id) == 0;
}

/* How long kernels wait for other ranks without a word of the host, whose own deadline comes first
 * as long as it runs; 0: for ever. */
static inline uint64_t xccl_cuda_limit_ns(const struct xcclComm *comm)
{
    return comm->timeout_ns > XCCL_NEVER_NS / 4 ? 0 : 2 * comm->timeout_ns + 30 * XCCL_NS_PER_S;
}

/* --- cuda_batch.c --- */
enum xccl_cuda_share_state { XCCL_CUDA_WAITS, XCCL_CUDA_TAKEN, XCCL_CUDA_LAUNCHED };
/* A rank's share of a launch; the first member of whatever else a rank needs for it. */
struct xccl_cuda_share {
    struct xccl_cuda_comm *cuda;
    xccl_cu_stream stream;
    xccl_cu_function function;
    uint32_t nblocks, block0; /* block0: where they begin in the launch, once it is taken */
    enum xccl_cuda_share_state state;
};
/* Such things one after the other, by communicators, each with its work for the kernel. */
struct xccl_cuda_shares {
    void *all;
    uint32_t count, stride, work_at, work_bytes;
};
struct xccl_cuda_batch {
    uint32_t first, works, blocks;
};
struct xccl_cuda_share *xccl_cuda_share_at(const struct xccl_cuda_shares *shares, uint32_t number);
/* Takes those that go in one launch with that one. */
struct xccl_cuda_batch xccl_cuda_gather(const struct xccl_cuda_shares *shares, uint32_t first);
/* Whether all of it can be at work at a time. */
xcclResult_t xccl_cuda_check_room(const struct xccl_cuda_device *device,
                                  const struct xccl_cuda_batch *batch);
/* Launches the kernel of those taken, with one parameter. Their works go near, which is in it, or
 * if they are too many to memory, whose address goes to *far_out, in it too. */
xcclResult_t xccl_cuda_launch(const struct xccl_cuda_shares *shares,
                              const struct xccl_cuda_batch *batch, int is_captured, void *parameter,
                              void *near, uint64_t *far_out);

/* --- cuda_pool.c --- */
/* All of it goes; no kernel of the communicator uses it. */
void xccl_cuda_pool_drop(struct xccl_cuda_comm *cuda);
/* Device memory that counts as the communicator's. It is of so many bytes. */
size_t xccl_cuda_pool_rounded(size_t bytes);
/* A copy in device memory for the next launch, or for the graph that is being captured. */
xcclResult_t xccl_cuda_pool_lend(struct xccl_cuda_comm *cuda, const void *data, size_t bytes,
                                 int captured, xccl_cu_ptr *at_out);
xcclResult_t xccl_cuda_pool_alloc(struct xccl_cuda_comm *cuda, size_t bytes, xccl_cu_ptr *at_out);
/* Does the same where another way follows: a refusal is not logged. */
xcclResult_t xccl_cuda_pool_try(struct xccl_cuda_comm *cuda, size_t bytes, xccl_cu_ptr *at_out);
void xccl_cuda_pool_free(struct xccl_cuda_comm *cuda, xccl_cu_ptr at, size_t bytes);
void xccl_cuda_drop_links(struct xccl_cuda_comm *cuda);
struct xccl_cuda_binding *xccl_cuda_find(const struct xccl_cuda_comm *cuda,
                                         const struct xccl_binding *binding);
/* Pins host memory, whole pages of its own, until the links are dropped. */
xcclResult_t xccl_cuda_pin(struct xccl_cuda_comm *cuda, void *at, size_t bytes,
                           xccl_cu_ptr *at_out);
void xccl_cuda_drop_pins(struct xccl_cuda_comm *cuda);
/* A network link as kernels see it, by itself. */
xcclResult_t xccl_cuda_net_view(struct xccl_cuda_comm *cuda, struct xccl_net_link *net,
                                struct xccl_dev_link *link);
/* 1: the links' table in device memory says no more than what heads at `heads` say: all messages of
 * `ends` send links in so many channels have been read. first: by end and channel, the place of its
 * link in the table. Also 1 where nobody can tell. */
int xccl_cuda_is_read(const struct xccl_cuda_comm *cuda, const struct xccl_cuda_reading *what);
/* 1: all messages of all links of bindings have been read. */
int xccl_cuda_links_read(const struct xcclComm *comm);

/* --- cuda_edges.c --- */
/* The kinds to begin with, of this rank's memory. */
xcclResult_t xccl_cuda_edges_init(struct xcclComm *comm);
void xccl_cuda_edges_fini(struct xccl_cuda_edges *edges);
/* That kind of the rank's own memory was refused: the next one. */
void xccl_cuda_edge_lower(const struct xccl_cuda_comm *cuda, struct xccl_cuda_edge *edge,
                          const struct xccl_cuda_why *why);
/* What all are told beside an offer, and the same from all: a row of each host's ranks. */
size_t xccl_cuda_edges_row_bytes(const struct xccl_cuda_edges *edges);
void xccl_cuda_edges_put(const struct xccl_cuda_edges *edges, uint8_t *row);
xcclResult_t xccl_cuda_edges_get(struct xcclComm *comm, const uint8_t *rows, size_t stride);
/* In which piece of owner's memory the links with peer are, both of this host; XCCL_CUDA_PIECES:
 * that is the owner. */
enum xccl_cuda_which xccl_cuda_edges_piece(const struct xcclComm *comm, int owner, int peer);
enum xccl_cuda_which xccl_cuda_edge_piece(const struct xccl_cuda_edge *edge);
/* 1: somebody is given descriptors of this rank's memory. */
int xccl_cuda_edges_give(const struct xcclComm *comm);

/* --- cuda_agree.c --- */
/* Tells all what this rank offers for messages, and to whom in which way. */
xcclResult_t xccl_cuda_agree_offer(struct xccl_init *init, const struct xccl_cuda_offer *offer);

/* --- cuda_memory.c --- */
/* Zeroed memory, which the ranks of the host will reach by what is put into piece (all but heads).
 * refused->code set: it cannot be had in that way; refused NULL: then it is pinned host memory, and
 * so are all such pieces from now on. */
xcclResult_t xccl_cuda_offer_piece(struct xcclComm *comm, enum xccl_cuda_which which,
                                   const struct xccl_cuda_want *want, struct xccl_cuda_piece *piece,
                                   struct xccl_cuda_held *held, struct xccl_cuda_why *refused);
void xccl_cuda_take_back(struct xcclComm *comm, struct xccl_cuda_held held[XCCL_CUDA_PIECES]);
/* Where a piece of a peer's memory lies for this process. Success with refused->code set: it cannot
 * be opened; refused NULL: that is an error. */
xcclResult_t xccl_cuda_map(struct xcclComm *comm, int peer, const struct xccl_cuda_piece *piece,
                           xccl_cu_ptr *base_out, struct xccl_cuda_why *refused);
/* What was not mapped in this round of agreeing; or all. */
void xccl_cuda_close_opened(struct xccl_cuda_comm *cuda, int all);

/* --- cuda_links.c --- */
/* Where a link's slots and head are; sides: the peer's and this rank's; channel: of it; headers:
 * bytes before the slots' payload. Fails where the peer's numbers lead out of its memory. */
xcclResult_t xccl_cuda_place_link(const struct xccl_cuda_side sides[2], int sends, uint32_t channel,
                                  uint32_t headers, struct xccl_dev_link *link);
void xccl_cuda_put_offer(const struct xccl_cuda_offer *offer, uint8_t *bytes);
void xccl_cuda_get_offer(const uint8_t *bytes, struct xccl_cuda_offer *offer);

/* 1: all that it launched has ended, replays of graphs so far included. */
int xccl_cuda_is_done(const struct xccl_cuda_comm *cuda);

/* --- cuda_order.c --- */
/* Events of a communicator. */
xcclResult_t xccl_cuda_order_init(struct xccl_cuda_comm *cuda);
void xccl_cuda_order_fini(struct xccl_cuda_comm *cuda);
/* Where a launch into the stream goes. */
xcclResult_t xccl_cuda_place_of(const struct xccl_cuda_device *device, xccl_cu_stream stream,
                                struct xccl_cuda_place *place_out);
/* Around a launch of a communicator: what it launched before comes before. */
xcclResult_t xccl_cuda_order(struct xccl_cuda_comm *cuda, const struct xccl_cuda_place *place);
xcclResult_t xccl_cuda_launched(struct xccl_cuda_comm *cuda, const struct xccl_cuda_place *place);

/* --- cuda_room.c --- */
/* The device's card, for `card` of its table. */
void xccl_cuda_card(const struct xcclComm *comm, char *path_out, size_t bytes);
/* Whether slots of network links to that rank may lie in device memory. */
int xccl_cuda_may_have_room(const struct xcclComm *comm, int peer);
void xccl_cuda_drop_rooms(struct xccl_cuda_comm *cuda); /* their links are gone */

/* --- cuda_ways.c --- */
/* A link to (sends) or from a rank of this host has its slots in a piece that was offered so. */
void xccl_cuda_note_near(struct xcclComm *comm, int peer, int sends,
                         const struct xccl_cuda_piece *slots);
void xccl_cuda_note_net(struct xcclComm *comm, const struct xccl_net_link *net); /* it is up */
void xccl_cuda_tell_ways(struct xcclComm *comm);
void xccl_cuda_drop_ways(struct xccl_cuda_comm *cuda);

/* --- cuda_p2p.c --- */
xcclResult_t xccl_cuda_p2p_offer(struct xcclComm *comm, struct xccl_cuda_offer *offer);
/* Offers memory again after peers refused its kind. Only what must change is new memory; the old
 * memory stays until xccl_cuda_p2p_drop_stale(). */
xcclResult_t xccl_cuda_p2p_offer_again(struct xcclComm *comm, struct xccl_cuda_offer *offer);
void xccl_cuda_p2p_drop_stale(struct xcclComm *comm);
/* Opens what the ranks of the host offer, and closes what they no longer do; refused: by local
 * index, code 0 where nothing was. */
xcclResult_t xccl_cuda_p2p_try(struct xcclComm *comm, const uint8_t *offers, size_t stride,
                               struct xccl_cuda_why *refused);
xcclResult_t xccl_cuda_p2p_take(struct xcclComm *comm, const uint8_t *offers, size_t stride);
void xccl_cuda_p2p_free(struct xccl_cuda_comm *cuda);
int xccl_cuda_p2p_needs_link(const struct xcclComm *comm, int peer, int sends);
int xccl_cuda_p2p_is_read(const struct xcclComm *comm);
/* Links of a pair in this host. */
uint32_t xccl_cuda_p2p_channels(const struct xccl_cuda_comm *cuda);
/* Where the kernel finds those with that rank; far: it is on another host. */
xcclResult_t xccl_cuda_p2p_link(struct xcclComm *comm, int peer, int sends, int far,
                                xccl_cu_ptr *at_out);
/* To a rank of another host; NULL: there is none yet. */
struct xccl_stream *xccl_cuda_p2p_stream(const struct xcclComm *comm, int peer, int sends);

/* --- cuda_messages.c --- */
xcclResult_t xccl_cuda_p2p_launch(const struct xccl_cuda_op *ops, uint32_t count);

/* --- cuda_stand.c --- */
/* Asks the kernel of messages at work what it waits for; until told otherwise it answers. */
void xccl_cuda_ask(struct xccl_cuda_comm *cuda);
void xccl_cuda_ask_no_more(struct xccl_cuda_comm *cuda);
/* Reads the answers, and asks again. 1: something has moved since the last look. */
int xccl_cuda_look_at_messages(struct xccl_cuda_comm *cuda, uint64_t now_ns);
/* Looks whether what is waited for can come, and for the deadline: nothing has moved since. */
xcclResult_t xccl_cuda_check_messages(struct xcclComm *comm, uint64_t now_ns, uint64_t since_ns);
/* A kernel has found that peer sends another size than this rank expects. */
xcclResult_t xccl_cuda_fail_size(struct xcclComm *comm, int peer);

/* --- cuda_watch.c --- */
xcclResult_t xccl_cuda_watch_start(struct xcclComm *comm);
void xccl_cuda_watch_stop(struct xcclComm *comm);
void xccl_cuda_thread_put(struct xccl_cuda_comm *cuda); /* none is fine */
int xccl_cuda_is_told(struct xccl_cuda_comm *cuda);
/* A launch will move so many messages over a link to another host. */
xcclResult_t xccl_cuda_watch_messages(struct xccl_cuda_comm *cuda, struct xccl_net_link *net,
                                      uint32_t slots);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Inside of the ofi plugin: XCCL's network contract over libfabric.
 *
 * An instance has devices, one for each network card (libfabric: domain) of the provider that was
 * chosen, and those that are merged of them. Each comm has an endpoint, a completion queue and an
 * address vector of its own for each card, its rails, so that a close ends its requests and nobody
 * else's, and a TCP connection to its peer, the control connection, or one for each rail: by it the
 * two exchange their endpoints' addresses, credits, and signs of life.
 *
 * A message is one tagged send whose tag is the message's number; a receive asks for its number, so
 * no order is asked of the provider (but for in_order below). At most OFI_WINDOW messages are on
 * their way that the receiver has not counted yet. Where both ends have the write path or several
 * rails (ofi_piece.c), that send carries small messages; of a larger one it says the size alone,
 * and the bytes are written into the memory that the receiver has announced, or are sent in pieces.
 * From the first grouped receive of a connection on, a message has the number of the part that it
 * is for (ofi_group.c). */
#ifndef XCCL_OFI_INT_H
#define XCCL_OFI_INT_H

#include <assert.h>
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/net_entry.h"
#include "base/netaddr.h"
#include "kit/kit_silent.h"
#include "kit/kit_hello.h"
#include "kit/kit_side.h"
#include "xccl_net.h"

#define OFI_WIRE_VERSION 6
#define OFI_LATE_NS                                                                                \
    (5000 * XCCL_NS_PER_MS) /* for a rail that is to come up, where another one has */
#define OFI_HANDLE_MAGIC  0x6f666931u /* "ofi1" */
#define OFI_ADDRESS_BYTES 256 /* an endpoint's address; names of shm are the longest */
#define OFI_RAILS_MAX     KIT_PORTS_MAX /* of a device */
#define OFI_HELLO_BYTES   (KIT_HELLO_BYTES + 16 + OFI_RAILS_MAX * OFI_ADDRESS_BYTES)
#define OFI_REPLY_BYTES   (32 + OFI_RAILS_MAX * (8 + XCCL_ADDR_WIRE_BYTES + OFI_ADDRESS_BYTES))
#define OFI_FRAME_BYTES   8 /* on the control connection once it is up */
#define OFI_DEVICES_MAX   32
#define OFI_MERGED_MAX    8
#define OFI_REQUESTS      XCCL_NET_MAX_REQUESTS
#define OFI_PARTS         XCCL_NET_MAX_RECVS /* of a grouped receive */
#define OFI_MESSAGES      (1u * OFI_REQUESTS * OFI_PARTS) /* that the caller may have in flight */
#define OFI_WINDOW        (2u * OFI_REQUESTS) /* that the provider has at most */
#define OFI_FRAMES        8 /* that wait to be sent, or come at once */
#define OFI_CREDIT_STEP   (OFI_WINDOW / 4)
#define OFI_TEXT_BYTES    512
#define OFI_NAME_BYTES    64
#define OFI_PATH_BYTES    256
#define OFI_POLL_ENTRIES  16
#define OFI_API_VERSION   FI_VERSION(1, 17) /* what we ask for; an older library is refused */
/* Larger messages are written, where both ends can; over ofi_rxm one send is quicker up to here. */
#define OFI_EAGER_BYTES     8192
#define OFI_RXM_EAGER_BYTES 16384
#define OFI_STRIPE_BYTES    65536 /* over several rails: a piece for each that is begun */
#define OFI_PIECES_MAX      16u /* of a message; the provider says how large one may be */
#define OFI_WRITES          32u /* under way in a comm */
#define OFI_NOTE_HEAD       16
#define OFI_NOTE_PART       16 /* and OFI_NOTE_TARGET for each rail, where it may be written to */
#define OFI_NOTE_TARGET     16
#define OFI_NOTE_BYTES                                                                             \
    (OFI_NOTE_HEAD + OFI_PARTS * (OFI_NOTE_PART + OFI_RAILS_MAX * OFI_NOTE_TARGET))
#define OFI_TELLS_SIZE 1u /* beside a message */
#define OFI_TELLS_TAG  2u /* the caller's, beside its number */
#define OFI_TELLS_FAIL 4u /* that a rail has failed, and the others go on */
#define OFI_TELLS_BITS 8 /* from this bit on, in a byte: bits of the provider's tags */
#define OFI_HAS_HEAD   0x10000u /* of a message that has come; below: its pieces, a bit each */
#define OFI_HAS_ALL    0x1ffffu
#define OFI_NO_ROW     UINT32_MAX
#define OFI_ROW_MASK   0x7fffffffu /* rows are counted in 31 bits, so none is OFI_NO_ROW */

/* A message's tag for the provider: its number, one bit for its pieces, and the caller's tag, or
 * which piece it is. Of the number so much that messages under way differ. All from OFI_TAG_SHIFT
 * on is hidden by the connection's secret (ofi_comm.secret), so that nobody else's message is taken
 * for one of its own. */
#define OFI_TAG_NUMBER 0x7fffu
#define OFI_TAG_PIECE  0x8000u
#define OFI_TAG_SHIFT  16
#define OFI_TAG_CALLER ((uint64_t)UINT32_MAX << OFI_TAG_SHIFT)
#define OFI_TAG_BITS   48

static_assert(OFI_WINDOW > OFI_REQUESTS + OFI_CREDIT_STEP, "credits come before they are missed");
static_assert(OFI_REQUESTS == 32 && OFI_WRITES == 32, "places are bits of 32");
static_assert(OFI_WRITES <= OFI_REQUESTS, "writes fit a queue that holds a piece of each receive");
static_assert(OFI_RAILS_MAX == 4 && OFI_PIECES_MAX == 16, "the rails of pieces are 32 bits");
static_assert(OFI_WINDOW == 64, "places of messages are bits of 64");

/* What is taken out of libfabric.so.1; all else is inline calls through the objects it gives. */
struct ofi_library {
    char path[OFI_TEXT_BYTES / 2]; /* of the file, as the loader says */
    uint32_t (*version)(void);
    int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
                   const struct fi_info *hints, struct fi_info **info);
    void (*freeinfo)(struct fi_info *info);
    struct fi_info *(*dupinfo)(const struct fi_info *info);
    int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
    const char *(*strerror)(int errnum);
};

/* What is taken out of the CUDA driver. */
struct ofi_cuda {
    int (*pointer_attribute)(void *value, int which, uint64_t at); /* NULL: there is no driver */
    char why[OFI_TEXT_BYTES]; /* not all devices take device memory, or "" */
};

/* A DMA-BUF, by which memory is registered. */
struct ofi_dmabuf {
    int fd;
    uint64_t offset; /* of the registration's first byte */
};

/* A registration with the provider, shared by those of the contract that it holds. */
struct ofi_region {
    uintptr_t first, end; /* whole pages; of a device or a DMA-BUF what the caller said */
    uint64_t access; /* libfabric's bits */
    enum fi_hmem_iface iface;
    int cuda_device;
    uint64_t buffer; /* of CUDA: the allocation's number, which never comes again; else 0 */
    int is_alone; /* 1: it holds no other one, for nobody knows what memory it is of */
    const struct ofi_dmabuf *dmabuf; /* while it is made; NULL: it has none */
    uint32_t count; /* registrations of the contract inside */
    uint64_t key; /* that we have chosen; 0: the provider has */
    struct fid_mr *mr;
    struct fid_ep *ep; /* FI_MR_ENDPOINT: good for this one only, else NULL */
    struct ofi_region *next; /* sorted by first */
};

/* One of the contract; by the device's members. NULL: its comm does not use that one. */
struct ofi_mem {
    struct ofi_region *regions[OFI_RAILS_MAX];
    int is_cuda;
};

struct ofi_device {
    /* One of one card is its own member. */
    uint32_t member_count;
    struct ofi_device *members[OFI_RAILS_MAX];
    char name[OFI_NAME_BYTES];
    char pci_path[OFI_PATH_BYTES];
    uint32_t speed_mbps;
    struct xccl_addr control; /* where control connections come to, port 0 */
    struct fi_info *info; /* of a merged one: its first member's */
    int local_mr; /* buffers must be registered */
    int takes_cuda, takes_dmabuf; /* device memory, by address, as a DMA-BUF */
    uint64_t piece_bytes; /* the most that one write carries; 0: no write path */
    pthread_mutex_t lock; /* of what follows: opened with the first comm, and the regions */
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct ofi_region *regions;
    uint32_t region_count;
    uint64_t last_key; /* that was counted */
    struct xccl_net_tally tally;
};

struct ofi_comm;

struct ofi_ctx {
    struct ofi_library library;
    struct ofi_cuda cuda;
    xcclNetLogger_t log;
    struct xccl_addr met; /* by which the ranks have met; bytes 0: not known */
    int has_provider, device_count;
    struct ofi_device devices[OFI_DEVICES_MAX + OFI_MERGED_MAX];
    pthread_mutex_t lock; /* of the two lists; progress runs alone and does without */
    struct ofi_comm *comms; /* that are up */
    struct ofi_comm *lingering; /* closed senders whose receiver has not counted all messages */
};

/* TAKEN: waits for the provider. MATCHED: a sender's whose part is chosen, and the same. */
enum ofi_state { OFI_FREE = 0, OFI_TAKEN, OFI_MATCHED, OFI_ACTIVE, OFI_DONE };

enum ofi_kind { OFI_MESSAGE = 0, OFI_NOTE, OFI_PIECE, OFI_FLUSH };

/* Of a receive that is announced: what has become of its note. */
enum ofi_notice {
    OFI_NOTICE_NONE = 0, /* it needs none, or no more */
    OFI_NOTICE_DUE,
    OFI_NOTICE_GIVEN /* to the provider */
};

/* What the provider knows an operation by, until its completion. */
struct ofi_op {
    struct fi_context2 context; /* the provider's; first, see fi_endpoint(3) */
    enum ofi_kind kind;
    int busy; /* the provider has it */
    uint32_t place; /* among the comm's of its kind */
    uint32_t rail;
    uint32_t piece; /* of a message */
    size_t load; /* its bytes; sender: the rail has so many less once it is over */
    struct ofi_message *message; /* of a note: NULL */
};

/* A send, or one part of a receive. */
struct ofi_message {
    struct ofi_comm *comm; /* first, as in ofi_group: a request is one of the two */
    enum ofi_state state;
    uint32_t left; /* completions of our operations that are to come yet, and being counted */
    size_t bytes;
    const uint8_t *data;
    xcclNetMem_t mem;
    uint32_t tag;
    uint32_t number; /* that it has on the wire */
    uint32_t group; /* receiver: its place in groups */
    uint32_t op; /* its place in ops */
    /* Pieces, a bit each. */
    uint32_t todo; /* that the provider has not got yet */
    uint32_t wanted, seen; /* receiver: all of them, and those that have come */
    uint32_t ways; /* by which rail each has gone, or was written, 2 bits */
    uint32_t arrived; /* sender: what the receiver has of it, OFI_HAS_HEAD and pieces */
};

/* Receiver: receives that were posted as one request. */
struct ofi_group {
    struct ofi_comm *comm;
    enum ofi_state state;
    uint32_t first, count; /* its messages */
    uint32_t left; /* messages, and the note */
    int numbered; /* its messages are */
    enum ofi_notice notice;
    uint32_t row; /* counts those whose sender looks for the part; OFI_NO_ROW */
    uint32_t pieces; /* that may be written to it */
    uint64_t lost_ns; /* when the note was found not to have left; 0: it was not */
};

/* Where a peer writes to. */
struct ofi_target {
    uint64_t addr, key;
};

/* A posted receive, as its receiver announces it. */
struct ofi_part {
    uint32_t tag, number;
    uint64_t room;
    struct ofi_target targets[OFI_RAILS_MAX]; /* by rail, where messages are written */
};

struct ofi_note {
    uint32_t first; /* of its messages' numbers */
    uint32_t count;
    uint32_t row; /* OFI_NO_ROW: only where to write to */
    struct ofi_part parts[OFI_PARTS];
};

/* Sender: a group whose parts it chooses among. */
struct ofi_row {
    int valid;
    uint32_t first, count;
    uint32_t free; /* parts, a bit each */
    uint32_t tags[OFI_PARTS], numbers[OFI_PARTS];
};

/* Sender: that where a message is written to is known. */
struct ofi_noted {
    uint32_t number;
    int valid;
    uint64_t room;
};

/* Of either path. */
struct ofi_notes {
    uint32_t due; /* receiver: groups whose note the provider has not got yet */
    uint32_t out; /* receiver: those that groups wait for, a bit each */
    uint32_t again; /* receiver: of these, what is to be given once more */
    uint32_t pieces; /* receiver: that may be written now */
    uint32_t idle; /* sender: places without a receive posted, a bit each */
    uint32_t lost; /* receiver: groups whose note did not leave, and is looked after, a bit each */
    int lost_err; /* of the last one: the provider's error, */
    uint32_t lost_rail; /* and where */
    struct ofi_op ops[OFI_REQUESTS]; /* of the rails in turn */
    size_t stride; /* bytes of the longest one */
    uint8_t *bytes;
    xcclNetMem_t mem; /* of bytes */
};

/* Grouped receives; ofi_group.c has what these are for. */
struct ofi_match {
    int asked; /* receiver: 1: there is a group; 2: the sender was told, too */
    int told; /* sender: the receiver knows where its early messages end */
    int answered; /* receiver: the same */
    int by_row; /* messages may have the numbers of parts from now on */
    int early_over; /* early messages are so long ago that their numbers come again */
    uint32_t from; /* the first message of the first group */
    uint32_t early_end; /* messages before it have their own numbers */
    struct ofi_message *guess; /* receiver: awaits what may be an early message, or NULL */
    uint32_t row; /* receiver: the next one's; sender: the one in turn */
    struct ofi_row rows[OFI_REQUESTS];
    int misfit; /* 1: a message has no part */
    uint32_t misfit_tag;
};

/* Large messages. */
struct ofi_pieces {
    uint32_t waiting; /* messages of which pieces are to be given to the provider yet */
    uint32_t oldest; /* no message before it waits */
    /* Sender, written ones: */
    uint32_t idle; /* operations, a bit each */
    struct ofi_op writes[OFI_WRITES];
    struct ofi_noted *noted; /* by number */
    struct ofi_target *targets; /* by number, and of each by rail */
    /* Sent ones, at both ends: one for each message under way and rail. NULL: there are none. */
    struct ofi_op *sends;
};

/* A flush of what was received into device memory. */
struct ofi_flush {
    struct ofi_comm *comm; /* first, as in ofi_message */
    enum ofi_state state;
    const void *data;
    xcclNetMem_t mem;
    uint32_t todo; /* rails that have not got their read yet, a bit each */
    uint32_t left; /* and whose read is to complete yet */
    struct ofi_op ops[OFI_RAILS_MAX];
};

struct ofi_flusher {
    struct ofi_flush flushes[OFI_REQUESTS];
    uint32_t waiting; /* that have something to do yet, a bit each */
    int has_device_memory; /* 1: some was registered with the comm, once */
    fi_addr_t self[OFI_RAILS_MAX];
    xcclNetMem_t mem; /* of bytes */
    uint8_t bytes[OFI_REQUESTS][OFI_RAILS_MAX]; /* what is read goes there */
};

/* The fabric's part of a comm. */
struct ofi_endpoint {
    struct fid_ep *ep;
    struct fid_cq *cq;
    struct fid_av *av;
    int can_wait, cq_fd; /* the queue has a descriptor, which is the provider's */
    fi_addr_t peer;
    size_t name_bytes;
    uint8_t name[OFI_ADDRESS_BYTES], peer_name[OFI_ADDRESS_BYTES];
    struct kit_silent crowd; /* at its port of TCP, if it has one */
};

/* A card's part of a comm. */
struct ofi_rail {
    struct ofi_device *device;
    uint32_t member; /* of the comm's device */
    struct ofi_endpoint end;
    int fabric_fd; /* a socket of the provider, to be polled only; -1: none */
    size_t load; /* sender: bytes under way */
    struct xccl_net_counters counters; /* of a merged device's member; in its tally */
};

/* A control connection. */
struct ofi_link {
    struct kit_side side; /* its fd -1: it is closed */
    uint32_t rail; /* whose way it shares; OFI_RAILS_MAX: no rail's */
    uint32_t heard; /* frames that have come by it */
    uint8_t in[OFI_FRAMES * KIT_SEALED(OFI_FRAME_BYTES)];
    uint8_t out[OFI_FRAMES * KIT_SEALED(OFI_FRAME_BYTES)];
    int unproved; /* the handshake is under way: no frames yet */
    int missed; /* frames went over the other links meanwhile */
};

/* Rails that fail, a bit each in all of these; ofi_failover.c has the drawing. */
struct ofi_failover {
    int on; /* both ends go on without them */
    uint32_t doubted; /* there was an error */
    uint32_t failed; /* nothing is given to them any more */
    uint32_t heard, ended; /* the peer says that they fail; its endpoint is closed */
    _Atomic uint32_t closed; /* our endpoint is; registrations read it from their threads */
    uint32_t told; /* that ours is closed, and what had come */
    int owes; /* receiver: what has come is to be told, whatever has failed */
    uint32_t gone; /* both have closed them, and know it */
    uint64_t again; /* operations of messages that are to be given once more, a bit each */
    uint64_t since_ns[OFI_RAILS_MAX]; /* of the error */
    int err[OFI_RAILS_MAX];
    char detail[OFI_RAILS_MAX][OFI_TEXT_BYTES / 2]; /* the provider's */
};

/* Of a comm whose caller sleeps. */
struct ofi_sleep {
    int on; /* 0: nobody has asked for the descriptor */
    int wait_fd, bell_fd, rung;
};

struct ofi_comm {
    struct ofi_ctx *ctx;
    struct ofi_device *device;
    struct xccl_net_counters counters;
    int is_send;
    size_t bytes_max; /* of a message */
    size_t eager_max; /* of one that goes as it is */
    int tells_size; /* a send carries its size beside the data */
    int tells_tag; /* and its tag beside its number */
    uint32_t tag_bits; /* bits of a tag that both ends' providers have */
    uint64_t secret; /* hides tags, from OFI_TAG_SHIFT on, with as many bits as there are */
    uint32_t beside; /* hides the number beside a write */
    int fetches; /* the provider is ofi_rxm */
    int drops; /* it is net */
    int in_order; /* it is ofi_rxd: receives are to be posted in the order of messages */
    int writes; /* both ends have the write path */
    int cuts; /* large messages are written, or sent in pieces */
    uint32_t rail_count;
    struct ofi_rail rails[OFI_RAILS_MAX]; /* the same ones at both ends */
    struct ofi_failover failover;
    uint32_t left_out; /* cards of its device that it does without */
    int is_joined; /* all its control connections are there */
    int is_agreed; /* receiver, where rails may fail: the sender goes on with these rails */
    int is_up; /* its caller has it */
    struct ofi_sleep sleep;
    int refused; /* the provider did not take all that could be given to it */
    uint32_t ready; /* requests that are done, and the caller does not know yet */
    struct ofi_link links[OFI_RAILS_MAX]; /* control connections */
    uint32_t link_count;
    uint32_t frames; /* that have come */
    int peer_left; /* all are closed: by a peer that has said goodbye (1), or without (2) */
    uint64_t left_ns; /* when that was seen, or when something came last after it */
    uint32_t settled; /* polls of progress since the last completion */
    uint32_t idle_polls; /* without a completion since then */
    uint32_t taken; /* messages; the first is the one that proves the way, and is counted */
    uint32_t posted; /* given to the provider */
    uint32_t moved; /* completed */
    uint32_t counted; /* sender: what the receiver has told; receiver: what was told */
    uint32_t front; /* receiver, where rails may fail: the first message that has not come whole */
    uint32_t goodbye; /* receiver: messages before it have left the sender, which has closed */
    int asked; /* receiver: each message is to be told of */
    xcclResult_t rc; /* the first error, which stays */
    xcclNetCause_t cause;
    int sys_errno;
    int64_t vendor;
    char peer_text[XCCL_ADDR_TEXT_BYTES];
    char error_text[OFI_TEXT_BYTES];
    struct ofi_comm *next;
    xcclNetMem_t probe_mem;
    struct ofi_message first[OFI_RAILS_MAX]; /* message 0, by each rail */
    uint32_t proved; /* rails by which it has come or left, a bit each */
    uint32_t failed_rail; /* + 1: whose error ended it; 0: none's */
    uint64_t probe[OFI_RAILS_MAX];
    uint64_t idle; /* operations of messages, a bit each */
    struct ofi_op ops[OFI_WINDOW];
    struct ofi_message messages[OFI_MESSAGES]; /* by the order of their posting */
    uint32_t groups_taken; /* receiver */
    struct ofi_group groups[OFI_REQUESTS];
    uint8_t by_number[OFI_MESSAGES]; /* places in messages */
    struct ofi_notes notes;
    struct ofi_match match;
    struct ofi_pieces pieces;
    struct ofi_flusher *flusher; /* of a receiver whose device takes device memory, else NULL */
};

/* How long something has been waited for, by calls that look at it: a caller that does not come for
 * long has waited for nothing meanwhile. */
struct ofi_patience {
    uint64_t waited_ns, last_ns;
};

struct ofi_connect {
    struct ofi_ctx *ctx;
    struct ofi_device *device;
    struct ofi_comm *comm; /* NULL: it could not be made */
    struct kit_handle handle; /* addresses of cards of their own */
    uint32_t way; /* which of the handle's addresses is tried */
    uint32_t without; /* cards of the device that are left out, a bit each */
    uint32_t refusals; /* tries that the receiver has ended */
    struct ofi_patience patience; /* with the try; once a rail has proved itself, with the others */
    int proved; /* one has */
    int is_final; /* another try would fail alike */
    int introduced, probed;
    struct kit_greeting greeting; /* of the link that says hello */
    uint64_t visit;
    uint32_t side; /* the link that introduces itself; the first one has */
    struct xccl_addr ways[OFI_RAILS_MAX]; /* of links */
    uint8_t hello[KIT_SEALED(OFI_HELLO_BYTES)];
    uint8_t reply[KIT_SEALED(OFI_REPLY_BYTES)];
};

struct ofi_listen {
    struct ofi_ctx *ctx;
    struct ofi_device *device;
    struct kit_listener door; /* its ports by the device's members; -1: as one before it */
    struct ofi_comm *comm; /* of the right sender, until its first message has come */
    uint64_t visit; /* what its further connections say */
    struct ofi_patience patience; /* with rails, once the sender is up and one has proved itself */
    uint32_t first; /* the member of the device by whose port it came */
    uint32_t without; /* members that have failed so, a bit each */
    uint32_t awaited; /* rails of those that have not come, a bit each */
    int posted; /* the receive for it */
    size_t sent;
    uint8_t reply[KIT_SEALED(OFI_REPLY_BYTES)];
};

#include "ofi_calls.h"

#endif

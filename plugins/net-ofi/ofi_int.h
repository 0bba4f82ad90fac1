/* SPDX-License-Identifier: BSD-3-Clause */
/* Inside of the ofi plugin: XCCL's network contract over libfabric.
 *
 * An instance has devices, one for each network card (libfabric: domain) of the provider that was
 * chosen. Each comm has an endpoint, a completion queue and an address vector of its own, so that a
 * close ends its requests and nobody else's, and a TCP connection to its peer, the control
 * connection: by it the two exchange their endpoints' addresses, credits, and signs of life.
 *
 * A message is one tagged send whose tag is the message's number; a receive asks for its number, so
 * no order is asked of the provider. At most OFI_WINDOW messages are on their way that the receiver
 * has not counted yet. Where both ends have the write path (ofi_write.c), that send carries
 * messages of up to OFI_EAGER_BYTES; of a larger one it says the size alone, and the bytes are
 * written into the memory that the receiver has announced. */
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
#include "base/doorstep.h"
#include "base/error.h"
#include "base/net_entry.h"
#include "base/netaddr.h"
#include "base/wire.h"
#include "xccl_net.h"

#define OFI_WIRE_VERSION  2
#define OFI_HANDLE_MAGIC  0x6f666931u /* "ofi1" */
#define OFI_TOKEN_BYTES   32
#define OFI_ADDRESS_BYTES 256 /* an endpoint's address; names of shm are the longest */
#define OFI_HELLO_BYTES   (16 + OFI_TOKEN_BYTES + OFI_ADDRESS_BYTES)
#define OFI_REPLY_BYTES   (16 + OFI_ADDRESS_BYTES)
#define OFI_FRAME_BYTES   8 /* on the control connection once it is up */
#define OFI_DEVICES_MAX   32
#define OFI_REQUESTS      XCCL_NET_MAX_REQUESTS
#define OFI_WINDOW        (2u * OFI_REQUESTS)
#define OFI_CREDIT_STEP   (OFI_WINDOW / 4)
#define OFI_TEXT_BYTES    512
#define OFI_NAME_BYTES    64
#define OFI_PATH_BYTES    256
#define OFI_POLL_ENTRIES  16
#define OFI_API_VERSION   FI_VERSION(1, 17) /* what we ask for; an older library is refused */
/* Larger messages are written, where both ends can; over ofi_rxm one send is quicker up to here. */
#define OFI_EAGER_BYTES     8192
#define OFI_RXM_EAGER_BYTES 16384
#define OFI_PIECES_MAX      16u /* of a message; the provider says how large one may be */
#define OFI_WRITES          32u /* under way in a comm */
#define OFI_NOTE_BYTES      32

static_assert(OFI_WINDOW > OFI_REQUESTS + OFI_CREDIT_STEP, "credits come before they are missed");
static_assert(OFI_REQUESTS == 32 && OFI_WRITES == 32, "places are bits of 32");

/* What is taken out of libfabric.so.1; all else is inline calls through the objects it gives. */
struct ofi_library {
    uint32_t (*version)(void);
    int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
                   const struct fi_info *hints, struct fi_info **info);
    void (*freeinfo)(struct fi_info *info);
    struct fi_info *(*dupinfo)(const struct fi_info *info);
    int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
    const char *(*strerror)(int errnum);
};

/* A registration with the provider, shared by those of the contract that it holds. */
struct ofi_region {
    uintptr_t first, end; /* whole pages */
    uint64_t access; /* libfabric's bits */
    uint32_t count; /* registrations of the contract inside */
    struct fid_mr *mr;
    struct fid_ep *ep; /* FI_MR_ENDPOINT: good for this one only, else NULL */
    struct ofi_region *next; /* sorted by first */
};

struct ofi_device {
    char name[OFI_NAME_BYTES];
    char pci_path[OFI_PATH_BYTES];
    uint32_t speed_mbps;
    struct xccl_addr control; /* where control connections come to, port 0 */
    struct fi_info *info;
    int local_mr; /* buffers must be registered */
    uint64_t piece_bytes; /* the most that one write carries; 0: no write path */
    pthread_mutex_t lock; /* of what follows: opened with the first comm, and the regions */
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct ofi_region *regions;
    uint64_t next_key;
    struct xccl_net_tally tally;
};

struct ofi_comm;

struct ofi_ctx {
    struct ofi_library library;
    xcclNetLogger_t log;
    int has_provider, device_count;
    struct ofi_device devices[OFI_DEVICES_MAX];
    pthread_mutex_t lock; /* of the two lists; progress runs alone and does without */
    struct ofi_comm *comms; /* that are up */
    struct ofi_comm *lingering; /* closed senders whose receiver has not counted all messages */
};

enum ofi_state { OFI_FREE = 0, OFI_ACTIVE, OFI_DONE };

enum ofi_kind { OFI_MESSAGE = 0, OFI_NOTE, OFI_WRITE };

/* Of a receive that may be written to: what has become of its note. */
enum ofi_notice {
    OFI_NOTICE_NONE = 0, /* it is too small for one */
    OFI_NOTICE_DUE,
    OFI_NOTICE_GIVEN, /* to the provider */
    OFI_NOTICE_NEEDLESS /* the message was small, or its sender has left */
};

/* What the provider knows an operation by, until its completion. */
struct ofi_op {
    struct fi_context2 context; /* the provider's; first, see fi_endpoint(3) */
    enum ofi_kind kind;
    uint32_t place; /* among the comm's of its kind */
    struct ofi_request *request; /* NULL: a receive for notes */
};

struct ofi_request {
    struct ofi_op op;
    struct ofi_comm *comm;
    enum ofi_state state;
    uint32_t left; /* completions of our operations that are to come yet */
    size_t bytes;
    /* The write path. */
    uint32_t number;
    uint32_t wanted, seen; /* receiver: the pieces, a bit each */
    uint32_t pieces, next; /* sender: all, and those that were given to the provider */
    enum ofi_notice notice; /* receiver */
    int plain; /* receiver: the message itself has come, so nothing is written */
    uint64_t lost_ns; /* receiver: when the note was found not to have left; 0: it was not */
    const uint8_t *data;
    xcclNetMem_t mem;
};

/* A posted receive, as its receiver announces it. */
struct ofi_note {
    uint32_t number;
    int valid;
    uint64_t addr, key, room;
};

/* The write path's part of a comm. */
struct ofi_rma {
    uint32_t waiting; /* requests of which something is to be given to the provider yet */
    uint32_t idle_notes; /* sender: places without a receive posted, a bit each */
    uint32_t idle_writes; /* the same of writes that may be begun */
    uint32_t notes_out; /* receiver: those that requests wait for, a bit each */
    int refused; /* the provider did not take all that could be given to it */
    int lost; /* receiver: the provider's error of the last note that did not leave; 0: none */
    struct ofi_note notes[OFI_WINDOW]; /* sender: by number */
    struct ofi_op note_ops[OFI_REQUESTS];
    struct ofi_op write_ops[OFI_WRITES];
    uint8_t note_bytes[OFI_REQUESTS][OFI_NOTE_BYTES];
    xcclNetMem_t mem; /* of note_bytes */
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
    int is_send, listed;
    size_t bytes_max; /* of a message */
    size_t eager_max; /* of one that is not written */
    int tells_size; /* a send carries its size beside the data */
    int fetches; /* the provider is ofi_rxm */
    int drops; /* it is net */
    int writes; /* both ends have the write path */
    struct ofi_rma *rma; /* NULL: this end has not */
    struct ofi_endpoint end;
    struct ofi_sleep sleep;
    uint32_t ready; /* requests that are done, and the caller does not know yet */
    int fd; /* the control connection */
    int peer_left; /* it is closed: by a peer that has said goodbye (1), or without (2) */
    uint64_t left_ns; /* when that was seen, or when something came last after it */
    int fabric_fd; /* a socket of the provider, to be polled only; -1: none */
    uint32_t settled; /* polls of progress since the last completion */
    uint32_t idle; /* polls without a completion since then */
    uint32_t posted; /* messages; number 0 is the one that proves the way, and is counted */
    uint32_t moved; /* completed */
    uint32_t counted; /* sender: what the receiver has told; receiver: what was told */
    uint32_t goodbye; /* receiver: messages before it have left the sender, which has closed */
    int asked; /* receiver: each message is to be told of */
    uint32_t frame_bytes; /* of a frame that is coming */
    uint8_t frame[OFI_FRAME_BYTES];
    uint32_t out_first, out_bytes; /* frames on their way */
    uint8_t out[4 * OFI_FRAME_BYTES];
    xcclResult_t rc; /* the first error, which stays */
    xcclNetCause_t cause;
    int sys_errno;
    int64_t vendor;
    char peer_text[XCCL_ADDR_TEXT_BYTES];
    char error_text[OFI_TEXT_BYTES];
    struct ofi_comm *next;
    xcclNetMem_t probe_mem;
    struct ofi_request first; /* of message 0 */
    uint64_t probe;
    struct ofi_request requests[OFI_REQUESTS];
};

struct ofi_handle {
    uint8_t token[OFI_TOKEN_BYTES];
    struct xccl_addr addr;
};

struct ofi_connect {
    struct ofi_comm *comm;
    struct ofi_handle handle;
    int connected, introduced, probed;
    uint32_t sent, have;
    uint8_t hello[OFI_HELLO_BYTES];
    uint8_t reply[OFI_REPLY_BYTES];
};

struct ofi_listen {
    struct ofi_ctx *ctx;
    struct ofi_device *device;
    int fd;
    uint8_t token[OFI_TOKEN_BYTES];
    struct xccl_doorstep step;
    struct ofi_comm *comm; /* of the right sender, until its first message has come */
    int posted; /* the receive for it */
    uint32_t sent;
    uint8_t reply[OFI_REPLY_BYTES];
};

/* ofi_library.c */
xcclResult_t ofi_library_open(struct ofi_library *library_out);

/* ofi_manners.c: around calls by which libfabric changes the process. */
#define OFI_SIGNALS 7
#define OFI_FDS_MAX 65536
struct ofi_manners {
    struct sigaction signals[OFI_SIGNALS];
    uint64_t fds[OFI_FDS_MAX / 64];
};
void ofi_manners_begin(struct ofi_manners *manners);
void ofi_manners_end(struct ofi_manners *manners);
/* Those of a connection between two endpoints, both names of OFI_ADDRESS_BYTES. Gives one, or -1.
 */
int ofi_manners_sockets(const uint8_t *own, const uint8_t *peer);
/* Ends the same. */
void ofi_manners_cut(const uint8_t *own, const uint8_t *peer);

/* ofi_choose.c: pure. */
struct ofi_choice {
    const char *provider; /* NULL: none */
    char line[OFI_TEXT_BYTES]; /* what was chosen, and why the others were not */
};
/* names: what libfabric offers, in its order; asked: a provider's name, or NULL. */
void ofi_choose(const char *const *names, int count, const char *asked,
                struct ofi_choice *choice_out);
/* 1: "tcp" and "TCP;ofi_rxm" ask for tcp;ofi_rxm. */
int ofi_name_matches(const char *asked, const char *provider);

/* ofi_platform.c */
void ofi_platform_name(char name_out[OFI_NAME_BYTES]); /* "" where nobody says */
/* 1: the cards of such a machine write to remote memory by themselves. */
int ofi_platform_writes(const char *name);
/* What is wrong with a machine of that name, or "". provider: the chosen one, NULL: none;
 * slowest_mbps: of its cards, 0: unknown. */
void ofi_platform_check(const char *name, const char *provider, int cards, uint32_t slowest_mbps,
                        char line_out[OFI_TEXT_BYTES]);

/* ofi_device.c */
xcclResult_t ofi_init(const xcclNetInit_v1 *init, xcclNetContext_t *ctx_out);
xcclResult_t ofi_finalize(xcclNetContext_t ctx);
xcclResult_t ofi_devices(xcclNetContext_t ctx, int *count_out);
xcclResult_t ofi_properties(xcclNetContext_t ctx, int dev, xcclNetProperties_v1 *props);
xcclResult_t ofi_stats(xcclNetContext_t ctx, int dev, xcclNetStats_v1 *stats);
/* NULL after an error when there is no such device, or it does not open. */
struct ofi_device *ofi_device_get(struct ofi_ctx *ctx, int dev);
struct ofi_device *ofi_device_open(struct ofi_ctx *ctx, int dev);

size_t ofi_device_bytes(const struct ofi_device *device); /* of a message, at most */
size_t ofi_device_send_bytes(const struct ofi_device *device); /* of one send of the provider */

/* ofi_endpoint.c */
xcclResult_t ofi_endpoint_open(struct ofi_ctx *ctx, struct ofi_device *device,
                               struct ofi_endpoint *end_out);
void ofi_endpoint_close(struct ofi_endpoint *end);
/* From now on it sends to this address. */
xcclResult_t ofi_endpoint_aim(struct ofi_comm *comm, const uint8_t *name);

/* ofi_handle.c */
void ofi_handle_encode(const struct ofi_handle *handle, xcclNetHandle_t *handle_out);
xcclResult_t ofi_handle_decode(const xcclNetHandle_t *bytes, struct ofi_handle *handle_out);
/* piece_bytes: what a write of this end carries at most; in a reply 0 says that nothing is written
 * over this connection. */
void ofi_hello_encode(const uint8_t token[OFI_TOKEN_BYTES], const struct ofi_endpoint *end,
                      uint64_t piece_bytes, uint8_t bytes_out[OFI_HELLO_BYTES]);
/* The sender's address, or NULL when the hello is wrong. */
const uint8_t *ofi_hello_decode(const uint8_t bytes[OFI_HELLO_BYTES],
                                const uint8_t token[OFI_TOKEN_BYTES], uint64_t *piece_bytes_out);
void ofi_reply_encode(const struct ofi_endpoint *end, uint64_t piece_bytes,
                      uint8_t bytes_out[OFI_REPLY_BYTES]);
const uint8_t *ofi_reply_decode(const uint8_t bytes[OFI_REPLY_BYTES], uint64_t *piece_bytes_out);
void ofi_note_encode(const struct ofi_note *note, uint8_t bytes_out[OFI_NOTE_BYTES]);
/* 0: it is not ours. */
int ofi_note_decode(const uint8_t bytes[OFI_NOTE_BYTES], struct ofi_note *note_out);

/* ofi_listen.c, ofi_connect.c */
xcclResult_t ofi_listen(xcclNetContext_t ctx, int dev, xcclNetHandle_t *handle,
                        xcclNetListenComm_t *listen_out);
xcclResult_t ofi_accept(xcclNetListenComm_t listen, xcclNetRecvComm_t *comm_out);
xcclResult_t ofi_close_listen(xcclNetListenComm_t listen);
xcclResult_t ofi_connect(xcclNetContext_t ctx, int dev, const xcclNetHandle_t *handle,
                         xcclNetConnect_t *state, xcclNetSendComm_t *comm_out);
xcclResult_t ofi_close_connect(xcclNetContext_t ctx, xcclNetConnect_t state);

/* ofi_comm.c */
/* Takes fd, also when it fails. NULL after an error. */
struct ofi_comm *ofi_comm_create(struct ofi_ctx *ctx, struct ofi_device *device, int is_send,
                                 int fd, const struct xccl_addr *peer);
void ofi_comm_destroy(struct ofi_comm *comm);
void ofi_comm_up(struct ofi_comm *comm); /* progress looks after it from now on */
xcclResult_t ofi_close_comm(void *comm);
void ofi_comm_sweep(struct ofi_ctx *ctx, int wait_ms);
xcclResult_t ofi_progress(xcclNetContext_t ctx, int *pending_out);
/* Keeps the thread's error text for all later calls. */
void ofi_comm_fail(struct ofi_comm *comm, xcclNetCause_t cause, xcclResult_t rc);
/* The same for an error of libfabric, a positive number; detail may be "". */
void ofi_comm_fail_fabric(struct ofi_comm *comm, int err, const char *doing, const char *detail);
xcclResult_t ofi_comm_error(const struct ofi_comm *comm);
xcclResult_t ofi_error_detail(void *comm, xcclNetError_v1 *error);

/* ofi_control.c */
void ofi_control_tune(int fd);
void ofi_control_look(struct ofi_comm *comm); /* reads and answers; errors are kept in the comm */
void ofi_control_count(struct ofi_comm *comm); /* receiver: tells it when it is due */
void ofi_control_goodbye(struct ofi_comm *comm);

/* ofi_memory.c */
xcclResult_t ofi_reg_mr(void *comm, void *data, size_t bytes, uint32_t type, xcclNetMem_t *mem_out);
/* The same for host memory of our own; access: besides sending from there and receiving there. */
xcclResult_t ofi_mem_register(struct ofi_comm *comm, void *data, size_t bytes, uint64_t access,
                              xcclNetMem_t *mem_out);
xcclResult_t ofi_dereg_mr(void *comm, xcclNetMem_t mem);
void *ofi_mem_desc(const struct ofi_comm *comm, xcclNetMem_t mem);
/* Where a peer finds data, inside mem. 0: it is not registered, or not for that. */
int ofi_mem_remote(const struct ofi_comm *comm, xcclNetMem_t mem, const void *data,
                   struct ofi_note *note_out);

/* ofi_request.c */
xcclResult_t ofi_isend(xcclNetSendComm_t comm, const void *data, size_t bytes, uint32_t tag,
                       xcclNetMem_t mem, xcclNetRequest_t *request_out);
xcclResult_t ofi_irecv(xcclNetRecvComm_t comm, int count, void *const *data, const size_t *bytes,
                       const uint32_t *tags, const xcclNetMem_t *mems,
                       xcclNetRequest_t *request_out);
xcclResult_t ofi_test(xcclNetRequest_t request, int *done_out, size_t *bytes_out);
/* Starts message 0. *posted_out 0: not now. */
xcclResult_t ofi_request_first(struct ofi_comm *comm, int *posted_out);
/* All messages before this number have left. */
uint32_t ofi_request_left(const struct ofi_comm *comm);
/* Takes completions; errors are kept in the comm. */
void ofi_request_poll(struct ofi_comm *comm);
/* Ends a request of which everything has come. */
void ofi_request_settle(struct ofi_request *request);
/* The error of a message that exceeds its receive. */
void ofi_request_truncated(struct ofi_comm *comm, size_t over);
/* That of a peer that keeps to no rule. */
void ofi_request_damaged(struct ofi_comm *comm, const char *what);

/* ofi_wait.c */
/* 1: endpoints of this device are to have a queue with a descriptor. */
int ofi_wait_wanted(const struct ofi_device *device);
/* 1: the caller has not asked in vain for long. */
int ofi_wait_asks(const struct ofi_comm *comm);
/* After each poll of the queue: whoever sleeps is woken when something can be done. */
void ofi_wait_arm(struct ofi_comm *comm);
xcclResult_t ofi_wait_fd(void *comm, int *fd_out);
void ofi_wait_close(struct ofi_comm *comm);

/* ofi_write.c */
#define OFI_WRITTEN                                                                                \
    0x80000000u /* beside a message: its bytes are written, the rest is their size */
xcclResult_t ofi_write_create(struct ofi_comm *comm);
/* Both ends have told: the connection's. */
void ofi_write_agree(struct ofi_comm *comm, uint64_t piece_bytes);
size_t ofi_write_cq_entries(const struct ofi_device *device);
/* A request that begins. */
void ofi_write_begin(struct ofi_comm *comm, struct ofi_request *request, const void *data,
                     size_t bytes, xcclNetMem_t mem);
/* Gives the provider what waits for it; what it does not take goes with the next call. */
void ofi_write_push(struct ofi_comm *comm);
/* 1: the completion was one of this path. */
int ofi_write_completed(struct ofi_comm *comm, const struct fi_cq_data_entry *entry);
/* The same of one that has failed. */
int ofi_write_failed(struct ofi_comm *comm, const struct fi_cq_err_entry *entry);
/* Receiver: a write of the peer, and what came beside it. */
void ofi_write_came(struct ofi_comm *comm, uint64_t beside);
/* The message that says a size alone has come. 0: the comm has failed. */
int ofi_write_headed(struct ofi_request *request, size_t bytes);
/* The same for a message that has come whole. */
int ofi_write_plain(struct ofi_request *request);
/* A message that waits for writes of which nobody knows, for its note was lost, fails in time. */
void ofi_write_look(struct ofi_comm *comm);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the ofi plugin give to each other, file by file; the types are in ofi_int.h,
 * which includes this. What a function is called on, its caller holds: a comm belongs to one
 * thread at a time, and what is of the instance has its lock. */
#ifndef XCCL_OFI_CALLS_H
#define XCCL_OFI_CALLS_H

#ifndef XCCL_OFI_INT_H
#error "include ofi_int.h"
#endif

/* ofi_library.c */
xcclResult_t ofi_library_open(struct ofi_library *library_out);

/* ofi_manners.c: around calls by which libfabric changes the process. */
#define OFI_SIGNALS 7
struct ofi_manners {
    struct sigaction signals[OFI_SIGNALS];
    struct kit_fds fds;
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

/* ofi_merge.c */
xcclResult_t ofi_merge(xcclNetContext_t ctx, const int *devs, int count, int *dev_out);

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
int ofi_device_parts(const struct ofi_device *device); /* of a grouped receive, at most */
int ofi_device_is_rxd(const struct ofi_device *device);
size_t ofi_device_send_bytes(const struct ofi_device *device); /* of one send of the provider */
/* What libfabric is asked for, of that provider; NULL: no memory. */
struct fi_info *ofi_device_hints(const struct ofi_ctx *ctx, const char *provider);
/* Frees the hints. *infos NULL: there is nothing. */
xcclResult_t ofi_device_ask(const struct ofi_ctx *ctx, uint32_t version, struct fi_info *hints,
                            struct fi_info **infos);
int ofi_device_is_same(const struct fi_info *a, const struct fi_info *b);

/* ofi_endpoint.c */
/* of: the comm's device. */
xcclResult_t ofi_endpoint_open(struct ofi_ctx *ctx, struct ofi_device *device,
                               const struct ofi_device *of, struct ofi_endpoint *end_out);
void ofi_endpoint_close(struct ofi_endpoint *end);
/* From now on it sends to this address. */
xcclResult_t ofi_endpoint_aim(struct ofi_comm *comm, struct ofi_rail *rail, const uint8_t *name);

/* ofi_wire.c */
extern const struct kit_dialect ofi_dialect;
/* What a sender says of itself; kit_hello_read reads it. */
struct ofi_hello {
    uint64_t piece_bytes; /* what a write of this end carries at most; 0: it has none */
    uint32_t count; /* of its endpoints */
    uint32_t tells; /* OFI_TELLS_*, a bit each, that it can */
    /* count 0: one more control connection of the visit piece_bytes, for rail tells. */
    uint8_t names[OFI_RAILS_MAX][OFI_ADDRESS_BYTES];
};
/* Whether a rail has a control connection. */
enum ofi_way { OFI_WAY_NONE = 0, OFI_WAY_FIRST, OFI_WAY_OWN };
/* What the receiver makes of it. */
struct ofi_reply {
    uint64_t visit;
    uint64_t piece_bytes; /* of this connection; 0: nothing is written */
    uint32_t count; /* of rails */
    uint32_t tells; /* that both can */
    uint32_t ends[OFI_RAILS_MAX]; /* the sender's, by rail */
    uint32_t ways[OFI_RAILS_MAX]; /* enum ofi_way */
    uint8_t addrs[OFI_RAILS_MAX][XCCL_ADDR_WIRE_BYTES]; /* of OFI_WAY_OWN, else zero */
    uint8_t names[OFI_RAILS_MAX][OFI_ADDRESS_BYTES]; /* the receiver's */
};
void ofi_hello_encode(const struct ofi_hello *hello, uint8_t bytes_out[OFI_HELLO_BYTES]);
void ofi_reply_encode(const struct ofi_reply *reply, uint8_t bytes_out[OFI_REPLY_BYTES]);
/* ends: the sender has so many. */
int ofi_reply_decode(const uint8_t bytes[OFI_REPLY_BYTES], uint32_t ends,
                     struct ofi_reply *reply_out);
/* Gives the bytes. */
size_t ofi_note_encode(const struct ofi_note *note, uint32_t targets, uint8_t *bytes_out);
/* 0: it is not ours. */
int ofi_note_decode(const uint8_t *bytes, size_t bytes_count, uint32_t targets,
                    struct ofi_note *note_out);
size_t ofi_note_bytes(uint32_t parts, uint32_t targets);

/* ofi_listen.c, ofi_connect.c */
xcclResult_t ofi_listen(xcclNetContext_t ctx, int dev, xcclNetHandle_t *handle,
                        xcclNetListenComm_t *listen_out);
xcclResult_t ofi_accept(xcclNetListenComm_t listen, xcclNetRecvComm_t *comm_out);
xcclResult_t ofi_close_listen(xcclNetListenComm_t listen);
xcclResult_t ofi_connect(xcclNetContext_t ctx, int dev, const xcclNetHandle_t *handle,
                         xcclNetConnect_t *state, xcclNetSendComm_t *comm_out);
xcclResult_t ofi_close_connect(xcclNetContext_t ctx, xcclNetConnect_t state);

/* ofi_comm.c */
/* Takes fd, also when it fails. without: the device's members that are not to be used, a bit each.
 * NULL after an error. */
struct ofi_comm *ofi_comm_create(struct ofi_ctx *ctx, struct ofi_device *device, int is_send,
                                 int fd, const struct xccl_addr *peer, uint32_t without);
void ofi_comm_destroy(struct ofi_comm *comm);
/* 1: it has been OFI_LATE_NS. */
int ofi_patience_ends(struct ofi_patience *patience);
/* Says that a card is not used, with the thread's error text for the reason. */
void ofi_comm_leave_out(const struct ofi_comm *comm, const struct ofi_device *card);
/* The connection's rails are known: rail i is the one that was opened as ends[i], and its peer has
 * that name. Others are closed. */
xcclResult_t ofi_comm_pair(struct ofi_comm *comm, uint32_t count, const uint32_t *ends,
                           uint8_t (*names)[OFI_ADDRESS_BYTES]);
/* What it needs to be used, as the other end is. */
xcclResult_t ofi_comm_equip(struct ofi_comm *comm, uint64_t piece_bytes, uint32_t tells);
uint32_t ofi_comm_tells(const struct ofi_comm *comm); /* OFI_TELLS_* */
void ofi_comm_hear(struct ofi_comm *comm, uint32_t tells); /* the other end's */
/* Once the comm is equipped, and its first control connection has keys: derives the secrets that
 * hide tags and the numbers beside writes. */
void ofi_comm_key(struct ofi_comm *comm);
void ofi_comm_up(struct ofi_comm *comm); /* progress looks after it from now on */
/* Its endpoint, whatever is under way there. */
void ofi_comm_close_rail(struct ofi_comm *comm, struct ofi_rail *rail);
xcclResult_t ofi_close_comm(void *comm);
void ofi_comm_sweep(struct ofi_ctx *ctx, int wait_ms);
xcclResult_t ofi_progress(xcclNetContext_t ctx, int *pending_out);
/* Keeps the thread's error text for all later calls. */
void ofi_comm_fail(struct ofi_comm *comm, xcclNetCause_t cause, xcclResult_t rc);
/* Fails the comm with an error of libfabric on that rail, a positive number; detail may be "". */
void ofi_comm_fail_rail(struct ofi_comm *comm, const struct ofi_rail *rail, int err,
                        const char *doing, const char *detail);
xcclResult_t ofi_comm_error(const struct ofi_comm *comm);
xcclResult_t ofi_error_detail(void *comm, xcclNetError_v1 *error);

/* ofi_control.c */
void ofi_control_tune(struct ofi_comm *comm);
/* One more; takes fd. */
void ofi_control_add(struct ofi_comm *comm, int fd, uint32_t rail);
void ofi_control_close(struct ofi_comm *comm);
int ofi_control_is_open(const struct ofi_comm *comm);
/* 1: a frame is still here. */
int ofi_control_owes(const struct ofi_comm *comm);
void ofi_control_look(struct ofi_comm *comm); /* reads and answers; errors are kept in the comm */
void ofi_control_count(struct ofi_comm *comm); /* receiver: tells it when it is due */
void ofi_control_goodbye(struct ofi_comm *comm);
/* 1: an error of a control connection says that not the peer has closed it, but what lies between.
 */
void ofi_control_agree(struct ofi_comm *comm); /* sender: it is up */
/* Receiver: groups begin with message from. 0: it could not be said now. */
int ofi_control_groups(struct ofi_comm *comm, uint32_t from);
/* Sender: messages before end have their own numbers. */
void ofi_control_switch(struct ofi_comm *comm, uint32_t end);
/* Sender: there is no part for a message with this tag. */
void ofi_control_misfit(struct ofi_comm *comm, uint32_t tag);
/* A rail fails; what has come of a message; the rail's endpoint is closed. 0: it could not be said
 * now. */
void ofi_control_fails(struct ofi_comm *comm, uint32_t rail);
int ofi_control_has(struct ofi_comm *comm, uint32_t what);
int ofi_control_ended(struct ofi_comm *comm, uint32_t rail);

/* ofi_memory.c */
xcclResult_t ofi_reg_mr(void *comm, void *data, size_t bytes, uint32_t type, xcclNetMem_t *mem_out);
/* Registers host memory of the plugin; access: what is needed besides sending and receiving. */
xcclResult_t ofi_mem_register(struct ofi_comm *comm, void *data, size_t bytes, uint64_t access,
                              xcclNetMem_t *mem_out);
/* wanted: its range, kind and access. */
xcclResult_t ofi_mem_create(struct ofi_comm *comm, struct ofi_region *wanted,
                            xcclNetMem_t *mem_out);
uint64_t ofi_mem_access(const struct ofi_comm *comm); /* of memory of the caller's */
xcclResult_t ofi_dereg_mr(void *comm, xcclNetMem_t mem);
int ofi_mem_is_cuda(xcclNetMem_t mem);
void *ofi_mem_desc(const struct ofi_rail *rail, xcclNetMem_t mem);
/* Where data, inside mem, is found by that rail. 0: it is not registered, or not with that access.
 */
int ofi_mem_target(const struct ofi_rail *rail, xcclNetMem_t mem, const void *data, uint64_t access,
                   struct ofi_target *target_out);
/* Where a peer finds data, inside mem, by that rail. 0: it is not registered, or not for that. */
int ofi_mem_remote(const struct ofi_rail *rail, xcclNetMem_t mem, const void *data,
                   struct ofi_target *target_out);

/* ofi_hmem.c */
/* Devices take device memory from now on, where they do. */
xcclResult_t ofi_hmem_widen(struct ofi_ctx *ctx);
/* Pure. kernel: 5012 is Linux 5.12; told: the word of XCCL_OFI_DMABUF. */
int ofi_hmem_takes_dmabuf(uint32_t version, const char *provider, int kernel, int told);
/* An endpoint of such a device, before it is enabled: it leaves CUDA alone. Gives libfabric's
 * error where it cannot. */
int ofi_hmem_restrict(const struct ofi_ctx *ctx, struct fid_ep *ep);
/* wanted: its kind and access. */
xcclResult_t ofi_hmem_register(struct ofi_comm *comm, void *data, size_t bytes,
                               struct ofi_region *wanted, xcclNetMem_t *mem_out);
xcclResult_t ofi_reg_mr_dmabuf(void *comm, void *data, size_t bytes, uint32_t type, uint64_t offset,
                               int fd, xcclNetMem_t *mem_out);
/* The provider's call. */
int ofi_hmem_mr_reg(struct fid_domain *domain, const struct ofi_region *region, uint64_t key,
                    struct fid_mr **mr_out);

/* ofi_flush.c */
xcclResult_t ofi_flush_create(struct ofi_comm *comm); /* where the comm needs it */
void ofi_flush_destroy(struct ofi_comm *comm);
/* 1: messages may have been received into the memory of a device. */
int ofi_flush_is_needed(const struct ofi_comm *comm);
int ofi_flush_is_under_way(const struct ofi_comm *comm);
/* NULL: the request is no flush. */
struct ofi_flush *ofi_flush_of(const struct ofi_comm *comm, xcclNetRequest_t request);
/* Gives the provider what waits for it; what it does not take goes with the next call. */
void ofi_flush_push(struct ofi_comm *comm);
void ofi_flush_completed(struct ofi_comm *comm, const struct ofi_op *op);
/* 1: what has failed was a flush, and so the comm has; detail: the provider's text. */
int ofi_flush_failed(struct ofi_comm *comm, uint32_t rail_idx, const struct fi_cq_err_entry *entry,
                     const char *detail);
xcclResult_t ofi_iflush(xcclNetRecvComm_t comm, int count, void *const *data, const size_t *bytes,
                        const xcclNetMem_t *mems, xcclNetRequest_t *request_out);

/* ofi_request.c */
xcclResult_t ofi_isend(xcclNetSendComm_t comm, const void *data, size_t bytes, uint32_t tag,
                       xcclNetMem_t mem, xcclNetRequest_t *request_out);
xcclResult_t ofi_irecv(xcclNetRecvComm_t comm, int count, void *const *data, const size_t *bytes,
                       const uint32_t *tags, const xcclNetMem_t *mems,
                       xcclNetRequest_t *request_out);
xcclResult_t ofi_test(xcclNetRequest_t request, int *done_out, size_t *bytes_out);
void ofi_request_init(struct ofi_comm *comm);
/* Starts message 0, on each rail. *posted_out 0: not now. */
xcclResult_t ofi_request_first(struct ofi_comm *comm, int *posted_out);
/* All messages before this one have left. */
uint32_t ofi_request_left(const struct ofi_comm *comm);
/* Takes completions; errors are kept in the comm. */
void ofi_request_poll(struct ofi_comm *comm);
/* Takes completions of one rail. Gives how many; less than 0: an error. */
ssize_t ofi_request_poll_rail(struct ofi_comm *comm, uint32_t rail);
/* Sender: the receiver has all messages before end. */
void ofi_request_counted(struct ofi_comm *comm, uint32_t end);
/* Of a rail: its endpoint is closed, so its operations are over. */
void ofi_request_over(struct ofi_comm *comm, uint32_t rail);
/* It is gone: what has not come by it is given once more. Gives how much. */
uint32_t ofi_request_again(struct ofi_comm *comm, uint32_t rail);
/* Receiver: what has come of a message: OFI_HAS_HEAD and pieces, a bit each. */
uint32_t ofi_request_has(const struct ofi_comm *comm, uint32_t number);
/* Sender: the receiver says so. */
void ofi_request_arrived(struct ofi_comm *comm, uint32_t number, uint32_t has);
/* 1: a receive that may be of this message, or of a piece of it, must not be posted any more. */
int ofi_request_too_late(struct ofi_comm *comm, const struct ofi_message *message);
/* Ends a message of which everything has come. */
void ofi_request_settle(struct ofi_message *message);
/* Receiver: one that the group waits for less. */
void ofi_request_less(struct ofi_group *group);
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

/* ofi_group.c */
/* Receiver: a group was taken. */
void ofi_group_taken(struct ofi_comm *comm, const struct ofi_group *group);
/* Receiver: what has become known of the switch is used. */
/* Gives the tag of a message for the provider; a receive ignores the bits in *ignore_out. */
uint64_t ofi_group_tag(const struct ofi_message *message, uint64_t *ignore_out);
void ofi_group_move(struct ofi_comm *comm);
/* What is to be given to the provider next, with its number; NULL: nothing now. There is something
 * that was taken. */
struct ofi_message *ofi_group_next(struct ofi_comm *comm);
/* Receiver: an early message has come into the part that was guessed. Gives its own, where it is
 * now; NULL: there is none, or it is too small. */
struct ofi_message *ofi_group_came(struct ofi_message *guess, uint32_t tag, size_t bytes);
/* There is no part for a message with this tag: the comm fails once those before it have come. */
void ofi_group_misfit(struct ofi_comm *comm, uint32_t tag);
/* Receiver: after that, and all that it leads to. */
void ofi_group_look(struct ofi_comm *comm, const struct ofi_message *message);
/* Sender: the receiver has announced a group. */
void ofi_group_noted(struct ofi_comm *comm, const struct ofi_note *note);
/* Frames: sender: the receiver's groups begin there; receiver: where early messages end. 0: no peer
 * that keeps to the rules says so. */
int ofi_group_asked(struct ofi_comm *comm, uint32_t from);
int ofi_group_answered(struct ofi_comm *comm, uint32_t end);

/* ofi_failover.c */
int ofi_failover_can(const struct ofi_device *device);
static inline uint32_t ofi_failover_closed(const struct ofi_comm *comm)
{
    /* Relaxed: nothing else hangs on it. */
    return atomic_load_explicit(&comm->failover.closed, memory_order_relaxed);
}
/* Where message or piece `number` is sent and awaited; OFI_RAILS_MAX: that is not known now. */
uint32_t ofi_failover_home(const struct ofi_comm *comm, uint32_t number);
/* A rail for what may go by any, a good one if there is one; OFI_RAILS_MAX: none. */
uint32_t ofi_failover_next(const struct ofi_comm *comm, uint32_t number);
/* A rail has an error, a positive number of libfabric: it drops out, or the comm fails. */
void ofi_failover_fail(struct ofi_comm *comm, uint32_t rail, int err, const char *doing,
                       const char *detail);
/* Receiver: a note has failed, which may have to do with the rail, or with a sender that closes.
 * 1: it goes by another one. */
int ofi_failover_doubt(struct ofi_comm *comm, uint32_t rail, int err);
/* Frames: a rail fails, or its endpoint is closed; what has come of a message. 0: no peer that
 * keeps to the rules says so. */
int ofi_failover_heard(struct ofi_comm *comm, uint32_t rail, int ended);
int ofi_failover_has(struct ofi_comm *comm, uint32_t what);
/* Rails that have failed, for all that is known, and not because the peer leaves. */
uint32_t ofi_failover_bad(const struct ofi_comm *comm);
/* Receiver: a message has come that others are to come before; its sender may wait for it. */
void ofi_failover_tell(struct ofi_comm *comm, uint32_t number);
/* After each poll of the queues. */
void ofi_failover_move(struct ofi_comm *comm);
/* 1: a later call may move something, though nothing may come from outside. */
int ofi_failover_goes_on(const struct ofi_comm *comm);

/* ofi_note.c */
xcclResult_t ofi_note_create(struct ofi_comm *comm);
/* Receiver: a group whose messages are numbered. */
void ofi_note_begin(struct ofi_comm *comm, struct ofi_group *group);
/* Gives the provider what waits for it; what it does not take goes with the next call. */
void ofi_note_push(struct ofi_comm *comm);
/* Receiver: the group waits for its note no longer. */
void ofi_note_withdraw(struct ofi_group *group);
/* As ofi_request_over and ofi_request_again. */
void ofi_note_over(struct ofi_comm *comm, uint32_t rail);
void ofi_note_again(struct ofi_comm *comm, uint32_t rail);
void ofi_note_completed(struct ofi_comm *comm, const struct ofi_op *op, size_t bytes);
/* 1: what has failed was a note, and that is all about it. */
int ofi_note_failed(struct ofi_comm *comm, const struct fi_cq_err_entry *entry);
/* Receiver: a message of the group was found to be one that is written. */
void ofi_note_missed(struct ofi_group *group);
/* What waits for a note that was lost fails in time. */
void ofi_note_look(struct ofi_comm *comm);

/* ofi_piece.c */
#define OFI_IN_PIECES                                                                              \
    0x80000000u /* beside a message: its bytes come in pieces, the rest is their size */
xcclResult_t ofi_piece_create(struct ofi_comm *comm);
void ofi_piece_destroy(struct ofi_comm *comm);
/* Both ends have told: the connection's. */
void ofi_piece_agree(struct ofi_comm *comm, uint64_t piece_bytes);
/* Of others than messages and notes: what a rail's queue must hold. */
size_t ofi_piece_cq_entries(const struct ofi_device *device);
uint32_t ofi_piece_count(const struct ofi_comm *comm, size_t bytes);
uint32_t ofi_piece_most(const struct ofi_device *device); /* of a written message */
/* A message that begins. */
void ofi_piece_begin(struct ofi_message *message);
/* Sender: the receiver of message number is there. */
void ofi_piece_noted(struct ofi_comm *comm, uint32_t number, const struct ofi_part *part);
/* Sender, write path: the message is over, and where it was written to is forgotten. */
void ofi_piece_forget(struct ofi_comm *comm, uint32_t number);
/* As ofi_request_over and ofi_request_again. */
void ofi_piece_over(struct ofi_comm *comm, uint32_t rail);
uint32_t ofi_piece_again(struct ofi_comm *comm, uint32_t rail);
/* Gives the provider what waits for it; what it does not take goes with the next call. */
void ofi_piece_push(struct ofi_comm *comm);
/* bytes: that have come, at a receiver. */
void ofi_piece_completed(struct ofi_comm *comm, const struct ofi_op *op, size_t bytes);
/* Receiver: a write of the peer, and what came beside it. */
void ofi_piece_came(struct ofi_comm *comm, uint32_t rail, uint64_t beside);
/* Receiver: counts what has come by each rail. */
void ofi_piece_tally(struct ofi_message *message);
/* The message that says a size alone has come. 0: the comm has failed. */
int ofi_piece_headed(struct ofi_message *message, size_t bytes);
/* A message that was sent whole has come, without writes. 0: the comm has failed. */
int ofi_piece_plain(struct ofi_message *message);

/* ofi_rail.c: pure. */
/* Which of a receiver's endpoints talks to which of a sender's; gives how many pairs, the lesser of
 * both numbers. */
uint32_t ofi_rail_pair(uint32_t own_count, uint8_t (*own)[OFI_ADDRESS_BYTES], uint32_t peer_count,
                       uint8_t (*peers)[OFI_ADDRESS_BYTES], uint32_t own_out[OFI_RAILS_MAX],
                       uint32_t peers_out[OFI_RAILS_MAX]);

#endif

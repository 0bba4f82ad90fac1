/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of this plugin share: the instance, the comms, and the bytes on the wire.
 * An instance's devices never change after init. A comm belongs to one thread at a time. */
#ifndef SOCK_INT_H
#define SOCK_INT_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/clock.h"
#include "kit/kit_doorstep.h"
#include "base/error.h"
#include "base/net_entry.h"
#include "base/netaddr.h"
#include "base/tries.h"
#include "kit/kit_cipher.h"
#include "kit/kit_guest.h"
#include "sock_wire.h"
#include "xccl_net.h"

#define SOCK_DEVICES_MAX   17 /* interfaces, and that of Unix sockets at the end */
#define SOCK_MERGED_MAX    8 /* devices made of others */
#define SOCK_RAILS_MAX     4 /* others that one is made of */
#define SOCK_UNREACHED_MAX 64 /* addresses without an answer that an instance remembers */
#define SOCK_RECVS         XCCL_NET_MAX_REQUESTS /* requests in flight of a receiver */
#define SOCK_PARTS         XCCL_NET_MAX_RECVS /* receives of one of them */
#define SOCK_SENDS         (SOCK_RECVS * SOCK_PARTS) /* in flight of a sender */
#define SOCK_SEND_WORDS    (SOCK_SENDS / 64) /* one bit each */
#define SOCK_OUT_BYTES     8192 /* headers and small messages of one write */
#define SOCK_STAGE_BYTES   20480 /* read ahead: many small messages are one read */
#ifndef SOCK_RING_BYTES /* the fuzzer has less */
#define SOCK_RING_BYTES ((size_t)1 << 20) /* what line 0 carries, kept until acknowledged */
#endif
#define SOCK_WINDOW_BYTES 8192 /* of it under way at once after line 0 was lost */
#define SOCK_HEADS        4 /* guessed messages of one read */
#ifndef SOCK_GUESS_BYTES /* the fuzzer has less */
#define SOCK_GUESS_BYTES ((size_t)256 << 10) /* their payload */
#endif
/* What may come instead of them: all that is read with them. */
#define SOCK_SPILL_BYTES (SOCK_GUESS_BYTES + (SOCK_HEADS + 1) * SOCK_HEAD_BYTES)
#define SOCK_MOVE_BYTES  ((size_t)4 << 20) /* about as much in one call: others want their turn */
#define SOCK_MESSAGE_MAX ((size_t)1 << 40)
#define SOCK_NAME_BYTES  80 /* of a device: "eth0+eth1" */

static_assert((SOCK_RECVS & (SOCK_RECVS - 1)) == 0, "counters of receives wrap");
static_assert((SOCK_SENDS & (SOCK_SENDS - 1)) == 0, "counters of sends wrap");
static_assert(SOCK_STAGE_BYTES >= SOCK_HEADER_BYTES, "a header fits the stage");
static_assert(SOCK_STAGE_BYTES >= SOCK_HEADER_BYTES + SOCK_HUGE_UNIT, "a pad and a header, too");
static_assert(SOCK_GUESS_BYTES < SOCK_PAGED_MIN, "guessed messages have small pads");
static_assert(SOCK_STAGE_BYTES >= SOCK_WINDOW_BYTES, "what is under way fits the stage");
static_assert((SOCK_RING_BYTES & (SOCK_RING_BYTES - 1)) == 0, "offsets wrap");

struct sock_pool;
struct sock_hand;

struct sock_device {
    struct xccl_netif
        netif; /* AF_UNIX: peers on this host, no interface; merged: the first one's */
    char name[SOCK_NAME_BYTES];
    char pci_path[256]; /* "" when there is none */
    uint32_t speed_mbps;
    int stream_count; /* of a connection; 0: line 0 has everything */
    int rail_count; /* devices it was made of, else 1 */
    int rails[SOCK_RAILS_MAX]; /* their numbers */
    struct sock_pool *pool; /* its helper threads; NULL: the caller moves each comm */
    struct xccl_net_tally tally;
};

struct sock_ctx {
    xcclNetLogger_t log;
    int traffic_class; /* -1: the system's */
    int failover; /* 0: a line that is lost ends its comm */
    int encrypt; /* XCCL_NET_ENCRYPT_*: not 0, all lines have records (sock_record.h) */
    int zerocopy; /* enum sock_zerocopy */
    uint32_t silence_ms; /* of a path that does not acknowledge */
    char congestion[32]; /* the setting */
    /* Large reads, so that a sender sees that much comes the other way. Nobody waits for it and it
     * orders nothing (relaxed); one that is lost between two threads is no loss. */
    atomic_uint inbound;
    struct xccl_addr met; /* by which the ranks have met; bytes 0: not known */
    int alternatives; /* 1: a handle has addresses of other interfaces, too */
    pthread_mutex_t ways_lock; /* guards the addresses that did not answer while others did */
    int unreached_count;
    struct xccl_addr unreached[SOCK_UNREACHED_MAX];
    int device_count; /* grows when devices are merged, before the first connection */
    struct sock_device devices[SOCK_DEVICES_MAX + SOCK_MERGED_MAX];
    struct sock_linger *linger; /* closed comms whose bytes are still on their way */
};

struct sock_handle {
    struct xccl_addr addrs[SOCK_RAILS_MAX]; /* IP, or an abstract name of a Unix socket */
    int addr_count;
    int rail_count; /* of them: the first are the device's, the others reach its host as well */
    int line_count;
    int encrypt; /* as the receiver's is set */
    uint32_t ciphers; /* that it is able to use, one bit each; the sender chooses */
    uint8_t token[KIT_TOKEN_BYTES];
};

/* Contents of the opening of a line. */
struct sock_opening {
    uint32_t line, line_count;
    uint32_t turn; /* how often the line has come before */
    int encrypt; /* as the sender's is set */
    enum kit_cipher_kind cipher;
};

struct sock_listen {
    struct sock_ctx *ctx;
    struct sock_device *device;
    int fds[SOCK_RAILS_MAX]; /* of the handle's addresses, in order */
    int port_count;
    int line_count;
    int is_door; /* of a comm that is up */
    int wait_fd; /* the comm's, which those at the door wake; -1: nobody sleeps */
    int lines[SOCK_LINES_MAX]; /* its connections that have come, else -1 */
    uint32_t turns[SOCK_LINES_MAX]; /* the ones that are right, or earlier ones than those */
    enum kit_cipher_kind cipher; /* that the sender has chosen */
    int is_refused; /* the sender's setting is another one: their_encrypt */
    int their_encrypt;
    struct xccl_addr peer;
    struct kit_doorstep step;
    struct kit_guests guests;
    struct kit_proof proofs[SOCK_LINES_MAX]; /* of lines that have come */
};

/* A connect under way. */
struct sock_connect {
    struct sock_ctx *ctx;
    struct sock_device *device;
    struct sock_handle handle;
    struct sock_connect_line {
        int fd, connected;
        struct xccl_tries tries; /* at the handle's addresses, from its own one on */
        int bound; /* 1: this try is through an interface of our choice, before those */
        int again; /* 1: the line was lost and comes again, by its first way only */
        uint32_t turn; /* of the last opening */
        uint64_t since_ns; /* of this try */
        struct kit_greeting greeting; /* of this try */
        uint8_t seal[KIT_SEAL_BYTES]; /* all that follows the answer */
    } lines[SOCK_LINES_MAX];
    enum kit_cipher_kind cipher;
    int order[SOCK_RAILS_MAX]; /* which address stands for which */
    struct sock_comm *comm; /* taken first, so that success cannot fail any more */
};

enum sock_request_state { SOCK_FREE, SOCK_ACTIVE, SOCK_DONE };

/* What the contract calls a request: the first field of a sock_send or a sock_recv. */
struct sock_request {
    struct sock_comm *comm;
    enum sock_request_state state;
};

struct sock_send {
    struct sock_request request;
    uint32_t tag;
    int spread; /* its payload is in chunks */
    const char *data;
    size_t bytes;
    size_t moved; /* one line only: of header, pad and payload together */
    uint64_t control_end; /* several lines: where it ends in what line 0 carries */
    size_t given; /* to streams, in chunks */
    uint32_t again; /* of the given chunks, to be given once more */
    int again_asked; /* the receiver has asked for all of them, which it does once */
    int carriers; /* streams that are in the middle of one of its chunks */
    int whole; /* at the receiver */
};

struct sock_part {
    char *data;
    size_t bytes; /* room, then what the message has */
    uint32_t tag;
};

/* A receive of one message, or a group. */
struct sock_recv {
    struct sock_request request;
    int count;
    int missing; /* messages that are not whole */
    uint32_t free; /* parts that no message has come for, one bit each */
    struct sock_part parts[SOCK_PARTS];
};

struct sock_record;

struct sock_line {
    int fd; /* -1: lost, among several */
    struct sock_record *record; /* NULL: bytes go as they are; sock_record.h */
    int full; /* send: the kernel took less than it was given the last time */
    int armed; /* send: the wait descriptor looks for room */
    /* Sending from the user's pages, of streams (sock_zerocopy.c). */
    enum { SOCK_ZERO_OFF, SOCK_ZERO_TIME_PLAIN, SOCK_ZERO_TIME_PAGES, SOCK_ZERO_ON } zero;
    int has_pages; /* it has been done */
    uint32_t zero_sends; /* since notices were looked for */
    uint32_t timed;
    uint64_t spent_ns[2], spent_bytes[2]; /* copied, from pages */
};

enum sock_zerocopy { SOCK_ZEROCOPY_AUTO, SOCK_ZEROCOPY_OFF, SOCK_ZEROCOPY_ON }; /* the setting */

/* What both ends of a connection have. It carries data in one direction. Line 0 has the headers of
 * all messages and the payload of small ones; the others, if any, are the streams. */
struct sock_comm {
    struct sock_line lines[SOCK_LINES_MAX];
    int line_count;
    int rail_count;
    int is_send;
    int peeks; /* receive, one line or line 0: headers are looked at first */
    enum kit_cipher_kind cipher; /* where lines have records */
    size_t padded_min; /* one line only: messages from here on have zeroes before them */
    struct sock_ctx *ctx;
    struct sock_device *device;
    struct sock_hand *hand; /* a helper thread moves the comm; NULL: the caller does */
    struct xccl_net_counters counters; /* busy_count: by the caller, all else by who moves it */
    xcclResult_t rc; /* once set, it stays */
    xcclNetCause_t cause;
    int sys_errno; /* of the error, 0: none */
    uint32_t lost; /* lines, one bit each */
    uint32_t unproven; /* send: those that came again and that the receiver has not answered on */
    uint32_t turns[SOCK_LINES_MAX]; /* of the connection that each has, or had last */
    uint64_t look_ns; /* when the health of the lines is looked at next */
    uint32_t waiting; /* send: lines on which data were waiting at the last look */
    char error_text[XCCL_ERROR_TEXT_BYTES];
    char peer_text[XCCL_ADDR_TEXT_BYTES];
    /* Made by waitFd, unless the only line serves. Send: readable when a full line has room again,
     * has failed or has brought an acknowledgement. */
    int wait_fd;
};

/* A frame on its way to a stream. */
struct sock_outflow {
    enum { SOCK_OUT_NONE, SOCK_OUT_CHUNK, SOCK_OUT_CONTROL, SOCK_OUT_LOST } kind;
    struct sock_send *send; /* whose chunk it is */
    const char *data;
    size_t bytes, moved; /* moved: of header and payload together */
    uint64_t end; /* of a control frame, in what line 0 carries */
    uint32_t told; /* losses that the receiver has been told of here */
    uint8_t header[SOCK_FRAME_BYTES];
};

/* The sender's side of several lines: the bytes of line 0, kept until they are acknowledged, and
 * the payload of large messages on its way to the streams. */
struct sock_scatter {
    /* Offsets in all that line 0 carries: acknowledged, with the kernel, written here. */
    uint64_t control_first, control_sent, control_end;
    int control; /* the line that carries it: 0, or a stream once 0 is lost */
    uint32_t whole_first; /* messages before it are whole at the receiver */
    /* Several rails: small sends are done when the receiver has used them up, for line 0 may be
     * lost with its rail when nobody asks this end any more. No small send before it is not done.
     */
    int late;
    uint32_t done_first;
    uint32_t first; /* no message before it has chunks to give */
    uint32_t open; /* messages with chunks that are not whole */
    uint32_t carrying; /* streams in the middle of a chunk, also of one that is whole by now */
    uint32_t losses; /* of lines, so far */
    uint32_t turn; /* the stream that is asked first */
    struct sock_connect *connect; /* by which lines come again; NULL: they do not */
    struct sock_outflow flows[SOCK_STREAMS_MAX];
    struct sock_inbox {
        size_t have;
        uint8_t bytes[SOCK_ACK_BYTES];
    } inboxes[SOCK_LINES_MAX];
    uint8_t ring[SOCK_RING_BYTES];
    uint8_t carried[SOCK_SENDS][SOCK_CHUNKS_MAX]; /* the line of each given chunk; 0: none */
};

/* A message whose chunks are coming. */
struct sock_open {
    struct sock_recv *recv; /* NULL: not in use */
    struct sock_part *part;
    uint32_t number;
    size_t left, chunk_bytes;
    uint64_t have[SOCK_CHUNKS_MAX / 64]; /* chunks that are whole */
};

/* A frame on its way from a stream. */
struct sock_inflow {
    enum { SOCK_IN_HEADER, SOCK_IN_CHUNK, SOCK_IN_CONTROL, SOCK_IN_DROP } kind;
    struct sock_open *open; /* whose chunk it is */
    uint64_t offset; /* of a control frame */
    char *data;
    size_t bytes, left;
    size_t have; /* of the next header */
    int waits; /* the next chunk's message is not announced yet */
    uint8_t header[SOCK_FRAME_BYTES];
};

/* The receiver's side of several lines. */
struct sock_collect {
    uint64_t control_read; /* bytes of what line 0 carries that have been taken */
    uint64_t acked_bytes; /* of them used up, as last acknowledged */
    uint64_t acked_all; /* the same, to all rails */
    int control; /* the line that carries it */
    int ack_due;
    uint32_t whole_first; /* messages before it are whole */
    uint64_t whole[SOCK_SEND_WORDS]; /* those behind it, by number */
    uint64_t torn[SOCK_SEND_WORDS]; /* not announced, and a chunk was dropped */
    uint64_t again[SOCK_SEND_WORDS]; /* announced, and to be sent once more */
    int copies; /* chunks may come twice: one was dropped, or a line was lost */
    int dropping; /* all that waits is, until something comes that is wanted */
    uint32_t count; /* messages that are open */
    uint32_t idle_polls;
    uint64_t stuck_ns; /* since when nothing has come while a stream waits; 0: not so */
    int lost_errno; /* of the line that was lost first; 0: the peer closed it */
    uint32_t polls; /* calls since the door was looked at */
    struct sock_listen *door; /* by which lines come again; NULL: they do not */
    struct sock_inflow flows[SOCK_STREAMS_MAX];
    struct sock_outbox {
        size_t left; /* of the frame that is being written */
        uint8_t bytes[SOCK_ACK_BYTES];
    } outboxes[SOCK_LINES_MAX];
    char control_bytes[SOCK_CONTROL_MAX];
    struct sock_open opens[SOCK_SENDS]; /* by number */
};

/* Requests of either end are used round and round: posted counts those begun, current those that
 * are through with line 0; between them they are ACTIVE. */
struct sock_sender {
    struct sock_comm comm;
    uint32_t posted, current;
    uint32_t reaped; /* sends that test has called done */
    uint32_t inbound; /* the instance's, when this one last looked */
    size_t queued_bytes; /* one line only: of posted sends, with headers, not with the kernel yet */
    struct sock_scatter *scatter; /* NULL: one line */
    struct sock_send sends[SOCK_SENDS];
    uint8_t out[SOCK_OUT_BYTES]; /* headers and small messages on their way to the kernel */
};

struct sock_receiver {
    struct sock_comm comm;
    uint32_t posted, current;
    uint32_t message; /* number of the next message, or of the one that is coming */
    int guesses; /* one line without records only */
    size_t guess; /* bytes that messages behind it may have; 0: unknown */
    struct sock_part *part; /* of the message whose header has been read, else NULL */
    size_t own_bytes; /* of its payload, behind the header: all, or none when it is spread */
    size_t moved; /* of those */
    size_t pad; /* zeroes before them that have not come */
    int spread;
    size_t last_bytes; /* size of the message before */
    struct sock_collect *collect; /* NULL: one line */
    uint32_t stage_first, stage_end;
    uint32_t owed; /* bytes of the stage that line 0 still has, too */
    int rest; /* the next look is left out */
    struct sock_recv recvs[SOCK_RECVS];
    /* Headers and pads of guessed messages; the last one is behind them. */
    uint8_t heads[SOCK_HEADS + 1][SOCK_HEAD_BYTES];
    /* Bytes read ahead: SOCK_STAGE_BYTES of room, and where there is one line SOCK_SPILL_BYTES
     * more, which are touched where a guess was wrong. */
    uint8_t *stage;
};

/* sock_device.c */
xcclResult_t sock_init(const xcclNetInit_v1 *init, xcclNetContext_t *ctx_out);
xcclResult_t sock_finalize(xcclNetContext_t ctx);
xcclResult_t sock_devices(xcclNetContext_t ctx, int *count_out);
xcclResult_t sock_properties(xcclNetContext_t ctx, int dev, xcclNetProperties_v1 *props);
xcclResult_t sock_stats(xcclNetContext_t ctx, int dev, xcclNetStats_v1 *stats);
/* NULL after an error when there is no such device. */
struct sock_device *sock_device_get(struct sock_ctx *ctx, int dev);
int sock_streams_for(uint32_t speed_mbps);

/* sock_merge.c */
xcclResult_t sock_merge(xcclNetContext_t ctx, const int *devs, int count, int *dev_out);

/* sock_subnet.c */
/* Through which interface a line should go to an address, where the system might take another one:
 * the rail of a merged device in whose subnet it is, the turn-th of them in a circle; or the
 * device itself if others of this host are in that subnet. NULL: whatever the routes say. */
const struct sock_device *sock_subnet_towards(const struct sock_ctx *ctx,
                                              const struct sock_device *device,
                                              const struct xccl_addr *addr, int turn);

/* 1: another interface that XCCL may use is in the subnet of this one. */
int sock_subnet_shared(const struct sock_ctx *ctx, const struct sock_device *device);

/* sock_address.c */
/* Where the device's peers come to: a port of the system's choice, or a Unix name. */
xcclResult_t sock_address_listen(const struct sock_device *device, int *fd_out,
                                 struct xccl_addr *addr_out);
/* *fd_out -1: too many connect there at this moment, ask again. With an interface: through that one
 * whatever the routes say, or an error. */
xcclResult_t sock_address_connect(const struct sock_ctx *ctx, const struct xccl_addr *addr,
                                  const char *interface, int *fd_out);
xcclResult_t sock_address_connected(int fd, const struct xccl_addr *addr, int *done_out);
void sock_address_encode(const struct xccl_addr *addr, uint8_t wire_out[SOCK_ADDRESS_BYTES]);
xcclResult_t sock_address_decode(const uint8_t wire[SOCK_ADDRESS_BYTES],
                                 struct xccl_addr *addr_out);
/* The other end: of a Unix socket the process. */
void sock_address_peer(int fd, const struct xccl_addr *addr, char text_out[XCCL_ADDR_TEXT_BYTES]);
/* The device for peers on this host. */
void sock_address_unix(struct xccl_netif *netif_out);

/* sock_handle.c */
void sock_handle_encode(const struct sock_handle *handle, xcclNetHandle_t *handle_out);
xcclResult_t sock_handle_decode(const xcclNetHandle_t *bytes, struct sock_handle *handle_out);
extern const struct kit_dialect sock_dialect;
void sock_opening_put(const struct sock_opening *opening, uint32_t context_out[KIT_CONTEXT_WORDS]);
/* 1: it is of a connection of so many lines. */
int sock_opening_get(const uint32_t context[KIT_CONTEXT_WORDS], int line_count,
                     struct sock_opening *opening_out);

/* sock_secret.c */
/* The ciphers that this process is able to use for a setting, one bit each; and the one of them
 * that a sender takes, KIT_CIPHER_NONE: there is none. */
uint32_t sock_ciphers(int encrypt);
enum kit_cipher_kind sock_cipher_choose(int encrypt, uint32_t ciphers);
/* The settings of both ends differ: the error, at either. */
xcclResult_t sock_encrypt_differs(int ours, int theirs, const char *peer);

/* sock_tune.c */
/* Of a TCP socket that is not connected yet. */
void sock_tune_congestion_early(const struct sock_ctx *ctx, int fd);
/* A connection becomes a line of the comm. */
void sock_tune_line(struct sock_comm *comm, int line, int fd, const struct xccl_addr *peer);
/* For how long the peer's kernel has said nothing, or 0 where nothing is the matter. */
struct sock_silence {
    uint32_t asked_ms; /* data were sent again, or it was asked for room: one that lives answers */
    /* Data have been under way, and were not sent again: how soon that is done is the kernel's
     * affair, a second where it does not know the round trip, and twice that each time. A host
     * that itself stood still sees that for a moment, too. */
    uint32_t waits_ms;
};
void sock_path_silence(int fd, struct sock_silence *silence_out);

/* sock_listen.c */
xcclResult_t sock_listen(xcclNetContext_t ctx, int dev, xcclNetHandle_t *handle_out,
                         xcclNetListenComm_t *listen_out);
xcclResult_t sock_accept(xcclNetListenComm_t listen, xcclNetRecvComm_t *comm_out);
xcclResult_t sock_close_listen(xcclNetListenComm_t listen);
/* Looks at those who came, and lets them prove themselves. *came_out 1: a line has come. */
xcclResult_t sock_listen_poll(struct sock_listen *listener, int *came_out);
/* From now on those who come wake who sleeps on the descriptor; -1: nobody. */
void sock_listen_watch(struct sock_listen *listener, int wait_fd);
/* A second listener with the ports and the secret of this one, for one comm; NULL: not possible. */
struct sock_listen *sock_listen_copy(const struct sock_listen *listener);

/* sock_ways.c */
/* Once the handle is known: which of its addresses are asked first. */
void sock_ways_order(struct sock_connect *state);
/* A line begins at its first way. An error: none is left. */
xcclResult_t sock_connect_start(struct sock_connect *state, int line);
/* Looks after a line that is not connected yet, and goes on to the next way when it is time. */
xcclResult_t sock_ways_go_on(struct sock_connect *state, int line);
/* A connection that was there has not proved itself: goes on as after a try that has failed. */
xcclResult_t sock_ways_failed(struct sock_connect *state, int line, xcclResult_t rc);
const struct xccl_addr *sock_connect_addr(const struct sock_connect *state, int line);

/* sock_connect.c */
xcclResult_t sock_connect(xcclNetContext_t ctx, int dev, const xcclNetHandle_t *handle,
                          xcclNetConnect_t *state, xcclNetSendComm_t *comm_out);
xcclResult_t sock_close_connect(xcclNetContext_t ctx, xcclNetConnect_t state);
/* Moves one line on, until both ends have proved themselves. */
xcclResult_t sock_connect_line(struct sock_connect *state, int line, int *done_out);

/* sock_memory.c */
xcclResult_t sock_reg_mr(void *comm, void *data, size_t bytes, uint32_t type,
                         xcclNetMem_t *mem_out);
xcclResult_t sock_dereg_mr(void *comm, xcclNetMem_t mem);

/* sock_comm.c */
/* NULL after an error. is_send 1: a sock_sender, else a sock_receiver. */
struct sock_comm *sock_comm_create(struct sock_ctx *ctx, struct sock_device *device, int is_send,
                                   int line_count, int rail_count);
/* All lines are there: the comm begins to work, or is gone after an error. */
xcclResult_t sock_comm_up(struct sock_comm *comm);
xcclResult_t sock_close_comm(void *comm);
/* Keeps the thread's error text for all later calls. */
void sock_comm_fail(struct sock_comm *comm, xcclNetCause_t cause, xcclResult_t rc);
void sock_comm_fail_errno(struct sock_comm *comm, int err); /* the stream broke */
void sock_comm_altered(struct sock_comm *comm, int line); /* a record is not the sender's */
/* The kept error once more. */
xcclResult_t sock_comm_error(const struct sock_comm *comm);
/* Notes whether a sender's line is full, and makes the wait descriptor follow. */
void sock_comm_full(struct sock_comm *comm, int line, int full);
/* A request did not fit. A helper asks again, and its caller has been told nothing. */
static inline void sock_comm_busy(struct sock_comm *comm)
{
    if (!comm->hand)
        xccl_net_count(&comm->counters.busy_count, 1);
}
/* A connection becomes a line of a comm, with records if they are asked for. 0: it cannot, and the
 * line is lost; a text says why. */
int sock_comm_secure(struct sock_comm *comm, int line, const struct kit_proof *proof);
/* A connection becomes a line of a comm that is up. */
void sock_comm_line(struct sock_comm *comm, int line, int fd, const struct xccl_addr *peer);
xcclResult_t sock_wait_fd(void *comm, int *fd_out);
/* The descriptor to sleep on, for the thread that moves the comm. */
xcclResult_t sock_comm_wait_fd(struct sock_comm *comm, int *fd_out);
xcclResult_t sock_error_detail(void *comm, xcclNetError_v1 *error);

/* sock_linger.c */
/* Takes over the lines of a sender that is closed, until the peer's kernel has all bytes. */
void sock_linger_take(struct sock_comm *comm);
/* Closes those that are through; all that are left after wait_ms. */
void sock_linger_sweep(struct sock_ctx *ctx, int wait_ms);

/* sock_send.c */
xcclResult_t sock_isend(xcclNetSendComm_t comm, const void *data, size_t bytes, uint32_t tag,
                        xcclNetMem_t mem, xcclNetRequest_t *request_out);
/* Hands to the kernel what it takes. Errors are kept in the comm, of this and the next one. */
void sock_send_progress(struct sock_sender *sender);
void sock_send_done(struct sock_sender *sender, struct sock_send *send);
void sock_header_encode(const struct sock_send *send, uint32_t number,
                        uint8_t bytes_out[SOCK_HEADER_BYTES]);

/* sock_control.c */
/* What line 0 carries, where there are several: room for a send's header and own payload? */
int sock_control_room(const struct sock_scatter *scatter, size_t bytes);
void sock_control_append(struct sock_sender *sender, struct sock_send *send, uint32_t number);
void sock_control_write(struct sock_sender *sender);
/* The next of it for a stream that carries it in the place of line 0. 0: nothing may go now. */
size_t sock_control_next(const struct sock_scatter *scatter, const char **data_out);
/* The kernel has all before this offset. */
void sock_control_sent(struct sock_sender *sender, uint64_t sent);
/* The receiver has used up all before control_first. */
void sock_control_used(struct sock_sender *sender);

/* sock_scatter.c */
void sock_scatter_progress(struct sock_sender *sender);
/* Chunks that a lost line had, or all of a message, are given once more. */
void sock_scatter_lost(struct sock_sender *sender, int line);
void sock_scatter_again(struct sock_sender *sender, uint32_t number);
/* The receiver has all of it. */
void sock_scatter_whole(struct sock_sender *sender, struct sock_send *send);

/* sock_zerocopy.c */
void sock_zerocopy_init(const struct sock_comm *comm, struct sock_line *line);
/* 1: a payload of so many bytes goes by sock_zerocopy_send, apart from its header. */
int sock_zerocopy_takes(const struct sock_line *line, size_t bytes);
/* As send(), which never blocks. */
ssize_t sock_zerocopy_send(const struct sock_comm *comm, struct sock_line *line, const void *data,
                           size_t bytes);
void sock_zerocopy_drain(const struct sock_comm *comm, struct sock_line *line);
/* Before a stream with bytes under way is closed. */
void sock_zerocopy_close(const struct sock_comm *comm, int line);

/* sock_failover.c */
/* A sender's line is lost, its comm too when no other can stand in. err 0: the peer closed it. */
void sock_line_lost(struct sock_sender *sender, int line, int err);
/* Looks after lines that have stopped to move, now and then. */
void sock_line_look(struct sock_sender *sender);

/* sock_rejoin.c */
/* Lines that were lost come again when their path does. */
void sock_rejoin_send(struct sock_sender *sender);
void sock_rejoin_recv(struct sock_receiver *receiver);
void sock_rejoin_look(struct sock_receiver *receiver); /* whatever the time */

/* sock_ack.c */
/* Takes the acknowledgements that have come. 0, or the line is lost: its errno, ESHUTDOWN when the
 * peer closed it. */
int sock_ack_read(struct sock_sender *sender, int line);
/* Tells the sender what has come, when that is due. */
void sock_ack_write(struct sock_receiver *receiver);
/* Tells the sender what has come, on one line that is connected again. */
void sock_ack_prove(struct sock_receiver *receiver, int line);

/* sock_collect.c */
/* Message number, whose chunks will come, is for part. 0: the comm failed. */
int sock_collect_open(struct sock_receiver *receiver, uint32_t number, struct sock_recv *recv,
                      struct sock_part *part);
void sock_collect_whole(struct sock_receiver *receiver, uint32_t number);
void sock_collect_progress(struct sock_receiver *receiver, size_t *got_out);
/* A receiver's line is lost. err 0: the peer closed it. */
void sock_collect_lost(struct sock_receiver *receiver, int line, int err);

/* sock_recv.c */
xcclResult_t sock_irecv(xcclNetRecvComm_t comm, int count, void *const *data, const size_t *bytes,
                        const uint32_t *tags, const xcclNetMem_t *mems,
                        xcclNetRequest_t *request_out);
void sock_recv_progress(struct sock_receiver *receiver);
/* A message is whole. */
void sock_recv_done(struct sock_receiver *receiver, struct sock_recv *recv, size_t bytes);
/* Bytes that line 0 would have carried. 0: there is no room for them, which no honest peer does. */
int sock_recv_feed(struct sock_receiver *receiver, const char *data, size_t bytes);
/* Serves posted receives from the stage until one needs bytes that are not there. Returns 1 when a
 * receive was finished. */
int sock_recv_serve(struct sock_receiver *receiver);
size_t sock_recv_staged(const struct sock_receiver *receiver); /* read, not used yet */
/* The stream is not ours any more, or was cut. */
void sock_recv_damaged(struct sock_receiver *receiver, const char *where, uint32_t number);
void sock_recv_closed(struct sock_receiver *receiver);

/* sock_read.c */
/* One read of line 0, of which sock_recv_serve has what is left to do. Returns 1 when there may be
 * more. */
int sock_read_some(struct sock_receiver *receiver, size_t *got_out);
/* What was read ahead and is not used yet begins the stage. */
void sock_read_compact(struct sock_receiver *receiver);
/* Takes what was only looked at. 0, or line 0 is lost: its errno. */
int sock_read_settle(struct sock_receiver *receiver);
void sock_read_ended(struct sock_receiver *receiver, int err); /* err 0: the peer closed it */

/* sock_request.c */
xcclResult_t sock_post_send(xcclNetSendComm_t comm, const void *data, size_t bytes, uint32_t tag,
                            xcclNetMem_t mem, xcclNetRequest_t *request_out);
xcclResult_t sock_post_recv(xcclNetRecvComm_t comm, int count, void *const *data,
                            const size_t *bytes, const uint32_t *tags, const xcclNetMem_t *mems,
                            xcclNetRequest_t *request_out);
/* Moves all that is posted, as far as it goes now. */
void sock_comm_move(struct sock_comm *comm);
/* The sizes of a request that is DONE, which is FREE afterwards. */
void sock_request_reap(struct sock_request *request, size_t *bytes_out);
/* The error of a test that comes after done. */
xcclResult_t sock_request_gone(void);
xcclResult_t sock_test(xcclNetRequest_t request, int *done_out, size_t *bytes_out);

#endif

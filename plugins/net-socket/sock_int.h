/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of this plugin share: the instance, the comms, and the bytes on the wire.
 * An instance's devices never change after init. A comm belongs to one thread at a time. */
#ifndef SOCK_INT_H
#define SOCK_INT_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/netaddr.h"
#include "xccl_net.h"

#define SOCK_WIRE_VERSION 2
#define SOCK_DEVICES_MAX  17 /* interfaces, and that of Unix sockets at the end */
#define SOCK_PENDING_MAX  64 /* connections of one listener that have not proved themselves */
#define SOCK_SILENT_NS    (5 * XCCL_NS_PER_S)
#define SOCK_RECVS        XCCL_NET_MAX_REQUESTS /* requests in flight of a receiver */
#define SOCK_PARTS        XCCL_NET_MAX_RECVS /* receives of one of them */
#define SOCK_SENDS        (SOCK_RECVS * SOCK_PARTS) /* in flight of a sender */
#define SOCK_OUT_BYTES    8192 /* headers and small messages of one write */
#define SOCK_STAGE_BYTES  16384 /* read ahead: many small messages are one read */
#define SOCK_STREAMS_MAX  8 /* that carry the payload of large messages */
#define SOCK_LINES_MAX    (1 + SOCK_STREAMS_MAX)
#define SOCK_SPREAD_BYTES ((size_t)128 << 10) /* from here on a message is spread over them */
#define SOCK_CHUNKS_MAX   1024 /* of one message */
#define SOCK_MOVE_BYTES   ((size_t)4 << 20) /* about as much in one call: others want their turn */
#define SOCK_MESSAGE_MAX  ((size_t)1 << 40)

/* Wire bytes, little endian; the README has the tables. */
#define SOCK_TOKEN_BYTES  32
#define SOCK_HELLO_BYTES  64
#define SOCK_HEADER_BYTES 16
#define SOCK_HANDLE_MAGIC 0x48534358u /* "XCSH" */
#define SOCK_HELLO_MAGIC  0x4c534358u /* "XCSL" */
#define SOCK_HEADER_CHECK 0x4d534358u /* "XCSM", xor the message's number */
#define SOCK_SPREAD_CHECK 0x44534358u /* "XCSD", likewise: the payload comes in chunks */
#define SOCK_CHUNK_BYTES  24 /* a chunk's header */
#define SOCK_CHUNK_CHECK  0x43534358u /* "XCSC" */

static_assert((SOCK_RECVS & (SOCK_RECVS - 1)) == 0, "counters of receives wrap");
static_assert((SOCK_SENDS & (SOCK_SENDS - 1)) == 0, "counters of sends wrap");
static_assert(SOCK_STAGE_BYTES >= SOCK_HEADER_BYTES, "a header fits the stage");

struct sock_device {
    struct xccl_netif netif; /* AF_UNIX: peers on this host, no interface */
    char pci_path[256]; /* "" when there is none */
    uint32_t speed_mbps;
    uint32_t line_count; /* of a connection */
    /* Counted by every comm of the device, read by stats(): relaxed, nothing hangs on them. */
    _Atomic uint64_t send_bytes, recv_bytes, send_count, recv_count, busy_count;
};

struct sock_ctx {
    xcclNetLogger_t log;
    int traffic_class; /* -1: the system's */
    int device_count;
    struct sock_device devices[SOCK_DEVICES_MAX];
};

struct sock_handle {
    struct xccl_addr addr; /* IPv4, IPv6, or an abstract name of a Unix socket */
    uint8_t token[SOCK_TOKEN_BYTES];
    uint32_t line_count;
};

struct sock_pending {
    int fd; /* -1: free */
    uint64_t since_ns;
    struct xccl_addr peer;
    uint8_t hello[SOCK_HELLO_BYTES];
    size_t have;
};

struct sock_listen {
    struct sock_ctx *ctx;
    struct sock_device *device;
    int fd;
    uint8_t token[SOCK_TOKEN_BYTES]; /* what the right sender knows */
    int lines[SOCK_LINES_MAX]; /* its connections that have come, else -1 */
    struct xccl_addr peer;
    struct sock_pending pending[SOCK_PENDING_MAX];
};

/* A connect under way. */
struct sock_connect {
    struct xccl_addr addr;
    struct sock_connect_line {
        int fd, connected;
        size_t sent;
        uint8_t hello[SOCK_HELLO_BYTES];
    } lines[SOCK_LINES_MAX];
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
    const char *data;
    size_t bytes;
    size_t own_bytes; /* of them behind the header: all or, of a message that is spread, none */
    size_t moved; /* of header and those bytes together */
    size_t given; /* to streams, in chunks */
    size_t left; /* of the chunks, not with the kernel yet */
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

struct sock_line {
    int fd;
    int full; /* send: the kernel took less than it was given the last time */
    int armed; /* send: the wait descriptor looks for room */
};

/* What both ends of a connection have. It carries data in one direction. Line 0 has the headers of
 * all messages and the payload of small ones; the others, if any, are the streams. */
struct sock_comm {
    struct sock_line lines[SOCK_LINES_MAX];
    int line_count;
    int is_send;
    struct sock_device *device;
    xcclResult_t rc; /* once set, it stays */
    xcclNetCause_t cause;
    int sys_errno; /* of the error, 0: none */
    char error_text[XCCL_ERROR_TEXT_BYTES];
    char peer_text[XCCL_ADDR_TEXT_BYTES];
    /* Made by waitFd, unless the only line serves. Send: readable when a full line has room again
     * or has failed. */
    int wait_fd;
};

/* Payload of large messages on its way to the streams. */
struct sock_scatter {
    uint32_t first; /* no send before it has bytes to give */
    uint32_t open; /* sends with chunks that the kernel does not have */
    uint32_t turn; /* the stream that is asked first */
    struct sock_outflow {
        struct sock_send *send; /* whose chunk it is; NULL: none */
        const char *data;
        size_t bytes, moved; /* moved: of header and payload together */
        uint8_t header[SOCK_CHUNK_BYTES];
    } flows[SOCK_STREAMS_MAX];
};

/* A message whose chunks are coming. */
struct sock_open {
    struct sock_recv *recv; /* NULL: not in use */
    struct sock_part *part;
    uint32_t number;
    size_t left, chunk_bytes;
    uint64_t seen[SOCK_CHUNKS_MAX / 64]; /* chunks that have begun to come */
};

struct sock_collect {
    uint32_t count; /* messages that are open */
    struct sock_inflow {
        struct sock_open *open; /* whose chunk is coming; NULL: a header is */
        char *data;
        size_t bytes, left; /* of the chunk */
        size_t have; /* of the next header */
        int waits; /* the next chunk's message is not announced yet */
        int closed;
        uint8_t header[SOCK_CHUNK_BYTES];
    } flows[SOCK_STREAMS_MAX];
    struct sock_open opens[SOCK_SENDS]; /* by number */
};

/* Requests of either end are used round and round: posted counts those begun, current those that
 * are through; between them they are ACTIVE. */
struct sock_sender {
    struct sock_comm comm;
    uint32_t posted, current;
    uint32_t reaped; /* sends that test has called done */
    size_t queued_bytes; /* of posted sends, headers included, not with the kernel yet */
    struct sock_scatter *scatter; /* NULL: one line */
    struct sock_send sends[SOCK_SENDS];
    uint8_t out[SOCK_OUT_BYTES]; /* headers and small messages on their way to the kernel */
};

struct sock_receiver {
    struct sock_comm comm;
    uint32_t posted, current;
    uint32_t message; /* number of the next message, or of the one that is coming */
    struct sock_part *part; /* of the message whose header has been read, else NULL */
    size_t own_bytes; /* of its payload, behind the header: all, or none when it is spread */
    size_t moved; /* of those */
    int spread;
    size_t last_bytes; /* size of the message before */
    int ended; /* line 0 was closed while messages were open */
    struct sock_collect *collect; /* NULL: one line */
    uint32_t stage_first, stage_end;
    struct sock_recv recvs[SOCK_RECVS];
    uint8_t stage[SOCK_STAGE_BYTES]; /* bytes read ahead */
};

/* sock_device.c */
xcclResult_t sock_init(const xcclNetInit_v1 *init, xcclNetContext_t *ctx_out);
xcclResult_t sock_finalize(xcclNetContext_t ctx);
xcclResult_t sock_devices(xcclNetContext_t ctx, int *count_out);
xcclResult_t sock_properties(xcclNetContext_t ctx, int dev, xcclNetProperties_v1 *props);
xcclResult_t sock_stats(xcclNetContext_t ctx, int dev, xcclNetStats_v1 *stats);
const char *sock_last_error(xcclNetContext_t ctx);
/* NULL after an error when there is no such device. */
struct sock_device *sock_device_get(struct sock_ctx *ctx, int dev);

/* sock_address.c */
/* Where the device's peers come to: a port of the system's choice, or a Unix name. */
xcclResult_t sock_address_listen(const struct sock_device *device, int *fd_out,
                                 struct xccl_addr *addr_out);
/* *fd_out -1: too many connect there at this moment, ask again. */
xcclResult_t sock_address_connect(const struct xccl_addr *addr, int *fd_out);
xcclResult_t sock_address_connected(int fd, const struct xccl_addr *addr, int *done_out);
void sock_address_encode(const struct xccl_addr *addr, uint8_t wire_out[XCCL_ADDR_WIRE_BYTES]);
xcclResult_t sock_address_decode(const uint8_t wire[XCCL_ADDR_WIRE_BYTES],
                                 struct xccl_addr *addr_out);
/* The other end: of a Unix socket the process. */
void sock_address_peer(int fd, const struct xccl_addr *addr, char text_out[XCCL_ADDR_TEXT_BYTES]);
/* The device for peers on this host. */
void sock_address_unix(struct xccl_netif *netif_out);

/* sock_connect.c */
xcclResult_t sock_listen(xcclNetContext_t ctx, int dev, xcclNetHandle_t *handle_out,
                         xcclNetListenComm_t *listen_out);
xcclResult_t sock_connect(xcclNetContext_t ctx, int dev, const xcclNetHandle_t *handle,
                          xcclNetConnect_t *state, xcclNetSendComm_t *comm_out);
xcclResult_t sock_close_connect(xcclNetContext_t ctx, xcclNetConnect_t state);
xcclResult_t sock_accept(xcclNetListenComm_t listen, xcclNetRecvComm_t *comm_out);
xcclResult_t sock_close_listen(xcclNetListenComm_t listen);

/* sock_memory.c */
xcclResult_t sock_reg_mr(void *comm, void *data, size_t bytes, uint32_t type,
                         xcclNetMem_t *mem_out);
xcclResult_t sock_dereg_mr(void *comm, xcclNetMem_t mem);

/* sock_comm.c */
/* NULL after an error. is_send 1: a sock_sender, else a sock_receiver. */
struct sock_comm *sock_comm_create(struct sock_device *device, int is_send, int line_count);
xcclResult_t sock_close_comm(void *comm);
void sock_count(_Atomic uint64_t *counter, uint64_t value);
/* Keeps the thread's error text for all later calls. */
void sock_comm_fail(struct sock_comm *comm, xcclNetCause_t cause, xcclResult_t rc);
void sock_comm_fail_errno(struct sock_comm *comm, int err); /* the stream broke */
/* The kept error once more. */
xcclResult_t sock_comm_error(const struct sock_comm *comm);
/* Notes whether a sender's line is full, and makes the wait descriptor follow. */
void sock_comm_full(struct sock_comm *comm, int line, int full);
xcclResult_t sock_wait_fd(void *comm, int *fd_out);
xcclResult_t sock_error_detail(void *comm, xcclNetError_v1 *error);

/* sock_send.c */
xcclResult_t sock_isend(xcclNetSendComm_t comm, const void *data, size_t bytes, uint32_t tag,
                        xcclNetMem_t mem, xcclNetRequest_t *request_out);
/* Hands to the kernel what it takes. Errors are kept in the comm, of this and the next one. */
void sock_send_progress(struct sock_sender *sender);

void sock_send_done(struct sock_sender *sender, struct sock_send *send);

/* sock_scatter.c */
/* How a message of so many bytes is cut: part of what is on the wire. */
size_t sock_chunk_bytes(size_t bytes, int stream_count);
void sock_scatter_progress(struct sock_sender *sender);

/* sock_collect.c */
/* Message number, whose chunks will come, is for part. 0: the comm failed. */
int sock_collect_open(struct sock_receiver *receiver, uint32_t number, struct sock_recv *recv,
                      struct sock_part *part);
void sock_collect_progress(struct sock_receiver *receiver, size_t *got_out);

/* sock_recv.c */
xcclResult_t sock_irecv(xcclNetRecvComm_t comm, int count, void *const *data, const size_t *bytes,
                        const uint32_t *tags, const xcclNetMem_t *mems,
                        xcclNetRequest_t *request_out);
void sock_recv_progress(struct sock_receiver *receiver);
/* A message is whole. */
void sock_recv_done(struct sock_receiver *receiver, struct sock_recv *recv, size_t bytes);
/* The stream is not ours any more, or was cut. */
void sock_recv_damaged(struct sock_receiver *receiver, const char *where, uint32_t number);
void sock_recv_closed(struct sock_receiver *receiver);

/* sock_request.c */
xcclResult_t sock_test(xcclNetRequest_t request, int *done_out, size_t *bytes_out);

#endif

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

#define SOCK_WIRE_VERSION 1
#define SOCK_DEVICES_MAX  16
#define SOCK_PENDING_MAX  64 /* connections of one listener that have not proved themselves */
#define SOCK_SILENT_NS    (5 * XCCL_NS_PER_S)
#define SOCK_REQUESTS     32 /* in flight a comm; a power of two, so that counters may wrap */
#define SOCK_BATCH        8 /* messages in one sendmsg */
#define SOCK_STAGE_BYTES  4096 /* read ahead: a small message and its header are one recvmsg */
#define SOCK_MESSAGE_MAX  ((size_t)1 << 40)

/* Wire bytes, little endian; the README has the tables. */
#define SOCK_TOKEN_BYTES  32
#define SOCK_HELLO_BYTES  64
#define SOCK_HEADER_BYTES 16
#define SOCK_HANDLE_MAGIC 0x48534358u /* "XCSH" */
#define SOCK_HELLO_MAGIC  0x4c534358u /* "XCSL" */
#define SOCK_HEADER_CHECK 0x4d534358u /* "XCSM", xor the message's number */

static_assert(SOCK_REQUESTS >= XCCL_NET_MAX_REQUESTS, "the contract's requests in flight");
static_assert((SOCK_REQUESTS & (SOCK_REQUESTS - 1)) == 0, "request counters wrap");
static_assert(SOCK_STAGE_BYTES >= SOCK_HEADER_BYTES, "a header fits the stage");

struct sock_device {
    struct xccl_netif netif;
    char pci_path[256]; /* "" when there is none */
    uint32_t speed_mbps;
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
    struct xccl_addr addr;
    uint8_t token[SOCK_TOKEN_BYTES];
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
    uint8_t hello[SOCK_HELLO_BYTES]; /* what the right sender says */
    struct sock_pending pending[SOCK_PENDING_MAX];
};

/* A connect under way. */
struct sock_connect {
    int fd, connected;
    struct xccl_addr addr;
    uint8_t hello[SOCK_HELLO_BYTES];
    size_t sent;
    struct sock_comm *comm; /* taken first, so that success cannot fail any more */
};

enum sock_request_state { SOCK_FREE, SOCK_ACTIVE, SOCK_DONE };

struct sock_request {
    struct sock_comm *comm;
    enum sock_request_state state;
    uint32_t tag;
    char *data; /* a send only reads it */
    size_t bytes; /* send: to go; receive: room, then what the message has */
    size_t moved; /* of header and payload together (send), of the payload (receive) */
    uint8_t header[SOCK_HEADER_BYTES];
};

/* One connection, one direction of data. Requests are used round and round: posted counts those
 * begun, current those that are through; between them they are ACTIVE. */
struct sock_comm {
    int fd;
    int is_send;
    int header_done; /* receive: the current message's header has been read */
    uint32_t posted, current;
    uint32_t stage_first, stage_end;
    struct sock_device *device;
    struct sock_request requests[SOCK_REQUESTS];
    uint8_t stage[SOCK_STAGE_BYTES]; /* receive: bytes read ahead */
    xcclResult_t rc; /* once set, it stays */
    xcclNetCause_t cause;
    int sys_errno; /* of the error, 0: none */
    char error_text[XCCL_ERROR_TEXT_BYTES];
    char peer_text[XCCL_ADDR_TEXT_BYTES];
    /* Send: made by waitFd; readable while a full socket has room again or has failed. */
    int wait_fd, wait_armed;
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

/* sock_connect.c */
xcclResult_t sock_listen(xcclNetContext_t ctx, int dev, xcclNetHandle_t *handle_out,
                         xcclNetListenComm_t *listen_out);
xcclResult_t sock_connect(xcclNetContext_t ctx, int dev, const xcclNetHandle_t *handle,
                          xcclNetConnect_t *state, xcclNetSendComm_t *comm_out);
xcclResult_t sock_close_connect(xcclNetContext_t ctx, xcclNetConnect_t state);
xcclResult_t sock_accept(xcclNetListenComm_t listen, xcclNetRecvComm_t *comm_out);
xcclResult_t sock_close_comm(void *comm);
xcclResult_t sock_close_listen(xcclNetListenComm_t listen);

/* sock_memory.c */
xcclResult_t sock_reg_mr(void *comm, void *data, size_t bytes, uint32_t type,
                         xcclNetMem_t *mem_out);
xcclResult_t sock_dereg_mr(void *comm, xcclNetMem_t mem);

/* sock_request.c */
xcclResult_t sock_isend(xcclNetSendComm_t comm, const void *data, size_t bytes, uint32_t tag,
                        xcclNetMem_t mem, xcclNetRequest_t *request_out);
xcclResult_t sock_irecv(xcclNetRecvComm_t comm, int count, void *const *data, const size_t *bytes,
                        const uint32_t *tags, const xcclNetMem_t *mems,
                        xcclNetRequest_t *request_out);
xcclResult_t sock_test(xcclNetRequest_t request, int *done_out, size_t *bytes_out);
xcclResult_t sock_wait_fd(void *comm, int *fd_out);
xcclResult_t sock_error_detail(void *comm, xcclNetError_v1 *error);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* A proven connection: a stream socket under a channel (channel.h), TCP or Unix. Frames go in and
 * come out whole, encrypted and in order.
 *
 * Thread: one at a time; the service thread once a connection belongs to it. */
#ifndef XCCL_BOOTSTRAP_CONN_H
#define XCCL_BOOTSTRAP_CONN_H

#include "base/tcp.h"

#define XCCL_FRAME_MAX_BYTES (64u << 10) /* body of one frame */

/* What a connection is for; part of the proof. */
enum xccl_purpose {
    XCCL_PURPOSE_ROOT = 1, /* rank to root */
    XCCL_PURPOSE_ROUND = 2, /* rank to rank + 2^round; detail = round; round 0 is the ring */
    XCCL_PURPOSE_SEGMENT = 3, /* Unix: asks for a shared memory segment */
    XCCL_PURPOSE_MAIL = 4, /* rank to rank: messages, one way */
    XCCL_PURPOSE_ARENA = 5, /* Unix: asks for the memory that the process gives out */
    XCCL_PURPOSE_GIVEN = 6, /* Unix: asks for a descriptor that the rank gives; detail = number */
};

struct xccl_conn;

/* Who is at the other end, as it proved. */
struct xccl_hello {
    uint8_t comm_id[16];
    uint32_t rank, nranks;
    uint16_t purpose, detail;
    uint32_t version; /* XCCL_VERSION_CODE of a rank; 0: does not say */
    uint32_t target; /* the rank that is meant, XCCL_TARGET_ROOT for a root */
    uint64_t settings_hash; /* of the settings that must be equal on all ranks */
};

#define XCCL_TARGET_ROOT UINT32_MAX /* as a root's own rank */

/* Connects to addr and proves mutually under key; waits until limit. A refusal of the proof is
 * xcclRemoteError that says key or communicator differ. Refused TCP connections are retried, a Unix
 * name that nobody has is an error at once. */
xcclResult_t xccl_conn_open(const struct xccl_addr *addr, const uint8_t key[32],
                            const struct xccl_hello *hello, const struct xccl_limit *limit,
                            struct xccl_conn **conn_out);
void xccl_conn_close(
    struct xccl_conn *conn); /* sends FINAL if it can without waiting; NULL is fine */

int xccl_conn_fd(const struct xccl_conn *conn);
const struct xccl_hello *xccl_conn_hello(const struct xccl_conn *conn); /* the other end's */

/* One frame, waiting. */
xcclResult_t xccl_conn_send(struct xccl_conn *conn, uint16_t type, const void *body, size_t bytes,
                            const struct xccl_limit *limit);

/* Frames with bodies of so many bytes can then be taken without memory; up to 8 KiB. */
xcclResult_t xccl_conn_make_room(struct xccl_conn *conn, size_t bytes);

/* For event loops. queue: encrypts and keeps what the socket does not take now; at most 256 KiB are
 * kept, more is xcclRemoteError. flush: writes what it can; *pending_out 1 when bytes are left, so
 * wait for EPOLLOUT. take: reads what is there; *got_out 1 with a frame, 0 when there is none yet.
 * A closed stream is xcclRemoteError without FINAL and sets *final_out (with *got_out 0) after
 * FINAL. */
xcclResult_t xccl_conn_queue(struct xccl_conn *conn, uint16_t type, const void *body, size_t bytes);
xcclResult_t xccl_conn_flush(struct xccl_conn *conn, int *pending_out);
xcclResult_t xccl_conn_take(struct xccl_conn *conn, uint16_t *type_out, void *body_out,
                            size_t body_max, size_t *bytes_out, int *got_out, int *final_out);
/* Says FINAL behind all that is queued and shuts the sending side; frames may still be taken until
 * the other end says FINAL too. *pending_out 1: call again when it polls writable. */
xcclResult_t xccl_conn_finish(struct xccl_conn *conn, int *pending_out);

#endif

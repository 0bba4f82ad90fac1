/* SPDX-License-Identifier: BSD-3-Clause */
/* What the bootstrap's own files know of a connection besides conn.h: the handshake without
 * waiting, and frames without a copy. Errors here are quiet: the caller knows what they mean.
 *
 * Thread: one at a time. */
#ifndef XCCL_BOOTSTRAP_CONN_INT_H
#define XCCL_BOOTSTRAP_CONN_INT_H

#include "bootstrap/channel.h"

/* Starts connecting; xccl_conn_shake does the rest. */
xcclResult_t xccl_conn_start(const struct xccl_addr *addr, const uint8_t key[32],
                             const struct xccl_hello *hello, struct xccl_conn **conn_out);
/* An accepted descriptor, which is taken over on success. self and policy as in
 * xccl_channel_accept. */
xcclResult_t xccl_conn_adopt(int fd, const uint8_t key[32], const struct xccl_hello *self,
                             const struct xccl_channel_policy *policy, struct xccl_conn **conn_out);
/* Moves the handshake as far as it goes now. *done_out 1: both sides are proven. */
xcclResult_t xccl_conn_shake(struct xccl_conn *conn, int *done_out);
/* EPOLLIN or EPOLLOUT, whichever the handshake waits for. */
uint32_t xccl_conn_shake_events(const struct xccl_conn *conn);
/* 1 when it is past the first check: a hello with a right proof came. */
int xccl_conn_hello_seen(const struct xccl_conn *conn);
/* 1 when the handshake failed because the other end closed before its reply: a wrong key, or it had
 * no room for one more; worth another try. 2: it has proven the key before by a challenge, so it
 * had no room, and another try is right as long as there is time. */
int xccl_conn_turned_away(const struct xccl_conn *conn);
/* 1: the handshake failed since the other end speaks another version. */
int xccl_conn_other_version(const struct xccl_conn *conn);
/* 1: the other end was sent the reason, so the connection may not be reset. */
int xccl_conn_was_told(const struct xccl_conn *conn);
/* The errno with which it failed before it was connected: nobody listens there, or there is no way
 * there; 0: it did not fail so. */
int xccl_conn_unreached(const struct xccl_conn *conn);
/* 1: the other end's kernel has answered. */
int xccl_conn_is_connected(const struct xccl_conn *conn);
const char *xccl_conn_peer_text(const struct xccl_conn *conn);

/* As xccl_conn_queue, with a body in two pieces. */
xcclResult_t xccl_conn_queue_parts(struct xccl_conn *conn, uint16_t type, struct xccl_span head,
                                   struct xccl_span body);
/* As xccl_conn_take; the body stays in the connection and is good until the next call. FINAL comes
 * with *got_out 1 and frame_out->final, every time it is asked for. */
xcclResult_t xccl_conn_take_frame(struct xccl_conn *conn, struct xccl_frame *frame_out,
                                  int *got_out);
/* Undoes the last xccl_conn_take_frame. Only where the stream is known to have ended behind it, for
 * otherwise nothing would wake whoever takes it later. */
void xccl_conn_give_back(struct xccl_conn *conn, const struct xccl_frame *frame);

#endif

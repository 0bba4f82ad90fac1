/* SPDX-License-Identifier: BSD-3-Clause */
/* How the side channel of a connection begins: a TCP connection beside the plugin's own network.
 * Handles begin with magic, version and token, hellos with magic and version; the contents behind
 * are the plugin's. Both ends prove that they know the token (kit_guest.h), and hellos are sealed.
 *
 * Thread: one at a time a listener or a greeting; the rest any. Nothing here waits, and only open
 * allocates. */
#ifndef KIT_HELLO_H
#define KIT_HELLO_H

#include "kit/kit_doorstep.h"
#include "base/wire.h"
#include "kit/kit_guest.h"

#define KIT_HEAD_BYTES  (4 + 4 + KIT_TOKEN_BYTES) /* of a handle */
#define KIT_HELLO_BYTES (4 + 4) /* a hello's head */
#define KIT_PORTS_MAX   4 /* of a listener */
#define KIT_ADDRS_MAX   2 /* of a handle */

/* Where the receiver is. */
struct kit_handle {
    uint8_t token[KIT_TOKEN_BYTES];
    uint32_t addr_count; /* at least 1 */
    struct xccl_addr addrs[KIT_ADDRS_MAX];
};
/* The plugin's own bytes, from KIT_HEAD_BYTES on, are zero. */
void kit_handle_encode(const struct kit_dialect *dialect, const struct kit_handle *handle,
                       xcclNetHandle_t *bytes_out);
/* Error: not of this plugin and version, or an address that is none. */
xcclResult_t kit_handle_decode(const struct kit_dialect *dialect, const xcclNetHandle_t *bytes,
                               struct kit_handle *handle_out);

/* Gives the cursor behind the head. */
struct xccl_wire kit_hello_begin(const struct kit_dialect *dialect, uint8_t *hello_out);
/* 1: it begins as one of this plugin and version, and its contents are right. Whose it is a seal
 * has shown before. */
int kit_hello_read(const struct kit_dialect *dialect, uint8_t *hello, void *content_out);

/* The receiver's door. Strangers: a wrong opening or hello closes at once, a silent connection
 * after 5 s, and of 64 unproven ones the oldest that has not opened makes room for a new one. */
struct kit_listener {
    const struct kit_dialect *dialect;
    int fds[KIT_PORTS_MAX]; /* -1: no such port */
    struct xccl_addr ports[KIT_PORTS_MAX];
    struct kit_handle handle; /* the token, and the first of the ports */
    struct kit_doorstep step;
    struct kit_guests guests;
};
/* Draws the token; there is no port yet. log may be NULL, device stays the caller's. After an error
 * close is still fine, as it is of one that is all zero. */
xcclResult_t kit_listener_open(struct kit_listener *listener, const struct kit_dialect *dialect,
                               xcclNetLogger_t log, const char *device);
void kit_listener_close(struct kit_listener *listener);
/* Opens one at addr, whose port is 0, and puts it into the handle if there is room. */
xcclResult_t kit_listener_port(struct kit_listener *listener, uint32_t port_idx,
                               const struct xccl_addr *addr);
/* Takes in those who wait at the ports. */
xcclResult_t kit_listener_fill(struct kit_listener *listener, uint64_t now_ns);
/* The first from place *at_idx on who has proved himself and said a right hello; *at_idx is behind
 * him then. NULL: no more of them now. Who keeps his connection makes fd -1, and takes the proof.
 */
struct kit_stranger *kit_listener_next(struct kit_listener *listener, int *at_idx, uint64_t now_ns,
                                       void *content_out);

/* The sender's beginning: asks after the connection to addr that was started, then proves itself
 * and says the hello. *done_out 1: it is out. */
xcclResult_t kit_greet(struct kit_greeting *greeting, int fd, const struct xccl_addr *addr,
                       const struct kit_intro *intro, int *done_out);

#endif

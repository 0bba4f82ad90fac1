/* SPDX-License-Identifier: BSD-3-Clause */
/* How the side channel of a connection begins: a TCP connection beside the plugin's own network.
 * Handles and hellos begin with magic, version and token; the contents behind are the plugin's. A
 * sender proves itself by the token of the handle, in one function on either side.
 *
 * Thread: one at a time a listener or a greeting; the rest any. Nothing here waits, and only open
 * allocates. */
#ifndef KIT_HELLO_H
#define KIT_HELLO_H

#include "base/doorstep.h"
#include "base/wire.h"

#define KIT_TOKEN_BYTES 32
#define KIT_HEAD_BYTES  (4 + 4 + KIT_TOKEN_BYTES)
#define KIT_PORTS_MAX   4 /* of a listener */
#define KIT_ADDRS_MAX   2 /* of a handle */

/* What tells the bytes of one plugin from those of others; constant. */
struct kit_dialect {
    const char *plugin;
    const char *wrong; /* what a wrong hello is called */
    uint32_t handle_magic, hello_magic, version;
    uint32_t handle_own_bytes; /* of a handle, before the addresses */
    uint32_t hello_bytes; /* of a hello that are read before the token is looked at */
    uint32_t hello_bytes_max;
    /* Of hello_bytes what is behind the token. 0: it is wrong. */
    int (*decode)(struct xccl_wire *wire, void *content_out);
};

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

/* Gives the cursor behind the token. */
struct xccl_wire kit_hello_begin(const struct kit_dialect *dialect, const uint8_t *token,
                                 uint8_t *hello_out);
/* 1: it begins as one of this plugin and version, has this token, compared in constant time, and
 * its contents are right. */
int kit_hello_read(const struct kit_dialect *dialect, const uint8_t *token, uint8_t *hello,
                   void *content_out);

/* The receiver's door. Strangers: a wrong hello closes at once, a silent connection after 5 s, and
 * of 64 unproven ones the oldest makes room for a new one. */
struct kit_listener {
    const struct kit_dialect *dialect;
    int fds[KIT_PORTS_MAX]; /* -1: no such port */
    struct xccl_addr ports[KIT_PORTS_MAX];
    struct kit_handle handle; /* the token, and the first of the ports */
    struct xccl_doorstep step;
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
/* The first from place *at_idx on who has said a right hello, hello_bytes of it; *at_idx is behind
 * him then. NULL: no more of them now. Who keeps his connection makes fd -1. */
struct xccl_stranger *kit_listener_next(struct kit_listener *listener, int *at_idx, uint64_t now_ns,
                                        void *content_out);

/* The sender's beginning, all zero at first. */
struct kit_greeting {
    int is_reached; /* the connection is there */
    size_t said, heard; /* bytes */
};
/* Asks after the connection to addr that was started, then says the hello. *done_out 1: it is out.
 */
xcclResult_t kit_greet(struct kit_greeting *greeting, int fd, const struct xccl_addr *addr,
                       const uint8_t *hello, size_t bytes, int *done_out);
/* What the socket takes now, or has, of what is to go or to come; *moved: bytes so far. */
xcclResult_t kit_say(int fd, const uint8_t *data, size_t bytes, size_t *moved);
xcclResult_t kit_hear(int fd, uint8_t *data, size_t bytes, size_t *moved);

#endif

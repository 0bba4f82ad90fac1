/* SPDX-License-Identifier: BSD-3-Clause */
/* An entry of a group: one call of the program that is kept until it is its turn. The public calls
 * note entries; those who execute them read them and keep nothing of them.
 * Thread: the user's. */
#ifndef XCCL_COMM_ENTRY_H
#define XCCL_COMM_ENTRY_H

#include "comm/comm.h"

struct xccl_host_stream; /* comm_async.h */
struct xccl_join_args; /* join.h */

/* Links and plan only, nothing is moved: of xcclCommConnectAll, or of a call or a message that a
 * device will do once it has them. */
enum xccl_connects { XCCL_CONNECTS_NONE, XCCL_CONNECTS_ALL, XCCL_CONNECTS_CALL };
#define XCCL_NOT_ORDERED UINT32_MAX

/* One operation, kept until it is its turn. */
struct xccl_task {
    struct xcclComm *comm;
    const void *send;
    void *recv;
    struct xccl_call call;
    int connects; /* enum xccl_connects */
    uint32_t ahead; /* of CONNECTS_CALL: so many calls of the communicator come before that one and
                       have not been given to its device; NOT_ORDERED: nobody knows */
};

/* A send or a receive. */
struct xccl_p2p_item {
    int peer, sends;
    union {
        void *at;
        size_t awaited; /* CONNECTS_CALL: bytes of the message */
    };
    size_t bytes; /* 0 where it connects */
    int connects; /* enum xccl_connects; ALL: the links for messages of all sizes */
};

/* The first two are operations. */
enum xccl_entry_kind { XCCL_ENTRY_CALL, XCCL_ENTRY_P2P, XCCL_ENTRY_INIT, XCCL_ENTRY_DESTROY };

struct xccl_entry {
    enum xccl_entry_kind kind;
    struct xccl_task task; /* CALL; others but INIT: its comm */
    struct xccl_p2p_item p2p; /* P2P */
    struct xccl_host_stream *stream; /* NULL: none; or the device's own kind of stream */
    const struct xccl_join_args *join; /* INIT: the caller's; a group makes its own copy */
};

#endif

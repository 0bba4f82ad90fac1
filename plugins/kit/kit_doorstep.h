/* SPDX-License-Identifier: BSD-3-Clause */
/* Places for connections to a network plugin's port that have not yet shown that they know its
 * token. When all are taken, the oldest of those that have come least far loses its place, and a
 * connection without a complete hello after 5 s is dropped. So strangers cost neither memory nor
 * time of the right ones.
 *
 * Thread: the listener's. Nothing here waits. */
#ifndef KIT_DOORSTEP_H
#define KIT_DOORSTEP_H

#include <stddef.h>
#include <stdint.h>

#include "base/netaddr.h"
#include "xccl_net.h"

#define KIT_DOORSTEP_PLACES 64

struct kit_stranger {
    int fd; /* -1: a free place. Who takes it sets that. */
    uint64_t since_ns;
    struct xccl_addr peer;
    uint32_t stage; /* how far he has come, counted by the plugin; 0 when he comes */
    size_t have; /* bytes of the hello */
    size_t said; /* bytes of what he is told */
    uint8_t *hello;
};

struct kit_doorstep {
    xcclNetLogger_t log; /* of dropped ones; NULL: nobody is told */
    const char *device; /* for that */
    void (*came)(void *user, int fd); /* of each new one; NULL: nobody asks */
    void *user;
    uint8_t *hellos;
    struct kit_stranger places[KIT_DOORSTEP_PLACES];
};

/* hello_bytes: the longest one. On error fini is still fine, as on one that is all zero. */
xcclResult_t kit_doorstep_init(struct kit_doorstep *step, size_t hello_bytes);
void kit_doorstep_fini(struct kit_doorstep *step);

/* Takes in those who wait at the port. */
xcclResult_t kit_doorstep_fill(struct kit_doorstep *step, int listen_fd, uint64_t now_ns);
/* Reads until the hello has want bytes. 1: it has. 0: not yet, or he is dropped: gone, or silent
 * for too long. */
int kit_doorstep_read(struct kit_doorstep *step, struct kit_stranger *stranger, size_t want,
                      uint64_t now_ns);
void kit_doorstep_drop(struct kit_doorstep *step, struct kit_stranger *stranger, const char *why);

#endif

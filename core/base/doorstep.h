/* SPDX-License-Identifier: BSD-3-Clause */
/* Those who have come to a network plugin's port and have not yet shown that they know its token: a
 * place for each. When all places are taken the oldest one's is given away, and who has not said
 * its hello after 5 s is dropped, so strangers cost neither memory nor time of the right ones.
 *
 * Thread: the listener's. Nothing here waits. */
#ifndef XCCL_BASE_DOORSTEP_H
#define XCCL_BASE_DOORSTEP_H

#include <stddef.h>
#include <stdint.h>

#include "base/netaddr.h"
#include "xccl_net.h"

#define XCCL_DOORSTEP_PLACES 64

struct xccl_stranger {
    int fd; /* -1: a free place. Who takes it sets that. */
    uint64_t since_ns;
    struct xccl_addr peer;
    size_t have; /* bytes of the hello */
    uint8_t *hello;
};

struct xccl_doorstep {
    xcclNetLogger_t log; /* of dropped ones; NULL: nobody is told */
    const char *device; /* for that */
    void (*came)(void *user, int fd); /* of each new one; NULL: nobody asks */
    void *user;
    uint8_t *hellos;
    struct xccl_stranger places[XCCL_DOORSTEP_PLACES];
};

/* hello_bytes: the longest one. On error fini is still fine, as on one that is all zero. */
xcclResult_t xccl_doorstep_init(struct xccl_doorstep *step, size_t hello_bytes);
void xccl_doorstep_fini(struct xccl_doorstep *step);

/* Takes in those who wait at the port. */
xcclResult_t xccl_doorstep_fill(struct xccl_doorstep *step, int listen_fd, uint64_t now_ns);
/* Reads until the hello has want bytes. 1: it has. 0: not yet, or he is dropped: gone, or silent
 * for too long. */
int xccl_doorstep_read(struct xccl_doorstep *step, struct xccl_stranger *stranger, size_t want,
                       uint64_t now_ns);
/* Takes the same time whatever differs: a stranger learns nothing about the token by trying. */
int xccl_token_equal(const uint8_t *a, const uint8_t *b, size_t bytes);
void xccl_doorstep_drop(struct xccl_doorstep *step, struct xccl_stranger *stranger,
                        const char *why);

#endif

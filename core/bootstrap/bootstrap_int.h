/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank's state while joining and for out-of-band all-gathers, shared by bootstrap.c (joining) and
 * gather.c (connections and rounds); nobody else includes it.
 *
 * Thread: the rank's own. */
#ifndef XCCL_BOOTSTRAP_BOOTSTRAP_INT_H
#define XCCL_BOOTSTRAP_BOOTSTRAP_INT_H

#include "base/error.h"
#include "base/loop.h"
#include "bootstrap/acceptor.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/conn_int.h"

#define XCCL_BOOT_ROUNDS_MAX 20

/* One connection. give: this rank pushes (accepted from r - 2^k); else it takes (opened to r + 2^k,
 * or to the root with round -1). */
struct xccl_boot_peer {
    struct xccl_source source;
    struct xccl_bootstrap *boot;
    struct xccl_conn *conn;
    int rank, round, give;
    int shaking, tries;
    uint64_t moved, total; /* bytes of the block of this all-gather */
    int all_queued, done;
};

struct xccl_bootstrap {
    struct xccl_job job;
    int rank, nranks, rounds;
    struct xccl_loop *loop;
    struct xccl_acceptor *acceptor;
    struct xccl_root *root; /* of rank 0 under XCCL_COMM_ID, while joining */
    struct xccl_boot_peer root_peer;
    struct xccl_boot_peer take[XCCL_BOOT_ROUNDS_MAX], give[XCCL_BOOT_ROUNDS_MAX];
    uint8_t *next_addrs; /* nranks parts of XCCL_ADDR_WIRE_BYTES */
    int next_known, joined, ring_taken;
    /* the all-gather in progress */
    uint8_t *data;
    size_t part_bytes;
    uint32_t seq;
    int gathering;
    int root_unaware; /* the root does not know of this rank, so it must be told of a failure */
    int maybe_echo; /* the error is a lost peer's: the root may know why it went */
    /* the first error; its text is complete */
    xcclResult_t rc;
    char error[XCCL_ERROR_TEXT_BYTES];
};

void xccl_boot_peer_init(struct xccl_bootstrap *boot, struct xccl_boot_peer *peer, int rank,
                         int round, int give);
void xccl_boot_peer_close(struct xccl_boot_peer *peer);
/* Watches for events, or for nothing at all: a closed peer would otherwise wake the loop for ever.
 */
void xccl_boot_peer_watch(struct xccl_boot_peer *peer, uint32_t events);

/* The hello of a rank that connects. */
struct xccl_hello xccl_boot_hello(const struct xccl_bootstrap *boot, uint16_t purpose,
                                  uint16_t detail);

/* Begins an all-gather; done when xccl_boot_gathered. */
void xccl_boot_gather_start(struct xccl_bootstrap *boot, void *data, size_t part_bytes);
int xccl_boot_gathered(const struct xccl_bootstrap *boot);
/* Does all that can be done now; called after every event. */
void xccl_boot_pump(struct xccl_bootstrap *boot);
/* Runs the loop until done says so, an error, the limit or an abort; the error is in boot. */
void xccl_boot_run(struct xccl_bootstrap *boot, int (*done)(const struct xccl_bootstrap *),
                   const struct xccl_limit *limit);
/* Sends the error to every peer, as far as the sockets take it. */
void xccl_boot_tell_peers(struct xccl_bootstrap *boot);
/* Makes the error the thread's and tells every peer. */
xcclResult_t xccl_boot_give_up(struct xccl_bootstrap *boot);

#endif

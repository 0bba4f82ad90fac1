/* SPDX-License-Identifier: BSD-3-Clause */
/* Links over shared memory. Each rank makes one sealed memfd segment, without a name anywhere, and
 * gives it to the ranks of its host over a proven Unix connection; that this connection comes about
 * is what "same host" means. A segment holds its owner's board, the slots the owner multicasts from
 * with the heads of their readers, and the slots in which the owner receives from the previous rank
 * of the ring. Every page is touched when the segment is made, never in a call.
 *
 * Thread: the communicator's during init; the service thread hands out the segment. */
#ifndef XCCL_TRANSPORT_SHM_H
#define XCCL_TRANSPORT_SHM_H

#include "base/loop.h"
#include "bootstrap/conn.h"
#include "transport/board.h"
#include "transport/link.h"

#define XCCL_SHM_SLICES 3

struct xccl_shm;

struct xccl_shm_args {
    int nlocal, local_index; /* ranks of this host and this rank's place among them */
    const int *local_ranks; /* ascending; copied */
    uint32_t slice_bytes; /* equal on all of them */
    uint8_t comm_id[16];
    uint8_t key[32]; /* proves the connections that hand out segments */
    int rank, nranks;
    struct xccl_loop *loop; /* the service loop */
    struct xccl_addr addr; /* Unix name to listen on */
};

/* The slice size for so many ranks on a host within a budget of bytes a rank. */
uint32_t xccl_shm_slice_bytes(int nlocal, uint64_t budget_bytes);
/* A Unix name that nobody else has. */
xcclResult_t xccl_shm_new_addr(struct xccl_addr *addr_out);

/* Makes the own segment and hands it out to whoever proves the key. */
xcclResult_t xccl_shm_create(const struct xccl_shm_args *args, struct xccl_shm **shm_out);
/* Fetches and checks the segment of local rank `index`, which listens at addr. */
xcclResult_t xccl_shm_fetch(struct xccl_shm *shm, int index, const struct xccl_addr *addr,
                            const struct xccl_limit *limit);
/* All have fetched: stops listening, closes the descriptor. */
void xccl_shm_seal(struct xccl_shm *shm);
void xccl_shm_destroy(struct xccl_shm *shm); /* NULL is fine */

int xccl_shm_nlocal(const struct xccl_shm *shm);
int xccl_shm_rank_of(const struct xccl_shm *shm, int index);
int xccl_shm_index_of(const struct xccl_shm *shm, int rank); /* -1: not on this host */
size_t xccl_shm_bytes(const struct xccl_shm *shm); /* of the own segment */
struct xccl_board *xccl_shm_board(struct xccl_shm *shm, int index);

/* Fills in an end of a link; the segments concerned have been fetched. */
void xccl_shm_multicast_send(struct xccl_shm *shm, enum xccl_proto proto,
                             struct xccl_link *link_out);
void xccl_shm_multicast_recv(struct xccl_shm *shm, enum xccl_proto proto, int from_index,
                             struct xccl_link *link_out);
void xccl_shm_ring_send(struct xccl_shm *shm, int to_index, struct xccl_link *link_out);
void xccl_shm_ring_recv(struct xccl_shm *shm, int from_index, struct xccl_link *link_out);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared memory from inside: what shm.c, which makes segments and links, and shm_reach.c, which
 * says what is read in place, know of each other.
 *
 * Thread: see shm.h. */
#ifndef XCCL_TRANSPORT_SHM_INT_H
#define XCCL_TRANSPORT_SHM_INT_H

#include <pthread.h>

#include "transport/segments.h"
#include "transport/shm.h"

#define XCCL_SHM_SLOTS 6u /* of slices, that a link has at most */

/* Where the slots of one protocol lie, from the start of a link's place, where its heads are. */
struct pool {
    size_t start, bytes; /* of the first place, in the segment; of each */
    size_t headers, payload, end;
    uint32_t header_stride, payload_stride, slot_bytes;
    uint32_t nslots;
    uint16_t lag;
};

/* Offsets in a segment. A FIFO's place is found by its id, then by the index of the sender. */
struct layout {
    size_t board;
    size_t extra;
    struct pool multicast[XCCL_PROTO_COUNT], fifo[XCCL_PROTO_COUNT];
    size_t bytes;
};

struct xccl_shm {
    int nlocal, local_index, rank, nranks;
    struct xccl_shm_sizes sizes;
    int *local_ranks;
    int *index_of; /* by rank; -1: not on this host */
    struct layout layout;
    size_t taken; /* bytes of the own segment */
    struct xccl_segment **segments; /* by local index */
    int fd; /* of the own segment, for other processes; -1: none */
    /* By local index; NULL: nothing is read in place. */
    struct xccl_shm_process *processes;
    struct xccl_segment **arenas; /* of other processes */
    int has_arenas; /* 1: this rank has got all of them */
    int reaches; /* 1: so have all */
    int reads_peers; /* 1: all read the private memory of all others */
    char *room; /* of a slice, then */
    struct xccl_acceptor *acceptor;
    pthread_mutex_t given_lock; /* of fd, and of: */
    struct xccl_given *given;
    uint32_t given_last; /* number */
    uint8_t comm_id[16], key[32];
};

/* Asks the rank that listens at addr for a map of so many bytes, over a proven connection. */
xcclResult_t xccl_shm_ask(const struct xccl_shm *shm, const struct xccl_addr *addr,
                          enum xccl_purpose purpose, uint32_t detail,
                          const struct xccl_limit *limit, int *fd_out);

/* --- descriptors that are given (shm_given.c) --- */

/* Sends it to who asked over that connection, if it is there. On the service thread, by the lock.
 */
void xccl_shm_send_given(struct xccl_shm *shm, struct xccl_conn *conn,
                         const struct xccl_limit *limit);
void xccl_shm_drop_given(struct xccl_shm *shm);

/* --- memory that is read in place (shm_reach.c) --- */

xcclResult_t xccl_shm_note_processes(struct xccl_shm *shm, const struct xccl_shm_args *args);
/* Gets the arena of that rank's process, if it has one and is another one. */
void xccl_shm_fetch_arena(struct xccl_shm *shm, int index, const struct xccl_addr *addr,
                          const struct xccl_limit *limit);
void xccl_shm_drop_arenas(struct xccl_shm *shm);

#endif

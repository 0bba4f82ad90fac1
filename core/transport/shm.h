/* SPDX-License-Identifier: BSD-3-Clause */
/* Links over shared memory. Each rank makes one sealed memfd segment, without a name anywhere, and
 * gives it to the ranks of its host over a proven Unix connection; that this connection comes about
 * is what "same host" means. A segment holds its owner's board, the slots that the owner multicasts
 * from with the heads of their readers, and a place for each connection id and other rank of the
 * host, in which the owner receives from it. All of it has its place from the beginning, so that a
 * link is made without a word between its ends; memory is taken when a link is made, never in a
 * call.
 *
 * Thread: the holder of the communicator's crank; the service thread hands out the segment. */
#ifndef XCCL_TRANSPORT_SHM_H
#define XCCL_TRANSPORT_SHM_H

#include "base/loop.h"
#include "bootstrap/conn.h"
#include "transport/board.h"
#include "transport/link.h"
#include "transport/peer_memory.h"
#include "transport/reach.h"

#define XCCL_SHM_IDS 16 /* connections of one pair of ranks, one way */

struct xccl_shm;

/* What slots hold; equal on all ranks of a host. */
struct xccl_shm_sizes {
    uint32_t slice_bytes, tight_bytes;
    int is_tight; /* 1: links between every two ranks have tight slots, to stay in the budget */
    size_t extra_bytes; /* room in each segment for its owner's purposes; zeroed */
};

/* The process of a rank, as far as others read its memory in place. */
struct xccl_shm_process {
    uint64_t id; /* equal: one process */
    uint64_t arena_bytes; /* 0: it has none; the own one is held */
    struct xccl_peer_mark mark; /* 0: its private memory is not to be read */
    uint32_t pid;
};

struct xccl_shm_args {
    int nlocal, local_index; /* ranks of this host and this rank's place among them */
    const int *local_ranks; /* ascending; copied */
    const struct xccl_shm_process *processes; /* by local index, copied; NULL: all is copied */
    struct xccl_shm_sizes sizes;
    uint8_t comm_id[16];
    uint8_t key[32]; /* proves the connections that hand out segments */
    int rank, nranks;
    struct xccl_loop *loop; /* the service loop */
    struct xccl_addr addr; /* Unix name to listen on, and of the segment */
    int one_process; /* 1: they all are in this process, so nobody will ask for it */
};

/* For so many ranks on a host within a budget of bytes a rank. */
struct xccl_shm_sizes xccl_shm_sizes(int nlocal, uint64_t budget_bytes);
/* A Unix name that nobody else has. */
xcclResult_t xccl_shm_new_addr(struct xccl_addr *addr_out);

/* Makes the own segment and hands it out to whoever proves the key. */
xcclResult_t xccl_shm_create(const struct xccl_shm_args *args, struct xccl_shm **shm_out);
/* Gets and checks the segment of local rank `index`, which listens at addr: out of this process's
 * table, or over a connection, once for all ranks of the process. */
xcclResult_t xccl_shm_fetch(struct xccl_shm *shm, int index, const struct xccl_addr *addr,
                            const struct xccl_limit *limit);
/* Gets the segment of a rank of this process without waiting; *found_out 0: it is not there yet. */
xcclResult_t xccl_shm_find(struct xccl_shm *shm, int index, const struct xccl_addr *addr,
                           int *found_out);
/* 1: this rank has got the arenas of all processes of the host. */
int xccl_shm_has_arenas(const struct xccl_shm *shm);
/* A rank whose process's private memory is not read, as the error text says; -1: there is none. */
int xccl_shm_unread_peer(const struct xccl_shm *shm);
/* All ranks of the host have, and do, so that messages may stay there. Before links are made. */
xcclResult_t xccl_shm_agree(struct xccl_shm *shm, int arenas, int peers);
/* All have fetched: closes the descriptor and, unless this rank will give others, stops listening.
 */
void xccl_shm_seal(struct xccl_shm *shm, int gives);
void xccl_shm_destroy(struct xccl_shm *shm); /* NULL is fine */

/* Other descriptors for ranks of other processes, by number: to be asked for so many times, and
 * then closed. The descriptor is shm's from the call on, also on failure. */
xcclResult_t xccl_shm_give(struct xccl_shm *shm, int fd, uint32_t times, uint32_t *number_out);
void xccl_shm_take_back(struct xccl_shm *shm, uint32_t number); /* also one that is closed */
/* One that the rank that listens at addr gives. Quiet. */
xcclResult_t xccl_shm_fetch_given(struct xccl_shm *shm, const struct xccl_addr *addr,
                                  uint32_t number, const struct xccl_limit *limit, int *fd_out);

int xccl_shm_nlocal(const struct xccl_shm *shm);
int xccl_shm_rank_of(const struct xccl_shm *shm, int index);
int xccl_shm_index_of(const struct xccl_shm *shm, int rank); /* -1: not on this host */
int xccl_shm_takes_addresses(const struct xccl_shm *shm); /* 1: private memory is read */
/* 1: this rank's memory of the arena is read in place; all: whatever it is, for all ranks of this
 * host are in one process. */
int xccl_shm_reads_in_place(const struct xccl_shm *shm, int *all_out);
int xccl_shm_is_tight(const struct xccl_shm *shm); /* see struct xccl_shm_sizes */
size_t xccl_shm_bytes(const struct xccl_shm *shm); /* taken in the own segment */
size_t xccl_shm_table_bytes(const struct xccl_shm *shm); /* taken besides */
/* Address space of all segments; ranks of one process share it. */
uint64_t xccl_shm_mapped_bytes(const struct xccl_shm *shm);
struct xccl_board *xccl_shm_board(struct xccl_shm *shm, int index);
/* The extra room of a segment, whole pages. */
char *xccl_shm_extra(struct xccl_shm *shm, int index, size_t *bytes_out);

/* Makes an end of a link; the segments concerned have been fetched. Multicast: one writer, and all
 * other ranks of the host read. FIFO: id below XCCL_SHM_IDS tells several of one pair apart. */
xcclResult_t xccl_shm_multicast_send(struct xccl_shm *shm, enum xccl_proto proto,
                                     struct xccl_link *link_out);
xcclResult_t xccl_shm_multicast_recv(struct xccl_shm *shm, enum xccl_proto proto, int from_index,
                                     struct xccl_link *link_out);
xcclResult_t xccl_shm_fifo_send(struct xccl_shm *shm, enum xccl_proto proto, int to_index,
                                uint32_t id, struct xccl_link *link_out);
xcclResult_t xccl_shm_fifo_recv(struct xccl_shm *shm, enum xccl_proto proto, int from_index,
                                uint32_t id, struct xccl_link *link_out);
/* The place of a receiving end that has not been made, of which only the header of the first slot
 * may be looked at. Takes a page at most. */
xcclResult_t xccl_shm_fifo_look(struct xccl_shm *shm, enum xccl_proto proto, int from_index,
                                uint32_t id, struct xccl_link *link_out);

/* The reach of such an end, for links of slices. Both ends in one process share its offers. */
xcclResult_t xccl_shm_multicast_send_reach(struct xccl_shm *shm, struct xccl_reach *reach_out);
xcclResult_t xccl_shm_multicast_recv_reach(struct xccl_shm *shm, int from_index,
                                           struct xccl_reach *reach_out);
xcclResult_t xccl_shm_fifo_send_reach(struct xccl_shm *shm, int to_index, uint32_t id,
                                      struct xccl_reach *reach_out);
xcclResult_t xccl_shm_fifo_recv_reach(struct xccl_shm *shm, int from_index, uint32_t id,
                                      struct xccl_reach *reach_out);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Schedules of groups of sends and receives (XCCL_COLL_SEND_RECV). A rank makes its own from its
 * own list alone: it goes through the rounds of a pairwise exchange, in round k to rank + k and
 * from rank - k, and does what its list has there. The lists of all ranks together leave out of the
 * full exchange, on both sides, what nobody sends; that takes no order away that kept it from
 * standing still, whatever the lists are.
 *
 * Chunk k of IN is the k-th send of the list, chunk k of OUT the k-th receive, each of a size of
 * its own; messages between two ranks arrive in the order of both lists. Sends to oneself are
 * copies.
 *
 * Through slots a send may share memory with a receive of the same round, and the old content is
 * sent; directly, nothing may be shared. Thread: any. */
#ifndef XCCL_SCHEDULE_GEN_P2P_H
#define XCCL_SCHEDULE_GEN_P2P_H

#include "schedule/schedule.h"

#define XCCL_P2P_SLOTS 1 /* that every group needs */

/* A rank's list: peers in the user's order. At most 65535 of each kind. */
struct xccl_p2p_for {
    int nranks, rank;
    int nsends, nreceives;
    const uint16_t *sends, *receives;
    int direct; /* no send shares memory with a receive: marks all steps that may be direct */
};

/* xcclInvalidArgument for peers that are not there, and for sends to oneself that are not received
 * or the other way round. That other ranks have matching lists is the user's duty. */
xcclResult_t xccl_p2p_make(const struct xccl_p2p_for *what, struct xccl_schedule **schedule_out);

#endif

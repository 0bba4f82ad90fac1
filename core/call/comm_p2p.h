/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends and receives of a rank: all of a group at once. They are no calls of the communicator's
 * sequence, since not all ranks take part: what belongs together is found by the order within each
 * pair of ranks and direction.
 *
 * The first message of a pair makes their link. No stream waits for another one, also not then, so
 * that no order of peers can stand still.
 *
 * Thread: the caller, who holds the crank from begin to xccl_comm_end. */
#ifndef XCCL_CALL_COMM_P2P_H
#define XCCL_CALL_COMM_P2P_H

#include "comm/entry.h"
#include "watch/standstill.h"

/* What begin would refuse: sends to oneself without receives of the same sizes. Any thread. */
xcclResult_t xccl_comm_check_p2p(const struct xcclComm *comm, const struct xccl_p2p_item *items,
                                 uint32_t count);

/* Begins all of them; comm->run is then waited for as that of a call. Arguments have been checked,
 * but for sends to oneself, which need receives of the same sizes. The items are not looked at any
 * more when this returns. */
xcclResult_t xccl_comm_begin_p2p(struct xcclComm *comm, const struct xccl_p2p_item *items,
                                 uint32_t count);
/* Begins all of them and waits for the end. */
xcclResult_t xccl_comm_execute_p2p(struct xcclComm *comm, const struct xccl_p2p_item *items,
                                   uint32_t count);

/* 1: a peer has left in order. */
int xccl_comm_peer_has_left(const struct xcclComm *comm, int peer);

/* The deadline has passed while these were waited for; those of XCCL_NOBODY are not named. */
xcclResult_t xccl_comm_fail_messages(struct xcclComm *comm, const struct xccl_still_item *items,
                                     uint32_t count);

size_t xccl_comm_p2p_bytes(const struct xccl_comm_p2p *p2p); /* NULL: 0 */
void xccl_comm_p2p_free(struct xccl_comm_p2p *p2p); /* NULL is fine */

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Gives a binding its links: those that are missing are made, all at once and in parallel, and the
 * ranks agree on the size of slices. Over shared memory that needs no word with anybody. Where
 * ranks are on several hosts all of them do it together, out of band, since all of them are in the
 * same call; ranks that are in different ones find out here.
 *
 * Thread: the joining one, then the crank's holder. One binding at a time. */
#ifndef XCCL_CONNECT_COMM_BIND_H
#define XCCL_CONNECT_COMM_BIND_H

#include "comm/comm.h"

enum xccl_bind_state {
    XCCL_BIND_DONE, /* the binding is ready */
    XCCL_BIND_TALK, /* an out-of-band operation has begun: call again when it has ended */
    XCCL_BIND_POLL, /* nothing rings: call again in a while */
};

/* comm->bind; NULL: no memory. */
struct xccl_comm_bind *xccl_comm_bind_create(void);
/* A step: never blocks. mark: of the call that needs it, equal on all ranks. An error is final. */
xcclResult_t xccl_comm_bind(struct xcclComm *comm, struct xccl_binding *binding, uint64_t mark,
                            const struct xccl_limit *limit, enum xccl_bind_state *state_out);
/* For devices whose links inside a host are shared memory: makes those of a binding that are
 * missing; once all links are up, notes which of them may carry addresses. */
xcclResult_t xccl_comm_bind_local(struct xcclComm *comm, const struct xccl_binding *binding);
void xccl_comm_bind_reaches(struct xcclComm *comm, struct xccl_binding *binding);
/* What the out-of-band operation works in: free it when the bootstrap is closed. */
void xccl_comm_bind_free(struct xccl_comm_bind *bind); /* NULL is fine */

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* How a communicator comes and goes: ranks join, split, destroy, abort and revoke.
 * Thread: as each says; else the user's. */
#ifndef XCCL_JOIN_JOIN_H
#define XCCL_JOIN_JOIN_H

#include "comm/comm.h"

#define XCCL_NO_COLOR (-1)

/* What a rank that joins is given, or one that splits a communicator. */
struct xccl_join_args {
    const xcclUniqueId *ids; /* id_count of them; must stay until the joining is over */
    int id_count, rank, nranks;
    struct xcclComm *parent; /* NULL, or it is split, and what is above has no meaning */
    int color, key; /* of a split */
    char net_list[XCCL_NET_LIST_BYTES]; /* "": the parent's, or XCCL_NET_PLUGIN's */
    char name[XCCL_COMM_NAME_BYTES];
    char labels[XCCL_COMM_LABELS_BYTES];
    int has_labels; /* 0: a split has its parent's */
    int is_nonblocking;
    int device; /* of CUDA, or XCCL_DEVICE_HOST */
    int has_device; /* 0: nobody has said which */
    struct xcclComm **comm_out; /* set on success only; NULL to ranks without a color */
};

/* Joins as all of these ranks side by side, in the calling thread: all of them or none. The error
 * is the first one's; whoever waits for the others is told. Splits of one parent come one after the
 * other. A split that is refused because of its arguments leaves the parent as it was; one that
 * fails before the ranks of a color have found each other fails the parent too. */
xcclResult_t xccl_comm_create(const struct xccl_join_args *joins, uint32_t count);
/* Joins as non-blocking communicators: begins, and leaves the rest to the progress thread.
 * *comm_out is set at once, but for ranks without a color. What cannot even begin is an error here,
 * and there are no communicators then. The arguments are not looked at any more afterwards. */
xcclResult_t xccl_comm_create_later(const struct xccl_join_args *joins, uint32_t count);
/* These ranks do not even begin to join, for reason rc and the thread's error text, which stays:
 * tells the roots, so that nobody waits for them. At most half a second a root. */
void xccl_comm_decline(const struct xccl_join_args *joins, uint32_t count, xcclResult_t rc);

/* Orderly leave and free. NULL is fine. An error: ranks made different calls, which nobody had
 * found before; it is left all the same. */
xcclResult_t xccl_comm_destroy(struct xcclComm *comm);
/* From any thread: raises "rank r aborted" everywhere, waits for this process's call to return (at
 * most 1 s) and takes everything down; a call that does not return by then keeps it all, with a
 * warning. What is left is a shell whose calls return the error; the oldest of several shells is
 * freed for a new one. */
void xccl_comm_abort(struct xcclComm *comm);
/* From any thread: every call that waits or comes later returns "rank r revoked the communicator",
 * on all ranks. Nothing is taken down: each rank still destroys the communicator in order. */
void xccl_comm_revoke(struct xcclComm *comm);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations of a group on the host, executed by the calling thread: all communicators side by
 * side, each with its sends and receives together and then its calls in their order. One that fails
 * while it runs fails its communicator, and the others are finished. Thread: the user's. */
#ifndef XCCL_CALL_CALL_GROUP_H
#define XCCL_CALL_CALL_GROUP_H

#include "comm/entry.h"

#define XCCL_CALL_FEW 16 /* entries for which no memory is taken */

/* The communicators of a group at work: runs[i] belongs to comms[i], whose next entry is next[i].
 * On the caller's stack. */
struct xccl_call_work {
    const struct xccl_entry *entries;
    uint32_t entry_count;
    struct xccl_run **runs;
    struct xcclComm **comms;
    uint32_t *next;
    uint32_t count;
    struct xcclComm **seen; /* all that were begun, or could not be */
    uint32_t seen_count;
    struct xccl_p2p_item *items; /* room for the sends and receives of a communicator */
    struct xccl_run *few_runs[XCCL_CALL_FEW];
    struct xcclComm *few_comms[XCCL_CALL_FEW], *few_seen[XCCL_CALL_FEW];
    uint32_t few_next[XCCL_CALL_FEW];
    struct xccl_p2p_item few_items[XCCL_CALL_FEW];
};

/* Takes the memory that `operations` of the entries need. Before anything begins, so that a group
 * without memory has not started. fini also after an error. */
xcclResult_t xccl_call_work_init(struct xccl_call_work *work, const struct xccl_entry *entries,
                                 uint32_t count, uint32_t operations);
void xccl_call_work_fini(struct xccl_call_work *work);
/* Executes the operations. all 0: without those of devices that queue operations themselves. *rc
 * keeps the first error. */
void xccl_call_work_run(struct xccl_call_work *work, int all, xcclResult_t *rc);
/* init, run of all, fini. */
xcclResult_t xccl_call_group(const struct xccl_entry *entries, uint32_t count);

/* A few messages of one communicator and nothing else. */
xcclResult_t xccl_call_messages(struct xcclComm *comm, const struct xccl_entry *entries,
                                uint32_t count);

/* comm could not begin what the other ranks may have begun, for the error `begun`: it fails. *rc
 * keeps the first error. */
void xccl_call_not_begun(struct xcclComm *comm, xcclResult_t begun, xcclResult_t *rc);

#endif

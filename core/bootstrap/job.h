/* SPDX-License-Identifier: BSD-3-Clause */
/* What a rank needs to know before it can meet the others: which root to report to, and the secret
 * to prove. It comes from one or several unique ids (unique_id.c).
 *
 * With several ids the ranks are shared out evenly, in order, over the ids' roots; the first rank
 * of each share reports to the root of the share before as well, whose last rank must be told of
 * it. The communicator's id and secret are then a hash over all ids in order.
 *
 * Thread: any. Holds secrets: wipe with explicit_bzero at the end. */
#ifndef XCCL_BOOTSTRAP_JOB_H
#define XCCL_BOOTSTRAP_JOB_H

#include "base/netaddr.h"
#include "xccl.h"

/* An id's payload, decoded and checked: where a root is, and what proves membership to it. */
struct xccl_meeting {
    uint8_t comm_id[16];
    uint8_t secret[32];
    struct xccl_addr roots[3]; /* the same root's; the first that answers is taken */
    int root_count;
    int owns_root; /* by XCCL_COMM_ID: rank 0 listens at roots[0] */
    int key_is_public, key_is_short; /* the secret follows from the address, or can be guessed */
};

struct xccl_job {
    uint8_t comm_id[16]; /* of the communicator */
    uint8_t secret[32];
    int meeting_count, meeting_idx; /* ids, and which of them own is */
    struct xccl_meeting own;
    struct xccl_meeting before; /* where a guest reports as well */
    int guest;
};

/* A fresh id whose root lives in this process's service thread until all ranks were told; or, when
 * XCCL_COMM_ID is set, the id that follows from it, the job key and how many ids this process made.
 */
xcclResult_t xccl_unique_id_create(xcclUniqueId *id_out);
/* A fresh id, whatever XCCL_COMM_ID says. */
xcclResult_t xccl_unique_id_create_here(xcclUniqueId *id_out);
/* As with XCCL_COMM_ID set to addr_text (for launchers that say where to meet). salt (may be "")
 * tells jobs apart that have no key. */
xcclResult_t xccl_unique_id_at(const char *addr_text, const char *salt, xcclUniqueId *id_out);
xcclResult_t xccl_unique_id_decode(const xcclUniqueId *id, struct xccl_meeting *meeting_out);
/* Warns, once a process, that a meeting has no secret or a weak one. Only rank 0 calls it, whose
 * root it is, so a job warns once. */
void xccl_unique_id_warn(const struct xccl_meeting *meeting);
/* The secret that follows from a job key's text, so that launcher and ranks agree. */
void xccl_job_key_secret(const char *job_key, uint8_t secret_out[32]);

/* ids: id_count of them, 1..nranks, the same on all ranks. */
xcclResult_t xccl_job_init(const xcclUniqueId *ids, int id_count, int rank, int nranks,
                           struct xccl_job *job_out);
/* The first rank of share idx; share meeting_count begins at nranks. */
int xccl_job_first_rank(int nranks, int meeting_count, int idx);

#endif

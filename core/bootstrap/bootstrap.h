/* SPDX-License-Identifier: BSD-3-Clause */
/* How ranks meet, prove that they belong to the job, and talk out of band during init.
 *
 * Star first: every rank reports to the root and is told its next rank's address as soon as that is
 * known. From there addresses spread in ceil(log2 n) rounds without the root: a rank that knows
 * ranks r to r+2^k asks r+2^k for what it knows. All connections are proven and encrypted
 * (channel.h).
 *
 * Thread: the rank's own during init. */
#ifndef XCCL_BOOTSTRAP_BOOTSTRAP_H
#define XCCL_BOOTSTRAP_BOOTSTRAP_H

#include "base/clock.h"
#include "bootstrap/conn.h"
#include "xccl.h"

struct xccl_bootstrap;

/* The id's payload, decoded and checked. */
struct xccl_job {
    uint8_t comm_id[16];
    uint8_t secret[32];
    struct xccl_addr roots[3];
    int root_count;
    int owns_root; /* by XCCL_COMM_ID: rank 0 listens at roots[0] */
};

/* A fresh id whose root lives in this process's service thread until all ranks were told; or, when
 * XCCL_COMM_ID is set, the id that follows from it, the job key and how many ids this process made.
 */
xcclResult_t xccl_unique_id_create(xcclUniqueId *id_out);
xcclResult_t xccl_unique_id_decode(const xcclUniqueId *id, struct xccl_job *job_out);

/* A root that serves any number of communicators of one secret, for a launcher: listens at *addr
 * (port 0: chosen; written back). */
struct xccl_root;
xcclResult_t xccl_root_create(struct xccl_addr *addr, const uint8_t secret[32],
                              struct xccl_root **root_out);
void xccl_root_destroy(struct xccl_root *root); /* NULL is fine */
/* The secret that follows from a job key's text, so that launcher and ranks agree. */
void xccl_job_key_secret(const char *job_key, uint8_t secret_out[32]);

/* Meets the others; returns once this rank knows all addresses. The error names the missing ranks
 * when the limit passes (the root tells them). */
xcclResult_t xccl_bootstrap_open(const struct xccl_job *job, int rank, int nranks,
                                 const struct xccl_limit *limit, struct xccl_bootstrap **boot_out);
/* Tells the root that this rank cannot join, with the thread's error text (which stays), so that
 * the others need not wait for it: for failures before xccl_bootstrap_open, which tells of its own.
 * A best effort of half a second. */
void xccl_bootstrap_decline(const struct xccl_job *job, int rank, int nranks, xcclResult_t rc);
/* data: nranks parts of part_bytes, own part filled. Log-step. part_bytes up to 1 MiB, 0 is a
 * barrier. */
xcclResult_t xccl_bootstrap_allgather(struct xccl_bootstrap *boot, void *data, size_t part_bytes,
                                      const struct xccl_limit *limit);
/* Between all-gathers, while waiting for something else: an error when another rank has given up,
 * with what that rank said. Sleeps at most wait_ms. */
xcclResult_t xccl_bootstrap_listen(struct xccl_bootstrap *boot, int wait_ms);
/* Tells the others that this rank gives up, with the thread's error text, which stays. Only close
 * may follow. Nothing is told twice; NULL is fine. */
void xccl_bootstrap_fail(struct xccl_bootstrap *boot, xcclResult_t rc);
/* The ring connections, for the control plane: next to rank+1, prev from rank-1. They are the
 * caller's from then on. nranks 1: both NULL. */
void xccl_bootstrap_take_ring(struct xccl_bootstrap *boot, struct xccl_conn **next_out,
                              struct xccl_conn **prev_out);
/* 32 bytes that only this communicator's ranks know, for a named purpose ("shm"). */
void xccl_bootstrap_derive_key(const struct xccl_bootstrap *boot, const char *purpose,
                               uint8_t key_out[32]);
/* Closes everything that was not taken; NULL is fine. */
void xccl_bootstrap_close(struct xccl_bootstrap *boot);

#endif

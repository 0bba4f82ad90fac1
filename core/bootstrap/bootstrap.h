/* SPDX-License-Identifier: BSD-3-Clause */
/* How ranks meet, prove that they belong to the job, and talk out of band.
 *
 * Star first: every rank reports to a root and is told its next rank's address as soon as that is
 * known. From there addresses spread in ceil(log2 n) rounds without the root. After that any rank
 * can send to any other. All connections are proven and encrypted (channel.h).
 *
 * Everything that moves is moved by the service thread, which no peer can hold up; the rank's own
 * thread starts an operation and asks after it, so one thread may join as several ranks side by
 * side. One operation a rank at a time; a second one is refused. What fails once has failed for
 * good: the other ranks are told, and only close may follow.
 *
 * Thread: the rank's own; abort and derive_key: any. */
#ifndef XCCL_BOOTSTRAP_BOOTSTRAP_H
#define XCCL_BOOTSTRAP_BOOTSTRAP_H

#include "base/bell.h"
#include "base/clock.h"
#include "bootstrap/conn.h"
#include "bootstrap/job.h"
#include "verdict/verdict.h"

struct xccl_bootstrap;

/* A root that serves any number of communicators of one secret, for a launcher: listens at *addr
 * (port 0: chosen; written back). */
struct xccl_root;
xcclResult_t xccl_root_create(struct xccl_addr *addr, const uint8_t secret[32],
                              struct xccl_root **root_out);
void xccl_root_destroy(struct xccl_root *root); /* NULL is fine */
/* The launcher's rank of nranks has ended, as the text says: those who wait for its report, now or
 * later, are told. Only the first such rank counts. */
void xccl_root_note_end(struct xccl_root *root, uint32_t rank, uint32_t nranks, const char *text);

/* --- joining --- */

/* Begins to meet the others; done when this rank knows all addresses. bell (may be NULL) is rung
 * whenever test may say something new, for as long as boot lives. The error names the missing ranks
 * when the limit passes (the root tells them). */
xcclResult_t xccl_bootstrap_start(const struct xccl_job *job, int rank, int nranks,
                                  const struct xccl_limit *limit, struct xccl_bell *bell,
                                  struct xccl_bootstrap **boot_out);
/* *done_out 1: joined, or the last operation has ended, and none is at work. An error: this rank
 * has failed, with the text of the first culprit; also between operations. Never blocks. */
xcclResult_t xccl_bootstrap_test(struct xccl_bootstrap *boot, int *done_out);
/* Another bell, or NULL for none; the old one is not touched any more when this returns. */
void xccl_bootstrap_set_bell(struct xccl_bootstrap *boot, struct xccl_bell *bell);
/* Becomes 1 when boot has failed, which test then says: the abort flag of a wait for something else
 * that a failed rank will not send. As long as boot lives. */
const _Atomic int *xccl_bootstrap_failed(const struct xccl_bootstrap *boot);
/* Test until done. */
xcclResult_t xccl_bootstrap_wait(struct xccl_bootstrap *boot);
/* Start and wait. On an error there is nothing to close. */
xcclResult_t xccl_bootstrap_open(const struct xccl_job *job, int rank, int nranks,
                                 const struct xccl_limit *limit, struct xccl_bootstrap **boot_out);
/* Tells the root that this rank cannot join, with the thread's error text (which stays), so that
 * the others need not wait for it: for failures before xccl_bootstrap_start, which tells of its
 * own. A best effort of half a second. */
void xccl_bootstrap_decline(const struct xccl_job *job, int rank, int nranks, xcclResult_t rc);

/* --- operations --- */

/* Some of the ranks, for a collective among them. NULL in its place means all ranks. tag differs
 * from that of other sets which share a member and are at work at the same time. */
struct xccl_boot_set {
    const int *ranks; /* in the same order on all members; must stay until the operation is done */
    int count;
    int self; /* this rank's place */
    uint32_t tag;
};

#define XCCL_BOOT_PART_MAX    (1u << 20) /* bytes a rank of an all-gather */
#define XCCL_BOOT_MESSAGE_MAX (1u << 30)

/* Each starts and returns; memory is the bootstrap's until test says done. An error is as test's.
 *
 * allgather: data is count parts of part_bytes, own part filled; log-step, or a ring both ways for
 * much data. barrier: log-step without data. broadcast: a tree; root is a place in the set.
 * send: done when the memory may be reused; the receiver keeps early arrivals within a bound. recv:
 * bytes must be what was sent. Messages of one pair of ranks and one tag keep their order. */
xcclResult_t xccl_bootstrap_allgather_start(struct xccl_bootstrap *boot,
                                            const struct xccl_boot_set *set, void *data,
                                            size_t part_bytes, const struct xccl_limit *limit);
xcclResult_t xccl_bootstrap_barrier_start(struct xccl_bootstrap *boot,
                                          const struct xccl_boot_set *set,
                                          const struct xccl_limit *limit);
xcclResult_t xccl_bootstrap_broadcast_start(struct xccl_bootstrap *boot,
                                            const struct xccl_boot_set *set, int root, void *data,
                                            size_t bytes, const struct xccl_limit *limit);
xcclResult_t xccl_bootstrap_send_start(struct xccl_bootstrap *boot, int rank, uint32_t tag,
                                       const void *data, size_t bytes,
                                       const struct xccl_limit *limit);
xcclResult_t xccl_bootstrap_recv_start(struct xccl_bootstrap *boot, int rank, uint32_t tag,
                                       void *data, size_t bytes, const struct xccl_limit *limit);

/* 1: a receive of this message begun now does not wait for a rank that is still busy: the message
 * came before anybody asked for it, or the bootstrap has failed and the receive says why. */
int xccl_bootstrap_has_mail(struct xccl_bootstrap *boot, int rank, uint32_t tag);

/* Start an operation and wait until it is done. */
xcclResult_t xccl_bootstrap_allgather(struct xccl_bootstrap *boot, const struct xccl_boot_set *set,
                                      void *data, size_t part_bytes,
                                      const struct xccl_limit *limit);
xcclResult_t xccl_bootstrap_barrier(struct xccl_bootstrap *boot, const struct xccl_boot_set *set,
                                    const struct xccl_limit *limit);
xcclResult_t xccl_bootstrap_broadcast(struct xccl_bootstrap *boot, const struct xccl_boot_set *set,
                                      int root, void *data, size_t bytes,
                                      const struct xccl_limit *limit);
xcclResult_t xccl_bootstrap_send(struct xccl_bootstrap *boot, int rank, uint32_t tag,
                                 const void *data, size_t bytes, const struct xccl_limit *limit);
xcclResult_t xccl_bootstrap_recv(struct xccl_bootstrap *boot, int rank, uint32_t tag, void *data,
                                 size_t bytes, const struct xccl_limit *limit);

/* The ranks that give the same color meet again without a root, ordered by key, then by rank here;
 * color -1: this rank is in none, and the child NULL. Collective over all ranks of boot, which
 * stays as it was. The child is a bootstrap of its own: after test has said done, take it and test
 * it until it is joined. bell: the child's. */
xcclResult_t xccl_bootstrap_split_start(struct xccl_bootstrap *boot, int color, int key,
                                        const struct xccl_limit *limit, struct xccl_bell *bell);
void xccl_bootstrap_take_child(struct xccl_bootstrap *boot, struct xccl_bootstrap **child_out);
/* All of it, waiting. */
xcclResult_t xccl_bootstrap_split(struct xccl_bootstrap *boot, int color, int key,
                                  const struct xccl_limit *limit,
                                  struct xccl_bootstrap **child_out);

/* --- the rest --- */

int xccl_bootstrap_rank(const struct xccl_bootstrap *boot);
int xccl_bootstrap_nranks(const struct xccl_bootstrap *boot);
/* Its tables of ranks; messages and connections not. */
size_t xccl_bootstrap_table_bytes(const struct xccl_bootstrap *boot);
/* The 16 bytes that name the communicator. */
const uint8_t *xccl_bootstrap_comm_id(const struct xccl_bootstrap *boot);
/* Where a rank listens for control messages. */
void xccl_bootstrap_addr(const struct xccl_bootstrap *boot, int rank, struct xccl_addr *addr_out);
/* The own address by which this rank met the others: of its connection with the root, or, on the
 * root's own host, of one with another host. No port; bytes 0 with one rank. */
void xccl_bootstrap_met_addr(const struct xccl_bootstrap *boot, struct xccl_addr *addr_out);
/* Sets who says from now on where ranks run, for errors; NULL: nobody, and the last one is not
 * called any more when this returns. Called with the loop's lock. */
void xccl_bootstrap_set_places(struct xccl_bootstrap *boot, const struct xccl_rank_places *places);
/* Tells the others that this rank gives up, with the thread's error text, which stays. Only close
 * may follow. Nothing is told twice; NULL is fine. */
void xccl_bootstrap_fail(struct xccl_bootstrap *boot, xcclResult_t rc);
/* From any thread: the operation at work ends with xcclInvalidUsage "aborted" at once, and so does
 * all that is started later. The others are told. */
void xccl_bootstrap_abort(struct xccl_bootstrap *boot);
/* The ring connections, for the control plane: next to rank+1, prev from rank-1. They are the
 * caller's from then on, and finding dead peers is too. nranks 1: both NULL. */
void xccl_bootstrap_take_ring(struct xccl_bootstrap *boot, struct xccl_conn **next_out,
                              struct xccl_conn **prev_out);
/* 32 bytes that only this communicator's ranks know, for a named purpose ("shm"). */
void xccl_bootstrap_derive_key(const struct xccl_bootstrap *boot, const char *purpose,
                               uint8_t key_out[32]);
/* 1: it failed before its root knew of it, so xccl_bootstrap_decline must tell. */
int xccl_bootstrap_is_unheard(const struct xccl_bootstrap *boot);
/* Closes everything that was not taken; after an error it stays up to 0.3 s for ranks that are
 * still on their way here, counted from the error. NULL is fine. */
void xccl_bootstrap_close(struct xccl_bootstrap *boot);

#endif

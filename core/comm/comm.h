/* SPDX-License-Identifier: BSD-3-Clause */
/* The communicator: the owner of everything that one rank has in one group of ranks. Made by a
 * table of phases (comm_init.c), used by calls (comm_call.c), ended by destroy or abort, and told
 * of by errors (comm_error.c), of which the first one wins on all ranks.
 *
 * Thread: a call holds the crank; error, error_text and left may be touched by the service thread.
 */
#ifndef XCCL_COMM_COMM_H
#define XCCL_COMM_COMM_H

#include <pthread.h>

#include "base/error.h"
#include "base/loop.h"
#include "bootstrap/bootstrap.h"
#include "plan/plan.h"
#include "plugin/net_plugin.h"
#include "proxy/crank.h"
#include "transport/shm.h"
#include "xccl.h"

#define XCCL_COMM_MAGIC   0x58434c434f4d4d31ull
#define XCCL_COMM_FORKED  0x58434c464f524b31ull /* in a child: see comm.c */
#define XCCL_NET_MESH_MAX 8 /* ranks up to which all pairs are connected over the network */
#define XCCL_NOBODY       (-1)

/* What every rank tells the others at the beginning. */
struct xccl_peer {
    uint64_t host_hash;
    char host[64];
    uint32_t pid, cores, version;
    uint32_t algo; /* XCCL_ALGO: must be equal everywhere */
    uint32_t shm; /* 1: shared memory is allowed */
    uint64_t buffer_bytes;
    struct xccl_addr unix_addr;
};

struct xccl_comm_links; /* comm_links.c */
struct xccl_comm_progress; /* comm_progress.h */
struct xccl_control; /* control.h */

struct xcclComm {
    /* What a call touches first. */
    uint64_t magic;
    _Atomic uint32_t error; /* xcclResult_t of the first error; see comm_error.c */
    int rank, nranks;
    uint64_t seq; /* of the last call begun; the crank's holder */
    struct xccl_board *board; /* the own one in shared memory, or a private one */
    struct xccl_crank crank;
    _Atomic uint32_t inside; /* 1: a caller or an aborter is; for shared cranks, comm_progress.c */
    struct xccl_planner planner;
    struct xccl_wait_policy policy;
    uint64_t timeout_ns; /* XCCL_NEVER_NS: none */
    _Atomic int needs_group; /* its thread owns another rank of the communicator too */
    int needs_fence; /* the system has no membarrier: see xccl_comm_abort() */
    struct xccl_run run;
    struct xccl_call call; /* of the run, for error texts */

    /* Cold. */
    pthread_mutex_t error_lock;
    char error_text[XCCL_ERROR_TEXT_BYTES];
    uint8_t id[16];
    int64_t thread_id; /* that joined */
    struct xccl_peer *peers;
    struct xccl_board private_board;
    struct xccl_loop *loop; /* the service thread's */
    struct xccl_shm *shm; /* NULL: no other rank on this host */
    struct xccl_net *net; /* NULL: all ranks on this host */
    struct xccl_comm_links *links;
    struct xccl_comm_progress *progress; /* NULL: the plugin delivers by itself */
    struct xccl_control *control;
    _Atomic int aborted; /* 1: somebody is at it, or it is a shell */
    struct xcclComm *next; /* of this process, see comm.c */
};

/* Joins; what xcclCommInitRank does. thread_id: of the user thread that will own the rank. */
xcclResult_t xccl_comm_create(const xcclUniqueId *id, int rank, int nranks, int64_t thread_id,
                              struct xcclComm **comm_out);
/* Orderly leave and free. NULL is fine. */
void xccl_comm_destroy(struct xcclComm *comm);
/* From any thread: raises "rank r aborted" everywhere, waits for this process's call to return (at
 * most 1 s) and takes everything down; a call that does not return by then keeps it all, with a
 * warning. What is left is a shell whose calls return the error; the oldest of several shells is
 * freed for a new one. */
void xccl_comm_abort(struct xcclComm *comm);
/* 1 when the calling thread, which owns comm from now on, owns another rank of the communicator. */
int xccl_comm_shares_thread(struct xcclComm *comm);

/* One operation, kept until it is its turn. */
struct xccl_task {
    struct xcclComm *comm;
    const void *send;
    void *recv;
    struct xccl_call call;
};

/* Begins a task: sequence number, board, plan, run. The crank is taken and kept until end. */
xcclResult_t xccl_comm_begin(struct xcclComm *comm, const struct xccl_task *task);
/* After the run is done, or failed with rc: puts the crank; turns rc into the communicator's error.
 */
xcclResult_t xccl_comm_end(struct xcclComm *comm, xcclResult_t rc);
/* Both, with the wait between. */
xcclResult_t xccl_comm_execute(struct xcclComm *comm, const struct xccl_task *task);

/* Raises an error: the first one is kept and told to the other ranks; the text in force becomes the
 * thread's. Returns the result in force. Any thread. */
xcclResult_t xccl_comm_fail(struct xcclComm *comm, xcclResult_t rc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4), cold));
/* Keeps rc and text unless there is an error already; 1 when it was the first. Tells nobody, logs
 * nothing. */
int xccl_comm_set_error(struct xcclComm *comm, xcclResult_t rc, const char *text);
/* The error in force, or xcclSuccess; its text becomes the thread's. */
xcclResult_t xccl_comm_error(struct xcclComm *comm);
/* "rank 3 (host b, pid 91)" */
void xccl_comm_name_rank(const struct xcclComm *comm, int rank, char *text_out, size_t bytes);

/* Init's pieces (comm_peers.c, comm_links.c). */
struct xccl_init {
    struct xcclComm *comm;
    struct xccl_job job;
    struct xccl_limit limit;
    struct xccl_bootstrap *boot;
    struct xccl_addr unix_addr;
};

xcclResult_t xccl_init_peers(struct xccl_init *init);
xcclResult_t xccl_init_shm(struct xccl_init *init);
xcclResult_t xccl_init_net(struct xccl_init *init);
xcclResult_t xccl_init_bindings(struct xccl_init *init);
void xccl_comm_links_destroy(struct xccl_comm_links *links); /* NULL is fine */

#endif

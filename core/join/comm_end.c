/* SPDX-License-Identifier: BSD-3-Clause */
/* The end of a communicator: destroyed in order, aborted, or revoked. What aborted communicators
 * leave is a shell, whose memory stays for a while, for calls that come too late.
 * Thread: destroy the owner's, the others any. */
#include "join/join.h"

#include <linux/membarrier.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/os.h"
#include "comm/comm_list.h"
#include "comm/comm_memory.h"
#include "comm/comm_progress.h"
#include "comm/device_ops.h"
#include "join/join_int.h"
#include "record/record.h"
#include "stream/async_job.h"
#include "stream/comm_async.h"
#include "watch/comm_verdict.h"

#define ABORT_WAIT_MS 1000
#define JOIN_WAIT_MS  6000 /* somewhat longer than comm_join.c may take to give up */

/* Communicators that were aborted: their memory stays for a while, for calls that come too late. */
#define SHELLS 16
static _Atomic(struct xcclComm *) shells[SHELLS];
static _Atomic unsigned next_shell;

void xccl_comm_free(struct xcclComm *comm)
{
    xccl_record_close(&comm->record);
    pthread_mutex_destroy(&comm->error_lock);
    xccl_comm_async_free(comm);
    xccl_comm_registered_drop(comm);
    xccl_free(comm);
}

/* Keeps comm's memory, and frees the one that was kept longest. */
static void keep_shell(struct xcclComm *comm)
{
    struct xcclComm *oldest;
    unsigned at;

    pthread_mutex_lock(&comm->error_lock); /* late errors are recorded under it */
    xccl_record_close(&comm->record);
    pthread_mutex_unlock(&comm->error_lock);
    /* Acquire and release: whoever takes one out frees it. */
    at = atomic_fetch_add_explicit(&next_shell, 1, memory_order_relaxed) % SHELLS;
    oldest = atomic_exchange_explicit(&shells[at], comm, memory_order_acq_rel);
    if (oldest)
        xccl_comm_free(oldest);
}

/* The last thing that it has of the others. */
static void put_thread(struct xcclComm *comm)
{
    if (comm->holds_thread)
        xccl_async_thread_put();
    comm->holds_thread = 0;
}

/* 1: it has everything that a communicator has. Acquire: pairs with the end of comm_join.c. */
static int has_joined(const struct xcclComm *comm)
{
    return !comm->is_nonblocking ||
           atomic_load_explicit(&comm->join_state, memory_order_acquire) == XCCL_JOIN_DONE;
}

xcclResult_t xccl_comm_destroy(struct xcclComm *comm)
{
    xcclResult_t rc;

    if (!comm || atomic_load_explicit(&comm->aborted, memory_order_acquire))
        return xcclSuccess;
    xccl_comm_drain(comm);
    xccl_comm_set_magic(comm, 0); /* first: a child of fork() must not find it good, yet unmarked */
    xccl_comm_unlist(comm);
    put_thread(comm);
    if (!has_joined(comm)) { /* and never will */
        xccl_comm_free(comm);
        return xcclSuccess;
    }
    if (comm->crank.shared && !xccl_comm_claim(comm)) {
        xccl_log(XCCL_LOG_WARN,
                 "rank %d: a thread still uses a destroyed communicator; its memory is not freed",
                 comm->rank);
        return xcclSuccess;
    }
    comm->ops->settle(comm);
    rc = xccl_comm_last_look(comm);
    xccl_comm_undo_all(comm);
    xccl_comm_free(comm);
    return rc;
}

/* Tells the progress thread that comm, which is still on its way, is not wanted any more. Until it
 * has given up, or joined just before. 0: it does not answer. */
static int stop_joining(struct xcclComm *comm)
{
    struct xccl_limit limit = xccl_limit_ms(JOIN_WAIT_MS, NULL);

    xccl_async_thread_ring();
    while (atomic_load_explicit(&comm->join_state, memory_order_acquire) == XCCL_JOIN_ON) {
        if (xccl_limit_passed(&limit))
            return 0;
        poll(NULL, 0, 1);
    }
    return 1;
}

/* 1: there is nothing more to abort. */
static int abort_joining(struct xcclComm *comm)
{
    if (has_joined(comm))
        return 0;
    if (!stop_joining(comm)) {
        xccl_log(XCCL_LOG_WARN,
                 "rank %d: initialization does not end after an abort; the memory of the "
                 "communicator is not freed",
                 comm->rank);
        return 1;
    }
    if (has_joined(comm))
        return 0;
    xccl_comm_unlist(comm);
    put_thread(comm);
    keep_shell(comm);
    return 1;
}

void xccl_comm_abort(struct xcclComm *comm)
{
    struct xccl_limit limit = xccl_limit_ms(ABORT_WAIT_MS, NULL);
    struct xccl_verdict verdict = xccl_comm_verdict(comm, XCCL_TROUBLE_ABORTED, comm->rank);
    char name[128];

    if (atomic_exchange_explicit(&comm->aborted, 1, memory_order_acq_rel) || abort_joining(comm))
        return;
    xccl_comm_name_rank(comm, comm->rank, name, sizeof name);
    if (xccl_comm_error(comm))
        xccl_comm_note_abort(comm, name);
    (void)xccl_comm_raise(comm, &verdict);
    /* A caller takes the crank, then looks at the error word; here it is the other way round. The
     * barrier orders both on every thread, so one of the two sees the other. */
    if (comm->needs_fence)
        atomic_thread_fence(memory_order_seq_cst);
    else
        (void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    while (!xccl_comm_drain_failed(comm, &limit) || !xccl_comm_claim(comm)) {
        if (xccl_limit_passed(&limit)) {
            xccl_log(XCCL_LOG_WARN,
                     "%s: a call does not return after an abort; the memory of the communicator is "
                     "not freed",
                     name);
            return;
        }
        poll(NULL, 0, 1);
    }
    /* The crank is never put again: late calls find it taken, and the error. */
    xccl_comm_unlist(comm);
    put_thread(comm);
    xccl_comm_undo_all(comm);
    keep_shell(comm);
}

void xccl_comm_revoke(struct xcclComm *comm)
{
    struct xccl_verdict verdict = xccl_comm_verdict(comm, XCCL_TROUBLE_REVOKED, comm->rank);

    (void)xccl_comm_raise(comm, &verdict);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Birth and death of communicators, and the list of those in this process: it finds a thread that
 * owns two ranks of one communicator, which may then be used in groups only. Thread: any; the list
 * has a lock. */
#include "comm/comm.h"

#include <linux/membarrier.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/os.h"
#include "comm/async_int.h"
#include "comm/comm_int.h"
#include "comm/comm_progress.h"
#include "record/record.h"

#define ABORT_WAIT_MS 1000
#define JOIN_WAIT_MS  6000 /* somewhat longer than comm_join.c may take to give up */

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct xcclComm *list;

/* Communicators that were aborted: their memory stays for a while, for calls that come too late. */
#define SHELLS 16
static struct xcclComm *shells[SHELLS];
static unsigned next_shell;

/* A child of fork() has the communicators' memory, but neither the service thread nor connections
 * of its own: every call on them must be refused before it touches what is the parent's. */
static void fork_prepare(void)
{
    pthread_mutex_lock(&list_lock);
}

static void fork_parent(void)
{
    pthread_mutex_unlock(&list_lock);
}

static void fork_child(void)
{
    for (struct xcclComm *comm = list; comm; comm = comm->next)
        xccl_comm_set_magic(comm, XCCL_COMM_FORKED);
    pthread_mutex_unlock(&list_lock);
}

static void watch_forks(void)
{
    (void)pthread_atfork(fork_prepare, fork_parent, fork_child);
}

static int is_sibling(const struct xcclComm *comm, const uint8_t *id, int64_t thread_id)
{
    return comm->thread_id == thread_id && memcmp(comm->id, id, sizeof comm->id) == 0;
}

static void set_detour(struct xcclComm *comm, uint32_t detour, int on)
{
    if (on)
        atomic_fetch_or_explicit(&comm->detour, detour, memory_order_relaxed);
    else
        atomic_fetch_and_explicit(&comm->detour, ~detour, memory_order_relaxed);
}

/* Of all ranks of a communicator in one thread, after one has come or gone; the lock is held.
 * Relaxed: a call that sees the old value began before the change. Once through the list: there may
 * be a thousand of them. */
static void mark_siblings(const uint8_t *id, int64_t thread_id)
{
    struct xcclComm *first = NULL;
    int count = 0;

    for (struct xcclComm *comm = list; comm; comm = comm->next) {
        if (!is_sibling(comm, id, thread_id))
            continue;
        if (++count == 1)
            first = comm;
        set_detour(comm, XCCL_DETOUR_GROUP, 1);
    }
    if (count == 1)
        set_detour(first, XCCL_DETOUR_GROUP, 0);
}

static void list_add(struct xcclComm *comm)
{
    pthread_mutex_lock(&list_lock);
    comm->next = list;
    list = comm;
    mark_siblings(comm->id, comm->thread_id);
    pthread_mutex_unlock(&list_lock);
}

static void list_remove(struct xcclComm *comm)
{
    pthread_mutex_lock(&list_lock);
    for (struct xcclComm **at = &list; *at; at = &(*at)->next) {
        if (*at != comm)
            continue;
        *at = comm->next;
        break;
    }
    mark_siblings(comm->id, comm->thread_id);
    pthread_mutex_unlock(&list_lock);
}

int xccl_comm_shares_thread(struct xcclComm *comm)
{
    int64_t before;
    int shares;

    pthread_mutex_lock(&list_lock);
    before = comm->thread_id;
    comm->thread_id = xccl_os_thread_id();
    mark_siblings(comm->id, comm->thread_id);
    if (before != comm->thread_id)
        mark_siblings(comm->id, before);
    shares = (atomic_load_explicit(&comm->detour, memory_order_relaxed) & XCCL_DETOUR_GROUP) != 0;
    pthread_mutex_unlock(&list_lock);
    return shares;
}

void xccl_comm_set_id(struct xcclComm *comm, const uint8_t *id)
{
    uint8_t before[sizeof comm->id];

    pthread_mutex_lock(&list_lock);
    memcpy(before, comm->id, sizeof before);
    memcpy(comm->id, id, sizeof comm->id);
    mark_siblings(before, comm->thread_id);
    mark_siblings(comm->id, comm->thread_id);
    pthread_mutex_unlock(&list_lock);
}

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

    pthread_mutex_lock(&comm->error_lock); /* late errors are recorded under it */
    xccl_record_close(&comm->record);
    pthread_mutex_unlock(&comm->error_lock);
    pthread_mutex_lock(&list_lock);
    oldest = shells[next_shell];
    shells[next_shell] = comm;
    next_shell = (next_shell + 1) % SHELLS;
    pthread_mutex_unlock(&list_lock);
    if (oldest)
        xccl_comm_free(oldest);
}

struct xcclComm *xccl_comm_alloc(const struct xccl_job *job, int rank, int nranks)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct xcclComm *comm;

    pthread_once(&once, watch_forks);
    comm = xccl_calloc_aligned(128, sizeof *comm);
    if (!comm)
        return NULL;
    comm->board = &comm->private_board;
    comm->rank = rank;
    comm->nranks = nranks;
    comm->thread_id = xccl_os_thread_id();
    memcpy(comm->id, job->comm_id, sizeof comm->id);
    pthread_mutex_init(&comm->error_lock, NULL);
    comm->needs_fence = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) !=
                        0;
    return comm;
}

void xccl_comm_publish(struct xcclComm *comm, uint64_t magic)
{
    xccl_comm_set_magic(comm, magic);
    list_add(comm);
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

void xccl_comm_destroy(struct xcclComm *comm)
{
    if (!comm || atomic_load_explicit(&comm->aborted, memory_order_acquire))
        return;
    xccl_comm_drain(comm);
    list_remove(comm);
    xccl_comm_set_magic(comm, 0);
    put_thread(comm);
    if (!has_joined(comm)) { /* and never will */
        xccl_comm_free(comm);
        return;
    }
    if (comm->crank.shared && !xccl_comm_claim(comm)) {
        xccl_log(XCCL_LOG_WARN,
                 "rank %d: somebody is still inside a destroyed communicator; its memory is kept",
                 comm->rank);
        return;
    }
    xccl_comm_undo_all(comm);
    xccl_comm_free(comm);
}

xcclResult_t xccl_comm_check_joined(struct xcclComm *comm)
{
    /* Acquire: pairs with end_joins() in comm_join.c. */
    uint32_t state = atomic_load_explicit(&comm->join_state, memory_order_acquire);
    xcclResult_t rc;

    if (state == XCCL_JOIN_ON)
        return xcclInProgress; /* also when it has failed, until all is taken down */
    if (state == XCCL_JOIN_DONE) {
        pthread_mutex_lock(&list_lock); /* two may ask at a time, and a child be forked */
        if (xccl_comm_magic(comm) == XCCL_COMM_JOINING)
            xccl_comm_set_magic(comm, XCCL_COMM_MAGIC);
        pthread_mutex_unlock(&list_lock);
        return xcclSuccess;
    }
    rc = xccl_comm_error(comm);
    return rc ? rc : xcclInternalError;
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
        xccl_log(XCCL_LOG_WARN, "rank %d: joining does not end after an abort; its memory is kept",
                 comm->rank);
        return 1;
    }
    if (has_joined(comm))
        return 0;
    list_remove(comm);
    put_thread(comm);
    keep_shell(comm);
    return 1;
}

void xccl_comm_abort(struct xcclComm *comm)
{
    struct xccl_limit limit = xccl_limit_ms(ABORT_WAIT_MS, NULL);
    char name[128];

    if (atomic_exchange_explicit(&comm->aborted, 1, memory_order_acq_rel) || abort_joining(comm))
        return;
    xccl_comm_name_rank(comm, comm->rank, name, sizeof name);
    (void)xccl_comm_raise(comm, XCCL_NOTICE_ABORT, xcclRemoteError, "%s aborted the communicator",
                          name);
    /* A caller takes the crank, then looks at the error word; here it is the other way round. The
     * barrier orders both on every thread, so one of the two sees the other. */
    if (comm->needs_fence)
        atomic_thread_fence(memory_order_seq_cst);
    else
        (void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    while (!xccl_comm_drain_failed(comm, &limit) || !xccl_comm_claim(comm)) {
        if (xccl_limit_passed(&limit)) {
            xccl_log(XCCL_LOG_WARN, "%s: a call does not return after an abort; its memory is kept",
                     name);
            return;
        }
        poll(NULL, 0, 1);
    }
    /* The crank is never put again: late calls find it taken, and the error. */
    list_remove(comm);
    put_thread(comm);
    xccl_comm_undo_all(comm);
    keep_shell(comm);
}

void xccl_comm_revoke(struct xcclComm *comm)
{
    char name[128];

    xccl_comm_name_rank(comm, comm->rank, name, sizeof name);
    (void)xccl_comm_raise(comm, XCCL_NOTICE_REVOKE, xcclRemoteError,
                          "%s revoked the communicator; destroy it", name);
}

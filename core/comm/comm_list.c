/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of communicators, and the list of those in this process: it finds a thread that owns two
 * ranks of one communicator, which may then be used in groups only, and marks all of them in a
 * child of fork(). Thread: any; the list has a lock. */
#include "comm/comm_list.h"

#include <linux/membarrier.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fork.h"
#include "base/os.h"

static struct xcclComm *list; /* whole at any time: see list_add() */

/* A child of fork() has the communicators' memory, but neither the service thread nor connections
 * of its own: every call on them must be refused before it touches what is the parent's. */
static void mark_forked(void)
{
    for (struct xcclComm *comm = list; comm; comm = comm->next)
        xccl_comm_set_magic(comm, XCCL_COMM_FORKED);
}

static struct xccl_lock list_lock = XCCL_LOCK(mark_forked);

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

/* Marks all ranks of a communicator in one thread, after one has joined or left; the lock is held.
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
    xccl_lock_take(&list_lock);
    comm->next = list;
    atomic_thread_fence(memory_order_release); /* mark_forked() finds the rest of the list */
    list = comm;
    mark_siblings(comm->id, comm->thread_id);
    xccl_lock_give(&list_lock);
}

void xccl_comm_unlist(struct xcclComm *comm)
{
    xccl_lock_take(&list_lock);
    for (struct xcclComm **at = &list; *at; at = &(*at)->next) {
        if (*at != comm)
            continue;
        *at = comm->next;
        break;
    }
    mark_siblings(comm->id, comm->thread_id);
    xccl_lock_give(&list_lock);
}

int xccl_comm_shares_thread(struct xcclComm *comm)
{
    int64_t before;
    int shares;

    xccl_lock_take(&list_lock);
    before = comm->thread_id;
    comm->thread_id = xccl_os_thread_id();
    mark_siblings(comm->id, comm->thread_id);
    if (before != comm->thread_id)
        mark_siblings(comm->id, before);
    shares = (atomic_load_explicit(&comm->detour, memory_order_relaxed) & XCCL_DETOUR_GROUP) != 0;
    xccl_lock_give(&list_lock);
    return shares;
}

void xccl_comm_set_id(struct xcclComm *comm, const uint8_t *id)
{
    uint8_t before[sizeof comm->id];

    xccl_lock_take(&list_lock);
    memcpy(before, comm->id, sizeof before);
    memcpy(comm->id, id, sizeof comm->id);
    mark_siblings(before, comm->thread_id);
    mark_siblings(comm->id, comm->thread_id);
    xccl_lock_give(&list_lock);
}

struct xcclComm *xccl_comm_alloc(const struct xccl_job *job, int rank, int nranks)
{
    struct xcclComm *comm = xccl_calloc_aligned(128, sizeof *comm);

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

xcclResult_t xccl_comm_check_joined(struct xcclComm *comm)
{
    /* Acquire: pairs with end_joins() in comm_join.c. */
    uint32_t state = atomic_load_explicit(&comm->join_state, memory_order_acquire);
    xcclResult_t rc;

    if (state == XCCL_JOIN_ON)
        return xcclInProgress; /* also when it has failed, until all is taken down */
    if (state == XCCL_JOIN_DONE) {
        xccl_lock_take(&list_lock); /* two may ask at a time, and a child be forked */
        if (xccl_comm_magic(comm) == XCCL_COMM_JOINING)
            xccl_comm_set_magic(comm, XCCL_COMM_MAGIC);
        xccl_lock_give(&list_lock);
        return xcclSuccess;
    }
    rc = xccl_comm_error(comm);
    return rc ? rc : xcclInternalError;
}

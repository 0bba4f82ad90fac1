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
#include "base/param.h"
#include "comm/comm_int.h"

#define ABORT_WAIT_MS 1000

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct xcclComm *list;

static void list_add(struct xcclComm *comm)
{
    pthread_mutex_lock(&list_lock);
    for (struct xcclComm *other = list; other; other = other->next) {
        if (other->thread_id != comm->thread_id ||
            memcmp(other->id, comm->id, sizeof comm->id) != 0)
            continue;
        other->needs_group = comm->needs_group = 1;
    }
    comm->next = list;
    list = comm;
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
    pthread_mutex_unlock(&list_lock);
}

xcclResult_t xccl_comm_create(const xcclUniqueId *id, int rank, int nranks, int64_t thread_id,
                              struct xcclComm **comm_out)
{
    struct xccl_job job;
    struct xcclComm *comm;
    xcclResult_t rc;

    rc = xccl_param_load();
    if (rc)
        return rc;
    rc = xccl_unique_id_decode(id, &job);
    if (rc)
        return rc;
    comm = xccl_calloc_aligned(128, sizeof *comm);
    if (!comm)
        return xcclSystemError;
    comm->board = &comm->private_board;
    comm->rank = rank;
    comm->nranks = nranks;
    comm->thread_id = thread_id;
    memcpy(comm->id, job.comm_id, sizeof comm->id);
    pthread_mutex_init(&comm->error_lock, NULL);
    (void)syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
    xccl_log_set_rank(rank);
    rc = xccl_comm_init(comm, &job);
    xccl_log_set_rank(-1);
    if (rc)
        return rc;
    comm->magic = XCCL_COMM_MAGIC;
    list_add(comm);
    *comm_out = comm;
    return xcclSuccess;
}

void xccl_comm_destroy(struct xcclComm *comm)
{
    if (!comm)
        return;
    list_remove(comm);
    comm->magic = 0;
    xccl_comm_undo_all(comm);
}

void xccl_comm_abort(struct xcclComm *comm)
{
    struct xccl_limit limit = xccl_limit_ms(ABORT_WAIT_MS, NULL);
    char name[128];

    xccl_comm_name_rank(comm, comm->rank, name, sizeof name);
    (void)xccl_comm_fail(comm, xcclRemoteError, comm->rank, "%s aborted the communicator", name);
    /* A caller takes the crank, then looks at the error word; here it is the other way round. The
     * barrier orders both on every thread, so one of the two sees the other. */
    (void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    while (!xccl_crank_try(&comm->crank)) {
        if (xccl_limit_passed(&limit)) {
            xccl_log(XCCL_LOG_WARN, "%s: a call does not return after an abort; its memory is kept",
                     name);
            return;
        }
        poll(NULL, 0, 1);
    }
    xccl_comm_destroy(comm);
}

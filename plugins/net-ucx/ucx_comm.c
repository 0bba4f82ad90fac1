/* SPDX-License-Identifier: BSD-3-Clause */
/* State that both ends of a connection have: a link, the side socket, the first error, which stays
 * and is given to each later call, and the descriptor to sleep on.
 *
 * Whether the peer is still there is told by the side socket, whatever UCX knows: its end comes
 * from the kernel when the peer's process ends, and its keepalive finds hosts that vanish. As it
 * may overtake bytes that go through UCX, requests get a grace period in which to end well. A
 * sender that closes says how many of its sends are done, so a receiver knows what to wait for.
 *
 * Thread: one at a time a comm, and whoever has the claim of its link. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/tcp.h"
#include "ucx_int.h"

#define CLOSE_POLLS 256 /* turns that a close gives UCX; none of them waits */
#define SILENT_S    10 /* before the peer's host is asked */
#define PROBES_S    2 /* from one time to the next */
#define PROBES      3

/* ---- errors ---- */

void ucx_comm_fail(struct ucx_comm *comm, xcclNetCause_t cause, xcclResult_t rc)
{
    ucx_link_shut(comm->link); /* for nobody else */
    comm->cause = cause;
    comm->rc = rc;
    strncpy(comm->error_text, xccl_error_text(), sizeof(comm->error_text) - 1);
}

xcclResult_t ucx_comm_error(const struct ucx_comm *comm)
{
    xccl_error_set_text(comm->error_text);
    return comm->rc;
}

static xcclNetCause_t cause_of(ucs_status_t status)
{
    switch (status) {
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_REJECTED:
    case UCS_ERR_CANCELED:
        return xcclNetCausePeerGone;
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_TIMED_OUT:
        return xcclNetCauseTimeout;
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_IO_ERROR:
        return xcclNetCauseLinkDown;
    default:
        return xcclNetCauseLocal;
    }
}

static const char *direction(const struct ucx_comm *comm)
{
    return comm->is_send ? "to" : "from";
}

void ucx_comm_fail_status(struct ucx_comm *comm, ucs_status_t status)
{
    xcclNetCause_t cause = cause_of(status);
    int by_peer = cause != xcclNetCauseLocal;

    if (comm->rc != xcclSuccess)
        return;
    comm->status = status;
    ucx_comm_fail(comm, cause,
                  xccl_fail_quietly(by_peer ? xcclRemoteError : xcclSystemError, 0,
                                    by_peer ? "see the first error of that process" : NULL,
                                    "UCX connection %s %s on %s broke: %s", direction(comm),
                                    comm->peer_text, comm->device->name,
                                    ucx.status_string(status)));
}

static void fail_gone(struct ucx_comm *comm)
{
    int err = comm->side.err;
    xcclNetCause_t cause = err == ETIMEDOUT                            ? xcclNetCauseTimeout
                           : err == EHOSTUNREACH || err == ENETUNREACH ? xcclNetCauseLinkDown
                                                                       : xcclNetCausePeerGone;

    if (comm->status != UCS_OK && !err) {
        ucx_comm_fail_status(comm, comm->status);
        return;
    }
    comm->sys_errno = err;
    ucx_comm_fail(comm, cause,
                  xccl_fail_quietly(xcclRemoteError, err, "see the first error of that process",
                                    "UCX connection %s %s on %s %s", direction(comm),
                                    comm->peer_text, comm->device->name,
                                    err ? "broke" : "ended: the peer closed it or died"));
}

xcclResult_t ucx_error_detail(void *comm_, xcclNetError_v1 *error)
{
    struct ucx_comm *comm = comm_;
    xcclNetError_v1 full = {.cause = xcclNetCauseNone, .peer = comm->peer_text, .text = ""};

    ucx_link_claim_wait(comm->link);
    if (comm->rc != xcclSuccess) {
        full.cause = (int32_t)comm->cause;
        full.sysErrno = comm->sys_errno;
        full.vendorCode = comm->status;
        full.text = comm->error_text;
    }
    ucx_link_give(comm->link);
    xccl_net_tell_error(&full, error);
    return xcclSuccess;
}

/* ---- is the peer there? ---- */

static void note_gone(struct ucx_comm *comm)
{
    if (!comm->gone)
        comm->quiet_ns = comm->gone_ns = xccl_clock_ns();
    comm->gone = 1;
}

/* A bye is the last that comes, whether it is right or not. */
static void side_read(struct ucx_comm *comm)
{
    kit_side_read(&comm->side, comm->bye, sizeof(comm->bye));
    if (comm->side.in_bytes == sizeof(comm->bye))
        comm->bye_known = kit_side_note(&comm->side, comm->bye, UCX_BYE_BYTES) > 0 &&
                          ucx_bye_decode(comm->bye, &comm->bye_sent);
    if (comm->side.in_bytes == sizeof(comm->bye) || comm->side.has_ended)
        note_gone(comm);
}

static uint64_t grace_ns(const struct ucx_comm *comm)
{
    if (comm->is_send || !comm->bye_known)
        return UCX_GRACE_NS;
    return comm->received >= comm->bye_sent ? 0 : UCX_GRACE_BYE_NS;
}

/* What moves may be the other comm of the link, so it holds up the end only for a while; what has
 * come holds it up always. */
static int holds_up(struct ucx_comm *comm, int moved, uint64_t now_ns)
{
    uint64_t most_ns = comm->bye_known ? UCX_GRACE_MOST_NS : UCX_GRACE_BYE_NS;
    int came = comm->received != comm->received_then;

    comm->received_then = comm->received;
    if (came || !comm->link->comms[!comm->is_send])
        return came || moved;
    return moved && now_ns - comm->gone_ns < most_ns;
}

void ucx_comm_look_now(struct ucx_comm *comm, int moved)
{
    uint64_t now_ns;

    (void)kit_silent_look(comm->ctx->log);
    if (!comm->gone || !comm->bye_known)
        side_read(comm);
    if (!comm->gone)
        return;
    now_ns = xccl_clock_ns();
    if (holds_up(comm, moved, now_ns))
        comm->quiet_ns = now_ns;
    if (comm->rc == xcclSuccess && now_ns - comm->quiet_ns >= grace_ns(comm))
        fail_gone(comm);
}

void ucx_comm_cut(struct ucx_comm *comm, ucs_status_t status)
{
    ucx_link_shut(comm->link);
    comm->status = status;
    note_gone(comm);
}

/* ---- making ---- */

static xcclResult_t requests_create(struct ucx_comm *comm)
{
    int parts = comm->is_send ? 1 : UCX_PARTS;

    comm->slot_count = comm->is_send ? UCX_SENDS : UCX_RECVS;
    /* UCX keeps its request in front of the address that it is given (ucp.h,
     * UCP_OP_ATTR_FIELD_REQUEST). */
    comm->stride = (comm->home->request_bytes + 63) / 64 * 64;
    comm->store = xccl_calloc_aligned(64, (size_t)(comm->slot_count * parts + 1) * comm->stride);
    comm->requests = xccl_calloc((size_t)comm->slot_count, sizeof(*comm->requests));
    if (!comm->store || !comm->requests)
        return xcclSystemError;
    for (int i = 0; i < comm->slot_count; i++) {
        comm->requests[i].comm = comm;
        comm->free_slots[i] = (uint16_t)(comm->slot_count - 1 - i);
        for (int j = 0; j < UCX_PARTS; j++)
            comm->requests[i].parts[j].request = &comm->requests[i];
    }
    comm->free_count = comm->slot_count;
    return xcclSuccess;
}

xcclResult_t ucx_comm_create(struct ucx_ctx *ctx, struct ucx_device *device, enum ucx_mode mode,
                             int is_send, struct ucx_comm **comm_out)
{
    struct ucx_comm *comm = xccl_calloc_aligned(64, sizeof(*comm));
    xcclResult_t rc;

    if (!comm)
        return xcclSystemError;
    comm->ctx = ctx;
    comm->device = device;
    comm->mode = mode;
    comm->home = mode == UCX_SHM ? &ctx->shm : &device->net;
    comm->is_send = is_send;
    comm->side.fd = comm->wait_fd = comm->bell_fd = -1;
    xccl_net_tally_join(&device->tally, &comm->counters);
    rc = requests_create(comm);
    if (rc != xcclSuccess) {
        ucx_comm_strip(comm);
        xccl_free(comm);
        return rc;
    }
    *comm_out = comm;
    return xcclSuccess;
}

void ucx_comm_prove(struct ucx_comm *comm, const struct kit_proof *proof)
{
    comm->side.proof = *proof;
    comm->tag = ucx_tag_make(proof, 0);
}

void ucx_comm_side(struct ucx_comm *comm, int fd, const struct xccl_addr *peer)
{
    kit_side_probe(fd, SILENT_S, PROBES_S, PROBES);
    comm->side.fd = fd;
    xccl_addr_format(peer, comm->peer_text);
}

/* ---- ending ---- */

static void poll_some(struct ucx_comm *comm)
{
    int turns = 0;

    while (turns < CLOSE_POLLS && ucx_link_turn(comm->link))
        turns++;
    if (turns > 0)
        ucx_link_moved(comm);
}

static void say_bye(struct ucx_comm *comm)
{
    uint8_t bytes[KIT_SEALED(UCX_BYE_BYTES)];

    ucx_bye_encode(comm->sent, bytes);
    comm->side.out_bytes = 0;
    kit_side_put(&comm->side, bytes, UCX_BYE_BYTES);
    kit_side_write(&comm->side, bytes);
}

void ucx_comm_strip(struct ucx_comm *comm)
{
    kit_side_close(&comm->side);
    xccl_tcp_close(&comm->wait_fd);
    xccl_tcp_close(&comm->bell_fd);
    xccl_free(comm->requests);
    xccl_free(comm->store);
    comm->requests = NULL;
    comm->store = NULL;
    xccl_net_tally_leave(&comm->device->tally, &comm->counters);
}

static void list_add(struct ucx_comm *comm, struct ucx_comm **list)
{
    comm->next = *list;
    comm->place = list;
    if (comm->next)
        comm->next->place = &comm->next;
    *list = comm;
}

static void list_remove(struct ucx_comm *comm)
{
    if (!comm->place)
        return;
    *comm->place = comm->next;
    if (comm->next)
        comm->next->place = comm->place;
    comm->place = NULL;
}

void ucx_comm_up(struct ucx_comm *comm)
{
    pthread_mutex_lock(&comm->ctx->lock);
    list_add(comm, &comm->ctx->comms);
    pthread_mutex_unlock(&comm->ctx->lock);
}

/* A closed comm whose peer has its last sends, or cannot get them, goes. 0: it stays. */
static int closed_end(struct ucx_comm *comm)
{
    int through;

    if (!ucx_link_claim(comm->link))
        return 0;
    through = comm->gone || ucx_comm_flush(comm);
    if (!through) {
        poll_some(comm);
        through = comm->gone || comm->rc != xcclSuccess || ucx_comm_flush(comm);
    }
    if (!through) {
        ucx_link_give(comm->link);
        return 0;
    }
    list_remove(comm);
    ucx_link_leave(comm);
    return 1;
}

/* The closed comms are nobody else's, so whoever comes first moves them all. force: none stays, and
 * nobody else is there to have a claim. 1: some are left. */
static int closed_look(struct ucx_ctx *ctx, int force)
{
    struct ucx_comm *comm, *next;
    int left;

    pthread_mutex_lock(&ctx->lock);
    for (comm = ctx->closed; comm; comm = next) {
        next = comm->next;
        if (!closed_end(comm) && force) {
            ucx_link_claim_wait(comm->link);
            list_remove(comm);
            ucx_link_leave(comm);
        }
    }
    left = ctx->closed != NULL;
    pthread_mutex_unlock(&ctx->lock);
    return left;
}

void ucx_closed_sweep(struct ucx_ctx *ctx, uint64_t limit_ns)
{
    uint64_t start_ns = xccl_clock_ns();
    int left = closed_look(ctx, 0);

    while (left && xccl_clock_ns() - start_ns < limit_ns) {
        usleep(100);
        left = closed_look(ctx, 0);
    }
    if (left && limit_ns)
        (void)closed_look(ctx, 1);
}

/* The last sends may lie in UCX: 1: the comm stays for them, without its caller, who has neither
 * comm nor claim then. */
static int stays(struct ucx_comm *comm)
{
    struct ucx_ctx *ctx = comm->ctx;

    if (!comm->is_send || comm->mode != UCX_NET || comm->rc != xcclSuccess || comm->gone ||
        ucx_requests_run(comm) || ucx_comm_flush(comm))
        return 0;
    poll_some(comm);
    if (comm->gone || ucx_comm_flush(comm))
        return 0;
    pthread_mutex_lock(&ctx->lock);
    list_add(comm, &ctx->closed);
    ucx_link_give(comm->link); /* before somebody else may end it */
    pthread_mutex_unlock(&ctx->lock);
    return 1;
}

/* With the claim, which is gone then. */
static void close_claimed(struct ucx_comm *comm)
{
    int kept = 0;

    comm->closing = 1;
    ucx_link_shut(comm->link);
    if (comm->ep) {
        if (!comm->is_send)
            ucx_requests_cancel(comm); /* what comes in these turns finds none of them */
        poll_some(comm);
        if (comm->is_send && comm->side.fd >= 0)
            say_bye(comm);
        kit_side_close(&comm->side);
        ucx_requests_cancel(comm);
        kept = stays(comm);
    }
    if (!kept)
        ucx_link_leave(comm);
}

xcclResult_t ucx_close_comm(void *comm_)
{
    struct ucx_comm *comm = comm_;
    struct ucx_ctx *ctx = comm->ctx;

    pthread_mutex_lock(&ctx->lock);
    list_remove(comm);
    pthread_mutex_unlock(&ctx->lock);
    ucx_library_enter(NULL);
    if (comm->link) {
        ucx_link_claim_wait(comm->link);
        close_claimed(comm);
    } else {
        ucx_comm_strip(comm);
        xccl_free(comm);
    }
    /* Who waited for this comm's answer has it now. */
    ucx_closed_sweep(ctx, 0);
    ucx_library_leave();
    return xcclSuccess;
}

/* ---- sleeping ---- */

static int watch(int epoll_fd, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};

    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

static xcclResult_t wait_fd_make(struct ucx_comm *comm, int worker_fd)
{
    int err;

    comm->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    comm->wait_fd = epoll_create1(EPOLL_CLOEXEC);
    if (comm->bell_fd >= 0 && comm->wait_fd >= 0 && watch(comm->wait_fd, comm->bell_fd) &&
        watch(comm->wait_fd, comm->side.fd) && watch(comm->wait_fd, worker_fd)) {
        ucx_comm_arm(comm);
        return xcclSuccess;
    }
    err = errno;
    xccl_tcp_close(&comm->bell_fd);
    xccl_tcp_close(&comm->wait_fd);
    return xccl_fail_quietly(xcclSystemError, err, "raise ulimit -n",
                             "cannot make a descriptor to wait on");
}

xcclResult_t ucx_wait_fd(void *comm_, int *fd_out)
{
    struct ucx_comm *comm = comm_;
    xcclResult_t rc = xcclSuccess;
    int worker_fd = -1;

    ucx_link_claim_wait(comm->link);
    if (comm->rc != xcclSuccess && comm->wait_fd < 0)
        rc = ucx_comm_error(comm);
    /* A transport without events: the caller polls. */
    else if (comm->wait_fd < 0 && ucx.worker_get_efd(comm->link->worker, &worker_fd) == UCS_OK)
        rc = wait_fd_make(comm, worker_fd);
    if (rc == xcclSuccess)
        *fd_out = comm->wait_fd;
    ucx_link_give(comm->link);
    return rc;
}

void ucx_comm_ring(struct ucx_comm *comm)
{
    uint64_t count = 1;

    if (!comm->bell_rung)
        comm->bell_rung = write(comm->bell_fd, &count, sizeof(count)) == sizeof(count);
}

/* Arming is a few system calls, and each message to an armed worker in shared memory is one for
 * its sender. So it is for those who have asked in vain some times; until then, and until UCX has
 * nothing to do (ucp.h, ucp_worker_arm), the bell tells the caller to ask again. An armed worker
 * stays armed until something moves; as that may be something that UCX does not count, it is armed
 * anew once in a while. */
void ucx_comm_arm(struct ucx_comm *comm)
{
    uint64_t count;
    int busy;

    if (comm->link->armed && comm->idle % UCX_ARM_POLLS != 0)
        return;
    if (comm->idle < UCX_ASK_POLLS) {
        ucx_comm_ring(comm);
        return;
    }
    ucx_library_enter(NULL);
    busy = ucx.worker_arm(comm->link->worker) != UCS_OK;
    ucx_library_leave();
    comm->link->armed = !busy;
    if (busy)
        ucx_link_moved(comm); /* what has come may be the other's, and nothing tells of it now */
    if (busy == comm->bell_rung)
        return;
    if (busy)
        ucx_comm_ring(comm);
    else
        comm->bell_rung = read(comm->bell_fd, &count, sizeof(count)) != sizeof(count);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* What both ends of a connection have: the first error, which stays and is given to each later
 * call, and the descriptor to sleep on. An error names the peer's address.
 *
 * Thread: one at a time a comm. Nothing here logs; only create and sock_wait_fd allocate. */
#include "sock_int.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/alloc.h"
#include "base/tcp.h"
#include "sock_helper_int.h"
#include "sock_record.h"

static int sender_init(struct sock_sender *sender)
{
    for (int i = 0; i < SOCK_SENDS; i++)
        sender->sends[i].request.comm = &sender->comm;
    if (sender->comm.line_count > 1)
        sender->scatter = xccl_calloc(1, sizeof(*sender->scatter));
    if (sender->scatter)
        sender->scatter->late = sender->comm.ctx->failover && sender->comm.rail_count > 1;
    return sender->comm.line_count == 1 || sender->scatter;
}

static int receiver_init(struct sock_receiver *receiver)
{
    for (int i = 0; i < SOCK_RECVS; i++)
        receiver->recvs[i].request.comm = &receiver->comm;
    if (receiver->comm.line_count > 1)
        receiver->collect = xccl_calloc(1, sizeof(*receiver->collect));
    receiver->stage = xccl_realloc(
        NULL, SOCK_STAGE_BYTES + (receiver->comm.line_count == 1 ? SOCK_SPILL_BYTES : 0));
    receiver->guesses = receiver->comm.line_count == 1 && !receiver->comm.ctx->encrypt;
    /* A Unix socket has nothing to acknowledge, and of a record nothing is known before all of it
     * has come. */
    receiver->comm.peeks = receiver->comm.device->netif.addr.sa.any.sa_family != AF_UNIX &&
                           !receiver->comm.ctx->encrypt;
    return receiver->stage && (receiver->comm.line_count == 1 || receiver->collect);
}

static void sender_free(struct sock_sender *sender)
{
    if (sender->scatter && sender->scatter->connect)
        sock_close_connect(sender->comm.ctx, sender->scatter->connect);
    xccl_free(sender->scatter);
}

static void receiver_free(struct sock_receiver *receiver)
{
    if (receiver->collect && receiver->collect->door)
        sock_close_listen(receiver->collect->door);
    xccl_free(receiver->collect);
    xccl_free(receiver->stage);
}

static int records_create(struct sock_comm *comm)
{
    for (int i = 0; comm->ctx->encrypt && i < comm->line_count; i++) {
        comm->lines[i].record = sock_record_create(comm->is_send);
        if (!comm->lines[i].record)
            return 0;
    }
    return 1;
}

/* Frees the records, and the parts that only a sender or only a receiver has. */
static void sides_free(struct sock_comm *comm)
{
    for (int i = 0; i < comm->line_count; i++)
        sock_record_destroy(comm->lines[i].record);
    if (comm->is_send)
        sender_free((struct sock_sender *)comm);
    else
        receiver_free((struct sock_receiver *)comm);
}

struct sock_comm *sock_comm_create(struct sock_ctx *ctx, struct sock_device *device, int is_send,
                                   int line_count, int rail_count)
{
    struct sock_comm *comm = xccl_calloc_aligned(64, is_send ? sizeof(struct sock_sender)
                                                             : sizeof(struct sock_receiver));

    if (!comm)
        return NULL;
    for (int i = 0; i < SOCK_LINES_MAX; i++)
        comm->lines[i].fd = -1;
    comm->line_count = line_count;
    comm->rail_count = rail_count;
    comm->wait_fd = -1;
    comm->ctx = ctx;
    comm->device = device;
    comm->is_send = is_send;
    comm->padded_min = ctx->encrypt ? SIZE_MAX : SOCK_PADDED_MIN;
    if (!records_create(comm) || !(is_send ? sender_init((struct sock_sender *)comm)
                                           : receiver_init((struct sock_receiver *)comm))) {
        sides_free(comm);
        xccl_free(comm);
        return NULL;
    }
    xccl_net_tally_join(&device->tally, &comm->counters);
    return comm;
}

xcclResult_t sock_close_comm(void *comm_)
{
    struct sock_comm *comm = comm_;
    struct sock_ctx *ctx = comm->ctx;

    /* From here on no other thread touches the comm, or memory of its requests. */
    if (comm->hand)
        sock_helper_drop(comm);
    xccl_tcp_close(&comm->wait_fd);
    /* What is not taken would make of the end a reset. */
    if (!comm->is_send && comm->lines[0].fd >= 0)
        (void)sock_read_settle((struct sock_receiver *)comm);
    if (comm->is_send && comm->line_count > 1)
        sock_linger_take(comm);
    for (int i = 0; i < comm->line_count; i++)
        xccl_tcp_close(&comm->lines[i].fd);
    sides_free(comm);
    xccl_net_tally_leave(&comm->device->tally, &comm->counters);
    xccl_free(comm);
    sock_linger_sweep(ctx, 0);
    return xcclSuccess;
}

xcclResult_t sock_comm_up(struct sock_comm *comm)
{
    xcclResult_t rc = comm->device->pool ? sock_helper_adopt(comm->device->pool, comm)
                                         : xcclSuccess;

    if (rc != xcclSuccess)
        sock_close_comm(comm);
    return rc;
}

void sock_comm_fail(struct sock_comm *comm, xcclNetCause_t cause, xcclResult_t rc)
{
    comm->cause = cause;
    comm->rc = rc;
    strncpy(comm->error_text, xccl_error_text(), sizeof(comm->error_text) - 1);
}

xcclResult_t sock_comm_error(const struct sock_comm *comm)
{
    xccl_error_set_text(comm->error_text);
    return comm->rc;
}

static xcclNetCause_t cause_of(int err)
{
    switch (err) {
    case ECONNRESET:
    case EPIPE:
    case ECONNREFUSED:
    case ECONNABORTED:
        return xcclNetCausePeerGone;
    case ETIMEDOUT:
        return xcclNetCauseTimeout;
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
        return xcclNetCauseLinkDown;
    default:
        return xcclNetCauseLocal;
    }
}

void sock_comm_fail_errno(struct sock_comm *comm, int err)
{
    xcclNetCause_t cause = cause_of(err);
    int by_peer = cause != xcclNetCauseLocal;

    comm->sys_errno = err;
    sock_comm_fail(comm, cause,
                   xccl_fail_quietly(by_peer ? xcclRemoteError : xcclSystemError, err,
                                     by_peer ? "see the first error of that process" : NULL,
                                     "the connection %s %s on %s is broken",
                                     comm->is_send ? "to" : "from", comm->peer_text,
                                     comm->device->name));
}

void sock_comm_altered(struct sock_comm *comm, int line)
{
    sock_comm_fail(
        comm, xcclNetCauseProtocol,
        xccl_fail_quietly(xcclRemoteError, 0,
                          "find out what on the way changes data: a device, a tunnel, or somebody",
                          "a record of line %d from %s was altered on the way, or its sender is "
                          "another: nothing of it was used",
                          line, comm->peer_text));
}

/* A socket with room polls writable all the time, so a sender's is asked only while it is full;
 * what comes to a sender are acknowledgements. */
static uint32_t line_events(const struct sock_comm *comm, int full)
{
    uint32_t in = !comm->is_send || comm->line_count > 1 ? EPOLLIN : 0;

    return in | (comm->is_send && full ? EPOLLOUT : 0);
}

/* Failing only costs a wake-up. */
void sock_comm_full(struct sock_comm *comm, int line_idx, int full)
{
    struct sock_line *line = &comm->lines[line_idx];
    struct epoll_event event = {.events = line_events(comm, full)};

    line->full = full;
    if (comm->wait_fd < 0 || line->armed == full || line->fd < 0)
        return;
    if (epoll_ctl(comm->wait_fd, EPOLL_CTL_MOD, line->fd, &event) == 0)
        line->armed = full;
}

static int wait_add(struct sock_comm *comm, struct sock_line *line)
{
    struct epoll_event event = {.events = line_events(comm, line->full)};

    line->armed = line->full;
    return epoll_ctl(comm->wait_fd, EPOLL_CTL_ADD, line->fd, &event) == 0;
}

int sock_comm_secure(struct sock_comm *comm, int line, const struct kit_proof *proof)
{
    if (!comm->ctx->encrypt || sock_record_key(comm->lines[line].record, comm, proof))
        return 1;
    (void)xccl_fail_quietly(xcclSystemError, 0, "free memory, or check the libcrypto that is there",
                            "cannot begin the cipher %s for the connection to %s",
                            kit_cipher_name(comm->cipher), comm->peer_text);
    return 0;
}

/* Who sleeps on the others only misses a wake-up when there is no memory for this one. */
void sock_comm_line(struct sock_comm *comm, int line, int fd, const struct xccl_addr *peer)
{
    comm->lines[line] = (struct sock_line){.fd = fd, .record = comm->lines[line].record};
    comm->lost &= ~(1u << line);
    sock_tune_line(comm, line, fd, peer);
    if (comm->wait_fd >= 0)
        (void)wait_add(comm, &comm->lines[line]);
}

static xcclResult_t wait_make(struct sock_comm *comm)
{
    comm->wait_fd = epoll_create1(EPOLL_CLOEXEC);
    if (comm->wait_fd < 0)
        return xccl_fail_quietly(xcclSystemError, errno, "raise ulimit -n",
                                 "cannot make a descriptor to wait on");
    for (int i = 0; i < comm->line_count; i++) {
        struct sock_line *line = &comm->lines[i];

        if (line->fd >= 0 && !wait_add(comm, line)) {
            int err = errno;

            xccl_tcp_close(&comm->wait_fd);
            return xccl_fail_quietly(xcclSystemError, err, NULL,
                                     "cannot watch the connection to %s", comm->peer_text);
        }
    }
    if (!comm->is_send && ((struct sock_receiver *)comm)->collect &&
        ((struct sock_receiver *)comm)->collect->door)
        sock_listen_watch(((struct sock_receiver *)comm)->collect->door, comm->wait_fd);
    return xcclSuccess;
}

xcclResult_t sock_comm_wait_fd(struct sock_comm *comm, int *fd_out)
{
    xcclResult_t rc = xcclSuccess;

    if (!comm->is_send && comm->line_count == 1) {
        *fd_out = comm->lines[0].fd;
        return xcclSuccess;
    }
    if (comm->wait_fd < 0)
        rc = wait_make(comm);
    if (rc == xcclSuccess)
        *fd_out = comm->wait_fd;
    return rc;
}

xcclResult_t sock_wait_fd(void *comm_, int *fd_out)
{
    struct sock_comm *comm = comm_;

    return comm->hand ? sock_hand_wait_fd(comm->hand, fd_out) : sock_comm_wait_fd(comm, fd_out);
}

xcclResult_t sock_error_detail(void *comm_, xcclNetError_v1 *error)
{
    const struct sock_comm *comm = comm_;
    xcclNetError_v1 full = {.cause = xcclNetCauseNone, .peer = comm->peer_text, .text = ""};

    /* A helper may be about to write the error of a comm that has not failed yet. */
    if (comm->hand ? sock_hand_failed(comm->hand) : comm->rc != xcclSuccess) {
        full.cause = (int32_t)comm->cause;
        full.sysErrno = comm->sys_errno;
        full.text = comm->error_text;
    }
    xccl_net_tell_error(&full, error);
    return xcclSuccess;
}

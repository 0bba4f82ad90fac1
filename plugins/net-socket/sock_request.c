/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of a comm. Each is a 16-byte header and its payload on one TCP stream, in the order of
 * posting.
 *
 *   FREE --isend, irecv--> ACTIVE --all bytes moved--> DONE --test--> FREE
 *
 * Requests are the comm's own, 32 of them, used round and round; the next one not FREE means busy.
 * Between `current` and `posted` they are ACTIVE, and only `current` (send: and those after it, in
 * one sendmsg) moves. A receiver reads ahead into a small stage behind the posted payload, so that
 * a small message is one recvmsg; what is left there belongs to the next messages.
 *
 * Every size from the wire is compared with the posted room before a byte of payload is placed.
 * After an error the comm keeps the text and gives it to each later call; requests that are DONE
 * stay done.
 *
 * Thread: one at a time a comm. Nothing here allocates, locks or logs (sock_wait_fd makes a
 * descriptor). */
#include "sock_int.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/tcp.h"
#include "base/wire.h"

/* One call moves at most about this much, so that other links get their turn. */
#define READ_BUDGET_BYTES ((size_t)4 << 20)

static struct sock_request *request_at(struct sock_comm *comm, uint32_t count)
{
    return &comm->requests[count % SOCK_REQUESTS];
}

static void add(_Atomic uint64_t *counter, uint64_t value)
{
    atomic_fetch_add_explicit(counter, value, memory_order_relaxed);
}

/* Keeps the thread's error text for all later calls. */
static void comm_fail(struct sock_comm *comm, xcclNetCause_t cause, xcclResult_t rc)
{
    comm->cause = cause;
    comm->rc = rc;
    strncpy(comm->error_text, xccl_error_text(), sizeof(comm->error_text) - 1);
}

static xcclResult_t comm_error(const struct sock_comm *comm)
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

/* The stream broke. */
static void comm_fail_errno(struct sock_comm *comm, int err)
{
    xcclNetCause_t cause = cause_of(err);
    int by_peer = cause != xcclNetCauseLocal;

    comm->sys_errno = err;
    comm_fail(comm, cause,
              xccl_fail_quietly(by_peer ? xcclRemoteError : xcclSystemError, err,
                                by_peer ? "look for the first error of that process" : NULL,
                                "connection %s %s on %s broke", comm->is_send ? "to" : "from",
                                comm->peer_text, comm->device->netif.name));
}

/* ---- send ---- */

static void header_encode(struct sock_request *request, uint32_t number)
{
    struct xccl_wire wire = xccl_wire_over(request->header, SOCK_HEADER_BYTES);

    xccl_wire_put_u64(&wire, request->bytes);
    xccl_wire_put_u32(&wire, request->tag);
    xccl_wire_put_u32(&wire, SOCK_HEADER_CHECK ^ number);
}

/* Header and payload of the next messages; *bytes_out is their sum. */
static int send_gather(struct sock_comm *comm, struct iovec *iov, size_t *bytes_out)
{
    uint32_t end = comm->posted;
    int count = 0;

    if (end - comm->current > SOCK_BATCH)
        end = comm->current + SOCK_BATCH;
    *bytes_out = 0;
    for (uint32_t i = comm->current; i != end; i++) {
        struct sock_request *request = request_at(comm, i);
        size_t moved = request->moved, paid = 0;

        if (moved < SOCK_HEADER_BYTES)
            iov[count++] = (struct iovec){request->header + moved, SOCK_HEADER_BYTES - moved};
        else
            paid = moved - SOCK_HEADER_BYTES;
        if (request->bytes > paid)
            iov[count++] = (struct iovec){request->data + paid, request->bytes - paid};
        *bytes_out += SOCK_HEADER_BYTES + request->bytes - moved;
    }
    return count;
}

static void send_account(struct sock_comm *comm, size_t sent)
{
    while (comm->current != comm->posted) {
        struct sock_request *request = request_at(comm, comm->current);
        size_t left = SOCK_HEADER_BYTES + request->bytes - request->moved;

        if (sent < left) {
            request->moved += sent;
            return;
        }
        sent -= left;
        request->state = SOCK_DONE;
        comm->current++;
        add(&comm->device->send_bytes, request->bytes);
        add(&comm->device->send_count, 1);
    }
}

/* Makes the wait descriptor follow whether the socket is full. Failing only costs a wake-up. */
static void send_arm(struct sock_comm *comm, int full)
{
    struct epoll_event event = {.events = full ? EPOLLOUT : 0};

    if (comm->wait_fd < 0 || comm->wait_armed == full)
        return;
    if (epoll_ctl(comm->wait_fd, EPOLL_CTL_MOD, comm->fd, &event) == 0)
        comm->wait_armed = full;
}

static void send_progress(struct sock_comm *comm)
{
    struct iovec iov[2 * SOCK_BATCH];

    /* Each turn but the last ends at least one message. */
    while (comm->current != comm->posted) {
        struct msghdr message = {.msg_iov = iov};
        size_t bytes;
        ssize_t sent;

        message.msg_iovlen = (size_t)send_gather(comm, iov, &bytes);
        do
            sent = sendmsg(comm->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        while (sent < 0 && errno == EINTR);
        if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
            comm_fail_errno(comm, errno);
            return;
        }
        if (sent > 0)
            send_account(comm, (size_t)sent);
        if (sent < 0 || (size_t)sent < bytes) {
            send_arm(comm, 1);
            return;
        }
    }
    send_arm(comm, 0);
}

/* ---- receive ---- */

static size_t stage_have(const struct sock_comm *comm)
{
    return comm->stage_end - comm->stage_first;
}

/* Reads the header at the front of the stage and checks it against the request. 0: the comm failed.
 */
static int recv_header(struct sock_comm *comm, struct sock_request *request)
{
    struct xccl_wire wire = xccl_wire_over(comm->stage + comm->stage_first, SOCK_HEADER_BYTES);
    uint64_t bytes = xccl_wire_get_u64(&wire);
    uint32_t tag = xccl_wire_get_u32(&wire), check = xccl_wire_get_u32(&wire);

    comm->stage_first += SOCK_HEADER_BYTES;
    if (check != (SOCK_HEADER_CHECK ^ comm->current)) {
        comm_fail(comm, xcclNetCauseProtocol,
                  xccl_fail_quietly(xcclRemoteError, 0, "use the same build of XCCL on all ranks",
                                    "the stream from %s is damaged: no header where message "
                                    "%u should begin",
                                    comm->peer_text, comm->current));
        return 0;
    }
    if (tag != request->tag) {
        comm_fail(comm, xcclNetCauseProtocol,
                  xccl_fail_quietly(xcclInvalidUsage, 0, "give both the same tag",
                                    "a message from %s has tag %u, its receive tag %u",
                                    comm->peer_text, tag, request->tag));
        return 0;
    }
    if (bytes > request->bytes) {
        comm_fail(comm, xcclNetCauseProtocol,
                  xccl_fail_quietly(xcclInvalidUsage, 0,
                                    "post a receive that is at least as large as the send",
                                    "a message from %s has %llu bytes, its receive takes %zu",
                                    comm->peer_text, (unsigned long long)bytes, request->bytes));
        return 0;
    }
    request->bytes = (size_t)bytes;
    comm->header_done = 1;
    return 1;
}

/* Serves posted receives from the stage until one needs bytes that are not there. */
static void recv_from_stage(struct sock_comm *comm)
{
    while (comm->current != comm->posted) {
        struct sock_request *request = request_at(comm, comm->current);
        size_t bytes;

        if (!comm->header_done) {
            if (stage_have(comm) < SOCK_HEADER_BYTES || !recv_header(comm, request))
                return;
        }
        bytes = request->bytes - request->moved;
        if (bytes > stage_have(comm))
            bytes = stage_have(comm);
        if (bytes > 0)
            memcpy(request->data + request->moved, comm->stage + comm->stage_first, bytes);
        request->moved += bytes;
        comm->stage_first += (uint32_t)bytes;
        if (request->moved < request->bytes)
            return;
        request->state = SOCK_DONE;
        comm->header_done = 0;
        comm->current++;
        add(&comm->device->recv_bytes, request->bytes);
        add(&comm->device->recv_count, 1);
    }
}

/* One recvmsg: the rest of the current payload, then the stage. Returns 1 when there may be more.
 */
static int recv_some(struct sock_comm *comm, size_t *got_out)
{
    struct sock_request *request = request_at(comm, comm->current);
    size_t payload = comm->header_done ? request->bytes - request->moved : 0;
    size_t have = stage_have(comm), want;
    struct iovec iov[2];
    struct msghdr message = {.msg_iov = iov};
    ssize_t got;

    if (have > 0)
        memmove(comm->stage, comm->stage + comm->stage_first, have);
    comm->stage_first = 0;
    comm->stage_end = (uint32_t)have;
    if (payload > 0)
        iov[message.msg_iovlen++] = (struct iovec){request->data + request->moved, payload};
    iov[message.msg_iovlen++] = (struct iovec){comm->stage + have, SOCK_STAGE_BYTES - have};
    want = payload + SOCK_STAGE_BYTES - have;
    do
        got = recvmsg(comm->fd, &message, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got < 0) {
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            comm_fail_errno(comm, errno);
        return 0;
    }
    if (got == 0) {
        comm_fail(comm, xcclNetCausePeerGone,
                  xccl_fail_quietly(xcclRemoteError, 0, "look for the first error of that process",
                                    "%s closed the connection while a receive on %s waited",
                                    comm->peer_text, comm->device->netif.name));
        return 0;
    }
    *got_out += (size_t)got;
    if ((size_t)got < payload) {
        request->moved += (size_t)got;
        return 0;
    }
    request->moved += payload;
    comm->stage_end += (uint32_t)((size_t)got - payload);
    return (size_t)got == want;
}

static void recv_progress(struct sock_comm *comm)
{
    size_t got = 0;
    int more = 1;

    for (;;) {
        recv_from_stage(comm);
        if (comm->rc != xcclSuccess || comm->current == comm->posted)
            return;
        if (!more || got > READ_BUDGET_BYTES)
            return;
        more = recv_some(comm, &got);
        if (comm->rc != xcclSuccess)
            return;
    }
}

/* ---- the contract's entries ---- */

/* The next request, or NULL: all are in use. */
static struct sock_request *request_take(struct sock_comm *comm)
{
    struct sock_request *request = request_at(comm, comm->posted);

    if (request->state != SOCK_FREE) {
        add(&comm->device->busy_count, 1);
        return NULL;
    }
    request->state = SOCK_ACTIVE;
    request->moved = 0;
    return request;
}

xcclResult_t sock_isend(xcclNetSendComm_t comm_, const void *data, size_t bytes, uint32_t tag,
                        xcclNetMem_t mem, xcclNetRequest_t *request_out)
{
    struct sock_comm *comm = comm_;
    struct sock_request *request;

    (void)mem;
    if (comm->rc != xcclSuccess)
        return comm_error(comm);
    if (bytes > SOCK_MESSAGE_MAX)
        return xccl_fail_quietly(xcclInvalidArgument, 0, "split the message",
                                 "a message of %zu bytes, at most %zu", bytes, SOCK_MESSAGE_MAX);
    request = request_take(comm);
    *request_out = request;
    if (!request)
        return xcclSuccess;
    request->data = (char *)(uintptr_t)data;
    request->bytes = bytes;
    request->tag = tag;
    header_encode(request, comm->posted);
    comm->posted++;
    /* Behind others it waits for its turn: the socket was full a moment ago. Errors show in test.
     */
    if (comm->posted - comm->current == 1)
        send_progress(comm);
    return xcclSuccess;
}

xcclResult_t sock_irecv(xcclNetRecvComm_t comm_, int count, void *const *data, const size_t *bytes,
                        const uint32_t *tags, const xcclNetMem_t *mems,
                        xcclNetRequest_t *request_out)
{
    struct sock_comm *comm = comm_;
    struct sock_request *request;

    (void)mems;
    if (comm->rc != xcclSuccess)
        return comm_error(comm);
    if (count != 1)
        return xccl_fail_quietly(xcclInvalidArgument, 0, "ask for maxRecvs in properties",
                                 "%d receives in one irecv: the socket plugin takes 1", count);
    request = request_take(comm);
    *request_out = request;
    if (!request)
        return xcclSuccess;
    request->data = data[0];
    request->bytes = bytes[0];
    request->tag = tags[0];
    comm->posted++;
    return xcclSuccess;
}

xcclResult_t sock_test(xcclNetRequest_t request_, int *done_out, size_t *bytes_out)
{
    struct sock_request *request = request_;
    struct sock_comm *comm = request->comm;

    if (request->state == SOCK_FREE)
        return xccl_fail_quietly(xcclInvalidUsage, 0, "forget a request once it is done",
                                 "a request is tested again after it was done");
    if (request->state == SOCK_ACTIVE && comm->rc == xcclSuccess) {
        if (comm->is_send)
            send_progress(comm);
        else
            recv_progress(comm);
    }
    /* What was complete before the comm failed is still complete. */
    if (request->state == SOCK_ACTIVE && comm->rc != xcclSuccess)
        return comm_error(comm);
    *done_out = request->state == SOCK_DONE;
    if (!*done_out)
        return xcclSuccess;
    if (bytes_out)
        bytes_out[0] = request->bytes;
    request->state = SOCK_FREE;
    return xcclSuccess;
}

xcclResult_t sock_wait_fd(void *comm_, int *fd_out)
{
    struct sock_comm *comm = comm_;
    struct epoll_event event = {.events = 0};
    int fd;

    if (!comm->is_send) {
        *fd_out = comm->fd;
        return xcclSuccess;
    }
    if (comm->wait_fd < 0) {
        /* A socket with room polls writable all the time, so it is asked only while it is full. */
        fd = epoll_create1(EPOLL_CLOEXEC);
        if (fd < 0)
            return xccl_fail_quietly(xcclSystemError, errno, "raise ulimit -n",
                                     "cannot make a descriptor to wait on");
        comm->wait_fd = fd;
        comm->wait_armed = comm->current != comm->posted;
        event.events = comm->wait_armed ? EPOLLOUT : 0;
        if (epoll_ctl(fd, EPOLL_CTL_ADD, comm->fd, &event) != 0) {
            int err = errno;

            xccl_tcp_close(&comm->wait_fd);
            return xccl_fail_quietly(xcclSystemError, err, NULL,
                                     "cannot watch the connection to %s", comm->peer_text);
        }
    }
    *fd_out = comm->wait_fd;
    return xcclSuccess;
}

xcclResult_t sock_error_detail(void *comm_, xcclNetError_v1 *error)
{
    const struct sock_comm *comm = comm_;
    xcclNetError_v1 full = {
        .cause = comm->rc == xcclSuccess ? xcclNetCauseNone : (int32_t)comm->cause,
        .sysErrno = comm->sys_errno,
        .peer = comm->peer_text,
        .text = comm->error_text,
    };

    full.size = error->size;
    memcpy(error, &full, error->size < sizeof(full) ? error->size : sizeof(full));
    return xcclSuccess;
}

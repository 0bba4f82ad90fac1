/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages: a send or a receive is one call of the provider, whose tag is the message's number, so
 * messages and completions may come in any order; what a written one takes besides is in
 * ofi_write.c. -FI_EAGAIN is "busy", after a look at the completion queue, which is what moves a
 * provider with manual progress.
 *
 *   FREE --isend, irecv--> ACTIVE --completion--> DONE --test--> FREE
 *
 * A sender is never more than OFI_WINDOW messages ahead of what the receiver has counted: more
 * would pile up in the receiver's memory.
 *
 * Thread: one at a time a comm. Nothing here allocates, locks or logs. */
#include <errno.h>
#include <string.h>

#include "ofi_int.h"

#define LOOK_POLLS   64 /* without a completion, before the control connection is looked at */
#define QUIET_NS     (100 * XCCL_NS_PER_MS) /* of one whose peer has left, until it is over */
#define OWED_NS      (5 * XCCL_NS_PER_S)
#define PROVIDER_MAX 256 /* bytes of a provider's text */
#define FETCH_BYTES  1024 /* no provider fetches a message that is not larger */

void ofi_request_truncated(struct ofi_comm *comm, size_t over)
{
    ofi_comm_fail(comm, xcclNetCauseProtocol,
                  xccl_fail_quietly(xcclInvalidUsage, 0, "make the sizes of both ends equal",
                                    "a message of %s is %zu bytes or more larger than its receive",
                                    comm->peer_text, over));
}

void ofi_request_damaged(struct ofi_comm *comm, const char *what)
{
    ofi_comm_fail(comm, xcclNetCauseProtocol,
                  xccl_fail_quietly(xcclRemoteError, 0, "use the same build of XCCL on all ranks",
                                    "%s sends %s", comm->peer_text, what));
}

void ofi_request_settle(struct ofi_request *request)
{
    struct ofi_comm *comm = request->comm;

    if (request->left || request->seen != request->wanted)
        return;
    request->state = OFI_DONE;
    comm->moved++;
    comm->idle = 0;
    comm->settled = 0;
    if (comm->peer_left)
        comm->left_ns = xccl_clock_ns();
    if (request == &comm->first)
        return;
    comm->ready++;
    xccl_net_count_message(&comm->counters, comm->is_send, request->bytes);
}

/* The size comes beside the data, too, for ofi_rxd cuts a message that is too large in silence.
 * 0: the comm has failed. */
static int received(struct ofi_request *request, const struct fi_cq_data_entry *entry)
{
    struct ofi_comm *comm = request->comm;
    int is_told = (entry->flags & FI_REMOTE_CQ_DATA) != 0;

    if (comm->writes && !is_told) {
        ofi_request_damaged(comm, "a message without its size");
        return 0;
    }
    if (comm->writes && entry->data & OFI_WRITTEN)
        return ofi_write_headed(request, entry->data & ~(uint64_t)OFI_WRITTEN);
    if (is_told && entry->data > request->bytes) {
        ofi_request_truncated(comm, entry->data - request->bytes);
        return 0;
    }
    request->bytes = entry->len;
    return !comm->writes || ofi_write_plain(request);
}

static void completed(struct ofi_comm *comm, const struct fi_cq_data_entry *entry)
{
    struct ofi_request *request;

    /* It has no context of ours. */
    if (entry->flags & FI_REMOTE_WRITE) {
        if (comm->writes && !comm->is_send)
            ofi_write_came(comm, entry->data);
        else
            ofi_request_damaged(comm, "a write that nobody awaits");
        return;
    }
    if (comm->writes && ofi_write_completed(comm, entry))
        return;
    request = ((struct ofi_op *)entry->op_context)->request;
    /* One that has failed is never done. */
    if (!comm->is_send && !received(request, entry))
        return;
    request->left--;
    ofi_request_settle(request);
}

static void poll_error(struct ofi_comm *comm)
{
    struct fi_cq_err_entry entry;
    char text[PROVIDER_MAX] = "", data[64];
    ssize_t got;

    memset(&entry, 0, sizeof(entry));
    entry.err_data = data;
    entry.err_data_size = sizeof(data);
    got = fi_cq_readerr(comm->end.cq, &entry, 0);
    if (got == -FI_EAGAIN)
        return;
    if (got < 0) {
        ofi_comm_fail_fabric(comm, (int)-got, "reading an error", "");
        return;
    }
    if (ofi_write_failed(comm, &entry))
        return;
    if (entry.err == FI_ETRUNC) {
        ofi_request_truncated(comm, entry.olen);
        return;
    }
    fi_cq_strerror(comm->end.cq, entry.prov_errno, entry.err_data, text, sizeof(text));
    comm->vendor = entry.prov_errno;
    ofi_comm_fail_fabric(comm, entry.err, comm->is_send ? "sending to" : "receiving from", text);
}

/* How long nothing may come of a peer that has left until it is over: what it had sent may be in
 * the network's buffers yet, and what it says has left it is worth a longer wait. */
static uint64_t patience_ns(const struct ofi_comm *comm)
{
    if (comm->is_send)
        return 0;
    return comm->peer_left == 1 && (int32_t)(comm->goodbye - comm->moved) > 0 ? OWED_NS : QUIET_NS;
}

/* 1: not the peer has closed the control connection, but what lies between. */
static int is_path_gone(int err)
{
    return err == ETIMEDOUT || err == EHOSTUNREACH || err == ENETUNREACH || err == ENETDOWN;
}

static void look_left(struct ofi_comm *comm)
{
    int silent = is_path_gone(comm->sys_errno);

    if (!comm->peer_left || comm->rc != xcclSuccess ||
        xccl_clock_ns() - comm->left_ns < patience_ns(comm))
        return;
    ofi_comm_fail(comm, silent ? xcclNetCauseTimeout : xcclNetCausePeerGone,
                  xccl_fail_quietly(xcclRemoteError, 0,
                                    silent ? "see whether that host and the way to it are up"
                                           : "look for the first error of that process",
                                    "connection %s %s on %s: %s", comm->is_send ? "to" : "from",
                                    comm->peer_text, comm->device->name,
                                    silent ? "its host does not answer any more"
                                           : "the peer has closed it or is gone"));
}

void ofi_request_poll(struct ofi_comm *comm)
{
    struct fi_cq_data_entry entries[OFI_POLL_ENTRIES];
    ssize_t got = fi_cq_read(comm->end.cq, entries, OFI_POLL_ENTRIES);

    for (ssize_t i = 0; i < got; i++)
        completed(comm, &entries[i]);
    if (got > 0 && !comm->is_send)
        ofi_control_count(comm);
    if (got > 0)
        return;
    if (got == -FI_EAVAIL)
        poll_error(comm);
    else if (got < 0 && got != -FI_EAGAIN)
        ofi_comm_fail_fabric(comm, (int)-got, "waiting for", "");
    comm->idle++;
    /* Who sleeps asks seldom, and may have been woken by the control connection. */
    if ((comm->idle % LOOK_POLLS == 0 || (comm->sleep.on && !ofi_wait_asks(comm))) &&
        comm->rc == xcclSuccess) {
        ofi_control_look(comm);
        look_left(comm);
        ofi_write_look(comm);
    }
}

static ssize_t post(struct ofi_comm *comm, struct ofi_request *request, const void *data,
                    size_t bytes, xcclNetMem_t mem)
{
    /* The lower half alone: providers need not have more than 32 bits. */
    uint64_t tag = comm->posted, beside = bytes;
    void *desc;

    if (comm->writes && bytes > comm->eager_max) {
        beside = OFI_WRITTEN | bytes;
        bytes = comm->is_send ? 0 : comm->eager_max;
    }
    desc = ofi_mem_desc(comm, bytes ? mem : comm->probe_mem);
    if (bytes == 0)
        data = &comm->probe;
    if (comm->is_send && comm->tells_size)
        return fi_tsenddata(comm->end.ep, data, bytes, desc, beside, comm->end.peer, tag,
                            &request->op);
    if (comm->is_send)
        return fi_tsend(comm->end.ep, data, bytes, desc, comm->end.peer, tag, &request->op);
    return fi_trecv(comm->end.ep, (void *)(uintptr_t)data, bytes, desc, FI_ADDR_UNSPEC, tag, 0,
                    &request->op);
}

/* 0: started; -FI_EAGAIN: not now. */
static ssize_t try_start(struct ofi_comm *comm, struct ofi_request *request, const void *data,
                         size_t bytes, xcclNetMem_t mem)
{
    ssize_t err;

    request->bytes = bytes;
    err = post(comm, request, data, bytes, mem);
    if (err)
        return err;
    request->state = OFI_ACTIVE;
    request->number = comm->posted++;
    request->left = 1;
    if (comm->writes) {
        ofi_write_begin(comm, request, data, bytes, mem);
        ofi_write_push(comm);
    }
    return 0;
}

static int has_room(struct ofi_comm *comm)
{
    if (comm->is_send && comm->posted - comm->counted >= OFI_WINDOW)
        ofi_control_look(comm);
    return comm->requests[comm->posted % OFI_REQUESTS].state == OFI_FREE &&
           (!comm->is_send || comm->posted - comm->counted < OFI_WINDOW);
}

/* ofi_rxm only announces a large message, and fetches it when its receive is posted; where the
 * connection has ended in between it crashes (1.17). So a receive that may be of such a message is
 * not posted once the peer has left without that message having left it: then there is none. */
static int is_too_late(struct ofi_comm *comm, size_t bytes)
{
    if (comm->writes && bytes > comm->eager_max)
        bytes = comm->eager_max;
    if (comm->is_send || !comm->fetches || bytes <= FETCH_BYTES)
        return 0;
    ofi_control_look(comm);
    return comm->peer_left == 2 ||
           (comm->peer_left && (int32_t)(comm->posted - comm->goodbye) >= 0);
}

uint32_t ofi_request_left(const struct ofi_comm *comm)
{
    for (uint32_t back = OFI_REQUESTS; back > 0; back--) {
        uint32_t number = comm->posted - back;

        if (comm->requests[number % OFI_REQUESTS].state == OFI_ACTIVE)
            return number;
    }
    return comm->posted;
}

static void move(struct ofi_comm *comm)
{
    ofi_request_poll(comm);
    ofi_write_push(comm);
    ofi_wait_arm(comm);
}

static xcclResult_t start(struct ofi_comm *comm, const void *data, size_t bytes, xcclNetMem_t mem,
                          xcclNetRequest_t *request_out)
{
    struct ofi_request *request = &comm->requests[comm->posted % OFI_REQUESTS];
    ssize_t err = -FI_EAGAIN;

    if (comm->rc == xcclSuccess && has_room(comm) && !is_too_late(comm, bytes))
        err = try_start(comm, request, data, bytes, mem);
    if (!err) {
        *request_out = request;
        return xcclSuccess;
    }
    if (err != -FI_EAGAIN)
        ofi_comm_fail_fabric(comm, (int)-err, comm->is_send ? "sending to" : "receiving from", "");
    else if (comm->rc == xcclSuccess)
        move(comm);
    if (comm->rc != xcclSuccess)
        return ofi_comm_error(comm);
    xccl_net_count(&comm->counters.busy_count, 1);
    *request_out = NULL;
    return xcclSuccess;
}

static xcclResult_t check_size(const struct ofi_comm *comm, size_t bytes)
{
    if (bytes <= comm->bytes_max)
        return xcclSuccess;
    return xccl_fail_quietly(xcclInvalidArgument, 0, "split the message",
                             "a message of %zu bytes, at most %zu", bytes, comm->bytes_max);
}

xcclResult_t ofi_isend(xcclNetSendComm_t comm_, const void *data, size_t bytes, uint32_t tag,
                       xcclNetMem_t mem, xcclNetRequest_t *request_out)
{
    struct ofi_comm *comm = comm_;
    xcclResult_t rc = check_size(comm, bytes);

    (void)tag; /* equal at both ends, for receives are not grouped */
    if (comm->rc != xcclSuccess)
        return ofi_comm_error(comm);
    return rc == xcclSuccess ? start(comm, data, bytes, mem, request_out) : rc;
}

xcclResult_t ofi_irecv(xcclNetRecvComm_t comm_, int count_, void *const *data, const size_t *bytes,
                       const uint32_t *tags, const xcclNetMem_t *mems,
                       xcclNetRequest_t *request_out)
{
    struct ofi_comm *comm = comm_;
    struct ofi_note note;
    size_t most;

    (void)tags;
    if (comm->rc != xcclSuccess)
        return ofi_comm_error(comm);
    if (count_ != 1)
        return xccl_fail_quietly(xcclInvalidArgument, 0, "post one receive at a time",
                                 "%d receives in one request, at most 1", count_);
    /* A receive may be larger than any message. */
    most = bytes[0] < comm->bytes_max ? bytes[0] : comm->bytes_max;
    if (comm->writes && most > comm->eager_max &&
        !ofi_mem_remote(comm, mems ? mems[0] : NULL, data[0], &note))
        return xccl_fail_quietly(xcclInvalidArgument, 0, "register it",
                                 "%zu bytes to receive into that are not registered", most);
    return start(comm, data[0], most, mems ? mems[0] : NULL, request_out);
}

xcclResult_t ofi_request_first(struct ofi_comm *comm, int *posted_out)
{
    ssize_t err = try_start(comm, &comm->first, &comm->probe, sizeof(comm->probe), comm->probe_mem);

    *posted_out = !err;
    if (!err || err == -FI_EAGAIN)
        return xcclSuccess;
    ofi_comm_fail_fabric(comm, (int)-err, "greeting", "");
    return comm->rc;
}

xcclResult_t ofi_test(xcclNetRequest_t request_, int *done_out, size_t *bytes_out)
{
    struct ofi_request *request = request_;
    struct ofi_comm *comm = request->comm;

    if (request->state == OFI_FREE)
        return xccl_fail_quietly(xcclInvalidUsage, 0, "forget a request once it is done",
                                 "a request is tested again after it was done");
    if (request->state == OFI_ACTIVE && comm->rc == xcclSuccess)
        move(comm);
    /* What was complete before the comm failed is still complete. */
    if (request->state == OFI_ACTIVE && comm->rc != xcclSuccess)
        return ofi_comm_error(comm);
    *done_out = request->state == OFI_DONE;
    if (!*done_out)
        return xcclSuccess;
    request->state = OFI_FREE;
    comm->ready--;
    if (bytes_out)
        bytes_out[0] = request->bytes;
    return xcclSuccess;
}

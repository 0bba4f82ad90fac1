/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends and receives by UCX's tag matching. UCX's own requests lie in memory of the comm, which
 * hands them out again, so no message takes memory from the heap here; UCX itself takes some, from
 * pools that grow, for messages that come before their receive.
 *
 * A send is done when UCX calls it complete. Of a small one UCX's tcp may then still have a copy,
 * when the kernel's buffer was full (at most UCX_TCP_TX_SEG_SIZE bytes), which the comm's next poll
 * sends: hence needsProgress. A flush says what the peer has: over tcp it is a message that the
 * peer's worker must answer, so it is for the end of a row of sends, not for each of them.
 *
 * Thread: one at a time a comm; with the link's claim, which the entries take. Nothing here locks
 * or logs. */
#include <string.h>

#include "base/os.h"
#include "ucx_int.h"

#define TAG_MASK UINT64_MAX
/* After a comm's last send progress asks for a flush: not sooner, because mostly more sends come,
 * and over tcp each flush is a message and its answer. Then it waits for it no longer than that. */
#define FLUSH_NS        (XCCL_NS_PER_S / 2000)
#define OWING_NS        (5 * XCCL_NS_PER_S / 1000)
#define OWING_FIRST     16 /* turns of progress until a sender that owes is polled */
#define OWING_TURNS     64 /* from one poll of it to the next, at most */
#define NO_ANSWER_BYTES 256 /* UCX answers no message up to that by itself */
#define CLAIM_TRIES     64
#define POLLS           8 /* turns of the worker in one test, as long as each moves something */

static struct ucx_request *slot_take(struct ucx_comm *comm)
{
    struct ucx_request *request;

    if (comm->free_count == 0) {
        xccl_net_count(&comm->counters.busy_count, 1);
        return NULL;
    }
    request = &comm->requests[comm->free_slots[--comm->free_count]];
    request->state = UCX_ACTIVE;
    request->running = 0;
    comm->link->armed = 0; /* what is posted may want other events */
    return request;
}

static void slot_give(struct ucx_request *request)
{
    struct ucx_comm *comm = request->comm;

    request->state = UCX_FREE;
    comm->free_slots[comm->free_count++] = (uint16_t)(request - comm->requests);
}

/* Where UCX's request of a part ends, which is what UCX calls it by. */
static void *store_of(const struct ucx_request *request, int part)
{
    const struct ucx_comm *comm = request->comm;
    size_t slot = (size_t)(request - comm->requests);

    if (!comm->is_send)
        slot = slot * UCX_PARTS + (size_t)part;
    return comm->store + (slot + 1) * comm->stride;
}

/* ---- UCX's answers ---- */

static void send_over(struct ucx_request *request, ucs_status_t status)
{
    struct ucx_comm *comm = request->comm;

    request->running = 0;
    if (status != UCS_OK) {
        if (!comm->closing)
            ucx_comm_fail_status(comm, status);
        return;
    }
    comm->sent++;
    comm->owing = 0;
    request->state = UCX_DONE;
    xccl_net_count_message(&comm->counters, 1, request->parts[0].bytes);
}

static void fail_truncated(struct ucx_comm *comm, size_t room)
{
    if (comm->rc != xcclSuccess)
        return;
    comm->status = UCS_ERR_MESSAGE_TRUNCATED;
    ucx_comm_fail(comm, xcclNetCauseProtocol,
                  xccl_fail_quietly(xcclInvalidUsage, 0, "post receives as large as their sends",
                                    "a message from %s is larger than its receive of %zu bytes",
                                    comm->peer_text, room));
}

static void recv_over(struct ucx_request *request, struct ucx_part *part, ucs_status_t status,
                      size_t bytes)
{
    struct ucx_comm *comm = request->comm;

    request->running &= ~(1u << (part - request->parts));
    if (status == UCS_ERR_MESSAGE_TRUNCATED && !comm->closing)
        fail_truncated(comm, part->bytes);
    else if (status != UCS_OK && !comm->closing)
        ucx_comm_fail_status(comm, status);
    if (status != UCS_OK)
        return;
    part->bytes = bytes;
    comm->received++;
    if (bytes > NO_ANSWER_BYTES || comm->home->answers_all)
        comm->sent++;
    xccl_net_count_message(&comm->counters, 0, bytes);
    if (--request->missing == 0)
        request->state = UCX_DONE;
}

static void on_send(void *ucx_request, ucs_status_t status, void *part)
{
    (void)ucx_request;
    send_over(((struct ucx_part *)part)->request, status);
}

static void on_recv(void *ucx_request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                    void *part)
{
    (void)ucx_request;
    recv_over(((struct ucx_part *)part)->request, part, status, info->length);
}

static void on_flush(void *ucx_request, ucs_status_t status, void *comm_)
{
    struct ucx_comm *comm = comm_;

    comm->flush_runs = 0;
    if (status == UCS_OK)
        comm->flushed = comm->flush_covers;
    else if (!comm->closing)
        ucx_comm_fail_status(comm, status);
    ucx.request_free(ucx_request);
}

/* ---- moving ---- */

unsigned ucx_comm_poll(struct ucx_comm *comm)
{
    unsigned moved = 0, now;

    for (int i = 0; i < POLLS; i++) {
        now = ucx_link_turn(comm->link);
        moved += now;
        if (now == 0)
            break;
    }
    if (moved)
        ucx_link_moved(comm);
    return moved;
}

int ucx_comm_flush(struct ucx_comm *comm)
{
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                 UCP_OP_ATTR_FIELD_USER_DATA,
                                 .cb = {.send = on_flush},
                                 .user_data = comm};
    void *flush;

    if ((comm->flushed == comm->sent && !comm->flush_runs) || !comm->ep)
        return 1;
    if (comm->flush_runs)
        return 0;
    comm->flush_covers = comm->sent;
    comm->link->armed = 0;
    flush = ucx.ep_flush_nbx(comm->ep, &param);
    if (UCS_PTR_IS_ERR(flush)) {
        ucx_comm_fail_status(comm, UCS_PTR_STATUS(flush));
        return 0;
    }
    comm->flush_runs = flush != NULL;
    if (!flush)
        comm->flushed = comm->flush_covers;
    return !flush;
}

/* Each turn over tcp is a system call at least, so it ends with the request. */
static void move(struct ucx_request *request)
{
    struct ucx_comm *comm = request->comm;
    unsigned moved = 0, now = 1;

    ucx_library_enter(NULL);
    for (int i = 0; i < POLLS && now && request->state != UCX_DONE; i++) {
        now = ucx_link_turn(comm->link);
        moved += now;
    }
    ucx_library_leave();
    comm->polled = comm->link->turned = 1;
    if (moved)
        ucx_link_moved(comm);
    ucx_comm_look(comm, moved > 0);
}

/* ---- entries ---- */

/* A registration of another context of UCX, or of other memory, says nothing here. */
static void use_mem(ucp_request_param_t *param, const struct ucx_comm *comm,
                    const struct ucx_mem *mem, const void *data, size_t bytes)
{
    uintptr_t offset;

    if (!mem || mem->home != comm->home || !mem->memh)
        return;
    offset = (uintptr_t)data - (uintptr_t)mem->data; /* before it: beyond all */
    if (offset > mem->bytes || bytes > mem->bytes - offset)
        return;
    param->op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    param->memh = mem->memh;
}

static xcclResult_t send_post(struct ucx_comm *comm, const void *data, size_t bytes, uint32_t tag,
                              xcclNetMem_t mem, xcclNetRequest_t *request_out)
{
    struct ucx_request *request;
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .cb = {.send = on_send},
        .memory_type = UCS_MEMORY_TYPE_HOST};
    void *running;

    if (comm->rc != xcclSuccess)
        return ucx_comm_error(comm);
    if (bytes > UCX_MESSAGE_MAX)
        return xccl_fail_quietly(xcclInvalidArgument, 0, "split the message",
                                 "a send of %zu bytes is too large: at most %zu are possible",
                                 bytes, UCX_MESSAGE_MAX);
    request = slot_take(comm);
    if (!request) {
        *request_out = NULL;
        return xcclSuccess;
    }
    request->parts[0].bytes = bytes;
    request->running = 1;
    param.request = store_of(request, 0);
    param.user_data = &request->parts[0];
    use_mem(&param, comm, mem, data, bytes);
    ucx_library_enter(NULL);
    running = ucx.tag_send_nbx(comm->ep, data, bytes, comm->tag ^ tag, &param);
    ucx_library_leave();
    if (!UCS_PTR_IS_PTR(running))
        send_over(request, UCS_PTR_STATUS(running));
    if (comm->rc != xcclSuccess) {
        if (!request->running)
            slot_give(request);
        return ucx_comm_error(comm);
    }
    *request_out = request;
    return xcclSuccess;
}

/* Where somebody else has the link the caller asks again, as when all requests are in flight. */
static int may_post(struct ucx_comm *comm)
{
    for (int i = 0; i < CLAIM_TRIES; i++) {
        if (ucx_link_claim(comm->link))
            return 1;
        xccl_os_pause();
    }
    xccl_net_count(&comm->counters.busy_count, 1);
    return 0;
}

xcclResult_t ucx_isend(xcclNetSendComm_t comm_, const void *data, size_t bytes, uint32_t tag,
                       xcclNetMem_t mem, xcclNetRequest_t *request_out)
{
    struct ucx_comm *comm = comm_;
    xcclResult_t rc;

    if (!may_post(comm)) {
        *request_out = NULL;
        return xcclSuccess;
    }
    rc = send_post(comm, data, bytes, tag, mem, request_out);
    ucx_link_give(comm->link);
    return rc;
}

/* UCX 1.13 leaves recv_info as it was when a receive is over at once, so it shall always call back.
 */
static void recv_post(struct ucx_request *request, int idx, void *data, uint32_t tag,
                      const struct ucx_mem *mem)
{
    struct ucx_comm *comm = request->comm;
    struct ucx_part *part = &request->parts[idx];
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE |
                        UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .cb = {.recv = on_recv},
        .memory_type = UCS_MEMORY_TYPE_HOST,
        .user_data = part};
    void *running;

    param.request = store_of(request, idx);
    use_mem(&param, comm, mem, data, part->bytes);
    request->running |= 1u << idx;
    running = ucx.tag_recv_nbx(comm->link->worker, data, part->bytes, comm->tag ^ tag, TAG_MASK,
                               &param);
    if (UCS_PTR_IS_ERR(running))
        recv_over(request, part, UCS_PTR_STATUS(running), 0);
}

xcclResult_t ucx_irecv(xcclNetRecvComm_t comm_, int part_count, void *const *data,
                       const size_t *bytes, const uint32_t *tags, const xcclNetMem_t *mems,
                       xcclNetRequest_t *request_out)
{
    struct ucx_comm *comm = comm_;
    struct ucx_request *request = NULL;
    xcclResult_t rc = xcclSuccess;

    if (part_count < 1 || part_count > UCX_PARTS)
        return xccl_fail_quietly(xcclInvalidArgument, 0, NULL,
                                 "cannot post %d receives together: 1 to %d are possible",
                                 part_count, UCX_PARTS);
    if (!may_post(comm)) {
        *request_out = NULL;
        return xcclSuccess;
    }
    if (comm->rc != xcclSuccess)
        rc = ucx_comm_error(comm);
    else
        request = slot_take(comm);
    if (request) {
        request->count = request->missing = part_count;
        ucx_library_enter(NULL);
        for (int i = 0; i < part_count; i++) {
            request->parts[i].bytes = bytes[i];
            recv_post(request, i, data[i], tags[i], mems ? mems[i] : NULL);
        }
        ucx_library_leave();
    }
    ucx_link_give(comm->link);
    if (rc == xcclSuccess)
        *request_out = request;
    return rc;
}

static void reap(struct ucx_request *request, size_t *bytes_out)
{
    int part_count = request->comm->is_send ? 1 : request->count;

    for (int i = 0; bytes_out && i < part_count; i++)
        bytes_out[i] = request->parts[i].bytes;
    slot_give(request);
}

/* A large message is answered, and where the peer's memory is full the answer waits in UCX for a
 * poll; its sender would wait with it. In shared memory a flush tells that it is out; over networks
 * it could only lie behind megabytes of answers. */
static int is_through(struct ucx_request *request)
{
    struct ucx_comm *comm = request->comm;
    unsigned moved = 0;
    int out;

    if (request->state != UCX_DONE)
        return 0;
    if (comm->is_send || comm->mode == UCX_NET || comm->rc != xcclSuccess)
        return 1;
    ucx_library_enter(NULL);
    out = ucx_comm_flush(comm);
    if (!out) {
        moved = ucx_comm_poll(comm);
        out = ucx_comm_flush(comm);
    }
    ucx_library_leave();
    if (!out)
        ucx_comm_look(comm, moved > 0);
    return out || comm->rc != xcclSuccess;
}

static xcclResult_t test_claimed(struct ucx_request *request, int *done_out, size_t *bytes_out)
{
    struct ucx_comm *comm = request->comm;

    if (request->state == UCX_FREE)
        return xccl_fail_quietly(xcclInvalidUsage, 0, "do not test a request after it was done",
                                 "a request is tested again after it was done");
    if (request->state != UCX_DONE && comm->rc == xcclSuccess)
        move(request);
    /* What was complete before the comm failed is still complete. */
    if (request->state != UCX_DONE && comm->rc != xcclSuccess)
        return ucx_comm_error(comm);
    /* Nobody polls for sends that are done at once, and their receiver may have closed. */
    if (request->state == UCX_DONE && comm->is_send &&
        (comm->gone || comm->sent % UCX_LOOK_SENDS == 0))
        ucx_comm_look_now(comm, 0);
    *done_out = is_through(request);
    if (*done_out)
        reap(request, bytes_out);
    else if (comm->wait_fd >= 0)
        ucx_comm_arm(comm);
    return xcclSuccess;
}

/* Who has the link moves both of its comms, so others need not; but whoever is about to sleep must
 * know that the link is armed. */
xcclResult_t ucx_test(xcclNetRequest_t request_, int *done_out, size_t *bytes_out)
{
    struct ucx_request *request = request_;
    struct ucx_link *link = request->comm->link;
    xcclResult_t rc;

    if (!ucx_link_claim(link)) {
        if (request->comm->wait_fd < 0) {
            *done_out = 0;
            return xcclSuccess;
        }
        ucx_link_claim_wait(link);
    }
    rc = test_claimed(request, done_out, bytes_out);
    ucx_link_give(link);
    return rc;
}

/* 1: some send may not be with the peer. A flush that nobody answers within some milliseconds says
 * only that the peer does not turn its worker now, so it holds nobody up: what UCX may still have
 * goes with the polls of later calls. may_ask 0: test polls for further sends, among which a flush
 * would lie. */
static int owes(struct ucx_comm *comm, int may_ask)
{
    uint64_t now_ns = xccl_clock_ns();

    if (comm->owing++ == 0)
        comm->owing_ns = now_ns;
    if (now_ns - comm->owing_ns < FLUSH_NS)
        return 1;
    return !(may_ask && ucx_comm_flush(comm)) && now_ns - comm->owing_ns < OWING_NS;
}

/* Whoever sleeps on the comm does not know that something of it may be done now. */
static void poll_unasked(struct ucx_comm *comm)
{
    if (ucx_comm_poll(comm) && comm->wait_fd >= 0)
        ucx_comm_ring(comm);
}

/* Of a sender that owes nothing UCX wants nothing; one that owes is polled ever more seldom, as its
 * next isend or test does the same. */
static int progress_sender(struct ucx_comm *comm)
{
    uint32_t turn = comm->owing;

    if (comm->sent == comm->flushed && !comm->flush_runs)
        return 0;
    if (comm->polled && comm->free_count < comm->slot_count) {
        comm->polled = 0;
        return owes(comm, 0);
    }
    if (turn > 0 && turn < OWING_FIRST && !comm->flush_runs) {
        comm->owing++;
        return 1;
    }
    if (comm->flush_runs || (turn > 0 && ((turn & (turn - 1)) == 0 || turn % OWING_TURNS == 0))) {
        poll_unasked(comm);
        ucx_comm_look(comm, 0);
    }
    return comm->rc == xcclSuccess && owes(comm, 1);
}

/* Receivers answer the flushes of their peers; where test has polled since they have done so. */
static void progress_receiver(struct ucx_comm *comm)
{
    if (!comm->link->turned)
        poll_unasked(comm);
    comm->link->turned = 0;
}

static int progress_claimed(struct ucx_comm *comm)
{
    int pending = 0;

    if (comm->rc == xcclSuccess && comm->is_send)
        pending = progress_sender(comm);
    else if (comm->rc == xcclSuccess)
        progress_receiver(comm);
    return pending;
}

/* Shared memory is delivered when it is written. */
xcclResult_t ucx_progress(xcclNetContext_t ctx, int *pending_out)
{
    int pending = 0;

    ucx_library_enter(NULL);
    for (struct ucx_comm *comm = ((struct ucx_ctx *)ctx)->comms; comm; comm = comm->next) {
        if (comm->mode != UCX_NET)
            continue;
        if (!ucx_link_claim(comm->link)) {
            pending = 1; /* who has the link moves it */
            continue;
        }
        pending |= progress_claimed(comm);
        ucx_link_give(comm->link);
    }
    ucx_library_leave();
    *pending_out = pending;
    return xcclSuccess;
}

void ucx_requests_cancel(struct ucx_comm *comm)
{
    for (int i = 0; i < comm->slot_count; i++) {
        struct ucx_request *request = &comm->requests[i];

        for (int j = 0; request->state == UCX_ACTIVE && j < UCX_PARTS; j++) {
            if (request->running & 1u << j)
                ucx.request_cancel(comm->link->worker, store_of(request, j));
        }
    }
}

int ucx_requests_run(const struct ucx_comm *comm)
{
    for (int i = 0; i < comm->slot_count; i++) {
        if (comm->requests[i].state == UCX_ACTIVE && comm->requests[i].running)
            return 1;
    }
    return 0;
}

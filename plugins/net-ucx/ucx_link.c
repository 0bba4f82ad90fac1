/* SPDX-License-Identifier: BSD-3-Clause */
/* A worker, its endpoint, and who uses them. Over networks two comms that go opposite ways between
 * the same two instances share a link, where the second is made while the first is whole: over tcp
 * that is one connection of UCX's instead of two, whose acknowledgements ride on the answers, and
 * half of the workers. As they share an end, too, they must be of one communicator.
 *
 * How two find each other: each end of a link has a random number, and each hello says whose it is.
 * A sender goes by a link whose other end is known, and says which one it wants; a receiver gives
 * that one, or one of its own whose connect to the same instance is under way. Where the two ends
 * choose differently, each still has a worker, and the comm gets an endpoint of its own in it.
 *
 *   this instance                        the other one
 *   link 7 --- sender  ---- comm 1 ----> receiver --- link 9      hello: I am 7; answer: 9
 *          \-- receiver <--- comm 2 ---- sender ----/             hello: I am 9, for your 7
 *
 * Thread: who has the claim, but for ucx_link_take and ucx_link_claim_wait. */
#include <sched.h>
#include <string.h>

#include "base/alloc.h"
#include "base/os.h"
#include "ucx_int.h"

#define CLOSE_POLLS 256 /* turns that the close of an endpoint gives UCX; none of them waits */
/* A close in a transfer gives it what the other comm had sent before that was closed, too. */
#define LAST_FLUSH_NS (20 * XCCL_NS_PER_S / 1000)
#define CLAIM_SPINS   100 /* then the core is offered to who has it */
#define BOTH          3u /* places */

void ucx_link_claim_wait(struct ucx_link *link)
{
    for (int spins = 0; !ucx_link_claim(link); spins++) {
        if (spins < CLAIM_SPINS)
            xccl_os_pause();
        else
            sched_yield();
    }
}

static void list_remove(struct ucx_link *link)
{
    if (!link->place)
        return;
    *link->place = link->next;
    if (link->next)
        link->next->place = link->place;
    link->place = NULL;
}

static void list_add(struct ucx_link *link)
{
    struct ucx_ctx *ctx = link->ctx;

    link->next = ctx->links;
    link->place = &ctx->links;
    if (link->next)
        link->next->place = &link->next;
    ctx->links = link;
}

/* ---- who shares ---- */

static int fits(const struct ucx_link *link, const struct ucx_comm *comm, uint64_t instance,
                const struct ucx_hello *hello)
{
    if (link->home != comm->home || link->peer_instance != instance ||
        link->places & 1u << comm->is_send)
        return 0;
    if (!hello)
        return link->peer_id != 0;
    /* Both ends of a comm may be in one instance; then a link is not its own other end. */
    return link->id != hello->link && (!hello->wanted || hello->wanted == link->id) &&
           (!link->peer_id || link->peer_id == hello->link);
}

/* One that is known to be the sender's other end goes before one that may become it; of those the
 * oldest, so that several connects at once find each other in their order. */
static struct ucx_link *find(const struct ucx_comm *comm, uint64_t instance,
                             const struct ucx_hello *hello)
{
    struct ucx_link *found = NULL;

    for (struct ucx_link *link = comm->ctx->links; link; link = link->next) {
        if (fits(link, comm, instance, hello) && (!found || !found->peer_id))
            found = link;
    }
    return found;
}

static struct ucx_link *find_and_hold(const struct ucx_comm *comm, uint64_t instance,
                                      const struct ucx_hello *hello)
{
    struct ucx_ctx *ctx = comm->ctx;
    struct ucx_link *link;

    pthread_mutex_lock(&ctx->links_lock);
    link = find(comm, instance, hello);
    if (link) {
        link->refs++;
        link->places |= 1u << comm->is_send;
        if (link->places == BOTH)
            list_remove(link);
    }
    pthread_mutex_unlock(&ctx->links_lock);
    return link;
}

/* UCX has listened at its ports of TCP since the worker was made. */
static void watch_crowd(struct ucx_link *link, const struct kit_fds *before)
{
    ucp_address_t *address = NULL;
    size_t bytes = 0;

    if (ucx.worker_get_address(link->worker, &address, &bytes) != UCS_OK)
        return;
    kit_silent_watch(&link->crowd, before, address, bytes);
    ucx.worker_release_address(link->worker, address);
}

static xcclResult_t make(const struct ucx_comm *comm, uint64_t instance, struct ucx_link **link_out)
{
    ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    struct ucx_link *link = xccl_calloc_aligned(64, sizeof(*link));
    xcclResult_t rc = link ? xccl_os_random(&link->id, sizeof(link->id)) : xcclSystemError;
    struct kit_fds before;
    ucs_status_t status;

    if (rc == xcclSuccess)
        rc = ucx_room();
    if (rc != xcclSuccess) {
        xccl_free(link);
        return rc;
    }
    kit_fds_note(&before);
    status = ucx.worker_create(comm->home->context, &params, &link->worker);
    if (status != UCS_OK) {
        xccl_free(link);
        return xccl_fail_quietly(xcclSystemError, 0, "raise ulimit -n, or check /dev/shm",
                                 "UCX cannot make a worker on %s: %s", comm->device->name,
                                 ucx.status_string(status));
    }
    watch_crowd(link, &before);
    link->id |= 1; /* never 0 */
    link->ctx = comm->ctx;
    link->home = comm->home;
    link->may_share = comm->mode == UCX_NET && comm->ctx->may_share;
    link->peer_instance = instance;
    link->refs = 1;
    link->places = 1u << comm->is_send;
    *link_out = link;
    return xcclSuccess;
}

/* The last one gives it back, with those who were parked there. */
static void drop(struct ucx_link *link, int last)
{
    struct ucx_comm *next;

    if (!last) {
        ucx_link_give(link);
        return;
    }
    for (struct ucx_comm *comm = link->parked; comm; comm = next) {
        next = comm->next;
        xccl_free(comm);
    }
    xccl_free(link);
}

/* 1: that was the last one. Nobody else shall come. */
static int unhold(struct ucx_link *link)
{
    int last;

    pthread_mutex_lock(&link->ctx->links_lock);
    list_remove(link);
    last = --link->refs == 0;
    pthread_mutex_unlock(&link->ctx->links_lock);
    return last;
}

/* One whose worker has ended meanwhile is none. */
static struct ucx_link *share(struct ucx_comm *comm, uint64_t instance,
                              const struct ucx_hello *hello)
{
    struct ucx_link *link = find_and_hold(comm, instance, hello);

    if (!link)
        return NULL;
    ucx_link_claim_wait(link);
    if (!link->worker) {
        drop(link, unhold(link));
        return NULL;
    }
    link->comms[comm->is_send] = comm;
    ucx_link_give(link);
    return link;
}

xcclResult_t ucx_link_take(struct ucx_comm *comm, uint64_t instance, const struct ucx_hello *hello)
{
    struct ucx_ctx *ctx = comm->ctx;
    xcclResult_t rc;

    comm->link = share(comm, instance, hello);
    if (comm->link)
        return xcclSuccess;
    rc = make(comm, instance, &comm->link);
    if (rc != xcclSuccess)
        return rc;
    comm->link->comms[comm->is_send] = comm;
    pthread_mutex_lock(&ctx->links_lock);
    if (comm->link->may_share)
        list_add(comm->link);
    pthread_mutex_unlock(&ctx->links_lock);
    return xcclSuccess;
}

void ucx_link_shut(struct ucx_link *link)
{
    pthread_mutex_lock(&link->ctx->links_lock);
    list_remove(link);
    pthread_mutex_unlock(&link->ctx->links_lock);
}

/* ---- coming up ---- */

static xcclResult_t has_ended(const struct ucx_comm *comm)
{
    return xccl_fail_quietly(xcclSystemError, 0,
                             "set XCCL_UCX_PAIR=0 to give each connection a separate worker",
                             "a UCX connection on %s shares its worker with one that was closed in "
                             "the middle of a transfer",
                             comm->device->name);
}

xcclResult_t ucx_link_hello(struct ucx_comm *comm, uint8_t bytes_out[UCX_HELLO_MAX],
                            size_t *bytes_out_count)
{
    struct ucx_link *link = comm->link;
    struct ucx_hello hello = {.mode = (uint32_t)comm->mode, .instance = comm->ctx->instance};
    ucp_address_t *address = NULL;
    size_t address_bytes = 0;
    ucs_status_t status;

    if (!link->worker)
        return has_ended(comm);
    status = ucx.worker_get_address(link->worker, &address, &address_bytes);
    if (status != UCS_OK)
        return xccl_fail_quietly(xcclSystemError, 0, NULL, "UCX returns no address on %s: %s",
                                 comm->device->name, ucx.status_string(status));
    pthread_mutex_lock(&comm->ctx->links_lock);
    hello.link = link->id;
    hello.wanted = link->peer_id;
    pthread_mutex_unlock(&comm->ctx->links_lock);
    *bytes_out_count = 0;
    if (address_bytes <= UCX_ADDRESS_MAX) {
        hello.address_bytes = (uint32_t)address_bytes;
        *bytes_out_count = ucx_hello_encode(&hello, address, bytes_out);
    }
    ucx.worker_release_address(link->worker, address);
    if (*bytes_out_count)
        return xcclSuccess;
    return xccl_fail_quietly(xcclSystemError, 0, "list fewer devices in UCX_NET_DEVICES",
                             "UCX's address on %s has %zu bytes; at most %d are possible",
                             comm->device->name, address_bytes, UCX_ADDRESS_MAX);
}

static void on_ep_error(void *link_, ucp_ep_h ep, ucs_status_t status)
{
    struct ucx_link *link = link_;

    for (int i = 0; i < 2; i++) {
        if (link->comms[i] && link->comms[i]->ep == ep)
            ucx_comm_cut(link->comms[i], status);
    }
}

static ucs_status_t ep_create(struct ucx_link *link, enum ucx_mode mode, const uint8_t *address,
                              ucp_ep_h *ep_out)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                              .address = (const ucp_address_t *)address,
                              .err_mode = UCP_ERR_HANDLING_MODE_NONE};
    ucs_status_t status;

    if (link->home->by_hardware)
        params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    if (mode == UCX_NET) {
        params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER;
        params.err_handler = (ucp_err_handler_t){.cb = on_ep_error, .arg = link};
    }
    status = ucx.ep_create(link->worker, &params, ep_out);
    if (status != UCS_OK)
        *ep_out = NULL;
    return status;
}

/* 1: what the hello comes from is the other end of the link. */
static int is_other_end(struct ucx_link *link, const struct ucx_hello *hello)
{
    int same;

    pthread_mutex_lock(&link->ctx->links_lock);
    if (!link->peer_id)
        link->peer_id = hello->link;
    same = link->peer_id == hello->link;
    pthread_mutex_unlock(&link->ctx->links_lock);
    return same;
}

xcclResult_t ucx_link_join(struct ucx_comm *comm, const struct ucx_hello *hello,
                           const uint8_t *address)
{
    struct ucx_link *link = comm->link;
    int same = is_other_end(link, hello);
    ucs_status_t status = UCS_OK;

    if (!link->worker)
        return has_ended(comm);
    if (same && link->ep)
        comm->ep = link->ep;
    else
        status = ep_create(link, comm->mode, address, &comm->ep);
    if (same)
        link->ep = comm->ep;
    if (status == UCS_OK)
        return xcclSuccess;
    return xccl_fail_quietly(status == UCS_ERR_UNREACHABLE ? xcclRemoteError : xcclSystemError, 0,
                             "both ends need a common transport: compare UCX_TLS, UCX_NET_DEVICES "
                             "and `ucx_info -d` on both",
                             "UCX has no path %s %s on %s over %s: %s",
                             comm->is_send ? "to" : "from", comm->peer_text, comm->device->name,
                             comm->mode == UCX_SHM ? "shared memory" : "networks",
                             ucx.status_string(status));
}

void ucx_link_moved(struct ucx_comm *by)
{
    struct ucx_comm *other = by->link->comms[!by->is_send];

    by->link->armed = 0;
    if (other && other->wait_fd >= 0 &&
        (other->free_count < other->slot_count || other->rc != xcclSuccess))
        ucx_comm_ring(other);
}

/* ---- ending ---- */

/* An endpoint is forced where requests are under way and a card may have their memory; else it ends
 * in order, or with its worker. */
static void ep_close(struct ucx_link *link, ucp_ep_h ep, int force)
{
    ucp_request_param_t param = {.op_attr_mask = 0};
    void *closing;

    if (link->home->by_hardware && force) {
        param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    }
    closing = ucx.ep_close_nbx(ep, &param);
    if (!UCS_PTR_IS_PTR(closing))
        return;
    for (int i = 0; i < CLOSE_POLLS && ucx.request_check_status(closing) == UCS_INPROGRESS; i++)
        ucx.worker_progress(link->worker);
    ucx.request_free(closing);
}

static void worker_end(struct ucx_link *link, int force)
{
    if (!link->worker)
        return;
    if (link->ep)
        ep_close(link, link->ep, force);
    kit_silent_forget(&link->crowd);
    ucx.worker_destroy(link->worker);
    link->worker = NULL;
    link->ep = NULL;
}

/* The other comm is about to lose the worker. What it has sent before it was closed goes first, as
 * far as that is quick. */
static void warn_other(struct ucx_comm *other)
{
    uint64_t end_ns = xccl_clock_ns() + LAST_FLUSH_NS;

    while (other->closing && !ucx_comm_flush(other) && other->rc == xcclSuccess &&
           xccl_clock_ns() < end_ns)
        (void)ucx_link_turn(other->link);
    if (other->rc == xcclSuccess)
        ucx_comm_fail(other, xcclNetCauseLocal,
                      xccl_fail_quietly(
                          xcclSystemError, 0,
                          "set XCCL_UCX_PAIR=0 to give each connection a separate worker",
                          "UCX connection %s %s on %s ended together with the one in the opposite "
                          "direction, which was closed in the middle of a transfer",
                          other->is_send ? "to" : "from", other->peer_text, other->device->name));
}

void ucx_link_leave(struct ucx_comm *comm)
{
    struct ucx_link *link = comm->link;
    struct ucx_comm *other = link->comms[!comm->is_send];
    int in_flight = ucx_requests_run(comm), last = unhold(link);

    if (comm->ep && comm->ep != link->ep && link->worker) {
        ep_close(link, comm->ep, comm->gone || in_flight);
        ucx_link_moved(comm);
    }
    if (other && in_flight)
        warn_other(other);
    if (last || in_flight)
        worker_end(link, comm->gone || in_flight);
    link->comms[comm->is_send] = NULL;
    if (other && !link->worker) {
        other->ep = NULL;
        if (other->wait_fd >= 0)
            ucx_comm_ring(other);
    }
    ucx_comm_strip(comm);
    if (link->worker && comm->flush_runs) { /* whose end UCX will tell */
        comm->next = link->parked;
        link->parked = comm;
    } else {
        xccl_free(comm);
    }
    drop(link, last);
}

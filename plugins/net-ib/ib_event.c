/* SPDX-License-Identifier: BSD-3-Clause */
/* Asynchronous events: what a card tells of itself, its ports and queues without being asked for a
 * message. A comm to which nothing comes asks for them, at most once in 10 ms a port, and takes
 * those of all comms on the card; so does the thread of ib_service.c, where there is one.
 *
 * A port that goes down may come up again, and the queue pairs then go on. So a comm of one port
 * fails only after the time in which a packet is sent again and again; a receiver, which may send
 * none, would otherwise wait for ever. One of several goes on with the others at once.
 *
 * Thread: any. An event of a queue is taken and acknowledged in one go, and destroying the queue
 * waits for that, so its comm is there. */
#include "ib_int.h"

#include <errno.h>
#include <fcntl.h>

#include "base/param.h"

#define LOOK_NS    (10 * XCCL_NS_PER_MS)
#define EVENTS_MAX 64 /* taken in one go */
#define END_MIN_MS 2000 /* for an answer, at least: the receiver drains for up to 0.5 s */

xcclResult_t ib_events_open(struct ibv_context *context)
{
    int flags = fcntl(context->async_fd, F_GETFL);

    if (context->async_fd < 0)
        return xcclSuccess; /* of a library that has no descriptor for them */
    if (flags >= 0 && fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK) == 0)
        return xcclSuccess;
    return xccl_fail_quietly(xcclSystemError, errno, NULL, "cannot read the events of %s",
                             context->device->name);
}

static void of_port(struct ib_ctx *ctx, const struct ib_device *where, int port, uint64_t down_ns)
{
    for (int i = 0; i < ctx->device_count; i++) {
        struct ib_device *device = &ctx->devices[i];

        if (device->context == where->context && device->port == port)
            atomic_store_explicit(&device->down_ns, down_ns, memory_order_relaxed);
    }
}

static void of_card(struct ib_ctx *ctx, const struct ib_device *where)
{
    for (int i = 0; i < ctx->device_count; i++) {
        if (ctx->devices[i].context == where->context)
            atomic_store_explicit(&ctx->devices[i].has_failed, 1, memory_order_relaxed);
    }
}

static void of_queue(_Atomic int *event_out, enum ibv_event_type type)
{
    atomic_store_explicit(event_out, 1 + (int)type, memory_order_relaxed);
}

static void take(struct ib_ctx *ctx, const struct ib_device *where,
                 const struct ibv_async_event *event)
{
    switch (event->event_type) {
    case IBV_EVENT_PORT_ERR:
        of_port(ctx, where, event->element.port_num, xccl_clock_ns());
        break;
    case IBV_EVENT_PORT_ACTIVE:
        of_port(ctx, where, event->element.port_num, 0);
        break;
    case IBV_EVENT_DEVICE_FATAL:
        of_card(ctx, where);
        break;
    case IBV_EVENT_CQ_ERR:
        of_queue(&((struct ib_comm *)event->element.cq->cq_context)->event, event->event_type);
        break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
        of_queue(&((struct ib_pair *)event->element.qp->qp_context)->event, event->event_type);
        break;
    default: /* the rest changes nothing for what is connected */
        break;
    }
}

void ib_events_take(struct ib_ctx *ctx, const struct ib_device *device)
{
    struct ibv_async_event event;

    for (int i = 0; i < EVENTS_MAX && ctx->verbs->get_async_event(device->context, &event) == 0;
         i++) {
        take(ctx, device, &event);
        ctx->verbs->ack_async_event(&event);
    }
}

int ib_port_is_down(struct ib_ctx *ctx, struct ib_device *device)
{
    struct ibv_port_attr attr = {.state = IBV_PORT_ACTIVE};

    ib_events_take(ctx, device);
    (void)ctx->verbs->query_port(device->context, (uint8_t)device->port, &attr);
    return ib_down_ms(device) || attr.state != IBV_PORT_ACTIVE;
}

uint64_t ib_down_ms(const struct ib_device *device)
{
    uint64_t since_ns = atomic_load_explicit(&device->down_ns, memory_order_relaxed);
    uint64_t ms = since_ns ? (xccl_clock_ns() - since_ns) / XCCL_NS_PER_MS : 0;

    return since_ns && ms == 0 ? 1 : ms;
}

uint64_t ib_patience_ms(void)
{
    uint64_t once_ns = (uint64_t)4096 << xccl_param_int(XCCL_P_IB_TIMEOUT);

    return once_ns * (uint64_t)(1 + xccl_param_int(XCCL_P_IB_RETRY_CNT)) / XCCL_NS_PER_MS;
}

static void fail(struct ib_comm *comm, const struct ib_pair *pair, xcclNetCause_t cause,
                 const char *todo, const char *what)
{
    ib_comm_fail(comm, cause,
                 xccl_fail_quietly(xcclRemoteError, 0, todo, "%s, the path %s %s of %s: %s",
                                   comm->queue.ports[pair->port].device->name,
                                   comm->is_send ? "to" : "from",
                                   comm->peer.port[pair->peer_port].name, comm->peer_text, what));
}

/* Asks for events, unless somebody did within 10 ms. */
static void ask(struct ib_ctx *ctx, struct ib_device *device)
{
    uint64_t now_ns = xccl_clock_ns();
    uint64_t looked_ns = atomic_load_explicit(&device->looked_ns, memory_order_relaxed);

    /* Relaxed: who wins asks; the others lose nothing. */
    if (now_ns - looked_ns > LOOK_NS &&
        atomic_compare_exchange_strong_explicit(&device->looked_ns, &looked_ns, now_ns,
                                                memory_order_relaxed, memory_order_relaxed))
        ib_events_take(ctx, device);
}

/* While the peer has not said that its end is no more, nothing that hangs on it may go by another
 * way. It says so by the side channel, which may be dead while that is up. */
static void look_at_end(struct ib_comm *comm, const struct ib_pair *pair)
{
    uint64_t limit_ms = ib_patience_ms();

    if (limit_ms < END_MIN_MS)
        limit_ms = END_MIN_MS;
    if ((xccl_clock_ns() - pair->since_ns) / XCCL_NS_PER_MS > limit_ms)
        fail(comm, pair, xcclNetCauseTimeout, IB_CHANNEL_TODO,
             "its queue pair has ended, and the peer does not confirm that over the side channel");
}

/* Where others are left, the pair alone ends, and a port that is down is not waited for. */
static void look_at_pair(struct ib_comm *comm, struct ib_pair *pair)
{
    struct ib_device *device = comm->queue.ports[pair->port].device;
    int event = atomic_load_explicit(&pair->event, memory_order_relaxed);
    int failed = atomic_load_explicit(&device->has_failed, memory_order_relaxed);
    uint64_t down_ms = ib_down_ms(device);

    if (pair->state == IB_PAIR_ENDED)
        look_at_end(comm, pair);
    if ((pair->state != IB_PAIR_UP && pair->state != IB_PAIR_ANSWERED) ||
        ((event || failed || down_ms) && ib_pair_break(comm, pair)))
        return;
    if (event)
        fail(comm, pair, xcclNetCauseLocal, "see the kernel's log, and the peer's first error",
             comm->ctx->verbs->event_type_str((enum ibv_event_type)(event - 1)));
    else if (failed)
        fail(comm, pair, xcclNetCauseLinkDown, "see the kernel's log", "the card has failed");
    else if (down_ms && down_ms > ib_patience_ms())
        fail(comm, pair, xcclNetCauseLinkDown,
             "check its cable and interface; XCCL_IB_TIMEOUT and XCCL_IB_RETRY_CNT set how long it "
             "may be down",
             "the port is down");
}

void ib_events_look(struct ib_comm *comm)
{
    int event = atomic_load_explicit(&comm->event, memory_order_relaxed);

    for (uint32_t i = 0; i < comm->queue.port_count; i++)
        ask(comm->ctx, comm->queue.ports[i].device);
    if (event)
        fail(comm, &comm->queue.pairs[0], xcclNetCauseLocal,
             "see the kernel's log, and the peer's first error",
             comm->ctx->verbs->event_type_str((enum ibv_event_type)(event - 1)));
    for (uint32_t i = 0; i < comm->queue.count && comm->rc == xcclSuccess; i++)
        look_at_pair(comm, &comm->queue.pairs[i]);
    if (comm->dark_ns && comm->rc == xcclSuccess &&
        (xccl_clock_ns() - comm->dark_ns) / XCCL_NS_PER_MS > ib_patience_ms())
        fail(comm, &comm->queue.pairs[0], xcclNetCauseLinkDown,
             "check the cables and interfaces of both ends; XCCL_IB_TIMEOUT and XCCL_IB_RETRY_CNT "
             "set how long they may be down",
             "all ports of the connection are down");
}

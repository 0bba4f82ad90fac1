/* SPDX-License-Identifier: BSD-3-Clause */
/* A group's sends and receives, from their beginning to their end. Its items become messages of
 * streams, which stay with their links and go side by side, each on its own:
 *
 *   no link   made for the first message that needs it (comm_p2p_links.c)
 *   up        messages move (exec/streams.c)
 *
 * A repeated group takes no memory, and its work grows with its messages, not with the ranks.
 * Thread: see the header. */
#include "call/comm_p2p.h"

#include "base/alloc.h"
#include "call/comm_call.h"
#include "call/comm_p2p_state.h"
#include "comm/comm_progress.h"
#include "comm/comm_record.h"
#include "comm/device_ops.h"

void xccl_comm_p2p_free(struct xccl_comm_p2p *p2p)
{
    if (!p2p)
        return;
    for (int i = 0; p2p->stream_of && i < 2 * p2p->nranks; i++)
        xccl_free(p2p->stream_of[i]);
    xccl_free(p2p->stream_of);
    xccl_free(p2p->streams);
    xccl_free(p2p->messages);
    xccl_free(p2p->offers);
    xccl_free(p2p);
}

size_t xccl_comm_p2p_bytes(const struct xccl_comm_p2p *p2p)
{
    size_t bytes;

    if (!p2p)
        return 0;
    bytes = xccl_alloc_bytes(p2p) + xccl_alloc_bytes(p2p->stream_of) +
            xccl_alloc_bytes(p2p->streams) + xccl_alloc_bytes(p2p->messages) +
            xccl_alloc_bytes(p2p->offers);
    for (int i = 0; i < 2 * p2p->nranks; i++)
        bytes += xccl_alloc_bytes(p2p->stream_of[i]);
    return bytes;
}

/* --- the run --- */

int xccl_p2p_all_up(const struct xccl_comm_p2p *p2p)
{
    uint32_t up = 0;

    while (up < p2p->stream_count && xccl_p2p_is_up(p2p->streams[up]))
        up++;
    return up == p2p->stream_count;
}

static int step(struct xccl_run *run)
{
    struct xcclComm *comm = run->owner;
    struct xccl_comm_p2p *p2p = comm->p2p;
    int moved = 0, rest = p2p->talks;

    if (__builtin_expect(!p2p->all_up || p2p->talks, 0)) {
        run->rc = xccl_p2p_connect(comm, &moved);
        moved |= comm->ops->turn(comm);
    }
    for (uint32_t i = 0; i < p2p->stream_count && !run->rc; i++) {
        struct xccl_stream *stream = p2p->streams[i];

        if (stream->is_over)
            continue;
        if (xccl_p2p_is_up(stream))
            moved |= xccl_stream_progress(run, stream);
        stream->is_over = xccl_p2p_is_done(stream);
        rest |= !stream->is_over;
    }
    run->finished = !rest && !p2p->talks && !run->rc;
    return moved;
}

static const struct xccl_run_kind messages = {
    .name = "sends and receives",
    .is_messages = 1,
    .step = step,
    .check = xccl_p2p_check,
    .blame = xccl_p2p_blame,
    .check_left = xccl_p2p_check_left,
};

/* --- beginning --- */

xcclResult_t xccl_comm_check_p2p(const struct xcclComm *comm, const struct xccl_p2p_item *items,
                                 uint32_t count)
{
    return xccl_p2p_do_own(comm, items, count, 0);
}

/* A group that is not like the last one. */
static xcclResult_t set_up(struct xcclComm *comm, const struct xccl_p2p_item *items, uint32_t count)
{
    int own = xccl_p2p_has_own(comm, items, count);
    xcclResult_t rc = own ? xccl_p2p_do_own(comm, items, count, 0) : xcclSuccess;
    struct xccl_comm_p2p *p2p;

    if (!rc)
        rc = xccl_p2p_arrange(comm, items, count);
    if (rc)
        return rc;
    if (own)
        (void)xccl_p2p_do_own(comm, items, count, 1);
    p2p = comm->p2p;
    for (uint32_t i = 0; i < p2p->stream_count; i++) {
        p2p->streams[i]->is_over = 0;
        if (xccl_p2p_is_up(p2p->streams[i]))
            xccl_stream_begin(p2p->streams[i]);
    }
    p2p->all_up = xccl_p2p_all_up(p2p);
    p2p->listens = 0;
    p2p->talks = 0;
    p2p->told = 0;
    if (p2p->all_up && !own)
        xccl_p2p_keep_shape(comm, items, count);
    xccl_comm_record_p2p(comm, items, count);
    return xcclSuccess;
}

static void set_up_again(struct xccl_comm_p2p *p2p)
{
    for (uint32_t i = 0; i < p2p->stream_count; i++) {
        p2p->streams[i]->is_over = 0;
        xccl_stream_begin(p2p->streams[i]);
    }
}

xcclResult_t xccl_comm_begin_p2p(struct xcclComm *comm, const struct xccl_p2p_item *items,
                                 uint32_t count)
{
    xcclResult_t rc = xccl_comm_enter(comm);

    if (rc)
        return rc;
    if (__builtin_expect(comm->p2p && xccl_p2p_repeat(comm->p2p, items, count), 1))
        set_up_again(comm->p2p);
    else
        rc = set_up(comm, items, count);
    if (rc) {
        xccl_comm_leave(comm);
        return rc;
    }
    comm->p2p->looked_ns = 0;
    xccl_run_clear(&comm->run);
    comm->run.kind = &messages;
    comm->run.owner = comm;
    comm->run.by_address = comm->planner.by_address != XCCL_BY_ADDRESS_NEVER &&
                           comm->p2p->exchanged >= XCCL_ADDRESS_MIN;
    xccl_comm_record_begin_p2p(comm);
    return xcclSuccess;
}

xcclResult_t xccl_comm_execute_p2p(struct xcclComm *comm, const struct xccl_p2p_item *items,
                                   uint32_t count)
{
    struct xccl_run *run = &comm->run;
    xcclResult_t rc = xccl_comm_begin_p2p(comm, items, count);

    if (rc)
        return rc;
    xccl_exec_wait_one(run, &comm->policy);
    return xccl_comm_end(comm, run->rc);
}

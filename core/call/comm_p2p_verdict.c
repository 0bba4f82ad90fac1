/* SPDX-License-Identifier: BSD-3-Clause */
/* The slow branch of the wait for sends and receives: errors, peers that have left, messages that
 * came with another size than the one expected, the deadline. Thread: the holder of the crank. */
#include <stdio.h>

#include "call/comm_p2p_state.h"
#include "comm/comm_progress.h"
#include "comm/comm_record.h"
#include "comm/comm_where.h"
#include "connect/comm_links.h"
#include "watch/comm_verdict.h"
#include "watch/control.h"

#define LEFT_NS (100 * XCCL_NS_PER_MS)

static void list_peers(const struct xcclComm *comm, char *text_out, size_t bytes)
{
    const struct xccl_comm_p2p *p2p = comm->p2p;
    int used = 0;

    text_out[0] = '\0';
    for (uint32_t i = 0; i < p2p->stream_count && used < (int)bytes - 1; i++) {
        const struct xccl_stream *stream = p2p->streams[i];
        char name[128];

        if (xccl_p2p_is_done(stream))
            continue;
        xccl_comm_name_rank(comm, stream->peer, name, sizeof name);
        used += snprintf(text_out + used, bytes - (size_t)used, "%s%s %s", used ? ", " : "",
                         stream->sends ? "to send to" : "to receive from", name);
    }
}

/* A peer has left in order: on this host its board says so, elsewhere the control plane knows it of
 * the ring's neighbours. Of others the network tells, or the deadline. */
static int has_left(const struct xcclComm *comm, int peer)
{
    int index = comm->shm ? xccl_shm_index_of(comm->shm, peer) : -1;
    uint64_t last_seq;

    if (index < 0)
        return xccl_control_left_before(comm->control, UINT64_MAX, &last_seq) == peer;
    /* Acquire: what it did before it left. Pairs with undo_shm() in comm_init.c. */
    return atomic_load_explicit(&xccl_shm_board(comm->shm, index)->outside, memory_order_acquire) ==
           2;
}

/* came: what is there of the message that stream expects; NULL: that is not known. */
static xcclResult_t fail_size(struct xcclComm *comm, const struct xccl_stream *stream,
                              const struct xccl_came *came)
{
    char name[128], sizes[96] = "";

    xccl_comm_name_rank(comm, stream->peer, name, sizeof name);
    if (came)
        snprintf(sizes, sizeof sizes, " (%llu bytes%s instead of %zu)",
                 (unsigned long long)came->bytes, came->is_all ? "" : " or more",
                 stream->messages[stream->next].bytes);
    return xccl_comm_fail(comm, xcclInvalidUsage,
                          "rank %d expects a message of a different size than %s sends%s; sends "
                          "and receives of two ranks must match in order and size",
                          comm->rank, name, sizes);
}

/* Has the message that a stream waits for come over another link than that of its size? all 1: this
 * end may not have made that one, but its place is known. */
static xcclResult_t look_aside(struct xcclComm *comm, const struct xccl_stream *stream, int all)
{
    int index = comm->shm ? xccl_shm_index_of(comm->shm, stream->peer) : -1;

    if (stream->sends || stream->in_slices || !xccl_p2p_is_up(stream) ||
        stream->next == stream->count)
        return xcclSuccess;
    for (int kind = 0; kind < XCCL_STREAM_KINDS; kind++) {
        const struct xccl_link *link = stream->links[kind];
        enum xccl_proto proto = (enum xccl_proto)kind;
        struct xccl_came came;
        struct xccl_link place;

        if (proto == stream->kind || (!link && !all))
            continue;
        if (!link && xccl_shm_fifo_look(comm->shm, proto, index, XCCL_P2P_ID, &place))
            continue; /* no memory to look at it: the deadline remains */
        if (xccl_stream_came(stream, proto, link ? link : &place, &came))
            return fail_size(comm, stream, &came);
    }
    return xcclSuccess;
}

/* Links that this end has not made are looked at seldom, which costs a system call. */
static xcclResult_t look_at_all(struct xcclComm *comm, uint64_t waited_ns)
{
    struct xccl_comm_p2p *p2p = comm->p2p;
    xcclResult_t rc = xcclSuccess;
    int all;

    if (waited_ns < p2p->looked_ns) /* something has moved */
        p2p->looked_ns = 0;
    all = waited_ns - p2p->looked_ns > LEFT_NS;
    if (all)
        p2p->looked_ns = waited_ns;
    for (uint32_t i = 0; i < p2p->stream_count && !rc; i++)
        rc = look_aside(comm, p2p->streams[i], all);
    return rc;
}

/* Nothing moves, so what a peer that left has sent before has come. */
xcclResult_t xccl_p2p_check_left(struct xccl_run *run, int again)
{
    struct xcclComm *comm = run->owner;
    const struct xccl_comm_p2p *p2p = comm->p2p;

    (void)again;
    for (uint32_t i = 0; i < p2p->stream_count; i++) {
        const struct xccl_stream *stream = p2p->streams[i];
        xcclResult_t rc;
        char name[128];

        if (xccl_p2p_is_done(stream) || !has_left(comm, stream->peer))
            continue;
        rc = look_aside(comm, stream, 1);
        if (rc)
            return rc;
        xccl_comm_name_rank(comm, stream->peer, name, sizeof name);
        return xccl_comm_fail(comm, xcclRemoteError,
                              "%s has left the communicator, but rank %d still waits %s that rank",
                              name, comm->rank, stream->sends ? "to send to" : "to receive from");
    }
    return xcclSuccess;
}

xcclResult_t xccl_p2p_check(struct xccl_run *run, uint64_t waited_ns)
{
    struct xcclComm *comm = run->owner;
    char peers[320];
    xcclResult_t rc;

    xccl_comm_progress_turn(comm);
    xccl_record_waits(comm->record);
    rc = xccl_comm_error(comm);
    if (!rc)
        rc = look_at_all(comm, waited_ns);
    if (!rc && waited_ns > LEFT_NS)
        rc = xccl_p2p_check_left(run, 1);
    if (rc || waited_ns <= comm->timeout_ns)
        return rc;
    list_peers(comm, peers, sizeof peers);
    return xccl_comm_fail(comm, xcclTimeout,
                          "rank %d has waited %llu s in sends and receives, %s; check what those "
                          "ranks do, or raise XCCL_TIMEOUT_S",
                          comm->rank, (unsigned long long)(waited_ns / XCCL_NS_PER_S), peers);
}

/* What a slice of another size says; 0: the group failed otherwise. */
int xccl_p2p_blame(struct xccl_run *run)
{
    struct xcclComm *comm = run->owner;
    const struct xccl_link *link = run->bad_link;
    const struct xccl_stream *stream;
    struct xccl_came came;

    if (!link)
        return 0;
    stream = comm->p2p->stream_of[2 * comm->run.bad_peer];
    if (!stream->net && xccl_stream_came(stream, stream->kind, link, &came))
        (void)fail_size(comm, stream, &came);
    else if (!look_aside(comm, stream, 1)) /* a later one is here, so this one came elsewhere */
        (void)fail_size(comm, stream, NULL);
    return 1;
}

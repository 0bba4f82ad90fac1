/* SPDX-License-Identifier: BSD-3-Clause */
/* The interpreter: a block goes through the events of its lane, for every tile. What an event means
 * at a tile is computed by all threads alike, from the event and the plan; empty chunks are skipped
 * as on the host (exec/moves.c). Two barriers an event: behind what the owners of links have waited
 * for, and behind the data. */
#ifndef XCCL_EXEC_CUDA_DEV_INTERP_H
#define XCCL_EXEC_CUDA_DEV_INTERP_H

#include "exec/cuda/dev_lines.h"

/* What an event moves at a tile. */
struct move {
    u64 src, dst; /* addresses; 0: none */
    u32 bytes, send_bytes; /* of the value, or of what comes; of what goes in an exchange */
    u32 nrecv, nsend;
};

/* One side of an event. */
struct side {
    u64 at;
    u32 bytes;
    int sized, ends;
};

/* Of a chunk, what a block works on in a tile: from first on. */
struct window {
    u64 first, bytes;
};

XD_FN struct window window_of(const struct block *block, u32 tile)
{
    const struct xccl_dev_plan *plan = &block->plan;
    u64 number = (u64)block->lane.part * plan->channels + block->channel;
    u64 first = (u64)tile * plan->slice_bytes, part = block->lane.part_bytes;
    struct window window = {0, 0};

    if (first >= part)
        return window;
    window.first = number * part + first;
    window.bytes = part - first < plan->slice_bytes ? part - first : plan->slice_bytes;
    return window;
}

XD_FN u32 clip(u64 size, const struct window *window)
{
    if (window->first >= size)
        return 0;
    return (u32)(size - window->first < window->bytes ? size - window->first : window->bytes);
}

XD_FN struct side side_of(const struct block *block, const struct window *window, u32 tile,
                          u32 buffer, u64 chunk, u64 size)
{
    const struct xccl_dev_plan *plan = &block->plan;
    struct side side = {0, clip(size, window), 1, 0};
    u64 slice;

    if (buffer <= XCCL_BUFFER_OUT) {
        side.at = (buffer == XCCL_BUFFER_IN ? block->work.in : block->work.out) + chunk +
                  window->first;
        side.ends = (plan->flags & XCCL_DEV_ENDS_SHORT) && size / plan->slice_bytes == tile;
        return side;
    }
    if (buffer != XCCL_BUFFER_SCRATCH) { /* a message without data */
        side.bytes = 0;
        return side;
    }
    slice = ((u64)(tile % plan->scrbufs) * plan->nscratch + chunk) * plan->scratch_stride +
            (u64)block->lane.part * plan->channels + block->channel;
    side.at = block->work.scratch + slice * plan->slice_bytes;
    side.bytes = clip(plan->chunk_bytes, window);
    side.sized = 0;
    return side;
}

/* Is there something to move? Empty chunks are skipped at both ends; what goes from or to no memory
 * is a message without data, and never skipped. */
XD_FN int is_there(u32 bytes, u32 op, u32 bit, u32 buffer)
{
    return bytes || ((op & bit) && buffer == XCCL_BUFFER_ZERO);
}

XD_FN_COLD struct move make_move(const struct block *block, const struct xccl_dev_event *event,
                                 u32 tile)
{
    struct window window = window_of(block, tile);
    struct side src = {0, clip(block->plan.chunk_bytes, &window), 0, 0}, dst = src;
    struct move move = {0, 0, 0, 0, event->nrecv, event->nsend};
    u32 op = event->op;
    int has_src, has_dst;

    if (op & XCCL_STEP_SRC)
        src = side_of(block, &window, tile, event->src_buffer, event->src, event->src_size);
    if (op & XCCL_STEP_DST)
        dst = side_of(block, &window, tile, event->dst_buffer, event->dst, event->dst_size);
    has_src = is_there(src.bytes, op, XCCL_STEP_SRC, event->src_buffer);
    has_dst = is_there(dst.bytes, op, XCCL_STEP_DST, event->dst_buffer);
    move.src = src.at;
    move.dst = dst.at;
    if (op & XCCL_STEP_XCHG) {
        move.bytes = dst.bytes;
        move.send_bytes = src.bytes;
        if (!src.ends && !has_src)
            move.nsend = 0;
        if (!dst.ends && !has_dst)
            move.nrecv = 0;
        return move;
    }
    /* Of scratch memory, and of relays, which name no memory, the other side knows more. */
    move.bytes = (op & XCCL_STEP_SRC) && (src.sized || !dst.sized) ? src.bytes : dst.bytes;
    move.send_bytes = move.bytes;
    if (!is_there(move.bytes, op, XCCL_STEP_SRC, event->src_buffer) &&
        !is_there(move.bytes, op, XCCL_STEP_DST, event->dst_buffer))
        move.nrecv = move.nsend = 0;
    return move;
}

/* --- one move --- */

/* What of a move is done at a time: all of it, or a half of an exchange. */
struct half {
    int has_src, has_dst; /* memory takes part */
    u32 nrecv, nsend, bytes;
    int finishes; /* POST counts */
};

/* The fans of a move: the owners wait, and everybody's list of sources and destinations is made. */
XD_FN_COLD void gather(struct block *block, const struct xccl_dev_event *event,
                       const struct move *move, const struct half *half)
{
    const u32 proto = block->plan.proto;
    const int has_src = half->has_src, has_dst = half->has_dst;
    u32 src_at = event->flags & XCCL_FLAG_ORDERED ? event->src_at : 0;

    if (xd_thread() == 0) {
        if (has_src)
            block->in[src_at] = pointer_to<char>(move->src);
        if (has_dst)
            block->out[0] = pointer_to<char>(move->dst);
    }
#pragma unroll 1
    for (u32 k = 0; k < half->nsend; k++) {
        struct xccl_dev_link *link = link_at(block, event->send + k);
        u32 place = k + (u32)has_dst;

        if (!is_mine(event->send + k))
            continue;
        wait_credit(block, link);
        block->out[place] = slot_payload(link);
        if (proto != XCCL_DEV_SIMPLE) {
            begin_lines(block, link, proto);
            block->out[place] += proto == XCCL_DEV_LL ? LL_FIRST : LL128_FIRST;
            block->out_flag[place] = link->step + 1;
            block->out_fill[place] = fill_of(link);
        }
    }
#pragma unroll 1
    for (u32 k = 0; k < half->nrecv; k++) {
        struct xccl_dev_link *link = link_at(block, event->recv + k);
        u32 place = k + (u32)(has_src && k >= src_at);

        if (!is_mine(event->recv + k))
            continue;
        block->in[place] = slot_payload(link);
        if (proto == XCCL_DEV_SIMPLE) {
            wait_simple(block, link, block->flag_low, move->bytes);
        } else {
            check_lines(block, link, proto);
            block->in[place] += proto == XCCL_DEV_LL ? LL_FIRST : LL128_FIRST;
            block->in_flag[place] = link->step + 1;
        }
    }
}

/* The slots' senders may write to them again. */
XD_FN void tell_heads(struct block *block, const struct xccl_dev_event *event,
                      const struct half *half)
{
#pragma unroll 1
    for (u32 k = 0; k < half->nrecv; k++) {
        struct xccl_dev_link *link = link_at(block, event->recv + k);

        if (!is_mine(event->recv + k))
            continue;
        link_advance(link);
        xd_store_volatile_u32(pointer_to<void>(link->head), link->step);
    }
}

/* A fence waits for all that was stored. One does for all links of a thread, and for the threads of
 * a warp, which come to it together. */
XD_FN void publish_simple(struct block *block, const struct xccl_dev_event *event,
                          const struct half *half)
{
    int owns = 0;

#pragma unroll 1
    for (u32 k = 0; k < half->nsend; k++) {
        if (!is_mine(event->send + k))
            continue;
        size_simple(link_at(block, event->send + k), half->bytes);
        owns = 1;
    }
#pragma unroll 1
    for (u32 k = 0; k < half->nrecv; k++)
        owns |= is_mine(event->recv + k);
    if (!owns)
        return;
    /* Release: what all threads stored before the barrier, and the sizes, before the flags; their
     * loads before the heads. Pairs with wait_simple() and wait_credit(). */
    xd_fence_release();
#pragma unroll 1
    for (u32 k = 0; k < half->nsend; k++) {
        struct xccl_dev_link *link = link_at(block, event->send + k);

        if (!is_mine(event->send + k))
            continue;
        xd_store_volatile_u64(slot_header(link), flag_simple(link, block->flag_low));
        link_advance(link);
    }
    tell_heads(block, event, half);
}

/* What was loaded from lines had been used before the barrier, so the loads are done, and a plain
 * order of issue will do. */
XD_FN void publish_lines(struct block *block, const struct xccl_dev_event *event,
                         const struct half *half)
{
#pragma unroll 1
    for (u32 k = 0; k < half->nsend; k++)
        if (is_mine(event->send + k))
            link_advance(link_at(block, event->send + k));
    tell_heads(block, event, half);
}

/* Behind the data and a barrier. */
XD_FN_COLD void publish(struct block *block, const struct xccl_dev_event *event,
                        const struct half *half)
{
    if (block->plan.proto == XCCL_DEV_SIMPLE)
        publish_simple(block, event, half);
    else
        publish_lines(block, event, half);
}

XD_FN_COLD void set_effect(struct block *block, const struct xccl_dev_event *event,
                           const struct half *half)
{
    struct effect *effect = &block->effect;

    effect->nin = half->nrecv + (u32)half->has_src;
    effect->nout = half->nsend + (u32)half->has_dst;
    effect->local = !half->has_src                     ? effect->nin
                    : event->flags & XCCL_FLAG_ORDERED ? event->src_at
                                                       : 0;
    effect->has_dst = (u32)half->has_dst;
    effect->pre = half->has_src && (event->flags & XCCL_FLAG_PRE) &&
                          (block->plan.flags & XCCL_DEV_PRE)
                      ? effect->local
                      : effect->nin;
    effect->post = half->finishes && (event->flags & XCCL_FLAG_POST) &&
                   (block->plan.flags & XCCL_DEV_POST);
    effect->acc = half->has_dst && (event->op & XCCL_STEP_ACC);
    effect->scalar = block->work.scalar;
}

/* Takes the sources to the destinations. 0: the block has failed. */
template <class N, u32 FN>
XD_FN int transfer(struct block *block, const struct xccl_dev_event *event, const struct move *move,
                   const struct half *half)
{
    const u32 proto = block->plan.proto;

    if (xd_thread() == 0)
        set_effect(block, event, half);
    gather(block, event, move, half);
    xd_sync();
    if (has_failed(block))
        return 0;
    if (half->bytes && (half->nrecv || half->has_src)) {
        if (proto == XCCL_DEV_SIMPLE)
            move_slice<N, FN>(block, half->bytes);
        else if (proto == XCCL_DEV_LL)
            move_ll<N, FN>(block, half->bytes);
        else
            move_ll128<N, FN>(block, half->bytes);
    }
    xd_sync();
    if (has_failed(block))
        return 0;
    publish(block, event, half);
    return 1;
}

/* 0: the block has failed. An exchange sends first, then receives; there is one copy of all that
 * moves data in a kernel. */
template <class N, u32 FN>
XD_FN int run_event(struct block *block, const struct xccl_dev_event *event, u32 tile)
{
    struct move move = make_move(block, event, tile);
    int has_src = (event->op & XCCL_STEP_SRC) && event->src_buffer != XCCL_BUFFER_ZERO;
    int has_dst = (event->op & XCCL_STEP_DST) && event->dst_buffer != XCCL_BUFFER_ZERO;
    int exchanges = event->op & XCCL_STEP_XCHG;

#pragma unroll 1
    for (int receives = !exchanges; receives < 2; receives++) {
        int takes = !exchanges || receives, gives = !exchanges || !receives;
        struct half half = {has_src && gives,
                            has_dst && takes,
                            takes ? move.nrecv : 0,
                            gives ? move.nsend : 0,
                            takes ? move.bytes : move.send_bytes,
                            takes};

        if (!half.nrecv && !half.nsend && (exchanges || !half.bytes))
            continue;
        if (!transfer<N, FN>(block, event, &move, &half))
            return 0;
    }
    return 1;
}

/* --- waits and signals of steps --- */

XD_FN u64 *signal_at(const struct block *block, u32 signal)
{
    return pointer_to<u64>(block->plan.signals) + (u64)signal * block->plan.channels +
           block->channel;
}

/* In so many tiles of this operation. Numbers of operations are equal or not, never before or
 * after: those of a new plan begin anywhere, with signals that are 0. */
XD_FN int is_given(u64 signal, u64 seq, u32 tiles)
{
    return signal >> 32 == (u32)seq && (u32)signal >= tiles;
}

/* All threads; 0: the block has failed. */
XD_FN_COLD int wait_signals(struct block *block, const struct xccl_dev_event *event, u32 tile)
{
    if (xd_thread() == 0) {
#pragma unroll 1
        for (u32 i = 0; i < event->nwaits; i++) {
            u32 dist = event->wait[i].dist, rounds = 0;
            if (tile < dist)
                continue;
            /* Acquire: what the other lane did before it. Pairs with give_signal(). */
            while (!is_given(xd_load_acquire_u64(signal_at(block, event->wait[i].signal)),
                             block->seq, tile - dist + 1))
                if (wait_round(block, &rounds))
                    break;
        }
    }
    xd_sync();
    return !has_failed(block);
}

XD_FN_COLD void give_signal(struct block *block, const struct xccl_dev_event *event, u32 tile)
{
    xd_sync();
    /* Release: all of this lane's stores and loads so far, for a barrier lies before it. */
    if (xd_thread() == 0)
        xd_store_release_u64(signal_at(block, event->signal), block->seq << 32 | (tile + 1));
}

/* --- the way of a lane --- */

template <class T> XD_FN void copy_words(T *to, const T *from, u32 count)
{
    const u64 *in = (const u64 *)from;
    u64 *out = (u64 *)to;

#pragma unroll 1
    for (u32 i = xd_thread(); i < count * (u32)(sizeof(T) / 8); i += xd_threads())
        out[i] = in[i];
}

/* The events [first, end) of the lane for one tile; 0: the block has failed. near: which are in
 * shared memory, from this one on. */
template <class N, u32 FN>
XD_FN int run_events(struct block *block, u32 first, u32 end, u32 tile, u32 *near)
{
    const struct xccl_dev_event *events = pointer_to<struct xccl_dev_event>(block->plan.events) +
                                          block->lane.event0;

#pragma unroll 1
    for (u32 at = first; at < end; at++) {
        const struct xccl_dev_event *event;
        u32 batch = at / EVENTS_NEAR * EVENTS_NEAR, rest = block->lane.nevents - batch;

        if (batch != *near) {
            xd_sync();
            copy_words(block->events, events + batch, rest < EVENTS_NEAR ? rest : EVENTS_NEAR);
            xd_sync();
            *near = batch;
        }
        event = &block->events[at - batch];
        if (event->nwaits && !wait_signals(block, event, tile))
            return 0;
        if (!run_event<N, FN>(block, event, tile))
            return 0;
        if (event->step_end && event->signal != XCCL_DEV_NO_SIGNAL)
            give_signal(block, event, tile);
    }
    return 1;
}

XD_FN u32 step_end(const struct block *block, u32 at)
{
    const struct xccl_dev_event *events = pointer_to<struct xccl_dev_event>(block->plan.events) +
                                          block->lane.event0;

    while (!events[at].step_end)
        at++;
    return at + 1;
}

template <class N, u32 FN> XD_FN int run_lane(struct block *block)
{
    u32 near = 0, end; /* the first events are there */

    for (u32 at = 0; at < block->lane.nevents; at = end) {
        end = block->lane.order == XCCL_TILE_MAJOR ? block->lane.nevents : step_end(block, at);
#pragma unroll 1
        for (u32 tile = 0; tile < block->plan.tiles; tile++)
            if (!run_events<N, FN>(block, at, end, tile, &near))
                return 0;
    }
    return 1;
}

/* --- the whole --- */

/* Two stores of 16 bytes that are valid by themselves: no order is asked for, which would take
 * longer than a small operation. */
XD_FN void tell_start(const struct block *block)
{
    struct xccl_dev_start *start = &block->status->starts[block->seq % XCCL_DEV_STARTS];

    xd_store_volatile_2x64(&start->mark, block->mark, block->seq);
    xd_store_volatile_2x64(&start->seq, block->seq, block->plan.id << 32 | (u32)block->seq);
}

/* As xccl_flag_low() of the host. */
XD_FN u64 mixed_low(u64 signature, u64 seq)
{
    u64 mixed = signature ^ seq * 0x9e3779b97f4a7c15ull;

    return (u32)(mixed ^ mixed >> 32);
}

/* As xccl_mark_after() of the host. */
XD_FN u64 mark_after(u64 mark, u64 signature)
{
    u64 mixed = (mark ^ signature) * 0xd6e8feb86659fd93ull;

    return mixed ^ mixed >> 32;
}

/* Thread 0, when the block is done: the last block says that the operation is. Nobody takes that
 * for more: buffers are the program's when its stream says so, and what follows in streams comes
 * after the end of the kernel. */
XD_FN void tell_end(struct block *block)
{
    struct xccl_dev_comm *comm = pointer_to<struct xccl_dev_comm>(block->work.comm);

    if (block->work.nblocks > 1) {
        if (xd_add_u32(&comm->blocks_done, 1) + 1 != block->work.nblocks)
            return;
        xd_store_volatile_u32(&comm->blocks_done, 0);
    }
    xd_store_volatile_u64(&comm->mark, mark_after(block->mark, block->plan.signature));
    xd_store_volatile_u64(&comm->seq, block->seq);
    xd_store_volatile_u64(&block->status->done, block->seq);
}

/* The state of links that other bindings use too comes from its home, and goes back there. */
XD_FN_COLD void visit_homes(struct block *block, int back)
{
#pragma unroll 1
    for (u32 i = xd_thread(); i < block->lane.nconns; i += xd_threads()) {
        struct xccl_dev_link *link = link_at(block, i);
        struct xccl_dev_home *home = block->homes + link->home;

        if (!link->home)
            continue;
        if (back) {
            home->step = link->step;
            home->slot = link->slot;
            home->limit = link->limit;
            home->seen = link->seen;
        } else {
            link->step = home->step;
            link->slot = home->slot;
            link->limit = home->limit;
            link->seen = home->seen;
        }
    }
}

XD_FN struct xccl_dev_link *far_links(const struct block *block, const struct xccl_dev_lane *lane,
                                      u32 channel)
{
    return pointer_to<struct xccl_dev_link>(block->plan.links) +
           (u64)lane->conn0 * block->plan.link_channels + channel;
}

#define LINK_WORDS (u32)(sizeof(struct xccl_dev_link) / 8)

/* The lane's links of this channel: copied if there are few, else used where they are. */
XD_FN void fetch_links(struct block *block, const struct xccl_dev_lane *lane, u32 channel)
{
    const u64 *far = (const u64 *)far_links(block, lane, channel);
    u32 step = block->plan.link_channels;
    int is_near = lane->nconns <= LINKS_NEAR;

#pragma unroll 1
    for (u32 i = xd_thread(); is_near && i < lane->nconns * LINK_WORDS; i += xd_threads())
        ((u64 *)block->links)[i] = far[(u64)(i / LINK_WORDS) * step * LINK_WORDS + i % LINK_WORDS];
    if (xd_thread() == 0) {
        block->table = is_near ? block->links : far_links(block, lane, channel);
        block->table_step = is_near ? 1 : step;
    }
}

/* To where they were. */
XD_FN void return_links(struct block *block)
{
    u64 *far = (u64 *)far_links(block, &block->lane, block->channel);
    u32 step = block->plan.link_channels;
    int is_near = block->lane.nconns <= LINKS_NEAR;

#pragma unroll 1
    for (u32 i = xd_thread(); is_near && i < block->lane.nconns * LINK_WORDS; i += xd_threads())
        far[(u64)(i / LINK_WORDS) * step * LINK_WORDS + i % LINK_WORDS] = ((u64 *)block->links)[i];
}

/* What it is all about: the plan, the communicator's words and the work are fetched side by side.
 * works: from that of the first block on. Returns the block's number in its work. */
template <class N>
XD_FN u32 open_work(struct block *block, const struct xccl_dev_work *works, u32 nworks)
{
    const struct xccl_dev_work *work = works;

    while (work + 1 < works + nworks && xd_block() >= work[1].block0)
        work++;
    copy_words(&block->plan, pointer_to<struct xccl_dev_plan>(work->plan), 1);
    if (xd_thread() == 32) {
        const struct xccl_dev_comm *comm = pointer_to<struct xccl_dev_comm>(work->comm);

        block->status = pointer_to<struct xccl_dev_status>(comm->status);
        block->homes = pointer_to<struct xccl_dev_home>(comm->homes);
        block->seq = xd_load_volatile_u64(&comm->seq) + 1;
        block->mark = xd_load_volatile_u64(&comm->mark);
    }
    if (xd_thread() == 0) {
        block->work = *work;
        block->failed = has_fault(work->comm);
        if (work->scalar_at)
            block->work.scalar = N::element_scalar(*pointer_to<typename N::code>(work->scalar_at));
    }
    return xd_block() - work->block0;
}

/* By itself: parameters are read in another way than memory, which a pointer to either hides. */
template <class N> XD_FN_COLD u32 open_far(struct block *block, u64 works, u32 nworks)
{
    return open_work<N>(block, pointer_to<struct xccl_dev_work>(works), nworks);
}

template <class N> XD_FN u32 open_block(struct block *block, const struct xccl_dev_launch *launch)
{
    if (launch->far)
        return open_far<N>(block, launch->far, launch->nworks);
    return open_work<N>(block, launch->works, launch->nworks);
}

/* Behind a barrier: the lane, its links and its first events. */
XD_FN void open_lane(struct block *block, u32 number)
{
    const struct xccl_dev_lane lane = pointer_to<struct xccl_dev_lane>(
        block->plan.lanes)[number / block->plan.channels];
    u32 channel = number % block->plan.channels;

    fetch_links(block, &lane, channel);
    copy_words(block->events, pointer_to<struct xccl_dev_event>(block->plan.events) + lane.event0,
               lane.nevents < EVENTS_NEAR ? lane.nevents : EVENTS_NEAR);
    if (xd_thread() == 0) {
        block->lane = lane;
        block->channel = channel;
        block->flag_low = (u32)mixed_low(block->plan.signature ^ block->mark, block->seq);
    }
    if (xd_thread() == 32 && number == 0)
        tell_start(block);
}

template <class N> XD_FN void run_block(struct block *block, const struct xccl_dev_launch *launch)
{
    u32 number = open_block<N>(block, launch);
    int is_done;

    xd_sync();
    if (has_failed(block))
        return;
    open_lane(block, number);
    xd_sync();
    if (block->homes) {
        visit_homes(block, 0);
        xd_sync();
    }
    switch (block->plan.fn) {
#if !defined(XCCL_DEV_COPIES)
    case XCCL_DEV_PROD:
        is_done = run_lane<N, XCCL_DEV_PROD>(block);
        break;
    case XCCL_DEV_MAX:
        is_done = run_lane<N, XCCL_DEV_MAX>(block);
        break;
    case XCCL_DEV_MIN:
        is_done = run_lane<N, XCCL_DEV_MIN>(block);
        break;
#endif
    default:
        is_done = run_lane<N, XCCL_DEV_SUM>(block);
        break;
    }
    xd_sync();
    if (!is_done)
        return;
    if (block->homes)
        visit_homes(block, 1);
    return_links(block);
    if (xd_thread() == 0)
        tell_end(block);
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* What the threads of a block share, and how they wait. Each link belongs to one thread of the
 * block, always the same: it waits for credits and messages, and gives them; barriers pass on what
 * it has seen. A wait that ends because of an error or an abort marks the block as failed, and all
 * of it stops at the next barrier. */
#ifndef XCCL_EXEC_CUDA_DEV_BLOCK_H
#define XCCL_EXEC_CUDA_DEV_BLOCK_H

#include "exec/cuda/dev_number.h"
#include "schedule/step_codes.h"

#define LINKS_NEAR  96 /* of a lane, that are kept in shared memory */
#define EVENTS_NEAR 16
#define FAN         XCCL_DEV_FAN_MAX
#define LOOK_EVERY  64u /* rounds of a wait between looks at the host's word, across PCIe */
#define CLEAN_EVERY (1u << 30)

/* What a move does with elements besides combining them. */
struct effect {
    u64 scalar;
    u32 nin, nout;
    u32 local; /* this one of the sources is memory, the others are messages; nin: none */
    u32 has_dst; /* 1: the first destination is memory, the others are slots */
    u32 pre; /* this one of the sources is scaled first; nin: none */
    u32 acc; /* 1: the first destination is added to */
    u32 post; /* 1: the value is divided */
};

struct block {
    struct xccl_dev_plan plan;
    struct xccl_dev_work work;
    struct xccl_dev_lane lane;
    struct xccl_dev_link links[LINKS_NEAR];
    struct xccl_dev_event events[EVENTS_NEAR];
    struct xccl_dev_link
        *table; /* the lane's links of this channel: near, or in the plan's table */
    u32 table_step; /* from link to link, in entries */
    u32 channel, flag_low;
    u64 seq, mark;
    struct xccl_dev_status *status;
    struct xccl_dev_home *homes; /* of the communicator; NULL: no link has one */
    /* Of the move at hand: messages and slots, by place in the fan. */
    const char *in[FAN + 2];
    char *out[FAN + 2];
    u32 in_flag[FAN + 2], out_flag[FAN + 2]; /* LL, LL128: step + 1 */
    u32 out_fill[FAN + 2]; /* likewise: bytes to be written at least */
    struct effect effect;
    u32 failed; /* 1: the block is to end */
    u64 waits_since; /* of a wait that has lasted: when it was looked at first */
};

template <class T> XD_FN T *pointer_to(u64 address)
{
    return (T *)(uintptr_t)address;
}

XD_FN int has_failed(struct block *block)
{
    return xd_load_volatile_u32(&block->failed) != 0;
}

/* 1: a kernel of the communicator has given up. Its operation has not ended, so the next one would
 * take its number; and all that were launched behind it would look for the host's word in turn. */
XD_FN u32 has_fault(u64 comm)
{
    return xd_load_volatile_u32(&pointer_to<struct xccl_dev_comm>(comm)->faults) != 0;
}

/* Anybody of the block; the rest sees it in a while. Of all threads of the communicator's blocks
 * the first one says what it found, in one store, so that no two errors are mixed. */
XD_FN_COLD void fail(struct block *block, u32 error, u32 peer)
{
    struct xccl_dev_comm *comm = pointer_to<struct xccl_dev_comm>(block->work.comm);

    if (xd_add_u32(&comm->faults, 1) == 0 && error != XCCL_DEV_ABORTED)
        /* Release: what the device did before it. Pairs with the host's look. */
        xd_store_release_u64(&block->status->error, (u64)peer << 32 | error);
    xd_store_volatile_u32(&block->failed, 1);
}

/* 1: the block has waited too long. The clock begins with the first look of a thread's wait; others
 * that begin theirs set it forward, for then something has moved. The host's own deadline is
 * shorter: it has not been heard of, since it was stopped. */
XD_FN int is_late(struct block *block, int is_first)
{
    u64 limit = pointer_to<struct xccl_dev_comm>(block->work.comm)->limit_ns, now = xd_clock_ns();

    if (is_first)
        xd_store_volatile_u64(&block->waits_since, now);
    return limit && !is_first && now - xd_load_volatile_u64(&block->waits_since) > limit;
}

/* The slow part of a wait: 1 when it is to end. */
XD_FN_COLD int is_over(struct block *block, int is_first)
{
    if (has_failed(block))
        return 1;
    if (xd_load_volatile_u32(&block->status->abort))
        fail(block, XCCL_DEV_ABORTED, 0);
    else if (is_late(block, is_first))
        fail(block, XCCL_DEV_LATE, XCCL_DEV_NO_PEER);
    else
        return 0;
    return 1;
}

/* One round of a wait; 1 when it is to end. */
XD_FN int wait_round(struct block *block, u32 *rounds)
{
    xd_poll();
    if (++*rounds % LOOK_EVERY)
        return 0;
    if (!*rounds) /* 0 would be the first look once more */
        *rounds = CLEAN_EVERY;
    return is_over(block, *rounds == LOOK_EVERY);
}

XD_FN struct xccl_dev_link *link_at(struct block *block, u32 number)
{
    return block->table + (u64)number * block->table_step;
}

XD_FN_COLD u32 owner_far(u32 number)
{
    return number % xd_threads();
}

/* A remainder takes twenty instructions, and this is asked for every link. */
XD_FN int is_mine(u32 number)
{
    return (number < xd_threads() ? number : owner_far(number)) == xd_thread();
}

XD_FN char *slot_payload(const struct xccl_dev_link *link)
{
    return pointer_to<char>(link->payload + (u64)link->slot * link->payload_stride);
}

XD_FN char *slot_header(const struct xccl_dev_link *link)
{
    return pointer_to<char>(link->header + (u64)link->slot * link->header_stride);
}

XD_FN void link_advance(struct xccl_dev_link *link)
{
    link->step++;
    if (++link->slot == link->nslots)
        link->slot = 0;
}

/* Until the slot is free. */
XD_FN void wait_credit(struct block *block, struct xccl_dev_link *link)
{
    u32 rounds = 0;

    while ((int32_t)(link->step - link->limit) >= 0) {
        /* Acquire: the reader's loads from the slot come before our stores. Pairs with give_back().
         */
        link->limit = xd_load_acquire_u32(pointer_to<void>(link->head)) + link->nslots;
        if ((int32_t)(link->step - link->limit) >= 0 && wait_round(block, &rounds))
            return;
    }
}

/* After a barrier behind the last load from the slot. */
XD_FN void give_back(struct xccl_dev_link *link)
{
    link_advance(link);
    /* Release: the block's loads before it. Pairs with wait_credit(). */
    xd_store_release_u32(pointer_to<void>(link->head), link->step);
}

#endif

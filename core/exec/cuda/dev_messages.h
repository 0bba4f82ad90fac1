/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends and receives: a block is a pair's channel, and has a list of sends and one of receives,
 * which never wait for each other. Whichever can move next does: one thread looks at both, and all
 * move a slot's worth of bytes. An item without a link keeps a place and is passed over; messages
 * of one link are on one list. */
#ifndef XCCL_EXEC_CUDA_DEV_MESSAGES_H
#define XCCL_EXEC_CUDA_DEV_MESSAGES_H

#include "exec/cuda/dev_simple.h"

#define PART_LEAST (16u << 10) /* of a message: smaller ones have fewer parts */
#define PART_ALIGN 64u

/* One of the two lists. */
struct list {
    const struct xccl_dev_item *items;
    u32 next, count, step; /* items of this pair: next, next + step, ... */
    struct xccl_dev_link *link; /* of the item at work; NULL: none */
    u64 at, left; /* of this channel's part of it */
    u32 empty; /* 1: the part is one message without bytes */
    u32 flag_low;
};

enum choice { CHOOSE_NONE, CHOOSE_SEND, CHOOSE_RECEIVE, CHOOSE_END };

struct pair_block {
    struct block block;
    struct xccl_dev_messages work;
    struct list sends, receives;
    u32 choice, bytes;
};

/* This channel's part of an item; 0: none. */
XD_FN int take_part(struct list *list, const struct xccl_dev_item *item, u32 channel, u32 channels)
{
    u64 part = (item->bytes + channels - 1) / channels, first;

    part = part < PART_LEAST ? PART_LEAST : (part + PART_ALIGN - 1) & ~(u64)(PART_ALIGN - 1);
    first = part * channel;
    list->empty = item->bytes == 0 && channel == 0;
    if (first >= item->bytes && !list->empty)
        return 0;
    list->at = item->at + first;
    list->left = item->bytes - first < part ? item->bytes - first : part;
    list->link = pointer_to<struct xccl_dev_link>(item->link) + channel;
    list->flag_low = item->flag_low;
    return 1;
}

/* To the next item that has a part for this channel, if none is at work. */
XD_FN void advance_list(struct list *list, u32 channel, u32 channels)
{
    while (!list->link && list->next < list->count) {
        const struct xccl_dev_item *item = &list->items[list->next];

        list->next += list->step;
        if (item->link)
            (void)take_part(list, item, channel, channels);
    }
}

XD_FN u32 slot_part(const struct list *list)
{
    return list->left < list->link->slot_bytes ? (u32)list->left : list->link->slot_bytes;
}

XD_FN int can_send(struct list *list)
{
    struct xccl_dev_link *link = list->link;

    if (!link)
        return 0;
    if ((int32_t)(link->step - link->limit) >= 0)
        /* Acquire: as wait_credit(). */
        link->limit = xd_load_acquire_u32(pointer_to<void>(link->head)) + link->nslots;
    return (int32_t)(link->step - link->limit) < 0;
}

/* The item at work; NULL: none. */
XD_FN const struct xccl_dev_item *item_now(const struct list *list)
{
    return list->link ? &list->items[list->next - list->step] : NULL;
}

/* A slot with so many bytes came in place of the one that the item at work has next. What is said
 * of both messages comes before the error. */
XD_FN_COLD void fail_size(struct pair_block *pair, u32 bytes)
{
    struct block *block = &pair->block;
    struct xccl_dev_status *status = block->status;
    const struct list *list = &pair->receives;
    u64 came = list->at - item_now(list)->at + bytes;
    u32 is_all = bytes < list->link->slot_bytes && (pair->work.channels == 1 || came < PART_LEAST);

    if (xd_add_u32(&pointer_to<struct xccl_dev_comm>(block->work.comm)->faults, 1) == 0) {
        xd_store_volatile_u64(&status->bytes_wanted, item_now(list)->bytes);
        xd_store_volatile_u64(&status->bytes_came, came << 1 | is_all);
        /* Release: as fail(). */
        xd_store_release_u64(&status->error, (u64)list->link->peer << 32 | XCCL_DEV_OTHER_SIZE);
    }
    xd_store_volatile_u32(&block->failed, 1);
}

XD_FN int can_receive(struct pair_block *pair)
{
    const struct list *list = &pair->receives;
    struct xccl_dev_link *link = list->link;
    u64 seen, flag;

    if (!link)
        return 0;
    flag = (u64)(link->step + 1) << 32 | list->flag_low;
    /* Acquire: as wait_simple(). */
    seen = xd_load_acquire_u64(slot_header(link));
    if (seen == flag && xd_load_volatile_u32(slot_header(link) + 8) == slot_part(list))
        return 1;
    if (seen >> 32 == flag >> 32)
        fail_size(pair, xd_load_volatile_u32(slot_header(link) + 8));
    return 0;
}

/* 1: an item of another peer comes behind the one at work. */
XD_FN int has_others(const struct list *list)
{
    for (u32 i = list->next; list->link && i < list->count; i += list->step)
        if (list->items[i].link &&
            pointer_to<struct xccl_dev_link>(list->items[i].link)->peer != list->link->peer)
            return 1;
    return 0;
}

/* Thread 0, in a wait that lasts: says what this block waits for, if the host asks. */
XD_FN_COLD void tell_stand(struct pair_block *pair)
{
    struct xccl_dev_status *status = pair->block.status;
    const struct xccl_dev_comm *comm = pointer_to<struct xccl_dev_comm>(pair->work.comm);
    const struct list *lists[2] = {&pair->receives, &pair->sends};
    u32 number = xd_block() - pair->work.block0, ask = xd_load_volatile_u32(&status->ask);
    struct xccl_dev_stand *stand = &status->stands[number];

    if (!ask || number >= XCCL_DEV_STANDS)
        return;
    for (u32 i = 0; i < 2; i++) {
        const struct xccl_dev_item *item = item_now(lists[i]);

        xd_store_volatile_u64(&stand->bytes[i], item ? item->bytes : 0);
        xd_store_volatile_u32(&stand->peers[i], item ? lists[i]->link->peer : XCCL_DEV_NO_PEER);
    }
    xd_store_volatile_u32(&stand->blocks, pair->work.nblocks << 16 |
                                              xd_load_volatile_u32(&comm->message_blocks_done));
    /* Release: all of it before it is believed. Pairs with the host's look. */
    xd_store_release_u32(&stand->ask,
                         ask << 1 | (u32)(has_others(lists[0]) || has_others(lists[1])));
}

/* Thread 0: what moves next. */
XD_FN_COLD void choose(struct pair_block *pair, u32 channel)
{
    struct block *block = &pair->block;
    u32 rounds = 0;

    pair->choice = CHOOSE_NONE;
    while (pair->choice == CHOOSE_NONE && !has_failed(block)) {
        advance_list(&pair->sends, channel, pair->work.channels);
        advance_list(&pair->receives, channel, pair->work.channels);
        if (can_receive(pair))
            pair->choice = CHOOSE_RECEIVE;
        else if (can_send(&pair->sends))
            pair->choice = CHOOSE_SEND;
        else if (!pair->sends.link && !pair->receives.link)
            pair->choice = CHOOSE_END;
        else if (wait_round(block, &rounds))
            pair->choice = CHOOSE_END;
        else if (rounds % LOOK_EVERY == 0)
            tell_stand(pair);
    }
    if (has_failed(block))
        pair->choice = CHOOSE_END;
    if (pair->choice == CHOOSE_SEND) {
        pair->bytes = slot_part(&pair->sends);
        block->in[0] = pointer_to<char>(pair->sends.at);
        block->out[0] = slot_payload(pair->sends.link);
    } else if (pair->choice == CHOOSE_RECEIVE) {
        pair->bytes = slot_part(&pair->receives);
        block->in[0] = slot_payload(pair->receives.link);
        block->out[0] = pointer_to<char>(pair->receives.at);
    }
}

/* Thread 0, behind the data and a barrier. */
XD_FN_COLD void finish_choice(struct pair_block *pair)
{
    struct list *list = pair->choice == CHOOSE_SEND ? &pair->sends : &pair->receives;

    if (pair->choice == CHOOSE_SEND)
        post_simple(list->link, list->flag_low, pair->bytes);
    else
        give_back(list->link);
    list->at += pair->bytes;
    list->left -= pair->bytes;
    if (!list->left)
        list->link = NULL;
}

XD_FN struct list list_of(const struct pair_block *pair, const struct xccl_dev_item *here,
                          u64 elsewhere, u32 count, u32 number)
{
    struct list list = {elsewhere ? pointer_to<struct xccl_dev_item>(elsewhere) : here,
                        number,
                        count,
                        pair->work.pairs,
                        NULL,
                        0,
                        0,
                        0,
                        0};

    return list;
}

XD_FN void open_pair(struct pair_block *pair, const struct xccl_dev_messages_launch *launch)
{
    struct block *block = &pair->block;
    const struct xccl_dev_messages *works = launch->far
                                                ? pointer_to<struct xccl_dev_messages>(launch->far)
                                                : launch->works;
    const struct xccl_dev_comm *comm;
    u32 at = 0, number;

    while (at + 1 < launch->nworks && xd_block() >= works[at + 1].block0)
        at++;
    pair->work = works[at];
    number = xd_block() - pair->work.block0;
    comm = pointer_to<struct xccl_dev_comm>(pair->work.comm);
    block->status = pointer_to<struct xccl_dev_status>(comm->status);
    block->work.comm = pair->work.comm;
    block->failed = has_fault(pair->work.comm);
    block->effect.nin = block->effect.nout = 1;
    block->effect.local = block->effect.pre = 1;
    block->effect.has_dst = block->effect.acc = block->effect.post = 0;
    block->seq = xd_load_volatile_u64(&comm->messages) + 1;
    pair->sends = list_of(pair, launch->items + pair->work.first_item, pair->work.sends,
                          pair->work.nsends, number / pair->work.channels);
    pair->receives = list_of(pair, launch->items + pair->work.first_item + pair->work.nsends,
                             pair->work.receives, pair->work.nreceives,
                             number / pair->work.channels);
    if (number == 0)
        xd_store_release_u64(&block->status->messages_begun, block->seq);
}

XD_FN void close_pair(struct pair_block *pair)
{
    struct xccl_dev_comm *comm = pointer_to<struct xccl_dev_comm>(pair->work.comm);

    /* Acquire and release: all blocks' work before the last one's word. */
    if (xd_add_acq_rel_u32(&comm->message_blocks_done, 1) + 1 != pair->work.nblocks)
        return;
    xd_store_volatile_u32(&comm->message_blocks_done, 0);
    xd_store_volatile_u64(&comm->messages, pair->block.seq);
    xd_store_release_u64(&pair->block.status->messages_done, pair->block.seq);
}

XD_FN void run_pair(struct pair_block *pair, const struct xccl_dev_messages_launch *launch)
{
    u32 channel;

    if (xd_thread() == 0)
        open_pair(pair, launch);
    xd_sync();
    channel = (xd_block() - pair->work.block0) % pair->work.channels;
    for (;;) {
        if (xd_thread() == 0)
            choose(pair, channel);
        xd_sync();
        if (pair->choice == CHOOSE_END)
            break;
        if (pair->bytes)
            move_slice<number_copy, XCCL_DEV_SUM>(&pair->block, pair->bytes);
        xd_sync();
        if (xd_thread() == 0)
            finish_choice(pair);
    }
    if (xd_thread() == 0 && !pair->block.failed)
        close_pair(pair);
}

#endif

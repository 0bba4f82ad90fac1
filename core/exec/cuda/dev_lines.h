/* SPDX-License-Identifier: BSD-3-Clause */
/* Lines that carry their own flags: LL, eight bytes with four of data, and LL128, 128 bytes with
 * 120 of data. Data are used as soon as their flag is there, without fences: an LL line is one
 * store of eight bytes, which no machine tears; the threads of a warp store and load an LL128 line
 * together, which stays whole on devices that links of this kind are chosen for.
 *
 * The first message of an operation on a link is looked at before anybody reads data: the owner of
 * the link waits for the slot's first line, which says whose call it is (check_lines). Later ones
 * rely on step numbers, and on each line being written again before its number comes again. */
#ifndef XCCL_EXEC_CUDA_DEV_LINES_H
#define XCCL_EXEC_CUDA_DEV_LINES_H

#include "exec/cuda/dev_simple.h"

#define LL_FIRST    16u /* bytes of a slot before its data */
#define LL128_FIRST XCCL_DEV_LL128_LINE
#define LL128_WORDS (XCCL_DEV_LL128_DATA / 8)
#define GROUP       8u /* threads of an LL128 line */
#define GROUPS      4u /* of a warp */

/* --- LL --- */

XD_FN u64 poll_line(struct block *block, const char *at, u32 flag)
{
    u64 a, b;
    u32 rounds = 0;

    for (;;) {
        /* Relaxed: each half is one access with its own flag. */
        xd_load_volatile_2x64(at, &a, &b);
        if ((u32)(a >> 32) == flag && (u32)(b >> 32) == flag)
            return (a & 0xffffffffu) | b << 32;
        if (wait_round(block, &rounds))
            return 0;
    }
}

XD_FN void store_line(char *at, u64 data, u32 flag)
{
    u64 high = (u64)flag << 32;

    xd_store_volatile_2x64(at, (data & 0xffffffffu) | high, data >> 32 | high);
}

/* Source i at word w, of so many bytes. */
template <class N> XD_FN u64 ll_source(struct block *block, u32 i, u32 w, u32 bytes)
{
    const struct effect *effect = &block->effect;
    u64 value = i == effect->local
                    ? load_bytes(block->in[i] + 8 * (u64)w, bytes)
                    : poll_line(block, block->in[i] + 16 * (u64)w, block->in_flag[i]);

    return i == effect->pre ? scale_word<N>(value, effect->scalar) : value;
}

template <class N, u32 FN> XD_FN_COLD void move_ll(struct block *block, u32 bytes)
{
    const struct effect *effect = &block->effect;
    u32 words = (bytes + 7) / 8;

#pragma unroll 1
    for (u32 w = xd_thread(); w < words; w += xd_threads()) {
        u32 here = bytes - 8 * w < 8 ? bytes - 8 * w : 8;
        u64 value = ll_source<N>(block, 0, w, here);

#pragma unroll 1
        for (u32 i = 1; i < effect->nin; i++)
            value = combine_word<N, FN>(value, ll_source<N>(block, i, w, here));
        if (effect->acc)
            value = combine_word<N, FN>(load_bytes(block->out[0] + 8 * (u64)w, here), value);
        value = finish_word<N, FN>(effect, value);
        if (effect->has_dst)
            store_bytes(block->out[0] + 8 * (u64)w, value, here);
#pragma unroll 1
        for (u32 i = effect->has_dst; i < effect->nout; i++)
            store_line(block->out[i] + 16 * (u64)w, value, block->out_flag[i]);
    }
#pragma unroll 1
    for (u32 i = effect->has_dst; i < effect->nout; i++)
#pragma unroll 1
        for (u32 w = words + xd_thread(); 8 * w < block->out_fill[i]; w += xd_threads())
            store_line(block->out[i] + 16 * (u64)w, 0, block->out_flag[i]);
}

/* --- LL128 --- */

/* Both words of this thread's place in a line; the warp goes together. active: the group has one.
 */
XD_FN void poll_line128(struct block *block, const char *at, u64 flag, int active, u64 *a, u64 *b)
{
    int is_last = xd_thread() % GROUP == GROUP - 1;
    u32 rounds = 0;

    *a = *b = 0;
    for (;;) {
        int bad = 0;

        xd_load_line_2x64(at, a, b, active);
        if (active && is_last)
            bad = *b != flag;
        if (!xd_any_warp(bad))
            break;
        if (xd_any_warp(wait_round(block, &rounds)))
            break;
    }
}

XD_FN void store_line128(char *at, u64 a, u64 b, u64 flag, int active)
{
    int is_last = xd_thread() % GROUP == GROUP - 1;

    xd_store_line_2x64(at, a, is_last ? flag : b, active);
}

/* Two words of memory from word w on, as far as there are bytes. */
XD_FN void load_two(const char *at, u32 w, u32 bytes, int is_last, u64 *a, u64 *b)
{
    u32 offset = 8 * w;

    *a = offset < bytes ? load_bytes(at + offset, bytes - offset < 8 ? bytes - offset : 8) : 0;
    offset += 8;
    *b = !is_last && offset < bytes
             ? load_bytes(at + offset, bytes - offset < 8 ? bytes - offset : 8)
             : 0;
}

XD_FN void store_two(char *at, u32 w, u32 bytes, int is_last, u64 a, u64 b)
{
    u32 offset = 8 * w;

    if (offset < bytes)
        store_bytes(at + offset, a, bytes - offset < 8 ? bytes - offset : 8);
    offset += 8;
    if (!is_last && offset < bytes)
        store_bytes(at + offset, b, bytes - offset < 8 ? bytes - offset : 8);
}

template <class N, u32 FN> XD_FN_COLD void move_ll128(struct block *block, u32 bytes)
{
    const struct effect *effect = &block->effect;
    const u32 in_line = xd_thread() % GROUP, groups = xd_threads() / GROUP;
    const int is_last = in_line == GROUP - 1;
    u32 lines = (bytes + XCCL_DEV_LL128_DATA - 1) / XCCL_DEV_LL128_DATA;

    /* The lines of a warp's groups are neighbours, and its rounds are the same for all of them. */
#pragma unroll 1
    for (u32 first = xd_thread() / (GROUP * GROUPS) * GROUPS; first < lines; first += groups) {
        u32 line = first + xd_thread() / GROUP % GROUPS, w = line * LL128_WORDS + 2 * in_line;
        u64 place = (u64)line * XCCL_DEV_LL128_LINE + 16 * in_line;
        int active = line < lines;
        u64 a = 0, b = 0;

#pragma unroll 1
        for (u32 i = 0; i < effect->nin; i++) {
            u64 x = 0, y = 0;

            if (i != effect->local)
                poll_line128(block, block->in[i] + place, block->in_flag[i], active, &x, &y);
            else if (active)
                load_two(block->in[i], w, bytes, is_last, &x, &y);
            if (i == effect->pre) {
                x = scale_word<N>(x, effect->scalar);
                y = scale_word<N>(y, effect->scalar);
            }
            a = i ? combine_word<N, FN>(a, x) : x;
            b = i ? combine_word<N, FN>(b, y) : y;
        }
        if (effect->acc && active) {
            u64 x, y;

            load_two(block->out[0], w, bytes, is_last, &x, &y);
            a = combine_word<N, FN>(x, a);
            b = combine_word<N, FN>(y, b);
        }
        a = finish_word<N, FN>(effect, a);
        b = finish_word<N, FN>(effect, b);
        if (effect->has_dst && active)
            store_two(block->out[0], w, bytes, is_last, a, b);
#pragma unroll 1
        for (u32 i = effect->has_dst; i < effect->nout; i++)
            store_line128(block->out[i] + place, a, b, block->out_flag[i], active);
    }
#pragma unroll 1
    for (u32 i = effect->has_dst; i < effect->nout; i++) {
        u32 end = block->out_fill[i] / XCCL_DEV_LL128_DATA;

#pragma unroll 1
        for (u32 line = lines + xd_thread(); line < end; line += xd_threads())
            xd_store_volatile_u64(block->out[i] + (u64)line * XCCL_DEV_LL128_LINE +
                                      XCCL_DEV_LL128_LINE - 8,
                                  block->out_flag[i]);
    }
}

/* --- the owner's part, of both --- */

/* Until the first line of an operation's first message is there, and says that it is of this call.
 */
XD_FN void check_lines(struct block *block, struct xccl_dev_link *link, u32 proto)
{
    const char *slot = slot_payload(link);
    u32 rounds = 0;

    if (link->seen == (u32)block->seq)
        return;
    link->seen = (u32)block->seq;
    for (;;) {
        u64 word = xd_load_volatile_u64(slot), flag = word >> 32, low = (u32)word;

        if (proto == XCCL_DEV_LL128) {
            /* Acquire: what the line says behind its flag. */
            flag = xd_load_acquire_u64(slot + XCCL_DEV_LL128_LINE - 8);
            low = xd_load_volatile_u64(slot);
        }
        if (flag == link->step + 1) {
            if (low != block->flag_low)
                fail(block, XCCL_DEV_OTHER_CALL, link->peer);
            return;
        }
        if (wait_round(block, &rounds))
            return;
    }
}

/* The slot's first line, of every message. */
XD_FN void begin_lines(struct block *block, struct xccl_dev_link *link, u32 proto)
{
    char *slot = slot_payload(link);

    if (proto == XCCL_DEV_LL) {
        xd_store_volatile_u64(slot, (u64)(link->step + 1) << 32 | block->flag_low);
        return;
    }
    xd_store_volatile_u64(slot, block->flag_low);
    /* Release: the line before its flag. Pairs with check_lines(). */
    xd_store_release_u64(slot + XCCL_DEV_LL128_LINE - 8, (u64)(link->step + 1));
}

XD_FN u32 fill_of(const struct xccl_dev_link *link)
{
    return link->step % CLEAN_EVERY < link->nslots ? link->slot_bytes : 0;
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Moving the bytes of one slice between memories: all sources are read, combined and stored to all
 * destinations, each thread at places of its own, which it reads before it writes; so a destination
 * may be one of the sources. Sixteen bytes at a time where all addresses allow it, else eight,
 * four, or an element. The first copies of the loop for few sources and destinations are what
 * collectives spend their time in. */
#ifndef XCCL_EXEC_CUDA_DEV_SIMPLE_H
#define XCCL_EXEC_CUDA_DEV_SIMPLE_H

#include "exec/cuda/dev_block.h"

#define SHAPE(nin, nout) ((nin) << 8 | (nout)) /* fans are narrower */
#define AT_ONCE          4u /* vectors of a thread on their way: what hides the memory's latency */

template <class N, u32 FN> XD_FN u64 finish_word(const struct effect *effect, u64 value)
{
    return effect->post ? divide_word<N>(value, (u32)effect->scalar) : value;
}

template <class N, u32 FN> XD_FN struct xd_vec combine_vec(struct xd_vec x, struct xd_vec y)
{
    x.a = combine_word<N, FN>(x.a, y.a);
    x.b = combine_word<N, FN>(x.b, y.b);
    return x;
}

template <class N> XD_FN struct xd_vec scale_vec(struct xd_vec x, u64 by)
{
    x.a = scale_word<N>(x.a, by);
    x.b = scale_word<N>(x.b, by);
    return x;
}

/* Where vectors come from and go to: kept in registers where their number is known. */
template <u32 NIN, u32 NOUT> struct ends {
    const char *in[NIN ? NIN : 1];
    char *out[NOUT ? NOUT : 1];

    XD_MEMBER explicit ends(const struct block *block)
    {
#pragma unroll
        for (u32 i = 0; i < NIN; i++)
            in[i] = block->in[i];
#pragma unroll
        for (u32 i = 0; i < NOUT; i++)
            out[i] = block->out[i];
    }
    XD_MEMBER struct xd_vec load(const struct block *block, u32 i, u32 at) const
    {
        return xd_load_vec((NIN ? in[NIN ? i : 0] : block->in[i]) + (u64)16 * at);
    }
    XD_MEMBER void store(const struct block *block, u32 i, u32 at, struct xd_vec value) const
    {
        xd_store_vec((NOUT ? out[NOUT ? i : 0] : block->out[i]) + (u64)16 * at, value);
    }
};

/* AT vectors of this thread, `threads` apart from `first` on. NIN, NOUT: how many; 0: as many as
 * the effect says. PLAIN: nothing is scaled, divided, added to. */
template <class N, u32 FN, u32 NIN, u32 NOUT, int PLAIN, u32 AT>
XD_FN void move_some(const struct block *block, const struct ends<NIN, NOUT> *ends, u32 first)
{
    const struct effect *effect = &block->effect;
    const u32 nin = NIN ? NIN : effect->nin, nout = NOUT ? NOUT : effect->nout;
    const u32 threads = xd_threads();
    struct xd_vec value[AT], more[AT];

#pragma unroll
    for (u32 k = 0; k < AT; k++)
        value[k] = ends->load(block, 0, first + k * threads);
    if (!PLAIN && effect->pre == 0)
#pragma unroll
        for (u32 k = 0; k < AT; k++)
            value[k] = scale_vec<N>(value[k], effect->scalar);
#pragma unroll(NIN ? NIN : 1)
    for (u32 i = 1; i < nin; i++) {
#pragma unroll
        for (u32 k = 0; k < AT; k++)
            more[k] = ends->load(block, i, first + k * threads);
#pragma unroll
        for (u32 k = 0; k < AT; k++) {
            if (!PLAIN && effect->pre == i)
                more[k] = scale_vec<N>(more[k], effect->scalar);
            value[k] = combine_vec<N, FN>(value[k], more[k]);
        }
    }
#pragma unroll
    for (u32 k = 0; k < AT; k++) {
        if (!PLAIN && effect->acc)
            value[k] = combine_vec<N, FN>(
                xd_load_vec(block->out[0] + (u64)16 * (first + k * threads)), value[k]);
        if (!PLAIN) {
            value[k].a = finish_word<N, FN>(effect, value[k].a);
            value[k].b = finish_word<N, FN>(effect, value[k].b);
        }
#pragma unroll(NOUT ? NOUT : 1)
        for (u32 i = 0; i < nout; i++)
            ends->store(block, i, first + k * threads, value[k]);
    }
}

template <class N, u32 FN, u32 NIN, u32 NOUT, int PLAIN>
XD_FN_COLD void move_vectors(const struct block *block, u32 count)
{
    const u32 AT = PLAIN ? AT_ONCE : 1;
    const struct ends<NIN, NOUT> ends(block);
    const u32 threads = xd_threads();
    u32 first = xd_thread();

    for (; first + (AT - 1) * threads < count; first += AT * threads)
        move_some<N, FN, NIN, NOUT, PLAIN, AT>(block, &ends, first);
    for (; first < count; first += threads)
        move_some<N, FN, NIN, NOUT, PLAIN, 1>(block, &ends, first);
}

/* --- what is not whole vectors --- */

/* At most 8 bytes at any address, as the low bytes of a word. */
XD_FN u64 load_bytes(const char *at, u32 bytes)
{
    u64 word = 0;

    if (bytes == 8 && (uintptr_t)at % 8 == 0)
        return xd_load_plain_u64(at);
    if (bytes == 4 && (uintptr_t)at % 4 == 0)
        return xd_load_plain_u32(at);
#pragma unroll 1
    for (u32 i = 0; i < bytes; i++)
        word |= (u64)(u8)at[i] << (8 * i);
    return word;
}

XD_FN void store_bytes(char *at, u64 word, u32 bytes)
{
    if (bytes == 8 && (uintptr_t)at % 8 == 0) {
        xd_store_plain_u64(at, word);
        return;
    }
    if (bytes == 4 && (uintptr_t)at % 4 == 0) {
        xd_store_plain_u32(at, (u32)word);
        return;
    }
#pragma unroll 1
    for (u32 i = 0; i < bytes; i++)
        at[i] = (char)(word >> (8 * i));
}

/* The value at a place, of so many bytes. */
template <class N, u32 FN> XD_FN u64 value_at(const struct block *block, u64 offset, u32 bytes)
{
    const struct effect *effect = &block->effect;
    u64 value = load_bytes(block->in[0] + offset, bytes);

    if (effect->pre == 0)
        value = scale_word<N>(value, effect->scalar);
#pragma unroll 1
    for (u32 i = 1; i < effect->nin; i++) {
        u64 more = load_bytes(block->in[i] + offset, bytes);

        if (effect->pre == i)
            more = scale_word<N>(more, effect->scalar);
        value = combine_word<N, FN>(value, more);
    }
    if (effect->acc)
        value = combine_word<N, FN>(load_bytes(block->out[0] + offset, bytes), value);
    return finish_word<N, FN>(effect, value);
}

/* `unit` bytes at a time, and what is left by single elements. */
template <class N, u32 FN>
XD_FN_COLD void move_units(const struct block *block, u32 from, u32 bytes, u32 unit)
{
    const struct effect *effect = &block->effect;

#pragma unroll 1
    for (u32 at = from + xd_thread() * unit; at < bytes; at += xd_threads() * unit) {
        u32 here = bytes - at < unit ? bytes - at : unit;
        u64 value = value_at<N, FN>(block, at, here);

#pragma unroll 1
        for (u32 i = 0; i < effect->nout; i++)
            store_bytes(block->out[i] + at, value, here);
    }
}

/* 16, 8, 4 or 1, as all addresses allow. */
XD_FN u32 common_unit(const struct block *block)
{
    const struct effect *effect = &block->effect;
    u64 all = 0;

    for (u32 i = 0; i < effect->nin; i++)
        all |= (u64)(uintptr_t)block->in[i];
#pragma unroll 1
    for (u32 i = 0; i < effect->nout; i++)
        all |= (u64)(uintptr_t)block->out[i];
    return all % 16 == 0 ? 16 : all % 8 == 0 ? 8 : all % 4 == 0 ? 4 : 1;
}

/* The whole slice. block->in, out and effect are the same for all threads. */
template <class N, u32 FN> XD_FN void move_slice(const struct block *block, u32 bytes)
{
    const struct effect *effect = &block->effect;
    u32 unit = common_unit(block), count = bytes / 16, few = SHAPE(effect->nin, effect->nout);

    if (unit < 16) {
        if (unit < sizeof(typename N::code))
            unit = sizeof(typename N::code);
        move_units<N, FN>(block, 0, bytes, unit);
        return;
    }
    if (effect->pre < effect->nin || effect->acc || effect->post)
        move_vectors<N, FN, 0, 0, 0>(block, count);
    else if (few == SHAPE(1, 1))
        move_vectors<N, FN, 1, 1, 1>(block, count);
    else if (few == SHAPE(1, 2))
        move_vectors<N, FN, 1, 2, 1>(block, count);
    else if (few == SHAPE(2, 1))
        move_vectors<N, FN, 2, 1, 1>(block, count);
    else if (few == SHAPE(2, 2))
        move_vectors<N, FN, 2, 2, 1>(block, count);
    else if (few == SHAPE(3, 1))
        move_vectors<N, FN, 3, 1, 1>(block, count);
    else
        move_vectors<N, FN, 0, 0, 1>(block, count);
    if (count * 16 < bytes)
        move_units<N, FN>(block, count * 16, bytes, sizeof(typename N::code));
}

/* --- slots of SIMPLE links --- */

XD_FN u64 flag_simple(const struct xccl_dev_link *link, u32 flag_low)
{
    return (u64)(link->step + 1) << 32 | flag_low;
}

/* The owner's: until the message is there, with its payload. */
XD_FN void wait_simple(struct block *block, struct xccl_dev_link *link, u32 flag_low, u64 bytes)
{
    const char *header = slot_header(link);
    u64 flag = flag_simple(link, flag_low), seen, size;
    u32 rounds = 0;

    /* Acquire: the payload behind its flag. Pairs with post_simple(), publish_simple(), a proxy or
     * the host. The size comes along and needs no trip of its own. No rule says
     * that it is as new as the flag, but a load of 16 bytes is one transaction; and it is looked at
     * to tell a program's mistake, not to know how much to move. */
    for (;;) {
        xd_load_acquire_2x64(header, &seen, &size);
        if (seen == flag)
            break;
        if (seen >> 32 == flag >> 32) {
            fail(block, XCCL_DEV_OTHER_CALL, link->peer);
            return;
        }
        if (wait_round(block, &rounds))
            return;
    }
    /* Behind the acquire, it is no older than the flag. */
    if ((u32)size != (u32)bytes && xd_load_volatile_u32(header + 8) != (u32)bytes)
        fail(block, XCCL_DEV_OTHER_SIZE, link->peer);
}

XD_FN void size_simple(const struct xccl_dev_link *link, u64 bytes)
{
    char *header = slot_header(link);

    xd_store_volatile_u64(header + 8, (u32)bytes);
    xd_store_volatile_u64(header + 16, 0);
}

/* The owner's, after a barrier behind the block's stores. */
XD_FN void post_simple(struct xccl_dev_link *link, u32 flag_low, u64 bytes)
{
    size_simple(link, bytes);
    /* Release: payload and size before the flag, of all threads, for the barrier lies between. */
    xd_store_release_u64(slot_header(link), flag_simple(link, flag_low));
    link_advance(link);
}

#endif

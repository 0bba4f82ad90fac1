/* SPDX-License-Identifier: BSD-3-Clause */
/* The intrinsics of kernels (core/exec/cuda/intrinsics.h) on the stand-in: each thread of a block
 * is a fiber, and all fibers of a process share one thread, so that a fiber goes on until it polls
 * or comes to a barrier. Accesses are real ones, for other processes look at the same memory.
 *
 * Thread: the stand-in's device thread. */
#ifndef TESTS_EMU_INTRINSICS_EMU_H
#define TESTS_EMU_INTRINSICS_EMU_H

#include <time.h>

#include "emu_fibers.h"

#define XD_KERNEL             extern "C" __attribute__((visibility("default"))) void
#define XD_PARAMETER          const
#define XD_FN                 static inline
#define XD_FN_COLD            static __attribute__((noinline))
#define XD_MEMBER             inline
#define XD_SHARED(type, name) type &name = *(type *)emu_now->block->shared

XD_FN u32 xd_thread()
{
    return emu_now->thread;
}
XD_FN u32 xd_threads()
{
    return EMU_THREADS;
}
XD_FN u32 xd_block()
{
    return emu_now->block->number;
}
XD_FN void xd_sync()
{
    emu_sync_block();
}
XD_FN int xd_any_warp(int truth)
{
    return emu_vote_warp(truth);
}
XD_FN void xd_poll()
{
    emu_poll();
}
XD_FN u64 xd_clock_ns()
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (u64)now.tv_sec * 1000000000u + (u64)now.tv_nsec;
}
XD_FN void xd_nanosleep(u32 ns)
{
    (void)ns;
    emu_poll();
}

XD_FN void seen_by_others()
{
    if (__builtin_expect(emu_is_random, 0))
        emu_lose_turn();
}

XD_FN u32 xd_load_acquire_u32(const void *at)
{
    seen_by_others();
    return __atomic_load_n((const u32 *)at, __ATOMIC_ACQUIRE);
}
XD_FN u64 xd_load_acquire_u64(const void *at)
{
    seen_by_others();
    return __atomic_load_n((const u64 *)at, __ATOMIC_ACQUIRE);
}
XD_FN void check_aligned(const void *at, size_t bytes)
{
    if ((uintptr_t)at % bytes)
        emu_misaligned(at, bytes);
}
XD_FN void xd_load_acquire_2x64(const void *at, u64 *a, u64 *b)
{
    check_aligned(at, 16);
    *b = __atomic_load_n((const u64 *)at + 1, __ATOMIC_RELAXED);
    *a = xd_load_acquire_u64(at);
}
XD_FN void xd_store_release_u32(void *at, u32 value)
{
    seen_by_others();
    __atomic_store_n((u32 *)at, value, __ATOMIC_RELEASE);
}
XD_FN void xd_store_release_u64(void *at, u64 value)
{
    seen_by_others();
    __atomic_store_n((u64 *)at, value, __ATOMIC_RELEASE);
}
XD_FN u32 xd_load_volatile_u32(const void *at)
{
    seen_by_others();
    return __atomic_load_n((const u32 *)at, __ATOMIC_RELAXED);
}
XD_FN u64 xd_load_volatile_u64(const void *at)
{
    seen_by_others();
    return __atomic_load_n((const u64 *)at, __ATOMIC_RELAXED);
}
XD_FN void xd_store_volatile_u32(void *at, u32 value)
{
    seen_by_others();
    __atomic_store_n((u32 *)at, value, __ATOMIC_RELAXED);
}
XD_FN void xd_store_volatile_u64(void *at, u64 value)
{
    seen_by_others();
    __atomic_store_n((u64 *)at, value, __ATOMIC_RELAXED);
}

/* Each half is whole; on devices both are. */
XD_FN void xd_load_volatile_2x64(const void *at, u64 *a, u64 *b)
{
    check_aligned(at, 16);
    *a = xd_load_volatile_u64(at);
    *b = xd_load_volatile_u64((const char *)at + 8);
}

XD_FN void xd_store_volatile_2x64(void *at, u64 a, u64 b)
{
    check_aligned(at, 16);
    xd_store_volatile_u64(at, a);
    xd_store_volatile_u64((char *)at + 8, b);
}

XD_FN void xd_load_line_2x64(const void *at, u64 *a, u64 *b, int active)
{
    struct emu_part part = {(u64 *)at, *a, *b, active};

    if (active)
        check_aligned(at, 16);
    seen_by_others();
    emu_line(&part, 0);
    *a = part.a;
    *b = part.b;
}

XD_FN void xd_store_line_2x64(void *at, u64 a, u64 b, int active)
{
    struct emu_part part = {(u64 *)at, a, b, active};

    if (active)
        check_aligned(at, 16);
    seen_by_others();
    emu_line(&part, 1);
}

XD_FN struct xd_vec xd_load_vec(const void *at)
{
    struct xd_vec value;

    check_aligned(at, 16);
    memcpy(&value, at, sizeof value);
    return value;
}

XD_FN void xd_store_vec(void *at, struct xd_vec value)
{
    check_aligned(at, 16);
    memcpy(at, &value, sizeof value);
}

XD_FN u64 xd_load_plain_u64(const void *at)
{
    u64 value;

    check_aligned(at, 8);
    memcpy(&value, at, sizeof value);
    return value;
}

XD_FN u32 xd_load_plain_u32(const void *at)
{
    u32 value;

    check_aligned(at, 4);
    memcpy(&value, at, sizeof value);
    return value;
}

XD_FN void xd_store_plain_u64(void *at, u64 value)
{
    check_aligned(at, 8);
    memcpy(at, &value, sizeof value);
}

XD_FN void xd_store_plain_u32(void *at, u32 value)
{
    check_aligned(at, 4);
    memcpy(at, &value, sizeof value);
}

XD_FN u32 xd_add_u32(u32 *at, u32 value)
{
    seen_by_others();
    return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}
XD_FN u32 xd_add_acq_rel_u32(u32 *at, u32 value)
{
    seen_by_others();
    return __atomic_fetch_add(at, value, __ATOMIC_ACQ_REL);
}
XD_FN void xd_fence_release()
{
    seen_by_others();
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

#endif

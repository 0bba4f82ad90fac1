/* SPDX-License-Identifier: BSD-3-Clause */
/* What kernels ask of the machine: PTX on a device, fibers in the tests' emulator. The memory model
 * is PTX's: "volatile" accesses are relaxed at system scope; a release by one thread after a block
 * barrier also publishes what the others of the block wrote before it. */
#ifndef XCCL_EXEC_CUDA_INTRINSICS_H
#define XCCL_EXEC_CUDA_INTRINSICS_H

#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

struct xd_vec {
    u64 a, b;
};

#if defined(XCCL_EMU)
#include "intrinsics_emu.h"
#else

#define XD_KERNEL             extern "C" __global__ void /* registers: -maxrregcount */
#define XD_PARAMETER          const __grid_constant__
#define XD_FN                 static __device__ __forceinline__
#define XD_FN_COLD            static __device__ __noinline__
#define XD_MEMBER             __device__ __forceinline__
#define XD_SHARED(type, name) __shared__ type name

XD_FN u32 xd_thread()
{
    return threadIdx.x;
}
XD_FN u32 xd_threads()
{
    return blockDim.x;
}
XD_FN u32 xd_block()
{
    return blockIdx.x;
}
XD_FN void xd_sync()
{
    __syncthreads();
}
XD_FN int xd_any_warp(int truth)
{
    return __any_sync(0xffffffffu, truth);
}
XD_FN void xd_poll()
{
}
/* Reads a clock that all multiprocessors share; it goes on in steps of a microsecond or less. */
XD_FN u64 xd_clock_ns()
{
    u64 now;

    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}
XD_FN void xd_nanosleep(u32 ns)
{
    __nanosleep(ns);
}

XD_FN u32 xd_load_acquire_u32(const void *at)
{
    u32 value;

    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}

XD_FN u64 xd_load_acquire_u64(const void *at)
{
    u64 value;

    asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    return value;
}

/* Either word may be older than the other says. */
XD_FN void xd_load_acquire_2x64(const void *at, u64 *a, u64 *b)
{
    asm volatile("ld.acquire.sys.v2.u64 {%0, %1}, [%2];" : "=l"(*a), "=l"(*b) : "l"(at) : "memory");
}

XD_FN void xd_store_release_u32(void *at, u32 value)
{
    asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}

XD_FN void xd_store_release_u64(void *at, u64 value)
{
    asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}

XD_FN u32 xd_load_volatile_u32(const void *at)
{
    u32 value;

    asm volatile("ld.volatile.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}

XD_FN u64 xd_load_volatile_u64(const void *at)
{
    u64 value;

    asm volatile("ld.volatile.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    return value;
}

XD_FN void xd_store_volatile_u32(void *at, u32 value)
{
    asm volatile("st.volatile.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}

XD_FN void xd_store_volatile_u64(void *at, u64 value)
{
    asm volatile("st.volatile.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}

XD_FN void xd_load_volatile_2x64(const void *at, u64 *a, u64 *b)
{
    asm volatile("ld.volatile.v2.u64 {%0, %1}, [%2];" : "=l"(*a), "=l"(*b) : "l"(at) : "memory");
}

XD_FN void xd_store_volatile_2x64(void *at, u64 a, u64 b)
{
    asm volatile("st.volatile.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(a), "l"(b) : "memory");
}

/* By all lanes of a warp, those that are active with 16 bytes each: 128 bytes that eight lanes load
 * or store together stay together. */
XD_FN void xd_load_line_2x64(const void *at, u64 *a, u64 *b, int active)
{
    if (active)
        xd_load_volatile_2x64(at, a, b);
}

XD_FN void xd_store_line_2x64(void *at, u64 a, u64 b, int active)
{
    if (active)
        xd_store_volatile_2x64(at, a, b);
}

XD_FN struct xd_vec xd_load_vec(const void *at)
{
    ulonglong2 value = *(const ulonglong2 *)at;

    return {value.x, value.y};
}

XD_FN void xd_store_vec(void *at, struct xd_vec value)
{
    *(ulonglong2 *)at = make_ulonglong2(value.a, value.b);
}

XD_FN u64 xd_load_plain_u64(const void *at)
{
    u64 value;

    asm volatile("ld.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    return value;
}

XD_FN u32 xd_load_plain_u32(const void *at)
{
    u32 value;

    asm volatile("ld.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}

XD_FN void xd_store_plain_u64(void *at, u64 value)
{
    asm volatile("st.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}

XD_FN void xd_store_plain_u32(void *at, u32 value)
{
    asm volatile("st.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}

XD_FN u32 xd_add_u32(u32 *at, u32 value)
{
    u32 before;

    asm volatile("atom.relaxed.gpu.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(at), "r"(value)
                 : "memory");
    return before;
}

/* Acquire and release among the device's blocks. */
XD_FN u32 xd_add_acq_rel_u32(u32 *at, u32 value)
{
    u32 before;

    asm volatile("atom.acq_rel.gpu.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(at), "r"(value)
                 : "memory");
    return before;
}

/* Before relaxed stores: each is then as a release. */
XD_FN void xd_fence_release()
{
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}

#endif
#endif

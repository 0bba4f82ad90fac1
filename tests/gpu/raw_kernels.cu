/* SPDX-License-Identifier: BSD-3-Clause */
/* What the interpreter is compared with: a ring and a one-shot all-reduce of float32 written by
 * hand for ranks of one device, which do nothing else. The ring has slots and flags as SIMPLE links
 * have them, the one-shot lines as LL links. Counts are multiples of 4 elements a rank and block.
 */
#include <stdint.h>

#include "raw_kernels.h"

static __device__ __forceinline__ uint32_t load_acquire(const uint32_t *at)
{
    uint32_t value;

    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}

static __device__ __forceinline__ void store_release(uint32_t *at, uint32_t value)
{
    asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}

/* One rank's block of the ring. */
struct ring {
    const float4 *in;
    float4 *out;
    char *mine, *theirs; /* slots that this rank receives in, and its successor */
    uint32_t *full, *freed; /* of the slots received in: messages written, and given back */
    uint32_t *next_full, *next_freed;
    uint32_t received, sent;
};

/* value = message (+ source); to out and to the next one, as asked for. */
static __device__ void step(struct ring *ring, const float4 *src, float4 *dst, int receives,
                            int sends, uint32_t count)
{
    const float4 *slot = (const float4 *)(ring->mine +
                                          (size_t)(ring->received % RAW_SLOTS) * RAW_SLOT_BYTES);
    float4 *to = (float4 *)(ring->theirs + (size_t)(ring->sent % RAW_SLOTS) * RAW_SLOT_BYTES);

    if (threadIdx.x == 0) {
        while (receives && (int32_t)(load_acquire(ring->full) - ring->received) <= 0)
            ;
        while (sends && (int32_t)(ring->sent - load_acquire(ring->next_freed)) >= RAW_SLOTS)
            ;
    }
    __syncthreads();
    for (uint32_t first = threadIdx.x; first < count; first += 4 * blockDim.x) {
        float4 value[4], more[4];

#pragma unroll
        for (uint32_t k = 0; k < 4; k++)
            if (first + k * blockDim.x < count)
                value[k] = receives ? slot[first + k * blockDim.x] : src[first + k * blockDim.x];
        if (receives && src)
#pragma unroll
            for (uint32_t k = 0; k < 4; k++)
                if (first + k * blockDim.x < count)
                    more[k] = src[first + k * blockDim.x];
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) {
            uint32_t at = first + k * blockDim.x;

            if (at >= count)
                break;
            if (receives && src) {
                value[k].x += more[k].x;
                value[k].y += more[k].y;
                value[k].z += more[k].z;
                value[k].w += more[k].w;
            }
            if (dst)
                dst[at] = value[k];
            if (sends)
                to[at] = value[k];
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        if (sends)
            store_release(ring->next_full, ring->sent + 1);
        if (receives)
            store_release(ring->freed, ring->received + 1);
    }
    ring->sent += (uint32_t)sends;
    ring->received += (uint32_t)receives;
}

extern "C" __global__ void __launch_bounds__(512, 1)
    raw_ring(const __grid_constant__ struct raw_args args)
{
    const uint32_t n = args.nranks, rank = blockIdx.x / args.channels;
    const uint32_t channel = blockIdx.x % args.channels, next = (rank + 1) % n;
    const uint32_t here = rank * args.channels + channel, there = next * args.channels + channel;
    const size_t chunk = args.count / 4 / n, part = chunk / args.channels;
    const uint32_t slice = RAW_SLOT_BYTES / 16;
    struct ring ring = {(const float4 *)args.in[rank],
                        (float4 *)args.out[rank],
                        (char *)args.slots + (size_t)here * RAW_SLOTS * RAW_SLOT_BYTES,
                        (char *)args.slots + (size_t)there * RAW_SLOTS * RAW_SLOT_BYTES,
                        (uint32_t *)args.flags + 64 * here,
                        (uint32_t *)args.flags + 64 * here + 32,
                        (uint32_t *)args.flags + 64 * there,
                        (uint32_t *)args.flags + 64 * there + 32,
                        0,
                        0};

    ring.received = *ring.freed;
    ring.sent = load_acquire(ring.next_full);
    for (size_t at = 0; at < part; at += slice) {
        uint32_t count = part - at < slice ? (uint32_t)(part - at) : slice;
        size_t first = channel * part + at;
        uint32_t c = (rank + n - 1) % n;

        step(&ring, ring.in + c * chunk + first, NULL, 0, 1, count);
        for (uint32_t j = 2; j < n; j++) {
            c = (rank + n - j) % n;
            step(&ring, ring.in + c * chunk + first, NULL, 1, 1, count);
        }
        step(&ring, ring.in + rank * chunk + first, ring.out + rank * chunk + first, 1, 1, count);
        for (uint32_t j = 1; j + 1 < n; j++) {
            c = (rank + n - j) % n;
            step(&ring, NULL, ring.out + c * chunk + first, 1, 1, count);
        }
        c = (rank + 1) % n;
        step(&ring, NULL, ring.out + c * chunk + first, 1, 0, count);
    }
}

/* Everybody writes lines to everybody, and adds up in the order of ranks. */
extern "C" __global__ void __launch_bounds__(512, 1)
    raw_oneshot(const __grid_constant__ struct raw_args args)
{
    const uint32_t n = args.nranks, rank = blockIdx.x / args.channels;
    const uint32_t channel = blockIdx.x % args.channels;
    uint32_t *epochs = (uint32_t *)args.flags + 64 * blockIdx.x;
    const uint32_t epoch = *epochs + 1;
    const size_t words = args.count / 2, lines_bytes = RAW_LINES * 16;
    const uint64_t *in = (const uint64_t *)args.in[rank];
    uint64_t *out = (uint64_t *)args.out[rank];

    for (size_t w = channel * blockDim.x + threadIdx.x; w < words;
         w += (size_t)blockDim.x * args.channels) {
        uint64_t value = in[w], high = (uint64_t)epoch << 32;
        float low = 0, up = 0;

        for (uint32_t k = 1; k < n; k++) {
            char *to = (char *)args.slots +
                       (((size_t)((rank + k) % n) * n + rank) * 2 + epoch % 2) * lines_bytes +
                       16 * w;

            asm volatile("st.volatile.v2.u64 [%0], {%1, %2};" ::"l"(to),
                         "l"((value & 0xffffffffu) | high), "l"(value >> 32 | high)
                         : "memory");
        }
        for (uint32_t p = 0; p < n; p++) {
            const char *from = (char *)args.slots +
                               (((size_t)rank * n + p) * 2 + epoch % 2) * lines_bytes + 16 * w;
            uint64_t a = value & 0xffffffffu, b = value >> 32;

            if (p != rank)
                do {
                    asm volatile("ld.volatile.v2.u64 {%0, %1}, [%2];"
                                 : "=l"(a), "=l"(b)
                                 : "l"(from)
                                 : "memory");
                } while ((uint32_t)(a >> 32) != epoch || (uint32_t)(b >> 32) != epoch);
            low += __uint_as_float((uint32_t)a);
            up += __uint_as_float((uint32_t)b);
        }
        out[w] = (uint64_t)__float_as_uint(low) | (uint64_t)__float_as_uint(up) << 32;
    }
    __syncthreads();
    if (threadIdx.x == 0)
        *epochs = epoch;
}

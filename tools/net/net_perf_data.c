/* SPDX-License-Identifier: BSD-3-Clause */
/* The contents of the messages of `xccl net perf`. A sender only points into the pattern, so that a
 * message costs the same whether it will be looked at or not.
 *
 * Thread: any. */
#include <string.h>

#include "net/net_perf_side.h"

#define STEP_BYTES 64 /* messages begin where a cache line does */
#define STEPS      1021 /* a prime, so that no number of flows or slots hides behind it */

void xccl_netperf_pattern_fill(char *pattern, uint64_t bytes)
{
    uint64_t state = 0;

    for (uint64_t at = 0; at + sizeof(state) <= bytes; at += sizeof(state)) {
        uint64_t mixed = state += 0x9e3779b97f4a7c15u;

        mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
        mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
        mixed ^= mixed >> 31;
        memcpy(pattern + at, &mixed, sizeof(mixed));
    }
}

uint64_t xccl_netperf_pattern_at(uint32_t salt, int sender, int flow, uint64_t number)
{
    uint64_t key = number * 7 + (uint64_t)flow * 131 + (uint64_t)sender * 577 + (uint64_t)salt * 29;

    return key % STEPS * STEP_BYTES;
}

uint64_t xccl_netperf_same_bytes(const char *got, const char *want, uint64_t bytes)
{
    uint64_t same = 0;

    if (memcmp(got, want, bytes) == 0)
        return bytes;
    while (same < bytes && got[same] == want[same])
        same++;
    return same;
}

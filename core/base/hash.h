/* SPDX-License-Identifier: BSD-3-Clause */
/* FNV-1a, 64 bits: for telling things apart that nobody makes alike on purpose. Not for secrets,
 * and not against an adversary. A hash of several things goes on from that of the first ones.
 * Thread: any. */
#ifndef XCCL_BASE_HASH_H
#define XCCL_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define XCCL_HASH_START 0xcbf29ce484222325ull

static inline uint64_t xccl_hash_bytes(uint64_t hash, const void *bytes, size_t count)
{
    const uint8_t *at = bytes;

    for (size_t i = 0; i < count; i++)
        hash = (hash ^ at[i]) * 0x100000001b3ull;
    return hash;
}

#endif

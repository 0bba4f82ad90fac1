/* SPDX-License-Identifier: BSD-3-Clause */
/* Sets of ranks, each kept once. A union is found by its hash: hashes of ranks add up, so that of a
 * disjoint union is known before its bits are; the bits are then compared, so a proof never rests
 * on a hash. Sums grow by one partner after the other, and alike in every tile: so each set
 * remembers its last union with an older set, which then costs one look. */
#include "schedule/verify_int.h"

#include "base/alloc.h"

#define BLOCK_SETS_LOG2 12
#define BLOCK_SETS      (1u << BLOCK_SETS_LOG2)

struct xccl_rank_sets_memo {
    uint32_t with, set; /* set 0: none yet */
};

static uint64_t *bits_of(const struct xccl_rank_sets *sets, uint32_t set)
{
    return sets->blocks[set >> BLOCK_SETS_LOG2] + (size_t)(set & (BLOCK_SETS - 1)) * sets->words;
}

/* Room for one more set. */
static xcclResult_t grow(struct xccl_rank_sets *sets)
{
    uint32_t capacity = sets->capacity ? 2 * sets->capacity : 256;
    void *hashes, *sizes, *memo, *blocks;
    uint64_t *block;

    if (sets->count == sets->capacity) {
        hashes = xccl_realloc(sets->hashes, capacity * sizeof(*sets->hashes));
        if (!hashes)
            return xcclSystemError;
        sets->hashes = hashes;
        sizes = xccl_realloc(sets->sizes, capacity * sizeof(*sets->sizes));
        if (!sizes)
            return xcclSystemError;
        sets->sizes = sizes;
        memo = xccl_realloc(sets->memo, capacity * sizeof(*sets->memo));
        if (!memo)
            return xcclSystemError;
        sets->memo = memo;
        sets->capacity = capacity;
    }
    if (sets->count >> BLOCK_SETS_LOG2 < sets->nblocks)
        return xcclSuccess;
    blocks = xccl_realloc(sets->blocks, (sets->nblocks + 1) * sizeof(*sets->blocks));
    if (!blocks)
        return xcclSystemError;
    sets->blocks = blocks;
    block = xccl_calloc((size_t)BLOCK_SETS * sets->words, sizeof(*block));
    if (!block)
        return xcclSystemError;
    sets->blocks[sets->nblocks++] = block;
    return xcclSuccess;
}

static void enter(struct xccl_rank_sets *sets, uint32_t set)
{
    uint32_t at = (uint32_t)sets->hashes[set] & sets->table_mask;

    while (sets->table[at])
        at = (at + 1) & sets->table_mask;
    sets->table[at] = set;
}

static xcclResult_t grow_table(struct xccl_rank_sets *sets)
{
    uint32_t slots = sets->table_mask ? 4 * (sets->table_mask + 1) : 1024;
    uint32_t *table;

    while (slots < 2 * sets->nranks)
        slots *= 2;
    table = xccl_calloc(slots, sizeof(*table));
    if (!table)
        return xcclSystemError;
    xccl_free(sets->table);
    sets->table = table;
    sets->table_mask = slots - 1;
    for (uint32_t set = 1; set < sets->count; set++)
        enter(sets, set);
    return xcclSuccess;
}

xcclResult_t xccl_rank_sets_init(struct xccl_rank_sets *sets, int nranks)
{
    xcclResult_t rc = xcclSuccess;

    *sets = (struct xccl_rank_sets){.nranks = (uint32_t)nranks,
                                    .words = ((uint32_t)nranks + 63) / 64};
    for (uint32_t set = 0; set <= (uint32_t)nranks && !rc; set++) {
        rc = grow(sets);
        if (rc)
            break;
        sets->count++;
        sets->hashes[set] = set ? xccl_mix64(set) : 0;
        sets->sizes[set] = set ? 1 : 0;
        sets->memo[set] = (struct xccl_rank_sets_memo){0};
        if (set)
            bits_of(sets, set)[(set - 1) / 64] = (uint64_t)1 << (set - 1) % 64;
    }
    if (!rc)
        rc = grow_table(sets);
    if (rc)
        xccl_rank_sets_fini(sets);
    return rc;
}

void xccl_rank_sets_fini(struct xccl_rank_sets *sets)
{
    for (uint32_t i = 0; i < sets->nblocks; i++)
        xccl_free(sets->blocks[i]);
    xccl_free(sets->blocks);
    xccl_free(sets->hashes);
    xccl_free(sets->sizes);
    xccl_free(sets->table);
    xccl_free(sets->memo);
    *sets = (struct xccl_rank_sets){0};
}

int xccl_rank_sets_has(const struct xccl_rank_sets *sets, uint32_t set, uint32_t rank)
{
    return (bits_of(sets, set)[rank / 64] >> rank % 64 & 1) != 0;
}

/* Whether the set is the union of both. */
static int is_union(const struct xccl_rank_sets *sets, uint32_t set, uint32_t a, uint32_t b)
{
    const uint64_t *s = bits_of(sets, set), *x = bits_of(sets, a), *y = bits_of(sets, b);

    for (uint32_t i = 0; i < sets->words; i++)
        if (s[i] != (x[i] | y[i]))
            return 0;
    return 1;
}

static int overlap(const struct xccl_rank_sets *sets, uint32_t a, uint32_t b)
{
    const uint64_t *x = bits_of(sets, a), *y = bits_of(sets, b);

    for (uint32_t i = 0; i < sets->words; i++)
        if (x[i] & y[i])
            return 1;
    return 0;
}

static uint64_t union_hash(const struct xccl_rank_sets *sets, uint32_t a, uint32_t b)
{
    uint64_t hash = sets->hashes[a] + sets->hashes[b];
    const uint64_t *x = bits_of(sets, a), *y = bits_of(sets, b);

    for (uint32_t i = 0; i < sets->words; i++)
        for (uint64_t both = x[i] & y[i]; both; both &= both - 1)
            hash -= xccl_mix64(i * 64u + (uint32_t)__builtin_ctzll(both) + 1);
    return hash;
}

static xcclResult_t add_union(struct xccl_rank_sets *sets, uint32_t a, uint32_t b, uint64_t hash,
                              uint32_t *set_out)
{
    uint32_t set = sets->count, common = 0;
    const uint64_t *x, *y;
    uint64_t *bits;
    xcclResult_t rc;

    rc = grow(sets);
    if (!rc && 2 * sets->count > sets->table_mask)
        rc = grow_table(sets);
    if (rc)
        return rc;
    bits = bits_of(sets, set);
    x = bits_of(sets, a);
    y = bits_of(sets, b);
    for (uint32_t i = 0; i < sets->words; i++) {
        bits[i] = x[i] | y[i];
        for (uint64_t both = x[i] & y[i]; both; both &= both - 1)
            common++;
    }
    sets->hashes[set] = hash;
    sets->sizes[set] = sets->sizes[a] + sets->sizes[b] - common;
    sets->memo[set] = (struct xccl_rank_sets_memo){0};
    sets->count++;
    enter(sets, set);
    *set_out = set;
    return xcclSuccess;
}

xcclResult_t xccl_rank_sets_join(struct xccl_rank_sets *sets, uint32_t a, uint32_t b,
                                 uint32_t *set_out, int *overlap_out)
{
    uint32_t newer = a > b ? a : b, older = a > b ? b : a, at, set;
    uint64_t hash;
    xcclResult_t rc = xcclSuccess;

    *overlap_out = 0;
    if (sets->memo[newer].set && sets->memo[newer].with == older) {
        *set_out = sets->memo[newer].set;
        return xcclSuccess;
    }
    *overlap_out = overlap(sets, a, b);
    hash = *overlap_out ? union_hash(sets, a, b) : sets->hashes[a] + sets->hashes[b];
    at = (uint32_t)hash & sets->table_mask;
    for (; (set = sets->table[at]) != 0; at = (at + 1) & sets->table_mask)
        if (sets->hashes[set] == hash && is_union(sets, set, a, b))
            break;
    if (!set && newer) /* both empty: the empty set */
        rc = add_union(sets, a, b, hash, &set);
    if (rc)
        return rc;
    if (!*overlap_out)
        sets->memo[newer] = (struct xccl_rank_sets_memo){older, set};
    *set_out = set;
    return xcclSuccess;
}

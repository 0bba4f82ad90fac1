/* SPDX-License-Identifier: BSD-3-Clause */
/* The arena: address space for as much as the host has memory, and an ordered list of what is
 * taken. Pages take memory when they are touched, but a block that has whole huge pages takes them
 * at once, unless it is a large part of the host's memory: every peer maps those for next to
 * nothing, and copies are quicker. The memory goes back with the block.
 *
 * fork(): the child forgets the arena. What it has inherited stays mapped and is its parent's.
 * Lock order: alone. Thread: any. */
#include "transport/arena.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/huge_pages.h"
#include "base/os.h"

#define BYTES_MIN  (1ull << 30)
#define BYTES_MAX  (256ull << 30) /* some hundred peers map as much each */
#define HUGE_SHARE 32 /* of the arena, of which a block that is taken at once has one at most */

struct block {
    size_t offset, bytes;
    struct block *next; /* ascending */
};

struct xccl_arena xccl_arena;
static struct xccl_map map = {.fd = -1}; /* the descriptor is one for reading */
static struct block *blocks;
static size_t users; /* holds, and blocks */

/* The descriptor stays open: its number may be another file's, had a thread just closed it. */
static void forget_arena(void)
{
    map = (struct xccl_map){.fd = -1};
    blocks = NULL;
    users = 0;
    /* Relaxed: this is the only thread. */
    atomic_store_explicit(&xccl_arena.base, NULL, memory_order_relaxed);
}

static struct xccl_lock lock = XCCL_LOCK(forget_arena);

/* The memory of the host, up to a power of two. */
static size_t bytes_wanted(void)
{
    uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t bytes = BYTES_MIN;
    struct rlimit limit;

    while (bytes < memory && bytes < BYTES_MAX)
        bytes *= 2;
    /* A file beyond the limit would be a signal, not an error. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes)
        return 0;
    return (size_t)bytes;
}

/* The lock is held, here and below. */
static xcclResult_t open_arena(void)
{
    size_t bytes = bytes_wanted();
    xcclResult_t rc;

    if (!bytes)
        return xccl_fail_quietly(xcclSystemError, 0, "raise ulimit -f",
                                 "the limit on the size of files is too low");
    rc = xccl_map_create("xccl-arena", bytes, &map);
    if (!rc)
        rc = xccl_map_limit_to_reading(&map);
    if (rc)
        return rc;
    /* A dump shall not walk through all of it. */
    (void)madvise(map.base, bytes, MADV_DONTDUMP);
    if (xccl_arena.bytes != bytes) /* once: calls look at it without the lock */
        xccl_arena.bytes = bytes;
    /* Release: the size before it. Pairs with xccl_arena_place(). */
    atomic_store_explicit(&xccl_arena.base, map.base, memory_order_release);
    return xcclSuccess;
}

static xcclResult_t add_user(void)
{
    xcclResult_t rc = users ? xcclSuccess : open_arena();

    users += !rc;
    return rc;
}

static void drop_user(void)
{
    if (--users)
        return;
    /* Relaxed: nobody uses it any more, as users know of each other by the lock. */
    atomic_store_explicit(&xccl_arena.base, NULL, memory_order_relaxed);
    xccl_map_close(&map);
}

xcclResult_t xccl_arena_hold(void)
{
    xcclResult_t rc;

    xccl_lock_take(&lock);
    rc = add_user();
    xccl_lock_give(&lock);
    return rc;
}

void xccl_arena_drop(void)
{
    xccl_lock_take(&lock);
    if (users) /* none in a child of fork() */
        drop_user();
    xccl_lock_give(&lock);
}

int xccl_arena_fd(void)
{
    int fd;

    xccl_lock_take(&lock);
    fd = map.fd;
    xccl_lock_give(&lock);
    return fd;
}

/* The first gap that is large enough; *before_out: the block before it, or NULL. */
static int find_gap(size_t bytes, size_t *offset_out, struct block **before_out)
{
    size_t align = bytes >= XCCL_HUGE_PAGE ? XCCL_HUGE_PAGE : (size_t)sysconf(_SC_PAGESIZE), at = 0;
    struct block *before = NULL, *next = blocks;

    for (; next && (at > next->offset || next->offset - at < bytes);
         before = next, next = next->next)
        at = (next->offset + next->bytes + align - 1) & ~(align - 1);
    *offset_out = at;
    *before_out = before;
    return next || (at < map.bytes && map.bytes - at >= bytes);
}

static void *enter_block(struct block *block)
{
    struct block *before;
    char *memory;

    if (!find_gap(block->bytes, &block->offset, &before))
        return NULL;
    block->next = before ? before->next : blocks;
    *(before ? &before->next : &blocks) = block;
    memory = (char *)map.base + block->offset;
    (void)madvise(memory, block->bytes, MADV_DODUMP);
    if (block->bytes >= XCCL_HUGE_PAGE)
        (void)madvise(memory, block->bytes, MADV_HUGEPAGE); /* where the host allows it */
    return memory;
}

void *xccl_arena_take(size_t bytes)
{
    struct block *block = xccl_calloc(1, sizeof *block);
    void *memory = NULL;
    int is_part;

    if (!block)
        return NULL;
    block->bytes = bytes;
    xccl_lock_take(&lock);
    if (!add_user()) {
        memory = enter_block(block);
        if (!memory)
            drop_user();
    }
    is_part = memory && bytes <= map.bytes / HUGE_SHARE;
    xccl_lock_give(&lock);
    if (!memory)
        xccl_free(block);
    else if (is_part)
        xccl_huge_pages_make(memory, bytes);
    return memory;
}

static struct block *take_off(const char *memory)
{
    struct block **at = &blocks, *found;

    while (*at && (char *)map.base + (*at)->offset != memory)
        at = &(*at)->next;
    found = *at;
    if (found)
        *at = found->next;
    return found;
}

int xccl_arena_give(void *memory)
{
    struct block *block;

    xccl_lock_take(&lock);
    block = take_off(memory);
    if (block) {
        /* Peers that still look see zeros, and so does the next owner. */
        if (madvise(memory, block->bytes, MADV_REMOVE))
            memset(memory, 0, block->bytes);
        (void)madvise(memory, block->bytes, MADV_DONTDUMP);
        drop_user();
    }
    xccl_lock_give(&lock);
    xccl_free(block);
    return block != NULL;
}

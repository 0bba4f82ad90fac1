/* SPDX-License-Identifier: BSD-3-Clause */
/* The arena: blocks that do not overlap and come back zeroed, a descriptor that cannot write, an
 * end when nobody needs it, and nothing of it in a child of fork(). */
#include "transport/arena.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/huge_pages.h"
#include "base/inject.h"
#include "base/os.h"
#include "huge_memory.h"
#include "xt.h"

#define PAGE   4096u
#define BLOCKS 40
#define ROUNDS 4000

static int is_open(void)
{
    return xccl_arena.base != NULL;
}

XT_TEST(memory_opens_the_arena_and_the_last_block_closes_it)
{
    char *a, *b;

    XT_CHECK(!is_open());
    a = xccl_arena_take(PAGE);
    b = xccl_arena_take(3 * PAGE);
    XT_CHECK(a && b && is_open());
    XT_CHECK_INT(xccl_arena_place(a, PAGE), a - xccl_arena.base + 1);
    XT_CHECK(xccl_arena_place(b + 5, 7) == xccl_arena_place(b, 1) + 5);
    XT_CHECK_INT(xccl_arena_give(a), 1);
    XT_CHECK_INT(xccl_arena_give(a), 0);
    XT_CHECK_INT(xccl_arena_give(b + 1), 0);
    XT_CHECK(is_open());
    XT_CHECK_INT(xccl_arena_give(b), 1);
    XT_CHECK(!is_open());
    XT_CHECK_INT(xccl_arena_place(b, 1), 0);
}

XT_TEST(a_place_is_inside_as_a_whole_or_there_is_none)
{
    char *end, here[8];

    XT_OK(xccl_arena_hold());
    end = xccl_arena.base + xccl_arena.bytes;
    XT_CHECK_INT(xccl_arena_place(xccl_arena.base, xccl_arena.bytes), 1);
    XT_CHECK_INT(xccl_arena_place(xccl_arena.base, xccl_arena.bytes + 1), 0);
    XT_CHECK_INT(xccl_arena_place(xccl_arena.base - 1, 1), 0);
    XT_CHECK_INT(xccl_arena_place(end - 8, 8), xccl_arena.bytes - 7);
    XT_CHECK_INT(xccl_arena_place(end - 8, 9), 0);
    XT_CHECK_INT(xccl_arena_place(end - 8, SIZE_MAX), 0);
    XT_CHECK_INT(xccl_arena_place(end, 0), 0);
    XT_CHECK_INT(xccl_arena_place(here, sizeof here), 0);
    XT_CHECK_INT(xccl_arena_place(NULL, 0), 0);
    xccl_arena_drop();
}

/* Can this kernel put shared memory into huge pages when it is asked? */
static int makes_huge_pages(void)
{
    struct xccl_map map;
    char *whole;
    int made;

    XT_OK(xccl_map_create("probe", 8u << 20, &map));
    whole = (char *)(((uintptr_t)map.base + XCCL_HUGE_PAGE - 1) & ~(XCCL_HUGE_PAGE - 1));
    *whole = 1;
    made = madvise(whole, XCCL_HUGE_PAGE, MADV_COLLAPSE) == 0;
    xccl_map_close(&map);
    return made;
}

XT_TEST(a_large_block_has_huge_pages_and_is_zeroed)
{
    size_t bytes = 8u << 20;
    char *block;

    if (!makes_huge_pages())
        XT_SKIP("this kernel makes no huge pages of shared memory when it is asked");
    XT_OK(xccl_arena_hold()); /* the second block is the memory of the first */
    for (int i = 0; i < 2; i++) {
        block = xccl_arena_take(bytes);
        XT_CHECK(block != NULL);
        XT_CHECK(huge_kib(block, "ShmemPmdMapped") >= 2048);
        for (size_t at = 0; at < bytes; at++)
            XT_CHECK(block[at] == 0);
        memset(block, 1, bytes);
        XT_CHECK_INT(xccl_arena_give(block), 1);
    }
    xccl_arena_drop();
}

/* A byte of a block, in its middle and at both ends. */
static void expect_byte(const char *block, size_t bytes, char want)
{
    XT_CHECK_INT(block[0], want);
    XT_CHECK_INT(block[bytes / 2], want);
    XT_CHECK_INT(block[bytes - 1], want);
}

XT_TEST(blocks_of_random_sizes_never_overlap_and_come_back_zeroed)
{
    uint64_t seed = xt_seed();
    char *blocks[BLOCKS] = {NULL};
    size_t bytes[BLOCKS] = {0};

    for (int i = 0; i < ROUNDS; i++) {
        int at = (int)(xt_random(&seed) % BLOCKS);

        if (blocks[at]) {
            expect_byte(blocks[at], bytes[at], (char)(at + 1));
            XT_CHECK_INT(xccl_arena_give(blocks[at]), 1);
            blocks[at] = NULL;
            continue;
        }
        /* Up to beyond a huge page. */
        bytes[at] = PAGE * (1 + xt_random(&seed) % (i % 10 ? 9 : 800));
        blocks[at] = xccl_arena_take(bytes[at]);
        XT_CHECK(blocks[at] != NULL);
        expect_byte(blocks[at], bytes[at], 0);
        blocks[at][0] = blocks[at][bytes[at] / 2] = blocks[at][bytes[at] - 1] = (char)(at + 1);
    }
    for (int at = 0; at < BLOCKS; at++)
        XT_CHECK_INT(xccl_arena_give(blocks[at]), blocks[at] != NULL);
    XT_CHECK(!is_open());
}

XT_TEST(what_does_not_fit_is_not_given_and_changes_nothing)
{
    char *block = xccl_arena_take(PAGE);

    XT_CHECK(block != NULL);
    XT_CHECK(!xccl_arena_take(xccl_arena.bytes));
    XT_CHECK(!xccl_arena_take((SIZE_MAX / 2) & ~(size_t)(PAGE - 1)));
    XT_CHECK_INT(xccl_arena_give(block), 1);
    XT_CHECK(!is_open());
}

XT_TEST(the_descriptor_that_peers_get_is_for_reading_alone)
{
    struct xccl_map map;
    char *block;
    int fd;

    XT_OK(xccl_arena_hold());
    block = xccl_arena_take(PAGE);
    XT_CHECK(block != NULL);
    memcpy(block, "seen", 5);
    fd = dup(xccl_arena_fd());
    XT_CHECK(fd >= 0);
    XT_CHECK(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
    XT_CHECK_INT(pwrite(fd, "x", 1, 0), -1);
    XT_CHECK_INT(ftruncate(fd, 0), -1);
    XT_OK(xccl_map_open_to_read(fd, xccl_arena.bytes, &map));
    XT_CHECK_TEXT((char *)map.base + (xccl_arena_place(block, 1) - 1), "seen");
    XT_CHECK_INT(xccl_arena_give(block), 1);
    XT_CHECK_INT(((char *)map.base)[xccl_arena_place(block, 1) - 1], 0);
    xccl_map_close(&map);
    xccl_arena_drop();
}

XT_TEST(a_child_of_fork_has_no_part_of_it_and_may_have_its_own)
{
    char *block = xccl_arena_take(PAGE);
    int status;
    pid_t pid;

    XT_CHECK(block != NULL);
    block[0] = 1;
    pid = fork();
    XT_CHECK(pid >= 0);
    if (!pid) {
        char *own;

        if (is_open() || xccl_arena_give(block) || block[0] != 1)
            _exit(1);
        own = xccl_arena_take(PAGE);
        if (!own || own == block || xccl_arena_place(block, 1))
            _exit(2);
        _exit(xccl_arena_give(own) && !is_open() ? 0 : 3);
    }
    XT_CHECK_INT(waitpid(pid, &status, 0), pid);
    XT_CHECK_INT(status, 0);
    XT_CHECK_INT(block[0], 1);
    XT_CHECK_INT(xccl_arena_give(block), 1);
}

/* Every chance to fail: no arena then, and nothing left behind (the harness looks). */
XT_TEST(an_arena_that_cannot_be_made_is_an_error_and_leaves_nothing)
{
    struct rlimit limit, small;
    uint64_t chances;

    xccl_inject_arm(UINT64_MAX);
    XT_OK(xccl_arena_hold());
    chances = xccl_inject_chances();
    xccl_arena_drop();
    for (uint64_t k = 1; k <= chances; k++) {
        xccl_inject_arm(k);
        XT_CHECK_RC(xccl_arena_hold(), xcclSystemError);
        xccl_inject_arm(0);
        XT_CHECK(!is_open());
    }
    XT_CHECK(chances >= 2);
    XT_CHECK_INT(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 1 << 20;
    XT_CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
    XT_CHECK_RC(xccl_arena_hold(), xcclSystemError);
    XT_CHECK_HAS(xccl_error_text(), "ulimit -f");
    XT_CHECK(!xccl_arena_take(PAGE));
    XT_CHECK_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

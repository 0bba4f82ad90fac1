/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies: every byte and no other, for sizes and places around all borders; and they take about as
 * long wherever source and destination lie. */
#include "base/copy.h"

#include <stdlib.h>

#include "xt.h"

#define PAGE  4096
#define ROOM  (64 * 1024)
#define GUARD 64

typedef void copy_fn(void *to, const void *from, size_t bytes);

static void by_copy(void *to, const void *from, size_t bytes)
{
    xccl_copy(to, from, bytes);
}

static void by_slot(void *to, const void *from, size_t bytes)
{
    xccl_copy_to_slot(to, from, bytes);
}

static unsigned char *pages(size_t bytes)
{
    unsigned char *memory = aligned_alloc(PAGE, bytes);

    XT_CHECK(memory != NULL);
    return memory;
}

static void check_copy(copy_fn *copy, unsigned char *to, const unsigned char *from, size_t bytes)
{
    memset(to - GUARD, 0xa5, bytes + 2 * GUARD);
    copy(to, from, bytes);
    XT_CHECK(memcmp(to, from, bytes) == 0);
    for (int i = 1; i <= GUARD; i++)
        XT_CHECK(to[-i] == 0xa5 && to[bytes + (size_t)i - 1] == 0xa5);
}

XT_TEST(copies_bring_every_byte_and_no_other)
{
    static copy_fn *const copies[] = {by_copy, by_slot, xccl_copy_by_vectors};
    static const size_t sizes[] = {0,  1,   15,   16,   17,   31,   63,   64,   65,   79,   80,
                                   81, 127, 1023, 1024, 1025, 2047, 4097, 8191, 8192, 20001};
    unsigned char *from = pages(ROOM), *to = pages(ROOM);
    uint64_t seed = xt_seed();

    for (size_t i = 0; i < ROOM; i++)
        from[i] = (unsigned char)(i * 31 + i / 251);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int k = 0; k < 3; k++)
            for (int draw = 0; draw < 40; draw++) {
                size_t at = xt_random(&seed) % 200, behind = xt_random(&seed) % 40;

                check_copy(copies[k], to + PAGE + at + behind, from + at, sizes[i]);
            }
    free(from);
    free(to);
}

#ifndef XCCL_SANITIZED /* sanitizers have copies of their own */
/* ns of the quickest of many copies. */
static double quickest(copy_fn *copy, unsigned char *to, const unsigned char *from, size_t bytes)
{
    double best = 1e9;

    for (int i = 0; i < 400; i++) {
        double since = xt_seconds(), took;

        copy(to, from, bytes);
        took = (xt_seconds() - since) * 1e9;
        best = took < best ? took : best;
    }
    return best;
}

/* Where memcpy is 15 times slower, these are not. The quickest of many, so that other programs do
 * not count; between two attempts more of them may have ended. */
XT_TEST(copies_take_as_long_wherever_memory_lies)
{
    unsigned char *from = pages(ROOM), *to = pages(ROOM);
    size_t bytes = 32768;
    int slow = 0;

    memset(from, 1, ROOM);
    memset(to, 1, ROOM);
    for (int attempt = 0; attempt < 5; attempt++) {
        double apart = quickest(by_copy, to, from, bytes);

        slow = 0;
        for (int behind = 1; behind < 40; behind += 3)
            slow += quickest(by_copy, to + behind, from, bytes) > 5 * apart ||
                    quickest(by_slot, to + behind, from, 4096) > 5 * apart;
        if (!slow)
            break;
    }
    XT_CHECK_INT(slow, 0);
    free(from);
    free(to);
}
#endif

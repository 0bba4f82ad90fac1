/* SPDX-License-Identifier: BSD-3-Clause */
/* Each MADV_COLLAPSE has all processors empty lists of theirs, so some huge pages go together.
 * Thread: any. */
#include "base/huge_pages.h"

#include <errno.h>

#include "base/clock.h"

#define PART    (16 * XCCL_HUGE_PAGE) /* 5 to 60 ms (2 cores, Intel Xeon) */
#define MAKE_NS (300 * XCCL_NS_PER_MS)

/* Whole ones. */
struct range {
    uintptr_t first, end;
};

static struct range whole_pages(const void *at, size_t bytes)
{
    uintptr_t mask = XCCL_HUGE_PAGE - 1, begin = (uintptr_t)at;
    struct range range = {(begin + mask) & ~mask, (begin + bytes) & ~mask};

    if (range.first < begin || range.end < range.first)
        range.end = range.first;
    return range;
}

/* Once more where some page was in use for a moment: those that are made already cost nothing. */
static int collapse(uintptr_t first, size_t bytes)
{
    return madvise((void *)first, bytes, MADV_COLLAPSE) == 0 ||
           (errno == EAGAIN && madvise((void *)first, bytes, MADV_COLLAPSE) == 0);
}

/* One page has to be there to make a huge one of. 0: it is not for that, since this memory or this
 * kernel has none. */
static int make_of_nothing(uintptr_t first, size_t bytes)
{
    (void)madvise((void *)first, 1, MADV_POPULATE_WRITE);
    if (!collapse(first, XCCL_HUGE_PAGE) && errno == EINVAL)
        return 0;
    for (size_t i = XCCL_HUGE_PAGE; i < bytes; i += XCCL_HUGE_PAGE)
        (void)madvise((void *)(first + i), 1, MADV_POPULATE_WRITE);
    (void)collapse(first, bytes);
    return 1;
}

void xccl_huge_pages_make(void *at, size_t bytes)
{
    struct range left = whole_pages(at, bytes);
    uint64_t begin_ns;

    if (left.first >= left.end)
        return;
    begin_ns = xccl_clock_ns();
    while (left.first < left.end && xccl_clock_ns() - begin_ns < MAKE_NS) {
        size_t part = left.end - left.first < PART ? left.end - left.first : PART;

        if (!collapse(left.first, part) && !make_of_nothing(left.first, part))
            return;
        left.first += part;
    }
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* MADV_COLLAPSE fills holes, breaks up what is shared after fork(), and takes file pages, too. Who
 * has not been asked looks at each small page first: /proc/self/pagemap tells of one's own pages
 * whether they are there, and whose (Documentation/admin-guide/mm/pagemap.rst). Each MADV_COLLAPSE
 * has all processors empty lists of theirs, so some huge pages go together.
 * Thread: any. */
#include "base/huge_pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sysfs.h"

#define PART       (16 * XCCL_HUGE_PAGE) /* 5 to 60 ms (2 cores, Intel Xeon) */
#define PART_SMALL (4 * XCCL_HUGE_PAGE) /* between two looks at the clock */
#define MAKE_NS    (300 * XCCL_NS_PER_MS)
#define NONE_LEFT  2

/* Bits of pagemap. */
#define THERE (1ull << 63)
#define FILES (1ull << 61) /* or shared */
#define OWN   (1ull << 56) /* mapped once */

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

/* Why collapse() has failed: there are no more of them. */
static int has_none_left(void)
{
    return errno == ENOMEM || errno == EBUSY;
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

/* Of the memory of one huge page. */
static int is_own(int pagemap, uintptr_t first)
{
    uint64_t bits[XCCL_HUGE_PAGE / 4096];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = XCCL_HUGE_PAGE / page * sizeof(bits[0]);

    if (bytes > sizeof(bits) ||
        pread(pagemap, bits, bytes, (off_t)(first / page * sizeof(bits[0]))) != (ssize_t)bytes)
        return 0;
    for (size_t i = 0; i < bytes / sizeof(bits[0]); i++) {
        if ((bits[i] & (THERE | FILES | OWN)) != (THERE | OWN))
            return 0;
    }
    return 1;
}

/* The first ones of a range that are, up to a part. */
static size_t own_bytes(int pagemap, struct range left)
{
    size_t bytes = 0;

    while (bytes < PART_SMALL && left.first + bytes < left.end &&
           is_own(pagemap, left.first + bytes))
        bytes += XCCL_HUGE_PAGE;
    return bytes;
}

/* 1: all of a range; 0: not all; NONE_LEFT. *first_io: how far it got. */
static int gather(int pagemap, struct range left, uintptr_t *first_io, uint64_t until_ns)
{
    int all = 1, is_short = 0;

    do {
        size_t part = own_bytes(pagemap, left);
        int made = part && collapse(left.first, part);

        left.first += part ? part : XCCL_HUGE_PAGE;
        is_short = part && !made && has_none_left();
        if (is_short)
            left.first = left.end;
        all &= made;
    } while (left.first < left.end && xccl_clock_ns() < until_ns);
    *first_io = left.first;
    return is_short ? NONE_LEFT : all;
}

/* The huge page at first, where it is not whole in the range. 0: there was no memory for it; others
 * that cannot be made are not missed. */
static int gather_edge(int pagemap, uintptr_t first, struct range in, size_t edge)
{
    if (in.first < first)
        in.first = first;
    if (in.end > first + XCCL_HUGE_PAGE)
        in.end = first + XCCL_HUGE_PAGE;
    if (in.first >= in.end || in.end - in.first < edge || in.end - in.first == XCCL_HUGE_PAGE)
        return 1;
    return !is_own(pagemap, first) || collapse(first, XCCL_HUGE_PAGE) || !has_none_left();
}

/* A buffer of malloc begins some bytes behind a page's beginning, so one of 2 MiB has no whole one.
 */
static int gather_edges(int pagemap, struct range in, size_t edge)
{
    uintptr_t mask = XCCL_HUGE_PAGE - 1;

    return gather_edge(pagemap, in.first & ~mask, in, edge) &&
           (((in.first ^ in.end) & ~mask) == 0 || gather_edge(pagemap, in.end & ~mask, in, edge));
}

int xccl_huge_pages_gather(void *at, size_t bytes, size_t edge, size_t *done_io, uint64_t until_ns)
{
    struct range left = whole_pages(at, bytes);
    struct range in = {(uintptr_t)at, (uintptr_t)at + bytes};
    uintptr_t first = in.first + *done_io;
    int pagemap, all = 1;

    *done_io = bytes;
    if (in.first >= in.end)
        return 1;
    pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (pagemap < 0)
        return 0;
    if (left.first < first)
        left.first = first;
    if (left.first < left.end)
        all = gather(pagemap, left, &first, until_ns);
    if (left.first < left.end && first < left.end)
        *done_io = first - in.first;
    else if (all != NONE_LEFT)
        all &= gather_edges(pagemap, in, edge);
    close(pagemap);
    return all == 1;
}

/* Such a file names all choices, the one that holds in brackets. */
static int has_chosen(const char *folder, const char *file, const char *word)
{
    char path[256], text[128] = "";

    snprintf(path, sizeof(path), "%s/%s", folder, file);
    xccl_sysfs_line(path, text, sizeof(text));
    return strstr(text, word) != NULL;
}

int xccl_huge_pages_wanted(const char *folder)
{
    static const char all[] = "enabled", own[] = "hugepages-2048kB/enabled";
    int wanted = has_chosen(folder, all, "[always]") || has_chosen(folder, all, "[madvise]");

    /* Since Linux 6.8 each size has its own word, which may be that of all. */
    if (has_chosen(folder, own, "[never]"))
        wanted = 0;
    else if (has_chosen(folder, own, "[always]") || has_chosen(folder, own, "[madvise]"))
        wanted = 1;
    return wanted && prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 0;
}

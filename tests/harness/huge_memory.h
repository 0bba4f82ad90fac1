/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests of memory in huge pages: how much of it is, as the kernel tells. Kernels before 6.1
 * make none when they are asked, others may have none left, and some give them to all memory
 * without being asked: tests probe that with memory of their own. Thread: any. */
#ifndef TESTS_HARNESS_HUGE_MEMORY_H
#define TESTS_HARNESS_HUGE_MEMORY_H

#include <stdio.h>
#include <string.h>

#include "base/huge_pages.h"
#include "xt.h"

/* Of the mapping that has it, KiB that a field of /proc/self/smaps counts. */
static inline long huge_kib(const void *at, const char *field)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    size_t name = strlen(field);
    unsigned long first, end;
    long kib = 0, part;
    char line[256];
    int found = 0;

    XT_CHECK(file != NULL);
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx", &first, &end) == 2)
            found = first <= (unsigned long)at && (unsigned long)at < end;
        else if (found && strncmp(line, field, name) == 0 &&
                 sscanf(line + name, ": %ld", &part) == 1)
            kib += part;
    }
    fclose(file);
    return kib;
}

/* A mapping of its own, with nothing beside it, that begins with a whole one. */
static inline char *huge_map(size_t bytes, int flags)
{
    uintptr_t mask = XCCL_HUGE_PAGE - 1;
    char *around = mmap(NULL, bytes + 4 * XCCL_HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
                        -1, 0);
    char *whole = (char *)(((uintptr_t)around + 2 * XCCL_HUGE_PAGE) & ~mask);

    XT_CHECK(around != MAP_FAILED);
    XT_CHECK(mmap(whole, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
             whole);
    return whole;
}

/* Small pages become huge ones when it is asked, and not before. */
static inline void huge_skip_unless_asked(void)
{
    char *probe = huge_map(8 * XCCL_HUGE_PAGE, MAP_PRIVATE);
    int made;

    memset(probe, 1, 8 * XCCL_HUGE_PAGE);
    if (huge_kib(probe, "AnonHugePages"))
        XT_SKIP("this system gives huge pages without being asked");
    made = madvise(probe, 8 * XCCL_HUGE_PAGE, MADV_COLLAPSE) == 0;
    munmap(probe, 8 * XCCL_HUGE_PAGE);
    if (!made)
        XT_SKIP("this kernel makes no huge pages when it is asked");
}

#endif

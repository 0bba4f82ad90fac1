/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests of memory in huge pages: how much of it is, as the kernel tells. Kernels before 6.1
 * make none when they are asked, others may have none left, and some give them to all memory
 * without being asked: tests probe that with memory of their own. Thread: any. */
#ifndef TESTS_HARNESS_HUGE_MEMORY_H
#define TESTS_HARNESS_HUGE_MEMORY_H

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "xt.h"

#define COLLAPSE 25 /* MADV_COLLAPSE, since Linux 6.1 */

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

/* A mapping of its own, with nothing beside it. */
static inline char *huge_map(size_t bytes, int flags)
{
    size_t room = bytes + (8u << 20);
    char *around = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *whole;

    XT_CHECK(around != MAP_FAILED);
    whole = (char *)(((uintptr_t)around + (4u << 20)) & ~(uintptr_t)((2u << 20) - 1));
    XT_CHECK(mmap(whole, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
             whole);
    return whole;
}

/* Small pages become huge ones when it is asked, and not before. */
static inline void huge_skip_unless_asked(void)
{
    size_t bytes = 4u << 20;
    char *probe = huge_map(bytes, MAP_PRIVATE);
    int made;

    memset(probe, 1, bytes);
    if (huge_kib(probe, "AnonHugePages"))
        XT_SKIP("this system gives huge pages without being asked");
    made = madvise(probe, bytes, COLLAPSE) == 0;
    munmap(probe, bytes);
    if (!made)
        XT_SKIP("this kernel makes no huge pages when it is asked");
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests of memory in huge pages: how much of it is, as the kernel tells. Kernels before 6.1
 * make none when they are asked, and others may have none left: tests probe that with memory of
 * their own. Thread: any. */
#ifndef TESTS_HARNESS_HUGE_PAGES_H
#define TESTS_HARNESS_HUGE_PAGES_H

#include <stdio.h>
#include <string.h>

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

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Small files of the kernel; the header says what each function gives. Nothing is kept: a file is
 * read once, in one call, as the kernel writes it anew for each.
 *
 * Thread: any. */
#include "base/sysfs.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void xccl_sysfs_line(const char *path, char *text_out, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, text_out, bytes - 1);

    if (fd >= 0)
        close(fd);
    text_out[got > 0 ? got : 0] = 0;
    text_out[strcspn(text_out, "\n")] = 0;
}

uint32_t xccl_sysfs_number(const char *path)
{
    char text[64];
    long value;

    xccl_sysfs_line(path, text, sizeof(text));
    value = strtol(text, NULL, 10);
    return value > 0 && value < INT32_MAX ? (uint32_t)value : 0;
}

uint32_t xccl_sysfs_speed(const char *interface)
{
    char path[128];

    snprintf(path, sizeof(path), "/sys/class/net/%.63s/speed", interface);
    return xccl_sysfs_number(path);
}

void xccl_sysfs_card(const char *link, char *path_out, size_t bytes)
{
    char real[PATH_MAX];
    char *last;

    path_out[0] = 0;
    if (!realpath(link, real))
        return;
    last = strrchr(real, '/');
    if (last && strncmp(last, "/virtio", 7) == 0)
        *last = 0;
    if (strlen(real) < bytes)
        memcpy(path_out, real, strlen(real) + 1);
}

/* As far as "/sys/devices/pci0000:3a". 0: it is not there. */
static size_t root_length(const char *path)
{
    const char *pci = strstr(path, "/pci"), *end = pci ? strchr(pci + 1, '/') : NULL;

    return end ? (size_t)(end - path) : 0;
}

int xccl_sysfs_same_root(const char *card, const char *other)
{
    size_t length = root_length(card);

    return length && root_length(other) == length && memcmp(card, other, length) == 0;
}

int xccl_sysfs_node(const char *card)
{
    char path[PATH_MAX], text[16], *end;
    long node;

    snprintf(path, sizeof(path), "%.4000s/numa_node", card);
    xccl_sysfs_line(path, text, sizeof(text));
    node = strtol(text, &end, 10);
    return end == text || *end || node < 0 || node > INT16_MAX ? -1 : (int)node;
}

/* Whether one of the cores is in a list such as "0-3,8". */
static int list_has(const char *list, const uint64_t cores[XCCL_CORE_WORDS])
{
    while (*list) {
        char *end;
        unsigned long first = strtoul(list, &end, 10), last = first;

        if (end == list)
            return 0;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        for (unsigned long core = first; core <= last && core < 64 * XCCL_CORE_WORDS; core++) {
            if (cores[core / 64] >> (core % 64) & 1)
                return 1;
        }
        list = *end == ',' ? end + 1 : "";
    }
    return 0;
}

uint64_t xccl_sysfs_nodes(const uint64_t cores[XCCL_CORE_WORDS])
{
    uint64_t nodes = 0;

    for (int node = 0; node < 64; node++) {
        char path[64], list[1024];

        snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpulist", node);
        xccl_sysfs_line(path, list, sizeof(list));
        if (list_has(list, cores))
            nodes |= 1ull << node;
    }
    return nodes;
}

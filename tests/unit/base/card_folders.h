/* SPDX-License-Identifier: BSD-3-Clause */
/* Folders like those in which the kernel shows network cards, made below a folder of the test's: a
 * stand-in for sysfs, or a file system that the test has mounted over it. What is made stays until
 * the test's folder, or its mounts, are gone.
 *
 * Thread: any. */
#ifndef XCCL_TESTS_CARD_FOLDERS_H
#define XCCL_TESTS_CARD_FOLDERS_H

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "xt.h"

static inline void card_file(const char *folder, const char *name, const char *text)
{
    char path[PATH_MAX];
    FILE *file;

    snprintf(path, sizeof(path), "%.3000s/%.200s", folder, name);
    file = fopen(path, "we");
    XT_CHECK(file != NULL);
    fprintf(file, "%s\n", text);
    XT_CHECK_INT(fclose(file), 0);
}

/* All folders of a path, below one that is there. */
static inline void card_folder(const char *below, const char *names, char path_out[PATH_MAX])
{
    size_t used = (size_t)snprintf(path_out, PATH_MAX, "%.3000s", below);

    while (*names) {
        size_t bytes = strcspn(names, "/");

        used += (size_t)snprintf(path_out + used, PATH_MAX - used, "/%.*s", (int)bytes, names);
        (void)mkdir(path_out, 0755);
        names += bytes + (names[bytes] == '/');
    }
}

/* class: the folder "class" of sysfs; vendor, device NULL: the card has no such files; type NULL:
 * no node_type. */
static inline void card_make(const char *class, const char *name, const char *vendor,
                             const char *device, const char *type)
{
    char names[256], path[PATH_MAX], *slash;

    snprintf(names, sizeof(names), "%.100s/device", name);
    card_folder(class, names, path);
    if (vendor)
        card_file(path, "vendor", vendor);
    if (device)
        card_file(path, "device", device);
    slash = strrchr(path, '/');
    *slash = 0;
    if (type)
        card_file(path, "node_type", type);
}

/* As EC2 shows them: of the verbs by name, of Amazon by number. */
static inline void card_make_efa(const char *class, const char *name)
{
    char path[64];

    snprintf(path, sizeof(path), "infiniband/%.40s", name);
    card_make(class, path, "0x1d0f", "0xefa2", "7: unspecified");
}

static inline void card_make_mlx5(const char *class, const char *name)
{
    char path[64];

    snprintf(path, sizeof(path), "infiniband/%.40s", name);
    card_make(class, path, "0x15b3", "0x1017", "1: CA");
}

static inline void card_make_cxi(const char *class, const char *name)
{
    char path[64];

    snprintf(path, sizeof(path), "cxi/%.40s", name);
    card_make(class, path, "0x17db", "0x0501", NULL);
}

#endif

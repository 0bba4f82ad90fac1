/* SPDX-License-Identifier: BSD-3-Clause */
/* Files that this process may load or obey: only root, this user and the owners that were named can
 * write the file, a folder on the way to it, or a symbolic link on the way. So no other user can
 * change what a path leads to, and the file that was looked at is the one that is opened
 * afterwards.
 *
 * Three things are not checked. (1) Folders above the one of the file that holds this code
 * (libxccl.so, a plugin, or the program): a user who can change them can change this code. (2) An
 * owner or a group that can change that file anyway, on a path that ends in a folder that comes
 * with it. (3) The rights that a network file system gives to other machines. Thread: any. */
#ifndef XCCL_BASE_TRUST_H
#define XCCL_BASE_TRUST_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Numbers of a file, some of which change when it is replaced or written. */
struct xccl_file_id {
    uint64_t dev, ino;
    int64_t bytes;
    struct timespec modified, changed;
};
int xccl_file_id_is_same(const struct xccl_file_id *a, const struct xccl_file_id *b);
/* Gets the numbers of the file behind all links; 0 with errno. */
int xccl_file_id_get(const char *path, struct xccl_file_id *id_out);

struct xccl_trust_rules {
    const char *owners; /* XCCL_PLUGIN_OWNERS; NULL: none can be named */
    const char *const *own; /* real paths of folders that come with the file of this code */
    int own_count;
    int may_be_device; /* 1: a character device will do */
};

#define XCCL_TRUST_REFUSED (-1)
#define XCCL_TRUST_ERROR   (-2) /* with errno */

/* Opens a file for reading after a look at each step of the way. Negative: why_out says which step,
 * who owns it, its mode, and what to do. */
int xccl_trust_open(const char *path, const struct xccl_trust_rules *rules,
                    struct xccl_file_id *id_out, char *why_out, size_t bytes);
/* 1: such a file may be opened by that path afterwards. */
int xccl_trust_look(const char *path, const struct xccl_trust_rules *rules,
                    struct xccl_file_id *id_out, char *why_out, size_t bytes);

/* 1: a library may be opened by that name: it is such a file, or has no slash, so that the dynamic
 * loader looks for it in its own places. */
int xccl_trust_library(const char *name, const char *owners, char *why_out, size_t bytes);

/* The real path of the file that holds this code; 0: the system does not say. */
int xccl_trust_home(char path_out[PATH_MAX]);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors of the process, which libraries below a plugin open and close as they like: which
 * ones are open, and whether there is room for more.
 * Thread: any. */
#ifndef KIT_FDS_H
#define KIT_FDS_H

#include <stdint.h>

#define KIT_FDS_MAX 65536 /* larger ones are not looked for */

/* Descriptors that were open at some time, a bit each. */
struct kit_fds {
    uint64_t bits[KIT_FDS_MAX / 64];
};

/* The next open descriptor after fd, or -1. */
int kit_fds_next(int fd);
void kit_fds_note(struct kit_fds *fds_out);
int kit_fds_has(const struct kit_fds *fds, int fd);
/* 1: so many can still be opened, at most KIT_FDS_ROOM_MAX. Opens and closes them. */
#define KIT_FDS_ROOM_MAX 64
int kit_fds_have_room(int count);

#endif

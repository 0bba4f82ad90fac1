/* SPDX-License-Identifier: BSD-3-Clause */
/* Where records lie, one file a process: the folder that XCCL_RECORD_DIR names, else
 * $XDG_RUNTIME_DIR/xccl, else /dev/shm/xccl-UID. A folder is used only when it is no link, belongs
 * to this user, and nobody else may write there. A file is locked by its process as long as that
 * lives (a lock of the open file, which the kernel takes back), so that "dead" is never a guess.
 * Thread: any. */
#ifndef XCCL_RECORD_RECORD_FOLDER_H
#define XCCL_RECORD_RECORD_FOLDER_H

#include <stddef.h>

#define XCCL_RECORD_PATH_BYTES 512
#define XCCL_RECORD_FOLDERS    2
#define XCCL_RECORD_SUFFIX     ".record"
#define XCCL_RECORD_DEAD_MAX   64 /* files of dead processes that are kept ... */
#define XCCL_RECORD_DEAD_BYTES (32u << 20) /* ... and their bytes in all */

/* The folders in which records of this user may be, the first being where new ones are made;
 * returns how many. */
int xccl_record_folders(char paths_out[XCCL_RECORD_FOLDERS][XCCL_RECORD_PATH_BYTES]);
/* A descriptor of the folder, made when `make` says so and it is not there. -1: why_out tells why
 * it cannot be used; "" when it is not there. */
int xccl_record_folder_open(const char *path, int make, char *why_out, size_t bytes);
/* 1 when it is the name of a whole record. */
int xccl_record_is_name(const char *name);

/* Takes the process's lock of a file; 0 on success. */
int xccl_record_lock(int fd);
/* 1: a process holds the lock of this open file. */
int xccl_record_is_live(int fd);
/* Removes records of dead processes, the oldest first, as far as there are too many. */
void xccl_record_reap(int folder_fd);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* This process's record file: made with its first communicator, one block a communicator, removed
 * with the last one or at exit, left where it is when the process is killed. Stays in this folder.
 * Thread: one at a time; record.c has the lock. */
#ifndef XCCL_RECORD_RECORD_FILE_H
#define XCCL_RECORD_RECORD_FILE_H

#include "record/record_clock.h"

struct xccl_record_file {
    struct xccl_record_head *head; /* NULL: there is no file */
    int fd, folder_fd;
    uint64_t inode; /* of fd */
    uint32_t pid; /* that made it */
    char name[64];
};

/* 0; -1: why_out tells why there is none. */
int xccl_record_file_make(struct xccl_record_file *file, uint32_t events, char *why_out,
                          size_t bytes);
/* Maps block number idx, taking its memory from the file system when it is new. NULL: why_out. */
struct xccl_record_block *xccl_record_file_block(struct xccl_record_file *file, uint32_t idx,
                                                 char *why_out, size_t bytes);
/* Notes the time, so that ticks can be told in seconds where no clock can be asked any more. */
void xccl_record_file_mark(struct xccl_record_file *file);
/* Removes it. No block is touched: they may still be written to. */
void xccl_record_file_remove(struct xccl_record_file *file);
/* Leaves the file to the parent, in a child of fork(). Drops the child's share of the file's lock,
 * by which others see whether the parent lives. */
void xccl_record_file_leave(struct xccl_record_file *file);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* The private memory of other processes of this host, read through the kernel: one copy from the
 * sender's buffer to the receiver's, where a slot takes two. The kernel allows it to processes of
 * one user, unless it is told otherwise (Yama, seccomp, user namespaces), so it is tried out. Only
 * reading: what a process reads it asked for, and nothing writes into another one. Thread: any. */
#ifndef XCCL_TRANSPORT_PEER_MEMORY_H
#define XCCL_TRANSPORT_PEER_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "xccl.h"

/* XCCL_PEER_MEMORY, in the order of its words. */
enum xccl_peer_memory { XCCL_PEER_MEMORY_AUTO, XCCL_PEER_MEMORY_OFF, XCCL_PEER_MEMORY_ON };

/* A word of this process with which others find out whether they read its memory. */
struct xccl_peer_mark {
    uint64_t at, word; /* its address and its value; 0: there is none */
};
struct xccl_peer_mark xccl_peer_mark(void);

/* 1: all of it was read; 0: errno tells. */
int xccl_peer_read(int pid, void *to, uint64_t from, size_t bytes);
/* Success: process pid is the one with the mark, and its memory can be read. */
xcclResult_t xccl_peer_try(int pid, const struct xccl_peer_mark *mark);

#endif

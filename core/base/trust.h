/* SPDX-License-Identifier: BSD-3-Clause */
/* Which shared libraries this process may load: what another user of the machine could have placed
 * or changed is kept out. Who can write a file's folder can replace the file after the look at it,
 * so the folder is looked at too. Links are followed first.
 *
 * Thread: any. */
#ifndef XCCL_BASE_TRUST_H
#define XCCL_BASE_TRUST_H

#include <stddef.h>

/* 1: a regular file that nobody but its owner and group can change, in such a folder; else why_out
 * says what is wrong. */
int xccl_trust_file(const char *path, char *why_out, size_t bytes);
/* 1: besides, file and folder belong to root or to the user of this process. */
int xccl_trust_owned(const char *path, char *why_out, size_t bytes);

#endif

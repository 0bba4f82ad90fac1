/* SPDX-License-Identifier: BSD-3-Clause */
/* Huge pages for memory that has small ones (MADV_COLLAPSE, Linux 6.1): what it holds and where it
 * lies stay. The kernel takes 1 to 4 ms for each of them. Thread: any. */
#ifndef XCCL_BASE_HUGE_PAGES_H
#define XCCL_BASE_HUGE_PAGES_H

#include <stddef.h>
#include <stdint.h>

#define XCCL_HUGE_PAGE ((size_t)2 << 20) /* where they are larger, the kernel finds none inside */

/* For what the program has asked it, whatever transparent_hugepage says: takes memory for all of
 * it, as far as the kernel does that and some tenths of a second go. Memory of any kind: where it
 * cannot be done some pages may have been taken. */
void xccl_huge_pages_make(void *at, size_t bytes);

enum xccl_huge_pages { XCCL_HUGE_PAGES_SOME, XCCL_HUGE_PAGES_ALL, XCCL_HUGE_PAGES_LATER };

/* For what the program knows nothing of: where all small pages are there and nobody else has them,
 * so that no more memory is taken than before, and that of files, of other processes and of
 * children is left alone. LATER: the time was up before the end. */
enum xccl_huge_pages xccl_huge_pages_gather(void *at, size_t bytes, uint64_t until_ns);
/* Whether memory may get them without being asked: transparent_hugepage is not never, for this size
 * either, and PR_SET_THP_DISABLE is not set. */
int xccl_huge_pages_wanted(void);

#endif

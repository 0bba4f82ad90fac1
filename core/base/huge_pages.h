/* SPDX-License-Identifier: BSD-3-Clause */
/* Huge pages for memory that has small ones (MADV_COLLAPSE, Linux 6.1): what it holds and where it
 * lies stay. The kernel takes 1 to 4 ms for each of them. Thread: any. */
#ifndef XCCL_BASE_HUGE_PAGES_H
#define XCCL_BASE_HUGE_PAGES_H

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

#define XCCL_HUGE_PAGE ((size_t)2 << 20) /* where they are larger, the kernel finds none inside */

/* For what the program has asked it, whatever transparent_hugepage says: takes memory for all of
 * it, as far as the kernel does that and some tenths of a second go. Memory of any kind: where it
 * cannot be done some pages may have been taken. */
void xccl_huge_pages_make(void *at, size_t bytes);

#endif

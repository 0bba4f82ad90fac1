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

/* For what the program knows nothing of, from *done_io bytes on: where all small pages are there
 * and nobody else has them, so that no more memory is taken than before, and what is shared, with
 * children too, or of a file is left alone (but for a file's private map all of whose pages were
 * written to). So it is with one of which at least `edge` bytes are this memory: what lies beside
 * it there only changes its pages, too, but for what other threads give back at this very moment,
 * which may be there again. *done_io becomes how far it got, all of it unless the time was up, for
 * which these count as nothing. 0: some had to stay as they are that lie in this memory, or for
 * which there was none; also where /proc/self/pagemap cannot be read. */
int xccl_huge_pages_gather(void *at, size_t bytes, size_t edge, size_t *done_io, uint64_t until_ns);
/* Whether memory may get them without being asked, by the words in this folder: not never, for this
 * size either; and PR_SET_THP_DISABLE is not set. */
#define XCCL_HUGE_PAGES_FOLDER "/sys/kernel/mm/transparent_hugepage"
int xccl_huge_pages_wanted(const char *folder);

#endif

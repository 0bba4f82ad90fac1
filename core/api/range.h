/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranges of NVTX around the public calls of CUDA communicators, so that NVIDIA's tools (nsys) show
 * them on their time line, in a domain "XCCL". Built with device code, where NVTX's headers are;
 * they need no library. Calls of the host's communicators have none: they take less time than a
 * tool would. Without a tool a range is two looks at a pointer. Thread: any. */
#ifndef XCCL_API_RANGE_H
#define XCCL_API_RANGE_H

#ifdef XCCL_HAS_NVTX
/* call: a public name, constant. */
void xccl_range_push(const char *call);
void xccl_range_pop(void);
/* 1: some range has been pushed in this process. */
int xccl_range_is_used(void);
#else
static inline void xccl_range_push(const char *call)
{
    (void)call;
}
static inline void xccl_range_pop(void)
{
}
static inline int xccl_range_is_used(void)
{
    return 0;
}
#endif

#endif

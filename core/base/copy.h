/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies of messages. From some 2 KiB on memcpy takes the string instruction where the processor
 * says that it is fast. On Zen 3 and later it is not when the destination lies 1 to 31 bytes behind
 * the source, a multiple of a page aside: 128 KiB take 43 us in place of 3. Slots begin with a
 * page, and memory of malloc that is large lies 16 bytes behind one, so that receiving is just that
 * (https://sourceware.org/bugzilla/show_bug.cgi?id=30994; tests/unit/base/test_copy.c measures it).
 * Thread: any. */
#ifndef XCCL_BASE_COPY_H
#define XCCL_BASE_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define XCCL_COPY_STRING_MIN 1024u /* bytes from which somebody may take the string instruction */

/* Copies as memcpy does, never by the string instruction. */
void xccl_copy_by_vectors(void *to, const void *from, size_t bytes);

/* 1: the string instruction is slow there. */
static inline int xccl_copy_is_close(const void *to, const void *from)
{
    return ((uintptr_t)to - (uintptr_t)from - 1) % 4096 < 31;
}

static inline void xccl_copy(void *to, const void *from, size_t bytes)
{
#if defined(__x86_64__) && !defined(XCCL_SANITIZED)
    if (bytes >= XCCL_COPY_STRING_MIN && xccl_copy_is_close(to, from)) {
        xccl_copy_by_vectors(to, from, bytes);
        return;
    }
#endif
    memcpy(to, from, bytes);
}

/* Into a slot. From 1 KiB the string instruction beats vector stores, which fetch the line first.
 */
static inline void xccl_copy_to_slot(void *slot, const void *from, size_t bytes)
{
#if defined(__x86_64__) && !defined(XCCL_SANITIZED)
    if (bytes >= XCCL_COPY_STRING_MIN && bytes < 8192 && !xccl_copy_is_close(slot, from)) {
        __asm__ volatile("rep movsb" : "+D"(slot), "+S"(from), "+c"(bytes)::"memory");
        return;
    }
#endif
    xccl_copy(slot, from, bytes);
}

#endif

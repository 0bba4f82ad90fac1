/* SPDX-License-Identifier: BSD-3-Clause */
/* How fuzz targets cut their input into pieces of fixed sizes.
 *
 * Thread: any. */
#ifndef TESTS_FUZZ_TAKE_H
#define TESTS_FUZZ_TAKE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The next bytes of the input, zero where there are none. */
static inline void take(const uint8_t **data, size_t *size, void *to, size_t bytes)
{
    size_t have = *size < bytes ? *size : bytes;

    memset(to, 0, bytes);
    memcpy(to, *data, have);
    *data += have;
    *size -= have;
}

#endif

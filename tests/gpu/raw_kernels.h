/* SPDX-License-Identifier: BSD-3-Clause */
/* What the hand-written kernels and the program that times them agree on. Plain C and C++. The
 * program fills it in; constant during a launch. */
#ifndef TESTS_GPU_RAW_KERNELS_H
#define TESTS_GPU_RAW_KERNELS_H

#include <stdint.h>

#define RAW_RANKS      8
#define RAW_SLOTS      8
#define RAW_SLOT_BYTES (256u << 10)
#define RAW_LINES      (32u << 10) /* of one sender: two floats each */

struct raw_args {
    uint32_t nranks, channels;
    uint64_t count; /* elements of the vector */
    uint64_t in[RAW_RANKS], out[RAW_RANKS]; /* addresses */
    uint64_t slots, flags; /* zeroed once: 64 words for each block */
};

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Points of the product of all that a kernel's run depends on: a cover in which every two values of
 * different dimensions meet, points drawn at random, and the whole product number by number. The
 * same points for the same seed. Pure functions: any thread. */
#ifndef TESTS_EMU_DEV_POINTS_H
#define TESTS_EMU_DEV_POINTS_H

#include <stddef.h>
#include <stdint.h>

#define DEV_POINT_RANKS 8 /* at most, by default */

enum dev_dimension {
    DEV_ALGO, /* of dev_algo_at() */
    DEV_PROTO, /* enum xccl_dev_proto */
    DEV_TYPE, /* xcclDataType_t */
    DEV_OP, /* of reductions, else 0; up to DEV_PREMUL */
    DEV_RANKS_LESS_1,
    DEV_IN_AT, /* elements that IN and OUT are off their alignment */
    DEV_OUT_AT,
    DEV_IN_PLACE,
    DEV_CHANNELS_LESS_1,
    DEV_COUNT, /* of enum dev_count */
    DEV_SLOTS, /* how many more than the fewest, and how large: a table of test_device_cover.c */
    DEV_START, /* where steps and operations begin: likewise */
    DEV_DIMENSIONS
};

enum dev_count {
    DEV_COUNT_0,
    DEV_COUNT_1,
    DEV_COUNT_ODD, /* a few elements */
    DEV_COUNT_SLICE, /* each chunk is one slice */
    DEV_COUNT_OVER, /* and one element more */
    DEV_COUNT_TILES, /* several of each */
    DEV_COUNTS
};

struct dev_point {
    uint8_t at[DEV_DIMENSIONS];
};

/* An algorithm with a parameter. */
struct dev_algo {
    const struct xccl_generator *generator;
    int param;
};
#define DEV_ALGOS_MAX 64
/* How many there are; the first number of them are in algos_out, which has room for all. */
unsigned dev_algos(struct dev_algo *algos_out);

/* 1: there is such a point; what means nothing in it is then 0. */
int dev_point_normal(struct dev_point *point);
/* In any order; allocated for the caller. */
struct dev_point *dev_points_pairs(uint64_t seed, size_t *count_out);
struct dev_point dev_point_random(uint64_t *seed);

#endif

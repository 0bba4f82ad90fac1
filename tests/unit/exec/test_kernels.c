/* SPDX-License-Identifier: BSD-3-Clause */
/* Many parts combined at once, against plain loops: sizes around vector widths, every alignment,
 * outputs that are one of the inputs, values where order or overflow would show. Then the small
 * functions beside the kernels. */
#include "exec/host/kernels_sets.h"

#include <stdint.h>

#include "xt.h"

#define COUNT_MAX 3000
#define PARTS_MAX 9

static _Alignas(64) char room[PARTS_MAX + 1][COUNT_MAX * 4 + 128];

static void fill(uint64_t *seed, char *at, size_t count, int is_float)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)xt_random(seed);
        float value = (float)(int32_t)bits / 977.0f;

        memcpy(at + i * 4, is_float ? (const void *)&value : (const void *)&bits, 4);
    }
}

/* One element of the sum, in order. */
static uint32_t plain_sum(char *const *parts, unsigned count, size_t i, int is_float)
{
    uint32_t word;
    float sum, next;

    memcpy(&word, parts[0] + i * 4, 4);
    for (unsigned p = 1; p < count; p++) {
        uint32_t other;

        memcpy(&other, parts[p] + i * 4, 4);
        if (is_float) {
            memcpy(&sum, &word, 4);
            memcpy(&next, &other, 4);
            sum += next;
            memcpy(&word, &sum, 4);
        } else {
            word += other;
        }
    }
    return word;
}

static void check_one(uint64_t *seed, int is_float, size_t count, unsigned nparts, int out_is)
{
    static uint32_t want[COUNT_MAX];
    xccl_reduce_fn *reduce = xccl_reduce_kernel(is_float ? xcclFloat32 : xcclInt32, xcclSum);
    const void *parts[PARTS_MAX];
    char *at[PARTS_MAX], *out;

    for (unsigned p = 0; p < nparts; p++) {
        at[p] = room[p] + xt_random(seed) % 64;
        parts[p] = at[p];
        fill(seed, at[p], count, is_float);
    }
    out = out_is < (int)nparts ? at[out_is] : room[PARTS_MAX] + xt_random(seed) % 64;
    for (size_t i = 0; i < count; i++)
        want[i] = plain_sum(at, nparts, i, is_float);
    memset(out + count * 4, 0x5a, 8);
    xccl_reduce_many(reduce, 4, out, parts, nparts, count);
    XT_CHECK(memcmp(out, want, count * 4) == 0);
    XT_CHECK(memcmp(out + count * 4, "ZZZZZZZZ", 8) == 0); /* nothing behind the end */
}

XT_TEST(sums_equal_a_plain_loop_bit_for_bit)
{
    uint64_t seed = xt_seed();

    for (int round = 0; round < 3000; round++) {
        size_t count = xt_random(&seed) % (round % 10 ? 80 : COUNT_MAX);
        unsigned nparts = 2 + (unsigned)(xt_random(&seed) % (PARTS_MAX - 2));

        check_one(&seed, round & 1, count, nparts, (int)(xt_random(&seed) % (nparts + 1)));
    }
}

XT_TEST(type_sizes_are_known_for_all_types_and_zero_beyond)
{
    static const size_t want[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

    for (int type = 0; type < xcclNumTypes; type++)
        XT_CHECK_INT(xccl_type_bytes((xcclDataType_t)type), want[type]);
    XT_CHECK_INT(xccl_type_bytes((xcclDataType_t)xcclNumTypes), 0);
    XT_CHECK_INT(xccl_type_bytes((xcclDataType_t)-1), 0);
}

static void is_of_set(const char *word, const char *name)
{
    struct xccl_kernel_set sets[XCCL_KERNEL_SETS_MAX];
    unsigned count = xccl_kernel_sets(sets), i = 0;

    xt_setenv("XCCL_KERNELS", word);
    while (i + 1 < count && strcmp(sets[i].name, name) != 0)
        i++;
    XT_CHECK(xccl_reduce_kernel(xcclFloat32, xcclSum) == sets[i].of_type[xcclFloat32].reduce[0]);
}

XT_TEST(setting_names_the_set_and_a_set_that_is_not_there_gives_way_to_the_best)
{
    struct xccl_kernel_set sets[XCCL_KERNEL_SETS_MAX];

    is_of_set(xccl_kernel_sets(sets) > 1 ? "plain" : "avx512", "plain");
}
XT_TEST(without_the_setting_the_best_set_is_taken)
{
    struct xccl_kernel_set sets[XCCL_KERNEL_SETS_MAX];

    xccl_kernel_sets(sets);
    is_of_set(NULL, sets[0].name);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* What the reduction kernels and operators give, value by value: all pairs of the 8-bit floats, all
 * float16 and bfloat16, many pairs of the others, on every instruction set of this processor; then
 * what users are promised, in numbers. */
#include <limits.h>
#include <stdint.h>

#include "exec/host/kernels_sets.h"
#include "number_ref.h"
#include "xt.h"

#define ALL_16     65536
#define PAIR_COUNT 4096
#define PAIR_TURNS 16

/* Element i of each: x, y, what came out. */
static _Alignas(64) unsigned char in_x[ALL_16 * 8], in_y[ALL_16 * 8], got[ALL_16 * 8];

static struct xccl_kernel_set sets[XCCL_KERNEL_SETS_MAX];

static const char *const op_names[] = {"sum", "prod", "max", "min"};

static void check_reduce(const struct xccl_kernel_set *set, int type, int op, size_t count)
{
    const struct number_type *of = &number_types[type];

    set->of_type[type].reduce[op](got, in_x, in_y, count);
    for (size_t i = 0; i < count; i++) {
        uint64_t x = number_get(in_x, i, of), y = number_get(in_y, i, of);
        uint64_t want = number_combine(of, (xcclRedOp_t)op, x, y);

        if (!number_same(of, number_get(got, i, of), want))
            XT_FAIL("%s, %s: %s of %#llx and %#llx is %#llx, not %#llx", set->name, of->name,
                    op_names[op], (unsigned long long)x, (unsigned long long)y,
                    (unsigned long long)number_get(got, i, of), (unsigned long long)want);
    }
}

static void check_all_ops(int type, size_t count)
{
    unsigned nsets = xccl_kernel_sets(sets);

    for (unsigned i = 0; i < nsets; i++)
        for (int op = 0; op < xcclAvg; op++)
            check_reduce(&sets[i], type, op, count);
}

static void check_scale(const struct xccl_kernel_set *set, int type, float by, size_t count)
{
    const struct number_type *of = &number_types[type];
    struct xccl_scalar scalar = {{0}};

    memcpy(scalar.bytes, &by, sizeof(by));
    set->of_type[type].mul(got, in_x, count, &scalar);
    for (size_t i = 0; i < count; i++) {
        uint64_t x = number_get(in_x, i, of), want = number_scale(of, x, (double)by);

        if (!number_same(of, number_get(got, i, of), want))
            XT_FAIL("%s, %s: %#llx times %g is %#llx, not %#llx", set->name, of->name,
                    (unsigned long long)x, (double)by, (unsigned long long)number_get(got, i, of),
                    (unsigned long long)want);
    }
}

static void check_all_pairs_of(int type)
{
    for (int i = 0; i < ALL_16; i++) {
        in_x[i] = (unsigned char)i;
        in_y[i] = (unsigned char)(i >> 8);
    }
    check_all_ops(type, ALL_16);
}

XT_TEST(all_pairs_of_float8e4m3)
{
    check_all_pairs_of(xcclFloat8e4m3);
}

XT_TEST(all_pairs_of_float8e5m2)
{
    check_all_pairs_of(xcclFloat8e5m2);
}

/* By 1 they are converted there and back; by the others rounded in all ways, also to denormals, and
 * beyond the greatest. */
static void check_all_codes_of(int type)
{
    static const float factors[] = {1,     -1,    0.5f,  1.0f / 3, 1.0f / 7, 3,         1.001f,
                                    1e-3f, 1e-5f, 1e30f, 1e-38f,   0,        -INFINITY, NAN};
    unsigned nsets = xccl_kernel_sets(sets);

    for (int i = 0; i < ALL_16; i++)
        number_put(in_x, (size_t)i, &number_types[type], (uint64_t)i);
    for (unsigned i = 0; i < nsets; i++)
        for (size_t k = 0; k < sizeof(factors) / sizeof(factors[0]); k++)
            check_scale(&sets[i], type, factors[k], ALL_16);
}

XT_TEST(all_codes_of_float16_and_bfloat16_are_scaled)
{
    check_all_codes_of(xcclFloat16);
    check_all_codes_of(xcclBfloat16);
}

XT_TEST(all_codes_of_the_8_bit_floats_are_scaled)
{
    check_all_codes_of(xcclFloat8e4m3);
    check_all_codes_of(xcclFloat8e5m2);
}

/* Each code with itself, its neighbours, and a few that round it in other ways. */
XT_TEST(all_codes_of_float16_and_bfloat16_are_combined)
{
    static const int types[] = {xcclFloat16, xcclBfloat16};
    uint64_t seed = xt_seed();

    for (int turn = 0; turn < 8; turn++) {
        uint64_t other = turn < 3 ? (uint64_t)turn : xt_random(&seed);

        for (size_t i = 0; i < ALL_16; i++) {
            uint64_t y = turn < 3 ? i + other - 1 : turn < 6 ? other : xt_random(&seed);

            number_put(in_x, i, &number_types[xcclFloat16], i);
            number_put(in_y, i, &number_types[xcclFloat16], y);
        }
        for (int k = 0; k < 2; k++)
            check_all_ops(types[k], ALL_16);
    }
}

XT_TEST(random_pairs_of_all_types)
{
    uint64_t seed = xt_seed();

    for (int type = 0; type < xcclNumTypes; type++) {
        for (int turn = 0; turn < PAIR_TURNS; turn++) {
            /* All bits, or close to each other so that sums cancel. */
            uint64_t near = turn % 2 ? UINT64_MAX : 15;

            for (size_t i = 0; i < PAIR_COUNT; i++) {
                uint64_t x = xt_random(&seed), y = x ^ (xt_random(&seed) & near);

                number_put(in_x, i, &number_types[type], x);
                number_put(in_y, i, &number_types[type], y ^ (uint64_t)(turn & 2) << 62);
            }
            check_all_ops(type, PAIR_COUNT);
        }
    }
}

/* What maximum and minimum give hangs on nothing but the set of operands. */
XT_TEST(order_changes_no_bit_of_a_maximum)
{
    for (int type = xcclFloat16; type < xcclNumTypes; type++) {
        const struct number_type *of = &number_types[type];
        const uint64_t values[] = {0,
                                   number_nan(of) + 1,
                                   number_infinity(of),
                                   1,
                                   number_greatest(of),
                                   number_nan(of),
                                   number_mask(of)};
        unsigned nsets = xccl_kernel_sets(sets), count = sizeof(values) / sizeof(values[0]);

        for (unsigned i = 0; i < count * count * nsets * 2; i++) {
            uint64_t x = values[i % count], y = values[i / count % count], xy = 0, yx = 0;
            xccl_reduce_fn *reduce =
                sets[i / count / count % nsets].of_type[type].reduce[xcclMax + (i & 1)];

            reduce(&xy, &x, &y, 1);
            reduce(&yx, &y, &x, 1);
            XT_CHECK(number_same(of, xy, yx));
            XT_CHECK(number_is_nan(of, xy) == (number_is_nan(of, x) && number_is_nan(of, y)));
        }
    }
}

/* --- what is promised, in numbers --- */

static const struct {
    int type, op;
    uint64_t x, y, want;
} promises[] = {
    {xcclInt8, xcclSum, 0x7f, 1, 0x80},
    {xcclInt32, xcclSum, 0x80000000, 0xffffffff, 0x7fffffff},
    {xcclInt64, xcclProd, 0x8000000000000000, UINT64_MAX, 0x8000000000000000},
    {xcclInt8, xcclMax, 0xff, 0x01, 0x01},
    {xcclUint8, xcclMax, 0xff, 0x01, 0xff},
    {xcclUint64, xcclMin, UINT64_MAX, 1, 1},
    {xcclFloat16, xcclSum, 0x7bff, 0x7bff, 0x7c00}, /* 65504 + 65504: infinity */
    {xcclFloat16, xcclSum, 0x6800, 0x3c00, 0x6800}, /* 2048 + 1 = 2048: a tie, to even */
    {xcclFloat16, xcclSum, 0x6801, 0x3c00, 0x6802}, /* 2050 + 1 = 2052: a tie, to even */
    {xcclFloat16, xcclProd, 0x0001, 0x3800, 0x0000}, /* half of the least number */
    {xcclBfloat16, xcclSum, 0x7f7f, 0x7f7f, 0x7f80}, /* infinity */
    {xcclBfloat16, xcclSum, 0x0001, 0x0001, 0x0002}, /* denormal numbers stay */
    {xcclFloat8e4m3, xcclSum, 0x7e, 0x7e, 0x7e}, /* 448 + 448 = 448 */
    {xcclFloat8e4m3, xcclProd, 0xfe, 0x7e, 0xfe}, /* -448 * 448 = -448 */
    {xcclFloat8e5m2, xcclSum, 0x7b, 0x7b, 0x7b}, /* 57344 + 57344 = 57344 */
    {xcclFloat8e5m2, xcclSum, 0x7c, 0x3c, 0x7b}, /* infinity + 1 = 57344 */
    {xcclFloat8e5m2, xcclMax, 0x7c, 0x3c, 0x7c}, /* infinity is greater than 1 */
    {xcclFloat8e4m3, xcclMin, 0x7f, 0xff, 0x7f}, /* no number of two */
    {xcclFloat32, xcclMax, 0x7fc00000, 0xff800000, 0xff800000}, /* -infinity, not NaN */
    {xcclFloat32, xcclMax, 0x80000000, 0, 0},
    {xcclFloat32, xcclMin, 0x80000000, 0, 0x80000000},
    {xcclFloat32, xcclSum, 0x7f800000, 0xff800000, 0x7fc00000},
    {xcclFloat64, xcclSum, 1, 1, 2},
};

XT_TEST(kernels_give_what_their_header_says)
{
    for (size_t i = 0; i < sizeof(promises) / sizeof(promises[0]); i++) {
        const struct number_type *of = &number_types[promises[i].type];
        xccl_reduce_fn *reduce = xccl_reduce_kernel((xcclDataType_t)promises[i].type,
                                                    (xcclRedOp_t)promises[i].op);
        uint64_t x = promises[i].x, y = promises[i].y, out = 0;

        reduce(&out, &x, &y, 1);
        if (!number_same(of, out, promises[i].want))
            XT_FAIL("%s: %s of %#llx and %#llx is %#llx, not %#llx", of->name,
                    op_names[promises[i].op], (unsigned long long)x, (unsigned long long)y,
                    (unsigned long long)out, (unsigned long long)promises[i].want);
    }
}

XT_TEST(integer_division_is_that_of_c)
{
    static const uint32_t divisors[] = {1,   2,   3,   5,    7,     127,    128,
                                        255, 256, 257, 1000, 65536, INT_MAX};
    unsigned nsets = xccl_kernel_sets(sets);
    uint64_t seed = xt_seed();

    for (unsigned i = 0; i < nsets * xcclFloat16; i++) {
        int type = (int)(i % xcclFloat16);
        const struct number_type *of = &number_types[type];

        for (size_t k = 0; k < ALL_16; k++)
            number_put(in_x, k, of,
                       k < 1024 ? k - 512 + (k & 1 ? number_nan(of) : 0)
                                : xt_random(&seed) >> xt_random(&seed) % 64);
        for (size_t d = 0; d < sizeof(divisors) / sizeof(divisors[0]); d++) {
            struct xccl_scalar scalar = {{0}};

            memcpy(scalar.bytes, &divisors[d], sizeof(divisors[d]));
            sets[i / xcclFloat16].of_type[type].div(got, in_x, 16384, &scalar);
            for (size_t k = 0; k < 16384; k++)
                XT_CHECK(number_get(got, k, of) ==
                         number_divide(of, number_get(in_x, k, of), divisors[d]));
        }
    }
}

/* --- operators --- */

/* What nranks ranks with these contributions get, combined in order. */
static uint64_t apply(const struct xccl_operator *with, const uint64_t *contributions, int nranks)
{
    uint64_t sum = 0;

    for (int rank = 0; rank < nranks; rank++) {
        uint64_t mine = contributions[rank];

        if (with->pre)
            with->pre(&mine, &mine, 1, &with->scalar);
        if (rank == 0)
            sum = mine;
        else
            with->reduce(&sum, &sum, &mine, 1);
    }
    if (with->post)
        with->post(&sum, &sum, 1, &with->scalar);
    return sum;
}

static uint64_t average_of(int type, const uint64_t *contributions, int nranks)
{
    struct xccl_operator with;

    XT_CHECK_INT(xccl_operator_find((xcclDataType_t)type, xcclAvg, nranks, &with), 1);
    return apply(&with, contributions, nranks);
}

XT_TEST(averages_of_integers_divide_the_sum_toward_zero)
{
    const uint64_t minus[] = {0xfd, 0xfe, 0xfe}; /* -3 - 2 - 2 = -7 */
    const uint64_t wrapped[] = {0x7f, 0x7f}; /* 254 is -2 */
    const uint64_t great[] = {UINT64_MAX / 2, UINT64_MAX / 2};

    XT_CHECK_INT(average_of(xcclInt8, minus, 3), 0xfe);
    XT_CHECK_INT(average_of(xcclUint8, minus, 3), ((0xfd + 0xfe + 0xfe) & 0xff) / 3);
    XT_CHECK_INT(average_of(xcclInt8, wrapped, 2), 0xff);
    XT_CHECK(average_of(xcclUint64, great, 2) == UINT64_MAX / 2);
}

XT_TEST(averages_of_floats_scale_before_they_sum)
{
    const uint64_t huge[] = {0x7bff, 0x7bff, 0x7bff, 0x7bff}; /* 65504 */
    float third = 1.0f / 3, six = 6.0f, seven = 7.0f;
    const uint64_t three[] = {number_of_float32(six), number_of_float32(seven),
                              number_of_float32(seven)};
    double want = 1.0 / 3;
    const uint64_t ones[] = {number_of_float64(1.0), 0, 0};
    const uint64_t eights[] = {0x38, 0x38, 0x38}; /* 1 */

    XT_CHECK_INT(average_of(xcclFloat16, huge, 4), 0x7bff);
    XT_CHECK(average_of(xcclFloat32, three, 3) ==
             number_of_float32(six * third + seven * third + seven * third));
    XT_CHECK(average_of(xcclFloat64, ones, 3) == number_of_float64(want));
    /* A third is 0x2b = 0.34375, twice that 0x33 = 0.6875, and 1.03125 a tie, to even: 1. */
    XT_CHECK_INT(average_of(xcclFloat8e4m3, eights, 3), 0x38);
}

XT_TEST(an_average_of_one_rank_is_its_contribution)
{
    for (int type = 0; type < xcclNumTypes; type++) {
        struct xccl_operator with;

        XT_CHECK_INT(xccl_operator_find((xcclDataType_t)type, xcclAvg, 1, &with), 1);
        XT_CHECK(with.pre == NULL && with.post == NULL && with.reduce != NULL);
    }
}

/* As scalars, all numbers of the 8-bit types, and some of the others, at an odd address. */
XT_TEST(premul_sum_multiplies_by_a_number_of_the_type)
{
    uint64_t seed = xt_seed();

    for (int turn = 0; turn < 256 * xcclNumTypes; turn++) {
        const struct number_type *of = &number_types[turn / 256];
        uint64_t by = turn / 256 >= xcclFloat8e4m3 ? (uint64_t)(turn % 256) : xt_random(&seed);
        uint64_t x = xt_random(&seed) & number_mask(of), out, want;
        struct xccl_operator with;
        unsigned char odd[9];

        by &= number_mask(of);
        memset(odd, 0xa5, sizeof(odd));
        number_put(odd + 1, 0, of, by);
        XT_CHECK_INT(xccl_operator_premul((xcclDataType_t)(turn / 256), odd + 1, &with), 1);
        memset(odd, 0, sizeof(odd)); /* it was copied */
        XT_CHECK(with.post == NULL);
        out = apply(&with, &x, 1) & number_mask(of);
        want = of->exponent_bits ? number_combine(of, xcclProd, x, by) : (x * by) & number_mask(of);
        XT_CHECK(number_same(of, out, want));
    }
}

XT_TEST(only_types_and_operators_that_exist_have_kernels)
{
    struct xccl_operator with = {0};
    uint64_t one = 1;

    for (int type = -1; type <= xcclNumTypes; type++) {
        int is_type = type >= 0 && type < xcclNumTypes;

        for (int op = -1; op <= xcclNumOps; op++) {
            int is_op = op >= 0 && op < xcclNumOps;

            XT_CHECK_INT(xccl_operator_find((xcclDataType_t)type, (xcclRedOp_t)op, 2, &with),
                         is_type && is_op);
            XT_CHECK_INT(xccl_operator_find((xcclDataType_t)type, (xcclRedOp_t)op, 0, &with), 0);
            XT_CHECK_INT(xccl_reduce_kernel((xcclDataType_t)type, (xcclRedOp_t)op) != NULL,
                         is_type && is_op && op != xcclAvg);
        }
        XT_CHECK_INT(xccl_operator_premul((xcclDataType_t)type, &one, &with), is_type);
    }
}

XT_TEST(built_in_operators_but_avg_are_a_kernel_and_nothing_else)
{
    for (int type = 0; type < xcclNumTypes; type++) {
        for (int op = 0; op < xcclAvg; op++) {
            struct xccl_operator with;

            XT_CHECK_INT(xccl_operator_find((xcclDataType_t)type, (xcclRedOp_t)op, 7, &with), 1);
            XT_CHECK(with.reduce == xccl_reduce_kernel((xcclDataType_t)type, (xcclRedOp_t)op));
            XT_CHECK(with.pre == NULL && with.post == NULL);
        }
    }
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The test data of `xccl perf`: numbers of every type in bits, and for every type, operator and
 * number of ranks inputs whose reduction is the same in any order and as foretold. The reduction
 * here is a plain loop that refuses to round.
 *
 * Thread: one a test. */
#include <math.h>

#include "../../tools/perf/perf.h"
#include "xt.h"

#define SPAN 300

static struct xccl_perf_data data;
static struct xccl_perf_pattern pattern, result;

XT_TEST(floats_of_every_width_have_the_bits_they_should)
{
    static const struct {
        xcclDataType_t type;
        double value;
        uint64_t bits;
    } cases[] = {
        {xcclFloat16, 1, 0x3c00},
        {xcclFloat16, -65504, 0xfbff},
        {xcclFloat16, 0x1p-24, 1},
        {xcclBfloat16, 1, 0x3f80},
        {xcclBfloat16, -3, 0xc040},
        {xcclFloat8e4m3, 1, 0x38},
        {xcclFloat8e4m3, 448, 0x7e},
        {xcclFloat8e4m3, -0x1p-9, 0x81},
        {xcclFloat8e5m2, 1, 0x3c},
        {xcclFloat8e5m2, 57344, 0x7b},
        {xcclFloat8e5m2, 0x1p-16, 1},
        {xcclFloat32, 1.5, 0x3fc00000},
        {xcclFloat32, -0x1p-149, 0x80000001},
        {xcclFloat64, -2, 0xc000000000000000},
        {xcclFloat64, 0.1, 0x3fb999999999999a},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct xccl_perf_type *type = &xccl_perf_types[cases[i].type];

        XT_CHECK_INT(xccl_perf_float_bits(type, cases[i].value), cases[i].bits);
        XT_CHECK(xccl_perf_float_value(type, cases[i].bits) == cases[i].value);
    }
    XT_CHECK(isnan(xccl_perf_float_value(&xccl_perf_types[xcclFloat8e4m3], 0x7f)));
    XT_CHECK(isnan(xccl_perf_float_value(&xccl_perf_types[xcclFloat8e5m2], 0x7c)));
    XT_CHECK(isnan(xccl_perf_float_value(&xccl_perf_types[xcclFloat32], 0x7f800000)));
}

static uint64_t element(const struct xccl_perf_pattern *of, uint32_t k)
{
    int bytes = xccl_perf_types[data.type].bytes;
    uint64_t bits = 0;

    memcpy(&bits, of->bytes + k * (uint32_t)bytes, (size_t)bytes);
    return bits;
}

static double real(const struct xccl_perf_pattern *of, uint32_t k)
{
    return xccl_perf_float_value(&xccl_perf_types[data.type], element(of, k));
}

static double combine(double a, double b)
{
    switch ((int)data.op) {
    case xcclProd:
        return a * b;
    case xcclMax:
        return a > b ? a : b;
    case xcclMin:
        return a < b ? a : b;
    default:
        return a + b;
    }
}

/* Ranks in an order, each value exact in the type. scale: what each is multiplied with first. */
static void reduce_in_order(int first, int step, double scale, double *values)
{
    const struct xccl_perf_type *type = &xccl_perf_types[data.type];

    for (int i = 0; i < data.nranks; i++) {
        xccl_perf_pattern_draw(&data, (first + i * step) % data.nranks, &pattern);
        for (uint32_t k = 0; k < SPAN; k++) {
            double value = real(&pattern, k) * scale;

            values[k] = i ? combine(values[k], value) : value;
            XT_CHECK(xccl_perf_float_value(type, xccl_perf_float_bits(type, values[k])) ==
                     values[k]);
        }
    }
}

static void check_floats(void)
{
    double values[SPAN] = {0};
    int n = data.nranks, is_average = data.op == xcclAvg;
    int moved = 0;

    if (is_average && (n & (n - 1)) != 0)
        return; /* roundings are allowed for */
    for (int way = 0; way < 3; way++) {
        reduce_in_order(way, way == 1 ? n - 1 : 1, is_average && way == 2 ? 1.0 / n : 1, values);
        for (uint32_t k = 0; k < SPAN; k++) {
            double value = is_average && way < 2 ? values[k] / n : values[k];

            XT_CHECK(value == real(&result, k));
            moved += value < 0 || value > 0;
        }
    }
    XT_CHECK(moved > SPAN / 4);
}

/* Of an average with a number of ranks that is no power of two: one number, the others 0. */
static void check_rounded_average(void)
{
    const struct xccl_perf_type *type = &xccl_perf_types[data.type];
    struct xccl_perf_stretch part = {.count = SPAN, .is_result = 1};
    double scale = type->bytes == 8 ? 1.0 / data.nranks : 1.0F / (float)data.nranks;
    double sums[SPAN] = {0};
    char got[SPAN * 8];

    for (int rank = 0; rank < data.nranks; rank++) {
        xccl_perf_pattern_draw(&data, rank, &pattern);
        for (uint32_t k = 0; k < SPAN; k++) {
            XT_CHECK(sums[k] * real(&pattern, k) == 0);
            sums[k] += real(&pattern, k);
        }
    }
    for (size_t k = 0; k < SPAN; k++) {
        uint64_t bits = xccl_perf_float_bits(type, sums[k] * scale);

        memcpy(got + k * (size_t)type->bytes, &bits, (size_t)type->bytes);
    }
    XT_CHECK_INT(xccl_perf_pattern_wrong(&data, &result, got, part), 0);
}

static int64_t extend(uint64_t bits)
{
    const struct xccl_perf_type *type = &xccl_perf_types[data.type];
    int shift = 64 - 8 * type->bytes;

    return type->is_signed ? (int64_t)(bits << shift) >> shift : (int64_t)(bits << shift >> shift);
}

/* The sum of an average must fit, and be a multiple. */
static void check_whole_average(void)
{
    const struct xccl_perf_type *type = &xccl_perf_types[data.type];
    int64_t sums[SPAN] = {0};

    for (int i = 0; i < data.nranks; i++) {
        xccl_perf_pattern_draw(&data, i, &pattern);
        for (uint32_t k = 0; k < SPAN; k++) {
            sums[k] += extend(element(&pattern, k));
            if (type->bytes == 1)
                XT_CHECK(type->is_signed ? sums[k] >= -128 && sums[k] <= 127
                                         : sums[k] >= 0 && sums[k] <= 255);
        }
    }
    for (uint32_t k = 0; k < SPAN; k++) {
        XT_CHECK_INT(sums[k] % data.nranks, 0);
        XT_CHECK_INT(sums[k] / data.nranks, extend(element(&result, k)));
    }
}

static void check_wholes(void)
{
    uint64_t mask = UINT64_MAX >> (64 - 8 * xccl_perf_types[data.type].bytes);
    int is_signed = xccl_perf_types[data.type].is_signed;
    uint64_t values[SPAN] = {0};

    for (int i = 0; i < data.nranks; i++) {
        xccl_perf_pattern_draw(&data, i, &pattern);
        for (uint32_t k = 0; k < SPAN; k++) {
            uint64_t value = element(&pattern, k);
            int less = is_signed ? extend(value) < extend(values[k]) : value < values[k];

            if (i && data.op == xcclSum)
                values[k] = (values[k] + value) & mask;
            else if (i && data.op == xcclProd)
                values[k] = (values[k] * value) & mask;
            else if (!i || (data.op == xcclMin) == less)
                values[k] = value;
        }
    }
    for (uint32_t k = 0; k < SPAN; k++)
        XT_CHECK_INT(values[k], element(&result, k));
}

/* One changed bit, in any element, is found. */
static void check_damage(void)
{
    char got[SPAN * 8];
    size_t bytes = (size_t)xccl_perf_types[data.type].bytes;
    struct xccl_perf_stretch part = {.first = 7, .count = SPAN - 7, .is_result = 1};
    uint64_t state = xt_seed();
    size_t at = xt_random(&state) % (part.count * bytes);

    memcpy(got, result.bytes + part.first * bytes, part.count * bytes);
    XT_CHECK_INT(xccl_perf_pattern_wrong(&data, &result, got, part), 0);
    got[at - at % bytes + bytes - 1] ^= 0x20; /* of an exponent, or a high digit */
    XT_CHECK_INT(xccl_perf_pattern_wrong(&data, &result, got, part), 1);
}

static void check_data(void)
{
    int is_float = xccl_perf_types[data.type].exponent_bits != 0;
    int n = data.nranks;

    data.reduces = 1;
    data.span = SPAN;
    data.salt++;
    xccl_perf_pattern_reduce(&data, &result);
    check_damage();
    if (is_float)
        check_floats();
    else if (data.op == xcclAvg)
        check_whole_average();
    else
        check_wholes();
    if (is_float && data.op == xcclAvg && (n & (n - 1)) != 0 && n < 20)
        check_rounded_average();
}

XT_TEST_DEADLINE(every_reduction_is_exact_in_any_order_and_as_foretold, 120)
{
    static const int ranks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 24, 64, 200};

    for (int type = 0; type < xcclNumTypes; type++) {
        for (int op = 0; op < xcclNumOps; op++) {
            for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
                data.type = (xcclDataType_t)type;
                data.op = (xcclRedOp_t)op;
                data.nranks = ranks[i];
                check_data();
            }
        }
    }
}

XT_TEST(names_of_types_operators_and_collectives_are_found)
{
    XT_CHECK_INT(xccl_perf_type_find("float"), xcclFloat32);
    XT_CHECK_INT(xccl_perf_type_find("fp16"), xcclFloat16);
    XT_CHECK_INT(xccl_perf_type_find("bf16"), xcclBfloat16);
    XT_CHECK_INT(xccl_perf_type_find("fp8_e5m2"), xcclFloat8e5m2);
    XT_CHECK_INT(xccl_perf_type_find("fp8"), -1);
    XT_CHECK_INT(xccl_perf_type_find(""), -1);
    XT_CHECK_INT(xccl_perf_op_find("avg"), xcclAvg);
    XT_CHECK_INT(xccl_perf_op_find("mul"), -1);
    for (const struct xccl_perf_coll *coll = xccl_perf_colls; coll->name; coll++)
        XT_CHECK(xccl_perf_coll_find(coll->name) == coll);
    XT_CHECK(xccl_perf_coll_find("all_to_all") == xccl_perf_coll_find("alltoall_perf"));
    XT_CHECK(xccl_perf_coll_find("allreduce") == xccl_perf_coll_find("all_reduce"));
    XT_CHECK(xccl_perf_coll_find("reducescatter_perf") == xccl_perf_coll_find("reduce_scatter"));
    XT_CHECK(xccl_perf_coll_find("reduce_") != NULL);
    XT_CHECK(xccl_perf_coll_find("reduc") == NULL);
    XT_CHECK(xccl_perf_coll_find("") == NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Test data of `xccl perf`: contents that follow from a salt, a rank and a place, and what a
 * reduction of them must give, exactly, in whatever order an algorithm combines.
 *
 * Data that is only moved: random bits. Integers: random bits too, since sums and products wrap
 * around; products of odd numbers, which never come to 0; averages of numbers whose sum fits and is
 * a multiple of the number of ranks. Floats: sums of whole numbers of which only so many ranks have
 * one that is not 0 that no sum needs more digits than the type has; products of powers of two,
 * near 1; averages as sums where the number of ranks is a power of two, else one rank has a number
 * that is not 0, and the result may be off by the two roundings of a scale and a product.
 *
 * Thread: the program's main thread. */
#include <math.h>
#include <string.h>

#include "perf/perf.h"

#define GUARD_BYTE   0xC3
#define WHOLE_MAX    1024 /* no need for larger floats */
#define AVERAGE_MAX  1000
#define PROD_ACTIVE  2 /* ranks whose factor is not 1 or -1 */
#define TWO_ROUNDING 2.5

/* Mixes all bits of a number into all bits of another. */
static uint32_t mix(uint32_t value)
{
    value ^= value >> 16;
    value *= 0x7feb352du;
    value ^= value >> 15;
    value *= 0x846ca68bu;
    value ^= value >> 16;
    return value;
}

static uint64_t draw(uint32_t salt, int rank, uint32_t k)
{
    uint32_t high = mix(mix(salt * 4099u + (uint32_t)rank) + k);

    return (uint64_t)high << 32 | mix(high + 0x9e3779b9u);
}

/* From -limit to limit. */
static int64_t around_zero(uint64_t bits, int64_t limit)
{
    return (int64_t)(bits % (uint64_t)(2 * limit + 1)) - limit;
}

static const struct xccl_perf_type *type_of(const struct xccl_perf_data *data)
{
    return &xccl_perf_types[data->type];
}

static int is_power_of_two(int n)
{
    return (n & (n - 1)) == 0;
}

/* ---- contributions ---- */

/* How far rank is behind the one that is first at element k: another one at each. */
static int turn_of(const struct xccl_perf_data *data, int rank, uint32_t k)
{
    uint32_t n = (uint32_t)data->nranks;

    return (int)(((uint32_t)rank + n - mix(data->salt + k) % n) % n);
}

/* Whole numbers whose sums are exact: few ranks with small ones. */
static double float_summand(const struct xccl_perf_data *data, int turn, uint64_t bits)
{
    int digits = type_of(data)->fraction_bits + 1;
    int64_t limit = INT64_C(1) << (digits < 30 ? digits : 30);
    int64_t active = limit / 4 < data->nranks ? limit / 4 : data->nranks;
    int64_t most = limit / active < WHOLE_MAX ? limit / active : WHOLE_MAX;

    return turn < active ? (double)around_zero(bits, most) : 0;
}

static double float_average(const struct xccl_perf_data *data, int turn, uint64_t bits)
{
    const struct xccl_perf_type *type = type_of(data);
    int least = 0;
    int room = xccl_perf_float_range(type, &least) - type->fraction_bits - 1;
    int shift = (int)log2(data->nranks);

    if (is_power_of_two(data->nranks))
        return ldexp(float_summand(data, turn, bits), shift < room ? shift : room);
    return turn == 0 ? float_summand(data, 0, bits) : 0;
}

static double draw_float(const struct xccl_perf_data *data, int rank, uint32_t k)
{
    uint64_t bits = draw(data->salt, rank, k);
    int turn = turn_of(data, rank, k);
    int digits = type_of(data)->fraction_bits + 1;

    switch ((int)data->op) {
    case xcclProd:
        return ldexp(bits & 1 ? 1 : -1, turn < PROD_ACTIVE ? (int)around_zero(bits >> 1, 1) : 0);
    case xcclMax:
    case xcclMin:
        return (double)around_zero(bits, digits < 10 ? INT64_C(1) << digits : WHOLE_MAX);
    case xcclAvg:
        return float_average(data, turn, bits);
    default:
        return float_summand(data, turn, bits);
    }
}

/* All ranks have the same number, but one has more and the next one as much less. */
static uint64_t whole_average(const struct xccl_perf_data *data, int turn, uint32_t k)
{
    const struct xccl_perf_type *type = type_of(data);
    uint64_t bits = draw(data->salt, -1, k);
    int64_t most = INT64_C(1) << (type->bytes == 1 ? 7 - type->is_signed : 30);
    int64_t each_most = most / (2 * data->nranks), more_most = most / 8;
    int64_t each, more;

    if (each_most > AVERAGE_MAX)
        each_most = AVERAGE_MAX;
    if (more_most > AVERAGE_MAX)
        more_most = AVERAGE_MAX;
    each = around_zero(bits, each_most);
    if (!type->is_signed && each < 0)
        each = -each;
    if (!type->is_signed && more_most > each)
        more_most = each;
    more = data->nranks > 1 ? around_zero(bits >> 32, more_most) : 0;
    if (turn == 0)
        each += more;
    if (turn == 1)
        each -= more;
    return (uint64_t)each;
}

static uint64_t draw_whole(const struct xccl_perf_data *data, int rank, uint32_t k)
{
    uint64_t bits = draw(data->salt, rank, k);

    if (!data->reduces)
        return bits;
    if (data->op == xcclProd)
        return bits | 1;
    return data->op == xcclAvg ? whole_average(data, turn_of(data, rank, k), k) : bits;
}

/* ---- results ---- */

/* Of the type's width, as a number of 64 bits. */
static int64_t extend(const struct xccl_perf_type *type, uint64_t bits)
{
    int shift = 64 - 8 * type->bytes;

    return type->is_signed ? (int64_t)(bits << shift) >> shift : (int64_t)(bits << shift >> shift);
}

static int is_less(const struct xccl_perf_type *type, uint64_t a, uint64_t b)
{
    int64_t x = extend(type, a), y = extend(type, b);

    return type->is_signed ? x < y : (uint64_t)x < (uint64_t)y;
}

static uint64_t combine_whole(const struct xccl_perf_data *data, uint64_t a, uint64_t b)
{
    switch ((int)data->op) {
    case xcclProd:
        return a * b;
    case xcclMax:
        return is_less(type_of(data), a, b) ? b : a;
    case xcclMin:
        return is_less(type_of(data), b, a) ? b : a;
    default:
        return a + b;
    }
}

static double combine_float(const struct xccl_perf_data *data, double a, double b)
{
    switch ((int)data->op) {
    case xcclProd:
        return a * b;
    case xcclMax:
        return fmax(a, b);
    case xcclMin:
        return fmin(a, b);
    default:
        return a + b;
    }
}

static double reduce_float(const struct xccl_perf_data *data, uint32_t k)
{
    double value = draw_float(data, 0, k);

    for (int rank = 1; rank < data->nranks; rank++)
        value = combine_float(data, value, draw_float(data, rank, k));
    return data->op == xcclAvg ? value / data->nranks : value;
}

static uint64_t reduce_whole(const struct xccl_perf_data *data, uint32_t k)
{
    uint64_t value = draw_whole(data, 0, k);

    for (int rank = 1; rank < data->nranks; rank++)
        value = combine_whole(data, value, draw_whole(data, rank, k));
    return data->op == xcclAvg ? (uint64_t)((int64_t)value / data->nranks) : value;
}

/* ---- patterns ---- */

static int is_real(const struct xccl_perf_data *data)
{
    return data->reduces && type_of(data)->exponent_bits;
}

/* The low bytes of a number. */
static void put(const struct xccl_perf_data *data, struct xccl_perf_pattern *pattern, uint32_t k,
                uint64_t bits)
{
    int bytes = type_of(data)->bytes;

    for (int i = 0; i < bytes; i++)
        pattern->bytes[k * (uint32_t)bytes + (uint32_t)i] = (unsigned char)(bits >> 8 * i);
}

static uint64_t get(const struct xccl_perf_data *data, const char *at)
{
    uint64_t bits = 0;

    for (int i = 0; i < type_of(data)->bytes; i++)
        bits |= (uint64_t)(unsigned char)at[i] << 8 * i;
    return bits;
}

void xccl_perf_pattern_draw(const struct xccl_perf_data *data, int rank,
                            struct xccl_perf_pattern *pattern)
{
    for (uint32_t k = 0; k < data->span; k++)
        put(data, pattern, k,
            is_real(data) ? xccl_perf_float_bits(type_of(data), draw_float(data, rank, k))
                          : draw_whole(data, rank, k));
}

void xccl_perf_pattern_reduce(struct xccl_perf_data *data, struct xccl_perf_pattern *pattern)
{
    for (uint32_t k = 0; k < data->span; k++) {
        data->reals[k] = is_real(data) ? reduce_float(data, k) : 0;
        put(data, pattern, k,
            is_real(data) ? xccl_perf_float_bits(type_of(data), data->reals[k])
                          : reduce_whole(data, k));
    }
}

void xccl_perf_pattern_fill(const struct xccl_perf_data *data,
                            const struct xccl_perf_pattern *pattern, char *at, size_t count)
{
    size_t bytes = (size_t)type_of(data)->bytes;

    while (count) {
        size_t part = count < XCCL_PERF_PERIOD ? count : XCCL_PERF_PERIOD;

        memcpy(at, pattern->bytes, part * bytes);
        at += part * bytes;
        count -= part;
    }
}

/* As values, so that the two zeros of a float are equal, and within what an average may be off. */
static int is_near(const struct xccl_perf_data *data, const char *at, uint32_t k)
{
    const struct xccl_perf_type *type = type_of(data);
    double got = xccl_perf_float_value(type, get(data, at)), want = data->reals[k];
    double slack = 0;
    int least = 0;

    if (data->op == xcclAvg && !is_power_of_two(data->nranks)) {
        (void)xccl_perf_float_range(type, &least);
        slack = fabs(want) * ldexp(TWO_ROUNDING, -type->fraction_bits - 1);
        slack += want < 0 || want > 0 ? ldexp(1, least) : 0;
    }
    return fabs(got - want) <= slack;
}

static int64_t count_wrong(const struct xccl_perf_data *data, const unsigned char *want,
                           const char *at, struct xccl_perf_stretch part)
{
    size_t bytes = (size_t)type_of(data)->bytes;
    int64_t wrong = 0;

    for (size_t k = 0; k < part.count; k++) {
        if (memcmp(at + k * bytes, want + k * bytes, bytes) == 0)
            continue;
        if (!part.is_result || !is_real(data) ||
            !is_near(data, at + k * bytes, (uint32_t)(part.first + k)))
            wrong++;
    }
    return wrong;
}

int64_t xccl_perf_pattern_wrong(const struct xccl_perf_data *data,
                                const struct xccl_perf_pattern *pattern, const char *at,
                                struct xccl_perf_stretch part)
{
    size_t bytes = (size_t)type_of(data)->bytes;
    size_t count = part.count;
    int64_t wrong = 0;

    part.first %= XCCL_PERF_PERIOD;
    while (count) {
        const unsigned char *want = pattern->bytes + part.first * bytes;

        part.count = XCCL_PERF_PERIOD - part.first;
        if (part.count > count)
            part.count = count;
        if (memcmp(at, want, part.count * bytes) != 0)
            wrong += count_wrong(data, want, at, part);
        at += part.count * bytes;
        count -= part.count;
        part.first = 0;
    }
    return wrong;
}

void xccl_perf_guard_fill(char *buffer, size_t bytes)
{
    memset(buffer - XCCL_PERF_GUARD_BYTES, GUARD_BYTE, XCCL_PERF_GUARD_BYTES);
    memset(buffer + bytes, GUARD_BYTE, XCCL_PERF_GUARD_BYTES);
}

int64_t xccl_perf_guard_wrong(const char *buffer, size_t bytes)
{
    int64_t wrong = 0;

    for (int i = 0; i < XCCL_PERF_GUARD_BYTES; i++) {
        wrong += (unsigned char)buffer[i - XCCL_PERF_GUARD_BYTES] != GUARD_BYTE;
        wrong += (unsigned char)buffer[bytes + (size_t)i] != GUARD_BYTE;
    }
    return wrong;
}

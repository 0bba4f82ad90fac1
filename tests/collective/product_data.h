/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks put in and must get, for every type and operator, as plain loops over number_ref.h say
 * it. Made once a test, before the ranks start, and read by all of them.
 *
 * Data that is only moved is noise, another part of it for each rank and call. What is combined has
 * a period: element k of any call is element k modulo PERIOD of a pattern. The numbers are such
 * that a result has the same bits in every order of combining. Integers: any bits, since they wrap;
 * odd factors, so that no product comes to 0. Floats: whole numbers of which so few are not 0 that
 * no sum needs more digits than the type has; powers of two as factors, near 1; for the greater and
 * the smaller one any bits, now and then no number on one of the ranks; averages where one rank has
 * a number that is not 0. */
#ifndef TESTS_COLLECTIVE_PRODUCT_DATA_H
#define TESTS_COLLECTIVE_PRODUCT_DATA_H

#include <stdlib.h>

#include "unit/exec/number_ref.h"
#include "xccl_types.h"
#include "xt.h"

#define PERIOD      509 /* elements */
#define NOISE_BYTES 65521
#define OP_PREMUL   xcclNumOps /* stands for one that the ranks create */
#define OPS         (xcclNumOps + 1)
#define WHOLE_MAX   1000

struct product_data {
    int nranks;
    unsigned char noise[NOISE_BYTES];
    unsigned char *patterns[xcclNumTypes]; /* OPS times those of the ranks and the result */
};

static inline size_t product_bytes(int type)
{
    return (size_t)number_types[type].bits / 8;
}

/* rank: nranks for the result. */
static inline unsigned char *product_pattern(const struct product_data *data, int type, int op,
                                             int rank)
{
    size_t number = (size_t)op * (size_t)(data->nranks + 1) + (size_t)rank;

    return data->patterns[type] + number * PERIOD * product_bytes(type);
}

/* By what a rank multiplies before it adds. */
static inline uint64_t product_factor(const struct number_type *of, int rank)
{
    return of->exponent_bits ? (uint64_t)(rank % 2 ? 4 : 2) : (uint64_t)rank * 2 + 3;
}

static inline uint64_t product_whole(const struct number_type *of, uint64_t bits, int64_t most)
{
    int64_t value = (int64_t)(bits % (uint64_t)(2 * most + 1)) - most;

    return number_float_of(of, (double)value);
}

/* turn: how far this rank is behind the one that is first at this element. */
static inline uint64_t product_float(const struct number_type *of, int op, int turn, int nranks,
                                     uint64_t bits)
{
    int digits = number_digits(of) + 1;
    int64_t limit = INT64_C(1) << (digits < 30 ? digits : 30);
    int64_t active = limit / 4 < nranks ? limit / 4 : nranks;
    int64_t most = limit / active / 2 < WHOLE_MAX ? limit / active / 2 : WHOLE_MAX;

    switch (op) {
    case xcclProd:
        return number_float_of(of, (bits & 1 ? -1 : 1) * (turn > 1   ? 1
                                                          : bits & 2 ? 0.5
                                                          : bits & 4 ? 2
                                                                     : 1));
    case xcclMax:
    case xcclMin:
        if (turn == 1 && bits >> 60 == 0)
            return number_nan(of);
        bits &= number_mask(of);
        return number_is_nan(of, bits) ? 0 : bits;
    case xcclAvg:
        return turn == 0 ? product_whole(of, bits, most) : 0;
    default:
        return turn < active ? product_whole(of, bits, most) : 0;
    }
}

static inline uint64_t product_input(const struct product_data *data, int type, int op, int rank,
                                     size_t k)
{
    const struct number_type *of = &number_types[type];
    uint64_t which = ((uint64_t)type * OPS + (uint64_t)op) * PERIOD + k;
    uint64_t state = which * 0x9e3779b97f4a7c15u + (uint64_t)rank, first = which;
    uint64_t bits = xt_random(&state), n = (uint64_t)data->nranks;

    if (of->exponent_bits)
        return product_float(of, op, (int)(((uint64_t)rank + n - xt_random(&first) % n) % n),
                             data->nranks, bits);
    return (op == xcclProd ? bits | 1 : bits) & number_mask(of);
}

/* What a rank's element is when it comes to the others. */
static inline uint64_t product_scaled(const struct product_data *data, int type, int op, int rank,
                                      uint64_t bits)
{
    const struct number_type *of = &number_types[type];
    double by = of->bits == 64 ? 1.0 / data->nranks : (double)(1.0f / (float)data->nranks);

    if (op == OP_PREMUL)
        return of->exponent_bits ? number_scale(of, bits, (double)product_factor(of, rank))
                                 : (bits * product_factor(of, rank)) & number_mask(of);
    return op == xcclAvg && of->exponent_bits ? number_scale(of, bits, by) : bits;
}

/* One type and operator: the patterns of all ranks and of the result. */
static inline void product_make(const struct product_data *data, int type, int op)
{
    const struct number_type *of = &number_types[type];
    xcclRedOp_t with = op == xcclAvg || op == OP_PREMUL ? xcclSum : (xcclRedOp_t)op;
    void *result = product_pattern(data, type, op, data->nranks);

    for (size_t k = 0; k < PERIOD; k++) {
        uint64_t value = 0;

        for (int rank = 0; rank < data->nranks; rank++) {
            uint64_t input = product_input(data, type, op, rank, k);
            uint64_t scaled = product_scaled(data, type, op, rank, input);

            number_put(product_pattern(data, type, op, rank), k, of, input);
            value = rank ? number_combine(of, with, value, scaled) : scaled;
        }
        if (op == xcclAvg && !of->exponent_bits)
            value = number_divide(of, value, data->nranks);
        number_put(result, k, of, value);
    }
}

static inline struct product_data *product_create(int nranks)
{
    struct product_data *data = malloc(sizeof(*data));
    uint64_t state = xt_seed();

    XT_CHECK(data != NULL);
    data->nranks = nranks;
    for (size_t i = 0; i < NOISE_BYTES; i++)
        data->noise[i] = (unsigned char)(xt_random(&state) >> 32);
    for (int type = 0; type < xcclNumTypes; type++) {
        data->patterns[type] = malloc((size_t)OPS * (size_t)(nranks + 1) * PERIOD *
                                      product_bytes(type));
        XT_CHECK(data->patterns[type] != NULL);
        for (int op = 0; op < OPS; op++)
            product_make(data, type, op);
    }
    return data;
}

static inline void product_destroy(struct product_data *data)
{
    for (int type = 0; type < xcclNumTypes; type++)
        free(data->patterns[type]);
    free(data);
}

/* bytes from number `first` on of something that repeats itself. */
static inline void product_repeat(char *at, const unsigned char *from, size_t period, size_t first,
                                  size_t bytes)
{
    first %= period;
    while (bytes) {
        size_t part = period - first < bytes ? period - first : bytes;

        memcpy(at, from + first, part);
        at += part;
        bytes -= part;
        first = 0;
    }
}

#endif

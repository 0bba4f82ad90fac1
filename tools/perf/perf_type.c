/* SPDX-License-Identifier: BSD-3-Clause */
/* The data types and operators of `xccl perf`: names as nccl-tests has them, and the bits of a
 * number in each type. Floats of every width are read from how many bits their parts have.
 *
 * Thread: any. */
#include <math.h>
#include <string.h>

#include "perf/perf.h"

const struct xccl_perf_type xccl_perf_types[xcclNumTypes] = {
    [xcclInt8] = {"int8", "char", 1, 1, 0, 0},
    [xcclUint8] = {"uint8", "", 1, 0, 0, 0},
    [xcclInt32] = {"int32", "int", 4, 1, 0, 0},
    [xcclUint32] = {"uint32", "", 4, 0, 0, 0},
    [xcclInt64] = {"int64", "", 8, 1, 0, 0},
    [xcclUint64] = {"uint64", "", 8, 0, 0, 0},
    [xcclFloat16] = {"half", "float16 fp16", 2, 1, 5, 10},
    [xcclFloat32] = {"float", "float32 fp32", 4, 1, 8, 23},
    [xcclFloat64] = {"double", "float64 fp64", 8, 1, 11, 52},
    [xcclBfloat16] = {"bfloat16", "bf16", 2, 1, 8, 7},
    [xcclFloat8e4m3] = {"f8e4m3", "fp8_e4m3 float8e4m3", 1, 1, 4, 3},
    [xcclFloat8e5m2] = {"f8e5m2", "fp8_e5m2 float8e5m2", 1, 1, 5, 2},
};

const char *const xccl_perf_ops[xcclNumOps] = {
    [xcclSum] = "sum", [xcclProd] = "prod", [xcclMax] = "max", [xcclMin] = "min", [xcclAvg] = "avg",
};

/* 1 when name is one of the words of list. */
static int is_among(const char *name, const char *list)
{
    size_t length = strlen(name);

    for (const char *at = list; *at; at += strspn(at, " ")) {
        size_t word = strcspn(at, " ");

        if (word == length && memcmp(at, name, length) == 0)
            return 1;
        at += word;
    }
    return 0;
}

int xccl_perf_type_find(const char *name)
{
    for (int i = 0; i < xcclNumTypes; i++) {
        if (strcmp(name, xccl_perf_types[i].name) == 0 || is_among(name, xccl_perf_types[i].others))
            return i;
    }
    return -1;
}

int xccl_perf_op_find(const char *name)
{
    for (int i = 0; i < xcclNumOps; i++) {
        if (strcmp(name, xccl_perf_ops[i]) == 0)
            return i;
    }
    return -1;
}

static int bias_of(const struct xccl_perf_type *type)
{
    return (1 << (type->exponent_bits - 1)) - 1;
}

int xccl_perf_float_range(const struct xccl_perf_type *type, int *least_out)
{
    /* All bits of the exponent set mean infinity, but not in e4m3, which has none. */
    int reserved = type->exponent_bits == 4 ? 0 : 1;

    *least_out = 1 - bias_of(type) - type->fraction_bits;
    return (1 << type->exponent_bits) - 1 - reserved - bias_of(type);
}

uint64_t xccl_perf_float_bits(const struct xccl_perf_type *type, double value)
{
    uint64_t sign = signbit(value) ? 1 : 0;
    uint64_t exponent = 0, fraction = 0;
    double magnitude = fabs(value);
    int power = 0;
    double digits = frexp(magnitude, &power); /* from 0.5 to 1, times 2^power */

    power += bias_of(type) - 1;
    if (magnitude > 0 && power >= 1) {
        exponent = (uint64_t)power;
        fraction = (uint64_t)ldexp(2 * digits - 1, type->fraction_bits);
    } else if (magnitude > 0) {
        fraction = (uint64_t)ldexp(magnitude, bias_of(type) - 1 + type->fraction_bits);
    }
    return sign << (type->exponent_bits + type->fraction_bits) | exponent << type->fraction_bits |
           fraction;
}

double xccl_perf_float_value(const struct xccl_perf_type *type, uint64_t bits)
{
    uint64_t fraction = bits & ((UINT64_C(1) << type->fraction_bits) - 1);
    int exponent = (int)(bits >> type->fraction_bits & ((1u << type->exponent_bits) - 1));
    int is_negative = (int)(bits >> (type->fraction_bits + type->exponent_bits) & 1);
    int least = 0;
    int greatest = xccl_perf_float_range(type, &least);
    double value = ldexp((double)fraction, least);

    if (exponent - bias_of(type) > greatest || (type->exponent_bits == 4 && (bits & 127) == 127))
        return NAN;
    if (exponent)
        value = ldexp(1 + ldexp((double)fraction, -type->fraction_bits), exponent - bias_of(type));
    return is_negative ? -value : value;
}

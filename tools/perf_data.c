/* SPDX-License-Identifier: BSD-3-Clause */
/* Test data of `xccl perf`. Floats are whole numbers from -512 to 511: sums over up to 2^14 ranks
 * stay below 2^24 and are exact in any order. Integers use all 32 bits, so that sums wrap around.
 *
 * Thread: the program's main thread. */
#include <string.h>

#include "perf.h"

#define ELEM_BYTES 4u /* of every type offered */
#define GUARD_BYTE 0xC3

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

static uint32_t draw_bits(uint32_t salt, int rank, uint32_t k)
{
    return mix(mix(salt * 4099u + (uint32_t)rank) + k);
}

static int32_t draw_small(uint32_t bits)
{
    return (int32_t)(bits & 1023u) - 512;
}

static uint32_t float_bits(int32_t value)
{
    float as_float = (float)value;
    uint32_t bits = 0;

    memcpy(&bits, &as_float, sizeof(bits));
    return bits;
}

void xccl_perf_data_draw(struct xccl_perf_data *data, uint32_t salt)
{
    for (uint32_t k = 0; k < XCCL_PERF_PERIOD; k++) {
        uint32_t own = draw_bits(salt, data->rank, k);
        uint32_t sum_bits = 0;
        int32_t sum_small = 0;

        for (int rank = 0; rank < data->nranks; rank++) {
            uint32_t bits = draw_bits(salt, rank, k);

            sum_bits += bits;
            sum_small += draw_small(bits);
        }
        if (data->type == xcclFloat32) {
            data->mine[k] = float_bits(draw_small(own));
            data->sums[k] = float_bits(sum_small);
        } else {
            data->mine[k] = own;
            data->sums[k] = sum_bits;
        }
    }
}

void xccl_perf_data_fill(const struct xccl_perf_data *data, void *buffer, size_t count)
{
    char *at = buffer;

    while (count) {
        size_t part = count < XCCL_PERF_PERIOD ? count : XCCL_PERF_PERIOD;

        memcpy(at, data->mine, part * ELEM_BYTES);
        at += part * ELEM_BYTES;
        count -= part;
    }
}

/* As values, so that the two zeros of a float are equal. */
static int is_equal(xcclDataType_t type, uint32_t a_bits, uint32_t b_bits)
{
    float a = 0;
    float b = 0;

    if (type != xcclFloat32)
        return a_bits == b_bits;
    memcpy(&a, &a_bits, sizeof(a));
    memcpy(&b, &b_bits, sizeof(b));
    return a >= b && a <= b;
}

static int64_t count_wrong(const struct xccl_perf_data *data, const char *at, size_t count)
{
    int64_t wrong = 0;

    for (size_t k = 0; k < count; k++) {
        uint32_t got = 0;

        memcpy(&got, at + k * ELEM_BYTES, sizeof(got));
        wrong += !is_equal(data->type, got, data->sums[k]);
    }
    return wrong;
}

int64_t xccl_perf_data_wrong(const struct xccl_perf_data *data, const void *buffer, size_t count)
{
    const char *at = buffer;
    int64_t wrong = 0;

    while (count) {
        size_t part = count < XCCL_PERF_PERIOD ? count : XCCL_PERF_PERIOD;

        if (memcmp(at, data->sums, part * ELEM_BYTES) != 0)
            wrong += count_wrong(data, at, part);
        at += part * ELEM_BYTES;
        count -= part;
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

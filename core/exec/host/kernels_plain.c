/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels for any processor of the kind that the build is for, and the text that the other sets
 * are held to. Pure functions: any thread. */
#include "exec/host/kernels_sets.h"

#define KERNELS_TABLE xccl_kernels_plain
#include "exec/host/kernels_body.h"

int xccl_small_float_value(xcclDataType_t type, const void *from, float *value_out)
{
    uint16_t code16;
    uint8_t code8;

    memcpy(&code8, from, sizeof(code8));
    if (type == xcclFloat8e4m3) {
        *value_out = widen(code8, FLOAT8E4M3);
    } else if (type == xcclFloat8e5m2) {
        *value_out = widen(code8, FLOAT8E5M2);
    } else if (type == xcclFloat16 || type == xcclBfloat16) {
        memcpy(&code16, from, sizeof(code16));
        *value_out = type == xcclFloat16 ? widen_float16(code16) : BFLOAT16_LOW((uint32_t)code16);
    } else {
        return 0;
    }
    return 1;
}

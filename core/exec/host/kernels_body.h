/* SPDX-License-Identifier: BSD-3-Clause */
/* All kernels of one instruction set, and their table: included once by each file of a set, which
 * defines KERNELS_TABLE, the table's name, and KERNELS_F16C where the processor converts float16.
 * Built with -ffp-contract=off, so that no set rounds differently. */
#ifndef XCCL_EXEC_HOST_KERNELS_BODY_H
#define XCCL_EXEC_HOST_KERNELS_BODY_H

#include "exec/host/kernels_float.h"
#include "exec/host/kernels_fp8.h"
#include "exec/host/kernels_half.h"
#include "exec/host/kernels_integer.h"
#include "exec/host/kernels_sets.h"

/* Signed and unsigned wrap to the same bits. */
#define OF_INTEGER(type, same)                                                                     \
    {                                                                                              \
        {sum_##same, prod_##same, max_##type, min_##type}, mul_##same, div_##type                  \
    }
#define OF_FLOAT(type)                                                                             \
    {                                                                                              \
        {sum_##type, prod_##type, max_##type, min_##type}, mul_##type, NULL                        \
    }

const struct xccl_kernels KERNELS_TABLE[xcclNumTypes] = {
    [xcclInt8] = OF_INTEGER(int8, int8),     [xcclUint8] = OF_INTEGER(uint8, int8),
    [xcclInt32] = OF_INTEGER(int32, int32),  [xcclUint32] = OF_INTEGER(uint32, int32),
    [xcclInt64] = OF_INTEGER(int64, int64),  [xcclUint64] = OF_INTEGER(uint64, int64),
    [xcclFloat16] = OF_FLOAT(float16),       [xcclFloat32] = OF_FLOAT(float32),
    [xcclFloat64] = OF_FLOAT(float64),       [xcclBfloat16] = OF_FLOAT(bfloat16),
    [xcclFloat8e4m3] = OF_FLOAT(float8e4m3), [xcclFloat8e5m2] = OF_FLOAT(float8e5m2),
};

#endif

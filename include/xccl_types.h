/* SPDX-License-Identifier: BSD-3-Clause */
/* Result codes, data types and operators shared by xccl.h and the plugin headers.
 * The numbers equal NCCL's, so that a port is a renaming and a shim is a set of aliases.
 * They are frozen: new values are appended, none is ever renumbered. */
#ifndef XCCL_TYPES_H
#define XCCL_TYPES_H

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    xcclSuccess = 0, /* the call did what it says */
    xcclUnhandledCudaError = 1, /* a CUDA call failed */
    xcclSystemError = 2, /* an operating system call failed; the text has errno */
    xcclInternalError = 3, /* a bug in XCCL or damaged state */
    xcclInvalidArgument = 4, /* an argument is wrong; the text says which */
    xcclInvalidUsage = 5, /* right arguments at the wrong time, or ranks disagree */
    xcclRemoteError = 6, /* another rank or the network failed; the text names it */
    xcclInProgress = 7, /* not finished yet (non-blocking communicators) */
    xcclTimeout = 8, /* a deadline passed; the text says who was waited for */
    xcclNumResults = 9
} xcclResult_t;

/* Integers wrap. Floats of 8 and 16 bits are combined in float32, and each combination of two
 * elements is rounded to the type at once, to nearest even. float8e4m3 has no infinity: beyond 448
 * a sum or product stays at 448 of its sign; float8e5m2 stays at 57344 in the same way, also where
 * an operand is infinite. The other floats become infinite. */
typedef enum {
    xcclInt8 = 0,
    xcclChar = 0,
    xcclUint8 = 1,
    xcclInt32 = 2,
    xcclInt = 2,
    xcclUint32 = 3,
    xcclInt64 = 4,
    xcclUint64 = 5,
    xcclFloat16 = 6,
    xcclHalf = 6,
    xcclFloat32 = 7,
    xcclFloat = 7,
    xcclFloat64 = 8,
    xcclDouble = 8,
    xcclBfloat16 = 9,
    xcclFloat8e4m3 = 10,
    xcclFloat8e5m2 = 11,
    xcclNumTypes = 12
} xcclDataType_t;

/* On host memory all instruction sets give the same bits, but for the sign and payload of a NaN. */
typedef enum {
    xcclSum = 0, /* of floats: the bits depend on the order, thus on the algorithm */
    xcclProd = 1, /* as sum */
    xcclMax = 2, /* a number rather than a NaN; +0 is greater than -0; the same in any order */
    xcclMin = 3, /* as max */
    /* Integers: the sum, which may wrap, divided by the number of ranks, toward zero. Floats: the
     * sum of contributions, each multiplied by 1 / ranks and rounded to the type before. */
    xcclAvg = 4,
    xcclNumOps = 5,
    /* From xcclNumOps on: a program's own, xcclRedOpCreatePreMulSum() in xccl.h. */
    xcclMaxRedOp = 0x7fffffff
} xcclRedOp_t;

#ifdef __cplusplus
}
#endif
#endif

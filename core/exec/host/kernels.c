/* SPDX-License-Identifier: BSD-3-Clause */
/* Which kernel does what: the best set for this processor, and what each operator needs of it.
 * Any thread. */
#include "exec/host/kernels.h"

#include <stdatomic.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/log.h"
#include "base/param.h"
#include "exec/host/kernels_sets.h"

#define REDUCE_BLOCK_BYTES 4096

#if defined(__x86_64__)
/* Not all compilers can ask for this one by name. */
static int has_f16c(void)
{
    unsigned eax, ebx, ecx, edx;

    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}
#endif

unsigned xccl_kernel_sets(struct xccl_kernel_set *sets_out)
{
    unsigned count = 0;

#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && has_f16c()) {
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512vl"))
            sets_out[count++] = (struct xccl_kernel_set){"avx512", xccl_kernels_avx512};
        sets_out[count++] = (struct xccl_kernel_set){"avx2", xccl_kernels_avx2};
    }
#endif
    sets_out[count++] = (struct xccl_kernel_set){"plain", xccl_kernels_plain};
    return count;
}

/* The best of the sets, or the one that XCCL_KERNELS names. */
static const struct xccl_kernels *choose(void)
{
    static const char *const words[] = {NULL, "avx512", "avx2", "plain"}; /* as in param.def */
    const char *word = words[xccl_param_int(XCCL_P_KERNELS)];
    struct xccl_kernel_set sets[XCCL_KERNEL_SETS_MAX];
    unsigned count = xccl_kernel_sets(sets);

    for (unsigned i = 0; word && i < count; i++)
        if (strcmp(sets[i].name, word) == 0)
            return sets[i].of_type;
    if (word)
        xccl_log(XCCL_LOG_WARN, "XCCL_KERNELS=%s: this processor has no %s; it uses %s", word, word,
                 sets[0].name);
    return sets[0].of_type;
}

/* NULL for an unknown type. Asking the processor is dear where it is a virtual one: once. */
static const struct xccl_kernels *kernels_of(xcclDataType_t type)
{
    static _Atomic(const struct xccl_kernels *) best;
    const struct xccl_kernels *of_type;

    if ((unsigned)type >= xcclNumTypes)
        return NULL;
    /* Relaxed: the tables are constant, and all threads find the same one. */
    of_type = atomic_load_explicit(&best, memory_order_relaxed);
    if (!of_type) {
        of_type = choose();
        atomic_store_explicit(&best, of_type, memory_order_relaxed);
    }
    return &of_type[type];
}

xccl_reduce_fn *xccl_reduce_kernel(xcclDataType_t type, xcclRedOp_t op)
{
    const struct xccl_kernels *kernels = kernels_of(type);

    return kernels && (unsigned)op < xcclAvg ? kernels->reduce[op] : NULL;
}

static struct xccl_scalar scalar_of(const void *value, size_t bytes)
{
    struct xccl_scalar scalar = {{0}};

    memcpy(scalar.bytes, value, bytes);
    return scalar;
}

/* Floats multiply each contribution by 1 / nranks, so that no sum overflows which need not;
 * integers would lose all but zero by that. */
static void average(xcclDataType_t type, int nranks, const struct xccl_kernels *kernels,
                    struct xccl_operator *operator_out)
{
    double share = 1.0 / nranks;
    float short_share = (float)share;
    uint32_t divisor = (uint32_t)nranks;

    if (kernels->div) {
        operator_out->post = kernels->div;
        operator_out->scalar = scalar_of(&divisor, sizeof(divisor));
        return;
    }
    operator_out->pre = kernels->mul;
    operator_out->scalar = type == xcclFloat64 ? scalar_of(&share, sizeof(share))
                                               : scalar_of(&short_share, sizeof(short_share));
}

int xccl_operator_find(xcclDataType_t type, xcclRedOp_t op, int nranks,
                       struct xccl_operator *operator_out)
{
    const struct xccl_kernels *kernels = kernels_of(type);

    if (!kernels || (unsigned)op >= xcclNumOps || nranks < 1)
        return 0;
    *operator_out = (struct xccl_operator){.reduce = kernels->reduce[op == xcclAvg ? xcclSum : op]};
    if (op == xcclAvg && nranks > 1)
        average(type, nranks, kernels, operator_out);
    return 1;
}

int xccl_operator_premul(xcclDataType_t type, const void *scalar,
                         struct xccl_operator *operator_out)
{
    const struct xccl_kernels *kernels = kernels_of(type);
    float widened;

    if (!kernels)
        return 0;
    *operator_out = (struct xccl_operator){.reduce = kernels->reduce[xcclSum], .pre = kernels->mul};
    if (xccl_small_float_value(type, scalar, &widened))
        operator_out->scalar = scalar_of(&widened, sizeof(widened));
    else
        operator_out->scalar = scalar_of(scalar, xccl_type_bytes(type));
    return 1;
}

size_t xccl_type_bytes(xcclDataType_t type)
{
    static const uint8_t bytes[xcclNumTypes] = {
        [xcclInt8] = 1,    [xcclUint8] = 1,    [xcclInt32] = 4,      [xcclUint32] = 4,
        [xcclInt64] = 8,   [xcclUint64] = 8,   [xcclFloat16] = 2,    [xcclFloat32] = 4,
        [xcclFloat64] = 8, [xcclBfloat16] = 2, [xcclFloat8e4m3] = 1, [xcclFloat8e5m2] = 1,
    };

    return (unsigned)type < xcclNumTypes ? bytes[type] : 0;
}

/* Block by block through a buffer that stays in the first cache: out may be one of the parts, so it
 * is written only when all parts of the block have been read. */
void xccl_reduce_many(xccl_reduce_fn *reduce, size_t elem_bytes, void *out,
                      const void *const *parts, unsigned count, size_t elem_count)
{
    _Alignas(64) char sum[REDUCE_BLOCK_BYTES];
    size_t block_count = REDUCE_BLOCK_BYTES / elem_bytes;

    if (count == 2) {
        reduce(out, parts[0], parts[1], elem_count);
        return;
    }
    for (size_t first = 0; first < elem_count; first += block_count) {
        size_t here = elem_count - first < block_count ? elem_count - first : block_count;
        size_t offset = first * elem_bytes;

        reduce(sum, (const char *)parts[0] + offset, (const char *)parts[1] + offset, here);
        for (unsigned i = 2; i + 1 < count; i++)
            reduce(sum, sum, (const char *)parts[i] + offset, here);
        reduce((char *)out + offset, sum, (const char *)parts[count - 1] + offset, here);
    }
}

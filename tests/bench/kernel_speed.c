/* SPDX-License-Identifier: BSD-3-Clause */
/* How fast the reduction kernels are: GB/s of results for each type and operator, best of many
 * short rounds, beside memcpy of as many bytes. out = a op b reads twice what it writes; premul and
 * the average's last step read once.
 *
 *   build/release/tests/kernel_speed [BYTES] [plain|avx2|avx512]
 *
 * 65536 bytes and this processor's best set when not said. The input is of ordinary numbers, since
 * denormals and infinities cost more on some processors. Thread: one. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "exec/host/kernels_sets.h"

#define ROUNDS      64
#define ROUND_BYTES (1u << 19)
#define BYTES_MAX   (256u << 20)

static const char *const type_names[xcclNumTypes] = {
    [xcclInt8] = "int8",         [xcclUint8] = "uint8",           [xcclInt32] = "int32",
    [xcclUint32] = "uint32",     [xcclInt64] = "int64",           [xcclUint64] = "uint64",
    [xcclFloat16] = "float16",   [xcclFloat32] = "float32",       [xcclFloat64] = "float64",
    [xcclBfloat16] = "bfloat16", [xcclFloat8e4m3] = "float8e4m3", [xcclFloat8e5m2] = "float8e5m2",
};

struct buffers {
    void *out, *a, *b;
    size_t bytes;
};

/* What is measured: one of these, or a plain copy. */
struct work {
    xccl_reduce_fn *reduce;
    xccl_scale_fn *scale;
    const struct xccl_scalar *scalar;
    size_t elem_bytes;
};

static void work_once(const struct work *work, const struct buffers *on)
{
    if (work->reduce)
        work->reduce(on->out, on->a, on->b, on->bytes / work->elem_bytes);
    else if (work->scale)
        work->scale(on->out, on->a, on->bytes / work->elem_bytes, work->scalar);
    else
        memcpy(on->out, on->a, on->bytes);
    /* The compiler is told that out is looked at. */
    __asm__ volatile("" ::"r"(on->out) : "memory");
}

/* GB/s of bytes written. */
static double measure(const struct work *work, const struct buffers *on)
{
    unsigned turns = (unsigned)(ROUND_BYTES / on->bytes) + 1;
    uint64_t least_ns = UINT64_MAX;

    for (int round = 0; round < ROUNDS; round++) {
        uint64_t begin_ns = xccl_clock_ns(), took_ns;

        for (unsigned i = 0; i < turns; i++)
            work_once(work, on);
        took_ns = xccl_clock_ns() - begin_ns;
        if (took_ns && took_ns < least_ns)
            least_ns = took_ns;
    }
    return (double)turns * (double)on->bytes / (double)least_ns;
}

static void print_type(const struct xccl_kernels *kernels, int type, const struct buffers *on)
{
    struct xccl_scalar scalar = {{3}};
    struct work work = {.elem_bytes = xccl_type_bytes((xcclDataType_t)type), .scalar = &scalar};

    printf("%-11s", type_names[type]);
    for (int op = 0; op < xcclAvg; op++) {
        work.reduce = kernels->reduce[op];
        printf(" %7.1f", measure(&work, on));
    }
    work.reduce = NULL;
    if (kernels->div) {
        work.scale = kernels->div;
        printf(" %7.1f", measure(&work, on));
    } else {
        static const float third = 1.0f / 3;
        static const double long_third = 1.0 / 3;

        if (type == xcclFloat64)
            memcpy(scalar.bytes, &long_third, sizeof(long_third));
        else
            memcpy(scalar.bytes, &third, sizeof(third));
        printf(" %7s", "-");
    }
    work.scale = kernels->mul;
    printf(" %7.1f\n", measure(&work, on));
}

static void print_set(const struct xccl_kernel_set *set, const struct buffers *on)
{
    struct work copy = {.elem_bytes = 1};

    printf("# set %s, %zu bytes, GB/s of results; memcpy %.1f\n", set->name, on->bytes,
           measure(&copy, on));
    printf("%-11s %7s %7s %7s %7s %7s %7s\n", "# type", "sum", "prod", "max", "min", "divide",
           "premul");
    for (int type = 0; type < xcclNumTypes; type++) {
        /* In all types a number of ordinary size. */
        memset(on->a, 0x3c, on->bytes);
        memset(on->b, 0x3d, on->bytes);
        print_type(&set->of_type[type], type, on);
    }
}

static int usage(void)
{
    fprintf(stderr,
            "kernel_speed [BYTES] [plain|avx2|avx512]: 8 to %u bytes, and a set that this "
            "processor can run\n",
            BYTES_MAX);
    return 2;
}

int main(int argc, char **argv)
{
    struct xccl_kernel_set sets[XCCL_KERNEL_SETS_MAX];
    unsigned nsets = xccl_kernel_sets(sets), which = 0;
    struct buffers on = {.bytes = argc > 1 ? (size_t)strtoull(argv[1], NULL, 10) : 65536};

    if (argc > 2)
        while (which < nsets && strcmp(sets[which].name, argv[2]) != 0)
            which++;
    if (which == nsets || on.bytes < 8 || on.bytes > BYTES_MAX)
        return usage();
    on.bytes &= ~(size_t)7;
    on.out = calloc(1, on.bytes);
    on.a = malloc(on.bytes);
    on.b = malloc(on.bytes);
    if (on.out && on.a && on.b)
        print_set(&sets[which], &on);
    else
        fprintf(stderr, "kernel_speed: no memory for 3 buffers of %zu bytes\n", on.bytes);
    free(on.out);
    free(on.a);
    free(on.b);
    return 0;
}

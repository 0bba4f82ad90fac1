/* SPDX-License-Identifier: BSD-3-Clause */
/* Every kernel of every instruction set of this processor against the arithmetic of number_ref.h:
 * all lengths around vector widths, all alignments, outputs that are inputs, and values close to
 * where rounding, overflow and signs show. */
#include <stdint.h>

#include "exec/host/kernels_sets.h"
#include "number_ref.h"
#include "xt.h"

#define COUNT_MAX 5000
#define MARGIN    64

/* The operators of struct xccl_kernels, then these. */
enum { OP_MUL = xcclAvg, OP_DIV, OP_COUNT };

static _Alignas(64) unsigned char room[3][COUNT_MAX * 8 + 3 * MARGIN];

struct shape {
    unsigned char *out, *a, *b;
    size_t count;
};

/* What to do, and by what where it is scaling. */
struct kernel_case {
    const struct xccl_kernel_set *set;
    int type, op;
    struct xccl_scalar scalar;
    double factor;
    uint64_t integer_factor;
    uint32_t divisor;
};

/* One in four is close to an end of what the type can hold, or not a number. */
static uint64_t draw(uint64_t *seed, const struct number_type *of)
{
    uint64_t bits = xt_random(seed), ends[6];

    if (xt_random(seed) % 4)
        return bits & number_mask(of);
    ends[0] = 0;
    ends[1] = number_mask(of);
    ends[2] = number_nan(of);
    ends[3] = of->exponent_bits ? number_infinity(of) : number_nan(of) + 1;
    ends[4] = of->exponent_bits ? (uint64_t)1 << number_digits(of) : 1;
    ends[5] = of->exponent_bits ? number_of_value(of, 1.0) : 3;
    bits = ends[xt_random(seed) % 6] + xt_random(seed) % 3 - 1;
    if (xt_random(seed) % 2)
        bits ^= number_nan(of) + 1;
    return bits & number_mask(of);
}

static void fill(uint64_t *seed, void *at, size_t count, const struct number_type *of)
{
    for (size_t i = 0; i < count; i++)
        number_put(at, i, of, draw(seed, of));
}

static uint64_t want_of(const struct kernel_case *one, const struct number_type *of, uint64_t x,
                        uint64_t y)
{
    if (one->op < OP_MUL)
        return number_combine(of, (xcclRedOp_t)one->op, x, y);
    if (one->op == OP_DIV)
        return number_divide(of, x, one->divisor);
    return of->exponent_bits ? number_scale(of, x, one->factor)
                             : (x * one->integer_factor) & number_mask(of);
}

static void run_kernel(const struct kernel_case *one, const struct shape *on)
{
    const struct xccl_kernels *kernels = &one->set->of_type[one->type];

    if (one->op < OP_MUL)
        kernels->reduce[one->op](on->out, on->a, on->b, on->count);
    else if (one->op == OP_MUL)
        kernels->mul(on->out, on->a, on->count, &one->scalar);
    else
        kernels->div(on->out, on->a, on->count, &one->scalar);
}

static void check_case(uint64_t *seed, const struct kernel_case *one, const struct shape *on)
{
    static uint64_t want[COUNT_MAX];
    const struct number_type *of = &number_types[one->type];
    unsigned char around[2][MARGIN], *end = on->out + on->count * (size_t)of->bits / 8;

    fill(seed, on->a, on->count, of);
    fill(seed, on->b, on->count, of);
    for (size_t i = 0; i < on->count; i++)
        want[i] = want_of(one, of, number_get(on->a, i, of), number_get(on->b, i, of));
    memcpy(around[0], on->out - MARGIN, MARGIN);
    memcpy(around[1], end, MARGIN);
    run_kernel(one, on);
    for (size_t i = 0; i < on->count; i++) {
        uint64_t got = number_get(on->out, i, of);

        if (!number_same(of, got, want[i]))
            XT_FAIL("%s, %s, operator %d, element %zu of %zu: %#llx, not %#llx", one->set->name,
                    of->name, one->op, i, on->count, (unsigned long long)got,
                    (unsigned long long)want[i]);
    }
    XT_CHECK(memcmp(around[0], on->out - MARGIN, MARGIN) == 0);
    XT_CHECK(memcmp(around[1], end, MARGIN) == 0);
}

static void draw_scalar(uint64_t *seed, struct kernel_case *one)
{
    const struct number_type *of = &number_types[one->type];
    static const double factors[] = {1, -1, 0.5, 1.0 / 3, 1.0 / 7, 3, -0.0, 1e-3, 250};
    float narrow;

    memset(&one->scalar, 0, sizeof(one->scalar));
    if (one->op == OP_DIV) {
        one->divisor = 1 + (uint32_t)(xt_random(seed) >> (33 + xt_random(seed) % 31));
        memcpy(one->scalar.bytes, &one->divisor, sizeof(one->divisor));
    } else if (of->exponent_bits == 0) {
        one->integer_factor = draw(seed, of);
        memcpy(one->scalar.bytes, &one->integer_factor, sizeof(one->integer_factor));
    } else {
        one->factor = factors[xt_random(seed) % (sizeof(factors) / sizeof(factors[0]))];
        narrow = (float)one->factor;
        if (of->bits == 64) {
            memcpy(one->scalar.bytes, &one->factor, sizeof(one->factor));
        } else {
            memcpy(one->scalar.bytes, &narrow, sizeof(narrow));
            one->factor = (double)narrow;
        }
    }
}

/* form: 0 three buffers, 1 out is a, 2 out is b, 3 all are one. */
static void check_shape(uint64_t *seed, struct kernel_case *one, size_t count, int form,
                        const unsigned *offsets)
{
    struct shape on = {.a = room[1] + MARGIN + offsets[1], .count = count};

    on.b = form == 3 ? on.a : room[2] + MARGIN + offsets[2];
    on.out = form == 0 ? room[0] + MARGIN + offsets[0] : form == 2 ? on.b : on.a;
    draw_scalar(seed, one);
    check_case(seed, one, &on);
}

typedef void shapes_fn(uint64_t *seed, struct kernel_case *one);

static void for_all_kernels(shapes_fn *shapes)
{
    struct xccl_kernel_set sets[XCCL_KERNEL_SETS_MAX];
    unsigned nsets = xccl_kernel_sets(sets);
    uint64_t seed = xt_seed();

    for (unsigned i = 0; i < nsets; i++) {
        for (int kind = 0; kind < xcclNumTypes * OP_COUNT; kind++) {
            struct kernel_case one = {&sets[i], kind / OP_COUNT, kind % OP_COUNT, {{0}}, 0, 0, 1};

            if (one.op != OP_DIV || number_types[one.type].exponent_bits == 0)
                shapes(&seed, &one);
        }
    }
}

static void all_lengths(uint64_t *seed, struct kernel_case *one)
{
    for (size_t count = 0; count <= 130; count++) {
        for (int form = 0; form < 4; form++) {
            unsigned offsets[3];

            for (int i = 0; i < 3; i++)
                offsets[i] = (unsigned)(xt_random(seed) % MARGIN);
            check_shape(seed, one, count, form, offsets);
        }
    }
}

static void all_alignments(uint64_t *seed, struct kernel_case *one)
{
    for (unsigned place = 0; place < 8 * 8 * 8; place++) {
        unsigned offsets[3] = {place % 8, place / 8 % 8, place / 64};

        check_shape(seed, one, 67, 0, offsets);
    }
}

static void long_ones(uint64_t *seed, struct kernel_case *one)
{
    static const size_t counts[] = {1023, 1024, 1025, 2047, 4096, COUNT_MAX};

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        unsigned offsets[3] = {0, (unsigned)i, (unsigned)i * 3};

        for (int form = 0; form < 4; form++)
            check_shape(seed, one, counts[i], form, offsets);
    }
}

XT_TEST_DEADLINE(kernels_are_right_for_all_lengths_and_in_place, 60)
{
    for_all_kernels(all_lengths);
}

XT_TEST_DEADLINE(kernels_are_right_at_all_alignments, 60)
{
    for_all_kernels(all_alignments);
}

XT_TEST_DEADLINE(kernels_are_right_on_many_elements, 60)
{
    for_all_kernels(long_ones);
}

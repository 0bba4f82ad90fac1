/* SPDX-License-Identifier: BSD-3-Clause */
/* Wire cursors, whose end must hold against any input, and limits of waits.
 * Time is the test's own where it matters, so that nothing waits.
 * Each test runs in a process of its own, one thread. */
#include "base/clock.h"
#include "base/wire.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "xt.h"

XT_TEST(numbers_are_little_endian_and_come_back)
{
    static const uint8_t want[15] = {0x01, 0x03, 0x02, 0x07, 0x06, 0x05, 0x04, 0x0f,
                                     0x0e, 0x0d, 0x0c, 0x0b, 0x0a, 0x09, 0x08};
    uint8_t bytes[15];
    struct xccl_wire wire = xccl_wire_over(bytes, sizeof(bytes));

    xccl_wire_put_u8(&wire, 0x01);
    xccl_wire_put_u16(&wire, 0x0203);
    xccl_wire_put_u32(&wire, 0x04050607);
    xccl_wire_put_u64(&wire, 0x08090a0b0c0d0e0full);
    XT_CHECK(!wire.bad);
    XT_CHECK_INT(xccl_wire_left(&wire), 0);
    XT_CHECK_INT(memcmp(bytes, want, sizeof(want)), 0);

    wire = xccl_wire_over(bytes, sizeof(bytes));
    XT_CHECK_INT(xccl_wire_get_u8(&wire), 0x01);
    XT_CHECK_INT(xccl_wire_get_u16(&wire), 0x0203);
    XT_CHECK_INT(xccl_wire_get_u32(&wire), 0x04050607);
    XT_CHECK_INT(xccl_wire_get_u64(&wire), 0x08090a0b0c0d0e0fll);
    XT_CHECK(!wire.bad);
}

XT_TEST(put_over_the_end_writes_nothing_and_stays_bad)
{
    uint8_t bytes[4] = {0xee, 0xee, 0xee, 0xee};
    struct xccl_wire wire = xccl_wire_over(bytes, 3);

    xccl_wire_put_u32(&wire, 0);
    XT_CHECK(wire.bad);
    xccl_wire_put_u8(&wire, 0); /* would have fitted */
    XT_CHECK(wire.bad);
    XT_CHECK_INT(xccl_wire_left(&wire), 3);
    for (int i = 0; i < 4; i++)
        XT_CHECK_INT(bytes[i], 0xee);
}

XT_TEST(get_over_the_end_gives_zeroes_and_stays_bad)
{
    uint8_t bytes[3] = {1, 2, 3}, copy[4] = {9, 9, 9, 9};
    struct xccl_wire wire = xccl_wire_over(bytes, sizeof(bytes));

    xccl_wire_get(&wire, copy, sizeof(copy));
    XT_CHECK(wire.bad);
    for (int i = 0; i < 4; i++)
        XT_CHECK_INT(copy[i], 0);
    XT_CHECK_INT(xccl_wire_get_u8(&wire), 0);
    XT_CHECK(xccl_wire_take(&wire, 0) == NULL);
}

XT_TEST(huge_counts_do_not_wrap_around)
{
    uint8_t bytes[8];
    struct xccl_wire wire = xccl_wire_over(bytes, sizeof(bytes));

    XT_CHECK(xccl_wire_take(&wire, SIZE_MAX) == NULL);
    XT_CHECK(wire.bad);
    wire = xccl_wire_over(bytes, sizeof(bytes));
    XT_CHECK(xccl_wire_take(&wire, SIZE_MAX - 7) == NULL);
    XT_CHECK(wire.bad);
}

XT_TEST(exact_end_is_good_and_nothing_follows)
{
    uint8_t bytes[4] = {1, 2, 3, 4}, copy[4];
    struct xccl_wire wire = xccl_wire_over(bytes, sizeof(bytes));

    xccl_wire_get(&wire, copy, 4);
    XT_CHECK(!wire.bad);
    XT_CHECK_INT(memcmp(copy, bytes, 4), 0);
    xccl_wire_get(&wire, NULL, 0);
    xccl_wire_put(&wire, NULL, 0);
    XT_CHECK(!wire.bad);
    XT_CHECK_INT(xccl_wire_get_u8(&wire), 0);
    XT_CHECK(wire.bad);
}

XT_TEST(random_gets_stay_inside)
{
    uint64_t state = xt_seed();

    for (int round = 0; round < 2000; round++) {
        size_t bytes = 1 + xt_random(&state) % 32;
        uint8_t *memory = calloc(1, bytes), copy[16];
        struct xccl_wire wire = xccl_wire_over(memory, bytes);

        for (int i = 0; i < 16; i++) {
            size_t left = xccl_wire_left(&wire);
            size_t count = xt_random(&state) % 16;

            xccl_wire_get(&wire, copy, count);
            XT_CHECK(wire.bad || xccl_wire_left(&wire) == left - count);
            XT_CHECK(!wire.bad || xccl_wire_left(&wire) == left);
        }
        free(memory);
    }
}

XT_TEST(clock_never_goes_back)
{
    uint64_t before = xccl_clock_ns();

    for (int i = 0; i < 1000; i++) {
        uint64_t now = xccl_clock_ns();

        XT_CHECK(now >= before);
        before = now;
    }
}

XT_TEST(virtual_clock_takes_the_real_ones_place_until_it_is_taken_away)
{
    static _Atomic uint64_t now_ns = 5;

    xccl_clock_set_virtual(&now_ns);
    XT_CHECK_INT(xccl_clock_ns(), 5);
    atomic_store_explicit(&now_ns, 7, memory_order_relaxed);
    XT_CHECK_INT(xccl_clock_ns(), 7);
    xccl_clock_set_virtual(NULL);
    XT_CHECK(xccl_clock_ns() > 7);
}

XT_TEST(limit_passes_at_its_deadline_and_polls_are_rounded_up)
{
    static _Atomic uint64_t now_ns = 1000 * XCCL_NS_PER_MS;
    struct xccl_limit limit;

    xccl_clock_set_virtual(&now_ns);
    limit = xccl_limit_ms(5000, NULL);
    XT_CHECK(!xccl_limit_passed(&limit));
    XT_CHECK_INT(xccl_limit_poll_ms(&limit), 5000);
    atomic_store_explicit(&now_ns, 6000 * XCCL_NS_PER_MS - 1, memory_order_relaxed);
    XT_CHECK(!xccl_limit_passed(&limit));
    XT_CHECK_INT(xccl_limit_poll_ms(&limit), 1);
    atomic_store_explicit(&now_ns, 6000 * XCCL_NS_PER_MS, memory_order_relaxed);
    XT_CHECK(xccl_limit_passed(&limit));
    XT_CHECK_INT(xccl_limit_poll_ms(&limit), 0);
    limit = xccl_limit_ms(0, NULL);
    XT_CHECK(xccl_limit_passed(&limit));
    xccl_clock_set_virtual(NULL);
}

XT_TEST(limit_too_long_to_count_never_passes)
{
    struct xccl_limit limit = xccl_limit_ms(UINT64_MAX, NULL);

    XT_CHECK(limit.deadline_ns == XCCL_NEVER_NS);
    XT_CHECK(!xccl_limit_passed(&limit));
    XT_CHECK_INT(xccl_limit_poll_ms(&limit), -1);
    limit = xccl_limit_ms(UINT64_MAX / XCCL_NS_PER_MS, NULL);
    XT_CHECK(limit.deadline_ns == XCCL_NEVER_NS);
    limit = xccl_limit_ms(1ull << 40, NULL);
    XT_CHECK_INT(xccl_limit_poll_ms(&limit), INT_MAX);
}

XT_TEST(abort_flag_bounds_polls_to_a_tenth_of_a_second_and_ends_them)
{
    static _Atomic int abort_flag;
    struct xccl_limit limit = xccl_limit_ms(5000, &abort_flag);
    struct xccl_limit endless = xccl_limit_ms(UINT64_MAX, &abort_flag);
    struct xccl_limit plain = xccl_limit_ms(5000, NULL);

    XT_CHECK_INT(xccl_limit_poll_ms(&limit), 100);
    XT_CHECK_INT(xccl_limit_poll_ms(&endless), 100);
    XT_CHECK(!xccl_limit_aborted(&limit));
    XT_CHECK(!xccl_limit_aborted(&plain));
    atomic_store_explicit(&abort_flag, 1, memory_order_release);
    XT_CHECK(xccl_limit_aborted(&limit));
    XT_CHECK_INT(xccl_limit_poll_ms(&limit), 0);
    XT_CHECK_INT(xccl_limit_poll_ms(&endless), 0);
    XT_CHECK(!xccl_limit_passed(&limit));
    XT_CHECK(!xccl_limit_aborted(&plain));
}

XT_TEST(cursor_over_nothing_is_at_its_end)
{
    struct xccl_wire wire = xccl_wire_over(NULL, 0);

    XT_CHECK_INT(xccl_wire_left(&wire), 0);
    xccl_wire_get(&wire, NULL, 0);
    XT_CHECK(!wire.bad);
    XT_CHECK_INT(xccl_wire_get_u8(&wire), 0);
    XT_CHECK(wire.bad);
}

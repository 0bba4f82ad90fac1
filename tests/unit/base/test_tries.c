/* SPDX-License-Identifier: BSD-3-Clause */
/* Which address is tried next and when all are given up: the second of two is tried soon, nothing
 * is given up before 4 s or after an answer, and the text names each address with its reason. */
#include <errno.h>

#include "base/clock.h"
#include "base/tries.h"
#include "xt.h"

#define MS XCCL_NS_PER_MS

/* Nobody answers anywhere; returns when it was given up, in ms. */
static uint64_t silent_for(int count, uint64_t *second_ms_out)
{
    struct xccl_tries tries = {0};
    uint64_t begin_ns = 5000 * MS, now_ns = begin_ns;

    for (int i = 0; i < 100; i++) {
        XT_CHECK_INT(xccl_tries_next(&tries, count, now_ns), i % count);
        if (i == 1)
            *second_ms_out = (now_ns - begin_ns) / MS;
        now_ns += xccl_tries_patience_ns(&tries, count, now_ns);
        xccl_tries_failed(&tries, 0);
        if (xccl_tries_is_over(&tries, count, now_ns)) {
            XT_CHECK(tries.begun >= 2 * count);
            return (now_ns - begin_ns) / MS;
        }
    }
    XT_FAIL("%d addresses are never given up", count);
}

XT_TEST(silence_is_given_up_after_4_s_and_the_second_address_tried_soon)
{
    for (int count = 1; count <= XCCL_TRIES_ADDRS; count++) {
        uint64_t second_ms = 0, over_ms = silent_for(count, &second_ms);

        XT_CHECK(over_ms >= 4000 && over_ms <= 4200);
        XT_CHECK_INT((int)second_ms, 300);
    }
}

XT_TEST(an_owner_may_give_the_first_try_more_time_and_no_other)
{
    struct xccl_tries tries = {.first_ms = 1500};
    uint64_t now_ns = 1000 * MS;

    XT_CHECK_INT(xccl_tries_patience_ns(&tries, 2, now_ns) / MS, 1500);
    (void)xccl_tries_next(&tries, 2, now_ns);
    XT_CHECK_INT(xccl_tries_patience_ns(&tries, 2, now_ns) / MS, 1500);
    xccl_tries_failed(&tries, 0);
    (void)xccl_tries_next(&tries, 2, now_ns + 1500 * MS);
    XT_CHECK_INT(xccl_tries_patience_ns(&tries, 2, now_ns + 1500 * MS) / MS, 300);
    tries.first_ms = 9000; /* nothing lasts longer than all tries together */
    tries.begun = 1;
    XT_CHECK_INT(xccl_tries_patience_ns(&tries, 2, now_ns) / MS, XCCL_TRIES_GIVE_UP_MS);
}

XT_TEST(one_answer_means_that_nothing_is_given_up)
{
    struct xccl_tries tries = {0};

    for (int i = 0; i < 50; i++) {
        (void)xccl_tries_next(&tries, 2, 1000 * MS + (uint64_t)i * 1000 * MS);
        if (i == 3)
            xccl_tries_answered(&tries);
        else
            xccl_tries_failed(&tries, 0);
    }
    XT_CHECK(!xccl_tries_is_over(&tries, 2, 1000000 * MS));
}

XT_TEST(errors_are_told_apart_and_named)
{
    struct xccl_tries tries = {0};
    struct xccl_addr addrs[2];
    char text[XCCL_TRIES_TEXT_BYTES];

    XT_OK(xccl_addr_parse("10.0.0.1:4000", 0, &addrs[0]));
    XT_OK(xccl_addr_parse("10.1.0.1:4000", 0, &addrs[1]));
    (void)xccl_tries_next(&tries, 2, 1);
    xccl_tries_failed(&tries, ENETUNREACH);
    XT_CHECK(!xccl_tries_all_unroutable(&tries, 2)); /* the second was not tried */
    (void)xccl_tries_next(&tries, 2, 2);
    xccl_tries_failed(&tries, 0);
    XT_CHECK(!xccl_tries_all_unroutable(&tries, 2) && !xccl_tries_all_refused(&tries, 2));
    xccl_tries_text(&tries, addrs, 2, text);
    XT_CHECK_HAS(text, "10.0.0.1:4000 (Network is unreachable), 10.1.0.1:4000 (no answer)");
    XT_CHECK(!xccl_tries_all_failed(&tries, 2));
    xccl_tries_failed(&tries, EPERM);
    XT_CHECK(xccl_tries_all_failed(&tries, 2));
    XT_CHECK(xccl_tries_all_unroutable(&tries, 2));
    XT_CHECK(xccl_tries_may_mend(EHOSTUNREACH) && !xccl_tries_may_mend(EMFILE));
}

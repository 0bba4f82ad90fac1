/* SPDX-License-Identifier: BSD-3-Clause */
/* Counted allocators, and the injection of faults into them.
 * Refused allocations are logged; the log goes to /dev/null here.
 * Each test runs in a process of its own, one thread unless it says otherwise. */
#include "base/alloc.h"
#include "base/inject.h"

#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/param.h"
#include "xt.h"

static void start(void)
{
    xt_set_error_source(xccl_error_text);
    xt_set_alloc_source(xccl_alloc_live);
    xt_setenv("XCCL_CONF_FILE", "/dev/null");
    xt_setenv("XCCL_DEBUG_FILE", "/dev/null");
    xccl_param_reset();
}

static int is_zero(const void *memory, size_t bytes)
{
    const uint8_t *at = memory;

    for (size_t i = 0; i < bytes; i++) {
        if (at[i])
            return 0;
    }
    return 1;
}

XT_TEST(memory_is_zeroed_and_counted)
{
    void *plain, *aligned;

    start();
    plain = xccl_calloc(10, 100);
    aligned = xccl_calloc_aligned(4096, 5000);
    XT_CHECK(plain && is_zero(plain, 1000));
    XT_CHECK(aligned && is_zero(aligned, 5000));
    XT_CHECK_INT((uintptr_t)aligned % 4096, 0);
    XT_CHECK_INT(xccl_alloc_live(), 2);
    XT_CHECK(xccl_alloc_live_bytes() >= 6000);
    xccl_free(plain);
    xccl_free(aligned);
    xccl_free(NULL);
    XT_CHECK_INT(xccl_alloc_live(), 0);
    XT_CHECK_INT(xccl_alloc_live_bytes(), 0);
}

XT_TEST(nothing_asked_for_is_not_no_memory)
{
    void *blocks[4];

    start();
    blocks[0] = xccl_calloc(0, 8);
    blocks[1] = xccl_calloc_aligned(64, 0);
    blocks[2] = xccl_realloc(NULL, 0);
    blocks[3] = xccl_strdup("");
    for (int i = 0; i < 4; i++) {
        XT_CHECK(blocks[i] != NULL);
        xccl_free(blocks[i]);
    }
}

XT_TEST(realloc_keeps_bytes_and_counts)
{
    char *text, *grown;

    start();
    text = xccl_strdup("hello");
    XT_CHECK(text != NULL);
    grown = xccl_realloc(text, 1 << 20);
    XT_CHECK(grown != NULL);
    XT_CHECK_TEXT(grown, "hello");
    XT_CHECK_INT(xccl_alloc_live(), 1);
    XT_CHECK(xccl_alloc_live_bytes() >= 1 << 20);
    grown = xccl_realloc(grown, 6);
    XT_CHECK_TEXT(grown, "hello");
    XT_CHECK(xccl_alloc_live_bytes() < 1 << 20);
    xccl_free(grown);
    XT_CHECK_INT(xccl_alloc_live_bytes(), 0);
}

XT_TEST(overflow_and_bad_alignment_are_refused_with_a_reason)
{
    /* tidy: allow volatile because the allocation is to be made although it cannot succeed */
    volatile size_t huge = SIZE_MAX / 2; /* hides the size from the compiler's own check */

    start();
    XT_CHECK(xccl_calloc(huge, 3) == NULL);
    XT_CHECK_HAS(xccl_error_text(), "Cannot allocate memory");
    XT_CHECK(xccl_calloc_aligned(24, 8) == NULL);
    XT_CHECK_HAS(xccl_error_text(), "power of two");
    XT_CHECK(xccl_calloc_aligned(4, 8) == NULL);
    XT_CHECK(xccl_calloc_aligned(0, 8) == NULL);
    XT_CHECK_INT(xccl_alloc_live(), 0);
    xccl_log_reset();
}

/* Takes four blocks of all kinds or none; the number of them. */
static int take_four(void)
{
    void *plain = NULL, *aligned = NULL, *text = NULL, *grown = NULL;
    int complete = 0;

    plain = xccl_calloc(1, 8);
    if (!plain)
        goto out;
    aligned = xccl_calloc_aligned(64, 8);
    if (!aligned)
        goto out;
    text = xccl_strdup("text");
    if (!text)
        goto out;
    grown = xccl_realloc(text, 64);
    if (!grown)
        goto out;
    text = NULL;
    complete = 4;
out:
    xccl_free(plain);
    xccl_free(aligned);
    xccl_free(text);
    xccl_free(grown);
    return complete;
}

XT_TEST(each_allocation_fails_in_turn_and_nothing_leaks)
{
    uint64_t k = 0;
    int complete;

    start();
    do {
        xccl_inject_arm(++k);
        xccl_error_set_text("");
        complete = take_four();
        XT_CHECK_INT(xccl_alloc_live(), 0);
        if (!complete)
            XT_CHECK_HAS(xccl_error_text(), "cannot allocate");
    } while (!complete);
    XT_CHECK_INT(k, 5);
    XT_CHECK_INT(xccl_inject_chances(), 4);
    xccl_inject_arm(0);
    xccl_log_reset();
}

XT_TEST(realloc_that_fails_leaves_the_old_block)
{
    char *text;

    start();
    text = xccl_strdup("hello");
    xccl_inject_arm(1);
    XT_CHECK(xccl_realloc(text, 1 << 20) == NULL);
    xccl_inject_arm(0);
    XT_CHECK_TEXT(text, "hello");
    XT_CHECK_INT(xccl_alloc_live(), 1);
    xccl_free(text);
    xccl_log_reset();
}

XT_TEST(injection_fails_the_kth_chance_once)
{
    xccl_inject_arm(3);
    XT_CHECK_INT(xccl_inject_due(), 0);
    XT_CHECK_INT(xccl_inject_due(), 0);
    XT_CHECK_INT(xccl_inject_due(), 1);
    XT_CHECK_INT(xccl_inject_due(), 0);
    XT_CHECK_INT(xccl_inject_chances(), 4);
    xccl_inject_arm(0);
    XT_CHECK_INT(xccl_inject_due(), 0);
    XT_CHECK_INT(xccl_inject_chances(), 0);
    xccl_inject_arm(UINT64_MAX);
    for (int i = 0; i < 10; i++)
        XT_CHECK_INT(xccl_inject_due(), 0);
    XT_CHECK_INT(xccl_inject_chances(), 10);
    xccl_inject_arm(0);
}

static void allocate_many(int rank, int nranks, void *arg)
{
    (void)nranks;
    (void)arg;
    for (int i = 0; i < 1000; i++) {
        void *block = xccl_calloc(1, (size_t)(rank + 1) * 8);

        block = xccl_realloc(block, 100);
        XT_CHECK(block != NULL);
        xccl_free(block);
    }
}

XT_TEST(counts_are_exact_under_threads)
{
    start();
    xccl_inject_arm(UINT64_MAX);
    xt_threads_run(4, allocate_many, NULL);
    XT_CHECK_INT(xccl_inject_chances(), 8000);
    xccl_inject_arm(0);
    XT_CHECK_INT(xccl_alloc_live(), 0);
    XT_CHECK_INT(xccl_alloc_live_bytes(), 0);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* A notice of a neighbour that has joined already, which comes while others still join: it is the
 * control plane's, unless joining cannot end without the rank that the notice is about. */
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/wire.h"
#include "boot_world.h"
#include "conn_recv.h"

#define NOTICE_TEXT "rank 2 (host a, pid 12) is gone"

static _Atomic int noticed, over; /* ranks that are so far; each case has a process of its own */

static void notice_send(struct xccl_conn *conn, xcclResult_t rc)
{
    uint8_t body[XCCL_BOOT_NOTICE_HEAD + sizeof(NOTICE_TEXT)];
    struct xccl_wire wire = xccl_wire_over(body, sizeof(body));
    struct xccl_limit limit = limit_make();

    xccl_wire_put_u32(&wire, XCCL_BOOT_NOTICE_ERROR);
    xccl_wire_put_u32(&wire, rc);
    for (int at = 8; at < XCCL_BOOT_NOTICE_HEAD; at += 4)
        xccl_wire_put_u32(&wire, 2);
    xccl_wire_put(&wire, NOTICE_TEXT, strlen(NOTICE_TEXT));
    XT_OK(xccl_conn_send(conn, XCCL_BOOT_NOTICE, body, (size_t)(wire.at - body), &limit));
}

static int has_notice(struct xccl_bootstrap *boot)
{
    int has;

    xccl_loop_lock(boot->loop);
    has = boot->notice[0] != 0;
    xccl_loop_unlock(boot->loop);
    return has;
}

/* Waits, so that no rank is lost before the others have looked; bounded by the test's deadline. */
static void notice_end(struct xccl_conn *next, struct xccl_conn *prev)
{
    atomic_fetch_add_explicit(&over, 1, memory_order_relaxed);
    while (atomic_load_explicit(&over, memory_order_relaxed) < 3)
        sched_yield();
    xccl_conn_close(next);
    xccl_conn_close(prev);
}

/* Rank 1 has the notice of rank 0 before the message of rank 2. */
static void notice_then_mail(struct xccl_bootstrap *boot, int rank, int nranks)
{
    struct xccl_conn *next = NULL, *prev = NULL;
    struct xccl_limit limit = limit_make();
    uint8_t body[XCCL_BOOT_ERROR_MAX], byte = 7;
    uint16_t type = 0;
    size_t bytes;

    (void)nranks;
    if (rank == 0) {
        xccl_bootstrap_take_ring(boot, &next, &prev);
        notice_send(next, xcclInvalidUsage);
    } else if (rank == 1) {
        XT_OK(xccl_bootstrap_recv_start(boot, 2, 1, &byte, 1, &limit));
        while (!has_notice(boot))
            sched_yield(); /* bounded by the test's deadline */
        atomic_store_explicit(&noticed, 1, memory_order_relaxed);
        XT_OK(xccl_bootstrap_wait(boot));
        XT_CHECK_INT(byte, 9);
        xccl_bootstrap_take_ring(boot, &next, &prev);
        XT_OK(news_recv(prev, &type, body, sizeof(body), &bytes, &limit));
        XT_CHECK_INT(type, XCCL_BOOT_NOTICE);
        XT_CHECK_INT(bytes, XCCL_BOOT_NOTICE_HEAD + strlen(NOTICE_TEXT));
    } else {
        byte = 9;
        while (!atomic_load_explicit(&noticed, memory_order_relaxed))
            sched_yield(); /* likewise */
        XT_OK(xccl_bootstrap_send(boot, 1, 1, &byte, 1, &limit));
    }
    notice_end(next, prev);
}

XT_TEST(a_notice_waits_for_whoever_takes_the_ring)
{
    run(3, notice_then_mail);
}

/* Rank 1 waits for a message that will never come. */
static void notice_and_no_mail(struct xccl_bootstrap *boot, int rank, int nranks)
{
    struct xccl_conn *next = NULL, *prev = NULL;
    struct xccl_limit limit = limit_make();
    uint64_t start_ns = xccl_clock_ns();
    uint8_t byte = 7;

    (void)nranks;
    if (rank == 0) {
        xccl_bootstrap_take_ring(boot, &next, &prev);
        notice_send(next, xcclRemoteError);
    } else if (rank == 1) {
        XT_CHECK_RC(xccl_bootstrap_recv(boot, 2, 1, &byte, 1, &limit), xcclRemoteError);
        XT_CHECK_TEXT(xccl_error_text(), NOTICE_TEXT);
        XT_CHECK((double)(xccl_clock_ns() - start_ns) / 1e9 < xt_bound(2, 10));
    }
    notice_end(next, prev);
}

XT_TEST(a_notice_ends_what_does_not_complete)
{
    run(3, notice_and_no_mail);
}

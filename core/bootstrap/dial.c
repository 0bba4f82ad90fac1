/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank connects to another, until both are proven. An address that does not answer is tried
 * again, and one whose owner has several is tried at all of them (tries.h); that it cannot be
 * reached is an error after 4 s, and that it is refused at once: a rank listens before others know
 * where.
 *
 * Thread: callbacks of the service thread, or any with the loop's lock. */
#include <stdio.h>
#include <string.h>

#include "base/param.h"
#include "bootstrap/bootstrap_int.h"

#define TURNED_AWAY_MAX 3 /* at each address */
#define PROOF_NS        (5 * XCCL_NS_PER_S) /* where others can be tried; it doubles with answers */
#define PAUSE_MAX_MS    100

struct xccl_hello xccl_boot_hello(const struct xccl_bootstrap *boot, uint16_t purpose,
                                  uint16_t detail)
{
    struct xccl_hello hello = {.rank = (uint32_t)boot->rank,
                               .nranks = (uint32_t)boot->nranks,
                               .purpose = purpose,
                               .detail = detail,
                               .version = XCCL_VERSION_CODE,
                               .target = XCCL_TARGET_ROOT,
                               .settings_hash = xccl_param_job_hash()};

    memcpy(hello.comm_id, boot->job.comm_id, sizeof(hello.comm_id));
    return hello;
}

/* Nothing at all is watched for no events: a closed peer would otherwise wake the loop for ever. */
xcclResult_t xccl_boot_watch(struct xccl_bootstrap *boot, struct xccl_source *source,
                             const struct xccl_conn *conn, uint32_t events)
{
    if (!events) {
        xccl_loop_remove(source);
        return xcclSuccess;
    }
    if (source->loop && source->fd == xccl_conn_fd(conn))
        return xccl_loop_set_events(source, events);
    xccl_loop_remove(source);
    source->fd = xccl_conn_fd(conn);
    source->events = events;
    return xccl_loop_add(boot->loop, source);
}

int xccl_boot_addr_list(const struct xccl_bootstrap *boot, int rank,
                        struct xccl_addr addrs_out[XCCL_TRIES_ADDRS])
{
    struct xccl_addr told;
    int count = 0;

    if (xccl_boot_next_decode(boot->addrs + (size_t)rank * XCCL_ADDR_WIRE_BYTES,
                              XCCL_ADDR_WIRE_BYTES, &told) != 0)
        return 0;
    xccl_addr_take_zone(&told, &boot->self_addr);
    for (int i = 0; i < 2 && !count; i++) {
        const struct xccl_boot_met *met = &boot->met[i];
        int place = 0;

        while (place < met->count && !xccl_addr_same_host(&told, &met->roots[place]))
            place++;
        if (place == met->count)
            continue;
        /* It listens at all addresses of its root, and where this rank has met the root is best. */
        for (int k = 0; k < met->count; k++) {
            struct xccl_addr *addr = &addrs_out[count++];

            *addr = met->roots[(met->idx + k) % met->count];
            xccl_addr_set_port(addr, xccl_addr_port(&told));
            xccl_addr_take_zone(addr, &boot->self_addr);
        }
    }
    if (!count)
        addrs_out[count++] = told;
    return count;
}

static void dial_close(struct xccl_boot_dial *dial)
{
    xccl_loop_remove(dial->source);
    xccl_conn_close(*dial->conn);
    *dial->conn = NULL;
}

static void fail_at(struct xccl_boot_dial *dial, xcclResult_t rc, const struct xccl_addr *addr)
{
    struct xccl_verdict verdict = {
        .trouble = XCCL_TROUBLE_BOOT_UNREACHED, .rc = rc, .address = "?"};

    xccl_verdict_set_why(&verdict, xccl_error_text());
    if (addr)
        xccl_addr_format(addr, verdict.address);
    xccl_boot_raise(dial->boot, &verdict, dial->rank);
}

static void fail_unreached(struct xccl_boot_dial *dial)
{
    struct xccl_bootstrap *boot = dial->boot;
    struct xccl_addr addrs[XCCL_TRIES_ADDRS];
    int count = xccl_boot_addr_list(boot, dial->rank, addrs);
    struct xccl_verdict verdict = {.trouble = XCCL_TROUBLE_BOOT_NO_WAY};
    char text[XCCL_TRIES_TEXT_BYTES];

    xccl_tries_text(&dial->tries, addrs, count, text);
    xccl_verdict_set_why(&verdict, text);
    boot->maybe_echo = 1; /* a host may have failed, of which the root may have heard */
    xccl_boot_raise(boot, &verdict, dial->rank);
}

/* Another try, a little later. */
static void dial_pause(struct xccl_boot_dial *dial)
{
    uint64_t pause_ms = dial->tries.begun < 7 ? 1ull << dial->tries.begun : PAUSE_MAX_MS;
    xcclResult_t rc;

    dial_close(dial);
    dial->connected = 0;
    dial->source->fd = -1;
    dial->source->events = 0;
    dial->source->timer_ns = xccl_clock_ns() + pause_ms * XCCL_NS_PER_MS;
    rc = xccl_loop_add(dial->boot->loop, dial->source);
    if (rc)
        fail_at(dial, rc, NULL);
}

/* A try failed with an errno, and the thread's error text says how; 0: nobody answered. */
static void dial_missed(struct xccl_boot_dial *dial, xcclResult_t rc, int err)
{
    struct xccl_addr addrs[XCCL_TRIES_ADDRS];
    int count = xccl_boot_addr_list(dial->boot, dial->rank, addrs), refused;

    xccl_tries_failed(&dial->tries, err);
    refused = xccl_tries_all_refused(&dial->tries, count);
    if ((refused && count == 1) || (err && !xccl_tries_may_mend(err))) {
        if (*dial->conn)
            xccl_boot_fail_peer(dial->boot, rc, dial->rank, *dial->conn);
        else
            fail_at(dial, rc, &addrs[dial->tries.idx]);
    } else if (refused || xccl_tries_is_over(&dial->tries, count, xccl_clock_ns())) {
        fail_unreached(dial);
    } else {
        dial_pause(dial);
    }
}

static void dial_connect(struct xccl_boot_dial *dial)
{
    struct xccl_bootstrap *boot = dial->boot;
    struct xccl_hello hello = xccl_boot_hello(boot, dial->purpose, dial->detail);
    struct xccl_addr addrs[XCCL_TRIES_ADDRS];
    int count = xccl_boot_addr_list(boot, dial->rank, addrs), idx;
    uint64_t now_ns = xccl_clock_ns();
    xcclResult_t rc = xcclRemoteError;

    hello.target = (uint32_t)dial->rank;
    dial_close(dial);
    dial->connected = 0;
    if (!count) {
        (void)xccl_fail_quietly(rc, 0, NULL, "its address has an unknown format");
        fail_at(dial, rc, NULL);
        return;
    }
    idx = xccl_tries_next(&dial->tries, count, now_ns);
    rc = xccl_conn_start(&addrs[idx], boot->job.secret, &hello, dial->conn);
    if (rc && xccl_tcp_connect_err()) {
        dial_missed(dial, rc, xccl_tcp_connect_err());
        return;
    }
    dial->source->timer_ns = now_ns + xccl_tries_patience_ns(&dial->tries, count, now_ns);
    if (!rc)
        rc = xccl_boot_watch(boot, dial->source, *dial->conn, xccl_conn_shake_events(*dial->conn));
    if (rc)
        fail_at(dial, rc, &addrs[idx]);
}

void xccl_boot_dial_start(struct xccl_boot_dial *dial)
{
    /* Who has answered before is only slow: then nothing is given up after 4 s. */
    dial->tries = (struct xccl_tries){.answers = dial->tries.answers > 0};
    dial->turned_away = 0;
    dial_connect(dial);
}

int xccl_boot_may_mend(const struct xccl_conn *conn, xcclResult_t rc, int count, int *turned_away)
{
    if (rc != xcclRemoteError)
        return 0;
    if (xccl_conn_turned_away(conn) > 1)
        return 1;
    return (count > 1 || xccl_conn_turned_away(conn)) && ++*turned_away < TURNED_AWAY_MAX * count;
}

/* A slow rank has until the operation's deadline, unless it can be tried elsewhere. */
static uint64_t proof_until_ns(const struct xccl_boot_dial *dial, int count)
{
    int doubled = dial->tries.answers < 5 ? dial->tries.answers - 1 : 4;

    return count > 1 ? xccl_clock_ns() + (PROOF_NS << doubled) : XCCL_NEVER_NS;
}

int xccl_boot_dial_shake(struct xccl_boot_dial *dial)
{
    struct xccl_bootstrap *boot = dial->boot;
    struct xccl_addr addrs[XCCL_TRIES_ADDRS];
    int done = 0, count = xccl_boot_addr_list(boot, dial->rank, addrs);
    xcclResult_t rc = xccl_conn_shake(*dial->conn, &done);
    int err = rc ? xccl_conn_unreached(*dial->conn) : 0;

    if (err) {
        dial_missed(dial, rc, err);
        return 0;
    }
    if (!dial->connected && xccl_conn_is_connected(*dial->conn)) {
        dial->connected = 1;
        xccl_tries_answered(&dial->tries);
        xccl_loop_set_timer(dial->source, proof_until_ns(dial, count));
    }
    if (rc && xccl_boot_may_mend(*dial->conn, rc, count, &dial->turned_away)) {
        if (xccl_conn_turned_away(*dial->conn) > 1)
            dial_pause(dial);
        else
            dial_connect(dial);
        return 0;
    }
    if (!rc && !done)
        rc = xccl_boot_watch(boot, dial->source, *dial->conn, xccl_conn_shake_events(*dial->conn));
    if (rc)
        xccl_boot_fail_peer(boot, rc, dial->rank, *dial->conn);
    else if (done)
        xccl_loop_set_timer(dial->source, XCCL_NEVER_NS);
    return !rc && done;
}

int xccl_boot_dial_on_timer(struct xccl_boot_dial *dial)
{
    const struct xccl_conn *conn = *dial->conn;
    int was_connected = dial->connected;

    if (dial->boot->rc)
        return 0;
    if (!conn) {
        dial_connect(dial);
        return 0;
    }
    /* A thread that was given no time has not seen yet what came meanwhile. */
    if (xccl_boot_dial_shake(dial))
        return 1;
    if (dial->boot->rc || *dial->conn != conn || was_connected != dial->connected)
        return 0;
    if (dial->connected)
        dial_connect(dial);
    else
        dial_missed(dial, xcclRemoteError, 0);
    return 0;
}

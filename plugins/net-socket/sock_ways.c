/* SPDX-License-Identifier: BSD-3-Clause */
/* By which way a line goes to its receiver. A handle has the addresses of the receiver's rails,
 * and, as far as there is room, those of its other interfaces: a connection proves which of them
 * reaches it.
 *
 *   way 0    the line's own address through this device's interface, where several of this host
 *            are in that subnet; else by the system's routes
 *   way 1    the same by the system's routes
 *   then     the other addresses in turn, and from the front again
 *
 * A way that is refused is left at once, one without an answer after 0.3 s, later 0.6, 1.2 and 2 s:
 * each try is a new packet, so that one lost packet costs little. When each address has refused in
 * one round, or 4 s have gone by without any answer, the line fails. An address that did not answer
 * while another one did is asked last by later connections of the instance.
 *
 * Thread: one at a time a connect; what the instance remembers is guarded by its lock. */
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/tcp.h"
#include "sock_int.h"

#define PATIENCE_NS     (300 * XCCL_NS_PER_MS)
#define PATIENCE_MAX_NS (2 * XCCL_NS_PER_S)
#define REACH_NS        (4 * XCCL_NS_PER_S)

/* ---- what the instance remembers ---- */

static int is_unreached(struct sock_ctx *ctx, const struct xccl_addr *addr)
{
    struct xccl_addr host = *addr;
    int found = 0;

    xccl_addr_set_port(&host, 0);
    pthread_mutex_lock(&ctx->ways_lock);
    for (int i = 0; i < ctx->unreached_count && !found; i++)
        found = xccl_addr_equal(&ctx->unreached[i], &host);
    pthread_mutex_unlock(&ctx->ways_lock);
    return found;
}

/* Returns 1 for the first one. */
static int remember(struct sock_ctx *ctx, const struct xccl_addr *addr)
{
    struct xccl_addr host = *addr;
    int first;

    xccl_addr_set_port(&host, 0);
    pthread_mutex_lock(&ctx->ways_lock);
    first = ctx->unreached_count == 0;
    if (ctx->unreached_count < SOCK_UNREACHED_MAX)
        ctx->unreached[ctx->unreached_count++] = host;
    pthread_mutex_unlock(&ctx->ways_lock);
    return first;
}

/* ---- the order ---- */

/* Rails stay where they are, so that each has its lines; but an address that is known not to answer
 * changes places with the next one that may. */
void sock_ways_order(struct sock_connect *state)
{
    const struct sock_handle *handle = &state->handle;
    int good[SOCK_RAILS_MAX], good_count = 0;

    for (int i = 0; i < handle->addr_count; i++) {
        state->order[i] = i;
        if (!is_unreached(state->ctx, &handle->addrs[i]))
            good[good_count++] = i;
    }
    for (int i = 0; i < handle->addr_count && good_count; i++) {
        if (is_unreached(state->ctx, &handle->addrs[i]))
            state->order[i] = good[i % good_count];
    }
}

/* Which address a try is for. */
static int address_of(const struct sock_connect *state, int idx)
{
    const struct sock_connect_line *line = &state->lines[idx];
    int count = state->handle.addr_count;
    int first = state->order[sock_rail_of(idx, state->handle.rail_count)];

    return (first + (line->tries > 0 ? line->tries - line->bound_first : 0)) % count;
}

const struct xccl_addr *sock_connect_addr(const struct sock_connect *state, int line)
{
    return &state->handle.addrs[address_of(state, line)];
}

/* The scope of a link-local address is a number of the receiver's host; here it is our interface.
 */
static void address_from_here(const struct sock_device *device, struct xccl_addr *addr)
{
    if (addr->sa.any.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&addr->sa.in6.sin6_addr))
        addr->sa.in6.sin6_scope_id = if_nametoindex(device->netif.name);
}

/* ---- a try ---- */

static xcclResult_t try_begin(struct sock_connect *state, int idx)
{
    struct sock_connect_line *line = &state->lines[idx];
    int turn = sock_rail_of(idx, state->handle.rail_count);
    const struct sock_device *rail = NULL;
    struct xccl_addr addr;

    if (line->tries == 0) {
        rail = sock_subnet_towards(state->ctx, state->device,
                                   &state->handle.addrs[state->order[turn]], turn);
        line->bound_first = rail != NULL;
    }
    addr = *sock_connect_addr(state, idx);
    line->connected = 0;
    line->since_ns = xccl_clock_ns();
    address_from_here(rail ? rail : state->device, &addr);
    return sock_address_connect(state->ctx, &addr, rail ? rail->netif.name : NULL, &line->fd);
}

static uint64_t patience_ns(const struct sock_connect *state, const struct sock_connect_line *line)
{
    int round = line->tries / state->handle.addr_count;
    uint64_t ns = PATIENCE_NS << (round < 3 ? round : 3);

    return ns < PATIENCE_MAX_NS ? ns : PATIENCE_MAX_NS;
}

/* The text of the last try is the thread's error text; "": there was no answer. */
static xcclResult_t fail_unreached(const struct sock_connect *state, xcclResult_t rc,
                                   const char *last)
{
    char list[SOCK_RAILS_MAX * XCCL_ADDR_TEXT_BYTES], text[XCCL_ADDR_TEXT_BYTES];
    size_t used = 0;

    if (state->handle.addr_count == 1 && last[0])
        return rc; /* its text says all */
    for (int i = 0; i < state->handle.addr_count && used < sizeof(list); i++) {
        xccl_addr_format(&state->handle.addrs[i], text);
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "", text);
    }
    return xccl_fail_quietly(rc, 0,
                             "set XCCL_SOCKET_IFNAME on all hosts to the interface by which they "
                             "reach each other, and see whether a firewall stands between them",
                             "no way from %s leads to the peer at %s%s%.160s", state->device->name,
                             list, last[0] ? "; the last one: " : ": there was no answer for 4 s",
                             last);
}

/* A try has failed, or there was no answer to it. */
static xcclResult_t try_next(struct sock_connect *state, int idx, xcclResult_t rc)
{
    struct sock_connect_line *line = &state->lines[idx];
    char last[XCCL_ERROR_TEXT_BYTES] = "";
    int ways = state->handle.addr_count + line->bound_first;

    if (rc != xcclSuccess)
        snprintf(last, sizeof(last), "%s", xccl_error_text());
    xccl_tcp_close(&line->fd);
    line->refused = rc != xcclSuccess ? line->refused + 1 : 0;
    line->tries++;
    if (line->again || line->refused >= ways || xccl_clock_ns() - line->begun_ns > REACH_NS)
        return fail_unreached(state, rc ? rc : xcclRemoteError, last);
    return xcclSuccess;
}

xcclResult_t sock_connect_start(struct sock_connect *state, int idx)
{
    struct sock_connect_line *line = &state->lines[idx];
    xcclResult_t rc;
    int failed;

    line->tries = line->refused = 0;
    line->begun_ns = xccl_clock_ns();
    do {
        rc = try_begin(state, idx);
        failed = rc != xcclSuccess;
        if (failed)
            rc = try_next(state, idx, rc);
    } while (failed && rc == xcclSuccess);
    return rc;
}

static void tell_passed_over(const struct sock_connect *state, const struct xccl_addr *passed,
                             const struct xccl_addr *taken)
{
    char line[320], to[XCCL_ADDR_TEXT_BYTES], by[XCCL_ADDR_TEXT_BYTES];

    xccl_addr_format_host(passed, to);
    xccl_addr_format_host(taken, by);
    snprintf(line, sizeof(line),
             "the peer's address %s is not reached from here and is passed over; %s is taken "
             "instead (XCCL_SOCKET_IFNAME chooses interfaces)",
             to, by);
    state->ctx->log(xcclNetLogWarn, line);
}

/* The way is found. */
static void connected(struct sock_connect *state, int idx)
{
    int first = sock_rail_of(idx, state->handle.rail_count), taken = address_of(state, idx);
    const struct xccl_addr *passed = &state->handle.addrs[first];

    if (state->lines[idx].again || state->order[first] != first || taken == first ||
        is_unreached(state->ctx, passed))
        return;
    if (remember(state->ctx, passed) && state->ctx->log)
        tell_passed_over(state, passed, &state->handle.addrs[taken]);
}

xcclResult_t sock_ways_go_on(struct sock_connect *state, int idx)
{
    struct sock_connect_line *line = &state->lines[idx];
    xcclResult_t rc = xcclSuccess;

    if (line->fd < 0)
        rc = try_begin(state, idx);
    if (rc == xcclSuccess && line->fd >= 0)
        rc = sock_address_connected(line->fd, sock_connect_addr(state, idx), &line->connected);
    if (line->connected && rc == xcclSuccess) {
        connected(state, idx);
        return xcclSuccess;
    }
    if (rc != xcclSuccess || (!line->again && line->fd >= 0 &&
                              xccl_clock_ns() - line->since_ns > patience_ns(state, line)))
        return try_next(state, idx, rc);
    return xcclSuccess;
}

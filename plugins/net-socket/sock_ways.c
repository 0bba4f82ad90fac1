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
 * base/tries.h says for how long each is tried. When the last try at each address was an error, or
 * 4 s have gone by without any answer, the line fails. An address that did not answer while another
 * one did is asked last by later connections of the instance.
 *
 * Thread: one at a time a connect; what the instance remembers is guarded by its lock. */
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/tcp.h"
#include "sock_int.h"

/* For a line of several rails at its own. Its first packet may be lost, for instance on an
 * interface that has just come up, and the kernel sends it again after 1 s. On another rail the
 * line would be lost together with that rail. */
#define OWN_RAIL_MS 1500
#define STRANGER    EKEYREJECTED /* of a try: the answer was not the receiver's */
#define TODO_UNREACHED                                                                             \
    "set XCCL_SOCKET_IFNAME on all hosts to the interface by which they reach each other, and "    \
    "see whether a firewall stands between them"
#define TODO_STRANGER                                                                              \
    "find out who answers where the key was rejected: another host with that address, or a "       \
    "process on the way; XCCL_SOCKET_IFNAME chooses other interfaces"

static_assert(SOCK_RAILS_MAX <= XCCL_TRIES_ADDRS, "all addresses of a handle can be tried");

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

/* The place of a line's own address. */
static int first_of(const struct sock_connect *state, int idx)
{
    return state->order[sock_rail_of(idx, state->handle.rail_count)];
}

/* Which address a try is for. */
static int address_of(const struct sock_connect *state, int idx)
{
    const struct sock_connect_line *line = &state->lines[idx];

    return (first_of(state, idx) + (line->bound ? 0 : line->tries.idx)) % state->handle.addr_count;
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

/* first 1: of all; it may be through an interface of our choice. */
static xcclResult_t try_begin(struct sock_connect *state, int idx, int first)
{
    struct sock_connect_line *line = &state->lines[idx];
    const struct sock_device *rail = NULL;
    struct xccl_addr addr;

    if (first)
        rail = sock_subnet_towards(state->ctx, state->device,
                                   &state->handle.addrs[first_of(state, idx)],
                                   sock_rail_of(idx, state->handle.rail_count));
    line->bound = rail != NULL;
    line->connected = 0;
    line->greeting = (struct kit_greeting){.stage = KIT_BEGIN};
    line->since_ns = xccl_clock_ns();
    if (!rail)
        (void)xccl_tries_next(&line->tries, state->handle.addr_count, line->since_ns);
    addr = *sock_connect_addr(state, idx);
    address_from_here(rail ? rail : state->device, &addr);
    return sock_address_connect(state->ctx, &addr, rail ? rail->netif.name : NULL, &line->fd);
}

/* The text of the last try is the thread's error text, if it had an error. */
static xcclResult_t fail_unreached(const struct sock_connect *state, int idx, xcclResult_t rc)
{
    const struct xccl_tries *tries = &state->lines[idx].tries;
    struct xccl_addr addrs[SOCK_RAILS_MAX] = {{.bytes = 0}};
    const char *todo = TODO_UNREACHED;
    char text[XCCL_TRIES_TEXT_BYTES];
    int count = state->handle.addr_count;

    if (count == 1 && rc != xcclSuccess)
        return rc; /* its text says all */
    for (int i = 0; i < count; i++) {
        addrs[i] = state->handle.addrs[(first_of(state, idx) + i) % count];
        if (tries->errs[i] == STRANGER)
            todo = TODO_STRANGER;
    }
    xccl_tries_text(tries, addrs, count, text);
    return xccl_fail_quietly(rc != xcclSuccess ? rc : xcclRemoteError, 0, todo,
                             "no way from %s leads to the peer: %s", state->device->name, text);
}

/* A try has failed with an errno; 0: there was no answer to it. */
static xcclResult_t try_failed(struct sock_connect *state, int idx, xcclResult_t rc, int err)
{
    struct sock_connect_line *line = &state->lines[idx];
    int count = state->handle.addr_count;

    xccl_tcp_close(&line->fd);
    if (line->again)
        return fail_unreached(state, idx, rc);
    if (line->bound)
        return xcclSuccess;
    xccl_tries_failed(&line->tries, err);
    if (xccl_tries_all_failed(&line->tries, count) ||
        xccl_tries_is_over(&line->tries, count, xccl_clock_ns()))
        return fail_unreached(state, idx, rc);
    return xcclSuccess;
}

/* Why a connection of this thread failed just now. */
static int connect_err(xcclResult_t rc)
{
    int err = rc != xcclSuccess ? xccl_tcp_connect_err() : 0;

    /* A Unix name that nobody has is an error without a number. */
    return rc != xcclSuccess && !err ? ECONNREFUSED : err;
}

xcclResult_t sock_connect_start(struct sock_connect *state, int idx)
{
    struct sock_connect_line *line = &state->lines[idx];
    xcclResult_t rc;

    line->tries = (struct xccl_tries){.first_ms = state->handle.rail_count > 1 ? OWN_RAIL_MS : 0};
    rc = try_begin(state, idx, 1);
    return rc == xcclSuccess ? rc : try_failed(state, idx, rc, connect_err(rc));
}

xcclResult_t sock_ways_failed(struct sock_connect *state, int idx, xcclResult_t rc)
{
    struct sock_connect_line *line = &state->lines[idx];

    line->connected = 0;
    /* A whole answer that was wrong, or none before the connection ended. */
    return try_failed(state, idx, rc,
                      line->greeting.heard == KIT_ANSWER_BYTES ? STRANGER : ECONNRESET);
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
    uint64_t now_ns;
    xcclResult_t rc = xcclSuccess;

    if (line->fd < 0)
        rc = try_begin(state, idx, 0);
    if (rc == xcclSuccess && line->fd >= 0)
        rc = sock_address_connected(line->fd, sock_connect_addr(state, idx), &line->connected);
    if (line->connected && rc == xcclSuccess) {
        connected(state, idx);
        return xcclSuccess;
    }
    now_ns = xccl_clock_ns();
    if (rc != xcclSuccess ||
        (!line->again && line->fd >= 0 &&
         now_ns - line->since_ns >
             xccl_tries_patience_ns(&line->tries, state->handle.addr_count, line->since_ns)))
        return try_failed(state, idx, rc, connect_err(rc));
    return xcclSuccess;
}

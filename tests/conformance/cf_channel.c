/* SPDX-License-Identifier: BSD-3-Clause */
/* Between the two roles of a case, outside the plugin: a socket pair, or a TCP connection where the
 * other role is on another host. While a role listens here, it moves what its instance owes to the
 * wire, as XCCL does.
 *
 * Thread: the role's. */
#include "cf_int.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static _Noreturn void other_has_gone(struct cf *me)
{
    int other = me->role == CF_SENDER ? CF_RECEIVER : CF_SENDER;

    if (atomic_load_explicit(&me->shared->verdict, memory_order_acquire))
        _exit(0);
    if (!atomic_load_explicit(&me->shared->may_die[other], memory_order_relaxed))
        cf_sleep_ms(100); /* its own words come first */
    cf_fail(me, CF_ENDED_EARLY);
}

void cf_tell(struct cf *me, const void *data, size_t bytes)
{
    const char *at = data;

    while (bytes > 0) {
        ssize_t sent = send(me->channel, at, bytes, MSG_NOSIGNAL);

        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            other_has_gone(me);
        at += sent;
        bytes -= (size_t)sent;
    }
}

/* Sleeps until the channel has something to read. */
static void channel_wait(struct cf *me)
{
    struct cf_patience patience = cf_patience("a message from the other role");
    struct pollfd fd = {.fd = me->channel, .events = POLLIN};

    /* The other role, which knows more about what is missing, gives up first. */
    patience.begin_ns += cf_patience_ms(me) * CF_MS / 6;
    while (poll(&fd, 1, me->props.needsProgress ? 1 : 20) <= 0) {
        patience.turns = 63; /* looks at the clock each time */
        cf_turn(me, &patience);
    }
}

void cf_hear(struct cf *me, void *data, size_t bytes)
{
    char *at = data;

    while (bytes > 0) {
        ssize_t got;

        channel_wait(me);
        got = recv(me->channel, at, bytes, MSG_DONTWAIT);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got <= 0)
            other_has_gone(me);
        at += got;
        bytes -= (size_t)got;
    }
}

void cf_barrier(struct cf *me)
{
    char word = 1;

    cf_tell(me, &word, 1);
    cf_hear(me, &word, 1);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Which address is tried next, for how long, and when all are given up: a pure function of the
 * errors so far and of the time that is handed in.
 *
 * Thread: whoever drives the tries; no state but the caller's. */
#include "base/tries.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

#define FIRST_MS   300 /* of a try in the first turn; it doubles with every turn */
#define LONGEST_MS 3000
#define SHORT_MS   100 /* the last try before giving up takes at least this */

/* No way there from this host, as its own kernel says at once. */
static int is_unroutable(int err)
{
    return err == ENETUNREACH || err == EACCES || err == EPERM || err == EADDRNOTAVAIL ||
           err == EAFNOSUPPORT || err == EINVAL || err == ENONET;
}

int xccl_tries_may_mend(int err)
{
    return err == ECONNREFUSED || err == ETIMEDOUT || err == EHOSTUNREACH || err == EHOSTDOWN ||
           err == EAGAIN || err == ECONNRESET || is_unroutable(err);
}

int xccl_tries_next(struct xccl_tries *tries, int count, uint64_t now_ns)
{
    if (!tries->begun)
        tries->since_ns = now_ns;
    tries->idx = tries->begun++ % count;
    return tries->idx;
}

uint64_t xccl_tries_patience_ns(const struct xccl_tries *tries, int count, uint64_t now_ns)
{
    int turn = tries->begun ? (tries->begun - 1) / count : 0;
    uint64_t ms = turn < 4 ? (uint64_t)FIRST_MS << turn : LONGEST_MS;
    uint64_t over_ns = tries->since_ns + XCCL_TRIES_GIVE_UP_MS * XCCL_NS_PER_MS;
    uint64_t ns = (ms < LONGEST_MS ? ms : LONGEST_MS) * XCCL_NS_PER_MS;

    if (tries->begun <= 1 && ns < tries->first_ms * XCCL_NS_PER_MS)
        ns = tries->first_ms * XCCL_NS_PER_MS;
    if (!tries->answers && now_ns < over_ns && now_ns + ns > over_ns)
        ns = over_ns - now_ns;
    return ns > SHORT_MS * XCCL_NS_PER_MS ? ns : SHORT_MS * XCCL_NS_PER_MS;
}

void xccl_tries_failed(struct xccl_tries *tries, int err)
{
    tries->errs[tries->idx] = err;
    tries->tried |= 1 << tries->idx;
}

void xccl_tries_answered(struct xccl_tries *tries)
{
    tries->answers++;
}

int xccl_tries_is_over(const struct xccl_tries *tries, int count, uint64_t now_ns)
{
    return !tries->answers && tries->begun >= 2 * count &&
           now_ns >= tries->since_ns + XCCL_TRIES_GIVE_UP_MS * XCCL_NS_PER_MS;
}

static int all_failed_so(const struct xccl_tries *tries, int count, int (*is_so)(int err))
{
    for (int i = 0; i < count; i++) {
        if (!(tries->tried & 1 << i) || !is_so(tries->errs[i]))
            return 0;
    }
    return 1;
}

static int is_refused(int err)
{
    return err == ECONNREFUSED;
}

int xccl_tries_all_refused(const struct xccl_tries *tries, int count)
{
    return all_failed_so(tries, count, is_refused);
}

int xccl_tries_all_unroutable(const struct xccl_tries *tries, int count)
{
    return all_failed_so(tries, count, is_unroutable);
}

static int is_error(int err)
{
    return err != 0;
}

int xccl_tries_all_failed(const struct xccl_tries *tries, int count)
{
    return all_failed_so(tries, count, is_error);
}

void xccl_tries_text(const struct xccl_tries *tries, const struct xccl_addr *addrs, int count,
                     char text_out[XCCL_TRIES_TEXT_BYTES])
{
    size_t used = 0;

    text_out[0] = '\0';
    for (int i = 0; i < count && used < XCCL_TRIES_TEXT_BYTES; i++) {
        char addr[XCCL_ADDR_TEXT_BYTES], reason[96];
        int is_told = tries->tried & 1 << i && tries->errs[i];

        xccl_addr_format(&addrs[i], addr);
        used += (size_t)snprintf(
            text_out + used, XCCL_TRIES_TEXT_BYTES - used, "%s%s (%s)", i ? ", " : "", addr,
            is_told ? strerror_r(tries->errs[i], reason, sizeof(reason)) : "no answer");
    }
}

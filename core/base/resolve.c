/* SPDX-License-Identifier: BSD-3-Clause */
/* One thread a name, and a lookup that both threads hold: the last one to release it frees it. A
 * child of fork() has neither the thread nor the one that waits for it.
 *
 * Thread: any. */
#include "base/resolve.h"

#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bell.h"
#include "base/error.h"
#include "base/inject.h"
#include "base/param.h"

#define HOST_BYTES 256

struct lookup {
    _Atomic int holders, done;
    struct xccl_bell bell;
    char host[HOST_BYTES];
    int family;
    /* valid when done */
    int err;
    struct xccl_addr addr; /* bytes 0: none of a family that we speak */
};

static void lookup_put(struct lookup *lookup)
{
    /* Acquire and release: the last holder frees after all that the other one did. */
    if (atomic_fetch_sub_explicit(&lookup->holders, 1, memory_order_acq_rel) == 1)
        xccl_free(lookup);
}

static void take_first(struct lookup *lookup, const struct addrinfo *found)
{
    for (const struct addrinfo *at = found; at && !lookup->addr.bytes; at = at->ai_next) {
        if (at->ai_family != AF_INET && at->ai_family != AF_INET6)
            continue;
        memcpy(&lookup->addr.sa, at->ai_addr, at->ai_addrlen);
        lookup->addr.bytes = at->ai_addrlen;
    }
}

static void *lookup_main(void *arg)
{
    struct lookup *lookup = arg;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;

    hints.ai_family = lookup->family;
    lookup->err = getaddrinfo(lookup->host, NULL, &hints, &found);
    if (!lookup->err) {
        take_first(lookup, found);
        freeaddrinfo(found);
    }
    /* Release: the answer is written. Pairs with lookup_wait(). */
    atomic_store_explicit(&lookup->done, 1, memory_order_release);
    xccl_bell_ring(&lookup->bell);
    lookup_put(lookup);
    return NULL;
}

/* A thread that the program's signals do not reach. */
static xcclResult_t lookup_start(struct lookup *lookup, pthread_t *thread_out)
{
    sigset_t all, before;
    int err;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    err = pthread_create(thread_out, NULL, lookup_main, lookup);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err)
        return xccl_fail_quietly(xcclSystemError, err, "raise ulimit -u",
                                 "cannot start a thread that looks up a host name");
    return xcclSuccess;
}

/* 1: there is an answer; 0: the limit has passed, or the wait was aborted. */
static int lookup_wait(struct lookup *lookup, const struct xccl_limit *limit)
{
    for (;;) {
        uint32_t heard = xccl_bell_listen(&lookup->bell);

        /* Acquire: pairs with lookup_main(). */
        if (atomic_load_explicit(&lookup->done, memory_order_acquire))
            return 1;
        if (xccl_limit_aborted(limit) || xccl_limit_passed(limit))
            return 0;
        xccl_bell_wait(&lookup->bell, heard, limit);
    }
}

static xcclResult_t not_answered(const char *text, const struct xccl_limit *limit, uint64_t from_ns)
{
    if (xccl_limit_aborted(limit))
        return xccl_fail_quietly(xcclInvalidUsage, 0, NULL, "aborted while looking up \"%.64s\"",
                                 text);
    return xccl_fail_quietly(
        xcclTimeout, 0,
        "check this host's name servers (/etc/resolv.conf), or give a numeric address",
        "cannot resolve \"%.64s\": no answer within %llu s", text,
        (unsigned long long)((xccl_clock_ns() - from_ns + XCCL_NS_PER_S / 2) / XCCL_NS_PER_S));
}

static xcclResult_t failed(const char *text, int err)
{
    return xccl_fail_quietly(xcclSystemError, 0, "check the name, or give a numeric address",
                             "cannot resolve \"%.64s\": %s", text, gai_strerror(err));
}

static xcclResult_t answered(const char *text, const struct lookup *lookup,
                             struct xccl_addr *addr_out)
{
    if (lookup->err)
        return failed(text, lookup->err);
    if (!lookup->addr.bytes)
        return xccl_fail_quietly(xcclSystemError, 0, "check the name, or give a numeric address",
                                 "\"%.64s\" has neither an IPv4 nor an IPv6 address", text);
    *addr_out = lookup->addr;
    xccl_addr_set_port(addr_out, 0);
    return xcclSuccess;
}

xcclResult_t xccl_resolve(const char *text, const char *host, const struct xccl_limit *limit,
                          struct xccl_addr *addr_out)
{
    static const int families[] = {AF_UNSPEC, AF_INET, AF_INET6};
    uint64_t from_ns = xccl_clock_ns();
    struct lookup *lookup;
    pthread_t thread;
    xcclResult_t rc;

    if (xccl_inject_due())
        return failed(text, EAI_AGAIN);
    lookup = xccl_calloc(1, sizeof(*lookup));
    if (!lookup)
        return xcclSystemError;
    snprintf(lookup->host, sizeof(lookup->host), "%s", host);
    lookup->family = families[xccl_param_int(XCCL_P_SOCKET_FAMILY) % 3];
    /* Relaxed: the thread is not there yet. */
    atomic_store_explicit(&lookup->holders, 2, memory_order_relaxed);
    rc = lookup_start(lookup, &thread);
    if (rc) {
        xccl_free(lookup);
        return rc;
    }
    if (lookup_wait(lookup, limit)) {
        pthread_join(thread, NULL);
        rc = answered(text, lookup, addr_out);
    } else {
        pthread_detach(thread);
        rc = not_answered(text, limit, from_ns);
    }
    lookup_put(lookup);
    return rc;
}

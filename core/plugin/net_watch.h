/* SPDX-License-Identifier: BSD-3-Clause */
/* Who is inside a plugin, for somebody who looks from outside: a word that the caller sets before
 * each call and clears afterwards. A call that is still the same one at several looks does not come
 * back, and its plugin and entry have a name. Costs two plain stores a call.
 *
 * Limits: one thread at a time is told of, the crank's holder or the one that opens and closes.
 * Thread: enter and leave that one; look any. */
#ifndef XCCL_PLUGIN_NET_WATCH_H
#define XCCL_PLUGIN_NET_WATCH_H

#include <stdatomic.h>
#include <stdint.h>

enum xccl_net_entry {
    XCCL_NET_OUTSIDE,
    XCCL_NET_INIT,
    XCCL_NET_FINALIZE,
    XCCL_NET_DEVICES,
    XCCL_NET_PROPERTIES,
    XCCL_NET_MERGE,
    XCCL_NET_LISTEN,
    XCCL_NET_CONNECT,
    XCCL_NET_ACCEPT,
    XCCL_NET_REG_MR,
    XCCL_NET_DEREG_MR,
    XCCL_NET_CLOSE,
    XCCL_NET_ISEND, /* from here on no call may take long for any reason */
    XCCL_NET_IRECV,
    XCCL_NET_IFLUSH,
    XCCL_NET_TEST,
    XCCL_NET_PROGRESS,
    XCCL_NET_ENTRY_COUNT
};

struct xccl_net_watch {
    _Atomic uint64_t call; /* number of the call << 16 | position of its item << 8 | entry */
    uint64_t count; /* the caller's */
};

/* item: position in the list of plugins. */
static inline void xccl_net_enter(struct xccl_net_watch *watch, int item, enum xccl_net_entry entry)
{
    /* Relaxed, here and below: a word about time, nothing hangs on it. */
    atomic_store_explicit(&watch->call,
                          ++watch->count << 16 | (uint64_t)(item & 0xff) << 8 | (uint64_t)entry,
                          memory_order_relaxed);
}

static inline void xccl_net_leave(struct xccl_net_watch *watch)
{
    atomic_store_explicit(&watch->call, XCCL_NET_OUTSIDE, memory_order_relaxed);
}

/* 0: nobody is inside. */
static inline uint64_t xccl_net_watch_look(struct xccl_net_watch *watch)
{
    return atomic_load_explicit(&watch->call, memory_order_relaxed);
}

/* The entry's name in xccl_net.h. */
const char *xccl_net_entry_name(enum xccl_net_entry entry);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* What a network plugin counts of a device for its stats entry. Every comm of the device counts,
 * and whoever asks reads: all relaxed, as nothing hangs on these numbers but people.
 *
 * Thread: any. */
#ifndef XCCL_BASE_NET_COUNTERS_H
#define XCCL_BASE_NET_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "xccl_net.h"

struct xccl_net_counters {
    _Atomic uint64_t send_bytes, recv_bytes, send_count, recv_count, busy_count;
};

static inline void xccl_net_count(_Atomic uint64_t *counter, uint64_t value)
{
    atomic_fetch_add_explicit(counter, value, memory_order_relaxed);
}

/* A message that is done. */
static inline void xccl_net_count_message(struct xccl_net_counters *counters, int is_send,
                                          uint64_t bytes)
{
    xccl_net_count(is_send ? &counters->send_bytes : &counters->recv_bytes, bytes);
    xccl_net_count(is_send ? &counters->send_count : &counters->recv_count, 1);
}

static inline void xccl_net_count_busy(struct xccl_net_counters *counters)
{
    xccl_net_count(&counters->busy_count, 1);
}

/* As much as the caller's struct has room for. */
static inline void xccl_net_counters_tell(struct xccl_net_counters *counters,
                                          xcclNetStats_v1 *stats)
{
    xcclNetStats_v1 all = {
        .size = stats->size,
        .sendBytes = atomic_load_explicit(&counters->send_bytes, memory_order_relaxed),
        .recvBytes = atomic_load_explicit(&counters->recv_bytes, memory_order_relaxed),
        .sendCount = atomic_load_explicit(&counters->send_count, memory_order_relaxed),
        .recvCount = atomic_load_explicit(&counters->recv_count, memory_order_relaxed),
        .busyCount = atomic_load_explicit(&counters->busy_count, memory_order_relaxed)};

    memcpy(stats, &all, stats->size < sizeof(all) ? stats->size : sizeof(all));
}

#endif

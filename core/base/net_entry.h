/* SPDX-License-Identifier: BSD-3-Clause */
/* What entries of network plugins have in common: numbers of devices, structs of which the caller
 * may have room for less, counters for stats.
 *
 * Thread: any. */
#ifndef XCCL_BASE_NET_ENTRY_H
#define XCCL_BASE_NET_ENTRY_H

#include <stdatomic.h>
#include <stdint.h>

#include "xccl_net.h"

/* Every comm of a device counts, and whoever asks reads: all relaxed, as nothing hangs on these
 * numbers but people. */
struct xccl_net_counters {
    _Atomic uint64_t send_bytes, recv_bytes, send_count, recv_count, busy_count;
    _Atomic uint64_t failover_count, recovery_count;
};

/* A message that is done. */
static inline void xccl_net_count_message(struct xccl_net_counters *counters, int is_send,
                                          uint64_t bytes)
{
    atomic_fetch_add_explicit(is_send ? &counters->send_bytes : &counters->recv_bytes, bytes,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(is_send ? &counters->send_count : &counters->recv_count, 1,
                              memory_order_relaxed);
}

static inline void xccl_net_count_busy(struct xccl_net_counters *counters)
{
    atomic_fetch_add_explicit(&counters->busy_count, 1, memory_order_relaxed);
}

static inline void xccl_net_count_failover(struct xccl_net_counters *counters)
{
    atomic_fetch_add_explicit(&counters->failover_count, 1, memory_order_relaxed);
}

static inline void xccl_net_count_recovery(struct xccl_net_counters *counters)
{
    atomic_fetch_add_explicit(&counters->recovery_count, 1, memory_order_relaxed);
}

/* The same where one thread at a time writes the counters, as those of a comm: no locked
 * instruction. Relaxed: as above. */
static inline void xccl_net_count_own(_Atomic uint64_t *counter, uint64_t more)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
                          memory_order_relaxed);
}

static inline void xccl_net_count_own_message(struct xccl_net_counters *counters, int is_send,
                                              uint64_t bytes)
{
    xccl_net_count_own(is_send ? &counters->send_bytes : &counters->recv_bytes, bytes);
    xccl_net_count_own(is_send ? &counters->send_count : &counters->recv_count, 1);
}

/* Adds part to sum, which nobody else writes meanwhile. */
void xccl_net_counters_add(struct xccl_net_counters *sum, const struct xccl_net_counters *part);

/* 1: there is such a device. 0: an error that says so. */
int xccl_net_has_device(int dev, int count);
/* 1: these are 1 to `most` of device_count devices, none named twice. 0: an error that says so. */
int xccl_net_may_merge(const int *devs, int count, int most, int device_count);
/* As much as the caller's struct has room for; its size stays what the caller said. */
void xccl_net_tell_properties(const xcclNetProperties_v1 *all, xcclNetProperties_v1 *props);
void xccl_net_tell_stats(const struct xccl_net_counters *counters, xcclNetStats_v1 *stats);
/* For the table: the text of the thread's last error. */
const char *xccl_net_last_error(xcclNetContext_t ctx);

#endif

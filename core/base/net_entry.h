/* SPDX-License-Identifier: BSD-3-Clause */
/* What entries of network plugins have in common: numbers of devices, structs of which the caller
 * may have room for less, counters for stats.
 *
 * Thread: any. */
#ifndef XCCL_BASE_NET_ENTRY_H
#define XCCL_BASE_NET_ENTRY_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/netaddr.h"
#include "xccl_net.h"

/* What one comm has counted. One thread at a time writes it, so no instruction is locked, and
 * whoever asks for stats reads it: all relaxed, as nothing hangs on these numbers but people. */
struct xccl_net_counters {
    _Atomic uint64_t send_bytes, recv_bytes, send_count, recv_count, busy_count;
    _Atomic uint64_t failover_count, recovery_count, resend_count;
    struct xccl_net_counters *next, **place; /* in the tally; NULL: in none */
};

/* The comms that count for a device, and what those had counted that have left. Zeroes are an empty
 * one. */
struct xccl_net_tally {
    struct xccl_net_counters *open;
    struct xccl_net_counters left;
};

static inline void xccl_net_count(_Atomic uint64_t *counter, uint64_t more)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
                          memory_order_relaxed);
}

/* A message that is done. */
static inline void xccl_net_count_message(struct xccl_net_counters *counters, int is_send,
                                          uint64_t bytes)
{
    xccl_net_count(is_send ? &counters->send_bytes : &counters->recv_bytes, bytes);
    xccl_net_count(is_send ? &counters->send_count : &counters->recv_count, 1);
}

/* When a comm is made, and when nothing more is counted for it; what never joined may leave. */
void xccl_net_tally_join(struct xccl_net_tally *tally, struct xccl_net_counters *counters);
void xccl_net_tally_leave(struct xccl_net_tally *tally, struct xccl_net_counters *counters);

/* 1: the ranks have met at *addr_out, an address of this host with port 0. */
int xccl_net_met(const xcclNetInit_v1 *init, struct xccl_addr *addr_out);
/* The protection that the caller asks for, XCCL_NET_ENCRYPT_*; the setting, if it asks for none. */
int xccl_net_encrypt(const xcclNetInit_v1 *init);
/* Error of init, for plugins that cannot protect payload, if the caller asks for protection. */
xcclResult_t xccl_net_encrypts_not(const xcclNetInit_v1 *init, const char *plugin);
/* 1: there is such a device. 0: an error that says so. */
int xccl_net_has_device(int dev, int count);
/* 1: these are 1 to `most` of device_count devices, none named twice. 0: an error that says so. */
int xccl_net_may_merge(const int *devs, int count, int most, int device_count);
/* As much as the caller's struct has room for; its size stays what the caller said. */
void xccl_net_tell_properties(const xcclNetProperties_v1 *all, xcclNetProperties_v1 *props);
void xccl_net_tell_error(const xcclNetError_v1 *all, xcclNetError_v1 *error);
void xccl_net_tell_stats(const struct xccl_net_tally *tally, xcclNetStats_v1 *stats);
/* For the table: the text of the thread's last error. */
const char *xccl_net_last_error(xcclNetContext_t ctx);

#endif

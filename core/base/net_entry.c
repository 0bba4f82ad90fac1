/* SPDX-License-Identifier: BSD-3-Clause */
/* Answers that every network plugin gives alike; the header says what they are. Nothing is kept
 * here, and an entry that uses these stays good for callers of older and newer headers.
 *
 * Thread: any. */
#include "base/net_entry.h"

#include <string.h>

#include "base/error.h"

int xccl_net_has_device(int dev, int count)
{
    if (dev >= 0 && dev < count)
        return 1;
    xccl_fail_quietly(xcclInvalidArgument, 0, NULL, "device %d of %d", dev, count);
    return 0;
}

int xccl_net_may_merge(const int *devs, int count, int most, int device_count)
{
    if (count < 1 || count > most) {
        xccl_fail_quietly(xcclInvalidArgument, 0, NULL, "%d devices to be merged, 1 to %d can be",
                          count, most);
        return 0;
    }
    for (int i = 0; i < count; i++) {
        if (!xccl_net_has_device(devs[i], device_count))
            return 0;
        for (int k = 0; k < i; k++) {
            if (devs[k] != devs[i])
                continue;
            xccl_fail_quietly(xcclInvalidArgument, 0, NULL, "device %d is named twice", devs[i]);
            return 0;
        }
    }
    return 1;
}

static void tell(const void *all, size_t bytes, void *out, size_t room)
{
    memcpy(out, all, room < bytes ? room : bytes);
}

void xccl_net_tell_properties(const xcclNetProperties_v1 *all, xcclNetProperties_v1 *props)
{
    xcclNetProperties_v1 full = *all;

    full.size = props->size;
    tell(&full, sizeof(full), props, props->size);
}

void xccl_net_tell_stats(const struct xccl_net_counters *counters, xcclNetStats_v1 *stats)
{
    const xcclNetStats_v1 full = {
        .size = stats->size,
        .sendBytes = atomic_load_explicit(&counters->send_bytes, memory_order_relaxed),
        .recvBytes = atomic_load_explicit(&counters->recv_bytes, memory_order_relaxed),
        .sendCount = atomic_load_explicit(&counters->send_count, memory_order_relaxed),
        .recvCount = atomic_load_explicit(&counters->recv_count, memory_order_relaxed),
        .busyCount = atomic_load_explicit(&counters->busy_count, memory_order_relaxed),
        .failoverCount = atomic_load_explicit(&counters->failover_count, memory_order_relaxed),
        .recoveryCount = atomic_load_explicit(&counters->recovery_count, memory_order_relaxed)};

    tell(&full, sizeof(full), stats, stats->size);
}

static void add(_Atomic uint64_t *sum, const _Atomic uint64_t *part)
{
    /* Relaxed: as in the header. */
    xccl_net_count_own(sum, atomic_load_explicit(part, memory_order_relaxed));
}

void xccl_net_counters_add(struct xccl_net_counters *sum, const struct xccl_net_counters *part)
{
    add(&sum->send_bytes, &part->send_bytes);
    add(&sum->recv_bytes, &part->recv_bytes);
    add(&sum->send_count, &part->send_count);
    add(&sum->recv_count, &part->recv_count);
    add(&sum->busy_count, &part->busy_count);
    add(&sum->failover_count, &part->failover_count);
    add(&sum->recovery_count, &part->recovery_count);
}

const char *xccl_net_last_error(xcclNetContext_t ctx)
{
    (void)ctx;
    return xccl_error_text();
}

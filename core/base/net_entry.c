/* SPDX-License-Identifier: BSD-3-Clause */
/* Answers that every network plugin gives alike; the header says what they are. An entry that uses
 * these stays good for callers of older and newer headers.
 *
 * Thread: any. */
#include "base/net_entry.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/param.h"

/* Guards the lists of all tallies, and the places of all counters in them, which those beside a
 * counter write: comms come and go seldom. */
static pthread_mutex_t tally_lock = PTHREAD_MUTEX_INITIALIZER;

int xccl_net_has_device(int dev, int count)
{
    if (dev >= 0 && dev < count)
        return 1;
    xccl_fail_quietly(xcclInvalidArgument, 0, NULL,
                      "device %d does not exist: there are %d devices", dev, count);
    return 0;
}

int xccl_net_may_merge(const int *devs, int count, int most, int device_count)
{
    if (count < 1 || count > most) {
        xccl_fail_quietly(xcclInvalidArgument, 0, NULL,
                          "cannot merge %d devices: 1 to %d are possible", count, most);
        return 0;
    }
    for (int i = 0; i < count; i++) {
        if (!xccl_net_has_device(devs[i], device_count))
            return 0;
        for (int k = 0; k < i; k++) {
            if (devs[k] != devs[i])
                continue;
            xccl_fail_quietly(xcclInvalidArgument, 0, NULL, "device %d is listed twice", devs[i]);
            return 0;
        }
    }
    return 1;
}

int xccl_net_met(const xcclNetInit_v1 *init, struct xccl_addr *addr_out)
{
    char text[XCCL_ADDR_TEXT_BYTES];

    if (init->size < offsetof(xcclNetInit_v1, metAddress) + sizeof(init->metAddress) ||
        !init->metAddress)
        return 0;
    snprintf(text, sizeof(text), strchr(init->metAddress, ':') ? "[%.70s]:1" : "%.70s:1",
             init->metAddress);
    if (xccl_addr_parse(text, 0, addr_out) != xcclSuccess)
        return 0;
    xccl_addr_set_port(addr_out, 0);
    return 1;
}

int xccl_net_encrypt(const xcclNetInit_v1 *init)
{
    if (init->size >= offsetof(xcclNetInit_v1, encrypt) + sizeof(init->encrypt) && init->encrypt)
        return init->encrypt;
    return (int)xccl_param_int(XCCL_P_NET_ENCRYPT); /* its words are in the order of the numbers */
}

xcclResult_t xccl_net_encrypts_not(const xcclNetInit_v1 *init, const char *plugin)
{
    int asked = xccl_net_encrypt(init);

    if (asked == XCCL_NET_ENCRYPT_NONE)
        return xcclSuccess;
    return xccl_fail_quietly(xcclInvalidUsage, 0,
                             "use XCCL_NET_PLUGIN=socket, or XCCL_NET_ENCRYPT=0",
                             "XCCL_NET_ENCRYPT=%s is set, and the %s plugin can neither encrypt "
                             "nor authenticate what it sends",
                             asked == XCCL_NET_ENCRYPT_MAC ? "mac" : "1", plugin);
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

void xccl_net_tell_error(const xcclNetError_v1 *all, xcclNetError_v1 *error)
{
    xcclNetError_v1 full = *all;

    full.size = error->size;
    tell(&full, sizeof(full), error, error->size);
}

static uint64_t counted(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed); /* as in the header */
}

static void add(struct xccl_net_counters *sum, const struct xccl_net_counters *part)
{
    xccl_net_count(&sum->send_bytes, counted(&part->send_bytes));
    xccl_net_count(&sum->recv_bytes, counted(&part->recv_bytes));
    xccl_net_count(&sum->send_count, counted(&part->send_count));
    xccl_net_count(&sum->recv_count, counted(&part->recv_count));
    xccl_net_count(&sum->busy_count, counted(&part->busy_count));
    xccl_net_count(&sum->failover_count, counted(&part->failover_count));
    xccl_net_count(&sum->recovery_count, counted(&part->recovery_count));
    xccl_net_count(&sum->resend_count, counted(&part->resend_count));
}

void xccl_net_tally_join(struct xccl_net_tally *tally, struct xccl_net_counters *counters)
{
    pthread_mutex_lock(&tally_lock);
    counters->next = tally->open;
    counters->place = &tally->open;
    if (tally->open)
        tally->open->place = &counters->next;
    tally->open = counters;
    pthread_mutex_unlock(&tally_lock);
}

void xccl_net_tally_leave(struct xccl_net_tally *tally, struct xccl_net_counters *counters)
{
    pthread_mutex_lock(&tally_lock);
    if (counters->place) {
        *counters->place = counters->next;
        if (counters->next)
            counters->next->place = counters->place;
        counters->place = NULL;
        add(&tally->left, counters);
    }
    pthread_mutex_unlock(&tally_lock);
}

void xccl_net_tell_stats(const struct xccl_net_tally *tally, xcclNetStats_v1 *stats)
{
    struct xccl_net_counters sum = {0};
    xcclNetStats_v1 full = {.size = stats->size};

    pthread_mutex_lock(&tally_lock);
    add(&sum, &tally->left);
    for (const struct xccl_net_counters *at = tally->open; at; at = at->next)
        add(&sum, at);
    pthread_mutex_unlock(&tally_lock);
    full.sendBytes = counted(&sum.send_bytes);
    full.recvBytes = counted(&sum.recv_bytes);
    full.sendCount = counted(&sum.send_count);
    full.recvCount = counted(&sum.recv_count);
    full.busyCount = counted(&sum.busy_count);
    full.failoverCount = counted(&sum.failover_count);
    full.recoveryCount = counted(&sum.recovery_count);
    full.resendCount = counted(&sum.resend_count);
    tell(&full, sizeof(full), stats, stats->size);
}

const char *xccl_net_last_error(xcclNetContext_t ctx)
{
    (void)ctx;
    return xccl_error_text();
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Which device of a plugin's instance a connection uses. There are two kinds: NEAR devices, whose
 * property sameHost is 1, reach ranks of the same network namespace only, FAR ones all ranks.
 *
 *   two ranks of one namespace that both have a NEAR device    NEAR
 *   any others that both have a FAR device                     FAR
 *   the rest                                                   cannot talk
 *
 * Both ends come to the same kind, since they ask with the same facts. Of NEAR devices each uses
 * its first; which of the FAR ones, or which several merged into one, is topo/card_share.h's,
 * whatever the other end has. So a plugin connects any FAR device to any, as between hosts whose
 * devices differ anyway.
 *
 * Limits: XCCL_NET_DEVICES_MAX devices are looked at. Thread: any; all but the asking is pure. */
#ifndef XCCL_PLUGIN_NET_DEVICE_H
#define XCCL_PLUGIN_NET_DEVICE_H

#include <stdint.h>

#include "topo/card_share.h"
#include "xccl_net.h"

#define XCCL_NET_DEVICES_MAX 64
#define XCCL_NET_NO_DEVICE   (-1)

enum xccl_net_kind { XCCL_NET_NEAR, XCCL_NET_FAR, XCCL_NET_KINDS, XCCL_NET_NO_KIND };

/* What of a device counts here. */
struct xccl_net_device {
    int number; /* XCCL_NET_NO_DEVICE: there is none */
    const char *name; /* the instance's */
    const char *path; /* of the card in sysfs, the instance's; NULL: not known */
    int same_host, needs_progress;
    int is_met; /* the interface by which the ranks have met */
    int is_unproven; /* it may not reach all hosts, and nothing else does it in its place */
    int member_count; /* of a merged one, else 0 */
    uint32_t speed_mbps; /* 0: not known */
    uint32_t ptr_support;
};

/* The first of each kind. */
void xccl_net_devices_first(const struct xccl_net_device *devices, int count,
                            struct xccl_net_device first_out[XCCL_NET_KINDS]);
/* A bit for each kind that there is, as ranks tell each other. */
uint32_t xccl_net_kinds(const struct xccl_net_device first[XCCL_NET_KINDS]);
/* The rule above; same_place 1: both are known to be in one network namespace. The same for (a, b)
 * and (b, a). XCCL_NET_NO_KIND: they cannot talk. */
enum xccl_net_kind xccl_net_kind_for(uint32_t a_kinds, uint32_t b_kinds, int same_place);

/* The cards among a plugin's devices: their positions there. each: as the user has set how many a
 * rank uses; 0: not at all, then those that may not reach all hosts are left out; above 1 devices
 * of unknown speed are equal to all. Returns how many. */
int xccl_net_devices_cards(const struct xccl_net_device *devices, int count, int each,
                           int places_out[XCCL_CARDS_MAX]);
struct xccl_net;
/* Asks the instance for one device's properties. */
xcclResult_t xccl_net_device_ask(struct xccl_net *net, int number,
                                 struct xccl_net_device *device_out);
/* Asks the instance for the properties of all devices, up to XCCL_NET_DEVICES_MAX. */
xcclResult_t xccl_net_devices_ask(struct xccl_net *net,
                                  struct xccl_net_device devices_out[XCCL_NET_DEVICES_MAX],
                                  int *count_out);

#endif

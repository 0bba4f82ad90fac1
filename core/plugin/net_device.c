/* SPDX-License-Identifier: BSD-3-Clause */
/* The kinds of devices, the choice between them, and which of them can act as one. The properties
 * come from a plugin, so no number in them is trusted to be in a range. Thread: any. */
#include "plugin/net_device.h"

#include "base/error.h"
#include "plugin/net_plugin.h"

static uint32_t bit_of(enum xccl_net_kind kind)
{
    return 1u << kind;
}

static enum xccl_net_kind kind_of(const struct xccl_net_device *device)
{
    return device->same_host ? XCCL_NET_NEAR : XCCL_NET_FAR;
}

void xccl_net_devices_first(const struct xccl_net_device *devices, int count,
                            struct xccl_net_device first_out[XCCL_NET_KINDS])
{
    for (int kind = 0; kind < XCCL_NET_KINDS; kind++)
        first_out[kind] = (struct xccl_net_device){.number = XCCL_NET_NO_DEVICE};
    for (int i = 0; i < count; i++) {
        struct xccl_net_device *first = &first_out[kind_of(&devices[i])];

        if (first->number == XCCL_NET_NO_DEVICE)
            *first = devices[i];
    }
}

uint32_t xccl_net_kinds(const struct xccl_net_device first[XCCL_NET_KINDS])
{
    uint32_t kinds = 0;

    for (int kind = 0; kind < XCCL_NET_KINDS; kind++) {
        if (first[kind].number != XCCL_NET_NO_DEVICE)
            kinds |= bit_of((enum xccl_net_kind)kind);
    }
    return kinds;
}

enum xccl_net_kind xccl_net_kind_for(uint32_t a_kinds, uint32_t b_kinds, int same_place)
{
    uint32_t common = a_kinds & b_kinds;

    if (same_place && common & bit_of(XCCL_NET_NEAR))
        return XCCL_NET_NEAR;
    if (common & bit_of(XCCL_NET_FAR))
        return XCCL_NET_FAR;
    return XCCL_NET_NO_KIND;
}

static int is_card(const struct xccl_net_device *device)
{
    return !device->same_host && device->member_count == 0;
}

/* The one that all others must be equal to; NULL: there is none. */
static const struct xccl_net_device *model_of(const struct xccl_net_device *devices, int count)
{
    const struct xccl_net_device *model = NULL;

    for (int i = 0; i < count; i++) {
        if (!is_card(&devices[i]))
            continue;
        if (devices[i].is_met)
            return &devices[i];
        if (!model || (!devices[i].is_unproven &&
                       (model->is_unproven || devices[i].speed_mbps > model->speed_mbps)))
            model = &devices[i];
    }
    return model;
}

int xccl_net_devices_cards(const struct xccl_net_device *devices, int count, int each,
                           int places_out[XCCL_CARDS_MAX])
{
    const struct xccl_net_device *model = model_of(devices, count);
    uint32_t speed;
    int found = 0;

    if (!model)
        return 0;
    speed = model->speed_mbps;
    for (int i = 0; i < count && found < XCCL_CARDS_MAX; i++) {
        const struct xccl_net_device *device = &devices[i];

        if (!is_card(device) || device->ptr_support != model->ptr_support ||
            (device->is_unproven && device != model && !each))
            continue;
        if (device == model || (speed && device->speed_mbps == speed) ||
            (each > 1 && (!speed || !device->speed_mbps))) {
            places_out[found++] = i;
            if (!speed)
                speed = device->speed_mbps;
        }
    }
    return found;
}

xcclResult_t xccl_net_device_ask(struct xccl_net *net, int number,
                                 struct xccl_net_device *device_out)
{
    xcclNetProperties_v1 props = {.size = sizeof(props)};
    xcclResult_t rc;

    xccl_net_enter(net->watch, net->position, XCCL_NET_PROPERTIES);
    rc = net->calls.properties(net->ctx, number, &props);
    xccl_net_leave(net->watch);
    if (rc != xcclSuccess)
        return xccl_fail(rc, 0, NULL, "network plugin %s does not describe its device %d: %.300s",
                         net->calls.name, number, net->calls.lastError(net->ctx));
    *device_out = (struct xccl_net_device){
        .number = number,
        .name = props.name ? props.name : "without a name",
        .path = props.pciPath,
        .is_met = (props.flags & XCCL_NET_DEVICE_MET) != 0,
        .is_unproven = (props.flags & XCCL_NET_DEVICE_UNPROVEN) != 0,
        .same_host = props.sameHost != 0,
        .needs_progress = props.needsProgress != 0,
        .member_count = props.memberCount,
        .speed_mbps = props.speedMbps,
        .ptr_support = props.ptrSupport};
    return xcclSuccess;
}

xcclResult_t xccl_net_devices_ask(struct xccl_net *net,
                                  struct xccl_net_device devices_out[XCCL_NET_DEVICES_MAX],
                                  int *count_out)
{
    int count = net->device_count;
    xcclResult_t rc = xcclSuccess;

    if (count > XCCL_NET_DEVICES_MAX)
        count = XCCL_NET_DEVICES_MAX;
    for (int i = 0; i < count && rc == xcclSuccess; i++)
        rc = xccl_net_device_ask(net, i, &devices_out[i]);
    if (rc == xcclSuccess)
        *count_out = count;
    return rc;
}

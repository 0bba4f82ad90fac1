/* SPDX-License-Identifier: BSD-3-Clause */
/* Which of a port's GIDs a connection uses, and whether two ends can talk by theirs. The table is
 * read anew for each connection, for addresses come and go. Thread: any. */
#include "ib_int.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/param.h"
#include "base/sysfs.h"

#define TABLE_MAX 256 /* entries looked at */

/* Kernels without the attribute know no RoCE v2. */
static enum ib_gid_type type_read(const struct ib_device *device, int idx)
{
    char path[160], text[32];

    snprintf(path, sizeof(path), "/sys/class/infiniband/%.63s/ports/%d/gid_attrs/types/%d",
             device->card, device->port, idx);
    xccl_sysfs_line(path, text, sizeof(text));
    return strncmp(text, "RoCE v2", 7) == 0 ? IB_GID_ROCE2 : IB_GID_ROCE1;
}

static void entry_take(const struct ib_device *device, int idx, const union ibv_gid *gid,
                       struct ib_port *port)
{
    port->gid_idx = idx;
    port->gid = *gid;
    port->gid_type = device->attr.link_layer == IBV_LINK_LAYER_ETHERNET ? type_read(device, idx)
                                                                        : IB_GID_IB;
}

static xcclResult_t take_named(const struct ib_ctx *ctx, const struct ib_device *device, int idx,
                               struct ib_port *port)
{
    union ibv_gid gid;

    if (ctx->verbs->query_gid(device->context, (uint8_t)device->port, idx, &gid))
        return xccl_fail_quietly(xcclInvalidArgument, 0,
                                 "check XCCL_IB_GID_INDEX; ibv_devinfo -v lists the GIDs",
                                 "%s has no GID %d", device->name, idx);
    entry_take(device, idx, &gid, port);
    return xcclSuccess;
}

static xcclResult_t rule_read(struct ib_gid_rule *rule_out)
{
    const char *range = xccl_param_string(XCCL_P_IB_ADDR_RANGE);

    if (ib_gid_rule_make((enum ib_family)xccl_param_int(XCCL_P_IB_ADDR_FAMILY), range, rule_out))
        return xcclSuccess;
    return xccl_fail_quietly(
        xcclInvalidArgument, 0, "write ADDRESS/BITS, as 10.0.0.0/8 or fd00::/16",
        "XCCL_IB_ADDR_RANGE is '%.60s', which is not a range of addresses", range);
}

static xcclResult_t tell_none(const struct ib_device *device, int refused)
{
    if (refused)
        return xccl_fail_quietly(
            xcclInvalidUsage, 0,
            "check XCCL_IB_ADDR_FAMILY and XCCL_IB_ADDR_RANGE; ibv_devinfo -v lists the GIDs",
            "the settings allow none of the GIDs of %s", device->name);
    return xccl_fail_quietly(xcclSystemError, 0, "give its network interface an address",
                             "%s has no GID that can be used", device->name);
}

static void tell_choice(const struct ib_ctx *ctx, const struct ib_port *port)
{
    static const char *const types[] = {
        [IB_GID_IB] = "InfiniBand", [IB_GID_ROCE1] = "RoCE v1", [IB_GID_ROCE2] = "RoCE v2"};
    char gid[IB_GID_TEXT_BYTES], line[512];

    if (!ctx->log)
        return;
    ib_gid_format(port->gid.raw, gid);
    snprintf(line, sizeof(line), "%s takes GID %d, %s, %s", port->device->name, port->gid_idx, gid,
             types[port->gid_type]);
    ctx->log(xcclNetLogDebug, line);
}

static xcclResult_t choose(const struct ib_ctx *ctx, struct ib_port *port)
{
    const struct ib_device *device = port->device;
    int named = (int)xccl_param_int(XCCL_P_IB_GID_INDEX), best = -1, refused = 0;
    int count = device->attr.gid_tbl_len < TABLE_MAX ? device->attr.gid_tbl_len : TABLE_MAX;
    struct ib_gid_rule rule;
    xcclResult_t rc;

    if (named >= 0 || device->attr.link_layer != IBV_LINK_LAYER_ETHERNET)
        return take_named(ctx, device, named >= 0 ? named : 0, port);
    rc = rule_read(&rule);
    if (rc != xcclSuccess)
        return rc;
    for (int i = 0; i < count; i++) {
        union ibv_gid gid;
        int score;

        if (ctx->verbs->query_gid(device->context, (uint8_t)device->port, i, &gid) ||
            ib_gid_score(gid.raw, IB_GID_ROCE1) < 0)
            continue;
        if (!ib_gid_allowed(gid.raw, &rule)) {
            refused = 1;
            continue;
        }
        score = ib_gid_score(gid.raw, type_read(device, i));
        if (score <= best)
            continue;
        best = score;
        entry_take(device, i, &gid, port);
    }
    return best >= 0 ? xcclSuccess : tell_none(device, refused);
}

xcclResult_t ib_gid_choose(const struct ib_ctx *ctx, struct ib_port *port)
{
    xcclResult_t rc = choose(ctx, port);

    if (rc == xcclSuccess)
        tell_choice(ctx, port);
    return rc;
}

/* How many bits of the port's address name its subnet, as its interface says; 0: it does not. */
static int prefix_of(const struct ib_port *port)
{
    struct ifaddrs *list = NULL;
    int is_ipv4 = ib_gid_is_ipv4(port->gid.raw), bits = 0;

    if (port->gid_type == IB_GID_IB)
        return 64;
    if (getifaddrs(&list))
        return 0;
    for (const struct ifaddrs *at = list; at && !bits; at = at->ifa_next) {
        const uint8_t *addr, *mask;
        int bytes = is_ipv4 ? 4 : 16;

        if (!at->ifa_addr || !at->ifa_netmask ||
            at->ifa_addr->sa_family != (is_ipv4 ? AF_INET : AF_INET6))
            continue;
        addr = is_ipv4 ? (const uint8_t *)&((struct sockaddr_in *)at->ifa_addr)->sin_addr
                       : ((struct sockaddr_in6 *)at->ifa_addr)->sin6_addr.s6_addr;
        mask = is_ipv4 ? (const uint8_t *)&((struct sockaddr_in *)at->ifa_netmask)->sin_addr
                       : ((struct sockaddr_in6 *)at->ifa_netmask)->sin6_addr.s6_addr;
        if (memcmp(addr, port->gid.raw + 16 - bytes, (size_t)bytes) != 0)
            continue;
        for (int i = 0; i < bytes; i++)
            bits += __builtin_popcount(mask[i]);
        bits += 8 * (16 - bytes);
    }
    freeifaddrs(list);
    return bits;
}

void ib_gid_tell(const struct ib_port *port, struct ib_port_info *info_out)
{
    const struct ib_device *device = port->device;

    memcpy(info_out->gid, port->gid.raw, sizeof(info_out->gid));
    info_out->lid = device->attr.lid;
    info_out->link_layer = device->attr.link_layer;
    info_out->mtu = port->is_left_out ? IB_MTU_NONE : (uint8_t)device->attr.active_mtu;
    info_out->gid_type = (uint8_t)port->gid_type;
    info_out->prefix = (uint8_t)prefix_of(port);
    snprintf(info_out->name, sizeof(info_out->name), "%.23s", device->name);
}

/* The first one that is there. */
static const struct ib_port_info *port_of(const struct ib_block *block)
{
    for (uint32_t i = 0; i < block->ports; i++) {
        if (block->port[i].mtu != IB_MTU_NONE)
            return &block->port[i];
    }
    return &block->port[0];
}

xcclResult_t ib_reach_refuse(const struct ib_block *here, const struct ib_block *there)
{
    const struct ib_port_info *port = port_of(here), *peer = port_of(there);
    const char *why = ib_reach_obstacle(port, peer);
    char gid[IB_GID_TEXT_BYTES], peer_gid[IB_GID_TEXT_BYTES];

    ib_gid_format(port->gid, gid);
    ib_gid_format(peer->gid, peer_gid);
    return xccl_fail_quietly(
        xcclInvalidUsage, 0,
        "choose matching ports and GIDs with XCCL_IB_HCA and XCCL_IB_GID_INDEX",
        "%s with GID %s cannot communicate with %s of the peer with GID %s: %s", port->name, gid,
        peer->name, peer_gid, why ? why : "the peer found no path");
}

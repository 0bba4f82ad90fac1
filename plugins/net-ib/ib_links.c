/* SPDX-License-Identifier: BSD-3-Clause */
/* Which ports of two ends talk to each other. The receiver decides, by what both have said; nothing
 * of this asks hardware. Thread: any. */
#include "ib_choice.h"
#include "ib_wire.h"

#define MTU_MIN 1 /* as verbs number them: 256 bytes, */
#define MTU_MAX 5 /* 4096 */

const char *ib_reach_obstacle(const struct ib_port_info *a, const struct ib_port_info *b)
{
    if (a->link_layer != b->link_layer)
        return "one is InfiniBand, the other is Ethernet";
    if (a->gid_type != b->gid_type)
        return "one is RoCE v1, the other is RoCE v2";
    if (a->gid_type != IB_GID_IB && ib_gid_is_ipv4(a->gid) != ib_gid_is_ipv4(b->gid))
        return "one is an IPv4 address, the other is an IPv6 address";
    if (a->mtu == IB_MTU_NONE || b->mtu == IB_MTU_NONE)
        return "one is left out";
    if (a->mtu < MTU_MIN || a->mtu > MTU_MAX || b->mtu < MTU_MIN || b->mtu > MTU_MAX)
        return "an MTU is not known";
    return NULL;
}

/* Where an end does not know its subnet, everything is in it. */
static int same_subnet(const struct ib_port_info *a, const struct ib_port_info *b)
{
    int bits = a->prefix < b->prefix ? a->prefix : b->prefix;

    for (int i = 0; i < 16 && bits > 0; i++, bits -= 8) {
        uint32_t mask = bits >= 8 ? 0xff : 0xffu << (8 - bits);

        if ((a->gid[i] ^ b->gid[i]) & 0xff & mask)
            return 0;
    }
    return 1;
}

/* The ports of both ends: how many links each has. */
struct ends {
    const struct ib_block *wide, *narrow;
    uint32_t wide_used[IB_PORTS_MAX], narrow_used[IB_PORTS_MAX];
};

/* The partner that has fewest links; -1: none. */
static int partner_of(const struct ends *ends, uint32_t wide, int near)
{
    const struct ib_port_info *port = &ends->wide->port[wide];
    int best = -1;

    for (uint32_t i = 0; i < ends->narrow->ports; i++) {
        if (ib_reach_obstacle(port, &ends->narrow->port[i]) ||
            (near && !same_subnet(port, &ends->narrow->port[i])))
            continue;
        if (best < 0 || ends->narrow_used[i] < ends->narrow_used[best])
            best = (int)i;
    }
    return best;
}

static uint32_t take(struct ends *ends, int near, int shared, uint32_t have,
                     struct ib_link links_out[IB_PORTS_MAX])
{
    for (uint32_t i = 0; i < ends->wide->ports; i++) {
        int partner = ends->wide_used[i] ? -1 : partner_of(ends, i, near);

        if (partner < 0 || (!shared && ends->narrow_used[partner]))
            continue;
        links_out[have].receiver = (uint8_t)i;
        links_out[have++].sender = (uint8_t)partner;
        ends->wide_used[i]++;
        ends->narrow_used[partner]++;
    }
    return have;
}

uint32_t ib_links_choose(const struct ib_block *receiver, const struct ib_block *sender,
                         struct ib_link links_out[IB_PAIRS_MAX])
{
    int swapped = sender->ports > receiver->ports;
    struct ends ends = {.wide = swapped ? sender : receiver, .narrow = swapped ? receiver : sender};
    uint32_t per_link = sender->per_link < receiver->per_link ? sender->per_link
                                                              : receiver->per_link;
    uint32_t near = take(&ends, 1, 1, 0, links_out), count;

    count = take(&ends, 0, near == 0, near, links_out);
    if (count == 0)
        return 0;
    for (uint32_t i = 0; i < count && swapped; i++)
        links_out[i] = (struct ib_link){links_out[i].sender, links_out[i].receiver};
    if (per_link > IB_PAIRS_MAX / count)
        per_link = IB_PAIRS_MAX / count;
    for (uint32_t i = count; i < count * per_link; i++)
        links_out[i] = links_out[i % count];
    return count * per_link;
}

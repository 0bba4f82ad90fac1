/* SPDX-License-Identifier: BSD-3-Clause */
/* Which card of one end talks to which of the other: those whose addresses have the most leading
 * bits in common, for they are in one subnet, and of those alike the first ones. A card that is
 * left over stays idle. Thread: any. */
#include <netinet/in.h>
#include <string.h>

#include "ofi_int.h"

/* Where the host's part of an address is, and how long; 0: one of another kind, all of which is
 * compared. */
static size_t host_part(const uint8_t *name, size_t *at_out)
{
    struct sockaddr_storage addr;

    memcpy(&addr, name, sizeof(addr));
    *at_out = addr.ss_family == AF_INET6 ? offsetof(struct sockaddr_in6, sin6_addr)
                                         : offsetof(struct sockaddr_in, sin_addr);
    if (addr.ss_family == AF_INET6)
        return sizeof(struct in6_addr);
    return addr.ss_family == AF_INET ? sizeof(struct in_addr) : 0;
}

/* Leading bits that are equal. */
static int nearness(const uint8_t *a, const uint8_t *b)
{
    size_t at, other_at, bytes = host_part(a, &at), i = 0;

    if (host_part(b, &other_at) != bytes)
        return 0;
    if (!bytes) {
        at = 0;
        bytes = OFI_ADDRESS_BYTES;
    }
    while (i < bytes && a[at + i] == b[at + i])
        i++;
    if (i == bytes)
        return (int)bytes * 8;
    return (int)i * 8 + __builtin_clz((unsigned)(a[at + i] ^ b[at + i])) - 24;
}

uint32_t ofi_rail_pair(uint32_t own_count, uint8_t (*own)[OFI_ADDRESS_BYTES], uint32_t peer_count,
                       uint8_t (*peers)[OFI_ADDRESS_BYTES], uint32_t own_out[OFI_RAILS_MAX],
                       uint32_t peers_out[OFI_RAILS_MAX])
{
    uint32_t own_taken = 0, peers_taken = 0, count = 0;

    while (count < own_count && count < peer_count) {
        int best = -1;

        for (uint32_t i = 0; i < own_count; i++) {
            for (uint32_t k = 0; k < peer_count; k++) {
                int near = nearness(own[i], peers[k]);

                if (own_taken >> i & 1 || peers_taken >> k & 1 || near <= best)
                    continue;
                best = near;
                own_out[count] = i;
                peers_out[count] = k;
            }
        }
        own_taken |= 1u << own_out[count];
        peers_taken |= 1u << peers_out[count];
        count++;
    }
    return count;
}

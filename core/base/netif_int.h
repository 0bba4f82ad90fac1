/* SPDX-License-Identifier: BSD-3-Clause */
/* How interfaces are chosen, as a pure function over what the host has, for its unit tests.
 * Any thread. */
#ifndef XCCL_BASE_NETIF_INT_H
#define XCCL_BASE_NETIF_INT_H

#include "base/netaddr.h"

/* One address of one interface, in the system's order. */
struct xccl_netif_found {
    char name[16];
    struct xccl_addr addr;
    struct xccl_addr mask; /* of its subnet; bytes 0: not known */
    unsigned flags; /* IFF_UP, IFF_RUNNING */
};

/* Chooses from found, best first, one address an interface; returns how many, at most max. spec is
 * XCCL_SOCKET_IFNAME ("" for none); family is AF_INET, AF_INET6 or AF_UNSPEC for both. Names in
 * spec choose in the order of spec; otherwise ib* come first, and docker*, veth*, virbr*, br-*, and
 * after them lo, are taken only when nothing better is there. */
int xccl_netif_select(const struct xccl_netif_found *found, int found_count, const char *spec,
                      int family, struct xccl_netif *ifs_out, int max);

/* Chooses as xccl_netif_select(). If spec has no names, the interface in the smallest subnet that
 * holds near comes first, with its address there, even if it would not be chosen otherwise.
 * near may be NULL. */
int xccl_netif_select_near(const struct xccl_netif_found *found, int found_count,
                           const struct xccl_addr *near, const char *spec, int family,
                           struct xccl_netif *ifs_out, int max);

#endif

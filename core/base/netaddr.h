/* SPDX-License-Identifier: BSD-3-Clause */
/* Socket addresses: IPv4, IPv6 and abstract Unix names, as text, as bytes on the wire, and the
 * host's own interfaces. Strict parsers: what is not wholly understood is refused. Any thread. */
#ifndef XCCL_BASE_NETADDR_H
#define XCCL_BASE_NETADDR_H

#include <net/if.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "xccl_types.h"

struct xccl_addr {
    socklen_t bytes; /* 0: none */
    union {
        struct sockaddr any;
        struct sockaddr_in in4;
        struct sockaddr_in6 in6;
        struct sockaddr_un un;
    } sa;
};

#define XCCL_ADDR_TEXT_BYTES 80
/* family u8, zero u8, port u16, scope u32, address 16; little endian */
#define XCCL_ADDR_WIRE_BYTES 24

/* "10.0.0.1:4000", "[fe80::1%eth0]:4000", "unix:@name"; text_out always ends with 0. */
void xccl_addr_format(const struct xccl_addr *addr, char text_out[XCCL_ADDR_TEXT_BYTES]);
/* The forms above but unix, and HOSTNAME:PORT through the resolver when resolve is 1; that may take
 * as long as XCCL_TIMEOUT_INIT_S, then it is xcclTimeout (resolve.h).
 * Port 1..65535, whole text used, zone at most 15 bytes; else xcclInvalidArgument saying what is
 * wrong with it; nothing is logged. With resolve 0 nothing but text is looked at, so a zone must be
 * a number then. */
xcclResult_t xccl_addr_parse(const char *text, int resolve, struct xccl_addr *addr_out);
/* The address alone: "10.0.0.1", "fe80::1%3", the zone as a number; "" for others. */
void xccl_addr_format_host(const struct xccl_addr *addr, char text_out[XCCL_ADDR_TEXT_BYTES]);
uint16_t xccl_addr_port(const struct xccl_addr *addr);
void xccl_addr_set_port(struct xccl_addr *addr, uint16_t port);
int xccl_addr_equal(const struct xccl_addr *a, const struct xccl_addr *b);
/* 1: the same IPv4 or IPv6 address, whatever the ports and zones. */
int xccl_addr_same_host(const struct xccl_addr *a, const struct xccl_addr *b);
/* An address that another host told: numbers of zones mean nothing outside their host, so a
 * link-local address gets the zone of here, our own address towards that host. Others stay. */
void xccl_addr_take_zone(struct xccl_addr *addr, const struct xccl_addr *here);

/* IPv4 and IPv6 only. Decode refuses unknown families and non-zero padding. */
void xccl_addr_encode(const struct xccl_addr *addr, uint8_t wire_out[XCCL_ADDR_WIRE_BYTES]);
xcclResult_t xccl_addr_decode(const uint8_t wire[XCCL_ADDR_WIRE_BYTES], struct xccl_addr *addr_out);

struct xccl_netif {
    char name[16];
    struct xccl_addr addr; /* port 0 */
    struct xccl_addr mask; /* of its subnet; bytes 0: not known */
};

/* 1: both are known to be in the subnet of this mask; ports do not count. Link-local addresses with
 * different zones are not. */
int xccl_addr_same_subnet(const struct xccl_addr *a, const struct xccl_addr *b,
                          const struct xccl_addr *mask);

/* The interfaces that XCCL_SOCKET_IFNAME and XCCL_SOCKET_FAMILY choose, best first, at most max,
 * one address each: interfaces that are up; names ib* first; docker*, veth*, virbr* and lo only
 * when nothing else is there. No match is xcclInvalidUsage that lists what there is. */
xcclResult_t xccl_netif_choose(struct xccl_netif *ifs_out, int max, int *count_out);
/* The interfaces for a job that meets at near: those of xccl_netif_choose(), but unless
 * XCCL_SOCKET_IFNAME is set, the interface that has near as its own address comes first, or else
 * the one whose subnet holds it, even loopback. near may be NULL. */
xcclResult_t xccl_netif_choose_near(const struct xccl_addr *near, struct xccl_netif *ifs_out,
                                    int max, int *count_out);
/* The interface of that name with its best address, whatever the settings say. 0: there is none, or
 * it has no address. */
int xccl_netif_named(const char *name, struct xccl_netif *if_out);
/* The name of the interface that has this address, whatever the settings say. 0: there is none. */
int xccl_netif_having(const struct xccl_addr *addr, char name_out[IF_NAMESIZE]);

#endif

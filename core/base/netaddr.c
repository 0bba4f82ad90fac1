/* SPDX-License-Identifier: BSD-3-Clause */
/* Socket addresses as text and as bytes. The parsers are pure: with resolve 0 they look at nothing
 * but their input, so they can be fuzzed; only resolve 1 asks the resolver and the interface table.
 *
 * Limits: host names up to 253 bytes, zones up to 15, abstract Unix names are shown, not parsed.
 * Thread: any; nothing is kept. */
#include "base/netaddr.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/param.h"
#include "base/resolve.h"
#include "base/wire.h"

#define HOST_MAX_BYTES 253
#define ZONE_MAX_BYTES 15
#define ADDR_FORMS     "give A.B.C.D:PORT, [IPV6]:PORT or HOSTNAME:PORT, ports are 1 to 65535"

enum { WIRE_IPV4 = 4, WIRE_IPV6 = 6 };

static xcclResult_t refuse(const char *text, const char *why)
{
    return xccl_fail_quietly(xcclInvalidArgument, 0, ADDR_FORMS, "\"%.64s\" is not an address: %s",
                             text, why);
}

/* Decimal digits only, without a leading zero, from 1 to max. */
static int parse_number(const char *text, uint64_t max, uint64_t *value_out)
{
    uint64_t value = 0;

    if (text[0] == '\0' || text[0] == '0')
        return 0;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return 0;
        value = value * 10 + (uint64_t)(*text - '0');
        if (value > max)
            return 0;
    }
    *value_out = value;
    return 1;
}

static void make_ipv4(const struct in_addr *in4, uint16_t port, struct xccl_addr *addr_out)
{
    memset(addr_out, 0, sizeof(*addr_out));
    addr_out->bytes = sizeof(addr_out->sa.in4);
    addr_out->sa.in4.sin_family = AF_INET;
    addr_out->sa.in4.sin_port = htons(port);
    addr_out->sa.in4.sin_addr = *in4;
}

static void make_ipv6(const struct in6_addr *in6, uint16_t port, uint32_t scope,
                      struct xccl_addr *addr_out)
{
    memset(addr_out, 0, sizeof(*addr_out));
    addr_out->bytes = sizeof(addr_out->sa.in6);
    addr_out->sa.in6.sin6_family = AF_INET6;
    addr_out->sa.in6.sin6_port = htons(port);
    addr_out->sa.in6.sin6_addr = *in6;
    addr_out->sa.in6.sin6_scope_id = scope;
}

/* A name may hold any byte; only printable ones are shown. */
static void format_unix(const struct xccl_addr *addr, char *text_out)
{
    size_t head = offsetof(struct sockaddr_un, sun_path) + 1;
    size_t name_bytes = addr->bytes > head ? addr->bytes - head : 0;
    size_t at = (size_t)snprintf(text_out, XCCL_ADDR_TEXT_BYTES, "unix:@");

    if (name_bytes > sizeof(addr->sa.un.sun_path) - 1)
        name_bytes = sizeof(addr->sa.un.sun_path) - 1;
    for (size_t i = 0; i < name_bytes && at + 1 < XCCL_ADDR_TEXT_BYTES; i++) {
        char byte = addr->sa.un.sun_path[1 + i];

        text_out[at++] = (byte > ' ' && byte <= '~') ? byte : '?';
    }
    text_out[at] = '\0';
}

static void format_ipv6(const struct sockaddr_in6 *in6, char *text_out)
{
    char host[INET6_ADDRSTRLEN] = "?";
    char zone[IF_NAMESIZE];

    inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
    if (in6->sin6_scope_id == 0)
        snprintf(text_out, XCCL_ADDR_TEXT_BYTES, "[%s]:%u", host, ntohs(in6->sin6_port));
    else if (if_indextoname(in6->sin6_scope_id, zone))
        snprintf(text_out, XCCL_ADDR_TEXT_BYTES, "[%s%%%s]:%u", host, zone, ntohs(in6->sin6_port));
    else
        snprintf(text_out, XCCL_ADDR_TEXT_BYTES, "[%s%%%u]:%u", host, in6->sin6_scope_id,
                 ntohs(in6->sin6_port));
}

void xccl_addr_format(const struct xccl_addr *addr, char text_out[XCCL_ADDR_TEXT_BYTES])
{
    char host[INET_ADDRSTRLEN] = "?";

    if (addr->bytes == 0) {
        snprintf(text_out, XCCL_ADDR_TEXT_BYTES, "?");
        return;
    }
    switch (addr->sa.any.sa_family) {
    case AF_INET:
        inet_ntop(AF_INET, &addr->sa.in4.sin_addr, host, sizeof(host));
        snprintf(text_out, XCCL_ADDR_TEXT_BYTES, "%s:%u", host, ntohs(addr->sa.in4.sin_port));
        return;
    case AF_INET6:
        format_ipv6(&addr->sa.in6, text_out);
        return;
    case AF_UNIX:
        format_unix(addr, text_out);
        return;
    default:
        snprintf(text_out, XCCL_ADDR_TEXT_BYTES, "family %d", addr->sa.any.sa_family);
    }
}

void xccl_addr_format_host(const struct xccl_addr *addr, char text_out[XCCL_ADDR_TEXT_BYTES])
{
    int family = addr->bytes ? addr->sa.any.sa_family : AF_UNSPEC;
    size_t used;

    text_out[0] = '\0';
    if (family == AF_INET)
        inet_ntop(AF_INET, &addr->sa.in4.sin_addr, text_out, XCCL_ADDR_TEXT_BYTES);
    if (family != AF_INET6)
        return;
    inet_ntop(AF_INET6, &addr->sa.in6.sin6_addr, text_out, XCCL_ADDR_TEXT_BYTES);
    used = strlen(text_out);
    if (addr->sa.in6.sin6_scope_id)
        snprintf(text_out + used, XCCL_ADDR_TEXT_BYTES - used, "%%%u", addr->sa.in6.sin6_scope_id);
}

/* zone: its number, or with resolve 1 its name. */
static xcclResult_t parse_zone(const char *text, const char *zone, int resolve, uint32_t *scope_out)
{
    uint64_t number = 0;

    if (zone[0] == '\0')
        return refuse(text, "no zone follows the %");
    if (strlen(zone) > ZONE_MAX_BYTES)
        return refuse(text, "the zone after the % has more than 15 bytes");
    if (parse_number(zone, UINT32_MAX, &number)) {
        *scope_out = (uint32_t)number;
        return xcclSuccess;
    }
    if (!resolve)
        return refuse(text, "the zone after the % is not a positive number");
    *scope_out = if_nametoindex(zone);
    if (*scope_out == 0)
        return refuse(text, "the zone after the % is not an interface of this host");
    return xcclSuccess;
}

/* host: what stood between the brackets; cut in two at the zone. */
static xcclResult_t parse_ipv6(const char *text, char *host, uint16_t port, int resolve,
                               struct xccl_addr *addr_out)
{
    char *percent = strchr(host, '%');
    uint32_t scope = 0;
    struct in6_addr in6;

    if (percent) {
        xcclResult_t rc = parse_zone(text, percent + 1, resolve, &scope);

        if (rc)
            return rc;
        *percent = '\0';
    }
    if (inet_pton(AF_INET6, host, &in6) != 1)
        return refuse(text, "the text in brackets is not an IPv6 address");
    make_ipv6(&in6, port, scope, addr_out);
    return xcclSuccess;
}

/* Letters, digits, '-', '_' and '.', and no number in disguise: the resolver reads "1.2", "010.1"
 * and "0x7f.1" as IPv4 addresses that nobody meant. */
static int is_hostname(const char *host)
{
    const char *last = strrchr(host, '.');
    size_t bytes = strlen(host);

    if (bytes == 0 || bytes > HOST_MAX_BYTES || host[0] == '-' || host[0] == '.')
        return 0;
    for (const char *at = host; *at; at++) {
        int letter = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z');

        if (!letter && !(*at >= '0' && *at <= '9') && !strchr("-._", *at))
            return 0;
    }
    last = last ? last + 1 : host;
    if (last[0] == '0' && (last[1] == 'x' || last[1] == 'X'))
        return 0;
    return last[0] == '\0' || last[strspn(last, "0123456789")] != '\0';
}

static xcclResult_t resolve_name(const char *text, const char *host, uint16_t port,
                                 struct xccl_addr *addr_out)
{
    uint64_t timeout_s = (uint64_t)xccl_param_int(XCCL_P_TIMEOUT_INIT_S);
    struct xccl_limit limit = xccl_limit_ms(timeout_s * 1000, NULL);
    xcclResult_t rc = xccl_resolve(text, host, &limit, addr_out);

    if (!rc)
        xccl_addr_set_port(addr_out, port);
    return rc;
}

/* host: what stood before the port's colon, without brackets. */
static xcclResult_t parse_plain(const char *text, const char *host, uint16_t port, int resolve,
                                struct xccl_addr *addr_out)
{
    struct in_addr in4;

    if (host[0] == '\0')
        return refuse(text, "the host before the port is missing");
    if (strchr(host, ':'))
        return refuse(text, "an IPv6 address needs brackets around it");
    if (inet_pton(AF_INET, host, &in4) == 1) {
        make_ipv4(&in4, port, addr_out);
        return xcclSuccess;
    }
    if (!is_hostname(host))
        return refuse(text, "the host is neither an IPv4 address nor a name");
    if (!resolve)
        return refuse(text, "the host is not an IPv4 address, and names are not resolved here");
    return resolve_name(text, host, port, addr_out);
}

xcclResult_t xccl_addr_parse(const char *text, int resolve, struct xccl_addr *addr_out)
{
    /* Brackets and a zone may stand around the longest host. */
    char host[HOST_MAX_BYTES + ZONE_MAX_BYTES + 4];
    struct xccl_addr addr;
    const char *colon;
    size_t host_bytes;
    uint64_t port = 0;
    int brackets;
    xcclResult_t rc;

    if (!text || text[0] == '\0')
        return refuse("", "it is empty");
    brackets = text[0] == '[';
    if (brackets) {
        const char *end = strchr(text, ']');

        if (!end)
            return refuse(text, "the closing bracket is missing");
        if (end[1] != ':')
            return refuse(text, "the port after the bracket is missing");
        colon = end + 1;
        host_bytes = (size_t)(end - text) - 1;
    } else {
        colon = strrchr(text, ':');
        if (!colon)
            return refuse(text, "the port is missing");
        host_bytes = (size_t)(colon - text);
    }
    if (host_bytes >= sizeof(host))
        return refuse(text, "the host is too long");
    memcpy(host, text + brackets, host_bytes);
    host[host_bytes] = '\0';
    if (!parse_number(colon + 1, UINT16_MAX, &port))
        return refuse(text, "the port is not a number from 1 to 65535");
    if (brackets)
        rc = parse_ipv6(text, host, (uint16_t)port, resolve, &addr);
    else
        rc = parse_plain(text, host, (uint16_t)port, resolve, &addr);
    if (rc)
        return rc;
    *addr_out = addr;
    return xcclSuccess;
}

uint16_t xccl_addr_port(const struct xccl_addr *addr)
{
    if (addr->bytes && addr->sa.any.sa_family == AF_INET)
        return ntohs(addr->sa.in4.sin_port);
    if (addr->bytes && addr->sa.any.sa_family == AF_INET6)
        return ntohs(addr->sa.in6.sin6_port);
    return 0;
}

void xccl_addr_set_port(struct xccl_addr *addr, uint16_t port)
{
    if (addr->bytes && addr->sa.any.sa_family == AF_INET)
        addr->sa.in4.sin_port = htons(port);
    if (addr->bytes && addr->sa.any.sa_family == AF_INET6)
        addr->sa.in6.sin6_port = htons(port);
}

void xccl_addr_take_zone(struct xccl_addr *addr, const struct xccl_addr *here)
{
    if (addr->bytes && addr->sa.any.sa_family == AF_INET6 &&
        IN6_IS_ADDR_LINKLOCAL(&addr->sa.in6.sin6_addr) && here->bytes &&
        here->sa.any.sa_family == AF_INET6 && here->sa.in6.sin6_scope_id)
        addr->sa.in6.sin6_scope_id = here->sa.in6.sin6_scope_id;
}

int xccl_addr_equal(const struct xccl_addr *a, const struct xccl_addr *b)
{
    if (a->bytes == 0 || b->bytes == 0)
        return a->bytes == b->bytes;
    if (a->sa.any.sa_family != b->sa.any.sa_family || xccl_addr_port(a) != xccl_addr_port(b))
        return 0;
    switch (a->sa.any.sa_family) {
    case AF_INET:
        return a->sa.in4.sin_addr.s_addr == b->sa.in4.sin_addr.s_addr;
    case AF_INET6:
        return a->sa.in6.sin6_scope_id == b->sa.in6.sin6_scope_id &&
               memcmp(&a->sa.in6.sin6_addr, &b->sa.in6.sin6_addr, sizeof(struct in6_addr)) == 0;
    default:
        return a->bytes == b->bytes && memcmp(&a->sa, &b->sa, a->bytes) == 0;
    }
}

int xccl_addr_same_host(const struct xccl_addr *a, const struct xccl_addr *b)
{
    if (!a->bytes || !b->bytes || a->sa.any.sa_family != b->sa.any.sa_family)
        return 0;
    if (a->sa.any.sa_family == AF_INET)
        return a->sa.in4.sin_addr.s_addr == b->sa.in4.sin_addr.s_addr;
    return a->sa.any.sa_family == AF_INET6 &&
           memcmp(&a->sa.in6.sin6_addr, &b->sa.in6.sin6_addr, sizeof(struct in6_addr)) == 0;
}

/* Layout: family u8 (4 or 6), 0 u8, port u16, scope u32, address 16 (IPv4: the first 4, then
 * zeroes). Numbers are little endian, address bytes in network order. No address is 24 zeroes. */
void xccl_addr_encode(const struct xccl_addr *addr, uint8_t wire_out[XCCL_ADDR_WIRE_BYTES])
{
    struct xccl_wire wire = xccl_wire_over(wire_out, XCCL_ADDR_WIRE_BYTES);

    memset(wire_out, 0, XCCL_ADDR_WIRE_BYTES);
    if (addr->bytes && addr->sa.any.sa_family == AF_INET) {
        xccl_wire_put_u16(&wire, WIRE_IPV4);
        xccl_wire_put_u16(&wire, xccl_addr_port(addr));
        xccl_wire_put_u32(&wire, 0);
        xccl_wire_put(&wire, &addr->sa.in4.sin_addr, sizeof(struct in_addr));
    } else if (addr->bytes && addr->sa.any.sa_family == AF_INET6) {
        xccl_wire_put_u16(&wire, WIRE_IPV6);
        xccl_wire_put_u16(&wire, xccl_addr_port(addr));
        xccl_wire_put_u32(&wire, addr->sa.in6.sin6_scope_id);
        xccl_wire_put(&wire, &addr->sa.in6.sin6_addr, sizeof(struct in6_addr));
    }
}

xcclResult_t xccl_addr_decode(const uint8_t wire[XCCL_ADDR_WIRE_BYTES], struct xccl_addr *addr_out)
{
    static const uint8_t zeroes[12];
    uint16_t port = (uint16_t)(wire[2] | wire[3] << 8);
    uint32_t scope = (uint32_t)wire[4] | (uint32_t)wire[5] << 8 | (uint32_t)wire[6] << 16 |
                     (uint32_t)wire[7] << 24;
    struct in6_addr in6;
    struct in_addr in4;

    if ((wire[0] != WIRE_IPV4 && wire[0] != WIRE_IPV6) || wire[1] != 0)
        return xccl_fail_quietly(xcclRemoteError, 0, NULL, "address of unknown family %u.%u",
                                 wire[0], wire[1]);
    if (wire[0] == WIRE_IPV6) {
        memcpy(&in6, wire + 8, sizeof(in6));
        make_ipv6(&in6, port, scope, addr_out);
        return xcclSuccess;
    }
    if (scope != 0 || memcmp(wire + 12, zeroes, sizeof(zeroes)) != 0)
        return xccl_fail_quietly(xcclRemoteError, 0, NULL,
                                 "an IPv4 address is followed by unexpected bytes");
    memcpy(&in4, wire + 8, sizeof(in4));
    make_ipv4(&in4, port, addr_out);
    return xcclSuccess;
}

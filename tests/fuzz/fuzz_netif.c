/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice of interfaces on hosts of any make, with anything in XCCL_SOCKET_IFNAME. Input:
 * family, places, where the job meets (18 bytes), then per interface 41 bytes, up to 12, then the
 * setting. What is chosen is there, is up, is there once, is of the family, and is not excluded.
 * Thread: one. */
#include <net/if.h>
#include <stdlib.h>
#include <string.h>

#include "base/netif_int.h"

#define HOST_MAX   12
#define ADDR_BYTES 18

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    const uint8_t *at;
    size_t bytes;
};

/* Zeroes behind the end. */
static void take(struct input *input, void *out, size_t bytes)
{
    size_t have = input->bytes < bytes ? input->bytes : bytes;

    memset(out, 0, bytes);
    if (have)
        memcpy(out, input->at, have);
    input->at += have;
    input->bytes -= have;
}

static void addr_make(const uint8_t bytes[ADDR_BYTES], struct xccl_addr *addr)
{
    memset(addr, 0, sizeof(*addr));
    if (bytes[0] % 3 == 0) {
        addr->sa.in4.sin_family = AF_INET;
        memcpy(&addr->sa.in4.sin_addr, bytes + 2, 4);
        addr->bytes = sizeof(addr->sa.in4);
    } else if (bytes[0] % 3 == 1) {
        addr->sa.in6.sin6_family = AF_INET6;
        memcpy(&addr->sa.in6.sin6_addr, bytes + 2, 16);
        addr->sa.in6.sin6_scope_id = bytes[1];
        addr->bytes = sizeof(addr->sa.in6);
    }
}

static void found_make(struct input *input, struct xccl_netif_found *found)
{
    static const char *const names[] = {"lo",   "eth0",    "eth1",    "eth10", "ib0",
                                        "ibs1", "docker0", "br-1234", "veth7", "fifteen_letters"};
    uint8_t bytes[41];

    take(input, bytes, sizeof(bytes));
    memset(found, 0, sizeof(*found));
    if (bytes[0] < 200)
        strncpy(found->name, names[bytes[0] % (sizeof(names) / sizeof(names[0]))], 15);
    else
        memcpy(found->name, bytes + 3, 15);
    found->flags = (bytes[1] & 1 ? (unsigned)IFF_UP : 0) |
                   (bytes[1] & 2 ? (unsigned)IFF_RUNNING : 0);
    addr_make(bytes + 3, &found->addr);
    /* The mask, of the same family unless told otherwise. */
    bytes[22] = bytes[1] & 4 ? bytes[22] : bytes[3];
    addr_make(bytes + 22, &found->mask);
    found->mask.sa.in6.sin6_scope_id = 0;
}

/* Whether an entry of the list behind ^ or ^= fits the name: written anew, entry by entry. */
static int is_excluded(const char *spec, const char *name)
{
    char copy[256], *rest = copy, *entry;
    int exact = spec[1] == '=';

    if (spec[0] != '^')
        return 0;
    strncpy(copy, spec + 1 + exact, sizeof(copy) - 1);
    copy[sizeof(copy) - 1] = '\0';
    while ((entry = strsep(&rest, ","))) {
        if (entry[0] &&
            (exact ? strcmp(entry, name) == 0 : strncmp(entry, name, strlen(entry)) == 0))
            return 1;
    }
    return 0;
}

static void check_chosen(const struct xccl_netif *chosen, const struct xccl_netif_found *host,
                         int host_count, const char *spec, int family)
{
    int there = 0;

    for (int i = 0; i < host_count; i++) {
        struct xccl_addr addr = host[i].addr;

        if (!addr.bytes || strcmp(host[i].name, chosen->name) != 0)
            continue;
        xccl_addr_set_port(&addr, 0);
        there |= xccl_addr_equal(&addr, &chosen->addr);
    }
    if (!there || is_excluded(spec, chosen->name) ||
        (family != AF_UNSPEC && chosen->addr.sa.any.sa_family != family))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int families[] = {AF_UNSPEC, AF_INET, AF_INET6};
    struct xccl_netif_found host[HOST_MAX];
    struct xccl_netif ifs[HOST_MAX + 1];
    struct input input = {data, size};
    uint8_t head[3], near_bytes[ADDR_BYTES];
    struct xccl_addr near;
    char spec[128] = "";
    int host_count, count, max, family;

    take(&input, head, sizeof(head));
    take(&input, near_bytes, sizeof(near_bytes));
    addr_make(near_bytes, &near);
    family = families[head[0] % 3];
    max = head[1] % (HOST_MAX + 1);
    host_count = head[2] % (HOST_MAX + 1);
    for (int i = 0; i < host_count; i++)
        found_make(&input, &host[i]);
    take(&input, spec, input.bytes < sizeof(spec) - 1 ? input.bytes : sizeof(spec) - 1);
    memset(ifs, 0x5a, sizeof(ifs));
    count = xccl_netif_select_near(host, host_count, head[0] & 128 ? &near : NULL, spec, family,
                                   ifs, max);
    if (count < 0 || count > max || (uint8_t)ifs[max].name[0] != 0x5a)
        abort();
    for (int i = 0; i < count; i++) {
        check_chosen(&ifs[i], host, host_count, spec, family);
        for (int k = 0; k < i; k++) {
            if (strcmp(ifs[i].name, ifs[k].name) == 0)
                abort();
        }
    }
    return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Which interfaces of this host XCCL listens on. Reading them and choosing are apart: the choice is
 * a pure function (netif_int.h) of the interfaces, XCCL_SOCKET_IFNAME, XCCL_SOCKET_FAMILY and, when
 * the job meets at a given address, of that address.
 *
 * Limits: 256 addresses are looked at. Thread: any; nothing is kept. */
#include "base/netif_int.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/inject.h"
#include "base/param.h"

#define FOUND_MAX 256

/* XCCL_SOCKET_IFNAME taken apart. */
struct name_rule {
    int exclude, exact;
    const char *names;
};

enum { CLASS_IB, CLASS_PLAIN, CLASS_VIRTUAL, CLASS_LOOPBACK };

static struct name_rule rule_parse(const char *spec)
{
    struct name_rule rule = {.names = spec};

    if (rule.names[0] == '^') {
        rule.exclude = 1;
        rule.names++;
    }
    if (rule.names[0] == '=') {
        rule.exact = 1;
        rule.names++;
    }
    return rule;
}

/* Place in the rule's list of the first entry that fits the name, -1 if none does. */
static int rule_place(const struct name_rule *rule, const char *name)
{
    const char *entry = rule->names;
    size_t name_bytes = strlen(name);

    for (int place = 0; *entry; place++) {
        size_t bytes = strcspn(entry, ",");
        int fits = bytes > 0 && bytes <= name_bytes && memcmp(entry, name, bytes) == 0;

        if (fits && (!rule->exact || bytes == name_bytes))
            return place;
        entry += bytes;
        if (*entry == ',')
            entry++;
    }
    return -1;
}

static int has_prefix(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static int class_of(const char *name)
{
    static const char *const virtuals[] = {"docker", "veth", "virbr", "br-"};

    if (strcmp(name, "lo") == 0)
        return CLASS_LOOPBACK;
    for (size_t i = 0; i < sizeof(virtuals) / sizeof(virtuals[0]); i++) {
        if (has_prefix(name, virtuals[i]))
            return CLASS_VIRTUAL;
    }
    return has_prefix(name, "ib") ? CLASS_IB : CLASS_PLAIN;
}

/* Lower is better; -1 for an address that cannot be used. */
static int address_rank(const struct xccl_addr *addr, int family)
{
    if (addr->sa.any.sa_family == AF_INET)
        return family == AF_INET6 ? -1 : 0;
    if (addr->sa.any.sa_family != AF_INET6 || family == AF_INET)
        return -1;
    return IN6_IS_ADDR_LINKLOCAL(&addr->sa.in6.sin6_addr) ? 2 : 1;
}

/* Appends the interface of found[at] with its best address, unless an earlier entry of found has
 * already done so: an interface is handled at its first usable address. */
static int append(const struct xccl_netif_found *found, int found_count, int at, int family,
                  struct xccl_netif *if_out)
{
    int best = -1, best_rank = -1;

    for (int i = 0; i < found_count; i++) {
        int rank = address_rank(&found[i].addr, family);

        if (rank < 0 || strcmp(found[i].name, found[at].name) != 0)
            continue;
        if (best < 0 && i != at)
            return 0;
        if (best < 0 || rank < best_rank) {
            best = i;
            best_rank = rank;
        }
    }
    if (best < 0)
        return 0;
    memset(if_out, 0, sizeof(*if_out));
    snprintf(if_out->name, sizeof(if_out->name), "%s", found[at].name);
    if_out->addr = found[best].addr;
    if_out->mask = found[best].mask;
    xccl_addr_set_port(&if_out->addr, 0);
    return 1;
}

/* The user named them: every entry of the list in turn. */
static int select_named(const struct xccl_netif_found *found, int found_count,
                        const struct name_rule *rule, int family, struct xccl_netif *ifs_out,
                        int max)
{
    int count = 0, place_count = 1;

    for (const char *at = rule->names; *at; at++)
        place_count += *at == ',';
    for (int place = 0; place < place_count; place++) {
        for (int i = 0; i < found_count && count < max; i++) {
            if ((found[i].flags & IFF_UP) && rule_place(rule, found[i].name) == place)
                count += append(found, found_count, i, family, &ifs_out[count]);
        }
    }
    return count;
}

struct choice {
    int rank; /* CLASS_ */
    unsigned flags;
    int family, max;
};

/* The interfaces of one class that have all of these flags, without those that the rule excludes.
 */
static int select_class(const struct xccl_netif_found *found, int found_count,
                        const struct name_rule *rule, const struct choice *choice,
                        struct xccl_netif *ifs_out, int count)
{
    for (int i = 0; i < found_count && count < choice->max; i++) {
        if ((found[i].flags & choice->flags) != choice->flags ||
            class_of(found[i].name) != choice->rank || rule_place(rule, found[i].name) >= 0)
            continue;
        count += append(found, found_count, i, choice->family, &ifs_out[count]);
    }
    return count;
}

/* By class: whatever is there of the first two, else of the first of the others that has something.
 * An interface that is up but has no carrier yet, as a new one for up to a second, is still better
 * than loopback, which reaches nobody else. */
static int select_default(const struct xccl_netif_found *found, int found_count,
                          const struct name_rule *rule, int family, struct xccl_netif *ifs_out,
                          int max)
{
    static const struct {
        int rank;
        unsigned flags;
    } order[] = {{CLASS_IB, IFF_UP | IFF_RUNNING},
                 {CLASS_PLAIN, IFF_UP | IFF_RUNNING},
                 {CLASS_VIRTUAL, IFF_UP | IFF_RUNNING},
                 {CLASS_PLAIN, IFF_UP},
                 {CLASS_LOOPBACK, IFF_UP | IFF_RUNNING}};
    int count = 0;

    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]) && (i < 2 || count == 0); i++) {
        struct choice choice = {order[i].rank, order[i].flags, family, max};

        count = select_class(found, found_count, rule, &choice, ifs_out, count);
    }
    return count;
}

int xccl_netif_select(const struct xccl_netif_found *found, int found_count, const char *spec,
                      int family, struct xccl_netif *ifs_out, int max)
{
    struct name_rule rule = rule_parse(spec);

    if (rule.exclude || rule.names[0] == '\0')
        return select_default(found, found_count, &rule, family, ifs_out, max);
    return select_named(found, found_count, &rule, family, ifs_out, max);
}

/* The address itself, without its port; *bytes_out is its length. */
static const uint8_t *address_bytes(const struct xccl_addr *addr, size_t *bytes_out)
{
    if (addr->sa.any.sa_family == AF_INET) {
        *bytes_out = sizeof(addr->sa.in4.sin_addr);
        return (const uint8_t *)&addr->sa.in4.sin_addr;
    }
    *bytes_out = sizeof(addr->sa.in6.sin6_addr);
    return addr->sa.in6.sin6_addr.s6_addr;
}

int xccl_addr_same_subnet(const struct xccl_addr *a, const struct xccl_addr *b,
                          const struct xccl_addr *mask)
{
    size_t bytes = 0;
    const uint8_t *left, *right, *bits;

    if (!a->bytes || !b->bytes || !mask->bytes || a->sa.any.sa_family != b->sa.any.sa_family ||
        a->sa.any.sa_family != mask->sa.any.sa_family)
        return 0;
    if (a->sa.any.sa_family == AF_INET6 && a->sa.in6.sin6_scope_id && b->sa.in6.sin6_scope_id &&
        a->sa.in6.sin6_scope_id != b->sa.in6.sin6_scope_id)
        return 0;
    left = address_bytes(a, &bytes);
    right = address_bytes(b, &bytes);
    bits = address_bytes(mask, &bytes);
    for (size_t i = 0; i < bytes; i++) {
        if ((left[i] ^ right[i]) & bits[i])
            return 0;
    }
    return 1;
}

/* How many bits the subnet of found has in common with near, and one more when near is its own
 * address, for interfaces may share a subnet; 0 when near is elsewhere. */
static int bits_shared(const struct xccl_netif_found *found, const struct xccl_addr *near)
{
    size_t bytes = 0;
    const uint8_t *mask;
    int bits = 0;

    if (!(found->flags & IFF_UP) || !xccl_addr_same_subnet(&found->addr, near, &found->mask))
        return 0;
    mask = address_bytes(&found->mask, &bytes);
    for (size_t i = 0; i < bytes; i++)
        bits += __builtin_popcount(mask[i]);
    return bits + xccl_addr_same_host(&found->addr, near);
}

/* Puts the interface of found first, with this address. Returns how many there are then. */
static int move_to_front(const struct xccl_netif_found *found, struct xccl_netif *ifs, int count,
                         int max)
{
    int at = 0;

    while (at < count && strcmp(ifs[at].name, found->name) != 0)
        at++;
    if (at == count && count < max)
        count++;
    if (at == max)
        at--;
    memmove(&ifs[1], &ifs[0], (size_t)at * sizeof(ifs[0]));
    memset(&ifs[0], 0, sizeof(ifs[0]));
    memcpy(ifs[0].name, found->name, sizeof(ifs[0].name));
    ifs[0].addr = found->addr;
    ifs[0].mask = found->mask;
    xccl_addr_set_port(&ifs[0].addr, 0);
    return count;
}

int xccl_netif_select_near(const struct xccl_netif_found *found, int found_count,
                           const struct xccl_addr *near, const char *spec, int family,
                           struct xccl_netif *ifs_out, int max)
{
    int count = xccl_netif_select(found, found_count, spec, family, ifs_out, max);
    int best = -1, best_bits = 0;

    if (!near || spec[0] != '\0' || max < 1)
        return count;
    for (int i = 0; i < found_count; i++) {
        int bits = address_rank(&found[i].addr, family) < 0 ? 0 : bits_shared(&found[i], near);

        if (bits > best_bits) {
            best = i;
            best_bits = bits;
        }
    }
    return best < 0 ? count : move_to_front(&found[best], ifs_out, count, max);
}

static int found_read(const struct ifaddrs *list, struct xccl_netif_found *found_out)
{
    int count = 0;

    for (const struct ifaddrs *at = list; at && count < FOUND_MAX; at = at->ifa_next) {
        struct xccl_netif_found *found = &found_out[count];
        socklen_t bytes = 0;

        if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET)
            bytes = sizeof(struct sockaddr_in);
        if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET6)
            bytes = sizeof(struct sockaddr_in6);
        if (bytes == 0)
            continue;
        /* A second IPv4 address may carry a label such as eth0:1; the interface is eth0. */
        snprintf(found->name, sizeof(found->name), "%.*s", (int)strcspn(at->ifa_name, ":"),
                 at->ifa_name);
        memcpy(&found->addr.sa, at->ifa_addr, bytes);
        found->addr.bytes = bytes;
        if (at->ifa_netmask) {
            memcpy(&found->mask.sa, at->ifa_netmask, bytes);
            found->mask.sa.any.sa_family = at->ifa_addr->sa_family;
            found->mask.bytes = bytes;
        }
        found->flags = at->ifa_flags;
        count++;
    }
    return count;
}

static xcclResult_t fail_no_match(const struct xccl_netif_found *found, int found_count,
                                  const char *spec)
{
    static const char *const families[] = {"any", "ipv4", "ipv6"};
    char list[256] = "none";
    size_t at = 0;

    for (int i = 0; i < found_count && at < sizeof(list); i++) {
        char text[XCCL_ADDR_TEXT_BYTES];

        xccl_addr_format(&found[i].addr, text);
        text[strlen(text) - strlen(":0")] = '\0'; /* interfaces have port 0 */
        at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s %s%s", i ? ", " : "",
                               found[i].name, text, found[i].flags & IFF_UP ? "" : " (down)");
    }
    return xccl_fail(xcclInvalidUsage, 0, "change XCCL_SOCKET_IFNAME or XCCL_SOCKET_FAMILY",
                     "no interface matches XCCL_SOCKET_IFNAME=\"%.64s\" with address family %s; "
                     "this host has: %s",
                     spec, families[xccl_param_int(XCCL_P_SOCKET_FAMILY) % 3], list);
}

/* The caller frees *found_out. */
static xcclResult_t found_make(struct xccl_netif_found **found_out, int *count_out)
{
    struct ifaddrs *list = NULL;
    int err = 0;

    *found_out = xccl_calloc(FOUND_MAX, sizeof(**found_out));
    if (!*found_out)
        return xcclSystemError;
    if (xccl_inject_due())
        err = ENOBUFS;
    else if (getifaddrs(&list) != 0)
        err = errno;
    if (err) {
        xccl_free(*found_out);
        return xccl_fail(xcclSystemError, err, NULL, "cannot list the network interfaces");
    }
    *count_out = found_read(list, *found_out);
    freeifaddrs(list);
    return xcclSuccess;
}

int xccl_netif_having(const struct xccl_addr *addr, char name_out[IF_NAMESIZE])
{
    struct xccl_netif_found *found;
    int found_count = 0, done = 0;

    if (found_make(&found, &found_count))
        return 0;
    for (int i = 0; i < found_count && !done; i++) {
        done = xccl_addr_same_host(&found[i].addr, addr);
        if (done)
            snprintf(name_out, IF_NAMESIZE, "%s", found[i].name);
    }
    xccl_free(found);
    return done;
}

int xccl_netif_named(const char *name, struct xccl_netif *if_out)
{
    struct xccl_netif_found *found;
    int found_count = 0, done = 0;

    if (found_make(&found, &found_count))
        return 0;
    for (int i = 0; i < found_count && !done; i++) {
        if (strcmp(found[i].name, name) == 0)
            done = append(found, found_count, i, AF_UNSPEC, if_out);
    }
    xccl_free(found);
    return done;
}

xcclResult_t xccl_netif_choose_near(const struct xccl_addr *near, struct xccl_netif *ifs_out,
                                    int max, int *count_out)
{
    static const int families[] = {AF_UNSPEC, AF_INET, AF_INET6};
    const char *spec = xccl_param_string(XCCL_P_SOCKET_IFNAME);
    int family = families[xccl_param_int(XCCL_P_SOCKET_FAMILY) % 3];
    struct xccl_netif_found *found;
    int found_count = 0, count;
    xcclResult_t rc = found_make(&found, &found_count);

    if (rc)
        return rc;
    count = xccl_netif_select_near(found, found_count, near, spec, family, ifs_out, max);
    if (count == 0)
        rc = fail_no_match(found, found_count, spec);
    else
        *count_out = count;
    xccl_free(found);
    return rc;
}

xcclResult_t xccl_netif_choose(struct xccl_netif *ifs_out, int max, int *count_out)
{
    return xccl_netif_choose_near(NULL, ifs_out, max, count_out);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Which ports a rule names, which GID is best, how fast a port is. No hardware is asked here.
 * Thread: any. */
#include "ib_choice.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether one entry of the list, bytes long, names the port. */
static int entry_fits(const char *entry, size_t bytes, int exact, const char *name, int port)
{
    const char *colon = memchr(entry, ':', bytes);
    size_t name_bytes = colon ? (size_t)(colon - entry) : bytes;
    char *end;

    if (name_bytes == 0 || strncmp(entry, name, name_bytes) != 0)
        return 0;
    if (exact && name[name_bytes] != 0)
        return 0;
    if (!colon)
        return 1;
    return strtol(colon + 1, &end, 10) == port && end == entry + bytes;
}

int ib_hca_chosen(const char *rule, const char *name, int port)
{
    int exclude = *rule == '^', exact, found = 0;

    rule += exclude;
    exact = *rule == '=';
    rule += exact;
    if (*rule == 0)
        return 1;
    while (*rule && !found) {
        size_t bytes = strcspn(rule, ",");

        found = entry_fits(rule, bytes, exact, name, port);
        rule += bytes;
        rule += *rule == ',';
    }
    return found != exclude;
}

static int all_zero(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i])
            return 0;
    }
    return 1;
}

int ib_gid_is_ipv4(const uint8_t gid[16])
{
    return all_zero(gid, 10) && gid[10] == 0xff && gid[11] == 0xff;
}

int ib_gid_score(const uint8_t gid[16], enum ib_gid_type type)
{
    int score = type == IB_GID_ROCE2 ? 4 : 0;

    /* A prefix without an interface is a port that has no address yet. */
    if (all_zero(gid + 8, 8))
        return -1;
    if (ib_gid_is_ipv4(gid))
        return score + 2;
    return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80 ? score : score + 1;
}

int ib_gid_rule_make(enum ib_family family, const char *range, struct ib_gid_rule *rule_out)
{
    const char *slash = strchr(range, '/');
    char address[INET6_ADDRSTRLEN];
    uint32_t before = 0;
    unsigned long bits;
    char *end;

    memset(rule_out, 0, sizeof(*rule_out));
    rule_out->family = family;
    if (*range == 0)
        return 1;
    if (!slash || (size_t)(slash - range) >= sizeof(address) || slash[1] < '0' || slash[1] > '9')
        return 0;
    memcpy(address, range, (size_t)(slash - range));
    address[slash - range] = 0;
    if (inet_pton(AF_INET, address, rule_out->range + 12) == 1) {
        rule_out->range[10] = rule_out->range[11] = 0xff;
        before = 96;
    } else if (inet_pton(AF_INET6, address, rule_out->range) != 1) {
        return 0;
    }
    bits = strtoul(slash + 1, &end, 10);
    rule_out->range_bits = before + (uint32_t)bits;
    return *end == 0 && bits <= 128 - before;
}

int ib_gid_allowed(const uint8_t gid[16], const struct ib_gid_rule *rule)
{
    uint32_t bytes = rule->range_bits / 8, rest = rule->range_bits % 8;

    if (rule->family != IB_FAMILY_ANY && ib_gid_is_ipv4(gid) != (rule->family == IB_FAMILY_IPV4))
        return 0;
    return memcmp(gid, rule->range, bytes) == 0 &&
           (rest == 0 || (gid[bytes] ^ rule->range[bytes]) >> (8 - rest) == 0);
}

uint32_t ib_speed_mbps(int width_code, int speed_code)
{
    static const struct {
        int code;
        uint32_t value;
    } widths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}},
      lanes[] = {{1, 2500},   {2, 5000},   {4, 10000},  {8, 10000},
                 {16, 14000}, {32, 25000}, {64, 50000}, {128, 100000}};
    uint32_t width = 0, lane = 0;

    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++)
        width = widths[i].code == width_code ? widths[i].value : width;
    for (size_t i = 0; i < sizeof(lanes) / sizeof(lanes[0]); i++)
        lane = lanes[i].code == speed_code ? lanes[i].value : lane;
    return width * lane;
}

void ib_gid_format(const uint8_t gid[16], char text_out[IB_GID_TEXT_BYTES])
{
    if (!inet_ntop(AF_INET6, gid, text_out, IB_GID_TEXT_BYTES))
        snprintf(text_out, IB_GID_TEXT_BYTES, "?");
}

static int is_one_of(const char *name, const char *const *names, int count)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(name, names[i]) == 0)
            return 1;
    }
    return 0;
}

int ib_interface_choose(const char *const *names, int count, const char *const *own, int own_count)
{
    for (int i = 0; i < count && own_count > 1; i++) {
        if (!is_one_of(names[i], own, own_count))
            return i;
    }
    for (int i = 0; i < count; i++) {
        if (strcmp(names[i], own[0]) == 0)
            return i;
    }
    return 0;
}

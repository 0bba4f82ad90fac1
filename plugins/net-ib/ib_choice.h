/* SPDX-License-Identifier: BSD-3-Clause */
/* What is chosen by rule and not by hardware: which ports XCCL_IB_HCA names, and which entry of a
 * GID table is the best. Pure functions. Thread: any. */
#ifndef IB_CHOICE_H
#define IB_CHOICE_H

#include <stdint.h>

/* Whether the port is chosen by the rule, a comma list of NAME or NAME:PORT, in NCCL's grammar: a
 * name is a prefix; = in front asks for exact names; ^ in front excludes; "" takes all. */
int ib_hca_chosen(const char *rule, const char *name, int port);

enum ib_gid_type { IB_GID_IB, IB_GID_ROCE1, IB_GID_ROCE2 };

/* The greater the better; -1: cannot be used. RoCE v2 before v1, which is not routed; then
 * IPv4-mapped before global IPv6 before link-local. */
int ib_gid_score(const uint8_t gid[16], enum ib_gid_type type);
int ib_gid_is_ipv4(const uint8_t gid[16]);

/* Which GIDs may be used besides. */
enum ib_family { IB_FAMILY_ANY, IB_FAMILY_IPV4, IB_FAMILY_IPV6 };
struct ib_gid_rule {
    enum ib_family family;
    uint8_t range[16];
    uint32_t
        range_bits; /* of range, from the first on, which a GID must have; 0: all may be used */
};
/* range: "10.0.0.0/8", "fd00::/16", or "". 0: it is none. */
int ib_gid_rule_make(enum ib_family family, const char *range, struct ib_gid_rule *rule_out);
int ib_gid_allowed(const uint8_t gid[16], const struct ib_gid_rule *rule);

/* Megabits a second out of the codes of a port. 0: a code that is not known. */
uint32_t ib_speed_mbps(int width_code, int speed_code);

/* Which of count interfaces, best first and at least one, the side channel of a device takes, whose
 * ports have the interfaces own. Of one port: its own, if it is among them. Of several: one that is
 * none of theirs, for what a failover needs must not go by the way that has failed; if all are,
 * that of the first port. Else the best. */
int ib_interface_choose(const char *const *names, int count, const char *const *own, int own_count);

#define IB_GID_TEXT_BYTES 48
void ib_gid_format(const uint8_t gid[16], char text_out[IB_GID_TEXT_BYTES]);

#endif

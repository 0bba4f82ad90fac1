/* SPDX-License-Identifier: BSD-3-Clause */
/* The setting XCCL_PROTO, in the form of NCCL's: the protocols that may be used, or, behind ^,
 * those that may not, for all collectives or for one.
 *
 *   small,slices                    LL128 and Simple, as NCCL calls their counterparts
 *   ^lines                          any but that one
 *   ^lines;all_reduce:lines,small   what is said of one collective holds there instead
 *
 * Thread: any. */
#ifndef XCCL_PLAN_PROTO_SETTING_H
#define XCCL_PLAN_PROTO_SETTING_H

#include "schedule/schedule.h"
#include "transport/link.h"

struct xccl_proto_setting {
    uint8_t leaves_out[XCCL_COLL_WITH_SCHEDULES]; /* a bit for each protocol; zeroes allow all */
};

/* xcclInvalidUsage says which word is no protocol. "" and "auto" allow all. */
xcclResult_t xccl_proto_setting_parse(const char *text, struct xccl_proto_setting *setting_out);
/* 1: the setting leaves it to be chosen. */
int xccl_proto_setting_allows(const struct xccl_proto_setting *setting, enum xccl_coll coll,
                              enum xccl_proto proto);
/* "lines", "small", "slices"; "tight slices", which only texts know */
const char *xccl_proto_name(enum xccl_proto proto);

#endif

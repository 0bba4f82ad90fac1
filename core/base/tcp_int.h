/* SPDX-License-Identifier: BSD-3-Clause */
/* How XCCL_PORT_RANGE is read, as a pure function for its tests. Strict: "LOW-HIGH" in digits
 * without leading zeroes, and nothing else.
 * Any thread. */
#ifndef XCCL_BASE_TCP_INT_H
#define XCCL_BASE_TCP_INT_H

#include "base/tcp.h"

struct xccl_port_range {
    uint32_t low, high; /* 1..65535, both included */
};

/* 0, or -1 with range_out untouched. */
int xccl_port_range_parse(const char *text, struct xccl_port_range *range_out);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Host names with a deadline. The C library's resolver may wait for a silent name server much
 * longer than a rank may take to join, and cannot be stopped; so a thread asks it. The
 * thread has all its data in memory of its own, is left behind when the time is over, and ends by
 * itself.
 *
 * Thread: any; waits. */
#ifndef XCCL_BASE_RESOLVE_H
#define XCCL_BASE_RESOLVE_H

#include "base/clock.h"
#include "base/netaddr.h"

/* The first IPv4 or IPv6 address of host, of XCCL_SOCKET_FAMILY if that is set, with port 0.
 * Errors are quiet and name text, which host is part of. xcclTimeout: no answer within the limit;
 * xcclInvalidUsage: aborted. */
xcclResult_t xccl_resolve(const char *text, const char *host, const struct xccl_limit *limit,
                          struct xccl_addr *addr_out);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* A text that says why something was refused: it grows to its bound and no further. Limits: what
 * does not fit is cut. Thread: the owner's. */
#ifndef XCCL_PLUGIN_NET_REASON_H
#define XCCL_PLUGIN_NET_REASON_H

#define NET_REASON_BYTES 768

struct net_reason {
    char text[NET_REASON_BYTES];
};
void net_reason_set(struct net_reason *reason, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Appends, with "; " between. */
void net_reason_add(struct net_reason *reason, const char *text);

#endif

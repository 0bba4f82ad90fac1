/* SPDX-License-Identifier: BSD-3-Clause */
/* The list of network plugins where no user has named one (XCCL_NET_PLUGIN=auto): `ofi` on machines
 * with an EFA or Slingshot card, then `ib` on those with an InfiniBand or RoCE card, then `socket`.
 * Which cards there are the kernel's folders say, so no library of a network is loaded where its
 * cards are not. Of `ofi` only the provider of these cards is taken: other networks are for the
 * plugins behind it in the list.
 *
 * Thread: any. */
#ifndef XCCL_PLUGIN_NET_DEFAULT_H
#define XCCL_PLUGIN_NET_DEFAULT_H

#include "base/net_cards.h"

#define XCCL_NET_AUTO      "auto"
#define XCCL_NET_DEFAULTS  3
#define XCCL_NET_WHY_BYTES 128

/* A plugin that may be in the list. */
struct xccl_net_default_item {
    const char *name;
    int listed;
    char why[XCCL_NET_WHY_BYTES]; /* it is, or is not */
};

struct xccl_net_default {
    struct xccl_net_cards cards;
    struct xccl_net_default_item items[XCCL_NET_DEFAULTS];
    char list[32]; /* as XCCL_NET_PLUGIN would be written */
};

/* Pure. */
void xccl_net_default_make(const struct xccl_net_cards *cards, struct xccl_net_default *made_out);
/* This machine's, looked at once a process. */
const struct xccl_net_default *xccl_net_default(void);
/* 1: the list is `auto`, blanks around it or not. */
int xccl_net_is_auto(const char *list);
/* The items of a list: its own text, or what stands for `auto`. */
const char *xccl_net_list_items(const char *list);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Which fast network cards this machine has, by the kernel's folders alone: some dozens of small
 * files are read, and no library is loaded. A container that hides /sys has none.
 *
 * Thread: any. */
#ifndef XCCL_BASE_NET_CARDS_H
#define XCCL_BASE_NET_CARDS_H

#define XCCL_CARD_NAME_BYTES 32
#define XCCL_CARDS_SYSFS     "/sys"

/* Cards of one kind: how many, and the name of the first in the order of names, "" if none. */
struct xccl_card_kind {
    int count;
    char first[XCCL_CARD_NAME_BYTES];
};

struct xccl_net_cards {
    struct xccl_card_kind efa; /* of EC2: Amazon's Elastic Fabric Adapter */
    struct xccl_card_kind cxi; /* HPE Slingshot */
    struct xccl_card_kind rdma; /* InfiniBand and RoCE: channel adapters of the verbs */
};

/* sysfs: XCCL_CARDS_SYSFS, or a folder like it. */
void xccl_net_cards_find(const char *sysfs, struct xccl_net_cards *cards_out);

#endif

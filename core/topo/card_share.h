/* SPDX-License-Identifier: BSD-3-Clause */
/* Which network cards each rank uses: one table of (rank, lane) to cards, the same on all ranks.
 *
 * A card is a FAR device that is not merged. Those of a plugin that are worth using together are
 * its cards: the interface by which the ranks met, or else the fastest device, and all that take
 * the same kinds of memory and have its speed. Each rank tells how far each card is from its CUDA
 * device or its cores. The ranks of a host that see the same cards share them out: each gets as
 * many as there are for it, at least one, no card serves more ranks than it must, and within that
 * each rank gets the nearest ones. All lanes of a rank use its cards alike.
 *
 * Limits: XCCL_CARDS_MAX cards. Thread: any; all but the reading of sysfs is pure. */
#ifndef XCCL_TOPO_CARD_SHARE_H
#define XCCL_TOPO_CARD_SHARE_H

#include <stdint.h>

#include "xccl_net.h"

#define XCCL_CARDS_MAX 32

/* How far a card is, small is near. */
enum xccl_card_distance {
    XCCL_CARD_BELOW_SWITCH = 0, /* and up to 5 with more switches between */
    XCCL_CARD_BELOW_ROOT = 6, /* the same PCI root */
    XCCL_CARD_NUMA_NODE = 7,
    XCCL_CARD_ANYWHERE = 8, /* not known, or the rank is everywhere */
    XCCL_CARD_OTHER_NODE = 9,
    XCCL_CARD_DISTANCES
};

/* Where a rank is. */
struct xccl_card_place {
    char path[256]; /* of its CUDA device in sysfs; "": its cores count */
    uint64_t nodes; /* NUMA nodes of the device, or of the cores, one bit each; 0: not known */
};

/* The cards as one rank sees them, in the order of their numbers. */
struct xccl_card_view {
    uint64_t names; /* a hash; ranks of a host with equal ones see the same cards */
    int count;
    uint8_t distance[XCCL_CARDS_MAX]; /* enum xccl_card_distance */
};

/* Of a card in sysfs (NULL: it has no path) on this NUMA node (-1: not known). */
enum xccl_card_distance xccl_card_distance(const struct xccl_card_place *place, const char *path,
                                           int node);
/* Shares the cards out to `count` ranks of one host that see the same ones. each: how many a rank
 * may use, 0: as many as there are for it, up to XCCL_NET_MAX_MEMBERS. numbers_out: of each rank
 * the positions of its cards, in order; counts_out: how many. 0: no memory. */
int xccl_card_share(const struct xccl_card_view *const ranks[], int count, int each,
                    int (*numbers_out)[XCCL_NET_MAX_MEMBERS], int *counts_out);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Which plugin a communicator uses: a pure function of one table that all ranks have alike, so all
 * come to the same choice. Limits: XCCL_NETS_MAX plugins a rank. Thread: any. */
#ifndef XCCL_PLUGIN_NET_CHOOSE_H
#define XCCL_PLUGIN_NET_CHOOSE_H

#include "plugin/net_plugin.h"

#define XCCL_NETS_MAX 6

/* What one rank could open, in the order of its list. */
struct xccl_net_row {
    int needs; /* 0: all its peers share its memory, it has no say */
    int count;
    char wire_id[XCCL_NETS_MAX][XCCL_WIRE_ID_BYTES];
    uint64_t build[XCCL_NETS_MAX]; /* of the plugin's file; 0: not known */
    uint32_t kinds[XCCL_NETS_MAX]; /* of its devices: xccl_net_kinds() */
    struct xccl_card_view views[XCCL_NETS_MAX]; /* its cards, as this rank sees them */
};

/* Position of a wire id in a row; -1: not there. */
int xccl_net_row_find(const struct xccl_net_row *row, const char *wire_id);
/* The first plugin, in the order of the lowest rank that needs one, that all ranks have which need
 * one. NULL: there is none, or nobody needs one. */
const char *xccl_net_choose(const struct xccl_net_row *rows, int nranks);
/* For two ranks when no plugin is common to all: the first of the lower one's that the other has
 * too. NULL: none. */
const char *xccl_net_choose_pair(const struct xccl_net_row *rows, int a, int b);
/* Two ranks whose builds of that plugin differ, both known; 0: there are none. */
int xccl_net_builds_differ(const struct xccl_net_row *rows, int nranks, const char *wire_id,
                           int *a_out, int *b_out);

#endif

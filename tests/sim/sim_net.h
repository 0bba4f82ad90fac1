/* SPDX-License-Identifier: BSD-3-Clause */
/* The network of the simulation: base/tcp.h over streams whose bytes come in pieces, each after a
 * delay of its own. Connections are independent, so messages of different ones overtake each other.
 *
 * What is as in Linux: connections wait in a backlog, and for their first bytes (TCP_DEFER_ACCEPT);
 * a close with bytes unread is a reset; bytes that had come may be read after a reset; bytes for a
 * closed end bring a reset back; a full window stops the sender.
 *
 * Thread: the only one. */
#ifndef SIM_NET_H
#define SIM_NET_H

#include <stddef.h>
#include <stdint.h>

#include "base/tcp.h"

#define SIM_FIRST_FD (1 << 20)

struct sim_net_settings {
    uint64_t delay_min_ns, delay_max_ns; /* of a piece on its way */
    uint32_t late_per_mille; /* pieces that take up to late_ns more: lost and sent again */
    uint64_t late_ns;
    uint32_t split_per_mille; /* sends that are cut into pieces */
    /* Connects whose first packet is lost: 1 s, then 2 s, ... more. At most two in a row: an
     * address that does not answer for 4 s cannot be reached (base/tries.h). */
    uint32_t slow_per_mille;
    size_t window_bytes; /* sent and not yet read, each way */
};

void sim_net_reset(const struct sim_net_settings *settings, int hosts);
void sim_net_fini(void);

/* For the loop: what epoll would tell of a descriptor, and which source asks. */
uint32_t sim_socket_events(int fd);
void sim_socket_watch(int fd, uint32_t idx);

/* Where a host is; port 0. */
void sim_host_addr(int host, struct xccl_addr *addr_out);
/* The process ends: its kernel closes all its descriptors. The numbers stay for its code to close
 * when the scenario lets it run out. */
void sim_net_crash(int host);
int sim_net_open(int host); /* descriptors; -1: of all hosts */
/* What they are, for the report of a failure. */
void sim_net_describe(int host, char *text_out, size_t bytes);
/* Where somebody listens now, chosen by a random number; 0: nobody does. */
int sim_net_listener(uint64_t random, struct xccl_addr *addr_out);

/* Messages: the longest chain that led to what this host knows now. */
uint32_t sim_net_hops(int host);
void sim_net_clear_hops(void);
uint64_t sim_net_connects(void); /* since the reset */
uint64_t sim_net_bytes(void); /* sent since the reset */

#endif

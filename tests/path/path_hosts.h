/* SPDX-License-Identifier: BSD-3-Clause */
/* Hosts for tests: network namespaces joined by veth pairs, the rails. Host 0 is at one end of each
 * rail, the host that the rail names at the other; both ends are called rail0, rail1, ... A rail
 * can be shaped, cut in three ways, and restored. The namespaces are held by descriptors of the
 * test's process alone, so nothing is left behind whatever ends it.
 *
 * Needs root or user namespaces, and Debian's iproute2; without them the test is skipped with the
 * reason. Thread: the main one of a process, before it starts others. */
#ifndef PATH_HOSTS_H
#define PATH_HOSTS_H

#include <stddef.h>
#include <stdint.h>

#define PATH_HOSTS_MAX    8
#define PATH_RAILS_MAX    8
#define PATH_ADDR_BYTES   48
#define PATH_HEADER_BYTES 66 /* of a TCP segment over IPv4: Ethernet 14, IP 20, TCP 20, time 12 */
#define PATH_MTU          1500

struct path_rail {
    int host; /* at the other end, 1 or more */
    int kbit; /* per second, each way; 0: as fast as it goes */
    int subnet; /* rails with equal numbers share one */
};

struct path_hosts {
    int host_count, rail_count;
    int user_fd; /* -1: no user namespace was needed */
    int net_fds[PATH_HOSTS_MAX];
    struct path_rail rails[PATH_RAILS_MAX];
};

/* How a rail stops carrying. */
enum path_cut {
    PATH_CUT_SILENT, /* what is sent vanishes, both ways, and neither end can see it */
    PATH_CUT_ROUTE, /* both hosts lead what is for the other's address into a black hole */
    PATH_CUT_LINK /* the other end is set down: no carrier here */
};

/* Skips the test when it cannot make them. */
void path_hosts_make(struct path_hosts *hosts, const struct path_rail *rails, int rail_count);
void path_hosts_drop(struct path_hosts *hosts);
/* Moves the calling process to a host for good. */
void path_hosts_enter(const struct path_hosts *hosts, int host);
/* Runs a shell script on a host; it must succeed. */
void path_hosts_run(const struct path_hosts *hosts, int host, const char *script);

void path_rail_cut(const struct path_hosts *hosts, int rail, enum path_cut how);
/* As it was at first, shaping included, whatever was done to it. */
void path_rail_restore(const struct path_hosts *hosts, int rail);

/* The address of a rail's end as text; ipv6 0 or 1. host: 0, or any other for the other end. */
void path_rail_address(const struct path_hosts *hosts, int rail, int host, int ipv6,
                       char text_out[PATH_ADDR_BYTES]);
/* Payload per second that a shaped rail has room for, in full segments without jumbo frames. */
double path_rail_bytes(const struct path_rail *rail);

/* What an interface of the calling process's host has counted. */
struct path_counters {
    uint64_t recv_bytes, recv_packets, send_bytes, send_packets;
};
void path_counters_read(int rail, struct path_counters *counters_out);
/* Reads from outside what the interface of a rail of another host has counted. */
void path_host_counters(const struct path_hosts *hosts, int host, int rail,
                        struct path_counters *counters_out);
/* Whether the calling process's host has IPv6. */
int path_has_ipv6(void);

#endif

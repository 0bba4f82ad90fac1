/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts of `xccl net perf` hand each other: options and rows from net_perf.c, a pair of
 * connected sides from net_perf_run.c, what a side does from net_perf_side.c and net_perf_round.c,
 * the table and the JSON file from net_perf_table.c, the drawing from net_plot.c.
 *
 * The program itself opens no plugin: it forks the sides, tells them what to do over a socketpair
 * each, and looks after their deadlines, so that a plugin that crashes or hangs ends in a message.
 *
 * Thread: the program's main thread. */
#ifndef XCCL_TOOLS_NET_NET_PERF_H
#define XCCL_TOOLS_NET_NET_PERF_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "xccl_net.h"

struct cf_hosts; /* cf_hosts.h */

#define XCCL_NETPERF_FLOWS      64
#define XCCL_NETPERF_FLOW_LIST  8
#define XCCL_NETPERF_ROUNDS     99
#define XCCL_NETPERF_TEXT_BYTES 640

struct xccl_netperf_options {
    const char *item;
    const char *peer; /* what the receiver's side opens; NULL: item */
    const char *vs; /* the other plugin of the comparison; NULL: none */
    const char *device; /* name or number; NULL: the first */
    uint64_t min_bytes, max_bytes;
    int64_t factor;
    int64_t iters; /* messages of a flow in a round; 0: by time */
    uint64_t measure_ms; /* of a row and plugin */
    int64_t rounds;
    int64_t window; /* requests in flight a flow; 0: by size */
    int flows[XCCL_NETPERF_FLOW_LIST];
    int flow_count;
    int both, threads, wait, pin;
    const char *hosts_text; /* two namespaces, "" for a pair of our own, NULL: none */
    const struct cf_hosts *hosts; /* where each side goes; NULL: nowhere */
    uint64_t timeout_ms;
    const char *json_path, *plot_path;
};

/* What a side says of the plugin that it has opened. */
struct xccl_netperf_about {
    char path[512], contract[64], wire_id[64], device[64], provider[64];
    uint64_t max_bytes;
    uint32_t speed_mbps;
    int32_t needs_progress, can_sleep; /* can_sleep -1: not asked, without --wait */
    int32_t pid;
};

enum xccl_netperf_what { XCCL_NETPERF_LATENCY, XCCL_NETPERF_STREAM };

/* What both sides do next. */
struct xccl_netperf_round {
    int32_t what;
    int32_t check; /* 1: each message is compared as a whole when it has come */
    int32_t flows, both, window;
    uint32_t salt; /* other contents in each round */
    uint64_t bytes;
    uint64_t iters; /* a flow and direction; round trips over all flows in LATENCY */
    uint64_t barrier; /* what shared->arrived counts up to */
};

/* What one side has seen of a round, or both together. */
struct xccl_netperf_result {
    uint64_t start_ns, end_ns, cpu_ns;
    double p50_us, p99_us; /* of half a round trip; the first side's */
    double busy; /* processor time over time; of both together that of the busier one */
    /* What the slowest incoming flow has had when the quickest ended. 0: nothing comes in. */
    uint64_t least_bytes, first_end_ns;
};

/* Memory of both sides and the program. */
struct xccl_netperf_shared {
    _Alignas(64) _Atomic uint64_t arrived;
    /* Grows while a side gets on, so that the program can tell a long round from a hang. */
    struct {
        _Alignas(64) _Atomic uint64_t count;
    } moved[2];
};

/* Two sides that run one plugin, or two that should talk. Zero it before start. */
struct xccl_netperf_pair {
    const struct xccl_netperf_options *options;
    const char *items[2]; /* of the sending and the receiving side */
    struct {
        int fd;
        pid_t pid; /* 0: none, or it has been waited for */
        int wait_status;
    } sides[2];
    struct xccl_netperf_shared *shared;
    struct xccl_netperf_about about[2];
    uint64_t barrier;
    char doing[160]; /* for messages */
    char error[XCCL_NETPERF_TEXT_BYTES]; /* the first that was told */
};

/* Starts the sides and opens the plugin on both. These return 0 after an error, which has been told
 * and is in pair->error; the pair is then only good for stop. */
int xccl_netperf_pair_start(struct xccl_netperf_pair *pair,
                            const struct xccl_netperf_options *options, const char *first,
                            const char *second);
/* Connects flows in both directions. room_bytes: where messages of a side land. */
int xccl_netperf_pair_connect(struct xccl_netperf_pair *pair, int flows, uint64_t max_bytes,
                              uint64_t room_bytes);
/* One round, with the figures of both sides together. Sets barrier. */
int xccl_netperf_pair_round(struct xccl_netperf_pair *pair, struct xccl_netperf_round *round,
                            struct xccl_netperf_result *result_out);
/* Closes all in good order. */
int xccl_netperf_pair_finish(struct xccl_netperf_pair *pair);
/* Leaves no process behind; fine after each of the above, and for a zeroed pair. */
void xccl_netperf_pair_stop(struct xccl_netperf_pair *pair);

/* Requests in flight of a flow, and how far apart messages land. */
int xccl_netperf_window(const struct xccl_netperf_options *options, uint64_t bytes, int flows);
uint64_t xccl_netperf_stride(uint64_t bytes);

struct xccl_netperf_spread {
    double median, low, high;
};

/* One plugin in one row; arrays have a value a round. */
struct xccl_netperf_figure {
    double p50_us[XCCL_NETPERF_ROUNDS], p99_us[XCCL_NETPERF_ROUNDS];
    double gbs[XCCL_NETPERF_ROUNDS], cpu_s_gib[XCCL_NETPERF_ROUNDS];
    double mmsgs[XCCL_NETPERF_ROUNDS], busy[XCCL_NETPERF_ROUNDS];
    double least_gbs[XCCL_NETPERF_ROUNDS];
    uint64_t stream_iters, latency_iters;
};

struct xccl_netperf_row {
    uint64_t bytes;
    int flows, directions, window;
    int has_latency; /* not in rows of two directions */
    struct xccl_netperf_figure figures[2]; /* the second only with --vs */
};

/* All of it, for those who show it. */
struct xccl_netperf_job {
    const struct xccl_netperf_options *options;
    struct xccl_netperf_pair pairs[2];
    int pair_count;
    uint64_t max_bytes; /* what both plugins take */
    struct xccl_netperf_row *rows;
    size_t row_count;
};

struct xccl_netperf_spread xccl_netperf_spread_of(const double *values, int64_t count);
/* Above 1: the first plugin is better. */
struct xccl_netperf_spread xccl_netperf_gbs_ratio(const struct xccl_netperf_job *job,
                                                  const struct xccl_netperf_row *row);
struct xccl_netperf_spread xccl_netperf_latency_ratio(const struct xccl_netperf_job *job,
                                                      const struct xccl_netperf_row *row);

/* The table, on standard output. */
void xccl_netperf_table_head(const struct xccl_netperf_job *job);
void xccl_netperf_table_row(const struct xccl_netperf_job *job, const struct xccl_netperf_row *row);
/* Writes the table as one JSON object; error "": there was none. 0: it could not be written. */
int xccl_netperf_json_write(FILE *file, const struct xccl_netperf_job *job, const char *error);
/* Writes the table as a drawing (SVG). 0: it could not be written. */
int xccl_netperf_plot_write(FILE *file, const struct xccl_netperf_job *job);

/* xccl net perf: argv[0] is "perf". Returns the exit status. */
int xccl_net_perf_main(int argc, char **argv);
extern const char xccl_net_perf_help[];

#endif

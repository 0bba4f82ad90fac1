/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts of `xccl perf` hand each other: options from cmd_perf.c, test data from
 * perf_data.c, figures from perf_measure.c, the table and the JSON file from perf_table.c.
 *
 * Thread: the program's main thread; one rank a process. */
#ifndef XCCL_TOOLS_PERF_H
#define XCCL_TOOLS_PERF_H

#include <stdint.h>
#include <stdio.h>

#include "xccl.h"

#define XCCL_PERF_HOST_BYTES  60
#define XCCL_PERF_GUARD_BYTES 64 /* on both sides of the receive buffer */

struct xccl_perf_options {
    uint64_t min_bytes, max_bytes;
    uint64_t step_bytes; /* 0: sizes grow by factor */
    int64_t factor;
    int64_t iters;
    int64_t warmup_iters;
    int64_t check_runs;
    int64_t group_calls; /* calls in one group, which counts as that many iterations */
    int64_t nranks; /* to start; 0: not asked for */
    int iters_given; /* 1: exactly iters; 0: more where they take less than 20 ms */
    xcclDataType_t type;
    const char *json_path; /* NULL: none */
};

/* Predictable contents whose sum over all ranks is exact. They repeat every XCCL_PERF_PERIOD
 * elements, a prime, so that a chunk in a wrong place shows. */
#define XCCL_PERF_PERIOD 8191
struct xccl_perf_data {
    xcclDataType_t type;
    int rank, nranks;
    uint32_t mine[XCCL_PERF_PERIOD]; /* bits of this rank's elements */
    uint32_t sums[XCCL_PERF_PERIOD]; /* bits of the sums */
};

/* Other contents for each salt, so that old results do not pass for new ones. */
void xccl_perf_data_draw(struct xccl_perf_data *data, uint32_t salt);
void xccl_perf_data_fill(const struct xccl_perf_data *data, void *buffer, size_t count);
/* How many elements are not the sum. */
int64_t xccl_perf_data_wrong(const struct xccl_perf_data *data, const void *buffer, size_t count);
/* Guards around bytes at buffer, which has room for them; how many of their bytes have changed. */
void xccl_perf_guard_fill(char *buffer, size_t bytes);
int64_t xccl_perf_guard_wrong(const char *buffer, size_t bytes);

/* One measured way of one size. */
struct xccl_perf_figure {
    double time_us; /* of one call, the slowest rank's */
    double algbw, busbw; /* 10^9 bytes a second */
    int64_t wrong; /* over all ranks; -1: not checked */
    int64_t iters;
};

struct xccl_perf_row {
    uint64_t bytes, count;
    struct xccl_perf_figure out_of_place, in_place;
};

/* Where a rank runs. */
struct xccl_perf_place {
    int32_t pid;
    char host[XCCL_PERF_HOST_BYTES];
};

struct xccl_perf_job {
    const struct xccl_perf_options *options;
    xcclComm_t comm;
    int rank, nranks;
    int64_t wrong_here; /* this rank's own count so far */
    uint32_t salt;
    struct xccl_perf_data *data;
    char *send, *recv; /* recv has guards' room on both sides */
    char *memory[2]; /* what send and recv lie in */
    void *exchange[2]; /* one record a rank, in and out */
    struct xccl_perf_place *places;
};

/* Memory for a job whose comm, rank, nranks and options are set. */
xcclResult_t xccl_perf_job_init(struct xccl_perf_job *job);
void xccl_perf_job_fini(struct xccl_perf_job *job);
/* Tells every rank where all ranks run; fills job->places. */
xcclResult_t xccl_perf_exchange_places(struct xccl_perf_job *job);
/* Measures and checks one size. All ranks together. */
xcclResult_t xccl_perf_measure(struct xccl_perf_job *job, uint64_t bytes,
                               struct xccl_perf_row *row_out);

/* The table, on standard output. Rank 0 only. */
void xccl_perf_table_head(const struct xccl_perf_job *job);
void xccl_perf_table_row(const struct xccl_perf_job *job, const struct xccl_perf_row *row);
void xccl_perf_table_foot(const struct xccl_perf_job *job, const struct xccl_perf_row *rows,
                          size_t row_count);
/* The same as one JSON object; error NULL when there was none. 0 when it could not be written. */
int xccl_perf_json_write(FILE *file, const struct xccl_perf_job *job,
                         const struct xccl_perf_row *rows, size_t row_count, const char *error);

/* Starts `xccl` with these arguments again, as nranks ranks on this host (0: one a core, at least
 * two). Returns the exit status. */
int xccl_perf_start_ranks(int64_t nranks, char **argv);
/* Under a launcher that started nranks: 1 when this process is one of the ranks that are wanted (0:
 * any number). 0 with *status_out 0: the ranks are still to be started; else it is a usage error
 * that has been told. */
int xccl_perf_is_rank(int64_t wanted, int nranks, int *status_out);

/* xccl perf bootstrap: argv[1] is "bootstrap". Returns the exit status. */
int xccl_perf_bootstrap(int argc, char **argv);

#endif

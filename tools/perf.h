/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts of `xccl perf` hand each other: options from cmd_perf.c, what a collective is from
 * perf_coll.c, types from perf_type.c, test data from perf_data.c, the check of one call from
 * perf_check.c, figures from perf_measure.c, the table and the JSON file from perf_table.c.
 *
 * Thread: the program's main thread; one rank a process. */
#ifndef XCCL_TOOLS_PERF_H
#define XCCL_TOOLS_PERF_H

#include <stdint.h>
#include <stdio.h>

#include "xccl.h"

#define XCCL_PERF_HOST_BYTES  60
#define XCCL_PERF_GUARD_BYTES 64 /* on both sides of the receive buffer */

/* Of an algorithm's bandwidth, what its busiest wire carries: all, (n-1)/n, or 2(n-1)/n. */
enum xccl_perf_bus { XCCL_PERF_BUS_ALL, XCCL_PERF_BUS_OTHERS, XCCL_PERF_BUS_TWICE };

/* A collective. A buffer has one block, or with "all" one for each rank. */
struct xccl_perf_coll {
    const char *name;
    int which; /* perf_coll.c's */
    int reduces, rooted, empty; /* empty: it moves no data */
    int send_all, recv_all;
    int send_at_root, recv_at_root; /* the other ranks have no such buffer */
    int apart; /* there is no in-place form */
    int from_before; /* what comes is of the rank before */
    enum xccl_perf_bus bus;
};
extern const struct xccl_perf_coll xccl_perf_colls[]; /* ends without a name */

/* By name, however its words are joined; NULL when there is none. */
const struct xccl_perf_coll *xccl_perf_coll_find(const char *name);

/* A data type. */
struct xccl_perf_type {
    const char *name; /* nccl-tests' */
    const char *others; /* further names, with spaces between them */
    int bytes, is_signed;
    int exponent_bits, fraction_bits; /* of floats, else 0 */
};
extern const struct xccl_perf_type xccl_perf_types[]; /* by xcclDataType_t */
extern const char *const xccl_perf_ops[]; /* by xcclRedOp_t */

int xccl_perf_type_find(const char *name); /* -1: there is none */
int xccl_perf_op_find(const char *name);
/* The greatest power of two that a float type has, and the least. */
int xccl_perf_float_range(const struct xccl_perf_type *type, int *least_out);
/* To bits, which is exact or cut towards 0, and back; NAN for what is no finite number. */
uint64_t xccl_perf_float_bits(const struct xccl_perf_type *type, double value);
double xccl_perf_float_value(const struct xccl_perf_type *type, uint64_t bits);

struct xccl_perf_options {
    const struct xccl_perf_coll *coll;
    uint64_t min_bytes, max_bytes;
    uint64_t step_bytes; /* 0: sizes grow by factor */
    int64_t factor;
    int64_t iters;
    int64_t warmup_iters;
    int64_t check_runs;
    int64_t group_calls; /* calls in one group, which counts as that many iterations */
    int64_t nranks; /* to start; 0: not asked for */
    int64_t root; /* -1: each rank in turn */
    int iters_given; /* 1: exactly iters; 0: more where they take less than 20 ms */
    uint32_t types, ops; /* sets, one bit each */
    const char *json_path; /* NULL: none */
};

/* Contents repeat every XCCL_PERF_PERIOD elements, a prime, so that a chunk in a wrong place shows.
 */
#define XCCL_PERF_PERIOD 8191
struct xccl_perf_pattern {
    unsigned char bytes[XCCL_PERF_PERIOD * 8];
};

struct xccl_perf_data {
    xcclDataType_t type;
    xcclRedOp_t op;
    int reduces, nranks;
    uint32_t salt; /* other contents for each, so that old results do not pass for new ones */
    uint32_t span; /* elements of a pattern that are needed */
    double reals[XCCL_PERF_PERIOD]; /* the result, as floats have it */
};

/* Elements of a buffer that must be a pattern's from first on. */
struct xccl_perf_part {
    size_t first, count;
    int is_result; /* of a reduction; 0: they have only been moved */
};

/* What a rank contributes. */
void xccl_perf_pattern_draw(const struct xccl_perf_data *data, int rank,
                            struct xccl_perf_pattern *pattern);
/* What all of it gives when it is reduced. */
void xccl_perf_pattern_reduce(struct xccl_perf_data *data, struct xccl_perf_pattern *pattern);
/* Elements 0 to count - 1. */
void xccl_perf_pattern_fill(const struct xccl_perf_data *data,
                            const struct xccl_perf_pattern *pattern, char *at, size_t count);
/* How many elements at `at` are not as they must be. */
int64_t xccl_perf_pattern_wrong(const struct xccl_perf_data *data,
                                const struct xccl_perf_pattern *pattern, const char *at,
                                struct xccl_perf_part part);
/* Guards around bytes at buffer, which has room for them; how many of their bytes have changed. */
void xccl_perf_guard_fill(char *buffer, size_t bytes);
int64_t xccl_perf_guard_wrong(const char *buffer, size_t bytes);

/* One measured way of one size. */
struct xccl_perf_figure {
    double time_us; /* of one call, the slowest rank's */
    double algbw, busbw; /* 10^9 bytes a second */
    int64_t wrong; /* over all ranks; -1: not checked */
    int64_t iters; /* 0: there is no such way */
};

struct xccl_perf_row {
    uint64_t bytes, count;
    xcclDataType_t type;
    xcclRedOp_t op;
    int root; /* -1: none */
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
    xcclDataType_t type; /* of the calls that are measured now */
    xcclRedOp_t op;
    int root;
    int64_t wrong_here; /* this rank's own count so far */
    struct xccl_perf_data *data;
    struct xccl_perf_pattern *patterns[2]; /* this rank's, and what a buffer is compared with */
    char *send, *recv; /* recv has guards' room on both sides */
    char *memory[2]; /* what send and recv lie in */
    void *exchange[2]; /* one record a rank, in and out */
    struct xccl_perf_place *places;
};

/* A size for this rank: what the call is given, and bytes; 0 for a buffer that it has not. */
struct xccl_perf_shape {
    size_t count, block;
    size_t bytes; /* as the table has it */
    size_t send, recv;
};
struct xccl_perf_shape xccl_perf_shape_of(const struct xccl_perf_job *job, uint64_t bytes);
double xccl_perf_bus_factor(const struct xccl_perf_job *job);
/* One call of what is measured. */
xcclResult_t xccl_perf_call(const struct xccl_perf_job *job, const void *send, void *recv,
                            size_t count);

/* Where the buffers of a call lie; those that a rank has not: NULL in place, and otherwise memory
 * that must stay as it is. */
struct xccl_perf_buffers {
    char *send, *recv;
    char *written; /* what guards are around: recv, and in place send too */
    size_t written_bytes;
};
struct xccl_perf_buffers xccl_perf_buffers_of(const struct xccl_perf_job *job,
                                              const struct xccl_perf_shape *shape, int in_place);
/* New contents for the next call. */
void xccl_perf_check_begin(struct xccl_perf_job *job, const struct xccl_perf_shape *shape,
                           int in_place);
/* After that call: adds to job->wrong_here what is wrong on this rank. */
void xccl_perf_check_end(struct xccl_perf_job *job, const struct xccl_perf_shape *shape,
                         int in_place);

/* Memory for a job whose comm, rank, nranks and options are set. */
xcclResult_t xccl_perf_job_init(struct xccl_perf_job *job);
void xccl_perf_job_fini(struct xccl_perf_job *job);
/* Tells every rank where all ranks run; fills job->places. */
xcclResult_t xccl_perf_exchange_places(struct xccl_perf_job *job);
/* Every rank gives words of 32 bits, up to a place's, and gets everybody's, in rank order, in
 * job->exchange[1]. */
xcclResult_t xccl_perf_exchange(struct xccl_perf_job *job, const void *own, size_t words);
/* Measures and checks one size of the job's type, op and root. All ranks together. */
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

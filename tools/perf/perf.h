/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts of `xccl perf` hand each other: options from perf_options.c, ranks from
 * perf_rank.c, what a collective is from perf_coll.c and its call from perf_call.c, types from
 * perf_type.c, test data from perf_data.c, the check of one call from perf_check.c, figures from
 * perf_measure.c, buffers on a CUDA device from perf_device.c, the rows of a run from perf_sizes.c,
 * MPI's from perf_vs_mpi.c, tables from perf_table.c, JSON from perf_json.c, the drawing from
 * perf_plot.c.
 *
 * Thread: a job belongs to one rank, thus to one thread; options do not change once read. */
#ifndef XCCL_TOOLS_PERF_PERF_H
#define XCCL_TOOLS_PERF_PERF_H

#include <stdint.h>
#include <stdio.h>

#include "xccl.h"

#define XCCL_PERF_HOST_BYTES  60
#define XCCL_PERF_SINGLE_MAX  10000 /* samples of single calls */
#define XCCL_PERF_GUARD_BYTES 64 /* on both sides of the receive buffer */
#define XCCL_PERF_MARGINS     8192u /* what memory of a job has more than its buffers */

/* Of an algorithm's bandwidth, what its busiest wire carries: all, (n-1)/n, or 2(n-1)/n. */
enum xccl_perf_bus { XCCL_PERF_BUS_ALL, XCCL_PERF_BUS_OTHERS, XCCL_PERF_BUS_TWICE };

enum xccl_perf_which {
    XCCL_PERF_ALL_REDUCE,
    XCCL_PERF_ALL_GATHER,
    XCCL_PERF_BROADCAST,
    XCCL_PERF_REDUCE,
    XCCL_PERF_REDUCE_SCATTER,
    XCCL_PERF_ALLTOALL,
    XCCL_PERF_GATHER,
    XCCL_PERF_SCATTER,
    XCCL_PERF_SENDRECV,
    XCCL_PERF_ALL_GATHERV,
    XCCL_PERF_REDUCE_SCATTERV,
    XCCL_PERF_ALLTOALLV,
    XCCL_PERF_BARRIER,
    XCCL_PERF_PING, /* there and back, between ranks 0 and 1 */
    XCCL_PERF_MESSAGE /* from the job's root to its peer */
};

/* A collective. A buffer has one block, or with "all" one for each rank. */
struct xccl_perf_coll {
    const char *name;
    enum xccl_perf_which which;
    int reduces, rooted, empty; /* empty: it moves no data */
    int uneven; /* blocks of different sizes */
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

struct xccl_perf_job;

/* What `xccl perf` can be asked for: the collectives are one, latency and groups others. */
struct xccl_perf_part {
    const char *name; /* NULL: a collective's name is the first word */
    const char *takes; /* which options, as perf_options.c numbers them */
    /* On every rank, once it has joined; rank 0 shows. */
    xcclResult_t (*run)(struct xccl_perf_job *job);
    /* Behind what is the same for all. Rank 0 only. */
    void (*json)(FILE *file, const struct xccl_perf_job *job);
};
extern const struct xccl_perf_part xccl_perf_sizes, xccl_perf_latency, xccl_perf_groups;

struct xccl_perf_options {
    const struct xccl_perf_part *part;
    const struct xccl_perf_coll *coll; /* of xccl_perf_sizes */
    uint64_t min_bytes, max_bytes;
    uint64_t step_bytes; /* 0: sizes grow by factor */
    int64_t factor;
    int64_t iters;
    int64_t warmup_iters;
    int64_t check_runs;
    int64_t group_calls; /* calls in one group, which counts as that many iterations */
    int64_t nranks; /* to start, with all their threads; 0: not asked for */
    int64_t threads; /* ranks of one process; 0: not asked for */
    int64_t root; /* -1: each rank in turn */
    int iters_given; /* 1: exactly iters; 0: more where they take less than 20 ms */
    uint32_t types, ops; /* sets, one bit each */
    int single; /* 1: percentiles of single calls too */
    int64_t registers; /* 1: buffers of xcclMemAlloc; 2: private ones, registered */
    int device; /* 1: buffers are on CUDA devices, as XCCL_DEVICE says */
    int64_t graph_launches; /* of a graph of the calls; 0: none is made */
    int vs_mpi;
    int64_t group_count, comm_count; /* of xccl_perf_groups */
    uint64_t seed;
    int seed_given;
    const char *json_path, *plot_path; /* NULL: none */
    const char *command; /* the words of the command line */
};

/* Fills options of argv, whose first word is perf; an exit status, after a message when it is not
 * 0. */
int xccl_perf_options_read(int argc, char **argv, struct xccl_perf_options *options);
void xccl_perf_options_fini(struct xccl_perf_options *options);
/* The size after bytes, and how many sizes there are. */
uint64_t xccl_perf_next_size(const struct xccl_perf_options *options, uint64_t bytes);
size_t xccl_perf_count_sizes(const struct xccl_perf_options *options);

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
struct xccl_perf_stretch {
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
                                struct xccl_perf_stretch part);
/* Guards around bytes at buffer, which has room for them; how many of their bytes have changed. */
void xccl_perf_guard_fill(char *buffer, size_t bytes);
int64_t xccl_perf_guard_wrong(const char *buffer, size_t bytes);

/* Of single calls, on the slowest rank each. */
struct xccl_perf_spread {
    double min_us, p50_us, p90_us, p99_us, max_us;
    int64_t iters; /* 0: not measured */
};

/* MPI's of the same, and how many times as long ours takes. */
struct xccl_perf_beside {
    double time_us, busbw; /* 0: MPI has no such form, or was not asked */
    double ratio, ratio_low, ratio_high; /* of the medians; over the rounds */
    int64_t wrong; /* -1: not checked */
};

/* One measured way of one size. */
struct xccl_perf_figure {
    double time_us; /* of one call, the slowest rank's */
    double algbw, busbw; /* 10^9 bytes a second */
    int64_t wrong; /* over all ranks; -1: not checked */
    int64_t iters; /* 0: there is no such way */
    struct xccl_perf_spread single;
    struct xccl_perf_beside mpi;
};

struct xccl_perf_row {
    const struct xccl_perf_coll *coll;
    int nranks;
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
    char device[XCCL_PERF_HOST_BYTES]; /* as the table has it */
};

/* What xccl_perf_groups has done. */
struct xccl_perf_tally {
    uint64_t seed;
    int64_t groups, calls, messages, empty; /* of all ranks together; empty: without elements */
    int64_t wrong; /* elements, over all ranks */
    double seconds;
};

/* The blocks of buffers that have one for each rank: an element count and where it begins. */
enum { XCCL_PERF_SENT, XCCL_PERF_SENT_AT, XCCL_PERF_GOT, XCCL_PERF_GOT_AT, XCCL_PERF_BLOCKS };

struct xccl_perf_mpi; /* perf_vs_mpi.h */
struct xccl_perf_device; /* perf_device.h */
struct xccl_perf_job {
    const struct xccl_perf_options *options;
    const struct xccl_perf_coll *coll; /* what is called now */
    xcclComm_t comm; /* what is measured */
    xcclComm_t control; /* of the same ranks on host memory, for the ranks' own words; or comm */
    void *stream; /* of comm's calls */
    struct xccl_perf_device *device; /* NULL: the buffers of calls are the host's */
    int rank, nranks;
    xcclDataType_t type; /* of the calls that are measured now */
    xcclRedOp_t op;
    int root, peer; /* peer: a message's receiver */
    uint32_t salt; /* of the last contents */
    int64_t wrong_here; /* this rank's own count so far */
    struct xccl_perf_data *data;
    struct xccl_perf_pattern *patterns[2]; /* this rank's, and what a buffer is compared with */
    char *send, *recv; /* recv has guards' room on both sides */
    char *memory[2]; /* what send and recv lie in */
    void *(*take)(size_t bytes); /* NULL: private memory */
    void (*give)(void *memory);
    void *exchange[2]; /* one record a rank, in and out */
    size_t *blocks[XCCL_PERF_BLOCKS]; /* of the shape that was asked for last */
    uint64_t *samples; /* of single calls; NULL: none are wanted */
    struct xccl_perf_place *places;
    struct xccl_perf_row *rows;
    size_t row_count, row_room;
    struct xccl_perf_tally tally;
    struct xccl_perf_mpi *mpi; /* rank 0's; NULL: none */
    char mpi_library[96]; /* "": none */
    uint64_t begin_ns; /* of the measurement */
};

/* A size for this rank: what the call is given, and bytes; 0 for a buffer that it has not. */
struct xccl_perf_shape {
    size_t count; /* of one block; of all where they are uneven */
    size_t bytes; /* as the table has it */
    size_t send, recv;
    size_t own, own_count; /* this rank's block in a buffer with one for each */
};
/* Fills job->blocks too. */
struct xccl_perf_shape xccl_perf_shape_of(struct xccl_perf_job *job, uint64_t bytes);
/* Where in the buffer of rank `from`, which has a block for each rank, this rank's begins. */
size_t xccl_perf_first_of(const struct xccl_perf_job *job, const struct xccl_perf_shape *shape,
                          int from);
double xccl_perf_bus_factor(const struct xccl_perf_coll *coll, int nranks);
/* One call of what is measured. */
xcclResult_t xccl_perf_call(const struct xccl_perf_job *job, const void *send, void *recv,
                            size_t count);
/* For take and give of a job: memory of xcclMemAlloc. */
void *xccl_perf_take_shared(size_t bytes);
void xccl_perf_give_shared(void *memory);
/* The job's buffers of so many bytes, until its communicator goes. */
xcclResult_t xccl_perf_register(const struct xccl_perf_job *job, size_t bytes);

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
/* After that call, with the contents of job->salt: adds to job->wrong_here what is wrong on this
 * rank. */
void xccl_perf_check_end(struct xccl_perf_job *job, const struct xccl_perf_shape *shape,
                         int in_place);
/* Its first part: the blocks that this rank has received, from recv on; how many are wrong. */
int64_t xccl_perf_check_blocks(struct xccl_perf_job *job, const struct xccl_perf_shape *shape,
                               const char *recv);
/* Sets job->data for the contents of job->salt. */
void xccl_perf_check_data(struct xccl_perf_job *job, const struct xccl_perf_shape *shape);

/* How many calls the next batch has when one of iters took us; 0: it was long enough. */
int64_t xccl_perf_next_iters(int64_t iters, double us);

/* Memory for a job whose comm, rank, nranks and options are set, with buffers of so many bytes. */
xcclResult_t xccl_perf_job_init(struct xccl_perf_job *job, size_t bytes);
void xccl_perf_job_fini(struct xccl_perf_job *job);
/* Tells every rank where all ranks run; fills job->places. */
xcclResult_t xccl_perf_exchange_places(struct xccl_perf_job *job);
/* Every rank gives words of 32 bits, up to a place's, and gets everybody's, in rank order, in
 * job->exchange[1]. */
xcclResult_t xccl_perf_exchange(struct xccl_perf_job *job, const void *own, size_t words);
/* How many wrong elements all ranks have found since job->wrong_here was `before`. */
xcclResult_t xccl_perf_exchange_wrong(struct xccl_perf_job *job, int64_t before,
                                      int64_t *wrong_out);
/* Measures and checks one size of the job's coll, type, op and root. All ranks together. */
xcclResult_t xccl_perf_measure(struct xccl_perf_job *job, uint64_t bytes,
                               struct xccl_perf_row *row_out);
/* The time of all calls of one batch on the slowest rank, after the warm-up. *iters_io grows until
 * that is a measurement, unless exact. */
xcclResult_t xccl_perf_time(struct xccl_perf_job *job, const struct xccl_perf_shape *shape,
                            int in_place, int exact, int64_t *iters_io, double *us_out);

#define XCCL_PERF_LATENCY_ROWS 128 /* at most, of one size */

/* All sizes of the job's coll, type, op and root, with rows shown by rank 0. */
xcclResult_t xccl_perf_run_sizes(struct xccl_perf_job *job);
/* An exit status: whether the ranks of this run can do what is asked; rank 0 says why not. */
int xccl_perf_rows_init(struct xccl_perf_job *job);

/* The table, on standard output. Rank 0 only. */
void xccl_perf_table_head(const struct xccl_perf_job *job);
void xccl_perf_table_row(const struct xccl_perf_job *job, const struct xccl_perf_row *row);
void xccl_perf_table_foot(const struct xccl_perf_job *job);
/* The lines above every part's own: version, ranks, settings, devices. */
void xccl_perf_head_run(const struct xccl_perf_job *job);
void xccl_perf_head_devices(const struct xccl_perf_job *job);
const char *xccl_perf_type_name(const struct xccl_perf_row *row);
const char *xccl_perf_op_name(const struct xccl_perf_row *row);
/* The word of an ENUM setting as it takes effect, or a STRING. */
const char *xccl_perf_setting(int param_id);
int64_t xccl_perf_wrong_total(const struct xccl_perf_job *job);
double xccl_perf_busbw_average(const struct xccl_perf_job *job);
/* Above each part's JSON stands what is the same for all; below it the error. */
void xccl_perf_json_sizes(FILE *file, const struct xccl_perf_job *job);
/* Writes the table as one JSON object; error NULL: there was none. 0: it could not be written. */
int xccl_perf_json_write(FILE *file, const struct xccl_perf_job *job, const char *error);
void xccl_perf_json_spread(FILE *file, const struct xccl_perf_spread *spread);
/* Writes the table as a drawing (SVG). 0: it could not be written. */
int xccl_perf_plot_write(FILE *file, const struct xccl_perf_job *job);
/* How far a long run is, on a terminal. Rank 0 only; from its thread. */
void xccl_perf_progress(const struct xccl_perf_job *job, const char *what, int64_t done,
                        int64_t total);
/* Takes that away again, before other lines. */
void xccl_perf_progress_clear(void);

/* What threads wait at until all of them have been started. */
struct xccl_perf_gate;
/* 0: the others could not be started. gate NULL: 1 at once. */
int xccl_perf_gate_pass(struct xccl_perf_gate *gate);
struct xccl_perf_gate *xccl_perf_gate_create(void);
void xccl_perf_gate_destroy(struct xccl_perf_gate *gate);
/* Runs run() on a thread for each of count items of item_bytes, and waits for all. Each passes the
 * gate once. 0 after a message: not all could be started, and none has passed. */
int xccl_perf_crowd_run(struct xccl_perf_gate *gate, void *items, size_t item_bytes, int count,
                        void *(*run)(void *item));

/* Runs the options' part on the ranks of this process. Returns the exit status. */
int xccl_perf_run_ranks(const struct xccl_perf_options *options, int first_rank, int nranks);

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

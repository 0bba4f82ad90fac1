/* SPDX-License-Identifier: BSD-3-Clause */
/* Shows the figures: a table with the columns of nccl-tests, and behind them, where asked for,
 * percentiles and MPI's time. And how far a long run is, on a terminal.
 *
 * Thread: rank 0's. */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/param.h"
#include "perf/perf.h"
#include "perf/perf_vs_mpi.h"
#include "plugin/net_default.h"

#define PROGRESS_AFTER_NS (2 * XCCL_NS_PER_S) /* shorter runs need none */
#define PROGRESS_EACH_NS  (200 * XCCL_NS_PER_MS)
#define SINGLE_HEAD       "     min      p50      p90      p99      max"
#define MPI_HEAD          "     MPI   ratio"

const char *xccl_perf_type_name(const struct xccl_perf_row *row)
{
    return row->coll->empty ? "none" : xccl_perf_types[row->type].name;
}

const char *xccl_perf_op_name(const struct xccl_perf_row *row)
{
    return row->coll->reduces ? xccl_perf_ops[row->op] : "none";
}

int64_t xccl_perf_wrong_total(const struct xccl_perf_job *job)
{
    int64_t total = 0;

    for (size_t i = 0; i < job->row_count; i++) {
        if (job->rows[i].out_of_place.wrong > 0)
            total += job->rows[i].out_of_place.wrong;
        if (job->rows[i].in_place.wrong > 0)
            total += job->rows[i].in_place.wrong;
    }
    return total;
}

/* Over all ways of every size. */
double xccl_perf_busbw_average(const struct xccl_perf_job *job)
{
    double sum = 0;
    size_t ways = 0;

    for (size_t i = 0; i < job->row_count; i++) {
        sum += job->rows[i].out_of_place.busbw + job->rows[i].in_place.busbw;
        ways += job->rows[i].in_place.iters ? 2 : 1;
    }
    return ways ? sum / (double)ways : 0;
}

const char *xccl_perf_setting(int param_id)
{
    struct xccl_param_info info;

    xccl_param_info((enum xccl_param_id)param_id, &info);
    return info.value && *info.value ? info.value : info.fallback;
}

void xccl_perf_head_run(const struct xccl_perf_job *job)
{
    const struct xccl_perf_options *options = job->options;
    int version = 0;

    if (xcclGetVersion(&version) != xcclSuccess)
        version = 0;
    printf("# xccl perf %s: library %d.%d.%d, %d ranks\n",
           options->part->name ? options->part->name : options->coll->name, version / 10000,
           version / 100 % 100, version % 100, job->nranks);
}

void xccl_perf_head_devices(const struct xccl_perf_job *job)
{
    printf("# shared memory: %s, network plugin: %s, algorithm: %s\n",
           xccl_param_int(XCCL_P_SHM_DISABLE) ? "off" : "on",
           xccl_net_list_items(xccl_perf_setting(XCCL_P_NET_PLUGIN)),
           xccl_perf_setting(XCCL_P_ALGO));
    if (job->mpi)
        printf("# MPI: %s\n", xccl_perf_mpi_library(job->mpi));
    printf("#\n# Using devices\n");
    for (int i = 0; i < job->nranks; i++)
        printf("#  Rank %3d Pid %6d on %10s device %s\n", i, job->places[i].pid,
               job->places[i].host, job->places[i].device);
    printf("#\n");
}

/* One line of the head: the words above one way's columns, twice. */
static void head_line(const struct xccl_perf_options *options, const char *const first[5],
                      const char *const figure[4], const char *const more[2])
{
    printf("# %10s  %12s  %8s  %6s  %6s  ", first[0], first[1], first[2], first[3], first[4]);
    for (int i = 0; i < 2; i++) {
        printf("%s%7s  %6s  %6s %6s", i ? "  " : "", figure[0], figure[1], figure[2], figure[3]);
        if (options->single)
            printf("%*s", (int)strlen(SINGLE_HEAD), more[0]);
        if (options->vs_mpi)
            printf("%*s", (int)strlen(MPI_HEAD), more[1]);
    }
    printf("\n");
}

/* The names of the two ways, above the middle of their columns. */
static void head_ways(const struct xccl_perf_options *options)
{
    int wide = 30 + (options->single ? (int)strlen(SINGLE_HEAD) : 0) +
               (options->vs_mpi ? (int)strlen(MPI_HEAD) : 0);

    printf("# %10s  %12s  %8s  %6s  %6s  %*s%*s\n", "", "", "", "", "", (wide - 30) / 2 + 21,
           "out-of-place", wide + 1, "in-place");
}

void xccl_perf_table_head(const struct xccl_perf_job *job)
{
    static const char *const names[] = {"size", "count", "type", "redop", "root"};
    static const char *const units[] = {"(B)", "(elements)", "", "", ""};
    static const char *const figures[] = {"time", "algbw", "busbw", "#wrong"};
    static const char *const figure_units[] = {"(us)", "(GB/s)", "(GB/s)", ""};
    static const char *const more[] = {SINGLE_HEAD, MPI_HEAD};
    static const char *const more_units[] = {"(us)", "(us)  ours/MPI"};
    const struct xccl_perf_options *options = job->options;

    xccl_perf_head_run(job);
    printf("# minBytes %" PRIu64 " maxBytes %" PRIu64 " ", options->min_bytes, options->max_bytes);
    if (options->step_bytes)
        printf("step: %" PRIu64 "(bytes)", options->step_bytes);
    else
        printf("step: %" PRId64 "(factor)", options->factor);
    printf(" warmup iters: %" PRId64 " iters: %" PRId64 "%s agg iters: %" PRId64
           " validation: %" PRId64 "\n",
           options->warmup_iters, options->iters, options->iters_given ? "" : " or more, for 20 ms",
           options->group_calls, options->check_runs);
    xccl_perf_head_devices(job);
    head_ways(options);
    head_line(options, names, figures, more);
    head_line(options, units, figure_units, more_units);
    fflush(stdout);
}

static void print_us(double us)
{
    printf("%8.*f", us < 10 ? 3 : us < 1000 ? 2 : 1, us);
}

static void print_single(const struct xccl_perf_spread *spread)
{
    const double values[] = {spread->min_us, spread->p50_us, spread->p90_us, spread->p99_us,
                             spread->max_us};

    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        printf(" ");
        if (spread->iters)
            print_us(values[i]);
        else
            printf("%8s", "N/A");
    }
}

static void print_beside(const struct xccl_perf_beside *beside)
{
    if (beside->time_us > 0)
        print_us(beside->time_us);
    else
        printf("%8s", "N/A");
    if (beside->time_us > 0)
        printf("%8.2f", beside->ratio);
    else
        printf("%8s", "N/A");
}

static void print_figure(const struct xccl_perf_options *options,
                         const struct xccl_perf_figure *figure)
{
    int digits = figure->time_us < 10 ? 3 : figure->time_us < 1000 ? 2 : 1;

    if (!figure->iters) {
        printf("  %7s  %6s  %6s %6s", "N/A", "N/A", "N/A", "N/A");
    } else {
        printf("  %7.*f  %6.2f  %6.2f", digits, figure->time_us, figure->algbw, figure->busbw);
        if (figure->wrong < 0)
            printf(" %6s", "N/A");
        else
            printf(" %6" PRId64, figure->wrong);
    }
    if (options->single)
        print_single(&figure->single);
    if (options->vs_mpi)
        print_beside(&figure->mpi);
}

void xccl_perf_table_row(const struct xccl_perf_job *job, const struct xccl_perf_row *row)
{
    printf("%12" PRIu64 "  %12" PRIu64 "  %8s  %6s  %6d", row->bytes, row->count,
           xccl_perf_type_name(row), xccl_perf_op_name(row), row->root);
    print_figure(job->options, &row->out_of_place);
    print_figure(job->options, &row->in_place);
    printf("\n");
    /* Long sizes take long: show each as it is known. */
    fflush(stdout);
}

/* A wrong value of MPI's is worth a line, but no failure of ours. */
static int64_t mpi_wrong(const struct xccl_perf_job *job)
{
    int64_t total = 0;

    for (size_t i = 0; i < job->row_count; i++) {
        if (job->rows[i].out_of_place.mpi.wrong > 0)
            total += job->rows[i].out_of_place.mpi.wrong;
        if (job->rows[i].in_place.mpi.wrong > 0)
            total += job->rows[i].in_place.mpi.wrong;
    }
    return total;
}

void xccl_perf_table_foot(const struct xccl_perf_job *job)
{
    int64_t wrong = xccl_perf_wrong_total(job);

    printf("# Out of bounds values : %" PRId64 " %s\n", wrong, wrong ? "FAILED" : "OK");
    if (job->mpi)
        printf("# Out of bounds, MPI   : %" PRId64 "\n", mpi_wrong(job));
    printf("# Avg bus bandwidth    : %g\n#\n", xccl_perf_busbw_average(job));
    fflush(stdout);
}

/* ---- progress ---- */

static uint64_t progress_ns; /* when it was shown last; 0: it is not on the screen */

void xccl_perf_progress(const struct xccl_perf_job *job, const char *what, int64_t done,
                        int64_t total)
{
    uint64_t now = xccl_clock_ns();

    if (now - job->begin_ns < PROGRESS_AFTER_NS || now - progress_ns < PROGRESS_EACH_NS ||
        !isatty(STDERR_FILENO))
        return;
    progress_ns = now;
    fprintf(stderr, "\r\033[K%" PRId64 " of %" PRId64 " %s, %.0f s", done, total, what,
            (double)(now - job->begin_ns) / 1e9);
}

void xccl_perf_progress_clear(void)
{
    if (progress_ns)
        fprintf(stderr, "\r\033[K");
    progress_ns = 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Shows the figures: a table with the columns of nccl-tests, and the same as JSON for programs.
 *
 * Thread: the program's main thread. */
#include <inttypes.h>
#include <string.h>

#include "base/param.h"
#include "json_text.h"
#include "perf.h"

static const char *type_name(const struct xccl_perf_job *job, const struct xccl_perf_row *row)
{
    return job->options->coll->empty ? "none" : xccl_perf_types[row->type].name;
}

static const char *op_name(const struct xccl_perf_job *job, const struct xccl_perf_row *row)
{
    return job->options->coll->reduces ? xccl_perf_ops[row->op] : "none";
}

static int64_t wrong_total(const struct xccl_perf_row *rows, size_t row_count)
{
    int64_t total = 0;

    for (size_t i = 0; i < row_count; i++) {
        if (rows[i].out_of_place.wrong > 0)
            total += rows[i].out_of_place.wrong;
        if (rows[i].in_place.wrong > 0)
            total += rows[i].in_place.wrong;
    }
    return total;
}

/* Over all ways of every size. */
static double busbw_average(const struct xccl_perf_row *rows, size_t row_count)
{
    double sum = 0;
    size_t ways = 0;

    for (size_t i = 0; i < row_count; i++) {
        sum += rows[i].out_of_place.busbw + rows[i].in_place.busbw;
        ways += rows[i].in_place.iters ? 2 : 1;
    }
    return ways ? sum / (double)ways : 0;
}

/* The word of an ENUM setting as it takes effect, or a STRING. */
static const char *setting_text(enum xccl_param_id id)
{
    struct xccl_param_info info;

    xccl_param_info(id, &info);
    return info.value && *info.value ? info.value : info.fallback;
}

static const char *shm_text(void)
{
    return xccl_param_int(XCCL_P_SHM_DISABLE) ? "off" : "on";
}

void xccl_perf_table_head(const struct xccl_perf_job *job)
{
    const struct xccl_perf_options *options = job->options;
    int version = 0;

    if (xcclGetVersion(&version) != xcclSuccess)
        version = 0;
    printf("# xccl perf %s: library %d.%d.%d, %d ranks\n", options->coll->name, version / 10000,
           version / 100 % 100, version % 100, job->nranks);
    printf("# minBytes %" PRIu64 " maxBytes %" PRIu64 " ", options->min_bytes, options->max_bytes);
    if (options->step_bytes)
        printf("step: %" PRIu64 "(bytes)", options->step_bytes);
    else
        printf("step: %" PRId64 "(factor)", options->factor);
    printf(" warmup iters: %" PRId64 " iters: %" PRId64 "%s agg iters: %" PRId64
           " validation: %" PRId64 "\n",
           options->warmup_iters, options->iters, options->iters_given ? "" : " or more, for 20 ms",
           options->group_calls, options->check_runs);
    printf("# shared memory: %s, network plugin: %s, algorithm: %s\n", shm_text(),
           setting_text(XCCL_P_NET_PLUGIN), setting_text(XCCL_P_ALGO));
    printf("#\n# Using devices\n");
    for (int i = 0; i < job->nranks; i++)
        printf("#  Rank %3d Pid %6d on %10s device host memory\n", i, job->places[i].pid,
               job->places[i].host);
    printf("#\n");
    printf("# %10s  %12s  %8s  %6s  %6s  %s\n", "", "", "", "", "",
           "         out-of-place                       in-place");
    printf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s %6s  %7s  %6s  %6s %6s\n", "size", "count",
           "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw",
           "#wrong");
    printf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s %6s  %7s  %6s  %6s %6s\n", "(B)",
           "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)",
           "");
    fflush(stdout);
}

static void print_figure(const struct xccl_perf_figure *figure)
{
    int digits = figure->time_us < 10 ? 3 : figure->time_us < 1000 ? 2 : 1;

    if (!figure->iters) {
        printf("  %7s  %6s  %6s %6s", "N/A", "N/A", "N/A", "N/A");
        return;
    }
    printf("  %7.*f  %6.2f  %6.2f", digits, figure->time_us, figure->algbw, figure->busbw);
    if (figure->wrong < 0)
        printf(" %6s", "N/A");
    else
        printf(" %6" PRId64, figure->wrong);
}

void xccl_perf_table_row(const struct xccl_perf_job *job, const struct xccl_perf_row *row)
{
    printf("%12" PRIu64 "  %12" PRIu64 "  %8s  %6s  %6d", row->bytes, row->count,
           type_name(job, row), op_name(job, row), row->root);
    print_figure(&row->out_of_place);
    print_figure(&row->in_place);
    printf("\n");
    /* Long sizes take long: show each as it is known. */
    fflush(stdout);
}

void xccl_perf_table_foot(const struct xccl_perf_job *job, const struct xccl_perf_row *rows,
                          size_t row_count)
{
    int64_t wrong = wrong_total(rows, row_count);

    (void)job;
    printf("# Out of bounds values : %" PRId64 " %s\n", wrong, wrong ? "FAILED" : "OK");
    printf("# Avg bus bandwidth    : %g\n#\n", busbw_average(rows, row_count));
    fflush(stdout);
}

static void json_figure(FILE *file, const char *name, const struct xccl_perf_figure *figure)
{
    if (!figure->iters) {
        fprintf(file, "\"%s\": null", name);
        return;
    }
    fprintf(file, "\"%s\": {\"time\": %.4f, \"alg_bw\": %.6f, \"bus_bw\": %.6f, \"nwrong\": ", name,
            figure->time_us, figure->algbw, figure->busbw);
    if (figure->wrong < 0)
        fprintf(file, "null");
    else
        fprintf(file, "%" PRId64, figure->wrong);
    fprintf(file, ", \"iters\": %" PRId64 "}", figure->iters);
}

static void json_config(FILE *file, const struct xccl_perf_job *job)
{
    const struct xccl_perf_options *options = job->options;
    int version = 0;

    if (xcclGetVersion(&version) != xcclSuccess)
        version = 0;
    fprintf(file,
            "  \"collective\": \"%s\",\n  \"xccl_version\": \"%d.%d.%d\",\n"
            "  \"config\": {\"nranks\": %d, \"min_bytes\": %" PRIu64 ", \"max_bytes\": %" PRIu64
            ", \"step_factor\": %" PRId64 ", \"step_bytes\": %" PRIu64
            ", \"warmup_iters\": %" PRId64 ", \"iters\": %" PRId64
            ", \"iters_exact\": %s, \"agg_iters\": %" PRId64 ", \"validation\": %s,\n",
            options->coll->name, version / 10000, version / 100 % 100, version % 100, job->nranks,
            options->min_bytes, options->max_bytes, options->step_bytes ? 0 : options->factor,
            options->step_bytes, options->warmup_iters, options->iters,
            options->iters_given ? "true" : "false", options->group_calls,
            options->check_runs ? "true" : "false");
    fprintf(file, "    \"shared_memory\": %s, \"net_plugin\": ",
            xccl_param_int(XCCL_P_SHM_DISABLE) ? "false" : "true");
    xccl_json_text(file, setting_text(XCCL_P_NET_PLUGIN));
    fprintf(file, ", \"algorithm\": ");
    xccl_json_text(file, setting_text(XCCL_P_ALGO));
    fprintf(file, "},\n  \"devices\": [");
    for (int i = 0; i < job->nranks; i++) {
        fprintf(file, "%s\n    {\"rank\": %d, \"pid\": %d, \"host\": ", i ? "," : "", i,
                job->places ? job->places[i].pid : 0);
        xccl_json_text(file, job->places ? job->places[i].host : "");
        fprintf(file, ", \"device\": \"host memory\"}");
    }
    fprintf(file, "\n  ],\n");
}

int xccl_perf_json_write(FILE *file, const struct xccl_perf_job *job,
                         const struct xccl_perf_row *rows, size_t row_count, const char *error)
{
    int64_t wrong = wrong_total(rows, row_count);

    fprintf(file, "{\n");
    json_config(file, job);
    fprintf(file, "  \"results\": [");
    for (size_t i = 0; i < row_count; i++) {
        fprintf(file,
                "%s\n    {\"size\": %" PRIu64 ", \"count\": %" PRIu64
                ", \"type\": \"%s\", \"redop\": \"%s\", \"root\": %d,\n     ",
                i ? "," : "", rows[i].bytes, rows[i].count, type_name(job, &rows[i]),
                op_name(job, &rows[i]), rows[i].root);
        json_figure(file, "out_of_place", &rows[i].out_of_place);
        fprintf(file, ",\n     ");
        json_figure(file, "in_place", &rows[i].in_place);
        fprintf(file, "}");
    }
    fprintf(file, "\n  ],\n");
    fprintf(file, "  \"out_of_bounds\": {\"count\": %" PRId64 ", \"okay\": %s},\n", wrong,
            wrong || error ? "false" : "true");
    fprintf(file, "  \"average_bus_bandwidth\": {\"bandwidth\": %.6f},\n  \"error\": ",
            busbw_average(rows, row_count));
    if (error)
        xccl_json_text(file, error);
    else
        fprintf(file, "null");
    fprintf(file, "\n}\n");
    return fflush(file) == 0 && !ferror(file);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The figures of `xccl perf` as JSON, by the schemas of tools/schema: what is the same for all
 * parts here, rows of sizes here too, and the rest by each part.
 *
 * Thread: the main thread, after the ranks. */
#include <inttypes.h>

#include "base/param.h"
#include "json_machine.h"
#include "json_text.h"
#include "perf/perf.h"
#include "plugin/net_default.h"

void xccl_perf_json_spread(FILE *file, const struct xccl_perf_spread *spread)
{
    if (!spread->iters) {
        fprintf(file, "null");
        return;
    }
    fprintf(file,
            "{\"min\": %.4f, \"p50\": %.4f, \"p90\": %.4f, \"p99\": %.4f, \"max\": %.4f, "
            "\"iters\": %" PRId64 "}",
            spread->min_us, spread->p50_us, spread->p90_us, spread->p99_us, spread->max_us,
            spread->iters);
}

static void json_wrong(FILE *file, int64_t wrong)
{
    if (wrong < 0)
        fprintf(file, "null");
    else
        fprintf(file, "%" PRId64, wrong);
}

static void json_beside(FILE *file, const struct xccl_perf_beside *beside)
{
    if (beside->time_us <= 0) {
        fprintf(file, "null");
        return;
    }
    fprintf(file,
            "{\"time\": %.4f, \"bus_bw\": %.6f, \"ratio\": %.4f, \"ratio_low\": %.4f, "
            "\"ratio_high\": %.4f, \"nwrong\": ",
            beside->time_us, beside->busbw, beside->ratio, beside->ratio_low, beside->ratio_high);
    json_wrong(file, beside->wrong);
    fprintf(file, "}");
}

static void json_figure(FILE *file, const char *name, const struct xccl_perf_options *options,
                        const struct xccl_perf_figure *figure)
{
    if (!figure->iters) {
        fprintf(file, "\"%s\": null", name);
        return;
    }
    fprintf(file, "\"%s\": {\"time\": %.4f, \"alg_bw\": %.6f, \"bus_bw\": %.6f, \"nwrong\": ", name,
            figure->time_us, figure->algbw, figure->busbw);
    json_wrong(file, figure->wrong);
    fprintf(file, ", \"iters\": %" PRId64, figure->iters);
    if (options->single) {
        fprintf(file, ", \"single\": ");
        xccl_perf_json_spread(file, &figure->single);
    }
    if (options->vs_mpi) {
        fprintf(file, ", \"mpi\": ");
        json_beside(file, &figure->mpi);
    }
    fprintf(file, "}");
}

static void json_devices(FILE *file, const struct xccl_perf_job *job)
{
    fprintf(file, "  \"shared_memory\": %s,\n  \"net_plugin\": ",
            xccl_param_int(XCCL_P_SHM_DISABLE) ? "false" : "true");
    xccl_json_text(file, xccl_net_list_items(xccl_perf_setting(XCCL_P_NET_PLUGIN)));
    fprintf(file, ",\n  \"algorithm\": ");
    xccl_json_text(file, xccl_perf_setting(XCCL_P_ALGO));
    fprintf(file, ",\n  \"nranks\": %d,\n  \"threads\": %" PRId64 ",\n  \"devices\": [",
            job->nranks, job->options->threads ? job->options->threads : 1);
    for (int i = 0; i < job->nranks; i++) {
        fprintf(file, "%s\n    {\"rank\": %d, \"pid\": %d, \"host\": ", i ? "," : "", i,
                job->places ? job->places[i].pid : 0);
        xccl_json_text(file, job->places ? job->places[i].host : "");
        fprintf(file, ", \"device\": ");
        xccl_json_text(file, job->places ? job->places[i].device : "");
        fprintf(file, "}");
    }
    fprintf(file, "\n  ],\n");
}

static void json_config(FILE *file, const struct xccl_perf_job *job)
{
    const struct xccl_perf_options *options = job->options;

    fprintf(file,
            "  \"collective\": \"%s\",\n  \"config\": {\"min_bytes\": %" PRIu64
            ", \"max_bytes\": %" PRIu64 ", \"step_factor\": %" PRId64 ", \"step_bytes\": %" PRIu64
            ", \"warmup_iters\": %" PRId64 ", \"iters\": %" PRId64
            ", \"iters_exact\": %s, \"agg_iters\": %" PRId64 ", \"validation\": %s},\n",
            options->coll->name, options->min_bytes, options->max_bytes,
            options->step_bytes ? 0 : options->factor, options->step_bytes, options->warmup_iters,
            options->iters, options->iters_given ? "true" : "false", options->group_calls,
            options->check_runs ? "true" : "false");
    fprintf(file, "  \"mpi_library\": ");
    xccl_json_text_or_null(file, job->mpi_library);
    fprintf(file, ",\n");
}

void xccl_perf_json_sizes(FILE *file, const struct xccl_perf_job *job)
{
    json_config(file, job);
    fprintf(file, "  \"results\": [");
    for (size_t i = 0; i < job->row_count; i++) {
        const struct xccl_perf_row *row = &job->rows[i];

        fprintf(file,
                "%s\n    {\"size\": %" PRIu64 ", \"count\": %" PRIu64
                ", \"type\": \"%s\", \"redop\": \"%s\", \"root\": %d,\n     ",
                i ? "," : "", row->bytes, row->count, xccl_perf_type_name(row),
                xccl_perf_op_name(row), row->root);
        json_figure(file, "out_of_place", job->options, &row->out_of_place);
        fprintf(file, ",\n     ");
        json_figure(file, "in_place", job->options, &row->in_place);
        fprintf(file, "}");
    }
    fprintf(file, "\n  ],\n");
    fprintf(file, "  \"average_bus_bandwidth\": {\"bandwidth\": %.6f},\n",
            xccl_perf_busbw_average(job));
}

int xccl_perf_json_write(FILE *file, const struct xccl_perf_job *job, const char *error)
{
    const struct xccl_perf_part *part = job->options->part;
    int64_t wrong = xccl_perf_wrong_total(job) + job->tally.wrong;
    int version = 0;

    if (xcclGetVersion(&version) != xcclSuccess)
        version = 0;
    fprintf(file,
            "{\n  \"measurement\": \"%s\",\n  \"xccl_version\": \"%d.%d.%d\",\n  \"command\": ",
            part->name ? part->name : "collective", version / 10000, version / 100 % 100,
            version % 100);
    xccl_json_text(file, job->options->command);
    fprintf(file, ",\n");
    xccl_json_machine(file);
    json_devices(file, job);
    part->json(file, job);
    fprintf(file,
            "  \"out_of_bounds\": {\"count\": %" PRId64 ", \"okay\": %s},\n  \"error\": ", wrong,
            wrong || error ? "false" : "true");
    if (error)
        xccl_json_text(file, error);
    else
        fprintf(file, "null");
    fprintf(file, "\n}\n");
    return fflush(file) == 0 && !ferror(file);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Shows the figures of `xccl net perf`: a table, and the same as JSON with every round.
 *
 * Thread: the program's main thread. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/os.h"
#include "json_machine.h"
#include "json_text.h"
#include "net/net_list.h"
#include "net/net_perf.h"
#include "xccl.h"

/* ---- figures ---- */

static int by_size(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return (left > right) - (left < right);
}

struct xccl_netperf_spread xccl_netperf_spread_of(const double *values, int64_t count)
{
    double sorted[XCCL_NETPERF_ROUNDS];
    size_t n = (size_t)count;

    memcpy(sorted, values, n * sizeof(*sorted));
    qsort(sorted, n, sizeof(*sorted), by_size);
    return (struct xccl_netperf_spread){.median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2,
                                        .low = sorted[0],
                                        .high = sorted[n - 1]};
}

static struct xccl_netperf_spread ratio_of(const double *over, const double *under, int64_t count)
{
    double ratios[XCCL_NETPERF_ROUNDS];

    for (int64_t i = 0; i < count; i++)
        ratios[i] = under[i] > 0 ? over[i] / under[i] : 0;
    return xccl_netperf_spread_of(ratios, count);
}

struct xccl_netperf_spread xccl_netperf_gbs_ratio(const struct xccl_netperf_job *job,
                                                  const struct xccl_netperf_row *row)
{
    /* Message rates, which are the same ratio and exist for empty messages too. */
    return ratio_of(row->figures[0].mmsgs, row->figures[1].mmsgs, job->options->rounds);
}

struct xccl_netperf_spread xccl_netperf_latency_ratio(const struct xccl_netperf_job *job,
                                                      const struct xccl_netperf_row *row)
{
    return ratio_of(row->figures[1].p50_us, row->figures[0].p50_us, job->options->rounds);
}

/* ---- the table ---- */

static void print_pair(const struct xccl_netperf_job *job, int k)
{
    const struct xccl_netperf_pair *pair = &job->pairs[k];

    for (int i = 0; i < 2; i++) {
        const struct xccl_netperf_about *about = &pair->about[i];
        char speed[32];

        xccl_net_speed_text(about->speed_mbps, speed, sizeof(speed));
        printf("# %s %-8s pid %d: %s, device %s, speed %s, wire %s%s%s\n#   %s\n", k ? "B" : "A",
               i ? "receiver" : "sender", about->pid, pair->items[i], about->device, speed,
               about->wire_id, about->contract[0] ? ", contract " : "", about->contract,
               about->path);
    }
    if (strcmp(pair->about[0].wire_id, pair->about[1].wire_id) != 0 ||
        strcmp(pair->about[0].provider, pair->about[1].provider) != 0)
        printf(
            "# %s: the two sides differ in wire id or provider and may not understand each other\n",
            k ? "B" : "A");
    if (job->options->wait && !(pair->about[0].can_sleep && pair->about[1].can_sleep))
        printf("# %s: the plugin has no descriptor to sleep on, so --wait polls\n", k ? "B" : "A");
}

void xccl_netperf_table_head(const struct xccl_netperf_job *job)
{
    const struct xccl_netperf_options *options = job->options;
    static const char columns[] = "    lat us    p99 us     GB/s   +-%   Mmsg/s  cpu s/GiB  busy"
                                  "   least";
    int versus = job->pair_count == 2;

    printf("# xccl net perf %d.%d.%d: %s on %s, %d usable cores, ", XCCL_MAJOR, XCCL_MINOR,
           XCCL_PATCH, options->threads ? "two threads" : "two processes", xccl_os_hostname(),
           xccl_os_cores());
    if (options->iters)
        printf("%" PRId64 " messages per flow in a round", options->iters);
    else
        printf("%.3g s per row", (double)options->measure_ms / 1000.0);
    printf(", %" PRId64 " rounds%s%s\n", options->rounds, options->wait ? ", sleeping" : "",
           options->pin ? ", pinned" : "");
    for (int k = 0; k < job->pair_count; k++)
        print_pair(job, k);
    if (job->max_bytes < options->max_bytes)
        printf("# sizes end at %" PRIu64 " bytes, the largest message of the device\n",
               job->max_bytes);
    printf("#\n");
    if (versus)
        printf("# %34s%-68s  %-68s  %s\n", "", "  A", "  B",
               "ratio, above 1: A is better (lowest to highest)");
    printf("# %10s  %5s  %3s  %6s%s", "size", "flows", "dir", "window", columns);
    if (versus)
        printf("  %s  %26s  %26s", columns, "GB/s", "lat");
    printf("\n");
    fflush(stdout);
}

static int digits_for(double value)
{
    return value < 10 ? 3 : value < 100 ? 2 : 1;
}

static void print_figure(const struct xccl_netperf_job *job, const struct xccl_netperf_row *row,
                         int k)
{
    const struct xccl_netperf_figure *figure = &row->figures[k];
    int64_t rounds = job->options->rounds;
    struct xccl_netperf_spread p50 = xccl_netperf_spread_of(figure->p50_us, rounds);
    struct xccl_netperf_spread p99 = xccl_netperf_spread_of(figure->p99_us, rounds);
    struct xccl_netperf_spread gbs = xccl_netperf_spread_of(figure->gbs, rounds);
    struct xccl_netperf_spread rate = xccl_netperf_spread_of(figure->mmsgs, rounds);
    struct xccl_netperf_spread cpu = xccl_netperf_spread_of(figure->cpu_s_gib, rounds);
    struct xccl_netperf_spread busy = xccl_netperf_spread_of(figure->busy, rounds);
    struct xccl_netperf_spread least = xccl_netperf_spread_of(figure->least_gbs, rounds);

    if (row->has_latency)
        printf("  %8.*f  %8.*f", digits_for(p50.median), p50.median, digits_for(p99.median),
               p99.median);
    else
        printf("  %8s  %8s", "-", "-");
    printf("  %7.*f  %4.0f  %7.*f", gbs.median < 1 ? 4 : 3, gbs.median,
           rate.median > 0 ? 50 * (rate.high - rate.low) / rate.median : 0, rate.median < 1 ? 5 : 3,
           rate.median);
    if (row->bytes)
        printf("  %9.*f", digits_for(cpu.median), cpu.median);
    else
        printf("  %9s", "-");
    printf("  %4.2f  %6.*f", busy.median, least.median < 1 ? 4 : 3, least.median);
}

static void print_ratio(struct xccl_netperf_spread ratio)
{
    char text[64];

    snprintf(text, sizeof(text), "%.3f (%.3f to %.3f)", ratio.median, ratio.low, ratio.high);
    printf("  %26s", text);
}

void xccl_netperf_table_row(const struct xccl_netperf_job *job, const struct xccl_netperf_row *row)
{
    printf("%12" PRIu64 "  %5d  %3d  %6d", row->bytes, row->flows, row->directions, row->window);
    for (int k = 0; k < job->pair_count; k++) {
        printf("%s", k ? "  " : "");
        print_figure(job, row, k);
    }
    if (job->pair_count == 2) {
        print_ratio(xccl_netperf_gbs_ratio(job, row));
        if (row->has_latency)
            print_ratio(xccl_netperf_latency_ratio(job, row));
    }
    printf("\n");
    /* Long rows take long: show each as it is known. */
    fflush(stdout);
}

/* ---- JSON ---- */

static void json_config(FILE *file, const struct xccl_netperf_job *job)
{
    const struct xccl_netperf_options *options = job->options;

    fprintf(file,
            "  \"config\": {\"min_bytes\": %" PRIu64 ", \"max_bytes\": %" PRIu64
            ", \"step_factor\": %" PRId64 ", \"rounds\": %" PRId64 ", \"seconds\": %.3f"
            ", \"iters\": ",
            options->min_bytes, job->max_bytes, options->factor, options->rounds,
            (double)options->measure_ms / 1000.0);
    if (options->iters)
        fprintf(file, "%" PRId64, options->iters);
    else
        fprintf(file, "null");
    fprintf(file, ", \"sides\": \"%s\", \"sleeping\": %s, \"pinned\": %s, \"hosts\": ",
            options->threads ? "threads" : "processes", options->wait ? "true" : "false",
            options->pin ? "true" : "false");
    if (options->hosts_text)
        xccl_json_text(file, *options->hosts_text ? options->hosts_text : "own");
    else
        fprintf(file, "null");
    fprintf(file, "},\n");
}

static void json_side(FILE *file, const char *name, const char *item,
                      const struct xccl_netperf_about *about)
{
    fprintf(file, "\"%s\": {\"item\": ", name);
    xccl_json_text(file, item);
    fprintf(file, ", \"path\": ");
    xccl_json_text_or_null(file, about->path);
    fprintf(file, ", \"contract\": ");
    xccl_json_text_or_null(file, about->contract);
    fprintf(file, ", \"wire_id\": ");
    xccl_json_text_or_null(file, about->wire_id);
    fprintf(file, ", \"device\": ");
    xccl_json_text_or_null(file, about->device);
    fprintf(file, ", \"provider\": ");
    xccl_json_text_or_null(file, about->provider);
    fprintf(file, ", \"speed_mbps\": %u, \"needs_progress\": %s, \"can_sleep\": %s}",
            about->speed_mbps, about->needs_progress ? "true" : "false",
            about->can_sleep < 0 ? "null"
            : about->can_sleep   ? "true"
                                 : "false");
}

static void json_spread(FILE *file, const char *name, struct xccl_netperf_spread spread)
{
    fprintf(file, "\"%s\": {\"median\": ", name);
    xccl_json_number(file, spread.median, 6);
    fprintf(file, ", \"low\": ");
    xccl_json_number(file, spread.low, 6);
    fprintf(file, ", \"high\": ");
    xccl_json_number(file, spread.high, 6);
    fprintf(file, "}");
}

/* The spread of a figure, and its values round by round. */
static void json_rounds(FILE *file, const char *name, const double *values, int64_t count)
{
    struct xccl_netperf_spread spread = xccl_netperf_spread_of(values, count);

    fprintf(file, "\n        \"%s\": {", name);
    json_spread(file, "spread", spread);
    fprintf(file, ", \"rounds\": [");
    for (int64_t i = 0; i < count; i++) {
        fprintf(file, "%s", i ? ", " : "");
        xccl_json_number(file, values[i], 6);
    }
    fprintf(file, "]}");
}

static void json_figure(FILE *file, const struct xccl_netperf_job *job,
                        const struct xccl_netperf_row *row, int k)
{
    const struct xccl_netperf_figure *figure = &row->figures[k];
    int64_t rounds = job->options->rounds;

    fprintf(file,
            "%s\n       {\"plugin\": %d, \"messages\": %" PRIu64 ", \"round_trips\": %" PRIu64 ",",
            k ? "," : "", k, figure->stream_iters, figure->latency_iters);
    if (row->has_latency) {
        json_rounds(file, "latency_us", figure->p50_us, rounds);
        fprintf(file, ",");
        json_rounds(file, "latency_p99_us", figure->p99_us, rounds);
        fprintf(file, ",");
    }
    json_rounds(file, "gb_per_s", figure->gbs, rounds);
    fprintf(file, ",");
    json_rounds(file, "mmsg_per_s", figure->mmsgs, rounds);
    if (row->bytes) {
        fprintf(file, ",");
        json_rounds(file, "cpu_s_per_gib", figure->cpu_s_gib, rounds);
    }
    fprintf(file, ",");
    json_rounds(file, "busy_cores", figure->busy, rounds);
    fprintf(file, ",");
    json_rounds(file, "least_flow_gb_per_s", figure->least_gbs, rounds);
    fprintf(file, "}");
}

static void json_row(FILE *file, const struct xccl_netperf_job *job,
                     const struct xccl_netperf_row *row)
{
    fprintf(file,
            "%s\n    {\"size\": %" PRIu64 ", \"flows\": %d, \"directions\": %d, \"window\": %d,\n"
            "     \"figures\": [",
            row == job->rows ? "" : ",", row->bytes, row->flows, row->directions, row->window);
    for (int k = 0; k < job->pair_count; k++)
        json_figure(file, job, row, k);
    fprintf(file, "]");
    if (job->pair_count == 2) {
        fprintf(file, ",\n     \"ratio\": {");
        json_spread(file, "gb_per_s", xccl_netperf_gbs_ratio(job, row));
        if (row->has_latency) {
            fprintf(file, ", ");
            json_spread(file, "latency", xccl_netperf_latency_ratio(job, row));
        }
        fprintf(file, "}");
    }
    fprintf(file, "}");
}

int xccl_netperf_json_write(FILE *file, const struct xccl_netperf_job *job, const char *error)
{
    fprintf(file, "{\n  \"measurement\": \"net perf\",\n  \"xccl_version\": \"%d.%d.%d\",\n",
            XCCL_MAJOR, XCCL_MINOR, XCCL_PATCH);
    xccl_json_machine(file);
    json_config(file, job);
    fprintf(file, "  \"plugins\": [");
    for (int k = 0; k < job->pair_count; k++) {
        const struct xccl_netperf_pair *pair = &job->pairs[k];

        if (!pair->options)
            continue;
        fprintf(file, "%s\n    {", k ? "," : "");
        json_side(file, "sender", pair->items[0], &pair->about[0]);
        fprintf(file, ",\n     ");
        json_side(file, "receiver", pair->items[1], &pair->about[1]);
        fprintf(file, "}");
    }
    fprintf(file, "\n  ],\n  \"results\": [");
    for (size_t i = 0; i < job->row_count; i++)
        json_row(file, job, &job->rows[i]);
    fprintf(file, "\n  ],\n  \"error\": ");
    xccl_json_text_or_null(file, error);
    fprintf(file, "\n}\n");
    return fflush(file) == 0 && !ferror(file);
}

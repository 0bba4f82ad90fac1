/* SPDX-License-Identifier: BSD-3-Clause */
/* Draws the figures of `xccl net perf`: bandwidth above, latency below, a line for each plugin,
 * number of flows and direction.
 *
 * Thread: the program's main thread. */
#include <string.h>

#include "net/net_perf.h"
#include "svg_plot.h"

enum { BANDWIDTH, LATENCY };

#define SERIES_MAX   (2 * 2 * XCCL_NETPERF_FLOW_LIST)
#define NAME_LETTERS 48

/* What one line shows. */
struct series {
    int plugin, flows, directions;
};

struct plot {
    const struct xccl_netperf_job *job;
    struct series series[SERIES_MAX];
    int count;
};

static void find_series(struct plot *plot)
{
    const struct xccl_netperf_options *options = plot->job->options;

    for (int k = 0; k < plot->job->pair_count; k++) {
        for (int i = 0; i < options->flow_count; i++) {
            for (int d = 1; d <= 1 + options->both; d++)
                plot->series[plot->count++] = (struct series){k, options->flows[i], d};
        }
    }
}

/* 1 when the row has a point on this line in this panel. */
static int point(const void *user, int panel, int number, size_t r, uint64_t *bytes_out,
                 double *value_out)
{
    const struct plot *plot = user;
    const struct series *series = &plot->series[number];
    const struct xccl_netperf_row *row = &plot->job->rows[r];
    const struct xccl_netperf_figure *figure = &row->figures[series->plugin];
    const double *values = panel == LATENCY ? figure->p50_us : figure->gbs;

    if (row->flows != series->flows || row->directions != series->directions ||
        (panel == LATENCY && !row->has_latency))
        return 0;
    *bytes_out = row->bytes;
    *value_out = xccl_netperf_spread_of(values, plot->job->options->rounds).median;
    return 1;
}

/* Cut where it is long; what letters are allowed in a drawing is looked after there. */
static size_t put_name(char *text, size_t used, const char *before, const char *name)
{
    int added = snprintf(text + used, XCCL_SVG_LABEL_BYTES - used, "%s%.*s%s", before,
                         NAME_LETTERS / 2, name, strlen(name) > NAME_LETTERS / 2 ? "..." : "");

    return used + (size_t)added;
}

static void style(const void *user, int number, struct xccl_svg_style *style_out)
{
    const struct plot *plot = user;
    const struct series *series = &plot->series[number];
    const struct xccl_netperf_pair *pair = &plot->job->pairs[series->plugin];
    const char *letter = plot->job->pair_count == 1 ? "" : series->plugin ? "B: " : "A: ";
    size_t used = 0;

    style_out->colour = number;
    style_out->dashed = series->plugin;
    if (!pair->items[0]) /* the run ended before this one was opened */
        return;
    used = put_name(style_out->label, 0, letter, pair->items[0]);
    if (strcmp(pair->items[0], pair->items[1]) != 0)
        used = put_name(style_out->label, used, " to ", pair->items[1]);
    snprintf(style_out->label + used, XCCL_SVG_LABEL_BYTES - used, ", %d flow%s%s", series->flows,
             series->flows == 1 ? "" : "s", series->directions == 2 ? ", both ways" : "");
}

int xccl_netperf_plot_write(FILE *file, const struct xccl_netperf_job *job)
{
    static const struct xccl_svg_panel panels[] = {
        [BANDWIDTH] = {.axis = "bandwidth, GB/s"},
        [LATENCY] = {.axis = "latency, us (half a round trip)", .log = 1},
    };
    struct plot plot = {.job = job};
    struct xccl_svg svg = {.title = "Network plugins: bandwidth and latency by message size",
                           .panels = panels,
                           .panel_count = 2,
                           .row_count = job->row_count,
                           .user = &plot,
                           .point = point,
                           .style = style};

    find_series(&plot);
    svg.series_count = plot.count;
    return xccl_svg_write(file, &svg);
}

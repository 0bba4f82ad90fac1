/* SPDX-License-Identifier: BSD-3-Clause */
/* Draws the figures of `xccl perf COLLECTIVE`: bus bandwidth above and time below, a line for each
 * way (out of place, in place; MPI's dashed) of each type, operator and root.
 *
 * Thread: the main thread, after the ranks. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "perf/perf.h"
#include "svg_plot.h"

enum { BANDWIDTH, TIME };

#define SERIES_MAX  256
#define WAYS        4 /* of one set: in place or not, MPI's or ours */
#define TITLE_BYTES 160

/* A type, operator and root, as its first row has them. */
struct plot {
    const struct xccl_perf_job *job;
    const struct xccl_perf_row *sets[SERIES_MAX / WAYS];
    int set_count;
};

static int is_same_set(const struct xccl_perf_row *a, const struct xccl_perf_row *b)
{
    return a->type == b->type && a->op == b->op && a->root == b->root;
}

/* Rows of a set stand one behind the other. */
static void find_sets(struct plot *plot)
{
    const struct xccl_perf_job *job = plot->job;

    for (size_t r = 0; r < job->row_count && plot->set_count < SERIES_MAX / WAYS; r++) {
        if (r == 0 || !is_same_set(&job->rows[r], &job->rows[r - 1]))
            plot->sets[plot->set_count++] = &job->rows[r];
    }
}

static int is_in_place(int series)
{
    return series & 1;
}

static int is_mpi(int series)
{
    return series >> 1 & 1;
}

static int point(const void *user, int panel, int series, size_t r, uint64_t *bytes_out,
                 double *value_out)
{
    const struct plot *plot = user;
    const struct xccl_perf_row *row = &plot->job->rows[r];
    const struct xccl_perf_figure *figure = is_in_place(series) ? &row->in_place
                                                                : &row->out_of_place;

    if (!is_same_set(row, plot->sets[series / WAYS]) || !figure->iters)
        return 0;
    *bytes_out = row->bytes;
    if (panel == TIME)
        *value_out = is_mpi(series) ? figure->mpi.time_us : figure->time_us;
    else
        *value_out = is_mpi(series) ? figure->mpi.busbw : figure->busbw;
    return 1;
}

static int has_points(const struct plot *plot, int series)
{
    uint64_t bytes = 0;
    double value = 0;

    for (size_t r = 0; r < plot->job->row_count; r++) {
        if (point(plot, TIME, series, r, &bytes, &value) && bytes && value > 0)
            return 1;
    }
    return 0;
}

static void style(const void *user, int series, struct xccl_svg_style *style_out)
{
    const struct plot *plot = user;
    const struct xccl_perf_row *set = plot->sets[series / WAYS];
    char root[32] = "";

    style_out->colour = plot->set_count > 1 ? series / WAYS : series;
    style_out->dashed = is_mpi(series);
    style_out->hollow = is_in_place(series);
    if (!has_points(plot, series))
        return;
    if (set->root >= 0)
        snprintf(root, sizeof(root), ", root %d", set->root);
    snprintf(style_out->label, sizeof(style_out->label), "%s: %s%s%s%s, %s",
             is_mpi(series) ? "MPI" : "XCCL", xccl_perf_type_name(set),
             set->coll->reduces ? " " : "", set->coll->reduces ? xccl_perf_op_name(set) : "", root,
             is_in_place(series) ? "in place" : "out of place");
}

int xccl_perf_plot_write(FILE *file, const struct xccl_perf_job *job)
{
    static const struct xccl_svg_panel panels[] = {
        [BANDWIDTH] = {.axis = "bus bandwidth, GB/s", .log = 1},
        [TIME] = {.axis = "time of one call, us", .log = 1},
    };
    char title[TITLE_BYTES];
    struct plot *plot = xccl_calloc(1, sizeof(*plot));
    struct xccl_svg svg = {.title = title,
                           .note = job->options->command,
                           .panels = panels,
                           .panel_count = 2,
                           .row_count = job->row_count,
                           .user = plot,
                           .point = point,
                           .style = style};
    int written = 0;

    if (!plot)
        return 0;
    plot->job = job;
    find_sets(plot);
    svg.series_count = plot->set_count * WAYS;
    snprintf(title, sizeof(title), "%s on %d ranks: bus bandwidth and time by size%s%s",
             job->options->coll->name, job->nranks, *job->mpi_library ? ", beside " : "",
             job->mpi_library);
    written = xccl_svg_write(file, &svg);
    xccl_free(plot);
    return written;
}

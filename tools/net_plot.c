/* SPDX-License-Identifier: BSD-3-Clause */
/* Draws the figures of `xccl net perf` as SVG: bandwidth above, latency below, sizes along a
 * logarithmic axis, a line for each plugin, number of flows and direction. Colours are chosen by
 * the reader's scheme, light or dark, and lines differ in dashes too.
 *
 * Limits: messages of 0 bytes have no place on the axis and are left out.
 * Thread: the program's main thread. */
#include <math.h>
#include <string.h>

#include "net_perf.h"

#define WIDTH         920
#define LEFT          80
#define RIGHT         24
#define PANEL_HIGH    300
#define PANEL_GAP     90
#define LEGEND_TOP    56
#define LEGEND_LINE   20
#define LEGEND_WIDE   420
#define COLOURS       8
#define TICKS_MAX     24
#define LABELS_X      13
#define SERIES_MAX    (2 * 2 * XCCL_NETPERF_FLOW_LIST)
#define LABEL_LETTERS 48

/* What one line shows. */
struct series {
    int plugin, flows, directions;
};

struct panel {
    FILE *file;
    const struct xccl_netperf_job *job;
    int latency; /* else bandwidth */
    double top; /* of the drawing area */
    double x_low, x_high; /* log2 of sizes */
    double y_low, y_high; /* of latency: log10 */
};

/* ---- texts ---- */

static void xml_text(FILE *file, const char *text)
{
    int letters = 0;

    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;

        /* Letters are counted by their first byte, and a text is cut between two of them. */
        if ((byte & 0xC0) != 0x80 && ++letters > LABEL_LETTERS) {
            fputs("...", file);
            return;
        }
        if (byte == '&' || byte == '<' || byte == '>' || byte == '"')
            fprintf(file, "&#%d;", byte);
        else if (byte < 0x20 || byte >= 0x7f)
            fputc('?', file); /* whatever is no plain letter: XML takes no broken UTF-8 */
        else
            fputc(byte, file);
    }
}

static void size_text(double log_bytes, char *text_out, size_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = (int)(log_bytes / 10);

    snprintf(text_out, bytes, "%.0f %s", exp2(log_bytes - 10 * unit), units[unit > 4 ? 4 : unit]);
}

/* ---- what is drawn ---- */

static int all_series(const struct xccl_netperf_job *job, struct series *series)
{
    const struct xccl_netperf_options *options = job->options;
    int count = 0;

    for (int k = 0; k < job->pair_count; k++) {
        for (int i = 0; i < options->flow_count; i++) {
            for (int d = 1; d <= 1 + options->both; d++)
                series[count++] = (struct series){k, options->flows[i], d};
        }
    }
    return count;
}

/* 1 when the row has a point on this line in this panel. */
static int row_value(const struct panel *panel, const struct series *series,
                     const struct xccl_netperf_row *row, double *value_out)
{
    const struct xccl_netperf_figure *figure = &row->figures[series->plugin];
    int64_t rounds = panel->job->options->rounds;

    if (row->flows != series->flows || row->directions != series->directions || !row->bytes ||
        (panel->latency && !row->has_latency))
        return 0;
    *value_out =
        xccl_netperf_spread_of(panel->latency ? figure->p50_us : figure->gbs, rounds).median;
    return *value_out > 0;
}

/* The greatest of 1, 2 and 5 times a power of ten that fits `parts` times into high. */
static double nice_step(double high, int parts)
{
    double power = pow(10, floor(log10(high / parts)));
    double ratio = high / parts / power;

    return power * (ratio > 5 ? 10 : ratio > 2 ? 5 : ratio > 1 ? 2 : 1);
}

static void find_ranges(struct panel *panel, const struct series *series, int series_count)
{
    double low = INFINITY, high = 0, value = 0;

    panel->x_low = INFINITY;
    panel->x_high = 0;
    for (size_t r = 0; r < panel->job->row_count; r++) {
        const struct xccl_netperf_row *row = &panel->job->rows[r];

        for (int i = 0; i < series_count; i++) {
            if (!row_value(panel, &series[i], row, &value))
                continue;
            low = fmin(low, value);
            high = fmax(high, value);
            panel->x_low = fmin(panel->x_low, log2((double)row->bytes));
            panel->x_high = fmax(panel->x_high, log2((double)row->bytes));
        }
    }
    if (high <= 0) { /* nothing was measured: an empty frame */
        panel->x_low = panel->y_low = 0;
        panel->x_high = panel->y_high = 1;
        return;
    }
    if (panel->x_high - panel->x_low < 1)
        panel->x_high = panel->x_low + 1;
    panel->y_low = panel->latency ? floor(log10(low)) : 0;
    panel->y_high = panel->latency ? ceil(log10(high) + 0.02)
                                   : ceil(high / nice_step(high, 5)) * nice_step(high, 5);
    if (panel->y_high <= panel->y_low)
        panel->y_high = panel->y_low + 1;
}

static double place_x(const struct panel *panel, double log_bytes)
{
    return LEFT +
           (log_bytes - panel->x_low) / (panel->x_high - panel->x_low) * (WIDTH - LEFT - RIGHT);
}

static double place_y(const struct panel *panel, double value)
{
    double y = panel->latency ? log10(value) : value;

    return panel->top + PANEL_HIGH -
           (y - panel->y_low) / (panel->y_high - panel->y_low) * PANEL_HIGH;
}

/* ---- drawing ---- */

static void draw_y_tick(const struct panel *panel, double value, int labelled)
{
    double y = place_y(panel, value);

    if (y < panel->top - 0.5 || y > panel->top + PANEL_HIGH + 0.5)
        return;
    fprintf(panel->file, "<line class=\"%s\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
            labelled ? "grid" : "faint", LEFT, WIDTH - RIGHT, y, y);
    if (labelled)
        fprintf(panel->file, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n", LEFT - 8,
                y + 4, value);
}

static void draw_frame(const struct panel *panel)
{
    double step_y = nice_step(panel->y_high, 5);
    int low = (int)ceil(panel->x_low), high = (int)(panel->x_high + 0.01);
    int step_x = (high - low) / LABELS_X + 1;
    char text[32];

    for (int x = low; x <= high; x += step_x) {
        double at = place_x(panel, x);

        size_text(x, text, sizeof(text));
        fprintf(panel->file,
                "<line class=\"faint\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n"
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
                at, at, panel->top, panel->top + PANEL_HIGH, at, panel->top + PANEL_HIGH + 18,
                text);
    }
    for (int i = 0; !panel->latency && i <= TICKS_MAX; i++)
        draw_y_tick(panel, i * step_y, 1);
    for (int power = (int)panel->y_low; panel->latency && power <= (int)panel->y_high; power++) {
        draw_y_tick(panel, pow(10, power), 1);
        for (int i = 2; i < 10; i++)
            draw_y_tick(panel, i * pow(10, power),
                        panel->y_high - panel->y_low <= 3 && (i == 2 || i == 5));
    }
    fprintf(panel->file,
            "<rect class=\"frame\" x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\"/>\n"
            "<text x=\"%d\" y=\"%.1f\" text-anchor=\"middle\">message size</text>\n"
            "<text transform=\"translate(20 %.1f) rotate(-90)\" text-anchor=\"middle\">%s</text>\n",
            LEFT, panel->top, WIDTH - LEFT - RIGHT, PANEL_HIGH, (LEFT + WIDTH - RIGHT) / 2,
            panel->top + PANEL_HIGH + 40, panel->top + PANEL_HIGH / 2.0,
            panel->latency ? "latency, us (half a round trip)" : "bandwidth, GB/s");
}

static void draw_series(const struct panel *panel, const struct series *series, int number)
{
    const struct xccl_netperf_job *job = panel->job;
    double value = 0;

    fprintf(panel->file, "<polyline class=\"line c%d d%d\" points=\"", number % COLOURS,
            series->plugin);
    for (size_t r = 0; r < job->row_count; r++) {
        if (row_value(panel, series, &job->rows[r], &value))
            fprintf(panel->file, "%.1f,%.1f ", place_x(panel, log2((double)job->rows[r].bytes)),
                    place_y(panel, value));
    }
    fprintf(panel->file, "\"/>\n");
    for (size_t r = 0; r < job->row_count; r++) {
        if (row_value(panel, series, &job->rows[r], &value))
            fprintf(panel->file, "<circle class=\"c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/>\n",
                    number % COLOURS, place_x(panel, log2((double)job->rows[r].bytes)),
                    place_y(panel, value));
    }
}

static void draw_legend(FILE *file, const struct xccl_netperf_job *job, const struct series *series,
                        int count)
{
    for (int i = 0; i < count; i++) {
        const char *letter = series[i].plugin ? "B: " : "A: ";
        int x = LEFT + i % 2 * LEGEND_WIDE, y = LEGEND_TOP + i / 2 * LEGEND_LINE;
        const struct xccl_netperf_pair *pair = &job->pairs[series[i].plugin];

        if (!pair->items[0]) /* the run ended before this one was opened */
            continue;
        fprintf(file,
                "<line class=\"line c%d d%d\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>\n"
                "<text x=\"%d\" y=\"%d\">%s",
                i % COLOURS, series[i].plugin, x, x + 30, y - 4, y - 4, x + 38, y,
                job->pair_count == 1 ? "" : letter);
        xml_text(file, pair->items[0]);
        if (strcmp(pair->items[0], pair->items[1]) != 0) {
            fprintf(file, " to ");
            xml_text(file, pair->items[1]);
        }
        fprintf(file, ", %d flow%s%s</text>\n", series[i].flows, series[i].flows == 1 ? "" : "s",
                series[i].directions == 2 ? ", both ways" : "");
    }
}

static void draw_head(FILE *file, int height)
{
    static const char *const colours[COLOURS] = {"#2f7ed8", "#e8710a", "#12a06a", "#d93355",
                                                 "#8a5cf0", "#0b93ad", "#b8860b", "#c2479c"};

    fprintf(file,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
            "height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n"
            "<style>\n"
            ".paper { fill: #ffffff } text { fill: #222222 }\n"
            ".grid { stroke: #c4c4c4 } .faint { stroke: #e6e6e6 }\n"
            ".frame { fill: none; stroke: #777777 }\n"
            ".line { fill: none; stroke-width: 2 } .d1 { stroke-dasharray: 6 4 }\n",
            WIDTH, height, WIDTH, height);
    for (int i = 0; i < COLOURS; i++)
        fprintf(file, ".line.c%d { stroke: %s } circle.c%d { fill: %s }\n", i, colours[i], i,
                colours[i]);
    fprintf(file, "@media (prefers-color-scheme: dark) {\n"
                  ".paper { fill: #16181c } text { fill: #e4e4e4 }\n"
                  ".grid { stroke: #4a4e55 } .faint { stroke: #2b2e34 }\n"
                  ".frame { stroke: #8a8f98 }\n"
                  "}\n"
                  "</style>\n"
                  "<rect class=\"paper\" width=\"100%%\" height=\"100%%\"/>\n");
}

int xccl_netperf_plot_write(FILE *file, const struct xccl_netperf_job *job)
{
    struct series series[SERIES_MAX];
    int count = all_series(job, series);
    int top = LEGEND_TOP + (count + 1) / 2 * LEGEND_LINE + 10;
    int height = top + 2 * (PANEL_HIGH + PANEL_GAP) - PANEL_GAP / 3;

    draw_head(file, height);
    fprintf(file,
            "<text x=\"%d\" y=\"28\" font-size=\"17\">Network plugins: bandwidth and "
            "latency by message size</text>\n",
            LEFT);
    draw_legend(file, job, series, count);
    for (int i = 0; i < 2; i++) {
        struct panel panel = {
            .file = file, .job = job, .latency = i, .top = top + i * (PANEL_HIGH + PANEL_GAP)};

        find_ranges(&panel, series, count);
        draw_frame(&panel);
        for (int k = 0; k < count; k++) {
            if (!i || series[k].directions == 1)
                draw_series(&panel, &series[k], k);
        }
    }
    fprintf(file, "</svg>\n");
    return fflush(file) == 0 && !ferror(file);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Text, axes, lines and legend of a drawing. A panel finds its ranges from its own points; with one
 * point, or none, it still has axes.
 *
 * Thread: any; one at a time a file. */
#include "svg_plot.h"

#include <math.h>

#define WIDTH        920
#define LEFT         80
#define RIGHT        24
#define PANEL_HIGH   300
#define PANEL_GAP    90
#define TITLE_TOP    28
#define NOTE_TOP     46
#define LEGEND_TOP   56
#define LEGEND_LINE  20
#define LEGEND_WIDE  420
#define LEGEND_MOST  24 /* entries */
#define COLOURS      8
#define TICKS_MAX    24
#define LABELS_X     13
#define LINE_LETTERS 120
#define CELL_LETTERS 60

struct panel {
    FILE *file;
    const struct xccl_svg *svg;
    int idx, log;
    double top; /* of the drawing area */
    double x_low, x_high; /* log2 of sizes */
    double y_low, y_high; /* of a logarithmic one: log10 */
};

/* ---- texts ---- */

static void xml_text(FILE *file, const char *text, int most)
{
    int letters = 0;

    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;

        /* Letters are counted by their first byte, and a text is cut between two of them. */
        if ((byte & 0xC0) != 0x80 && ++letters > most) {
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

/* ---- ranges ---- */

static int point_of(const struct panel *panel, int series, size_t row, double *x_out,
                    double *value_out)
{
    const struct xccl_svg *svg = panel->svg;
    uint64_t bytes = 0;

    if (!svg->point(svg->user, panel->idx, series, row, &bytes, value_out) || !bytes ||
        !(*value_out > 0) || isinf(*value_out))
        return 0;
    *x_out = log2((double)bytes);
    return 1;
}

/* The greatest of 1, 2 and 5 times a power of ten that fits `parts` times into high. */
static double nice_step(double high, int parts)
{
    double power = pow(10, floor(log10(high / parts)));
    double ratio = high / parts / power;

    return power * (ratio > 5 ? 10 : ratio > 2 ? 5 : ratio > 1 ? 2 : 1);
}

static void find_ranges(struct panel *panel)
{
    double low = INFINITY, high = 0, x = 0, value = 0;

    panel->x_low = INFINITY;
    panel->x_high = 0;
    for (size_t r = 0; r < panel->svg->row_count; r++) {
        for (int i = 0; i < panel->svg->series_count; i++) {
            if (!point_of(panel, i, r, &x, &value))
                continue;
            low = fmin(low, value);
            high = fmax(high, value);
            panel->x_low = fmin(panel->x_low, x);
            panel->x_high = fmax(panel->x_high, x);
        }
    }
    if (high <= 0) { /* nothing was measured: an empty frame */
        panel->x_low = panel->y_low = 0;
        panel->x_high = panel->y_high = 1;
        return;
    }
    if (panel->x_high - panel->x_low < 1)
        panel->x_high = panel->x_low + 1;
    panel->y_low = panel->log ? floor(log10(low)) : 0;
    panel->y_high = panel->log ? ceil(log10(high) + 0.02)
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
    double y = panel->log ? log10(value) : value;

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

static void draw_y_axis(const struct panel *panel)
{
    double step = panel->log ? 0 : nice_step(panel->y_high, 5);

    for (int i = 0; !panel->log && i <= TICKS_MAX; i++)
        draw_y_tick(panel, i * step, 1);
    for (int power = (int)panel->y_low; panel->log && power <= (int)panel->y_high; power++) {
        draw_y_tick(panel, pow(10, power), 1);
        for (int i = 2; i < 10; i++)
            draw_y_tick(panel, i * pow(10, power),
                        panel->y_high - panel->y_low <= 3 && (i == 2 || i == 5));
    }
}

static void draw_frame(const struct panel *panel)
{
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
    draw_y_axis(panel);
    fprintf(panel->file,
            "<rect class=\"frame\" x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\"/>\n"
            "<text x=\"%d\" y=\"%.1f\" text-anchor=\"middle\">message size</text>\n"
            "<text transform=\"translate(20 %.1f) rotate(-90)\" text-anchor=\"middle\">",
            LEFT, panel->top, WIDTH - LEFT - RIGHT, PANEL_HIGH, (LEFT + WIDTH - RIGHT) / 2,
            panel->top + PANEL_HIGH + 40, panel->top + PANEL_HIGH / 2.0);
    xml_text(panel->file, panel->svg->panels[panel->idx].axis, CELL_LETTERS);
    fprintf(panel->file, "</text>\n");
}

static void draw_series(const struct panel *panel, int series)
{
    const struct xccl_svg *svg = panel->svg;
    struct xccl_svg_style style = {.label = ""};
    double x = 0, value = 0;
    int points = 0, colour = 0;

    svg->style(svg->user, series, &style);
    colour = style.colour % COLOURS;
    for (size_t r = 0; r < svg->row_count; r++) {
        if (!point_of(panel, series, r, &x, &value))
            continue;
        if (!points++)
            fprintf(panel->file, "<polyline class=\"line c%d d%d\" points=\"", colour,
                    style.dashed);
        fprintf(panel->file, "%.1f,%.1f ", place_x(panel, x), place_y(panel, value));
    }
    if (points)
        fprintf(panel->file, "\"/>\n");
    for (size_t r = 0; r < svg->row_count && points; r++) {
        if (point_of(panel, series, r, &x, &value))
            fprintf(panel->file, "<circle class=\"c%d%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%s\"/>\n",
                    colour, style.hollow ? " hollow" : "", place_x(panel, x), place_y(panel, value),
                    style.hollow ? "3.5" : "2.5");
    }
}

static int in_legend(const struct xccl_svg *svg, int series, struct xccl_svg_style *style)
{
    *style = (struct xccl_svg_style){.label = ""};
    svg->style(svg->user, series, style);
    return *style->label != '\0';
}

static int legend_count(const struct xccl_svg *svg)
{
    struct xccl_svg_style style;
    int count = 0;

    for (int i = 0; i < svg->series_count; i++)
        count += in_legend(svg, i, &style);
    return count;
}

static void draw_legend(FILE *file, const struct xccl_svg *svg, int top, int all)
{
    struct xccl_svg_style style;
    int count = 0;

    for (int i = 0; i < svg->series_count && count < LEGEND_MOST; i++) {
        int x = LEFT + count % 2 * LEGEND_WIDE, y = top + count / 2 * LEGEND_LINE;

        if (!in_legend(svg, i, &style))
            continue;
        fprintf(file,
                "<line class=\"line c%d d%d\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>\n"
                "<circle class=\"c%d%s\" cx=\"%d\" cy=\"%d\" r=\"%s\"/>\n"
                "<text x=\"%d\" y=\"%d\">",
                style.colour % COLOURS, style.dashed, x, x + 30, y - 4, y - 4,
                style.colour % COLOURS, style.hollow ? " hollow" : "", x + 15, y - 4,
                style.hollow ? "3.5" : "2.5", x + 38, y);
        xml_text(file, style.label, CELL_LETTERS);
        fprintf(file, "</text>\n");
        count++;
    }
    if (all > count)
        fprintf(file, "<text x=\"%d\" y=\"%d\">and %d more</text>\n", LEFT,
                top + (count + 1) / 2 * LEGEND_LINE, all - count);
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
        fprintf(file,
                ".line.c%d { stroke: %s } circle.c%d { fill: %s } circle.hollow.c%d { fill: none; "
                "stroke: %s; stroke-width: 1.5 }\n",
                i, colours[i], i, colours[i], i, colours[i]);
    fprintf(file, "@media (prefers-color-scheme: dark) {\n"
                  ".paper { fill: #16181c } text { fill: #e4e4e4 }\n"
                  ".grid { stroke: #4a4e55 } .faint { stroke: #2b2e34 }\n"
                  ".frame { stroke: #8a8f98 }\n"
                  "}\n"
                  "</style>\n"
                  "<rect class=\"paper\" width=\"100%%\" height=\"100%%\"/>\n");
}

int xccl_svg_write(FILE *file, const struct xccl_svg *svg)
{
    int all = legend_count(svg), shown = all < LEGEND_MOST ? all : LEGEND_MOST;
    int legend = LEGEND_TOP + (svg->note ? LEGEND_LINE : 0);
    int lines = (shown + 1) / 2 + (all > shown);
    int top = legend + lines * LEGEND_LINE + 10;
    int height = top + svg->panel_count * (PANEL_HIGH + PANEL_GAP) - PANEL_GAP / 3;

    draw_head(file, height);
    fprintf(file, "<text x=\"%d\" y=\"%d\" font-size=\"17\">", LEFT, TITLE_TOP);
    xml_text(file, svg->title, LINE_LETTERS);
    fprintf(file, "</text>\n");
    if (svg->note) {
        fprintf(file, "<text x=\"%d\" y=\"%d\" font-family=\"monospace\">", LEFT, NOTE_TOP);
        xml_text(file, svg->note, LINE_LETTERS);
        fprintf(file, "</text>\n");
    }
    draw_legend(file, svg, legend, all);
    for (int i = 0; i < svg->panel_count; i++) {
        struct panel panel = {.file = file,
                              .svg = svg,
                              .idx = i,
                              .log = svg->panels[i].log,
                              .top = top + i * (PANEL_HIGH + PANEL_GAP)};

        find_ranges(&panel);
        draw_frame(&panel);
        for (int k = 0; k < svg->series_count; k++)
            draw_series(&panel, k);
    }
    fprintf(file, "</svg>\n");
    return fflush(file) == 0 && !ferror(file);
}

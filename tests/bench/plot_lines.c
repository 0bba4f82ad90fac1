/* SPDX-License-Identifier: BSD-3-Clause */
/* Draws lines over message sizes with the drawing of `xccl perf --plot`, for scripts.
 *
 *   plot_lines TITLE NOTE < lines > drawing.svg
 *
 * A line has four words with tabs between: panel, series, bytes, value. Panels and series stand in
 * the order of their first line; both axes are logarithmic. A series whose name begins with "~" is
 * dashed. Exit status: 0; 1 for input that is none, with its line.
 *
 * Limits: 16 panels, 32 series, 65,536 points. Thread: one. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "svg_plot.h"

#define PANELS_MAX 16
#define SERIES_MAX 32
#define POINTS_MAX 65536
#define NAME_BYTES 96
#define LINE_BYTES 512

struct names {
    char text[SERIES_MAX][NAME_BYTES];
    int count, room;
};

struct point {
    int panel, series;
    uint64_t bytes;
    double value;
};

struct lines {
    struct names panels, series;
    struct point points[POINTS_MAX];
    size_t count;
};

/* The number of a name; -1: there is no room for one more. */
static int find(struct names *names, const char *name)
{
    for (int i = 0; i < names->count; i++) {
        if (strcmp(names->text[i], name) == 0)
            return i;
    }
    if (names->count == names->room || strlen(name) >= NAME_BYTES)
        return -1;
    memcpy(names->text[names->count], name, strlen(name) + 1);
    return names->count++;
}

/* 0: it is not a line of ours. */
static int take_line(struct lines *lines, char *line)
{
    char *rest = NULL, *end = NULL, *words[4];
    struct point point;

    line[strcspn(line, "\n")] = '\0';
    for (int i = 0; i < 4; i++) {
        words[i] = strtok_r(i ? NULL : line, "\t", &rest);
        if (!words[i])
            return 0;
    }
    point.panel = find(&lines->panels, words[0]);
    point.series = find(&lines->series, words[1]);
    errno = 0;
    point.bytes = strtoull(words[2], &end, 10);
    if (errno || *end || point.panel < 0 || point.series < 0 || lines->count == POINTS_MAX)
        return 0;
    point.value = strtod(words[3], &end);
    if (*end)
        return 0;
    lines->points[lines->count++] = point;
    return 1;
}

static int point(const void *user, int panel, int series, size_t row, uint64_t *bytes_out,
                 double *value_out)
{
    const struct lines *lines = user;
    const struct point *at = &lines->points[row];

    if (at->panel != panel || at->series != series)
        return 0;
    *bytes_out = at->bytes;
    *value_out = at->value;
    return 1;
}

static void style(const void *user, int series, struct xccl_svg_style *style_out)
{
    const struct lines *lines = user;
    const char *name = lines->series.text[series];

    style_out->colour = series;
    style_out->dashed = *name == '~';
    snprintf(style_out->label, sizeof(style_out->label), "%s", name + (*name == '~'));
}

int main(int argc, char **argv)
{
    static struct lines lines = {.panels = {.room = PANELS_MAX}, .series = {.room = SERIES_MAX}};
    struct xccl_svg_panel panels[PANELS_MAX];
    struct xccl_svg svg = {.panels = panels, .user = &lines, .point = point, .style = style};
    char line[LINE_BYTES];

    if (argc != 3) {
        fprintf(stderr, "usage: plot_lines TITLE NOTE < lines > drawing.svg\n");
        return 2;
    }
    for (int number = 1; fgets(line, sizeof(line), stdin); number++) {
        if (!take_line(&lines, line)) {
            fprintf(stderr, "plot_lines: line %d: no panel, series, bytes and value, or too many\n",
                    number);
            return 1;
        }
    }
    for (int i = 0; i < lines.panels.count; i++)
        panels[i] = (struct xccl_svg_panel){.axis = lines.panels.text[i], .log = 1};
    svg.title = argv[1];
    svg.note = *argv[2] ? argv[2] : NULL;
    svg.panel_count = lines.panels.count;
    svg.series_count = lines.series.count;
    svg.row_count = lines.count;
    return xccl_svg_write(stdout, &svg) ? 0 : 1;
}

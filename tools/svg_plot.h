/* SPDX-License-Identifier: BSD-3-Clause */
/* Draws figures by message size as SVG: panels one above the other with a logarithmic axis of
 * sizes, lines for series, and a legend. Colours are chosen by the reader's scheme, light or dark,
 * and lines may differ in dashes too. What is a point and what a label says is the caller's.
 *
 * Limits: sizes of 0 bytes have no place on the axis and are left out, and so are values that are
 * not above 0. Thread: any; one at a time a file. */
#ifndef XCCL_TOOLS_SVG_PLOT_H
#define XCCL_TOOLS_SVG_PLOT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define XCCL_SVG_LABEL_BYTES 200

struct xccl_svg_panel {
    const char *axis; /* what its values are */
    int log; /* else its axis begins at 0 */
};

/* How a series is drawn. */
struct xccl_svg_style {
    char label[XCCL_SVG_LABEL_BYTES]; /* "": it is not in the legend */
    int colour; /* any number: colours repeat */
    int dashed, hollow; /* hollow: so are its points */
};

struct xccl_svg {
    const char *title;
    const char *note; /* a smaller line below it; NULL: none */
    const struct xccl_svg_panel *panels;
    int panel_count, series_count;
    size_t row_count;
    const void *user;
    /* 1 when a row has a point on a series in a panel. */
    int (*point)(const void *user, int panel, int series, size_t row, uint64_t *bytes_out,
                 double *value_out);
    void (*style)(const void *user, int series, struct xccl_svg_style *style_out);
};

/* 0: it could not be written. */
int xccl_svg_write(FILE *file, const struct xccl_svg *svg);

#endif

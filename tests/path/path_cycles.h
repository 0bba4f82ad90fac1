/* SPDX-License-Identifier: BSD-3-Clause */
/* Connects, transfers and closes again and again: nothing stays behind in the process.
 *
 * Thread: the main one. */
#ifndef PATH_CYCLES_H
#define PATH_CYCLES_H

/* XT_CYCLES of them (default 300), in a network namespace of its own where that is allowed, over
 * the plugin item and its device (NULL: the first). what: for the line of figures. The test fails
 * when descriptors or threads are not as many as after the first hundred, or memory grows by more
 * than 1 MiB in three such rounds, one after the other. */
void path_cycles(const char *item, const char *device, const char *what);

#endif

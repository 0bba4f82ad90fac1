/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds and loads algorithm plugins (xccl_algo.h), and hands their tables on: what is in a table is
 * the business of schedule/algo_plugin.h, whose xccl_algo_plugin_add is the taker.
 *
 * A list has names or paths with commas between, and all of them are loaded. NAME X is
 * libxccl-algo-X.so in XCCL_PLUGIN_PATH, then in the folder of libxccl.so and xccl/ below it; what
 * has a slash is a path. A file is looked at before it is loaded, and one that others can change is
 * refused; one log line (info) per candidate: taken, or why not. A file that was taken stays loaded
 * until the process ends, and is taken again, to no effect, by each later call.
 *
 * Limits: what runs when a file is loaded (constructors) runs in this process. Thread: any. */
#ifndef XCCL_PLUGIN_ALGO_LIBRARY_H
#define XCCL_PLUGIN_ALGO_LIBRARY_H

#include "xccl_algo.h"
#include "xccl_types.h"

/* Takes the table of a file, or tells why not. Has to know again what it has taken. */
typedef xcclResult_t xccl_algo_taker_fn(const xcclAlgoPlugin_v1_t *table, const char *path);

/* Settings have been loaded (base/param.h); the list is XCCL_ALGO_PLUGIN's, or another one. An
 * error for the first item that is not there or not taken; those before it stay. */
xcclResult_t xccl_algo_libraries_load(const char *list, xccl_algo_taker_fn *take);

#endif

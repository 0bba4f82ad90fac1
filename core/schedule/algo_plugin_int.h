/* SPDX-License-Identifier: BSD-3-Clause */
/* Between algo_plugin.c, which knows the algorithms of plugins, and algo_bridge.c, through which
 * they emit. Thread: any; entries are constant once they were added. */
#ifndef XCCL_SCHEDULE_ALGO_PLUGIN_INT_H
#define XCCL_SCHEDULE_ALGO_PLUGIN_INT_H

#include "schedule/algo_plugin.h"

#define XCCL_ALGO_NAME_MAX  32
#define XCCL_ALGO_HELP_MAX  128
#define XCCL_ALGO_SIZE_SANE 4096 /* what says that it is larger is not of this contract */

/* One algorithm of a plugin. */
struct xccl_algo_entry {
    const xcclAlgorithm_v1_t *theirs; /* for the plugin's own eyes */
    xcclAlgorithm_v1_t calls; /* a copy, zeroes where theirs is shorter */
    char name[XCCL_ALGO_NAME_MAX], help[XCCL_ALGO_HELP_MAX];
    const char *plugin, *path; /* the name of its plugin, and the file */
    struct xccl_generator generator;
};

/* What a function of the plugin is asked for. */
xcclAlgoFor_v1_t xccl_algo_for(const struct xccl_algo_entry *entry,
                               const struct xccl_generator_for *what);

/* Has the plugin emit; errors are the builder's. */
void xccl_algo_bridge(const struct xccl_algo_entry *entry, struct xccl_builder *builder,
                      const struct xccl_generator_for *what);

#endif

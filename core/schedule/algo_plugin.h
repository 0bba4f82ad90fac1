/* SPDX-License-Identifier: BSD-3-Clause */
/* Algorithms that a user's shared library brings (xccl_algo.h) as generators like the built-in
 * ones: xccl_generator_find and xccl_generator_at give them too, hierarchies can have them as
 * parts. Who loads the files is plugin/algo_library.h, for which xccl_algo_plugin_add is the taker:
 *
 *   xccl_algo_libraries_load(xccl_param_string(XCCL_P_ALGO_PLUGIN), xccl_algo_plugin_add)
 *
 * Nothing that a plugin says is trusted: numbers are checked as they come, and what it emits runs
 * nowhere before it is proven. Limits: pointers and the plugin's own code are as good as it is.
 * Thread: any. */
#ifndef XCCL_SCHEDULE_ALGO_PLUGIN_H
#define XCCL_SCHEDULE_ALGO_PLUGIN_H

#include "schedule/generators.h"
#include "xccl_algo.h"

/* Adds all algorithms of a table, or none: xcclInvalidUsage says what is wrong with it. The table
 * has to stay until the process ends. One that was added before is fine, and nothing happens. */
xcclResult_t xccl_algo_plugin_add(const xcclAlgoPlugin_v1_t *table, const char *path);

/* The file that a generator comes from; NULL: it is built in. */
const char *xccl_algo_plugin_path(const struct xccl_generator *generator);

/* Has the generator emit for all ranks and proves that. A refusal is xcclInvalidUsage, whose text
 * is the counter-example in words. schedule_out gets the proven schedule of what->rank, to be
 * destroyed by the caller; NULL: nobody wants it. For any generator, as long as what->multicast is
 * NULL, but made for those of plugins and for hierarchies with such parts: their schedules have no
 * true minslots before, so a communicator uses none that has not been here with its own ranks, and
 * each root that it is asked for. */
xcclResult_t xccl_algo_plugin_prove(const struct xccl_generator *generator,
                                    const struct xccl_generator_for *what,
                                    struct xccl_schedule **schedule_out);

#endif

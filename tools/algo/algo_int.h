/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts of `xccl algo` have in common: their entries, and how an algorithm and a range of
 * ranks are named.
 *
 * Thread: the program's main thread. */
#ifndef XCCL_TOOLS_ALGO_ALGO_INT_H
#define XCCL_TOOLS_ALGO_ALGO_INT_H

#include "schedule/algo_plugin.h"
#include "schedule/generators.h"
#include "schedule/text.h"
#include "schedule/verify.h"

#define XCCL_ALGO_RANKS_MAX 65535

extern const char xccl_algo_list_help[], xccl_algo_show_help[], xccl_algo_verify_help[];
int xccl_algo_list_main(int argc, char **argv);
int xccl_algo_show_main(int argc, char **argv);
int xccl_algo_verify_main(int argc, char **argv);

/* A collective by its name, or -1 after a message. */
int xccl_algo_coll(const char *command, const char *name);
/* "8" or "1..64". 0 after a message. */
int xccl_algo_range(const char *command, const char *text, int *first_out, int *last_out);

/* "4,4,2" as the node of each rank, which must be freed; how many ranks, or 0 after a message.
 * Without a text it is for nranks ranks, in nodes of 4 with a smaller last one; with a text nranks
 * is what -n said, or 0. */
int xccl_algo_nodes(const char *command, const char *text, int nranks, int **nodes_out);

/* "2,0,1": the rank at each position, for nranks ranks. Must be freed; NULL after a message. */
uint16_t *xccl_algo_order(const char *command, const char *text, int nranks);

/* Loads the plugins of a list, or without one those of XCCL_ALGO_PLUGIN. 0 after a message. */
int xccl_algo_plugins(const char *command, const char *list);

/* What NAME and --coll mean. coll is -1 when not given: the only collective that has it. NULL after
 * a message. */
const struct xccl_generator *xccl_algo_named(const char *command, const char *name, int coll,
                                             int *param_out);
/* The next value of a generator's parameter, doubling; 0 when there is none after it. */
int xccl_algo_next_param(const struct xccl_generator *generator, int nranks, int param);

/* A table of schedules and its end. */
struct xccl_schedule **xccl_algo_make(const struct xccl_generator *generator,
                                      const struct xccl_generator_for *what);
void xccl_algo_free(struct xccl_schedule **schedules, int nranks);

#endif

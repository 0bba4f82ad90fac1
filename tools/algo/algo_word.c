/* SPDX-License-Identifier: BSD-3-Clause */
/* Words of the command line that name collectives, plugins, algorithms and numbers of ranks;
 * schedules of all ranks in one table. Thread: any; messages are for the main thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "algo/algo_int.h"
#include "base/alloc.h"
#include "base/param.h"
#include "option.h"
#include "plugin/algo_library.h"

#define NODE_USUAL 4 /* ranks */

int xccl_algo_coll(const char *command, const char *name)
{
    const char *names[XCCL_COLL_WITH_SCHEDULES + 1] = {NULL}, *near;

    for (int i = 0; i < XCCL_COLL_WITH_SCHEDULES; i++) {
        names[i] = xccl_coll_name((enum xccl_coll)i);
        if (strcmp(names[i], name) == 0)
            return i;
    }
    near = xccl_option_nearest(name, names);
    (void)xccl_option_usage(command, "there is no collective %s%s%s%s", name,
                            near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    return -1;
}

int xccl_algo_range(const char *command, const char *text, int *first_out, int *last_out)
{
    const char *dots = strstr(text, "..");
    char first[16] = "";
    int64_t from, to;

    if (dots && (size_t)(dots - text) < sizeof(first))
        memcpy(first, text, (size_t)(dots - text));
    if (!xccl_option_int(command, "-n", dots ? first : text, 1, XCCL_ALGO_RANKS_MAX, &from))
        return 0;
    to = from;
    if (dots && !xccl_option_int(command, "-n", dots + 2, from, XCCL_ALGO_RANKS_MAX, &to))
        return 0;
    *first_out = (int)from;
    *last_out = (int)to;
    return 1;
}

/* The number that text begins with, of an option's list; *rest_out is behind it and its comma, or
 * NULL. 0 after a message. */
static int number_read(const char *command, const char *option, const char *text, int64_t least,
                       int64_t *number_out, const char **rest_out)
{
    const char *comma = strchr(text, ',');
    size_t length = comma ? (size_t)(comma - text) : strlen(text);
    char word[16] = "?";

    if (length < sizeof(word))
        snprintf(word, sizeof(word), "%.*s", (int)length, text);
    *rest_out = comma ? comma + 1 : NULL;
    return xccl_option_int(command, option, word, least, XCCL_ALGO_RANKS_MAX, number_out);
}

/* A message when the list is no order of so many ranks. */
static int order_read(const char *command, const char *text, int nranks, uint16_t *order,
                      uint8_t *seen)
{
    int count = 0;

    while (text) {
        int64_t rank;

        if (!number_read(command, "--order", text, 0, &rank, &text))
            return 0;
        if (count == nranks || rank >= nranks || seen[rank])
            break;
        seen[rank] = 1;
        order[count++] = (uint16_t)rank;
    }
    if (count == nranks && !text)
        return 1;
    (void)xccl_option_usage(command, "--order must give each rank from 0 to %d once", nranks - 1);
    return 0;
}

uint16_t *xccl_algo_order(const char *command, const char *text, int nranks)
{
    uint16_t *order = xccl_calloc((size_t)nranks, sizeof(*order) + 1);

    if (!order) {
        xccl_option_tell_error(command);
        return NULL;
    }
    if (order_read(command, text, nranks, order, (uint8_t *)(order + nranks)))
        return order;
    xccl_free(order);
    return NULL;
}

static int nodes_read(const char *command, const char *text, int *nodes)
{
    int count = 0;

    for (int node = 0; text; node++) {
        int64_t size;

        if (!number_read(command, "--nodes", text, 1, &size, &text))
            return 0;
        if (size > XCCL_ALGO_RANKS_MAX - count) {
            (void)xccl_option_usage(command, "--nodes gives more than %d ranks",
                                    XCCL_ALGO_RANKS_MAX);
            return 0;
        }
        while (size-- > 0)
            nodes[count++] = node;
    }
    return count;
}

int xccl_algo_nodes(const char *command, const char *text, int nranks, int **nodes_out)
{
    int room = text ? XCCL_ALGO_RANKS_MAX : nranks, count = nranks;
    int *nodes = xccl_calloc((size_t)room, sizeof(*nodes));

    if (!nodes) {
        xccl_option_tell_error(command);
        return 0;
    }
    for (int r = 0; r < nranks && !text; r++)
        nodes[r] = r / NODE_USUAL;
    if (text)
        count = nodes_read(command, text, nodes);
    if (count > 0 && nranks > 0 && count != nranks) {
        (void)xccl_option_usage(command, "--nodes gives %d ranks, but -n gives %d", count, nranks);
        count = 0;
    }
    if (count == 0)
        xccl_free(nodes);
    else
        *nodes_out = nodes;
    return count;
}

int xccl_algo_plugins(const char *command, const char *list)
{
    xcclResult_t rc = xccl_param_load();

    if (!rc)
        rc = xccl_algo_libraries_load(list ? list : xccl_param_string(XCCL_P_ALGO_PLUGIN),
                                      xccl_algo_plugin_add);
    if (rc)
        xccl_option_tell_error(command);
    return rc == xcclSuccess;
}

const struct xccl_generator *xccl_algo_named(const char *command, const char *name, int coll,
                                             int *param_out)
{
    const struct xccl_generator *found = NULL;

    for (int i = 0; i < XCCL_COLL_WITH_SCHEDULES; i++) {
        const struct xccl_generator *generator;
        int param;

        if (coll >= 0 && i != coll)
            continue;
        generator = xccl_generator_find((enum xccl_coll)i, name, &param);
        if (!generator)
            continue;
        if (found) {
            (void)xccl_option_usage(command, "%s exists for %s and %s: choose one with --coll",
                                    name, xccl_coll_name(found->coll),
                                    xccl_coll_name(generator->coll));
            return NULL;
        }
        found = generator;
        *param_out = param;
    }
    if (!found)
        (void)xccl_option_usage(command, "there is no algorithm %s%s%s; `xccl algo list` lists all",
                                name, coll >= 0 ? " for " : "",
                                coll >= 0 ? xccl_coll_name((enum xccl_coll)coll) : "");
    return found;
}

int xccl_algo_next_param(const struct xccl_generator *generator, int nranks, int param)
{
    int next = param ? 2 * param : generator->param_min;

    return generator->param_max > 0 && next <= generator->param_max &&
                   (next < 2 * nranks || next == generator->param_min)
               ? next
               : 0;
}

struct xccl_schedule **xccl_algo_make(const struct xccl_generator *generator,
                                      const struct xccl_generator_for *what)
{
    struct xccl_schedule **schedules = xccl_calloc((size_t)what->nranks, sizeof(void *));

    if (schedules && xccl_generator_make_all(generator, what, schedules) != xcclSuccess) {
        xccl_free(schedules);
        return NULL;
    }
    return schedules;
}

void xccl_algo_free(struct xccl_schedule **schedules, int nranks)
{
    for (int i = 0; schedules && i < nranks; i++)
        xccl_schedule_destroy(schedules[i]);
    xccl_free(schedules);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds generators by name, and has them make schedules. The table of the built-in ones is in
 * generators_table.c; those that were added while the process runs are kept here.
 * Thread: any. */
#include "schedule/generators.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static const struct xccl_generator *added[XCCL_GENERATORS_ADDED_MAX];
static atomic_int added_count;

int xccl_generator_add(const struct xccl_generator *generator)
{
    /* Relaxed: only the one who adds changes it. */
    int count = atomic_load_explicit(&added_count, memory_order_relaxed);

    if (count == XCCL_GENERATORS_ADDED_MAX)
        return 0;
    added[count] = generator;
    /* Release: who sees the count sees the entry. Pairs with xccl_generator_at. */
    atomic_store_explicit(&added_count, count + 1, memory_order_release);
    return 1;
}

static int count_built_in(void)
{
    static atomic_int known;
    /* Relaxed: whoever counts comes to the same number. */
    int count = atomic_load_explicit(&known, memory_order_relaxed);

    if (count)
        return count;
    while (xccl_generators[count])
        count++;
    atomic_store_explicit(&known, count, memory_order_relaxed);
    return count;
}

const struct xccl_generator *xccl_generator_at(int idx)
{
    int built_in = count_built_in();

    if (idx < built_in)
        return xccl_generators[idx];
    /* Acquire: pairs with xccl_generator_add. */
    if (idx - built_in >= atomic_load_explicit(&added_count, memory_order_acquire))
        return NULL;
    return added[idx - built_in];
}

const struct xccl_generator *xccl_generator_find(enum xccl_coll coll, const char *name,
                                                 int *param_out)
{
    const struct xccl_generator *generator;
    size_t length = strcspn(name, ":");
    long param = 0;

    if (name[length]) {
        char *end;

        param = strtol(name + length + 1, &end, 10);
        if (*end || end == name + length + 1)
            return NULL;
    }
    for (int i = 0; (generator = xccl_generator_at(i)); i++) {
        if (generator->coll != coll || strlen(generator->name) != length ||
            memcmp(generator->name, name, length) != 0)
            continue;
        if (name[length] && (param < generator->param_min || param > generator->param_max))
            return NULL;
        *param_out = (int)param;
        return generator;
    }
    return NULL;
}

xcclResult_t xccl_generator_told(xcclResult_t rc)
{
    return rc == xcclInvalidArgument ? xccl_error_tell(rc) : rc;
}

static int position_of(const struct xccl_generator_for *what, int rank)
{
    for (int position = 0; position < what->nranks; position++)
        if (what->order[position] == rank)
            return position;
    return rank;
}

/* Puts positions in place of ranks. */
static struct xccl_generator_for in_positions(const struct xccl_generator *generator,
                                              const struct xccl_generator_for *what)
{
    struct xccl_generator_for inside = *what;

    if (!generator->takes_order)
        inside.order = NULL;
    if (!inside.order)
        return inside;
    inside.rank = position_of(what, what->rank);
    inside.root = position_of(what, what->root);
    return inside;
}

xcclResult_t xccl_generator_make(const struct xccl_generator *generator,
                                 const struct xccl_generator_for *what,
                                 struct xccl_schedule **schedule_out)
{
    struct xccl_generator_for inside = in_positions(generator, what);
    struct xccl_build_for build = {.name = generator->name,
                                   .coll = generator->coll,
                                   .nranks = what->nranks,
                                   .rank = inside.rank,
                                   .root = inside.root,
                                   .nchunks = 1,
                                   .scrbufs = generator->scrbufs ? generator->scrbufs : 1,
                                   .order = inside.order};
    struct xccl_builder *builder;
    xcclResult_t rc;

    if (what->nranks < 1 || (generator->serves && !generator->serves(&inside)))
        return xccl_fail(xcclInvalidArgument, 0,
                         "`xccl algo list` lists the ranks that each algorithm supports",
                         "%s of %s does not support %d ranks", generator->name,
                         xccl_coll_name(generator->coll), what->nranks);
    if (generator->chunks)
        build.nchunks = generator->chunks(&inside);
    rc = generator->plan ? generator->plan(generator->coll, &inside, &build.nchunks) : xcclSuccess;
    if (rc)
        return xccl_generator_told(rc);
    rc = xccl_build_begin(&build, &builder);
    if (rc)
        return rc;
    generator->emit(builder, &inside);
    rc = xccl_build_end(builder, schedule_out);
    if (!rc && generator->slots > 0)
        (*schedule_out)->minslots = (uint16_t)generator->slots;
    return rc;
}

xcclResult_t xccl_generator_make_all(const struct xccl_generator *generator,
                                     const struct xccl_generator_for *what,
                                     struct xccl_schedule **schedules_out)
{
    struct xccl_generator_for one = *what;

    for (one.rank = 0; one.rank < what->nranks; one.rank++) {
        xcclResult_t rc = xccl_generator_make(generator, &one, &schedules_out[one.rank]);

        if (rc) {
            while (one.rank > 0)
                xccl_schedule_destroy(schedules_out[--one.rank]);
            return rc;
        }
    }
    return xcclSuccess;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Hierarchies before anything is emitted: the nodes, the algorithms of their parts, and numbers of
 * chunks. Thread: any. */
#include "schedule/gen_hier_int.h"

#include <limits.h>

#include "base/alloc.h"
#include "base/error.h"

#define FEW        8 /* ranks or nodes */
#define CHUNKS_MAX 65535

/* Whoever needs it tells: a choice by default takes another algorithm. */
static xcclResult_t refuse(const struct xccl_generator_for *what, const char *why, long number)
{
    (void)xccl_fail_quietly(
        xcclInvalidArgument, 0, "choose other nodes or parts, or another algorithm",
        "hier cannot be made for %d ranks: %s (%ld)", what->nranks, why, number);
    return xcclInvalidArgument;
}

void xccl_hier_layout_free(struct xccl_hier_layout *layout)
{
    xccl_free(layout->at);
}

/* Sizes of nodes become places where they begin; numbers without ranks are left out. */
static void number_nodes(struct xccl_hier_layout *layout, int n)
{
    int nnodes = 0;

    layout->least = n;
    for (int id = 0; id < n; id++) {
        int size = layout->first[id + 1];

        layout->next[id] = nnodes;
        if (size == 0)
            continue;
        layout->first[nnodes + 1] = layout->first[nnodes] + size;
        layout->least = xccl_gen_min(layout->least, size);
        layout->most = layout->most < size ? size : layout->most;
        nnodes++;
    }
    layout->nnodes = nnodes;
}

xcclResult_t xccl_hier_layout_make(const struct xccl_generator_for *what,
                                   struct xccl_hier_layout *layout)
{
    int n = what->nranks;

    *layout = (struct xccl_hier_layout){0};
    for (int r = 0; what->nodes && r < n; r++)
        if (what->nodes[r] < 0 || what->nodes[r] >= n)
            return refuse(what, "a node's number is too large or negative", what->nodes[r]);
    layout->at = xccl_calloc(5 * (size_t)n + 1, sizeof(*layout->at));
    if (!layout->at)
        return xcclSystemError;
    layout->member = layout->at + n;
    layout->place = layout->member + n;
    layout->next = layout->place + n;
    layout->first = layout->next + n;
    for (int r = 0; r < n; r++)
        layout->first[(what->nodes ? what->nodes[r] : 0) + 1]++;
    number_nodes(layout, n);
    for (int r = 0; r < n; r++)
        layout->at[r] = layout->next[what->nodes ? what->nodes[r] : 0];
    for (int node = 0; node < layout->nnodes; node++)
        layout->next[node] = 0;
    for (int r = 0; r < n; r++) {
        int node = layout->at[r];

        layout->place[r] = layout->next[node]++;
        layout->member[layout->first[node] + layout->place[r]] = r;
    }
    return xcclSuccess;
}

/* ---- which algorithms ---- */

static const char *usual(const struct xccl_hier_part *part, const struct xccl_hier_layout *layout)
{
    int few = part->nranks <= FEW;

    switch (part->coll) {
    case XCCL_COLL_ALL_REDUCE:
        return few ? "ring" : "nhr";
    case XCCL_COLL_REDUCE_SCATTER:
    case XCCL_COLL_ALL_GATHER:
        if (!part->outer)
            return few ? "mesh" : "ring";
        if (part->coll == XCCL_COLL_REDUCE_SCATTER && layout->most != layout->least)
            return "ring"; /* nhr has scratch memory there */
        return few ? "ring" : "nhr";
    case XCCL_COLL_BARRIER:
        return "dissemination";
    case XCCL_COLL_ALL_TO_ALL:
        return "pairwise";
    case XCCL_COLL_GATHER:
    case XCCL_COLL_SCATTER:
        return few || part->outer ? "direct" : "binomial";
    default:
        return few && part->outer ? "chain" : "binomial";
    }
}

xcclResult_t xccl_hier_choose(const struct xccl_generator_for *what,
                              const struct xccl_hier_layout *layout,
                              const struct xccl_hier_part *part,
                              const struct xccl_generator **generator_out,
                              struct xccl_generator_for *for_out, int *nchunks_out)
{
    const char *name = part->outer ? what->outer : what->inner;
    const struct xccl_generator *found;

    name = part->name ? part->name : name;
    if (!name)
        name = usual(part, layout);
    *for_out = (struct xccl_generator_for){
        .nranks = part->nranks, .rank = part->rank, .root = part->root};
    found = xccl_generator_find(part->coll, name, &for_out->param);
    if (!found || found->plan || (found->serves && !found->serves(for_out)))
        return xccl_fail_quietly(
            xcclInvalidArgument, 0, "`xccl algo list` lists collectives and algorithms",
            "hier cannot use %s for %s %s of %d ranks", name,
            part->outer ? "the outer" : "the inner", xccl_coll_name(part->coll), part->nranks);
    *generator_out = found;
    *nchunks_out = found->chunks ? found->chunks(for_out) : 1;
    return xcclSuccess;
}

/* ---- numbers of chunks ---- */

/* The least common multiple, at most CHUNKS_MAX + 1. */
static int common_multiple(int a, int b)
{
    int x = a, y = b;
    int64_t multiple;

    while (y) {
        int rest = x % y;

        x = y;
        y = rest;
    }
    multiple = (int64_t)(a / x) * b;
    return multiple > CHUNKS_MAX ? CHUNKS_MAX + 1 : (int)multiple;
}

static xcclResult_t fits(const struct xccl_generator_for *what, int64_t nchunks, int *nchunks_out)
{
    if (nchunks > CHUNKS_MAX)
        return refuse(what, "nodes of such sizes need more chunks than allowed", CHUNKS_MAX);
    *nchunks_out = (int)nchunks;
    return xcclSuccess;
}

int xccl_hier_slices(const struct xccl_hier_layout *layout)
{
    int slices = 1;

    for (int node = 0; node < layout->nnodes && slices <= CHUNKS_MAX; node++)
        slices = common_multiple(slices, xccl_hier_size(layout, node));
    return slices;
}

int xccl_hier_owners_end(const struct xccl_hier_layout *layout, int slices, int s)
{
    int end = slices;

    for (int node = 0; node < layout->nnodes; node++) {
        int share = slices / xccl_hier_size(layout, node);

        end = xccl_gen_min(end, (s / share + 1) * share);
    }
    return end;
}

/* Chunks for the nodes together; 1 where there is one. */
static xcclResult_t outer_chunks(const struct xccl_generator_for *what,
                                 const struct xccl_hier_layout *layout, enum xccl_coll coll,
                                 int *nchunks_out)
{
    struct xccl_hier_part part = {.coll = coll, .outer = 1, .nranks = layout->nnodes};
    const struct xccl_generator *generator;
    struct xccl_generator_for inside;

    *nchunks_out = 1;
    if (layout->nnodes == 1)
        return xcclSuccess;
    return xccl_hier_choose(what, layout, &part, &generator, &inside, nchunks_out);
}

static xcclResult_t shares_chunks(const struct xccl_generator_for *what,
                                  const struct xccl_hier_layout *layout, enum xccl_coll coll,
                                  int *nchunks_out)
{
    int outer;
    xcclResult_t rc = outer_chunks(what, layout, coll, &outer);

    return rc ? rc : fits(what, (int64_t)outer * xccl_hier_slices(layout), nchunks_out);
}

/* Of broadcast and reduce: what all parts have can be divided as each wants. */
static xcclResult_t rooted_chunks(const struct xccl_generator_for *what,
                                  const struct xccl_hier_layout *layout, enum xccl_coll coll,
                                  int *nchunks_out)
{
    struct xccl_hier_part part = {.coll = coll};
    int nchunks;
    xcclResult_t rc = outer_chunks(what, layout, coll, &nchunks);

    for (int node = 0; node < layout->nnodes && !rc && nchunks <= CHUNKS_MAX; node++) {
        const struct xccl_generator *generator;
        struct xccl_generator_for inside;
        int inner = 1;

        part.nranks = xccl_hier_size(layout, node);
        if (part.nranks > 1)
            rc = xccl_hier_choose(what, layout, &part, &generator, &inside, &inner);
        nchunks = common_multiple(nchunks, inner);
    }
    return rc ? rc : fits(what, nchunks, nchunks_out);
}

/* Scratch memory of an all-to-all: what rank 0 of a node collects, which has the most rails. */
static xcclResult_t alltoall_chunks(const struct xccl_generator_for *what,
                                    const struct xccl_hier_layout *layout, int *nchunks_out)
{
    int64_t most = 0;
    int nscratch;
    xcclResult_t rc;

    for (int node = 0; node < layout->nnodes; node++) {
        int size = xccl_hier_size(layout, node);
        int64_t blocks = 0;

        for (int other = 0; other < layout->nnodes; other++)
            blocks += other == node ? 0 : (xccl_hier_size(layout, other) + size - 1) / size;
        most = blocks * (size - 1) > most ? blocks * (size - 1) : most;
    }
    rc = fits(what, most, &nscratch);
    if (!rc)
        *nchunks_out = what->nranks;
    return rc;
}

static xcclResult_t plan(enum xccl_coll coll, const struct xccl_generator_for *what, int has_shares,
                         int *nchunks_out)
{
    struct xccl_hier_layout layout;
    xcclResult_t rc = xccl_hier_layout_make(what, &layout);

    if (rc)
        return rc;
    if (has_shares)
        rc = shares_chunks(what, &layout, coll, nchunks_out);
    else if (coll == XCCL_COLL_BROADCAST || coll == XCCL_COLL_REDUCE)
        rc = rooted_chunks(what, &layout, coll, nchunks_out);
    else if (coll == XCCL_COLL_ALL_TO_ALL)
        rc = alltoall_chunks(what, &layout, nchunks_out);
    else
        *nchunks_out = coll == XCCL_COLL_BARRIER ? 1 : what->nranks;
    xccl_hier_layout_free(&layout);
    return rc;
}

xcclResult_t xccl_hier_plan(enum xccl_coll coll, const struct xccl_generator_for *what,
                            int *nchunks_out)
{
    return plan(coll, what, coll == XCCL_COLL_ALL_REDUCE, nchunks_out);
}

xcclResult_t xccl_hier_plan_shares(enum xccl_coll coll, const struct xccl_generator_for *what,
                                   int *nchunks_out)
{
    return plan(coll, what, 1, nchunks_out);
}

/* ---- how often two ranks meet ---- */

/* A node of the least size. Two ranks of different nodes are not both in it, so they meet no more
 * often than some rank of another node meets anybody. */
static int smallest(const struct xccl_hier_layout *layout)
{
    int node = 0;

    while (xccl_hier_size(layout, node) != layout->least)
        node++;
    return node;
}

/* Parts with owners of their own in a share, over all shares of nodes but the smallest. */
static int most_changes(const struct xccl_hier_layout *layout, int slices)
{
    int without = smallest(layout), most = 1, end;
    int *count = layout->next;

    for (int s = 0; s < slices; s = end) {
        end = xccl_hier_owners_end(layout, slices, s);
        for (int node = 0; node < layout->nnodes; node++) {
            count[node] = s % (slices / xccl_hier_size(layout, node)) ? count[node] + 1 : 1;
            if (node != without && count[node] > most)
                most = count[node];
        }
    }
    return most;
}

/* Rails in which a rank is, over all nodes but the smallest. */
static int most_rails(const struct xccl_hier_layout *layout)
{
    int without = smallest(layout), most = 1;

    for (int node = 0; node < layout->nnodes; node++) {
        int size = xccl_hier_size(layout, node), rails = (layout->most + size - 1) / size;

        most = node != without && rails > most ? rails : most;
    }
    return most;
}

static int meetings(const struct xccl_generator_for *what, int has_shares)
{
    struct xccl_hier_layout layout;
    int most = INT_MAX, slices;

    if (xccl_hier_layout_make(what, &layout))
        return most;
    slices = has_shares ? xccl_hier_slices(&layout) : 1;
    if (slices <= CHUNKS_MAX)
        most = has_shares ? most_changes(&layout, slices) : most_rails(&layout);
    if (slices <= CHUNKS_MAX && (what->outer || layout.nnodes > FEW))
        most *= what->outer ? XCCL_HIER_IDS : 2; /* a ring has one each time, NHR two */
    xccl_hier_layout_free(&layout);
    return most;
}

int xccl_hier_meetings(enum xccl_coll coll, const struct xccl_generator_for *what)
{
    if (coll == XCCL_COLL_ALL_REDUCE)
        return meetings(what, 1);
    if (coll == XCCL_COLL_ALL_GATHER || coll == XCCL_COLL_REDUCE_SCATTER ||
        coll == XCCL_COLL_ALL_TO_ALL)
        return meetings(what, 0);
    return what->outer ? XCCL_HIER_IDS : 2;
}

int xccl_hier_meetings_shares(enum xccl_coll coll, const struct xccl_generator_for *what)
{
    (void)coll;
    return meetings(what, 1);
}

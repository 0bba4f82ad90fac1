/* SPDX-License-Identifier: BSD-3-Clause */
/* Which algorithm and protocol for a call. The table is what measurements on few cores and the
 * closed forms say; a tuner that knows better is asked last (tune.c). All ranks come to the same
 * result: nothing here depends on the rank. Thread: see plan.h. */
#include <string.h>

#include "base/error.h"
#include "plan/plan_int.h"
#include "schedule/algo_plugin.h"

#define NET_ONESHOT_MAX    8192u
#define NET_SMALL_MAX      8192u
#define DEVICE_ONESHOT_MAX (64u << 10)
#define DEVICE_TWOSHOT_MAX (1u << 20)
#define DEVICE_LINES_MAX   (16u << 10) /* of a chunk: lines with flags beat payload and header */
#define DEVICE_SMALL_MAX   (256u << 10)
#define BLOCK_SMALL_MAX    1024u /* blocks up to which few messages beat few bytes */
#define RAILS_MIN          (256u << 10)
#define HOSTS_CHUNK_MIN    512u /* where there are more chunks than ranks */

/* Up to where sending all to all beats two rounds (tests/bench/results/algorithms-2026-11-22.md).
 */
static size_t oneshot_limit(const struct xccl_planner *planner)
{
    if (planner->nranks <= 2)
        return SIZE_MAX / 2; /* no vector has more */
    if (!planner->all_local)
        return NET_ONESHOT_MAX;
    if (planner->is_device)
        return DEVICE_ONESHOT_MAX;
    if (planner->nranks == 3 || (planner->nranks == 4 && !planner->is_crowded))
        return 32u << 10;
    return 8u << 10;
}

static int is_mesh(const struct xccl_planner *planner)
{
    return planner->nranks <= (planner->all_local ? XCCL_MESH_LOCAL_MAX : XCCL_MESH_NET_MAX);
}

/* One order of combining for all elements, by ranks or by one tree, and two algorithms that share
 * it: for small vectors and for large ones. */
static const char *name_any_place(const struct xccl_planner *planner, enum xccl_coll coll,
                                  size_t bytes)
{
    if (coll == XCCL_COLL_REDUCE)
        return "binomial";
    if (coll == XCCL_COLL_REDUCE_SCATTER)
        return is_mesh(planner) ? "mesh" : "rhd";
    if (is_mesh(planner))
        return bytes <= oneshot_limit(planner) ? "oneshot" : "twoshot";
    return bytes <= NET_SMALL_MAX ? "rd" : "rhd";
}

static int reduces(enum xccl_coll coll)
{
    return coll == XCCL_COLL_ALL_REDUCE || coll == XCCL_COLL_REDUCE_SCATTER ||
           coll == XCCL_COLL_REDUCE;
}

/* Has the algorithm the order that XCCL_DETERMINISM asks for? */
static int keeps_order(const struct xccl_planner *planner, const struct xccl_call *call,
                       const struct xccl_generator *generator)
{
    if (!planner->any_place || planner->nranks == 1 || !reduces(call->coll))
        return 1;
    if (xccl_algo_plugin_path(generator))
        return 0;
    if (call->sizes)
        return strcmp(generator->name, "mesh") == 0;
    return strcmp(generator->name, name_any_place(planner, call->coll, 0)) == 0 ||
           strcmp(generator->name, name_any_place(planner, call->coll, SIZE_MAX)) == 0;
}

/* Where ranks wait for cores each round costs a turn of all of them, and a mesh has one or two.
 * Does that beat the ring? */
static int is_for_crowd(const struct xccl_planner *planner, enum xccl_coll coll, size_t bytes)
{
    int n = planner->nranks;

    if (!planner->is_crowded || n < 4)
        return 0;
    if (coll == XCCL_COLL_ALL_REDUCE)
        return n <= 8 || (n <= 32 && bytes <= 1u << 20);
    return n == 4 || (n <= 16 && bytes <= 32u << 10);
}

static const char *name_all_reduce(const struct xccl_planner *planner, size_t bytes)
{
    if (planner->nranks == 1)
        return "ring";
    if (is_mesh(planner) && bytes <= oneshot_limit(planner))
        return "oneshot";
    if (is_for_crowd(planner, XCCL_COLL_ALL_REDUCE, bytes))
        return "twoshot";
    if (planner->is_device && is_mesh(planner) && bytes <= DEVICE_TWOSHOT_MAX)
        return "twoshot";
    return !is_mesh(planner) && bytes <= NET_SMALL_MAX ? "rd" : "ring";
}

static const char *name_reduce_scatter(const struct xccl_planner *planner, size_t bytes)
{
    int small = bytes <= BLOCK_SMALL_MAX;

    if ((is_mesh(planner) && small) || is_for_crowd(planner, XCCL_COLL_REDUCE_SCATTER, bytes))
        return "mesh";
    return small ? "nhr" : "ring";
}

/* The algorithm by default; bytes: of the vector, or of a rank's block. */
static const char *name_of(const struct xccl_planner *planner, enum xccl_coll coll, size_t bytes)
{
    int small = bytes <= BLOCK_SMALL_MAX;

    if (planner->any_place && planner->nranks > 1 && reduces(coll))
        return name_any_place(planner, coll, bytes);
    switch (coll) {
    case XCCL_COLL_ALL_REDUCE:
        return name_all_reduce(planner, bytes);
    case XCCL_COLL_REDUCE_SCATTER:
        return name_reduce_scatter(planner, bytes);
    case XCCL_COLL_ALL_GATHER:
        if (is_mesh(planner) && (planner->all_local || small))
            return "mesh";
        return small ? "nhr" : "ring";
    case XCCL_COLL_BROADCAST:
    case XCCL_COLL_REDUCE:
        return bytes <= NET_SMALL_MAX ? "binomial" : "chain";
    case XCCL_COLL_SCATTER:
    case XCCL_COLL_GATHER:
        return is_mesh(planner) ? "direct" : "binomial";
    case XCCL_COLL_ALL_TO_ALL:
        return small && planner->nranks > 16 ? "bruck" : "pairwise";
    default:
        return "dissemination";
    }
}

const uint16_t *xccl_plan_order(const struct xccl_planner *planner,
                                const struct xccl_generator *generator)
{
    int is_by_rank = planner->any_place && reduces(generator->coll);

    return generator->takes_order && !is_by_rank ? planner->order : NULL;
}

struct xccl_generator_for xccl_plan_what(const struct xccl_planner *planner,
                                         const struct xccl_generator *generator, int param,
                                         int root)
{
    return (struct xccl_generator_for){.nranks = planner->nranks,
                                       .rank = planner->rank,
                                       .root = root,
                                       .param = param,
                                       .multicast = planner->multicast,
                                       .nodes = planner->nodes,
                                       .order = xccl_plan_order(planner, generator)};
}

static int serves(const struct xccl_planner *planner, const struct xccl_generator *generator,
                  int param, int root)
{
    struct xccl_generator_for what = xccl_plan_what(planner, generator, param, root);

    return !generator->serves || generator->serves(&what);
}

/* What serves blocks of different sizes: proofs say so (core/schedule/README.md). No hierarchies,
 * of which not all do; in an all-to-all only what goes straight to its receiver, since nobody else
 * knows its size. */
static const struct {
    enum xccl_coll coll;
    const char *name;
} any_sizes[] = {
    {XCCL_COLL_ALL_GATHER, "ring"},     {XCCL_COLL_ALL_GATHER, "mesh"},
    {XCCL_COLL_ALL_GATHER, "rhd"},      {XCCL_COLL_ALL_GATHER, "nhr"},
    {XCCL_COLL_ALL_GATHER, "nb"},       {XCCL_COLL_ALL_GATHER, "pat"},
    {XCCL_COLL_REDUCE_SCATTER, "ring"}, {XCCL_COLL_REDUCE_SCATTER, "mesh"},
    {XCCL_COLL_ALL_TO_ALL, "pairwise"},
};

static int serves_any_sizes(const struct xccl_generator *generator)
{
    for (size_t i = 0; i < sizeof any_sizes / sizeof any_sizes[0]; i++)
        if (any_sizes[i].coll == generator->coll && strcmp(any_sizes[i].name, generator->name) == 0)
            return !xccl_algo_plugin_path(generator);
    return 0;
}

/* Chunks that the algorithm cuts the vector into. xcclInvalidArgument: not logged yet. */
static xcclResult_t count_chunks(const struct xccl_planner *planner, const struct xccl_call *call,
                                 const struct xccl_generator *generator, int param,
                                 int *nchunks_out)
{
    struct xccl_generator_for what = xccl_plan_what(planner, generator, param, call->root);

    if (generator->plan)
        return generator->plan(generator->coll, &what, nchunks_out);
    *nchunks_out = generator->chunks ? generator->chunks(&what) : 1;
    return xcclSuccess;
}

int xccl_plan_fits(const struct xccl_planner *planner, const struct xccl_call *call,
                   const struct xccl_generator *generator, int param)
{
    return serves(planner, generator, param, call->root) && keeps_order(planner, call, generator) &&
           (!call->sizes || serves_any_sizes(generator));
}

/* The algorithm by default of a v-collective. bytes: of the largest block, as far as all know. */
static const char *name_sized(const struct xccl_planner *planner, enum xccl_coll coll, size_t bytes)
{
    if (coll == XCCL_COLL_ALL_TO_ALL)
        return "pairwise";
    if (planner->any_place && coll == XCCL_COLL_REDUCE_SCATTER)
        return "mesh";
    if (!is_mesh(planner))
        return "ring";
    return bytes <= BLOCK_SMALL_MAX || (coll == XCCL_COLL_ALL_GATHER && planner->all_local)
               ? "mesh"
               : "ring";
}

/* --- hosts --- */

/* Do ranks share hosts, and talk to other hosts, too? Numbers of hosts begin at 0, without gaps. */
static int is_between_hosts(const struct xccl_planner *planner)
{
    int last = 0;

    if (planner->all_local || !planner->nodes)
        return 0;
    for (int i = 0; i < planner->nranks; i++)
        if (planner->nodes[i] > last)
            last = planner->nodes[i];
    return last > 0 && last + 1 < planner->nranks;
}

/* Messages straight to the root, or from it, cross its card no more often than the hierarchy's; an
 * all-to-all sends the same bytes between hosts in any way. Small vectors that all ranks need gain
 * more from few rounds. */
static int has_hosts_stage(const struct xccl_planner *planner, enum xccl_coll coll, size_t bytes)
{
    switch (coll) {
    case XCCL_COLL_ALL_REDUCE:
        return bytes > NET_SMALL_MAX;
    case XCCL_COLL_GATHER:
    case XCCL_COLL_SCATTER:
        return !is_mesh(planner);
    default:
        return coll != XCCL_COLL_ALL_TO_ALL && coll != XCCL_COLL_BARRIER;
    }
}

/* Hosts of different sizes may need many chunks of a vector, too many for a small one, and more
 * connections of two ranks than there is room for. */
static int suits_hosts(const struct xccl_planner *planner, const struct xccl_call *call,
                       size_t bytes, const struct xccl_choice *choice)
{
    const struct xccl_generator *generator = choice->generator;
    struct xccl_generator_for what = xccl_plan_what(planner, generator, choice->param, call->root);
    int nchunks = 1;

    return !count_chunks(planner, call, generator, choice->param, &nchunks) &&
           (nchunks <= planner->nranks || bytes / (size_t)nchunks >= HOSTS_CHUNK_MIN) &&
           (!generator->meetings || generator->meetings(call->coll, &what) < XCCL_CONN_IDS);
}

static int choose_named(const struct xccl_planner *planner, const struct xccl_call *call,
                        size_t bytes, const char *name, struct xccl_choice *choice)
{
    choice->generator = xccl_generator_find(call->coll, name, &choice->param);
    return choice->generator &&
           xccl_algo_setting_allows(&planner->setting, choice->generator, choice->param) &&
           xccl_plan_fits(planner, call, choice->generator, choice->param) &&
           suits_hosts(planner, call, bytes, choice);
}

/* A stage in each host and one between hosts: as few bytes as possible cross a host's card, in
 * whatever order the ranks come; of large vectors with one root all ranks carry a share, since each
 * may have a card of its own. 1: that is the choice. */
static int choose_hosts(const struct xccl_planner *planner, const struct xccl_call *call,
                        size_t bytes, struct xccl_choice *choice)
{
    if (call->sizes || !has_hosts_stage(planner, call->coll, bytes) || !is_between_hosts(planner))
        return 0;
    return (bytes >= RAILS_MIN && choose_named(planner, call, bytes, "rails", choice)) ||
           choose_named(planner, call, bytes, "hier", choice);
}

static xcclResult_t refuse(const struct xccl_planner *planner, const struct xccl_call *call)
{
    return xccl_fail_quietly(
        xcclInvalidUsage, 0,
        call->sizes ? "allow ring, or pairwise of all_to_all"
                    : "allow another one; `xccl algo list -n N` lists all algorithms",
        "XCCL_ALGO%s leaves no algorithm of %s for %d ranks%s",
        planner->any_place ? " with XCCL_DETERMINISM=3" : "", xccl_coll_name(call->coll),
        planner->nranks, call->sizes ? " and blocks of different sizes" : "");
}

/* The first one that the setting allows: of its list in its order, else of the table. */
static xcclResult_t choose_allowed(const struct xccl_planner *planner, const struct xccl_call *call,
                                   struct xccl_choice *choice)
{
    const struct xccl_algo_list *list = &planner->setting.lists[call->coll];

    for (uint32_t i = 0; i < list->count && !list->excludes; i++) {
        choice->generator = list->algos[i].generator;
        choice->param = list->algos[i].param;
        if (xccl_plan_fits(planner, call, choice->generator, choice->param))
            return xcclSuccess;
    }
    for (const struct xccl_generator *const *at = xccl_generators; *at && list->excludes; at++) {
        choice->generator = *at;
        choice->param = 0;
        if ((*at)->coll == call->coll && xccl_algo_setting_allows(&planner->setting, *at, 0) &&
            xccl_plan_fits(planner, call, *at, 0))
            return xcclSuccess;
    }
    return refuse(planner, call);
}

static xcclResult_t choose_algo(const struct xccl_planner *planner, const struct xccl_call *call,
                                size_t bytes, struct xccl_choice *choice)
{
    const char *name = call->sizes ? name_sized(planner, call->coll, bytes)
                                   : name_of(planner, call->coll, bytes);

    if (choose_hosts(planner, call, bytes, choice))
        return xcclSuccess;
    choice->generator = xccl_generator_find(call->coll, name, &choice->param);
    if (!choice->generator)
        return xccl_fail(xcclInternalError, 0, "report this as a bug", "no algorithm %s of %s",
                         name, xccl_coll_name(call->coll));
    if (xccl_algo_setting_allows(&planner->setting, choice->generator, choice->param) &&
        xccl_plan_fits(planner, call, choice->generator, choice->param))
        return xcclSuccess;
    return choose_allowed(planner, call, choice);
}

/* Small messages have slots of their own in shared memory. A network has one kind, and where sizes
 * differ between pairs of ranks nobody could say which small slots to use. */
static int has_one_proto(const struct xccl_planner *planner, const struct xccl_call *call)
{
    return !planner->all_local || planner->nranks == 1 || call->sizes;
}

int xccl_plan_proto_fits(const struct xccl_planner *planner, const struct xccl_call *call,
                         enum xccl_proto proto)
{
    if (planner->nranks == 1) /* it sends no messages */
        return proto == XCCL_PROTO_SLICES;
    if (has_one_proto(planner, call) && proto != XCCL_PROTO_SLICES)
        return 0;
    if (proto == XCCL_PROTO_LINES && planner->nranks > XCCL_LINES_FAN_MAX)
        return 0;
    return xccl_proto_setting_allows(&planner->protos, call->coll, proto);
}

static enum xccl_proto usual_proto(const struct xccl_planner *planner, const struct xccl_call *call,
                                   size_t chunk_bytes)
{
    if (has_one_proto(planner, call))
        return XCCL_PROTO_SLICES;
    if (planner->is_device)
        return chunk_bytes <= DEVICE_LINES_MAX   ? XCCL_PROTO_LINES
               : chunk_bytes <= DEVICE_SMALL_MAX ? XCCL_PROTO_SMALL
                                                 : XCCL_PROTO_SLICES;
    if (chunk_bytes <= XCCL_LINES_MAX_BYTES && planner->nranks <= XCCL_LINES_FAN_MAX)
        return XCCL_PROTO_LINES;
    return chunk_bytes <= XCCL_SMALL_MAX_BYTES ? XCCL_PROTO_SMALL : XCCL_PROTO_SLICES;
}

/* The usual one, else the next larger that the setting allows, else the next smaller. */
xcclResult_t xccl_plan_choose_proto(const struct xccl_planner *planner,
                                    const struct xccl_call *call, size_t chunk_bytes,
                                    enum xccl_proto *proto_out)
{
    int usual = (int)usual_proto(planner, call, chunk_bytes), proto = usual;

    while (proto < XCCL_PROTO_NAMED && !xccl_plan_proto_fits(planner, call, (enum xccl_proto)proto))
        proto++;
    if (proto == XCCL_PROTO_NAMED)
        for (proto = usual - 1; proto >= 0; proto--)
            if (xccl_plan_proto_fits(planner, call, (enum xccl_proto)proto))
                break;
    if (proto < 0)
        return xccl_fail_quietly(xcclInvalidUsage, 0, "allow slices",
                                 "XCCL_PROTO leaves no protocol of %s for %d ranks%s",
                                 xccl_coll_name(call->coll), planner->nranks,
                                 call->sizes           ? " and blocks of different sizes"
                                 : !planner->all_local ? " over a network"
                                                       : "");
    *proto_out = (enum xccl_proto)proto;
    return xcclSuccess;
}

static xcclResult_t choose_sized(const struct xccl_planner *planner, const struct xccl_call *call,
                                 struct xccl_choice *choice)
{
    xcclResult_t rc = choose_algo(planner, call, xccl_plan_known_bytes(call), choice);

    return rc ? rc : xccl_plan_choose_proto(planner, call, 0, &choice->proto);
}

static xcclResult_t choose_alike(const struct xccl_planner *planner, const struct xccl_call *call,
                                 struct xccl_choice *choice)
{
    size_t bytes;
    int nchunks = 1;
    xcclResult_t rc = xccl_plan_bytes(planner, call, &bytes);

    if (!rc)
        rc = choose_algo(planner, call, bytes, choice);
    if (!rc)
        rc = xccl_generator_told(
            count_chunks(planner, call, choice->generator, choice->param, &nchunks));
    if (rc)
        return rc;
    return xccl_plan_choose_proto(planner, call, xccl_plan_chunk_bytes(call->coll, bytes, nchunks),
                                  &choice->proto);
}

xcclResult_t xccl_plan_choose_built_in(const struct xccl_planner *planner,
                                       const struct xccl_call *call, struct xccl_choice *choice_out)
{
    struct xccl_choice choice = {0};
    xcclResult_t rc = call->sizes ? choose_sized(planner, call, &choice)
                                  : choose_alike(planner, call, &choice);

    if (!rc)
        *choice_out = choice;
    return rc;
}

xcclResult_t xccl_plan_choose(const struct xccl_planner *planner, const struct xccl_call *call,
                              struct xccl_choice *choice_out)
{
    struct xccl_choice choice;
    size_t bytes = 0;
    xcclResult_t rc = xccl_plan_choose_built_in(planner, call, &choice);

    if (!rc && planner->tuner.calls && planner->nranks > 1 && !call->sizes) {
        rc = xccl_plan_bytes(planner, call, &bytes);
        if (!rc)
            rc = xccl_plan_tune(planner, call, bytes, &choice);
    }
    if (!rc)
        *choice_out = choice;
    return rc;
}

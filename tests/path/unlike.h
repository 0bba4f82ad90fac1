/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of tests of calls that do not belong together: the calls that ranks make, drawn by a seed,
 * in the words of the library's texts, the one text that all ranks must have, and the page between
 * ranks. Header only. */
#ifndef TESTS_PATH_UNLIKE_H
#define TESTS_PATH_UNLIKE_H

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../collective/world.h"
#include "xccl.h"
#include "xt.h"

#define UNLIKE_TEXT_BYTES 640
#define UNLIKE_RANKS_MAX  5

enum kind { COLLECTIVE, SEND, RECV, CONNECT, SPLIT, LEAVE };
enum coll {
    BROADCAST,
    REDUCE,
    GATHER,
    SCATTER,
    ALL_REDUCE,
    ALL_GATHER,
    REDUCE_SCATTER,
    ALL_TO_ALL,
    BARRIER,
    COLL_COUNT
};
/* How two collectives differ. */
enum unlike {
    OTHER_ROOT,
    OTHER_COUNT,
    NOTHING_OR_SOME,
    OTHER_TYPE,
    OTHER_OPERATOR,
    OTHER_COLLECTIVE,
    UNLIKE_COUNT
};

/* One thing that a rank does. */
struct act {
    enum kind kind;
    enum coll coll;
    size_t count;
    xcclDataType_t type;
    xcclRedOp_t op;
    int root, peer;
};

static const char *const coll_names[COLL_COUNT] = {"broadcast",      "reduce",     "gather",
                                                   "scatter",        "all-reduce", "all-gather",
                                                   "reduce-scatter", "all-to-all", "barrier"};
static const xcclDataType_t types[] = {xcclInt8, xcclInt32, xcclFloat32, xcclFloat64};
static const char *const type_names[] = {"int8", "int32", "float32", "float64"};
static const size_t type_bytes[] = {1, 4, 4, 8};
static const char *const op_names[] = {"sum", "prod", "max", "min"};

static inline int type_at(xcclDataType_t type)
{
    int at = 0;

    while (types[at] != type)
        at++;
    return at;
}

static inline int is_rooted(enum coll coll)
{
    return coll <= SCATTER;
}

static inline int reduces(enum coll coll)
{
    return coll == REDUCE || coll == ALL_REDUCE || coll == REDUCE_SCATTER;
}

/* As the library's texts say it. */
static inline void describe(const struct act *act, char *out, size_t bytes)
{
    size_t size = act->count * type_bytes[type_at(act->type)];
    int used;

    switch (act->kind) {
    case SEND:
        snprintf(out, bytes, "send of %zu bytes to rank %d", size, act->peer);
        return;
    case RECV:
        snprintf(out, bytes, "receive of %zu bytes from rank %d", size, act->peer);
        return;
    case CONNECT:
        snprintf(out, bytes, "xcclCommConnectAll");
        return;
    case SPLIT:
        snprintf(out, bytes, "xcclCommSplit");
        return;
    case LEAVE:
        snprintf(out, bytes, "has left");
        return;
    default:
        break;
    }
    used = snprintf(out, bytes, "%s", coll_names[act->coll]);
    if (act->coll == BARRIER)
        return;
    used += snprintf(out + used, bytes - (size_t)used, " of %zu %s", act->count,
                     type_names[type_at(act->type)]);
    if (reduces(act->coll))
        used += snprintf(out + used, bytes - (size_t)used, ", %s", op_names[act->op]);
    if (is_rooted(act->coll))
        snprintf(out + used, bytes - (size_t)used, ", root %d", act->root);
}

static inline xcclResult_t unlike_call(const struct act *act, xcclComm_t comm, void *in, void *out,
                                       xcclStream_t stream)
{
    switch (act->coll) {
    case BROADCAST:
        return xcclBroadcast(in, out, act->count, act->type, act->root, comm, stream);
    case REDUCE:
        return xcclReduce(in, out, act->count, act->type, act->op, act->root, comm, stream);
    case GATHER:
        return xcclGather(in, out, act->count, act->type, act->root, comm, stream);
    case SCATTER:
        return xcclScatter(in, out, act->count, act->type, act->root, comm, stream);
    case ALL_REDUCE:
        return xcclAllReduce(in, out, act->count, act->type, act->op, comm, stream);
    case ALL_GATHER:
        return xcclAllGather(in, out, act->count, act->type, comm, stream);
    case REDUCE_SCATTER:
        return xcclReduceScatter(in, out, act->count, act->type, act->op, comm, stream);
    case ALL_TO_ALL:
        return xcclAlltoAll(in, out, act->count, act->type, comm, stream);
    default:
        return xcclBarrier(comm, stream);
    }
}

/* --- drawing --- */

static inline size_t draw_count(uint64_t *random, size_t least)
{
    static const size_t most[] = {20, 900, 4000, 12000};
    size_t of = most[xt_random(random) % 4];

    return least + xt_random(random) % of;
}

static inline struct act draw_collective(uint64_t *random, int nranks)
{
    struct act act = {.kind = COLLECTIVE, .coll = xt_random(random) % COLL_COUNT};

    act.type = types[xt_random(random) % 4];
    act.op = (xcclRedOp_t)(xt_random(random) % 4);
    act.root = (int)(xt_random(random) % (unsigned)nranks);
    act.count = draw_count(random, 1);
    return act;
}

static inline struct act draw_sized(uint64_t *random, int nranks)
{
    struct act act = draw_collective(random, nranks);

    while (act.coll == BARRIER)
        act = draw_collective(random, nranks);
    return act;
}

/* Draws what the odd rank calls, and the others. */
static inline void unlike_draw(enum unlike unlike, uint64_t *random, int nranks, struct act *even,
                               struct act *odd)
{
    unsigned others = nranks > 1 ? (unsigned)nranks - 1 : 1;

    *even = draw_sized(random, nranks);
    while (unlike == OTHER_OPERATOR && !reduces(even->coll))
        *even = draw_sized(random, nranks);
    if (unlike == OTHER_ROOT)
        even->coll = (enum coll)(xt_random(random) % 4);
    *odd = *even;
    switch (unlike) {
    case OTHER_ROOT:
        odd->root = (even->root + 1 + (int)(xt_random(random) % others)) % nranks;
        break;
    case OTHER_COUNT:
        odd->count += 1 + xt_random(random) % 2000;
        break;
    case NOTHING_OR_SOME:
        (xt_random(random) % 2 ? odd : even)->count = 0;
        break;
    case OTHER_TYPE:
        odd->type = types[((unsigned)type_at(even->type) + 1 + xt_random(random) % 3) % 4];
        break;
    case OTHER_OPERATOR:
        odd->op = (xcclRedOp_t)(((unsigned)even->op + 1 + xt_random(random) % 3) % 4);
        break;
    default:
        while (odd->coll == even->coll)
            *odd = draw_collective(random, nranks);
        break;
    }
}

/* --- the text --- */

/* "ranks disagree: rank A ... CALL, but rank B ... CALL": two ranks, each with its own call. */
static inline const char *unlike_text(const struct act *acts, const char *text, int nranks)
{
    const char *first = strstr(text, "ranks disagree: rank "), *second;
    char want[96], left[UNLIKE_TEXT_BYTES];
    int a, b;

    if (!first)
        return "it does not say that ranks disagree";
    first += strlen("ranks disagree: ");
    second = strstr(first, ", but rank ");
    if (!second || sscanf(first, "rank %d", &a) != 1 || sscanf(second, ", but rank %d", &b) != 1)
        return "it does not name two ranks";
    if (a < 0 || a >= nranks || b < 0 || b >= nranks || a == b)
        return "it names other ranks";
    snprintf(left, sizeof left, "%.*s", (int)(second - first), first);
    describe(&acts[a], want, sizeof want);
    if (!strstr(left, want))
        return "the first rank made another call";
    describe(&acts[b], want, sizeof want);
    if (!strstr(second, want))
        return "the second rank made another call";
    return NULL;
}

/* --- the page between ranks --- */

struct outcome {
    xcclResult_t rc;
    double seconds;
    int was_in_call; /* it was still in a call when the error came */
    char text[UNLIKE_TEXT_BYTES];
};

struct page {
    struct world world;
    _Atomic unsigned gates[UNLIKE_RANKS_MAX];
    struct outcome outcomes[UNLIKE_RANKS_MAX];
    uint64_t seed;
    const char *way; /* the kind of links; NULL: shared memory */
    int runs, failed;
};

/* A line for each rank of a case that failed. */
static inline void unlike_show(const struct page *page, const struct act *acts,
                               const unsigned *delay_us, int nranks)
{
    for (int i = 0; i < nranks; i++) {
        char text[96];

        describe(&acts[i], text, sizeof text);
        printf("  rank %d: %s after %u us: result %d, %.3f s: %s\n", i, text, delay_us[i],
               (int)page->outcomes[i].rc, page->outcomes[i].seconds, page->outcomes[i].text);
    }
}

/* few: cases, unless XT_MISMATCH_RUNS says how many. */
static inline struct page *page_create(const char *way, uint64_t number, int few)
{
    struct page *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                             -1, 0);
    const char *runs = getenv("XT_MISMATCH_RUNS");

    XT_CHECK(page != MAP_FAILED);
    xt_set_error_source(world_error);
    page->way = way;
    page->runs = runs ? atoi(runs) : few;
    page->seed = xt_seed() + (number << 32);
    return page;
}

/* Until all ranks have come here once more. */
static inline void gate(struct page *page, int rank, int nranks)
{
    unsigned turn = atomic_fetch_add_explicit(&page->gates[rank], 1, memory_order_acq_rel) + 1;

    for (int i = 0; i < nranks; i++)
        while ((int)(atomic_load_explicit(&page->gates[i], memory_order_acquire) - turn) < 0)
            usleep(50); /* bounded by the test's deadline */
}

#endif

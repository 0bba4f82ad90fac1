/* SPDX-License-Identifier: BSD-3-Clause */
/* Asks a tuner (xccl_tuner.h) about a choice: all algorithms of the collective in all protocols are
 * handed out as candidates, and what comes back is compared with what went out. An answer that
 * breaks the contract in any place counts for nothing: the built-in choice stays, and the first one
 * of a process costs a warning. Pointers and the plugin's own code are as good as it is.
 * Thread: see plan.h. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "plan/plan_int.h"

#define COST_BUILT_IN  1.0
#define COST_USUAL     2.0
#define COST_OTHER     3.0
#define COST_NEVER     (-1.0)
#define TILE_MIN       64u
#define TILE_LARGEST   (128u << 10) /* no slot is larger, but for copies of one rank */
#define REASON_BYTES   320
#define SAID_BYTES_MAX 160

static_assert(sizeof(xcclTunerCandidate_v1_t) == 88, "all fields are looked at: is_kept");

struct row {
    xcclTunerCandidate_v1_t theirs, ours; /* what the tuner edits, and what it got */
    const struct xccl_generator *generator;
    enum xccl_proto proto;
};

struct question {
    const struct xccl_planner *planner;
    const struct xccl_call *call;
    size_t bytes;
    const struct xccl_choice *built_in;
    struct row *rows;
    xcclTunerCandidate_v1_t **list;
    int count;
    char why[REASON_BYTES]; /* the answer is none; "": it is one */
};

/* ---- warnings ---- */

static void warn_once(const struct xccl_planner *planner, const struct xccl_call *call,
                      const char *what)
{
    const struct xccl_plan_tuner *tuner = &planner->tuner;

    /* Relaxed: a count, with nothing behind it. */
    if (atomic_exchange_explicit(tuner->warned, 1, memory_order_relaxed))
        return;
    xccl_log(XCCL_LOG_WARN,
             "tuner plugin %s, queried about %s of %zu bytes: %s; the built-in choice is used; "
             "repetitions are not reported",
             tuner->name, xccl_coll_name(call->coll), call->count * xccl_type_bytes(call->type),
             what);
}

void xccl_plan_tuner_refuse(const struct xccl_planner *planner, const struct xccl_call *call,
                            const struct xccl_choice *choice)
{
    char why[REASON_BYTES];

    snprintf(why, sizeof why, "it chose %s, which cannot be used: %.240s", choice->generator->name,
             xccl_error_text());
    warn_once(planner, call, why);
}

/* The answer is none. */
static void reject(struct question *question, const char *fmt, ...)
    __attribute__((format(printf, 2, 3), cold));
static void reject(struct question *question, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(question->why, sizeof question->why, fmt, args);
    va_end(args);
}

/* ---- what is asked ---- */

static uint32_t tile_max(enum xccl_proto proto)
{
    static const uint32_t most[XCCL_PROTO_NAMED] = {
        [XCCL_PROTO_LINES] = XCCL_LINES_MAX_BYTES,
        [XCCL_PROTO_SMALL] = XCCL_SMALL_MAX_BYTES,
        [XCCL_PROTO_SLICES] = TILE_LARGEST,
    };
    static_assert(XCCL_LINES_MAX_BYTES % XCCL_TILE_ALIGN == 0, "it is a multiple");

    return most[proto];
}

/* The parameter that XCCL_ALGO asks for; 0: none. */
static int param_asked(const struct xccl_planner *planner, const struct xccl_generator *generator)
{
    const struct xccl_algo_list *list = &planner->setting.lists[generator->coll];

    for (uint32_t i = 0; i < list->count && !list->excludes; i++)
        if (list->algos[i].generator == generator)
            return list->algos[i].param;
    return 0;
}

/* The protocol that is usual for it; XCCL_PROTO_NAMED: none can be. */
static enum xccl_proto usual_proto(const struct question *question,
                                   const struct xccl_generator *generator, int param)
{
    const struct xccl_call *call = question->call;
    struct xccl_generator_for what = xccl_plan_what(question->planner, generator, param,
                                                    call->root);
    int nchunks = generator->chunks && !generator->plan ? generator->chunks(&what) : 1;
    enum xccl_proto proto = XCCL_PROTO_NAMED;

    if (nchunks < 1)
        nchunks = 1;
    (void)xccl_plan_choose_proto(question->planner, call,
                                 xccl_plan_chunk_bytes(call->coll, question->bytes, nchunks),
                                 &proto);
    return proto;
}

static void add_row(struct question *question, const struct xccl_generator *generator,
                    enum xccl_proto proto, double cost)
{
    struct row *row = &question->rows[question->count];
    int param = param_asked(question->planner, generator);

    row->generator = generator;
    row->proto = proto;
    row->ours = (xcclTunerCandidate_v1_t){
        .size = sizeof row->ours,
        .algorithm = generator->name,
        .protocol = xccl_proto_name(proto),
        .cost = cost,
        .param = param,
        .paramMin = param ? param : generator->param_min,
        .paramMax = param ? param : generator->param_max,
        .tileBytes = tile_max(proto),
        .tileMin = TILE_MIN,
        .tileMax = tile_max(proto),
        .tileAlign = XCCL_TILE_ALIGN,
    };
    row->theirs = row->ours;
    question->list[question->count++] = &row->theirs;
}

static void add_rows(struct question *question, const struct xccl_generator *generator)
{
    const struct xccl_planner *planner = question->planner;
    const struct xccl_choice *built_in = question->built_in;
    int param = param_asked(planner, generator);
    int usable = xccl_algo_setting_allows(&planner->setting, generator, param) &&
                 xccl_plan_fits(planner, question->call, generator, param);
    enum xccl_proto usual = usable ? usual_proto(question, generator, param) : XCCL_PROTO_NAMED;

    for (int i = 0; i < XCCL_PROTO_NAMED; i++) {
        enum xccl_proto proto = (enum xccl_proto)i;
        double cost = proto == usual ? COST_USUAL : COST_OTHER;

        if (generator == built_in->generator && proto == built_in->proto)
            continue;
        if (!usable || !xccl_plan_proto_fits(planner, question->call, proto))
            cost = COST_NEVER;
        add_row(question, generator, proto, cost);
    }
}

static int make_rows(struct question *question)
{
    const struct xccl_generator *generator;
    size_t most = 0;

    for (int i = 0; (generator = xccl_generator_at(i)); i++)
        most += generator->coll == question->call->coll ? XCCL_PROTO_NAMED : 0;
    question->rows = xccl_calloc(most, sizeof *question->rows);
    question->list = xccl_calloc(most, sizeof(void *));
    if (!question->rows || !question->list)
        return 0;
    add_row(question, question->built_in->generator, question->built_in->proto, COST_BUILT_IN);
    for (int i = 0; (generator = xccl_generator_at(i)); i++)
        /* Another thread may have added one since. */
        if (generator->coll == question->call->coll &&
            (size_t)question->count + XCCL_PROTO_NAMED <= most + 1)
            add_rows(question, generator);
    return 1;
}

/* 1: it has edited something. */
static int ask(struct question *question)
{
    const struct xccl_plan_tuner *tuner = &question->planner->tuner;
    const xcclTunerQuery_v1_t query = {
        .size = sizeof query,
        .collective = xccl_coll_name(question->call->coll),
        .bytes = question->bytes,
        .elemBytes = (int32_t)xccl_type_bytes(question->call->type),
        .root = question->call->root,
    };
    int32_t result = tuner->calls->choose(tuner->ctx, &query, question->list, question->count);
    const char *said = NULL;

    if (result == 0 || result == 1)
        return result;
    if (result < 0 && tuner->calls->lastError)
        said = tuner->calls->lastError();
    if (result < 0)
        reject(question, "it failed (%" PRId32 "): %.*s", result, SAID_BYTES_MAX,
               said ? said : "it does not say why");
    else
        reject(question, "it returned %" PRId32 ", which is neither 0 nor 1", result);
    return 0;
}

/* ---- what was answered ---- */

/* Fields that are not to be edited are as they were. */
static int is_kept(const struct row *row)
{
    const xcclTunerCandidate_v1_t *theirs = &row->theirs, *ours = &row->ours;

    return theirs->size == ours->size && theirs->paramMin == ours->paramMin &&
           theirs->paramMax == ours->paramMax && theirs->lanesMin == ours->lanesMin &&
           theirs->lanesMax == ours->lanesMax && theirs->tileMin == ours->tileMin &&
           theirs->tileMax == ours->tileMax && theirs->tileAlign == ours->tileAlign;
}

/* The name that was put in place of another one may be no text at all. */
static void check_row(struct question *question, const struct row *row)
{
    const xcclTunerCandidate_v1_t *ours = &row->ours;

    if (row->theirs.algorithm != ours->algorithm || row->theirs.protocol != ours->protocol)
        reject(question, "it changed the names of a candidate, %s in %s", ours->algorithm,
               ours->protocol);
    else if (!is_kept(row))
        reject(question, "it changed a field of %s in %s that is not to be edited", ours->algorithm,
               ours->protocol);
    else if (!isfinite(row->theirs.cost))
        reject(question, "the cost of %s in %s is no number", ours->algorithm, ours->protocol);
    else if (ours->cost < 0 && !(row->theirs.cost < 0))
        reject(question, "it gave a cost to %s in %s, which is not to be used here",
               ours->algorithm, ours->protocol);
}

static int in_bounds(int32_t value, int32_t least, int32_t most)
{
    return value == 0 || (value >= least && value <= most);
}

static void check_best(struct question *question, const struct row *row)
{
    const xcclTunerCandidate_v1_t *edited = &row->theirs;

    if (edited->tileBytes < edited->tileMin || edited->tileBytes > edited->tileMax ||
        edited->tileBytes % edited->tileAlign)
        reject(question,
               "the tile of %s in %s is %" PRIu64 " bytes, not %" PRIu64 " to %" PRIu64
               " in steps of %" PRIu64,
               edited->algorithm, edited->protocol, edited->tileBytes, edited->tileMin,
               edited->tileMax, edited->tileAlign);
    else if (!in_bounds(edited->param, edited->paramMin, edited->paramMax))
        reject(question, "the parameter of %s is %" PRId32 ", not %" PRId32 " to %" PRId32,
               edited->algorithm, edited->param, edited->paramMin, edited->paramMax);
    else if (!in_bounds(edited->lanes, edited->lanesMin, edited->lanesMax))
        reject(question, "%s cannot have %" PRId32 " lanes", edited->algorithm, edited->lanes);
}

static int is_edited(const struct question *question)
{
    for (int i = 0; i < question->count; i++) {
        const xcclTunerCandidate_v1_t *theirs = &question->rows[i].theirs;
        const xcclTunerCandidate_v1_t *ours = &question->rows[i].ours;

        if (theirs->cost != ours->cost || theirs->param != ours->param ||
            theirs->lanes != ours->lanes || theirs->tileBytes != ours->tileBytes)
            return 1;
    }
    return 0;
}

/* The cheapest; NULL: there is no answer. */
static const struct row *judge(struct question *question)
{
    const struct row *best = NULL;

    for (int i = 0; i < question->count && !question->why[0]; i++) {
        const struct row *row = &question->rows[i];

        check_row(question, row);
        if (row->theirs.cost >= 0 && (!best || row->theirs.cost < best->theirs.cost))
            best = row;
    }
    if (!question->why[0] && !is_edited(question))
        reject(question, "it says that it chose, and edited nothing");
    else if (!question->why[0] && !best)
        reject(question, "it forbids all candidates");
    if (!question->why[0] && best)
        check_best(question, best);
    return question->why[0] ? NULL : best;
}

static void take(const struct row *row, struct xccl_choice *choice)
{
    const xcclTunerCandidate_v1_t *edited = &row->theirs;

    *choice = (struct xccl_choice){
        .generator = row->generator,
        .param = edited->param,
        .proto = row->proto,
        .tile_bytes = edited->tileBytes == edited->tileMax ? 0 : (uint32_t)edited->tileBytes,
        .tuned = 1,
    };
}

xcclResult_t xccl_plan_tune(const struct xccl_planner *planner, const struct xccl_call *call,
                            size_t bytes, struct xccl_choice *choice)
{
    const struct xccl_choice built_in = *choice;
    struct question question = {
        .planner = planner, .call = call, .bytes = bytes, .built_in = &built_in};
    const struct row *best = NULL;
    int asked = make_rows(&question);

    if (asked && ask(&question))
        best = judge(&question);
    if (best)
        take(best, choice);
    else if (question.why[0])
        warn_once(planner, call, question.why);
    xccl_free(question.rows);
    xccl_free(question.list);
    return asked ? xcclSuccess : xcclSystemError;
}

/* ---- */

void xccl_plan_tell(const struct xccl_planner *planner, const struct xccl_call *call,
                    const struct xccl_choice *choice, const struct xccl_plan *plan)
{
    char param[16] = "";

    if (choice->param)
        snprintf(param, sizeof param, ":%d", choice->param);
    xccl_log(
        XCCL_LOG_DEBUG, "plan: %s%s of %zu bytes: %s%s in %s, tiles of %u bytes, chosen by %s%s",
        xccl_coll_name(call->coll), call->sizes ? " with sizes" : "",
        call->sizes ? call->sizes->largest : call->count * xccl_type_bytes(call->type),
        choice->generator->name, param, xccl_proto_name(choice->proto), plan->slice_bytes,
        choice->tuned ? "tuner " : "the built-in table", choice->tuned ? planner->tuner.name : "");
}

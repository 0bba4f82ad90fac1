/* SPDX-License-Identifier: BSD-3-Clause */
/* Schedules in the making, from text or JSON that anybody may have written: every number is in its
 * range, tables are as large as their numbers allow, all together are bounded in memory and in the
 * work of checking them, and what comes out has passed xccl_schedule_check. Time and memory are
 * linear in the input. Thread: a draft belongs to one. */
#include "schedule/text_int.h"

#include <stdarg.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

#define TABLE_MAX 65535 /* entries; their numbers have 16 bits */
#define BYTES_MAX ((uint64_t)64 << 20)
/* Connections and list entries that the check looks at, steps counted again and again. Two million
 * steps that each name all connections of their ranks would otherwise take minutes. */
#define WORK_MAX ((uint64_t)64 << 20)

void xccl_draft_begin(struct xccl_draft *draft, const char *where)
{
    static const struct xccl_draft_table tables[XCCL_DRAFT_PARTS] = {
        [XCCL_DRAFT_STEPS] = {.entry_bytes = sizeof(struct xccl_step), .what = "steps"},
        [XCCL_DRAFT_CONNS] = {.entry_bytes = sizeof(struct xccl_schedule_conn),
                              .what = "connections"},
        [XCCL_DRAFT_LANES] = {.entry_bytes = sizeof(struct xccl_schedule_lane), .what = "lanes"},
        [XCCL_DRAFT_WAITS] = {.entry_bytes = sizeof(struct xccl_schedule_wait), .what = "waits"},
        [XCCL_DRAFT_LIST] = {.entry_bytes = sizeof(uint16_t), .what = "list entries"},
    };

    *draft = (struct xccl_draft){.where = where, .line = 1};
    memcpy(draft->tables, tables, sizeof(tables));
    xccl_draft_plain(&xccl_head_fields, &draft->head);
}

void xccl_draft_fini(struct xccl_draft *draft)
{
    for (int i = 0; i < XCCL_DRAFT_PARTS; i++)
        xccl_free(draft->tables[i].entries);
    xccl_schedule_set_fini(&draft->set);
}

void xccl_schedule_set_fini(struct xccl_schedule_set *set)
{
    for (int i = 0; set->schedules && i < set->nranks; i++)
        xccl_schedule_destroy(set->schedules[i]);
    xccl_free(set->schedules);
    xccl_free(set->name);
    *set = (struct xccl_schedule_set){0};
}

/* ---- errors ---- */

xcclResult_t xccl_draft_fail(const struct xccl_draft *draft, const char *todo, const char *fmt, ...)
{
    char text[XCCL_ERROR_TEXT_BYTES];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return xccl_fail(xcclInvalidArgument, 0, todo, "%.160s:%zu: %s", draft->where, draft->line,
                     text);
}

const char *xccl_draft_shown(const char *word, size_t bytes, char shown_out[XCCL_SHOWN_BYTES])
{
    size_t room = XCCL_SHOWN_BYTES - sizeof("...");
    size_t used = bytes < room ? bytes : room;

    for (size_t i = 0; i < used; i++)
        shown_out[i] = word[i] < ' ' || word[i] > '~' ? '?' : word[i];
    memcpy(shown_out + used, bytes > used ? "..." : "", bytes > used ? sizeof("...") : 1);
    return shown_out;
}

/* ---- fields ---- */

void xccl_draft_plain(const struct xccl_fields *fields, void *record)
{
    for (int i = 0; i < fields->count; i++)
        xccl_field_set(&fields->field[i], record, fields->field[i].plain);
}

xcclResult_t xccl_draft_number(const struct xccl_draft *draft, const struct xccl_field *field,
                               int64_t value, void *record)
{
    char todo[64];

    if (value >= field->low && value <= field->high) {
        xccl_field_set(field, record, (int32_t)value);
        return xcclSuccess;
    }
    (void)snprintf(todo, sizeof(todo), "give %d to %d", field->low, field->high);
    return xccl_draft_fail(draft, todo, "%s %lld is out of range", field->word, (long long)value);
}

xcclResult_t xccl_draft_needed(const struct xccl_draft *draft, const struct xccl_fields *fields,
                               uint32_t seen, const char *record_name)
{
    for (int i = 0; i < fields->count; i++) {
        const struct xccl_field *field = &fields->field[i];

        if (!(field->flags & XCCL_FIELD_NEEDED) || seen >> i & 1)
            continue;
        return xccl_draft_fail(draft, "add it", "a %s lacks the field %s", record_name,
                               field->word);
    }
    return xcclSuccess;
}

/* ---- the head ---- */

xcclResult_t xccl_draft_name(struct xccl_draft *draft, const char *name, size_t bytes)
{
    if (bytes > XCCL_TEXT_NAME_MAX)
        return xccl_draft_fail(draft, "use at most 127", "the name has %zu bytes", bytes);
    draft->set.name = xccl_calloc(bytes + 1, 1);
    if (!draft->set.name)
        return xcclSystemError;
    memcpy(draft->set.name, name, bytes);
    draft->head.name = draft->set.name;
    return xcclSuccess;
}

xcclResult_t xccl_draft_coll(struct xccl_draft *draft, const char *word, size_t bytes)
{
    char shown[XCCL_SHOWN_BYTES];

    for (int coll = 0; coll < XCCL_COLL_SEND_RECV; coll++) {
        const char *name = xccl_coll_name((enum xccl_coll)coll);

        if (strlen(name) != bytes || memcmp(name, word, bytes) != 0)
            continue;
        draft->head.coll = (uint8_t)coll;
        return xcclSuccess;
    }
    return xccl_draft_fail(draft, "name one, such as all_reduce or alltoall",
                           "\"%s\" is not a collective", xccl_draft_shown(word, bytes, shown));
}

xcclResult_t xccl_draft_head_end(struct xccl_draft *draft)
{
    struct xccl_schedule **schedules;

    if (draft->head.nchunks == 0)
        return xccl_draft_fail(draft, "add it", "a schedule lacks the field chunks");
    schedules = xccl_calloc(draft->head.nranks, sizeof(void *));
    if (!schedules)
        return xcclSystemError;
    draft->set.schedules = schedules;
    draft->set.nranks = draft->head.nranks;
    draft->has_head = 1;
    return xcclSuccess;
}

/* ---- a rank ---- */

xcclResult_t xccl_draft_rank(struct xccl_draft *draft)
{
    if (!draft->has_head)
        return xccl_draft_fail(draft, "put the head first",
                               "a rank stands before the schedule's head");
    draft->rank = draft->head;
    for (int i = 0; i < XCCL_DRAFT_PARTS; i++)
        draft->tables[i].used = 0;
    draft->rank_line = draft->line;
    draft->in_rank = 1;
    return xcclSuccess;
}

/* Room for one more entry. */
static xcclResult_t grow(struct xccl_draft *draft, struct xccl_draft_table *table)
{
    uint32_t room = table->room ? 2 * table->room : 16;
    void *grown;

    if (table->used == TABLE_MAX)
        return xccl_draft_fail(draft, "this is the limit", "a rank has more than %d %s", TABLE_MAX,
                               table->what);
    if (table->used < table->room)
        return xcclSuccess;
    grown = xccl_realloc(table->entries, (size_t)room * table->entry_bytes);
    if (!grown)
        return xcclSystemError;
    table->entries = grown;
    table->room = room;
    return xcclSuccess;
}

xcclResult_t xccl_draft_add(struct xccl_draft *draft, enum xccl_draft_part part, void **entry_out)
{
    static const struct xccl_fields *const plain[XCCL_DRAFT_PARTS] = {
        &xccl_step_fields, &xccl_conn_fields, &xccl_lane_fields, &xccl_wait_fields};
    struct xccl_draft_table *table = &draft->tables[part];
    struct xccl_schedule_lane *lane = draft->tables[XCCL_DRAFT_LANES].entries;
    uint32_t nlanes = draft->tables[XCCL_DRAFT_LANES].used;
    int in_lane = part == XCCL_DRAFT_STEPS || part == XCCL_DRAFT_CONNS;
    xcclResult_t rc;
    char *entry;

    if (!draft->in_rank || (in_lane && nlanes == 0))
        return xccl_draft_fail(draft, "begin one first", "%s must be inside a %s", table->what,
                               in_lane && draft->in_rank ? "lane" : "rank");
    rc = grow(draft, table);
    if (rc)
        return rc;
    entry = (char *)table->entries + (size_t)table->used++ * table->entry_bytes;
    memset(entry, 0, table->entry_bytes);
    if (plain[part])
        xccl_draft_plain(plain[part], entry);
    if (part == XCCL_DRAFT_LANES) {
        lane = (struct xccl_schedule_lane *)(void *)entry;
        lane->step0 = draft->tables[XCCL_DRAFT_STEPS].used;
        lane->conn0 = draft->tables[XCCL_DRAFT_CONNS].used;
    } else if (part == XCCL_DRAFT_STEPS) {
        lane[nlanes - 1].nstep++;
    } else if (part == XCCL_DRAFT_CONNS) {
        lane[nlanes - 1].nconn++;
    }
    *entry_out = entry;
    return xcclSuccess;
}

/* ---- the end of a rank ---- */

/* How much the check has to do for the steps of a lane. */
static uint64_t lane_work(const struct xccl_schedule *schedule,
                          const struct xccl_schedule_lane *lane)
{
    const struct xccl_schedule_conn *conns = schedule->conns + lane->conn0;
    uint64_t group = 0, largest = 0, work = 0;

    for (uint32_t i = 0; i < lane->nconn; i++) {
        group = i > 0 && conns[i].group == conns[i - 1].group ? group + 1 : 1;
        if (group > largest)
            largest = group;
    }
    for (uint32_t i = 0; i < lane->nstep; i++) {
        const struct xccl_step *step = &schedule->steps[lane->step0 + i];
        uint64_t dconn = (uint64_t)(step->dconn < 0 ? -step->dconn : step->dconn), occs = 1;

        if (dconn)
            occs = step->rep < lane->nconn / dconn + 1 ? step->rep : lane->nconn / dconn + 1;
        if (step->op & XCCL_STEP_RECV)
            work += occs * ((step->fan & 15) == XCCL_FAN_ALL ? largest : step->fan & 15u);
        if (step->op & XCCL_STEP_SEND)
            work += occs * (step->fan >> 4 == XCCL_FAN_ALL ? largest : step->fan >> 4u);
        if (step->bufs & XCCL_STEP_SRC_LIST)
            work += step->cnt;
        if (step->bufs & XCCL_STEP_DST_LIST)
            work += step->cnt;
    }
    return work;
}

/* The schedule's own check, with its words behind the line at which the rank begins. */
static xcclResult_t check(struct xccl_draft *draft, const struct xccl_schedule *schedule)
{
    char text[XCCL_ERROR_TEXT_BYTES], *advice;

    for (int i = 0; i < schedule->nlanes; i++)
        draft->work += lane_work(schedule, &schedule->lanes[i]);
    if (draft->work > WORK_MAX)
        return xccl_draft_fail(draft, "use fewer steps with fans of whole groups",
                               "the steps name more than %llu connections and list entries",
                               (unsigned long long)WORK_MAX);
    if (xccl_schedule_check(schedule) == xcclSuccess)
        return xcclSuccess;
    (void)snprintf(text, sizeof(text), "%s", xccl_error_text());
    advice = strstr(text, "; report this");
    if (advice)
        *advice = '\0';
    return xccl_draft_fail(draft, "correct the rank that begins in this line", "%s", text);
}

static void copy_table(const struct xccl_draft *draft, enum xccl_draft_part part, void *to)
{
    const struct xccl_draft_table *table = &draft->tables[part];

    if (table->used)
        memcpy(to, table->entries, (size_t)table->used * table->entry_bytes);
}

static xcclResult_t make(const struct xccl_draft *draft, struct xccl_schedule **schedule_out)
{
    const struct xccl_schedule *rank = &draft->rank;
    const struct xccl_draft_table *tables = draft->tables;
    struct xccl_schedule *schedule;
    xcclResult_t rc;

    rc = xccl_schedule_create(
        &(struct xccl_schedule_shape){.name = rank->name,
                                      .coll = (enum xccl_coll)rank->coll,
                                      .nranks = rank->nranks,
                                      .rank = rank->rank,
                                      .root = rank->root,
                                      .nchunks = rank->nchunks,
                                      .nscratch = rank->nscratch,
                                      .scrbufs = rank->scrbufs,
                                      .nlanes = (uint16_t)tables[XCCL_DRAFT_LANES].used,
                                      .nsteps = (uint16_t)tables[XCCL_DRAFT_STEPS].used,
                                      .nconns = (uint16_t)tables[XCCL_DRAFT_CONNS].used,
                                      .nwaits = (uint16_t)tables[XCCL_DRAFT_WAITS].used,
                                      .nlist = (uint16_t)tables[XCCL_DRAFT_LIST].used},
        &schedule);
    if (rc)
        return rc;
    schedule->minslots = rank->minslots;
    schedule->class = rank->class;
    schedule->flags = rank->flags;
    copy_table(draft, XCCL_DRAFT_STEPS, schedule->steps);
    copy_table(draft, XCCL_DRAFT_CONNS, schedule->conns);
    copy_table(draft, XCCL_DRAFT_LANES, schedule->lanes);
    copy_table(draft, XCCL_DRAFT_WAITS, schedule->waits);
    copy_table(draft, XCCL_DRAFT_LIST, schedule->list);
    *schedule_out = schedule;
    return xcclSuccess;
}

/* As make(), in a line that is the rank's. */
static xcclResult_t rank_end(struct xccl_draft *draft)
{
    struct xccl_schedule **schedule;
    xcclResult_t rc;

    if (draft->rank.rank >= draft->set.nranks)
        return xccl_draft_fail(draft, "raise ranks in the head, or change the number",
                               "rank %d does not exist: the number of ranks is %d",
                               draft->rank.rank, draft->set.nranks);
    if (draft->rank.root >= draft->set.nranks)
        return xccl_draft_fail(draft, "name an existing rank",
                               "root %d does not exist: the number of ranks is %d",
                               draft->rank.root, draft->set.nranks);
    schedule = &draft->set.schedules[draft->rank.rank];
    if (*schedule)
        return xccl_draft_fail(draft, "keep one of them", "rank %d occurs a second time",
                               draft->rank.rank);
    draft->bytes += sizeof(draft->rank);
    for (int i = 0; i < XCCL_DRAFT_PARTS; i++)
        draft->bytes += (uint64_t)draft->tables[i].used * draft->tables[i].entry_bytes;
    if (draft->bytes > BYTES_MAX)
        return xccl_draft_fail(draft, "use fewer ranks", "the schedules need more than %llu MiB",
                               (unsigned long long)(BYTES_MAX >> 20));
    rc = make(draft, schedule);
    if (rc)
        return rc;
    draft->nread++;
    return check(draft, *schedule);
}

xcclResult_t xccl_draft_rank_end(struct xccl_draft *draft)
{
    size_t line = draft->line;
    xcclResult_t rc;

    if (!draft->in_rank)
        return xcclSuccess;
    draft->in_rank = 0;
    draft->line = draft->rank_line;
    rc = rank_end(draft);
    draft->line = line;
    return rc;
}

xcclResult_t xccl_draft_end(struct xccl_draft *draft, struct xccl_schedule_set *set_out)
{
    int missing = 0;

    if (!draft->has_head)
        return xccl_draft_fail(draft, "begin with one", "there is no schedule");
    if (draft->nread < draft->set.nranks) {
        while (draft->set.schedules[missing])
            missing++;
        return xccl_draft_fail(draft, "include every rank once",
                               "the schedule ends after %d of %d ranks, rank %d is missing",
                               draft->nread, draft->set.nranks, missing);
    }
    *set_out = draft->set;
    draft->set = (struct xccl_schedule_set){0};
    return xcclSuccess;
}

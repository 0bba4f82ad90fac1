/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes the text form. Whatever is not plain is written, also where a step does not use it, so
 * that reading gives the same bytes. README.md shows the form. Thread: any; one at a time a
 * file. */
#include "schedule/text_int.h"

#include <errno.h>
#include <string.h>

#include "schedule/decode.h"

#define LIST_ENTRIES 16 /* in a line */

static void put_set(struct xccl_text_out *out, const struct xccl_field *field, int32_t value)
{
    int32_t rest = xccl_field_rest(field, value);
    const char *between = "";

    for (int i = 0; i < field->nwords; i++) {
        if (!field->words[i] || !(value >> i & 1))
            continue;
        xccl_text_put(out, "%s%s", between, field->words[i]);
        between = "+";
    }
    if (rest)
        xccl_text_put(out, "%s0x%x", between, (unsigned)rest);
    else if (!*between)
        xccl_text_put(out, "-");
}

/* " word" of a choice, " word value" of others. */
static void put_field(struct xccl_text_out *out, const struct xccl_field *field, const void *record)
{
    int32_t value = xccl_field_get(field, record);

    if (field->kind == XCCL_FIELD_CHOICE) {
        /* A value without a word is in no checked schedule. */
        xccl_text_put(out, " %s", value < field->nwords ? field->words[value] : "?");
        return;
    }
    xccl_text_put(out, " %s ", field->word);
    if (field->kind == XCCL_FIELD_SET)
        put_set(out, field, value);
    else
        xccl_text_put(out, "%d", value);
}

static void put_fields(struct xccl_text_out *out, const struct xccl_fields *fields,
                       const void *record)
{
    for (int i = 0; i < fields->count; i++) {
        const struct xccl_field *field = &fields->field[i];

        if (field->flags & (XCCL_FIELD_NEEDED | XCCL_FIELD_SHOWN) ||
            xccl_field_get(field, record) != field->plain)
            put_field(out, field, record);
    }
}

static int is_plain_word(const char *text)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:-";

    return *text && text[strspn(text, letters)] == '\0';
}

static void put_head(struct xccl_text_out *out, const struct xccl_schedule *schedule)
{
    xccl_text_put(out, "schedule ");
    if (is_plain_word(schedule->name))
        xccl_text_put(out, "%s", schedule->name);
    else
        xccl_text_put_quoted(out, schedule->name);
    xccl_text_put(out, " %s", xccl_coll_name((enum xccl_coll)schedule->coll));
    put_fields(out, &xccl_head_fields, schedule);
    xccl_text_put(out, "\n");
}

/* ---- steps ---- */

/* "in:3" chunk 3, "in@3" entry 3 of the index table. */
static void put_side(struct xccl_text_out *out, const struct xccl_step *step, int is_dst)
{
    const struct xccl_field *buffers = &xccl_step_fields.field[XCCL_STEP_SRC_BUFFER_FIELD];
    int used = step->op & (is_dst ? XCCL_STEP_DST : XCCL_STEP_SRC);
    int list = step->bufs & (is_dst ? XCCL_STEP_DST_LIST : XCCL_STEP_SRC_LIST);
    int buffer = is_dst ? (int)xccl_step_dst_buffer(step) : (int)xccl_step_src_buffer(step);
    int first = is_dst ? step->dst : step->src;

    if (used || list || buffer || first)
        xccl_text_put(out, " %s %s%c%d", is_dst ? "dst" : "src", buffers->words[buffer],
                      list ? '@' : ':', first);
}

/* "recv 1": one connection, number 1 of the lane; "recv 1*3": three from 1 on. */
static void put_fan(struct xccl_text_out *out, const struct xccl_step *step, int is_send)
{
    int used = step->op & (is_send ? XCCL_STEP_SEND : XCCL_STEP_RECV);
    int fan = is_send ? step->fan >> 4 : step->fan & 15;
    int first = is_send ? step->sconn : step->rconn;

    if (!used && !fan && !first)
        return;
    xccl_text_put(out, " %s %d", is_send ? "send" : "recv", first);
    if (fan == XCCL_FAN_ALL)
        xccl_text_put(out, "*all");
    else if (fan != 1)
        xccl_text_put(out, "*%d", fan);
}

static void put_step(struct xccl_text_out *out, const struct xccl_step *step, uint32_t number)
{
    const struct xccl_field *flags = &xccl_step_fields.field[XCCL_STEP_FLAGS_FIELD];
    uint32_t waits = xccl_step_waits(step);

    xccl_text_put(out, "    step %u ", number);
    put_set(out, &xccl_step_fields.field[XCCL_STEP_OP_FIELD], step->op);
    put_side(out, step, 0);
    put_side(out, step, 1);
    put_fan(out, step, 0);
    put_fan(out, step, 1);
    put_fields(out, &xccl_step_number_fields, step);
    for (int i = 0; i < flags->nwords; i++)
        if (flags->words[i] && step->flags >> i & 1)
            xccl_text_put(out, " %s", flags->words[i]);
    if (waits || step->wait)
        xccl_text_put(out, waits == 1 ? " waits %u" : " waits %u*%u", step->wait, waits);
    xccl_text_put(out, "\n");
}

/* ---- a rank ---- */

static void put_list(struct xccl_text_out *out, const struct xccl_schedule *schedule)
{
    for (uint32_t i = 0; i < schedule->nlist; i++) {
        if (i % LIST_ENTRIES == 0)
            xccl_text_put(out, "%s  list @%u", i ? "\n" : "", i);
        xccl_text_put(out, " %u", schedule->list[i]);
    }
    xccl_text_put(out, schedule->nlist ? "\n" : "");
}

/* Only what differs from the head. */
static void put_rank(struct xccl_text_out *out, const struct xccl_schedule *schedule,
                     const struct xccl_schedule *head)
{
    const struct xccl_fields *fields = &xccl_rank_fields;

    xccl_text_put(out, "rank %u", schedule->rank);
    for (int i = 1; i < fields->count; i++)
        if (xccl_field_get(&fields->field[i], schedule) != xccl_field_get(&fields->field[i], head))
            put_field(out, &fields->field[i], schedule);
    xccl_text_put(out, "\n");
    put_list(out, schedule);
}

/* Entries of the wait table up to `end` that are not written yet. */
static void put_waits(struct xccl_text_out *out, const struct xccl_schedule *schedule, uint32_t end,
                      uint32_t *written)
{
    for (; *written < end && *written < schedule->nwaits; ++*written) {
        xccl_text_put(out, "    wait %u", *written);
        put_fields(out, &xccl_wait_fields, &schedule->waits[*written]);
        xccl_text_put(out, "\n");
    }
}

static void put_schedule(struct xccl_text_out *out, const struct xccl_schedule *schedule,
                         const struct xccl_schedule *head)
{
    uint32_t waits = 0;

    put_rank(out, schedule, head);
    for (uint32_t i = 0; i < schedule->nlanes; i++) {
        const struct xccl_schedule_lane *lane = &schedule->lanes[i];

        xccl_text_put(out, "  lane %u", i);
        put_fields(out, &xccl_lane_fields, lane);
        xccl_text_put(out, "\n");
        for (uint32_t j = 0; j < lane->nconn; j++) {
            xccl_text_put(out, "    conn %u", j);
            put_fields(out, &xccl_conn_fields, &schedule->conns[lane->conn0 + j]);
            xccl_text_put(out, "\n");
        }
        for (uint32_t j = 0; j < lane->nstep; j++) {
            const struct xccl_step *step = &schedule->steps[lane->step0 + j];

            /* Above the first step that names them, where somebody looks for them. */
            if (xccl_step_waits(step))
                put_waits(out, schedule, step->wait + xccl_step_waits(step), &waits);
            put_step(out, step, j);
        }
    }
    put_waits(out, schedule, schedule->nwaits, &waits);
}

int xccl_schedule_print(FILE *file, struct xccl_schedule *const *schedules, int nranks)
{
    struct xccl_text_out out = {.file = file};

    if (!xccl_text_fits(schedules, nranks)) {
        errno = EINVAL;
        return -1;
    }
    put_head(&out, schedules[0]);
    for (int i = 0; i < nranks; i++)
        put_schedule(&out, schedules[i], schedules[0]);
    return xccl_text_put_end(&out);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes and reads the JSON form: one object, of the same records and fields as the text form.
 * README.md shows it. Hostile input: the parser knows only this shape, so its depth is that of the
 * shape; one pass; strings have ASCII letters and no escapes but \" and \\; numbers are integers.
 * "schedule" comes first; other members of an object come in any order. Thread: any. */
#include "schedule/text_int.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

/* ---- writing ---- */

static void put_set(struct xccl_text_out *out, const struct xccl_field *field, int32_t value)
{
    int32_t rest = xccl_field_rest(field, value);
    const char *between = "";

    xccl_text_put(out, "[");
    for (int i = 0; i < field->nwords; i++) {
        if (!field->words[i] || !(value >> i & 1))
            continue;
        xccl_text_put(out, "%s\"%s\"", between, field->words[i]);
        between = ", ";
    }
    if (rest)
        xccl_text_put(out, "%s%d", between, rest);
    xccl_text_put(out, "]");
}

static void put_field(struct xccl_text_out *out, const struct xccl_field *field, const void *record)
{
    int32_t value = xccl_field_get(field, record);

    xccl_text_put(out, "\"%s\": ", field->word);
    if (field->kind == XCCL_FIELD_SET)
        put_set(out, field, value);
    else if (field->kind == XCCL_FIELD_CHOICE && value < field->nwords)
        xccl_text_put(out, "\"%s\"", field->words[value]);
    else
        xccl_text_put(out, "%d", value);
}

/* All of them, without the braces. */
static void put_fields(struct xccl_text_out *out, const struct xccl_fields *fields,
                       const void *record)
{
    const char *between = "";

    for (int i = 0; i < fields->count; i++) {
        const struct xccl_field *field = &fields->field[i];

        if (field->flags & XCCL_FIELD_RARE && xccl_field_get(field, record) == field->plain)
            continue;
        xccl_text_put(out, "%s", between);
        put_field(out, field, record);
        between = ", ";
    }
}

/* Between two entries of an array, or before the first. */
static const char *entry_begin(uint32_t number)
{
    return number ? ",\n" : "\n";
}

static void put_lane(struct xccl_text_out *out, const struct xccl_schedule *schedule,
                     const struct xccl_schedule_lane *lane)
{
    xccl_text_put(out, "    {");
    put_fields(out, &xccl_lane_fields, lane);
    xccl_text_put(out, ",\n     \"conns\": [");
    for (uint32_t i = 0; i < lane->nconn; i++) {
        xccl_text_put(out, "%s      {", entry_begin(i));
        put_fields(out, &xccl_conn_fields, &schedule->conns[lane->conn0 + i]);
        xccl_text_put(out, "}");
    }
    xccl_text_put(out, "],\n     \"steps\": [");
    for (uint32_t i = 0; i < lane->nstep; i++) {
        xccl_text_put(out, "%s      {", entry_begin(i));
        put_fields(out, &xccl_step_fields, &schedule->steps[lane->step0 + i]);
        xccl_text_put(out, "}");
    }
    xccl_text_put(out, "]}");
}

static void put_list(struct xccl_text_out *out, const struct xccl_schedule *schedule)
{
    xccl_text_put(out, ",\n   \"list\": [");
    for (uint32_t i = 0; i < schedule->nlist; i++)
        xccl_text_put(out, "%s%u", !i ? "" : i % 16 ? ", " : ",\n    ", schedule->list[i]);
    xccl_text_put(out, "]");
}

static void put_schedule(struct xccl_text_out *out, const struct xccl_schedule *schedule)
{
    xccl_text_put(out, "  {");
    put_fields(out, &xccl_rank_fields, schedule);
    put_list(out, schedule);
    xccl_text_put(out, ",\n   \"waits\": [");
    for (uint32_t i = 0; i < schedule->nwaits; i++) {
        xccl_text_put(out, "%s    {", entry_begin(i));
        put_fields(out, &xccl_wait_fields, &schedule->waits[i]);
        xccl_text_put(out, "}");
    }
    xccl_text_put(out, "],\n   \"lanes\": [");
    for (uint32_t i = 0; i < schedule->nlanes; i++) {
        xccl_text_put(out, "%s", entry_begin(i));
        put_lane(out, schedule, &schedule->lanes[i]);
    }
    xccl_text_put(out, "]}");
}

int xccl_schedule_print_json(FILE *file, struct xccl_schedule *const *schedules, int nranks)
{
    struct xccl_text_out out = {.file = file};

    if (!xccl_text_fits(schedules, nranks)) {
        errno = EINVAL;
        return -1;
    }
    xccl_text_put(&out, "{\"schedule\": {\"name\": ");
    xccl_text_put_quoted(&out, schedules[0]->name);
    xccl_text_put(&out, ", \"coll\": \"%s\", ", xccl_coll_name((enum xccl_coll)schedules[0]->coll));
    put_fields(&out, &xccl_head_fields, schedules[0]);
    xccl_text_put(&out, "},\n \"ranks\": [");
    for (int i = 0; i < nranks; i++) {
        xccl_text_put(&out, "%s", entry_begin((uint32_t)i));
        put_schedule(&out, schedules[i]);
    }
    xccl_text_put(&out, "]}\n");
    return xccl_text_put_end(&out);
}

/* ---- reading: letters, strings, numbers ---- */

#define STRING_MAX XCCL_TEXT_NAME_MAX

struct json {
    struct xccl_draft draft;
    const char *at, *end;
};

static void skip_space(struct json *json)
{
    for (; json->at < json->end; json->at++) {
        if (*json->at == '\n')
            json->draft.line++;
        else if (*json->at != ' ' && *json->at != '\t' && *json->at != '\r')
            return;
    }
}

/* The next letter behind space; 0 at the end. */
static char peek(struct json *json)
{
    skip_space(json);
    return json->at < json->end ? *json->at : '\0';
}

static xcclResult_t fail(struct json *json, const char *what)
{
    char shown[XCCL_SHOWN_BYTES];
    size_t left = (size_t)(json->end - json->at), bytes = 0;

    if (left == 0)
        return xccl_draft_fail(&json->draft, NULL, "the text ends where %s is expected", what);
    while (bytes < left && bytes < 24 && json->at[bytes] != '\n')
        bytes++;
    return xccl_draft_fail(&json->draft, NULL, "found \"%s\" where %s is expected",
                           xccl_draft_shown(json->at, bytes, shown), what);
}

static xcclResult_t take(struct json *json, char letter)
{
    const char what[] = {letter, '\0'};

    if (peek(json) != letter)
        return fail(json, what);
    json->at++;
    return xcclSuccess;
}

struct string {
    size_t bytes;
    char text[STRING_MAX + 1];
};

static xcclResult_t read_string(struct json *json, struct string *string_out)
{
    size_t used = 0;

    if (peek(json) != '"')
        return fail(json, "a string");
    for (json->at++; json->at < json->end && *json->at != '"'; json->at++) {
        if (used == STRING_MAX)
            return xccl_draft_fail(&json->draft, NULL, "a string has more than %d bytes",
                                   STRING_MAX);
        if (*json->at == '\\') {
            json->at++;
            if (json->at == json->end || (*json->at != '"' && *json->at != '\\'))
                return fail(json, "\" or \\");
        }
        if (*json->at < ' ' || *json->at > '~')
            return fail(json, "an ASCII character of a string");
        string_out->text[used++] = *json->at;
    }
    if (json->at == json->end)
        return fail(json, "the end of a string");
    json->at++;
    string_out->text[used] = '\0';
    string_out->bytes = used;
    return xcclSuccess;
}

static xcclResult_t read_number(struct json *json, int64_t *number_out)
{
    int minus = peek(json) == '-';
    const char *begin = json->at + minus, *at = begin;
    int64_t number = 0;

    while (at < json->end && *at >= '0' && *at <= '9' && at - begin < 10)
        number = 10 * number + (*at++ - '0');
    if (at == begin || (*begin == '0' && at - begin > 1))
        return fail(json, "an integer");
    if (at < json->end && ((*at >= '0' && *at <= '9') || *at == '.' || *at == 'e' || *at == 'E'))
        return fail(json, "an integer of at most ten digits");
    json->at = at;
    *number_out = minus ? -number : number;
    return xcclSuccess;
}

/* ---- reading: arrays and objects ---- */

typedef xcclResult_t read_fn(struct json *json, void *record);

static xcclResult_t read_array(struct json *json, read_fn *read_entry, void *record)
{
    xcclResult_t rc = take(json, '[');

    if (rc)
        return rc;
    if (peek(json) == ']') {
        json->at++;
        return xcclSuccess;
    }
    for (;;) {
        (void)peek(json);
        rc = read_entry(json, record);
        if (rc || peek(json) != ',')
            return rc ? rc : take(json, ']');
        json->at++;
    }
}

/* What an object may have: fields, and members that are read by functions. */
struct shape {
    const char *name;
    const struct xccl_fields *fields;
    struct {
        const char *key;
        read_fn *read;
        int needed;
    } members[3];
};
#define MEMBERS 3

struct set_value {
    const struct xccl_field *field;
    int32_t value;
};

static xcclResult_t read_set_entry(struct json *json, void *record)
{
    struct set_value *set = record;
    struct string word;
    int64_t bits = 0;
    xcclResult_t rc;

    if (peek(json) == '"') {
        int bit;

        rc = read_string(json, &word);
        if (rc)
            return rc;
        bit = xccl_field_word(set->field, word.text, word.bytes);
        bits = bit >= 0 ? (int64_t)1 << bit : 0;
    } else {
        rc = read_number(json, &bits);
        if (rc)
            return rc;
    }
    if (bits <= 0 || bits & ~(int64_t)set->field->mask || bits & set->value)
        return xccl_draft_fail(&json->draft, "name each flag once, and only flags that exist",
                               "%s has an unknown flag, or the same flag twice", set->field->word);
    set->value |= (int32_t)bits;
    return xcclSuccess;
}

static xcclResult_t read_field(struct json *json, const struct xccl_field *field, void *record)
{
    struct set_value set = {.field = field};
    struct string word;
    int64_t number;
    xcclResult_t rc;

    if (field->kind == XCCL_FIELD_SET) {
        rc = read_array(json, read_set_entry, &set);
        if (!rc)
            xccl_field_set(field, record, set.value);
        return rc;
    }
    if (field->kind == XCCL_FIELD_NUMBER) {
        rc = read_number(json, &number);
        return rc ? rc : xccl_draft_number(&json->draft, field, number, record);
    }
    rc = read_string(json, &word);
    if (rc)
        return rc;
    if (xccl_field_word(field, word.text, word.bytes) < 0)
        return xccl_draft_fail(&json->draft, NULL, "\"%.40s\" is not a valid %s", word.text,
                               field->word);
    xccl_field_set(field, record, xccl_field_word(field, word.text, word.bytes));
    return xcclSuccess;
}

/* The place of a key among fields, then members; -1: none. */
static int find_key(const struct shape *shape, const struct string *key)
{
    int nfields = shape->fields ? shape->fields->count : 0;

    for (int i = 0; i < nfields; i++)
        if (strcmp(shape->fields->field[i].word, key->text) == 0)
            return i;
    for (int i = 0; i < MEMBERS && shape->members[i].key; i++)
        if (strcmp(shape->members[i].key, key->text) == 0)
            return nfields + i;
    return -1;
}

static xcclResult_t read_member(struct json *json, const struct shape *shape, void *record,
                                uint32_t *seen)
{
    int nfields = shape->fields ? shape->fields->count : 0, at;
    struct string key;
    xcclResult_t rc = read_string(json, &key);

    if (rc)
        return rc;
    at = find_key(shape, &key);
    if (at < 0)
        return xccl_draft_fail(&json->draft, "see core/schedule/README.md for the fields",
                               "a %s has no field \"%.40s\"", shape->name, key.text);
    if (*seen >> at & 1)
        return xccl_draft_fail(&json->draft, "name it once", "a %s has two \"%s\"", shape->name,
                               key.text);
    *seen |= (uint32_t)1 << at;
    rc = take(json, ':');
    if (rc)
        return rc;
    if (at < nfields)
        return read_field(json, &shape->fields->field[at], record);
    return shape->members[at - nfields].read(json, record);
}

static xcclResult_t read_object(struct json *json, const struct shape *shape, void *record)
{
    int nfields = shape->fields ? shape->fields->count : 0;
    uint32_t seen = 0;
    xcclResult_t rc = take(json, '{');

    if (!rc && peek(json) != '}') {
        rc = read_member(json, shape, record, &seen);
        while (!rc && peek(json) == ',') {
            json->at++;
            rc = read_member(json, shape, record, &seen);
        }
    }
    if (!rc)
        rc = take(json, '}');
    if (!rc && shape->fields)
        rc = xccl_draft_needed(&json->draft, shape->fields, seen, shape->name);
    for (int i = 0; !rc && i < MEMBERS; i++)
        if (shape->members[i].needed && !(seen >> (nfields + i) & 1))
            return xccl_draft_fail(&json->draft, "add it", "a %s lacks the field %s", shape->name,
                                   shape->members[i].key);
    return rc;
}

/* ---- reading: the records ---- */

static const struct shape conn_shape = {.name = "connection", .fields = &xccl_conn_fields};
static const struct shape step_shape = {.name = "step", .fields = &xccl_step_fields};
static const struct shape wait_shape = {.name = "wait", .fields = &xccl_wait_fields};

static xcclResult_t read_entry(struct json *json, enum xccl_draft_part part,
                               const struct shape *shape)
{
    void *entry;
    xcclResult_t rc = xccl_draft_add(&json->draft, part, &entry);

    return rc ? rc : read_object(json, shape, entry);
}

static xcclResult_t read_conn(struct json *json, void *record)
{
    (void)record;
    return read_entry(json, XCCL_DRAFT_CONNS, &conn_shape);
}

static xcclResult_t read_step(struct json *json, void *record)
{
    (void)record;
    return read_entry(json, XCCL_DRAFT_STEPS, &step_shape);
}

static xcclResult_t read_wait(struct json *json, void *record)
{
    (void)record;
    return read_entry(json, XCCL_DRAFT_WAITS, &wait_shape);
}

static xcclResult_t read_conns(struct json *json, void *record)
{
    return read_array(json, read_conn, record);
}

static xcclResult_t read_steps(struct json *json, void *record)
{
    return read_array(json, read_step, record);
}

static xcclResult_t read_waits(struct json *json, void *record)
{
    return read_array(json, read_wait, record);
}

static const struct shape lane_shape = {
    .name = "lane",
    .fields = &xccl_lane_fields,
    .members = {{"conns", read_conns, 0}, {"steps", read_steps, 0}},
};

static xcclResult_t read_lane(struct json *json, void *record)
{
    (void)record;
    return read_entry(json, XCCL_DRAFT_LANES, &lane_shape);
}

static xcclResult_t read_lanes(struct json *json, void *record)
{
    return read_array(json, read_lane, record);
}

static xcclResult_t read_list_entry(struct json *json, void *record)
{
    int64_t number = 0;
    void *entry;
    xcclResult_t rc = read_number(json, &number);

    (void)record;
    if (rc)
        return rc;
    if (number < 0 || number > 65535)
        return xccl_draft_fail(&json->draft, "give 0 to 65535", "chunk %lld is out of range",
                               (long long)number);
    rc = xccl_draft_add(&json->draft, XCCL_DRAFT_LIST, &entry);
    if (!rc)
        *(uint16_t *)entry = (uint16_t)number;
    return rc;
}

static xcclResult_t read_list(struct json *json, void *record)
{
    return read_array(json, read_list_entry, record);
}

static const struct shape rank_shape = {
    .name = "rank",
    .fields = &xccl_rank_fields,
    .members = {{"list", read_list, 0}, {"waits", read_waits, 0}, {"lanes", read_lanes, 0}},
};

static xcclResult_t read_rank(struct json *json, void *record)
{
    xcclResult_t rc = xccl_draft_rank(&json->draft);

    (void)record;
    if (!rc)
        rc = read_object(json, &rank_shape, &json->draft.rank);
    return rc ? rc : xccl_draft_rank_end(&json->draft);
}

static xcclResult_t read_name(struct json *json, void *record)
{
    struct string name;
    xcclResult_t rc = read_string(json, &name);

    (void)record;
    return rc ? rc : xccl_draft_name(&json->draft, name.text, name.bytes);
}

static xcclResult_t read_coll(struct json *json, void *record)
{
    struct string name;
    xcclResult_t rc = read_string(json, &name);

    (void)record;
    return rc ? rc : xccl_draft_coll(&json->draft, name.text, name.bytes);
}

static const struct shape head_shape = {
    .name = "schedule",
    .fields = &xccl_head_fields,
    .members = {{"name", read_name, 1}, {"coll", read_coll, 1}},
};

static xcclResult_t read_head(struct json *json, void *record)
{
    xcclResult_t rc = read_object(json, &head_shape, &json->draft.head);

    (void)record;
    return rc ? rc : xccl_draft_head_end(&json->draft);
}

static xcclResult_t read_ranks(struct json *json, void *record)
{
    return read_array(json, read_rank, record);
}

static const struct shape whole_shape = {
    .name = "file",
    .members = {{"schedule", read_head, 1}, {"ranks", read_ranks, 1}},
};

xcclResult_t xccl_schedule_read_json(const char *text, size_t bytes, const char *where,
                                     struct xccl_schedule_set *set_out)
{
    struct json json = {.at = text, .end = text + bytes};
    xcclResult_t rc;

    xccl_draft_begin(&json.draft, where);
    rc = read_object(&json, &whole_shape, NULL);
    skip_space(&json);
    if (!rc && json.at < json.end)
        rc = fail(&json, "the end");
    if (!rc)
        rc = xccl_draft_end(&json.draft, set_out);
    xccl_draft_fini(&json.draft);
    return rc;
}

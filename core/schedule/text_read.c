/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads the text form: lines of words, each line one record. Hostile input: one pass, no recursion,
 * no word is copied; what a line means goes to the draft, which knows the limits. README.md shows
 * the form. Thread: any. */
#include "schedule/text_int.h"

#include <string.h>

#include "base/error.h"

struct word {
    const char *text;
    size_t bytes; /* 0: the line has ended */
};

struct reader {
    struct xccl_draft draft;
    const char *at, *end;
};

static int is(const struct word *word, const char *text)
{
    return strlen(text) == word->bytes && memcmp(word->text, text, word->bytes) == 0;
}

/* An error about a word. */
static xcclResult_t fail(const struct reader *reader, const struct word *word, const char *todo,
                         const char *what)
{
    char shown[XCCL_SHOWN_BYTES];

    if (word->bytes == 0)
        return xccl_draft_fail(&reader->draft, todo, "the line ends where %s", what);
    return xccl_draft_fail(&reader->draft, todo, "found \"%s\" where %s",
                           xccl_draft_shown(word->text, word->bytes, shown), what);
}

static xcclResult_t fail_twice(const struct reader *reader, const struct word *word)
{
    char shown[XCCL_SHOWN_BYTES];

    return xccl_draft_fail(&reader->draft, "name it once", "\"%s\" occurs a second time",
                           xccl_draft_shown(word->text, word->bytes, shown));
}

/* The next word of the line; bytes 0 at its end, which stays unread. */
static void next_word(struct reader *reader, struct word *word_out)
{
    while (reader->at < reader->end &&
           (*reader->at == ' ' || *reader->at == '\t' || *reader->at == '\r'))
        reader->at++;
    word_out->text = reader->at;
    if (reader->at < reader->end && *reader->at == '#') {
        const char *line_end = memchr(reader->at, '\n', (size_t)(reader->end - reader->at));

        reader->at = line_end ? line_end : reader->end;
        word_out->bytes = 0;
        return;
    }
    while (reader->at<reader->end && * reader->at> ' ' && *reader->at <= '~')
        reader->at++;
    word_out->bytes = (size_t)(reader->at - word_out->text);
    /* A byte that is no text is a word of its own, so that somebody complains. */
    if (word_out->bytes == 0 && reader->at < reader->end && *reader->at != '\n') {
        reader->at++;
        word_out->bytes = 1;
    }
}

/* ---- numbers and sets ---- */

/* Digits from *at on; 0: there are none, or too many. */
static int digits(const char **at, const char *end, int64_t *value_out)
{
    const char *begin = *at;
    int64_t value = 0;

    while (*at < end && **at >= '0' && **at <= '9' && *at - begin < 10)
        value = 10 * value + (*(*at)++ - '0');
    *value_out = value;
    return *at > begin;
}

static int number_of(const struct word *word, int64_t *value_out)
{
    const char *at = word->text, *end = word->text + word->bytes;
    int minus = word->bytes > 1 && *at == '-';

    at += minus;
    if (!digits(&at, end, value_out) || at < end)
        return 0;
    if (minus)
        *value_out = -*value_out;
    return 1;
}

/* "0x..." of at most four digits. */
static int hex_of(const struct word *word, int32_t *value_out)
{
    int32_t value = 0;

    if (word->bytes < 3 || word->bytes > 6 || word->text[0] != '0' || word->text[1] != 'x')
        return 0;
    for (size_t i = 2; i < word->bytes; i++) {
        char letter = word->text[i];

        if (letter >= '0' && letter <= '9')
            value = value << 4 | (letter - '0');
        else if (letter >= 'a' && letter <= 'f')
            value = value << 4 | (letter - 'a' + 10);
        else
            return 0;
    }
    *value_out = value;
    return 1;
}

/* "src+send", "-": none. */
static xcclResult_t read_set(struct reader *reader, const struct xccl_field *field,
                             const struct word *word, void *record)
{
    const char *at = word->text, *end = word->text + word->bytes;
    int32_t value = 0, bits;

    if (is(word, "-")) {
        xccl_field_set(field, record, 0);
        return xcclSuccess;
    }
    do {
        const char *plus = memchr(at, '+', (size_t)(end - at));
        struct word part = {at, (size_t)((plus ? plus : end) - at)};
        int bit = xccl_field_word(field, part.text, part.bytes);

        if (bit >= 0)
            bits = (int32_t)1 << bit;
        else if (!hex_of(&part, &bits) || bits & ~(int32_t)field->mask)
            return fail(reader, word, "join words with +, as in src+send", "flags are expected");
        if (value & bits)
            return fail_twice(reader, &part);
        value |= bits;
        at = plus ? plus + 1 : end;
        if (plus && at == end)
            return fail(reader, word, "join words with +, as in src+send", "flags are expected");
    } while (at < end);
    xccl_field_set(field, record, value);
    return xcclSuccess;
}

/* ---- fields ---- */

/* The field that a word begins: by its name, or one of its words for a choice. -1: none. */
static int find_field(const struct xccl_fields *fields, const struct word *word, int *choice_out)
{
    for (int i = 0; i < fields->count; i++) {
        const struct xccl_field *field = &fields->field[i];

        *choice_out = field->kind == XCCL_FIELD_CHOICE
                          ? xccl_field_word(field, word->text, word->bytes)
                          : -1;
        if (*choice_out >= 0 || (field->kind != XCCL_FIELD_CHOICE && is(word, field->word)))
            return i;
    }
    return -1;
}

/* Reads what the word begins, if that is one of the fields. found_out 0: it is none. */
static xcclResult_t read_field(struct reader *reader, const struct xccl_fields *fields,
                               const struct word *word, uint32_t *seen, void *record,
                               int *found_out)
{
    const struct xccl_field *field;
    struct word value;
    int64_t number;
    int choice, at = find_field(fields, word, &choice);

    *found_out = at >= 0;
    if (at < 0)
        return xcclSuccess;
    if (*seen >> at & 1)
        return fail_twice(reader, word);
    *seen |= (uint32_t)1 << at;
    field = &fields->field[at];
    if (choice >= 0) {
        xccl_field_set(field, record, choice);
        return xcclSuccess;
    }
    next_word(reader, &value);
    if (field->kind == XCCL_FIELD_SET)
        return read_set(reader, field, &value, record);
    if (!number_of(&value, &number))
        return fail(reader, &value, "give a number", "a number is expected");
    return xccl_draft_number(&reader->draft, field, number, record);
}

/* All words of the line from `word` on. */
static xcclResult_t read_fields(struct reader *reader, const struct xccl_fields *fields,
                                struct word word, void *record, const char *record_name)
{
    uint32_t seen = 0;

    for (; word.bytes; next_word(reader, &word)) {
        int found;
        xcclResult_t rc = read_field(reader, fields, &word, &seen, record, &found);

        if (rc)
            return rc;
        if (!found)
            return fail(reader, &word, "see the list in core/schedule/README.md",
                        "a field of the record is expected");
    }
    return xccl_draft_needed(&reader->draft, fields, seen, record_name);
}

/* The record's own number, which may be left out; then word is the next one. */
static xcclResult_t read_place(struct reader *reader, struct word *word, uint64_t place)
{
    int64_t number;

    next_word(reader, word);
    if (!number_of(word, &number))
        return xcclSuccess;
    if (number < 0 || (uint64_t)number != place)
        return xccl_draft_fail(&reader->draft, "number them in order, or leave numbers out",
                               "found number %lld where %llu is expected", (long long)number,
                               (unsigned long long)place);
    next_word(reader, word);
    return xcclSuccess;
}

/* ---- steps ---- */

enum step_key { KEY_SRC, KEY_DST, KEY_RECV, KEY_SEND, KEY_WAITS, KEY_COUNT };
static const char *const step_keys[KEY_COUNT] = {"src", "dst", "recv", "send", "waits"};
static const uint8_t step_key_ops[KEY_COUNT] = {XCCL_STEP_SRC, XCCL_STEP_DST, XCCL_STEP_RECV,
                                                XCCL_STEP_SEND, 0};

/* "in:3" or "in@3". */
static xcclResult_t read_side(struct reader *reader, const struct word *word, int is_dst,
                              struct xccl_step *step)
{
    const struct xccl_field *field = &xccl_step_fields.field[XCCL_STEP_SRC_BUFFER_FIELD];
    const char *at = word->text, *end = word->text + word->bytes;
    int64_t first = 0;
    int buffer, list;

    while (at < end && *at != ':' && *at != '@')
        at++;
    buffer = xccl_field_word(field, word->text, (size_t)(at - word->text));
    list = at < end && *at == '@';
    if (at < end)
        at++;
    if (buffer < 0 || !digits(&at, end, &first) || at < end || first > 65535)
        return fail(reader, word,
                    "write BUFFER:CHUNK or BUFFER@ENTRY, BUFFER being in, out, scratch or zero",
                    "chunks are expected");
    step->bufs |= (uint8_t)(buffer << (is_dst ? 2 : 0));
    if (list)
        step->bufs |= is_dst ? XCCL_STEP_DST_LIST : XCCL_STEP_SRC_LIST;
    if (is_dst)
        step->dst = (uint16_t)first;
    else
        step->src = (uint16_t)first;
    return xcclSuccess;
}

/* "1": one from 1 on; "1*3": three; "1*all", where many is one of what all stands for. */
static xcclResult_t read_from(struct reader *reader, const struct word *word, int most, int all,
                              int *first_out, int *count_out)
{
    const char *at = word->text, *end = word->text + word->bytes;
    int64_t first = 0, count = 1;
    int good = digits(&at, end, &first) && first <= 65535;

    if (good && at < end) {
        good = *at++ == '*';
        if (good && all && end - at == 3 && memcmp(at, "all", 3) == 0) {
            count = all;
            at = end;
        } else if (good) {
            good = digits(&at, end, &count) && count <= most;
        }
    }
    if (!good || at < end)
        return fail(reader, word,
                    all ? "write FIRST, FIRST*COUNT with up to 14, or FIRST*all"
                        : "write FIRST or FIRST*COUNT with up to 3",
                    all ? "connections are expected" : "waits are expected");
    *first_out = (int)first;
    *count_out = (int)count;
    return xcclSuccess;
}

static xcclResult_t read_key(struct reader *reader, enum step_key key, struct xccl_step *step)
{
    struct word word;
    int first = 0, count = 0;
    xcclResult_t rc;

    next_word(reader, &word);
    if (key == KEY_SRC || key == KEY_DST)
        return read_side(reader, &word, key == KEY_DST, step);
    if (key == KEY_WAITS)
        rc = read_from(reader, &word, 3, 0, &first, &count);
    else
        rc = read_from(reader, &word, XCCL_FAN_ALL - 1, XCCL_FAN_ALL, &first, &count);
    if (rc)
        return rc;
    if (key == KEY_WAITS) {
        step->wait = (uint16_t)first;
        step->flags |= XCCL_FLAG_WAITS(count);
    } else if (key == KEY_RECV) {
        step->rconn = (uint16_t)first;
        step->fan |= XCCL_STEP_FAN(count, 0);
    } else {
        step->sconn = (uint16_t)first;
        step->fan |= XCCL_STEP_FAN(0, count);
    }
    return xcclSuccess;
}

/* One word of a step, with what belongs to it. */
static xcclResult_t read_step_word(struct reader *reader, const struct word *word, uint32_t *seen,
                                   uint32_t *keys, struct xccl_step *step)
{
    int flag = xccl_field_word(&xccl_step_fields.field[XCCL_STEP_FLAGS_FIELD], word->text,
                               word->bytes);
    int key = 0, found;
    xcclResult_t rc;

    while (key < KEY_COUNT && !is(word, step_keys[key]))
        key++;
    if (flag >= 0 ? step->flags >> flag & 1 : key < KEY_COUNT && *keys >> key & 1)
        return fail_twice(reader, word);
    if (flag >= 0) {
        step->flags |= (uint8_t)(1u << flag);
        return xcclSuccess;
    }
    if (key < KEY_COUNT) {
        *keys |= 1u << key;
        return read_key(reader, (enum step_key)key, step);
    }
    rc = read_field(reader, &xccl_step_number_fields, word, seen, step, &found);
    if (!rc && !found)
        return fail(reader, word, "see the list in core/schedule/README.md",
                    "a field of the step is expected");
    return rc;
}

static xcclResult_t read_step(struct reader *reader)
{
    struct xccl_draft *draft = &reader->draft;
    const struct xccl_schedule_lane *lane;
    uint32_t seen = 0, keys = 0;
    struct xccl_step *step;
    struct word word;
    void *entry;
    xcclResult_t rc = xccl_draft_add(draft, XCCL_DRAFT_STEPS, &entry);

    if (rc)
        return rc;
    step = entry;
    lane = (const struct xccl_schedule_lane *)draft->tables[XCCL_DRAFT_LANES].entries +
           draft->tables[XCCL_DRAFT_LANES].used - 1;
    rc = read_place(reader, &word, lane->nstep - 1u);
    if (!rc && word.bytes == 0)
        return fail(reader, &word, "such as src+send", "the operation of the step is expected");
    if (!rc)
        rc = read_set(reader, &xccl_step_fields.field[XCCL_STEP_OP_FIELD], &word, step);
    if (!rc)
        next_word(reader, &word);
    for (; !rc && word.bytes; next_word(reader, &word))
        rc = read_step_word(reader, &word, &seen, &keys, step);
    for (int key = 0; !rc && key < KEY_COUNT; key++)
        if (step->op & step_key_ops[key] && !(keys >> key & 1))
            return xccl_draft_fail(draft, "add it", "a step with %s lacks the field %s",
                                   step_keys[key], step_keys[key]);
    return rc;
}

/* ---- the other lines ---- */

/* A word, or a text in quotes with \ before " and \. */
static xcclResult_t read_name(struct reader *reader)
{
    char name[XCCL_TEXT_NAME_MAX + 1]; /* one more, so that the draft sees too long a name */
    struct word word;
    size_t used = 0;
    const char *at;

    next_word(reader, &word);
    if (word.bytes == 0)
        return fail(reader, &word, "such as ring", "the algorithm's name is expected");
    if (*word.text != '"')
        return xccl_draft_name(&reader->draft, word.text, word.bytes);
    for (at = word.text + 1; at < reader->end && *at != '"' && used < sizeof(name); at++) {
        if (*at == '\\' && reader->end - at > 1 && (at[1] == '"' || at[1] == '\\'))
            at++;
        if (*at < ' ' || *at > '~')
            break;
        name[used++] = *at;
    }
    reader->at = at;
    if (used <= XCCL_TEXT_NAME_MAX && (at == reader->end || *at != '"'))
        return xccl_draft_fail(&reader->draft, "end it with \"", "the name does not end");
    reader->at += at < reader->end;
    return xccl_draft_name(&reader->draft, name, used);
}

static xcclResult_t read_head(struct reader *reader)
{
    struct xccl_draft *draft = &reader->draft;
    struct word word;
    xcclResult_t rc;

    if (draft->has_head)
        return xccl_draft_fail(draft, "use one file for each schedule",
                               "the file has a second schedule");
    rc = read_name(reader);
    if (rc)
        return rc;
    next_word(reader, &word);
    rc = xccl_draft_coll(draft, word.text, word.bytes);
    if (rc)
        return rc;
    next_word(reader, &word);
    rc = read_fields(reader, &xccl_head_fields, word, &draft->head, "schedule");
    return rc ? rc : xccl_draft_head_end(draft);
}

static xcclResult_t read_rank(struct reader *reader, const struct word *word)
{
    xcclResult_t rc = xccl_draft_rank_end(&reader->draft);

    if (!rc)
        rc = xccl_draft_rank(&reader->draft);
    /* Its own number is a field as the others. */
    if (!rc)
        rc = read_fields(reader, &xccl_rank_fields, *word, &reader->draft.rank, "rank");
    return rc;
}

/* Lanes, connections and waits. */
static xcclResult_t read_record(struct reader *reader, enum xccl_draft_part part,
                                const struct xccl_fields *fields, const char *record_name)
{
    const struct xccl_draft_table *tables = reader->draft.tables;
    const struct xccl_schedule_lane *lane;
    struct word word;
    uint64_t place;
    void *entry;
    xcclResult_t rc = xccl_draft_add(&reader->draft, part, &entry);

    if (rc)
        return rc;
    place = tables[part].used - 1;
    if (part == XCCL_DRAFT_CONNS) {
        lane = tables[XCCL_DRAFT_LANES].entries;
        place = lane[tables[XCCL_DRAFT_LANES].used - 1].nconn - 1u;
    }
    rc = read_place(reader, &word, place);
    return rc ? rc : read_fields(reader, fields, word, entry, record_name);
}

/* "list @16 4 5 6": entries 16 and on. */
static xcclResult_t read_list(struct reader *reader)
{
    struct xccl_draft *draft = &reader->draft;
    struct word word;
    int64_t value;
    void *entry;

    next_word(reader, &word);
    if (word.bytes && *word.text == '@') {
        struct word number = {word.text + 1, word.bytes - 1};

        if (!number_of(&number, &value) || value != draft->tables[XCCL_DRAFT_LIST].used)
            return fail(reader, &word, "name the next entry's place, or leave it out",
                        "the next entry is expected");
        next_word(reader, &word);
    }
    for (; word.bytes; next_word(reader, &word)) {
        xcclResult_t rc;

        if (!number_of(&word, &value) || value < 0 || value > 65535)
            return fail(reader, &word, "give a number from 0 to 65535", "a chunk is expected");
        rc = xccl_draft_add(draft, XCCL_DRAFT_LIST, &entry);
        if (rc)
            return rc;
        *(uint16_t *)entry = (uint16_t)value;
    }
    return xcclSuccess;
}

/* ---- the whole ---- */

static xcclResult_t read_line(struct reader *reader)
{
    struct word word;

    next_word(reader, &word);
    if (word.bytes == 0)
        return xcclSuccess;
    if (is(&word, "schedule"))
        return read_head(reader);
    if (is(&word, "rank"))
        return read_rank(reader, &word);
    if (is(&word, "lane"))
        return read_record(reader, XCCL_DRAFT_LANES, &xccl_lane_fields, "lane");
    if (is(&word, "conn"))
        return read_record(reader, XCCL_DRAFT_CONNS, &xccl_conn_fields, "conn");
    if (is(&word, "wait"))
        return read_record(reader, XCCL_DRAFT_WAITS, &xccl_wait_fields, "wait");
    if (is(&word, "step"))
        return read_step(reader);
    if (is(&word, "list"))
        return read_list(reader);
    return fail(reader, &word, "begin with schedule, rank, lane, conn, step, wait or list",
                "a line begins");
}

/* read_line() went up to the end of its line, or failed. */
static xcclResult_t read_lines(struct reader *reader)
{
    xcclResult_t rc = read_line(reader);

    while (!rc && reader->at < reader->end) {
        reader->at++; /* the line's end */
        reader->draft.line++;
        rc = read_line(reader);
    }
    if (!rc)
        rc = xccl_draft_rank_end(&reader->draft);
    return rc;
}

xcclResult_t xccl_schedule_read(const char *text, size_t bytes, const char *where,
                                struct xccl_schedule_set *set_out)
{
    struct reader reader = {.at = text, .end = text + bytes};
    xcclResult_t rc;

    xccl_draft_begin(&reader.draft, where);
    rc = read_lines(&reader);
    if (!rc)
        rc = xccl_draft_end(&reader.draft, set_out);
    xccl_draft_fini(&reader.draft);
    return rc;
}

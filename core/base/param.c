/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads, checks and tells the settings of param.def.
 *
 * Loading happens once, under a lock, and logs nothing: what there is to say is noted down and told
 * after the values are published, because the log itself asks for settings. All memory is static,
 * so loading cannot run out of it, and texts given out stay good for ever. The first place that has
 * a value wins: environment, then files in order; inside one file the last line. What is bad is an
 * error also where another place would have won. A program with raised privileges passes over
 * guarded rows of the environment, the files that they name and the home folder's file, because
 * these are another user's. Any thread; the environment must not be changed while the first thread
 * loads. */
#include "base/param_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/os.h"
#include "base/trust.h"

#define PREFIX           "XCCL_"
#define PREFIX_BYTES     (sizeof(PREFIX) - 1)
#define PATH_BYTES       (XCCL_PARAM_VALUE_BYTES + 1)
#define FILE_COUNT       2
#define NAME_SHOWN_BYTES 64 /* of a name that nobody knows */
#define NOTE_COUNT       32
#define IGNORED_BYTES    400
#define SYSTEM_FILE      "/etc/xccl.conf"
#define NO_ID            XCCL_PARAM_COUNT

const struct xccl_param_row xccl_param_rows[XCCL_PARAM_COUNT] = {
#define XCCL_PARAM(name, type, fallback, low, high, unit, words, help)                             \
    {PREFIX #name, XCCL_PARAM_##type, fallback, low, high, unit, words, help, 0},
#define XCCL_PARAM_GUARDED(name, type, fallback, low, high, unit, words, help)                     \
    {PREFIX #name, XCCL_PARAM_##type, fallback, low, high, unit, words, help, 1},
#include "base/param.def"
#undef XCCL_PARAM
};

struct value {
    enum xccl_param_origin origin;
    struct xccl_param_place place;
    int64_t number;
    char text[XCCL_PARAM_VALUE_BYTES + 1];
};

/* Something to say after loading. */
struct note {
    int is_error;
    char text[XCCL_ERROR_TEXT_BYTES];
};

static struct {
    struct xccl_lock lock;
    _Atomic int told; /* the notes have been logged */
    _Atomic int loaded; /* everything below is written before, and never again */
    xcclResult_t verdict;
    char verdict_text[XCCL_ERROR_TEXT_BYTES];
    struct value values[XCCL_PARAM_COUNT];
    char paths[FILE_COUNT][PATH_BYTES];
    char file_text[XCCL_PARAM_FILE_BYTES + 1]; /* one more, to see that a file is too long */
    struct note notes[NOTE_COUNT];
    int note_count, notes_dropped;
    int is_raised;
    char ignored[IGNORED_BYTES]; /* guarded names that were passed over */
} state = {.lock = XCCL_LOCK(NULL)};

__attribute__((format(printf, 2, 3))) static void add_note(int is_error, const char *fmt, ...)
{
    struct note *note = &state.notes[state.note_count];
    va_list args;

    /* The last place is kept for an error, so that a crowd of warnings cannot hide the reason. */
    if (state.note_count >= NOTE_COUNT - 1 && (!is_error || state.note_count == NOTE_COUNT)) {
        state.notes_dropped++;
    } else {
        note->is_error = is_error;
        va_start(args, fmt);
        vsnprintf(note->text, sizeof(note->text), fmt, args);
        va_end(args);
        state.note_count++;
    }
    if (is_error && state.verdict == xcclSuccess) {
        state.verdict = xcclInvalidArgument;
        va_start(args, fmt);
        vsnprintf(state.verdict_text, sizeof(state.verdict_text), fmt, args);
        va_end(args);
    }
}

static int is_secret(enum xccl_param_id id)
{
    return id == XCCL_P_JOB_KEY;
}

static enum xccl_param_id find_name(const char *name, size_t bytes)
{
    for (int id = 0; id < XCCL_PARAM_COUNT; id++) {
        if (strlen(xccl_param_rows[id].name) == bytes &&
            memcmp(xccl_param_rows[id].name, name, bytes) == 0)
            return (enum xccl_param_id)id;
    }
    return NO_ID;
}

/* How many characters must be put in, taken out or changed to make b of a. */
static size_t edit_distance(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    size_t costs[NAME_SHOWN_BYTES + 1];

    for (size_t i = 0; i <= b_bytes; i++)
        costs[i] = i;
    for (size_t i = 1; i <= a_bytes; i++) {
        size_t diagonal = costs[0];

        costs[0] = i;
        for (size_t k = 1; k <= b_bytes; k++) {
            size_t cost = diagonal + (a[i - 1] != b[k - 1]);

            diagonal = costs[k];
            cost = cost < costs[k - 1] + 1 ? cost : costs[k - 1] + 1;
            costs[k] = cost < diagonal + 1 ? cost : diagonal + 1;
        }
    }
    return costs[b_bytes];
}

/* The prefix is no part of the comparison: three typing errors, or one in three characters, but
 * never all of them. */
const char *xccl_param_nearest_name(const char *name, size_t bytes)
{
    const char *nearest = NULL;
    size_t best = SIZE_MAX, allowed;

    if (bytes >= PREFIX_BYTES && memcmp(name, PREFIX, PREFIX_BYTES) == 0) {
        name += PREFIX_BYTES;
        bytes -= PREFIX_BYTES;
    }
    if (bytes == 0 || bytes > NAME_SHOWN_BYTES)
        return NULL;
    allowed = bytes / 3 > 3 ? bytes / 3 : 3;
    if (allowed >= bytes)
        allowed = bytes - 1;
    for (int id = 0; id < XCCL_PARAM_COUNT; id++) {
        const char *known = xccl_param_rows[id].name + PREFIX_BYTES;
        size_t distance = edit_distance(name, bytes, known, strlen(known));

        if (distance < best) {
            best = distance;
            nearest = xccl_param_rows[id].name;
        }
    }
    return best <= allowed ? nearest : NULL;
}

const char *xccl_param_where(struct xccl_param_place place, char text_out[XCCL_PARAM_WHERE_BYTES])
{
    if (!place.file)
        return "environment";
    snprintf(text_out, XCCL_PARAM_WHERE_BYTES, "%s:%d", place.file, place.line);
    return text_out;
}

static void warn_unknown(const char *name, size_t bytes, struct xccl_param_place place)
{
    const char *nearest = xccl_param_nearest_name(name, bytes);
    int shown = bytes < NAME_SHOWN_BYTES ? (int)bytes : NAME_SHOWN_BYTES;
    char where[XCCL_PARAM_WHERE_BYTES];

    if (nearest)
        add_note(0, "unknown setting %.*s (%.200s); did you mean %s?", shown, name,
                 xccl_param_where(place, where), nearest);
    else
        add_note(0, "unknown setting %.*s (%.200s); `xccl env` lists all settings", shown, name,
                 xccl_param_where(place, where));
}

/* Digits with a sign; BYTES also one of K M G. 1 when the whole text is such a number. */
static int parse_number(const char *text, int suffixes, int64_t *number_out)
{
    static const char letters[] = "KMG";
    int negative = text[0] == '-';
    const char *at = text + (text[0] == '-' || text[0] == '+');
    const char *letter;
    int64_t number = 0;

    if (*at < '0' || *at > '9')
        return 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        int digit = negative ? '0' - *at : *at - '0';

        if (__builtin_mul_overflow(number, (int64_t)10, &number) ||
            __builtin_add_overflow(number, (int64_t)digit, &number))
            return 0;
    }
    /* A blank would become the end of letters. */
    letter = (*at & ~0x20) && suffixes ? strchr(letters, *at & ~0x20) : NULL;
    if (letter) {
        if (__builtin_mul_overflow(number, (int64_t)1024 << (10 * (letter - letters)), &number))
            return 0;
        at++;
    }
    *number_out = number;
    return *at == 0;
}

/* The index of text among words separated by '|', whatever its case; -1 when it is not there. */
static int find_word(const char *words, const char *text)
{
    size_t bytes = strlen(text);
    int idx = 0;

    for (const char *word = words;; word++, idx++) {
        size_t word_bytes = strcspn(word, "|");

        if (word_bytes == bytes && strncasecmp(word, text, bytes) == 0)
            return idx;
        word += word_bytes;
        if (!*word)
            return -1;
    }
}

/* 1 when text is a value of this row. */
static int parse_value(const struct xccl_param_row *row, const char *text, int64_t *number_out)
{
    int idx;

    switch (row->type) {
    case XCCL_PARAM_BOOL:
        idx = find_word("0|1|no|yes|off|on|false|true", text);
        *number_out = idx & 1;
        return idx >= 0;
    case XCCL_PARAM_ENUM:
        idx = find_word(row->words, text);
        *number_out = idx;
        return idx >= 0;
    case XCCL_PARAM_INT:
    case XCCL_PARAM_BYTES:
        return parse_number(text, row->type == XCCL_PARAM_BYTES, number_out) &&
               *number_out >= row->low && *number_out <= row->high;
    case XCCL_PARAM_STRING:
        break;
    }
    *number_out = 0;
    return 1;
}

int xccl_param_parse_value(enum xccl_param_id id, const char *text, int64_t *number_out)
{
    return parse_value(&xccl_param_rows[id], text, number_out);
}

/* A number with the greatest suffix that leaves it whole. */
static void format_bytes(int64_t bytes, char text_out[24])
{
    static const char letters[] = "GMK";

    for (int i = 0; i < 3; i++) {
        int64_t unit = (int64_t)1 << (30 - 10 * i);

        if (bytes && bytes % unit == 0) {
            snprintf(text_out, 24, "%lld%c", (long long)(bytes / unit), letters[i]);
            return;
        }
    }
    snprintf(text_out, 24, "%lld", (long long)bytes);
}

void xccl_param_range(const struct xccl_param_row *row, char text_out[XCCL_PARAM_RANGE_BYTES])
{
    const char *space = row->unit[0] ? " " : "";
    char low[24], high[24];

    switch (row->type) {
    case XCCL_PARAM_BOOL:
        snprintf(text_out, XCCL_PARAM_RANGE_BYTES, "0|1");
        return;
    case XCCL_PARAM_ENUM:
        snprintf(text_out, XCCL_PARAM_RANGE_BYTES, "%s", row->words);
        return;
    case XCCL_PARAM_INT:
        snprintf(text_out, XCCL_PARAM_RANGE_BYTES, "%lld..%lld%s%s", (long long)row->low,
                 (long long)row->high, space, row->unit);
        return;
    case XCCL_PARAM_BYTES:
        format_bytes(row->low, low);
        format_bytes(row->high, high);
        snprintf(text_out, XCCL_PARAM_RANGE_BYTES, "%s..%s%s%s", low, high, space, row->unit);
        return;
    case XCCL_PARAM_STRING:
        break;
    }
    snprintf(text_out, XCCL_PARAM_RANGE_BYTES, "text");
}

/* Checks one value and keeps it unless a better place had one. */
static void assign(enum xccl_param_id id, const char *text, size_t bytes,
                   struct xccl_param_place place)
{
    const struct xccl_param_row *row = &xccl_param_rows[id];
    struct value *value = &state.values[id];
    char copy[XCCL_PARAM_VALUE_BYTES + 1], range[XCCL_PARAM_RANGE_BYTES],
        where[XCCL_PARAM_WHERE_BYTES];
    int64_t number;

    if (bytes > XCCL_PARAM_VALUE_BYTES) {
        add_note(1, "%s has %zu bytes (%.200s); at most %d are allowed", row->name, bytes,
                 xccl_param_where(place, where), XCCL_PARAM_VALUE_BYTES);
        return;
    }
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    if (!parse_value(row, copy, &number)) {
        xccl_param_range(row, range);
        add_note(1, "%s=%.80s is not an allowed value (%.200s); use %s", row->name, copy,
                 xccl_param_where(place, where), range);
        return;
    }
    if (value->origin == XCCL_ORIGIN_ENV)
        return;
    if (value->origin == XCCL_ORIGIN_FILE && value->place.file != place.file)
        return;
    value->origin = place.file ? XCCL_ORIGIN_FILE : XCCL_ORIGIN_ENV;
    value->place = place;
    value->number = number;
    memcpy(value->text, copy, bytes + 1);
}

/* Notes what a program with raised privileges does not take. */
static void ignore(const char *name)
{
    size_t used = strlen(state.ignored);

    snprintf(state.ignored + used, sizeof(state.ignored) - used, "%s%s", used ? ", " : "", name);
}

static void load_environment(void)
{
    for (char **entry = environ; entry && *entry; entry++) {
        const char *equals = strchr(*entry, '=');
        enum xccl_param_id id;

        if (!equals || strncmp(*entry, PREFIX, PREFIX_BYTES) != 0)
            continue;
        id = find_name(*entry, (size_t)(equals - *entry));
        if (id == NO_ID)
            warn_unknown(*entry, (size_t)(equals - *entry), (struct xccl_param_place){0});
        else if (state.is_raised && xccl_param_rows[id].is_guarded)
            ignore(xccl_param_rows[id].name);
        else
            assign(id, equals + 1, strlen(equals + 1), (struct xccl_param_place){0});
    }
}

static void take_line(void *user, const struct xccl_param_line *line)
{
    struct xccl_param_place place = {.file = user, .line = line->number};
    enum xccl_param_id id = find_name(line->name, line->name_bytes);

    if (id == NO_ID) {
        warn_unknown(line->name, line->name_bytes, place);
    } else if (id == XCCL_P_CONF_FILE) {
        add_note(0, "%s in %.200s:%d has no effect; set it in the environment",
                 xccl_param_rows[id].name, place.file, place.line);
    } else {
        assign(id, line->value, line->value_bytes, place);
    }
}

/* Reads up to one byte more than allowed; XCCL_TRUST_REFUSED with a reason, or XCCL_TRUST_ERROR
 * with errno. Named pipes and devices that wait are an error rather than a wait; /dev/null is an
 * empty file. */
static ssize_t read_file(const char *path, char why_out[XCCL_ERROR_TEXT_BYTES])
{
    const struct xccl_trust_rules rules = {.may_be_device = 1};
    struct xccl_file_id id;
    int fd = xccl_trust_open(path, &rules, &id, why_out, XCCL_ERROR_TEXT_BYTES);
    size_t used = 0;
    ssize_t got = 1;

    if (fd < 0)
        return fd;
    while (got != 0 && used < sizeof(state.file_text)) {
        got = read(fd, state.file_text + used, sizeof(state.file_text) - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            break;
        used += (size_t)got;
    }
    if (got < 0) {
        int err = errno;

        close(fd);
        errno = err;
        return XCCL_TRUST_ERROR;
    }
    close(fd);
    return (ssize_t)used;
}

/* wanted: the user named this file, so that its absence is an error. */
static void load_file(char *path, int wanted)
{
    char why[XCCL_ERROR_TEXT_BYTES];
    ssize_t bytes = read_file(path, why);
    int err = errno;

    if (bytes == XCCL_TRUST_REFUSED)
        add_note(0, "the settings file %.300s is not read: %s", path, why);
    else if (bytes < 0 && wanted)
        add_note(1, "cannot read the settings file %.300s: %s; correct or unset %s", path,
                 strerrordesc_np(err), xccl_param_rows[XCCL_P_CONF_FILE].name);
    else if (bytes < 0 && err != ENOENT && err != ENOTDIR)
        add_note(0, "cannot read the settings file %.300s: %s; its settings are not used", path,
                 strerrordesc_np(err));
    if (bytes < 0)
        return;
    if (xccl_param_parse_file(path, state.file_text, (size_t)bytes, take_line, path) != xcclSuccess)
        add_note(1, "%s", xccl_error_text());
}

static void load_files(void)
{
    const char *chosen = state.values[XCCL_P_CONF_FILE].text;
    const char *home = getenv("HOME");

    if (chosen[0]) {
        snprintf(state.paths[0], PATH_BYTES, "%s", chosen);
        load_file(state.paths[0], 1);
        return;
    }
    if (home && home[0] == '/' &&
        snprintf(state.paths[0], PATH_BYTES, "%s/.xccl.conf", home) < PATH_BYTES) {
        if (!state.is_raised)
            load_file(state.paths[0], 0);
        else if (access(state.paths[0], F_OK) == 0) /* asked with the user's own rights */
            ignore("~/.xccl.conf");
    }
    snprintf(state.paths[1], PATH_BYTES, SYSTEM_FILE);
    load_file(state.paths[1], 0);
}

/* Begins anew: in a child of fork() a thread of the parent may have been in the middle of it. */
static void load_all(void)
{
    state.verdict = xcclSuccess;
    state.note_count = state.notes_dropped = 0;
    for (int id = 0; id < XCCL_PARAM_COUNT; id++) {
        struct value *value = &state.values[id];

        memset(value, 0, sizeof(*value));
        snprintf(value->text, sizeof(value->text), "%s", xccl_param_rows[id].fallback);
        parse_value(&xccl_param_rows[id], value->text, &value->number);
    }
    state.is_raised = xccl_os_is_raised();
    state.ignored[0] = 0;
    load_environment();
    load_files();
    if (state.ignored[0])
        add_note(
            0,
            "this program has more privileges than its user (set-user-id, set-group-id or "
            "file capabilities) and ignores the user's %s; put what it needs into " SYSTEM_FILE,
            state.ignored);
}

static void tell_notes(void)
{
    for (int i = 0; i < state.note_count; i++) {
        if (state.notes[i].is_error)
            xccl_log(XCCL_LOG_ERROR, "%s", state.notes[i].text);
        else
            xccl_log(XCCL_LOG_WARN, "%s", state.notes[i].text);
    }
    if (state.notes_dropped)
        xccl_log(XCCL_LOG_WARN,
                 "%d more messages about settings are not shown; correct the ones above first",
                 state.notes_dropped);
}

/* Loads, or waits for the thread that does. errno stays the caller's, and so does the thread's
 * error text: the parser's is used here, the verdict's is set by xccl_param_load alone. */
static void load_once(void)
{
    char saved_text[XCCL_ERROR_TEXT_BYTES];
    int saved_errno = errno;

    snprintf(saved_text, sizeof(saved_text), "%s", xccl_error_text());
    xccl_lock_take(&state.lock);
    if (!atomic_load_explicit(&state.loaded, memory_order_relaxed)) {
        load_all();
        /* Release: the values are written before. Pairs with the acquire in ensure_loaded. */
        atomic_store_explicit(&state.loaded, 1, memory_order_release);
    }
    xccl_lock_give(&state.lock);
    xccl_error_set_text(saved_text);
    errno = saved_errno;
}

static void ensure_loaded(void)
{
    /* Acquire: pairs with the release in load_once. */
    if (!atomic_load_explicit(&state.loaded, memory_order_acquire))
        load_once();
}

xcclResult_t xccl_param_load(void)
{
    ensure_loaded();
    /* Relaxed: only one thread tells, and what it tells was acquired above. */
    if (!atomic_exchange_explicit(&state.told, 1, memory_order_relaxed))
        tell_notes();
    if (state.verdict != xcclSuccess)
        xccl_error_set_text(state.verdict_text);
    return state.verdict;
}

int64_t xccl_param_int(enum xccl_param_id id)
{
    ensure_loaded();
    return state.values[id].number;
}

const char *xccl_param_string(enum xccl_param_id id)
{
    ensure_loaded();
    return state.values[id].text;
}

int xccl_param_is_set(enum xccl_param_id id)
{
    ensure_loaded();
    return state.values[id].origin != XCCL_ORIGIN_DEFAULT;
}

void xccl_param_info(enum xccl_param_id id, struct xccl_param_info *info_out)
{
    const struct xccl_param_row *row = &xccl_param_rows[id];
    const struct value *value = &state.values[id];

    ensure_loaded();
    *info_out = (struct xccl_param_info){
        .name = row->name,
        .type = row->type,
        .fallback = row->fallback,
        .low = row->low,
        .high = row->high,
        .unit = row->unit,
        .words = row->words,
        .help = row->help,
        .is_guarded = row->is_guarded,
        .origin = value->origin,
        .value = is_secret(id) && value->text[0] ? "(set)" : value->text,
        .file = value->place.file,
        .line = value->place.line,
    };
}

void xccl_param_reset(void)
{
    xccl_lock_take(&state.lock);
    /* Relaxed: only tests come here, while no other thread of the library runs. */
    atomic_store_explicit(&state.loaded, 0, memory_order_relaxed);
    atomic_store_explicit(&state.told, 0, memory_order_relaxed);
    xccl_lock_give(&state.lock);
    xccl_log_reset();
}

/* The parser of settings files. */

static int is_blank(char letter)
{
    return letter == ' ' || letter == '\t' || letter == '\r';
}

static int is_name(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (!(text[i] >= 'A' && text[i] <= 'Z') && !(text[i] >= 'a' && text[i] <= 'z') &&
            !(text[i] >= '0' && text[i] <= '9') && text[i] != '_')
            return 0;
    }
    return bytes > 0;
}

static int has_control(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (((unsigned char)text[i] < 0x20 && text[i] != '\t') || text[i] == 0x7f)
            return 1;
    }
    return 0;
}

/* Cuts blanks off both ends. */
static const char *trim(const char *text, size_t *bytes)
{
    while (*bytes > 0 && is_blank(text[*bytes - 1]))
        (*bytes)--;
    while (*bytes > 0 && is_blank(text[0])) {
        text++;
        (*bytes)--;
    }
    return text;
}

/* What is wrong with a line, or NULL; *line_out is filled for a NAME=VALUE, its name is NULL else.
 */
static const char *split_line(const char *text, size_t bytes, struct xccl_param_line *line_out)
{
    const char *equals;

    if (bytes > XCCL_PARAM_LINE_BYTES)
        return "the line is over 2,048 bytes; make it shorter";
    text = trim(text, &bytes);
    if (bytes == 0 || text[0] == '#')
        return NULL;
    if (has_control(text, bytes))
        return "the line has control characters; take them out";
    equals = memchr(text, '=', bytes);
    if (!equals)
        return "the line has no '='; write NAME=VALUE, or # in front of a comment";
    line_out->name_bytes = (size_t)(equals - text);
    line_out->name = trim(text, &line_out->name_bytes);
    if (!is_name(line_out->name, line_out->name_bytes))
        return "what is left of '=' is not a name; write NAME=VALUE";
    line_out->value_bytes = bytes - (size_t)(equals - text) - 1;
    line_out->value = trim(equals + 1, &line_out->value_bytes);
    return NULL;
}

xcclResult_t xccl_param_parse_file(const char *file, const char *text, size_t bytes,
                                   void (*take)(void *user, const struct xccl_param_line *line),
                                   void *user)
{
    const char *end;
    int number = 0;

    if (bytes == 0)
        return xcclSuccess;
    end = text + bytes;
    if (bytes > XCCL_PARAM_FILE_BYTES)
        return xccl_fail_quietly(xcclInvalidArgument, 0, "make it smaller",
                                 "the settings file %.300s has over %d bytes", file,
                                 XCCL_PARAM_FILE_BYTES);
    while (text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const char *line_end = newline ? newline : end;
        struct xccl_param_line line = {.number = ++number};
        const char *wrong = split_line(text, (size_t)(line_end - text), &line);

        if (wrong)
            return xccl_fail_quietly(xcclInvalidArgument, 0, NULL, "%.300s:%d: %s", file, number,
                                     wrong);
        if (line.name)
            take(user, &line);
        text = newline ? newline + 1 : end;
    }
    return xcclSuccess;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads, checks and tells the settings of param.def.
 *
 * Loading happens once, under a lock, and logs nothing: what there is to say is noted down and told
 * after the values are published, because the log itself asks for settings. All memory is static,
 * so loading cannot run out of it, and texts given out stay good for ever. The first place that has
 * a value wins: environment, then files in order; inside one file the last line. What is bad is an
 * error also where another place would have won. Any thread; the environment must not be changed
 * while the first thread loads. */
#include "base/param_int.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"

#define PREFIX           "XCCL_"
#define PREFIX_BYTES     (sizeof(PREFIX) - 1)
#define PATH_BYTES       (XCCL_PARAM_VALUE_BYTES + 1)
#define FILE_COUNT       2
#define NAME_SHOWN_BYTES 64 /* of a name that nobody knows */
#define NOTE_COUNT       32
#define NO_ID            XCCL_PARAM_COUNT

struct row {
    const char *name;
    enum xccl_param_type type;
    const char *fallback;
    int64_t low, high;
    const char *unit, *words, *help;
};

static const struct row rows[XCCL_PARAM_COUNT] = {
#define XCCL_PARAM(name, type, fallback, low, high, unit, words, help)                             \
    {PREFIX #name, XCCL_PARAM_##type, fallback, low, high, unit, words, help},
#include "base/param.def"
#undef XCCL_PARAM
};

/* Where a text stands: file NULL is the environment. */
struct place {
    const char *file;
    int line;
};

struct value {
    enum xccl_param_origin origin;
    struct place place;
    int64_t number;
    char text[XCCL_PARAM_VALUE_BYTES + 1];
};

/* Something to say after loading. */
struct note {
    int is_error;
    char text[XCCL_ERROR_TEXT_BYTES];
};

static struct {
    pthread_mutex_t lock;
    _Atomic int told; /* the notes have been logged */
    _Atomic int loaded; /* everything below is written before, and never again */
    xcclResult_t verdict;
    char verdict_text[XCCL_ERROR_TEXT_BYTES];
    struct value values[XCCL_PARAM_COUNT];
    char paths[FILE_COUNT][PATH_BYTES];
    char file_text[XCCL_PARAM_FILE_BYTES + 1]; /* one more, to see that a file is too long */
    struct note notes[NOTE_COUNT];
    int note_count, notes_dropped;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

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
        if (strlen(rows[id].name) == bytes && memcmp(rows[id].name, name, bytes) == 0)
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
        const char *known = rows[id].name + PREFIX_BYTES;
        size_t distance = edit_distance(name, bytes, known, strlen(known));

        if (distance < best) {
            best = distance;
            nearest = rows[id].name;
        }
    }
    return best <= allowed ? nearest : NULL;
}

/* "environment" or "FILE:LINE". */
static const char *place_text(struct place place, char text_out[PATH_BYTES + 16])
{
    if (!place.file)
        return "environment";
    snprintf(text_out, PATH_BYTES + 16, "%s:%d", place.file, place.line);
    return text_out;
}

static void warn_unknown(const char *name, size_t bytes, struct place place)
{
    const char *nearest = xccl_param_nearest_name(name, bytes);
    int shown = bytes < NAME_SHOWN_BYTES ? (int)bytes : NAME_SHOWN_BYTES;
    char where[PATH_BYTES + 16];

    if (nearest)
        add_note(0, "unknown setting %.*s (%.200s); did you mean %s?", shown, name,
                 place_text(place, where), nearest);
    else
        add_note(0, "unknown setting %.*s (%.200s); `xccl env` lists all settings", shown, name,
                 place_text(place, where));
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
static int parse_value(const struct row *row, const char *text, int64_t *number_out)
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
    return parse_value(&rows[id], text, number_out);
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

#define RANGE_TEXT_BYTES 160

/* What a row's value may be, for people. */
static void format_range(const struct row *row, char text_out[RANGE_TEXT_BYTES])
{
    const char *space = row->unit[0] ? " " : "";
    char low[24], high[24];

    switch (row->type) {
    case XCCL_PARAM_BOOL:
        snprintf(text_out, RANGE_TEXT_BYTES, "0|1");
        return;
    case XCCL_PARAM_ENUM:
        snprintf(text_out, RANGE_TEXT_BYTES, "%s", row->words);
        return;
    case XCCL_PARAM_INT:
        snprintf(text_out, RANGE_TEXT_BYTES, "%lld..%lld%s%s", (long long)row->low,
                 (long long)row->high, space, row->unit);
        return;
    case XCCL_PARAM_BYTES:
        format_bytes(row->low, low);
        format_bytes(row->high, high);
        snprintf(text_out, RANGE_TEXT_BYTES, "%s..%s%s%s", low, high, space, row->unit);
        return;
    case XCCL_PARAM_STRING:
        break;
    }
    snprintf(text_out, RANGE_TEXT_BYTES, "text");
}

/* Checks one value and keeps it unless a better place had one. */
static void assign(enum xccl_param_id id, const char *text, size_t bytes, struct place place)
{
    const struct row *row = &rows[id];
    struct value *value = &state.values[id];
    char copy[XCCL_PARAM_VALUE_BYTES + 1], range[RANGE_TEXT_BYTES], where[PATH_BYTES + 16];
    int64_t number;

    if (bytes > XCCL_PARAM_VALUE_BYTES) {
        add_note(1, "%s has %zu bytes (%.200s); at most %d are allowed", row->name, bytes,
                 place_text(place, where), XCCL_PARAM_VALUE_BYTES);
        return;
    }
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    if (!parse_value(row, copy, &number)) {
        format_range(row, range);
        add_note(1, "%s=%.80s is not an allowed value (%.200s); use %s", row->name, copy,
                 place_text(place, where), range);
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

static void load_environment(void)
{
    for (char **entry = environ; entry && *entry; entry++) {
        const char *equals = strchr(*entry, '=');
        enum xccl_param_id id;

        if (!equals || strncmp(*entry, PREFIX, PREFIX_BYTES) != 0)
            continue;
        id = find_name(*entry, (size_t)(equals - *entry));
        if (id == NO_ID)
            warn_unknown(*entry, (size_t)(equals - *entry), (struct place){0});
        else
            assign(id, equals + 1, strlen(equals + 1), (struct place){0});
    }
}

static void take_line(void *user, const struct xccl_param_line *line)
{
    struct place place = {.file = user, .line = line->number};
    enum xccl_param_id id = find_name(line->name, line->name_bytes);

    if (id == NO_ID) {
        warn_unknown(line->name, line->name_bytes, place);
    } else if (id == XCCL_P_CONF_FILE) {
        add_note(0, "%s in %.200s:%d has no effect; set it in the environment", rows[id].name,
                 place.file, place.line);
    } else {
        assign(id, line->value, line->value_bytes, place);
    }
}

/* Reads up to one byte more than allowed; -1 with errno. Named pipes and devices that wait are an
 * error rather than a wait; /dev/null is an empty file. */
static ssize_t read_file(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    size_t used = 0;
    ssize_t got = 1;
    struct stat info;

    if (fd < 0)
        return -1;
    if (fstat(fd, &info) != 0 || (!S_ISREG(info.st_mode) && !S_ISCHR(info.st_mode))) {
        close(fd);
        errno = EINVAL;
        return -1;
    }
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
        return -1;
    }
    close(fd);
    return (ssize_t)used;
}

/* wanted: the user named this file, so that its absence is an error. */
static void load_file(char *path, int wanted)
{
    ssize_t bytes = read_file(path);
    int err = errno;

    if (bytes < 0 && wanted)
        add_note(1, "cannot read the settings file %.300s: %s; correct or unset %s", path,
                 strerrordesc_np(err), rows[XCCL_P_CONF_FILE].name);
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
        snprintf(state.paths[0], PATH_BYTES, "%s/.xccl.conf", home) < PATH_BYTES)
        load_file(state.paths[0], 0);
    snprintf(state.paths[1], PATH_BYTES, "/etc/xccl.conf");
    load_file(state.paths[1], 0);
}

static void load_all(void)
{
    for (int id = 0; id < XCCL_PARAM_COUNT; id++) {
        struct value *value = &state.values[id];

        memset(value, 0, sizeof(*value));
        snprintf(value->text, sizeof(value->text), "%s", rows[id].fallback);
        parse_value(&rows[id], value->text, &value->number);
    }
    load_environment();
    load_files();
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
    pthread_mutex_lock(&state.lock);
    if (!atomic_load_explicit(&state.loaded, memory_order_relaxed)) {
        load_all();
        /* Release: the values are written before. Pairs with the acquire in ensure_loaded. */
        atomic_store_explicit(&state.loaded, 1, memory_order_release);
    }
    pthread_mutex_unlock(&state.lock);
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
    const struct row *row = &rows[id];
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
        .origin = value->origin,
        .value = is_secret(id) && value->text[0] ? "(set)" : value->text,
        .file = value->place.file,
        .line = value->place.line,
    };
}

void xccl_param_reset(void)
{
    pthread_mutex_lock(&state.lock);
    state.verdict = xcclSuccess;
    state.note_count = 0;
    state.notes_dropped = 0;
    /* Relaxed: only tests come here, while no other thread of the library runs. */
    atomic_store_explicit(&state.loaded, 0, memory_order_relaxed);
    atomic_store_explicit(&state.told, 0, memory_order_relaxed);
    pthread_mutex_unlock(&state.lock);
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

/* Telling the settings. */

#define TOLD_BYTES 2048
#define CELL_BYTES 640
#define PAGE_WIDTH 88

/* One clause, in lines of at most PAGE_WIDTH; those after the first are indented further. */
static void tell_clause(const char *text, size_t length, void (*line)(void *user, const char *text),
                        void *user)
{
    char told[PAGE_WIDTH + 1];

    for (size_t indent = 4; length; indent = 6) {
        size_t room = PAGE_WIDTH - indent, fit;

        for (fit = length > room ? room : length; fit < length && fit && text[fit] != ' ';)
            fit--;
        fit = fit ? fit : room; /* a word longer than a line */
        snprintf(told, sizeof(told), "%*s%.*s", (int)indent, "", (int)fit, text);
        line(user, told);
        fit += fit < length && text[fit] == ' ';
        text += fit;
        length -= fit;
    }
}

/* The clauses of a help: the thing that is set, each value with its meaning, limits. */
static void tell_help(const char *help, void (*line)(void *user, const char *text), void *user)
{
    for (const char *end; *help; help = *end ? end + 2 : end) {
        end = strstr(help, "; ");
        if (!end)
            end = help + strlen(help);
        tell_clause(help, (size_t)(end - help), line, user);
    }
}

static void tell_row(enum xccl_param_id id, void (*line)(void *user, const char *text), void *user)
{
    struct xccl_param_info info;
    char told[TOLD_BYTES], range[RANGE_TEXT_BYTES], where[PATH_BYTES + 16];

    xccl_param_info(id, &info);
    if (info.origin == XCCL_ORIGIN_DEFAULT)
        snprintf(told, sizeof(told), "%s=%s (default)", info.name, info.value);
    else
        snprintf(told, sizeof(told), "%s=%s (%.300s; default %s)", info.name, info.value,
                 place_text((struct place){.file = info.file, .line = info.line}, where),
                 info.fallback[0] ? info.fallback : "empty");
    /* A value is one line, whatever the environment holds. */
    for (char *at = told; *at; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = '?';
    }
    line(user, told);
    if (rows[id].type != XCCL_PARAM_STRING) {
        format_range(&rows[id], range);
        snprintf(told, sizeof(told), "allowed: %s%s", range,
                 rows[id].type == XCCL_PARAM_BOOL ? " (or no, off, false and yes, on, true)" : "");
        tell_clause(told, strlen(told), line, user);
    }
    tell_help(info.help, line, user);
}

/* Copies a cell of a table; '|' would end it. */
static void escape_cell(const char *text, char cell_out[CELL_BYTES])
{
    size_t used = 0;

    for (; *text && used + 3 < CELL_BYTES; text++) {
        if (*text == '|')
            cell_out[used++] = '\\';
        cell_out[used++] = *text;
    }
    cell_out[used] = 0;
}

static void tell_table_row(const struct row *row, void (*line)(void *user, const char *text),
                           void *user)
{
    static const char *const type_names[] = {"yes or no", "number", "bytes", "text", "word"};
    char told[TOLD_BYTES], range[RANGE_TEXT_BYTES];
    char range_cell[CELL_BYTES], help_cell[CELL_BYTES];
    const char *quote = row->fallback[0] ? "`" : "";

    format_range(row, range);
    escape_cell(row->type == XCCL_PARAM_STRING ? "" : range, range_cell);
    escape_cell(row->help, help_cell);
    snprintf(told, sizeof(told), "| `%s` | %s | %s | %s%s%s | %s |", row->name,
             type_names[row->type], range_cell, quote, row->fallback, quote, help_cell);
    line(user, told);
}

static const char *const page_head[] = {
    "# Settings",
    "",
    "Every setting of XCCL. `xccl env --markdown` prints this page; `xccl env` shows the values in",
    "force and the origin of each.",
    "",
    "XCCL looks up each setting separately and uses the first place that has it:",
    "",
    "1. the environment variable of that name;",
    "2. the file that `XCCL_CONF_FILE` names; or, if it names none, `~/.xccl.conf`, then",
    "   `/etc/xccl.conf`;",
    "3. the default.",
    "",
    "All settings are read and checked once per process. A value that is not allowed makes the",
    "creation of communicators fail, even if another place takes precedence. Settings of type text",
    "are checked when they are used. An unknown name that begins with `XCCL_` gives a warning with",
    "the most similar known name.",
    "",
    "A file has one `NAME=VALUE` per line, with the full name (`XCCL_DEBUG=info`), at most 2,048",
    "bytes per line and 64 KiB in all. Spaces around name and value are ignored; quotes are part",
    "of the value. Lines that begin with `#` are comments. If a name occurs twice, the later line",
    "counts.",
    "",
    "Numbers are decimal. Bytes may end in `K`, `M` or `G` (powers of 1,024). Yes is `1`, `yes`,",
    "`on` or `true`; no is `0`, `no`, `off` or `false`. Words may be in upper or lower case.",
    "",
    "| Setting | Type | Range | Default | What it sets |",
    "|---|---|---|---|---|",
};

int xccl_param_print(const char *part, void (*line)(void *user, const char *text), void *user)
{
    int count = 0;

    for (int id = 0; id < XCCL_PARAM_COUNT; id++) {
        if (!strcasestr(rows[id].name, part))
            continue;
        tell_row((enum xccl_param_id)id, line, user);
        count++;
    }
    return count;
}

void xccl_param_page(void (*line)(void *user, const char *text), void *user)
{
    for (size_t i = 0; i < sizeof(page_head) / sizeof(page_head[0]); i++)
        line(user, page_head[i]);
    for (int id = 0; id < XCCL_PARAM_COUNT; id++)
        tell_table_row(&rows[id], line, user);
}

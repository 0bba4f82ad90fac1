/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads the text of a table: lines of words, # begins a comment, the first line says the version.
 * Thread: any. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tune_table.h"

#define WORDS_MAX 9
#define VERSION   "1"

static const char *const collectives[] = {"all_reduce", "reduce_scatter", "all_gather",
                                          "broadcast",  "reduce",         "alltoall",
                                          "gather",     "scatter",        "barrier"};
static const char *const protocols[] = {"lines", "small", "slices"};

struct reader {
    struct tune_table table;
    int room, line, began;
    char *error;
};

static int refuse(struct reader *reader, const char *fmt, ...)
    __attribute__((format(printf, 2, 3), cold));
static int refuse(struct reader *reader, const char *fmt, ...)
{
    int used = snprintf(reader->error, TUNE_ERROR_BYTES, "line %d: ", reader->line);
    va_list args;

    va_start(args, fmt);
    vsnprintf(reader->error + used, TUNE_ERROR_BYTES - (size_t)used, fmt, args);
    va_end(args);
    return 0;
}

/* What is shown of a word: the text may be anything. */
static const char *shown(const char *word, char room[TUNE_NAME_BYTES])
{
    size_t i = 0;

    for (; word[i] && i < TUNE_NAME_BYTES - 1; i++)
        room[i] = word[i] >= ' ' && word[i] <= '~' ? word[i] : '?';
    room[i] = '\0';
    return room;
}

/* ---- words ---- */

/* A number with K, M or G behind it, in 0 to most; *at moves on. */
static int read_number(const char **at, uint64_t most, uint64_t *value_out)
{
    static const char units[] = "KMG";
    uint64_t value = 0;
    const char *begin = *at, *unit;

    for (; **at >= '0' && **at <= '9'; ++*at) {
        uint64_t digit = (uint64_t)(**at - '0');

        if (value > (most - digit) / 10)
            return 0;
        value = value * 10 + digit;
    }
    if (*at == begin)
        return 0;
    unit = **at ? strchr(units, **at) : NULL;
    if (unit) {
        unsigned shift = 10 * (unsigned)(unit - units + 1);

        if (value > most >> shift)
            return 0;
        value <<= shift;
        ++*at;
    }
    *value_out = value;
    return 1;
}

/* "*", "8", "0-64K", "64K-" */
static int read_range(const char *word, uint64_t most, struct tune_range *range_out)
{
    struct tune_range range = {0, most};

    if (strcmp(word, "*") != 0) {
        if (!read_number(&word, most, &range.low))
            return 0;
        range.high = range.low;
        if (*word == '-' && !word[1]) {
            range.high = most;
            word++;
        } else if (*word == '-') {
            word++;
            if (!read_number(&word, most, &range.high) || range.high < range.low)
                return 0;
        }
        if (*word)
            return 0;
    }
    *range_out = range;
    return 1;
}

/* "auto" is 0. */
static int read_choice(const char *word, uint64_t most, uint64_t *value_out)
{
    uint64_t value = 0;

    if (strcmp(word, "auto") != 0 && (!read_number(&word, most, &value) || *word || !value))
        return 0;
    *value_out = value;
    return 1;
}

/* The constant text that equals the word; NULL: there is none. */
static const char *find_word(const char *const *words, size_t count, const char *word)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(words[i], word) == 0)
            return words[i];
    return NULL;
}

/* "pat:4" */
static int read_algorithm(const char *word, struct tune_row *row)
{
    size_t length = strcspn(word, ":");
    uint64_t param = 0;

    if (length == 0 || length >= sizeof row->algorithm ||
        strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789_-") < length)
        return 0;
    memcpy(row->algorithm, word, length);
    row->algorithm[length] = '\0';
    if (word[length]) {
        word += length + 1;
        if (!read_number(&word, INT32_MAX, &param) || *word || !param)
            return 0;
    }
    row->param = (int32_t)param;
    return 1;
}

static int read_links(const char *word, enum tune_links *links_out)
{
    static const char *const words[] = {
        [TUNE_LINKS_ANY] = "*",
        [TUNE_LINKS_LOCAL] = "local",
        [TUNE_LINKS_CROWDED] = "crowded",
        [TUNE_LINKS_NET] = "net",
    };

    for (int i = 0; i <= TUNE_LINKS_NET; i++) {
        if (strcmp(words[i], word) != 0)
            continue;
        *links_out = (enum tune_links)i;
        return 1;
    }
    return 0;
}

/* ---- lines ---- */

static int read_protocol(const char *word, struct tune_row *row)
{
    row->protocol = find_word(protocols, sizeof protocols / sizeof protocols[0], word);
    return row->protocol || strcmp(word, "auto") == 0;
}

static int read_row(struct reader *reader, char *const words[WORDS_MAX], struct tune_row *row)
{
    static const char *const wants[WORDS_MAX] = {
        "a collective",
        "bytes, as 8, 0-64K, 64K- or *",
        "ranks, as 4, 2-8, 9- or *",
        "nodes, as 1, 2-8, 9- or *",
        "local, crowded, net or *",
        "an algorithm, as ring or pat:4",
        "lines, small, slices or auto",
        "a number of lanes, or auto",
        "a tile, as 32K, or auto",
    };
    uint64_t lanes = 0;
    char room[TUNE_NAME_BYTES];
    int good[WORDS_MAX];

    row->collective = find_word(collectives, sizeof collectives / sizeof collectives[0], words[0]);
    good[0] = row->collective != NULL;
    good[1] = read_range(words[1], UINT64_MAX, &row->bytes);
    good[2] = read_range(words[2], INT32_MAX, &row->ranks);
    good[3] = read_range(words[3], INT32_MAX, &row->nodes);
    good[4] = read_links(words[4], &row->links);
    good[5] = read_algorithm(words[5], row);
    good[6] = read_protocol(words[6], row);
    good[7] = read_choice(words[7], INT32_MAX, &lanes);
    good[8] = read_choice(words[8], UINT64_MAX, &row->tile);
    row->lanes = (int32_t)lanes;
    for (int i = 0; i < WORDS_MAX; i++)
        if (!good[i])
            return refuse(reader, "word %d is \"%s\"; write %s", i + 1, shown(words[i], room),
                          wants[i]);
    return 1;
}

static int add_row(struct reader *reader, const struct tune_row *row)
{
    if (reader->table.count == TUNE_ROWS_MAX)
        return refuse(reader, "there are more than %d rows", TUNE_ROWS_MAX);
    if (reader->table.count == reader->room) {
        int room = reader->room ? 2 * reader->room : 64;
        struct tune_row *rows = realloc(reader->table.rows, (size_t)room * sizeof *rows);

        if (!rows)
            return refuse(reader, "no memory for %d rows", room);
        reader->table.rows = rows;
        reader->room = room;
    }
    reader->table.rows[reader->table.count++] = *row;
    return 1;
}

static int read_line(struct reader *reader, char *line)
{
    struct tune_row row = {.collective = NULL};
    char *words[WORDS_MAX], *rest = NULL, *word;
    int count = 0;

    line[strcspn(line, "#")] = '\0';
    for (word = strtok_r(line, " \t\r", &rest); word; word = strtok_r(NULL, " \t\r", &rest)) {
        if (count == WORDS_MAX)
            return refuse(reader, "a row has %d words, but this one has more", WORDS_MAX);
        words[count++] = word;
    }
    if (count == 0)
        return 1;
    if (!reader->began) {
        reader->began = count == 2 && strcmp(words[0], "tuner-table") == 0 &&
                        strcmp(words[1], VERSION) == 0;
        return reader->began ? 1
                             : refuse(reader, "a table begins with \"tuner-table %s\"", VERSION);
    }
    if (count < WORDS_MAX)
        return refuse(reader,
                      "a row has %d words (collective, bytes, ranks, nodes, links, algorithm, "
                      "protocol, lanes, tile), but this one has %d",
                      WORDS_MAX, count);
    return read_row(reader, words, &row) && add_row(reader, &row);
}

static int read_lines(struct reader *reader, const char *text, size_t bytes)
{
    while (bytes > 0) {
        const char *end = memchr(text, '\n', bytes);
        size_t length = end ? (size_t)(end - text) : bytes;
        char line[TUNE_LINE_BYTES];

        reader->line++;
        if (length >= sizeof line)
            return refuse(reader, "it has more than %d letters", TUNE_LINE_BYTES - 1);
        if (memchr(text, '\0', length))
            return refuse(reader, "there is a zero byte: this is not a text file");
        memcpy(line, text, length);
        line[length] = '\0';
        if (!read_line(reader, line))
            return 0;
        length += end != NULL;
        text += length;
        bytes -= length;
    }
    return reader->began ? 1 : refuse(reader, "the table is empty");
}

int tune_table_read(const char *text, size_t bytes, struct tune_table *table_out,
                    char error_out[TUNE_ERROR_BYTES])
{
    struct reader reader = {.error = error_out};

    if (bytes > TUNE_TEXT_BYTES_MAX)
        return refuse(&reader, "the table has more than %u bytes", TUNE_TEXT_BYTES_MAX);
    if (!read_lines(&reader, text, bytes)) {
        tune_table_free(&reader.table);
        return 0;
    }
    *table_out = reader.table;
    return 1;
}

void tune_table_free(struct tune_table *table)
{
    free(table->rows);
    *table = (struct tune_table){NULL, 0};
}

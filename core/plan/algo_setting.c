/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads XCCL_ALGO. A word before the first colon that is a collective's name is one; all else is an
 * algorithm with its parameter. Thread: any. */
#include "plan/algo_setting.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

#define WORD_BYTES 64

/* "AllReduce" is "all_reduce". */
static int same_coll(const char *name, const char *word, size_t length)
{
    size_t at = 0;

    for (; *name; name++) {
        if (*name == '_')
            continue;
        if (at < length && word[at] == '_')
            at++;
        if (at >= length || tolower((unsigned char)word[at]) != *name)
            return 0;
        at++;
    }
    return at == length;
}

enum xccl_coll xccl_setting_coll(const char *word, size_t length)
{
    int coll = 0;

    while (coll < XCCL_COLL_WITH_SCHEDULES &&
           !same_coll(xccl_coll_name((enum xccl_coll)coll), word, length))
        coll++;
    return (enum xccl_coll)coll;
}

static xcclResult_t bad_word(const char *word, const char *what)
{
    return xccl_fail(xcclInvalidUsage, 0, "`xccl algo list` lists collectives and algorithms",
                     "XCCL_ALGO: \"%s\" %s", word, what);
}

/* Adds a word to the list of one collective; 0: it has no such algorithm. */
static int add_to(struct xccl_algo_list *list, enum xccl_coll coll, const char *word)
{
    int param = 0;
    const struct xccl_generator *generator = xccl_generator_find(coll, word, &param);

    if (!generator || list->count == XCCL_ALGO_LIST_MAX)
        return 0;
    list->algos[list->count++] = (struct xccl_algo_named){generator, param};
    return 1;
}

/* The words of one entry, for one collective or for all that know them. */
static xcclResult_t read_entry(const char *at, size_t length, struct xccl_algo_setting *setting)
{
    const char *colon = memchr(at, ':', length), *end = at + length;
    enum xccl_coll coll = XCCL_COLL_WITH_SCHEDULES;
    int excludes = 0;

    if (colon)
        coll = xccl_setting_coll(at, (size_t)(colon - at));
    if (coll != XCCL_COLL_WITH_SCHEDULES)
        at = colon + 1;
    if (at < end && *at == '^') {
        excludes = 1;
        at++;
    }
    for (const char *next; at < end; at = next) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        char word[WORD_BYTES];
        int known = 0;

        next = comma ? comma + 1 : end;
        snprintf(word, sizeof word, "%.*s", (int)((comma ? comma : end) - at), at);
        for (int i = 0; i < XCCL_COLL_WITH_SCHEDULES; i++) {
            if (coll != XCCL_COLL_WITH_SCHEDULES && i != (int)coll)
                continue;
            setting->lists[i].excludes = excludes;
            known |= add_to(&setting->lists[i], (enum xccl_coll)i, word);
        }
        if (!known)
            return bad_word(word,
                            coll == XCCL_COLL_WITH_SCHEDULES
                                ? "is not an algorithm, or is one too many"
                                : "is not an algorithm of that collective, or is one too many");
    }
    return xcclSuccess;
}

xcclResult_t xccl_algo_setting_parse(const char *text, struct xccl_algo_setting *setting_out)
{
    struct xccl_algo_setting setting = {0};

    if (strcmp(text, "auto") == 0)
        text = "";
    while (*text) {
        size_t length = strcspn(text, ";");
        xcclResult_t rc = read_entry(text, length, &setting);

        if (rc)
            return rc;
        text += length + (text[length] == ';');
    }
    *setting_out = setting;
    return xcclSuccess;
}

int xccl_algo_setting_allows(const struct xccl_algo_setting *setting,
                             const struct xccl_generator *generator, int param)
{
    const struct xccl_algo_list *list = &setting->lists[generator->coll];
    int named = 0;

    for (uint32_t i = 0; i < list->count; i++)
        named |= list->algos[i].generator == generator &&
                 (!list->algos[i].param || list->algos[i].param == param);
    return !list->count || named != list->excludes;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads XCCL_PROTO. An entry without a collective is about all that have no entry of their own,
 * wherever it stands. Thread: any. */
#include "plan/proto_setting.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "plan/algo_setting.h"

#define WORD_BYTES 32
#define ALL_PROTOS ((1u << XCCL_PROTO_NAMED) - 1)

static const struct {
    const char *name, *nccl;
} protos[XCCL_PROTO_COUNT] = {
    [XCCL_PROTO_LINES] = {"lines", "LL"},
    [XCCL_PROTO_SMALL] = {"small", "LL128"},
    [XCCL_PROTO_SLICES] = {"slices", "Simple"},
    [XCCL_PROTO_TIGHT] = {"tight slices", NULL}, /* not to be asked for */
};

const char *xccl_proto_name(enum xccl_proto proto)
{
    return protos[proto].name;
}

static xcclResult_t bad_word(const char *word)
{
    return xccl_fail(xcclInvalidUsage, 0,
                     "write lines, small or slices, as in small,slices or all_reduce:^lines",
                     "XCCL_PROTO: \"%s\" is not a protocol", word);
}

/* One word as a bit; 0: it is no protocol. */
static unsigned bit_of(const char *word)
{
    for (unsigned i = 0; i < XCCL_PROTO_NAMED; i++)
        if (strcasecmp(word, protos[i].name) == 0 || strcasecmp(word, protos[i].nccl) == 0)
            return 1u << i;
    return 0;
}

/* The words of a list, as those that are left out. */
static xcclResult_t read_list(const char *at, const char *end, unsigned *leaves_out)
{
    int excludes = at < end && *at == '^';
    unsigned named = 0;

    at += excludes;
    for (const char *next;; at = next) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        char word[WORD_BYTES];
        unsigned bit;

        snprintf(word, sizeof word, "%.*s", (int)((comma ? comma : end) - at), at);
        bit = bit_of(word);
        if (!bit)
            return bad_word(word);
        named |= bit;
        if (!comma)
            break;
        next = comma + 1;
    }
    *leaves_out = excludes ? named : ALL_PROTOS & ~named;
    return xcclSuccess;
}

static xcclResult_t read_entry(const char *at, size_t length, struct xccl_proto_setting *setting,
                               uint32_t *own)
{
    const char *colon = memchr(at, ':', length), *end = at + length;
    enum xccl_coll coll = XCCL_COLL_WITH_SCHEDULES;
    char word[WORD_BYTES];
    unsigned leaves_out = 0;
    xcclResult_t rc;

    if (colon) {
        coll = xccl_setting_coll(at, (size_t)(colon - at));
        snprintf(word, sizeof word, "%.*s", (int)(colon - at), at);
        if (coll == XCCL_COLL_WITH_SCHEDULES)
            return xccl_fail(xcclInvalidUsage, 0,
                             "`xccl algo list` lists collectives and algorithms",
                             "XCCL_PROTO: \"%s\" is not a collective", word);
        at = colon + 1;
    }
    rc = read_list(at, end, &leaves_out);
    for (int i = 0; i < XCCL_COLL_WITH_SCHEDULES && !rc; i++)
        if (coll == XCCL_COLL_WITH_SCHEDULES ? !(*own >> i & 1) : i == (int)coll)
            setting->leaves_out[i] = (uint8_t)leaves_out;
    if (coll != XCCL_COLL_WITH_SCHEDULES)
        *own |= 1u << coll;
    return rc;
}

xcclResult_t xccl_proto_setting_parse(const char *text, struct xccl_proto_setting *setting_out)
{
    struct xccl_proto_setting setting = {{0}};
    uint32_t own = 0; /* collectives with an entry of their own */

    if (strcmp(text, "auto") == 0)
        text = "";
    while (*text) {
        size_t length = strcspn(text, ";");
        xcclResult_t rc = read_entry(text, length, &setting, &own);

        if (rc)
            return rc;
        text += length + (text[length] == ';');
    }
    *setting_out = setting;
    return xcclSuccess;
}

int xccl_proto_setting_allows(const struct xccl_proto_setting *setting, enum xccl_coll coll,
                              enum xccl_proto proto)
{
    return !(setting->leaves_out[coll] >> proto & 1);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Fills the {places} of a template of verdict.def:
 *
 *   {finder} {culprit}      the rank with host and process     {finder#} {culprit#}   its number
 *   {finder@} {finder:}     "host a, pid 12", "rank 1 on host a (pid 12)"
 *   {address}               " at 10.0.0.2"
 *   {mine} {theirs}         what finder and culprit do         {mine#} {theirs#}   number of the
 * call {mine?} {theirs?}       "is", or "was" if it is past       {mine>}   "to send to" {waits}
 * ranks that are waited for          {seconds} {elements}   numbers {why} {plugin} {tuner}
 * evidence; {tuner} is a part in brackets, or nothing
 *
 * Room is bounded everywhere, and no value is trusted to be short or printable.
 * Thread: any; no memory is taken. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "verdict/call_text.h"
#include "verdict/verdict.h"

#define NAME_BYTES   128
#define VALUE_BYTES  512
#define REMEDY_BYTES 256
#define CUT_MARK     "..."
#define TUNER_MAX    60 /* characters of its name beside both calls */

struct writer {
    char *text;
    size_t used, room; /* room: without the 0 */
    int is_cut;
    const struct xccl_verdict *verdict;
    const struct xccl_rank_places *places;
};

static void put(struct writer *writer, const char *text, size_t bytes)
{
    size_t left = writer->room - writer->used;

    if (bytes > left) {
        bytes = left;
        writer->is_cut = 1;
    }
    memcpy(writer->text + writer->used, text, bytes);
    writer->used += bytes;
    writer->text[writer->used] = '\0';
}

/* A value may come from another rank or a plugin. */
static void put_value(struct writer *writer, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static void put_value(struct writer *writer, const char *fmt, ...)
{
    char value[VALUE_BYTES];
    va_list args;

    va_start(args, fmt);
    vsnprintf(value, sizeof value, fmt, args);
    va_end(args);
    xccl_log_escape(value, sizeof value);
    put(writer, value, strlen(value));
}

/* --- ranks --- */

static int find_place(const struct xccl_rank_places *places, int rank,
                      struct xccl_rank_place *place_out)
{
    return places && places->find && rank >= 0 && places->find(places->owner, rank, place_out);
}

void xccl_verdict_name(const struct xccl_rank_places *places, int rank, char *text_out,
                       size_t bytes)
{
    struct xccl_rank_place place;

    if (find_place(places, rank, &place))
        snprintf(text_out, bytes, "rank %d (host %.63s, pid %u)", rank, place.host, place.pid);
    else if (rank >= 0)
        snprintf(text_out, bytes, "rank %d", rank);
    else
        snprintf(text_out, bytes, "a rank");
}

static void put_rank(struct writer *writer, int rank)
{
    char name[NAME_BYTES];

    xccl_verdict_name(writer->places, rank, name, sizeof name);
    put_value(writer, "%s", name);
}

static void put_finder(struct writer *writer)
{
    put_rank(writer, writer->verdict->finder);
}

static void put_culprit(struct writer *writer)
{
    put_rank(writer, writer->verdict->culprit);
}

static void put_finder_number(struct writer *writer)
{
    put_value(writer, "%d", writer->verdict->finder);
}

static void put_culprit_number(struct writer *writer)
{
    put_value(writer, "%d", writer->verdict->culprit);
}

static void put_finder_place(struct writer *writer)
{
    struct xccl_rank_place place;

    if (find_place(writer->places, writer->verdict->finder, &place))
        put_value(writer, "host %.63s, pid %u", place.host, place.pid);
    else
        put_value(writer, "host not known");
}

static void put_finder_on(struct writer *writer)
{
    struct xccl_rank_place place;
    int finder = writer->verdict->finder;

    if (find_place(writer->places, finder, &place))
        put_value(writer, "rank %d on host %.63s (pid %u)", finder, place.host, place.pid);
    else
        put_rank(writer, finder);
}

static void put_address(struct writer *writer)
{
    const char *address = writer->verdict->address;

    if (address[0])
        put_value(writer, " at %.79s", address);
}

/* --- what they do --- */

static void put_message(struct writer *writer, const struct xccl_act *act)
{
    const char *what = act->kind == XCCL_ACT_SEND ? "send" : "receive";
    const char *way = act->kind == XCCL_ACT_SEND ? "to" : "from";

    if (act->bytes == XCCL_ACT_OTHER_BYTES)
        put_value(writer, "a %s of a different size %s rank %d", what, way, act->peer);
    else
        put_value(writer, "a %s of %llu bytes%s %s rank %d", what, (unsigned long long)act->bytes,
                  act->is_least ? " or more" : "", way, act->peer);
}

static void put_act(struct writer *writer, const struct xccl_act *act)
{
    char call[NAME_BYTES];

    switch (act->kind) {
    case XCCL_ACT_CALL:
        xccl_call_describe(&act->call, call, sizeof call);
        put_value(writer, "%s", call);
        return;
    case XCCL_ACT_OTHER_CALL:
        put_value(writer, "call %llu: a different call", (unsigned long long)act->call.seq);
        return;
    case XCCL_ACT_SPLIT:
        put_value(writer, "xcclCommSplit of this communicator");
        return;
    case XCCL_ACT_CONNECT:
        put_value(writer, "xcclCommConnectAll");
        return;
    case XCCL_ACT_SEND:
    case XCCL_ACT_RECV:
        put_message(writer, act);
        return;
    default:
        put_value(writer, "no call");
        return;
    }
}

static void put_mine(struct writer *writer)
{
    put_act(writer, &writer->verdict->mine);
}

static void put_theirs(struct writer *writer)
{
    put_act(writer, &writer->verdict->theirs);
}

static void put_mine_is(struct writer *writer)
{
    put_value(writer, writer->verdict->mine.is_past ? "was" : "is");
}

static void put_theirs_is(struct writer *writer)
{
    put_value(writer, writer->verdict->theirs.is_past ? "was" : "is");
}

static void put_mine_number(struct writer *writer)
{
    put_value(writer, "%llu", (unsigned long long)writer->verdict->mine.call.seq);
}

static void put_theirs_number(struct writer *writer)
{
    put_value(writer, "%llu", (unsigned long long)writer->verdict->theirs.call.seq);
}

static void put_mine_way(struct writer *writer)
{
    put_value(writer,
              writer->verdict->mine.kind == XCCL_ACT_SEND ? "to send to" : "to receive from");
}

/* --- evidence --- */

static void put_waited(struct writer *writer, const struct xccl_waited *waited)
{
    if (waited->why == XCCL_WAIT_SEND || waited->why == XCCL_WAIT_RECV)
        put_value(writer, "%s ", waited->why == XCCL_WAIT_SEND ? "to send to" : "to receive from");
    put_rank(writer, waited->rank);
    if (waited->why == XCCL_WAIT_BETWEEN)
        put_value(writer, " (between calls, its last was %u)", waited->call);
    else if (waited->why == XCCL_WAIT_OLDER)
        put_value(writer, " (in call %u)", waited->call);
    else if (waited->why == XCCL_WAIT_NOT_BEGUN)
        put_value(writer, " (has not begun it)");
    else if (waited->why == XCCL_WAIT_QUEUED)
        put_value(writer, " (its device has not begun the call, behind other work)");
    else if (waited->why == XCCL_WAIT_SAME)
        put_value(writer, " (in this call too)");
}

/* Names as many ranks as have room in full, and counts the others. */
static void put_waits(struct writer *writer)
{
    const struct xccl_verdict *verdict = writer->verdict;
    char text[VALUE_BYTES], more[32];
    size_t tail = sizeof " and 4294967295 more" - 1;
    struct writer list = *writer;
    uint32_t count = 0;

    list.text = text;
    list.used = 0;
    list.room = writer->room - writer->used < sizeof text ? writer->room - writer->used
                                                          : sizeof text - 1;
    for (; count < verdict->wait_count && count < XCCL_VERDICT_WAITS; count++) {
        size_t used = list.used;

        if (count)
            put(&list, ", ", 2);
        put_waited(&list, &verdict->waits[count]);
        if (count &&
            (list.is_cut || (count + 1 < verdict->wait_count && list.used + tail > list.room))) {
            list.used = used;
            break;
        }
    }
    put(writer, text, list.used);
    if (count < verdict->wait_count) {
        snprintf(more, sizeof more, " and %u more", verdict->wait_count - count);
        put(writer, more, strlen(more));
    }
    writer->is_cut |= list.is_cut && !list.used;
}

static void put_seconds(struct writer *writer)
{
    put_value(writer, "%llu", (unsigned long long)writer->verdict->seconds);
}

static void put_elements(struct writer *writer)
{
    put_value(writer, "%llu", (unsigned long long)writer->verdict->elements);
}

static void put_why(struct writer *writer)
{
    const char *why = writer->verdict->why;

    put_value(writer, "%s", why[0] ? why : "no reason is known");
}

static void put_plugin(struct writer *writer)
{
    put_value(writer, "%.63s", writer->verdict->plugin);
}

static void put_tuner(struct writer *writer)
{
    if (writer->verdict->plugin[0])
        put_value(writer, " (or tuner %.*s chose differently there)", TUNER_MAX,
                  writer->verdict->plugin);
}

/* --- templates --- */

static const struct {
    const char *word;
    void (*put)(struct writer *writer);
} words[] = {
    {"finder", put_finder},         {"finder#", put_finder_number},
    {"finder@", put_finder_place},  {"finder:", put_finder_on},
    {"culprit", put_culprit},       {"culprit#", put_culprit_number},
    {"address", put_address},       {"mine", put_mine},
    {"mine#", put_mine_number},     {"mine?", put_mine_is},
    {"mine>", put_mine_way},        {"theirs", put_theirs},
    {"theirs#", put_theirs_number}, {"theirs?", put_theirs_is},
    {"waits", put_waits},           {"seconds", put_seconds},
    {"elements", put_elements},     {"why", put_why},
    {"plugin", put_plugin},         {"tuner", put_tuner},
};

/* A word that is none stays as it stands, which a test of the table finds. */
static void put_word(struct writer *writer, const char *word, size_t bytes)
{
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strlen(words[i].word) == bytes && memcmp(words[i].word, word, bytes) == 0) {
            words[i].put(writer);
            return;
        }
    }
    put(writer, word - 1, bytes + 2);
}

static void put_template(struct writer *writer, const char *at)
{
    while (*at) {
        size_t plain = strcspn(at, "{"), bytes;

        put(writer, at, plain);
        at += plain;
        if (!*at)
            return;
        bytes = strcspn(at, "}");
        if (!at[bytes])
            return;
        put_word(writer, at + 1, bytes - 1);
        at += bytes + 1;
    }
}

/* A sentence that was cut: its end makes room for the mark, behind a whole character. */
static void mark_cut(struct writer *writer)
{
    size_t mark = strlen(CUT_MARK), used = writer->used;

    if (!writer->is_cut || writer->room < mark)
        return;
    if (used > writer->room - mark)
        used = writer->room - mark;
    while (used && (writer->text[used] & 0xc0) == 0x80)
        used--;
    memcpy(writer->text + used, CUT_MARK, mark + 1);
    writer->used = used + mark;
}

static struct writer writer_over(const struct xccl_verdict *verdict,
                                 const struct xccl_rank_places *places, char *text, size_t bytes)
{
    struct writer writer = {.text = text, .room = bytes - 1, .verdict = verdict, .places = places};

    text[0] = '\0';
    return writer;
}

size_t xccl_verdict_text(const struct xccl_verdict *verdict, const struct xccl_rank_places *places,
                         char *text_out, size_t bytes)
{
    const struct xccl_trouble_row *row = xccl_trouble_row(verdict->trouble);
    char remedy[REMEDY_BYTES];
    struct writer end = writer_over(verdict, places, remedy, sizeof remedy), writer;
    size_t tail = 0;

    if (!bytes)
        return 0;
    put_template(&end, row->remedy);
    if (end.used)
        tail = end.used + 2 < bytes / 2 ? end.used + 2 : bytes / 2; /* with "; " */
    writer = writer_over(verdict, places, text_out, bytes - tail);
    put_template(&writer, row->sentence);
    mark_cut(&writer);
    if (!tail)
        return 0;
    writer.room = bytes - 1;
    writer.is_cut = 0;
    put(&writer, "; ", 2);
    tail = writer.used;
    put(&writer, remedy, end.used);
    mark_cut(&writer);
    return writer.used > tail + strlen(CUT_MARK) ? tail : 0;
}

void xccl_verdict_wait(struct xccl_verdict *verdict, struct xccl_waited waited)
{
    if (verdict->wait_count < XCCL_VERDICT_WAITS)
        verdict->waits[verdict->wait_count] = waited;
    verdict->wait_count++;
}

void xccl_verdict_set_why(struct xccl_verdict *verdict, const char *text)
{
    snprintf(verdict->why, sizeof verdict->why, "%s", text);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The fields of all records by the words of the text and the JSON form, and what both need to
 * write them. A new field of a record is one line here. Thread: any. */
#include "schedule/text_int.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define AT(type, member)                                                                           \
    .offset = offsetof(struct type, member), .bytes = sizeof(((struct type *)0)->member)
#define NUMBER(name, type, member, least, most, usual)                                             \
    .word = (name), AT(type, member), .mask = 0xffff, .low = (least), .high = (most),              \
    .plain = (usual)
/* Some bits of a byte. */
#define BITS(name, type, member, most, up, usual)                                                  \
    .word = (name), AT(type, member), .mask = (most) << (up), .shift = (up), .high = (most),       \
    .plain = (usual)
#define CHOICE(name, type, member, bits, up, texts)                                                \
    .word = (name), AT(type, member), .kind = XCCL_FIELD_CHOICE, .mask = (bits), .shift = (up),    \
    .words = (texts), .nwords = COUNT(texts), .high = COUNT(texts) - 1
#define SET(name, type, member, bits, texts)                                                       \
    .word = (name), AT(type, member), .kind = XCCL_FIELD_SET, .mask = (bits), .high = (bits),      \
    .words = (texts), .nwords = COUNT(texts)
#define SIGNED .is_signed = 1

static const char *const op_words[] = {"src", "dst", "recv", "send", "acc", "xchg"};
static const char *const step_flag_words[] = {"pre", "post", "ordered",     "signal",
                                              NULL,  NULL,   "direct_send", "direct_recv"};
static const char *const schedule_flag_words[] = {"equal"};
static const char *const buffer_words[] = {"in", "out", "scratch", "zero"};
static const char *const order_words[] = {"tile_major", "step_major"};
static const char *const dir_words[] = {"send", "recv"};
static const char *const kind_words[] = {"fifo", "multicast"};

/* What a rank has as the head says, unless it says otherwise. */
#define OF_RANK_AND_HEAD                                                                           \
    {NUMBER("root", xccl_schedule, root, 0, 65534, 0), .flags = XCCL_FIELD_SHOWN},                 \
        {NUMBER("chunks", xccl_schedule, nchunks, 1, 65535, 0), .flags = XCCL_FIELD_SHOWN},        \
        {NUMBER("scratch", xccl_schedule, nscratch, 0, 65535, 0)},                                 \
        {NUMBER("scrbufs", xccl_schedule, scrbufs, 1, 65535, 1)},                                  \
        {NUMBER("minslots", xccl_schedule, minslots, 1, 65535, 1), .flags = XCCL_FIELD_SHOWN},     \
        {NUMBER("class", xccl_schedule, class, 0, 3, 0), .flags = XCCL_FIELD_SHOWN},               \
    {                                                                                              \
        SET("flags", xccl_schedule, flags, 0xffff, schedule_flag_words)                            \
    }

static const struct xccl_field of_head[] = {
    {NUMBER("ranks", xccl_schedule, nranks, 1, 65535, 0), .flags = XCCL_FIELD_NEEDED},
    OF_RANK_AND_HEAD};
const struct xccl_fields xccl_head_fields = {of_head, COUNT(of_head)};

static const struct xccl_field of_rank[] = {
    {NUMBER("rank", xccl_schedule, rank, 0, 65534, 0), .flags = XCCL_FIELD_NEEDED},
    OF_RANK_AND_HEAD};
const struct xccl_fields xccl_rank_fields = {of_rank, COUNT(of_rank)};

static const struct xccl_field of_lane[] = {
    {CHOICE("order", xccl_schedule_lane, order, 0xff, 0, order_words), .flags = XCCL_FIELD_SHOWN},
    {NUMBER("block", xccl_schedule_lane, block, 0, 255, 0)},
    {NUMBER("part", xccl_schedule_lane, part, 0, 254, 0)},
    {NUMBER("parts", xccl_schedule_lane, nparts, 1, 255, 1)},
};
const struct xccl_fields xccl_lane_fields = {of_lane, COUNT(of_lane)};

static const struct xccl_field of_conn[] = {
    {CHOICE("dir", xccl_schedule_conn, dir, 0xff, 0, dir_words), .flags = XCCL_FIELD_NEEDED},
    {CHOICE("kind", xccl_schedule_conn, kind, 0xff, 0, kind_words), .flags = XCCL_FIELD_SHOWN},
    {NUMBER("peer", xccl_schedule_conn, peer, 0, 65534, 0), .flags = XCCL_FIELD_NEEDED},
    {NUMBER("id", xccl_schedule_conn, id, 0, 65535, 0)},
    {NUMBER("group", xccl_schedule_conn, group, 0, 65535, 0), .flags = XCCL_FIELD_NEEDED},
};
const struct xccl_fields xccl_conn_fields = {of_conn, COUNT(of_conn)};

static const struct xccl_field of_wait[] = {
    {NUMBER("lane", xccl_schedule_wait, lane, 0, 255, 0), .flags = XCCL_FIELD_NEEDED},
    {NUMBER("sig", xccl_schedule_wait, sig, 0, 65535, 0), .flags = XCCL_FIELD_NEEDED},
    {NUMBER("dist", xccl_schedule_wait, dist, 0, 255, 0), .flags = XCCL_FIELD_SHOWN},
};
const struct xccl_fields xccl_wait_fields = {of_wait, COUNT(of_wait)};

static const struct xccl_field of_step[] = {
    [XCCL_STEP_OP_FIELD] = {SET("op", xccl_step, op, 0xff, op_words), .flags = XCCL_FIELD_NEEDED},
    [XCCL_STEP_FLAGS_FIELD] = {SET("flags", xccl_step, flags, 0xcf, step_flag_words)},
    {CHOICE("src_buffer", xccl_step, bufs, 3, 0, buffer_words)},
    {BITS("src_list", xccl_step, bufs, 1, 4, 0)},
    {NUMBER("src", xccl_step, src, 0, 65535, 0)},
    {CHOICE("dst_buffer", xccl_step, bufs, 12, 2, buffer_words)},
    {BITS("dst_list", xccl_step, bufs, 1, 5, 0)},
    {NUMBER("dst", xccl_step, dst, 0, 65535, 0)},
    {BITS("nrecv", xccl_step, fan, 15, 0, 0)},
    {NUMBER("rconn", xccl_step, rconn, 0, 65535, 0)},
    {BITS("nsend", xccl_step, fan, 15, 4, 0)},
    {NUMBER("sconn", xccl_step, sconn, 0, 65535, 0)},
    {BITS("nwaits", xccl_step, flags, 3, 4, 0)},
    {NUMBER("wait", xccl_step, wait, 0, 65535, 0)},
    /* From here on text has them as they are. */
    {NUMBER("cnt", xccl_step, cnt, 1, 65535, 1)},
    {NUMBER("cstride", xccl_step, cstride, -32768, 32767, 0), SIGNED},
    {NUMBER("run", xccl_step, run, 1, 65535, 1)},
    {NUMBER("rep", xccl_step, rep, 1, 65535, 1)},
    {NUMBER("dsrc", xccl_step, dsrc, -32768, 32767, 0), SIGNED},
    {NUMBER("ddst", xccl_step, ddst, -32768, 32767, 0), SIGNED},
    {NUMBER("dconn", xccl_step, dconn, -32768, 32767, 0), SIGNED},
    {NUMBER("sig", xccl_step, sig, 0, 65535, 0)},
    {BITS("bufs_rest", xccl_step, bufs, 3, 6, 0), .flags = XCCL_FIELD_RARE},
    {NUMBER("reserved", xccl_step, reserved, 0, 65535, 0), .flags = XCCL_FIELD_RARE},
};
enum { STEP_NUMBERS = 10 };
const struct xccl_fields xccl_step_fields = {of_step, COUNT(of_step)};
const struct xccl_fields xccl_step_number_fields = {of_step + COUNT(of_step) - STEP_NUMBERS,
                                                    STEP_NUMBERS};

static_assert(offsetof(struct xccl_schedule, nlist) < 256, "offsets of fields have 8 bits");

/* ---- values ---- */

int32_t xccl_field_get(const struct xccl_field *field, const void *record)
{
    const char *at = (const char *)record + field->offset;
    uint8_t byte;
    uint16_t raw;

    if (field->bytes == 1) {
        memcpy(&byte, at, 1);
        raw = byte;
    } else {
        memcpy(&raw, at, 2);
    }
    return field->is_signed ? (int16_t)raw : (raw & field->mask) >> field->shift;
}

void xccl_field_set(const struct xccl_field *field, void *record, int32_t value)
{
    char *at = (char *)record + field->offset;
    uint16_t raw = 0;
    uint8_t byte;

    memcpy(&byte, at, 1);
    if (field->bytes == 1)
        raw = byte;
    else
        memcpy(&raw, at, 2);
    raw = (uint16_t)((raw & ~field->mask) | ((uint32_t)value << field->shift & field->mask));
    byte = (uint8_t)raw;
    memcpy(at, field->bytes == 1 ? (const void *)&byte : (const void *)&raw, field->bytes);
}

int32_t xccl_field_rest(const struct xccl_field *field, int32_t value)
{
    for (int i = 0; i < field->nwords; i++)
        if (field->words[i])
            value &= ~((int32_t)1 << i);
    return value;
}

int xccl_field_word(const struct xccl_field *field, const char *word, size_t bytes)
{
    for (int i = 0; i < field->nwords; i++)
        if (field->words[i] && strlen(field->words[i]) == bytes &&
            memcmp(field->words[i], word, bytes) == 0)
            return i;
    return -1;
}

/* ---- writing ---- */

int xccl_text_fits(struct xccl_schedule *const *schedules, int nranks)
{
    const char *name = nranks > 0 ? schedules[0]->name : NULL;

    if (!name || strlen(name) > XCCL_TEXT_NAME_MAX || schedules[0]->coll >= XCCL_COLL_SEND_RECV)
        return 0;
    for (const char *at = name; *at; at++)
        if (*at < ' ' || *at > '~')
            return 0;
    for (int i = 1; i < nranks; i++)
        if (strcmp(schedules[i]->name, name) != 0 || schedules[i]->coll != schedules[0]->coll ||
            schedules[i]->nranks != schedules[0]->nranks)
            return 0;
    return 1;
}

void xccl_text_put(struct xccl_text_out *out, const char *fmt, ...)
{
    va_list args;

    if (out->error)
        return;
    va_start(args, fmt);
    errno = 0;
    if (vfprintf(out->file, fmt, args) < 0)
        out->error = errno ? errno : EIO;
    va_end(args);
}

void xccl_text_put_quoted(struct xccl_text_out *out, const char *text)
{
    xccl_text_put(out, "\"");
    for (; *text; text++)
        xccl_text_put(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    xccl_text_put(out, "\"");
}

int xccl_text_put_end(struct xccl_text_out *out)
{
    if (!out->error && fflush(out->file))
        out->error = errno;
    if (!out->error)
        return 0;
    errno = out->error;
    return -1;
}

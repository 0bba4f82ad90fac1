/* SPDX-License-Identifier: BSD-3-Clause */
/* What the text form and the JSON form share: which fields records have and by which words they
 * are called (tables of struct xccl_field), and the draft, which collects what a reader finds and
 * makes checked schedules of it. A form brings only its grammar. Thread: a draft belongs to one. */
#ifndef XCCL_SCHEDULE_TEXT_INT_H
#define XCCL_SCHEDULE_TEXT_INT_H

#include "schedule/text.h"

#define XCCL_TEXT_NAME_MAX 127 /* bytes of an algorithm's name; from space to ~ */

/* NUMBER: written in decimal. CHOICE: one of words, by value. SET: words by bit; bits that have
 * none are written as one number. */
enum xccl_field_kind { XCCL_FIELD_NUMBER, XCCL_FIELD_CHOICE, XCCL_FIELD_SET };

/* NEEDED: has no plain value, so it is always written and must be given. SHOWN: always written,
 * may be left out. RARE: is in JSON only when not plain, as in text every other field is. */
#define XCCL_FIELD_NEEDED 1
#define XCCL_FIELD_SHOWN  2
#define XCCL_FIELD_RARE   4

/* One value of a record: bits `mask`, `shift` up, of the 8 or 16 bit integer at offset. */
struct xccl_field {
    const char *word;
    const char *const *words; /* nwords of them; NULL in a set: a bit without a word */
    uint8_t kind, nwords, flags;
    uint8_t offset, bytes, is_signed, shift;
    uint16_t mask;
    int32_t low, high, plain;
};

int32_t xccl_field_get(const struct xccl_field *field, const void *record);
void xccl_field_set(const struct xccl_field *field, void *record, int32_t value);
/* Bits of a set that have no word. */
int32_t xccl_field_rest(const struct xccl_field *field, int32_t value);
/* The value of a choice's word or the bit's number of a set's word; -1: it has no such word. */
int xccl_field_word(const struct xccl_field *field, const char *word, size_t bytes);

struct xccl_fields {
    const struct xccl_field *field;
    int count;
};

/* Of struct xccl_schedule. The head of all has, first, the number of ranks and then what may differ
 * between ranks; a rank has, first, its own number and then the same. */
extern const struct xccl_fields xccl_head_fields, xccl_rank_fields;
extern const struct xccl_fields xccl_lane_fields, xccl_conn_fields, xccl_wait_fields;
/* All of a step, and those of them that text writes as "word number". The first two are op and
 * flags. */
extern const struct xccl_fields xccl_step_fields, xccl_step_number_fields;
enum { XCCL_STEP_OP_FIELD, XCCL_STEP_FLAGS_FIELD, XCCL_STEP_SRC_BUFFER_FIELD };

/* 1 when the schedules can be written as one text: the same name, collective and number of ranks,
 * and a name that can be read back. */
int xccl_text_fits(struct xccl_schedule *const *schedules, int nranks);

/* fprintf with the first error kept, so that not every call must be looked at. */
struct xccl_text_out {
    FILE *file;
    int error;
};
void xccl_text_put(struct xccl_text_out *out, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* With quotes, and \ before " and \. */
void xccl_text_put_quoted(struct xccl_text_out *out, const char *text);
/* Flushes; 0, or -1 with errno. */
int xccl_text_put_end(struct xccl_text_out *out);

/* A table of a draft, with room for more. */
struct xccl_draft_table {
    void *entries;
    uint32_t used, room, entry_bytes;
    const char *what; /* "steps" */
};

enum xccl_draft_part { /* tables of a rank */
                       XCCL_DRAFT_STEPS,
                       XCCL_DRAFT_CONNS,
                       XCCL_DRAFT_LANES,
                       XCCL_DRAFT_WAITS,
                       XCCL_DRAFT_LIST,
                       XCCL_DRAFT_PARTS
};

/* Schedules as they are read. The reader keeps line. head: what all ranks have unless they say
 * otherwise; rank: of the rank in the making. */
struct xccl_draft {
    const char *where;
    size_t line, rank_line;
    int has_head, in_rank, nread;
    struct xccl_schedule head, rank;
    struct xccl_draft_table tables[XCCL_DRAFT_PARTS];
    struct xccl_schedule_set set;
    uint64_t bytes, work; /* of all ranks, to be bounded */
};

void xccl_draft_begin(struct xccl_draft *draft, const char *where);
/* Frees what is left, after success too. */
void xccl_draft_fini(struct xccl_draft *draft);

/* "WHERE:LINE: ..."; xcclInvalidArgument. */
xcclResult_t xccl_draft_fail(const struct xccl_draft *draft, const char *todo, const char *fmt, ...)
    __attribute__((format(printf, 3, 4), cold));

/* What an error shows of a word of the input, which may be long and may hold anything. */
#define XCCL_SHOWN_BYTES 48
const char *xccl_draft_shown(const char *word, size_t bytes, char shown_out[XCCL_SHOWN_BYTES]);

/* Fails when the value is out of the field's range; sets it otherwise. */
xcclResult_t xccl_draft_number(const struct xccl_draft *draft, const struct xccl_field *field,
                               int64_t value, void *record);
/* Fields that are NEEDED and not among the bits of seen, by their places in fields. */
xcclResult_t xccl_draft_needed(const struct xccl_draft *draft, const struct xccl_fields *fields,
                               uint32_t seen, const char *record_name);
void xccl_draft_plain(const struct xccl_fields *fields, void *record);

xcclResult_t xccl_draft_name(struct xccl_draft *draft, const char *name, size_t bytes);
xcclResult_t xccl_draft_coll(struct xccl_draft *draft, const char *word, size_t bytes);
/* head is filled. */
xcclResult_t xccl_draft_head_end(struct xccl_draft *draft);
/* Begins a rank with the values of head. */
xcclResult_t xccl_draft_rank(struct xccl_draft *draft);
xcclResult_t xccl_draft_rank_end(struct xccl_draft *draft);
/* A new entry of a table, plain; good until the next one of the same table. Connections and steps
 * belong to the last lane. */
xcclResult_t xccl_draft_add(struct xccl_draft *draft, enum xccl_draft_part part, void **entry_out);
/* The end of the input; the set is the caller's. */
xcclResult_t xccl_draft_end(struct xccl_draft *draft, struct xccl_schedule_set *set_out);

#endif

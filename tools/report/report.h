/* SPDX-License-Identifier: BSD-3-Clause */
/* Between the files of `xccl report`: records are found and read by report_collect.c, said in words
 * by report_text.c, and shown by report_table.c or report_json.c.
 *
 * Thread: the program's main thread. */
#ifndef XCCL_TOOLS_REPORT_REPORT_H
#define XCCL_TOOLS_REPORT_REPORT_H

#include "record/record_folder.h"
#include "record/record_read.h"

#define XCCL_REPORT_TEXT 512

/* What is asked for. */
struct xccl_report_options {
    const char *target; /* a process id or a file; NULL: all of this user's */
    uint64_t interval_ms; /* 0: once, without rates */
    int64_t count; /* of reports, 0: until nothing runs any more */
    uint32_t events; /* of each communicator that are shown */
    int json;
};

/* One file. */
struct xccl_report_record {
    char path[2 * XCCL_RECORD_PATH_BYTES];
    struct xccl_record_view view;
};

struct xccl_report {
    struct xccl_report_record *records;
    uint32_t count, room;
    int failed; /* files that could not be read, as was told */
    int old; /* dead processes' files, written by other versions; they are left out */
    uint64_t mono_ns; /* when it was made */
};

/* --- report_collect.c --- */

/* Reads what target names. keep: events of each communicator. 0: there is no memory, as was told.
 */
int xccl_report_collect(const char *target, uint32_t keep, struct xccl_report *report_out);
void xccl_report_free(struct xccl_report *report); /* a zeroed one is fine */
/* Finds a communicator in an earlier report; NULL: it was not there. */
const struct xccl_record_comm *xccl_report_earlier(const struct xccl_report *earlier,
                                                   const struct xccl_report_record *record,
                                                   const struct xccl_record_comm *comm);

/* --- report_text.c --- */

/* Names of rows: all_reduce, send. */
const char *xccl_report_row_name(uint32_t row);
/* 1: the row has counted something. */
int xccl_report_is_used(const struct xccl_record_counts *counts);
/* Of a call's word: its parts, each within its bounds. type and op "": it has none. */
struct xccl_report_call {
    uint32_t seq, root;
    int sized, is_p2p, is_rooted;
    const char *name, *type, *op;
};
struct xccl_report_call xccl_report_call_of(uint64_t word);
/* "call 17, all_reduce of 4096 float32, sum"; "a group of 4 sends and receives". */
void xccl_report_call_text(uint64_t word, uint64_t count, char *text_out, size_t bytes);
/* One word: joining, ready, calling, failed, left, gone (its process ended otherwise). */
const char *xccl_report_state(const struct xccl_report_record *record,
                              const struct xccl_record_comm *comm);
/* The state in words: "in call 17, all_reduce of 4096 float32, sum, since 3.2 s". */
void xccl_report_state_text(const struct xccl_report_record *record,
                            const struct xccl_record_comm *comm, char *text_out, size_t bytes);
/* How long it has been in its call, or was before its last sign of life. NAN: unknown. */
double xccl_report_call_seconds(const struct xccl_report_record *record,
                                const struct xccl_record_comm *comm);
/* "issued", "done". */
const char *xccl_report_kind_name(enum xccl_record_kind kind);
/* One word for programs: ipc, pinned. */
const char *xccl_report_way_name(enum xccl_record_way_kind kind);
/* "to 1-3, from 1-3: pinned host memory, since ...". */
void xccl_report_way_text(const struct xccl_record_path *way, char *text_out, size_t bytes);
/* "call 17, all_reduce of 4096 float32, sum: done". */
void xccl_report_event_text(const struct xccl_record_seen *event, char *text_out, size_t bytes);
/* "1.50 MiB". */
void xccl_report_bytes_text(double bytes, char *text_out, size_t room);
/* A copy without control characters: what a file says goes to a terminal. */
void xccl_report_clean(const char *text, char *text_out, size_t bytes);
/* 16 bytes as 32 digits. */
void xccl_report_id_text(const uint8_t *id, char text_out[33]);

/* --- how it is shown; earlier NULL: without rates --- */

void xccl_report_table(const struct xccl_report *report, const struct xccl_report *earlier,
                       const struct xccl_report_options *options);
void xccl_report_json(const struct xccl_report *report, const struct xccl_report *earlier,
                      const struct xccl_report_options *options);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads record files of other processes, live or dead. A file is hostile input: whatever its bytes
 * are, reading ends, stays inside of them, and tells what is wrong. Of a live process a block is
 * copied twice; an event that was written meanwhile is left out. Thread: any. */
#ifndef XCCL_RECORD_RECORD_READ_H
#define XCCL_RECORD_RECORD_READ_H

#include "record/record_layout.h"
#include "xccl_types.h"

/* What the first page says. */
struct xccl_record_info {
    uint32_t pid, uid, events, block_bytes, blocks, clock;
    uint64_t boot_hash;
    struct xccl_record_mark first, last; /* last.tick is first.tick: there is only one */
    double ns_per_tick; /* 0: not known, so that no time can be told */
    char host[XCCL_RECORD_NAME_BYTES], program[XCCL_RECORD_NAME_BYTES], writer[16];
};

struct xccl_record_counts {
    uint64_t issued_calls, issued_bytes, done_calls, done_bytes;
    uint64_t sent_near, sent_far, received_near, received_far;
};

struct xccl_record_path {
    enum xccl_record_way_kind kind;
    char to[XCCL_RECORD_ENDS_BYTES], from[XCCL_RECORD_ENDS_BYTES], why[XCCL_RECORD_WHY_BYTES];
};

struct xccl_record_seen {
    uint64_t number, tick, value, call;
    enum xccl_record_kind kind;
};

/* One communicator. Times are ticks; 0: not known. */
struct xccl_record_comm {
    enum xccl_record_state state;
    uint32_t phase, rank, nranks, near_ranks, error;
    uint8_t id[16];
    char name[XCCL_RECORD_NAME_BYTES], phase_name[24], error_text[XCCL_RECORD_TEXT_BYTES];
    char labels[XCCL_RECORD_LABEL_BYTES], cards[XCCL_RECORD_CARDS_BYTES];
    char order[XCCL_RECORD_ORDER_BYTES];
    struct xccl_record_algo algos[XCCL_RECORD_ROWS][XCCL_RECORD_ALGOS];
    /* The error's verdict. kind "": not known; ranks: -1: none; remedy_at: in error_text, 0: not
     * known. */
    char error_kind[XCCL_RECORD_KIND_BYTES];
    int32_t culprit, finder;
    uint32_t remedy_at;
    uint64_t join_tick, error_tick, failed_calls;
    uint64_t current, current_count, current_tick; /* current 0: between calls */
    uint64_t last_tick; /* of the newest sign of life */
    struct xccl_record_counts rows[XCCL_RECORD_ROWS];
    struct xccl_record_path ways[XCCL_RECORD_WAYS];
    uint32_t way_count;
    struct xccl_record_seen *events; /* in their order */
    uint32_t event_count;
};

/* A whole file. */
struct xccl_record_view {
    struct xccl_record_info info;
    int live; /* 1: its process holds it */
    uint32_t
        other_version; /* of the file, which cannot be read for that reason; 0: it is another */
    struct xccl_record_mark now; /* when it was read; all 0: the clock cannot be asked any more */
    struct xccl_record_comm *comms; /* none that is free */
    uint32_t count;
};

/* Reads a file. keep: the last events of each communicator, at most so many; 0 also leaves
 * last_tick to what the call at work tells. Errors: xcclSystemError, xcclInvalidArgument when it is
 * no record, with text and without a log line; view_out has only live and other_version then. */
xcclResult_t xccl_record_read(int folder_fd, const char *name, uint32_t keep,
                              struct xccl_record_view *view_out);
void xccl_record_view_free(struct xccl_record_view *view); /* a zeroed one is fine */

/* Seconds between two ticks, later less earlier; a negative number when it is not. NAN: unknown. */
double xccl_record_seconds(const struct xccl_record_info *info, uint64_t earlier, uint64_t later);
/* Seconds since 1970; NAN: unknown. */
double xccl_record_real_time(const struct xccl_record_info *info, uint64_t tick);

/* --- the pure halves --- */

xcclResult_t xccl_record_parse_head(const void *page, size_t bytes,
                                    struct xccl_record_info *info_out);
/* Two copies of a block, or as much of its beginning as there is: sizeof(struct xccl_record_block)
 * at least. Events are taken from what is behind it, and given to the caller, who frees them by
 * xccl_free. */
xcclResult_t xccl_record_parse_block(const struct xccl_record_info *info, const void *older,
                                     const void *newer, size_t bytes, uint32_t keep,
                                     struct xccl_record_comm *comm_out);

#endif

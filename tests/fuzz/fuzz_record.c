/* SPDX-License-Identifier: BSD-3-Clause */
/* A record file with anything in it: a head and the beginning of one block, read, and said in the
 * words of `xccl report`. What comes out keeps within the bounds that its readers count with.
 * Thread: one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "report/report.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void say_all(const struct xccl_report_record *record, const struct xccl_record_comm *comm)
{
    char text[XCCL_REPORT_TEXT];
    double seconds;

    xccl_report_state_text(record, comm, text, sizeof text);
    if (strlen(text) == 0 || strlen(text) >= sizeof text || !*xccl_report_state(record, comm))
        abort();
    seconds = xccl_report_call_seconds(record, comm);
    if (seconds < 0)
        abort();
    for (uint32_t i = 0; i < comm->event_count; i++) {
        xccl_report_event_text(&comm->events[i], text, sizeof text);
        if (i && comm->events[i].number <= comm->events[i - 1].number)
            abort();
        (void)xccl_record_real_time(&record->view.info, comm->events[i].tick);
    }
    for (uint32_t i = 0; i < XCCL_RECORD_ROWS; i++) {
        xccl_report_bytes_text((double)comm->rows[i].done_bytes, text, sizeof text);
        if (!*xccl_report_row_name(i))
            abort();
        for (uint32_t k = 0; k < XCCL_RECORD_ALGOS; k++)
            if (strlen(comm->algos[i][k].name) >= sizeof comm->algos[i][k].name)
                abort();
    }
    if (comm->way_count > XCCL_RECORD_WAYS)
        abort();
    for (uint32_t i = 0; i < comm->way_count; i++) {
        xccl_report_way_text(&comm->ways[i], text, sizeof text);
        if (strlen(text) == 0 || strlen(text) >= sizeof text ||
            !*xccl_report_way_name(comm->ways[i].kind) ||
            strlen(comm->ways[i].to) >= sizeof comm->ways[i].to ||
            strlen(comm->ways[i].from) >= sizeof comm->ways[i].from ||
            strlen(comm->ways[i].why) >= sizeof comm->ways[i].why)
            abort();
    }
    xccl_report_clean(comm->error_text, text, sizeof text);
    if (strlen(comm->error_text) >= sizeof comm->error_text ||
        strlen(comm->error_kind) >= sizeof comm->error_kind ||
        (comm->remedy_at && comm->remedy_at >= strlen(comm->error_text)) ||
        (comm->culprit >= 0 && (uint32_t)comm->culprit >= comm->nranks) ||
        (comm->finder >= 0 && (uint32_t)comm->finder >= comm->nranks) ||
        strlen(comm->order) >= sizeof comm->order || strlen(comm->name) >= sizeof comm->name ||
        strlen(comm->labels) >= sizeof comm->labels)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t head_bytes = sizeof(struct xccl_record_head);
    struct xccl_report_record record = {.view = {.live = (int)(size & 1)}};
    struct xccl_record_comm comm;
    size_t bytes = size > head_bytes ? size - head_bytes : 0;
    uint8_t *block;

    if (xccl_record_parse_head(data, size, &record.view.info))
        return 0;
    if (record.view.info.blocks > XCCL_RECORD_BLOCKS_MAX)
        abort();
    /* Of just this size, and aligned as a block is. */
    block = xccl_calloc_aligned(64, bytes ? bytes : 1);
    if (!block)
        return 0;
    if (bytes)
        memcpy(block, data + head_bytes, bytes);
    record.view.now = record.view.info.last;
    if (xccl_record_parse_block(&record.view.info, block, block, bytes, 20, &comm) == xcclSuccess) {
        if (comm.event_count > 20)
            abort();
        say_all(&record, &comm);
        xccl_free(comm.events);
    }
    xccl_free(block);
    return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Records as JSON, one object a line (schema/report.schema.json). Texts may be hostile; json_text.c
 * makes them JSON.
 *
 * Thread: the program's main thread. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "json_text.h"
#include "report/report.h"
#include "xccl.h"

static void put_text(const char *name, const char *text)
{
    printf("\"%s\": ", name);
    xccl_json_text(stdout, text);
}

static void put_text_or_null(const char *name, const char *text)
{
    printf("\"%s\": ", name);
    xccl_json_text_or_null(stdout, text);
}

static void put_number(const char *name, double value)
{
    printf("\"%s\": ", name);
    xccl_json_number(stdout, value, 6);
}

static void put_counts(const struct xccl_record_counts *counts)
{
    printf("\"issued_calls\": %llu, \"done_calls\": %llu, \"issued_bytes\": %llu, "
           "\"done_bytes\": %llu, \"sent_near\": %llu, \"sent_far\": %llu, "
           "\"received_near\": %llu, \"received_far\": %llu",
           (unsigned long long)counts->issued_calls, (unsigned long long)counts->done_calls,
           (unsigned long long)counts->issued_bytes, (unsigned long long)counts->done_bytes,
           (unsigned long long)counts->sent_near, (unsigned long long)counts->sent_far,
           (unsigned long long)counts->received_near, (unsigned long long)counts->received_far);
}

static void put_rate(const char *name, uint64_t now, uint64_t before, double seconds, int more)
{
    put_number(name, now >= before && seconds > 0 ? (double)(now - before) / seconds : 0);
    printf("%s", more ? ", " : "");
}

static void put_rates(const struct xccl_record_counts *now, const struct xccl_record_counts *before,
                      double seconds)
{
    printf(", \"per_second\": {");
    put_rate("issued_calls", now->issued_calls, before->issued_calls, seconds, 1);
    put_rate("done_calls", now->done_calls, before->done_calls, seconds, 1);
    put_rate("issued_bytes", now->issued_bytes, before->issued_bytes, seconds, 1);
    put_rate("done_bytes", now->done_bytes, before->done_bytes, seconds, 1);
    put_rate("sent_near", now->sent_near, before->sent_near, seconds, 1);
    put_rate("sent_far", now->sent_far, before->sent_far, seconds, 1);
    put_rate("received_near", now->received_near, before->received_near, seconds, 1);
    put_rate("received_far", now->received_far, before->received_far, seconds, 0);
    putchar('}');
}

static void put_algos(const struct xccl_record_algo *algos)
{
    printf("\"algorithms\": [");
    for (uint32_t i = 0; i < XCCL_RECORD_ALGOS && algos[i].name[0]; i++) {
        printf("%s{", i ? ", " : "");
        put_text("name", algos[i].name);
        printf(", \"min_bytes\": %llu, \"max_bytes\": %llu}", (unsigned long long)algos[i].least,
               (unsigned long long)algos[i].most);
    }
    putchar(']');
}

static void put_rows(const struct xccl_record_comm *comm, const struct xccl_record_comm *old,
                     double seconds)
{
    const char *comma = "";

    printf("\"collectives\": [");
    for (uint32_t row = 0; row < XCCL_RECORD_ROWS; row++) {
        if (!xccl_report_is_used(&comm->rows[row]))
            continue;
        printf("%s{", comma);
        put_text("name", xccl_report_row_name(row));
        printf(", ");
        put_algos(comm->algos[row]);
        printf(", ");
        put_counts(&comm->rows[row]);
        if (old)
            put_rates(&comm->rows[row], &old->rows[row], seconds);
        putchar('}');
        comma = ", ";
    }
    putchar(']');
}

/* Members of a call's object, without its braces. */
static void put_call(uint64_t word, uint64_t count)
{
    struct xccl_report_call call = xccl_report_call_of(word);

    put_text("name", call.name);
    printf(", \"number\": ");
    if (call.is_p2p)
        printf("null");
    else
        printf("%u", call.seq);
    printf(", \"count\": %llu, \"sized\": %s, ", (unsigned long long)count,
           call.sized ? "true" : "false");
    put_text_or_null("type", call.type);
    printf(", ");
    put_text_or_null("operator", call.op);
    printf(", \"root\": ");
    if (call.is_rooted)
        printf("%u", call.root);
    else
        printf("null");
}

static void put_current(const struct xccl_report_record *record,
                        const struct xccl_record_comm *comm)
{
    printf("\"call\": ");
    if (!comm->current) {
        printf("null");
        return;
    }
    putchar('{');
    put_call(comm->current, comm->current_count);
    printf(", ");
    put_number("seconds", xccl_report_call_seconds(record, comm));
    putchar('}');
}

static void put_rank_or_null(const char *name, int32_t rank)
{
    if (rank < 0)
        printf("\"%s\": null, ", name);
    else
        printf("\"%s\": %d, ", name, rank);
}

static void put_error(const struct xccl_report_record *record, const struct xccl_record_comm *comm)
{
    printf("\"error\": ");
    if (!comm->error) {
        printf("null");
        return;
    }
    printf("{\"result\": %u, ", comm->error);
    put_text("text", comm->error_text);
    printf(", ");
    put_text_or_null("kind", comm->error_kind);
    printf(", ");
    put_rank_or_null("culprit", comm->culprit);
    put_rank_or_null("finder", comm->finder);
    put_text_or_null("remedy", comm->remedy_at ? comm->error_text + comm->remedy_at : NULL);
    printf(", ");
    put_number("time", xccl_record_real_time(&record->view.info, comm->error_tick));
    putchar('}');
}

static void put_event(const struct xccl_record_info *info, const struct xccl_record_seen *event)
{
    char text[XCCL_REPORT_TEXT];

    xccl_report_event_text(event, text, sizeof text);
    printf("{\"number\": %llu, ", (unsigned long long)event->number);
    put_text("kind", xccl_report_kind_name(event->kind));
    printf(", ");
    put_number("time", event->tick ? xccl_record_real_time(info, event->tick) : NAN);
    printf(", \"value\": %llu, \"call\": ", (unsigned long long)event->value);
    if (event->call & XCCL_RECORD_CALL) {
        struct xccl_report_call call = xccl_report_call_of(event->call);

        printf("{");
        put_text("name", call.name);
        if (call.is_p2p)
            printf(", \"number\": null}");
        else
            printf(", \"number\": %u}", call.seq);
    } else {
        printf("null");
    }
    printf(", ");
    put_text("text", text);
    putchar('}');
}

/* Those between commas, one by one. */
static void put_labels(const char *labels)
{
    const char *at = labels;

    printf("\"labels\": [");
    while (*at) {
        char label[XCCL_RECORD_LABEL_BYTES];
        size_t bytes = strcspn(at, ",");

        snprintf(label, sizeof label, "%.*s", (int)bytes, at);
        printf("%s", at == labels ? "" : ", ");
        xccl_json_text(stdout, label);
        at += bytes + (at[bytes] == ',');
    }
    putchar(']');
}

static void put_ways(const struct xccl_record_comm *comm)
{
    printf("\"ways\": [");
    for (uint32_t i = 0; i < comm->way_count; i++) {
        printf("%s{", i ? ", " : "");
        put_text("way", xccl_report_way_name(comm->ways[i].kind));
        printf(", ");
        put_text("to", comm->ways[i].to);
        printf(", ");
        put_text("from", comm->ways[i].from);
        printf(", ");
        put_text_or_null("why", comm->ways[i].why);
        putchar('}');
    }
    putchar(']');
}

static void put_comm(const struct xccl_report_record *record, const struct xccl_record_comm *comm,
                     const struct xccl_report *earlier, double seconds, int events)
{
    const struct xccl_record_comm *old = xccl_report_earlier(earlier, record, comm);
    char id[33];

    xccl_report_id_text(comm->id, id);
    printf("{\"id\": \"%s\", ", id);
    put_text_or_null("name", comm->name);
    printf(", ");
    put_labels(comm->labels);
    printf(", ");
    put_text_or_null("cards", comm->cards);
    printf(", ");
    put_text_or_null("order", comm->order);
    printf(", \"rank\": %u, \"nranks\": %u, \"near_ranks\": %u, \"state\": \"%s\", ", comm->rank,
           comm->nranks, comm->near_ranks, xccl_report_state(record, comm));
    put_text_or_null("phase", comm->state == XCCL_RECORD_JOINING ? comm->phase_name : NULL);
    printf(", \"failed_calls\": %llu, ", (unsigned long long)comm->failed_calls);
    put_error(record, comm);
    printf(", ");
    put_current(record, comm);
    printf(", ");
    put_number("last_time", xccl_record_real_time(&record->view.info, comm->last_tick));
    printf(", ");
    put_rows(comm, old, seconds);
    printf(", ");
    put_ways(comm);
    for (uint32_t i = 0; events && i < comm->event_count; i++) {
        printf("%s", i ? ", " : ", \"events\": [");
        put_event(&record->view.info, &comm->events[i]);
    }
    printf("%s}", events && comm->event_count ? "]" : events ? ", \"events\": []" : "");
}

static void put_record(const struct xccl_report_record *record, const struct xccl_report *earlier,
                       double seconds, int events)
{
    const struct xccl_record_view *view = &record->view;

    putchar('{');
    put_text("file", record->path);
    printf(", \"pid\": %u, \"live\": %s, ", view->info.pid, view->live ? "true" : "false");
    put_text("host", view->info.host);
    printf(", ");
    put_text("program", view->info.program);
    printf(", ");
    put_text("xccl_version", view->info.writer);
    printf(", \"clock\": \"%s\", ", view->info.clock == XCCL_RECORD_TSC ? "tsc" : "monotonic");
    put_number("start", (double)view->info.first.real_ns / 1e9);
    printf(", \"communicators\": [");
    for (uint32_t i = 0; i < view->count; i++) {
        printf("%s", i ? ", " : "");
        put_comm(record, &view->comms[i], earlier, seconds, events);
    }
    printf("]}");
}

void xccl_report_json(const struct xccl_report *report, const struct xccl_report *earlier,
                      const struct xccl_report_options *options)
{
    double seconds = earlier ? (double)(report->mono_ns - earlier->mono_ns) / 1e9 : NAN;
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    printf("{\"xccl_version\": \"%d.%d.%d\", ", XCCL_MAJOR, XCCL_MINOR, XCCL_PATCH);
    put_number("time", (double)now.tv_sec + (double)now.tv_nsec / 1e9);
    printf(", ");
    put_number("interval_s", seconds);
    printf(", \"records\": [");
    for (uint32_t i = 0; i < report->count; i++) {
        printf("%s", i ? ", " : "");
        put_record(&report->records[i], earlier, seconds, options->events != 0);
    }
    printf("]}\n");
}

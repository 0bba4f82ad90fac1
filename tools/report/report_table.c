/* SPDX-License-Identifier: BSD-3-Clause */
/* Records as tables for people: ranks of one communicator side by side, what each is doing, then
 * their counters collective by collective, so that a rank that is behind stands out.
 *
 * Thread: the program's main thread. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "report/report.h"

/* One rank of a communicator. */
struct member {
    const struct xccl_report_record *record;
    const struct xccl_record_comm *comm;
};

/* By communicator, then rank. */
static int compare(const void *a, const void *b)
{
    const struct member *left = a, *right = b;
    int by_id = memcmp(left->comm->id, right->comm->id, sizeof left->comm->id);

    if (by_id)
        return by_id;
    if (left->comm->rank != right->comm->rank)
        return left->comm->rank < right->comm->rank ? -1 : 1;
    return left->record < right->record ? -1 : left->record > right->record;
}

/* NULL: there are none, or no memory. */
static struct member *list_members(const struct xccl_report *report, uint32_t *count_out)
{
    struct member *members;
    uint32_t count = 0;

    for (uint32_t i = 0; i < report->count; i++)
        count += report->records[i].view.count;
    members = count ? calloc(count, sizeof *members) : NULL;
    *count_out = 0;
    for (uint32_t i = 0; members && i < report->count; i++) {
        const struct xccl_report_record *record = &report->records[i];

        for (uint32_t j = 0; j < record->view.count; j++)
            members[(*count_out)++] = (struct member){record, &record->view.comms[j]};
    }
    if (members)
        qsort(members, count, sizeof *members, compare);
    return members;
}

/* Labels are each rank's own, but mostly those of all. */
static int same_labels(const struct member *members, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++)
        if (strcmp(members[i].comm->labels, members[0].comm->labels) != 0)
            return 0;
    return 1;
}

static void show_title(const struct member *members, uint32_t count)
{
    const struct xccl_record_comm *comm = members[0].comm;
    char name[XCCL_RECORD_NAME_BYTES], host[XCCL_RECORD_NAME_BYTES], id[33];
    char labels[XCCL_RECORD_LABEL_BYTES] = "";

    xccl_report_clean(comm->name, name, sizeof name);
    if (same_labels(members, count))
        xccl_report_clean(comm->labels, labels, sizeof labels);
    xccl_report_clean(members[0].record->view.info.host, host, sizeof host);
    xccl_report_id_text(comm->id, id);
    printf("communicator %s%s%s%s%s%.16s: %u rank%s, %u with a record on host %s\n", name,
           name[0] ? " " : "", labels[0] ? "(" : "", labels, labels[0] ? ") " : "", id,
           comm->nranks, comm->nranks == 1 ? "" : "s", count, host);
}

static void show_labels(const struct xccl_record_comm *comm)
{
    char labels[XCCL_RECORD_LABEL_BYTES];

    xccl_report_clean(comm->labels, labels, sizeof labels);
    printf("%6s %9s %-16s labels: %s\n", "", "", "", labels[0] ? labels : "none");
}

/* Behind "failed": " (rank_gone, culprit rank 2)", as far as it is known. */
static void cause_text(const struct xccl_record_comm *comm, char *text_out, size_t bytes)
{
    char kind[XCCL_RECORD_KIND_BYTES], culprit[32] = "";

    text_out[0] = '\0';
    if (!comm->error_kind[0])
        return;
    xccl_report_clean(comm->error_kind, kind, sizeof kind);
    if (comm->culprit >= 0)
        snprintf(culprit, sizeof culprit, ", culprit rank %d", comm->culprit);
    snprintf(text_out, bytes, " (%s%s)", kind, culprit);
}

static void show_states(const struct member *members, uint32_t count)
{
    int same = same_labels(members, count);

    printf("%6s %9s %-16s %s\n", "rank", "pid", "program", "state");
    for (uint32_t i = 0; i < count; i++) {
        const struct xccl_report_record *record = members[i].record;
        const struct xccl_record_comm *comm = members[i].comm;
        char state[XCCL_REPORT_TEXT], program[17], error[XCCL_RECORD_TEXT_BYTES];
        char cause[XCCL_RECORD_KIND_BYTES + 40];

        xccl_report_state_text(record, comm, state, sizeof state);
        xccl_report_clean(record->view.info.program, program, sizeof program);
        printf("%6u %9u %-16s %s\n", comm->rank, record->view.info.pid, program, state);
        if (!same)
            show_labels(comm);
        if (!comm->error)
            continue;
        xccl_report_clean(comm->error_text, error, sizeof error);
        cause_text(comm, cause, sizeof cause);
        printf("%6s %9s %-16s failed%s: %s\n", "", "", "", cause, error);
    }
}

static void show_cards(const struct member *members, uint32_t count)
{
    int titled = 0;

    for (uint32_t i = 0; i < count; i++) {
        char cards[XCCL_RECORD_CARDS_BYTES];

        if (!members[i].comm->cards[0])
            continue;
        if (!titled)
            printf("%6s %s\n", "rank", "network to other hosts");
        titled = 1;
        xccl_report_clean(members[i].comm->cards, cards, sizeof cards);
        printf("%6u %s\n", members[i].comm->rank, cards);
    }
}

static void show_algo(const struct xccl_record_algo *algo, int is_first)
{
    char name[3 * XCCL_RECORD_ALGO_BYTES], least[32], most[32];

    xccl_report_clean(algo->name, name, sizeof name);
    xccl_report_bytes_text((double)algo->least, least, sizeof least);
    xccl_report_bytes_text((double)algo->most, most, sizeof most);
    printf("%s %s (%s", is_first ? "" : ",", name, least);
    if (algo->most != algo->least)
        printf(" to %s", most);
    putchar(')');
}

/* All ranks have the same order and, of the same calls, the same algorithms. */
static void show_algos(const struct member *members, uint32_t count)
{
    char order[XCCL_RECORD_ORDER_BYTES];
    int titled = 0;

    for (uint32_t row = 0; row < XCCL_RECORD_ROWS; row++) {
        const struct xccl_record_algo *algos = members[0].comm->algos[row];

        for (uint32_t i = 1; i < count && !algos->name[0]; i++)
            algos = members[i].comm->algos[row];
        if (!algos->name[0])
            continue;
        if (!titled)
            printf("%22s algorithms, and the sizes of their calls\n", "collective");
        titled = 1;
        printf("%22s", xccl_report_row_name(row));
        for (uint32_t i = 0; i < XCCL_RECORD_ALGOS && algos[i].name[0]; i++)
            show_algo(&algos[i], i == 0);
        putchar('\n');
    }
    xccl_report_clean(members[0].comm->order, order, sizeof order);
    if (order[0])
        printf("%22s ranks %s\n", "rings, chains, trees:", order);
}

static void show_ways(const struct member *members, uint32_t count)
{
    int titled = 0;

    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < members[i].comm->way_count; k++) {
            char text[XCCL_REPORT_TEXT];

            if (!titled)
                printf("%6s %s\n", "rank", "links to and from ranks");
            titled = 1;
            xccl_report_way_text(&members[i].comm->ways[k], text, sizeof text);
            printf("%6u %s\n", members[i].comm->rank, text);
        }
}

/* --- counters --- */

static double rate(uint64_t now, uint64_t before, double seconds)
{
    return now >= before && seconds > 0 ? (double)(now - before) / seconds : 0;
}

static void show_rates(const struct xccl_record_counts *now,
                       const struct xccl_record_counts *before, double seconds)
{
    char bytes[32];

    if (!before) {
        printf(" %9s %9s %11s", "-", "-", "-");
        return;
    }
    xccl_report_bytes_text(rate(now->done_bytes, before->done_bytes, seconds), bytes, sizeof bytes);
    printf(" %9.0f %9.0f %9s/s", rate(now->issued_calls, before->issued_calls, seconds),
           rate(now->done_calls, before->done_calls, seconds), bytes);
}

static void show_counts(const struct member *member, uint32_t row,
                        const struct xccl_report *earlier, double seconds)
{
    const struct xccl_record_counts *now = &member->comm->rows[row];
    const struct xccl_record_comm *old = xccl_report_earlier(earlier, member->record, member->comm);
    const uint64_t bytes[] = {now->issued_bytes, now->done_bytes,    now->sent_near,
                              now->sent_far,     now->received_near, now->received_far};

    printf("%6u %-15s %10llu %10llu", member->comm->rank, xccl_report_row_name(row),
           (unsigned long long)now->issued_calls, (unsigned long long)now->done_calls);
    if (earlier)
        show_rates(now, old ? &old->rows[row] : NULL, seconds);
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
        char text[32];

        xccl_report_bytes_text((double)bytes[i], text, sizeof text);
        printf(" %10s", text);
    }
    putchar('\n');
}

static int any_counts(const struct member *members, uint32_t count, uint32_t row)
{
    for (uint32_t i = 0; i < count; i++)
        if (xccl_report_is_used(&members[i].comm->rows[row]))
            return 1;
    return 0;
}

static void show_counters(const struct member *members, uint32_t count,
                          const struct xccl_report *earlier, double seconds)
{
    int titled = 0;

    for (uint32_t row = 0; row < XCCL_RECORD_ROWS; row++) {
        if (!any_counts(members, count, row))
            continue;
        if (!titled) {
            printf("%6s %-15s %10s %10s", "rank", "collective", "issued", "done");
            if (earlier)
                printf(" %9s %9s %11s", "issued/s", "done/s", "done B/s");
            printf(" %10s %10s %10s %10s %10s %10s\n", "issued B", "done B", "sent near",
                   "sent far", "recv near", "recv far");
            titled = 1;
        }
        for (uint32_t i = 0; i < count; i++)
            show_counts(&members[i], row, earlier, seconds);
    }
}

/* --- events --- */

static void show_time(const struct xccl_record_info *info, uint64_t tick)
{
    double real = tick ? xccl_record_real_time(info, tick) : NAN;
    time_t whole;
    struct tm parts;
    char text[16] = "";

    /* Up to the year 5138; what is beyond is no time. */
    if (isnan(real) || real < 0 || real > 1e11) {
        printf("  %15s", tick ? "?" : "...");
        return;
    }
    whole = (time_t)real;
    if (localtime_r(&whole, &parts))
        strftime(text, sizeof text, "%H:%M:%S", &parts);
    printf("  %s.%06u", text, (unsigned)((real - (double)whole) * 1e6));
}

static void show_error_event(const struct member *member)
{
    char error[XCCL_RECORD_TEXT_BYTES];

    xccl_report_clean(member->comm->error_text, error, sizeof error);
    show_time(&member->record->view.info, member->comm->error_tick);
    printf("  the communicator fails: %s\n", error);
}

static void show_events(const struct member *member)
{
    const struct xccl_record_comm *comm = member->comm;
    int told = !comm->error;

    printf("rank %u: the last %u events; ... is a time between the events around it\n", comm->rank,
           comm->event_count);
    for (uint32_t i = 0; i < comm->event_count; i++) {
        const struct xccl_record_seen *event = &comm->events[i];
        char text[XCCL_REPORT_TEXT];

        if (!told && event->tick > comm->error_tick) {
            show_error_event(member);
            told = 1;
        }
        xccl_report_event_text(event, text, sizeof text);
        show_time(&member->record->view.info, event->tick);
        printf("  %s\n", text);
    }
    if (!told)
        show_error_event(member);
}

void xccl_report_table(const struct xccl_report *report, const struct xccl_report *earlier,
                       const struct xccl_report_options *options)
{
    double seconds = earlier ? (double)(report->mono_ns - earlier->mono_ns) / 1e9 : 0;
    uint32_t count, first = 0;
    struct member *members = list_members(report, &count);

    while (first < count) {
        uint32_t end = first + 1;

        while (end < count && memcmp(members[end].comm->id, members[first].comm->id, 16) == 0)
            end++;
        if (first)
            putchar('\n');
        show_title(members + first, end - first);
        show_states(members + first, end - first);
        show_cards(members + first, end - first);
        show_algos(members + first, end - first);
        show_ways(members + first, end - first);
        show_counters(members + first, end - first, earlier, seconds);
        for (uint32_t i = first; i < end && options->events; i++)
            show_events(&members[i]);
        first = end;
    }
    free(members);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* What records say, in words. Everything that comes from a file is looked at before it is an index,
 * and texts lose their control characters.
 *
 * Thread: the program's main thread. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "report/report.h"
#include "schedule/schedule.h"

static_assert(XCCL_COLL_SEND_RECV == XCCL_RECORD_P2P, "a group has no row of its own");
static_assert(XCCL_COLL_COUNT <= XCCL_RECORD_SEND, "rows are the numbers of collectives");

const char *xccl_report_row_name(uint32_t row)
{
    if (row == XCCL_RECORD_SEND)
        return "send";
    if (row == XCCL_RECORD_RECV)
        return "recv";
    return row < XCCL_COLL_COUNT ? xccl_coll_name((enum xccl_coll)row) : "unknown";
}

int xccl_report_is_used(const struct xccl_record_counts *counts)
{
    return counts->issued_calls || counts->done_calls;
}

struct xccl_report_call xccl_report_call_of(uint64_t word)
{
    static const char *const types[] = {"int8",    "uint8",    "int32",      "uint32",
                                        "int64",   "uint64",   "float16",    "float32",
                                        "float64", "bfloat16", "float8e4m3", "float8e5m2"};
    static const char *const ops[] = {"sum", "prod", "max", "min", "avg", "premulsum"};
    uint32_t row = (uint32_t)(word >> 8) & XCCL_RECORD_ROW_MASK;
    uint32_t type = (uint32_t)(word >> 4) & 15, op = (uint32_t)word & 15;
    int is_coll = row < XCCL_COLL_COUNT && row != XCCL_RECORD_P2P;
    struct xccl_report_call call = {.seq = (uint32_t)(word >> 32),
                                    .root = (uint32_t)(word >> 16) & 0xffff,
                                    .sized = (word & XCCL_RECORD_SIZED) != 0,
                                    .is_p2p = row == XCCL_RECORD_P2P,
                                    .is_rooted = is_coll && xccl_coll_rooted((enum xccl_coll)row),
                                    .name = xccl_report_row_name(row),
                                    .type = "",
                                    .op = ""};

    static_assert(sizeof types / sizeof types[0] == xcclNumTypes, "every type has a name");
    static_assert(sizeof ops / sizeof ops[0] == xcclNumOps + 1, "and one for the program's own");
    if (is_coll && row != XCCL_COLL_BARRIER)
        call.type = type < xcclNumTypes ? types[type] : "?";
    if (is_coll && xccl_coll_reduces((enum xccl_coll)row))
        call.op = op <= xcclNumOps ? ops[op] : "?";
    return call;
}

void xccl_report_call_text(uint64_t word, uint64_t count, char *text_out, size_t bytes)
{
    struct xccl_report_call call = xccl_report_call_of(word);
    char of[64] = "", op[32] = "", root[32] = "";

    if (call.is_p2p) {
        snprintf(text_out, bytes, "a group of %llu sends and receives", (unsigned long long)count);
        return;
    }
    if (call.type[0] && call.sized)
        snprintf(of, sizeof of, " with sizes, of %s", call.type);
    else if (call.type[0])
        snprintf(of, sizeof of, " of %llu %s", (unsigned long long)count, call.type);
    if (call.op[0])
        snprintf(op, sizeof op, ", %s", call.op);
    if (call.is_rooted)
        snprintf(root, sizeof root, ", root %u", call.root);
    snprintf(text_out, bytes, "call %u, %s%s%s%s", call.seq, call.name, of, op, root);
}

const char *xccl_report_state(const struct xccl_report_record *record,
                              const struct xccl_record_comm *comm)
{
    if (comm->state == XCCL_RECORD_LEFT)
        return "left";
    if (!record->view.live)
        return "gone";
    if (comm->error)
        return "failed";
    if (comm->state == XCCL_RECORD_JOINING)
        return "joining";
    return comm->current ? "calling" : "ready";
}

double xccl_report_call_seconds(const struct xccl_report_record *record,
                                const struct xccl_record_comm *comm)
{
    const struct xccl_record_view *view = &record->view;
    double seconds = xccl_record_seconds(&view->info, comm->current_tick,
                                         view->live ? view->now.tick : comm->last_tick);

    return seconds < 0 ? 0 : seconds; /* it began after the clock was read */
}

/* Behind what it is in: ", since 3.2 s". */
static void since_text(const struct xccl_report_record *record, const struct xccl_record_comm *comm,
                       char *text_out, size_t bytes)
{
    double seconds = xccl_report_call_seconds(record, comm);

    text_out[0] = '\0';
    if (!isnan(seconds) && (record->view.live || seconds > 0))
        snprintf(text_out, bytes, ", since %.*f s%s", seconds < 10 ? 3 : 0, seconds,
                 record->view.live ? "" : " before its last event");
}

/* Behind "between calls", where the end of the last one is known: ", for 3.2 s". */
static void idle_text(const struct xccl_report_record *record, const struct xccl_record_comm *comm,
                      char *text_out, size_t bytes)
{
    const struct xccl_record_view *view = &record->view;
    const struct xccl_record_seen *last = comm->event_count ? &comm->events[comm->event_count - 1]
                                                            : NULL;
    double seconds = NAN;

    text_out[0] = '\0';
    if (view->live && last && last->kind == XCCL_RECORD_DONE)
        seconds = xccl_record_seconds(&view->info, last->tick, view->now.tick);
    if (seconds >= 0)
        snprintf(text_out, bytes, ", for %.*f s", seconds < 10 ? 3 : 0, seconds);
}

void xccl_report_state_text(const struct xccl_report_record *record,
                            const struct xccl_record_comm *comm, char *text_out, size_t bytes)
{
    const char *was = record->view.live ? "" : "dead; was ";
    char call[128], since[64], phase[32];

    if (comm->state == XCCL_RECORD_LEFT) {
        snprintf(text_out, bytes, "has left");
    } else if (comm->state == XCCL_RECORD_JOINING) {
        xccl_report_clean(comm->phase_name, phase, sizeof phase);
        snprintf(text_out, bytes, "%sjoining, phase %u%s%s", was, comm->phase, phase[0] ? ": " : "",
                 phase);
    } else if (comm->current) {
        xccl_report_call_text(comm->current, comm->current_count, call, sizeof call);
        since_text(record, comm, since, sizeof since);
        snprintf(text_out, bytes, "%sin %s%s", was, call, since);
    } else {
        idle_text(record, comm, since, sizeof since);
        snprintf(text_out, bytes, "%sbetween calls%s", was, since);
    }
}

const char *xccl_report_kind_name(enum xccl_record_kind kind)
{
    static const char *const names[XCCL_RECORD_KIND_END] = {
        [XCCL_RECORD_ISSUED] = "issued",   [XCCL_RECORD_DONE] = "done",
        [XCCL_RECORD_FAILED] = "failed",   [XCCL_RECORD_PLANNED] = "planned",
        [XCCL_RECORD_LINKED] = "linked",   [XCCL_RECORD_PHASE] = "phase",
        [XCCL_RECORD_JOINED] = "joined",   [XCCL_RECORD_SPLIT] = "split",
        [XCCL_RECORD_LEAVING] = "leaving",
    };

    return (unsigned)kind < XCCL_RECORD_KIND_END && names[kind] ? names[kind] : "unknown";
}

static const struct {
    const char *name, *text;
} ways[XCCL_RECORD_WAY_END] = {
    [XCCL_RECORD_WAY_SAME_DEVICE] = {"same_device", "memory of the same device"},
    [XCCL_RECORD_WAY_PEER_ACCESS] = {"peer_access", "memory of another device, by peer access"},
    [XCCL_RECORD_WAY_HANDLE] = {"cumem", "device memory of another process, by a cuMem handle"},
    [XCCL_RECORD_WAY_FABRIC] = {"fabric", "device memory of another process, by a fabric handle"},
    [XCCL_RECORD_WAY_IPC] = {"ipc", "device memory of another process, by IPC"},
    [XCCL_RECORD_WAY_PINNED] = {"pinned", "pinned host memory"},
    [XCCL_RECORD_WAY_NET_DEVICE] = {"net_device", "network, slots in device memory"},
    [XCCL_RECORD_WAY_NET_PINNED] = {"net_pinned", "network, slots in pinned host memory"},
    [XCCL_RECORD_WAY_OTHER] = {"other", "another way"},
};

const char *xccl_report_way_name(enum xccl_record_way_kind kind)
{
    return (unsigned)kind < XCCL_RECORD_WAY_END && ways[kind].name ? ways[kind].name : "unknown";
}

void xccl_report_way_text(const struct xccl_record_path *way, char *text_out, size_t bytes)
{
    char to[XCCL_RECORD_ENDS_BYTES], from[XCCL_RECORD_ENDS_BYTES], why[XCCL_RECORD_WHY_BYTES];
    const char *text = (unsigned)way->kind < XCCL_RECORD_WAY_END ? ways[way->kind].text : NULL;

    xccl_report_clean(way->to, to, sizeof to);
    xccl_report_clean(way->from, from, sizeof from);
    xccl_report_clean(way->why, why, sizeof why);
    snprintf(text_out, bytes, "%s%s%s%s%s: %s%s%s", to[0] ? "to " : "", to,
             to[0] && from[0] ? ", " : "", from[0] ? "from " : "", from,
             text ? text : "an unknown way", why[0] ? ": " : "", why);
}

void xccl_report_event_text(const struct xccl_record_seen *event, char *text_out, size_t bytes)
{
    unsigned long long value = event->value;
    char call[128];

    switch (event->kind) {
    case XCCL_RECORD_ISSUED:
    case XCCL_RECORD_DONE:
        xccl_report_call_text(event->call, event->value, call, sizeof call);
        snprintf(text_out, bytes, "%s: %s", call, xccl_report_kind_name(event->kind));
        break;
    case XCCL_RECORD_FAILED:
        snprintf(text_out, bytes, "call %u failed: %s", (uint32_t)(event->call >> 32),
                 xccl_result_text((xcclResult_t)event->value));
        break;
    case XCCL_RECORD_PLANNED:
        snprintf(text_out, bytes, "a new plan, of %llu tiles", value);
        break;
    case XCCL_RECORD_LINKED:
        snprintf(text_out, bytes, "a link %s rank %u%s", value & 1 ? "to" : "from",
                 (uint32_t)(value >> 32), value & 2 ? ", of another host" : "");
        break;
    case XCCL_RECORD_PHASE:
        snprintf(text_out, bytes, "joining: phase %llu begins", value);
        break;
    case XCCL_RECORD_SPLIT:
        snprintf(text_out, bytes, "split, color %d", (int)value);
        break;
    default:
        snprintf(text_out, bytes, "%s", xccl_report_kind_name(event->kind));
        break;
    }
}

void xccl_report_bytes_text(double bytes, char *text_out, size_t room)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;

    while (bytes >= 1024 && unit + 1 < sizeof units / sizeof units[0]) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text_out, room, "%.*f %s",
             unit == 0 || bytes >= 100 ? 0
             : bytes >= 10             ? 1
                                       : 2,
             bytes, units[unit]);
}

void xccl_report_clean(const char *text, char *text_out, size_t bytes)
{
    size_t used = 0;

    for (; *text && used + 1 < bytes; text++)
        text_out[used++] = (unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text;
    text_out[used] = '\0';
}

void xccl_report_id_text(const uint8_t *id, char text_out[33])
{
    for (size_t i = 0; i < 16; i++)
        snprintf(text_out + 2 * i, 3, "%02x", id[i]);
}

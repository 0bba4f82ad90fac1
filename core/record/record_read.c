/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies of a file, taken by read and not by a map, because a file may be cut while it is looked
 * at; then the bytes are taken apart. Nothing is a length or an index before it was compared with
 * what there is. Thread: any. */
#include "record/record_read.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "record/record_clock.h"
#include "record/record_folder.h"

#define TICK_NS_MIN 0.01 /* of what a counter may be: 100 GHz to 1 MHz */
#define TICK_NS_MAX 1000.0
#define MARK_APART  100000u /* ticks between marks below which they tell no rate */

static xcclResult_t no_record(const char *why)
{
    return xccl_fail_quietly(xcclInvalidArgument, 0, NULL, "it is not a record: %s", why);
}

/* --- time --- */

/* 0: unknown. */
static double rate_of(const struct xccl_record_mark *from, const struct xccl_record_mark *to)
{
    double rate;

    if (to->tick <= from->tick || to->tick - from->tick < MARK_APART ||
        to->mono_ns <= from->mono_ns)
        return 0;
    rate = (double)(to->mono_ns - from->mono_ns) / (double)(to->tick - from->tick);
    return rate >= TICK_NS_MIN && rate <= TICK_NS_MAX ? rate : 0;
}

double xccl_record_seconds(const struct xccl_record_info *info, uint64_t earlier, uint64_t later)
{
    if (!earlier || !later || info->ns_per_tick <= 0)
        return NAN;
    return later >= earlier ? (double)(later - earlier) * info->ns_per_tick / 1e9
                            : -(double)(earlier - later) * info->ns_per_tick / 1e9;
}

double xccl_record_real_time(const struct xccl_record_info *info, uint64_t tick)
{
    return (double)info->first.real_ns / 1e9 + xccl_record_seconds(info, info->first.tick, tick);
}

/* --- the head --- */

static void copy_text(char *text_out, const char *text, size_t bytes)
{
    memcpy(text_out, text, bytes);
    text_out[bytes - 1] = '\0';
}

static xcclResult_t check_head(const struct xccl_record_head *head)
{
    uint32_t events = head->events;

    if (head->magic != XCCL_RECORD_MAGIC)
        return no_record("it begins otherwise");
    if (head->version != XCCL_RECORD_VERSION)
        return xccl_fail_quietly(xcclInvalidArgument, 0, "use the xccl command of that version",
                                 "it is a record of version %u; this command reads version %u",
                                 head->version, XCCL_RECORD_VERSION);
    if (head->head_bytes != XCCL_RECORD_PAGE || events < XCCL_RECORD_EVENTS_MIN ||
        events > XCCL_RECORD_EVENTS_MAX || (events & (events - 1)) ||
        head->block_bytes != xccl_record_block_bytes(events))
        return no_record("its sizes do not fit together");
    if (head->clock != XCCL_RECORD_MONOTONIC && head->clock != XCCL_RECORD_TSC)
        return no_record("it has an unknown clock");
    return xcclSuccess;
}

xcclResult_t xccl_record_parse_head(const void *page, size_t bytes,
                                    struct xccl_record_info *info_out)
{
    struct xccl_record_head head;
    uint32_t blocks, last;
    xcclResult_t rc;

    if (bytes < sizeof head)
        return no_record("it is too short");
    memcpy(&head, page, sizeof head);
    rc = check_head(&head);
    if (rc)
        return rc;
    /* Relaxed: it is a copy. */
    blocks = atomic_load_explicit(&head.blocks, memory_order_relaxed);
    last = atomic_load_explicit(&head.last, memory_order_relaxed);
    *info_out = (struct xccl_record_info){
        .pid = head.pid,
        .uid = head.uid,
        .events = head.events,
        .block_bytes = head.block_bytes,
        .blocks = blocks < XCCL_RECORD_BLOCKS_MAX ? blocks : XCCL_RECORD_BLOCKS_MAX,
        .clock = head.clock,
        .boot_hash = head.boot_hash,
        .first = head.marks[0],
        .last = head.marks[last < 3 ? last : 0],
    };
    copy_text(info_out->host, head.host, sizeof head.host);
    copy_text(info_out->program, head.program, sizeof head.program);
    copy_text(info_out->writer, head.writer, sizeof head.writer);
    info_out->ns_per_tick = head.clock == XCCL_RECORD_MONOTONIC
                                ? 1
                                : rate_of(&info_out->first, &info_out->last);
    return xcclSuccess;
}

/* --- a block --- */

static uint64_t value_of(const _Atomic uint64_t *field)
{
    return atomic_load_explicit(field, memory_order_relaxed); /* of a copy */
}

static void take_rows(const struct xccl_record_block *block, struct xccl_record_counts *rows_out)
{
    for (size_t i = 0; i < XCCL_RECORD_ROWS; i++) {
        const struct xccl_record_row *row = &block->rows[i];

        rows_out[i] = (struct xccl_record_counts){
            .issued_calls = value_of(&row->issued_calls),
            .issued_bytes = value_of(&row->issued_bytes),
            .done_calls = value_of(&row->done_calls),
            .done_bytes = value_of(&row->done_bytes),
            .sent_near = value_of(&row->sent_near),
            .sent_far = value_of(&row->sent_far),
            .received_near = value_of(&row->received_near),
            .received_far = value_of(&row->received_far),
        };
    }
}

static void take_algos(const struct xccl_record_block *block, struct xccl_record_comm *comm)
{
    memcpy(comm->algos, block->algos, sizeof comm->algos);
    for (unsigned row = 0; row < XCCL_RECORD_ROWS; row++)
        for (unsigned i = 0; i < XCCL_RECORD_ALGOS; i++)
            comm->algos[row][i].name[XCCL_RECORD_ALGO_BYTES - 1] = '\0';
}

/* Those that are used, without gaps. */
static void take_ways(const struct xccl_record_block *block, struct xccl_record_comm *comm)
{
    for (size_t i = 0; i < XCCL_RECORD_WAYS; i++) {
        const struct xccl_record_way *way = &block->ways[i];
        struct xccl_record_path *path = &comm->ways[comm->way_count];
        /* Relaxed: it is a copy. */
        uint32_t kind = atomic_load_explicit(&way->kind, memory_order_relaxed);

        if (kind <= XCCL_RECORD_WAY_NONE || kind >= XCCL_RECORD_WAY_END)
            continue;
        path->kind = (enum xccl_record_way_kind)kind;
        copy_text(path->to, way->to, sizeof path->to);
        copy_text(path->from, way->from, sizeof path->from);
        copy_text(path->why, way->why, sizeof path->why);
        comm->way_count++;
    }
}

static void later(uint64_t *tick, uint64_t other)
{
    if (other > *tick)
        *tick = other;
}

/* comm->error_text is there. A remedy begins inside of it; a rank is one of the communicator. */
static void take_error(const struct xccl_record_block *block, struct xccl_record_comm *comm)
{
    size_t bytes = strlen(comm->error_text);
    int64_t nranks = comm->nranks;

    copy_text(comm->error_kind, block->error_kind, sizeof comm->error_kind);
    comm->remedy_at = block->error_remedy < bytes ? block->error_remedy : 0;
    comm->culprit = comm->finder = -1;
    if (!comm->error || !comm->error_kind[0])
        return;
    if (block->error_culprit >= 0 && block->error_culprit < nranks)
        comm->culprit = block->error_culprit;
    if (block->error_finder >= 0 && block->error_finder < nranks)
        comm->finder = block->error_finder;
}

static void take_block(const struct xccl_record_block *block, struct xccl_record_comm *comm)
{
    *comm = (struct xccl_record_comm){
        .state = (enum xccl_record_state)atomic_load_explicit(&block->state, memory_order_relaxed),
        .phase = atomic_load_explicit(&block->phase, memory_order_relaxed),
        .rank = block->rank,
        .nranks = block->nranks,
        .near_ranks = block->near_ranks,
        .error = atomic_load_explicit(&block->error, memory_order_relaxed),
        .join_tick = block->join_tick,
        .error_tick = value_of(&block->error_tick),
        .failed_calls = value_of(&block->failed_calls),
        .current = value_of(&block->current),
        .current_count = value_of(&block->current_count),
        .current_tick = value_of(&block->current_tick),
        .last_tick = value_of(&block->seen_tick),
    };
    memcpy(comm->id, block->id, sizeof comm->id);
    copy_text(comm->name, block->name, sizeof comm->name);
    copy_text(comm->labels, block->labels, sizeof comm->labels);
    copy_text(comm->cards, block->cards, sizeof comm->cards);
    copy_text(comm->order, block->order, sizeof comm->order);
    take_algos(block, comm);
    copy_text(comm->phase_name, block->phase_name, sizeof comm->phase_name);
    copy_text(comm->error_text, block->error_text, sizeof comm->error_text);
    take_error(block, comm);
    later(&comm->last_tick, comm->error_tick);
    later(&comm->last_tick, comm->join_tick);
    take_rows(block, comm->rows);
    take_ways(block, comm);
}

static int is_same(const struct xccl_record_event *a, const struct xccl_record_event *b)
{
    return value_of(&a->word) == value_of(&b->word) && value_of(&a->tick) == value_of(&b->tick) &&
           value_of(&a->value) == value_of(&b->value) && value_of(&a->call) == value_of(&b->call);
}

/* 0: it is none, or was written between the copies. */
static int take_event(const struct xccl_record_event *older, const struct xccl_record_event *newer,
                      uint32_t place, uint32_t events, struct xccl_record_seen *seen_out)
{
    uint64_t word = value_of(&newer->word), number = word >> 8;
    unsigned kind = (unsigned)(word & 0xff);

    if (!number || kind < XCCL_RECORD_ISSUED || kind >= XCCL_RECORD_KIND_END ||
        ((number - 1) & (events - 1)) != place || !is_same(older, newer))
        return 0;
    *seen_out = (struct xccl_record_seen){.number = number,
                                          .tick = value_of(&newer->tick),
                                          .value = value_of(&newer->value),
                                          .call = value_of(&newer->call),
                                          .kind = (enum xccl_record_kind)kind};
    return 1;
}

static int compare_events(const void *a, const void *b)
{
    const struct xccl_record_seen *left = a, *right = b;

    return left->number < right->number ? -1 : left->number > right->number;
}

/* The last of `events` that the copies hold, as many as comm->event_count asks for. */
static xcclResult_t take_events(const struct xccl_record_info *info,
                                const struct xccl_record_block *older,
                                const struct xccl_record_block *newer, uint32_t events,
                                struct xccl_record_comm *comm)
{
    struct xccl_record_seen *seen = xccl_calloc(events, sizeof *seen);
    uint32_t count = 0, keep = comm->event_count;

    comm->event_count = 0;

    if (!seen)
        return xcclSystemError;
    for (uint32_t i = 0; i < events; i++)
        count += (uint32_t)take_event(&older->events[i], &newer->events[i], i, info->events,
                                      &seen[count]);
    qsort(seen, count, sizeof *seen, compare_events);
    for (uint32_t i = 0; i < count; i++)
        later(&comm->last_tick, seen[i].tick);
    if (count > keep) {
        memmove(seen, seen + count - keep, keep * sizeof *seen);
        count = keep;
    }
    comm->events = seen;
    comm->event_count = count;
    return xcclSuccess;
}

xcclResult_t xccl_record_parse_block(const struct xccl_record_info *info, const void *older,
                                     const void *newer, size_t bytes, uint32_t keep,
                                     struct xccl_record_comm *comm_out)
{
    const struct xccl_record_block *block = newer;
    size_t events;

    if (bytes < sizeof *block)
        return no_record("a block is cut off");
    take_block(block, comm_out);
    if (comm_out->state <= XCCL_RECORD_FREE || comm_out->state >= XCCL_RECORD_STATE_END)
        comm_out->state = XCCL_RECORD_FREE;
    events = (bytes - sizeof *block) / sizeof block->events[0];
    if (events > info->events)
        events = info->events;
    if (!keep || !events || comm_out->state == XCCL_RECORD_FREE)
        return xcclSuccess;
    comm_out->event_count = keep;
    return take_events(info, older, newer, (uint32_t)events, comm_out);
}

/* --- files --- */

/* All of these bytes, or an error. */
static xcclResult_t read_at(int fd, uint64_t offset, void *bytes_out, size_t bytes)
{
    uint8_t *at = bytes_out;

    while (bytes) {
        ssize_t got = pread(fd, at, bytes, (off_t)offset);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return xccl_fail_quietly(xcclSystemError, errno, NULL, "it cannot be read");
        if (got == 0)
            return no_record("it is cut off");
        at += got;
        offset += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return xcclSuccess;
}

static xcclResult_t read_block(int fd, uint32_t idx, uint32_t keep, struct xccl_record_view *view)
{
    const struct xccl_record_info *info = &view->info;
    size_t bytes = keep ? info->block_bytes : sizeof(struct xccl_record_block);
    uint64_t offset = XCCL_RECORD_PAGE + (uint64_t)idx * info->block_bytes;
    void *older = xccl_calloc_aligned(64, bytes), *newer = xccl_calloc_aligned(64, bytes);
    struct xccl_record_comm *comm = &view->comms[view->count];
    xcclResult_t rc = older && newer ? xcclSuccess : xcclSystemError;

    if (!rc)
        rc = read_at(fd, offset, older, bytes);
    /* Between the copies: an event whose new fields are in the first one has its 0, or a later
     * word, in the second one. Pairs with xccl_record_event(). */
    atomic_thread_fence(memory_order_seq_cst);
    if (!rc)
        rc = read_at(fd, offset, newer, bytes);
    if (!rc)
        rc = xccl_record_parse_block(info, older, newer, bytes, keep, comm);
    if (!rc && comm->state != XCCL_RECORD_FREE)
        view->count++;
    xccl_free(older);
    xccl_free(newer);
    return rc;
}

/* While the system runs that wrote the file its clocks tell more than the file does. */
static void ask_clock(struct xccl_record_view *view)
{
    struct xccl_record_info *info = &view->info;
    double rate;

    if (!info->boot_hash || info->boot_hash != xccl_record_boot_hash() ||
        (info->clock == XCCL_RECORD_TSC && xccl_record_clock_choose() != XCCL_RECORD_TSC))
        return;
    view->now = xccl_record_mark_now((enum xccl_record_clock)info->clock);
    rate = rate_of(&info->first, &view->now);
    if (rate > 0 && info->clock == XCCL_RECORD_TSC)
        info->ns_per_tick = rate;
}

static xcclResult_t read_file(int fd, uint32_t keep, struct xccl_record_view *view)
{
    struct xccl_record_head head;
    struct stat status;
    xcclResult_t rc = xcclSuccess;

    if (fstat(fd, &status) != 0)
        return xccl_fail_quietly(xcclSystemError, errno, NULL, "it cannot be examined");
    if (!S_ISREG(status.st_mode))
        return no_record("it is no file");
    view->live = xccl_record_is_live(fd);
    rc = read_at(fd, 0, &head, sizeof head);
    if (rc)
        return rc;
    if (head.magic == XCCL_RECORD_MAGIC && head.version != XCCL_RECORD_VERSION)
        view->other_version = head.version;
    rc = xccl_record_parse_head(&head, sizeof head, &view->info);
    if (rc)
        return rc;
    view->comms = xccl_calloc(view->info.blocks + 1u, sizeof *view->comms);
    if (!view->comms)
        return xcclSystemError;
    for (uint32_t i = 0; i < view->info.blocks && !rc; i++)
        rc = read_block(fd, i, keep, view);
    ask_clock(view);
    return rc;
}

xcclResult_t xccl_record_read(int folder_fd, const char *name, uint32_t keep,
                              struct xccl_record_view *view_out)
{
    struct xccl_record_view view = {.live = 0};
    /* Without blocking: it may be a pipe that somebody put there. */
    int fd = openat(folder_fd, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    xcclResult_t rc;

    *view_out = view;
    if (fd < 0)
        return xccl_fail_quietly(xcclSystemError, errno, NULL, "it cannot be opened");
    rc = read_file(fd, keep, &view);
    close(fd);
    if (rc)
        xccl_record_view_free(&view);
    *view_out = view;
    return rc;
}

void xccl_record_view_free(struct xccl_record_view *view)
{
    for (uint32_t i = 0; view->comms && i < view->count; i++)
        xccl_free(view->comms[i].events);
    xccl_free(view->comms);
    view->comms = NULL;
    view->count = 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The blocks of this process and who has them. A child of fork() has the parent's memory: there the
 * maps of the parent's file are replaced by memory of its own, and the file is forgotten, so that
 * nothing it does reaches the parent's record; its own communicators get a file of its own.
 * Thread: any for open and close, under the lock; else see the header. */
#include "record/record.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fork.h"
#include "base/inject.h"
#include "base/log.h"
#include "base/param.h"
#include "record/record_file.h"

struct slot {
    struct xccl_record record; /* its block is NULL: never mapped */
    int used; /* 1: a communicator has it, or it was the parent's */
    int in_file;
};

static struct slot slots[XCCL_RECORD_BLOCKS_MAX];
static struct xccl_record_file file = {.fd = -1, .folder_fd = -1};
static uint32_t events; /* of a block; 0: not known yet */
static int warned;

/* --- forks and exits --- */

/* The file is not mapped in a child. Pointers into a block may still be written through, but into
 * memory that nobody sees. Where there is none, a store faults, which is better than a store into
 * the parent's record. Had the parent just unmapped the block, the place may be taken: it stays. */
static void leave_file(void)
{
    size_t bytes = events ? xccl_record_block_bytes(events) : 0;

    for (size_t i = 0; i < XCCL_RECORD_BLOCKS_MAX; i++) {
        if (!slots[i].record.block || !slots[i].in_file)
            continue;
        (void)mmap(slots[i].record.block, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        slots[i].in_file = 0;
        slots[i].used = 1;
    }
    xccl_record_file_leave(&file);
    warned = 0;
}

static struct xccl_lock lock = XCCL_LOCK(leave_file);

/* Blocks stay mapped: another thread may be inside a call. */
static void at_exit(void)
{
    xccl_lock_take(&lock);
    xccl_record_file_remove(&file);
    xccl_lock_give(&lock);
}

static void watch_process(void)
{
    (void)atexit(at_exit);
}

/* --- opening --- */

static void warn_once(const char *why)
{
    if (!warned)
        xccl_log(XCCL_LOG_WARN,
                 "%s; counters and events of this process are kept in its own memory, where "
                 "`xccl report` does not see them (XCCL_RECORD_DIR names another folder, "
                 "XCCL_RECORD=0 keeps none)",
                 why);
    warned = 1;
}

static uint32_t choose_events(void)
{
    int64_t wanted = xccl_param_int(XCCL_P_RECORD_EVENTS);
    uint32_t count = XCCL_RECORD_EVENTS_MIN;

    while (count < wanted && count < XCCL_RECORD_EVENTS_MAX)
        count *= 2;
    return count;
}

static struct xccl_record_block *map_own(void)
{
    void *at = MAP_FAILED;

    if (!xccl_inject_due())
        at = mmap(NULL, xccl_record_block_bytes(events), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* A block for slot idx, in the file if that can be. 0: there is none. */
static int map_block(uint32_t idx)
{
    struct slot *slot = &slots[idx];
    char why[XCCL_RECORD_TEXT_BYTES];

    if (slot->record.block)
        return 1;
    if (file.head || xccl_record_file_make(&file, events, why, sizeof why) == 0)
        slot->record.block = xccl_record_file_block(&file, idx, why, sizeof why);
    slot->in_file = slot->record.block != NULL;
    if (!slot->in_file) {
        warn_once(why);
        slot->record.block = map_own();
    }
    return slot->record.block != NULL;
}

static uint32_t find_slot(void)
{
    uint32_t idx = 0;

    while (idx < XCCL_RECORD_BLOCKS_MAX && slots[idx].used)
        idx++;
    return idx;
}

static void reset(struct xccl_record *record, const struct xccl_record_who *who)
{
    struct xccl_record_block *block = record->block;
    enum xccl_record_clock clock = file.head ? (enum xccl_record_clock)file.head->clock
                                             : xccl_record_clock_choose();

    /* Relaxed: to a reader of the moment the block is free, or in between, which it says itself. */
    atomic_store_explicit(&block->state, XCCL_RECORD_FREE, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    memset((char *)block + sizeof block->state, 0,
           xccl_record_block_bytes(events) - sizeof block->state);
    *record = (struct xccl_record){.block = block, .clock = clock, .mask = events - 1, .next = 1};
    xccl_record_describe(record, who);
    block->join_tick = xccl_record_tick(clock);
    /* Release: what it speaks of is there. */
    atomic_store_explicit(&block->state, XCCL_RECORD_JOINING, memory_order_release);
}

struct xccl_record *xccl_record_open(const struct xccl_record_who *who)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct xccl_record *record = NULL;
    uint32_t idx;

    if (!xccl_param_int(XCCL_P_RECORD))
        return NULL;
    pthread_once(&once, watch_process);
    xccl_lock_take(&lock);
    if (!events)
        events = choose_events();
    idx = find_slot();
    if (idx < XCCL_RECORD_BLOCKS_MAX && map_block(idx)) {
        slots[idx].used = 1;
        record = &slots[idx].record;
        reset(record, who);
    }
    xccl_lock_give(&lock);
    if (!record)
        xccl_log(XCCL_LOG_INFO, "rank %d: this communicator has no counters and no events: %s",
                 who->rank,
                 idx < XCCL_RECORD_BLOCKS_MAX ? "out of memory"
                                              : "64 other communicators have them");
    return record;
}

/* The last communicator of the file has gone: so does the file. */
static void drop_file(void)
{
    for (size_t i = 0; i < XCCL_RECORD_BLOCKS_MAX; i++)
        if (slots[i].used && slots[i].in_file)
            return;
    for (size_t i = 0; i < XCCL_RECORD_BLOCKS_MAX; i++) {
        if (!slots[i].in_file)
            continue;
        munmap(slots[i].record.block, xccl_record_block_bytes(events));
        slots[i] = (struct slot){.used = 0};
    }
    xccl_record_file_remove(&file);
}

void xccl_record_close(struct xccl_record **record)
{
    struct slot *slot = (struct slot *)*record; /* the record is its first member */

    if (!slot)
        return;
    *record = NULL;
    xccl_record_note(&slot->record, XCCL_RECORD_LEAVING, 0);
    xccl_lock_take(&lock);
    /* Release: its last event before it. */
    atomic_store_explicit(&slot->record.block->state, XCCL_RECORD_LEFT, memory_order_release);
    slot->used = 0;
    if (!slot->in_file) {
        munmap(slot->record.block, xccl_record_block_bytes(events));
        *slot = (struct slot){.used = 0};
    }
    drop_file();
    xccl_lock_give(&lock);
}

/* --- what is rare --- */

void xccl_record_describe(struct xccl_record *record, const struct xccl_record_who *who)
{
    struct xccl_record_block *block;

    if (!record)
        return;
    block = record->block;
    block->rank = (uint32_t)who->rank;
    block->nranks = (uint32_t)who->nranks;
    memcpy(block->id, who->id, sizeof block->id);
    snprintf(block->name, sizeof block->name, "%s", who->name);
    snprintf(block->labels, sizeof block->labels, "%s", who->labels);
    block->cards[0] = 0;
    block->order[0] = 0;
    memset(block->algos, 0, sizeof block->algos);
}

static void mark_time(void)
{
    xccl_lock_take(&lock);
    xccl_record_file_mark(&file);
    xccl_lock_give(&lock);
}

void xccl_record_phase(struct xccl_record *record, unsigned number, const char *name)
{
    if (!record)
        return;
    snprintf(record->block->phase_name, sizeof record->block->phase_name, "%s", name);
    atomic_store_explicit(&record->block->phase, number, memory_order_relaxed);
    xccl_record_note(record, XCCL_RECORD_PHASE, number);
}

void xccl_record_ready(struct xccl_record *record, int near_ranks, const char *cards,
                       const char *order)
{
    if (!record)
        return;
    record->block->near_ranks = (uint32_t)near_ranks;
    snprintf(record->block->cards, sizeof record->block->cards, "%s", cards);
    snprintf(record->block->order, sizeof record->block->order, "%s", order);
    xccl_record_note(record, XCCL_RECORD_JOINED, 0);
    /* Release: see the layout. */
    atomic_store_explicit(&record->block->state, XCCL_RECORD_READY, memory_order_release);
    mark_time();
}

void xccl_record_set_algo(struct xccl_record *record, unsigned row, const char *name,
                          uint64_t bytes)
{
    struct xccl_record_algo *algo;

    if (!record || row >= XCCL_RECORD_ROWS)
        return;
    algo = record->block->algos[row];
    for (unsigned i = 0; i + 1 < XCCL_RECORD_ALGOS && algo->name[0] &&
                         strncmp(algo->name, name, sizeof algo->name - 1) != 0;
         i++)
        algo++;
    if (strncmp(algo->name, name, sizeof algo->name - 1) != 0) {
        algo->least = algo->most = bytes;
        snprintf(algo->name, sizeof algo->name, "%s", name);
    }
    algo->least = bytes < algo->least ? bytes : algo->least;
    algo->most = bytes > algo->most ? bytes : algo->most;
}

void xccl_record_set_way(struct xccl_record *record, unsigned row, enum xccl_record_way_kind kind,
                         const char *why)
{
    struct xccl_record_way *way;

    if (!record || row >= XCCL_RECORD_WAYS)
        return;
    way = &record->block->ways[row];
    snprintf(way->why, sizeof way->why, "%s", why);
    /* Release: see the layout. */
    atomic_store_explicit(&way->kind, (uint32_t)kind, memory_order_release);
}

void xccl_record_set_ends(struct xccl_record *record, unsigned row, int sends, const char *ranks)
{
    struct xccl_record_way *way;

    if (!record || row >= XCCL_RECORD_WAYS)
        return;
    way = &record->block->ways[row];
    snprintf(sends ? way->to : way->from, sizeof way->to, "%s", ranks);
}

void xccl_record_note(struct xccl_record *record, enum xccl_record_kind kind, uint64_t value)
{
    if (record)
        xccl_record_event(record, kind, xccl_record_tick(record->clock), value,
                          atomic_load_explicit(&record->block->current, memory_order_relaxed));
}

void xccl_record_error(struct xccl_record *record, xcclResult_t rc, const char *text,
                       const struct xccl_record_cause *cause)
{
    struct xccl_record_block *block;

    if (!record)
        return;
    block = record->block;
    snprintf(block->error_text, sizeof block->error_text, "%s", text);
    snprintf(block->error_kind, sizeof block->error_kind, "%s", cause->word ? cause->word : "");
    block->error_culprit = cause->word ? cause->culprit : -1;
    block->error_finder = cause->word ? cause->finder : -1;
    block->error_remedy = cause->word ? cause->remedy_at : 0;
    atomic_store_explicit(&block->error_tick, xccl_record_tick(record->clock),
                          memory_order_relaxed);
    /* Release: the others before it. */
    atomic_store_explicit(&block->error, (uint32_t)rc, memory_order_release);
    mark_time();
}

void xccl_record_fail(struct xccl_record *record, xcclResult_t rc)
{
    struct xccl_record_block *block = record->block;

    xccl_record_add(&block->failed_calls, 1);
    xccl_record_event(record, XCCL_RECORD_FAILED, xccl_record_tick(record->clock), (uint64_t)rc,
                      record->call.word);
    /* Release: its end is told before there is no call. */
    atomic_store_explicit(&block->current, 0, memory_order_release);
}

/* Late, since no clock was read then; a reader that meets both leaves the event out. Links that
 * were made in the call may have taken its place. */
static void time_issued(struct xccl_record *record, uint64_t tick)
{
    struct xccl_record_event *event = &record->block->events[(record->issued - 1) & record->mask];

    if (atomic_load_explicit(&event->word, memory_order_relaxed) ==
        (record->issued << 8 | XCCL_RECORD_ISSUED))
        atomic_store_explicit(&event->tick, tick, memory_order_relaxed);
}

void xccl_record_begin_apart(struct xccl_record *record, const struct xccl_record_call *call)
{
    xccl_record_count_begun(xccl_record_row_of(record, call), call->bytes);
}

void xccl_record_end_apart(struct xccl_record *record, const struct xccl_record_call *call,
                           const uint64_t sent[2], const uint64_t received[2])
{
    xccl_record_count_done(xccl_record_row_of(record, call), call->bytes, sent, received);
}

void xccl_record_waits(struct xccl_record *record)
{
    struct xccl_record_block *block;
    uint64_t tick;

    if (!record)
        return;
    block = record->block;
    tick = xccl_record_tick(record->clock);
    if (!atomic_load_explicit(&block->current_tick, memory_order_relaxed)) {
        atomic_store_explicit(&block->current_tick, tick, memory_order_relaxed);
        time_issued(record, tick);
    }
    atomic_store_explicit(&block->seen_tick, tick, memory_order_relaxed);
}

/* --- sends and receives --- */

void xccl_record_p2p_clear(struct xccl_record *record)
{
    record->sends = 0;
    record->recvs = 0;
    record->own_bytes = 0;
    memset(record->sent, 0, sizeof record->sent);
    memset(record->received, 0, sizeof record->received);
}

void xccl_record_p2p_add(struct xccl_record *record, int sends, int where, uint64_t bytes)
{
    if (sends)
        record->sends++;
    else
        record->recvs++;
    if (!where)
        record->own_bytes += sends ? bytes : 0;
    else if (sends)
        record->sent[where - 1] += bytes;
    else
        record->received[where - 1] += bytes;
}

static uint64_t sent_bytes(const struct xccl_record *record)
{
    return record->sent[0] + record->sent[1] + record->own_bytes;
}

static uint64_t received_bytes(const struct xccl_record *record)
{
    return record->received[0] + record->received[1] + record->own_bytes;
}

void xccl_record_p2p_begin(struct xccl_record *record)
{
    struct xccl_record_row *sends = &record->block->rows[XCCL_RECORD_SEND];
    struct xccl_record_row *recvs = &record->block->rows[XCCL_RECORD_RECV];

    record->call = (struct xccl_record_call){
        .word = xccl_record_call_word(0, XCCL_RECORD_P2P, 0, 0, 0),
        .count = record->sends + record->recvs,
    };
    xccl_record_add(&sends->issued_calls, record->sends);
    xccl_record_add(&sends->issued_bytes, sent_bytes(record));
    xccl_record_add(&recvs->issued_calls, record->recvs);
    xccl_record_add(&recvs->issued_bytes, received_bytes(record));
    xccl_record_enter(record, record->call.word, sent_bytes(record) + received_bytes(record));
}

void xccl_record_p2p_end(struct xccl_record *record)
{
    struct xccl_record_row *sends = &record->block->rows[XCCL_RECORD_SEND];
    struct xccl_record_row *recvs = &record->block->rows[XCCL_RECORD_RECV];

    xccl_record_add(&sends->done_calls, record->sends);
    xccl_record_add(&sends->done_bytes, sent_bytes(record));
    xccl_record_add(&sends->sent_near, record->sent[0]);
    xccl_record_add(&sends->sent_far, record->sent[1]);
    xccl_record_add(&recvs->done_calls, record->recvs);
    xccl_record_add(&recvs->done_bytes, received_bytes(record));
    xccl_record_add(&recvs->received_near, record->received[0]);
    xccl_record_add(&recvs->received_far, record->received[1]);
    xccl_record_leave(record);
}

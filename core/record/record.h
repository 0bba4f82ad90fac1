/* SPDX-License-Identifier: BSD-3-Clause */
/* Counters and the flight recorder of a communicator: what it has done, in memory that outlives the
 * process when that is killed, for `xccl report`. A record that cannot be made is none: its pointer
 * is NULL, every function takes that, and nothing fails because of it.
 *
 * Cost: two events, some additions, and a look at the clock only where it is cheap beside the call:
 * in each call of XCCL_RECORD_LARGE bytes or more, in one of XCCL_RECORD_SAMPLE others, and while a
 * call waits, for free. The events between lie, in time, between those.
 *
 * Thread: open and close any; the others the crank's holder, or before that the one that joins;
 * xccl_record_error any, under the communicator's error lock. */
#ifndef XCCL_RECORD_RECORD_H
#define XCCL_RECORD_RECORD_H

#include "record/record_clock.h"
#include "xccl_types.h"

#define XCCL_RECORD_LARGE  65536u
#define XCCL_RECORD_SAMPLE 16u /* a power of two */

/* What a call is, and what it is counted as. */
struct xccl_record_call {
    uint64_t word; /* xccl_record_call_word() */
    uint64_t count, bytes;
};

/* The writer's side of a block. The first line is what a call touches. */
struct xccl_record {
    alignas(64) struct xccl_record_block *block;
    uint64_t next; /* number of the next event */
    uint32_t mask; /* events - 1 */
    int timed; /* 1: the end of the call at work is told by the clock */
    uint64_t issued; /* number of its first event */
    struct xccl_record_call call; /* at work, or the last one */
    struct xccl_record_row *row; /* of call, if it is a collective */
    uint64_t plans; /* the owner's: of how many it has been told */
    enum xccl_record_clock clock;
    /* Of a group of sends and receives at work: */
    uint64_t sends, recvs;
    uint64_t sent[2], received[2]; /* bytes to and from others, as in xccl_record_end() */
    uint64_t own_bytes; /* to itself */
};

struct xccl_record_who {
    int rank, nranks;
    const uint8_t *id; /* 16 bytes */
    const char *name, *labels; /* "": none */
};

/* Why a communicator has failed, for machines. */
struct xccl_record_cause {
    const char *word; /* the kind of trouble; NULL: only the text is known */
    int culprit, finder; /* ranks; -1: none */
    uint32_t remedy_at; /* in the text; 0: not known */
};

/* NULL: switched off by XCCL_RECORD, or there are too many communicators in this process. Where no
 * file can be had the memory is the process's own, with one warning a process. */
struct xccl_record *xccl_record_open(const struct xccl_record_who *who);
/* The communicator is no more; with the last one the process's file goes. Sets *record to NULL. */
void xccl_record_close(struct xccl_record **record);

/* --- what is rare --- */

/* A split knows only after a while who it is. */
void xccl_record_describe(struct xccl_record *record, const struct xccl_record_who *who);
/* Phase `number` of joining begins; name as far as 23 bytes. */
void xccl_record_phase(struct xccl_record *record, unsigned number, const char *name);
/* Joined: calls may begin. near_ranks: ranks of this host. */
void xccl_record_ready(struct xccl_record *record, int near_ranks, const char *cards,
                       const char *order);
/* A plan for calls of so many bytes runs this algorithm. */
void xccl_record_set_algo(struct xccl_record *record, unsigned row, const char *name,
                          uint64_t bytes);
void xccl_record_note(struct xccl_record *record, enum xccl_record_kind kind, uint64_t value);
/* What row `row` of ways says from now on. */
void xccl_record_set_way(struct xccl_record *record, unsigned row, enum xccl_record_way_kind kind,
                         const char *why);
/* And the peers that links of it lead to, or come from. */
void xccl_record_set_ends(struct xccl_record *record, unsigned row, int sends, const char *ranks);
/* The communicator's first error. */
void xccl_record_error(struct xccl_record *record, xcclResult_t rc, const char *text,
                       const struct xccl_record_cause *cause);
/* Ends the call at work as failed. */
void xccl_record_fail(struct xccl_record *record, xcclResult_t rc);

/* --- calls --- */

/* One writer: no atomic addition is needed. Relaxed: a reader takes each for itself. */
static inline void xccl_record_add(_Atomic uint64_t *counter, uint64_t value)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + value,
                          memory_order_relaxed);
}

static inline void xccl_record_event(struct xccl_record *record, enum xccl_record_kind kind,
                                     uint64_t tick, uint64_t value, uint64_t call)
{
    uint64_t number = record->next++;
    struct xccl_record_event *event = &record->block->events[(number - 1) & record->mask];

    atomic_store_explicit(&event->word, 0, memory_order_relaxed);
    /* Release: a reader that sees one of the next stores sees the 0 too, or a later word. Pairs
     * with the barrier between the two copies that a reader makes (record_read.c). */
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&event->tick, tick, memory_order_relaxed);
    atomic_store_explicit(&event->value, value, memory_order_relaxed);
    atomic_store_explicit(&event->call, call, memory_order_relaxed);
    /* Release: what belongs to the number before it; likewise. */
    atomic_store_explicit(&event->word, number << 8 | (uint64_t)kind, memory_order_release);
}

/* word: of the call. It is stored and not loaded again, for a load that finds a part of what it
 * wants in a store on its way waits for that. */
static inline void xccl_record_enter(struct xccl_record *record, uint64_t word, uint64_t bytes)
{
    struct xccl_record_block *block = record->block;
    uint64_t tick = 0;

    record->call.word = word;
    /* Two events a call. */
    record->timed = bytes >= XCCL_RECORD_LARGE ||
                    (record->next / 2 & (XCCL_RECORD_SAMPLE - 1)) == 0;
    if (__builtin_expect(record->timed, 0))
        tick = xccl_record_tick(record->clock);
    atomic_store_explicit(&block->current_count, record->call.count, memory_order_relaxed);
    atomic_store_explicit(&block->current_tick, tick, memory_order_relaxed);
    atomic_store_explicit(&block->seen_tick, tick, memory_order_relaxed);
    /* Release: what the call is before that there is one; for readers of a dead process's file the
     * order of stores is that in which they became visible. */
    atomic_store_explicit(&block->current, word, memory_order_release);
    record->issued = record->next;
    xccl_record_event(record, XCCL_RECORD_ISSUED, tick, record->call.count, word);
}

static inline void xccl_record_leave(struct xccl_record *record)
{
    struct xccl_record_block *block = record->block;
    uint64_t tick = atomic_load_explicit(&block->seen_tick, memory_order_relaxed);

    if (__builtin_expect(record->timed, 0))
        tick = xccl_record_tick(record->clock);
    xccl_record_event(record, XCCL_RECORD_DONE, tick, record->call.count, record->call.word);
    /* Release: its end is told before there is no call. */
    atomic_store_explicit(&block->current, 0, memory_order_release);
}

static inline struct xccl_record_row *xccl_record_row_of(const struct xccl_record *record,
                                                         const struct xccl_record_call *call)
{
    return &record->block->rows[call->word >> 8 & (XCCL_RECORD_ROWS - 1)];
}

/* What the next calls are; each still has to set its number in call.word. */
static inline void xccl_record_set_call(struct xccl_record *record,
                                        const struct xccl_record_call *call)
{
    record->call = *call;
    record->row = xccl_record_row_of(record, call);
}

static inline void xccl_record_count_begun(struct xccl_record_row *row, uint64_t bytes)
{
    xccl_record_add(&row->issued_calls, 1);
    xccl_record_add(&row->issued_bytes, bytes);
}

static inline void xccl_record_count_done(struct xccl_record_row *row, uint64_t bytes,
                                          const uint64_t sent[2], const uint64_t received[2])
{
    xccl_record_add(&row->done_calls, 1);
    xccl_record_add(&row->done_bytes, bytes);
    xccl_record_add(&row->sent_near, sent[0]);
    xccl_record_add(&row->received_near, received[0]);
    if (sent[1] | received[1]) {
        xccl_record_add(&row->sent_far, sent[1]);
        xccl_record_add(&row->received_far, received[1]);
    }
}

/* The collective of record->call has begun, in its call of that word. */
static inline void xccl_record_begin(struct xccl_record *record, uint64_t word)
{
    xccl_record_count_begun(record->row, record->call.bytes);
    xccl_record_enter(record, word, record->call.bytes);
}

/* It is done. sent and received: payload that crossed links, by [0] own host and [1] others. */
static inline void xccl_record_end(struct xccl_record *record, const uint64_t sent[2],
                                   const uint64_t received[2])
{
    xccl_record_count_done(record->row, record->call.bytes, sent, received);
    xccl_record_leave(record);
}

/* Begin and end of a call while the record shows another one as at work: it is counted only. */
void xccl_record_begin_apart(struct xccl_record *record, const struct xccl_record_call *call);
void xccl_record_end_apart(struct xccl_record *record, const struct xccl_record_call *call,
                           const uint64_t sent[2], const uint64_t received[2]);

/* The call at work was seen to wait. */
void xccl_record_waits(struct xccl_record *record);

/* Sends and receives of a group: first clear, then each, then begin. where: 0 to itself, else 1 to
 * a rank of this host, 2 to another one's. */
void xccl_record_p2p_clear(struct xccl_record *record);
void xccl_record_p2p_add(struct xccl_record *record, int sends, int where, uint64_t bytes);
void xccl_record_p2p_begin(struct xccl_record *record);
void xccl_record_p2p_end(struct xccl_record *record);

#endif

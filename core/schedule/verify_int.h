/* SPDX-License-Identifier: BSD-3-Clause */
/* The verifier from inside. verify_net.c matches the connections of all ranks, verify_value.c keeps
 * sets of ranks, verify_run.c runs the schedules on values instead of bytes, verify_clock.c finds
 * unordered accesses, verify_direct.c keeps what direct sends still read, verify_output.c looks at
 * the outputs, verify_tell.c puts refusals into words, verify.c and verify_prove.c are the entries.
 *
 * Lanes, connections, steps and cells are numbered over all ranks here. Thread: any; each
 * verification has memory of its own. */
#ifndef XCCL_SCHEDULE_VERIFY_INT_H
#define XCCL_SCHEDULE_VERIFY_INT_H

#include <stddef.h>

#include "schedule/decode.h"
#include "schedule/verify.h"

#define XCCL_VERIFY_SLOTS_MAX 4096

/* ---- sets of ranks (verify_value.c) ---- */

/* Each set is kept once, so that equal sets have equal numbers. 0 is the empty set, rank + 1 the
 * set of one rank. */
struct xccl_rank_sets {
    uint32_t nranks, words, count;
    uint64_t **blocks; /* of the bits: sets never move */
    uint32_t nblocks;
    uint64_t *hashes;
    uint32_t *sizes;
    uint32_t capacity; /* of hashes, sizes and memo */
    uint32_t *table; /* open addressing, by hash */
    uint32_t table_mask;
    struct xccl_rank_sets_memo *memo; /* of each set: its last union with an older one */
};

xcclResult_t xccl_rank_sets_init(struct xccl_rank_sets *sets, int nranks);
void xccl_rank_sets_fini(struct xccl_rank_sets *sets);
/* The union. *overlap_out: they have a rank in common. */
xcclResult_t xccl_rank_sets_join(struct xccl_rank_sets *sets, uint32_t a, uint32_t b,
                                 uint32_t *set_out, int *overlap_out);
int xccl_rank_sets_has(const struct xccl_rank_sets *sets, uint32_t set, uint32_t rank);

static inline uint64_t xccl_mix64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* ---- the network (verify_net.c) ---- */

struct xccl_verify_rank {
    uint32_t lane0, nlanes, conn0, step0, wait0;
};

/* A FIFO or a multicast: one writer, and readers that each see every message. */
struct xccl_verify_queue {
    uint32_t writer; /* lane */
    uint32_t rank; /* of the writer */
    uint32_t reader0, nreaders;
};

struct xccl_verify_reader {
    uint32_t queue, lane, rank;
};

/* What does not change from run to run. */
struct xccl_verify_net {
    struct xccl_schedule *const *schedules;
    uint32_t nranks, nlanes, nconns, nqueues, nreaders, nsignals, nwaits;
    uint32_t parts; /* that every chunk is cut into by the lanes' nparts */
    uint32_t scrbufs; /* the most of a rank */
    enum xccl_coll coll;
    int reduces, step_major, many_lanes; /* some lane or some rank */
    struct xccl_verify_rank *ranks;
    uint32_t *ends; /* of each connection: its queue, or its reader where it receives */
    struct xccl_verify_queue *queues;
    struct xccl_verify_reader *readers;
    uint32_t *signals; /* of each step: its number among those with SIGNAL */
    uint32_t *wait_steps; /* of each wait: the step of the other lane */
};

/* verdict->kind is not XCCL_VERDICT_PROVEN where the schedules do not fit together; then there is
 * no network. */
xcclResult_t xccl_verify_net_init(struct xccl_verify_net *net,
                                  struct xccl_schedule *const *schedules, int nranks,
                                  struct xccl_verdict *verdict);
void xccl_verify_net_fini(struct xccl_verify_net *net);

/* ---- the run ---- */

#define XCCL_CLASS_NONE UINT32_MAX /* no memory: has no size */
#define XCCL_CLASS_ANY  (UINT32_MAX - 1) /* scratch: as large as it must be */
#define XCCL_CELL_NONE  SIZE_MAX /* nothing that anybody writes */
#define XCCL_NO_MARK    UINT32_MAX

#define XCCL_VALUE_RAW    1 /* a contribution before PRE */
#define XCCL_VALUE_POSTED 2

/* set 0: nothing was ever written here, or a message without data. */
struct xccl_value {
    uint64_t order; /* a hash of how it was summed */
    uint32_t set; /* whose contributions */
    uint32_t origin; /* size class of the chunk of the user that it belongs to */
    uint16_t tile, flags;
};

/* A place in few bytes. */
struct xccl_spot {
    uint32_t lane;
    uint16_t step, occ, chunk, tile;
};

struct xccl_message {
    struct xccl_value value;
    uint32_t class;
    struct xccl_spot from;
};

struct xccl_verify_queue_state {
    uint32_t sent, freed; /* freed: read by all readers */
    uint32_t room;
    struct xccl_message *messages; /* number k at k modulo room */
    uint32_t *clocks; /* of each: as it was sent, as it was freed; with clocks only */
};

struct xccl_verify_reader_state {
    uint32_t consumed, posted;
};

enum xccl_verify_phase { XCCL_PHASE_WAIT, XCCL_PHASE_SEND, XCCL_PHASE_POST, XCCL_PHASE_GO };

/* What a lane waits for, and of whom. */
enum xccl_verify_block {
    XCCL_BLOCK_NONE,
    XCCL_BLOCK_MESSAGE, /* number of the reader */
    XCCL_BLOCK_SLOT, /* number of the queue */
    XCCL_BLOCK_SIGNAL, /* number of the wait */
    XCCL_BLOCK_MARK /* number of the mark */
};

struct xccl_verify_side {
    enum xccl_step_buffer buffer;
    uint32_t chunk, class;
    size_t cell;
};

struct xccl_verify_lane {
    const struct xccl_schedule *schedule;
    const struct xccl_step *step;
    struct xccl_event event;
    struct xccl_verify_side src, dst;
    const uint32_t *sends, *recvs; /* queues and readers of the event */
    /* By buffer: where chunks begin, and size classes (verify_memory.c). */
    uint32_t class0[4], class_step[4];
    size_t cell0[4];
    uint32_t alias_first, naliases; /* chunks of IN that have cells */
    uint32_t number, rank, lane, part;
    uint32_t istep, occ, chunk, tile;
    uint32_t block_on;
    uint32_t known; /* barrier: the ranks that have come, as far as this lane has heard */
    uint8_t phase, block, queued, ended;
    uint8_t skip_send, skip_recv; /* the chunk is empty */
};

struct xccl_verify_memory {
    size_t cell0;
    uint32_t nout; /* chunks of OUT, times parts */
    uint32_t nscratch, scrbufs;
    uint32_t alias_in, alias_out; /* in place: IN alias_in + k lies in OUT alias_out + k ... */
    uint32_t naliases; /* ... for so many k */
};

/* Direct sends that may still read a cell (verify_direct.c). */
struct xccl_verify_mark {
    uint32_t queue, message, next;
    struct xccl_spot from;
};

struct xccl_verify_how {
    uint32_t nslots, tiles;
    int in_place, direct;
    int values; /* 0: only whether it ends */
    int clocks;
    const uint8_t *sizes;
};

struct xccl_verify_run {
    const struct xccl_verify_net *net;
    struct xccl_verify_how how;
    struct xccl_rank_sets *sets; /* lives longer than a run */
    struct xccl_verdict *verdict;
    struct xccl_verify_lane *lanes;
    struct xccl_verify_queue_state *queues;
    struct xccl_verify_reader_state *readers;
    uint32_t *ready; /* ring of lanes */
    uint32_t ready_first, ready_count, ended;
    struct xccl_verify_memory *memory;
    size_t ncells;
    struct xccl_value *cells;
    uint32_t *touched; /* with many lanes: of each cell, who was there */
    int contended; /* a cell is written by one lane and touched by another */
    uint32_t *marks0; /* direct: first mark of each cell */
    struct xccl_verify_mark *marks;
    uint32_t nmarks, marks_room, marks_free;
    struct xccl_verify_clocks *clocks;
    uint32_t *signal_known; /* barrier: of each signal */
};

/* sets NULL is fine without values. */
xcclResult_t xccl_verify_run_init(struct xccl_verify_run *run, const struct xccl_verify_net *net,
                                  const struct xccl_verify_how *how, struct xccl_rank_sets *sets,
                                  struct xccl_verdict *verdict);
void xccl_verify_run_fini(struct xccl_verify_run *run);
/* Puts a lane that waits back on the list. */
void xccl_verify_make_ready(struct xccl_verify_run *run, uint32_t lane);
/* Those that wait for a message of the queue. */
void xccl_verify_wake_readers(struct xccl_verify_run *run, uint32_t queue);
/* What an event does (verify_event.c), when it has all it needs. Receives, combines, stores and
 * sends: all but the send of an exchange, which is send_source. */
xcclResult_t xccl_verify_receive(struct xccl_verify_run *run, struct xccl_verify_lane *at);
xcclResult_t xccl_verify_send_source(struct xccl_verify_run *run, struct xccl_verify_lane *at);
/* Barrier: the lane has heard of these ranks. */
xcclResult_t xccl_verify_hear(struct xccl_verify_run *run, struct xccl_verify_lane *at,
                              uint32_t set);
/* To the end, or until something is refused; the verdict tells. */
xcclResult_t xccl_verify_run_go(struct xccl_verify_run *run);
/* Of memory as this collective lays it out (verify_memory.c): for the lane's rank and part, at the
 * start; for its tile, at every new one. */
void xccl_verify_lay_out(const struct xccl_verify_run *run, struct xccl_verify_lane *at);
void xccl_verify_lay_out_tile(const struct xccl_verify_run *run, struct xccl_verify_lane *at);

static inline uint32_t xccl_verify_class(const struct xccl_verify_lane *at,
                                         enum xccl_step_buffer buffer, uint32_t chunk)
{
    return at->class0[buffer] + chunk * at->class_step[buffer];
}

static inline size_t xccl_verify_cell(const struct xccl_verify_run *run,
                                      const struct xccl_verify_lane *at,
                                      enum xccl_step_buffer buffer, uint32_t chunk)
{
    if (buffer == XCCL_BUFFER_ZERO ||
        (buffer == XCCL_BUFFER_IN && chunk - at->alias_first >= at->naliases))
        return XCCL_CELL_NONE;
    return at->cell0[buffer] + (size_t)chunk * run->net->parts;
}

static inline struct xccl_spot xccl_verify_spot(const struct xccl_verify_lane *at)
{
    return (struct xccl_spot){.lane = at->number,
                              .step = (uint16_t)at->istep,
                              .occ = (uint16_t)at->occ,
                              .chunk = (uint16_t)at->chunk,
                              .tile = (uint16_t)at->tile};
}

/* The contribution that a cell, or IN where cell is XCCL_CELL_NONE, holds before anything ran;
 * set 0: none. */
struct xccl_value xccl_verify_initial(const struct xccl_verify_run *run,
                                      const struct xccl_verify_lane *at, size_t cell,
                                      uint32_t chunk);
xcclResult_t xccl_verify_memory_init(struct xccl_verify_run *run);
/* No exchange may receive into what it sends as a later chunk of the same occurrence. */
xcclResult_t xccl_verify_exchanges(struct xccl_verify_run *run);
/* Fills verdict->class and hash, or refuses. */
xcclResult_t xccl_verify_outputs(struct xccl_verify_run *run);

/* ---- direct sends (verify_direct.c) ---- */

xcclResult_t xccl_verify_mark_add(struct xccl_verify_run *run, const struct xccl_verify_lane *at,
                                  size_t cell, uint32_t queue);
/* The first mark of the cell whose receive is not posted, or XCCL_NO_MARK. */
uint32_t xccl_verify_mark_pending(struct xccl_verify_run *run, size_t cell);
int xccl_verify_mark_done(const struct xccl_verify_run *run, const struct xccl_verify_mark *mark);

/* ---- clocks (verify_clock.c) ---- */

xcclResult_t xccl_verify_clocks_create(struct xccl_verify_run *run);
void xccl_verify_clocks_destroy(struct xccl_verify_clocks *clocks); /* NULL is fine */
/* A new moment of the lane. */
void xccl_verify_clock_tick(struct xccl_verify_run *run, const struct xccl_verify_lane *at);
/* The lane's clock as it is now, kept until it was forgotten as often as it was kept or shared.
 * Number 0: no clock. */
xcclResult_t xccl_verify_clock_keep(struct xccl_verify_run *run, const struct xccl_verify_lane *at,
                                    uint32_t *kept_out);
void xccl_verify_clock_forget(struct xccl_verify_run *run, uint32_t kept);
void xccl_verify_clock_join(struct xccl_verify_run *run, const struct xccl_verify_lane *at,
                            uint32_t kept);
/* The next message of the queue is sent with this clock. */
void xccl_verify_clock_send(struct xccl_verify_run *run, struct xccl_verify_queue_state *queue,
                            uint32_t kept);
/* Before an event sends: joins the clocks of those who freed the slots that it uses. */
void xccl_verify_clock_slots(struct xccl_verify_run *run, const struct xccl_verify_lane *at);
/* The lane has consumed message k of the queue. */
xcclResult_t xccl_verify_clock_consume(struct xccl_verify_run *run,
                                       const struct xccl_verify_lane *at,
                                       struct xccl_verify_queue_state *queue, uint32_t k);
/* At the end of a step with SIGNAL; at a wait for it, if that tile ever was. */
xcclResult_t xccl_verify_clock_signal(struct xccl_verify_run *run,
                                      const struct xccl_verify_lane *at, uint32_t signal);
void xccl_verify_clock_wait(struct xccl_verify_run *run, const struct xccl_verify_lane *at,
                            uint32_t signal, uint32_t tile);
/* A direct receive: its memory is written as soon as it is posted and sent, before this event has
 * its slots. */
xcclResult_t xccl_verify_clock_direct(struct xccl_verify_run *run,
                                      const struct xccl_verify_lane *at);
/* Refuses an access that is not ordered with those before it. */
xcclResult_t xccl_verify_clock_access(struct xccl_verify_run *run,
                                      const struct xccl_verify_lane *at, size_t cell, int write);

/* ---- words (verify_tell.c) ---- */

/* The first refusal counts. Begins the text with where the lane is. */
void xccl_verify_refuse(struct xccl_verify_run *run, const struct xccl_verify_lane *at,
                        enum xccl_verdict_kind kind, const char *fmt, ...)
    __attribute__((format(printf, 4, 5), cold));
/* Adds another place to the refusal just made: "WORDS rank ...". WORDS begin with their blank. */
void xccl_verify_refuse_other(struct xccl_verify_run *run, const struct xccl_spot *spot,
                              const char *words);
/* Without a place in a lane. */
void xccl_verdict_refuse(struct xccl_verdict *verdict, enum xccl_verdict_kind kind, int rank,
                         const char *fmt, ...) __attribute__((format(printf, 4, 5), cold));
/* Why lanes stand still: a shortest circle of who waits for whom. */
void xccl_verify_tell_deadlock(struct xccl_verify_run *run);
const char *xccl_verify_op_words(const struct xccl_step *step);
const char *xccl_verify_buffer_words(enum xccl_step_buffer buffer);

/* ---- the proof ---- */

/* The least number of slots with which a tile ends, at least 1; refuses where there is none. */
xcclResult_t xccl_verify_minslots(const struct xccl_verify_net *net, struct xccl_verdict *verdict);
/* Outputs and races too. unmark: where a direct run is refused, takes the marks off that it was
 * refused for; *unmarked_out says how many. NULL: leaves them. */
xcclResult_t xccl_verify_data(const struct xccl_verify_net *net, const struct xccl_verify_how *how,
                              struct xccl_rank_sets *sets, struct xccl_verdict *verdict,
                              uint32_t *unmarked_out);
int xccl_verify_has_aliases(enum xccl_coll coll);
/* How many tiles a data run needs. */
uint32_t xccl_verify_tiles(const struct xccl_verify_net *net, uint32_t nslots);

#endif

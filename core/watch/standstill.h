/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that wait for each other in a circle, because what they do does not belong together: one
 * receives what nobody sends while the others are in a collective. No link shows that, and no call
 * has a number there. A rank that has waited for a while says what it waits for, and the control
 * plane carries that round the ring; whoever finds itself in a circle raises the error.
 *
 * A circle is believed only if each of its ranks has said the same twice, and all of them stood at
 * one time: a rank that goes on does not say so. Messages are counted, so that one on its way ends
 * no wait wrongly. Communicators of more than XCCL_STILL_RANKS ranks do without: there the deadline
 * remains.
 *
 * Thread: the crank's holder; take: the service thread, by the loop's lock. */
#ifndef XCCL_WATCH_STANDSTILL_H
#define XCCL_WATCH_STANDSTILL_H

#include "comm/comm.h"

#define XCCL_STILL_RANKS 64
#define XCCL_STILL_ITEMS 8 /* messages that a rank names */
#define XCCL_STILL_BYTES (32 + 32 + XCCL_STILL_ITEMS * 16 + XCCL_STILL_RANKS * 4)

enum xccl_still_kind {
    XCCL_STILL_NONE,
    XCCL_STILL_CALL,
    XCCL_STILL_MESSAGES,
    XCCL_STILL_SPLIT,
    XCCL_STILL_TALK /* makes links for a call of its device, the next one that it will begin */
};

/* Ranks that a call waits for. */
enum xccl_still_needs { XCCL_NEEDS_NOBODY, XCCL_NEEDS_ROOT, XCCL_NEEDS_ALL };

/* A message that a rank waits for, or cannot send. */
struct xccl_still_item {
    int16_t peer;
    uint8_t sends, connects;
    uint32_t number; /* messages of this pair and direction before it */
    uint64_t bytes;
};

/* Where a rank stands. */
struct xccl_still {
    enum xccl_still_kind kind;
    uint32_t epoch, tick; /* epoch: changes when something has moved; tick: how often it was said */
    uint32_t splits, talks, needs, item_count;
    struct xccl_board_call call; /* the call at hand; seq also when it is in none: the last one's */
    struct xccl_still_item items[XCCL_STILL_ITEMS];
    uint32_t sent[XCCL_STILL_RANKS]; /* by rank: messages that went there so far */
};

struct xccl_standstill;

/* NULL, without an error: there are too many ranks. */
xcclResult_t xccl_standstill_create(const struct xcclComm *comm, struct xccl_standstill **out);
void xccl_standstill_free(struct xccl_standstill *still); /* NULL is fine */

/* Fills in where this rank stands, without epoch, tick and counts. */
typedef void xccl_still_fill(struct xcclComm *comm, struct xccl_still *own);
/* Looks for a circle in the slow branch of a wait; `fill` is called when it is time to say where
 * this rank stands. An error: it stands in a circle. */
xcclResult_t xccl_standstill_check(struct xcclComm *comm, uint64_t waited_ns,
                                   xccl_still_fill *fill);
/* A rank that has begun a split which this one has not; XCCL_NOBODY: none is known. */
int xccl_standstill_splitter(struct xcclComm *comm);
/* This rank has begun to split the communicator. */
void xccl_standstill_split(struct xcclComm *comm);

/* The rank that a frame is of; XCCL_NOBODY: it is none. */
int xccl_standstill_rank_of(uint8_t *body, size_t bytes, int nranks);
/* A rank's frame has come. 0: it is none. */
int xccl_standstill_take(struct xccl_standstill *still, uint8_t *body, size_t bytes, int *rank_out);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Proves that the schedules of all ranks do what their collective promises, before anything runs.
 *
 * One abstract run decides: lanes are sequential, connections have one writer and one reader (or
 * one writer and k), and nothing polls, so neither the values nor whether it hangs depend on
 * timing. A value is the set of contributions it holds and the shape of its sum. Proven are:
 *
 *   - it ends for messages of any size with that many slots (one tile's events are free of cycles);
 *   - no message is left over, and each goes between chunks of one size class;
 *   - every output is complete, every contribution is in it once, with one PRE and one POST;
 *   - nothing is read that was never written, and no two lanes of a rank touch a chunk unordered;
 *   - with direct transfers: all that again where a send ends only when its receive is posted.
 *
 * Thread: any. */
#ifndef XCCL_SCHEDULE_VERIFY_H
#define XCCL_SCHEDULE_VERIFY_H

#include "schedule/schedule.h"

struct xccl_verify_for {
    int nslots; /* of each connection; 0: the least with which it ends */
    int in_place; /* IN and OUT are the same memory where the collective allows it */
    int direct; /* each transfer that is marked DIRECT_SEND or DIRECT_RECV is one */
    int tiles; /* 0: scrbufs + 2 */
    /* Tiles that chunks have in this call, by size class (for all-to-all the pair from * n + to);
     * NULL: all that are run. Both ends skip the others. */
    const uint8_t *sizes;
};

enum xccl_verdict_kind {
    XCCL_VERDICT_PROVEN,
    XCCL_VERDICT_SHAPE, /* ends of a connection do not fit, or a table is wrong */
    XCCL_VERDICT_DEADLOCK,
    XCCL_VERDICT_LEFT_OVER, /* messages */
    XCCL_VERDICT_SIZE, /* a message between chunks of different size */
    XCCL_VERDICT_UNWRITTEN, /* a read of what nobody wrote, or of a buffer that is not there */
    XCCL_VERDICT_TWICE, /* a contribution */
    XCCL_VERDICT_RESULT, /* an output is not what it should be */
    XCCL_VERDICT_PRE_POST,
    XCCL_VERDICT_RACE,
    XCCL_VERDICT_EXCHANGE /* an exchange whose sends may run into its receives */
};

/* Where: rank, lane, step (of the lane), occurrence, chunk of the occurrence, tile. */
struct xccl_verdict_place {
    int rank, lane, step, occ, chunk, tile;
};

struct xccl_verdict {
    enum xccl_verdict_kind kind;
    uint16_t minslots; /* the least that suffices */
    uint8_t class; /* 1 to 3 */
    uint16_t flags; /* XCCL_SCHEDULE_EQUAL */
    uint64_t hash; /* of all outputs and of how they were summed: equal for schedules of equal
                    * results */
    struct xccl_verdict_place place,
        other; /* of the counter-example; other.rank -1: there is none */
    char text[1024]; /* it, in words; empty when proven */
};

/* xcclSuccess also for a schedule that is refused: the verdict tells. */
xcclResult_t xccl_verify(struct xccl_schedule *const *schedules, int nranks,
                         const struct xccl_verify_for *how, struct xccl_verdict *verdict_out);

/* The whole proof: with minslots and with 8 slots, in place and not, buffered and direct. Writes
 * minslots, class, flags and the direct marks into the schedules: the marks of all transfers that
 * can be direct, less those of steps which the direct proof refuses. */
xcclResult_t xccl_prove(struct xccl_schedule *const *schedules, int nranks,
                        struct xccl_verdict *verdict_out);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* A random program of checked calls that all ranks of a job run, drawn from a seed: collectives of
 * all kinds with counts from 0 on, messages round a ring, forms with a count for each rank,
 * streams, splits whose children come and go, a second communicator that does not block, groups
 * over two and three communicators. Each result is compared with what the seed says. One rank may
 * make one call that the others do not make.
 *
 * Thread: the rank's. */
#ifndef XT_CAMPAIGN_H
#define XT_CAMPAIGN_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "xccl.h"

#define CAMPAIGN_RANKS_MAX 6
#define CAMPAIGN_TEXT      640
#define CAMPAIGN_COUNT_MAX 70000
/* Elements of in and out. */
#define CAMPAIGN_ROOM       ((size_t)CAMPAIGN_COUNT_MAX * CAMPAIGN_RANKS_MAX)
#define CAMPAIGN_ROOM_SPARE 64

/* How a rank's call differs from that of the others. */
enum odd { ODD_ROOT, ODD_COUNT, ODD_TYPE, ODD_CALL, ODD_SKIP, ODDS };

/* Communicators that a step uses. */
enum place { IN_MAIN, IN_OTHERS };

/* A player: one rank at its program. */
struct player {
    uint64_t seed; /* of the program; the same on all ranks */
    int rank, nranks, on_device;
    xcclComm_t comm, child; /* child: of the last split, NULL: none */
    xcclComm_t second; /* does not block, of all ranks; NULL: none */
    int child_rank, child_count, child_first; /* child_first: its rank 0, in comm */
    int child_stride; /* from one of its ranks to the next */
    uint32_t *in, *out;
    xcclStream_t stream;
    void *there_in, *there_out; /* on the device */
    size_t filled; /* elements of in that the step has written */
    int odd; /* enum odd of the next call where it fits; ODDS: none */
    int odd_leaves_message; /* it leaves out a message that another rank waits for */
    void (*before_odd)(struct player *player);
    void *arg;
    uint64_t wrong; /* elements */
    enum place failed_in;
    char text[CAMPAIGN_TEXT]; /* of the first error */
};

/* Memory for the calls; ends the rank as failed when there is none. */
void player_open(struct player *player);
void player_close(struct player *player);

/* Runs a step of the program. An error is the first of a call, and its text is kept. */
xcclResult_t player_step(struct player *player, uint32_t step);

/* "all-reduce of 3000", for a failure's text. */
void campaign_step_text(uint64_t seed, uint32_t step, char *text_out, size_t bytes);

/* ---- memory of a player ---- */

/* Buffers as calls take them, from an element on. */
void *player_in(const struct player *player, size_t at);
void *player_out(const struct player *player, size_t at);
/* After in was written, before a call. */
void player_push(struct player *player);
/* The stream that a call is given which need not have one. */
xcclStream_t player_lane(const struct player *player);
/* Waits for what a call has begun, rc being what it returned; then its results are in out. */
xcclResult_t player_await(struct player *player, xcclComm_t comm, xcclResult_t rc);

#endif

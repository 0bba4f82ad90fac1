/* SPDX-License-Identifier: BSD-3-Clause */
/* Schedules of all ranks together, for tests of the verifier: generated ones, ways to damage them,
 * and small ones made by hand. */
#ifndef TESTS_UNIT_SCHEDULE_SCHEDULE_RANKS_H
#define TESTS_UNIT_SCHEDULE_SCHEDULE_RANKS_H

#include <string.h>

#include "schedule/generators.h"
#include "schedule/verify.h"
#include "xt.h"

#define RANKS_MAX 24

#define SRC  XCCL_STEP_SRC
#define DST  XCCL_STEP_DST
#define RECV XCCL_STEP_RECV
#define SEND XCCL_STEP_SEND
#define ACC  XCCL_STEP_ACC
#define XCHG XCCL_STEP_XCHG

#define IN_OUT          XCCL_STEP_BUFS(XCCL_BUFFER_IN, XCCL_BUFFER_OUT)
#define IN_SCRATCH      XCCL_STEP_BUFS(XCCL_BUFFER_IN, XCCL_BUFFER_SCRATCH)
#define OUT_OUT         XCCL_STEP_BUFS(XCCL_BUFFER_OUT, XCCL_BUFFER_OUT)
#define SCRATCH_OUT     XCCL_STEP_BUFS(XCCL_BUFFER_SCRATCH, XCCL_BUFFER_OUT)
#define SCRATCH_SCRATCH XCCL_STEP_BUFS(XCCL_BUFFER_SCRATCH, XCCL_BUFFER_SCRATCH)
#define ZERO_ZERO       XCCL_STEP_BUFS(XCCL_BUFFER_ZERO, XCCL_BUFFER_ZERO)

struct ranks {
    int n;
    struct xccl_schedule *schedules[RANKS_MAX];
};

static inline void ranks_free(struct ranks *ranks)
{
    for (int r = 0; r < ranks->n; r++)
        xccl_schedule_destroy(ranks->schedules[r]);
}

static inline const struct xccl_generator *generator_of(enum xccl_coll coll, const char *name)
{
    int param;
    const struct xccl_generator *generator = xccl_generator_find(coll, name, &param);

    XT_CHECK(generator);
    return generator;
}

/* Of any generator. Ranks below split reach each other by multicast. */
static inline struct ranks generated_split(const struct xccl_generator *generator, int n, int root,
                                           int split)
{
    uint8_t multicast[RANKS_MAX] = {0};
    const struct xccl_generator_for what = {.nranks = n, .root = root, .multicast = multicast};
    struct ranks ranks = {.n = n};

    memset(multicast, 1, (size_t)split);
    XT_OK(xccl_generator_make_all(generator, &what, ranks.schedules));
    return ranks;
}

static inline struct ranks generated(const struct xccl_generator *generator, int n, int root)
{
    return generated_split(generator, n, root, 0);
}

static inline struct ranks ring_of(int n)
{
    return generated(generator_of(XCCL_COLL_ALL_REDUCE, "ring"), n, 0);
}

/* One rank's, of any number of ranks. */
static inline struct xccl_schedule *ring_at(int n, int rank)
{
    const struct xccl_generator_for what = {.nranks = n, .rank = rank};
    struct xccl_schedule *schedule;

    XT_OK(xccl_generator_make(generator_of(XCCL_COLL_ALL_REDUCE, "ring"), &what, &schedule));
    return schedule;
}

/* Ranks below split reach each other by multicast. */
static inline struct ranks oneshot_of(int n, int split)
{
    return generated_split(generator_of(XCCL_COLL_ALL_REDUCE, "oneshot"), n, 0, split);
}

/* ---- schedules by hand ---- */

/* One lane, or two where lane 1 begins at step split; nconns belong to lane 0. */
struct by_hand {
    enum xccl_coll coll;
    int n, nchunks, nscratch, scrbufs, nsteps, nconns, nwaits, split;
};

static inline struct ranks make(const struct by_hand *what)
{
    struct ranks ranks = {.n = what->n};

    for (int r = 0; r < what->n; r++) {
        struct xccl_schedule *s;

        XT_OK(
            xccl_schedule_create(&(struct xccl_schedule_shape){.name = "hand",
                                                               .coll = what->coll,
                                                               .nranks = (uint16_t)what->n,
                                                               .rank = (uint16_t)r,
                                                               .nchunks = (uint16_t)what->nchunks,
                                                               .nlanes = what->split ? 2 : 1,
                                                               .nscratch = (uint16_t)what->nscratch,
                                                               .scrbufs = (uint16_t)what->scrbufs,
                                                               .nsteps = (uint16_t)what->nsteps,
                                                               .nconns = (uint16_t)what->nconns,
                                                               .nwaits = (uint16_t)what->nwaits},
                                 &s));
        s->lanes[0].nstep = (uint16_t)(what->split ? what->split : what->nsteps);
        s->lanes[0].nconn = (uint16_t)what->nconns;
        if (what->split) {
            s->lanes[1].step0 = (uint32_t)what->split;
            s->lanes[1].nstep = (uint16_t)(what->nsteps - what->split);
            s->lanes[1].conn0 = (uint32_t)what->nconns;
        }
        ranks.schedules[r] = s;
    }
    return ranks;
}

static inline struct xccl_step step_of(uint8_t op, uint8_t bufs, int src, int dst)
{
    return (struct xccl_step){.op = op,
                              .bufs = bufs,
                              .fan = XCCL_STEP_FAN(op & RECV ? 1 : 0, op & SEND ? 1 : 0),
                              .rconn = 1,
                              .src = (uint16_t)src,
                              .dst = (uint16_t)dst,
                              .cnt = 1,
                              .run = 1,
                              .rep = 1};
}

/* Connection 0 sends to that rank, connection 1 receives from this. */
static inline void connect_pair(struct xccl_schedule *s, int to, int from, int id)
{
    s->conns[0] = (struct xccl_schedule_conn){
        .peer = (uint16_t)to, .dir = XCCL_CONN_SEND, .id = (uint16_t)id, .group = 0};
    s->conns[1] = (struct xccl_schedule_conn){
        .peer = (uint16_t)from, .dir = XCCL_CONN_RECV, .id = (uint16_t)id, .group = 1};
}

/* All-to-all of two ranks through one chunk of scratch that both swap. */
static inline struct ranks swap_in_scratch(uint8_t direct)
{
    struct ranks ranks = make(&(struct by_hand){.coll = XCCL_COLL_ALL_TO_ALL,
                                                .n = 2,
                                                .nchunks = 2,
                                                .nscratch = 1,
                                                .nsteps = 4,
                                                .nconns = 2});

    for (int r = 0; r < 2; r++) {
        struct xccl_schedule *s = ranks.schedules[r];

        s->steps[0] = step_of(SRC | DST, IN_OUT, r, r);
        s->steps[1] = step_of(SRC | DST, IN_SCRATCH, 1 - r, 0);
        s->steps[2] = step_of(SRC | DST | RECV | SEND | XCHG, SCRATCH_SCRATCH, 0, 0);
        s->steps[2].flags = direct;
        s->steps[3] = step_of(SRC | DST, SCRATCH_OUT, 0, 1 - r);
        connect_pair(s, 1 - r, 1 - r, 7);
    }
    return ranks;
}

/* All-reduce of two ranks: lane 0 sends and receives into scratch, then lane 1 adds up from there.
 * With dist, lane 0 waits until the scratch memory of dist tiles ago was read. */
static inline struct ranks staged(int scrbufs, int dist)
{
    struct ranks ranks = make(&(struct by_hand){.coll = XCCL_COLL_ALL_REDUCE,
                                                .n = 2,
                                                .nchunks = 1,
                                                .nscratch = 1,
                                                .scrbufs = scrbufs,
                                                .nsteps = 4,
                                                .nconns = 2,
                                                .nwaits = 2,
                                                .split = 2});

    for (int r = 0; r < 2; r++) {
        struct xccl_schedule *s = ranks.schedules[r];

        connect_pair(s, 1 - r, 1 - r, 0);
        s->waits[0] = (struct xccl_schedule_wait){.lane = 0, .sig = 5};
        s->waits[1] = (struct xccl_schedule_wait){.lane = 1, .dist = (uint8_t)dist, .sig = 6};
        s->steps[0] = step_of(SRC | SEND, IN_OUT, 0, 0);
        s->steps[0].flags = XCCL_FLAG_PRE;
        s->steps[1] = step_of(RECV | DST, SCRATCH_SCRATCH, 0, 0);
        s->steps[1].flags = XCCL_FLAG_SIGNAL;
        s->steps[1].sig = 5;
        if (dist) {
            s->steps[1].flags |= XCCL_FLAG_WAITS(1);
            s->steps[1].wait = 1;
        }
        s->steps[2] = step_of(SRC | DST, IN_OUT, 0, 0);
        s->steps[2].flags = XCCL_FLAG_PRE | XCCL_FLAG_WAITS(1);
        s->steps[3] = step_of(SRC | DST | ACC, SCRATCH_OUT, 0, 0);
        s->steps[3].flags = XCCL_FLAG_POST | XCCL_FLAG_SIGNAL;
        s->steps[3].sig = 6;
    }
    return ranks;
}

/* ---- damage ---- */

static inline struct xccl_schedule_lane *lane_with(struct xccl_schedule *s, int step)
{
    struct xccl_schedule_lane *lane = s->lanes;

    while (lane->step0 + lane->nstep <= (uint32_t)step)
        lane++;
    return lane;
}

/* by is 1 or -1. */
static inline void move_lanes_behind(struct xccl_schedule *s, struct xccl_schedule_lane *lane,
                                     int by)
{
    lane->nstep = (uint16_t)(lane->nstep + by);
    for (lane++; lane < s->lanes + s->nlanes; lane++)
        lane->step0 = (uint32_t)((int)lane->step0 + by);
}

static inline void drop_step(struct xccl_schedule *s, int step)
{
    move_lanes_behind(s, lane_with(s, step), -1);
    memmove(&s->steps[step], &s->steps[step + 1],
            (size_t)(s->nsteps - step - 1) * sizeof(*s->steps));
    s->nsteps--;
}

/* The schedule with a step twice. */
static inline void double_step(struct xccl_schedule **schedule, int step)
{
    const struct xccl_schedule *old = *schedule;
    struct xccl_schedule *s;

    XT_OK(xccl_schedule_create(&(struct xccl_schedule_shape){.name = old->name,
                                                             .coll = old->coll,
                                                             .nranks = old->nranks,
                                                             .rank = old->rank,
                                                             .root = old->root,
                                                             .nchunks = old->nchunks,
                                                             .nlanes = old->nlanes,
                                                             .nscratch = old->nscratch,
                                                             .scrbufs = old->scrbufs,
                                                             .nsteps = (uint16_t)(old->nsteps + 1),
                                                             .nconns = old->nconns,
                                                             .nwaits = old->nwaits,
                                                             .nlist = old->nlist},
                               &s));
    for (int i = 0; i < s->nsteps; i++)
        s->steps[i] = old->steps[i <= step ? i : i - 1];
    memcpy(s->conns, old->conns, old->nconns * sizeof(*s->conns));
    memcpy(s->lanes, old->lanes, old->nlanes * sizeof(*s->lanes));
    memcpy(s->waits, old->waits, old->nwaits * sizeof(*s->waits));
    memcpy(s->list, old->list, old->nlist * sizeof(*s->list));
    move_lanes_behind(s, lane_with(s, step), 1);
    xccl_schedule_destroy(*schedule);
    *schedule = s;
}

#endif

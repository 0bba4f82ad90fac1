/* SPDX-License-Identifier: BSD-3-Clause */
/* Which connection of which rank ends at which: what is found here is true for every run of these
 * schedules. A connection is known by sender, receiver, kind and id; a multicast has no one
 * receiver. Refuses what does not fit together, before anything is run. */
#include "schedule/verify_int.h"

#include "base/alloc.h"
#include "base/error.h"

/* Chunks that a tile moves, in all; more would take minutes. The largest ring has 8192 ranks. */
#define EVENTS_MAX   ((uint64_t)1 << 27)
#define TILES_EVENTS ((uint64_t)1 << 29)
#define SCRBUFS_MAX  1024
#define NO_RECEIVER  UINT16_MAX
#define NOT_A_SIGNAL UINT32_MAX

struct end {
    uint64_t key; /* 0: free */
    uint32_t queue;
    uint32_t nreaders;
};

struct matching {
    struct end *table;
    uint32_t mask;
    uint32_t *counts; /* readers of each queue so far */
};

static uint64_t key_of(uint32_t sender, uint32_t receiver, const struct xccl_schedule_conn *conn)
{
    /* Never 0: ids of kinds begin at 1. */
    return (uint64_t)sender << 48 | (uint64_t)receiver << 32 | (uint64_t)conn->id << 16 |
           (conn->kind + 1u);
}

static struct end *find(const struct matching *matching, uint64_t key)
{
    uint32_t at = (uint32_t)xccl_mix64(key) & matching->mask;

    while (matching->table[at].key && matching->table[at].key != key)
        at = (at + 1) & matching->mask;
    return &matching->table[at];
}

static uint32_t lane_of_conn(const struct xccl_schedule *schedule, uint32_t conn)
{
    uint32_t lane = 0;

    while (conn >= schedule->lanes[lane].conn0 + schedule->lanes[lane].nconn)
        lane++;
    return lane;
}

/* ---- one schedule by itself ---- */

static int per_rank_chunks(enum xccl_coll coll)
{
    return coll == XCCL_COLL_ALL_GATHER || coll == XCCL_COLL_REDUCE_SCATTER ||
           coll == XCCL_COLL_ALL_TO_ALL || coll == XCCL_COLL_GATHER || coll == XCCL_COLL_SCATTER;
}

static int same_call(const struct xccl_schedule *a, const struct xccl_schedule *b)
{
    return a->coll == b->coll && a->nranks == b->nranks && a->root == b->root &&
           a->nchunks == b->nchunks;
}

static int check_one(struct xccl_schedule *const *schedules, int nranks, int rank,
                     struct xccl_verdict *verdict)
{
    const struct xccl_schedule *schedule = schedules[rank];

    if (xccl_schedule_check(schedule)) {
        xccl_verdict_refuse(verdict, XCCL_VERDICT_SHAPE, rank, "%s", xccl_error_text());
        return 0;
    }
    if (schedule->nranks != nranks || schedule->rank != rank)
        xccl_verdict_refuse(verdict, XCCL_VERDICT_SHAPE, rank,
                            "the schedule given for rank %d of %d is for rank %u of %u", rank,
                            nranks, schedule->rank, schedule->nranks);
    else if (!same_call(schedule, schedules[0]))
        xccl_verdict_refuse(verdict, XCCL_VERDICT_SHAPE, rank,
                            "rank %d and rank 0 differ in collective, root or chunks", rank);
    else if (per_rank_chunks(schedule->coll) && schedule->nchunks != schedule->nranks)
        xccl_verdict_refuse(verdict, XCCL_VERDICT_SHAPE, rank,
                            "%s needs one chunk for each of %u ranks, but the schedule has %u",
                            xccl_coll_name(schedule->coll), schedule->nranks, schedule->nchunks);
    else if (schedule->scrbufs > SCRBUFS_MAX)
        xccl_verdict_refuse(verdict, XCCL_VERDICT_SHAPE, rank,
                            "rank %d has %u scratch buffers, but at most %d are allowed", rank,
                            schedule->scrbufs, SCRBUFS_MAX);
    return verdict->kind == XCCL_VERDICT_PROVEN;
}

/* PRE needs a source, and both PRE and POST an operator. */
static int check_flags(const struct xccl_schedule *schedule, uint32_t lane, uint32_t istep,
                       struct xccl_verdict *verdict)
{
    const struct xccl_step *step = &schedule->steps[schedule->lanes[lane].step0 + istep];
    const char *why = NULL;

    if ((step->flags & (XCCL_FLAG_PRE | XCCL_FLAG_POST)) && !xccl_coll_reduces(schedule->coll))
        why = "has PRE or POST in a collective that does not reduce";
    else if ((step->flags & XCCL_FLAG_PRE) && !(step->op & XCCL_STEP_SRC))
        why = "has PRE but no src";
    if (!why)
        return 1;
    xccl_verdict_refuse(verdict, XCCL_VERDICT_PRE_POST, schedule->rank,
                        "rank %u lane %u step %u (%s) %s", schedule->rank, lane, istep,
                        xccl_verify_op_words(step), why);
    verdict->place.lane = (int)lane;
    verdict->place.step = (int)istep;
    return 0;
}

static int find_signal(const struct xccl_schedule *schedule, const struct xccl_schedule_wait *wait,
                       uint32_t *step_out)
{
    const struct xccl_schedule_lane *lane = &schedule->lanes[wait->lane];
    int found = 0;

    for (uint32_t i = 0; i < lane->nstep; i++) {
        const struct xccl_step *step = &schedule->steps[lane->step0 + i];

        if (!(step->flags & XCCL_FLAG_SIGNAL) || step->sig != wait->sig)
            continue;
        *step_out = lane->step0 + i;
        found++;
    }
    return found;
}

/* Numbers the signals of a rank and finds the step of each wait. */
static int link_waits(struct xccl_verify_net *net, uint32_t rank, uint32_t step0,
                      struct xccl_verdict *verdict)
{
    const struct xccl_schedule *schedule = net->schedules[rank];

    for (uint32_t i = 0; i < schedule->nsteps; i++)
        net->signals[step0 + i] = schedule->steps[i].flags & XCCL_FLAG_SIGNAL ? net->nsignals++
                                                                              : NOT_A_SIGNAL;
    for (uint32_t i = 0; i < schedule->nwaits; i++) {
        const struct xccl_schedule_wait *wait = &schedule->waits[i];
        int found = wait->lane < schedule->nlanes
                        ? find_signal(schedule, wait, &net->wait_steps[net->ranks[rank].wait0 + i])
                        : 0;

        if (found == 1)
            continue;
        xccl_verdict_refuse(
            verdict, XCCL_VERDICT_SHAPE, (int)rank,
            "rank %u waits for signal %u of lane %u, which %s", rank, wait->sig, wait->lane,
            found ? "several steps of that lane send" : "no step of that lane sends");
        return 0;
    }
    return 1;
}

/* ---- all together ---- */

static void count_all(struct xccl_verify_net *net, struct xccl_verdict *verdict)
{
    uint64_t events = 0;

    for (uint32_t r = 0; r < net->nranks; r++) {
        const struct xccl_schedule *schedule = net->schedules[r];

        net->ranks[r] = (struct xccl_verify_rank){.lane0 = net->nlanes,
                                                  .nlanes = schedule->nlanes,
                                                  .conn0 = net->nconns,
                                                  .step0 = net->nsignals,
                                                  .wait0 = net->nwaits};
        net->nlanes += schedule->nlanes;
        net->nconns += schedule->nconns;
        net->nsignals += schedule->nsteps; /* so far: room for so many */
        net->nwaits += schedule->nwaits;
        net->many_lanes |= schedule->nlanes > 1;
        net->scrbufs = schedule->scrbufs > net->scrbufs ? schedule->scrbufs : net->scrbufs;
        for (uint32_t i = 0; i < schedule->nsteps; i++)
            events += (uint64_t)schedule->steps[i].rep * schedule->steps[i].cnt;
        for (uint32_t i = 0; i < schedule->nlanes; i++) {
            net->parts = net->parts ? net->parts : schedule->lanes[i].nparts;
            net->step_major |= schedule->lanes[i].order == XCCL_STEP_MAJOR;
            if (schedule->lanes[i].nparts != net->parts)
                xccl_verdict_refuse(
                    verdict, XCCL_VERDICT_SHAPE, (int)r,
                    "lane %u of rank %u divides chunks into %u parts, but another lane into %u", i,
                    r, schedule->lanes[i].nparts, net->parts);
        }
    }
    net->parts = net->parts ? net->parts : 1;
    if (events > EVENTS_MAX || events * (net->scrbufs + 2) > TILES_EVENTS)
        xccl_verdict_refuse(verdict, XCCL_VERDICT_SHAPE, 0,
                            "a tile of all ranks moves %llu chunks, which is too many to verify",
                            (unsigned long long)events);
}

static int number_signals(struct xccl_verify_net *net, struct xccl_verdict *verdict)
{
    uint32_t step0 = 0;

    net->nsignals = 0;
    for (uint32_t r = 0; r < net->nranks; r++) {
        const struct xccl_schedule *schedule = net->schedules[r];

        net->ranks[r].step0 = step0;
        for (uint32_t lane = 0; lane < schedule->nlanes; lane++)
            for (uint32_t i = 0; i < schedule->lanes[lane].nstep; i++)
                if (!check_flags(schedule, lane, i, verdict))
                    return 0;
        if (!link_waits(net, r, step0, verdict))
            return 0;
        step0 += schedule->nsteps;
    }
    return 1;
}

static void refuse_end(struct xccl_verdict *verdict, uint32_t rank, uint32_t lane,
                       const struct xccl_schedule_conn *conn, const char *why)
{
    if (conn->dir == XCCL_CONN_SEND && conn->kind == XCCL_CONN_MULTICAST)
        xccl_verdict_refuse(verdict, XCCL_VERDICT_SHAPE, (int)rank,
                            "rank %u lane %u: the multicast with id %u %s", rank, lane, conn->id,
                            why);
    else
        xccl_verdict_refuse(verdict, XCCL_VERDICT_SHAPE, (int)rank,
                            "rank %u lane %u: the %s %s rank %u with id %u %s", rank, lane,
                            conn->kind == XCCL_CONN_MULTICAST ? "multicast" : "connection",
                            conn->dir == XCCL_CONN_SEND ? "to" : "from", conn->peer, conn->id, why);
    verdict->place.lane = (int)lane;
}

/* Makes a queue of each sending end. */
static int enter_senders(struct xccl_verify_net *net, struct matching *matching, uint32_t rank,
                         struct xccl_verdict *verdict)
{
    const struct xccl_schedule *schedule = net->schedules[rank];

    for (uint32_t i = 0; i < schedule->nconns; i++) {
        const struct xccl_schedule_conn *conn = &schedule->conns[i];
        int multicast = conn->kind == XCCL_CONN_MULTICAST;
        uint32_t lane = lane_of_conn(schedule, i);
        struct end *end;

        if (conn->dir != XCCL_CONN_SEND)
            continue;
        end = find(matching, key_of(rank, multicast ? NO_RECEIVER : conn->peer, conn));
        if (end->key || (multicast && conn->peer != rank)) {
            refuse_end(verdict, rank, lane, conn,
                       end->key ? "exists twice" : "does not name its sender");
            return 0;
        }
        *end = (struct end){key_of(rank, multicast ? NO_RECEIVER : conn->peer, conn), net->nqueues,
                            0};
        net->queues[net->nqueues] = (struct xccl_verify_queue){
            .writer = net->ranks[rank].lane0 + lane, .rank = rank};
        net->ends[net->ranks[rank].conn0 + i] = net->nqueues++;
    }
    return 1;
}

/* First pass: counts the readers of each queue; ends[] becomes the queue. */
static int count_readers(struct xccl_verify_net *net, const struct matching *matching,
                         uint32_t rank, struct xccl_verdict *verdict)
{
    const struct xccl_schedule *schedule = net->schedules[rank];

    for (uint32_t i = 0; i < schedule->nconns; i++) {
        const struct xccl_schedule_conn *conn = &schedule->conns[i];
        int multicast = conn->kind == XCCL_CONN_MULTICAST;
        struct end *end;

        if (conn->dir != XCCL_CONN_RECV)
            continue;
        end = find(matching, key_of(conn->peer, multicast ? NO_RECEIVER : rank, conn));
        if (!end->key || (multicast && conn->peer == rank)) {
            refuse_end(verdict, rank, lane_of_conn(schedule, i), conn,
                       end->key ? "is received by its own sender" : "has no sender on that rank");
            return 0;
        }
        if (!multicast && matching->counts[end->queue]) {
            refuse_end(verdict, rank, lane_of_conn(schedule, i), conn, "has two receivers");
            return 0;
        }
        matching->counts[end->queue]++;
        net->ends[net->ranks[rank].conn0 + i] = end->queue;
        net->nreaders++;
    }
    return 1;
}

static int all_are_read(struct xccl_verify_net *net, const struct matching *matching,
                        struct xccl_verdict *verdict)
{
    for (uint32_t r = 0; r < net->nranks; r++) {
        const struct xccl_schedule *schedule = net->schedules[r];

        for (uint32_t i = 0; i < schedule->nconns; i++) {
            if (schedule->conns[i].dir != XCCL_CONN_SEND ||
                matching->counts[net->ends[net->ranks[r].conn0 + i]])
                continue;
            refuse_end(verdict, r, lane_of_conn(schedule, i), &schedule->conns[i],
                       "has no receiver");
            return 0;
        }
    }
    return 1;
}

/* Second pass: gives each reader its place. */
static int enter_readers(struct xccl_verify_net *net, uint32_t rank, struct xccl_verdict *verdict)
{
    const struct xccl_schedule *schedule = net->schedules[rank];

    for (uint32_t i = 0; i < schedule->nconns; i++) {
        uint32_t *end = &net->ends[net->ranks[rank].conn0 + i], reader;
        struct xccl_verify_queue *queue = &net->queues[*end];

        if (schedule->conns[i].dir != XCCL_CONN_RECV)
            continue;
        reader = queue->reader0 + queue->nreaders;
        if (queue->nreaders && net->readers[reader - 1].rank == rank) {
            refuse_end(verdict, rank, lane_of_conn(schedule, i), &schedule->conns[i],
                       "exists twice");
            return 0;
        }
        net->readers[reader] = (struct xccl_verify_reader){
            *end, net->ranks[rank].lane0 + lane_of_conn(schedule, i), rank};
        queue->nreaders++;
        *end = reader;
    }
    return 1;
}

static int match(struct xccl_verify_net *net, struct matching *matching,
                 struct xccl_verdict *verdict)
{
    uint32_t readers = 0;

    for (uint32_t r = 0; r < net->nranks; r++)
        if (!enter_senders(net, matching, r, verdict))
            return 0;
    for (uint32_t r = 0; r < net->nranks; r++)
        if (!count_readers(net, matching, r, verdict))
            return 0;
    if (!all_are_read(net, matching, verdict))
        return 0;
    for (uint32_t q = 0; q < net->nqueues; q++) {
        net->queues[q].reader0 = readers;
        readers += matching->counts[q];
    }
    for (uint32_t r = 0; r < net->nranks; r++)
        if (!enter_readers(net, r, verdict))
            return 0;
    return 1;
}

static xcclResult_t connect_all(struct xccl_verify_net *net, struct xccl_verdict *verdict)
{
    struct matching matching = {.mask = 15};
    xcclResult_t rc = xcclSystemError;

    while (matching.mask < 2 * net->nconns)
        matching.mask = 2 * matching.mask + 1;
    matching.table = xccl_calloc(matching.mask + (size_t)1, sizeof(*matching.table));
    matching.counts = xccl_calloc(net->nconns + (size_t)1, sizeof(*matching.counts));
    if (matching.table && matching.counts) {
        rc = xcclSuccess;
        (void)match(net, &matching, verdict);
    }
    xccl_free(matching.table);
    xccl_free(matching.counts);
    return rc;
}

static xcclResult_t take_memory(struct xccl_verify_net *net)
{
    net->ends = xccl_calloc(net->nconns + (size_t)1, sizeof(*net->ends));
    net->queues = xccl_calloc(net->nconns + (size_t)1, sizeof(*net->queues));
    net->readers = xccl_calloc(net->nconns + (size_t)1, sizeof(*net->readers));
    net->signals = xccl_calloc(net->nsignals + (size_t)1, sizeof(*net->signals));
    net->wait_steps = xccl_calloc(net->nwaits + (size_t)1, sizeof(*net->wait_steps));
    if (net->ends && net->queues && net->readers && net->signals && net->wait_steps)
        return xcclSuccess;
    return xcclSystemError;
}

xcclResult_t xccl_verify_net_init(struct xccl_verify_net *net,
                                  struct xccl_schedule *const *schedules, int nranks,
                                  struct xccl_verdict *verdict)
{
    xcclResult_t rc;

    if (nranks < 1 || nranks > UINT16_MAX)
        return xccl_fail(xcclInvalidArgument, 0, NULL, "cannot verify schedules of %d ranks",
                         nranks);
    *net = (struct xccl_verify_net){.schedules = schedules, .nranks = (uint32_t)nranks};
    for (int r = 0; r < nranks; r++)
        if (!check_one(schedules, nranks, r, verdict))
            return xcclSuccess;
    net->coll = schedules[0]->coll;
    net->reduces = xccl_coll_reduces(net->coll);
    net->ranks = xccl_calloc((size_t)nranks, sizeof(*net->ranks));
    if (!net->ranks)
        return xcclSystemError;
    count_all(net, verdict);
    rc = take_memory(net);
    if (!rc && verdict->kind == XCCL_VERDICT_PROVEN && number_signals(net, verdict))
        rc = connect_all(net, verdict);
    if (rc || verdict->kind != XCCL_VERDICT_PROVEN)
        xccl_verify_net_fini(net);
    return rc;
}

void xccl_verify_net_fini(struct xccl_verify_net *net)
{
    xccl_free(net->ranks);
    xccl_free(net->ends);
    xccl_free(net->queues);
    xccl_free(net->readers);
    xccl_free(net->signals);
    xccl_free(net->wait_steps);
    *net = (struct xccl_verify_net){0};
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Every generated schedule is executed symbolically: a value is the set of ranks whose input it
 * holds. At the end each output chunk must hold every rank exactly once, no message may be left
 * over, and one slot a connection must be enough to get there. */
#include "schedule/schedule.h"

#include <stdlib.h>

#include "schedule/decode.h"
#include "schedule_ranks.h"
#include "xt.h"

#define CONNS_MAX (2 * RANKS_MAX)

typedef uint64_t set; /* of ranks */

/* A FIFO between two ranks; a multicast is one FIFO for each reader. */
struct fifo {
    set value[2];
    uint32_t chunk[2];
    int count;
};

struct world {
    int n, slots;
    struct xccl_schedule **schedules; /* of ranks */
    struct ranks ranks;
    struct fifo fifos[RANKS_MAX][RANKS_MAX];
    set in[RANKS_MAX][RANKS_MAX], out[RANKS_MAX][RANKS_MAX];
    uint32_t step[RANKS_MAX], occurrence[RANKS_MAX], chunk[RANKS_MAX];
};

static int reaches(const struct world *world, int rank, const struct xccl_schedule_conn *conn,
                   int to)
{
    const struct xccl_schedule *peer = world->schedules[to];

    if (to == rank)
        return 0;
    if (conn->kind == XCCL_CONN_FIFO)
        return conn->peer == to;
    for (int i = 0; i < peer->nconns; i++)
        if (peer->conns[i].dir == XCCL_CONN_RECV && peer->conns[i].kind == XCCL_CONN_MULTICAST &&
            peer->conns[i].peer == rank)
            return 1;
    return 0;
}

static int can_send(const struct world *world, int rank, const struct xccl_event *event)
{
    const struct xccl_schedule *s = world->schedules[rank];

    for (uint32_t i = 0; i < event->nsend; i++)
        for (int to = 0; to < world->n; to++)
            if (reaches(world, rank, &s->conns[event->sconn + i], to) &&
                world->fifos[rank][to].count == world->slots)
                return 0;
    return 1;
}

static int can_receive(const struct world *world, int rank, const struct xccl_event *event)
{
    const struct xccl_schedule *s = world->schedules[rank];

    for (uint32_t i = 0; i < event->nrecv; i++)
        if (!world->fifos[s->conns[event->rconn + i].peer][rank].count)
            return 0;
    return 1;
}

static void put(struct fifo *fifo, set value, uint32_t chunk)
{
    fifo->value[fifo->count] = value;
    fifo->chunk[fifo->count++] = chunk;
}

static set take(struct fifo *fifo, uint32_t chunk)
{
    set value = fifo->value[0];

    XT_CHECK_INT(fifo->chunk[0], chunk);
    fifo->value[0] = fifo->value[1];
    fifo->chunk[0] = fifo->chunk[1];
    fifo->count--;
    return value;
}

static void next_chunk(struct world *world, int rank, const struct xccl_step *step)
{
    if (++world->chunk[rank] < step->cnt)
        return;
    world->chunk[rank] = 0;
    if (++world->occurrence[rank] < step->rep)
        return;
    world->occurrence[rank] = 0;
    world->step[rank]++;
}

/* Runs one chunk of an occurrence on a rank; 0 when it must wait. */
static int move(struct world *world, int rank)
{
    struct xccl_schedule *s = world->schedules[rank];
    const struct xccl_step *step = &s->steps[world->step[rank]];
    struct xccl_event event;
    uint32_t chunk;
    set value = 0;

    if (world->step[rank] == s->nsteps)
        return 0;
    xccl_event_decode(s, 0, step, world->occurrence[rank], world->chunk[rank], &event);
    if (!can_send(world, rank, &event) || !can_receive(world, rank, &event))
        return 0;
    chunk = (step->op & XCCL_STEP_SRC) ? event.src : event.dst;
    if (step->op & XCCL_STEP_SRC)
        value = world->in[rank][event.src];
    for (uint32_t i = 0; i < event.nrecv; i++) {
        set part = take(&world->fifos[s->conns[event.rconn + i].peer][rank], chunk);

        XT_CHECK(!(value & part)); /* no contribution twice */
        value |= part;
    }
    if (step->op & XCCL_STEP_DST)
        world->out[rank][event.dst] = value;
    for (uint32_t i = 0; i < event.nsend; i++)
        for (int to = 0; to < world->n; to++)
            if (reaches(world, rank, &s->conns[event.sconn + i], to))
                put(&world->fifos[rank][to], value, chunk);
    next_chunk(world, rank, step);
    return 1;
}

static void run(struct world *world)
{
    int moved = 1;

    for (int r = 0; r < world->n; r++)
        for (int c = 0; c < world->schedules[r]->nchunks; c++)
            world->in[r][c] = (set)1 << r;
    while (moved) {
        moved = 0;
        for (int r = 0; r < world->n; r++)
            moved |= move(world, r);
    }
}

static void world_free(struct world *world)
{
    ranks_free(&world->ranks);
    free(world);
}

static void prove(struct world *world)
{
    world->slots = world->schedules[0]->minslots;
    for (int r = 0; r < world->n; r++)
        XT_OK(xccl_schedule_check(world->schedules[r]));
    run(world);
    for (int r = 0; r < world->n; r++) {
        XT_CHECK_INT(world->step[r], world->schedules[r]->nsteps); /* else: deadlock */
        for (int c = 0; c < world->schedules[r]->nchunks; c++)
            XT_CHECK(world->out[r][c] == ((set)1 << world->n) - 1);
        for (int to = 0; to < world->n; to++)
            XT_CHECK_INT(world->fifos[r][to].count, 0);
    }
    world_free(world);
}

/* Ranks below split share one host, the others each have their own. */
static struct world *world_of(const char *name, int n, int split)
{
    struct world *world = calloc(1, sizeof *world);

    XT_CHECK(world);
    world->n = n;
    world->ranks = generated_split(generator_of(XCCL_COLL_ALL_REDUCE, name), n, 0, split);
    world->schedules = world->ranks.schedules;
    return world;
}

XT_TEST(ring_sums_every_chunk_once_on_every_rank)
{
    for (int n = 1; n <= RANKS_MAX; n++)
        prove(world_of("ring", n, 0));
}

XT_TEST(ring_is_stuck_with_one_slot_as_its_minslots_says)
{
    struct world *world = world_of("ring", 4, 0);

    XT_CHECK_INT(world->schedules[0]->minslots, 2);
    world->slots = 1;
    run(world);
    for (int r = 0; r < 4; r++)
        XT_CHECK(world->step[r] < world->schedules[r]->nsteps);
    world_free(world);
}

XT_TEST(oneshot_and_twoshot_sum_on_one_host_on_many_and_on_both)
{
    static const char *const names[] = {"oneshot", "twoshot"};

    for (int i = 0; i < 2; i++)
        for (int n = 1; n <= RANKS_MAX; n++) {
            prove(world_of(names[i], n, n));
            prove(world_of(names[i], n, 0));
            prove(world_of(names[i], n, (n + 1) / 2));
        }
}

XT_TEST(check_refuses_illegal_operations_chunks_connections_and_collectives)
{
    struct xccl_schedule *schedule;
    struct xccl_step good;

    schedule = ring_at(5, 2);
    good = schedule->steps[1];
    schedule->steps[1].op = XCCL_STEP_RECV;
    XT_CHECK_RC(xccl_schedule_check(schedule), xcclInternalError);
    schedule->steps[1] = good;
    schedule->steps[1].src = 5;
    XT_CHECK_RC(xccl_schedule_check(schedule), xcclInternalError);
    schedule->steps[1] = good;
    schedule->steps[1].rconn = 2;
    XT_CHECK_RC(xccl_schedule_check(schedule), xcclInternalError);
    schedule->steps[1] = good;
    schedule->steps[1].sconn = 1; /* a receiving connection */
    XT_CHECK_RC(xccl_schedule_check(schedule), xcclInternalError);
    schedule->steps[1] = good;
    XT_OK(xccl_schedule_check(schedule));
    schedule->coll = XCCL_COLL_SEND_RECV;
    XT_CHECK_RC(xccl_schedule_check(schedule), xcclInternalError);
    schedule->coll = XCCL_COLL_ALL_REDUCE;
    schedule->conns[0].peer = 5;
    XT_CHECK_RC(xccl_schedule_check(schedule), xcclInternalError);
    xccl_schedule_destroy(schedule);
}

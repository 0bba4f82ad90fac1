/* SPDX-License-Identifier: BSD-3-Clause */
/* Every generated schedule is executed symbolically: a value is the set of ranks whose input it
 * holds. At the end each output chunk must hold every rank exactly once, no message may be left
 * over, and one slot a connection must be enough to get there. */
#include "schedule/schedule.h"

#include <stdlib.h>

#include "xt.h"

#define RANKS_MAX 24
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
    struct xccl_schedule *schedules[RANKS_MAX];
    struct fifo fifos[RANKS_MAX][RANKS_MAX];
    set in[RANKS_MAX][RANKS_MAX], out[RANKS_MAX][RANKS_MAX];
    uint32_t step[RANKS_MAX], occurrence[RANKS_MAX];
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

static int can_send(const struct world *world, int rank, const struct xccl_step *step)
{
    const struct xccl_schedule *s = world->schedules[rank];
    uint32_t fan = (step->op & XCCL_STEP_SEND)
                       ? xccl_schedule_fan(s, 0, step->sconn, step->fan >> 4)
                       : 0;

    for (uint32_t i = 0; i < fan; i++)
        for (int to = 0; to < world->n; to++)
            if (reaches(world, rank, &s->conns[step->sconn + i], to) &&
                world->fifos[rank][to].count == world->slots)
                return 0;
    return 1;
}

static int can_receive(const struct world *world, int rank, const struct xccl_step *step)
{
    const struct xccl_schedule *s = world->schedules[rank];
    uint32_t fan = (step->op & XCCL_STEP_RECV)
                       ? xccl_schedule_fan(s, 0, step->rconn, step->fan & 15u)
                       : 0;

    for (uint32_t i = 0; i < fan; i++)
        if (!world->fifos[s->conns[step->rconn + i].peer][rank].count)
            return 0;
    return 1;
}

static void put(struct fifo *fifo, set value, uint32_t chunk)
{
    fifo->value[fifo->count] = value;
    fifo->chunk[fifo->count++] = chunk;
}

/* Runs one occurrence on a rank; 0 when it must wait. */
static int move(struct world *world, int rank)
{
    struct xccl_schedule *s = world->schedules[rank];
    const struct xccl_step *step = &s->steps[world->step[rank]];
    uint32_t n = s->nchunks, turn = world->occurrence[rank], src = step->src, dst = step->dst;
    set value = 0;

    if (world->step[rank] == s->nsteps || !can_send(world, rank, step) ||
        !can_receive(world, rank, step))
        return 0;
    for (uint32_t i = 0; i < turn; i++) {
        src = xccl_chunk_add(src, step->dsrc, n);
        dst = xccl_chunk_add(dst, step->ddst, n);
    }
    if (step->op & XCCL_STEP_SRC)
        value = world->in[rank][src];
    for (uint32_t i = 0;
         (step->op & XCCL_STEP_RECV) && i < xccl_schedule_fan(s, 0, step->rconn, step->fan & 15u);
         i++) {
        struct fifo *fifo = &world->fifos[s->conns[step->rconn + i].peer][rank];

        XT_CHECK_INT(fifo->chunk[0], (step->op & XCCL_STEP_SRC) ? src : dst);
        XT_CHECK(!(value & fifo->value[0])); /* no contribution twice */
        value |= fifo->value[0];
        fifo->value[0] = fifo->value[1];
        fifo->chunk[0] = fifo->chunk[1];
        fifo->count--;
    }
    if (step->op & XCCL_STEP_DST)
        world->out[rank][dst] = value;
    for (uint32_t i = 0;
         (step->op & XCCL_STEP_SEND) && i < xccl_schedule_fan(s, 0, step->sconn, step->fan >> 4);
         i++)
        for (int to = 0; to < world->n; to++)
            if (reaches(world, rank, &s->conns[step->sconn + i], to))
                put(&world->fifos[rank][to], value, (step->op & XCCL_STEP_SRC) ? src : dst);
    if (++world->occurrence[rank] == step->rep) {
        world->occurrence[rank] = 0;
        world->step[rank]++;
    }
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
    for (int r = 0; r < world->n; r++)
        xccl_schedule_destroy(world->schedules[r]);
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

static struct world *world_of(int n)
{
    struct world *world = calloc(1, sizeof *world);

    XT_CHECK(world);
    world->n = n;
    return world;
}

XT_TEST(ring_sums_every_chunk_once_on_every_rank)
{
    for (int n = 1; n <= RANKS_MAX; n++) {
        struct world *world = world_of(n);

        for (int r = 0; r < n; r++)
            XT_OK(xccl_gen_ring(n, r, &world->schedules[r]));
        prove(world);
    }
}

XT_TEST(ring_is_stuck_with_one_slot_as_its_minslots_says)
{
    struct world *world = world_of(4);

    for (int r = 0; r < 4; r++)
        XT_OK(xccl_gen_ring(4, r, &world->schedules[r]));
    XT_CHECK_INT(world->schedules[0]->minslots, 2);
    world->slots = 1;
    run(world);
    for (int r = 0; r < 4; r++)
        XT_CHECK(world->step[r] < world->schedules[r]->nsteps);
    world_free(world);
}

/* split: ranks below it share one host, the others each have their own. */
static void prove_oneshot(int n, int split)
{
    struct world *world = world_of(n);

    for (int r = 0; r < n; r++) {
        uint8_t multicast[RANKS_MAX] = {0};

        for (int p = 0; p < n; p++)
            multicast[p] = (uint8_t)(p == r || (p < split && r < split));
        XT_OK(xccl_gen_oneshot(n, r, multicast, &world->schedules[r]));
    }
    prove(world);
}

XT_TEST(oneshot_sums_on_one_host_on_many_and_on_both)
{
    for (int n = 1; n <= RANKS_MAX; n++) {
        prove_oneshot(n, n);
        prove_oneshot(n, 0);
        prove_oneshot(n, (n + 1) / 2);
    }
}

XT_TEST(ring_needs_five_records_for_any_number_of_ranks)
{
    struct xccl_schedule *schedule;

    XT_OK(xccl_gen_ring(4096, 4095, &schedule));
    XT_CHECK_INT(schedule->nsteps, 5);
    XT_OK(xccl_schedule_check(schedule));
    xccl_schedule_destroy(schedule);
}

XT_TEST(oneshot_refuses_more_ranks_than_it_serves)
{
    uint8_t multicast[XCCL_ONESHOT_MAX_RANKS + 1] = {0};
    struct xccl_schedule *schedule;

    XT_CHECK_RC(xccl_gen_oneshot(XCCL_ONESHOT_MAX_RANKS + 1, 0, multicast, &schedule),
                xcclInvalidArgument);
}

XT_TEST(check_refuses_illegal_operations_chunks_and_connections)
{
    struct xccl_schedule *schedule;
    struct xccl_step good;

    XT_OK(xccl_gen_ring(5, 2, &schedule));
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
    schedule->conns[0].peer = 5;
    XT_CHECK_RC(xccl_schedule_check(schedule), xcclInternalError);
    xccl_schedule_destroy(schedule);
}

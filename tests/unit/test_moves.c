/* SPDX-License-Identifier: BSD-3-Clause */
/* Moves against the decoder: the list that a short plan keeps, and the moves made on the way of a
 * long one, are what decode.h says of every step, in its order; and the messages and
 * bytes that a plan counts are those that its moves send and receive. Every algorithm, 1 to 9
 * ranks. */
#include "exec/exec.h"
#include "exec_world.h"
#include "schedule/decode.h"

/* Bytes of a chunk of a buffer, by a formula of the test's own; all of it in one tile. */
static size_t want_bytes(const struct world *world, const struct xccl_plan *plan, uint32_t chunk,
                         size_t count)
{
    enum xccl_coll coll = world->generator->coll;
    size_t first, size = plan->chunk_bytes;

    if (coll == XCCL_COLL_BARRIER)
        return 0;
    if (coll != XCCL_COLL_ALL_REDUCE && coll != XCCL_COLL_BROADCAST && coll != XCCL_COLL_REDUCE)
        return count * 4;
    first = chunk * size;
    return count * 4 <= first ? 0 : count * 4 - first < size ? count * 4 - first : size;
}

/* The value's bytes as the user's buffers say, SIZE_MAX where neither side is one. */
static size_t want_value(const struct world *world, const struct xccl_plan *plan,
                         const struct xccl_event *event, size_t count)
{
    const struct xccl_step *step = event->step;
    enum xccl_step_buffer src = xccl_step_src_buffer(step), dst = xccl_step_dst_buffer(step);
    int exchange = (step->op & XCCL_STEP_XCHG) != 0;

    if (!exchange && (step->op & XCCL_STEP_SRC) && src <= XCCL_BUFFER_OUT)
        return want_bytes(world, plan, event->src, count);
    if ((step->op & XCCL_STEP_DST) && dst <= XCCL_BUFFER_OUT)
        return want_bytes(world, plan, event->dst, count);
    if ((step->op & XCCL_STEP_DST) && dst == XCCL_BUFFER_ZERO)
        return 0;
    if (!exchange && (step->op & XCCL_STEP_SRC) && src == XCCL_BUFFER_ZERO)
        return 0;
    return plan->chunk_bytes;
}

static void compare(const struct world *world, int rank, const struct xccl_event *event,
                    const struct xccl_move *move, size_t count)
{
    const struct xccl_plan *plan = &world->plans[rank];
    const struct xccl_step *step = event->step;
    enum xccl_step_buffer src = xccl_step_src_buffer(step), dst = xccl_step_dst_buffer(step);

    XT_CHECK_INT(move->op, step->op);
    XT_CHECK_INT(move->flags, step->flags);
    XT_CHECK_INT(move->bytes, want_value(world, plan, event, count));
    if ((step->op & XCCL_STEP_SRC) && src <= XCCL_BUFFER_OUT)
        XT_CHECK_INT(move->src, event->src * plan->layouts[src].stride);
    if ((step->op & XCCL_STEP_DST) && dst <= XCCL_BUFFER_OUT)
        XT_CHECK_INT(move->dst, event->dst * plan->layouts[dst].stride);
    if (move->nrecv) {
        XT_CHECK_INT(move->nrecv, event->nrecv);
        XT_CHECK(move->recv == plan->binding->links + event->rconn);
    }
    if (move->nsend) {
        XT_CHECK_INT(move->nsend, event->nsend);
        XT_CHECK(move->send == plan->binding->links + event->sconn);
    }
}

/* Field by field: between them there may be anything. */
static int is_same(const struct xccl_move *a, const struct xccl_move *b)
{
    return a->recv == b->recv && a->send == b->send && a->src == b->src && a->dst == b->dst &&
           a->bytes == b->bytes && a->send_bytes == b->send_bytes && a->nrecv == b->nrecv &&
           a->nsend == b->nsend && a->left == b->left && a->op == b->op && a->flags == b->flags &&
           a->src_buffer == b->src_buffer && a->dst_buffer == b->dst_buffer;
}

static int does_nothing(const struct xccl_move *move)
{
    return !move->nrecv && !move->nsend && !(move->op & XCCL_STEP_XCHG) &&
           (!move->bytes || (move->op & (XCCL_STEP_RECV | XCCL_STEP_SEND)));
}

/* The events of a lane, one by one, beside the moves of its list and those made on the way. */
static uint32_t compare_lane(const struct world *world, int rank, uint32_t lane, size_t count)
{
    const struct xccl_plan *plan = &world->plans[rank];
    const struct xccl_schedule *schedule = plan->binding->schedule;
    const struct xccl_schedule_lane *of = &schedule->lanes[lane];
    const struct xccl_move *listed = plan->moves ? plan->moves + plan->lane_moves[lane] : NULL;
    struct xccl_place place = xccl_place_first(plan, lane);
    uint32_t compared = 0;

    for (uint32_t i = 0; i < of->nstep; i++)
        for (uint32_t k = 0;
             k < (uint32_t)schedule->steps[of->step0 + i].rep * schedule->steps[of->step0 + i].cnt;
             k++) {
            const struct xccl_step *step = &schedule->steps[of->step0 + i];
            struct xccl_event event;
            struct xccl_move move;

            xccl_event_decode(schedule, lane, step, k / step->cnt, k % step->cnt, &event);
            xccl_move_make(plan, &place, &move);
            compare(world, rank, &event, &move, count);
            compared++;
            if (listed && !does_nothing(&move)) {
                compare(world, rank, &event, listed, count);
                XT_CHECK(is_same(listed, &move));
                listed++;
            }
            XT_CHECK_INT(xccl_place_next(plan, &place),
                         i + 1 < of->nstep || k + 1u < (uint32_t)step->rep * step->cnt);
        }
    if (plan->moves)
        XT_CHECK(listed == plan->moves + plan->lane_moves[lane + 1]);
    return compared;
}

/* By running through all tiles. */
static void compare_messages(const struct world *world, int rank)
{
    const struct xccl_plan *plan = &world->plans[rank];
    const struct xccl_schedule *schedule = plan->binding->schedule;
    uint32_t *want = calloc(schedule->nconns + 1u, sizeof *want);
    uint32_t *got = calloc(schedule->nconns + 1u, sizeof *got);

    XT_CHECK(want && got);
    for (uint32_t lane = 0; lane < schedule->nlanes && plan->tiles; lane++) {
        struct xccl_place place = xccl_place_first(plan, lane);

        if (!schedule->lanes[lane].nstep)
            continue;
        do {
            struct xccl_move move;

            xccl_move_make(plan, &place, &move);
            for (uint32_t i = 0; i < move.nsend; i++)
                want[move.send - plan->binding->links + i]++;
            for (uint32_t i = 0; i < move.nrecv; i++)
                want[move.recv - plan->binding->links + i]++;
        } while (xccl_place_next(plan, &place));
    }
    xccl_plan_messages(plan, got);
    XT_CHECK(memcmp(want, got, schedule->nconns * sizeof *want) == 0);
    free(want);
    free(got);
}

/* By running through all tiles: payload to and from ranks of the own host, of two each, and others.
 */
static void compare_traffic(const struct world *world, int rank)
{
    static const int nodes[WORLD_RANKS] = {0, 0, 1, 1, 2, 2, 3, 3, 4};
    const struct xccl_plan *plan = &world->plans[rank];
    const struct xccl_schedule *schedule = plan->binding->schedule;
    struct xccl_link *const *links = plan->binding->links;
    struct xccl_plan_traffic want = {{0, 0}, {0, 0}}, got, all;

    for (uint32_t lane = 0; lane < schedule->nlanes && plan->tiles; lane++) {
        struct xccl_place place = xccl_place_first(plan, lane);

        if (!schedule->lanes[lane].nstep)
            continue;
        do {
            struct xccl_move move;

            xccl_move_make(plan, &place, &move);
            for (uint32_t i = 0; i < move.nsend; i++)
                want.sent[nodes[schedule->conns[move.send - links + i].peer] != nodes[rank]] +=
                    move.send_bytes;
            for (uint32_t i = 0; i < move.nrecv; i++)
                want.received[nodes[schedule->conns[move.recv - links + i].peer] != nodes[rank]] +=
                    move.bytes;
        } while (xccl_place_next(plan, &place));
    }
    xccl_plan_count_traffic(plan, nodes, &got);
    XT_CHECK(memcmp(&want, &got, sizeof want) == 0);
    xccl_plan_count_traffic(plan, NULL, &all);
    XT_CHECK_INT(all.sent[0], want.sent[0] + want.sent[1]);
    XT_CHECK_INT(all.received[0], want.received[0] + want.received[1]);
    XT_CHECK(!all.sent[1] && !all.received[1]);
}

/* Both ends of every connection count the same messages. */
static void compare_ends(const struct world *world)
{
    for (int r = 0; r < world->n; r++) {
        const struct xccl_schedule *schedule = world->bindings[r]->schedule;
        uint32_t *mine = calloc(schedule->nconns + 1u, sizeof *mine);

        XT_CHECK(mine != NULL);
        xccl_plan_messages(&world->plans[r], mine);
        for (int i = 0; i < schedule->nconns; i++) {
            const struct xccl_schedule_conn *conn = &schedule->conns[i];
            const struct xccl_schedule *other = world->bindings[conn->peer]->schedule;
            uint32_t *theirs = calloc(other->nconns + 1u, sizeof *theirs);

            XT_CHECK(theirs != NULL);
            xccl_plan_messages(&world->plans[conn->peer], theirs);
            for (int j = 0; j < other->nconns; j++)
                if (other->conns[j].peer == r && other->conns[j].id == conn->id &&
                    other->conns[j].dir != conn->dir)
                    XT_CHECK_INT(mine[i], theirs[j]);
            free(theirs);
        }
        free(mine);
    }
}

static void open_for(struct world *world, const struct xccl_generator *generator, int n, int root)
{
    memset(world, 0, sizeof *world);
    world->generator = generator;
    world->n = n;
    world->root = root;
    world->lag = 1;
    world->nslots = (uint32_t)generator->slots;
    world->proto = XCCL_PROTO_SLICES;
    world->keeps_list = 1;
    world_open(world);
}

/* Counts whose chunks fit one slice, then ones that need tiles. */
static uint32_t check_generator(struct world *world, const struct xccl_generator *generator, int n,
                                int root)
{
    static const size_t counts[] = {1, 5, 24, 61, 200};
    uint32_t compared = 0;

    open_for(world, generator, n, root);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        for (int r = 0; r < n; r++)
            world_start(world, r, counts[i]);
        for (int r = 0; r < n; r++) {
            const struct xccl_schedule *schedule = world->bindings[r]->schedule;

            for (uint32_t lane = 0; lane < schedule->nlanes && world->plans[r].tiles == 1; lane++)
                compared += compare_lane(world, r, lane, counts[i]);
            compare_messages(world, r);
            compare_traffic(world, r);
        }
        compare_ends(world);
        for (int r = 0; r < n; r++)
            world_finish(world, r);
    }
    world_close(world);
    return compared;
}

XT_TEST(moves_of_every_algorithm_are_what_the_decoder_says)
{
    struct world *world = malloc(sizeof *world);

    XT_CHECK(world != NULL);
    for (const struct xccl_generator *const *at = xccl_generators; *at; at++) {
        uint32_t compared = 0;

        for (int n = 1; n <= WORLD_RANKS; n++)
            for (int root = 0; root < (xccl_coll_rooted((*at)->coll) ? n : 1); root++)
                compared += check_generator(world, *at, n, root);
        XT_CHECK(compared > 0);
    }
    free(world);
}

XT_TEST(short_plans_keep_a_list_and_long_ones_none)
{
    struct world *world = malloc(sizeof *world);
    int param;

    XT_CHECK(world != NULL);
    open_for(world, xccl_generator_find(XCCL_COLL_ALL_REDUCE, "ring", &param), 4, 0);
    world_start(world, 0, 4);
    XT_CHECK(world->plans[0].moves != NULL);
    world_finish(world, 0);
    world_start(world, 0, 4000); /* several tiles */
    XT_CHECK(world->plans[0].moves == NULL);
    world_finish(world, 0);
    world_close(world);
    free(world);
}

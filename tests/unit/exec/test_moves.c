/* SPDX-License-Identifier: BSD-3-Clause */
/* Moves against the decoder: the list that a short plan keeps, and the moves made on the way of a
 * long one, are what decode.h says of every step, in its order; and the messages and
 * bytes that a plan counts are those that its moves send and receive. Every algorithm, 1 to 9
 * ranks. */
#include "exec/exec.h"
#include "exec_world.h"
#include "schedule/decode.h"

#define COUNT_RANKS 33 /* of plans without links; several times as many connections */
#define CONNS_MAX   1024

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

/* What all moves of a plan send and receive, one by one: what xccl_plan_count() must say without
 * making them. */
struct slow_count {
    uint32_t messages[CONNS_MAX];
    struct xccl_plan_traffic traffic;
};

static void count_move(const struct xccl_plan *plan, const int *nodes, const struct xccl_move *move,
                       struct slow_count *count)
{
    const struct xccl_schedule *schedule = plan->binding->schedule;
    struct xccl_link *const *links = plan->binding->links;

    for (uint32_t i = 0; i < move->nsend; i++) {
        long conn = move->send - links + i;
        int far = nodes && nodes[schedule->conns[conn].peer] != nodes[schedule->rank];

        count->messages[conn]++;
        count->traffic.sent[far] += move->send_bytes;
    }
    for (uint32_t i = 0; i < move->nrecv; i++) {
        long conn = move->recv - links + i;
        int far = nodes && nodes[schedule->conns[conn].peer] != nodes[schedule->rank];

        count->messages[conn]++;
        count->traffic.received[far] += move->bytes;
    }
}

static void count_slowly(const struct xccl_plan *plan, const int *nodes, struct slow_count *count)
{
    const struct xccl_schedule *schedule = plan->binding->schedule;

    memset(count, 0, sizeof *count);
    XT_CHECK(schedule->nconns <= CONNS_MAX);
    for (uint32_t lane = 0; lane < schedule->nlanes && plan->tiles; lane++) {
        struct xccl_place place = xccl_place_first(plan, lane);

        if (!schedule->lanes[lane].nstep)
            continue;
        do {
            struct xccl_move move;

            xccl_move_make(plan, &place, &move);
            count_move(plan, nodes, &move, count);
        } while (xccl_place_next(plan, &place));
    }
}

/* Two ranks a host, then all on one. Counts are added to what is there. */
static void compare_counts(const struct xccl_plan *plan, struct slow_count *want)
{
    const struct xccl_schedule *schedule = plan->binding->schedule;
    struct xccl_plan_traffic got;
    uint32_t messages[CONNS_MAX];
    int nodes[COUNT_RANKS];

    for (int i = 0; i < COUNT_RANKS; i++)
        nodes[i] = i / 2;
    for (uint32_t i = 0; i < CONNS_MAX; i++)
        messages[i] = i;
    count_slowly(plan, nodes, want);
    xccl_plan_count(plan, nodes, messages, &got);
    XT_CHECK(memcmp(&want->traffic, &got, sizeof got) == 0);
    for (uint32_t i = 0; i < CONNS_MAX; i++)
        XT_CHECK_INT(messages[i] - i, i < schedule->nconns ? want->messages[i] : 0);
    count_slowly(plan, NULL, want);
    xccl_plan_count(plan, NULL, NULL, &got);
    XT_CHECK(memcmp(&want->traffic, &got, sizeof got) == 0);
    XT_CHECK(!got.sent[1] && !got.received[1]);
}

/* Both ends of every connection count the same messages. */
static void compare_ends(const struct world *world)
{
    for (int r = 0; r < world->n; r++) {
        const struct xccl_schedule *schedule = world->bindings[r]->schedule;
        uint32_t *mine = calloc(schedule->nconns + 1u, sizeof *mine);
        struct xccl_plan_traffic traffic;

        XT_CHECK(mine != NULL);
        xccl_plan_count(&world->plans[r], NULL, mine, &traffic);
        for (int i = 0; i < schedule->nconns; i++) {
            const struct xccl_schedule_conn *conn = &schedule->conns[i];
            const struct xccl_schedule *other = world->bindings[conn->peer]->schedule;
            uint32_t *theirs = calloc(other->nconns + 1u, sizeof *theirs);

            XT_CHECK(theirs != NULL);
            xccl_plan_count(&world->plans[conn->peer], NULL, theirs, &traffic);
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

/* A plan of one rank, whose links have no memory. */
static void check_count(const struct xccl_generator *generator, int n, int rank, int root,
                        size_t count, struct slow_count *want)
{
    struct xccl_generator_for what = {.nranks = n, .rank = rank, .root = root};
    struct xccl_planner planner = {.nranks = n, .rank = rank};
    struct xccl_call call = {
        .coll = generator->coll, .type = xcclInt32, .count = count, .root = root};
    struct xccl_plan plan = {.binding = NULL};
    struct xccl_schedule *schedule;
    struct xccl_binding *binding;

    XT_OK(xccl_generator_make(generator, &what, &schedule));
    XT_OK(xccl_binding_create(schedule, XCCL_PROTO_SLICES, &binding));
    binding->slot_bytes = 96;
    plan.binding = binding;
    if (xccl_plan_cut(&planner, &call, 0, &plan) == xcclSuccess)
        compare_counts(&plan, want);
    else
        XT_CHECK(schedule->flags & XCCL_SCHEDULE_EQUAL);
    xccl_binding_destroy(binding);
}

static void check_counts(const struct xccl_generator *generator, int n, int root,
                         struct slow_count *want)
{
    /* Nothing, one short chunk, short ones of several tiles, full ones of one tile and of more. */
    const size_t counts[] = {
        0, 1, 61, (size_t)n * 16, (size_t)n * 48, 200 + 7 * n, (size_t)n * 16 - 5};
    const int ranks[] = {0, 1, n / 2, n - 1};

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        for (size_t j = 0; j < sizeof ranks / sizeof ranks[0]; j++)
            if (ranks[j] < n)
                check_count(generator, n, ranks[j], root, counts[i], want);
}

XT_TEST(what_a_plan_counts_is_what_its_moves_send_and_receive)
{
    static const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 23, COUNT_RANKS};
    struct slow_count *want = malloc(sizeof *want);
    int generators = 0;

    XT_CHECK(want != NULL);
    for (const struct xccl_generator *const *at = xccl_generators; *at; at++, generators++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            int n = sizes[i];

            check_counts(*at, n, 0, want);
            if (xccl_coll_rooted((*at)->coll) && n > 1) {
                check_counts(*at, n, n / 2, want);
                check_counts(*at, n, n - 1, want);
            }
        }
    XT_CHECK(generators >= 42);
    free(want);
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

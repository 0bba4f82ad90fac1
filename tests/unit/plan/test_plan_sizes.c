/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans of calls whose blocks have a size each, without links and data: where slices lie, against
 * offsets that are added up here; how many messages both ends of every connection count, and of
 * which sizes, though in an all-to-all no rank knows more than its own blocks; which plan is kept;
 * which algorithms may be chosen. One thread. */
#include "plan/plan.h"

#include <stdlib.h>

#include "base/error.h"
#include "schedule/decode.h"
#include "xt.h"

#define RANKS_MAX 9
#define SLOT      (1u << 10)
#define CONNS_MAX 64
#define SIZES_MAX 64

/* Bytes from each rank to each; of a collective whose blocks all ranks know, row 0 alone. */
struct sizes {
    enum xccl_coll coll;
    int nranks;
    size_t bytes[RANKS_MAX][RANKS_MAX];
};

/* Many are 0, or end with a slice. Elements have 4 bytes. */
static size_t draw_size(uint64_t *seed)
{
    switch (xt_random(seed) % 5) {
    case 0:
        return 0;
    case 1:
        return SLOT * (xt_random(seed) % 4);
    case 2:
        return 4 * (xt_random(seed) % 10);
    default:
        return 4 * (xt_random(seed) % (SLOT + 10));
    }
}

static void draw_sizes(uint64_t *seed, struct sizes *s)
{
    for (int i = 0; i < s->nranks; i++)
        for (int j = 0; j < s->nranks; j++)
            s->bytes[i][j] = draw_size(seed);
}

static size_t in_size(const struct sizes *s, int rank, uint32_t chunk)
{
    if (s->coll == XCCL_COLL_ALL_TO_ALL)
        return s->bytes[rank][chunk];
    return s->bytes[0][s->coll == XCCL_COLL_ALL_GATHER ? (uint32_t)rank : chunk];
}

static size_t out_size(const struct sizes *s, int rank, uint32_t chunk)
{
    if (s->coll == XCCL_COLL_ALL_TO_ALL)
        return s->bytes[chunk][rank];
    return s->bytes[0][s->coll == XCCL_COLL_REDUCE_SCATTER ? (uint32_t)rank : chunk];
}

/* Blocks 12 bytes apart. */
static struct xccl_call_sizes *tables_of(const struct sizes *s, int rank)
{
    uint32_t n = (uint32_t)s->nranks;
    struct xccl_call_sizes *tables;

    XT_OK(xccl_call_sizes_create(s->coll == XCCL_COLL_ALL_GATHER ? 1 : n,
                                 s->coll == XCCL_COLL_REDUCE_SCATTER ? 1 : n, &tables));
    for (int buffer = 0; buffer < 2; buffer++) {
        size_t at = 0;

        for (uint32_t i = 0; i < tables->chunks[buffer]; i++) {
            size_t size = buffer ? out_size(s, rank, i) : in_size(s, rank, i);

            tables->sizes[buffer][i] = size;
            tables->offsets[buffer][i] = size ? at : 0;
            at += size + 12;
        }
    }
    xccl_call_sizes_seal(tables, s->coll);
    return tables;
}

static struct xccl_call call_of(const struct sizes *s, const struct xccl_call_sizes *tables)
{
    return (struct xccl_call){.coll = s->coll, .type = xcclFloat32, .op = xcclSum, .sizes = tables};
}

static void planner_open(struct xccl_planner *planner, int nranks, int rank, const char *setting)
{
    *planner = (struct xccl_planner){.nranks = nranks, .rank = rank};
    XT_OK(xccl_planner_init(planner, setting));
}

/* The plan of a call, over slots of SLOT bytes. */
static const struct xccl_plan *plan_of(struct xccl_planner *planner, const struct xccl_call *call)
{
    struct xccl_found found;

    XT_OK(xccl_plan_get(planner, call, &found));
    if (!found.plan) {
        found.binding->slot_bytes = SLOT +
                                    20; /* of which a slice uses whole elements of any type */
        found.binding->ready = 1;
        XT_OK(xccl_plan_get(planner, call, &found));
    }
    XT_CHECK(found.plan != NULL);
    return found.plan;
}

/* ---- where slices lie ---- */

/* Slices of a chunk of a buffer, as a copy of it. */
static void check_chunk(const struct xccl_plan *plan, enum xccl_step_buffer buffer, uint32_t chunk,
                        size_t size, size_t offset)
{
    const struct xccl_step copy = {.op = XCCL_STEP_SRC | XCCL_STEP_DST,
                                   .bufs = XCCL_STEP_BUFS(buffer, buffer),
                                   .src = (uint16_t)chunk,
                                   .dst = (uint16_t)chunk,
                                   .cnt = 1,
                                   .run = 1,
                                   .rep = 1};
    struct xccl_step *steps = plan->binding->schedule->steps; /* where moves are looked for */
    size_t done = 0;

    steps[0] = copy;
    for (uint32_t tile = 0; tile < plan->tiles; tile++) {
        struct xccl_place place = {.tile = tile, .step = steps};
        struct xccl_move move;

        xccl_move_make(plan, &place, &move);
        XT_CHECK(move.bytes <= plan->slice_bytes && move.bytes % 4 == 0);
        XT_CHECK(!move.bytes || (move.src == offset + done && move.dst == offset + done));
        done += move.bytes;
    }
    XT_CHECK_INT(done, size);
}

static void check_layouts(const struct sizes *s, int rank, const struct xccl_plan *plan)
{
    for (int buffer = 0; buffer < 2; buffer++) {
        uint32_t chunks = xccl_schedule_chunks(plan->binding->schedule,
                                               (enum xccl_step_buffer)buffer);
        size_t at = 0;

        for (uint32_t i = 0; i < chunks; i++) {
            size_t size = buffer ? out_size(s, rank, i) : in_size(s, rank, i);

            check_chunk(plan, (enum xccl_step_buffer)buffer, i, size, at);
            at += size + 12;
        }
    }
}

XT_TEST(slices_cover_every_byte_of_every_block_once)
{
    static const enum xccl_coll colls[] = {XCCL_COLL_ALL_GATHER, XCCL_COLL_REDUCE_SCATTER,
                                           XCCL_COLL_ALL_TO_ALL};
    uint64_t seed = xt_seed();

    for (int i = 0; i < 300; i++) {
        struct sizes s = {.coll = colls[i % 3], .nranks = 1 + i % RANKS_MAX};
        int rank = (int)(xt_random(&seed) % (uint64_t)s.nranks);
        struct xccl_call_sizes *tables;
        struct xccl_planner planner;
        struct xccl_call call;

        draw_sizes(&seed, &s);
        tables = tables_of(&s, rank);
        call = call_of(&s, tables);
        planner_open(&planner, s.nranks, rank, "auto");
        check_layouts(&s, rank, plan_of(&planner, &call));
        xccl_call_sizes_put(tables);
        xccl_planner_fini(&planner);
    }
}

/* ---- both ends of connections ---- */

/* What a rank does on each of its connections, as its own plan says. */
struct ends {
    uint32_t counted[CONNS_MAX]; /* messages */
    uint32_t sizes[CONNS_MAX][SIZES_MAX]; /* of them, in their order */
    uint32_t listed[CONNS_MAX];
    uint64_t sent, received; /* bytes of all of them */
};

static void list_message(struct ends *ends, long conn, uint32_t bytes)
{
    XT_CHECK(conn < CONNS_MAX && ends->listed[conn] < SIZES_MAX);
    ends->sizes[conn][ends->listed[conn]++] = bytes;
}

static void list_lane(const struct xccl_plan *plan, uint32_t lane, struct ends *ends)
{
    struct xccl_place place = xccl_place_first(plan, lane);
    struct xccl_link *const *links = plan->binding->links;

    if (!plan->tiles || !plan->binding->schedule->lanes[lane].nstep)
        return;
    do {
        struct xccl_move move;

        xccl_move_make(plan, &place, &move);
        for (int i = 0; i < move.nsend; i++)
            list_message(ends, move.send - links + i, move.send_bytes);
        for (int i = 0; i < move.nrecv; i++)
            list_message(ends, move.recv - links + i, move.bytes);
        ends->sent += (uint64_t)move.nsend * move.send_bytes;
        ends->received += (uint64_t)move.nrecv * move.bytes;
    } while (xccl_place_next(plan, &place));
}

static void fill_ends(const struct xccl_plan *plan, struct ends *ends)
{
    struct xccl_plan_traffic traffic;

    memset(ends, 0, sizeof *ends);
    XT_CHECK(plan->binding->schedule->nconns <= CONNS_MAX);
    xccl_plan_count(plan, NULL, ends->counted, &traffic);
    for (uint32_t i = 0; i < plan->binding->schedule->nlanes; i++)
        list_lane(plan, i, ends);
    for (int i = 0; i < plan->binding->schedule->nconns; i++)
        XT_CHECK_INT(ends->listed[i], ends->counted[i]);
    XT_CHECK_INT(ends->sent, traffic.sent[0]);
    XT_CHECK_INT(ends->received, traffic.received[0]);
}

/* The connection of a schedule that a send end of `rank` leads to. */
static int find_receiver(const struct xccl_schedule *schedule, int rank, uint16_t id)
{
    for (int i = 0; i < schedule->nconns; i++)
        if (schedule->conns[i].dir == XCCL_CONN_RECV && schedule->conns[i].peer == rank &&
            schedule->conns[i].id == id)
            return i;
    XT_FAIL("nobody receives connection %d of rank %d", id, rank);
}

static void compare_ends(const struct xccl_plan *const *plans, const struct ends *ends, int nranks)
{
    for (int rank = 0; rank < nranks; rank++) {
        const struct xccl_schedule *schedule = plans[rank]->binding->schedule;

        for (int i = 0; i < schedule->nconns; i++) {
            int peer = schedule->conns[i].peer, there;

            if (schedule->conns[i].dir != XCCL_CONN_SEND)
                continue;
            there = find_receiver(plans[peer]->binding->schedule, rank, schedule->conns[i].id);
            XT_CHECK_INT(ends[rank].counted[i], ends[peer].counted[there]);
            XT_CHECK(memcmp(ends[rank].sizes[i], ends[peer].sizes[there],
                            ends[rank].counted[i] * sizeof ends[rank].sizes[i][0]) == 0);
        }
    }
}

/* All ranks plan a call of these sizes. */
static void check_ends(const struct sizes *s, const char *setting)
{
    struct xccl_planner *planners = calloc(RANKS_MAX, sizeof *planners);
    struct ends *ends = calloc(RANKS_MAX, sizeof *ends);
    const struct xccl_plan *plans[RANKS_MAX];

    XT_CHECK(planners && ends);
    for (int rank = 0; rank < s->nranks; rank++) {
        struct xccl_call_sizes *tables = tables_of(s, rank);
        struct xccl_call call = call_of(s, tables);

        planner_open(&planners[rank], s->nranks, rank, setting);
        plans[rank] = plan_of(&planners[rank], &call);
        XT_CHECK_INT(plans[rank]->signature, plans[0]->signature);
        fill_ends(plans[rank], &ends[rank]);
        xccl_call_sizes_put(tables);
    }
    compare_ends(plans, ends, s->nranks);
    for (int rank = 0; rank < s->nranks; rank++)
        xccl_planner_fini(&planners[rank]);
    free(planners);
    free(ends);
}

XT_TEST(both_ends_count_the_same_messages_whatever_the_sizes)
{
    static const struct {
        enum xccl_coll coll;
        const char *setting;
    } rows[] = {
        {XCCL_COLL_ALL_GATHER, "auto"},     {XCCL_COLL_ALL_GATHER, "ring"},
        {XCCL_COLL_ALL_GATHER, "mesh"},     {XCCL_COLL_ALL_GATHER, "rhd"},
        {XCCL_COLL_ALL_GATHER, "nhr"},      {XCCL_COLL_ALL_GATHER, "nb"},
        {XCCL_COLL_ALL_GATHER, "pat"},      {XCCL_COLL_REDUCE_SCATTER, "ring"},
        {XCCL_COLL_REDUCE_SCATTER, "mesh"}, {XCCL_COLL_ALL_TO_ALL, "pairwise"},
    };
    uint64_t seed = xt_seed();

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int n = 1; n <= RANKS_MAX; n++)
            for (int round = 0; round < 6; round++) {
                struct sizes s = {.coll = rows[i].coll, .nranks = n};

                draw_sizes(&seed, &s);
                if (round == 0)
                    memset(s.bytes, 0, sizeof s.bytes);
                check_ends(&s, rows[i].setting);
            }
}

/* The first difference comes in a message, and before the shorter list of messages is over. */
XT_TEST(two_ranks_that_count_a_block_differently_have_messages_of_different_sizes)
{
    static const size_t sizes[] = {0,        4,        SLOT - 4, SLOT,
                                   SLOT + 4, 2 * SLOT, 3 * SLOT, 3 * SLOT + 8};
    struct ends *ends = calloc(2, sizeof *ends);

    XT_CHECK(ends);
    for (size_t i = 0; i < 8; i++)
        for (size_t j = 0; j < 8; j++) {
            size_t pair[2] = {sizes[i], sizes[j]};
            uint32_t at = 0;

            for (int rank = 0; rank < 2; rank++) {
                struct sizes s = {.coll = XCCL_COLL_ALL_TO_ALL, .nranks = 2};
                struct xccl_planner planner;
                struct xccl_call_sizes *tables;
                struct xccl_call call;

                s.bytes[0][1] = pair[rank];
                tables = tables_of(&s, rank);
                call = call_of(&s, tables);
                planner_open(&planner, 2, rank, "auto");
                fill_ends(plan_of(&planner, &call), &ends[rank]);
                xccl_call_sizes_put(tables);
                xccl_planner_fini(&planner);
            }
            while (at < ends[0].counted[0] && at < ends[1].counted[1] &&
                   ends[0].sizes[0][at] == ends[1].sizes[1][at])
                at++;
            if (i == j)
                XT_CHECK(at == ends[0].counted[0] && at == ends[1].counted[1]);
            else
                XT_CHECK(at < ends[0].counted[0] && at < ends[1].counted[1]);
        }
    free(ends);
}

/* ---- what is kept, and what is chosen ---- */

XT_TEST(the_last_plan_is_kept_with_sizes_of_its_own_and_the_table_is_left_alone)
{
    struct sizes s = {.coll = XCCL_COLL_ALL_GATHER, .nranks = 3};
    struct xccl_call plain = {.coll = XCCL_COLL_ALL_GATHER, .type = xcclFloat32, .count = 3};
    const struct xccl_plan *first, *kept;
    struct xccl_call_sizes *tables;
    struct xccl_planner planner;
    struct xccl_call call;
    uint64_t signature;

    s.bytes[0][1] = 40;
    planner_open(&planner, 3, 0, "auto");
    kept = plan_of(&planner, &plain);
    tables = tables_of(&s, 0);
    call = call_of(&s, tables);
    first = plan_of(&planner, &call);
    signature = first->signature;
    xccl_call_sizes_put(tables); /* the plan has a reference */
    tables = tables_of(&s, 0);
    call = call_of(&s, tables);
    XT_CHECK(plan_of(&planner, &call) == first);
    tables->offsets[XCCL_BUFFER_OUT][1] += 4;
    XT_CHECK_INT(plan_of(&planner, &call)->layouts[XCCL_BUFFER_OUT].offsets[1],
                 tables->offsets[XCCL_BUFFER_OUT][1]);
    XT_CHECK(plan_of(&planner, &call)->signature == signature); /* places are a rank's own matter */
    xccl_call_sizes_put(tables);
    s.bytes[0][1] = 44;
    tables = tables_of(&s, 0);
    call = call_of(&s, tables);
    XT_CHECK(plan_of(&planner, &call)->signature != signature);
    XT_CHECK_INT(planner.plan_count, 1);
    XT_CHECK(plan_of(&planner, &plain) == kept);
    xccl_call_sizes_put(tables);
    xccl_planner_fini(&planner);
}

static xcclResult_t choose(enum xccl_coll coll, int nranks, int all_local, const char *setting,
                           struct xccl_choice *choice_out)
{
    struct sizes s = {.coll = coll, .nranks = nranks};
    struct xccl_call_sizes *tables;
    struct xccl_planner planner;
    struct xccl_call call;
    xcclResult_t rc;

    s.bytes[0][nranks - 1] = 4;
    tables = tables_of(&s, 0);
    call = call_of(&s, tables);
    planner_open(&planner, nranks, 0, setting);
    planner.all_local = all_local;
    rc = xccl_plan_choose(&planner, &call, choice_out);
    xccl_planner_fini(&planner);
    xccl_call_sizes_put(tables);
    return rc;
}

XT_TEST(only_algorithms_that_serve_any_sizes_are_chosen_and_never_small_slots)
{
    struct xccl_choice choice;

    XT_OK(choose(XCCL_COLL_ALL_TO_ALL, 9, 1, "auto", &choice));
    XT_CHECK_TEXT(choice.generator->name, "pairwise");
    XT_CHECK_INT(choice.proto, XCCL_PROTO_SLICES);
    XT_OK(choose(XCCL_COLL_REDUCE_SCATTER, 9, 0, "auto", &choice));
    XT_CHECK_TEXT(choice.generator->name, "ring");
    XT_OK(choose(XCCL_COLL_REDUCE_SCATTER, 9, 0, "nhr,rhd,mesh", &choice));
    XT_CHECK_TEXT(choice.generator->name, "mesh");
    XT_OK(choose(XCCL_COLL_ALL_GATHER, 9, 1, "nhr,mesh", &choice));
    XT_CHECK_TEXT(choice.generator->name, "mesh");
    XT_OK(choose(XCCL_COLL_ALL_GATHER, 9, 0, "^ring", &choice));
    XT_CHECK_TEXT(choice.generator->name, "mesh");
    XT_CHECK_RC(choose(XCCL_COLL_ALL_TO_ALL, 9, 1, "bruck", &choice), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "blocks of different sizes");
    XT_CHECK_RC(choose(XCCL_COLL_REDUCE_SCATTER, 4, 1, "reduce_scatter:^ring,mesh", &choice),
                xcclInvalidUsage);
}

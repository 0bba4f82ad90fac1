/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests of the executor: all ranks of one schedule in one thread, their links in plain memory,
 * buffers with a pattern, and what each collective must make of it. */
#ifndef TESTS_UNIT_EXEC_EXEC_WORLD_H
#define TESTS_UNIT_EXEC_EXEC_WORLD_H

#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "exec/exec.h"
#include "plan/plan_int.h"
#include "schedule/generators.h"
#include "transport/arena.h"
#include "xt.h"

#define WORLD_RANKS    9
#define WORLD_CHANNELS 512
#define WORLD_TWIST    0x5a5a5a5au

/* Slots and heads between a writer and its readers; reader -1: all ranks. */
struct world_channel {
    int writer, reader, id;
    char *slots;
    _Atomic uint32_t *heads;
    struct xccl_offer *offers;
};

struct world {
    const struct xccl_generator *generator;
    int n, root, param, in_place, keeps_list;
    /* how slices may stay in buffers */
    enum { WORLD_COPIES, WORLD_OFFERS, WORLD_PLACES, WORLD_ADDRESSES } direct;
    void (*before)(struct world *world); /* each progress; NULL: nothing */
    int stayed; /* calls of a rank in which some have */
    int mixes; /* the memory of one rank in three is not read where it lies */
    int twists; /* contributions and results are changed on their way, once each */
    const int *nodes;
    const uint8_t *multicast;
    enum xccl_proto proto;
    uint32_t nslots, lag, slot_bytes;
    uint64_t seq;
    struct xccl_schedule **given; /* by rank, to be run and freed; NULL: the generator makes them */
    struct xccl_binding *bindings[WORLD_RANKS];
    struct xccl_plan plans[WORLD_RANKS];
    struct xccl_run runs[WORLD_RANKS];
    struct xccl_link *links[WORLD_RANKS];
    struct xccl_reach *reaches[WORLD_RANKS];
    void *scratch[WORLD_RANKS];
    struct world_channel channels[WORLD_CHANNELS];
    int channel_count;
    int32_t *in[WORLD_RANKS], *out[WORLD_RANKS];
    void *blocks[WORLD_RANKS][2];
    char room[512]; /* of a slice that is read by address and not stored */
};

static inline uint32_t world_slot_stride(const struct world *world)
{
    return world->proto == XCCL_PROTO_LINES ? 256 : 64 + world->slot_bytes;
}

static inline struct world_channel *world_channel(struct world *world, int writer, int reader,
                                                  int id)
{
    struct world_channel *channel = world->channels;

    for (int i = 0; i < world->channel_count; i++, channel++)
        if (channel->writer == writer && channel->reader == reader && channel->id == id)
            return channel;
    XT_CHECK(world->channel_count++ < WORLD_CHANNELS);
    *channel = (struct world_channel){
        .writer = writer,
        .reader = reader,
        .id = id,
        .slots = xccl_calloc_aligned(128, (size_t)world->nslots * world_slot_stride(world)),
        .heads = xccl_calloc_aligned(128, WORLD_RANKS * XCCL_HEAD_STRIDE),
        .offers = xccl_calloc(world->nslots, sizeof *channel->offers)};
    XT_CHECK(channel->slots && channel->heads && channel->offers);
    return channel;
}

/* The end that a connection of rank names. */
static inline struct xccl_link world_link(struct world *world, int rank,
                                          const struct xccl_schedule_conn *conn)
{
    int sends = conn->dir == XCCL_CONN_SEND, many = conn->kind == XCCL_CONN_MULTICAST;
    int writer = sends ? rank : conn->peer, reader = many ? -1 : sends ? conn->peer : rank;
    struct world_channel *channel = world_channel(world, writer, reader, conn->id);
    struct xccl_link link = {
        .header = channel->slots,
        .payload = channel->slots + (world->proto == XCCL_PROTO_LINES ? 0 : 64),
        .header_stride = world_slot_stride(world),
        .payload_stride = world_slot_stride(world),
        .nslots = world->nslots,
        .limit = world->nslots,
        .lag = (uint16_t)world->lag,
        .slot_bytes = world->slot_bytes,
        .heads = channel->heads,
        .nheads = 1,
        .own_head = UINT16_MAX,
        .peer = conn->peer,
    };

    if (many && sends) {
        link.nheads = (uint16_t)world->n;
        link.own_head = (uint16_t)rank;
    } else if (many) {
        link.heads += (size_t)rank * (XCCL_HEAD_STRIDE / sizeof *link.heads);
    }
    return link;
}

static inline struct xccl_reach world_reach(struct world *world, int rank,
                                            const struct xccl_schedule_conn *conn)
{
    int sends = conn->dir == XCCL_CONN_SEND, many = conn->kind == XCCL_CONN_MULTICAST;
    int writer = sends ? rank : conn->peer, reader = many ? -1 : sends ? conn->peer : rank;
    struct xccl_reach reach = {.min_bytes = 1};

    if (world->direct == WORLD_OFFERS)
        reach.offers = world_channel(world, writer, reader, conn->id)->offers;
    if (world->direct == WORLD_PLACES) {
        reach.takes_places = 1;
        reach.arena = xccl_arena.base;
        reach.arena_bytes = xccl_arena.bytes;
    }
    if (world->direct == WORLD_ADDRESSES) {
        reach.takes_addresses = 1;
        reach.address_min = 1;
        reach.pid = getpid();
        reach.room = world->room;
    }
    return reach;
}

static inline void world_bind(struct world *world, int rank)
{
    struct xccl_generator_for what = {.nranks = world->n,
                                      .rank = rank,
                                      .root = world->root,
                                      .param = world->param,
                                      .nodes = world->nodes,
                                      .multicast = world->multicast};
    struct xccl_schedule *schedule = world->given ? world->given[rank] : NULL;
    struct xccl_binding *binding;

    if (!schedule)
        XT_OK(xccl_generator_make(world->generator, &what, &schedule));
    XT_OK(xccl_binding_create(schedule, world->proto, &binding));
    world->bindings[rank] = binding;
    world->links[rank] = xccl_calloc_aligned(64,
                                             (schedule->nconns + 1u) * sizeof(struct xccl_link));
    world->reaches[rank] = xccl_calloc(schedule->nconns + 1u, sizeof(struct xccl_reach));
    XT_CHECK(world->links[rank] && world->reaches[rank]);
    for (int i = 0; i < schedule->nconns; i++) {
        world->links[rank][i] = world_link(world, rank, &schedule->conns[i]);
        XT_CHECK(xccl_link_slots(&world->links[rank][i]) >= schedule->minslots);
        binding->links[i] = &world->links[rank][i];
        world->reaches[rank][i] = world_reach(world, rank, &schedule->conns[i]);
        if (world->direct && world->proto == XCCL_PROTO_SLICES)
            binding->reaches[i] = &world->reaches[rank][i];
        if (binding->reaches[i] && schedule->conns[i].dir == XCCL_CONN_SEND)
            binding->offer_conns[binding->offer_count++] = (uint16_t)i;
    }
    binding->slot_bytes = world->slot_bytes;
    binding->ready = 1;
}

/* The fields up to lag are set. */
static inline void world_open(struct world *world)
{
    world->slot_bytes = world->proto == XCCL_PROTO_LINES   ? XCCL_LINES_MAX_BYTES
                        : world->proto == XCCL_PROTO_SMALL ? 512
                                                           : 96;
    for (int r = 0; r < world->n; r++)
        world_bind(world, r);
}

static inline void world_close(struct world *world)
{
    for (int r = 0; r < world->n; r++) {
        xccl_binding_destroy(world->bindings[r]);
        xccl_free(world->links[r]);
        xccl_free(world->reaches[r]);
    }
    for (int i = 0; i < world->channel_count; i++) {
        xccl_free(world->channels[i].slots);
        xccl_free(world->channels[i].heads);
        xccl_free(world->channels[i].offers);
    }
}

/* Elements of a buffer, for a count as the public call takes it; 0: the rank has none. */
static inline size_t world_elems(const struct world *world, int rank, enum xccl_step_buffer buffer,
                                 size_t count)
{
    const struct xccl_schedule *schedule = world->bindings[rank]->schedule;
    enum xccl_coll coll = world->generator->coll;
    size_t chunks = xccl_schedule_chunks(schedule, buffer);

    if (coll == XCCL_COLL_BARRIER)
        return 0;
    if (coll == XCCL_COLL_ALL_REDUCE || coll == XCCL_COLL_BROADCAST || coll == XCCL_COLL_REDUCE)
        return chunks ? count : 0;
    return chunks * count;
}

static inline int32_t world_value(int rank, size_t i)
{
    return (int32_t)(uint32_t)(i * 31 + (size_t)rank * 1000003 + 7);
}

static inline uint32_t world_sum(const struct world *world, size_t i)
{
    uint32_t sum = 0;

    for (int p = 0; p < world->n; p++)
        sum += (uint32_t)world_value(p, i);
    return world->twists ? 3 * sum ^ WORLD_TWIST : sum;
}

/* Each contribution times three, each result with some bits turned over: nothing twice. */
static inline void world_pre(void *out, const void *in, size_t elem_count,
                             const struct xccl_scalar *scalar)
{
    (void)scalar;
    for (size_t i = 0; i < elem_count; i++)
        ((uint32_t *)out)[i] = 3 * ((const uint32_t *)in)[i];
}

static inline void world_post(void *out, const void *in, size_t elem_count,
                              const struct xccl_scalar *scalar)
{
    (void)scalar;
    for (size_t i = 0; i < elem_count; i++)
        ((uint32_t *)out)[i] = ((const uint32_t *)in)[i] ^ WORLD_TWIST;
}

/* What out[i] of rank must be. */
static inline uint32_t world_want(const struct world *world, int rank, size_t count, size_t i)
{
    size_t block = count ? i / count : 0, at = count ? i % count : 0;

    switch (world->generator->coll) {
    case XCCL_COLL_BROADCAST:
        return (uint32_t)world_value(world->root, i);
    case XCCL_COLL_ALL_GATHER:
    case XCCL_COLL_GATHER:
        return (uint32_t)world_value((int)block, at);
    case XCCL_COLL_REDUCE_SCATTER:
        return world_sum(world, (size_t)rank * count + i);
    case XCCL_COLL_ALL_TO_ALL:
        return (uint32_t)world_value((int)block, (size_t)rank * count + at);
    case XCCL_COLL_SCATTER:
        return (uint32_t)world_value(world->root, (size_t)rank * count + i);
    default:
        return world_sum(world, i);
    }
}

static inline void *world_block(const struct world *world, size_t bytes)
{
    return world->direct == WORLD_PLACES ? xccl_arena_take((bytes + 4095) & ~(size_t)4095)
                                         : malloc(bytes);
}

/* Buffers of a rank: apart, or the collective's in-place form. */
static inline void world_fill(struct world *world, int rank, size_t count)
{
    size_t nin = world_elems(world, rank, XCCL_BUFFER_IN, count);
    size_t nout = world_elems(world, rank, XCCL_BUFFER_OUT, count);
    int32_t *in = world_block(world, nin * 4 + 64), *out = world_block(world, nout * 4 + 64);

    XT_CHECK(in && out);
    world->blocks[rank][0] = in;
    world->blocks[rank][1] = out;
    if (world->in_place && nin && nout) {
        if (nin <= nout)
            in = out + (nin < nout ? (size_t)rank * count : 0);
        else
            out = in + (size_t)rank * count;
    }
    for (size_t i = 0; i < nin; i++)
        in[i] = world_value(rank, i);
    world->in[rank] = in;
    world->out[rank] = out;
}

static inline void world_start(struct world *world, int rank, size_t count)
{
    struct xccl_planner planner = {.nranks = world->n, .rank = rank};
    struct xccl_call call = {
        .coll = world->generator->coll, .type = xcclInt32, .count = count, .root = world->root};
    struct xccl_plan *plan = &world->plans[rank];
    struct xccl_run_args args = {.seq = world->seq};

    *plan = (struct xccl_plan){.binding = world->bindings[rank], .signature = count * 7 + 1};
    plan->reduction.reduce = xccl_reduce_kernel(xcclInt32, xcclSum);
    if (world->twists && xccl_coll_reduces(call.coll)) {
        plan->reduction.pre = world_pre;
        plan->reduction.post = world_post;
    }
    XT_OK(xccl_plan_cut(&planner, &call, 0, plan));
    if (world->keeps_list)
        XT_OK(xccl_plan_resolve(plan));
    world_fill(world, rank, count);
    world->scratch[rank] = malloc(plan->scratch_bytes + plan->room_bytes + 64);
    XT_CHECK(world->scratch[rank] != NULL);
    args.in = world->in[rank];
    args.out = world->out[rank];
    args.scratch = world->scratch[rank];
    xccl_run_start(&world->runs[rank], plan, &args);
    world->runs[rank].by_address = !xccl_coll_reduces(call.coll); /* of any size */
    if (world->mixes && ((uint64_t)rank + world->seq) % 3 == 0) {
        world->runs[rank].by_address = false;
        world->runs[rank].places[0] = world->runs[rank].places[1] = 0;
    }
}

static inline void world_finish(struct world *world, int rank)
{
    xccl_free(world->plans[rank].moves);
    xccl_free(world->plans[rank].lane_moves);
    free(world->scratch[rank]);
    for (int i = 0; i < 2; i++)
        if (!xccl_arena_give(world->blocks[rank][i]))
            free(world->blocks[rank][i]);
}

/* One call of all ranks, which move in a random order, and its result. */
static inline void world_call(struct world *world, size_t count, uint64_t *seed)
{
    int left = world->n, idle = 0;

    world->seq++;
    for (int r = 0; r < world->n; r++)
        world_start(world, r, count);
    while (left) {
        int r = (int)(xt_random(seed) % (uint64_t)world->n);

        if (world->before)
            world->before(world);
        idle = xccl_run_progress(&world->runs[r]) ? 0 : idle + 1;
        world->stayed += world->runs[r].offers;
        XT_CHECK_INT(world->runs[r].rc, 0);
        XT_CHECK(idle < 1000); /* else: nobody can move */
        left = 0;
        for (int i = 0; i < world->n; i++)
            left += !xccl_run_done(&world->runs[i]);
    }
    for (int r = 0; r < world->n; r++) {
        for (size_t i = 0; i < world_elems(world, r, XCCL_BUFFER_OUT, count); i++)
            XT_CHECK_INT((uint32_t)world->out[r][i], world_want(world, r, count, i));
        world_finish(world, r);
    }
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* The interpreter with data, all ranks in one thread and moved in a random order: every protocol,
 * slot counts from one, sizes around slots and chunks, in place and not, and messages of another
 * call. */
#include "exec/exec.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "exec/host/interp.h"
#include "schedule/generators.h"
#include "xt.h"

#define RANKS_MAX 7

struct world {
    int n, in_place, is_ring;
    enum xccl_proto proto;
    uint32_t nslots, slot_bytes;
    size_t count;
    struct xccl_binding *bindings[RANKS_MAX];
    struct xccl_plan plans[RANKS_MAX];
    struct xccl_run runs[RANKS_MAX];
    struct xccl_link links[RANKS_MAX][2 * RANKS_MAX];
    char *slots[RANKS_MAX]; /* of the writer */
    _Atomic uint32_t *heads[RANKS_MAX]; /* of its readers, by rank */
    int32_t *in[RANKS_MAX], *out[RANKS_MAX];
};

/* A link on writer's slots: the writer's end when reader is -1. */
static void make_link(struct world *world, int writer, int reader, struct xccl_link *link)
{
    uint32_t stride = world->proto == XCCL_PROTO_LINES ? 256 : 64 + world->slot_bytes;

    *link = (struct xccl_link){.header = world->slots[writer],
                               .payload = world->slots[writer] +
                                          (world->proto == XCCL_PROTO_LINES ? 0 : 64),
                               .header_stride = stride,
                               .payload_stride = stride,
                               .nslots = world->nslots,
                               .limit = world->nslots,
                               .slot_bytes = world->slot_bytes,
                               .heads = world->heads[writer],
                               .peer = (uint16_t)writer};
    if (reader < 0) {
        link->nheads = (uint16_t)world->n;
        link->own_head = (uint16_t)writer;
        if (world->is_ring) { /* only the next rank reads */
            link->heads += (size_t)((writer + 1) % world->n) * (XCCL_HEAD_STRIDE / 4);
            link->nheads = 1;
            link->own_head = UINT16_MAX;
        }
        return;
    }
    link->heads += (size_t)reader * (XCCL_HEAD_STRIDE / 4);
    link->nheads = 1;
    link->own_head = UINT16_MAX;
}

static void make_rank(struct world *world, int rank)
{
    struct xccl_binding *binding;
    struct xccl_schedule *schedule;
    uint8_t all[RANKS_MAX];

    memset(all, 1, sizeof all);
    if (world->is_ring)
        XT_OK(xccl_gen_ring(world->n, rank, &schedule));
    else
        XT_OK(xccl_gen_oneshot(world->n, rank, all, &schedule));
    XT_OK(xccl_binding_create(schedule, world->proto, &binding));
    world->bindings[rank] = binding;
    for (int i = 0; i < schedule->nconns; i++) {
        const struct xccl_schedule_conn *conn = &schedule->conns[i];

        binding->links[i] = &world->links[rank][i];
        if (conn->dir == XCCL_CONN_SEND)
            make_link(world, rank, -1, binding->links[i]);
        else
            make_link(world, conn->peer, rank, binding->links[i]);
    }
}

static struct world *world_open(int n, int is_ring, enum xccl_proto proto, uint32_t nslots)
{
    struct world *world = calloc(1, sizeof *world);

    XT_CHECK(world);
    world->n = n;
    world->is_ring = is_ring;
    world->proto = proto;
    world->nslots = nslots;
    world->slot_bytes = proto == XCCL_PROTO_LINES   ? XCCL_LINES_MAX_BYTES
                        : proto == XCCL_PROTO_SMALL ? 512
                                                    : 96;
    for (int r = 0; r < n; r++) {
        world->slots[r] = xccl_calloc_aligned(128, (size_t)nslots * (64 + 512 + 256));
        world->heads[r] = xccl_calloc_aligned(128, (size_t)n * XCCL_HEAD_STRIDE);
        XT_CHECK(world->slots[r] && world->heads[r]);
    }
    for (int r = 0; r < n; r++)
        make_rank(world, r);
    return world;
}

static void world_close(struct world *world)
{
    for (int r = 0; r < world->n; r++) {
        xccl_binding_destroy(world->bindings[r]);
        xccl_free(world->slots[r]);
        xccl_free(world->heads[r]);
    }
    free(world);
}

static void start(struct world *world, int rank, size_t count, uint64_t seq)
{
    struct xccl_plan *plan = &world->plans[rank];
    size_t nchunks = world->bindings[rank]->schedule->nchunks;

    *plan = (struct xccl_plan){.binding = world->bindings[rank],
                               .reduce = xccl_reduce_kernel(xcclInt32, xcclSum),
                               .total_bytes = count * 4,
                               .chunk_bytes = ((count + nchunks - 1) / nchunks * 4 + 15) & ~15ull,
                               .slice_bytes = world->slot_bytes,
                               .elem_bytes = 4,
                               .signature = count * 7 + 1};
    plan->tiles = (uint32_t)((plan->chunk_bytes + plan->slice_bytes - 1) / plan->slice_bytes);
    world->in[rank] = malloc(count * 4 + 64);
    world->out[rank] = world->in_place ? world->in[rank] : malloc(count * 4 + 64);
    XT_CHECK(world->in[rank] && world->out[rank]);
    for (size_t i = 0; i < count; i++)
        world->in[rank][i] = (int32_t)(i * 31 + (size_t)rank * 1000003);
    xccl_run_start(&world->runs[rank], plan, world->in[rank], world->out[rank], seq);
}

static void finish(struct world *world, int rank)
{
    if (world->out[rank] != world->in[rank])
        free(world->out[rank]);
    free(world->in[rank]);
}

static void call_once(struct world *world, size_t count, uint64_t seq, uint64_t *seed)
{
    int left = world->n, idle = 0;

    for (int r = 0; r < world->n; r++)
        start(world, r, count, seq);
    while (left) {
        int r = (int)(xt_random(seed) % (uint64_t)world->n);

        idle = xccl_run_progress(&world->runs[r]) ? 0 : idle + 1;
        XT_CHECK_INT(world->runs[r].rc, 0);
        XT_CHECK(idle < 1000); /* else: nobody can move */
        left = 0;
        for (int i = 0; i < world->n; i++)
            left += !xccl_run_done(&world->runs[i]);
    }
    for (int r = 0; r < world->n; r++) {
        for (size_t i = 0; i < count; i++) {
            uint32_t want = 0;

            for (int p = 0; p < world->n; p++)
                want += (uint32_t)(i * 31 + (size_t)p * 1000003);
            XT_CHECK_INT((uint32_t)world->out[r][i], want);
        }
        finish(world, r);
    }
}

static void many_calls(int n, int is_ring, enum xccl_proto proto, uint32_t nslots)
{
    struct world *world = world_open(n, is_ring, proto, nslots);
    uint64_t seed = xt_seed();
    size_t most = is_ring || proto == XCCL_PROTO_SLICES ? 400 : world->slot_bytes / 4;

    for (uint64_t seq = 1; seq <= 40; seq++) {
        world->in_place = (int)(seq & 1);
        call_once(world, xt_random(&seed) % (most + 1), seq, &seed);
    }
    world_close(world);
}

XT_TEST(oneshot_over_lines_adds_up)
{
    for (int n = 2; n <= RANKS_MAX; n++)
        for (uint32_t s = 1; s <= 5; s++)
            many_calls(n, 0, XCCL_PROTO_LINES, s);
}
XT_TEST(oneshot_over_small_slots_adds_up)
{
    for (int n = 2; n <= RANKS_MAX; n++)
        for (uint32_t s = 1; s <= 5; s++)
            many_calls(n, 0, XCCL_PROTO_SMALL, s);
}
XT_TEST(oneshot_over_slices_adds_up)
{
    for (int n = 2; n <= RANKS_MAX; n++)
        for (uint32_t s = 1; s <= 5; s++)
            many_calls(n, 0, XCCL_PROTO_SLICES, s);
}
XT_TEST(ring_over_slices_adds_up)
{
    for (int n = 2; n <= RANKS_MAX; n++)
        for (uint32_t s = 2; s <= 5; s++)
            many_calls(n, 1, XCCL_PROTO_SLICES, s);
}

/* Two ranks make different calls with the same number: whoever looks finds out and touches nothing.
 */
static void disagree(enum xccl_proto proto)
{
    struct world *world = world_open(2, 0, proto, 4);
    int found = 0;

    start(world, 0, 10, 1);
    start(world, 1, 11, 1);
    for (int i = 0; i < 10; i++)
        for (int r = 0; r < 2; r++)
            if (!world->runs[r].rc)
                (void)xccl_run_progress(&world->runs[r]);
    for (int r = 0; r < 2; r++) {
        found += world->runs[r].rc == xcclInvalidUsage && world->runs[r].bad_peer == 1 - r;
        finish(world, r);
    }
    XT_CHECK_INT(found, 2);
    world_close(world);
}

XT_TEST(a_message_of_another_call_is_an_error_over_lines)
{
    disagree(XCCL_PROTO_LINES);
}
XT_TEST(a_message_of_another_call_is_an_error_over_small_slots)
{
    disagree(XCCL_PROTO_SMALL);
}
XT_TEST(a_message_of_another_call_is_an_error_over_slices)
{
    disagree(XCCL_PROTO_SLICES);
}

static xcclResult_t give_up(struct xccl_run *run, uint64_t waited_ns)
{
    (void)run;
    return waited_ns > 20 * XCCL_NS_PER_MS ? xcclTimeout : xcclSuccess;
}

XT_TEST(a_wait_ends_when_its_check_says_so)
{
    struct xccl_wait_policy policy = xccl_wait_policy_for(1, 1);
    struct world *world = world_open(2, 0, XCCL_PROTO_LINES, 4);
    struct xccl_run *run = &world->runs[0];
    unsigned which = 7;

    start(world, 0, 10, 1); /* rank 1 never comes */
    run->check = give_up;
    xccl_exec_wait(&run, 1, &policy, &which);
    XT_CHECK_INT(which, 0);
    XT_CHECK_RC(run->rc, xcclTimeout);
    finish(world, 0);
    world_close(world);
}

XT_TEST(a_schedule_with_steps_that_are_not_known_yet_is_refused)
{
    static const char *const names[] = {"rd", "nhr", "dtree"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct xccl_generator_for what = {.nranks = 4, .rank = 1};
        const struct xccl_generator *generator = xccl_generator_find(XCCL_COLL_ALL_REDUCE, names[i],
                                                                     &what.param);
        struct xccl_binding *binding;
        struct xccl_schedule *schedule;

        XT_CHECK(generator != NULL);
        XT_OK(xccl_generator_make(generator, &what, &schedule));
        XT_CHECK_RC(xccl_binding_create(schedule, XCCL_PROTO_SLICES, &binding), xcclInternalError);
        XT_CHECK_HAS(xccl_error_text(), "the executor does not know all that ");
        XT_CHECK_HAS(xccl_error_text(), names[i]);
    }
}

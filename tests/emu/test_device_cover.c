/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels with data: points of algorithm x protocol x type x operator x ranks x alignment x place x
 * channels x count x slots x first step, every two values of which meet, and points drawn at random
 * (XT_SEED, XT_POINTS). At each point one operation, then others on the same links, the last one
 * twice. Then what goes wrong: another call on one rank, and a rank that never begins.
 *
 * Over the driver of XT_CUDA_LIBRARY: a real device, or the stand-in on which kernels are host
 * code. The last test goes through the product of algorithm, protocol, ranks, type, operator,
 * place, channels and count, with the rest drawn; some of it, or with XT_PRODUCT="PART/PARTS" all
 * of that part, from world XT_PRODUCT_FIRST on for XT_PRODUCT_SECONDS. XT_FIGURES: a file that is
 * told how far it came. */
#include <stdio.h>
#include <stdlib.h>

#include "dev_points.h"
#include "dev_world.h"
#include "unit/schedule/schedule_ranks.h"
#include "xt.h"

#define SHARDS 6

/* Links beyond the fewest slots, and how large slots are. */
static const uint32_t slot_kinds[3][2] = {{0, 96}, {1, 512}, {3, 160}};
/* First steps and operations: new, before steps come again in lines, before they wrap. */
static const uint32_t first_steps[3] = {0, (1u << 30) - 2, UINT32_MAX - 1};
static const uint64_t first_seqs[3] = {0, 41, UINT32_MAX - 1};

/* ---- one point ---- */

/* Elements of the vector, or of a block, so that chunks are of that many bytes. */
static size_t count_of(const struct dev_world *world, const struct dev_call *call,
                       size_t chunk_bytes)
{
    enum xccl_coll coll = world->setup.generator->coll;
    int is_vector = coll == XCCL_COLL_ALL_REDUCE || coll == XCCL_COLL_BROADCAST ||
                    coll == XCCL_COLL_REDUCE;
    size_t chunks = is_vector ? world->ranks[0].binding->schedule->nchunks : 1;

    return chunks * chunk_bytes / xccl_type_bytes(call->type);
}

static size_t draw_count(const struct dev_world *world, const struct dev_call *call,
                         enum dev_count kind, uint64_t *seed)
{
    size_t slice = (size_t)world->setup.slot_bytes * call->channels;

    switch (kind) {
    case DEV_COUNT_0:
        return 0;
    case DEV_COUNT_1:
        return 1;
    case DEV_COUNT_ODD:
        return 3 + xt_random(seed) % 60 * 2;
    case DEV_COUNT_SLICE:
        return count_of(world, call, slice);
    case DEV_COUNT_OVER:
        return count_of(world, call, slice) + 1;
    default:
        return count_of(world, call, slice * 2) + xt_random(seed) % 50;
    }
}

static void set_type(struct dev_world *world, struct dev_call *call, const struct dev_point *point)
{
    call->type = (xcclDataType_t)point->at[DEV_TYPE];
    call->op = point->at[DEV_OP];
    if (!xccl_coll_reduces(world->setup.generator->coll))
        call->op = 0;
}

/* Slots of LL128 are whole lines. */
static uint32_t slot_bytes_of(const struct dev_point *point)
{
    uint32_t bytes = slot_kinds[point->at[DEV_SLOTS]][1];

    return point->at[DEV_PROTO] == XCCL_DEV_LL128 ? (bytes + 479) / 480 * 480 : bytes;
}

static struct dev_setup setup_of(const struct dev_point *point, uint64_t *seed)
{
    struct dev_algo algos[DEV_ALGOS_MAX];
    const struct dev_algo *algo = &algos[point->at[DEV_ALGO]];
    int n = point->at[DEV_RANKS_LESS_1] + 1;

    (void)dev_algos(algos);
    return (struct dev_setup){
        .generator = algo->generator,
        .n = n,
        .root = xccl_coll_rooted(algo->generator->coll) ? (int)(xt_random(seed) % (uint64_t)n) : 0,
        .param = algo->param,
        .proto = (enum xccl_dev_proto)point->at[DEV_PROTO],
        .link_channels = point->at[DEV_CHANNELS_LESS_1] + 1u + (uint32_t)(xt_random(seed) % 2),
        .nslots = (uint32_t)algo->generator->slots + slot_kinds[point->at[DEV_SLOTS]][0],
        .slot_bytes = slot_bytes_of(point),
        .first_step = first_steps[point->at[DEV_START]],
        .first_seq = first_seqs[point->at[DEV_START]],
    };
}

/* No more channels than so many that all blocks run at once. */
static uint32_t channels_for(const struct dev_world *world, uint32_t channels)
{
    uint32_t lanes = 0;

    for (int r = 0; r < world->setup.n; r++)
        lanes += world->ranks[r].binding->schedule->nlanes;
    while (channels > 1 && lanes * channels > dev_blocks_max(world->machine))
        channels--;
    return channels;
}

static void run_point(struct dev_machine *machine, const struct dev_point *point, uint64_t seed)
{
    struct dev_setup setup = setup_of(point, &seed);
    struct dev_world world;
    struct dev_call call = {
        .in_place = point->at[DEV_IN_PLACE],
        .offsets = {point->at[DEV_IN_AT], point->at[DEV_OUT_AT]},
    };

    dev_world_open(&world, machine, &setup);
    call.channels = channels_for(&world, point->at[DEV_CHANNELS_LESS_1] + 1u);
    set_type(&world, &call, point);
    call.count = draw_count(&world, &call, (enum dev_count)point->at[DEV_COUNT], &seed);
    dev_world_call(&world, &call, xt_random(&seed), 1);
    for (int i = 1; i <= 2; i++) {
        struct dev_point other = dev_point_random(&seed);

        set_type(&world, &call, &other);
        call.channels = channels_for(&world, 1 + other.at[DEV_COUNT] % setup.link_channels);
        call.tile_bytes = other.at[DEV_SLOTS] ? 0 : 32u * (1 + other.at[DEV_IN_AT] % 3);
        call.scalar_there = i == 2;
        call.count = draw_count(&world, &call, (enum dev_count)other.at[DEV_COUNT], &seed);
        dev_world_call(&world, &call, xt_random(&seed), i);
    }
    dev_world_close(&world);
}

/* ---- every two values ---- */

static void run_shard(unsigned shard)
{
    struct dev_machine machine;
    uint64_t seed = xt_seed();
    size_t count;
    struct dev_point *points;

    dev_machine_open(&machine);
    points = dev_points_pairs(seed, &count);
    for (size_t i = shard; i < count; i += SHARDS)
        run_point(&machine, &points[i], seed + i);
    free(points);
    dev_machine_close(&machine);
}

XT_TEST_DEADLINE(every_two_values_meet_1_of_6, 300)
{
    run_shard(0);
}
XT_TEST_DEADLINE(every_two_values_meet_2_of_6, 300)
{
    run_shard(1);
}
XT_TEST_DEADLINE(every_two_values_meet_3_of_6, 300)
{
    run_shard(2);
}
XT_TEST_DEADLINE(every_two_values_meet_4_of_6, 300)
{
    run_shard(3);
}
XT_TEST_DEADLINE(every_two_values_meet_5_of_6, 300)
{
    run_shard(4);
}
XT_TEST_DEADLINE(every_two_values_meet_6_of_6, 300)
{
    run_shard(5);
}

XT_TEST_DEADLINE(points_drawn_at_random_give_right_results, 300)
{
    const char *text = getenv("XT_POINTS");
    long points = text ? strtol(text, NULL, 10) : 200;
    struct dev_machine machine;
    uint64_t seed = xt_seed();

    dev_machine_open(&machine);
    for (long i = 0; i < points; i++) {
        struct dev_point point = dev_point_random(&seed);

        run_point(&machine, &point, seed);
    }
    dev_machine_close(&machine);
}

/* ---- the product ---- */

struct product {
    long part, parts, first;
    double end; /* xt_seconds() */
    int is_all;
    uint64_t calls;
};

/* One algorithm, protocol and number of ranks, with all that fits on its links. */
static void run_world(struct dev_machine *machine, struct product *product, struct dev_point point,
                      uint64_t seed)
{
    const enum dev_dimension inner[] = {DEV_TYPE, DEV_OP, DEV_IN_PLACE, DEV_CHANNELS_LESS_1,
                                        DEV_COUNT};
    const unsigned sizes[] = {xcclNumTypes, DEV_OPS, 2, 4, DEV_COUNTS};
    struct dev_setup setup = setup_of(&point, &seed);
    struct dev_world world;

    dev_world_open(&world, machine, &setup);
    for (unsigned i = 0; i < xcclNumTypes * DEV_OPS * 2 * 4 * DEV_COUNTS; i++) {
        struct dev_point here = point, normal;
        struct dev_call call = {.in_place = 0};

        for (unsigned k = 0, rest = i; k < 5; rest /= sizes[k++])
            here.at[inner[k]] = (uint8_t)(rest % sizes[k]);
        normal = here;
        if (!dev_point_normal(&normal) || memcmp(&here, &normal, sizeof here) != 0 ||
            (!product->is_all && xt_random(&seed) % 64))
            continue;
        set_type(&world, &call, &here);
        call.in_place = here.at[DEV_IN_PLACE];
        call.channels = channels_for(&world, here.at[DEV_CHANNELS_LESS_1] + 1u);
        call.offsets[0] = (uint32_t)(xt_random(&seed) % 16);
        call.offsets[1] = (uint32_t)(xt_random(&seed) % 16);
        call.count = draw_count(&world, &call, (enum dev_count)here.at[DEV_COUNT], &seed);
        dev_world_call(&world, &call, xt_random(&seed), 1);
        product->calls++;
    }
    dev_world_close(&world);
}

static double number_of(const char *name, double fallback)
{
    const char *text = getenv(name);

    return text ? strtod(text, NULL) : fallback;
}

static void tell_product(const struct product *product, long worlds, long at)
{
    const char *name = getenv("XT_FIGURES");
    FILE *file = name ? fopen(name, "a") : NULL;

    if (!file)
        return;
    fprintf(file, "part %ld of %ld: worlds %ld to %ld of %ld, %llu calls, XT_SEED=%#llx\n",
            product->part, product->parts, product->first, at, worlds,
            (unsigned long long)product->calls, (unsigned long long)xt_seed());
    fclose(file);
}

static void run_product(struct dev_machine *machine, struct product *product)
{
    struct dev_algo algos[DEV_ALGOS_MAX];
    long per_algo = XCCL_DEV_PROTOS * DEV_POINT_RANKS, worlds = dev_algos(algos) * per_algo;
    long at = product->first;

    for (; at < worlds && xt_seconds() < product->end; at++) {
        uint64_t seed = xt_seed() + (uint64_t)at;
        struct dev_point point = {.at = {(uint8_t)(at / per_algo)}}, normal;

        point.at[DEV_PROTO] = (uint8_t)(at / DEV_POINT_RANKS % XCCL_DEV_PROTOS);
        point.at[DEV_RANKS_LESS_1] = (uint8_t)(at % DEV_POINT_RANKS);
        point.at[DEV_CHANNELS_LESS_1] = 3;
        point.at[DEV_SLOTS] = (uint8_t)(xt_random(&seed) % 3);
        point.at[DEV_START] = (uint8_t)(xt_random(&seed) % 3);
        normal = point;
        /* Each part has all numbers of ranks: more ranks are more work. */
        if ((at + at / DEV_POINT_RANKS) % product->parts == product->part % product->parts &&
            dev_point_normal(&normal))
            run_world(machine, product, point, seed);
    }
    tell_product(product, worlds, at);
}

XT_TEST_DEADLINE(the_product_of_shapes_and_elements, 120)
{
    const char *text = getenv("XT_PRODUCT");
    struct product product = {.parts = 40,
                              .end = xt_seconds() + number_of("XT_PRODUCT_SECONDS", 60)};
    struct dev_machine machine;
    uint64_t seed = xt_seed();

    product.part = (long)(xt_random(&seed) % 40);
    if (text) {
        XT_CHECK_INT(sscanf(text, "%ld/%ld", &product.part, &product.parts), 2);
        XT_CHECK(product.parts > 0);
        product.is_all = 1;
    }
    product.first = (long)number_of("XT_PRODUCT_FIRST", 0);
    dev_machine_open(&machine);
    run_product(&machine, &product);
    dev_machine_close(&machine);
}

/* ---- waits and signals ---- */

static int staged_scrbufs, staged_dist;

static void make_staged(struct xccl_schedule **schedules_out)
{
    struct ranks ranks = staged(staged_scrbufs, staged_dist);

    memcpy(schedules_out, ranks.schedules, (size_t)ranks.n * sizeof *schedules_out);
}

/* Two lanes that hand scratch memory over by signals, with one to three buffers of it. */
XT_TEST_DEADLINE(lanes_that_wait_for_one_another_share_scratch_memory, 120)
{
    struct dev_machine machine;
    uint64_t seed = xt_seed();

    dev_machine_open(&machine);
    for (int i = 0; i < 3 * 3 * XCCL_DEV_PROTOS; i++) {
        struct dev_setup setup = {.n = 2,
                                  .proto = (enum xccl_dev_proto)(i % XCCL_DEV_PROTOS),
                                  .link_channels = 3,
                                  .nslots = 1 + (uint32_t)(xt_random(&seed) % 4),
                                  .slot_bytes = 480,
                                  .first_seq = i % 2 ? UINT32_MAX - 3 : 0,
                                  .given = make_staged};
        struct dev_world world;

        /* As many buffers as tiles may be on their way. */
        staged_scrbufs = staged_dist = 1 + i / XCCL_DEV_PROTOS % 3;
        setup.generator = xccl_generator_find(XCCL_COLL_ALL_REDUCE, "ring", &setup.param);
        dev_world_open(&world, &machine, &setup);
        for (int k = 0; k < 6; k++) {
            struct dev_call call = {.type = (xcclDataType_t)(xt_random(&seed) % xcclNumTypes),
                                    .op = (int)(xt_random(&seed) % DEV_OPS),
                                    .count = xt_random(&seed) % 3000,
                                    .channels = 1 + (uint32_t)k % 3,
                                    .tile_bytes = 64};

            dev_world_call(&world, &call, xt_random(&seed), 2);
        }
        dev_world_close(&world);
    }
    dev_machine_close(&machine);
}

/* ---- what goes wrong ---- */

/* All are told to end, and do. */
static void end_all(struct dev_world *world)
{
    dev_abort(world->machine, world->setup.n);
    XT_CHECK(dev_wait(world->machine, world->setup.n, 1));
}

static void disagree(struct dev_machine *machine, enum xccl_dev_proto proto, const char *algo,
                     int odd, void (*change)(struct dev_call *call))
{
    struct dev_setup setup = {
        .n = 4, .proto = proto, .link_channels = 2, .nslots = 4, .slot_bytes = 480};
    struct dev_world world;
    struct dev_call calls[DEV_RANKS];
    double end = xt_seconds() + 10;
    int found = 0;

    setup.generator = xccl_generator_find(XCCL_COLL_ALL_REDUCE, algo, &setup.param);
    dev_world_open(&world, machine, &setup);
    for (int r = 0; r < setup.n; r++)
        calls[r] = (struct dev_call){
            .type = xcclFloat32, .op = xcclSum, .count = 1000, .channels = 2};
    change(&calls[odd]);
    dev_world_prepare(&world, calls, 1);
    for (int r = 0; r < setup.n; r++)
        dev_world_launch(&world, r, r + 1, r);
    while (!found && xt_seconds() < end)
        for (int r = 0; r < setup.n; r++)
            found += __atomic_load_n(&machine->status[r].error, __ATOMIC_ACQUIRE) != 0;
    XT_CHECK(found);
    end_all(&world);
    for (int r = 0; r < setup.n; r++) {
        const struct xccl_dev_status *status = &machine->status[r];

        if (status->error != XCCL_DEV_OTHER_CALL) {
            XT_CHECK(!status->error || status->error == XCCL_DEV_ABORTED);
            continue;
        }
        XT_CHECK((r == odd) != ((int)status->peer == odd)); /* one of the two, on a link */
        XT_CHECK_INT(status->done, 0);
    }
    dev_world_forget(&world);
    dev_world_close(&world);
}

static void other_count(struct dev_call *call)
{
    call->count = 1001;
}

static void other_type(struct dev_call *call)
{
    call->type = xcclInt32;
}

static void other_op(struct dev_call *call)
{
    call->op = xcclMax;
}

static void much_more(struct dev_call *call)
{
    call->count = 5000;
}

XT_TEST_DEADLINE(another_call_on_one_rank_is_an_error_that_names_a_peer, 120)
{
    static void (*const changes[])(struct dev_call *) = {other_count, other_type, other_op,
                                                         much_more};
    static const char *const algos[] = {"ring", "oneshot", "rd"};
    struct dev_machine machine;

    dev_machine_open(&machine);
    for (int proto = 0; proto < XCCL_DEV_PROTOS; proto++)
        for (int i = 0; i < 12; i++)
            disagree(&machine, (enum xccl_dev_proto)proto, algos[i / 4], i % 4, changes[i % 4]);
    dev_machine_close(&machine);
}

static void leave_out(struct dev_machine *machine, enum xccl_dev_proto proto, const char *algo,
                      int absent)
{
    struct dev_setup setup = {
        .n = 4, .proto = proto, .link_channels = 3, .nslots = 6, .slot_bytes = 480};
    struct dev_world world;
    struct dev_call calls[DEV_RANKS];

    setup.generator = xccl_generator_find(XCCL_COLL_ALL_REDUCE, algo, &setup.param);
    dev_world_open(&world, machine, &setup);
    for (int r = 0; r < setup.n; r++)
        calls[r] = (struct dev_call){
            .type = xcclFloat32, .op = xcclSum, .count = 9000, .channels = 3};
    dev_world_prepare(&world, calls, 1);
    for (int r = 0; r < setup.n; r++)
        if (r != absent)
            dev_world_launch(&world, r, r + 1, r);
    XT_CHECK(!dev_wait(machine, setup.n, 0.1)); /* they wait for it */
    end_all(&world);
    for (int r = 0; r < setup.n; r++) {
        XT_CHECK_INT(machine->status[r].done, 0);
        XT_CHECK(machine->status[r].error == XCCL_DEV_OK ||
                 machine->status[r].error == XCCL_DEV_ABORTED);
    }
    dev_world_forget(&world);
    dev_world_close(&world);
}

XT_TEST_DEADLINE(kernels_that_wait_for_a_rank_that_never_begins_end_when_told, 60)
{
    static const char *const algos[] = {"ring", "twoshot", "dtree", "hier"};
    struct dev_machine machine;

    dev_machine_open(&machine);
    for (int proto = 0; proto < XCCL_DEV_PROTOS; proto++)
        for (int i = 0; i < 4; i++)
            leave_out(&machine, (enum xccl_dev_proto)proto, algos[i], i);
    dev_machine_close(&machine);
}

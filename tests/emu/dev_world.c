/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks on a device: bindings over links in device memory, plans and their images, buffers of noise
 * with guards around them, launches, and what must have come of them; in place, what came out of
 * one launch goes into the next. See dev_world.h. Thread: one. */
#include "dev_world.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "dev_reference.h"
#include "plan/plan_int.h"
#include "unit/exec/number_ref.h"
#include "xt.h"

#define CHANNELS_MAX 8192

/* From one rank to another. */
struct dev_channel {
    int writer, reader, id;
    uint32_t number;
    struct dev_slots slots;
};

/* ---- links ---- */

static const int *nodes_of(const struct dev_setup *setup)
{
    static int nodes[DEV_RANKS];

    for (int i = 0; i < setup->n; i++)
        nodes[i] = i % (1 + setup->n / 3);
    return nodes;
}

static const struct dev_slots *slots_of(struct dev_world *world, int writer, int reader, int id,
                                        uint32_t number)
{
    const struct dev_setup *setup = &world->setup;
    struct dev_channel *channel = world->channels;

    for (uint32_t i = 0; i < world->channel_count; i++, channel++)
        if (channel->writer == writer && channel->reader == reader && channel->id == id &&
            channel->number == number)
            return &channel->slots;
    XT_CHECK(world->channel_count++ < CHANNELS_MAX);
    *channel = (struct dev_channel){.writer = writer, .reader = reader, .id = id, .number = number};
    channel->slots = dev_slots_take(world->machine, setup->proto, setup->nslots, setup->slot_bytes,
                                    setup->first_step);
    return &channel->slots;
}

static void bind(struct dev_world *world, int rank, struct xccl_schedule *schedule)
{
    const struct dev_setup *setup = &world->setup;
    struct xccl_generator_for what = {.nranks = setup->n,
                                      .rank = rank,
                                      .root = setup->root,
                                      .param = setup->param,
                                      .nodes = nodes_of(setup)};
    struct dev_rank *own = &world->ranks[rank];

    if (!schedule)
        XT_OK(xccl_generator_make(setup->generator, &what, &schedule));
    XT_OK(xccl_binding_create(schedule, XCCL_PROTO_SLICES, &own->binding));
    XT_CHECK(setup->nslots >= schedule->minslots);
    own->binding->slot_bytes = setup->slot_bytes;
    own->links = (void *)dev_take(world->machine, (size_t)schedule->nconns * setup->link_channels *
                                                      sizeof *own->links);
    for (uint32_t i = 0; i < schedule->nconns * setup->link_channels; i++) {
        const struct xccl_schedule_conn *conn = &schedule->conns[i / setup->link_channels];
        int sends = conn->dir == XCCL_CONN_SEND;
        const struct dev_slots *slots = slots_of(world, sends ? rank : conn->peer,
                                                 sends ? conn->peer : rank, conn->id,
                                                 i % setup->link_channels);

        own->links[i] = dev_link_of(world->machine, slots, setup, conn->peer);
    }
}

void dev_world_open(struct dev_world *world, struct dev_machine *machine,
                    const struct dev_setup *setup)
{
    struct xccl_schedule *schedules[DEV_RANKS] = {NULL};

    if (setup->given)
        setup->given(schedules);
    machine->memory.used = 0;
    memset(machine->status, 0, DEV_RANKS * sizeof *machine->status);
    *world = (struct dev_world){.machine = machine, .setup = *setup, .seq = setup->first_seq};
    world->channels = malloc(CHANNELS_MAX * sizeof *world->channels);
    XT_CHECK(world->channels != NULL && setup->n <= DEV_RANKS);
    for (int r = 0; r < setup->n; r++) {
        struct xccl_dev_comm *comm = (void *)dev_take(machine, sizeof *comm);

        comm->seq = setup->first_seq;
        comm->rank = (uint32_t)r;
        comm->status = machine->status_there + (uint64_t)r * sizeof *machine->status;
        world->ranks[r].comm = comm;
        bind(world, r, schedules[r]);
    }
    world->links_end = machine->memory.used;
    dev_push(machine, 0);
}

void dev_world_close(struct dev_world *world)
{
    for (int r = 0; r < world->setup.n; r++)
        xccl_binding_destroy(world->ranks[r].binding);
    if (world->reference)
        dev_reference_close(world->reference);
    free(world->channels);
}

/* ---- plans ---- */

static int reduces(const struct dev_world *world)
{
    return xccl_coll_reduces(world->setup.generator->coll);
}

static struct xccl_call call_of(const struct dev_world *world, const struct dev_call *call)
{
    return (struct xccl_call){
        .coll = world->setup.generator->coll,
        .type = call->type,
        .op = (xcclRedOp_t)(reduces(world) ? call->op : 0),
        .count = world->setup.generator->coll == XCCL_COLL_BARRIER ? 0 : call->count,
        .root = world->setup.root,
    };
}

size_t dev_world_count(const struct dev_world *world, const struct dev_call *call)
{
    const struct xccl_schedule *schedule = world->ranks[0].binding->schedule;
    struct xccl_planner planner = {.nranks = world->setup.n};
    struct xccl_call as = call_of(world, call);
    size_t step = (size_t)schedule->nchunks * (64 / xccl_type_bytes(call->type));

    if (xccl_plan_is_uneven(&planner, &as, schedule))
        return (as.count + step - 1) / step * step;
    return as.count;
}

/* A number that scales without a NaN, of the type. */
static uint64_t factor_of(xcclDataType_t type, int rank)
{
    const struct number_type *of = &number_types[type];

    return of->exponent_bits ? number_float_of(of, rank % 2 ? -1.5 : 0.75) : (uint64_t)rank * 2 + 3;
}

static void find_operator(const struct dev_world *world, int rank, struct xccl_plan *plan)
{
    const struct dev_call *call = &world->ranks[rank].call;
    uint64_t factor = 0;

    if (!reduces(world))
        return;
    if (call->op != DEV_PREMUL) {
        XT_CHECK(xccl_operator_find(call->type, (xcclRedOp_t)call->op, world->setup.n,
                                    &plan->reduction));
        return;
    }
    number_put(&factor, 0, &number_types[call->type], factor_of(call->type, rank));
    XT_CHECK(xccl_operator_premul(call->type, &factor, &plan->reduction));
}

static uint64_t signature_of(const struct dev_call *call)
{
    uint64_t state = (uint64_t)call->count << 16 | (uint64_t)call->type << 8 | (uint64_t)call->op;

    return xt_random(&state) + call->signature;
}

static void make_plan(struct dev_world *world, int rank)
{
    struct dev_rank *own = &world->ranks[rank];
    struct xccl_planner planner = {.nranks = world->setup.n, .rank = rank};
    struct xccl_call as = call_of(world, &own->call);
    struct xccl_plan_image_args args = {.plan = &own->plan,
                                        .channels = own->call.channels,
                                        .link_channels = world->setup.link_channels,
                                        .proto = world->setup.proto,
                                        .id = ++world->id};

    own->plan = (struct xccl_plan){.binding = own->binding, .signature = signature_of(&own->call)};
    find_operator(world, rank, &own->plan);
    XT_OK(xccl_plan_cut(&planner, &as, own->call.tile_bytes, &own->plan));
    own->fn = xccl_device_fn_of(&own->plan, (xcclRedOp_t)own->call.op);
    args.fn = own->fn.fn;
    args.flags = own->fn.flags;
    XT_OK(xccl_plan_image_create(&args, &own->image));
    own->image_at = dev_take(world->machine, own->image->size);
    own->signals = dev_take(world->machine, own->image->signal_bytes);
    own->scratch = dev_take(world->machine, own->image->scratch_bytes);
    memset(own->scratch, 0xa7, own->image->scratch_bytes);
    own->scalar = dev_take(world->machine, sizeof(uint64_t));
    number_put(own->scalar, 0, &number_types[own->call.type], factor_of(own->call.type, rank));
    xccl_plan_image_relocate(own->image, dev_address(world->machine, own->image_at),
                             dev_address(world->machine, own->links),
                             dev_address(world->machine, own->signals));
    memcpy(own->image_at, own->image->bytes, own->image->size);
}

/* ---- buffers ---- */

static size_t buffer_bytes(const struct dev_world *world, int rank, enum xccl_step_buffer buffer)
{
    const struct dev_rank *own = &world->ranks[rank];
    size_t chunks = xccl_schedule_chunks(own->binding->schedule, buffer);
    size_t bytes = own->call.count * xccl_type_bytes(own->call.type);

    switch (world->setup.generator->coll) {
    case XCCL_COLL_BARRIER:
        return 0;
    case XCCL_COLL_ALL_REDUCE:
    case XCCL_COLL_BROADCAST:
    case XCCL_COLL_REDUCE:
        return chunks ? bytes : 0;
    default:
        return chunks * bytes;
    }
}

/* In place: the smaller one is the rank's own block of the greater one, or both are the same. */
static void place_buffers(struct dev_world *world, int rank)
{
    struct dev_rank *own = &world->ranks[rank];
    size_t elem = xccl_type_bytes(own->call.type), block = own->call.count * elem;
    size_t in = buffer_bytes(world, rank, XCCL_BUFFER_IN);
    size_t out = buffer_bytes(world, rank, XCCL_BUFFER_OUT);
    int in_place = own->call.in_place && in && out;

    own->bytes[0] = in + 2 * DEV_GUARD + own->call.offsets[0] * elem;
    own->bytes[1] = out + 2 * DEV_GUARD + own->call.offsets[1] * elem;
    for (int i = 0; i < 2; i++)
        own->blocks[i] = dev_take(world->machine, own->bytes[i]);
    own->in = in ? own->blocks[0] + DEV_GUARD + own->call.offsets[0] * elem : NULL;
    own->out = out ? own->blocks[1] + DEV_GUARD + own->call.offsets[1] * elem : NULL;
    if (in_place && in <= out)
        own->in = own->out + (in < out ? (size_t)rank * block : 0);
    else if (in_place)
        own->out = own->in + (size_t)rank * block;
}

static void fill_buffers(struct dev_world *world, uint64_t seed)
{
    world->buffers_at = world->machine->memory.used;
    for (int r = 0; r < world->setup.n; r++) {
        struct dev_rank *own = &world->ranks[r];

        place_buffers(world, r);
        for (int i = 0; i < 2; i++) {
            for (size_t at = 0; at + 8 <= own->bytes[i]; at += 8) {
                uint64_t bits = xt_random(&seed);

                memcpy(own->blocks[i] + at, &bits, 8);
            }
            own->wanted[i] = malloc(own->bytes[i]);
            XT_CHECK(own->wanted[i] != NULL);
        }
    }
}

/* Where a place of the buffers is in what is wanted. */
static char *wanted_at(const struct dev_rank *own, const char *at)
{
    for (int i = 0; i < 2; i++)
        if (at && at >= own->blocks[i] && at < own->blocks[i] + own->bytes[i])
            return own->wanted[i] + (at - own->blocks[i]);
    return NULL;
}

static void want(struct dev_world *world)
{
    struct xccl_call call = call_of(world, &world->ranks[0].call);
    struct dev_reference_rank ranks[DEV_RANKS];

    for (int r = 0; r < world->setup.n; r++) {
        struct dev_rank *own = &world->ranks[r];

        for (int i = 0; i < 2; i++)
            memcpy(own->wanted[i], own->blocks[i], own->bytes[i]);
        ranks[r] = (struct dev_reference_rank){.in = wanted_at(own, own->in),
                                               .out = wanted_at(own, own->out),
                                               .reduction = own->plan.reduction};
    }
    dev_reference_call(world->reference, &call, ranks);
}

/* ---- calls ---- */

void dev_world_prepare(struct dev_world *world, const struct dev_call *calls, uint64_t seed)
{
    world->machine->memory.used = world->links_end;
    for (int r = 0; r < world->setup.n; r++) {
        world->ranks[r].call = calls[r];
        make_plan(world, r);
    }
    fill_buffers(world, seed);
    dev_push(world->machine, world->links_end);
}

void dev_world_forget(struct dev_world *world)
{
    for (int r = 0; r < world->setup.n; r++) {
        struct dev_rank *own = &world->ranks[r];

        xccl_plan_image_destroy(own->image);
        own->image = NULL;
        for (int i = 0; i < 2; i++) {
            free(own->wanted[i]);
            own->wanted[i] = NULL;
        }
    }
}

uint32_t dev_world_blocks(const struct dev_world *world)
{
    uint32_t blocks = 0;

    for (int r = 0; r < world->setup.n; r++)
        blocks += world->ranks[r].image->blocks;
    return blocks;
}

const char *dev_world_kernel(const struct dev_world *world, int rank)
{
    const struct dev_rank *own = &world->ranks[rank];

    return xccl_device_kernel(own->call.type, own->fn.flags);
}

static struct xccl_dev_work work_of(const struct dev_world *world, int rank, uint32_t block0)
{
    const struct dev_machine *machine = world->machine;
    const struct dev_rank *own = &world->ranks[rank];
    int is_there = own->call.scalar_there && own->call.op == DEV_PREMUL;

    return (struct xccl_dev_work){
        .comm = dev_address(machine, own->comm),
        .plan = dev_address(machine, own->image_at),
        .in = own->in ? dev_address(machine, own->in) : 0,
        .out = own->out ? dev_address(machine, own->out) : 0,
        .scratch = dev_address(machine, own->scratch),
        .scalar = is_there ? 0 : own->fn.scalar,
        .scalar_at = is_there ? dev_address(machine, own->scalar) : 0,
        .block0 = block0,
        .nblocks = own->image->blocks,
    };
}

void dev_world_launch(struct dev_world *world, int first, int end, int stream)
{
    struct xccl_dev_launch launch = {.nworks = (uint32_t)(end - first)};
    const char *kernel = dev_world_kernel(world, first);
    uint32_t blocks = 0;

    for (int r = first; r < end; r++) {
        XT_CHECK_TEXT(dev_world_kernel(world, r), kernel);
        launch.works[r - first] = work_of(world, r, blocks);
        blocks += world->ranks[r].image->blocks;
    }
    dev_launch(world->machine, kernel, blocks, &launch, stream);
}

/* ---- results ---- */

static void describe(const struct dev_world *world, int rank, char *text, size_t bytes)
{
    static const char *const protos[] = {"LL", "LL128", "SIMPLE"};
    const struct dev_setup *setup = &world->setup;
    const struct dev_call *call = &world->ranks[rank].call;

    snprintf(text, bytes,
             "rank %d of %d: %s %s:%d over %s, root %d, type %s, op %d, count %zu, in place %d, "
             "offsets %u %u, channels %u of %u, %u slots of %u bytes, tiles of %u, step %u, seq "
             "%llu",
             rank, setup->n, xccl_coll_name(setup->generator->coll), setup->generator->name,
             setup->param, protos[setup->proto], setup->root, number_types[call->type].name,
             call->op, call->count, call->in_place, call->offsets[0], call->offsets[1],
             call->channels, setup->link_channels, setup->nslots, setup->slot_bytes,
             call->tile_bytes, setup->first_step, (unsigned long long)world->seq);
}

/* Both are NaN, at byte `at` of a rank's output. */
static int both_nan(const struct dev_rank *own, int block, size_t at)
{
    const struct number_type *of = &number_types[own->call.type];
    size_t elem = xccl_type_bytes(own->call.type);
    const char *got = own->blocks[block], *out = own->out;
    size_t k;

    if (!of->exponent_bits || !out || out < got || got + at < out || out >= got + own->bytes[block])
        return 0;
    k = (size_t)(got + at - out) / elem;
    return number_is_nan(of, number_get(out, k, of)) &&
           number_is_nan(of, number_get(wanted_at(own, out), k, of));
}

static void check_block(const struct dev_world *world, int rank, int block)
{
    const struct dev_rank *own = &world->ranks[rank];
    const char *got = own->blocks[block], *wanted = own->wanted[block];
    const char *base = block ? own->out : own->in ? own->in : own->out;
    char text[512];

    if (memcmp(got, wanted, own->bytes[block]) == 0)
        return;
    for (size_t at = 0; at < own->bytes[block]; at++) {
        if (got[at] == wanted[at] || both_nan(own, block, at))
            continue;
        describe(world, rank, text, sizeof text);
        XT_FAIL("%s: byte %ld of the %s buffer is %#x, not %#x", text,
                base ? (long)(got + at - base) : (long)at, block ? "receive" : "send",
                (unsigned char)got[at], (unsigned char)wanted[at]);
    }
}

static void check_status(struct dev_world *world, int rank)
{
    const struct xccl_dev_status *status = &world->machine->status[rank];
    const struct xccl_dev_start *start = &status->starts[world->seq % XCCL_DEV_STARTS];
    const struct xccl_dev_plan *head = world->ranks[rank].image->bytes;
    char text[512];

    describe(world, rank, text, sizeof text);
    if (status->error)
        XT_FAIL("%s: error %u, peer %u", text, status->error, status->peer);
    if (status->done != world->seq)
        XT_FAIL("%s: %llu is done", text, (unsigned long long)status->done);
    if (start->seq != world->seq || start->plan >> 32 != head->id || start->again != world->seq ||
        start->mark != world->ranks[rank].mark)
        XT_FAIL("%s: %llu has started, plan %llu, mark %#llx", text, (unsigned long long)start->seq,
                (unsigned long long)(start->plan >> 32), (unsigned long long)start->mark);
    world->ranks[rank].mark = xccl_mark_after(start->mark, head->signature);
}

void dev_world_check(struct dev_world *world)
{
    dev_pull(world->machine, world->buffers_at);
    for (int r = 0; r < world->setup.n; r++) {
        check_status(world, r);
        for (int i = 0; i < 2; i++)
            check_block(world, r, i);
    }
}

static void launch_and_wait(struct dev_world *world)
{
    char text[512];

    world->seq++;
    dev_world_launch(world, 0, world->setup.n, 0);
    if (dev_wait(world->machine, 1, 20))
        return;
    dev_abort(world->machine, world->setup.n);
    describe(world, 0, text, sizeof text);
    XT_FAIL("%s: hangs; %s", text,
            dev_wait(world->machine, 1, 5) ? "ends when told to" : "goes on when told to end");
}

static void open_reference(struct dev_world *world)
{
    const struct dev_setup *setup = &world->setup;
    struct xccl_schedule *schedules[DEV_RANKS] = {NULL};

    if (world->reference)
        return;
    if (setup->given)
        setup->given(schedules);
    world->reference = dev_reference_open(setup->generator, setup->n, setup->root, setup->param,
                                          nodes_of(setup), setup->given ? schedules : NULL);
}

void dev_world_call(struct dev_world *world, const struct dev_call *call, uint64_t seed, int times)
{
    const struct dev_setup *setup = &world->setup;
    struct dev_call calls[DEV_RANKS];

    open_reference(world);

    for (int r = 0; r < setup->n; r++) {
        calls[r] = *call;
        calls[r].count = dev_world_count(world, call);
    }
    dev_world_prepare(world, calls, seed);
    for (int i = 0; i < times; i++) {
        want(world); /* in place, what came out goes in again */
        launch_and_wait(world);
        dev_world_check(world);
    }
    dev_world_forget(world);
}

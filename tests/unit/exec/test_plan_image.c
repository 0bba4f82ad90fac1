/* SPDX-License-Identifier: BSD-3-Clause */
/* Images of plans for devices against the host's moves: read as device_abi.h says, an image of one
 * channel gives the same moves in the same order, tile by tile, in every algorithm and for tables
 * of sizes; several channels share each chunk out without gap or overlap; and signals, room and
 * addresses are as said. Beyond the limits of devices there are errors. */
#include "exec/cuda/plan_image.h"

#include "base/error.h"
#include "exec/cuda/device_fn.h"
#include "exec_world.h"
#include "schedule/decode.h"
#include "unit/schedule/schedule_ranks.h"

/* An image at an address of its own, that is here. */
struct read {
    struct xccl_plan_image *image;
    const struct xccl_dev_plan *plan;
    const struct xccl_dev_lane *lanes;
    const struct xccl_dev_event *events;
};

static uint64_t part_bytes(const struct xccl_dev_plan *plan, const struct xccl_dev_lane *lane)
{
    uint64_t parts = (uint64_t)lane->nparts * plan->channels;

    return parts > 1 ? ((plan->chunk_bytes + parts - 1) / parts + 63) / 64 * 64 : plan->chunk_bytes;
}

static struct read read_image(const struct xccl_plan *plan, uint32_t channels)
{
    struct xccl_plan_image_args args = {
        .plan = plan, .channels = channels, .proto = XCCL_DEV_SIMPLE, .id = 77};
    struct read read;

    XT_OK(xccl_plan_image_create(&args, &read.image));
    xccl_plan_image_relocate(read.image, (uintptr_t)read.image->bytes, 4096, 8192);
    read.plan = read.image->bytes;
    read.lanes = (const void *)(uintptr_t)read.plan->lanes;
    read.events = (const void *)(uintptr_t)read.plan->events;
    XT_CHECK_INT(read.plan->links, 4096);
    XT_CHECK_INT(read.plan->signals, 8192);
    XT_CHECK_INT(read.plan->id, 77);
    XT_CHECK_INT(read.plan->signature, plan->signature);
    XT_CHECK_INT(read.plan->channels, plan->ends_short ? 1 : channels);
    XT_CHECK_INT(read.plan->link_channels, channels);
    XT_CHECK_INT(read.image->channels, read.plan->channels);
    XT_CHECK_INT(read.image->blocks, read.plan->nlanes * read.plan->channels);
    for (uint32_t i = 0; i < read.plan->nlanes; i++)
        XT_CHECK(read.lanes[i].part_bytes == part_bytes(read.plan, &read.lanes[i]) ||
                 !read.lanes[i].nevents);
    XT_CHECK((const char *)(read.events + 0) <= (const char *)read.image->bytes + read.image->size);
    return read;
}

/* Where a block is. */
struct at {
    const struct xccl_dev_lane *lane;
    uint32_t channel, tile;
};

/* What a side of an event is in a tile: the kernel's arithmetic, written once more. */
struct piece {
    uint64_t at;
    uint32_t bytes;
    int sized, ends;
};

static struct piece piece_of(const struct xccl_dev_plan *plan, const struct at *at, uint8_t buffer,
                             uint64_t where, uint64_t size)
{
    uint64_t which = (uint64_t)at->lane->part * plan->channels + at->channel;
    uint64_t part = part_bytes(plan, at->lane), first = (uint64_t)at->tile * plan->slice_bytes;
    uint64_t from, bytes;
    struct piece piece = {where, 0, 1, 0};

    from = first < part ? which * part + first : 0;
    bytes = first >= part ? 0 : part - first < plan->slice_bytes ? part - first : plan->slice_bytes;
    piece.bytes = (uint32_t)(from >= size ? 0 : size - from < bytes ? size - from : bytes);
    if (buffer == XCCL_BUFFER_SCRATCH) {
        piece.sized = 0;
        piece.at = ((at->tile % plan->scrbufs * plan->nscratch + where) * plan->scratch_stride +
                    which) *
                   plan->slice_bytes;
        return piece;
    }
    if (buffer == XCCL_BUFFER_ZERO)
        return (struct piece){0, 0, 1, 0};
    piece.at += from;
    piece.ends = (plan->flags & XCCL_DEV_ENDS_SHORT) && size / plan->slice_bytes == at->tile;
    return piece;
}

static void pieces_of(const struct xccl_dev_plan *plan, const struct at *at,
                      const struct xccl_dev_event *event, struct piece *src, struct piece *dst)
{
    /* Of neither side: all of the chunk. */
    *src = piece_of(plan, at, XCCL_BUFFER_IN, 0, plan->chunk_bytes);
    src->sized = 0;
    *dst = *src;
    if (event->op & XCCL_STEP_SRC)
        *src = piece_of(plan, at, event->src_buffer, event->src, event->src_size);
    if (event->op & XCCL_STEP_DST)
        *dst = piece_of(plan, at, event->dst_buffer, event->dst, event->dst_size);
}

static int is_nothing(const struct xccl_dev_event *event, uint8_t bit, uint8_t buffer)
{
    return (event->op & bit) && buffer == XCCL_BUFFER_ZERO;
}

/* bytes, send_bytes, nrecv and nsend of a move. */
static struct xccl_move move_of(const struct xccl_dev_event *event, const struct piece *src,
                                const struct piece *dst)
{
    int no_src = is_nothing(event, XCCL_STEP_SRC, event->src_buffer);
    int no_dst = is_nothing(event, XCCL_STEP_DST, event->dst_buffer);
    struct xccl_move move = {.nrecv = event->nrecv, .nsend = event->nsend};

    if (event->op & XCCL_STEP_XCHG) {
        move.bytes = dst->bytes;
        move.send_bytes = src->bytes;
        move.nsend = src->bytes || src->ends || no_src ? move.nsend : 0;
        move.nrecv = dst->bytes || dst->ends || no_dst ? move.nrecv : 0;
        return move;
    }
    move.bytes = (event->op & XCCL_STEP_SRC) && (src->sized || !dst->sized) ? src->bytes
                                                                            : dst->bytes;
    move.send_bytes = move.bytes;
    if (!move.bytes && !no_src && !no_dst)
        move.nsend = move.nrecv = 0;
    return move;
}

static void compare_sides(const struct xccl_dev_event *event, const struct xccl_move *want,
                          const struct piece *src, const struct piece *dst)
{
    /* Where nothing is moved, places mean nothing. */
    if ((event->op & XCCL_STEP_SRC) && want->send_bytes)
        XT_CHECK_INT(src->at, want->src);
    if ((event->op & XCCL_STEP_DST) && want->bytes)
        XT_CHECK_INT(dst->at, want->dst);
    XT_CHECK_INT(event->src_buffer, want->src_buffer);
    XT_CHECK_INT(event->dst_buffer, want->dst_buffer);
}

static void compare(const struct xccl_plan *plan, const struct read *read, const struct at *at,
                    const struct xccl_dev_event *event, const struct xccl_place *place)
{
    struct xccl_link *const *links = plan->binding->links + at->lane->conn0;
    struct xccl_move want, got;
    struct piece src, dst;

    xccl_move_make(plan, place, &want);
    pieces_of(read->plan, at, event, &src, &dst);
    got = move_of(event, &src, &dst);
    XT_CHECK_INT(event->op, want.op);
    XT_CHECK_INT(event->flags, want.flags);
    XT_CHECK_INT(got.bytes, want.bytes);
    XT_CHECK_INT(got.send_bytes, want.send_bytes);
    XT_CHECK_INT(got.nrecv, want.nrecv);
    XT_CHECK_INT(got.nsend, want.nsend);
    if (want.nrecv)
        XT_CHECK(want.recv == links + event->recv);
    if (want.nsend)
        XT_CHECK(want.send == links + event->send);
    compare_sides(event, &want, &src, &dst);
    if (want.flags & XCCL_FLAG_ORDERED)
        for (uint32_t i = 0; i < event->nrecv; i++)
            XT_CHECK_INT(plan->binding->schedule->conns[at->lane->conn0 + event->recv + i].peer <
                             plan->binding->schedule->rank,
                         i < event->src_at);
}

/* All tiles of a lane: tile by tile, or each step through all of them. */
static void compare_lane(const struct xccl_plan *plan, const struct read *read, uint32_t index)
{
    struct at at = {.lane = &read->lanes[index]};
    const struct xccl_dev_event *all = read->events + at.lane->event0, *first = all, *end;
    struct xccl_place place = xccl_place_first(plan, index);
    int more = read->plan->tiles && at.lane->nevents;

    for (end = all; end < all + at.lane->nevents; first = end) {
        if (at.lane->order == XCCL_TILE_MAJOR)
            end = all + at.lane->nevents;
        else
            while (!end++->step_end) {
            }
        for (at.tile = 0; at.tile < read->plan->tiles; at.tile++)
            for (const struct xccl_dev_event *event = first; event < end; event++) {
                XT_CHECK(more);
                compare(plan, read, &at, event, &place);
                more = xccl_place_next(plan, &place);
            }
    }
    XT_CHECK(!more);
}

static void compare_ties(const struct xccl_plan *plan, const struct read *read, uint32_t index)
{
    const struct xccl_binding *binding = plan->binding;
    const struct xccl_schedule *schedule = binding->schedule;
    const struct xccl_dev_event *event = read->events + read->lanes[index].event0;
    uint32_t step0 = schedule->lanes[index].step0;

    for (uint32_t i = step0; i < step0 + schedule->lanes[index].nstep; i++) {
        const struct xccl_step *step = &schedule->steps[i];
        uint32_t count = (uint32_t)step->cnt * step->rep;

        XT_CHECK_INT(event->nwaits, xccl_step_waits(step));
        for (uint32_t k = 0; k < event->nwaits; k++) {
            XT_CHECK_INT(event->wait[k].signal, binding->wait_for[step->wait + k]);
            XT_CHECK_INT(event->wait[k].dist, schedule->waits[step->wait + k].dist);
        }
        for (uint32_t k = 0; k < count; k++, event++) {
            XT_CHECK_INT(event->step_end, k + 1 == count);
            XT_CHECK_INT(event->signal,
                         k + 1 == count ? binding->signal_of[i] : XCCL_DEV_NO_SIGNAL);
            XT_CHECK(!k || !event->nwaits);
        }
    }
}

static void compare_plan(const struct xccl_plan *plan)
{
    /* What ends short has one channel of several. */
    struct read read = read_image(plan, plan->ends_short ? 3 : 1);

    XT_CHECK_INT(read.plan->tiles, plan->tiles);
    XT_CHECK_INT(read.plan->slice_bytes, plan->slice_bytes);
    XT_CHECK_INT(read.image->tiles, plan->tiles);
    XT_CHECK_INT((size_t)read.plan->room_at * plan->slice_bytes, plan->scratch_bytes);
    for (uint32_t i = 0; i < plan->binding->schedule->nlanes; i++) {
        compare_lane(plan, &read, i);
        compare_ties(plan, &read, i);
    }
    xccl_plan_image_destroy(read.image);
}

/* --- channels --- */

/* What all blocks of a lane's channels do with the source of an event is the lane's part of it,
 * each byte once. */
static void share_out(const struct xccl_plan *plan, const struct read *read,
                      const struct xccl_dev_lane *lane, const struct xccl_dev_event *event)
{
    struct at whole = {.lane = lane}, at = whole;
    struct xccl_dev_plan one = *read->plan;
    struct piece src, dst;
    uint64_t next;

    one.channels = 1; /* and one slice for all of the part */
    one.slice_bytes = (uint32_t)((plan->chunk_bytes + 63) & ~(size_t)63);
    pieces_of(&one, &whole, event, &src, &dst);
    if (!(event->op & XCCL_STEP_SRC) || event->src_buffer > XCCL_BUFFER_OUT || !src.bytes ||
        lane->nparts > 1)
        return;
    next = src.at;
    for (at.channel = 0; at.channel < read->plan->channels; at.channel++)
        for (at.tile = 0; at.tile < read->plan->tiles; at.tile++) {
            struct piece piece;

            pieces_of(read->plan, &at, event, &piece, &dst);
            XT_CHECK(!piece.bytes || piece.at == next);
            next += piece.bytes;
        }
    XT_CHECK_INT(next - src.at, src.bytes);
}

static void share_plan(const struct xccl_plan *plan, uint32_t channels)
{
    struct read read = read_image(plan, channels);
    uint32_t nlanes = plan->binding->schedule->nlanes;
    size_t room = (size_t)read.plan->room_at + 2 * (size_t)read.image->blocks;

    XT_CHECK_INT(read.image->scratch_bytes, room * read.plan->slice_bytes);
    XT_CHECK_INT(read.image->signal_bytes, 8 * plan->binding->nsignals * channels);
    XT_CHECK(read.plan->slice_bytes <= plan->slice_bytes);
    XT_CHECK_INT(read.plan->slice_bytes % XCCL_TILE_ALIGN, 0);
    for (uint32_t i = 0; i < nlanes; i++)
        for (uint32_t k = 0; k < read.lanes[i].nevents; k++)
            share_out(plan, &read, &read.lanes[i], &read.events[read.lanes[i].event0 + k]);
    xccl_plan_image_destroy(read.image);
}

/* --- worlds --- */

static void look_at(struct world *world, size_t count)
{
    for (int r = 0; r < world->n; r++) {
        struct xccl_planner planner = {.nranks = world->n, .rank = r};
        struct xccl_call call = {
            .coll = world->generator->coll, .type = xcclInt32, .count = count, .root = world->root};
        struct xccl_plan plan = {.binding = world->bindings[r], .signature = count * 7 + 1};

        XT_OK(xccl_plan_cut(&planner, &call, 0, &plan));
        compare_plan(&plan);
        for (uint32_t channels = 2; channels <= 5; channels++)
            share_plan(&plan, channels);
    }
}

static void look_at_generator(const struct xccl_generator *generator, int n, uint64_t *seed)
{
    struct world *world = calloc(1, sizeof *world);
    int nodes[WORLD_RANKS];

    XT_CHECK(world != NULL);
    for (int i = 0; i < n; i++)
        nodes[i] = i % (1 + n / 3);
    world->generator = generator;
    world->n = n;
    world->root = xccl_coll_rooted(generator->coll) ? (int)(xt_random(seed) % (uint64_t)n) : 0;
    world->nodes = nodes;
    world->proto = XCCL_PROTO_SLICES;
    world->lag = 1;
    world->nslots = (uint32_t)generator->slots;
    world_open(world);
    for (size_t i = 0; i < 4; i++)
        look_at(world, i < 2 ? i : xt_random(seed) % 1500);
    world_close(world);
    free(world);
}

XT_TEST(an_image_says_what_the_moves_of_the_host_are_and_channels_share_it_out)
{
    uint64_t seed = xt_seed();

    for (const struct xccl_generator *const *at = xccl_generators; *at; at++)
        for (int n = 1; n <= WORLD_RANKS; n++) {
            struct xccl_generator_for what = {.nranks = n};

            if (!(*at)->serves || (*at)->serves(&what))
                look_at_generator(*at, n, &seed);
        }
}

/* Blocks of any size at any place, with and without a short end of each. */
static void look_at_tables(int ends_short, uint64_t *seed)
{
    struct world *world = calloc(1, sizeof *world);
    struct xccl_plan plan = {.slice_bytes = 96, .elem_bytes = 4};
    size_t offsets[5], sizes[5];
    int param;

    XT_CHECK(world != NULL);
    world->generator = xccl_generator_find(ends_short ? XCCL_COLL_ALL_TO_ALL : XCCL_COLL_ALL_GATHER,
                                           ends_short ? "pairwise" : "ring", &param);
    XT_CHECK(world->generator != NULL);
    world->n = 5;
    world->proto = XCCL_PROTO_SLICES;
    world->lag = 1;
    world->nslots = 4;
    world_open(world);
    for (int i = 0; i < 5; i++) {
        offsets[i] = xt_random(seed) % 1000 * 4;
        sizes[i] = i == 3 ? 96 * (xt_random(seed) % 4) : xt_random(seed) % 100 * 4;
        plan.chunk_bytes = sizes[i] > plan.chunk_bytes ? sizes[i] : plan.chunk_bytes;
    }
    plan.binding = world->bindings[2];
    plan.ends_short = (uint32_t)ends_short;
    plan.tiles = (uint32_t)((plan.chunk_bytes + 95) / 96 + (size_t)ends_short);
    plan.layouts[0] = (struct xccl_layout){0, 5000, offsets, sizes};
    plan.layouts[1] = plan.layouts[0];
    compare_plan(&plan);
    world_close(world);
    free(world);
}

XT_TEST(tables_of_sizes_are_in_the_image)
{
    uint64_t seed = xt_seed();

    for (int i = 0; i < 20; i++)
        look_at_tables(i & 1, &seed);
}

XT_TEST(waits_and_signals_are_tied_as_the_binding_says)
{
    struct ranks ranks = staged(2, 1);

    for (int r = 0; r < 2; r++) {
        struct xccl_binding *binding;
        struct xccl_plan plan = {.slice_bytes = 64, .tiles = 3, .chunk_bytes = 192};
        struct read read;

        XT_OK(xccl_binding_create(ranks.schedules[r], XCCL_PROTO_SLICES, &binding));
        plan.binding = binding;
        plan.layouts[0] = plan.layouts[1] = (struct xccl_layout){192, 192, NULL, NULL};
        read = read_image(&plan, 3);
        XT_CHECK(read.image->signal_bytes == 24 * binding->nsignals && binding->nsignals);
        for (uint32_t i = 0; i < binding->schedule->nlanes; i++)
            compare_ties(&plan, &read, i);
        xccl_plan_image_destroy(read.image);
        xccl_binding_destroy(binding);
    }
}

/* --- limits --- */

static xcclResult_t image_of(struct xccl_schedule *schedule, uint32_t channels,
                             uint32_t link_channels)
{
    struct xccl_binding *binding;
    struct xccl_plan plan = {.slice_bytes = 64, .tiles = 1, .chunk_bytes = 64};
    struct xccl_plan_image_args args = {
        .plan = &plan, .channels = channels, .link_channels = link_channels};
    struct xccl_plan_image *image;
    xcclResult_t rc;

    XT_OK(xccl_binding_create(schedule, XCCL_PROTO_SLICES, &binding));
    plan.binding = binding;
    plan.layouts[0] = plan.layouts[1] = (struct xccl_layout){64, 64, NULL, NULL};
    rc = xccl_plan_image_create(&args, &image);
    if (!rc)
        xccl_plan_image_destroy(image);
    xccl_binding_destroy(binding);
    return rc;
}

static struct xccl_schedule *made_for(enum xccl_coll coll, const char *name, int n,
                                      const uint8_t *multicast)
{
    struct xccl_generator_for what = {.nranks = n, .multicast = multicast};
    struct xccl_schedule *schedule;
    int param;
    const struct xccl_generator *generator = xccl_generator_find(coll, name, &param);

    XT_CHECK(generator != NULL);
    XT_OK(xccl_generator_make(generator, &what, &schedule));
    return schedule;
}

XT_TEST(more_connections_in_a_step_than_devices_take_are_an_error)
{
    XT_OK(image_of(made_for(XCCL_COLL_ALL_REDUCE, "oneshot", XCCL_DEV_FAN_MAX + 1, NULL), 4, 4));
    XT_CHECK_RC(
        image_of(made_for(XCCL_COLL_ALL_REDUCE, "oneshot", XCCL_DEV_FAN_MAX + 2, NULL), 4, 4),
        xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "a step has too many connections, 65 of at most 64");
    XT_CHECK_HAS(xccl_error_text(), "choose another algorithm");
}

XT_TEST(multicast_is_beyond_devices)
{
    static const uint8_t marks[4] = {1, 1, 1, 1};

    XT_CHECK_RC(image_of(made_for(XCCL_COLL_ALL_REDUCE, "oneshot", 4, marks), 1, 1),
                xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "connections to many at once");
}

XT_TEST(a_plan_has_no_more_channels_than_its_links_and_at_least_one)
{
    XT_OK(image_of(made_for(XCCL_COLL_ALL_REDUCE, "ring", 3, NULL), 2, 4));
    XT_CHECK_RC(image_of(made_for(XCCL_COLL_ALL_REDUCE, "ring", 3, NULL), 4, 3), xcclInternalError);
    XT_CHECK_RC(image_of(made_for(XCCL_COLL_ALL_REDUCE, "ring", 3, NULL), 0, 0), xcclInternalError);
}

/* --- operators --- */

static struct xccl_device_fn fn_of(enum xccl_coll coll, int n, xcclDataType_t type, xcclRedOp_t op)
{
    struct xccl_schedule schedule = {.coll = (uint8_t)coll, .nranks = (uint16_t)n};
    struct xccl_binding binding = {.schedule = &schedule};
    struct xccl_plan plan = {.binding = &binding};

    XT_CHECK(xccl_operator_find(type, op, n, &plan.reduction));
    return xccl_device_fn_of(&plan, op);
}

XT_TEST(operators_become_functions_scalars_and_kernels)
{
    struct xccl_device_fn fn = fn_of(XCCL_COLL_ALL_REDUCE, 4, xcclFloat16, xcclAvg);
    float quarter = 0.25f, got;

    XT_CHECK_INT(fn.fn, XCCL_DEV_SUM);
    XT_CHECK_INT(fn.flags, XCCL_DEV_REDUCES | XCCL_DEV_PRE);
    memcpy(&got, &fn.scalar, 4);
    XT_CHECK(got == quarter);
    fn = fn_of(XCCL_COLL_REDUCE, 3, xcclInt8, xcclAvg);
    XT_CHECK_INT(fn.flags, XCCL_DEV_REDUCES | XCCL_DEV_POST);
    XT_CHECK_INT(fn.scalar, 3);
    XT_CHECK_INT(fn_of(XCCL_COLL_REDUCE_SCATTER, 2, xcclInt8, xcclProd).fn, XCCL_DEV_PROD);
    XT_CHECK_INT(fn_of(XCCL_COLL_REDUCE, 2, xcclInt8, xcclMax).fn, XCCL_DEV_MAX);
    XT_CHECK_INT(fn_of(XCCL_COLL_REDUCE, 2, xcclInt8, xcclMin).fn, XCCL_DEV_MIN);
    XT_CHECK_INT(fn_of(XCCL_COLL_REDUCE, 1, xcclInt8, xcclMin).flags, 0);
    XT_CHECK_INT(fn_of(XCCL_COLL_ALL_GATHER, 4, xcclInt8, xcclSum).flags, 0);
    XT_CHECK_TEXT(xccl_device_kernel(xcclFloat8e5m2, XCCL_DEV_REDUCES), "xccl_run_e5m2");
    XT_CHECK_TEXT(xccl_device_kernel(xcclFloat64, 0), "xccl_run_copy");
    XT_CHECK(xccl_device_kernel(xcclNumTypes, XCCL_DEV_REDUCES) == NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* From a host's plan to its image for a device. What an event means is what core/exec/moves.c makes
 * of it, but for the tile: sizes of chunks are kept, and the kernel cuts them.
 *
 * Thread: see the header. */
#include "exec/cuda/plan_image.h"

#include "base/alloc.h"
#include "base/error.h"
#include "schedule/decode.h"

#define IMAGE_ALIGN 128u

/* What is being made. */
struct draft {
    const struct xccl_plan *plan;
    const struct xccl_schedule *schedule;
    struct xccl_plan_image *image;
    struct xccl_dev_plan *head;
    struct xccl_dev_lane *lanes;
    struct xccl_dev_event *events; /* the next one */
    uint32_t nevents;
};

static size_t aligned(size_t bytes)
{
    return (bytes + IMAGE_ALIGN - 1) & ~(size_t)(IMAGE_ALIGN - 1);
}

static xcclResult_t refuse(const struct xccl_schedule *schedule, const char *why, uint64_t much,
                           uint64_t limit)
{
    return xccl_fail(xcclInvalidUsage, 0, "choose another algorithm with XCCL_ALGO",
                     "devices cannot run %s of %s on rank %u of %u: %s, %llu of at most %llu",
                     schedule->name, xccl_coll_name((enum xccl_coll)schedule->coll), schedule->rank,
                     schedule->nranks, why, (unsigned long long)much, (unsigned long long)limit);
}

/* --- what there may be --- */

static xcclResult_t check_fans(const struct xccl_schedule *schedule, uint32_t lane,
                               const struct xccl_step *step)
{
    for (uint32_t occ = 0; occ < step->rep; occ++) {
        struct xccl_event event;
        uint32_t most;

        xccl_event_decode(schedule, lane, step, occ, 0, &event);
        most = event.nrecv > event.nsend ? event.nrecv : event.nsend;
        if (most > XCCL_DEV_FAN_MAX)
            return refuse(schedule, "a step has too many connections", most, XCCL_DEV_FAN_MAX);
    }
    return xcclSuccess;
}

static xcclResult_t check_lane(const struct xccl_schedule *schedule, uint32_t lane,
                               uint64_t *nevents)
{
    const struct xccl_step *step = schedule->steps + schedule->lanes[lane].step0;
    const struct xccl_step *end = step + schedule->lanes[lane].nstep;
    xcclResult_t rc = xcclSuccess;

    for (; step < end && !rc; step++) {
        *nevents += (uint64_t)step->cnt * step->rep;
        rc = check_fans(schedule, lane, step);
    }
    return rc;
}

static xcclResult_t check(const struct xccl_plan_image_args *args, uint32_t *nevents_out)
{
    const struct xccl_schedule *schedule = args->plan->binding->schedule;
    uint64_t nevents = 0;
    uint32_t nmulticasts = 0;
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = 0; i < schedule->nconns; i++)
        nmulticasts += schedule->conns[i].kind == XCCL_CONN_MULTICAST;
    if (nmulticasts)
        return refuse(schedule, "connections to many at once", nmulticasts, 0);
    if (!args->channels || (args->link_channels && args->link_channels < args->channels))
        return xccl_fail(xcclInternalError, 0, NULL, "%u channels for a plan of %s over %u",
                         args->channels, schedule->name, args->link_channels);
    for (uint32_t i = 0; i < schedule->nlanes && !rc; i++)
        rc = check_lane(schedule, i, &nevents);
    if (!rc && nevents > XCCL_IMAGE_EVENTS_MAX)
        rc = refuse(schedule, "it moves too many chunks", nevents, XCCL_IMAGE_EVENTS_MAX);
    if (!rc)
        *nevents_out = (uint32_t)nevents;
    return rc;
}

/* --- geometry --- */

static uint32_t most_parts(const struct xccl_schedule *schedule)
{
    uint32_t most = 1;

    for (uint32_t i = 0; i < schedule->nlanes; i++)
        most = schedule->lanes[i].nparts > most ? schedule->lanes[i].nparts : most;
    return most;
}

static uint32_t fewest_parts(const struct xccl_schedule *schedule)
{
    uint32_t fewest = UINT8_MAX;

    for (uint32_t i = 0; i < schedule->nlanes; i++)
        fewest = schedule->lanes[i].nparts < fewest ? schedule->lanes[i].nparts : fewest;
    return fewest;
}

/* Tiles are of parts, not of whole chunks, and slices no larger than the largest part. */
static void cut(const struct draft *draft)
{
    const struct xccl_plan *plan = draft->plan;
    struct xccl_dev_plan *head = draft->head;
    size_t part;

    head->slice_bytes = plan->slice_bytes;
    head->tiles = plan->tiles;
    if (head->channels == 1 || !plan->chunk_bytes || !plan->tiles)
        return;
    part = xccl_part_bytes(plan->chunk_bytes, fewest_parts(draft->schedule) * head->channels);
    if (part < head->slice_bytes)
        head->slice_bytes = (uint32_t)part;
    head->tiles = (uint32_t)((part + head->slice_bytes - 1) / head->slice_bytes);
}

static xcclResult_t set_scratch(const struct draft *draft)
{
    struct xccl_dev_plan *head = draft->head;
    uint64_t stride = (uint64_t)most_parts(draft->schedule) * head->channels;
    uint64_t room_at = stride * head->nscratch * head->scrbufs;
    uint64_t slices = room_at + 2ull * draft->image->blocks;

    if (slices > UINT32_MAX || __builtin_mul_overflow((size_t)slices, (size_t)head->slice_bytes,
                                                      &draft->image->scratch_bytes))
        return refuse(draft->schedule, "slices of scratch memory", slices, UINT32_MAX);
    head->scratch_stride = (uint32_t)stride;
    head->room_at = (uint32_t)room_at;
    return xcclSuccess;
}

/* --- events --- */

struct side {
    uint64_t at, size;
};

static struct side side_of(const struct xccl_plan *plan, enum xccl_step_buffer buffer,
                           uint32_t chunk)
{
    switch (buffer) {
    case XCCL_BUFFER_IN:
    case XCCL_BUFFER_OUT:
        return (struct side){xccl_layout_offset(&plan->layouts[buffer], chunk),
                             xccl_layout_size(&plan->layouts[buffer], chunk)};
    case XCCL_BUFFER_SCRATCH:
        return (struct side){chunk, plan->chunk_bytes};
    default:
        return (struct side){0, 0}; /* a message without data */
    }
}

/* Receives that come before this rank's own source, which is combined in order of rank. */
static uint8_t source_at(const struct xccl_schedule *schedule, const struct xccl_event *event)
{
    uint8_t at = 0;

    if (!(event->step->flags & XCCL_FLAG_ORDERED))
        return 0;
    while (at < event->nrecv && schedule->conns[event->rconn + at].peer <= schedule->rank)
        at++;
    return at;
}

static struct xccl_dev_event make_event(const struct xccl_plan *plan, uint32_t lane,
                                        const struct xccl_event *event)
{
    const struct xccl_schedule *schedule = plan->binding->schedule;
    const struct xccl_step *step = event->step;
    uint32_t conn0 = schedule->lanes[lane].conn0;
    /* What is said by neither side is a chunk like all others. */
    struct side src = {0, plan->chunk_bytes}, dst = src;

    if (step->op & XCCL_STEP_SRC)
        src = side_of(plan, xccl_step_src_buffer(step), event->src);
    if (step->op & XCCL_STEP_DST)
        dst = side_of(plan, xccl_step_dst_buffer(step), event->dst);
    return (struct xccl_dev_event){
        .src = src.at,
        .dst = dst.at,
        .src_size = src.size,
        .dst_size = dst.size,
        .recv = event->nrecv ? (uint16_t)(event->rconn - conn0) : 0,
        .send = event->nsend ? (uint16_t)(event->sconn - conn0) : 0,
        .nrecv = (uint8_t)event->nrecv,
        .nsend = (uint8_t)event->nsend,
        .op = step->op,
        .flags = step->flags,
        .src_buffer = (uint8_t)xccl_step_src_buffer(step),
        .dst_buffer = (uint8_t)xccl_step_dst_buffer(step),
        .src_at = source_at(schedule, event),
        .signal = XCCL_DEV_NO_SIGNAL,
    };
}

/* The step's waits before its first event, its signal behind its last. */
static void tie(const struct xccl_binding *binding, const struct xccl_step *step,
                struct xccl_dev_event *first, struct xccl_dev_event *last)
{
    static_assert(XCCL_NO_SIGNAL == XCCL_DEV_NO_SIGNAL, "one number for none");
    first->nwaits = (uint8_t)xccl_step_waits(step);
    for (uint32_t i = 0; i < first->nwaits; i++)
        first->wait[i] = (struct xccl_dev_wait){
            .signal = binding->wait_for[step->wait + i],
            .dist = binding->schedule->waits[step->wait + i].dist,
        };
    last->step_end = 1;
    last->signal = binding->signal_of[step - binding->schedule->steps];
}

static void add_step(struct draft *draft, uint32_t lane, const struct xccl_step *step)
{
    struct xccl_dev_event *first = draft->events;

    for (uint32_t occ = 0; occ < step->rep; occ++)
        for (uint32_t chunk = 0; chunk < step->cnt; chunk++) {
            struct xccl_event event;

            xccl_event_decode(draft->schedule, lane, step, occ, chunk, &event);
            *draft->events++ = make_event(draft->plan, lane, &event);
        }
    if (draft->events > first)
        tie(draft->plan->binding, step, first, draft->events - 1);
}

static void add_lane(struct draft *draft, uint32_t lane)
{
    const struct xccl_schedule_lane *of = &draft->schedule->lanes[lane];
    const struct xccl_dev_event *first = draft->events;

    for (uint32_t i = 0; i < of->nstep; i++)
        add_step(draft, lane, &draft->schedule->steps[of->step0 + i]);
    draft->lanes[lane] = (struct xccl_dev_lane){
        .event0 = draft->nevents,
        .nevents = (uint32_t)(draft->events - first),
        .conn0 = of->conn0,
        .nconns = of->nconn,
        .order = of->order,
        .part = of->part,
        .nparts = of->nparts,
        .part_bytes = xccl_part_bytes(draft->plan->chunk_bytes, of->nparts * draft->head->channels),
    };
    draft->nevents += draft->lanes[lane].nevents;
}

/* --- the block --- */

/* A schedule without lanes has one without events: somebody has to say that the call is over. */
static uint32_t lane_count(const struct xccl_schedule *schedule)
{
    return schedule->nlanes ? schedule->nlanes : 1;
}

static struct xccl_plan_image *allocate(const struct xccl_schedule *schedule, uint32_t nevents)
{
    size_t lanes_at = aligned(sizeof(struct xccl_dev_plan));
    size_t events_at = aligned(lanes_at + lane_count(schedule) * sizeof(struct xccl_dev_lane));
    size_t size = aligned(events_at + nevents * sizeof(struct xccl_dev_event));
    size_t before = aligned(sizeof(struct xccl_plan_image));
    struct xccl_plan_image *image = xccl_calloc_aligned(IMAGE_ALIGN, before + size);

    if (!image)
        return NULL;
    *image = (struct xccl_plan_image){.bytes = (char *)image + before,
                                      .size = size,
                                      .lanes_at = lanes_at,
                                      .events_at = events_at};
    return image;
}

static void fill_head(const struct xccl_plan_image_args *args, struct draft *draft)
{
    const struct xccl_schedule *schedule = draft->schedule;
    /* Ranks that know no sizes but their own would not cut alike. */
    uint32_t channels = args->plan->ends_short ? 1 : args->channels;

    *draft->head = (struct xccl_dev_plan){
        .chunk_bytes = args->plan->chunk_bytes,
        .signature = args->plan->signature,
        .id = args->id,
        .nlanes = lane_count(schedule),
        .channels = channels,
        .link_channels = args->link_channels ? args->link_channels : args->channels,
        .elem_bytes = args->plan->elem_bytes,
        .nscratch = schedule->nscratch,
        .scrbufs = schedule->scrbufs ? schedule->scrbufs : 1,
        .proto = args->proto,
        .fn = args->fn,
        .flags = args->flags | (args->plan->ends_short ? XCCL_DEV_ENDS_SHORT : 0),
    };
    draft->image->channels = channels;
    draft->image->blocks = draft->head->nlanes * channels;
    draft->image->signal_bytes = sizeof(uint64_t) * args->plan->binding->nsignals * channels;
}

static xcclResult_t fill(const struct xccl_plan_image_args *args, struct xccl_plan_image *image)
{
    char *bytes = image->bytes;
    struct draft draft = {.plan = args->plan,
                          .schedule = args->plan->binding->schedule,
                          .image = image,
                          .head = (struct xccl_dev_plan *)(void *)bytes,
                          .lanes = (struct xccl_dev_lane *)(void *)(bytes + image->lanes_at),
                          .events = (struct xccl_dev_event *)(void *)(bytes + image->events_at)};
    xcclResult_t rc;

    fill_head(args, &draft);
    cut(&draft);
    rc = set_scratch(&draft);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < draft.schedule->nlanes; i++)
        add_lane(&draft, i);
    image->tiles = draft.head->tiles;
    image->slice_bytes = draft.head->slice_bytes;
    return xcclSuccess;
}

xcclResult_t xccl_plan_image_create(const struct xccl_plan_image_args *args,
                                    struct xccl_plan_image **image_out)
{
    struct xccl_plan_image *image;
    uint32_t nevents = 0;
    xcclResult_t rc = check(args, &nevents);

    if (rc)
        return rc;
    image = allocate(args->plan->binding->schedule, nevents);
    if (!image)
        return xcclSystemError;
    rc = fill(args, image);
    if (rc) {
        xccl_plan_image_destroy(image);
        return rc;
    }
    *image_out = image;
    return xcclSuccess;
}

void xccl_plan_image_destroy(struct xccl_plan_image *image)
{
    xccl_free(image);
}

void xccl_plan_image_relocate(struct xccl_plan_image *image, uint64_t device_base,
                              uint64_t links_base, uint64_t signals_base)
{
    struct xccl_dev_plan *head = image->bytes;

    head->lanes = device_base + image->lanes_at;
    head->events = device_base + image->events_at;
    head->links = links_base;
    head->signals = signals_base;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes bindings: signals get numbers, waits are tied to them, and the room of runs is measured.
 * Thread: see the header. */
#include "exec/binding.h"

#include "base/alloc.h"
#include "base/error.h"
#include "exec/ahead.h"
#include "exec/exec.h"
#include "schedule/decode.h"

static xcclResult_t refuse(const struct xccl_schedule *schedule, const char *why)
{
    return xccl_fail(xcclInternalError, 0, "use another algorithm",
                     "the executor cannot run %s of %s on rank %u of %u: %s", schedule->name,
                     xccl_coll_name((enum xccl_coll)schedule->coll), schedule->rank,
                     schedule->nranks, why);
}

/* Most parts of a value, and whether values need room of their own: those that go to several
 * receivers, or into lines, without being stored, and those that are added to memory. */
static void measure_step(struct xccl_binding *binding, uint32_t lane, const struct xccl_step *step)
{
    uint32_t parts = 2, nsend = 0;

    for (uint32_t occ = 0; occ < step->rep; occ++) {
        struct xccl_event event;

        xccl_event_decode(binding->schedule, lane, step, occ, 0, &event);
        if (event.nrecv + 2 > parts)
            parts = event.nrecv + 2;
        if (event.nsend > nsend)
            nsend = event.nsend;
    }
    if (parts > binding->fan_max)
        binding->fan_max = parts;
    if ((step->op & XCCL_STEP_RECV) && !(step->op & XCCL_STEP_DST) && nsend > 1)
        binding->keeps_values = 1;
    if ((step->op & XCCL_STEP_ACC) && parts > 3)
        binding->keeps_values = 1;
}

static void number_signals(struct xccl_binding *binding)
{
    const struct xccl_schedule *schedule = binding->schedule;

    for (uint32_t i = 0; i < schedule->nsteps; i++)
        binding->signal_of[i] = schedule->steps[i].flags & XCCL_FLAG_SIGNAL
                                    ? (uint16_t)binding->nsignals++
                                    : XCCL_NO_SIGNAL;
}

static xcclResult_t tie_waits(struct xccl_binding *binding)
{
    const struct xccl_schedule *schedule = binding->schedule;

    for (uint32_t i = 0; i < schedule->nwaits; i++) {
        const struct xccl_schedule_wait *wait = &schedule->waits[i];
        const struct xccl_schedule_lane *lane = &schedule->lanes[wait->lane];
        uint32_t step = lane->step0, end = lane->step0 + lane->nstep;

        while (step < end && (binding->signal_of[step] == XCCL_NO_SIGNAL ||
                              schedule->steps[step].sig != wait->sig))
            step++;
        if (step == end)
            return refuse(schedule, "a step waits for a signal that no step sends");
        binding->wait_for[i] = binding->signal_of[step];
    }
    return xcclSuccess;
}

static xcclResult_t measure(struct xccl_binding *binding)
{
    const struct xccl_schedule *schedule = binding->schedule;

    for (uint32_t i = 0; i < schedule->nlanes; i++) {
        const struct xccl_schedule_lane *lane = &schedule->lanes[i];

        if (lane->order == XCCL_STEP_MAJOR && schedule->nscratch)
            return refuse(schedule, "scratch memory holds one tile, and a lane runs each step "
                                    "for all tiles");
        for (uint32_t j = 0; j < lane->nstep; j++)
            measure_step(binding, i, &schedule->steps[lane->step0 + j]);
    }
    if (binding->proto == XCCL_PROTO_LINES && binding->fan_max > XCCL_LINES_FAN_MAX + 2)
        return refuse(schedule, "a step receives more than lines are gathered for");
    return xcclSuccess;
}

static xcclResult_t make_room(struct xccl_binding *binding)
{
    const struct xccl_schedule *schedule = binding->schedule;

    /* One more of each, so that nothing is of no size. */
    binding->links = xccl_calloc(schedule->nconns + 1u, sizeof(void *));
    binding->nets = xccl_calloc(schedule->nconns + 1u, sizeof(void *));
    binding->net_conns = xccl_calloc(schedule->nconns + 1u, sizeof *binding->net_conns);
    binding->reaches = xccl_calloc(schedule->nconns + 1u, sizeof(void *));
    binding->offer_conns = xccl_calloc(schedule->nconns + 1u, sizeof *binding->offer_conns);
    binding->direct = xccl_calloc(schedule->nsteps + 1u, sizeof *binding->direct);
    binding->ahead_lane = xccl_calloc(schedule->nconns + 1u, sizeof *binding->ahead_lane);
    binding->aheads = xccl_calloc(schedule->nlanes + 1u, sizeof *binding->aheads);
    binding->signal_of = xccl_calloc(schedule->nsteps + 1u, sizeof *binding->signal_of);
    binding->wait_for = xccl_calloc(schedule->nwaits + 1u, sizeof *binding->wait_for);
    binding->signals = xccl_calloc(schedule->nsteps + 1u, sizeof *binding->signals);
    binding->lanes = xccl_calloc_aligned(64, (schedule->nlanes + 1u) * sizeof *binding->lanes);
    return binding->links && binding->nets && binding->net_conns && binding->reaches &&
                   binding->offer_conns && binding->direct && binding->ahead_lane &&
                   binding->aheads && binding->signal_of && binding->wait_for && binding->signals &&
                   binding->lanes
               ? xcclSuccess
               : xcclSystemError;
}

static xcclResult_t fill(struct xccl_binding *binding)
{
    xcclResult_t rc = make_room(binding);

    if (rc)
        return rc;
    number_signals(binding);
    rc = tie_waits(binding);
    if (!rc)
        rc = measure(binding);
    if (!rc && binding->proto == XCCL_PROTO_SLICES)
        rc = xccl_direct_mark(binding->schedule, binding->direct);
    if (rc)
        return rc;
    xccl_ahead_prepare(binding);
    binding->parts = xccl_calloc(binding->fan_max + 1u, sizeof(void *));
    return binding->parts ? xcclSuccess : xcclSystemError;
}

xcclResult_t xccl_binding_create(struct xccl_schedule *schedule, enum xccl_proto proto,
                                 struct xccl_binding **binding_out)
{
    struct xccl_binding *binding = xccl_calloc(1, sizeof *binding);
    xcclResult_t rc;

    if (!binding) {
        xccl_schedule_destroy(schedule);
        return xcclSystemError;
    }
    binding->schedule = schedule;
    binding->proto = proto;
    rc = fill(binding);
    if (rc) {
        xccl_binding_destroy(binding);
        return rc;
    }
    *binding_out = binding;
    return xcclSuccess;
}

size_t xccl_binding_bytes(const struct xccl_binding *binding)
{
    const void *const blocks[] = {binding,          binding->schedule,    binding->links,
                                  binding->nets,    binding->net_conns,   binding->signal_of,
                                  binding->reaches, binding->offer_conns, binding->direct,
                                  binding->signals, binding->wait_for,    binding->lanes,
                                  binding->parts,   binding->ahead_lane,  binding->aheads};
    size_t bytes = 0;

    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        bytes += xccl_alloc_bytes(blocks[i]);
    return bytes;
}

void xccl_binding_destroy(struct xccl_binding *binding)
{
    if (!binding)
        return;
    xccl_schedule_destroy(binding->schedule);
    xccl_free(binding->links);
    xccl_free(binding->nets);
    xccl_free(binding->net_conns);
    xccl_free(binding->reaches);
    xccl_free(binding->offer_conns);
    xccl_free(binding->direct);
    xccl_free(binding->ahead_lane);
    xccl_free(binding->aheads);
    xccl_free(binding->signal_of);
    xccl_free(binding->wait_for);
    xccl_free(binding->signals);
    xccl_free(binding->lanes);
    xccl_free(binding->parts);
    xccl_free(binding);
}

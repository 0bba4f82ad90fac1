/* SPDX-License-Identifier: BSD-3-Clause */
/* How long a call will take, from its schedule and a few fixed figures of a common host: what this
 * rank does in its busiest lane, one event after the other, each with a price for its messages and
 * one for its bytes. No measurement of this machine is in it, and none of what other ranks wait
 * for. Thread: see plan.h. */
#include "plan/plan_int.h"

/* Nanoseconds a message and a byte. Shared memory by protocol, as two ranks on cores of their own
 * have it; a network as TCP on 10 Gbit/s. */
static const double local_message_ns[XCCL_PROTO_COUNT] = {[XCCL_PROTO_LINES] = 300,
                                                          [XCCL_PROTO_SMALL] = 600,
                                                          [XCCL_PROTO_SLICES] = 1200,
                                                          [XCCL_PROTO_TIGHT] = 1200};
#define LOCAL_BYTE_NS  0.2
#define NET_MESSAGE_NS 20000.0
#define NET_BYTE_NS    0.9
#define SLICE_BYTES    (128u << 10)

static double price(const struct xccl_planner *planner, enum xccl_proto proto, double bytes)
{
    double messages = 1 + bytes / SLICE_BYTES;

    if (planner->nranks == 1)
        return bytes * LOCAL_BYTE_NS;
    return planner->all_local ? messages * local_message_ns[proto] + bytes * LOCAL_BYTE_NS
                              : messages * NET_MESSAGE_NS + bytes * NET_BYTE_NS;
}

double xccl_plan_message_ns(const struct xccl_planner *planner, size_t bytes)
{
    return price(planner, XCCL_PROTO_SLICES, (double)bytes);
}

/* Events of the lane that has most. */
static double count_events(const struct xccl_schedule *schedule)
{
    double most = 0;

    for (uint32_t i = 0; i < schedule->nlanes; i++) {
        const struct xccl_schedule_lane *lane = &schedule->lanes[i];
        double events = 0;

        for (uint32_t k = 0; k < lane->nstep; k++) {
            const struct xccl_step *step = &schedule->steps[lane->step0 + k];

            events += (double)step->rep * step->cnt;
        }
        most = events > most ? events : most;
    }
    return most;
}

xcclResult_t xccl_plan_estimate_ns(struct xccl_planner *planner, const struct xccl_call *call,
                                   double *ns_out)
{
    struct xccl_binding *binding;
    struct xccl_choice choice;
    size_t bytes = call->sizes ? call->sizes->total / (size_t)planner->nranks : 0;
    xcclResult_t rc = xccl_plan_bind(planner, call, &choice, &binding);

    if (!rc && !call->sizes)
        rc = xccl_plan_bytes(planner, call, &bytes);
    if (rc)
        return rc;
    if (!call->sizes)
        bytes = xccl_plan_chunk_bytes(call->coll, bytes, binding->schedule->nchunks);
    *ns_out = count_events(binding->schedule) * price(planner, choice.proto, (double)bytes);
    return xcclSuccess;
}

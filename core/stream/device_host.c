/* SPDX-License-Identifier: BSD-3-Clause */
/* The host as a device: the calling thread runs the steps, buffers are memory of the process, and
 * links inside the host are shared memory that needs no word with the other ranks.
 * Thread: as device_ops.h says. */
#include "comm/device_ops.h"

#include "base/huge_pages.h"
#include "base/param.h"
#include "call/call_group.h"
#include "comm/comm_where.h"
#include "connect/comm_bind.h"

static xcclResult_t no_phase(struct xccl_init *init, enum xccl_init_state *state_out)
{
    (void)init;
    *state_out = XCCL_INIT_DONE;
    return xcclSuccess;
}

static void nothing(struct xcclComm *comm)
{
    (void)comm;
}

static void no_card(const struct xcclComm *comm, char *path_out, size_t bytes)
{
    (void)comm;
    (void)bytes;
    path_out[0] = 0;
}

static void describe(const struct xcclComm *comm, struct xccl_peer *self)
{
    (void)comm;
    (void)self;
}

static void share(struct xcclComm *child, const struct xcclComm *parent)
{
    (void)child;
    (void)parent;
}

static xcclResult_t ready(struct xcclComm *comm)
{
    (void)comm;
    return xcclSuccess;
}

static xcclResult_t plan(struct xcclComm *comm)
{
    struct xccl_planner *planner = &comm->planner;

    if (comm->shm && xccl_shm_takes_addresses(comm->shm))
        planner->by_address = xccl_param_int(XCCL_P_PEER_MEMORY) == XCCL_PEER_MEMORY_ON
                                  ? XCCL_BY_ADDRESS_ALWAYS
                                  : XCCL_BY_ADDRESS_PAYS;
    planner->is_crowded = planner->all_local && comm->nranks > xccl_comm_host_cores(comm);
    planner->is_tight = planner->all_local && comm->shm && xccl_shm_is_tight(comm->shm);
    planner->multicast = comm->shm ? comm->multicast : NULL;
    return xcclSuccess;
}

static xcclResult_t offer(struct xcclComm *comm, struct xccl_binding *binding, uint8_t *offer_out,
                          uint32_t *slot_bytes_out)
{
    (void)offer_out;
    (void)slot_bytes_out;
    return xccl_comm_bind_local(comm, binding);
}

static xcclResult_t take_offers(struct xcclComm *comm, const uint8_t *offers, size_t stride)
{
    (void)comm;
    (void)offers;
    (void)stride;
    return xcclSuccess;
}

static void give_room(struct xcclComm *comm, struct xccl_net_link *net, int peer, int receives)
{
    (void)comm;
    (void)net;
    (void)peer;
    (void)receives;
}

static xcclResult_t bound(struct xcclComm *comm, struct xccl_binding *binding)
{
    xccl_comm_bind_reaches(comm, binding);
    return xcclSuccess;
}

static uint64_t next_number(struct xcclComm *comm)
{
    return comm->seq;
}

static void stand(struct xcclComm *comm, struct xccl_still *own)
{
    (void)comm;
    (void)own;
}

static int hides_error(struct xcclComm *comm)
{
    (void)comm;
    return 0;
}

static int turn(struct xcclComm *comm)
{
    (void)comm;
    return 0;
}

static uint64_t bytes(const struct xcclComm *comm)
{
    (void)comm;
    return 0;
}

const struct xccl_device_ops xccl_device_host = {
    .name = "the host",
    .open = no_phase,
    .meet = no_phase,
    .try_links = no_phase,
    .describe = describe,
    .card = no_card,
    .share = share,
    .ready = ready,
    .stop = nothing,
    .unlink = nothing,
    .close = nothing,
    .plan = plan,
    .unpin = nothing,
    .offer = offer,
    .take_offers = take_offers,
    .give_room = give_room,
    .bound = bound,
    .submit = xccl_call_group,
    .resume = nothing,
    .registered = xccl_huge_pages_make,
    .next_number = next_number,
    .stand = stand,
    .settle = nothing,
    .hold = nothing,
    .release = nothing,
    .hides_error = hides_error,
    .turn = turn,
    .bytes = bytes,
};

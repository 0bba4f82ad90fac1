/* SPDX-License-Identifier: BSD-3-Clause */
/* Sizes from which a call takes the other way, by the distance of the cores. Thread: see the
 * header. */
#include "call/comm_ways.h"

#include "base/param.h"
#include "comm/comm_where.h"

#define ADDRESS_MIN (64u << 10) /* bytes of a call; what is smaller goes through slots */
#define SLOTS_MIN   (4u << 20) /* of memory that is read in place */
#define FAR_NS      150u /* between cores that share a cache, and others */

/* As soon as one core has to do the work of several, the way with fewer copies is quicker. */
static int is_near(const struct xcclComm *comm)
{
    return comm->ways.distance_ns && comm->ways.distance_ns < FAR_NS;
}

void xccl_comm_ways_set(struct xcclComm *comm)
{
    struct xccl_ways *ways = &comm->ways;
    int all, takes = xccl_shm_takes_addresses(comm->shm);
    int arena = xccl_shm_reads_in_place(comm->shm, &all);

    ways->any = takes || arena || all;
    ways->in_arena = arena != 0;
    ways->all_in_place = all != 0;
    if (takes && xccl_param_int(XCCL_P_PEER_MEMORY) == XCCL_PEER_MEMORY_ON)
        ways->address_from = ADDRESS_MIN;
    else if (takes && !is_near(comm))
        ways->address_from = ADDRESS_MIN;
    if (is_near(comm))
        ways->slots_from = SLOTS_MIN;
}

/* All that it moves is read where it lies. */
static int is_in_place(const struct xccl_ways *ways, const struct xccl_run *run)
{
    return ways->all_in_place || (ways->in_arena && (run->places[0] || run->places[1]) &&
                                  (run->places[0] || !run->buffers[XCCL_BUFFER_IN]) &&
                                  (run->places[1] || !run->buffers[XCCL_BUFFER_OUT]));
}

void xccl_comm_ways_choose(struct xcclComm *comm)
{
    const struct xccl_plan *plan = comm->run.plan;
    const struct xccl_ways *ways = &comm->ways;
    struct xccl_run *run = &comm->run;
    uint64_t bytes = (uint64_t)plan->chunk_bytes * plan->binding->schedule->nchunks;

    if (is_in_place(ways, run))
        run->copies = ways->slots_from && bytes >= ways->slots_from;
    else if (!plan->reduction.reduce) /* a reduction reads a slot as it would its own memory */
        run->by_address = ways->address_from && bytes >= ways->address_from;
}

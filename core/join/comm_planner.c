/* SPDX-License-Identifier: BSD-3-Clause */
/* Phases of joining that make the planner, and the connections of what is called most, all-reduce,
 * of each size, so that no first call has to wait for them and a network that does not carry is
 * found at once. Thread: the joining one. */
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/param.h"
#include "call/comm_plan.h"
#include "comm/device_ops.h"
#include "connect/comm_bind.h"
#include "connect/comm_links.h"
#include "join/comm_tune.h"
#include "join/join_int.h"
#include "plugin/plugin_file.h"
#include "schedule/algo_plugin.h"

/* Calls whose algorithms are ready from the beginning: bytes of an all-reduce. */
static const size_t premade[] = {8, 4096, 32u << 10, 1u << 20};
#define PREMADE_COUNT (sizeof premade / sizeof premade[0])

uint32_t xccl_comm_algo_hash(void)
{
    const char *setting = xccl_param_string(XCCL_P_ALGO), *last = NULL;
    const char *protos = xccl_param_string(XCCL_P_PROTO);
    uint64_t hash = xccl_hash_bytes(XCCL_HASH_START, setting, strlen(setting) + 1);
    const struct xccl_generator *generator;

    hash = xccl_hash_bytes(hash, protos, strlen(protos) + 1);
    for (int i = 0; (generator = xccl_generator_at(i)); i++) {
        const char *path = xccl_algo_plugin_path(generator);

        if (path && (!last || strcmp(path, last) != 0))
            hash = plugin_file_hash(hash, path);
        last = path;
    }
    return (uint32_t)(hash ^ hash >> 32);
}

/* Derives the key of signatures: only the communicator's ranks can make a message that begins an
 * operation. */
static void draw_key(const struct xcclComm *comm, struct xccl_planner *planner)
{
    uint8_t key[32];

    xccl_bootstrap_derive_key(comm->boot, "signature", key);
    memcpy(planner->key, key, sizeof planner->key);
    explicit_bzero(key, sizeof key);
}

/* Hosts get numbers in the order of their first ranks. */
static void number_hosts(const struct xcclComm *comm)
{
    int hosts = 0;

    for (int i = 0; i < comm->nranks; i++) {
        int first = 0;

        while (comm->peers[first].host_hash != comm->peers[i].host_hash)
            first++;
        comm->nodes[i] = first == i ? hosts++ : comm->nodes[first];
    }
}

/* Ranks of a host stand together, hosts in the order of their first ranks. */
static xcclResult_t order_ranks(struct xcclComm *comm, struct xccl_planner *planner)
{
    size_t bytes = (size_t)comm->nranks * sizeof *comm->order;
    int at = 0, is_by_number = 1;

    for (int i = 1; i < comm->nranks; i++)
        is_by_number &= comm->nodes[i] >= comm->nodes[i - 1];
    if (is_by_number)
        return xcclSuccess;
    comm->order = xccl_calloc(bytes, 1);
    if (!comm->order)
        return xcclSystemError;
    for (int host = 0; at < comm->nranks; host++)
        for (int i = 0; i < comm->nranks; i++)
            if (comm->nodes[i] == host)
                comm->order[at++] = (uint16_t)i;
    planner->order = comm->order;
    planner->order_hash = xccl_hash_bytes(XCCL_HASH_START, comm->order, bytes);
    return xcclSuccess;
}

xcclResult_t xccl_init_planner(struct xccl_init *init, enum xccl_init_state *state_out)
{
    struct xcclComm *comm = init->comm;
    struct xccl_planner *planner = &comm->planner;
    size_t n = (size_t)comm->nranks;
    xcclResult_t rc = xccl_comm_links_create(comm);

    if (rc)
        return rc;
    comm->multicast = xccl_calloc(n, sizeof *comm->multicast);
    comm->nodes = xccl_calloc(n, sizeof *comm->nodes);
    comm->bind = xccl_comm_bind_create();
    if (!comm->multicast || !comm->nodes || !comm->bind)
        return xcclSystemError;
    for (int i = 0; i < comm->nranks; i++)
        comm->multicast[i] = (uint8_t)(comm->shm && xccl_comm_is_local(comm, i));
    number_hosts(comm);
    comm->run.owner = comm;
    comm->run.kind = &xccl_call_kind;
    planner->nranks = comm->nranks;
    planner->rank = comm->rank;
    draw_key(comm, planner);
    planner->all_local = !xccl_comm_any_remote(comm);
    planner->nodes = comm->nodes;
    planner->any_place = xccl_param_int(XCCL_P_DETERMINISM) == 3;
    *state_out = XCCL_INIT_DONE;
    rc = order_ranks(comm, planner);
    if (!rc)
        rc = comm->ops->plan(comm);
    if (!rc)
        rc = xccl_planner_init(planner, xccl_param_string(XCCL_P_ALGO));
    if (!rc)
        rc = xccl_proto_setting_parse(xccl_param_string(XCCL_P_PROTO), &planner->protos);
    if (!rc)
        rc = xccl_plan_prove(planner);
    if (!rc)
        xccl_comm_tuner_start(comm);
    return rc;
}

void xccl_comm_plan_fini(struct xcclComm *comm)
{
    xccl_planner_fini(&comm->planner);
    xccl_comm_tuner_stop(comm);
    comm->ops->unpin(comm);
    xccl_comm_links_destroy(comm->links);
    comm->links = NULL;
    xccl_free(comm->multicast);
    xccl_free(comm->nodes);
    xccl_free(comm->order);
    xccl_free(comm->args.scratch);
    comm->multicast = NULL;
    comm->nodes = NULL;
    comm->order = NULL;
    comm->args.scratch = NULL;
    comm->scratch_bytes = 0;
}

/* The binding of one of the calls that are prepared; mark: of how it is done. */
static xcclResult_t premade_binding(struct xcclComm *comm, uint32_t number,
                                    struct xccl_binding **binding_out, uint64_t *mark_out)
{
    struct xccl_call call = {
        .coll = XCCL_COLL_ALL_REDUCE, .type = xcclInt8, .count = premade[number]};
    struct xccl_choice choice;
    xcclResult_t rc = xccl_plan_bind(&comm->planner, &call, &choice, binding_out);

    if (!rc)
        *mark_out = xccl_plan_signature(&comm->planner, &call, &choice);
    return xccl_plan_told(rc);
}

xcclResult_t xccl_init_connect(struct xccl_init *init, enum xccl_init_state *state_out)
{
    struct xcclComm *comm = init->comm;

    while (init->premade < PREMADE_COUNT) {
        enum xccl_bind_state state = XCCL_BIND_DONE;
        struct xccl_binding *binding = NULL;
        uint64_t mark = 0;
        xcclResult_t rc = premade_binding(comm, init->premade, &binding, &mark);

        if (!rc && !binding->ready)
            rc = xccl_comm_bind(comm, binding, mark, &init->limit, &state);
        *state_out = state == XCCL_BIND_POLL ? XCCL_INIT_POLL : XCCL_INIT_MORE;
        if (rc || state != XCCL_BIND_DONE)
            return rc;
        comm->slice_bytes = binding->slot_bytes;
        init->premade++;
    }
    *state_out = XCCL_INIT_DONE;
    return xcclSuccess;
}

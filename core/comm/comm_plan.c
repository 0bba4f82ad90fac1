/* SPDX-License-Identifier: BSD-3-Clause */
/* The communicator's side of planning. In init: the planner is made, and the connections of what is
 * called most, all-reduce, of each size, so that no first call has to wait for them and a network
 * that does not carry is found at once. In a call: what has no plan yet gets its links, step by
 * step within the wait of the call, and then its plan. Thread: the joining one; the crank's holder.
 */
#include "comm/comm_plan.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/param.h"
#include "comm/comm_bind.h"
#include "comm/comm_links.h"
#include "comm/comm_record.h"
#include "comm/comm_tune.h"
#include "comm/comm_verdict.h"
#include "comm/device_ops.h"
#include "plugin/plugin_file.h"
#include "schedule/algo_plugin.h"

/* The verdict of a call that waits too long names ranks; what waits out of band shall not be first.
 */
#define TALK_SPARE_NS (5 * XCCL_NS_PER_S)
#define NEVER_SPARE   (XCCL_NEVER_NS - TALK_SPARE_NS)

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
    planner->all_local = !xccl_comm_any_remote(comm);
    planner->nodes = comm->nodes;
    planner->any_place = xccl_param_int(XCCL_P_DETERMINISM) == 3;
    *state_out = XCCL_INIT_DONE;
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
    xccl_free(comm->args.scratch);
    xccl_free(comm->ways);
    comm->ways = NULL;
    comm->multicast = NULL;
    comm->nodes = NULL;
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
        *mark_out = xccl_plan_signature(&call, &choice);
    return rc;
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

/* --- in a call --- */

/* Memory that the plan's runs need besides the user's. */
static xcclResult_t make_scratch(struct xcclComm *comm, const struct xccl_plan *plan)
{
    size_t bytes = plan->scratch_bytes + plan->room_bytes;
    void *scratch;

    if (bytes <= comm->scratch_bytes)
        return xcclSuccess;
    scratch = xccl_calloc_aligned(64, bytes);
    if (!scratch)
        return xcclSystemError;
    xccl_free(comm->args.scratch);
    comm->args.scratch = scratch;
    comm->scratch_bytes = bytes;
    return xcclSuccess;
}

xcclResult_t xccl_comm_start_run(struct xcclComm *comm, const struct xccl_plan *plan)
{
    xcclResult_t rc = xcclSuccess;

    if (__builtin_expect(plan->scratch_bytes + plan->room_bytes > comm->scratch_bytes, 0))
        rc = make_scratch(comm, plan);
    if (__builtin_expect(rc == xcclSuccess, 1))
        xccl_run_start(&comm->run, plan, &comm->args);
    return rc;
}

struct xccl_limit xccl_comm_talk_limit(const struct xcclComm *comm)
{
    struct xccl_limit limit = {.deadline_ns = XCCL_NEVER_NS};

    if (comm->timeout_ns < NEVER_SPARE)
        limit.deadline_ns = xccl_clock_ns() + comm->timeout_ns + TALK_SPARE_NS;
    return limit;
}

xcclResult_t xccl_comm_plan_links(struct xcclComm *comm, const struct xccl_call *call,
                                  struct xccl_found *found_out, int *left_out)
{
    xcclResult_t rc;

    xccl_error_hush(1);
    rc = xccl_plan_get(&comm->planner, call, found_out);
    xccl_error_hush(0);
    *left_out = rc == xcclInvalidUsage;
    if (rc && !*left_out)
        xccl_log(XCCL_LOG_ERROR, "%s", xccl_error_text());
    return *left_out ? xcclSuccess : rc;
}

/* Moves the binding of the call on; then there is a plan. */
static xcclResult_t prepare_step(struct xcclComm *comm, int *moved_out)
{
    struct xccl_limit limit = xccl_comm_talk_limit(comm);
    enum xccl_bind_state state = XCCL_BIND_DONE;
    struct xccl_found found;
    int ended = 1, left_out = 0;
    xcclResult_t rc = xcclSuccess;

    *moved_out = comm->ops->turn(comm);
    if (comm->bind_talks)
        rc = xccl_bootstrap_test(comm->boot, &ended);
    if (rc || !ended)
        return rc;
    comm->bind_talks = 0;
    rc = comm->connects ? xccl_comm_plan_links(comm, &comm->call, &found, &left_out)
                        : xccl_plan_get(&comm->planner, &comm->call, &found);
    if (left_out) {
        comm->run.finished = 1;
        return xcclSuccess;
    }
    if (!rc && !found.plan)
        rc = xccl_comm_bind(comm, found.binding, found.signature + comm->seq, &limit, &state);
    if (rc)
        return rc;
    *moved_out |= state != XCCL_BIND_POLL;
    comm->bind_talks = state == XCCL_BIND_TALK;
    if (!found.plan)
        return xcclSuccess;
    comm->run.finished = comm->connects;
    if (comm->connects)
        return xcclSuccess;
    rc = xccl_comm_start_run(comm, found.plan);
    xccl_comm_record_plan(comm);
    return rc;
}

static int prepare_run(struct xccl_run *run)
{
    struct xcclComm *comm = run->owner;
    int moved = 0;

    run->rc = prepare_step(comm, &moved);
    return moved;
}

static int knows_nothing(struct xccl_run *run)
{
    (void)run;
    return 0;
}

const struct xccl_run_kind xccl_call_kind = {
    .name = "call",
    .step = prepare_run,
    .check = xccl_comm_check_call,
    .blame = knows_nothing,
    .check_left = xccl_comm_check_left,
};

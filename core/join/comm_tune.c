/* SPDX-License-Identifier: BSD-3-Clause */
/* The tuner of a communicator: told, compared, begun, ended. That ranks have the same file and say
 * the same of the outside (its digest) is compared in the introduction; that it answers alike, by a
 * hash over choices, once it has begun on all. What both miss is found in the call that differs,
 * since a choice is part of a call's signature. Thread: the joining one. */
#include "join/comm_tune.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/param.h"
#include "base/wire.h"
#include "plugin/tuner_library.h"

/* Of which choices are compared, in bytes. */
static const size_t probe_bytes[] = {8, 4096, 128u << 10, 4u << 20};
#define PROBES (sizeof probe_bytes / sizeof probe_bytes[0])

xcclResult_t xccl_comm_tuner_load(struct xccl_tuner_library **library_out)
{
    return xccl_tuner_library_load(xccl_param_string(XCCL_P_TUNER_PLUGIN), library_out);
}

/* ---- introduction ---- */

xcclResult_t xccl_comm_tuner_describe(struct xcclComm *comm, struct xccl_peer *self)
{
    xcclResult_t rc = xccl_comm_tuner_load(&comm->tuner);

    if (rc || !comm->tuner)
        return rc;
    self->tuner = (uint32_t)(comm->tuner->hash ^ comm->tuner->hash >> 32);
    snprintf(self->tuner_name, sizeof self->tuner_name, "%s", comm->tuner->name);
    return xcclSuccess;
}

xcclResult_t xccl_comm_tuner_check(const struct xcclComm *comm, int peer)
{
    const struct xccl_peer *self = &comm->peers[comm->rank], *other = &comm->peers[peer];
    int same_name = strcmp(other->tuner_name, self->tuner_name) == 0;

    if (other->tuner == self->tuner && same_name)
        return xcclSuccess;
    return xccl_fail(xcclInvalidUsage, 0,
                     "install the same tuner plugin and set the same XCCL_TUNER_PLUGIN and "
                     "XCCL_TUNER_FILE on all hosts, or set XCCL_TUNER_PLUGIN=none",
                     "rank %d on host %s has tuner plugin %s, rank %d has %s%s", peer, other->host,
                     other->tuner_name[0] ? other->tuner_name : "none", comm->rank,
                     self->tuner_name[0] ? self->tuner_name : "none",
                     same_name ? ", but a different file or table of it" : "");
}

/* ---- its life ---- */

static void take_line(const char *level, const char *line)
{
    enum xccl_log_level as = strcmp(level, "warn") == 0    ? XCCL_LOG_WARN
                             : strcmp(level, "debug") == 0 ? XCCL_LOG_DEBUG
                                                           : XCCL_LOG_INFO;

    xccl_log(as, "tuner plugin: %s", line);
}

/* Nodes have numbers from 0 on. Node by node, since a thousand ranks of one do this each. */
static void count_nodes(const struct xcclComm *comm, xcclTunerComm_v1_t *about)
{
    for (int i = 0; i < comm->nranks; i++)
        if (comm->nodes[i] >= about->nnodes)
            about->nnodes = comm->nodes[i] + 1;
    about->minRanksPerNode = comm->nranks;
    for (int node = 0; node < about->nnodes; node++) {
        int ranks = 0;

        for (int i = 0; i < comm->nranks; i++)
            ranks += comm->nodes[i] == node;
        if (ranks < about->minRanksPerNode)
            about->minRanksPerNode = ranks;
        if (ranks > about->maxRanksPerNode)
            about->maxRanksPerNode = ranks;
    }
}

void xccl_comm_tuner_start(struct xcclComm *comm)
{
    struct xccl_plan_tuner *tuner = &comm->planner.tuner;
    xcclTunerComm_v1_t about = {.size = sizeof about,
                                .nranks = comm->nranks,
                                .allLocal = comm->planner.all_local,
                                .log = take_line};

    if (!comm->tuner || comm->nranks == 1)
        return;
    memcpy(&about.commId, comm->id, sizeof about.commId);
    count_nodes(comm, &about);
    about.cores = comm->planner.all_local ? xccl_comm_host_cores(comm) : 0;
    if (!xccl_tuner_start(comm->tuner, &about, &tuner->ctx))
        return;
    tuner->name = comm->tuner->label;
    tuner->warned = &comm->tuner->warned;
    tuner->calls = &comm->tuner->calls;
}

void xccl_comm_tuner_stop(struct xcclComm *comm)
{
    struct xccl_plan_tuner *tuner = &comm->planner.tuner;

    if (tuner->calls)
        tuner->calls->finalize(tuner->ctx);
    tuner->calls = NULL;
}

/* ---- its answers ---- */

/* Where settings leave something out there may be no choice at all, which is an error of calls.
 * All-reduces are made ready in init anyway. */
static int is_probed(const struct xccl_planner *planner, enum xccl_coll coll)
{
    return coll == XCCL_COLL_ALL_REDUCE ||
           (!planner->setting.lists[coll].count && !planner->protos.leaves_out[coll]);
}

static xcclResult_t hash_choices(const struct xccl_planner *planner, uint64_t *hash_out)
{
    uint64_t hash = XCCL_HASH_START;

    for (int coll = 0; coll <= XCCL_COLL_BARRIER; coll++) {
        for (size_t i = 0; i < PROBES && is_probed(planner, (enum xccl_coll)coll); i++) {
            struct xccl_call call = {
                .coll = (enum xccl_coll)coll, .type = xcclInt8, .count = probe_bytes[i]};
            struct xccl_choice choice;
            uint64_t signature;
            xcclResult_t rc = xccl_plan_choose(planner, &call, &choice);

            if (rc)
                return xccl_plan_told(rc);
            signature = xccl_plan_signature(planner, &call, &choice);
            hash = xccl_hash_bytes(hash, &signature, sizeof signature);
        }
    }
    *hash_out = hash;
    return xcclSuccess;
}

/* All ranks have the plugin, or none has: this was compared. */
xcclResult_t xccl_init_tune(struct xccl_init *init, enum xccl_init_state *state_out)
{
    struct xcclComm *comm = init->comm;
    uint64_t hash = 0;
    struct xccl_wire wire;
    uint8_t *own;
    xcclResult_t rc;

    *state_out = XCCL_INIT_DONE;
    if (!comm->tuner || comm->nranks == 1)
        return xcclSuccess;
    own = xccl_init_parts(init, sizeof hash);
    if (!own)
        return xcclSystemError;
    rc = hash_choices(&comm->planner, &hash);
    if (rc)
        return rc;
    wire = xccl_wire_over(own, sizeof hash);
    xccl_wire_put_u64(&wire, hash);
    return xccl_init_gather(init);
}

xcclResult_t xccl_init_compare(struct xccl_init *init, enum xccl_init_state *state_out)
{
    const struct xcclComm *comm = init->comm;
    char name[128];

    *state_out = XCCL_INIT_DONE;
    if (!comm->tuner || comm->nranks == 1)
        return xcclSuccess;
    for (int i = 1; i < comm->nranks; i++) {
        if (memcmp(init->parts, init->parts + (size_t)i * sizeof(uint64_t), sizeof(uint64_t)) == 0)
            continue;
        xccl_comm_name_rank(comm, i, name, sizeof name);
        return xccl_fail(
            xcclInvalidUsage, 0,
            "correct the plugin according to xccl_tuner.h, or set XCCL_TUNER_PLUGIN=none",
            "%s would run calls differently than rank 0: tuner plugin %s does not give the same "
            "answers on all ranks",
            name, comm->tuner->label);
    }
    return xcclSuccess;
}

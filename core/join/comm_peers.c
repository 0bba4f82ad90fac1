/* SPDX-License-Identifier: BSD-3-Clause */
/* Init: what the ranks tell each other first, and which of them share this host's memory. Each step
 * ends by beginning what the next one needs of the others. Thread: the joining one. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/os.h"
#include "base/param.h"
#include "base/wire.h"
#include "call/comm_plan.h"
#include "comm/device_ops.h"
#include "join/comm_tune.h"
#include "transport/arena.h"

#define PEER_WIRE_BYTES 392
#define UNIX_NAME_BYTES 107
#define FETCH_MS        5000

/* What a rank tells of the others of its host. */
#define GOT_SEGMENTS 1
#define GOT_ARENAS   2
#define READS_PEERS  4

static void put_unix_name(struct xccl_wire *wire, const struct xccl_addr *addr)
{
    size_t bytes = addr->bytes - offsetof(struct sockaddr_un, sun_path);
    uint8_t room[UNIX_NAME_BYTES] = {0};

    memcpy(room, addr->sa.un.sun_path, bytes);
    xccl_wire_put_u8(wire, (uint8_t)bytes);
    xccl_wire_put(wire, room, sizeof room);
}

static void get_unix_name(struct xccl_wire *wire, struct xccl_addr *addr_out)
{
    size_t bytes = xccl_wire_get_u8(wire);

    memset(addr_out, 0, sizeof *addr_out);
    addr_out->sa.un.sun_family = AF_UNIX;
    xccl_wire_get(wire, addr_out->sa.un.sun_path, UNIX_NAME_BYTES);
    if (bytes > UNIX_NAME_BYTES)
        wire->bad = 1;
    else
        addr_out->bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes);
}

static void encode_peer(const struct xccl_peer *peer, uint8_t *part)
{
    struct xccl_wire wire = xccl_wire_over(part, PEER_WIRE_BYTES);

    xccl_wire_put_u64(&wire, peer->host_hash);
    xccl_wire_put(&wire, peer->host, sizeof peer->host);
    xccl_wire_put_u32(&wire, peer->pid);
    xccl_wire_put_u32(&wire, peer->cores);
    for (int i = 0; i < XCCL_CORE_WORDS; i++)
        xccl_wire_put_u64(&wire, peer->core_set[i]);
    xccl_wire_put_u32(&wire, peer->version);
    xccl_wire_put_u32(&wire, peer->algo);
    xccl_wire_put_u32(&wire, peer->shm);
    xccl_wire_put_u64(&wire, peer->buffer_bytes);
    put_unix_name(&wire, &peer->unix_addr);
    xccl_wire_put_u64(&wire, peer->netns_hash);
    xccl_wire_put_u32(&wire, peer->tuner);
    xccl_wire_put(&wire, peer->tuner_name, sizeof peer->tuner_name);
    xccl_wire_put_u64(&wire, peer->process);
    xccl_wire_put_u32(&wire, peer->direct);
    xccl_wire_put_u64(&wire, peer->arena_bytes);
    xccl_wire_put_u64(&wire, peer->mark_at);
    xccl_wire_put_u64(&wire, peer->mark_word);
    xccl_wire_put_u32(&wire, peer->device_kind);
    xccl_wire_put_u32(&wire, peer->ordinal);
    xccl_wire_put(&wire, peer->uuid, sizeof peer->uuid);
}

static int decode_peer(uint8_t *part, struct xccl_peer *peer)
{
    struct xccl_wire wire = xccl_wire_over(part, PEER_WIRE_BYTES);

    peer->host_hash = xccl_wire_get_u64(&wire);
    xccl_wire_get(&wire, peer->host, sizeof peer->host);
    peer->host[sizeof peer->host - 1] = 0;
    xccl_log_escape(peer->host, sizeof peer->host);
    peer->pid = xccl_wire_get_u32(&wire);
    peer->cores = xccl_wire_get_u32(&wire);
    for (int i = 0; i < XCCL_CORE_WORDS; i++)
        peer->core_set[i] = xccl_wire_get_u64(&wire);
    peer->version = xccl_wire_get_u32(&wire);
    peer->algo = xccl_wire_get_u32(&wire);
    peer->shm = xccl_wire_get_u32(&wire);
    peer->buffer_bytes = xccl_wire_get_u64(&wire);
    get_unix_name(&wire, &peer->unix_addr);
    peer->netns_hash = xccl_wire_get_u64(&wire);
    peer->tuner = xccl_wire_get_u32(&wire);
    xccl_wire_get(&wire, peer->tuner_name, sizeof peer->tuner_name);
    peer->tuner_name[sizeof peer->tuner_name - 1] = 0;
    xccl_log_escape(peer->tuner_name, sizeof peer->tuner_name);
    peer->process = xccl_wire_get_u64(&wire);
    peer->direct = xccl_wire_get_u32(&wire);
    peer->arena_bytes = xccl_wire_get_u64(&wire);
    peer->mark_at = xccl_wire_get_u64(&wire);
    peer->mark_word = xccl_wire_get_u64(&wire);
    peer->device_kind = xccl_wire_get_u32(&wire);
    peer->ordinal = xccl_wire_get_u32(&wire);
    xccl_wire_get(&wire, peer->uuid, sizeof peer->uuid);
    return !wire.bad && peer->shm <= 1;
}

/* Memory that the ranks of this host may read in place; without it everything is copied. */
static void hold_arena(struct xcclComm *comm, struct xccl_peer *self)
{
    self->direct = self->shm && xccl_param_int(XCCL_P_DIRECT);
    if (comm->nranks == 1 || !self->direct)
        return;
    comm->holds_arena = xccl_arena_hold() == xcclSuccess;
    if (comm->holds_arena)
        self->arena_bytes = xccl_arena.bytes;
    else
        xccl_log(
            XCCL_LOG_INFO,
            "other ranks cannot read the memory of this process in place, so data is copied: %s",
            xccl_error_text());
}

/* For others to find out whether they read this process's private memory. */
static void mark_memory(struct xccl_peer *self)
{
    struct xccl_peer_mark mark;

    if (!self->direct || xccl_param_int(XCCL_P_PEER_MEMORY) == XCCL_PEER_MEMORY_OFF)
        return;
    mark = xccl_peer_mark();
    self->mark_at = mark.at;
    self->mark_word = mark.word;
}

static xcclResult_t describe_self(struct xccl_init *init, struct xccl_peer *self)
{
    xcclResult_t rc = xccl_shm_new_addr(&init->unix_addr);

    if (!rc)
        rc = xccl_os_process_id(&self->process);
    if (rc)
        return rc;
    self->host_hash = xccl_os_host_hash();
    self->netns_hash = xccl_os_netns_hash();
    snprintf(self->host, sizeof self->host, "%s", xccl_os_hostname());
    self->pid = (uint32_t)getpid();
    self->cores = (uint32_t)xccl_os_cores();
    xccl_os_core_set(self->core_set);
    self->version = XCCL_VERSION_CODE;
    self->algo = xccl_comm_algo_hash();
    self->shm = !xccl_param_int(XCCL_P_SHM_DISABLE);
    self->buffer_bytes = (uint64_t)xccl_param_int(XCCL_P_BUFFER_BYTES);
    self->unix_addr = init->unix_addr;
    self->device_kind = init->comm->ops->kind;
    init->comm->ops->describe(init->comm, self);
    hold_arena(init->comm, self);
    mark_memory(self);
    return xcclSuccess;
}

static void choose_wait(struct xcclComm *comm)
{
    const struct xccl_peer *self = &comm->peers[comm->rank];
    int ranks = 0;

    for (int i = 0; i < comm->nranks; i++)
        ranks += comm->peers[i].host_hash == self->host_hash;
    comm->policy = xccl_wait_policy_for(ranks, xccl_comm_host_cores(comm));
}

static const char *kind_name(uint32_t kind)
{
    return kind == xccl_device_host.kind   ? xccl_device_host.name
           : kind == xccl_device_cuda.kind ? xccl_device_cuda.name
                                           : "an unknown device";
}

/* A root has compared these for the ranks that report to it; those of other roots are met here. */
static xcclResult_t check_peers(const struct xcclComm *comm)
{
    const struct xccl_peer *self = &comm->peers[comm->rank];

    for (int i = 0; i < comm->nranks; i++) {
        const struct xccl_peer *peer = &comm->peers[i];
        xcclResult_t rc;

        if (peer->version != self->version)
            return xccl_fail(xcclInvalidUsage, 0, "install the same version everywhere",
                             "rank %d on host %s runs XCCL %u, but rank %d runs %u", i, peer->host,
                             peer->version, comm->rank, self->version);
        if (peer->algo != self->algo)
            return xccl_fail(
                xcclInvalidUsage, 0,
                "set the same values on all ranks, and install the same XCCL_ALGO_PLUGIN",
                "rank %d on host %s has a different XCCL_ALGO or XCCL_PROTO, or different "
                "algorithm plugins, than rank %d, whose settings are \"%s\" and \"%s\"",
                i, peer->host, comm->rank, xccl_param_string(XCCL_P_ALGO),
                xccl_param_string(XCCL_P_PROTO));
        if (peer->device_kind != self->device_kind)
            return xccl_fail(
                xcclInvalidUsage, 0,
                "set the same XCCL_DEVICE, or the same kind of device in the config, on all ranks",
                "rank %d on host %s uses %s, but rank %d uses %s", i, peer->host,
                kind_name(peer->device_kind), comm->rank, kind_name(self->device_kind));
        rc = xccl_comm_tuner_check(comm, i);
        if (rc)
            return rc;
    }
    return xcclSuccess;
}

xcclResult_t xccl_init_introduce(struct xccl_init *init, enum xccl_init_state *state_out)
{
    struct xcclComm *comm = init->comm;
    uint8_t *own = xccl_init_parts(init, PEER_WIRE_BYTES);
    xcclResult_t rc;

    comm->peers = xccl_calloc((size_t)comm->nranks, sizeof *comm->peers);
    if (!own || !comm->peers)
        return xcclSystemError;
    rc = describe_self(init, &comm->peers[comm->rank]);
    if (!rc)
        rc = xccl_comm_tuner_describe(comm, &comm->peers[comm->rank]);
    if (rc)
        return rc;
    encode_peer(&comm->peers[comm->rank], own);
    *state_out = XCCL_INIT_DONE;
    return xccl_init_gather(init);
}

xcclResult_t xccl_init_check_peers(struct xccl_init *init, enum xccl_init_state *state_out)
{
    struct xcclComm *comm = init->comm;
    struct xccl_rank_places places = {.find = xccl_comm_find_place, .owner = comm};
    xcclResult_t rc;

    for (int i = 0; i < comm->nranks; i++)
        if (!decode_peer(init->parts + (size_t)i * PEER_WIRE_BYTES, &comm->peers[i]))
            return xccl_fail(xcclRemoteError, 0, "install the same version everywhere",
                             "rank %d sent a description that this version does not understand", i);
    xccl_free(init->parts); /* a thousand ranks of one process have much of it */
    init->parts = NULL;
    /* From now on the bootstrap's errors have host and process of each rank. */
    xccl_bootstrap_set_places(comm->boot, &places);
    rc = check_peers(comm);
    if (rc)
        return rc;
    choose_wait(comm);
    *state_out = XCCL_INIT_DONE;
    return xcclSuccess;
}

/* What shared memory has to know of the ranks of this host: room for that of each. */
static void list_processes(const struct xccl_init *init, struct xccl_shm_process *room_out,
                           struct xccl_shm_args *args)
{
    const struct xccl_peer *peers = init->comm->peers;
    int direct = 1;

    for (int i = 0; i < init->nlocal; i++) {
        const struct xccl_peer *peer = &peers[init->locals[i]];

        room_out[i] = (struct xccl_shm_process){.id = peer->process,
                                                .arena_bytes = peer->arena_bytes,
                                                .mark = {peer->mark_at, peer->mark_word},
                                                .pid = peer->pid};
        direct &= peer->direct == 1;
    }
    args->processes = direct ? room_out : NULL;
}

static xcclResult_t make_segment(struct xccl_init *init)
{
    struct xcclComm *comm = init->comm;
    struct xccl_shm_args args = {.nlocal = init->nlocal,
                                 .local_ranks = init->locals,
                                 .rank = comm->rank,
                                 .nranks = comm->nranks,
                                 .loop = comm->loop,
                                 .addr = init->unix_addr,
                                 .one_process = 1};
    const struct xccl_peer *self = &comm->peers[comm->rank];
    uint64_t budget = self->buffer_bytes;
    struct xccl_shm_process *room = xccl_calloc((size_t)init->nlocal, sizeof *room);
    xcclResult_t rc;

    if (!room)
        return xcclSystemError;
    list_processes(init, room, &args);
    for (int i = 0; i < init->nlocal; i++) {
        const struct xccl_peer *peer = &comm->peers[init->locals[i]];

        if (peer == self)
            args.local_index = i;
        if (peer->buffer_bytes < budget)
            budget = peer->buffer_bytes;
        args.one_process &= peer->process == self->process;
    }
    init->alone = args.one_process && init->nlocal == comm->nranks;
    args.sizes = xccl_shm_sizes(init->nlocal, budget);
    /* Address space, until it is used. */
    args.sizes.extra_bytes = comm->ops->extra_rooms * (size_t)budget;
    memcpy(args.comm_id, init->job.comm_id, sizeof args.comm_id);
    xccl_bootstrap_derive_key(comm->boot, "shm", args.key);
    rc = xccl_shm_create(&args, &comm->shm);
    xccl_free(room);
    explicit_bzero(args.key, sizeof args.key);
    return rc;
}

/* Makes the own segment; the next phase begins when all are listening, unless nobody has to. */
xcclResult_t xccl_init_segment(struct xccl_init *init, enum xccl_init_state *state_out)
{
    struct xcclComm *comm = init->comm;
    xcclResult_t rc = xcclSuccess;

    init->locals = xccl_calloc((size_t)comm->nranks, sizeof *init->locals);
    if (!init->locals)
        return xcclSystemError;
    for (int i = 0; i < comm->nranks; i++)
        if (i == comm->rank || xccl_comm_may_share(comm, comm->rank, i))
            init->locals[init->nlocal++] = i;
    if (init->nlocal > 1)
        rc = make_segment(init);
    if (rc)
        return rc;
    *state_out = XCCL_INIT_DONE;
    return init->alone ? xcclSuccess : xccl_bootstrap_barrier_start(comm->boot, NULL, &init->limit);
}

/* Gets one segment. The rank that has it may live in this thread: its service thread answers. */
static xcclResult_t fetch_next(struct xccl_init *init)
{
    const _Atomic int *failed = xccl_bootstrap_failed(init->comm->boot);
    struct xccl_limit limit = xccl_limit_ms(FETCH_MS, failed);
    int index = init->fetched++, rank = init->locals[index];
    xcclResult_t rc;

    if (limit.deadline_ns > init->limit.deadline_ns)
        limit.deadline_ns = init->limit.deadline_ns;
    rc = xccl_shm_fetch(init->comm->shm, index, &init->comm->peers[rank].unix_addr, &limit);
    if (rc && !xccl_limit_aborted(&limit))
        xccl_log(XCCL_LOG_WARN, "no shared memory with rank %d: %s", rank, xccl_error_text());
    return rc;
}

/* The next segment is most likely in this process's table. */
static int is_next_near(const struct xccl_init *init)
{
    const struct xccl_peer *peers = init->comm->peers;

    return init->fetched < init->nlocal &&
           peers[init->locals[init->fetched]].process == peers[init->comm->rank].process;
}

/* All ranks are in this process: each finds all segments in the table before long, or hears of the
 * rank that failed before it had made its own. So nothing has to be agreed on. */
static xcclResult_t find_all(struct xccl_init *init, enum xccl_init_state *state_out)
{
    struct xcclComm *comm = init->comm;

    *state_out = XCCL_INIT_POLL;
    for (; init->fetched < init->nlocal; init->fetched++) {
        int rank = init->locals[init->fetched], found = 1;
        xcclResult_t rc = xccl_shm_find(comm->shm, init->fetched, &comm->peers[rank].unix_addr,
                                        &found);

        if (!rc && !found && xccl_limit_passed(&init->limit))
            rc = xccl_fail(xcclTimeout, 0,
                           "raise XCCL_TIMEOUT_INIT_S, or check what delays that rank",
                           "rank %d of this process has not created its shared memory", rank);
        if (rc || !found)
            return rc;
    }
    *state_out = XCCL_INIT_DONE;
    return xcclSuccess;
}

static int reads_peers(const struct xccl_init *init)
{
    int64_t setting = xccl_param_int(XCCL_P_PEER_MEMORY);
    int unread;

    if (setting == XCCL_PEER_MEMORY_OFF)
        return 0;
    unread = xccl_shm_unread_peer(init->comm->shm);
    if (unread >= 0)
        xccl_log(setting == XCCL_PEER_MEMORY_ON ? XCCL_LOG_WARN : XCCL_LOG_INFO,
                 "cannot read the private memory of rank %d: %s", unread, xccl_error_text());
    return unread < 0;
}

/* One segment of another process a turn; then tells the others whether it has all. */
xcclResult_t xccl_init_fetch(struct xccl_init *init, enum xccl_init_state *state_out)
{
    uint8_t *own;

    if (init->alone)
        return find_all(init, state_out);
    *state_out = XCCL_INIT_MORE;
    if (!init->fetched)
        init->got_all = init->comm->shm != NULL;
    if (init->got_all && init->fetched < init->nlocal) {
        do
            init->got_all = fetch_next(init) == xcclSuccess;
        while (init->got_all && is_next_near(init));
        return xcclSuccess;
    }
    own = xccl_init_parts(init, 1);
    if (!own)
        return xcclSystemError;
    *own = (uint8_t)(init->got_all ? GOT_SEGMENTS : 0);
    if (init->got_all && xccl_shm_has_arenas(init->comm->shm))
        *own |= GOT_ARENAS;
    if (init->got_all && reads_peers(init))
        *own |= READS_PEERS;
    *state_out = XCCL_INIT_DONE;
    return xccl_init_gather(init);
}

/* Shared memory is used by all ranks of a host or by none, so that all choose alike; and so is what
 * they read in place. */
xcclResult_t xccl_init_agree(struct xccl_init *init, enum xccl_init_state *state_out)
{
    struct xcclComm *comm = init->comm;
    int all_got = GOT_SEGMENTS | GOT_ARENAS | (init->alone ? 0 : READS_PEERS);
    xcclResult_t rc = xcclSuccess;

    for (int i = 0; i < init->nlocal && !init->alone; i++)
        all_got &= init->parts[init->locals[i]];
    if (comm->shm && !(all_got & GOT_SEGMENTS)) {
        xccl_shm_destroy(comm->shm);
        comm->shm = NULL;
    }
    if (comm->shm)
        rc = xccl_shm_agree(comm->shm, all_got & GOT_ARENAS, all_got & READS_PEERS);
    if (comm->shm)
        xccl_shm_seal(comm->shm, comm->ops->gives_memory);
    *state_out = XCCL_INIT_DONE;
    return rc;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Which way each link of a CUDA communicator goes, and why it is no better one: rows of a way and
 * its reason, with the peers of the links that go it. The record shows them (record/README.md), and
 * one line of the log when the communicator has joined. Texts are made when links are.
 *
 * Where slots lie is the receiver's choice; its reason travels with what it offers. A row that
 * cannot be kept is missing, and nothing fails because of it.
 *
 * Thread: the caller's, with the communicator. */
#include <stdio.h>

#include "base/alloc.h"
#include "base/log.h"
#include "connect/comm_links.h"
#include "cuda/cuda_int.h"
#include "proxy/net_link.h"
#include "record/record.h"

#define LINE_BYTES 1024

struct xccl_cuda_ways {
    struct row {
        enum xccl_record_way_kind kind;
        char why[XCCL_RECORD_WHY_BYTES];
    } rows[XCCL_RECORD_WAYS];
    unsigned count;
    uint32_t *of; /* by 2 * rank + sends: a bit for each row */
};

static_assert(XCCL_RECORD_WAYS <= 32, "rows are bits of a word");

static struct xccl_cuda_ways *ways_of(struct xcclComm *comm)
{
    struct xccl_cuda_ways *ways = comm->cuda->ways;

    if (ways)
        return ways;
    ways = xccl_calloc(1, sizeof *ways);
    if (ways)
        ways->of = xccl_calloc(2 * (size_t)comm->nranks, sizeof *ways->of);
    if (ways && !ways->of) {
        xccl_free(ways);
        ways = NULL;
    }
    comm->cuda->ways = ways;
    return ways;
}

void xccl_cuda_drop_ways(struct xccl_cuda_comm *cuda)
{
    if (cuda->ways)
        xccl_free(cuda->ways->of);
    xccl_free(cuda->ways);
    cuda->ways = NULL;
}

/* The row of this way and reason, a new one if need be; the last one is for all that have none. */
static unsigned row_of(struct xcclComm *comm, enum xccl_record_way_kind kind, const char *why)
{
    struct xccl_cuda_ways *ways = comm->cuda->ways;
    unsigned row = 0;

    while (row < ways->count &&
           (ways->rows[row].kind != kind || strcmp(ways->rows[row].why, why) != 0))
        row++;
    if (row < ways->count)
        return row;
    if (row >= XCCL_RECORD_WAYS - 1) {
        row = XCCL_RECORD_WAYS - 1;
        kind = XCCL_RECORD_WAY_OTHER;
        why = "there are more ways than are kept";
    }
    ways->count = row + 1;
    ways->rows[row].kind = kind;
    snprintf(ways->rows[row].why, sizeof ways->rows[row].why, "%s", why);
    xccl_record_set_way(comm->record, row, kind, ways->rows[row].why);
    return row;
}

/* "1-3,7"; what has no room ends with "..". */
static void ranks_text(const struct xcclComm *comm, unsigned row, int sends,
                       char text_out[XCCL_RECORD_ENDS_BYTES])
{
    const uint32_t *of = comm->cuda->ways->of;
    size_t used = 0;

    text_out[0] = '\0';
    for (int first = 0, last; first < comm->nranks; first = last + 1) {
        char range[32];
        int bytes;

        last = first;
        if (!(of[2 * first + sends] >> row & 1))
            continue;
        while (last + 1 < comm->nranks && (of[2 * (last + 1) + sends] >> row & 1))
            last++;
        bytes = last > first
                    ? snprintf(range, sizeof range, "%s%d-%d", used ? "," : "", first, last)
                    : snprintf(range, sizeof range, "%s%d", used ? "," : "", first);
        if (used + (size_t)bytes + sizeof ",.." > XCCL_RECORD_ENDS_BYTES) {
            memcpy(text_out + used, ",..", sizeof ",..");
            return;
        }
        memcpy(text_out + used, range, (size_t)bytes + 1);
        used += (size_t)bytes;
    }
}

static void note(struct xcclComm *comm, int peer, int sends, enum xccl_record_way_kind kind,
                 const char *why)
{
    struct xccl_cuda_ways *ways = ways_of(comm);
    char short_why[XCCL_RECORD_WHY_BYTES], ranks[XCCL_RECORD_ENDS_BYTES];
    unsigned row;

    if (!ways)
        return;
    snprintf(short_why, sizeof short_why, "%s", why); /* as rows keep it */
    row = row_of(comm, kind, short_why);
    if (ways->of[2 * peer + sends] >> row & 1)
        return;
    ways->of[2 * peer + sends] |= 1u << row;
    ranks_text(comm, row, sends, ranks);
    xccl_record_set_ends(comm->record, row, sends, ranks);
}

/* --- between ranks of a host --- */

static void why_text(const struct xcclComm *comm, const struct xccl_cuda_why *why, int owner,
                     char *text_out, size_t bytes)
{
    static const char *const refused[] = {
        [XCCL_CUDA_WHY_CREATE] = "creating a cuMem handle failed",
        [XCCL_CUDA_WHY_EXPORT] = "exporting a cuMem handle failed",
        [XCCL_CUDA_WHY_IMPORT] = "importing a cuMem handle failed",
        [XCCL_CUDA_WHY_IPC_GET] = "creating an IPC handle failed",
        [XCCL_CUDA_WHY_IPC_OPEN] = "opening an IPC handle failed",
        [XCCL_CUDA_WHY_FABRIC_CREATE] = "creating a fabric handle failed",
        [XCCL_CUDA_WHY_FABRIC_EXPORT] = "exporting a fabric handle failed",
        [XCCL_CUDA_WHY_FABRIC_IMPORT] = "importing a fabric handle failed",
    };
    const char *name = NULL;
    int other = (int)why->rank;

    switch (why->code) {
    case XCCL_CUDA_WHY_SETTING:
        snprintf(text_out, bytes, "XCCL_CUDA_P2P=0 on rank %d", owner);
        break;
    case XCCL_CUDA_WHY_APART: /* alike for both directions */
        snprintf(text_out, bytes, "the devices of ranks %d and %d have no peer access",
                 owner < other ? owner : other, owner < other ? other : owner);
        break;
    case XCCL_CUDA_WHY_HIDDEN:
        snprintf(text_out, bytes, "the process of rank %d does not see the device of rank %d",
                 owner, (int)why->rank);
        break;
    case XCCL_CUDA_WHY_CUMEM_OFF:
        snprintf(text_out, bytes, "XCCL_CUDA_CUMEM=0 on rank %d", owner);
        break;
    case XCCL_CUDA_WHY_CUMEM_LACKS:
        snprintf(text_out, bytes, "the driver or device of rank %d does not support cuMem handles",
                 owner);
        break;
    case XCCL_CUDA_WHY_CUMEM_FABRIC:
        snprintf(text_out, bytes, "XCCL_CUDA_CUMEM=fabric on rank %d", owner);
        break;
    case XCCL_CUDA_WHY_FABRIC_LACKS:
        snprintf(text_out, bytes, "the device of rank %d does not support fabric handles", owner);
        break;
    case XCCL_CUDA_WHY_FABRIC_CREATE:
    case XCCL_CUDA_WHY_FABRIC_EXPORT:
    case XCCL_CUDA_WHY_FABRIC_IMPORT:
    case XCCL_CUDA_WHY_CREATE:
    case XCCL_CUDA_WHY_EXPORT:
    case XCCL_CUDA_WHY_IMPORT:
    case XCCL_CUDA_WHY_IPC_GET:
    case XCCL_CUDA_WHY_IPC_OPEN:
        if (!why->result)
            name = why->code == XCCL_CUDA_WHY_EXPORT ? "it could not be kept"
                                                     : "the file descriptor was not received";
        else if (comm->cuda->driver->error_name((int)why->result, &name) || !name)
            name = "an unknown error";
        snprintf(text_out, bytes, "%s on rank %d: %s", refused[why->code], (int)why->rank, name);
        break;
    default:
        text_out[0] = '\0';
        break;
    }
}

/* edge: how the owner of that piece lets the other one reach it. */
static enum xccl_record_way_kind near_kind(const struct xcclComm *comm, int peer,
                                           const struct xccl_cuda_edge *edge,
                                           const struct xccl_cuda_piece *slots)
{
    if (slots->memory == XCCL_CUDA_MEMORY_HOST)
        return XCCL_RECORD_WAY_PINNED;
    if (xccl_cuda_same_process(comm, peer))
        return comm->peers[peer].ordinal == comm->peers[comm->rank].ordinal
                   ? XCCL_RECORD_WAY_SAME_DEVICE
                   : XCCL_RECORD_WAY_PEER_ACCESS;
    if (edge->kind == XCCL_CUDA_MEMORY_DEVICE)
        return XCCL_RECORD_WAY_IPC;
    return edge->kind == XCCL_CUDA_MEMORY_HANDLE ? XCCL_RECORD_WAY_HANDLE : XCCL_RECORD_WAY_FABRIC;
}

/* Behind what is there already; nothing where there is no reason, or no room. */
static void add_why(const struct xcclComm *comm, const struct xccl_cuda_why *why, int owner,
                    char text[XCCL_RECORD_WHY_BYTES])
{
    char more[XCCL_RECORD_WHY_BYTES];
    size_t used = strlen(text);

    why_text(comm, why, owner, more, sizeof more);
    if (more[0] && used + sizeof "; " < XCCL_RECORD_WHY_BYTES)
        snprintf(text + used, XCCL_RECORD_WHY_BYTES - used, "%s%.*s", used ? "; " : "",
                 (int)(XCCL_RECORD_WHY_BYTES - used - sizeof "; "), more);
}

void xccl_cuda_note_near(struct xcclComm *comm, int peer, int sends,
                         const struct xccl_cuda_piece *slots)
{
    const struct xccl_cuda_edges *edges = &comm->cuda->edges;
    int index = xccl_shm_index_of(comm->shm, peer), owner = sends ? peer : comm->rank;
    const struct xccl_cuda_edge *edge = sends ? &edges->theirs[index] : &edges->own[index];
    enum xccl_record_way_kind kind = near_kind(comm, peer, edge, slots);
    char why[XCCL_RECORD_WHY_BYTES] = "";

    if (kind == XCCL_RECORD_WAY_PINNED) {
        add_why(comm, &slots->why, owner, why);
        add_why(comm, &edge->why[1], owner, why);
    }
    if (kind == XCCL_RECORD_WAY_PINNED || kind == XCCL_RECORD_WAY_IPC ||
        kind == XCCL_RECORD_WAY_FABRIC)
        add_why(comm, &edge->why[0], owner, why);
    if (kind == XCCL_RECORD_WAY_PINNED || kind == XCCL_RECORD_WAY_IPC)
        add_why(comm, &edge->why[2], owner, why);
    note(comm, peer, sends, kind, why);
}

/* --- over networks --- */

void xccl_cuda_note_net(struct xcclComm *comm, const struct xccl_net_link *net)
{
    int peer = xccl_net_link_peer(net);
    const struct xccl_peer *self = &comm->peers[comm->rank], *other = &comm->peers[peer];
    const char *far = other->host_hash != self->host_hash ? "another host"
                      : self->shm && other->shm           ? "no shared memory with it"
                                                          : "XCCL_SHM_DISABLE=1";
    const char *told = xccl_net_link_room_why(net);
    char why[XCCL_RECORD_WHY_BYTES];

    snprintf(why, sizeof why, "%s%s%s", far, told[0] ? "; " : "", told);
    note(comm, peer, xccl_net_link_sends(net),
         xccl_net_link_room(net) ? XCCL_RECORD_WAY_NET_DEVICE : XCCL_RECORD_WAY_NET_PINNED, why);
}

/* --- the line of the log --- */

void xccl_cuda_tell_ways(struct xcclComm *comm)
{
    static const char *const names[XCCL_RECORD_WAY_END] = {
        [XCCL_RECORD_WAY_SAME_DEVICE] = "the same device",
        [XCCL_RECORD_WAY_PEER_ACCESS] = "peer access",
        [XCCL_RECORD_WAY_HANDLE] = "cuMem handles",
        [XCCL_RECORD_WAY_IPC] = "IPC",
        [XCCL_RECORD_WAY_FABRIC] = "fabric handles",
        [XCCL_RECORD_WAY_PINNED] = "pinned host memory",
        [XCCL_RECORD_WAY_NET_DEVICE] = "network and device memory",
        [XCCL_RECORD_WAY_NET_PINNED] = "network and pinned host memory",
        [XCCL_RECORD_WAY_OTHER] = "other ways",
    };
    const struct xccl_cuda_ways *ways = comm->cuda->ways;
    char line[LINE_BYTES] = "";
    size_t used = 0;

    for (unsigned row = 0; ways && row < ways->count && used < sizeof line; row++) {
        const struct row *at = &ways->rows[row];
        char to[XCCL_RECORD_ENDS_BYTES], from[XCCL_RECORD_ENDS_BYTES];

        ranks_text(comm, row, 1, to);
        ranks_text(comm, row, 0, from);
        used += (size_t)snprintf(
            line + used, sizeof line - used, "%s%s%s%s%s%s by %s%s%s%s", row ? "; " : "",
            to[0] ? "to " : "", to, to[0] && from[0] ? ", " : "", from[0] ? "from " : "", from,
            names[at->kind], at->why[0] ? " (" : "", at->why, at->why[0] ? ")" : "");
    }
    xccl_log(XCCL_LOG_INFO, "CUDA device %d, links: %s", comm->device, line[0] ? line : "none");
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Joining: ranks of a host open the memory that each offers for messages, and tell all whose they
 * could not. The owner then offers that rank, and no other, the next kind (cuda_edges.c), and
 * all try again. Whether a process may open another one's memory depends on drivers, containers and
 * limits, which nothing says beforehand.
 *
 *   offers --opened--> verdicts --all could--> links
 *      '---another kind----' somebody could not, on any host: a few times
 *
 * What stays as it was is offered once more as it is, and stays open.
 *
 * Ranks of one process need no descriptor of each other, and no verdicts.
 *
 * Thread: the joining one. */
#include "base/alloc.h"
#include "base/wire.h"
#include "connect/comm_links.h"
#include "cuda/cuda_int.h"

/* Each round lowers a kind, and there are four; what was opened in one may be refused in a later
 * one, where its owner had to make it anew. */
#define ROUNDS_MAX    8
#define VERDICT_BYTES (1 + 2)

static int is_one_process(const struct xcclComm *comm)
{
    for (int i = 0; i < comm->nranks; i++)
        if (!xccl_cuda_same_process(comm, i))
            return 0;
    return 1;
}

static size_t verdict_bytes(const struct xcclComm *comm)
{
    return (size_t)comm->cuda->edges.widest * VERDICT_BYTES;
}

xcclResult_t xccl_cuda_agree_offer(struct xccl_init *init, const struct xccl_cuda_offer *offer)
{
    const struct xccl_cuda_edges *edges = &init->comm->cuda->edges;
    uint8_t *own = xccl_init_parts(init, XCCL_CUDA_OFFER_BYTES + xccl_cuda_edges_row_bytes(edges));

    if (!own)
        return xcclSystemError;
    xccl_cuda_put_offer(offer, own);
    xccl_cuda_edges_put(edges, own + XCCL_CUDA_OFFER_BYTES);
    return xccl_init_gather(init);
}

/* All that is offered can be used. */
static xcclResult_t finish(struct xcclComm *comm, const uint8_t *offers)
{
    size_t stride = XCCL_CUDA_OFFER_BYTES + xccl_cuda_edges_row_bytes(&comm->cuda->edges);

    if (comm->shm && !xccl_cuda_edges_give(comm))
        xccl_shm_seal(comm->shm, 0);
    return xccl_cuda_p2p_take(comm, offers, stride);
}

/* Tries, and says by rank of the host what was refused. */
static xcclResult_t put_verdicts(struct xcclComm *comm, const uint8_t *offers, size_t stride,
                                 uint8_t *verdicts)
{
    uint32_t count = comm->cuda->edges.count;
    struct xccl_wire wire = xccl_wire_over(verdicts, verdict_bytes(comm));
    struct xccl_cuda_why *refused = xccl_calloc((size_t)count + 1, sizeof *refused);
    xcclResult_t rc = refused ? xccl_cuda_p2p_try(comm, offers, stride, refused) : xcclSystemError;

    for (uint32_t i = 0; i < count && !rc; i++) {
        xccl_wire_put_u8(&wire, (uint8_t)refused[i].code);
        xccl_wire_put_u16(&wire, (uint16_t)refused[i].result); /* the driver's are small */
    }
    xccl_free(refused);
    return rc;
}

/* The offers are here. */
static xcclResult_t try_all(struct xccl_init *init, enum xccl_init_state *state_out)
{
    struct xcclComm *comm = init->comm;
    struct xccl_cuda_comm *cuda = comm->cuda;
    size_t stride = init->part_bytes;
    uint8_t *own;
    xcclResult_t rc = xccl_cuda_edges_get(comm, init->parts + XCCL_CUDA_OFFER_BYTES, stride);

    if (rc)
        return rc;
    if (is_one_process(comm)) {
        *state_out = XCCL_INIT_DONE;
        return finish(comm, init->parts);
    }
    xccl_free(cuda->agree_offers);
    cuda->agree_offers = init->parts;
    init->parts = NULL;
    own = xccl_init_parts(init, verdict_bytes(comm));
    rc = own ? put_verdicts(comm, cuda->agree_offers, stride, own) : xcclSystemError;
    if (rc)
        return rc;
    cuda->agree_asks = 1;
    *state_out = XCCL_INIT_MORE;
    return xccl_init_gather(init);
}

/* What else a rank says is no verdict: it changes nothing here, and ends the join in time. */
static int is_of_opening(uint32_t code)
{
    return code == XCCL_CUDA_WHY_IMPORT || code == XCCL_CUDA_WHY_IPC_OPEN ||
           code == XCCL_CUDA_WHY_FABRIC_IMPORT;
}

/* The verdicts are here. *again_out: somebody could not. */
static void judge(struct xccl_init *init, int *again_out)
{
    struct xcclComm *comm = init->comm;
    struct xccl_cuda_edges *edges = &comm->cuda->edges;
    size_t bytes = verdict_bytes(comm);
    uint32_t own = edges->count ? (uint32_t)xccl_shm_index_of(comm->shm, comm->rank) : 0;

    *again_out = 0;
    for (int i = 0; i < comm->nranks; i++) {
        struct xccl_wire wire = xccl_wire_over(init->parts + (size_t)i * bytes, bytes);
        int is_near = edges->count && xccl_comm_is_local(comm, i);

        for (uint32_t k = 0; k < edges->widest; k++) {
            struct xccl_cuda_why why = {.rank = (uint32_t)i};

            why.code = xccl_wire_get_u8(&wire);
            why.result = xccl_wire_get_u16(&wire);
            *again_out |= why.code != XCCL_CUDA_WHY_NONE;
            if (is_of_opening(why.code) && is_near && k == own)
                xccl_cuda_edge_lower(comm->cuda, &edges->own[xccl_shm_index_of(comm->shm, i)],
                                     &why);
        }
    }
}

static xcclResult_t offer_again(struct xccl_init *init, enum xccl_init_state *state_out)
{
    struct xccl_cuda_comm *cuda = init->comm->cuda;
    struct xccl_cuda_offer offer;
    xcclResult_t rc;

    if (++cuda->agree_rounds > ROUNDS_MAX)
        return xccl_fail(xcclInternalError, 0,
                         "report this as a bug; XCCL_CUDA_P2P=0 avoids this step",
                         "the ranks of a host cannot agree on memory for their links");
    rc = xccl_cuda_p2p_offer_again(init->comm, &offer);
    if (rc)
        return rc;
    cuda->agree_asks = 0;
    *state_out = XCCL_INIT_MORE;
    return xccl_cuda_agree_offer(init, &offer);
}

xcclResult_t xccl_init_cuda_links(struct xccl_init *init, enum xccl_init_state *state_out)
{
    struct xcclComm *comm = init->comm;
    int again;

    *state_out = XCCL_INIT_DONE;
    if (!comm->cuda->agree_asks)
        return try_all(init, state_out);
    xccl_cuda_p2p_drop_stale(comm); /* all have closed it: they have tried what came after it */
    judge(init, &again);
    return again ? offer_again(init, state_out) : finish(comm, comm->cuda->agree_offers);
}

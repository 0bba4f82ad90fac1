/* SPDX-License-Identifier: BSD-3-Clause */
/* Joining: ranks of a host open the memory that each offers, and tell all whether they could. What
 * one of them cannot open nobody of its host uses: those who offered that kind offer the next one,
 * and all try again. Whether a process may open another one's memory depends on drivers, containers
 * and limits, which nothing says beforehand.
 *
 *   offers --opened--> verdicts --all could--> links
 *      '-----other memory-----' somebody could not, on any host: a few times
 *
 * What was opened of a kind that nobody of this host was refused stays open: its owners offer it
 * once more as it is, and have given its descriptors away.
 *
 * Ranks of one process need no descriptor of each other, and no verdicts.
 *
 * Thread: the joining one. */
#include <string.h>

#include "base/alloc.h"
#include "base/wire.h"
#include "comm/comm_cuda_int.h"
#include "comm/comm_links.h"

#define ROUNDS_MAX    3 /* kinds of memory */
#define VERDICT_BYTES 16

/* What a rank could not open; code 0: nothing. */
struct verdict {
    struct xccl_cuda_why why;
    uint32_t memory; /* the kind */
};

static void put_verdict(const struct verdict *verdict, uint8_t *bytes)
{
    struct xccl_wire wire = xccl_wire_over(bytes, VERDICT_BYTES);

    xccl_wire_put_u32(&wire, verdict->why.code);
    xccl_wire_put_u32(&wire, verdict->why.rank);
    xccl_wire_put_u32(&wire, verdict->why.result);
    xccl_wire_put_u32(&wire, verdict->memory);
}

static struct verdict get_verdict(uint8_t *bytes)
{
    struct xccl_wire wire = xccl_wire_over(bytes, VERDICT_BYTES);
    struct verdict verdict;

    verdict.why.code = xccl_wire_get_u32(&wire);
    verdict.why.rank = xccl_wire_get_u32(&wire);
    verdict.why.result = xccl_wire_get_u32(&wire);
    verdict.memory = xccl_wire_get_u32(&wire);
    return verdict;
}

static int is_one_process(const struct xcclComm *comm)
{
    for (int i = 0; i < comm->nranks; i++)
        if (!xccl_comm_cuda_same_process(comm, i))
            return 0;
    return 1;
}

/* All that is offered can be used; kept: the offers. */
static xcclResult_t finish(struct xcclComm *comm, const uint8_t *offers)
{
    struct xccl_comm_cuda *cuda = comm->cuda;

    cuda->is_agreed = 1;
    if (comm->shm && cuda->memory != XCCL_CUDA_MEMORY_HANDLE)
        xccl_shm_seal(comm->shm, 0);
    return xccl_cuda_p2p_take(comm, offers, XCCL_CUDA_OFFER_BYTES);
}

/* The offers are here. */
static xcclResult_t try_all(struct xccl_init *init, enum xccl_init_state *state_out)
{
    struct xcclComm *comm = init->comm;
    struct xccl_comm_cuda *cuda = comm->cuda;
    struct verdict verdict = {0};
    uint8_t *own;
    xcclResult_t rc;

    if (is_one_process(comm)) {
        *state_out = XCCL_INIT_DONE;
        return finish(comm, init->parts);
    }
    rc = xccl_cuda_p2p_try(comm, init->parts, XCCL_CUDA_OFFER_BYTES, &verdict.why, &verdict.memory);
    if (rc)
        return rc;
    xccl_free(cuda->agree_offers);
    cuda->agree_offers = init->parts;
    init->parts = NULL;
    own = xccl_init_parts(init, VERDICT_BYTES);
    if (!own)
        return xcclSystemError;
    put_verdict(&verdict, own);
    cuda->agree_asks = 1;
    *state_out = XCCL_INIT_MORE;
    return xccl_init_gather(init);
}

/* The verdicts are here. *again_out: somebody could not. */
static void judge(struct xccl_init *init, int *again_out)
{
    struct xcclComm *comm = init->comm;
    struct xccl_comm_cuda *cuda = comm->cuda;
    enum xccl_cuda_memory memory = cuda->memory;

    *again_out = 0;
    cuda->agree_refused = 0;
    for (int i = 0; i < comm->nranks; i++) {
        struct verdict verdict = get_verdict(init->parts + (size_t)i * VERDICT_BYTES);

        if (!verdict.why.code)
            continue;
        *again_out = 1;
        if (!xccl_comm_is_local(comm, i) || verdict.memory > XCCL_CUDA_MEMORY_HANDLE)
            continue;
        cuda->agree_refused |= 1u << verdict.memory;
        if (verdict.memory == memory && cuda->memory == memory &&
            xccl_comm_cuda_has_other_process(comm))
            xccl_comm_cuda_step_down(cuda, &verdict.why);
    }
}

static xcclResult_t offer_again(struct xccl_init *init, enum xccl_init_state *state_out)
{
    struct xcclComm *comm = init->comm;
    struct xccl_comm_cuda *cuda = comm->cuda;
    struct xccl_cuda_offer offer;
    uint8_t *own;
    xcclResult_t rc;

    if (++cuda->agree_rounds > ROUNDS_MAX)
        return xccl_fail(xcclInternalError, 0, "report this as a bug; XCCL_CUDA_P2P=0 does without",
                         "the ranks of a host do not agree on memory for their links");
    xccl_comm_cuda_close_opened(cuda, cuda->agree_refused);
    rc = xccl_cuda_p2p_offer_again(comm, &offer);
    if (rc)
        return rc;
    own = xccl_init_parts(init, XCCL_CUDA_OFFER_BYTES);
    if (!own)
        return xcclSystemError;
    xccl_comm_cuda_put_offer(&offer, own);
    cuda->agree_asks = 0;
    *state_out = XCCL_INIT_MORE;
    return xccl_init_gather(init);
}

xcclResult_t xccl_init_cuda_links(struct xccl_init *init, enum xccl_init_state *state_out)
{
    struct xcclComm *comm = init->comm;
    int again;

    *state_out = XCCL_INIT_DONE;
    if (!comm->cuda)
        return xcclSuccess;
    if (!comm->cuda->agree_asks)
        return try_all(init, state_out);
    judge(init, &again);
    return again ? offer_again(init, state_out) : finish(comm, comm->cuda->agree_offers);
}

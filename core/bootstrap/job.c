/* SPDX-License-Identifier: BSD-3-Clause */
/* From unique ids to what one rank needs of them. One id: its own communicator id and secret are
 * the job's. Several: a hash over all of them in order. Pure but for decoding. Thread: any. */
#include "bootstrap/job.h"

#include <string.h>

#include "base/error.h"
#include "bootstrap/channel.h"

int xccl_job_first_rank(int nranks, int meeting_count, int idx)
{
    return (int)((int64_t)nranks * idx / meeting_count);
}

/* The share that a rank belongs to. */
static int share_of(int rank, int nranks, int meeting_count)
{
    int idx = (int)((int64_t)rank * meeting_count / nranks);

    /* The division above may be one too low where the shares are not of one size. */
    while (idx + 1 < meeting_count && xccl_job_first_rank(nranks, meeting_count, idx + 1) <= rank)
        idx++;
    return idx;
}

/* Whoever has all ids in the right order has the key. */
static void hash_ids(const xcclUniqueId *ids, int id_count, struct xccl_job *job)
{
    static const char label[] = "xccl 1 several ids";
    crypto_generichash_state state;
    uint8_t hash[48];

    crypto_generichash_init(&state, NULL, 0, sizeof(hash));
    crypto_generichash_update(&state, (const uint8_t *)label, sizeof(label));
    for (int i = 0; i < id_count; i++)
        crypto_generichash_update(&state, (const uint8_t *)ids[i].internal,
                                  sizeof(ids[i].internal));
    crypto_generichash_final(&state, hash, sizeof(hash));
    memcpy(job->comm_id, hash, sizeof(job->comm_id));
    memcpy(job->secret, hash + sizeof(job->comm_id), sizeof(job->secret));
    sodium_memzero(hash, sizeof(hash));
    sodium_memzero(&state, sizeof(state));
}

xcclResult_t xccl_job_init(const xcclUniqueId *ids, int id_count, int rank, int nranks,
                           struct xccl_job *job_out)
{
    struct xccl_job job = {.meeting_count = id_count};
    xcclResult_t rc;

    if (nranks < 1 || rank < 0 || rank >= nranks) {
        return xccl_fail(xcclInvalidArgument, 0, "use 0 <= rank < nranks",
                         "rank %d is out of range for %d ranks", rank, nranks);
    }
    if (id_count < 1 || id_count > nranks) {
        return xccl_fail(xcclInvalidArgument, 0, "give at least one id, and at most one per rank",
                         "%d unique ids for %d ranks", id_count, nranks);
    }
    job.meeting_idx = share_of(rank, nranks, id_count);
    job.guest = id_count > 1 && rank == xccl_job_first_rank(nranks, id_count, job.meeting_idx);
    rc = xccl_unique_id_decode(&ids[job.meeting_idx], &job.own);
    if (!rc && job.guest)
        rc = xccl_unique_id_decode(&ids[(job.meeting_idx + id_count - 1) % id_count], &job.before);
    if (!rc && id_count > 1) {
        hash_ids(ids, id_count, &job);
    } else if (!rc) {
        memcpy(job.comm_id, job.own.comm_id, sizeof(job.comm_id));
        memcpy(job.secret, job.own.secret, sizeof(job.secret));
    }
    if (!rc)
        *job_out = job;
    sodium_memzero(&job, sizeof(job));
    return rc;
}

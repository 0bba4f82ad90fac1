/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory of one rank of `xccl perf`.
 *
 * Thread: the rank's. */
#include "base/alloc.h"
#include "base/error.h"
#include "perf/perf.h"

#define PAGE_BYTES (XCCL_PERF_MARGINS / 2)

static int is_complete(const struct xccl_perf_job *job)
{
    for (int i = 0; i < XCCL_PERF_BLOCKS; i++) {
        if (!job->blocks[i])
            return 0;
    }
    return job->data && job->places && job->patterns[0] && job->patterns[1] && job->exchange[0] &&
           job->exchange[1] && job->memory[0] && job->memory[1] &&
           (job->samples || !job->options->single);
}

static char *take_memory(const struct xccl_perf_job *job, size_t bytes)
{
    return job->take ? job->take(bytes) : xccl_calloc_aligned(PAGE_BYTES, bytes);
}

static void give_memory(const struct xccl_perf_job *job, char *memory)
{
    if (job->give)
        job->give(memory);
    else
        xccl_free(memory);
}

xcclResult_t xccl_perf_job_init(struct xccl_perf_job *job, size_t bytes)
{
    job->data = xccl_calloc(1, sizeof(*job->data));
    job->places = xccl_calloc(job->nranks, sizeof(*job->places));
    for (int i = 0; i < XCCL_PERF_BLOCKS; i++)
        job->blocks[i] = xccl_calloc(job->nranks, sizeof(*job->blocks[i]));
    for (int i = 0; i < 2; i++) {
        job->patterns[i] = xccl_calloc(1, sizeof(*job->patterns[i]));
        job->exchange[i] = xccl_calloc(job->nranks, sizeof(*job->places));
        job->memory[i] = take_memory(job, bytes + XCCL_PERF_MARGINS);
    }
    if (job->options->single)
        job->samples = xccl_calloc(XCCL_PERF_SINGLE_MAX, sizeof(*job->samples));
    if (!is_complete(job)) {
        xccl_perf_job_fini(job);
        return xccl_fail(xcclSystemError, 0, "choose a smaller -e",
                         "rank %d has no memory for two buffers of %zu bytes", job->rank, bytes);
    }
    job->send = job->memory[0] + PAGE_BYTES;
    job->recv = job->memory[1] + PAGE_BYTES;
    return xcclSuccess;
}

void xccl_perf_job_fini(struct xccl_perf_job *job)
{
    for (int i = 0; i < 2; i++) {
        xccl_free(job->patterns[i]);
        xccl_free(job->exchange[i]);
        give_memory(job, job->memory[i]);
        job->patterns[i] = NULL;
        job->exchange[i] = NULL;
        job->memory[i] = NULL;
    }
    for (int i = 0; i < XCCL_PERF_BLOCKS; i++) {
        xccl_free(job->blocks[i]);
        job->blocks[i] = NULL;
    }
    xccl_free(job->samples);
    xccl_free(job->places);
    xccl_free(job->data);
    job->samples = NULL;
    job->places = NULL;
    job->data = NULL;
}

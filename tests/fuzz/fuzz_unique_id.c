/* SPDX-License-Identifier: BSD-3-Clause */
/* Unique ids from anybody: a job that is accepted has between one and three roots.
 * Limits: ids are not authenticated; they are the secret.
 * Thread: one. */
#include "bootstrap/bootstrap.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct xccl_job job;
    xcclUniqueId id = {{0}};

    memcpy(&id, data, size < sizeof(id) ? size : sizeof(id));
    if (xccl_unique_id_decode(&id, &job) != xcclSuccess)
        return 0;
    if (job.root_count < 1 || job.root_count > (int)(sizeof(job.roots) / sizeof(job.roots[0])))
        abort();
    return 0;
}

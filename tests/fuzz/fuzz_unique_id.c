/* SPDX-License-Identifier: BSD-3-Clause */
/* Hostile unique ids: decoded or refused, and what is decoded is usable. Short inputs are padded
 * with zeroes. */
#include <stdlib.h>
#include <string.h>

#include "bootstrap/bootstrap.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    xcclUniqueId id = {{0}};
    struct xccl_meeting job;

    memcpy(id.internal, data, bytes < sizeof(id.internal) ? bytes : sizeof(id.internal));
    if (xccl_unique_id_decode(&id, &job) != xcclSuccess)
        return 0;
    if (job.root_count < 1 || job.root_count > 3)
        abort();
    for (int i = 0; i < job.root_count; i++) {
        char text[XCCL_ADDR_TEXT_BYTES];

        xccl_addr_format(&job.roots[i], text);
        if (!job.roots[i].bytes || !xccl_addr_port(&job.roots[i]) || strlen(text) >= sizeof(text))
            abort();
    }
    return 0;
}

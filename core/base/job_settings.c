/* SPDX-License-Identifier: BSD-3-Clause */
/* The settings that must be equal on all ranks of a job: a rank with another algorithm would wait
 * for messages that nobody sends, and one without heartbeats would be taken for dead. Any thread.
 */
#include <stdio.h>
#include <string.h>

#include "base/param.h"

static const enum xccl_param_id job_wide[] = {XCCL_P_ALGO, XCCL_P_HEARTBEAT_S};

void xccl_param_job_text(char *text_out, size_t bytes)
{
    size_t used = 0;

    text_out[0] = '\0';
    for (size_t i = 0; i < sizeof job_wide / sizeof job_wide[0]; i++) {
        struct xccl_param_info info;
        int written;

        xccl_param_info(job_wide[i], &info);
        written = snprintf(text_out + used, bytes - used, "%s%s=%s", used ? " " : "", info.name,
                           info.value[0] ? info.value : info.fallback);
        if (written < 0 || (size_t)written >= bytes - used)
            return;
        used += (size_t)written;
    }
}

uint64_t xccl_param_job_hash(void)
{
    uint64_t hash = 0xcbf29ce484222325ull; /* FNV-1a, over the values and not over their spelling */

    for (size_t i = 0; i < sizeof job_wide / sizeof job_wide[0]; i++) {
        uint64_t value = (uint64_t)xccl_param_int(job_wide[i]);

        for (int at = 0; at < 8; at++)
            hash = (hash ^ ((value >> (8 * at)) & 0xff)) * 0x100000001b3ull;
    }
    return hash;
}

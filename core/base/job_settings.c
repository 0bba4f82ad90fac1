/* SPDX-License-Identifier: BSD-3-Clause */
/* The settings that must be equal on all ranks of a job: a rank with another algorithm would wait
 * for messages that nobody sends, and one without heartbeats would be taken for dead. Any thread.
 */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/param.h"

static const enum xccl_param_id job_wide[] = {XCCL_P_ALGO, XCCL_P_DETERMINISM, XCCL_P_HEARTBEAT_S,
                                              XCCL_P_PROTO};

void xccl_param_job_text(char *text_out, size_t bytes)
{
    size_t used = 0;

    text_out[0] = '\0';
    for (size_t i = 0; i < sizeof job_wide / sizeof job_wide[0]; i++) {
        struct xccl_param_info info;
        int written;

        xccl_param_info(job_wide[i], &info);
        written = snprintf(text_out + used, bytes - used, "%s%s=%.80s", used ? " " : "", info.name,
                           info.value[0] ? info.value : info.fallback);
        if (written < 0 || (size_t)written >= bytes - used)
            return;
        used += (size_t)written;
    }
}

/* Over values: spellings of a number are alike, those of a text are not. */
uint64_t xccl_param_job_hash(void)
{
    uint64_t hash = XCCL_HASH_START;

    for (size_t i = 0; i < sizeof job_wide / sizeof job_wide[0]; i++) {
        struct xccl_param_info info;
        uint8_t value[8];

        xccl_param_info(job_wide[i], &info);
        if (info.type == XCCL_PARAM_STRING) { /* with its end, so that the next one begins anew */
            const char *text = xccl_param_string(job_wide[i]);

            hash = xccl_hash_bytes(hash, text, strlen(text) + 1);
            continue;
        }
        for (int at = 0; at < 8; at++)
            value[at] = (uint8_t)((uint64_t)xccl_param_int(job_wide[i]) >> (8 * at));
        hash = xccl_hash_bytes(hash, value, sizeof value);
    }
    return hash;
}

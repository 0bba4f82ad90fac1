/* SPDX-License-Identifier: BSD-3-Clause */
/* XCCL_PORT_RANGE with anything in it: what is accepted is written the same way again.
 * Thread: one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tcp_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct xccl_port_range range = {0, 0};
    char *input = malloc(size + 1), text[32];

    if (!input)
        return 0;
    memcpy(input, data, size);
    input[size] = '\0';
    if (xccl_port_range_parse(input, &range) == 0) {
        snprintf(text, sizeof(text), "%u-%u", range.low, range.high);
        if (strcmp(text, input) != 0 || range.low < 1 || range.low > range.high ||
            range.high > UINT16_MAX)
            abort();
    } else if (range.low || range.high) {
        abort();
    }
    free(input);
    return 0;
}

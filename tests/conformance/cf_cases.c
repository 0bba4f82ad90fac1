/* SPDX-License-Identifier: BSD-3-Clause */
/* All cases, in the order in which they run: what a plugin author should mend first comes first.
 *
 * Thread: any. */
#include "cf_int.h"

#include <stddef.h>

static const struct cf_case *const tables[] = {
    cf_cases_device,   cf_cases_life,    cf_cases_sizes,  cf_cases_tags,
    cf_cases_requests, cf_cases_threads, cf_cases_memory, cf_cases_close,
    cf_cases_peer,     cf_cases_process, cf_cases_extras, cf_cases_onesided,
};

const struct cf_case *cf_case_at(int idx)
{
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        for (const struct cf_case *test = tables[i]; test->name; test++) {
            if (idx-- == 0)
                return test;
        }
    }
    return NULL;
}

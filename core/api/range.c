/* SPDX-License-Identifier: BSD-3-Clause */
/* The domain is made by the first range, and stays. NVTX finds the tool that listens by the
 * environment (NVTX_INJECTION64_PATH), once a process, with its first call. Thread: any. */
#include "api/range.h"

#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdatomic.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static nvtxDomainHandle_t domain;
static _Atomic int is_used;

static void make_domain(void)
{
    domain = nvtxDomainCreateA("XCCL");
    /* Relaxed: it only says whether to ask for a range, which asks here again. */
    atomic_store_explicit(&is_used, 1, memory_order_relaxed);
}

void xccl_range_push(const char *call)
{
    nvtxEventAttributes_t range = {.version = NVTX_VERSION,
                                   .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                   .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                   .message = {.ascii = call}};

    pthread_once(&once, make_domain);
    nvtxDomainRangePushEx(domain, &range);
}

void xccl_range_pop(void)
{
    nvtxDomainRangePop(domain);
}

int xccl_range_is_used(void)
{
    return atomic_load_explicit(&is_used, memory_order_relaxed);
}

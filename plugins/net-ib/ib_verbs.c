/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens libibverbs and fills the table. The library stays open until the process ends: it keeps
 * providers and handlers of its own. A process that fails to open it tries again with the next
 * instance. Thread: any, one at a time by a lock. */
#include "ib_verbs.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "base/param.h"
#include "base/trust.h"

#define WHY_BYTES    400
#define TODO_INSTALL "install rdma-core (libibverbs1, ibverbs-providers), or use another plugin"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ib_verbs table;
static int is_open;

static const struct {
    const char *name, *version; /* version NULL: may be absent */
    size_t offset;
} symbols[] = {
#define SYMBOL(name)                                                                               \
    {                                                                                              \
        "ibv_" #name, "IBVERBS_1.1", offsetof(struct ib_verbs, name)                               \
    }
    SYMBOL(get_device_list),
    SYMBOL(free_device_list),
    SYMBOL(get_device_name),
    SYMBOL(open_device),
    SYMBOL(close_device),
    SYMBOL(query_device),
    SYMBOL(query_port),
    SYMBOL(query_gid),
    SYMBOL(alloc_pd),
    SYMBOL(dealloc_pd),
    SYMBOL(reg_mr),
    SYMBOL(dereg_mr),
    SYMBOL(create_cq),
    SYMBOL(destroy_cq),
    SYMBOL(create_qp),
    SYMBOL(modify_qp),
    SYMBOL(destroy_qp),
    SYMBOL(wc_status_str),
    SYMBOL(get_async_event),
    SYMBOL(ack_async_event),
    SYMBOL(event_type_str),
#undef SYMBOL
    {"ibv_reg_mr_iova2", NULL, offsetof(struct ib_verbs, reg_mr_iova2)},
    {"ibv_reg_dmabuf_mr", NULL, offsetof(struct ib_verbs, reg_dmabuf_mr)},
    {"ibv_query_ece", NULL, offsetof(struct ib_verbs, query_ece)},
    {"ibv_set_ece", NULL, offsetof(struct ib_verbs, set_ece)},
    {"ibv_fork_init", NULL, offsetof(struct ib_verbs, fork_init)},
    {"ibv_is_fork_initialized", NULL, offsetof(struct ib_verbs, is_fork_initialized)},
};

/* Several of these have two versions; the older one has another layout. */
static void *symbol_get(void *library, const char *name, const char *version)
{
    void *symbol = version ? dlvsym(library, name, version) : NULL;

    return symbol ? symbol : dlsym(library, name);
}

static xcclResult_t table_fill(void *library, const char *file, struct ib_verbs *verbs_out)
{
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *symbol = symbol_get(library, symbols[i].name, symbols[i].version);

        if (!symbol && symbols[i].version)
            return xccl_fail_quietly(xcclSystemError, 0, TODO_INSTALL,
                                     "cannot use the verbs library: %s has no %s", file,
                                     symbols[i].name);
        memcpy((char *)verbs_out + symbols[i].offset, &symbol, sizeof(symbol));
    }
    return xcclSuccess;
}

static xcclResult_t library_open(void)
{
    const char *file = xccl_param_string(XCCL_P_IB_LIBRARY);
    char why[WHY_BYTES];
    struct ib_verbs verbs;
    void *library;
    xcclResult_t rc;

    if (!xccl_trust_library(file, xccl_param_string(XCCL_P_PLUGIN_OWNERS), why, sizeof(why)))
        return xccl_fail_quietly(xcclSystemError, 0, "set XCCL_IB_LIBRARY to another file",
                                 "cannot open the verbs library: %s", why);
    library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return xccl_fail_quietly(xcclSystemError, 0, TODO_INSTALL,
                                 "cannot open the verbs library: %s", dlerror());
    memset(&verbs, 0, sizeof(verbs));
    rc = table_fill(library, file, &verbs);
    if (rc != xcclSuccess) {
        dlclose(library);
        return rc;
    }
    /* Before the first device is opened. Kernels since 5.12 copy pinned pages for a child and say
     * that this is not needed; there it would only cost. */
    if (verbs.fork_init && verbs.is_fork_initialized &&
        verbs.is_fork_initialized() == IBV_FORK_DISABLED)
        (void)verbs.fork_init();
    table = verbs;
    is_open = 1;
    return xcclSuccess;
}

xcclResult_t ib_verbs_open(const struct ib_verbs **verbs_out)
{
    xcclResult_t rc = xcclSuccess;

    pthread_mutex_lock(&lock);
    if (!is_open)
        rc = library_open();
    pthread_mutex_unlock(&lock);
    if (rc == xcclSuccess)
        *verbs_out = &table;
    return rc;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Is a plugin's table one of contract version 1, and is it complete? Absent optional entries become
 * stubs, so that callers never test for NULL. Thread: any. */
#include "plugin/net_plugin_int.h"

#include <string.h>

#include "base/error.h"
#include "plugin/net_watch.h"

#define NAME_BYTES_MAX 31

struct entry {
    size_t offset;
    const char *name;
};

#define ENTRY(field)                                                                               \
    {                                                                                              \
        offsetof(xcclNetPlugin_v1_t, field), #field                                                \
    }
static const struct entry mandatory[] = {
    ENTRY(init),        ENTRY(finalize),  ENTRY(devices),      ENTRY(properties), ENTRY(listen),
    ENTRY(connect),     ENTRY(accept),    ENTRY(closeConnect), ENTRY(regMr),      ENTRY(deregMr),
    ENTRY(isend),       ENTRY(irecv),     ENTRY(test),         ENTRY(closeSend),  ENTRY(closeRecv),
    ENTRY(closeListen), ENTRY(lastError),
};
#undef ENTRY

#define MANDATORY_BYTES (offsetof(xcclNetPlugin_v1_t, lastError) + sizeof(void (*)(void)))

/* Received memory needs no flush: success with a NULL request, nothing to wait for. */
static xcclResult_t stub_iflush(xcclNetRecvComm_t comm, int count, void *const *data,
                                const size_t *bytes, const xcclNetMem_t *mems,
                                xcclNetRequest_t *request)
{
    (void)comm, (void)count, (void)data, (void)bytes, (void)mems;
    *request = NULL;
    return xcclSuccess;
}

/* No counters: zeroes. */
static xcclResult_t stub_stats(xcclNetContext_t ctx, int dev, xcclNetStats_v1 *stats)
{
    size_t bytes = stats->size < sizeof(*stats) ? stats->size : sizeof(*stats);

    (void)ctx, (void)dev;
    if (bytes > sizeof(stats->size))
        memset((char *)stats + sizeof(stats->size), 0, bytes - sizeof(stats->size));
    return xcclSuccess;
}

/* Nothing to sleep on. */
static xcclResult_t stub_wait_fd(void *comm, int *fd)
{
    (void)comm;
    *fd = -1;
    return xcclSuccess;
}

/* What test called done arrives without this side. */
static xcclResult_t stub_progress(xcclNetContext_t ctx, int *pending)
{
    (void)ctx;
    *pending = 0;
    return xcclSuccess;
}

static xcclResult_t refuse(const char *what)
{
    return xccl_fail_quietly(xcclInvalidUsage, 0, "use another network plugin",
                             "this network plugin does not support %s", what);
}

/* The cause is not told, and the text is lastError's business. */
static xcclResult_t stub_error_detail(void *comm, xcclNetError_v1 *error)
{
    (void)comm;
    if (error->size >= offsetof(xcclNetError_v1, cause) + sizeof(error->cause))
        error->cause = xcclNetCauseUnknown;
    if (error->size >= sizeof(*error))
        error->text = "";
    return xcclSuccess;
}

static xcclResult_t stub_reg_dmabuf(void *comm, void *data, size_t bytes, uint32_t type,
                                    uint64_t offset, int fd, xcclNetMem_t *mem)
{
    (void)comm, (void)data, (void)bytes, (void)type, (void)offset, (void)fd, (void)mem;
    return refuse("registering DMA-BUFs");
}

static xcclResult_t stub_merge(xcclNetContext_t ctx, const int *devs, int count, int *dev)
{
    (void)ctx, (void)devs, (void)count, (void)dev;
    return refuse("merging devices");
}

static xcclResult_t stub_export(xcclNetRecvComm_t comm, xcclNetMem_t mem, xcclNetMemKey_t *key)
{
    (void)comm, (void)mem, (void)key;
    return refuse("one-sided transfers");
}

static xcclResult_t stub_put(xcclNetSendComm_t comm, const void *data, size_t bytes,
                             xcclNetMem_t mem, const xcclNetMemKey_t *key, uint64_t offset,
                             xcclNetRequest_t *request)
{
    (void)comm, (void)data, (void)bytes, (void)mem, (void)key, (void)offset, (void)request;
    return refuse("one-sided transfers");
}

/* tidy: allow parameters because the contract has them */
static xcclResult_t stub_put_signal(xcclNetSendComm_t comm, const void *data, size_t bytes,
                                    xcclNetMem_t mem, const xcclNetMemKey_t *key, uint64_t offset,
                                    const xcclNetMemKey_t *signal_key, uint64_t signal_offset,
                                    uint64_t value, xcclNetRequest_t *request)
{
    (void)comm, (void)data, (void)bytes, (void)mem, (void)key, (void)offset;
    (void)signal_key, (void)signal_offset, (void)value, (void)request;
    return refuse("one-sided transfers");
}

/* Names go into file names, log lines and wire ids: short, lower case, no separators. */
static int name_is_good(const char *name)
{
    size_t bytes = name ? strnlen(name, NAME_BYTES_MAX + 1) : 0;

    return bytes > 0 && bytes <= NAME_BYTES_MAX &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == bytes;
}

int net_contract_check(const xcclNetPlugin_v1_t *plugin, struct net_reason *reason)
{
    if (plugin->size < MANDATORY_BYTES) {
        net_reason_set(reason, "its table has %zu bytes, contract version 1 needs at least %zu",
                       plugin->size, MANDATORY_BYTES);
        return 0;
    }
    if (!name_is_good(plugin->name)) {
        net_reason_set(reason, "its name does not consist of 1 to %d lower-case letters and digits",
                       NAME_BYTES_MAX);
        return 0;
    }
    for (size_t i = 0; i < sizeof(mandatory) / sizeof(mandatory[0]); i++) {
        void (*entry)(void);

        memcpy(&entry, (const char *)plugin + mandatory[i].offset, sizeof(entry));
        if (!entry) {
            net_reason_set(reason, "its entry %s is NULL, but contract version 1 requires it",
                           mandatory[i].name);
            return 0;
        }
    }
    return 1;
}

/* A reader looks at no field beyond size, and at no half of one. */
void net_contract_copy(const xcclNetPlugin_v1_t *plugin, xcclNetPlugin_v1_t *calls_out)
{
    size_t bytes = plugin->size < sizeof(*plugin) ? plugin->size : sizeof(*plugin);

    memset(calls_out, 0, sizeof(*calls_out));
    memcpy(calls_out, plugin, bytes / sizeof(void *) * sizeof(void *));
    calls_out->size = sizeof(*calls_out);
    if (!calls_out->iflush)
        calls_out->iflush = stub_iflush;
    if (!calls_out->stats)
        calls_out->stats = stub_stats;
    if (!calls_out->waitFd)
        calls_out->waitFd = stub_wait_fd;
    if (!calls_out->progress)
        calls_out->progress = stub_progress;
    if (!calls_out->errorDetail)
        calls_out->errorDetail = stub_error_detail;
    if (!calls_out->regMrDmaBuf)
        calls_out->regMrDmaBuf = stub_reg_dmabuf;
    if (!calls_out->mergeDevices)
        calls_out->mergeDevices = stub_merge;
    if (!calls_out->exportMr || !calls_out->iput || !calls_out->iputSignal) {
        calls_out->exportMr = stub_export;
        calls_out->iput = stub_put;
        calls_out->iputSignal = stub_put_signal;
    }
}

const char *xccl_net_entry_name(enum xccl_net_entry entry)
{
    static const char *const names[XCCL_NET_ENTRY_COUNT] = {
        [XCCL_NET_OUTSIDE] = "nothing",       [XCCL_NET_INIT] = "init",
        [XCCL_NET_FINALIZE] = "finalize",     [XCCL_NET_DEVICES] = "devices",
        [XCCL_NET_PROPERTIES] = "properties", [XCCL_NET_MERGE] = "mergeDevices",
        [XCCL_NET_LISTEN] = "listen",         [XCCL_NET_CONNECT] = "connect",
        [XCCL_NET_ACCEPT] = "accept",         [XCCL_NET_REG_MR] = "regMr",
        [XCCL_NET_DEREG_MR] = "deregMr",      [XCCL_NET_CLOSE] = "a close",
        [XCCL_NET_ISEND] = "isend",           [XCCL_NET_IRECV] = "irecv",
        [XCCL_NET_IFLUSH] = "iflush",         [XCCL_NET_TEST] = "test",
        [XCCL_NET_PROGRESS] = "progress",
    };

    return (unsigned)entry < XCCL_NET_ENTRY_COUNT ? names[entry] : "an unknown entry";
}

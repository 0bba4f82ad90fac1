/* SPDX-License-Identifier: BSD-3-Clause */
/* The tables of contract xccl1 that speak to NCCL's plugins, one for each version, and the check of
 * a plugin's table. The entries are the same functions for all: they find what differs through the
 * instance. Thread: any. */
#include "plugin/nccl_adapter.h"

#include <string.h>

#include "plugin/nccl_adapter_int.h"

#define INIT_PLACE 1
#define PLACES     22 /* of the newest version */

/* The pointer at a place of the table must not be NULL from this version on. regMrDmaBuf (8),
 * iflush (12), getDeviceMr (17), irecvConsumed (18), makeVDevice (19), setNetAttr (21) may be. */
static const struct {
    int place, from_version;
    const char *name;
} mandatory[] = {
    {0, 6, "name"},       {1, 6, "init"},       {2, 6, "devices"},      {3, 6, "getProperties"},
    {4, 6, "listen"},     {5, 6, "connect"},    {6, 6, "accept"},       {7, 6, "regMr"},
    {9, 6, "deregMr"},    {10, 6, "isend"},     {11, 6, "irecv"},       {13, 6, "test"},
    {14, 6, "closeSend"}, {15, 6, "closeRecv"}, {16, 6, "closeListen"}, {20, 11, "finalize"},
};

static int table_check(const struct nccl_source *source, int places, struct net_reason *reason)
{
    if (!nccl_ops_find(source->version)) {
        net_reason_set(reason, "NCCL's network contract v%d is not one of v%d to v%d",
                       source->version, NCCL_NET_OLDEST, NCCL_NET_NEWEST);
        return 0;
    }
    if (!source->table || (uintptr_t)source->table % sizeof(void *) != 0) {
        net_reason_set(reason, "its symbol ncclNetPlugin_v%d is not a table", source->version);
        return 0;
    }
    for (size_t i = 0; i < sizeof(mandatory) / sizeof(mandatory[0]); i++) {
        const void *entry;

        if (source->version < mandatory[i].from_version || mandatory[i].place >= places)
            continue;
        memcpy(&entry, (const char *)source->table + (size_t)mandatory[i].place * sizeof(entry),
               sizeof(entry));
        if (!entry) {
            net_reason_set(reason, "its entry %s is NULL, but ncclNetPlugin_v%d requires it",
                           mandatory[i].name, source->version);
            return 0;
        }
    }
    return 1;
}

int nccl_check_init(const struct nccl_source *source, struct net_reason *reason)
{
    return table_check(source, INIT_PLACE + 1, reason);
}

int nccl_check(const struct nccl_source *source, struct net_reason *reason)
{
    return table_check(source, PLACES, reason);
}

void nccl_name(const struct nccl_source *source, char name_out[NCCL_NAME_BYTES])
{
    const char *name;
    int used = 0;

    memcpy(&name, source->table, sizeof(name));
    for (; name && *name && used < NCCL_NAME_BYTES - 1; name++) {
        char sign = *name;

        if (sign >= 'A' && sign <= 'Z')
            sign = (char)(sign - 'A' + 'a');
        else if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789-_.", sign))
            sign = '-';
        name_out[used++] = sign;
    }
    name_out[used] = 0;
    if (used == 0)
        memcpy(name_out, "nccl", sizeof("nccl"));
}

const struct nccl_ops *nccl_ops_find(int version)
{
    static const struct nccl_ops *const all[] = {&nccl_ops_v6, &nccl_ops_v7,  &nccl_ops_v8,
                                                 &nccl_ops_v9, &nccl_ops_v10, &nccl_ops_v11,
                                                 &nccl_ops_v12};

    if (version < NCCL_NET_OLDEST || version > NCCL_NET_NEWEST)
        return NULL;
    return all[version - NCCL_NET_OLDEST];
}

int nccl_profiler_idle(void **event, int type, void *parent, int64_t plugin_id, void *data)
{
    (void)event, (void)type, (void)parent, (void)plugin_id, (void)data;
    return 0;
}

#define TABLE(number, merge)                                                                       \
    [(number)-NCCL_NET_OLDEST] = {                                                                 \
        .size = sizeof(xcclNetPlugin_v1_t),                                                        \
        .name = "nccl",                                                                            \
        .wireVersion = 2, /* messages begin with their length (proxy/net_link_op.c) */             \
        .init = nccl_init,                                                                         \
        .finalize = nccl_finalize,                                                                 \
        .devices = nccl_devices,                                                                   \
        .properties = nccl_properties,                                                             \
        .listen = nccl_listen,                                                                     \
        .connect = nccl_connect,                                                                   \
        .closeConnect = nccl_close_connect,                                                        \
        .accept = nccl_accept,                                                                     \
        .regMr = nccl_reg_mr,                                                                      \
        .deregMr = nccl_dereg_mr,                                                                  \
        .isend = nccl_isend,                                                                       \
        .irecv = nccl_irecv,                                                                       \
        .iflush = nccl_iflush,                                                                     \
        .test = nccl_test,                                                                         \
        .closeSend = nccl_close_comm,                                                              \
        .closeRecv = nccl_close_comm,                                                              \
        .closeListen = nccl_close_listen,                                                          \
        .lastError = nccl_last_error,                                                              \
        .progress = nccl_progress,                                                                 \
        .errorDetail = nccl_error_detail,                                                          \
        .regMrDmaBuf = nccl_reg_mr_dmabuf,                                                         \
        .mergeDevices = (merge),                                                                   \
    }

const xcclNetPlugin_v1_t *nccl_adapter(int version)
{
    static const xcclNetPlugin_v1_t tables[] = {
        TABLE(6, NULL),
        TABLE(7, NULL),
        TABLE(8, NULL),
        TABLE(9, nccl_merge_devices),
        TABLE(10, nccl_merge_devices),
        TABLE(11, nccl_merge_devices),
        TABLE(12, nccl_merge_devices),
    };

    return nccl_ops_find(version) ? &tables[version - NCCL_NET_OLDEST] : NULL;
}

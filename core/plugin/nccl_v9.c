/* SPDX-License-Identifier: BSD-3-Clause */
/* NCCL's network contract, versions 9 and 10: sizes are size_t, devices can be merged, *request on
 * entry to irecv is a hint. Version 10 adds the traffic class to connect, and a profiler that its
 * plugins may call at any time. Thread: as the contract says. */
#include "plugin/nccl_adapter_int.h"

/* What both have alike is called through version 9's table. */
static_assert(sizeof(struct nccl_net_v9) == sizeof(struct nccl_net_v10), "one layout");
static_assert(offsetof(struct nccl_net_v9, make_vdevice) ==
                  offsetof(struct nccl_net_v10, make_vdevice),
              "one layout");

static int v9_init(struct nccl_instance *instance)
{
    const struct nccl_net_v9 *net = instance->table;

    return net->init(nccl_logger_take);
}

static int v10_init(struct nccl_instance *instance)
{
    const struct nccl_net_v10 *net = instance->table;

    return net->init(nccl_logger_take, nccl_profiler_idle);
}

static int v9_properties(struct nccl_instance *instance, int dev, struct nccl_net_props_v12 *props)
{
    const struct nccl_net_v9 *net = instance->table;
    struct nccl_net_props_v9 told = {.max_recvs = 1};
    int result = net->get_properties(dev, &told);

    props->name = told.name;
    props->pci_path = told.pci_path;
    props->guid = told.guid;
    props->ptr_support = told.ptr_support;
    props->reg_is_global = told.reg_is_global;
    props->force_flush = told.force_flush;
    props->speed = told.speed;
    props->port = told.port;
    props->latency = told.latency;
    props->max_comms = told.max_comms;
    props->max_recvs = told.max_recvs;
    props->device_type = told.device_type;
    props->members.ndevs = told.members.ndevs;
    for (int i = 0; i < 4; i++)
        props->members.devs[i] = told.members.devs[i];
    props->max_p2p_bytes = told.max_p2p_bytes;
    return result;
}

static int v9_listen(struct nccl_instance *instance, int dev, void *handle, void **comm)
{
    const struct nccl_net_v9 *net = instance->table;

    return net->listen(dev, handle, comm);
}

static int v9_connect(struct nccl_instance *instance, int dev, void *handle, void **comm)
{
    const struct nccl_net_v9 *net = instance->table;
    void *device = NULL;

    return net->connect(dev, handle, comm, &device);
}

static int v10_connect(struct nccl_instance *instance, int dev, void *handle, void **comm)
{
    const struct nccl_net_v10 *net = instance->table;
    struct nccl_net_config config = instance->config;
    void *device = NULL;

    return net->connect(dev, &config, handle, comm, &device);
}

static int v9_accept(struct nccl_instance *instance, void *listener, void **comm)
{
    const struct nccl_net_v9 *net = instance->table;
    void *device = NULL;

    return net->accept(listener, comm, &device);
}

static int v9_reg_mr(struct nccl_instance *instance, void *comm, void *data, size_t bytes, int type,
                     void **mem)
{
    const struct nccl_net_v9 *net = instance->table;

    return net->reg_mr(comm, data, bytes, type, mem);
}

static int v9_isend(struct nccl_instance *instance, void *comm, void *data, size_t bytes, int tag,
                    void *mem, void **request)
{
    const struct nccl_net_v9 *net = instance->table;

    return net->isend(comm, data, bytes, tag, mem, request);
}

static int v10_isend(struct nccl_instance *instance, void *comm, void *data, size_t bytes, int tag,
                     void *mem, void **request)
{
    const struct nccl_net_v10 *net = instance->table;

    return net->isend(comm, data, bytes, tag, mem, NULL, request);
}

static int v9_irecv(struct nccl_instance *instance, void *comm, struct nccl_parts *parts,
                    void **request)
{
    const struct nccl_net_v9 *net = instance->table;

    return net->irecv(comm, parts->count, parts->data, parts->bytes, parts->tags, parts->mems,
                      request);
}

static int v10_irecv(struct nccl_instance *instance, void *comm, struct nccl_parts *parts,
                     void **request)
{
    const struct nccl_net_v10 *net = instance->table;
    void *profiles[XCCL_NET_MAX_RECVS] = {NULL};

    return net->irecv(comm, parts->count, parts->data, parts->bytes, parts->tags, parts->mems,
                      profiles, request);
}

static int v9_merge(struct nccl_instance *instance, const int *devs, int count, int *dev)
{
    const struct nccl_net_v9 *net = instance->table;
    struct nccl_net_vprops_v9 members = {.ndevs = count};

    if (!net->make_vdevice || count > 4)
        return xcclInvalidUsage;
    for (int i = 0; i < count; i++)
        members.devs[i] = devs[i];
    return net->make_vdevice(dev, &members);
}

const struct nccl_ops nccl_ops_v9 = {
    .version = 9,
    .requests = NCCL_NET_REQUESTS,
    .hints = 1,
    .reg_bytes_max = SIZE_MAX,
    .init = v9_init,
    .properties = v9_properties,
    .listen = v9_listen,
    .connect = v9_connect,
    .accept = v9_accept,
    .reg_mr = v9_reg_mr,
    .isend = v9_isend,
    .irecv = v9_irecv,
    .merge = v9_merge,
};

const struct nccl_ops nccl_ops_v10 = {
    .version = 10,
    .requests = NCCL_NET_REQUESTS,
    .hints = 1,
    .reg_bytes_max = SIZE_MAX,
    .init = v10_init,
    .properties = v9_properties,
    .listen = v9_listen,
    .connect = v10_connect,
    .accept = v9_accept,
    .reg_mr = v9_reg_mr,
    .isend = v10_isend,
    .irecv = v10_irecv,
    .merge = v9_merge,
};

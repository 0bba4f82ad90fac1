/* SPDX-License-Identifier: BSD-3-Clause */
/* NCCL's network contract, versions 11 and 12: init and finalize once a communicator, with a
 * context that listen and connect take; the traffic class moved to init. The two tables are one
 * layout; version 12's properties have room for 8 members, a rail and a plane.
 * Thread: as the contract says. */
#include "plugin/nccl_adapter_int.h"

static int v11_init(struct nccl_instance *instance)
{
    const struct nccl_net_v11 *net = instance->table;

    /* config lives as long as the instance, so a plugin may keep the pointer. */
    return net->init(&instance->ctx, instance->comm_id, &instance->config, nccl_logger_take,
                     nccl_profiler_idle);
}

static int v11_finalize(struct nccl_instance *instance)
{
    const struct nccl_net_v11 *net = instance->table;

    return net->finalize(instance->ctx);
}

static int v11_properties(struct nccl_instance *instance, int dev, struct nccl_net_props_v12 *props)
{
    const struct nccl_net_v11 *net = instance->table;
    struct nccl_net_props_v11 told = {.max_recvs = 1};
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

static int v12_properties(struct nccl_instance *instance, int dev, struct nccl_net_props_v12 *props)
{
    const struct nccl_net_v11 *net = instance->table;

    return net->get_properties(dev, props);
}

static int v11_listen(struct nccl_instance *instance, int dev, void *handle, void **comm)
{
    const struct nccl_net_v11 *net = instance->table;

    return net->listen(instance->ctx, dev, handle, comm);
}

static int v11_connect(struct nccl_instance *instance, int dev, void *handle, void **comm)
{
    const struct nccl_net_v11 *net = instance->table;
    void *device = NULL;

    return net->connect(instance->ctx, dev, handle, comm, &device);
}

static int v11_accept(struct nccl_instance *instance, void *listener, void **comm)
{
    const struct nccl_net_v11 *net = instance->table;
    void *device = NULL;

    return net->accept(listener, comm, &device);
}

static int v11_reg_mr(struct nccl_instance *instance, void *comm, void *data, size_t bytes,
                      int type, void **mem)
{
    const struct nccl_net_v11 *net = instance->table;

    return net->reg_mr(comm, data, bytes, type, mem);
}

static int v11_isend(struct nccl_instance *instance, void *comm, void *data, size_t bytes, int tag,
                     void *mem, void **request)
{
    const struct nccl_net_v11 *net = instance->table;

    return net->isend(comm, data, bytes, tag, mem, NULL, request);
}

static int v11_irecv(struct nccl_instance *instance, void *comm, struct nccl_parts *parts,
                     void **request)
{
    const struct nccl_net_v11 *net = instance->table;
    void *profiles[XCCL_NET_MAX_RECVS] = {NULL};

    return net->irecv(comm, parts->count, parts->data, parts->bytes, parts->tags, parts->mems,
                      profiles, request);
}

static int v11_merge(struct nccl_instance *instance, const int *devs, int count, int *dev)
{
    const struct nccl_net_v11 *net = instance->table;
    struct nccl_net_vprops_v9 members = {.ndevs = count};

    if (!net->make_vdevice || count > 4)
        return xcclInvalidUsage;
    for (int i = 0; i < count; i++)
        members.devs[i] = devs[i];
    return net->make_vdevice(dev, &members);
}

static int v12_merge(struct nccl_instance *instance, const int *devs, int count, int *dev)
{
    const struct nccl_net_v11 *net = instance->table;
    struct nccl_net_vprops_v12 members = {.ndevs = count};

    if (!net->make_vdevice)
        return xcclInvalidUsage;
    for (int i = 0; i < count; i++)
        members.devs[i] = devs[i];
    return net->make_vdevice(dev, &members);
}

const struct nccl_ops nccl_ops_v11 = {
    .version = 11,
    .requests = NCCL_NET_REQUESTS,
    .hints = 1,
    .reg_bytes_max = SIZE_MAX,
    .init = v11_init,
    .finalize = v11_finalize,
    .properties = v11_properties,
    .listen = v11_listen,
    .connect = v11_connect,
    .accept = v11_accept,
    .reg_mr = v11_reg_mr,
    .isend = v11_isend,
    .irecv = v11_irecv,
    .merge = v11_merge,
};

const struct nccl_ops nccl_ops_v12 = {
    .version = 12,
    .requests = NCCL_NET_REQUESTS,
    .hints = 1,
    .reg_bytes_max = SIZE_MAX,
    .init = v11_init,
    .finalize = v11_finalize,
    .properties = v12_properties,
    .listen = v11_listen,
    .connect = v11_connect,
    .accept = v11_accept,
    .reg_mr = v11_reg_mr,
    .isend = v11_isend,
    .irecv = v11_irecv,
    .merge = v12_merge,
};

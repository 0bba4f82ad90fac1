/* SPDX-License-Identifier: BSD-3-Clause */
/* NCCL's network contract, versions 7 and 8: connect and accept have a place for an offload
 * device's handle, which host devices leave NULL; version 8 registers more than 2 GiB and tells
 * whether a registration serves all comms. The rest of the two tables is alike.
 * Thread: as the contract says. */
#include "plugin/nccl_adapter_int.h"

#include <limits.h>

/* So one set of functions serves both but for regMr and getProperties. */
static_assert(sizeof(struct nccl_net_v7) == sizeof(struct nccl_net_v8), "one layout");
static_assert(offsetof(struct nccl_net_v7, irecv) == offsetof(struct nccl_net_v8, irecv),
              "one layout");

static int v7_init(struct nccl_instance *instance)
{
    const struct nccl_net_v7 *net = instance->table;

    return net->init(nccl_logger_take);
}

static int v7_properties(struct nccl_instance *instance, int dev, struct nccl_net_props_v12 *props)
{
    const struct nccl_net_v7 *net = instance->table;
    struct nccl_net_props_v7 told = {.max_recvs = 1};
    int result = net->get_properties(dev, &told);

    props->name = told.name;
    props->pci_path = told.pci_path;
    props->guid = told.guid;
    props->ptr_support = told.ptr_support;
    props->speed = told.speed;
    props->port = told.port;
    props->latency = told.latency;
    props->max_comms = told.max_comms;
    props->max_recvs = told.max_recvs;
    props->device_type = told.device_type;
    return result;
}

static int v8_properties(struct nccl_instance *instance, int dev, struct nccl_net_props_v12 *props)
{
    const struct nccl_net_v8 *net = instance->table;
    struct nccl_net_props_v8 told = {.max_recvs = 1};
    int result = net->get_properties(dev, &told);

    props->name = told.name;
    props->pci_path = told.pci_path;
    props->guid = told.guid;
    props->ptr_support = told.ptr_support;
    props->reg_is_global = told.reg_is_global;
    props->speed = told.speed;
    props->port = told.port;
    props->latency = told.latency;
    props->max_comms = told.max_comms;
    props->max_recvs = told.max_recvs;
    props->device_type = told.device_type;
    return result;
}

static int v7_listen(struct nccl_instance *instance, int dev, void *handle, void **comm)
{
    const struct nccl_net_v7 *net = instance->table;

    return net->listen(dev, handle, comm);
}

static int v7_connect(struct nccl_instance *instance, int dev, void *handle, void **comm)
{
    const struct nccl_net_v7 *net = instance->table;
    void *device = NULL;

    return net->connect(dev, handle, comm, &device);
}

static int v7_accept(struct nccl_instance *instance, void *listener, void **comm)
{
    const struct nccl_net_v7 *net = instance->table;
    void *device = NULL;

    return net->accept(listener, comm, &device);
}

static int v7_reg_mr(struct nccl_instance *instance, void *comm, void *data, size_t bytes, int type,
                     void **mem)
{
    const struct nccl_net_v7 *net = instance->table;

    return net->reg_mr(comm, data, (int)bytes, type, mem);
}

static int v8_reg_mr(struct nccl_instance *instance, void *comm, void *data, size_t bytes, int type,
                     void **mem)
{
    const struct nccl_net_v8 *net = instance->table;

    return net->reg_mr(comm, data, bytes, type, mem);
}

static int v7_isend(struct nccl_instance *instance, void *comm, void *data, size_t bytes, int tag,
                    void *mem, void **request)
{
    const struct nccl_net_v7 *net = instance->table;

    return net->isend(comm, data, (int)bytes, tag, mem, request);
}

static int v7_irecv(struct nccl_instance *instance, void *comm, struct nccl_parts *parts,
                    void **request)
{
    const struct nccl_net_v7 *net = instance->table;
    int sizes[XCCL_NET_MAX_RECVS];

    for (int i = 0; i < parts->count; i++)
        sizes[i] = (int)parts->bytes[i];
    return net->irecv(comm, parts->count, parts->data, sizes, parts->tags, parts->mems, request);
}

const struct nccl_ops nccl_ops_v7 = {
    .version = 7,
    .requests = NCCL_NET_REQUESTS,
    .reg_bytes_max = INT_MAX,
    .init = v7_init,
    .properties = v7_properties,
    .listen = v7_listen,
    .connect = v7_connect,
    .accept = v7_accept,
    .reg_mr = v7_reg_mr,
    .isend = v7_isend,
    .irecv = v7_irecv,
};

const struct nccl_ops nccl_ops_v8 = {
    .version = 8,
    .requests = NCCL_NET_REQUESTS,
    .reg_bytes_max = SIZE_MAX,
    .init = v7_init,
    .properties = v8_properties,
    .listen = v7_listen,
    .connect = v7_connect,
    .accept = v7_accept,
    .reg_mr = v8_reg_mr,
    .isend = v7_isend,
    .irecv = v7_irecv,
};

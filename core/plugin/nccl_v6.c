/* SPDX-License-Identifier: BSD-3-Clause */
/* NCCL's network contract, version 6: int sizes everywhere, no device handles, 8 requests a comm.
 * Our contract promises 32; the adapter says "busy" at 8, which callers take as a full wire.
 * Thread: as the contract says. */
#include "plugin/nccl_adapter_int.h"

#include <limits.h>

static int v6_init(struct nccl_instance *instance)
{
    const struct nccl_net_v6 *net = instance->table;

    return net->init(nccl_logger_take);
}

static int v6_properties(struct nccl_instance *instance, int dev, struct nccl_net_props_v12 *props)
{
    const struct nccl_net_v6 *net = instance->table;
    struct nccl_net_props_v6 told = {.max_recvs = 1};
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
    return result;
}

static int v6_listen(struct nccl_instance *instance, int dev, void *handle, void **comm)
{
    const struct nccl_net_v6 *net = instance->table;

    return net->listen(dev, handle, comm);
}

static int v6_connect(struct nccl_instance *instance, int dev, void *handle, void **comm)
{
    const struct nccl_net_v6 *net = instance->table;

    return net->connect(dev, handle, comm);
}

static int v6_accept(struct nccl_instance *instance, void *listener, void **comm)
{
    const struct nccl_net_v6 *net = instance->table;

    return net->accept(listener, comm);
}

static int v6_reg_mr(struct nccl_instance *instance, void *comm, void *data, size_t bytes, int type,
                     void **mem)
{
    const struct nccl_net_v6 *net = instance->table;

    return net->reg_mr(comm, data, (int)bytes, type, mem);
}

static int v6_isend(struct nccl_instance *instance, void *comm, void *data, size_t bytes, int tag,
                    void *mem, void **request)
{
    const struct nccl_net_v6 *net = instance->table;

    return net->isend(comm, data, (int)bytes, tag, mem, request);
}

static int v6_irecv(struct nccl_instance *instance, void *comm, struct nccl_parts *parts,
                    void **request)
{
    const struct nccl_net_v6 *net = instance->table;
    int sizes[XCCL_NET_MAX_RECVS];

    for (int i = 0; i < parts->count; i++)
        sizes[i] = (int)parts->bytes[i];
    return net->irecv(comm, parts->count, parts->data, sizes, parts->tags, parts->mems, request);
}

const struct nccl_ops nccl_ops_v6 = {
    .version = 6,
    .requests = NCCL_NET_REQUESTS_V6,
    .reg_bytes_max = INT_MAX,
    .init = v6_init,
    .properties = v6_properties,
    .listen = v6_listen,
    .connect = v6_connect,
    .accept = v6_accept,
    .reg_mr = v6_reg_mr,
    .isend = v6_isend,
    .irecv = v6_irecv,
};

/* SPDX-License-Identifier: BSD-3-Clause */
/* Init: which device of its plugin each connection uses. The rule is plugin/net_device.h's; here
 * are the facts it asks for. What kinds of devices a rank has travels in the row of comm_nets.c;
 * whether two ranks are in one network namespace follows from what they say of themselves, unless
 * shared memory, which would have proved it, did not come about between them: machines that were
 * restored from one image may look alike.
 *
 * Thread: the joining one. */
#include "base/log.h"
#include "base/param.h"
#include "join/join_int.h"

xcclResult_t xccl_comm_devices_ask(struct xcclComm *comm)
{
    struct xccl_net_device devices[XCCL_NET_DEVICES_MAX];
    int count = 0;

    for (int i = 0; i < comm->net_count; i++) {
        xcclResult_t rc = xccl_net_devices_ask(comm->nets[i], devices, &count);

        if (rc)
            return rc;
        xccl_net_devices_first(devices, count, comm->nets[i]->use);
    }
    return xcclSuccess;
}

static int same_place(const struct xcclComm *comm, int peer)
{
    uint64_t ours = comm->peers[comm->rank].netns_hash, theirs = comm->peers[peer].netns_hash;

    return ours != 0 && ours == theirs && !xccl_comm_may_share(comm, comm->rank, peer);
}

static xcclResult_t fail_unreached(const struct xcclComm *comm, int peer, uint32_t our_kinds)
{
    int lacks = our_kinds & 1u << XCCL_NET_FAR ? peer : comm->rank;
    char name[128];

    xccl_comm_name_rank(comm, peer, name, sizeof name);
    return xccl_fail(
        xcclInvalidUsage, 0, "begin XCCL_NET_PLUGIN with a plugin that reaches other hosts",
        "rank %d on host %s cannot reach %s by network plugin %s: the devices of rank %d work only "
        "inside its own host and network namespace",
        comm->rank, comm->peers[comm->rank].host, name, xccl_comm_net(comm, peer)->wire_id, lacks);
}

/* Sets the kind for each peer, and in users how many peers a plugin's kinds have. */
static xcclResult_t choose_kinds(struct xcclComm *comm, const struct xccl_net_row *rows,
                                 int users[XCCL_NETS_MAX][XCCL_NET_KINDS])
{
    for (int i = 0; i < comm->nranks; i++) {
        const struct xccl_net *net = xccl_comm_net(comm, i);
        enum xccl_net_kind kind;
        uint32_t kinds;
        int at;

        if (xccl_comm_is_local(comm, i))
            continue;
        kinds = xccl_net_kinds(net->use);
        at = xccl_net_row_find(&rows[i], net->wire_id);
        kind = xccl_net_kind_for(kinds, at < 0 ? 0 : rows[i].kinds[at], same_place(comm, i));
        if (kind == XCCL_NET_NO_KIND)
            return fail_unreached(comm, i, kinds);
        comm->net_kind[i] = (uint8_t)kind;
        users[comm->net_idx[i]][kind]++;
    }
    return xcclSuccess;
}

/* Makes one FAR device of several, as far as the setting asks for it and it can be. */
static xcclResult_t merge_rails(struct xccl_net *net)
{
    int want = (int)xccl_param_int(XCCL_P_NET_RAILS), have, merged = XCCL_NET_NO_DEVICE;
    int numbers[XCCL_NET_MAX_MEMBERS], count = 0;
    struct xccl_net_device devices[XCCL_NET_DEVICES_MAX];
    const char *why;
    xcclResult_t rc;

    if (want < 2)
        return xcclSuccess;
    rc = xccl_net_devices_ask(net, devices, &count);
    if (rc)
        return rc;
    have = xccl_net_rails(devices, count, want, numbers);
    if (have < want)
        xccl_log(
            XCCL_LOG_INFO,
            "XCCL_NET_RAILS is %d, but network plugin %s has only %d suitable device%s and uses %s",
            want, net->wire_id, have, have == 1 ? "" : "s", have == 1 ? "it" : "them");
    if (have < 2)
        return xcclSuccess;
    xccl_net_enter(net->watch, net->position, XCCL_NET_MERGE);
    rc = net->calls.mergeDevices(net->ctx, numbers, have, &merged);
    xccl_net_leave(net->watch);
    if (!rc)
        return xccl_net_device_ask(net, merged, &net->use[XCCL_NET_FAR]);
    why = net->calls.lastError(net->ctx);
    xccl_log(XCCL_LOG_INFO,
             "XCCL_NET_RAILS is %d, but network plugin %s cannot merge its devices (%.200s) and "
             "uses only device %s",
             want, net->wire_id, why && *why ? why : "it does not say why",
             net->use[XCCL_NET_FAR].name);
    return xcclSuccess;
}

/* What is in use, and for how many peers. A kind without any is forgotten. */
static void tell_use(struct xccl_net *net, const int users[XCCL_NET_KINDS])
{
    for (int kind = 0; kind < XCCL_NET_KINDS; kind++) {
        struct xccl_net_device *device = &net->use[kind];
        const char *plural = users[kind] == 1 ? "" : "s";

        if (!users[kind])
            *device = (struct xccl_net_device){.number = XCCL_NET_NO_DEVICE};
        else if (device->member_count > 1)
            xccl_log(XCCL_LOG_INFO,
                     "network plugin %s: device %s, which merges %d devices, for %d rank%s",
                     net->wire_id, device->name, device->member_count, users[kind], plural);
        else
            xccl_log(XCCL_LOG_INFO, "network plugin %s: device %s for %d rank%s", net->wire_id,
                     device->name, users[kind], plural);
    }
}

xcclResult_t xccl_comm_devices_choose(struct xcclComm *comm, const struct xccl_net_row *rows)
{
    int users[XCCL_NETS_MAX][XCCL_NET_KINDS] = {{0}};
    xcclResult_t rc = choose_kinds(comm, rows, users);

    for (int i = 0; i < comm->net_count && !rc; i++) {
        if (users[i][XCCL_NET_FAR])
            rc = merge_rails(comm->nets[i]);
        if (!rc)
            tell_use(comm->nets[i], users[i]);
    }
    return rc;
}

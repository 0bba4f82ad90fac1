/* SPDX-License-Identifier: BSD-3-Clause */
/* Init: which device of its plugin each connection uses. The rules are plugin/net_device.h's and
 * topo/card_share.h's; here are the facts they ask for. What kinds of devices a rank has, and how
 * far its cards are, travels in the row of comm_nets.c; whether two ranks are in one network
 * namespace follows from what they say of themselves, unless shared memory, which would have proved
 * it, did not come about between them: machines that were restored from one image may look alike.
 *
 * Thread: the joining one. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/param.h"
#include "base/sysfs.h"
#include "comm/device_ops.h"
#include "join/join_int.h"

/* ---- before the choice of a plugin ---- */

/* Where this rank is: at its device, or on its cores. */
static void find_place(const struct xcclComm *comm, struct xccl_card_place *place_out)
{
    uint64_t cores[XCCL_CORE_WORDS];
    int node;

    memset(place_out, 0, sizeof *place_out);
    comm->ops->card(comm, place_out->path, sizeof place_out->path);
    if (place_out->path[0]) {
        node = xccl_sysfs_node(place_out->path);
        place_out->nodes = node >= 0 && node < 64 ? 1ull << node : 0;
        return;
    }
    xccl_os_core_set(cores);
    place_out->nodes = xccl_sysfs_nodes(cores);
}

/* A plugin's cards, as this rank sees them. */
static void view_cards(struct xccl_net *net, const struct xccl_net_device *devices, int count,
                       const struct xccl_card_place *place)
{
    int at[XCCL_CARDS_MAX], each = (int)xccl_param_int(XCCL_P_NET_RAILS);
    struct xccl_card_view *view = &net->view;

    view->names = XCCL_HASH_START;
    view->count = xccl_net_devices_cards(devices, count, each, at);
    for (int i = 0; i < view->count; i++) {
        const struct xccl_net_device *card = &devices[at[i]];
        int node = card->path ? xccl_sysfs_node(card->path) : -1;

        net->cards[i] = card->number;
        view->distance[i] = (uint8_t)xccl_card_distance(place, card->path, node);
        view->names = xccl_hash_bytes(view->names, card->name, strlen(card->name) + 1);
    }
}

xcclResult_t xccl_comm_devices_ask(struct xcclComm *comm)
{
    struct xccl_net_device devices[XCCL_NET_DEVICES_MAX];
    struct xccl_card_place place;
    int count = 0;

    find_place(comm, &place);
    for (int i = 0; i < comm->net_count; i++) {
        xcclResult_t rc = xccl_net_devices_ask(comm->nets[i], devices, &count);

        if (rc)
            return rc;
        xccl_net_devices_first(devices, count, comm->nets[i]->use);
        view_cards(comm->nets[i], devices, count, &place);
    }
    return xcclSuccess;
}

/* ---- after it ---- */

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

/* ---- cards ---- */

/* The ranks of this host that see the same cards of a plugin share them out. */
struct crew {
    const struct xccl_card_view **views;
    int *ranks;
    int count, self; /* self: this rank's place */
    int (*cards)[XCCL_NET_MAX_MEMBERS]; /* of each, positions in the view */
    int *card_counts;
};

static void crew_free(struct crew *crew)
{
    xccl_free(crew->views);
    xccl_free(crew->ranks);
    xccl_free(crew->cards);
    xccl_free(crew->card_counts);
}

static int crew_make(const struct xcclComm *comm, const struct xccl_net *net,
                     const struct xccl_net_row *rows, struct crew *crew)
{
    size_t n = (size_t)comm->nranks;

    *crew = (struct crew){.views = xccl_calloc(n, sizeof(struct xccl_card_view *)),
                          .ranks = xccl_calloc(n, sizeof(int)),
                          .cards = xccl_calloc(n, sizeof *crew->cards),
                          .card_counts = xccl_calloc(n, sizeof(int))};
    if (!crew->views || !crew->ranks || !crew->cards || !crew->card_counts)
        return 0;
    for (int i = 0; i < comm->nranks; i++) {
        int at = xccl_net_row_find(&rows[i], net->wire_id);
        const struct xccl_card_view *view = at < 0 ? NULL : &rows[i].views[at];

        if (i == comm->rank) {
            crew->self = crew->count;
            view = &net->view;
        } else if (!view || comm->peers[i].host_hash != comm->peers[comm->rank].host_hash ||
                   view->names != net->view.names || view->count != net->view.count) {
            continue;
        }
        crew->ranks[crew->count] = i;
        crew->views[crew->count++] = view;
    }
    return xccl_card_share(crew->views, crew->count, (int)xccl_param_int(XCCL_P_NET_RAILS),
                           crew->cards, crew->card_counts);
}

/* The text of a rank's cards: "eth0" or "eth0+eth1". */
static void cards_text(struct xccl_net *net, const int *cards, int count, char *text_out,
                       size_t bytes)
{
    size_t used = 0;

    text_out[0] = 0;
    for (int i = 0; i < count && used < bytes; i++) {
        struct xccl_net_device device = {.name = "?"};

        (void)xccl_net_device_ask(net, net->cards[cards[i]], &device);
        used += (size_t)snprintf(text_out + used, bytes - used, "%s%.40s", i ? "+" : "",
                                 device.name);
    }
}

static int same_cards(const struct crew *crew, int a, int b)
{
    return crew->card_counts[a] == crew->card_counts[b] &&
           memcmp(crew->cards[a], crew->cards[b],
                  (size_t)crew->card_counts[a] * sizeof crew->cards[a][0]) == 0;
}

/* "0,4 on eth0; 1,5 on eth1": all ranks with the same cards together. */
static void tell_crew(const struct xcclComm *comm, struct xccl_net *net, const struct crew *crew)
{
    char text[512] = "", names[200];
    size_t used = 0;

    for (int i = 0; i < crew->count && used < sizeof text; i++) {
        int first = 1, seen = 0;

        for (int k = 0; k < i; k++)
            seen |= same_cards(crew, k, i);
        if (seen)
            continue;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s", used ? "; " : "");
        for (int k = i; k < crew->count && used < sizeof text; k++) {
            if (!same_cards(crew, k, i))
                continue;
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%d", first ? "" : ",",
                                     crew->ranks[k]);
            first = 0;
        }
        cards_text(net, crew->cards[i], crew->card_counts[i], names, sizeof names);
        if (used < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used, " on %s", names);
    }
    xccl_log(XCCL_LOG_INFO, "network plugin %s: %d cards of host %s are shared out to ranks: %s",
             net->wire_id, net->view.count, comm->peers[comm->rank].host, text);
}

/* Makes one device of as many of these cards as the plugin will; those behind are left out. */
static xcclResult_t merge(struct xccl_net *net, const int *cards, int count)
{
    int numbers[XCCL_NET_MAX_MEMBERS], merged = XCCL_NET_NO_DEVICE, told = 0;
    const char *why;

    for (int i = 0; i < count; i++)
        numbers[i] = net->cards[cards[i]];
    for (int have = count; have > 1; have--) {
        xcclResult_t rc;

        xccl_net_enter(net->watch, net->position, XCCL_NET_MERGE);
        rc = net->calls.mergeDevices(net->ctx, numbers, have, &merged);
        xccl_net_leave(net->watch);
        if (!rc)
            return xccl_net_device_ask(net, merged, &net->use[XCCL_NET_FAR]);
        why = net->calls.lastError(net->ctx);
        if (!told++)
            xccl_log(XCCL_LOG_INFO,
                     "network plugin %s cannot merge %d devices (%.200s) and uses fewer",
                     net->wire_id, have, why && *why ? why : "it does not say why");
    }
    return xcclSuccess;
}

/* The FAR device: this rank's cards. */
static xcclResult_t choose_cards(struct xcclComm *comm, struct xccl_net *net,
                                 const struct xccl_net_row *rows)
{
    int want = (int)xccl_param_int(XCCL_P_NET_RAILS), have = net->view.count;
    struct crew crew;
    xcclResult_t rc = xcclSystemError;

    if (have < 1)
        return xcclSuccess;
    if (have < want)
        xccl_log(
            XCCL_LOG_INFO,
            "XCCL_NET_RAILS is %d, but network plugin %s has only %d suitable device%s and uses %s",
            want, net->wire_id, have, have == 1 ? "" : "s", have == 1 ? "it" : "them");
    if (crew_make(comm, net, rows, &crew)) {
        const int *own = crew.cards[crew.self];

        if (crew.self == 0 && have > 1)
            tell_crew(comm, net, &crew);
        rc = xccl_net_device_ask(net, net->cards[own[0]], &net->use[XCCL_NET_FAR]);
        if (!rc)
            rc = merge(net, own, crew.card_counts[crew.self]);
    }
    crew_free(&crew);
    return rc;
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
            rc = choose_cards(comm, comm->nets[i], rows);
        if (!rc)
            tell_use(comm->nets[i], users[i]);
    }
    return rc;
}

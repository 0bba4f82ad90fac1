/* SPDX-License-Identifier: BSD-3-Clause */
/* Init: which network plugin a communicator uses, and a look from outside at who does not come back
 * from one. Every rank that has a remote peer opens all plugins of its list and tells what it has;
 * one pure function of that table chooses for all, and the rest is closed again. Only when no
 * plugin is common to all is one chosen for each pair, and that is said.
 *
 * The watch: each second the service thread looks whether the communicator's thread is still inside
 * the same call of a plugin. Looks are counted, not time: a process that was stopped has not been
 * stuck. Thread: the joining one, the watch's timer the service thread. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/param.h"
#include "base/wire.h"
#include "comm/device_ops.h"
#include "join/join_int.h"
#include "plugin/net_default.h"

#define VIEW_WIRE_BYTES (8 + 4 + XCCL_CARDS_MAX)
#define ROW_WIRE_BYTES  (4 + XCCL_NETS_MAX * (XCCL_WIRE_ID_BYTES + 12 + VIEW_WIRE_BYTES))
#define LOOK_NS         XCCL_NS_PER_S
#define LOOKS_MAX       5 /* the same call at so many looks: it does not come back */

/* ---- what each rank has ---- */

static void put_row(const struct xcclComm *comm, uint8_t *part)
{
    struct xccl_wire wire = xccl_wire_over(part, ROW_WIRE_BYTES);

    xccl_wire_put_u32(&wire, (uint32_t)comm->net_count);
    for (int i = 0; i < comm->net_count; i++) {
        xccl_wire_put(&wire, comm->nets[i]->wire_id, XCCL_WIRE_ID_BYTES);
        xccl_wire_put_u64(&wire, comm->nets[i]->build);
        xccl_wire_put_u32(&wire, xccl_net_kinds(comm->nets[i]->use));
        xccl_wire_put_u64(&wire, comm->nets[i]->view.names);
        xccl_wire_put_u32(&wire, (uint32_t)comm->nets[i]->view.count);
        xccl_wire_put(&wire, comm->nets[i]->view.distance, XCCL_CARDS_MAX);
    }
}

static void get_view(struct xccl_wire *wire, struct xccl_card_view *view)
{
    uint32_t count;

    view->names = xccl_wire_get_u64(wire);
    count = xccl_wire_get_u32(wire);
    view->count = count <= XCCL_CARDS_MAX ? (int)count : 0;
    xccl_wire_get(wire, view->distance, XCCL_CARDS_MAX);
}

static void get_row(const struct xccl_init *init, int rank, struct xccl_net_row *row)
{
    struct xccl_wire wire = xccl_wire_over(init->parts + (size_t)rank * ROW_WIRE_BYTES,
                                           ROW_WIRE_BYTES);
    uint32_t count = xccl_wire_get_u32(&wire);

    row->count = count <= XCCL_NETS_MAX ? (int)count : 0;
    row->needs = row->count > 0;
    for (int i = 0; i < row->count; i++) {
        xccl_wire_get(&wire, row->wire_id[i], XCCL_WIRE_ID_BYTES);
        row->wire_id[i][XCCL_WIRE_ID_BYTES - 1] = 0;
        row->build[i] = xccl_wire_get_u64(&wire);
        row->kinds[i] = xccl_wire_get_u32(&wire);
        get_view(&wire, &row->views[i]);
    }
}

xcclResult_t xccl_init_nets(struct xccl_init *init, enum xccl_init_state *state_out)
{
    struct xcclComm *comm = init->comm;
    struct xccl_net_open_args args = {.rank = comm->rank,
                                      .nranks = comm->nranks,
                                      .comm_name = "",
                                      .traffic_class = -1,
                                      .watch = &comm->watch};
    char met[XCCL_ADDR_TEXT_BYTES];
    struct xccl_addr met_addr;
    uint8_t *own;
    xcclResult_t rc;

    *state_out = XCCL_INIT_DONE;
    if (!xccl_comm_any_remote(comm)) /* then no rank has one */
        return xcclSuccess;
    own = xccl_init_parts(init, ROW_WIRE_BYTES);
    if (!own)
        return xcclSystemError;
    memcpy(&args.comm_id, comm->id, sizeof args.comm_id);
    xccl_bootstrap_met_addr(comm->boot, &met_addr);
    xccl_addr_format_host(&met_addr, met);
    args.met_address = met[0] ? met : NULL;
    rc = xccl_net_open_list(comm->net_list, &args, comm->nets, XCCL_NETS_MAX, &comm->net_count);
    if (!rc)
        rc = xccl_comm_devices_ask(comm);
    if (rc)
        return rc;
    /* All ranks have one kind of device, so both ends of a link do the same. */
    for (int i = 0; i < comm->net_count; i++)
        comm->nets[i]->counts = comm->nets[i]->is_nccl && !comm->ops->offer_bytes;
    put_row(comm, own);
    return xccl_init_gather(init);
}

void xccl_comm_nets_close(struct xcclComm *comm)
{
    for (int i = 0; i < comm->net_count; i++)
        xccl_net_close(comm->nets[i]);
    comm->net_count = 0;
    xccl_free(comm->net_idx);
    xccl_free(comm->net_kind);
    comm->net_idx = comm->net_kind = NULL;
}

/* ---- the choice ---- */

static int rows_equal(const struct xccl_net_row *a, const struct xccl_net_row *b)
{
    if (a->needs != b->needs || a->count != b->count)
        return 0;
    for (int i = 0; i < a->count; i++)
        if (strcmp(a->wire_id[i], b->wire_id[i]) != 0)
            return 0;
    return 1;
}

/* The table of who has what, neighbours that have the same in one line. Rank 0 speaks for all. */
static void show_table(const struct xcclComm *comm, const struct xccl_net_row *rows)
{
    if (comm->rank != 0)
        return;
    xccl_log(XCCL_LOG_WARN, "%-12s %-24s %s", "ranks", "first one's host", "network plugins");
    for (int first = 0, end; first < comm->nranks; first = end) {
        char ranks[32], list[XCCL_NETS_MAX * (XCCL_WIRE_ID_BYTES + 1)] = "";
        size_t used = 0;

        for (end = first + 1; end < comm->nranks && rows_equal(&rows[first], &rows[end]); end++)
            ;
        for (int i = 0; i < rows[first].count; i++)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? " " : "",
                                     rows[first].wire_id[i]);
        snprintf(ranks, sizeof ranks, end - first > 1 ? "%d-%d" : "%d", first, end - 1);
        xccl_log(XCCL_LOG_WARN, "%-12s %-24.24s %s", ranks, comm->peers[first].host,
                 rows[first].needs ? list : "(shares memory with all its peers)");
    }
}

/* Keeps the plugins with these marks, and says which one serves which peer. */
static void keep(struct xcclComm *comm, const int *peer_at, const int *used)
{
    int place[XCCL_NETS_MAX] = {0}, kept = 0;

    for (int i = 0; i < comm->net_count; i++) {
        struct xccl_net *net = comm->nets[i];

        place[i] = kept;
        if (used[i])
            comm->nets[kept++] = net;
        else
            xccl_net_close(net);
    }
    comm->net_count = kept;
    for (int i = 0; i < comm->nranks; i++)
        comm->net_idx[i] = (uint8_t)(peer_at[i] >= 0 ? place[peer_at[i]] : 0);
}

static xcclResult_t fail_pair(const struct xcclComm *comm, const struct xccl_net_row *rows, int a,
                              int b)
{
    return xccl_fail(xcclInvalidUsage, 0,
                     "set the same XCCL_NET_PLUGIN and install the same plugins on all hosts",
                     "rank %d on host %s and rank %d on host %s have no network plugin in common: "
                     "%s and %s",
                     a, comm->peers[a].host, b, comm->peers[b].host, rows[a].wire_id[0],
                     rows[b].wire_id[0]);
}

/* No plugin is common to all: each pair for itself. Whether two others of one host share memory is
 * their business; those of different hosts concern all. */
static xcclResult_t choose_pairs(struct xcclComm *comm, const struct xccl_net_row *rows,
                                 int *peer_at)
{
    const struct xccl_net_row *own = &rows[comm->rank];

    show_table(comm, rows);
    for (int a = 0; a < comm->nranks; a++) {
        for (int b = a + 1; b < comm->nranks; b++) {
            int hosts_differ = comm->peers[a].host_hash != comm->peers[b].host_hash;
            const char *wire_id = xccl_net_choose_pair(rows, a, b);

            if (!wire_id && hosts_differ && rows[a].needs && rows[b].needs)
                return fail_pair(comm, rows, a, b);
        }
        if (a != comm->rank && !xccl_comm_is_local(comm, a)) {
            const char *wire_id = xccl_net_choose_pair(rows, comm->rank, a);

            if (!wire_id)
                return fail_pair(comm, rows, comm->rank, a);
            peer_at[a] = xccl_net_row_find(own, wire_id);
        }
    }
    if (comm->rank == 0)
        xccl_log(XCCL_LOG_WARN, "no network plugin is common to all ranks: each pair of ranks uses "
                                "the first one that both have");
    return xcclSuccess;
}

static void warn_of_builds(const struct xcclComm *comm, const struct xccl_net_row *rows,
                           const char *wire_id)
{
    int a, b;

    if (comm->rank == 0 && xccl_net_builds_differ(rows, comm->nranks, wire_id, &a, &b))
        xccl_log(XCCL_LOG_WARN,
                 "ranks %d and %d have different builds of network plugin %s; install the same one",
                 a, b, wire_id);
}

static xcclResult_t choose(struct xccl_init *init, struct xccl_net_row *rows, int *peer_at)
{
    struct xcclComm *comm = init->comm;
    int used[XCCL_NETS_MAX] = {0};
    const char *wire_id;
    xcclResult_t rc = xcclSuccess;

    for (int i = 0; i < comm->nranks; i++)
        get_row(init, i, &rows[i]);
    wire_id = xccl_net_choose(rows, comm->nranks);
    for (int i = 0; i < comm->nranks; i++)
        peer_at[i] = wire_id ? xccl_net_row_find(&rows[comm->rank], wire_id) : -1;
    if (wire_id)
        warn_of_builds(comm, rows, wire_id);
    else
        rc = choose_pairs(comm, rows, peer_at);
    if (rc)
        return rc;
    for (int i = 0; i < comm->nranks; i++)
        if (peer_at[i] >= 0)
            used[peer_at[i]] = 1;
    keep(comm, peer_at, used);
    return xccl_comm_devices_choose(comm, rows);
}

xcclResult_t xccl_init_choose(struct xccl_init *init, enum xccl_init_state *state_out)
{
    size_t n = (size_t)init->comm->nranks;
    struct xccl_net_row *rows;
    int *peer_at;
    xcclResult_t rc = xcclSystemError;

    *state_out = XCCL_INIT_DONE;
    if (!init->comm->net_count)
        return xcclSuccess;
    rows = xccl_calloc(n, sizeof *rows);
    peer_at = xccl_calloc(n, sizeof *peer_at);
    init->comm->net_idx = xccl_calloc(n, 1);
    init->comm->net_kind = xccl_calloc(n, 1);
    if (rows && peer_at && init->comm->net_idx && init->comm->net_kind)
        rc = choose(init, rows, peer_at);
    xccl_free(peer_at);
    xccl_free(rows);
    return rc;
}

/* ---- the watch ---- */

/* By the position in the list; the instances may be at their end. */
static void name_plugin(const struct xcclComm *comm, int position,
                        char name_out[XCCL_NET_ITEM_BYTES])
{
    const char *at = xccl_net_list_items(comm->net_list);

    snprintf(name_out, XCCL_NET_ITEM_BYTES, "%s", "(unknown)");
    for (int i = 0; i <= position && *at; i++)
        if (!xccl_net_list_item(&at, name_out))
            break;
}

static void tell_stuck(struct xcclComm *comm, uint64_t call)
{
    enum xccl_net_entry entry = (enum xccl_net_entry)(call & 0xff);
    struct xccl_verdict verdict = xccl_comm_verdict(comm, XCCL_TROUBLE_PLUGIN_STUCK, comm->rank);
    char name[XCCL_NET_ITEM_BYTES];
    int seconds = LOOKS_MAX * (int)(LOOK_NS / XCCL_NS_PER_S);

    name_plugin(comm, (int)(call >> 8 & 0xff), name);
    snprintf(verdict.plugin, sizeof verdict.plugin, "%.63s", name);
    xccl_verdict_set_why(&verdict, xccl_net_entry_name(entry));
    verdict.seconds = (uint64_t)seconds;
    if (entry >= XCCL_NET_ISEND)
        (void)xccl_comm_raise(comm, &verdict);
    else
        xccl_log(XCCL_LOG_WARN,
                 "rank %d: network plugin %.64s has not returned from %s for %d s; if it never "
                 "does, use another plugin",
                 comm->rank, name, xccl_net_entry_name(entry), seconds);
}

/* The service thread. */
static void on_look(struct xccl_source *source, uint64_t now_ns)
{
    struct xcclComm *comm = source->owner;
    uint64_t call = xccl_net_watch_look(&comm->watch);

    xccl_log_set_rank(comm->rank);
    if (call == XCCL_NET_OUTSIDE || call != comm->watch_seen)
        comm->watch_looks = 0;
    else if (++comm->watch_looks == LOOKS_MAX)
        tell_stuck(comm, call);
    comm->watch_seen = call;
    xccl_loop_set_timer(source, now_ns + LOOK_NS);
    xccl_log_set_rank(-1);
}

xcclResult_t xccl_init_watch(struct xccl_init *init, enum xccl_init_state *state_out)
{
    struct xcclComm *comm = init->comm;

    *state_out = XCCL_INIT_DONE;
    if (!xccl_comm_any_remote(comm))
        return xcclSuccess;
    comm->watch_source = (struct xccl_source){
        .fd = -1, .timer_ns = xccl_clock_ns() + LOOK_NS, .on_timer = on_look, .owner = comm};
    return xccl_loop_add(comm->loop, &comm->watch_source);
}

void xccl_comm_watch_stop(struct xcclComm *comm)
{
    xccl_loop_remove(&comm->watch_source);
}

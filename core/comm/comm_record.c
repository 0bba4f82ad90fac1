/* SPDX-License-Identifier: BSD-3-Clause */
/* What is rare of a communicator's telling: who it is, its links and plans, groups of sends and
 * receives, failures. Thread: see the header. */
#include "comm/comm_record.h"

#include <stdio.h>

#include "base/param.h"
#include "xccl_net.h"

static int is_near(const struct xcclComm *comm, int rank)
{
    return comm->nodes[rank] == comm->nodes[comm->rank];
}

static struct xccl_record_who who_is(const struct xcclComm *comm)
{
    return (struct xccl_record_who){.rank = comm->rank,
                                    .nranks = comm->nranks,
                                    .id = comm->id,
                                    .name = comm->name,
                                    .labels = comm->labels};
}

void xccl_comm_record_open(struct xcclComm *comm)
{
    struct xccl_record_who who = who_is(comm);

    comm->record = xccl_record_open(&who);
}

void xccl_comm_record_describe(struct xcclComm *comm)
{
    struct xccl_record_who who = who_is(comm);

    xccl_record_describe(comm->record, &who);
}

/* Protection of payload: with the setting every plugin in use gives it, others are refused. */
static const char *protection_text(void)
{
    switch (xccl_param_int(XCCL_P_NET_ENCRYPT)) {
    case XCCL_NET_ENCRYPT_MAC:
        return " (authenticated)";
    case XCCL_NET_ENCRYPT_FULL:
        return " (encrypted)";
    default:
        return "";
    }
}

/* Writes the plugins and cards by which other hosts are reached. */
static void cards_text(const struct xcclComm *comm, char text_out[XCCL_RECORD_CARDS_BYTES])
{
    size_t used = 0;

    text_out[0] = 0;
    for (int i = 0; i < comm->net_count && used < XCCL_RECORD_CARDS_BYTES; i++) {
        const struct xccl_net *net = comm->nets[i];

        if (net->use[XCCL_NET_FAR].number != XCCL_NET_NO_DEVICE)
            used += (size_t)snprintf(text_out + used, XCCL_RECORD_CARDS_BYTES - used, "%s%s %s%s",
                                     used ? ", " : "", net->calls.name, net->use[XCCL_NET_FAR].name,
                                     protection_text());
    }
}

/* "0,2,4 | 1,3,5", cut off with "..". */
static void order_text(const struct xcclComm *comm, char text_out[XCCL_RECORD_ORDER_BYTES])
{
    size_t used = 0, room = XCCL_RECORD_ORDER_BYTES - 4; /* for the dots */

    text_out[0] = 0;
    for (int i = 0; i < comm->nranks && comm->order; i++) {
        int rank = comm->order[i];
        int is_same_host = i > 0 && comm->nodes[rank] == comm->nodes[comm->order[i - 1]];
        char word[16];
        size_t bytes = (size_t)snprintf(word, sizeof word, "%s%d",
                                        i == 0         ? ""
                                        : is_same_host ? ","
                                                       : " | ",
                                        rank);

        if (used + bytes >= room) {
            memcpy(text_out + used, " ..", 4);
            return;
        }
        memcpy(text_out + used, word, bytes + 1);
        used += bytes;
    }
}

void xccl_comm_record_ready(struct xcclComm *comm)
{
    char cards[XCCL_RECORD_CARDS_BYTES], order[XCCL_RECORD_ORDER_BYTES];
    int near_ranks = 0;

    for (int i = 0; i < comm->nranks; i++)
        near_ranks += is_near(comm, i);
    cards_text(comm, cards);
    order_text(comm, order);
    xccl_record_ready(comm->record, near_ranks, cards, order);
}

void xccl_comm_record_link(struct xcclComm *comm, const struct xccl_schedule_conn *conn)
{
    uint64_t far = !is_near(comm, conn->peer), sends = conn->dir == XCCL_CONN_SEND;

    xccl_record_note(comm->record, XCCL_RECORD_LINKED,
                     (uint64_t)conn->peer << 32 | far << 1 | sends);
}

/* What the program hands over or gets in a call, as `xccl perf` counts it: the vector, or the
 * blocks of all ranks. */
static uint64_t bytes_of(const struct xcclComm *comm, const struct xccl_call *call)
{
    uint64_t blocks = (uint64_t)comm->nranks;

    if (call->sizes)
        return call->sizes->total;
    if (call->coll == XCCL_COLL_ALL_REDUCE || call->coll == XCCL_COLL_BROADCAST ||
        call->coll == XCCL_COLL_REDUCE)
        blocks = 1;
    return call->count * xccl_type_bytes(call->type) * blocks;
}

static struct xccl_record_call told_call(const struct xcclComm *comm, const struct xccl_call *call)
{
    uint32_t op = call->op < xcclNumOps ? (uint32_t)call->op : xcclNumOps;
    struct xccl_record_call told = {.count = call->count, .bytes = bytes_of(comm, call)};

    told.word = xccl_record_call_word(0, (uint32_t)call->coll, (uint32_t)call->type, op,
                                      (uint32_t)call->root);
    told.word |= call->sizes ? XCCL_RECORD_SIZED : 0;
    return told;
}

void xccl_comm_record_call(struct xcclComm *comm)
{
    struct xccl_record_call told = told_call(comm, &comm->call);
    struct xccl_record *record = comm->record;

    if (!record)
        return;
    if (comm->connects && !comm->run.plan) /* nothing is moved */
        told.bytes = 0;
    xccl_record_set_call(record, &told);
    /* In this order: for a device's call no plan is set, and the planner is another thread's. */
    if (comm->run.plan && record->plans != comm->planner.plans_made)
        xccl_comm_record_plan(comm);
}

void xccl_comm_record_begin_apart(struct xcclComm *comm, const struct xccl_call *call)
{
    struct xccl_record_call told = told_call(comm, call);

    if (comm->record)
        xccl_record_begin_apart(comm->record, &told);
}

void xccl_comm_record_end_apart(struct xcclComm *comm, const struct xccl_call *call,
                                const uint64_t sent[2], const uint64_t received[2])
{
    struct xccl_record_call told = told_call(comm, call);

    if (comm->record)
        xccl_record_end_apart(comm->record, &told, sent, received);
}

void xccl_comm_record_resume(struct xcclComm *comm)
{
    struct xccl_record *record = comm->record;

    if (!record)
        return;
    xccl_comm_record_call(comm);
    record->call.word |= comm->seq << 32;
    xccl_record_enter(record, record->call.word, record->call.bytes);
}

void xccl_comm_record_algo(struct xcclComm *comm, const struct xccl_call *call,
                           const struct xccl_plan *plan)
{
    xccl_record_set_algo(comm->record, (unsigned)call->coll, plan->binding->schedule->name,
                         bytes_of(comm, call));
}

void xccl_comm_record_plan(struct xcclComm *comm)
{
    if (!comm->record)
        return;
    comm->record->plans = comm->planner.plans_made;
    if (comm->run.plan)
        xccl_comm_record_algo(comm, &comm->call, comm->run.plan);
    xccl_record_note(comm->record, XCCL_RECORD_PLANNED, comm->run.plan ? comm->run.plan->tiles : 0);
}

void xccl_comm_record_p2p(struct xcclComm *comm, const struct xccl_p2p_item *items, uint32_t count)
{
    if (!comm->record)
        return;
    xccl_record_p2p_clear(comm->record);
    for (uint32_t i = 0; i < count; i++) {
        int where = items[i].peer == comm->rank ? 0 : is_near(comm, items[i].peer) ? 1 : 2;

        xccl_record_p2p_add(comm->record, items[i].sends, where, items[i].bytes);
    }
}

void xccl_comm_record_begin_p2p(struct xcclComm *comm)
{
    if (comm->record)
        xccl_record_p2p_begin(comm->record);
}

__attribute__((noinline)) void xccl_comm_record_end_other(struct xcclComm *comm, xcclResult_t rc)
{
    static const uint64_t none[2];

    if (rc)
        xccl_record_fail(comm->record, rc);
    else if (comm->run.kind->is_messages)
        xccl_record_p2p_end(comm->record);
    else
        xccl_record_end(comm->record, none, none);
}

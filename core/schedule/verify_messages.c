/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups of sends and receives: which chunk of which rank's IN comes to which chunk of another
 * one's OUT. Both ends name their peers in order, and between two ranks first goes to first. What
 * one end names and the other does not is refused. Thread: any. */
#include "schedule/verify_int.h"

#include <stdlib.h>

#include "base/alloc.h"

/* A send or a receive; sorted by sender, receiver and order. */
struct half {
    uint16_t from, to;
    uint32_t place; /* in messages */
};

static int by_pair(const void *a_, const void *b_)
{
    const struct half *a = a_, *b = b_;
    uint64_t of_a = (uint64_t)a->from << 48 | (uint64_t)a->to << 32 | a->place;
    uint64_t of_b = (uint64_t)b->from << 48 | (uint64_t)b->to << 32 | b->place;

    return of_a < of_b ? -1 : of_a > of_b;
}

/* Both lists of all ranks; and what each send is. */
static void list_halves(struct xccl_verify_net *net, struct half *sends, struct half *receives)
{
    uint32_t nsends = 0, nreceives = 0, place = 0;

    for (uint32_t r = 0; r < net->nranks; r++) {
        const struct xccl_schedule *schedule = net->schedules[r];

        net->ranks[r].message0 = place;
        for (uint32_t i = 0; i < schedule->nin; i++, place++) {
            net->messages[place] = nsends;
            sends[nsends++] = (struct half){(uint16_t)r, schedule->peers[i], place};
        }
        for (uint32_t i = schedule->nin; i < (uint32_t)schedule->nin + schedule->nout; i++)
            receives[nreceives++] = (struct half){schedule->peers[i], (uint16_t)r, place++};
    }
}

static void refuse(const struct half *half, int is_send, struct xccl_verdict *verdict)
{
    if (is_send)
        xccl_verdict_refuse(verdict, XCCL_VERDICT_SHAPE, half->from,
                            "rank %u sends a message to rank %u, which does not receive it",
                            half->from, half->to);
    else
        xccl_verdict_refuse(verdict, XCCL_VERDICT_SHAPE, half->to,
                            "rank %u receives a message from rank %u, which does not send it",
                            half->to, half->from);
}

static void match(struct xccl_verify_net *net, const struct half *sends, uint32_t nsends,
                  const struct half *receives, uint32_t nreceives, struct xccl_verdict *verdict)
{
    for (uint32_t i = 0; i < nsends || i < nreceives; i++) {
        uint32_t of_send = i < nsends ? (uint32_t)sends[i].from << 16 | sends[i].to : UINT32_MAX;
        uint32_t of_receive = i < nreceives ? (uint32_t)receives[i].from << 16 | receives[i].to
                                            : UINT32_MAX;

        if (of_send != of_receive) {
            refuse(of_send < of_receive ? &sends[i] : &receives[i], of_send < of_receive, verdict);
            return;
        }
        net->messages[receives[i].place] = net->messages[sends[i].place];
    }
}

xcclResult_t xccl_verify_messages(struct xccl_verify_net *net, struct xccl_verdict *verdict)
{
    size_t nsends = 0, nreceives = 0;
    struct half *halves;

    for (uint32_t r = 0; r < net->nranks; r++) {
        nsends += net->schedules[r]->nin;
        nreceives += net->schedules[r]->nout;
    }
    halves = xccl_calloc(nsends + nreceives + 1, sizeof(*halves));
    net->messages = xccl_calloc(nsends + nreceives + 1, sizeof(*net->messages));
    if (!halves || !net->messages) {
        xccl_free(halves);
        return xcclSystemError;
    }
    list_halves(net, halves, halves + nsends);
    qsort(halves, nsends, sizeof(*halves), by_pair);
    qsort(halves + nsends, nreceives, sizeof(*halves), by_pair);
    match(net, halves, (uint32_t)nsends, halves + nsends, (uint32_t)nreceives, verdict);
    xccl_free(halves);
    return xcclSuccess;
}

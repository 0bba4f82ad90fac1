/* SPDX-License-Identifier: BSD-3-Clause */
/* Judges what this rank's kernel of sends and receives waits for, whether that can come: peers that
 * have left, ranks that wait for each other in a circle, messages of another size, the deadline. A
 * kernel that does not have to wait says nothing; one that waits is asked, and each of its blocks
 * answers. The rank stands only where all blocks that have not ended wait.
 *
 * Thread: that of CUDA communicators, by the communicator's lock; stand: the user's, which has the
 * communicator while it makes links. */
#include <string.h>

#include "call/comm_p2p.h"
#include "cuda/cuda_int.h"
#include "exec/streams.h"

/* --- asking --- */

void xccl_cuda_ask(struct xccl_cuda_comm *cuda)
{
    struct xccl_cuda_stand *stand = &cuda->stand;

    stand->ask = stand->ask % (UINT32_MAX >> 1) + 1;
    /* Relaxed: answers repeat the number. */
    __atomic_store_n(&cuda->status->ask, stand->ask, __ATOMIC_RELAXED);
}

void xccl_cuda_ask_no_more(struct xccl_cuda_comm *cuda)
{
    if (!__atomic_load_n(&cuda->status->ask, __ATOMIC_RELAXED))
        return;
    __atomic_store_n(&cuda->status->ask, 0, __ATOMIC_RELAXED);
    cuda->stand.is_sure = 0;
    cuda->stand.left = XCCL_NOBODY;
}

/* Messages of the pair and direction before it, where some may be on their way: over networks, in
 * slots. */
static uint32_t number_of(const struct xcclComm *comm, int peer, int sends)
{
    const struct xccl_stream *stream = xccl_cuda_p2p_stream(comm, peer, sends);

    return stream && stream->net ? xccl_net_link_count(stream->net) : 0;
}

static void add_item(const struct xcclComm *comm, const struct xccl_dev_stand *from, int sends,
                     struct xccl_cuda_stand *stand)
{
    uint32_t peer = from->peers[sends];
    struct xccl_still_item item = {
        .peer = (int16_t)peer, .sends = (uint8_t)sends, .bytes = from->bytes[sends]};

    if (peer >= (uint32_t)comm->nranks)
        return;
    for (uint32_t i = 0; i < stand->count; i++)
        if (stand->items[i].peer == item.peer && stand->items[i].sends == item.sends)
            return;
    if (stand->count == XCCL_STILL_ITEMS)
        return;
    item.number = number_of(comm, item.peer, sends);
    stand->items[stand->count++] = item;
}

/* Ranks do not believe that those are all messages where there are so many. */
static void add_unknown(struct xccl_cuda_stand *stand)
{
    while (stand->count < XCCL_STILL_ITEMS)
        stand->items[stand->count++] = (struct xccl_still_item){.peer = XCCL_NOBODY};
}

/* Gathers the answers to the last question. */
static void read_answers(const struct xccl_cuda_comm *cuda, struct xccl_cuda_stand *stand)
{
    uint32_t answered = 0, ended = 0, blocks = 0, more = 0;

    for (uint32_t i = 0; i < XCCL_DEV_STANDS; i++) {
        struct xccl_dev_stand *at = &cuda->status->stands[i], answer;
        /* Acquire: the rest of it. Pairs with the kernel's release. */
        uint32_t ask = __atomic_load_n(&at->ask, __ATOMIC_ACQUIRE);

        if (ask >> 1 != stand->ask)
            continue;
        answer = *at;
        answered++;
        more |= ask & 1;
        blocks = answer.blocks >> 16;
        ended = (answer.blocks & 0xffff) > ended ? answer.blocks & 0xffff : ended;
        for (int sends = 0; sends < 2; sends++)
            add_item(cuda->comm, &answer, sends, stand);
    }
    stand->is_sure = answered && blocks <= XCCL_DEV_STANDS && answered + ended >= blocks;
    if (more)
        add_unknown(stand);
}

static int is_like(const struct xccl_cuda_stand *a, const struct xccl_cuda_stand *b)
{
    return a->launch == b->launch && a->is_sure == b->is_sure && a->count == b->count &&
           memcmp(a->items, b->items, sizeof a->items) == 0;
}

int xccl_cuda_look_at_messages(struct xccl_cuda_comm *cuda, uint64_t now_ns)
{
    struct xccl_cuda_stand now = {.ask = cuda->stand.ask,
                                  .launch = xccl_cuda_word(&cuda->status->messages_done),
                                  .since_ns = cuda->stand.since_ns,
                                  .left = cuda->stand.left};
    int moved;

    read_answers(cuda, &now);
    moved = !is_like(&now, &cuda->stand);
    if (moved || !now.is_sure) {
        now.since_ns = now_ns;
        now.left = XCCL_NOBODY;
    }
    cuda->stand = now;
    xccl_cuda_ask(cuda);
    return moved;
}

/* --- judging --- */

static void stand_in_kernel(struct xcclComm *comm, struct xccl_still *own)
{
    const struct xccl_cuda_stand *stand = &comm->cuda->stand;

    own->kind = XCCL_STILL_MESSAGES;
    own->needs = XCCL_NEEDS_NOBODY;
    /* A call that makes links has a number of its own there. */
    own->call.seq = atomic_load_explicit(&comm->board->word, memory_order_relaxed) >> 32;
    own->item_count = stand->count;
    memcpy(own->items, stand->items, sizeof stand->items);
}

void xccl_cuda_stand(struct xcclComm *comm, struct xccl_still *own)
{
    struct xccl_cuda_comm *cuda = comm->cuda;

    if (!cuda || xccl_cuda_word(&cuda->status->messages_begun) ==
                     xccl_cuda_word(&cuda->status->messages_done))
        return;
    (void)xccl_cuda_look_at_messages(cuda, xccl_clock_ns());
    if (cuda->stand.is_sure)
        stand_in_kernel(comm, own);
}

/* A peer whose message is waited for has left, since the last look: what it had sent is here. */
static xcclResult_t check_left(struct xcclComm *comm)
{
    struct xccl_cuda_stand *stand = &comm->cuda->stand;

    for (uint32_t i = 0; i < stand->count; i++) {
        const struct xccl_still_item *item = &stand->items[i];
        struct xccl_verdict verdict = xccl_comm_verdict(comm, XCCL_TROUBLE_PEER_LEFT, item->peer);

        if (item->peer == XCCL_NOBODY || !xccl_comm_peer_has_left(comm, item->peer))
            continue;
        verdict.mine.kind = item->sends ? XCCL_ACT_SEND : XCCL_ACT_RECV;
        verdict.mine.peer = item->peer;
        if (stand->left == item->peer)
            return xccl_comm_raise(comm, &verdict);
        stand->left = item->peer;
        return xcclSuccess;
    }
    return xcclSuccess;
}

static xcclResult_t fail_timeout(struct xcclComm *comm)
{
    const struct xccl_cuda_stand *stand = &comm->cuda->stand;

    if (stand->count)
        return xccl_comm_fail_messages(comm, stand->items, stand->count);
    return xccl_comm_fail(comm, xcclTimeout,
                          "rank %d has waited %llu s for messages from another rank; check what "
                          "the other ranks do, or raise XCCL_TIMEOUT_S",
                          comm->rank, (unsigned long long)(comm->timeout_ns / XCCL_NS_PER_S));
}

xcclResult_t xccl_cuda_check_messages(struct xcclComm *comm, uint64_t now_ns, uint64_t since_ns)
{
    const struct xccl_cuda_stand *stand = &comm->cuda->stand;
    xcclResult_t rc = xccl_comm_error(comm);

    if (!rc && stand->is_sure)
        rc = check_left(comm);
    if (!rc && stand->is_sure)
        rc = xccl_standstill_check(comm, now_ns - stand->since_ns, stand_in_kernel);
    return rc || now_ns - since_ns <= comm->timeout_ns ? rc : fail_timeout(comm);
}

xcclResult_t xccl_cuda_fail_size(struct xcclComm *comm, int peer)
{
    const struct xccl_dev_status *status = comm->cuda->status;
    struct xccl_verdict verdict = xccl_comm_verdict(comm, XCCL_TROUBLE_MESSAGE_DIFFERS, peer);
    uint64_t came = xccl_cuda_word(&status->bytes_came);

    verdict.mine = (struct xccl_act){
        .kind = XCCL_ACT_RECV, .peer = peer, .bytes = xccl_cuda_word(&status->bytes_wanted)};
    verdict.theirs = (struct xccl_act){
        .kind = XCCL_ACT_SEND, .peer = comm->rank, .bytes = came >> 1, .is_least = !(came & 1)};
    return xccl_comm_raise(comm, &verdict);
}

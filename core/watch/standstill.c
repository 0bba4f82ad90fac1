/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds circles of ranks that wait for each other. A frame: i32 rank, u32 kind, epoch, tick,
 * splits, needs, number of items, talks; then the call (calls_wire.h); then the items: u16 peer, u8
 * sends, u8 connects, u32 number, u64 bytes; then a u32 for each rank: messages sent there.
 *
 * Rank u waits for rank v
 *   in a call     that needs v, when v has not begun it and is in a call before it, in sends and
 *                 receives, or in a split
 *   in a receive  from v, when v has sent no more than u has received, and is not about to send
 *   in a send     to v, when v is not about to receive
 *   in a split    when v has not begun that, and so in a talk, in which a device's links are made
 *
 * A circle of such ranks never ends: the first one to go on would need the next one to do so. */
#include "watch/standstill.h"

#include <string.h>

#include "base/alloc.h"
#include "base/wire.h"
#include "comm/comm_where.h"
#include "watch/calls_wire.h"

#define BEGIN_NS    (150 * XCCL_NS_PER_MS) /* waits that are shorter are not told */
#define TICK_NS     (100 * XCCL_NS_PER_MS)
#define TICK_RANKS  16 /* for each so many ranks one TICK_NS more */
#define TICKS_MAX   10 /* then it is silent until others tell something new */
#define TICKS_SURE  2
#define FAR_SEND_NS (4000 * XCCL_NS_PER_MS) /* a network may be slow to take a message */

struct other {
    struct xccl_still still;
    uint64_t first_ns, taken_ns; /* when it said so first, and last */
};

struct xccl_standstill {
    int rank, nranks;
    uint64_t tick_ns;
    struct xccl_still own;
    uint64_t waited_ns, told_ns; /* of the wait at hand */
    uint64_t first_ns; /* when this rank first said that it stands there */
    uint32_t said; /* ticks of it since something new came */
    uint32_t news_seen;
    _Atomic uint32_t news; /* changes of others */
    struct other others[]; /* by the loop's lock */
};

xcclResult_t xccl_standstill_create(const struct xcclComm *comm, struct xccl_standstill **out)
{
    struct xccl_standstill *still;

    *out = NULL;
    if (comm->nranks < 2 || comm->nranks > XCCL_STILL_RANKS)
        return xcclSuccess;
    still = xccl_calloc(1, sizeof *still + (size_t)comm->nranks * sizeof still->others[0]);
    if (!still)
        return xcclSystemError;
    still->own.epoch = 1;
    still->rank = comm->rank;
    still->nranks = comm->nranks;
    still->tick_ns = TICK_NS * (1 + (uint64_t)comm->nranks / TICK_RANKS);
    *out = still;
    return xcclSuccess;
}

void xccl_standstill_free(struct xccl_standstill *still)
{
    xccl_free(still);
}

/* --- frames --- */

static size_t encode(const struct xccl_standstill *still, uint8_t *body)
{
    const struct xccl_still *own = &still->own;
    struct xccl_wire wire = xccl_wire_over(body, XCCL_STILL_BYTES);
    const uint32_t head[] = {(uint32_t)still->rank, own->kind,  own->epoch,      own->tick,
                             own->splits,           own->needs, own->item_count, own->talks};

    for (size_t i = 0; i < sizeof head / sizeof head[0]; i++)
        xccl_wire_put_u32(&wire, head[i]);
    xccl_call_put(&wire, &own->call);
    for (uint32_t i = 0; i < XCCL_STILL_ITEMS; i++) {
        const struct xccl_still_item *item = &own->items[i];

        xccl_wire_put_u32(&wire,
                          (uint32_t)item->peer << 16 | (uint32_t)item->sends << 8 | item->connects);
        xccl_wire_put_u32(&wire, item->number);
        xccl_wire_put_u64(&wire, item->bytes);
    }
    for (int i = 0; i < still->nranks; i++)
        xccl_wire_put_u32(&wire, own->sent[i]);
    return XCCL_STILL_BYTES - (size_t)(XCCL_STILL_RANKS - still->nranks) * 4;
}

static void decode(struct xccl_wire *wire, int nranks, struct xccl_still *out)
{
    out->kind = xccl_wire_get_u32(wire);
    out->epoch = xccl_wire_get_u32(wire);
    out->tick = xccl_wire_get_u32(wire);
    out->splits = xccl_wire_get_u32(wire);
    out->needs = xccl_wire_get_u32(wire);
    out->item_count = xccl_wire_get_u32(wire);
    out->talks = xccl_wire_get_u32(wire);
    out->call = xccl_call_get(wire);
    for (uint32_t i = 0; i < XCCL_STILL_ITEMS; i++) {
        uint32_t head = xccl_wire_get_u32(wire);

        out->items[i] = (struct xccl_still_item){.peer = (int16_t)(head >> 16),
                                                 .sends = head >> 8 & 1,
                                                 .connects = head & 1,
                                                 .number = xccl_wire_get_u32(wire)};
        out->items[i].bytes = xccl_wire_get_u64(wire);
    }
    for (int i = 0; i < nranks; i++)
        out->sent[i] = xccl_wire_get_u32(wire);
}

static int take(uint8_t *body, size_t bytes, int nranks, struct xccl_still *told_out)
{
    struct xccl_wire wire = xccl_wire_over(body, bytes);
    int rank = (int32_t)xccl_wire_get_u32(&wire);

    if (rank < 0 || rank >= nranks || nranks > XCCL_STILL_RANKS)
        return XCCL_NOBODY;
    decode(&wire, nranks, told_out);
    return wire.bad || xccl_wire_left(&wire) || told_out->item_count > XCCL_STILL_ITEMS
               ? XCCL_NOBODY
               : rank;
}

int xccl_standstill_rank_of(uint8_t *body, size_t bytes, int nranks)
{
    struct xccl_still told = {0};

    return take(body, bytes, nranks, &told);
}

int xccl_standstill_take(struct xccl_standstill *still, uint8_t *body, size_t bytes, int *rank_out)
{
    struct xccl_still told = {0};
    int rank = still ? take(body, bytes, still->nranks, &told) : XCCL_NOBODY;
    struct other *other;

    if (rank == XCCL_NOBODY)
        return 0;
    *rank_out = rank;
    if (rank == still->rank)
        return 1;
    other = &still->others[rank];
    other->taken_ns = xccl_clock_ns();
    if (told.epoch != other->still.epoch) {
        other->first_ns = other->taken_ns;
        atomic_fetch_add_explicit(&still->news, 1, memory_order_relaxed);
    }
    other->still = told;
    return 1;
}

/* --- who waits for whom --- */

static const struct xccl_still *still_of(const struct xccl_standstill *still, int rank)
{
    return rank == still->rank ? &still->own : &still->others[rank].still;
}

/* 1: a rank has said twice that it stands there, and stood there at that time. A split is said
 * once: it lasts. */
static int is_sure(const struct xccl_standstill *still, int rank, uint64_t at_ns)
{
    const struct xccl_still *of = still_of(still, rank);
    const struct other *other = &still->others[rank];

    if (of->kind == XCCL_STILL_NONE || of->kind == XCCL_STILL_SPLIT)
        return of->kind == XCCL_STILL_SPLIT;
    return of->tick >= TICKS_SURE && (rank == still->rank || (other->first_ns <= at_ns + BEGIN_NS &&
                                                              other->taken_ns >= at_ns));
}

/* 1: v is about to do its part of such a message of rank u. */
static int has_part(const struct xccl_still *v, int u, const struct xccl_still_item *item)
{
    for (uint32_t i = 0; v->kind == XCCL_STILL_MESSAGES && i < v->item_count; i++)
        if (v->items[i].peer == u && (item->connects || v->items[i].sends != item->sends))
            return 1;
    /* A rank with so many messages does not name all of them. */
    return v->kind == XCCL_STILL_MESSAGES && v->item_count == XCCL_STILL_ITEMS;
}

/* 1: both share memory with this rank, and so with each other. */
static int is_near(const struct xcclComm *comm, int u, int v)
{
    return comm->shm && xccl_comm_is_local(comm, u) && xccl_comm_is_local(comm, v);
}

/* How long a rank has said that it stands there. */
static uint64_t stood_ns(const struct xccl_standstill *still, int rank)
{
    const struct other *other = &still->others[rank];

    return rank == still->rank ? still->told_ns : other->taken_ns - other->first_ns + BEGIN_NS;
}

static int message_waits(const struct xccl_standstill *still, const struct xcclComm *comm, int u,
                         int v)
{
    const struct xccl_still *of = still_of(still, u), *by = still_of(still, v);

    for (uint32_t i = 0; i < of->item_count; i++) {
        const struct xccl_still_item *item = &of->items[i];

        if (item->peer != v || has_part(by, u, item))
            continue;
        if (!item->sends && by->sent[u] != item->number)
            continue; /* on its way */
        if (item->sends && !is_near(comm, u, v) && stood_ns(still, u) < FAR_SEND_NS)
            continue;
        return 1;
    }
    return 0;
}

static int waits_for(const struct xccl_standstill *still, const struct xcclComm *comm, int u, int v)
{
    const struct xccl_still *of = still_of(still, u), *by = still_of(still, v);

    switch (of->kind) {
    case XCCL_STILL_CALL:
        if (of->needs == XCCL_NEEDS_NOBODY ||
            (of->needs == XCCL_NEEDS_ROOT && v != (int)of->call.root))
            return 0;
        return (int32_t)((uint32_t)by->call.seq - (uint32_t)of->call.seq) <
               (by->kind == XCCL_STILL_TALK);
    case XCCL_STILL_MESSAGES:
        return message_waits(still, comm, u, v);
    case XCCL_STILL_SPLIT:
        return (int32_t)(by->splits - of->splits) < 0;
    case XCCL_STILL_TALK:
        return (int32_t)(by->talks - of->talks) < 0;
    default:
        return 0;
    }
}

/* Finds the rank after this one in a circle through it of ranks that all stood at that time;
 * XCCL_NOBODY: there is none. */
static int find_circle_at(const struct xccl_standstill *still, const struct xcclComm *comm,
                          uint64_t at_ns)
{
    int first[XCCL_STILL_RANKS], queue[XCCL_STILL_RANKS], head = 0, tail = 0;

    for (int i = 0; i < XCCL_STILL_RANKS; i++)
        first[i] = XCCL_NOBODY;
    queue[tail++] = still->rank;
    while (head < tail) {
        int u = queue[head++];

        for (int v = 0; v < still->nranks; v++) {
            if (v == u || (v != still->rank && first[v] != XCCL_NOBODY) ||
                !is_sure(still, v, at_ns) || !waits_for(still, comm, u, v))
                continue;
            if (v == still->rank)
                return first[u];
            first[v] = u == still->rank ? v : first[u];
            queue[tail++] = v;
        }
    }
    return XCCL_NOBODY;
}

/* Looks at the time when this rank began to stand, for the last one of a circle sees it then; and,
 * as words may be late, when any rank last did. */
static int find_circle(const struct xccl_standstill *still, const struct xcclComm *comm)
{
    uint64_t last_ns = still->first_ns;
    int peer = find_circle_at(still, comm, last_ns);

    for (int i = 0; i < still->nranks; i++)
        if (i != still->rank && still->others[i].first_ns > last_ns)
            last_ns = still->others[i].first_ns;
    return peer == XCCL_NOBODY && last_ns != still->first_ns ? find_circle_at(still, comm, last_ns)
                                                             : peer;
}

/* --- the own rank --- */

/* Returns what a rank says that it does; of several messages that with rank `towards`. */
static struct xccl_act act_of(const struct xccl_still *of, int towards)
{
    const struct xccl_still_item *item = &of->items[0];

    if (of->kind == XCCL_STILL_SPLIT)
        return (struct xccl_act){.kind = XCCL_ACT_SPLIT};
    if (of->kind == XCCL_STILL_CALL || of->kind == XCCL_STILL_TALK)
        return (struct xccl_act){.kind = XCCL_ACT_CALL, .call = of->call};
    for (uint32_t i = 0; i < of->item_count; i++)
        if (of->items[i].peer == towards)
            item = &of->items[i];
    if (item->connects)
        return (struct xccl_act){.kind = XCCL_ACT_CONNECT};
    return (struct xccl_act){.kind = item->sends ? XCCL_ACT_SEND : XCCL_ACT_RECV,
                             .peer = item->peer,
                             .bytes = item->bytes};
}

static xcclResult_t raise_circle(struct xcclComm *comm, const struct xccl_still *own,
                                 const struct xccl_still *their, int peer)
{
    struct xccl_verdict verdict = xccl_comm_verdict(comm, XCCL_TROUBLE_CIRCLE, peer);

    verdict.mine = act_of(own, peer);
    verdict.theirs = act_of(their, comm->rank);
    return xccl_comm_raise(comm, &verdict);
}

static uint32_t own_splits(const struct xcclComm *comm)
{
    return atomic_load_explicit(&comm->board->splits, memory_order_relaxed);
}

static void say(struct xcclComm *comm, struct xccl_standstill *still)
{
    uint8_t body[XCCL_STILL_BYTES];

    comm->tell_still(comm, body, encode(still, body));
}

/* Fills in what does not depend on the wait at hand. */
static void count(const struct xcclComm *comm, struct xccl_still *own)
{
    own->splits = own_splits(comm);
    own->talks = atomic_load_explicit(&comm->board->talks, memory_order_relaxed);
    if (comm->count_sent)
        comm->count_sent(comm, own->sent);
}

/* 1: it is where it was. */
static int stands_there(const struct xccl_still *before, const struct xccl_still *now)
{
    return before->kind == now->kind && before->item_count == now->item_count &&
           memcmp(before->items, now->items, now->item_count * sizeof now->items[0]) == 0;
}

xcclResult_t xccl_standstill_check(struct xcclComm *comm, uint64_t waited_ns, xccl_still_fill *fill)
{
    struct xccl_standstill *still = comm->still;
    uint32_t news;
    struct xccl_still their, before;
    int peer;

    if (!still)
        return xcclSuccess;
    if (waited_ns < still->waited_ns) {
        still->own.epoch++;
        still->own.tick = 0;
        still->said = 0;
        still->told_ns = 0;
    }
    still->waited_ns = waited_ns;
    if (waited_ns < BEGIN_NS || waited_ns - still->told_ns < still->tick_ns)
        return xcclSuccess;
    still->told_ns = waited_ns;
    news = atomic_load_explicit(&still->news, memory_order_relaxed);
    if (news != still->news_seen)
        still->said = 0;
    still->news_seen = news;
    before = still->own;
    fill(comm, &still->own);
    if (before.tick && !stands_there(&before, &still->own)) {
        still->own.epoch++;
        still->own.tick = 0;
        still->said = 0;
        return xcclSuccess; /* from now on */
    }
    if (!still->own.tick++)
        still->first_ns = xccl_clock_ns();
    count(comm, &still->own);
    if (still->said++ < TICKS_MAX || still->own.tick * TICK_NS < 2 * FAR_SEND_NS)
        say(comm, still);
    xccl_loop_lock(comm->loop);
    peer = still->own.tick < TICKS_SURE ? XCCL_NOBODY : find_circle(still, comm);
    if (peer != XCCL_NOBODY)
        their = *still_of(still, peer);
    xccl_loop_unlock(comm->loop);
    return peer == XCCL_NOBODY ? xcclSuccess : raise_circle(comm, &still->own, &their, peer);
}

int xccl_standstill_splitter(struct xcclComm *comm)
{
    const struct xccl_standstill *still = comm->still;
    int rank = XCCL_NOBODY;

    if (!still)
        return XCCL_NOBODY;
    xccl_loop_lock(comm->loop);
    for (int i = 0; i < still->nranks && rank == XCCL_NOBODY; i++)
        if (i != still->rank && still->others[i].still.kind == XCCL_STILL_SPLIT &&
            (int32_t)(still->others[i].still.splits - own_splits(comm)) > 0)
            rank = i;
    xccl_loop_unlock(comm->loop);
    return rank;
}

void xccl_standstill_split(struct xcclComm *comm)
{
    struct xccl_standstill *still = comm->still;

    if (!still)
        return;
    still->own.kind = XCCL_STILL_SPLIT;
    still->own.epoch++;
    still->own.tick = 0;
    still->own.item_count = 0;
    still->own.call.seq = comm->seq;
    still->waited_ns = UINT64_MAX; /* the next wait is another one */
    count(comm, &still->own);
    say(comm, still);
}

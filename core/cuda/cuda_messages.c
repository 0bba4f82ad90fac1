/* SPDX-License-Identifier: BSD-3-Clause */
/* Launches of sends and receives. The messages of a group are one work: pairs of a send and a
 * receive go side by side, ordered by distance, so that ranks with many peers meet. Those to other
 * hosts follow in a launch of their own. What a rank sends to itself is copied.
 *
 * Thread: the user's, one at a time a communicator. */
#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "call/comm_p2p_state.h"
#include "cuda/cuda_int.h"
#include "exec/streams.h"

#define FEW 32

/* The messages of one communicator, on their way to a launch. */
struct group {
    struct xccl_cuda_share share; /* first; the stream is that of the first message */
    struct xcclComm *comm;
    const struct xccl_cuda_op **ops; /* sends, then receives; of each by distance */
    uint32_t nsends, nreceives;
    uint32_t *rows; /* while they are laid out */
    struct xccl_dev_messages work;
};

static uint32_t distance(const struct xcclComm *comm, const struct xccl_cuda_op *op)
{
    uint32_t n = (uint32_t)comm->nranks, peer = (uint32_t)op->p2p.peer, rank = (uint32_t)comm->rank;

    return (op->p2p.sends ? peer + n - rank : rank + n - peer) % n;
}

/* In the order of distance; those of one peer stay as they are. */
static void add_sorted(struct group *group, const struct xccl_cuda_op *op, uint32_t first,
                       uint32_t *count)
{
    uint32_t at = first + *count;

    while (at > first && distance(group->comm, group->ops[at - 1]) > distance(group->comm, op)) {
        group->ops[at] = group->ops[at - 1];
        at--;
    }
    group->ops[at] = op;
    ++*count;
}

static int is_of(const struct xccl_cuda_op *op, const struct xcclComm *comm, int far)
{
    return op->is_p2p && op->task.comm == comm && op->p2p.peer != comm->rank &&
           xccl_comm_is_local(comm, op->p2p.peer) == !far;
}

/* Low halves of flag words: over a network as the host's, else of the size. */
static uint32_t flag_low_of(uint64_t bytes, int far)
{
    uint64_t mixed = (bytes + 1) * 0x9e3779b97f4a7c15ull;

    return far ? XCCL_STREAM_FLAG : (uint32_t)(mixed ^ mixed >> 32);
}

static xcclResult_t item_of(const struct xccl_cuda_op *op, int far, struct xccl_dev_item *item)
{
    struct xcclComm *comm = op->task.comm;
    xccl_cu_ptr link = 0;
    xcclResult_t rc = xccl_cuda_p2p_link(comm, op->p2p.peer, op->p2p.sends, far, &link);

    *item = (struct xccl_dev_item){.at = (uint64_t)(uintptr_t)op->p2p.at,
                                   .bytes = op->p2p.bytes,
                                   .link = link,
                                   .sends = (uint32_t)op->p2p.sends,
                                   .flag_low = flag_low_of(op->p2p.bytes, far)};
    return rc;
}

/* Sends to oneself, in their order: the k-th goes to the k-th receive. */
static xcclResult_t copy_own(const struct xccl_cuda_op *ops, uint32_t count,
                             const struct xccl_cuda_op *send, uint32_t number)
{
    struct xccl_cuda_comm *cuda = send->task.comm->cuda;
    xcclResult_t rc;

    for (uint32_t i = 0; i < count; i++) {
        if (!ops[i].is_p2p || ops[i].task.comm != cuda->comm || ops[i].p2p.sends ||
            ops[i].p2p.peer != cuda->comm->rank || number-- > 0)
            continue;
        if (!send->p2p.bytes || send->p2p.at == ops[i].p2p.at)
            return xcclSuccess;
        rc = xccl_cuda_enter(cuda->device);
        if (rc)
            return rc;
        rc = xccl_cuda_result(cuda->driver->copy_on_device((xccl_cu_ptr)(uintptr_t)ops[i].p2p.at,
                                                           (xccl_cu_ptr)(uintptr_t)send->p2p.at,
                                                           send->p2p.bytes, ops[i].stream),
                              "copying a message from a rank to itself");
        xccl_cuda_leave(cuda->device);
        return rc;
    }
    return xcclSuccess; /* it has been checked that there is one */
}

static xcclResult_t copy_all_own(const struct xccl_cuda_op *ops, uint32_t count,
                                 const struct xcclComm *comm)
{
    uint32_t number = 0;
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = 0; i < count && !rc; i++)
        if (ops[i].is_p2p && ops[i].task.comm == comm && ops[i].p2p.sends &&
            ops[i].p2p.peer == comm->rank)
            rc = copy_own(ops, count, &ops[i], number++);
    return rc;
}

/* Streams of a group's messages besides the first one wait for each other. */
static xcclResult_t join_streams(const struct group *group, int after)
{
    struct xccl_cuda_comm *cuda = group->comm->cuda;
    uint32_t count = group->nsends + group->nreceives;
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = 0; i < count && !rc; i++) {
        xccl_cu_stream stream = group->ops[i]->stream;

        if (stream == group->share.stream || (i && stream == group->ops[i - 1]->stream))
            continue;
        rc = xccl_cuda_result(
            cuda->driver->event_record(cuda->joins, after ? group->share.stream : stream),
            "recording an event");
        if (!rc)
            rc = xccl_cuda_result(
                cuda->driver->stream_wait(after ? stream : group->share.stream, cuda->joins, 0),
                "waiting for a stream of the group");
    }
    return rc;
}

/* Items that do not fit into a launch lie in device memory. */
static xcclResult_t place_items(struct group *group, const struct xccl_dev_item *items,
                                int capturing, struct xccl_dev_messages_launch *launch,
                                uint32_t *used)
{
    struct xccl_cuda_comm *cuda = group->comm->cuda;
    uint32_t count = group->work.nsends + group->work.nreceives;
    xccl_cu_ptr at;
    xcclResult_t rc;

    if (*used + count <= XCCL_DEV_ITEMS_MAX) {
        memcpy(&launch->items[*used], items, count * sizeof *items);
        group->work.first_item = *used;
        *used += count;
        return xcclSuccess;
    }
    rc = xccl_cuda_pool_lend(cuda, items, count * sizeof *items, capturing, &at);
    if (rc)
        return rc;
    group->work.sends = at;
    group->work.receives = at + group->work.nsends * sizeof *items;
    return xcclSuccess;
}

/* How many peers the sorted messages are for. */
static uint32_t count_peers(const struct xccl_cuda_op *const *ops, uint32_t count)
{
    uint32_t peers = 0;

    for (uint32_t i = 0; i < count; i++)
        peers += !i || ops[i]->p2p.peer != ops[i - 1]->p2p.peer;
    return peers;
}

/* Items of pair p are those at p, p + pairs and so on. All messages of a peer belong to one pair,
 * for they share a link; so some places stay empty. rows: of each pair, used so far. Returns how
 * many places there are. items NULL: counts only. */
static xcclResult_t lay_out(const struct xccl_cuda_op *const *ops, uint32_t count, int far,
                            struct xccl_dev_item *items, struct group *group, uint32_t *places_out)
{
    uint32_t pairs = group->work.pairs, pair = 0, at;
    xcclResult_t rc = xcclSuccess;

    *places_out = 0;
    memset(group->rows, 0, pairs * sizeof *group->rows);
    for (uint32_t i = 0; i < count && !rc; i++) {
        if (i && ops[i]->p2p.peer != ops[i - 1]->p2p.peer)
            pair = (pair + 1) % pairs;
        at = group->rows[pair]++ * pairs + pair;
        if (at >= *places_out)
            *places_out = at + 1;
        if (items)
            rc = item_of(ops[i], far, &items[at]);
    }
    return rc;
}

static xcclResult_t lay_out_both(struct group *group, int far, struct xccl_dev_item *items)
{
    const struct xccl_cuda_op *const *receives = group->ops + group->nsends;
    struct xccl_dev_item *behind = items ? items + group->work.nsends : NULL;
    xcclResult_t rc = lay_out(group->ops, group->nsends, far, items, group, &group->work.nsends);

    return rc ? rc
              : lay_out(receives, group->nreceives, far, behind, group, &group->work.nreceives);
}

/* How many blocks the group's messages have. */
static void set_blocks(struct group *group, int far)
{
    struct xccl_cuda_comm *cuda = group->comm->cuda;
    uint32_t to = count_peers(group->ops, group->nsends);
    uint32_t from = count_peers(group->ops + group->nsends, group->nreceives);

    group->work.channels = far ? 1 : xccl_cuda_p2p_channels(cuda);
    group->work.pairs = cuda->blocks / group->work.channels;
    if (!group->work.pairs)
        group->work.pairs = 1;
    if (group->work.pairs > (to > from ? to : from))
        group->work.pairs = to > from ? to : from;
    group->work.comm = cuda->comm_at;
    group->work.nblocks = group->work.pairs * group->work.channels;
    group->share.nblocks = group->work.nblocks;
}

/* Writes the group's messages in the form of the kernel. */
static xcclResult_t prepare(struct group *group, int far, int capturing,
                            struct xccl_dev_messages_launch *launch, uint32_t *used)
{
    struct xccl_dev_item few[FEW] = {{0}}, *items = few;
    uint32_t count;
    xcclResult_t rc;

    group->rows = xccl_calloc(group->work.pairs, sizeof *group->rows);
    if (!group->rows)
        return xcclSystemError;
    rc = lay_out_both(group, far, NULL);
    count = group->work.nsends + group->work.nreceives;
    if (!rc && count > FEW)
        items = xccl_calloc(count, sizeof *items);
    if (!rc && !items)
        rc = xcclSystemError;
    if (!rc)
        rc = lay_out_both(group, far, items);
    if (!rc)
        rc = place_items(group, items, capturing, launch, used);
    xccl_free(group->rows);
    if (items != few)
        xccl_free(items);
    return rc;
}

/* Network links learn what will go over them, before the kernel asks. */
static xcclResult_t begin_far(struct group *group)
{
    struct xcclComm *comm = group->comm;
    struct xccl_cuda_comm *cuda = comm->cuda;
    uint32_t count = group->nsends + group->nreceives;
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = 0; i < count && !rc; i++) {
        const struct xccl_p2p_item *item = &group->ops[i]->p2p;
        struct xccl_net_link *net = xccl_cuda_p2p_stream(comm, item->peer, item->sends)->net;
        uint32_t slot_bytes = xccl_net_link_view(net)->slot_bytes;
        uint32_t slots = item->bytes ? (uint32_t)((item->bytes + slot_bytes - 1) / slot_bytes) : 1;

        rc = xccl_cuda_watch_messages(cuda, net, slots);
    }
    return rc;
}

/* All that comes before the kernel. */
static xcclResult_t begin(struct group *group, int far, const struct xccl_cuda_place *place,
                          struct xccl_dev_messages_launch *launch, uint32_t *used)
{
    xcclResult_t rc = prepare(group, far, place->is_captured, launch, used);

    if (!rc)
        rc = xccl_cuda_order(group->comm->cuda, place);
    if (!rc)
        rc = join_streams(group, 0);
    if (!rc && far)
        rc = begin_far(group);
    return rc;
}

static xcclResult_t launch_with(const struct xccl_cuda_shares *shares, uint32_t first, int far)
{
    struct xccl_dev_messages_launch launch = {0};
    struct group *groups = shares->all;
    const struct xccl_cuda_share *share = &groups[first].share;
    struct xccl_cuda_device *device = share->cuda->device;
    struct xccl_cuda_batch batch = xccl_cuda_gather(shares, first);
    struct xccl_cuda_place place = {0};
    uint32_t used = 0;
    xcclResult_t rc = xccl_cuda_enter(device);

    if (rc)
        return rc;
    xccl_cuda_launch_begin(device);
    rc = xccl_cuda_check_room(device, &batch);
    if (!rc)
        rc = xccl_cuda_place_of(device, share->stream, &place);
    if (!rc && place.is_captured && far)
        rc = xccl_fail(xcclInvalidUsage, 0, "send to other hosts outside of graphs",
                       "rank %d: messages to other hosts cannot be captured in a graph",
                       groups[first].comm->rank);
    for (uint32_t i = first; i < shares->count && !rc; i++) {
        groups[i].work.block0 = groups[i].share.block0;
        if (groups[i].share.state == XCCL_CUDA_TAKEN)
            rc = begin(&groups[i], far, &place, &launch, &used);
    }
    launch.nworks = batch.works;
    if (!rc)
        rc = xccl_cuda_launch(shares, &batch, place.is_captured, &launch, launch.works,
                              &launch.far);
    for (uint32_t i = first; i < shares->count; i++) {
        if (groups[i].share.state != XCCL_CUDA_TAKEN)
            continue;
        groups[i].share.state = XCCL_CUDA_LAUNCHED;
        if (!rc)
            rc = xccl_cuda_launched(groups[i].share.cuda, &place);
        if (!rc)
            rc = join_streams(&groups[i], 1);
    }
    xccl_cuda_launch_end(device);
    xccl_cuda_leave(device);
    return rc;
}

/* The group of the communicator of ops[at], if this is its first message of that kind. */
static int collect(const struct xccl_cuda_op *ops, uint32_t count, uint32_t at, int far,
                   struct group *group)
{
    struct xcclComm *comm = ops[at].task.comm;

    for (uint32_t i = 0; i < at; i++)
        if (is_of(&ops[i], comm, far))
            return 0;
    group->comm = comm;
    group->share.cuda = comm->cuda;
    group->share.stream = ops[at].stream;
    group->share.function = xccl_cuda_device_function(comm->cuda->device, "xccl_messages");
    for (uint32_t i = at; i < count; i++)
        if (is_of(&ops[i], comm, far) && ops[i].p2p.sends)
            add_sorted(group, &ops[i], 0, &group->nsends);
    for (uint32_t i = at; i < count; i++)
        if (is_of(&ops[i], comm, far) && !ops[i].p2p.sends)
            add_sorted(group, &ops[i], group->nsends, &group->nreceives);
    return 1;
}

static xcclResult_t launch_kind(const struct xccl_cuda_op *ops, uint32_t count, int far,
                                struct group *groups, const struct xccl_cuda_op **room)
{
    struct xccl_cuda_shares shares = {.all = groups,
                                      .stride = sizeof *groups,
                                      .work_at = offsetof(struct group, work),
                                      .work_bytes = sizeof groups->work};
    uint32_t found = 0, used = 0;
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = 0; i < count; i++) {
        if (!ops[i].is_p2p || !is_of(&ops[i], ops[i].task.comm, far))
            continue;
        groups[found] = (struct group){.ops = room + used};
        if (!collect(ops, count, i, far, &groups[found]))
            continue;
        used += groups[found].nsends + groups[found].nreceives;
        set_blocks(&groups[found], far);
        found++;
    }
    shares.count = found;
    for (uint32_t i = 0; i < found; i++) {
        xcclResult_t more;

        if (groups[i].share.state != XCCL_CUDA_WAITS)
            continue;
        more = launch_with(&shares, i, far);
        if (more && !xccl_comm_error(groups[i].comm))
            more = xccl_comm_fail(groups[i].comm, more, "rank %d cannot launch messages: %.400s",
                                  groups[i].comm->rank, xccl_error_text());
        rc = rc ? rc : more;
    }
    return rc;
}

static xcclResult_t copy_own_of_all(const struct xccl_cuda_op *ops, uint32_t count)
{
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = 0; i < count && !rc; i++) {
        uint32_t first = 0;

        while (!ops[first].is_p2p || ops[first].task.comm != ops[i].task.comm)
            if (++first >= i)
                break;
        if (ops[i].is_p2p && first >= i)
            rc = copy_all_own(ops, count, ops[i].task.comm);
    }
    return rc;
}

xcclResult_t xccl_cuda_p2p_launch(const struct xccl_cuda_op *ops, uint32_t count)
{
    struct group *groups = xccl_calloc(count, sizeof *groups);
    const struct xccl_cuda_op **room = xccl_calloc(count, sizeof(void *));
    xcclResult_t rc = groups && room ? copy_own_of_all(ops, count) : xcclSystemError;

    for (int far = 0; far < 2 && !rc; far++)
        rc = launch_kind(ops, count, far, groups, room);
    xccl_free(groups);
    xccl_free(room);
    return rc;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* A call of a CUDA communicator: its plan, the plan's image in device memory, made once, and a
 * launch. All blocks of an operation must be at work at the same time, and so must those of all
 * ranks; ranks of one thread may be given the same stream. So calls of several communicators for
 * one stream go in one launch, as far as they run the same kernel: the first call of each, then the
 * second of each, and so on, each time by the communicators' ids. That is one order for all ranks,
 * and a launch has neighbours in it, so that no two ranks wait for each other's next launch.
 *
 * While a stream is captured nothing is asked of it, and memory is got in relaxed mode; what a
 * graph may replay stays until the end of the communicator.
 *
 * Thread: the user's, one at a time a communicator. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "comm/comm_record.h"
#include "cuda/cuda_int.h"
#include "exec/cuda/device_fn.h"
#include "watch/comm_verdict.h"

#define SIZED_KEPT 32u /* images of v-collectives that stay; there are too many sizes */
#define FEW        16

/* Bytes of a chunk that are worth a block more. */
static const uint32_t grains[] = {
    [XCCL_DEV_LL] = 4u << 10, [XCCL_DEV_LL128] = 16u << 10, [XCCL_DEV_SIMPLE] = 128u << 10};

static uint32_t channels_of(const struct xccl_plan *plan, const struct xccl_cuda_binding *made)
{
    size_t want = plan->chunk_bytes / grains[made->proto];

    if (plan->ends_short) /* ranks know no sizes but their own */
        return 1;
    return want < 1 ? 1 : want < made->channels ? (uint32_t)want : made->channels;
}

/* --- images --- */

static xcclResult_t fill_image(struct xccl_cuda_comm *cuda, const struct xccl_call *call,
                               const struct xccl_plan *plan, struct xccl_cuda_image *image)
{
    struct xccl_cuda_binding *made = image->cuda;
    struct xccl_device_fn fn = xccl_device_fn_of(plan, call->op);
    struct xccl_plan_image_args args = {.plan = plan,
                                        .channels = channels_of(plan, made),
                                        .link_channels = made->channels,
                                        .proto = made->proto,
                                        .fn = fn.fn,
                                        .flags = fn.flags,
                                        .id = image->number};
    struct xccl_plan_image *host;
    xcclResult_t rc = xccl_plan_image_create(&args, &host);

    if (rc)
        return rc;
    image->blocks = host->blocks;
    image->scratch_bytes = host->scratch_bytes;
    image->function = xccl_cuda_device_function(cuda->device,
                                                xccl_device_kernel(call->type, fn.flags));
    image->bytes = host->size;
    rc = xccl_cuda_pool_alloc(cuda, host->size, &image->at);
    if (!rc) {
        xccl_plan_image_relocate(host, image->at, made->table, made->signals);
        rc = xccl_cuda_upload(cuda->device, image->at, host->bytes, host->size);
    }
    xccl_plan_image_destroy(host);
    return rc;
}

static void image_free(struct xccl_cuda_comm *cuda, struct xccl_cuda_image *image)
{
    xccl_cuda_pool_free(cuda, image->at, image->bytes);
    xccl_free(image->net_messages);
    xccl_free(image);
}

static xcclResult_t keep_messages(const struct xccl_plan *plan, struct xccl_cuda_image *image)
{
    size_t count = plan->binding->net_count;

    if (!count)
        return xcclSuccess;
    image->net_messages = xccl_calloc(count, sizeof *image->net_messages);
    if (!image->net_messages)
        return xcclSystemError;
    memcpy(image->net_messages, plan->net_messages, count * sizeof *image->net_messages);
    return xcclSuccess;
}

/* All launches have ended: the images of sizes that do not come again may go. */
static void drop_sized(struct xccl_cuda_comm *cuda)
{
    struct xccl_cuda_image *gone = NULL;
    uint32_t sized = 0;
    int caught_up;

    for (uint32_t i = 0; i < cuda->image_count; i++)
        sized += cuda->images[i] && cuda->images[i]->is_sized && !cuda->images[i]->is_captured;
    if (sized < SIZED_KEPT || !xccl_cuda_is_done(cuda))
        return;
    pthread_mutex_lock(&cuda->lock);
    /* The thread may not have come so far. */
    caught_up = cuda->retired >= xccl_cuda_word(&cuda->status->done);
    for (uint32_t i = 0; i < cuda->image_count && caught_up; i++) {
        struct xccl_cuda_image *image = cuda->images[i];

        if (!image || !image->is_sized || image->is_captured || image == cuda->last)
            continue;
        cuda->images[i] = NULL;
        image->next_gone = gone;
        gone = image;
    }
    pthread_mutex_unlock(&cuda->lock);
    /* Without the lock: where there is no memory for a list of it, the driver may wait. */
    while (gone) {
        struct xccl_cuda_image *image = gone;

        gone = image->next_gone;
        image_free(cuda, image);
    }
}

/* A place in the table: an empty one, else a new one at its end. */
static xcclResult_t number_image(struct xccl_cuda_comm *cuda, struct xccl_cuda_image *image)
{
    uint32_t room = cuda->image_room ? 2 * cuda->image_room : 64;
    struct xccl_cuda_image **grown;

    for (image->number = 0; image->number < cuda->image_count; image->number++)
        if (!cuda->images[image->number])
            return xcclSuccess;
    if (cuda->image_count < cuda->image_room)
        return xcclSuccess;
    grown = xccl_calloc(room, sizeof(void *));
    if (!grown)
        return xcclSystemError;
    if (cuda->image_count)
        memcpy(grown, cuda->images, cuda->image_count * sizeof(void *));
    pthread_mutex_lock(&cuda->lock);
    xccl_free(cuda->images);
    cuda->images = grown;
    cuda->image_room = room;
    pthread_mutex_unlock(&cuda->lock);
    return xcclSuccess;
}

static xcclResult_t make_image(struct xccl_cuda_comm *cuda, const struct xccl_call *call,
                               const struct xccl_plan *plan, struct xccl_cuda_image **image_out)
{
    struct xccl_cuda_image *image;
    xcclResult_t rc;

    if (call->sizes)
        drop_sized(cuda);
    image = xccl_calloc(1, sizeof *image);
    if (!image)
        return xcclSystemError;
    image->binding = plan->binding;
    image->cuda = xccl_cuda_find(cuda, plan->binding);
    image->key[0] = plan->key[0];
    image->key[1] = plan->key[1];
    image->signature = plan->signature;
    image->traffic = plan->traffic;
    image->call = *call;
    image->call.sizes = NULL;
    image->told = xccl_comm_board_call(call, 0);
    image->is_sized = call->sizes != NULL;
    image->plan = plan;
    image->plans = cuda->comm->planner.plans_made;
    xccl_comm_record_algo(cuda->comm, call, plan);
    rc = number_image(cuda, image);
    if (!rc)
        rc = keep_messages(plan, image);
    if (!rc)
        rc = fill_image(cuda, call, plan, image);
    if (rc) {
        image_free(cuda, image);
        return rc;
    }
    pthread_mutex_lock(&cuda->lock);
    cuda->images[image->number] = image;
    if (image->number == cuda->image_count)
        cuda->image_count++;
    pthread_mutex_unlock(&cuda->lock);
    *image_out = image;
    return xcclSuccess;
}

/* Is it the image of this plan? Keys of v-collectives do not say all. */
static int is_image_of(const struct xccl_cuda_comm *cuda, const struct xccl_cuda_image *image,
                       const struct xccl_plan *plan)
{
    if (!image || image->key[0] != plan->key[0] || image->key[1] != plan->key[1] ||
        image->signature != plan->signature)
        return 0;
    return !image->is_sized ||
           (image->plan == plan && image->plans == cuda->comm->planner.plans_made);
}

static xcclResult_t find_image(struct xccl_cuda_comm *cuda, const struct xccl_call *call,
                               const struct xccl_plan *plan, struct xccl_cuda_image **image_out)
{
    struct xccl_cuda_image *image = cuda->last;

    if (is_image_of(cuda, image, plan)) {
        *image_out = image;
        return xcclSuccess;
    }
    for (uint32_t i = 0; i < cuda->image_count; i++) {
        image = cuda->images[i];
        if (!is_image_of(cuda, image, plan))
            continue;
        *image_out = image;
        return xcclSuccess;
    }
    return make_image(cuda, call, plan, image_out);
}

/* --- one call --- */

/* A call, ready to go. */
struct prepared {
    struct xccl_cuda_share share; /* first */
    struct xccl_cuda_image *image;
    struct xccl_dev_work work;
};

/* Graphs and launches at work may use the old memory. */
static xcclResult_t grow_scratch(struct xccl_cuda_comm *cuda, size_t bytes)
{
    struct xccl_cuda_spare *old;
    xccl_cu_ptr at;
    xcclResult_t rc;

    if (bytes <= cuda->scratch_bytes)
        return xcclSuccess;
    old = xccl_calloc(1, sizeof *old);
    if (!old)
        return xcclSystemError;
    rc = xccl_cuda_pool_alloc(cuda, bytes, &at);
    if (rc || !cuda->scratch) {
        xccl_free(old);
    } else {
        *old = (struct xccl_cuda_spare){cuda->kept, cuda->scratch, cuda->scratch_bytes};
        cuda->kept = old;
    }
    if (rc)
        return rc;
    cuda->scratch = at;
    cuda->scratch_bytes = xccl_cuda_pool_rounded(bytes);
    return xcclSuccess;
}

static void set_scalar(const struct xccl_cuda_comm *cuda, const struct xccl_call *call,
                       const struct xccl_plan *plan, struct xccl_dev_work *work)
{
    const struct xccl_user_op *op = xccl_planner_op(&cuda->comm->planner, call->op);

    work->scalar = xccl_device_fn_of(plan, call->op).scalar;
    if (op)
        work->scalar_at = (uint64_t)(uintptr_t)op->device_scalar;
}

static xcclResult_t prepare(const struct xccl_cuda_op *op, struct prepared *prepared)
{
    struct xcclComm *comm = op->task.comm;
    struct xccl_cuda_comm *cuda = comm->cuda;
    struct xccl_found found;
    xcclResult_t rc = xccl_comm_error(comm);

    if (!rc)
        rc = xccl_plan_get(&comm->planner, &op->task.call, &found);
    if (!rc && !found.plan)
        rc = xccl_fail(xcclInternalError, 0, "report this as a bug", "rank %d: a call has no links",
                       comm->rank);
    if (rc || !found.plan) /* it is there on success, which clang's analyzer does not see */
        return rc;
    rc = find_image(cuda, &op->task.call, found.plan, &prepared->image);
    if (!rc)
        rc = grow_scratch(cuda, prepared->image->scratch_bytes);
    if (rc)
        return rc;
    cuda->last = prepared->image;
    prepared->share = (struct xccl_cuda_share){.cuda = cuda,
                                               .stream = op->stream,
                                               .function = prepared->image->function,
                                               .nblocks = prepared->image->blocks};
    prepared->work = (struct xccl_dev_work){
        .comm = cuda->comm_at,
        .plan = prepared->image->at,
        .in = (uint64_t)(uintptr_t)op->task.send,
        .out = (uint64_t)(uintptr_t)op->task.recv,
        .scratch = cuda->scratch,
        .nblocks = prepared->image->blocks,
    };
    set_scalar(cuda, &op->task.call, found.plan, &prepared->work);
    return xcclSuccess;
}

/* --- launches --- */

static void count_call(struct xccl_cuda_comm *cuda)
{
    cuda->given++;
    /* Relaxed: for texts alone. */
    atomic_store_explicit(&cuda->launched, cuda->worker.is_captured ? 0 : cuda->given,
                          memory_order_relaxed);
}

static xcclResult_t launch(const struct xccl_cuda_shares *shares, uint32_t first)
{
    struct prepared *all = shares->all;
    struct xccl_dev_launch launch = {0};
    const struct xccl_cuda_share *share = &all[first].share;
    struct xccl_cuda_device *device = share->cuda->device;
    struct xccl_cuda_batch batch = xccl_cuda_gather(shares, first);
    struct xccl_cuda_place place = {0};
    xcclResult_t rc = xccl_cuda_enter(device);

    if (rc)
        return rc;
    xccl_cuda_launch_begin(device);
    rc = xccl_cuda_check_room(device, &batch);
    if (!rc)
        rc = xccl_cuda_place_of(device, share->stream, &place);
    for (uint32_t i = first; i < shares->count && !rc; i++) {
        all[i].work.block0 = all[i].share.block0;
        if (all[i].share.state == XCCL_CUDA_TAKEN)
            rc = xccl_cuda_order(all[i].share.cuda, &place);
    }
    launch.nworks = batch.works;
    if (!rc)
        rc = xccl_cuda_launch(shares, &batch, place.is_captured, &launch, launch.works,
                              &launch.far);
    for (uint32_t i = first; i < shares->count; i++) {
        if (all[i].share.state != XCCL_CUDA_TAKEN)
            continue;
        all[i].share.state = XCCL_CUDA_LAUNCHED;
        all[i].image->is_captured |= place.is_captured;
        if (!rc)
            rc = xccl_cuda_launched(all[i].share.cuda, &place);
        count_call(all[i].share.cuda);
    }
    xccl_cuda_launch_end(device);
    xccl_cuda_leave(device);
    return rc;
}

/* A communicator that could not do what the others may do has failed. */
static xcclResult_t fail_comm(struct xcclComm *comm, xcclResult_t rc)
{
    if (!rc || xccl_comm_error(comm))
        return rc;
    return xccl_comm_fail(comm, rc, "rank %d cannot launch a call: %.400s", comm->rank,
                          xccl_error_text());
}

/* Of the calls from `from` on, the next one of each communicator. */
static xcclResult_t launch_round(const struct xccl_cuda_op *ops, uint32_t count, uint8_t *done,
                                 struct prepared *prepared, uint32_t *left)
{
    struct xccl_cuda_shares shares = {.all = prepared,
                                      .stride = sizeof *prepared,
                                      .work_at = offsetof(struct prepared, work),
                                      .work_bytes = sizeof prepared->work};
    uint32_t ready = 0;
    xcclResult_t rc = xcclSuccess, first = xcclSuccess;

    for (uint32_t i = 0; i < count; i++) {
        int is_first = !done[i];

        for (uint32_t k = 0; k < ready && is_first; k++)
            is_first = prepared[k].share.cuda != ops[i].task.comm->cuda;
        if (!is_first)
            continue;
        done[i] = 1;
        --*left;
        prepared[ready] = (struct prepared){0};
        rc = fail_comm(ops[i].task.comm, prepare(&ops[i], &prepared[ready]));
        if (rc)
            first = first ? first : rc;
        else
            ready++;
    }
    shares.count = ready;
    for (uint32_t i = 0; i < ready; i++) {
        if (prepared[i].share.cuda && prepared[i].share.state == XCCL_CUDA_WAITS)
            rc = fail_comm(prepared[i].share.cuda->comm, launch(&shares, i));
        first = first ? first : rc;
    }
    return first;
}

/* Messages first, then round after round; what fails does not keep the others from theirs. */
static xcclResult_t launch_all(const struct xccl_cuda_op *ops, uint32_t count, uint8_t *done,
                               struct prepared *prepared)
{
    uint32_t left = count;
    xcclResult_t rc = xcclSuccess, more;

    for (uint32_t i = 0; i < count; i++) {
        done[i] = (uint8_t)ops[i].is_p2p;
        left -= (uint32_t)ops[i].is_p2p;
    }
    if (left < count)
        rc = xccl_cuda_p2p_launch(ops, count);
    while (left) {
        more = launch_round(ops, count, done, prepared, &left);
        rc = rc ? rc : more;
    }
    return rc;
}

static int compare_ops(const void *a, const void *b)
{
    const struct xccl_cuda_op *x = a, *y = b;
    int order = memcmp(x->task.comm->id, y->task.comm->id, sizeof x->task.comm->id);

    return order ? order : (x->number > y->number) - (x->number < y->number);
}

xcclResult_t xccl_cuda_launch_all(struct xccl_cuda_op *ops, uint32_t count)
{
    struct prepared few[FEW], *prepared = few;
    uint8_t few_done[FEW], *done = few_done;
    xcclResult_t rc;

    for (uint32_t i = 0; i < count; i++)
        ops[i].number = i;
    if (count > 1)
        qsort(ops, count, sizeof *ops, compare_ops);
    if (count <= FEW)
        return launch_all(ops, count, done, prepared);
    prepared = xccl_calloc(count, sizeof *prepared);
    done = xccl_calloc(count, 1);
    rc = prepared && done ? launch_all(ops, count, done, prepared) : xcclSystemError;
    xccl_free(prepared);
    xccl_free(done);
    return rc;
}

xcclResult_t xccl_cuda_needs_links(const struct xccl_cuda_op *op, int *needs_out)
{
    struct xccl_found found;
    xcclResult_t rc = xccl_comm_error(op->task.comm);

    *needs_out = 0;
    if (!rc && op->is_p2p)
        *needs_out = xccl_cuda_p2p_needs_link(op->task.comm, op->p2p.peer, op->p2p.sends);
    if (rc || op->is_p2p)
        return rc;
    rc = xccl_plan_get(&op->task.comm->planner, &op->task.call, &found);
    *needs_out = !rc && !found.plan;
    return rc;
}

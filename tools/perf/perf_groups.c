/* SPDX-License-Identifier: BSD-3-Clause */
/* xccl perf groups: random groups of every kind of call over several communicators, each rank's
 * calls in an order of its own, with data that is foretold and compared. All ranks draw the same
 * from one seed and say nothing to each other besides.
 *
 * Thread: the rank's. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/os.h"
#include "perf/perf_device.h"
#include "perf/perf_draw.h"

#define ALIGN_BYTES 64u
#define ROOM_BYTES  (2u * XCCL_PERF_GUARD_BYTES) /* of guards and of what a buffer is shifted by */
#define TOLD_MAX    10 /* wrong calls that a rank shows */

/* Where one call of a group keeps its data. */
struct slot {
    char *memory[2];
    size_t *blocks[XCCL_PERF_BLOCKS];
};

struct groups {
    struct xccl_perf_job *job;
    struct xccl_draw draw;
    struct xccl_draw_group group; /* of now */
    int64_t number;
    xcclComm_t comms[XCCL_DRAW_COMMS]; /* NULL: this rank is in none */
    struct slot slots[XCCL_DRAW_CALLS];
    int told;
};

/* ---- memory and communicators ---- */

static int slots_init(struct groups *groups)
{
    size_t bytes = groups->job->options->max_bytes + 2 * ROOM_BYTES;

    for (int i = 0; i < XCCL_DRAW_CALLS; i++) {
        struct slot *slot = &groups->slots[i];

        for (int k = 0; k < 2; k++) {
            slot->memory[k] = xccl_calloc_aligned(ALIGN_BYTES, (bytes | (ALIGN_BYTES - 1)) + 1);
            if (!slot->memory[k] || xccl_perf_device_mirror(groups->job, slot->memory[k],
                                                            (bytes | (ALIGN_BYTES - 1)) + 1))
                return 0;
        }
        for (int k = 0; k < XCCL_PERF_BLOCKS; k++) {
            slot->blocks[k] = xccl_calloc((size_t)groups->job->nranks, sizeof(*slot->blocks[k]));
            if (!slot->blocks[k])
                return 0;
        }
    }
    return 1;
}

static void slots_fini(struct groups *groups)
{
    for (int i = 0; i < XCCL_DRAW_CALLS; i++) {
        for (int k = 0; k < 2; k++)
            xccl_free(groups->slots[i].memory[k]);
        for (int k = 0; k < XCCL_PERF_BLOCKS; k++)
            xccl_free(groups->slots[i].blocks[k]);
    }
}

/* The communicators that are drawn, one split after the other. */
static xcclResult_t make_comms(struct groups *groups)
{
    const struct xccl_draw *draw = &groups->draw;
    int rank = groups->job->rank;
    xcclResult_t rc = xcclSuccess;

    groups->comms[0] = groups->job->comm;
    for (int i = 0; i < draw->split_count && !rc; i++) {
        const struct xccl_draw_split *split = &draw->splits[i];
        xcclComm_t comm = NULL;

        if (!groups->comms[split->parent])
            continue;
        rc = xcclCommSplit(groups->comms[split->parent], split->colors[rank], split->keys[rank],
                           &comm, NULL);
        for (int k = 1; k < draw->comm_count && comm && !rc; k++) {
            if (draw->comms[k].split == i && xccl_draw_rank(&draw->comms[k], rank) >= 0)
                groups->comms[k] = comm;
        }
    }
    return rc;
}

/* What the splits gave must be what was drawn. */
static xcclResult_t check_comms(const struct groups *groups)
{
    for (int i = 0; i < groups->draw.comm_count; i++) {
        const struct xccl_draw_comm *drawn = &groups->draw.comms[i];
        int want = xccl_draw_rank(drawn, groups->job->rank), rank = -1, count = 0;
        xcclResult_t rc = xcclSuccess;

        if (want < 0)
            continue;
        rc = xcclCommUserRank(groups->comms[i], &rank);
        if (!rc)
            rc = xcclCommCount(groups->comms[i], &count);
        if (rc)
            return rc;
        if (rank != want || count != drawn->count)
            return xccl_fail(xcclInternalError, 0, "report it with the output of `xccl info`",
                             "communicator %d has rank %d of %d here; it should be %d of %d", i,
                             rank, count, want, drawn->count);
    }
    return xcclSuccess;
}

/* After an error the members of a communicator need not wait for this rank. */
static xcclResult_t end_comms(struct groups *groups, xcclResult_t failed)
{
    xcclResult_t rc = xcclSuccess;

    for (int i = groups->draw.comm_count - 1; i > 0; i--) {
        xcclComm_t comm = groups->comms[i];

        if (comm && failed)
            (void)xcclCommAbort(comm);
        else if (comm && !rc)
            rc = xcclCommDestroy(comm);
    }
    return failed ? failed : rc;
}

/* ---- one group ---- */

/* A job for one call: this rank in that communicator, and the slot's memory. 0: it has no part. */
static int job_of(struct groups *groups, int idx, struct xccl_perf_job *job_out)
{
    const struct xccl_draw_call *call = &groups->group.calls[idx];
    const struct xccl_draw_comm *comm = &groups->draw.comms[call->comm];
    struct slot *slot = &groups->slots[idx];
    size_t shift = call->shift * (size_t)xccl_perf_types[call->type].bytes;
    struct xccl_perf_job job = *groups->job;

    job.rank = xccl_draw_rank(comm, groups->job->rank);
    if (job.rank < 0 || (call->coll->which == XCCL_PERF_MESSAGE && job.rank != call->root &&
                         job.rank != call->peer))
        return 0;
    job.coll = call->coll;
    job.comm = groups->comms[call->comm];
    job.nranks = comm->count;
    job.type = call->type;
    job.op = call->op;
    job.root = call->root;
    job.peer = call->peer;
    job.salt = call->salt;
    job.wrong_here = 0;
    job.send = slot->memory[0] + ROOM_BYTES + shift;
    job.recv = slot->memory[1] + ROOM_BYTES + shift;
    memcpy(job.blocks, slot->blocks, sizeof(job.blocks));
    *job_out = job;
    return 1;
}

static xcclResult_t fill_call(struct groups *groups, int idx)
{
    const struct xccl_draw_call *call = &groups->group.calls[idx];
    struct xccl_perf_shape shape;
    struct xccl_perf_job job;

    if (!job_of(groups, idx, &job))
        return xcclSuccess;
    shape = xccl_perf_shape_of(&job, call->bytes);
    job.salt--; /* which check_begin counts up */
    xccl_perf_check_begin(&job, &shape, call->in_place);
    return xccl_perf_device_push(&job, &shape, call->in_place);
}

static xcclResult_t make_call(struct groups *groups, int idx)
{
    const struct xccl_draw_call *call = &groups->group.calls[idx];
    struct xccl_perf_buffers at;
    struct xccl_perf_shape shape;
    struct xccl_perf_job job;

    if (!job_of(groups, idx, &job))
        return xcclSuccess;
    shape = xccl_perf_shape_of(&job, call->bytes);
    at = xccl_perf_buffers_of(&job, &shape, call->in_place);
    return xccl_perf_call(&job, xccl_perf_device_at(&job, at.send),
                          xccl_perf_device_at(&job, at.recv), shape.count);
}

static xcclResult_t check_call(struct groups *groups, int idx)
{
    const struct xccl_draw_call *call = &groups->group.calls[idx];
    struct xccl_perf_shape shape;
    struct xccl_perf_job job;
    xcclResult_t rc = xcclSuccess;

    if (!job_of(groups, idx, &job))
        return xcclSuccess;
    shape = xccl_perf_shape_of(&job, call->bytes);
    rc = xccl_perf_device_pull(&job, &shape, call->in_place);
    if (rc)
        return rc;
    xccl_perf_check_end(&job, &shape, call->in_place);
    groups->job->wrong_here += job.wrong_here;
    if (!job.wrong_here || groups->told++ >= TOLD_MAX)
        return xcclSuccess;
    fprintf(stderr,
            "xccl perf: rank %d: seed 0x%016" PRIx64 ", group %" PRId64 ", call %d: %s of %zu %s"
            " %s, rank %d of %d in communicator %d, %s place: %" PRId64 " wrong elements\n",
            groups->job->rank, groups->draw.seed, groups->number, idx, call->coll->name,
            shape.count, xccl_perf_types[call->type].name,
            call->coll->reduces ? xccl_perf_ops[call->op] : "none", job.rank, job.nranks,
            call->comm, call->in_place ? "in" : "out of", job.wrong_here);
    return xcclSuccess;
}

/* The calls from order[first] on. */
static xcclResult_t make_calls(struct groups *groups, const int *order, int first, int end)
{
    xcclResult_t rc = xcclSuccess;

    for (int i = first; i < end && !rc; i++)
        rc = make_call(groups, order[i]);
    return rc;
}

/* Calls in a group of their own, within another one or not. */
static xcclResult_t make_group(struct groups *groups, const int *order, int nested, int end)
{
    xcclResult_t rc = xcclGroupStart(), ended = xcclSuccess;

    if (rc)
        return rc;
    if (nested)
        rc = make_group(groups, order, 0, nested);
    if (!rc)
        rc = make_calls(groups, order, nested, end);
    ended = xcclGroupEnd();
    return rc ? rc : ended;
}

static xcclResult_t run_group(struct groups *groups)
{
    struct xccl_draw_group *group = &groups->group;
    int order[XCCL_DRAW_CALLS];
    xcclResult_t rc = xcclSuccess;

    xccl_draw_group(&groups->draw, groups->number, group);
    xccl_draw_order(&groups->draw, group, groups->number, groups->job->rank, order);
    for (int i = 0; i < group->call_count && !rc; i++)
        rc = fill_call(groups, i);
    if (rc)
        return rc;
    if (group->grouped)
        rc = make_group(groups, order, group->nested, group->call_count);
    else
        rc = make_calls(groups, order, 0, group->call_count);
    for (int i = 0; i < group->call_count && !rc && groups->job->options->check_runs; i++)
        rc = check_call(groups, i);
    return rc ? rc : xccl_perf_device_wait(groups->job);
}

/* ---- all of them ---- */

static void count_group(struct groups *groups)
{
    struct xccl_perf_tally *tally = &groups->job->tally;

    tally->groups++;
    for (int i = 0; i < groups->group.call_count; i++) {
        const struct xccl_draw_call *call = &groups->group.calls[i];

        if (call->coll->which == XCCL_PERF_MESSAGE)
            tally->messages++;
        else
            tally->calls++;
        if (!call->bytes && !call->coll->empty)
            tally->empty++;
    }
}

/* Rank 0's, for all. */
static xcclResult_t agree_on_seed(struct xccl_perf_job *job, uint64_t *seed_out)
{
    uint64_t seed = job->options->seed;
    xcclResult_t rc = xcclSuccess;

    if (!job->options->seed_given)
        rc = xccl_os_random(&seed, sizeof(seed));
    if (rc)
        return xccl_fail(xcclSystemError, 0, "give a --seed",
                         "the system provides no random bytes");
    rc = xccl_perf_exchange(job, &seed, sizeof(seed) / sizeof(uint32_t));
    if (!rc)
        memcpy(seed_out, job->exchange[1], sizeof(*seed_out));
    return rc;
}

static void show_head(const struct groups *groups)
{
    const struct xccl_draw *draw = &groups->draw;

    xccl_perf_head_run(groups->job);
    xccl_perf_head_devices(groups->job);
    printf("# seed 0x%016" PRIx64 ", %" PRId64 " groups, calls of at most %" PRIu64 " bytes\n",
           draw->seed, groups->job->options->group_count, draw->max_bytes);
    for (int i = 0; i < draw->comm_count; i++) {
        printf("# communicator %d: ranks", i);
        for (int k = 0; k < draw->comms[i].count; k++)
            printf(" %d", draw->comms[i].ranks[k]);
        if (i)
            printf(", of communicator %d", draw->comms[i].parent);
        printf("\n");
    }
    fflush(stdout);
}

static void show_foot(const struct xccl_perf_job *job)
{
    const struct xccl_perf_tally *tally = &job->tally;

    printf("# %" PRId64 " groups: %" PRId64 " collective calls, %" PRId64 " messages; %" PRId64
           " of all without elements; %.2f s\n",
           tally->groups, tally->calls, tally->messages, tally->empty, tally->seconds);
    printf("# Out of bounds values : %" PRId64 " %s\n", tally->wrong,
           tally->wrong ? "FAILED" : "OK");
}

static xcclResult_t run_groups(struct groups *groups)
{
    struct xccl_perf_job *job = groups->job;
    int64_t count = job->options->group_count;
    xcclResult_t rc = xcclSuccess;

    if (job->rank == 0)
        show_head(groups);
    for (groups->number = 0; groups->number < count && !rc; groups->number++) {
        rc = run_group(groups);
        if (rc && job->rank == 0)
            fprintf(stderr, "xccl perf: seed 0x%016" PRIx64 ", group %" PRId64 " failed\n",
                    groups->draw.seed, groups->number);
        count_group(groups);
        if (job->rank == 0)
            xccl_perf_progress(job, "groups", groups->number, count);
    }
    return rc;
}

static xcclResult_t run_joined(struct groups *groups)
{
    struct xccl_perf_job *job = groups->job;
    uint64_t begin_ns = xccl_clock_ns();
    xcclResult_t rc = make_comms(groups);

    if (!rc)
        rc = check_comms(groups);
    if (!rc)
        rc = run_groups(groups);
    if (!rc)
        rc = xccl_perf_exchange_wrong(job, 0, &job->tally.wrong);
    job->tally.seconds = (double)(xccl_clock_ns() - begin_ns) / 1e9;
    rc = end_comms(groups, rc);
    if (job->rank == 0 && !rc) {
        xccl_perf_progress_clear();
        show_foot(job);
    }
    return rc;
}

static xcclResult_t run_drawn(struct groups *groups)
{
    const struct xccl_perf_job *job = groups->job;

    if (!xccl_draw_init(&groups->draw, job->tally.seed, job->nranks, (int)job->options->comm_count,
                        job->options->max_bytes) ||
        !slots_init(groups))
        return xccl_fail(xcclSystemError, 0, "choose a smaller -e",
                         "rank %d has no memory for the buffers of a group", job->rank);
    return run_joined(groups);
}

static xcclResult_t run(struct xccl_perf_job *job)
{
    struct groups *groups = xccl_calloc(1, sizeof(*groups));
    xcclResult_t rc = xcclSuccess;

    if (!groups)
        return xccl_fail(xcclSystemError, 0, NULL, "rank %d has no memory", job->rank);
    groups->job = job;
    rc = agree_on_seed(job, &job->tally.seed);
    if (!rc)
        rc = run_drawn(groups);
    slots_fini(groups);
    xccl_draw_fini(&groups->draw);
    xccl_free(groups);
    return rc;
}

static void write_json(FILE *file, const struct xccl_perf_job *job)
{
    const struct xccl_perf_tally *tally = &job->tally;

    fprintf(file,
            "  \"seed\": \"0x%016" PRIx64 "\",\n  \"communicators\": %" PRId64
            ",\n  \"max_bytes\": %" PRIu64 ",\n  \"results\": {\"groups\": %" PRId64
            ", \"calls\": %" PRId64 ", \"messages\": %" PRId64 ", \"empty\": %" PRId64
            ", \"seconds\": %.4f},\n",
            tally->seed, job->options->comm_count, job->options->max_bytes, tally->groups,
            tally->calls, tally->messages, tally->empty, tally->seconds);
}

const struct xccl_perf_part xccl_perf_groups = {
    .name = "groups",
    .takes = "ecTJtNgCSD",
    .run = run,
    .json = write_json,
};

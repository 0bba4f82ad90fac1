/* SPDX-License-Identifier: BSD-3-Clause */
/* The group of a thread, and its execution at the end. An operation that is refused when it is
 * noted keeps the whole group from starting; one that fails while it runs fails its communicator,
 * and the others are finished. Thread: the user's; joins of several ranks get a thread each for as
 * long as the joining lasts. */
#include "api/group.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/os.h"

#define DEPTH_MAX   1000
#define ENTRIES_MAX (1u << 20)

struct group {
    int depth;
    xcclResult_t rc; /* why it will not be executed */
    char text[XCCL_ERROR_TEXT_BYTES];
    struct xccl_group_entry *entries;
    uint32_t count, room, joins, leaves;
};

static _Thread_local struct group group;

xcclResult_t xccl_group_reject(xcclResult_t rc)
{
    if (group.depth > 0 && !group.rc) {
        group.rc = rc;
        strncpy(group.text, xccl_error_text(), sizeof group.text - 1);
    }
    return rc;
}

static xcclResult_t execute(const struct xccl_group_entry *entry)
{
    struct xcclComm *comm = entry->task.comm;

    if (entry->kind == XCCL_ENTRY_INIT)
        return xccl_comm_create(&entry->id, entry->rank, entry->nranks, xccl_os_thread_id(),
                                entry->comm_out);
    if (entry->kind == XCCL_ENTRY_DESTROY) {
        xccl_comm_destroy(comm);
        return xcclSuccess;
    }
    if (__builtin_expect(atomic_load_explicit(&comm->needs_group, memory_order_relaxed), 0) &&
        xccl_comm_shares_thread(comm))
        return xccl_fail(xcclInvalidUsage, 0,
                         "call for all of them between xcclGroupStart and "
                         "xcclGroupEnd",
                         "another rank of the communicator of rank %d lives in this "
                         "thread: use a group",
                         comm->rank);
    return xccl_comm_execute(comm, &entry->task);
}

/* 1 when an earlier entry of the group destroys comm. */
static int leaves_in_group(const struct xcclComm *comm)
{
    for (uint32_t i = 0; group.leaves && i < group.count; i++)
        if (group.entries[i].kind == XCCL_ENTRY_DESTROY && group.entries[i].task.comm == comm)
            return 1;
    return 0;
}

xcclResult_t xccl_group_add(const struct xccl_group_entry *entry)
{
    if (__builtin_expect(!group.depth, 1))
        return execute(entry);
    if (entry->task.comm && leaves_in_group(entry->task.comm))
        return xccl_group_reject(xccl_fail(xcclInvalidUsage, 0, "destroy it once, as the last call",
                                           "rank %d: a call of a communicator that this group "
                                           "destroys",
                                           entry->task.comm->rank));
    if (group.count == group.room) {
        uint32_t room = group.room ? group.room * 2 : 16;
        void *grown = NULL;

        if (group.count < ENTRIES_MAX)
            grown = xccl_realloc(group.entries, room * sizeof *group.entries);
        else
            (void)xccl_fail(xcclInvalidUsage, 0, "end the group earlier", "a group of %u calls",
                            group.count);
        if (!grown)
            return xccl_group_reject(group.count < ENTRIES_MAX ? xcclSystemError
                                                               : xcclInvalidUsage);
        group.entries = grown;
        group.room = room;
    }
    group.entries[group.count++] = *entry;
    group.joins += entry->kind == XCCL_ENTRY_INIT;
    group.leaves += entry->kind == XCCL_ENTRY_DESTROY;
    return xcclSuccess;
}

void xccl_group_forget(const struct xcclComm *comm)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; group.depth > 0 && i < group.count; i++)
        if (group.entries[i].task.comm != comm)
            group.entries[kept++] = group.entries[i];
    if (group.depth > 0 && kept < group.count) {
        group.count = kept;
        (void)xccl_group_reject(xccl_fail(xcclInvalidUsage, 0, "abort outside of groups",
                                          "a communicator of rank %d was aborted inside a group "
                                          "that has calls of it",
                                          comm->rank));
    }
}

xcclResult_t xcclGroupStart(void)
{
    if (group.depth == DEPTH_MAX)
        return xccl_fail(xcclInvalidUsage, 0, "end groups that were started",
                         "%d groups inside each other", DEPTH_MAX);
    if (!group.depth++) {
        group.rc = xcclSuccess;
        group.count = 0;
        group.joins = 0;
        group.leaves = 0;
    }
    return xcclSuccess;
}

/* --- joins --- */

struct join {
    const struct xccl_group_entry *entry;
    int64_t thread_id; /* of the thread that will own the rank */
    pthread_t thread;
    int started;
    xcclResult_t rc;
    char text[XCCL_ERROR_TEXT_BYTES];
};

static void *join_main(void *arg)
{
    struct join *join = arg;

    join->rc = xccl_comm_create(&join->entry->id, join->entry->rank, join->entry->nranks,
                                join->thread_id, join->entry->comm_out);
    strncpy(join->text, xccl_error_text(), sizeof join->text - 1);
    return NULL;
}

static void keep_first(xcclResult_t *rc, xcclResult_t other, const char *text)
{
    if (*rc || !other)
        return;
    *rc = other;
    xccl_error_set_text(text);
}

/* Some joined and some did not: a group joins all or none. */
static void leave_again(const struct join *joins, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!joins[i].started || joins[i].rc)
            continue;
        xccl_comm_destroy(*joins[i].entry->comm_out);
        *joins[i].entry->comm_out = NULL;
    }
}

/* A rank that does not even begin: the others need not wait for it. */
static void decline(const struct xccl_group_entry *entry, xcclResult_t rc)
{
    struct xccl_job job;
    char text[XCCL_ERROR_TEXT_BYTES];

    snprintf(text, sizeof text, "%s", xccl_error_text());
    if (xccl_job_init(&entry->id, 1, entry->rank, entry->nranks, &job) == xcclSuccess)
        xccl_bootstrap_decline(&job, entry->rank, entry->nranks, rc);
    explicit_bzero(&job, sizeof job);
    xccl_error_set_text(text);
}

static xcclResult_t execute_joins(void)
{
    struct join *joins;
    uint32_t count = 0;
    xcclResult_t rc = xcclSuccess;

    if (!group.joins)
        return rc;
    joins = xccl_calloc(group.joins, sizeof *joins);
    if (!joins)
        return xcclSystemError;
    for (uint32_t i = 0; i < group.count; i++) {
        struct join *join = &joins[count];
        int err;

        if (group.entries[i].kind != XCCL_ENTRY_INIT)
            continue;
        count++;
        *join = (struct join){.entry = &group.entries[i], .thread_id = xccl_os_thread_id()};
        err = rc ? 0 : pthread_create(&join->thread, NULL, join_main, join);
        join->started = !rc && !err;
        if (err)
            rc = xccl_fail(xcclSystemError, err, "raise the limit of threads",
                           "cannot start a thread to join as rank %d", join->entry->rank);
        if (rc)
            decline(join->entry, rc);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!joins[i].started)
            continue;
        pthread_join(joins[i].thread, NULL);
        keep_first(&rc, joins[i].rc, joins[i].text);
    }
    if (rc)
        leave_again(joins, count);
    xccl_free(joins);
    return rc;
}

/* --- operations --- */

/* The communicators of a group at work: runs[i] belongs to comms[i], whose next entry is next[i].
 */
struct work {
    struct xccl_run **runs;
    struct xcclComm **comms;
    uint32_t *next;
    uint32_t count;
    struct xcclComm **seen; /* all that were begun, or could not be */
    uint32_t seen_count;
};

/* Begins the next operation of comm at or after entry `from`. 0: there is none, or it cannot begin.
 * Then the communicator has failed, and the other ranks are told: they may have begun it. */
static int begin_next(struct work *work, uint32_t at, struct xcclComm *comm, uint32_t from,
                      xcclResult_t *rc)
{
    for (uint32_t i = from; i < group.count; i++) {
        const struct xccl_group_entry *entry = &group.entries[i];
        xcclResult_t begun;

        if (entry->kind != XCCL_ENTRY_CALL || entry->task.comm != comm)
            continue;
        begun = xccl_comm_begin(comm, &entry->task);
        if (begun && !xccl_comm_error(comm))
            begun = xccl_comm_fail(comm, begun, "rank %d cannot go on with a group: %.300s",
                                   comm->rank, xccl_error_text());
        keep_first(rc, begun, xccl_error_text());
        if (begun)
            return 0;
        work->runs[at] = &comm->run;
        work->comms[at] = comm;
        work->next[at] = i + 1;
        return 1;
    }
    return 0;
}

static int already_seen(const struct work *work, const struct xcclComm *comm)
{
    for (uint32_t i = 0; i < work->seen_count; i++)
        if (work->seen[i] == comm)
            return 1;
    return 0;
}

static void begin_all(struct work *work, xcclResult_t *rc)
{
    for (uint32_t i = 0; i < group.count; i++) {
        struct xcclComm *comm = group.entries[i].task.comm;

        if (group.entries[i].kind != XCCL_ENTRY_CALL || already_seen(work, comm))
            continue;
        work->seen[work->seen_count++] = comm;
        work->count += (uint32_t)begin_next(work, work->count, comm, i, rc);
    }
}

static void run_all(struct work *work, xcclResult_t *rc)
{
    while (work->count) {
        const struct xccl_wait_policy *policy = &work->comms[0]->policy;
        struct xcclComm *comm;
        xcclResult_t ended;
        unsigned at;

        xccl_exec_wait(work->runs, work->count, policy, &at);
        comm = work->comms[at];
        ended = xccl_comm_end(comm, comm->run.rc);
        keep_first(rc, ended, xccl_error_text());
        if (!ended && begin_next(work, at, comm, work->next[at], rc))
            continue;
        work->count--;
        work->runs[at] = work->runs[work->count];
        work->comms[at] = work->comms[work->count];
        work->next[at] = work->next[work->count];
    }
}

static xcclResult_t execute_calls(void)
{
    struct work work = {0};
    xcclResult_t rc = xcclSystemError;

    work.runs = xccl_calloc((size_t)group.count + 1, sizeof(void *));
    work.comms = xccl_calloc((size_t)group.count + 1, sizeof(void *));
    work.next = xccl_calloc((size_t)group.count + 1, sizeof *work.next);
    work.seen = xccl_calloc((size_t)group.count + 1, sizeof(void *));
    if (work.runs && work.comms && work.next && work.seen) {
        rc = xcclSuccess;
        begin_all(&work, &rc);
        run_all(&work, &rc);
    }
    xccl_free(work.runs);
    xccl_free(work.comms);
    xccl_free(work.next);
    xccl_free(work.seen);
    return rc;
}

static xcclResult_t execute_group(void)
{
    xcclResult_t rc = execute_joins(), calls;

    if (rc)
        return rc;
    calls = execute_calls();
    keep_first(&rc, calls, xccl_error_text());
    for (uint32_t i = 0; i < group.count; i++)
        if (group.entries[i].kind == XCCL_ENTRY_DESTROY)
            xccl_comm_destroy(group.entries[i].task.comm);
    return rc;
}

xcclResult_t xcclGroupEnd(void)
{
    xcclResult_t rc = group.rc;

    if (!group.depth)
        return xccl_fail(xcclInvalidUsage, 0, "call xcclGroupStart first",
                         "xcclGroupEnd: no group is open in this thread");
    if (--group.depth)
        return xcclSuccess;
    if (rc)
        xccl_error_set_text(group.text);
    else if (group.count)
        rc = execute_group();
    if (group.entries) /* ids hold secrets */
        explicit_bzero(group.entries, group.count * sizeof *group.entries);
    xccl_free(group.entries);
    group = (struct group){0};
    return rc;
}

xcclResult_t pxcclGroupStart(void) __attribute__((alias("xcclGroupStart"), visibility("default")));
xcclResult_t pxcclGroupEnd(void) __attribute__((alias("xcclGroupEnd"), visibility("default")));

/* SPDX-License-Identifier: BSD-3-Clause */
/* One call: number, board, plan, run, wait, end. And what the wait's slow branch looks at: the
 * error word, the boards of the other ranks of this host, neighbours that have left, and the
 * deadline.
 *
 * Path of a repeated call: argument checks (api), crank, error word, last plan, board, run. No
 * lock, no allocation, no clock, no system call. Thread: the caller, who holds the crank. */
#include <stdio.h>
#include <string.h>

#include "comm/control.h"

#define NAME_BYTES      128
#define LEFT_VERDICT_NS (200 * XCCL_NS_PER_MS)
#define LINK_VERDICT_NS (700 * XCCL_NS_PER_MS)
#define VERDICT_NAP_NS  1000000

static void describe_call(const struct xccl_board_call *call, char *text_out, size_t bytes)
{
    static const char *const types[xcclNumTypes] = {
        "int8",    "uint8",   "int32",   "uint32",   "int64",      "uint64",
        "float16", "float32", "float64", "bfloat16", "float8e4m3", "float8e5m2"};
    static const char *const ops[xcclNumOps] = {"sum", "prod", "max", "min", "avg"};

    snprintf(text_out, bytes, "call %llu: all-reduce of %llu %s, %s", (unsigned long long)call->seq,
             (unsigned long long)call->count, call->type < xcclNumTypes ? types[call->type] : "?",
             call->op < xcclNumOps ? ops[call->op] : "?");
}

static struct xccl_board_call own_call(const struct xcclComm *comm)
{
    return (struct xccl_board_call){.seq = comm->seq,
                                    .count = comm->call.count,
                                    .coll = (uint32_t)comm->call.coll,
                                    .type = (uint32_t)comm->call.type,
                                    .op = (uint32_t)comm->call.op};
}

/* Ranks disagree: both calls go into the text, when the other one is known. */
static xcclResult_t raise_mismatch(struct xcclComm *comm, int peer,
                                   const struct xccl_board_call *mine,
                                   const struct xccl_board_call *theirs)
{
    char name[NAME_BYTES], my_text[96], their_text[96] = "another call";

    if (theirs)
        describe_call(theirs, their_text, sizeof their_text);
    describe_call(mine, my_text, sizeof my_text);
    xccl_comm_name_rank(comm, peer, name, sizeof name);
    return xccl_comm_fail(comm, xcclInvalidUsage, peer,
                          "ranks disagree: rank %d is in %s, but %s is in %s; all ranks must make "
                          "the same calls in the same order",
                          comm->rank, my_text, name, their_text);
}

static xcclResult_t fail_mismatch(struct xcclComm *comm, int peer)
{
    int index = comm->shm ? xccl_shm_index_of(comm->shm, peer) : -1;
    struct xccl_board_call mine = own_call(comm), theirs;
    int known = index >= 0 && xccl_board_read(xccl_shm_board(comm->shm, index), &theirs);

    return raise_mismatch(comm, peer, &mine, known ? &theirs : NULL);
}

void xccl_comm_compare_calls(struct xcclComm *comm, int peer, uint64_t word,
                             const struct xccl_board_call *theirs)
{
    struct xccl_board_call mine;
    uint64_t own = atomic_load_explicit(&comm->board->word, memory_order_acquire);

    if (!word || word >> 32 != own >> 32 || word == own)
        return;
    if (xccl_board_read(comm->board, &mine) && mine.seq == theirs->seq)
        (void)raise_mismatch(comm, peer, &mine, theirs);
}

/* Gives the control plane a moment to say what really happened. A rank that dies or disagrees makes
 * others give up, and their leaving must not be taken for the cause. */
static xcclResult_t wait_verdict(struct xcclComm *comm, uint64_t wait_ns)
{
    uint64_t until_ns = xccl_clock_ns() + wait_ns;

    while (!xccl_comm_error(comm) && xccl_clock_ns() < until_ns)
        nanosleep(&(struct timespec){.tv_nsec = VERDICT_NAP_NS}, NULL);
    return xccl_comm_error(comm);
}

static xcclResult_t fail_left(struct xcclComm *comm, int rank, uint64_t last_seq)
{
    char name[NAME_BYTES];

    if (wait_verdict(comm, LEFT_VERDICT_NS))
        return xccl_comm_error(comm);
    xccl_comm_name_rank(comm, rank, name, sizeof name);
    return xccl_comm_fail(
        comm, xcclRemoteError, rank,
        "%s has left the communicator after call %llu, but rank %d is in call %llu; "
        "all ranks must make the same calls",
        name, (unsigned long long)last_seq, comm->rank, (unsigned long long)comm->seq);
}

/* Are the other ranks of this host in the same call? Also: has one left for good? */
static xcclResult_t check_boards(struct xcclComm *comm)
{
    uint64_t own = atomic_load_explicit(&comm->board->word, memory_order_relaxed);

    for (int i = 0; comm->shm && i < xccl_shm_nlocal(comm->shm); i++) {
        struct xccl_board *board = xccl_shm_board(comm->shm, i);
        /* Acquire: pairs with xccl_board_write(). outside first: the word cannot change after it.
         */
        uint32_t outside = atomic_load_explicit(&board->outside, memory_order_acquire);
        uint64_t word = atomic_load_explicit(&board->word, memory_order_acquire);
        int rank = xccl_shm_rank_of(comm->shm, i);

        if (word >> 32 == own >> 32 && word != own)
            return fail_mismatch(comm, rank);
        if (outside == 2 && (int32_t)(uint32_t)((word >> 32) - (own >> 32)) < 0)
            return fail_left(comm, rank, word >> 32);
    }
    return xcclSuccess;
}

static xcclResult_t check_left(struct xcclComm *comm)
{
    uint64_t last_seq;
    int rank = xccl_control_left_before(comm->control, comm->seq, &last_seq);

    return rank == XCCL_NOBODY ? xcclSuccess : fail_left(comm, rank, last_seq);
}

/* The ranks that a run waits for: those of this host whose board shows an older call, else the
 * peers of the current step. */
static int list_late(const struct xcclComm *comm, char *text, size_t bytes)
{
    const struct xccl_run_lane *lane = &comm->run.lanes[0];
    const struct xccl_binding *binding = comm->run.plan->binding;
    int count = 0, used = 0;
    char name[NAME_BYTES];

    for (int i = 0; comm->shm && i < xccl_shm_nlocal(comm->shm); i++) {
        uint64_t word = atomic_load_explicit(&xccl_shm_board(comm->shm, i)->word,
                                             memory_order_acquire);

        if ((int32_t)((uint32_t)(word >> 32) - (uint32_t)comm->seq) >= 0)
            continue;
        xccl_comm_name_rank(comm, xccl_shm_rank_of(comm->shm, i), name, sizeof name);
        if (used < (int)bytes - 1)
            used += snprintf(text + used, bytes - (size_t)used, "%s%s", count++ ? ", " : "", name);
    }
    if (count || !binding->schedule->nconns)
        return count;
    for (uint32_t i = 0; i < binding->fans[lane->step - binding->schedule->steps].nrecv; i++) {
        xccl_comm_name_rank(comm, binding->links[lane->step->rconn + i]->peer, name, sizeof name);
        if (used < (int)bytes - 1)
            used += snprintf(text + used, bytes - (size_t)used, "%s%s", count++ ? ", " : "", name);
    }
    return count;
}

static xcclResult_t fail_timeout(struct xcclComm *comm, uint64_t waited_ns)
{
    struct xccl_board_call mine = own_call(comm);
    char late[200] = "the network", call[96];

    list_late(comm, late, sizeof late);
    describe_call(&mine, call, sizeof call);
    return xccl_comm_fail(comm, xcclTimeout, XCCL_NOBODY,
                          "rank %d has waited %llu s in %s, for %s; look at what they do, or raise "
                          "XCCL_TIMEOUT_S",
                          comm->rank, (unsigned long long)(waited_ns / XCCL_NS_PER_S), call, late);
}

static xcclResult_t check_call(struct xccl_run *run, uint64_t waited_ns)
{
    struct xcclComm *comm = run->owner;
    xcclResult_t rc = xccl_comm_error(comm);

    if (!rc)
        rc = check_boards(comm);
    if (!rc)
        rc = check_left(comm);
    if (!rc && waited_ns > comm->timeout_ns)
        rc = fail_timeout(comm, waited_ns);
    return rc;
}

static xcclResult_t busy(struct xcclComm *comm)
{
    return xccl_fail(xcclInvalidUsage, 0, "use one thread at a time, or a communicator for each",
                     "rank %d: another thread is inside this communicator", comm->rank);
}

xcclResult_t xccl_comm_begin(struct xcclComm *comm, const struct xccl_task *task)
{
    const struct xccl_plan *plan;
    struct xccl_board_call call;
    xcclResult_t rc;

    if (__builtin_expect(!xccl_crank_try(&comm->crank), 0))
        return busy(comm);
    rc = xccl_comm_error(comm);
    if (!rc)
        rc = xccl_plan_get(&comm->planner, &task->call, &plan);
    if (__builtin_expect(rc == xcclSystemError, 0)) /* only this rank fails: the others must know */
        rc = xccl_comm_fail(comm, rc, comm->rank, "rank %d cannot plan a call: %.300s", comm->rank,
                            xccl_error_text());
    if (__builtin_expect(rc != xcclSuccess, 0)) {
        xccl_crank_put(&comm->crank);
        return rc;
    }
    comm->seq++;
    comm->call = task->call;
    call = own_call(comm);
    xccl_run_start(&comm->run, plan, task->send, task->recv, comm->seq);
    xccl_board_write(comm->board, &call, comm->run.flag_low);
    comm->run.check = check_call;
    comm->run.owner = comm;
    return xcclSuccess;
}

/* A connection failed under a call. A neighbour may have left in order, or somebody may know
 * better. */
static xcclResult_t fail_link(struct xcclComm *comm, xcclResult_t rc)
{
    char cause[XCCL_ERROR_TEXT_BYTES], name[NAME_BYTES];

    snprintf(cause, sizeof cause, "%s", xccl_error_text());
    if (wait_verdict(comm, VERDICT_NAP_NS) || check_left(comm) ||
        wait_verdict(comm, LINK_VERDICT_NS) || check_left(comm))
        return xccl_comm_error(comm);
    xccl_comm_name_rank(comm, comm->run.bad_peer, name, sizeof name);
    return xccl_comm_fail(comm, rc, comm->run.bad_peer,
                          "rank %d lost its connection with %s: %.200s", comm->rank, name, cause);
}

xcclResult_t xccl_comm_end(struct xcclComm *comm, xcclResult_t rc)
{
    if (__builtin_expect(rc != xcclSuccess, 0)) {
        xcclResult_t known = xccl_comm_error(comm);

        if (known)
            rc = known;
        else if (comm->run.bad_link || (comm->run.bad_peer >= 0 && rc == xcclInvalidUsage))
            rc = fail_mismatch(comm, comm->run.bad_peer);
        else if (comm->run.bad_peer >= 0)
            rc = fail_link(comm, rc);
    }
    atomic_store_explicit(&comm->board->outside, 1, memory_order_relaxed);
    xccl_crank_put(&comm->crank);
    return rc;
}

xcclResult_t xccl_comm_execute(struct xcclComm *comm, const struct xccl_task *task)
{
    struct xccl_run *run = &comm->run;
    xcclResult_t rc = xccl_comm_begin(comm, task);
    unsigned which;

    if (rc)
        return rc;
    xccl_exec_wait(&run, 1, &comm->policy, &which);
    return xccl_comm_end(comm, run->rc);
}

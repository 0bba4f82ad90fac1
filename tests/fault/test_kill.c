/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank is killed, stopped, aborts or leaves in the middle of a job: every other rank gets an
 * error that names it, in time, and the communicator can still be destroyed. */
#include "../collective/own_record.h"
#include "../collective/world.h"

#include <signal.h>
#include <sys/wait.h>

#define RANKS  4
#define VICTIM 2

/* What the survivors found, in memory that the test can read. */
struct verdicts {
    struct world world;
    _Atomic int pids[RANKS];
    double seconds[RANKS]; /* from the deed to the error */
    _Atomic uint64_t deed_ns;
    size_t count;
    int sends; /* 1: messages round the ring in place of all-reduces */
    char text[RANKS][512];
    /* What the record says of the error. */
    char kind[RANKS][XCCL_RECORD_KIND_BYTES];
    int culprit[RANKS];
};

static struct verdicts *verdicts_create(const char *transport, size_t count)
{
    struct verdicts *v = mmap(NULL, sizeof *v, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                              -1, 0);

    XT_CHECK(v != MAP_FAILED);
    v->world.text = transport;
    v->count = count;
    return v;
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void choose(const struct verdicts *v, int rank)
{
    if (!strcmp(v->world.text, "unix") || !strcmp(v->world.text, "tcp") ||
        (!strcmp(v->world.text, "mixed") && rank % 2))
        xt_setenv("XCCL_SHM_DISABLE", "1");
    if (!strcmp(v->world.text, "tcp"))
        xt_setenv("XCCL_SOCKET_UNIX", "0");
}

/* One round of what the ranks do. */
static xcclResult_t work_once(const struct verdicts *v, xcclComm_t comm, int rank, float *data)
{
    xcclResult_t rc;

    if (!v->sends)
        return xcclAllReduce(data, data, v->count, xcclFloat32, xcclSum, comm, NULL);
    XT_OK(xcclGroupStart());
    rc = xcclSend(data, v->count, xcclFloat32, (rank + 1) % RANKS, comm, NULL);
    if (!rc)
        rc = xcclRecv(data + v->count, v->count, xcclFloat32, (rank + RANKS - 1) % RANKS, comm,
                      NULL);
    return xcclGroupEnd() ? xcclRemoteError : rc;
}

/* The kind of the error and its culprit, as `xccl report` shows them. */
static void note_record(struct verdicts *v, int rank)
{
    struct xccl_record_view view;

    XT_CHECK(own_record(&view));
    XT_CHECK_INT(view.count, 1);
    memcpy(v->kind[rank], view.comms[0].error_kind, sizeof v->kind[rank]);
    v->culprit[rank] = view.comms[0].culprit;
    xccl_record_view_free(&view);
}

/* Until the error, which is kept; the communicator is destroyed afterwards. */
static void work_until_error(struct verdicts *v, xcclComm_t comm, int rank)
{
    float *data = calloc(2 * v->count + 1, sizeof *data);
    xcclResult_t rc = xcclSuccess;

    XT_CHECK(data);
    while (!rc) {
        rc = work_once(v, comm, rank, data);
        atomic_fetch_add_explicit(&v->world.arrived, 1, memory_order_relaxed);
    }
    v->seconds[rank] = (double)(now_ns() -
                                atomic_load_explicit(&v->deed_ns, memory_order_acquire)) *
                       1e-9;
    note_record(v, rank);
    snprintf(v->text[rank], sizeof v->text[rank], "%s", xcclGetLastError(comm));
    XT_CHECK_INT(rc, xcclRemoteError);
    XT_CHECK_RC(xcclAllReduce(data, data, v->count, xcclFloat32, xcclSum, comm, NULL), rc);
    XT_OK(xcclCommDestroy(comm));
    free(data);
}

static void survive(int rank, int nranks, void *arg)
{
    struct verdicts *v = arg;
    xcclComm_t comm;

    choose(v, rank);
    comm = world_join(&v->world, rank, nranks);
    atomic_store_explicit(&v->pids[rank], (int)getpid(), memory_order_release);
    work_until_error(v, comm, rank);
}

/* What follows sends messages in place of all-reduces. */
static int sends;
/* The victim goes on once all others have ended. */
static int resumes;

/* The victim of a signal, or another rank, has ended with an error that names the victim. */
static void check_end(const struct verdicts *v, int rank, int status, int signal_number)
{
    char name[64];

    snprintf(name, sizeof name, "%srank %d (host ",
             rank == VICTIM ? "the other ranks have given up " : "", VICTIM);
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        XT_FAIL("rank %d ended with status %d: %s", rank, status, v->text[rank]);
    XT_CHECK_HAS(v->text[rank], name);
    XT_CHECK_INT(v->culprit[rank], VICTIM);
    if (rank == VICTIM)
        XT_CHECK_TEXT(v->kind[rank], "given_up");
    else if (signal_number == SIGSTOP)
        XT_CHECK_TEXT(v->kind[rank], "rank_silent");
}

/* Runs RANKS ranks, sends the victim a signal once all are at work, and looks at the others. */
static void hurt(const char *transport, size_t count, int signal_number, double within_s)
{
    struct verdicts *v = verdicts_create(transport, count);
    struct xt_mp *mp;
    int statuses[RANKS];

    v->sends = sends;
    mp = xt_mp_start(RANKS, survive, v);
    while (atomic_load_explicit(&v->world.arrived, memory_order_relaxed) < 50 * RANKS)
        sched_yield();
    /* Release: pairs with the load in work_until_error(). */
    atomic_store_explicit(&v->deed_ns, now_ns(), memory_order_release);
    xt_mp_kill(mp, VICTIM, signal_number);
    if (signal_number == SIGSTOP) {
        for (int r = 0; r < RANKS; r++)
            while (
                r != VICTIM &&
                !*(volatile char *)v->text[r]) /* tidy: allow volatile because a child writes it */
                sched_yield();
        xt_mp_kill(mp, VICTIM, resumes ? SIGCONT : SIGKILL);
    }
    xt_mp_wait(mp, statuses);
    for (int r = 0; r < RANKS; r++) {
        if (r == VICTIM && !resumes)
            continue;
        check_end(v, r, statuses[r], signal_number);
        if (r != VICTIM && v->seconds[r] > within_s)
            XT_FAIL("rank %d needed %.3f s: %s", r, v->seconds[r], v->text[r]);
    }
}

/* Under sanitizers on shared cores everything takes longer. */
#if defined(XCCL_SANITIZED)
#define SLOW 4
#else
#define SLOW 1
#endif
/* The kernel ends a killed rank's connections at once; silence would tell after 3 to 4 s. */
#define KILL_S (xt_bound(1, 2.5) * SLOW)
/* Four heartbeats stay out, and the next look comes within another one. */
#define STOP_S (xt_bound(5.5, 7.5) * SLOW)

XT_TEST(killed_rank_is_named_by_all_over_shared_memory)
{
    hurt("shm", 10, SIGKILL, KILL_S);
}
XT_TEST(killed_rank_is_named_by_all_in_a_large_call)
{
    hurt("shm", 1000000, SIGKILL, KILL_S);
}
XT_TEST(killed_rank_is_named_by_all_over_unix_sockets)
{
    hurt("unix", 10, SIGKILL, KILL_S);
}
XT_TEST(killed_rank_is_named_by_all_in_a_large_call_over_unix_sockets)
{
    hurt("unix", 1000000, SIGKILL, KILL_S);
}
XT_TEST(killed_rank_is_named_by_all_over_tcp)
{
    hurt("tcp", 10, SIGKILL, KILL_S);
}
XT_TEST(killed_rank_is_named_by_all_in_a_large_call_over_tcp)
{
    hurt("tcp", 1000000, SIGKILL, KILL_S);
}
XT_TEST(killed_rank_is_named_by_all_over_both)
{
    hurt("mixed", 5000, SIGKILL, KILL_S);
}
XT_TEST(killed_rank_is_named_by_all_who_send_over_shared_memory)
{
    sends = 1;
    hurt("shm", 100000, SIGKILL, KILL_S);
}
XT_TEST(killed_rank_is_named_by_all_who_send_over_tcp)
{
    sends = 1;
    hurt("tcp", 100000, SIGKILL, KILL_S);
}
XT_TEST(stopped_rank_is_named_by_all_over_shared_memory)
{
    hurt("shm", 10, SIGSTOP, STOP_S);
}
XT_TEST(stopped_rank_is_named_by_all_over_unix_sockets)
{
    hurt("unix", 10, SIGSTOP, STOP_S);
}
XT_TEST(stopped_rank_is_named_by_all_over_tcp)
{
    hurt("tcp", 10, SIGSTOP, STOP_S);
}
XT_TEST(stopped_rank_is_named_by_all_in_a_large_call_over_tcp)
{
    hurt("tcp", 1000000, SIGSTOP, STOP_S);
}

/* A rank that was stopped and goes on blames neither itself nor another one. */
static void hurt_and_resume(const char *transport, size_t count)
{
    resumes = 1;
    hurt(transport, count, SIGSTOP, STOP_S);
}
XT_TEST(stopped_rank_that_goes_on_learns_that_it_was_given_up_over_shared_memory)
{
    hurt_and_resume("shm", 10);
}
XT_TEST(stopped_rank_that_goes_on_learns_that_it_was_given_up_over_tcp)
{
    hurt_and_resume("tcp", 100000);
}

/* A rank that computes for long, longer than its heartbeats may be late, is not dead. */
static void compute(int rank, int nranks, void *arg)
{
    struct verdicts *v = arg;
    struct world_case c = {.count = v->count, .type = xcclInt32};
    volatile unsigned work = 0; /* tidy: allow volatile because the loop is to be kept */
    xcclComm_t comm;
    double until;

    choose(v, rank);
    comm = world_join(&v->world, rank, nranks);
    until = world_seconds() + 6;
    while (rank == VICTIM && world_seconds() < until)
        work = work + 1;
    world_all_reduce(comm, rank, nranks, &c);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(computing_rank_is_never_taken_for_dead)
{
    xt_mp_run(RANKS, compute, verdicts_create("shm", 1));
}
XT_TEST(computing_rank_is_never_taken_for_dead_over_unix_sockets)
{
    xt_mp_run(RANKS, compute, verdicts_create("unix", 1000000));
}
XT_TEST(computing_rank_is_never_taken_for_dead_over_tcp)
{
    xt_mp_run(RANKS, compute, verdicts_create("tcp", 1000000));
}

/* Both ranks stopped for longer than heartbeats may stay out, as a suspended job is: all goes on.
 */
static void suspended(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = world_join(world, rank, nranks);

    for (int i = 0; i < 2; i++) {
        int value = 1;

        XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL));
        atomic_fetch_add_explicit(&world->arrived, 1, memory_order_release);
        while (atomic_load_explicit(&world->ready[1], memory_order_acquire) <= i)
            sched_yield(); /* bounded by the test's deadline */
    }
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(job_that_was_suspended_goes_on)
{
    struct world *world = world_create();
    struct xt_mp *mp = xt_mp_start(2, suspended, world);
    int statuses[2];

    while (atomic_load_explicit(&world->arrived, memory_order_acquire) < 2)
        sched_yield();
    for (int r = 0; r < 2; r++)
        xt_mp_kill(mp, r, SIGSTOP);
    nanosleep(&(struct timespec){.tv_sec = 5, .tv_nsec = 500000000}, NULL);
    for (int r = 0; r < 2; r++)
        xt_mp_kill(mp, r, SIGCONT);
    nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL); /* their heartbeats meet again */
    atomic_store_explicit(&world->ready[1], 2, memory_order_release);
    xt_mp_wait(mp, statuses);
    XT_CHECK_INT(statuses[0], 0);
    XT_CHECK_INT(statuses[1], 0);
}

/* A process is killed while its thread joins as two ranks; nobody can have joined, for there is one
 * rank more that never comes. */
static void killed_while_joining(int process, int nprocs, void *arg)
{
    struct world *world = arg;
    xcclComm_t comms[2] = {NULL, NULL};
    xcclUniqueId id;
    double start;

    xt_setenv("XCCL_TIMEOUT_INIT_S", "20");
    xt_allow_leaks("the root stays until its deadline to tell late ranks");
    id = world_id(world, process, 0);
    XT_OK(xcclGroupStart());
    for (int i = 0; i < 2; i++)
        XT_OK(xcclCommInitRank(&comms[i], nprocs * 2 + 1, id, process + i * nprocs));
    atomic_fetch_add_explicit(&world->arrived, 1, memory_order_release);
    start = world_seconds();
    XT_CHECK(xcclGroupEnd() != xcclSuccess);
    XT_CHECK(world_seconds() - start < xt_bound(5, 10) * SLOW);
    XT_CHECK(!comms[0] && !comms[1]);
    XT_CHECK(strstr(xcclGetLastError(NULL), "rank 2 ") ||
             strstr(xcclGetLastError(NULL), "rank 5 "));
}

XT_TEST(process_killed_while_it_joins_as_two_ranks_is_named)
{
    struct world *world = world_create();
    struct xt_mp *mp = xt_mp_start(3, killed_while_joining, world);
    int statuses[3];

    while (atomic_load_explicit(&world->arrived, memory_order_acquire) < 3)
        sched_yield();
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL); /* it is on its way in by now */
    xt_mp_kill(mp, 2, SIGKILL);
    xt_mp_wait(mp, statuses);
    XT_CHECK_INT(statuses[0], 0);
    XT_CHECK_INT(statuses[1], 0);
}

/* --- leaving and aborting --- */

/* Rank 0 leaves while its neighbour is stopped. It does not wait for it, gives everything back
 * soon, and the neighbour, once it goes on, has the goodbye. */
static void leave_a_stopped_neighbour(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = world_join(world, rank, nranks);
    double start;
    int value = 1;

    XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL));
    atomic_fetch_add_explicit(&world->arrived, 1, memory_order_release);
    while (!atomic_load_explicit(&world->ready[1], memory_order_acquire))
        sched_yield(); /* bounded by the test's deadline */
    start = world_seconds();
    if (rank == 0) {
        XT_OK(xcclCommDestroy(comm));
        XT_CHECK(world_seconds() - start < xt_bound(0.5, 1.5) * SLOW);
        return;
    }
    XT_CHECK_RC(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL), xcclRemoteError);
    XT_CHECK_HAS(xcclGetLastError(comm), "rank 0 (host ");
    XT_CHECK_HAS(xcclGetLastError(comm), "has left the communicator after call 1");
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(goodbye_reaches_a_neighbour_that_was_stopped_meanwhile)
{
    struct world *world = world_create();
    struct xt_mp *mp = xt_mp_start(2, leave_a_stopped_neighbour, world);
    int statuses[2];

    while (atomic_load_explicit(&world->arrived, memory_order_acquire) < 2)
        sched_yield();
    xt_mp_kill(mp, 1, SIGSTOP);
    atomic_store_explicit(&world->ready[1], 1, memory_order_release);
    nanosleep(&(struct timespec){.tv_sec = 2}, NULL); /* rank 0 has lingered and ended */
    xt_mp_kill(mp, 1, SIGCONT);
    xt_mp_wait(mp, statuses);
    XT_CHECK_INT(statuses[0], 0);
    XT_CHECK_INT(statuses[1], 0);
}

/* One call that succeeds; then the victim goes, and the next call of the others must fail, naming
 * it. */
static void go_after_one_call(struct verdicts *v, int rank, int nranks,
                              xcclResult_t (*go)(xcclComm_t comm), const char *why)
{
    xcclComm_t comm;
    int value = 1;

    choose(v, rank);
    comm = world_join(&v->world, rank, nranks);
    XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL));
    if (rank != VICTIM) {
        XT_CHECK_RC(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL),
                    xcclRemoteError);
        XT_CHECK_HAS(xcclGetLastError(comm), "rank 2 (host ");
        XT_CHECK_HAS(xcclGetLastError(comm), why);
    }
    XT_OK(go(comm));
}

static void leave_early(int rank, int nranks, void *arg)
{
    go_after_one_call(arg, rank, nranks, xcclCommDestroy, "has left the communicator after call 1");
}

XT_TEST(rank_that_leaves_too_early_is_named_over_shared_memory)
{
    xt_mp_run(RANKS, leave_early, verdicts_create("", 1));
}

XT_TEST(rank_that_leaves_too_early_is_named_over_tcp)
{
    xt_mp_run(RANKS, leave_early, verdicts_create("tcp", 1));
}

static void abort_one(int rank, int nranks, void *arg)
{
    go_after_one_call(arg, rank, nranks, xcclCommAbort, "aborted the communicator");
}

XT_TEST(abort_ends_the_calls_of_all_ranks)
{
    xt_mp_run(RANKS, abort_one, verdicts_create("", 1));
}

struct abort_other {
    xcclComm_t comm;
    _Atomic int inside;
};

static void caller_and_aborter(int thread, int nthreads, void *arg)
{
    struct abort_other *job = arg;
    double start;
    int value = 1;

    (void)nthreads;
    if (thread == 0) {
        /* Release: pairs with the other thread's load. The other rank never calls. */
        atomic_store_explicit(&job->inside, 1, memory_order_release);
        XT_CHECK_RC(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, job->comm, NULL),
                    xcclRemoteError);
        XT_CHECK_HAS(xcclGetLastError(NULL), "rank 0 (host ");
        return;
    }
    while (!atomic_load_explicit(&job->inside, memory_order_acquire))
        sched_yield();
    start = world_seconds();
    XT_OK(xcclCommAbort(job->comm));
    XT_CHECK(world_seconds() - start < KILL_S);
}

static void abort_from_another_thread(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    struct abort_other job = {.comm = world_join(world, rank, nranks)};

    if (rank == 0)
        xt_threads_run(2, caller_and_aborter, &job);
    world_meet(world, nranks); /* rank 1 stays until the abort is over */
    if (rank == 1)
        XT_OK(xcclCommDestroy(job.comm));
}

XT_TEST(abort_from_another_thread_ends_a_waiting_call)
{
    xt_mp_run(2, abort_from_another_thread, world_create());
}

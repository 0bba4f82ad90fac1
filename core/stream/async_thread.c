/* SPDX-License-Identifier: BSD-3-Clause */
/* The process's progress thread: moves the runs of all communicators with asynchronous work side by
 * side, and blocks in none. Per operation:
 *
 *   queued     taken when it is its turn (comm_async.c), begun as a call is
 *   running    moved in each round; looked after (errors, boards, deadline) every LOOK_EVERY-th
 *              round in which it does not move, and in each when the thread sleeps between rounds
 *   failed     for XCCL_VERDICT_NS others may say who is to blame; then this rank does
 *   ended      the crank is put, streams are told
 *
 * Ranks that join in the background (comm_join.c) are called when the bell has rung or when they
 * are due. Their steps do not wait for other ranks, but may take milliseconds, such as loading a
 * plugin.
 *
 * While nothing moves it pauses, then yields for YIELD_NS only, then sleeps NAP_NS at a time: the
 * program computes meanwhile. New work ends a sleep at once. All signals are blocked in it.
 *
 * Lock order: life_lock, then the queues' lock. Thread: get and put from any but this one. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include "base/alloc.h"
#include "base/fork.h"
#include "base/inject.h"
#include "base/os.h"
#include "call/comm_call.h"
#include "comm/comm_progress.h"
#include "stream/async_int.h"
#include "watch/comm_verdict.h"

#define LOOK_EVERY 64u
#define LINGER     512u /* rounds with nothing to do before it sleeps: work often follows work */
#define YIELD_NS   100000u
#define NAP_NS     50000u

static int references; /* guarded by life_lock */
static pthread_t thread; /* likewise; while references > 0 */
static _Atomic int stop;
static struct xccl_bell bell; /* rung for news */

/* Forgets the parent's thread and its sleepers in a child of fork(), which has neither. */
static void forget_thread(void)
{
    references = 0;
    bell = (struct xccl_bell){0};
}

static struct xccl_lock life_lock = XCCL_LOCK(forget_thread);

/* The progress thread's own. */
struct worker {
    struct xccl_comm_async *running;
    struct xccl_async_job *jobs;
    uint64_t jobs_due_ns; /* when the next of them is, without a ring */
    uint32_t seen; /* ring of the bell up to which the queues have been looked at */
    int looks_again; /* 1: an operation has ended, or waits for somebody inside its communicator */
    uint32_t idle_rounds;
    uint64_t idle_since_ns; /* 0: not known yet */
    int sleepy;
};

static struct xccl_comm_async *async_of(const struct xcclComm *comm)
{
    return atomic_load_explicit(&comm->async, memory_order_relaxed);
}

/* --- one operation --- */

static xcclResult_t begin(struct xccl_async_op *op)
{
    struct xcclComm *comm = op->comm;
    xcclResult_t rc;

    rc = op->items ? xccl_comm_begin_p2p(comm, op->items, op->item_count)
                   : xccl_comm_begin(comm, &op->task);
    /* The other ranks may have begun it, and nobody is told here. */
    if (rc && !xccl_comm_error(comm))
        rc = xccl_comm_fail_own(comm, rc, XCCL_TROUBLE_CANNOT_START);
    return rc;
}

static void begin_all(struct worker *worker)
{
    struct xccl_async_op *op;
    int held = 0;

    while ((op = xccl_async_take(&held)) != NULL) {
        struct xccl_comm_async *async = async_of(op->comm);
        xcclResult_t rc = begin(op);

        if (rc) {
            xccl_async_ended(op, rc);
            continue;
        }
        async->idle_rounds = 0;
        async->idle_since_ns = 0;
        async->verdict_ns = 0;
        async->next_running = worker->running;
        worker->running = async;
        worker->idle_rounds = 0;
    }
    worker->looks_again = held;
}

/* Errors, boards, the deadline. */
static void look_after(struct xccl_comm_async *async)
{
    struct xccl_run *run = &async->comm->run;
    uint64_t now_ns = xccl_clock_ns();

    if (!async->idle_since_ns)
        async->idle_since_ns = now_ns;
    if (!run->rc)
        run->rc = run->kind->check(run, now_ns - async->idle_since_ns);
}

/* A connection broke, and nobody has said yet who is to blame: 1 while there is time for it. */
static int awaits_verdict(struct xccl_comm_async *async)
{
    const struct xccl_run *run = &async->comm->run;

    if (run->bad_peer < 0 || run->rc == xcclInvalidUsage ||
        atomic_load_explicit(&async->comm->error, memory_order_relaxed))
        return 0;
    if (!async->verdict_ns)
        async->verdict_ns = xccl_clock_ns() + XCCL_VERDICT_NS;
    return xccl_clock_ns() < async->verdict_ns;
}

/* 1: it has ended. */
static int turn(struct worker *worker, struct xccl_comm_async *async, int *moved)
{
    struct xccl_run *run = &async->comm->run;

    if (!run->rc && xccl_run_progress(run)) {
        *moved = 1;
        async->idle_rounds = 0;
        async->idle_since_ns = 0;
    } else if (worker->sleepy || ++async->idle_rounds % LOOK_EVERY == 0) {
        look_after(async);
    }
    if (run->rc)
        return !awaits_verdict(async);
    return xccl_run_done(run);
}

static void end(struct xccl_comm_async *async)
{
    struct xcclComm *comm = async->comm;
    struct xccl_async_op *op = async->first; /* this thread alone takes it away */
    xcclResult_t rc;

    xccl_comm_set_waited(comm, async->verdict_ns != 0);
    rc = xccl_comm_end(comm, comm->run.rc);
    xccl_comm_set_waited(comm, 0);
    xccl_async_ended(op, rc);
}

/* --- all of them --- */

/* Each once; 1 when something moved. */
static int turn_all(struct worker *worker)
{
    struct xccl_comm_async **at = &worker->running;
    int moved = 0;

    while (*at) {
        struct xccl_comm_async *async = *at;

        if (!turn(worker, async, &moved)) {
            at = &async->next_running;
            continue;
        }
        *at = async->next_running;
        end(async);
        worker->looks_again = 1;
        moved = 1;
    }
    return moved;
}

/* --- jobs --- */

/* Each that is due once, which is all of them after a ring; 1 when one is to go on at once. */
static int turn_jobs(struct worker *worker, int rung)
{
    struct xccl_async_job **at = &worker->jobs;
    int more = 0;

    worker->jobs_due_ns = XCCL_NEVER_NS;
    while (*at) {
        struct xccl_async_job *job = *at, *next = job->next;

        if (rung || xccl_clock_ns() >= job->due_ns) {
            enum xccl_async_state state = job->step(job);

            more |= state == XCCL_ASYNC_MORE;
            if (state == XCCL_ASYNC_DONE) { /* it may be gone */
                *at = next;
                continue;
            }
        }
        if (job->due_ns < worker->jobs_due_ns)
            worker->jobs_due_ns = job->due_ns;
        at = &job->next;
    }
    return more;
}

static void take_jobs(struct worker *worker)
{
    struct xccl_async_job *job;

    while ((job = xccl_async_take_job()) != NULL) {
        job->next = worker->jobs;
        worker->jobs = job;
    }
}

/* --- resting --- */

/* Fewest pauses of the communicators at work before the first yield. */
static uint32_t spins_of(const struct worker *worker)
{
    uint32_t spins = UINT32_MAX;

    for (const struct xccl_comm_async *async = worker->running; async; async = async->next_running)
        if (async->comm->policy.spins < spins)
            spins = async->comm->policy.spins;
    return spins;
}

/* Nothing has moved. */
static void rest(struct worker *worker)
{
    uint32_t rounds = ++worker->idle_rounds;

    if (rounds == 1)
        worker->idle_since_ns = 0;
    if (!worker->running && !worker->looks_again) {
        if (rounds < LINGER)
            xccl_os_pause();
        else
            xccl_bell_wait(&bell, worker->seen,
                           &(struct xccl_limit){.deadline_ns = worker->jobs_due_ns});
        return;
    }
    if (!worker->sleepy && rounds % LOOK_EVERY == 0) {
        uint64_t now_ns = xccl_clock_ns();

        if (!worker->idle_since_ns)
            worker->idle_since_ns = now_ns;
        worker->sleepy = now_ns - worker->idle_since_ns > YIELD_NS;
    }
    if (worker->sleepy)
        xccl_bell_nap(&bell, worker->seen, NAP_NS);
    else if (rounds > spins_of(worker))
        sched_yield();
    else
        xccl_os_pause();
}

static void *run(void *arg)
{
    struct worker worker = {.looks_again = 1, .jobs_due_ns = XCCL_NEVER_NS};

    (void)arg;
    pthread_setname_np(pthread_self(), "xccl-progress");
    for (;;) {
        uint32_t heard = xccl_bell_listen(&bell);
        int rung = heard != worker.seen, moved = 0;

        /* Acquire: pairs with xccl_async_thread_put(). Behind listening, for whoever has heard its
         * ring must see it: no other one comes. */
        if (atomic_load_explicit(&stop, memory_order_acquire))
            break;
        worker.seen = heard;
        if (rung)
            take_jobs(&worker);
        if (worker.jobs)
            moved = turn_jobs(&worker, rung);
        if (rung || worker.looks_again)
            begin_all(&worker);
        moved |= turn_all(&worker);
        if (moved) {
            worker.idle_rounds = 0;
            worker.sleepy = 0;
        } else {
            rest(&worker);
        }
    }
    return NULL;
}

/* --- its life --- */

static int start(void)
{
    sigset_t all, before;
    int err;

    if (xccl_inject_due())
        return EAGAIN;
    atomic_store_explicit(&stop, 0, memory_order_relaxed);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    err = pthread_create(&thread, NULL, run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return err;
}

xcclResult_t xccl_async_thread_get(void)
{
    int err = 0;

    xccl_lock_take(&life_lock);
    if (!references)
        err = start();
    references += !err;
    xccl_lock_give(&life_lock);
    return err ? xccl_fail(xcclSystemError, err, "raise ulimit -u",
                           "cannot start the progress thread")
               : xcclSuccess;
}

void xccl_async_thread_put(void)
{
    xccl_lock_take(&life_lock);
    if (--references == 0) {
        /* Release: pairs with run(). */
        atomic_store_explicit(&stop, 1, memory_order_release);
        xccl_bell_ring(&bell);
        /* Under the lock: the next one must not run beside it. */
        pthread_join(thread, NULL);
    }
    xccl_lock_give(&life_lock);
}

void xccl_async_thread_ring(void)
{
    xccl_bell_ring(&bell);
}

struct xccl_bell *xccl_async_thread_bell(void)
{
    return &bell;
}

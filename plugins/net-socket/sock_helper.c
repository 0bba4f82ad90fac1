/* SPDX-License-Identifier: BSD-3-Clause */
/* The helper threads of a device and what they do all day.
 *
 *   turn:  each comm for which something was posted, or whose descriptor has fired, is moved
 *   spin:  nothing has moved, and cores are to spare: for SPIN_TURNS turns comms with requests in
 *          flight are asked whether they move
 *   sleep: until a descriptor fires, the caller posts something or has a command, or, with
 *          requests in flight, LOOK_MS have passed: a comm may have to look after a path that is
 *          silent
 *
 * No wake is lost: the helper stores `asleep` and then looks at all `posted` and at `commands` once
 * more; callers store theirs and then look at `asleep`; all in sequentially consistent order, so
 * one of the two sees the other. A helper that is awake costs its callers no system call.
 *
 * Commands (a new comm, one to be taken back, the end) are left under the lock. The helper holds it
 * for some instructions only and looks for commands between two comms, so a close waits for as
 * long as one comm's turn takes at most. Nothing that moves data takes the lock.
 *
 * Thread: helper_run and what it calls are the helper's, the rest the caller's. Threads have all
 * signals blocked, so that none of the host program's runs there. */
#include "sock_helper_int.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/os.h"

#define LOOK_MS      250
#define LOOK_TURNS   256
#define UNWATCHED_MS 1 /* the longest sleep when the system refuses to watch a comm */
#define FIRED_MAX    64
#define DIRECT_MAX   4 /* comms that are asked one by one; more are asked for by one system call */
#define SPIN_TURNS   50 /* about what a sleep and a wake cost */
#define SPIN_CORES   8 /* with fewer they take the cores of those who have work: see the README */
#define STACK_BYTES  ((size_t)256 << 10) /* taken page by page, as it is used */

struct sock_helper {
    /* The helper's. */
    struct sock_wait *wait;
    struct sock_hand *first;
    uint32_t active; /* comms with requests in flight, as of the last turn */
    uint64_t look_ns; /* when all of them are asked once more */
    uint32_t turns; /* since the start: the clock is not read at each */
    int spin_turns;
    /* Shared: see the head. */
    _Alignas(SOCK_CACHE_BYTES) _Atomic int asleep;
    _Atomic int commands;
    /* Under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a comm was dropped */
    struct sock_hand *adding, *dropping; /* commands */
    int stop;
    /* Under the pool's lock. */
    pthread_t thread;
    int comm_count;
};

struct sock_pool {
    xcclNetLogger_t log;
    int first_number; /* of the thread names */
    int most; /* threads */
    pthread_mutex_t lock;
    int count;
    struct sock_helper *helpers[SOCK_THREADS_MAX];
};

/* ---- the helper ---- */

static void list_add(struct sock_helper *helper, struct sock_hand *hand)
{
    hand->before = NULL;
    hand->next = helper->first;
    if (hand->next)
        hand->next->before = hand;
    helper->first = hand;
}

static void list_remove(struct sock_helper *helper, struct sock_hand *hand)
{
    if (hand->before)
        hand->before->next = hand->next;
    else
        helper->first = hand->next;
    if (hand->next)
        hand->next->before = hand->before;
}

/* Returns 0 when the thread is to end. */
static int commands_do(struct sock_helper *helper)
{
    int stop;

    pthread_mutex_lock(&helper->lock);
    /* What is left after this under the lock sets it again. */
    atomic_store_explicit(&helper->commands, 0, memory_order_relaxed);
    for (; helper->adding; helper->adding = helper->adding->next_adding)
        list_add(helper, helper->adding);
    for (; helper->dropping; helper->dropping = helper->dropping->next_dropping) {
        list_remove(helper, helper->dropping);
        helper->wait->ops->forget(helper->wait, &helper->dropping->watch);
        helper->dropping->dropped = 1;
    }
    stop = helper->stop;
    pthread_cond_broadcast(&helper->changed);
    pthread_mutex_unlock(&helper->lock);
    return !stop;
}

static int commanded(struct sock_helper *helper)
{
    /* Sequentially consistent for the last look before sleep; what was left is under the lock. */
    return atomic_load_explicit(&helper->commands, memory_order_seq_cst);
}

/* Moves the comms that may move; direct: those, too, of which nothing is known. Returns 1 when a
 * request began or ended, or a command has come. */
static int turn(struct sock_helper *helper, int direct)
{
    uint32_t moved = 0, active = 0;

    for (struct sock_hand *hand = helper->first; hand; hand = hand->next) {
        if (sock_hand_pending(hand) || (hand->active && (direct || hand->ready))) {
            hand->ready = 0;
            moved += sock_hand_move(hand);
        }
        active += hand->active > 0;
        if (commanded(helper))
            return 1;
    }
    helper->active = active;
    return moved > 0;
}

/* Notes which comms' descriptors have fired. Returns how many. */
static int look(struct sock_helper *helper, int timeout_ms)
{
    struct sock_watch *fired[FIRED_MAX];
    int count = helper->wait->ops->wait(helper->wait, timeout_ms, fired, FIRED_MAX);

    for (int i = 0; i < count; i++) {
        struct sock_hand *hand = fired[i]->owner;

        hand->ready = hand->active > 0;
        /* Bytes for a receive that is not posted yet would fire it again and again. */
        if (!hand->ready)
            helper->wait->ops->forget(helper->wait, fired[i]);
    }
    return count;
}

/* Watches all comms with requests in flight. Returns 0 when the system refuses one. */
static int watch_all(struct sock_helper *helper)
{
    int all = 1;

    for (struct sock_hand *hand = helper->first; hand; hand = hand->next) {
        if (hand->active > 0 && !hand->watch.set)
            all &= helper->wait->ops->watch(helper->wait, &hand->watch);
    }
    return all;
}

static int anything_posted(struct sock_helper *helper)
{
    for (struct sock_hand *hand = helper->first; hand; hand = hand->next) {
        if (sock_hand_pending(hand))
            return 1;
    }
    return commanded(helper);
}

/* Each LOOK_MS all comms with requests in flight are asked, whether their descriptors have fired or
 * not. */
static void look_at_all(struct sock_helper *helper)
{
    uint64_t now_ns = xccl_clock_ns();

    if (now_ns < helper->look_ns)
        return;
    helper->look_ns = now_ns + LOOK_MS * XCCL_NS_PER_MS;
    for (struct sock_hand *hand = helper->first; hand; hand = hand->next)
        hand->ready = hand->active > 0;
}

/* Notes for the callers which of them need not wake the helper. */
static void attend(struct sock_helper *helper, int watched)
{
    for (struct sock_hand *hand = helper->first; hand; hand = hand->next) {
        /* With streams a later receive may be filled before those in flight. */
        int attended = watched && hand->recvs && hand->active > 0 && hand->comm->line_count == 1;

        /* Relaxed: published by the store of asleep that follows. */
        atomic_store_explicit(&hand->attended, attended, memory_order_relaxed);
    }
}

/* How long until then, rounded up. */
static int look_in_ms(const struct sock_helper *helper)
{
    uint64_t now_ns = xccl_clock_ns();

    return now_ns >= helper->look_ns ? 0 : (int)((helper->look_ns - now_ns) / XCCL_NS_PER_MS) + 1;
}

static void sleep_long(struct sock_helper *helper)
{
    int watched = watch_all(helper), timeout_ms = -1;

    attend(helper, watched);
    if (!watched)
        helper->look_ns = 0;
    if (helper->active > 0)
        timeout_ms = watched ? look_in_ms(helper) : UNWATCHED_MS;
    /* Sequentially consistent with the looks that follow: see the head. */
    atomic_store_explicit(&helper->asleep, 1, memory_order_seq_cst);
    if (!anything_posted(helper))
        (void)look(helper, timeout_ms);
    /* A wake that comes late finds nobody asleep, or shortens the next sleep. */
    atomic_store_explicit(&helper->asleep, 0, memory_order_relaxed);
    look_at_all(helper);
}

/* Nothing has moved for so many turns. The core is not offered to others by sched_yield: where
 * threads share cores that was measured to cost milliseconds. */
static void rest(struct sock_helper *helper, int turns)
{
    if (turns > helper->spin_turns) {
        sleep_long(helper);
        return;
    }
    xccl_os_pause();
    if (helper->active > DIRECT_MAX && watch_all(helper))
        (void)look(helper, 0);
}

static void *helper_run(void *helper_)
{
    struct sock_helper *helper = helper_;
    int turns = 0, going = 1;

    while (going) {
        if (turn(helper, turns > 0 && helper->active <= DIRECT_MAX))
            turns = 0;
        else
            rest(helper, ++turns);
        if (++helper->turns % LOOK_TURNS == 0)
            look_at_all(helper);
        if (commanded(helper))
            going = commands_do(helper);
    }
    return NULL;
}

/* ---- the caller ---- */

static void helper_wake(struct sock_helper *helper)
{
    /* One of many callers does it. */
    if (atomic_exchange_explicit(&helper->asleep, 0, memory_order_seq_cst))
        sock_wait_wake(helper->wait);
}

void sock_helper_notify(struct sock_hand *hand)
{
    /* Sequentially consistent with the store before: see the head. */
    if (!atomic_load_explicit(&hand->helper->asleep, memory_order_seq_cst))
        return;
    /* Relaxed: stored before asleep, so it is of this sleep, or of a later one. If the sleep that
     * was seen is over, the helper sees what was posted before it sleeps again. */
    if (!atomic_load_explicit(&hand->attended, memory_order_relaxed))
        helper_wake(hand->helper);
}

static void helper_free(struct sock_helper *helper)
{
    pthread_cond_destroy(&helper->changed);
    pthread_mutex_destroy(&helper->lock);
    sock_wait_destroy(helper->wait);
    xccl_free(helper);
}

/* Returns an errno. */
static int thread_start(struct sock_helper *helper)
{
    sigset_t all, before;
    pthread_attr_t attr;
    int err = pthread_attr_init(&attr);

    if (err != 0)
        return err;
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    err = pthread_create(&helper->thread, &attr, helper_run, helper);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return err;
}

static xcclResult_t helper_create(struct sock_pool *pool, struct sock_helper **helper_out)
{
    struct sock_helper *helper = xccl_calloc_aligned(SOCK_CACHE_BYTES, sizeof(*helper));
    char name[16];
    xcclResult_t rc;
    int err;

    if (!helper)
        return xcclSystemError;
    rc = sock_wait_create(pool->log, &helper->wait);
    if (rc != xcclSuccess) {
        xccl_free(helper);
        return rc;
    }
    pthread_mutex_init(&helper->lock, NULL);
    pthread_cond_init(&helper->changed, NULL);
    helper->spin_turns = xccl_os_cores() >= SPIN_CORES ? SPIN_TURNS : 0;
    err = thread_start(helper);
    if (err != 0) {
        helper_free(helper);
        return xccl_fail_quietly(xcclSystemError, err, "raise ulimit -u",
                                 "cannot start a helper thread");
    }
    snprintf(name, sizeof(name), "xccl-sock-%d", (pool->first_number + pool->count) % 1000);
    pthread_setname_np(helper->thread, name);
    *helper_out = helper;
    return xcclSuccess;
}

static void helper_destroy(struct sock_helper *helper)
{
    pthread_mutex_lock(&helper->lock);
    helper->stop = 1;
    atomic_store_explicit(&helper->commands, 1, memory_order_seq_cst);
    pthread_mutex_unlock(&helper->lock);
    helper_wake(helper);
    pthread_join(helper->thread, NULL);
    helper_free(helper);
}

xcclResult_t sock_pool_create(xcclNetLogger_t log, int first_number, int thread_count,
                              struct sock_pool **pool_out)
{
    struct sock_pool *pool = xccl_calloc(1, sizeof(*pool));

    if (!pool)
        return xcclSystemError;
    pool->log = log;
    pool->first_number = first_number;
    pool->most = thread_count;
    pthread_mutex_init(&pool->lock, NULL);
    *pool_out = pool;
    return xcclSuccess;
}

void sock_pool_destroy(struct sock_pool *pool)
{
    if (!pool)
        return;
    for (int i = 0; i < pool->count; i++)
        helper_destroy(pool->helpers[i]);
    pthread_mutex_destroy(&pool->lock);
    xccl_free(pool);
}

/* The one with the fewest comms, which is a new one while there may be more. NULL: there is none,
 * and the system gives none. */
static struct sock_helper *helper_choose(struct sock_pool *pool)
{
    struct sock_helper *best = NULL;

    for (int i = 0; i < pool->count; i++) {
        if (!best || pool->helpers[i]->comm_count < best->comm_count)
            best = pool->helpers[i];
    }
    if (best && (best->comm_count == 0 || pool->count == pool->most))
        return best;
    if (helper_create(pool, &pool->helpers[pool->count]) != xcclSuccess)
        return best;
    return pool->helpers[pool->count++];
}

/* The next thing posted wakes the helper, not this. */
static void hand_give(struct sock_helper *helper, struct sock_hand *hand)
{
    hand->helper = helper;
    pthread_mutex_lock(&helper->lock);
    hand->next_adding = helper->adding;
    helper->adding = hand;
    atomic_store_explicit(&helper->commands, 1, memory_order_seq_cst);
    pthread_mutex_unlock(&helper->lock);
}

xcclResult_t sock_helper_adopt(struct sock_pool *pool, struct sock_comm *comm)
{
    struct sock_helper *helper;
    struct sock_hand *hand = sock_hand_create(comm);
    xcclResult_t rc;

    if (!hand)
        return xcclSystemError;
    rc = sock_comm_wait_fd(comm, &hand->watch.fd);
    if (rc != xcclSuccess) {
        sock_hand_destroy(hand);
        return rc;
    }
    pthread_mutex_lock(&pool->lock);
    helper = helper_choose(pool);
    if (helper)
        helper->comm_count++;
    pthread_mutex_unlock(&pool->lock);
    if (!helper) {
        if (pool->log)
            pool->log(xcclNetLogWarn, xccl_error_text());
        sock_hand_destroy(hand);
        return xcclSuccess;
    }
    comm->hand = hand;
    hand_give(helper, hand);
    return xcclSuccess;
}

/* Waits for the helper, which never waits for anything but sleep, and is woken. */
void sock_helper_drop(struct sock_comm *comm)
{
    struct sock_pool *pool = comm->device->pool;
    struct sock_hand *hand = comm->hand;
    struct sock_helper *helper = hand->helper;

    pthread_mutex_lock(&helper->lock);
    hand->next_dropping = helper->dropping;
    helper->dropping = hand;
    atomic_store_explicit(&helper->commands, 1, memory_order_seq_cst);
    helper_wake(helper);
    while (!hand->dropped)
        pthread_cond_wait(&helper->changed, &helper->lock);
    pthread_mutex_unlock(&helper->lock);
    pthread_mutex_lock(&pool->lock);
    helper->comm_count--;
    pthread_mutex_unlock(&pool->lock);
    comm->hand = NULL;
    sock_hand_destroy(hand);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The list of locks and the one handler of this copy of the library; the header says what for. A
 * plugin has a copy of its own, and the C library drops the handler when the plugin is closed.
 *
 * No handler runs before fork(): one that takes all locks would wait for their holders, in an order
 * that no file may break, so that data are whole in the child. Here data are made anew. Each store
 * to the few lists that a child walks publishes a whole element: the child's memory is that of one
 * moment for each thread, since a thread that writes to a page which was already copied is stopped
 * until fork() is done. Thread: any. */
#include "base/fork.h"

#include <assert.h>
#include <stddef.h>
#include <unistd.h>

#define LOCKS_MAX 32

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic(struct xccl_lock *) locks[LOCKS_MAX]; /* filled from the first on, never emptied */
static _Atomic int user; /* the process that uses plugins, this one or an ancestor; 0: none */
static _Atomic int refused; /* 1: it is an ancestor */

static void in_child(void)
{
    /* All relaxed: this is the only thread. */
    if (atomic_load_explicit(&user, memory_order_relaxed))
        atomic_store_explicit(&refused, 1, memory_order_relaxed);
    for (int i = 0; i < LOCKS_MAX; i++) {
        struct xccl_lock *lock = atomic_load_explicit(&locks[i], memory_order_relaxed);

        if (!lock)
            break;
        pthread_mutex_init(&lock->mutex, NULL);
        if (lock->in_child)
            lock->in_child();
    }
}

/* Registers the handler. A child that is forked meanwhile may get it twice, which does no harm. */
static void watch(void)
{
    (void)pthread_atfork(NULL, NULL, in_child);
}

void xccl_lock_list(struct xccl_lock *lock)
{
    if (atomic_load_explicit(&lock->listed, memory_order_relaxed))
        return;
    pthread_once(&once, watch);
    for (int i = 0; i < LOCKS_MAX; i++) {
        struct xccl_lock *there = NULL;

        /* Release: the lock is listed before it is taken. */
        if (atomic_compare_exchange_strong_explicit(&locks[i], &there, lock, memory_order_acq_rel,
                                                    memory_order_relaxed) ||
            there == lock)
            break;
        assert(i + 1 < LOCKS_MAX);
    }
    atomic_store_explicit(&lock->listed, 1, memory_order_release);
}

int xccl_fork_is_forbidden(void)
{
    /* Relaxed: nothing else is read that was written with it. */
    return atomic_load_explicit(&user, memory_order_relaxed) != 0;
}

void xccl_fork_forbid(void)
{
    if (xccl_fork_is_forbidden())
        return;
    pthread_once(&once, watch);
    /* Sequentially consistent: before anything that a child could find half done. */
    atomic_store_explicit(&user, (int)getpid(), memory_order_seq_cst);
}

int xccl_fork_refused_by(void)
{
    /* Both relaxed: set before this process had a second thread. */
    return atomic_load_explicit(&refused, memory_order_relaxed)
               ? atomic_load_explicit(&user, memory_order_relaxed)
               : 0;
}

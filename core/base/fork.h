/* SPDX-License-Identifier: BSD-3-Clause */
/* The state of the library in a child of fork(). A child has one thread, the one that forked: locks
 * that other threads held would stay locked for ever, and the data they guard may be half changed.
 *
 * fork() waits for no lock: a thread may hold one while it loads a plugin. Instead, before fork()
 * returns in the child, each lock of this kind becomes a new one, and its module makes the
 * guarded data anew. Forks that bypass the C library (a bare clone()) are not seen.
 *
 * From the first join on a process uses plugins and threads, some of them of other libraries, of
 * which a child has only the memory. A child of such a process gets an error from each call that
 * needs them. Thread: any. */
#ifndef XCCL_BASE_FORK_H
#define XCCL_BASE_FORK_H

#include <pthread.h>
#include <stdatomic.h>

/* A lock of the process. Static: it stays listed once it was taken, and goes with its library. */
struct xccl_lock {
    pthread_mutex_t mutex;
    /* NULL: nothing. Called in the child, by its only thread, with the lock free. Stores of
     * other threads are there up to some moment: none without the earlier ones of its thread.
     * Takes no lock, frees no memory, and closes no descriptor that it has not looked at. */
    void (*in_child)(void);
    _Atomic int listed;
};

#define XCCL_LOCK(in_child_fn)                                                                     \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER, in_child_fn, 0                                                  \
    }

/* Lists a lock. Taking and trying a lock list it; a lock that is never taken needs this call. */
void xccl_lock_list(struct xccl_lock *lock);

static inline void xccl_lock_take(struct xccl_lock *lock)
{
    /* Relaxed: whoever sees it unset lists the lock once more, which changes nothing. */
    if (__builtin_expect(!atomic_load_explicit(&lock->listed, memory_order_relaxed), 0))
        xccl_lock_list(lock);
    pthread_mutex_lock(&lock->mutex);
}

/* 1: taken; 0: another thread has it. */
static inline int xccl_lock_try(struct xccl_lock *lock)
{
    xccl_lock_list(lock);
    return pthread_mutex_trylock(&lock->mutex) == 0;
}

static inline void xccl_lock_give(struct xccl_lock *lock)
{
    pthread_mutex_unlock(&lock->mutex);
}

/* Forbids the library to children that this process forks from now on. */
void xccl_fork_forbid(void);
/* 1: this process, or an ancestor before it forked, has called xccl_fork_forbid(). */
int xccl_fork_is_forbidden(void);
/* The ancestor that had forbidden the library to its children; 0: there is none. */
int xccl_fork_refused_by(void);

#endif

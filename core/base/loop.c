/* SPDX-License-Identifier: BSD-3-Clause */
/* The event loop: epoll for descriptors, a heap of timers, an eventfd to wake it.
 *
 * The lock is held all the time but while the driver sleeps in epoll_wait. Events that epoll told
 * then may belong to sources removed since: the driver counts removals before and after, and when
 * they differ asks epoll again under the lock (events are level-triggered, so none is lost). During
 * a batch a removal strikes its source out of the batch.
 *
 * The heap has a place for every source with an on_timer, taken when it is added, so that setting a
 * timer cannot fail. Limits: 64 events a turn, the rest comes next.
 * Thread: one driver at a time; all else from any thread. Lock order: the loop's lock is taken
 * before any lock that a callback takes. */
#include "base/loop.h"

#include <errno.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/inject.h"

#define BATCH_MAX 64

struct xccl_loop {
    int epoll_fd, wake_fd;
    pthread_mutex_t mutex; /* recursive; guards all below and the sources' fields */
    struct xccl_source **heap; /* heap[1] is due first; heap_idx says where a source is */
    uint32_t heap_count, heap_room;
    uint32_t timed; /* sources with an on_timer; heap_room is at least one more */
    struct epoll_event batch[BATCH_MAX];
    int batch_count;
    int driven; /* a thread is inside run_once */
    int asleep; /* and it does not hold the lock */
    uint64_t wake_at_ns; /* while asleep: when it wakes by itself */
    uint64_t removals;
};

static int wake_fd_open(void)
{
    if (xccl_inject_due()) {
        errno = EMFILE;
        return -1;
    }
    return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

static int epoll_fd_open(void)
{
    if (xccl_inject_due()) {
        errno = EMFILE;
        return -1;
    }
    return epoll_create1(EPOLL_CLOEXEC);
}

static void mutex_init_recursive(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attr;

    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(mutex, &attr);
    pthread_mutexattr_destroy(&attr);
}

xcclResult_t xccl_loop_create(struct xccl_loop **loop_out)
{
    struct xccl_loop *loop = xccl_calloc(1, sizeof(*loop));
    struct epoll_event event = {.events = EPOLLIN};
    xcclResult_t rc;

    if (!loop)
        return xcclSystemError;
    loop->epoll_fd = epoll_fd_open();
    if (loop->epoll_fd < 0) {
        rc = xccl_fail(xcclSystemError, errno, "raise ulimit -n", "cannot create an event loop");
        goto err_loop;
    }
    loop->wake_fd = wake_fd_open();
    if (loop->wake_fd < 0) {
        rc = xccl_fail(xcclSystemError, errno, "raise ulimit -n", "cannot create an event loop");
        goto err_epoll;
    }
    event.data.ptr = loop;
    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->wake_fd, &event) != 0) {
        rc = xccl_fail(xcclSystemError, errno, NULL, "cannot create an event loop");
        goto err_wake;
    }
    mutex_init_recursive(&loop->mutex);
    *loop_out = loop;
    return xcclSuccess;
err_wake:
    close(loop->wake_fd);
err_epoll:
    close(loop->epoll_fd);
err_loop:
    xccl_free(loop);
    return rc;
}

void xccl_loop_destroy(struct xccl_loop *loop)
{
    if (!loop)
        return;
    close(loop->wake_fd);
    close(loop->epoll_fd);
    pthread_mutex_destroy(&loop->mutex);
    xccl_free(loop->heap);
    xccl_free(loop);
}

void xccl_loop_lock(struct xccl_loop *loop)
{
    pthread_mutex_lock(&loop->mutex);
}

void xccl_loop_unlock(struct xccl_loop *loop)
{
    pthread_mutex_unlock(&loop->mutex);
}

void xccl_loop_wake(struct xccl_loop *loop)
{
    uint64_t one = 1;
    ssize_t written;

    do {
        written = write(loop->wake_fd, &one, sizeof(one));
    } while (written < 0 && errno == EINTR);
}

/* The source's loop. Atomic, since a callback may remove its source while another thread asks; the
 * fields behind it are guarded by the loop's lock. */
static struct xccl_loop *loop_of(struct xccl_source *source)
{
    /* Acquire: pairs with the release store in loop_set(). */
    return __atomic_load_n(&source->loop, __ATOMIC_ACQUIRE);
}

static void loop_set(struct xccl_source *source, struct xccl_loop *loop)
{
    /* Release: pairs with the acquire load in loop_of(). */
    __atomic_store_n(&source->loop, loop, __ATOMIC_RELEASE);
}

/* A driver that sleeps past the timer must count anew. */
static void wake_for_timer(struct xccl_loop *loop, uint64_t timer_ns)
{
    if (loop->asleep && timer_ns < loop->wake_at_ns)
        xccl_loop_wake(loop);
}

/* --- the heap of timers: a parent is due no later than its two children --- */

static void heap_put(struct xccl_loop *loop, uint32_t at, struct xccl_source *source)
{
    loop->heap[at] = source;
    source->heap_idx = at;
}

/* Moves the source at a place up or down to where it belongs. */
static void heap_settle(struct xccl_loop *loop, uint32_t at)
{
    struct xccl_source *source = loop->heap[at];

    while (at > 1 && source->timer_ns < loop->heap[at / 2]->timer_ns) {
        heap_put(loop, at, loop->heap[at / 2]);
        at /= 2;
    }
    for (;;) {
        uint32_t child = at * 2;

        if (child + 1 <= loop->heap_count &&
            loop->heap[child + 1]->timer_ns < loop->heap[child]->timer_ns)
            child++;
        if (child > loop->heap_count || loop->heap[child]->timer_ns >= source->timer_ns)
            break;
        heap_put(loop, at, loop->heap[child]);
        at = child;
    }
    heap_put(loop, at, source);
}

/* Brings the heap up to date with a source's timer_ns. */
static void heap_update(struct xccl_loop *loop, struct xccl_source *source, int wanted)
{
    uint32_t at = source->heap_idx;

    if (wanted && at) {
        heap_settle(loop, at);
    } else if (wanted) {
        heap_put(loop, ++loop->heap_count, source);
        heap_settle(loop, loop->heap_count);
    } else if (at) {
        struct xccl_source *last = loop->heap[loop->heap_count--];

        source->heap_idx = 0;
        if (last != source) {
            heap_put(loop, at, last);
            heap_settle(loop, at);
        }
    }
}

static int timer_set(const struct xccl_source *source)
{
    return source->on_timer && source->timer_ns != XCCL_NEVER_NS;
}

/* Room for one more source with a timer. */
static xcclResult_t heap_reserve(struct xccl_loop *loop)
{
    uint32_t room = loop->heap_room ? loop->heap_room * 2 : 16;
    struct xccl_source **grown;

    if (loop->timed + 2 <= loop->heap_room)
        return xcclSuccess;
    grown = xccl_realloc(loop->heap, room * sizeof(struct xccl_source *));
    if (!grown)
        return xcclSystemError;
    loop->heap = grown;
    loop->heap_room = room;
    return xcclSuccess;
}

xcclResult_t xccl_loop_add(struct xccl_loop *loop, struct xccl_source *source)
{
    struct epoll_event event = {.events = source->events};
    xcclResult_t rc;

    if (loop_of(source))
        return xccl_fail(xcclInternalError, 0, NULL, "descriptor %d is already in an event loop",
                         source->fd);
    pthread_mutex_lock(&loop->mutex);
    rc = source->on_timer ? heap_reserve(loop) : xcclSuccess;
    if (rc)
        goto out;
    event.data.ptr = source;
    if (source->fd >= 0 && epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, source->fd, &event) != 0) {
        rc = xccl_fail(xcclSystemError, errno, NULL, "cannot watch descriptor %d", source->fd);
        goto out;
    }
    source->heap_idx = 0;
    loop->timed += source->on_timer != NULL;
    heap_update(loop, source, timer_set(source));
    loop_set(source, loop);
    wake_for_timer(loop, source->timer_ns);
out:
    pthread_mutex_unlock(&loop->mutex);
    return rc;
}

xcclResult_t xccl_loop_set_events(struct xccl_source *source, uint32_t events)
{
    struct epoll_event event = {.events = events};
    struct xccl_loop *loop = loop_of(source);
    xcclResult_t rc = xcclSuccess;

    if (!loop) {
        source->events = events;
        return xcclSuccess;
    }
    pthread_mutex_lock(&loop->mutex);
    event.data.ptr = source;
    if (loop_of(source) == loop && source->fd >= 0 && source->events != events &&
        epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, source->fd, &event) != 0)
        rc = xccl_fail(xcclSystemError, errno, NULL, "cannot watch descriptor %d", source->fd);
    else
        source->events = events;
    pthread_mutex_unlock(&loop->mutex);
    return rc;
}

void xccl_loop_set_timer(struct xccl_source *source, uint64_t timer_ns)
{
    struct xccl_loop *loop = loop_of(source);

    if (!loop) {
        source->timer_ns = timer_ns;
        return;
    }
    pthread_mutex_lock(&loop->mutex);
    source->timer_ns = timer_ns;
    if (loop_of(source) == loop) {
        heap_update(loop, source, timer_set(source));
        wake_for_timer(loop, timer_ns);
    }
    pthread_mutex_unlock(&loop->mutex);
}

void xccl_loop_remove(struct xccl_source *source)
{
    struct xccl_loop *loop = loop_of(source);

    if (!loop)
        return;
    pthread_mutex_lock(&loop->mutex);
    if (loop_of(source) == loop) {
        /* Fails only for a descriptor that was closed first, and then epoll has dropped it. */
        if (source->fd >= 0)
            (void)epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
        for (int i = 0; i < loop->batch_count; i++) {
            if (loop->batch[i].data.ptr == source)
                loop->batch[i].data.ptr = NULL;
        }
        heap_update(loop, source, 0);
        loop->timed -= source->on_timer != NULL;
        loop->removals++;
        loop_set(source, NULL);
    }
    pthread_mutex_unlock(&loop->mutex);
}

/* Milliseconds to sleep, rounded up so that the timer is due then; also notes when that is. */
static int sleep_ms(struct xccl_loop *loop, int timeout_ms)
{
    uint64_t now_ns = xccl_clock_ns(), first_ns = XCCL_NEVER_NS;

    if (loop->heap_count)
        first_ns = loop->heap[1]->timer_ns;
    if (timeout_ms >= 0 && now_ns + (uint64_t)timeout_ms * XCCL_NS_PER_MS < first_ns)
        first_ns = now_ns + (uint64_t)timeout_ms * XCCL_NS_PER_MS;
    loop->wake_at_ns = first_ns;
    if (first_ns == XCCL_NEVER_NS)
        return -1;
    if (first_ns <= now_ns)
        return 0;
    if (first_ns - now_ns > (uint64_t)INT32_MAX * XCCL_NS_PER_MS)
        return INT32_MAX;
    return (int)((first_ns - now_ns + XCCL_NS_PER_MS - 1) / XCCL_NS_PER_MS);
}

static void drain_wake(const struct xccl_loop *loop)
{
    uint64_t count;

    /* One read empties an eventfd; EAGAIN means that a driver before did so. */
    (void)!read(loop->wake_fd, &count, sizeof(count));
}

/* Fills the batch. Entered and left with the lock; sleeps without it. */
static xcclResult_t batch_wait(struct xccl_loop *loop, int timeout_ms)
{
    uint64_t removals = loop->removals;
    int ms = sleep_ms(loop, timeout_ms);
    int count, err;

    loop->asleep = 1;
    pthread_mutex_unlock(&loop->mutex);
    count = epoll_wait(loop->epoll_fd, loop->batch, BATCH_MAX, ms);
    err = errno;
    pthread_mutex_lock(&loop->mutex);
    loop->asleep = 0;
    if (count > 0 && removals != loop->removals) {
        count = epoll_wait(loop->epoll_fd, loop->batch, BATCH_MAX, 0);
        err = errno;
    }
    if (count < 0 && err != EINTR)
        return xccl_fail(xcclSystemError, err, NULL, "an event loop cannot wait for events");
    loop->batch_count = count > 0 ? count : 0;
    return xcclSuccess;
}

static void batch_dispatch(struct xccl_loop *loop)
{
    for (int i = 0; i < loop->batch_count; i++) {
        struct xccl_source *source = loop->batch[i].data.ptr;
        uint32_t events = loop->batch[i].events;

        if (!source)
            continue;
        if (loop->batch[i].data.ptr == loop) {
            drain_wake(loop);
            continue;
        }
        /* A callback before may have changed what this source waits for. */
        events &= source->events | EPOLLERR | EPOLLHUP;
        if (events && source->on_events)
            source->on_events(source, events);
    }
    loop->batch_count = 0;
}

/* At most as many as were set before: a timer that sets itself anew runs next turn. */
static void timers_dispatch(struct xccl_loop *loop)
{
    uint64_t now_ns = xccl_clock_ns();

    for (uint32_t left = loop->heap_count; left && loop->heap_count; left--) {
        struct xccl_source *source = loop->heap[1];

        if (source->timer_ns > now_ns)
            break;
        source->timer_ns = XCCL_NEVER_NS;
        heap_update(loop, source, 0);
        source->on_timer(source, now_ns);
    }
}

xcclResult_t xccl_loop_run_once(struct xccl_loop *loop, int timeout_ms)
{
    xcclResult_t rc;

    pthread_mutex_lock(&loop->mutex);
    if (loop->driven) {
        rc = xccl_fail(xcclInternalError, 0, NULL,
                       "two threads run one event loop at the same time");
        goto out;
    }
    loop->driven = 1;
    rc = batch_wait(loop, timeout_ms);
    if (!rc) {
        batch_dispatch(loop);
        timers_dispatch(loop);
    }
    loop->driven = 0;
out:
    pthread_mutex_unlock(&loop->mutex);
    return rc;
}

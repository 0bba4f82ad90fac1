/* SPDX-License-Identifier: BSD-3-Clause */
/* The event loop: epoll for descriptors, a list walked for timers, an eventfd to wake it.
 *
 * The lock is held all the time but while the driver sleeps in epoll_wait. Events that epoll told
 * then may belong to sources removed since: the driver counts removals before and after, and when
 * they differ asks epoll again under the lock (events are level-triggered, so none is lost). During
 * a batch a removal strikes its source out of the batch, and moves the timer walk on.
 *
 * Limits: 64 events a turn, the rest comes next; timers cost one comparison a source and turn.
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
    struct xccl_source *first;
    struct xccl_source *timer_next; /* where the timer walk goes on */
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
        rc = xccl_fail(xcclSystemError, errno, "raise ulimit -n", "cannot make an event loop");
        goto err_loop;
    }
    loop->wake_fd = wake_fd_open();
    if (loop->wake_fd < 0) {
        rc = xccl_fail(xcclSystemError, errno, "raise ulimit -n", "cannot make an event loop");
        goto err_epoll;
    }
    event.data.ptr = loop;
    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->wake_fd, &event) != 0) {
        rc = xccl_fail(xcclSystemError, errno, NULL, "cannot make an event loop");
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

xcclResult_t xccl_loop_add(struct xccl_loop *loop, struct xccl_source *source)
{
    struct epoll_event event = {.events = source->events};
    xcclResult_t rc = xcclSuccess;

    if (loop_of(source))
        return xccl_fail(xcclInternalError, 0, NULL, "descriptor %d is in an event loop already",
                         source->fd);
    pthread_mutex_lock(&loop->mutex);
    event.data.ptr = source;
    if (source->fd >= 0 && epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, source->fd, &event) != 0) {
        rc = xccl_fail(xcclSystemError, errno, NULL, "cannot watch descriptor %d", source->fd);
        goto out;
    }
    /* At the head, behind the timer walk: a timer added by a timer runs next turn. */
    source->prev = NULL;
    source->next = loop->first;
    if (loop->first)
        loop->first->prev = source;
    loop->first = source;
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
    if (loop_of(source) == loop)
        wake_for_timer(loop, timer_ns);
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
        if (loop->timer_next == source)
            loop->timer_next = source->next;
        if (source->next)
            source->next->prev = source->prev;
        if (source->prev)
            source->prev->next = source->next;
        else
            loop->first = source->next;
        source->next = source->prev = NULL;
        loop->removals++;
        loop_set(source, NULL);
    }
    pthread_mutex_unlock(&loop->mutex);
}

/* Milliseconds to sleep, rounded up so that the timer is due then; also notes when that is. */
static int sleep_ms(struct xccl_loop *loop, int timeout_ms)
{
    uint64_t now_ns = xccl_clock_ns(), first_ns = XCCL_NEVER_NS;

    for (const struct xccl_source *at = loop->first; at; at = at->next) {
        if (at->on_timer && at->timer_ns < first_ns)
            first_ns = at->timer_ns;
    }
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
        return xccl_fail(xcclSystemError, err, NULL, "an event loop cannot wait");
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

static void timers_dispatch(struct xccl_loop *loop)
{
    uint64_t now_ns = xccl_clock_ns();
    struct xccl_source *source = loop->first;

    while (source) {
        loop->timer_next = source->next;
        if (source->on_timer && source->timer_ns <= now_ns) {
            source->timer_ns = XCCL_NEVER_NS;
            source->on_timer(source, now_ns);
        }
        source = loop->timer_next;
    }
    loop->timer_next = NULL;
}

xcclResult_t xccl_loop_run_once(struct xccl_loop *loop, int timeout_ms)
{
    xcclResult_t rc;

    pthread_mutex_lock(&loop->mutex);
    if (loop->driven) {
        rc = xccl_fail(xcclInternalError, 0, NULL, "an event loop is driven twice at a time");
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

/* SPDX-License-Identifier: BSD-3-Clause */
/* The process's service thread: one loop, driven until nobody needs it. All signals are blocked in
 * it, so that the program's handlers run in the program's threads.
 *
 * A service that lost its last reference leaves the global place at once, so a get that comes then
 * starts a new one beside it; the old one is joined by the put, or frees itself after a put_later.
 * Thread: get and put from any; put_later from callbacks. Lock order: the service lock is taken
 * alone, or inside a loop's lock, never around one. */
#include "base/loop.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/inject.h"
#include "base/log.h"

struct service {
    struct xccl_loop *loop;
    pthread_t thread;
    int references; /* guarded by service_lock */
    int frees_itself; /* guarded by service_lock */
    _Atomic int stop;
};

static struct service *service_now; /* guarded by service_lock; NULL: none */

/* Forgets the parent's service in a child of fork(): its thread is not here, and the epoll
 * descriptor is the parent's, whose thread would get our pointers. */
static void forget_service(void)
{
    service_now = NULL;
}

static struct xccl_lock service_lock = XCCL_LOCK(forget_service);

static void *service_run(void *arg)
{
    struct service *service = arg;
    int frees_itself;

    pthread_setname_np(pthread_self(), "xccl-service");
    /* Acquire: pairs with the release in service_release(). */
    while (!atomic_load_explicit(&service->stop, memory_order_acquire)) {
        if (xccl_loop_run_once(service->loop, -1) != xcclSuccess) {
            xccl_log(XCCL_LOG_ERROR, "the service thread stops: %s", xccl_error_text());
            break;
        }
    }
    xccl_lock_take(&service_lock);
    frees_itself = service->frees_itself;
    xccl_lock_give(&service_lock);
    if (frees_itself) {
        pthread_detach(pthread_self());
        xccl_loop_destroy(service->loop);
        xccl_free(service);
    }
    return NULL;
}

static int thread_start(struct service *service)
{
    sigset_t all, before;
    int err;

    if (xccl_inject_due())
        return EAGAIN;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    err = pthread_create(&service->thread, NULL, service_run, service);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return err;
}

static xcclResult_t service_start(struct service **service_out)
{
    struct service *service = xccl_calloc(1, sizeof(*service));
    xcclResult_t rc;
    int err;

    if (!service)
        return xcclSystemError;
    rc = xccl_loop_create(&service->loop);
    if (rc)
        goto err_service;
    err = thread_start(service);
    if (err) {
        rc = xccl_fail(xcclSystemError, err, "raise ulimit -u", "cannot start the service thread");
        goto err_loop;
    }
    *service_out = service;
    return xcclSuccess;
err_loop:
    xccl_loop_destroy(service->loop);
err_service:
    xccl_free(service);
    return rc;
}

xcclResult_t xccl_service_get(struct xccl_loop **loop_out)
{
    xcclResult_t rc = xcclSuccess;

    xccl_lock_take(&service_lock);
    if (!service_now)
        rc = service_start(&service_now);
    if (!rc) {
        service_now->references++;
        *loop_out = service_now->loop;
    }
    xccl_lock_give(&service_lock);
    return rc;
}

/* Drops a reference; returns the service when its thread is left to be joined by the caller. */
static struct service *service_release(int from_callback)
{
    struct service *ended = NULL;

    xccl_lock_take(&service_lock);
    if (service_now && --service_now->references == 0) {
        ended = service_now;
        service_now = NULL;
        /* The thread cannot join itself. */
        ended->frees_itself = from_callback || pthread_equal(ended->thread, pthread_self());
        /* Release: pairs with the acquire in service_run(). */
        atomic_store_explicit(&ended->stop, 1, memory_order_release);
        /* Under the lock: a thread that frees itself takes it first. */
        xccl_loop_wake(ended->loop);
        if (ended->frees_itself)
            ended = NULL;
    }
    xccl_lock_give(&service_lock);
    return ended;
}

void xccl_service_put(void)
{
    struct service *ended = service_release(0);

    if (!ended)
        return;
    pthread_join(ended->thread, NULL);
    xccl_loop_destroy(ended->loop);
    xccl_free(ended);
}

void xccl_service_put_later(void)
{
    (void)service_release(1);
}

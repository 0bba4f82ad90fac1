/* SPDX-License-Identifier: BSD-3-Clause */
/* The thread of an instance that has connections of several ports, and none without. A failover
 * needs both ends, and the user of one may make no call there for long: it has all it waited for,
 * while its peer has lost the acknowledgements. So the thread takes the comms' notes and their
 * ports' events when they come, ends and makes queue pairs, and does nothing else: it sleeps while
 * all is well, and is woken by whoever finds that a queue pair has failed.
 *
 * A comm is moved by whoever holds its claim, a flag: its own thread, or this one. Neither waits:
 * an entry that does not get it says "busy" or "not done", the thread tries again in a millisecond.
 * Queue pairs are made and started by the thread alone, for the kernel may take a second for the
 * way to the peer. Comms are in a list under a lock, which the thread gives back while it moves
 * one: others come and go meanwhile. A close takes its comm out first, and waits if it is that one.
 *
 * Thread: add and remove any, stop the one that finalizes. */
#include "ib_int.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS_MAX   16
#define TURNS        4 /* of a comm, each time */
#define RETRY_MS     1 /* after a comm was in use, or while queue pairs end */
#define UNSETTLED_MS 50 /* while one may come back */

/* Whether the next note is about a queue pair, or there is none. Whatever else comes, the comm's
 * own thread finds out when it asks: what it waits for must not fail before. */
static int is_for_service(struct ib_comm *comm)
{
    uint8_t bytes[KIT_SEALED(IB_NOTE_BYTES)];
    struct ib_note note;
    ssize_t got;

    if (comm->side.in_bytes)
        return 1; /* the rest of one */
    got = recv(comm->side.fd, bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT);
    if (got == sizeof(bytes))
        return kit_side_peek(&comm->side, bytes, IB_NOTE_BYTES) && ib_note_decode(bytes, &note) &&
               note.kind >= IB_NOTE_ENDED;
    return got > 0 || (got < 0 && !kit_side_keep_err(&comm->side));
}

/* Moves a comm on, with its claim. Gives when it should be looked at again, in ms; -1: when
 * something comes. */
static int move(const struct ib_service *service, struct ib_comm *comm)
{
    int wait_ms = -1;

    comm->is_serviced = 1;
    for (int i = 0; i < TURNS && comm->served; i++) {
        comm->served = comm->rc == xcclSuccess && !comm->side.has_ended && is_for_service(comm);
        comm->idle = IB_IDLE_TURNS - 1; /* the side channel, now */
        if (comm->served)
            ib_comm_move(comm);
    }
    if (!comm->served) {
        (void)epoll_ctl(service->epoll_fd, EPOLL_CTL_DEL, comm->side.fd, NULL);
    } else if (comm->unsettled) {
        wait_ms = UNSETTLED_MS;
    }
    for (uint32_t i = 0; i < comm->queue.count && wait_ms == UNSETTLED_MS; i++) {
        if (comm->queue.pairs[i].state == IB_PAIR_ENDS)
            wait_ms = RETRY_MS;
    }
    comm->is_serviced = 0;
    return wait_ms;
}

/* With the lock, which is not held while the comm moves. As move. */
static int serve(struct ib_service *service, struct ib_comm *comm)
{
    int wait_ms;

    if (!comm->served)
        return -1;
    if (!ib_comm_claim(comm))
        return RETRY_MS;
    service->busy = comm;
    pthread_mutex_unlock(&service->lock);
    wait_ms = move(service, comm);
    ib_comm_release(comm);
    pthread_mutex_lock(&service->lock);
    service->busy = NULL;
    pthread_cond_broadcast(&service->idle);
    return wait_ms;
}

/* With the lock. */
static int serve_all(struct ib_service *service)
{
    int wait_ms = -1;

    service->turn = service->comms;
    while (service->turn && !service->stop) {
        struct ib_comm *comm = service->turn;
        int ms;

        service->turn = comm->next;
        ms = serve(service, comm);
        if (ms >= 0 && (wait_ms < 0 || ms < wait_ms))
            wait_ms = ms;
    }
    return wait_ms;
}

static void *service_run(void *ctx_)
{
    struct ib_ctx *ctx = ctx_;
    struct ib_service *service = &ctx->service;
    struct epoll_event events[EVENTS_MAX];
    int wait_ms = -1, stop = 0;
    uint64_t woken;

    while (!stop) {
        /* A comm in use stays readable until its thread has read: no use in asking at once. */
        if (wait_ms == RETRY_MS)
            usleep(RETRY_MS * 1000);
        (void)epoll_wait(service->epoll_fd, events, EVENTS_MAX, wait_ms);
        (void)!read(service->wake_fd, &woken, sizeof(woken));
        for (int i = 0; i < ctx->device_count; i++) {
            if (ctx->devices[i].owns_context)
                ib_events_take(ctx, &ctx->devices[i]);
        }
        pthread_mutex_lock(&service->lock);
        wait_ms = serve_all(service);
        stop = service->stop;
        pthread_mutex_unlock(&service->lock);
    }
    return NULL;
}

static int watch(const struct ib_service *service, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};

    return epoll_ctl(service->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 || errno == EEXIST;
}

/* With all signals blocked: they are the host program's. */
static int thread_start(struct ib_ctx *ctx)
{
    sigset_t all, before;
    int err;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    err = pthread_create(&ctx->service.thread, NULL, service_run, ctx);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err == 0)
        pthread_setname_np(ctx->service.thread, "xccl-ib");
    errno = err;
    return err == 0;
}

static void fds_close(struct ib_service *service)
{
    if (service->epoll_fd >= 0)
        close(service->epoll_fd);
    if (service->wake_fd >= 0)
        close(service->wake_fd);
    service->epoll_fd = service->wake_fd = -1;
}

/* With the lock. */
static int start(struct ib_ctx *ctx)
{
    struct ib_service *service = &ctx->service;
    int done;

    service->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    service->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    done = service->epoll_fd >= 0 && service->wake_fd >= 0 && watch(service, service->wake_fd);
    for (int i = 0; i < ctx->device_count && done; i++) {
        if (ctx->devices[i].owns_context && ctx->devices[i].context->async_fd >= 0)
            done = watch(service, ctx->devices[i].context->async_fd);
    }
    service->runs = done && thread_start(ctx);
    if (!service->runs)
        fds_close(service);
    return service->runs;
}

xcclResult_t ib_service_init(struct ib_service *service)
{
    int err = pthread_mutex_init(&service->lock, NULL);

    if (!err && (err = pthread_cond_init(&service->idle, NULL)) != 0)
        pthread_mutex_destroy(&service->lock);
    service->epoll_fd = service->wake_fd = -1;
    return err ? xccl_fail_quietly(xcclSystemError, err, NULL,
                                   "cannot create a lock for connections")
               : xcclSuccess;
}

xcclResult_t ib_service_add(struct ib_comm *comm)
{
    struct ib_service *service = &comm->ctx->service;
    int done, err;

    if (!comm->has_spare)
        return xcclSuccess;
    pthread_mutex_lock(&service->lock);
    done = (service->runs || start(comm->ctx)) && watch(service, comm->side.fd);
    err = errno;
    if (done) {
        comm->next = service->comms;
        comm->link = &service->comms;
        if (comm->next)
            comm->next->link = &comm->next;
        service->comms = comm;
        comm->is_listed = 1;
        comm->served = 1;
    }
    pthread_mutex_unlock(&service->lock);
    return done ? xcclSuccess
                : xccl_fail_quietly(xcclSystemError, err, "raise ulimit -n and -u",
                                    "cannot start the thread that watches the ports of %s",
                                    comm->device->name);
}

void ib_service_remove(struct ib_comm *comm)
{
    struct ib_service *service = &comm->ctx->service;

    if (!comm->is_listed)
        return;
    pthread_mutex_lock(&service->lock);
    *comm->link = comm->next;
    if (comm->next)
        comm->next->link = comm->link;
    if (service->turn == comm)
        service->turn = comm->next;
    comm->is_listed = 0;
    /* No longer than the kernel takes to set up its queue pairs. */
    while (service->busy == comm)
        pthread_cond_wait(&service->idle, &service->lock);
    if (comm->served)
        (void)epoll_ctl(service->epoll_fd, EPOLL_CTL_DEL, comm->side.fd, NULL);
    pthread_mutex_unlock(&service->lock);
}

void ib_service_wake(struct ib_service *service)
{
    const uint64_t one = 1;

    /* It cannot be full: the thread reads it. */
    (void)!write(service->wake_fd, &one, sizeof(one));
}

void ib_service_fini(struct ib_service *service)
{
    if (service->runs) {
        pthread_mutex_lock(&service->lock);
        service->stop = 1;
        pthread_mutex_unlock(&service->lock);
        ib_service_wake(service);
        pthread_join(service->thread, NULL);
    }
    fds_close(service);
    pthread_cond_destroy(&service->idle);
    pthread_mutex_destroy(&service->lock);
}

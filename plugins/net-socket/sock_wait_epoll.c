/* SPDX-License-Identifier: BSD-3-Clause */
/* Sleeping in epoll. What is watched stays in the set until it is forgotten, so a descriptor that
 * is waited for again and again costs one system call a sleep.
 *
 * Thread: the helper's. */
#include "sock_wait.h"

#include <errno.h>
#include <sys/epoll.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/tcp.h"

#define EVENTS_MAX 64 /* of one wait */

struct epoll_set {
    struct sock_wait base;
    int fd;
};

static void epoll_destroy(struct sock_wait *wait_)
{
    struct epoll_set *wait = (struct epoll_set *)wait_;

    xccl_tcp_close(&wait->fd);
    xccl_tcp_close(&wait->base.wake_fd);
    xccl_free(wait);
}

static xcclResult_t epoll_make(struct sock_wait **wait_out)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    struct epoll_set *wait = xccl_calloc(1, sizeof(*wait));
    xcclResult_t rc;

    if (!wait)
        return xcclSystemError;
    wait->fd = -1;
    rc = sock_wait_open(&wait->base, &sock_wait_epoll);
    if (rc != xcclSuccess)
        goto err_wait;
    wait->fd = epoll_create1(EPOLL_CLOEXEC);
    if (wait->fd < 0 || epoll_ctl(wait->fd, EPOLL_CTL_ADD, wait->base.wake_fd, &event) != 0) {
        rc = xccl_fail_quietly(xcclSystemError, errno, "raise ulimit -n",
                               "cannot make a descriptor for a helper thread to wait on");
        goto err_wait;
    }
    *wait_out = &wait->base;
    return xcclSuccess;
err_wait:
    epoll_destroy(&wait->base);
    return rc;
}

static int epoll_watch(struct sock_wait *wait_, struct sock_watch *watch)
{
    struct epoll_set *wait = (struct epoll_set *)wait_;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = watch};

    if (!watch->set)
        watch->set = epoll_ctl(wait->fd, EPOLL_CTL_ADD, watch->fd, &event) == 0;
    return watch->set;
}

/* Taken out by name before it is closed: were it only closed, a copy in a child of fork would keep
 * it in the set. */
static void epoll_forget(struct sock_wait *wait_, struct sock_watch *watch)
{
    struct epoll_set *wait = (struct epoll_set *)wait_;

    if (watch->set)
        (void)epoll_ctl(wait->fd, EPOLL_CTL_DEL, watch->fd, NULL);
    watch->set = 0;
}

static int epoll_sleep(struct sock_wait *wait_, int timeout_ms, struct sock_watch **fired_out,
                       int room)
{
    struct epoll_set *wait = (struct epoll_set *)wait_;
    struct epoll_event events[EVENTS_MAX];
    int count = epoll_wait(wait->fd, events, room < EVENTS_MAX ? room : EVENTS_MAX, timeout_ms);
    int fired = 0;

    for (int i = 0; i < count; i++) {
        if (events[i].data.ptr)
            fired_out[fired++] = events[i].data.ptr;
        else
            sock_wait_drain(wait_);
    }
    return fired;
}

const struct sock_wait_ops sock_wait_epoll = {
    .name = "epoll",
    .create = epoll_make,
    .destroy = epoll_destroy,
    .watch = epoll_watch,
    .forget = epoll_forget,
    .wait = epoll_sleep,
};

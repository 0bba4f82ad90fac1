/* SPDX-License-Identifier: BSD-3-Clause */
/* Which backend a helper thread sleeps in, and what both have: the descriptor by which others wake
 * it. Thread: see sock_wait.h. */
#include "sock_wait.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"
#include "base/param.h"
#include "base/tcp.h"

/* The words of XCCL_SOCKET_WAIT. */
enum choice { CHOOSE_AUTO, CHOOSE_EPOLL, CHOOSE_URING };

xcclResult_t sock_wait_create(xcclNetLogger_t log, struct sock_wait **wait_out)
{
    static atomic_flag told = ATOMIC_FLAG_INIT; /* one line a process */
    char line[XCCL_ERROR_TEXT_BYTES + 64];

    /* Auto is epoll: see the README for what was measured. */
    if (xccl_param_int(XCCL_P_SOCKET_WAIT) == CHOOSE_URING) {
        if (sock_wait_uring.create(wait_out) == xcclSuccess)
            return xcclSuccess;
        snprintf(line, sizeof(line), "epoll instead of io_uring: %s", xccl_error_text());
        if (log && !atomic_flag_test_and_set_explicit(&told, memory_order_relaxed))
            log(xcclNetLogDebug, line);
    }
    return sock_wait_epoll.create(wait_out);
}

void sock_wait_destroy(struct sock_wait *wait)
{
    if (wait)
        wait->ops->destroy(wait);
}

xcclResult_t sock_wait_open(struct sock_wait *wait, const struct sock_wait_ops *ops)
{
    wait->ops = ops;
    wait->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wait->wake_fd >= 0)
        return xcclSuccess;
    return xccl_fail_quietly(xcclSystemError, errno, "raise ulimit -n",
                             "cannot make a descriptor to wake a helper thread");
}

void sock_wait_wake(struct sock_wait *wait)
{
    const uint64_t one = 1;
    ssize_t wrote;

    /* It cannot fail but for a counter that is full, which wakes as well. */
    do
        wrote = write(wait->wake_fd, &one, sizeof(one));
    while (wrote < 0 && errno == EINTR);
}

void sock_wait_drain(struct sock_wait *wait)
{
    uint64_t count;
    ssize_t got;

    do
        got = read(wait->wake_fd, &count, sizeof(count));
    while (got < 0 && errno == EINTR);
}

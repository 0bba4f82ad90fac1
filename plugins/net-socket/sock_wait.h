/* SPDX-License-Identifier: BSD-3-Clause */
/* How a helper thread sleeps: until a descriptor that it watches is readable, another thread wakes
 * it, or a time is over. Two backends do it, epoll and io_uring; XCCL_SOCKET_WAIT chooses.
 *
 * Thread: all of it belongs to one thread, but for sock_wait_wake, which any thread may call until
 * destroy begins, and create. */
#ifndef SOCK_WAIT_H
#define SOCK_WAIT_H

#include "xccl_net.h"

struct sock_wait;

/* A descriptor to be watched; memory of its owner, zeroed but for fd and owner. */
struct sock_watch {
    int fd;
    void *owner;
    /* the backend's own */
    int set; /* it is being watched */
    int fired; /* in the list of those to be reported */
    struct sock_watch *next;
};

struct sock_wait_ops {
    const char *name;
    /* Error, told quietly: the system does not have it, or no descriptor is left. */
    xcclResult_t (*create)(struct sock_wait **wait_out);
    void (*destroy)(struct sock_wait *wait);
    /* From now on wait reports it whenever it is readable, has failed or was closed. One that was
     * reported may be watched no more: watch it again, which costs nothing if it still is.
     * Returns 0 when the system refuses: then nothing will be reported. */
    int (*watch)(struct sock_wait *wait, struct sock_watch *watch);
    /* The kernel holds nothing of it any more, and it will not be reported. */
    void (*forget)(struct sock_wait *wait, struct sock_watch *watch);
    /* At most timeout_ms, -1 for ever. Returns how many of fired_out are filled, 0 after a wake or
     * when the time is over. Those without room are reported the next time. */
    int (*wait)(struct sock_wait *wait, int timeout_ms, struct sock_watch **fired_out, int room);
};

/* What both backends begin with. */
struct sock_wait {
    const struct sock_wait_ops *ops;
    int wake_fd; /* an eventfd */
};

extern const struct sock_wait_ops sock_wait_epoll, sock_wait_uring;

/* By XCCL_SOCKET_WAIT. log, which may be NULL, gets a line when io_uring was asked for and is not
 * to be had. */
xcclResult_t sock_wait_create(xcclNetLogger_t log, struct sock_wait **wait_out);
void sock_wait_destroy(struct sock_wait *wait); /* NULL is fine */
/* The present wait, or else the next one, returns soon. */
void sock_wait_wake(struct sock_wait *wait);

/* For the backends: makes the eventfd, and makes it unreadable again. */
xcclResult_t sock_wait_open(struct sock_wait *wait, const struct sock_wait_ops *ops);
void sock_wait_drain(struct sock_wait *wait);

#endif

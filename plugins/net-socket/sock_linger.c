/* SPDX-License-Identifier: BSD-3-Clause */
/* Lines of closed senders. A socket that is closed while acknowledgements wait in it, or come
 * later, is reset by the kernel, and what it still had to send is lost. So a sender's lines, where
 * the receiver answers, are only shut down at close; they go when the peer's kernel has all bytes
 * or the peer has closed, which every connect, listen and close looks after. Nobody waits for that
 * but finalize.
 *
 * Thread: any; the list has a lock of its own, which no data path takes. */
#include "sock_int.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/tcp.h"

#define PAUSE_MS 2

struct sock_linger {
    struct sock_linger *next;
    int line_count;
    int fds[SOCK_LINES_MAX];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* What has come is thrown away. */
static int line_through(int fd)
{
    char scratch[SOCK_ACK_BYTES * 8];
    int unsent = 0;
    ssize_t got;

    do
        got = recv(fd, scratch, sizeof(scratch), MSG_DONTWAIT);
    while (got > 0 || (got < 0 && errno == EINTR));
    if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK))
        return 1;
    return ioctl(fd, SIOCOUTQ, &unsent) != 0 || unsent == 0;
}

/* Closes the lines that are through, or all. 1: none is left. */
static int move(struct sock_linger *linger, int all)
{
    int left = 0;

    for (int i = 0; i < linger->line_count; i++) {
        if (linger->fds[i] >= 0 && (all || line_through(linger->fds[i])))
            xccl_tcp_close(&linger->fds[i]);
        left += linger->fds[i] >= 0;
    }
    return left == 0;
}

void sock_linger_take(struct sock_comm *comm)
{
    struct sock_linger *linger = xccl_calloc(1, sizeof(*linger));

    if (!linger)
        return; /* the caller closes them at once */
    linger->line_count = comm->line_count;
    for (int i = 0; i < comm->line_count; i++) {
        if (comm->lines[i].fd >= 0)
            sock_zerocopy_close(comm, i);
        linger->fds[i] = comm->lines[i].fd;
        comm->lines[i].fd = -1;
    }
    if (move(linger, 0)) {
        xccl_free(linger);
        return;
    }
    for (int i = 0; i < linger->line_count; i++) {
        if (linger->fds[i] >= 0)
            shutdown(linger->fds[i], SHUT_WR);
    }
    pthread_mutex_lock(&lock);
    linger->next = comm->ctx->linger;
    comm->ctx->linger = linger;
    pthread_mutex_unlock(&lock);
}

/* 1: the list is empty now. */
static int sweep(struct sock_ctx *ctx, int all)
{
    struct sock_linger **at = &ctx->linger;
    int empty;

    pthread_mutex_lock(&lock);
    while (*at) {
        struct sock_linger *linger = *at;

        if (!move(linger, all)) {
            at = &linger->next;
            continue;
        }
        *at = linger->next;
        xccl_free(linger);
    }
    empty = !ctx->linger;
    pthread_mutex_unlock(&lock);
    return empty;
}

void sock_linger_sweep(struct sock_ctx *ctx, int wait_ms)
{
    struct xccl_limit limit = xccl_limit_ms((uint64_t)wait_ms, NULL);

    while (!sweep(ctx, 0) && wait_ms && !xccl_limit_passed(&limit))
        (void)poll(NULL, 0, PAUSE_MS);
    if (wait_ms)
        sweep(ctx, 1);
}

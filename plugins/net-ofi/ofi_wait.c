/* SPDX-License-Identifier: BSD-3-Clause */
/* A descriptor to sleep on: the completion queue's, the control connection and a bell in one epoll.
 *
 * The queue's descriptor tells only of what comes after a look at the queue that found nothing
 * (fi_trywait). So the bell is silent only between such a look and the next poll of the queue, and
 * as long as
 *   - no request is done that the caller has not seen, for the poll for another one has taken it;
 *   - nothing waits for the provider to take it, or for a time to pass;
 * otherwise it is rung, and the caller asks on. It is rung, too, until he has asked in vain some
 * times: the look is some system calls, which those who do not get to sleep need not pay.
 *
 * Over two providers nobody sleeps. ofi_rxd sends again what was lost when a time has passed, and
 * looks at the clock only when it is polled. The queues of net (1.17) stay readable once something
 * has come, as its fi_trywait does nothing. Thread: the comm's. */
#include <errno.h>
#include <rdma/fi_eq.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/param.h"
#include "base/tcp.h"
#include "ofi_int.h"

#define ASK_POLLS 32 /* in vain */

int ofi_wait_wanted(const struct ofi_device *device)
{
    const char *provider = device->info->fabric_attr->prov_name;

    return xccl_param_int(XCCL_P_OFI_WAIT) && !ofi_device_is_rxd(device) &&
           strcmp(provider, "net") != 0;
}

static void ring(struct ofi_sleep *sleep)
{
    uint64_t count = 1;

    if (!sleep->rung)
        sleep->rung = write(sleep->bell_fd, &count, sizeof(count)) == sizeof(count);
}

static void silence(struct ofi_sleep *sleep)
{
    uint64_t count;

    if (sleep->rung)
        sleep->rung = read(sleep->bell_fd, &count, sizeof(count)) != sizeof(count);
}

/* 1: a later call may move something, though nothing may come from outside. */
static int goes_on(const struct ofi_comm *comm)
{
    return comm->ready || comm->rc != xcclSuccess || comm->peer_left || comm->match.misfit ||
           ofi_control_owes(comm) || comm->refused || comm->notes.lost ||
           ofi_failover_goes_on(comm) || (comm->match.guess && comm->match.answered);
}

int ofi_wait_asks(const struct ofi_comm *comm)
{
    return comm->idle_polls < ASK_POLLS;
}

/* 1: all queues are empty, and their descriptors tell of what comes. */
static int is_still(struct ofi_comm *comm)
{
    for (uint32_t i = 0; i < comm->rail_count; i++) {
        struct ofi_rail *rail = &comm->rails[i];
        struct fid *fids[] = {rail->end.cq ? &rail->end.cq->fid : NULL};

        if (fids[0] && fi_trywait(rail->device->fabric, fids, 1) != 0)
            return 0;
    }
    return 1;
}

void ofi_wait_arm(struct ofi_comm *comm)
{
    if (!comm->sleep.on)
        return;
    if (goes_on(comm) || ofi_wait_asks(comm) || !is_still(comm))
        ring(&comm->sleep);
    else
        silence(&comm->sleep);
}

static int watch(int epoll_fd, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};

    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

static int watch_rails(const struct ofi_comm *comm, int epoll_fd)
{
    for (uint32_t i = 0; i < comm->rail_count; i++) {
        if (comm->rails[i].end.cq && !watch(epoll_fd, comm->rails[i].end.cq_fd))
            return 0;
    }
    return 1;
}

static int watch_links(const struct ofi_comm *comm, int epoll_fd)
{
    for (uint32_t i = 0; i < comm->link_count; i++) {
        if (comm->links[i].side.fd >= 0 && !watch(epoll_fd, comm->links[i].side.fd))
            return 0;
    }
    return 1;
}

static int can_wait(const struct ofi_comm *comm)
{
    for (uint32_t i = 0; i < comm->rail_count; i++) {
        if (comm->rails[i].end.cq && !comm->rails[i].end.can_wait)
            return 0;
    }
    return 1;
}

xcclResult_t ofi_wait_fd(void *comm_, int *fd_out)
{
    struct ofi_comm *comm = comm_;
    struct ofi_sleep *sleep = &comm->sleep;
    int err;

    if (sleep->on || !can_wait(comm)) {
        *fd_out = sleep->on ? sleep->wait_fd : -1;
        return xcclSuccess;
    }
    sleep->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    sleep->wait_fd = epoll_create1(EPOLL_CLOEXEC);
    if (sleep->bell_fd >= 0 && sleep->wait_fd >= 0 && watch(sleep->wait_fd, sleep->bell_fd) &&
        watch_rails(comm, sleep->wait_fd) && watch_links(comm, sleep->wait_fd)) {
        sleep->on = 1;
        ring(sleep);
        *fd_out = sleep->wait_fd;
        return xcclSuccess;
    }
    err = errno;
    xccl_tcp_close(&sleep->bell_fd);
    xccl_tcp_close(&sleep->wait_fd);
    return xccl_fail_quietly(xcclSystemError, err, "raise ulimit -n",
                             "cannot make a descriptor to wait on");
}

void ofi_wait_close(struct ofi_comm *comm)
{
    if (!comm->sleep.on)
        return;
    comm->sleep.on = 0;
    xccl_tcp_close(&comm->sleep.bell_fd);
    xccl_tcp_close(&comm->sleep.wait_fd);
}

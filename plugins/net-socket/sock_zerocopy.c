/* SPDX-License-Identifier: BSD-3-Clause */
/* MSG_ZEROCOPY for chunks: the kernel sends from the user's pages instead of copying them, and says
 * later on the socket's error queue that it is through. Only streams use it: a spread message is
 * done when the receiver has all of it, so no page is needed by anybody then, and the notices are
 * only read to make room for more.
 *
 * Whether it is better depends on card, driver and size, so each line finds out by itself:
 *
 *   PLAIN, PROBE_SENDS timed --> ZERO, as many timed --> the better one, for good
 *                                  '--the kernel says that it copied all the same--> PLAIN, for
 * good
 *
 * Over loopback and veth the kernel always copies. XCCL_SOCKET_ZEROCOPY=on and off leave the probe
 * out. Thread: one at a time a comm. Nothing here allocates, locks or logs. */
#include "sock_int.h"

#include <errno.h>
#include <linux/errqueue.h>
#include <string.h>
#include <sys/socket.h>

#include "base/tcp.h"

#define LEAST_BYTES                                                                                \
    ((size_t)64 << 10) /* of a chunk: pinning pages costs as much as copying few                   \
                        */
#define PROBE_SENDS   32
#define PENDING_DRAIN 16 /* sends between two looks at the notices */

void sock_zerocopy_init(const struct sock_comm *comm, struct sock_line *line)
{
    const int on = 1;

    line->zero = SOCK_ZERO_OFF;
    if (!comm->is_send || line->record || comm->ctx->zerocopy == SOCK_ZEROCOPY_OFF ||
        setsockopt(line->fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)) != 0)
        return;
    line->zero = comm->ctx->zerocopy == SOCK_ZEROCOPY_ON ? SOCK_ZERO_ON : SOCK_ZERO_TIME_PLAIN;
}

static int uses_pages(const struct sock_line *line)
{
    return line->zero == SOCK_ZERO_ON || line->zero == SOCK_ZERO_TIME_PAGES;
}

/* One notice for a range of sends. 0: there is none. */
static int take_notice(struct sock_line *line, int forced)
{
    char control[CMSG_SPACE(sizeof(struct sock_extended_err)) + 64];
    struct msghdr message = {.msg_control = control, .msg_controllen = sizeof(control)};
    const struct cmsghdr *header;
    struct sock_extended_err err;

    if (recvmsg(line->fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
        return 0;
    header = CMSG_FIRSTHDR(&message);
    if (!header || header->cmsg_len < CMSG_LEN(sizeof(err)))
        return 1;
    memcpy(&err, CMSG_DATA(header), sizeof(err));
    if (err.ee_origin != SO_EE_ORIGIN_ZEROCOPY)
        return 1;
    if (err.ee_code & SO_EE_CODE_ZEROCOPY_COPIED && !forced)
        line->zero = SOCK_ZERO_OFF;
    return 1;
}

void sock_zerocopy_drain(const struct sock_comm *comm, struct sock_line *line)
{
    line->zero_sends = 0;
    while (take_notice(line, comm->ctx->zerocopy == SOCK_ZEROCOPY_ON))
        ;
}

/* Both ways have been timed: per byte, since the last chunk of a message is short. */
static void decide(struct sock_line *line)
{
    double plain = (double)line->spent_ns[0] / (double)(line->spent_bytes[0] + 1);
    double pages = (double)line->spent_ns[1] / (double)(line->spent_bytes[1] + 1);

    line->zero = pages < plain ? SOCK_ZERO_ON : SOCK_ZERO_OFF;
}

static void note(struct sock_line *line, uint64_t since_ns, size_t bytes)
{
    int pages = line->zero == SOCK_ZERO_TIME_PAGES;

    line->spent_ns[pages] += xccl_clock_ns() - since_ns;
    line->spent_bytes[pages] += bytes;
    if (++line->timed < PROBE_SENDS)
        return;
    line->timed = 0;
    if (pages)
        decide(line);
    else
        line->zero = SOCK_ZERO_TIME_PAGES;
}

static ssize_t send_pages(const struct sock_comm *comm, struct sock_line *line, const void *data,
                          size_t bytes)
{
    ssize_t sent = send(line->fd, data, bytes, MSG_ZEROCOPY | MSG_NOSIGNAL | MSG_DONTWAIT);

    /* Too many notices wait; or pages of this kind cannot be sent from. */
    if (sent < 0 && (errno == ENOBUFS || errno == EFAULT)) {
        sock_zerocopy_drain(comm, line);
        return send(line->fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    line->has_pages |= sent > 0;
    if (++line->zero_sends >= PENDING_DRAIN)
        sock_zerocopy_drain(comm, line);
    return sent;
}

int sock_zerocopy_takes(const struct sock_line *line, size_t bytes)
{
    return line->zero != SOCK_ZERO_OFF && bytes >= LEAST_BYTES;
}

ssize_t sock_zerocopy_send(const struct sock_comm *comm, struct sock_line *line, const void *data,
                           size_t bytes)
{
    int timed = line->zero == SOCK_ZERO_TIME_PLAIN || line->zero == SOCK_ZERO_TIME_PAGES;
    uint64_t since_ns = timed ? xccl_clock_ns() : 0;
    ssize_t sent = uses_pages(line) ? send_pages(comm, line, data, bytes)
                                    : send(line->fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    int err = errno;

    if (timed && sent > 0 && line->zero != SOCK_ZERO_OFF)
        note(line, since_ns, (size_t)sent);
    errno = err;
    return sent;
}

/* The kernel would send what the user writes there next, as if it were the message. */
void sock_zerocopy_close(const struct sock_comm *comm, int idx)
{
    const struct sock_sender *sender = (const struct sock_sender *)comm;

    if (comm->lines[idx].has_pages && sender->scatter->open > 0 && sender->scatter->control != idx)
        xccl_tcp_reset_on_close(comm->lines[idx].fd);
}

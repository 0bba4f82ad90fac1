/* SPDX-License-Identifier: BSD-3-Clause */
/* The lines of a comm where XCCL_NET_ENCRYPT asks for it: all that goes over one is in records
 * (kit/kit_crypt.h), with keys of this connection of this line. And how every other file reads and
 * writes a line, whether it has records or not.
 *
 * Thread: one at a time a comm. Only create and key allocate. */
#ifndef SOCK_RECORD_H
#define SOCK_RECORD_H

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "sock_int.h"

/* Memory of a line for records, without keys yet. NULL: no memory. */
struct sock_record *sock_record_create(int is_send);
void sock_record_destroy(struct sock_record *record); /* NULL is fine */
/* A connection becomes this line: its keys are from its proof, and nothing is under way. 0: no
 * memory, or the library of the cipher refused. */
int sock_record_key(struct sock_record *record, const struct sock_comm *comm,
                    const struct kit_proof *proof);

/* Variants of sendmsg and recvmsg that never block. The kernel has as many bytes as send returns; a
 * caller with bytes left gives them again, in front of others. recv also fails with EBADMSG: a
 * record is not the one that was sent, and the comm must fail. */
ssize_t sock_record_send(struct sock_comm *comm, int line, const struct iovec *pieces, int count);
ssize_t sock_record_recv(struct sock_comm *comm, int line, const struct iovec *pieces, int count);
/* 1: recv has something without asking the kernel, which therefore wakes nobody for it. */
int sock_record_holds(const struct sock_record *record);
/* 1: bytes that send was given are sealed, and the kernel has not all of them. */
int sock_record_sealed(const struct sock_record *record);

/* ---- for all lines; nothing of it blocks, or ends early for a signal ---- */

static inline ssize_t sock_line_send(struct sock_comm *comm, int line_idx,
                                     const struct iovec *pieces, size_t count, int flags)
{
    const struct sock_line *line = &comm->lines[line_idx];
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)pieces, .msg_iovlen = count};
    ssize_t sent;

    if (__builtin_expect(line->record != NULL, 0))
        return sock_record_send(comm, line_idx, pieces, (int)count);
    flags |= MSG_NOSIGNAL | MSG_DONTWAIT;
    do
        sent = count == 1 ? send(line->fd, pieces->iov_base, pieces->iov_len, flags)
                          : sendmsg(line->fd, &message, flags);
    while (sent < 0 && errno == EINTR);
    return sent;
}

static inline ssize_t sock_line_open(struct sock_comm *comm, int line, const struct iovec *pieces,
                                     int count)
{
    ssize_t got = sock_record_recv(comm, line, pieces, count);

    if (got < 0 && errno == EBADMSG)
        sock_comm_altered(comm, line);
    return got;
}

/* flags: MSG_PEEK, for lines without records. */
static inline ssize_t sock_line_recv(struct sock_comm *comm, int line_idx, struct iovec *pieces,
                                     size_t count, int flags)
{
    const struct sock_line *line = &comm->lines[line_idx];
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = count};
    ssize_t got;

    if (__builtin_expect(line->record != NULL, 0))
        return sock_line_open(comm, line_idx, pieces, (int)count);
    do
        got = count == 1 ? recv(line->fd, pieces->iov_base, pieces->iov_len, flags | MSG_DONTWAIT)
                         : recvmsg(line->fd, &message, flags | MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    return got;
}

/* 1: a read brings something though the kernel has nothing. */
static inline int sock_line_holds(const struct sock_comm *comm, int line)
{
    return comm->lines[line].record && sock_record_holds(comm->lines[line].record);
}

static inline int sock_line_sealed(const struct sock_comm *comm, int line)
{
    return comm->lines[line].record && sock_record_sealed(comm->lines[line].record);
}

#endif

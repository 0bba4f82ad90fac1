/* SPDX-License-Identifier: BSD-3-Clause */
/* The control connection of a comm that is up: frames of 8 bytes, a word that says what and one
 * number.
 *
 *   receiver > sender   COUNT n    n messages have come in all, with message 0
 *                       GROUPS n   message n is the first one of a group (ofi_group.c)
 *   sender > receiver   GOODBYE n  I close, and the first n have left; tell me of each from now on
 *                       SWITCH n   messages from n on have the numbers of parts
 *                       NO_PART t  my next message has this tag, and there is no part for it
 *
 * A receiver tells every OFI_CREDIT_STEP messages, so a frame costs one system call of many. It is
 * looked at when nothing else moves; that it closes is how the death of a peer shows, whatever the
 * provider knows of it, for most never say so.
 *
 * Thread: the comm's. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "base/param.h"
#include "base/tcp.h"
#include "ofi_int.h"

#define PROBES        3
#define PROBES_FROM_S 6 /* for a shorter silence one has to do */

enum word { COUNT = 1, GOODBYE = 2, GROUPS = 3, SWITCH = 4, NO_PART = 5 };

/* A kernel that refuses an option still moves bytes. */
static void set_int(int fd, int option, int value)
{
    (void)setsockopt(fd, IPPROTO_TCP, option, &value, sizeof(value));
}

/* What the provider never tells: that the peer's host has vanished. Frames are few and wait for
 * nobody, so one without an answer for that long is a sign of the same. */
void ofi_control_tune(int fd)
{
    int silence_s = (int)xccl_param_int(XCCL_P_SOCKET_SILENCE_S), on = 1;
    int probes = silence_s >= PROBES_FROM_S ? PROBES : 1;
    int interval = silence_s >= PROBES_FROM_S ? silence_s / (2 * PROBES + 1) : 1;
    int idle = silence_s - probes * interval;

    if (interval < 1)
        interval = 1;
    set_int(fd, TCP_KEEPIDLE, idle < 1 ? 1 : idle);
    set_int(fd, TCP_KEEPINTVL, interval);
    set_int(fd, TCP_KEEPCNT, probes);
    set_int(fd, TCP_USER_TIMEOUT, silence_s * 1000);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

/* What does not go now goes with the next frame or look. */
static void flush(struct ofi_comm *comm)
{
    while (comm->out_first < comm->out_bytes) {
        ssize_t sent = send(comm->fd, comm->out + comm->out_first,
                            comm->out_bytes - comm->out_first, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent <= 0)
            return; /* an error shows when it is read */
        comm->out_first += (uint32_t)sent;
    }
    comm->out_first = comm->out_bytes = 0;
}

/* 0: there is no room now. */
static int put(struct ofi_comm *comm, enum word word, uint32_t number)
{
    struct xccl_wire wire;

    if (comm->fd < 0)
        return 0;
    if (comm->out_bytes + OFI_FRAME_BYTES > sizeof(comm->out))
        flush(comm);
    if (comm->out_bytes + OFI_FRAME_BYTES > sizeof(comm->out))
        return 0;
    wire = xccl_wire_over(comm->out + comm->out_bytes, OFI_FRAME_BYTES);
    xccl_wire_put_u32(&wire, word);
    xccl_wire_put_u32(&wire, number);
    comm->out_bytes += OFI_FRAME_BYTES;
    flush(comm);
    return 1;
}

void ofi_control_goodbye(struct ofi_comm *comm)
{
    (void)put(comm, GOODBYE, ofi_request_left(comm));
}

/* A sender says nothing else before, so there is room. */
void ofi_control_switch(struct ofi_comm *comm, uint32_t end)
{
    (void)put(comm, SWITCH, end);
}

int ofi_control_groups(struct ofi_comm *comm, uint32_t from)
{
    return put(comm, GROUPS, from);
}

void ofi_control_misfit(struct ofi_comm *comm, uint32_t tag)
{
    (void)put(comm, NO_PART, tag);
}

void ofi_control_count(struct ofi_comm *comm)
{
    uint32_t news = comm->moved - comm->counted;

    if (news < OFI_CREDIT_STEP && !(comm->asked && news))
        return;
    if (!put(comm, COUNT, comm->moved))
        return;
    comm->counted = comm->moved;
}

static void damaged(struct ofi_comm *comm)
{
    ofi_comm_fail(comm, xcclNetCauseProtocol,
                  xccl_fail_quietly(xcclRemoteError, 0, "use the same build of XCCL on all ranks",
                                    "%s speaks another language on the control connection",
                                    comm->peer_text));
}

static void left(struct ofi_comm *comm, uint32_t number)
{
    comm->goodbye = number;
    comm->peer_left = 1;
    comm->left_ns = xccl_clock_ns();
    comm->asked = 1;
    ofi_control_count(comm);
}

/* 0: nobody says that to a sender. */
static int sender_take(struct ofi_comm *comm, uint32_t word, uint32_t number)
{
    if (word == GROUPS)
        return ofi_group_asked(comm, number);
    if (word != COUNT || number - comm->counted > comm->posted - comm->counted)
        return 0;
    comm->counted = number;
    return 1;
}

static int receiver_take(struct ofi_comm *comm, uint32_t word, uint32_t number)
{
    switch (word) {
    case GOODBYE:
        left(comm, number);
        return 1;
    case SWITCH:
        return ofi_group_answered(comm, number);
    case NO_PART:
        ofi_group_misfit(comm, number);
        comm->asked = 1;
        ofi_control_count(comm);
        return 1;
    default:
        return 0;
    }
}

static void take(struct ofi_comm *comm, uint8_t *frame)
{
    struct xccl_wire wire = xccl_wire_over(frame, OFI_FRAME_BYTES);
    uint32_t word = xccl_wire_get_u32(&wire), number = xccl_wire_get_u32(&wire);

    if (!(comm->is_send ? sender_take(comm, word, number) : receiver_take(comm, word, number)))
        damaged(comm);
}

static void closed(struct ofi_comm *comm, int err)
{
    comm->sys_errno = err;
    xccl_tcp_close(&comm->fd);
    if (comm->peer_left)
        return;
    comm->peer_left = 2;
    comm->left_ns = xccl_clock_ns();
}

/* Whole frames; what is left of the last one comes first then. */
static void take_all(struct ofi_comm *comm)
{
    uint32_t at = 0;

    for (; at + OFI_FRAME_BYTES <= comm->in_bytes && comm->rc == xcclSuccess; at += OFI_FRAME_BYTES)
        take(comm, comm->in + at);
    comm->in_bytes -= at;
    memmove(comm->in, comm->in + at, comm->in_bytes);
}

void ofi_control_look(struct ofi_comm *comm)
{
    /* Each turn takes bytes; a peer that sends more than this is looked at again later. */
    for (int i = 0; i < 8 && comm->fd >= 0 && comm->rc == xcclSuccess; i++) {
        ssize_t got = recv(comm->fd, comm->in + comm->in_bytes, sizeof(comm->in) - comm->in_bytes,
                           MSG_DONTWAIT);

        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
            break;
        if (got <= 0) {
            closed(comm, got < 0 ? errno : 0);
            return;
        }
        comm->in_bytes += (uint32_t)got;
        take_all(comm);
    }
    if (comm->fd >= 0 && comm->out_bytes)
        flush(comm);
}

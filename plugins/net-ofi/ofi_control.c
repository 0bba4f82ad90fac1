/* SPDX-License-Identifier: BSD-3-Clause */
/* The control connections of a comm: sealed frames of 8 bytes, a word that says what and one
 * number. With several rails there is one for each whose card has an address of its own, and every
 * frame goes by all of them, so none is lost with a rail; the first that comes of each counts.
 *
 *   receiver > sender   COUNT n    n messages have come in all, with message 0; where rails may
 *                                  fail: all before n, as soon as that is so
 *                       GROUPS n   message n is the first one of a group (ofi_group.c)
 *                       HAS m      this is what has come of a message (ofi_failover.c)
 *   sender > receiver   GOODBYE n  I close, and the first n have left; tell me of each from now on
 *                       SWITCH n   messages from n on have the numbers of parts
 *                       NO_PART t  my next message has this tag, and there is no part for it
 *                       AGREED 0   I am up, with these rails: one that fails from now on drops out
 *   both                FAILS r    rail r fails, and is given nothing any more
 *                       ENDED r    its endpoint is closed
 *
 * A receiver tells every OFI_CREDIT_STEP messages, so a frame costs one system call of many. It is
 * looked at when nothing else moves; that it closes is how the death of a peer shows, whatever the
 * provider knows of it, for most never say so. That one of several closes is how a rail's shows.
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

enum word { COUNT = 1, GOODBYE, GROUPS, SWITCH, NO_PART, FAILS, HAS, ENDED, AGREED };

/* What the provider never tells: that the peer's host has vanished. Frames are few and wait for
 * nobody, so one without an answer for that long is a sign of the same. */
static void tune(int fd)
{
    int silence_s = (int)xccl_param_int(XCCL_P_SOCKET_SILENCE_S), silence_ms = silence_s * 1000;
    int probes = silence_s >= PROBES_FROM_S ? PROBES : 1;
    int interval = silence_s >= PROBES_FROM_S ? silence_s / (2 * PROBES + 1) : 1;
    int idle = silence_s - probes * interval;

    if (interval < 1)
        interval = 1;
    kit_side_probe(fd, idle < 1 ? 1 : idle, interval, probes);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence_ms, sizeof(silence_ms));
}

void ofi_control_tune(struct ofi_comm *comm)
{
    for (uint32_t i = 0; i < comm->link_count; i++)
        tune(comm->links[i].side.fd);
}

void ofi_control_add(struct ofi_comm *comm, int fd, uint32_t rail)
{
    comm->links[comm->link_count++] = (struct ofi_link){.side = {.fd = fd}, .rail = rail};
}

void ofi_control_close(struct ofi_comm *comm)
{
    for (uint32_t i = 0; i < comm->link_count; i++)
        kit_side_close(&comm->links[i].side);
}

int ofi_control_is_open(const struct ofi_comm *comm)
{
    for (uint32_t i = 0; i < comm->link_count; i++) {
        if (comm->links[i].side.fd >= 0)
            return 1;
    }
    return 0;
}

/* What one of them has taken is said. */
int ofi_control_owes(const struct ofi_comm *comm)
{
    for (uint32_t i = 0; i < comm->link_count; i++) {
        if (comm->links[i].side.fd >= 0 && !comm->links[i].side.out_bytes)
            return 0;
    }
    return ofi_control_is_open(comm);
}

static void closed(struct ofi_comm *comm, struct ofi_link *link, int err)
{
    uint32_t rail = link->rail == OFI_RAILS_MAX ? 0 : link->rail;

    comm->sys_errno = err;
    xccl_tcp_close(&link->side.fd);
    if (ofi_control_is_open(comm) && !comm->is_up && !comm->is_agreed) {
        /* Nobody would watch that rail. A peer that closes has reasons that it has not told. */
        if (link->rail != OFI_RAILS_MAX && kit_side_is_dark(err))
            ofi_control_fails(comm, rail);
        ofi_comm_fail_rail(comm, &comm->rails[rail], err ? err : FI_ECONNRESET,
                           "connecting the rails with", "on its control connection");
        if (link->rail == OFI_RAILS_MAX || !kit_side_is_dark(err))
            comm->failed_rail = 0;
        return;
    }
    if (ofi_control_is_open(comm)) {
        /* Its rail goes the same way, and may have lost what the provider does not know of. */
        if (link->rail != OFI_RAILS_MAX)
            (void)ofi_failover_doubt(comm, link->rail, err ? err : FI_ECONNRESET);
        return;
    }
    if (comm->peer_left)
        return;
    comm->peer_left = 2;
    comm->left_ns = xccl_clock_ns();
}

static int has_place(struct ofi_link *link)
{
    return link->side.fd >= 0 &&
           kit_side_has_place(&link->side, link->out, sizeof(link->out), OFI_FRAME_BYTES);
}

/* By all of them, so that none is missed whichever is lost. One whose socket is full while another
 * one's is not has a way that does not carry. 0: there is no room now. */
static int put(struct ofi_comm *comm, enum word word, uint32_t number)
{
    int places = 0;

    for (uint32_t i = 0; i < comm->link_count; i++)
        places += !comm->links[i].unproved && has_place(&comm->links[i]);
    for (uint32_t i = 0; i < comm->link_count && places; i++) {
        struct ofi_link *link = &comm->links[i];
        struct xccl_wire wire;

        if (link->side.fd < 0)
            continue;
        if (link->unproved) {
            link->missed = 1;
            continue;
        }
        if (!has_place(link)) {
            closed(comm, link, ETIMEDOUT);
            continue;
        }
        wire = xccl_wire_over(link->out + link->side.out_bytes, OFI_FRAME_BYTES);
        xccl_wire_put_u32(&wire, word);
        xccl_wire_put_u32(&wire, number);
        kit_side_put(&link->side, link->out, OFI_FRAME_BYTES);
        kit_side_write(&link->side, link->out);
    }
    return places != 0;
}

void ofi_control_goodbye(struct ofi_comm *comm)
{
    (void)put(comm, GOODBYE, ofi_request_left(comm));
}

/* Only what it says of rails that fail may come before, so there is room. */
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

/* There is room: nothing was said before. */
void ofi_control_agree(struct ofi_comm *comm)
{
    if (comm->failover.on)
        (void)put(comm, AGREED, 0);
}

/* A hint: ENDED says the same. */
void ofi_control_fails(struct ofi_comm *comm, uint32_t rail)
{
    (void)put(comm, FAILS, rail);
}

int ofi_control_has(struct ofi_comm *comm, uint32_t what)
{
    return put(comm, HAS, what);
}

int ofi_control_ended(struct ofi_comm *comm, uint32_t rail)
{
    return put(comm, ENDED, rail);
}

void ofi_control_count(struct ofi_comm *comm)
{
    uint32_t now = comm->failover.on ? comm->front : comm->moved, news = now - comm->counted;

    if (!news || (news < OFI_CREDIT_STEP && !comm->asked && !comm->failover.on))
        return;
    if (put(comm, COUNT, now))
        comm->counted = now;
}

static void damaged(struct ofi_comm *comm)
{
    ofi_comm_fail(comm, xcclNetCauseProtocol,
                  xccl_fail_quietly(xcclRemoteError, 0, "use the same build of XCCL on all ranks",
                                    "%s does not follow the protocol of the control connection",
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
    if (word == HAS)
        return ofi_failover_has(comm, number);
    if (word != COUNT || number - comm->counted > comm->posted - comm->counted)
        return 0;
    if (comm->failover.on)
        ofi_request_counted(comm, number);
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
    case AGREED:
        comm->is_agreed = 1;
        return 1;
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
    int is_right;

    if (word == FAILS || word == ENDED)
        is_right = ofi_failover_heard(comm, number, word == ENDED);
    else
        is_right = comm->is_send ? sender_take(comm, word, number)
                                 : receiver_take(comm, word, number);
    if (!is_right)
        damaged(comm);
}

/* Whole frames; what another connection has brought before counts once. */
static void take_all(struct ofi_comm *comm, struct ofi_link *link)
{
    int note;

    while (comm->rc == xcclSuccess &&
           (note = kit_side_note(&link->side, link->in, OFI_FRAME_BYTES)) != 0) {
        if (note < 0) {
            damaged(comm);
            return;
        }
        if (++link->heard == comm->frames + 1) {
            comm->frames++;
            take(comm, link->in);
        }
        kit_side_next(&link->side, link->in, OFI_FRAME_BYTES);
    }
}

static void look(struct ofi_comm *comm, struct ofi_link *link)
{
    struct kit_side *side = &link->side;

    /* Each turn takes bytes; a peer that sends more than this is looked at again later. */
    for (int i = 0; i < 8 && side->fd >= 0 && comm->rc == xcclSuccess; i++) {
        uint32_t had = side->in_bytes;

        kit_side_read(side, link->in, sizeof(link->in));
        if (side->has_ended)
            closed(comm, link, side->err);
        if (side->in_bytes == had)
            break;
        take_all(comm, link);
    }
    kit_side_write(side, link->out);
}

void ofi_control_look(struct ofi_comm *comm)
{
    for (uint32_t i = 0; i < comm->link_count; i++) {
        if (!comm->links[i].unproved)
            look(comm, &comm->links[i]);
    }
}

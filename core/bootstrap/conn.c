/* SPDX-License-Identifier: BSD-3-Clause */
/* A socket under a channel. Reads exactly what the next step needs and never beyond a frame, so
 * that a descriptor may follow a frame on a Unix socket. Buffers for frames are taken after the
 * proof only, and large ones go back as soon as they are empty: a job of 1,024 ranks in one process
 * holds tens of thousands of these.
 *
 * Thread: one at a time. */
#include "bootstrap/conn.h"

#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#include "base/alloc.h"
#include "base/error.h"
#include "bootstrap/channel.h"
#include "bootstrap/conn_int.h"

#define OUT_MAX_BYTES  (256u << 10)
#define KEEP_MAX_BYTES (8u << 10)
#define OPEN_TRIES     3
#define OPEN_NAP_NS    10000000 /* before another try at a door without room */

enum conn_phase { CONN_CONNECTING, CONN_SHAKING, CONN_OPEN, CONN_BROKEN };

struct xccl_conn {
    int fd;
    enum conn_phase phase;
    int turned_away, other_version;
    int was_told; /* why it is shut out; so it must not be reset */
    int unreached; /* errno */
    int send_failed; /* what came before may still be read */
    struct xccl_addr addr; /* of the connecting side only */
    char peer_text[XCCL_ADDR_TEXT_BYTES];
    struct xccl_channel channel;
    uint8_t shake_in[XCCL_SHAKE_MAX_BYTES], shake_out[XCCL_SHAKE_MAX_BYTES];
    size_t shake_in_got, shake_out_at, shake_out_end;
    uint8_t prefix[XCCL_FRAME_PREFIX_BYTES];
    uint8_t *in; /* the cipher of one frame */
    size_t in_room, in_got, in_need; /* in_got counts the prefix too; in_need 0: not known yet */
    uint8_t *out;
    size_t out_room, out_at, out_end;
    int held; /* held_frame was given back: the next take gets it again */
    struct xccl_frame held_frame;
};

static_assert(sizeof(struct xccl_conn) <= 4096, "an unproven connection costs at most 4 KiB");

static xcclResult_t conn_make(int fd, struct xccl_conn **conn_out)
{
    struct xccl_conn *conn;
    xcclResult_t rc = xccl_channel_library_init();

    if (rc)
        return rc;
    conn = xccl_calloc(1, sizeof(*conn));
    if (!conn)
        return xcclSystemError;
    conn->fd = fd;
    conn->phase = CONN_SHAKING;
    *conn_out = conn;
    return xcclSuccess;
}

/* Takes fd over, also on failure. */
static xcclResult_t conn_make_connecting(int fd, const struct xccl_addr *addr,
                                         const uint8_t key[32], const struct xccl_hello *hello,
                                         struct xccl_conn **conn_out)
{
    struct xccl_conn *conn;
    xcclResult_t rc = conn_make(fd, &conn);

    if (rc) {
        xccl_tcp_close(&fd);
        return rc;
    }
    conn->addr = *addr;
    xccl_addr_format(addr, conn->peer_text);
    xccl_channel_connect(&conn->channel, key, hello, conn->shake_out);
    conn->shake_out_end = XCCL_HELLO_BYTES;
    *conn_out = conn;
    return xcclSuccess;
}

xcclResult_t xccl_conn_start(const struct xccl_addr *addr, const uint8_t key[32],
                             const struct xccl_hello *hello, struct xccl_conn **conn_out)
{
    struct xccl_conn *conn;
    int fd;
    xcclResult_t rc = xccl_tcp_connect_start(addr, &fd);

    if (rc)
        return rc;
    rc = conn_make_connecting(fd, addr, key, hello, &conn);
    if (rc)
        return rc;
    conn->phase = CONN_CONNECTING;
    *conn_out = conn;
    return xcclSuccess;
}

xcclResult_t xccl_conn_adopt(int fd, const uint8_t key[32], const struct xccl_hello *self,
                             const struct xccl_channel_policy *policy, struct xccl_conn **conn_out)
{
    struct xccl_conn *conn;
    xcclResult_t rc = conn_make(fd, &conn);

    if (rc)
        return rc;
    xccl_tcp_peer_text(fd, conn->peer_text);
    xccl_channel_accept(&conn->channel, key, self, policy);
    *conn_out = conn;
    return xcclSuccess;
}

/* Every failure ends here: keys go, the socket stays for close. */
static void conn_break(struct xccl_conn *conn)
{
    xccl_channel_wipe(&conn->channel);
    conn->phase = CONN_BROKEN;
}

/* Fails for another version. The accepting side also tells the other end, after it has read what
 * came: unread bytes would make the system drop the notice. */
static xcclResult_t conn_fail_version(struct xccl_conn *conn)
{
    uint8_t notice[XCCL_NOTICE_BYTES], rest[XCCL_SHAKE_MAX_BYTES];
    char text[256];
    size_t moved = 0;

    xccl_channel_version_text(&conn->channel, text, sizeof(text));
    if (conn->channel.state == XCCL_CHANNEL_HELLO) {
        (void)xccl_tcp_recv_some(conn->fd, rest, sizeof(rest), &moved);
        xccl_channel_notice(notice);
        (void)xccl_tcp_send_some(conn->fd, notice, sizeof(notice), &moved);
    }
    conn->other_version = 1;
    conn->was_told = 1;
    conn_break(conn);
    return xccl_fail_quietly(xcclRemoteError, 0, NULL, "%s %s", conn->peer_text, text);
}

static void rank_text(uint32_t rank, char text_out[24])
{
    if (rank == XCCL_TARGET_ROOT)
        snprintf(text_out, 24, "the root");
    else
        snprintf(text_out, 24, "rank %u", rank);
}

/* Fails since another rank was reached; that rank has the key. */
static xcclResult_t conn_fail_target(struct xccl_conn *conn)
{
    char here[24], meant[24];

    rank_text(conn->channel.peer.rank, here);
    rank_text(conn->channel.self.target, meant);
    conn_break(conn);
    return xccl_fail_quietly(xcclRemoteError, 0,
                             "check whether addresses are translated between the hosts, and set "
                             "XCCL_SOCKET_IFNAME",
                             "%s answers at %s instead of %s", here, conn->peer_text, meant);
}

static xcclResult_t conn_fail_verdict(struct xccl_conn *conn, enum xccl_channel_verdict verdict)
{
    if (verdict == XCCL_VERDICT_VERSION)
        return conn_fail_version(conn);
    if (verdict == XCCL_VERDICT_TARGET && conn->addr.bytes)
        return conn_fail_target(conn);
    if (verdict == XCCL_VERDICT_TARGET) {
        size_t moved = 0;

        (void)xccl_tcp_send_some(conn->fd, conn->shake_out, conn->shake_out_end, &moved);
        conn->was_told = 1;
    }
    conn_break(conn);
    return xccl_fail_quietly(xcclRemoteError, 0,
                             "give all ranks the same id, job key and version of xccl", "%s %s",
                             conn->peer_text, xccl_channel_verdict_text(verdict));
}

/* Whoever connected may try again, also when only its last word was not heard any more. */
static xcclResult_t conn_fail_shake_closed(struct xccl_conn *conn)
{
    conn->turned_away = conn->addr.bytes ? 1 + conn->channel.challenged : 0;
    conn_break(conn);
    if (conn->turned_away > 1) {
        return xccl_fail_quietly(xcclRemoteError, 0, "keep strangers away from that port",
                                 "%s has no room: too many others connect to it", conn->peer_text);
    }
    return xccl_fail_quietly(
        xcclRemoteError, 0, "give all ranks the same id, job key and version of xccl",
        "%s refused the connection: its job key or communicator differs, it has ended, or its xccl "
        "is older and speaks version 1 of the protocol for joining (this is version %d)",
        conn->peer_text, XCCL_WIRE_VERSION);
}

static xcclResult_t shake_flush(struct xccl_conn *conn)
{
    size_t moved = 0;
    xcclResult_t rc;

    if (conn->shake_out_at == conn->shake_out_end)
        return xcclSuccess;
    rc = xccl_tcp_send_some(conn->fd, conn->shake_out + conn->shake_out_at,
                            conn->shake_out_end - conn->shake_out_at, &moved);
    if (rc)
        return conn_fail_shake_closed(conn);
    conn->shake_out_at += moved;
    return xcclSuccess;
}

/* Reads towards the next step and takes it when all its bytes are there. */
static xcclResult_t shake_read(struct xccl_conn *conn, int *stepped_out)
{
    size_t need = xccl_channel_need(&conn->channel), moved = 0;
    enum xccl_channel_verdict verdict;
    xcclResult_t rc;

    *stepped_out = 0;
    assert(need > conn->shake_in_got && need <= sizeof(conn->shake_in));
    rc = xccl_tcp_recv_some(conn->fd, conn->shake_in + conn->shake_in_got,
                            need - conn->shake_in_got, &moved);
    if (rc)
        return conn_fail_shake_closed(conn);
    conn->shake_in_got += moved;
    /* Some other protocol is named at once, not when it has said as much as ours would. */
    verdict = xccl_channel_peek(&conn->channel, conn->shake_in, conn->shake_in_got);
    if (verdict)
        return conn_fail_verdict(conn, verdict);
    if (conn->shake_in_got < need)
        return xcclSuccess;
    conn->shake_in_got = 0;
    conn->shake_out_at = 0;
    verdict = xccl_channel_shake(&conn->channel, conn->shake_in, conn->shake_out,
                                 &conn->shake_out_end);
    if (verdict)
        return conn_fail_verdict(conn, verdict);
    *stepped_out = 1;
    return xcclSuccess;
}

xcclResult_t xccl_conn_shake(struct xccl_conn *conn, int *done_out)
{
    int stepped = 1;

    *done_out = 0;
    if (conn->phase == CONN_CONNECTING) {
        int connected = 0;
        xcclResult_t rc = xccl_tcp_connect_test(conn->fd, &conn->addr, &connected);

        if (rc) {
            conn->unreached = xccl_tcp_connect_err();
            conn_break(conn);
            return rc;
        }
        if (!connected)
            return xcclSuccess;
        conn->phase = CONN_SHAKING;
    }
    if (conn->phase == CONN_BROKEN)
        return xccl_fail_quietly(xcclRemoteError, 0, NULL, "the connection with %s is lost",
                                 conn->peer_text);
    while (stepped) {
        xcclResult_t rc = shake_flush(conn);

        if (rc)
            return rc;
        if (conn->shake_out_at < conn->shake_out_end)
            return xcclSuccess;
        if (conn->channel.state == XCCL_CHANNEL_OPEN) {
            /* A reply may have lain here for so long that its sender gave up waiting for more. */
            if (conn->addr.bytes && xccl_tcp_has_ended(conn->fd))
                return conn_fail_shake_closed(conn);
            conn->phase = CONN_OPEN;
            *done_out = 1;
            return xcclSuccess;
        }
        rc = shake_read(conn, &stepped);
        if (rc)
            return rc;
    }
    return xcclSuccess;
}

uint32_t xccl_conn_shake_events(const struct xccl_conn *conn)
{
    if (conn->phase == CONN_CONNECTING || conn->shake_out_at < conn->shake_out_end)
        return EPOLLOUT;
    return EPOLLIN;
}

int xccl_conn_hello_seen(const struct xccl_conn *conn)
{
    return conn->channel.state != XCCL_CHANNEL_HELLO;
}

int xccl_conn_turned_away(const struct xccl_conn *conn)
{
    return conn->turned_away;
}

int xccl_conn_other_version(const struct xccl_conn *conn)
{
    return conn->other_version;
}

int xccl_conn_was_told(const struct xccl_conn *conn)
{
    return conn->was_told;
}

int xccl_conn_unreached(const struct xccl_conn *conn)
{
    return conn->unreached;
}

int xccl_conn_is_connected(const struct xccl_conn *conn)
{
    return conn->phase != CONN_CONNECTING && !conn->unreached;
}

const char *xccl_conn_peer_text(const struct xccl_conn *conn)
{
    return conn->peer_text;
}

static xcclResult_t open_once(const struct xccl_addr *addr, const uint8_t key[32],
                              const struct xccl_hello *hello, const struct xccl_limit *limit,
                              struct xccl_conn **conn_out)
{
    int fd, done = 0;
    xcclResult_t rc = xccl_tcp_connect(addr, limit, &fd);

    if (rc)
        return rc;
    rc = conn_make_connecting(fd, addr, key, hello, conn_out);
    while (!rc && !done) {
        rc = xccl_conn_shake(*conn_out, &done);
        if (!rc && !done) {
            int out = xccl_conn_shake_events(*conn_out) == EPOLLOUT;

            rc = xccl_tcp_wait(fd, out ? POLLOUT : POLLIN, limit);
        }
    }
    return rc;
}

xcclResult_t xccl_conn_open(const struct xccl_addr *addr, const uint8_t key[32],
                            const struct xccl_hello *hello, const struct xccl_limit *limit,
                            struct xccl_conn **conn_out)
{
    /* A busy acceptor may have dropped us for a newer stranger, so one refusal is not believed. */
    for (int attempt = 1;; attempt++) {
        struct xccl_conn *conn = NULL;
        xcclResult_t rc = open_once(addr, key, hello, limit, &conn);
        int has_no_room = conn && conn->turned_away > 1;
        int again = has_no_room || (conn && conn->turned_away && attempt < OPEN_TRIES);

        if (!rc) {
            *conn_out = conn;
            return xcclSuccess;
        }
        xccl_conn_close(conn);
        if (!again || xccl_limit_passed(limit) || xccl_limit_aborted(limit))
            return rc;
        if (has_no_room)
            nanosleep(&(struct timespec){.tv_nsec = OPEN_NAP_NS}, NULL);
    }
}

/* Says FINAL if that takes no waiting. A peer that is gone is no news now, so the thread's error
 * text stays what it was: often the reason for closing. */
static void conn_say_final(struct xccl_conn *conn)
{
    char text[XCCL_ERROR_TEXT_BYTES];
    uint8_t frame[XCCL_FRAME_OVERHEAD_BYTES];
    int pending = 1;
    size_t moved = 0;

    memcpy(text, xccl_error_text(), strnlen(xccl_error_text(), sizeof(text) - 1) + 1);
    text[sizeof(text) - 1] = '\0';
    if (xccl_conn_flush(conn, &pending) == xcclSuccess && !pending) {
        size_t bytes = xccl_channel_seal_final(&conn->channel, frame);

        (void)xccl_tcp_send_some(conn->fd, frame, bytes, &moved);
    }
    xccl_error_set_text(text);
}

void xccl_conn_close(struct xccl_conn *conn)
{
    if (!conn)
        return;
    if (conn->phase == CONN_OPEN && !conn->channel.final_sent)
        conn_say_final(conn);
    xccl_tcp_close(&conn->fd);
    xccl_channel_wipe(&conn->channel);
    if (conn->in)
        sodium_memzero(conn->in, conn->in_room);
    xccl_free(conn->in);
    xccl_free(conn->out);
    xccl_free(conn);
}

int xccl_conn_fd(const struct xccl_conn *conn)
{
    return conn->fd;
}

const struct xccl_hello *xccl_conn_hello(const struct xccl_conn *conn)
{
    return &conn->channel.peer;
}

static xcclResult_t conn_check_open(const struct xccl_conn *conn)
{
    if (conn->phase == CONN_OPEN)
        return xcclSuccess;
    return xccl_fail_quietly(xcclRemoteError, 0, "see the first error of this rank",
                             "the connection with %s failed before", conn->peer_text);
}

xcclResult_t xccl_conn_flush(struct xccl_conn *conn, int *pending_out)
{
    xcclResult_t rc = conn_check_open(conn);

    if (!rc && conn->send_failed) {
        rc = xccl_fail_quietly(xcclRemoteError, 0, "see the first error of this rank",
                               "sending to %s failed before", conn->peer_text);
    }
    if (rc)
        return rc;
    while (conn->out_at < conn->out_end) {
        size_t moved = 0;

        rc = xccl_tcp_send_some(conn->fd, conn->out + conn->out_at, conn->out_end - conn->out_at,
                                &moved);
        if (rc) {
            conn->send_failed = 1;
            return rc;
        }
        if (!moved)
            break;
        conn->out_at += moved;
    }
    *pending_out = conn->out_at < conn->out_end;
    if (!*pending_out) {
        conn->out_at = conn->out_end = 0;
        if (conn->out_room > KEEP_MAX_BYTES) {
            xccl_free(conn->out);
            conn->out = NULL;
            conn->out_room = 0;
        }
    }
    return xcclSuccess;
}

/* Room for bytes behind out_end. */
static xcclResult_t out_reserve(struct xccl_conn *conn, size_t bytes)
{
    size_t kept = conn->out_end - conn->out_at;
    uint8_t *grown;

    if (conn->out_at && kept)
        memmove(conn->out, conn->out + conn->out_at, kept);
    conn->out_at = 0;
    conn->out_end = kept;
    if (conn->out_room - kept >= bytes)
        return xcclSuccess;
    grown = xccl_realloc(conn->out, kept + bytes);
    if (!grown)
        return xcclSystemError;
    conn->out = grown;
    conn->out_room = kept + bytes;
    return xcclSuccess;
}

xcclResult_t xccl_conn_queue_parts(struct xccl_conn *conn, uint16_t type, struct xccl_span head,
                                   struct xccl_span body)
{
    size_t frame_bytes, sealed;
    int pending = 0;
    xcclResult_t rc = conn_check_open(conn);

    if (rc)
        return rc;
    if (head.bytes > XCCL_FRAME_MAX_BYTES || body.bytes > XCCL_FRAME_MAX_BYTES - head.bytes ||
        type == XCCL_FRAME_FINAL) {
        return xccl_fail(xcclInvalidArgument, 0, "split the message",
                         "a frame of type %u with %zu and %zu bytes is too large", type, head.bytes,
                         body.bytes);
    }
    frame_bytes = head.bytes + body.bytes + XCCL_FRAME_OVERHEAD_BYTES;
    if (conn->out_end - conn->out_at + frame_bytes > OUT_MAX_BYTES) {
        rc = xccl_conn_flush(conn, &pending);
        if (rc)
            return rc;
    }
    if (conn->out_end - conn->out_at + frame_bytes > OUT_MAX_BYTES) {
        conn_break(conn);
        return xccl_fail_quietly(xcclRemoteError, 0, "check whether that process still runs",
                                 "%s does not read the data sent to it", conn->peer_text);
    }
    rc = out_reserve(conn, frame_bytes);
    if (rc)
        return rc;
    sealed = xccl_channel_seal(&conn->channel, type, head, body, conn->out + conn->out_end);
    if (!sealed) {
        return xccl_fail(xcclInternalError, 0, "report this as a bug of xccl",
                         "a frame was sent to %s after the final one", conn->peer_text);
    }
    conn->out_end += sealed;
    return xccl_conn_flush(conn, &pending);
}

xcclResult_t xccl_conn_queue(struct xccl_conn *conn, uint16_t type, const void *body, size_t bytes)
{
    return xccl_conn_queue_parts(conn, type, (struct xccl_span){NULL, 0},
                                 (struct xccl_span){body, bytes});
}

xcclResult_t xccl_conn_finish(struct xccl_conn *conn, int *pending_out)
{
    xcclResult_t rc = conn_check_open(conn);

    if (!rc && !conn->channel.final_sent) {
        rc = out_reserve(conn, XCCL_FRAME_OVERHEAD_BYTES);
        if (!rc)
            conn->out_end += xccl_channel_seal_final(&conn->channel, conn->out + conn->out_end);
    }
    if (!rc)
        rc = xccl_conn_flush(conn, pending_out);
    if (!rc && !*pending_out)
        (void)shutdown(conn->fd, SHUT_WR); /* a peer that is gone is seen by whoever reads */
    return rc;
}

/* in_got bytes are there; reads until want of them are, or until there is no more now. */
static xcclResult_t in_read(struct xccl_conn *conn, size_t want)
{
    while (conn->in_got < want) {
        uint8_t *at = conn->in_got < XCCL_FRAME_PREFIX_BYTES
                          ? conn->prefix + conn->in_got
                          : conn->in + (conn->in_got - XCCL_FRAME_PREFIX_BYTES);
        size_t moved = 0;
        xcclResult_t rc = xccl_tcp_recv_some(conn->fd, at, want - conn->in_got, &moved);

        if (rc) {
            conn_break(conn);
            return xccl_fail_quietly(xcclRemoteError, 0, "see that process's log",
                                     "%s closed the connection without announcing it",
                                     conn->peer_text);
        }
        if (!moved)
            return xcclSuccess;
        conn->in_got += moved;
    }
    return xcclSuccess;
}

/* The prefix is there: checks it before anything is stored, then makes room. */
static xcclResult_t in_begin(struct xccl_conn *conn)
{
    size_t cipher_bytes = 0;
    enum xccl_channel_verdict verdict = xccl_channel_length(conn->prefix, &cipher_bytes);

    if (verdict)
        return conn_fail_verdict(conn, verdict);
    if (conn->in_room < cipher_bytes) {
        xccl_free(conn->in);
        conn->in_room = 0;
        conn->in = xccl_calloc(1, cipher_bytes);
        if (!conn->in) {
            conn_break(conn);
            return xcclSystemError;
        }
        conn->in_room = cipher_bytes;
    }
    conn->in_need = XCCL_FRAME_PREFIX_BYTES + cipher_bytes;
    return xcclSuccess;
}

xcclResult_t xccl_conn_make_room(struct xccl_conn *conn, size_t bytes)
{
    uint8_t *grown;

    bytes += XCCL_FRAME_OVERHEAD_BYTES;
    if (conn->in_room >= bytes)
        return xcclSuccess;
    grown = xccl_calloc(1, bytes);
    if (!grown)
        return xcclSystemError;
    if (conn->in) /* part of a frame may be there, or one that was given back */
        memcpy(grown, conn->in, conn->in_room);
    if (conn->held && conn->held_frame.bytes)
        conn->held_frame.body = grown + ((const uint8_t *)conn->held_frame.body - conn->in);
    xccl_free(conn->in);
    conn->in = grown;
    conn->in_room = bytes;
    return xcclSuccess;
}

xcclResult_t xccl_conn_take_frame(struct xccl_conn *conn, struct xccl_frame *frame_out,
                                  int *got_out)
{
    enum xccl_channel_verdict verdict;
    xcclResult_t rc = conn_check_open(conn);

    *got_out = 0;
    if (rc)
        return rc;
    if (conn->held) {
        conn->held = 0;
        *frame_out = conn->held_frame;
        *got_out = 1;
        return xcclSuccess;
    }
    if (conn->channel.state == XCCL_CHANNEL_FINAL) {
        *frame_out = (struct xccl_frame){.type = XCCL_FRAME_FINAL, .final = 1};
        *got_out = 1;
        return xcclSuccess;
    }
    if (!conn->in_need) {
        rc = in_read(conn, XCCL_FRAME_PREFIX_BYTES);
        if (rc || conn->in_got < XCCL_FRAME_PREFIX_BYTES)
            return rc;
        rc = in_begin(conn);
        if (rc)
            return rc;
    }
    rc = in_read(conn, conn->in_need);
    if (rc || conn->in_got < conn->in_need)
        return rc;
    verdict = xccl_channel_unseal(&conn->channel, conn->in, conn->in_need - XCCL_FRAME_PREFIX_BYTES,
                                  frame_out);
    conn->in_got = conn->in_need = 0;
    if (verdict)
        return conn_fail_verdict(conn, verdict);
    *got_out = 1;
    return xcclSuccess;
}

void xccl_conn_give_back(struct xccl_conn *conn, const struct xccl_frame *frame)
{
    conn->held = 1;
    conn->held_frame = *frame;
}

xcclResult_t xccl_conn_take(struct xccl_conn *conn, uint16_t *type_out, void *body_out,
                            size_t body_max, size_t *bytes_out, int *got_out, int *final_out)
{
    struct xccl_frame frame = {0};
    int got = 0;
    xcclResult_t rc = xccl_conn_take_frame(conn, &frame, &got);

    *got_out = 0;
    *final_out = 0;
    if (rc || !got)
        return rc;
    if (frame.final) {
        *final_out = 1;
        return xcclSuccess;
    }
    if (frame.bytes > body_max) {
        conn_break(conn);
        return xccl_fail_quietly(xcclRemoteError, 0, "use the same version of xccl everywhere",
                                 "%s sent %zu bytes; at most %zu were expected", conn->peer_text,
                                 frame.bytes, body_max);
    }
    if (frame.bytes)
        memcpy(body_out, frame.body, frame.bytes);
    *type_out = frame.type;
    *bytes_out = frame.bytes;
    *got_out = 1;
    if (conn->in_room > KEEP_MAX_BYTES) {
        xccl_free(conn->in);
        conn->in = NULL;
        conn->in_room = 0;
    }
    return xcclSuccess;
}

xcclResult_t xccl_conn_send(struct xccl_conn *conn, uint16_t type, const void *body, size_t bytes,
                            const struct xccl_limit *limit)
{
    int pending = 1;
    xcclResult_t rc = xccl_conn_queue(conn, type, body, bytes);

    while (!rc && pending) {
        rc = xccl_conn_flush(conn, &pending);
        if (!rc && pending)
            rc = xccl_tcp_wait(conn->fd, POLLOUT, limit);
    }
    return rc;
}

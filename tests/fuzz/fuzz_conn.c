/* SPDX-License-Identifier: BSD-3-Clause */
/* A connection as its socket feeds it: bytes of a stranger, or frames of a proven peer, cut into
 * pieces of any size. Input: way, size of the pieces, greatest body that is taken, then bytes.
 * A stranger never gets in; what a peer sealed comes out whole and in order, or not at all.
 * Thread: one. libsodium's randomness is replaced by a counter, so that every run is alike. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "bootstrap/channel.h"
#include "bootstrap/conn_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t random_state;

static const char *random_name(void)
{
    return "counter";
}

static uint32_t random_next(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

static void random_fill(void *const out, const size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((uint8_t *)out)[i] = (uint8_t)random_next();
}

static struct randombytes_implementation random_counter = {
    .implementation_name = random_name, .random = random_next, .buf = random_fill};

static const uint8_t key[32] = {1};
static const struct xccl_hello self = {
    .comm_id = {2}, .rank = 1, .nranks = 4, .purpose = XCCL_PURPOSE_ROUND, .target = 1};

struct line {
    struct xccl_conn *conn;
    int fd; /* our end of its socket */
    size_t piece;
    size_t body_max;
    uint64_t taken; /* frames */
};

static struct line line_open(void)
{
    struct line line = {0};
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) != 0)
        abort();
    line.fd = fds[0];
    if (xccl_conn_adopt(fds[1], key, &self, NULL, &line.conn) != xcclSuccess)
        abort();
    return line;
}

/* Hands bytes over in pieces; step looks at the connection after each. 0: it is broken. */
static int feed(struct line *line, const uint8_t *data, size_t bytes,
                int (*step)(struct line *line))
{
    while (bytes) {
        size_t now = bytes < line->piece ? bytes : line->piece;

        if (send(line->fd, data, now, MSG_NOSIGNAL) != (ssize_t)now || !step(line))
            return 0;
        data += now;
        bytes -= now;
    }
    return 1;
}

static int step_stranger(struct line *line)
{
    int done = 0;

    if (xccl_conn_shake(line->conn, &done) != xcclSuccess)
        return 0;
    if (done)
        abort(); /* nobody proves without the key */
    return 1;
}

static int step_shake(struct line *line)
{
    int done = 0;

    if (xccl_conn_shake(line->conn, &done) != xcclSuccess)
        abort();
    return 1;
}

/* Bodies say their number. */
static int step_take(struct line *line)
{
    static uint8_t body[XCCL_FRAME_MAX_BYTES];
    int got = 1, final = 0;
    uint16_t type;
    size_t bytes;

    while (got) {
        if (xccl_conn_take(line->conn, &type, body, line->body_max, &bytes, &got, &final) !=
            xcclSuccess)
            return 0;
        if (got && (bytes > line->body_max || (bytes && body[0] != (uint8_t)line->taken)))
            abort();
        line->taken += (uint64_t)got;
    }
    return !final;
}

/* The other side's channel, proven through the connection. */
static void prove(struct line *line, struct xccl_channel *peer)
{
    uint8_t hello[XCCL_HELLO_BYTES], reply[XCCL_SHAKE_MAX_BYTES], confirm[XCCL_SHAKE_MAX_BYTES];
    size_t bytes;

    xccl_channel_connect(peer, key, &self, hello);
    (void)feed(line, hello, sizeof(hello), step_shake);
    if (recv(line->fd, reply, sizeof(reply), 0) != sizeof(reply) ||
        xccl_channel_shake(peer, reply, confirm, &bytes))
        abort();
    (void)feed(line, confirm, bytes, step_shake);
}

/* Per frame: type (255: FINAL), length, what is added to the byte at half of the frame. */
static void peer_speaks(struct line *line, struct xccl_channel *peer, const uint8_t *data,
                        size_t bytes)
{
    uint8_t body[256 * 8] = {0}, wire[sizeof(body) + XCCL_FRAME_OVERHEAD_BYTES];

    for (uint8_t number = 0; bytes >= 3; data += 3, bytes -= 3, number++) {
        const struct xccl_span none = {NULL, 0}, span = {body, (size_t)data[1] * 8};
        size_t sealed;

        body[0] = number;
        sealed = data[0] == 255 ? xccl_channel_seal_final(peer, wire)
                                : xccl_channel_seal(peer, data[0], none, span, wire);
        if (!sealed)
            return;
        wire[sealed / 2] = (uint8_t)(wire[sealed / 2] + data[2]);
        if (!feed(line, wire, sealed, step_take))
            return;
        if (data[2])
            abort(); /* an altered frame that did no harm */
    }
    (void)feed(line, data, bytes, step_take);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct xccl_channel peer;
    struct line line;

    if (!random_state) {
        randombytes_set_implementation(&random_counter);
        if (xccl_channel_library_init())
            abort();
    }
    random_state = 1;
    if (size < 3)
        return 0;
    line = line_open();
    /* Bounded: a system call costs more than all else here. */
    line.piece = 1 + (size_t)data[1] * 4 + size / 16;
    line.body_max = (size_t)data[2] * 16;
    if (data[0] % 3 == 0) {
        (void)feed(&line, data + 3, size - 3, step_stranger);
    } else {
        prove(&line, &peer);
        if (data[0] % 3 == 1)
            peer_speaks(&line, &peer, data + 3, size - 3);
        else
            (void)feed(&line, data + 3, size - 3, step_take);
        xccl_channel_wipe(&peer);
    }
    xccl_conn_close(line.conn);
    (void)xccl_tcp_close(&line.fd);
    return 0;
}

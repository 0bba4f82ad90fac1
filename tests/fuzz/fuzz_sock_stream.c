/* SPDX-License-Identifier: BSD-3-Clause */
/* The receive path of the socket plugin: a peer that has proved itself sends what it likes on the
 * lines of its connection. Input: how many lines, and whether all receives are alike, so that a
 * single one has its messages guessed, then steps: a line, what to send on it (bytes as they are, a
 * message's header, such as fills its receive or another, an announcement, a frame's header, many
 * zeroes, or its end), and its numbers. Nothing is ever placed outside the posted rooms, no size is
 * above its room, and an error stays. Thread: one. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/wire.h"
#include "net-socket/sock_int.h"

#define RECVS       6
#define SMALL_BYTES 200
#define LARGE_BYTES (SOCK_PAGED_MIN + 1000)
#define ALIKE_BYTES ((size_t)20000)
#define GUARD_BYTES 64
#define LAST_TESTS  64 /* more than chunks that can be in the way of an end */
#define STILL       3 /* looks after an error: it is the same */
#define LINE_ROOM   (512 << 10)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The lines are Unix sockets, whose bytes cannot be looked at first and thrown away then. */
static struct sock_device device = {.rail_count = 1, .netif.addr.sa.any.sa_family = AF_UNIX};
static struct sock_ctx ctx = {.failover = 1, .silence_ms = 1000};
static char *rooms[2][RECVS][SOCK_PARTS];

struct posted {
    xcclNetRequest_t request; /* NULL: done */
    int count;
    char *data[SOCK_PARTS];
    size_t room[SOCK_PARTS];
};

struct peer {
    struct sock_comm *comm;
    int fds[SOCK_LINES_MAX]; /* its ends */
    struct posted posted[RECVS];
    xcclResult_t rc; /* the first error */
};

static void open_lines(struct peer *peer, int count)
{
    static const int room = LINE_ROOM;

    peer->comm = sock_comm_create(&ctx, &device, 0, count, 1 + count / 3);
    if (!peer->comm)
        abort();
    for (int i = 0; i < count; i++) {
        int fds[2];

        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0)
            abort();
        (void)setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
        peer->comm->lines[i].fd = fds[0];
        peer->fds[i] = fds[1];
    }
}

/* Receives of one, two and three parts, the second one and the fourth of which take a large
 * message, or of one part and one size. Each room is a block of its own, with a guard behind; all
 * stay, for asking for them took longest. */
static void post(struct peer *peer, int alike)
{
    for (int i = 0; i < RECVS; i++) {
        struct posted *posted = &peer->posted[i];
        uint32_t tags[SOCK_PARTS];

        posted->count = alike ? 1 : 1 + i % 3;
        for (int k = 0; k < posted->count; k++) {
            posted->room[k] = alike ? ALIKE_BYTES : i == 1 || i == 3 ? LARGE_BYTES : SMALL_BYTES;
            if (!rooms[alike][i][k])
                rooms[alike][i][k] = malloc(posted->room[k] + GUARD_BYTES);
            posted->data[k] = rooms[alike][i][k];
            if (!posted->data[k])
                abort();
            memset(posted->data[k] + posted->room[k], 0x5a, GUARD_BYTES);
            tags[k] = (uint32_t)k;
        }
        if (sock_irecv(peer->comm, posted->count, (void *const *)posted->data, posted->room, tags,
                       NULL, &posted->request) != xcclSuccess ||
            !posted->request)
            abort();
    }
}

static void check_guards(const struct peer *peer)
{
    for (int i = 0; i < RECVS; i++) {
        const struct posted *posted = &peer->posted[i];

        for (int k = 0; k < posted->count; k++)
            for (int b = 0; b < GUARD_BYTES; b++)
                if (posted->data[k][posted->room[k] + (size_t)b] != 0x5a)
                    abort();
    }
}

/* Any of them moves the whole comm. */
static void test_one(struct peer *peer, struct posted *posted)
{
    size_t sizes[SOCK_PARTS];
    xcclResult_t rc;
    int done = 0;

    if (!posted->request)
        return;
    rc = sock_test(posted->request, &done, sizes);
    if (rc != xcclSuccess) {
        if (peer->rc != xcclSuccess && rc != peer->rc)
            abort(); /* the first error stays */
        peer->rc = rc;
        return;
    }
    if (!done)
        return;
    posted->request = NULL;
    for (int k = 0; k < posted->count; k++)
        if (sizes[k] > posted->room[k])
            abort();
}

/* All that are not done, the last one first at every other turn. */
static void test_all(struct peer *peer, int backwards)
{
    for (int n = 0; n < RECVS; n++)
        test_one(peer, &peer->posted[backwards ? RECVS - 1 - n : n]);
}

static void say(struct peer *peer, int line, const void *bytes, size_t count)
{
    /* A full line just takes less. */
    (void)!send(peer->fds[line], bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* What a stream carries: chunks most of the time. */
static void say_frame(struct peer *peer, int line, const uint8_t step[4], size_t bytes)
{
    static const uint32_t checks[4] = {SOCK_CHUNK_CHECK, SOCK_CHUNK_CHECK, SOCK_LOST_CHECK,
                                       SOCK_CONTROL_CHECK};
    uint32_t check = checks[step[3] & 3];
    uint8_t header[SOCK_FRAME_BYTES];
    struct xccl_wire wire = xccl_wire_over(header, sizeof(header));

    xccl_wire_put_u32(&wire, check);
    xccl_wire_put_u32(&wire, step[1] & 15u);
    xccl_wire_put_u64(&wire, check == SOCK_CHUNK_CHECK     ? (uint64_t)(step[1] >> 4) * (64 << 10)
                             : check == SOCK_CONTROL_CHECK ? (uint64_t)(step[1] >> 4) * 8
                                                           : 0);
    xccl_wire_put_u64(&wire, check == SOCK_LOST_CHECK ? 0 : bytes);
    say(peer, line, header, sizeof(header));
}

/* A header of a message (way 1, of alike ones 6), an announcement (2) or a frame's (3). Sizes come
 * in units that make whole chunks likely; extra moves them off. */
static void say_header(struct peer *peer, int line, int way, const uint8_t step[4])
{
    static const size_t units[4] = {1, 100, 64 << 10, SOCK_PAGED_MIN / 32};
    size_t bytes = (step[2] & 63) * units[step[2] >> 6] + (step[3] >> 4);
    uint32_t check = way == 2 ? SOCK_SPREAD_CHECK : SOCK_HEADER_CHECK;
    uint8_t header[SOCK_HEADER_BYTES];
    struct xccl_wire wire = xccl_wire_over(header, sizeof(header));

    if (way == 3) {
        say_frame(peer, line, step, bytes);
        return;
    }
    xccl_wire_put_u64(&wire, way == 6                  ? ALIKE_BYTES
                             : way == 2 && step[3] & 8 ? LARGE_BYTES
                                                       : bytes);
    xccl_wire_put_u32(&wire, step[3] & 3u);
    xccl_wire_put_u32(&wire, check ^ (step[1] & 15u));
    say(peer, line, header, SOCK_HEADER_BYTES);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char zeroes[64 << 10];
    struct peer peer = {.rc = xcclSuccess};
    int count, turn = 0, after = 0;

    if (size < 1)
        return 0;
    count = 1 + data[0] % 4;
    open_lines(&peer, count);
    post(&peer, data[0] >> 7);
    for (size_t at = 1; at + 4 <= size;) {
        const uint8_t *step = data + at;
        int line = (step[0] & 15) % count, way = step[0] >> 4 & 7;
        size_t raw = step[1];

        at += 4;
        if (raw > size - at)
            raw = size - at;
        if ((way >= 1 && way <= 3) || way == 6) {
            say_header(&peer, line, way, step);
        } else if (way == 4) {
            say(&peer, line, zeroes, (size_t)(step[1] + 1) << 8);
        } else if (way == 5) {
            shutdown(peer.fds[line], step[1] & 1 ? SHUT_WR : SHUT_RDWR);
        } else {
            say(&peer, line, data + at, raw);
            at += raw;
        }
        test_one(&peer, &peer.posted[turn++ % RECVS]);
    }
    for (int i = 0; i < count; i++)
        close(peer.fds[i]);
    /* The end of all lines: what is not done has an error now. */
    for (int i = 0; i < LAST_TESTS && after < STILL; i++) {
        test_all(&peer, i & 1);
        after += peer.rc != xcclSuccess;
    }
    for (int i = 0; i < RECVS; i++)
        if (peer.posted[i].request && peer.rc == xcclSuccess)
            abort();
    check_guards(&peer);
    sock_close_comm(peer.comm);
    return 0;
}

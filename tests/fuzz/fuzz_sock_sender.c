/* SPDX-License-Identifier: BSD-3-Clause */
/* The send path of the socket plugin where a connection has several lines, or one with pads: a
 * receiver that is not one answers what it likes on any line, reads or does not read, and ends
 * lines. Input: how many streams, then steps: a line, what to do (bytes as they are, an
 * acknowledgement with these numbers, reading, an end, a further send), and its numbers. Nothing is
 * read behind the posted data, which has blocks of its own, and an error stays. Thread: one. */
#include <sanitizer/asan_interface.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/wire.h"
#include "net-socket/sock_int.h"

#define SENDS       12
#define LINE_ROOM   (64 << 10)
#define BLOCK_BYTES ((size_t)800 << 10) /* more than the longest send */
#define BEHIND      4096 /* bytes behind a send's data that nobody may read */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct sock_device device = {.rail_count = 2};
static struct sock_ctx ctx = {.failover = 1, .silence_ms = 1000};
static _Alignas(8) char blocks[SENDS][BLOCK_BYTES]; /* of the sends; asking for them took longest */

/* A sender's largest block, one at a time, has a place of its own (the linker's --wrap): mapping
 * and unmapping it for each input was a third of the time. */
static _Alignas(64) struct sock_scatter scatter;
static int is_taken;

void *__real_xccl_calloc(size_t count, size_t bytes);
void *__wrap_xccl_calloc(size_t count, size_t bytes);
void __real_xccl_free(void *memory);
void __wrap_xccl_free(void *memory);

void *__wrap_xccl_calloc(size_t count, size_t bytes)
{
    if (count != 1 || bytes != sizeof(scatter) || is_taken)
        return __real_xccl_calloc(count, bytes);
    is_taken = 1;
    ASAN_UNPOISON_MEMORY_REGION(&scatter, sizeof(scatter));
    memset(&scatter, 0, sizeof(scatter));
    return &scatter;
}

void __wrap_xccl_free(void *memory)
{
    if (memory != &scatter) {
        __real_xccl_free(memory);
        return;
    }
    is_taken = 0;
    ASAN_POISON_MEMORY_REGION(&scatter, sizeof(scatter));
}

struct peer {
    struct sock_comm *comm;
    int fds[SOCK_LINES_MAX]; /* its ends */
    int posted;
    xcclNetRequest_t requests[SENDS]; /* NULL: done, or not posted */
    xcclResult_t rc; /* the first error */
};

static void open_lines(struct peer *peer, int count)
{
    static const int room = LINE_ROOM;

    peer->comm = sock_comm_create(&ctx, &device, 1, count, count == 1 ? 1 : 2);
    if (!peer->comm)
        abort();
    for (int i = 0; i < count; i++) {
        int fds[2];

        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0)
            abort();
        (void)setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
        peer->comm->lines[i].fd = fds[0];
        peer->fds[i] = fds[1];
    }
}

static void post(struct peer *peer, const uint8_t step[4])
{
    static const size_t units[4] = {1, 300, 4 << 10, 24 << 10};
    size_t bytes = (step[1] & 31) * units[step[1] >> 6] + (step[2] & 7);
    xcclResult_t rc;
    char *block;

    if (peer->posted == SENDS)
        return;
    block = blocks[peer->posted];
    ASAN_POISON_MEMORY_REGION(block, bytes / 8 * 8 + BEHIND);
    ASAN_UNPOISON_MEMORY_REGION(block, bytes);
    rc = sock_isend(peer->comm, block, bytes, step[3], NULL, &peer->requests[peer->posted]);
    if (rc != xcclSuccess && peer->rc != xcclSuccess && rc != peer->rc)
        abort();
    if (rc != xcclSuccess)
        peer->rc = rc;
    peer->posted++;
}

/* Any of them moves the whole comm. */
static void test_one(struct peer *peer, int idx)
{
    xcclResult_t rc;
    int done = 0;

    if (!peer->requests[idx])
        return;
    rc = sock_test(peer->requests[idx], &done, NULL);
    if (rc != xcclSuccess && peer->rc != xcclSuccess && rc != peer->rc)
        abort(); /* the first error stays */
    if (rc != xcclSuccess)
        peer->rc = rc;
    if (rc == xcclSuccess && done)
        peer->requests[idx] = NULL;
}

static void say(const struct peer *peer, int line, const void *bytes, size_t count)
{
    (void)!send(peer->fds[line], bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Of numbers that can be right. */
static void say_ack(const struct peer *peer, int line, const uint8_t step[4])
{
    uint8_t bytes[SOCK_ACK_BYTES];
    struct xccl_wire wire = xccl_wire_over(bytes, sizeof(bytes));

    xccl_wire_put_u32(&wire, SOCK_ACK_CHECK);
    xccl_wire_put_u32(&wire, step[1] & 15u);
    xccl_wire_put_u64(&wire, (uint64_t)step[2] * SOCK_HEADER_BYTES);
    xccl_wire_put_u64(&wire, (uint64_t)step[3] << (step[1] >> 4));
    for (int i = 1; i < SOCK_SEND_WORDS; i++)
        xccl_wire_put_u64(&wire, 0);
    xccl_wire_put_u64(&wire, (uint64_t)(step[3] ^ step[2]) << (step[1] >> 4));
    for (int i = 1; i < SOCK_SEND_WORDS; i++)
        xccl_wire_put_u64(&wire, 0);
    say(peer, line, bytes, sizeof(bytes));
}

static void drain(const struct peer *peer, int line)
{
    static char bytes[LINE_ROOM];

    (void)!recv(peer->fds[line], bytes, sizeof(bytes), MSG_DONTWAIT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct peer peer = {.rc = xcclSuccess};
    int count, turn = 0;

    if (size < 1)
        return 0;
    count = data[0] & 0x80 ? 1 : 3 + data[0] % 3;
    open_lines(&peer, count);
    for (size_t at = 1; at + 4 <= size;) {
        const uint8_t *step = data + at;
        int line = (step[0] & 15) % count, way = step[0] >> 4 & 7;
        size_t raw = step[1];

        at += 4;
        if (raw > size - at)
            raw = size - at;
        if (way < 2) {
            post(&peer, step);
        } else if (way == 2 || way == 3) {
            say_ack(&peer, line, step);
        } else if (way == 4) {
            drain(&peer, line);
        } else if (way == 5) {
            shutdown(peer.fds[line], step[1] & 1 ? SHUT_WR : SHUT_RDWR);
        } else {
            say(&peer, line, data + at, raw);
            at += raw;
        }
        test_one(&peer, turn++ % SENDS);
    }
    for (int i = 0; i < count; i++)
        close(peer.fds[i]);
    sock_close_comm(peer.comm);
    sock_linger_sweep(&ctx, 1);
    return 0;
}

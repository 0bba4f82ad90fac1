/* SPDX-License-Identifier: BSD-3-Clause */
/* Zeroes before large payloads on a connection of one line of the socket plugin: what a sender
 * writes, what a receiver takes in pieces of any size, and what it refuses. */
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sock_pair.h"

#define HEADER     16
#define PAGE       4096
#define PADDED_MIN ((size_t)16 << 10)
#define PAGED_MIN  ((size_t)512 << 10)
#define WIDE_MIN   ((size_t)2 << 20)
#define HUGE_MIN   ((size_t)16 << 20)
#define MOST       ((size_t)2200000)
#define ROW        6 /* messages in flight */
#define GUARD      64

/* Sizes around the smallest that is padded, and any. */
static size_t some_size(uint64_t *random)
{
    static const size_t sizes[] = {
        PADDED_MIN,    PADDED_MIN - 1, PADDED_MIN + 1, PAGED_MIN, PAGED_MIN - 1,
        2 * PAGED_MIN, WIDE_MIN - 1,   WIDE_MIN,       0,         5};
    size_t which = xt_random(random) % 14;

    return which < sizeof(sizes) / sizeof(*sizes) ? sizes[which] : xt_random(random) % MOST;
}

static size_t some_place(uint64_t *random)
{
    static const size_t places[] = {0, 1, 15, 16, 64, 2048, PAGE - 16, PAGE - 1};
    size_t which = xt_random(random) % 12;

    return which < sizeof(places) / sizeof(*places) ? places[which] : xt_random(random) % PAGE;
}

/* ---- both ends are the plugin ---- */

static char *slot(char *memory, int i)
{
    return memory + (size_t)i * (MOST + 2 * PAGE);
}

/* Messages from and to any place within a page; receives may be larger. */
static void row(struct pair *pair, char *in, uint64_t *random, uint64_t *sum)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    void *sends[ROW], *recvs[ROW];
    size_t sizes[ROW], got[ROW];
    char *to[ROW];

    for (int i = 0; i < ROW; i++) {
        char *from = slot(big, i) + some_place(random);

        sizes[i] = some_size(random);
        to[i] = slot(in, i) + some_place(random);
        fill(from, sizes[i], (uint64_t)i + sizes[i]);
        memset(to[i] + sizes[i], 0x5a, GUARD);
        recvs[i] = post_recv(pair, to[i], sizes[i] + xt_random(random) % 3 * 1000);
        sends[i] = post_send(pair, from, sizes[i]);
        XT_CHECK(sends[i] && recvs[i]);
        *sum += sizes[i];
    }
    for (int left = 2 * ROW; left > 0;) {
        int i = (int)(xt_random(random) % ROW), done = 0;
        void **request = xt_random(random) % 2 ? &sends[i] : &recvs[i];

        XT_CHECK(!xccl_limit_passed(&limit));
        if (!*request)
            continue;
        XT_OK(pair->net->calls.test(*request, &done, request == &recvs[i] ? &got[i] : NULL));
        if (!done)
            continue;
        *request = NULL;
        left--;
    }
    for (int i = 0; i < ROW; i++) {
        XT_CHECK_INT(got[i], sizes[i]);
        expect(to[i], sizes[i], (uint64_t)i + sizes[i]);
        for (int k = 0; k < GUARD; k++)
            XT_CHECK_INT(to[i][sizes[i] + (size_t)k], 0x5a);
    }
}

XT_TEST_DEADLINE(payloads_of_any_size_arrive_whole_from_any_place_to_any_other, 60)
{
    uint64_t random = xt_seed();
    char *in = malloc(BIG_BYTES);

    XT_CHECK(in != NULL);
    for (int dev = 0; dev < 2; dev++) { /* loopback, Unix */
        xcclNetStats_v1 stats = {.size = sizeof(stats)};
        struct pair pair;
        uint64_t sum = 0;

        pair_listen_on(&pair, dev);
        pair_connect_on(&pair, dev);
        for (int i = 0; i < 40; i++)
            row(&pair, in, &random, &sum);
        /* Zeroes are nobody's bytes. */
        XT_OK(pair.net->calls.stats(pair.net->ctx, dev, &stats));
        XT_CHECK_INT(stats.sendBytes, sum);
        XT_CHECK_INT(stats.recvBytes, sum);
        pair_close(&pair);
    }
    free(in);
}

/* ---- what a sender writes ---- */

#define TOLD       40 /* messages */
#define TOLD_BYTES ((size_t)130 << 20)

/* A receiver with little room that is not the plugin: the sender's writes are cut. */
static int raw_receiver(struct pair *pair)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    xcclNetConnect_t state = NULL;
    const int room = 1 << 14;
    uint8_t seal[KIT_SEAL_BYTES];
    struct xccl_addr addr;
    int listener, fd = -1;

    pair_listen(pair);
    addr = handle_addr(&pair->handle);
    xccl_addr_set_port(&addr, 0);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    XT_CHECK_INT(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room)), 0);
    XT_CHECK_INT(bind(listener, &addr.sa.any, addr.bytes), 0);
    XT_CHECK_INT(listen(listener, 1), 0);
    XT_CHECK_INT(getsockname(listener, &addr.sa.any, &addr.bytes), 0);
    handle_set_addr(&pair->handle, &addr);
    while (!pair->send) {
        struct pollfd there = {.fd = listener, .events = POLLIN};

        XT_OK(pair->net->calls.connect(pair->net->ctx, 0, &pair->handle, &state, &pair->send));
        if (fd < 0 && poll(&there, 1, 0) == 1) {
            fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
            (void)raw_answer(fd, &pair->handle);
        }
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    XT_CHECK_INT(recv(fd, seal, sizeof(seal), MSG_WAITALL), sizeof(seal));
    close(listener);
    return fd;
}

struct told {
    const char *data[TOLD];
    size_t sizes[TOLD];
    void *requests[TOLD];
    int posted, done;
};

static void told_move(struct pair *pair, struct told *told)
{
    int done = 0;

    while (told->posted < TOLD && told->posted - told->done < ROW) {
        int i = told->posted++;

        told->requests[i] = post_send(pair, told->data[i], told->sizes[i]);
        XT_CHECK(told->requests[i] != NULL);
    }
    if (told->done == told->posted)
        return;
    XT_OK(pair->net->calls.test(told->requests[told->done], &done, NULL));
    told->done += done;
}

/* The place of message i in the stream: *at is moved behind it. */
static void told_check(const struct told *told, int i, const uint8_t *stream, size_t *at)
{
    const uint8_t *header = stream + *at;
    uint64_t bytes = 0;
    uint32_t check = (uint32_t)i ^ (uint32_t)header[12] ^ (uint32_t)header[13] << 8 ^
                     (uint32_t)header[14] << 16 ^ (uint32_t)header[15] << 24;
    size_t begin = *at, unit;

    memcpy(&bytes, header, 8);
    unit = bytes < PAGED_MIN  ? 64
           : bytes < WIDE_MIN ? PAGE
           : bytes < HUGE_MIN ? 2 * PAGE
                              : 4 * PAGE;
    XT_CHECK_INT(bytes, told->sizes[i]);
    XT_CHECK(memcmp(&check, "XCSM", 4) == 0);
    *at += HEADER;
    for (; bytes >= PADDED_MIN && (*at - begin + bytes) % unit != 0; ++*at)
        XT_CHECK_INT(stream[*at], 0);
    XT_CHECK(memcmp(stream + *at, told->data[i], bytes) == 0);
    *at += bytes;
}

XT_TEST_DEADLINE(a_large_message_has_a_round_length, 60)
{
    struct xccl_limit limit = xccl_limit_ms(50000, NULL);
    uint64_t random = xt_seed();
    uint8_t *stream = malloc(TOLD_BYTES);
    struct told told = {.posted = 0};
    struct pair pair;
    size_t have = 0, at = 0;
    int fd = raw_receiver(&pair);

    XT_CHECK(stream != NULL);
    fill(big, BIG_BYTES, random);
    for (int i = 0; i < TOLD; i++) {
        size_t first = (xt_random(&random) % 1800) * PAGE + some_place(&random);

        told.sizes[i] = i == 10 ? HUGE_MIN : i == 20 ? HUGE_MIN - 1 : some_size(&random);
        told.data[i] = big + first;
    }
    while (told.done < TOLD) {
        size_t piece = 1 + xt_random(&random) % 30000;
        ssize_t got;

        told_move(&pair, &told);
        XT_CHECK(have + piece <= TOLD_BYTES);
        got = recv(fd, stream + have, piece, MSG_DONTWAIT);
        have += got > 0 ? (size_t)got : 0;
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    XT_OK(pair.net->calls.closeSend(pair.send));
    pair.send = NULL;
    for (ssize_t got = 1; got > 0; have += (size_t)got) {
        got = recv(fd, stream + have, TOLD_BYTES - have, 0);
        XT_CHECK(got >= 0);
    }
    for (int i = 0; i < TOLD; i++)
        told_check(&told, i, stream, &at);
    XT_CHECK_INT(at, have);
    close(fd);
    pair_close(&pair);
    free(stream);
}

/* ---- what a receiver takes ---- */

/* The least size with so many zeroes. */
static size_t large_with(size_t pad)
{
    return pad < 64     ? PADDED_MIN + (128 - HEADER - pad) % 64
           : pad < PAGE ? PAGED_MIN + (2 * PAGE - HEADER - pad) % PAGE
                        : HUGE_MIN + (8 * PAGE - HEADER - pad) % (4 * PAGE);
}

/* "hello", a message with a pad, and "world". The pad is no zeroes: nobody looks. Returns its
 * bytes. */
static size_t stream_make(uint8_t *stream, size_t pad)
{
    size_t at = HEADER, large = large_with(pad);

    raw_header(stream, 0, 5);
    memcpy(stream + at, "hello", 5);
    at += 5;
    raw_header(stream + at, 1, large);
    at += HEADER;
    memset(stream + at, 0xa5, pad);
    at += pad;
    fill((char *)stream + at, large, pad);
    at += large;
    raw_header(stream + at, 2, 5);
    at += HEADER;
    memcpy(stream + at, "world", 5);
    return at + 5;
}

/* Three receives; pieces are single bytes up to the payload where most is 0. */
static void in_pieces(size_t pad, size_t most, uint64_t *random)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    static uint8_t stream[HUGE_MIN + 8 * PAGE + 100];
    static char hello[5], in[HUGE_MIN + 8 * PAGE], world[5];
    char *const to[3] = {hello, in, world};
    size_t end = stream_make(stream, pad), large = large_with(pad), at = 0, got[3];
    struct pair pair;
    int fd = raw_single_sender(&pair), left = 3;
    void *recvs[3];

    memset(in, 0x5a, sizeof(in));
    for (int i = 0; i < 3; i++)
        recvs[i] = post_recv(&pair, to[i], i == 1 ? large + 500 : 5);
    while (left > 0) {
        size_t piece = at < 2 * HEADER + 5 + pad + 3 && most == 0 ? 1 : end - at;

        if (most)
            piece = 1 + xt_random(random) % most;
        at += raw_send_some(fd, stream + at, piece < end - at ? piece : end - at);
        left -= test_all(&pair, recvs, got, 3);
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    XT_CHECK(got[0] == 5 && got[1] == large && got[2] == 5);
    XT_CHECK(memcmp(hello, "hello", 5) == 0);
    expect(in, large, pad);
    XT_CHECK(memcmp(world, "world", 5) == 0);
    XT_CHECK_INT(in[large], 0x5a);
    close(fd);
    pair_close(&pair);
}

XT_TEST_DEADLINE(a_padded_message_that_comes_in_pieces_is_put_together, 60)
{
    static const size_t pads[] = {
        0, 1, 15, 16, 17, 2048, PAGE - HEADER, PAGE - 1, PAGE, 4 * PAGE - HEADER, 4 * PAGE - 1};
    uint64_t random = xt_seed();

    for (size_t i = 0; i < sizeof(pads) / sizeof(*pads); i++) {
        in_pieces(pads[i], 0, &random);
        in_pieces(pads[i], 3000, &random);
        in_pieces(pads[i], PAGED_MIN, &random);
    }
    for (int i = 0; i < 40; i++)
        in_pieces(xt_random(&random) % (xt_random(&random) % 2 ? 64 : PAGE),
                  1 + xt_random(&random) % 9000, &random);
}

/* ---- what a receiver refuses ---- */

XT_TEST(a_payload_that_does_not_fit_is_refused_before_its_pad_is_read)
{
    static char in[PAGED_MIN];
    uint8_t stream[HEADER + 1000] = {0};
    struct pair pair;
    int fd = raw_single_sender(&pair);

    memset(in, 0x5a, sizeof(in));
    raw_header(stream, 0, PAGED_MIN + 1);
    raw_send(fd, stream, sizeof(stream));
    XT_CHECK_RC(finish(&pair, post_recv(&pair, in, sizeof(in)), NULL), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "524289 bytes, but its receive has room for 524288");
    for (size_t k = 0; k < sizeof(in); k++)
        XT_CHECK_INT(in[k], 0x5a);
    close(fd);
    pair_close(&pair);
}

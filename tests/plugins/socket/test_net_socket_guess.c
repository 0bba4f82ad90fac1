/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages that a receiver of the socket plugin guesses: one has filled its receive, and the next
 * receives are as large. Right guesses and wrong ones, in pieces of any size. */
#include <unistd.h>

#include "sock_pair.h"

#define HEADER    16
#define PAD       48 /* of GUESS_MIN bytes, which are padded; smaller messages are not */
#define GUESS_MIN ((size_t)16 << 10)
#define GUESS_MAX ((size_t)256 << 10)
#define ROW       12 /* messages in flight */
#define ROOM      (GUESS_MAX + 4096)
#define GUARD     64

/* ---- both ends are the plugin ---- */

/* Of most receives of a row. */
static size_t some_room(uint64_t *random)
{
    static const size_t rooms[] = {GUESS_MIN,     GUESS_MIN - 1, GUESS_MAX,
                                   GUESS_MAX + 1, 20000,         (size_t)64 << 10};
    size_t which = xt_random(random) % 9;

    return which < sizeof(rooms) / sizeof(*rooms) ? rooms[which] : xt_random(random) % ROOM;
}

/* Full for the most part. */
static size_t some_size(size_t room, uint64_t *random)
{
    switch (xt_random(random) % 8) {
    case 0:
        return xt_random(random) % (room + 1);
    case 1:
        return room < 100 ? 0 : xt_random(random) % 100;
    default:
        return room;
    }
}

struct message {
    void *request; /* NULL: done, or in the group of the one before */
    char *data;
    size_t room, bytes, got;
};

/* One receive for the message, or one for it and the next. */
static void post_one(struct pair *pair, struct message *recvs, int count)
{
    void *data[2] = {recvs[0].data, recvs[count - 1].data};
    size_t rooms[2] = {recvs[0].room, recvs[count - 1].room};
    uint32_t tags[2] = {7, 7};
    xcclNetMem_t mems[2] = {pair->recv_mem, pair->recv_mem};

    XT_OK(pair->net->calls.irecv(pair->recv, count, data, rooms, tags, mems, &recvs[0].request));
    XT_CHECK(recvs[0].request != NULL);
}

/* Some receives are of another size, or groups of two. Returns the requests. */
static int post_row(struct pair *pair, char *in, struct message *recvs, struct message *sends,
                    uint64_t *random)
{
    size_t room = some_room(random);
    int requests = ROW;

    for (int i = 0; i < ROW; i++) {
        size_t own = xt_random(random) % 12 ? room : some_room(random);

        recvs[i] = (struct message){.data = in + (size_t)i * (ROOM + GUARD), .room = own};
        sends[i] = (struct message){.data = big + (size_t)i * ROOM,
                                    .bytes = some_size(own, random)};
        fill(sends[i].data, sends[i].bytes, xt_random(random) % 1000);
        memset(recvs[i].data + own, 0x5a, GUARD);
    }
    for (int i = 0, count; i < ROW; i += count, requests++) {
        count = i + 1 < ROW && xt_random(random) % 6 == 0 ? 2 : 1;
        post_one(pair, recvs + i, count);
    }
    for (int i = 0; i < ROW; i++) {
        sends[i].request = post_send(pair, sends[i].data, sends[i].bytes);
        XT_CHECK(sends[i].request != NULL);
    }
    return requests;
}

static void row(struct pair *pair, char *in, uint64_t *random)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    struct message recvs[ROW], sends[ROW];

    for (int left = post_row(pair, in, recvs, sends, random); left > 0;) {
        int i = (int)(xt_random(random) % ROW), done = 0;
        size_t got[2] = {SIZE_MAX, SIZE_MAX};
        struct message *message = xt_random(random) % 2 ? &sends[i] : &recvs[i];

        XT_CHECK(!xccl_limit_passed(&limit));
        if (!message->request)
            continue;
        XT_OK(pair->net->calls.test(message->request, &done, got));
        if (!done)
            continue;
        message->request = NULL;
        message->got = got[0];
        if (got[1] != SIZE_MAX)
            message[1].got = got[1];
        left--;
    }
    for (int i = 0; i < ROW; i++) {
        XT_CHECK_INT(recvs[i].got, sends[i].bytes);
        XT_CHECK(memcmp(recvs[i].data, sends[i].data, sends[i].bytes) == 0);
        for (size_t k = 0; k < GUARD; k++)
            XT_CHECK_INT(recvs[i].data[recvs[i].room + k], 0x5a);
    }
}

XT_TEST_DEADLINE(messages_that_fill_their_receives_or_do_not_arrive_whole, 60)
{
    uint64_t random = xt_seed();
    char *in = malloc(ROW * (ROOM + GUARD));

    XT_CHECK(in != NULL);
    for (int dev = 0; dev < 2; dev++) { /* loopback, Unix */
        struct pair pair;

        pair_listen_on(&pair, dev);
        pair_connect_on(&pair, dev);
        for (int i = 0; i < 80; i++)
            row(&pair, in, &random);
        pair_close(&pair);
    }
    free(in);
}

/* ---- a sender that is not the plugin ---- */

#define SENT 6 /* messages */

static char rooms[SENT][GUESS_MIN + GUARD];
static uint8_t stream[SENT * (HEADER + PAD + GUESS_MIN)];

static size_t message_put(size_t at, int number, size_t bytes)
{
    raw_header(stream + at, number, bytes);
    at += HEADER;
    memset(stream + at, 0xa5, PAD);
    at += bytes < GUESS_MIN ? 0 : PAD;
    fill((char *)stream + at, bytes, (uint64_t)number);
    return at + bytes;
}

static void post_rooms(struct pair *pair, void **recvs_out)
{
    memset(rooms, 0x5a, sizeof(rooms));
    for (int i = 0; i < SENT; i++)
        recvs_out[i] = post_recv(pair, rooms[i], GUESS_MIN);
}

static void check_guards(void)
{
    for (int i = 0; i < SENT; i++)
        for (size_t k = 0; k < GUARD; k++)
            XT_CHECK_INT(rooms[i][GUESS_MIN + k], 0x5a);
}

/* Sends the stream in pieces of at most `most` bytes, each before some tests; 0: all at first. */
static void in_pieces(const size_t sizes[SENT], size_t most, uint64_t *random)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    size_t end = 0, at = 0, got[SENT];
    struct pair pair;
    int fd = raw_single_sender(&pair), left = SENT;
    void *recvs[SENT];

    for (int i = 0; i < SENT; i++)
        end = message_put(end, i, sizes[i]);
    post_rooms(&pair, recvs);
    if (most == 0) {
        raw_send(fd, stream, end);
        at = end;
    }
    while (left > 0) {
        size_t piece = at < end ? 1 + xt_random(random) % most : 0;

        at += raw_send_some(fd, stream + at, piece < end - at ? piece : end - at);
        left -= test_all(&pair, recvs, got, SENT);
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    for (int i = 0; i < SENT; i++) {
        XT_CHECK_INT(got[i], sizes[i]);
        expect(rooms[i], sizes[i], (uint64_t)i);
    }
    check_guards();
    close(fd);
    pair_close(&pair);
}

XT_TEST_DEADLINE(what_is_not_as_guessed_is_put_where_it_belongs, 60)
{
    static const size_t rows[][SENT] = {
        {GUESS_MIN, GUESS_MIN, GUESS_MIN, GUESS_MIN, GUESS_MIN, GUESS_MIN},
        {GUESS_MIN, 0, GUESS_MIN, 0, 0, GUESS_MIN},
        {GUESS_MIN, GUESS_MIN - 1, 1, GUESS_MIN, GUESS_MIN, 2},
        {GUESS_MIN, GUESS_MIN, GUESS_MIN, 5, GUESS_MIN, GUESS_MIN},
        {GUESS_MIN, 5, 6, 7, 8, 9},
        {100, GUESS_MIN, GUESS_MIN, GUESS_MIN, 100, GUESS_MIN},
    };
    uint64_t random = xt_seed();

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        in_pieces(rows[i], 0, &random);
        in_pieces(rows[i], 40, &random);
        for (int k = 0; k < 6; k++)
            in_pieces(rows[i], 1 + xt_random(&random) % (4 * GUESS_MIN), &random);
    }
}

/* So the tests above are about guesses: the room behind a shorter message has what came next. */
XT_TEST(a_full_receive_makes_the_next_ones_be_guessed)
{
    struct pair pair;
    int fd = raw_single_sender(&pair);
    size_t first = message_put(0, 0, GUESS_MIN), end = message_put(first, 1, 5), got = 0;
    void *recvs[SENT];

    end = message_put(end, 2, GUESS_MIN);
    post_rooms(&pair, recvs);
    raw_send(fd, stream, first);
    XT_OK(finish(&pair, recvs[0], &got));
    XT_CHECK_INT(got, GUESS_MIN);
    raw_send(fd, stream + first, end - first);
    XT_OK(finish(&pair, recvs[1], &got));
    XT_CHECK_INT(got, 5);
    expect(rooms[1] + 5 + HEADER, 100, 2); /* less what came in the place of its own pad */
    XT_OK(finish(&pair, recvs[2], &got));
    XT_CHECK_INT(got, GUESS_MIN);
    expect(rooms[2], GUESS_MIN, 2);
    check_guards();
    close(fd);
    pair_close(&pair);
}

XT_TEST(a_wrong_header_among_guessed_ones_ends_the_comm)
{
    static const struct {
        size_t at; /* in the header of message 2 */
        uint8_t value;
        xcclResult_t rc;
        const char *text;
    } wrong[] = {
        {12, 'Y', xcclRemoteError, "no header where the bytes of message 2 should begin"},
        {8, 8, xcclInvalidUsage, "has tag 8, but its receive has tag 7"},
        {5, 1, xcclInvalidUsage, "1099511644160 bytes, but its receive has room for 16384"},
        {7, 255, xcclInvalidUsage, "bytes, but its receive has room for 16384"},
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        struct pair pair;
        int fd = raw_single_sender(&pair);
        size_t end = 0, got = 0;
        void *recvs[SENT];

        for (int k = 0; k < SENT; k++)
            end = message_put(end, k, GUESS_MIN);
        stream[2 * (HEADER + PAD + GUESS_MIN) + wrong[i].at] = wrong[i].value;
        post_rooms(&pair, recvs);
        raw_send(fd, stream, end);
        for (int k = 0; k < 2; k++)
            XT_OK(finish(&pair, recvs[k], &got));
        for (int k = 2; k < SENT; k++) {
            XT_CHECK_RC(finish(&pair, recvs[k], NULL), wrong[i].rc);
            XT_CHECK_HAS(xccl_error_text(), wrong[i].text);
        }
        for (int k = 0; k < 2; k++)
            expect(rooms[k], GUESS_MIN, (uint64_t)k);
        check_guards();
        close(fd);
        pair_close(&pair);
    }
}

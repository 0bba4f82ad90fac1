/* SPDX-License-Identifier: BSD-3-Clause */
/* The side channel that ib, ofi and ucx have in common, over the loopback: a hello that is right,
 * in pieces, wrong in each of its first bytes, cut in the middle, or not said at all; and more
 * strangers than there are places. The clock of the door is the test's own. Then notes: in pieces,
 * more than the socket takes, and each way in which they end.
 *
 * Thread: one. */
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/tcp.h"
#include "kit/kit_hello.h"
#include "kit/kit_side.h"
#include "xt.h"

#define HELLO_BYTES (KIT_HEAD_BYTES + 8)
#define TRIES       2000
#define NOTE_BYTES  16

/* Any word but 13. */
static int word_decode(struct xccl_wire *wire, void *word_out)
{
    uint64_t *word = word_out;

    *word = xccl_wire_get_u64(wire);
    return *word != 13;
}

static const struct kit_dialect dialect = {.plugin = "toy",
                                           .wrong = "a wrong hello",
                                           .handle_magic = 0x11223344,
                                           .hello_magic = 0x55667788,
                                           .version = 3,
                                           .handle_own_bytes = 4,
                                           .hello_bytes = HELLO_BYTES,
                                           .hello_bytes_max = HELLO_BYTES + 4,
                                           .decode = word_decode};
static struct kit_listener door;
static uint64_t word; /* of the last right hello */
static char said[400];

static void log_line(xcclNetLogLevel_t level, const char *line)
{
    (void)level;
    snprintf(said, sizeof(said), "%s", line);
}

static void door_open(int port_count)
{
    struct xccl_addr any;

    said[0] = 0;
    XT_OK(kit_listener_open(&door, &dialect, log_line, "dev0"));
    XT_OK(xccl_addr_parse("127.0.0.1:1", 0, &any));
    xccl_addr_set_port(&any, 0);
    for (int i = 0; i < port_count; i++)
        XT_OK(kit_listener_port(&door, (uint32_t)i, &any));
}

static void hello_make(uint8_t hello_out[HELLO_BYTES], uint64_t number)
{
    struct xccl_wire wire;

    memset(hello_out, 0, HELLO_BYTES);
    wire = kit_hello_begin(&dialect, door.handle.token, hello_out);
    xccl_wire_put_u64(&wire, number);
}

/* Somebody comes and says these bytes. */
static int come(int port, const void *data, size_t bytes)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    XT_CHECK(fd >= 0);
    XT_CHECK_INT(connect(fd, &door.ports[port].sa.any, door.ports[port].bytes), 0);
    XT_CHECK_INT(send(fd, data, bytes, 0), bytes);
    return fd;
}

static struct xccl_stranger *look(uint64_t now_ns)
{
    int at = 0;

    XT_OK(kit_listener_fill(&door, now_ns));
    return kit_listener_next(&door, &at, now_ns, &word);
}

/* Until somebody has shown the token: the loopback takes its time. */
static struct xccl_stranger *meet(uint64_t now_ns)
{
    struct xccl_stranger *stranger = NULL;

    for (int i = 0; i < TRIES && !stranger; i++) {
        stranger = look(now_ns);
        usleep(500);
    }
    XT_CHECK(stranger != NULL && word == 77);
    return stranger;
}

/* Nobody is let in, and the listener says why. */
static void expect_dropped(const char *why)
{
    said[0] = 0;
    for (int i = 0; i < TRIES && !said[0]; i++) {
        XT_CHECK(look(1) == NULL);
        usleep(500);
    }
    XT_CHECK_HAS(said, "on dev0: ");
    XT_CHECK_HAS(said, why);
}

static int places_taken(void)
{
    int count = 0;

    for (int i = 0; i < XCCL_DOORSTEP_PLACES; i++)
        count += door.step.places[i].fd >= 0;
    return count;
}

XT_TEST(a_handle_comes_back_and_a_strange_one_names_the_plugin)
{
    xcclNetHandle_t bytes;
    struct kit_handle back;

    for (uint32_t count = 1; count <= KIT_PORTS_MAX; count++) {
        door_open((int)count);
        kit_handle_encode(&dialect, &door.handle, &bytes);
        XT_OK(kit_handle_decode(&dialect, &bytes, &back));
        XT_CHECK(memcmp(back.token, door.handle.token, sizeof(back.token)) == 0);
        XT_CHECK_INT(back.addr_count, count < KIT_ADDRS_MAX ? count : KIT_ADDRS_MAX);
        for (uint32_t i = 0; i < back.addr_count; i++)
            XT_CHECK(xccl_addr_equal(&back.addrs[i], &door.ports[i]));
        kit_listener_close(&door);
    }
    for (int i = 0; i < 4; i++)
        XT_CHECK_INT(bytes.bytes[KIT_HEAD_BYTES + i], 0); /* the plugin's own */
    for (int i = 0; i < 8; i++) {
        bytes.bytes[i] ^= 0x20;
        XT_CHECK_RC(kit_handle_decode(&dialect, &bytes, &back), xcclInvalidArgument);
        XT_CHECK_HAS(xccl_error_text(),
                     "a connect handle is not of the toy plugin, wire version 3");
        bytes.bytes[i] ^= 0x20;
    }
}

XT_TEST(a_hello_is_right_in_one_piece_or_two_and_by_any_port)
{
    uint8_t hello[HELLO_BYTES];
    struct xccl_stranger *stranger;
    int fd;

    door_open(2);
    hello_make(hello, 77);
    fd = come(0, hello, sizeof(hello));
    stranger = meet(1);
    XT_CHECK(memcmp(stranger->hello, hello, sizeof(hello)) == 0);
    /* Who is left at the door is there again. */
    XT_CHECK(meet(1) == stranger);
    xccl_doorstep_drop(&door.step, stranger, "test");
    close(fd);
    fd = come(1, hello, KIT_HEAD_BYTES + 3);
    while (places_taken() == 0)
        XT_CHECK(look(1) == NULL);
    XT_CHECK_INT(send(fd, hello + KIT_HEAD_BYTES + 3, 5, 0), 5);
    XT_CHECK(memcmp(meet(1)->hello, hello, sizeof(hello)) == 0);
    close(fd);
    kit_listener_close(&door);
}

XT_TEST(a_hello_is_known_by_each_byte_of_its_head_and_by_its_contents)
{
    uint8_t hello[HELLO_BYTES];

    door_open(1);
    hello_make(hello, 77);
    for (int i = 0; i < KIT_HEAD_BYTES; i++) {
        int fd;

        hello[i] ^= 0x40;
        fd = come(0, hello, sizeof(hello));
        expect_dropped("a wrong hello");
        hello[i] ^= 0x40;
        close(fd);
    }
    hello_make(hello, 13);
    close(come(0, hello, sizeof(hello)));
    expect_dropped("a wrong hello");
    XT_CHECK_INT(places_taken(), 0);
    kit_listener_close(&door);
}

XT_TEST(who_goes_in_the_middle_of_a_hello_leaves_nothing)
{
    uint8_t hello[HELLO_BYTES];

    door_open(1);
    hello_make(hello, 77);
    close(come(0, hello, HELLO_BYTES - 1));
    expect_dropped("it has gone");
    XT_CHECK_INT(places_taken(), 0);
    kit_listener_close(&door);
}

XT_TEST(a_silent_one_waits_for_five_seconds_and_delays_nobody)
{
    uint8_t hello[HELLO_BYTES];
    int silent, fd;

    door_open(1);
    hello_make(hello, 77);
    silent = come(0, "x", 1);
    while (places_taken() == 0)
        XT_CHECK(look(1) == NULL);
    fd = come(0, hello, sizeof(hello));
    XT_CHECK(meet(1 + 5 * XCCL_NS_PER_S) == &door.step.places[1]);
    XT_CHECK_INT(places_taken(), 2);
    XT_CHECK(look(2 + 5 * XCCL_NS_PER_S) == &door.step.places[1]);
    XT_CHECK_INT(places_taken(), 1);
    XT_CHECK_HAS(said, "no complete hello in 5 s");
    close(silent);
    close(fd);
    kit_listener_close(&door);
}

XT_TEST(of_too_many_strangers_the_oldest_makes_room)
{
    int fds[XCCL_DOORSTEP_PLACES], fd;
    uint8_t hello[HELLO_BYTES];

    door_open(1);
    hello_make(hello, 77);
    for (int i = 0; i < XCCL_DOORSTEP_PLACES; i++) {
        fds[i] = come(0, "x", 1);
        for (int k = 0; k < TRIES && places_taken() <= i; k++) {
            XT_CHECK(look((uint64_t)i + 1) == NULL);
            usleep(500);
        }
        XT_CHECK_INT(places_taken(), i + 1);
    }
    fd = come(0, hello, sizeof(hello));
    XT_CHECK(meet(XCCL_DOORSTEP_PLACES + 1) == &door.step.places[0]);
    XT_CHECK_HAS(said, "too many at once have not said who they are");
    for (int i = 0; i < XCCL_DOORSTEP_PLACES; i++)
        close(fds[i]);
    close(fd);
    kit_listener_close(&door);
}

XT_TEST(a_greeting_says_the_hello_once_it_is_through)
{
    struct kit_greeting greeting = {.is_reached = 0};
    uint8_t hello[HELLO_BYTES], answer[4] = {0};
    struct xccl_stranger *stranger;
    size_t said_bytes = 0;
    int fd = -1, done = 0;

    door_open(1);
    hello_make(hello, 77);
    XT_OK(xccl_tcp_connect_start(&door.ports[0], &fd));
    for (int i = 0; i < TRIES && !done; i++) {
        XT_OK(kit_greet(&greeting, fd, &door.ports[0], hello, sizeof(hello), &done));
        usleep(500);
    }
    XT_CHECK(done && greeting.is_reached && greeting.said == sizeof(hello));
    /* What is out is not said once more. */
    XT_OK(kit_greet(&greeting, fd, &door.ports[0], hello, sizeof(hello), &done));
    stranger = meet(1);
    XT_CHECK_INT(xccl_doorstep_read(&door.step, stranger, HELLO_BYTES + 1, 1), 0);
    XT_OK(kit_say(stranger->fd, (const uint8_t *)"well", 4, &said_bytes));
    XT_CHECK_INT(said_bytes, 4);
    for (int i = 0; i < TRIES && greeting.heard < sizeof(answer); i++) {
        XT_OK(kit_hear(fd, answer, sizeof(answer), &greeting.heard));
        usleep(500);
    }
    XT_CHECK(memcmp(answer, "well", sizeof(answer)) == 0);
    kit_listener_close(&door);
    xccl_tcp_close(&fd);
}

XT_TEST(a_greeting_to_nobody_is_an_error)
{
    struct kit_greeting greeting = {.is_reached = 0};
    xcclResult_t rc = xcclSuccess;
    uint8_t hello[HELLO_BYTES];
    int fd = -1, done = 0;

    door_open(1);
    hello_make(hello, 77);
    kit_listener_close(&door);
    rc = xccl_tcp_connect_start(&door.ports[0], &fd);
    for (int i = 0; i < TRIES && rc == xcclSuccess; i++) {
        rc = kit_greet(&greeting, fd, &door.ports[0], hello, sizeof(hello), &done);
        XT_CHECK(!done && greeting.said == 0);
        usleep(500);
    }
    XT_CHECK_RC(rc, xcclRemoteError);
    xccl_tcp_close(&fd);
}

/* ---- notes ---- */

/* Two ends, of which the second one is the test's. */
static struct kit_side side_open(int *peer_out)
{
    struct kit_side side = {.fd = -1};
    int fds[2];

    XT_CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    side.fd = fds[0];
    *peer_out = fds[1];
    return side;
}

XT_TEST(a_note_may_come_in_pieces_and_the_next_one_stays)
{
    uint8_t in[NOTE_BYTES];
    struct kit_side side;
    int peer;

    side = side_open(&peer);
    kit_side_read(&side, in, sizeof(in));
    XT_CHECK(side.in_bytes == 0 && !side.has_ended);
    XT_CHECK_INT(send(peer, "0123456", 7, 0), 7);
    kit_side_read(&side, in, sizeof(in));
    XT_CHECK_INT(side.in_bytes, 7);
    XT_CHECK_INT(send(peer, "789abcdefNEXT", 13, 0), 13);
    kit_side_read(&side, in, sizeof(in));
    XT_CHECK(side.in_bytes == NOTE_BYTES && memcmp(in, "0123456789abcdef", sizeof(in)) == 0);
    /* Until it is dealt with nothing more is read, not even the end. */
    close(peer);
    kit_side_read(&side, in, sizeof(in));
    XT_CHECK(side.in_bytes == NOTE_BYTES && !side.has_ended);
    side.in_bytes = 0;
    kit_side_read(&side, in, sizeof(in));
    XT_CHECK(side.in_bytes == 4 && memcmp(in, "NEXT", 4) == 0);
    kit_side_read(&side, in, sizeof(in));
    XT_CHECK(side.in_bytes == 4 && side.has_ended && side.err == 0);
    close(side.fd);
}

XT_TEST(notes_wait_in_order_while_the_socket_is_full)
{
    static uint8_t out[4 * NOTE_BYTES], got[NOTE_BYTES];
    struct kit_side side;
    uint32_t said_count = 0, count = 0;
    int peer;

    side = side_open(&peer);
    while (kit_side_has_place(&side, out, sizeof(out), NOTE_BYTES)) {
        memset(out + side.out_bytes, 0, NOTE_BYTES);
        memcpy(out + side.out_bytes, &said_count, sizeof(said_count));
        said_count++;
        side.out_bytes += NOTE_BYTES;
        kit_side_write(&side, out);
    }
    XT_CHECK(side.out_bytes + NOTE_BYTES > sizeof(out) && side.err == 0);
    for (; count < said_count; count++) {
        uint32_t number;

        kit_side_write(&side, out);
        XT_CHECK_INT(recv(peer, got, sizeof(got), MSG_WAITALL), sizeof(got));
        memcpy(&number, got, sizeof(number));
        XT_CHECK_INT(number, count);
    }
    XT_CHECK_INT(side.out_bytes, 0);
    close(peer);
    close(side.fd);
}

XT_TEST(a_peer_that_is_gone_is_no_error_of_the_way)
{
    uint8_t out[NOTE_BYTES] = {1}, in[NOTE_BYTES];
    struct kit_side side;
    int peer;

    side = side_open(&peer);
    close(peer);
    side.out_bytes = sizeof(out);
    kit_side_write(&side, out);
    XT_CHECK(side.out_bytes == sizeof(out) && side.err == 0 && !side.has_ended);
    kit_side_read(&side, in, sizeof(in));
    XT_CHECK(side.has_ended && side.err == 0);
    close(side.fd);
}

XT_TEST(the_first_error_of_the_way_is_kept)
{
    struct kit_side side = {.fd = -1};

    errno = EAGAIN;
    XT_CHECK(!kit_side_keep_err(&side) && side.err == 0);
    errno = ECONNRESET;
    XT_CHECK(kit_side_keep_err(&side) && side.err == 0);
    errno = EHOSTUNREACH;
    XT_CHECK(kit_side_keep_err(&side));
    errno = ETIMEDOUT;
    XT_CHECK(kit_side_keep_err(&side));
    XT_CHECK_INT(side.err, EHOSTUNREACH);
    XT_CHECK(kit_side_is_dark(EHOSTUNREACH) && kit_side_is_dark(ETIMEDOUT));
    XT_CHECK(!kit_side_is_dark(ECONNRESET) && !kit_side_is_dark(0));
}

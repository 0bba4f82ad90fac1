/* SPDX-License-Identifier: BSD-3-Clause */
/* How connections prove themselves and the side channel that ib, ofi and ucx have in common, over
 * the loopback: openings that are right, in pieces, wrong in each byte, said again, cut in the
 * middle, or not said at all; hellos that are altered; more strangers than there are places. The
 * clock of the door is the test's own. Then notes: in pieces, more than the socket takes, and each
 * way in which they end.
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

#define HELLO_BYTES (KIT_HELLO_BYTES + 8)
#define TRIES       2000
#define NOTE_BYTES  16
#define SEALED      KIT_SEALED(NOTE_BYTES)

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
static uint64_t door_ns; /* at the door, while it is answered */
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
    door_ns = 1;
    XT_OK(kit_listener_open(&door, &dialect, log_line, "dev0"));
    XT_OK(xccl_addr_parse("127.0.0.1:1", 0, &any));
    xccl_addr_set_port(&any, 0);
    for (int i = 0; i < port_count; i++)
        XT_OK(kit_listener_port(&door, (uint32_t)i, &any));
}

static void hello_make(uint8_t hello_out[KIT_SEALED(HELLO_BYTES)], uint64_t number)
{
    struct xccl_wire wire;

    memset(hello_out, 0, KIT_SEALED(HELLO_BYTES));
    wire = kit_hello_begin(&dialect, hello_out);
    xccl_wire_put_u64(&wire, number);
}

static void opening_make(struct kit_proof *proof_out, uint32_t hello_bytes)
{
    const struct kit_opening opening = {.magic = dialect.hello_magic,
                                        .version = dialect.version,
                                        .context = {5, 6, 7},
                                        .hello_bytes = hello_bytes};

    memset(proof_out, 0, sizeof(*proof_out));
    kit_proof_begin(proof_out, door.handle.token, &opening);
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

static struct kit_stranger *look(uint64_t now_ns)
{
    int at = 0;

    XT_OK(kit_listener_fill(&door, now_ns));
    return kit_listener_next(&door, &at, now_ns, &word);
}

/* Looks until the answer is there. */
static void answer_get(int fd, struct kit_proof *proof)
{
    uint8_t answer[KIT_ANSWER_BYTES];
    ssize_t got = -1;

    for (int i = 0; i < TRIES && got < 0; i++) {
        XT_CHECK(look(door_ns) == NULL);
        got = recv(fd, answer, sizeof(answer), MSG_DONTWAIT);
        usleep(500);
    }
    XT_CHECK_INT(got, sizeof(answer));
    XT_CHECK(kit_proof_hear(proof, door.handle.token, answer));
}

/* Somebody who knows the token has come, opened and been answered; his hello is sealed. */
static int come_far(int port, struct kit_proof *proof, uint8_t *hello)
{
    int fd;

    opening_make(proof, HELLO_BYTES);
    fd = come(port, proof->opening, KIT_OPENING_BYTES);
    answer_get(fd, proof);
    kit_proof_seal(proof, hello, HELLO_BYTES);
    return fd;
}

static void say(int fd, const void *data, size_t bytes)
{
    XT_CHECK_INT(send(fd, data, bytes, MSG_NOSIGNAL), bytes);
}

/* Looks until somebody has proved himself: the loopback takes its time. */
static struct kit_stranger *meet(uint64_t now_ns)
{
    struct kit_stranger *stranger = NULL;

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

    for (int i = 0; i < KIT_DOORSTEP_PLACES; i++)
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

XT_TEST(both_ends_have_the_same_keys_and_others_each_time)
{
    uint8_t token[KIT_TOKEN_BYTES] = {9}, answer[KIT_ANSWER_BYTES], keys[4][64], data[40] = {1, 2};
    const struct kit_opening opening = {.magic = 1, .version = 2, .context = {3, 4, 5}};

    for (int i = 0; i < 4; i += 2) {
        struct kit_proof sender = {.is_sender = 0}, receiver = {.is_sender = 0};

        kit_proof_begin(&sender, token, &opening);
        kit_proof_read(&receiver, sender.opening);
        XT_CHECK(memcmp(&receiver.said, &opening, sizeof(opening)) == 0);
        XT_CHECK(kit_proof_is_right(&receiver, token));
        kit_proof_answer(&receiver, token, answer);
        for (size_t k = 0; k < sizeof(answer); k++) {
            answer[k] ^= 1;
            XT_CHECK(!kit_proof_hear(&sender, token, answer));
            answer[k] ^= 1;
        }
        XT_CHECK(kit_proof_hear(&sender, token, answer));
        kit_proof_key(&sender, "a label", keys[i], sizeof(keys[i]));
        kit_proof_key(&receiver, "a label", keys[i + 1], sizeof(keys[i]));
        XT_CHECK(memcmp(keys[i], keys[i + 1], sizeof(keys[i])) == 0);
        kit_proof_key(&sender, "a labeL", keys[i + 1], sizeof(keys[i]));
        XT_CHECK(memcmp(keys[i], keys[i + 1], sizeof(keys[i])) != 0);
        /* A seal is opened by the other end only, once, and in order. */
        kit_proof_seal(&sender, data, 2);
        XT_CHECK(!kit_proof_open(&sender, data, 2));
        XT_CHECK(data[0] != 1 || data[1] != 2);
        kit_proof_wipe(&sender);
    }
    XT_CHECK(memcmp(keys[0], keys[2], sizeof(keys[0])) != 0);
}

XT_TEST(seals_are_opened_in_order_and_once)
{
    uint8_t token[KIT_TOKEN_BYTES] = {9}, answer[KIT_ANSWER_BYTES], one[20] = "one",
            two[20] = "two";
    uint8_t again[20], later[20];
    const struct kit_opening opening = {.magic = 1};
    struct kit_proof sender = {.is_sender = 0}, receiver = {.is_sender = 0}, copy;

    kit_proof_begin(&sender, token, &opening);
    kit_proof_read(&receiver, sender.opening);
    kit_proof_answer(&receiver, token, answer);
    XT_CHECK(kit_proof_hear(&sender, token, answer));
    kit_proof_seal(&sender, one, 4);
    kit_proof_seal(&sender, two, 4);
    memcpy(again, one, sizeof(again));
    copy = receiver;
    memcpy(later, two, sizeof(later));
    XT_CHECK(!kit_proof_open(&copy, later, 4)); /* one was left out */
    XT_CHECK(kit_proof_open(&receiver, one, 4) && strcmp((char *)one, "one") == 0);
    copy = receiver;
    XT_CHECK(!kit_proof_open(&copy, again, 4)); /* it comes again */
    XT_CHECK(kit_proof_open(&receiver, two, 4) && strcmp((char *)two, "two") == 0);
    /* The way back has a key of its own. */
    kit_proof_seal(&receiver, one, 4);
    memcpy(again, one, sizeof(again));
    XT_CHECK(!kit_proof_open(&receiver, again, 4));
    XT_CHECK(kit_proof_open(&sender, one, 4) && strcmp((char *)one, "one") == 0);
}

XT_TEST(a_hello_is_right_in_one_piece_or_two_and_by_any_port)
{
    uint8_t hello[KIT_SEALED(HELLO_BYTES)], plain[KIT_SEALED(HELLO_BYTES)];
    struct kit_stranger *stranger;
    struct kit_proof proof;
    int fd;

    door_open(2);
    hello_make(hello, 77);
    memcpy(plain, hello, sizeof(plain));
    fd = come_far(0, &proof, hello);
    say(fd, hello, sizeof(hello));
    stranger = meet(1);
    XT_CHECK(memcmp(stranger->hello, plain, HELLO_BYTES) == 0);
    XT_CHECK_INT(kit_guest_proof(&door.guests, &door.step, stranger)->said.context[2], 7);
    /* Who is left at the door is there again. */
    XT_CHECK(meet(1) == stranger);
    kit_doorstep_drop(&door.step, stranger, "test");
    close(fd);
    opening_make(&proof, HELLO_BYTES);
    fd = come(1, proof.opening, 20);
    while (places_taken() == 0)
        XT_CHECK(look(1) == NULL);
    say(fd, proof.opening + 20, KIT_OPENING_BYTES - 20);
    answer_get(fd, &proof);
    hello_make(hello, 77);
    kit_proof_seal(&proof, hello, HELLO_BYTES);
    say(fd, hello, 7);
    XT_CHECK(look(1) == NULL);
    say(fd, hello + 7, sizeof(hello) - 7);
    XT_CHECK(memcmp(meet(1)->hello, plain, HELLO_BYTES) == 0);
    close(fd);
    kit_listener_close(&door);
}

XT_TEST(an_opening_is_known_by_each_of_its_bytes_and_comes_once)
{
    struct kit_proof proof;
    int fd;

    door_open(1);
    opening_make(&proof, HELLO_BYTES);
    for (int i = 0; i < KIT_OPENING_BYTES; i++) {
        proof.opening[i] ^= 0x40;
        fd = come(0, proof.opening, KIT_OPENING_BYTES);
        expect_dropped(i / 4 == 1 ? "it has wire version" : "a wrong hello");
        proof.opening[i] ^= 0x40;
        close(fd);
    }
    fd = come(0, proof.opening, KIT_OPENING_BYTES);
    answer_get(fd, &proof);
    close(come(0, proof.opening, KIT_OPENING_BYTES));
    expect_dropped("its opening has been here before");
    close(fd);
    expect_dropped("it has gone");
    for (uint32_t bytes = HELLO_BYTES - 1; bytes < HELLO_BYTES + 6; bytes += 6) {
        opening_make(&proof, bytes); /* too short, too long */
        close(come(0, proof.opening, KIT_OPENING_BYTES));
        expect_dropped("a wrong hello");
    }
    XT_CHECK_INT(places_taken(), 0);
    kit_listener_close(&door);
}

XT_TEST(versions_are_named_where_they_differ)
{
    struct kit_opening opening = {.magic = dialect.hello_magic, .version = 2};
    struct kit_proof proof = {.is_sender = 0};

    door_open(1);
    kit_proof_begin(&proof, door.handle.token, &opening);
    close(come(0, proof.opening, KIT_OPENING_BYTES));
    expect_dropped("it has wire version 2 of the toy plugin, and this end 3: use the same build");
    kit_listener_close(&door);
}

XT_TEST(a_hello_that_was_altered_or_says_what_may_not_be_is_dropped)
{
    uint8_t hello[KIT_SEALED(HELLO_BYTES)];
    struct kit_proof proof;
    int fd;

    door_open(1);
    for (size_t i = 0; i < sizeof(hello); i++) {
        hello_make(hello, 77);
        fd = come_far(0, &proof, hello);
        hello[i] ^= 4;
        say(fd, hello, sizeof(hello));
        expect_dropped("a wrong hello");
        close(fd);
    }
    hello_make(hello, 13);
    fd = come_far(0, &proof, hello);
    say(fd, hello, sizeof(hello));
    expect_dropped("a wrong hello");
    close(fd);
    XT_CHECK_INT(places_taken(), 0);
    kit_listener_close(&door);
}

XT_TEST(who_goes_in_the_middle_leaves_nothing)
{
    uint8_t hello[KIT_SEALED(HELLO_BYTES)];
    struct kit_proof proof;
    int fd;

    door_open(1);
    opening_make(&proof, HELLO_BYTES);
    close(come(0, proof.opening, KIT_OPENING_BYTES - 1));
    expect_dropped("it has gone");
    hello_make(hello, 77);
    fd = come_far(0, &proof, hello);
    say(fd, hello, sizeof(hello) - 1);
    close(fd);
    expect_dropped("it has gone");
    XT_CHECK_INT(places_taken(), 0);
    kit_listener_close(&door);
}

XT_TEST(a_silent_one_waits_for_five_seconds_and_delays_nobody)
{
    uint8_t hello[KIT_SEALED(HELLO_BYTES)];
    struct kit_proof proof;
    int silent, fd;

    door_open(1);
    hello_make(hello, 77);
    silent = come(0, "x", 1);
    while (places_taken() == 0)
        XT_CHECK(look(1) == NULL);
    fd = come_far(0, &proof, hello);
    say(fd, hello, sizeof(hello));
    XT_CHECK(meet(1 + 5 * XCCL_NS_PER_S) == &door.step.places[1]);
    XT_CHECK_INT(places_taken(), 2);
    XT_CHECK(look(2 + 5 * XCCL_NS_PER_S) == &door.step.places[1]);
    XT_CHECK_INT(places_taken(), 1);
    XT_CHECK_HAS(said, "no complete hello in 5 s");
    close(silent);
    close(fd);
    kit_listener_close(&door);
}

XT_TEST(of_too_many_strangers_the_oldest_that_has_not_opened_makes_room)
{
    int fds[KIT_DOORSTEP_PLACES], fd, first;
    uint8_t hello[KIT_SEALED(HELLO_BYTES)], late[KIT_SEALED(HELLO_BYTES)];
    struct kit_proof proof, late_proof;

    door_open(1);
    hello_make(hello, 77);
    hello_make(late, 77);
    first = come_far(0, &late_proof, late); /* the oldest of all, but it has opened */
    for (int i = 1; i < KIT_DOORSTEP_PLACES; i++) {
        fds[i] = come(0, "x", 1);
        for (int k = 0; k < TRIES && places_taken() <= i; k++) {
            XT_CHECK(look((uint64_t)i + 1) == NULL);
            usleep(500);
        }
        XT_CHECK_INT(places_taken(), i + 1);
    }
    door_ns = KIT_DOORSTEP_PLACES + 1;
    fd = come_far(0, &proof, hello);
    say(fd, hello, sizeof(hello));
    XT_CHECK(meet(KIT_DOORSTEP_PLACES + 1) == &door.step.places[1]);
    XT_CHECK_HAS(said, "too many at once have not said who they are");
    say(first, late, sizeof(late));
    while (look(KIT_DOORSTEP_PLACES + 1) != &door.step.places[0])
        usleep(500);
    for (int i = 1; i < KIT_DOORSTEP_PLACES; i++)
        close(fds[i]);
    close(first);
    close(fd);
    kit_listener_close(&door);
}

#define INTRO(bytes)                                                                               \
    {                                                                                              \
        .dialect = &dialect, .token = door.handle.token, .hello = (bytes),                         \
        .hello_bytes = HELLO_BYTES                                                                 \
    }

/* Moves one end of a greeting; the door is looked at meanwhile. */
static void greet(struct kit_greeting *greeting, int fd, uint8_t *hello)
{
    const struct kit_intro intro = INTRO(hello);
    int done = 0;

    for (int i = 0; i < TRIES && !done; i++) {
        XT_OK(kit_greet(greeting, fd, &door.ports[0], &intro, &done));
        if (!done)
            XT_CHECK(look(1) == NULL);
        usleep(500);
    }
    XT_CHECK(done && greeting->is_reached && greeting->stage == KIT_DONE);
}

XT_TEST(a_greeting_says_the_hello_once_it_is_through)
{
    struct kit_greeting greeting = {.is_reached = 0};
    uint8_t hello[KIT_SEALED(HELLO_BYTES)], answer[4] = {0};
    struct kit_stranger *stranger;
    size_t said_bytes = 0;
    char more;
    int fd = -1;

    door_open(1);
    hello_make(hello, 77);
    XT_OK(xccl_tcp_connect_start(&door.ports[0], &fd));
    greet(&greeting, fd, hello);
    greet(&greeting, fd, hello); /* what is out is not said once more */
    stranger = meet(1);
    XT_CHECK_INT(recv(stranger->fd, &more, 1, MSG_DONTWAIT), -1);
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

/* Greets until there is an error. */
static xcclResult_t greet_fails(int fd)
{
    struct kit_greeting greeting = {.is_reached = 0};
    uint8_t hello[KIT_SEALED(HELLO_BYTES)];
    const struct kit_intro intro = INTRO(hello);
    xcclResult_t rc = xcclSuccess;
    int done = 0;

    hello_make(hello, 77);
    for (int i = 0; i < TRIES && rc == xcclSuccess; i++) {
        rc = kit_greet(&greeting, fd, &door.ports[0], &intro, &done);
        XT_CHECK(!done);
        usleep(500);
    }
    return rc;
}

XT_TEST(a_greeting_to_nobody_is_an_error)
{
    xcclResult_t rc;
    int fd = -1;

    door_open(1);
    kit_listener_close(&door);
    rc = xccl_tcp_connect_start(&door.ports[0], &fd);
    if (rc == xcclSuccess)
        rc = greet_fails(fd);
    XT_CHECK_RC(rc, xcclRemoteError);
    xccl_tcp_close(&fd);
}

XT_TEST(a_greeting_to_a_stranger_is_an_error_that_says_so)
{
    static const uint8_t noise[KIT_ANSWER_BYTES];
    struct xccl_addr peer;
    int fd = -1, other = -1, reached = 0;

    door_open(1);
    XT_OK(xccl_tcp_connect_start(&door.ports[0], &fd));
    for (int i = 0; i < TRIES && !reached; i++)
        XT_OK(xccl_tcp_connect_test(fd, &door.ports[0], &reached));
    say(fd, "x", 1); /* the kernel keeps silent ones */
    for (int i = 0; i < TRIES && other < 0; i++) {
        XT_OK(xccl_tcp_accept(door.fds[0], &other, &peer));
        usleep(500);
    }
    XT_CHECK(other >= 0);
    say(other, noise, sizeof(noise));
    XT_CHECK_RC(greet_fails(fd), xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(),
                 "does not know the secret of this connection of the toy plugin");
    close(other);
    xccl_tcp_close(&fd);
    kit_listener_close(&door);
}

/* ---- notes ---- */

/* Two ends, of which the second one is the test's, with keys of zeroes. */
static struct kit_side side_open(int *peer_out, struct kit_proof *peer_proof_out)
{
    struct kit_side side = {.fd = -1};
    int fds[2];

    XT_CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    side.fd = fds[0];
    *peer_out = fds[1];
    memset(peer_proof_out, 0, sizeof(*peer_proof_out));
    peer_proof_out->is_sender = 1;
    return side;
}

static void note_make(uint8_t note_out[SEALED], struct kit_proof *proof, const char *text)
{
    memcpy(note_out, text, NOTE_BYTES);
    kit_proof_seal(proof, note_out, NOTE_BYTES);
}

XT_TEST(a_note_may_come_in_pieces_and_the_next_one_stays)
{
    uint8_t in[2 * SEALED], note[SEALED], next[SEALED], peek[SEALED];
    static const struct kit_proof nothing;
    struct kit_proof proof;
    struct kit_side side;
    int peer;

    side = side_open(&peer, &proof);
    note_make(note, &proof, "0123456789abcdef");
    note_make(next, &proof, "the next, behind");
    kit_side_read(&side, in, SEALED);
    XT_CHECK(side.in_bytes == 0 && !side.has_ended);
    XT_CHECK_INT(kit_side_note(&side, in, NOTE_BYTES), 0);
    say(peer, note, 7);
    kit_side_read(&side, in, SEALED);
    XT_CHECK_INT(side.in_bytes, 7);
    XT_CHECK_INT(kit_side_note(&side, in, NOTE_BYTES), 0);
    say(peer, note + 7, SEALED - 7);
    say(peer, next, 4);
    kit_side_read(&side, in, SEALED);
    XT_CHECK_INT(side.in_bytes, SEALED);
    for (int i = 0; i < 2; i++) { /* it is opened once */
        XT_CHECK_INT(kit_side_note(&side, in, NOTE_BYTES), 1);
        XT_CHECK(memcmp(in, "0123456789abcdef", NOTE_BYTES) == 0);
    }
    /* Until it is dealt with nothing more is read, not even the end. */
    close(peer);
    kit_side_read(&side, in, SEALED);
    XT_CHECK(side.in_bytes == SEALED && !side.has_ended);
    kit_side_next(&side, in, NOTE_BYTES);
    memcpy(peek, next, SEALED);
    XT_CHECK_INT(kit_side_peek(&side, peek, NOTE_BYTES), 1);
    XT_CHECK(memcmp(peek, "the next, behind", NOTE_BYTES) == 0);
    peek[0] ^= 1;
    XT_CHECK_INT(kit_side_peek(&side, peek, NOTE_BYTES), 0);
    kit_side_read(&side, in, SEALED);
    XT_CHECK(side.in_bytes == 4 && memcmp(in, next, 4) == 0);
    kit_side_read(&side, in, SEALED);
    XT_CHECK(side.in_bytes == 4 && side.has_ended && side.err == 0);
    XT_CHECK(side.proof.counts[0] > 0);
    kit_side_close(&side);
    XT_CHECK(side.fd == -1 && memcmp(&side.proof, &nothing, sizeof(nothing)) == 0);
}

XT_TEST(a_note_of_somebody_else_is_none)
{
    uint8_t in[SEALED], note[SEALED];
    struct kit_proof proof;
    struct kit_side side;
    int peer;

    for (size_t i = 0; i < SEALED; i++) {
        side = side_open(&peer, &proof);
        note_make(note, &proof, "0123456789abcdef");
        note[i] ^= 0x10;
        say(peer, note, SEALED);
        kit_side_read(&side, in, SEALED);
        XT_CHECK_INT(kit_side_note(&side, in, NOTE_BYTES), -1);
        XT_CHECK_INT(kit_side_note(&side, in, NOTE_BYTES), -1);
        close(peer);
        close(side.fd);
    }
}

XT_TEST(notes_wait_in_order_while_the_socket_is_full)
{
    static uint8_t out[4 * SEALED], got[SEALED];
    struct kit_proof proof;
    struct kit_side side;
    uint32_t said_count = 0, count = 0;
    int peer;

    side = side_open(&peer, &proof);
    while (kit_side_has_place(&side, out, sizeof(out), NOTE_BYTES)) {
        memset(out + side.out_bytes, 0, NOTE_BYTES);
        memcpy(out + side.out_bytes, &said_count, sizeof(said_count));
        said_count++;
        kit_side_put(&side, out, NOTE_BYTES);
        kit_side_write(&side, out);
    }
    XT_CHECK(side.out_bytes + SEALED > sizeof(out) && side.err == 0);
    for (; count < said_count; count++) {
        uint32_t number;

        kit_side_write(&side, out);
        XT_CHECK_INT(recv(peer, got, sizeof(got), MSG_WAITALL), sizeof(got));
        XT_CHECK(kit_proof_open(&proof, got, NOTE_BYTES));
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
    struct kit_proof proof;
    struct kit_side side;
    int peer;

    side = side_open(&peer, &proof);
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

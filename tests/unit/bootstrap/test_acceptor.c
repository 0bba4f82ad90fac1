/* SPDX-License-Identifier: BSD-3-Clause */
/* Strangers at the door: whatever they send, or do not send, they change nothing, and those who
 * belong get in. The acceptor is driven by a thread of the test. */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/tags.h"
#include "bootstrap/acceptor.h"
#include "bootstrap/channel.h"
#include "bootstrap/conn_int.h"
#include "xt.h"

#define STRANGERS 300

__attribute__((constructor)) static void sources(void)
{
    xt_set_error_source(xccl_error_text);
    xt_set_alloc_source(xccl_alloc_live);
}

static const uint8_t key[32] = {1};
static const struct xccl_hello hello = {.comm_id = {2},
                                        .rank = 1,
                                        .nranks = 4,
                                        .purpose = XCCL_PURPOSE_ROUND,
                                        .detail = 1,
                                        .target = 3};

struct door {
    struct xccl_loop *loop;
    struct xccl_acceptor *acceptor;
    struct xccl_addr addr;
    pthread_t thread;
    _Atomic int stop, proven_count;
    struct xccl_conn *proven[8];
};

static void door_on_conn(void *owner, struct xccl_conn *conn)
{
    struct door *door = owner;
    int i = atomic_load_explicit(&door->proven_count, memory_order_relaxed);

    XT_CHECK(i < 8);
    door->proven[i] = conn;
    /* Release: the connection is written before it is counted. Pairs with door_count(). */
    atomic_store_explicit(&door->proven_count, i + 1, memory_order_release);
}

static int door_count(struct door *door)
{
    /* Acquire: pairs with door_on_conn(). */
    return atomic_load_explicit(&door->proven_count, memory_order_acquire);
}

static void *door_drive(void *arg)
{
    struct door *door = arg;

    /* Acquire: pairs with door_close(). */
    while (!atomic_load_explicit(&door->stop, memory_order_acquire))
        (void)xccl_loop_run_once(door->loop, 1000);
    return NULL;
}

static void door_open(struct door *door, const struct xccl_addr *addr)
{
    struct xccl_acceptor_args args = {.addr = *addr,
                                      .key = {1},
                                      .comm_id = {2},
                                      .rank = 3,
                                      .nranks = 4,
                                      .on_conn = door_on_conn,
                                      .owner = door};

    XT_OK(xccl_loop_create(&door->loop));
    args.loop = door->loop;
    XT_OK(xccl_acceptor_open(&args, &door->acceptor));
    door->addr = *xccl_acceptor_addr(door->acceptor);
    XT_CHECK_INT(pthread_create(&door->thread, NULL, door_drive, door), 0);
}

static struct xccl_addr loopback(void)
{
    struct xccl_addr addr;

    XT_OK(xccl_addr_parse("127.0.0.1:1", 0, &addr));
    xccl_addr_set_port(&addr, 0);
    return addr;
}

static void door_open_tcp(struct door *door)
{
    struct xccl_addr addr = loopback();

    door_open(door, &addr);
}

static void door_close(struct door *door)
{
    /* Release: pairs with door_drive(). */
    atomic_store_explicit(&door->stop, 1, memory_order_release);
    xccl_loop_wake(door->loop);
    XT_CHECK_INT(pthread_join(door->thread, NULL), 0);
    for (int i = 0; i < door_count(door); i++)
        xccl_conn_close(door->proven[i]);
    xccl_acceptor_close(door->acceptor);
    xccl_loop_destroy(door->loop);
}

static void door_wait(struct door *door, int count)
{
    struct xccl_limit limit = xccl_limit_ms(10000, NULL);

    while (door_count(door) < count && !xccl_limit_passed(&limit))
        usleep(200); /* bounded poll on the driver's progress */
    XT_CHECK_INT(door_count(door), count);
}

/* Someone who belongs gets in and is heard. */
static void come_in(struct door *door, int count_before)
{
    struct xccl_limit limit = xccl_limit_ms(10000, NULL);
    struct xccl_conn *conn;

    XT_OK(xccl_conn_open(&door->addr, key, &hello, &limit, &conn));
    XT_CHECK_INT(xccl_conn_hello(conn)->rank, 3);
    door_wait(door, count_before + 1);
    XT_CHECK_INT(xccl_conn_hello(door->proven[count_before])->rank, 1);
    xccl_conn_close(conn);
}

static int stranger_connect(const struct door *door)
{
    struct xccl_limit limit = xccl_limit_ms(10000, NULL);
    int fd;

    XT_OK(xccl_tcp_connect(&door->addr, &limit, &fd));
    return fd;
}

/* The stream ends within the limit: the other side closed it. */
static void stranger_is_shown_out(int fd)
{
    struct xccl_limit limit = xccl_limit_ms(10000, NULL);
    uint8_t byte;

    XT_CHECK_RC(xccl_tcp_recv_all(fd, &byte, 1, &limit), xcclRemoteError);
}

XT_TEST(silent_and_babbling_strangers_do_not_keep_a_rank_out)
{
    static int fds[STRANGERS];
    struct door door = {0};
    uint64_t seed = xt_seed();

    door_open_tcp(&door);
    for (int i = 0; i < STRANGERS; i++) {
        uint8_t junk[64];
        size_t moved;

        fds[i] = stranger_connect(&door);
        for (size_t at = 0; at < sizeof(junk); at++)
            junk[at] = (uint8_t)xt_random(&seed);
        /* A third says nothing, a third too little, a third enough to be judged. */
        if (i % 3 == 1)
            (void)xccl_tcp_send_some(fds[i], junk, 1 + (size_t)i % 63, &moved);
        for (int k = 0; i % 3 == 2 && k < 2; k++)
            (void)xccl_tcp_send_some(fds[i], junk, sizeof(junk), &moved);
    }
    for (int i = 0; i < 3; i++)
        come_in(&door, i);
    for (int i = 2; i < STRANGERS; i += 3)
        stranger_is_shown_out(fds[i]);
    XT_CHECK_INT(door_count(&door), 3);
    for (int i = 0; i < STRANGERS; i++)
        xccl_tcp_close(&fds[i]);
    door_close(&door);
}

XT_TEST(of_too_many_unproven_the_oldest_goes)
{
    static int fds[STRANGERS];
    struct door door = {0};
    size_t moved;

    door_open_tcp(&door);
    for (int i = 0; i < STRANGERS; i++) {
        fds[i] = stranger_connect(&door);
        XT_OK(xccl_tcp_send_some(fds[i], "XCCL", 4, &moved));
    }
    stranger_is_shown_out(fds[0]);
    come_in(&door, 0);
    for (int i = 0; i < STRANGERS; i++)
        xccl_tcp_close(&fds[i]);
    door_close(&door);
}

/* One that says a little, from 127.0.0.source. */
static int stranger_from(const struct xccl_addr *addr, int source)
{
    struct xccl_limit limit = xccl_limit_ms(10000, NULL);
    struct xccl_addr from;
    char text[32];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(text, sizeof(text), "127.0.0.%d:1", source);
    XT_OK(xccl_addr_parse(text, 0, &from));
    xccl_addr_set_port(&from, 0);
    XT_CHECK(fd >= 0 && bind(fd, &from.sa.any, from.bytes) == 0);
    XT_CHECK_INT(connect(fd, &addr->sa.any, addr->bytes), 0);
    XT_OK(xccl_tcp_send_all(fd, "XCCL", 4, &limit));
    return fd;
}

static int is_shown_out(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};

    return poll(&wait, 1, 0) == 1;
}

XT_TEST(a_loud_source_pushes_out_only_itself)
{
    static int fds[STRANGERS];
    struct door door = {0};
    int quiet;

    door_open_tcp(&door);
    quiet = stranger_from(&door.addr, 2);
    for (int i = 0; i < STRANGERS; i++)
        fds[i] = stranger_from(&door.addr, 3);
    /* One source may hold 64 places while others are there. */
    for (int i = 0; i < STRANGERS - 64; i++)
        stranger_is_shown_out(fds[i]);
    XT_CHECK(!is_shown_out(quiet));
    XT_CHECK(!is_shown_out(fds[STRANGERS - 1]));
    come_in(&door, 0);
    for (int i = 0; i < STRANGERS; i++)
        xccl_tcp_close(&fds[i]);
    xccl_tcp_close(&quiet);
    door_close(&door);
}

/* Whoever listened to the wire can get a reply, and no more: the places for those who said a right
 * hello are bounded too, and come free again. */
XT_TEST(recorded_hellos_do_not_keep_a_rank_out)
{
    static int fds[STRANGERS];
    struct xccl_limit limit = xccl_limit_ms(10000, NULL);
    uint8_t recorded[XCCL_HELLO_BYTES];
    struct xccl_channel channel;
    struct door door = {0};
    int before, most = 0;

    door_open_tcp(&door);
    xccl_channel_connect(&channel, key, &hello, recorded);
    before = xt_entries("/proc/self/fd");
    for (int i = 0; i < STRANGERS; i++) {
        int open_now;

        fds[i] = stranger_connect(&door);
        XT_OK(xccl_tcp_send_all(fds[i], recorded, sizeof(recorded), &limit));
        open_now = xt_entries("/proc/self/fd") - before - (i + 1);
        most = open_now > most ? open_now : most;
    }
    come_in(&door, 0);
    XT_CHECK(most <= 256);
    for (int i = 0; i < STRANGERS; i++)
        xccl_tcp_close(&fds[i]);
    door_close(&door);
}

XT_TEST(strangers_share_256_places_of_all_acceptors_of_a_loop)
{
    static int fds[2 * STRANGERS];
    struct xccl_addr addr = loopback();
    struct xccl_acceptor_args args = {.addr = addr, .on_conn = door_on_conn};
    struct xccl_acceptor *second;
    struct door door = {0};
    int before, most = 0;

    door_open_tcp(&door);
    args.loop = door.loop;
    args.owner = &door;
    XT_OK(xccl_acceptor_open(&args, &second));
    before = xt_entries("/proc/self/fd");
    for (int i = 0; i < 2 * STRANGERS; i++) {
        int open_now;

        fds[i] = stranger_from(i % 2 ? &door.addr : xccl_acceptor_addr(second), 2 + i % 100);
        open_now = xt_entries("/proc/self/fd") - before - (i + 1);
        most = open_now > most ? open_now : most;
    }
    come_in(&door, 0);
    XT_CHECK(most <= 256);
    XT_CHECK(most >= 200); /* they were there */
    for (int i = 0; i < 2 * STRANGERS; i++)
        xccl_tcp_close(&fds[i]);
    xccl_acceptor_close(second);
    door_close(&door);
}

/* Strangers hold every descriptor that is left; a rank needs one for its own end, and the door
 * another, which only a stranger can give. */
XT_TEST(a_rank_gets_in_when_strangers_hold_all_descriptors)
{
    static int fds[100];
    struct xccl_limit time = xccl_limit_ms(10000, NULL);
    struct rlimit limit;
    struct door door = {0};
    int reserve, left, out = 0;

    door_open_tcp(&door);
    xccl_loop_lock(door.loop);
    for (int i = 0; i < 100; i++)
        fds[i] = stranger_from(&door.addr, 2 + i % 5);
    reserve = dup(fds[0]);
    XT_CHECK_INT(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = (rlim_t)reserve + 30;
    left = (int)limit.rlim_cur - xt_entries("/proc/self/fd");
    XT_CHECK_INT(setrlimit(RLIMIT_NOFILE, &limit), 0);
    xccl_loop_unlock(door.loop);
    xccl_loop_wake(door.loop);
    /* All but what is left were let in only for another that went. */
    while (out < 100 - left && !xccl_limit_passed(&time)) {
        out = 0;
        for (int i = 0; i < 100; i++)
            out += is_shown_out(fds[i]);
    }
    XT_CHECK(out >= 100 - left);
    xccl_tcp_close(&reserve);
    come_in(&door, 0);
    for (int i = 0; i < 100; i++)
        xccl_tcp_close(&fds[i]);
    door_close(&door);
}

XT_TEST_DEADLINE(a_stranger_that_says_too_little_is_shown_out_after_5_s, 30)
{
    struct door door = {0};
    uint64_t start_ns;
    size_t moved;
    int fd;

    door_open_tcp(&door);
    fd = stranger_connect(&door);
    start_ns = xccl_clock_ns();
    XT_OK(xccl_tcp_send_some(fd, "XCCL", 4, &moved));
    stranger_is_shown_out(fd);
    XT_CHECK(xccl_clock_ns() - start_ns >= 4 * XCCL_NS_PER_S);
    xccl_tcp_close(&fd);
    door_close(&door);
}

/* On a crowded machine a rank may get no time for seconds in the midst of its proof. */
XT_TEST_DEADLINE(a_rank_whose_proof_takes_longer_than_5_s_gets_in, 30)
{
    struct xccl_limit limit = xccl_limit_ms(10000, NULL);
    uint8_t first[XCCL_HELLO_BYTES], reply[XCCL_SHAKE_MAX_BYTES], proof[XCCL_SHAKE_MAX_BYTES];
    struct xccl_channel channel;
    struct door door = {0};
    size_t bytes = 0;
    int fd;

    door_open_tcp(&door);
    xccl_channel_connect(&channel, key, &hello, first);
    fd = stranger_connect(&door);
    XT_OK(xccl_tcp_send_all(fd, first, sizeof(first), &limit));
    XT_OK(xccl_tcp_recv_all(fd, reply, xccl_channel_need(&channel), &limit));
    sleep(6); /* it is about this time */
    XT_OK(xccl_channel_shake(&channel, reply, proof, &bytes));
    XT_OK(xccl_tcp_send_all(fd, proof, bytes, &limit));
    door_wait(&door, 1);
    xccl_channel_wipe(&channel);
    xccl_tcp_close(&fd);
    door_close(&door);
}

/* So many that one turn of the loop does not read them all before the timers' turn comes. */
#define AT_ONCE 150

XT_TEST_DEADLINE(who_spoke_in_time_gets_an_answer_though_the_loop_stood_still, 30)
{
    static uint8_t hellos[AT_ONCE][XCCL_HELLO_BYTES];
    static int fds[AT_ONCE];
    struct xccl_limit limit = xccl_limit_ms(10000, NULL);
    struct xccl_channel channel;
    struct door door = {0};
    int before;

    door_open_tcp(&door);
    before = xt_entries("/proc/self/fd");
    for (int i = 0; i < AT_ONCE; i++) {
        xccl_channel_connect(&channel, key, &hello, hellos[i]);
        fds[i] = stranger_connect(&door);
        XT_OK(xccl_tcp_send_all(fds[i], hellos[i], 4, &limit));
    }
    while (xt_entries("/proc/self/fd") < before + 2 * AT_ONCE) {
        XT_CHECK(!xccl_limit_passed(&limit));
        usleep(1000); /* bounded poll on the driver's progress */
    }
    xccl_loop_lock(door.loop);
    for (int i = 0; i < AT_ONCE; i++)
        XT_OK(xccl_tcp_send_all(fds[i], hellos[i] + 4, sizeof(hellos[i]) - 4, &limit));
    usleep(5200000); /* it is about this time */
    xccl_loop_unlock(door.loop);
    limit = xccl_limit_ms(10000, NULL);
    for (int i = 0; i < AT_ONCE; i++) {
        uint8_t reply[XCCL_HELLO_BYTES + XCCL_STREAM_HEADER_BYTES];

        XT_OK(xccl_tcp_recv_all(fds[i], reply, sizeof(reply), &limit));
        xccl_tcp_close(&fds[i]);
    }
    xccl_channel_wipe(&channel);
    door_close(&door);
}

/* A recorded hello that the door has not heard gets a reply and no further; one that it has heard
 * gets nothing. */
XT_TEST(a_replayed_hello_is_never_handed_over)
{
    struct xccl_limit limit = xccl_limit_ms(10000, NULL);
    uint8_t recorded[XCCL_HELLO_BYTES], reply[XCCL_SHAKE_MAX_BYTES], junk[49] = {0};
    struct xccl_channel channel;
    struct door door = {0};
    int fd;

    door_open_tcp(&door);
    xccl_channel_connect(&channel, key, &hello, recorded);
    for (int i = 0; i < 3; i++) {
        fd = stranger_connect(&door);
        XT_OK(xccl_tcp_send_all(fd, recorded, sizeof(recorded), &limit));
        if (i == 0) {
            XT_OK(xccl_tcp_recv_all(fd, reply, sizeof(reply), &limit));
            XT_CHECK_INT(door_count(&door), 0);
            junk[24] = 21;
            XT_OK(xccl_tcp_send_all(fd, junk, sizeof(junk), &limit));
        }
        stranger_is_shown_out(fd);
        xccl_tcp_close(&fd);
    }
    XT_CHECK_INT(door_count(&door), 0);
    come_in(&door, 0);
    xccl_channel_wipe(&channel);
    door_close(&door);
}

/* Many recorded hellos that this door has not heard fill the places of the known. A rank is
 * challenged then, and gets in at once. */
XT_TEST(many_recorded_hellos_do_not_keep_a_rank_out)
{
    static int fds[STRANGERS];
    struct xccl_limit limit = xccl_limit_ms(10000, NULL);
    struct xccl_channel channel;
    struct door door = {0};
    uint64_t start_ns;

    door_open_tcp(&door);
    for (int i = 0; i < STRANGERS; i++) {
        uint8_t recorded[XCCL_HELLO_BYTES];

        xccl_channel_connect(&channel, key, &hello, recorded);
        xccl_channel_wipe(&channel);
        fds[i] = stranger_connect(&door);
        XT_OK(xccl_tcp_send_all(fds[i], recorded, sizeof(recorded), &limit));
    }
    start_ns = xccl_clock_ns();
    for (int i = 0; i < 3; i++)
        come_in(&door, i);
    /* Before, each of those behind the 255th cost the second that a known one is waited for. */
    XT_CHECK(xccl_clock_ns() - start_ns < XCCL_NS_PER_S * 9 / 10);
    for (int i = 0; i < STRANGERS; i++)
        xccl_tcp_close(&fds[i]);
    door_close(&door);
}

/* Sends more hellos than the door can remember. No recorded one works again, and ranks get in. */
XT_TEST_DEADLINE(a_door_that_has_forgotten_hellos_asks_for_fresh_ones, 120)
{
    static uint8_t first[XCCL_HELLO_BYTES];
    struct xccl_limit limit = xccl_limit_ms(100000, NULL);
    uint8_t recorded[XCCL_HELLO_BYTES], answer[XCCL_SHAKE_MAX_BYTES];
    struct xccl_channel channel;
    struct door door = {0};
    int fd;

    door_open_tcp(&door);
    xccl_ephemeral_hold(); /* this test is not about key pairs */
    for (int i = 0; i < 2 * XCCL_TAGS_GENERATION + 1; i++) {
        xccl_channel_connect(&channel, key, &hello, recorded);
        xccl_channel_wipe(&channel);
        if (i == 0)
            memcpy(first, recorded, sizeof(first));
        fd = stranger_connect(&door);
        XT_OK(xccl_tcp_send_all(fd, recorded, sizeof(recorded), &limit));
        XT_OK(xccl_tcp_recv_all(fd, answer, sizeof(answer), &limit));
        xccl_tcp_close(&fd);
    }
    XT_CHECK(memcmp(answer, "XCLC", 4) == 0); /* a challenge, no reply */
    fd = stranger_connect(&door);
    XT_OK(xccl_tcp_send_all(fd, first, sizeof(first), &limit));
    XT_OK(xccl_tcp_recv_all(fd, answer, sizeof(answer), &limit));
    XT_CHECK(memcmp(answer, "XCLC", 4) == 0);
    xccl_tcp_close(&fd);
    come_in(&door, 0);
    xccl_ephemeral_release();
    door_close(&door);
}

static char warning[512];
static void keep_warning(enum xccl_log_level level, const char *line)
{
    if (level == XCCL_LOG_WARN)
        snprintf(warning, sizeof(warning), "%s", line);
}

/* A hand-written hello of version 1, of a rank that has the key. Version 1 takes the answer for a
 * reply of another version. */
XT_TEST(a_hello_of_version_1_is_refused_with_a_word)
{
    static const uint8_t old[96] = {'X', 'C', 'C', 'L', 1, 0, 2, 0, 1, 0, 0, 0, 0x2c, 1};
    struct xccl_limit limit = xccl_limit_ms(10000, NULL);
    uint8_t answer[XCCL_NOTICE_BYTES];
    struct door door = {0};
    int fd;

    xt_setenv("XCCL_DEBUG", "warn");
    xccl_log_set_sink(keep_warning);
    door_open_tcp(&door);
    fd = stranger_connect(&door);
    XT_OK(xccl_tcp_send_all(fd, old, sizeof(old), &limit));
    XT_OK(xccl_tcp_recv_all(fd, answer, sizeof(answer), &limit));
    XT_CHECK(memcmp(answer, "XCLR\2\0\0\0\0\0\0\0", 12) == 0);
    stranger_is_shown_out(fd);
    xccl_tcp_close(&fd);
    come_in(&door, 0);
    door_close(&door);
    xccl_log_set_sink(NULL);
    XT_CHECK_HAS(warning, "speaks version 1 of xccl's protocol for joining (xccl 0.3.0), and this "
                          "is version 2");
    XT_CHECK_HAS(warning, "install the newer xccl there too");
}

/* The head of an answer, alike in all versions, names the later version. */
XT_TEST(a_rank_that_meets_a_later_version_names_both)
{
    struct xccl_limit limit = xccl_limit_ms(10000, NULL);
    struct xccl_addr addr = loopback(), bound;
    uint8_t notice[XCCL_NOTICE_BYTES];
    struct xccl_conn *conn = NULL;
    int listen_fd, fd = -1, done = 0;
    xcclResult_t rc = xcclSuccess;

    XT_OK(xccl_tcp_listen(&addr, &listen_fd, &bound));
    XT_OK(xccl_conn_start(&bound, key, &hello, &conn));
    xccl_channel_notice(notice);
    notice[4] = 3;
    while (!rc && !xccl_limit_passed(&limit)) {
        size_t moved;

        rc = xccl_conn_shake(conn, &done);
        if (fd < 0)
            XT_OK(xccl_tcp_accept(listen_fd, &fd, NULL));
        else
            (void)xccl_tcp_send_some(fd, notice, sizeof(notice), &moved);
    }
    XT_CHECK_RC(rc, xcclRemoteError);
    XT_CHECK(xccl_conn_other_version(conn) && !xccl_conn_turned_away(conn));
    XT_CHECK_HAS(xccl_error_text(), "speaks version 3 of xccl's protocol for joining");
    XT_CHECK_HAS(xccl_error_text(), "install the newer xccl here too");
    xccl_conn_close(conn);
    xccl_tcp_close(&fd);
    xccl_tcp_close(&listen_fd);
}

XT_TEST(a_rank_that_finds_another_one_names_both)
{
    struct xccl_limit limit = xccl_limit_ms(10000, NULL);
    struct xccl_hello astray = hello;
    struct xccl_conn *conn;
    struct door door = {0};

    door_open_tcp(&door);
    astray.target = 2;
    XT_CHECK_RC(xccl_conn_open(&door.addr, key, &astray, &limit, &conn), xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(), "rank 3 answers at");
    XT_CHECK_HAS(xccl_error_text(), "instead of rank 2");
    XT_CHECK_INT(door_count(&door), 0);
    xccl_loop_lock(door.loop);
    xccl_acceptor_set_rank(door.acceptor, 2, 4);
    xccl_loop_unlock(door.loop);
    XT_OK(xccl_conn_open(&door.addr, key, &astray, &limit, &conn));
    door_wait(&door, 1);
    xccl_conn_close(conn);
    door_close(&door);
}

static _Atomic int refusals;
static void count_refusals(enum xccl_log_level level, const char *line)
{
    if (level == XCCL_LOG_INFO && strstr(line, "refused a connection"))
        atomic_fetch_add_explicit(&refusals, 1, memory_order_relaxed);
}

XT_TEST(refusals_are_told_once_a_second_at_most)
{
    struct door door = {0};
    uint64_t start_ns = xccl_clock_ns(), seconds;
    uint8_t junk[XCCL_HELLO_BYTES] = "GET / HTTP/1.1";
    size_t moved;

    xt_setenv("XCCL_DEBUG", "info");
    xccl_log_set_sink(count_refusals);
    door_open_tcp(&door);
    for (int i = 0; i < 50; i++) {
        int fd = stranger_connect(&door);

        XT_OK(xccl_tcp_send_some(fd, junk, sizeof(junk), &moved));
        stranger_is_shown_out(fd);
        xccl_tcp_close(&fd);
    }
    seconds = (xccl_clock_ns() - start_ns) / XCCL_NS_PER_S;
    door_close(&door);
    xccl_log_set_sink(NULL);
    XT_CHECK(refusals >= 1);
    XT_CHECK((uint64_t)refusals <= seconds + 1);
}

XT_TEST(unix_sockets_work_the_same)
{
    struct xccl_addr addr = {0};
    struct door door = {0};

    addr.sa.un.sun_family = AF_UNIX;
    snprintf(addr.sa.un.sun_path + 1, sizeof(addr.sa.un.sun_path) - 1, "xccl-test-%d", getpid());
    addr.bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                             strlen(addr.sa.un.sun_path + 1));
    door_open(&door, &addr);
    come_in(&door, 0);
    door_close(&door);
}

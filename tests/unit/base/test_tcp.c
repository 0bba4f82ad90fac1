/* SPDX-License-Identifier: BSD-3-Clause */
/* Stream sockets over IPv4, IPv6 and Unix: data, deadlines, abort, refusal, descriptors, ports.
 * Ports and names are the system's choice or made of the process id. Threads: the test's, and a
 * helper where one end must act while the other waits. */
#include "base/tcp.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/inject.h"
#include "base/param.h"
#include "xt.h"

#define BIG_BYTES ((size_t)8 << 20)

__attribute__((constructor)) static void use_sources(void)
{
    xt_set_error_source(xccl_error_text);
    xt_set_alloc_source(xccl_alloc_live);
}

static struct xccl_addr ip_addr(const char *text)
{
    struct xccl_addr addr;

    XT_OK(xccl_addr_parse(text, 0, &addr));
    xccl_addr_set_port(&addr, 0);
    return addr;
}

static struct xccl_addr unix_addr(const char *name)
{
    struct xccl_addr addr = {0};
    int bytes;

    addr.sa.un.sun_family = AF_UNIX;
    bytes = snprintf(addr.sa.un.sun_path + 1, sizeof(addr.sa.un.sun_path) - 1, "xccl-test-%d-%s",
                     (int)getpid(), name);
    addr.bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)bytes);
    return addr;
}

static struct xccl_limit soon(void)
{
    return xccl_limit_ms(20000, NULL);
}

/* A connection; ends[0] connected, ends[1] accepted. The connecting end must speak first. */
static void pair_open(const struct xccl_addr *addr, int ends[2])
{
    struct xccl_limit limit = soon();
    struct xccl_addr bound;
    int listen_fd;
    char byte = 'x';

    XT_OK(xccl_tcp_listen(addr, &listen_fd, &bound));
    XT_OK(xccl_tcp_connect(&bound, &limit, &ends[0]));
    XT_OK(xccl_tcp_send_all(ends[0], &byte, 1, &limit));
    XT_OK(xccl_tcp_wait(listen_fd, POLLIN, &limit));
    XT_OK(xccl_tcp_accept(listen_fd, &ends[1], NULL));
    XT_CHECK(ends[1] >= 0);
    byte = 0;
    XT_OK(xccl_tcp_recv_all(ends[1], &byte, 1, &limit));
    XT_CHECK(byte == 'x');
    xccl_tcp_close(&listen_fd);
}

static void pair_close(int ends[2])
{
    xccl_tcp_close(&ends[0]);
    xccl_tcp_close(&ends[1]);
    XT_CHECK_INT(ends[0], -1);
}

static void unix_pair_open(int ends[2])
{
    struct xccl_addr addr = unix_addr("pair");

    pair_open(&addr, ends);
}

/* A port that refuses: bound, but nobody listens. Keeps *fd_out open so that it stays so. */
static struct xccl_addr refusing_addr(int *fd_out)
{
    struct xccl_addr addr = ip_addr("127.0.0.1:1");

    *fd_out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    XT_CHECK(*fd_out >= 0);
    XT_CHECK(bind(*fd_out, &addr.sa.any, addr.bytes) == 0);
    XT_CHECK(getsockname(*fd_out, &addr.sa.any, &addr.bytes) == 0);
    return addr;
}

struct sender {
    pthread_t thread;
    int fd;
    char *data;
    xcclResult_t rc;
};

static void *sender_run(void *arg)
{
    struct sender *sender = arg;
    struct xccl_limit limit = soon();

    sender->rc = xccl_tcp_send_all(sender->fd, sender->data, BIG_BYTES, &limit);
    return NULL;
}

static void transfer_big(int ends[2])
{
    struct sender sender = {.fd = ends[0], .data = malloc(BIG_BYTES)};
    struct xccl_limit limit = soon();
    char *got = malloc(BIG_BYTES);
    uint64_t state = xt_seed();

    for (size_t i = 0; i < BIG_BYTES; i += sizeof(state)) {
        xt_random(&state);
        memcpy(sender.data + i, &state, sizeof(state));
    }
    XT_CHECK(pthread_create(&sender.thread, NULL, sender_run, &sender) == 0);
    XT_OK(xccl_tcp_recv_all(ends[1], got, BIG_BYTES, &limit));
    pthread_join(sender.thread, NULL);
    XT_OK(sender.rc);
    XT_CHECK(memcmp(got, sender.data, BIG_BYTES) == 0);
    free(sender.data);
    free(got);
}

XT_TEST(megabytes_arrive_unchanged_on_each_family)
{
    struct xccl_addr addrs[3] = {ip_addr("127.0.0.1:1"), unix_addr("big"), ip_addr("[::1]:1")};
    int probe, ends[2], count = 3;

    probe = socket(AF_INET6, SOCK_STREAM, 0);
    if (probe < 0 || bind(probe, &addrs[2].sa.any, addrs[2].bytes) != 0)
        count = 2;
    xccl_tcp_close(&probe);
    for (int i = 0; i < count; i++) {
        pair_open(&addrs[i], ends);
        transfer_big(ends);
        pair_close(ends);
    }
}

static void on_alarm(int signal_number)
{
    (void)signal_number;
}

XT_TEST(signals_do_not_disturb_a_transfer)
{
    struct sigaction action = {.sa_handler = on_alarm}; /* no SA_RESTART */
    struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    struct xccl_addr addr = ip_addr("127.0.0.1:1");
    int ends[2];

    XT_CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    XT_CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (int i = 0; i < 5; i++) {
        pair_open(&addr, ends);
        transfer_big(ends);
        pair_close(ends);
    }
    XT_CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
}

XT_TEST(accept_tells_that_nobody_came)
{
    struct xccl_addr addr = unix_addr("nobody");
    int listen_fd, fd = 5;

    XT_OK(xccl_tcp_listen(&addr, &listen_fd, NULL));
    XT_OK(xccl_tcp_accept(listen_fd, &fd, NULL));
    XT_CHECK_INT(fd, -1);
    xccl_tcp_close(&listen_fd);
}

XT_TEST(a_silent_tcp_client_stays_in_the_kernel)
{
    struct xccl_addr addr = ip_addr("127.0.0.1:1"), bound;
    struct xccl_limit limit = soon();
    int listen_fd, client, fd = 5;

    XT_OK(xccl_tcp_listen(&addr, &listen_fd, &bound));
    XT_OK(xccl_tcp_connect(&bound, &limit, &client));
    XT_OK(xccl_tcp_accept(listen_fd, &fd, NULL));
    XT_CHECK_INT(fd, -1);
    xccl_tcp_close(&client);
    xccl_tcp_close(&listen_fd);
}

static void check_flags(int fd, int is_tcp)
{
    socklen_t bytes = sizeof(int);
    int value = 0;

    XT_CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
    XT_CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    if (!is_tcp)
        return;
    XT_CHECK(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &bytes) == 0);
    XT_CHECK(value != 0);
}

XT_TEST(both_ends_are_nonblocking_closed_on_exec_and_without_delay)
{
    struct xccl_addr addrs[2] = {ip_addr("127.0.0.1:1"), unix_addr("flags")};
    int ends[2];

    for (int i = 0; i < 2; i++) {
        pair_open(&addrs[i], ends);
        check_flags(ends[0], i == 0);
        check_flags(ends[1], i == 0);
        pair_close(ends);
    }
}

XT_TEST(what_is_no_socket_address_is_refused)
{
    struct xccl_addr path = {.bytes = sizeof(struct sockaddr_un)}, none = {0};
    struct xccl_limit limit = soon();
    int fd = -1;

    path.sa.un.sun_family = AF_UNIX;
    strcpy(path.sa.un.sun_path, "/tmp/x");
    XT_CHECK_RC(xccl_tcp_listen(&path, &fd, NULL), xcclInvalidArgument);
    XT_CHECK_RC(xccl_tcp_listen(&none, &fd, NULL), xcclInvalidArgument);
    XT_CHECK_RC(xccl_tcp_connect_start(&path, &fd), xcclInvalidArgument);
    XT_CHECK_RC(xccl_tcp_connect(&none, &limit, &fd), xcclInvalidArgument);
    XT_CHECK_INT(fd, -1);
}

XT_TEST(a_name_that_is_taken_is_an_error_with_the_address)
{
    struct xccl_addr addr = unix_addr("twice");
    int first, second = -1;

    XT_OK(xccl_tcp_listen(&addr, &first, NULL));
    XT_CHECK_RC(xccl_tcp_listen(&addr, &second, NULL), xcclSystemError);
    XT_CHECK_HAS(xccl_error_text(), "-twice");
    XT_CHECK_INT(second, -1);
    xccl_tcp_close(&first);
}

/* ---- connecting ---- */

struct late {
    int fd; /* bound */
    int rc;
};

/* Listens once the other side has tried twice. */
static void *late_run(void *arg)
{
    struct late *late = arg;

    while (xccl_inject_chances() < 4)
        sched_yield();
    late->rc = listen(late->fd, 1);
    return NULL;
}

XT_TEST(connect_tries_again_until_somebody_listens)
{
    struct late late = {.rc = -1};
    struct xccl_addr addr = refusing_addr(&late.fd);
    struct xccl_limit limit = soon();
    pthread_t thread;
    int fd;

    xccl_inject_arm(UINT64_MAX); /* counts, never fails */
    XT_CHECK(pthread_create(&thread, NULL, late_run, &late) == 0);
    XT_OK(xccl_tcp_connect(&addr, &limit, &fd));
    pthread_join(thread, NULL);
    XT_CHECK_INT(late.rc, 0);
    xccl_tcp_close(&fd);
    xccl_tcp_close(&late.fd);
}

/* Its owner listened before it told the name, and has gone: to wait for it would be in vain. */
XT_TEST(connect_to_a_unix_name_that_nobody_has_ends_at_once)
{
    struct xccl_limit limit = {.deadline_ns = XCCL_NEVER_NS};
    struct xccl_addr addr = unix_addr("left");
    int listen_fd, fd = -1;

    XT_OK(xccl_tcp_listen(&addr, &listen_fd, NULL));
    xccl_tcp_close(&listen_fd);
    XT_CHECK_RC(xccl_tcp_connect(&addr, &limit, &fd), xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(), strerror(ECONNREFUSED));
    XT_CHECK_INT(fd, -1);
}

XT_TEST(connect_out_of_time_tells_the_address_and_the_last_cause)
{
    struct xccl_limit limit = xccl_limit_ms(30, NULL);
    char text[XCCL_ADDR_TEXT_BYTES];
    struct xccl_addr addr;
    int held, fd = -1;

    addr = refusing_addr(&held);
    xccl_addr_format(&addr, text);
    XT_CHECK_RC(xccl_tcp_connect(&addr, &limit, &fd), xcclTimeout);
    XT_CHECK_HAS(xccl_error_text(), text);
    XT_CHECK_HAS(xccl_error_text(), strerror(ECONNREFUSED));
    XT_CHECK_INT(fd, -1);
    close(held);
}

/* Connects until the listener's queue, which nobody empties, is full; returns how many got in. */
static int fill_queue(const struct xccl_addr *addr, int *fds, int max, xcclResult_t *rc_out)
{
    int count = 0;

    for (*rc_out = xcclSuccess; count < max; count++) {
        struct xccl_limit limit = xccl_limit_ms(60, NULL);

        *rc_out = xccl_tcp_connect(addr, &limit, &fds[count]);
        if (*rc_out)
            break;
    }
    return count;
}

XT_TEST(a_listener_that_takes_nobody_ends_in_a_timeout)
{
    static const char *const causes[2] = {"there was no answer", "temporarily unavailable"};
    struct xccl_addr addrs[2];
    int fds[8], holders[2], count;
    xcclResult_t rc;

    addrs[0] = refusing_addr(&holders[0]);
    addrs[1] = unix_addr("full");
    holders[1] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    XT_CHECK(bind(holders[1], &addrs[1].sa.any, addrs[1].bytes) == 0);
    for (int i = 0; i < 2; i++) {
        XT_CHECK(listen(holders[i], 0) == 0);
        count = fill_queue(&addrs[i], fds, 8, &rc);
        XT_CHECK_RC(rc, xcclTimeout);
        XT_CHECK_HAS(xccl_error_text(), causes[i]);
        while (count > 0)
            xccl_tcp_close(&fds[--count]);
        close(holders[i]);
    }
}

XT_TEST(a_refused_connection_is_told_by_connect_test)
{
    struct xccl_limit limit = soon();
    struct xccl_addr addr;
    int held, fd = -1, done = 0;
    xcclResult_t rc;

    addr = refusing_addr(&held);
    rc = xccl_tcp_connect_start(&addr, &fd);
    if (rc == xcclSuccess) {
        XT_OK(xccl_tcp_wait(fd, POLLOUT, &limit));
        rc = xccl_tcp_connect_test(fd, &addr, &done);
    }
    XT_CHECK_RC(rc, xcclRemoteError);
    XT_CHECK_INT(xccl_tcp_connect_err(), ECONNREFUSED);
    XT_CHECK_HAS(xccl_error_text(), "127.0.0.1:");
    XT_CHECK_INT(done, 0);
    xccl_tcp_close(&fd);
    close(held);
}

XT_TEST(a_socket_that_met_itself_counts_as_refused)
{
    struct xccl_addr addr;
    int fd, done = 0;

    addr = refusing_addr(&fd);
    XT_CHECK(connect(fd, &addr.sa.any, addr.bytes) == 0);
    XT_CHECK_RC(xccl_tcp_connect_test(fd, &addr, &done), xcclRemoteError);
    XT_CHECK_INT(done, 0);
    close(fd);
}

XT_TEST(a_connection_in_progress_is_not_done)
{
    struct xccl_addr addr = ip_addr("127.0.0.1:1"), bound;
    struct xccl_limit limit = soon();
    int listen_fd, fd, done = 0;

    XT_OK(xccl_tcp_listen(&addr, &listen_fd, &bound));
    XT_OK(xccl_tcp_connect_start(&bound, &fd));
    while (!done) {
        XT_OK(xccl_tcp_wait(fd, POLLOUT, &limit));
        XT_OK(xccl_tcp_connect_test(fd, &bound, &done));
    }
    xccl_tcp_close(&fd);
    xccl_tcp_close(&listen_fd);
}

/* ---- ends of waits ---- */

static _Atomic int abort_flag;

static void *abort_run(void *arg)
{
    (void)arg;
    atomic_store_explicit(&abort_flag, 1, memory_order_release);
    return NULL;
}

/* Each runs with no deadline: a wait that does not see the flag runs into the test's. */
static void check_aborts(int ends[2], int which)
{
    struct xccl_limit limit = {.deadline_ns = XCCL_NEVER_NS, .abort = &abort_flag};
    static char data[BIG_BYTES];
    struct xccl_addr nobody;
    pthread_t thread;
    xcclResult_t rc = xcclSuccess;
    int fd = -1, held = -1;

    atomic_store_explicit(&abort_flag, 0, memory_order_relaxed);
    XT_CHECK(pthread_create(&thread, NULL, abort_run, NULL) == 0);
    switch (which) {
    case 0:
        rc = xccl_tcp_wait(ends[0], POLLIN, &limit);
        break;
    case 1:
        rc = xccl_tcp_recv_all(ends[0], data, 1, &limit);
        break;
    case 2:
        rc = xccl_tcp_send_all(ends[0], data, sizeof(data), &limit);
        break;
    case 3:
        rc = xccl_tcp_recv_fd(ends[0], &limit, &fd);
        break;
    case 4:
        /* The stream is full since case 2. */
        rc = xccl_tcp_send_fd(ends[0], 0, &limit);
        break;
    case 5:
        nobody = refusing_addr(&held);
        rc = xccl_tcp_connect(&nobody, &limit, &fd);
        close(held);
        break;
    }
    pthread_join(thread, NULL);
    XT_CHECK_RC(rc, xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "aborted");
    XT_CHECK_INT(fd, -1);
}

XT_TEST(every_wait_ends_when_the_abort_flag_is_set)
{
    int ends[2];

    unix_pair_open(ends);
    for (int which = 0; which < 6; which++)
        check_aborts(ends, which);
    pair_close(ends);
}

XT_TEST(every_wait_ends_at_its_deadline)
{
    struct xccl_limit limit = xccl_limit_ms(10, NULL);
    static char data[BIG_BYTES];
    int ends[2], fd = -1;

    unix_pair_open(ends);
    XT_CHECK_RC(xccl_tcp_wait(ends[0], POLLIN, &limit), xcclTimeout);
    XT_CHECK_RC(xccl_tcp_recv_all(ends[0], data, 1, &limit), xcclTimeout);
    XT_CHECK_HAS(xccl_error_text(), "unix:@");
    XT_CHECK_RC(xccl_tcp_send_all(ends[0], data, sizeof(data), &limit), xcclTimeout);
    XT_CHECK_RC(xccl_tcp_recv_fd(ends[0], &limit, &fd), xcclTimeout);
    pair_close(ends);
}

XT_TEST(data_that_is_there_is_taken_after_the_deadline)
{
    struct xccl_limit passed = {.deadline_ns = 0};
    char data[3] = "ab", got[3] = "";
    int ends[2];

    unix_pair_open(ends);
    XT_OK(xccl_tcp_send_all(ends[0], data, 3, &passed));
    XT_OK(xccl_tcp_wait(ends[1], POLLIN, &passed));
    XT_OK(xccl_tcp_recv_all(ends[1], got, 3, &passed));
    XT_CHECK_TEXT(got, "ab");
    pair_close(ends);
}

XT_TEST(a_closed_peer_is_an_error_on_both_ways_and_no_signal)
{
    struct xccl_addr addrs[2] = {ip_addr("127.0.0.1:1"), unix_addr("gone")};
    static char data[BIG_BYTES];
    struct xccl_limit limit = soon();
    int ends[2];
    size_t moved;

    for (int i = 0; i < 2; i++) {
        pair_open(&addrs[i], ends);
        xccl_tcp_close(&ends[1]);
        XT_CHECK_RC(xccl_tcp_send_all(ends[0], data, sizeof(data), &limit), xcclRemoteError);
        XT_CHECK_RC(xccl_tcp_recv_all(ends[0], data, 1, &limit), xcclRemoteError);
        XT_CHECK_RC(xccl_tcp_recv_some(ends[0], data, 1, &moved), xcclRemoteError);
        XT_OK(xccl_tcp_recv_some(ends[0], data, 0, &moved));
        pair_close(ends);
    }
}

XT_TEST(what_cannot_move_now_moves_nothing)
{
    static char data[BIG_BYTES];
    size_t moved = 7, sum = 0;
    int ends[2];

    unix_pair_open(ends);
    XT_OK(xccl_tcp_recv_some(ends[0], data, sizeof(data), &moved));
    XT_CHECK_INT(moved, 0);
    do {
        XT_OK(xccl_tcp_send_some(ends[0], data, sizeof(data), &moved));
        sum += moved;
    } while (moved > 0);
    XT_CHECK(sum > 0);
    XT_OK(xccl_tcp_send_some(ends[0], data, 0, &moved));
    pair_close(ends);
}

/* ---- descriptors ---- */

/* One message with a byte and count copies of fd. */
static void send_raw(int unix_fd, int fd, int count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(32 * sizeof(int))];
    } control = {0};
    struct iovec part = {.iov_base = "F", .iov_len = 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
        control.align.cmsg_level = SOL_SOCKET;
        control.align.cmsg_type = SCM_RIGHTS;
        control.align.cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
        for (int i = 0; i < count; i++)
            memcpy(CMSG_DATA(&control.align) + (size_t)i * sizeof(int), &fd, sizeof(fd));
    }
    XT_CHECK(sendmsg(unix_fd, &message, MSG_NOSIGNAL) == 1);
}

XT_TEST(a_descriptor_travels_and_is_closed_on_exec)
{
    struct xccl_limit limit = soon();
    int ends[2], pipe_fds[2], got = -1;
    char byte = 0;

    unix_pair_open(ends);
    XT_CHECK(pipe(pipe_fds) == 0);
    XT_OK(xccl_tcp_send_fd(ends[0], pipe_fds[1], &limit));
    XT_OK(xccl_tcp_recv_fd(ends[1], &limit, &got));
    XT_CHECK(fcntl(got, F_GETFD) & FD_CLOEXEC);
    XT_CHECK(write(got, "y", 1) == 1);
    XT_CHECK(read(pipe_fds[0], &byte, 1) == 1 && byte == 'y');
    close(got);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    pair_close(ends);
}

XT_TEST(any_other_number_of_descriptors_is_refused_and_they_are_closed)
{
    static const int counts[] = {0, 2, 8, 9, 32};
    struct xccl_limit limit = soon();
    int ends[2], got = -1;

    unix_pair_open(ends);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        send_raw(ends[0], ends[0], counts[i]);
        XT_CHECK_RC(xccl_tcp_recv_fd(ends[1], &limit, &got), xcclRemoteError);
        XT_CHECK_HAS(xccl_error_text(), "exactly one descriptor");
        XT_CHECK_HAS(xccl_error_text(), "process");
        XT_CHECK_INT(got, -1);
    }
    pair_close(ends);
}

XT_TEST(a_descriptor_among_data_is_dropped)
{
    struct xccl_limit limit = soon();
    int ends[2];
    char byte = 0;

    unix_pair_open(ends);
    send_raw(ends[0], ends[0], 1);
    XT_OK(xccl_tcp_recv_all(ends[1], &byte, 1, &limit));
    XT_CHECK(byte == 'F');
    pair_close(ends);
}

XT_TEST(a_peer_that_closes_before_its_descriptor_is_an_error)
{
    struct xccl_limit limit = soon();
    int ends[2], got = -1;

    unix_pair_open(ends);
    xccl_tcp_close(&ends[0]);
    XT_CHECK_RC(xccl_tcp_recv_fd(ends[1], &limit, &got), xcclRemoteError);
    XT_CHECK_RC(xccl_tcp_send_fd(ends[1], 0, &limit), xcclRemoteError);
    pair_close(ends);
}

/* ---- ports ---- */

/* ---- failures in turn ---- */

static xcclResult_t try_pair(const struct xccl_addr *addr)
{
    struct xccl_limit limit = soon();
    struct xccl_addr bound;
    int listen_fd = -1, client = -1, server = -1;
    xcclResult_t rc;

    rc = xccl_tcp_listen(addr, &listen_fd, &bound);
    if (!rc)
        rc = xccl_tcp_connect(&bound, &limit, &client);
    if (!rc)
        rc = xccl_tcp_accept(listen_fd, &server, NULL);
    xccl_tcp_close(&server);
    xccl_tcp_close(&client);
    xccl_tcp_close(&listen_fd);
    return rc;
}

XT_TEST(each_failure_in_turn_is_an_error_and_leaks_nothing)
{
    struct xccl_addr addr = unix_addr("turn");
    uint64_t k;

    XT_OK(try_pair(&addr));
    for (k = 1;; k++) {
        xcclResult_t rc;

        xccl_inject_arm(k);
        rc = try_pair(&addr);
        if (rc == xcclSuccess)
            break;
        XT_CHECK(xccl_inject_chances() >= k);
    }
    xccl_inject_arm(0);
    XT_CHECK(k > 4);
}

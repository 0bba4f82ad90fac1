/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections of the socket plugin that helper threads move: messages keep their order whoever
 * looks, a comm is taken back in the middle of a message, one who sleeps on its descriptor is
 * woken, and no thread and no descriptor outlives the instance. The rules of the contract at large
 * are tested by the conformance kit, with XCCL_SOCKET_THREADS set. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "sock_pair.h"

#define CROWD 200 /* comms of one instance, half of them senders */

static void threads_set(int threads, const char *wait)
{
    char text[8];

    snprintf(text, sizeof(text), "%d", threads);
    xt_setenv("XCCL_SOCKET_THREADS", text);
    xt_setenv("XCCL_SOCKET_WAIT", wait);
}

/* Runs of a test, each with another way to sleep. */
static const char *const waits[] = {"epoll", "uring"};

static int readable(int fd, int timeout_ms)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};

    XT_CHECK(poll(&wait, 1, timeout_ms) >= 0);
    return wait.revents != 0;
}

static int done_now(struct pair *pair, void *request)
{
    int done = 0;

    XT_OK(pair->net->calls.test(request, &done, NULL));
    return done;
}

/* Waits until the device has received so many messages, without a call for any comm. */
static void recv_count_reach(struct pair *pair, uint64_t count)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    xcclNetStats_v1 stats = {.size = sizeof(stats)};

    while (stats.recvCount < count) {
        XT_OK(pair->net->calls.stats(pair->net->ctx, 0, &stats));
        XT_CHECK(!xccl_limit_passed(&limit));
        poll(NULL, 0, 1);
    }
}

/* ---- the threads ---- */

XT_TEST(no_thread_runs_unless_asked_for)
{
    struct pair pair;
    char in[8];
    int before = xt_threads_named("");

    threads_set(0, "auto");
    pair_open(&pair);
    finish_both(&pair, post_send(&pair, "hello", 5), post_recv(&pair, in, sizeof(in)), NULL);
    XT_CHECK_INT(xt_threads_named(""), before);
    pair_close(&pair);
}

/* lo has no speed, so the default leaves its comms to the caller. */
XT_TEST(a_slow_interface_gets_no_thread_by_default)
{
    struct pair pair;

    pair_open(&pair);
    XT_CHECK_INT(xt_threads_named("xccl-sock-"), 0);
    pair_close(&pair);
}

XT_TEST(threads_start_with_the_first_comms_and_end_with_the_instance)
{
    for (size_t i = 0; i < 2; i++) {
        int before = xt_threads_named(""), fds = xt_entries("/proc/self/fd");
        struct pair pair;

        threads_set(4, waits[i]);
        pair_listen(&pair);
        XT_CHECK_INT(xt_threads_named("xccl-sock-"), 0);
        pair_connect(&pair);
        /* One for each comm, as long as there may be more. */
        XT_CHECK_INT(xt_threads_named("xccl-sock-"), 2);
        pair_close(&pair);
        XT_CHECK_INT(xt_threads_left("", before), before);
        XT_CHECK_INT(xt_entries("/proc/self/fd"), fds);
    }
}

XT_TEST(threads_block_all_signals)
{
    struct pair pair;
    DIR *dir;
    struct dirent *entry;
    int seen = 0;

    threads_set(1, "auto");
    pair_open(&pair);
    dir = opendir("/proc/self/task");
    XT_CHECK(dir != NULL);
    while ((entry = readdir(dir))) {
        char path[300], text[4096], *blocked;
        ssize_t got;
        int fd;

        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        XT_CHECK(fd >= 0);
        got = read(fd, text, sizeof(text) - 1);
        close(fd);
        XT_CHECK(got > 0);
        text[got] = 0;
        if (!strstr(text, "xccl-sock-"))
            continue;
        seen++;
        blocked = strstr(text, "SigBlk:");
        XT_CHECK(blocked != NULL);
        /* All but KILL (9), STOP (19), and the two that the C library keeps for itself. */
        XT_CHECK_INT(~strtoull(blocked + 7, NULL, 16) & ~(1ull << 8 | 1ull << 18 | 3ull << 31), 0);
    }
    closedir(dir);
    XT_CHECK_INT(seen, 1);
    pair_close(&pair);
}

/* ---- messages ---- */

XT_TEST_DEADLINE(rows_of_messages_arrive_in_order_whichever_is_tested_first, 60)
{
    static const int streams[] = {1, 4};
    uint64_t random = xt_seed();
    char *in = malloc(BIG_BYTES);

    for (int run = 0; run < 4; run++) {
        struct pair pair;

        threads_set(1 + run % 2 * 3, waits[run / 2]);
        xt_setenv("XCCL_SOCKET_STREAMS", streams[run % 2] == 1 ? "1" : "4");
        pair_open(&pair);
        for (uint64_t round = 0; round < 10; round++) {
            size_t sizes[32], got = 0, room = BIG_BYTES / 32;
            void *sends[32], *recvs[32];

            for (size_t i = 0; i < 32; i++) {
                sizes[i] = xt_random(&random) % (xt_random(&random) % 4 ? 3000 : room);
                fill(big + i * room, sizes[i], round + i);
                recvs[i] = post_recv(&pair, in + i * room, room);
                sends[i] = post_send(&pair, big + i * room, sizes[i]);
                XT_CHECK(recvs[i] && sends[i]);
            }
            for (size_t i = 32; i-- > 0;) {
                XT_OK(finish(&pair, recvs[i], &got));
                XT_CHECK_INT(got, sizes[i]);
                expect(in + i * room, sizes[i], round + i);
                XT_OK(finish(&pair, sends[i], &got));
                XT_CHECK_INT(got, sizes[i]);
            }
        }
        pair_close(&pair);
    }
    free(in);
}

XT_TEST(a_group_takes_its_messages_by_tag)
{
    static const uint32_t tags[3] = {1, 2, 3};
    char in[3][16];
    void *data[3] = {in[0], in[1], in[2]}, *recv = NULL;
    size_t room[3] = {16, 16, 16}, sizes[8];
    xcclNetRequest_t sends[3];
    xcclNetMem_t mems[3];
    struct pair pair;

    threads_set(1, "auto");
    pair_open(&pair);
    for (int i = 0; i < 3; i++)
        mems[i] = pair.recv_mem;
    XT_OK(pair.net->calls.irecv(pair.recv, 3, data, room, tags, mems, &recv));
    for (uint32_t i = 3; i-- > 0;)
        XT_OK(pair.net->calls.isend(pair.send, "abcdef", 1 + i, tags[i], pair.send_mem, &sends[i]));
    XT_OK(finish(&pair, recv, sizes));
    for (uint32_t i = 0; i < 3; i++) {
        XT_CHECK_INT(sizes[i], 1 + i);
        XT_OK(finish(&pair, sends[i], NULL));
    }
    pair_close(&pair);
}

XT_TEST(what_is_too_much_is_busy_and_loses_nothing)
{
    struct pair pair;
    void *recvs[XCCL_NET_MAX_REQUESTS], *sends[1024];
    static char in[1024][8];
    size_t posted = 0, got = 0;

    threads_set(1, "auto");
    pair_open(&pair);
    for (int i = 0; i < XCCL_NET_MAX_REQUESTS; i++)
        recvs[i] = post_recv(&pair, in[i], 8);
    XT_CHECK(post_recv(&pair, in[0], 8) == NULL);
    /* What is done and not tested keeps its place, so the senders come to an end. */
    while (posted < 1024 && (sends[posted] = post_send(&pair, &in[512], posted % 8)))
        posted++;
    XT_CHECK_INT(posted, 256);
    for (size_t i = 0; i < posted; i++) {
        XT_OK(finish(&pair, recvs[i % XCCL_NET_MAX_REQUESTS], &got));
        XT_CHECK_INT(got, i % 8);
        recvs[i % XCCL_NET_MAX_REQUESTS] = post_recv(&pair, in[i % 512], 8);
        XT_OK(finish(&pair, sends[i], NULL));
    }
    pair_close(&pair);
}

XT_TEST(wrong_arguments_harm_nothing)
{
    struct pair pair;
    xcclNetRequest_t request = NULL;
    char in[8];
    void *data = in;
    size_t room = sizeof(in), got = 0;
    uint32_t tag = 7;

    threads_set(1, "auto");
    pair_open(&pair);
    XT_CHECK_RC(pair.net->calls.isend(pair.send, in, SIZE_MAX, 7, pair.send_mem, &request),
                xcclInvalidArgument);
    XT_CHECK_RC(pair.net->calls.irecv(pair.recv, 0, &data, &room, &tag, &pair.recv_mem, &request),
                xcclInvalidArgument);
    XT_CHECK(request == NULL);
    finish_both(&pair, post_send(&pair, "hello", 5), post_recv(&pair, in, sizeof(in)), &got);
    XT_CHECK_INT(got, 5);
    pair_close(&pair);
}

/* The data moves while the callers do nothing: what is seen is the last byte in memory. */
XT_TEST(data_moves_while_nobody_calls)
{
    for (int i = 0; i < 2; i++) {
        struct pair pair;
        char *in = calloc(1, BIG_BYTES);
        void *send, *recv;

        threads_set(1 + i, waits[i]);
        pair_open(&pair);
        fill(big, BIG_BYTES, 5);
        recv = post_recv(&pair, in, BIG_BYTES);
        send = post_send(&pair, big, BIG_BYTES);
        recv_count_reach(&pair, 1);
        XT_OK(finish(&pair, recv, NULL));
        XT_OK(finish(&pair, send, NULL));
        expect(in, BIG_BYTES, 5);
        pair_close(&pair);
        free(in);
    }
}

/* ---- sleeping callers ---- */

XT_TEST(who_sleeps_on_the_descriptor_is_woken)
{
    for (size_t i = 0; i < 2; i++) {
        struct pair pair;
        char in[8];
        int fd = -1, again = -1;
        void *recv;

        threads_set(1, waits[i]);
        pair_open(&pair);
        XT_OK(pair.net->calls.waitFd(pair.recv, &fd));
        XT_OK(pair.net->calls.waitFd(pair.recv, &again));
        XT_CHECK_INT(fd, again);
        for (int round = 0; round < 200; round++) {
            recv = post_recv(&pair, in, sizeof(in));
            XT_CHECK(!done_now(&pair, recv));
            XT_OK(finish(&pair, post_send(&pair, "x", 1), NULL));
            XT_CHECK(readable(fd, 20000));
            XT_OK(finish(&pair, recv, NULL));
        }
        /* Once nothing moves any more it is quiet: the last ring may come after the test that saw
         * what it was for. */
        recv = post_recv(&pair, in, sizeof(in));
        XT_CHECK(!done_now(&pair, recv));
        if (readable(fd, 20)) {
            XT_CHECK(!done_now(&pair, recv));
            XT_CHECK(!readable(fd, 20));
        }
        pair_close(&pair);
    }
}

XT_TEST(a_descriptor_asked_for_late_tells_what_came_before)
{
    struct pair pair;
    char in[8];
    int fd = -1;
    void *recv;

    threads_set(1, "auto");
    pair_open(&pair);
    recv = post_recv(&pair, in, sizeof(in));
    XT_CHECK(!done_now(&pair, recv));
    XT_OK(finish(&pair, post_send(&pair, "x", 1), NULL));
    XT_OK(pair.net->calls.waitFd(pair.recv, &fd));
    XT_CHECK(readable(fd, 20000));
    XT_OK(finish(&pair, recv, NULL));
    pair_close(&pair);
}

XT_TEST(the_death_of_a_peer_wakes_who_sleeps)
{
    for (size_t i = 0; i < 2; i++) {
        xcclNetError_v1 error = {.size = sizeof(error)};
        struct pair pair;
        char in[8], first[8];
        int fd = -1;
        void *recv, *early;

        threads_set(2, waits[i]);
        pair_open(&pair);
        XT_OK(pair.net->calls.waitFd(pair.recv, &fd));
        early = post_recv(&pair, first, sizeof(first));
        recv = post_recv(&pair, in, sizeof(in));
        XT_OK(finish(&pair, post_send(&pair, "x", 1), NULL));
        XT_OK(pair.net->calls.errorDetail(pair.recv, &error));
        XT_CHECK_INT(error.cause, xcclNetCauseNone);
        XT_CHECK_TEXT(error.text, "");
        recv_count_reach(&pair, 1);
        XT_CHECK(!done_now(&pair, recv));
        XT_OK(pair.net->calls.closeSend(pair.send));
        pair.send = NULL;
        XT_CHECK(readable(fd, 20000));
        XT_CHECK_RC(finish(&pair, recv, NULL), xcclRemoteError);
        XT_CHECK_HAS(xccl_error_text(), "closed the connection");
        /* What was complete before stays complete, and the error stays. */
        XT_CHECK(done_now(&pair, early));
        XT_CHECK_RC(finish(&pair, recv, NULL), xcclRemoteError);
        XT_OK(pair.net->calls.errorDetail(pair.recv, &error));
        XT_CHECK_INT(error.cause, xcclNetCausePeerGone);
        XT_CHECK_HAS(error.text, "closed the connection");
        XT_CHECK_HAS(error.peer, "127.0.0.1");
        pair_close(&pair);
    }
}

/* As in a container whose seccomp profile does not let it through. */
XT_TEST(where_io_uring_is_forbidden_epoll_serves)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = 4, .filter = code};
    struct pair pair;
    char in[8];
    size_t got = 0;

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        XT_SKIP("no seccomp filters here: %s", strerror(errno));
    threads_set(1, "uring");
    pair_open(&pair);
    XT_CHECK_INT(xt_threads_named("xccl-sock-"), 1);
    finish_both(&pair, post_send(&pair, "hello", 5), post_recv(&pair, in, sizeof(in)), &got);
    XT_CHECK_INT(got, 5);
    pair_close(&pair);
}

/* ---- closing ---- */

/* After close the memory of a request that was in flight is the caller's again. */
XT_TEST(closing_in_the_middle_of_a_message_ends_it)
{
    static const char *const streams[] = {"1", "4"};
    char *in = malloc(BIG_BYTES);

    for (int i = 0; i < 4; i++) {
        struct pair pair;
        int fds = xt_entries("/proc/self/fd");

        threads_set(2, waits[i / 2]);
        xt_setenv("XCCL_SOCKET_STREAMS", streams[i % 2]);
        pair_open(&pair);
        /* The socket is full, and the helper sleeps until there is room. */
        XT_CHECK(post_send(&pair, big, BIG_BYTES));
        XT_CHECK(post_recv(&pair, in, BIG_BYTES));
        XT_CHECK(post_recv(&pair, in, BIG_BYTES));
        XT_OK(pair.net->calls.closeRecv(pair.recv));
        pair.recv = NULL;
        memset(in, 'm', BIG_BYTES);
        XT_OK(pair.net->calls.closeSend(pair.send));
        pair.send = NULL;
        for (size_t at = 0; at < BIG_BYTES; at++)
            XT_CHECK(in[at] == 'm');
        pair_close(&pair);
        XT_CHECK_INT(xt_entries("/proc/self/fd"), fds);
    }
    free(in);
}

/* The helper has not heard of any of the four yet when the first is closed. */
XT_TEST(closing_a_comm_that_was_never_used_harms_no_other)
{
    struct pair pairs[2];
    char in[8];
    size_t got = 0;

    threads_set(1, "auto");
    pair_open(&pairs[0]);
    pairs[1] = (struct pair){.net = pairs[0].net};
    XT_OK(pairs[1].net->calls.listen(pairs[1].net->ctx, 0, &pairs[1].handle, &pairs[1].listener));
    pair_connect(&pairs[1]);
    XT_OK(pairs[1].net->calls.closeRecv(pairs[1].recv));
    finish_both(&pairs[0], post_send(&pairs[0], "hello", 5), post_recv(&pairs[0], in, 8), &got);
    XT_CHECK_INT(got, 5);
    XT_OK(pairs[1].net->calls.closeSend(pairs[1].send));
    XT_OK(pairs[1].net->calls.closeListen(pairs[1].listener));
    pair_close(&pairs[0]);
}

XT_TEST(a_full_sender_is_closed_at_once)
{
    for (size_t i = 0; i < 2; i++) {
        struct pair pair;
        void *large, *send;
        uint64_t before_ns;

        threads_set(1, waits[i]);
        pair_open(&pair);
        send = post_send(&pair, "x", 1);
        large = post_send(&pair, big, BIG_BYTES);
        /* Its helper has come to the large one, which the kernel does not take as a whole. */
        XT_OK(finish(&pair, send, NULL));
        XT_CHECK(!done_now(&pair, large));
        before_ns = xccl_clock_ns();
        XT_OK(pair.net->calls.closeSend(pair.send));
        pair.send = NULL;
        XT_CHECK(xccl_clock_ns() - before_ns < XCCL_NS_PER_S);
        pair_close(&pair);
    }
}

XT_TEST(what_was_done_before_close_arrives)
{
    static const char *const streams[] = {"1", "4"};
    char in[64];

    for (int i = 0; i < 4; i++) {
        struct pair pair;
        size_t got = 0;

        threads_set(1, waits[i / 2]);
        xt_setenv("XCCL_SOCKET_STREAMS", streams[i % 2]);
        pair_open(&pair);
        XT_OK(finish(&pair, post_send(&pair, "the last words", 14), NULL));
        XT_OK(pair.net->calls.closeSend(pair.send));
        pair.send = NULL;
        XT_OK(finish(&pair, post_recv(&pair, in, sizeof(in)), &got));
        XT_CHECK_INT(got, 14);
        XT_CHECK(memcmp(in, "the last words", 14) == 0);
        pair_close(&pair);
    }
}

/* ---- many ---- */

static void crowd_open(struct pair *pairs, struct xccl_net *net)
{
    for (int i = 0; i < CROWD / 2; i++) {
        struct pair *pair = &pairs[i];

        memset(pair, 0, sizeof(*pair));
        pair->net = net;
        XT_OK(net->calls.listen(net->ctx, 0, &pair->handle, &pair->listener));
        pair_connect(pair);
        XT_OK(net->calls.closeListen(pair->listener));
    }
}

XT_TEST_DEADLINE(two_hundred_comms_share_four_threads, 60)
{
    static struct pair pairs[CROWD / 2];
    static char in[CROWD / 2][4096];

    for (size_t run = 0; run < 2; run++) {
        void *sends[CROWD / 2], *recvs[CROWD / 2];
        struct xccl_net *net;

        threads_set(4, waits[run]);
        net = net_open();
        crowd_open(pairs, net);
        XT_CHECK_INT(xt_threads_named("xccl-sock-"), 4);
        for (size_t round = 0; round < 20; round++) {
            for (size_t i = 0; i < CROWD / 2; i++)
                recvs[i] = post_recv(&pairs[i], in[i], sizeof(in[i]));
            fill(big, 2 * sizeof(in[0]), round);
            for (size_t i = 0; i < CROWD / 2; i++)
                sends[i] = post_send(&pairs[i], big + i, sizeof(in[i]));
            for (size_t i = 0; i < CROWD / 2; i++) {
                XT_OK(finish(&pairs[i], recvs[i], NULL));
                XT_OK(finish(&pairs[i], sends[i], NULL));
                XT_CHECK(memcmp(in[i], big + i, sizeof(in[i])) == 0);
            }
        }
        for (int i = 0; i < CROWD / 2; i++) {
            XT_OK(net->calls.closeSend(pairs[i].send));
            XT_OK(net->calls.closeRecv(pairs[i].recv));
        }
        xccl_net_close(net);
        XT_CHECK_INT(xt_threads_left("xccl-sock-", 0), 0);
    }
}

/* One thread of the test: opens, exchanges and closes pairs on the common instance. */
static void churn(int rank, int nranks, void *net_)
{
    struct xccl_net *net = net_;
    char in[256];

    (void)nranks;
    for (int i = 0; i < 40; i++) {
        struct pair pair = {.net = net};
        size_t got = 0;

        XT_OK(net->calls.listen(net->ctx, 0, &pair.handle, &pair.listener));
        pair_connect(&pair);
        XT_OK(net->calls.closeListen(pair.listener));
        for (int round = 0; round < 5; round++) {
            void *recv = post_recv(&pair, in, sizeof(in));

            finish_both(&pair, post_send(&pair, big, (size_t)(rank + round)), recv, &got);
            XT_CHECK_INT(got, rank + round);
        }
        XT_CHECK(post_recv(&pair, in, sizeof(in)));
        XT_OK(net->calls.closeRecv(pair.recv));
        XT_OK(net->calls.closeSend(pair.send));
    }
}

XT_TEST_DEADLINE(comms_come_and_go_on_all_threads_at_once, 60)
{
    for (size_t i = 0; i < 2; i++) {
        struct xccl_net *net;
        int fds = xt_entries("/proc/self/fd");

        threads_set(3, waits[i]);
        net = net_open();
        xt_threads_run(4, churn, net);
        xccl_net_close(net);
        XT_CHECK_INT(xt_entries("/proc/self/fd"), fds);
    }
}

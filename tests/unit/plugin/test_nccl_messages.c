/* SPDX-License-Identifier: BSD-3-Clause */
/* The adapters of NCCL's network plugins: messages, requests, progress, errors, and how comms end,
 * over a fixture of each version. */
#include "plugin/net_plugin_int.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/os.h"
#include "nccl_fx.h"

/* ---- messages ---- */

XT_TEST(messages_of_all_sizes_arrive_and_a_receive_may_be_larger)
{
    static const size_t sizes[] = {0, 1, 15, 4096, 65537, PART_BYTES, 8 * PART_BYTES};

    for (int version = FIRST; version <= LAST; version++) {
        struct fixture fx;
        struct pair pair;

        fixture_open(&fx, version, "");
        pair_open(&pair, &fx);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            size_t bytes = sizes[i], got = 1, room = bytes < 100 ? bytes + 100 : bytes;
            xcclNetRequest_t recv;

            fill(send_memory, bytes, i + 1);
            memset(recv_memory, 0x55, bytes + 1 < sizeof(recv_memory) ? bytes + 1 : bytes);
            recv = post_one(&pair, 0, room, 9);
            wait_both(&pair, post_send(&pair, 0, bytes, 9), recv, &got);
            XT_CHECK_INT(got, bytes);
            XT_CHECK(memcmp(send_memory, recv_memory, bytes) == 0);
            XT_CHECK(bytes == sizeof(recv_memory) || recv_memory[bytes] == 0x55);
        }
        pair_close(&pair);
        fixture_close(&fx);
    }
}

XT_TEST_DEADLINE(a_gibibyte_arrives, 60)
{
    static const int versions[] = {6, 8, 9, 12};
    const size_t bytes = (size_t)1 << 30, page = (size_t)1 << 21;
    struct xccl_map map;

    char *room;

    /* One page of 2 MiB, seen 512 times, is source and destination: only the count is looked at. */
    XT_OK(xccl_map_create("gibibyte", page, &map));
    room = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    XT_CHECK(room != MAP_FAILED);
    for (size_t at = 0; at < bytes; at += page)
        XT_CHECK(mmap(room + at, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, map.fd, 0) !=
                 MAP_FAILED);
    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
        struct fixture fx;
        struct pair pair;
        size_t got = 0;

        fixture_open(&fx, versions[i], "");
        pair_open_over(&pair, &fx, room, room, bytes);
        wait_both(&pair, post_send(&pair, 0, bytes, 1), post_one(&pair, 0, bytes, 1), &got);
        XT_CHECK(got == bytes);
        pair_close(&pair);
        fixture_close(&fx);
    }
    munmap(room, bytes);
    xccl_map_close(&map);
}

XT_TEST(grouped_receives_are_matched_by_tags_in_any_order)
{
    for (int version = FIRST; version <= LAST; version++) {
        struct fixture fx;
        struct pair pair;

        fixture_open(&fx, version, "");
        pair_open(&pair, &fx);
        for (uint32_t turn = 0; turn < 24; turn++) {
            int count = (int)(turn % (uint32_t)fx.max_recvs) + 1;
            size_t at[8], room[8], got[8] = {0};
            xcclNetRequest_t recv, sends[8];
            uint32_t tags[8];

            for (int i = 0; i < count; i++) {
                at[i] = (size_t)i * 1000;
                room[i] = 1000;
                tags[i] = 0xfffffff0u + (uint32_t)i;
            }
            fill(send_memory, 8000, turn);
            recv = post_recv(&pair, count, at, room, tags);
            for (int i = count - 1; i >= 0; i--)
                sends[i] = post_send(&pair, at[i], 10 * (size_t)i + turn, tags[i]);
            for (int i = 0; i < count; i++)
                wait_both(&pair, sends[i], i ? NULL : recv, got);
            for (int i = 0; i < count; i++) {
                XT_CHECK_INT(got[i], 10 * i + (int)turn);
                XT_CHECK(memcmp(send_memory + at[i], recv_memory + at[i], got[i]) == 0);
            }
        }
        pair_close(&pair);
        fixture_close(&fx);
    }
}

/* Posts without asking again: NULL twice in a row is busy for good, once is the fixture's whim. */
static xcclNetRequest_t try_send(struct pair *pair)
{
    xcclNetRequest_t request = NULL;

    for (int i = 0; i < 2 && !request; i++)
        FX_OK(pair->fx,
              pair->fx->calls->isend(pair->send, pair->send_data, 1, 3, pair->send_mem, &request));
    return request;
}

static xcclNetRequest_t try_recv(struct pair *pair)
{
    void *data[1] = {pair->recv_data};
    const size_t bytes[1] = {1};
    const uint32_t tags[1] = {3};
    xcclNetRequest_t request = NULL;

    for (int i = 0; i < 2 && !request; i++)
        FX_OK(pair->fx,
              pair->fx->calls->irecv(pair->recv, 1, data, bytes, tags, &pair->recv_mem, &request));
    return request;
}

/* The fixture fails loudly beyond its limit, so "busy" is the adapter's word. */
XT_TEST(as_many_requests_as_the_version_allows_then_busy_in_any_order)
{
    static xcclNetRequest_t sends[300], recvs[300];

    for (int version = FIRST; version <= LAST; version++) {
        int requests = version == 6 ? 8 : 32, sent = 0, received = 0;
        struct fixture fx;
        struct pair pair;

        fixture_open(&fx, version, "");
        pair_open(&pair, &fx);
        while (sent < 300 && (sends[sent] = try_send(&pair)) != NULL)
            sent++;
        XT_CHECK_INT(sent, requests * fx.max_recvs);
        for (int turn = 0; turn < fx.max_recvs; turn++) {
            while (received < 300 && (recvs[received] = try_recv(&pair)) != NULL)
                received++;
            XT_CHECK_INT(received, requests);
            while (received > 0)
                wait_both(&pair, NULL, recvs[--received], &(size_t){0});
        }
        while (sent > 0)
            wait_both(&pair, sends[--sent], NULL, NULL);
        wait_both(&pair, try_send(&pair), try_recv(&pair), &(size_t){0});
        pair_close(&pair);
        fixture_close(&fx);
    }
}

XT_TEST(sizes_that_a_version_does_not_carry_are_refused_and_harm_nothing)
{
    for (int version = FIRST; version <= LAST; version++) {
        size_t too_much = version >= 10 ? (size_t)1 << 31 : ((size_t)1 << 30) + 1, got = 0;
        xcclNetRequest_t request = (xcclNetRequest_t)&got, kept = request;
        void *data[1] = {recv_memory};
        const uint32_t tags[1] = {0};
        struct fixture fx;
        struct pair pair;
        xcclNetMem_t mem = NULL;

        fixture_open(&fx, version, "");
        pair_open(&pair, &fx);
        XT_CHECK_INT(fx.calls->isend(pair.send, send_memory, too_much, 0, pair.send_mem, &request),
                     xcclInvalidArgument);
        XT_CHECK_HAS(text(&fx), "split it");
        XT_CHECK_INT(fx.calls->irecv(pair.recv, 1, data, &too_much, tags, &pair.recv_mem, &request),
                     xcclInvalidArgument);
        XT_CHECK_INT(fx.calls->irecv(pair.recv, fx.max_recvs + 1, data, &got, tags, &pair.recv_mem,
                                     &request),
                     xcclInvalidArgument);
        XT_CHECK(request == kept);
        if (version < 8) {
            XT_CHECK_INT(
                fx.calls->regMr(pair.send, send_memory, (size_t)1 << 31, XCCL_NET_PTR_HOST, &mem),
                xcclInvalidArgument);
            XT_CHECK_HAS(text(&fx), "register smaller parts");
        } else {
            FX_OK(&fx, fx.calls->regMr(pair.send, send_memory, (size_t)1 << 33, XCCL_NET_PTR_HOST,
                                       &mem));
            FX_OK(&fx, fx.calls->deregMr(pair.send, mem));
        }
        XT_CHECK_INT(fx.calls->regMr(pair.send, send_memory, 1, XCCL_NET_PTR_CUDA, &mem),
                     xcclInvalidArgument);
        wait_both(&pair, post_send(&pair, 0, 3, 0), post_one(&pair, 0, 3, 0), &got);
        XT_CHECK_INT(got, 3);
        pair_close(&pair);
        fixture_close(&fx);
    }
}

XT_TEST(flushes_and_dma_bufs_work_where_the_plugin_has_them)
{
    for (int version = FIRST; version <= LAST; version++) {
        xcclNetRequest_t request = NULL;
        void *data[1] = {recv_memory};
        const size_t bytes[1] = {64};
        xcclNetMem_t mem = NULL;
        struct fixture fx;
        struct pair pair;
        int done = 0;

        fixture_open(&fx, version, "");
        pair_open(&pair, &fx);
        FX_OK(&fx, fx.calls->iflush(pair.recv, 1, data, bytes, &pair.recv_mem, &request));
        XT_CHECK_INT(request != NULL, version >= 7);
        if (request)
            FX_OK(&fx, fx.calls->test(request, &done, NULL));
        XT_CHECK_INT(done, request != NULL);
        XT_CHECK_INT(
            fx.calls->regMrDmaBuf(pair.recv, recv_memory, 64, XCCL_NET_PTR_HOST, 0, 0, &mem),
            version >= 7 ? xcclSuccess : xcclInvalidUsage);
        if (version >= 7)
            FX_OK(&fx, fx.calls->deregMr(pair.recv, mem));
        pair_close(&pair);
        fixture_close(&fx);
    }
}

static void keep_own_line(enum xccl_log_level level, const char *line)
{
    (void)level;
    keep_line(xcclNetLogInfo, line);
}

/* What is logged inside of irecv does not go to init's log. */
XT_TEST(the_hint_of_an_optional_receive_is_passed_on_where_there_is_one)
{
    for (int version = FIRST; version <= LAST; version++) {
        struct fixture fx;
        struct pair pair;

        fixture_open(&fx, version, "");
        pair_open(&pair, &fx);
        line_count = 0;
        wait_both(&pair, post_send(&pair, 0, 8, 1), post_one(&pair, 0, 8, 1), &(size_t){0});
        XT_CHECK_INT(line_count, 0);
        xccl_log_set_sink(keep_own_line);
        wait_both(&pair, post_send(&pair, 0, 8, 1), post_one(&pair, 0, 8, 1), &(size_t){0});
        xccl_log_set_sink(NULL);
        XT_CHECK_INT(lines_with("an optional receive") > 0, version >= 9);
        pair_close(&pair);
        fixture_close(&fx);
    }
}

XT_TEST(progress_ends_requests_for_the_later_test)
{
    for (int version = FIRST; version <= LAST; version++) {
        struct xccl_limit limit = xccl_limit_ms(20000, NULL);
        size_t got = 1, sent = 1;
        xcclNetRequest_t send, recv;
        struct fixture fx;
        struct pair pair;
        int pending = 1, done = 0;

        fixture_open(&fx, version, "");
        pair_open(&pair, &fx);
        fill(send_memory, sizeof(send_memory), 5);
        send = post_send(&pair, 0, sizeof(send_memory), 1);
        recv = post_one(&pair, 0, sizeof(recv_memory), 1);
        while (pending) {
            XT_CHECK(!xccl_limit_passed(&limit));
            FX_OK(&fx, fx.calls->progress(fx.ctx, &pending));
        }
        FX_OK(&fx, fx.calls->test(send, &done, &sent));
        XT_CHECK_INT(done, 1);
        XT_CHECK_INT(sent, sizeof(send_memory));
        /* The last bytes may have come after progress looked at the receive. */
        wait_both(&pair, NULL, recv, &got);
        XT_CHECK_INT(got, sizeof(recv_memory));
        XT_CHECK(memcmp(send_memory, recv_memory, sizeof(send_memory)) == 0);
        pair_close(&pair);
        fixture_close(&fx);
    }
}

/* ---- errors and ends ---- */

static void wait_error(struct pair *pair, xcclNetRequest_t request, xcclResult_t want)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    xcclResult_t rc = xcclSuccess;
    int done = 0;

    while (rc == xcclSuccess && !done && !xccl_limit_passed(&limit))
        rc = pair->fx->calls->test(request, &done, NULL);
    XT_CHECK_INT(done, 0);
    XT_CHECK_INT(rc, want);
}

XT_TEST(a_gone_peer_is_an_error_with_a_text_that_stays)
{
    for (int version = FIRST; version <= LAST; version++) {
        xcclNetError_v1 error = {.size = sizeof(error)};
        xcclNetRequest_t first, second, third;
        struct fixture fx;
        struct pair pair;
        size_t got = 0;
        int done = 0;

        fixture_open(&fx, version, "");
        pair_open(&pair, &fx);
        FX_OK(&fx, fx.calls->errorDetail(pair.recv, &error));
        XT_CHECK_INT(error.cause, xcclNetCauseNone);
        XT_CHECK_TEXT(error.text, "");
        first = post_one(&pair, 0, 10, 1);
        second = post_one(&pair, 0, 10, 1);
        wait_both(&pair, post_send(&pair, 0, 10, 1), NULL, &got);
        FX_OK(&fx, fx.calls->deregMr(pair.send, pair.send_mem));
        FX_OK(&fx, fx.calls->closeSend(pair.send));
        /* The second one finds out; the first one, complete before, stays complete. */
        wait_error(&pair, second, xcclRemoteError);
        XT_CHECK_HAS(text(&fx), "fx-net test: ");
        XT_CHECK_HAS(text(&fx), "fixture: the peer closed the connection");
        FX_OK(&fx, fx.calls->test(first, &done, &got));
        XT_CHECK_INT(done, 1);
        XT_CHECK_INT(got, 10);
        for (int i = 0; i < 2; i++) {
            void *data[1] = {recv_memory};
            const uint32_t tags[1] = {1};

            third = (xcclNetRequest_t)data;
            XT_CHECK_INT(fx.calls->irecv(pair.recv, 1, data, &got, tags, &pair.recv_mem, &third),
                         xcclRemoteError);
            XT_CHECK(third == (xcclNetRequest_t)data);
            XT_CHECK_HAS(text(&fx), "the peer closed the connection");
        }
        FX_OK(&fx, fx.calls->errorDetail(pair.recv, &error));
        XT_CHECK_INT(error.cause, xcclNetCausePeerGone);
        XT_CHECK_HAS(error.text, "the peer closed the connection");
        line_count = 0;
        FX_OK(&fx, fx.calls->deregMr(pair.recv, pair.recv_mem));
        FX_OK(&fx, fx.calls->closeRecv(pair.recv));
        XT_CHECK_INT(lines_with("in flight"), 0);
        fixture_close(&fx);
    }
}

XT_TEST(a_send_larger_than_its_receive_is_the_receivers_error)
{
    for (int version = FIRST; version <= LAST; version++) {
        xcclNetRequest_t recv;
        struct fixture fx;
        struct pair pair;

        fixture_open(&fx, version, "");
        pair_open(&pair, &fx);
        memset(recv_memory, 0x33, 64);
        recv = post_one(&pair, 0, 10, 1);
        wait_both(&pair, post_send(&pair, 0, 11, 1), NULL, NULL);
        wait_error(&pair, recv, xcclInvalidUsage);
        XT_CHECK_HAS(text(&fx), "11 bytes for a receive of 10");
        XT_CHECK_INT(recv_memory[10], 0x33);
        pair_close(&pair);
        fixture_close(&fx);
    }
}

static void dead_peer_rank(int rank, int nranks, void *arg)
{
    const int *fds = arg;
    xcclNetConnect_t state = NULL;
    struct fixture fx;
    struct pair pair;

    (void)nranks;
    fixture_open(&fx, 9, "");
    memset(&pair, 0, sizeof(pair));
    pair.fx = &fx;
    pair.recv_data = recv_memory;
    if (rank == 0) {
        struct xccl_limit limit = xccl_limit_ms(20000, NULL);

        FX_OK(&fx, fx.calls->listen(fx.ctx, 0, &pair.handle, &pair.listener));
        XT_CHECK(write(fds[1], &pair.handle, sizeof(pair.handle)) == sizeof(pair.handle));
        while (!pair.recv && !xccl_limit_passed(&limit))
            FX_OK(&fx, fx.calls->accept(pair.listener, &pair.recv));
        FX_OK(&fx, fx.calls->closeListen(pair.listener));
        FX_OK(&fx, fx.calls->regMr(pair.recv, recv_memory, 64, XCCL_NET_PTR_HOST, &pair.recv_mem));
        wait_error(&pair, post_one(&pair, 0, 64, 1), xcclRemoteError);
        FX_OK(&fx, fx.calls->deregMr(pair.recv, pair.recv_mem));
        FX_OK(&fx, fx.calls->closeRecv(pair.recv));
        fixture_close(&fx);
        return;
    }
    XT_CHECK(read(fds[0], &pair.handle, sizeof(pair.handle)) == sizeof(pair.handle));
    while (!pair.send)
        FX_OK(&fx, fx.calls->connect(fx.ctx, 0, &pair.handle, &state, &pair.send));
    _exit(0); /* without a word */
}

XT_TEST(a_peer_that_dies_is_a_remote_error)
{
    int fds[2], statuses[2];
    struct xt_mp *mp;

    XT_CHECK_INT(pipe(fds), 0);
    mp = xt_mp_start(2, dead_peer_rank, fds);
    xt_mp_wait(mp, statuses);
    close(fds[0]);
    close(fds[1]);
    XT_CHECK_INT(statuses[0], 0);
}

XT_TEST(closing_with_requests_in_flight_leaves_the_comm_open_with_one_line)
{
    xt_allow_leaks("the plugin's comm stays open on purpose");
    for (int version = FIRST; version <= LAST; version++) {
        uint64_t begin_ns, live;
        struct fixture fx;
        struct pair pair;

        fixture_open(&fx, version, "");
        live = xccl_alloc_live();
        pair_open(&pair, &fx);
        post_one(&pair, 0, 10, 1);
        post_one(&pair, 0, 10, 1);
        line_count = 0;
        begin_ns = xccl_clock_ns();
        XT_CHECK_RC(fx.calls->closeRecv(pair.recv), xcclInProgress);
        XT_CHECK(xccl_clock_ns() - begin_ns < 2000 * XCCL_NS_PER_MS);
        XT_CHECK_INT(line_count, 1);
        XT_CHECK_HAS(lines[0], "fx-net closeRecv: 2 requests are in flight after 100 ms");
        /* Sends that can leave do so, and nothing stays. */
        post_send(&pair, 0, 10, 1);
        FX_OK(&fx, fx.calls->closeSend(pair.send));
        XT_CHECK_INT(line_count, 1);
        XT_CHECK_INT(xccl_alloc_live(), live);
        fixture_close(&fx);
    }
}

XT_TEST(a_connect_can_be_given_up_and_a_listener_closed_early)
{
    xt_allow_leaks("what the plugin made for the connect is lost");
    for (int version = FIRST; version <= LAST; version++) {
        xcclNetConnect_t state = NULL;
        xcclNetSendComm_t comm = NULL;
        xcclNetRecvComm_t recv = NULL;
        struct fixture fx;
        struct pair pair;

        fixture_open(&fx, version, "");
        memset(&pair, 0, sizeof(pair));
        FX_OK(&fx, fx.calls->listen(fx.ctx, 0, &pair.handle, &pair.listener));
        FX_OK(&fx, fx.calls->connect(fx.ctx, 0, &pair.handle, &state, &comm));
        XT_CHECK(state != NULL && comm == NULL);
        FX_OK(&fx, fx.calls->accept(pair.listener, &recv));
        XT_CHECK(recv == NULL);
        FX_OK(&fx, fx.calls->closeConnect(fx.ctx, state));
        FX_OK(&fx, fx.calls->closeListen(pair.listener));
        fixture_close(&fx);
    }
}

XT_TEST(a_handle_of_nobody_and_a_refused_connect_are_errors)
{
    for (int version = FIRST; version <= LAST; version++) {
        struct xccl_limit limit = xccl_limit_ms(20000, NULL);
        xcclNetConnect_t state = NULL;
        xcclNetSendComm_t comm = NULL;
        xcclNetListenComm_t listener;
        xcclNetHandle_t handle = {{1}};
        xcclResult_t rc = xcclSuccess;
        struct fixture fx;

        fixture_open(&fx, version, "");
        XT_CHECK_INT(fx.calls->connect(fx.ctx, 0, &handle, &state, &comm), xcclInvalidArgument);
        XT_CHECK(state == NULL);
        XT_CHECK_HAS(text(&fx), "not a handle of mine");
        XT_CHECK_INT(fx.calls->connect(fx.ctx, 9, &handle, &state, &comm), xcclInvalidArgument);
        FX_OK(&fx, fx.calls->listen(fx.ctx, 0, &handle, &listener));
        FX_OK(&fx, fx.calls->closeListen(listener));
        while (rc == xcclSuccess && !comm && !xccl_limit_passed(&limit))
            rc = fx.calls->connect(fx.ctx, 0, &handle, &state, &comm);
        XT_CHECK_INT(rc, xcclRemoteError);
        XT_CHECK(state == NULL && comm == NULL);
        XT_CHECK_HAS(text(&fx), "cannot connect");
        fixture_close(&fx);
    }
}

static void thread_pair(int rank, int nranks, void *arg)
{
    static char memory[4][2][4096];
    struct fixture *fx = arg;
    struct pair pair;
    size_t got = 0;

    (void)nranks;
    pair_open_over(&pair, fx, memory[rank][0], memory[rank][1], 4096);
    for (int i = 0; i < 300; i++) {
        size_t bytes = (size_t)(i * 13) % 4096;

        wait_both(&pair, post_send(&pair, 0, bytes, 1), post_one(&pair, 0, 4096, 1), &got);
        XT_CHECK_INT(got, bytes);
    }
    pair_close(&pair);
}

XT_TEST(comms_of_one_instance_work_in_several_threads)
{
    for (int version = FIRST; version <= LAST; version += 3) {
        struct fixture fx;

        fixture_open(&fx, version, "");
        xt_threads_run(4, thread_pair, &fx);
        fixture_close(&fx);
    }
}

/* ---- plugins that talk nonsense ---- */

static int told_size;

static int test_tells(void *request, int *done, int *sizes)
{
    (void)request;
    *done = 1;
    sizes[0] = told_size;
    return 0;
}

static int isend_any(void *comm, void *data, size_t bytes, int tag, void *mem, void **request)
{
    (void)comm, (void)data, (void)bytes, (void)tag, (void)mem;
    *request = &told_size;
    return 0;
}

static int irecv_any(void *comm, int count, void **data, size_t *bytes, int *tags, void **mems,
                     void **request)
{
    (void)comm, (void)count, (void)data, (void)bytes, (void)tags, (void)mems;
    if (told_size != 1)
        *request = &told_size;
    return 0;
}

/* Between both ends of a plugin that tells no sizes, or those that were posted. */
XT_TEST(a_size_that_the_plugin_does_not_tell_is_unknown)
{
    for (int version = FIRST; version <= LAST; version++) {
        struct fixture fx;
        struct pair pair;
        size_t got = 0;

        xt_setenv("FX_NCCL_LIKE", "no-size");
        fixture_open(&fx, version, "");
        pair_open(&pair, &fx);
        wait_both(&pair, post_send(&pair, 0, 7, 9), post_one(&pair, 0, 100, 9), &got);
        XT_CHECK(got == XCCL_NET_SIZE_UNKNOWN);
        xt_setenv("FX_NCCL_LIKE", "posted-size");
        wait_both(&pair, post_send(&pair, 0, 7, 9), post_one(&pair, 0, 100, 9), &got);
        XT_CHECK_INT(got, 100);
        pair_close(&pair);
        fixture_close(&fx);
    }
}

XT_TEST(sizes_that_cannot_be_are_an_error_and_a_hint_left_alone_is_busy)
{
    static const int sizes[] = {-7, 11, 0x7fffffff, 10};
    const void *table[22];

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        xcclNetRequest_t request = NULL;
        void *data[1] = {recv_memory};
        const size_t room[1] = {10};
        const uint32_t tags[1] = {1};
        struct fixture fx;
        struct pair pair;
        size_t got = 0;
        int done = 0;

        xt_setenv("FX_NCCL_ADDR", "127.0.0.1");
        fixture_load(&fx, 9, "");
        memcpy(table, fx.source.table, 20 * sizeof(table[0]));
        table[10] = (const void *)isend_any;
        table[11] = (const void *)irecv_any;
        table[13] = (const void *)test_tells;
        fx.source.table = table;
        FX_OK(&fx, fixture_init(&fx));
        pair_open(&pair, &fx);
        told_size = 1;
        request = XCCL_NET_RECV_OPTIONAL;
        FX_OK(&fx, fx.calls->irecv(pair.recv, 1, data, room, tags, &pair.recv_mem, &request));
        XT_CHECK(request == NULL);
        told_size = sizes[i];
        FX_OK(&fx, fx.calls->irecv(pair.recv, 1, data, room, tags, &pair.recv_mem, &request));
        XT_CHECK_INT(fx.calls->test(request, &done, &got),
                     sizes[i] == 10 ? xcclSuccess : xcclInternalError);
        if (sizes[i] != 10)
            XT_CHECK_HAS(text(&fx), "a receive of 10 bytes was completed with a size of");
        /* What a send's test says of its size means nothing. */
        FX_OK(&fx, fx.calls->isend(pair.send, send_memory, 77, 1, pair.send_mem, &request));
        FX_OK(&fx, fx.calls->test(request, &done, &got));
        XT_CHECK_INT(got, 77);
        pair_close(&pair);
        fixture_close(&fx);
    }
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Joining, out-of-band all-gathers, and every way in which joining can fail: each must end in an
 * error on all ranks that names the culprit, well before the limit unless waiting is the point. */
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/inject.h"
#include "base/param.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/conn_int.h"
#include "bootstrap/message.h"
#include "root_guest.h"
#include "xt.h"

__attribute__((constructor)) static void sources(void)
{
    xt_set_error_source(xccl_error_text);
    xt_set_alloc_source(xccl_alloc_live);
}

static uint64_t limit_ms(void)
{
    return 20000;
}

static struct xccl_job job_make(void)
{
    struct xccl_job job;
    xcclUniqueId id;

    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xt_setenv("XCCL_COMM_ID", NULL);
    xccl_param_reset();
    XT_OK(xccl_unique_id_create(&id));
    XT_OK(xccl_job_init(&id, 1, 0, 2, &job)); /* with one id it is the same for all ranks */
    return job;
}

/* Ends a root that still waits for ranks: a communicator of one needs none. */
static void root_end(const struct xccl_job *job)
{
    struct xccl_limit limit = xccl_limit_ms(limit_ms(), NULL);
    struct xccl_bootstrap *boot;

    XT_OK(xccl_bootstrap_open(job, 0, 1, &limit, &boot));
    xccl_bootstrap_close(boot);
}

/* A port that was free a moment ago. */
static void free_addr(char text_out[XCCL_ADDR_TEXT_BYTES])
{
    struct xccl_addr addr, bound;
    int fd;

    XT_OK(xccl_addr_parse("127.0.0.1:1", 0, &addr));
    xccl_addr_set_port(&addr, 0);
    XT_OK(xccl_tcp_listen(&addr, &fd, &bound));
    xccl_addr_format(&bound, text_out);
    xccl_tcp_close(&fd);
}

/* For ranks in processes: rank 0 owns the root, so that no thread runs while the test forks. */
static struct xccl_job job_for_processes(void)
{
    struct xccl_job job = {.meeting_count = 1,
                           .comm_id = {5},
                           .secret = {6},
                           .own = {.root_count = 1, .owns_root = 1, .comm_id = {5}, .secret = {6}}};
    char text[XCCL_ADDR_TEXT_BYTES];

    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xt_setenv("XCCL_COMM_ID", NULL);
    xccl_param_reset();
    free_addr(text);
    XT_OK(xccl_addr_parse(text, 0, &job.own.roots[0]));
    return job;
}

static uint8_t pattern(int rank, size_t at)
{
    return (uint8_t)((size_t)rank * 31 + at * 7 + at / 253);
}

static void gather_check(struct xccl_bootstrap *boot, int rank, int nranks, size_t part_bytes)
{
    struct xccl_limit limit = xccl_limit_ms(limit_ms(), NULL);
    uint8_t *data = calloc((size_t)nranks, part_bytes ? part_bytes : 1);

    XT_CHECK(data != NULL);
    for (size_t i = 0; i < part_bytes; i++)
        data[(size_t)rank * part_bytes + i] = pattern(rank, i);
    XT_OK(xccl_bootstrap_allgather(boot, NULL, part_bytes ? data : NULL, part_bytes, &limit));
    for (int r = 0; r < nranks; r++) {
        for (size_t i = 0; i < part_bytes; i++) {
            if (data[(size_t)r * part_bytes + i] != pattern(r, i))
                XT_FAIL("rank %d: byte %zu of rank %d's part is wrong", rank, i, r);
        }
    }
    free(data);
}

/* A word around the ring, over the connections that the control plane will use. */
static void ring_check(struct xccl_conn *next, struct xccl_conn *prev, int rank, int nranks)
{
    struct xccl_limit limit = xccl_limit_ms(limit_ms(), NULL);
    uint32_t word = (uint32_t)rank, got = 0;
    uint16_t type = 0;
    size_t bytes = 0;

    XT_CHECK_INT(xccl_conn_hello(next)->rank, (rank + 1) % nranks);
    XT_CHECK_INT(xccl_conn_hello(prev)->rank, (rank + nranks - 1) % nranks);
    XT_OK(xccl_conn_send(next, 40, &word, sizeof(word), &limit));
    XT_OK(news_recv(prev, &type, &got, sizeof(got), &bytes, &limit));
    XT_CHECK_INT(type, 40);
    XT_CHECK_INT(bytes, sizeof(got));
    XT_CHECK_INT(got, (rank + nranks - 1) % nranks);
    XT_OK(xccl_conn_send(prev, 41, &word, sizeof(word), &limit));
    XT_OK(news_recv(next, &type, &got, sizeof(got), &bytes, &limit));
    XT_CHECK_INT(got, (rank + 1) % nranks);
}

static void join_and_gather(int rank, int nranks, void *arg)
{
    static const size_t sizes[] = {0, 1, 8, 100 << 10, 0, 3};
    struct xccl_limit limit = xccl_limit_ms(limit_ms(), NULL);
    struct xccl_conn *next, *prev;
    struct xccl_bootstrap *boot;

    XT_OK(xccl_bootstrap_open(arg, rank, nranks, &limit, &boot));
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        gather_check(boot, rank, nranks, sizes[i]);
    xccl_bootstrap_take_ring(boot, &next, &prev);
    XT_CHECK((next == NULL) == (nranks == 1) && (prev == NULL) == (nranks == 1));
    if (nranks > 1)
        ring_check(next, prev, rank, nranks);
    xccl_bootstrap_close(boot);
    xccl_conn_close(next);
    xccl_conn_close(prev);
}

static void threads_join(int nranks)
{
    struct xccl_job job = job_make();

    xt_threads_run(nranks, join_and_gather, &job);
}

XT_TEST(one_rank_needs_nobody)
{
    threads_join(1);
}
XT_TEST(threads_join_2)
{
    threads_join(2);
}
XT_TEST(threads_join_3)
{
    threads_join(3);
}
XT_TEST(threads_join_4)
{
    threads_join(4);
}
XT_TEST(threads_join_5)
{
    threads_join(5);
}
XT_TEST(threads_join_8)
{
    threads_join(8);
}
XT_TEST(threads_join_16)
{
    threads_join(16);
}

static void processes_join(int nranks)
{
    struct xccl_job job = job_for_processes();

    xt_mp_run(nranks, join_and_gather, &job);
}

XT_TEST(processes_join_2)
{
    processes_join(2);
}
XT_TEST(processes_join_5)
{
    processes_join(5);
}
XT_TEST(processes_join_16)
{
    processes_join(16);
}

static void join_parts_of_1_mib(int rank, int nranks, void *arg)
{
    struct xccl_limit limit = xccl_limit_ms(limit_ms(), NULL);
    struct xccl_bootstrap *boot;

    XT_OK(xccl_bootstrap_open(arg, rank, nranks, &limit, &boot));
    gather_check(boot, rank, nranks, 1 << 20);
    XT_CHECK_RC(xccl_bootstrap_allgather(boot, NULL, NULL, (1 << 20) + 1, &limit),
                xcclInvalidArgument);
    xccl_bootstrap_close(boot);
}

XT_TEST(the_largest_parts_do_not_deadlock)
{
    struct xccl_job job = job_make();

    xt_threads_run(5, join_parts_of_1_mib, &job);
}

static void join_by_comm_id(int rank, int nranks, void *arg)
{
    struct xccl_limit limit = xccl_limit_ms(limit_ms(), NULL);
    struct xccl_job job;
    xcclUniqueId id;

    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xt_setenv("XCCL_COMM_ID", arg);
    xt_setenv("XCCL_JOB_KEY", "swordfish");
    xccl_param_reset();
    for (int i = 0; i < 3; i++) {
        struct xccl_bootstrap *boot;

        XT_OK(xccl_unique_id_create(&id));
        XT_OK(xccl_job_init(&id, 1, rank, nranks, &job));
        XT_OK(xccl_bootstrap_open(&job, rank, nranks, &limit, &boot));
        gather_check(boot, rank, nranks, 8);
        xccl_bootstrap_close(boot);
    }
}

XT_TEST(processes_meet_at_comm_id_again_and_again)
{
    char text[XCCL_ADDR_TEXT_BYTES];

    free_addr(text);
    xt_mp_run(4, join_by_comm_id, text);
}

static int key_warnings;
static void count_key_warnings(enum xccl_log_level level, const char *line)
{
    key_warnings += level == XCCL_LOG_WARN && strstr(line, "job key") != NULL;
}

static void join_with_a_weak_key(int rank, int nranks, void *arg)
{
    struct xccl_limit limit = xccl_limit_ms(limit_ms(), NULL);

    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xt_setenv("XCCL_COMM_ID", arg);
    xccl_param_reset();
    xccl_log_set_sink(count_key_warnings);
    for (int i = 0; i < 2; i++) {
        struct xccl_bootstrap *boot;
        struct xccl_job job;
        xcclUniqueId id;

        XT_OK(xccl_unique_id_create(&id));
        XT_OK(xccl_job_init(&id, 1, rank, nranks, &job));
        XT_OK(xccl_bootstrap_open(&job, rank, nranks, &limit, &boot));
        xccl_bootstrap_close(boot);
    }
    xccl_log_set_sink(NULL);
    XT_CHECK_INT(key_warnings, rank == 0);
}

XT_TEST(of_a_job_with_a_weak_key_rank_0_warns_once)
{
    static const char *const keys[] = {NULL, "swordfish"};

    for (int i = 0; i < 2; i++) {
        char text[XCCL_ADDR_TEXT_BYTES];

        free_addr(text);
        xt_setenv("XCCL_JOB_KEY", keys[i]);
        xt_mp_run(3, join_with_a_weak_key, text);
    }
}

struct twin_case {
    xcclUniqueId ids[3];
};

/* Rank 0 of each communicator owns the root; all of them are in this process at the same time. */
static void join_one_of_three(int thread, int threads, void *arg)
{
    struct twin_case *twins = arg;
    struct xccl_limit limit = xccl_limit_ms(limit_ms(), NULL);
    struct xccl_bootstrap *boot;
    struct xccl_job job;
    int rank = thread / 3, nranks = threads / 3;

    XT_OK(xccl_job_init(&twins->ids[thread % 3], 1, rank, nranks, &job));
    XT_OK(xccl_bootstrap_open(&job, rank, nranks, &limit, &boot));
    gather_check(boot, rank, nranks, 8);
    xccl_bootstrap_close(boot);
}

XT_TEST(several_communicators_of_a_process_share_the_port_of_comm_id)
{
    struct twin_case twins;
    char text[XCCL_ADDR_TEXT_BYTES];

    free_addr(text);
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xt_setenv("XCCL_COMM_ID", text);
    xt_setenv("XCCL_JOB_KEY", "swordfish");
    xccl_param_reset();
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 3; i++)
            XT_OK(xccl_unique_id_create(&twins.ids[i]));
        xt_threads_run(9, join_one_of_three, &twins);
    }
}

struct launcher_case {
    struct xccl_addr addr;
    uint8_t secret[32];
};

static void join_at_launcher(int rank, int nranks, void *arg)
{
    const struct launcher_case *launcher = arg;
    struct xccl_job job = {.meeting_count = 1, .own = {.roots = {launcher->addr}, .root_count = 1}};

    memcpy(job.secret, launcher->secret, sizeof(job.secret));
    memcpy(job.own.secret, launcher->secret, sizeof(job.own.secret));
    /* Two communicators of four ranks each, of one launcher, at the same time. */
    job.comm_id[0] = job.own.comm_id[0] = (uint8_t)(rank / (nranks / 2));
    join_and_gather(rank % (nranks / 2), nranks / 2, &job);
}

XT_TEST(one_root_serves_several_communicators)
{
    struct launcher_case launcher = {0};
    struct xccl_root *root;

    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    XT_OK(xccl_addr_parse("127.0.0.1:1", 0, &launcher.addr));
    xccl_addr_set_port(&launcher.addr, 0);
    xccl_job_key_secret("swordfish", launcher.secret);
    XT_OK(xccl_root_create(&launcher.addr, launcher.secret, &root));
    xt_threads_run(8, join_at_launcher, &launcher);
    xccl_root_destroy(root);
}

/* Ranks that must fail, and what each error must say. */
/* Rank 1 gives up; the others wait for something else and hear of it, its neighbours from itself
 * and the rest from them. */
static void give_up_or_listen(int rank, int nranks, void *arg)
{
    struct xccl_limit limit = xccl_limit_ms(limit_ms(), NULL);
    struct xccl_bootstrap *boot;
    xcclResult_t rc;

    XT_OK(xccl_bootstrap_open(arg, rank, nranks, &limit, &boot));
    rc = xccl_bootstrap_barrier(boot, NULL, &limit); /* a slow rank may hear of it in here */
    if (rank == 1) {
        XT_OK(rc);
        xccl_error_set_text("out of luck");
        xccl_bootstrap_fail(boot, xcclSystemError);
    }
    while (rank != 1 && !rc && !xccl_limit_passed(&limit)) {
        int done;

        rc = xccl_bootstrap_test(boot, &done);
        (void)poll(NULL, 0, 1);
    }
    if (rank != 1)
        XT_CHECK_INT(rc, xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(), "out of luck");
    if (rank != 1)
        XT_CHECK_HAS(xccl_error_text(), "rank 1 on host");
    xccl_bootstrap_close(boot);
}

struct bad_case {
    struct xccl_job job;
    int nranks[8], rank[8]; /* as each thread claims */
    uint64_t timeout_ms;
    xcclResult_t rc;
    const char *says[3];
};

static void join_badly(int thread, int threads, void *arg)
{
    const struct bad_case *bad = arg;
    struct xccl_limit limit = xccl_limit_ms(bad->timeout_ms ? bad->timeout_ms : limit_ms(), NULL);
    struct xccl_bootstrap *boot = NULL;
    uint64_t start_ns = xccl_clock_ns();

    (void)threads;
    XT_CHECK_RC(
        xccl_bootstrap_open(&bad->job, bad->rank[thread], bad->nranks[thread], &limit, &boot),
        bad->rc);
    XT_CHECK(boot == NULL);
    for (int i = 0; i < 3 && bad->says[i]; i++)
        XT_CHECK_HAS(xccl_error_text(), bad->says[i]);
    XT_CHECK(xccl_clock_ns() - start_ns < 15 * XCCL_NS_PER_S);
}

XT_TEST(a_wrong_number_of_ranks_is_named_on_all_ranks)
{
    struct bad_case bad = {.nranks = {4, 4, 8, 4},
                           .rank = {0, 1, 2, 3},
                           .rc = xcclInvalidUsage,
                           .says = {"says 8", "says 4", "give all the same number"}};

    xt_allow_leaks("the root waits for 8 ranks when the one that says 8 comes first");
    bad.job = job_make();
    xt_threads_run(4, join_badly, &bad);
}

XT_TEST(a_rank_that_is_there_twice_is_named_on_all_ranks)
{
    struct bad_case bad = {.nranks = {3, 3, 3},
                           .rank = {0, 1, 1},
                           .rc = xcclInvalidUsage,
                           .says = {"rank 1 is there twice"}};

    bad.job = job_make();
    xt_threads_run(3, join_badly, &bad);
}

XT_TEST(missing_ranks_are_listed_when_time_is_up)
{
    struct bad_case bad = {.nranks = {8, 8, 8, 8},
                           .rank = {0, 1, 3, 4},
                           .timeout_ms = 1000,
                           .rc = xcclTimeout,
                           .says = {"missing: ranks 2, 5..7 of 8"}};

    bad.job = job_make();
    xt_threads_run(4, join_badly, &bad);
}

XT_TEST(arguments_out_of_range_are_refused_at_once)
{
    struct xccl_limit limit = xccl_limit_ms(1000, NULL);
    struct xccl_bootstrap *boot;
    struct xccl_job job = {.meeting_count = 1, .own.root_count = 1};

    XT_CHECK_RC(xccl_bootstrap_open(&job, 4, 4, &limit, &boot), xcclInvalidArgument);
    XT_CHECK_RC(xccl_bootstrap_open(&job, -1, 4, &limit, &boot), xcclInvalidArgument);
    XT_CHECK_RC(xccl_bootstrap_open(&job, 0, 0, &limit, &boot), xcclInvalidArgument);
}

XT_TEST(a_rank_that_cannot_join_is_named_to_the_others_at_once)
{
    struct bad_case bad = {.nranks = {3, 3},
                           .rank = {0, 1},
                           .rc = xcclRemoteError,
                           .says = {"rank 2 at", "cannot join: out of luck"}};
    uint64_t start_ns = xccl_clock_ns();

    bad.job = job_make();
    xccl_error_set_text("out of luck");
    xccl_bootstrap_decline(&bad.job, 2, 3, xcclSystemError);
    XT_CHECK_TEXT(xccl_error_text(), "out of luck");
    xccl_bootstrap_decline(&bad.job, 2, 3, xcclSystemError); /* counted once */
    xt_threads_run(2, join_badly, &bad);
    XT_CHECK(xccl_clock_ns() - start_ns < 3 * XCCL_NS_PER_S);
}

XT_TEST(a_rank_that_gives_up_is_heard_between_all_gathers)
{
    struct xccl_job job = job_make();

    xt_threads_run(4, give_up_or_listen, &job);
}

/* What a proven but broken rank may send costs only the session. */
XT_TEST(the_root_survives_proven_nonsense)
{
    struct xccl_limit limit = xccl_limit_ms(limit_ms(), NULL);
    struct xccl_job job = job_make();
    uint64_t seed = xt_seed();

    for (int i = 0; i < 50; i++) {
        /* Not one of the two: what may be read as its refusal to join would be believed. */
        struct xccl_conn *conn = root_conn(&job, (uint32_t)i + 2, 2);
        uint8_t body[200];
        size_t bytes = xt_random(&seed) % sizeof(body);
        uint16_t type = (uint16_t)(xt_random(&seed) % 24 + 2), got_type;

        for (size_t at = 0; at < bytes; at++)
            body[at] = (uint8_t)xt_random(&seed);
        XT_OK(xccl_conn_send(conn, type, body, bytes, &limit));
        XT_CHECK_RC(news_recv(conn, &got_type, body, sizeof(body), &bytes, &limit),
                    xcclRemoteError);
        xccl_conn_close(conn);
    }
    xt_threads_run(2, join_and_gather, &job);
}

XT_TEST(a_wrong_key_is_refused_with_the_reason)
{
    struct xccl_limit limit = xccl_limit_ms(limit_ms(), NULL);
    struct xccl_job job = job_make(), wrong = job;
    struct xccl_bootstrap *boot;

    wrong.own.secret[0] ^= 1;
    XT_CHECK_RC(xccl_bootstrap_open(&wrong, 1, 2, &limit, &boot), xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(), "key or communicator differs");
    wrong = job;
    wrong.own.comm_id[0] ^= 1;
    XT_CHECK_RC(xccl_bootstrap_open(&wrong, 1, 2, &limit, &boot), xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(), "key or communicator differs");
    xt_threads_run(2, join_and_gather, &job);
}

struct abort_case {
    struct xccl_job job;
    _Atomic int flag;
};

static void join_or_abort(int rank, int nranks, void *arg)
{
    struct abort_case *test = arg;
    struct xccl_limit limit = xccl_limit_ms(limit_ms(), &test->flag);
    struct xccl_bootstrap *boot;

    if (rank == nranks - 1) {
        /* Once somebody waits at the root. */
        struct xccl_conn *conn = root_conn(&test->job, (uint32_t)rank + 1, (uint32_t)nranks + 1);

        xccl_conn_close(conn);
        /* Release: pairs with the acquire or relaxed load of whoever polls the limit. */
        atomic_store_explicit(&test->flag, 1, memory_order_release);
        return;
    }
    XT_CHECK(xccl_bootstrap_open(&test->job, rank, nranks, &limit, &boot) != xcclSuccess);
    XT_CHECK_HAS(xccl_error_text(), "abort");
}

XT_TEST(an_abort_ends_joining)
{
    struct abort_case test = {0};

    test.job = job_make();
    xt_threads_run(3, join_or_abort, &test);
    root_end(&test.job);
}

static void join_with_dead_rank_2(int rank, int nranks, void *arg)
{
    struct xccl_limit limit = xccl_limit_ms(limit_ms(), NULL);
    struct xccl_bootstrap *boot;
    uint64_t start_ns = xccl_clock_ns();

    if (rank == 2) {
        struct xccl_conn *conn = root_conn(arg, 2, (uint32_t)nranks);

        root_report(conn, arg);
        XT_CHECK_INT(shutdown(xccl_conn_fd(conn), SHUT_RDWR), 0); /* as a kill would, no FINAL */
        xccl_conn_close(conn);
        return;
    }
    XT_CHECK(xccl_bootstrap_open(arg, rank, nranks, &limit, &boot) != xcclSuccess);
    XT_CHECK_HAS(xccl_error_text(), "rank 2");
    XT_CHECK_HAS(xccl_error_text(), "127.0.0.1");
    XT_CHECK(xccl_clock_ns() - start_ns < 10 * XCCL_NS_PER_S);
}

/* Runs ranks of which rank 2 kills itself; the others must all have passed their checks. */
static void run_with_dying_rank_2(int nranks, xt_rank_fn *fn, struct xccl_job *job)
{
    struct xt_mp *mp = xt_mp_start(nranks, fn, job);
    int statuses[16];

    XT_CHECK(nranks <= 16);
    xt_mp_wait(mp, statuses);
    for (int rank = 0; rank < nranks; rank++) {
        if (rank != 2 && statuses[rank] != 0)
            XT_FAIL("rank %d ended with status %#x", rank, statuses[rank]);
    }
}

XT_TEST(a_rank_that_dies_while_joining_is_named_on_all_ranks)
{
    struct xccl_job job = job_make();

    xt_threads_run(5, join_with_dead_rank_2, &job);
}

static void gather_then_die(int rank, int nranks, void *arg)
{
    struct xccl_limit limit = xccl_limit_ms(limit_ms(), NULL);
    struct xccl_bootstrap *boot;
    uint64_t start_ns = xccl_clock_ns();
    uint8_t data[16] = {0};
    xcclResult_t rc;

    rc = xccl_bootstrap_open(arg, rank, nranks, &limit, &boot);
    /* Rank 2 is done and gone, perhaps, before a slow rank has joined; later its part is missing.
     */
    if (!rc) {
        rc = xccl_bootstrap_allgather(boot, NULL, data, 1, &limit);
        if (rank == 2)
            raise(SIGKILL);
        if (!rc)
            rc = xccl_bootstrap_allgather(boot, NULL, data, 1, &limit);
        XT_CHECK(rc != xcclSuccess);
        XT_CHECK_HAS(xccl_error_text(), "rank 2");
        XT_CHECK_INT(xccl_bootstrap_allgather(boot, NULL, data, 1, &limit), rc); /* for good */
        xccl_bootstrap_close(boot);
    } else {
        XT_CHECK_HAS(xccl_error_text(), "rank 2");
    }
    XT_CHECK(xccl_clock_ns() - start_ns < 10 * XCCL_NS_PER_S);
}

XT_TEST(a_rank_that_dies_later_is_named_by_every_all_gather)
{
    struct xccl_job job = job_for_processes();

    run_with_dying_rank_2(7, gather_then_die, &job);
}

static void gather_disagreeing(int rank, int nranks, void *arg)
{
    struct xccl_limit limit = xccl_limit_ms(limit_ms(), NULL);
    struct xccl_bootstrap *boot;
    uint8_t data[64] = {0};

    /* A slow rank may hear of it while it is still joining. */
    if (xccl_bootstrap_open(arg, rank, nranks, &limit, &boot) == xcclSuccess) {
        XT_CHECK(xccl_bootstrap_allgather(boot, NULL, data, rank == 1 ? 8 : 4, &limit) !=
                 xcclSuccess);
        xccl_bootstrap_close(boot);
    }
    XT_CHECK_HAS(xccl_error_text(), "out of band, but rank");
}

XT_TEST(parts_of_different_size_are_an_error_on_all_ranks)
{
    struct xccl_job job = job_make();

    xt_threads_run(4, gather_disagreeing, &job);
}

static void derive(int rank, int nranks, void *arg)
{
    struct xccl_limit limit = xccl_limit_ms(limit_ms(), NULL);
    struct xccl_bootstrap *boot;
    uint8_t keys[64], other[32];

    XT_OK(xccl_bootstrap_open(arg, rank, nranks, &limit, &boot));
    xccl_bootstrap_derive_key(boot, "shm", keys + rank * 32);
    xccl_bootstrap_derive_key(boot, "net", other);
    XT_CHECK(memcmp(keys + rank * 32, other, 32) != 0);
    XT_OK(xccl_bootstrap_allgather(boot, NULL, keys, 32, &limit));
    XT_CHECK(memcmp(keys, keys + 32, 32) == 0);
    XT_CHECK(memcmp(keys, ((struct xccl_job *)arg)->secret, 32) != 0);
    xccl_bootstrap_close(boot);
}

XT_TEST(derived_keys_agree_and_differ_by_purpose)
{
    struct xccl_job job = job_make();

    xt_threads_run(2, derive, &job);
}

/* Joins of one thread's rank against a partner thread, with each chance to fail failing in turn. */
static void join_injected(int rank, int nranks, void *arg)
{
    struct xccl_limit limit = xccl_limit_ms(400, NULL);
    struct xccl_bootstrap *boot;

    if (xccl_bootstrap_open(arg, rank, nranks, &limit, &boot) == xcclSuccess)
        xccl_bootstrap_close(boot);
}

XT_TEST_DEADLINE(each_failing_call_ends_in_an_error_and_leaks_nothing, 120)
{
    uint64_t chances = 1, live = 0;

    for (uint64_t k = 1; k <= chances && k <= 400; k++) {
        struct xccl_limit limit = xccl_limit_ms(limit_ms(), NULL);
        struct xccl_job job = job_make();

        if (k == 1) {
            xccl_inject_arm(UINT64_MAX); /* counts, and never comes to it */
            xt_threads_run(2, join_injected, &job);
            chances = xccl_inject_chances();
            XT_CHECK(chances > 5);
            live = xccl_alloc_live();
            continue;
        }
        xccl_inject_arm(k - 1);
        xt_threads_run(2, join_injected, &job);
        xccl_inject_arm(0);
        root_end(&job);
        while (xccl_alloc_live() > live && !xccl_limit_passed(&limit))
            usleep(500); /* the service thread may be ending */
        XT_CHECK(xccl_alloc_live() <= live);
    }
}

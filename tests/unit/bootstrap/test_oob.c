/* SPDX-License-Identifier: BSD-3-Clause */
/* What joined ranks do out of band: messages, collectives over all and over some, splits, and how
 * each of them fails. Ranks are threads, so that sanitizers see both ends. */
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/inject.h"
#include "base/param.h"
#include "base/wire.h"
#include "bootstrap/bootstrap_int.h"
#include "boot_world.h"
#include "xt.h"

static uint8_t pattern(int rank, size_t at)
{
    return (uint8_t)((size_t)rank * 31 + at * 7 + at / 253);
}

static void fill(uint8_t *data, int rank, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        data[i] = pattern(rank, i);
}

static void check(const uint8_t *data, int rank, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] != pattern(rank, i))
            XT_FAIL("byte %zu of what rank %d gave is wrong", i, rank);
    }
}

/* All-gather over a set of which this rank is a member. */
static void gather(struct xccl_bootstrap *boot, const struct xccl_boot_set *set, int rank,
                   int nranks, size_t part_bytes)
{
    struct xccl_limit limit = limit_make();
    int count = set ? set->count : nranks, self = set ? set->self : rank;
    uint8_t *data = calloc((size_t)count, part_bytes + 1);

    XT_CHECK(data != NULL);
    fill(data + (size_t)self * part_bytes, rank, part_bytes);
    XT_OK(xccl_bootstrap_allgather(boot, set, data, part_bytes, &limit));
    for (int i = 0; i < count; i++)
        check(data + (size_t)i * part_bytes, set ? set->ranks[i] : i, part_bytes);
    free(data);
}

static void gather_all_sizes(struct xccl_bootstrap *boot, int rank, int nranks)
{
    static const size_t sizes[] = {1, 8, 0, 1000, 64 << 10, 100 << 10, 3};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        gather(boot, NULL, rank, nranks, sizes[i]);
}

XT_TEST(all_gathers_of_every_size_by_steps_and_by_ring)
{
    static const int counts[] = {1, 2, 3, 4, 5, 7, 8, 13};

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        run(counts[i], gather_all_sizes);
}

static _Atomic int arrived;

static void barriers(struct xccl_bootstrap *boot, int rank, int nranks)
{
    struct xccl_limit limit = limit_make();

    (void)rank;
    for (int i = 1; i <= 20; i++) {
        /* Relaxed: the barrier between orders it. */
        atomic_fetch_add_explicit(&arrived, 1, memory_order_relaxed);
        XT_OK(xccl_bootstrap_barrier(boot, NULL, &limit));
        XT_CHECK(atomic_load_explicit(&arrived, memory_order_relaxed) >= i * nranks);
    }
}

XT_TEST(nobody_leaves_a_barrier_before_all_have_come)
{
    run(6, barriers);
}

static void broadcasts(struct xccl_bootstrap *boot, int rank, int nranks)
{
    static const size_t sizes[] = {0, 5, 4096, 300 << 10};
    uint8_t *data = malloc(300 << 10);
    struct xccl_limit limit = limit_make();

    XT_CHECK(data != NULL);
    for (int root = 0; root < nranks; root++) {
        size_t bytes = sizes[root % 4];

        memset(data, 0, bytes);
        if (rank == root)
            fill(data, root, bytes);
        XT_OK(xccl_bootstrap_broadcast(boot, NULL, root, data, bytes, &limit));
        check(data, root, bytes);
    }
    free(data);
}

XT_TEST(broadcasts_come_from_every_root)
{
    run(1, broadcasts);
    run(2, broadcasts);
    run(7, broadcasts);
    run(8, broadcasts);
}

/* Every rank sends to every rank, itself included; receivers ask in another order, so that most
 * messages come early. */
static void everybody_to_everybody(struct xccl_bootstrap *boot, int rank, int nranks)
{
    struct xccl_limit limit = limit_make();
    uint8_t data[3000];

    for (uint32_t tag = 0; tag < 3; tag++) {
        for (int to = 0; to < nranks; to++) {
            fill(data, rank + (int)tag, 1000 * tag + 1);
            XT_OK(xccl_bootstrap_send(boot, to, tag, data, 1000 * tag + 1, &limit));
        }
    }
    for (uint32_t tag = 3; tag-- > 0;) {
        for (int from = nranks; from-- > 0;) {
            memset(data, 0, sizeof(data));
            XT_OK(xccl_bootstrap_recv(boot, from, tag, data, 1000 * tag + 1, &limit));
            check(data, from + (int)tag, 1000 * tag + 1);
        }
    }
    XT_OK(xccl_bootstrap_barrier(boot, NULL, &limit));
}

/* Rank 1 looks without asking, until both messages are there. */
static void look(struct xccl_bootstrap *boot, int rank, int nranks)
{
    struct xccl_limit limit = limit_make();
    uint8_t byte = 7;

    (void)nranks;
    if (rank == 0) {
        XT_OK(xccl_bootstrap_send(boot, 1, 5, &byte, 1, &limit));
        XT_OK(xccl_bootstrap_send(boot, 1, 6, &byte, 1, &limit));
        return;
    }
    while (!xccl_bootstrap_has_mail(boot, 0, 6))
        sched_yield(); /* bounded by the test's deadline */
    XT_CHECK(xccl_bootstrap_has_mail(boot, 0, 5)); /* it came before */
    XT_CHECK(!xccl_bootstrap_has_mail(boot, 0, 4) && !xccl_bootstrap_has_mail(boot, 1, 5));
    XT_OK(xccl_bootstrap_recv(boot, 0, 5, &byte, 1, &limit));
    XT_CHECK(!xccl_bootstrap_has_mail(boot, 0, 5) && xccl_bootstrap_has_mail(boot, 0, 6));
    XT_OK(xccl_bootstrap_recv(boot, 0, 6, &byte, 1, &limit));
}

XT_TEST(a_message_that_has_come_is_seen_before_it_is_asked_for)
{
    run(2, look);
}

XT_TEST(early_messages_are_kept_by_sender_and_tag)
{
    run(1, everybody_to_everybody);
    run(5, everybody_to_everybody);
}

#define BIG_BYTES (24u << 20)

/* More than a rank keeps for messages that come early: the sender has to wait. */
static void big_messages(struct xccl_bootstrap *boot, int rank, int nranks)
{
    struct xccl_limit limit = limit_make();
    uint8_t *data = malloc(BIG_BYTES), small = 0;

    (void)nranks;
    XT_CHECK(data != NULL);
    if (rank == 0) {
        fill(data, 0, BIG_BYTES);
        small = 7;
        for (int i = 0; i < 3; i++)
            XT_OK(xccl_bootstrap_send(boot, 1, 5, data, BIG_BYTES, &limit));
        XT_OK(xccl_bootstrap_send(boot, 1, 6, &small, 1, &limit));
    } else {
        XT_OK(xccl_bootstrap_recv(boot, 2, 1, &small, 1, &limit));
        for (int i = 0; i < 3; i++) {
            memset(data, 0, BIG_BYTES);
            XT_OK(xccl_bootstrap_recv(boot, 0, 5, data, BIG_BYTES, &limit));
            check(data, 0, BIG_BYTES);
        }
        XT_OK(xccl_bootstrap_recv(boot, 0, 6, &small, 1, &limit));
        XT_CHECK_INT(small, 7);
    }
    free(data);
}

static void big_messages_or_wake(struct xccl_bootstrap *boot, int rank, int nranks)
{
    struct xccl_limit limit = limit_make();
    uint8_t one = 1;

    if (rank == 2)
        XT_OK(xccl_bootstrap_send(boot, 1, 1, &one, 1, &limit));
    else
        big_messages(boot, rank, nranks);
    XT_OK(xccl_bootstrap_barrier(boot, NULL, &limit));
}

XT_TEST(what_has_no_room_waits_in_the_socket)
{
    run(3, big_messages_or_wake);
}

/* The message that is waited for stands behind larger ones that nobody wants yet. */
static void behind_a_big_one(struct xccl_bootstrap *boot, int rank, int nranks)
{
    struct xccl_limit limit = limit_make();
    uint8_t *data = calloc(1, BIG_BYTES), small = 9;

    (void)nranks;
    XT_CHECK(data != NULL);
    if (rank == 0) {
        fill(data, 0, BIG_BYTES);
        XT_OK(xccl_bootstrap_send(boot, 1, 1, data, BIG_BYTES, &limit));
        XT_OK(xccl_bootstrap_send(boot, 1, 2, data, BIG_BYTES, &limit));
        XT_OK(xccl_bootstrap_send(boot, 1, 3, &small, 1, &limit));
    } else {
        small = 0;
        XT_OK(xccl_bootstrap_recv(boot, 0, 3, &small, 1, &limit));
        XT_CHECK_INT(small, 9);
        XT_OK(xccl_bootstrap_recv(boot, 0, 2, data, BIG_BYTES, &limit));
        check(data, 0, BIG_BYTES);
        XT_OK(xccl_bootstrap_recv(boot, 0, 1, data, BIG_BYTES, &limit));
        check(data, 0, BIG_BYTES);
    }
    free(data);
}

XT_TEST(a_message_behind_large_early_ones_is_reached)
{
    run(2, behind_a_big_one);
}

/* Odd and even ranks, at the same time, in descending order. */
static void over_some(struct xccl_bootstrap *boot, int rank, int nranks)
{
    struct xccl_limit limit = limit_make();
    int ranks[16], count = 0;
    struct xccl_boot_set set = {.ranks = ranks, .tag = (uint32_t)(rank % 2) + 1};
    uint8_t data[100];

    for (int r = nranks; r-- > 0;) {
        if (r % 2 != rank % 2)
            continue;
        if (r == rank)
            set.self = count;
        ranks[count++] = r;
    }
    set.count = count;
    gather(boot, &set, rank, nranks, 8);
    gather(boot, &set, rank, nranks, 70 << 10);
    XT_OK(xccl_bootstrap_barrier(boot, &set, &limit));
    for (int root = 0; root < count; root++) {
        memset(data, 0, sizeof(data));
        if (root == set.self)
            fill(data, rank, sizeof(data));
        XT_OK(xccl_bootstrap_broadcast(boot, &set, root, data, sizeof(data), &limit));
        check(data, ranks[root], sizeof(data));
    }
    gather(boot, NULL, rank, nranks, 8);
    set.self = (set.self + 1) % count;
    if (count > 1)
        XT_CHECK_RC(xccl_bootstrap_barrier(boot, &set, &limit), xcclInvalidArgument);
}

XT_TEST(some_of_the_ranks_do_it_alone)
{
    run(2, over_some);
    run(9, over_some);
}

/* Three colors, one of them none; the order turned round by the key; then a split of the split. */
static void splits(struct xccl_bootstrap *boot, int rank, int nranks)
{
    struct xccl_limit limit = limit_make();
    int color = rank % 3 == 2 ? -1 : rank % 3, last = (nranks - 1 - color) / 3;
    struct xccl_bootstrap *child = NULL, *grandchild = NULL;
    uint8_t key[32], parents_key[32];

    XT_OK(xccl_bootstrap_split(boot, color, -rank, &limit, &child));
    XT_CHECK((child == NULL) == (color == -1));
    if (child) {
        int self = xccl_bootstrap_rank(child), count = xccl_bootstrap_nranks(child);

        XT_CHECK_INT(count, last + 1);
        XT_CHECK_INT(self, last - rank / 3);
        gather_all_sizes(child, self, count);
        xccl_bootstrap_derive_key(child, "a", key);
        xccl_bootstrap_derive_key(boot, "a", parents_key);
        XT_CHECK(memcmp(key, parents_key, 32) != 0);
        XT_OK(xccl_bootstrap_split(child, 5, 0, &limit, &grandchild));
        XT_CHECK_INT(xccl_bootstrap_rank(grandchild), self);
        barriers(grandchild, self, 0);
        xccl_bootstrap_close(child);
    }
    gather(boot, NULL, rank, nranks, 8);
    if (grandchild)
        gather(grandchild, NULL, xccl_bootstrap_rank(grandchild), last + 1, 8);
    xccl_bootstrap_close(grandchild);
}

XT_TEST(splits_need_no_root)
{
    run(1, splits);
    run(3, splits);
    run(10, splits);
}

static void gather_some(struct xccl_bootstrap *boot, int rank, int nranks)
{
    gather(boot, NULL, rank, nranks, 8);
}

XT_TEST(several_roots_share_the_ranks)
{
    for (int nranks = 1; nranks <= 9; nranks += 2) {
        for (int ids = 1; ids <= nranks; ids += 2)
            run_with_ids(nranks, ids, gather_some);
    }
    run_with_ids(16, 16, gather_some);
}

static void join_with_other_ids(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    struct xccl_limit limit = limit_make();
    struct xccl_bootstrap *boot;
    xcclUniqueId ids[IDS_MAX];
    struct xccl_job job;

    memcpy(ids, world->ids, sizeof(ids));
    if (rank == nranks - 1) { /* its own root is the same; the one before is another */
        memcpy(&ids[0], &world->ids[1], sizeof(ids[0]));
    }
    XT_OK(xccl_job_init(ids, 3, rank, nranks, &job));
    XT_CHECK(xccl_bootstrap_open(&job, rank, nranks, &limit, &boot) != xcclSuccess);
}

static void join_with_fewer_ids(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    struct xccl_limit limit = limit_make();
    struct xccl_bootstrap *boot;
    struct xccl_job job;

    /* All of them report to the first root alone or to the first of two. */
    XT_OK(xccl_job_init(world->ids, rank == 1 ? 2 : 1, rank == 1 ? 0 : rank, nranks, &job));
    XT_CHECK(xccl_bootstrap_open(&job, rank == 1 ? 0 : rank, nranks, &limit, &boot) != xcclSuccess);
}

XT_TEST(ranks_with_different_ids_are_told_so)
{
    struct world world = {.id_count = 3};

    xt_allow_leaks("roots that not all ranks come to end when their time is up");
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xt_setenv("XCCL_TIMEOUT_INIT_S", "5");
    xccl_param_reset();
    for (int i = 0; i < 3; i++)
        XT_OK(xccl_unique_id_create(&world.ids[i]));
    xt_threads_run(6, join_with_other_ids, &world);
    for (int i = 0; i < 3; i++)
        XT_OK(xccl_unique_id_create(&world.ids[i]));
    xt_threads_run(3, join_with_fewer_ids, &world);
}

static void operations_out_of_place(struct xccl_bootstrap *boot, int rank, int nranks)
{
    struct xccl_limit limit = limit_make();
    uint8_t byte = 0;
    int done;

    if (rank == 1) {
        /* Rank 0 waits for this barrier, and may give up before this rank has seen its end. */
        if (xccl_bootstrap_barrier(boot, NULL, &limit) == xcclSuccess)
            XT_CHECK_RC(xccl_bootstrap_recv(boot, 0, 4, &byte, 1, &limit), xcclRemoteError);
        XT_CHECK_HAS(xccl_error_text(), "rank 0 on host");
        return;
    }
    XT_OK(xccl_bootstrap_barrier(boot, NULL, &limit));
    XT_CHECK_RC(xccl_bootstrap_send(boot, nranks, 0, &byte, 1, &limit), xcclInvalidArgument);
    XT_CHECK_RC(xccl_bootstrap_recv(boot, -1, 0, &byte, 1, &limit), xcclInvalidArgument);
    XT_CHECK_RC(xccl_bootstrap_broadcast(boot, NULL, nranks, &byte, 1, &limit),
                xcclInvalidArgument);
    XT_CHECK_RC(xccl_bootstrap_allgather(boot, NULL, &byte, XCCL_BOOT_PART_MAX + 1, &limit),
                xcclInvalidArgument);
    XT_OK(xccl_bootstrap_recv_start(boot, 1, 4, &byte, 1, &limit));
    XT_CHECK_RC(xccl_bootstrap_barrier(boot, NULL, &limit), xcclInvalidUsage);
    XT_OK(xccl_bootstrap_test(boot, &done)); /* the refusal has harmed nobody */
    XT_CHECK(!done);
    xccl_bootstrap_abort(boot);
    XT_CHECK_RC(xccl_bootstrap_wait(boot), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "aborted");
    XT_CHECK(xccl_bootstrap_barrier(boot, NULL, &limit) != xcclSuccess);
}

XT_TEST(wrong_use_is_refused_and_harms_nobody)
{
    run(2, operations_out_of_place);
}

static void wait_too_long(struct xccl_bootstrap *boot, int rank, int nranks)
{
    struct xccl_limit limit = xccl_limit_ms(300, NULL);
    uint8_t byte;

    (void)nranks;
    if (rank == 1) {
        struct xccl_limit patient = limit_make();

        XT_CHECK(xccl_bootstrap_recv(boot, 0, 1, &byte, 1, &patient) != xcclSuccess);
        XT_CHECK_HAS(xccl_error_text(), "rank 0 of 3 waits for rank 2 (host ");
        XT_CHECK_HAS(xccl_error_text(), " to send");
        return;
    }
    if (rank == 0)
        XT_CHECK_RC(xccl_bootstrap_recv(boot, 2, 1, &byte, 1, &limit), xcclTimeout);
    else
        while (xccl_bootstrap_test(boot, &(int){0}) == xcclSuccess)
            (void)poll(NULL, 0, 1);
    XT_CHECK_HAS(xccl_error_text(), "timed out: rank 0 of 3 waits for rank 2 (host ");
    XT_CHECK_HAS(xccl_error_text(), " to send");
}

XT_TEST(a_deadline_names_who_is_awaited_on_all_ranks)
{
    run(3, wait_too_long);
}

static void sizes_differ(struct xccl_bootstrap *boot, int rank, int nranks)
{
    struct xccl_limit limit = limit_make();
    uint8_t data[64] = {0};

    (void)nranks;
    if (rank == 0) {
        /* It may be told before its send has returned. */
        (void)xccl_bootstrap_send(boot, 1, 1, data, 8, &limit);
        while (xccl_bootstrap_test(boot, &(int){0}) == xcclSuccess)
            (void)poll(NULL, 0, 1);
    } else {
        XT_CHECK_RC(xccl_bootstrap_recv(boot, 0, 1, data, 9, &limit), xcclInvalidUsage);
    }
    XT_CHECK_HAS(xccl_error_text(), " sends 8 bytes out of band, but rank 1 expects 9; ");
}

XT_TEST(a_message_of_another_size_is_an_error_on_both_ranks)
{
    run(2, sizes_differ);
}

/* Rank 0 looks for a message that will never come. */
static void look_in_vain(struct xccl_bootstrap *boot, int rank, int nranks)
{
    struct xccl_limit limit = limit_make();
    uint8_t data[64] = {0};

    (void)nranks;
    if (rank == 0) {
        (void)xccl_bootstrap_send(boot, 1, 1, data, 8, &limit);
        while (!xccl_bootstrap_has_mail(boot, 1, 2))
            sched_yield(); /* bounded by the test's deadline */
        XT_CHECK_RC(xccl_bootstrap_recv(boot, 1, 2, data, 1, &limit), xcclInvalidUsage);
    } else {
        XT_CHECK_RC(xccl_bootstrap_recv(boot, 0, 1, data, 9, &limit), xcclInvalidUsage);
    }
    XT_CHECK_HAS(xccl_error_text(), " sends 8 bytes out of band, but rank 1 expects 9; ");
}

XT_TEST(who_looks_for_a_message_hears_of_a_failure)
{
    run(2, look_in_vain);
}

/* Until a message of another rank finds no room here. */
static void wait_until_held(struct xccl_bootstrap *boot)
{
    struct xccl_limit limit = limit_make();
    int held = 0;

    while (!held && !xccl_limit_passed(&limit)) {
        (void)poll(NULL, 0, 1);
        xccl_loop_lock(boot->loop);
        held = boot->held_count;
        xccl_loop_unlock(boot->loop);
    }
    XT_CHECK(held);
}

/* Rank 0 keeps 7 MiB of rank 1, so 8 MiB of rank 2 have no room; taking the former makes room, and
 * only then rank 2 goes on to rank 3, whom rank 0 waits for. */
static void room_is_made(struct xccl_bootstrap *boot, int rank, int nranks)
{
    struct xccl_limit limit = limit_make();
    uint8_t *data = calloc(1, 8 << 20), go = 0;

    (void)nranks;
    XT_CHECK(data != NULL);
    if (rank == 1) {
        XT_OK(xccl_bootstrap_send(boot, 0, 1, data, 7 << 20, &limit));
        XT_OK(xccl_bootstrap_send(boot, 0, 2, &go, 1, &limit));
    } else if (rank == 2) {
        XT_OK(xccl_bootstrap_recv(boot, 0, 3, &go, 1, &limit));
        XT_OK(xccl_bootstrap_send(boot, 0, 4, data, 8 << 20, &limit));
        XT_OK(xccl_bootstrap_send(boot, 3, 5, &go, 1, &limit));
    } else if (rank == 3) {
        XT_OK(xccl_bootstrap_recv(boot, 2, 5, &go, 1, &limit));
        XT_OK(xccl_bootstrap_send(boot, 0, 6, &go, 1, &limit));
    } else {
        XT_OK(xccl_bootstrap_recv(boot, 1, 2, &go, 1, &limit));
        XT_OK(xccl_bootstrap_send(boot, 2, 3, &go, 1, &limit));
        wait_until_held(boot);
        XT_OK(xccl_bootstrap_recv(boot, 1, 1, data, 7 << 20, &limit));
        XT_OK(xccl_bootstrap_recv(boot, 3, 6, &go, 1, &limit));
        XT_OK(xccl_bootstrap_recv(boot, 2, 4, data, 8 << 20, &limit));
    }
    XT_OK(xccl_bootstrap_barrier(boot, NULL, &limit));
    free(data);
}

XT_TEST(a_message_without_room_is_read_once_there_is_some)
{
    run(4, room_is_made);
}

static _Atomic int refused;

static void split_when_busy(struct xccl_bootstrap *boot, int rank, int nranks)
{
    struct xccl_limit limit = limit_make();
    struct xccl_bootstrap *child = NULL;
    uint8_t byte = 0;

    if (rank == 0) {
        XT_OK(xccl_bootstrap_recv_start(boot, 1, 1, &byte, 1, &limit));
        XT_CHECK_RC(xccl_bootstrap_split_start(boot, 0, 0, &limit, NULL), xcclInvalidUsage);
        /* Relaxed: only the time matters. */
        atomic_store_explicit(&refused, 1, memory_order_relaxed);
        XT_OK(xccl_bootstrap_wait(boot));
    } else {
        while (!atomic_load_explicit(&refused, memory_order_relaxed))
            (void)poll(NULL, 0, 1);
        XT_OK(xccl_bootstrap_send(boot, 0, 1, &byte, 1, &limit));
    }
    XT_OK(xccl_bootstrap_split(boot, 0, 0, &limit, &child));
    gather(child, NULL, rank, nranks, 8);
    xccl_bootstrap_close(child);
}

XT_TEST(a_split_that_was_refused_does_not_count)
{
    run(2, split_when_busy);
}

/* Rank 0 leaves at once; the others must hear of it, wherever they are. */
static void leave_in_a_split(struct xccl_bootstrap *boot, int rank, int nranks)
{
    struct xccl_limit limit = limit_make();
    struct xccl_bootstrap *child = NULL;
    uint64_t start_ns = xccl_clock_ns();
    /* So that all have joined; a slow rank may hear of it in here. */
    xcclResult_t rc = xccl_bootstrap_barrier(boot, NULL, &limit);

    (void)nranks;
    if (rank == 0) {
        XT_OK(rc);
        (void)xccl_bootstrap_split_start(boot, 0, 0, &limit, NULL);
        return;
    }
    if (!rc && xccl_bootstrap_split(boot, 0, 0, &limit, &child) == xcclSuccess)
        xccl_bootstrap_close(child);
    XT_CHECK(xccl_clock_ns() - start_ns < 10 * XCCL_NS_PER_S);
}

XT_TEST(a_rank_that_leaves_in_a_split_leaves_nobody_waiting)
{
    for (int i = 0; i < 10; i++)
        run(3, leave_in_a_split);
}

/* All kinds of operations, of which one meets a call that fails. */
static void operate_injected(int rank, int nranks, void *arg)
{
    struct xccl_limit limit = xccl_limit_ms(400, NULL);
    struct world *world = arg;
    struct xccl_bootstrap *boot, *child = NULL;
    uint8_t data[3] = {0};
    struct xccl_job job;
    xcclResult_t rc;

    XT_OK(xccl_job_init(world->ids, 1, rank, nranks, &job));
    if (xccl_bootstrap_open(&job, rank, nranks, &limit, &boot) != xcclSuccess)
        return;
    rc = xccl_bootstrap_barrier(boot, NULL, &limit);
    if (!rc)
        rc = xccl_bootstrap_allgather(boot, NULL, data, 1, &limit);
    if (!rc && rank == 0)
        rc = xccl_bootstrap_send(boot, 2, 1, data, 1, &limit);
    if (!rc && rank == 0)
        rc = xccl_bootstrap_send(boot, 2, 2, data, 1, &limit);
    if (!rc && rank == 2)
        rc = xccl_bootstrap_recv(boot, 0, 2, data, 1, &limit);
    if (!rc && rank == 2)
        rc = xccl_bootstrap_recv(boot, 0, 1, data, 1, &limit);
    if (!rc)
        rc = xccl_bootstrap_split(boot, rank == 1, 0, &limit, &child);
    if (!rc)
        (void)xccl_bootstrap_barrier(child, NULL, &limit);
    xccl_bootstrap_close(child);
    xccl_bootstrap_close(boot);
}

XT_TEST_DEADLINE(each_failing_call_of_an_operation_ends_in_an_error_and_leaks_nothing, 240)
{
    uint64_t chances = 1, live = 0, seed = xt_seed();

    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xccl_param_reset();
    /* Every fourth, another one each time: most of the failures wait out the time to linger. */
    for (uint64_t k = 0; k <= chances && k <= 500; k += k ? 4 : 1 + xt_random(&seed) % 4) {
        struct world world = {.id_count = 1};
        struct xccl_limit limit = limit_make();
        struct xccl_bootstrap *boot;
        struct xccl_job job;

        XT_OK(xccl_unique_id_create(&world.ids[0]));
        xccl_inject_arm(k ? k : UINT64_MAX); /* the first counts, and never comes to it */
        xt_threads_run(3, operate_injected, &world);
        chances = k ? chances : xccl_inject_chances();
        xccl_inject_arm(0);
        /* Ends a root that still waits: a communicator of one needs none. */
        XT_OK(xccl_job_init(world.ids, 1, 0, 1, &job));
        XT_OK(xccl_bootstrap_open(&job, 0, 1, &limit, &boot));
        xccl_bootstrap_close(boot);
        live = k ? live : xccl_alloc_live();
        while (xccl_alloc_live() > live && !xccl_limit_passed(&limit))
            (void)poll(NULL, 0, 1); /* the service thread may be ending */
        XT_CHECK(xccl_alloc_live() <= live);
    }
    XT_CHECK(chances > 100);
}

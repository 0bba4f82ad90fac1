/* SPDX-License-Identifier: BSD-3-Clause */
/* The process's table of segments: one map for all users, fetched once, kept until the last one has
 * gone, and not for children of fork(). */
#include "transport/segments.h"
#include "transport/shm.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "xt.h"

#define BYTES    8192u
#define MAP_NAME "xccl-test-segment"

static struct xccl_addr new_name(void)
{
    struct xccl_addr name;

    XT_OK(xccl_shm_new_addr(&name));
    return name;
}

static void make_map(struct xccl_map *map)
{
    XT_OK(xccl_map_create(MAP_NAME, BYTES, map));
    close(map->fd);
    map->fd = -1;
}

/* Maps of segments that this process has, and their bytes; /proc names them. */
static int count_maps(uint64_t *bytes_out)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int count = 0;

    XT_CHECK(maps != NULL);
    *bytes_out = 0;
    while (fgets(line, sizeof line, maps)) {
        uint64_t from, to;

        if (!strstr(line, MAP_NAME) || sscanf(line, "%" SCNx64 "-%" SCNx64, &from, &to) != 2)
            continue;
        count++;
        *bytes_out += to - from;
    }
    fclose(maps);
    return count;
}

static void expect_empty(void)
{
    uint64_t bytes;

    XT_CHECK_INT(count_maps(&bytes), 0);
}

XT_TEST(a_segment_stays_mapped_until_its_last_user_has_put_it)
{
    struct xccl_addr name = new_name();
    struct xccl_segment *own, *found;
    struct xccl_map map;
    uint64_t bytes;
    char *base;

    make_map(&map);
    base = map.base;
    base[5] = 7;
    XT_OK(xccl_segment_add(&name, &map, &own));
    found = xccl_segment_find(&name);
    XT_CHECK(found == own);
    XT_CHECK(xccl_segment_base(found) == base);
    XT_CHECK_INT(xccl_segment_bytes(found), BYTES);
    XT_CHECK_INT(count_maps(&bytes), 1);
    XT_CHECK_INT(bytes, BYTES);
    xccl_segment_put(own); /* the owner goes first */
    XT_CHECK_INT(base[5], 7);
    xccl_segment_put(found);
    XT_CHECK(!xccl_segment_find(&name));
    xccl_segment_put(NULL);
    expect_empty();
}

XT_TEST(a_name_is_taken_once)
{
    struct xccl_addr name = new_name();
    struct xccl_segment *own, *other = NULL;
    struct xccl_map map, second;

    make_map(&map);
    make_map(&second);
    XT_OK(xccl_segment_add(&name, &map, &own));
    XT_CHECK_RC(xccl_segment_add(&name, &second, &other), xcclInternalError);
    XT_CHECK(!other);
    xccl_segment_put(own);
    expect_empty();
}

/* Several threads ask for a segment of another process. Counters: acquire and release throughout,
 * so that what a thread sees of them is in order. */
struct asking {
    struct xccl_addr name;
    _Atomic int fetches, got, started;
    int fails; /* the first fetches */
    struct xccl_segment *segments[8];
};

static xcclResult_t fetch(void *owner, struct xccl_map *map_out)
{
    struct asking *asking = owner;
    int number = atomic_fetch_add_explicit(&asking->fetches, 1, memory_order_acq_rel);

    while (atomic_load_explicit(&asking->started, memory_order_acquire) <
           8) /* all ask while it is at work */
        sched_yield();
    for (int i = 0; i < 100; i++)
        sched_yield();
    if (number < asking->fails)
        return xccl_fail(xcclRemoteError, 0, NULL, "it is not given");
    make_map(map_out);
    return xcclSuccess;
}

static void ask(int rank, int nranks, void *arg)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    struct asking *asking = arg;

    (void)nranks;
    atomic_fetch_add_explicit(&asking->started, 1, memory_order_acq_rel);
    if (xccl_segment_get(&asking->name, &limit, fetch, asking, &asking->segments[rank]) ==
        xcclSuccess)
        atomic_fetch_add_explicit(&asking->got, 1, memory_order_acq_rel);
}

static void ask_with(int fails)
{
    struct asking asking = {.name = new_name(), .fails = fails};
    int same = 0;

    xt_threads_run(8, ask, &asking);
    XT_CHECK_INT(atomic_load_explicit(&asking.got, memory_order_acquire), 8 - fails);
    XT_CHECK_INT(atomic_load_explicit(&asking.fetches, memory_order_acquire), 1 + fails);
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++)
            same += asking.segments[i] && asking.segments[i] == asking.segments[j];
    XT_CHECK_INT(same, (8 - fails) * (8 - fails));
    for (int i = 0; i < 8; i++)
        xccl_segment_put(asking.segments[i]);
    expect_empty();
}

XT_TEST(one_thread_fetches_and_the_others_wait_for_it)
{
    ask_with(0);
}

XT_TEST(who_waits_fetches_itself_when_the_first_one_fails)
{
    ask_with(3);
}

struct slow {
    struct xccl_addr name;
    _Atomic int begun, late;
};

static xcclResult_t fetch_slowly(void *owner, struct xccl_map *map_out)
{
    struct slow *slow = owner;

    atomic_store_explicit(&slow->begun, 1, memory_order_release);
    while (!atomic_load_explicit(&slow->late, memory_order_acquire))
        sched_yield();
    make_map(map_out);
    return xcclSuccess;
}

static void ask_slowly(int rank, int nranks, void *arg)
{
    struct slow *slow = arg;
    struct xccl_limit limit = xccl_limit_ms(rank ? 50 : 20000, NULL);
    struct xccl_segment *segment = NULL;

    (void)nranks;
    if (rank) {
        while (!atomic_load_explicit(&slow->begun, memory_order_acquire))
            sched_yield();
        XT_CHECK(!xccl_segment_find(&slow->name)); /* does not wait */
        XT_CHECK_RC(xccl_segment_get(&slow->name, &limit, fetch_slowly, slow, &segment),
                    xcclTimeout);
        XT_CHECK(!segment);
        atomic_store_explicit(&slow->late, 1, memory_order_release);
    } else {
        XT_OK(xccl_segment_get(&slow->name, &limit, fetch_slowly, slow, &segment));
        xccl_segment_put(segment);
    }
}

XT_TEST(who_waits_has_a_deadline)
{
    struct slow slow = {.name = new_name()};

    xt_threads_run(2, ask_slowly, &slow);
    expect_empty();
}

XT_TEST(a_child_of_fork_has_a_table_and_a_number_of_its_own)
{
    struct xccl_addr name = new_name();
    struct xccl_segment *own;
    struct xccl_map map;
    uint64_t mine, childs;
    int status = -1;
    pid_t pid;

    make_map(&map);
    XT_OK(xccl_segment_add(&name, &map, &own));
    XT_OK(xccl_os_process_id(&mine));
    XT_OK(xccl_os_process_id(&childs));
    XT_CHECK(mine && mine == childs);
    pid = fork();
    if (!pid) {
        int good = !xccl_segment_find(&name) && !xccl_os_process_id(&childs) && childs != mine;

        xccl_segment_put(own); /* harmless */
        _exit(good ? 0 : 1);
    }
    XT_CHECK(waitpid(pid, &status, 0) == pid);
    XT_CHECK_INT(status, 0);
    XT_CHECK(xccl_segment_base(own)[0] == 0);
    xccl_segment_put(own);
    expect_empty();
}

/* --- sizes --- */

XT_TEST(slots_shrink_so_that_many_ranks_stay_within_memory)
{
    for (int n = 2; n <= 4096; n *= 2) {
        struct xccl_shm_sizes sizes = xccl_shm_sizes(n, 64u << 20);
        /* A link between every two ranks, both kinds. */
        uint64_t link = sizes.is_tight ? 320 + 3ull * sizes.tight_bytes
                                       : 4096 + 6ull * sizes.slice_bytes;

        XT_CHECK(sizes.slice_bytes >= 8192 && sizes.tight_bytes >= 512);
        XT_CHECK_INT(sizes.is_tight, n > 64);
        if (n <= 1024)
            XT_CHECK(2 * link * (uint64_t)n * (uint64_t)n <= 4ull << 30);
        XT_CHECK_INT(sizes.slice_bytes & 4095, 0);
        XT_CHECK_INT(sizes.tight_bytes & 63, 0);
    }
}

XT_TEST(a_small_budget_makes_small_slots)
{
    struct xccl_shm_sizes much = xccl_shm_sizes(16, 64u << 20),
                          little = xccl_shm_sizes(16, 1u << 20);

    XT_CHECK(!much.is_tight);
    XT_CHECK(little.is_tight);
    XT_CHECK(little.slice_bytes < much.slice_bytes);
    XT_CHECK(3ull * little.tight_bytes * 2 * 16 <= 1u << 20);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Two ways for large messages between processes: each is measured for every kind and size of call,
 * the quicker is taken, and both again after a while. And the memory of another process: what is
 * read is that of the process that is meant. */
#include "call/comm_ways.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "transport/peer_memory.h"
#include "xt.h"

#define CALL           (1u << 20)
#define PERIOD         (int)XCCL_WAYS_PERIOD
#define MEASURED       (2 * (int)XCCL_WAYS_TRIALS)
#define MEASURED_LARGE (2 * (int)XCCL_WAYS_TRIALS_LARGE)

static struct xccl_comm_ways *make_ways(void)
{
    struct xccl_comm_ways *ways = calloc(1, sizeof *ways);

    XT_CHECK(ways != NULL);
    ways->takes_addresses = 1;
    return ways;
}

static enum xccl_way choose(struct xccl_comm_ways *ways, enum xccl_coll kind, uint64_t bytes)
{
    return xccl_comm_way_is_address(ways, kind, bytes) ? XCCL_WAY_ADDRESS : XCCL_WAY_SLOTS;
}

/* A call of a kind whose slow way takes 2 ms longer. */
static enum xccl_way make_call(struct xccl_comm_ways *ways, enum xccl_coll kind, uint64_t bytes,
                               enum xccl_way slow)
{
    enum xccl_way way = choose(ways, kind, bytes);

    if (ways->row && way == slow)
        ways->began_ns -= 2 * XCCL_NS_PER_MS;
    if (ways->row)
        xccl_comm_way_took(ways);
    return way;
}

XT_TEST(the_quicker_way_is_taken_for_each_kind_and_size)
{
    struct xccl_comm_ways *ways = make_ways();
    int taken[XCCL_WAYS] = {0};

    for (int i = 0; i < MEASURED; i++) {
        taken[make_call(ways, XCCL_COLL_ALL_GATHER, CALL, XCCL_WAY_SLOTS)]++;
        (void)make_call(ways, XCCL_COLL_ALL_GATHER, 4 * CALL, XCCL_WAY_ADDRESS);
        (void)make_call(ways, XCCL_COLL_SEND_RECV, CALL, XCCL_WAY_ADDRESS);
    }
    XT_CHECK_INT(taken[XCCL_WAY_SLOTS], MEASURED / 2);
    XT_CHECK_INT(taken[XCCL_WAY_ADDRESS], MEASURED / 2);
    XT_CHECK(!ways->row); /* fewer are measured of the larger ones */
    for (int i = MEASURED; i < PERIOD; i++) {
        XT_CHECK_INT(choose(ways, XCCL_COLL_ALL_GATHER, CALL + 5), XCCL_WAY_ADDRESS);
        XT_CHECK_INT(choose(ways, XCCL_COLL_ALL_GATHER, 4 * CALL), XCCL_WAY_SLOTS);
        XT_CHECK_INT(choose(ways, XCCL_COLL_SEND_RECV, CALL), XCCL_WAY_SLOTS);
        XT_CHECK(!ways->row);
    }
    free(ways);
}

XT_TEST(a_way_that_became_the_quicker_one_is_found)
{
    struct xccl_comm_ways *ways = make_ways();

    for (int i = 0; i < PERIOD; i++)
        (void)make_call(ways, XCCL_COLL_BROADCAST, CALL, XCCL_WAY_ADDRESS);
    XT_CHECK_INT(ways->rows[0][XCCL_COLL_BROADCAST][4].best, XCCL_WAY_SLOTS);
    for (int i = 0; i < MEASURED; i++)
        (void)make_call(ways, XCCL_COLL_BROADCAST, CALL, XCCL_WAY_SLOTS);
    XT_CHECK_INT(choose(ways, XCCL_COLL_BROADCAST, CALL), XCCL_WAY_ADDRESS);
    free(ways);
}

/* They find the memory of the other way in the caches. */
XT_TEST(the_first_half_of_each_way_does_not_count)
{
    struct xccl_comm_ways *ways = make_ways();
    int taken[XCCL_WAYS] = {0};

    for (int i = 0; i < MEASURED; i++) {
        enum xccl_way way = choose(ways, XCCL_COLL_BROADCAST, CALL);
        int is_early = ++taken[way] <= MEASURED / 4;

        if (is_early == (way == XCCL_WAY_ADDRESS))
            ways->began_ns -= 2 * XCCL_NS_PER_MS;
        xccl_comm_way_took(ways);
    }
    XT_CHECK_INT(choose(ways, XCCL_COLL_BROADCAST, CALL), XCCL_WAY_ADDRESS);
    free(ways);
}

/* A call or two that something else held up do not turn it round for a thousand calls. */
XT_TEST(what_was_measured_before_counts_too)
{
    struct xccl_comm_ways *ways = make_ways();
    struct xccl_way_row *row = &ways->rows[0][XCCL_COLL_BROADCAST][4];

    for (int i = 0; i < PERIOD; i++)
        (void)make_call(ways, XCCL_COLL_BROADCAST, CALL, XCCL_WAY_SLOTS);
    XT_CHECK_INT(row->best, XCCL_WAY_ADDRESS);
    for (int i = 0; i < 2 * PERIOD + 4 * PERIOD; i++) /* measured twice */
        (void)make_call(ways, XCCL_COLL_BROADCAST, CALL, XCCL_WAY_ADDRESS);
    XT_CHECK_INT(row->best, XCCL_WAY_SLOTS);
    for (int i = 0; i < MEASURED; i++) {
        int is_slots = choose(ways, XCCL_COLL_BROADCAST, CALL) == XCCL_WAY_SLOTS;

        ways->began_ns -= (is_slots && i >= MEASURED - 2 ? 4 : 1) * XCCL_NS_PER_MS;
        xccl_comm_way_took(ways);
    }
    XT_CHECK_INT(row->best, XCCL_WAY_SLOTS); /* 7 ms and 1 of before; the other 4 and 6 */
    free(ways);
}

XT_TEST(both_are_measured_again_less_and_less_often)
{
    static const uint32_t periods[] = {XCCL_WAYS_PERIOD, 2 * XCCL_WAYS_PERIOD, 4 * XCCL_WAYS_PERIOD,
                                       8 * XCCL_WAYS_PERIOD};
    struct xccl_comm_ways *ways = make_ways();

    for (size_t k = 0; k < sizeof periods / sizeof periods[0]; k++) {
        for (uint32_t i = 0; i < periods[k]; i++) {
            (void)make_call(ways, XCCL_COLL_BROADCAST, CALL, XCCL_WAY_ADDRESS);
            XT_CHECK_INT(ways->rows[0][XCCL_COLL_BROADCAST][4].calls, i + 1);
        }
        XT_CHECK_INT(ways->rows[0][XCCL_COLL_BROADCAST][4].period, periods[k]);
    }
    for (int i = 0; i < 20 * (int)XCCL_WAYS_PERIOD_MAX; i++)
        (void)make_call(ways, XCCL_COLL_BROADCAST, CALL, XCCL_WAY_ADDRESS);
    XT_CHECK_INT(ways->rows[0][XCCL_COLL_BROADCAST][4].period, XCCL_WAYS_PERIOD_MAX);
    free(ways);
}

/* Memory that is read in place is measured for itself, and only what is large. */
XT_TEST(what_is_read_in_place_goes_through_slots_where_that_is_quicker)
{
    struct xccl_comm_ways *ways = make_ways();
    int slots = 0;

    ways->always = 1; /* which is about private memory */
    for (int i = 0; i < MEASURED_LARGE; i++) {
        int is_slots = xccl_comm_way_is_slots(ways, XCCL_COLL_BROADCAST, XCCL_WAYS_LARGE);

        XT_CHECK(ways->row != NULL);
        if (!is_slots)
            ways->began_ns -= 2 * XCCL_NS_PER_MS;
        xccl_comm_way_took(ways);
        slots += is_slots;
    }
    XT_CHECK_INT(slots, MEASURED_LARGE / 2);
    XT_CHECK(xccl_comm_way_is_slots(ways, XCCL_COLL_BROADCAST, XCCL_WAYS_LARGE));
    XT_CHECK(!ways->row);
    XT_CHECK(!xccl_comm_way_is_slots(ways, XCCL_COLL_BROADCAST, XCCL_WAYS_LARGE - 1));
    XT_CHECK(!xccl_comm_way_is_slots(NULL, XCCL_COLL_BROADCAST, XCCL_WAYS_LARGE));
    XT_CHECK(!ways->rows[0][XCCL_COLL_BROADCAST][6].calls);
    ways->takes_addresses = 0;
    XT_CHECK_INT(choose(ways, XCCL_COLL_BROADCAST, CALL), XCCL_WAY_SLOTS);
    free(ways);
}

XT_TEST(every_size_has_a_row_and_the_setting_may_choose)
{
    struct xccl_comm_ways *ways = make_ways();

    for (uint64_t bytes = XCCL_WAYS_MIN; bytes; bytes *= 2)
        (void)choose(ways, XCCL_COLL_ALL_TO_ALL, bytes);
    (void)choose(ways, XCCL_COLL_ALL_TO_ALL, UINT64_MAX);
    XT_CHECK_INT(choose(NULL, XCCL_COLL_GATHER, CALL), XCCL_WAY_SLOTS);
    ways->always = 1;
    XT_CHECK_INT(choose(ways, XCCL_COLL_GATHER, XCCL_WAYS_MIN - 1), XCCL_WAY_SLOTS);
    for (int i = 0; i < 300; i++)
        XT_CHECK_INT(choose(ways, XCCL_COLL_GATHER, CALL), XCCL_WAY_ADDRESS);
    XT_CHECK(!ways->row);
    free(ways);
}

XT_TEST(only_the_process_that_is_meant_is_read)
{
    struct xccl_peer_mark mark = xccl_peer_mark(), wrong = mark, none = {0};
    static char both[2 * 4096];
    char *pages = mmap(NULL, sizeof both, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                       0);
    uint64_t seen = 0;
    pid_t child;

    XT_CHECK(pages != MAP_FAILED && mprotect(pages + 4096, 4096, PROT_NONE) == 0);
    child = fork();

    if (child == 0)
        pause();
    XT_CHECK(child > 0);
    wrong.word ^= 1;
    if (xccl_peer_try(child, &mark) != xcclSuccess) { /* this system does not allow it */
        XT_CHECK_HAS(xccl_error_text(), "ptrace_scope");
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        XT_SKIP("processes may not read each other's memory here");
    }
    XT_CHECK_RC(xccl_peer_try(child, &wrong), xcclSystemError);
    XT_CHECK_HAS(xccl_error_text(), "belongs to a different process here");
    XT_CHECK_RC(xccl_peer_try(child, &none), xcclSystemError);
    XT_CHECK_HAS(xccl_error_text(), "does not allow others to read its memory");
    XT_CHECK(xccl_peer_read(child, &seen, mark.at, sizeof seen));
    XT_CHECK(seen == mark.word);
    XT_CHECK(!xccl_peer_read(child, &seen, 8, sizeof seen)); /* nothing lies there */
    errno = 0;
    XT_CHECK(!xccl_peer_read(child, both, (uint64_t)(uintptr_t)pages, sizeof both));
    XT_CHECK_INT(errno, EFAULT); /* half of it was read */
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    XT_CHECK_RC(xccl_peer_try(child, &mark), xcclSystemError);
    XT_CHECK_HAS(xccl_error_text(), "cannot be read: No such process");
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The distance between cores, by which large messages take one way or the other. And the memory of
 * another process: what is read is that of the process that is meant. */
#include "transport/distance.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "transport/peer_memory.h"
#include "xt.h"

/* One end of a measurement. */
struct end {
    struct xccl_board boards[2];
    uint32_t found[2];
};

static void measure(int rank, int nranks, void *arg)
{
    struct end *end = arg;
    struct xccl_distance distance;

    (void)nranks;
    xccl_distance_begin(&distance, &end->boards[rank], &end->boards[1 - rank], rank == 0);
    while (!xccl_distance_step(&distance))
        sched_yield();
    end->found[rank] = distance.best_ns;
}

/* On a busy machine they may miss each other. */
XT_TEST(both_ends_learn_the_same_distance)
{
    struct end end;
    int tries = 0;

    do {
        memset(&end, 0, sizeof end);
        xt_threads_run(2, measure, &end);
        XT_CHECK(++tries < 1000);
    } while (!end.found[0] || !end.found[1]);
    XT_CHECK_INT(end.found[0], end.found[1]);
    printf("%u ns\n", end.found[0]);
}

XT_TEST(who_finds_nobody_gives_up)
{
    for (int leads = 0; leads < 2; leads++) {
        struct xccl_board own = {0}, other = {0};
        struct xccl_distance distance;
        uint64_t begin_ns = xccl_clock_ns();

        xccl_distance_begin(&distance, &own, &other, leads);
        while (!xccl_distance_step(&distance))
            XT_CHECK(xccl_clock_ns() - begin_ns < XCCL_NS_PER_S);
        XT_CHECK(xccl_clock_ns() - begin_ns >= XCCL_DISTANCE_NS);
        XT_CHECK_INT(distance.best_ns, 0);
    }
}

XT_TEST(a_number_that_no_leader_says_ends_it)
{
    struct xccl_board own = {0}, other = {0};
    struct xccl_distance distance;

    xccl_distance_begin(&distance, &own, &other, 0);
    atomic_store_explicit(&other.ping, 1, memory_order_relaxed);
    XT_CHECK(!xccl_distance_step(&distance));
    XT_CHECK_INT(atomic_load_explicit(&own.ping, memory_order_relaxed), 1);
    atomic_store_explicit(&other.ping, 7, memory_order_relaxed);
    XT_CHECK(xccl_distance_step(&distance));
    XT_CHECK_INT(distance.best_ns, 0);
}

XT_TEST(without_a_neighbour_nothing_is_measured)
{
    struct xccl_distance distance = {0};

    XT_CHECK(xccl_distance_step(&distance));
    XT_CHECK_INT(distance.best_ns, 0);
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

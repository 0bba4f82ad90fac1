/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks of CUDA communicators in tests of calls that do not belong together: processes, or threads
 * of one process that share a device. Who includes it defines FEW, the cases of a test by default,
 * before, and run_cases() behind. Header only. */
#ifndef TESTS_EMU_DEVICE_UNLIKE_H
#define TESTS_EMU_DEVICE_UNLIKE_H

#include "device_ranks.h"
#include "path/unlike.h"

/* All cases of one rank; arg: the page. */
static void run_cases(int number, int nranks, void *arg);

static void set_up(const struct page *page)
{
    xt_setenv("XCCL_TIMEOUT_S", "8");
    xt_setenv("XCCL_BUFFER_BYTES", "4M"); /* of many communicators */
    device_settings(page->way);
    device_open();
}

static void run_process(int rank, int nranks, void *arg)
{
    struct page *page = arg;

    set_up(page);
    run_cases(rank, nranks, page);
    if (rank == 0)
        XT_CHECK_INT(page->failed, 0);
}

static void processes(int nranks, const char *way, uint64_t number)
{
    xt_mp_run(nranks, run_process, page_create(way, number, FEW));
}

static void threads(int nranks, uint64_t number)
{
    struct page *page = page_create("p2p", number, FEW);

    need_stand_in("threads that share a device have it wait for each other");
    set_up(page);
    xt_threads_run(nranks, run_cases, page);
    XT_CHECK_INT(page->failed, 0);
}

#endif

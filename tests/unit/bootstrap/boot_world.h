/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks of one process that join as threads, so that sanitizers see both ends. Each runs the body
 * of a test with its bootstrap. */
#ifndef XCCL_TEST_BOOT_WORLD_H
#define XCCL_TEST_BOOT_WORLD_H

#include "base/alloc.h"
#include "base/error.h"
#include "base/param.h"
#include "bootstrap/bootstrap_int.h"
#include "xt.h"

__attribute__((constructor)) static void sources(void)
{
    xt_set_error_source(xccl_error_text);
    xt_set_alloc_source(xccl_alloc_live);
}

#define IDS_MAX 16

struct world {
    xcclUniqueId ids[IDS_MAX];
    int id_count;
    void (*body)(struct xccl_bootstrap *boot, int rank, int nranks);
};

static inline struct xccl_limit limit_make(void)
{
    return xccl_limit_ms(30000, NULL);
}

static inline struct xccl_bootstrap *join(const struct world *world, int rank, int nranks)
{
    struct xccl_limit limit = limit_make();
    struct xccl_bootstrap *boot;
    struct xccl_job job;

    XT_OK(xccl_job_init(world->ids, world->id_count, rank, nranks, &job));
    XT_OK(xccl_bootstrap_open(&job, rank, nranks, &limit, &boot));
    XT_CHECK_INT(xccl_bootstrap_rank(boot), rank);
    XT_CHECK_INT(xccl_bootstrap_nranks(boot), nranks);
    return boot;
}

static inline void rank_main(int rank, int nranks, void *arg)
{
    const struct world *world = arg;
    struct xccl_bootstrap *boot = join(world, rank, nranks);

    world->body(boot, rank, nranks);
    xccl_bootstrap_close(boot);
}

static inline void run_with_ids(int nranks, int id_count,
                                void (*body)(struct xccl_bootstrap *boot, int rank, int nranks))
{
    struct world world = {.id_count = id_count, .body = body};

    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xccl_param_reset();
    for (int i = 0; i < id_count; i++)
        XT_OK(xccl_unique_id_create(&world.ids[i]));
    xt_threads_run(nranks, rank_main, &world);
}

static inline void run(int nranks, void (*body)(struct xccl_bootstrap *boot, int rank, int nranks))
{
    run_with_ids(nranks, 1, body);
}

#endif

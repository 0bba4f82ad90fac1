/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks of a test of ways do: they are told their setting and what the record must have, and
 * two of them may have no way but network cards. Header only; the test has a rank function of its
 * own or act_by_card(). */
#ifndef TESTS_EMU_DEVICE_SCENE_H
#define TESTS_EMU_DEVICE_SCENE_H

#include "device_ways.h"

/* What the rank function reads: ranks have device rank % devices. */
struct scene {
    struct world *world;
    const char *setting; /* of device_settings() */
    int devices;
    struct expected want; /* of rank 0, */
    int any; /* 1: or another one */
    const struct expected (*ways)[3]; /* of each rank, kind 0: no more; NULL: none */
    size_t bytes; /* by cards; 0: as many as elsewhere */
};

static inline void act_by_card(int rank, int nranks, void *arg)
{
    const struct scene *scene = arg;
    struct on_device on;
    xccl_cu_ctx ctx;

    CU(cuda->ctx_retain(&ctx, 0));
    CU(cuda->ctx_set(ctx));
    device_make(&on, scene->bytes ? scene->bytes : (size_t)WAYS_COUNT * 4);
    on.comm = join_on(scene->world, rank, nranks, 0);
    one_sum(&on, rank, nranks);
    world_meet(scene->world, nranks); /* all links are there, and nobody has left */
    if (rank == 0)
        check_way(scene->any ? -1 : rank, &scene->want);
    world_meet(scene->world, 2 * nranks);
    XT_OK(xcclCommDestroy(on.comm));
    device_free(&on);
}

/* Two ranks, threads of this process, over the cards of that plugin. */
static inline void run_over(const char *plugin, const char *gdr, struct scene *scene)
{
    xt_setenv("XCCL_RECORD_DIR", xt_tmpdir());
    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_NET_PLUGIN", plugin);
    xt_setenv("XCCL_CUDA_GDR", gdr);
    device_settings(NULL);
    device_open();
    scene->world = world_create();
    xt_threads_run(2, act_by_card, scene);
}

#endif

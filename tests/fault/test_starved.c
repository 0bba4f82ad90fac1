/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank whose process runs but gets no time is not dead: a call waits for it. To have it so, the
 * program holds the lock of its own service thread for longer than a dead rank may be silent.
 *
 * Thread: one in each rank, and the library's. */
#include "../collective/world.h"

#include "base/alloc.h"
#include "base/loop.h"

#define SILENT_S 6 /* with a heartbeat each second 4 are death */

static void starve_one(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    struct xccl_loop *loop;
    xcclComm_t comm = NULL;
    int value = 1;

    if (world->param)
        xt_setenv("XCCL_SHM_DISABLE", "1");
    comm = world_join(world, rank, nranks);
    XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL));
    if (rank == 1) {
        XT_OK(xccl_service_get(&loop));
        xccl_loop_lock(loop);
        nanosleep(&(struct timespec){.tv_sec = SILENT_S}, NULL);
        xccl_loop_unlock(loop);
        xccl_service_put();
    }
    value = 1;
    XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL));
    XT_CHECK_INT(value, nranks);
    XT_OK(xcclCommDestroy(comm));
}

static void run_starved(int sockets)
{
    struct world *world = world_create();

    xt_set_alloc_source(xccl_alloc_live);
    xt_setenv("XCCL_PLUGIN_PATH", XT_BUILD_DIR "/lib/xccl");
    world->param = sockets;
    xt_mp_run(3, starve_one, world);
}

XT_TEST(rank_that_gets_no_time_is_waited_for)
{
    run_starved(0);
}

XT_TEST(rank_that_gets_no_time_is_waited_for_over_sockets)
{
    run_starved(1);
}

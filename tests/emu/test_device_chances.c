/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators of CUDA devices between two processes, with chances to fail taken in turn: on one
 * rank one allocation or system call of joining, of a call that makes links, or of leaving fails,
 * once. That rank gets over it or returns an error with a text, the other one soon ends too, and no
 * memory is left behind. A sample is drawn with the seed; XT_ALL=1 tries all. The program holds the
 * library's stages itself, because libxccl.so does not show core/base/inject.h. */
#include "device_ranks.h"

#include <unistd.h>

#include "base/alloc.h"
#include "base/inject.h"

#define COUNT   3000
#define SAMPLES 24
#define LATE_S  20.0

/* Between the processes. */
struct rounds {
    struct world world;
    xcclUniqueId id;
    int victim;
    uint64_t chances; /* of the victim, in the first round, where nothing fails */
};

static void share_id(struct rounds *rounds, int rank, int nranks, int *met)
{
    if (rank == 0)
        XT_OK(xcclGetUniqueId(&rounds->id));
    world_meet(&rounds->world, *met += nranks);
}

/* Joins, sums, leaves; its first error. */
static xcclResult_t come_and_go(const struct rounds *rounds, int rank, int nranks,
                                struct on_device *on)
{
    double start = xt_seconds();
    xcclResult_t rc, late = xcclSuccess;

    rc = xcclCommInitRank(&on->comm, nranks, rounds->id, rank);
    if (rc) {
        XT_CHECK(strlen(xcclGetLastError(NULL)) > 10);
        return rc;
    }
    device_put(on, COUNT, rank, 1);
    rc = xcclAllGather(at(on->in, 0), at(on->out, 0), COUNT / 2, xcclInt32, on->comm, on->stream);
    if (rc)
        XT_CHECK(strlen(xcclGetLastError(on->comm)) > 10);
    while (!late && cuda->stream_query(on->stream) == XCCL_CU_NOT_READY) {
        XT_OK(xcclCommGetAsyncError(on->comm, &late));
        XT_CHECK(xt_seconds() - start < LATE_S);
    }
    if (!late) /* kernels also end because the communicator has failed */
        XT_OK(xcclCommGetAsyncError(on->comm, &late));
    (void)xcclCommDestroy(on->comm);
    if (rc || late)
        return rc ? rc : late;
    (void)device_get(on, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        XT_CHECK_INT(on->host[i], world_value((int)(i / (COUNT / 2)), i % (COUNT / 2), 1));
    return xcclSuccess;
}

/* Until no more is held than before. */
static void check_left(uint64_t blocks, uint64_t k)
{
    double start = xt_seconds();

    while (xccl_alloc_live() > blocks)
        if (xt_seconds() - start > 5)
            XT_FAIL("chance %llu: %llu blocks are left behind", (unsigned long long)k,
                    (unsigned long long)(xccl_alloc_live() - blocks));
}

static void play(int rank, int nranks, void *arg)
{
    struct rounds *rounds = arg;
    uint64_t seed = xt_seed(), step = 0, blocks = 0;
    struct on_device on;
    int met = 0;

    device_settings(NULL);
    device_open();
    device_make(&on, COUNT * 4);
    /* Two rounds without a failure: a first one for what a process keeps. */
    for (uint64_t round = 0, k = UINT64_MAX; round < 2 || k <= rounds->chances; round++) {
        double start = xt_seconds();
        xcclResult_t rc;

        share_id(rounds, rank, nranks, &met);
        xccl_inject_arm(rank == rounds->victim ? k : 0);
        rc = come_and_go(rounds, rank, nranks, &on);
        if (round == 1 && rank == rounds->victim)
            rounds->chances = xccl_inject_chances();
        xccl_inject_arm(0);
        if (round < 2)
            XT_CHECK_INT(rc, xcclSuccess);
        if (xt_seconds() - start > LATE_S)
            XT_FAIL("chance %llu took %.1f s", (unsigned long long)k, xt_seconds() - start);
        world_meet(&rounds->world, met += nranks);
        if (round == 0)
            continue;
        if (round == 1)
            blocks = xccl_alloc_live();
        check_left(blocks, k);
        if (round == 1) {
            step = getenv("XT_ALL") || rounds->chances < SAMPLES ? 1 : rounds->chances / SAMPLES;
            k = 1 + xt_random(&seed) % step;
        } else {
            k += step;
        }
    }
    XT_CHECK(rounds->chances > SAMPLES);
    if (rank == rounds->victim)
        printf("%llu chances\n", (unsigned long long)rounds->chances);
    device_free(&on);
}

static void fail_each(int victim)
{
    struct rounds *rounds = mmap(NULL, sizeof *rounds, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    XT_CHECK(rounds != MAP_FAILED);
    xt_set_error_source(world_error);
    xt_setenv("XCCL_TIMEOUT_INIT_S", "5");
    xt_setenv("XCCL_TIMEOUT_S", "5");
    xt_setenv("XCCL_PLUGIN_PATH", XT_BUILD_DIR "/lib/xccl");
    rounds->victim = victim;
    xt_mp_run(2, play, rounds);
    munmap(rounds, sizeof *rounds);
}

XT_TEST_DEADLINE(a_failure_on_rank_0_is_got_over_or_reported, 120)
{
    fail_each(0);
}

XT_TEST_DEADLINE(a_failure_on_rank_1_is_got_over_or_reported, 120)
{
    fail_each(1);
}

XT_TEST_DEADLINE(a_failure_is_got_over_or_reported_with_ipc, 120)
{
    xt_setenv("XCCL_CUDA_CUMEM", "0");
    fail_each(1);
}

XT_TEST_DEADLINE(a_failure_is_got_over_or_reported_with_fabric_handles, 120)
{
    xt_setenv("XCCL_EMU_FABRIC", "1");
    xt_setenv("XCCL_CUDA_CUMEM", "fabric");
    fail_each(0);
}

XT_TEST_DEADLINE(a_failure_is_got_over_or_reported_over_sockets, 120)
{
    xt_setenv("XCCL_SHM_DISABLE", "1");
    fail_each(1);
}

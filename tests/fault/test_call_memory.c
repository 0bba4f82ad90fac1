/* SPDX-License-Identifier: BSD-3-Clause */
/* First calls of their kind, which make plans, schedules and links, with each chance to fail taken
 * in turn: on one rank, one allocation or system call fails, once. Either all ranks get over it, or
 * the communicator has failed on all of them, soon, with a text, and nothing is left behind. The
 * program holds the library's stages itself, because libxccl.so does not show core/base/inject.h;
 * chances inside a plugin are not reached.
 *
 * A round is one chance and a new communicator. A sample is drawn with the seed; XT_ALL=1 tries
 * all. Thread: one in each process, and the library's. */
#include "../collective/world.h"

#include "base/alloc.h"
#include "base/inject.h"

#ifdef XCCL_SANITIZED
#define SOON_S 4.0
#else
#define SOON_S xt_bound(2.5, 6) /* calls end after 10 by themselves */
#endif
#define RANKS   3
#define COUNT   3000
#define SAMPLES 24

/* Between the processes; written by the rank concerned, read by all after the next meeting. */
struct rounds {
    struct world world;
    int victim;
    xcclUniqueId id;
    uint64_t chances; /* of the victim, in a round in which none is taken */
    int failed; /* rounds */
    struct {
        xcclResult_t rc;
        double seconds;
        char text[256];
    } ranks[RANKS];
};

struct data {
    int in[RANKS * COUNT], out[RANKS * COUNT];
};

/* What cannot be noted keeps the group from starting, and xcclGroupEnd says why. */
static xcclResult_t swap_with_all(struct data *data, xcclComm_t comm)
{
    XT_OK(xcclGroupStart());
    for (int peer = 0; peer < RANKS; peer++) {
        (void)xcclSend(data->in + peer * COUNT, COUNT, xcclInt32, peer, comm, NULL);
        (void)xcclRecv(data->out + peer * COUNT, COUNT, xcclInt32, peer, comm, NULL);
    }
    return xcclGroupEnd();
}

static xcclResult_t gather_sized(struct data *data, int rank, xcclComm_t comm)
{
    static const size_t counts[RANKS] = {COUNT, 0, COUNT / 2}, at[RANKS] = {0, COUNT, COUNT};

    return xcclAllGatherv(data->in, counts[rank], data->out, counts, at, xcclInt32, comm, NULL);
}

/* One after another, until one fails. */
static xcclResult_t call_all(struct data *data, int rank, xcclComm_t comm)
{
    xcclResult_t rc = xcclAlltoAll(data->in, data->out, COUNT, xcclInt32, comm, NULL);

    for (int i = 0; !rc && i < RANKS * COUNT; i++)
        XT_CHECK_INT(data->out[i], i / COUNT * 1000 + rank * COUNT + i % COUNT);
    if (!rc)
        rc = xcclBroadcast(data->in, data->out, 1, xcclInt32, 2, comm, NULL);
    if (!rc)
        rc = xcclReduceScatter(data->in, data->out, COUNT, xcclInt32, xcclSum, comm, NULL);
    if (!rc)
        rc = gather_sized(data, rank, comm);
    memset(data->out, 0, sizeof data->out);
    if (!rc)
        rc = swap_with_all(data, comm);
    for (int i = 0; !rc && i < RANKS * COUNT; i++)
        XT_CHECK_INT(data->out[i], i / COUNT * 1000 + rank * COUNT + i % COUNT);
    return rc;
}

/* The communicator's verdict, for a rank whose calls were over before another's failed. */
static xcclResult_t last_word(xcclComm_t comm)
{
    return xcclBarrier(comm, NULL);
}

static void play_round(struct rounds *rounds, int rank, uint64_t k, int *met)
{
    static struct data data;
    xcclComm_t comm;
    double start;

    for (int i = 0; i < RANKS * COUNT; i++)
        data.in[i] = rank * 1000 + i;
    if (rank == 0)
        XT_OK(xcclGetUniqueId(&rounds->id));
    world_meet(&rounds->world, *met += RANKS);
    XT_OK(xcclCommInitRank(&comm, RANKS, rounds->id, rank));
    world_meet(&rounds->world, *met += RANKS);
    start = world_seconds();
    xccl_inject_arm(rank == rounds->victim ? k : 0);
    rounds->ranks[rank].rc = call_all(&data, rank, comm);
    if (rank == rounds->victim && k == UINT64_MAX)
        rounds->chances = xccl_inject_chances();
    xccl_inject_arm(0);
    if (!rounds->ranks[rank].rc)
        rounds->ranks[rank].rc = last_word(comm);
    rounds->ranks[rank].seconds = world_seconds() - start;
    snprintf(rounds->ranks[rank].text, sizeof rounds->ranks[rank].text, "%s",
             rounds->ranks[rank].rc ? xcclGetLastError(comm) : "");
    if (rounds->ranks[rank].rc) /* every later call says the same */
        XT_CHECK(last_word(comm) != xcclSuccess);
    world_meet(&rounds->world, *met += RANKS);
    XT_OK(xcclCommDestroy(comm));
}

static void judge(struct rounds *rounds, uint64_t k)
{
    for (int i = 0; i < RANKS; i++) {
        int fails = rounds->ranks[i].rc != xcclSuccess;

        if (fails != (rounds->ranks[rounds->victim].rc != xcclSuccess) ||
            (fails && strlen(rounds->ranks[i].text) < 10) || rounds->ranks[i].seconds > SOON_S)
            XT_FAIL("chance %llu of rank %d: rank %d after %.2f s: %d, %s; the victim's: %s",
                    (unsigned long long)k, rounds->victim, i, rounds->ranks[i].seconds,
                    (int)rounds->ranks[i].rc, rounds->ranks[i].text,
                    rounds->ranks[rounds->victim].text);
    }
}

/* Until no more is held than before the round. */
static void check_given_back(uint64_t k, int fds_before, uint64_t blocks_before)
{
    double until = world_seconds() + SOON_S;

    while (xt_entries("/proc/self/fd") > fds_before || xccl_alloc_live() > blocks_before) {
        if (world_seconds() > until)
            XT_FAIL("chance %llu leaves %d descriptors and %lld blocks behind",
                    (unsigned long long)k, xt_entries("/proc/self/fd") - fds_before,
                    (long long)(xccl_alloc_live() - blocks_before));
        sched_yield();
    }
}

static void rank_main(int rank, int nranks, void *arg)
{
    struct rounds *rounds = arg;
    uint64_t random = xt_seed(), blocks, step, tried = 0;
    int met = 0, fds;

    play_round(rounds, rank, UINT64_MAX, &met);
    XT_CHECK_INT(rounds->ranks[rank].rc, xcclSuccess);
    world_meet(&rounds->world, met += nranks);
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL); /* what leaves takes its time */
    fds = xt_entries("/proc/self/fd");
    blocks = xccl_alloc_live();
    step = getenv("XT_ALL") ? 1 : 1 + rounds->chances / SAMPLES;
    for (uint64_t k = 1 + xt_random(&random) % step; k <= rounds->chances; k += step) {
        world_meet(&rounds->world, met += nranks); /* all have read the outcomes */
        play_round(rounds, rank, k, &met);
        judge(rounds, k);
        check_given_back(k, fds, blocks);
        tried++;
        if (rank == 0)
            rounds->failed += rounds->ranks[0].rc != xcclSuccess;
    }
    world_meet(&rounds->world, met += nranks);
    if (rank == 0)
        printf("%llu of %llu chances tried, %d of them an error\n", (unsigned long long)tried,
               (unsigned long long)rounds->chances, rounds->failed);
    XT_CHECK(rounds->failed > 0);
}

static void fail_each(const char *setting, int victim)
{
    struct rounds *rounds = mmap(NULL, sizeof *rounds, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    XT_CHECK(rounds != MAP_FAILED);
    xt_set_error_source(world_error);
    xt_set_alloc_source(xccl_alloc_live);
    xt_setenv("XCCL_TIMEOUT_S", "10");
    xt_setenv("XCCL_PLUGIN_PATH", XT_BUILD_DIR "/lib/xccl");
    if (setting)
        xt_setenv(setting, "1");
    rounds->victim = victim;
    xt_mp_run(RANKS, rank_main, rounds);
    munmap(rounds, sizeof *rounds);
}

XT_TEST_DEADLINE(first_calls_over_shared_memory_when_rank_0_meets_a_failure, 120)
{
    fail_each(NULL, 0);
}

XT_TEST_DEADLINE(first_calls_over_shared_memory_when_rank_2_meets_a_failure, 120)
{
    fail_each(NULL, 2);
}

XT_TEST_DEADLINE(first_calls_over_sockets_when_rank_0_meets_a_failure, 120)
{
    fail_each("XCCL_SHM_DISABLE", 0);
}

XT_TEST_DEADLINE(first_calls_over_sockets_when_rank_1_meets_a_failure, 120)
{
    fail_each("XCCL_SHM_DISABLE", 1);
}

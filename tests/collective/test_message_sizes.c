/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends and receives of which the two ends name different sizes: an error on both that names both
 * sizes, soon, whichever links the two sizes would go over, on links that are new and on used ones,
 * over shared memory, in tight slots and over sockets, and when the sender has left meanwhile. */
#include <string.h>

#include "world.h"

#define BYTES_MAX 300000
#define SOON_S    10.0

/* A message, and what the other end expects. */
static const struct pair {
    size_t sent, expected;
} pairs[] = {
    {8, 16},
    {16, 8},
    {56, 57},
    {57, 56},
    {1, 224},
    {8, 5000},
    {5000, 8},
    {224, 225},
    {225, 224},
    {8191, 8192},
    {8, 100000},
    {100000, 8},
    {8192, 8193},
    {8193, 8192},
    {300, 262144},
    {100000, 99999},
    {300000, 8192},
    /* Alike as far as the end of a slice: */
    {262145, 262144},
    {262144, 262145},
    {262144, 131072},
};

#define PAIRS (sizeof pairs / sizeof pairs[0])

struct job {
    struct world world;
    const struct pair *pair;
    const char *setting, *value; /* of all ranks; NULL: none */
    int warm; /* 1: messages of all kinds have gone before */
    int leaves; /* 1: the sender does not wait */
    int says_sizes; /* 1: of the message all is known to the receiver */
};

/* Links of all kinds are there then, at different places. */
static void send_some(int rank, xcclComm_t comm, char *data)
{
    static const size_t sizes[] = {8, 8, 8, 300, 20000, 200, 100000, 8};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (rank == 0)
            XT_OK(xcclSend(data, sizes[i], xcclInt8, 1, comm, NULL));
        else
            XT_OK(xcclRecv(data, sizes[i], xcclInt8, 0, comm, NULL));
}

static void expect_error(const struct job *job, xcclComm_t comm, xcclResult_t rc)
{
    char sizes[80];

    XT_CHECK_RC(rc, xcclInvalidUsage);
    snprintf(sizes, sizeof sizes, "rank 1 is in a receive of %zu bytes from rank 0, but rank 0 ",
             job->pair->expected);
    XT_CHECK_HAS(xcclGetLastError(comm), sizes);
    snprintf(sizes, sizeof sizes, " is in a send of %zu bytes", job->pair->sent);
    if (job->says_sizes && !strstr(xcclGetLastError(comm), " or more "))
        XT_CHECK_HAS(xcclGetLastError(comm), sizes);
}

/* Ranks beyond the second are there to be many. */
static void play(int rank, int nranks, void *arg)
{
    struct job *job = arg;
    char *data = calloc(1, BYTES_MAX);
    xcclComm_t comm;
    xcclResult_t left;
    double start;

    XT_CHECK(data != NULL);
    if (job->setting)
        xt_setenv(job->setting, job->value);
    comm = world_join(&job->world, rank, nranks);
    if (job->warm && rank < 2)
        send_some(rank, comm, data);
    start = world_seconds();
    if (rank == 0) {
        xcclResult_t rc = xcclSend(data, job->pair->sent, xcclInt8, 1, comm, NULL);

        if (!job->leaves)
            expect_error(job, comm, rc ? rc : xcclRecv(data, 1, xcclInt8, 1, comm, NULL));
    } else if (rank == 1) {
        if (job->leaves)
            world_meet(&job->world, 2);
        expect_error(job, comm, xcclRecv(data, job->pair->expected, xcclInt8, 0, comm, NULL));
    }
    if (world_seconds() - start > SOON_S)
        XT_FAIL("rank %d knew after %.1f s", rank, world_seconds() - start);
    left = xcclCommDestroy(comm);
    /* Whoever has heard of it by no call may hear of it now. */
    if (left != xcclInvalidUsage || rank == 1 || (rank == 0 && !job->leaves))
        XT_OK(left);
    if (job->leaves && rank == 0)
        world_meet(&job->world, 2);
    free(data);
}

static void play_pairs(int n, size_t count, size_t step, const struct job *like)
{
    xt_set_error_source(world_error);
    xt_setenv("XCCL_TIMEOUT_S", "20");
    for (size_t i = 0; i < count; i += step) {
        struct job *job = mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        XT_CHECK(job != MAP_FAILED);
        *job = *like;
        job->pair = &pairs[i];
        xt_mp_run(n, play, job);
        munmap(job, sizeof *job);
    }
}

XT_TEST_DEADLINE(a_first_message_of_another_size_is_an_error_on_both_ranks, 120)
{
    play_pairs(2, PAIRS, 1, &(struct job){.says_sizes = 1});
}
XT_TEST_DEADLINE(a_later_message_of_another_size_is_an_error_on_both_ranks, 120)
{
    play_pairs(2, PAIRS, 1, &(struct job){.warm = 1, .says_sizes = 1});
}
XT_TEST_DEADLINE(a_message_of_another_size_is_told_when_its_sender_has_left, 120)
{
    play_pairs(2, PAIRS, 1, &(struct job){.leaves = 1, .says_sizes = 1});
}
XT_TEST_DEADLINE(a_message_of_another_size_in_tight_slots_is_an_error_on_both_ranks, 120)
{
    play_pairs(8, PAIRS, 3,
               &(struct job){.setting = "XCCL_BUFFER_BYTES", .value = "1M", .says_sizes = 1});
}
XT_TEST_DEADLINE(a_message_of_another_size_over_sockets_is_an_error_on_both_ranks, 120)
{
    /* A network's slices do not say whether they are the last of a message. */
    play_pairs(2, PAIRS - 3, 1, &(struct job){.setting = "XCCL_SHM_DISABLE", .value = "1"});
}

/* Two of which only the first is wrong, in one group, and the second would fit. */
static void swapped(int rank, int nranks, void *arg)
{
    static char data[2][100000];
    xcclComm_t comm = world_join(arg, rank, nranks);
    xcclResult_t rc;

    XT_OK(xcclGroupStart());
    if (rank == 0) {
        XT_OK(xcclSend(data[0], 8, xcclInt8, 1, comm, NULL));
        XT_OK(xcclSend(data[1], 100000, xcclInt8, 1, comm, NULL));
        XT_OK(xcclRecv(data[0], 8, xcclInt8, 1, comm, NULL));
    } else {
        XT_OK(xcclRecv(data[1], 100000, xcclInt8, 0, comm, NULL));
        XT_OK(xcclRecv(data[0], 8, xcclInt8, 0, comm, NULL));
    }
    rc = xcclGroupEnd();
    XT_CHECK_RC(rc, xcclInvalidUsage);
    XT_CHECK_HAS(xcclGetLastError(comm), "in a send of 8 bytes to rank 1");
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(two_messages_in_the_wrong_order_are_an_error_on_both_ranks)
{
    xt_setenv("XCCL_TIMEOUT_S", "20");
    xt_mp_run(2, swapped, world_create());
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* xcclCommConnectAll: the calls behind it make no connection any more, over shared memory, sockets
 * and both; threads and groups; ranks that do something else. */
#include "world.h"

#include <fcntl.h>
#include <unistd.h>

#define RANKS 4
#define COUNT 300000

static void choose(const char *transport, int rank)
{
    if (strcmp(transport, "sockets") == 0 || (strcmp(transport, "both") == 0 && rank == RANKS - 1))
        xt_setenv("XCCL_SHM_DISABLE", "1");
}

static void send_to_all(xcclComm_t comm, int rank, int *in, int *out)
{
    XT_OK(xcclGroupStart());
    for (int peer = 0; peer < RANKS; peer++) {
        XT_OK(xcclSend(in + peer, 1, xcclInt32, peer, comm, NULL));
        XT_OK(xcclRecv(out + peer, 1, xcclInt32, peer, comm, NULL));
    }
    XT_OK(xcclGroupEnd());
    for (int peer = 0; peer < RANKS; peer++)
        XT_CHECK_INT(out[peer], peer * 1000 + rank);
}

/* Each collective, small and large, and messages. */
static void call_all(xcclComm_t comm, int rank)
{
    int *in = calloc(RANKS * COUNT, sizeof *in), *out = calloc(RANKS * COUNT, sizeof *out);

    XT_CHECK(in && out);
    for (int i = 0; i < RANKS * COUNT; i++)
        in[i] = rank * 1000 + i;
    for (size_t count = 1; count <= COUNT; count = count * 23 + 1) {
        XT_OK(xcclAllReduce(in, out, count, xcclInt32, xcclSum, comm, NULL));
        XT_OK(xcclReduceScatter(in, out, count, xcclInt32, xcclSum, comm, NULL));
        XT_OK(xcclAllGather(in, out, count, xcclInt32, comm, NULL));
        XT_OK(xcclAlltoAll(in, out, count, xcclInt32, comm, NULL));
        XT_OK(xcclBroadcast(in, out, count, xcclInt32, 0, comm, NULL));
        XT_OK(xcclReduce(in, out, count, xcclInt32, xcclSum, 0, comm, NULL));
        XT_OK(xcclGather(in, out, count, xcclInt32, 0, comm, NULL));
        XT_OK(xcclScatter(in, out, count, xcclInt32, 0, comm, NULL));
    }
    XT_OK(xcclBarrier(comm, NULL));
    send_to_all(comm, rank, in, out);
    free(in);
    free(out);
}

/* What the descriptors of this process are, each between two newlines: sockets have numbers that no
 * other ever gets. */
static void list_descriptors(char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "\n");

    for (int fd = 0; fd < 1000; fd++) {
        char path[32], target[256];
        ssize_t length;

        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        length = readlink(path, target, sizeof target - 1);
        if (length <= 0 || strncmp(target, "socket:", 7) != 0)
            continue;
        used += (size_t)snprintf(text + used, bytes - used, "%.*s\n", (int)length, target);
        XT_CHECK(used < bytes);
    }
}

/* How many lines of now are not in before. */
static int count_new(char *now, const char *before)
{
    int count = 0;

    for (char *line = strtok(now, "\n"); line; line = strtok(NULL, "\n")) {
        char needle[260];

        snprintf(needle, sizeof needle, "\n%s\n", line);
        count += !strstr(before, needle);
    }
    return count;
}

/* Messages over each kind of link take none any more. */
static void send_sizes(xcclComm_t comm, int rank, char *data)
{
    static const size_t sizes[] = {8, 300, 100000};
    uint64_t before, after;

    XT_OK(xcclCommMemStats(comm, xcclStatHostMemSlots, &before));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        XT_OK(xcclGroupStart());
        for (int peer = 0; peer < RANKS; peer++) {
            if (peer == rank)
                continue;
            XT_OK(xcclSend(data, sizes[i], xcclInt8, peer, comm, NULL));
            XT_OK(xcclRecv(data + sizes[i], sizes[i], xcclInt8, peer, comm, NULL));
        }
        XT_OK(xcclGroupEnd());
    }
    XT_OK(xcclCommMemStats(comm, xcclStatHostMemSlots, &after));
    XT_CHECK_INT(after, before);
}

static void no_more_connections(int rank, int nranks, void *arg)
{
    static char joined[8192], connected[8192], now[8192], data[200000];
    struct world *world = arg;
    xcclComm_t comm;

    choose(world->text, rank);
    comm = world_join(world, rank, nranks);
    list_descriptors(joined, sizeof joined);
    world_meet(world, nranks);
    XT_OK(xcclCommConnectAll(comm));
    list_descriptors(connected, sizeof connected);
    send_sizes(comm, rank, data);
    call_all(comm, rank);
    XT_OK(xcclCommConnectAll(comm)); /* nothing is left to do */
    list_descriptors(now, sizeof now);
    XT_CHECK_INT(count_new(now, connected), 0);
    if (strcmp(world->text, "sockets") == 0)
        XT_CHECK(count_new(connected, joined) > 0);
    XT_OK(xcclCommDestroy(comm));
}

static void run_over(const char *transport)
{
    struct world *world = world_create();

    world->text = transport;
    xt_mp_run(RANKS, no_more_connections, world);
}

XT_TEST(nothing_is_connected_later_over_shared_memory)
{
    run_over("shared memory");
}
XT_TEST(nothing_is_connected_later_over_sockets)
{
    run_over("sockets");
}
XT_TEST(nothing_is_connected_later_over_both)
{
    run_over("both");
}

XT_TEST(a_thread_that_owns_all_ranks_connects_them_in_a_group)
{
    xcclComm_t comms[RANKS];
    int data[RANKS];

    xt_set_error_source(world_error);
    XT_OK(xcclCommInitAll(comms, RANKS, NULL));
    XT_OK(xcclGroupStart());
    for (int r = 0; r < RANKS; r++)
        XT_OK(xcclCommConnectAll(comms[r]));
    for (int r = 0; r < RANKS; r++) {
        data[r] = r;
        XT_OK(xcclAllReduce(&data[r], &data[r], 1, xcclInt32, xcclSum, comms[r], NULL));
    }
    XT_OK(xcclGroupEnd());
    for (int r = 0; r < RANKS; r++)
        XT_CHECK_INT(data[r], RANKS * (RANKS - 1) / 2);
    for (int r = 0; r < RANKS; r++)
        XT_OK(xcclCommDestroy(comms[r]));
}

/* The log, which is standard error, of a call. One line about what is left out, though there are
 * calls of several sizes, and none that is an error. */
static void connect_and_read(xcclComm_t comm)
{
    static char text[65536];
    FILE *file = tmpfile();
    const char *at = text;
    int usual = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3), told = 0;

    XT_CHECK(file != NULL && usual >= 0 && dup2(fileno(file), STDERR_FILENO) == STDERR_FILENO);
    XT_OK(xcclCommConnectAll(comm));
    XT_CHECK(dup2(usual, STDERR_FILENO) == STDERR_FILENO);
    close(usual);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    XT_CHECK(!strstr(text, "error: ") && !strstr(text, "warn: "));
    for (; (at = strstr(at, "info: no connections are created for alltoall: XCCL_ALGO leaves "));
         told++)
        at += 20;
    XT_CHECK_INT(told, 1);
}

static void leaves_one_out(int rank, int nranks, void *arg)
{
    xcclComm_t comm;
    int in[4] = {rank, rank}, out[4];

    xt_setenv("XCCL_DEBUG", "info");
    xt_setenv("XCCL_ALGO", "all_to_all:^pairwise,bruck,hier");
    comm = world_join(arg, rank, nranks);
    connect_and_read(comm);
    XT_OK(xcclAllReduce(in, out, 2, xcclInt32, xcclSum, comm, NULL));
    XT_CHECK_INT(out[1], nranks * (nranks - 1) / 2);
    XT_CHECK_RC(xcclAlltoAll(in, out, 1, xcclInt32, comm, NULL), xcclInvalidUsage);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(what_settings_leave_no_algorithm_for_is_not_connected_and_harmless)
{
    xt_mp_run(2, leaves_one_out, world_create());
}

static void does_not_take_part(int rank, int nranks, void *arg)
{
    xcclComm_t comm = world_join(arg, rank, nranks);
    int one = 1;

    if (rank == 1)
        XT_CHECK(xcclAllReduce(&one, &one, 1, xcclInt32, xcclSum, comm, NULL) != xcclSuccess);
    else
        XT_CHECK(xcclCommConnectAll(comm) != xcclSuccess);
    XT_CHECK(xcclGetLastError(comm)[0]);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(a_rank_that_calls_something_else_is_an_error_on_all)
{
    xt_setenv("XCCL_TIMEOUT_S", "3");
    xt_mp_run(2, does_not_take_part, world_create());
}

XT_TEST(wrong_communicators_are_refused)
{
    XT_CHECK_RC(xcclCommConnectAll(NULL), xcclInvalidArgument);
    XT_CHECK_HAS(xcclGetLastError(NULL), "xcclCommConnectAll: ");
}

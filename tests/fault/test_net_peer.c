/* SPDX-License-Identifier: BSD-3-Clause */
/* What the user is told when the network between two ranks fails, at work and while joining: the
 * peer's rank and host, the plugin's own words with the peer's address, and what to do. Two network
 * namespaces stand for two hosts; those tests need root and iproute2. */
#include "../collective/two_hosts.h"
#include "../collective/world.h"

#include <dirent.h>
#include <linux/tcp.h> /* newer fields than the C library's */
#include <netinet/in.h>
#include <sys/socket.h>

#define MANUAL XT_BUILD_DIR "/lib/fixtures/libxccl-net-fx-manual.so"
#define RANKS  3
#define BREAKS 1 /* the rank whose connections break */

/* --- connections that break while all processes live --- */

/* Unix: only the plugin has connections. TCP: those that have carried much. */
static int carries_data(int fd)
{
    struct tcp_info info;
    int domain = 0, listens = 0;
    socklen_t bytes = sizeof domain;

    memset(&info, 0, sizeof info);
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) != 0 || listens)
        return 0;
    bytes = sizeof info;
    return domain == AF_UNIX || (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 &&
                                 info.tcpi_bytes_received + info.tcpi_bytes_acked > 1000000);
}

static int break_connections(void)
{
    DIR *folder = opendir("/proc/self/fd");
    const struct dirent *entry;
    int broken = 0;

    XT_CHECK(folder != NULL);
    while ((entry = readdir(folder))) {
        int fd = atoi(entry->d_name);

        if (fd > 2 && carries_data(fd))
            broken += shutdown(fd, SHUT_RDWR) == 0;
    }
    closedir(folder);
    return broken;
}

static void lose_connections(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    struct world_case c = {.count = 2000000, .type = xcclFloat32};
    float *data = calloc(c.count, sizeof *data);
    xcclResult_t rc = xcclSuccess;
    xcclComm_t comm;
    const char *text;

    XT_CHECK(data);
    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xt_setenv("XCCL_SOCKET_UNIX", world->param ? "1" : "0");
    comm = world_join(world, rank, nranks);
    world_all_reduce(comm, rank, nranks, &c);
    world_meet(world, nranks);
    if (rank == BREAKS)
        XT_CHECK(break_connections() > 0);
    for (int i = 0; i < 100 && !rc; i++)
        rc = xcclAllReduce(data, data, c.count, xcclFloat32, xcclSum, comm, NULL);
    XT_CHECK_RC(rc, xcclRemoteError);
    text = xcclGetLastError(comm);
    XT_CHECK_HAS(text, " lost its connection with rank ");
    XT_CHECK_HAS(text, " (host ");
    XT_CHECK_HAS(text, "network plugin socket cannot ");
    XT_CHECK_HAS(text, world->param ? "unix:process " : "127.0.0.1:");
    XT_CHECK_HAS(text, "; check what that rank logged last, and why it ended");
    XT_OK(xcclCommDestroy(comm));
    free(data);
}

XT_TEST(broken_tcp_connection_is_told_with_rank_host_and_address)
{
    xt_mp_run(RANKS, lose_connections, world_create());
}

XT_TEST(broken_unix_connection_is_told_with_rank_host_and_process)
{
    struct world *world = world_create();

    world->param = 1;
    xt_mp_run(RANKS, lose_connections, world);
}

/* --- causes --- */

struct cause {
    struct world world;
    const char *fault, *says, *todo;
};

static void fail_by_fault(int rank, int nranks, void *arg)
{
    struct cause *cause = arg;
    float data[10] = {0};
    xcclResult_t rc = xcclSuccess;
    xcclComm_t comm;

    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_NET_PLUGIN", "fault:socket");
    xt_setenv("XCCL_NET_FAULT", cause->fault);
    comm = world_join(&cause->world, rank, nranks);
    for (int i = 0; i < 100000 && !rc; i++)
        rc = xcclAllReduce(data, data, 10, xcclFloat32, xcclSum, comm, NULL);
    XT_CHECK(rc != xcclSuccess);
    XT_CHECK_HAS(xcclGetLastError(comm), " lost its connection with rank ");
    XT_CHECK_HAS(xcclGetLastError(comm), cause->says);
    XT_CHECK_HAS(xcclGetLastError(comm), cause->todo);
    XT_OK(xcclCommDestroy(comm));
}

static void cause_is_told(const char *fault, const char *says, const char *todo)
{
    struct cause *cause = mmap(NULL, sizeof *cause, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    XT_CHECK(cause != MAP_FAILED);
    xt_set_error_source(world_error);
    cause->fault = fault;
    cause->says = says;
    cause->todo = todo;
    xt_mp_run(2, fail_by_fault, cause);
}

XT_TEST(peer_that_is_gone_is_told_from_a_link_that_is_down)
{
    cause_is_told("seed=1,dead=0.002", "fault injected: the peer has died",
                  "; check what that rank logged last");
    cause_is_told("seed=1,error=0.002", "fault injected: the link has failed",
                  "; check the network between the two hosts");
}

/* --- while joining --- */

static void wait_in_vain(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = NULL;
    xcclUniqueId id;

    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_TIMEOUT_INIT_S", "2");
    xt_setenv("XCCL_NET_PLUGIN", MANUAL);
    if (rank == BREAKS)
        xt_setenv("FX_MANUAL_DEAF", "1");
    xt_allow_leaks("the root stays until its deadline to tell late ranks");
    id = world_id(world, rank, 0);
    XT_CHECK(xcclCommInitRank(&comm, nranks, id, rank) != xcclSuccess);
    /* Rank 1's error, or that of a rank that waits for rank 1: the first deadline decides. */
    XT_CHECK_HAS(xcclGetLastError(NULL), " network connections, the first one with rank ");
    XT_CHECK(strstr(xcclGetLastError(NULL), "rank 1 still waits for ") ||
             strstr(xcclGetLastError(NULL), ", the first one with rank 1 (host "));
    XT_CHECK_HAS(xcclGetLastError(NULL), ", by device unix of plugin fx-manual/xccl1/1; check ");
}

XT_TEST(peer_whose_connection_does_not_come_is_named)
{
    xt_mp_run(RANKS, wait_in_vain, world_create());
}

/* --- two hosts --- */

/* Ranks 0 and 1 on two hosts, at work; then the deed is done to the second; what rank 0 says. */
static const char *happens(const char *deed)
{
    char script[1024];
    const char *output = NULL;

    snprintf(script, sizeof script,
             "export XCCL_NRANKS=2 XCCL_DEBUG=info;"
             "p=\"$1/bin/xccl perf all_reduce -b 64K -e 64K -n 100000000\";"
             "on $a 0 \"$p\" >$3/0 2>&1 & p0=$!; on $b 1 \"$p\" >$3/1 2>&1 & p1=$!;"
             "until grep -q joined $3/0; do kill -0 $p0 || exit 1; sleep 0.02; done; sleep 0.2;"
             "%s; wait $p0; kill -9 $p1; wait $p1; cat $3/0",
             deed);
    XT_CHECK_INT(on_two_hosts(script, &output), 0);
    XT_CHECK_HAS(output, "rank 1 (host ");
    XT_CHECK_HAS(output, ") at 10.77.0.2 ");
    return output;
}

XT_TEST_DEADLINE(rank_killed_on_another_host_is_named_with_its_address, 60)
{
    const char *output = happens("kill -9 $p1");

    XT_CHECK_HAS(output, "is gone: its control connection ended without a closing message; check "
                         "what that rank logged, then destroy the communicator");
}

XT_TEST_DEADLINE(rank_stopped_on_another_host_is_named_with_its_address, 60)
{
    XT_CHECK_HAS(happens("kill -STOP $p1"),
                 "does not respond (stopped, or its host is unreachable); check that its process "
                 "runs and that its host is reachable");
}

XT_TEST_DEADLINE(rank_on_an_unplugged_host_is_named_with_its_address, 60)
{
    XT_CHECK_HAS(happens("ip -n $b link set vb down"), "does not respond");
}

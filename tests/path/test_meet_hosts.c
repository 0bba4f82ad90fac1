/* SPDX-License-Identifier: BSD-3-Clause */
/* Two hosts with two interfaces each, and a router between them that lets any of the 16 sets of
 * pairs of interfaces through: without settings, ranks meet and add up by any pair that reaches, or
 * fail within 5 s with an error that names XCCL_SOCKET_IFNAME. A pair that does not reach either
 * gets no answer or has no route. Rank 0's host makes the unique id; ranks 0 and 2 are on it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "path_hosts.h"
#include "path_stage.h"
#include "xccl.h"
#include "xt.h"

#define RANKS      4 /* 0 and 2 on host A, 1 and 3 on host B */
#define FAIL_S     5.0
#define SCRIPT     4096
#define PAIR(i, j) (1 << (2 * (i) + (j)))

/* Host 0 is the router. */
static const struct path_rail rails[4] = {{1, 0, 0}, {1, 0, 1}, {2, 0, 2}, {2, 0, 3}};

struct shared {
    xcclUniqueId id;
    _Atomic uint32_t made;
    struct {
        int rc;
        double took_s;
        char text[XCCL_ERROR_TEXT_BYTES];
    } ranks[RANKS];
};

/* Interface i of A and j of B. */
static void ends(const struct path_hosts *hosts, int i, int j, char a[PATH_ADDR_BYTES],
                 char b[PATH_ADDR_BYTES])
{
    path_rail_address(hosts, i, 1, 0, a);
    path_rail_address(hosts, 2 + j, 1, 0, b);
}

/* Every address has its way back by its own interface. */
static void host_prepare(const struct path_hosts *hosts, int host)
{
    char script[SCRIPT] = "for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done;";

    for (int k = 0; k < 2; k++) {
        int rail = 2 * (host - 1) + k;
        char own[PATH_ADDR_BYTES], gate[PATH_ADDR_BYTES];
        size_t used = strlen(script);

        path_rail_address(hosts, rail, 1, 0, own);
        path_rail_address(hosts, rail, 0, 0, gate);
        snprintf(script + used, sizeof(script) - used,
                 "ip rule add from %s table %d; ip route add default via %s dev rail%d table %d;",
                 own, 100 + k, gate, rail, 100 + k);
    }
    path_hosts_run(hosts, host, script);
}

static void world_make(struct path_hosts *hosts)
{
    path_hosts_make(hosts, rails, 4);
    path_hosts_run(hosts, 0,
                   "echo 1 > /proc/sys/net/ipv4/ip_forward;"
                   "for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done");
    host_prepare(hosts, 1);
    host_prepare(hosts, 2);
}

/* The router drops what the set does not let through. */
static void router_set(const struct path_hosts *hosts, int pairs)
{
    char script[SCRIPT] = "while ip rule del pref 50 2>/dev/null; do :; done;";

    for (int k = 0; k < 4; k++) {
        char a[PATH_ADDR_BYTES], b[PATH_ADDR_BYTES];
        size_t used = strlen(script);

        ends(hosts, k / 2, k % 2, a, b);
        if (!(pairs & PAIR(k / 2, k % 2)))
            snprintf(script + used, sizeof(script) - used,
                     "ip rule add pref 50 from %s to %s blackhole;"
                     "ip rule add pref 50 from %s to %s blackhole;",
                     a, b, b, a);
    }
    path_hosts_run(hosts, 0, script);
}

/* A host's routes to the other's addresses, by its first interface that reaches there; without one
 * no route, or one that leads into the router's silence. */
static void routes_set(const struct path_hosts *hosts, int host, int pairs, int no_route)
{
    char script[SCRIPT] = "";

    for (int to = 0; to < 2; to++) {
        char far[PATH_ADDR_BYTES], gate[PATH_ADDR_BYTES];
        size_t used = strlen(script);
        int by = 0;

        while (by < 2 && !(pairs & (host == 1 ? PAIR(by, to) : PAIR(to, by))))
            by++;
        path_rail_address(hosts, host == 1 ? 2 + to : to, 1, 0, far);
        path_rail_address(hosts, 2 * (host - 1) + by % 2, 0, 0, gate);
        if (by == 2 && no_route)
            snprintf(script + used, sizeof(script) - used,
                     "ip route del %s/32 2>/dev/null || true;", far);
        else
            snprintf(script + used, sizeof(script) - used, "ip route replace %s/32 via %s;", far,
                     gate);
    }
    path_hosts_run(hosts, host, script);
}

/* All ranks get the sum of what they have. */
static xcclResult_t add_up(xcclComm_t comm, int rank, size_t count)
{
    float *data = calloc(count, sizeof(*data));
    xcclResult_t rc;

    XT_CHECK(data);
    for (size_t i = 0; i < count; i++)
        data[i] = (float)((size_t)rank + i % 100);
    rc = xcclAllReduce(data, data, count, xcclFloat32, xcclSum, comm, NULL);
    for (size_t i = 0; i < count && !rc; i++)
        XT_CHECK(data[i] == (float)(RANKS * (i % 100) + RANKS * (RANKS - 1) / 2));
    free(data);
    return rc;
}

static void join(struct shared *shared, int rank, int pairs)
{
    double begin_s = path_seconds();
    xcclComm_t comm = NULL;
    xcclResult_t rc;

    /* Ranks of A wait for those of B, who may never come. */
    xt_setenv("XCCL_TIMEOUT_INIT_S", pairs || rank % 2 ? "15" : "6");
    xt_setenv("XCCL_TIMEOUT_S", "15");
    rc = xcclCommInitRank(&comm, RANKS, shared->id, rank);
    for (int round = 0; round < 3 && !rc; round++)
        rc = add_up(comm, rank, round == 2 ? 300000 : 100);
    shared->ranks[rank].took_s = path_seconds() - begin_s;
    shared->ranks[rank].rc = (int)rc;
    snprintf(shared->ranks[rank].text, XCCL_ERROR_TEXT_BYTES, "%s",
             rc ? xcclGetLastError(NULL) : "");
    if (!rc)
        XT_CHECK_INT(xcclCommDestroy(comm), xcclSuccess);
}

_Noreturn static void rank_run(const struct path_hosts *hosts, struct shared *shared, int rank,
                               int pairs)
{
    path_hosts_enter(hosts, 1 + rank % 2);
    xt_setenv("XCCL_SOCKET_IFNAME", NULL);
    xt_setenv("XCCL_COMM_ID", NULL);
    if (rank == 0) {
        XT_CHECK_INT(xcclGetUniqueId(&shared->id), xcclSuccess);
        path_word_set(&shared->made, 1);
    }
    while (!path_word_get(&shared->made))
        usleep(200);
    join(shared, rank, pairs);
    _exit(0);
}

static void check(const struct shared *shared, int pairs, const char *mode)
{
    double slowest_s = 0;

    for (int rank = 0; rank < RANKS; rank++) {
        const char *text = shared->ranks[rank].text;
        double took_s = shared->ranks[rank].took_s;

        slowest_s = took_s > slowest_s ? took_s : slowest_s;
        if (pairs && shared->ranks[rank].rc)
            XT_FAIL("pairs %d, %s: rank %d: %s", pairs, mode, rank, text);
        if (!pairs && !shared->ranks[rank].rc)
            XT_FAIL("%s: rank %d joined though no pair reaches", mode, rank);
        if (pairs || rank % 2 == 0)
            continue;
        if (shared->ranks[rank].rc != xcclRemoteError)
            XT_FAIL("%s: rank %d: %s", mode, rank, text);
        XT_CHECK_HAS(text, "XCCL_SOCKET_IFNAME");
        XT_CHECK(took_s <= FAIL_S);
    }
    path_figure("meet: pairs %x, %s: %.2f s", (unsigned)pairs, mode, slowest_s);
}

static void one_set(const struct path_hosts *hosts, int pairs, int no_route)
{
    struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[RANKS];

    XT_CHECK(shared != MAP_FAILED);
    router_set(hosts, pairs);
    routes_set(hosts, 1, pairs, no_route);
    routes_set(hosts, 2, pairs, no_route);
    for (int rank = 0; rank < RANKS; rank++) {
        fflush(NULL);
        pids[rank] = fork();
        XT_CHECK(pids[rank] >= 0);
        if (pids[rank] == 0)
            rank_run(hosts, shared, rank, pairs);
    }
    for (int rank = 0; rank < RANKS; rank++) {
        int status = -1;

        XT_CHECK_INT(waitpid(pids[rank], &status, 0), pids[rank]);
        XT_CHECK_INT(status, 0);
    }
    check(shared, pairs, no_route ? "no route" : "no answer");
    munmap(shared, sizeof(*shared));
}

static void all_sets(int no_route)
{
    struct path_hosts hosts;

    world_make(&hosts);
    for (int pairs = 15; pairs >= 0; pairs--)
        one_set(&hosts, pairs, no_route);
    path_hosts_drop(&hosts);
}

XT_TEST_DEADLINE(jobs_run_over_any_pair_of_interfaces_where_others_do_not_answer, 90)
{
    all_sets(0);
}

XT_TEST_DEADLINE(jobs_run_over_any_pair_of_interfaces_where_others_have_no_route, 90)
{
    all_sets(1);
}

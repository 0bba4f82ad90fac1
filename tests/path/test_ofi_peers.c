/* SPDX-License-Identifier: BSD-3-Clause */
/* A process with hundreds of peers, as on a large node: what each comm of the plugin ofi takes in
 * memory and descriptors is bounded, none of these is inherited by a program, messages pass over
 * all comms, and closing gives all back. A peer's end is in this process too, so there are as many
 * receiving comms as sending ones.
 *
 * XT_PEERS: how many (default 256; over TCP, where a comm takes megabytes, 32). */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "path_ends.h"
#include "path_stage.h"
#include "xt.h"

#define LIBRARY  XT_BUILD_DIR "/lib/xccl/libxccl-net-ofi.so"
#define COMM_FDS 12 /* that a comm may take */
#define FILES    4200 /* of a process that has more than the plugin */

static void raise_limit(int peers)
{
    struct rlimit limit;

    XT_CHECK_INT(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    XT_CHECK_INT(setrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_max < (rlim_t)peers * 2 * COMM_FDS + FILES)
        XT_SKIP("ulimit -H -n is too low");
}

/* Descriptors that a program would inherit. */
static int count_inherited(void)
{
    struct rlimit limit;
    int count = 0;

    XT_CHECK_INT(getrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int fd = 0; fd < (int)limit.rlim_cur; fd++) {
        int flags = fcntl(fd, F_GETFD);

        count += flags >= 0 && !(flags & FD_CLOEXEC);
    }
    return count;
}

static void use(const char *provider, int peers)
{
    void *library = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

    if (access(LIBRARY, R_OK) != 0 || !library)
        XT_SKIP("the plugin was not built, or libfabric1 is not installed");
    dlclose(library);
    raise_limit(peers);
    xt_setenv("XCCL_PLUGIN_PROBE_S", "0");
    xt_setenv("XCCL_OFI_PROVIDER", provider);
    xt_setenv("FI_PROVIDER", "tcp,ofi_rxm,net");
    xt_setenv("FI_OFI_RXM_BUFFER_SIZE", "2048");
    xt_setenv("FI_OFI_RXM_MSG_RX_SIZE", "64");
    xt_set_error_source(xccl_error_text);
}

static void peers_fit(const char *provider, int usual, long comm_bytes_max)
{
    const char *text = getenv("XT_PEERS");
    int peers = text ? atoi(text) : usual, fds, comm_fds, inherited;
    struct path_ends *ends;
    double begin, connected;
    long rss_bytes, comm_bytes;

    XT_CHECK(peers > 0);
    use(provider, peers);
    ends = calloc((size_t)peers, sizeof(*ends));
    XT_CHECK(ends != NULL);
    path_ends_open(&ends[0], LIBRARY, NULL);
    /* What is made once is there afterwards. */
    path_ends_connect(&ends[0]);
    path_ends_transfer(&ends[0], 1);
    path_ends_close(&ends[0], 1);
    fds = xt_entries("/proc/self/fd");
    inherited = count_inherited();
    rss_bytes = path_rss_bytes();
    begin = path_seconds();
    for (int i = 0; i < peers; i++) {
        ends[i].net = ends[0].net;
        ends[i].dev = ends[0].dev;
        path_ends_connect(&ends[i]);
    }
    connected = path_seconds() - begin;
    for (int i = 0; i < peers; i++)
        path_ends_transfer(&ends[i], (uint64_t)i);
    comm_bytes = (path_rss_bytes() - rss_bytes) / (2 * peers);
    comm_fds = (xt_entries("/proc/self/fd") - fds) / (2 * peers);
    path_figure("%d peers over %s: %.1f s to connect; %ld KiB and %d descriptors a comm", peers,
                provider, connected, comm_bytes >> 10, comm_fds);
    XT_CHECK_INT(count_inherited(), inherited);
    for (int i = 0; i < peers; i++)
        path_ends_close(&ends[i], i % 2);
    XT_CHECK_INT(xt_entries("/proc/self/fd"), fds);
    xccl_net_close(ends[0].net);
    free(ends);
    XT_CHECK(comm_fds <= COMM_FDS);
#ifndef XCCL_SANITIZED
    XT_CHECK(comm_bytes <= comm_bytes_max);
#else
    (void)comm_bytes_max;
#endif
}

XT_TEST_DEADLINE(hundreds_of_peers_fit_over_tcp, 120)
{
    peers_fit("tcp;ofi_rxm", 32, 7 << 20);
}

/* As those of hundreds of peers are: the highest ones of the process. */
XT_TEST_DEADLINE(a_connection_above_thousands_of_files_is_not_inherited, 60)
{
    int files[FILES], inherited;
    struct path_ends ends;

    use("tcp;ofi_rxm", 1);
    inherited = count_inherited();
    for (int i = 0; i < FILES; i++) {
        files[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        XT_CHECK(files[i] >= 0);
    }
    path_ends_open(&ends, LIBRARY, NULL);
    path_ends_connect(&ends);
    path_ends_transfer(&ends, 1);
    XT_CHECK_INT(count_inherited(), inherited);
    path_ends_close(&ends, 1);
    xccl_net_close(ends.net);
    for (int i = 0; i < FILES; i++)
        close(files[i]);
}

XT_TEST_DEADLINE(hundreds_of_peers_fit_over_net, 120)
{
    xt_allow_leaks("libfabric's net loses 2.4 KB a connection (1.17)");
    peers_fit("net", 256, 128 << 10);
}

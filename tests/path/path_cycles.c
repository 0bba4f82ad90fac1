/* SPDX-License-Identifier: BSD-3-Clause */
/* A cycle opens both ends of a connection in this process, passes messages and closes it; the ends
 * take turns in closing first, so that the addresses which TCP keeps for a while afterwards are
 * those of either. Each fifty cycles the plugin's instance is another one. */
#include "path_cycles.h"

#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "path_ends.h"
#include "path_stage.h"

#define AN_INSTANCE 50 /* cycles, then there is a new one */
#define RSS_BYTES   (1 << 20) /* that it may grow */
/* What leaks leaks in each round. What grew in one of them alone is a heap in which things were
 * given back in another order than before: libfabric has 38 MiB in it. */
#define ROUNDS 3

/* ---- what there is ---- */

struct usage {
    int fds, threads;
    long rss_bytes;
};

static struct usage usage_now(void)
{
    return (struct usage){xt_entries("/proc/self/fd"), xt_entries("/proc/self/task"),
                          path_rss_bytes()};
}

static int grew_since(const struct usage *before, const struct usage *after)
{
#ifdef XCCL_SANITIZED
    return 0; /* sanitizers keep what was freed */
#endif
    return after->rss_bytes > before->rss_bytes + RSS_BYTES;
}

/* ---- a cycle ---- */

static void own_network(void)
{
    struct ifreq request = {.ifr_name = "lo"};
    int fd;

    if (unshare(CLONE_NEWNET) != 0)
        return;
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    XT_CHECK(fd >= 0);
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    XT_CHECK_INT(ioctl(fd, SIOCSIFFLAGS, &request), 0);
    close(fd);
}

/* After whole instances another one has done one cycle, so that rounds end alike. */
static void round_run(struct path_ends *ends, const char *item, const char *device, int cycles)
{
    for (int i = 0; i < cycles; i++) {
        if (i % AN_INSTANCE == AN_INSTANCE - 1) {
            xccl_net_close(ends->net);
            path_ends_open(ends, item, device);
        }
        path_ends_connect(ends);
        if (i % 4 < 2)
            path_ends_wait_fds(ends);
        path_ends_transfer(ends, (uint64_t)i);
        path_ends_close(ends, i % 2);
    }
}

void path_cycles(const char *item, const char *device, const char *what)
{
    const char *text = getenv("XT_CYCLES");
    int cycles = text ? atoi(text) : 300;
    int grew = 1;
    struct path_ends ends;

    own_network();
    xt_set_error_source(xccl_error_text);
    path_ends_open(&ends, item, device);
    /* When two instances have come and gone, what is made once is there. */
    round_run(&ends, item, device, 2 * AN_INSTANCE);
    for (int round = 0; round < ROUNDS && grew; round++) {
        struct usage before = usage_now(), after;
        double begin = path_seconds();

        round_run(&ends, item, device, cycles);
        after = usage_now();
        path_figure("cycles: %d over %s: %.0f us each; %d descriptors, %d threads, memory %+ld KiB",
                    cycles, what, (path_seconds() - begin) * 1e6 / cycles, after.fds - before.fds,
                    after.threads - before.threads, (after.rss_bytes - before.rss_bytes) / 1024);
        XT_CHECK_INT(after.fds, before.fds);
        XT_CHECK_INT(after.threads, before.threads);
        grew = grew_since(&before, &after);
    }
    xccl_net_close(ends.net);
    XT_CHECK(!grew);
}

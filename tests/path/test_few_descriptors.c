/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks with few descriptors, over each network plugin: they join and sum, or get an error that
 * says so. No process ends by a signal, though UCX asserts that it gets the descriptors it wants.
 *
 * Thread: one in each rank, and the library's. */
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../collective/world.h"

#define RANKS    3
#define FEWEST   16
#define MOST     62 /* enough for all plugins */
#define STEP     4
#define STEP_OFI 14 /* libfabric takes a second to open */

/* Between the processes. */
struct trial {
    struct world world;
    rlim_t fds;
    _Atomic int sums, errors;
};

static void note_error(struct trial *trial, const char *text)
{
    if (strlen(text) < 20)
        XT_FAIL("with %d descriptors the error is: %s", (int)trial->fds, text);
    atomic_fetch_add_explicit(&trial->errors, 1, memory_order_relaxed);
}

static void rank_main(int rank, int nranks, void *arg)
{
    struct trial *trial = arg;
    xcclUniqueId id = world_id(&trial->world, rank, 0);
    struct rlimit limit = {.rlim_cur = trial->fds, .rlim_max = trial->fds};
    xcclComm_t comm = NULL;
    int value = rank;

    xt_allow_leaks("libraries of others keep descriptors and memory");
    XT_CHECK_INT(setrlimit(RLIMIT_NOFILE, &limit), 0);
    if (xcclCommInitRank(&comm, nranks, id, rank) != xcclSuccess) {
        note_error(trial, xcclGetLastError(NULL));
        return;
    }
    if (xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL) != xcclSuccess) {
        note_error(trial, xcclGetLastError(comm));
        (void)xcclCommAbort(comm);
        return;
    }
    XT_CHECK_INT(value, RANKS * (RANKS - 1) / 2);
    atomic_fetch_add_explicit(&trial->sums, 1, memory_order_relaxed);
    (void)xcclCommDestroy(comm);
}

/* Gives how many ranks had a sum. */
static int with_descriptors(int fds)
{
    struct trial *trial = mmap(NULL, sizeof *trial, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int statuses[RANKS], sums;
    struct xt_mp *mp;

    XT_CHECK(trial != MAP_FAILED);
    trial->fds = (rlim_t)fds;
    mp = xt_mp_start(RANKS, rank_main, trial);
    xt_mp_wait(mp, statuses);
    for (int i = 0; i < RANKS; i++) {
        if (WIFSIGNALED(statuses[i]))
            XT_FAIL("with %d descriptors rank %d ends by signal %d", fds, i, WTERMSIG(statuses[i]));
        if (WEXITSTATUS(statuses[i]))
            XT_FAIL("with %d descriptors rank %d ends with status %d", fds, i,
                    WEXITSTATUS(statuses[i]));
    }
    sums = atomic_load_explicit(&trial->sums, memory_order_relaxed);
    XT_CHECK_INT(sums + atomic_load_explicit(&trial->errors, memory_order_relaxed), RANKS);
    munmap(trial, sizeof *trial);
    return sums;
}

static void with_few(const char *plugin, int step)
{
    uint64_t dice = xt_seed();
    char library[256];

    snprintf(library, sizeof library, XT_BUILD_DIR "/lib/xccl/libxccl-net-%s.so", plugin);
    if (access(library, R_OK) != 0)
        XT_SKIP("plugin %s was not built: the headers of its library are missing", plugin);
    xt_set_error_source(world_error);
    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xt_setenv("XCCL_NET_PLUGIN", plugin);
    xt_setenv("XCCL_TIMEOUT_S", "10");
    xt_setenv("XCCL_TIMEOUT_INIT_S", "10");
    xt_setenv("UCX_TLS", "tcp");
    xt_setenv("UCX_HANDLE_ERRORS", "none");
    xt_setenv("XCCL_OFI_PROVIDER", "tcp;ofi_rxm");
    for (int fds = FEWEST + (int)(xt_random(&dice) % (uint64_t)step); fds < MOST; fds += step)
        (void)with_descriptors(fds);
    XT_CHECK_INT(with_descriptors(200), RANKS);
}

XT_TEST_DEADLINE(few_descriptors_over_sockets_are_an_error_or_enough, 120)
{
    with_few("socket", STEP);
}

XT_TEST_DEADLINE(few_descriptors_over_ofi_are_an_error_or_enough, 120)
{
    with_few("ofi", STEP_OFI);
}

XT_TEST_DEADLINE(few_descriptors_over_ucx_are_an_error_or_enough, 120)
{
    with_few("ucx", STEP);
}

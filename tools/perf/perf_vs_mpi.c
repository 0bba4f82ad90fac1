/* SPDX-License-Identifier: BSD-3-Clause */
/* XCCL's side of --vs-mpi. Rank 0 starts xccl-perf-mpi, takes in its ranks, sends orders, waits for
 * answers. MPI's ranks and the other ones of XCCL connect to a socket of rank 0's that has no file,
 * and only processes of the same user are taken. Every wait has a deadline, and ends when MPI's
 * launcher does.
 *
 * Thread: the rank's. */
#include "perf/perf_vs_mpi.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/param.h"

#define PROGRAM       "xccl-perf-mpi"
#define START_MS      60000
#define STOP_MS       5000
#define SLICE_MS      100 /* how often the launcher is looked at */
#define PATH_BYTES    4096
#define NUMBER_BYTES  32
#define NO_TIMEOUT_MS (UINT64_C(24) * 3600 * 1000)
#define INSTALL                                                                                    \
    "install MPI with its headers (Debian: openmpi-bin libopenmpi-dev), and build XCCL again"

extern char **environ;

struct xccl_perf_mpi {
    pid_t pid; /* the launcher; 0: it has ended and been waited for */
    int listener;
    int count, arrived; /* of both kinds */
    struct pollfd *ranks; /* connections of MPI's */
    int *sleepers; /* of XCCL's ranks from 1 on; on these the own one alone, the first */
    int wait_status;
    char software[96];
};

/* ---- starting ---- */

/* Beside the library, where its other helper is. */
static xcclResult_t find_program(char *path_out, size_t bytes)
{
    Dl_info info;
    const char *slash = NULL;
    int used = 0;

    if (!dladdr((void *)(uintptr_t)xcclGetVersion, &info) || !info.dli_fname)
        return xccl_fail(xcclInternalError, 0, NULL, "--vs-mpi: cannot find libxccl.so");
    slash = strrchr(info.dli_fname, '/');
    used = snprintf(path_out, bytes, "%.*s/xccl/" PROGRAM,
                    slash ? (int)(slash - info.dli_fname) : 1, slash ? info.dli_fname : ".");
    if (used >= 0 && (size_t)used < bytes && access(path_out, X_OK) == 0)
        return xcclSuccess;
    return xccl_fail(xcclInvalidUsage, errno, INSTALL,
                     "--vs-mpi: there is no %s, which is built only if CMake finds MPI", path_out);
}

/* A socket with a name of the kernel's choice; the name as hex digits. */
static xcclResult_t open_listener(struct xccl_perf_mpi *mpi, char *name_out)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    socklen_t used = sizeof(addr);

    mpi->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (mpi->listener < 0 ||
        bind(mpi->listener, (struct sockaddr *)&addr, sizeof(addr.sun_family)) ||
        getsockname(mpi->listener, (struct sockaddr *)&addr, &used) ||
        listen(mpi->listener, 2 * mpi->count))
        return xccl_fail(xcclSystemError, errno, "raise ulimit -n",
                         "--vs-mpi: cannot open a socket for MPI's ranks");
    xccl_perf_mpi_name(&addr, used, name_out);
    return xcclSuccess;
}

/* Its standard output is our error output: the table stays a table. */
static xcclResult_t spawn(char *const *argv, pid_t *pid_out)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none;
    int error = 0;

    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    error = posix_spawn(pid_out, argv[0], &actions, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    if (!error)
        return xcclSuccess;
    *pid_out = 0;
    return xccl_fail(xcclSystemError, error, "raise ulimit -u", "--vs-mpi: cannot start %s",
                     argv[0]);
}

int xccl_perf_mpi_look(void)
{
    char path[PATH_BYTES], word[] = "look";
    char *argv[] = {path, word, NULL};
    int status = -1;
    pid_t pid = 0;

    if (find_program(path, sizeof(path)) || spawn(argv, &pid)) {
        fprintf(stderr, "xccl perf: %s\n", xccl_error_text());
        return 0;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return status == 0;
}

/* 1 when the launcher has ended. */
static int has_ended(struct xccl_perf_mpi *mpi)
{
    if (mpi->pid && waitpid(mpi->pid, &mpi->wait_status, WNOHANG) == mpi->pid)
        mpi->pid = 0;
    return mpi->pid == 0;
}

static xcclResult_t tell_end(const struct xccl_perf_mpi *mpi)
{
    int status = mpi->wait_status;

    if (WIFSIGNALED(status))
        return xccl_fail(xcclRemoteError, 0, NULL,
                         "--vs-mpi: MPI's launcher was ended by signal %d", WTERMSIG(status));
    return xccl_fail(xcclRemoteError, 0, "the lines above say why",
                     "--vs-mpi: MPI's launcher has ended with status %d", WEXITSTATUS(status));
}

/* Where the connection of a rank is kept. */
static int *place_of(struct xccl_perf_mpi *mpi, const struct xccl_perf_mpi_hello *hello)
{
    return hello->is_xccl ? &mpi->sleepers[hello->rank] : &mpi->ranks[hello->rank].fd;
}

/* Takes in one that has connected: one of this user's, and a rank that has not come yet. */
static void take_rank(struct xccl_perf_mpi *mpi)
{
    struct xccl_perf_mpi_hello hello = {0};
    struct timeval limit = {.tv_sec = 1};
    struct ucred who = {0};
    socklen_t used = sizeof(who);
    int fd = accept4(mpi->listener, NULL, NULL, SOCK_CLOEXEC);

    if (fd < 0)
        return;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &used) || who.uid != geteuid() ||
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) ||
        recv(fd, &hello, sizeof(hello), 0) != (ssize_t)sizeof(hello) ||
        hello.magic != XCCL_PERF_MPI_MAGIC || hello.nranks != mpi->count || hello.rank < 0 ||
        hello.rank >= mpi->count || *place_of(mpi, &hello) >= 0) {
        close(fd);
        return;
    }
    *place_of(mpi, &hello) = fd;
    mpi->arrived++;
    if (hello.rank == 0)
        snprintf(mpi->software, sizeof(mpi->software), "%.*s", (int)sizeof(hello.software) - 1,
                 hello.software);
}

static xcclResult_t await_ranks(struct xccl_perf_mpi *mpi)
{
    uint64_t end_ns = xccl_clock_ns() + START_MS * XCCL_NS_PER_MS;
    struct pollfd listener = {.fd = mpi->listener, .events = POLLIN};

    while (mpi->arrived < 2 * mpi->count - 1) {
        if (has_ended(mpi))
            return tell_end(mpi);
        if (xccl_clock_ns() > end_ns)
            return xccl_fail(xcclTimeout, 0, "read the lines above, and try mpirun by hand",
                             "--vs-mpi: not all of MPI's ranks have connected within %d s",
                             START_MS / 1000);
        if (poll(&listener, 1, SLICE_MS) > 0)
            take_rank(mpi);
    }
    return xcclSuccess;
}

static struct xccl_perf_mpi *create(int count)
{
    struct xccl_perf_mpi *mpi = xccl_calloc(1, sizeof(*mpi));

    if (!mpi)
        return NULL;
    mpi->listener = -1;
    mpi->count = count;
    mpi->ranks = xccl_calloc((size_t)count, sizeof(*mpi->ranks));
    mpi->sleepers = xccl_calloc((size_t)count, sizeof(*mpi->sleepers));
    for (int i = 0; i < count && mpi->ranks && mpi->sleepers; i++) {
        mpi->ranks[i] = (struct pollfd){.fd = -1, .events = POLLIN};
        mpi->sleepers[i] = -1;
    }
    if (mpi->ranks && mpi->sleepers)
        return mpi;
    xccl_free(mpi->ranks);
    xccl_free(mpi->sleepers);
    xccl_free(mpi);
    return NULL;
}

/* Rank 0: opens what the others connect to. */
static xcclResult_t prepare(struct xccl_perf_job *job, char *program_out, char *name_out)
{
    for (int i = 1; i < job->nranks; i++) {
        if (strcmp(job->places[i].host, job->places[0].host) != 0)
            return xccl_fail(xcclInvalidUsage, 0, "start all ranks on one host",
                             "--vs-mpi starts MPI's ranks on this host, but rank %d is on %s", i,
                             job->places[i].host);
    }
    if (find_program(program_out, PATH_BYTES) != xcclSuccess)
        return xcclInvalidUsage;
    return open_listener(job->mpi, name_out);
}

static xcclResult_t start_launcher(struct xccl_perf_job *job, char *path, char *name, size_t bytes)
{
    char count[NUMBER_BYTES], room[NUMBER_BYTES], word[] = "start";
    char *argv[] = {path, word, count, name, room, NULL};
    xcclResult_t rc = xcclSuccess;

    snprintf(count, sizeof(count), "%d", job->nranks);
    snprintf(room, sizeof(room), "%zu", bytes);
    rc = spawn(argv, &job->mpi->pid);
    if (!rc)
        rc = await_ranks(job->mpi);
    snprintf(job->mpi_library, sizeof(job->mpi_library), "%s", job->mpi->software);
    return rc;
}

xcclResult_t xccl_perf_mpi_start(struct xccl_perf_job *job, size_t bytes)
{
    char path[PATH_BYTES], name[XCCL_PERF_MPI_NAME_BYTES] = "";
    struct xccl_perf_mpi_hello hello = {
        .magic = XCCL_PERF_MPI_MAGIC, .is_xccl = 1, .rank = job->rank, .nranks = job->nranks};
    xcclResult_t rc = xcclSuccess;

    job->mpi = create(job->nranks);
    if (!job->mpi)
        return xccl_fail(xcclSystemError, 0, NULL, "--vs-mpi: no memory");
    if (job->rank == 0)
        rc = prepare(job, path, name);
    if (!rc)
        rc = xccl_perf_exchange(job, name, sizeof(name) / sizeof(uint32_t));
    if (rc)
        return rc;
    memcpy(name, job->exchange[1], sizeof(name));
    if (job->rank == 0)
        return start_launcher(job, path, name, bytes);
    job->mpi->sleepers[0] = xccl_perf_mpi_connect(name, &hello);
    return job->mpi->sleepers[0] >= 0
               ? xcclSuccess
               : xccl_fail(xcclSystemError, errno, NULL, "--vs-mpi: rank %d cannot reach rank 0",
                           job->rank);
}

/* ---- the end ---- */

/* 1 when the launcher has ended within that time. */
static int await_end(struct xccl_perf_mpi *mpi, uint64_t ms)
{
    const struct timespec nap = {.tv_nsec = 5 * (long)XCCL_NS_PER_MS};
    uint64_t end_ns = xccl_clock_ns() + ms * XCCL_NS_PER_MS;

    while (!has_ended(mpi)) {
        if (xccl_clock_ns() > end_ns)
            return 0;
        (void)nanosleep(&nap, NULL);
    }
    return 1;
}

/* Ranks that lose their connection end, and with them the launcher. */
void xccl_perf_mpi_stop(struct xccl_perf_mpi *mpi)
{
    if (!mpi)
        return;
    for (int i = 0; i < mpi->count; i++) {
        if (mpi->ranks[i].fd >= 0)
            close(mpi->ranks[i].fd);
        if (mpi->sleepers[i] >= 0)
            close(mpi->sleepers[i]);
    }
    if (mpi->listener >= 0)
        close(mpi->listener);
    if (!await_end(mpi, mpi->arrived == 2 * mpi->count - 1 ? STOP_MS : 0)) {
        kill(mpi->pid, SIGTERM);
        if (!await_end(mpi, STOP_MS))
            kill(mpi->pid, SIGKILL);
        while (mpi->pid && waitpid(mpi->pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
    xccl_free(mpi->ranks);
    xccl_free(mpi->sleepers);
    xccl_free(mpi);
}

const char *xccl_perf_mpi_library(const struct xccl_perf_mpi *mpi)
{
    return mpi->software;
}

/* ---- orders ---- */

/* Waits for an answer of the first rank, as long as the other ranks of XCCL would. */
static xcclResult_t await_answer(struct xccl_perf_mpi *mpi, struct xccl_perf_mpi_answer *answer)
{
    uint64_t timeout_s = (uint64_t)xccl_param_int(XCCL_P_TIMEOUT_S);
    uint64_t end_ns = xccl_clock_ns() +
                      (timeout_s ? timeout_s * 1000 : NO_TIMEOUT_MS) * XCCL_NS_PER_MS;

    for (;;) {
        int ready = poll(mpi->ranks, (nfds_t)mpi->count, SLICE_MS);

        if (ready > 0 && mpi->ranks[0].revents & POLLIN) {
            ssize_t got = recv(mpi->ranks[0].fd, answer, sizeof(*answer), MSG_DONTWAIT);

            if (got == (ssize_t)sizeof(*answer))
                return xcclSuccess;
        }
        /* A rank that has closed its connection does not come back. */
        if (has_ended(mpi) || (ready > 0 && await_end(mpi, STOP_MS)))
            return tell_end(mpi);
        if (ready > 0)
            return xccl_fail(xcclRemoteError, 0, "the lines above say why",
                             "--vs-mpi: an MPI rank has ended");
        if (xccl_clock_ns() > end_ns)
            return xccl_fail(xcclTimeout, 0, "raise -T",
                             "--vs-mpi: MPI's ranks did not finish in time");
    }
}

static xcclResult_t run_order(struct xccl_perf_mpi *mpi, const struct xccl_perf_mpi_order *order,
                              struct xccl_perf_mpi_answer *answer)
{
    for (int i = 0; i < mpi->count; i++) {
        if (send(mpi->ranks[i].fd, order, sizeof(*order), MSG_NOSIGNAL) != (ssize_t)sizeof(*order))
            return xccl_fail(xcclRemoteError, errno, "the lines above say why",
                             "--vs-mpi: MPI rank %d has ended", i);
    }
    return await_answer(mpi, answer);
}

/* The other ranks of XCCL, until MPI's have done. After an error of rank 0, which closes it, the
 * next call tells which. */
static xcclResult_t sleep_on(struct xccl_perf_mpi *mpi)
{
    char word = 0;

    while (recv(mpi->sleepers[0], &word, sizeof(word), 0) < 0 && errno == EINTR)
        continue;
    return xcclSuccess;
}

static xcclResult_t wake(struct xccl_perf_mpi *mpi)
{
    const char word = 1;

    for (int i = 1; i < mpi->count; i++)
        (void)send(mpi->sleepers[i], &word, sizeof(word), MSG_NOSIGNAL);
    return xcclSuccess;
}

xcclResult_t xccl_perf_mpi_round(struct xccl_perf_job *job, const struct xccl_perf_shape *shape,
                                 int in_place, struct xccl_perf_mpi_answer *answer_io)
{
    const struct xccl_perf_options *options = job->options;
    int is_first = answer_io->order.magic == 0;
    struct xccl_perf_mpi_order order = {
        .magic = XCCL_PERF_MPI_MAGIC,
        .coll = (int32_t)(job->coll - xccl_perf_colls),
        .type = job->type,
        .op = job->op,
        .root = job->root,
        .in_place = in_place,
        .exact = !is_first || options->iters_given,
        .iters = is_first ? options->iters : answer_io->order.iters,
        .warmup_iters = options->warmup_iters,
        .group_calls = options->group_calls,
        .check_runs = is_first ? options->check_runs : 0,
        .bytes = shape->bytes,
    };
    xcclResult_t rc = xcclSuccess;

    if (job->rank != 0)
        return sleep_on(job->mpi);
    if (is_first || answer_io->time_us > 0)
        rc = run_order(job->mpi, &order, answer_io);
    return rc ? rc : wake(job->mpi);
}

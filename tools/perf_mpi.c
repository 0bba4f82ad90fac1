/* SPDX-License-Identifier: BSD-3-Clause */
/* xccl-perf-mpi: MPI's side of `xccl perf --vs-mpi`, which starts it; it is XCCL's own helper.
 *
 *   xccl-perf-mpi look                      says whether MPI's launcher is there
 *   xccl-perf-mpi start NRANKS NAME BYTES   becomes MPI's launcher with so many of
 *   xccl-perf-mpi rank NAME BYTES           which carries out orders that come by the socket NAME
 *
 * A rank measures as `xccl perf` does: warm-up, then batches of calls that grow until one takes
 * 20 ms, the slowest rank's time; and it checks the same data. Between orders it sleeps.
 *
 * Thread: the program's only one. */
#include "perf_mpi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/os.h"
#include "perf_vs_mpi.h"

#define BATCHES_MAX 16
#define ARGS_MAX    16
#define PATH_BYTES  4096
#define EXIT_ERROR  1
#define EXIT_USAGE  2

struct rank {
    struct xccl_perf_options options;
    struct xccl_perf_job job;
    struct perf_mpi_call call;
    int fd;
};

/* ---- the launcher ---- */

static void add(char **argv, int *count, const char *word)
{
    argv[(*count)++] = (char *)(uintptr_t)word; /* exec takes char *, and writes to none */
}

#ifdef OPEN_MPI
static const char *const launchers[] = {"mpirun.openmpi", "mpirun", "mpiexec", NULL};
#define PACKAGE "openmpi-bin"
#else
static const char *const launchers[] = {"mpirun.mpich", "mpiexec.hydra", "mpirun", "mpiexec", NULL};
#define PACKAGE "mpich"
#endif

/* The file of a program in PATH; 1 when there is one. */
static int find_in_path(const char *program, char *path_out, size_t bytes)
{
    const char *at = getenv("PATH");

    while (at && *at) {
        int length = (int)strcspn(at, ":");
        int used = snprintf(path_out, bytes, "%.*s/%s", length, at, program);

        if (length && used > 0 && (size_t)used < bytes && access(path_out, X_OK) == 0)
            return 1;
        at += length;
        at += *at == ':';
    }
    return 0;
}

/* The launcher of the MPI that this program was built with; 0 after a message. */
static int find_launcher(char *path_out, size_t bytes)
{
    for (int i = 0; launchers[i]; i++) {
        if (find_in_path(launchers[i], path_out, bytes))
            return 1;
    }
    fprintf(stderr,
            "xccl perf: --vs-mpi: there is no %s in PATH; install MPI's launcher (Debian: " PACKAGE
            "), or put it into PATH\n",
            launchers[1]);
    return 0;
}

/* Open MPI's flags: it refuses root and more ranks than cores unless it is told otherwise. */
static void add_flags(char **argv, int *count, const char *nranks)
{
#ifdef OPEN_MPI
    if (geteuid() == 0)
        add(argv, count, "--allow-run-as-root");
    add(argv, count, "--oversubscribe");
    if (strtol(nranks, NULL, 10) > xccl_os_cores()) {
        add(argv, count, "--mca");
        add(argv, count, "mpi_yield_when_idle");
        add(argv, count, "1");
    }
#endif
    add(argv, count, "-n");
    add(argv, count, nranks);
}

/* Returns only after an error. */
static int start(const char *nranks, const char *name, const char *bytes)
{
    char launcher[PATH_BYTES], self[PATH_BYTES];
    char *argv[ARGS_MAX + 1] = {NULL};
    ssize_t used = readlink("/proc/self/exe", self, sizeof(self) - 1);
    int count = 1;

    if (!find_launcher(launcher, sizeof(launcher)))
        return EXIT_ERROR;
    argv[0] = launcher;
    self[used < 0 ? 0 : used] = '\0';
    add_flags(argv, &count, nranks);
    add(argv, &count, self);
    add(argv, &count, "rank");
    add(argv, &count, name);
    add(argv, &count, bytes);
    execv(launcher, argv);
    fprintf(stderr, "xccl perf: --vs-mpi: cannot start %s: %s\n", launcher, strerror(errno));
    return EXIT_ERROR;
}

/* ---- the socket ---- */

static int open_socket(const char *name, const struct rank *rank)
{
    struct xccl_perf_mpi_hello hello = {
        .magic = XCCL_PERF_MPI_MAGIC, .rank = rank->job.rank, .nranks = rank->job.nranks};
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0, fd = -1;

    MPI_Get_library_version(version, &length);
    version[strcspn(version, ",\n")] = '\0';
    snprintf(hello.library, sizeof(hello.library), "%.*s", (int)sizeof(hello.library) - 1, version);
    fd = xccl_perf_mpi_connect(name, &hello);
    if (fd < 0)
        fprintf(stderr, "xccl-perf-mpi: cannot reach xccl perf: %s\n", strerror(errno));
    return fd;
}

/* ---- measuring ---- */

/* The time of iters calls on the slowest rank; the ranks meet before. */
static double time_batch(const struct perf_mpi_call *call, int64_t calls)
{
    double start_s = 0, own_s = 0, slowest_s = 0, one = 1, ranks = 0;

    MPI_Allreduce(&one, &ranks, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    start_s = MPI_Wtime();
    for (int64_t i = 0; i < calls; i++)
        perf_mpi_call_run(call);
    own_s = MPI_Wtime() - start_s;
    MPI_Allreduce(&own_s, &slowest_s, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest_s * 1e6;
}

static void measure(struct rank *rank, const struct xccl_perf_mpi_order *order,
                    struct xccl_perf_mpi_answer *answer)
{
    int64_t next = order->iters;
    double us = 0;

    for (int64_t i = 0; i < order->warmup_iters; i++)
        perf_mpi_call_run(&rank->call);
    for (int batch = 0; batch < BATCHES_MAX && next; batch++) {
        answer->order.iters = next;
        us = time_batch(&rank->call, next * order->group_calls);
        next = order->exact ? 0 : xccl_perf_next_iters(next, us);
    }
    answer->time_us = us / (double)(answer->order.iters * order->group_calls);
}

/* What this rank has received; MPI promises nothing for the rest of a buffer. */
static void check(struct rank *rank, const struct xccl_perf_mpi_order *order,
                  const struct xccl_perf_shape *shape, struct xccl_perf_mpi_answer *answer)
{
    struct xccl_perf_job *job = &rank->job;
    struct xccl_perf_buffers at = xccl_perf_buffers_of(job, shape, order->in_place);
    int64_t own = 0;

    answer->wrong = -1;
    if (order->check_runs == 0 || job->coll->empty)
        return;
    if (job->coll->reduces && job->coll->send_all && order->in_place)
        at.recv = job->recv;
    for (int64_t i = 0; i < order->check_runs; i++) {
        xccl_perf_check_begin(job, shape, order->in_place);
        perf_mpi_call_run(&rank->call);
        own += xccl_perf_check_blocks(job, shape, at.recv);
    }
    answer->wrong = 0;
    MPI_Allreduce(&own, &answer->wrong, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
}

static void carry_out(struct rank *rank, const struct xccl_perf_mpi_order *order,
                      struct xccl_perf_mpi_answer *answer)
{
    struct xccl_perf_job *job = &rank->job;
    struct xccl_perf_shape shape;

    answer->order = *order;
    job->coll = &xccl_perf_colls[order->coll];
    job->type = (xcclDataType_t)order->type;
    job->op = (xcclRedOp_t)order->op;
    job->root = order->root;
    shape = xccl_perf_shape_of(job, order->bytes);
    if (!perf_mpi_call_init(&rank->call, job, &shape, order->in_place))
        return;
    xccl_perf_check_begin(job, &shape, order->in_place);
    measure(rank, order, answer);
    check(rank, order, &shape, answer);
}

/* Until xccl perf closes its end. */
static int serve(struct rank *rank)
{
    struct xccl_perf_mpi_order order;
    ssize_t got = 0;

    while ((got = recv(rank->fd, &order, sizeof(order), 0)) == (ssize_t)sizeof(order)) {
        struct xccl_perf_mpi_answer answer = {.wrong = -1};

        if (order.magic != XCCL_PERF_MPI_MAGIC)
            return EXIT_ERROR;
        carry_out(rank, &order, &answer);
        if (rank->job.rank == 0 && send(rank->fd, &answer, sizeof(answer), MSG_NOSIGNAL) < 0)
            return EXIT_ERROR;
    }
    return got == 0 ? 0 : EXIT_ERROR;
}

static int rank_init(struct rank *rank, const char *name, const char *bytes)
{
    rank->job.options = &rank->options;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank->job.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &rank->job.nranks);
    if (xccl_perf_job_init(&rank->job, strtoull(bytes, NULL, 10)) != xcclSuccess) {
        fprintf(stderr, "xccl-perf-mpi: %s\n", xccl_error_text());
        return 0;
    }
    for (int i = 0; i < XCCL_PERF_BLOCKS; i++) {
        rank->call.blocks[i] = xccl_calloc((size_t)rank->job.nranks, sizeof(int));
        if (!rank->call.blocks[i])
            return 0;
    }
    rank->fd = open_socket(name, rank);
    return rank->fd >= 0;
}

static int rank_main(const char *name, const char *bytes)
{
    static struct rank rank;
    int status = EXIT_ERROR;

    rank.fd = -1;
    MPI_Init(NULL, NULL);
    if (!rank_init(&rank, name, bytes))
        MPI_Abort(MPI_COMM_WORLD, EXIT_ERROR);
    status = serve(&rank);
    for (int i = 0; i < XCCL_PERF_BLOCKS; i++)
        xccl_free(rank.call.blocks[i]);
    xccl_perf_job_fini(&rank.job);
    close(rank.fd);
    MPI_Finalize();
    return status;
}

int main(int argc, char **argv)
{
    char launcher[PATH_BYTES];

    if (argc == 2 && strcmp(argv[1], "look") == 0)
        return find_launcher(launcher, sizeof(launcher)) ? 0 : EXIT_ERROR;
    if (argc == 5 && strcmp(argv[1], "start") == 0)
        return start(argv[2], argv[3], argv[4]);
    if (argc == 4 && strcmp(argv[1], "rank") == 0)
        return rank_main(argv[2], argv[3]);
    fprintf(stderr, "usage: it is the helper of xccl perf --vs-mpi\n");
    return EXIT_USAGE;
}

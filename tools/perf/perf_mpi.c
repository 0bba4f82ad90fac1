/* SPDX-License-Identifier: BSD-3-Clause */
/* xccl-perf-mpi: MPI's side of `xccl perf --vs-mpi`, which starts it; it is XCCL's own helper.
 *
 *   xccl-perf-mpi look                      says whether MPI's launcher is there
 *   xccl-perf-mpi start NRANKS NAME BYTES [CORES]  becomes MPI's launcher with so many of
 *   xccl-perf-mpi rank NAME BYTES [CORES]   which carries out orders that come by the socket NAME
 *
 * A rank measures as `xccl perf` does (perf_serve.h). CORES, as "0,1": rank i stays on the i-th.
 *
 * Thread: the program's only one. */
#include "perf/perf_mpi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/os.h"
#include "perf/perf_serve.h"

#define ARGS_MAX   16
#define PATH_BYTES 4096
#define EXIT_ERROR 1
#define EXIT_USAGE 2

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

/* words: NRANKS NAME BYTES [CORES]. Returns only after an error. */
static int start(char *const words[])
{
    const char *nranks = words[0];
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
    for (int i = 1; words[i]; i++)
        add(argv, &count, words[i]);
    execv(launcher, argv);
    fprintf(stderr, "xccl perf: --vs-mpi: cannot start %s: %s\n", launcher, strerror(errno));
    return EXIT_ERROR;
}

/* ---- a rank ---- */

static int prepare(struct xccl_perf_server *server, int *has_out)
{
    *has_out = perf_mpi_call_init(server->user, &server->job, &server->shape, server->in_place);
    return 1;
}

static int run(struct xccl_perf_server *server, int64_t calls)
{
    const struct perf_mpi_call *call = server->user;

    for (int64_t i = 0; i < calls; i++)
        perf_mpi_call_run(call);
    return 1;
}

static int greatest(struct xccl_perf_server *server, double *value_io)
{
    double own = *value_io;

    (void)server;
    MPI_Allreduce(&own, value_io, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return 1;
}

static int sum(struct xccl_perf_server *server, int64_t *value_io)
{
    int64_t own = *value_io;

    (void)server;
    MPI_Allreduce(&own, value_io, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    return 1;
}

static const struct xccl_perf_server_ops ops = {.program = "xccl-perf-mpi",
                                                .in_place_first = 1,
                                                .prepare = prepare,
                                                .run = run,
                                                .greatest = greatest,
                                                .sum = sum};

static int rank_init(struct xccl_perf_server *server, const char *name, const char *bytes)
{
    struct perf_mpi_call *call = server->user;
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;

    MPI_Comm_rank(MPI_COMM_WORLD, &server->job.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &server->job.nranks);
    for (int i = 0; i < XCCL_PERF_BLOCKS; i++) {
        call->blocks[i] = xccl_calloc((size_t)server->job.nranks, sizeof(int));
        if (!call->blocks[i])
            return 0;
    }
    MPI_Get_library_version(version, &length);
    for (char *at = version; *at; at++)
        *at = (char)(*at == '\t' ? ' ' : *at);
    version[strcspn(version, ",\n")] = '\0';
    return xccl_perf_server_init(server, name, strtoull(bytes, NULL, 10), version);
}

static int rank_main(const char *name, const char *bytes, const char *cores)
{
    static struct perf_mpi_call call;
    static struct xccl_perf_server server = {.ops = &ops, .user = &call, .fd = -1};
    int status = EXIT_ERROR;

    MPI_Init(NULL, NULL);
    if (!rank_init(&server, name, bytes))
        MPI_Abort(MPI_COMM_WORLD, EXIT_ERROR);
    xccl_perf_server_pin(&server, cores);
    status = xccl_perf_server_run(&server) ? 0 : EXIT_ERROR;
    for (int i = 0; i < XCCL_PERF_BLOCKS; i++)
        xccl_free(call.blocks[i]);
    xccl_perf_server_fini(&server);
    MPI_Finalize();
    return status;
}

int main(int argc, char **argv)
{
    char launcher[PATH_BYTES];

    if (argc == 2 && strcmp(argv[1], "look") == 0)
        return find_launcher(launcher, sizeof(launcher)) ? 0 : EXIT_ERROR;
    if ((argc == 5 || argc == 6) && strcmp(argv[1], "start") == 0)
        return start(&argv[2]);
    if ((argc == 4 || argc == 5) && strcmp(argv[1], "rank") == 0)
        return rank_main(argv[2], argv[3], argv[4]);
    fprintf(stderr, "usage: it is the helper of xccl perf --vs-mpi\n");
    return EXIT_USAGE;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI beside XCCL: rank 0 of `xccl perf --vs-mpi` starts the program xccl-perf-mpi under MPI's own
 * launcher, and each of its ranks connects to rank 0 by a Unix socket, as XCCL's other ranks do.
 * MPI's sleep there until an order comes, so that they take nothing from XCCL's ranks while these
 * are measured, and XCCL's while MPI's work. Orders and answers are the structures below: both
 * programs are of one build.
 *
 * Thread: the rank's. */
#ifndef XCCL_TOOLS_PERF_PERF_VS_MPI_H
#define XCCL_TOOLS_PERF_PERF_VS_MPI_H

#include "perf/perf.h"

#define XCCL_PERF_MPI_MAGIC 0x78706d32u

#define XCCL_PERF_MPI_NAME_BYTES 32 /* of a socket, as hex digits */

/* In place of a collective: pages of private buffers go, and the next order takes others. */
#define XCCL_PERF_MPI_NEW_PAGES (-1)

/* What a rank says first. */
struct xccl_perf_mpi_hello {
    uint32_t magic;
    int32_t is_xccl; /* 0: of MPI */
    int32_t rank, nranks;
    char software[96]; /* MPI's name and version; rank 0's counts */
};

/* One batch of calls of one size. */
struct xccl_perf_mpi_order {
    uint32_t magic;
    int32_t coll; /* its index in xccl_perf_colls, or XCCL_PERF_MPI_NEW_PAGES */
    int32_t type, op, root, in_place, exact;
    int64_t iters, warmup_iters, group_calls, check_runs;
    uint64_t bytes;
};

/* MPI's rank 0 gives it. */
struct xccl_perf_mpi_answer {
    struct xccl_perf_mpi_order order; /* iters: as many as were called */
    double time_us; /* of one call, the slowest rank's; 0: MPI has no such form */
    int64_t wrong; /* over all ranks; -1: not checked */
};

/* Before ranks are started: whether there is an MPI, or 0 after a message that says what to do. */
int xccl_perf_mpi_look(void);
/* On all ranks together: MPI's ranks are started, as many, with buffers of so many bytes. Errors
 * are told (base/error.h). */
xcclResult_t xccl_perf_mpi_start(struct xccl_perf_job *job, size_t bytes);
/* Ends them; on rank 0 after the last round of all. NULL is fine. */
void xccl_perf_mpi_stop(struct xccl_perf_mpi *mpi);
/* The name of MPI's library. */
const char *xccl_perf_mpi_library(const struct xccl_perf_mpi *mpi);
/* On all ranks: MPI's time of the same call. *answer_io is zero for the first round of a size, and
 * has what the last one told afterwards. */
xcclResult_t xccl_perf_mpi_round(struct xccl_perf_job *job, const struct xccl_perf_shape *shape,
                                 int in_place, struct xccl_perf_mpi_answer *answer_io);

/* In perf_mpi_socket.c: the name of an address, and a connection to it that has said hello; -1:
 * there is none, with errno. */
struct sockaddr_un;
void xccl_perf_mpi_name(const struct sockaddr_un *addr, size_t bytes,
                        char name_out[XCCL_PERF_MPI_NAME_BYTES]);
int xccl_perf_mpi_connect(const char *name, const struct xccl_perf_mpi_hello *hello);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* What the two files of xccl-perf-mpi hand each other: perf_mpi.c measures, perf_mpi_call.c knows
 * what each call is called in MPI. */
#ifndef XCCL_TOOLS_PERF_PERF_MPI_H
#define XCCL_TOOLS_PERF_PERF_MPI_H

#include <mpi.h>

#include "perf/perf.h"

/* One call of MPI's, with all that does not change between calls. */
struct perf_mpi_call {
    const struct xccl_perf_job *job;
    const void *send;
    void *recv;
    int count;
    MPI_Datatype type;
    MPI_Op op;
    int *blocks[XCCL_PERF_BLOCKS]; /* sizes and places, as MPI takes them */
};

/* 0: MPI has no such form of it. blocks have been taken by the caller. */
int perf_mpi_call_init(struct perf_mpi_call *call, const struct xccl_perf_job *job,
                       const struct xccl_perf_shape *shape, int in_place);
/* MPI's own answer: MPI_SUCCESS, or it has ended the program. */
int perf_mpi_call_run(const struct perf_mpi_call *call);

#endif

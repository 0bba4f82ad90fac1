/* SPDX-License-Identifier: BSD-3-Clause */
/* How a process learns which rank of how many it is, and gets the job's unique id, from whatever
 * started it: xccl run, Open MPI, MPICH's hydra, Slurm with PMIx, PMI or without, torchrun, or
 * nobody. README.md is the table for users.
 *
 * PMI over a descriptor can be spoken by one party of a process only. A program that uses MPICH's
 * MPI has to take its rank from MPI and pass the id by MPI_Bcast; asking here for an id is then an
 * error that says so. PMIx may have several users.
 *
 * Thread: one at a time; a second one gets an error. All waits end with XCCL_TIMEOUT_INIT_S. */
#ifndef XCCL_BOOTSTRAP_LAUNCHER_H
#define XCCL_BOOTSTRAP_LAUNCHER_H

#include "xccl.h"

struct xccl_launch {
    const char *launcher; /* its name for people; constant */
    int rank, nranks;
    int local_rank, local_nranks; /* on this host; -1 and 0 when the launcher does not tell */
};

/* What started this process, from the environment alone; never NULL. *is_job_out (may be NULL) 0:
 * nobody, and this process is a job of one rank. */
const char *xccl_launcher_name(int *is_job_out);

/* This process's place. Not collective, though PMIx's server is asked. */
xcclResult_t xccl_launcher_place(struct xccl_launch *launch_out);

/* Place and a new id, the same on all ranks. Collective: the k-th call on one rank belongs to the
 * k-th call on the others. */
xcclResult_t xccl_launcher_id(xcclUniqueId *id_out, struct xccl_launch *launch_out);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* An environment without any launcher, for tests that put one in. Header only.
 * Thread: one. */
#ifndef TESTS_UNIT_BOOTSTRAP_LAUNCHER_ENV_H
#define TESTS_UNIT_BOOTSTRAP_LAUNCHER_ENV_H

#include <stdio.h>
#include <string.h>

#include "base/param.h"
#include "xt.h"

#define ADDR "127.0.0.1:23456"

/* Nobody started us, and rank 0 needs no root: its id follows from XCCL_COMM_ID. */
static inline void setup(const char *comm_id)
{
    static const char *const names[] = {
        "XCCL_RANK",
        "XCCL_NRANKS",
        "XCCL_ROOT",
        "XCCL_JOB_KEY_FILE",
        "XCCL_PORT_RANGE",
        "PMIX_RANK",
        "PMIX_NAMESPACE",
        "PMI_FD",
        "PMI_RANK",
        "PMI_SIZE",
        "PMI_PORT",
        "PMI_ID",
        "PMI_JOBID",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCHELASTIC_RUN_ID",
        "TORCHELASTIC_RESTART_COUNT",
        "SLURM_PROCID",
        "SLURM_NTASKS",
        "SLURM_STEP_ID",
        "SLURM_JOB_ID",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_STEP_NUM_NODES",
        "SLURM_STEP_NODELIST",
        "SLURM_NODELIST",
        "SLURM_LOCALID",
        "SLURM_NODEID",
        "MPI_LOCALRANKID",
        "SLURM_STEP_TASKS_PER_NODE",
        "MPI_LOCALNRANKS",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        xt_setenv(names[i], NULL);
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xt_setenv("XCCL_JOB_KEY", "a key for the tests");
    xt_setenv("XCCL_COMM_ID", comm_id);
    xccl_param_reset();
}

/* Sets NAME=VALUE pairs that are separated by blanks. */
static inline void set_all(const char *pairs)
{
    char copy[512];

    snprintf(copy, sizeof(copy), "%s", pairs);
    for (char *pair = strtok(copy, " "); pair; pair = strtok(NULL, " ")) {
        char *value = strchr(pair, '=');

        XT_CHECK(value != NULL);
        *value = '\0';
        xt_setenv(pair, value + 1);
    }
    xccl_param_reset();
}

#endif

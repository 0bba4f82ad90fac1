/* SPDX-License-Identifier: BSD-3-Clause */
/* Launchers that say who and where, but carry nothing: torchrun, programs that set torch's
 * variables, Slurm without PMI. All ranks derive the same address: rank 0's host as the launcher
 * names it, and a port that follows from the run's own id. Never MASTER_PORT: torch's own store
 * listens there. The secret is XCCL_JOB_KEY or XCCL_JOB_KEY_FILE; without it there is none, and a
 * warning says so.
 *
 * Slurm starts a batch script, and what it runs without srun, with SLURM_PROCID too; only a step
 * (SLURM_STEP_ID) has ranks.
 *
 * Thread: the caller's, under launcher.c's lock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/netaddr.h"
#include "base/param.h"
#include "bootstrap/job.h"
#include "bootstrap/launcher/launcher_int.h"

#define HOST_BYTES 256
#define SALT_BYTES 512

/* --- a place to meet --- */

/* "LOW-HIGH"; 0: not understood. */
static int range_decode(const char *range, long *low_out, long *high_out)
{
    size_t low_digits = strspn(range, "0123456789");
    const char *second = range + low_digits + 1;

    if (low_digits < 1 || low_digits > 5 || range[low_digits] != '-' ||
        strspn(second, "0123456789") != strlen(second) || !*second || strlen(second) > 5)
        return 0;
    *low_out = strtol(range, NULL, 10);
    *high_out = strtol(second, NULL, 10);
    return *low_out >= 1 && *high_out <= 65535 && *low_out <= *high_out;
}

int xccl_launcher_port(const char *text, const char *range, int avoid)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a: spread, no secrecy asked for */
    long low = 0, high = 0, port = 0;

    if (!range_decode(*range ? range : XCCL_LAUNCH_PORT_RANGE, &low, &high))
        return 0;
    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    hash ^= hash >> 32;
    port = low + (long)(hash % (uint64_t)(high - low + 1));
    if (port == avoid)
        port = port < high ? port + 1 : low;
    return port == avoid ? 0 : (int)port;
}

/* host: rank 0's. run: what is this run's own. */
static xcclResult_t meet_at(const char *host, const char *run, unsigned number,
                            xcclUniqueId *id_out)
{
    char salt[SALT_BYTES], addr[HOST_BYTES + 16];
    const char *range = xccl_param_string(XCCL_P_PORT_RANGE);
    int avoid = xccl_launcher_env_maybe("MASTER_PORT", 0);
    int port = 0;

    snprintf(salt, sizeof(salt), "%s call %u", run, number);
    port = xccl_launcher_port(salt, range, avoid);
    if (port == 0) {
        return xccl_fail(xcclInvalidUsage, 0, "give LOW-HIGH, as in \"" XCCL_LAUNCH_PORT_RANGE "\"",
                         "XCCL_PORT_RANGE \"%.40s\" has no port where the ranks can meet "
                         "(MASTER_PORT is not used)",
                         range);
    }
    snprintf(addr, sizeof(addr), strchr(host, ':') && *host != '[' ? "[%s]:%d" : "%s:%d", host,
             port);
    xccl_log(XCCL_LOG_DEBUG, "ranks meet at %s", addr);
    return xccl_unique_id_at(addr, salt, id_out);
}

/* No need to derive an address where the user gave one, or nobody else is there. */
static int is_simple(const struct xccl_launch *launch)
{
    return launch->nranks == 1 || xccl_param_is_set(XCCL_P_COMM_ID);
}

/* --- torchrun --- */

static int torchrun_present(void)
{
    return xccl_launcher_env_has("TORCHELASTIC_RUN_ID") && xccl_launcher_env_has("RANK");
}

static int torch_vars_present(void)
{
    return xccl_launcher_env_has("RANK") && xccl_launcher_env_has("WORLD_SIZE");
}

static xcclResult_t torch_place(struct xccl_launch *launch, const struct xccl_limit *limit)
{
    (void)limit;
    launch->local_rank = xccl_launcher_env_maybe("LOCAL_RANK", -1);
    launch->local_nranks = xccl_launcher_env_maybe("LOCAL_WORLD_SIZE", 0);
    return xccl_launcher_env_place("RANK", "WORLD_SIZE", launch);
}

static xcclResult_t torch_meet(const struct xccl_launch *launch, unsigned number,
                               const struct xccl_limit *limit, xcclUniqueId *id_out)
{
    const char *host = getenv("MASTER_ADDR");
    const char *run = getenv("TORCHELASTIC_RUN_ID");
    const char *port = getenv("MASTER_PORT");
    char text[SALT_BYTES];

    (void)limit;
    if (is_simple(launch))
        return xccl_unique_id_create(id_out);
    if (!host || !*host || strlen(host) >= HOST_BYTES) {
        return xccl_fail(xcclInvalidUsage, 0,
                         "set MASTER_ADDR to the host of rank 0 on every rank, or XCCL_COMM_ID",
                         "RANK and WORLD_SIZE are set, but MASTER_ADDR is %s",
                         host && *host ? "too long" : "not");
    }
    /* The run id is "none" unless torchrun was told one; the port tells two such runs apart. Not
     * TORCHELASTIC_RESTART_COUNT: each agent counts its own failures, so nodes may differ. */
    snprintf(text, sizeof(text), "torch %.200s %.20s %d", run && *run ? run : "none",
             port ? port : "", launch->nranks);
    return meet_at(host, text, number, id_out);
}

const struct xccl_launcher xccl_launcher_torchrun = {"torchrun", torchrun_present, torch_place,
                                                     torch_meet};
const struct xccl_launcher xccl_launcher_torch_vars = {"RANK and WORLD_SIZE, as torch uses them",
                                                       torch_vars_present, torch_place, torch_meet};

/* --- Slurm without PMI --- */

int xccl_slurm_first_host(const char *list, char *host_out, size_t room)
{
    size_t prefix = 0, number = 0;
    const char *at = list;

    if (!list)
        return 0;
    prefix = strcspn(at, "[,");
    if (at[prefix] == '[') {
        at += prefix + 1;
        number = strspn(at, "0123456789");
        if (number == 0 || !strchr("-,]", at[number]) || !at[number])
            return 0;
        at += strcspn(at, "]");
        /* More behind the bracket, or a second one, is a naming that we would guess at. */
        if (*at != ']' || (at[1] && at[1] != ','))
            return 0;
    }
    if (prefix + number == 0 || prefix + number >= room)
        return 0;
    memcpy(host_out, list, prefix);
    if (number)
        memcpy(host_out + prefix, list + prefix + 1, number);
    host_out[prefix + number] = '\0';
    return 1;
}

int xccl_slurm_tasks_on(const char *tasks_per_node, int node_idx)
{
    const char *at = tasks_per_node;

    while (at && *at >= '0' && *at <= '9') {
        char *end = NULL;
        long tasks = strtol(at, &end, 10), nodes = 1;

        if (end[0] == '(' && end[1] == 'x')
            nodes = strtol(end + 2, &end, 10);
        if (*end == ')')
            end++;
        if (tasks < 1 || tasks > 1 << 20 || nodes < 1 || nodes > 1 << 20)
            return 0;
        if (node_idx < nodes)
            return (int)tasks;
        node_idx -= (int)nodes;
        at = *end == ',' ? end + 1 : NULL;
    }
    return 0;
}

static int slurm_present(void)
{
    return xccl_launcher_env_has("SLURM_PROCID") && xccl_launcher_env_has("SLURM_STEP_ID");
}

/* SLURM_NTASKS is that of the allocation where a step has fewer. */
static xcclResult_t slurm_place(struct xccl_launch *launch, const struct xccl_limit *limit)
{
    const char *count = xccl_launcher_env_has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS"
                                                                      : "SLURM_NTASKS";

    (void)limit;
    launch->local_rank = xccl_launcher_env_maybe("SLURM_LOCALID", -1);
    launch->local_nranks = xccl_slurm_tasks_on(getenv("SLURM_STEP_TASKS_PER_NODE"),
                                               xccl_launcher_env_maybe("SLURM_NODEID", 0));
    return xccl_launcher_env_place("SLURM_PROCID", count, launch);
}

static xcclResult_t slurm_meet(const struct xccl_launch *launch, unsigned number,
                               const struct xccl_limit *limit, xcclUniqueId *id_out)
{
    const char *list = getenv("SLURM_STEP_NODELIST");
    const char *job = getenv("SLURM_JOB_ID");
    char host[HOST_BYTES], text[SALT_BYTES];

    (void)limit;
    if (is_simple(launch))
        return xccl_unique_id_create(id_out);
    if (!list)
        list = getenv("SLURM_NODELIST");
    if (xccl_launcher_env_maybe("SLURM_STEP_NUM_NODES", 0) == 1) {
        snprintf(host, sizeof(host), "127.0.0.1");
    } else if (!xccl_slurm_first_host(list, host, sizeof(host))) {
        return xccl_fail(xcclInvalidUsage, 0,
                         "use srun --mpi=pmix or --mpi=pmi2, or set XCCL_COMM_ID to rank 0's "
                         "HOST:PORT",
                         "the first host of SLURM_STEP_NODELIST \"%.100s\" cannot be determined",
                         list ? list : "");
    }
    snprintf(text, sizeof(text), "slurm %.40s %.40s %d", job ? job : "", getenv("SLURM_STEP_ID"),
             launch->nranks);
    return meet_at(host, text, number, id_out);
}

const struct xccl_launcher xccl_launcher_slurm = {"Slurm without PMI", slurm_present, slurm_place,
                                                  slurm_meet};

/* --- Open MPI's variables alone --- */

static int openmpi_present(void)
{
    return xccl_launcher_env_has("OMPI_COMM_WORLD_RANK") &&
           xccl_launcher_env_has("OMPI_COMM_WORLD_SIZE");
}

static xcclResult_t openmpi_place(struct xccl_launch *launch, const struct xccl_limit *limit)
{
    (void)limit;
    launch->local_rank = xccl_launcher_env_maybe("OMPI_COMM_WORLD_LOCAL_RANK", -1);
    launch->local_nranks = xccl_launcher_env_maybe("OMPI_COMM_WORLD_LOCAL_SIZE", 0);
    return xccl_launcher_env_place("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", launch);
}

static xcclResult_t openmpi_meet(const struct xccl_launch *launch, unsigned number,
                                 const struct xccl_limit *limit, xcclUniqueId *id_out)
{
    (void)number;
    (void)limit;
    if (is_simple(launch))
        return xccl_unique_id_create(id_out);
    return xccl_fail(xcclInvalidUsage, 0,
                     "let mpirun start the program itself, or a wrapper that keeps PMIX_*; or set "
                     "XCCL_COMM_ID and XCCL_JOB_KEY; or pass the id by MPI_Bcast",
                     "Open MPI's variables say rank %d of %d, but PMIX_NAMESPACE and PMIX_RANK, "
                     "through which the id would come, are not set",
                     launch->rank, launch->nranks);
}

const struct xccl_launcher xccl_launcher_openmpi_vars = {
    "Open MPI's variables without PMIx", openmpi_present, openmpi_place, openmpi_meet};

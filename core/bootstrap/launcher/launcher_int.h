/* SPDX-License-Identifier: BSD-3-Clause */
/* What the launchers' files share: launcher.c finds and dispatches, launcher_env.c knows variables,
 * launcher_pmi.c and launcher_pmix.c speak with a server. Thread: that of the call, under
 * launcher.c's lock. */
#ifndef XCCL_BOOTSTRAP_LAUNCHER_INT_H
#define XCCL_BOOTSTRAP_LAUNCHER_INT_H

#include <stddef.h>

#include "base/clock.h"
#include "bootstrap/launcher/launcher.h"

/* One way of being started. The first present one of launcher.c's table counts. */
struct xccl_launcher {
    const char *name;
    /* From the environment alone. */
    int (*present)(void);
    /* Fills rank and nranks, and the local ones where they are known. */
    xcclResult_t (*place)(struct xccl_launch *launch, const struct xccl_limit *limit);
    /* The id of the number-th call, counted from 0. */
    xcclResult_t (*meet)(const struct xccl_launch *launch, unsigned number,
                         const struct xccl_limit *limit, xcclUniqueId *id_out);
};

extern const struct xccl_launcher xccl_launcher_manual;
extern const struct xccl_launcher xccl_launcher_torchrun;
extern const struct xccl_launcher xccl_launcher_pmix;
extern const struct xccl_launcher xccl_launcher_pmi;
extern const struct xccl_launcher xccl_launcher_torch_vars;
extern const struct xccl_launcher xccl_launcher_slurm;
extern const struct xccl_launcher xccl_launcher_openmpi_vars;
extern const struct xccl_launcher xccl_launcher_none;

/* What rank 0 has to say, as letters and digits: the id in hex, or why there is none. */
#define XCCL_LAUNCH_TEXT_BYTES 640

/* Hands rank 0's text to all ranks; on the others it comes back in text. */
typedef xcclResult_t xccl_launch_share_fn(const struct xccl_launch *launch, unsigned number,
                                          char text[XCCL_LAUNCH_TEXT_BYTES],
                                          const struct xccl_limit *limit);

/* Rank 0 makes an id, or fails, and all ranks learn of it. */
xcclResult_t xccl_launcher_carry(const struct xccl_launch *launch, unsigned number,
                                 xccl_launch_share_fn *share, const struct xccl_limit *limit,
                                 xcclUniqueId *id_out);

/* A variable as a number; missing or anything else is xcclInvalidUsage that names it. */
xcclResult_t xccl_launcher_env_int(const char *name, int low, int high, int *value_out);
/* A variable as a number; fallback when it is missing or no number. */
int xccl_launcher_env_maybe(const char *name, int fallback);
/* rank_name and nranks_name must both be there and fit. */
xcclResult_t xccl_launcher_env_place(const char *rank_name, const char *nranks_name,
                                     struct xccl_launch *launch);
/* Set and not empty. */
int xccl_launcher_env_has(const char *name);

/* Pure; for the tests as well. The first host of Slurm's list, "node[07-09,12],x" gives "node07";
 * the count of the idx-th node in "4(x2),3". 0: not understood. */
int xccl_slurm_first_host(const char *list, char *host_out, size_t room);
int xccl_slurm_tasks_on(const char *tasks_per_node, int node_idx);
/* A port that follows from the text: in range "LOW-HIGH" ("" is the default range), but never
 * avoid. 0: the range is not understood. */
int xccl_launcher_port(const char *text, const char *range, int avoid);

#define XCCL_LAUNCH_PORT_RANGE "24000-28999"

#endif

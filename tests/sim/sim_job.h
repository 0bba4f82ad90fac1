/* SPDX-License-Identifier: BSD-3-Clause */
/* What the ranks of a world do: join with unique ids, carry out operations whose data can be
 * checked, rest, close. Which operations and how large follows from the seed, the same on all
 * ranks.
 *
 * Thread: the only one. */
#ifndef SIM_JOB_H
#define SIM_JOB_H

#include "bootstrap/bootstrap.h"
#include "sim_rank.h"

#define SIM_IDS_MAX 40

struct sim_job {
    int nranks;
    int id_count;
    xcclUniqueId ids[SIM_IDS_MAX];
    uint64_t seed;
    uint64_t join_ms, op_ms;
    int op_count; /* operations after joining; -1: until one fails */
    int no_splits; /* errors then have the ranks' numbers, not a child's */
    uint64_t rest_ns; /* after them; then a rank may have at most 8 descriptors */
    int odd_host, odd_rank, odd_nranks; /* one host says that it is another; odd_host -1: none */
    /* Called by each rank after its operations; NULL: nothing. */
    xcclResult_t (*extra)(struct sim_rank *self, struct xccl_bootstrap *boot);

    struct xccl_bootstrap *boots[4200]; /* of the ranks that have joined and not closed */
    int joined, finished; /* ranks that have; finished: without an error */
    uint8_t key[32]; /* derived, the same on all */
    int barriers_entered[64];
};
extern struct sim_job sim_job;

/* An empty plan. */
void sim_job_reset(uint64_t seed, int nranks);
/* Makes ids on the hosts from first_host on, at once. */
void sim_job_make_ids(int id_count, int first_host);
/* A rank's code: sim_world_settings.run. */
void sim_job_run(struct sim_rank *self);

/* 1 when an error's text speaks of a rank: "rank 3", "ranks 1, 3..7", or its host's address. */
int sim_text_names(const char *text, int rank);

#endif

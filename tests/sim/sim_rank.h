/* SPDX-License-Identifier: BSD-3-Clause */
/* A world of ranks: each runs its scenario's code, which may wait as a user's thread would, on a
 * stack of its own (a fiber); while it waits the simulation goes on. xccl_bell_wait is where they
 * wait. The thread's error text is each fiber's own, and the service's another.
 *
 *   sim_seeds(name, count, scenario) --for each seed--> scenario(seed):
 *       sim_world_begin(); sim_world_run(); checks; sim_world_end();
 *
 * Thread: the only one. */
#ifndef SIM_RANK_H
#define SIM_RANK_H

#include "base/error.h"
#include "sim_loop.h"
#include "sim_net.h"

struct sim_rank;
typedef void sim_rank_fn(struct sim_rank *self);
typedef void sim_scenario_fn(uint64_t seed);

struct sim_world_settings {
    int nranks, extras; /* hosts nranks to nranks + extras - 1 are others */
    struct sim_net_settings net;
    uint64_t turn_max_ns;
    uint64_t start_max_ns; /* ranks start up to this late */
    sim_rank_fn *run; /* what a rank does; runs on the extras' hosts too if they are started */
};

struct sim_rank {
    int rank;
    const char *doing; /* what it does now, for the report of a hang */
    int started, ended;
    xcclResult_t rc; /* its first error, */
    char text[XCCL_ERROR_TEXT_BYTES]; /* with its text, */
    uint64_t ended_ns; /* and when it returned */
    void *own; /* the scenario's */
    struct sim_fiber *fiber;
};

/* What getrlimit tells of descriptors; for all hosts together, which share the library's count. */
extern uint64_t sim_descriptor_limit;

/* Runs a scenario for count seeds that follow from XT_SEED, times XT_SIM_SEEDS; or for the one in
 * XT_SIM_WORLD, which a failure prints. */
void sim_seeds(const char *name, int count, sim_scenario_fn *scenario);
/* Adds to what a failure says about this world: its parameters. */
void sim_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Settings drawn from the seed: from a quiet network to a wild one. */
struct sim_world_settings sim_world_draw(uint64_t seed, int nranks);
void sim_world_begin(const struct sim_world_settings *settings);
struct sim_rank *sim_world_rank(int rank);
/* Lets a rank begin after a while; sim_world_start_all starts ranks 0 to nranks - 1. */
void sim_rank_start(int rank, uint64_t after_ns);
void sim_world_start_all(void);
/* Goes on until all ranks that were started and live have ended; a failure when that takes until
 * the deadline. */
void sim_world_run(uint64_t until_ns);
/* Goes on for a while. */
void sim_world_pass(uint64_t ns);
/* Everybody must have ended, the dead aside, whose code runs out now. Nothing may be left: no
 * descriptor, no source, no memory of the counted allocators. */
void sim_world_end(void);

/* From a rank's own code. */
void sim_sleep(uint64_t ns);
/* Keeps the first error of this rank. Returns rc. */
xcclResult_t sim_rank_keep(struct sim_rank *self, xcclResult_t rc);

/* SIM_CRASHED, SIM_SILENT or SIM_STOPPED. */
void sim_rank_hurt(int rank, enum sim_health health);

#endif

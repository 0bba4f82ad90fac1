/* SPDX-License-Identifier: BSD-3-Clause */
/* A job that strangers attack: ranks on loopback, without shared memory, call all-reduces and check
 * every element until they are told to stop. The attacker knows the program, the ports where the
 * ranks listen and how far they are, but no secret, and reads no wire. What he must not reach: a
 * wrong element, a rank that hangs, and, where the network below keeps strangers out, a lost job.
 *
 * Thread: the test's. XT_INJECT_SEEDS: jobs, each with a seed of its own (default: the test's).
 * XT_FIGURES: a file that gets a line for each sum. */
#ifndef XT_INJECT_TOWN_H
#define XT_INJECT_TOWN_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include "xccl.h"

#define TOWN_RANKS_MAX 4
#define TOWN_PORTS_MAX 256
#define TOWN_TEXT      512

/* Memory of the test, the ranks and the attackers. */
struct town {
    xcclUniqueId id;
    _Atomic uint32_t has_id, up, stop;
    _Atomic uint64_t last_call; /* 0: not known yet */
    size_t counts[3]; /* elements of the calls, in turn */
    _Atomic uint32_t shots; /* of the attackers */
    struct {
        _Atomic uint64_t calls, wrong;
        int rc;
        int fds; /* descriptors, when its calls were over */
        char text[TOWN_TEXT];
    } ranks[TOWN_RANKS_MAX];
};

/* Results of the attacked jobs. */
struct town_sum {
    uint64_t jobs, calls, wrong, shots;
    uint64_t lost; /* jobs that ended with an error */
    uint64_t hung; /* ranks that had to be killed */
    uint64_t died; /* ranks that ended by a signal */
    int fds; /* the most descriptors of a rank at the end of its calls */
    char text[TOWN_TEXT]; /* of the last lost one */
};

/* Runs in a process of its own until the town stops. */
typedef void town_attack_fn(struct town *town, const uint16_t *ports, int port_count,
                            uint64_t seed);

/* Runs one job of so many ranks and attacks it for attack_s while it works; adds to the sum.
 * counts: three. */
void town_run(int nranks, const size_t *counts, town_attack_fn *attack, uint64_t seed,
              double attack_s, struct town_sum *sum);

/* Jobs for the seeds from xt_seed() on; usual: how many without XT_INJECT_SEEDS. Prints the sum. */
void town_run_seeds(const char *what, int nranks, const size_t *counts, town_attack_fn *attack,
                    uint64_t usual, double attack_s, struct town_sum *sum_out);

/* Where a process listens, and its ports of UDP; at most TOWN_PORTS_MAX. */
int town_ports(pid_t pid, uint16_t *ports_out);

/* 1: the attacker shall end. */
int town_is_over(const struct town *town);

#endif

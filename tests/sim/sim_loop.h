/* SPDX-License-Identifier: BSD-3-Clause */
/* The heart of the simulation: virtual time, a seed, events in order, and the host that is at work.
 *
 * A host is a machine of its own with one process: rank r is host r, and others follow (the one
 * that made the unique id, strangers). While a host's code runs it is the current one; sockets and
 * sources made meanwhile are its own.
 *
 * Thread: the only one. */
#ifndef SIM_LOOP_H
#define SIM_LOOP_H

#include <stdint.h>

#include "base/loop.h"

enum sim_health {
    SIM_WELL,
    SIM_STOPPED, /* the process stands still; its kernel goes on */
    SIM_SILENT, /* nothing comes out of it and nothing gets in */
    SIM_CRASHED, /* the process is gone; its kernel answers for it */
};

typedef void sim_event_fn(void *arg, uint64_t detail);

/* From the beginning: time, events and hosts; all that follows is drawn from the seed. turn_max_ns:
 * how long a host may take to look after a source that is ready. */
void sim_loop_reset(uint64_t seed, int hosts, uint64_t turn_max_ns);
void sim_loop_fini(void);

uint64_t sim_now_ns(void);
uint64_t sim_between(uint64_t low, uint64_t high); /* both included */
int sim_chance(uint32_t per_mille);

/* Calls run(arg, detail) delay_ns from now; of events at one time the seed chooses. */
void sim_after(uint64_t delay_ns, sim_event_fn *run, void *arg, uint64_t detail);
/* Runs what comes next, moving time to it. 0: nothing is left to happen. */
int sim_step(void);
uint64_t sim_step_count(void);
/* A hash over all that happened so far: equal for equal runs. */
uint64_t sim_trace(void);

int sim_host(void);
/* Makes a host the current one; returns which it was. */
int sim_host_enter(int host);
enum sim_health sim_host_health(int host);
/* Its sources rest unless it is well; back to well, they go on. */
void sim_host_set_health(int host, enum sim_health health);

/* The descriptor of a source may have become ready. idx: sim_source_idx of its socket; 0: none. */
void sim_source_poke(uint32_t idx);
int sim_sources(int host); /* in the loop now; -1: of all hosts */

/* Ends the test with what the scenario says about itself (sim_rank.h). */
_Noreturn void sim_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif

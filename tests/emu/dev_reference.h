/* SPDX-License-Identifier: BSD-3-Clause */
/* What a call must come to: the host's executor with the same algorithm, all ranks in one thread,
 * links in plain memory. Bits of sums follow from the algorithm alone, not from slices, so devices
 * must have the same. Thread: one. */
#ifndef TESTS_EMU_DEV_REFERENCE_H
#define TESTS_EMU_DEV_REFERENCE_H

#include "exec/exec.h"
#include "plan/plan.h"
#include "schedule/generators.h"

/* A rank's share of a call; in and out are read and written. */
struct dev_reference_rank {
    void *in, *out;
    struct xccl_operator reduction; /* nothing where there is nothing to reduce */
};

struct dev_reference;

/* given: schedules of all ranks, which it takes over; NULL: the generator's. */
struct dev_reference *dev_reference_open(const struct xccl_generator *generator, int n, int root,
                                         int param, const int *nodes, struct xccl_schedule **given);
void dev_reference_close(struct dev_reference *reference);
void dev_reference_call(struct dev_reference *reference, const struct xccl_call *call,
                        const struct dev_reference_rank *ranks);

#endif

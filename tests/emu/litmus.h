/* SPDX-License-Identifier: BSD-3-Clause */
/* Small programs of threads that share memory, gone through in every order in which a device may
 * run them: a thread's accesses go in any order that its orders, barriers, conditions and cells do
 * not forbid, and stores of a block leave its buffer for memory in any order, but wholly each.
 * A release, or a fence, waits until the buffer is empty. Memory is one for all, so that a store
 * that has left is seen by everybody at once; what PTX allows beyond that takes more threads than
 * the protocols' links have ends.
 *
 * Thread: one a model. */
#ifndef TESTS_EMU_LITMUS_H
#define TESTS_EMU_LITMUS_H

#include <stdint.h>

#define LITMUS_THREADS 4
#define LITMUS_OPS     60 /* of a thread */
#define LITMUS_CELLS   16
#define LITMUS_WIDE    3 /* cells of one access at most */
#define LITMUS_PENDING 12

enum litmus_kind { LITMUS_STORE, LITMUS_LOAD, LITMUS_AWAIT, LITMUS_BARRIER, LITMUS_FENCE };

/* Orders of an access; 0: relaxed, or plain. */
#define LITMUS_ACQUIRE 1
#define LITMUS_RELEASE 2

struct litmus_op {
    uint8_t kind, order;
    uint8_t at, width; /* first cell, and cells: one whole access */
    uint8_t flag; /* AWAIT: the cell of the access that is waited for, from its first */
    uint8_t at_least; /* AWAIT: the flag may be larger */
    uint8_t value[LITMUS_WIDE]; /* stored; AWAIT, LOAD: what must be read */
};

struct litmus {
    int nthreads;
    int block[LITMUS_THREADS]; /* threads of a block share barriers and a buffer */
    int nops[LITMUS_THREADS];
    struct litmus_op ops[LITMUS_THREADS][LITMUS_OPS];
};

/* The next operation of a thread. */
struct litmus_op *litmus_add(struct litmus *model, int thread, struct litmus_op op);

/* Goes through all of them. NULL: everything was read as it must be, and all threads ended; else
 * the first thing that went wrong, in words. *states_out: how many different states there were. */
const char *litmus_run(const struct litmus *model, uint64_t *states_out);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels on fibers: a launch is blocks, a block is EMU_THREADS fibers of two warps with barriers
 * and shared memory. All of them run on the one device thread of the process, a round at a time.
 * Blocks of several launches go on side by side, as many as the device has multiprocessors; the
 * others wait until one ends.
 *
 * XCCL_EMU_SCHEDULE says in which order: "fair" (also when unset), "favour" one block of a launch,
 * "starve" one, or "random", where threads also lose their turn at accesses that others may see.
 * XCCL_EMU_SEED draws the block, and the order.
 *
 * Thread: the device thread. */
#ifndef TESTS_EMU_EMU_FIBERS_H
#define TESTS_EMU_EMU_FIBERS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EMU_THREADS      64u
#define EMU_WARP         32u
#define EMU_SHARED_BYTES 49152u

/* One lane's 16 bytes of what a warp loads or stores together. */
struct emu_part {
    uint64_t *at, a, b;
    int active;
};

struct emu_warp {
    uint32_t arrived, generation;
    int votes, result;
    struct emu_part *parts[EMU_WARP];
};

struct emu_block {
    struct emu_launch *launch;
    struct emu_fiber *fibers;
    char *shared;
    struct emu_warp warps[EMU_THREADS / EMU_WARP];
    uint32_t number, arrived, generation, running;
};

struct emu_fiber {
    void *stack_pointer; /* while it does not run */
    char *stack;
    struct emu_block *block;
    const uint32_t *waits_for; /* a generation that must change; NULL: nothing */
    uint32_t seen; /* its value */
    uint32_t thread;
    int is_over;
    int had_turn; /* of its block: it polls, or waits for the block */
};

extern struct emu_fiber *emu_now; /* the one that runs */

void emu_sync_block(void);
int emu_vote_warp(int truth); /* is it true for any of the warp? */
/* All lanes of the warp; what they load or store is done by the last one that comes. */
void emu_line(struct emu_part *part, int stores);
void emu_poll(void);
void emu_lose_turn(void); /* perhaps, by chance */
extern int emu_is_random;
void emu_misaligned(const void *at, size_t bytes); /* ends the process */

struct emu_launch;

/* Of a kernel whose one parameter is of so many bytes. The parameter is copied. */
struct emu_launch *emu_launch_create(void *kernel, const void *parameter, size_t bytes,
                                     uint32_t blocks);
void emu_launch_destroy(struct emu_launch *launch);
/* One round of every block that goes on or finds room, which is that of its device; 1: something
 * did more than to poll. */
int emu_launch_round(struct emu_launch *launch, uint32_t *room);
int emu_launch_is_over(const struct emu_launch *launch);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* The codes of steps: what an operation is made of, its flags, its buffers, and the order of tiles.
 * Plain C and C++, for executors on devices read it too. Constants. */
#ifndef XCCL_SCHEDULE_STEP_CODES_H
#define XCCL_SCHEDULE_STEP_CODES_H

/* xccl_step.op: a set of these; twelve combinations are legal (xccl_step_legal). */
#define XCCL_STEP_SRC  1
#define XCCL_STEP_DST  2
#define XCCL_STEP_RECV 4
#define XCCL_STEP_SEND 8
#define XCCL_STEP_ACC  16
#define XCCL_STEP_XCHG 32

/* ZERO: no memory. As a source a message without data, as a destination it is dropped. */
enum xccl_step_buffer { XCCL_BUFFER_IN, XCCL_BUFFER_OUT, XCCL_BUFFER_SCRATCH, XCCL_BUFFER_ZERO };

/* xccl_step.flags. PRE: what is read from the source is this rank's contribution, as the user gave
 * it. POST: the value is final. ORDERED: combine in rank order, this rank's source at its own
 * place. SIGNAL: its end is what waits of other lanes ask for. DIRECT: set by the proof; user
 * memory may be sent from, or received into, without a slot. */
#define XCCL_FLAG_PRE         1
#define XCCL_FLAG_POST        2
#define XCCL_FLAG_ORDERED     4
#define XCCL_FLAG_SIGNAL      8
#define XCCL_FLAG_WAITS(n)    ((uint8_t)((n) << 4)) /* 0 to 3 entries of the wait table */
#define XCCL_FLAG_DIRECT_SEND 64
#define XCCL_FLAG_DIRECT_RECV 128

/* xccl_schedule_lane.order: tiles outside the steps, or each step through all tiles. */
enum xccl_lane_order { XCCL_TILE_MAJOR, XCCL_STEP_MAJOR };

#endif

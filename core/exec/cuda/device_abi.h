/* SPDX-License-Identifier: BSD-3-Clause */
/* What host and device agree on: links, records of steps, plans and launches as they lie in device
 * memory. Plain C and C++, so that the library, nvcc and the emulator read the same text. Addresses
 * are the device's, as 64-bit numbers. Whoever writes each of them is said beside it.
 *
 * Thread: the host fills these in before a launch; during one they are the kernel's. */
#ifndef XCCL_EXEC_CUDA_DEVICE_ABI_H
#define XCCL_EXEC_CUDA_DEVICE_ABI_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define XCCL_DEV_THREADS    512 /* of a block; the emulator has fewer, so kernels ask blockDim */
#define XCCL_DEV_WORKS_MAX  24 /* that a launch brings along; more lie in device memory */
#define XCCL_DEV_FAN_MAX    64 /* links that a step receives from, or sends to */
#define XCCL_DEV_ITEMS_MAX  64 /* messages that a launch brings along */
#define XCCL_DEV_STARTS     64 /* operations that the device may be ahead of who watches it */
#define XCCL_DEV_HEAD_BYTES 128 /* each link's head on lines of its own */
#define XCCL_DEV_STANDS     128 /* blocks of messages that say what they wait for */
#define XCCL_DEV_NO_SIGNAL  0xffffu
#define XCCL_DEV_NO_PEER    0xffffffffu

/* How messages lie in the slots of a link. */
enum xccl_dev_proto {
    XCCL_DEV_LL, /* 8-byte lines: 4 of data, 4 of flag */
    XCCL_DEV_LL128, /* 128-byte lines: 120 of data, 8 of flag; only where such stores stay whole */
    XCCL_DEV_SIMPLE, /* payload, then its header's flag; the host's slices (transport/link.h) */
    XCCL_DEV_PROTOS
};

#define XCCL_DEV_LL128_LINE 128u
#define XCCL_DEV_LL128_DATA 120u

/* One end of a link. The ends have tables of their own; memory of slots and head is shared.
 *
 * SIMPLE is the host's slice (transport/link.h). Slot s has a header of 64 bytes at header + s *
 * header_stride, as struct xccl_slot_header: u64 flag = (step + 1) << 32 | flag_low, u32 bytes, u32
 * 0, u64 place (0: the payload is in the slot). payload + s * payload_stride is 16-byte aligned.
 *
 * LL: slot s is at payload + s * payload_stride. Its first line is {u32 flag_low, u32 step + 1} and
 * counts in the first message of an operation alone; from byte 16 on come the lines of the data,
 * {u32 data, u32 step + 1}.
 *
 * LL128: likewise, its first line of 128 bytes has flag_low in the first u64 and step + 1 in the
 * last; then come lines of 120 bytes of data whose last u64 is step + 1.
 *
 * A stale line is told by its flag, so each line is written again before a step number comes again:
 * in some of 2^30 steps (step % 2^30 < nslots) a slot of LL or LL128 is filled to its end. */
struct xccl_dev_link {
    uint64_t header, payload; /* of slot 0 */
    uint64_t head; /* of a u32: messages that the reader has given back, written by it */
    uint32_t header_stride, payload_stride;
    uint32_t nslots;
    uint32_t slot_bytes; /* payload that fits */
    uint32_t step; /* messages so far; wraps. The kernel's, kept from launch to launch */
    uint32_t slot; /* step % nslots, likewise */
    uint32_t limit; /* of a writer: head last seen + nslots, likewise */
    uint16_t peer; /* rank at the other end */
    uint16_t reserved;
    uint32_t seen; /* low half of the last operation that looked at its first message */
    uint32_t home; /* of a link that several bindings share: place of its state; 0: it is here */
};
/* The state of such a link, in the communicator's table of them. */
struct xccl_dev_home {
    uint32_t step, slot, limit, seen;
};
static_assert(sizeof(struct xccl_dev_link) == 64, "layout is shared with devices");

/* A wait for a signal of another lane: until that lane has given it in tile - dist. */
struct xccl_dev_wait {
    uint16_t signal;
    uint8_t dist, reserved;
};

/* One chunk of one occurrence of one step: struct xccl_event and what its chunks measure, decoded
 * once for all tiles. Op, flags and buffers are the schedule's (schedule/schedule.h). */
struct xccl_dev_event {
    uint64_t src, dst; /* where the chunk begins in IN or OUT, in bytes; SCRATCH: its number */
    uint64_t src_size, dst_size; /* of the chunks, in bytes; those in SCRATCH: the plan's chunk */
    uint16_t recv, send; /* first link of each fan, in the lane's part of the table */
    uint8_t nrecv, nsend;
    uint8_t op, flags;
    uint8_t src_buffer, dst_buffer;
    uint8_t src_at; /* ORDERED: the source comes before this one of the receives */
    uint8_t nwaits; /* entries of wait; only on the first event of a step */
    uint16_t step_end; /* 1: the last event of its step */
    uint16_t signal; /* given after it, XCCL_DEV_NO_SIGNAL: none; only where step_end */
    struct xccl_dev_wait wait[3];
    uint32_t reserved;
};
static_assert(sizeof(struct xccl_dev_event) == 64, "layout is shared with devices");

/* A lane; each of its channels is a block. */
struct xccl_dev_lane {
    uint32_t event0, nevents;
    uint32_t conn0, nconns; /* connections; links are links[conn * link_channels + channel] */
    uint8_t order, part, nparts, reserved[5]; /* as of struct xccl_schedule_lane */
    uint64_t part_bytes; /* of a chunk, that a channel of this lane works on */
};
static_assert(sizeof(struct xccl_dev_lane) == 32, "layout is shared with devices");

/* What is done with elements; of which type is said by the kernel's name. */
enum xccl_dev_fn { XCCL_DEV_SUM, XCCL_DEV_PROD, XCCL_DEV_MAX, XCCL_DEV_MIN, XCCL_DEV_FNS };

/* xccl_dev_plan.flags */
#define XCCL_DEV_PRE        1u /* contributions (XCCL_FLAG_PRE) are multiplied by the scalar */
#define XCCL_DEV_POST       2u /* final values (XCCL_FLAG_POST) are divided by it: integers */
#define XCCL_DEV_ENDS_SHORT 4u /* as of struct xccl_plan */
#define XCCL_DEV_REDUCES    8u

/* A call's shape in device memory, written by the host when it is new and constant then. */
struct xccl_dev_plan {
    uint64_t events, lanes, links; /* of their tables */
    uint64_t signals; /* of u64, by signal and channel: signal * channels + channel. The kernel's:
                         seq << 32 | tiles in which it was given in operation seq */
    uint64_t chunk_bytes; /* of the largest chunk */
    uint64_t signature; /* of the call, without its number */
    uint64_t id; /* the host's: tells whoever watches which one has begun */
    uint32_t nlanes, channels; /* blocks: their product; block b is lane b / channels */
    uint32_t slice_bytes, tiles, elem_bytes;
    uint32_t nscratch, scrbufs;
    /* Most parts of a lane times channels: chunk c of SCRATCH, tile t and part p is slice (t %
     * scrbufs * nscratch + c) * scratch_stride + p. */
    uint32_t scratch_stride;
    uint32_t proto; /* enum xccl_dev_proto */
    uint32_t fn; /* enum xccl_dev_fn */
    uint32_t flags;
    uint32_t link_channels; /* that the links have: as many as channels, or more */
    uint32_t room_at; /* in slices of SCRATCH: two for each block, behind the chunks */
    uint32_t reserved;
};

/* Why a kernel has given up. */
enum xccl_dev_error {
    XCCL_DEV_OK,
    XCCL_DEV_ABORTED, /* the host said so */
    XCCL_DEV_OTHER_CALL, /* a message of another call came from `peer` */
    XCCL_DEV_OTHER_SIZE, /* one of this call, but not as large as expected */
    XCCL_DEV_LATE /* nothing came for so long that the host should have said something */
};

/* What has begun, for whoever moves network links and looks after time. Written by the device in
 * two stores; the low half of plan is that of seq, so that a torn one shows. */
struct xccl_dev_start {
    uint64_t seq;
    uint64_t plan; /* the plan's id << 32 | low half of seq */
    uint64_t mark, again; /* of the operations before it, as in xccl_dev_comm; again: seq */
};

/* The messages that a block of sends and receives waits for, said by the device when the host asks;
 * ask last, release. Written again as long as the block waits. */
struct xccl_dev_stand {
    uint64_t bytes[2]; /* of the message that it receives, and of the one that it sends */
    uint32_t peers[2]; /* of them; XCCL_DEV_NO_PEER: there is none */
    uint32_t blocks; /* of this launch and rank << 16 | those that have ended */
    uint32_t ask; /* << 1 | 1: further peers come behind these */
};
static_assert(sizeof(struct xccl_dev_stand) == 32, "layout is shared with devices");

/* In pinned host memory, of one rank of a communicator. */
struct xccl_dev_status {
    uint32_t abort; /* written by the host: all kernels of the communicator are to end */
    uint32_t ask; /* likewise: 0, or blocks of messages are to say what they wait for */
    uint32_t unused0[30];
    uint64_t done; /* by the device: the number of the last operation that has ended */
    /* By the device, in one store of both, release: the first error, and whose message it was. */
    uint32_t error; /* enum xccl_dev_error */
    uint32_t peer; /* XCCL_DEV_NO_PEER: nobody's */
    uint64_t messages_begun, messages_done; /* launches of sends and receives; done: release */
    /* By the device, before an OTHER_SIZE of messages: bytes of the one that it receives, and bytes
     * of the one that came << 1 | 1: that is all of it. */
    uint64_t bytes_wanted, bytes_came;
    uint32_t unused1[20];
    struct xccl_dev_start starts[XCCL_DEV_STARTS]; /* of operation seq at seq % XCCL_DEV_STARTS */
    struct xccl_dev_stand stands[XCCL_DEV_STANDS]; /* by block of the rank's share of the launch */
};

static_assert(offsetof(struct xccl_dev_status, error) % 8 == 0, "error and peer are one word");

/* In device memory, of one rank of a communicator. */
struct xccl_dev_comm {
    uint64_t seq; /* of the last operation that has ended: replays of graphs count here */
    uint64_t mark; /* of all operations up to that one, as xccl_mark_after() makes it: so ranks that
                      differed once differ in the flag words of all later operations */
    uint32_t blocks_done; /* of the operation at work */
    uint32_t rank;
    uint64_t status; /* device address of struct xccl_dev_status */
    uint64_t messages; /* launches of sends and receives that have ended */
    uint32_t message_blocks_done; /* of the one at work */
    uint32_t faults; /* threads that have given up: the first one says its error */
    uint64_t homes; /* struct xccl_dev_home[] */
    uint64_t limit_ns; /* of a wait without a word of the host; 0: none. Constant */
};

/* A send or receive of a group, on links of pairs. */
struct xccl_dev_item {
    uint64_t at, bytes;
    uint64_t link; /* device address of its struct xccl_dev_link[channels] */
    uint32_t sends; /* 1: a send */
    uint32_t flag_low; /* of its size: the low half of flag words */
};

/* One rank's share of a launch. */
struct xccl_dev_work {
    uint64_t comm; /* struct xccl_dev_comm */
    uint64_t plan; /* struct xccl_dev_plan; 0: sends and receives */
    uint64_t in, out, scratch;
    uint64_t scalar; /* the bytes of one element; or, with scalar_at, read from there */
    uint64_t scalar_at; /* device address of one element; 0: it is in scalar */
    uint32_t block0, nblocks; /* of the launch */
};

/* The kernels' one parameter. */
struct xccl_dev_launch {
    uint32_t nworks, unused;
    uint64_t far; /* struct xccl_dev_work[] in device memory; 0: in works below */
    struct xccl_dev_work works[XCCL_DEV_WORKS_MAX];
};

/* One rank's share of a launch of sends and receives, kernel "xccl_messages". Its block b is pair
 * b / channels and channel b % channels; pair p does sends p, p + pairs, ... and beside them,
 * neither waiting for the other, receives p, p + pairs, .... Each message is cut into as many parts
 * as there are channels, whole lines of 64 bytes, the last one shorter; a part without bytes is not
 * sent. A message of no bytes is one of channel 0. */
struct xccl_dev_messages {
    uint64_t comm; /* struct xccl_dev_comm */
    uint64_t sends, receives; /* struct xccl_dev_item[] in device memory; 0: in items below */
    uint32_t nsends, nreceives;
    uint32_t first_item; /* of its sends, in items; its receives follow them */
    uint32_t channels, pairs;
    uint32_t block0, nblocks; /* of the launch; nblocks = pairs * channels */
    uint32_t reserved;
};

struct xccl_dev_messages_launch {
    uint32_t nworks, unused;
    uint64_t far; /* struct xccl_dev_messages[] in device memory; 0: in works below */
    struct xccl_dev_messages works[XCCL_DEV_WORKS_MAX];
    struct xccl_dev_item items[XCCL_DEV_ITEMS_MAX];
};
static_assert(sizeof(struct xccl_dev_messages_launch) < 4096, "a kernel's parameters");

#endif

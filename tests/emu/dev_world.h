/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests of kernels: all ranks of one algorithm on one device in one process, over the driver
 * table, which XT_CUDA_LIBRARY makes the stand-in or a real device. Links with few small slots in
 * device memory, images of plans as the library makes them, one launch for all ranks or one for
 * each, and buffers that must be, byte by byte, what the host's executor makes of the same data
 * with the same algorithm; only NaNs may differ in what is in them.
 *
 * Thread: one. */
#ifndef TESTS_EMU_DEV_WORLD_H
#define TESTS_EMU_DEV_WORLD_H

#include "exec/cuda/device.h"
#include "exec/cuda/device_fn.h"
#include "exec/cuda/plan_image.h"
#include "schedule/generators.h"

#define DEV_RANKS  16
#define DEV_PREMUL xcclNumOps /* stands for an operator of the program, each rank's its own */
#define DEV_OPS    (xcclNumOps + 1)
#define DEV_GUARD  256 /* bytes around buffers */

/* Memory here and on the device, byte for byte, copied to and fro in whole pieces. */
struct dev_memory {
    char *here;
    uint64_t there;
    size_t bytes, used;
};

struct dev_machine {
    const struct xccl_cuda_driver *cuda;
    struct xccl_cuda_device *device;
    xccl_cu_stream streams[DEV_RANKS];
    struct dev_memory memory;
    struct xccl_dev_status *status; /* pinned, by rank */
    uint64_t status_there;
};

/* What is fixed for the life of links. */
struct dev_setup {
    const struct xccl_generator *generator;
    int n, root, param;
    enum xccl_dev_proto proto;
    uint32_t link_channels, nslots, slot_bytes;
    uint32_t first_step; /* messages that links have seen before */
    uint64_t first_seq; /* operations that ranks have */
    /* Schedules of all ranks that are not the generator's; NULL: they are. */
    void (*given)(struct xccl_schedule **schedules_out);
};

/* One operation. */
struct dev_call {
    xcclDataType_t type;
    int op; /* xcclRedOp_t, or DEV_PREMUL */
    size_t count;
    int in_place;
    uint32_t offsets[2]; /* elements that IN and OUT are off their alignment */
    uint32_t channels;
    uint32_t tile_bytes; /* 0: slices as large as slots are */
    int scalar_there; /* 1: PreMulSum's number lies in device memory */
    uint64_t signature; /* added to the one that comes of the rest */
};

struct dev_rank {
    struct xccl_binding *binding;
    struct xccl_dev_comm *comm; /* here, as all that follows */
    struct xccl_dev_link *links;
    struct dev_call call;
    struct xccl_plan plan;
    struct xccl_plan_image *image;
    struct xccl_device_fn fn;
    char *image_at, *signals, *scratch, *scalar;
    char *blocks[2], *in, *out; /* guards included; in or out: NULL: there is none */
    size_t bytes[2];
    char *wanted[2]; /* what blocks must be afterwards */
    uint64_t mark; /* of all calls that were looked at */
};

struct dev_world {
    struct dev_machine *machine;
    struct dev_setup setup;
    struct dev_rank ranks[DEV_RANKS];
    struct dev_channel *channels;
    struct dev_reference *reference; /* from the first call on */
    uint32_t channel_count;
    size_t links_end, buffers_at; /* of the memory */
    uint64_t seq, id;
};

/* Skips the test where there is no device. */
void dev_machine_open(struct dev_machine *machine);
void dev_machine_close(struct dev_machine *machine);
char *dev_take(struct dev_machine *machine, size_t bytes); /* 256-byte aligned, zeroed */
uint64_t dev_address(const struct dev_machine *machine, const void *here);
/* From `first` on, up to what has been taken. */
void dev_push(struct dev_machine *machine, size_t first);
void dev_pull(struct dev_machine *machine, size_t first);
void dev_launch(struct dev_machine *machine, const char *kernel, uint32_t blocks, void *parameter,
                int stream);
/* So many blocks run at the same time. */
uint32_t dev_blocks_max(const struct dev_machine *machine);
/* Waits until streams 0 to count - 1 are empty. 0: they were not within so many seconds. */
int dev_wait(struct dev_machine *machine, int count, double seconds);
void dev_abort(struct dev_machine *machine, int n);

/* One end of a link over slots in the machine's memory, which are to be written by one and read by
 * the other. */
struct dev_slots {
    char *slots, *head;
};
struct dev_slots dev_slots_take(struct dev_machine *machine, enum xccl_dev_proto proto,
                                uint32_t nslots, uint32_t slot_bytes, uint32_t first_step);
struct xccl_dev_link dev_link_of(const struct dev_machine *machine, const struct dev_slots *slots,
                                 const struct dev_setup *setup, int peer);

void dev_world_open(struct dev_world *world, struct dev_machine *machine,
                    const struct dev_setup *setup);
void dev_world_close(struct dev_world *world);

/* A count near this one that the algorithm can do. */
size_t dev_world_count(const struct dev_world *world, const struct dev_call *call);
/* Makes plans, images and buffers with data from the seed; ranks may differ (mismatches). */
void dev_world_prepare(struct dev_world *world, const struct dev_call *calls, uint64_t seed);
/* Blocks that all ranks take. */
uint32_t dev_world_blocks(const struct dev_world *world);
const char *dev_world_kernel(const struct dev_world *world, int rank);
/* Ranks first to end - 1 in one launch on a stream. */
void dev_world_launch(struct dev_world *world, int first, int end, int stream);
/* After a launch of all has ended: all of it is as it must be. */
void dev_world_check(struct dev_world *world);
void dev_world_forget(struct dev_world *world); /* what prepare made */

/* All of it: the same call on all ranks, launched so many times. */
void dev_world_call(struct dev_world *world, const struct dev_call *call, uint64_t seed, int times);

#endif

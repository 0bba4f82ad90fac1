/* SPDX-License-Identifier: BSD-3-Clause */
/* A plan as it lies in device memory: struct xccl_dev_plan, its lanes and its events, decoded once
 * for all tiles, in one block of host memory to be copied there. Nothing here calls the driver, and
 * the links of the plan's binding are not looked at.
 *
 * A channel works on a part of what its lane has: with C of them, channel c of a lane with part p
 * of n has part p * C + c of n * C. With one channel, messages are those that the host counts.
 *
 * Thread: the holder of the communicator's crank. */
#ifndef XCCL_EXEC_CUDA_PLAN_IMAGE_H
#define XCCL_EXEC_CUDA_PLAN_IMAGE_H

#include "exec/cuda/device_abi.h"
#include "exec/exec.h"

#define XCCL_IMAGE_EVENTS_MAX (1u << 20) /* 64 MiB of them */

struct xccl_plan_image_args {
    const struct xccl_plan *plan;
    uint32_t channels; /* at least 1; of a plan that says ends_short only one is used */
    uint32_t link_channels; /* that each connection has; 0: as many as channels */
    enum xccl_dev_proto proto;
    uint32_t fn, flags; /* of struct xccl_device_fn */
    uint64_t id;
};

struct xccl_plan_image {
    void *bytes; /* struct xccl_dev_plan first */
    size_t size;
    size_t lanes_at, events_at; /* in bytes */
    uint32_t channels, blocks; /* that the plan is run by */
    uint32_t tiles, slice_bytes;
    size_t scratch_bytes; /* room included; 64-byte aligned */
    size_t signal_bytes; /* zero before the first run */
};

/* xcclInvalidUsage: the algorithm is beyond what devices do. The plan is not needed afterwards. */
xcclResult_t xccl_plan_image_create(const struct xccl_plan_image_args *args,
                                    struct xccl_plan_image **image_out);
void xccl_plan_image_destroy(struct xccl_plan_image *image); /* NULL is fine */

/* Fills in device addresses: of the image, of its links (struct xccl_dev_link, by connection of the
 * schedule and channel: conn * link_channels + channel) and of its signals. Any number of times. */
void xccl_plan_image_relocate(struct xccl_plan_image *image, uint64_t device_base,
                              uint64_t links_base, uint64_t signals_base);

#endif

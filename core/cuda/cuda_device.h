/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators of CUDA devices. What the host's do in their calls, kernels do on the user's
 * stream: a call here finds its plan, launches, and returns. A plan's image lies in device memory,
 * links between ranks of one host in device memory or pinned memory, and those over networks in
 * pinned slots that a thread of the communicator moves (cuda_watch.c). The same thread looks
 * after what nobody waits for: other calls, ranks that do not come, errors.
 *
 * Thread: the user's, one at a time a communicator, where nothing else is said. */
#ifndef XCCL_CUDA_CUDA_DEVICE_H
#define XCCL_CUDA_CUDA_DEVICE_H

#include "call/comm_p2p.h"
#include "comm/comm_where.h"
#include "comm/device_ops.h"

struct xccl_cuda_comm;

/* The device that a communicator is for, when neither its config nor a list names one: XCCL_DEVICE,
 * else the device of the thread's current CUDA context, else XCCL_DEVICE_HOST. */
xcclResult_t xccl_cuda_default_device(int *device_out);
/* How many there are; xcclInvalidUsage says why none. */
xcclResult_t xccl_cuda_count_devices(int *count_out);

/* --- joining --- */

/* The phase that tries out links (cuda_agree.c); see device_ops.h. */
xccl_init_step_fn xccl_init_cuda_links;
/* The child's thread will be that of its parent, which is in use. */
void xccl_cuda_share(struct xcclComm *child, const struct xcclComm *parent);

/* --- links (cuda_links.c) --- */

#define XCCL_CUDA_OFFER_BYTES 348

/* Memory for what comes to this rank over a binding's links of its host; the others learn of it.
 * offer_out: XCCL_CUDA_OFFER_BYTES. *slot_bytes_out: payload of its slots. */
xcclResult_t xccl_cuda_offer(struct xcclComm *comm, struct xccl_binding *binding,
                             uint8_t *offer_out, uint32_t *slot_bytes_out);
/* All have offered: offers[rank * stride]. Network links are up later. */
xcclResult_t xccl_cuda_take_offers(struct xcclComm *comm, const uint8_t *offers, size_t stride);
/* Of a network link that is being made: gives its slots a place in device memory where a card
 * reaches that; else nothing happens. */
void xccl_cuda_give_room(struct xcclComm *comm, struct xccl_net_link *net, int peer, int receives);
/* Network links are up: makes the table of links that kernels use. */
xcclResult_t xccl_cuda_bound(struct xcclComm *comm, struct xccl_binding *binding);

/* --- calls (cuda_call.c) --- */

/* One operation of a group. */
struct xccl_cuda_op {
    struct xccl_task task; /* its comm; a call, unless is_p2p */
    int is_p2p;
    struct xccl_p2p_item p2p;
    void *stream; /* CUDA's */
    uint32_t number; /* in the group */
};

/* 1: its links and plan have to be made first, by a task with connects set. Marks the operator as
 * known. An error is of the arguments. */
xcclResult_t xccl_cuda_needs_links(const struct xccl_cuda_op *op, int *needs_out);
/* Operations of CUDA communicators in a group, or alone (cuda_group.c): missing links are made
 * first, as the host's calls make theirs, then all is launched. */
xcclResult_t xccl_cuda_submit(const struct xccl_entry *entries, uint32_t count);
/* Launches all of them, messages of each communicator first. Links are there. Brings them in an
 * order that is the same on all ranks: what is launched into one stream takes place one by one. */
xcclResult_t xccl_cuda_launch_all(struct xccl_cuda_op *ops, uint32_t count);

/* The user's thread makes links, and has the communicator from pause to resume, which may be called
 * again. Meanwhile it gives each communicator its turns, whose operations move by that. 1: one did;
 * 0 also for communicators of the host. */
void xccl_cuda_pause(struct xcclComm *comm);
int xccl_cuda_turn(struct xcclComm *comm);
void xccl_cuda_resume(struct xcclComm *comm);
/* As in device_ops.h. */
uint64_t xccl_cuda_next_number(struct xcclComm *comm);
void xccl_cuda_stand(struct xcclComm *comm, struct xccl_still *own);
int xccl_cuda_hides_error(struct xcclComm *comm);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices: one const table per kind says what a communicator needs of its device. The host is a
 * device too (device_host.c). comm->ops is set when the communicator is made and never NULL; every
 * entry is there. A call on the host does not go through the table: it reads comm->detour, one
 * word.
 *
 * Functions of joining and leaving run in the joining thread; the others in the thread of the user,
 * who holds the crank, where nothing else is said. */
#ifndef XCCL_COMM_DEVICE_OPS_H
#define XCCL_COMM_DEVICE_OPS_H

#include "comm/entry.h"
#include "comm/phase.h"

#define XCCL_DEVICE_OFFER_MAX 384 /* bytes */

struct xccl_net_link;
struct xccl_still; /* watch/standstill.h */

struct xccl_device_ops {
    const char *name; /* for texts: "the host", "a CUDA device" */
    uint32_t kind; /* as ranks send it to each other; all ranks of a communicator have the same */
    int gives_memory; /* 1: ranks of the host get descriptors of its memory after joining */
    int queues; /* 1: `submit` puts operations into queues of the device and returns */
    int reads_scalars; /* 1: the scalar of an operator may lie in its memory */
    int tells_board; /* 1: writes the board itself; a call that only makes links does not */
    uint32_t extra_rooms; /* times its budget of buffers that its shared segment has room for */
    uint32_t offer_bytes; /* that a rank sends about its memory for links; 0: nothing */

    /* --- joining and leaving --- */

    /* Phases: opens the device; all ranks are known, so what they share is set up; tries whether
     * they reach each other's memory. */
    xccl_init_step_fn *open, *meet, *try_links;
    /* Fills in what the other ranks must know of this rank's device. */
    void (*describe)(const struct xcclComm *comm, struct xccl_peer *self);
    /* The device's card in sysfs, "" where it has none: then the rank's cores count. */
    void (*card)(const struct xcclComm *comm, char *path_out, size_t bytes);
    /* Lets a split use what its parent has; before the child's `ready`. */
    void (*share)(struct xcclComm *child, const struct xcclComm *parent);
    /* Calls may begin. */
    xcclResult_t (*ready)(struct xcclComm *comm);
    /* Ends the device's work, before anything else is closed. */
    void (*stop)(struct xcclComm *comm);
    void (*unlink)(struct xcclComm *comm); /* undoes `meet`, while shared memory is there */
    void (*close)(struct xcclComm *comm); /* undoes the rest */

    /* --- planning and links --- */

    /* Sets what the planner must know of the device; its ranks and hosts are set. */
    xcclResult_t (*plan)(struct xcclComm *comm);
    /* Unpins memory of links, before the links of networks go. */
    void (*unpin)(struct xcclComm *comm);
    /* Makes this rank's ends of a binding's links inside the host, and writes what the others must
     * know: offer_bytes. *slot_bytes_out: payload of a slot, if the device limits it. */
    xcclResult_t (*offer)(struct xcclComm *comm, struct xccl_binding *binding, uint8_t *offer_out,
                          uint32_t *slot_bytes_out);
    /* Takes the offers of all ranks: offers[rank * stride]. */
    xcclResult_t (*take_offers)(struct xcclComm *comm, const uint8_t *offers, size_t stride);
    /* Chooses where the slots of a network link lie, while it is made. */
    void (*give_room)(struct xcclComm *comm, struct xccl_net_link *net, int peer, int receives);
    /* All links of a binding are up. */
    xcclResult_t (*bound)(struct xcclComm *comm, struct xccl_binding *binding);

    /* --- calls --- */

    /* Operations of communicators with this device, alone or those of a group; other entries are
     * passed over. Only where it queues; the host's calls are executed by call_group.c. */
    xcclResult_t (*submit)(const struct xccl_entry *entries, uint32_t count);
    /* A call that makes links has ended: the device goes on by itself. May be called again. */
    void (*resume)(struct xcclComm *comm);
    /* The program has registered memory. */
    void (*registered)(void *at, size_t bytes);
    /* The number that the call will have whose links are made, all before it having ended; 0: it is
     * not known. Only where tells_board. */
    uint64_t (*next_number)(struct xcclComm *comm);
    /* Fills in what messages that are under way wait for, while a call makes links that has no
     * number yet for them; else leaves it. Only where tells_board. */
    void (*stand)(struct xcclComm *comm, struct xccl_still *own);
    /* Waits until all that was called has ended and its board says so, or it has failed. */
    void (*settle)(struct xcclComm *comm);
    /* Keeps the device's thread away from what is under way, until it is released. */
    void (*hold)(struct xcclComm *comm);
    void (*release)(struct xcclComm *comm);
    /* 1: a kernel has found an error that the communicator does not have yet. Any thread. */
    int (*hides_error)(struct xcclComm *comm);
    /* Moves operations that are under way while a call makes links. 1: something moved. */
    int (*turn)(struct xcclComm *comm);
    /* Device memory of the communicator. */
    uint64_t (*bytes)(const struct xcclComm *comm);
};

/* The kinds there are. */
extern const struct xccl_device_ops xccl_device_host, xccl_device_cuda;

#endif

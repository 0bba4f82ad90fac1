/* SPDX-License-Identifier: BSD-3-Clause */
/* Two ways for what large calls move on a host: through slots, which is two copies, or from where
 * it lies, which is one. In private memory of another process it is the kernel that copies, and
 * reductions always go through slots; memory that is read in place is, but from XCCL_WAYS_LARGE on
 * two cores that copy half the way each may be quicker than one that copies all the way. Which is
 * quicker depends on how near the cores are to each other and to the memory, which nobody tells: so
 * both are measured as calls go, for each collective and size, and again now and then. Each sender
 * chooses for itself; receivers take what comes. Where nothing is read there are no ways: NULL.
 * Thread: the holder of the crank. */
#ifndef XCCL_CALL_COMM_WAYS_H
#define XCCL_CALL_COMM_WAYS_H

#include "base/clock.h"
#include "plan/plan.h"

#define XCCL_WAYS_MIN   (64u << 10) /* bytes of a call; what is smaller goes through slots */
#define XCCL_WAYS_SIZES 24 /* of a factor of two each */
/* Calls until both are measured again, the first time; then twice as many each time. */
#define XCCL_WAYS_PERIOD     128u
#define XCCL_WAYS_PERIOD_MAX 1024u
/* Calls that are measured each way: of small sizes more, for ranks may be a call apart there. */
#define XCCL_WAYS_TRIALS       10u
#define XCCL_WAYS_TRIALS_LARGE 6u
#define XCCL_WAYS_LARGE        (4u << 20)

enum xccl_way { XCCL_WAY_SLOTS, XCCL_WAY_ADDRESS, XCCL_WAYS };

struct xccl_way_row {
    uint64_t ns[XCCL_WAYS]; /* of those that were measured, together */
    uint64_t now_ns, most_ns; /* of the way at hand: so far, and the longest */
    uint32_t calls, period; /* since measuring began, and until it begins again */
    enum xccl_way best;
};

struct xccl_comm_ways {
    int takes_addresses; /* 1: private memory of other processes is read */
    int always; /* 1: which is not measured, but done */
    int in_arena, all_in_place; /* memory that is read in place: that of the arena; any */
    /* Of the call at work, if it is measured: */
    struct xccl_way_row *row;
    uint32_t trials; /* of its size */
    uint64_t began_ns;
    struct xccl_way_row rows[2][XCCL_COLL_COUNT][XCCL_WAYS_SIZES]; /* private, in place */
};

/* XCCL_PEER_MEMORY, in the order of its words. */
enum xccl_peer_memory { XCCL_PEER_MEMORY_AUTO, XCCL_PEER_MEMORY_OFF, XCCL_PEER_MEMORY_ON };

/* 1: a call of so many bytes is to go by address. kind: SEND_RECV for a group of them; bytes: the
 * same on all ranks of a collective, so that these measure the same way in the same call where
 * their memory is of one kind. */
int xccl_comm_way_is_address(struct xccl_comm_ways *ways, enum xccl_coll kind, uint64_t bytes);
/* 1: of memory that is read in place a call goes through slots all the same. */
int xccl_comm_way_is_slots(struct xccl_comm_ways *ways, enum xccl_coll kind, uint64_t bytes);
/* It has ended well; ways->row is not NULL. */
void xccl_comm_way_took(struct xccl_comm_ways *ways);

#endif

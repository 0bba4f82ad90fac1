/* SPDX-License-Identifier: BSD-3-Clause */
/* What an end of a link in shared memory knows besides: whether messages may stay where they are.
 * Such a message is a slot without payload; the reader takes the bytes from the sender's memory and
 * gives the slot back, and until then the sender leaves them alone. Three ways:
 *
 *   place     in the arena of the sender's process (arena.h), as a number in the slot's header,
 *             which the reader checks against the arena's size
 *   address   in the private memory of the sender's process, which the reader has the kernel read
 *             (peer_memory.h)
 *   offer     between threads of one process: a pointer, kept outside of shared memory, where no
 *             other process can put one
 *
 * A sender whose call fails takes back what nobody has read; places it cannot, so a reader in the
 * midst of one may get what the program writes there next, before it hears of the failure.
 *
 * An end of a network link has offers as well: its slots are private, and what they name is given
 * to the plugin, or has been received there.
 *
 * Thread: the holder of the communicator's crank; offers are published with the slot's flag word.
 */
#ifndef XCCL_TRANSPORT_REACH_H
#define XCCL_TRANSPORT_REACH_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct xccl_link;
struct xccl_segment;

/* By slot. A call that fails takes its offers back, since its buffers are the program's again: it
 * waits for who reads at that moment, which takes no longer than a slice, and nobody begins. */
struct xccl_offer {
    _Atomic(const char *) at; /* NULL: the message is in the slot, or at a place */
    _Atomic uint32_t readers; /* at work */
};
#define XCCL_OFFER_REVOKED ((const char *)1)

/* In the place of a slot's header. */
#define XCCL_PLACE_ADDRESS (1ull << 63) /* beside an address */
#define XCCL_PLACE_REVOKED UINT64_MAX /* it was one, and is not to be read any more */

struct xccl_reach {
    struct xccl_offer *offers; /* NULL: not all readers are of this process */
    const char *arena; /* reader: the writer's; NULL: it is not reached */
    size_t arena_bytes;
    uint32_t min_bytes, address_min; /* writer: of a message; what is smaller is copied */
    uint32_t last; /* writer: the step after the last message that stayed */
    uint8_t takes_places; /* writer: 1: all readers reach this process's arena */
    uint8_t is_open; /* writer: 1: some may not have been read */
    uint8_t takes_addresses; /* writer: 1: all readers read this process's private memory */
    int pid; /* reader: the process of the writer; 0: its private memory is not read */
    char *room; /* reader: of a slice, for what is read but not stored */
    uint8_t is_net; /* 1: of a network; what stays must not be written until the network has it */
};

/* Of a writer whose call has failed: nobody takes what lies in its memory for a message any more
 * when this returns. The link is of no use afterwards. */
void xccl_reach_revoke(struct xccl_reach *reach, const struct xccl_link *link);

#endif

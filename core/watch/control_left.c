/* SPDX-License-Identifier: BSD-3-Clause */
/* Keeps which ranks have left the communicator in order: neighbours hear it from their goodbye, all
 * others from neighbours that pass it on. A rank is noted once and stays so. Thread: any; notes are
 * made with the loop's lock. */
#include "watch/control_int.h"

int xccl_control_note_left(struct xccl_control *control, int rank, uint64_t last_seq)
{
    if (xccl_control_has_left(control, rank))
        return 0;
    /* Release: what came with the goodbye is before it. Pairs with has_left() and left_before(). */
    atomic_store_explicit(&control->left_after[rank], last_seq + 1, memory_order_release);
    /* Release: the rank is there before it is counted. Pairs with xccl_control_left_before(). */
    atomic_fetch_add_explicit(&control->left_count, 1, memory_order_release);
    return 1;
}

int xccl_control_has_left(const struct xccl_control *control, int rank)
{
    /* Acquire: pairs with xccl_control_note_left(). */
    return atomic_load_explicit(&control->left_after[rank], memory_order_acquire) != 0;
}

int xccl_control_left_before(const struct xccl_control *control, uint64_t seq,
                             uint64_t *last_seq_out)
{
    /* Acquire: pairs with xccl_control_note_left(). */
    if (!atomic_load_explicit(&control->left_count, memory_order_acquire))
        return XCCL_NOBODY;
    for (int rank = 0; rank < control->comm->nranks; rank++) {
        /* Acquire: pairs with xccl_control_note_left(). */
        uint64_t left = atomic_load_explicit(&control->left_after[rank], memory_order_acquire);

        if (!left || left > seq)
            continue;
        *last_seq_out = left - 1;
        return rank;
    }
    return XCCL_NOBODY;
}

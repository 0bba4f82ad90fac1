/* SPDX-License-Identifier: BSD-3-Clause */
/* Keeps which ranks have left the communicator in order, and their last calls: neighbours hear it
 * from their goodbye, all others from neighbours that pass it on. A rank is noted once and stays
 * so. Calls are kept once for all ranks that left after the same ones, LEFT_CALLS times at most:
 * the low half of a word depends on all calls before, so equal words mean equal calls.
 *
 * Thread: any; notes are made with the loop's lock. */
#include "watch/control_int.h"

/* Keeps the calls with which a rank has left, or fills them in where they were told before. Gives
 * their place + 1; 0: they are not known. */
static uint8_t keep_calls(struct xccl_control *control, struct xccl_left *left)
{
    uint32_t count = control->left_calls_count, i = 0;

    while (i < count && control->left_calls[i].history.word != left->calls.word)
        i++;
    if (!left->calls.word || i == LEFT_CALLS || (i == count && !left->has_calls))
        return 0;
    if (i == count)
        control->left_calls[control->left_calls_count++] = (struct left_calls){left->rank,
                                                                               left->calls};
    left->calls = control->left_calls[i].history;
    left->has_calls = 1;
    return (uint8_t)(i + 1);
}

/* Passes on that a rank has left; the calls only if this neighbour was not told them last. It comes
 * the other way, too, so that a failure is none. */
static void tell_left(struct neighbour *neighbour, struct xccl_left left)
{
    uint8_t body[XCCL_LEFT_BYTES];

    if (left.calls.word == neighbour->told_word)
        left.has_calls = 0;
    if (!xccl_control_send(neighbour, FRAME_LEFT, body, xccl_left_encode(&left, body)) &&
        left.has_calls)
        neighbour->told_word = left.calls.word;
}

void xccl_control_hear_of_left(struct xccl_control *control, struct neighbour *from,
                               struct xccl_left *left)
{
    struct left_rank *rank = &control->left[left->rank];
    struct neighbour *other = &control->neighbours[from == &control->neighbours[0]];

    if (xccl_control_has_left(control, left->rank))
        return;
    rank->calls = keep_calls(control, left);
    if (rank->calls && control->compare)
        (void)control->compare(control->comm, left->rank, &left->calls);
    /* Release: what came with it is before it. Pairs with has_left() and left_before(). */
    atomic_store_explicit(&rank->after, left->last_seq + 1, memory_order_release);
    /* Release: the rank is there before it is counted. Pairs with xccl_control_left_before(). */
    atomic_fetch_add_explicit(&control->left_count, 1, memory_order_release);
    if (from && other->rank != left->rank)
        tell_left(other, *left);
}

int xccl_control_take_goodbye(struct neighbour *neighbour, uint8_t *body, size_t bytes)
{
    struct xccl_left left;

    if (!xccl_left_decode(body, bytes, neighbour->control->nranks, &left) || !left.has_calls ||
        left.rank != neighbour->rank)
        return 0;
    xccl_control_hear_of_left(neighbour->control, neighbour, &left);
    return 1;
}

int xccl_control_take_left(struct neighbour *neighbour, uint8_t *body, size_t bytes)
{
    struct xccl_left left;

    if (!xccl_left_decode(body, bytes, neighbour->control->nranks, &left))
        return 0;
    if (left.rank != neighbour->control->rank)
        xccl_control_hear_of_left(neighbour->control, neighbour, &left);
    return 1;
}

const struct xccl_board_history *xccl_control_left_history(const struct xccl_control *control,
                                                           int rank)
{
    uint8_t calls = control->left[rank].calls;

    return calls ? &control->left_calls[calls - 1].history : NULL;
}

void xccl_control_compare_left(struct xccl_control *control)
{
    /* Relaxed: what is not seen now is compared when it comes. */
    if (!control || !atomic_load_explicit(&control->left_count, memory_order_relaxed))
        return;
    for (uint32_t i = 0; i < LEFT_CALLS; i++) {
        struct left_calls left;
        int is_there;

        xccl_loop_lock(control->loop);
        is_there = i < control->left_calls_count;
        left = control->left_calls[i];
        xccl_loop_unlock(control->loop);
        if (!is_there)
            return;
        (void)control->compare(control->comm, left.rank, &left.history);
    }
}

int xccl_control_has_left(const struct xccl_control *control, int rank)
{
    /* Acquire: pairs with xccl_control_hear_of_left(). */
    return atomic_load_explicit(&control->left[rank].after, memory_order_acquire) != 0;
}

int xccl_control_left_before(const struct xccl_control *control, uint64_t seq,
                             uint64_t *last_seq_out)
{
    /* Acquire: pairs with xccl_control_hear_of_left(). */
    if (!atomic_load_explicit(&control->left_count, memory_order_acquire))
        return XCCL_NOBODY;
    for (int rank = 0; rank < control->nranks; rank++) {
        /* Acquire: pairs with xccl_control_hear_of_left(). */
        uint64_t left = atomic_load_explicit(&control->left[rank].after, memory_order_acquire);

        if (!left || left > seq)
            continue;
        *last_seq_out = left - 1;
        return rank;
    }
    return XCCL_NOBODY;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank is asked what it has begun: the question goes round the ring both ways until it reaches
 * that rank, or one that knows its last calls when it has left, and the answer comes back the same
 * way. Here is decided what becomes of a question or an answer that has come; control.c puts and
 * sends them.
 *
 * Thread: the service thread, with the loop's lock. */
#include <string.h>

#include "watch/control_int.h"

static void pass_on(struct xccl_ask_out *out, int neighbour, uint16_t type, const uint8_t *body,
                    size_t bytes)
{
    out->neighbour = neighbour;
    out->type = type;
    out->bytes = bytes;
    memcpy(out->body, body, bytes);
}

/* Answers in the direction that the question came from. */
static void answer(struct xccl_ask_out *out, int from, const uint8_t *question,
                   enum xccl_begun verdict, const struct xccl_board_history *history)
{
    struct xccl_wire wire;

    pass_on(out, from, FRAME_ANSWER, question, ASK_BYTES);
    wire = xccl_wire_over(out->body + ASK_BYTES, sizeof out->body - ASK_BYTES);
    xccl_wire_put_u32(&wire, verdict);
    xccl_history_put(&wire, history);
    out->bytes = ANSWER_BYTES;
}

/* Answers a question for this rank, or for one that has left, or passes it on. One that comes back
 * to its asker is dropped. */
int xccl_control_take_ask(struct xccl_control *control, int from, uint8_t *body, size_t bytes,
                          struct xccl_ask_out *out)
{
    struct xccl_wire wire = xccl_wire_over(body, bytes);
    int asker = (int32_t)xccl_wire_get_u32(&wire), asked = (int32_t)xccl_wire_get_u32(&wire);
    uint64_t word = xccl_wire_get_u64(&wire);
    const struct xccl_board_history *left;
    struct xccl_board_history own;

    if (bytes != ASK_BYTES || !xccl_control_has_rank(control, asker) ||
        !xccl_control_has_rank(control, asked))
        return 0;
    left = xccl_control_left_history(control, asked);
    if (asked == control->rank && control->comm) {
        const struct xccl_board *board = control->comm->board;

        xccl_board_copy(board, (uint32_t)(word >> 32), &own);
        answer(out, from, body, xccl_board_begun(board, word), &own);
    } else if (left && asker != control->rank) {
        answer(out, from, body, xccl_history_begun(left, word), left);
    } else if (asker != control->rank) {
        pass_on(out, !from, FRAME_ASK, body, bytes);
    }
    return 1;
}

int xccl_control_take_answer(struct xccl_control *control, int from, uint8_t *body, size_t bytes,
                             struct xccl_ask_out *out)
{
    struct xccl_wire wire = xccl_wire_over(body, bytes);
    int asker = (int32_t)xccl_wire_get_u32(&wire), asked = (int32_t)xccl_wire_get_u32(&wire);
    uint64_t word = xccl_wire_get_u64(&wire);
    uint32_t verdict = xccl_wire_get_u32(&wire);

    if (bytes != ANSWER_BYTES || !xccl_control_has_rank(control, asker) ||
        !xccl_control_has_rank(control, asked) || verdict > XCCL_BEGUN_NO)
        return 0;
    if (asker != control->rank) {
        if (asked != control->rank)
            pass_on(out, !from, FRAME_ANSWER, body, bytes);
        return 1;
    }
    if (asked != control->asked || word != control->asked_word)
        return 1; /* too late */
    control->asked = XCCL_NOBODY;
    xccl_history_get(&wire, &control->asked_history);
    /* Release: the calls come first. Pairs with xccl_control_ask(). */
    atomic_store_explicit(&control->answer, verdict + 1, memory_order_release);
    return 1;
}

int xccl_control_take_asking(struct neighbour *neighbour, uint16_t type, uint8_t *body,
                             size_t bytes)
{
    struct xccl_control *control = neighbour->control;
    int from = neighbour == &control->neighbours[1];
    struct xccl_ask_out out = {.bytes = 0};
    int is_right = type == FRAME_ASK ? xccl_control_take_ask(control, from, body, bytes, &out)
                                     : xccl_control_take_answer(control, from, body, bytes, &out);

    if (out.bytes)
        (void)xccl_control_send(&control->neighbours[out.neighbour], out.type, out.body, out.bytes);
    return is_right;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Inside of the control plane: its two ring connections, shared by control.c, which serves them,
 * control_ask.c, which asks ranks over them what they have begun, and control_left.c, which keeps
 * who has left. Guarded by the loop's lock. */
#ifndef XCCL_WATCH_CONTROL_INT_H
#define XCCL_WATCH_CONTROL_INT_H

#include <assert.h>

#include "base/wire.h"
#include "bootstrap/message.h"
#include "watch/calls_wire.h"
#include "watch/control.h"
#include "watch/notice_wire.h"
#include "watch/standstill.h"

enum {
    FRAME_HEARTBEAT = XCCL_BOOT_HEARTBEAT,
    FRAME_NOTICE = XCCL_BOOT_NOTICE,
    FRAME_GOODBYE = 0x22,
    FRAME_ASK = 0x23,
    FRAME_ANSWER = 0x24,
    FRAME_STILL = 0x25,
    FRAME_LEFT = 0x26
};

#define GOODBYE_BYTES (8 + XCCL_HISTORY_BYTES)
#define LEFT_BYTES    12
#define ASK_BYTES     16
#define ANSWER_BYTES  (ASK_BYTES + 4 + XCCL_HISTORY_BYTES)
#define NOTICE_BYTES  XCCL_NOTICE_FRAME_BYTES
#define FRAME_BYTES   XCCL_BOOT_ERROR_MAX /* the largest */

static_assert(NOTICE_BYTES <= FRAME_BYTES, "it is");
static_assert((int)XCCL_NOTICE_ERROR == XCCL_BOOT_NOTICE_ERROR, "ranks that join read it, too");
static_assert(XCCL_STILL_BYTES <= FRAME_BYTES, "so is where a rank stands");
static_assert(ANSWER_BYTES <= FRAME_BYTES, "so are the newest calls of a rank");

struct neighbour {
    struct xccl_source source;
    struct xccl_conn *conn; /* NULL: closed */
    struct xccl_control *control;
    int rank;
    char address[XCCL_ADDR_TEXT_BYTES]; /* of the other end, without the port; "" not known */
    int watched; /* it is in the loop */
    int said_goodbye; /* nothing may follow it */
    int owed; /* the notice that could not be queued so far */
    int reading; /* neighbour_read() is at work */
    uint64_t heard_ns, due_ns; /* last sign of life; when the next heartbeat is to be sent */
    uint64_t look_ns; /* when that, or the end of the neighbour's time, is to be looked at */
    _Atomic uint32_t call; /* low half of the number of the call it was last heard to be in */
    int is_goodbye; /* it has said goodbye, with: */
    struct xccl_board_history last; /* its last calls */
};

struct xccl_control {
    struct xcclComm *comm; /* NULL: it has left */
    struct xccl_loop *loop;
    int rank;
    uint64_t beat_ns; /* 0: no heartbeats */
    uint8_t notice[NOTICE_BYTES]; /* of the first error: there is no second one */
    size_t notice_bytes;
    struct neighbour neighbours[2];
    /* This rank's question; guarded by the loop's lock, except for the answer. */
    int asked; /* a rank; XCCL_NOBODY: nothing is asked */
    uint64_t asked_word;
    struct xccl_board_history asked_history; /* before `answer` */
    _Atomic uint32_t answer; /* enum xccl_begun + 1 */
    _Atomic int hurries; /* 1: the next heartbeat is early */
    _Atomic int left_count; /* ranks that have left */
    _Atomic uint64_t left_after[]; /* by rank; 0: has not left; else its last call + 1 */
};

static inline int xccl_control_has_rank(const struct xccl_control *control, int rank)
{
    return rank >= 0 && rank < control->comm->nranks;
}

/* A frame to send to a neighbour, as a consequence of one that came. bytes 0: none. */
struct xccl_ask_out {
    int neighbour;
    uint16_t type;
    size_t bytes;
    uint8_t body[ANSWER_BYTES];
};

/* Frames that have come from neighbour `from`. 0: of a wrong size, or about a rank that there is
 * not. */
int xccl_control_take_ask(struct xccl_control *control, int from, uint8_t *body, size_t bytes,
                          struct xccl_ask_out *out);
int xccl_control_take_answer(struct xccl_control *control, int from, uint8_t *body, size_t bytes,
                             struct xccl_ask_out *out);
/* The last calls of a neighbour that has left; NULL: it has not, or is none. */
const struct xccl_board_history *xccl_control_left_history(const struct xccl_control *control,
                                                           int rank);

/* Notes that a rank has left after so many calls. 1: that is new. */
int xccl_control_note_left(struct xccl_control *control, int rank, uint64_t last_seq);

#endif

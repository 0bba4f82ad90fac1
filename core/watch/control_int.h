/* SPDX-License-Identifier: BSD-3-Clause */
/* Inside of the control plane: its two ring connections, shared by control.c, which serves them,
 * control_send.c, which sends, control_ask.c, which asks ranks over them what they have begun,
 * control_left.c, which keeps who has left after which calls, and control_relay.c, which serves
 * them when this rank has left. Guarded by the loop's lock. */
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

#define LEFT_CALLS   8 /* histories of ranks that have left; in a right program they are alike */
#define ASK_BYTES    16
#define ANSWER_BYTES (ASK_BYTES + 4 + XCCL_HISTORY_BYTES)
#define NOTICE_BYTES XCCL_NOTICE_FRAME_BYTES
#define FRAME_BYTES  XCCL_BOOT_ERROR_MAX /* the largest */

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
    int is_shut; /* nothing may be sent any more */
    int owed; /* the notice that could not be queued so far */
    int reading; /* neighbour_read() is at work */
    uint64_t heard_ns, due_ns; /* last sign of life; when the next heartbeat is to be sent */
    uint64_t look_ns; /* when that, or the end of the neighbour's time, is to be looked at */
    _Atomic uint32_t call; /* low half of the number of the call it was last heard to be in */
    uint64_t told_word; /* of the calls that it was told last of a rank that has left */
};

/* The last calls of the first rank that left after these. */
struct left_calls {
    int rank;
    struct xccl_board_history history;
};

struct left_rank {
    _Atomic uint64_t after; /* 0: it has not left; else its last call + 1 */
    uint8_t calls; /* place of its last calls in left_calls + 1; 0: not known */
};

struct xccl_control {
    struct xcclComm *comm; /* NULL: it has left */
    struct xccl_loop *loop;
    int rank, nranks;
    int relays; /* it has left, and passes on what comes */
    void (*on_broken)(struct neighbour *neighbour); /* it was found when something was sent */
    /* Compares a rank's last calls with this rank's; NULL: this one has left. */
    xcclResult_t (*compare)(struct xcclComm *comm, int peer,
                            const struct xccl_board_history *theirs);
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
    uint32_t left_calls_count;
    struct left_calls left_calls[LEFT_CALLS];
    struct left_rank left[]; /* by rank */
};

static inline int xccl_control_has_rank(const struct xccl_control *control, int rank)
{
    return rank >= 0 && rank < control->nranks;
}

/* A frame to send to a neighbour, as a consequence of one that came. bytes 0: none. */
struct xccl_ask_out {
    int neighbour;
    uint16_t type;
    size_t bytes;
    uint8_t body[ANSWER_BYTES];
};

/* --- control_send.c --- */

/* An error, with its text: nothing was queued. */
xcclResult_t xccl_control_send(struct neighbour *neighbour, uint16_t type, const void *body,
                               size_t bytes);
/* Writes what the socket takes; the rest when it polls writable. */
void xccl_control_flush(struct neighbour *neighbour);
void xccl_control_close_neighbour(struct neighbour *neighbour);

/* --- control_ask.c --- */

/* Frames that have come from neighbour `from`. 0: of a wrong size, or about a rank that there is
 * not. */
int xccl_control_take_ask(struct xccl_control *control, int from, uint8_t *body, size_t bytes,
                          struct xccl_ask_out *out);
int xccl_control_take_answer(struct xccl_control *control, int from, uint8_t *body, size_t bytes,
                             struct xccl_ask_out *out);
/* Takes one of the two, and sends what follows from it. */
int xccl_control_take_asking(struct neighbour *neighbour, uint16_t type, uint8_t *body,
                             size_t bytes);

/* --- control_left.c --- */

/* The last calls of a rank that has left; NULL: it has not, or they are not known. */
const struct xccl_board_history *xccl_control_left_history(const struct xccl_control *control,
                                                           int rank);
/* A rank has left, as neighbour `from` says; NULL: this one leaves. Compares its calls with this
 * rank's, and passes it on, unless that is known. */
void xccl_control_hear_of_left(struct xccl_control *control, struct neighbour *from,
                               struct xccl_left *left);
/* Frames that have come. 0: of a wrong size, or about a rank that there is not. */
int xccl_control_take_goodbye(struct neighbour *neighbour, uint8_t *body, size_t bytes);
int xccl_control_take_left(struct neighbour *neighbour, uint8_t *body, size_t bytes);

/* --- control_relay.c --- */

/* This rank is about to leave. Notes whether others may need it to hear of each other. */
void xccl_relay_open(struct xccl_control *control);
/* The goodbye is queued, and comm about to go. */
void xccl_relay_begin(struct neighbour *neighbour);
void xccl_relay_on_events(struct neighbour *neighbour, uint32_t events);
void xccl_relay_on_timer(struct neighbour *neighbour);
/* Ends it when nobody needs it any more. */
void xccl_relay_look(struct xccl_control *control);
/* Frees a control plane that has left once both connections are closed. The service thread, or
 * close itself. 1: it is gone. */
int xccl_relay_free(struct xccl_control *control);

#endif

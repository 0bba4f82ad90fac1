/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank's state, shared by the bootstrap's own files; nobody else includes it.
 *
 *   root_link.c  report to a root
 *   join.c       spread the addresses in rounds
 *   dial.c       connect to another rank
 *   mail*.c      messages to any rank, over connections made when they are needed
 *   collect.c    what is made of messages: all-gather, barrier, broadcast, send, receive
 *   failing.c    the first error, and how the others come to know it
 *   split.c      a child from its parent
 *
 * Thread: the service thread's callbacks, or any that holds the loop's lock. */
#ifndef XCCL_BOOTSTRAP_BOOTSTRAP_INT_H
#define XCCL_BOOTSTRAP_BOOTSTRAP_INT_H

#include "base/error.h"
#include "base/loop.h"
#include "base/tries.h"
#include "bootstrap/acceptor.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/conn_int.h"
#include "bootstrap/message.h"
#include "bootstrap/alive.h"

#define XCCL_BOOT_ROUNDS_MAX 20
#define XCCL_BOOT_NETIFS_MAX 8

/* --- root_link.c, join.c --- */

/* A connection to a root. */
struct xccl_boot_root_link {
    struct xccl_source source;
    struct xccl_bootstrap *boot;
    const struct xccl_meeting *meeting; /* NULL: not used */
    struct xccl_conn *conn;
    struct xccl_tries tries;
    int turned_away; /* refusals of the proof */
    int connected; /* this try; the proof is under way */
    int shaking, told; /* told: it has said all that it will */
    int noted; /* the log says that it is not reached */
    int given_up; /* no address was reached, so nobody can be told either */
    int reported; /* the root knows of this rank, so it hears of a failure by this connection */
    int ending; /* this rank has joined and said so; the root closes */
    struct xccl_alive alive; /* the root's */
};

/* The root that this rank has met, if it has several addresses. */
struct xccl_boot_met {
    struct xccl_addr roots[XCCL_DOORS_MAX];
    int count, idx; /* count 0: one, or not met yet; idx: where it answered */
};

/* --- dial.c --- */

/* A connection to another rank, until both are proven. */
struct xccl_boot_dial {
    struct xccl_bootstrap *boot;
    int rank;
    uint16_t purpose, detail;
    struct xccl_source *source; /* the owner's, whose timer calls xccl_boot_dial_on_timer */
    struct xccl_conn **conn; /* the owner's, NULL between two tries */
    struct xccl_tries tries;
    int turned_away, connected; /* refusals of the proof; this try is connected */
};

/* One connection of a round. give: this rank pushes (accepted from r - 2^k); else it takes (opened
 * to r + 2^k). Those of round 0 are the ring; the others become connections for messages. */
struct xccl_boot_round {
    struct xccl_source source;
    struct xccl_bootstrap *boot;
    struct xccl_conn *conn;
    struct xccl_boot_dial dial;
    int rank, round, give;
    int shaking;
    uint64_t moved, total; /* bytes of the block that goes over it */
    int all_queued, done;
    struct xccl_alive alive; /* of the ring only: the neighbour's */
    int kept; /* of the ring: what has come is for whoever takes it, and stays in the connection */
};

/* --- mail.c --- */

/* What waits to be sent to one rank. The memory is the sender's until done. */
struct xccl_boot_send {
    struct xccl_boot_mail mail;
    struct xccl_span spans[2]; /* together mail.total bytes */
    int rank;
    int queued; /* all of it is in the connection's buffer */
    int started, done; /* done: it is in the socket */
    struct xccl_boot_send *next;
};

/* What is waited for from one rank. */
struct xccl_boot_recv {
    struct xccl_boot_mail mail; /* total: what must come */
    struct {
        void *data;
        size_t bytes;
    } spans[2];
    int rank;
    int started, done;
    struct xccl_boot_recv *next;
};

/* A connection whose turn has not come, oldest first. */
struct xccl_boot_parked {
    struct xccl_conn *conn;
    struct xccl_boot_parked *next;
};

struct xccl_boot_early; /* a message that came before it was asked for */
struct xccl_boot_pair; /* what this rank has with one other */

/* --- collect.c --- */

enum xccl_boot_op_kind {
    XCCL_OP_NONE,
    XCCL_OP_JOIN,
    XCCL_OP_STEPS, /* all-gather and barrier */
    XCCL_OP_SPLIT, /* the same, whose parts say who goes where */
    XCCL_OP_RING,
    XCCL_OP_TREE,
    XCCL_OP_SEND,
    XCCL_OP_RECV
};

struct xccl_boot_op {
    enum xccl_boot_op_kind kind;
    struct xccl_boot_set set;
    uint8_t *data;
    size_t bytes; /* a part's, or the message's */
    int root;
    int rounds;
    int ups, downs; /* ring: steps done each way */
    struct xccl_boot_send sends[XCCL_BOOT_ROUNDS_MAX];
    struct xccl_boot_recv recvs[XCCL_BOOT_ROUNDS_MAX];
};

/* --- all of it --- */

enum xccl_boot_state {
    XCCL_BOOT_JOINING,
    XCCL_BOOT_UP,
    XCCL_BOOT_HEARING, /* an error that may be an echo: root and ring are listened to */
    XCCL_BOOT_FAILED /* the error is final and everybody was told */
};

/* How a failure reaches what is under way, from below it. */
struct xccl_boot_above {
    void (*tell)(struct xccl_bootstrap *boot, uint16_t type, const void *body, size_t bytes);
    void (*stop)(struct xccl_bootstrap *boot, int keep_hearing);
    void (*wait_text)(const struct xccl_bootstrap *boot, char *text_out, size_t bytes);
};

struct xccl_bootstrap {
    const struct xccl_boot_above *above;
    struct xccl_job job;
    int rank, nranks, rounds;
    enum xccl_boot_state state;
    struct xccl_loop *loop;
    struct xccl_bell *bell; /* rung when test may say something new */
    struct xccl_bell own_bell;
    struct xccl_limit limit; /* of the operation at work */
    struct xccl_source timer; /* its deadline; after an error, the next step of giving up */
    struct xccl_acceptor *acceptor;
    struct xccl_addr self_addr; /* where it listens; before, without a port, where it may */
    struct xccl_addr met_addr; /* of its interface towards the others */
    int met_noted; /* it is of a connection with another host */
    struct xccl_boot_met met[2]; /* of root_links; a child's are its parent's */
    struct xccl_netif chosen[XCCL_BOOT_NETIFS_MAX]; /* that it may use */
    int chosen_count, only_chosen;
    uint8_t *addrs; /* nranks addresses of XCCL_ADDR_WIRE_BYTES */

    struct xccl_root *root; /* of rank 0 under XCCL_COMM_ID, while joining */
    struct xccl_boot_root_link root_links[2]; /* own and before */
    struct xccl_boot_round take[XCCL_BOOT_ROUNDS_MAX], give[XCCL_BOOT_ROUNDS_MAX];
    int next_known, ring_taken;
    int shares_pair; /* ephemeral.h, while it joins */
    int has_parent; /* it was split off: it has no root, and knows its place only when next_known */
    struct xccl_boot_parked *parked; /* connections that came before that */
    int parked_count;

    struct xccl_boot_pair **pairs; /* nranks places, made when first needed */
    struct xccl_boot_early *early, **early_end;
    uint64_t early_bytes, early_count;
    int held_count; /* pairs whose next message had no room */
    struct xccl_boot_recv *recvs;
    struct xccl_source idle; /* closes connections that are not used */
    uint32_t splits; /* how many children were made */
    struct xccl_bootstrap *child; /* of the last split, until it is taken */
    uint8_t *split_parts; /* nranks parts, while a split is at work */

    struct xccl_boot_op op;

    int told_caller; /* the error was logged */
    int aborted; /* by xccl_bootstrap_abort: no usage error on the other ranks */
    int maybe_echo; /* the error is a lost peer's: the root or a neighbour may know why it went */
    struct xccl_rank_places places; /* what is known of ranks from elsewhere; find NULL: nothing */
    /* A child has places of rank + 1 and rank - 1 here; host "": not known. */
    struct xccl_rank_place ring_places[2];
    char notice[XCCL_BOOT_ERROR_TEXT_MAX + 1]; /* why the communicator has failed; "": not known */
    uint64_t notice_end_ns; /* with it: operations end by then */
    uint64_t linger_ns; /* until when a failed rank stays for those on their way here */
    _Atomic int failed; /* for xccl_bootstrap_failed() */
    /* the first error; its text is complete */
    xcclResult_t rc;
    char error[XCCL_ERROR_TEXT_BYTES];
};

/* root_link.c */
void xccl_boot_link_start(struct xccl_bootstrap *boot, struct xccl_boot_root_link *link);
void xccl_boot_link_close(struct xccl_boot_root_link *link);
/* This rank has joined: says so, and stays until the root has read it. */
void xccl_boot_link_finish(struct xccl_boot_root_link *link);
/* A root does not know of this rank, so it must be told of a failure. */
int xccl_boot_root_unaware(const struct xccl_bootstrap *boot);

/* join.c */
void xccl_boot_join_start(struct xccl_bootstrap *boot);
/* A child whose addresses are known: only the ring is to be made. */
void xccl_boot_ring_start(struct xccl_bootstrap *boot);
void xccl_boot_join_on_conn(struct xccl_bootstrap *boot, struct xccl_conn *conn);
/* Does all that can be done now; called after every event. */
void xccl_boot_join_pump(struct xccl_bootstrap *boot);
void xccl_boot_join_wait_text(const struct xccl_bootstrap *boot, char *text_out, size_t bytes);
/* Sends a frame on every connection of the joining, as far as the sockets take it. */
void xccl_boot_join_tell(struct xccl_bootstrap *boot, uint16_t type, const void *body,
                         size_t bytes);
/* Stops watching all connections of the joining but, with keep_hearing, those to roots and
 * neighbours on the ring. */
void xccl_boot_join_stop(struct xccl_bootstrap *boot, int keep_hearing);
void xccl_boot_join_close(struct xccl_bootstrap *boot);

/* dial.c */
/* The hello of a rank that connects to a root; dial.c makes it one for another rank. */
struct xccl_hello xccl_boot_hello(const struct xccl_bootstrap *boot, uint16_t purpose,
                                  uint16_t detail);
/* Watches a connection for events, or for nothing when there are none. */
xcclResult_t xccl_boot_watch(struct xccl_bootstrap *boot, struct xccl_source *source,
                             const struct xccl_conn *conn, uint32_t events);
/* Where a rank listens, in the order in which to try; returns how many, 0: it cannot be read. */
int xccl_boot_addr_list(const struct xccl_bootstrap *boot, int rank,
                        struct xccl_addr addrs_out[XCCL_TRIES_ADDRS]);
/* Whether a failed proof is worth another try. A busy acceptor may have dropped us for a newer
 * stranger, so one refusal is not believed; and at one of several addresses (count) somebody else
 * may be, on another network. *turned_away counts the refusals. */
int xccl_boot_may_mend(const struct xccl_conn *conn, xcclResult_t rc, int count, int *turned_away);
/* Connects; the source is in the loop then, or boot has failed. */
void xccl_boot_dial_start(struct xccl_boot_dial *dial);
/* After an event. 1: both are proven, and the source waits for no timer. */
int xccl_boot_dial_shake(struct xccl_boot_dial *dial);
int xccl_boot_dial_on_timer(struct xccl_boot_dial *dial); /* as dial_shake */

/* mail.c */
xcclResult_t xccl_boot_mail_start(struct xccl_bootstrap *boot);
void xccl_boot_mail_on_conn(struct xccl_bootstrap *boot, struct xccl_conn *conn);
/* Takes a connection over for messages to (out) or from a rank; nothing else is in it any more. */
void xccl_boot_mail_adopt(struct xccl_bootstrap *boot, int rank, struct xccl_conn *conn, int out);
/* Puts it in line; done is set later, in a callback that then calls xccl_boot_op_advance. */
void xccl_boot_send_post(struct xccl_bootstrap *boot, struct xccl_boot_send *send);
/* May find an early arrival and be done at once. */
void xccl_boot_recv_post(struct xccl_bootstrap *boot, struct xccl_boot_recv *recv);
/* Forgets what was posted and stops reading; connections stay for xccl_boot_mail_tell. */
void xccl_boot_mail_stop(struct xccl_bootstrap *boot);
void xccl_boot_mail_tell(struct xccl_bootstrap *boot, uint16_t type, const void *body,
                         size_t bytes);
void xccl_boot_mail_close(struct xccl_bootstrap *boot);

/* collect.c */
struct xccl_boot_parts {
    void *data;
    size_t bytes; /* of each part */
};
xcclResult_t xccl_boot_steps_start(struct xccl_bootstrap *boot, enum xccl_boot_op_kind kind,
                                   const struct xccl_boot_set *set, struct xccl_boot_parts parts,
                                   const struct xccl_limit *limit);
void xccl_boot_op_advance(struct xccl_bootstrap *boot); /* does all that can be done now */
void xccl_boot_op_end(struct xccl_bootstrap *boot);
void xccl_boot_op_wait_text(const struct xccl_bootstrap *boot, char *text_out, size_t bytes);

/* split.c */
void xccl_boot_split_finish(struct xccl_bootstrap *boot); /* all parts are there */
void xccl_boot_split_close(struct xccl_bootstrap *boot); /* of a parent that failed meanwhile */

/* bootstrap.c */
/* Handshakes share a key pair while ranks join: 1 from the beginning on, 0 when it is over. */
void xccl_boot_share_pair(struct xccl_bootstrap *boot, int shares);
void xccl_boot_unpark(struct xccl_bootstrap *boot); /* its place is known: what was kept is taken */
/* Memory and a place in the service thread's loop, without a way to join yet. */
xcclResult_t xccl_boot_make(int rank, int nranks, struct xccl_bell *bell,
                            struct xccl_bootstrap **boot_out);
/* Listens at the interface by which a link has met its root. */
xcclResult_t xccl_boot_listen_met(struct xccl_bootstrap *boot,
                                  const struct xccl_boot_root_link *link);
/* Notes by which interface another host has been met. */
void xccl_boot_note_met(struct xccl_bootstrap *boot, const struct xccl_conn *conn);
/* A child listens where its parent does. */
xcclResult_t xccl_boot_listen_as(struct xccl_bootstrap *boot, const struct xccl_bootstrap *parent);

/* failing.c */
/* Keeps the first error, as an event of this rank or of a peer; later ones are its echo. */
void xccl_boot_fail(struct xccl_bootstrap *boot, xcclResult_t rc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4), cold));
/* Keeps a verdict as the first error: this rank has found it, and culprit is to blame. */
void xccl_boot_raise(struct xccl_bootstrap *boot, struct xccl_verdict *verdict, int culprit)
    __attribute__((cold));
/* Raises a verdict about the rank at the other end of conn; number: of the message, or 0. */
void xccl_boot_raise_at(struct xccl_bootstrap *boot, enum xccl_trouble trouble, int rank,
                        const struct xccl_conn *conn, uint64_t number) __attribute__((cold));
/* Raises a verdict about a rank (XCCL_VERDICT_NOBODY: none), with a text as evidence. */
void xccl_boot_raise_why(struct xccl_bootstrap *boot, enum xccl_trouble trouble, xcclResult_t rc,
                         int culprit, const char *why) __attribute__((cold));
/* Raises a verdict about this rank itself, with the thread's error text as evidence. */
void xccl_boot_raise_own(struct xccl_bootstrap *boot, enum xccl_trouble trouble, xcclResult_t rc)
    __attribute__((cold));
/* Finds where a rank runs (struct xccl_rank_places), as far as it is known. */
int xccl_boot_find_place(const void *owner, int rank, struct xccl_rank_place *place_out);
/* "rank 3 (host a, pid 12)", as far as it is known. */
void xccl_boot_name(const struct xccl_bootstrap *boot, int rank,
                    char text_out[XCCL_BOOT_NAME_BYTES]);
/* The other end of a connection, called name, is silent. */
void xccl_boot_fail_silent(struct xccl_bootstrap *boot, const char *name,
                           const struct xccl_conn *conn);
/* An error of which this rank was told: the text is its origin's, unless it says that this rank is
 * silent. */
void xccl_boot_fail_text(struct xccl_bootstrap *boot, xcclResult_t rc, const char *text);
/* A connection with a rank failed and the thread's error text says how: perhaps only an echo. */
void xccl_boot_fail_peer(struct xccl_bootstrap *boot, xcclResult_t rc, int rank,
                         const struct xccl_conn *conn);
/* A push to a rank failed: what that rank says of it, if it does, else as xccl_boot_fail_peer(). */
void xccl_boot_fail_push(struct xccl_bootstrap *boot, xcclResult_t rc, int rank,
                         struct xccl_conn *conn);
/* An ERROR frame; where says who sent it. */
void xccl_boot_fail_told(struct xccl_bootstrap *boot, const struct xccl_frame *frame,
                         const struct xccl_conn *conn);
/* A NOTICE frame from the ring. 1: it stays there for whoever takes the ring; 0: this rank fails
 * for it. */
int xccl_boot_take_notice(struct xccl_bootstrap *boot, const struct xccl_frame *frame);
/* After a notice the operation at work has a short while to complete; before one it does nothing.
 */
void xccl_boot_end_soon(struct xccl_bootstrap *boot);
/* Tells a connection that came after the error was final; before that it does nothing. */
void xccl_boot_tell_late(const struct xccl_bootstrap *boot, struct xccl_conn *conn);
void xccl_boot_on_timer(struct xccl_source *source, uint64_t now_ns);

#endif

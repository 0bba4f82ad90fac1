/* SPDX-License-Identifier: BSD-3-Clause */
/* Helper threads: a comm that was given to one is moved by it alone, and its caller only leaves
 * word of what is to be done and looks what has become of it (a sock_hand). Without helpers, which
 * is the usual way, no comm has a hand and nothing of this runs. The README tells when there are
 * some.
 *
 * Thread: each function and field says whose it is: the caller's, that is the comm's thread in the
 * contract's sense, or the helper's. */
#ifndef SOCK_HELPER_INT_H
#define SOCK_HELPER_INT_H

#include <stdatomic.h>

#include "sock_int.h"
#include "sock_wait.h"

#define SOCK_THREADS_MAX 8 /* of a device */
#define SOCK_CACHE_BYTES 64

struct sock_helper;

/* Where the caller's descriptor to sleep on stands. The caller makes QUIET and RUNG to ARMED, the
 * helper ARMED to RINGING and RUNG; so each step has one maker. */
enum sock_bell {
    SOCK_BELL_QUIET, /* nobody sleeps on it */
    SOCK_BELL_ARMED, /* a test has said no since: the caller may sleep on it */
    SOCK_BELL_RINGING, /* about to be made readable */
    SOCK_BELL_RUNG /* readable */
};

/* What the caller's request is. The caller fills it before `posted` covers it; from then on it is
 * the helper's until done, and the caller's again when it has seen that. */
struct sock_hand_send {
    struct sock_request request; /* the caller's alone: FREE, or ACTIVE until test says done */
    _Atomic int done;
    uint32_t tag;
    const void *data;
    size_t bytes;
    xcclNetMem_t mem;
    struct sock_request *real; /* the helper's: of the comm; NULL: not posted, or done */
};

struct sock_hand_recv {
    struct sock_request request;
    _Atomic int done;
    int count;
    void *data[SOCK_PARTS];
    size_t bytes[SOCK_PARTS]; /* room, then what came */
    uint32_t tags[SOCK_PARTS];
    xcclNetMem_t mems[SOCK_PARTS];
    struct sock_request *real;
};

/* A comm between its caller and its helper. The requests are used round and round, as the comm's
 * own, and there are as many. */
struct sock_hand {
    struct sock_comm *comm;
    struct sock_helper *helper;
    struct sock_hand_send *sends; /* of a sender, else NULL */
    struct sock_hand_recv *recvs; /* of a receiver */
    /* The caller's. */
    int event_fd; /* made by waitFd, -1: not asked for; the helper writes it while ARMED */
    _Alignas(SOCK_CACHE_BYTES) _Atomic uint32_t posted; /* by the caller so far */
    _Alignas(SOCK_CACHE_BYTES) _Atomic int failed; /* the comm's error is there, for good */
    _Atomic int bell; /* enum sock_bell */
    /* Stored by the helper before it sleeps: what arrives wakes it, and then it takes what was
     * posted meanwhile; so more receives behind those in flight are no reason to wake it. */
    _Atomic int attended;
    /* The helper's. */
    _Alignas(SOCK_CACHE_BYTES) struct sock_watch watch;
    uint32_t taken; /* of what was posted, given to the comm */
    uint32_t seen; /* of what was posted; the comm was busy for what is not taken of it */
    uint32_t first; /* all requests before it are done */
    uint32_t active; /* given to the comm and not done */
    int ready; /* its descriptor has fired: the comm may move */
    struct sock_hand *before, *next; /* in the helper's list */
    /* Under the helper's lock. */
    struct sock_hand *next_adding, *next_dropping; /* one that is new may be dropped already */
    int dropped;
};

/* sock_handover.c, the caller's side. */
struct sock_hand *sock_hand_create(struct sock_comm *comm); /* NULL after an error */
void sock_hand_destroy(struct sock_hand *hand); /* no helper knows it; NULL is fine */
xcclResult_t sock_hand_isend(struct sock_comm *comm, const void *data, size_t bytes, uint32_t tag,
                             xcclNetMem_t mem, xcclNetRequest_t *request_out);
xcclResult_t sock_hand_irecv(struct sock_comm *comm, int count, void *const *data,
                             const size_t *bytes, const uint32_t *tags, const xcclNetMem_t *mems,
                             xcclNetRequest_t *request_out);
xcclResult_t sock_hand_test(struct sock_request *request, int *done_out, size_t *bytes_out);
xcclResult_t sock_hand_wait_fd(struct sock_hand *hand, int *fd_out);
int sock_hand_failed(struct sock_hand *hand);

/* sock_handover.c, the helper's side. */
/* Something was posted since the last move, or the comm may take what it did not take then. */
int sock_hand_pending(struct sock_hand *hand);
/* Gives the comm what was posted, moves it, and tells the caller what is done. Returns how many
 * requests began or ended. */
uint32_t sock_hand_move(struct sock_hand *hand);

/* sock_helper.c */
/* At most thread_count threads for the comms of a device; none is started yet. */
xcclResult_t sock_pool_create(xcclNetLogger_t log, int first_number, int thread_count,
                              struct sock_pool **pool_out);
/* Ends and joins the threads. All comms are closed. NULL is fine. */
void sock_pool_destroy(struct sock_pool *pool);
/* Gives a comm that is connected to a helper. Error: there is no memory, or no descriptor left. A
 * system that gives no thread is none: then the caller moves the comm. */
xcclResult_t sock_helper_adopt(struct sock_pool *pool, struct sock_comm *comm);
/* Takes it back: the helper does not touch it any more, nor memory of its requests. */
void sock_helper_drop(struct sock_comm *comm);
/* After something was posted: wakes the helper if it sleeps, and would sleep on. */
void sock_helper_notify(struct sock_hand *hand);

#endif

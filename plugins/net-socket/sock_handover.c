/* SPDX-License-Identifier: BSD-3-Clause */
/* Between the caller of a comm and the helper thread that moves it.
 *
 *   caller                                     helper
 *   isend, irecv: fills the next request,
 *     posted + 1 (release) ------------------> takes it (acquire), isend or irecv of the comm
 * itself wakes the helper if it sleeps            moves the comm: sock_send.c, sock_recv.c, ...
 *   test: looks at done (acquire) <----------- sizes, then done (release)
 *         looks at failed (acquire) <--------- the comm's error, then failed (release)
 *
 * Requests are taken in the order of posting, so messages match as without helpers. A request that
 * was done before the comm failed is done: the helper stores `failed` after the last `done`, and
 * test looks at done once more when it has seen failed.
 *
 * The caller's descriptor to sleep on (waitFd) is an eventfd that is written only when a test has
 * said no since the last time, so a caller that never asks for it, or has got its answer, costs no
 * system call. ARMED and done are a pair in sequentially consistent order: test stores ARMED and
 * then looks at done once more, the helper stores done and then looks for ARMED; one sees the
 * other.
 *
 * Thread: caller and helper as said at each part. But for create, destroy and wait_fd nothing here
 * allocates, locks or logs. */
#include "sock_helper_int.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/tcp.h"

/* ---- the caller ---- */

struct sock_hand *sock_hand_create(struct sock_comm *comm)
{
    struct sock_hand *hand = xccl_calloc_aligned(SOCK_CACHE_BYTES, sizeof(*hand));

    if (!hand)
        return NULL;
    hand->comm = comm;
    hand->event_fd = -1;
    hand->watch.owner = hand;
    if (comm->is_send)
        hand->sends = xccl_calloc_aligned(SOCK_CACHE_BYTES, SOCK_SENDS * sizeof(*hand->sends));
    else
        hand->recvs = xccl_calloc_aligned(SOCK_CACHE_BYTES, SOCK_RECVS * sizeof(*hand->recvs));
    if (!hand->sends && !hand->recvs) {
        xccl_free(hand);
        return NULL;
    }
    for (int i = 0; hand->sends && i < SOCK_SENDS; i++)
        hand->sends[i].request.comm = comm;
    for (int i = 0; hand->recvs && i < SOCK_RECVS; i++)
        hand->recvs[i].request.comm = comm;
    return hand;
}

void sock_hand_destroy(struct sock_hand *hand)
{
    if (!hand)
        return;
    xccl_tcp_close(&hand->event_fd);
    xccl_free(hand->sends);
    xccl_free(hand->recvs);
    xccl_free(hand);
}

int sock_hand_failed(struct sock_hand *hand)
{
    /* Acquire: pairs with the release in fail_tell; the error was written before and is not touched
     * again. */
    return atomic_load_explicit(&hand->failed, memory_order_acquire);
}

/* Also hands the request over. */
static void post(struct sock_hand *hand, uint32_t number)
{
    /* Release: the request is filled; pairs with the acquire in sock_hand_pending. Sequentially
     * consistent because sock_helper_notify looks whether the helper sleeps after this: see
     * sock_helper.c. */
    atomic_store_explicit(&hand->posted, number + 1, memory_order_seq_cst);
    sock_helper_notify(hand);
}

xcclResult_t sock_hand_isend(struct sock_comm *comm, const void *data, size_t bytes, uint32_t tag,
                             xcclNetMem_t mem, xcclNetRequest_t *request_out)
{
    struct sock_hand *hand = comm->hand;
    /* Only this thread stores it. */
    uint32_t number = atomic_load_explicit(&hand->posted, memory_order_relaxed);
    struct sock_hand_send *send = &hand->sends[number % SOCK_SENDS];

    if (sock_hand_failed(hand))
        return sock_comm_error(comm);
    if (bytes > SOCK_MESSAGE_MAX)
        return xccl_fail_quietly(xcclInvalidArgument, 0, "split the message",
                                 "a message of %zu bytes is too large: at most %zu are possible",
                                 bytes, SOCK_MESSAGE_MAX);
    if (send->request.state != SOCK_FREE) {
        xccl_net_count(&comm->counters.busy_count, 1);
        *request_out = NULL;
        return xcclSuccess;
    }
    send->request.state = SOCK_ACTIVE;
    atomic_store_explicit(&send->done, 0, memory_order_relaxed); /* published by post */
    send->tag = tag;
    send->data = data;
    send->bytes = bytes;
    send->mem = mem;
    *request_out = &send->request;
    post(hand, number);
    return xcclSuccess;
}

xcclResult_t sock_hand_irecv(struct sock_comm *comm, int count, void *const *data,
                             const size_t *bytes, const uint32_t *tags, const xcclNetMem_t *mems,
                             xcclNetRequest_t *request_out)
{
    struct sock_hand *hand = comm->hand;
    uint32_t number = atomic_load_explicit(&hand->posted, memory_order_relaxed);
    struct sock_hand_recv *recv = &hand->recvs[number % SOCK_RECVS];

    if (sock_hand_failed(hand))
        return sock_comm_error(comm);
    if (count < 1 || count > SOCK_PARTS)
        return xccl_fail_quietly(
            xcclInvalidArgument, 0, "see maxRecvs in the properties of the device",
            "%d receives in one irecv: the socket plugin accepts 1 to %d", count, SOCK_PARTS);
    if (recv->request.state != SOCK_FREE) {
        xccl_net_count(&comm->counters.busy_count, 1);
        *request_out = NULL;
        return xcclSuccess;
    }
    recv->request.state = SOCK_ACTIVE;
    atomic_store_explicit(&recv->done, 0, memory_order_relaxed); /* published by post */
    recv->count = count;
    for (int i = 0; i < count; i++) {
        recv->data[i] = data[i];
        recv->bytes[i] = bytes[i];
        recv->tags[i] = tags[i];
        recv->mems[i] = mems ? mems[i] : NULL;
    }
    *request_out = &recv->request;
    post(hand, number);
    return xcclSuccess;
}

/* A test is about to say no: from now on the descriptor becomes readable when something ends. */
static void bell_arm(struct sock_hand *hand)
{
    /* Acquire: pairs with RUNG in bell_ring, whose write is then there to be read away. */
    int bell = atomic_load_explicit(&hand->bell, memory_order_acquire);
    uint64_t count;
    ssize_t got;

    if (bell == SOCK_BELL_ARMED || bell == SOCK_BELL_RINGING)
        return;
    if (bell == SOCK_BELL_RUNG) {
        do
            got = read(hand->event_fd, &count, sizeof(count));
        while (got < 0 && errno == EINTR);
    }
    /* Sequentially consistent with the look at done that follows: see the head. */
    atomic_store_explicit(&hand->bell, SOCK_BELL_ARMED, memory_order_seq_cst);
}

xcclResult_t sock_hand_test(struct sock_request *request, int *done_out, size_t *bytes_out)
{
    struct sock_hand *hand = request->comm->hand;
    struct sock_hand_send *send = (struct sock_hand_send *)request;
    struct sock_hand_recv *recv = (struct sock_hand_recv *)request;
    _Atomic int *done = hand->sends ? &send->done : &recv->done;
    int is_done;

    if (request->state == SOCK_FREE)
        return sock_request_gone();
    /* Acquire: pairs with the store in done_tell; sizes and received bytes are there. */
    is_done = atomic_load_explicit(done, memory_order_acquire);
    if (!is_done && hand->event_fd >= 0) {
        bell_arm(hand);
        is_done = atomic_load_explicit(done, memory_order_seq_cst);
    }
    if (!is_done && sock_hand_failed(hand)) {
        /* What was complete before the comm failed is still complete. */
        is_done = atomic_load_explicit(done, memory_order_acquire);
        if (!is_done)
            return sock_comm_error(request->comm);
    }
    *done_out = is_done;
    if (!is_done)
        return xcclSuccess;
    if (bytes_out && hand->sends)
        bytes_out[0] = send->bytes;
    for (int i = 0; bytes_out && hand->recvs && i < recv->count; i++)
        bytes_out[i] = recv->bytes[i];
    request->state = SOCK_FREE;
    return xcclSuccess;
}

/* It begins readable: what ended between the last test and now shows. */
xcclResult_t sock_hand_wait_fd(struct sock_hand *hand, int *fd_out)
{
    if (hand->event_fd < 0) {
        hand->event_fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
        if (hand->event_fd < 0)
            return xccl_fail_quietly(xcclSystemError, errno, "raise ulimit -n",
                                     "cannot make a descriptor to wait on");
        /* Only the caller looks at it before ARMED. */
        atomic_store_explicit(&hand->bell, SOCK_BELL_RUNG, memory_order_relaxed);
    }
    *fd_out = hand->event_fd;
    return xcclSuccess;
}

/* ---- the helper ---- */

int sock_hand_pending(struct sock_hand *hand)
{
    /* Acquire: pairs with post. Sequentially consistent for the last look before sleep. */
    return atomic_load_explicit(&hand->posted, memory_order_seq_cst) != hand->seen;
}

static void bell_ring(struct sock_hand *hand)
{
    const uint64_t one = 1;
    ssize_t wrote;

    /* Sequentially consistent with the store of done or failed before: see the head. It also makes
     * event_fd visible, which was set before ARMED. */
    if (atomic_load_explicit(&hand->bell, memory_order_seq_cst) != SOCK_BELL_ARMED)
        return;
    atomic_store_explicit(&hand->bell, SOCK_BELL_RINGING, memory_order_relaxed);
    do
        wrote = write(hand->event_fd, &one, sizeof(one));
    while (wrote < 0 && errno == EINTR);
    /* Release: pairs with bell_arm. */
    atomic_store_explicit(&hand->bell, SOCK_BELL_RUNG, memory_order_release);
}

/* Nothing more is done for this comm. */
static void fail_tell(struct sock_hand *hand)
{
    hand->active = 0;
    /* Release: the comm's error is there; pairs with sock_hand_failed. Sequentially consistent
     * with bell_ring. */
    atomic_store_explicit(&hand->failed, 1, memory_order_seq_cst);
    bell_ring(hand);
}

/* The places of a request's number; NULL where the comm only receives, or only sends. */
static struct sock_hand_send *send_at(struct sock_hand *hand, uint32_t number)
{
    return hand->sends ? &hand->sends[number % SOCK_SENDS] : NULL;
}

static struct sock_hand_recv *recv_at(struct sock_hand *hand, uint32_t number)
{
    return hand->recvs ? &hand->recvs[number % SOCK_RECVS] : NULL;
}

/* Begins the next request that was posted. 1: it did; 0: the comm is busy; -1: error. */
static int begin(struct sock_hand *hand)
{
    struct sock_hand_send *send = send_at(hand, hand->taken);
    struct sock_hand_recv *recv = recv_at(hand, hand->taken);
    xcclNetRequest_t real = NULL;
    xcclResult_t rc;

    if (send)
        rc = sock_isend(hand->comm, send->data, send->bytes, send->tag, send->mem, &real);
    else
        rc = sock_irecv(hand->comm, recv->count, recv->data, recv->bytes, recv->tags, recv->mems,
                        &real);
    if (rc != xcclSuccess) {
        /* Arguments were looked at before, so this is the comm's own error. */
        if (hand->comm->rc == xcclSuccess)
            sock_comm_fail(hand->comm, xcclNetCauseLocal, rc);
        return -1;
    }
    if (!real)
        return 0;
    *(send ? &send->real : &recv->real) = real;
    hand->taken++;
    hand->active++;
    return 1;
}

static struct sock_request **real_at(struct sock_hand *hand, uint32_t number)
{
    return hand->sends ? &send_at(hand, number)->real : &recv_at(hand, number)->real;
}

/* One request of the comm is through. */
static void done_tell(struct sock_hand *hand, uint32_t number)
{
    struct sock_request **real = real_at(hand, number);
    struct sock_hand_send *send = send_at(hand, number);
    struct sock_hand_recv *recv = recv_at(hand, number);

    sock_request_reap(*real, send ? NULL : recv->bytes);
    *real = NULL;
    hand->active--;
    /* Release: sizes and received bytes are there; pairs with sock_hand_test. Sequentially
     * consistent with bell_ring. From here on all but `real` is the caller's. */
    atomic_store_explicit(send ? &send->done : &recv->done, 1, memory_order_seq_cst);
}

static uint32_t reap_all(struct sock_hand *hand)
{
    uint32_t ended = 0;

    for (uint32_t i = hand->first; i != hand->taken; i++) {
        struct sock_request *real = *real_at(hand, i);

        if (!real || real->state != SOCK_DONE)
            continue;
        done_tell(hand, i);
        ended++;
    }
    while (hand->first != hand->taken && !*real_at(hand, hand->first))
        hand->first++;
    return ended;
}

uint32_t sock_hand_move(struct sock_hand *hand)
{
    /* Acquire: pairs with post. */
    uint32_t posted = atomic_load_explicit(&hand->posted, memory_order_acquire);
    uint32_t began = 0, ended;

    hand->seen = posted;
    /* Only this thread stores it. */
    if (atomic_load_explicit(&hand->failed, memory_order_relaxed))
        return 0;
    while (hand->taken != posted && begin(hand) > 0)
        began++;
    if (hand->active > 0)
        sock_comm_move(hand->comm);
    ended = reap_all(hand);
    /* What the comm was too busy for is tried again when there is reason to. */
    if (ended > 0 || hand->active == 0)
        hand->seen = hand->taken;
    if (ended > 0)
        bell_ring(hand);
    if (hand->comm->rc != xcclSuccess) {
        hand->seen = posted;
        fail_tell(hand);
    }
    return began + ended;
}

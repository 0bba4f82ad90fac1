/* SPDX-License-Identifier: BSD-3-Clause */
/* The thread of CUDA communicators: one for a communicator and all that were split from it, which
 * are looked after in turns. Kernels run by themselves; what they cannot do is done here:
 *
 *   start    the device says that an operation has begun: its plan tells which messages its network
 *            links will move, so also those of a graph that is replayed
 *   move     those links are moved until they are idle (proxy/net_link.h); the operation is over
 *            when the device says so too
 *   look     what takes long is compared with the boards of the host and the control plane, as the
 *            host's calls do while they wait: other calls, ranks that left or do not come
 *   abort    an error of the communicator, whoever found it, ends its kernels
 *
 * No turn waits: a connection that broke has others' verdict to wait for, and meanwhile the other
 * communicators have their turns. It polls: without network links every few milliseconds, with them
 * all the time while something is at work. While the user's thread makes links it has the
 * communicator, and itself starts and moves operations, for another rank may have to see them end
 * before it comes to make links.
 *
 * A communicator holds the thread from the moment it is split off until its watch has left, which
 * the thread says; the last one ends it. Who comes is put in front of a list that the thread takes.
 *
 * Thread: its own; each communicator's lock keeps the user's out of the tables, and `connecting`
 * keeps it out of the communicator. */
#include <sched.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/log.h"
#include "call/comm_p2p_state.h"
#include "call/comm_plan.h"
#include "comm/comm_progress.h"
#include "comm/comm_record.h"
#include "cuda/cuda_int.h"
#include "exec/streams.h"
#include "watch/comm_verdict.h"

#define IDLE_NS     (5 * XCCL_NS_PER_MS)
#define WAIT_NS     (1 * XCCL_NS_PER_MS) /* something is at work without this thread */
#define NET_IDLE_NS 50000
#define NET_SPINS   2000 /* looks without news before it sleeps between them */
#define LOOK_NS     (100 * XCCL_NS_PER_MS)
#define LEAVE_MS    1000

/* Messages that a launch will move over a link to another host. */
struct far_op {
    struct xccl_net_link *net;
    uint32_t slots;
    int begun;
    struct far_op *next;
};

struct xccl_cuda_thread {
    pthread_t thread;
    int refs; /* by refs_lock */
    _Atomic uint32_t ends;
    struct xccl_bell bell; /* somebody comes, or is to leave */
    struct xccl_bell left; /* somebody has left */
    _Atomic(struct xccl_cuda_watch *) coming;
    /* The thread's: */
    struct xccl_cuda_watch *watches;
    uint32_t idle; /* rounds without news */
};

static pthread_mutex_t refs_lock = PTHREAD_MUTEX_INITIALIZER;

struct xccl_cuda_watch {
    struct xccl_cuda_comm *cuda;
    struct xccl_cuda_watch *next;
    _Atomic uint32_t ends; /* 1: leave when nothing is at work */
    _Atomic uint32_t gone; /* 1: the thread knows it no more */
    int connecting; /* by the lock: the user's thread has the communicator and the rest of this */
    /* The thread's: */
    uint64_t next_op; /* number of the operation that begins next */
    uint64_t mark; /* of those before the one that began last */
    int ends_early; /* that one may have ended before all ranks had begun it */
    const struct xccl_cuda_image *image; /* of the operation at work; NULL: none */
    uint64_t since_ns; /* it has been at work; 0: not */
    uint64_t looked_ns;
    int at_work; /* something was, in the last turn */
    uint64_t fault_ns; /* when an error of a kernel was seen first; 0: none was */
    struct xccl_limit leave; /* until then it waits for that, once it is to leave */
    /* A link that failed, until it is said who is to blame: */
    struct xccl_net_link *bad_net; /* NULL: none */
    xcclResult_t bad_rc;
    uint64_t verdict_ns;
    char bad_text[XCCL_ERROR_TEXT_BYTES];
    struct far_op *far, **far_end; /* by the lock */
};

/* --- one operation --- */

static struct xccl_dev_start *start_of(const struct xccl_cuda_comm *cuda, uint64_t seq)
{
    return &cuda->status->starts[seq % XCCL_DEV_STARTS];
}

static void begin_nets(struct xccl_cuda_watch *watch, uint64_t seq, uint32_t flag_low)
{
    const struct xccl_cuda_image *image = watch->image;
    const struct xccl_binding *binding = image->binding;

    for (uint32_t i = 0; i < binding->net_count; i++) {
        struct xccl_net_op op = {.seq = seq,
                                 .signature = image->signature ^ watch->mark,
                                 .flag_low = flag_low,
                                 .messages = image->net_messages[i]};

        xccl_net_link_begin(binding->nets[binding->net_conns[i]], &op);
    }
}

/* The operation that began last is the communicator's call. */
static void be_call(struct xccl_cuda_watch *watch)
{
    struct xcclComm *comm = watch->cuda->comm;

    comm->seq = watch->next_op - 1;
    comm->connects = XCCL_CONNECTS_NONE;
    comm->ends_early = watch->ends_early;
    xccl_run_clear(&comm->run);
    comm->run.owner = comm;
    comm->run.kind = &xccl_call_kind;
    if (!watch->image)
        return;
    comm->call = watch->image->call;
    comm->run.flag_low = xccl_flag_low(watch->image->signature ^ watch->mark, comm->seq);
}

/* The next operation has begun, of this image. */
static void begin(struct xccl_cuda_watch *watch, const struct xccl_cuda_image *image)
{
    struct xcclComm *comm = watch->cuda->comm;
    uint64_t seq = watch->next_op++;
    uint32_t flag_low = xccl_flag_low(image->signature ^ watch->mark, seq);
    struct xccl_board_call call = image->told;

    call.seq = seq;
    watch->image = image;
    watch->since_ns = 0;
    watch->ends_early = xccl_comm_may_end_early(comm, &call);
    xccl_board_write(comm->board, &call, flag_low);
    if (watch->connecting) {
        xccl_comm_record_begin_apart(comm, &image->call);
    } else {
        be_call(watch);
        xccl_comm_record_call(comm);
        xccl_comm_record_begin(comm);
    }
    begin_nets(watch, seq, flag_low);
    if (watch->ends_early) /* an error ends it in the next turn */
        (void)xccl_comm_look_early(comm);
}

static void end(struct xccl_cuda_watch *watch)
{
    const struct xccl_cuda_image *image = watch->image;
    struct xcclComm *comm = watch->cuda->comm;

    if (watch->connecting)
        xccl_comm_record_end_apart(comm, &image->call, image->traffic.sent,
                                   image->traffic.received);
    else if (comm->record)
        xccl_record_end(comm->record, image->traffic.sent, image->traffic.received);
    atomic_store_explicit(&comm->board->outside, 1, memory_order_relaxed);
    watch->cuda->retired = watch->next_op - 1;
    watch->image = NULL;
    watch->since_ns = 0;
}

/* The device has gone on so far that the oldest starts are overwritten: those operations needed
 * nothing of this thread, for else they would have waited for it. Nobody can say what they were,
 * but the flag words of all later ones depend on them. */
static void skip_lost(struct xccl_cuda_watch *watch)
{
    uint64_t done = xccl_cuda_word(&watch->cuda->status->done);

    if (done < watch->next_op + XCCL_DEV_STARTS / 2)
        return;
    watch->next_op = done - XCCL_DEV_STARTS / 4;
    xccl_board_skip(watch->cuda->comm->board, watch->next_op - 1);
}

/* The next operation has begun: its image, and the mark before it; NULL: it has not. */
static const struct xccl_cuda_image *find_start(const struct xccl_cuda_watch *watch,
                                                uint64_t *mark_out)
{
    struct xccl_cuda_comm *cuda = watch->cuda;
    struct xccl_dev_start *start = start_of(cuda, watch->next_op);
    uint64_t seq = xccl_cuda_word(&start->seq), plan = xccl_cuda_word(&start->plan);
    uint64_t again = xccl_cuda_word(&start->again), mark = xccl_cuda_word(&start->mark);

    if (seq != watch->next_op || (uint32_t)plan != (uint32_t)seq || again != seq ||
        plan >> 32 >= cuda->image_count)
        return NULL;
    /* Another one was not written to this place meanwhile. */
    if (xccl_cuda_word(&cuda->status->done) >= watch->next_op + XCCL_DEV_STARTS - 1)
        return NULL;
    *mark_out = mark;
    return cuda->images[plan >> 32];
}

static int are_nets_idle(const struct xccl_binding *binding)
{
    for (uint32_t i = 0; i < binding->net_count; i++)
        if (!xccl_net_link_idle(binding->nets[binding->net_conns[i]]))
            return 0;
    return 1;
}

/* A link failed: who is to blame is found as for the host's calls, but later. */
static void fail_net(struct xccl_cuda_watch *watch, struct xccl_net_link *net, xcclResult_t rc)
{
    watch->bad_net = net;
    watch->bad_rc = rc;
    watch->verdict_ns = xccl_clock_ns() + XCCL_VERDICT_NS;
    snprintf(watch->bad_text, sizeof watch->bad_text, "%s", xccl_error_text());
}

/* 1: a link has failed, so that nothing is moved any more; says who is to blame when nobody else
 * has in time. */
static int is_broken(struct xccl_cuda_watch *watch)
{
    struct xcclComm *comm = watch->cuda->comm;

    if (!watch->bad_net)
        return 0;
    if (xccl_comm_error(comm) || xccl_clock_ns() < watch->verdict_ns)
        return 1;
    comm->run.rc = watch->bad_rc;
    comm->run.bad_peer = xccl_net_link_peer(watch->bad_net);
    comm->run.bad_net = watch->bad_net;
    xccl_error_set_text(watch->bad_text);
    xccl_comm_set_waited(comm, 1);
    (void)xccl_comm_blame(comm, watch->bad_rc);
    xccl_comm_set_waited(comm, 0);
    return 1;
}

static int move_nets(struct xccl_cuda_watch *watch)
{
    const struct xccl_binding *binding = watch->image->binding;
    int moved = 0;

    for (uint32_t i = 0; i < binding->net_count; i++) {
        struct xccl_net_link *net = binding->nets[binding->net_conns[i]];
        xcclResult_t rc = xccl_net_link_progress(net, &moved);

        if (rc) {
            fail_net(watch, net, rc);
            return 0;
        }
    }
    return moved;
}

/* --- messages to other hosts --- */

xcclResult_t xccl_cuda_watch_messages(struct xccl_cuda_comm *cuda, struct xccl_net_link *net,
                                      uint32_t slots)
{
    struct far_op *op = xccl_calloc(1, sizeof *op);

    if (!op)
        return xcclSystemError;
    *op = (struct far_op){.net = net, .slots = slots};
    pthread_mutex_lock(&cuda->lock);
    *cuda->watch->far_end = op;
    cuda->watch->far_end = &op->next;
    pthread_mutex_unlock(&cuda->lock);
    return xcclSuccess;
}

static int is_first_of(const struct xccl_cuda_watch *watch, const struct far_op *op)
{
    const struct far_op *at = watch->far;

    while (at->net != op->net)
        at = at->next;
    return at == op;
}

/* Each link one operation at a time, all links side by side. */
static int move_far(struct xccl_cuda_watch *watch)
{
    struct far_op **at = &watch->far;
    int moved = 0;

    while (*at) {
        struct far_op *op = *at;
        xcclResult_t rc;

        if (!op->begun && is_first_of(watch, op)) {
            struct xccl_net_op net = {
                .flag_low = XCCL_STREAM_FLAG, .messages = op->slots, .plain = 1};

            xccl_net_link_begin(op->net, &net);
            op->begun = 1;
        }
        if (!op->begun) {
            at = &op->next;
            continue;
        }
        rc = xccl_net_link_progress(op->net, &moved);
        if (rc) {
            fail_net(watch, op->net, rc);
            return 0;
        }
        if (!xccl_net_link_idle(op->net)) {
            at = &op->next;
            continue;
        }
        *at = op->next;
        if (!*at)
            watch->far_end = at;
        xccl_free(op);
        moved = 1;
    }
    return moved;
}

/* --- errors --- */

static void set_abort(struct xccl_cuda_comm *cuda)
{
    /* Relaxed: only this thread writes it. */
    if (!atomic_load_explicit(&cuda->failed_ns, memory_order_relaxed))
        atomic_store_explicit(&cuda->failed_ns, xccl_clock_ns(), memory_order_relaxed);
    /* Relaxed: it says all that there is to say. */
    __atomic_store_n(&cuda->status->abort, 1, __ATOMIC_RELAXED);
}

static int messages_at_work(const struct xccl_cuda_comm *cuda)
{
    return xccl_cuda_word(&cuda->status->messages_begun) !=
           xccl_cuda_word(&cuda->status->messages_done);
}

/* 1: the kernel that found an error is not at work yet as far as this thread has come: those before
 * it are to be ended first, or it has not said what it is. */
static int is_behind(const struct xccl_cuda_watch *watch)
{
    uint64_t done = xccl_cuda_word(&watch->cuda->status->done), mark;

    if (watch->image)
        return watch->next_op - 1 <= done;
    return watch->next_op <= done || find_start(watch, &mark) || !messages_at_work(watch->cuda);
}

/* 1: a rank of this host whose message a kernel took for another call's has not said yet which call
 * it is in. Not for long: its thread may be late. */
static int is_awaited(struct xccl_cuda_watch *watch, uint32_t peer)
{
    const struct xcclComm *comm = watch->cuda->comm;
    int index = comm->shm && peer < (uint32_t)comm->nranks ? xccl_shm_index_of(comm->shm, (int)peer)
                                                           : -1;

    if (!watch->fault_ns)
        watch->fault_ns = xccl_clock_ns();
    return watch->image && index >= 0 &&
           (int32_t)xccl_board_ahead(xccl_shm_board(comm->shm, index), (uint32_t)comm->seq) < 0 &&
           xccl_clock_ns() - watch->fault_ns < XCCL_VERDICT_NS;
}

/* Error and peer, which a kernel writes together. */
static uint64_t fault_of(const struct xccl_cuda_comm *cuda)
{
    return xccl_cuda_word((const uint64_t *)(const void *)&cuda->status->error);
}

/* What a kernel found. */
static void take_device_error(struct xccl_cuda_watch *watch)
{
    struct xccl_cuda_comm *cuda = watch->cuda;
    struct xcclComm *comm = cuda->comm;
    uint64_t fault = fault_of(cuda);
    uint32_t error = (uint32_t)fault, peer = (uint32_t)(fault >> 32);

    if (error == XCCL_DEV_OK || xccl_comm_error(comm))
        return;
    if (error == XCCL_DEV_LATE) {
        (void)xccl_comm_fail(comm, xcclTimeout,
                             "rank %d: a kernel has waited %llu s for other ranks and did not hear "
                             "of its own process, which was stopped meanwhile (a signal, a "
                             "debugger, a frozen machine); let processes run while calls are at "
                             "work, or raise XCCL_TIMEOUT_S",
                             comm->rank,
                             (unsigned long long)(xccl_cuda_limit_ns(comm) / XCCL_NS_PER_S));
        return;
    }
    if (is_behind(watch) || is_awaited(watch, peer))
        return;
    comm->run.rc = xcclInvalidUsage;
    comm->run.bad_peer = (int)peer;
    comm->run.other_size = error == XCCL_DEV_OTHER_SIZE;
    if (watch->image)
        (void)xccl_comm_blame(comm, xcclInvalidUsage);
    else
        (void)xccl_cuda_fail_size(comm, (int)peer);
}

/* What takes long is looked at from all sides, as a waiting call of the host does. */
static void look(struct xccl_cuda_watch *watch, int at_work)
{
    struct xccl_cuda_comm *cuda = watch->cuda;
    uint64_t now_ns;

    if (!at_work || watch->image)
        xccl_cuda_ask_no_more(cuda);
    if (!at_work) {
        watch->since_ns = 0;
        return;
    }
    now_ns = xccl_clock_ns();
    if (!watch->since_ns) {
        watch->since_ns = watch->looked_ns = now_ns;
        if (!watch->image)
            xccl_cuda_ask(cuda);
    }
    if (now_ns - watch->looked_ns < LOOK_NS)
        return;
    watch->looked_ns = now_ns;
    if (watch->image) {
        (void)xccl_comm_check_call(&cuda->comm->run, now_ns - watch->since_ns);
        return;
    }
    if (xccl_cuda_look_at_messages(cuda, now_ns))
        watch->since_ns = now_ns;
    (void)xccl_cuda_check_messages(cuda->comm, now_ns, watch->since_ns);
}

/* --- turns --- */

/* Tells how many calls the device has been given and has not begun. */
static void tell_queued(const struct xccl_cuda_watch *watch)
{
    struct xccl_board *board = watch->cuda->comm->board;
    /* Relaxed: for texts alone. */
    uint64_t launched = atomic_load_explicit(&watch->cuda->launched, memory_order_relaxed);
    uint32_t queued = launched < watch->next_op ? 0 : (uint32_t)(launched - watch->next_op + 1);

    if (queued != atomic_load_explicit(&board->queued, memory_order_relaxed))
        atomic_store_explicit(&board->queued, queued, memory_order_relaxed);
}

static int has_nets(const struct xccl_cuda_watch *watch)
{
    return xccl_comm_any_remote(watch->cuda->comm);
}

/* Operations begin, move and end. 1: one did. */
static int move(struct xccl_cuda_watch *watch)
{
    const struct xccl_cuda_image *image;
    int moved = 0;

    if (is_broken(watch))
        return 0;

    if (!watch->image) {
        skip_lost(watch);
        image = find_start(watch, &watch->mark);
        if (image) {
            begin(watch, image);
            moved = 1;
        }
    }
    if (watch->image) {
        moved |= move_nets(watch);
        if (!watch->bad_net && xccl_cuda_word(&watch->cuda->status->done) >= watch->next_op - 1 &&
            are_nets_idle(watch->image->binding)) {
            end(watch);
            moved = 1;
        }
    }
    if (watch->far && !watch->bad_net)
        moved |= move_far(watch);
    return moved;
}

/* One turn; 1: something moved. */
static int turn(struct xccl_cuda_watch *watch)
{
    struct xccl_cuda_comm *cuda = watch->cuda;
    int moved;

    watch->at_work = 0;
    if (atomic_load_explicit(&cuda->comm->error, memory_order_relaxed)) {
        set_abort(cuda);
        return 0;
    }
    take_device_error(watch);
    moved = move(watch);
    tell_queued(watch);
    watch->at_work = watch->image || watch->far || watch->bad_net || messages_at_work(cuda);
    return moved;
}

/* A kernel has found an error while the user's thread makes links, which has the communicator's
 * run: the communicator's error ends that. */
static void take_error_apart(struct xccl_cuda_watch *watch)
{
    struct xcclComm *comm = watch->cuda->comm;
    uint64_t fault = fault_of(watch->cuda), now_ns;

    if (!fault || xccl_comm_error(comm) || is_behind(watch))
        return;
    now_ns = xccl_clock_ns();
    if (!watch->fault_ns)
        watch->fault_ns = now_ns;
    if (!xccl_comm_look(comm) && now_ns - watch->fault_ns > XCCL_VERDICT_NS)
        (void)xccl_comm_fail(comm, xcclInvalidUsage,
                             "ranks disagree: rank %d received a message that does not belong to "
                             "its call from rank %d; all ranks must make the same calls in the "
                             "same order",
                             comm->rank, (int)(fault >> 32));
}

int xccl_cuda_turn(struct xcclComm *comm)
{
    struct xccl_cuda_watch *watch = comm->cuda ? comm->cuda->watch : NULL;

    if (!watch || !watch->connecting)
        return 0;
    take_error_apart(watch);
    return move(watch);
}

/* While the user's thread has the communicator, which moves its operations meanwhile. */
uint64_t xccl_cuda_next_number(struct xcclComm *comm)
{
    const struct xccl_cuda_comm *cuda = comm->cuda;
    const struct xccl_cuda_watch *watch = cuda ? cuda->watch : NULL;

    /* Whether graphs are still to be replayed is not known. */
    if (!watch || comm->ahead == XCCL_NOT_ORDERED || cuda->worker.is_captured ||
        !xccl_cuda_is_done(cuda) || watch->image ||
        watch->next_op <= xccl_cuda_word(&cuda->status->done))
        return 0;
    return watch->next_op + comm->ahead;
}

int xccl_cuda_hides_error(struct xcclComm *comm)
{
    return comm->cuda && comm->cuda->status && fault_of(comm->cuda) && !xccl_comm_error(comm);
}

/* 1: what has ended on the device has been told, and no kernel has found an error. */
int xccl_cuda_is_told(struct xccl_cuda_comm *cuda)
{
    int is_told;

    pthread_mutex_lock(&cuda->lock);
    is_told = cuda->retired >= xccl_cuda_word(&cuda->status->done) && !fault_of(cuda);
    pthread_mutex_unlock(&cuda->lock);
    return is_told;
}

void xccl_cuda_pause(struct xcclComm *comm)
{
    struct xccl_cuda_comm *cuda = comm->cuda;

    pthread_mutex_lock(&cuda->lock);
    comm->seq = cuda->talks;
    cuda->watch->connecting = 1;
    pthread_mutex_unlock(&cuda->lock);
}

void xccl_cuda_resume(struct xcclComm *comm)
{
    struct xccl_cuda_comm *cuda = comm->cuda;
    struct xccl_cuda_watch *watch = cuda ? cuda->watch : NULL;

    if (!watch) /* it has been taken down */
        return;
    pthread_mutex_lock(&cuda->lock);
    if (watch->connecting) {
        cuda->talks = comm->seq;
        /* Release: what it has opened. Pairs with are_linked() in cuda_device.c. */
        atomic_store_explicit(&comm->board->linked, (uint32_t)comm->seq, memory_order_release);
        be_call(watch);
        if (watch->image)
            xccl_comm_record_resume(comm);
        watch->connecting = 0;
    }
    pthread_mutex_unlock(&cuda->lock);
}

/* --- the thread --- */

/* 1: nothing is left to do for a communicator that ends. */
static int may_leave(struct xccl_cuda_watch *watch)
{
    if (watch->leave.deadline_ns == XCCL_NEVER_NS)
        watch->leave = xccl_limit_ms(LEAVE_MS, NULL);
    return !watch->at_work || xccl_limit_passed(&watch->leave) ||
           atomic_load_explicit(&watch->cuda->comm->error, memory_order_relaxed);
}

static int look_after(struct xccl_cuda_watch *watch)
{
    int moved = 0;

    xccl_log_set_rank(watch->cuda->comm->rank);
    pthread_mutex_lock(&watch->cuda->lock);
    if (!watch->connecting) {
        moved = turn(watch);
        if (!moved)
            look(watch, watch->at_work);
    }
    pthread_mutex_unlock(&watch->cuda->lock);
    return moved;
}

/* Puts those who have come in front. */
static void take_coming(struct xccl_cuda_thread *thread)
{
    /* Acquire: pairs with xccl_cuda_watch_start(). */
    struct xccl_cuda_watch *watch = atomic_exchange_explicit(&thread->coming, NULL,
                                                             memory_order_acquire);

    while (watch) {
        struct xccl_cuda_watch *next = watch->next;

        watch->next = thread->watches;
        thread->watches = watch;
        watch = next;
    }
}

/* How long it may sleep when nothing moves; 0: not at all. */
static uint64_t nap_of(const struct xccl_cuda_thread *thread)
{
    uint64_t nap_ns = IDLE_NS;

    for (const struct xccl_cuda_watch *watch = thread->watches; watch; watch = watch->next) {
        int nets = has_nets(watch);

        if (nets && watch->at_work && thread->idle < NET_SPINS)
            return 0;
        if (nets)
            nap_ns = NET_IDLE_NS;
        else if (watch->at_work && nap_ns > WAIT_NS)
            nap_ns = WAIT_NS;
    }
    return nap_ns;
}

static void rest(struct xccl_cuda_thread *thread, uint32_t heard)
{
    uint64_t nap_ns = nap_of(thread);

    if (nap_ns) {
        xccl_bell_nap(&thread->bell, heard, nap_ns);
        return;
    }
    xccl_os_pause();
    if (thread->idle > NET_SPINS / 8)
        sched_yield();
}

static void *thread_main(void *argument)
{
    struct xccl_cuda_thread *thread = argument;

    pthread_setname_np(pthread_self(), "xccl-cuda");
    /* Acquire: pairs with xccl_cuda_thread_put(). */
    while (!atomic_load_explicit(&thread->ends, memory_order_acquire)) {
        uint32_t heard = xccl_bell_listen(&thread->bell);
        struct xccl_cuda_watch **at = &thread->watches;
        int moved = 0;

        take_coming(thread);
        while (*at) {
            struct xccl_cuda_watch *watch = *at;

            /* Before its last turn, which sees all that was given before. Acquire: pairs with
             * xccl_cuda_watch_stop(). */
            int ends = atomic_load_explicit(&watch->ends, memory_order_acquire);

            moved |= look_after(watch);
            if (!ends || !may_leave(watch)) {
                at = &watch->next;
                continue;
            }
            *at = watch->next;
            /* Release: it is not touched any more. Pairs with xccl_cuda_watch_stop(). */
            atomic_store_explicit(&watch->gone, 1, memory_order_release);
            xccl_bell_ring(&thread->left);
        }
        thread->idle = moved ? 0 : thread->idle + 1;
        if (!moved)
            rest(thread, heard);
    }
    return NULL;
}

static xcclResult_t make_thread(struct xccl_cuda_thread **thread_out)
{
    struct xccl_cuda_thread *thread = xccl_calloc(1, sizeof *thread);
    int err;

    if (!thread)
        return xcclSystemError;
    thread->refs = 1;
    err = pthread_create(&thread->thread, NULL, thread_main, thread);
    if (!err) {
        *thread_out = thread;
        return xcclSuccess;
    }
    xccl_free(thread);
    return xccl_fail(xcclSystemError, err, "raise ulimit -u",
                     "cannot start the thread of a CUDA communicator");
}

void xccl_cuda_share(struct xcclComm *child, const struct xcclComm *parent)
{
    if (!child->cuda || !parent->cuda || !parent->cuda->thread)
        return;
    pthread_mutex_lock(&refs_lock);
    parent->cuda->thread->refs++;
    pthread_mutex_unlock(&refs_lock);
    child->cuda->thread = parent->cuda->thread;
}

void xccl_cuda_thread_put(struct xccl_cuda_comm *cuda)
{
    struct xccl_cuda_thread *thread = cuda->thread;
    int refs;

    if (!thread)
        return;
    cuda->thread = NULL;
    pthread_mutex_lock(&refs_lock);
    refs = --thread->refs;
    pthread_mutex_unlock(&refs_lock);
    if (refs)
        return;
    /* Release: pairs with thread_main(). */
    atomic_store_explicit(&thread->ends, 1, memory_order_release);
    xccl_bell_ring(&thread->bell);
    (void)pthread_join(thread->thread, NULL);
    xccl_free(thread);
}

xcclResult_t xccl_cuda_watch_start(struct xcclComm *comm)
{
    struct xccl_cuda_comm *cuda = comm->cuda;
    struct xccl_cuda_watch *watch = xccl_calloc(1, sizeof *watch);
    xcclResult_t rc = watch ? xcclSuccess : xcclSystemError;

    if (!rc && !cuda->thread)
        rc = make_thread(&cuda->thread);
    if (rc) {
        xccl_free(watch);
        return rc;
    }
    watch->cuda = cuda;
    watch->next_op = 1;
    watch->leave.deadline_ns = XCCL_NEVER_NS;
    watch->far_end = &watch->far;
    cuda->watch = watch;
    watch->next = atomic_load_explicit(&cuda->thread->coming, memory_order_relaxed);
    /* Release: all of it before it is seen. Pairs with take_coming(). */
    while (!atomic_compare_exchange_weak_explicit(&cuda->thread->coming, &watch->next, watch,
                                                  memory_order_release, memory_order_relaxed))
        ;
    xccl_bell_ring(&cuda->thread->bell);
    return xcclSuccess;
}

void xccl_cuda_watch_stop(struct xcclComm *comm)
{
    struct xccl_cuda_watch *watch = comm->cuda->watch;
    struct xccl_cuda_thread *thread = comm->cuda->thread;
    const struct xccl_limit limit = {.deadline_ns = XCCL_NEVER_NS};

    if (!watch)
        return;
    comm->cuda->watch = NULL;
    /* Release: what was given before. Pairs with thread_main(). */
    atomic_store_explicit(&watch->ends, 1, memory_order_release);
    xccl_bell_ring(&thread->bell);
    for (;;) { /* the thread is bound to let it go: may_leave() */
        uint32_t heard = xccl_bell_listen(&thread->left);

        /* Acquire: pairs with thread_main(). */
        if (atomic_load_explicit(&watch->gone, memory_order_acquire))
            break;
        xccl_bell_wait(&thread->left, heard, &limit);
    }
    xccl_cuda_thread_put(comm->cuda);
    while (watch->far) {
        struct far_op *op = watch->far;

        watch->far = op->next;
        xccl_free(op);
    }
    xccl_free(watch);
}

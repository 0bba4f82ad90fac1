/* SPDX-License-Identifier: BSD-3-Clause */
/* The thread of a CUDA communicator. Kernels run by themselves; what they cannot do is done here:
 *
 *   start    the device says that an operation has begun: its plan tells which messages its network
 *            links will move, so also those of a graph that is replayed
 *   move     those links are moved until they are idle (proxy/net_link.h); the operation is over
 *            when the device says so too
 *   look     what takes long is compared with the boards of the host and the control plane, as the
 *            host's calls do while they wait: other calls, ranks that left or do not come
 *   abort    an error of the communicator, whoever found it, ends its kernels
 *
 * It polls: without network links every few milliseconds, with them all the time while something
 * is at work. While the user's thread makes links it has the communicator, and itself starts and
 * moves operations, for another rank may have to see them end before it comes to make links.
 *
 * Thread: its own; the lock keeps the user's out of the tables, and `connecting` keeps it out of
 * the communicator. */
#include <sched.h>

#include "base/alloc.h"
#include "base/log.h"
#include "comm/comm_cuda_int.h"
#include "comm/comm_p2p_int.h"
#include "comm/comm_progress.h"
#include "comm/comm_record.h"
#include "comm/comm_verdict.h"
#include "exec/streams.h"

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

struct xccl_cuda_watch {
    struct xccl_comm_cuda *cuda;
    pthread_t thread;
    struct xccl_bell bell;
    _Atomic uint32_t ends; /* 1: stop when nothing is at work */
    int connecting; /* by the lock: the user's thread has the communicator and the rest of this */
    /* The thread's: */
    uint64_t next; /* number of the operation that begins next */
    const struct xccl_cuda_image *image; /* of the operation at work; NULL: none */
    uint64_t since_ns; /* it has been at work; 0: not */
    uint64_t looked_ns;
    struct far_op *far, **far_end; /* by the lock */
};

/* --- one operation --- */

static struct xccl_dev_start *start_of(const struct xccl_comm_cuda *cuda, uint64_t seq)
{
    return &cuda->status->starts[seq % XCCL_DEV_STARTS];
}

static uint64_t load(const uint64_t *word)
{
    /* Acquire: what the device wrote before it. Pairs with the kernels' release. */
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void begin_nets(struct xccl_cuda_watch *watch, uint64_t seq, uint32_t flag_low)
{
    const struct xccl_cuda_image *image = watch->image;
    const struct xccl_binding *binding = image->binding;

    for (uint32_t i = 0; i < binding->net_count; i++) {
        struct xccl_net_op op = {.seq = seq,
                                 .signature = image->signature,
                                 .flag_low = flag_low,
                                 .messages = image->net_messages[i]};

        xccl_net_link_begin(binding->nets[binding->net_conns[i]], &op);
    }
}

/* The operation that began last is the communicator's call. */
static void be_call(struct xccl_cuda_watch *watch)
{
    struct xcclComm *comm = watch->cuda->comm;

    comm->seq = watch->next - 1;
    comm->connects = 0;
    xccl_run_clear(&comm->run);
    comm->run.owner = comm;
    if (!watch->image)
        return;
    comm->call = watch->image->call;
    comm->run.flag_low = xccl_flag_low(watch->image->signature, comm->seq);
}

/* The next operation has begun, of this image. */
static void begin(struct xccl_cuda_watch *watch, const struct xccl_cuda_image *image)
{
    struct xcclComm *comm = watch->cuda->comm;
    uint64_t seq = watch->next++;
    uint32_t flag_low = xccl_flag_low(image->signature, seq);
    struct xccl_board_call call = xccl_comm_board_call(&image->call, seq);

    watch->image = image;
    watch->since_ns = 0;
    xccl_board_write(comm->board, &call, flag_low);
    if (watch->connecting) {
        xccl_comm_record_begin_apart(comm, &image->call);
    } else {
        be_call(watch);
        xccl_comm_record_call(comm);
        xccl_comm_record_begin(comm);
    }
    begin_nets(watch, seq, flag_low);
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
    watch->cuda->retired = watch->next - 1;
    watch->image = NULL;
    watch->since_ns = 0;
}

/* The device has gone on so far that the oldest starts are overwritten: those operations needed
 * nothing of this thread, for else they would have waited for it. */
static void skip_lost(struct xccl_cuda_watch *watch)
{
    uint64_t done = load(&watch->cuda->status->done);

    if (done >= watch->next + XCCL_DEV_STARTS / 2)
        watch->next = done - XCCL_DEV_STARTS / 4;
}

/* The next operation has begun: its image; NULL: it has not. */
static const struct xccl_cuda_image *find_start(struct xccl_cuda_watch *watch)
{
    struct xccl_comm_cuda *cuda = watch->cuda;
    struct xccl_dev_start *start = start_of(cuda, watch->next);
    uint64_t seq = load(&start->seq), plan = load(&start->plan);

    if (seq != watch->next || (uint32_t)plan != (uint32_t)seq || plan >> 32 >= cuda->image_count)
        return NULL;
    return cuda->images[plan >> 32];
}

static int are_nets_idle(const struct xccl_binding *binding)
{
    for (uint32_t i = 0; i < binding->net_count; i++)
        if (!xccl_net_link_idle(binding->nets[binding->net_conns[i]]))
            return 0;
    return 1;
}

/* A link failed: who is to blame is found as for the host's calls. */
static void fail_net(struct xcclComm *comm, struct xccl_net_link *net, xcclResult_t rc)
{
    comm->run.rc = rc;
    comm->run.bad_peer = xccl_net_link_peer(net);
    comm->run.bad_net = net;
    (void)xccl_comm_blame(comm, rc);
}

static int move_nets(struct xccl_cuda_watch *watch)
{
    const struct xccl_binding *binding = watch->image->binding;
    int moved = 0;

    for (uint32_t i = 0; i < binding->net_count; i++) {
        struct xccl_net_link *net = binding->nets[binding->net_conns[i]];
        xcclResult_t rc = xccl_net_link_progress(net, &moved);

        if (rc) {
            fail_net(watch->cuda->comm, net, rc);
            return 0;
        }
    }
    return moved;
}

/* --- messages to other hosts --- */

xcclResult_t xccl_cuda_watch_messages(struct xccl_comm_cuda *cuda, struct xccl_net_link *net,
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
            fail_net(watch->cuda->comm, op->net, rc);
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

static void set_abort(struct xccl_comm_cuda *cuda)
{
    /* Relaxed: only this thread writes it. */
    if (!atomic_load_explicit(&cuda->failed_ns, memory_order_relaxed))
        atomic_store_explicit(&cuda->failed_ns, xccl_clock_ns(), memory_order_relaxed);
    /* Relaxed: it says all that there is to say. */
    __atomic_store_n(&cuda->status->abort, 1, __ATOMIC_RELAXED);
}

/* What a kernel found. */
static void take_device_error(struct xccl_cuda_watch *watch)
{
    struct xccl_comm_cuda *cuda = watch->cuda;
    struct xcclComm *comm = cuda->comm;
    uint32_t error = __atomic_load_n(&cuda->status->error, __ATOMIC_ACQUIRE);
    const struct xccl_cuda_image *image;

    if (error == XCCL_DEV_OK || error == XCCL_DEV_ABORTED || xccl_comm_error(comm))
        return;
    image = watch->image ? watch->image : find_start(watch);
    if (image && !watch->image)
        begin(watch, image);
    comm->run.rc = xcclInvalidUsage;
    comm->run.bad_peer = (int)cuda->status->peer;
    comm->run.other_size = error == XCCL_DEV_OTHER_SIZE;
    if (image)
        (void)xccl_comm_blame(comm, xcclInvalidUsage);
    else
        (void)xccl_comm_fail(comm, xcclInvalidUsage,
                             "rank %d takes a message of another size than rank %d sends; counts "
                             "and datatypes of both must be the same",
                             comm->rank, (int)cuda->status->peer);
}

static int messages_at_work(const struct xccl_comm_cuda *cuda)
{
    return load(&cuda->status->messages_begun) != load(&cuda->status->messages_done);
}

/* What takes long is looked at from all sides, as a waiting call of the host does. */
static void look(struct xccl_cuda_watch *watch, int at_work)
{
    struct xcclComm *comm = watch->cuda->comm;
    uint64_t now_ns;

    if (!at_work) {
        watch->since_ns = 0;
        return;
    }
    now_ns = xccl_clock_ns();
    if (!watch->since_ns)
        watch->since_ns = watch->looked_ns = now_ns;
    if (now_ns - watch->looked_ns < LOOK_NS)
        return;
    watch->looked_ns = now_ns;
    if (watch->image) {
        (void)xccl_comm_check_call(&comm->run, now_ns - watch->since_ns);
    } else if (now_ns - watch->since_ns > comm->timeout_ns) {
        (void)xccl_comm_fail(comm, xcclTimeout,
                             "rank %d has waited %llu s for messages of another rank; look at what "
                             "they do, or raise XCCL_TIMEOUT_S",
                             comm->rank, (unsigned long long)(comm->timeout_ns / XCCL_NS_PER_S));
    }
}

/* --- turns --- */

static int has_nets(const struct xccl_cuda_watch *watch)
{
    return xccl_comm_any_remote(watch->cuda->comm);
}

/* Operations begin, move and end. 1: one did. */
static int move(struct xccl_cuda_watch *watch)
{
    const struct xccl_cuda_image *image;
    int moved = 0;

    if (!watch->image) {
        skip_lost(watch);
        image = find_start(watch);
        if (image) {
            begin(watch, image);
            moved = 1;
        }
    }
    if (watch->image) {
        moved |= move_nets(watch);
        if (watch->image && load(&watch->cuda->status->done) >= watch->next - 1 &&
            are_nets_idle(watch->image->binding)) {
            end(watch);
            moved = 1;
        }
    }
    if (watch->far)
        moved |= move_far(watch);
    return moved;
}

/* One round; 1: something moved. *at_work_out: there is something at work. */
static int turn(struct xccl_cuda_watch *watch, int *at_work_out)
{
    struct xccl_comm_cuda *cuda = watch->cuda;
    int moved;

    *at_work_out = 0;
    if (atomic_load_explicit(&cuda->comm->error, memory_order_relaxed)) {
        set_abort(cuda);
        return 0;
    }
    take_device_error(watch);
    moved = move(watch);
    *at_work_out = watch->image || watch->far || messages_at_work(cuda);
    return moved;
}

int xccl_comm_cuda_turn(struct xcclComm *comm)
{
    struct xccl_cuda_watch *watch = comm->cuda ? comm->cuda->watch : NULL;

    return watch && watch->connecting ? move(watch) : 0;
}

void xccl_comm_cuda_pause(struct xcclComm *comm)
{
    struct xccl_comm_cuda *cuda = comm->cuda;

    pthread_mutex_lock(&cuda->lock);
    comm->seq = cuda->talks;
    cuda->watch->connecting = 1;
    pthread_mutex_unlock(&cuda->lock);
}

void xccl_comm_cuda_resume(struct xcclComm *comm)
{
    struct xccl_comm_cuda *cuda = comm->cuda;
    struct xccl_cuda_watch *watch = cuda->watch;

    pthread_mutex_lock(&cuda->lock);
    if (watch->connecting) {
        cuda->talks = comm->seq;
        be_call(watch);
        if (watch->image)
            xccl_comm_record_resume(comm);
        watch->connecting = 0;
    }
    pthread_mutex_unlock(&cuda->lock);
}

static void sleep_between(struct xccl_cuda_watch *watch, int at_work, uint32_t idle)
{
    uint32_t heard = xccl_bell_listen(&watch->bell);
    uint64_t nap_ns;

    if (has_nets(watch) && at_work && idle < NET_SPINS) {
        xccl_os_pause();
        if (idle > NET_SPINS / 8)
            sched_yield();
        return;
    }
    nap_ns = has_nets(watch) ? NET_IDLE_NS : at_work ? WAIT_NS : IDLE_NS;
    xccl_bell_nap(&watch->bell, heard, nap_ns);
}

/* 1: nothing is left to do for a communicator that ends. */
static int may_end(const struct xccl_cuda_watch *watch, int at_work, struct xccl_limit *limit)
{
    if (!atomic_load_explicit(&watch->ends, memory_order_acquire))
        return 0;
    if (limit->deadline_ns == XCCL_NEVER_NS)
        *limit = xccl_limit_ms(LEAVE_MS, NULL);
    return !at_work || xccl_limit_passed(limit) ||
           atomic_load_explicit(&watch->cuda->comm->error, memory_order_relaxed);
}

static void *watch_main(void *argument)
{
    struct xccl_cuda_watch *watch = argument;
    struct xccl_limit limit = {.deadline_ns = XCCL_NEVER_NS};
    uint32_t idle = 0;
    int at_work = 0;

    xccl_log_set_rank(watch->cuda->comm->rank);
    for (;;) {
        int moved = 0;

        pthread_mutex_lock(&watch->cuda->lock);
        if (!watch->connecting) {
            moved = turn(watch, &at_work);
            if (!moved)
                look(watch, at_work);
        }
        pthread_mutex_unlock(&watch->cuda->lock);
        if (may_end(watch, at_work, &limit))
            break;
        idle = moved ? 0 : idle + 1;
        if (!moved)
            sleep_between(watch, at_work, idle);
    }
    return NULL;
}

xcclResult_t xccl_cuda_watch_start(struct xcclComm *comm)
{
    struct xccl_cuda_watch *watch = xccl_calloc(1, sizeof *watch);
    int err;

    if (!watch)
        return xcclSystemError;
    watch->cuda = comm->cuda;
    watch->next = 1;
    watch->far_end = &watch->far;
    comm->cuda->watch = watch;
    err = pthread_create(&watch->thread, NULL, watch_main, watch);
    if (!err)
        return xcclSuccess;
    comm->cuda->watch = NULL;
    xccl_free(watch);
    return xccl_fail(xcclSystemError, err, "see ulimit -u",
                     "cannot start the thread of a CUDA communicator");
}

void xccl_cuda_watch_stop(struct xcclComm *comm)
{
    struct xccl_cuda_watch *watch = comm->cuda->watch;

    if (!watch)
        return;
    comm->cuda->watch = NULL;
    /* Release: pairs with may_end(). */
    atomic_store_explicit(&watch->ends, 1, memory_order_release);
    xccl_bell_ring(&watch->bell);
    (void)pthread_join(watch->thread, NULL);
    while (watch->far) {
        struct far_op *op = watch->far;

        watch->far = op->next;
        xccl_free(op);
    }
    xccl_free(watch);
}

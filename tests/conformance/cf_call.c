/* SPDX-License-Identifier: BSD-3-Clause */
/* The entries of the contract, watched: the runner is told which one a role is in, and one that
 * takes longer than a second, besides the time to copy the largest message so far, waits for
 * something, which rule 1 forbids (init, devices and regMr may take their time; NCCL's closes
 * drain).
 *
 * Thread: the role's. */
#include "cf_int.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/sysfs.h"

#define LONG_MS (1000ull * CF_SLOW)
#define OVERDUE 3 /* times as long is not the machine's doing */

/* An entry may copy a message itself, so many bytes a millisecond at least. */
#define BYTES_A_MS (256u << 10)

/* How long this thread has waited for a core in all: that is no entry's doing. 0: the system does
 * not tell. The second number of the file. */
static uint64_t starved_ns(void)
{
    char text[64], *end;

    xccl_sysfs_line("/proc/thread-self/schedstat", text, sizeof(text));
    (void)strtoull(text, &end, 10);
    return strtoull(end, NULL, 10);
}

/* When that was looked at last, and what it was. */
static _Thread_local uint64_t looked_ns, before_ns;

uint64_t cf_enter(struct cf *me, const char *call)
{
    uint64_t now_ns = cf_now();

    /* Not with each of millions of calls. */
    if (now_ns - looked_ns > CF_MS) {
        looked_ns = now_ns;
        before_ns = starved_ns();
    }
    /* For the runner's eyes when the deadline has passed; nothing is ordered by it. */
    atomic_store_explicit(&me->shared->call[me->role], call, memory_order_relaxed);
    atomic_store_explicit(&me->shared->in_call[me->role], 1, memory_order_relaxed);
    atomic_store_explicit(&me->shared->overdue_ns[me->role], 0, memory_order_relaxed);
    atomic_store_explicit(&me->shared->entered_ns[me->role], now_ns, memory_order_relaxed);
    return now_ns;
}

/* The longest that a call may take which may not wait. */
static uint64_t limit_of(const struct cf *me)
{
    return LONG_MS + me->largest_bytes / BYTES_A_MS * CF_SLOW;
}

uint64_t cf_enter_short(struct cf *me, const char *call)
{
    uint64_t now_ns = cf_enter(me, call);

    /* Relaxed: the runner looks at it again and again. */
    atomic_store_explicit(&me->shared->overdue_ns[me->role],
                          now_ns + OVERDUE * limit_of(me) * CF_MS, memory_order_relaxed);
    return now_ns;
}

static void leave(struct cf *me)
{
    atomic_store_explicit(&me->shared->entered_ns[me->role], 0, memory_order_relaxed);
    atomic_store_explicit(&me->shared->overdue_ns[me->role], 0, memory_order_relaxed);
    atomic_store_explicit(&me->shared->in_call[me->role], 0, memory_order_relaxed);
}

_Noreturn static void fail_slow(struct cf *me, const char *call, uint64_t ms, const char *why)
{
    /* Relaxed: the process ends before the runner reads it. */
    atomic_store_explicit(&me->shared->took_long, 1, memory_order_relaxed);
    cf_fail(me, "%s took %llu ms; %s", call, (unsigned long long)ms, why);
}

void cf_leave(struct cf *me, const char *call, uint64_t begin_ns)
{
    uint64_t ms = (cf_now() - begin_ns) / CF_MS;
    uint64_t limit_ms = limit_of(me);

    leave(me);
    if (ms > limit_ms && ms > limit_ms + (starved_ns() - before_ns) / CF_MS)
        fail_slow(me, call, ms, "no entry may wait for a peer (rule 1)");
}

/* A plugin of NCCL's contract merges once in a process, so an instance is opened either before or
 * after that, and not by another thread in the middle. */
static pthread_mutex_t merging = PTHREAD_MUTEX_INITIALIZER;

/* Every instance has the same devices, and the merged one behind them. With the lock. */
static xcclResult_t merge(struct cf *me, struct xccl_net *net)
{
    static int known = -1; /* the number in this process */
    int devs[XCCL_NET_MAX_MEMBERS], merged = -1;
    xcclResult_t rc;

    if (known >= 0 && !me->own_contract) {
        me->dev = known;
        return xcclSuccess;
    }
    for (int i = 0; i < (int)me->options->rails; i++)
        devs[i] = (int)me->options->device + i;
    cf_enter(me, "mergeDevices");
    rc = net->calls.mergeDevices(net->ctx, devs, (int)me->options->rails, &merged);
    leave(me);
    if (rc != xcclSuccess)
        cf_fail(me, "devices %d to %d of %d cannot be merged: result %d", devs[0],
                devs[0] + (int)me->options->rails - 1, net->device_count, (int)rc);
    if (merged != net->device_count)
        cf_fail(me, "the merged device has number %d, but the plugin has %d devices", merged,
                net->device_count);
    net->device_count++;
    me->dev = known = merged;
    return xcclSuccess;
}

xcclResult_t cf_init(struct cf *me, struct xccl_net **net_out)
{
    const struct xccl_net_open_args args = {
        .comm_id = 0x0123456789abcdefu,
        .rank = me->role,
        .nranks = CF_ROLES,
        .comm_name = "conformance",
        .traffic_class = -1,
    };
    xcclResult_t rc;

    cf_enter(me, "init");
    if (me->options->rails > 1)
        pthread_mutex_lock(&merging);
    rc = xccl_net_open_item(me->options->item, &args, net_out);
    leave(me);
    if (me->options->rails > 1) {
        rc = rc == xcclSuccess ? merge(me, *net_out) : rc;
        pthread_mutex_unlock(&merging);
    }
    return rc;
}

void cf_fini(struct cf *me, struct xccl_net *net)
{
    uint64_t begin_ns = cf_enter(me, "finalize"), ms;

    xccl_net_close(net);
    leave(me);
    ms = (cf_now() - begin_ns) / CF_MS;
    if (ms > LONG_MS + 1000)
        fail_slow(me, "finalize", ms, "data that is not sent yet may delay it by at most 1 s");
}

xcclResult_t cf_properties(struct cf *me, int dev, xcclNetProperties_v1 *props)
{
    uint64_t begin_ns = cf_enter_short(me, "properties");
    xcclResult_t rc = me->net->calls.properties(me->net->ctx, dev, props);

    cf_leave(me, "properties", begin_ns);
    return rc;
}

xcclResult_t cf_listen(struct cf *me, int dev, xcclNetHandle_t *handle, xcclNetListenComm_t *listen)
{
    uint64_t begin_ns = cf_enter_short(me, "listen");
    xcclResult_t rc = me->net->calls.listen(me->net->ctx, dev, handle, listen);

    cf_leave(me, "listen", begin_ns);
    return rc;
}

xcclResult_t cf_connect(struct cf *me, int dev, const xcclNetHandle_t *handle,
                        xcclNetConnect_t *state, xcclNetSendComm_t *comm)
{
    uint64_t begin_ns = cf_enter_short(me, "connect");
    xcclResult_t rc = me->net->calls.connect(me->net->ctx, dev, handle, state, comm);

    cf_leave(me, "connect", begin_ns);
    return rc;
}

xcclResult_t cf_accept(struct cf *me, xcclNetListenComm_t listen, xcclNetRecvComm_t *comm)
{
    uint64_t begin_ns = cf_enter_short(me, "accept");
    xcclResult_t rc = me->net->calls.accept(listen, comm);

    cf_leave(me, "accept", begin_ns);
    return rc;
}

/* ---- registrations of NCCL's contract: all end before their comm closes, as in NCCL ---- */

#define REGS_MAX 1024 /* more than one case has at a time */

static struct {
    void *comm;
    xcclNetMem_t mem;
} regs[REGS_MAX];
static pthread_mutex_t regs_lock = PTHREAD_MUTEX_INITIALIZER;

/* The place of what comm has, or of this mem; (NULL, NULL): a free one. -1: none. With the lock. */
static int reg_find(const void *comm, xcclNetMem_t mem)
{
    for (int i = 0; i < REGS_MAX; i++) {
        if (regs[i].comm == comm && (!mem || regs[i].mem == mem))
            return i;
    }
    return -1;
}

static void reg_change(struct cf *me, void *comm, xcclNetMem_t mem, int added)
{
    int at;

    if (me->own_contract)
        return;
    pthread_mutex_lock(&regs_lock);
    at = reg_find(added ? NULL : comm, added ? NULL : mem);
    if (at >= 0) {
        regs[at].comm = added ? comm : NULL;
        regs[at].mem = added ? mem : NULL;
    }
    pthread_mutex_unlock(&regs_lock);
}

/* Cases may leave them to the close, which our contract allows. */
static void regs_end(struct cf *me, void *comm)
{
    int at = 0;

    for (int i = 0; i < REGS_MAX && at >= 0 && !me->own_contract; i++) {
        xcclNetMem_t mem = NULL;

        pthread_mutex_lock(&regs_lock);
        at = reg_find(comm, NULL);
        if (at >= 0)
            mem = regs[at].mem;
        pthread_mutex_unlock(&regs_lock);
        if (at >= 0)
            cf_dereg(me, comm, mem);
    }
}

xcclResult_t cf_reg(struct cf *me, void *comm, void *data, size_t bytes, xcclNetMem_t *mem)
{
    xcclResult_t rc;

    cf_enter(me, "regMr");
    rc = me->net->calls.regMr(comm, data, bytes, XCCL_NET_PTR_HOST, mem);
    leave(me);
    if (rc == xcclSuccess)
        reg_change(me, comm, *mem, 1);
    return rc;
}

xcclResult_t cf_dereg(struct cf *me, void *comm, xcclNetMem_t mem)
{
    xcclResult_t rc;

    reg_change(me, comm, mem, 0);
    cf_enter(me, "deregMr");
    rc = me->net->calls.deregMr(comm, mem);
    leave(me);
    return rc;
}

static void note_bytes(struct cf *me, size_t bytes)
{
    if (bytes > me->largest_bytes)
        me->largest_bytes = bytes;
}

xcclResult_t cf_isend(struct cf *me, void *comm, const void *data, size_t bytes, uint32_t tag,
                      xcclNetMem_t mem, xcclNetRequest_t *request)
{
    uint64_t begin_ns = cf_enter_short(me, "isend");
    xcclResult_t rc = me->net->calls.isend(comm, data, bytes, tag, mem, request);

    note_bytes(me, bytes);
    cf_leave(me, "isend", begin_ns);
    return rc;
}

xcclResult_t cf_irecv(struct cf *me, void *comm, const struct cf_recv *recv,
                      xcclNetRequest_t *request)
{
    uint64_t begin_ns = cf_enter_short(me, "irecv");
    xcclResult_t rc = me->net->calls.irecv(comm, recv->count, recv->data, recv->bytes, recv->tags,
                                           recv->mems, request);

    for (int i = 0; i < recv->count; i++)
        note_bytes(me, recv->bytes[i]);
    cf_leave(me, "irecv", begin_ns);
    return rc;
}

xcclResult_t cf_test(struct cf *me, xcclNetRequest_t request, int *done, size_t *bytes)
{
    uint64_t begin_ns = cf_enter_short(me, "test");
    xcclResult_t rc = me->net->calls.test(request, done, bytes);

    cf_leave(me, "test", begin_ns);
    if (rc == xcclSuccess && *done != 0 && *done != 1)
        cf_fail(me, "test succeeded, but left *done at %d", *done);
    return rc;
}

/* Those of NCCL's contract wait for what is in flight. */
static uint64_t close_enter(struct cf *me, const char *call)
{
    return me->own_contract ? cf_enter_short(me, call) : cf_enter(me, call);
}

static void close_left(struct cf *me, const char *call, uint64_t begin_ns)
{
    if (me->own_contract)
        cf_leave(me, call, begin_ns);
    else
        leave(me);
}

xcclResult_t cf_close_send(struct cf *me, xcclNetSendComm_t comm)
{
    uint64_t begin_ns;
    xcclResult_t rc;

    regs_end(me, comm);
    begin_ns = close_enter(me, "closeSend");
    rc = me->net->calls.closeSend(comm);

    close_left(me, "closeSend", begin_ns);
    return rc;
}

xcclResult_t cf_close_recv(struct cf *me, xcclNetRecvComm_t comm)
{
    uint64_t begin_ns;
    xcclResult_t rc;

    regs_end(me, comm);
    begin_ns = close_enter(me, "closeRecv");
    rc = me->net->calls.closeRecv(comm);

    close_left(me, "closeRecv", begin_ns);
    return rc;
}

xcclResult_t cf_close_listen(struct cf *me, xcclNetListenComm_t comm)
{
    uint64_t begin_ns = close_enter(me, "closeListen");
    xcclResult_t rc = me->net->calls.closeListen(comm);

    close_left(me, "closeListen", begin_ns);
    return rc;
}

xcclResult_t cf_close_connect(struct cf *me, xcclNetConnect_t state)
{
    uint64_t begin_ns = close_enter(me, "closeConnect");
    xcclResult_t rc = me->net->calls.closeConnect(me->net->ctx, state);

    close_left(me, "closeConnect", begin_ns);
    return rc;
}

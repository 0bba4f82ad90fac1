/* SPDX-License-Identifier: BSD-3-Clause */
/* Data in a device's memory can be seen by its kernels once it has left the card's queue towards
 * that device, which the completion in host memory does not say. A read from there pushes it: so
 * iflush reads a byte of each buffer by each port by which data has come, over a queue pair that is
 * connected to itself. Memory of the host needs none.
 *
 * Where one of several ports fails, so does its queue pair here. What came by it is not read again:
 * its other queue pairs are destroyed by a command to the card long behind their last write. It is
 * made anew by the first iflush that finds its port up.
 *
 * Thread: the comm's; ib_flush_open: any, one at a time by the lock of registrations. Only open
 * allocates. */
#include "ib_int.h"

#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/param.h"

#define READS     (IB_RECVS * IB_PARTS) /* under way, at most */
#define POLL_MAX  16
#define RNR_TIMER 12

static int move(struct ib_comm *comm, struct ib_flush_way *way, struct ibv_qp_attr *attr, int mask)
{
    attr->qp_state = mask & IBV_QP_PORT        ? IBV_QPS_INIT
                     : mask & IBV_QP_DEST_QPN  ? IBV_QPS_RTR
                     : mask & IBV_QP_RETRY_CNT ? IBV_QPS_RTS
                                               : IBV_QPS_RESET;
    return comm->ctx->verbs->modify_qp(way->pair.qp, attr, IBV_QP_STATE | mask);
}

/* To itself, out of any state but the first. Gives errno. */
static int way_start(struct ib_comm *comm, struct ib_flush_way *way)
{
    const struct ib_port *port = &comm->queue.ports[way->pair.port];
    struct ib_port_info self = {.lid = port->device->attr.lid,
                                .link_layer = port->device->attr.link_layer};
    struct ibv_qp_attr init = {.pkey_index = (uint16_t)xccl_param_int(XCCL_P_IB_PKEY),
                               .port_num = (uint8_t)port->device->port,
                               .qp_access_flags = IBV_ACCESS_REMOTE_READ};
    struct ibv_qp_attr receive = {.path_mtu = port->device->attr.active_mtu,
                                  .dest_qp_num = way->pair.qp->qp_num,
                                  .max_dest_rd_atomic = 1,
                                  .min_rnr_timer = RNR_TIMER};
    struct ibv_qp_attr send = {.timeout = (uint8_t)xccl_param_int(XCCL_P_IB_TIMEOUT),
                               .retry_cnt = (uint8_t)xccl_param_int(XCCL_P_IB_RETRY_CNT),
                               .rnr_retry = 7,
                               .max_rd_atomic = 1};
    int err = move(comm, way, &init, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

    memcpy(self.gid, port->gid.raw, sizeof(self.gid));
    receive.ah_attr = ib_way_to(port, &self, ib_traffic_class(comm));
    if (!err)
        err = move(comm, way, &receive,
                   IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (!err)
        err = move(comm, way, &send,
                   IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                       IBV_QP_MAX_QP_RD_ATOMIC);
    return err;
}

static xcclResult_t way_open(struct ib_comm *comm, struct ib_flusher *flusher, uint32_t idx)
{
    const struct ib_verbs *verbs = comm->ctx->verbs;
    struct ib_device *device = comm->queue.ports[idx].device;
    struct ib_flush_way *way = &flusher->ways[idx];
    struct ibv_qp_init_attr attr = {
        .qp_context = &way->pair, /* for its events */
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = READS, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    int err = 0;

    way->pair.port = idx;
    way->mr = verbs->reg_mr(device->pd, &flusher->word, sizeof(flusher->word),
                            IBV_ACCESS_LOCAL_WRITE);
    /* With several ports there is room for what a way that failed leaves behind. */
    way->cq = way->mr
                  ? verbs->create_cq(device->context, READS * (1 + comm->has_spare), comm, NULL, 0)
                  : NULL;
    attr.send_cq = attr.recv_cq = way->cq;
    way->pair.qp = way->cq ? verbs->create_qp(device->pd, &attr) : NULL;
    if (!way->pair.qp)
        err = errno;
    else
        err = way_start(comm, way);
    return err ? xccl_fail_quietly(
                     xcclSystemError, err, "use fewer connections, or raise ulimit -l",
                     "cannot create a queue pair to flush device memory on %s", device->name)
               : xcclSuccess;
}

static void flusher_destroy(const struct ib_comm *comm, struct ib_flusher *flusher)
{
    const struct ib_verbs *verbs = comm->ctx->verbs;

    for (uint32_t i = 0; i < IB_PORTS_MAX; i++) {
        if (flusher->ways[i].pair.qp)
            verbs->destroy_qp(flusher->ways[i].pair.qp);
        if (flusher->ways[i].cq)
            verbs->destroy_cq(flusher->ways[i].cq);
        if (flusher->ways[i].mr)
            verbs->dereg_mr(flusher->ways[i].mr);
    }
    xccl_free(flusher);
}

static xcclResult_t flusher_create(struct ib_receiver *receiver, struct ib_flusher **flusher_out)
{
    struct ib_comm *comm = &receiver->comm;
    struct ib_flusher *flusher = xccl_calloc(1, sizeof(*flusher));
    xcclResult_t rc = xcclSuccess;

    if (!flusher)
        return xcclSystemError;
    for (uint32_t i = 0; i < IB_RECVS; i++) {
        flusher->flushes[i].request.comm = comm;
        flusher->flushes[i].request.is_flush = 1;
    }
    for (uint32_t i = 0; i < comm->queue.port_count && rc == xcclSuccess; i++) {
        if (comm->queue.ports[i].cq)
            rc = way_open(comm, flusher, i);
    }
    if (rc != xcclSuccess) {
        flusher_destroy(comm, flusher);
        return rc;
    }
    *flusher_out = flusher;
    return xcclSuccess;
}

xcclResult_t ib_flush_open(struct ib_receiver *receiver)
{
    pthread_mutex_t *lock = &receiver->comm.device->ports[0]->cache.lock;
    struct ib_flusher *flusher = NULL;
    xcclResult_t rc = xcclSuccess;

    pthread_mutex_lock(lock);
    /* Relaxed: only holders of the lock write it. */
    if (!atomic_load_explicit(&receiver->flusher, memory_order_relaxed)) {
        rc = flusher_create(receiver, &flusher);
        /* Release: pairs with ib_iflush(). */
        if (rc == xcclSuccess)
            atomic_store_explicit(&receiver->flusher, flusher, memory_order_release);
    }
    pthread_mutex_unlock(lock);
    return rc;
}

void ib_flush_close(struct ib_receiver *receiver)
{
    struct ib_flusher *flusher = atomic_load_explicit(&receiver->flusher, memory_order_relaxed);

    if (flusher)
        flusher_destroy(&receiver->comm, flusher);
}

/* ---- reads ---- */

static int port_is_up(const struct ib_device *device)
{
    return !ib_down_ms(device) && !atomic_load_explicit(&device->has_failed, memory_order_relaxed);
}

/* A way that has failed beside others: nothing is read by it until it is made anew. */
static void way_fail(struct ib_flush_way *way)
{
    way->has_failed = 1;
    way->pair.completed = way->pair.posted;
}

static int way_is_usable(struct ib_comm *comm, struct ib_flush_way *way)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};

    if (!way->pair.qp)
        return 0;
    if (!comm->has_spare)
        return 1;
    if (!port_is_up(comm->queue.ports[way->pair.port].device))
        return 0;
    if (!way->has_failed)
        return 1;
    /* The service may be about to take another GID. */
    if (!ib_comm_claim(comm))
        return 0;
    way->pair.generation++;
    way->has_failed = move(comm, way, &attr, 0) || way_start(comm, way);
    ib_comm_release(comm);
    return !way->has_failed;
}

/* Reads a byte of each buffer by one port. Gives errno. */
static int read_each(struct ib_flusher *flusher, struct ib_flush_way *way, int count,
                     void *const *data, const size_t *bytes, const xcclNetMem_t *mems)
{
    struct ibv_sge word = {.addr = (uintptr_t)&flusher->word, .length = 1, .lkey = way->mr->lkey};
    struct ibv_send_wr works[IB_PARTS] = {{0}}, *bad;
    uint32_t reads = 0;
    int err;

    for (int i = 0; i < count; i++) {
        const struct ib_memory *memory = mems[i];

        if (bytes[i] == 0 || !memory || !memory->is_device)
            continue;
        works[reads].wr_id = ib_wr_id(&way->pair, way->pair.port, 0, way->pair.posted + reads + 1);
        works[reads].sg_list = &word;
        works[reads].num_sge = 1;
        works[reads].opcode = IBV_WR_RDMA_READ;
        works[reads].wr.rdma.remote_addr = (uintptr_t)data[i];
        works[reads].wr.rdma.rkey = memory->rkeys[way->pair.port];
        if (reads)
            works[reads - 1].next = &works[reads];
        reads++;
    }
    if (reads == 0)
        return 0;
    works[reads - 1].send_flags = IBV_SEND_SIGNALED;
    err = ibv_post_send(way->pair.qp, works, &bad);
    if (!err)
        way->pair.posted += reads;
    return err;
}

static int is_needed(int count, const size_t *bytes, const xcclNetMem_t *mems)
{
    for (int i = 0; i < count; i++) {
        if (bytes[i] && mems[i] && ((const struct ib_memory *)mems[i])->is_device)
            return 1;
    }
    return 0;
}

static struct ib_flush *flush_take(struct ib_flusher *flusher)
{
    for (uint32_t i = 0; i < IB_RECVS; i++) {
        if (flusher->flushes[i].request.state == IB_FREE)
            return &flusher->flushes[i];
    }
    return NULL;
}

/* With one port the comm is always the caller's, so its error can be kept. */
static xcclResult_t flush_fail(struct ib_comm *comm, uint32_t idx, uint32_t vendor_err, int err,
                               const char *why)
{
    ib_comm_fail_code(comm, xcclNetCauseLocal, vendor_err, err,
                      xccl_fail_quietly(xcclSystemError, err, "see the kernel's log",
                                        "%s cannot flush the memory of a device: %s",
                                        comm->queue.ports[idx].device->name, why));
    return ib_comm_error(comm);
}

xcclResult_t ib_iflush(xcclNetRecvComm_t comm, int count, void *const *data, const size_t *bytes,
                       const xcclNetMem_t *mems, xcclNetRequest_t *request_out)
{
    struct ib_receiver *receiver = comm;
    /* Acquire: pairs with ib_flush_open(). */
    struct ib_flusher *flusher = atomic_load_explicit(&receiver->flusher, memory_order_acquire);
    uint32_t ports = atomic_load_explicit(&receiver->came_ports, memory_order_relaxed);
    struct ib_flush *flush;

    if (count < 1 || count > IB_PARTS)
        return xccl_fail_quietly(xcclInvalidArgument, 0, NULL,
                                 "cannot flush %d buffers together: at most %d are possible", count,
                                 IB_PARTS);
    if (!flusher || !is_needed(count, bytes, mems)) {
        *request_out = NULL;
        return xcclSuccess;
    }
    if (receiver->comm.rc != xcclSuccess && !receiver->comm.has_spare)
        return ib_comm_error(&receiver->comm);
    flush = flush_take(flusher);
    if (!flush)
        return xccl_fail_quietly(xcclInvalidUsage, 0, "test some first",
                                 "%d flushes are already in flight", IB_RECVS);
    for (uint32_t i = 0; i < receiver->comm.queue.port_count; i++) {
        struct ib_flush_way *way = &flusher->ways[i];
        int err = 0;

        if ((ports >> i & 1) && way_is_usable(&receiver->comm, way))
            err = read_each(flusher, way, count, data, bytes, mems);
        if (err && !receiver->comm.has_spare)
            return flush_fail(&receiver->comm, i, 0, err, "it accepts no more work");
        if (err)
            way_fail(way);
        flush->until[i] = way->pair.posted;
    }
    flush->request.state = IB_POSTED;
    *request_out = &flush->request;
    return xcclSuccess;
}

/* Takes what is complete. 0: the way has failed, and there is no other. */
static int way_poll(struct ib_comm *comm, struct ib_flush_way *way, struct ibv_wc *bad_out)
{
    struct ibv_wc wcs[POLL_MAX];
    int count = way->cq ? ibv_poll_cq(way->cq, POLL_MAX, wcs) : 0;

    for (int i = 0; i < count; i++) {
        if (!ib_is_of(&way->pair, &wcs[i]) || way->has_failed)
            continue; /* of one that was in its place before */
        if (wcs[i].status == IBV_WC_SUCCESS) {
            way->pair.completed = (uint32_t)wcs[i].wr_id;
        } else if (comm->has_spare) {
            way_fail(way);
        } else {
            *bad_out = wcs[i];
            return 0;
        }
    }
    return 1;
}

xcclResult_t ib_flush_test(struct ib_request *request, int *done_out)
{
    struct ib_comm *comm = request->comm;
    struct ib_receiver *receiver = (struct ib_receiver *)comm;
    struct ib_flusher *flusher = atomic_load_explicit(&receiver->flusher, memory_order_relaxed);
    struct ib_flush *flush = (struct ib_flush *)request;
    struct ibv_wc bad;
    int done = 1;

    if (request->state == IB_FREE)
        return xccl_fail_quietly(xcclInvalidUsage, 0, "do not test a request after it was done",
                                 "a flush is tested again after it was done");
    if (comm->rc != xcclSuccess && !comm->has_spare)
        return ib_comm_error(comm);
    for (uint32_t i = 0; i < comm->queue.port_count; i++) {
        struct ib_flush_way *way = &flusher->ways[i];

        if (!way_poll(comm, way, &bad))
            return flush_fail(comm, i, bad.vendor_err, 0,
                              comm->ctx->verbs->wc_status_str(bad.status));
        done &= (int32_t)(way->pair.completed - flush->until[i]) >= 0;
    }
    *done_out = done;
    if (done)
        request->state = IB_FREE;
    return xcclSuccess;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* What every hook needs: a plugin that wraps another one of the same contract. Instances, listening
 * comms, connects, comms and requests of the wrapped plugin are carried by objects of ours; memory
 * registrations pass as they are. Each entry of the contract exists here as a hook_ function that
 * only passes on, so that a hook writes down the entries in which it does something.
 *
 * A hook's own objects begin with the struct of this header; struct hook_shape has their sizes, and
 * all memory is taken when an object is made and zeroed. After an error of the wrapped plugin the
 * thread's error text is a copy of that plugin's.
 *
 * Thread: as the contract says for the entry. A comm's requests belong to the comm's thread. */
#ifndef NET_HOOK_H
#define NET_HOOK_H

#include <pthread.h>
#include <stdatomic.h>

#include "xccl_net.h"

/* All sends that the contract allows in flight, and as many flushes as receives. */
#define HOOK_REQUESTS (XCCL_NET_MAX_REQUESTS * XCCL_NET_MAX_RECVS + XCCL_NET_MAX_REQUESTS)

struct hook_shape {
    const char *name; /* of the hook */
    size_t ctx_bytes, listen_bytes, connect_bytes, comm_bytes, request_bytes;
};

/* An instance. */
struct hook_ctx {
    const struct hook_shape *shape;
    const xcclNetPlugin_v1_t *plugin; /* the wrapped one; every entry is filled */
    xcclNetContext_t inner;
    xcclNetLogger_t log; /* may be NULL */
    int rank;
    _Atomic uint32_t listen_count, connect_count; /* relaxed: they only number */
    pthread_mutex_t lock; /* over connects */
    struct hook_connect *connects; /* under way */
};

struct hook_listen {
    struct hook_ctx *ctx;
    xcclNetListenComm_t inner;
    int dev;
    uint32_t number; /* of the instance, from 1 */
    struct hook_comm *spare; /* for the next accept, taken first so that success cannot fail */
};

struct hook_connect {
    struct hook_ctx *ctx;
    xcclNetConnect_t inner;
    uint32_t number; /* of the instance, from 1 */
    struct hook_comm *comm; /* taken first so that success cannot fail */
    struct hook_connect *prev, *next;
};

enum hook_kind { HOOK_SEND, HOOK_RECV, HOOK_FLUSH, HOOK_PUT };

struct hook_comm {
    struct hook_ctx *ctx;
    void *inner;
    int is_send, dev;
    uint32_t number; /* its connect's or listen's */
    uint32_t posted; /* requests taken so far */
    uint32_t free_count;
    uint16_t free_slots[HOOK_REQUESTS];
    char *requests; /* HOOK_REQUESTS of shape->request_bytes */
};

struct hook_request {
    struct hook_comm *comm;
    xcclNetRequest_t inner;
    uint32_t number; /* of the comm, from 1, in order of posting */
    uint16_t slot;
    uint8_t kind; /* enum hook_kind */
    uint8_t taken;
    int count; /* messages in it */
};

/* hook_instance.c */

/* What was wrong in the wrapped plugin becomes the thread's error text; returns rc. */
xcclResult_t hook_pass(const struct hook_ctx *ctx, xcclResult_t rc);
/* 1: init names a plugin to wrap. */
int hook_is_given(const xcclNetInit_v1 *init);
/* Makes the instance and the wrapped one's. xcclInvalidUsage when nothing is wrapped. */
xcclResult_t hook_init(const struct hook_shape *shape, const xcclNetInit_v1 *init,
                       struct hook_ctx **ctx_out);
/* Ends connects under way, then both instances; also after an error. */
xcclResult_t hook_finalize(xcclNetContext_t ctx);
xcclResult_t hook_devices(xcclNetContext_t ctx, int *count);
xcclResult_t hook_properties(xcclNetContext_t ctx, int dev, xcclNetProperties_v1 *props);
xcclResult_t hook_stats(xcclNetContext_t ctx, int dev, xcclNetStats_v1 *stats);
xcclResult_t hook_progress(xcclNetContext_t ctx, int *pending);
xcclResult_t hook_merge_devices(xcclNetContext_t ctx, const int *devs, int count, int *dev);
const char *hook_last_error(xcclNetContext_t ctx);

/* hook_connect.c */
xcclResult_t hook_listen(xcclNetContext_t ctx, int dev, xcclNetHandle_t *handle,
                         xcclNetListenComm_t *comm);
/* Makes *state, a struct hook_connect, if it is NULL. hook_connect does so itself; for hooks that
 * need their state before the wrapped plugin is asked. */
xcclResult_t hook_connect_begin(xcclNetContext_t ctx, int dev, xcclNetConnect_t *state);
xcclResult_t hook_connect(xcclNetContext_t ctx, int dev, const xcclNetHandle_t *handle,
                          xcclNetConnect_t *state, xcclNetSendComm_t *comm);
xcclResult_t hook_close_connect(xcclNetContext_t ctx, xcclNetConnect_t state);
xcclResult_t hook_accept(xcclNetListenComm_t listen, xcclNetRecvComm_t *comm);
xcclResult_t hook_close_send(xcclNetSendComm_t comm);
xcclResult_t hook_close_recv(xcclNetRecvComm_t comm);
xcclResult_t hook_close_listen(xcclNetListenComm_t listen);

/* hook_transfer.c */

/* The request in slot, 0 to HOOK_REQUESTS - 1, taken or not. */
struct hook_request *hook_request_at(struct hook_comm *comm, uint32_t slot);
/* A free request with a number; all behind struct hook_request is as its last user left it. NULL:
 * all are in use. */
struct hook_request *hook_request_take(struct hook_comm *comm, enum hook_kind kind);
void hook_request_put(struct hook_request *request);
/* xcclInvalidUsage after an error text when request is one that test called done. */
xcclResult_t hook_request_check(const struct hook_request *request);

xcclResult_t hook_reg_mr(void *comm, void *data, size_t bytes, uint32_t type, xcclNetMem_t *mem);
xcclResult_t hook_reg_mr_dma_buf(void *comm, void *data, size_t bytes, uint32_t type,
                                 uint64_t offset, int fd, xcclNetMem_t *mem);
xcclResult_t hook_dereg_mr(void *comm, xcclNetMem_t mem);
xcclResult_t hook_export_mr(xcclNetRecvComm_t comm, xcclNetMem_t mem, xcclNetMemKey_t *key);
xcclResult_t hook_isend(xcclNetSendComm_t comm, const void *data, size_t bytes, uint32_t tag,
                        xcclNetMem_t mem, xcclNetRequest_t *request);
xcclResult_t hook_irecv(xcclNetRecvComm_t comm, int count, void *const *data, const size_t *bytes,
                        const uint32_t *tags, const xcclNetMem_t *mems, xcclNetRequest_t *request);
xcclResult_t hook_iflush(xcclNetRecvComm_t comm, int count, void *const *data, const size_t *bytes,
                         const xcclNetMem_t *mems, xcclNetRequest_t *request);
xcclResult_t hook_iput(xcclNetSendComm_t comm, const void *data, size_t bytes, xcclNetMem_t mem,
                       const xcclNetMemKey_t *key, uint64_t offset, xcclNetRequest_t *request);
xcclResult_t hook_iput_signal(xcclNetSendComm_t comm, const void *data, size_t bytes,
                              xcclNetMem_t mem, const xcclNetMemKey_t *key, uint64_t offset,
                              const xcclNetMemKey_t *signal_key, uint64_t signal_offset,
                              uint64_t value, xcclNetRequest_t *request);
xcclResult_t hook_test(xcclNetRequest_t request, int *done, size_t *bytes);
xcclResult_t hook_wait_fd(void *comm, int *fd);
xcclResult_t hook_error_detail(void *comm, xcclNetError_v1 *error);

#endif

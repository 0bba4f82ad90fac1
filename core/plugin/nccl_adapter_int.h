/* SPDX-License-Identifier: BSD-3-Clause */
/* Between the files of the adapters. A family file (nccl_v6.c, nccl_v7.c, nccl_v9.c, nccl_v11.c)
 * knows one layout and fills struct nccl_ops with what differs; the rest is written once:
 *
 *   nccl_adapter.c    the tables of contract xccl1, and the check
 *   nccl_report.c     what plugins log, and error texts
 *   nccl_instance.c   init, finalize, devices
 *   nccl_comm.c       connections and memory
 *   nccl_request.c    requests
 *
 * Thread: as include/xccl_net.h says. */
#ifndef XCCL_PLUGIN_NCCL_ADAPTER_INT_H
#define XCCL_PLUGIN_NCCL_ADAPTER_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/error.h"
#include "base/nccl_net_abi.h"
#include "plugin/nccl_adapter.h"

#define NCCL_DEVICES_MAX  1024
#define NCCL_BYTES_LIMIT  ((size_t)0x7fffffff) /* test and iflush count in int to this day */
#define NCCL_REQUESTS_MAX (XCCL_NET_MAX_REQUESTS * XCCL_NET_MAX_RECVS)

struct nccl_device {
    int inner; /* its number in the plugin: devices that need offload are left out of ours */
    xcclNetProperties_v1 props; /* name and pciPath are ours to free */
};

struct nccl_instance {
    const struct nccl_ops *ops;
    const void *table;
    /* The entries that all versions have alike; of the others only the place is right. */
    struct nccl_net_v6 common;
    void *ctx; /* from version 11 on */
    uint64_t comm_id;
    struct nccl_net_config config;
    xcclNetLogger_t log; /* NULL: none */
    char name[NCCL_NAME_BYTES];
    pthread_mutex_t lock; /* over devices and comms; never taken by the entries of rule 2 */
    struct nccl_device *devices;
    int device_count, refused_count;
    _Atomic int
        left_open; /* 1: a comm of the plugin's could not be closed; relaxed, of the closers */
    struct nccl_comm *comms; /* progress reads it without the lock: contract rule 3 */
};

/* The parts of an irecv or iflush, in the plugin's types: it may write to the arrays. */
struct nccl_parts {
    int count;
    void *data[XCCL_NET_MAX_RECVS];
    size_t bytes[XCCL_NET_MAX_RECVS];
    int tags[XCCL_NET_MAX_RECVS];
    void *mems[XCCL_NET_MAX_RECVS];
};

/* What differs between versions. Functions return the plugin's result as it is. */
struct nccl_ops {
    int version;
    int requests; /* in flight a comm, and times maxRecvs for a sender */
    int hints; /* irecv takes XCCL_NET_RECV_OPTIONAL */
    size_t reg_bytes_max;
    int (*init)(struct nccl_instance *instance);
    int (*finalize)(struct nccl_instance *instance); /* NULL: no instances, one init a process */
    /* The newest form; fields that the version does not have stay as they are. */
    int (*properties)(struct nccl_instance *instance, int dev, struct nccl_net_props_v12 *props);
    int (*listen)(struct nccl_instance *instance, int dev, void *handle, void **comm);
    int (*connect)(struct nccl_instance *instance, int dev, void *handle, void **comm);
    int (*accept)(struct nccl_instance *instance, void *listener, void **comm);
    int (*reg_mr)(struct nccl_instance *instance, void *comm, void *data, size_t bytes, int type,
                  void **mem);
    int (*isend)(struct nccl_instance *instance, void *comm, void *data, size_t bytes, int tag,
                 void *mem, void **request);
    int (*irecv)(struct nccl_instance *instance, void *comm, struct nccl_parts *parts,
                 void **request);
    int (*merge)(struct nccl_instance *instance, const int *devs, int count, int *dev);
};
extern const struct nccl_ops nccl_ops_v6, nccl_ops_v7, nccl_ops_v8, nccl_ops_v9, nccl_ops_v10,
    nccl_ops_v11, nccl_ops_v12;
const struct nccl_ops *nccl_ops_find(int version); /* NULL: not one of ours */
/* For plugins that call it without asking: does nothing. */
int nccl_profiler_idle(void **event, int type, void *parent, int64_t plugin_id, void *data);

/* ---- nccl_report.c ---- */

/* What the calling thread does in a plugin, and what was said there. Each call into a plugin is
 * between nccl_enter and nccl_leave, so that lines find their instance's log; nccl_leave may be
 * left out after nccl_enter(NULL). */
struct nccl_here {
    xcclNetLogger_t log; /* NULL: XCCL's own log */
    char warnings[512]; /* of this call, in order, as far as there is room; else "" */
    char text[XCCL_ERROR_TEXT_BYTES]; /* of the thread's last error */
};
extern _Thread_local struct nccl_here nccl_here;

static inline void nccl_enter(xcclNetLogger_t log)
{
    nccl_here.log = log;
    nccl_here.warnings[0] = 0;
}

static inline void nccl_leave(void)
{
    nccl_here.log = NULL;
}

/* What the plugin gets as its logger. */
void nccl_logger_take(int level, unsigned long flags, const char *file, int line, const char *fmt,
                      ...) __attribute__((format(printf, 5, 6)));
/* A plugin's result that is not success, as one of ours. */
xcclResult_t nccl_result(int result);
/* Sets the thread's error text "NAME ENTRY: RESULT: WARNINGS", returns the result as ours. */
xcclResult_t nccl_failed(const struct nccl_instance *instance, const char *entry, int result);
/* Sets the thread's error text "NAME ENTRY: why" for an error of the adapter. Returns rc. */
xcclResult_t nccl_refuse(const struct nccl_instance *instance, const char *entry, xcclResult_t rc,
                         const char *fmt, ...) __attribute__((format(printf, 4, 5), cold));
/* One line for the instance's log. */
void nccl_line(const struct nccl_instance *instance, xcclNetLogLevel_t level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4), cold));
const char *nccl_last_error(xcclNetContext_t ctx);

/* ---- nccl_instance.c ---- */

xcclResult_t nccl_init(const xcclNetInit_v1 *init, xcclNetContext_t *ctx_out);
xcclResult_t nccl_finalize(xcclNetContext_t ctx);
xcclResult_t nccl_devices(xcclNetContext_t ctx, int *count_out);
xcclResult_t nccl_properties(xcclNetContext_t ctx, int dev, xcclNetProperties_v1 *props);
xcclResult_t nccl_merge_devices(xcclNetContext_t ctx, const int *devs, int count, int *dev_out);
/* A copy; its texts are the instance's. 0: no such device, the error text is set. */
int nccl_device_get(struct nccl_instance *instance, const char *entry, int dev,
                    struct nccl_device *device_out);

/* ---- nccl_comm.c ---- */

/* A wrapped request. Free ones are in no list. */
struct nccl_request {
    struct nccl_comm *comm;
    void *inner;
    uint16_t after; /* the next one in flight; NCCL_REQUESTS_MAX: none */
    uint8_t count, done, is_flush, optional;
    /* Receive: the room of each part, once done what came. Send: what is sent. */
    size_t bytes[XCCL_NET_MAX_RECVS];
};

/* Requests in the order of posting, by index; NCCL_REQUESTS_MAX: none. */
struct nccl_in_flight {
    uint16_t first, last;
};

struct nccl_comm {
    struct nccl_instance *instance;
    struct nccl_comm *next, **link; /* in the instance's list */
    void *inner;
    int is_send;
    int max_recvs;
    uint32_t ptr_support;
    size_t max_bytes;
    xcclResult_t rc; /* once set, it stays, with text */
    int request_count; /* sends or receives; a receiver has as many flushes behind them */
    int in_flight; /* of both lists */
    struct nccl_in_flight messages, flushes;
    uint64_t taken[NCCL_REQUESTS_MAX / 64]; /* a bit for each request */
    char text[XCCL_ERROR_TEXT_BYTES];
    struct nccl_request requests[];
};

xcclResult_t nccl_listen(xcclNetContext_t ctx, int dev, xcclNetHandle_t *handle_out,
                         xcclNetListenComm_t *listen_out);
xcclResult_t nccl_connect(xcclNetContext_t ctx, int dev, const xcclNetHandle_t *handle,
                          xcclNetConnect_t *state, xcclNetSendComm_t *comm_out);
xcclResult_t nccl_close_connect(xcclNetContext_t ctx, xcclNetConnect_t state);
xcclResult_t nccl_accept(xcclNetListenComm_t listen, xcclNetRecvComm_t *comm_out);
xcclResult_t nccl_reg_mr(void *comm, void *data, size_t bytes, uint32_t type,
                         xcclNetMem_t *mem_out);
xcclResult_t nccl_reg_mr_dmabuf(void *comm, void *data, size_t bytes, uint32_t type,
                                uint64_t offset, int fd, xcclNetMem_t *mem_out);
xcclResult_t nccl_dereg_mr(void *comm, xcclNetMem_t mem);
xcclResult_t nccl_close_comm(void *comm);
xcclResult_t nccl_close_listen(xcclNetListenComm_t listen);
xcclResult_t nccl_error_detail(void *comm, xcclNetError_v1 *error);
/* A plugin may give NULL for a registration; callers of our contract get an address. */
void *nccl_mem_inner(xcclNetMem_t mem);

/* ---- nccl_request.c ---- */

xcclResult_t nccl_isend(xcclNetSendComm_t comm, const void *data, size_t bytes, uint32_t tag,
                        xcclNetMem_t mem, xcclNetRequest_t *request);
xcclResult_t nccl_irecv(xcclNetRecvComm_t comm, int count, void *const *data, const size_t *bytes,
                        const uint32_t *tags, const xcclNetMem_t *mems, xcclNetRequest_t *request);
xcclResult_t nccl_iflush(xcclNetRecvComm_t comm, int count, void *const *data, const size_t *bytes,
                         const xcclNetMem_t *mems, xcclNetRequest_t *request);
xcclResult_t nccl_test(xcclNetRequest_t request, int *done, size_t *bytes);
xcclResult_t nccl_progress(xcclNetContext_t ctx, int *pending);
/* Tests what is in flight until it has ended or limit_ms have passed; how many are left. */
int nccl_comm_drain(struct nccl_comm *comm, int limit_ms);

#endif

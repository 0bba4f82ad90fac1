/* SPDX-License-Identifier: BSD-3-Clause */
/* The contract between XCCL and a network plugin, version 1 (draft: not frozen before XCCL 1.0).
 *
 * A plugin is a shared library libxccl-net-NAME.so that exports one data symbol, xcclNetPlugin_v1.
 * Nothing runs when it is loaded. Every struct begins with its size in bytes, set by whoever fills
 * it; fields are only ever appended, and a reader looks at no field beyond that size.
 *
 * The life of a connection, in order:
 *   init > devices > properties > listen (receiver) > the 128-byte handle travels to the sender >
 *   connect (sender) and accept (receiver), called again and again until both give a comm >
 *   regMr > isend / irecv and test > deregMr > closeSend, closeRecv, closeListen > finalize.
 *
 * Rules that hold for every entry:
 *  - Nothing blocks. What is not ready yet gives xcclSuccess and a NULL output; the caller asks
 * again.
 *  - A comm's isend, irecv and test come from one thread at a time; different comms may be driven
 * by different threads at once; regMr and deregMr may come from a second thread.
 *  - isend, irecv and test neither allocate, lock, log nor make more system calls than moving the
 *    bytes needs.
 *  - A send that test called done arrives even if nothing more is called here, unless the device
 *    has needsProgress; then progress brings it there.
 *  - Sends and receives of a connection match in the order they were posted. A receive may be
 * larger than its send; test then gives the real size. A send larger than its receive is an error
 * at the receiver. Zero bytes are a message like any other.
 *  - After an error a comm is good only for close; the other comms of the instance are unharmed.
 *    lastError gives the text: what failed, the peer's address, what to do.
 *  - Closing with requests in flight is legal. It ends them, never waits for the peer, and the
 * memory they named is not touched once close has returned.
 *  - No process-wide state of the host program is changed: no signal handlers, no environment. */
#ifndef XCCL_NET_H
#define XCCL_NET_H

#include <stddef.h>
#include <stdint.h>

#include "xccl_types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define XCCL_NET_HANDLE_BYTES 128 /* what travels; a plugin of XCCL uses at most the first 96 */
#define XCCL_NET_MAX_RECVS    8 /* receives in one irecv */
#define XCCL_NET_MAX_REQUESTS 32 /* requests in flight a comm that a plugin must offer */

/* Kinds of memory, a bit set. */
#define XCCL_NET_PTR_HOST   0x1
#define XCCL_NET_PTR_CUDA   0x2
#define XCCL_NET_PTR_DMABUF 0x4

typedef struct xcclNetHandle {
    uint8_t bytes[XCCL_NET_HANDLE_BYTES];
} xcclNetHandle_t;

typedef void *xcclNetContext_t; /* one instance: made by init, one a communicator */
typedef void *xcclNetListenComm_t;
typedef void *xcclNetSendComm_t;
typedef void *xcclNetRecvComm_t;
typedef void *xcclNetConnect_t; /* a connect under way */
typedef void *xcclNetMem_t; /* a registration */
typedef void *xcclNetRequest_t;

typedef enum {
    xcclNetLogError = 0,
    xcclNetLogWarn = 1,
    xcclNetLogInfo = 2,
    xcclNetLogDebug = 3
} xcclNetLogLevel_t;

/* Takes one finished line, without a line end. Any thread. */
typedef void (*xcclNetLogger_t)(xcclNetLogLevel_t level, const char *line);

/* What XCCL tells a new instance. All pointers are good only during init. */
typedef struct xcclNetInit {
    size_t size;
    uint64_t commId; /* the same on every rank of the communicator */
    int32_t rank, nranks; /* of the caller */
    const char *commName; /* for log lines; may be "" */
    xcclNetLogger_t log; /* good until finalize has returned */
    int32_t trafficClass; /* -1: the plugin's own default */
} xcclNetInit_v1;

typedef struct xcclNetProperties {
    size_t size;
    const char *name; /* of the device, e.g. eth0; owned by the instance */
    const char *pciPath; /* in sysfs, or NULL */
    uint64_t guid; /* the same for all devices of one card, else 0 */
    uint32_t speedMbps; /* 0: not known */
    int32_t port;
    float latencyUs; /* 0: not known */
    uint32_t ptrSupport; /* XCCL_NET_PTR_* */
    int32_t maxComms; /* 0: no limit */
    int32_t maxRecvs; /* receives in one irecv, 1..XCCL_NET_MAX_RECVS */
    size_t maxBytes; /* largest message */
    int32_t regIsGlobal; /* a registration serves every comm of the instance */
    /* 1: a send that test called done may still need calls on this side to arrive. The memory of
     * such a send may be reused all the same. XCCL then calls progress as its comment says, also
     * while the user computes. 0: what test called done arrives without further calls. */
    int32_t needsProgress;
} xcclNetProperties_v1;

/* Counters of one device since init. They only grow. */
typedef struct xcclNetStats {
    size_t size;
    uint64_t sendBytes, recvBytes; /* payload */
    uint64_t sendCount, recvCount; /* messages completed */
    uint64_t busyCount; /* isend or irecv that had to be asked again */
} xcclNetStats_v1;

typedef struct xcclNetPlugin {
    size_t size;
    const char *name; /* "socket"; short, lower case, constant */
    uint32_t wireVersion; /* two builds talk when name and wireVersion are equal */
    uint32_t reserved;

    /* Makes an instance. Blocks only as long as looking at local devices takes. On error *ctx is
     * untouched and lastError(NULL, ...) has the text. */
    xcclResult_t (*init)(const xcclNetInit_v1 *init, xcclNetContext_t *ctx);
    /* Frees it. The caller has closed all comms. */
    xcclResult_t (*finalize)(xcclNetContext_t ctx);

    /* How many devices there are, 0 when the plugin cannot be used here. Their order is stable. */
    xcclResult_t (*devices)(xcclNetContext_t ctx, int *count);
    /* Caller sets props->size; no field beyond it is written. */
    xcclResult_t (*properties)(xcclNetContext_t ctx, int dev, xcclNetProperties_v1 *props);

    /* Receiver: opens a listening comm for exactly one connection at a time and writes the whole
     * handle. The handle is plain bytes, may be copied and sent, and is used once. XCCL carries it
     * over encrypted connections only, so it may hold the secret by which accept knows its sender.
     */
    xcclResult_t (*listen)(xcclNetContext_t ctx, int dev, xcclNetHandle_t *handle,
                           xcclNetListenComm_t *comm);
    /* Sender: *state is NULL at the first call and the plugin's from then on. Gives *comm once
     * connected, and *state is NULL again then and after an error. The deadline is the caller's. */
    xcclResult_t (*connect)(xcclNetContext_t ctx, int dev, const xcclNetHandle_t *handle,
                            xcclNetConnect_t *state, xcclNetSendComm_t *comm);
    /* Gives up a connect under way. */
    xcclResult_t (*closeConnect)(xcclNetContext_t ctx, xcclNetConnect_t state);
    /* Receiver: gives *comm once a sender has connected and proved itself. Strangers are dropped
     * without a word to the caller. */
    xcclResult_t (*accept)(xcclNetListenComm_t listen, xcclNetRecvComm_t *comm);

    /* Makes bytes of memory at data known to a send or receive comm; type is one XCCL_NET_PTR_ bit.
     * The caller keeps the memory until deregMr. */
    xcclResult_t (*regMr)(void *comm, void *data, size_t bytes, uint32_t type, xcclNetMem_t *mem);
    xcclResult_t (*deregMr)(void *comm, xcclNetMem_t mem);

    /* Starts sending bytes at data, inside mem; do not write there until test says done.
     * *request NULL: busy, ask again. tag: equal to the receive's, tells grouped receives apart. */
    xcclResult_t (*isend)(xcclNetSendComm_t comm, const void *data, size_t bytes, uint32_t tag,
                          xcclNetMem_t mem, xcclNetRequest_t *request);
    /* Starts count receives as one request; each buffer is inside its mem. */
    xcclResult_t (*irecv)(xcclNetRecvComm_t comm, int count, void *const *data, const size_t *bytes,
                          const uint32_t *tags, const xcclNetMem_t *mems,
                          xcclNetRequest_t *request);
    /* Makes received device memory visible to the device. NULL entry: not needed. *request NULL:
     * nothing to wait for. */
    xcclResult_t (*iflush)(xcclNetRecvComm_t comm, int count, void *const *data,
                           const size_t *bytes, const xcclNetMem_t *mems,
                           xcclNetRequest_t *request);
    /* Moves the request's comm on. *done 1: finished and the request is gone; bytes[i], where bytes
     * is not NULL, is then the size of message i. A send that is done means its memory may be
     * reused. Requests of a comm may be tested in any order. */
    xcclResult_t (*test)(xcclNetRequest_t request, int *done, size_t *bytes);

    xcclResult_t (*closeSend)(xcclNetSendComm_t comm);
    xcclResult_t (*closeRecv)(xcclNetRecvComm_t comm);
    xcclResult_t (*closeListen)(xcclNetListenComm_t comm);

    /* The calling thread's last error text in this plugin, "" if none. Never fails. */
    const char *(*lastError)(xcclNetContext_t ctx);

    /* Optional from here on; NULL is filled by the loader. */
    /* Caller sets stats->size. */
    xcclResult_t (*stats)(xcclNetContext_t ctx, int dev, xcclNetStats_v1 *stats);
    /* A descriptor that polls readable when a request of this comm may have moved; -1: none. Test
     * once after posting before you sleep on it: what had come before does not make it readable
     * again. */
    xcclResult_t (*waitFd)(void *comm, int *fd);
    /* Moves what this instance still owes the wire after test called its sends done, on all of its
     * comms. *pending 1: something is still undelivered, call again; 0: all of it arrives without
     * this side. Called at the end of each operation, while an operation waits, while the user
     * computes (a millisecond after the last turn, for up to 50 us, as long as something is
     * pending), and before the comms are closed, until nothing is pending or a second has passed.
     * Thread: any, but never while another thread is inside isend, irecv, iflush or test of a comm
     * of this instance, or inside this. Same rules as for test: never blocks, allocates or logs.
     * Error: some send that test called done will not arrive; lastError has the text, the instance
     * stays good for close and finalize. NULL entry: nothing is ever pending, as for all plugins
     * whose devices have needsProgress 0. A device with needsProgress 1 needs the entry: without it
     * a send arrives only when this side makes its next call. */
    xcclResult_t (*progress)(xcclNetContext_t ctx, int *pending);
} xcclNetPlugin_v1_t;

#if defined(__GNUC__)
#define XCCL_NET_EXPORT __attribute__((visibility("default")))
#else
#define XCCL_NET_EXPORT
#endif

#ifdef __cplusplus
}
#endif
#endif

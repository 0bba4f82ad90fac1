/* SPDX-License-Identifier: BSD-3-Clause */
/* The contract between XCCL and a network plugin, version 1.
 *
 * A plugin is a shared library libxccl-net-NAME.so that exports one data symbol, xcclNetPlugin_v1,
 * a constant xcclNetPlugin_v1_t. Nothing runs when it is loaded. plugins/README.md leads from an
 * empty folder to a package; examples/net-loopback is the smallest complete plugin; `xccl net
 * check` tests every rule below, `xccl net perf` measures. */
#ifndef XCCL_NET_H
#define XCCL_NET_H

#include <stddef.h>
#include <stdint.h>

#include "xccl_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How it grows: every struct and the table begin with their size in bytes, set by whoever fills
 * them. Fields and entries are only ever appended, none is moved, renamed or given another meaning.
 * A reader looks at no field beyond the other side's size, so an old plugin serves a new XCCL and a
 * new plugin an old one. All bytes of a struct that its maker does not know are zero.
 *
 * The life of a connection, in order:
 *
 *            receiver                                 sender
 *            init, devices, properties                init, devices, properties
 *            listen  > handle, 128 bytes  ----------> (carried by XCCL, encrypted, byte for byte)
 *            accept, again and again                  connect, again and again
 *                    > recv comm                              > send comm
 *            closeListen, when XCCL likes
 *            regMr                                    regMr
 *            irecv > request              <---------- isend > request
 *            test until done                          test until done
 *            (iflush, test, device memory only)
 *            deregMr, closeRecv                       deregMr, closeSend
 *            finalize                                 finalize
 *
 * Rules that hold for every entry:
 *
 *  1. Nothing blocks. What is not ready yet is xcclSuccess and a NULL or zero output; the caller
 *     asks again, and has the deadline. No entry waits for a peer. What takes time may take it in
 *     init and devices (looking at local hardware), regMr (pinning pages) and finalize (1 s).
 *  2. isend, irecv, iflush, test and progress neither allocate, lock, log nor make more system
 *     calls than moving the bytes needs.
 *  3. Threads. An instance may be used by several threads, each comm by one thread at a time:
 *     isend, irecv, iflush, test, listen, connect, accept and the closes of different comms may run
 *     at the same time. regMr and deregMr may come from a second thread while the first one sends
 *     or receives on the same comm. progress never runs beside another entry of its instance, but
 *     for regMr, deregMr, properties, stats and lastError. Which thread calls may change.
 *  4. Outputs are written on success only. After an error *output is as it was, but for *state of
 *     connect.
 *  5. Sends and receives of a connection match in the order in which they were posted. A receive
 *     may be larger than its send; test gives the true size, and what the receive's memory holds
 *     behind that is open. A send larger than its receive is an error at the receiver, and never
 *     writes beyond the receive; what the sender then sees is open. Zero bytes are a message.
 *  6. Tags: within one grouped receive (irecv with count above 1) a send goes to the first free
 *     part with an equal tag, in whatever order the sends come, and the next grouped receive is
 *     not touched before all parts of this one are filled. With count 1 the tags are equal.
 *  7. A comm takes XCCL_NET_MAX_REQUESTS requests in flight, each of up to maxRecvs receives, so a
 *     sender takes XCCL_NET_MAX_REQUESTS times the peer's maxRecvs sends. Beyond that, and when the
 *     wire is full, isend and irecv say "busy": xcclSuccess and a NULL request. Busy may also come
 *     while there is room, but does not stay. iflush is never busy; there are at most as many
 *     flushes in flight as receives.
 *  8. A send that test called done may be reused at once. It arrives even if nothing more is
 *     called here, unless the device has needsProgress; then progress brings it there.
 *  9. After an error a comm is good only for its close; each further call gives the same error
 *     again, but for regMr and deregMr, which may succeed. Requests that were complete before stay
 *     complete. Other comms of the instance, and other instances, are unharmed.
 * 10. Closing with requests in flight is legal, also during a connect or an accept. It ends them
 *     without waiting for the peer; once close has returned, the memory they named is not touched,
 *     and the requests are gone: the caller forgets them. Each close frees even when it returns an
 *     error. What test called done before a close still arrives. (A plugin of NCCL's contract
 *     cannot end requests: its close waits at most 100 ms for them, then leaves the comm open, with
 *     a warning, and gives xcclInProgress: their memory must stay until the process ends.)
 * 11. When a peer process dies or its host answers no more, requests end with xcclRemoteError as
 *     soon as the network shows it. XCCL looks after silent peers itself.
 * 12. The caller copies handles as bytes, may pass a copy at another address each time, and uses a
 *     handle for one connection. The caller keeps the memory of a registration, and of all data of
 *     a request, until deregMr and test.
 * 13. Nothing of the process that belongs to the host program is changed: no signal handlers, no
 *     environment, no working directory, no standard streams, no exit. All descriptors are
 *     close-on-exec. A child of fork that does not exec makes no calls here.
 * 14. A GPU, its driver or a certain network card is needed by nobody but properties' ptrSupport:
 *     without them init succeeds and devices says 0. */

/* What travels from receiver to sender. A plugin that is to serve NCCL as well, by the export shim
 * of XCCL, uses at most the first XCCL_NET_HANDLE_USED bytes and leaves the rest zero. */
#define XCCL_NET_HANDLE_BYTES 128
#define XCCL_NET_HANDLE_USED  96
#define XCCL_NET_MAX_RECVS    8 /* receives in one irecv */
#define XCCL_NET_MAX_REQUESTS 32 /* requests in flight a comm that a plugin must offer */
#define XCCL_NET_MAX_MEMBERS  8 /* devices in a merged one */

/* Kinds of memory, a bit set. */
#define XCCL_NET_PTR_HOST   0x1
#define XCCL_NET_PTR_CUDA   0x2
#define XCCL_NET_PTR_DMABUF 0x4 /* regMrDmaBuf works */

/* A device's flags. MET: the interface of metAddress, which XCCL prefers even to a faster one.
 * UNPROVEN: it may not reach every host, and its connections do not go on to another device; XCCL
 * uses it only if the ranks met by it, if it is the first, or if the user asks for several.
 * ENCRYPTS: its connections do what init's encrypt asked for. */
#define XCCL_NET_DEVICE_MET      0x1
#define XCCL_NET_DEVICE_UNPROVEN 0x2
#define XCCL_NET_DEVICE_ENCRYPTS 0x4
/* Values of encrypt in init. MAC: a byte that was changed, added, left out or moved on the way is
 * an error. FULL: that, and no one on the way can read the bytes. */
#define XCCL_NET_ENCRYPT_NONE 0
#define XCCL_NET_ENCRYPT_MAC  1
#define XCCL_NET_ENCRYPT_FULL 2

/* On entry to irecv in *request: the caller finds out by itself that the data has come (it watches
 * the memory), so the request may be done as soon as its memory can be reused without harm to
 * earlier data. A hint, never a pointer; every other value on entry means nothing. */
#define XCCL_NET_RECV_OPTIONAL ((xcclNetRequest_t)1)

/* The size that test gives for a receive if a plugin of NCCL's contract does not say one. */
#define XCCL_NET_SIZE_UNKNOWN ((size_t)-1)

typedef struct xcclNetHandle {
    uint8_t bytes[XCCL_NET_HANDLE_BYTES];
} xcclNetHandle_t;

/* The plugin's objects. XCCL only passes them back. */
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

/* Takes one finished line, without a line end. Any thread, never inside the entries of rule 2. */
typedef void (*xcclNetLogger_t)(xcclNetLogLevel_t level, const char *line);

struct xcclNetPlugin;

/* For hooks, plugins that wrap another one, as fault and trace do for XCCL_NET_PLUGIN=fault:socket:
 * what is wrapped. */
typedef struct xcclNetInner {
    size_t size;
    const struct xcclNetPlugin *plugin; /* every entry is filled, so none needs a look for NULL */
    const struct xcclNetInner *inner; /* what the wrapped plugin's init gets as its own inner */
} xcclNetInner_v1;

/* What XCCL tells a new instance. All pointers are good only during init, but for log, and for
 * what inner->plugin points to, which are good until finalize has returned. */
typedef struct xcclNetInit {
    size_t size;
    uint64_t commId; /* the same on every rank of the communicator */
    int32_t rank, nranks; /* of the caller; -1 and 0: not known */
    const char *commName; /* for log lines; may be "" */
    xcclNetLogger_t log;
    int32_t trafficClass; /* of this communicator's bytes; -1: the plugin's own default */
    int32_t reserved; /* 0 */
    const xcclNetInner_v1 *inner; /* NULL, unless this plugin was named as a hook */
    /* By which address of this host the ranks have met, as a number and without a port, such as
     * 10.0.0.7 or fe80::1%3; NULL: not known. A plugin over IP begins its devices with that
     * interface, unless the user has named another. */
    const char *metAddress;
    /* XCCL_NET_ENCRYPT_*: protection that the user asks for, of payload and of all else that the
     * plugin sends. A plugin that cannot protect its data may ignore this field: unless the value
     * is NONE, XCCL refuses an instance with a device that lacks XCCL_NET_DEVICE_ENCRYPTS. */
    int32_t encrypt;
    int32_t reserved2; /* 0 */
} xcclNetInit_v1;

/* A device. XCCL zeroes it but for size, and asks once an instance and device, any thread. */
typedef struct xcclNetProperties {
    size_t size;
    const char *name; /* of the device, e.g. eth0; owned by the instance, never NULL */
    const char *pciPath; /* in sysfs, or NULL */
    uint64_t guid; /* the same for all devices of one card, else 0 */
    uint32_t speedMbps; /* 0: not known */
    int32_t port;
    float latencyUs; /* 0: not known */
    uint32_t ptrSupport; /* XCCL_NET_PTR_* */
    int32_t maxComms; /* 0: no limit */
    int32_t maxRecvs; /* receives in one irecv, 1..XCCL_NET_MAX_RECVS */
    size_t maxBytes; /* largest message, at least 64 KiB */
    int32_t regIsGlobal; /* a registration serves every comm of the instance */
    /* 1: a send that test called done may still need calls on this side to arrive. XCCL then calls
     * progress as its comment says, also while the user computes. 0: it arrives without. NCCL has
     * no such call: a plugin that is to serve it too delivers by itself. */
    int32_t needsProgress;
    /* What two ends must have in common besides the plugin's name and wireVersion, e.g. libfabric's
     * provider; owned by the instance; NULL: nothing. Short, without blanks or slashes. */
    const char *provider;
    /* A store of so many aligned bytes is seen whole at the other end, and later bytes of a message
     * are seen after earlier ones: 8 allows flags beside data (LL), 128 lines of them (LL128).
     * 0: nothing is promised before test. */
    uint32_t storeBytes;
    int32_t forceFlush; /* 1: iflush is needed even where the device could do without */
    size_t chunkBytes; /* messages of at least this many bytes reach the full speed; 0: not known */
    int32_t railId, planeId; /* equal numbers reach each other directly; 0: not known */
    int32_t memberCount; /* of a merged device, else 0 */
    int32_t members[XCCL_NET_MAX_MEMBERS]; /* the devices it was made of */
    int32_t sameHost; /* 1: it reaches only peers of this host, in the same network namespace */
    /* 1: isend and irecv take host memory that is registered nowhere, with any mem, or NULL. XCCL
     * then sends and receives in the buffers of a call without a copy, and such a receive is as
     * large as its message should be: the error of a larger send is xcclInvalidUsage. */
    int32_t anyMemory;
    uint64_t flags; /* XCCL_NET_DEVICE_* */
} xcclNetProperties_v1;

/* Counters of one device since init. They only grow. */
typedef struct xcclNetStats {
    size_t size;
    uint64_t sendBytes, recvBytes; /* payload */
    uint64_t sendCount, recvCount; /* messages completed */
    uint64_t busyCount; /* isend or irecv that had to be asked again */
    /* Ways of a connection that failed while others went on with its messages, and such ways that
     * came back. */
    uint64_t failoverCount, recoveryCount;
    uint64_t resendCount; /* messages and pieces that such a way had lost, and that went again */
} xcclNetStats_v1;

/* Why a comm failed. */
typedef enum {
    xcclNetCauseNone = 0, /* it has not failed */
    xcclNetCauseUnknown = 1,
    xcclNetCausePeerGone = 2, /* the peer's process closed or died */
    xcclNetCauseLinkDown = 3, /* the way to it, or the own device */
    xcclNetCauseTimeout = 4, /* the peer's host does not answer */
    xcclNetCauseRemoteAccess = 5, /* the peer refused what was asked of its memory */
    xcclNetCauseProtocol = 6, /* what came is not of this contract, or a send exceeds its receive */
    xcclNetCauseLocal = 7 /* memory, limits or arguments on this side */
} xcclNetCause_t;

typedef struct xcclNetError {
    size_t size;
    int32_t cause; /* xcclNetCause_t */
    int32_t sysErrno; /* 0: none */
    int64_t vendorCode; /* of the library below, 0: none */
    const char *peer; /* address as text; owned by the comm; NULL: not known */
    const char *text; /* as lastError's, kept with the comm; owned by it; never NULL */
} xcclNetError_v1;

/* By which a peer's memory is named in one-sided transfers; plain bytes, carried by XCCL. */
typedef struct xcclNetMemKey {
    uint8_t bytes[64];
} xcclNetMemKey_t;

/* The table. Entries up to lastError are mandatory, but for iflush; the others may be NULL or lie
 * beyond size, and are then filled by the loader as their comments say: callers never test for
 * NULL. */
typedef struct xcclNetPlugin {
    size_t size;
    const char *name; /* "socket"; short, lower case, constant */
    /* Two builds talk when name, wireVersion and provider are equal. 0, for hooks only: the bytes
     * on the wire are those of the wrapped plugin. */
    uint32_t wireVersion;
    uint32_t reserved; /* 0 */

    /* Makes an instance; a process may have many, and those that keep nothing may be one.
     * Allocates. Blocks only as long as looking at local devices takes. Error: nothing is left
     * behind, lastError(NULL) has the text. Any thread; several instances may be made at once. */
    xcclResult_t (*init)(const xcclNetInit_v1 *init, xcclNetContext_t *ctx);
    /* Frees it, with what its connects under way hold. The caller has closed all comms. What has
     * not left yet is given at most 1 s. After an error it is gone all the same. */
    xcclResult_t (*finalize)(xcclNetContext_t ctx);

    /* How many devices there are, 0 when the plugin cannot be used here. Their order is the same on
     * each call and in each process of the host; no device is there twice. */
    xcclResult_t (*devices)(xcclNetContext_t ctx, int *count);
    /* Caller sets props->size and zeroes the rest; no field beyond it is written. Error: no such
     * device. */
    xcclResult_t (*properties)(xcclNetContext_t ctx, int dev, xcclNetProperties_v1 *props);

    /* Receiver: opens a listening comm and writes the whole handle. Allocates; never blocks. One
     * sender comes for each handle. Error: no such device (xcclInvalidArgument), or a limit of the
     * system is met. The handle travels over XCCL's encrypted connections only, so
     * it may hold the secret by which accept knows its sender. */
    xcclResult_t (*listen)(xcclNetContext_t ctx, int dev, xcclNetHandle_t *handle,
                           xcclNetListenComm_t *comm);
    /* Sender: *state is NULL at the first call and the plugin's from then on; it may stay NULL.
     * Gives *comm once connected, NULL before; an error leaves it, and *state is NULL again after
     * either. closeConnect is for a *state that is not NULL. All of the
     * handshake happens here, none of it in the first isend. The deadline is the caller's; there is
     * no order among the connects of an instance. Error: peer refused or not reached. */
    xcclResult_t (*connect)(xcclNetContext_t ctx, int dev, const xcclNetHandle_t *handle,
                            xcclNetConnect_t *state, xcclNetSendComm_t *comm);
    /* Gives up a connect under way and frees its state. */
    xcclResult_t (*closeConnect)(xcclNetContext_t ctx, xcclNetConnect_t state);
    /* Receiver: gives *comm once a sender has connected and proved itself, NULL before. Strangers
     * are dropped without a word to the caller, silent ones after 5 s, and none of them delays the
     * right one. Error: this listening comm is good for its close only. */
    xcclResult_t (*accept)(xcclNetListenComm_t listen, xcclNetRecvComm_t *comm);

    /* Makes bytes of memory at data known to a send or receive comm; type is one XCCL_NET_PTR_ bit
     * that the device has. Data need not be aligned. Ranges may overlap, each registration is
     * deregistered by itself. *mem is not NULL on success. Thread: rule 3. May block as long as the
     * kernel pins pages. Error: xcclSystemError when limits are met, with what to raise; the comm
     * is unharmed. */
    xcclResult_t (*regMr)(void *comm, void *data, size_t bytes, uint32_t type, xcclNetMem_t *mem);
    /* No request in flight names it any more, unless the comm is closed next: what is in flight
     * then ends with that close, and until it has, the plugin may keep the memory pinned. */
    xcclResult_t (*deregMr)(void *comm, xcclNetMem_t mem);

    /* Starts sending bytes at data, inside mem; do not write there until test says done. What is
     * never tested may never leave: it may wait for the comm's next test. *request NULL: busy, ask
     * again with the same arguments or others. Error: rule 9; an argument that is wrong (larger
     * than maxBytes) is xcclInvalidArgument and harms nothing. */
    xcclResult_t (*isend)(xcclNetSendComm_t comm, const void *data, size_t bytes, uint32_t tag,
                          xcclNetMem_t mem, xcclNetRequest_t *request);
    /* Starts count receives, 1 to maxRecvs, as one request; each buffer is inside its mem. The
     * arrays are the caller's and are not looked at after return. */
    xcclResult_t (*irecv)(xcclNetRecvComm_t comm, int count, void *const *data, const size_t *bytes,
                          const uint32_t *tags, const xcclNetMem_t *mems,
                          xcclNetRequest_t *request);
    /* Makes received device memory visible to the device, for buffers of receives that are done.
     * *request NULL: done, there is nothing to wait for. Optional; NULL is filled with that. */
    xcclResult_t (*iflush)(xcclNetRecvComm_t comm, int count, void *const *data,
                           const size_t *bytes, const xcclNetMem_t *mems,
                           xcclNetRequest_t *request);
    /* Moves the request's comm on. *done 1: finished and the request is gone; bytes[i], where bytes
     * is not NULL, is then the size of message i, and bytes[0] what was sent for a send; of an
     * optional receive it may be 0 although data came; of a receive of a plugin of NCCL's contract,
     * which need not say, it may be XCCL_NET_SIZE_UNKNOWN. *done 0: bytes means nothing. Requests
     * of a comm may be tested in any order, by the comm's thread. */
    xcclResult_t (*test)(xcclNetRequest_t request, int *done, size_t *bytes);

    /* Rule 10. */
    xcclResult_t (*closeSend)(xcclNetSendComm_t comm);
    xcclResult_t (*closeRecv)(xcclNetRecvComm_t comm);
    /* Comms that it gave stay. */
    xcclResult_t (*closeListen)(xcclNetListenComm_t comm);

    /* The calling thread's last error text in this plugin: what failed, the peer's address, what to
     * do. "" if none, never NULL. Never fails. Good until the thread's next error in the plugin.
     * ctx NULL: of an init or finalize that failed. */
    const char *(*lastError)(xcclNetContext_t ctx);

    /* ---- optional from here on ---- */

    /* Caller sets stats->size and zeroes the rest. Any thread, beside all other entries. NULL:
     * zeroes. */
    xcclResult_t (*stats)(xcclNetContext_t ctx, int dev, xcclNetStats_v1 *stats);
    /* A descriptor that polls readable when a request of this comm may have moved; -1: none. It is
     * the comm's, the same until its close, and is only ever polled. Busy with nothing in flight
     * need not make it readable. Test once after posting before you sleep on it: what had
     * come before does not make it readable again. The comm's thread. NULL: -1. */
    xcclResult_t (*waitFd)(void *comm, int *fd);
    /* Moves what this instance still owes the wire after test called its sends done, on all of its
     * comms. *pending 1: something is still undelivered, call again; 0: all of it arrives without
     * this side. Called at the end of each operation, while an operation waits, while the user
     * computes (a millisecond after the last turn, for up to 50 us, as long as something is
     * pending), and before the comms are closed, until nothing is pending or a second has passed.
     * Thread: rule 3. Error: some send that test called done will not arrive; lastError has the
     * text, the instance stays good for close and finalize. NULL: nothing is ever pending, as for
     * all plugins whose devices have needsProgress 0. A device with needsProgress 1 needs the
     * entry: without it a send arrives only when this side makes its next call. */
    xcclResult_t (*progress)(xcclNetContext_t ctx, int *pending);
    /* Why comm failed: the first error is kept with the comm, whoever asks. Caller sets
     * error->size and zeroes the rest. The comm's thread. NULL: xcclNetCauseUnknown and no text. */
    xcclResult_t (*errorDetail)(void *comm, xcclNetError_v1 *error);
    /* regMr for a DMA-BUF: bytes at offset of fd, seen by the device at data. The caller keeps fd
     * until return only. NULL: xcclInvalidUsage, and the bit XCCL_NET_PTR_DMABUF is not set. */
    xcclResult_t (*regMrDmaBuf)(void *comm, void *data, size_t bytes, uint32_t type,
                                uint64_t offset, int fd, xcclNetMem_t *mem);
    /* Makes one device out of several: *dev is its number, at the end of the list, until finalize;
     * the same devices in the same order again are the same device. The caller merges before its
     * first listen or connect. The two ends of a connection may have merged different numbers of
     * devices. NULL: xcclInvalidUsage. */
    xcclResult_t (*mergeDevices)(xcclNetContext_t ctx, const int *devs, int count, int *dev);
    /* One-sided: the key by which the sender of this connection may write into mem, a registration
     * of a receive comm. All of exportMr, iput and iputSignal, or none. NULL: xcclInvalidUsage. */
    xcclResult_t (*exportMr)(xcclNetRecvComm_t comm, xcclNetMem_t mem, xcclNetMemKey_t *key);
    /* Writes bytes at data, inside mem, to offset in the peer's memory. A request as isend's: done
     * means that the source may be reused. Puts of a comm land in any order. What would leave the
     * registered range is xcclInvalidArgument here, or an error of the comm. */
    xcclResult_t (*iput)(xcclNetSendComm_t comm, const void *data, size_t bytes, xcclNetMem_t mem,
                         const xcclNetMemKey_t *key, uint64_t offset, xcclNetRequest_t *request);
    /* The same, and when the bytes of this and of all earlier puts of the comm can be seen by the
     * peer, adds value to the aligned 64-bit word at signalOffset of signalKey's memory. The
     * peer reads the word with acquire order. bytes may be 0. */
    xcclResult_t (*iputSignal)(xcclNetSendComm_t comm, const void *data, size_t bytes,
                               xcclNetMem_t mem, const xcclNetMemKey_t *key, uint64_t offset,
                               const xcclNetMemKey_t *signalKey, uint64_t signalOffset,
                               uint64_t value, xcclNetRequest_t *request);
} xcclNetPlugin_v1_t;

/* The symbol, as a plugin defines it:
 *     XCCL_NET_EXPORT const xcclNetPlugin_v1_t xcclNetPlugin_v1 = {.size = sizeof(...), ...}; */
#if defined(__GNUC__)
#define XCCL_NET_EXPORT __attribute__((visibility("default")))
#else
#define XCCL_NET_EXPORT
#endif
extern XCCL_NET_EXPORT const xcclNetPlugin_v1_t xcclNetPlugin_v1;

/* Frozen: these numbers may grow at the end and never change otherwise. */
#if defined(__LP64__) && defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
_Static_assert(sizeof(xcclNetHandle_t) == 128, "handle");
_Static_assert(offsetof(xcclNetInit_v1, inner) == 48, "init");
_Static_assert(offsetof(xcclNetProperties_v1, needsProgress) == 68, "properties");
_Static_assert(offsetof(xcclNetProperties_v1, members) == 108, "properties");
_Static_assert(offsetof(xcclNetProperties_v1, anyMemory) == 144, "properties");
_Static_assert(offsetof(xcclNetInit_v1, metAddress) == 56, "init");
_Static_assert(offsetof(xcclNetInit_v1, encrypt) == 64, "init");
_Static_assert(offsetof(xcclNetProperties_v1, flags) == 152, "properties");
_Static_assert(offsetof(xcclNetStats_v1, busyCount) == 40, "stats");
_Static_assert(offsetof(xcclNetError_v1, text) == 32, "error");
_Static_assert(offsetof(xcclNetPlugin_v1_t, init) == 24, "table");
_Static_assert(offsetof(xcclNetPlugin_v1_t, lastError) == 160, "table");
_Static_assert(offsetof(xcclNetPlugin_v1_t, iputSignal) == 232, "table");
#endif

#ifdef __cplusplus
}
#endif
#endif

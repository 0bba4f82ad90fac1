/* SPDX-License-Identifier: BSD-3-Clause */
/* Lets stock NCCL load a plugin of ours: the two files of the shim, this one and
 * nccl_export_instance.c, are compiled into each net plugin and offer the plugin's xcclNetPlugin_v1
 * as the data symbols ncclNetPlugin_v12 down to v8. They need nothing but headers, so plugins
 * outside of this tree take them as they are.
 *
 *   NCCL has                              the plugin gets
 *   one init a process (v8 to v10)        one instance, and one per traffic class of v10's connect
 *   an init a communicator (v11, v12)     an instance each
 *   128 bytes of handle for two purposes  96 bytes of handle; the last 32 are ours
 *   int sizes in test                     size_t; a size that an int cannot hold is refused
 *   devices, properties without instance  a living instance; names stay until the file is unloaded
 *
 * The last 32 bytes of a handle: listen zeroes them; a connect under way keeps the address of its
 * entry and its number there. The address is only ever compared with the entries of the instance,
 * so that a handle from elsewhere, or a damaged one, is refused and never followed. Connects that
 * NCCL gives up are closed with their instance: in finalize, or (v8 to v10) when the file is
 * unloaded and no comm is open. A process that ends with open comms frees nothing: threads of NCCL
 * may still be in here.
 *
 * What a plugin says of an error goes to NCCL's log as one warning. A device with needsProgress
 * gets no calls of progress, for NCCL has none.
 *
 * Tables are constants, so what differs between plugins is defined when this file is compiled:
 * XCCL_EXPORT_NAME is the plugin's name, a text; XCCL_EXPORT_DMABUF and XCCL_EXPORT_MERGE say that
 * it has regMrDmaBuf and mergeDevices.
 *
 * Thread: as the contract says. One mutex guards the lists, and is taken by the calls that make or
 * end something and by failing ones; isend, irecv, iflush and test take none. */
#include "nccl_export_int.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define SIZE_UNWRITTEN SIZE_MAX

/* How a connect under way is kept behind the plugin's part of a handle. */
struct handle_tail {
    uint64_t address, number; /* 0 and 0: not begun */
    uint64_t zero[2];
};
static_assert(XCCL_NET_HANDLE_USED + sizeof(struct handle_tail) == NCCL_NET_HANDLE_BYTES, "handle");

/* ---- connections ---- */

static uint64_t connect_number; /* guarded by export_lock */

static int listen_in(struct export_instance *instance, int dev, void *handle, void **listen_comm)
{
    static const struct handle_tail empty;
    xcclNetListenComm_t comm = NULL;
    xcclNetHandle_t ours;
    xcclResult_t rc;

    memset(&ours, 0, sizeof(ours));
    rc = PLUGIN->listen(instance->ctx, dev, &ours, &comm);
    if (rc != xcclSuccess)
        return export_failed(rc);
    if (memcmp(ours.bytes + XCCL_NET_HANDLE_USED, &empty, sizeof(empty)) != 0) {
        (void)PLUGIN->closeListen(comm);
        return export_refused(xcclInternalError, "the plugin's handle is longer than NCCL allows");
    }
    memcpy(handle, &ours, sizeof(ours));
    export_comm_opened();
    *listen_comm = comm;
    return xcclSuccess;
}

static int listen_v8(int dev, void *handle, void **listen_comm)
{
    int rc;
    struct export_instance *instance = export_shared(NO_TRAFFIC_CLASS, &rc);

    return instance ? listen_in(instance, dev, handle, listen_comm) : rc;
}

static int listen_v11(void *ctx, int dev, void *handle, void **listen_comm)
{
    return listen_in(ctx, dev, handle, listen_comm);
}

/* The entry that a handle names, a new one for a fresh handle. NULL: *rc_out and *why_out say why.
 */
static struct connecting *connecting_find(struct export_instance *instance,
                                          const struct handle_tail *tail, const char **why_out,
                                          xcclResult_t *rc_out)
{
    struct connecting *entry = NULL;

    pthread_mutex_lock(&export_lock);
    if (tail->address || tail->number) {
        for (entry = instance->connects; entry; entry = entry->next) {
            if ((uint64_t)(uintptr_t)entry == tail->address && entry->number == tail->number)
                break;
        }
        *rc_out = xcclInvalidArgument;
        *why_out = "a connect handle is damaged, or belongs to another connect";
    } else {
        entry = calloc(1, sizeof(*entry));
        *rc_out = xcclSystemError;
        *why_out = "no memory for a connect";
        if (entry) {
            entry->number = ++connect_number;
            entry->next = instance->connects;
            instance->connects = entry;
        }
    }
    pthread_mutex_unlock(&export_lock);
    return entry;
}

static void connecting_remove(struct export_instance *instance, struct connecting *entry)
{
    pthread_mutex_lock(&export_lock);
    for (struct connecting **at = &instance->connects; *at; at = &(*at)->next) {
        if (*at == entry) {
            *at = entry->next;
            break;
        }
    }
    pthread_mutex_unlock(&export_lock);
    free(entry);
}

static int connect_in(struct export_instance *instance, int dev, void *handle, void **send_comm,
                      void **device)
{
    struct handle_tail tail;
    xcclNetSendComm_t comm = NULL;
    xcclResult_t rc = xcclSuccess;
    struct connecting *entry;
    xcclNetHandle_t ours;
    const char *why = "";

    *send_comm = NULL;
    if (device)
        *device = NULL;
    memset(&ours, 0, sizeof(ours));
    memcpy(&ours, handle, XCCL_NET_HANDLE_USED);
    memcpy(&tail, (char *)handle + XCCL_NET_HANDLE_USED, sizeof(tail));
    entry = connecting_find(instance, &tail, &why, &rc);
    if (!entry)
        return export_refused(rc, why);
    rc = PLUGIN->connect(instance->ctx, dev, &ours, &entry->state, &comm);
    tail = (struct handle_tail){(uintptr_t)entry, entry->number, {0, 0}};
    if (rc != xcclSuccess || comm) {
        /* The plugin has freed its state; the handle is as it came. */
        connecting_remove(instance, entry);
        memset(&tail, 0, sizeof(tail));
    }
    memcpy((char *)handle + XCCL_NET_HANDLE_USED, &tail, sizeof(tail));
    if (rc != xcclSuccess)
        return export_failed(rc);
    if (comm)
        export_comm_opened();
    *send_comm = comm;
    return xcclSuccess;
}

static int connect_class(int traffic_class, int dev, void *handle, void **send_comm, void **device)
{
    int rc;
    struct export_instance *instance = export_shared(traffic_class, &rc);

    return instance ? connect_in(instance, dev, handle, send_comm, device) : rc;
}

static int connect_v8(int dev, void *handle, void **send_comm, void **device)
{
    return connect_class(NO_TRAFFIC_CLASS, dev, handle, send_comm, device);
}

static int connect_v10(int dev, struct nccl_net_config *config, void *handle, void **send_comm,
                       void **device)
{
    return connect_class(config ? config->traffic_class : NO_TRAFFIC_CLASS, dev, handle, send_comm,
                         device);
}

static int connect_v11(void *ctx, int dev, void *handle, void **send_comm, void **device)
{
    return connect_in(ctx, dev, handle, send_comm, device);
}

static int accept_comm(void *listen_comm, void **recv_comm, void **device)
{
    xcclNetRecvComm_t comm = NULL;
    xcclResult_t rc;

    *recv_comm = NULL;
    if (device)
        *device = NULL;
    rc = PLUGIN->accept(listen_comm, &comm);
    if (rc != xcclSuccess)
        return export_failed(rc);
    if (comm)
        export_comm_opened();
    *recv_comm = comm;
    return xcclSuccess;
}

static int close_send(void *comm)
{
    xcclResult_t rc = PLUGIN->closeSend(comm);

    export_comm_closed();
    return export_result(rc);
}

static int close_recv(void *comm)
{
    xcclResult_t rc = PLUGIN->closeRecv(comm);

    export_comm_closed();
    return export_result(rc);
}

static int close_listen(void *comm)
{
    xcclResult_t rc = PLUGIN->closeListen(comm);

    export_comm_closed();
    return export_result(rc);
}

/* ---- memory ---- */

static int reg_mr(void *comm, void *data, size_t size, int type, void **mem)
{
    return export_result(PLUGIN->regMr(comm, data, size, (uint32_t)type, mem));
}

static int dereg_mr(void *comm, void *mem)
{
    return export_result(PLUGIN->deregMr(comm, mem));
}

#ifdef XCCL_EXPORT_DMABUF
static int reg_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                      void **mem)
{
    if (!HAS(regMrDmaBuf))
        return export_refused(xcclInvalidUsage, "the plugin cannot register a DMA-BUF");
    return export_result(PLUGIN->regMrDmaBuf(comm, data, size, (uint32_t)type, offset, fd, mem));
}
#else
#define reg_dmabuf NULL
#endif

/* ---- messages ---- */

static int isend_v9(void *send_comm, void *data, size_t size, int tag, void *mem, void **request)
{
    xcclNetRequest_t ours = NULL;
    xcclResult_t rc;

    if (size > INT_MAX)
        return export_refused(xcclInvalidArgument,
                              "a message of more than 2 GiB: test could not report its size");
    rc = PLUGIN->isend(send_comm, data, size, (uint32_t)tag, mem, &ours);
    if (rc != xcclSuccess)
        return export_failed(rc);
    *request = ours;
    return xcclSuccess;
}

static int isend_v8(void *send_comm, void *data, int size, int tag, void *mem, void **request)
{
    /* A negative size is more than an int holds. */
    return isend_v9(send_comm, data, (size_t)(ptrdiff_t)size, tag, mem, request);
}

static int isend_v10(void *send_comm, void *data, size_t size, int tag, void *mem, void *profile,
                     void **request)
{
    (void)profile;
    return isend_v9(send_comm, data, size, tag, mem, request);
}

/* *request on entry is a hint, compared and never followed. */
static int irecv_any(void *recv_comm, int n, void **data, const size_t *sizes, const int *tags,
                     void **mems, void **request)
{
    uint32_t ours_tags[XCCL_NET_MAX_RECVS];
    xcclNetRequest_t ours = *request == XCCL_NET_RECV_OPTIONAL ? XCCL_NET_RECV_OPTIONAL : NULL;
    xcclResult_t rc;

    if (n < 1 || n > XCCL_NET_MAX_RECVS)
        return export_refused(xcclInvalidArgument, "a receive has no parts, or too many");
    for (int i = 0; i < n; i++)
        ours_tags[i] = (uint32_t)tags[i];
    rc = PLUGIN->irecv(recv_comm, n, data, sizes, ours_tags, mems, &ours);
    if (rc != xcclSuccess)
        return export_failed(rc);
    *request = ours;
    return xcclSuccess;
}

/* 0: a size is negative. */
static int sizes_widen(const int *sizes, int n, size_t sizes_out[XCCL_NET_MAX_RECVS])
{
    for (int i = 0; i < n && i < XCCL_NET_MAX_RECVS; i++) {
        if (sizes[i] < 0)
            return 0;
        sizes_out[i] = (size_t)sizes[i];
    }
    return 1;
}

static int irecv_v8(void *recv_comm, int n, void **data, int *sizes, int *tags, void **mems,
                    void **request)
{
    size_t wide[XCCL_NET_MAX_RECVS];
    void *ours = NULL; /* version 8 has no hint */
    int rc;

    if (!sizes_widen(sizes, n, wide))
        return export_refused(xcclInvalidArgument, "a receive has a negative size");
    rc = irecv_any(recv_comm, n, data, wide, tags, mems, &ours);
    if (rc == xcclSuccess)
        *request = ours;
    return rc;
}

static int irecv_v9(void *recv_comm, int n, void **data, size_t *sizes, int *tags, void **mems,
                    void **request)
{
    return irecv_any(recv_comm, n, data, sizes, tags, mems, request);
}

/* tidy: allow parameters because NCCL chose them */
static int irecv_v10(void *recv_comm, int n, void **data, size_t *sizes, int *tags, void **mems,
                     void **profiles, void **request)
{
    (void)profiles;
    return irecv_any(recv_comm, n, data, sizes, tags, mems, request);
}

static int iflush(void *recv_comm, int n, void **data, int *sizes, void **mems, void **request)
{
    size_t wide[XCCL_NET_MAX_RECVS];
    xcclNetRequest_t ours = NULL;
    xcclResult_t rc = xcclSuccess;

    if (n < 1 || n > XCCL_NET_MAX_RECVS || !sizes_widen(sizes, n, wide))
        return export_refused(xcclInvalidArgument,
                              "a flush has no parts, too many, or one of negative size");
    if (PLUGIN->iflush)
        rc = PLUGIN->iflush(recv_comm, n, data, wide, mems, &ours);
    if (rc != xcclSuccess)
        return export_failed(rc);
    *request = ours;
    return xcclSuccess;
}

/* How many sizes there are is the plugin's knowledge: it writes as many as the request has. */
static int test(void *request, int *done, int *sizes)
{
    size_t wide[XCCL_NET_MAX_RECVS];
    xcclResult_t rc;

    for (int i = 0; i < XCCL_NET_MAX_RECVS; i++)
        wide[i] = SIZE_UNWRITTEN;
    rc = PLUGIN->test(request, done, sizes ? wide : NULL);
    if (rc != xcclSuccess)
        return export_failed(rc);
    if (!sizes || !*done)
        return xcclSuccess;
    for (int i = 0; i < XCCL_NET_MAX_RECVS && wide[i] != SIZE_UNWRITTEN; i++) {
        if (wide[i] > INT_MAX)
            return export_refused(xcclInternalError,
                                  "a message arrived that is too large to report its size to NCCL");
        sizes[i] = (int)wide[i];
    }
    return xcclSuccess;
}

/* ---- the tables; getDeviceMr, irecvConsumed and setNetAttr stay NULL ---- */

/* What all versions have alike. */
#define ENTRIES_OF_ALL                                                                             \
    .name = XCCL_EXPORT_NAME, .devices = export_devices, .accept = accept_comm, .reg_mr = reg_mr,  \
    .reg_mr_dmabuf = reg_dmabuf, .dereg_mr = dereg_mr, .iflush = iflush, .test = test,             \
    .close_send = close_send, .close_recv = close_recv, .close_listen = close_listen
#define ENTRIES_FROM_V11                                                                           \
    .init = export_init_v11, .listen = listen_v11, .connect = connect_v11, .isend = isend_v10,     \
    .irecv = irecv_v10, .finalize = export_finalize_v11

extern XCCL_NET_EXPORT const struct nccl_net_v8 ncclNetPlugin_v8;
extern XCCL_NET_EXPORT const struct nccl_net_v9 ncclNetPlugin_v9;
extern XCCL_NET_EXPORT const struct nccl_net_v10 ncclNetPlugin_v10;
extern XCCL_NET_EXPORT const struct nccl_net_v11 ncclNetPlugin_v11;
extern XCCL_NET_EXPORT const struct nccl_net_v11 ncclNetPlugin_v12;

const struct nccl_net_v8 ncclNetPlugin_v8 = {
    ENTRIES_OF_ALL,      .init = export_init_v8, .get_properties = export_properties_v8,
    .listen = listen_v8, .connect = connect_v8,  .isend = isend_v8,
    .irecv = irecv_v8,
};
const struct nccl_net_v9 ncclNetPlugin_v9 = {
    ENTRIES_OF_ALL,
    .init = export_init_v8,
    .get_properties = export_properties_v9,
    .listen = listen_v8,
    .connect = connect_v8,
    .isend = isend_v9,
    .irecv = irecv_v9,
    .make_vdevice = export_vdevice_v9,
};
const struct nccl_net_v10 ncclNetPlugin_v10 = {
    ENTRIES_OF_ALL,
    .init = export_init_v10,
    .get_properties = export_properties_v9,
    .listen = listen_v8,
    .connect = connect_v10,
    .isend = isend_v10,
    .irecv = irecv_v10,
    .make_vdevice = export_vdevice_v9,
};
const struct nccl_net_v11 ncclNetPlugin_v11 = {
    ENTRIES_OF_ALL,
    ENTRIES_FROM_V11,
    .get_properties = export_properties_v11,
    .make_vdevice = export_vdevice_v11,
};
const struct nccl_net_v11 ncclNetPlugin_v12 = {
    ENTRIES_OF_ALL,
    ENTRIES_FROM_V11,
    .get_properties = export_properties_v12,
    .make_vdevice = export_vdevice_v12,
};

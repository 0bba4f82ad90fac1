/* SPDX-License-Identifier: BSD-3-Clause */
/* The binary layout of NCCL's network plugins, contract versions 6 to 12: what the loader's
 * adapters read and what the export shim of our plugins offers. Only facts: order, width and
 * meaning of members, pinned below to the sizes that NCCL's headers have on 64-bit Linux. A data
 * symbol ncclNetPlugin_vN is the table itself. Every function returns a result code whose numbers
 * equal xcclResult_t's.
 *
 * Rules of that contract which no layout shows: listen, connect and accept never block, success
 * with a NULL comm means "again"; a plugin may keep the state of a connect inside the 128 bytes of
 * the handle, so each retry passes the same memory; success with a NULL request means "again";
 * sizes given by test count only when done; from version 9 on *request on entry to irecv may be 1,
 * a hint. Versions 6 to 10 have no instances: one init a process. */
#ifndef XCCL_BASE_NCCL_NET_ABI_H
#define XCCL_BASE_NCCL_NET_ABI_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define NCCL_NET_OLDEST       6
#define NCCL_NET_NEWEST       12
#define NCCL_NET_HANDLE_BYTES 128
#define NCCL_NET_REQUESTS     32 /* a comm; 8 before version 7 */
#define NCCL_NET_REQUESTS_V6  8
#define NCCL_NET_BYTES_MAX    (1ull << 30) /* versions whose properties do not tell */
#define NCCL_NET_UNDEFINED_ID (-1) /* of a rail or plane */

#define NCCL_PTR_HOST   1
#define NCCL_PTR_CUDA   2
#define NCCL_PTR_DMABUF 4

enum nccl_log_level {
    NCCL_LOG_NONE = 0,
    NCCL_LOG_VERSION = 1,
    NCCL_LOG_WARN = 2,
    NCCL_LOG_INFO = 3,
    NCCL_LOG_ABORT = 4,
    NCCL_LOG_TRACE = 5
};
#define NCCL_LOG_NET 0x10ul /* the subsystem */

typedef void (*nccl_logger)(int level, unsigned long flags, const char *file, int line,
                            const char *fmt, ...);
/* Versions 10 to 12 hand it to init; may be called at any time. */
typedef int (*nccl_profiler)(void **event, int type, void *parent, int64_t plugin_id, void *data);

struct nccl_net_config { /* of version 10's connect and of init from version 11 on */
    int traffic_class; /* -1: the plugin's own */
};

struct nccl_net_attr_side {
    int32_t max_peers, min_peers, max_flows, min_flows; /* -1: undefined */
};
struct nccl_net_attr {
    struct nccl_net_attr_side send, recv;
    uint32_t op, algo, proto;
};

/* --- properties --- */

struct nccl_net_props_v6 {
    char *name;
    char *pci_path;
    uint64_t guid;
    int ptr_support;
    int speed; /* Mbit/s */
    int port;
    float latency;
    int max_comms;
    int max_recvs;
};

struct nccl_net_props_v7 {
    char *name;
    char *pci_path;
    uint64_t guid;
    int ptr_support;
    int speed;
    int port;
    float latency;
    int max_comms;
    int max_recvs;
    int device_type, device_version; /* 0: the host moves the data */
};

struct nccl_net_props_v8 {
    char *name;
    char *pci_path;
    uint64_t guid;
    int ptr_support;
    int reg_is_global;
    int speed;
    int port;
    float latency;
    int max_comms;
    int max_recvs;
    int device_type, device_version;
};

/* What versions 9 to 12 begin with. */
#define NCCL_NET_PROPS_V9_HEAD                                                                     \
    char *name;                                                                                    \
    char *pci_path;                                                                                \
    uint64_t guid;                                                                                 \
    int ptr_support;                                                                               \
    int reg_is_global;                                                                             \
    int force_flush;                                                                               \
    int speed;                                                                                     \
    int port;                                                                                      \
    float latency;                                                                                 \
    int max_comms;                                                                                 \
    int max_recvs;                                                                                 \
    int device_type, device_version

struct nccl_net_vprops_v9 {
    int ndevs;
    int devs[4];
};
struct nccl_net_vprops_v12 {
    int ndevs;
    int devs[8];
};

struct nccl_net_props_v9 { /* and version 10 */
    NCCL_NET_PROPS_V9_HEAD;
    struct nccl_net_vprops_v9 members;
    size_t max_p2p_bytes;
    size_t max_coll_bytes;
};

struct nccl_net_props_v11 {
    NCCL_NET_PROPS_V9_HEAD;
    struct nccl_net_vprops_v9 members;
    size_t max_p2p_bytes;
    size_t max_coll_bytes;
    int max_multi_request_size;
};

struct nccl_net_props_v12 {
    NCCL_NET_PROPS_V9_HEAD;
    struct nccl_net_vprops_v12 members;
    size_t max_p2p_bytes;
    size_t max_coll_bytes;
    int max_multi_request_size;
    int16_t rail_id, plane_id;
};

/* --- tables. sizes of irecv: int to version 8, size_t from 9. Those of iflush and test: int to
 * this day. device: an offload handle, NULL on return when there is none. --- */

struct nccl_net_v6 {
    const char *name;
    int (*init)(nccl_logger log);
    int (*devices)(int *ndev);
    int (*get_properties)(int dev, struct nccl_net_props_v6 *props);
    int (*listen)(int dev, void *handle, void **listen_comm);
    int (*connect)(int dev, void *handle, void **send_comm);
    int (*accept)(void *listen_comm, void **recv_comm);
    int (*reg_mr)(void *comm, void *data, int size, int type, void **mem);
    int (*reg_mr_dmabuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                         void **mem);
    int (*dereg_mr)(void *comm, void *mem);
    int (*isend)(void *send_comm, void *data, int size, int tag, void *mem, void **request);
    int (*irecv)(void *recv_comm, int n, void **data, int *sizes, int *tags, void **mems,
                 void **request);
    int (*iflush)(void *recv_comm, int n, void **data, int *sizes, void **mems, void **request);
    int (*test)(void *request, int *done, int *sizes);
    int (*close_send)(void *comm);
    int (*close_recv)(void *comm);
    int (*close_listen)(void *comm);
};

struct nccl_net_v7 {
    const char *name;
    int (*init)(nccl_logger log);
    int (*devices)(int *ndev);
    int (*get_properties)(int dev, struct nccl_net_props_v7 *props);
    int (*listen)(int dev, void *handle, void **listen_comm);
    int (*connect)(int dev, void *handle, void **send_comm, void **device);
    int (*accept)(void *listen_comm, void **recv_comm, void **device);
    int (*reg_mr)(void *comm, void *data, int size, int type, void **mem);
    int (*reg_mr_dmabuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                         void **mem);
    int (*dereg_mr)(void *comm, void *mem);
    int (*isend)(void *send_comm, void *data, int size, int tag, void *mem, void **request);
    int (*irecv)(void *recv_comm, int n, void **data, int *sizes, int *tags, void **mems,
                 void **request);
    int (*iflush)(void *recv_comm, int n, void **data, int *sizes, void **mems, void **request);
    int (*test)(void *request, int *done, int *sizes);
    int (*close_send)(void *comm);
    int (*close_recv)(void *comm);
    int (*close_listen)(void *comm);
    int (*get_device_mr)(void *comm, void *mem, void **device_mem);
    int (*irecv_consumed)(void *recv_comm, int n, void *request);
};

struct nccl_net_v8 {
    const char *name;
    int (*init)(nccl_logger log);
    int (*devices)(int *ndev);
    int (*get_properties)(int dev, struct nccl_net_props_v8 *props);
    int (*listen)(int dev, void *handle, void **listen_comm);
    int (*connect)(int dev, void *handle, void **send_comm, void **device);
    int (*accept)(void *listen_comm, void **recv_comm, void **device);
    int (*reg_mr)(void *comm, void *data, size_t size, int type, void **mem);
    int (*reg_mr_dmabuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                         void **mem);
    int (*dereg_mr)(void *comm, void *mem);
    int (*isend)(void *send_comm, void *data, int size, int tag, void *mem, void **request);
    int (*irecv)(void *recv_comm, int n, void **data, int *sizes, int *tags, void **mems,
                 void **request);
    int (*iflush)(void *recv_comm, int n, void **data, int *sizes, void **mems, void **request);
    int (*test)(void *request, int *done, int *sizes);
    int (*close_send)(void *comm);
    int (*close_recv)(void *comm);
    int (*close_listen)(void *comm);
    int (*get_device_mr)(void *comm, void *mem, void **device_mem);
    int (*irecv_consumed)(void *recv_comm, int n, void *request);
};

struct nccl_net_v9 {
    const char *name;
    int (*init)(nccl_logger log);
    int (*devices)(int *ndev);
    int (*get_properties)(int dev, struct nccl_net_props_v9 *props);
    int (*listen)(int dev, void *handle, void **listen_comm);
    int (*connect)(int dev, void *handle, void **send_comm, void **device);
    int (*accept)(void *listen_comm, void **recv_comm, void **device);
    int (*reg_mr)(void *comm, void *data, size_t size, int type, void **mem);
    int (*reg_mr_dmabuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                         void **mem);
    int (*dereg_mr)(void *comm, void *mem);
    int (*isend)(void *send_comm, void *data, size_t size, int tag, void *mem, void **request);
    int (*irecv)(void *recv_comm, int n, void **data, size_t *sizes, int *tags, void **mems,
                 void **request);
    int (*iflush)(void *recv_comm, int n, void **data, int *sizes, void **mems, void **request);
    int (*test)(void *request, int *done, int *sizes);
    int (*close_send)(void *comm);
    int (*close_recv)(void *comm);
    int (*close_listen)(void *comm);
    int (*get_device_mr)(void *comm, void *mem, void **device_mem);
    int (*irecv_consumed)(void *recv_comm, int n, void *request);
    int (*make_vdevice)(int *dev, struct nccl_net_vprops_v9 *members);
};

struct nccl_net_v10 {
    const char *name;
    int (*init)(nccl_logger log, nccl_profiler profiler);
    int (*devices)(int *ndev);
    int (*get_properties)(int dev, struct nccl_net_props_v9 *props);
    int (*listen)(int dev, void *handle, void **listen_comm);
    int (*connect)(int dev, struct nccl_net_config *config, void *handle, void **send_comm,
                   void **device);
    int (*accept)(void *listen_comm, void **recv_comm, void **device);
    int (*reg_mr)(void *comm, void *data, size_t size, int type, void **mem);
    int (*reg_mr_dmabuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                         void **mem);
    int (*dereg_mr)(void *comm, void *mem);
    int (*isend)(void *send_comm, void *data, size_t size, int tag, void *mem, void *profile,
                 void **request);
    int (*irecv)(void *recv_comm, int n, void **data, size_t *sizes, int *tags, void **mems,
                 void **profiles, void **request);
    int (*iflush)(void *recv_comm, int n, void **data, int *sizes, void **mems, void **request);
    int (*test)(void *request, int *done, int *sizes);
    int (*close_send)(void *comm);
    int (*close_recv)(void *comm);
    int (*close_listen)(void *comm);
    int (*get_device_mr)(void *comm, void *mem, void **device_mem);
    int (*irecv_consumed)(void *recv_comm, int n, void *request);
    int (*make_vdevice)(int *dev, struct nccl_net_vprops_v9 *members);
};

/* Version 12 is the same table: only what props and members point to differs, struct
 * nccl_net_props_v11 and _vprops_v9 in 11, _props_v12 and _vprops_v12 in 12. */
struct nccl_net_v11 {
    const char *name;
    int (*init)(void **ctx, uint64_t comm_id, struct nccl_net_config *config, nccl_logger log,
                nccl_profiler profiler);
    int (*devices)(int *ndev);
    int (*get_properties)(int dev, void *props);
    int (*listen)(void *ctx, int dev, void *handle, void **listen_comm);
    int (*connect)(void *ctx, int dev, void *handle, void **send_comm, void **device);
    int (*accept)(void *listen_comm, void **recv_comm, void **device);
    int (*reg_mr)(void *comm, void *data, size_t size, int type, void **mem);
    int (*reg_mr_dmabuf)(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                         void **mem);
    int (*dereg_mr)(void *comm, void *mem);
    int (*isend)(void *send_comm, void *data, size_t size, int tag, void *mem, void *profile,
                 void **request);
    int (*irecv)(void *recv_comm, int n, void **data, size_t *sizes, int *tags, void **mems,
                 void **profiles, void **request);
    int (*iflush)(void *recv_comm, int n, void **data, int *sizes, void **mems, void **request);
    int (*test)(void *request, int *done, int *sizes);
    int (*close_send)(void *comm);
    int (*close_recv)(void *comm);
    int (*close_listen)(void *comm);
    int (*get_device_mr)(void *comm, void *mem, void **device_mem);
    int (*irecv_consumed)(void *recv_comm, int n, void *request);
    int (*make_vdevice)(int *dev, void *members);
    int (*finalize)(void *ctx);
    int (*set_net_attr)(void *ctx, struct nccl_net_attr *attr);
};

/* Sizes and offsets measured on x86-64 with NCCL's own headers. */
#if defined(__LP64__)
static_assert(sizeof(struct nccl_net_props_v6) == 48, "v6");
static_assert(offsetof(struct nccl_net_props_v6, ptr_support) == 24, "v6");
static_assert(offsetof(struct nccl_net_props_v6, max_recvs) == 44, "v6");
static_assert(sizeof(struct nccl_net_props_v7) == 56, "v7");
static_assert(sizeof(struct nccl_net_props_v8) == 64, "v8");
static_assert(sizeof(struct nccl_net_props_v9) == 104, "v9, v10");
static_assert(offsetof(struct nccl_net_props_v9, members) == 64, "v9, v10");
static_assert(offsetof(struct nccl_net_props_v9, max_p2p_bytes) == 88, "v9, v10");
static_assert(offsetof(struct nccl_net_props_v9, max_coll_bytes) == 96, "v9, v10");
static_assert(sizeof(struct nccl_net_props_v11) == 112, "v11");
static_assert(offsetof(struct nccl_net_props_v11, max_multi_request_size) == 104, "v11");
static_assert(sizeof(struct nccl_net_props_v12) == 128, "v12");
static_assert(offsetof(struct nccl_net_props_v12, max_p2p_bytes) == 104, "v12");
static_assert(offsetof(struct nccl_net_props_v12, max_multi_request_size) == 120, "v12");
static_assert(offsetof(struct nccl_net_props_v12, rail_id) == 124, "v12");
static_assert(sizeof(struct nccl_net_attr) == 44, "v11, v12");
static_assert(sizeof(struct nccl_net_v6) == 136, "v6");
static_assert(sizeof(struct nccl_net_v7) == 152, "v7");
static_assert(sizeof(struct nccl_net_v8) == 152, "v8");
static_assert(sizeof(struct nccl_net_v9) == 160, "v9");
static_assert(sizeof(struct nccl_net_v10) == 160, "v10");
static_assert(sizeof(struct nccl_net_v11) == 176, "v11, v12");
#endif

#endif

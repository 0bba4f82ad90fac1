/* SPDX-License-Identifier: BSD-3-Clause */
/* Instances and devices. From version 11 on an instance is the plugin's own; before, a plugin is
 * initialised once a process and all its instances share it: known by the address of its table,
 * which stays, since the loader never unloads a plugin of NCCL's.
 *
 * NCCL looks at a table's entries only after init, and nccl-rdma-sharp-plugins fill them there. So
 * until then only its name and init are looked at here. One thread at a time is in init, devices
 * and finalize of any plugin, as NCCL holds a lock there.
 *
 * Devices are looked at once, in init. Those that move data by code on a GPU (device type not 0)
 * are left out with a line, so our numbers may differ from the plugin's. Thread: any. */
#include "plugin/nccl_adapter_int.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/net_entry.h"

#define TERA_BYTES ((size_t)1 << 40)

/* Tables of plugins without instances that have been initialised. A process has a few. */
#define SHARED_MAX 64
static const void *shared_tables[SHARED_MAX];
static int shared_count;
static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER; /* over those too */

void nccl_tables_lock(void)
{
    pthread_mutex_lock(&init_lock);
}

void nccl_tables_unlock(void)
{
    pthread_mutex_unlock(&init_lock);
}

static int shared_is_known(const void *table)
{
    for (int i = 0; i < shared_count; i++) {
        if (shared_tables[i] == table)
            return 1;
    }
    return 0;
}

/* With init_lock. */
static xcclResult_t shared_init(struct nccl_instance *instance)
{
    int result;

    if (shared_is_known(instance->table))
        return xcclSuccess;
    if (shared_count == SHARED_MAX)
        return nccl_refuse(instance, "init", xcclSystemError,
                           "this process already uses %d plugins with old contracts", SHARED_MAX);
    result = instance->ops->init(instance);
    if (result)
        return nccl_failed(instance, "init", result);
    shared_tables[shared_count++] = instance->table;
    return xcclSuccess;
}

/* ---- devices ---- */

static size_t max_bytes(const struct nccl_instance *instance, size_t told)
{
    size_t bytes = NCCL_NET_BYTES_MAX;

    if (instance->ops->version >= 9 && told > 0)
        bytes = told < TERA_BYTES ? told : TERA_BYTES;
    return bytes < NCCL_BYTES_LIMIT ? bytes : NCCL_BYTES_LIMIT;
}

/* Our number of the plugin's device, -1: left out. */
static int device_find(const struct nccl_instance *instance, int inner)
{
    for (int i = 0; i < instance->device_count; i++) {
        if (instance->devices[i].inner == inner)
            return i;
    }
    return -1;
}

static int clamp(int value, int low, int high)
{
    if (value < low)
        return low;
    return value > high ? high : value;
}

static void device_translate(const struct nccl_instance *instance,
                             const struct nccl_net_props_v12 *told, xcclNetProperties_v1 *props)
{
    uint32_t known = XCCL_NET_PTR_HOST | XCCL_NET_PTR_CUDA;
    int members = clamp(told->members.ndevs, 0, XCCL_NET_MAX_MEMBERS);

    if (instance->common.reg_mr_dmabuf)
        known |= XCCL_NET_PTR_DMABUF;
    props->guid = told->guid;
    props->speedMbps = told->speed > 0 ? (uint32_t)told->speed : 0;
    props->port = told->port;
    props->latencyUs = told->latency > 0 ? told->latency : 0;
    props->ptrSupport = (uint32_t)told->ptr_support & known;
    props->maxComms = told->max_comms > 0 ? told->max_comms : 0;
    props->maxRecvs = clamp(told->max_recvs, 1, XCCL_NET_MAX_RECVS);
    props->maxBytes = max_bytes(instance, told->max_p2p_bytes);
    props->regIsGlobal = told->reg_is_global != 0;
    /* Nothing in NCCL's contract says that a send arrives without further calls. */
    props->needsProgress = 1;
    props->forceFlush = told->force_flush != 0;
    props->railId = told->rail_id >= 0 ? told->rail_id + 1 : 0;
    props->planeId = told->plane_id >= 0 ? told->plane_id + 1 : 0;
    /* A plain device has itself as its only member. */
    for (int i = 0; members > 1 && i < members; i++) {
        int ours = device_find(instance, told->members.devs[i]);

        if (ours >= 0)
            props->members[props->memberCount++] = ours;
    }
}

static void device_free(struct nccl_device *device)
{
    xccl_free((void *)(uintptr_t)device->props.name);
    xccl_free((void *)(uintptr_t)device->props.pciPath);
}

/* Asks for the plugin's device and appends it, or leaves it out with a line. */
static xcclResult_t device_add(struct nccl_instance *instance, int inner)
{
    struct nccl_net_props_v12 told = {.max_recvs = 1, .rail_id = -1, .plane_id = -1};
    struct nccl_device device = {.inner = inner};
    struct nccl_device *grown;
    char name[32];
    int result = instance->ops->properties(instance, inner, &told);

    if (result)
        return nccl_failed(instance, "getProperties", result);
    snprintf(name, sizeof(name), "device%d", inner);
    if (told.device_type != 0) {
        instance->refused_count++;
        nccl_line(instance, xcclNetLogInfo,
                  "%s: device %d (%.64s) is left out: it moves data by code on a GPU (offload type "
                  "%d), which XCCL does not do",
                  instance->name, inner, told.name ? told.name : name, told.device_type);
        return xcclSuccess;
    }
    grown = xccl_realloc(instance->devices, (size_t)(instance->device_count + 1) * sizeof(device));
    if (!grown)
        return nccl_refuse(instance, "getProperties", xcclSystemError, "no memory");
    instance->devices = grown;
    device_translate(instance, &told, &device.props);
    device.props.name = xccl_strdup(told.name && *told.name ? told.name : name);
    if (told.pci_path && *told.pci_path)
        device.props.pciPath = xccl_strdup(told.pci_path);
    if (!device.props.name || (told.pci_path && *told.pci_path && !device.props.pciPath)) {
        device_free(&device);
        return nccl_refuse(instance, "getProperties", xcclSystemError, "no memory");
    }
    instance->devices[instance->device_count++] = device;
    return xcclSuccess;
}

static void devices_free(struct nccl_instance *instance)
{
    for (int i = 0; i < instance->device_count; i++)
        device_free(&instance->devices[i]);
    xccl_free(instance->devices);
    instance->devices = NULL;
    instance->device_count = 0;
}

static xcclResult_t devices_fill(struct nccl_instance *instance)
{
    xcclResult_t rc = xcclSuccess;
    int count = 0;
    int result = instance->common.devices(&count);

    if (result)
        return nccl_failed(instance, "devices", result);
    if (count < 0 || count > NCCL_DEVICES_MAX)
        return nccl_refuse(instance, "devices", xcclInternalError, "it reports %d devices", count);
    for (int i = 0; i < count && rc == xcclSuccess; i++)
        rc = device_add(instance, i);
    return rc;
}

int nccl_device_get(struct nccl_instance *instance, const char *entry, int dev,
                    struct nccl_device *device_out)
{
    int count;

    pthread_mutex_lock(&instance->lock);
    count = instance->device_count;
    if (dev >= 0 && dev < count)
        *device_out = instance->devices[dev];
    pthread_mutex_unlock(&instance->lock);
    if (dev >= 0 && dev < count)
        return 1;
    nccl_refuse(instance, entry, xcclInvalidArgument,
                "device %d does not exist: there are %d devices", dev, count);
    return 0;
}

/* ---- the contract's entries ---- */

/* Takes name and entries from the table, which init may have filled. */
static xcclResult_t table_take(struct nccl_instance *instance, const struct nccl_source *source)
{
    struct net_reason reason = {""};

    if (!nccl_check(source, &reason))
        return nccl_refuse(instance, "init", xcclInternalError, "after init, %s", reason.text);
    memcpy(&instance->common, source->table, sizeof(instance->common));
    nccl_name(source, instance->name);
    return xcclSuccess;
}

/* With init_lock. */
static xcclResult_t instance_start(struct nccl_instance *instance, const struct nccl_source *source)
{
    xcclResult_t rc;
    int result = 0;

    if (!instance->ops->finalize) {
        rc = shared_init(instance);
    } else {
        result = instance->ops->init(instance);
        rc = result ? nccl_failed(instance, "init", result) : xcclSuccess;
    }
    if (rc != xcclSuccess)
        return rc;
    rc = table_take(instance, source);
    if (rc != xcclSuccess)
        return rc; /* without a whole table there is no finalize to rely on */
    rc = devices_fill(instance);
    if (rc == xcclSuccess)
        return rc;
    devices_free(instance);
    if (instance->ops->finalize)
        instance->ops->finalize(instance);
    return rc;
}

xcclResult_t nccl_init(const xcclNetInit_v1 *init, xcclNetContext_t *ctx_out)
{
    const size_t need = offsetof(xcclNetInit_v1, inner) + sizeof(void *);
    const struct nccl_source *source = init->size >= need ? (const struct nccl_source *)init->inner
                                                          : NULL;
    struct nccl_instance *instance;
    xcclResult_t rc;

    if (!source || !nccl_ops_find(source->version)) {
        snprintf(nccl_here.text, sizeof(nccl_here.text), "nccl init: no source to speak to");
        return xcclInvalidArgument;
    }
    instance = xccl_calloc(1, sizeof(*instance));
    if (!instance) {
        snprintf(nccl_here.text, sizeof(nccl_here.text), "nccl init: no memory");
        return xcclSystemError;
    }
    instance->ops = nccl_ops_find(source->version);
    instance->table = source->table;
    instance->comm_id = init->commId;
    instance->config.traffic_class = init->trafficClass;
    instance->log = init->log;
    pthread_mutex_init(&instance->lock, NULL);
    pthread_mutex_lock(&init_lock);
    nccl_name(source, instance->name); /* for an error of init; it may change there */
    nccl_enter(instance->log);
    rc = instance_start(instance, source);
    nccl_leave();
    pthread_mutex_unlock(&init_lock);
    if (rc == xcclSuccess) {
        *ctx_out = instance;
        return rc;
    }
    pthread_mutex_destroy(&instance->lock);
    xccl_free(instance);
    return rc;
}

xcclResult_t nccl_finalize(xcclNetContext_t ctx)
{
    struct nccl_instance *instance = ctx;
    xcclResult_t rc = xcclSuccess;

    /* A comm that was left open stands on it, and the plugin may still use what it was given. */
    if (atomic_load_explicit(&instance->left_open, memory_order_relaxed))
        return xcclSuccess;
    pthread_mutex_lock(&init_lock);
    nccl_enter(instance->log);
    if (instance->ops->finalize) {
        int result = instance->ops->finalize(instance);

        rc = result ? nccl_failed(instance, "finalize", result) : xcclSuccess;
    }
    nccl_leave();
    pthread_mutex_unlock(&init_lock);
    devices_free(instance);
    pthread_mutex_destroy(&instance->lock);
    xccl_free(instance);
    return rc;
}

xcclResult_t nccl_devices(xcclNetContext_t ctx, int *count_out)
{
    struct nccl_instance *instance = ctx;
    int count;

    pthread_mutex_lock(&instance->lock);
    count = instance->device_count;
    pthread_mutex_unlock(&instance->lock);
    if (count == 0 && instance->refused_count > 0)
        return nccl_refuse(instance, "devices", xcclInvalidUsage,
                           "all %d devices move data by code on a GPU, which XCCL does not "
                           "support; use another plugin, or one without offload",
                           instance->refused_count);
    *count_out = count;
    return xcclSuccess;
}

xcclResult_t nccl_properties(xcclNetContext_t ctx, int dev, xcclNetProperties_v1 *props)
{
    struct nccl_device device;

    if (!nccl_device_get(ctx, "properties", dev, &device))
        return xcclInvalidArgument;
    xccl_net_tell_properties(&device.props, props);
    return xcclSuccess;
}

/* Asks the plugin; the caller holds the lock. */
static xcclResult_t merge_locked(struct nccl_instance *instance, const int *devs, int count,
                                 int *dev_out)
{
    int inner[XCCL_NET_MAX_MEMBERS], merged = -1, result;
    int had = instance->device_count;
    xcclResult_t rc;

    for (int i = 0; i < count; i++) {
        if (devs[i] < 0 || devs[i] >= had)
            return nccl_refuse(instance, "makeVDevice", xcclInvalidArgument,
                               "device %d does not exist: there are %d devices", devs[i], had);
        inner[i] = instance->devices[devs[i]].inner;
    }
    result = instance->ops->merge(instance, inner, count, &merged);
    if (result)
        return nccl_failed(instance, "makeVDevice", result);
    /* A second merge of the same devices may be answered with the first one's number. */
    *dev_out = device_find(instance, merged);
    if (*dev_out >= 0)
        return xcclSuccess;
    rc = device_add(instance, merged);
    if (rc != xcclSuccess)
        return rc;
    if (instance->device_count == had)
        return nccl_refuse(instance, "makeVDevice", xcclInvalidUsage,
                           "the merged device moves data by code on a GPU");
    *dev_out = had;
    return xcclSuccess;
}

xcclResult_t nccl_merge_devices(xcclNetContext_t ctx, const int *devs, int count, int *dev_out)
{
    struct nccl_instance *instance = ctx;
    const void *entry;
    int most = instance->ops->version >= 12 ? 8 : 4, dev = -1;
    xcclResult_t rc;

    memcpy(&entry, (const char *)instance->table + offsetof(struct nccl_net_v9, make_vdevice),
           sizeof(entry));
    if (!entry)
        return nccl_refuse(instance, "makeVDevice", xcclInvalidUsage,
                           "this plugin cannot merge devices");
    if (count < 1 || count > most)
        return nccl_refuse(instance, "makeVDevice", xcclInvalidArgument,
                           "cannot merge %d devices: version %d accepts at most %d", count,
                           instance->ops->version, most);
    pthread_mutex_lock(&instance->lock);
    nccl_enter(instance->log);
    rc = merge_locked(instance, devs, count, &dev);
    nccl_leave();
    pthread_mutex_unlock(&instance->lock);
    if (rc == xcclSuccess)
        *dev_out = dev;
    return rc;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Between the two files of the export shim: instances, and how failures are told. nccl_export.c
 * says what the shim is. Threads: any. */
#ifndef PLUGINS_NCCL_EXPORT_INT_H
#define PLUGINS_NCCL_EXPORT_INT_H

#include <pthread.h>

#include "base/nccl_net_abi.h"
#include "xccl_net.h"

#define PLUGIN           (&xcclNetPlugin_v1)
#define NO_TRAFFIC_CLASS (-1)

/* Whether the plugin has an optional entry. */
#define HAS(entry)                                                                                 \
    (PLUGIN->size >= offsetof(xcclNetPlugin_v1_t, entry) + sizeof(PLUGIN->entry) && PLUGIN->entry)

/* A connect under way. */
struct connecting {
    struct connecting *next;
    uint64_t number; /* never 0, never used twice */
    xcclNetConnect_t state; /* the plugin's */
};

struct export_instance {
    struct export_instance *next;
    xcclNetContext_t ctx;
    int is_shared, traffic_class;
    int is_behind; /* it could not repeat a merge, and has not those after it either */
    struct connecting *connects;
};

/* Guards the list of instances and their lists of connects. The plugin is called with it held only
 * for devices, properties, mergeDevices, lastError, and init of a shared instance. */
extern pthread_mutex_t export_lock;

/* Tells the plugin's text of the error just returned; returns NCCL's code for it. */
int export_failed(xcclResult_t rc);
/* NCCL's code for rc; tells the plugin's error text unless rc is success. */
int export_result(xcclResult_t rc);
/* An error of our own. */
int export_refused(xcclResult_t rc, const char *text);

/* The instance of versions 8 to 10, made at its first use. NULL: told, and *rc_out is NCCL's code.
 */
struct export_instance *export_shared(int traffic_class, int *rc_out);

/* Listen, send and receive comms are counted: while there are any, unloading frees nothing. */
void export_comm_opened(void);
void export_comm_closed(void);

/* Entries of the tables. */
int export_init_v8(nccl_logger log);
int export_init_v10(nccl_logger log, nccl_profiler profiler);
int export_init_v11(void **ctx, uint64_t comm_id, struct nccl_net_config *config, nccl_logger log,
                    nccl_profiler profiler);
int export_finalize_v11(void *ctx);
int export_devices(int *ndev);
int export_properties_v8(int dev, struct nccl_net_props_v8 *props);
int export_properties_v9(int dev, struct nccl_net_props_v9 *props);
int export_properties_v11(int dev, void *props);
int export_properties_v12(int dev, void *props);
#ifdef XCCL_EXPORT_MERGE
int export_vdevice_v9(int *dev, struct nccl_net_vprops_v9 *members);
int export_vdevice_v11(int *dev, void *members);
int export_vdevice_v12(int *dev, void *members);
#else
#define export_vdevice_v9  NULL
#define export_vdevice_v11 NULL
#define export_vdevice_v12 NULL
#endif

#endif

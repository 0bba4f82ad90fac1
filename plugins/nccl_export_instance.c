/* SPDX-License-Identifier: BSD-3-Clause */
/* The export shim's instances, what NCCL asks without one (devices, their properties, merging), and
 * how errors reach NCCL's log.
 *
 * Properties are those of any living instance, since all see the same devices. Names stay until
 * the file is unloaded, because NCCL keeps pointers to them. NCCL merges devices once a process, so
 * each later instance repeats what was merged.
 *
 * Thread: any; export_lock guards what is static here. Nothing of this is on the way of a message,
 * unless it failed. */
#include "nccl_export_int.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SPEED_UNKNOWN_MBPS 10000 /* what NCCL itself takes for a card that does not tell */
#define COMMS_NO_LIMIT     65536
#define BYTES_MAX          ((size_t)INT_MAX & ~(size_t)4095) /* fits an int, and pages */
#define MERGES_MAX         64

/* A text that NCCL may keep a pointer to. */
struct kept_text {
    struct kept_text *next;
    char text[];
};

struct merge {
    int count, dev;
    int devs[XCCL_NET_MAX_MEMBERS];
};

pthread_mutex_t export_lock = PTHREAD_MUTEX_INITIALIZER;
static struct export_instance *instances;
static struct kept_text *texts;
static struct merge merges[MERGES_MAX];
static int merge_count;
static pid_t owner; /* the process that made the first instance */

/* Relaxed: it is looked at when all threads are done. */
static _Atomic int open_comms;
/* Stored by init (release), loaded for each line (acquire): what stands behind it is NCCL's. */
static _Atomic(nccl_logger) logger;

/* ---- lines and errors ---- */

static void log_line(int level, const char *line)
{
    nccl_logger log = atomic_load_explicit(&logger, memory_order_acquire);

    if (log)
        log(level, NCCL_LOG_NET, PLUGIN->name, 0, "%s", line);
}

static void plugin_log(xcclNetLogLevel_t level, const char *line)
{
    int theirs = NCCL_LOG_TRACE;

    if (level == xcclNetLogError || level == xcclNetLogWarn)
        theirs = NCCL_LOG_WARN;
    else if (level == xcclNetLogInfo)
        theirs = NCCL_LOG_INFO;
    log_line(theirs, line ? line : "");
}

/* A warning, once: a broken comm gives the same text with each call. */
static void warn(const char *text)
{
    static _Thread_local uint64_t warned;
    uint64_t hash = 14695981039346656037ull;

    for (const char *at = text; *at; at++)
        hash = (hash ^ (uint8_t)*at) * 1099511628211ull;
    if (hash == warned)
        return;
    warned = hash;
    log_line(NCCL_LOG_WARN, text);
}

/* Tells the plugin's text and turns the code into one of NCCL's. Any living instance may be asked:
 * the text is the thread's. */
int export_failed(xcclResult_t rc)
{
    const char *text;

    pthread_mutex_lock(&export_lock);
    text = PLUGIN->lastError(instances ? instances->ctx : NULL);
    pthread_mutex_unlock(&export_lock);
    warn(text && *text ? text : "the plugin does not say why it failed");
    return rc == xcclTimeout ? xcclRemoteError : (int)rc;
}

int export_result(xcclResult_t rc)
{
    return rc == xcclSuccess ? xcclSuccess : export_failed(rc);
}

int export_refused(xcclResult_t rc, const char *text)
{
    warn(text);
    return (int)rc;
}

/* ---- instances ---- */

static struct export_instance *instance_create(uint64_t comm_id, int traffic_class,
                                               xcclResult_t *rc_out)
{
    const xcclNetInit_v1 init = {
        .size = sizeof(init),
        .commId = comm_id,
        .rank = -1, /* NCCL does not say */
        .commName = "",
        .log = plugin_log,
        .trafficClass = traffic_class,
    };
    struct export_instance *instance = calloc(1, sizeof(*instance));

    *rc_out = xcclSystemError;
    if (!instance)
        return NULL;
    instance->traffic_class = traffic_class;
    *rc_out = PLUGIN->init(&init, &instance->ctx);
    if (*rc_out == xcclSuccess)
        return instance;
    free(instance);
    return NULL;
}

/* With the lock held, once it can be seen by nobody or before it is used. */
static xcclResult_t instance_merge(const struct export_instance *instance,
                                   const struct merge *merge, int *dev_out)
{
    return PLUGIN->mergeDevices(instance->ctx, merge->devs, merge->count, dev_out);
}

/* With the lock held: the device must get the number that NCCL knows. If it does not, this shows
 * where the device is used. */
static void instance_follow(struct export_instance *instance, const struct merge *merge)
{
    int dev = 0;

    if (!instance->is_behind &&
        (instance_merge(instance, merge, &dev) != xcclSuccess || dev != merge->dev))
        instance->is_behind = 1;
}

/* With the lock held. */
static void instance_add(struct export_instance *instance)
{
    for (int i = 0; i < merge_count; i++)
        instance_follow(instance, &merges[i]);
    instance->next = instances;
    instances = instance;
    if (!owner)
        owner = getpid();
}

/* With the lock held. 0: it was not there. */
static int instance_remove(struct export_instance *instance)
{
    for (struct export_instance **at = &instances; *at; at = &(*at)->next) {
        if (*at == instance) {
            *at = instance->next;
            return 1;
        }
    }
    return 0;
}

/* Nobody else knows it any more. */
static xcclResult_t instance_destroy(struct export_instance *instance)
{
    xcclResult_t rc;

    for (struct connecting *next, *at = instance->connects; at; at = next) {
        next = at->next;
        if (at->state)
            (void)PLUGIN->closeConnect(instance->ctx, at->state);
        free(at);
    }
    rc = PLUGIN->finalize(instance->ctx);
    free(instance);
    return rc;
}

/* With the lock held: the instance of all of the process, or the one for a traffic class. */
static struct export_instance *shared_get(int traffic_class, xcclResult_t *rc_out)
{
    struct export_instance *instance;

    for (instance = instances; instance; instance = instance->next) {
        if (instance->is_shared && instance->traffic_class == traffic_class)
            return instance;
    }
    instance = instance_create(0, traffic_class, rc_out);
    if (instance) {
        instance->is_shared = 1;
        instance_add(instance);
    }
    return instance;
}

/* NULL: it has been told why, and *rc_out is NCCL's code. */
struct export_instance *export_shared(int traffic_class, int *rc_out)
{
    xcclResult_t rc = xcclSuccess;
    struct export_instance *instance;

    pthread_mutex_lock(&export_lock);
    instance = shared_get(traffic_class, &rc);
    pthread_mutex_unlock(&export_lock);
    *rc_out = instance ? xcclSuccess : export_failed(rc);
    return instance;
}

static void logger_set(nccl_logger log)
{
    atomic_store_explicit(&logger, log, memory_order_release);
}

int export_init_v8(nccl_logger log)
{
    int rc;

    logger_set(log);
    (void)export_shared(NO_TRAFFIC_CLASS, &rc);
    return rc;
}

int export_init_v10(nccl_logger log, nccl_profiler profiler)
{
    (void)profiler;
    return export_init_v8(log);
}

int export_init_v11(void **ctx, uint64_t comm_id, struct nccl_net_config *config, nccl_logger log,
                    nccl_profiler profiler)
{
    int traffic_class = config ? config->traffic_class : NO_TRAFFIC_CLASS;
    struct export_instance *instance;
    xcclResult_t rc;

    (void)profiler;
    logger_set(log);
    instance = instance_create(comm_id, traffic_class, &rc);
    if (!instance)
        return export_failed(rc);
    pthread_mutex_lock(&export_lock);
    instance_add(instance);
    pthread_mutex_unlock(&export_lock);
    *ctx = instance;
    return xcclSuccess;
}

int export_finalize_v11(void *ctx)
{
    xcclResult_t rc;
    int known;

    pthread_mutex_lock(&export_lock);
    known = instance_remove(ctx);
    pthread_mutex_unlock(&export_lock);
    if (!known)
        return export_refused(xcclInvalidArgument,
                              "finalize was called with a context that init did not create");
    rc = instance_destroy(ctx);
    return export_result(rc);
}

/* Unloading, or the end of the process. */
__attribute__((destructor)) static void unload(void)
{
    /* Open comms: threads may still use them. Another process: a child of fork, which calls no
     * plugin. A held lock: likewise. */
    if (owner != getpid() || atomic_load_explicit(&open_comms, memory_order_relaxed) != 0 ||
        pthread_mutex_trylock(&export_lock) != 0)
        return;
    while (instances) {
        struct export_instance *instance = instances;

        instances = instance->next;
        (void)instance_destroy(instance);
    }
    while (texts) {
        struct kept_text *text = texts;

        texts = text->next;
        free(text);
    }
    pthread_mutex_unlock(&export_lock);
}

/* ---- devices ---- */

int export_devices(int *ndev)
{
    xcclResult_t rc = xcclInvalidUsage;

    pthread_mutex_lock(&export_lock);
    if (instances)
        rc = PLUGIN->devices(instances->ctx, ndev);
    pthread_mutex_unlock(&export_lock);
    return export_result(rc);
}

/* With the lock held: the same text, good until unload. NULL: no memory, or no text. */
static char *text_keep(const char *text)
{
    struct kept_text *kept;
    size_t bytes;

    if (!text)
        return NULL;
    for (kept = texts; kept; kept = kept->next) {
        if (strcmp(kept->text, text) == 0)
            return kept->text;
    }
    bytes = strlen(text) + 1;
    kept = malloc(sizeof(*kept) + bytes);
    if (!kept)
        return NULL;
    memcpy(kept->text, text, bytes);
    kept->next = texts;
    texts = kept;
    return kept->text;
}

/* Asks the plugin, and puts in what NCCL wants said where ours says "not known". */
static int properties_get(int dev, xcclNetProperties_v1 *props)
{
    static char nameless[] = "unnamed";
    xcclResult_t rc = xcclInvalidUsage;

    memset(props, 0, sizeof(*props));
    props->size = sizeof(*props);
    pthread_mutex_lock(&export_lock);
    if (instances)
        rc = PLUGIN->properties(instances->ctx, dev, props);
    if (rc == xcclSuccess) {
        props->name = text_keep(props->name);
        props->pciPath = text_keep(props->pciPath);
    }
    pthread_mutex_unlock(&export_lock);
    if (rc != xcclSuccess)
        return export_failed(rc);
    if (!props->name)
        props->name = nameless;
    if (!props->guid)
        props->guid = (uint64_t)dev; /* devices of equal guid share a card */
    if (!props->speedMbps || props->speedMbps > INT_MAX)
        props->speedMbps = SPEED_UNKNOWN_MBPS;
    if (props->maxComms <= 0)
        props->maxComms = COMMS_NO_LIMIT;
    if (props->maxBytes > BYTES_MAX)
        props->maxBytes = BYTES_MAX;
    if (!HAS(regMrDmaBuf))
        props->ptrSupport &= ~(uint32_t)XCCL_NET_PTR_DMABUF;
    return xcclSuccess;
}

int export_properties_v8(int dev, struct nccl_net_props_v8 *props)
{
    xcclNetProperties_v1 all;
    int rc = properties_get(dev, &all);

    if (rc != xcclSuccess)
        return rc;
    *props = (struct nccl_net_props_v8){
        .name = (char *)(uintptr_t)all.name,
        .pci_path = (char *)(uintptr_t)all.pciPath,
        .guid = all.guid,
        .ptr_support = (int)all.ptrSupport,
        .reg_is_global = all.regIsGlobal,
        .speed = (int)all.speedMbps,
        .port = all.port,
        .latency = all.latencyUs,
        .max_comms = all.maxComms,
        .max_recvs = all.maxRecvs,
    };
    return xcclSuccess;
}

/* What the properties of versions 9 to 12 begin with is the same in all of them. */
static void head_fill(struct nccl_net_props_v9 *props, const xcclNetProperties_v1 *all)
{
    props->name = (char *)(uintptr_t)all->name;
    props->pci_path = (char *)(uintptr_t)all->pciPath;
    props->guid = all->guid;
    props->ptr_support = (int)all->ptrSupport;
    props->reg_is_global = all->regIsGlobal;
    props->force_flush = all->forceFlush;
    props->speed = (int)all->speedMbps;
    props->port = all->port;
    props->latency = all->latencyUs;
    props->max_comms = all->maxComms;
    props->max_recvs = all->maxRecvs;
}
static_assert(offsetof(struct nccl_net_props_v11, members) ==
                  offsetof(struct nccl_net_props_v9, members),
              "one head");
static_assert(offsetof(struct nccl_net_props_v12, members) ==
                  offsetof(struct nccl_net_props_v9, members),
              "one head");

/* The devices that make up dev, itself if it is no merged one; those that do not fit are left out.
 */
static int members_fill(const xcclNetProperties_v1 *all, int dev, int *devs, int room)
{
    int count = all->memberCount < room ? all->memberCount : room;

    for (int i = 0; i < count; i++)
        devs[i] = all->members[i];
    if (count > 0)
        return count;
    devs[0] = dev;
    return 1;
}

int export_properties_v9(int dev, struct nccl_net_props_v9 *props)
{
    xcclNetProperties_v1 all;
    int rc = properties_get(dev, &all);

    if (rc != xcclSuccess)
        return rc;
    memset(props, 0, sizeof(*props));
    head_fill(props, &all);
    props->members.ndevs = members_fill(&all, dev, props->members.devs, 4);
    props->max_p2p_bytes = all.maxBytes;
    props->max_coll_bytes = all.maxBytes;
    return xcclSuccess;
}

int export_properties_v11(int dev, void *props_)
{
    struct nccl_net_props_v11 *props = props_;
    int rc;

    memset(props, 0, sizeof(*props));
    rc = export_properties_v9(dev, props_); /* 11 is 9 and one more */
    props->max_multi_request_size = 1;
    return rc;
}
static_assert(offsetof(struct nccl_net_props_v11, max_coll_bytes) ==
                  offsetof(struct nccl_net_props_v9, max_coll_bytes),
              "11 begins with 9");

/* Ours count from 1, 0 is not known; theirs from 0, -1 is undefined. */
static int16_t number_of(int32_t id)
{
    return (int16_t)(id >= 1 && id <= INT16_MAX ? id - 1 : NCCL_NET_UNDEFINED_ID);
}

int export_properties_v12(int dev, void *props_)
{
    struct nccl_net_props_v12 *props = props_;
    xcclNetProperties_v1 all;
    int rc = properties_get(dev, &all);

    if (rc != xcclSuccess)
        return rc;
    memset(props, 0, sizeof(*props));
    head_fill(props_, &all);
    props->members.ndevs = members_fill(&all, dev, props->members.devs, XCCL_NET_MAX_MEMBERS);
    props->max_p2p_bytes = all.maxBytes;
    props->max_coll_bytes = all.maxBytes;
    props->max_multi_request_size = 1;
    props->rail_id = number_of(all.railId);
    props->plane_id = number_of(all.planeId);
    return xcclSuccess;
}

#ifdef XCCL_EXPORT_MERGE
/* With the lock held: merges in the first living instance, and then in all. NCCL merges the same
 * devices for each communicator; they are one device. *why_out: no error of the plugin's. */
static xcclResult_t merge_all(struct merge *merge, const char **why_out)
{
    struct export_instance *first = instances;
    xcclResult_t rc;

    for (int i = 0; i < merge_count; i++) {
        if (merges[i].count == merge->count &&
            memcmp(merges[i].devs, merge->devs, sizeof(merge->devs)) == 0) {
            merge->dev = merges[i].dev;
            return xcclSuccess;
        }
    }
    while (first && first->is_behind)
        first = first->next;
    if (!first || merge_count == MERGES_MAX) {
        *why_out = first ? "this process has merged more devices than the plugin keeps"
                         : "no instance that merges devices: init comes first";
        return xcclInvalidUsage;
    }
    if (!HAS(mergeDevices)) {
        *why_out = "this plugin cannot merge devices";
        return xcclInvalidUsage;
    }
    rc = instance_merge(first, merge, &merge->dev);
    if (rc != xcclSuccess)
        return rc;
    merges[merge_count++] = *merge;
    for (struct export_instance *at = instances; at; at = at->next) {
        if (at != first)
            instance_follow(at, merge);
    }
    return xcclSuccess;
}

static int make_vdevice(int *dev, const int *devs, int count)
{
    struct merge merge = {.count = count};
    const char *why = NULL;
    xcclResult_t rc;

    if (count < 1 || count > XCCL_NET_MAX_MEMBERS)
        return export_refused(xcclInvalidArgument, "a merged device has no members, or too many");
    memcpy(merge.devs, devs, (size_t)count * sizeof(devs[0]));
    pthread_mutex_lock(&export_lock);
    rc = merge_all(&merge, &why);
    pthread_mutex_unlock(&export_lock);
    if (why)
        return export_refused(rc, why);
    if (rc == xcclSuccess)
        *dev = merge.dev;
    return export_result(rc);
}

int export_vdevice_v9(int *dev, struct nccl_net_vprops_v9 *members)
{
    return members->ndevs <= 4
               ? make_vdevice(dev, members->devs, members->ndevs)
               : export_refused(xcclInvalidArgument,
                                "a merged device has more members than version 9 allows");
}

int export_vdevice_v11(int *dev, void *members)
{
    return export_vdevice_v9(dev, members);
}

int export_vdevice_v12(int *dev, void *members_)
{
    const struct nccl_net_vprops_v12 *members = members_;

    return make_vdevice(dev, members->devs, members->ndevs);
}
#endif

void export_comm_opened(void)
{
    atomic_fetch_add_explicit(&open_comms, 1, memory_order_relaxed);
}

void export_comm_closed(void)
{
    atomic_fetch_sub_explicit(&open_comms, 1, memory_order_relaxed);
}

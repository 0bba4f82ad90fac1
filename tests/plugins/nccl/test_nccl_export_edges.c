/* SPDX-License-Identifier: BSD-3-Clause */
/* The export shim around a plugin made for it, which has what the socket plugin lacks: connects of
 * several steps, grouped receives, merged devices, messages above 2 GiB, and errors on demand. */
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/nccl_net_abi.h"
#include "xccl_net.h"
#include "xt.h"

#define STEPS   3 /* of a connect */
#define DEVICES 4

struct fake {
    uint64_t comm_id;
    int traffic_class, merged;
    int members[8], member_count;
};

static struct fake *last_instance; /* made last */
static int instance_count, connects_under_way;
static xcclNetRequest_t seen_hint;
static uint32_t seen_tags[8];
static size_t seen_bytes[8], told_bytes[8], max_bytes = (size_t)1 << 40;
static int seen_count, told_count, long_handle;
static xcclResult_t next_rc;
static int merge_fails_in; /* so many merges from now; 0: never */
static xcclNetLogger_t plugin_log;
static char one_comm;

static xcclResult_t take_rc(void)
{
    xcclResult_t rc = next_rc;

    next_rc = xcclSuccess;
    return rc;
}

static xcclResult_t fake_init(const xcclNetInit_v1 *init, xcclNetContext_t *ctx)
{
    struct fake *fake = calloc(1, sizeof(*fake));

    XT_CHECK(fake && init->size == sizeof(*init) && init->commName && !init->inner);
    fake->comm_id = init->commId;
    fake->traffic_class = init->trafficClass;
    plugin_log = init->log;
    last_instance = fake;
    instance_count++;
    *ctx = fake;
    return xcclSuccess;
}

static xcclResult_t fake_finalize(xcclNetContext_t ctx)
{
    instance_count--;
    free(ctx);
    return xcclSuccess;
}

static xcclResult_t fake_devices(xcclNetContext_t ctx, int *count)
{
    *count = DEVICES + ((struct fake *)ctx)->merged;
    return xcclSuccess;
}

static xcclResult_t fake_properties(xcclNetContext_t ctx, int dev, xcclNetProperties_v1 *props)
{
    const struct fake *fake = ctx;

    if (dev < 0 || dev >= DEVICES + fake->merged)
        return xcclInvalidArgument;
    props->name = "card";
    props->pciPath = "/sys/card";
    props->speedMbps = 400000;
    props->ptrSupport = XCCL_NET_PTR_HOST | XCCL_NET_PTR_DMABUF;
    props->maxComms = 7;
    props->maxRecvs = 8;
    props->maxBytes = max_bytes;
    props->railId = 3;
    if (dev < DEVICES)
        return xcclSuccess;
    props->memberCount = fake->member_count;
    memcpy(props->members, fake->members, sizeof(props->members));
    return xcclSuccess;
}

static xcclResult_t fake_listen(xcclNetContext_t ctx, int dev, xcclNetHandle_t *handle,
                                xcclNetListenComm_t *comm)
{
    (void)ctx, (void)dev;
    memset(handle, 0, sizeof(*handle));
    memset(handle->bytes, 0x11, (size_t)(XCCL_NET_HANDLE_USED + long_handle));
    *comm = &one_comm;
    return xcclSuccess;
}

static xcclResult_t fake_connect(xcclNetContext_t ctx, int dev, const xcclNetHandle_t *handle,
                                 xcclNetConnect_t *state, xcclNetSendComm_t *comm)
{
    int *step = *state;

    (void)ctx, (void)dev;
    for (int i = XCCL_NET_HANDLE_USED; i < XCCL_NET_HANDLE_BYTES; i++)
        XT_CHECK_INT(handle->bytes[i], 0);
    if (!step) {
        step = calloc(1, sizeof(*step));
        XT_CHECK(step != NULL);
        connects_under_way++;
        *state = step;
    }
    if (++*step < STEPS)
        return xcclSuccess;
    connects_under_way--;
    free(step);
    *state = NULL;
    *comm = &one_comm;
    return xcclSuccess;
}

static xcclResult_t fake_close_connect(xcclNetContext_t ctx, xcclNetConnect_t state)
{
    (void)ctx;
    connects_under_way--;
    free(state);
    return xcclSuccess;
}

static xcclResult_t fake_accept(xcclNetListenComm_t listen, xcclNetRecvComm_t *comm)
{
    (void)listen;
    *comm = &one_comm;
    return xcclSuccess;
}

static xcclResult_t fake_reg_mr(void *comm, void *data, size_t bytes, uint32_t type,
                                xcclNetMem_t *mem)
{
    (void)data, (void)bytes, (void)type;
    *mem = comm;
    return take_rc();
}

static xcclResult_t fake_reg_dmabuf(void *comm, void *data, size_t bytes, uint32_t type,
                                    uint64_t offset, int fd, xcclNetMem_t *mem)
{
    (void)data;
    XT_CHECK(bytes == 4096 && type == XCCL_NET_PTR_CUDA && offset == 8192 && fd == 77);
    *mem = comm;
    return xcclSuccess;
}

static xcclResult_t fake_dereg_mr(void *comm, xcclNetMem_t mem)
{
    (void)comm, (void)mem;
    return xcclSuccess;
}

static xcclResult_t fake_isend(xcclNetSendComm_t comm, const void *data, size_t bytes, uint32_t tag,
                               xcclNetMem_t mem, xcclNetRequest_t *request)
{
    (void)data, (void)mem;
    seen_bytes[0] = bytes;
    seen_tags[0] = tag;
    *request = comm;
    return take_rc();
}

static xcclResult_t fake_irecv(xcclNetRecvComm_t comm, int count, void *const *data,
                               const size_t *bytes, const uint32_t *tags, const xcclNetMem_t *mems,
                               xcclNetRequest_t *request)
{
    (void)data, (void)mems;
    seen_hint = *request;
    seen_count = count;
    memcpy(seen_bytes, bytes, (size_t)count * sizeof(*bytes));
    memcpy(seen_tags, tags, (size_t)count * sizeof(*tags));
    *request = comm;
    return xcclSuccess;
}

static xcclResult_t fake_test(xcclNetRequest_t request, int *done, size_t *bytes)
{
    (void)request;
    *done = told_count > 0;
    if (bytes && *done)
        memcpy(bytes, told_bytes, (size_t)told_count * sizeof(*bytes));
    return take_rc();
}

static xcclResult_t fake_close(void *comm)
{
    (void)comm;
    return xcclSuccess;
}

static const char *fake_last_error(xcclNetContext_t ctx)
{
    (void)ctx;
    return "the fake plugin was told to fail";
}

static xcclResult_t fake_merge(xcclNetContext_t ctx, const int *devs, int count, int *dev)
{
    struct fake *fake = ctx;

    if (merge_fails_in > 0 && --merge_fails_in == 0)
        return xcclSystemError;
    fake->member_count = count;
    memcpy(fake->members, devs, (size_t)count * sizeof(*devs));
    *dev = DEVICES + fake->merged++;
    return xcclSuccess;
}

XCCL_NET_EXPORT const xcclNetPlugin_v1_t xcclNetPlugin_v1 = {
    .size = sizeof(xcclNetPlugin_v1_t),
    .name = "fake",
    .wireVersion = 1,
    .init = fake_init,
    .finalize = fake_finalize,
    .devices = fake_devices,
    .properties = fake_properties,
    .listen = fake_listen,
    .connect = fake_connect,
    .closeConnect = fake_close_connect,
    .accept = fake_accept,
    .regMr = fake_reg_mr,
    .deregMr = fake_dereg_mr,
    .isend = fake_isend,
    .irecv = fake_irecv,
    .test = fake_test,
    .closeSend = fake_close,
    .closeRecv = fake_close,
    .closeListen = fake_close,
    .lastError = fake_last_error,
    .regMrDmaBuf = fake_reg_dmabuf,
    .mergeDevices = fake_merge,
};

/* The shim is linked in. */
extern const struct nccl_net_v8 ncclNetPlugin_v8;
extern const struct nccl_net_v9 ncclNetPlugin_v9;
extern const struct nccl_net_v10 ncclNetPlugin_v10;
extern const struct nccl_net_v11 ncclNetPlugin_v11, ncclNetPlugin_v12;

static int levels[8], level_count;
static char line[256];

__attribute__((format(printf, 5, 6))) static void
nccl_log(int level, unsigned long flags, const char *file, int number, const char *fmt, ...)
{
    va_list args;

    (void)flags, (void)file, (void)number;
    levels[level_count++ % 8] = level;
    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
}

static void *init_v12(int traffic_class)
{
    struct nccl_net_config config = {.traffic_class = traffic_class};
    void *ctx = NULL;

    XT_OK(ncclNetPlugin_v12.init(&ctx, 0xabcd, &config, nccl_log, NULL));
    return ctx;
}

XT_TEST(a_communicator_has_an_instance_with_its_id_and_traffic_class)
{
    void *one = init_v12(5), *two;

    XT_CHECK(last_instance->comm_id == 0xabcd);
    XT_CHECK_INT(last_instance->traffic_class, 5);
    two = init_v12(-1);
    XT_CHECK_INT(last_instance->traffic_class, -1);
    XT_CHECK_INT(instance_count, 2);
    XT_OK(ncclNetPlugin_v12.finalize(one));
    XT_OK(ncclNetPlugin_v12.finalize(two));
    XT_CHECK_INT(instance_count, 0);
    XT_CHECK_RC(ncclNetPlugin_v12.finalize(&one_comm), xcclInvalidArgument);
}

XT_TEST(version_10_connects_with_an_instance_for_each_traffic_class)
{
    struct nccl_net_config config = {.traffic_class = 9};
    char handle[128] = {0};
    void *comm = NULL, *device;

    XT_OK(ncclNetPlugin_v10.init(nccl_log, NULL));
    XT_OK(ncclNetPlugin_v10.init(nccl_log, NULL));
    XT_CHECK_INT(instance_count, 1);
    for (int i = 0; i < STEPS; i++) {
        XT_CHECK(comm == NULL);
        XT_OK(ncclNetPlugin_v10.connect(0, &config, handle, &comm, &device));
    }
    XT_CHECK(comm != NULL);
    XT_CHECK_INT(instance_count, 2);
    XT_CHECK_INT(last_instance->traffic_class, 9);
    XT_OK(ncclNetPlugin_v10.close_send(comm));
}

XT_TEST(connects_under_way_are_kept_apart_and_given_up_by_finalize)
{
    void *ctx = init_v12(-1), *comm = NULL, *device;
    char handles[3][128];

    memset(handles, 0, sizeof(handles));
    for (int i = 0; i < 3; i++)
        XT_OK(ncclNetPlugin_v12.connect(ctx, 0, handles[i], &comm, &device));
    XT_CHECK_INT(connects_under_way, 3);
    XT_OK(ncclNetPlugin_v12.connect(ctx, 0, handles[1], &comm, &device));
    XT_CHECK(comm == NULL);
    XT_OK(ncclNetPlugin_v12.connect(ctx, 0, handles[1], &comm, &device));
    XT_CHECK(comm != NULL);
    XT_CHECK_INT(connects_under_way, 2);
    XT_OK(ncclNetPlugin_v12.close_send(comm));
    XT_OK(ncclNetPlugin_v12.finalize(ctx));
    XT_CHECK_INT(connects_under_way, 0);
}

XT_TEST(a_handle_that_is_too_long_is_refused)
{
    void *ctx = init_v12(-1), *comm = NULL;
    char handle[128] = {0};

    long_handle = 1;
    XT_CHECK_RC(ncclNetPlugin_v12.listen(ctx, 0, handle, &comm), xcclInternalError);
    XT_CHECK(comm == NULL && handle[0] == 0);
    XT_OK(ncclNetPlugin_v12.finalize(ctx));
}

XT_TEST(the_hint_of_irecv_is_passed_on_from_version_9)
{
    void *data[1] = {line}, *mems[1] = {NULL}, *request = (void *)1;
    int tag = -2, small = 10;
    size_t bytes = 10;

    XT_OK(ncclNetPlugin_v8.irecv(&one_comm, 1, data, &small, &tag, mems, &request));
    XT_CHECK(seen_hint == NULL && request == &one_comm);
    XT_CHECK(seen_tags[0] == (uint32_t)-2 && seen_bytes[0] == 10);
    request = (void *)1;
    XT_OK(ncclNetPlugin_v9.irecv(&one_comm, 1, data, &bytes, &tag, mems, &request));
    XT_CHECK(seen_hint == XCCL_NET_RECV_OPTIONAL);
    request = (void *)&bytes; /* left over from something else */
    XT_OK(ncclNetPlugin_v12.irecv(&one_comm, 1, data, &bytes, &tag, mems, NULL, &request));
    XT_CHECK(seen_hint == NULL);
}

XT_TEST(a_grouped_receive_gives_as_many_sizes_as_it_has_parts)
{
    void *data[8] = {NULL}, *mems[8] = {NULL}, *request = NULL;
    size_t bytes[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    int tags[9] = {8, 7, 6, 5, 4, 3, 2, 1, 0}, sizes[9], done = 0;

    XT_OK(ncclNetPlugin_v12.irecv(&one_comm, 8, data, bytes, tags, mems, NULL, &request));
    XT_CHECK(seen_count == 8 && seen_bytes[7] == 8 && seen_tags[7] == 1);
    XT_CHECK_RC(ncclNetPlugin_v12.irecv(&one_comm, 9, data, bytes, tags, mems, NULL, &request),
                xcclInvalidArgument);
    for (told_count = 1; told_count <= 8; told_count++) {
        for (int i = 0; i < 9; i++)
            sizes[i] = -7;
        for (int i = 0; i < told_count; i++)
            told_bytes[i] = (size_t)i * 100;
        XT_OK(ncclNetPlugin_v12.test(request, &done, sizes));
        for (int i = 0; i < 9; i++)
            XT_CHECK_INT(sizes[i], i < told_count ? i * 100 : -7);
    }
}

XT_TEST(a_size_above_2_gib_is_refused_and_never_cut)
{
    int done = 0, size = -7;

    told_count = 1;
    told_bytes[0] = (size_t)INT_MAX + 11;
    XT_CHECK_RC(ncclNetPlugin_v12.test(&one_comm, &done, &size), xcclInternalError);
    XT_CHECK_INT(size, -7);
    told_bytes[0] = INT_MAX;
    XT_OK(ncclNetPlugin_v12.test(&one_comm, &done, &size));
    XT_CHECK_INT(size, INT_MAX);
}

XT_TEST(the_largest_message_is_told_as_what_an_int_can_hold)
{
    struct nccl_net_props_v12 props;
    void *ctx = init_v12(-1);

    XT_OK(ncclNetPlugin_v12.get_properties(0, &props));
    XT_CHECK(props.max_p2p_bytes <= INT_MAX && props.max_p2p_bytes > INT_MAX - 8192);
    max_bytes = 12345;
    XT_OK(ncclNetPlugin_v12.get_properties(0, &props));
    XT_CHECK_INT(props.max_p2p_bytes, 12345);
    XT_CHECK_INT(props.ptr_support, NCCL_PTR_HOST | NCCL_PTR_DMABUF);
    XT_CHECK_INT(props.rail_id, 2);
    XT_CHECK_INT(props.plane_id, NCCL_NET_UNDEFINED_ID);
    XT_CHECK_INT(props.max_comms, 7);
    XT_OK(ncclNetPlugin_v12.finalize(ctx));
    XT_CHECK_TEXT(props.name, "card"); /* outlives the instance */
    XT_CHECK_RC(ncclNetPlugin_v12.get_properties(0, &props), xcclInvalidUsage);
}

XT_TEST(merged_devices_are_there_in_later_instances_too)
{
    struct nccl_net_vprops_v12 members = {.ndevs = 6, .devs = {0, 1, 2, 3, 1, 2}};
    struct nccl_net_props_v12 all;
    struct nccl_net_props_v11 some;
    void *ctx = init_v12(-1), *later;
    int dev = -1, count = 0;

    XT_OK(ncclNetPlugin_v12.make_vdevice(&dev, &members));
    XT_CHECK_INT(dev, DEVICES);
    later = init_v12(-1);
    XT_OK(ncclNetPlugin_v12.finalize(ctx));
    XT_OK(ncclNetPlugin_v12.devices(&count));
    XT_CHECK_INT(count, DEVICES + 1);
    XT_OK(ncclNetPlugin_v12.get_properties(dev, &all));
    XT_CHECK_INT(all.members.ndevs, 6);
    XT_CHECK_INT(all.members.devs[5], 2);
    XT_OK(ncclNetPlugin_v11.get_properties(dev, &some));
    XT_CHECK_INT(some.members.ndevs, 4);
    XT_OK(ncclNetPlugin_v11.get_properties(1, &some));
    XT_CHECK(some.members.ndevs == 1 && some.members.devs[0] == 1);
    members.ndevs = 9;
    XT_CHECK_RC(ncclNetPlugin_v12.make_vdevice(&dev, &members), xcclInvalidArgument);
    XT_OK(ncclNetPlugin_v12.finalize(later));
}

/* As NCCL does, which merges for each communicator. */
XT_TEST(the_same_devices_are_merged_once)
{
    struct nccl_net_vprops_v12 members = {.ndevs = 2, .devs = {0, 1}};
    void *ctx = init_v12(-1), *later;
    int dev = -1, count = 0;

    for (int i = 0; i < 100; i++) {
        XT_OK(ncclNetPlugin_v12.make_vdevice(&dev, &members));
        XT_CHECK_INT(dev, DEVICES);
    }
    later = init_v12(-1);
    XT_OK(ncclNetPlugin_v12.finalize(ctx));
    XT_OK(ncclNetPlugin_v12.devices(&count));
    XT_CHECK_INT(count, DEVICES + 1);
    members.devs[1] = 2;
    XT_OK(ncclNetPlugin_v12.make_vdevice(&dev, &members));
    XT_CHECK_INT(dev, DEVICES + 1);
    XT_OK(ncclNetPlugin_v12.finalize(later));
}

/* What the plugin could not do in a second instance is its error there, not one of later merges. */
XT_TEST(a_merge_that_one_instance_cannot_repeat)
{
    struct nccl_net_vprops_v12 members = {.ndevs = 2, .devs = {0, 1}};
    void *behind = init_v12(-1), *first = init_v12(-1); /* the list's first is the newest */
    int dev = -1;

    merge_fails_in = 2;
    XT_OK(ncclNetPlugin_v12.make_vdevice(&dev, &members));
    members.devs[1] = 2;
    XT_OK(ncclNetPlugin_v12.make_vdevice(&dev, &members));
    XT_CHECK_INT(dev, DEVICES + 1);
    XT_OK(ncclNetPlugin_v12.finalize(first));
    members.devs[1] = 3;
    XT_CHECK_RC(ncclNetPlugin_v12.make_vdevice(&dev, &members), xcclInvalidUsage);
    XT_CHECK_TEXT(line, "no instance that merges devices: init comes first");
    XT_OK(ncclNetPlugin_v12.finalize(behind));
}

XT_TEST(merges_that_no_longer_fit_say_so)
{
    struct nccl_net_vprops_v12 members = {.ndevs = 3};
    void *ctx = init_v12(-1);
    int dev, rc = xcclSuccess, made = 0;

    for (; made < 1000 && rc == xcclSuccess; made++) {
        members.devs[0] = made % 10;
        members.devs[1] = made / 10 % 10;
        members.devs[2] = made / 100;
        rc = ncclNetPlugin_v12.make_vdevice(&dev, &members);
    }
    XT_CHECK_RC(rc, xcclInvalidUsage);
    XT_CHECK_INT(made, 65);
    XT_CHECK_TEXT(line, "this process has merged more devices than the plugin keeps");
    XT_OK(ncclNetPlugin_v12.finalize(ctx));
}

XT_TEST(a_dmabuf_is_registered_as_it_was_given)
{
    void *mem = NULL;

    XT_OK(ncclNetPlugin_v8.reg_mr_dmabuf(&one_comm, line, 4096, NCCL_PTR_CUDA, 8192, 77, &mem));
    XT_CHECK(mem == &one_comm);
}

XT_TEST(lines_and_codes_arrive_as_nccl_knows_them)
{
    void *ctx = init_v12(-1), *mem = NULL;

    plugin_log(xcclNetLogError, "a");
    plugin_log(xcclNetLogWarn, "b");
    plugin_log(xcclNetLogInfo, "c");
    plugin_log(xcclNetLogDebug, "100% d");
    XT_CHECK(level_count == 4 && levels[0] == NCCL_LOG_WARN && levels[1] == NCCL_LOG_WARN);
    XT_CHECK(levels[2] == NCCL_LOG_INFO && levels[3] == NCCL_LOG_TRACE);
    XT_CHECK_TEXT(line, "100% d");
    next_rc = xcclTimeout; /* NCCL has no such code */
    XT_CHECK_INT(ncclNetPlugin_v12.reg_mr(&one_comm, line, 1, NCCL_PTR_HOST, &mem),
                 xcclRemoteError);
    XT_CHECK_TEXT(line, "the fake plugin was told to fail");
    XT_CHECK_INT(level_count, 5);
    XT_OK(ncclNetPlugin_v12.finalize(ctx));
}

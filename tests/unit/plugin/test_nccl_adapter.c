/* SPDX-License-Identifier: BSD-3-Clause */
/* The adapters of NCCL's network plugins: layouts, the check of a table, instances, devices, and
 * that nothing stays behind when memory is short. test_nccl_messages.c has the rest. */
#include "plugin/net_plugin_int.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/inject.h"
#include "base/nccl_net_abi.h"
#include "nccl_fx.h"

#define TABLE_MAX 22

/* ---- layouts ---- */

XT_TEST(layouts_are_the_measured_ones)
{
    static const struct {
        size_t got, want;
    } facts[] = {
        {sizeof(struct nccl_net_v6), 136},
        {sizeof(struct nccl_net_v7), 152},
        {sizeof(struct nccl_net_v8), 152},
        {sizeof(struct nccl_net_v9), 160},
        {sizeof(struct nccl_net_v10), 160},
        {sizeof(struct nccl_net_v11), 176},
        {sizeof(struct nccl_net_props_v6), 48},
        {sizeof(struct nccl_net_props_v7), 56},
        {sizeof(struct nccl_net_props_v8), 64},
        {sizeof(struct nccl_net_props_v9), 104},
        {sizeof(struct nccl_net_props_v11), 112},
        {sizeof(struct nccl_net_props_v12), 128},
        {sizeof(struct nccl_net_attr), 44},
        {offsetof(struct nccl_net_props_v8, reg_is_global), 28},
        {offsetof(struct nccl_net_props_v9, force_flush), 32},
        {offsetof(struct nccl_net_props_v12, plane_id), 126},
        {offsetof(struct nccl_net_v6, close_listen), 16 * 8},
        {offsetof(struct nccl_net_v7, irecv_consumed), 18 * 8},
        {offsetof(struct nccl_net_v10, make_vdevice), 19 * 8},
        {offsetof(struct nccl_net_v11, finalize), 20 * 8},
        {offsetof(struct nccl_net_v11, set_net_attr), 21 * 8},
        {offsetof(struct nccl_source, inner), 0},
    };

    for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++)
        XT_CHECK_INT(facts[i].got, facts[i].want);
}

/* ---- the check ---- */

XT_TEST(a_missing_entry_is_named_and_optional_ones_may_be_missing)
{
    static const char *const names[TABLE_MAX] = {
        "name",        "init",    "devices",   "getProperties",
        "listen",      "connect", "accept",    "regMr",
        NULL,          "deregMr", "isend",     "irecv",
        NULL,          "test",    "closeSend", "closeRecv",
        "closeListen", NULL,      NULL,        NULL,
        "finalize",    NULL,
    };
    static const int counts[] = {17, 19, 19, 20, 20, 22, 22};

    for (int version = FIRST; version <= LAST; version++) {
        int count = counts[version - FIRST];
        const void *table[TABLE_MAX];
        struct net_reason reason = {""};
        struct fixture fx;

        fixture_load(&fx, version, "");
        XT_CHECK_INT(nccl_check(&fx.source, &reason), 1);
        for (int i = 0; i < count; i++) {
            struct nccl_source source = {.table = table, .version = version};

            memcpy(table, fx.source.table, (size_t)count * sizeof(table[0]));
            table[i] = NULL;
            XT_CHECK_INT(nccl_check(&source, &reason), names[i] == NULL);
            if (names[i])
                XT_CHECK_HAS(reason.text, names[i]);
        }
    }
}

XT_TEST(an_unknown_version_and_no_table_are_refused)
{
    static const void *const table[TABLE_MAX];
    struct nccl_source source = {.table = table, .version = 5};
    struct net_reason reason;

    XT_CHECK_INT(nccl_check(&source, &reason), 0);
    XT_CHECK_HAS(reason.text, "v5");
    source.version = 13;
    XT_CHECK_INT(nccl_check(&source, &reason), 0);
    source = (struct nccl_source){.version = 9};
    XT_CHECK_INT(nccl_check(&source, &reason), 0);
    source.table = (const char *)table + 1;
    XT_CHECK_INT(nccl_check(&source, &reason), 0);
    XT_CHECK(nccl_adapter(5) == NULL && nccl_adapter(13) == NULL);
}

XT_TEST(a_name_becomes_one_of_our_alphabet)
{
    static const char *const names[][2] = {
        {"AWS Libfabric", "aws-libfabric"},
        {"IB/\x01\xc3\xa4", "ib----"},
        {"", "nccl"},
        {"A name that is much longer than it may be here", "a-name-that-is-much-longer-than"},
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const void *table[1] = {names[i][0]};
        struct nccl_source source = {.table = table, .version = 9};
        char name[NCCL_NAME_BYTES];

        nccl_name(&source, name);
        XT_CHECK_TEXT(name, names[i][1]);
    }
}

XT_TEST(every_adapters_table_is_complete)
{
    for (int version = FIRST; version <= LAST; version++) {
        struct net_reason reason = {""};

        XT_CHECK_INT(net_contract_check(nccl_adapter(version), &reason), 1);
        XT_CHECK_INT(nccl_adapter(version)->wireVersion, 2);
        XT_CHECK(nccl_adapter(version)->progress != NULL);
    }
}

/* ---- instances and devices ---- */

XT_TEST(properties_are_translated)
{
    for (int version = FIRST; version <= LAST; version++) {
        xcclNetProperties_v1 props = {.size = sizeof(props)}, head = {.size = 24};
        struct fixture fx;
        int count = 0;

        fixture_open(&fx, version, "");
        FX_OK(&fx, fx.calls->devices(fx.ctx, &count));
        XT_CHECK_INT(count, 2);
        FX_OK(&fx, fx.calls->properties(fx.ctx, 1, &props));
        XT_CHECK_TEXT(props.name, "fx1");
        XT_CHECK_TEXT(props.pciPath, "/sys/devices/pci0000:00/0000:00:05.0");
        XT_CHECK(props.guid == 0xfa00000000000001ull);
        XT_CHECK_INT(props.speedMbps, 20000);
        XT_CHECK_INT(props.port, 2);
        XT_CHECK(props.latencyUs == 2.5f);
        XT_CHECK_INT(props.maxComms, 4096);
        XT_CHECK_INT(props.maxRecvs, fx.max_recvs);
        XT_CHECK_INT(props.ptrSupport, version == 6 ? 1 : 5);
        XT_CHECK_INT(props.regIsGlobal, version >= 8);
        XT_CHECK_INT(props.forceFlush, version >= 9);
        XT_CHECK_INT(props.needsProgress, 1);
        XT_CHECK_INT(props.memberCount, 0);
        XT_CHECK_INT(props.maxBytes, version >= 10 ? 0x7fffffff : 1 << 30);
        XT_CHECK(props.provider == NULL && props.railId == 0 && props.planeId == 0);
        memset(&props, 0, sizeof(props));
        props.size = sizeof(props);
        FX_OK(&fx, fx.calls->properties(fx.ctx, 0, &props));
        XT_CHECK(props.pciPath == NULL);
        XT_CHECK_INT(props.railId, version == 12 ? 4 : 0);
        XT_CHECK_INT(props.planeId, version == 12 ? 6 : 0);
        FX_OK(&fx, fx.calls->properties(fx.ctx, 0, &head));
        XT_CHECK(head.name && head.pciPath == NULL && head.guid == 0 && head.size == 24);
        XT_CHECK_INT(fx.calls->properties(fx.ctx, 2, &props), xcclInvalidArgument);
        XT_CHECK_HAS(text(&fx), "device 2 does not exist: there are 2 devices");
        fixture_close(&fx);
    }
}

XT_TEST(offload_devices_are_left_out_with_a_reason)
{
    for (int version = 7; version <= LAST; version++) {
        xcclNetProperties_v1 props = {.size = sizeof(props)};
        struct fixture fx;
        int count = 7;

        line_count = 0;
        xt_setenv("FX_NCCL_OFFLOAD", "1");
        fixture_open(&fx, version, "");
        FX_OK(&fx, fx.calls->devices(fx.ctx, &count));
        XT_CHECK_INT(count, 1);
        XT_CHECK_INT(lines_with("offload type 1"), 1);
        FX_OK(&fx, fx.calls->properties(fx.ctx, 0, &props));
        XT_CHECK_TEXT(props.name, "fx1");
        fixture_close(&fx);
        xt_setenv("FX_NCCL_OFFLOAD", "2");
        fixture_load(&fx, version, "");
        FX_OK(&fx, fixture_init(&fx));
        XT_CHECK_INT(fx.calls->devices(fx.ctx, &count), xcclInvalidUsage);
        XT_CHECK_HAS(text(&fx), "all 2 devices move data by code on a GPU");
        fixture_close(&fx);
    }
}

XT_TEST(an_init_error_has_the_warnings_in_order_and_leaves_nothing)
{
    struct fixture fx;

    xt_setenv("FX_NCCL_RESULT", "2");
    for (int version = FIRST; version <= LAST; version++) {
        fixture_load(&fx, version, "");
        XT_CHECK_INT(fixture_init(&fx), xcclSystemError);
        XT_CHECK_HAS(fx.calls->lastError(NULL), "fx-net init: ");
        XT_CHECK_HAS(fx.calls->lastError(NULL), ": fixture: the cause; fixture: told to fail");
    }
    xt_setenv("FX_NCCL_RESULT", "4711");
    XT_CHECK_INT(fixture_init(&fx), xcclInternalError);
    XT_CHECK_HAS(fx.calls->lastError(NULL), "(its result 4711)");
    xt_setenv("FX_NCCL_RESULT", "7");
    XT_CHECK_INT(fixture_init(&fx), xcclInternalError);
}

XT_TEST(old_versions_init_once_a_process_and_new_ones_once_an_instance)
{
    for (int version = FIRST; version <= LAST; version++) {
        struct fixture first, second;
        struct pair one, two;

        line_count = 0;
        fixture_open(&first, version, "");
        fixture_open(&second, version, "");
        XT_CHECK(first.ctx != second.ctx);
        XT_CHECK_INT(lines_with("init number 1"), 1);
        XT_CHECK_INT(lines_with("init number 2"), version >= 11);
        XT_CHECK_INT(lines_with("communicator 77"), version >= 11 ? 2 : 0);
        pair_open(&one, &first);
        pair_open(&two, &second);
        XT_CHECK(version < 10 || lines_with("traffic class 105") >= 2);
        wait_both(&one, post_send(&one, 0, 5, 1), post_one(&one, 0, 5, 1), &(size_t){0});
        pair_close(&one);
        fixture_close(&first);
        XT_CHECK_INT(lines_with("fixture: finalize"), version >= 11);
        wait_both(&two, post_send(&two, 0, 5, 1), post_one(&two, 0, 5, 1), &(size_t){0});
        pair_close(&two);
        fixture_close(&second);
    }
}

XT_TEST(a_table_that_init_fills_is_read_after_init)
{
    xt_setenv("FX_NCCL_LIKE", "fills");
    for (int version = FIRST; version <= LAST; version++) {
        struct net_reason reason = {""};
        char name[NCCL_NAME_BYTES];
        struct fixture fx;
        struct pair pair;
        size_t got = 0;

        fixture_load(&fx, version, "");
        XT_CHECK_INT(nccl_check(&fx.source, &reason), 0);
        XT_CHECK_HAS(reason.text, "devices is NULL");
        XT_CHECK_INT(nccl_check_init(&fx.source, &reason), 1);
        fixture_open(&fx, version, "");
        nccl_name(&fx.source, name);
        XT_CHECK_TEXT(name, "fx-net-mode-b");
        pair_open(&pair, &fx);
        wait_both(&pair, post_send(&pair, 0, 5, 1), post_one(&pair, 0, 9, 1), &got);
        XT_CHECK_INT(got, 5);
        pair_close(&pair);
        fixture_close(&fx);
    }
}

static int init_succeeds(void *ctx, void *config, void *log, void *profiler)
{
    (void)ctx, (void)config, (void)log, (void)profiler;
    return 0;
}

XT_TEST(a_table_that_is_not_whole_after_init_is_refused)
{
    const void *table[22] = {"half", (const void *)init_succeeds};

    for (int version = FIRST; version <= LAST; version++) {
        struct fixture fx = {.calls = nccl_adapter(version),
                             .source = {.inner = {.size = sizeof(xcclNetInner_v1)},
                                        .table = table,
                                        .version = version}};

        XT_CHECK_INT(fixture_init(&fx), xcclInternalError);
        XT_CHECK_HAS(text(&fx), "half init: after init, its entry devices is NULL");
    }
}

#define INIT_THREADS 4

static void *init_one(void *fx)
{
    static xcclResult_t failed = xcclInternalError;

    return fixture_init(fx) == xcclSuccess ? NULL : &failed;
}

/* The fixture fails in init when another thread is there. */
XT_TEST(one_thread_at_a_time_is_in_init)
{
    xt_setenv("FX_NCCL_LIKE", "slow-init");
    for (int version = FIRST; version <= LAST; version++) {
        struct fixture fx[INIT_THREADS];
        pthread_t threads[INIT_THREADS];

        for (int i = 0; i < INIT_THREADS; i++)
            fixture_load(&fx[i], version, "");
        for (int i = 0; i < INIT_THREADS; i++)
            XT_CHECK_INT(pthread_create(&threads[i], NULL, init_one, &fx[i]), 0);
        for (int i = 0; i < INIT_THREADS; i++) {
            void *failed = NULL;

            XT_CHECK_INT(pthread_join(threads[i], &failed), 0);
            XT_CHECK(failed == NULL);
        }
        for (int i = 0; i < INIT_THREADS; i++)
            fixture_close(&fx[i]);
    }
}

XT_TEST(two_plugins_of_one_old_version_live_side_by_side)
{
    xcclNetProperties_v1 props = {.size = sizeof(props)};
    struct fixture fx, other;
    char name[NCCL_NAME_BYTES];
    struct pair one, two;
    size_t got = 0;

    fixture_open(&fx, 8, "");
    fixture_open(&other, 8, "b");
    nccl_name(&other.source, name);
    XT_CHECK_TEXT(name, "fx-other");
    FX_OK(&other, other.calls->properties(other.ctx, 0, &props));
    XT_CHECK_TEXT(props.name, "fxb0");
    FX_OK(&fx, fx.calls->properties(fx.ctx, 0, &props));
    XT_CHECK_TEXT(props.name, "fx0");
    pair_open(&one, &fx);
    pair_open(&two, &other);
    for (size_t i = 1; i < 20; i++) {
        wait_both(&one, post_send(&one, 0, i, 1), post_one(&one, 0, 99, 1), &got);
        XT_CHECK_INT(got, i);
        wait_both(&two, post_send(&two, 0, 2 * i, 1), post_one(&two, 0, 99, 1), &got);
        XT_CHECK_INT(got, 2 * i);
    }
    pair_close(&one);
    fixture_close(&fx);
    wait_both(&two, post_send(&two, 0, 7, 1), post_one(&two, 0, 99, 1), &got);
    XT_CHECK_INT(got, 7);
    pair_close(&two);
    fixture_close(&other);
}

XT_TEST(devices_are_merged_where_the_plugin_can)
{
    for (int version = 9; version <= LAST; version++) {
        xcclNetProperties_v1 props = {.size = sizeof(props)};
        const int devs[] = {1, 0, 1, 0, 1};
        struct fixture fx;
        int dev = -5, count;

        fixture_open(&fx, version, "");
        if (version == 10) {
            XT_CHECK_INT(fx.calls->mergeDevices(fx.ctx, devs, 2, &dev), xcclInvalidUsage);
            XT_CHECK_HAS(text(&fx), "cannot merge devices");
            XT_CHECK_INT(dev, -5);
            fixture_close(&fx);
            continue;
        }
        FX_OK(&fx, fx.calls->mergeDevices(fx.ctx, devs, 2, &dev));
        XT_CHECK_INT(dev, 2);
        FX_OK(&fx, fx.calls->devices(fx.ctx, &count));
        XT_CHECK_INT(count, 3);
        FX_OK(&fx, fx.calls->properties(fx.ctx, dev, &props));
        XT_CHECK_TEXT(props.name, "fx+");
        XT_CHECK_INT(props.memberCount, 2);
        XT_CHECK_INT(props.members[0], 1);
        XT_CHECK_INT(props.members[1], 0);
        XT_CHECK_INT(fx.calls->mergeDevices(fx.ctx, devs, 5, &dev),
                     version == 12 ? xcclSuccess : xcclInvalidArgument);
        fixture_close(&fx);
    }
}

/* ---- plugins that talk nonsense ---- */

static int told_devices, told_recvs, told_members;
static size_t told_bytes;

static int devices_tells(int *count)
{
    *count = told_devices;
    return 0;
}

static int properties_tells(int dev, void *props_)
{
    struct nccl_net_props_v12 *props = props_;

    (void)dev;
    props->max_recvs = told_recvs;
    props->max_p2p_bytes = told_bytes;
    props->ptr_support = -1;
    props->speed = props->max_comms = -5;
    props->latency = -1;
    props->members.ndevs = told_members;
    memset(props->members.devs, 0x7f, sizeof(props->members.devs));
    return 0;
}

static int listen_result;

static int listen_tells(void *ctx, int dev, void *handle, void **comm)
{
    (void)ctx, (void)dev, (void)handle, (void)comm;
    return listen_result;
}

XT_TEST(properties_that_cannot_be_are_brought_into_range)
{
    static const struct {
        int recvs, want_recvs;
        size_t bytes, want_bytes;
    } told[] = {
        {0, 1, 0, (size_t)1 << 30},
        {-3, 1, 4096, 4096},
        {8, 8, (size_t)1 << 31, 0x7fffffff},
        {100, 8, SIZE_MAX, 0x7fffffff},
    };
    const void *table[TABLE_MAX];
    xcclNetListenComm_t listener = NULL;
    xcclNetHandle_t handle;
    struct fixture fx;

    fixture_load(&fx, 12, "");
    memcpy(table, fx.source.table, sizeof(table));
    table[2] = (const void *)devices_tells;
    table[3] = (const void *)properties_tells;
    table[4] = (const void *)listen_tells;
    fx.source.table = table;
    told_devices = -1;
    XT_CHECK_INT(fixture_init(&fx), xcclInternalError);
    told_devices = 0x7fffffff;
    XT_CHECK_INT(fixture_init(&fx), xcclInternalError);
    XT_CHECK_HAS(fx.calls->lastError(NULL), "it reports 2147483647 devices");
    told_devices = 1;
    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
        xcclNetProperties_v1 props = {.size = sizeof(props)};

        told_recvs = told[i].recvs;
        told_bytes = told[i].bytes;
        told_members = i & 1 ? 0x7fffffff : -1;
        FX_OK(&fx, fixture_init(&fx));
        FX_OK(&fx, fx.calls->properties(fx.ctx, 0, &props));
        XT_CHECK_TEXT(props.name, "device0");
        XT_CHECK_INT(props.maxRecvs, told[i].want_recvs);
        XT_CHECK_INT(props.maxBytes, told[i].want_bytes);
        XT_CHECK_INT(props.ptrSupport, 7);
        XT_CHECK(props.speedMbps == 0 && props.maxComms == 0 && props.latencyUs == 0);
        XT_CHECK(props.memberCount == 0 && props.railId == 0);
        XT_CHECK_INT(fx.calls->listen(fx.ctx, 0, &handle, &listener), xcclInternalError);
        XT_CHECK(listener == NULL);
        fixture_close(&fx);
    }
}

XT_TEST(an_old_warning_is_not_the_reason_of_a_later_error)
{
    const void *table[TABLE_MAX];
    xcclNetListenComm_t listener = NULL;
    xcclNetHandle_t handle;
    struct fixture fx;

    fixture_load(&fx, 11, "");
    memcpy(table, fx.source.table, sizeof(table));
    table[4] = (const void *)listen_tells;
    fx.source.table = table;
    xt_setenv("FX_NCCL_RESULT", "2");
    XT_CHECK_INT(fixture_init(&fx), xcclSystemError);
    xt_setenv("FX_NCCL_RESULT", NULL);
    FX_OK(&fx, fixture_init(&fx));
    listen_result = xcclSystemError;
    XT_CHECK_INT(fx.calls->listen(fx.ctx, 0, &handle, &listener), xcclSystemError);
    XT_CHECK_HAS(text(&fx), "fx-net listen: ");
    XT_CHECK_HAS(text(&fx), ": it does not say why");
    fixture_close(&fx);
}

/* ---- short of memory ---- */

/* A whole life with the k-th allocation failing. 1: it got through. */
static int live_once(struct fixture *fx, uint64_t k)
{
    const xcclNetPlugin_v1_t *calls = fx->calls;
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    xcclNetConnect_t state = NULL;
    struct pair pair = {.fx = fx};
    xcclResult_t rc;

    xccl_inject_arm(k);
    rc = fixture_init(fx);
    if (rc == xcclSuccess)
        rc = calls->listen(fx->ctx, 0, &pair.handle, &pair.listener);
    while (rc == xcclSuccess && (!pair.send || !pair.recv)) {
        XT_CHECK(!xccl_limit_passed(&limit));
        if (!pair.send)
            rc = calls->connect(fx->ctx, 0, &pair.handle, &state, &pair.send);
        if (rc == xcclSuccess && !pair.recv)
            rc = calls->accept(pair.listener, &pair.recv);
    }
    xccl_inject_arm(0);
    if (rc != xcclSuccess)
        XT_CHECK_HAS(calls->lastError(NULL), "no memory");
    if (pair.send)
        FX_OK(fx, calls->closeSend(pair.send));
    if (pair.recv)
        FX_OK(fx, calls->closeRecv(pair.recv));
    if (pair.listener)
        FX_OK(fx, calls->closeListen(pair.listener));
    if (state)
        FX_OK(fx, calls->closeConnect(fx->ctx, state));
    if (fx->ctx)
        fixture_close(fx);
    fx->ctx = NULL;
    return rc == xcclSuccess;
}

XT_TEST(each_allocation_may_fail_and_nothing_stays)
{
    xt_setenv("FX_NCCL_ADDR", "127.0.0.1");
    xt_setenv("XCCL_DEBUG_FILE", "/dev/null");
    xt_allow_leaks("what the plugin made for a connect that was given up is lost");
    for (int version = FIRST; version <= LAST; version++) {
        uint64_t live = xccl_alloc_live(), k = 0;
        struct fixture fx;

        fixture_load(&fx, version, "");
        do
            XT_CHECK_INT(xccl_alloc_live(), live);
        while (!live_once(&fx, ++k));
        XT_CHECK_INT(xccl_alloc_live(), live);
        /* An instance, two devices with names and a path, a listener, a connect, two comms. */
        XT_CHECK(k > 9 && k < 20);
    }
}

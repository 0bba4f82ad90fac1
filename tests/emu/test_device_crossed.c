/* SPDX-License-Identifier: BSD-3-Clause */
/* Several communicators of three devices, each on streams of its own, which are called for in
 * another order on each device. All blocks of a call have to be at work at a time, on all devices;
 * so each device needs room for all calls. On the stand-in, whose devices work only while the
 * program waits. */
#include "device_ranks.h"

#define COMMS_MOST 6
#define DEVICES    3
#define COUNT      (32u << 10)
#define ROUNDS     3

struct crossed {
    int comms;
    xccl_cu_ctx contexts[DEVICES];
    struct on_device on[COMMS_MOST][DEVICES]; /* by device */
};

static void on(const struct crossed *crossed, int device)
{
    CU(cuda->ctx_set(crossed->contexts[device]));
}

static void open_crossed(struct crossed *crossed, int comms, const char *timeout_s)
{
    static const int devices[] = {0, 1, 2};

    need_stand_in("it needs devices with few multiprocessors");
    xt_set_error_source(world_error);
    xt_setenv("XCCL_EMU_HOLD", "1");
    xt_setenv("XCCL_EMU_SMS", "8");
    xt_setenv("XCCL_ALGO", "all_reduce:ring");
    xt_setenv("XCCL_CUDA_CHANNELS", "8"); /* as many as there can be */
    xt_setenv("XCCL_PROTO", "lines");
    xt_setenv("XCCL_TIMEOUT_S", timeout_s);
    device_settings(NULL);
    device_open();
    crossed->comms = comms;
    for (int d = 0; d < DEVICES; d++)
        CU(cuda->ctx_retain(&crossed->contexts[d], d));
    for (int c = 0; c < comms; c++) {
        xcclComm_t all[DEVICES];

        XT_OK(xcclCommInitAll(all, DEVICES, devices));
        for (int d = 0; d < DEVICES; d++) {
            on(crossed, d);
            device_make(&crossed->on[c][d], COUNT * 4);
            crossed->on[c][d].comm = all[d];
        }
    }
}

static void close_crossed(struct crossed *crossed)
{
    for (int c = 0; c < crossed->comms; c++) {
        XT_OK(xcclGroupStart());
        for (int d = 0; d < DEVICES; d++)
            XT_OK(xcclCommDestroy(crossed->on[c][d].comm));
        XT_OK(xcclGroupEnd());
        for (int d = 0; d < DEVICES; d++)
            device_free(&crossed->on[c][d]);
    }
}

static void put(struct crossed *crossed, int round)
{
    for (int c = 0; c < crossed->comms; c++)
        for (int d = 0; d < DEVICES; d++)
            device_put(&crossed->on[c][d], COUNT, d, round + 10 * c);
}

static void check(struct crossed *crossed, int round)
{
    for (int c = 0; c < crossed->comms; c++)
        for (int d = 0; d < DEVICES; d++) {
            struct on_device *at = &crossed->on[c][d];
            const int32_t *got = device_get(at, COUNT);

            for (size_t i = 0; i < COUNT; i++) {
                int32_t want = sum_of(DEVICES, i, round + 10 * c);

                if (got[i] != want)
                    XT_FAIL("communicator %d, device %d: element %zu is %d, not %d", c, d, i,
                            (int)got[i], (int)want);
            }
        }
}

static xcclResult_t try_sum(struct on_device *at)
{
    return xcclAllReduce((void *)(uintptr_t)at->in, (void *)(uintptr_t)at->out, COUNT, xcclInt32,
                         xcclSum, at->comm, at->stream);
}

static void sum(struct on_device *at)
{
    XT_OK(try_sum(at));
}

/* Makes links. */
static void call_each(struct crossed *crossed)
{
    put(crossed, 0);
    for (int c = 0; c < crossed->comms; c++) {
        XT_OK(xcclGroupStart());
        for (int d = 0; d < DEVICES; d++)
            sum(&crossed->on[c][d]);
        XT_OK(xcclGroupEnd());
    }
    check(crossed, 0);
}

static void run(int comms)
{
    struct crossed crossed;

    open_crossed(&crossed, comms, "8");
    call_each(&crossed);
    for (int round = 1; round < ROUNDS; round++) {
        put(&crossed, round);
        for (int d = 0; d < DEVICES; d++)
            for (int k = 0; k < comms; k++)
                sum(&crossed.on[(k + d) % comms][d]);
        check(&crossed, round);
    }
    close_crossed(&crossed);
}

XT_TEST(two_communicators_may_cross)
{
    run(2);
}

XT_TEST(three_communicators_may_cross)
{
    run(3);
}

XT_TEST(four_communicators_may_cross)
{
    run(4);
}

/* Each device has begun four of five; two are at work on all of them, and end. */
XT_TEST(five_communicators_of_three_devices_may_cross)
{
    run(5);
}

/* Waits until all kernels have ended or failed, and returns the seconds. Each device begins four of
 * six communicators, and none is at work on all. */
static double await_all(struct crossed *crossed)
{
    double start = xt_seconds();

    for (int c = 0; c < crossed->comms; c++)
        for (int d = 0; d < DEVICES; d++)
            while (cuda->stream_query(crossed->on[c][d].stream) == XCCL_CU_NOT_READY)
                XT_CHECK(xt_seconds() - start < 20);
    return xt_seconds() - start;
}

XT_TEST(communicators_without_room_end_with_advice)
{
    struct crossed crossed;
    int failed = 0;

    open_crossed(&crossed, 6, "1");
    call_each(&crossed);
    for (int d = 0; d < DEVICES; d++)
        for (int k = 0; k < crossed.comms; k++)
            (void)try_sum(&crossed.on[(k + 2 * d) % crossed.comms][d]);
    XT_CHECK(await_all(&crossed) < xt_bound(5, 10));
    for (int c = 0; c < crossed.comms; c++) {
        xcclComm_t comm = crossed.on[c][0].comm;
        xcclResult_t rc;

        XT_OK(xcclCommGetAsyncError(comm, &rc));
        if (!rc)
            continue;
        failed++;
        XT_CHECK_INT(rc, xcclTimeout);
        XT_CHECK_HAS(xcclGetLastError(comm), "has not begun the call, behind other work");
        XT_CHECK_HAS(xcclGetLastError(comm), "at most four communicators at a time");
        XT_CHECK_HAS(xcclGetLastError(comm), "XCCL_CUDA_CHANNELS");
    }
    XT_CHECK(failed > 0);
    close_crossed(&crossed);
}

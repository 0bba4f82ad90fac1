/* SPDX-License-Identifier: BSD-3-Clause */
/* Which way links of CUDA communicators go, and the reasons that records, reports and the log give
 * for it: between ranks of a device, of a process and of several, with and without access between
 * devices, over networks with and without cards that reach device memory. */
#include "device_scene.h"

/* --- processes --- */

static void act(int rank, int nranks, void *arg)
{
    const struct scene *scene = arg;
    struct on_device on;
    xccl_cu_ctx ctx;

    device_settings(scene->setting);
    device_open();
    CU(cuda->ctx_retain(&ctx, rank % scene->devices));
    CU(cuda->ctx_set(ctx)); /* its stream and memory are of that device */
    device_make(&on, WAYS_COUNT * 4);
    on.comm = join_on(scene->world, rank, nranks, rank % scene->devices);
    call_all(&on, rank, nranks);
    if (rank == 0 && scene->want.kind)
        check_way(rank, &scene->want);
    for (int i = 0; scene->ways && i < 3 && scene->ways[rank][i].kind; i++)
        check_way(rank, &scene->ways[rank][i]);
    XT_OK(xcclCommDestroy(on.comm));
    device_free(&on);
}

static void run(int nranks, struct scene *scene)
{
    if (scene->devices > 1 && !getenv("XT_CUDA_LIBRARY"))
        XT_SKIP("it needs the stand-in's devices");
    xt_setenv("XCCL_RECORD_DIR", xt_tmpdir());
    scene->world = world_create();
    xt_mp_run(nranks, act, scene);
}

XT_TEST(processes_share_device_memory_by_handles)
{
    struct scene scene = {.devices = 1, .want = {XCCL_RECORD_WAY_HANDLE, "1-2", "1-2", ""}};

    need_stand_in("a machine's device may have none");
    run(3, &scene);
}

XT_TEST(processes_share_device_memory_by_ipc)
{
    struct scene scene = {.devices = 1,
                          .want = {XCCL_RECORD_WAY_IPC, "1", NULL, "XCCL_CUDA_CUMEM=0 on rank 1"}};

    xt_setenv("XCCL_CUDA_CUMEM", "0");
    run(3, &scene);
}

XT_TEST(a_setting_that_keeps_links_in_host_memory_is_named)
{
    struct scene scene = {.setting = "pinned",
                          .devices = 1,
                          .want = {XCCL_RECORD_WAY_PINNED, "1", NULL, "XCCL_CUDA_P2P=0 on rank 1"}};

    run(2, &scene);
}

XT_TEST(devices_that_do_not_reach_each_other_are_named)
{
    struct scene scene = {.devices = 2,
                          .want = {XCCL_RECORD_WAY_PINNED, "1", NULL,
                                   "the devices of ranks 0 and 1 have no peer access"}};

    xt_setenv("XCCL_EMU_NO_PEER", "1");
    run(2, &scene);
}

/* What devices 0 and 3 cannot reach of each other changes nothing for the other pairs. */
static const struct expected one_pair[4][3] = {
    {{XCCL_RECORD_WAY_HANDLE, "1-2", "1-2", ""},
     {XCCL_RECORD_WAY_PINNED, "3", "3", "the devices of ranks 0 and 3 have no peer access"}},
    {{XCCL_RECORD_WAY_HANDLE, "0,2-3", "0,2-3", ""}},
    {{XCCL_RECORD_WAY_HANDLE, "0-1,3", "0-1,3", ""}},
    {{XCCL_RECORD_WAY_HANDLE, "1-2", "1-2", ""},
     {XCCL_RECORD_WAY_PINNED, "0", "0", "the devices of ranks 0 and 3 have no peer access"}}};

XT_TEST(one_pair_of_devices_that_do_not_reach_each_other_leaves_the_others_direct)
{
    struct scene scene = {.devices = 4, .ways = one_pair};

    xt_setenv("XCCL_EMU_NO_PEER", "3");
    run(4, &scene);
}

XT_TEST(a_network_without_device_memory_is_named)
{
    struct scene scene = {.setting = "net",
                          .devices = 1,
                          .want = {XCCL_RECORD_WAY_NET_PINNED, NULL, NULL,
                                   "XCCL_SHM_DISABLE=1; the plugin does not accept device memory"}};

    run(3, &scene);
}

/* Rank 0 sees its own device only. */
static void hide(int rank, int nranks, void *arg)
{
    if (rank == 0)
        xt_setenv("XCCL_EMU_DEVICES", "1");
    act(rank, nranks, arg);
}

XT_TEST(a_device_that_a_process_does_not_see_is_named)
{
    struct scene scene = {.devices = 2,
                          .want = {XCCL_RECORD_WAY_PINNED, NULL, "1",
                                   "the process of rank 0 does not see the device of rank 1"}};

    need_stand_in("it needs the stand-in's devices");
    xt_setenv("XCCL_RECORD_DIR", xt_tmpdir());
    scene.world = world_create();
    xt_mp_run(2, hide, &scene);
}

/* --- several ranks of one process --- */

static void join_all(xcclComm_t *comms, int nranks, const int *devices)
{
    xt_setenv("XCCL_RECORD_DIR", xt_tmpdir());
    xt_set_error_source(world_error);
    device_settings(NULL);
    device_open();
    XT_OK(xcclCommInitAll(comms, nranks, devices));
}

static void leave_all(const xcclComm_t *comms, int nranks)
{
    for (int i = 0; i < nranks; i++)
        XT_OK(xcclCommDestroy(comms[i]));
}

XT_TEST(ranks_of_a_process_share_their_device)
{
    const struct expected want = {XCCL_RECORD_WAY_SAME_DEVICE, "0,2-3", "0,2-3", ""};
    const int devices[4] = {0};
    xcclComm_t comms[4];

    join_all(comms, 4, devices);
    check_way(1, &want);
    leave_all(comms, 4);
}

XT_TEST(ranks_of_a_process_reach_the_devices_of_each_other)
{
    const struct expected same = {XCCL_RECORD_WAY_SAME_DEVICE, "2", "2", ""};
    const struct expected other = {XCCL_RECORD_WAY_PEER_ACCESS, "1", "1", ""};
    const int devices[3] = {0, 1, 0};
    xcclComm_t comms[3];

    need_stand_in("it needs the stand-in's devices");
    join_all(comms, 3, devices);
    check_way(0, &same);
    check_way(0, &other);
    leave_all(comms, 3);
}

XT_TEST(one_pair_of_a_process_that_is_apart_leaves_the_others_direct)
{
    const struct expected near = {XCCL_RECORD_WAY_PEER_ACCESS, "1-2", "1-2", ""};
    const struct expected all = {XCCL_RECORD_WAY_PEER_ACCESS, "0-1,3", "0-1,3", ""};
    const struct expected far = {XCCL_RECORD_WAY_PINNED, "3", "3", "the devices of ranks 0 and 3"};
    const int devices[4] = {0, 1, 2, 3};
    xcclComm_t comms[4];

    need_stand_in("it needs the stand-in's devices");
    xt_setenv("XCCL_EMU_NO_PEER", "3");
    join_all(comms, 4, devices);
    check_way(0, &near);
    check_way(0, &far);
    check_way(2, &all);
    leave_all(comms, 4);
}

/* --- network cards, as threads over the verbs library of one process --- */

#define IB_PLUGIN  XT_BUILD_DIR "/lib/xccl/libxccl-net-ib.so"
#define IB_LIBRARY XT_BUILD_DIR "/lib/fixtures/libverbs-fixture.so"

static void run_by_card(const char *gdr, int any, struct expected want)
{
    struct scene scene = {.want = want, .any = any};

    if (access(IB_PLUGIN, R_OK) != 0)
        XT_SKIP("net-ib is not built: there is no infiniband/verbs.h");
    xt_setenv("XCCL_IB_LIBRARY", IB_LIBRARY);
    run_over(IB_PLUGIN, gdr, &scene);
}

XT_TEST(a_card_that_reaches_device_memory_is_told)
{
    need_stand_in("the fixture's cards reach the stand-in's memory alone");
    run_by_card("on", 0,
                (struct expected){XCCL_RECORD_WAY_NET_DEVICE, NULL, "1", "by DMA-BUF, flushed"});
}

XT_TEST(a_card_of_another_pci_root_is_named)
{
    run_by_card("auto", 0,
                (struct expected){XCCL_RECORD_WAY_NET_PINNED, "1", NULL,
                                  "card and device are on different PCI roots"});
}

XT_TEST(a_setting_that_keeps_cards_from_device_memory_is_named)
{
    run_by_card("off", 0,
                (struct expected){XCCL_RECORD_WAY_NET_PINNED, "1", NULL, "XCCL_CUDA_GDR is off"});
}

XT_TEST(a_registration_that_is_refused_is_named)
{
    xt_setenv("VERBS_FIXTURE_FAIL", "reg_dmabuf_mr");
    run_by_card("on", 0,
                (struct expected){XCCL_RECORD_WAY_NET_PINNED, "1", NULL, "registration refused: "});
}

XT_TEST(a_driver_that_gives_no_dma_buf_is_named)
{
    need_stand_in("of the stand-in alone");
    xt_setenv("XCCL_EMU_FAIL", "cuMemGetHandleForAddressRange:1");
    run_by_card("on", 1,
                (struct expected){XCCL_RECORD_WAY_NET_PINNED, NULL, NULL, "no device memory: "});
}

/* --- how they are shown --- */

XT_TEST(reports_show_ways_and_reasons)
{
    const char *argv[] = {XT_BUILD_DIR "/bin/xccl", "report", NULL, NULL};
    const int devices[2] = {0};
    xcclComm_t comms[2];
    const char *output;

    join_all(comms, 2, devices);
    XT_CHECK_INT(xt_run_program(argv, &output), 0);
    XT_CHECK_HAS(output, "links to and from ranks");
    XT_CHECK_HAS(output, "     0 to 1, from 1: memory of the same device\n");
    argv[2] = "-J";
    XT_CHECK_INT(xt_run_program(argv, &output), 0);
    XT_CHECK_HAS(output, "\"ways\": [{\"way\": \"same_device\", \"to\": \"1\", \"from\": \"1\", "
                         "\"why\": null}]");
    leave_all(comms, 2);
}

XT_TEST(the_log_has_a_line_a_communicator)
{
    const int devices[2] = {0};
    xcclComm_t comms[2];
    char path[512], text[8192];
    size_t bytes;
    FILE *file;

    snprintf(path, sizeof path, "%s/log", xt_tmpdir());
    xt_setenv("XCCL_DEBUG", "info");
    xt_setenv("XCCL_DEBUG_FILE", path);
    xt_setenv("XCCL_CUDA_P2P", "0");
    join_all(comms, 2, devices);
    leave_all(comms, 2);
    file = fopen(path, "r");
    XT_CHECK(file != NULL);
    bytes = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[bytes] = '\0';
    XT_CHECK_HAS(text, "CUDA device 0, links: from 1 by pinned host memory (XCCL_CUDA_P2P=0 on "
                       "rank 0); to 1 by pinned host memory (XCCL_CUDA_P2P=0 on rank 1)");
}

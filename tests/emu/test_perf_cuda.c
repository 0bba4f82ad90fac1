/* SPDX-License-Identifier: BSD-3-Clause */
/* `xccl perf --device cuda` through the built program: collectives with every element compared,
 * graphs, registered buffers, latency, random groups over several communicators, and what it says
 * where it cannot. Figures are not judged.
 *
 * Thread: one a test. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cuda_driver.h"
#include "xt.h"

#define XCCL     XT_BUILD_DIR "/bin/xccl"
#define LISTENER XT_BUILD_DIR "/lib/fixtures/libnvtx-listener.so"
#define ARGS_MAX 40

/* Runs `xccl perf` with the words of args, and the driver that is tested; its exit status. */
static int run_perf(const char *args, const char **output_out)
{
    char words[512], *rest = NULL;
    const char *argv[ARGS_MAX + 1] = {XCCL, "perf"};
    int count = 2, status;

    snprintf(words, sizeof words, "%s", args);
    for (char *word = strtok_r(words, " ", &rest); word && count < ARGS_MAX;
         word = strtok_r(NULL, " ", &rest))
        argv[count++] = word;
    status = xt_run_program(argv, output_out);
    XT_CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void need_driver(void)
{
    const char *library = getenv("XT_CUDA_LIBRARY");

    xt_allow_leaks("a CUDA driver keeps threads and descriptors");
    if (library)
        xt_setenv("XCCL_CUDA_LIBRARY", library);
    if (!xccl_cuda_driver())
        XT_SKIP("%s", xccl_cuda_why_not());
}

/* All is right, and the table names devices. */
static const char *measure(const char *args)
{
    const char *output;

    if (run_perf(args, &output))
        XT_FAIL("%s", xt_why(output));
    XT_CHECK_HAS(output, "device 0 ");
    XT_CHECK_HAS(output, "Out of bounds values : 0 OK");
    return output;
}

XT_TEST_DEADLINE(collectives_are_right_on_devices, 120)
{
    static const char *const colls[] = {
        "all_reduce", "all_gather", "broadcast", "reduce",          "reduce_scatter", "alltoall",
        "gather",     "scatter",    "sendrecv",  "reduce_scatterv", "alltoallv",      "barrier"};

    need_driver();
    for (size_t i = 0; i < sizeof colls / sizeof colls[0]; i++) {
        char args[128];

        snprintf(args, sizeof args, "%s --ranks %d --device cuda -b 0 -e 40000 -f 40 -n 2 -w 1",
                 colls[i], 2 + (int)i % 2);
        measure(args);
    }
}

XT_TEST_DEADLINE(types_and_operators_are_right_on_devices, 120)
{
    need_driver();
    measure("all_reduce --ranks 2 --device cuda -b 4K -e 4K -n 2 -w 0 -d all -o all");
}

XT_TEST_DEADLINE(graphs_are_replayed_and_buffers_registered, 60)
{
    need_driver();
    measure("all_reduce --ranks 2 --device cuda -b 4 -e 40000 -f 100 -n 3 -G 4 -R 1");
    measure("all_gather -t 2 --device cuda -b 4K -e 4K -n 3 -m 4 -G 2 -I");
}

XT_TEST_DEADLINE(latency_is_measured_on_devices, 60)
{
    need_driver();
    measure("latency --ranks 3 --device cuda -n 10 -e 256");
}

/* Several messages between two ranks, and communicators that each rank calls in another order. */
XT_TEST_DEADLINE(random_groups_are_right_on_devices, 120)
{
    char args[128];

    need_driver();
    for (int i = 0; i < 4; i++) {
        snprintf(args, sizeof args,
                 "groups --ranks %d --device cuda --groups 40 --comms %d --seed %d -T 20", 2 + i,
                 1 + 2 * i, 20 + i);
        measure(args);
    }
}

XT_TEST_DEADLINE(random_groups_are_right_between_threads_and_over_sockets, 120)
{
    need_driver();
    measure("groups -t 3 --device cuda --groups 40 --seed 5 -T 20");
    xt_setenv("XCCL_SHM_DISABLE", "1");
    measure("groups --ranks 3 --device cuda --groups 40 --seed 6 -T 20");
}

/* What NVIDIA's tools see of a program: each public call is a range, opened and closed. */
XT_TEST_DEADLINE(calls_are_ranges_of_nvtx, 60)
{
    static const char *const calls[] = {
        "xcclCommInitRankConfig", "xcclAllReduce", "xcclSend",       "xcclRecv",
        "xcclAllGatherv",         "xcclGroupEnd",  "xcclCommDestroy"};
    char path[512], line[128], name[64];
    long opened, closed;
    int found = 0;
    FILE *file;

    need_driver();
    if (access(LISTENER, R_OK) != 0)
        XT_SKIP("built without NVTX: its headers come with nvcc");
    snprintf(path, sizeof path, "%s/ranges", xt_tmpdir());
    xt_setenv("NVTX_INJECTION64_PATH", LISTENER);
    xt_setenv("NVTX_LISTENER_FILE", path);
    measure("all_reduce -t 2 --device cuda -b 4K -e 4K -n 3 -w 0");
    measure("sendrecv -t 2 --device cuda -b 4K -e 4K -n 3 -w 0");
    measure("all_gatherv -t 2 --device cuda -b 4K -e 4K -n 3 -w 0");
    file = fopen(path, "re");
    XT_CHECK(file != NULL);
    while (fgets(line, sizeof line, file)) {
        XT_CHECK_INT(sscanf(line, "%63s %ld %ld", name, &opened, &closed), 3);
        XT_CHECK(opened > 0);
        XT_CHECK_INT(opened, closed);
        for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
            found |= strcmp(name, calls[i]) == 0 ? 1 << i : 0;
    }
    fclose(file);
    XT_CHECK_INT(found, (1 << sizeof calls / sizeof calls[0]) - 1);
}

XT_TEST(what_devices_do_not_do_is_refused)
{
    const char *output;

    XT_CHECK_INT(run_perf("all_reduce --device disk", &output), 2);
    XT_CHECK_HAS(output, "--device disk: must be host or cuda");
    XT_CHECK_INT(run_perf("all_reduce -G 3", &output), 2);
    XT_CHECK_HAS(output, "graphs need --device cuda");
    XT_CHECK_INT(run_perf("all_reduce --ranks 2 --device cuda --vs-mpi", &output), 2);
    XT_CHECK_HAS(output, "--vs-mpi");
    xt_setenv("XCCL_CUDA_LIBRARY", "/nowhere/libcuda.so.1");
    XT_CHECK_INT(run_perf("all_reduce --ranks 1 --device cuda", &output), 1);
    XT_CHECK_HAS(output, "there is no CUDA driver");
    XT_CHECK_HAS(output, "use --device host");
}

/* NCCL's contract promises no sizes, and a device's memory has no place for a length. */
XT_TEST(a_plugin_that_tells_no_sizes_is_named)
{
    const char *output = NULL;

    need_driver();
    xt_setenv("FX_NCCL_LIKE", "no-size");
    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_NET_PLUGIN", XT_BUILD_DIR "/lib/fixtures/libnccl-net-fx-v12.so");
    XT_CHECK_INT(run_perf("all_reduce --ranks 2 --device cuda -b 64 -e 64", &output), 1);
    XT_CHECK_HAS(output, "network plugin fx-net does not say how large the messages are");
    XT_CHECK_HAS(output, "use another plugin with CUDA devices");
}

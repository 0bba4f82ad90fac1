/* SPDX-License-Identifier: BSD-3-Clause */
/* device_bench [RANKS [CHANNELS]]: the interpreter beside hand-written kernels, on one device. The
 * ranks are of one process; a call of all of them is captured in a graph of ten, and graphs of both
 * kinds are replayed by turns, so that neither the program nor the launches count. Medians of 15
 * rounds. Also what a step costs: rings of more ranks have more of them. Thread: one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cuda_driver.h"
#include "raw_kernels.h"
#include "xccl.h"

#define ROUNDS 15
#define CALLS  10 /* of a graph */
#define MOST   (256u << 20)

__asm__(".pushsection .rodata\n"
        ".balign 16\n"
        ".local raw_image\n"
        "raw_image:\n"
        ".incbin \"" RAW_IMAGE "\"\n"
        ".popsection\n");
extern const char raw_image[];

static const struct xccl_cuda_driver *cuda;

static void cu(xccl_cu_result rc, const char *what)
{
    if (!rc)
        return;
    (void)xccl_cuda_result(rc, what);
    fprintf(stderr, "device_bench: %s fails (%d)\n", what, rc);
    exit(1);
}

static void check(xcclResult_t rc)
{
    if (!rc)
        return;
    fprintf(stderr, "device_bench: %s\n", xcclGetLastError(NULL));
    exit(1);
}

struct bench {
    int nranks, channels;
    xcclComm_t comms[RAW_RANKS];
    xccl_cu_stream stream;
    xccl_cu_ptr in[RAW_RANKS], out[RAW_RANKS], slots, flags;
    xccl_cu_function ring, oneshot;
    xccl_cu_event begin, end;
};

static void open_bench(struct bench *bench, const char *algo, const char *proto)
{
    const int devices[RAW_RANKS] = {0};
    char channels[16];

    snprintf(channels, sizeof channels, "%d", bench->channels);
    setenv("XCCL_ALGO", algo, 1);
    setenv("XCCL_PROTO", proto, 1);
    setenv("XCCL_CUDA_CHANNELS", channels, 1);
    setenv("XCCL_BUFFER_BYTES", "256M", 1);
    check(xcclCommInitAll(bench->comms, bench->nranks, devices));
}

static void close_bench(struct bench *bench)
{
    for (int r = 0; r < bench->nranks; r++)
        check(xcclCommDestroy(bench->comms[r]));
}

static xccl_cu_graph_exec end_capture(struct bench *bench)
{
    xccl_cu_graph graph;
    xccl_cu_graph_exec exec;

    cu(cuda->stream_end_capture(bench->stream, &graph), "the end of a capture");
    cu(cuda->graph_instantiate(&exec, graph, 0), "a graph");
    cu(cuda->graph_destroy(graph), "a graph");
    return exec;
}

static xccl_cu_graph_exec capture_ours(struct bench *bench, size_t count)
{
    for (int pass = 0; pass < 2; pass++) { /* the first one makes plans */
        if (pass)
            cu(cuda->stream_begin_capture(bench->stream, XCCL_CU_CAPTURE_MODE_GLOBAL), "a capture");
        for (int i = 0; i < (pass ? CALLS : 1); i++) {
            check(xcclGroupStart());
            for (int r = 0; r < bench->nranks; r++)
                check(xcclAllReduce((void *)(uintptr_t)bench->in[r],
                                    (void *)(uintptr_t)bench->out[r], count, xcclFloat32, xcclSum,
                                    bench->comms[r], (xcclStream_t)bench->stream));
            check(xcclGroupEnd());
        }
    }
    return end_capture(bench);
}

static xccl_cu_graph_exec capture_raw(struct bench *bench, xccl_cu_function function, size_t count,
                                      int channels)
{
    struct raw_args args = {.nranks = (uint32_t)bench->nranks,
                            .channels = (uint32_t)channels,
                            .count = count,
                            .slots = bench->slots,
                            .flags = bench->flags};
    void *parameters[] = {&args};

    memcpy(args.in, bench->in, sizeof args.in);
    memcpy(args.out, bench->out, sizeof args.out);
    cu(cuda->set_bytes(bench->flags, 0, 1 << 20, bench->stream), "flags");
    cu(cuda->set_bytes(bench->slots, 0, 64 << 20, bench->stream), "slots");
    cu(cuda->stream_begin_capture(bench->stream, XCCL_CU_CAPTURE_MODE_GLOBAL), "a capture");
    for (int i = 0; i < CALLS; i++)
        cu(cuda->launch(function, (unsigned)(bench->nranks * channels), 1, 1, 512, 1, 1, 0,
                        bench->stream, parameters, NULL),
           "a launch");
    return end_capture(bench);
}

/* Microseconds of a call. */
static double replay(struct bench *bench, xccl_cu_graph_exec exec)
{
    float ms;

    cu(cuda->event_record(bench->begin, bench->stream), "an event");
    cu(cuda->graph_launch(exec, bench->stream), "a replay");
    cu(cuda->event_record(bench->end, bench->stream), "an event");
    cu(cuda->event_sync(bench->end), "waiting");
    cu(cuda->event_elapsed(&ms, bench->begin, bench->end), "a time");
    return (double)ms * 1000 / CALLS;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof *values, compare);
    return values[ROUNDS / 2];
}

/* Both, by turns: their medians. */
static void pair(struct bench *bench, xccl_cu_graph_exec ours, xccl_cu_graph_exec raw,
                 double *ours_out, double *raw_out)
{
    double a[ROUNDS], b[ROUNDS];

    (void)replay(bench, ours);
    (void)replay(bench, raw);
    for (int i = 0; i < ROUNDS; i++) {
        a[i] = replay(bench, ours);
        b[i] = replay(bench, raw);
    }
    *ours_out = median(a);
    *raw_out = median(b);
    cu(cuda->graph_exec_destroy(ours), "a graph");
    cu(cuda->graph_exec_destroy(raw), "a graph");
}

static void compare_all(struct bench *bench, const char *name, xccl_cu_function function,
                        const size_t *counts, int number)
{
    for (int i = 0; i < number; i++) {
        double bytes = (double)counts[i] * 4, ours, raw, factor;

        pair(bench, capture_ours(bench, counts[i]),
             capture_raw(bench, function, counts[i], bench->channels), &ours, &raw);
        factor = 2.0 * (bench->nranks - 1) / bench->nranks;
        printf("%-8s %d ranks %2d blocks %10.0f B  ours %8.2f us %7.1f GB/s  by hand %8.2f us "
               "%7.1f GB/s  ratio %.3f\n",
               name, bench->nranks, bench->channels, bytes, ours, bytes * factor / ours / 1000, raw,
               bytes * factor / raw / 1000, ours / raw);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    static const size_t large[] = {1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26};
    static const size_t small[] = {16, 256, 1024, 4096, 16384};
    struct bench bench = {.nranks = argc > 1 ? atoi(argv[1]) : 2,
                          .channels = argc > 2 ? atoi(argv[2]) : 8};
    xccl_cu_module module;
    xccl_cu_device device;
    xccl_cu_ctx ctx;

    cuda = xccl_cuda_driver();
    if (!cuda) {
        fprintf(stderr, "device_bench: %s\n", xccl_cuda_why_not());
        return 77;
    }
    cu(cuda->device_get(&device, 0), "device 0");
    cu(cuda->ctx_retain(&ctx, device), "a context");
    cu(cuda->ctx_set(ctx), "a context");
    cu(cuda->module_load(&module, raw_image), "the kernels");
    cu(cuda->module_function(&bench.ring, module, "raw_ring"), "raw_ring");
    cu(cuda->module_function(&bench.oneshot, module, "raw_oneshot"), "raw_oneshot");
    cu(cuda->stream_create(&bench.stream, XCCL_CU_STREAM_NON_BLOCKING), "a stream");
    cu(cuda->event_create(&bench.begin, 0), "an event");
    cu(cuda->event_create(&bench.end, 0), "an event");
    for (int r = 0; r < bench.nranks; r++) {
        cu(cuda->mem_alloc(&bench.in[r], MOST), "memory");
        cu(cuda->mem_alloc(&bench.out[r], MOST), "memory");
        cu(cuda->set_bytes(bench.in[r], 0, MOST, bench.stream), "memory");
    }
    cu(cuda->mem_alloc(&bench.slots, (size_t)RAW_RANKS * 32 * RAW_SLOTS * RAW_SLOT_BYTES),
       "memory");
    cu(cuda->mem_alloc(&bench.flags, 1 << 20), "memory");
    open_bench(&bench, "all_reduce:ring", "slices");
    compare_all(&bench, "ring", bench.ring, large, 5);
    close_bench(&bench);
    bench.channels = 4;
    open_bench(&bench, "all_reduce:oneshot", "lines");
    compare_all(&bench, "oneshot", bench.oneshot, small, 5);
    close_bench(&bench);
    return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the trace hook share. Lines of a comm's data path are gathered in a buffer of
 * that comm, which the comm's thread alone touches, and written whole when it is full, when a tenth
 * of a second has passed, and at the close; all other lines are written at once. */
#ifndef TRACE_INT_H
#define TRACE_INT_H

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/clock.h"
#include "net_hook.h"

#define TRACE_BUFFER_BYTES 4096 /* what a pipe takes whole */
#define TRACE_LINE_BYTES   512

/* Where lines go. */
struct trace_sink {
    int fd;
    int is_file; /* fd is ours */
    uint64_t epoch_ns; /* since 1970 when the monotonic clock was 0 */
    /* Relaxed: lines lost is only told, and stuck only makes waits shorter. */
    _Atomic uint64_t lost;
    _Atomic int stuck; /* the last write found no room in time */
};

struct trace_buffer {
    struct trace_sink *sink;
    uint64_t flushed_ns;
    uint32_t used, lines;
    char text[TRACE_BUFFER_BYTES];
};

/* One call. */
struct trace_span {
    const char *entry;
    uint64_t start_ns;
};

struct trace_ctx {
    struct hook_ctx base;
    struct trace_sink sink;
    /* progress: its thread's; lines only where pending changes. */
    struct trace_buffer buffer;
    uint64_t progress_calls, progress_told;
    int pending;
};

struct trace_listen {
    struct hook_listen base;
    uint64_t again; /* accepts that were answered with "ask again" */
    uint64_t since_ns; /* the first of them */
};

struct trace_connect {
    struct hook_connect base;
    uint64_t again, since_ns;
};

struct trace_comm {
    struct hook_comm base;
    uint64_t busy; /* answers since the last post that was taken */
    uint64_t wait_fd_calls;
    struct trace_buffer buffer;
};

struct trace_request {
    struct hook_request base;
    uint64_t posted_ns, tests;
};

static_assert(offsetof(struct trace_comm, base) == 0, "begins with the hook's");
static_assert(offsetof(struct trace_request, base) == 0, "begins with the hook's");

/* trace_file.c */

/* pattern as XCCL_NET_TRACE has it. Error: the file cannot be opened. */
xcclResult_t trace_sink_open(const char *pattern, int rank, struct trace_sink *sink_out);
void trace_sink_close(struct trace_sink *sink);
void trace_buffer_start(struct trace_buffer *buffer, struct trace_sink *sink);
void trace_buffer_flush(struct trace_buffer *buffer);
/* Writes what has waited for long. now_ns is a clock that the caller has read anyway. */
void trace_buffer_age(struct trace_buffer *buffer, uint64_t now_ns);

static inline struct trace_span trace_begin(const char *entry)
{
    return (struct trace_span){entry, xccl_clock_ns()};
}

/* One line for a call that ends now with rc; the thread's error text is told with an error. Into
 * the buffer, or at once. Both return rc. */
xcclResult_t trace_end(struct trace_buffer *buffer, const struct trace_span *span, xcclResult_t rc,
                       const char *fmt, ...) __attribute__((format(printf, 4, 5)));
xcclResult_t trace_end_now(struct trace_sink *sink, const struct trace_span *span, xcclResult_t rc,
                           const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* trace_instance.c */
xcclResult_t trace_init(const xcclNetInit_v1 *init, xcclNetContext_t *ctx_out);
xcclResult_t trace_finalize(xcclNetContext_t ctx);
xcclResult_t trace_devices(xcclNetContext_t ctx, int *count);
xcclResult_t trace_properties(xcclNetContext_t ctx, int dev, xcclNetProperties_v1 *props);
xcclResult_t trace_stats(xcclNetContext_t ctx, int dev, xcclNetStats_v1 *stats);
xcclResult_t trace_progress(xcclNetContext_t ctx, int *pending);
xcclResult_t trace_merge_devices(xcclNetContext_t ctx, const int *devs, int count, int *dev);
const char *trace_last_error(xcclNetContext_t ctx);

/* trace_connect.c */
xcclResult_t trace_listen(xcclNetContext_t ctx, int dev, xcclNetHandle_t *handle,
                          xcclNetListenComm_t *comm);
xcclResult_t trace_connect(xcclNetContext_t ctx, int dev, const xcclNetHandle_t *handle,
                           xcclNetConnect_t *state, xcclNetSendComm_t *comm);
xcclResult_t trace_close_connect(xcclNetContext_t ctx, xcclNetConnect_t state);
xcclResult_t trace_accept(xcclNetListenComm_t listen, xcclNetRecvComm_t *comm);
xcclResult_t trace_close_send(xcclNetSendComm_t comm);
xcclResult_t trace_close_recv(xcclNetRecvComm_t comm);
xcclResult_t trace_close_listen(xcclNetListenComm_t listen);

/* trace_request.c */
xcclResult_t trace_reg_mr(void *comm, void *data, size_t bytes, uint32_t type, xcclNetMem_t *mem);
xcclResult_t trace_reg_mr_dma_buf(void *comm, void *data, size_t bytes, uint32_t type,
                                  uint64_t offset, int fd, xcclNetMem_t *mem);
xcclResult_t trace_dereg_mr(void *comm, xcclNetMem_t mem);
xcclResult_t trace_export_mr(xcclNetRecvComm_t comm, xcclNetMem_t mem, xcclNetMemKey_t *key);
xcclResult_t trace_isend(xcclNetSendComm_t comm, const void *data, size_t bytes, uint32_t tag,
                         xcclNetMem_t mem, xcclNetRequest_t *request);
xcclResult_t trace_irecv(xcclNetRecvComm_t comm, int count, void *const *data, const size_t *bytes,
                         const uint32_t *tags, const xcclNetMem_t *mems, xcclNetRequest_t *request);
xcclResult_t trace_iflush(xcclNetRecvComm_t comm, int count, void *const *data, const size_t *bytes,
                          const xcclNetMem_t *mems, xcclNetRequest_t *request);
xcclResult_t trace_iput(xcclNetSendComm_t comm, const void *data, size_t bytes, xcclNetMem_t mem,
                        const xcclNetMemKey_t *key, uint64_t offset, xcclNetRequest_t *request);
xcclResult_t trace_iput_signal(xcclNetSendComm_t comm, const void *data, size_t bytes,
                               xcclNetMem_t mem, const xcclNetMemKey_t *key, uint64_t offset,
                               const xcclNetMemKey_t *signal_key, uint64_t signal_offset,
                               uint64_t value, xcclNetRequest_t *request);
xcclResult_t trace_test(xcclNetRequest_t request, int *done, size_t *bytes);
xcclResult_t trace_wait_fd(void *comm, int *fd);
xcclResult_t trace_error_detail(void *comm, xcclNetError_v1 *error);

#endif

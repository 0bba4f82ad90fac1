/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages under trace, into the comm's buffer. A post that was busy is counted and told with the
 * next one that is taken; tests that say "not done" are counted and told with the one that says
 * done or fails. Registrations may come from a second thread, so their lines are written at once.
 * Thread: the comm's, but for registrations. Nothing here allocates or locks. */
#include "trace_int.h"

static const char *const kind_words[] = {"send", "receive", "flush", "put"};

static const char *side(const struct trace_comm *comm)
{
    return comm->base.is_send ? "send" : "recv";
}

static struct trace_sink *sink_of(const struct trace_comm *comm)
{
    return &((struct trace_ctx *)comm->base.ctx)->sink;
}

/* ---- registrations ---- */

xcclResult_t trace_reg_mr(void *comm_, void *data, size_t bytes, uint32_t type, xcclNetMem_t *mem)
{
    struct trace_span span = trace_begin("regMr");
    const struct trace_comm *comm = comm_;
    xcclResult_t rc = hook_reg_mr(comm_, data, bytes, type, mem);

    return trace_end_now(sink_of(comm), &span, rc, "%s %u %p bytes %zu type %u", side(comm),
                         comm->base.number, data, bytes, type);
}

xcclResult_t trace_reg_mr_dma_buf(void *comm_, void *data, size_t bytes, uint32_t type,
                                  uint64_t offset, int fd, xcclNetMem_t *mem)
{
    struct trace_span span = trace_begin("regMrDmaBuf");
    const struct trace_comm *comm = comm_;
    xcclResult_t rc = hook_reg_mr_dma_buf(comm_, data, bytes, type, offset, fd, mem);

    return trace_end_now(sink_of(comm), &span, rc, "%s %u %p bytes %zu type %u fd %d", side(comm),
                         comm->base.number, data, bytes, type, fd);
}

xcclResult_t trace_dereg_mr(void *comm_, xcclNetMem_t mem)
{
    struct trace_span span = trace_begin("deregMr");
    const struct trace_comm *comm = comm_;
    xcclResult_t rc = hook_dereg_mr(comm_, mem);

    return trace_end_now(sink_of(comm), &span, rc, "%s %u", side(comm), comm->base.number);
}

xcclResult_t trace_export_mr(xcclNetRecvComm_t comm_, xcclNetMem_t mem, xcclNetMemKey_t *key)
{
    struct trace_span span = trace_begin("exportMr");
    struct trace_comm *comm = comm_;
    xcclResult_t rc = hook_export_mr(comm_, mem, key);

    return trace_end(&comm->buffer, &span, rc, "%s %u", side(comm), comm->base.number);
}

/* ---- posts ---- */

/* What a line tells of a post. */
struct post {
    size_t bytes; /* in all */
    int count;
    const char *word; /* what value is */
    uint64_t value;
};

/* The line of a post, or one busy answer more. */
static xcclResult_t post_end(struct trace_comm *comm, const struct trace_span *span,
                             xcclResult_t rc, const xcclNetRequest_t *request_out,
                             const struct post *post)
{
    struct trace_request *request = rc == xcclSuccess ? *request_out : NULL;
    unsigned long long busy = comm->busy;

    if (rc == xcclSuccess && !request) {
        comm->busy++;
        trace_buffer_age(&comm->buffer, span->start_ns);
        return rc;
    }
    comm->busy = 0;
    if (request) {
        request->posted_ns = span->start_ns;
        request->tests = 0;
    }
    return trace_end(&comm->buffer, span, rc,
                     "%s %u request %u count %d bytes %zu %s %llu busy "
                     "%llu",
                     side(comm), comm->base.number, request ? request->base.number : 0, post->count,
                     post->bytes, post->word, (unsigned long long)post->value, busy);
}

static size_t sum(const size_t *bytes, int count)
{
    size_t all = 0;

    for (int i = 0; i < count && i < XCCL_NET_MAX_RECVS; i++)
        all += bytes[i];
    return all;
}

xcclResult_t trace_isend(xcclNetSendComm_t comm, const void *data, size_t bytes, uint32_t tag,
                         xcclNetMem_t mem, xcclNetRequest_t *request)
{
    struct trace_span span = trace_begin("isend");
    struct post post = {bytes, 1, "tag", tag};
    xcclResult_t rc = hook_isend(comm, data, bytes, tag, mem, request);

    return post_end(comm, &span, rc, request, &post);
}

xcclResult_t trace_irecv(xcclNetRecvComm_t comm, int count, void *const *data, const size_t *bytes,
                         const uint32_t *tags, const xcclNetMem_t *mems, xcclNetRequest_t *request)
{
    struct trace_span span = trace_begin("irecv");
    struct post post = {sum(bytes, count), count, "tag", count > 0 ? tags[0] : 0};
    xcclResult_t rc = hook_irecv(comm, count, data, bytes, tags, mems, request);

    return post_end(comm, &span, rc, request, &post);
}

/* No request is no "busy" here: there is nothing to wait for. */
xcclResult_t trace_iflush(xcclNetRecvComm_t comm_, int count, void *const *data,
                          const size_t *bytes, const xcclNetMem_t *mems, xcclNetRequest_t *request)
{
    struct trace_span span = trace_begin("iflush");
    struct trace_comm *comm = comm_;
    struct post post = {sum(bytes, count), count, "waits", 1};
    xcclResult_t rc = hook_iflush(comm, count, data, bytes, mems, request);

    if (rc == xcclSuccess && !*request)
        return trace_end(&comm->buffer, &span, rc, "%s %u request 0 count %d bytes %zu waits 0",
                         side(comm), comm->base.number, count, post.bytes);
    return post_end(comm, &span, rc, request, &post);
}

xcclResult_t trace_iput(xcclNetSendComm_t comm, const void *data, size_t bytes, xcclNetMem_t mem,
                        const xcclNetMemKey_t *key, uint64_t offset, xcclNetRequest_t *request)
{
    struct trace_span span = trace_begin("iput");
    struct post post = {bytes, 1, "offset", offset};
    xcclResult_t rc = hook_iput(comm, data, bytes, mem, key, offset, request);

    return post_end(comm, &span, rc, request, &post);
}

/* tidy: allow parameters because the contract's entry has as many */
xcclResult_t trace_iput_signal(xcclNetSendComm_t comm, const void *data, size_t bytes,
                               xcclNetMem_t mem, const xcclNetMemKey_t *key, uint64_t offset,
                               const xcclNetMemKey_t *signal_key, uint64_t signal_offset,
                               uint64_t value, xcclNetRequest_t *request)
{
    struct trace_span span = trace_begin("iputSignal");
    struct post post = {bytes, 1, "value", value};
    xcclResult_t rc = hook_iput_signal(comm, data, bytes, mem, key, offset, signal_key,
                                       signal_offset, value, request);

    return post_end(comm, &span, rc, request, &post);
}

/* ---- what is asked again and again ---- */

xcclResult_t trace_test(xcclNetRequest_t request_, int *done, size_t *bytes_out)
{
    struct trace_span span = trace_begin("test");
    struct trace_request *request = request_;
    struct trace_comm *comm = (struct trace_comm *)request->base.comm;
    size_t bytes[XCCL_NET_MAX_RECVS] = {0};
    int count = request->base.count;
    xcclResult_t rc = hook_test(request, done, bytes);

    request->tests++;
    if (rc == xcclSuccess && !*done) {
        trace_buffer_age(&comm->buffer, span.start_ns);
        return rc;
    }
    /* A flush has no sizes. */
    if (rc != xcclSuccess || request->base.kind == HOOK_FLUSH)
        count = 0;
    for (int i = 0; bytes_out && i < count; i++)
        bytes_out[i] = bytes[i];
    return trace_end(&comm->buffer, &span, rc,
                     "%s %u request %u (%s) bytes %zu tests %llu in %llu "
                     "ns",
                     side(comm), comm->base.number, request->base.number,
                     kind_words[request->base.kind], sum(bytes, count),
                     (unsigned long long)request->tests,
                     (unsigned long long)(span.start_ns - request->posted_ns));
}

/* A user of it asks before each sleep, so only errors are lines of their own. */
xcclResult_t trace_wait_fd(void *comm_, int *fd)
{
    struct trace_span span = trace_begin("waitFd");
    struct trace_comm *comm = comm_;
    xcclResult_t rc = hook_wait_fd(comm, fd);

    comm->wait_fd_calls++;
    trace_buffer_age(&comm->buffer, span.start_ns);
    if (rc == xcclSuccess)
        return rc;
    return trace_end(&comm->buffer, &span, rc, "%s %u", side(comm), comm->base.number);
}

xcclResult_t trace_error_detail(void *comm_, xcclNetError_v1 *error)
{
    struct trace_span span = trace_begin("errorDetail");
    struct trace_comm *comm = comm_;
    xcclResult_t rc = hook_error_detail(comm, error);
    int cause = rc == xcclSuccess && error->size >= offsetof(xcclNetError_v1, sysErrno)
                    ? error->cause
                    : xcclNetCauseUnknown;

    return trace_end(&comm->buffer, &span, rc, "%s %u cause %d", side(comm), comm->base.number,
                     cause);
}

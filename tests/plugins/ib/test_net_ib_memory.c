/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of devices with net-ib: DMA-BUFs, and the reads that flush what has come, over one port
 * and several, one of which fails; and what cards are asked for beside: order of writes, what two
 * of a vendor agree on, GIDs by rule. Over the verbs library of one process
 * (fixtures/verbs_fixture.c), for which a DMA-BUF is a file of this process's memory. */
#include "ib_rails.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#define BYTES ((size_t)2 << 20)
#define LARGE ((size_t)1 << 20)
#define PAGE  4096

/* As it is of a device: seen at an address, and a descriptor. */
struct buffer {
    int fd;
    uint8_t *data;
    xcclNetMem_t mem;
};

static const xcclNetPlugin_v1_t *calls_of(const struct pair *pair, int which)
{
    return &pair->nets[which]->calls;
}

static void buffer_make(struct buffer *buffer)
{
    buffer->fd = (int)syscall(SYS_memfd_create, "device", 1u);
    XT_CHECK(buffer->fd >= 0 && ftruncate(buffer->fd, (off_t)BYTES) == 0);
    buffer->data = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, buffer->fd, 0);
    XT_CHECK(buffer->data != MAP_FAILED);
}

static void buffer_free(struct buffer *buffer)
{
    munmap(buffer->data, BYTES);
    close(buffer->fd);
}

static void open_with_buffer(struct pair *pair, int ports, struct buffer *buffer)
{
    buffer_make(buffer);
    pair_open(pair, ports, ports);
    XT_OK(calls_of(pair, 1)->regMrDmaBuf(pair->recv, buffer->data, BYTES, XCCL_NET_PTR_CUDA, 0,
                                         buffer->fd, &buffer->mem));
}

static void close_with_buffer(struct pair *pair, struct buffer *buffer)
{
    XT_OK(calls_of(pair, 1)->deregMr(pair->recv, buffer->mem));
    pair_close(pair);
    buffer_free(buffer);
}

/* Sends count messages of so many bytes each into the buffer, as one receive. */
static void move(struct pair *pair, const struct buffer *buffer, int count, size_t bytes)
{
    struct xccl_limit limit = xccl_limit_ms(patience_ms, NULL);
    xcclNetRequest_t recv = NULL, sends[PARTS] = {NULL};
    void *data[PARTS];
    size_t rooms[PARTS], came[PARTS];
    uint32_t tags[PARTS];
    xcclNetMem_t mems[PARTS];
    int done = 0, posted = 0, sent = 0;

    memset(out, 0x3c, count * bytes);
    for (int i = 0; i < count; i++) {
        data[i] = buffer->data + (size_t)i * bytes;
        rooms[i] = bytes;
        tags[i] = 0;
        mems[i] = buffer->mem;
    }
    while (!done || sent < count) {
        if (!recv)
            XT_OK(calls_of(pair, 1)->irecv(pair->recv, count, data, rooms, tags, mems, &recv));
        if (posted < count)
            XT_OK(calls_of(pair, 0)->isend(pair->send, out + (size_t)posted * bytes, bytes, 0,
                                           pair->send_mem, &sends[posted]));
        posted += posted < count && sends[posted];
        if (recv && !done)
            XT_OK(calls_of(pair, 1)->test(recv, &done, came));
        if (sent < posted) {
            int left = 0;

            XT_OK(calls_of(pair, 0)->test(sends[sent], &left, NULL));
            sent += left;
        }
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    for (int i = 0; i < count; i++)
        XT_CHECK_INT(came[i], bytes);
    XT_CHECK(memcmp(buffer->data, out, count * bytes) == 0);
}

/* Flushes so many buffers; how many reads that took. */
static long flush(struct pair *pair, const struct buffer *buffer, int count, size_t bytes)
{
    struct xccl_limit limit = xccl_limit_ms(patience_ms, NULL);
    long before[COUNT_KINDS], after[COUNT_KINDS];
    xcclNetRequest_t request = NULL;
    void *data[PARTS];
    size_t sizes[PARTS];
    xcclNetMem_t mems[PARTS];

    for (int i = 0; i < count; i++) {
        data[i] = buffer->data + (size_t)i * bytes;
        sizes[i] = bytes;
        mems[i] = buffer->mem;
    }
    memset(after, 0, sizeof(after));
    if (!is_real())
        take_counts(before);
    XT_OK(calls_of(pair, 1)->iflush(pair->recv, count, data, sizes, mems, &request));
    XT_CHECK(!is_real() || request);
    for (int done = 0; request && !done;) {
        XT_OK(calls_of(pair, 1)->test(request, &done, NULL));
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    if (!is_real())
        take_counts(after);
    return after[COUNT_READS];
}

/* Begins to flush 8 bytes of the buffer. */
static xcclResult_t begin_flush(struct pair *pair, const struct buffer *buffer,
                                xcclNetRequest_t *request_out)
{
    size_t bytes = 8;
    void *data = buffer->data;

    return calls_of(pair, 1)->iflush(pair->recv, 1, &data, &bytes, &buffer->mem, request_out);
}

XT_TEST(what_came_is_read_once_a_buffer)
{
    struct buffer buffer, host;
    struct pair pair;

    need_plugin();
    open_with_buffer(&pair, 1, &buffer);
    XT_CHECK_INT(flush(&pair, &buffer, 1, 8), 0); /* nothing has come */
    for (int i = 0; i < 100; i++) {
        move(&pair, &buffer, 1, 8);
        XT_CHECK_INT(flush(&pair, &buffer, 1, 8), 1);
    }
    move(&pair, &buffer, PARTS, 1000);
    XT_CHECK_INT(flush(&pair, &buffer, PARTS, 1000), PARTS);
    XT_CHECK_INT(flush(&pair, &buffer, 1, 0), 0);
    host = (struct buffer){.data = in, .mem = pair.recv_mem};
    move(&pair, &host, 1, 1000);
    XT_CHECK_INT(flush(&pair, &host, 1, 1000), 0);
    close_with_buffer(&pair, &buffer);
}

XT_TEST(each_port_by_which_it_came_is_flushed)
{
    struct buffer buffer;
    struct pair pair;

    need_plugin();
    open_with_buffer(&pair, 2, &buffer);
    move(&pair, &buffer, 1, 8); /* by one of them */
    XT_CHECK_INT(flush(&pair, &buffer, 1, 8), 1);
    move(&pair, &buffer, 1, LARGE);
    XT_CHECK_INT(flush(&pair, &buffer, 1, LARGE), 2);
    close_with_buffer(&pair, &buffer);
}

/* As many flushes as receives may be under way, tested in any order. */
XT_TEST(flushes_are_under_way_together)
{
    xcclNetRequest_t requests[XCCL_NET_MAX_REQUESTS + 1];
    struct buffer buffer;
    struct pair pair;

    need_plugin();
    open_with_buffer(&pair, 1, &buffer);
    move(&pair, &buffer, 1, 8);
    for (int i = 0; i < XCCL_NET_MAX_REQUESTS; i++) {
        XT_OK(begin_flush(&pair, &buffer, &requests[i]));
        XT_CHECK(requests[i] != NULL);
    }
    XT_CHECK_RC(begin_flush(&pair, &buffer, &requests[XCCL_NET_MAX_REQUESTS]), xcclInvalidUsage);
    for (int i = XCCL_NET_MAX_REQUESTS - 1; i >= 0; i--) {
        int done = 0;

        while (!done)
            XT_OK(calls_of(&pair, 1)->test(requests[i], &done, NULL));
    }
    XT_CHECK_INT(flush(&pair, &buffer, 1, 8), 1);
    close_with_buffer(&pair, &buffer);
}

XT_TEST(flush_that_fails_ends_the_comm)
{
    xcclNetRequest_t request = NULL;
    size_t bytes = 8;
    struct buffer buffer;
    struct pair pair;
    void *data;
    int done = 0;

    need_plugin();
    open_with_buffer(&pair, 1, &buffer);
    move(&pair, &buffer, 1, 8);
    data = buffer.data;
    fail_call("read");
    XT_OK(begin_flush(&pair, &buffer, &request));
    XT_CHECK_RC(calls_of(&pair, 1)->test(request, &done, NULL), xcclSystemError);
    XT_CHECK_HAS(calls_of(&pair, 1)->lastError(pair.nets[1]->ctx),
                 "fx0:1 cannot flush the memory of a device: retry exceeded");
    fail_call(NULL);
    XT_CHECK_RC(begin_flush(&pair, &buffer, &request), xcclSystemError);
    XT_CHECK_RC(calls_of(&pair, 1)->irecv(pair.recv, 1, &data, &bytes, &(uint32_t){0}, &buffer.mem,
                                          &request),
                xcclSystemError);
    close_with_buffer(&pair, &buffer);
}

/* A card that takes no work: the comm keeps what was said. */
XT_TEST(flush_that_is_not_taken_ends_the_comm)
{
    xcclNetRequest_t request = NULL;
    struct buffer buffer;
    struct pair pair;

    need_plugin();
    open_with_buffer(&pair, 1, &buffer);
    move(&pair, &buffer, 1, 8);
    fail_call("post_send");
    XT_CHECK_RC(begin_flush(&pair, &buffer, &request), xcclSystemError);
    fail_call(NULL);
    XT_CHECK_RC(begin_flush(&pair, &buffer, &request), xcclSystemError);
    XT_CHECK_HAS(calls_of(&pair, 1)->lastError(pair.nets[1]->ctx),
                 "fx0:1 cannot flush the memory of a device: it accepts no more work");
    close_with_buffer(&pair, &buffer);
}

/* Data goes on by the other port, and so do flushes; they use both again when it is back. */
XT_TEST(port_that_fails_is_left_out_of_flushes_until_it_is_back)
{
    struct xccl_limit limit = xccl_limit_ms(patience_ms, NULL);
    struct buffer buffer;
    struct pair pair;
    long reads = 0;

    need_plugin();
    open_with_buffer(&pair, 2, &buffer);
    move(&pair, &buffer, 1, LARGE);
    XT_CHECK_INT(flush(&pair, &buffer, 1, LARGE), 2);
    set_port(1, PORT_DOWN);
    (void)flush(&pair, &buffer, 1, LARGE); /* it has not been told yet, or it has */
    for (int i = 0; i < 20; i++) {
        move(&pair, &buffer, 1, LARGE);
        XT_CHECK(flush(&pair, &buffer, 1, LARGE) >= 1);
    }
    XT_CHECK_INT(flush(&pair, &buffer, 1, LARGE), 1);
    set_port(1, PORT_UP);
    while (reads != 2) {
        move(&pair, &buffer, 1, LARGE);
        reads = flush(&pair, &buffer, 1, LARGE);
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    XT_CHECK_INT(stats_of(&pair, 1).failoverCount, 1);
    close_with_buffer(&pair, &buffer);
}

/* Memory by its address; also over a real card (ci/vm/check_ib), which is not asked what memory it
 * is. */
static void flush_by_address(int ports)
{
    struct buffer buffer;
    struct pair pair;

    xt_setenv("XCCL_IB_PEER_MEMORY", "on");
    if (is_real())
        need_rails();
    else
        need_plugin();
    buffer_make(&buffer);
    pair_open(&pair, ports, ports);
    XT_OK(calls_of(&pair, 1)->regMr(pair.recv, buffer.data, BYTES, XCCL_NET_PTR_CUDA, &buffer.mem));
    for (int i = 0; i < 20; i++) {
        size_t bytes = i % 2 ? LARGE / 4 : 8;

        move(&pair, &buffer, PARTS, bytes);
        (void)flush(&pair, &buffer, PARTS, bytes);
    }
    close_with_buffer(&pair, &buffer);
}

XT_TEST_DEADLINE(memory_by_its_address_is_flushed, 60)
{
    flush_by_address(1);
}

XT_TEST_DEADLINE(memory_by_its_address_is_flushed_by_two_ports, 60)
{
    flush_by_address(2);
}

XT_TEST(close_with_flushes_under_way_is_clean)
{
    xcclNetRequest_t request = NULL;
    struct buffer buffer;
    struct pair pair;

    need_plugin();
    open_with_buffer(&pair, 2, &buffer);
    move(&pair, &buffer, 1, 8);
    XT_OK(begin_flush(&pair, &buffer, &request));
    pair_close(&pair);
    buffer_free(&buffer);
}

/* The library's calls that a first registration makes, each alone. */
XT_TEST(flush_that_cannot_be_set_up_says_so)
{
    static const char *const names[] = {"reg_mr", "create_cq", "create_qp", "modify_qp"};
    struct buffer buffer = {.fd = -1};
    struct pair pair;

    need_plugin();
    buffer_make(&buffer);
    pair_open(&pair, 1, 1);
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        fail_call(names[i]);
        XT_CHECK_RC(calls_of(&pair, 1)->regMrDmaBuf(pair.recv, buffer.data, BYTES,
                                                    XCCL_NET_PTR_CUDA, 0, buffer.fd, &buffer.mem),
                    xcclSystemError);
        XT_CHECK_HAS(calls_of(&pair, 1)->lastError(pair.nets[1]->ctx),
                     "cannot create a queue pair to flush device memory on fx0:1");
    }
    fail_call(NULL);
    XT_OK(calls_of(&pair, 1)->regMrDmaBuf(pair.recv, buffer.data, BYTES, XCCL_NET_PTR_CUDA, 0,
                                          buffer.fd, &buffer.mem));
    move(&pair, &buffer, 1, 8);
    XT_CHECK_INT(flush(&pair, &buffer, 1, 8), 1);
    close_with_buffer(&pair, &buffer);
}

XT_TEST(part_of_a_dma_buf_is_registered_by_pages)
{
    struct buffer buffer;
    struct pair pair;
    xcclNetMem_t mem = NULL;

    need_plugin();
    open_with_buffer(&pair, 1, &buffer);
    XT_OK(calls_of(&pair, 1)->regMrDmaBuf(pair.recv, buffer.data + PAGE + 100, 1000,
                                          XCCL_NET_PTR_CUDA, PAGE + 100, buffer.fd, &mem));
    XT_OK(calls_of(&pair, 1)->deregMr(pair.recv, mem));
    XT_CHECK_RC(calls_of(&pair, 1)->regMrDmaBuf(pair.recv, buffer.data + 100, 1000,
                                                XCCL_NET_PTR_CUDA, 50, buffer.fd, &mem),
                xcclInvalidArgument);
    XT_CHECK_RC(calls_of(&pair, 1)->regMrDmaBuf(pair.recv, buffer.data, 1000, XCCL_NET_PTR_CUDA,
                                                100, buffer.fd, &mem),
                xcclInvalidArgument);
    XT_CHECK_RC(calls_of(&pair, 1)->regMrDmaBuf(pair.recv, buffer.data, 1000, XCCL_NET_PTR_CUDA, 0,
                                                -1, &mem),
                xcclInvalidArgument);
    close_with_buffer(&pair, &buffer);
}

static uint32_t kinds_of(const struct pair *pair)
{
    xcclNetProperties_v1 props = {.size = sizeof(props)};

    XT_OK(calls_of(pair, 1)->properties(pair->nets[1]->ctx, 0, &props));
    return props.ptrSupport;
}

XT_TEST(device_says_what_memory_it_takes)
{
    struct buffer buffer;
    struct pair pair;
    xcclNetMem_t mem = NULL;

    need_plugin();
    if (access("/sys/module/nvidia_peermem/version", F_OK) == 0)
        XT_SKIP("this machine's cards reach device memory");
    buffer_make(&buffer);
    pair_open(&pair, 1, 1);
    XT_CHECK_INT(kinds_of(&pair), XCCL_NET_PTR_HOST | XCCL_NET_PTR_DMABUF);
    XT_CHECK_RC(calls_of(&pair, 1)->regMr(pair.recv, buffer.data, BYTES, XCCL_NET_PTR_CUDA, &mem),
                xcclInvalidArgument);
    XT_CHECK_HAS(calls_of(&pair, 1)->lastError(pair.nets[1]->ctx), "nvidia_peermem");
    XT_CHECK_RC(calls_of(&pair, 1)->regMr(pair.recv, buffer.data, BYTES, 0, &mem),
                xcclInvalidArgument);
    pair_close(&pair);
    xt_setenv("VERBS_FIXTURE_NO_DMABUF", "1");
    pair_open(&pair, 1, 1);
    XT_CHECK_INT(kinds_of(&pair), XCCL_NET_PTR_HOST);
    XT_CHECK_RC(calls_of(&pair, 1)->regMrDmaBuf(pair.recv, buffer.data, BYTES, XCCL_NET_PTR_CUDA, 0,
                                                buffer.fd, &mem),
                xcclInvalidUsage);
    pair_close(&pair);
    buffer_free(&buffer);
}

/* The ring is always written in order; the user's memory is not, unless told. */
XT_TEST(writes_may_pass_each_other_unless_told)
{
    long counts[COUNT_KINDS];
    struct pair pair;

    need_plugin();
    take_counts(counts);
    pair_open(&pair, 1, 1);
    take_counts(counts);
    XT_CHECK_INT(counts[COUNT_RELAXED], 2); /* out and in */
    pair_close(&pair);
    xt_setenv("XCCL_IB_RELAXED_ORDERING", "0");
    pair_open(&pair, 1, 1);
    take_counts(counts);
    XT_CHECK_INT(counts[COUNT_RELAXED], 0);
    pair_close(&pair);
}

/* A program that takes memory back too early; also over a real card (ci/vm/check_ib). */
XT_TEST_DEADLINE(key_that_is_not_valid_any_more_is_named, 60)
{
    struct xccl_limit limit;
    xcclNetRequest_t recv = NULL, send = NULL;
    void *data;
    size_t bytes = 5000;
    uint32_t tag = 0;
    xcclResult_t rc = xcclSuccess;
    xcclNetError_v1 error = {.size = sizeof(error)};
    struct pair pair;
    int done = 0;

    if (is_real())
        need_rails();
    else
        need_plugin();
    limit = xccl_limit_ms(patience_ms < 40000 ? patience_ms : 40000, NULL);
    pair_open(&pair, 1, 1);
    data = in;
    XT_OK(calls_of(&pair, 1)->irecv(pair.recv, 1, &data, &bytes, &tag, &pair.recv_mem, &recv));
    XT_OK(calls_of(&pair, 1)->deregMr(pair.recv, pair.recv_mem));
    XT_OK(calls_of(&pair, 0)->isend(pair.send, out, bytes, tag, pair.send_mem, &send));
    XT_CHECK(send != NULL);
    while (!done && rc == xcclSuccess) {
        rc = calls_of(&pair, 0)->test(send, &done, NULL);
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    XT_CHECK_INT(rc, xcclRemoteError);
    XT_CHECK_HAS(calls_of(&pair, 0)->lastError(pair.nets[0]->ctx),
                 "the peer's memory is not registered any more");
    XT_OK(calls_of(&pair, 0)->errorDetail(pair.send, &error));
    XT_CHECK_INT(error.cause, xcclNetCauseRemoteAccess);
    pair_close(&pair);
}

XT_TEST(ends_agree_on_what_their_cards_have)
{
    void *library;
    int (*agreed)(int *other_out);
    struct pair pair;
    int other;

    need_plugin();
    library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    *(void **)&agreed = dlsym(library, "verbs_fixture_agreed");
    pair_open(&pair, 1, 1);
    XT_CHECK_INT(agreed(&other), 2);
    XT_CHECK_INT(other, 0);
    pair_close(&pair);
    pair_open(&pair, 1, 2); /* a second card that has other options */
    XT_CHECK(agreed(&other) >= 2);
    XT_CHECK_INT(other, 0);
    pair_close(&pair);
}

XT_TEST(gid_of_another_kind_or_range_is_not_taken)
{
    xcclNetConnect_t state = NULL;
    struct pair pair;

    need_plugin();
    xt_setenv("XCCL_IB_ADDR_FAMILY", "ipv6");
    pair_open(&pair, 1, 1);
    pair_close(&pair);
    xt_setenv("XCCL_IB_ADDR_RANGE", "10.0.0.0/8");
    pair_listen(&pair, 1, 1);
    XT_CHECK_RC(calls_of(&pair, 0)->connect(pair.nets[0]->ctx, pair.devs[0], &pair.handle, &state,
                                            &pair.send),
                xcclInvalidUsage);
    XT_CHECK_HAS(calls_of(&pair, 0)->lastError(pair.nets[0]->ctx),
                 "the settings allow none of the GIDs of fx0:1");
    pair_end(&pair);
}

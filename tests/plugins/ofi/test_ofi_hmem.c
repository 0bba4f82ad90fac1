/* SPDX-License-Identifier: BSD-3-Clause */
/* Device memory with the ofi plugin over the fabric of ofi_fx.h: what the provider is told of it,
 * which registrations are shared, keys that are few, and the reads that flush what has come. */
#include "ofi_fx.h"

#define BYTES ((size_t)300)

/* Inside of a page, as an allocation may be. */
static uint8_t *memory(void)
{
    return (uint8_t *)fx.data + 8;
}

static void up_cuda(int is_send, uint32_t rails, uint64_t piece_bytes)
{
    fx_takes_cuda = 1;
    up_on(is_send, rails, piece_bytes);
    fx.cuda.device = 3;
}

static xcclNetMem_t reg(uint32_t type, void *data, size_t bytes)
{
    xcclNetMem_t mem = NULL;

    XT_OK(ofi_reg_mr(fx.comm, data, bytes, type, &mem));
    XT_CHECK(mem != NULL);
    return mem;
}

static xcclNetMem_t reg_cuda(void *data, size_t bytes)
{
    return reg(XCCL_NET_PTR_CUDA, data, bytes);
}

static void dereg(xcclNetMem_t mem)
{
    XT_OK(ofi_dereg_mr(fx.comm, mem));
}

static xcclResult_t try_reg(uint32_t type)
{
    xcclNetMem_t mem = NULL;
    xcclResult_t rc = ofi_reg_mr(fx.comm, memory(), BYTES, type, &mem);

    XT_CHECK(rc == xcclSuccess || mem == NULL);
    return rc;
}

/* --- what the provider is told --- */

XT_TEST(device_memory_is_registered_with_its_device_and_its_bytes)
{
    xcclNetMem_t mem;

    up_cuda(0, 1, 0);
    mem = reg_cuda(memory(), BYTES);
    XT_CHECK_INT(fx.told.attr.iface, FI_HMEM_CUDA);
    XT_CHECK_INT(fx.told.attr.device.cuda, 3);
    XT_CHECK_INT(fx.told.attr.iov_count, 1);
    XT_CHECK_INT(fx.told.flags, 0);
    XT_CHECK(fx.told.range.iov_base == memory());
    XT_CHECK_INT(fx.told.range.iov_len, BYTES);
    XT_CHECK(fx.told.attr.access == (FI_SEND | FI_RECV | FI_REMOTE_READ));
    dereg(mem);
    down();
}

XT_TEST(who_sends_lets_nobody_read_it)
{
    xcclNetMem_t mem;

    up_cuda(1, 1, 0);
    mem = reg_cuda(memory(), BYTES);
    XT_CHECK(fx.told.attr.access == (FI_SEND | FI_RECV));
    XT_CHECK(fx.comm->flusher == NULL);
    dereg(mem);
    down();
    up_cuda(1, 1, PIECE);
    mem = reg_cuda(memory(), BYTES);
    XT_CHECK(fx.told.attr.access == (FI_SEND | FI_RECV | FI_WRITE));
    dereg(mem);
    down();
}

XT_TEST(writes_into_device_memory_are_let_in)
{
    xcclNetMem_t mem;

    up_cuda(0, 1, PIECE);
    mem = reg_cuda(memory(), BYTES);
    XT_CHECK(fx.told.attr.access == (FI_SEND | FI_RECV | FI_REMOTE_WRITE | FI_REMOTE_READ));
    dereg(mem);
    down();
}

/* As an address it begins where the DMA-BUF would: fi_mr(3) adds the offset. */
XT_TEST(a_dma_buf_is_registered_with_its_descriptor_and_offset)
{
    xcclNetMem_t mem = NULL;

    fx_takes_dmabuf = 1;
    fx_library_version = FI_VERSION(1, 20);
    up_cuda(0, 1, 0);
    XT_OK(ofi_reg_mr_dmabuf(fx.comm, memory(), BYTES, XCCL_NET_PTR_CUDA, 4096, 77, &mem));
    XT_CHECK(fx.told.flags == 1ull << 40);
    XT_CHECK_INT(fx.told.attr.iface, FI_HMEM_CUDA);
    XT_CHECK_INT(fx.told.attr.device.cuda, 3);
    XT_CHECK_INT((int)fx.told.words[0], 77);
    XT_CHECK_INT(fx.told.words[1], 4096);
    XT_CHECK_INT(fx.told.words[2], BYTES);
    XT_CHECK(fx.told.words[3] == (uintptr_t)memory() - 4096);
    dereg(mem);
    XT_OK(ofi_reg_mr_dmabuf(fx.comm, memory(), BYTES, XCCL_NET_PTR_HOST, 0, 78, &mem));
    XT_CHECK_INT(fx.told.attr.iface, FI_HMEM_SYSTEM);
    XT_CHECK_INT((int)fx.told.words[0], 78);
    XT_CHECK(!ofi_mem_is_cuda(mem));
    dereg(mem);
    XT_CHECK_RC(ofi_reg_mr_dmabuf(fx.comm, memory(), BYTES, XCCL_NET_PTR_CUDA, 0, -1, &mem),
                xcclInvalidArgument);
    XT_CHECK_RC(ofi_reg_mr_dmabuf(fx.comm, memory(), BYTES, XCCL_NET_PTR_CUDA, UINT64_MAX, 5, &mem),
                xcclInvalidArgument);
    XT_CHECK_RC(ofi_reg_mr_dmabuf(fx.comm, memory(), BYTES, XCCL_NET_PTR_DMABUF, 0, 5, &mem),
                xcclInvalidArgument);
    fx.reg_says = -FI_EOPNOTSUPP;
    XT_CHECK_RC(ofi_reg_mr_dmabuf(fx.comm, memory(), BYTES, XCCL_NET_PTR_CUDA, 0, 79, &mem),
                xcclSystemError);
    XT_CHECK_HAS(xccl_error_text(), "cannot register 300 bytes of DMA-BUF 79 on fx0 (fake)");
    down();
}

/* --- refusals --- */

XT_TEST(an_older_library_is_named_before_a_dma_buf_is_taken_for_an_address)
{
    xcclNetMem_t mem = NULL;

    fx_library_version = FI_VERSION(1, 19);
    up_cuda(0, 1, 0);
    XT_CHECK_RC(ofi_reg_mr_dmabuf(fx.comm, memory(), BYTES, XCCL_NET_PTR_CUDA, 0, 77, &mem),
                xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "libfabric 1.19 does not support DMA-BUFs");
    fx_library_version = FI_VERSION(2, 1);
    XT_CHECK_RC(ofi_reg_mr_dmabuf(fx.comm, memory(), BYTES, XCCL_NET_PTR_CUDA, 0, 77, &mem),
                xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "fx0 does not accept a DMA-BUF");
    XT_CHECK(fx.told.flags == 0);
    down();
}

XT_TEST(a_device_without_device_memory_says_why)
{
    up(0);
    snprintf(fx.ctx.cuda.why, sizeof(fx.ctx.cuda.why), "the reason");
    XT_CHECK_RC(try_reg(XCCL_NET_PTR_CUDA), xcclInvalidArgument);
    XT_CHECK_HAS(xccl_error_text(), "fx0 does not accept device memory: the reason");
    XT_CHECK_RC(try_reg(8), xcclInvalidArgument);
    XT_CHECK(fx.comm->flusher == NULL);
    down();
}

XT_TEST(memory_that_is_no_devices_is_refused)
{
    up_cuda(0, 1, 0);
    fx.cuda.type = 1; /* pinned, of the host */
    XT_CHECK_RC(try_reg(XCCL_NET_PTR_CUDA), xcclInvalidArgument);
    XT_CHECK_HAS(xccl_error_text(), "is not memory of a CUDA device, according to its driver");
    fx.ctx.cuda.pointer_attribute = NULL;
    XT_CHECK_RC(try_reg(XCCL_NET_PTR_CUDA), xcclInvalidArgument);
    down();
}

XT_TEST(a_registration_that_the_provider_refuses_harms_nothing)
{
    xcclNetMem_t mem;

    up_cuda(0, 1, 0);
    fx.reg_says = -FI_ENOSYS;
    XT_CHECK_RC(try_reg(XCCL_NET_PTR_CUDA), xcclSystemError);
    XT_CHECK_HAS(xccl_error_text(),
                 "cannot register 300 bytes of CUDA device 3 on fx0 (fake): another error");
    XT_CHECK_HAS(xccl_error_text(), "load nvidia_peermem");
    XT_CHECK_INT(fx.comm->rc, xcclSuccess);
    fx.reg_says = 0;
    mem = reg_cuda(memory(), BYTES);
    dereg(mem);
    down();
}

XT_TEST(an_endpoint_that_does_not_reach_itself_is_an_error_before_the_comm_is_up)
{
    up_cuda(0, 1, 0);
    XT_OK(ofi_dereg_mr(fx.comm, fx.comm->flusher->mem));
    ofi_flush_destroy(fx.comm);
    fx.av_says = -FI_ENOMEM;
    XT_CHECK_RC(ofi_flush_create(fx.comm), xcclSystemError);
    XT_CHECK_HAS(xccl_error_text(), "fx0 does not accept its own address");
    down(); /* as after any error of coming up */
}

/* Words of XCCL_OFI_DMABUF: auto, off, on. */
XT_TEST(a_dma_buf_goes_to_those_who_are_known_to_take_it)
{
    static const struct {
        int major, minor;
        const char *provider;
        int kernel, told, takes;
    } rows[] = {
        {1, 20, "efa", 5012, 0, 1},
        {1, 20, "efa-direct", 6001, 0, 1},
        {2, 3, "cxi", 5012, 0, 1},
        {1, 20, "efa", 5011, 0, 0},
        {1, 20, "efa", 4018, 0, 0},
        {1, 19, "efa", 5012, 0, 0},
        {1, 20, "verbs;ofi_rxm", 6001, 0, 0},
        {2, 3, "tcp;ofi_rxm", 6001, 0, 0},
        {2, 3, "tcp;ofi_rxm", 4018, 2, 1},
        {1, 19, "efa", 6001, 2, 0},
        {2, 3, "efa", 6001, 1, 0},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        XT_CHECK_INT(ofi_hmem_takes_dmabuf((uint32_t)FI_VERSION(rows[i].major, rows[i].minor),
                                           rows[i].provider, rows[i].kernel, rows[i].told),
                     rows[i].takes);
}

/* --- what is shared --- */

XT_TEST(ranges_of_one_allocation_share_its_registration)
{
    xcclNetMem_t outer, inner;
    int before;

    up_cuda(0, 1, 0);
    before = fx.memories;
    outer = reg_cuda(memory(), BYTES);
    inner = reg_cuda(memory() + 10, 20);
    XT_CHECK_INT(fx.memories, before + 1);
    dereg(outer);
    XT_CHECK_INT(fx.memories_closed, 0);
    dereg(inner);
    XT_CHECK_INT(fx.memories_closed, 1);
    /* Longer by a byte: another one. */
    inner = reg_cuda(memory(), BYTES);
    outer = reg_cuda(memory(), BYTES + 1);
    XT_CHECK_INT(fx.memories, before + 3);
    dereg(inner);
    dereg(outer);
    down();
}

XT_TEST(host_and_device_memory_are_never_mixed)
{
    xcclNetMem_t host, device, other;
    int before;

    up_cuda(0, 1, 0);
    host = reg(XCCL_NET_PTR_HOST, memory(), BYTES);
    before = fx.memories;
    device = reg_cuda(memory(), BYTES);
    XT_CHECK_INT(fx.memories, before + 1);
    XT_CHECK(ofi_mem_is_cuda(device) && !ofi_mem_is_cuda(host));
    other = reg(XCCL_NET_PTR_HOST, memory(), BYTES);
    XT_CHECK_INT(fx.memories, before + 1);
    dereg(other);
    fx.cuda.device = 4;
    fx.cuda.buffer = 2;
    other = reg_cuda(memory(), BYTES);
    XT_CHECK_INT(fx.memories, before + 2);
    XT_CHECK_INT(fx.told.attr.device.cuda, 4);
    dereg(other);
    dereg(device);
    dereg(host);
    down();
}

/* Freed while it was registered, and allocated again at the same address. */
XT_TEST(memory_that_was_freed_is_not_found_again)
{
    xcclNetMem_t old, new, again;
    int before;

    up_cuda(0, 1, 0);
    old = reg_cuda(memory(), BYTES);
    before = fx.memories;
    fx.cuda.buffer = 2;
    new = reg_cuda(memory(), BYTES);
    XT_CHECK_INT(fx.memories, before + 1);
    again = reg_cuda(memory(), BYTES);
    XT_CHECK_INT(fx.memories, before + 1);
    dereg(old);
    dereg(new);
    dereg(again);
    down();
}

XT_TEST(memory_of_an_unknown_allocation_is_not_shared)
{
    xcclNetMem_t one, other;
    int before;

    up_cuda(0, 1, 0);
    fx.cuda.buffer = 0;
    before = fx.memories;
    one = reg_cuda(memory(), BYTES);
    other = reg_cuda(memory(), BYTES);
    XT_CHECK_INT(fx.memories, before + 2);
    dereg(one);
    dereg(other);
    down();
}

/* --- keys of our own --- */

/* A provider whose keys have one byte: each is used once at a time, and none is taken twice. */
XT_TEST(few_keys_are_used_again_and_their_end_is_told)
{
    xcclNetMem_t mems[256];
    int count = 0;

    up_cuda(0, 1, 0);
    fx.domain_attr.mr_key_size = 1;
    fx.cuda.buffer = 0; /* none is shared */
    for (; count < 255; count++) {
        if (ofi_reg_mr(fx.comm, memory(), BYTES, XCCL_NET_PTR_CUDA, &mems[count]) != xcclSuccess)
            break;
        XT_CHECK(fx.told.attr.requested_key >= 1 && fx.told.attr.requested_key <= 255);
        for (int i = 0; i < count; i++)
            XT_CHECK(fi_mr_key(((struct ofi_mem *)mems[i])->regions[0]->mr) !=
                     fx.told.attr.requested_key);
    }
    /* The comm's own have the others. */
    XT_CHECK(count >= 250);
    XT_CHECK_RC(try_reg(XCCL_NET_PTR_CUDA), xcclSystemError);
    XT_CHECK_HAS(xccl_error_text(), "keys of registrations on fx0 are in use");
    dereg(mems[100]);
    mems[100] = reg_cuda(memory(), BYTES);
    for (int i = 0; i < count; i++)
        dereg(mems[i]);
    down();
}

XT_TEST(a_key_that_a_peer_may_use_is_a_secret)
{
    xcclNetMem_t mems[3];
    uint64_t keys[3];

    up_cuda(0, 1, 0);
    fx.cuda.buffer = 0;
    for (int i = 0; i < 3; i++) {
        mems[i] = reg_cuda(memory(), BYTES);
        keys[i] = fx.told.attr.requested_key;
        XT_CHECK(keys[i] > 1000); /* not once in 2^54 */
    }
    XT_CHECK(keys[1] - keys[0] != keys[2] - keys[1]);
    for (int i = 0; i < 3; i++)
        dereg(mems[i]);
    fx.domain_attr.mr_mode = FI_MR_PROV_KEY;
    mems[0] = reg_cuda(memory(), BYTES);
    XT_CHECK_INT(fx.told.attr.requested_key, 0);
    dereg(mems[0]);
    down();
}

/* --- flushes --- */

static xcclResult_t begin_flush(xcclNetMem_t mem, size_t bytes, xcclNetRequest_t *request_out)
{
    void *data = memory() + 5;

    return ofi_iflush(fx.comm, 1, &data, &bytes, &mem, request_out);
}

static xcclNetRequest_t flush(xcclNetMem_t mem)
{
    xcclNetRequest_t request = NULL;

    XT_OK(begin_flush(mem, BYTES / 2, &request));
    XT_CHECK(request != NULL);
    return request;
}

static void read_completes(int i)
{
    complete(fx.reads[i].context, FI_READ | FI_RMA, 1, 0);
    ofi_request_poll(fx.comm);
    fx.first = fx.end = 0;
}

XT_TEST(what_came_is_read_once_by_each_rail)
{
    xcclNetRequest_t request;
    xcclNetMem_t mem;
    int done = 0;

    up_cuda(0, 3, 0);
    mem = reg_cuda(memory(), BYTES);
    request = flush(mem);
    XT_CHECK_INT(fx.read_count, 3);
    for (int i = 0; i < 3; i++) {
        XT_CHECK_INT(fx.reads[i].rail, i);
        XT_CHECK_INT(fx.reads[i].bytes, 1);
        XT_CHECK_INT(fx.reads[i].from, 100 + i); /* itself */
        XT_CHECK_INT(fx.reads[i].addr, 5); /* in the registration */
        XT_CHECK(fx.reads[i].key == fi_mr_key(((struct ofi_mem *)mem)->regions[i]->mr));
        XT_CHECK((uint8_t *)fx.reads[i].data < (uint8_t *)fx.data ||
                 (uint8_t *)fx.reads[i].data >= (uint8_t *)fx.data + sizeof(fx.data));
        for (int k = 0; k < i; k++)
            XT_CHECK(fx.reads[i].data != fx.reads[k].data);
    }
    for (int i = 2; i >= 0; i--) {
        XT_OK(ofi_test(request, &done, NULL));
        XT_CHECK_INT(done, 0);
        read_completes(i);
    }
    XT_OK(ofi_test(request, &done, NULL));
    XT_CHECK_INT(done, 1);
    XT_CHECK_INT(fx.comm->ready, 0);
    XT_CHECK_RC(ofi_test(request, &done, NULL), xcclInvalidUsage);
    dereg(mem);
    down();
}

XT_TEST(memory_at_its_address_is_read_there)
{
    xcclNetMem_t mem;

    up_cuda(0, 1, 0);
    fx.domain_attr.mr_mode = FI_MR_VIRT_ADDR;
    mem = reg_cuda(memory(), BYTES);
    (void)flush(mem);
    XT_CHECK(fx.reads[0].addr == (uintptr_t)memory() + 5);
    dereg(mem);
    down();
}

XT_TEST(only_bytes_of_devices_are_flushed)
{
    xcclNetRequest_t request = &request;
    void *data[2] = {fx.data, fx.data};
    size_t bytes[2] = {1, 1};
    xcclNetMem_t mem, mems[2];

    up_cuda(0, 1, 0);
    mem = reg_cuda(memory(), BYTES);
    XT_OK(begin_flush(fx.mem, BYTES, &request));
    XT_CHECK(request == NULL);
    request = &request;
    XT_OK(begin_flush(mem, 0, &request));
    XT_CHECK(request == NULL);
    request = &request;
    XT_OK(begin_flush(NULL, BYTES, &request));
    XT_CHECK(request == NULL);
    XT_CHECK_INT(fx.read_count, 0);
    mems[0] = mems[1] = mem;
    XT_CHECK_RC(ofi_iflush(fx.comm, 2, data, bytes, mems, &request), xcclInvalidArgument);
    XT_CHECK_RC(ofi_iflush(fx.comm, 0, data, bytes, mems, &request), xcclInvalidArgument);
    dereg(mem);
    down();
    fx_takes_cuda = 0;
    up(0);
    XT_OK(begin_flush(fx.mem, BYTES, &request));
    XT_CHECK(request == NULL);
    down();
}

XT_TEST(a_read_that_a_rail_does_not_take_goes_later)
{
    xcclNetRequest_t request;
    xcclNetMem_t mem;
    int done = 0;

    up_cuda(0, 2, 0);
    mem = reg_cuda(memory(), BYTES);
    fx.refusing = 1;
    request = flush(mem);
    XT_CHECK_INT(fx.read_count, 1);
    XT_CHECK_INT(fx.reads[0].rail, 1);
    XT_CHECK(fx.comm->refused); /* who sleeps is woken */
    read_completes(0);
    XT_OK(ofi_test(request, &done, NULL));
    XT_CHECK_INT(done, 0);
    XT_CHECK_INT(fx.read_count, 1);
    fx.refusing = 0;
    XT_OK(ofi_test(request, &done, NULL));
    XT_CHECK_INT(fx.read_count, 2);
    XT_CHECK_INT(fx.reads[1].rail, 0);
    XT_CHECK(!fx.comm->refused);
    read_completes(1);
    XT_OK(ofi_test(request, &done, NULL));
    XT_CHECK_INT(done, 1);
    dereg(mem);
    down();
}

XT_TEST(as_many_flushes_are_under_way_as_receives)
{
    xcclNetRequest_t requests[OFI_REQUESTS], more = NULL;
    xcclNetMem_t mem;
    int done;

    up_cuda(0, 1, 0);
    mem = reg_cuda(memory(), BYTES);
    fx.refusing = 1;
    for (int i = 0; i < OFI_REQUESTS; i++)
        requests[i] = flush(mem);
    XT_CHECK_RC(begin_flush(mem, BYTES, &more), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "32 flushes are already in flight");
    XT_CHECK(ofi_flush_is_under_way(fx.comm));
    fx.refusing = 0;
    XT_OK(ofi_test(requests[0], &done, NULL));
    XT_CHECK_INT(fx.read_count, OFI_REQUESTS);
    for (int i = OFI_REQUESTS - 1; i >= 0; i--) {
        read_completes(i);
        XT_OK(ofi_test(requests[i], &done, NULL));
        XT_CHECK_INT(done, 1);
    }
    XT_CHECK(!ofi_flush_is_under_way(fx.comm));
    (void)flush(mem);
    dereg(mem);
    down();
}

/* Receives and flushes of one comm, each by its own completion. */
XT_TEST(flushes_and_receives_are_told_apart)
{
    xcclNetRequest_t received, flushed;
    xcclNetMem_t mem;
    size_t bytes = 77;
    int done = 0;

    up_cuda(0, 1, 0);
    mem = reg_cuda(memory(), BYTES);
    flushed = flush(mem);
    received = receive();
    message_comes(100);
    is_done(received, 100);
    XT_OK(ofi_test(flushed, &done, &bytes));
    XT_CHECK_INT(done, 0);
    read_completes(0);
    XT_OK(ofi_test(flushed, &done, &bytes));
    XT_CHECK_INT(done, 1);
    XT_CHECK_INT(bytes, 77);
    dereg(mem);
    down();
}

XT_TEST(a_flush_that_fails_ends_the_comm)
{
    xcclNetRequest_t request, other = NULL;
    xcclNetMem_t mem;
    int done = 0;

    up_cuda(0, 1, 0);
    mem = reg_cuda(memory(), BYTES);
    request = flush(mem);
    fails(fx.reads[0].context, FI_READ | FI_RMA, FI_EIO);
    XT_CHECK_RC(ofi_test(request, &done, NULL), xcclSystemError);
    XT_CHECK_HAS(xccl_error_text(), "fx0 (fake) cannot flush device memory");
    XT_CHECK_INT(fx.comm->cause, xcclNetCauseLocal);
    XT_CHECK_RC(begin_flush(mem, BYTES, &other), xcclSystemError);
    XT_CHECK(other == NULL);
    dereg(mem);
    down();
}

static void up_two_rails_that_fail(void)
{
    fx_takes_cuda = 1;
    up_with(0, 2, 0, OFI_TELLS_SIZE | OFI_TELLS_TAG | OFI_TELLS_FAIL);
}

static void second_rail_fails(void *context, uint64_t flags, int err)
{
    fx.comes_by = 1;
    fails(context, flags, err);
    ofi_request_poll(fx.comm);
    fx.comes_by = 0;
}

/* Nobody else can flush what it has brought. */
XT_TEST(a_rail_that_fails_ends_a_comm_with_device_memory)
{
    xcclNetRequest_t request;
    xcclNetMem_t mem;
    int done = 0;

    up_two_rails_that_fail();
    mem = reg_cuda(memory(), BYTES);
    request = flush(mem);
    second_rail_fails(NULL, 0, FI_EHOSTUNREACH);
    XT_CHECK_RC(ofi_test(request, &done, NULL), xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(), "receiving from the peer on card1 (fake): unreachable");
    dereg(mem);
    down();
    up_two_rails_that_fail();
    mem = reg_cuda(memory(), BYTES);
    request = flush(mem);
    second_rail_fails(fx.reads[1].context, FI_READ | FI_RMA, FI_EIO);
    XT_CHECK_RC(ofi_test(request, &done, NULL), xcclSystemError);
    XT_CHECK_HAS(xccl_error_text(), "card1 (fake) cannot flush device memory");
    dereg(mem);
    down();
}

XT_TEST(a_rail_that_failed_before_is_not_flushed)
{
    xcclNetRequest_t request;
    xcclNetMem_t mem;
    int done = 0;

    up_two_rails_that_fail();
    second_rail_fails(NULL, 0, FI_EHOSTUNREACH);
    fx.comm->failover.since_ns[1] -= 200 * XCCL_NS_PER_S;
    for (int i = 0; i < 70; i++)
        ofi_request_poll(fx.comm);
    mem = reg_cuda(memory(), BYTES);
    request = flush(mem);
    XT_CHECK_INT(fx.read_count, 1);
    XT_CHECK_INT(fx.reads[0].rail, 0);
    read_completes(0);
    XT_OK(ofi_test(request, &done, NULL));
    XT_CHECK_INT(done, 1);
    dereg(mem);
    down();
}

XT_TEST(a_flush_that_is_not_taken_ends_the_comm)
{
    xcclNetRequest_t request = NULL;
    xcclNetMem_t mem;

    up_cuda(0, 1, 0);
    mem = reg_cuda(memory(), BYTES);
    fx.send_says = -FI_EHOSTUNREACH;
    XT_CHECK_RC(begin_flush(mem, BYTES, &request), xcclSystemError);
    XT_CHECK_HAS(xccl_error_text(), "a message from the peer: unreachable");
    XT_CHECK(request == NULL);
    dereg(mem);
    down();
}

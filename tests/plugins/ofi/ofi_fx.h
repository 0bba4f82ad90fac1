/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests of the ofi plugin: a fabric that takes what it is given, and completes what a test
 * says, so that the rare orders come every time, and a comm over it that is up. Header only; one
 * test program each. Thread: the test's own. */
#ifndef TESTS_PLUGINS_OFI_OFI_FX_H
#define TESTS_PLUGINS_OFI_OFI_FX_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/wire.h"
#include "net-ofi/ofi_int.h"
#include "xt.h"

#define PIECE    ((uint64_t)10000) /* bytes of one write */
#define LARGE    ((size_t)25000) /* three pieces */
#define ENTRIES  8
#define MEMORIES 320
#define RECORDS  512
#define WRITTEN  ((uint64_t)OFI_IN_PIECES)
#define STRIPE   ((size_t)OFI_STRIPE_BYTES)
#define MEGABYTE ((size_t)1 << 20)

static struct {
    struct fi_ops_tagged tagged;
    struct fi_ops_cq cq_ops;
    struct fi_ops_mr mr_ops;
    struct fi_ops mr_fid_ops, end_fid_ops;
    int closed; /* endpoints and queues */
    struct fi_ops_fabric fabric_ops;
    struct fid_fabric fabric;
    struct fid_ep eps[OFI_RAILS_MAX];
    struct fid_cq cqs[OFI_RAILS_MAX];
    struct fi_ops_rma rma;
    struct fid_domain domain;
    struct fid_mr mrs[MEMORIES];
    uint64_t access[MEMORIES];
    int memories, memories_closed;
    struct fid_av avs[OFI_RAILS_MAX];
    struct fi_ops_av av_ops;
    int av_says; /* of the next addresses, 0: taken */
    struct fi_fabric_attr fabric_attr;
    struct fi_domain_attr domain_attr;
    struct fi_ep_attr ep_attr;
    struct fi_info info;
    struct ofi_ctx ctx;
    struct ofi_device device, members[OFI_RAILS_MAX];
    struct ofi_comm *comm;
    int control; /* the peer's end of the control connection */
    ssize_t send_says; /* of the next sends, 0: taken */
    int comes_by; /* the rail whose queue has the entries */
    int queue_fd; /* the queue's descriptor, in tests that sleep */
    int look_says; /* of the next looks before a sleep, 0: nothing is there */
    void *received, *sent, *place; /* contexts of the last receive, send and receive for a note */
    struct { /* all of messages, not of notes */
        uint64_t tag;
        const void *data;
        size_t bytes;
        int rail;
        void *context;
    } receives[RECORDS], sends[RECORDS], writes[RECORDS];
    int receive_count, send_count, write_count;
    struct { /* what was registered with attributes, the last one */
        struct fi_mr_attr attr;
        struct iovec range; /* also of a DMA-BUF: it has the first words */
        uint64_t words[4]; /* of a DMA-BUF */
        uint64_t flags;
    } told;
    int reg_says; /* of the next registrations, 0: taken */
    struct {
        int rail;
        void *data, *desc;
        size_t bytes;
        fi_addr_t from;
        uint64_t addr, key;
        void *context;
    } reads[RECORDS];
    int read_count;
    struct { /* what the CUDA driver says of all memory */
        unsigned type;
        int device;
        unsigned long long buffer; /* 0: nothing */
    } cuda;
    int refusing; /* rails, a bit each: whatever they are to send */
    int broken; /* the same: whatever is posted fails */
    struct ofi_note note; /* the last one that was sent */
    int note_count;
    struct fi_cq_tagged_entry entries[ENTRIES];
    int first, end; /* of entries */
    struct fi_cq_err_entry error;
    char data[LARGE];
    xcclNetMem_t mem;
} fx;

/* Before a comm is up: its devices take device memory; as a DMA-BUF. */
static int fx_takes_cuda, fx_takes_dmabuf;
static uint32_t fx_library_version;

/* In a note, of each receive. */
static inline uint32_t targets(void)
{
    return fx.comm->writes ? fx.comm->rail_count : 0;
}

static inline void make_device(struct ofi_device *device, uint64_t piece_bytes)
{
    device->member_count = 1;
    device->members[0] = device;
    device->info = &fx.info;
    device->local_mr = 1;
    device->piece_bytes = piece_bytes;
    device->takes_cuda = fx_takes_cuda;
    device->takes_dmabuf = fx_takes_dmabuf;
    device->fabric = &fx.fabric;
    device->domain = &fx.domain;
    snprintf(device->name, sizeof(device->name), "fx0");
    pthread_mutex_init(&device->lock, NULL);
}

static inline void make_member(struct ofi_device *device, uint32_t rail, uint64_t piece_bytes)
{
    make_device(device, piece_bytes);
    snprintf(device->name, sizeof(device->name), "card%u", rail);
}

/* tidy: allow parameters because they are libfabric's */
static inline ssize_t fx_recv(struct fid_ep *ep, void *data, size_t bytes, void *desc,
                              fi_addr_t from, uint64_t tag, uint64_t ignore, void *context)
{
    int at = fx.receive_count;

    (void)desc, (void)from;
    if (fx.broken >> (ep - fx.eps) & 1)
        return -FI_EHOSTUNREACH;
    if (((struct ofi_op *)context)->kind == OFI_NOTE) {
        fx.place = context;
        return 0;
    }
    fx.received = context;
    XT_CHECK(at < RECORDS);
    fx.receives[at].tag = tag;
    XT_CHECK(!(tag & ignore));
    fx.receives[at].data = data;
    fx.receives[at].bytes = bytes;
    fx.receives[at].rail = (int)(ep - fx.eps);
    fx.receives[at].context = context;
    fx.receive_count++;
    return 0;
}

static inline ssize_t fx_send(struct fid_ep *ep, const void *data, size_t bytes, void *desc,
                              fi_addr_t to, uint64_t tag, void *context)
{
    int at = fx.send_count;

    (void)desc, (void)to;
    if (fx.broken >> (ep - fx.eps) & 1)
        return -FI_EHOSTUNREACH;
    if (fx.send_says || fx.refusing >> (ep - fx.eps) & 1)
        return fx.send_says ? fx.send_says : -FI_EAGAIN;
    fx.sent = context;
    if (((struct ofi_op *)context)->kind == OFI_NOTE) {
        XT_CHECK(ofi_note_decode(data, bytes, targets(), &fx.note));
        fx.note_count++;
        return 0;
    }
    XT_CHECK(at < RECORDS);
    fx.sends[at].tag = tag;
    fx.sends[at].data = data;
    fx.sends[at].bytes = bytes;
    fx.sends[at].rail = (int)(ep - fx.eps);
    fx.sends[at].context = context;
    fx.send_count++;
    return 0;
}

/* tidy: allow parameters because they are libfabric's */
static inline ssize_t fx_senddata(struct fid_ep *ep, const void *data, size_t bytes, void *desc,
                                  uint64_t imm, fi_addr_t to, uint64_t tag, void *context)
{
    (void)imm;
    return fx_send(ep, data, bytes, desc, to, tag, context);
}

/* tidy: allow parameters because they are libfabric's */
static inline ssize_t fx_writedata(struct fid_ep *ep, const void *data, size_t bytes, void *desc,
                                   uint64_t imm, fi_addr_t to, uint64_t addr, uint64_t key,
                                   void *context)
{
    int at = fx.write_count;

    (void)desc, (void)to, (void)addr, (void)key;
    if (fx.broken >> (ep - fx.eps) & 1)
        return -FI_EHOSTUNREACH;
    if (fx.refusing >> (ep - fx.eps) & 1)
        return -FI_EAGAIN;
    XT_CHECK(at < RECORDS);
    fx.writes[at].tag = imm;
    fx.writes[at].data = data;
    fx.writes[at].bytes = bytes;
    fx.writes[at].rail = (int)(ep - fx.eps);
    fx.writes[at].context = context;
    fx.write_count++;
    return 0;
}

/* All completions come by the first rail; writes of the peer by the one that a test says. */
static inline ssize_t fx_read(struct fid_cq *cq, void *entries, size_t count)
{
    (void)count;
    if (cq != &fx.cqs[fx.comes_by])
        return -FI_EAGAIN;
    if (fx.error.err)
        return -FI_EAVAIL;
    if (fx.first == fx.end)
        return -FI_EAGAIN;
    memcpy(entries, &fx.entries[fx.first++], sizeof(fx.entries[0]));
    return 1;
}

static inline ssize_t fx_readerr(struct fid_cq *cq, struct fi_cq_err_entry *entry, uint64_t flags)
{
    (void)cq, (void)flags;
    *entry = fx.error;
    fx.error.err = 0;
    return 1;
}

static inline const char *fx_cq_strerror(struct fid_cq *cq, int code, const void *data, char *text,
                                         size_t bytes)
{
    (void)cq, (void)code, (void)data, (void)bytes;
    text[0] = 0;
    return text;
}

static inline const char *fx_strerror(int err)
{
    return err == FI_EHOSTUNREACH ? "unreachable" : "another error";
}

static inline int fx_mr_close(struct fid *fid)
{
    (void)fid;
    fx.memories_closed++;
    return 0;
}

/* Of an endpoint or a queue. */
static inline int fx_close(struct fid *fid)
{
    (void)fid;
    fx.closed++;
    return 0;
}

/* tidy: allow parameters because they are libfabric's */
static inline int fx_mr_reg(struct fid *fid, const void *data, size_t bytes, uint64_t access,
                            uint64_t offset, uint64_t key, uint64_t flags, struct fid_mr **mr_out,
                            void *context)
{
    (void)fid, (void)data, (void)bytes, (void)offset, (void)flags, (void)context;
    XT_CHECK(fx.memories < MEMORIES);
    fx.access[fx.memories] = access;
    fx.mrs[fx.memories].fid.ops = &fx.mr_fid_ops;
    fx.mrs[fx.memories].key = key;
    *mr_out = &fx.mrs[fx.memories++];
    return 0;
}

static inline int fx_mr_regattr(struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags,
                                struct fid_mr **mr_out)
{
    const void *first = attr->mr_iov;

    if (fx.reg_says)
        return fx.reg_says;
    fx.told.attr = *attr;
    fx.told.flags = flags;
    if (flags)
        memcpy(fx.told.words, first, sizeof(fx.told.words));
    else
        fx.told.range = *attr->mr_iov;
    return fx_mr_reg(fid, NULL, 0, attr->access, 0, attr->requested_key, 0, mr_out, NULL);
}

/* tidy: allow parameters because they are libfabric's */
static inline ssize_t fx_rma_read(struct fid_ep *ep, void *data, size_t bytes, void *desc,
                                  fi_addr_t from, uint64_t addr, uint64_t key, void *context)
{
    int at = fx.read_count;

    if (fx.send_says || fx.refusing >> (ep - fx.eps) & 1)
        return fx.send_says ? fx.send_says : -FI_EAGAIN;
    XT_CHECK(at < RECORDS);
    fx.reads[at].rail = (int)(ep - fx.eps);
    fx.reads[at].data = data;
    fx.reads[at].desc = desc;
    fx.reads[at].bytes = bytes;
    fx.reads[at].from = from;
    fx.reads[at].addr = addr;
    fx.reads[at].key = key;
    fx.reads[at].context = context;
    fx.read_count++;
    return 0;
}

/* tidy: allow parameters because they are libfabric's */
static inline int fx_av_insert(struct fid_av *av, const void *addr, size_t count, fi_addr_t *at_out,
                               uint64_t flags, void *context)
{
    (void)addr, (void)count, (void)flags, (void)context;
    if (fx.av_says)
        return fx.av_says;
    *at_out = 100 + (fi_addr_t)(av - fx.avs);
    return 1;
}

static inline int fx_pointer_attribute(void *value, int which, uint64_t at)
{
    (void)at;
    if (which == 2) /* CU_POINTER_ATTRIBUTE_MEMORY_TYPE, _BUFFER_ID, _DEVICE_ORDINAL */
        *(unsigned *)value = fx.cuda.type;
    else if (which == 7 && fx.cuda.buffer)
        *(unsigned long long *)value = fx.cuda.buffer;
    else if (which == 9)
        *(int *)value = fx.cuda.device;
    else
        return 1;
    return 0;
}

static inline uint32_t fx_version(void)
{
    return fx_library_version;
}

static inline int fx_trywait(struct fid_fabric *fabric, struct fid **fids, int count)
{
    (void)fabric;
    XT_CHECK(count == 1 && fids[0] == &fx.cqs[0].fid);
    return fx.look_says;
}

/* A comm that is up, with message 0 behind it, and data registered. piece_bytes: of a write; 0: all
 * is sent. tells: what the peer says that it can. */
/* The other end of a control connection: keys of zeroes, as the comm's that never came up. */
static struct kit_proof peer_proofs[256];

static inline struct kit_proof *peer_proof(int fd)
{
    XT_CHECK(fd >= 0 && fd < 256);
    peer_proofs[fd].is_sender = 1;
    return &peer_proofs[fd];
}

static inline void up_with(int is_send, uint32_t rails, uint64_t piece_bytes, uint32_t tells)
{
    struct ofi_ctx *ctx = &fx.ctx;
    int fds[2];

    memset(&fx, 0, sizeof(fx));
    fx.tagged = (struct fi_ops_tagged){.recv = fx_recv, .send = fx_send, .senddata = fx_senddata};
    fx.cq_ops = (struct fi_ops_cq){
        .read = fx_read, .readerr = fx_readerr, .strerror = fx_cq_strerror};
    fx.fabric_ops.trywait = fx_trywait;
    fx.fabric.ops = &fx.fabric_ops;
    fx.mr_ops.reg = fx_mr_reg;
    fx.mr_ops.regattr = fx_mr_regattr;
    fx.mr_fid_ops.close = fx_mr_close;
    fx.end_fid_ops.close = fx_close;
    fx.rma.writedata = fx_writedata;
    fx.rma.read = fx_rma_read;
    fx.av_ops.insert = fx_av_insert;
    fx.cuda.type = 2;
    fx.cuda.buffer = 1;
    fx.domain.mr = &fx.mr_ops;
    fx.fabric_attr.prov_name = (char *)(uintptr_t) "fake";
    fx.domain_attr.mr_key_size = sizeof(uint64_t);
    fx.info.fabric_attr = &fx.fabric_attr;
    fx.info.domain_attr = &fx.domain_attr;
    fx.ep_attr.max_msg_size = piece_bytes ? piece_bytes : (size_t)1 << 30;
    fx.ep_attr.mem_tag_format = UINT64_MAX;
    fx.info.ep_attr = &fx.ep_attr;
    ctx->library.strerror = fx_strerror;
    ctx->library.version = fx_version;
    ctx->cuda.pointer_attribute = fx_pointer_attribute;
    make_device(&fx.device, piece_bytes);
    fx.device.member_count = rails;
    XT_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    fx.control = fds[0];
    memset(peer_proofs, 0, sizeof(peer_proofs));
    fx.comm = calloc(1, sizeof(*fx.comm));
    XT_CHECK(fx.comm != NULL);
    fx.comm->ctx = ctx;
    fx.comm->device = &fx.device;
    fx.comm->is_send = is_send;
    ofi_control_add(fx.comm, fds[1], OFI_RAILS_MAX);
    fx.comm->tells_size = fx.comm->tells_tag = 1;
    fx.comm->failover.on = fx.comm->is_joined = fx.comm->is_up = 1;
    fx.comm->bytes_max = fx.ep_attr.max_msg_size;
    fx.comm->rail_count = rails;
    for (uint32_t i = 0; i < rails; i++) {
        fx.eps[i].fid.ops = fx.cqs[i].fid.ops = fx.avs[i].fid.ops = &fx.end_fid_ops;
        fx.eps[i].tagged = &fx.tagged;
        fx.eps[i].rma = &fx.rma;
        fx.cqs[i].ops = &fx.cq_ops;
        fx.avs[i].ops = &fx.av_ops;
        fx.device.members[i] = rails == 1 ? &fx.device : &fx.members[i];
        if (rails > 1)
            make_member(&fx.members[i], i, piece_bytes);
        fx.comm->rails[i].device = fx.device.members[i];
        fx.comm->rails[i].member = i;
        fx.comm->rails[i].fabric_fd = -1;
        fx.comm->rails[i].end.ep = &fx.eps[i];
        fx.comm->rails[i].end.cq = &fx.cqs[i];
        fx.comm->rails[i].end.av = &fx.avs[i];
    }
    fx.comm->taken = fx.comm->posted = fx.comm->moved = fx.comm->counted = fx.comm->front = 1;
    snprintf(fx.comm->peer_text, sizeof(fx.comm->peer_text), "the peer");
    xccl_net_tally_join(&fx.device.tally, &fx.comm->counters);
    ofi_request_init(fx.comm);
    XT_OK(ofi_comm_equip(fx.comm, piece_bytes, tells));
    XT_OK(ofi_reg_mr(fx.comm, fx.data, sizeof(fx.data), XCCL_NET_PTR_HOST, &fx.mem));
}

static inline void up_on(int is_send, uint32_t rails, uint64_t piece_bytes)
{
    up_with(is_send, rails, piece_bytes, OFI_TELLS_SIZE | OFI_TELLS_TAG);
}

/* As most tests want it. */
static inline void up(int is_send)
{
    up_on(is_send, 1, PIECE);
}

/* A comm of one rail without writes. */
static inline void up_plain(int is_send)
{
    up_on(is_send, 1, 0);
}

static inline void down(void)
{
    XT_OK(ofi_dereg_mr(fx.comm, fx.mem));
    XT_OK(ofi_dereg_mr(fx.comm, fx.comm->notes.mem));
    XT_OK(ofi_dereg_mr(fx.comm, fx.comm->probe_mem));
    if (fx.comm->flusher)
        XT_OK(ofi_dereg_mr(fx.comm, fx.comm->flusher->mem));
    XT_CHECK(fx.device.regions == NULL);
    ofi_wait_close(fx.comm);
    ofi_piece_destroy(fx.comm);
    ofi_flush_destroy(fx.comm);
    xccl_net_tally_leave(&fx.device.tally, &fx.comm->counters);
    xccl_free(fx.comm->notes.bytes);
    ofi_control_close(fx.comm);
    close(fx.control);
    free(fx.comm);
}

static inline void complete(void *context, uint64_t flags, size_t bytes, uint64_t beside)
{
    XT_CHECK(fx.end < ENTRIES);
    fx.entries[fx.end++] = (struct fi_cq_tagged_entry){
        .op_context = context, .flags = flags, .len = bytes, .data = beside};
}

/* Message of the last receive: a small one that is whole, or the size of one that is written. */
static inline void message_comes(size_t bytes)
{
    complete(fx.received, FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA, bytes, bytes);
}

static inline void size_comes(uint64_t bytes)
{
    complete(fx.received, FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA, 0, WRITTEN | bytes);
}

static inline void piece_comes(uint32_t number, uint32_t piece)
{
    complete(NULL, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, PIECE, number << 8 | piece);
}

static inline void fails(void *context, uint64_t flags, int err)
{
    fx.error = (struct fi_cq_err_entry){.op_context = context, .flags = flags, .err = err};
}

static inline xcclNetRequest_t receive(void)
{
    xcclNetRequest_t request = NULL;
    void *data = fx.data;
    size_t bytes = LARGE;
    uint32_t tag = 7;

    XT_OK(ofi_irecv(fx.comm, 1, &data, &bytes, &tag, &fx.mem, &request));
    XT_CHECK(request != NULL);
    return request;
}

/* --- large messages --- */

static uint8_t *large; /* memory of a MEGABYTE, and its registration */
static xcclNetMem_t large_mem;

static inline void up_large_with(int is_send, uint32_t rails, uint64_t piece_bytes, uint32_t tells)
{
    up_with(is_send, rails, piece_bytes, tells);
    large = xccl_calloc_aligned(4096, MEGABYTE);
    XT_CHECK(large != NULL);
    XT_OK(ofi_reg_mr(fx.comm, large, MEGABYTE, XCCL_NET_PTR_HOST, &large_mem));
}

static inline void up_large(int is_send, uint32_t rails, uint64_t piece_bytes)
{
    up_large_with(is_send, rails, piece_bytes, OFI_TELLS_SIZE | OFI_TELLS_TAG);
}

static inline void down_large(void)
{
    XT_OK(ofi_dereg_mr(fx.comm, large_mem));
    xccl_free(large);
    down();
}

static inline xcclNetRequest_t send_bytes(size_t bytes)
{
    xcclNetRequest_t request = NULL;

    XT_OK(ofi_isend(fx.comm, large, bytes, 7, large_mem, &request));
    XT_CHECK(request != NULL);
    return request;
}

static inline xcclNetRequest_t receive_bytes(size_t bytes)
{
    xcclNetRequest_t request = NULL;
    void *data = large;
    uint32_t tag = 7;

    XT_OK(ofi_irecv(fx.comm, 1, &data, &bytes, &tag, &large_mem, &request));
    XT_CHECK(request != NULL);
    return request;
}

/* One at a time, as the fabric has room for few. */
static inline void leaves(void *context)
{
    complete(context, FI_SEND | FI_TAGGED, 0, 0);
    ofi_request_poll(fx.comm);
    fx.first = fx.end = 0;
}

static inline xcclNetStats_v1 stats_of(struct ofi_device *device)
{
    xcclNetStats_v1 stats = {.size = sizeof(stats)};

    xccl_net_tell_stats(&device->tally, &stats);
    return stats;
}

static inline void noted(uint32_t number, size_t room)
{
    const struct ofi_note note = {.first = number,
                                  .count = 1,
                                  .row = OFI_NO_ROW,
                                  .parts[0] = {.number = number, .room = room}};
    uint32_t place = (uint32_t)__builtin_ctz(~fx.comm->notes.idle);
    size_t bytes = ofi_note_encode(&note, targets(),
                                   fx.comm->notes.bytes + place * fx.comm->notes.stride);

    complete(&fx.comm->notes.ops[place], FI_RECV | FI_TAGGED, bytes, 0);
    ofi_request_poll(fx.comm);
    fx.first = fx.end = 0;
}

/* As often as it takes to look at the control connection, too. */
static inline xcclResult_t test_for_long(xcclNetRequest_t request, int *done_out, size_t *bytes_out)
{
    xcclResult_t rc = xcclSuccess;

    *done_out = 0;
    for (int i = 0; i < 200 && rc == xcclSuccess && !*done_out; i++)
        rc = ofi_test(request, done_out, bytes_out);
    return rc;
}

static inline void is_done(xcclNetRequest_t request, size_t bytes)
{
    size_t got = 0;
    int done = 0;

    XT_OK(test_for_long(request, &done, &got));
    XT_CHECK_INT(done, 1);
    XT_CHECK_INT(got, bytes);
}

static inline void is_under_way(xcclNetRequest_t request)
{
    int done = 0;

    XT_OK(test_for_long(request, &done, NULL));
    XT_CHECK_INT(done, 0);
}

static inline void is_damaged(xcclNetRequest_t request, const char *text)
{
    int done = 0;

    XT_CHECK_RC(test_for_long(request, &done, NULL), xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(), "the peer sends ");
    XT_CHECK_HAS(xccl_error_text(), text);
    XT_CHECK_INT(fx.comm->cause, xcclNetCauseProtocol);
}

/* Words of the control connection. */
enum { COUNT = 1, GOODBYE, GROUPS, SWITCH, NO_PART, FAILS, HAS, ENDED };

/* The next frame that the peer has got by that connection; 0: none. */
static inline uint32_t frame_gone(int fd, uint32_t *number_out)
{
    uint8_t frame[KIT_SEALED(OFI_FRAME_BYTES)];
    struct xccl_wire wire = xccl_wire_over(frame, sizeof(frame));
    ssize_t got = recv(fd, frame, sizeof(frame), MSG_DONTWAIT);
    uint32_t word;

    if (got != sizeof(frame))
        return 0;
    XT_CHECK(kit_proof_open(peer_proof(fd), frame, OFI_FRAME_BYTES));
    word = xccl_wire_get_u32(&wire);
    *number_out = xccl_wire_get_u32(&wire);
    return word;
}

/* The peer says so on the control connection. */
static inline void frame_comes(uint32_t word, uint32_t number)
{
    uint8_t frame[KIT_SEALED(OFI_FRAME_BYTES)];
    struct xccl_wire wire = xccl_wire_over(frame, sizeof(frame));

    xccl_wire_put_u32(&wire, word);
    xccl_wire_put_u32(&wire, number);
    kit_proof_seal(peer_proof(fx.control), frame, OFI_FRAME_BYTES);
    XT_CHECK(send(fx.control, frame, sizeof(frame), MSG_NOSIGNAL) == sizeof(frame));
}

/* The peer closes: all messages before number have left it. */
static inline void goodbye(uint32_t number)
{
    frame_comes(GOODBYE, number);
}

#endif

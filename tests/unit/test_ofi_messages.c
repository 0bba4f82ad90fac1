/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of the ofi plugin over a fabric of this file: it takes what it is given, and completes
 * what a test says, so that the rare orders come every time. What a peer does wrong is an error
 * with words; a receiver whose sender has left loses no message that was whole; only memory that is
 * received into may be written to; and who sleeps is woken. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/wire.h"
#include "net-ofi/ofi_int.h"
#include "xt.h"

#define PIECE    ((uint64_t)10000) /* bytes of one write */
#define LARGE    ((size_t)25000) /* three pieces */
#define ENTRIES  8
#define MEMORIES 8
#define WRITTEN  ((uint64_t)OFI_WRITTEN)

static struct {
    struct fi_ops_tagged tagged;
    struct fi_ops_cq cq_ops;
    struct fi_ops_mr mr_ops;
    struct fi_ops mr_fid_ops;
    struct fi_ops_fabric fabric_ops;
    struct fid_fabric fabric;
    struct fid_ep ep;
    struct fid_cq cq;
    struct fid_domain domain;
    struct fid_mr mrs[MEMORIES];
    uint64_t access[MEMORIES];
    int memories;
    struct fi_fabric_attr fabric_attr;
    struct fi_domain_attr domain_attr;
    struct fi_ep_attr ep_attr;
    struct fi_info info;
    struct ofi_ctx ctx;
    struct ofi_device device;
    struct ofi_comm *comm;
    int control; /* the peer's end of the control connection */
    ssize_t send_says; /* of the next sends, 0: taken */
    int queue_fd; /* the queue's descriptor, in tests that sleep */
    int look_says; /* of the next looks before a sleep, 0: nothing is there */
    void *received, *sent, *place; /* contexts of the last receive, send and receive for a note */
    struct fi_cq_data_entry entries[ENTRIES];
    int first, end; /* of entries */
    struct fi_cq_err_entry error;
    char data[LARGE];
    xcclNetMem_t mem;
} fx;

/* tidy: allow parameters because they are libfabric's */
static ssize_t fx_recv(struct fid_ep *ep, void *data, size_t bytes, void *desc, fi_addr_t from,
                       uint64_t tag, uint64_t ignore, void *context)
{
    (void)ep, (void)data, (void)bytes, (void)desc, (void)from, (void)tag, (void)ignore;
    if (((struct ofi_op *)context)->kind == OFI_NOTE)
        fx.place = context;
    else
        fx.received = context;
    return 0;
}

static ssize_t fx_send(struct fid_ep *ep, const void *data, size_t bytes, void *desc, fi_addr_t to,
                       uint64_t tag, void *context)
{
    (void)ep, (void)data, (void)bytes, (void)desc, (void)to, (void)tag;
    if (!fx.send_says)
        fx.sent = context;
    return fx.send_says;
}

/* tidy: allow parameters because they are libfabric's */
static ssize_t fx_senddata(struct fid_ep *ep, const void *data, size_t bytes, void *desc,
                           uint64_t imm, fi_addr_t to, uint64_t tag, void *context)
{
    (void)imm;
    return fx_send(ep, data, bytes, desc, to, tag, context);
}

static ssize_t fx_read(struct fid_cq *cq, void *entries, size_t count)
{
    (void)cq, (void)count;
    if (fx.error.err)
        return -FI_EAVAIL;
    if (fx.first == fx.end)
        return -FI_EAGAIN;
    memcpy(entries, &fx.entries[fx.first++], sizeof(fx.entries[0]));
    return 1;
}

static ssize_t fx_readerr(struct fid_cq *cq, struct fi_cq_err_entry *entry, uint64_t flags)
{
    (void)cq, (void)flags;
    *entry = fx.error;
    fx.error.err = 0;
    return 1;
}

static const char *fx_cq_strerror(struct fid_cq *cq, int code, const void *data, char *text,
                                  size_t bytes)
{
    (void)cq, (void)code, (void)data, (void)bytes;
    text[0] = 0;
    return text;
}

static const char *fx_strerror(int err)
{
    return err == FI_EHOSTUNREACH ? "unreachable" : "another error";
}

static int fx_mr_close(struct fid *fid)
{
    (void)fid;
    return 0;
}

/* tidy: allow parameters because they are libfabric's */
static int fx_mr_reg(struct fid *fid, const void *data, size_t bytes, uint64_t access,
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

static int fx_trywait(struct fid_fabric *fabric, struct fid **fids, int count)
{
    (void)fabric;
    XT_CHECK(count == 1 && fids[0] == &fx.cq.fid);
    return fx.look_says;
}

/* A comm that is up, with message 0 behind it, and data registered. */
static void up(int is_send)
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
    fx.mr_fid_ops.close = fx_mr_close;
    fx.ep.tagged = &fx.tagged;
    fx.cq.ops = &fx.cq_ops;
    fx.domain.mr = &fx.mr_ops;
    fx.fabric_attr.prov_name = (char *)(uintptr_t) "fake";
    fx.domain_attr.mr_key_size = sizeof(uint64_t);
    fx.info.fabric_attr = &fx.fabric_attr;
    fx.info.domain_attr = &fx.domain_attr;
    fx.ep_attr.max_msg_size = PIECE;
    fx.info.ep_attr = &fx.ep_attr;
    ctx->library.strerror = fx_strerror;
    fx.device.info = &fx.info;
    fx.device.local_mr = 1;
    fx.device.piece_bytes = PIECE;
    fx.device.fabric = &fx.fabric;
    fx.device.domain = &fx.domain;
    snprintf(fx.device.name, sizeof(fx.device.name), "fx0");
    pthread_mutex_init(&fx.device.lock, NULL);
    XT_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    fx.control = fds[0];
    fx.comm = calloc(1, sizeof(*fx.comm));
    XT_CHECK(fx.comm != NULL);
    fx.comm->ctx = ctx;
    fx.comm->device = &fx.device;
    fx.comm->is_send = is_send;
    fx.comm->fd = fds[1];
    fx.comm->tells_size = 1;
    fx.comm->end.ep = &fx.ep;
    fx.comm->end.cq = &fx.cq;
    fx.comm->posted = fx.comm->moved = fx.comm->counted = 1;
    snprintf(fx.comm->peer_text, sizeof(fx.comm->peer_text), "the peer");
    for (int i = 0; i < OFI_REQUESTS; i++) {
        fx.comm->requests[i].comm = fx.comm;
        fx.comm->requests[i].op.request = &fx.comm->requests[i];
    }
    XT_OK(ofi_write_create(fx.comm));
    ofi_write_agree(fx.comm, PIECE);
    XT_OK(ofi_reg_mr(fx.comm, fx.data, sizeof(fx.data), XCCL_NET_PTR_HOST, &fx.mem));
}

static void down(void)
{
    XT_OK(ofi_dereg_mr(fx.comm, fx.mem));
    XT_OK(ofi_dereg_mr(fx.comm, fx.comm->rma->mem));
    XT_CHECK(fx.device.regions == NULL);
    ofi_wait_close(fx.comm);
    if (fx.comm->fd >= 0)
        close(fx.comm->fd);
    close(fx.control);
    xccl_free(fx.comm->rma);
    free(fx.comm);
}

static void complete(void *context, uint64_t flags, size_t bytes, uint64_t beside)
{
    XT_CHECK(fx.end < ENTRIES);
    fx.entries[fx.end++] = (struct fi_cq_data_entry){
        .op_context = context, .flags = flags, .len = bytes, .data = beside};
}

/* Message of the last receive: a small one that is whole, or the size of one that is written. */
static void message_comes(size_t bytes)
{
    complete(fx.received, FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA, bytes, bytes);
}

static void size_comes(uint64_t bytes)
{
    complete(fx.received, FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA, 0, WRITTEN | bytes);
}

static void piece_comes(uint32_t number, uint32_t piece)
{
    complete(NULL, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, PIECE, number << 8 | piece);
}

static void fails(void *context, uint64_t flags, int err)
{
    fx.error = (struct fi_cq_err_entry){.op_context = context, .flags = flags, .err = err};
}

static xcclNetRequest_t receive(void)
{
    xcclNetRequest_t request = NULL;
    void *data = fx.data;
    size_t bytes = LARGE;
    uint32_t tag = 7;

    XT_OK(ofi_irecv(fx.comm, 1, &data, &bytes, &tag, &fx.mem, &request));
    XT_CHECK(request != NULL);
    return request;
}

/* As often as it takes to look at the control connection, too. */
static xcclResult_t test_for_long(xcclNetRequest_t request, int *done_out, size_t *bytes_out)
{
    xcclResult_t rc = xcclSuccess;

    *done_out = 0;
    for (int i = 0; i < 200 && rc == xcclSuccess && !*done_out; i++)
        rc = ofi_test(request, done_out, bytes_out);
    return rc;
}

static void is_done(xcclNetRequest_t request, size_t bytes)
{
    size_t got = 0;
    int done = 0;

    XT_OK(test_for_long(request, &done, &got));
    XT_CHECK_INT(done, 1);
    XT_CHECK_INT(got, bytes);
}

static void is_under_way(xcclNetRequest_t request)
{
    int done = 0;

    XT_OK(test_for_long(request, &done, NULL));
    XT_CHECK_INT(done, 0);
}

static void is_damaged(xcclNetRequest_t request, const char *text)
{
    int done = 0;

    XT_CHECK_RC(test_for_long(request, &done, NULL), xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(), "the peer sends ");
    XT_CHECK_HAS(xccl_error_text(), text);
    XT_CHECK_INT(fx.comm->cause, xcclNetCauseProtocol);
}

/* The peer closes: all messages before number have left it. */
static void goodbye(uint32_t number)
{
    uint8_t frame[OFI_FRAME_BYTES];
    struct xccl_wire wire = xccl_wire_over(frame, sizeof(frame));

    xccl_wire_put_u32(&wire, 2);
    xccl_wire_put_u32(&wire, number);
    XT_CHECK(send(fx.control, frame, sizeof(frame), MSG_NOSIGNAL) == sizeof(frame));
}

/* --- a sender that has left --- */

XT_TEST(a_whole_message_needs_no_note)
{
    xcclNetRequest_t request;

    up(0);
    fx.send_says = -FI_EAGAIN;
    request = receive();
    is_under_way(request);
    message_comes(100);
    is_done(request, 100);
    XT_CHECK_INT(fx.comm->rma->waiting, 0);
    /* The next one is announced as ever. */
    fx.send_says = 0;
    request = receive();
    XT_CHECK(fx.sent != NULL);
    complete(fx.sent, FI_SEND | FI_TAGGED, 0, 0);
    is_under_way(request);
    message_comes(200);
    is_done(request, 200);
    down();
}

XT_TEST(a_note_that_the_sender_does_not_take_any_more_is_withdrawn)
{
    xcclNetRequest_t given, due;

    up(0);
    given = receive();
    message_comes(100);
    is_under_way(given); /* its note has not left yet */
    fx.send_says = -FI_EAGAIN;
    due = receive();
    goodbye(3);
    is_done(given, 100);
    message_comes(200);
    is_done(due, 200);
    /* Late, and nobody's. */
    complete(fx.sent, FI_SEND | FI_TAGGED, 0, 0);
    given = receive();
    message_comes(300);
    is_done(given, 300);
    XT_CHECK_INT(fx.comm->moved, 4);
    XT_CHECK_INT(fx.comm->rma->waiting, 0);
    XT_CHECK_INT(fx.comm->rma->notes_out, 0);
    down();
}

XT_TEST(a_note_that_fails_loses_no_message)
{
    xcclNetRequest_t request;

    up(0);
    request = receive();
    message_comes(100);
    fails(fx.sent, FI_SEND | FI_TAGGED, FI_ENOTCONN);
    is_done(request, 100);
    /* Nor does one that the provider refuses at once. */
    fx.send_says = -FI_EHOSTUNREACH;
    request = receive();
    is_under_way(request);
    message_comes(200);
    is_done(request, 200);
    down();
}

/* The sender may have got the note all the same, so its writes are given some time. */
XT_TEST(a_message_to_be_written_whose_note_was_lost_fails_in_time)
{
    xcclNetRequest_t request;
    int done = 0;

    up(0);
    request = receive();
    fails(fx.sent, FI_SEND | FI_TAGGED, FI_EHOSTUNREACH);
    size_comes(LARGE);
    is_under_way(request);
    for (uint32_t piece = 0; piece < 3; piece++)
        piece_comes(1, piece);
    is_done(request, LARGE);
    request = receive();
    fails(fx.sent, FI_SEND | FI_TAGGED, FI_EHOSTUNREACH);
    size_comes(LARGE);
    is_under_way(request);
    fx.comm->requests[2].lost_ns -= 6 * XCCL_NS_PER_S;
    XT_CHECK_RC(test_for_long(request, &done, NULL), xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(), "announcing to the peer on fx0 (fake): unreachable");
    down();
}

/* --- a peer that keeps to no rule --- */

XT_TEST(a_write_that_nobody_awaits_is_an_error)
{
    static const struct {
        uint32_t number, piece;
    } rows[] = {{1, 3}, {1, 16}, {1, 255}, {2, 0}, {33, 0}, {0, 0}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        xcclNetRequest_t request;

        up(0);
        request = receive();
        complete(fx.sent, FI_SEND | FI_TAGGED, 0, 0);
        size_comes(LARGE);
        piece_comes(rows[i].number, rows[i].piece);
        is_damaged(request, "a write that no receive in flight awaits");
        down();
    }
}

XT_TEST(a_piece_that_comes_twice_is_an_error)
{
    xcclNetRequest_t request;

    up(0);
    request = receive();
    piece_comes(1, 1);
    piece_comes(1, 1);
    is_damaged(request, "a write that no receive in flight awaits");
    down();
}

XT_TEST(a_write_before_its_note_was_given_is_an_error)
{
    xcclNetRequest_t request;

    up(0);
    fx.send_says = -FI_EAGAIN;
    request = receive();
    piece_comes(1, 0);
    is_damaged(request, "a write that no receive in flight awaits");
    down();
}

XT_TEST(a_size_that_its_writes_do_not_have_is_an_error)
{
    xcclNetRequest_t request;

    up(0);
    request = receive();
    piece_comes(1, 2);
    size_comes(PIECE + 1);
    is_damaged(request, "a size that its writes do not have");
    down();
}

XT_TEST(writes_of_a_message_that_came_whole_are_an_error)
{
    xcclNetRequest_t request;

    up(0);
    request = receive();
    piece_comes(1, 0);
    message_comes(100);
    is_damaged(request, "writes of a message that is not written");
    down();
    up(0);
    request = receive();
    message_comes(100);
    piece_comes(1, 0);
    is_damaged(request, "a write that no receive in flight awaits");
    down();
}

XT_TEST(a_message_without_its_size_is_an_error)
{
    xcclNetRequest_t request;

    up(0);
    request = receive();
    complete(fx.received, FI_RECV | FI_TAGGED, 0, 0);
    is_damaged(request, "a message without its size");
    down();
}

/* A send whose note has not come. */
static xcclNetRequest_t send_large(void)
{
    xcclNetRequest_t request = NULL;

    XT_OK(ofi_isend(fx.comm, fx.data, LARGE, 7, fx.mem, &request));
    XT_CHECK(request != NULL && fx.place != NULL);
    return request;
}

XT_TEST(a_write_to_a_sender_is_an_error)
{
    xcclNetRequest_t request;

    up(1);
    request = send_large();
    piece_comes(1, 0);
    is_damaged(request, "a write that nobody awaits");
    down();
    up(0);
    fx.comm->writes = 0;
    request = receive();
    piece_comes(1, 0);
    is_damaged(request, "a write that nobody awaits");
    down();
}

static void note_comes(uint32_t number)
{
    const struct ofi_note note = {.number = number, .room = LARGE};
    const struct ofi_op *place = fx.place;

    ofi_note_encode(&note, fx.comm->rma->note_bytes[place->place]);
    complete(fx.place, FI_RECV | FI_TAGGED, OFI_NOTE_BYTES, 0);
}

XT_TEST(a_note_that_is_none_is_an_error)
{
    xcclNetRequest_t request;

    up(1);
    request = send_large();
    complete(fx.place, FI_RECV | FI_TAGGED, OFI_NOTE_BYTES, 0);
    is_damaged(request, "what is no note of a receive");
    down();
    up(1);
    request = send_large();
    fails(fx.place, FI_RECV | FI_TAGGED, FI_ETRUNC);
    is_damaged(request, "what is no note of a receive");
    down();
    up(1);
    request = send_large();
    note_comes(2 + OFI_REQUESTS);
    is_damaged(request, "a note of a receive that cannot be in flight");
    down();
}

/* --- sleeping --- */

/* A receiver, and the descriptor that its caller sleeps on. */
static int up_asleep(void)
{
    int fd = -1, again = -1;

    up(0);
    XT_OK(ofi_wait_fd(fx.comm, &fd));
    XT_CHECK_INT(fd, -1);
    fx.queue_fd = eventfd(0, EFD_CLOEXEC);
    XT_CHECK(fx.queue_fd >= 0);
    fx.comm->end.can_wait = 1;
    fx.comm->end.cq_fd = fx.queue_fd;
    fx.comm->writes = 0;
    XT_OK(ofi_wait_fd(fx.comm, &fd));
    XT_OK(ofi_wait_fd(fx.comm, &again));
    XT_CHECK(fd >= 0 && again == fd);
    return fd;
}

static void down_asleep(void)
{
    down();
    close(fx.queue_fd);
}

static int is_awake(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};

    return poll(&wait, 1, 0) == 1;
}

/* The poll for a request takes the completion of another one, of which nobody tells again. */
XT_TEST(who_sleeps_is_woken_by_what_the_test_of_another_request_has_found)
{
    xcclNetRequest_t first, second, third;
    int fd = up_asleep(), done = 1;

    first = receive();
    message_comes(100);
    second = receive();
    message_comes(200);
    fx.end = 0;
    is_under_way(first);
    is_under_way(second);
    XT_CHECK_INT(is_awake(fd), 0);
    fx.end = 2;
    XT_OK(ofi_test(second, &done, NULL));
    XT_CHECK_INT(done, 0);
    XT_CHECK_INT(is_awake(fd), 1);
    XT_OK(ofi_test(second, &done, NULL));
    XT_CHECK_INT(done, 1);
    third = receive();
    is_under_way(third);
    XT_CHECK_INT(is_awake(fd), 1); /* the first one is not known yet */
    is_done(first, 100);
    is_under_way(third);
    XT_CHECK_INT(is_awake(fd), 0);
    down_asleep();
}

XT_TEST(who_sleeps_is_woken_by_what_progress_has_found)
{
    xcclNetRequest_t request;
    int fd = up_asleep(), pending = 0;

    request = receive();
    is_under_way(request);
    fx.ctx.comms = fx.comm;
    XT_OK(ofi_progress(&fx.ctx, &pending));
    XT_CHECK_INT(is_awake(fd), 0);
    message_comes(100);
    XT_OK(ofi_progress(&fx.ctx, &pending));
    XT_CHECK_INT(is_awake(fd), 1);
    is_done(request, 100);
    down_asleep();
}

XT_TEST(nobody_sleeps_while_the_provider_has_something_to_do)
{
    xcclNetRequest_t request;
    int fd = up_asleep();

    request = receive();
    fx.look_says = -FI_EAGAIN;
    is_under_way(request);
    XT_CHECK_INT(is_awake(fd), 1);
    fx.look_says = 0;
    is_under_way(request);
    XT_CHECK_INT(is_awake(fd), 0);
    /* Its own descriptor wakes, too. */
    XT_CHECK_INT(eventfd_write(fx.queue_fd, 1), 0);
    XT_CHECK_INT(is_awake(fd), 1);
    down_asleep();
}

/* A note that the provider refuses is given by a later call; nothing from outside tells when. */
XT_TEST(nobody_sleeps_while_a_note_is_refused)
{
    xcclNetRequest_t request;
    int fd = up_asleep();

    fx.comm->writes = 1;
    fx.send_says = -FI_EAGAIN;
    request = receive();
    is_under_way(request);
    XT_CHECK_INT(is_awake(fd), 1);
    fx.send_says = 0;
    is_under_way(request);
    XT_CHECK_INT(is_awake(fd), 0);
    down_asleep();
}

/* From then on time passes until it is an error, of which nothing tells. */
XT_TEST(who_sleeps_is_woken_by_the_end_of_the_peer)
{
    xcclNetRequest_t request;
    int fd = up_asleep(), done = 0;
    xcclResult_t rc = xcclSuccess;

    request = receive();
    is_under_way(request);
    XT_CHECK_INT(is_awake(fd), 0);
    shutdown(fx.control, SHUT_RDWR);
    while (rc == xcclSuccess) {
        XT_CHECK_INT(is_awake(fd), 1);
        rc = ofi_test(request, &done, NULL);
    }
    XT_CHECK_HAS(xccl_error_text(), "the peer has closed it or is gone");
    down_asleep();
}

/* --- what may be written to --- */

XT_TEST(only_memory_that_is_received_into_may_be_written_to)
{
    const uint64_t both = FI_SEND | FI_RECV;
    struct ofi_note note;

    up(1);
    XT_CHECK_INT(fx.memories, 2);
    XT_CHECK(fx.access[0] == both); /* the notes */
    XT_CHECK(fx.access[1] == (both | FI_WRITE));
    XT_CHECK(!ofi_mem_remote(fx.comm, fx.mem, fx.data, &note));
    down();
    up(0);
    XT_CHECK_INT(fx.memories, 2);
    XT_CHECK(fx.access[0] == both);
    XT_CHECK(fx.access[1] == (both | FI_REMOTE_WRITE));
    XT_CHECK(ofi_mem_remote(fx.comm, fx.mem, fx.data, &note));
    XT_CHECK(note.key == fx.mrs[1].key);
    down();
}

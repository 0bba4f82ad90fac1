/* SPDX-License-Identifier: BSD-3-Clause */
/* Links over the socket plugin, with a small executor on each end: random operations in one thread,
 * in two threads and in two processes; operations that differ; a peer that dies; slots that run
 * around. */
#include "proxy/net_link.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/inject.h"
#include "xt.h"

#define SLOT_BYTES   40000u
#define OPS          1500
#define MESSAGES_MAX 9

static struct xccl_net *net_open(int rank)
{
    const struct xccl_net_open_args args = {.rank = rank, .nranks = 2, .comm_name = "test"};
    struct xccl_net *net = NULL;

    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    XT_OK(xccl_net_open_item("socket", &args, &net));
    return net;
}

/* ---- the executor's half ---- */

/* One message's content and size follow from the seed, so that both ends know it. */
static uint32_t message_bytes(uint64_t *random)
{
    uint32_t kind = (uint32_t)(xt_random(random) % 4);

    if (kind == 0)
        return 0;
    if (kind == 1)
        return SLOT_BYTES;
    return (uint32_t)(xt_random(random) % (kind == 2 ? 100 : SLOT_BYTES));
}

struct end {
    struct xccl_net_link *link;
    struct xccl_link *view;
    uint64_t random; /* the same on both ends */
    uint64_t seq;
    struct xccl_net_op op;
    uint32_t left; /* messages that this executor has not written or taken yet */
    uint32_t bytes; /* of the next one */
    /* With buffers (direct): */
    int direct;
    char *buffer; /* a place of SLOT_BYTES for each message of an operation */
    uint64_t own_random;
    uint64_t ahead_random; /* as random, at the first message that has not been told of */
    uint32_t ahead, ahead_bytes; /* that message */
    uint32_t stayed; /* messages that were in the buffer, of all operations */
};

static void end_init(struct end *end, struct xccl_net_link *link, uint64_t seed)
{
    *end = (struct end){.link = link, .view = xccl_net_link_view(link), .random = seed};
}

/* Tells of some messages, of none now and then: both ends draw for themselves. */
static void tell_ahead(void *owner, struct xccl_net_link *link)
{
    struct end *end = owner;

    XT_CHECK(!xccl_net_link_knows(link));
    while (end->ahead < end->op.messages && xt_random(&end->own_random) % 4) {
        char *at = xt_random(&end->own_random) % 4 ? end->buffer + end->ahead * SLOT_BYTES : NULL;

        if (!xccl_net_link_expect(link, at, end->ahead_bytes))
            return;
        if (++end->ahead < end->op.messages)
            end->ahead_bytes = message_bytes(&end->ahead_random);
    }
}

static void end_begin(struct end *end)
{
    end->seq++;
    end->op = (struct xccl_net_op){
        .seq = end->seq,
        .signature = end->seq * 0x9e3779b97f4a7c15ull,
        .flag_low = (uint32_t)(end->seq * 77),
        .messages = (uint32_t)(xt_random(&end->random) % (MESSAGES_MAX + 1)),
    };
    end->left = end->op.messages;
    if (end->left)
        end->bytes = message_bytes(&end->random);
    if (end->direct) {
        end->op.ahead = tell_ahead;
        end->op.ahead_owner = end;
        end->ahead = 0;
        end->ahead_bytes = end->bytes;
        end->ahead_random = end->random;
        memset(end->buffer, 0x77, (size_t)MESSAGES_MAX * SLOT_BYTES);
    }
    xccl_net_link_begin(end->link, &end->op);
}

static struct xccl_slot_header *header_of(struct xccl_link *view)
{
    return (struct xccl_slot_header *)(void *)(view->header +
                                               (size_t)view->slot * view->header_stride);
}

static char *payload_of(struct xccl_link *view)
{
    return view->payload + (size_t)view->slot * view->payload_stride;
}

static uint64_t flag_of(const struct end *end)
{
    return (uint64_t)(uint32_t)(end->view->step + 1) << 32 | end->op.flag_low;
}

static void end_advance(struct end *end)
{
    end->view->step++;
    end->view->slot = end->view->slot + 1 == end->view->nslots ? 0 : end->view->slot + 1;
    end->left--;
    if (end->left)
        end->bytes = message_bytes(&end->random);
}

static char content(const struct end *end, size_t i)
{
    return (char)(end->op.seq * 3 + end->left * 11 + i * 5 + (i >> 9));
}

/* Where a message is written: some into the buffer, which stays as it is until the end. */
static char *write_at(struct end *end)
{
    struct xccl_reach *reach = xccl_net_link_reach(end->link);
    char *place = end->direct && xt_random(&end->own_random) % 3
                      ? end->buffer + (end->op.messages - end->left) * SLOT_BYTES
                      : NULL;

    reach->offers[end->view->slot].at = place;
    end->stayed += place != NULL;
    return place ? place : payload_of(end->view);
}

/* Where it is: where it was told to go, or in the slot. */
static const char *read_at(struct end *end)
{
    const char *at = xccl_net_link_reach(end->link)->offers[end->view->slot].at;
    uint32_t message = end->op.messages - end->left;

    if (!at)
        return payload_of(end->view);
    XT_CHECK(end->direct && at == end->buffer + message * SLOT_BYTES);
    XT_CHECK(message > 0 || end->op.plain); /* that one brings the preamble */
    XT_CHECK(end->bytes >= XCCL_NET_DIRECT_MIN);
    end->stayed++;
    return at;
}

/* Writes what there is room for. */
static void executor_write(struct end *end)
{
    while (end->left) {
        struct xccl_link *view = end->view;
        struct xccl_slot_header *header = header_of(view);
        char *to;

        view->limit = atomic_load_explicit(view->heads, memory_order_acquire) + view->nslots;
        if ((int32_t)(view->step - view->limit) >= 0)
            return;
        to = write_at(end);
        for (size_t i = 0; i < end->bytes; i++)
            to[i] = content(end, i);
        header->bytes = end->bytes;
        atomic_store_explicit(&header->flag, flag_of(end), memory_order_release);
        end_advance(end);
    }
}

/* Takes what is there; publishes its head at every second step, as the executor may. */
static void executor_read(struct end *end)
{
    while (end->left) {
        struct xccl_link *view = end->view;
        struct xccl_slot_header *header = header_of(view);
        const char *from;

        if (atomic_load_explicit(&header->flag, memory_order_acquire) != flag_of(end))
            return;
        XT_CHECK_INT(header->bytes, end->bytes);
        from = read_at(end);
        for (size_t i = 0; i < end->bytes; i++)
            if (from[i] != content(end, i))
                XT_FAIL("operation %llu: byte %zu of %u is wrong", (unsigned long long)end->seq, i,
                        end->bytes);
        end_advance(end);
        if (view->step % 2 == 0)
            atomic_store_explicit(view->heads, view->step, memory_order_release);
    }
}

static xcclResult_t end_turn(struct end *end, int sends)
{
    int moved = 0;

    if (sends)
        executor_write(end);
    else
        executor_read(end);
    return xccl_net_link_progress(end->link, &moved);
}

static int end_is_through(const struct end *end)
{
    return end->left == 0 && xccl_net_link_idle(end->link);
}

static int is_apart; /* of links to come: preambles are messages of their own */

static void connect_both(struct xccl_net_link *send, struct xccl_net_link *recv)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    int send_up = 0, recv_up = 0;

    while (!send_up || !recv_up) {
        XT_OK(xccl_net_link_connect_step(send, &send_up));
        XT_OK(xccl_net_link_connect_step(recv, &recv_up));
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    xccl_net_link_set_apart(send, is_apart);
    xccl_net_link_set_apart(recv, is_apart);
}

struct pair {
    struct xccl_net *net;
    struct end send, recv;
};

static void pair_open(struct pair *pair)
{
    struct xccl_net_link *send, *recv;
    xcclNetHandle_t handle;
    uint64_t seed = xt_seed();

    pair->net = net_open(0);
    XT_OK(xccl_net_link_listen(pair->net, 0, 3, SLOT_BYTES, &handle, &recv));
    XT_OK(xccl_net_link_create_send(pair->net, 0, 4, SLOT_BYTES, &handle, &send));
    connect_both(send, recv);
    end_init(&pair->send, send, seed);
    end_init(&pair->recv, recv, seed);
}

static void pair_close(struct pair *pair)
{
    xccl_net_link_destroy(pair->send.link);
    xccl_net_link_destroy(pair->recv.link);
    xccl_net_close(pair->net);
}

XT_TEST(a_link_shows_slots_like_shared_memory)
{
    struct pair pair;
    struct xccl_link *view;

    pair_open(&pair);
    view = pair.send.view;
    XT_CHECK_INT(xccl_net_link_peer(pair.send.link), 4);
    XT_CHECK_INT(view->peer, 4);
    XT_CHECK_INT(view->nslots, XCCL_NET_SLOTS);
    XT_CHECK_INT(view->limit, XCCL_NET_SLOTS);
    XT_CHECK_INT(view->slot_bytes, SLOT_BYTES);
    XT_CHECK_INT((uintptr_t)view->payload % 4096, 0);
    XT_CHECK_INT(view->payload_stride % 4096, 0);
    XT_CHECK(view->payload_stride >= SLOT_BYTES + 64);
    XT_CHECK_INT((uintptr_t)view->header % XCCL_LINE_BYTES, 0);
    XT_CHECK_INT(xccl_net_link_idle(pair.send.link), 1);
    pair_close(&pair);
    xccl_net_link_destroy(NULL);
}

static void run_both(struct pair *pair, int count)
{
    for (int i = 0; i < count; i++) {
        struct xccl_limit limit = xccl_limit_ms(20000, NULL);

        end_begin(&pair->send);
        end_begin(&pair->recv);
        while (!end_is_through(&pair->send) || !end_is_through(&pair->recv)) {
            XT_OK(end_turn(&pair->send, 1));
            XT_OK(end_turn(&pair->recv, 0));
            XT_CHECK(!xccl_limit_passed(&limit));
        }
    }
}

XT_TEST_DEADLINE(random_operations_in_one_thread, 60)
{
    struct pair pair;

    pair_open(&pair);
    run_both(&pair, OPS);
    XT_CHECK(pair.send.view->step > OPS);
    pair_close(&pair);
}

XT_TEST_DEADLINE(random_operations_with_preambles_apart, 60)
{
    struct pair pair;

    is_apart = 1;
    pair_open(&pair);
    run_both(&pair, OPS);
    XT_CHECK(pair.send.view->step > OPS);
    pair_close(&pair);
}

static void use_buffers(struct end *end)
{
    end->direct = 1;
    end->own_random = xt_seed();
    end->buffer = malloc((size_t)MESSAGES_MAX * SLOT_BYTES);
    XT_CHECK(end->buffer != NULL && xccl_net_link_reach(end->link) != NULL);
}

/* Either end, or both, use slots and buffers in any mixture. */
XT_TEST_DEADLINE(random_operations_in_buffers, 60)
{
    for (int ends = 1; ends < 4; ends++) {
        struct pair pair;

        pair_open(&pair);
        if (ends & 1)
            use_buffers(&pair.send);
        if (ends & 2)
            use_buffers(&pair.recv);
        run_both(&pair, OPS / 3);
        XT_CHECK(!(ends & 1) || pair.send.stayed > OPS / 5);
        XT_CHECK(!(ends & 2) || pair.recv.stayed > OPS / 5);
        free(pair.send.buffer);
        free(pair.recv.buffer);
        pair_close(&pair);
    }
}

/* Tells of all messages as if they were of 20000 bytes. */
static void tell_20000(void *owner, struct xccl_net_link *link)
{
    struct end *end = owner;

    while (end->ahead < end->op.messages &&
           xccl_net_link_expect(link, end->buffer + end->ahead * SLOT_BYTES, 20000))
        end->ahead++;
}

/* Begins an operation of messages of so many bytes on both ends; the receiver expects 20000. */
static void begin_of(struct pair *pair, uint32_t messages, int plain, uint32_t bytes)
{
    struct xccl_net_op op = {.seq = 1, .flag_low = 9, .messages = messages, .plain = plain};

    use_buffers(&pair->recv);
    memset(pair->recv.buffer, 0x77, (size_t)MESSAGES_MAX * SLOT_BYTES);
    pair->send.op = op;
    xccl_net_link_begin(pair->send.link, &op);
    op.ahead = tell_20000;
    op.ahead_owner = &pair->recv;
    pair->recv.op = op;
    xccl_net_link_begin(pair->recv.link, &op);
    pair->send.left = messages;
    pair->send.bytes = bytes;
}

/* Writes the next message, of all 5s. */
static void write_5s(struct end *end, uint32_t bytes)
{
    struct xccl_slot_header *header = header_of(end->view);

    memset(payload_of(end->view), 5, bytes);
    header->bytes = bytes;
    atomic_store_explicit(&header->flag, flag_of(end), memory_order_release);
    end->view->step++;
    end->view->slot++;
}

static void turn_for(struct pair *pair, int turns)
{
    for (int i = 0; i < turns; i++) {
        int moved = 0;

        XT_OK(xccl_net_link_progress(pair->send.link, &moved));
        XT_OK(xccl_net_link_progress(pair->recv.link, &moved));
    }
}

/* What is longer than its buffer is handed over with a size that is not expected, after all that
 * came before; behind the buffer nothing is written, and nothing more happens. */
XT_TEST(a_message_that_is_longer_than_its_buffer_is_handed_over_as_such)
{
    struct pair pair;
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    struct xccl_slot_header *second;

    pair_open(&pair);
    begin_of(&pair, 3, 1, 20000);
    write_5s(&pair.send, 20000);
    write_5s(&pair.send, 20001);
    write_5s(&pair.send, 20000);
    second = (struct xccl_slot_header *)(void *)(pair.recv.view->header + XCCL_LINE_BYTES);
    while (!atomic_load_explicit(&second->flag, memory_order_acquire)) {
        int moved = 0;

        (void)xccl_net_link_progress(pair.send.link, &moved); /* its receiver may have closed */
        XT_OK(xccl_net_link_progress(pair.recv.link, &moved));
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    XT_CHECK_INT(header_of(pair.recv.view)->bytes, 20000);
    XT_CHECK(second->bytes != 20000);
    XT_CHECK_INT(pair.recv.buffer[19999], 5);
    XT_CHECK_INT(pair.recv.buffer[SLOT_BYTES + 20000], 0x77);
    for (int i = 0; i < 100; i++) {
        int moved = 0;

        XT_OK(xccl_net_link_progress(pair.recv.link, &moved));
        XT_CHECK_INT(moved, 0);
    }
    XT_CHECK_INT(xccl_net_link_idle(pair.recv.link), 0);
    free(pair.recv.buffer);
    pair_close(&pair);
}

/* Buffers are not touched before the preamble has been checked, nor once they were let go. */
XT_TEST(buffers_are_received_in_between_the_preamble_and_letting_go)
{
    struct pair pair;
    int moved = 0;

    pair_open(&pair);
    begin_of(&pair, 4, 0, 20000);
    turn_for(&pair, 100);
    xccl_net_link_let_go(pair.recv.link); /* it has nothing yet, so it goes on */
    write_5s(&pair.send, 20000);
    write_5s(&pair.send, 20000);
    while (pair.recv.buffer[SLOT_BYTES + 19999] != 5)
        turn_for(&pair, 1);
    XT_CHECK_INT(pair.recv.buffer[0], 0x77); /* that one is in the slot */
    turn_for(&pair, 100);
    xccl_net_link_let_go(pair.recv.link);
    write_5s(&pair.send, 20000);
    for (int i = 0; i < 1000; i++)
        (void)xccl_net_link_progress(pair.send.link, &moved);
    XT_CHECK(xccl_net_link_progress(pair.recv.link, &moved) != xcclSuccess);
    XT_CHECK_INT(pair.recv.buffer[2 * SLOT_BYTES], 0x77);
    xccl_net_link_let_go(pair.recv.link); /* twice is fine */
    free(pair.recv.buffer);
    pair_close(&pair);
}

/* ---- two ends that do not share a thread ---- */

struct two_ends {
    int handle_pipe[2];
    int ack_pipe[2];
    uint64_t seed;
};

static struct xccl_net_link *open_end(struct xccl_net *net, struct two_ends *both, int sends)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    struct xccl_net_link *link;
    xcclNetHandle_t handle;
    int up = 0;

    if (sends) {
        XT_CHECK_INT(read(both->handle_pipe[0], &handle, sizeof(handle)), sizeof(handle));
        XT_OK(xccl_net_link_create_send(net, 0, 1, SLOT_BYTES, &handle, &link));
    } else {
        XT_OK(xccl_net_link_listen(net, 0, 0, SLOT_BYTES, &handle, &link));
        XT_CHECK_INT(write(both->handle_pipe[1], &handle, sizeof(handle)), sizeof(handle));
    }
    while (!up) {
        XT_OK(xccl_net_link_connect_step(link, &up));
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    return link;
}

static void run_end(int rank, int nranks, void *arg)
{
    struct two_ends *both = arg;
    struct xccl_net *net = net_open(rank);
    struct xccl_net_link *link = open_end(net, both, rank == 0);
    struct xccl_limit limit = xccl_limit_ms(100000, NULL);
    struct end end;

    (void)nranks;
    end_init(&end, link, both->seed);
    for (int i = 0; i < OPS; i++) {
        end_begin(&end);
        while (!end_is_through(&end)) {
            XT_OK(end_turn(&end, rank == 0));
            XT_CHECK(!xccl_limit_passed(&limit));
        }
    }
    xccl_net_link_destroy(link);
    xccl_net_close(net);
}

static void two_ends_init(struct two_ends *both)
{
    XT_CHECK_INT(pipe(both->handle_pipe), 0);
    XT_CHECK_INT(pipe(both->ack_pipe), 0);
    both->seed = xt_seed();
    /* Settings are read before there are two threads. */
    xccl_net_close(net_open(0));
}

static void two_ends_fini(struct two_ends *both)
{
    for (int i = 0; i < 2; i++) {
        close(both->handle_pipe[i]);
        close(both->ack_pipe[i]);
    }
}

XT_TEST_DEADLINE(random_operations_between_two_threads, 120)
{
    struct two_ends both;

    two_ends_init(&both);
    xt_threads_run(2, run_end, &both);
    two_ends_fini(&both);
}

XT_TEST_DEADLINE(random_operations_between_two_processes, 120)
{
    struct two_ends both;

    two_ends_init(&both);
    xt_mp_run(2, run_end, &both);
    two_ends_fini(&both);
}

/* ---- ranks that disagree ---- */

/* Sends one operation and expects another. Gives the receiver's verdict. */
static xcclResult_t disagree(struct pair *pair, struct xccl_net_op ours, struct xccl_net_op theirs)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    xcclResult_t rc = xcclSuccess;
    uint64_t before = 0;
    int moved;

    pair->send.op = theirs;
    pair->send.left = theirs.messages;
    pair->send.bytes = SLOT_BYTES;
    xccl_net_link_begin(pair->send.link, &theirs);
    xccl_net_link_begin(pair->recv.link, &ours);
    while (rc == xcclSuccess && !xccl_net_link_idle(pair->recv.link)) {
        XT_OK(end_turn(&pair->send, 1));
        rc = xccl_net_link_progress(pair->recv.link, &moved);
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    /* Nothing was handed over. */
    for (uint32_t i = 0; i < XCCL_NET_SLOTS; i++) {
        struct xccl_slot_header *header = (void *)(pair->recv.view->header +
                                                   (size_t)i * pair->recv.view->header_stride);

        before |= atomic_load_explicit(&header->flag, memory_order_acquire);
    }
    XT_CHECK_INT(before, 0);
    return rc;
}

static void check_disagree(struct xccl_net_op ours, struct xccl_net_op theirs)
{
    struct pair pair;
    char text[128];

    pair_open(&pair);
    XT_CHECK_RC(disagree(&pair, ours, theirs), xcclInvalidUsage);
    snprintf(text, sizeof(text),
             "called a different operation: its sequence number is %llu, this rank's is %llu",
             (unsigned long long)theirs.seq, (unsigned long long)ours.seq);
    XT_CHECK_HAS(xccl_error_text(), text);
    int moved = 0;
    XT_CHECK_RC(xccl_net_link_progress(pair.recv.link, &moved), xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(), "failed before");
    pair_close(&pair);
}

static struct xccl_net_op op_of(uint64_t seq, uint64_t signature, uint32_t messages)
{
    return (struct xccl_net_op){
        .seq = seq, .signature = signature, .flag_low = 9, .messages = messages};
}

XT_TEST(another_sequence_is_told)
{
    check_disagree(op_of(7, 5, 2), op_of(8, 5, 2));
}

XT_TEST(another_signature_is_told)
{
    check_disagree(op_of(7, 5, 2), op_of(7, 6, 3));
}

XT_TEST(data_where_a_bare_preamble_is_due_is_told)
{
    check_disagree(op_of(7, 5, 0), op_of(8, 5, 4));
}

XT_TEST(a_bare_preamble_where_data_is_due_is_told)
{
    check_disagree(op_of(7, 5, 4), op_of(8, 5, 0));
}

XT_TEST(other_operations_are_told_by_preambles_apart)
{
    is_apart = 1;
    check_disagree(op_of(7, 5, 2), op_of(8, 5, 2));
    check_disagree(op_of(7, 5, 2), op_of(7, 6, 3));
    check_disagree(op_of(7, 5, 0), op_of(8, 5, 4));
    check_disagree(op_of(7, 5, 4), op_of(8, 5, 0));
}

/* ---- going away ---- */

XT_TEST(a_link_is_destroyed_in_the_middle_of_anything)
{
    for (int turns = 0; turns < 40; turns++) {
        struct pair pair;

        pair_open(&pair);
        end_begin(&pair.send);
        end_begin(&pair.recv);
        for (int i = 0; i < turns % 8; i++) {
            XT_OK(end_turn(&pair.send, 1));
            if (i % 2)
                XT_OK(end_turn(&pair.recv, 0));
        }
        pair_close(&pair);
    }
}

XT_TEST(a_link_is_destroyed_before_it_is_up)
{
    struct xccl_net *net = net_open(0);
    struct xccl_net_link *send, *recv;
    xcclNetHandle_t handle;
    int up = 0;

    XT_OK(xccl_net_link_listen(net, 0, 1, SLOT_BYTES, &handle, &recv));
    XT_OK(xccl_net_link_connect_step(recv, &up));
    XT_CHECK_INT(up, 0);
    XT_OK(xccl_net_link_create_send(net, 0, 1, SLOT_BYTES, &handle, &send));
    xccl_net_link_destroy(send);
    XT_OK(xccl_net_link_create_send(net, 0, 1, SLOT_BYTES, &handle, &send));
    XT_OK(xccl_net_link_connect_step(send, &up));
    xccl_net_link_destroy(send);
    xccl_net_link_destroy(recv);
    xccl_net_close(net);
}

XT_TEST(a_link_that_cannot_be_made_says_why_and_leaves_nothing)
{
    struct xccl_net *net = net_open(0);
    struct xccl_net_link *link = NULL;
    xcclNetHandle_t handle;

    memset(&handle, 0, sizeof(handle));
    XT_CHECK_RC(xccl_net_link_listen(net, 5, 1, SLOT_BYTES, &handle, &link), xcclInvalidArgument);
    XT_CHECK_RC(xccl_net_link_listen(net, 0, 1, 0, &handle, &link), xcclInvalidArgument);
    for (uint64_t k = 1; k <= 2; k++) {
        xccl_inject_arm(k);
        XT_CHECK_RC(xccl_net_link_listen(net, 0, 1, SLOT_BYTES, &handle, &link), xcclSystemError);
        xccl_inject_arm(k);
        XT_CHECK_RC(xccl_net_link_create_send(net, 0, 1, SLOT_BYTES, &handle, &link),
                    xcclSystemError);
    }
    xccl_inject_arm(0);
    XT_CHECK(link == NULL);
    /* A handle that is none is found when it is used. */
    int up = 0;
    XT_OK(xccl_net_link_create_send(net, 0, 1, SLOT_BYTES, &handle, &link));
    XT_CHECK_RC(xccl_net_link_connect_step(link, &up), xcclInvalidArgument);
    XT_CHECK_HAS(xccl_error_text(), "network plugin socket cannot connect");
    XT_CHECK_RC(xccl_net_link_connect_step(link, &up), xcclRemoteError);
    xccl_net_link_destroy(link);
    xccl_net_close(net);
}

/* Rank 0 sends and is killed; or rank 1, the receiver, is killed by rank 0. */
static void one_dies(int rank, int victim, struct two_ends *both)
{
    struct xccl_net *net = net_open(rank);
    struct xccl_net_link *link = open_end(net, both, rank == 0);
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    struct end end;
    pid_t pid = getpid();
    uint64_t killed_ns = 0;
    xcclResult_t rc = xcclSuccess;

    if (rank == victim)
        XT_CHECK_INT(write(both->ack_pipe[1], &pid, sizeof(pid)), sizeof(pid));
    end_init(&end, link, both->seed);
    for (int i = 0; rc == xcclSuccess; i++) {
        if (rank != victim && i == 50) {
            XT_CHECK_INT(read(both->ack_pipe[0], &pid, sizeof(pid)), sizeof(pid));
            kill(pid, SIGKILL);
            killed_ns = xccl_clock_ns();
        }
        end_begin(&end);
        while (rc == xcclSuccess && !end_is_through(&end)) {
            rc = end_turn(&end, rank == 0);
            XT_CHECK(!xccl_limit_passed(&limit));
        }
    }
    XT_CHECK_INT(rc, xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(), "127.0.0.1:");
    XT_CHECK(killed_ns && (double)(xccl_clock_ns() - killed_ns) * 1e-9 < xt_bound(1, 2.5));
    xccl_net_link_destroy(link);
    xccl_net_close(net);
}

static void sender_dies(int rank, int nranks, void *arg)
{
    (void)nranks;
    one_dies(rank, 0, arg);
}

static void receiver_dies(int rank, int nranks, void *arg)
{
    (void)nranks;
    one_dies(rank, 1, arg);
}

static void check_death(xt_rank_fn *fn, int victim)
{
    struct two_ends both;
    struct xt_mp *mp;
    int statuses[2];

    two_ends_init(&both);
    mp = xt_mp_start(2, fn, &both);
    xt_mp_wait(mp, statuses);
    XT_CHECK(WIFSIGNALED(statuses[victim]) && WTERMSIG(statuses[victim]) == SIGKILL);
    XT_CHECK_INT(statuses[1 - victim], 0);
    two_ends_fini(&both);
}

XT_TEST(a_killed_sender_is_an_error_within_a_second)
{
    check_death(sender_dies, 0);
}

XT_TEST(a_killed_receiver_is_an_error_within_a_second)
{
    check_death(receiver_dies, 1);
}

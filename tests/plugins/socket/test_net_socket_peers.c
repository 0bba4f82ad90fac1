/* SPDX-License-Identifier: BSD-3-Clause */
/* The socket plugin and its peers: what strangers can do (nothing), what a hostile or dead peer can
 * do (end its own comm with a text that names it). */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kit/kit_cipher.h"
#include "sock_pair.h"

#define STRANGERS 80 /* more than a listener keeps */

/* ---- strangers and hostile peers ---- */

XT_TEST(strangers_with_garbage_or_silence_do_not_disturb)
{
    struct pair pair;
    int fds[STRANGERS];
    char garbage[200], byte = 1;
    uint64_t random = xt_seed();

    pair_listen(&pair);
    for (int i = 0; i < STRANGERS; i++) {
        for (size_t k = 0; k < sizeof(garbage); k++)
            garbage[k] = (char)xt_random(&random);
        fds[i] = raw_connect(&pair.handle);
        /* A third say too little, a third garbage, a third nothing. */
        if (i % 3 == 0)
            raw_send(fds[i], garbage, 1 + (size_t)i % 63);
        if (i % 3 == 1)
            raw_send(fds[i], garbage, sizeof(garbage));
    }
    for (int i = 0; i < 50; i++) {
        XT_OK(pair.net->calls.accept(pair.listener, &pair.recv));
        XT_CHECK(pair.recv == NULL);
    }
    /* Garbage is closed at once: the end of the stream, or a reset for what was not read. */
    XT_CHECK(recv(fds[1], &byte, 1, 0) <= 0);
    pair_connect(&pair);
    post_send(&pair, "hello", 5);
    XT_OK(finish(&pair, post_recv(&pair, garbage, 5), NULL));
    for (int i = 0; i < STRANGERS; i++)
        close(fds[i]);
    pair_close(&pair);
}

/* The receiver closes it, and says nothing. */
static void expect_closed(struct pair *pair, int fd)
{
    char byte;

    for (struct pollfd gone = {.fd = fd, .events = POLLIN}; poll(&gone, 1, 0) == 0;) {
        XT_OK(pair->net->calls.accept(pair->listener, &pair->recv));
        XT_CHECK(pair->recv == NULL);
    }
    XT_CHECK_INT(recv(fd, &byte, 1, 0), 0);
    close(fd);
}

XT_TEST(an_opening_with_a_wrong_byte_is_dropped)
{
    struct pair pair;
    struct kit_proof proof;

    pair_listen(&pair);
    raw_opening(&pair.handle, 0, 1, &proof);
    for (int wrong = 0; wrong < KIT_OPENING_BYTES; wrong += 3) {
        int fd = raw_connect(&pair.handle);

        proof.opening[wrong] ^= 1;
        raw_send(fd, proof.opening, KIT_OPENING_BYTES);
        proof.opening[wrong] ^= 1;
        expect_closed(&pair, fd);
    }
    pair_close(&pair);
}

/* The sender knows the token, and names a cipher that the setting does not allow. */
XT_TEST(a_line_with_a_cipher_that_was_not_offered_is_dropped)
{
    const struct kit_opening opening = {
        .magic = SOCK_HELLO_MAGIC,
        .version = SOCK_WIRE_VERSION,
        .context = {0, 1 | XCCL_NET_ENCRYPT_FULL << 8 | KIT_CIPHER_MAC << 16, 0}};
    struct kit_proof proof = {.is_sender = 1};
    struct pair pair;
    int fd;

    xt_setenv("XCCL_NET_ENCRYPT", "1");
    pair_listen(&pair);
    kit_proof_begin(&proof, raw_token(&pair.handle), &opening);
    fd = raw_connect(&pair.handle);
    raw_send(fd, proof.opening, KIT_OPENING_BYTES);
    XT_CHECK(raw_prove(&pair, fd, &proof));
    expect_closed(&pair, fd);
    pair_close(&pair);
}

/* A reader of the wire has all that was said, and no token. */
XT_TEST(what_was_recorded_brings_nobody_in)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    struct kit_proof proof, later;
    uint8_t answer[KIT_ANSWER_BYTES], seal[KIT_SEAL_BYTES];
    struct pair pair;
    int fd;

    pair_listen(&pair);
    raw_opening(&pair.handle, 0, 1, &proof);
    fd = raw_connect(&pair.handle);
    raw_send(fd, proof.opening, KIT_OPENING_BYTES);
    while (recv(fd, answer, sizeof(answer), MSG_DONTWAIT) < 0) {
        XT_OK(pair.net->calls.accept(pair.listener, &pair.recv));
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    XT_CHECK(kit_proof_hear(&proof, raw_token(&pair.handle), answer));
    kit_proof_seal(&proof, seal, 0);
    close(fd);
    /* The same opening again is not even answered. */
    fd = raw_connect(&pair.handle);
    raw_send(fd, proof.opening, KIT_OPENING_BYTES);
    expect_closed(&pair, fd);
    /* An opening that was recorded on its way is answered, with another nonce: the old seal is
     * wrong. */
    raw_opening(&pair.handle, 0, 1, &later);
    fd = raw_connect(&pair.handle);
    raw_send(fd, later.opening, KIT_OPENING_BYTES);
    while (recv(fd, answer, sizeof(answer), MSG_DONTWAIT) < 0)
        XT_OK(pair.net->calls.accept(pair.listener, &pair.recv));
    raw_send(fd, seal, sizeof(seal));
    expect_closed(&pair, fd);
    pair_connect(&pair);
    pair_close(&pair);
}

/* Connects to the handle, whose first address is changed to one of a listener that answers without
 * the token, until that fails. */
static xcclResult_t connect_to_stranger(struct pair *pair)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    static uint8_t noise[KIT_ANSWER_BYTES], opening[KIT_OPENING_BYTES];
    xcclNetConnect_t state = NULL;
    xcclResult_t rc = xcclSuccess;
    struct xccl_addr addr = handle_addr(&pair->handle);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    xccl_addr_set_port(&addr, 0);
    XT_CHECK_INT(bind(listener, &addr.sa.any, addr.bytes), 0);
    XT_CHECK_INT(listen(listener, 8), 0);
    XT_CHECK_INT(getsockname(listener, &addr.sa.any, &addr.bytes), 0);
    handle_set_addr(&pair->handle, &addr);
    while (rc == xcclSuccess) {
        struct pollfd there = {.fd = listener, .events = POLLIN};
        int fd;

        rc = pair->net->calls.connect(pair->net->ctx, 0, &pair->handle, &state, &pair->send);
        XT_CHECK(pair->send == NULL && !xccl_limit_passed(&limit));
        if (poll(&there, 1, 0) == 0)
            continue;
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        XT_CHECK_INT(recv(fd, opening, sizeof(opening), MSG_WAITALL), sizeof(opening));
        XT_CHECK(memmem(opening, sizeof(opening), raw_token(&pair->handle), 8) == NULL);
        raw_send(fd, noise, sizeof(noise));
        rc = pair->net->calls.connect(pair->net->ctx, 0, &pair->handle, &state, &pair->send);
        close(fd);
    }
    XT_CHECK(state == NULL);
    close(listener);
    return rc;
}

/* Somebody who listens in the receiver's place learns no secret, and the sender says so. */
XT_TEST(an_answer_without_the_token_is_an_error_of_the_sender)
{
    struct pair pair;

    pair_listen(&pair);
    XT_CHECK_RC(connect_to_stranger(&pair), xcclRemoteError);
    XT_CHECK_HAS(pair.net->calls.lastError(pair.net->ctx),
                 "does not know the secret of this connection of the socket plugin");
    pair_close(&pair);
}

/* Comes up as a sender that then says what it likes. */
static int raw_sender(struct pair *pair)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    struct kit_proof proof;
    int fd;

    pair_listen(pair);
    raw_opening(&pair->handle, 0, 1, &proof);
    fd = raw_connect(&pair->handle);
    /* Two parts: an opening is put together from the bytes that come. */
    raw_send(fd, proof.opening, 10);
    XT_OK(pair->net->calls.accept(pair->listener, &pair->recv));
    XT_CHECK(pair->recv == NULL);
    raw_send(fd, proof.opening + 10, KIT_OPENING_BYTES - 10);
    XT_CHECK(raw_prove(pair, fd, &proof));
    while (!pair->recv) {
        XT_OK(pair->net->calls.accept(pair->listener, &pair->recv));
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    return fd;
}

XT_TEST(a_header_from_the_wire_is_checked_before_a_byte_is_placed)
{
    static const uint8_t huge[16] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                     7,    0,    0,    0,    'X',  'C',  'S',  'M'};
    static const uint8_t damaged[16] = {1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1, 2, 3, 4};
    char in[64];
    struct pair pair;
    int fd = raw_sender(&pair);

    raw_send(fd, huge, sizeof(huge));
    XT_CHECK_RC(finish(&pair, post_recv(&pair, in, sizeof(in)), NULL), xcclInvalidUsage);
    XT_CHECK_HAS(xccl_error_text(), "18446744073709551615 bytes");
    close(fd);
    pair_close(&pair);

    fd = raw_sender(&pair);
    raw_send(fd, damaged, sizeof(damaged));
    XT_CHECK_RC(finish(&pair, post_recv(&pair, in, sizeof(in)), NULL), xcclRemoteError);
    XT_CHECK_HAS(xccl_error_text(), "damaged");
    close(fd);
    pair_close(&pair);
}

/* Receives of 80 bytes, 100 apart, with tags from 7 on. */
static void *damaged_recv(struct pair *pair, uint8_t *data, uint32_t first, int count)
{
    void *datas[3] = {data, data + 100, data + 200};
    const size_t bytes[3] = {80, 80, 80};
    const uint32_t tags[3] = {7 + first, 8 + first, 9 + first};
    xcclNetMem_t mems[3] = {pair->recv_mem, pair->recv_mem, pair->recv_mem};
    xcclNetRequest_t request = NULL;

    XT_OK(pair->net->calls.irecv(pair->recv, count, datas, bytes, tags, mems, &request));
    return request;
}

XT_TEST(damaged_streams_never_write_outside_a_receive)
{
    uint64_t random = xt_seed();

    for (int round = 0; round < 60; round++) {
        uint8_t stream[400], in[3][100];
        struct pair pair;
        int fd = raw_sender(&pair);
        xcclResult_t rc = xcclSuccess;

        /* Three good messages of up to 80 bytes, with up to three bytes changed. */
        memset(stream, 0, sizeof(stream));
        for (size_t i = 0, at = 0; i < 3; i++) {
            stream[at] = (uint8_t)(xt_random(&random) % 81);
            stream[at + 8] = (uint8_t)(7 + i);
            memcpy(stream + at + 12, "XCSM", 4);
            stream[at + 12] ^= (uint8_t)i;
            at += 16u + stream[at];
        }
        for (uint64_t i = xt_random(&random) % 4; i > 0; i--)
            stream[xt_random(&random) % 100] ^= (uint8_t)xt_random(&random);
        raw_send(fd, stream, xt_random(&random) % sizeof(stream));
        close(fd);
        memset(in, 0xee, sizeof(in));
        /* One receive at a time, or one group for all. */
        for (int i = 0; i < 3 && rc == xcclSuccess; i += round % 2 ? 3 : 1) {
            int count = round % 2 ? 3 : 1;
            size_t got[8] = {0};

            rc = finish(&pair, damaged_recv(&pair, in[i], (uint32_t)i, count), got);
            XT_CHECK(rc == xcclSuccess || rc == xcclRemoteError || rc == xcclInvalidUsage);
            XT_CHECK(got[0] <= 80 && got[1] <= 80 && got[2] <= 80);
        }
        for (int i = 0; i < 3; i++)
            for (int k = 80; k < 100; k++)
                XT_CHECK_INT(in[i][k], 0xee);
        pair_close(&pair);
    }
}

XT_TEST(a_stream_in_single_bytes_is_put_together)
{
    static const uint8_t header[16] = {3, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 'X', 'C', 'S', 'M'};
    char in[8] = {0};
    struct pair pair;
    int fd = raw_sender(&pair), done = 0;
    size_t got = 0;
    void *request = post_recv(&pair, in, sizeof(in));

    for (size_t i = 0; i < 19; i++) {
        XT_OK(pair.net->calls.test(request, &done, &got));
        XT_CHECK_INT(done, 0);
        raw_send(fd, i < 16 ? (const char *)header + i : &"abc"[i - 16], 1);
    }
    XT_OK(finish(&pair, request, &got));
    XT_CHECK_INT(got, 3);
    XT_CHECK(memcmp(in, "abc", 3) == 0);
    close(fd);
    pair_close(&pair);
}

XT_TEST(a_handle_of_another_kind_is_refused)
{
    struct xccl_net *net = net_open();
    xcclNetHandle_t handle;
    xcclNetConnect_t state = NULL;
    xcclNetSendComm_t comm = NULL;

    memset(&handle, 0x5a, sizeof(handle));
    XT_CHECK_RC(net->calls.connect(net->ctx, 0, &handle, &state, &comm), xcclInvalidArgument);
    XT_CHECK(state == NULL && comm == NULL);
    XT_CHECK_HAS(net->calls.lastError(net->ctx), "handle");
    xccl_net_close(net);
}

XT_TEST(the_handle_keeps_to_its_96_bytes)
{
    struct pair pair;

    pair_listen(&pair);
    for (int i = 96; i < XCCL_NET_HANDLE_BYTES; i++)
        XT_CHECK_INT(pair.handle.bytes[i], 0);
    pair_close(&pair);
}

XT_TEST(a_connect_under_way_can_be_given_up)
{
    struct xccl_addr addr = {.bytes = sizeof(struct sockaddr_in)};
    struct pair pair;
    xcclNetConnect_t state = NULL;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fds[8];

    /* A listener whose queue is full leaves further connects undecided. */
    addr.sa.in4.sin_family = AF_INET;
    addr.sa.in4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    XT_CHECK_INT(bind(listener, &addr.sa.any, addr.bytes), 0);
    XT_CHECK_INT(listen(listener, 0), 0);
    XT_CHECK_INT(getsockname(listener, &addr.sa.any, &addr.bytes), 0);
    for (int i = 0; i < 8; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)!connect(fds[i], &addr.sa.any, addr.bytes);
    }
    pair_listen(&pair);
    handle_set_addr(&pair.handle, &addr);
    for (int i = 0; i < 5; i++) {
        XT_OK(pair.net->calls.connect(pair.net->ctx, 0, &pair.handle, &state, &pair.send));
        XT_CHECK(pair.send == NULL && state != NULL);
    }
    XT_OK(pair.net->calls.closeConnect(pair.net->ctx, state));
    for (int i = 0; i < 8; i++)
        close(fds[i]);
    close(listener);
    pair_close(&pair);
}

XT_TEST(a_refused_connect_names_the_address)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    struct pair pair;
    xcclNetConnect_t state = NULL;
    xcclResult_t rc = xcclSuccess;
    char text[XCCL_ADDR_TEXT_BYTES];
    struct xccl_addr addr;

    pair_listen(&pair);
    addr = handle_addr(&pair.handle);
    xccl_addr_format(&addr, text);
    XT_OK(pair.net->calls.closeListen(pair.listener));
    pair.listener = NULL;
    while (rc == xcclSuccess) {
        rc = pair.net->calls.connect(pair.net->ctx, 0, &pair.handle, &state, &pair.send);
        XT_CHECK(pair.send == NULL && !xccl_limit_passed(&limit));
    }
    XT_CHECK_INT(rc, xcclRemoteError);
    XT_CHECK(state == NULL);
    XT_CHECK_HAS(pair.net->calls.lastError(pair.net->ctx), text);
    pair_close(&pair);
}

/* ---- several addresses ---- */

#define COUNT_OFFSET 42 /* of addresses, in the handle */
#define ADDR_BYTES   20

static int open_descriptors(void)
{
    int count = 0;

    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* Broadcast: no connection ever begins there. */
static void put_nowhere(uint8_t *address)
{
    memset(address + 4, 0xff, 4);
}

/* The first of two addresses leads nowhere. */
static void handle_detour(xcclNetHandle_t *handle)
{
    memcpy(handle->bytes + ADDR_OFFSET + ADDR_BYTES, handle->bytes + ADDR_OFFSET, ADDR_BYTES);
    put_nowhere(handle->bytes + ADDR_OFFSET);
    handle->bytes[COUNT_OFFSET] = 2;
}

XT_TEST(an_address_that_leads_nowhere_is_passed_over)
{
    struct pair pair;
    int before;

    pair_listen(&pair);
    handle_detour(&pair.handle);
    before = open_descriptors();
    pair_connect(&pair);
    /* Two ends and what each may wait with: the way that was passed over has left nothing. */
    XT_CHECK(open_descriptors() - before <= 4);
    pair_close(&pair);
}

XT_TEST(addresses_that_all_lead_nowhere_are_named_with_the_setting)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    xcclNetConnect_t state = NULL;
    xcclResult_t rc = xcclSuccess;
    struct pair pair;

    pair_listen(&pair);
    handle_detour(&pair.handle);
    put_nowhere(pair.handle.bytes + ADDR_OFFSET + ADDR_BYTES);
    while (rc == xcclSuccess) {
        rc = pair.net->calls.connect(pair.net->ctx, 0, &pair.handle, &state, &pair.send);
        XT_CHECK(pair.send == NULL && !xccl_limit_passed(&limit));
    }
    XT_CHECK(state == NULL);
    XT_CHECK_HAS(pair.net->calls.lastError(pair.net->ctx), "255.255.255.255");
    XT_CHECK_HAS(pair.net->calls.lastError(pair.net->ctx), "XCCL_SOCKET_IFNAME");
    pair_close(&pair);
}

/* The error has the cause at each address, and what to do about the stranger. */
XT_TEST(a_stranger_at_one_of_two_addresses_is_named_in_the_error)
{
    struct pair pair;

    pair_listen(&pair);
    put_nowhere(pair.handle.bytes + ADDR_OFFSET + ADDR_BYTES);
    memcpy(pair.handle.bytes + ADDR_OFFSET + ADDR_BYTES, pair.handle.bytes + ADDR_OFFSET, 4);
    pair.handle.bytes[COUNT_OFFSET] = 2;
    XT_CHECK(connect_to_stranger(&pair) != xcclSuccess);
    XT_CHECK_HAS(pair.net->calls.lastError(pair.net->ctx), "(Key was rejected by service)");
    XT_CHECK_HAS(pair.net->calls.lastError(pair.net->ctx), "255.255.255.255");
    XT_CHECK_HAS(pair.net->calls.lastError(pair.net->ctx), "find out who answers");
    pair_close(&pair);
}

/* ---- a peer that dies ---- */

struct killing {
    int pipe[2]; /* the receiver's handle goes to the sender */
};

static void send_for_ever(struct pair *pair)
{
    for (;;) {
        void *send = post_send(pair, big, 100000);

        if (send)
            XT_OK(finish(pair, send, NULL));
    }
}

static void killed_in_the_middle(int rank, int nranks, void *arg)
{
    struct killing *killing = arg;
    struct pair pair = {0};
    xcclNetConnect_t state = NULL;
    uint64_t killed_ns;
    pid_t sender;

    (void)nranks;
    pair.net = net_open();
    if (rank == 1) {
        sender = getpid();
        XT_CHECK_INT(read(killing->pipe[0], &pair.handle, sizeof(pair.handle)),
                     sizeof(pair.handle));
        while (!pair.send)
            XT_OK(pair.net->calls.connect(pair.net->ctx, 0, &pair.handle, &state, &pair.send));
        XT_CHECK_INT(write(killing->pipe[1], &sender, sizeof(sender)), sizeof(sender));
        send_for_ever(&pair);
    }
    XT_OK(pair.net->calls.listen(pair.net->ctx, 0, &pair.handle, &pair.listener));
    XT_CHECK_INT(write(killing->pipe[1], &pair.handle, sizeof(pair.handle)), sizeof(pair.handle));
    while (!pair.recv)
        XT_OK(pair.net->calls.accept(pair.listener, &pair.recv));
    for (int i = 0; i < 100; i++)
        XT_OK(finish(&pair, post_recv(&pair, big, sizeof(big)), NULL));
    XT_CHECK_INT(read(killing->pipe[0], &sender, sizeof(sender)), sizeof(sender));
    kill(sender, SIGKILL);
    killed_ns = xccl_clock_ns();
    for (xcclResult_t rc = xcclSuccess; rc == xcclSuccess;) {
        void *recv = NULL, *data = big;

        rc = pair.net->calls.irecv(pair.recv, 1, &data, &(size_t){sizeof(big)}, &(uint32_t){7},
                                   &pair.recv_mem, &recv);
        if (rc == xcclSuccess)
            rc = finish(&pair, recv, NULL);
        XT_CHECK(rc == xcclSuccess || rc == xcclRemoteError);
    }
    XT_CHECK((double)(xccl_clock_ns() - killed_ns) * 1e-9 < xt_bound(1, 2.5));
    XT_CHECK_HAS(xccl_error_text(), "127.0.0.1:");
    pair_close(&pair);
}

XT_TEST(a_killed_peer_is_an_error_within_a_second_that_names_its_address)
{
    struct killing killing;
    struct xt_mp *mp;
    int statuses[2];

    XT_CHECK_INT(pipe(killing.pipe), 0);
    mp = xt_mp_start(2, killed_in_the_middle, &killing);
    xt_mp_wait(mp, statuses);
    XT_CHECK_INT(statuses[0], 0);
    XT_CHECK(WIFSIGNALED(statuses[1]) && WTERMSIG(statuses[1]) == SIGKILL);
    close(killing.pipe[0]);
    close(killing.pipe[1]);
}

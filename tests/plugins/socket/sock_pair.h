/* SPDX-License-Identifier: BSD-3-Clause */
/* Two ends of a socket connection in one thread, opened through the loader on the loopback
 * interface, for the tests of the socket plugin. */
#ifndef TESTS_PLUGINS_SOCKET_SOCK_PAIR_H
#define TESTS_PLUGINS_SOCKET_SOCK_PAIR_H

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/netaddr.h"
#include "net-socket/sock_wire.h"
#include "kit/kit_proof.h"
#include "plugin/net_plugin.h"
#include "xt.h"

#define TOKEN_OFFSET 8 /* in the handle: magic, version */
#define ADDR_OFFSET  44 /* the first address: 4 bytes, then those behind the zone */
#define BIG_BYTES    ((size_t)24 << 20)

struct pair {
    struct xccl_net *net;
    xcclNetListenComm_t listener;
    xcclNetHandle_t handle;
    void *send, *recv;
    xcclNetMem_t send_mem, recv_mem;
};

static char big[BIG_BYTES];

static inline struct xccl_net *net_open(void)
{
    static const struct xccl_net_open_args args = {.nranks = 2, .comm_name = "test"};
    struct xccl_net *net = NULL;

    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    XT_OK(xccl_net_open_item("socket", &args, &net));
    return net;
}

static inline void pair_listen_on(struct pair *pair, int dev)
{
    memset(pair, 0, sizeof(*pair));
    pair->net = net_open();
    XT_OK(pair->net->calls.listen(pair->net->ctx, dev, &pair->handle, &pair->listener));
}

static inline void pair_listen(struct pair *pair)
{
    pair_listen_on(pair, 0);
}

/* Asks both sides until both have a comm. */
static inline void pair_connect_on(struct pair *pair, int dev)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    xcclNetConnect_t state = NULL;

    while (!pair->send || !pair->recv) {
        if (!pair->send)
            XT_OK(
                pair->net->calls.connect(pair->net->ctx, dev, &pair->handle, &state, &pair->send));
        if (!pair->recv)
            XT_OK(pair->net->calls.accept(pair->listener, &pair->recv));
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    XT_CHECK(state == NULL);
    XT_OK(pair->net->calls.regMr(pair->send, big, sizeof(big), XCCL_NET_PTR_HOST, &pair->send_mem));
    XT_OK(pair->net->calls.regMr(pair->recv, big, sizeof(big), XCCL_NET_PTR_HOST, &pair->recv_mem));
}

static inline void pair_connect(struct pair *pair)
{
    pair_connect_on(pair, 0);
}

static inline void pair_open(struct pair *pair)
{
    pair_listen(pair);
    pair_connect(pair);
}

static inline void pair_close(struct pair *pair)
{
    if (pair->send)
        XT_OK(pair->net->calls.closeSend(pair->send));
    if (pair->recv)
        XT_OK(pair->net->calls.closeRecv(pair->recv));
    if (pair->listener)
        XT_OK(pair->net->calls.closeListen(pair->listener));
    xccl_net_close(pair->net);
}

static inline void *post_send(struct pair *pair, const void *data, size_t bytes)
{
    xcclNetRequest_t request = NULL;

    XT_OK(pair->net->calls.isend(pair->send, data, bytes, 7, pair->send_mem, &request));
    return request;
}

static inline void *post_recv(struct pair *pair, void *data, size_t bytes)
{
    xcclNetRequest_t request = NULL;
    uint32_t tag = 7;

    XT_OK(pair->net->calls.irecv(pair->recv, 1, &data, &bytes, &tag, &pair->recv_mem, &request));
    return request;
}

/* Tests until done or error. */
static inline xcclResult_t finish(struct pair *pair, void *request, size_t *bytes_out)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    xcclResult_t rc = xcclSuccess;
    int done = 0;

    while (rc == xcclSuccess && !done) {
        rc = pair->net->calls.test(request, &done, bytes_out);
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    if (rc != xcclSuccess)
        xccl_error_set_text(pair->net->calls.lastError(pair->net->ctx));
    return rc;
}

/* Both ends of one message: a large one needs the tests of both. */
static inline void finish_both(struct pair *pair, void *send, void *recv, size_t *bytes_out)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    int done = 0;

    while (!done) {
        int sent = 0;

        if (send)
            XT_OK(pair->net->calls.test(send, &sent, NULL));
        if (sent)
            send = NULL;
        XT_OK(pair->net->calls.test(recv, &done, bytes_out));
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    if (send)
        XT_OK(finish(pair, send, NULL));
}

static inline void fill(char *bytes, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (char)(seed + i * 7 + (i >> 8));
}

static inline void expect(const char *bytes, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != (char)(seed + i * 7 + (i >> 8)))
            XT_FAIL("byte %zu of %zu is wrong (seed %llu)", i, count, (unsigned long long)seed);
    }
}

/* ---- peers that are not the plugin ---- */

static inline struct xccl_addr handle_addr(const xcclNetHandle_t *handle)
{
    uint8_t wire[XCCL_ADDR_WIRE_BYTES] = {0};
    struct xccl_addr addr;

    memcpy(wire, handle->bytes + ADDR_OFFSET, 4);
    memcpy(wire + 8, handle->bytes + ADDR_OFFSET + 4, 16);
    XT_OK(xccl_addr_decode(wire, &addr));
    return addr;
}

static inline void handle_set_addr(xcclNetHandle_t *handle, const struct xccl_addr *addr)
{
    uint8_t wire[XCCL_ADDR_WIRE_BYTES];

    xccl_addr_encode(addr, wire);
    memcpy(handle->bytes + ADDR_OFFSET, wire, 4);
    memcpy(handle->bytes + ADDR_OFFSET + 4, wire + 8, 16);
}

static inline int raw_connect(const xcclNetHandle_t *handle)
{
    struct xccl_addr addr = handle_addr(handle);
    int fd = socket(addr.sa.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    XT_CHECK(fd >= 0);
    XT_CHECK_INT(connect(fd, &addr.sa.any, addr.bytes), 0);
    return fd;
}

static inline void raw_send(int fd, const void *bytes, size_t count)
{
    XT_CHECK_INT(send(fd, bytes, count, MSG_NOSIGNAL), count);
}

/* Sends what the kernel takes now; returns how much. */
static inline size_t raw_send_some(int fd, const void *bytes, size_t count)
{
    ssize_t sent = count ? send(fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;

    return sent > 0 ? (size_t)sent : 0;
}

/* Tests the receives that are not done yet. Returns how many were done. */
static inline int test_all(struct pair *pair, void **recvs, size_t *sizes_out, int count)
{
    int sum = 0;

    for (int i = 0, done = 0; i < count; i++, done = 0) {
        if (recvs[i])
            XT_OK(pair->net->calls.test(recvs[i], &done, &sizes_out[i]));
        if (!done)
            continue;
        recvs[i] = NULL;
        sum++;
    }
    return sum;
}

/* The secret of the right sender. */
static inline const uint8_t *raw_token(const xcclNetHandle_t *handle)
{
    return handle->bytes + TOKEN_OFFSET;
}

/* Makes the opening of a line with that secret. */
static inline void raw_opening(const xcclNetHandle_t *handle, uint32_t line, uint32_t line_count,
                               struct kit_proof *proof_out)
{
    const struct kit_opening opening = {
        .magic = SOCK_HELLO_MAGIC, .version = SOCK_WIRE_VERSION, .context = {line, line_count, 0}};

    memset(proof_out, 0, sizeof(*proof_out));
    kit_proof_begin(proof_out, raw_token(handle), &opening);
}

/* Calls accept until the answer to this line is here, and proves the line. 0: the connection is
 * closed instead. */
static inline int raw_prove(struct pair *pair, int fd, struct kit_proof *proof)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    uint8_t answer[KIT_ANSWER_BYTES], seal[KIT_SEAL_BYTES];
    ssize_t got = -1;

    while (got < 0) {
        XT_OK(pair->net->calls.accept(pair->listener, &pair->recv));
        got = recv(fd, answer, sizeof(answer), MSG_DONTWAIT);
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    if (got != sizeof(answer))
        return 0;
    XT_CHECK(kit_proof_hear(proof, raw_token(&pair->handle), answer));
    kit_proof_seal(proof, seal, 0);
    XT_CHECK_INT(send(fd, seal, sizeof(seal), MSG_NOSIGNAL), sizeof(seal));
    return 1;
}

/* The test is the receiver: answers who opens, and gives the line he names. */
static inline uint32_t raw_answer(int fd, const xcclNetHandle_t *handle)
{
    uint8_t opening[KIT_OPENING_BYTES], answer[KIT_ANSWER_BYTES];
    struct kit_proof proof = {.is_sender = 0};

    XT_CHECK_INT(recv(fd, opening, sizeof(opening), MSG_WAITALL), sizeof(opening));
    kit_proof_read(&proof, opening);
    XT_CHECK(kit_proof_is_right(&proof, raw_token(handle)));
    kit_proof_answer(&proof, raw_token(handle), answer);
    raw_send(fd, answer, sizeof(answer));
    return proof.said.context[0];
}

/* A line of a sender of the test's own. */
static inline int raw_line(struct pair *pair, uint32_t line, uint32_t line_count)
{
    struct kit_proof proof;
    int fd = raw_connect(&pair->handle);

    raw_opening(&pair->handle, line, line_count, &proof);
    raw_send(fd, proof.opening, sizeof(proof.opening));
    (void)raw_prove(pair, fd, &proof);
    return fd;
}

/* A sender of one line, which the pair's receiver has accepted. */
static inline int raw_single_sender(struct pair *pair)
{
    struct xccl_limit limit = xccl_limit_ms(20000, NULL);
    const int on = 1;
    int fd;

    pair_listen(pair);
    fd = raw_line(pair, 0, 1);
    XT_CHECK_INT(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), 0);
    while (!pair->recv) {
        XT_OK(pair->net->calls.accept(pair->listener, &pair->recv));
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    return fd;
}

/* Of a message, with the tag of post_send. */
static inline void raw_header(uint8_t header_out[16], int number, size_t bytes)
{
    memset(header_out, 0, 16);
    for (int i = 0; i < 8; i++)
        header_out[i] = (uint8_t)((uint64_t)bytes >> 8 * i);
    header_out[8] = 7;
    memcpy(header_out + 12, "XCSM", 4);
    header_out[12] ^= (uint8_t)number;
}

#endif

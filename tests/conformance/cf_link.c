/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections and whole transfers, as most cases need them: by two roles that hand the handle over
 * the channel, or by one thread that asks both ends in turn.
 *
 * Thread: the role's. */
#include "cf_int.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define GUARD_BYTE 0xc5
#define WIPED_MAX  ((size_t)16 << 20) /* larger ones cost more time than they tell */

/* ---- connections ---- */

static void *accept_one(struct cf *me, xcclNetListenComm_t listen)
{
    struct cf_patience patience = cf_patience("accept of a sender that connects");
    void *comm = NULL;

    for (;;) {
        cf_ok(me, cf_accept(me, listen, &comm), "accept");
        if (comm)
            return comm;
        cf_turn(me, &patience);
    }
}

static void *connect_one(struct cf *me, const xcclNetHandle_t *handle)
{
    struct cf_patience patience = cf_patience("connect to a receiver that accepts");
    xcclNetConnect_t state = NULL;
    void *comm = NULL;

    for (;;) {
        cf_ok(me, cf_connect(me, me->dev, handle, &state, &comm), "connect");
        if (comm)
            break;
        cf_turn(me, &patience);
    }
    if (me->own_contract && state)
        cf_fail(me, "connect returned a comm, but left *state set; it must be NULL then");
    return comm;
}

void *cf_open(struct cf *me)
{
    xcclNetListenComm_t listen = NULL;
    xcclNetHandle_t handle;
    void *comm;

    if (me->role == CF_SENDER) {
        cf_hear(me, &handle, sizeof(handle));
        comm = connect_one(me, &handle);
    } else {
        memset(&handle, 0, sizeof(handle));
        cf_ok(me, cf_listen(me, me->dev, &handle, &listen), "listen");
        cf_tell(me, &handle, sizeof(handle));
        comm = accept_one(me, listen);
        cf_ok(me, cf_close_listen(me, listen), "closeListen");
    }
    return comm;
}

void cf_drain(struct cf *me)
{
    uint64_t end_ns = cf_now() + 1000 * CF_MS;
    int pending = me->props.needsProgress;

    while (pending && cf_now() < end_ns)
        cf_ok(me, me->net->calls.progress(me->net->ctx, &pending), "progress");
}

void cf_close(struct cf *me, void *comm)
{
    cf_drain(me);
    if (me->role == CF_SENDER)
        cf_ok(me, cf_close_send(me, comm), "closeSend");
    else
        cf_ok(me, cf_close_recv(me, comm), "closeRecv");
}

void cf_pair_open(struct cf *me, struct cf_pair *pair)
{
    struct cf_patience patience = cf_patience("connect and accept of one connection");
    xcclNetListenComm_t listen = NULL;
    xcclNetConnect_t state = NULL;
    xcclNetHandle_t handle;

    memset(&handle, 0, sizeof(handle));
    memset(pair, 0, sizeof(*pair));
    cf_ok(me, cf_listen(me, me->dev, &handle, &listen), "listen");
    while (!pair->send || !pair->recv) {
        if (!pair->send)
            cf_ok(me, cf_connect(me, me->dev, &handle, &state, &pair->send), "connect");
        if (!pair->recv)
            cf_ok(me, cf_accept(me, listen, &pair->recv), "accept");
        cf_turn(me, &patience);
    }
    cf_ok(me, cf_close_listen(me, listen), "closeListen");
}

void cf_pair_close(struct cf *me, struct cf_pair *pair)
{
    cf_drain(me);
    cf_ok(me, cf_close_send(me, pair->send), "closeSend");
    cf_ok(me, cf_close_recv(me, pair->recv), "closeRecv");
}

/* ---- memory ---- */

void cf_buffer_make(struct cf *me, void *comm, size_t bytes, size_t shift, struct cf_buffer *buffer)
{
    char what[64];

    memset(buffer, 0, sizeof(*buffer));
    buffer->base_bytes = bytes + shift + 2 * CF_GUARD + 64;
    buffer->base = mmap(NULL, buffer->base_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer->base == MAP_FAILED)
        cf_skip(me, "cannot allocate %zu bytes of memory", buffer->base_bytes);
    buffer->data = buffer->base + CF_GUARD + shift;
    buffer->bytes = bytes;
    buffer->comm = comm;
    cf_wipe(buffer);
    snprintf(what, sizeof(what), "regMr of %zu bytes", bytes ? bytes : 1);
    if (comm)
        cf_ok(me, cf_reg(me, comm, buffer->data, bytes ? bytes : 1, &buffer->mem), what);
}

void cf_buffer_free(struct cf *me, struct cf_buffer *buffer)
{
    if (buffer->comm)
        cf_ok(me, cf_dereg(me, buffer->comm, buffer->mem), "deregMr");
    munmap(buffer->base, buffer->base_bytes);
}

void cf_wipe(struct cf_buffer *buffer)
{
    size_t before = (size_t)(buffer->data - buffer->base);
    size_t inside = buffer->bytes < WIPED_MAX ? buffer->bytes : WIPED_MAX;
    char *end = buffer->data + buffer->bytes;

    memset(buffer->base, GUARD_BYTE, before + inside);
    memset(end, GUARD_BYTE, (size_t)(buffer->base + buffer->base_bytes - end));
}

/* Words that depend on their place; one in a wrong place shows. */
static uint64_t word_at(uint64_t salt, size_t idx)
{
    uint64_t x = (idx + 1 + salt * 0x10001) * 0x9e3779b97f4a7c15u;

    return x ^ (x >> 29);
}

void cf_fill(char *data, size_t bytes, uint64_t salt)
{
    size_t words = bytes / 8;
    uint64_t last = word_at(salt, words);

    for (size_t i = 0; i < words; i++) {
        uint64_t word = word_at(salt, i);

        memcpy(data + i * 8, &word, 8);
    }
    memcpy(data + words * 8, &last, bytes % 8);
}

static _Noreturn void tell_wrong(struct cf *me, const char *data, size_t at, uint64_t salt,
                                 const char *what)
{
    uint64_t word = word_at(salt, at / 8);
    unsigned char want[8], got = (unsigned char)data[at];

    memcpy(want, &word, 8);
    cf_fail(me, "%s: byte %zu is 0x%02x where 0x%02x was sent%s", what, at, got, want[at % 8],
            got == GUARD_BYTE ? " (nothing was written there)" : "");
}

void cf_expect(struct cf *me, const char *data, size_t bytes, uint64_t salt, const char *what)
{
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = word_at(salt, i / 8);
        size_t part = bytes - i < 8 ? bytes - i : 8;

        if (memcmp(data + i, &word, part) == 0)
            continue;
        for (size_t k = 0; k < part; k++) {
            if (data[i + k] != ((const char *)&word)[k])
                tell_wrong(me, data, i + k, salt, what);
        }
    }
}

/* Also reads memory of receives in flight, which a thread of the plugin may write a moment later:
 * what orders the two is the peer, and a thread sanitizer does not see it. */
__attribute__((no_sanitize("thread"))) static void expect_guard(struct cf *me, const char *from,
                                                                const char *end, const char *what)
{
    for (const char *at = from; at < end; at++) {
        if ((unsigned char)*at != GUARD_BYTE)
            cf_fail(me, "%s (rule 5: a receive must not write beyond its buffer)", what);
    }
}

void cf_expect_guards(struct cf *me, const struct cf_buffer *buffer, size_t posted,
                      const char *what)
{
    char text[160];

    snprintf(text, sizeof(text), "%.100s: memory before its receive was written", what);
    expect_guard(me, buffer->base, buffer->data, text);
    snprintf(text, sizeof(text), "%.100s: memory behind its receive was written", what);
    expect_guard(me, buffer->data + posted, buffer->base + buffer->base_bytes, text);
}

/* ---- transfers ---- */

xcclNetRequest_t cf_send_post(struct cf *me, void *comm, const struct cf_buffer *buffer,
                              size_t bytes, uint32_t tag)
{
    struct cf_patience patience = cf_patience("an isend that is not busy");
    xcclNetRequest_t request = NULL;

    for (;;) {
        cf_ok(me, cf_isend(me, comm, buffer->data, bytes, tag, buffer->mem, &request), "isend");
        if (request)
            return request;
        cf_turn(me, &patience);
    }
}

xcclNetRequest_t cf_group_post(struct cf *me, void *comm, const struct cf_recv *recv)
{
    struct cf_patience patience = cf_patience("an irecv that is not busy");
    xcclNetRequest_t request = NULL;

    for (;;) {
        cf_ok(me, cf_irecv(me, comm, recv, &request), "irecv");
        if (request)
            return request;
        cf_turn(me, &patience);
    }
}

xcclNetRequest_t cf_recv_post(struct cf *me, void *comm, const struct cf_buffer *buffer,
                              size_t bytes, uint32_t tag)
{
    const struct cf_recv one = {1, {buffer->data}, {bytes}, {tag}, {buffer->mem}};

    return cf_group_post(me, comm, &one);
}

int cf_size_is(const struct cf *me, size_t size, size_t bytes)
{
    return size == bytes || (!me->own_contract && size >= bytes);
}

void cf_wait(struct cf *me, xcclNetRequest_t request, size_t *sizes, const char *what)
{
    struct cf_patience patience = cf_patience(what);
    int done = 0;

    for (;;) {
        cf_ok(me, cf_test(me, request, &done, sizes), what);
        if (done)
            return;
        cf_turn(me, &patience);
    }
}

void cf_wait_both(struct cf *me, xcclNetRequest_t sending, xcclNetRequest_t receiving,
                  size_t *sizes, const char *what)
{
    struct cf_patience patience = cf_patience(what);
    int sent = 0, received = 0;

    while (!sent || !received) {
        if (!sent)
            cf_ok(me, cf_test(me, sending, &sent, NULL), "test of a send");
        if (!received)
            cf_ok(me, cf_test(me, receiving, &received, sizes), "test of a receive");
        cf_turn(me, &patience);
    }
}

xcclResult_t cf_wait_error(struct cf *me, xcclNetRequest_t request, const char *what)
{
    struct cf_patience patience = cf_patience(what);

    for (;;) {
        int done = 0;
        xcclResult_t rc = cf_test(me, request, &done, NULL);

        if (rc != xcclSuccess)
            return rc;
        if (done)
            cf_fail(me, "%s: test reported done", what);
        cf_turn(me, &patience);
    }
}

void cf_send(struct cf *me, void *comm, struct cf_buffer *buffer, size_t bytes, uint64_t salt)
{
    cf_fill(buffer->data, bytes, salt);
    cf_wait(me, cf_send_post(me, comm, buffer, bytes, 7), NULL, "the end of a send");
}

void cf_recv(struct cf *me, void *comm, struct cf_buffer *buffer, size_t bytes, uint64_t salt)
{
    size_t sizes[XCCL_NET_MAX_RECVS] = {0};
    char what[64];

    cf_wipe(buffer);
    cf_wait(me, cf_recv_post(me, comm, buffer, buffer->bytes, 7), sizes, "the end of a receive");
    snprintf(what, sizeof(what), "a message of %zu bytes", bytes);
    if (!cf_size_is(me, sizes[0], bytes))
        cf_fail(me,
                "%s into a receive of %zu: test reported %zu bytes; it must report the true size "
                "(rule 5)",
                what, buffer->bytes, sizes[0]);
    cf_expect(me, buffer->data, bytes, salt, what);
    cf_expect_guards(me, buffer, buffer->bytes, what);
}

void cf_pair_post(struct cf *me, struct cf_pair *pair, const struct cf_recv *to,
                  const struct cf_buffer *from, size_t bytes, xcclNetRequest_t requests[CF_ROLES])
{
    struct cf_patience patience = cf_patience("an isend and an irecv that are not busy");
    xcclNetRequest_t *sending = &requests[CF_SENDER], *receiving = &requests[CF_RECEIVER];

    *sending = *receiving = NULL;
    if (me->own_contract) {
        *receiving = cf_group_post(me, pair->recv, to);
        *sending = cf_send_post(me, pair->send, from, bytes, 7);
        return;
    }
    for (;;) {
        if (!*receiving)
            cf_ok(me, cf_irecv(me, pair->recv, to, receiving), "irecv");
        if (!*sending)
            cf_ok(me, cf_isend(me, pair->send, from->data, bytes, 7, from->mem, sending), "isend");
        if (*receiving && *sending)
            return;
        cf_turn(me, &patience);
    }
}

#define WARM_BYTES 1000

void cf_pair_warm(struct cf *me, struct cf_pair *pair)
{
    if (!me->own_contract)
        cf_pair_pass(me, pair, WARM_BYTES, 1);
}

void cf_warm(struct cf *me, void *comm)
{
    struct cf_buffer buffer;

    if (me->own_contract)
        return;
    cf_buffer_make(me, comm, WARM_BYTES, 0, &buffer);
    if (me->role == CF_SENDER)
        cf_send(me, comm, &buffer, WARM_BYTES, 1);
    else
        cf_recv(me, comm, &buffer, WARM_BYTES, 1);
    cf_buffer_free(me, &buffer);
}

void cf_pair_pass(struct cf *me, struct cf_pair *pair, size_t bytes, uint64_t salt)
{
    struct cf_buffer from, to;
    xcclNetRequest_t requests[CF_ROLES];
    struct cf_recv one = {.count = 1, .bytes = {bytes}, .tags = {7}};
    size_t sizes[XCCL_NET_MAX_RECVS] = {0};

    cf_buffer_make(me, pair->send, bytes, 0, &from);
    cf_buffer_make(me, pair->recv, bytes, 0, &to);
    cf_fill(from.data, bytes, salt);
    one.data[0] = to.data;
    one.mems[0] = to.mem;
    cf_pair_post(me, pair, &one, &from, bytes, requests);
    cf_wait_both(me, requests[CF_SENDER], requests[CF_RECEIVER], sizes,
                 "the transfer of a message");
    if (!cf_size_is(me, sizes[0], bytes))
        cf_fail(me, "a message of %zu bytes arrived with %zu bytes", bytes, sizes[0]);
    cf_expect(me, to.data, bytes, salt, "the message");
    cf_expect_guards(me, &to, bytes, "the message");
    cf_buffer_free(me, &from);
    cf_buffer_free(me, &to);
}

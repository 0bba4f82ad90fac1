/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases about the life of a connection: it comes up without anybody waiting, in any order, from a
 * handle that is plain bytes. Thread: the role's. */
#include "cf_int.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- one connection, all calls in their order ---- */

static void life_send(struct cf *me)
{
    struct cf_buffer buffer;
    void *comm = cf_open(me);

    cf_buffer_make(me, comm, 1000, 0, &buffer);
    for (uint64_t i = 0; i < 3; i++)
        cf_send(me, comm, &buffer, 1000, i);
    cf_buffer_free(me, &buffer);
    cf_close(me, comm);
}

static void life_recv(struct cf *me)
{
    struct cf_buffer buffer;
    void *comm = cf_open(me);

    cf_buffer_make(me, comm, 1000, 0, &buffer);
    for (uint64_t i = 0; i < 3; i++)
        cf_recv(me, comm, &buffer, 1000, i);
    cf_buffer_free(me, &buffer);
    cf_close(me, comm);
}

static void life_solo(struct cf *me)
{
    struct cf_pair pair;

    for (uint64_t i = 0; i < 3; i++) {
        cf_pair_open(me, &pair);
        cf_pair_pass(me, &pair, 1000, i);
        cf_pair_close(me, &pair);
    }
}

/* ---- nothing blocks ---- */

#define CALLS    20
#define SLOW_MS  (200ull * CF_SLOW)
#define SLOW_MAX 2 /* such calls may be the machine's; a second in one call is never allowed */

static int is_slow(uint64_t begin_ns)
{
    return (cf_now() - begin_ns) / CF_MS > SLOW_MS;
}

static void expect_quick(struct cf *me, const char *call, int slow)
{
    if (slow > SLOW_MAX)
        cf_fail(me, "%d calls: %s took more than %d ms each while the peer was absent", slow, call,
                (int)SLOW_MS);
}

static void absent_peer(struct cf *me)
{
    xcclNetHandle_t handle;
    xcclNetListenComm_t listen = NULL;
    xcclNetConnect_t state = NULL;
    void *comm = NULL;
    uint64_t begin_ns;
    int slow = 0;

    memset(&handle, 0, sizeof(handle));
    cf_ok(me, cf_listen(me, me->dev, &handle, &listen), "listen");
    for (int i = 0; i < CALLS; i++) {
        begin_ns = cf_now();
        cf_ok(me, cf_accept(me, listen, &comm), "accept without a sender");
        slow += is_slow(begin_ns);
        expect_quick(me, "accept", slow);
        if (comm)
            cf_fail(me, "accept returned a comm, but no sender has connected");
    }
    slow = 0;
    for (int i = 0; i < CALLS && !comm; i++) {
        begin_ns = cf_now();
        cf_ok(me, cf_connect(me, me->dev, &handle, &state, &comm), "connect without an accept");
        slow += is_slow(begin_ns);
        expect_quick(me, "connect", slow);
    }
    if (comm)
        cf_ok(me, cf_close_send(me, comm), "closeSend");
    else if (state && me->own_contract)
        cf_ok(me, cf_close_connect(me, state), "closeConnect");
    cf_ok(me, cf_close_listen(me, listen), "closeListen");
}

/* ---- the handle ---- */

/* Each call sees the handle at another address; the page of the one before is gone. */
static void handle_moves(struct cf *me)
{
    struct cf_patience patience = cf_patience("a connection from copies of its handle");
    xcclNetListenComm_t listen = NULL;
    xcclNetConnect_t state = NULL;
    xcclNetHandle_t kept;
    struct cf_pair pair = {NULL, NULL};

    memset(&kept, 0, sizeof(kept));
    cf_ok(me, cf_listen(me, me->dev, &kept, &listen), "listen");
    while (!pair.send || !pair.recv) {
        xcclNetHandle_t *copy = mmap(NULL, sizeof(kept), PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (copy == MAP_FAILED)
            cf_skip(me, "no memory");
        memcpy(copy, &kept, sizeof(kept));
        if (!pair.send)
            cf_ok(me, cf_connect(me, me->dev, copy, &state, &pair.send), "connect");
        munmap(copy, sizeof(kept));
        if (!pair.recv)
            cf_ok(me, cf_accept(me, listen, &pair.recv), "accept");
        cf_turn(me, &patience);
    }
    cf_ok(me, cf_close_listen(me, listen), "closeListen");
    cf_pair_pass(me, &pair, 100, 1);
    cf_pair_close(me, &pair);
}

/* What listen does not write keeps the fill; two bytes in a row three times are no chance. */
static void handle_is_written_whole(struct cf *me)
{
    static const unsigned char fills[3] = {0x00, 0xa5, 0x5a};
    unsigned char stale[XCCL_NET_HANDLE_BYTES];

    memset(stale, 1, sizeof(stale));
    for (int i = 0; i < 3; i++) {
        xcclNetHandle_t handle;
        xcclNetListenComm_t listen = NULL;

        memset(&handle, fills[i], sizeof(handle));
        cf_ok(me, cf_listen(me, me->dev, &handle, &listen), "listen");
        cf_ok(me, cf_close_listen(me, listen), "closeListen");
        for (size_t at = 0; at < sizeof(stale); at++)
            stale[at] &= handle.bytes[at] == fills[i];
    }
    for (size_t at = 0; at < sizeof(stale); at++) {
        if (stale[at])
            cf_fail(me, "listen did not write byte %zu of the handle; it must write all %d", at,
                    XCCL_NET_HANDLE_BYTES);
    }
}

static void wrong_handle(struct cf *me)
{
    struct cf_patience patience = cf_patience("the end of a connect with a handle of 0xff");
    void *comm = NULL;
    xcclNetConnect_t state = NULL;
    xcclNetHandle_t handle;
    xcclResult_t rc = xcclSuccess;

    memset(&handle, 0xff, sizeof(handle));
    while (rc == xcclSuccess && patience.turns < 2000) {
        rc = cf_connect(me, me->dev, &handle, &state, &comm);
        if (comm)
            cf_fail(me, "connect with a handle of 0xff bytes returned a comm");
        cf_turn(me, &patience);
    }
    if (rc != xcclSuccess && state)
        cf_fail(me, "connect failed, but left *state set; it must be NULL after an error");
    if (state)
        cf_ok(me, cf_close_connect(me, state), "closeConnect");
}

/* ---- order ---- */

#define CROWD 6

/* Connects come in the opposite order of the listens; each finds its own. */
static void any_order(struct cf *me)
{
    struct cf_patience patience = cf_patience("six connections in any order");
    xcclNetHandle_t handles[CROWD];
    xcclNetListenComm_t listens[CROWD] = {NULL};
    xcclNetConnect_t states[CROWD] = {NULL};
    struct cf_pair pairs[CROWD];
    int left = 2 * CROWD;

    memset(handles, 0, sizeof(handles));
    memset(pairs, 0, sizeof(pairs));
    for (int i = 0; i < CROWD; i++)
        cf_ok(me, cf_listen(me, me->dev, &handles[i], &listens[i]), "listen");
    while (left > 0) {
        left = 0;
        for (int i = CROWD - 1; i >= 0; i--) {
            if (!pairs[i].send)
                cf_ok(me, cf_connect(me, me->dev, &handles[i], &states[i], &pairs[i].send),
                      "connect");
            if (!pairs[CROWD - 1 - i].recv)
                cf_ok(me, cf_accept(me, listens[CROWD - 1 - i], &pairs[CROWD - 1 - i].recv),
                      "accept");
        }
        for (int i = 0; i < CROWD; i++)
            left += !pairs[i].send + !pairs[i].recv;
        cf_turn(me, &patience);
    }
    for (int i = 0; i < CROWD; i++)
        cf_ok(me, cf_close_listen(me, listens[i]), "closeListen");
    for (uint64_t i = 0; i < CROWD; i++) {
        cf_pair_pass(me, &pairs[i], 64, i);
        cf_pair_close(me, &pairs[i]);
    }
}

/* The sender is up and sends before the receiver looks. */
static void late_accept(struct cf *me)
{
    struct cf_pair pair;
    struct cf_patience patience = cf_patience("an accept long after its connect");
    xcclNetListenComm_t listen = NULL;
    xcclNetConnect_t state = NULL;
    xcclNetHandle_t handle;

    memset(&handle, 0, sizeof(handle));
    memset(&pair, 0, sizeof(pair));
    cf_ok(me, cf_listen(me, me->dev, &handle, &listen), "listen");
    for (int i = 0; i < 200 && !pair.send; i++) {
        cf_ok(me, cf_connect(me, me->dev, &handle, &state, &pair.send), "connect");
        if (!pair.send)
            cf_sleep_ms(i < 20 ? 1 : 0);
    }
    while (!pair.recv || !pair.send) {
        if (!pair.recv)
            cf_ok(me, cf_accept(me, listen, &pair.recv), "accept");
        if (!pair.send)
            cf_ok(me, cf_connect(me, me->dev, &handle, &state, &pair.send), "connect");
        cf_turn(me, &patience);
    }
    cf_ok(me, cf_close_listen(me, listen), "closeListen");
    cf_pair_pass(me, &pair, 4096, 5);
    cf_pair_close(me, &pair);
}

/* A device that is not there. "Ask again" is no answer for ever. */
static void connect_to_no_device(struct cf *me)
{
    struct cf_patience patience = cf_patience(
        "an error of connect on a device that does not exist");
    char mark;
    void *comm;
    xcclNetConnect_t state = NULL;
    xcclNetHandle_t handle;
    xcclResult_t rc;

    memset(&handle, 0xff, sizeof(handle));
    do {
        comm = &mark;
        rc = cf_connect(me, me->net->device_count + 7, &handle, &state, &comm);
        if (rc == xcclSuccess && comm)
            cf_fail(me, "connect on a device that does not exist succeeds");
        cf_turn(me, &patience);
    } while (rc == xcclSuccess);
    if (comm != &mark)
        cf_fail(me, "connect failed, but changed *comm");
    if (state)
        cf_fail(me, "connect failed, but left *state set; it must be NULL after an error");
}

static void send_too_much(struct cf *me, void *comm, const struct cf_buffer *buffer)
{
    struct cf_patience patience = cf_patience("an error of isend of maxBytes + 1");
    size_t bytes = me->shared->props.maxBytes;
    char mark;
    xcclNetRequest_t request;
    xcclResult_t rc;

    if (bytes == SIZE_MAX)
        return;
    do {
        request = &mark;
        rc = cf_isend(me, comm, buffer->data, bytes + 1, 7, buffer->mem, &request);
        if (rc == xcclSuccess && request)
            cf_fail(me, "isend of maxBytes + 1 succeeds");
        cf_turn(me, &patience);
    } while (rc == xcclSuccess);
    if (rc != xcclInvalidArgument)
        cf_fail(me, "isend of maxBytes + 1 returned %s instead of invalid argument",
                cf_result_name(rc));
    if (request != &mark)
        cf_fail(me, "isend failed, but changed *request");
}

/* After each error outputs are as they were and the comm works on. */
static void outputs_after_errors(struct cf *me)
{
    char mark;
    struct cf_pair pair;
    struct cf_buffer buffer;
    xcclNetMem_t mem = &mark;
    xcclResult_t rc;

    connect_to_no_device(me);
    cf_pair_open(me, &pair);
    cf_buffer_make(me, pair.send, 100, 0, &buffer);
    rc = me->net->calls.regMr(pair.send, buffer.data, 100, 0x40000000u, &mem);
    if (rc == xcclSuccess)
        cf_ok(me, cf_dereg(me, pair.send, mem), "deregMr");
    else if (mem != &mark)
        cf_fail(me, "regMr failed, but changed *mem");
    send_too_much(me, pair.send, &buffer);
    cf_pair_pass(me, &pair, 100, 3);
    cf_buffer_free(me, &buffer);
    cf_pair_close(me, &pair);
}

const struct cf_case cf_cases_life[] = {
    {.name = "life_of_a_connection",
     .text = "listen, connect, accept, send, close in their order",
     .forms = CF_PAIRED | CF_SINGLE,
     .send = life_send,
     .recv = life_recv,
     .solo = life_solo},
    {.name = "nothing_blocks_without_a_peer",
     .rule = 1,
     .forms = CF_SINGLE,
     .solo = absent_peer,
     .text = "listen, accept and connect return at once"},
    {.name = "handle_may_move",
     .rule = 12,
     .forms = CF_SINGLE,
     .solo = handle_moves,
     .text = "each connect may see a copy of the handle at another address"},
    {.name = "handle_is_written_whole",
     .forms = CF_SINGLE,
     .flags = CF_OWN,
     .solo = handle_is_written_whole,
     .text = "listen writes all 128 bytes",
     .why = "its plugins write only what they use"},
    {.name = "wrong_handle_is_harmless",
     .flags = CF_OWN,
     .forms = CF_SINGLE,
     .solo = wrong_handle,
     .text = "connect with an invalid handle returns no comm",
     .why = "its plugins trust the handle"},
    {.name = "connections_in_any_order",
     .forms = CF_SINGLE,
     .solo = any_order,
     .text = "connects of an instance may finish in any order"},
    {.name = "late_accept_finds_its_sender",
     .forms = CF_SINGLE,
     .solo = late_accept,
     .text = "accept finds a sender that connected long before"},
    {.name = "outputs_stay_after_errors",
     .rule = 4,
     .forms = CF_SINGLE,
     .flags = CF_OWN,
     .solo = outputs_after_errors,
     .text = "an error leaves outputs unchanged",
     .why = "it says nothing about outputs after errors"},
    {.name = NULL},
};

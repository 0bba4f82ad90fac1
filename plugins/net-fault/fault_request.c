/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages under faults. What becomes of a post is drawn once, when it is made:
 *
 *   post --busy--> nothing          post --error, dead--> the comm has failed
 *   post --> HELD --some turns, in order--> ACTIVE --finished--> FINISHED --delay, reorder--> told
 *
 * HELD exists for sends only: the wrapped plugin gets them later, in the order of posting, and the
 * caller's memory is looked at only then. A turn is a test of any request of the comm or an isend.
 * No send is told done before the wrapped plugin says so, so this hook never owes the wire
 * anything. After an injected error nothing more is asked of the wrapped plugin's requests; after
 * one of its own, only whether they were complete before.
 *
 * Thread: the comm's, registrations also from a second one. Nothing here allocates or locks. */
#include "fault_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

#define NS_PER_US 1000ull

static const char *const kind_words[] = {"send", "receive", "flush", "put"};

static const struct fault_ctx *ctx_of(const struct fault_comm *comm)
{
    return (const struct fault_ctx *)comm->base.ctx;
}

/* ---- a failed comm ---- */

/* The comm's error again, or success. */
static xcclResult_t comm_check(const struct fault_comm *comm)
{
    /* Acquire: the text was written before. Pairs with comm_fail(). */
    xcclResult_t rc = (xcclResult_t)atomic_load_explicit(&comm->rc, memory_order_acquire);

    if (rc != xcclSuccess)
        xccl_error_set_text(comm->error_text);
    return rc;
}

/* Keeps the thread's error for all later calls; the first one stays. */
static xcclResult_t comm_fail(struct fault_comm *comm, xcclResult_t rc, int injected)
{
    xcclResult_t kept = comm_check(comm);

    if (kept != xcclSuccess)
        return kept;
    snprintf(comm->error_text, sizeof(comm->error_text), "%s", xccl_error_text());
    comm->injected = injected;
    /* Release: pairs with comm_check() on a thread that registers memory. */
    atomic_store_explicit(&comm->rc, (int)rc, memory_order_release);
    return rc;
}

/* An error that the wrapped plugin gave for this comm. A wrong argument harms nothing. */
static xcclResult_t comm_fail_inner(struct fault_comm *comm, xcclResult_t rc)
{
    if (rc == xcclSuccess || rc == xcclInvalidArgument)
        return rc;
    return comm_fail(comm, rc, 0);
}

static xcclResult_t comm_inject(struct fault_comm *comm, enum fault_verdict verdict,
                                const struct fault_fate *fate, const char *what)
{
    int dead = verdict == FAULT_DEAD;

    comm->cause = dead ? xcclNetCausePeerGone : xcclNetCauseLinkDown;
    return comm_fail(comm,
                     xccl_fail_quietly(dead ? xcclRemoteError : xcclSystemError, 0, NULL,
                                       "fault injected: %s, %s on %s comm %u (seed %llu, draw "
                                       "%llu)",
                                       dead ? "the peer has died" : "the link has failed", what,
                                       comm->base.is_send ? "send" : "receive", comm->base.number,
                                       (unsigned long long)ctx_of(comm)->setting.seed,
                                       (unsigned long long)fate->draw),
                     1);
}

/* ---- posting ---- */

/* 1: the hook has answered this post itself, with *rc_out. */
static int post_answered(struct fault_comm *comm, const char *entry, int may_be_busy,
                         xcclNetRequest_t *request_out, xcclResult_t *rc_out)
{
    *rc_out = comm_check(comm);
    if (*rc_out != xcclSuccess)
        return 1;
    if (comm->fate_drawn)
        return 0;
    comm->fate = fault_fate_draw(&comm->stream, &ctx_of(comm)->setting);
    if (comm->fate.at_post != FAULT_NONE) {
        *rc_out = comm_inject(comm, comm->fate.at_post, &comm->fate, entry);
        return 1;
    }
    if (may_be_busy && comm->fate.busy) {
        *request_out = NULL;
        return 1;
    }
    comm->fate_drawn = 1;
    return 0;
}

/* Gives the request its fate, once the post has been taken. */
static void request_start(struct fault_comm *comm, struct fault_request *request,
                          enum fault_state state)
{
    request->state = state;
    request->fate = comm->fate;
    request->tests = 0;
    request->tell_ns = 0;
    comm->fate_drawn = 0;
}

/* What a hook_ function answered to a post. */
static xcclResult_t post_passed(struct fault_comm *comm, xcclResult_t rc,
                                const xcclNetRequest_t *request_out)
{
    if (rc == xcclSuccess && *request_out)
        request_start(comm, *request_out, FAULT_ACTIVE);
    else if (rc != xcclSuccess)
        comm->fate_drawn = 0;
    return comm_fail_inner(comm, rc);
}

xcclResult_t fault_irecv(xcclNetRecvComm_t comm_, int count, void *const *data, const size_t *bytes,
                         const uint32_t *tags, const xcclNetMem_t *mems,
                         xcclNetRequest_t *request_out)
{
    struct fault_comm *comm = comm_;
    xcclResult_t rc;

    if (post_answered(comm, "irecv", 1, request_out, &rc))
        return rc;
    return post_passed(comm, hook_irecv(comm, count, data, bytes, tags, mems, request_out),
                       request_out);
}

/* No request means that there is nothing to wait for, which is not the hook's to say; but it may
 * make the caller wait where the wrapped plugin would not. */
xcclResult_t fault_iflush(xcclNetRecvComm_t comm_, int count, void *const *data,
                          const size_t *bytes, const xcclNetMem_t *mems,
                          xcclNetRequest_t *request_out)
{
    struct fault_comm *comm = comm_;
    struct fault_request *request;
    xcclResult_t rc;

    if (post_answered(comm, "iflush", 0, request_out, &rc))
        return rc;
    rc = post_passed(comm, hook_iflush(comm, count, data, bytes, mems, request_out), request_out);
    if (rc != xcclSuccess || *request_out)
        return rc;
    comm->fate_drawn = 0;
    if (comm->fate.late_us == 0)
        return xcclSuccess;
    request = (struct fault_request *)hook_request_take(&comm->base, HOOK_FLUSH);
    if (!request)
        return xcclSuccess;
    request_start(comm, request, FAULT_FINISHED);
    request->base.count = 0;
    request->tell_ns = xccl_clock_ns() + request->fate.late_us * NS_PER_US;
    *request_out = request;
    return xcclSuccess;
}

xcclResult_t fault_iput(xcclNetSendComm_t comm_, const void *data, size_t bytes, xcclNetMem_t mem,
                        const xcclNetMemKey_t *key, uint64_t offset, xcclNetRequest_t *request_out)
{
    struct fault_comm *comm = comm_;
    xcclResult_t rc;

    if (post_answered(comm, "iput", 1, request_out, &rc))
        return rc;
    return post_passed(comm, hook_iput(comm, data, bytes, mem, key, offset, request_out),
                       request_out);
}

/* tidy: allow parameters because the contract's entry has as many */
xcclResult_t fault_iput_signal(xcclNetSendComm_t comm_, const void *data, size_t bytes,
                               xcclNetMem_t mem, const xcclNetMemKey_t *key, uint64_t offset,
                               const xcclNetMemKey_t *signal_key, uint64_t signal_offset,
                               uint64_t value, xcclNetRequest_t *request_out)
{
    struct fault_comm *comm = comm_;
    xcclResult_t rc;

    if (post_answered(comm, "iputSignal", 1, request_out, &rc))
        return rc;
    rc = hook_iput_signal(comm, data, bytes, mem, key, offset, signal_key, signal_offset, value,
                          request_out);
    return post_passed(comm, rc, request_out);
}

/* ---- progress ---- */

/* Asks the wrapped plugin whether an ACTIVE request has finished, and keeps what it says. */
static xcclResult_t request_ask(struct fault_comm *comm, struct fault_request *request)
{
    const struct fault_ctx *ctx = ctx_of(comm);
    int finished = 0;
    xcclResult_t rc = hook_pass(
        &ctx->base, ctx->base.plugin->test(request->base.inner, &finished, request->bytes));

    if (rc != xcclSuccess)
        return comm_fail(comm, rc, 0);
    if (!finished)
        return xcclSuccess;
    request->state = FAULT_FINISHED;
    if (request->fate.late_us > 0)
        request->tell_ns = xccl_clock_ns() + request->fate.late_us * NS_PER_US;
    return xcclSuccess;
}

/* A plugin's requests are free again only once they are tested. A caller that waits for a send that
 * is held here may test no other, so that the hook has to. */
static void comm_reap(struct fault_comm *comm)
{
    for (uint32_t i = 0; i < HOOK_REQUESTS; i++) {
        struct fault_request *request = (struct fault_request *)hook_request_at(&comm->base, i);

        if (!request->base.taken || request->state != FAULT_ACTIVE)
            continue;
        if (request_ask(comm, request) != xcclSuccess)
            return;
    }
}

/* One turn of the held sends: the first one waits a turn less, or goes to the wrapped plugin. */
static void comm_move(struct fault_comm *comm)
{
    const struct fault_ctx *ctx = ctx_of(comm);
    struct fault_request *request;

    while ((request = comm->held_first) && comm_check(comm) == xcclSuccess) {
        xcclNetRequest_t inner = NULL;
        xcclResult_t rc;

        if (request->fate.hold > 0) {
            request->fate.hold--;
            return;
        }
        rc = hook_pass(&ctx->base,
                       ctx->base.plugin->isend(comm->base.inner, request->data, request->send_bytes,
                                               request->tag, request->mem, &inner));
        if (rc != xcclSuccess) {
            comm_fail(comm, rc, 0);
            return;
        }
        if (!inner) {
            comm_reap(comm);
            return;
        }
        request->base.inner = inner;
        request->state = FAULT_ACTIVE;
        comm->held_first = request->next;
    }
}

xcclResult_t fault_isend(xcclNetSendComm_t comm_, const void *data, size_t bytes, uint32_t tag,
                         xcclNetMem_t mem, xcclNetRequest_t *request_out)
{
    struct fault_comm *comm = comm_;
    struct fault_request *request;
    xcclResult_t rc;

    comm_move(comm);
    if (post_answered(comm, "isend", 1, request_out, &rc))
        return rc;
    /* One that is too large gets its error at once. */
    if (bytes > comm->max_bytes || (comm->fate.hold == 0 && !comm->held_first)) {
        rc = hook_isend(comm, data, bytes, tag, mem, request_out);
        return post_passed(comm, rc, request_out);
    }
    request = (struct fault_request *)hook_request_take(&comm->base, HOOK_SEND);
    *request_out = request;
    if (!request)
        return xcclSuccess;
    request_start(comm, request, FAULT_HELD);
    request->data = data;
    request->send_bytes = bytes;
    request->tag = tag;
    request->mem = mem;
    request->next = NULL;
    if (comm->held_first)
        comm->held_last->next = request;
    else
        comm->held_first = request;
    comm->held_last = request;
    return xcclSuccess;
}

/* ---- test ---- */

/* Whether a FINISHED request may be told now. */
static int may_tell(const struct fault_comm *comm, struct fault_request *request)
{
    if (comm_check(comm) != xcclSuccess)
        return 1;
    if (request->tell_ns && xccl_clock_ns() < request->tell_ns)
        return 0;
    /* Not before a later one, while there is one, and not for ever: the caller may wait for this
     * one before it asks for any other. */
    if (request->fate.swap > 0 && comm->told < request->base.number &&
        comm->base.posted != request->base.number) {
        request->fate.swap--;
        return 0;
    }
    return 1;
}

static void request_tell(struct fault_comm *comm, struct fault_request *request, size_t *bytes_out)
{
    if (bytes_out && request->base.count > 0)
        memcpy(bytes_out, request->bytes, (size_t)request->base.count * sizeof(*bytes_out));
    if (comm->told < request->base.number)
        comm->told = request->base.number;
    hook_request_put(&request->base);
}

/* Moves an unfinished request on, or not, as its fate says. */
static xcclResult_t request_move(struct fault_comm *comm, struct fault_request *request)
{
    xcclResult_t rc = comm_check(comm);
    uint32_t tests = request->tests++;
    char what[64];

    if (rc != xcclSuccess) {
        if (comm->injected || request->state == FAULT_HELD)
            return rc;
        return request_ask(comm, request);
    }
    if (request->fate.at_test != FAULT_NONE) {
        snprintf(what, sizeof(what), "test of %s %u", kind_words[request->base.kind],
                 request->base.number);
        return comm_inject(comm, request->fate.at_test, &request->fate, what);
    }
    if (request->state == FAULT_HELD ||
        fault_chance(fault_bits(request->fate.seed, tests), ctx_of(comm)->setting.rates.partial))
        return xcclSuccess;
    return request_ask(comm, request);
}

xcclResult_t fault_test(xcclNetRequest_t request_, int *done_out, size_t *bytes_out)
{
    struct fault_request *request = request_;
    struct fault_comm *comm = (struct fault_comm *)request->base.comm;
    xcclResult_t rc = hook_request_check(&request->base);

    if (rc != xcclSuccess)
        return rc;
    comm_move(comm);
    if (request->state != FAULT_FINISHED) {
        rc = request_move(comm, request);
        if (rc != xcclSuccess)
            return rc;
    }
    if (request->state != FAULT_FINISHED || !may_tell(comm, request)) {
        *done_out = 0;
        return xcclSuccess;
    }
    request_tell(comm, request, bytes_out);
    *done_out = 1;
    return xcclSuccess;
}

/* ---- what else is asked of a comm ---- */

/* 1: this registration fails, with *rc_out. */
static int reg_answered(struct fault_comm *comm, xcclResult_t *rc_out)
{
    const struct fault_setting *setting = &ctx_of(comm)->setting;
    struct fault_stream stream = {.seed = comm->reg_seed};

    *rc_out = comm_check(comm);
    if (*rc_out != xcclSuccess)
        return 1;
    stream.draws = atomic_fetch_add_explicit(&comm->reg_draws, 1, memory_order_relaxed);
    if (!fault_chance(fault_draw(&stream), setting->rates.reg))
        return 0;
    *rc_out = xccl_fail_quietly(xcclSystemError, 0, "ask again, or lower reg in XCCL_NET_FAULT",
                                "fault injected: no memory can be registered on %s comm %u (seed "
                                "%llu, draw %llu)",
                                comm->base.is_send ? "send" : "receive", comm->base.number,
                                (unsigned long long)setting->seed,
                                (unsigned long long)stream.draws);
    return 1;
}

xcclResult_t fault_reg_mr(void *comm, void *data, size_t bytes, uint32_t type, xcclNetMem_t *mem)
{
    xcclResult_t rc;

    return reg_answered(comm, &rc) ? rc : hook_reg_mr(comm, data, bytes, type, mem);
}

xcclResult_t fault_reg_mr_dma_buf(void *comm, void *data, size_t bytes, uint32_t type,
                                  uint64_t offset, int fd, xcclNetMem_t *mem)
{
    xcclResult_t rc;

    if (reg_answered(comm, &rc))
        return rc;
    return hook_reg_mr_dma_buf(comm, data, bytes, type, offset, fd, mem);
}

xcclResult_t fault_export_mr(xcclNetRecvComm_t comm, xcclNetMem_t mem, xcclNetMemKey_t *key)
{
    xcclResult_t rc = comm_check(comm);

    return rc != xcclSuccess ? rc : hook_export_mr(comm, mem, key);
}

/* What the wrapped plugin's descriptor says is not what the hook tells. */
xcclResult_t fault_wait_fd(void *comm, int *fd_out)
{
    xcclResult_t rc = comm_check(comm);

    if (rc == xcclSuccess)
        *fd_out = -1;
    return rc;
}

xcclResult_t fault_error_detail(void *comm_, xcclNetError_v1 *error)
{
    const struct fault_comm *comm = comm_;
    xcclNetError_v1 all = {.size = error->size, .cause = comm->cause, .text = comm->error_text};

    if (!comm->injected)
        return hook_error_detail(comm_, error);
    memcpy(error, &all, error->size < sizeof(all) ? error->size : sizeof(all));
    return xcclSuccess;
}

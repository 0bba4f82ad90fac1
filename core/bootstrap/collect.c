/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives over a set of ranks, made of messages (mail.c). In terms of places in the set:
 *
 *   steps  round k: i sends parts i to i+2^k to i-2^k, once it has them; ceil(log2 n) rounds. The
 *          barrier is the same without parts.
 *   ring   part i goes upwards to i+n/2 and downwards to i-(n-1)/2, one place a step, both ways at
 *          once: for parts so large that the number of rounds does not matter, since each
 *          connection carries each part once
 *   tree   binomial: place v (counted from the root) has it from v without its lowest set bit
 *
 * Everything is posted as early as it can be and moved by arrivals: nothing blocks. Thread:
 * callbacks of the service thread, or any with the loop's lock. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "bootstrap/bootstrap_int.h"
#include "bootstrap/mail_int.h"

#define RING_PART_BYTES (64u << 10) /* parts from this size on go round the ring */

static int member(const struct xccl_boot_op *op, int place)
{
    return op->set.ranks ? op->set.ranks[place] : place;
}

static int wrap(const struct xccl_boot_op *op, int place)
{
    int count = op->set.count;

    return ((place % count) + count) % count;
}

/* The parts from place first on, in one or two pieces. */
static void parts_at(const struct xccl_boot_op *op, int first, int parts, struct xccl_span out[2])
{
    int row = op->set.count - first < parts ? op->set.count - first : parts;

    out[0].data = op->data + (size_t)first * op->bytes;
    out[0].bytes = (size_t)row * op->bytes;
    out[1].data = op->data;
    out[1].bytes = (size_t)(parts - row) * op->bytes;
}

static struct xccl_boot_mail mail_of(const struct xccl_boot_op *op, enum xccl_mail_kind kind,
                                     int round, size_t bytes)
{
    return (struct xccl_boot_mail){.kind = (uint8_t)kind,
                                   .round = (uint8_t)round,
                                   .tag = op->set.tag,
                                   .total = (uint32_t)bytes};
}

static void send_parts(struct xccl_bootstrap *boot, struct xccl_boot_send *send, int to,
                       const struct xccl_boot_mail *mail, const struct xccl_span parts[2])
{
    *send = (struct xccl_boot_send){.mail = *mail, .rank = member(&boot->op, to)};
    send->spans[0] = parts[0];
    send->spans[1] = parts[1];
    xccl_boot_send_post(boot, send);
}

static void recv_parts(struct xccl_bootstrap *boot, struct xccl_boot_recv *recv, int from,
                       const struct xccl_boot_mail *mail, const struct xccl_span parts[2])
{
    *recv = (struct xccl_boot_recv){.mail = *mail, .rank = member(&boot->op, from)};
    for (int i = 0; i < 2; i++) {
        /* The op's own memory, which it may write. */
        recv->spans[i].data = (void *)(uintptr_t)parts[i].data;
        recv->spans[i].bytes = parts[i].bytes;
    }
    xccl_boot_recv_post(boot, recv);
}

/* --- steps --- */

static int step_parts(const struct xccl_boot_op *op, int k)
{
    int step = 1 << k;

    return op->set.count - step < step ? op->set.count - step : step;
}

static void steps_begin(struct xccl_bootstrap *boot)
{
    struct xccl_boot_op *op = &boot->op;

    while (1 << op->rounds < op->set.count)
        op->rounds++;
    for (int k = 0; k < op->rounds && !boot->rc; k++) {
        int parts = step_parts(op, k), from = wrap(op, op->set.self + (1 << k));
        struct xccl_boot_mail mail = mail_of(op, XCCL_MAIL_STEP, k, (size_t)parts * op->bytes);
        struct xccl_span spans[2];

        parts_at(op, from, parts, spans);
        recv_parts(boot, &op->recvs[k], from, &mail, spans);
    }
}

/* 1: done. */
static int steps_advance(struct xccl_bootstrap *boot)
{
    struct xccl_boot_op *op = &boot->op;
    int known = 0, left = 0;

    while (known < op->rounds && op->recvs[known].done)
        known++;
    for (int k = 0; k < op->rounds && k <= known && !boot->rc; k++) {
        int parts = step_parts(op, k);
        struct xccl_boot_mail mail = mail_of(op, XCCL_MAIL_STEP, k, (size_t)parts * op->bytes);
        struct xccl_span spans[2];

        if (op->sends[k].started)
            continue;
        parts_at(op, op->set.self, parts, spans);
        send_parts(boot, &op->sends[k], wrap(op, op->set.self - (1 << k)), &mail, spans);
    }
    for (int k = 0; k < op->rounds; k++)
        left += !op->recvs[k].done || !op->sends[k].done;
    return left == 0;
}

/* --- ring --- */

/* One way round: up is 1 upwards (from the place below), else downwards. */
struct way {
    int up, steps, *done;
    struct xccl_boot_send *send;
    struct xccl_boot_recv *recv;
};

static void way_recv(struct xccl_bootstrap *boot, const struct way *way, int step)
{
    struct xccl_boot_op *op = &boot->op;
    int sign = way->up ? -1 : 1;
    struct xccl_boot_mail mail = mail_of(op, XCCL_MAIL_RING, !way->up, op->bytes);
    struct xccl_span spans[2];

    parts_at(op, wrap(op, op->set.self + sign * (step + 1)), 1, spans);
    recv_parts(boot, way->recv, wrap(op, op->set.self + sign), &mail, spans);
}

static void way_send(struct xccl_bootstrap *boot, const struct way *way, int step)
{
    struct xccl_boot_op *op = &boot->op;
    int sign = way->up ? -1 : 1;
    struct xccl_boot_mail mail = mail_of(op, XCCL_MAIL_RING, !way->up, op->bytes);
    struct xccl_span spans[2];

    parts_at(op, wrap(op, op->set.self + sign * step), 1, spans);
    send_parts(boot, way->send, wrap(op, op->set.self - sign), &mail, spans);
}

/* Moves one way as far as it goes; 1: done. Step s sends the part that step s-1 received. */
static int way_advance(struct xccl_bootstrap *boot, const struct way *way)
{
    while (*way->done < way->steps && !boot->rc) {
        if (!way->recv->started)
            way_recv(boot, way, *way->done);
        if (!way->send->started && !boot->rc)
            way_send(boot, way, *way->done);
        if (boot->rc || !way->recv->done || !way->send->done)
            return 0;
        way->recv->started = way->send->started = 0;
        ++*way->done;
    }
    return !boot->rc;
}

static int ring_advance(struct xccl_bootstrap *boot)
{
    struct xccl_boot_op *op = &boot->op;
    struct way up = {1, op->set.count / 2, &op->ups, &op->sends[0], &op->recvs[0]};
    struct way down = {0, (op->set.count - 1) / 2, &op->downs, &op->sends[1], &op->recvs[1]};
    int done = way_advance(boot, &up);

    return way_advance(boot, &down) && done;
}

/* --- tree --- */

static void tree_begin(struct xccl_bootstrap *boot)
{
    struct xccl_boot_op *op = &boot->op;
    int v = wrap(op, op->set.self - op->root);
    struct xccl_boot_mail mail = mail_of(op, XCCL_MAIL_TREE, 0, op->bytes);
    struct xccl_span spans[2] = {{op->data, op->bytes}, {NULL, 0}};

    while (1 << op->rounds < op->set.count)
        op->rounds++;
    if (v > 0)
        recv_parts(boot, &op->recvs[0], wrap(op, (v & (v - 1)) + op->root), &mail, spans);
    else
        op->recvs[0].done = 1;
}

static int tree_advance(struct xccl_bootstrap *boot)
{
    struct xccl_boot_op *op = &boot->op;
    int v = wrap(op, op->set.self - op->root), left = 0;
    int levels = v ? __builtin_ctz((unsigned)v) : op->rounds;
    struct xccl_boot_mail mail = mail_of(op, XCCL_MAIL_TREE, 0, op->bytes);
    struct xccl_span spans[2] = {{op->data, op->bytes}, {NULL, 0}};

    if (!op->recvs[0].done)
        return 0;
    /* The largest subtree first. */
    for (int k = levels - 1; k >= 0 && !boot->rc; k--) {
        int child = v + (1 << k);

        if (child >= op->set.count)
            continue;
        if (!op->sends[k].started)
            send_parts(boot, &op->sends[k], wrap(op, child + op->root), &mail, spans);
        left += !op->sends[k].done;
    }
    return left == 0 && !boot->rc;
}

/* --- any --- */

static int op_moved(struct xccl_bootstrap *boot)
{
    switch (boot->op.kind) {
    case XCCL_OP_STEPS:
    case XCCL_OP_SPLIT:
        return steps_advance(boot);
    case XCCL_OP_RING:
        return ring_advance(boot);
    case XCCL_OP_TREE:
        return tree_advance(boot);
    case XCCL_OP_SEND:
        return boot->op.sends[0].done;
    case XCCL_OP_RECV:
        return boot->op.recvs[0].done;
    case XCCL_OP_NONE:
    case XCCL_OP_JOIN:
        break;
    }
    return 0;
}

void xccl_boot_op_end(struct xccl_bootstrap *boot)
{
    boot->op.kind = XCCL_OP_NONE;
    xccl_loop_set_timer(&boot->timer, XCCL_NEVER_NS);
    if (boot->bell)
        xccl_bell_ring(boot->bell);
    xccl_bell_ring(&boot->own_bell);
}

void xccl_boot_op_advance(struct xccl_bootstrap *boot)
{
    if (boot->rc || !op_moved(boot) || boot->rc)
        return;
    if (boot->op.kind == XCCL_OP_SPLIT)
        xccl_boot_split_finish(boot);
    if (!boot->rc)
        xccl_boot_op_end(boot);
}

void xccl_boot_op_wait_text(const struct xccl_bootstrap *boot, char *text_out, size_t bytes)
{
    static const char *const names[] = {
        [XCCL_OP_NONE] = "nothing",
        [XCCL_OP_JOIN] = "joining",
        [XCCL_OP_STEPS] = "a log-step exchange",
        [XCCL_OP_SPLIT] = "a split",
        [XCCL_OP_RING] = "a ring",
        [XCCL_OP_TREE] = "a broadcast",
        [XCCL_OP_SEND] = "a send",
        [XCCL_OP_RECV] = "a receive",
    };
    const struct xccl_boot_op *op = &boot->op;

    for (int k = 0; k < XCCL_BOOT_ROUNDS_MAX; k++) {
        const struct xccl_boot_recv *recv = &op->recvs[k];
        const struct xccl_boot_send *send = &op->sends[k];
        int to_send = send->started && !send->done;
        char name[XCCL_BOOT_NAME_BYTES];

        if (!(recv->started && !recv->done) && !to_send)
            continue;
        xccl_boot_name(boot, to_send ? send->rank : recv->rank, name);
        snprintf(text_out, bytes,
                 "waits for %s to %s in %s out of band; look at what that "
                 "rank does",
                 name, to_send ? "read" : "send", names[op->kind]);
        return;
    }
    snprintf(text_out, bytes, "waits in %s out of band", names[op->kind]);
}

/* Takes the place of an operation; the loop's lock is held from here to op_started(). */
static xcclResult_t op_begin(struct xccl_bootstrap *boot, enum xccl_boot_op_kind kind,
                             const struct xccl_boot_set *set, const struct xccl_limit *limit)
{
    xccl_loop_lock(boot->loop);
    if (boot->rc)
        return boot->rc;
    if (boot->state != XCCL_BOOT_UP || boot->op.kind != XCCL_OP_NONE)
        return xccl_fail(xcclInvalidUsage, 0, "wait until it is done",
                         "rank %d: an out-of-band operation is already running", boot->rank);
    memset(&boot->op, 0, sizeof(boot->op));
    boot->op.kind = kind;
    if (set)
        boot->op.set = *set;
    else
        boot->op.set = (struct xccl_boot_set){.count = boot->nranks, .self = boot->rank};
    boot->limit = *limit;
    xccl_loop_set_timer(&boot->timer, limit->deadline_ns);
    xccl_boot_end_soon(boot);
    return xcclSuccess;
}

static xcclResult_t op_started(struct xccl_bootstrap *boot, xcclResult_t rc)
{
    int done = 0;

    if (!rc)
        xccl_boot_op_advance(boot);
    if (boot->rc)
        rc = xccl_bootstrap_test(boot, &done);
    xccl_loop_unlock(boot->loop);
    return rc;
}

static xcclResult_t set_check(const struct xccl_bootstrap *boot, const struct xccl_boot_set *set)
{
    if (!set || (set->count >= 1 && set->count <= boot->nranks && set->ranks && set->self >= 0 &&
                 set->self < set->count && set->ranks[set->self] == boot->rank))
        return xcclSuccess;
    return xccl_fail(xcclInvalidArgument, 0, "report this as a bug of xccl",
                     "rank %d is not place %d of a set of %d ranks", boot->rank, set->self,
                     set->count);
}

xcclResult_t xccl_boot_steps_start(struct xccl_bootstrap *boot, enum xccl_boot_op_kind kind,
                                   const struct xccl_boot_set *set, struct xccl_boot_parts parts,
                                   const struct xccl_limit *limit)
{
    static uint8_t nowhere; /* without bytes any place will do */
    xcclResult_t rc = set_check(boot, set);

    if (rc)
        return rc;
    if (parts.bytes > XCCL_BOOT_PART_MAX) {
        return xccl_fail(xcclInvalidArgument, 0, "split it",
                         "an out-of-band all-gather of %zu bytes per rank is too large",
                         parts.bytes);
    }
    rc = op_begin(boot, kind, set, limit);
    if (!rc) {
        boot->op.data = parts.data ? parts.data : &nowhere;
        boot->op.bytes = parts.bytes;
        /* A message's length has 32 bits. */
        if (kind == XCCL_OP_STEPS && (parts.bytes >= RING_PART_BYTES ||
                                      parts.bytes * (uint64_t)boot->op.set.count > UINT32_MAX / 2))
            boot->op.kind = XCCL_OP_RING;
        else
            steps_begin(boot);
    }
    return op_started(boot, rc);
}

xcclResult_t xccl_bootstrap_allgather_start(struct xccl_bootstrap *boot,
                                            const struct xccl_boot_set *set, void *data,
                                            size_t part_bytes, const struct xccl_limit *limit)
{
    return xccl_boot_steps_start(boot, XCCL_OP_STEPS, set,
                                 (struct xccl_boot_parts){data, part_bytes}, limit);
}

xcclResult_t xccl_bootstrap_barrier_start(struct xccl_bootstrap *boot,
                                          const struct xccl_boot_set *set,
                                          const struct xccl_limit *limit)
{
    return xccl_boot_steps_start(boot, XCCL_OP_STEPS, set, (struct xccl_boot_parts){NULL, 0},
                                 limit);
}

xcclResult_t xccl_bootstrap_broadcast_start(struct xccl_bootstrap *boot,
                                            const struct xccl_boot_set *set, int root, void *data,
                                            size_t bytes, const struct xccl_limit *limit)
{
    xcclResult_t rc = set_check(boot, set);

    if (rc)
        return rc;
    if (root < 0 || root >= (set ? set->count : boot->nranks) || bytes > XCCL_BOOT_MESSAGE_MAX) {
        return xccl_fail(xcclInvalidArgument, 0, NULL,
                         "an out-of-band broadcast of %zu bytes from rank %d is not possible",
                         bytes, root);
    }
    rc = op_begin(boot, XCCL_OP_TREE, set, limit);
    if (!rc) {
        boot->op.data = data;
        boot->op.bytes = bytes;
        boot->op.root = root;
        tree_begin(boot);
    }
    return op_started(boot, rc);
}

static xcclResult_t message_check(const struct xccl_bootstrap *boot, int rank, size_t bytes)
{
    if (rank >= 0 && rank < boot->nranks && bytes <= XCCL_BOOT_MESSAGE_MAX)
        return xcclSuccess;
    return xccl_fail(xcclInvalidArgument, 0, NULL,
                     "an out-of-band message of %zu bytes between ranks %d and %d of %d", bytes,
                     boot->rank, rank, boot->nranks);
}

xcclResult_t xccl_bootstrap_send_start(struct xccl_bootstrap *boot, int rank, uint32_t tag,
                                       const void *data, size_t bytes,
                                       const struct xccl_limit *limit)
{
    xcclResult_t rc = message_check(boot, rank, bytes);

    if (rc)
        return rc;
    rc = op_begin(boot, XCCL_OP_SEND, NULL, limit);
    if (!rc) {
        struct xccl_boot_send *send = &boot->op.sends[0];

        send->mail = mail_of(&boot->op, XCCL_MAIL_USER, 0, bytes);
        send->mail.tag = tag;
        send->spans[0] = (struct xccl_span){data, bytes};
        send->rank = rank;
        xccl_boot_send_post(boot, send);
    }
    return op_started(boot, rc);
}

xcclResult_t xccl_bootstrap_recv_start(struct xccl_bootstrap *boot, int rank, uint32_t tag,
                                       void *data, size_t bytes, const struct xccl_limit *limit)
{
    xcclResult_t rc = message_check(boot, rank, bytes);

    if (rc)
        return rc;
    rc = op_begin(boot, XCCL_OP_RECV, NULL, limit);
    if (!rc) {
        struct xccl_boot_recv *recv = &boot->op.recvs[0];

        recv->mail = mail_of(&boot->op, XCCL_MAIL_USER, 0, bytes);
        recv->mail.tag = tag;
        recv->spans[0].data = data;
        recv->spans[0].bytes = bytes;
        recv->rank = rank;
        xccl_boot_recv_post(boot, recv);
    }
    return op_started(boot, rc);
}

int xccl_bootstrap_has_mail(struct xccl_bootstrap *boot, int rank, uint32_t tag)
{
    int has;

    xccl_loop_lock(boot->loop);
    has = boot->rc || xccl_boot_early_has(boot, rank, tag);
    xccl_loop_unlock(boot->loop);
    return has;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The short forms of gen_int.h. Errors stay in the builder, so none of them has a result to look
 * at. Thread: as builder.h. */
#include "schedule/gen_int.h"

struct xccl_gen xccl_gen_begin(struct xccl_builder *builder)
{
    return (struct xccl_gen){.builder = builder, .lane = xccl_build_lane(builder)};
}

int xccl_gen_one_chunk(const struct xccl_generator_for *what)
{
    (void)what;
    return 1;
}

int xccl_gen_chunk_per_rank(const struct xccl_generator_for *what)
{
    return what->nranks;
}

/* ---- connections ---- */

int xccl_gen_send_to(const struct xccl_gen *gen, int peer, int id)
{
    return xccl_build_conn(gen->builder, gen->lane, XCCL_CONN_SEND, peer, id, 0);
}

int xccl_gen_recv_from(const struct xccl_gen *gen, int peer, int id)
{
    return xccl_build_conn(gen->builder, gen->lane, XCCL_CONN_RECV, peer, id, 0);
}

int xccl_gen_send_to_all(const struct xccl_gen *gen, const struct xccl_generator_for *what)
{
    int first = 0;

    for (int i = 1; i < what->nranks; i++) {
        int conn = xccl_build_conn(gen->builder, gen->lane, XCCL_CONN_SEND,
                                   (what->rank + i) % what->nranks, 0, i > 1);

        if (i == 1)
            first = conn;
    }
    return first;
}

int xccl_gen_recv_from_all(const struct xccl_gen *gen, const struct xccl_generator_for *what)
{
    int first = -1;

    for (int peer = 0; peer < what->nranks; peer++) {
        int conn;

        if (peer == what->rank)
            continue;
        conn = xccl_build_conn(gen->builder, gen->lane, XCCL_CONN_RECV, peer, 0, first >= 0);
        if (first < 0)
            first = conn;
    }
    return first;
}

int xccl_gen_marked(const struct xccl_generator_for *what)
{
    int count = 0;

    for (int peer = 0; peer < what->nranks; peer++)
        count += peer != what->rank && xccl_gen_is_marked(what, peer);
    return count;
}

int xccl_gen_spread_to_all(const struct xccl_gen *gen, const struct xccl_generator_for *what,
                           int same_group)
{
    int first = -1;

    if (xccl_gen_marked(what) > 0)
        first = xccl_build_multicast(gen->builder, gen->lane, XCCL_CONN_SEND, what->rank, 0,
                                     same_group);
    for (int i = 1; i < what->nranks; i++) {
        int peer = (what->rank + i) % what->nranks, conn;

        if (xccl_gen_is_marked(what, peer))
            continue;
        conn = xccl_build_conn(gen->builder, gen->lane, XCCL_CONN_SEND, peer, 0,
                               same_group || first >= 0);
        if (first < 0)
            first = conn;
    }
    return first;
}

int xccl_gen_spread_from_all(const struct xccl_gen *gen, const struct xccl_generator_for *what)
{
    int first = -1;

    for (int peer = 0; peer < what->nranks; peer++) {
        int conn;

        if (peer == what->rank)
            continue;
        if (xccl_gen_is_marked(what, peer))
            conn = xccl_build_multicast(gen->builder, gen->lane, XCCL_CONN_RECV, peer, 0,
                                        first >= 0);
        else
            conn = xccl_build_conn(gen->builder, gen->lane, XCCL_CONN_RECV, peer, 0, first >= 0);
        if (first < 0)
            first = conn;
    }
    return first;
}

int xccl_gen_doubling_conns(const struct xccl_gen *gen, const struct xccl_generator_for *what,
                            int sign, int down, int id)
{
    int n = what->nranks, steps = xccl_gen_log2_up(n), first = 0;

    for (int i = 0; i < 2 * steps; i++) {
        int s = i < steps ? i : 2 * steps - 1 - i,
            distance = sign * (1 << (down ? steps - 1 - s : s));
        int conn;

        if (i < steps)
            conn = xccl_gen_send_to(gen, xccl_gen_mod(what->rank + distance, n), id);
        else
            conn = xccl_gen_recv_from(gen, xccl_gen_mod(what->rank - distance, n), id);
        if (i == 0)
            first = conn;
    }
    return first;
}

/* ---- steps ---- */

/* Sides that lie differently are emitted chunk by chunk, which the builder folds into one record,
 * where it would need an index list for both together. */
void xccl_gen_step(const struct xccl_gen *gen, const struct xccl_emit *emit)
{
    struct xccl_emit one = *emit;

    if (!(emit->op & XCCL_STEP_SRC) || !(emit->op & XCCL_STEP_DST) ||
        emit->src.stride == emit->dst.stride || emit->src.count != emit->dst.count) {
        xccl_build_step(gen->builder, gen->lane, emit);
        return;
    }
    one.src.count = 1;
    one.dst.count = 1;
    for (int i = 0; i < emit->src.count; i++) {
        one.src.first = emit->src.first + i * emit->src.stride;
        one.dst.first = emit->dst.first + i * emit->dst.stride;
        xccl_build_step(gen->builder, gen->lane, &one);
    }
}

void xccl_gen_copy(const struct xccl_gen *gen, uint8_t flags, struct xccl_chunks src,
                   struct xccl_chunks dst)
{
    xccl_gen_step(gen,
                  &(struct xccl_emit){
                      .op = XCCL_STEP_SRC | XCCL_STEP_DST, .flags = flags, .src = src, .dst = dst});
}

void xccl_gen_send(const struct xccl_gen *gen, uint8_t flags, struct xccl_chunks src, int sconn)
{
    xccl_gen_step(gen, &(struct xccl_emit){.op = XCCL_STEP_SRC | XCCL_STEP_SEND,
                                           .flags = flags,
                                           .src = src,
                                           .sconn = sconn,
                                           .nsend = 1});
}

void xccl_gen_copy_send(const struct xccl_gen *gen, struct xccl_chunks src, struct xccl_chunks dst,
                        int sconn)
{
    xccl_gen_step(gen, &(struct xccl_emit){.op = XCCL_STEP_SRC | XCCL_STEP_DST | XCCL_STEP_SEND,
                                           .src = src,
                                           .dst = dst,
                                           .sconn = sconn,
                                           .nsend = 1});
}

void xccl_gen_recv(const struct xccl_gen *gen, struct xccl_chunks dst, int rconn)
{
    xccl_gen_step(
        gen, &(struct xccl_emit){
                 .op = XCCL_STEP_RECV | XCCL_STEP_DST, .dst = dst, .rconn = rconn, .nrecv = 1});
}

void xccl_gen_recv_send(const struct xccl_gen *gen, struct xccl_chunks dst, int rconn, int sconn)
{
    xccl_gen_step(gen, &(struct xccl_emit){.op = XCCL_STEP_RECV | XCCL_STEP_DST | XCCL_STEP_SEND,
                                           .dst = dst,
                                           .rconn = rconn,
                                           .nrecv = 1,
                                           .sconn = sconn,
                                           .nsend = 1});
}

void xccl_gen_relay(const struct xccl_gen *gen, int count, int rconn, int sconn)
{
    for (int i = 0; i < count; i++)
        xccl_gen_step(gen, &(struct xccl_emit){.op = XCCL_STEP_RECV | XCCL_STEP_SEND,
                                               .rconn = rconn,
                                               .nrecv = 1,
                                               .sconn = sconn,
                                               .nsend = 1});
}

void xccl_gen_add(const struct xccl_gen *gen, uint8_t flags, struct xccl_chunks src,
                  struct xccl_chunks dst, int rconn)
{
    xccl_gen_step(gen, &(struct xccl_emit){.op = XCCL_STEP_SRC | XCCL_STEP_RECV | XCCL_STEP_DST,
                                           .flags = flags,
                                           .src = src,
                                           .dst = dst,
                                           .rconn = rconn,
                                           .nrecv = 1});
}

void xccl_gen_add_send(const struct xccl_gen *gen, uint8_t flags, struct xccl_chunks src, int rconn,
                       int sconn)
{
    xccl_gen_step(gen, &(struct xccl_emit){.op = XCCL_STEP_SRC | XCCL_STEP_RECV | XCCL_STEP_SEND,
                                           .flags = flags,
                                           .src = src,
                                           .rconn = rconn,
                                           .nrecv = 1,
                                           .sconn = sconn,
                                           .nsend = 1});
}

static void exchange(const struct xccl_gen *gen, struct xccl_emit *emit, int rconn, int sconn)
{
    emit->op |= XCCL_STEP_SRC | XCCL_STEP_DST | XCCL_STEP_RECV | XCCL_STEP_SEND | XCCL_STEP_XCHG;
    emit->rconn = rconn;
    emit->sconn = sconn;
    emit->nrecv = 1;
    emit->nsend = 1;
    if (emit->src.count > 0 || emit->dst.count > 0)
        xccl_gen_step(gen, emit);
}

void xccl_gen_exchange(const struct xccl_gen *gen, struct xccl_chunks src, struct xccl_chunks dst,
                       int rconn, int sconn)
{
    exchange(gen, &(struct xccl_emit){.src = src, .dst = dst}, rconn, sconn);
}

void xccl_gen_exchange_add(const struct xccl_gen *gen, uint8_t flags, struct xccl_chunks src,
                           struct xccl_chunks dst, int rconn, int sconn)
{
    exchange(gen, &(struct xccl_emit){.op = XCCL_STEP_ACC, .flags = flags, .src = src, .dst = dst},
             rconn, sconn);
}

void xccl_gen_alone(const struct xccl_gen *gen, uint8_t flags, int nchunks)
{
    xccl_gen_copy(gen, flags, xccl_gen_chunks(XCCL_BUFFER_IN, 0, nchunks, 1),
                  xccl_gen_chunks(XCCL_BUFFER_OUT, 0, nchunks, 1));
}

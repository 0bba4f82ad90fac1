/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups of sends and receives, by the rounds of a pairwise exchange: gen_p2p.h says how. The lists
 * are sorted by peer once, so that a group of all ranks takes time in proportion to its messages
 * and ranks. A full group has as few records as a pairwise all-to-all. Thread: any. */
#include "schedule/gen_p2p.h"

#include "base/alloc.h"
#include "base/error.h"
#include "schedule/gen_int.h"

/* A list sorted by peer: chunks of peer p are from first[p] on, up to first[p + 1]. */
struct sorted {
    uint32_t *first;
    uint16_t *chunks;
};

static xcclResult_t check_list(const struct xccl_p2p_for *what, const uint16_t *list, int count,
                               const char *word)
{
    if (count < 0 || count > UINT16_MAX)
        return xccl_fail(xcclInvalidArgument, 0, "split the group",
                         "a group has %d %ss of rank %d, more than %d", count, word, what->rank,
                         UINT16_MAX);
    for (int i = 0; i < count; i++)
        if (list[i] >= what->nranks)
            return xccl_fail(xcclInvalidArgument, 0, "ranks count from 0",
                             "%s %d of rank %d names rank %u of %d", word, i, what->rank, list[i],
                             what->nranks);
    return xcclSuccess;
}

/* Keeps the order of each peer. first has n + 2 places. */
static void sort(const uint16_t *list, int count, int n, struct sorted *sorted)
{
    for (int i = 0; i < count; i++)
        sorted->first[list[i] + 2]++;
    for (int peer = 0; peer < n; peer++)
        sorted->first[peer + 2] += sorted->first[peer + 1];
    for (int i = 0; i < count; i++)
        sorted->chunks[sorted->first[list[i] + 1]++] = (uint16_t)i;
}

static struct xccl_chunks chunks_of(const struct sorted *sorted, enum xccl_step_buffer buffer,
                                    int peer)
{
    return (struct xccl_chunks){.buffer = buffer,
                                .count = (int)(sorted->first[peer + 1] - sorted->first[peer]),
                                .list = sorted->chunks + sorted->first[peer]};
}

/* Connections in the order of rounds: all to others, then all from others. */
static void emit(struct xccl_builder *builder, const struct xccl_p2p_for *what,
                 const struct sorted *sends, const struct sorted *receives)
{
    struct xccl_gen gen = xccl_gen_begin(builder);
    int n = what->nranks, r = what->rank, sconn = 0, rconn = 0;
    struct xccl_chunks out = chunks_of(sends, XCCL_BUFFER_IN, r);

    for (int k = 1; k < n; k++)
        if (chunks_of(sends, XCCL_BUFFER_IN, (r + k) % n).count > 0) {
            (void)xccl_gen_send_to(&gen, (r + k) % n, 0);
            rconn++;
        }
    for (int k = 1; k < n; k++)
        if (chunks_of(receives, XCCL_BUFFER_OUT, xccl_gen_mod(r - k, n)).count > 0)
            (void)xccl_gen_recv_from(&gen, xccl_gen_mod(r - k, n), 0);
    if (out.count > 0)
        xccl_gen_copy(&gen, 0, out, chunks_of(receives, XCCL_BUFFER_OUT, r));
    for (int k = 1; k < n; k++) {
        struct xccl_chunks in = chunks_of(receives, XCCL_BUFFER_OUT, xccl_gen_mod(r - k, n));

        out = chunks_of(sends, XCCL_BUFFER_IN, (r + k) % n);
        xccl_gen_exchange(&gen, out, in, rconn, sconn);
        sconn += out.count > 0;
        rconn += in.count > 0;
    }
}

/* As the proof does; it takes none of them off, whatever the lists are. */
static void mark_direct(struct xccl_schedule *schedule)
{
    for (uint32_t i = 0; i < schedule->nsteps; i++) {
        struct xccl_step *step = &schedule->steps[i];

        if (step->op & XCCL_STEP_SEND)
            step->flags |= XCCL_FLAG_DIRECT_SEND;
        if (step->op & XCCL_STEP_RECV)
            step->flags |= XCCL_FLAG_DIRECT_RECV;
    }
}

static xcclResult_t make(const struct xccl_p2p_for *what, const struct sorted *sends,
                         const struct sorted *receives, struct xccl_schedule **schedule_out)
{
    int sent = chunks_of(sends, XCCL_BUFFER_IN, what->rank).count;
    int received = chunks_of(receives, XCCL_BUFFER_OUT, what->rank).count;
    struct xccl_builder *builder;
    xcclResult_t rc;

    if (sent != received)
        return xccl_fail(xcclInvalidArgument, 0,
                         "put each send and its receive into the same group",
                         "a group has %d sends of rank %d to itself and %d receives from itself",
                         sent, what->rank, received);
    rc = xccl_build_begin(&(struct xccl_build_for){.name = "p2p",
                                                   .coll = XCCL_COLL_SEND_RECV,
                                                   .nranks = what->nranks,
                                                   .rank = what->rank,
                                                   .nchunks = 1,
                                                   .scrbufs = 1,
                                                   .nsends = what->nsends,
                                                   .nreceives = what->nreceives,
                                                   .sends = what->sends,
                                                   .receives = what->receives},
                          &builder);
    if (rc)
        return rc;
    emit(builder, what, sends, receives);
    rc = xccl_build_end(builder, schedule_out);
    if (rc)
        return rc;
    (*schedule_out)->minslots = XCCL_P2P_SLOTS;
    if (what->direct)
        mark_direct(*schedule_out);
    return xcclSuccess;
}

xcclResult_t xccl_p2p_make(const struct xccl_p2p_for *what, struct xccl_schedule **schedule_out)
{
    struct sorted sends, receives;
    size_t ranks = (size_t)what->nranks + 2;
    xcclResult_t rc;

    if (what->nranks < 1 || what->rank < 0 || what->rank >= what->nranks)
        return xccl_fail(xcclInvalidArgument, 0, "ranks count from 0",
                         "a group of rank %d of %d is not possible", what->rank, what->nranks);
    rc = check_list(what, what->sends, what->nsends, "send");
    if (!rc)
        rc = check_list(what, what->receives, what->nreceives, "receive");
    if (rc)
        return rc;
    sends.first = xccl_calloc(2 * ranks * sizeof(*sends.first) +
                                  ((size_t)what->nsends + (size_t)what->nreceives) *
                                      sizeof(*sends.chunks),
                              1);
    if (!sends.first)
        return xcclSystemError;
    receives.first = sends.first + ranks;
    sends.chunks = (uint16_t *)(receives.first + ranks);
    receives.chunks = sends.chunks + what->nsends;
    sort(what->sends, what->nsends, what->nranks, &sends);
    sort(what->receives, what->nreceives, what->nranks, &receives);
    rc = make(what, &sends, &receives, schedule_out);
    xccl_free(sends.first);
    return rc;
}

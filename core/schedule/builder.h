/* SPDX-License-Identifier: BSD-3-Clause */
/* How generators make schedules: they emit steps with lists of chunks, one rank at a time, and the
 * builder folds them into the fewest affine records it finds, proves by decoding that these say the
 * same, and checks the result. Errors stay in the builder, and xccl_build_end tells the first one,
 * so that a generator need not look at each call.
 *
 * Thread: a builder belongs to one. */
#ifndef XCCL_SCHEDULE_BUILDER_H
#define XCCL_SCHEDULE_BUILDER_H

#include <stddef.h>

#include "schedule/schedule.h"

struct xccl_builder;

/* nchunks: of the whole vector (xccl_schedule.nchunks). Scratch is as much as is named. */
struct xccl_build_for {
    const char *name; /* lives at least as long as the schedule */
    enum xccl_coll coll;
    int nranks, rank, root, nchunks;
    int scrbufs; /* 1 or more */
    /* The rank at each position; NULL: each at its own number. rank, root and all that is emitted
     * are positions then; the schedule has ranks, and blocks of ranks. Lives as long as the
     * builder, which takes none together with scopes. */
    const uint16_t *order;
};

xcclResult_t xccl_build_begin(const struct xccl_build_for *what, struct xccl_builder **builder_out);
void xccl_build_abandon(struct xccl_builder *builder); /* NULL is fine */

/* A new lane; its number. Lanes are made in order, and only the last one gets connections. */
int xccl_build_lane(struct xccl_builder *builder);

/* A new connection of the lane; its number in the lane. It is of the group of the one before when
 * same_group is not 0. Connections of one fan are made one behind the other. */
int xccl_build_conn(struct xccl_builder *builder, int lane, enum xccl_conn_dir dir, int peer,
                    int id, int same_group);
/* A new connection of the kind multicast; its number in the lane. */
int xccl_build_multicast(struct xccl_builder *builder, int lane, enum xccl_conn_dir dir, int peer,
                         int id, int same_group);

/* Chunks of one side of a step: a list, or count chunks from first on, stride apart (any sign),
 * modulo the buffer's size, where list is NULL. */
struct xccl_chunks {
    enum xccl_step_buffer buffer;
    int count, first, stride;
    const uint16_t *list;
};

#define XCCL_ONE_CHUNK(buf, chunk) ((struct xccl_chunks){(buf), 1, (chunk), 0, NULL})

/* One step. Only the fields that op names count. Both sides have the same number of chunks, but an
 * exchange may send and receive different numbers: what is left over becomes a plain send or
 * receive behind it. */
struct xccl_emit {
    uint8_t op, flags;
    struct xccl_chunks src, dst;
    int rconn, nrecv; /* in the lane; nrecv XCCL_FAN_ALL: the rest of the group */
    int sconn, nsend;
    int sig; /* with XCCL_FLAG_SIGNAL */
    int nwaits; /* 0 to 3 */
    struct xccl_schedule_wait waits[3];
};

void xccl_build_step(struct xccl_builder *builder, int lane, const struct xccl_emit *emit);

/* ---- scopes: a generator inside another one ---- */

/* A buffer of the world inside. Its chunk c (modulo count) is the chunks first[c] to first[c + 1],
 * without the last, of the table, in this order: any number, also none. Of these, only those from
 * the scope's part on count. Nothing that is emitted for no chunks at all comes about. */
struct xccl_build_side {
    enum xccl_step_buffer buffer; /* of the schedule */
    int count;
    const uint32_t *first;
    const uint16_t *chunks;
};

/* Until it is left, all that is emitted is about a smaller world: some of the ranks with chunks,
 * buffers and connections of its own. A copy of memory onto itself does not come about, and a
 * connection without messages neither. Scratch memory and relays need chunks of equal numbers. */
struct xccl_build_scope {
    const uint16_t *ranks; /* theirs, in rising order */
    int nranks;
    int id0, nids; /* ids from id0 on; those inside are below nids */
    uint8_t clear; /* PRE, POST or both: flags that have no meaning here */
    int scratch0; /* its scratch memory begins here */
    struct xccl_build_side in, out;
    int part, nparts; /* from each chunk's list at most nparts entries from part on */
    int again; /* the same as the scope before, with other parts: over the same connections */
};

/* scope lives until it is left. What is emitted goes to the last lane; a generator that wants more
 * than one is refused. Scopes do not lie in one another. */
void xccl_build_enter(struct xccl_builder *builder, const struct xccl_build_scope *scope);
void xccl_build_leave(struct xccl_builder *builder);

/* Keeps an error that the generator has told, if it is the first one. */
void xccl_build_break(struct xccl_builder *builder, xcclResult_t rc);

/* The schedule, and the end of the builder, also after an error. */
xcclResult_t xccl_build_end(struct xccl_builder *builder, struct xccl_schedule **schedule_out);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends and receives between pairs of ranks. A stream is one direction of one pair: its messages
 * one behind the other. Streams do not wait for one another, so that no order of peers, and no
 * group that the other ranks cut differently, can stand still. A message without bytes is one, too.
 *
 * Nothing announces a message: its size says over which of the pair's links it goes, in lines, as a
 * small slot or cut into slices, and its place in the order of the stream is in its flag words. So
 * a message of another size is found on the link on which it was expected, or where it has come
 * instead (xccl_stream_came). Over networks, and where there are too many pairs for links of all
 * kinds, all goes in slices.
 *
 * Thread: the holder of the communicator's crank. */
#ifndef XCCL_EXEC_STREAMS_H
#define XCCL_EXEC_STREAMS_H

#include "exec/exec.h"

#define XCCL_STREAM_KINDS XCCL_PROTO_NAMED /* of links: lines, small, slices */

struct xccl_message {
    char *at;
    size_t bytes;
};

struct xccl_stream {
    /* For ever: */
    int peer, sends;
    int in_slices; /* 1: messages of all sizes */
    struct xccl_link *links[XCCL_STREAM_KINDS]; /* by enum xccl_proto; NULL: not there yet */
    struct xccl_net_link *net; /* NULL: over shared memory */
    struct xccl_reach *slices_reach; /* NULL: all that goes in slices is copied */
    uint32_t number; /* of the message at work, among all of the stream; wraps */
    /* Of the group at work: */
    const struct xccl_message *messages;
    uint32_t count, next; /* next: the message at work */
    size_t offset; /* done of it */
    uint64_t moved_bytes; /* of all messages */
    uint32_t ahead_next; /* a receive end over a network: the same of what it has been told of */
    size_t ahead_offset;
    struct xccl_link *link; /* its link */
    struct xccl_reach *reach; /* of that link */
    enum xccl_proto kind;
    /* The owner's: sets of kinds, by bit; the round of a pairwise exchange. */
    uint32_t needs, has, round;
    int is_listed, is_over;
    int connects; /* 1: without messages, it gets all its links; else that of: */
    size_t awaited; /* a message of so many bytes that a device will move */
};

/* The low half of flag words over networks. */
#define XCCL_STREAM_FLAG 0x70327031u

/* Over which kind of link a message goes; both ends say the same of the same size. */
static inline enum xccl_proto xccl_stream_kind(const struct xccl_stream *stream, size_t bytes)
{
    if (stream->in_slices || bytes > XCCL_SMALL_MAX_BYTES)
        return XCCL_PROTO_SLICES;
    return bytes <= XCCL_LINES_MAX_BYTES ? XCCL_PROTO_LINES : XCCL_PROTO_SMALL;
}

/* The messages of a group are there, and the links that they need; before the first progress. Tells
 * a network link how many slices will come, and later where to. */
void xccl_stream_begin(struct xccl_stream *stream);
/* 1 when something moved. Errors as xccl_run_progress tells them. A message of another size:
 * xcclInvalidUsage, with run->bad_link. */
int xccl_stream_progress(struct xccl_run *run, struct xccl_stream *stream);
int xccl_stream_done(const struct xccl_stream *stream);

/* What has come of a message, as its slots claim. */
struct xccl_came {
    uint64_t bytes;
    int is_all;
};

/* 1: the message that a receiving stream waits for has come over this link of that kind, whatever
 * its size. Over a network only of the link at which the stream has failed. */
int xccl_stream_came(const struct xccl_stream *stream, enum xccl_proto kind,
                     const struct xccl_link *link, struct xccl_came *came_out);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends and receives between pairs of ranks. A stream is one direction of one pair: its messages
 * one behind the other, cut into slices of the link's slots. Streams do not wait for one another,
 * so that no order of peers, and no group that the other ranks cut differently, can stand still.
 * Nothing announces a message: the order in the stream tells which it is, and the size of each
 * slice is compared. A message without bytes is none.
 *
 * Thread: the holder of the communicator's crank. */
#ifndef XCCL_EXEC_STREAMS_H
#define XCCL_EXEC_STREAMS_H

#include "exec/exec.h"

struct xccl_message {
    char *at;
    size_t bytes;
};

struct xccl_stream {
    int peer, sends;
    struct xccl_link *link; /* of slices; its own for ever */
    struct xccl_net_link *net; /* NULL: over shared memory */
    struct xccl_reach *reach; /* over shared memory */
    const struct xccl_message *messages;
    uint32_t count, next; /* next: the message at work */
    size_t offset; /* done of it */
};

/* The low half of flag words in streams. */
#define XCCL_STREAM_FLAG 0x70327031u

/* Tells a network link how many slices will come; before the first progress. */
void xccl_stream_begin(const struct xccl_stream *stream);
/* 1 when something moved. run->flag_low is XCCL_STREAM_FLAG; errors as xccl_run_progress tells
 * them. A slice of another size: xcclInvalidUsage, with run->bad_link. */
int xccl_stream_progress(struct xccl_run *run, struct xccl_stream *stream);
int xccl_stream_done(const struct xccl_stream *stream);

#endif

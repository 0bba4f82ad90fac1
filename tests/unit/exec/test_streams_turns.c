/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams of one rank take turns: a peer that fills each slot as soon as it is free keeps no
 * receiving stream at work until its message ends, and small messages still go many at a time. What
 * is read where it lies goes in larger pieces than slots hold, as the sender chooses, and a sender
 * that lies about it reaches nothing. Both ends of a link of slices lie in memory of this test. */
#include "exec/streams.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "transport/reach.h"
#include "xt.h"

#define SLOTS      6
#define SLOT_BYTES (128u << 10)
#define MESSAGE    (64u * SLOT_BYTES)
#define SMALL      1024u
#define SMALLS     4
#define PIECE      (4u << 20) /* of what is read where it lies */

__attribute__((constructor)) static void sources(void)
{
    xt_set_error_source(xccl_error_text);
}

struct wire { /* one direction: its slots and both ends */
    struct xccl_slot_header headers[SLOTS];
    _Atomic uint32_t head;
    char *payload;
    struct xccl_link links[2];
    struct xccl_stream ends[2]; /* receives, sends */
    struct xccl_message messages[2][SMALLS];
    struct xccl_reach reach[2];
};

static void end_make(struct wire *wire, int sends)
{
    struct xccl_link *link = &wire->links[sends];
    struct xccl_stream *stream = &wire->ends[sends];

    *link = (struct xccl_link){.header = (char *)wire->headers,
                               .payload = wire->payload,
                               .header_stride = sizeof wire->headers[0],
                               .payload_stride = SLOT_BYTES,
                               .nslots = SLOTS,
                               .limit = SLOTS,
                               .heads = &wire->head,
                               .nheads = 1,
                               .own_head = UINT16_MAX,
                               .slot_bytes = SLOT_BYTES,
                               .lag = 1};
    *stream = (struct xccl_stream){.sends = sends, .in_slices = 1};
    stream->links[XCCL_PROTO_SLICES] = link;
    stream->messages = wire->messages[sends];
}

static void wire_make(struct wire *wire)
{
    memset(wire, 0, sizeof *wire);
    wire->payload = malloc(SLOTS * SLOT_BYTES);
    XT_CHECK(wire->payload);
    end_make(wire, 0);
    end_make(wire, 1);
}

static void begin(struct wire *wire, uint32_t count, char *const at[2], size_t bytes)
{
    for (int sends = 0; sends < 2; sends++) {
        for (uint32_t i = 0; i < count; i++)
            wire->messages[sends][i] = (struct xccl_message){at[sends] + i * bytes, bytes};
        wire->ends[sends].count = count;
        xccl_stream_begin(&wire->ends[sends]);
    }
}

/* No two slots alike. */
static void fill(char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        data[i] = (char)(i * 7 + i / SLOT_BYTES);
}

static size_t moved_in_a_look(struct xccl_run *run, struct xccl_stream *stream)
{
    uint64_t before = stream->moved_bytes;
    int moved = xccl_stream_progress(run, stream);

    XT_CHECK_INT(run->rc, xcclSuccess);
    XT_CHECK_INT(moved, stream->moved_bytes != before);
    return (size_t)(stream->moved_bytes - before);
}

XT_TEST(large_messages_leave_the_other_direction_its_turn)
{
    struct xccl_run run = {.bad_peer = -1};
    struct wire wire;
    char *from = malloc(MESSAGE), *to = calloc(1, MESSAGE);
    uint32_t looks = 0;

    XT_CHECK(from && to);
    fill(from, MESSAGE);
    wire_make(&wire);
    begin(&wire, 1, (char *const[]){to, from}, MESSAGE);
    while (wire.ends[1].next < 1 && moved_in_a_look(&run, &wire.ends[1]))
        continue; /* all slots are full */
    XT_CHECK_INT(wire.ends[1].moved_bytes, (uint64_t)SLOTS * SLOT_BYTES);
    while (!xccl_stream_done(&wire.ends[0])) {
        XT_CHECK_INT(moved_in_a_look(&run, &wire.ends[0]), SLOT_BYTES);
        looks++;
        (void)moved_in_a_look(&run, &wire.ends[1]);
    }
    XT_CHECK_INT(looks, MESSAGE / SLOT_BYTES);
    XT_CHECK(xccl_stream_done(&wire.ends[1]));
    XT_CHECK(memcmp(from, to, MESSAGE) == 0);
    free(wire.payload);
    free(from);
    free(to);
}

XT_TEST(small_messages_go_many_at_a_time)
{
    struct xccl_run run = {.bad_peer = -1};
    struct wire wire;
    char from[SMALLS * SMALL], to[SMALLS * SMALL] = {0};

    memset(from, 0x5a, sizeof from);
    wire_make(&wire);
    begin(&wire, SMALLS, (char *const[]){to, from}, SMALL);
    XT_CHECK_INT(moved_in_a_look(&run, &wire.ends[1]), sizeof from);
    XT_CHECK_INT(moved_in_a_look(&run, &wire.ends[0]), sizeof to);
    XT_CHECK(xccl_stream_done(&wire.ends[0]) && xccl_stream_done(&wire.ends[1]));
    XT_CHECK(memcmp(from, to, sizeof from) == 0);
    free(wire.payload);
}

/* This process stands for the sender's too. */
static void wire_reads_addresses(struct wire *wire)
{
    wire->reach[0] = (struct xccl_reach){.pid = getpid()};
    wire->reach[1] = (struct xccl_reach){
        .min_bytes = 4096, .address_min = 16384, .takes_addresses = 1};
    for (int sends = 0; sends < 2; sends++)
        wire->ends[sends].slices_reach = &wire->reach[sends];
}

/* Moves a message and returns how many looks the receiver needed. */
static uint32_t looks_by_address(size_t bytes, int by_address)
{
    struct xccl_run sender = {.bad_peer = -1, .by_address = by_address != 0};
    struct xccl_run receiver = {.bad_peer = -1};
    struct wire wire;
    char *from = malloc(bytes), *to = calloc(1, bytes);
    uint32_t looks = 0;

    XT_CHECK(from && to);
    fill(from, bytes);
    wire_make(&wire);
    wire_reads_addresses(&wire);
    begin(&wire, 1, (char *const[]){to, from}, bytes);
    while (!xccl_stream_done(&wire.ends[0])) {
        (void)moved_in_a_look(&sender, &wire.ends[1]);
        XT_CHECK(moved_in_a_look(&receiver, &wire.ends[0]));
        looks++;
    }
    XT_CHECK(xccl_stream_done(&wire.ends[1]));
    XT_CHECK(memcmp(from, to, bytes) == 0);
    free(wire.payload);
    free(from);
    free(to);
    return looks;
}

XT_TEST(what_is_read_where_it_lies_goes_in_larger_pieces)
{
    XT_CHECK_INT(looks_by_address(MESSAGE, 1), MESSAGE / PIECE);
    XT_CHECK_INT(looks_by_address(MESSAGE, 0), MESSAGE / SLOT_BYTES);
    XT_CHECK_INT(looks_by_address(2 * PIECE + SLOT_BYTES + 1, 1), 3);
    XT_CHECK_INT(looks_by_address(PIECE + 100, 1), 2); /* its end is copied into a slot */
    XT_CHECK_INT(looks_by_address(SLOT_BYTES + 1, 1), 1);
    XT_CHECK_INT(looks_by_address(SLOT_BYTES, 1), 1);
    XT_CHECK_INT(looks_by_address(SLOT_BYTES - 1, 0), 1);
}

XT_TEST(a_piece_larger_than_its_slot_is_refused)
{
    struct xccl_run sender = {.bad_peer = -1, .by_address = 1}, receiver = {.bad_peer = -1};
    struct wire wire;
    char *from = calloc(1, PIECE), *to = calloc(1, PIECE);

    XT_CHECK(from && to);
    wire_make(&wire);
    wire_reads_addresses(&wire);
    begin(&wire, 1, (char *const[]){to, from}, PIECE);
    XT_CHECK_INT(moved_in_a_look(&sender, &wire.ends[1]), PIECE);
    memset(wire.payload, 0x5a, SLOT_BYTES);
    /* Relaxed: there is one thread. */
    atomic_store_explicit(&wire.headers[0].place, 0, memory_order_relaxed);
    XT_CHECK(!xccl_stream_progress(&receiver, &wire.ends[0]));
    XT_CHECK_INT(receiver.rc, xcclInvalidUsage);
    XT_CHECK_INT(receiver.other_size, 1);
    XT_CHECK_INT(to[0], 0);
    free(wire.payload);
    free(from);
    free(to);
}

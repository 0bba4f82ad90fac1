/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes between the two ends of a connection: the handle, what goes over the side connection (a TCP
 * socket of our own beside UCX), and the tags. All little endian. Needs nothing of UCX. Thread:
 * any.
 */
#ifndef UCX_WIRE_H
#define UCX_WIRE_H

#include <assert.h>
#include <stdint.h>

#include "base/netaddr.h"
#include "kit/kit_hello.h"
#include "kit/kit_side.h"

#define UCX_WIRE_VERSION 3
#define UCX_HANDLE_MAGIC 0x58435548u /* "HUCX" */
#define UCX_HELLO_MAGIC  0x5843554cu
#define UCX_BYE_MAGIC    0x58435542u
#define UCX_ADDRESS_MAX  4096 /* of a UCX worker address; about 200 is usual */
#define UCX_OWN_BYTES    (8 + 8 + 4) /* of a handle */
#define UCX_HEAD_BYTES   (KIT_HELLO_BYTES + 4 + 4 + 3 * 8)
#define UCX_HELLO_MAX    (UCX_HEAD_BYTES + UCX_ADDRESS_MAX)
#define UCX_ANSWER_MAX   (UCX_HELLO_MAX + 2 * KIT_SEAL_BYTES) /* the receiver's hello, sealed */
#define UCX_READY_BYTES  4
#define UCX_BYE_BYTES    12

/* By which of UCX's transports a connection goes. */
enum ucx_mode {
    UCX_NET, /* networks, which tell when a peer is gone */
    UCX_SHM /* memory of one host */
};
#define UCX_MODES 2

extern const struct kit_dialect ucx_dialect;

struct ucx_handle {
    struct kit_handle where; /* one address: of the receiver's side socket */
    uint64_t host; /* equal: memory can be shared */
    uint64_t instance; /* the receiver's, random */
    uint32_t modes; /* that the receiver has, one bit each */
};

void ucx_handle_encode(const struct ucx_handle *handle, xcclNetHandle_t *handle_out);
/* Error: not of this plugin and version, or damaged. */
xcclResult_t ucx_handle_decode(const xcclNetHandle_t *bytes, struct ucx_handle *handle_out);

/* A hello, which each end says once, is a head and a worker address. */
struct ucx_hello {
    uint32_t mode;
    uint32_t address_bytes;
    uint64_t instance; /* of who says it */
    uint64_t link; /* his, random, never 0 */
    uint64_t wanted; /* the other end's that it would go with; 0: any that fits */
};
/* kit_hello_read reads the head. Bytes of the whole, 0 if they do not fit; address is at most
 * UCX_ADDRESS_MAX bytes. */
size_t ucx_hello_encode(const struct ucx_hello *hello, const void *address,
                        uint8_t bytes_out[UCX_HELLO_MAX]);
/* Seals the receiver's hello: head and address apart, for the head says how long the address is.
 * Gives the bytes of both with their seals. */
size_t ucx_answer_seal(struct kit_proof *proof, uint8_t bytes[UCX_ANSWER_MAX], size_t hello_bytes);

/* What a sender says last: how many of its sends are done. */
void ucx_bye_encode(uint64_t sent, uint8_t bytes_out[UCX_BYE_BYTES]);
int ucx_bye_decode(const uint8_t bytes[UCX_BYE_BYTES], uint64_t *sent_out);

/* UCX's 64-bit tag: a secret of the connection's two ends xor the caller's tag, so that a message
 * of any other sender does not match. There is no sequence and no group index in it: UCX matches
 * sends of equal tags in their order (ucp.h, ucp_tag_send_nbx), and rule 6 leaves no choice beyond
 * that. */
uint64_t ucx_tag_make(const struct kit_proof *proof, uint32_t tag);

/* A line of ucp_context_print_info: "#  resource 1  :  md 1  dev 1  flags -- tcp/lo". 1: it names
 * a transport and its device. */
#define UCX_NAME_BYTES 32
struct ucx_resource {
    char transport[UCX_NAME_BYTES], device[UCX_NAME_BYTES];
};
int ucx_resource_parse(const char *line, struct ucx_resource *resource_out);
/* -1: we do not use it: device memory is the core's. */
int ucx_resource_mode(const struct ucx_resource *resource);
/* 1: some of these transports, names separated by commas, are networks that move memory by
 * themselves. Their endpoints must be told of a peer's end, and their pages are pinned. Never so of
 * shared memory, whose endpoints UCX 1.13 does not give then (ucx_context.c), whatever pins pages
 * there: knem. */
int ucx_by_hardware(enum ucx_mode mode, const char *tls);

static_assert(KIT_HEAD_BYTES + UCX_OWN_BYTES + XCCL_ADDR_WIRE_BYTES <= XCCL_NET_HANDLE_USED,
              "a handle that NCCL can carry");

#endif

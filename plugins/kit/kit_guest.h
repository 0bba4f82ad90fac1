/* SPDX-License-Identifier: BSD-3-Clause */
/* Proofs of the connections at a plugin's door (kit/kit_doorstep.h), in steps that never wait:
 * opening in, answer out, hello in (kit_proof.h). A wrong opening closes at once, also one whose
 * nonce has been here; a connection with a right opening is not dropped for one without.
 *
 * Thread: the listener's. Nothing here allocates. */
#ifndef KIT_GUEST_H
#define KIT_GUEST_H

#include "kit/kit_doorstep.h"
#include "base/wire.h"
#include "kit/kit_proof.h"

#define KIT_SEEN 64 /* nonces that a door remembers */

/* Constants that tell the bytes of one plugin from those of others. */
struct kit_dialect {
    const char *plugin;
    const char *wrong; /* what a wrong hello is called */
    uint32_t handle_magic, hello_magic, version;
    uint32_t handle_own_bytes; /* of a handle, before the addresses */
    uint32_t hello_bytes; /* at least */
    uint32_t hello_bytes_max;
    /* A hello behind its head. 0: it is wrong. NULL: there is none, the opening says all. */
    int (*decode)(struct xccl_wire *wire, void *content_out);
};

/* Bytes of a place at the door: an opening, or a sealed hello. */
#define KIT_PLACE_BYTES(hello_bytes_max)                                                           \
    ((hello_bytes_max) + KIT_SEAL_BYTES > KIT_OPENING_BYTES ? (hello_bytes_max) + KIT_SEAL_BYTES   \
                                                            : KIT_OPENING_BYTES)

struct kit_guests {
    const struct kit_dialect *dialect;
    uint8_t token[KIT_TOKEN_BYTES];
    struct kit_proof proofs[KIT_DOORSTEP_PLACES];
    uint8_t answers[KIT_DOORSTEP_PLACES][KIT_ANSWER_BYTES];
    uint32_t seen_count; /* of right openings */
    uint8_t seen[KIT_SEEN][KIT_NONCE_BYTES];
};

/* The proof of a guest: what he opened with, and his keys. */
struct kit_proof *kit_guest_proof(struct kit_guests *guests, const struct kit_doorstep *step,
                                  const struct kit_stranger *stranger);
/* 1: he has proved himself, stranger->hello is what he says, said.hello_bytes of it. 0: not yet, or
 * he is dropped. */
int kit_guest_prove(struct kit_guests *guests, struct kit_doorstep *step,
                    struct kit_stranger *stranger, uint64_t now_ns);

/* The other end: who connects. All zero at first. */
struct kit_greeting {
    int is_reached; /* the connection is there */
    enum { KIT_BEGIN, KIT_OPENING, KIT_ANSWER, KIT_HELLO, KIT_DONE } stage;
    size_t said, heard; /* bytes of this stage; heard: afterwards of what the plugin reads */
    uint8_t answer[KIT_ANSWER_BYTES];
    struct kit_proof proof;
};
/* The words of a greeting, and the secret of its receiver. */
struct kit_intro {
    const struct kit_dialect *dialect;
    const uint8_t *token; /* KIT_TOKEN_BYTES, of the handle */
    uint32_t context[KIT_CONTEXT_WORDS]; /* of the opening */
    uint8_t *hello; /* with room for a seal, and sealed there */
    size_t hello_bytes; /* may be 0 */
};
/* Over a connection to peer that is there: opening, answer, hello. *done_out 1: all is with the
 * kernel. */
xcclResult_t kit_prove(struct kit_greeting *greeting, int fd, const struct xccl_addr *peer,
                       const struct kit_intro *intro, int *done_out);

/* Sends or receives as many of the bytes as the socket takes or has now; *moved: bytes so far. */
xcclResult_t kit_say(int fd, const uint8_t *data, size_t bytes, size_t *moved);
xcclResult_t kit_hear(int fd, uint8_t *data, size_t bytes, size_t *moved);

#endif

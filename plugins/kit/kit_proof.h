/* SPDX-License-Identifier: BSD-3-Clause */
/* How two ends prove to each other that they know the token of a handle, and what they know then.
 * The token never crosses: it is the key of what does.
 *
 *   sender                                           receiver
 *   opening {context, a nonce, MAC} ---------------> the MAC is right, the nonce is new
 *                                   <--------------- answer {a nonce, MAC over both}
 *   the MAC is right
 *   hello, sealed under a key of both nonces ------> the seal is right: this is the sender, now
 *
 * A recording of any of it is worth nothing in another connection. Pure: bytes in, bytes out.
 * Thread: one at a time a proof. */
#ifndef KIT_PROOF_H
#define KIT_PROOF_H

#include <stddef.h>
#include <stdint.h>

#define KIT_TOKEN_BYTES   32
#define KIT_CONTEXT_WORDS 3 /* of the plugin, in an opening */
#define KIT_NONCE_BYTES   16
#define KIT_MAC_BYTES     16
#define KIT_OPENING_BYTES (4 + 4 + 4 * (KIT_CONTEXT_WORDS + 1) + KIT_NONCE_BYTES + KIT_MAC_BYTES)
#define KIT_ANSWER_BYTES  (KIT_NONCE_BYTES + KIT_MAC_BYTES)
#define KIT_SEAL_BYTES    16 /* behind what is sealed */
#define KIT_KEY_BYTES     32

/* Contents of an opening. */
struct kit_opening {
    uint32_t magic, version; /* of the plugin's wire */
    uint32_t context[KIT_CONTEXT_WORDS];
    uint32_t hello_bytes; /* that follow the answer, without their seal */
};

struct kit_proof {
    struct kit_opening said;
    uint8_t opening[KIT_OPENING_BYTES];
    uint8_t session[KIT_KEY_BYTES]; /* once there is an answer */
    uint8_t keys[2][KIT_KEY_BYTES]; /* to the receiver, to the sender */
    uint64_t counts[2]; /* sealed or opened */
    int is_sender;
};

/* Sender: proof->opening is what goes first. */
void kit_proof_begin(struct kit_proof *proof, const uint8_t token[KIT_TOKEN_BYTES],
                     const struct kit_opening *opening);
/* Receiver: reads what an opening says, into proof->said; nothing of it is proved. */
void kit_proof_read(struct kit_proof *proof, const uint8_t opening[KIT_OPENING_BYTES]);
/* Receiver: 1: who made it knows the token. */
int kit_proof_is_right(const struct kit_proof *proof, const uint8_t token[KIT_TOKEN_BYTES]);
/* Receiver: from now on there is a session. */
void kit_proof_answer(struct kit_proof *proof, const uint8_t token[KIT_TOKEN_BYTES],
                      uint8_t answer_out[KIT_ANSWER_BYTES]);
/* Sender: 1: who made the answer knows the token, and there is a session. */
int kit_proof_hear(struct kit_proof *proof, const uint8_t token[KIT_TOKEN_BYTES],
                   const uint8_t answer[KIT_ANSWER_BYTES]);

/* Derives a key of the session for another use, up to 64 bytes: equal labels give equal keys at
 * both ends. */
void kit_proof_key(const struct kit_proof *proof, const char *label, void *out, size_t bytes);
/* Encrypts in place, and puts the seal behind; each direction in order. */
void kit_proof_seal(struct kit_proof *proof, uint8_t *data, size_t bytes);
/* Decrypts in place what has a seal behind. 0: it was altered, repeated, left out, or is not the
 * peer's; data is of no use then. */
int kit_proof_open(struct kit_proof *proof, uint8_t *data, size_t bytes);
void kit_proof_wipe(struct kit_proof *proof);

#endif

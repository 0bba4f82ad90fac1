/* SPDX-License-Identifier: BSD-3-Clause */
/* Keyed BLAKE2b for MACs and keys, ChaCha20-Poly1305 for seals, both libsodium's. Each MAC and key
 * has a label of its own, so that none can stand for another; a session's keys come from the token
 * and all that was said, one a direction, and a seal's nonce is the count of its direction.
 *
 * Limits: there is no key exchange, so whoever learns the token later can read a recorded hello.
 * Thread: as the header says. */
#include "kit/kit_proof.h"

#include <assert.h>
#include <sodium.h>
#include <string.h>

#include "base/wire.h"

#define SIGNED_BYTES (KIT_OPENING_BYTES - KIT_MAC_BYTES)

static_assert(KIT_SEAL_BYTES == crypto_aead_chacha20poly1305_IETF_ABYTES, "seal on the wire");
static_assert(KIT_KEY_BYTES == crypto_aead_chacha20poly1305_IETF_KEYBYTES, "key of a seal");

struct span {
    const uint8_t *data;
    size_t bytes;
};
static const struct span nothing;

/* Under key: the label with its zero byte, then up to two spans. */
static void keyed(const uint8_t key[KIT_KEY_BYTES], const char *label, struct span first,
                  struct span second, uint8_t *out, size_t out_bytes)
{
    crypto_generichash_state state;

    crypto_generichash_init(&state, key, KIT_KEY_BYTES, out_bytes);
    crypto_generichash_update(&state, (const uint8_t *)label, strlen(label) + 1);
    if (first.bytes)
        crypto_generichash_update(&state, first.data, first.bytes);
    if (second.bytes)
        crypto_generichash_update(&state, second.data, second.bytes);
    crypto_generichash_final(&state, out, out_bytes);
    sodium_memzero(&state, sizeof(state));
}

static void opening_mac(const uint8_t *token, const uint8_t *opening, uint8_t *mac_out)
{
    keyed(token, "xccl line opening", (struct span){opening, SIGNED_BYTES}, nothing, mac_out,
          KIT_MAC_BYTES);
}

static void answer_mac(const struct kit_proof *proof, const uint8_t *token, const uint8_t *nonce,
                       uint8_t *mac_out)
{
    keyed(token, "xccl line answer", (struct span){proof->opening, KIT_OPENING_BYTES},
          (struct span){nonce, KIT_NONCE_BYTES}, mac_out, KIT_MAC_BYTES);
}

/* Both nonces are known. */
static void session_begin(struct kit_proof *proof, const uint8_t *token, const uint8_t *nonce)
{
    keyed(token, "xccl line session", (struct span){proof->opening, KIT_OPENING_BYTES},
          (struct span){nonce, KIT_NONCE_BYTES}, proof->session, KIT_KEY_BYTES);
    kit_proof_key(proof, "seals to the receiver", proof->keys[0], KIT_KEY_BYTES);
    kit_proof_key(proof, "seals to the sender", proof->keys[1], KIT_KEY_BYTES);
    proof->counts[0] = proof->counts[1] = 0;
}

void kit_proof_begin(struct kit_proof *proof, const uint8_t token[KIT_TOKEN_BYTES],
                     const struct kit_opening *opening)
{
    struct xccl_wire wire = xccl_wire_over(proof->opening, KIT_OPENING_BYTES);
    uint8_t nonce[KIT_NONCE_BYTES];

    randombytes_buf(nonce, sizeof(nonce));
    xccl_wire_put_u32(&wire, opening->magic);
    xccl_wire_put_u32(&wire, opening->version);
    for (int i = 0; i < KIT_CONTEXT_WORDS; i++)
        xccl_wire_put_u32(&wire, opening->context[i]);
    xccl_wire_put_u32(&wire, opening->hello_bytes);
    xccl_wire_put(&wire, nonce, sizeof(nonce));
    opening_mac(token, proof->opening, xccl_wire_take(&wire, KIT_MAC_BYTES));
    proof->said = *opening;
    proof->is_sender = 1;
}

void kit_proof_read(struct kit_proof *proof, const uint8_t opening[KIT_OPENING_BYTES])
{
    struct xccl_wire wire = xccl_wire_over(proof->opening, KIT_OPENING_BYTES);

    memcpy(proof->opening, opening, KIT_OPENING_BYTES);
    proof->is_sender = 0;
    proof->said.magic = xccl_wire_get_u32(&wire);
    proof->said.version = xccl_wire_get_u32(&wire);
    for (int i = 0; i < KIT_CONTEXT_WORDS; i++)
        proof->said.context[i] = xccl_wire_get_u32(&wire);
    proof->said.hello_bytes = xccl_wire_get_u32(&wire);
}

int kit_proof_is_right(const struct kit_proof *proof, const uint8_t token[KIT_TOKEN_BYTES])
{
    uint8_t mac[KIT_MAC_BYTES];

    opening_mac(token, proof->opening, mac);
    return sodium_memcmp(mac, proof->opening + SIGNED_BYTES, KIT_MAC_BYTES) == 0;
}

void kit_proof_answer(struct kit_proof *proof, const uint8_t token[KIT_TOKEN_BYTES],
                      uint8_t answer_out[KIT_ANSWER_BYTES])
{
    randombytes_buf(answer_out, KIT_NONCE_BYTES);
    answer_mac(proof, token, answer_out, answer_out + KIT_NONCE_BYTES);
    session_begin(proof, token, answer_out);
}

int kit_proof_hear(struct kit_proof *proof, const uint8_t token[KIT_TOKEN_BYTES],
                   const uint8_t answer[KIT_ANSWER_BYTES])
{
    uint8_t mac[KIT_MAC_BYTES];

    answer_mac(proof, token, answer, mac);
    if (sodium_memcmp(mac, answer + KIT_NONCE_BYTES, KIT_MAC_BYTES) != 0)
        return 0;
    session_begin(proof, token, answer);
    return 1;
}

void kit_proof_key(const struct kit_proof *proof, const char *label, void *out, size_t bytes)
{
    keyed(proof->session, label, nothing, nothing, out, bytes);
}

/* Makes the nonce of the next seal in a direction. */
static void nonce_of(struct kit_proof *proof, int way, uint8_t nonce_out[])
{
    struct xccl_wire wire = xccl_wire_over(nonce_out, crypto_aead_chacha20poly1305_IETF_NPUBBYTES);

    xccl_wire_put_u32(&wire, 0);
    xccl_wire_put_u64(&wire, proof->counts[way]++);
}

void kit_proof_seal(struct kit_proof *proof, uint8_t *data, size_t bytes)
{
    uint8_t nonce[crypto_aead_chacha20poly1305_IETF_NPUBBYTES];
    int way = !proof->is_sender;

    nonce_of(proof, way, nonce);
    crypto_aead_chacha20poly1305_ietf_encrypt(data, NULL, data, bytes, NULL, 0, NULL, nonce,
                                              proof->keys[way]);
}

int kit_proof_open(struct kit_proof *proof, uint8_t *data, size_t bytes)
{
    uint8_t nonce[crypto_aead_chacha20poly1305_IETF_NPUBBYTES];
    int way = proof->is_sender;

    nonce_of(proof, way, nonce);
    return crypto_aead_chacha20poly1305_ietf_decrypt(data, NULL, NULL, data, bytes + KIT_SEAL_BYTES,
                                                     NULL, 0, nonce, proof->keys[way]) == 0;
}

void kit_proof_wipe(struct kit_proof *proof)
{
    sodium_memzero(proof, sizeof(*proof));
}

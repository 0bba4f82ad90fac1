/* SPDX-License-Identifier: BSD-3-Clause */
/* The header has the record, byte by byte. The key of a direction serves two purposes, so each gets
 * one of its own: BLAKE2b with it, over a word.
 *
 * Thread: one at a time a crypt. */
#include "kit/kit_crypt.h"

#include <sodium.h>
#include <string.h>

#include "base/alloc.h"
#include "base/wire.h"

/* Records of one key: more than any connection sends, and few enough for AES-GCM. */
#define NUMBERS ((uint64_t)1 << 48)

struct kit_crypt {
    struct kit_cipher *cipher;
    uint64_t number; /* of the next record */
    uint8_t mark_key[crypto_shorthash_KEYBYTES];
};

static void subkey(const uint8_t key[KIT_CIPHER_KEY_BYTES], const char *word, uint8_t *out,
                   size_t bytes)
{
    (void)crypto_generichash(out, bytes, (const uint8_t *)word, strlen(word), key,
                             KIT_CIPHER_KEY_BYTES);
}

struct kit_crypt *kit_crypt_create(enum kit_cipher_kind kind,
                                   const uint8_t key[KIT_CIPHER_KEY_BYTES], int seals)
{
    struct kit_crypt *crypt = xccl_calloc(1, sizeof(*crypt));
    uint8_t cipher_key[KIT_CIPHER_KEY_BYTES];

    if (!crypt)
        return NULL;
    subkey(key, "xccl record", cipher_key, sizeof(cipher_key));
    subkey(key, "xccl record length", crypt->mark_key, sizeof(crypt->mark_key));
    crypt->cipher = kit_cipher_create(kind, cipher_key, seals);
    sodium_memzero(cipher_key, sizeof(cipher_key));
    if (crypt->cipher)
        return crypt;
    kit_crypt_destroy(crypt);
    return NULL;
}

void kit_crypt_destroy(struct kit_crypt *crypt)
{
    if (!crypt)
        return;
    kit_cipher_destroy(crypt->cipher);
    sodium_memzero(crypt, sizeof(*crypt));
    xccl_free(crypt);
}

static void mark(const struct kit_crypt *crypt, const uint8_t length[4], uint8_t mark_out[4])
{
    uint8_t text[12], hash[crypto_shorthash_BYTES];
    struct xccl_wire wire = xccl_wire_over(text, sizeof(text));

    xccl_wire_put_u64(&wire, crypt->number);
    xccl_wire_put(&wire, length, 4);
    (void)crypto_shorthash(hash, text, sizeof(text), crypt->mark_key);
    memcpy(mark_out, hash, 4);
}

static void nonce_of(const struct kit_crypt *crypt, uint8_t nonce_out[KIT_CIPHER_NONCE_BYTES])
{
    struct xccl_wire wire = xccl_wire_over(nonce_out, KIT_CIPHER_NONCE_BYTES);

    xccl_wire_put_u32(&wire, 0);
    xccl_wire_put_u64(&wire, crypt->number);
}

size_t kit_crypt_seal(struct kit_crypt *crypt, const struct iovec *pieces, int count, uint8_t *out)
{
    uint8_t nonce[KIT_CIPHER_NONCE_BYTES];
    const struct kit_beside beside = {nonce, out, KIT_CRYPT_HEADER_BYTES};
    struct xccl_wire wire = xccl_wire_over(out, KIT_CRYPT_HEADER_BYTES);
    size_t bytes = 0;

    for (int i = 0; i < count; i++)
        bytes += pieces[i].iov_len;
    if (crypt->number >= NUMBERS)
        return 0;
    xccl_wire_put_u32(&wire, (uint32_t)bytes);
    mark(crypt, out, out + 4);
    nonce_of(crypt, nonce);
    crypt->number++; /* whatever becomes of it, this nonce is used */
    if (!kit_cipher_seal(crypt->cipher, &beside, pieces, count, out + KIT_CRYPT_HEADER_BYTES,
                         out + KIT_CRYPT_HEADER_BYTES + bytes))
        return 0;
    return KIT_CRYPT_EXTRA_BYTES + bytes;
}

size_t kit_crypt_length(const struct kit_crypt *crypt, const uint8_t header[KIT_CRYPT_HEADER_BYTES])
{
    uint8_t length[4], want[4];
    struct xccl_wire wire = xccl_wire_over(length, sizeof(length));
    size_t bytes;

    memcpy(length, header, sizeof(length));
    bytes = xccl_wire_get_u32(&wire);
    mark(crypt, length, want);
    return sodium_memcmp(want, header + 4, sizeof(want)) == 0 && bytes <= KIT_CRYPT_TEXT_MAX ? bytes
                                                                                             : 0;
}

int kit_crypt_unseal(struct kit_crypt *crypt, const uint8_t *record, size_t bytes, uint8_t *out)
{
    uint8_t nonce[KIT_CIPHER_NONCE_BYTES];
    const struct kit_beside beside = {nonce, record, KIT_CRYPT_HEADER_BYTES};
    const uint8_t *text = record + KIT_CRYPT_HEADER_BYTES;

    nonce_of(crypt, nonce);
    if (!kit_cipher_unseal(crypt->cipher, &beside, text, bytes, out, text + bytes))
        return 0;
    crypt->number++;
    return 1;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The ciphers by libsodium, and how one is chosen; kit_libcrypto.c has those of libcrypto. The
 * header says what they are.
 *
 * Limits: libsodium takes one piece, so several are first copied behind one another.
 * Thread: one at a time a cipher. */
#include "kit/kit_cipher.h"

#include <sodium.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/wire.h"
#include "kit/kit_libcrypto.h"

/* Texts up to here get their MAC from libsodium: libcrypto takes 0.2 us to begin. */
#define MAC_SHORT_BYTES 1024

struct kit_cipher {
    crypto_aead_aes256gcm_state aes; /* expanded key of libsodium's AES */
    uint8_t key[KIT_CIPHER_KEY_BYTES]; /* of the others */
    enum kit_cipher_kind kind;
    struct kit_libcrypto_aes *fast_aes; /* NULL: libsodium's */
    struct kit_libcrypto_mac *fast_mac; /* NULL: libsodium's */
};

static _Atomic int without_libcrypto;

void kit_cipher_without_libcrypto(int without)
{
    /* Relaxed: a test sets it before it makes ciphers, in one thread. */
    atomic_store_explicit(&without_libcrypto, without, memory_order_relaxed);
}

static int uses_libcrypto(void)
{
    return !atomic_load_explicit(&without_libcrypto, memory_order_relaxed) && kit_libcrypto_is();
}

int kit_cipher_able(enum kit_cipher_kind kind)
{
    if (kind == KIT_CIPHER_NONE || sodium_init() < 0)
        return 0;
    return kind != KIT_CIPHER_AES || uses_libcrypto() || crypto_aead_aes256gcm_is_available();
}

const char *kit_cipher_name(enum kit_cipher_kind kind)
{
    switch (kind) {
    case KIT_CIPHER_AES:
        return uses_libcrypto() ? "AES-256-GCM (libcrypto)" : "AES-256-GCM (libsodium)";
    case KIT_CIPHER_CHACHA:
        return "ChaCha20-Poly1305 (libsodium)";
    case KIT_CIPHER_MAC:
        return uses_libcrypto() && kit_libcrypto_has_mac() ? "Poly1305 (libcrypto)"
                                                           : "Poly1305 (libsodium)";
    default:
        return "none";
    }
}

struct kit_cipher *kit_cipher_create(enum kit_cipher_kind kind,
                                     const uint8_t key[KIT_CIPHER_KEY_BYTES], int seals)
{
    struct kit_cipher *cipher;

    if (!kit_cipher_able(kind))
        return NULL;
    cipher = xccl_calloc_aligned(64, sizeof(*cipher));
    if (!cipher)
        return NULL;
    cipher->kind = kind;
    if (kind == KIT_CIPHER_AES && uses_libcrypto()) {
        cipher->fast_aes = kit_libcrypto_aes_create(key, seals);
        if (cipher->fast_aes)
            return cipher;
        kit_cipher_destroy(cipher);
        return NULL;
    }
    if (kind == KIT_CIPHER_AES) {
        (void)crypto_aead_aes256gcm_beforenm(&cipher->aes, key);
        return cipher;
    }
    memcpy(cipher->key, key, sizeof(cipher->key));
    if (kind == KIT_CIPHER_MAC && uses_libcrypto())
        cipher->fast_mac = kit_libcrypto_mac_create();
    return cipher;
}

void kit_cipher_destroy(struct kit_cipher *cipher)
{
    if (!cipher)
        return;
    kit_libcrypto_aes_destroy(cipher->fast_aes);
    kit_libcrypto_mac_destroy(cipher->fast_mac);
    sodium_memzero(cipher, sizeof(*cipher));
    xccl_free(cipher);
}

/* The pieces behind one another. A single piece stays where it is. */
static const uint8_t *in_one(const struct iovec *pieces, int count, uint8_t *out, size_t *bytes_out)
{
    size_t bytes = 0;

    if (count == 1) {
        *bytes_out = pieces->iov_len;
        return pieces->iov_base;
    }
    for (int i = 0; i < count; i++) {
        memcpy(out + bytes, pieces[i].iov_base, pieces[i].iov_len);
        bytes += pieces[i].iov_len;
    }
    *bytes_out = bytes;
    return out;
}

/* ---- MAC ---- */

static void mac_short(const uint8_t once[32], const struct iovec pieces[3],
                      uint8_t tag_out[KIT_CIPHER_TAG_BYTES])
{
    crypto_onetimeauth_state state;

    (void)crypto_onetimeauth_init(&state, once);
    for (int i = 0; i < 3; i++)
        (void)crypto_onetimeauth_update(&state, pieces[i].iov_base, pieces[i].iov_len);
    (void)crypto_onetimeauth_final(&state, tag_out);
    sodium_memzero(&state, sizeof(state));
}

static int mac(struct kit_cipher *cipher, const struct kit_beside *beside, const uint8_t *text,
               size_t bytes, uint8_t tag_out[KIT_CIPHER_TAG_BYTES])
{
    uint8_t once[32], lengths[16];
    const struct iovec pieces[3] = {{(void *)(uintptr_t)beside->header, beside->header_bytes},
                                    {(void *)(uintptr_t)text, bytes},
                                    {lengths, sizeof(lengths)}};
    struct xccl_wire wire = xccl_wire_over(lengths, sizeof(lengths));
    int ok = 1;

    (void)crypto_stream_chacha20_ietf(once, sizeof(once), beside->nonce, cipher->key);
    xccl_wire_put_u64(&wire, beside->header_bytes);
    xccl_wire_put_u64(&wire, bytes);
    if (!cipher->fast_mac || bytes <= MAC_SHORT_BYTES)
        mac_short(once, pieces, tag_out);
    else
        ok = kit_libcrypto_mac(cipher->fast_mac, once, pieces, 3, tag_out);
    sodium_memzero(once, sizeof(once));
    return ok;
}

/* ---- one text ---- */

int kit_cipher_seal(struct kit_cipher *cipher, const struct kit_beside *beside,
                    const struct iovec *pieces, int count, uint8_t *out,
                    uint8_t tag_out[KIT_CIPHER_TAG_BYTES])
{
    const uint8_t *in;
    size_t bytes;

    if (cipher->fast_aes)
        return kit_libcrypto_aes_seal(cipher->fast_aes, beside, pieces, count, out, tag_out);
    in = in_one(pieces, count, out, &bytes);
    if (cipher->kind == KIT_CIPHER_AES)
        return crypto_aead_aes256gcm_encrypt_detached_afternm(
                   out, tag_out, NULL, in, bytes, beside->header, beside->header_bytes, NULL,
                   beside->nonce, &cipher->aes) == 0;
    if (cipher->kind == KIT_CIPHER_CHACHA)
        return crypto_aead_chacha20poly1305_ietf_encrypt_detached(
                   out, tag_out, NULL, in, bytes, beside->header, beside->header_bytes, NULL,
                   beside->nonce, cipher->key) == 0;
    if (in != out && bytes > 0)
        memcpy(out, in, bytes);
    return mac(cipher, beside, out, bytes, tag_out);
}

int kit_cipher_unseal(struct kit_cipher *cipher, const struct kit_beside *beside, const uint8_t *in,
                      size_t bytes, uint8_t *out, const uint8_t tag[KIT_CIPHER_TAG_BYTES])
{
    uint8_t want[KIT_CIPHER_TAG_BYTES];

    if (cipher->fast_aes)
        return kit_libcrypto_aes_unseal(cipher->fast_aes, beside, in, bytes, out, tag);
    if (cipher->kind == KIT_CIPHER_AES)
        return crypto_aead_aes256gcm_decrypt_detached_afternm(out, NULL, in, bytes, tag,
                                                              beside->header, beside->header_bytes,
                                                              beside->nonce, &cipher->aes) == 0;
    if (cipher->kind == KIT_CIPHER_CHACHA)
        return crypto_aead_chacha20poly1305_ietf_decrypt_detached(
                   out, NULL, in, bytes, tag, beside->header, beside->header_bytes, beside->nonce,
                   cipher->key) == 0;
    if (!mac(cipher, beside, in, bytes, want) || sodium_memcmp(want, tag, sizeof(want)) != 0)
        return 0;
    if (in != out && bytes > 0)
        memcpy(out, in, bytes);
    return 1;
}

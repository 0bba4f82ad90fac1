/* SPDX-License-Identifier: BSD-3-Clause */
/* The ciphers of data connections, each as seal and unseal of one text with a nonce and a header
 * that is only authenticated. AES-256-GCM is libcrypto's, opened at run time because it is several
 * times as quick as libsodium's, which is what is left where libcrypto is absent and the processor
 * has AES. ChaCha20-Poly1305 (RFC 8439) is libsodium's and always there. MAC leaves the text as it
 * is: Poly1305 with a key for this one text, the first 32 bytes of the ChaCha20 stream for its
 * nonce, over header, text and the lengths of both.
 *
 * A nonce must never be used twice with a key; who counts is kit_crypt.c.
 *
 * Thread: one at a time a cipher; create from any. Only create allocates. */
#ifndef KIT_CIPHER_H
#define KIT_CIPHER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* The kinds are numbers on the wire. */
enum kit_cipher_kind { KIT_CIPHER_NONE, KIT_CIPHER_AES, KIT_CIPHER_CHACHA, KIT_CIPHER_MAC };
#define KIT_CIPHER_KINDS 4

#define KIT_CIPHER_KEY_BYTES   32
#define KIT_CIPHER_NONCE_BYTES 12
#define KIT_CIPHER_TAG_BYTES   16

struct kit_cipher;

/* Inputs of a seal other than the text: its nonce, and bytes that are only authenticated. */
struct kit_beside {
    const uint8_t *nonce; /* KIT_CIPHER_NONCE_BYTES */
    const void *header;
    size_t header_bytes;
};

/* 1: create works for this kind, here. */
int kit_cipher_able(enum kit_cipher_kind kind);
/* "AES-256-GCM (libcrypto)": kind and where it is from. */
const char *kit_cipher_name(enum kit_cipher_kind kind);
/* Makes a cipher of one direction: with seals 1 for kit_cipher_seal, else for kit_cipher_unseal.
 * NULL: no memory, or not able. Keeps no pointer to the key. */
struct kit_cipher *kit_cipher_create(enum kit_cipher_kind kind,
                                     const uint8_t key[KIT_CIPHER_KEY_BYTES], int seals);
void kit_cipher_destroy(struct kit_cipher *cipher); /* wipes the key; NULL is fine */

/* Seals the pieces, which lie behind one another in out afterwards, and writes the tag. 0: the
 * library refused, which it has no reason to; out must not be used then. */
int kit_cipher_seal(struct kit_cipher *cipher, const struct kit_beside *beside,
                    const struct iovec *pieces, int count, uint8_t *out,
                    uint8_t tag_out[KIT_CIPHER_TAG_BYTES]);
/* out may be in, or lie elsewhere. 0: the tag is wrong; out then has bytes that mean nothing. */
int kit_cipher_unseal(struct kit_cipher *cipher, const struct kit_beside *beside, const uint8_t *in,
                      size_t bytes, uint8_t *out, const uint8_t tag[KIT_CIPHER_TAG_BYTES]);

/* Makes ciphers of libsodium alone from now on; for tests. */
void kit_cipher_without_libcrypto(int without);

#endif

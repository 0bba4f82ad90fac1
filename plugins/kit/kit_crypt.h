/* SPDX-License-Identifier: BSD-3-Clause */
/* Records of one direction of a data connection: what a stream of bytes is cut into so that no byte
 * of it can be changed, added, left out or moved unseen, and, but for KIT_CIPHER_MAC, read.
 *
 *   0: bytes of the text u32 (1 to KIT_CRYPT_TEXT_MAX), 4: mark u32, 8: text, sealed; then a tag
 * (16)
 *
 * Records are counted from 0, and the number is the nonce, so each key is for one direction of one
 * connection only. The mark is a keyed hash of number and length: a length that was changed is seen
 * when it comes, and nobody waits for bytes that nobody has sent. Header and mark are under the
 * tag.
 *
 * Thread: one at a time a crypt. Only create allocates. */
#ifndef KIT_CRYPT_H
#define KIT_CRYPT_H

#include "kit/kit_cipher.h"

#define KIT_CRYPT_HEADER_BYTES 8
#define KIT_CRYPT_EXTRA_BYTES  (KIT_CRYPT_HEADER_BYTES + KIT_CIPHER_TAG_BYTES)
#define KIT_CRYPT_TEXT_MAX     ((size_t)64 << 10)

struct kit_crypt;

/* NULL: no memory, or this kind is not able to work here. Keeps no pointer to the key. */
struct kit_crypt *kit_crypt_create(enum kit_cipher_kind kind,
                                   const uint8_t key[KIT_CIPHER_KEY_BYTES], int seals);
void kit_crypt_destroy(struct kit_crypt *crypt); /* wipes its keys; NULL is fine */

/* Writes the next record, of all the pieces, 1 to KIT_CRYPT_TEXT_MAX bytes together. Returns its
 * length; 0: the cipher refused, or all 2^48 numbers are used up. */
size_t kit_crypt_seal(struct kit_crypt *crypt, const struct iovec *pieces, int count, uint8_t *out);
/* How many bytes of text the next record has, by its header. 0: that is not its header. */
size_t kit_crypt_length(const struct kit_crypt *crypt,
                        const uint8_t header[KIT_CRYPT_HEADER_BYTES]);
/* Opens the next record, whose length kit_crypt_length has said. out is where the text goes, also
 * the place of the text in the record itself. 0: it is not the record that was sent. */
int kit_crypt_unseal(struct kit_crypt *crypt, const uint8_t *record, size_t bytes, uint8_t *out);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Ciphers of libcrypto (OpenSSL 3 or 1.1), which is opened at run time and never closed:
 * AES-256-GCM, and Poly1305 with OpenSSL 3. Only kit_cipher.c uses them.
 *
 * Thread: any for is and create; one at a time an object. Only create allocates. */
#ifndef KIT_LIBCRYPTO_H
#define KIT_LIBCRYPTO_H

#include "kit/kit_cipher.h"

struct kit_libcrypto_aes;
struct kit_libcrypto_mac;

int kit_libcrypto_is(void); /* 1: it is there, with AES-256-GCM */
int kit_libcrypto_has_mac(void); /* 1: and with Poly1305 */

struct kit_libcrypto_aes *kit_libcrypto_aes_create(const uint8_t key[32], int seals);
void kit_libcrypto_aes_destroy(struct kit_libcrypto_aes *aes); /* NULL is fine */
/* Meaning: that of kit_cipher_seal and kit_cipher_unseal. */
int kit_libcrypto_aes_seal(struct kit_libcrypto_aes *aes, const struct kit_beside *beside,
                           const struct iovec *pieces, int count, uint8_t *out,
                           uint8_t tag_out[16]);
int kit_libcrypto_aes_unseal(struct kit_libcrypto_aes *aes, const struct kit_beside *beside,
                             const uint8_t *in, size_t bytes, uint8_t *out, const uint8_t tag[16]);

struct kit_libcrypto_mac *kit_libcrypto_mac_create(void); /* NULL: it has none, or no memory */
void kit_libcrypto_mac_destroy(struct kit_libcrypto_mac *mac); /* NULL is fine */
/* Computes the tag of the pieces behind one another. 0: the library refused. */
int kit_libcrypto_mac(struct kit_libcrypto_mac *mac, const uint8_t once[32],
                      const struct iovec *pieces, int count, uint8_t tag_out[16]);

#endif

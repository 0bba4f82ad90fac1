/* SPDX-License-Identifier: BSD-3-Clause */
/* The records of data connections and their ciphers: published texts (the paper on GCM by McGrew
 * and Viega, cases 14 and 16; RFC 8439, 2.6.2 and 2.8.2), the two libraries against each other,
 * each bit of a record changed, records repeated, left out, exchanged, cut or taken from the other
 * direction, and that nothing is allocated for a record.
 *
 * Thread: one. */
#include <sodium.h>
#include <stdlib.h>

#include "kit/kit_crypt.h"
#include "kit/kit_libcrypto.h"
#include "xt.h"

static const enum kit_cipher_kind kinds[] = {KIT_CIPHER_AES, KIT_CIPHER_CHACHA, KIT_CIPHER_MAC};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static uint8_t text[KIT_CRYPT_TEXT_MAX], sealed[KIT_CRYPT_TEXT_MAX + KIT_CRYPT_EXTRA_BYTES];
static uint8_t opened[KIT_CRYPT_TEXT_MAX];

static size_t from_hex(const char *hex, uint8_t *out, size_t room)
{
    size_t bytes = 0;

    XT_CHECK_INT(sodium_hex2bin(out, room, hex, strlen(hex), " ", &bytes, NULL), 0);
    return bytes;
}

/* ---- published texts ---- */

struct vector {
    enum kit_cipher_kind kind;
    const char *key, *nonce, *header, *text, *sealed, *tag;
};

static const struct vector vectors[] = {
    {KIT_CIPHER_AES, "0000000000000000000000000000000000000000000000000000000000000000",
     "000000000000000000000000", "", "00000000000000000000000000000000",
     "cea7403d4d606b6e074ec5d3baf39d18", "d0d1c8a799996bf0265b98b5d48ab919"},
    {KIT_CIPHER_AES, "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
     "cafebabefacedbaddecaf888", "feedfacedeadbeeffeedfacedeadbeefabaddad2",
     "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
     "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
     "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
     "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662",
     "76fc6ece0f4e1768cddf8853bb2d551b"},
    {KIT_CIPHER_CHACHA, "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f",
     "070000004041424344454647", "50515253c0c1c2c3c4c5c6c7",
     "4c616469657320616e642047656e746c656d656e206f662074686520636c6173"
     "73206f66202739393a204966204920636f756c64206f6666657220796f75206f"
     "6e6c79206f6e652074697020666f7220746865206675747572652c2073756e73"
     "637265656e20776f756c642062652069742e",
     "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d6"
     "3dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36"
     "92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc"
     "3ff4def08e4b7a9de576d26586cec64b6116",
     "1ae10b594f09e26a7e902ecbd0600691"},
};

static void vector_check(const struct vector *vector)
{
    uint8_t key[32], nonce[12], header[64], plain[256], want[256], tag[16], want_tag[16], out[256];
    size_t header_bytes = from_hex(vector->header, header, sizeof(header));
    size_t bytes = from_hex(vector->text, plain, sizeof(plain));
    const struct kit_beside beside = {nonce, header, header_bytes};
    struct iovec pieces[2] = {{plain, bytes / 3}, {plain + bytes / 3, bytes - bytes / 3}};
    struct kit_cipher *cipher;

    from_hex(vector->key, key, sizeof(key));
    from_hex(vector->nonce, nonce, sizeof(nonce));
    from_hex(vector->sealed, want, sizeof(want));
    from_hex(vector->tag, want_tag, sizeof(want_tag));
    cipher = kit_cipher_create(vector->kind, key, 1);
    XT_CHECK(cipher != NULL);
    XT_CHECK(kit_cipher_seal(cipher, &beside, pieces, 2, out, tag));
    XT_CHECK(memcmp(out, want, bytes) == 0 && memcmp(tag, want_tag, 16) == 0);
    kit_cipher_destroy(cipher);
    cipher = kit_cipher_create(vector->kind, key, 0);
    XT_CHECK(cipher != NULL);
    XT_CHECK(kit_cipher_unseal(cipher, &beside, want, bytes, out, want_tag));
    XT_CHECK(memcmp(out, plain, bytes) == 0);
    want_tag[15] ^= 1;
    XT_CHECK(!kit_cipher_unseal(cipher, &beside, want, bytes, out, want_tag));
    kit_cipher_destroy(cipher);
}

static void vectors_check(void)
{
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        if (kit_cipher_able(vectors[i].kind))
            vector_check(&vectors[i]);
    }
}

XT_TEST(published_texts_are_sealed_and_opened)
{
    XT_CHECK(kit_cipher_able(KIT_CIPHER_CHACHA) && kit_cipher_able(KIT_CIPHER_MAC));
    vectors_check();
}

XT_TEST(published_texts_are_sealed_and_opened_without_libcrypto)
{
    kit_cipher_without_libcrypto(1);
    XT_CHECK(kit_cipher_able(KIT_CIPHER_CHACHA) && kit_cipher_able(KIT_CIPHER_MAC));
    vectors_check();
}

/* The one-time key is that of RFC 8439, 2.6.2; the lengths behind header and text are ours. */
static void mac_check(size_t bytes)
{
    uint8_t key[32], nonce[12], once[32], tag[16], want[16], lengths[16] = {5};
    const struct kit_beside beside = {nonce, "hello", 5};
    struct iovec piece = {text, bytes};
    crypto_onetimeauth_state state;
    struct kit_cipher *cipher;

    from_hex("808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f", key, 32);
    from_hex("000000000001020304050607", nonce, sizeof(nonce));
    from_hex("8ad5a08b905f81cc815040274ab29471a833b637e3fd0da508dbb8e2fdd1a646", once, 32);
    for (int i = 0; i < 8; i++)
        lengths[8 + i] = (uint8_t)((uint64_t)bytes >> 8 * i);
    crypto_onetimeauth_init(&state, once);
    crypto_onetimeauth_update(&state, (const uint8_t *)"hello", 5);
    crypto_onetimeauth_update(&state, text, bytes);
    crypto_onetimeauth_update(&state, lengths, 16);
    crypto_onetimeauth_final(&state, want);
    cipher = kit_cipher_create(KIT_CIPHER_MAC, key, 1);
    XT_CHECK(cipher != NULL);
    XT_CHECK(kit_cipher_seal(cipher, &beside, &piece, 1, sealed, tag));
    XT_CHECK(memcmp(tag, want, 16) == 0 && memcmp(sealed, text, bytes) == 0);
    kit_cipher_destroy(cipher);
}

XT_TEST(a_mac_is_poly1305_with_a_key_of_the_nonce)
{
    randombytes_buf(text, sizeof(text));
    for (int without = 0; without < 2; without++) {
        kit_cipher_without_libcrypto(without);
        for (size_t bytes = 0; bytes <= sizeof(text); bytes = bytes * 3 + 1)
            mac_check(bytes);
    }
}

/* ---- records ---- */

struct ends {
    struct kit_crypt *sealing, *opening;
};

static struct ends ends_make(enum kit_cipher_kind kind, int without)
{
    uint8_t key[32];
    struct ends ends;

    memset(key, 7, sizeof(key));
    ends.sealing = kit_crypt_create(kind, key, 1);
    kit_cipher_without_libcrypto(without);
    ends.opening = kit_crypt_create(kind, key, 0);
    kit_cipher_without_libcrypto(0);
    XT_CHECK(ends.sealing && ends.opening);
    return ends;
}

static void ends_drop(struct ends *ends)
{
    kit_crypt_destroy(ends->sealing);
    kit_crypt_destroy(ends->opening);
}

static int opens(struct ends *ends, const uint8_t *record, size_t bytes)
{
    return kit_crypt_length(ends->opening, record) == bytes &&
           kit_crypt_unseal(ends->opening, record, bytes, opened);
}

XT_TEST(records_of_all_lengths_and_pieces_arrive_by_either_library)
{
    static const size_t sizes[] = {1, 15, 16, 17, 255, 1024, 1025, 4080, 40000, KIT_CRYPT_TEXT_MAX};

    randombytes_buf(text, sizeof(text));
    for (size_t k = 0; k < 2 * KINDS; k++) {
        struct ends ends;
        int without = (int)(k % 2);

        kit_cipher_without_libcrypto(without);
        if (!kit_cipher_able(kinds[k / 2])) /* no AES in this processor */
            continue;
        kit_cipher_without_libcrypto(0);
        ends = ends_make(kinds[k / 2], without);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            size_t head = sizes[i] / 5, bytes = sizes[i];
            struct iovec pieces[3] = {
                {text, head}, {text + head, head}, {text + 2 * head, bytes - 2 * head}};

            XT_CHECK_INT(kit_crypt_seal(ends.sealing, pieces, 3, sealed),
                         bytes + KIT_CRYPT_EXTRA_BYTES);
            XT_CHECK(opens(&ends, sealed, bytes) && memcmp(opened, text, bytes) == 0);
            XT_CHECK_INT(memcmp(sealed + KIT_CRYPT_HEADER_BYTES, text, bytes) == 0,
                         kinds[k / 2] == KIT_CIPHER_MAC);
        }
        ends_drop(&ends);
    }
    kit_cipher_without_libcrypto(0);
}

XT_TEST(each_changed_bit_of_a_record_is_seen)
{
    struct iovec piece = {text, 40};

    for (size_t k = 0; k < KINDS; k++) {
        struct ends ends = ends_make(kinds[k], 0);
        size_t whole = kit_crypt_seal(ends.sealing, &piece, 1, sealed);

        for (size_t bit = 0; bit < 8 * whole; bit++) {
            sealed[bit / 8] ^= (uint8_t)(1u << bit % 8);
            if (bit < 8 * KIT_CRYPT_HEADER_BYTES)
                XT_CHECK_INT(kit_crypt_length(ends.opening, sealed), 0);
            XT_CHECK(!kit_crypt_unseal(ends.opening, sealed, 40, opened));
            sealed[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        XT_CHECK(opens(&ends, sealed, 40));
        ends_drop(&ends);
    }
}

XT_TEST(records_repeated_left_out_or_exchanged_are_seen)
{
    static uint8_t records[3][64 + KIT_CRYPT_EXTRA_BYTES];
    struct iovec piece = {text, 64};

    for (size_t k = 0; k < KINDS; k++) {
        struct ends ends = ends_make(kinds[k], 0);

        for (int i = 0; i < 3; i++)
            kit_crypt_seal(ends.sealing, &piece, 1, records[i]);
        XT_CHECK(memcmp(records[0] + KIT_CRYPT_HEADER_BYTES + 64,
                        records[1] + KIT_CRYPT_HEADER_BYTES + 64, KIT_CIPHER_TAG_BYTES) != 0);
        XT_CHECK(!opens(&ends, records[1], 64)); /* before 0 */
        XT_CHECK(opens(&ends, records[0], 64));
        XT_CHECK(!opens(&ends, records[0], 64)); /* again */
        XT_CHECK(!opens(&ends, records[2], 64)); /* without 1 */
        /* Also where only the header is right. */
        memcpy(records[2], records[1], KIT_CRYPT_HEADER_BYTES);
        XT_CHECK_INT(kit_crypt_length(ends.opening, records[2]), 64);
        XT_CHECK(!opens(&ends, records[2], 64));
        XT_CHECK(opens(&ends, records[1], 64));
        ends_drop(&ends);
    }
}

XT_TEST(a_record_of_another_key_is_none)
{
    uint8_t key[32];
    struct iovec piece = {text, 100};

    memset(key, 8, sizeof(key));
    for (size_t k = 0; k < KINDS; k++) {
        struct ends ends = ends_make(kinds[k], 0);
        struct kit_crypt *other = kit_crypt_create(kinds[k], key, 1);

        XT_CHECK(other != NULL);
        kit_crypt_seal(other, &piece, 1, sealed);
        XT_CHECK_INT(kit_crypt_length(ends.opening, sealed), 0);
        XT_CHECK(!kit_crypt_unseal(ends.opening, sealed, 100, opened));
        kit_crypt_destroy(other);
        ends_drop(&ends);
    }
}

XT_TEST(a_record_is_opened_in_its_own_place)
{
    struct iovec piece = {text, 5000};

    randombytes_buf(text, sizeof(text));
    for (size_t k = 0; k < KINDS; k++) {
        struct ends ends = ends_make(kinds[k], 0);

        kit_crypt_seal(ends.sealing, &piece, 1, sealed);
        XT_CHECK(kit_crypt_unseal(ends.opening, sealed, 5000, sealed + KIT_CRYPT_HEADER_BYTES));
        XT_CHECK(memcmp(sealed + KIT_CRYPT_HEADER_BYTES, text, 5000) == 0);
        ends_drop(&ends);
    }
}

/* ---- memory ---- */

#if !defined(XCCL_SANITIZED)
extern void *__libc_malloc(size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
static size_t taken;

void *malloc(size_t bytes)
{
    taken++;
    return __libc_malloc(bytes);
}

void *realloc(void *memory, size_t bytes)
{
    taken++;
    return __libc_realloc(memory, bytes);
}

void *calloc(size_t count, size_t bytes)
{
    void *memory = malloc(count * bytes);

    return memory ? memset(memory, 0, count * bytes) : NULL;
}

XT_TEST(nothing_is_allocated_for_a_record)
{
    static const size_t sizes[] = {8, 2000, 60000};

    for (size_t k = 0; k < KINDS; k++) {
        struct ends ends = ends_make(kinds[k], 0);
        size_t before;

        XT_CHECK(taken > 0);
        before = taken;
        for (int i = 0; i < 300; i++) {
            struct iovec piece = {text, sizes[i % 3]};

            kit_crypt_seal(ends.sealing, &piece, 1, sealed);
            XT_CHECK(opens(&ends, sealed, sizes[i % 3]));
        }
        XT_CHECK_INT(taken, before);
        ends_drop(&ends);
    }
}
#endif

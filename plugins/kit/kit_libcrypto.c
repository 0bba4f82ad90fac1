/* SPDX-License-Identifier: BSD-3-Clause */
/* libcrypto by its own symbols, found when first asked for: no header of it is needed to build, and
 * no package of ours depends on it. A key is expanded once; each text sets its nonce only, which
 * allocates nothing.
 *
 * Limits: a text has less than 2 GiB. OpenSSL in FIPS mode has no Poly1305: then libsodium's is
 * taken. Thread: one at a time an object. */
#include "kit/kit_libcrypto.h"

#include <dlfcn.h>
#include <pthread.h>

#include "base/alloc.h"
#include "base/os.h"

/* Constants of openssl/evp.h, which never change. */
#define SET_NONCE_BYTES 0x9
#define GET_TAG         0x10
#define SET_TAG         0x11

typedef int begin_fn(void *ctx, const void *cipher, void *engine, const uint8_t *key,
                     const uint8_t *nonce);
typedef int update_fn(void *ctx, uint8_t *out, int *bytes_out, const uint8_t *in, int bytes);
typedef int end_fn(void *ctx, uint8_t *out, int *bytes_out);

static struct {
    void *(*ctx_new)(void);
    void (*ctx_free)(void *ctx);
    int (*ctx_ctrl)(void *ctx, int what, int number, void *data);
    const void *(*aes_256_gcm)(void);
    begin_fn *encrypt_init, *decrypt_init;
    update_fn *encrypt_update, *decrypt_update;
    end_fn *encrypt_final, *decrypt_final;
    /* OpenSSL 3. */
    void *(*mac_fetch)(void *library, const char *name, const char *properties);
    void (*mac_free)(void *mac);
    void *(*mac_ctx_new)(void *mac);
    void (*mac_ctx_free)(void *ctx);
    int (*mac_init)(void *ctx, const uint8_t *key, size_t key_bytes, const void *params);
    int (*mac_update)(void *ctx, const uint8_t *in, size_t bytes);
    int (*mac_final)(void *ctx, uint8_t *out, size_t *bytes_out, size_t room);
    int is, has_mac;
} lib;

struct name {
    const char *symbol;
    void *entry; /* the pointer to fill */
};

static int find_all(void *library, const struct name *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        void *symbol = dlsym(library, names[i].symbol);

        if (!symbol)
            return 0;
        *(void **)names[i].entry = symbol; /* as POSIX has functions and objects alike */
    }
    return 1;
}

static void look(void)
{
    static const char *const files[] = {"libcrypto.so.3", "libcrypto.so.1.1"};
    const struct name aes[] = {
        {"EVP_CIPHER_CTX_new", &lib.ctx_new},        {"EVP_CIPHER_CTX_free", &lib.ctx_free},
        {"EVP_CIPHER_CTX_ctrl", &lib.ctx_ctrl},      {"EVP_aes_256_gcm", &lib.aes_256_gcm},
        {"EVP_EncryptInit_ex", &lib.encrypt_init},   {"EVP_DecryptInit_ex", &lib.decrypt_init},
        {"EVP_EncryptUpdate", &lib.encrypt_update},  {"EVP_DecryptUpdate", &lib.decrypt_update},
        {"EVP_EncryptFinal_ex", &lib.encrypt_final}, {"EVP_DecryptFinal_ex", &lib.decrypt_final},
    };
    const struct name mac[] = {
        {"EVP_MAC_fetch", &lib.mac_fetch},     {"EVP_MAC_free", &lib.mac_free},
        {"EVP_MAC_CTX_new", &lib.mac_ctx_new}, {"EVP_MAC_CTX_free", &lib.mac_ctx_free},
        {"EVP_MAC_init", &lib.mac_init},       {"EVP_MAC_update", &lib.mac_update},
        {"EVP_MAC_final", &lib.mac_final},
    };
    void *library = NULL;

    if (xccl_os_cannot_load())
        return;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]) && !library; i++)
        library = dlopen(files[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library)
        return;
    lib.is = find_all(library, aes, sizeof(aes) / sizeof(aes[0]));
    lib.has_mac = lib.is && find_all(library, mac, sizeof(mac) / sizeof(mac[0]));
}

static void find(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, look);
}

int kit_libcrypto_is(void)
{
    find();
    return lib.is;
}

int kit_libcrypto_has_mac(void)
{
    find();
    return lib.has_mac;
}

/* ---- AES-256-GCM ---- */

struct kit_libcrypto_aes {
    void *ctx;
};

struct kit_libcrypto_aes *kit_libcrypto_aes_create(const uint8_t key[32], int seals)
{
    struct kit_libcrypto_aes *aes = xccl_calloc(1, sizeof(*aes));
    begin_fn *begin = seals ? lib.encrypt_init : lib.decrypt_init;

    if (!aes)
        return NULL;
    aes->ctx = lib.ctx_new();
    if (aes->ctx && begin(aes->ctx, lib.aes_256_gcm(), NULL, NULL, NULL) == 1 &&
        lib.ctx_ctrl(aes->ctx, SET_NONCE_BYTES, 12, NULL) == 1 &&
        begin(aes->ctx, NULL, NULL, key, NULL) == 1)
        return aes;
    kit_libcrypto_aes_destroy(aes);
    return NULL;
}

void kit_libcrypto_aes_destroy(struct kit_libcrypto_aes *aes)
{
    if (!aes)
        return;
    if (aes->ctx)
        lib.ctx_free(aes->ctx); /* which wipes it */
    xccl_free(aes);
}

int kit_libcrypto_aes_seal(struct kit_libcrypto_aes *aes, const struct kit_beside *beside,
                           const struct iovec *pieces, int count, uint8_t *out, uint8_t tag_out[16])
{
    int wrote = 0;

    if (lib.encrypt_init(aes->ctx, NULL, NULL, NULL, beside->nonce) != 1 ||
        lib.encrypt_update(aes->ctx, NULL, &wrote, beside->header, (int)beside->header_bytes) != 1)
        return 0;
    for (int i = 0; i < count; i++) {
        if (lib.encrypt_update(aes->ctx, out, &wrote, pieces[i].iov_base, (int)pieces[i].iov_len) !=
            1)
            return 0;
        out += pieces[i].iov_len;
    }
    return lib.encrypt_final(aes->ctx, out, &wrote) == 1 &&
           lib.ctx_ctrl(aes->ctx, GET_TAG, 16, tag_out) == 1;
}

int kit_libcrypto_aes_unseal(struct kit_libcrypto_aes *aes, const struct kit_beside *beside,
                             const uint8_t *in, size_t bytes, uint8_t *out, const uint8_t tag[16])
{
    int wrote = 0;

    /* The tag is only read. */
    return lib.decrypt_init(aes->ctx, NULL, NULL, NULL, beside->nonce) == 1 &&
           lib.decrypt_update(aes->ctx, NULL, &wrote, beside->header, (int)beside->header_bytes) ==
               1 &&
           lib.decrypt_update(aes->ctx, out, &wrote, in, (int)bytes) == 1 &&
           lib.ctx_ctrl(aes->ctx, SET_TAG, 16, (void *)(uintptr_t)tag) == 1 &&
           lib.decrypt_final(aes->ctx, out + bytes, &wrote) == 1;
}

/* ---- Poly1305 ---- */

struct kit_libcrypto_mac {
    void *mac, *ctx;
};

struct kit_libcrypto_mac *kit_libcrypto_mac_create(void)
{
    struct kit_libcrypto_mac *mac;

    if (!kit_libcrypto_has_mac())
        return NULL;
    mac = xccl_calloc(1, sizeof(*mac));
    if (!mac)
        return NULL;
    mac->mac = lib.mac_fetch(NULL, "POLY1305", NULL);
    mac->ctx = mac->mac ? lib.mac_ctx_new(mac->mac) : NULL;
    if (mac->ctx)
        return mac;
    kit_libcrypto_mac_destroy(mac);
    return NULL;
}

void kit_libcrypto_mac_destroy(struct kit_libcrypto_mac *mac)
{
    if (!mac)
        return;
    if (mac->ctx)
        lib.mac_ctx_free(mac->ctx);
    if (mac->mac)
        lib.mac_free(mac->mac);
    xccl_free(mac);
}

int kit_libcrypto_mac(struct kit_libcrypto_mac *mac, const uint8_t once[32],
                      const struct iovec *pieces, int count, uint8_t tag_out[16])
{
    size_t wrote = 0;

    if (lib.mac_init(mac->ctx, once, 32, NULL) != 1)
        return 0;
    for (int i = 0; i < count; i++) {
        if (lib.mac_update(mac->ctx, pieces[i].iov_base, pieces[i].iov_len) != 1)
            return 0;
    }
    return lib.mac_final(mac->ctx, tag_out, &wrote, 16) == 1 && wrote == 16;
}

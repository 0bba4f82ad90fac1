/* SPDX-License-Identifier: BSD-3-Clause */
/* Agreement of both ends where XCCL_NET_ENCRYPT asks for records, on the setting itself and on a
 * cipher. The receiver's handle lists what it is able to use, the sender takes the best of it
 * that it has, too, and says so in its openings, which nobody else can make (kit_proof.h).
 *
 * Thread: any. */
#include "sock_int.h"

uint32_t sock_ciphers(int encrypt)
{
    uint32_t ciphers = 0;

    for (int kind = KIT_CIPHER_AES; kind < KIT_CIPHER_KINDS; kind++) {
        int is_mac = kind == KIT_CIPHER_MAC;

        if (encrypt != XCCL_NET_ENCRYPT_NONE && is_mac == (encrypt == XCCL_NET_ENCRYPT_MAC) &&
            kit_cipher_able((enum kit_cipher_kind)kind))
            ciphers |= 1u << kind;
    }
    return ciphers;
}

/* The lowest is the quickest. */
enum kit_cipher_kind sock_cipher_choose(int encrypt, uint32_t ciphers)
{
    uint32_t both = sock_ciphers(encrypt) & ciphers;

    for (int kind = KIT_CIPHER_AES; kind < KIT_CIPHER_KINDS; kind++) {
        if (both & 1u << kind)
            return (enum kit_cipher_kind)kind;
    }
    return KIT_CIPHER_NONE;
}

static const char *word_of(int encrypt)
{
    return encrypt == XCCL_NET_ENCRYPT_FULL ? "1" : encrypt == XCCL_NET_ENCRYPT_MAC ? "mac" : "0";
}

xcclResult_t sock_encrypt_differs(int ours, int theirs, const char *peer)
{
    return xccl_fail_quietly(xcclInvalidUsage, 0, "set XCCL_NET_ENCRYPT to the same on all ranks",
                             "XCCL_NET_ENCRYPT is %s here and %s at %s", word_of(ours),
                             word_of(theirs), peer);
}

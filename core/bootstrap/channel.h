/* SPDX-License-Identifier: BSD-3-Clause */
/* Proof of the job secret, then encrypted frames, over any ordered stream of bytes. Pure: bytes in,
 * bytes out, no sockets, no memory of its own; randomness is libsodium's randombytes, which a test
 * may replace, and key pairs are ephemeral.h's. The wire and the handshake are drawn in README.md.
 *
 *   connecting side   REPLY ---------------------> OPEN -> FINAL
 *   accepting side    HELLO ------> CONFIRM -----> OPEN -> FINAL      any failure -> DEAD
 *
 * A challenge keeps both sides in their first state, once.
 *
 * Thread: one at a time. Holds secrets: xccl_channel_wipe at the end. */
#ifndef XCCL_BOOTSTRAP_CHANNEL_H
#define XCCL_BOOTSTRAP_CHANNEL_H

#include <sodium.h>

#include "bootstrap/conn.h"
#include "bootstrap/ephemeral.h"

#define XCCL_WIRE_VERSION         2
#define XCCL_HELLO_BYTES          148 /* hello, reply and challenge alike */
#define XCCL_HELLO_HEAD_BYTES     16 /* mean the same in every version */
#define XCCL_NONCE_BYTES          16
#define XCCL_STREAM_HEADER_BYTES  24
#define XCCL_FRAME_PREFIX_BYTES   4
#define XCCL_FRAME_OVERHEAD_BYTES 25 /* prefix 4, tag 1, type 2, flags 2, authenticator 16 */
#define XCCL_SHAKE_MAX_BYTES      (XCCL_HELLO_BYTES + XCCL_STREAM_HEADER_BYTES)
#define XCCL_NOTICE_BYTES         120 /* a reply with its stream header, in version 1 */

/* Frame types 0 to 15 belong to the channel, 16 to 31 to the bootstrap (message.h). */
#define XCCL_FRAME_FINAL   0
#define XCCL_FRAME_CONFIRM 1

enum xccl_channel_state {
    XCCL_CHANNEL_HELLO,
    XCCL_CHANNEL_REPLY,
    XCCL_CHANNEL_CONFIRM,
    XCCL_CHANNEL_OPEN,
    XCCL_CHANNEL_FINAL, /* the other end said FINAL: nothing more may come */
    XCCL_CHANNEL_DEAD,
};

enum xccl_channel_verdict {
    XCCL_VERDICT_OK = 0,
    XCCL_VERDICT_NOT_XCCL, /* the first bytes are not ours */
    XCCL_VERDICT_VERSION, /* another version of the wire format */
    XCCL_VERDICT_FIELD, /* a reserved field is not zero, or an answer does not fit its question */
    XCCL_VERDICT_PROOF, /* another key, altered bytes, or a replay */
    XCCL_VERDICT_COMM, /* the right key, another communicator */
    XCCL_VERDICT_TARGET, /* the right key, meant for another rank */
    XCCL_VERDICT_REPLAY, /* a hello that came before */
    XCCL_VERDICT_POINT, /* a public key with which everybody shares the same secret */
    XCCL_VERDICT_LENGTH, /* a frame longer or shorter than any may be */
    XCCL_VERDICT_TAG, /* a frame that was altered, reordered, repeated or left out */
    XCCL_VERDICT_STATE, /* bytes at a time when none may come */
    XCCL_VERDICT_COUNT
};

/* The accepting side's opinion of a hello whose proof is right. tag: 64 bits of a keyed hash of
 * it. answered: it answers this connection's challenge, so it is fresh. */
enum xccl_channel_opinion { XCCL_OPINION_FINE, XCCL_OPINION_REPLAY, XCCL_OPINION_CHALLENGE };
typedef enum xccl_channel_opinion xccl_channel_judge_fn(void *owner, uint64_t tag, int answered);

/* Rules by which the accepting side lets others in. */
struct xccl_channel_policy {
    int any_comm_id; /* not only its own */
    int any_target; /* not only those that mean its rank */
    xccl_channel_judge_fn *judge; /* NULL: every hello is fine */
    void *owner;
};

struct xccl_channel {
    enum xccl_channel_state state;
    struct xccl_channel_policy policy;
    int challenged; /* connecting: has answered one; accepting: has sent one */
    int final_sent;
    struct xccl_hello self, peer; /* peer is valid from OPEN on, on the accepting side */
    uint16_t peer_wire; /* with XCCL_VERDICT_VERSION, as peer.version */
    uint8_t challenge[XCCL_NONCE_BYTES]; /* of the accepting side */
    struct xccl_ephemeral pair;
    uint8_t key[32];
    uint8_t hello[XCCL_HELLO_BYTES];
    crypto_secretstream_xchacha20poly1305_state push, pull;
};

/* A frame as unsealed; body points into the buffer that was handed in. */
struct xccl_frame {
    uint16_t type;
    int final;
    const uint8_t *body;
    size_t bytes;
};

const char *xccl_channel_verdict_text(enum xccl_channel_verdict verdict); /* never NULL */

/* sodium_init, once a process. */
xcclResult_t xccl_channel_library_init(void);

/* Starts as the connecting side; hello_out is to be sent. */
void xccl_channel_connect(struct xccl_channel *channel, const uint8_t key[32],
                          const struct xccl_hello *self, uint8_t hello_out[XCCL_HELLO_BYTES]);
/* Starts as the accepting side. self: the comm_id and rank that must be asked for; rank and nranks
 * that the other end is told. policy NULL: all zeroes. */
void xccl_channel_accept(struct xccl_channel *channel, const uint8_t key[32],
                         const struct xccl_hello *self, const struct xccl_channel_policy *policy);

/* Bytes that the next step of the handshake eats; 0 when there is none. */
size_t xccl_channel_need(const struct xccl_channel *channel);
/* Judges the first bytes alone: XCCL_VERDICT_NOT_XCCL or _VERSION when the next message cannot
 * begin with them. */
enum xccl_channel_verdict xccl_channel_peek(struct xccl_channel *channel, const uint8_t *in,
                                            size_t bytes);
/* Text after XCCL_VERDICT_VERSION: both versions, and where to install the newer xccl. */
void xccl_channel_version_text(const struct xccl_channel *channel, char *text_out, size_t bytes);
/* The accepting side's answer after XCCL_VERDICT_VERSION: a reply of which only the head is filled.
 * It proves nothing, and version 1 takes it for a reply of another version. */
void xccl_channel_notice(uint8_t notice_out[XCCL_NOTICE_BYTES]);
/* One step with exactly that many bytes. out gets what is to be sent, *out_bytes its length, 0 on
 * failure: strangers are not answered. Only XCCL_VERDICT_TARGET has an answer, as it comes after
 * the proof; the other end has that verdict too, then, and peer says which rank is there. */
enum xccl_channel_verdict xccl_channel_shake(struct xccl_channel *channel, const uint8_t *in,
                                             uint8_t out[XCCL_SHAKE_MAX_BYTES], size_t *out_bytes);

/* One frame whose body is head followed by body; both lengths together at most
 * XCCL_FRAME_MAX_BYTES. frame_out has room for them and XCCL_FRAME_OVERHEAD_BYTES. FINAL (no body)
 * ends this direction. Returns the frame's length, 0 when the channel is not in a state to send. */
struct xccl_span {
    const void *data;
    size_t bytes;
};
size_t xccl_channel_seal(struct xccl_channel *channel, uint16_t type, struct xccl_span head,
                         struct xccl_span body, uint8_t *frame_out);
size_t xccl_channel_seal_final(struct xccl_channel *channel,
                               uint8_t frame_out[XCCL_FRAME_OVERHEAD_BYTES]);

/* Checks a frame's first bytes; *cipher_bytes_out is what follows them. */
enum xccl_channel_verdict xccl_channel_length(const uint8_t prefix[XCCL_FRAME_PREFIX_BYTES],
                                              size_t *cipher_bytes_out);
/* Checks and decrypts in place what followed the prefix. On failure the channel is dead and
 * frame_out untouched. */
enum xccl_channel_verdict xccl_channel_unseal(struct xccl_channel *channel, uint8_t *cipher,
                                              size_t cipher_bytes, struct xccl_frame *frame_out);

void xccl_channel_wipe(struct xccl_channel *channel);

#endif

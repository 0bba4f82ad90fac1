/* SPDX-License-Identifier: BSD-3-Clause */
/* Short-lived X25519 keys: with them a recorded job cannot be read by whoever learns the job secret
 * later. Each handshake has a key pair of its own, except while ranks of this process join: then
 * its handshakes share a pair for at most 10 s, and what is shared with another pair is computed
 * once, for a thousand ranks in one process make more than ten thousand connections. Nonces keep
 * session keys apart. Nothing is kept when nobody joins.
 *
 * Thread: any. A child of fork() has nothing of its parent's. */
#ifndef XCCL_BOOTSTRAP_EPHEMERAL_H
#define XCCL_BOOTSTRAP_EPHEMERAL_H

#include <stdint.h>

struct xccl_ephemeral {
    uint8_t secret[32], public_key[32];
};

/* The pair for one handshake; wipe it when the shared secret is known. */
void xccl_ephemeral_make(struct xccl_ephemeral *pair_out);
/* Computes the secret that both pairs share. -1: the peer's key is of low order, so that anybody
 * knows the result. */
int xccl_ephemeral_share(const struct xccl_ephemeral *pair, const uint8_t peer_key[32],
                         uint8_t shared_out[32]);

/* Joining begins, and ends. With the last release all that was kept is wiped. */
void xccl_ephemeral_hold(void);
void xccl_ephemeral_release(void);

#endif

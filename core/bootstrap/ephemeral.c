/* SPDX-License-Identifier: BSD-3-Clause */
/* The pair that handshakes share while ranks of this process join, and the last few secrets that it
 * has shared with others. All of it is wiped when the pair is replaced and when joining is over,
 * and in a child of fork().
 *
 * Thread: any. kept_lock is a leaf: nothing else is locked inside it. */
#include "bootstrap/ephemeral.h"

#include <sodium.h>
#include <string.h>

#include "base/clock.h"
#include "base/fork.h"

#define SHARE_NS   (10 * XCCL_NS_PER_S)
#define KEPT_PEERS 16

struct kept {
    int holders, has_pair, peer_count, next_peer;
    uint64_t made_ns;
    struct xccl_ephemeral pair;
    struct {
        uint8_t key[32], shared[32];
    } peers[KEPT_PEERS];
};

static struct kept kept; /* guarded by kept_lock */

static void kept_forget(void)
{
    sodium_memzero(&kept, sizeof(kept));
}

static struct xccl_lock kept_lock = XCCL_LOCK(kept_forget);

static void pair_make(struct xccl_ephemeral *pair_out)
{
    randombytes_buf(pair_out->secret, sizeof(pair_out->secret));
    (void)crypto_scalarmult_base(pair_out->public_key, pair_out->secret);
}

static void kept_wipe(void)
{
    int holders = kept.holders;

    sodium_memzero(&kept, sizeof(kept));
    kept.holders = holders;
}

void xccl_ephemeral_make(struct xccl_ephemeral *pair_out)
{
    uint64_t now_ns = xccl_clock_ns();

    xccl_lock_take(&kept_lock);
    if (!kept.holders) {
        xccl_lock_give(&kept_lock);
        pair_make(pair_out);
        return;
    }
    /* A test's clock may go back. */
    if (!kept.has_pair || now_ns < kept.made_ns || now_ns - kept.made_ns >= SHARE_NS) {
        kept_wipe();
        pair_make(&kept.pair);
        kept.made_ns = now_ns;
        kept.has_pair = 1;
    }
    *pair_out = kept.pair;
    xccl_lock_give(&kept_lock);
}

/* 1: the kept pair has met that key before. kept_lock is held. */
static int kept_find(const struct xccl_ephemeral *pair, const uint8_t peer_key[32],
                     uint8_t shared_out[32])
{
    if (!kept.has_pair || memcmp(pair->public_key, kept.pair.public_key, 32) != 0)
        return 0;
    for (int i = 0; i < kept.peer_count; i++) {
        if (memcmp(kept.peers[i].key, peer_key, 32) != 0)
            continue;
        memcpy(shared_out, kept.peers[i].shared, 32);
        return 1;
    }
    return 0;
}

/* Keeps a result; the oldest of too many is replaced. kept_lock is held. */
static void kept_add(const struct xccl_ephemeral *pair, const uint8_t peer_key[32],
                     const uint8_t shared[32])
{
    if (!kept.has_pair || memcmp(pair->public_key, kept.pair.public_key, 32) != 0)
        return;
    memcpy(kept.peers[kept.next_peer].key, peer_key, 32);
    memcpy(kept.peers[kept.next_peer].shared, shared, 32);
    kept.next_peer = (kept.next_peer + 1) % KEPT_PEERS;
    if (kept.peer_count < KEPT_PEERS)
        kept.peer_count++;
}

int xccl_ephemeral_share(const struct xccl_ephemeral *pair, const uint8_t peer_key[32],
                         uint8_t shared_out[32])
{
    int found;

    xccl_lock_take(&kept_lock);
    found = kept_find(pair, peer_key, shared_out);
    xccl_lock_give(&kept_lock);
    if (found)
        return 0;
    if (crypto_scalarmult(shared_out, pair->secret, peer_key) != 0) {
        sodium_memzero(shared_out, 32);
        return -1;
    }
    xccl_lock_take(&kept_lock);
    kept_add(pair, peer_key, shared_out);
    xccl_lock_give(&kept_lock);
    return 0;
}

void xccl_ephemeral_hold(void)
{
    xccl_lock_take(&kept_lock);
    kept.holders++;
    xccl_lock_give(&kept_lock);
}

void xccl_ephemeral_release(void)
{
    xccl_lock_take(&kept_lock);
    /* A fork's child closes what its parent holds. */
    if (kept.holders && --kept.holders == 0)
        kept_wipe();
    xccl_lock_give(&kept_lock);
}

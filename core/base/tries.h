/* SPDX-License-Identifier: BSD-3-Clause */
/* How one party is reached that has up to four addresses: which one is tried next and for how
 * long, and when all of them are given up. Time is handed in; nothing here touches a socket.
 *
 * An address that does not answer costs 0.3 s in the first turn, so that the next one is tried
 * soon. Every try is a new connection, whose first packet is sent anew, so a lost packet or two
 * never look like an address that cannot be reached; and a single answer proves that the other end
 * is there, however slow it is, so that nothing is given up any more.
 *
 * Thread: whoever drives the tries. */
#ifndef XCCL_BASE_TRIES_H
#define XCCL_BASE_TRIES_H

#include "base/netaddr.h"

#define XCCL_TRIES_ADDRS      4
#define XCCL_TRIES_GIVE_UP_MS 4000
#define XCCL_TRIES_TEXT_BYTES 300

/* Zero it before the first try. */
struct xccl_tries {
    uint64_t since_ns; /* the first try */
    int begun; /* connections */
    int idx; /* of the address that is being tried */
    int answers; /* tries that got as far as connected */
    int warned; /* for the owner */
    uint32_t first_ms; /* set by the owner: the first try lasts at least this */
    /* Why the last try at each address failed: an errno, 0 for no answer. */
    int errs[XCCL_TRIES_ADDRS];
    int tried; /* a bit for each address that has failed */
};

/* Whether another try, or another address, may do better; else this host lacks something. */
int xccl_tries_may_mend(int err);
/* Begins a try; returns the place of its address among count. */
int xccl_tries_next(struct xccl_tries *tries, int count, uint64_t now_ns);
/* How long this try may take to be connected. */
uint64_t xccl_tries_patience_ns(const struct xccl_tries *tries, int count, uint64_t now_ns);
/* This try has failed with an errno; 0: nobody answered. */
void xccl_tries_failed(struct xccl_tries *tries, int err);
/* This try was connected. */
void xccl_tries_answered(struct xccl_tries *tries);
/* 1: nobody has answered at any address for 4 s, though each was tried at least twice. */
int xccl_tries_is_over(const struct xccl_tries *tries, int count, uint64_t now_ns);
/* 1: every address was tried, and the last try at each ended in such an error. */
int xccl_tries_all_refused(const struct xccl_tries *tries, int count);
int xccl_tries_all_unroutable(const struct xccl_tries *tries, int count);
int xccl_tries_all_failed(const struct xccl_tries *tries, int count); /* in any error */
/* "10.0.0.1:4000 (no answer), 10.1.0.1:4000 (Network is unreachable)" */
void xccl_tries_text(const struct xccl_tries *tries, const struct xccl_addr *addrs, int count,
                     char text_out[XCCL_TRIES_TEXT_BYTES]);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* A bell: one thread sleeps until another rings. Ringing without a sleeper is one atomic add; a
 * ring between a look at the state and the sleep is not lost.
 *
 *   uint32_t heard = xccl_bell_listen(&bell);
 *   if (!ready()) xccl_bell_wait(&bell, heard, limit);
 *
 * Thread: any number of ringers and sleepers. */
#ifndef XCCL_BASE_BELL_H
#define XCCL_BASE_BELL_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/clock.h"

/* All zero is a bell that nobody has rung. */
struct xccl_bell {
    _Atomic uint32_t rings;
    _Atomic uint32_t sleepers;
};

void xccl_bell_ring(struct xccl_bell *bell);
uint32_t xccl_bell_listen(struct xccl_bell *bell);
/* Returns after a ring that came since heard, or when the limit's next look is due: the deadline,
 * or 100 ms while it has an abort flag. */
void xccl_bell_wait(struct xccl_bell *bell, uint32_t heard, const struct xccl_limit *limit);
/* Returns after a ring that came since heard, or after nap_ns. */
void xccl_bell_nap(struct xccl_bell *bell, uint32_t heard, uint64_t nap_ns);

#endif

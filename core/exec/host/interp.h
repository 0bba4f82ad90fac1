/* SPDX-License-Identifier: BSD-3-Clause */
/* The interpreter of steps on host memory: one call moves every lane of a run as far as it
 * can go now. Four copies of it, one for each protocol. Thread: the holder of the crank. */
#ifndef XCCL_EXEC_HOST_INTERP_H
#define XCCL_EXEC_HOST_INTERP_H

#include "exec/exec.h"

/* 1: something moved; 0: waiting. At a message of another call a lane stops; run->rc and
 * run->bad_link are set. lane->move is NULL when the lane is done. */
int xccl_interp_lines(struct xccl_run *run);
int xccl_interp_small(struct xccl_run *run);
int xccl_interp_slices(struct xccl_run *run);
int xccl_interp_tight(struct xccl_run *run);

/* Acquires what the readers of offers have done so far. */
void xccl_interp_see_readers(const struct xccl_run *run);
/* Has everything been read that was sent without a copy? */
int xccl_interp_all_read(struct xccl_run *run);

#endif

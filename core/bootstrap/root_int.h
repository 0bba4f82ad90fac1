/* SPDX-License-Identifier: BSD-3-Clause */
/* The root of one communicator, as a unique id makes it: it lives in the service thread and ends by
 * itself. Only the bootstrap's own files include this.
 *
 * Thread: any. */
#ifndef XCCL_BOOTSTRAP_ROOT_INT_H
#define XCCL_BOOTSTRAP_ROOT_INT_H

#include "bootstrap/bootstrap.h"

/* Ends when all ranks were told, or after timeout_ms. addr as in xccl_root_create; fills
 * job->roots[0] with where it listens. */
xcclResult_t xccl_root_start_single(struct xccl_job *job, uint64_t timeout_ms);
/* Ends this process's root of that communicator, if there is one: a communicator of one rank needs
 * none. */
void xccl_root_end_single(const uint8_t comm_id[16]);

#endif

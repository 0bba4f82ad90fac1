/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls of `xccl perf` on CUDA devices. What the parts fill and compare lies in host memory; of
 * each such stretch there is a mirror on the device, which calls are given instead. For a job on
 * host memory everything here does nothing and succeeds.
 *
 * Thread: the rank's, whose current context is the device's. */
#ifndef XCCL_TOOLS_PERF_PERF_DEVICE_H
#define XCCL_TOOLS_PERF_PERF_DEVICE_H

#include "perf/perf.h"

/* The next one of the ranks of this host, which job->places tells. Sets job->device and
 * job->stream; *ordinal_out is the device's. */
xcclResult_t xccl_perf_device_open(struct xccl_perf_job *job, int *ordinal_out);
void xccl_perf_device_close(struct xccl_perf_job *job);
/* What the table says of where the buffers are. */
void xccl_perf_device_name(const struct xccl_perf_job *job, char *text, size_t bytes);

/* Makes a mirror of these bytes. */
xcclResult_t xccl_perf_device_mirror(struct xccl_perf_job *job, const char *memory, size_t bytes);
/* Where in a mirror that is; the same address for a job on host memory. */
void *xccl_perf_device_at(const struct xccl_perf_job *job, const void *memory);

/* The buffers of a call, with guards: to the device before it, and back when it is done. */
xcclResult_t xccl_perf_device_push(const struct xccl_perf_job *job,
                                   const struct xccl_perf_shape *shape, int in_place);
xcclResult_t xccl_perf_device_pull(const struct xccl_perf_job *job,
                                   const struct xccl_perf_shape *shape, int in_place);
/* All calls of the stream are done. */
xcclResult_t xccl_perf_device_wait(const struct xccl_perf_job *job);

/* Calls between begins 1 and 0 become a graph, which is launched once; and so many times. */
xcclResult_t xccl_perf_device_capture(struct xccl_perf_job *job, int begins);
xcclResult_t xccl_perf_device_replay(struct xccl_perf_job *job, int64_t launches);

#endif

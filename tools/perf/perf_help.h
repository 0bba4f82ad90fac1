/* SPDX-License-Identifier: BSD-3-Clause */
/* The help of `xccl perf` and of its parts, as cmd_perf.c shows it.
 *
 * Thread: any. */
#ifndef XCCL_TOOLS_PERF_PERF_HELP_H
#define XCCL_TOOLS_PERF_PERF_HELP_H

extern const char xccl_perf_help[];
/* Of latency, groups or bootstrap; NULL: there is no such part. */
const char *xccl_perf_part_help(const char *part);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Between tuner_library.c, which finds tuners, and tuner_nccl.c, which has NCCL's behind the calls
 * of ours. Thread: see the header. */
#ifndef XCCL_PLUGIN_TUNER_LIBRARY_INT_H
#define XCCL_PLUGIN_TUNER_LIBRARY_INT_H

#include "plugin/net_reason.h"
#include "plugin/tuner_library.h"

/* 1: the file has a table of NCCL's. 0: reason names all symbols that were looked for, ours too. */
int tuner_nccl_is(const char *path, const struct xccl_file_id *id, struct net_reason *reason);
/* The calls of such a file, but for init. */
extern const xcclTunerPlugin_v1_t tuner_nccl_calls;
/* In place of init: the error text of the thread says why not. */
int tuner_nccl_start(struct xccl_tuner_library *library, const xcclTunerComm_v1_t *comm,
                     void **ctx_out);

#endif

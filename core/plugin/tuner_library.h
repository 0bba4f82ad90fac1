/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds and loads the tuner plugin (xccl_tuner.h). A setting is
 *
 *   auto      libxccl-tuner.so, if it is there; one that cannot be used costs a warning
 *   none      no plugin
 *   NAME      libxccl-tuner-NAME.so, then NCCL's libnccl-tuner-NAME.so
 *   PATH      what has a slash; a file of either contract
 *
 * sought in XCCL_PLUGIN_PATH, then in the folder of libxccl.so and xccl/ below it. A file is looked
 * at before it is loaded, and a world-writable one is refused. What was loaded stays until the
 * process ends, and is the same again for each later caller.
 *
 * NCCL's tuners (tuner_plugin.h) are asked about those algorithms that have a counterpart here:
 * ring (and chain), tree (dtree) and PAT, with LL, LL128, Simple as lines, small, slices. What they
 * make cheapest counts; their channels have no counterpart.
 *
 * A file that was named is tried out in a process of its own, as network plugins are: loaded,
 * begun, asked for choices (XCCL_PLUGIN_PROBE_S). One that crashes or does not come back is named
 * by a warning, and the built-in choice is used. Thread: any. */
#ifndef XCCL_PLUGIN_TUNER_LIBRARY_H
#define XCCL_PLUGIN_TUNER_LIBRARY_H

#include "xccl_tuner.h"
#include "xccl_types.h"

#define XCCL_TUNER_NAME_MAX   32
#define XCCL_TUNER_PATH_BYTES 1024

struct xccl_tuner_library {
    char name[XCCL_TUNER_NAME_MAX];
    char path[XCCL_TUNER_PATH_BYTES];
    char label[XCCL_TUNER_NAME_MAX + 128]; /* for texts: name, and file */
    xcclTunerPlugin_v1_t
        calls; /* complete but for lastError; init is xccl_tuner_start's business */
    int is_nccl; /* 1: calls are an adapter's */
    uint64_t hash; /* of the file, and of what its answers follow from besides */
    _Atomic int warned; /* 1: the one warning of this process was given */
};

/* Settings have been loaded (base/param.h). *library_out NULL: there is none. Error: the plugin
 * that was named cannot be used, and why. */
xcclResult_t xccl_tuner_library_load(const char *setting, struct xccl_tuner_library **library_out);

/* A communicator begins: 1, and *ctx_out is for calls.choose and calls.finalize. 0: it failed, with
 * the one warning. */
int xccl_tuner_start(struct xccl_tuner_library *library, const xcclTunerComm_v1_t *comm,
                     void **ctx_out);

#endif

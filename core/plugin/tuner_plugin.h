/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds and asks NCCL's tuner plugins, versions 2 to 6. An item is a name or a path: name X is
 * libnccl-tuner-X.so in the folders where network plugins are sought, then in the loader's own
 * path; else, or without an item, the symbols inside a given network library. The newest of
 * ncclTunerPlugin_v6 to v2 is taken. A plugin's failure costs one warning, however many tuners
 * share it, and leaves the built-in choice as it was.
 *
 * Thread: one at a time a tuner. xccl_tuner_cost and xccl_tuner_chunk allocate nothing. */
#ifndef XCCL_PLUGIN_TUNER_PLUGIN_H
#define XCCL_PLUGIN_TUNER_PLUGIN_H

#include "base/nccl_tuner_abi.h"
#include "xccl_types.h"

struct xccl_tuner;

struct xccl_tuner_open_args {
    uint64_t comm_id;
    size_t nranks, nnodes;
    struct nccl_nvl_domain domain; /* zeroes: not known */
    struct nccl_tuner_constants *constants; /* versions 5 and 6 may change it; NULL: none */
    _Atomic int *warned; /* tuners that share it have one warning together; NULL: its own */
};

/* item and net_path may be NULL, not both. Error: xcclSystemError, whose text says for each place
 * why it was not taken. */
xcclResult_t xccl_tuner_open(const char *item, const char *net_path,
                             const struct xccl_tuner_open_args *args,
                             struct xccl_tuner **tuner_out);
void xccl_tuner_close(struct xccl_tuner *tuner); /* NULL is fine */
/* "NAME (ncclTunerPlugin_vN)", good until close. */
const char *xccl_tuner_name(const struct xccl_tuner *tuner);

/* Lets the plugin change the predicted times (the lowest wins, -1 is not to be used, 0 forces) and
 * how many channels to use (*channels, 0 on entry: as built in). func: NCCL's number of the
 * collective. 1: it had its say; 0: it failed or broke a rule, table and *channels are unchanged.
 */
int xccl_tuner_cost(struct xccl_tuner *tuner, int func, size_t bytes, int pipe_ops, int registered,
                    float table[NCCL_ALGOS][NCCL_PROTOS], int *channels);
/* The chunk to use in place of chunk_bytes, at most as large: a version that knows no chunks, one
 * that fails, and 0 leave it as it is. */
size_t xccl_tuner_chunk(struct xccl_tuner *tuner, int func, size_t bytes, int algo, int proto,
                        int channels, size_t chunk_bytes);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* The binary layout of NCCL's tuner plugins, versions 2 to 6. Only facts: order, width and meaning
 * of members, pinned below to the sizes that NCCL's headers have on 64-bit Linux. A data symbol
 * ncclTunerPlugin_vN is the table itself; its functions return result codes whose numbers equal
 * xcclResult_t's. The cost table's type is float ** and its value the address of a flat
 * float[num_algo][num_proto]; an entry of -1 is not to be used and must be left alone, the lowest
 * entry wins, a plugin forces a choice by writing 0. */
#ifndef XCCL_BASE_NCCL_TUNER_ABI_H
#define XCCL_BASE_NCCL_TUNER_ABI_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "base/nccl_net_abi.h"

#define NCCL_TUNER_OLDEST 2
#define NCCL_TUNER_NEWEST 6
#define NCCL_ALGOS        7
#define NCCL_PROTOS       3
#define NCCL_CHANNELS_MAX 64

enum nccl_algo {
    NCCL_ALGO_TREE = 0,
    NCCL_ALGO_RING = 1,
    NCCL_ALGO_COLLNET_DIRECT = 2,
    NCCL_ALGO_COLLNET_CHAIN = 3,
    NCCL_ALGO_NVLS = 4,
    NCCL_ALGO_NVLS_TREE = 5,
    NCCL_ALGO_PAT = 6
};
enum nccl_proto { NCCL_PROTO_LL = 0, NCCL_PROTO_LL128 = 1, NCCL_PROTO_SIMPLE = 2 };

struct nccl_nvl_domain { /* from version 5 on */
    int domains;
    int min_ranks, max_ranks; /* a domain */
};

/* From version 5 on; the plugin may write to it. Indices: [link 0 NVLink, 1 PCI, 2 network], [GPU
 * generation], [1, 2, 4 or more nodes]. */
struct nccl_tuner_constants {
    double base_latencies[NCCL_ALGOS][NCCL_PROTOS];
    double link_latencies[3][NCCL_ALGOS][NCCL_PROTOS];
    double ll_max_bandwidth[4][3];
    double channel_ring_ll128[4][3];
    double channel_tree_ll128[4][3];
    double channel_tree[4][3];
    double channel_nvls_tree[4][3];
};

/* Versions 2 to 4 differ in get_coll_info only. */
struct nccl_tuner_v2 {
    const char *name;
    int (*init)(size_t ranks, size_t nodes, nccl_logger log, void **ctx);
    int (*get_coll_info)(void *ctx, int func, size_t bytes, int collnet, int nvls, int pipe_ops,
                         int *algo, int *proto, int *channels);
    int (*destroy)(void *ctx);
};
struct nccl_tuner_v3 {
    const char *name;
    int (*init)(size_t ranks, size_t nodes, nccl_logger log, void **ctx);
    int (*get_coll_info)(void *ctx, int func, size_t bytes, int pipe_ops, float **table, int algos,
                         int protos, int *channels);
    int (*destroy)(void *ctx);
};
struct nccl_tuner_v4 {
    const char *name;
    int (*init)(size_t ranks, size_t nodes, nccl_logger log, void **ctx);
    int (*get_coll_info)(void *ctx, int func, size_t bytes, int pipe_ops, float **table, int algos,
                         int protos, int registered, int *channels);
    int (*destroy)(void *ctx);
};
/* Version 5 ends with finalize. */
struct nccl_tuner_v5 {
    const char *name;
    int (*init)(void **ctx, uint64_t comm_id, size_t ranks, size_t nodes, nccl_logger log,
                struct nccl_nvl_domain *domain, struct nccl_tuner_constants *constants);
    int (*get_coll_info)(void *ctx, int func, size_t bytes, int pipe_ops, float **table, int algos,
                         int protos, int registered, int *channels);
    int (*finalize)(void *ctx);
};
struct nccl_tuner_v6 {
    const char *name;
    int (*init)(void **ctx, uint64_t comm_id, size_t ranks, size_t nodes, nccl_logger log,
                struct nccl_nvl_domain *domain, struct nccl_tuner_constants *constants);
    int (*get_coll_info)(void *ctx, int func, size_t bytes, int pipe_ops, float **table, int algos,
                         int protos, int registered, int *channels);
    int (*finalize)(void *ctx);
    int (*get_chunk_size)(void *ctx, int func, size_t bytes, int algo, int proto, int channels,
                          size_t *chunk); /* may be NULL */
};

#if defined(__LP64__)
static_assert(sizeof(struct nccl_tuner_v2) == 32, "v2");
static_assert(sizeof(struct nccl_tuner_v3) == 32, "v3");
static_assert(sizeof(struct nccl_tuner_v4) == 32, "v4");
static_assert(sizeof(struct nccl_tuner_v5) == 32, "v5");
static_assert(sizeof(struct nccl_tuner_v6) == 40, "v6");
static_assert(sizeof(struct nccl_nvl_domain) == 12, "v5, v6");
static_assert(sizeof(struct nccl_tuner_constants) == 1152, "v5, v6");
#endif

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Names every type of the contract with algorithm plugins, so that they stand in the debug
 * information of which tests/abi/record makes the baseline. Pointers, so that a type which grows at
 * its end moves nothing here. Compiled by that script only. */
#include "xccl_algo.h"

struct abi_algo_types {
    xcclAlgoPlugin_v1_t *plugin;
    xcclAlgorithm_v1_t *algorithm;
    xcclAlgoFor_v1_t *asked;
    xcclAlgoBuilder_v1_t *builder;
    xcclAlgoStep_v1_t *step;
    xcclAlgoChunks_t *chunks;
    xcclAlgoWait_t *wait;
    xcclAlgoColl_t *coll;
    xcclAlgoBuffer_t *buffer;
    xcclAlgoDir_t *dir;
};

extern XCCL_ALGO_EXPORT struct abi_algo_types abi_algo_types;
struct abi_algo_types abi_algo_types;

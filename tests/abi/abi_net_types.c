/* SPDX-License-Identifier: BSD-3-Clause */
/* Names every type of the plugin contract, so that they stand in the debug information of which
 * tests/abi/record makes the baseline. The table brings the types of its entries with it. Pointers,
 * so that a type which grows at its end moves nothing here. Compiled by that script only. */
#include "xccl_net.h"

struct abi_net_types {
    xcclNetPlugin_v1_t *plugin;
    xcclNetInit_v1 *init;
    xcclNetInner_v1 *inner;
    xcclNetProperties_v1 *properties;
    xcclNetStats_v1 *stats;
    xcclNetError_v1 *error;
    xcclNetCause_t *cause;
    xcclNetLogLevel_t *level;
    xcclNetHandle_t *handle;
    xcclNetMemKey_t *key;
    xcclResult_t *result;
};

extern XCCL_NET_EXPORT struct abi_net_types abi_net_types;
struct abi_net_types abi_net_types;

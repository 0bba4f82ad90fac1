/* SPDX-License-Identifier: BSD-3-Clause */
/* Names every type of the contract with tuner plugins, so that they stand in the debug information
 * of which tests/abi/record makes the baseline. Pointers, so that a type which grows at its end
 * moves nothing here. Compiled by that script only. */
#include "xccl_tuner.h"

struct abi_tuner_types {
    xcclTunerPlugin_v1_t *plugin;
    xcclTunerComm_v1_t *comm;
    xcclTunerQuery_v1_t *query;
    xcclTunerCandidate_v1_t *candidate;
    xcclTunerLogger_t log;
};

extern XCCL_TUNER_EXPORT struct abi_tuner_types abi_tuner_types;
struct abi_tuner_types abi_tuner_types;

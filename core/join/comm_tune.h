/* SPDX-License-Identifier: BSD-3-Clause */
/* A communicator and its tuner (plugin/tuner_library.h). Ranks introduce themselves with the file
 * that they have, and compare at the end of init what it answers. Thread: the joining one. */
#ifndef XCCL_JOIN_COMM_TUNE_H
#define XCCL_JOIN_COMM_TUNE_H

#include "join/join_int.h"

/* What XCCL_TUNER_PLUGIN names; NULL: nothing. An error when that cannot be used. */
xcclResult_t xccl_comm_tuner_load(struct xccl_tuner_library **library_out);
/* For the introduction. */
xcclResult_t xccl_comm_tuner_describe(struct xcclComm *comm, struct xccl_peer *self);
xcclResult_t xccl_comm_tuner_check(const struct xcclComm *comm, int peer);
/* For the planner's tuner, before and after its life. */
void xccl_comm_tuner_start(struct xcclComm *comm);
void xccl_comm_tuner_stop(struct xcclComm *comm);

#endif

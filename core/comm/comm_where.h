/* SPDX-License-Identifier: BSD-3-Clause */
/* Who the ranks of a communicator are and where they run: questions that only read the struct, so
 * that every part of the library may ask them. Thread: any, once the phase that sets the fields has
 * run. */
#ifndef XCCL_COMM_COMM_WHERE_H
#define XCCL_COMM_COMM_WHERE_H

#include "comm/comm.h"

/* 1: this rank itself, or one that shares memory with it. */
int xccl_comm_is_local(const struct xcclComm *comm, int rank);
/* 1: some rank does not share memory with this one. */
int xccl_comm_any_remote(const struct xcclComm *comm);
/* 1: two ranks may try to share memory: same host, allowed on both. */
int xccl_comm_may_share(const struct xcclComm *comm, int a, int b);
/* Cores that the ranks of this host may use together, at least 1; the same on all of them. */
int xccl_comm_host_cores(const struct xcclComm *comm);
/* The plugin for a peer that shares no memory, and its device. */
struct xccl_net *xccl_comm_net(const struct xcclComm *comm, int peer);
int xccl_comm_net_device(const struct xcclComm *comm, int peer);

/* Name and labels: "tensor (tp=0,dp=3)", or what there is of them, cut to bytes; "": neither. */
void xccl_comm_label_text(const struct xcclComm *comm, char *text_out, size_t bytes);
/* "rank 3 (host b, pid 91)" */
void xccl_comm_name_rank(const struct xcclComm *comm, int rank, char *text_out, size_t bytes);
/* Where a rank runs; for texts of verdicts (struct xccl_rank_places). owner: the communicator. */
int xccl_comm_find_place(const void *owner, int rank, struct xccl_rank_place *place_out);
/* Name of the tuner plugin and its contract; NULL: there is none. */
const char *xccl_comm_tuner_label(const struct xcclComm *comm);

#endif

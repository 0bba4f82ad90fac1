/* SPDX-License-Identifier: BSD-3-Clause */
/* Between the files that make and end a communicator: comm_join.c drives ranks that join side by
 * side, comm_init.c has the table of phases, comm_peers.c, comm_nets.c, comm_devices.c,
 * comm_planner.c and comm_tune.c have the steps of most phases, comm_split.c has what is special
 * about a split, and comm_end.c ends a communicator.
 * Thread: the one that joins, destroys or aborts. */
#ifndef XCCL_JOIN_JOIN_INT_H
#define XCCL_JOIN_JOIN_INT_H

#include "comm/comm_where.h"
#include "comm/phase.h"
#include "join/join.h"

/* In the order of the table (comm_init.c). */
xccl_init_step_fn xccl_init_introduce, xccl_init_check_peers, xccl_init_segment, xccl_init_fetch,
    xccl_init_agree, xccl_init_nets, xccl_init_watch, xccl_init_choose, xccl_init_planner,
    xccl_init_tune, xccl_init_compare, xccl_init_connect;

/* comm_split.c: before the phases; earlier: count splits and joins that come first, of the same
 * thread. */
xcclResult_t xccl_split_init(struct xccl_init *init, const struct xccl_join_args *join,
                             struct xccl_init *const *earlier, uint32_t count);
/* The phase in which the ranks of a color meet. */
xccl_init_step_fn xccl_split_step;
/* After the phases, done or not: the parent may be used again. */
void xccl_split_fini(struct xccl_init *init);
/* This rank does not split, for rc and the thread's error text: fails the parent, unless nobody
 * knows of it and rc is about arguments. */
void xccl_split_refuse(struct xcclComm *parent, int begun, xcclResult_t rc);

/* comm_nets.c: undoing. */
void xccl_comm_nets_close(struct xcclComm *comm);
void xccl_comm_watch_stop(struct xcclComm *comm);
/* comm_devices.c: what the opened plugins have; after the choice of plugins, whose rows these are;
 */
xcclResult_t xccl_comm_devices_ask(struct xcclComm *comm);
xcclResult_t xccl_comm_devices_choose(struct xcclComm *comm, const struct xccl_net_row *rows);
/* comm_planner.c: of the settings XCCL_ALGO and XCCL_PROTO, and of the files of all algorithm
 * plugins, wherever they lie; undoing: plans, bindings, links. */
uint32_t xccl_comm_algo_hash(void);
void xccl_comm_plan_fini(struct xcclComm *comm);
/* comm_init.c: runs phases until one cannot go on. DONE: all are. An error is final. */
xccl_init_step_fn xccl_init_run;
int xccl_init_is_done(const struct xccl_init *init);
/* Before it is done: tells the others that this rank gives up, with the thread's error text. 0:
 * only xccl_bootstrap_decline can. */
int xccl_init_tell(const struct xccl_init *init, xcclResult_t rc);
/* Takes down what there is, after a failure or in the end. */
void xccl_init_undo(struct xccl_init *init);
void xccl_init_free(struct xccl_init *init); /* not the communicator; NULL is fine */
void xccl_comm_undo_all(struct xcclComm *comm);

/* comm_end.c: memory, when there is nothing in it any more. */
void xccl_comm_free(struct xcclComm *comm);

#endif

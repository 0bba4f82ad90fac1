/* SPDX-License-Identifier: BSD-3-Clause */
/* The links of a communicator. They are made when a schedule first names their connection
 * (comm_bind.c), and stay until the end. Thread: the joining one, then the crank's holder. */
#ifndef XCCL_CONNECT_COMM_LINKS_H
#define XCCL_CONNECT_COMM_LINKS_H

#include "comm/comm.h"

/* Of connections for sends and receives. Those of schedules are below. */
#define XCCL_P2P_ID (XCCL_SHM_IDS - 1)

struct xccl_comm_link {
    struct xccl_link shm; /* over shared memory */
    struct xccl_reach reach; /* over shared memory, of slices */
    struct xccl_net_link *net; /* over a network, else NULL */
    struct xccl_schedule_conn conn; /* the group says nothing here */
    enum xccl_proto proto;
    int is_up; /* net: connected */
    struct xccl_comm_link *next; /* of the same peer */
};

xcclResult_t xccl_comm_links_create(struct xcclComm *comm);
/* Memory of the links, but for their slots; *net_slots_out: of the slots of network links. */
size_t xccl_comm_links_bytes(const struct xccl_comm_links *links, uint64_t *net_slots_out);
void xccl_comm_links_destroy(struct xccl_comm_links *links); /* NULL is fine */
/* After an error: buffers of the program are not touched any more. NULL is fine. */
void xccl_comm_links_let_go(struct xccl_comm_links *links);

/* NULL: there is none yet. */
struct xccl_comm_link *xccl_comm_link_find(const struct xcclComm *comm,
                                           const struct xccl_schedule_conn *conn,
                                           enum xccl_proto proto);
struct xccl_link *xccl_comm_link_view(struct xccl_comm_link *link);
/* NULL: nothing can stay where it is. */
struct xccl_reach *xccl_comm_link_reach(struct xccl_comm_link *link);

/* A call has failed: its buffers are the program's again, and nobody reads them in place any more.
 */
void xccl_comm_links_revoke(struct xcclComm *comm);

/* Makes the end of a link that conn names, over shared memory; it is complete then. */
xcclResult_t xccl_comm_link_shm(struct xcclComm *comm, const struct xccl_schedule_conn *conn,
                                enum xccl_proto proto);
/* Over a network: a receive end fills in *handle, a send end takes the peer's. */
xcclResult_t xccl_comm_link_net(struct xcclComm *comm, const struct xccl_schedule_conn *conn,
                                uint32_t slot_bytes, xcclNetHandle_t *handle);
/* Slots of `more` further network links within this rank's budget. Ranks may differ: the slices
 * that all agree on fit the smallest. */
uint32_t xccl_comm_net_slot_bytes(const struct xcclComm *comm, uint32_t more);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections before they are needed: a group of empty messages between all ranks, of calls that
 * end when they have their links, one for each way in which the library would do a collective, and
 * of a barrier, since links in shared memory need nobody's word. Thread: the user's. */
#include "api/api_int.h"
#include "api/group.h"

/* Bytes of the vector, or of a rank's block: the choices of algorithm and protocol lie between. */
static const size_t sizes[] = {8, 1u << 10, 8u << 10, 32u << 10, 1u << 20};

static xcclResult_t add_call(struct xcclComm *comm, enum xccl_coll coll, size_t count, int connects)
{
    struct xccl_entry entry = {.kind = XCCL_ENTRY_CALL,
                               .task = {.comm = comm, .connects = connects}};

    entry.task.call = (struct xccl_call){
        .coll = coll, .type = xcclInt8, .op = xcclSum, .count = count};
    return xccl_group_add(&entry);
}

static xcclResult_t add_collectives(struct xcclComm *comm)
{
    xcclResult_t rc = xcclSuccess;

    for (int coll = 0; coll < XCCL_COLL_BARRIER && !rc; coll++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && !rc; i++)
            rc = add_call(comm, (enum xccl_coll)coll, sizes[i], 1);
    return rc ? rc : add_call(comm, XCCL_COLL_BARRIER, 0, 0);
}

static xcclResult_t add_messages(struct xcclComm *comm)
{
    struct xccl_entry entry = {.kind = XCCL_ENTRY_P2P, .task.comm = comm};
    xcclResult_t rc = xcclSuccess;

    for (int i = 0; i < 2 * comm->nranks && !rc; i++) {
        entry.p2p = (struct xccl_p2p_item){.peer = i / 2, .sends = i % 2, .connects = 1};
        if (i / 2 != comm->rank)
            rc = xccl_group_add(&entry);
    }
    return rc;
}

xcclResult_t xcclCommConnectAll(xcclComm_t comm)
{
    xcclResult_t rc = xccl_api_check_comm("xcclCommConnectAll", comm), ended;

    if (rc)
        return xccl_group_reject(rc);
    rc = xcclGroupStart();
    if (rc)
        return xccl_group_reject(rc);
    rc = add_messages(comm);
    if (!rc)
        rc = add_collectives(comm);
    ended = xcclGroupEnd(); /* says why itself, when something could not be added */
    return rc ? rc : ended;
}

XCCL_TWIN(xcclResult_t, xcclCommConnectAll, (xcclComm_t comm));

/* SPDX-License-Identifier: BSD-3-Clause */
/* Listening sockets in an event loop that hand over only proven connections. Strangers change
 * nothing: a bad hello and one that came before close at once, a silent one after 5 s, and of 256
 * unproven connections the oldest of the source that has the most makes room for a new one.
 *
 * Thread: whoever drives the loop. */
#ifndef XCCL_BOOTSTRAP_ACCEPTOR_H
#define XCCL_BOOTSTRAP_ACCEPTOR_H

#include "base/loop.h"
#include "bootstrap/conn.h"

#define XCCL_DOORS_MAX 3 /* addresses of one acceptor */

struct xccl_acceptor;

struct xccl_acceptor_args {
    struct xccl_loop *loop;
    struct xccl_addr addr; /* where to listen; port 0 and XCCL_PORT_RANGE as in tcp.h */
    /* Further addresses, which get the port of addr; those that cannot listen on it are left out.
     */
    struct xccl_addr more[XCCL_DOORS_MAX - 1];
    int more_count;
    uint8_t key[32];
    uint8_t comm_id[16];
    int any_comm_id; /* 1: a root for several communicators; the owner reads hello.comm_id */
    int any_target; /* 1: those who mean another rank are let in, too */
    uint32_t rank, nranks; /* told to those who connect; nranks 0: not a rank */
    void (*on_conn)(void *owner, struct xccl_conn *conn); /* takes conn over */
    /* No connection could be accepted for 3 s, for want of descriptors or memory: why, and what to
     * do. NULL: nobody need know. With it one descriptor and some memory are kept in reserve. */
    void (*on_starved)(void *owner, const char *why, const char *todo);
    void *owner;
};

xcclResult_t xccl_acceptor_open(const struct xccl_acceptor_args *args,
                                struct xccl_acceptor **acceptor_out);
const struct xccl_addr *xccl_acceptor_addr(const struct xccl_acceptor *acceptor);
/* All addresses where it listens, args->addr first, at least one. Returns how many. */
int xccl_acceptor_addrs(const struct xccl_acceptor *acceptor,
                        struct xccl_addr addrs_out[XCCL_DOORS_MAX]);
/* Refuses from now on those who mean another rank. The loop's lock is held. */
void xccl_acceptor_set_rank(struct xccl_acceptor *acceptor, uint32_t rank, uint32_t nranks);
void xccl_acceptor_close(struct xccl_acceptor *acceptor); /* NULL is fine */

#endif

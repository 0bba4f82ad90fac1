/* SPDX-License-Identifier: BSD-3-Clause */
/* A root, shared by root.c (how long it lives) and root_session.c (what happens at it), and how the
 * bootstrap's own files make one. Nobody else includes this.
 *
 * Thread: any. */
#ifndef XCCL_BOOTSTRAP_ROOT_INT_H
#define XCCL_BOOTSTRAP_ROOT_INT_H

#include "base/loop.h"
#include "bootstrap/acceptor.h"
#include "bootstrap/job.h"

struct xccl_root_session;
struct xccl_root_reporter;

struct xccl_root {
    struct xccl_source timer; /* the end of a single root */
    struct xccl_loop *loop;
    struct xccl_acceptor *acceptor;
    struct xccl_addr addr;
    uint8_t comm_id[16];
    int single;
    pid_t pid; /* a fork's child has the memory but not the thread */
    uint64_t timeout_ms;
    int session_count;
    struct xccl_root_session *sessions;
    struct xccl_root_reporter *reporters;
    int references; /* of a shared one */
    int ending; /* a shared one that nobody holds any more, but ranks of others wait at it */
    uint8_t secret[32]; /* of a shared one */
    struct xccl_root *next; /* single_roots or shared_roots */
};

/* A proven connection; root_session.c has what follows. owner: the root. */
void xccl_root_on_conn(void *owner, struct xccl_conn *conn);
/* Those who still wait are told that the root ends. */
void xccl_root_end_sessions(struct xccl_root *root);

/* Ends when all ranks were told, or after timeout_ms. Listens at meeting->roots, with ports as in
 * xccl_root_create, and leaves there where it does. */
xcclResult_t xccl_root_start_single(struct xccl_meeting *meeting, uint64_t timeout_ms);
/* The root at a given address in this process, which all of its communicators share: made by the
 * first get, gone with the last put. */
xcclResult_t xccl_root_get_at(const struct xccl_addr *addr, const uint8_t secret[32],
                              struct xccl_root **root_out);
void xccl_root_put(struct xccl_root *root); /* NULL is fine */

/* Ends this process's root of that communicator, if there is one: a communicator of one rank needs
 * none. */
void xccl_root_end_single(const uint8_t comm_id[16]);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* A root, shared by root.c (how long it lives), root_session.c and root_reporter.c (what happens at
 * it), and how the bootstrap's own files make one. Nobody else includes this.
 *
 * Thread: any. */
#ifndef XCCL_BOOTSTRAP_ROOT_INT_H
#define XCCL_BOOTSTRAP_ROOT_INT_H

#include <sys/types.h>

#include "base/loop.h"
#include "bootstrap/acceptor.h"
#include "bootstrap/alive.h"
#include "bootstrap/job.h"
#include "bootstrap/message.h"

struct xccl_root_session;
struct xccl_root_reporter;

struct xccl_root {
    struct xccl_source timer; /* the end of a single root */
    struct xccl_loop *loop;
    struct xccl_acceptor *acceptor;
    struct xccl_addr addr;
    pid_t pid; /* of its maker: simulated hosts have one memory, and lists with roots of all */
    uint8_t comm_id[16];
    int single;
    uint64_t timeout_ms;
    int session_count;
    struct xccl_root_session *sessions;
    struct xccl_root_reporter *reporters;
    int references; /* of a shared one */
    int ending; /* a shared one that nobody holds any more, but ranks of others wait at it */
    uint8_t secret[32]; /* of a shared one */
    /* A rank that its launcher has seen end, of so many; ended_nranks 0: none has. */
    uint32_t ended_rank, ended_nranks;
    char ended_text[200];
    struct xccl_root *next; /* single_roots or shared_roots */
};

struct xccl_root_reporter {
    struct xccl_source source;
    struct xccl_conn *conn;
    struct xccl_root *root;
    struct xccl_root_session *session; /* NULL before the report and after it is over */
    uint32_t rank, place; /* in session->places */
    int is_guest; /* its own root, which is another one, tells it its next rank */
    int told; /* NEXT is in the socket */
    int next_queued;
    int no_memory; /* to tell it; it is given up in the next turn */
    struct xccl_alive alive; /* the rank's */
    struct xccl_boot_report report;
    struct xccl_root_reporter *next, *prev; /* root->reporters: all of them */
};

struct xccl_root_session {
    struct xccl_source timer;
    struct xccl_root *root;
    uint8_t comm_id[16];
    uint32_t nranks;
    /* This root's share of the ranks: first, first + 1 and so on, and behind them, when there are
     * several roots, the guest: the first rank of the next share. */
    uint32_t first, members, place_count;
    uint32_t settled; /* ranks that have joined or were told the error: none of them comes again */
    uint32_t own_rank; /* the first of this process; XCCL_BOOT_NO_RANK: none has reported */
    uint32_t may_come; /* ranks that may report, by what any of them believes */
    uint32_t came; /* ranks that have reported */
    int reported; /* one of them has said so */
    uint64_t deadline_ns;
    int failed;
    struct xccl_boot_error error;
    struct xccl_root_reporter **places;
    uint8_t *counted; /* 1 when settled counts that place */
    struct xccl_root_session *next, *prev;
};

void xccl_reporter_free(struct xccl_root_reporter *reporter);
/* Tells a rank that joining failed, as far as its socket takes it now, and lets go of it. */
void xccl_reporter_refuse(struct xccl_root_reporter *reporter, const struct xccl_boot_error *error);
/* Tells a rank, once, where the next one listens. */
void xccl_reporter_tell(struct xccl_root_reporter *reporter, const struct xccl_addr *next);
/* Tells a rank which rank has this process, in case it stops. */
void xccl_reporter_introduce(const struct xccl_root_reporter *reporter);

/* The reporter may be gone when these four return. A report came. */
void xccl_session_report(struct xccl_root_reporter *reporter);
/* A rank says that it cannot join, instead of reporting. */
void xccl_session_decline(struct xccl_root_reporter *reporter, const struct xccl_boot_error *error);
/* A rank has joined, and its neighbours watch it from now on. */
void xccl_session_joined(struct xccl_root_reporter *reporter);
/* A rank that has reported is lost, for a reason: its session fails, and nobody asks for it again.
 */
void xccl_session_give_up(struct xccl_root_reporter *reporter, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* A session or a connection is over: ends a shared root that nobody holds and nobody waits at. */
void xccl_root_rest(struct xccl_root *root);

/* A proven connection; root_reporter.c has what follows. owner: the root. */
void xccl_root_on_conn(void *owner, struct xccl_conn *conn);
/* No further rank gets in, for a reason: those who wait for one are told. owner: the root. */
void xccl_root_on_starved(void *owner, const char *why, const char *todo);
/* Fails the sessions that wait for the rank that has ended. The loop's lock is held. */
void xccl_root_on_ended(struct xccl_root *root);
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

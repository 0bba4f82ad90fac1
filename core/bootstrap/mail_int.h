/* SPDX-License-Identifier: BSD-3-Clause */
/* What a rank has with one other, shared by mail.c, mail_in.c and mail_out.c; nobody else includes
 * this. Thread: callbacks of the service thread, or any with the loop's lock. */
#ifndef XCCL_BOOTSTRAP_MAIL_INT_H
#define XCCL_BOOTSTRAP_MAIL_INT_H

#include "bootstrap/bootstrap_int.h"

struct xccl_boot_pair {
    struct xccl_bootstrap *boot;
    int rank;
    /* to rank */
    struct xccl_source out_source;
    struct xccl_conn *out;
    struct xccl_boot_dial dial;
    int shaking;
    int counted; /* among the connections of this process */
    int ending; /* FINAL was sent; the other end closes when it has read all */
    uint64_t used_ns;
    struct xccl_boot_send *sends, **sends_end;
    /* from rank */
    struct xccl_source in_source;
    struct xccl_conn *in;
    struct xccl_conn *parked; /* the next, until this one's FINAL was read */
    int held; /* in is not read: there is no room */
    int inside; /* a message has begun */
    struct xccl_boot_mail mail;
    uint64_t at; /* its bytes so far */
    struct xccl_boot_recv *filling; /* it goes here, or */
    struct xccl_boot_early *keeping;
};

/* A connection of the pair failed and the thread's error text says how. */
void xccl_boot_pair_fail(struct xccl_boot_pair *pair, xcclResult_t rc,
                         const struct xccl_conn *conn);

/* mail_out.c */
void xccl_boot_out_on_events(struct xccl_source *source, uint32_t events);
void xccl_boot_out_on_timer(struct xccl_source *source, uint64_t now_ns);
void xccl_boot_out_pump(struct xccl_boot_pair *pair); /* moves what waits for this rank */
void xccl_boot_out_close(struct xccl_boot_pair *pair);
void xccl_boot_out_adopt(struct xccl_boot_pair *pair, struct xccl_conn *conn); /* a proven one */
void xccl_boot_idle_on_timer(struct xccl_source *source, uint64_t now_ns); /* the bootstrap's */

/* mail_in.c */
void xccl_boot_in_on_events(struct xccl_source *source, uint32_t events);
void xccl_boot_in_on_timer(struct xccl_source *source, uint64_t now_ns);
void xccl_boot_in_watch(struct xccl_boot_pair *pair, struct xccl_conn *conn);
void xccl_boot_in_close(struct xccl_boot_pair *pair);
void xccl_boot_send_here(struct xccl_bootstrap *boot, struct xccl_boot_send *send);
/* Is there an early message for the user with this tag? The loop is locked. */
int xccl_boot_early_has(const struct xccl_bootstrap *boot, int rank, uint32_t tag);
void xccl_boot_early_drop(struct xccl_bootstrap *boot); /* all of them */

#endif

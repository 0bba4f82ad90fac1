/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank's bootstrap from outside: made, asked after, aborted, closed. What moves it is in join.c,
 * mail.c, collect.c, failing.c and split.c, driven by the service thread.
 *
 * Limits: 2^20 ranks, parts of 1 MiB. Thread: the rank's own; abort and derive_key any. */
#include "bootstrap/bootstrap.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/param.h"
#include "bootstrap/bootstrap_int.h"
#include "bootstrap/root_int.h"

#define DECLINE_MS 500
#define PARKED_MAX 64

static void take_conn(struct xccl_bootstrap *boot, struct xccl_conn *conn)
{
    const struct xccl_hello *hello = xccl_conn_hello(conn);

    if (hello->purpose == XCCL_PURPOSE_ROUND) {
        xccl_boot_join_on_conn(boot, conn);
    } else if (hello->purpose == XCCL_PURPOSE_MAIL) {
        xccl_boot_mail_on_conn(boot, conn);
    } else {
        xccl_log(XCCL_LOG_WARN, "rank %u at %s connects to rank %d with unknown purpose %u",
                 hello->rank, xccl_conn_peer_text(conn), boot->rank, hello->purpose);
        xccl_conn_close(conn);
    }
}

static void park_conn(struct xccl_bootstrap *boot, struct xccl_conn *conn)
{
    struct xccl_boot_parked *parked = boot->parked_count < PARKED_MAX
                                          ? xccl_calloc(1, sizeof(*parked))
                                          : NULL;
    struct xccl_boot_parked **end = &boot->parked;

    if (!parked) { /* it may hold messages, so it must not go in silence */
        xccl_boot_fail(boot, xcclRemoteError,
                       "rank %d of a split received too many connections before its new rank was "
                       "known; report this as a bug of xccl",
                       boot->rank);
        xccl_conn_close(conn);
        return;
    }
    xccl_boot_tell_late(boot, conn);
    parked->conn = conn;
    while (*end)
        end = &(*end)->next;
    *end = parked;
    boot->parked_count++;
}

static void on_conn(void *owner, struct xccl_conn *conn)
{
    struct xccl_bootstrap *boot = owner;

    xccl_log_set_rank(boot->rank);
    if (boot->has_parent && !boot->next_known)
        park_conn(boot, conn);
    else
        take_conn(boot, conn);
    xccl_log_set_rank(-1);
}

void xccl_boot_unpark(struct xccl_bootstrap *boot)
{
    while (boot->parked) {
        struct xccl_boot_parked *parked = boot->parked;

        boot->parked = parked->next;
        take_conn(boot, parked->conn);
        xccl_free(parked);
    }
}

/* --- where this rank listens --- */

static int is_loopback(const struct xccl_addr *addr)
{
    if (addr->sa.any.sa_family == AF_INET)
        return (ntohl(addr->sa.in4.sin_addr.s_addr) >> 24) == 127;
    return addr->sa.any.sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&addr->sa.in6.sin6_addr);
}

/* Which interfaces this rank may use, and where it listens when it may not where it meets the root:
 * loopback for a root there, else the best interface, of the root's family if there is one. */
static xcclResult_t find_places(struct xccl_bootstrap *boot, const struct xccl_addr *root)
{
    struct xccl_netif ifs[XCCL_BOOT_NETIFS_MAX];
    int count = 0, best = 0;
    xcclResult_t rc;

    boot->only_chosen = is_loopback(root) || xccl_param_string(XCCL_P_SOCKET_IFNAME)[0] ||
                        xccl_param_int(XCCL_P_SOCKET_FAMILY) != 0;
    if (is_loopback(root)) {
        boot->self_addr = *root;
        xccl_addr_set_port(&boot->self_addr, 0);
        return xcclSuccess;
    }
    rc = xccl_netif_choose_near(root, ifs, XCCL_BOOT_NETIFS_MAX, &count);
    if (rc)
        return rc;
    for (int i = count - 1; i >= 0; i--) {
        boot->chosen[i] = ifs[i];
        if (ifs[i].addr.sa.any.sa_family == root->sa.any.sa_family)
            best = i;
    }
    boot->chosen_count = count;
    boot->self_addr = ifs[best].addr;
    return xcclSuccess;
}

/* An interface may have further addresses besides its best. */
static int may_use(const struct xccl_bootstrap *boot, const struct xccl_addr *addr)
{
    char name[IF_NAMESIZE] = "";

    if (!boot->only_chosen)
        return 1;
    for (int i = 0; i < boot->chosen_count; i++) {
        if (xccl_addr_same_host(addr, &boot->chosen[i].addr))
            return 1;
    }
    if (!xccl_netif_having(addr, name))
        return 0;
    for (int i = 0; i < boot->chosen_count; i++) {
        if (strcmp(name, boot->chosen[i].name) == 0)
            return 1;
    }
    return 0;
}

/* Listens at args->addr and more. */
static xcclResult_t listen_at(struct xccl_bootstrap *boot, struct xccl_acceptor_args *args)
{
    xcclResult_t rc;

    args->loop = boot->loop;
    args->rank = (uint32_t)boot->rank;
    args->nranks = (uint32_t)boot->nranks;
    args->any_target = boot->has_parent; /* its rank is not known yet */
    args->on_conn = on_conn;
    args->owner = boot;
    memcpy(args->key, boot->job.secret, sizeof(args->key));
    memcpy(args->comm_id, boot->job.comm_id, sizeof(args->comm_id));
    rc = xccl_acceptor_open(args, &boot->acceptor);
    sodium_memzero(args->key, sizeof(args->key));
    if (rc)
        return rc;
    boot->self_addr = *xccl_acceptor_addr(boot->acceptor);
    xccl_addr_encode(&boot->self_addr, boot->addrs + (size_t)boot->rank * XCCL_ADDR_WIRE_BYTES);
    return xcclSuccess;
}

xcclResult_t xccl_boot_listen_met(struct xccl_bootstrap *boot,
                                  const struct xccl_boot_root_link *link)
{
    struct xccl_acceptor_args args = {.addr = boot->self_addr};
    const struct xccl_meeting *own = &boot->job.own;
    struct xccl_addr here = {0};
    int more = 0, is_here = 0;

    if (xccl_tcp_local_addr(xccl_conn_fd(link->conn), &here) == 0 && may_use(boot, &here)) {
        args.addr = here;
        xccl_addr_set_port(&args.addr, 0);
    }
    /* On the root's own host: others may reach it by another of the root's addresses only. */
    for (int i = 0; i < own->root_count; i++)
        is_here |= xccl_addr_same_host(&args.addr, &own->roots[i]);
    for (int i = 0; is_here && i < own->root_count && more < XCCL_DOORS_MAX - 1; i++) {
        if (!xccl_addr_same_host(&args.addr, &own->roots[i]) && may_use(boot, &own->roots[i]))
            args.more[more++] = own->roots[i];
    }
    args.more_count = more;
    boot->met_addr = args.addr;
    /* On another host it is known by now; on the root's own see xccl_boot_note_met(). */
    boot->met_noted = !xccl_addr_same_host(&args.addr, &link->meeting->roots[link->tries.idx]);
    return listen_at(boot, &args);
}

xcclResult_t xccl_boot_listen_as(struct xccl_bootstrap *boot, const struct xccl_bootstrap *parent)
{
    struct xccl_addr addrs[XCCL_DOORS_MAX];
    struct xccl_acceptor_args args = {.addr = parent->self_addr};
    int count;

    if (!parent->acceptor) /* it is alone, and so is its child */
        return xcclSuccess;
    count = xccl_acceptor_addrs(parent->acceptor, addrs);
    xccl_addr_set_port(&args.addr, 0);
    for (int i = 1; i < count; i++)
        args.more[args.more_count++] = addrs[i];
    memcpy(boot->met, parent->met, sizeof(boot->met));
    boot->met_addr = parent->met_addr;
    boot->met_noted = parent->met_noted;
    return listen_at(boot, &args);
}

/* A rank on the root's own host has met the root without any network; what other hosts come by, or
 * are reached by, says more. */
void xccl_boot_note_met(struct xccl_bootstrap *boot, const struct xccl_conn *conn)
{
    struct xccl_addr here, there;

    if (!boot->met[0].count || boot->met_noted ||
        xccl_tcp_local_addr(xccl_conn_fd(conn), &here) != 0 ||
        xccl_tcp_peer_addr(xccl_conn_fd(conn), &there) != 0 || xccl_addr_same_host(&here, &there))
        return;
    boot->met_addr = here;
    xccl_addr_set_port(&boot->met_addr, 0);
    boot->met_noted = 1;
}

void xccl_boot_share_pair(struct xccl_bootstrap *boot, int shares)
{
    if (shares && !boot->shares_pair)
        xccl_ephemeral_hold();
    else if (!shares && boot->shares_pair)
        xccl_ephemeral_release();
    boot->shares_pair = shares;
}

static void above_tell(struct xccl_bootstrap *boot, uint16_t type, const void *body, size_t bytes)
{
    xccl_boot_join_tell(boot, type, body, bytes);
    xccl_boot_mail_tell(boot, type, body, bytes);
}

static void above_stop(struct xccl_bootstrap *boot, int keep_hearing)
{
    xccl_boot_join_stop(boot, keep_hearing);
    xccl_boot_mail_stop(boot);
}

static void above_wait_text(const struct xccl_bootstrap *boot, char *text_out, size_t bytes)
{
    if (boot->state == XCCL_BOOT_JOINING)
        xccl_boot_join_wait_text(boot, text_out, bytes);
    else
        xccl_boot_op_wait_text(boot, text_out, bytes);
}

static const struct xccl_boot_above above = {above_tell, above_stop, above_wait_text};

xcclResult_t xccl_boot_make(int rank, int nranks, struct xccl_bell *bell,
                            struct xccl_bootstrap **boot_out)
{
    struct xccl_bootstrap *boot;
    xcclResult_t rc = xccl_channel_library_init();

    if (rc)
        return rc;
    boot = xccl_calloc(1, sizeof(*boot));
    if (!boot)
        return xcclSystemError;
    boot->above = &above;
    boot->rank = rank;
    boot->nranks = nranks;
    boot->bell = bell;
    boot->limit.deadline_ns = XCCL_NEVER_NS;
    boot->timer.fd = -1;
    boot->timer.timer_ns = XCCL_NEVER_NS;
    boot->timer.on_timer = xccl_boot_on_timer;
    boot->timer.owner = boot;
    rc = xccl_service_get(&boot->loop);
    if (rc)
        goto err_boot;
    rc = xcclSystemError;
    boot->addrs = xccl_calloc((size_t)nranks, XCCL_ADDR_WIRE_BYTES);
    if (!boot->addrs)
        goto err_service;
    rc = xccl_loop_add(boot->loop, &boot->timer);
    if (rc)
        goto err_addrs;
    rc = xccl_boot_mail_start(boot);
    if (rc)
        goto err_timer;
    xccl_boot_share_pair(boot, 1);
    *boot_out = boot;
    return xcclSuccess;
err_timer:
    xccl_free(boot->pairs);
    xccl_loop_remove(&boot->timer);
err_addrs:
    xccl_free(boot->addrs);
err_service:
    xccl_service_put();
err_boot:
    xccl_free(boot);
    return rc;
}

/* Begins to join; the loop's lock is held, so that nothing happens before all is in place. */
static xcclResult_t join(struct xccl_bootstrap *boot, const struct xccl_job *job,
                         const struct xccl_limit *limit)
{
    xcclResult_t rc;
    int done;

    boot->job = *job;
    boot->limit = *limit;
    boot->op.kind = XCCL_OP_JOIN;
    rc = find_places(boot, &job->own.roots[0]);
    if (rc)
        return rc;
    xccl_loop_set_timer(&boot->timer, limit->deadline_ns);
    xccl_boot_join_start(boot);
    return boot->state == XCCL_BOOT_FAILED ? xccl_bootstrap_test(boot, &done) : xcclSuccess;
}

xcclResult_t xccl_bootstrap_start(const struct xccl_job *job, int rank, int nranks,
                                  const struct xccl_limit *limit, struct xccl_bell *bell,
                                  struct xccl_bootstrap **boot_out)
{
    struct xccl_bootstrap *boot = NULL;
    xcclResult_t rc;

    if (nranks < 1 || nranks > 1 << XCCL_BOOT_ROUNDS_MAX || rank < 0 || rank >= nranks) {
        return xccl_fail(xcclInvalidArgument, 0, "use 0 <= rank < nranks",
                         "rank %d is out of range for %d ranks", rank, nranks);
    }
    rc = xccl_boot_make(rank, nranks, bell, &boot);
    if (!rc && nranks == 1) {
        xccl_root_end_single(job->own.comm_id);
        boot->job = *job;
        boot->state = XCCL_BOOT_UP;
        boot->next_known = 1;
        xccl_boot_share_pair(boot, 0);
    } else if (!rc) {
        if (job->own.owns_root && rank == 0)
            xccl_unique_id_warn(&job->own);
        if (job->own.owns_root && rank == 0)
            rc = xccl_root_get_at(&job->own.roots[0], job->own.secret, &boot->root);
        xccl_loop_lock(boot->loop);
        if (!rc)
            rc = join(boot, job, limit);
        xccl_loop_unlock(boot->loop);
    }
    if (!rc) {
        *boot_out = boot;
        return xcclSuccess;
    }
    /* One that has not even begun to join knows no roots yet. */
    if (!boot || !boot->root_links[0].meeting || xccl_boot_root_unaware(boot))
        xccl_bootstrap_decline(job, rank, nranks, rc);
    xccl_bootstrap_close(boot);
    return rc;
}

/* The root need not stay once all have joined; not from a callback, which must not lock roots. */
static void leave_root(struct xccl_bootstrap *boot)
{
    struct xccl_root *root = boot->root;

    boot->root = NULL;
    xccl_root_put(root);
}

xcclResult_t xccl_bootstrap_test(struct xccl_bootstrap *boot, int *done_out)
{
    xcclResult_t rc = xcclSuccess;
    int up;

    xccl_loop_lock(boot->loop);
    up = boot->state == XCCL_BOOT_UP;
    *done_out = up && boot->op.kind == XCCL_OP_NONE;
    if (boot->state == XCCL_BOOT_FAILED) {
        rc = boot->rc;
        if (boot->told_caller)
            xccl_error_set_text(boot->error);
        else
            (void)xccl_fail(rc, 0, NULL, "%s", boot->error);
        boot->told_caller = 1;
    }
    xccl_loop_unlock(boot->loop);
    if (up && boot->root)
        leave_root(boot);
    return rc;
}

const _Atomic int *xccl_bootstrap_failed(const struct xccl_bootstrap *boot)
{
    return &boot->failed;
}

void xccl_bootstrap_set_bell(struct xccl_bootstrap *boot, struct xccl_bell *bell)
{
    xccl_loop_lock(boot->loop);
    boot->bell = bell;
    xccl_loop_unlock(boot->loop);
}

void xccl_bootstrap_set_places(struct xccl_bootstrap *boot, const struct xccl_rank_places *places)
{
    xccl_loop_lock(boot->loop);
    boot->places = places ? *places : (struct xccl_rank_places){.find = NULL};
    xccl_loop_unlock(boot->loop);
}

xcclResult_t xccl_bootstrap_wait(struct xccl_bootstrap *boot)
{
    for (;;) {
        uint32_t heard = xccl_bell_listen(&boot->own_bell);
        struct xccl_limit limit = {.deadline_ns = XCCL_NEVER_NS, .abort = boot->limit.abort};
        int done = 0;
        xcclResult_t rc = xccl_bootstrap_test(boot, &done);

        if (rc || done)
            return rc;
        /* The deadline is kept by the service thread. */
        if (xccl_limit_aborted(&limit))
            xccl_bootstrap_abort(boot);
        else
            xccl_bell_wait(&boot->own_bell, heard, &limit);
    }
}

xcclResult_t xccl_bootstrap_open(const struct xccl_job *job, int rank, int nranks,
                                 const struct xccl_limit *limit, struct xccl_bootstrap **boot_out)
{
    struct xccl_bootstrap *boot = NULL;
    xcclResult_t rc = xccl_bootstrap_start(job, rank, nranks, limit, NULL, &boot);

    if (rc || !boot) /* there is one on success, which clang's analyzer does not see */
        return rc;
    rc = xccl_bootstrap_wait(boot);
    if (!rc) {
        *boot_out = boot;
        return xcclSuccess;
    }
    if (xccl_bootstrap_is_unheard(boot))
        xccl_bootstrap_decline(job, rank, nranks, rc);
    xccl_bootstrap_close(boot);
    return rc;
}

xcclResult_t xccl_bootstrap_allgather(struct xccl_bootstrap *boot, const struct xccl_boot_set *set,
                                      void *data, size_t part_bytes, const struct xccl_limit *limit)
{
    xcclResult_t rc = xccl_bootstrap_allgather_start(boot, set, data, part_bytes, limit);

    return rc ? rc : xccl_bootstrap_wait(boot);
}

xcclResult_t xccl_bootstrap_barrier(struct xccl_bootstrap *boot, const struct xccl_boot_set *set,
                                    const struct xccl_limit *limit)
{
    xcclResult_t rc = xccl_bootstrap_barrier_start(boot, set, limit);

    return rc ? rc : xccl_bootstrap_wait(boot);
}

xcclResult_t xccl_bootstrap_broadcast(struct xccl_bootstrap *boot, const struct xccl_boot_set *set,
                                      int root, void *data, size_t bytes,
                                      const struct xccl_limit *limit)
{
    xcclResult_t rc = xccl_bootstrap_broadcast_start(boot, set, root, data, bytes, limit);

    return rc ? rc : xccl_bootstrap_wait(boot);
}

xcclResult_t xccl_bootstrap_send(struct xccl_bootstrap *boot, int rank, uint32_t tag,
                                 const void *data, size_t bytes, const struct xccl_limit *limit)
{
    xcclResult_t rc = xccl_bootstrap_send_start(boot, rank, tag, data, bytes, limit);

    return rc ? rc : xccl_bootstrap_wait(boot);
}

xcclResult_t xccl_bootstrap_recv(struct xccl_bootstrap *boot, int rank, uint32_t tag, void *data,
                                 size_t bytes, const struct xccl_limit *limit)
{
    xcclResult_t rc = xccl_bootstrap_recv_start(boot, rank, tag, data, bytes, limit);

    return rc ? rc : xccl_bootstrap_wait(boot);
}

int xccl_bootstrap_rank(const struct xccl_bootstrap *boot)
{
    return boot->rank;
}

int xccl_bootstrap_nranks(const struct xccl_bootstrap *boot)
{
    return boot->nranks;
}

size_t xccl_bootstrap_table_bytes(const struct xccl_bootstrap *boot)
{
    return xccl_alloc_bytes(boot) + xccl_alloc_bytes(boot->addrs) + xccl_alloc_bytes(boot->pairs);
}

const uint8_t *xccl_bootstrap_comm_id(const struct xccl_bootstrap *boot)
{
    return boot->job.comm_id;
}

/* --- declining --- */

/* Proves to the root and says why this rank does not come. Nothing is tried twice: a root that is
 * gone needs no telling. Returns whether it was told. */
static int decline_at(const struct xccl_addr *root, const uint8_t secret[32],
                      const struct xccl_hello *hello, const void *body, size_t bytes)
{
    struct xccl_limit limit = xccl_limit_ms(DECLINE_MS, NULL);
    struct xccl_conn *conn;
    int done = 0;
    xcclResult_t rc = xccl_conn_start(root, secret, hello, &conn);

    if (rc)
        return 0;
    while (!rc && !done && !xccl_limit_passed(&limit)) {
        struct pollfd pollfd = {.fd = xccl_conn_fd(conn)};

        rc = xccl_conn_shake(conn, &done);
        if (rc || done)
            break;
        if (xccl_conn_shake_events(conn) & EPOLLIN)
            pollfd.events |= POLLIN;
        if (xccl_conn_shake_events(conn) & EPOLLOUT)
            pollfd.events |= POLLOUT;
        (void)poll(&pollfd, 1, xccl_limit_poll_ms(&limit));
    }
    if (!rc && done)
        rc = xccl_conn_send(conn, XCCL_BOOT_ERROR, body, bytes, &limit);
    xccl_conn_close(conn);
    return !rc && done;
}

/* Tells one root; a rank that owns it has nobody to tell. */
static void decline_to(const struct xccl_meeting *meeting, int rank, int nranks, const void *body,
                       size_t bytes)
{
    struct xccl_hello hello = {.rank = (uint32_t)rank,
                               .nranks = (uint32_t)nranks,
                               .purpose = XCCL_PURPOSE_ROOT,
                               .version = XCCL_VERSION_CODE,
                               .target = XCCL_TARGET_ROOT};

    if (meeting->owns_root && rank == 0)
        return;
    memcpy(hello.comm_id, meeting->comm_id, sizeof(hello.comm_id));
    for (int i = 0; i < meeting->root_count; i++) {
        if (decline_at(&meeting->roots[i], meeting->secret, &hello, body, bytes))
            return;
    }
}

void xccl_bootstrap_decline(const struct xccl_job *job, int rank, int nranks, xcclResult_t rc)
{
    char text[XCCL_ERROR_TEXT_BYTES];
    uint8_t body[XCCL_BOOT_ERROR_MAX];
    size_t bytes;

    if (nranks == 1) {
        xccl_root_end_single(job->own.comm_id);
        return;
    }
    if (rc == xcclTimeout)
        return; /* the root gives up by itself */
    snprintf(text, sizeof(text), "%s", xccl_error_text());
    bytes = xccl_boot_error_encode(rc, text, body);
    decline_to(&job->own, rank, nranks, body, bytes);
    if (job->guest)
        decline_to(&job->before, rank, nranks, body, bytes);
    xccl_error_set_text(text);
}

/* --- the end --- */

void xccl_bootstrap_fail(struct xccl_bootstrap *boot, xcclResult_t rc)
{
    struct xccl_verdict verdict = {.trouble = XCCL_TROUBLE_BOOT_CANNOT_JOIN};
    char text[XCCL_ERROR_TEXT_BYTES];

    if (!boot)
        return;
    snprintf(text, sizeof(text), "%s", xccl_error_text());
    xccl_loop_lock(boot->loop);
    if (boot->state == XCCL_BOOT_HEARING) {
        xccl_boot_fail(boot, rc, "%s", text); /* its own error stays, but is told now */
    } else if (!boot->rc && !boot->ring_taken) {
        /* Use that is wrong is wrong everywhere; all else is this rank's trouble. */
        if (rc != xcclInvalidUsage)
            rc = xcclRemoteError;
        boot->told_caller = 1;
        verdict.rc = rc;
        xccl_verdict_set_why(&verdict, text);
        if (strncmp(text, "rank ", 5) == 0)
            xccl_boot_fail(boot, rc, "%s", text);
        else
            xccl_boot_raise(boot, &verdict, boot->rank);
    }
    xccl_loop_unlock(boot->loop);
    xccl_error_set_text(text);
}

void xccl_bootstrap_abort(struct xccl_bootstrap *boot)
{
    struct xccl_verdict verdict = {.trouble = XCCL_TROUBLE_BOOT_ABORTED};

    xccl_loop_lock(boot->loop);
    boot->aborted |= !boot->rc;
    xccl_boot_raise(boot, &verdict, boot->rank);
    xccl_loop_unlock(boot->loop);
}

void xccl_bootstrap_addr(const struct xccl_bootstrap *boot, int rank, struct xccl_addr *addr_out)
{
    struct xccl_addr addrs[XCCL_TRIES_ADDRS];

    memset(addr_out, 0, sizeof(*addr_out));
    if (xccl_boot_addr_list(boot, rank, addrs))
        *addr_out = addrs[0];
}

void xccl_bootstrap_met_addr(const struct xccl_bootstrap *boot, struct xccl_addr *addr_out)
{
    xccl_loop_lock(boot->loop);
    *addr_out = boot->met_addr;
    xccl_loop_unlock(boot->loop);
}

void xccl_bootstrap_take_ring(struct xccl_bootstrap *boot, struct xccl_conn **next_out,
                              struct xccl_conn **prev_out)
{
    *next_out = *prev_out = NULL;
    if (boot->nranks == 1 || boot->ring_taken)
        return;
    xccl_loop_lock(boot->loop);
    xccl_loop_remove(&boot->take[0].source);
    xccl_loop_remove(&boot->give[0].source);
    *next_out = boot->take[0].conn;
    *prev_out = boot->give[0].conn;
    boot->take[0].conn = boot->give[0].conn = NULL;
    boot->ring_taken = 1;
    xccl_loop_unlock(boot->loop);
}

void xccl_bootstrap_derive_key(const struct xccl_bootstrap *boot, const char *purpose,
                               uint8_t key_out[32])
{
    crypto_generichash_state state;

    crypto_generichash_init(&state, boot->job.secret, sizeof(boot->job.secret), 32);
    crypto_generichash_update(&state, (const uint8_t *)"xccl 1 derive", 14);
    crypto_generichash_update(&state, boot->job.comm_id, sizeof(boot->job.comm_id));
    crypto_generichash_update(&state, (const uint8_t *)purpose, strlen(purpose));
    crypto_generichash_final(&state, key_out, 32);
    sodium_memzero(&state, sizeof(state));
}

int xccl_bootstrap_is_unheard(const struct xccl_bootstrap *boot)
{
    int unheard;

    xccl_loop_lock(boot->loop);
    unheard = boot->rc && xccl_boot_root_unaware(boot);
    xccl_loop_unlock(boot->loop);
    return unheard;
}

/* Ranks may be on their way here that would find the door shut and blame this rank. */
static int lingers_now(const struct xccl_bootstrap *boot)
{
    int lingers;

    xccl_loop_lock(boot->loop);
    lingers = boot->state == XCCL_BOOT_FAILED && boot->acceptor && boot->nranks > 1 &&
              xccl_clock_ns() < boot->linger_ns;
    xccl_loop_unlock(boot->loop);
    return lingers;
}

/* Frees everything; the loop's lock is held but for what must not be waited for with it. */
static void boot_free(struct xccl_bootstrap *boot)
{
    xccl_loop_lock(boot->loop);
    xccl_acceptor_close(boot->acceptor);
    xccl_loop_remove(&boot->timer);
    xccl_boot_mail_close(boot);
    xccl_boot_join_close(boot);
    while (boot->parked) {
        struct xccl_boot_parked *parked = boot->parked;

        boot->parked = parked->next;
        xccl_conn_close(parked->conn);
        xccl_free(parked);
    }
    xccl_loop_unlock(boot->loop);
    leave_root(boot);
    xccl_service_put();
    xccl_boot_share_pair(boot, 0);
    xccl_free(boot->split_parts); /* until now an operation at work may have used them */
    xccl_free(boot->addrs);
    sodium_memzero(&boot->job, sizeof(boot->job));
    xccl_free(boot);
}

void xccl_bootstrap_close(struct xccl_bootstrap *boot)
{
    static _Atomic int never; /* an abort flag only makes the bell's sleep short */
    struct xccl_verdict verdict = {.trouble = XCCL_TROUBLE_BOOT_LEFT};

    if (!boot)
        return;
    xccl_loop_lock(boot->loop);
    if (boot->state == XCCL_BOOT_HEARING)
        xccl_boot_fail(boot, boot->rc, "%s", ""); /* tells what it has */
    else if (boot->state == XCCL_BOOT_UP && boot->op.kind != XCCL_OP_NONE)
        xccl_boot_raise(boot, &verdict, boot->rank);
    xccl_loop_unlock(boot->loop);
    xccl_boot_split_close(boot);
    while (lingers_now(boot)) {
        struct xccl_limit limit = {.deadline_ns = boot->linger_ns, .abort = &never};

        xccl_bell_wait(&boot->own_bell, xccl_bell_listen(&boot->own_bell), &limit);
    }
    boot_free(boot);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank's side of joining: listen, report to the root, learn the next rank's address, then one
 * log-step all-gather (gather.c) whose part r is the address of rank r + 1. That spreads all
 * addresses and makes the connections that later all-gathers use.
 *
 * Limits: 2^20 ranks, parts of 1 MiB. Thread: the rank's own. */
#include "bootstrap/bootstrap.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/os.h"
#include "bootstrap/bootstrap_int.h"
#include "bootstrap/message.h"
#include "bootstrap/root_int.h"

#define PART_MAX_BYTES (1u << 20)
#define DECLINE_MS     500

static void boot_on_conn(void *owner, struct xccl_conn *conn)
{
    struct xccl_bootstrap *boot = owner;
    const struct xccl_hello *hello = xccl_conn_hello(conn);
    struct xccl_boot_peer *give = hello->detail < boot->rounds ? &boot->give[hello->detail] : NULL;

    if (hello->purpose != XCCL_PURPOSE_ROUND || !give || give->conn ||
        hello->nranks != (uint32_t)boot->nranks || hello->rank != (uint32_t)give->rank) {
        xccl_log(XCCL_LOG_WARN,
                 "rank %u of %u at %s asked rank %d for round %u, which is not its turn; give each "
                 "process a rank of its own",
                 hello->rank, hello->nranks, xccl_conn_peer_text(conn), boot->rank, hello->detail);
        xccl_conn_close(conn);
        return;
    }
    give->conn = conn;
    if (boot->rc) {
        uint8_t body[XCCL_BOOT_ERROR_MAX];

        (void)xccl_conn_queue(conn, XCCL_BOOT_ERROR, body,
                              xccl_boot_error_encode(boot->rc, boot->error, body));
        return;
    }
    xccl_boot_peer_watch(give, EPOLLIN);
    xccl_boot_pump(boot);
}

/* A rank listens where the root can be reached from: loopback for loopback, else the best
 * interface, of the root's family if there is one. */
static xcclResult_t boot_listen_addr(const struct xccl_addr *root, struct xccl_addr *addr_out)
{
    struct xccl_netif ifs[8];
    int count = 0, best = 0;
    int loopback4 = root->sa.any.sa_family == AF_INET &&
                    (ntohl(root->sa.in4.sin_addr.s_addr) >> 24) == 127;
    int loopback6 = root->sa.any.sa_family == AF_INET6 &&
                    IN6_IS_ADDR_LOOPBACK(&root->sa.in6.sin6_addr);
    xcclResult_t rc;

    if (loopback4 || loopback6) {
        *addr_out = *root;
        xccl_addr_set_port(addr_out, 0);
        return xcclSuccess;
    }
    rc = xccl_netif_choose(ifs, 8, &count);
    if (rc)
        return rc;
    for (int i = count - 1; i >= 0; i--) {
        if (ifs[i].addr.sa.any.sa_family == root->sa.any.sa_family)
            best = i;
    }
    *addr_out = ifs[best].addr;
    return xcclSuccess;
}

static xcclResult_t boot_listen(struct xccl_bootstrap *boot)
{
    struct xccl_acceptor_args args = {.loop = boot->loop,
                                      .rank = (uint32_t)boot->rank,
                                      .nranks = (uint32_t)boot->nranks,
                                      .on_conn = boot_on_conn,
                                      .owner = boot};
    xcclResult_t rc = boot_listen_addr(&boot->job.roots[0], &args.addr);

    if (rc)
        return rc;
    memcpy(args.key, boot->job.secret, sizeof(args.key));
    memcpy(args.comm_id, boot->job.comm_id, sizeof(args.comm_id));
    rc = xccl_acceptor_open(&args, &boot->acceptor);
    sodium_memzero(args.key, sizeof(args.key));
    return rc;
}

/* Connects to the first root address that answers. */
static xcclResult_t boot_reach_root(struct xccl_bootstrap *boot, const struct xccl_limit *limit)
{
    struct xccl_hello hello = xccl_boot_hello(boot, XCCL_PURPOSE_ROOT, 0);

    for (int i = 0;; i++) {
        const struct xccl_addr *addr = &boot->job.roots[i % boot->job.root_count];
        struct xccl_limit slice = *limit;
        uint64_t slice_ns = xccl_clock_ns() + XCCL_NS_PER_S;
        xcclResult_t rc;

        /* The last of several addresses is no better than the first: they take turns. */
        if (boot->job.root_count > 1 && slice_ns < slice.deadline_ns)
            slice.deadline_ns = slice_ns;
        rc = xccl_conn_open(addr, boot->job.secret, &hello, &slice, &boot->root_peer.conn);
        if (rc != xcclTimeout || xccl_limit_passed(limit) || boot->job.root_count == 1)
            return rc;
    }
}

static xcclResult_t boot_report(struct xccl_bootstrap *boot, const struct xccl_limit *limit)
{
    struct xccl_boot_report report = {.xccl_version = XCCL_VERSION_CODE};
    uint8_t body[XCCL_BOOT_REPORT_MAX];
    uint64_t now_ns, left_ms;
    char why[XCCL_ERROR_TEXT_BYTES];
    xcclResult_t rc = boot_reach_root(boot, limit);

    if (rc) {
        snprintf(why, sizeof(why), "%s", xccl_error_text());
        return xccl_fail(rc, 0,
                         "see whether the process that made the id still runs, and whether the "
                         "network lets this host reach it",
                         "rank %d of %d cannot report to the root: %.300s", boot->rank,
                         boot->nranks, why);
    }
    now_ns = xccl_clock_ns();
    left_ms = limit->deadline_ns > now_ns ? (limit->deadline_ns - now_ns) / XCCL_NS_PER_MS : 0;
    report.timeout_ms = left_ms < UINT32_MAX ? (uint32_t)left_ms : UINT32_MAX;
    report.addr = *xccl_acceptor_addr(boot->acceptor);
    snprintf(report.host, sizeof(report.host), "%s", xccl_os_hostname());
    rc = xccl_conn_send(boot->root_peer.conn, XCCL_BOOT_REPORT, body,
                        xccl_boot_report_encode(&report, body), limit);
    if (rc) {
        snprintf(why, sizeof(why), "%s", xccl_error_text());
        return xccl_fail(rc, 0, NULL, "rank %d cannot report to the root at %s: %.300s", boot->rank,
                         xccl_conn_peer_text(boot->root_peer.conn), why);
    }
    boot->root_unaware = 0;
    xccl_boot_peer_watch(&boot->root_peer, EPOLLIN);
    return xcclSuccess;
}

static int boot_next_known(const struct xccl_bootstrap *boot)
{
    return boot->next_known;
}

static xcclResult_t boot_join(struct xccl_bootstrap *boot, const struct xccl_limit *limit)
{
    xcclResult_t rc = xccl_loop_create(&boot->loop);

    if (rc)
        return rc;
    boot->next_addrs = xccl_calloc((size_t)boot->nranks, XCCL_ADDR_WIRE_BYTES);
    if (!boot->next_addrs)
        return xcclSystemError;
    if (boot->job.owns_root && boot->rank == 0) {
        rc = xccl_root_create(&boot->job.roots[0], boot->job.secret, &boot->root);
        if (rc)
            return rc;
    }
    rc = boot_listen(boot);
    if (rc)
        return rc;
    rc = boot_report(boot, limit);
    if (rc)
        return rc;
    xccl_boot_run(boot, boot_next_known, limit);
    if (!boot->rc) {
        xccl_boot_gather_start(boot, boot->next_addrs, XCCL_ADDR_WIRE_BYTES);
        xccl_boot_run(boot, xccl_boot_gathered, limit);
    }
    if (boot->rc)
        return xccl_boot_give_up(boot);
    boot->gathering = 0;
    boot->joined = 1;
    xccl_boot_peer_close(&boot->root_peer);
    xccl_acceptor_close(boot->acceptor);
    boot->acceptor = NULL;
    xccl_root_destroy(boot->root);
    boot->root = NULL;
    return xcclSuccess;
}

/* Proves to the root and says why this rank does not come. Nothing is tried twice: a root that is
 * gone needs no telling. */
static void decline_at(const struct xccl_addr *root, const uint8_t secret[32],
                       const struct xccl_hello *hello, const void *body, size_t bytes)
{
    struct xccl_limit limit = xccl_limit_ms(DECLINE_MS, NULL);
    struct xccl_conn *conn;
    int done = 0;
    xcclResult_t rc = xccl_conn_start(root, secret, hello, &conn);

    if (rc)
        return;
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
        (void)xccl_conn_send(conn, XCCL_BOOT_ERROR, body, bytes, &limit);
    xccl_conn_close(conn);
}

void xccl_bootstrap_decline(const struct xccl_job *job, int rank, int nranks, xcclResult_t rc)
{
    struct xccl_hello hello = {
        .rank = (uint32_t)rank, .nranks = (uint32_t)nranks, .purpose = XCCL_PURPOSE_ROOT};
    char text[XCCL_ERROR_TEXT_BYTES];
    uint8_t body[XCCL_BOOT_ERROR_MAX];
    size_t bytes;

    if (nranks == 1) {
        xccl_root_end_single(job->comm_id);
        return;
    }
    if (rc == xcclTimeout || (job->owns_root && rank == 0))
        return; /* the root gives up by itself, or is not there */
    snprintf(text, sizeof(text), "%s", xccl_error_text());
    memcpy(hello.comm_id, job->comm_id, sizeof(hello.comm_id));
    bytes = xccl_boot_error_encode(rc, text, body);
    for (int i = 0; i < job->root_count; i++)
        decline_at(&job->roots[i], job->secret, &hello, body, bytes);
    xccl_error_set_text(text);
}

static xcclResult_t boot_open(const struct xccl_job *job, int rank, int nranks,
                              const struct xccl_limit *limit, struct xccl_bootstrap **boot_out,
                              int *root_unaware_out)
{
    struct xccl_bootstrap *boot;
    xcclResult_t rc = xccl_channel_library_init();

    if (rc)
        return rc;
    boot = xccl_calloc(1, sizeof(*boot));
    if (!boot)
        return xcclSystemError;
    boot->root_unaware = 1;
    boot->job = *job;
    boot->rank = rank;
    boot->nranks = nranks;
    while (1 << boot->rounds < nranks)
        boot->rounds++;
    xccl_boot_peer_init(boot, &boot->root_peer, 0, -1, 0);
    for (int k = 0; k < boot->rounds; k++) {
        xccl_boot_peer_init(boot, &boot->take[k], (rank + (1 << k)) % nranks, k, 0);
        xccl_boot_peer_init(boot, &boot->give[k], (rank + nranks - (1 << k)) % nranks, k, 1);
    }
    if (nranks > 1)
        rc = boot_join(boot, limit);
    else
        xccl_root_end_single(job->comm_id);
    if (rc) {
        *root_unaware_out = boot->root_unaware;
        xccl_bootstrap_close(boot);
        return rc;
    }
    *boot_out = boot;
    return xcclSuccess;
}

xcclResult_t xccl_bootstrap_open(const struct xccl_job *job, int rank, int nranks,
                                 const struct xccl_limit *limit, struct xccl_bootstrap **boot_out)
{
    int root_unaware = 1;
    xcclResult_t rc;

    if (nranks < 1 || nranks > 1 << XCCL_BOOT_ROUNDS_MAX || rank < 0 || rank >= nranks) {
        return xccl_fail(xcclInvalidArgument, 0, "use 0 <= rank < nranks", "rank %d of %d ranks",
                         rank, nranks);
    }
    rc = boot_open(job, rank, nranks, limit, boot_out, &root_unaware);
    if (rc && root_unaware)
        xccl_bootstrap_decline(job, rank, nranks, rc);
    return rc;
}

xcclResult_t xccl_bootstrap_allgather(struct xccl_bootstrap *boot, void *data, size_t part_bytes,
                                      const struct xccl_limit *limit)
{
    if (part_bytes > PART_MAX_BYTES) {
        return xccl_fail(xcclInvalidArgument, 0, "split it",
                         "an out-of-band all-gather of %zu bytes a rank", part_bytes);
    }
    if (boot->nranks == 1)
        return xcclSuccess;
    if (boot->rc || boot->ring_taken) {
        return xccl_fail(xcclInvalidUsage, 0, "report this as a bug of xccl",
                         "an out-of-band all-gather after %s",
                         boot->rc ? "an error" : "the ring was taken");
    }
    xccl_boot_gather_start(boot, data, part_bytes);
    xccl_boot_run(boot, xccl_boot_gathered, limit);
    boot->gathering = 0;
    boot->data = NULL;
    return boot->rc ? xccl_boot_give_up(boot) : xcclSuccess;
}

xcclResult_t xccl_bootstrap_listen(struct xccl_bootstrap *boot, int wait_ms)
{
    xcclResult_t rc;

    if (!boot->loop) { /* one rank */
        (void)poll(NULL, 0, wait_ms);
        return xcclSuccess;
    }
    rc = xccl_loop_run_once(boot->loop, wait_ms);
    return boot->rc ? xccl_boot_give_up(boot) : rc;
}

void xccl_bootstrap_fail(struct xccl_bootstrap *boot, xcclResult_t rc)
{
    char text[XCCL_ERROR_TEXT_BYTES];

    if (!boot || boot->rc || boot->ring_taken)
        return;
    snprintf(text, sizeof(text), "%s", xccl_error_text());
    /* Use that is wrong is wrong everywhere; all else is this rank's trouble. */
    boot->rc = rc == xcclInvalidUsage ? rc : xcclRemoteError;
    if (strncmp(text, "rank ", 5) == 0)
        snprintf(boot->error, sizeof(boot->error), "%s", text);
    else
        snprintf(boot->error, sizeof(boot->error), "rank %d on host %s cannot join: %.400s",
                 boot->rank, xccl_os_hostname(), text);
    xccl_boot_tell_peers(boot);
    xccl_error_set_text(text);
}

void xccl_bootstrap_take_ring(struct xccl_bootstrap *boot, struct xccl_conn **next_out,
                              struct xccl_conn **prev_out)
{
    *next_out = *prev_out = NULL;
    if (boot->nranks == 1 || boot->ring_taken)
        return;
    xccl_loop_remove(&boot->take[0].source);
    xccl_loop_remove(&boot->give[0].source);
    *next_out = boot->take[0].conn;
    *prev_out = boot->give[0].conn;
    boot->take[0].conn = boot->give[0].conn = NULL;
    boot->ring_taken = 1;
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

void xccl_bootstrap_close(struct xccl_bootstrap *boot)
{
    if (!boot)
        return;
    xccl_boot_peer_close(&boot->root_peer);
    for (int k = 0; k < boot->rounds; k++) {
        xccl_boot_peer_close(&boot->take[k]);
        xccl_boot_peer_close(&boot->give[k]);
    }
    xccl_acceptor_close(boot->acceptor);
    xccl_root_destroy(boot->root);
    xccl_loop_destroy(boot->loop);
    xccl_free(boot->next_addrs);
    sodium_memzero(&boot->job, sizeof(boot->job));
    xccl_free(boot);
}

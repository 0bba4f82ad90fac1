/* SPDX-License-Identifier: BSD-3-Clause */
/* A listening socket and its unproven connections, as sources of one event loop.
 *
 *   accepted --hello right--> answered --CONFIRM right--> on_conn()
 *      |                          |
 *      +------ 5 s, a wrong byte, or pushed out by a newer one ------> closed
 *
 * Who is pushed out: the oldest that has said nothing right yet, else the oldest.
 * Thread: whoever drives the loop; open and close from any, through the loop's lock. */
#include "bootstrap/acceptor.h"

#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "bootstrap/conn_int.h"

#define GUESTS_MAX       256
#define GUEST_NS         (5 * XCCL_NS_PER_S)
#define ACCEPTS_A_TURN   64
#define PAUSE_NS         (200 * XCCL_NS_PER_MS) /* after an error such as EMFILE */
#define REFUSAL_EVERY_NS XCCL_NS_PER_S

/* An unproven connection. Newest first in the list. */
struct guest {
    struct xccl_source source;
    struct xccl_acceptor *acceptor;
    struct xccl_conn *conn;
    struct guest *newer, *older;
};

struct xccl_acceptor {
    struct xccl_acceptor_args args;
    struct xccl_source source;
    struct xccl_addr addr;
    struct guest *newest, *oldest;
    int guest_count;
    uint64_t refusal_told_ns;
    unsigned refusals_untold;
};

static void guest_unlink(struct guest *guest)
{
    struct xccl_acceptor *acceptor = guest->acceptor;

    xccl_loop_remove(&guest->source);
    if (guest->newer)
        guest->newer->older = guest->older;
    else
        acceptor->newest = guest->older;
    if (guest->older)
        guest->older->newer = guest->newer;
    else
        acceptor->oldest = guest->newer;
    acceptor->guest_count--;
}

static void guest_close(struct guest *guest)
{
    guest_unlink(guest);
    xccl_conn_close(guest->conn);
    xccl_free(guest);
}

/* At most one line a second, whatever strangers do. */
static void refusal_tell(struct xccl_acceptor *acceptor, const char *why)
{
    uint64_t now_ns = xccl_clock_ns();

    if (acceptor->refusal_told_ns && now_ns - acceptor->refusal_told_ns < REFUSAL_EVERY_NS) {
        acceptor->refusals_untold++;
        return;
    }
    xccl_log(XCCL_LOG_INFO, "refused a connection: %s (%u more since the last such line)", why,
             acceptor->refusals_untold);
    acceptor->refusal_told_ns = now_ns;
    acceptor->refusals_untold = 0;
}

/* Moves a guest's handshake; it may be gone, and the acceptor too, when this returns. */
static void guest_step(struct guest *guest)
{
    struct xccl_acceptor *acceptor = guest->acceptor;
    int done = 0;
    xcclResult_t rc = xccl_conn_shake(guest->conn, &done);

    if (!rc && !done)
        rc = xccl_loop_set_events(&guest->source, xccl_conn_shake_events(guest->conn));
    if (rc) {
        refusal_tell(acceptor, xccl_error_text());
        guest_close(guest);
        return;
    }
    if (done) {
        struct xccl_conn *conn = guest->conn;

        guest_unlink(guest);
        xccl_free(guest);
        acceptor->args.on_conn(acceptor->args.owner, conn);
    }
}

static void guest_on_events(struct xccl_source *source, uint32_t events)
{
    (void)events;
    guest_step(source->owner);
}

static void guest_on_timer(struct xccl_source *source, uint64_t now_ns)
{
    struct guest *guest = source->owner;

    (void)now_ns;
    refusal_tell(guest->acceptor, "no proof within 5 s");
    guest_close(guest);
}

static void guest_evict(struct xccl_acceptor *acceptor)
{
    struct guest *guest = acceptor->oldest;

    while (guest && xccl_conn_hello_seen(guest->conn))
        guest = guest->newer;
    if (!guest)
        guest = acceptor->oldest;
    refusal_tell(acceptor, "too many unproven connections");
    if (guest)
        guest_close(guest);
}

/* A Unix socket tells who is there: only our own user, or root, may go on. */
static int peer_user_fine(const struct xccl_acceptor *acceptor, int fd)
{
    struct ucred cred = {0};
    socklen_t bytes = sizeof(cred);

    if (acceptor->addr.sa.any.sa_family != AF_UNIX)
        return 1;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes) != 0)
        return 0;
    return cred.uid == geteuid() || cred.uid == 0;
}

/* Takes fd over. Nothing to be done on failure but to forget it: the line is in the log. */
static struct guest *guest_add(struct xccl_acceptor *acceptor, int fd)
{
    struct xccl_hello self = {.rank = acceptor->args.rank, .nranks = acceptor->args.nranks};
    struct guest *guest;

    if (acceptor->guest_count >= GUESTS_MAX)
        guest_evict(acceptor);
    guest = xccl_calloc(1, sizeof(*guest));
    if (!guest) {
        xccl_tcp_close(&fd);
        return NULL;
    }
    memcpy(self.comm_id, acceptor->args.comm_id, sizeof(self.comm_id));
    if (xccl_conn_adopt(fd, acceptor->args.key, &self, acceptor->args.any_comm_id, &guest->conn))
        goto err_guest;
    guest->acceptor = acceptor;
    guest->source.fd = fd;
    guest->source.events = EPOLLIN;
    guest->source.timer_ns = xccl_clock_ns() + GUEST_NS;
    guest->source.on_events = guest_on_events;
    guest->source.on_timer = guest_on_timer;
    guest->source.owner = guest;
    if (xccl_loop_add(acceptor->args.loop, &guest->source))
        goto err_conn;
    guest->older = acceptor->newest;
    if (acceptor->newest)
        acceptor->newest->newer = guest;
    else
        acceptor->oldest = guest;
    acceptor->newest = guest;
    acceptor->guest_count++;
    return guest;
err_conn:
    xccl_conn_close(guest->conn);
err_guest:
    xccl_free(guest);
    return NULL;
}

/* A guest whose hello came along is answered by its own event in the next turn of the loop, never
 * from here: on_conn() may close the acceptor. */
static void acceptor_on_events(struct xccl_source *source, uint32_t events)
{
    struct xccl_acceptor *acceptor = source->owner;

    (void)events;
    for (int i = 0; i < ACCEPTS_A_TURN; i++) {
        int fd = -1;

        if (xccl_tcp_accept(source->fd, &fd, NULL) != xcclSuccess) {
            /* Most likely out of descriptors: asking again at once would only spin. */
            (void)xccl_loop_set_events(source, 0);
            xccl_loop_set_timer(source, xccl_clock_ns() + PAUSE_NS);
            return;
        }
        if (fd < 0)
            return;
        if (!peer_user_fine(acceptor, fd)) {
            refusal_tell(acceptor, "a process of another user");
            xccl_tcp_close(&fd);
            continue;
        }
        (void)guest_add(acceptor, fd);
    }
}

static void acceptor_on_timer(struct xccl_source *source, uint64_t now_ns)
{
    if (xccl_loop_set_events(source, EPOLLIN) != xcclSuccess)
        xccl_loop_set_timer(source, now_ns + PAUSE_NS);
}

xcclResult_t xccl_acceptor_open(const struct xccl_acceptor_args *args,
                                struct xccl_acceptor **acceptor_out)
{
    struct xccl_acceptor *acceptor;
    xcclResult_t rc = xccl_channel_library_init();

    if (rc)
        return rc;
    acceptor = xccl_calloc(1, sizeof(*acceptor));
    if (!acceptor)
        return xcclSystemError;
    acceptor->args = *args;
    rc = xccl_tcp_listen(&args->addr, &acceptor->source.fd, &acceptor->addr);
    if (rc)
        goto err_acceptor;
    acceptor->source.events = EPOLLIN;
    acceptor->source.timer_ns = XCCL_NEVER_NS;
    acceptor->source.on_events = acceptor_on_events;
    acceptor->source.on_timer = acceptor_on_timer;
    acceptor->source.owner = acceptor;
    /* The caller sees its acceptor before the first connection does. */
    xccl_loop_lock(args->loop);
    *acceptor_out = acceptor;
    rc = xccl_loop_add(args->loop, &acceptor->source);
    if (rc)
        *acceptor_out = NULL;
    xccl_loop_unlock(args->loop);
    if (rc)
        goto err_listen;
    return xcclSuccess;
err_listen:
    xccl_tcp_close(&acceptor->source.fd);
err_acceptor:
    sodium_memzero(acceptor->args.key, sizeof(acceptor->args.key));
    xccl_free(acceptor);
    return rc;
}

const struct xccl_addr *xccl_acceptor_addr(const struct xccl_acceptor *acceptor)
{
    return &acceptor->addr;
}

void xccl_acceptor_close(struct xccl_acceptor *acceptor)
{
    struct xccl_loop *loop;

    if (!acceptor)
        return;
    loop = acceptor->args.loop;
    xccl_loop_lock(loop);
    xccl_loop_remove(&acceptor->source);
    while (acceptor->oldest)
        guest_close(acceptor->oldest);
    xccl_loop_unlock(loop);
    xccl_tcp_close(&acceptor->source.fd);
    sodium_memzero(acceptor->args.key, sizeof(acceptor->args.key));
    xccl_free(acceptor);
}

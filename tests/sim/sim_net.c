/* SPDX-License-Identifier: BSD-3-Clause */
/* Simulated stream sockets.
 *
 *   connecting --first packet there, somebody listens--> connected --> ended, each way by itself
 *              --nobody listens, or no answer for 127 s--> refused
 *
 * A connection has two ends, made together when the first packet arrives; both are freed when both
 * are closed and no event points to them. Descriptors begin far above real ones, so that a system
 * call on one of them cannot hit a file, and are used again at once, so that a stale one is found.
 *
 * Thread: the only one. */
#include "sim_net.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/error.h"
#include "sim_loop.h"

#define BACKLOG         1024
#define CONNECT_TRIES   7 /* 1 + 2 + 4 ... = 127 s, as Linux */
#define SLOW_TRIES      3 /* lost in a row by chance: no operation waits for ever */
#define DEFER_NS        (5 * XCCL_NS_PER_S)
#define SENT_AT_ONCE    14600 /* bytes that go out before the peer's first answer */
#define FIRST_PORT      20000
#define FIRST_GUEST     40000
#define PORTS_OF_GUESTS 20000
#define PIECES_MAX      4

enum phase { CONNECTING, CONNECTED, REFUSED, LISTENING };

struct sim_socket {
    int fd; /* -1: its process has closed it, or not yet accepted */
    int host;
    enum phase phase;
    int err; /* of a refused one, or one whose process has crashed */
    uint32_t watch_idx;
    int events_due; /* that point here */
    struct xccl_addr here, there;

    struct sim_socket *other; /* NULL before it is connected */
    int closed; /* for its kernel */
    uint8_t *data; /* on the way here or not yet read: data[at] to data[end] */
    size_t at, end, room;
    size_t arrived; /* of them, from at on */
    uint64_t last_ns; /* when the last of what is on the way arrives */
    uint32_t hops; /* of what has arrived */
    int abrupt; /* a close is a reset */
    int fin, reset; /* arrived here */
    int waits; /* for the first bytes, before it is offered */

    struct sim_socket **backlog; /* of a listener: a ring of BACKLOG places */
    unsigned backlog_at, backlog_count;
    struct sim_socket *next; /* listener of this host */
};

static struct {
    struct sim_net_settings settings;
    struct sim_socket **sockets; /* by descriptor */
    int count, room;
    int *free_fds;
    int free_count;
    struct sim_socket **listeners; /* by host */
    uint32_t *hops; /* by host */
    int *open; /* by host */
    int hosts;
    uint16_t next_port, next_guest;
    uint64_t connects, bytes;
    int connect_err;
    int lost_in_row; /* first packets of connects */
} net;

static uint64_t delay_ns(void)
{
    const struct sim_net_settings *set = &net.settings;
    uint64_t ns = sim_between(set->delay_min_ns, set->delay_max_ns);

    return sim_chance(set->late_per_mille) ? ns + sim_between(0, set->late_ns) : ns;
}

/* --- sockets and descriptors --- */

static struct sim_socket *socket_make(int host, enum phase phase)
{
    struct sim_socket *made = calloc(1, sizeof(*made));

    if (!made)
        abort();
    made->fd = -1;
    made->host = host;
    made->phase = phase;
    return made;
}

static void fd_give(struct sim_socket *to)
{
    int idx;

    if (net.free_count) {
        idx = net.free_fds[--net.free_count];
    } else {
        if (net.count == net.room) {
            net.room = net.room ? net.room * 2 : 1024;
            net.sockets = realloc(net.sockets, (size_t)net.room * sizeof(struct sim_socket *));
            net.free_fds = realloc(net.free_fds, (size_t)net.room * sizeof(*net.free_fds));
            if (!net.sockets || !net.free_fds)
                abort();
        }
        idx = net.count++;
    }
    net.sockets[idx] = to;
    net.open[to->host]++;
    to->fd = SIM_FIRST_FD + idx;
}

static struct sim_socket *socket_of(int fd)
{
    int idx = fd - SIM_FIRST_FD;
    struct sim_socket *found = idx >= 0 && idx < net.count ? net.sockets[idx] : NULL;

    if (!found)
        sim_fail("host %d used descriptor %d, which is not open", sim_host(), fd);
    return found;
}

/* The socket of a descriptor, which the code of its own host uses. */
static struct sim_socket *own_socket(int fd)
{
    struct sim_socket *found = socket_of(fd);

    if (found->host != sim_host())
        sim_fail("host %d used descriptor %d of host %d", sim_host(), fd, found->host);
    return found;
}

static int unused(const struct sim_socket *it)
{
    return it->closed && it->fd < 0 && it->events_due == 0;
}

static void socket_free(struct sim_socket *it)
{
    free(it->backlog);
    free(it->data);
    free(it);
}

static void socket_drop(struct sim_socket *it)
{
    struct sim_socket *other = it->other;

    if (!unused(it) || (other && !unused(other)))
        return;
    if (other)
        socket_free(other);
    socket_free(it);
}

static void due(struct sim_socket *it, uint64_t after_ns, sim_event_fn *run, uint64_t detail)
{
    it->events_due++;
    sim_after(after_ns, run, it, detail);
}

static void event_over(struct sim_socket *it)
{
    it->events_due--;
    socket_drop(it);
}

static void wake(const struct sim_socket *it)
{
    sim_source_poke(it->watch_idx);
}

/* After all that is on its way to the same end. */
static uint64_t in_order(struct sim_socket *to, uint64_t after_ns)
{
    uint64_t at_ns = sim_now_ns() + after_ns;

    if (at_ns <= to->last_ns)
        at_ns = to->last_ns + 1;
    to->last_ns = at_ns;
    return at_ns - sim_now_ns();
}

static int hears(const struct sim_socket *it)
{
    return sim_host_health(it->host) != SIM_SILENT;
}

/* --- what arrives --- */

static void fin_arrives(void *arg, uint64_t detail)
{
    struct sim_socket *to = arg;

    (void)detail;
    if (hears(to) && !to->closed) {
        to->fin = 1;
        wake(to);
    }
    event_over(to);
}

static void reset_arrives(void *arg, uint64_t detail)
{
    struct sim_socket *to = arg;

    (void)detail;
    if (hears(to) && !to->closed) {
        to->reset = 1;
        wake(to);
    }
    event_over(to);
}

static void reset_send(struct sim_socket *to)
{
    due(to, in_order(to, delay_ns()), reset_arrives, 0);
}

static void socket_close(struct sim_socket *it);

static struct sim_socket *listener_at(const struct xccl_addr *addr);

static void defer_over(void *arg, uint64_t detail);

/* A connection that has its first bytes, or has waited for them long enough. */
static void offer(struct sim_socket *guest)
{
    struct sim_socket *listener = listener_at(&guest->here);

    if (listener && listener->backlog_count == BACKLOG) {
        /* The packet is dropped, and sent again. */
        due(guest, XCCL_NS_PER_S / 2 + delay_ns(), defer_over, 0);
        return;
    }
    guest->waits = 0;
    if (!listener) {
        reset_send(guest->other);
        guest->closed = 1;
        return;
    }
    listener->backlog[(listener->backlog_at + listener->backlog_count++) % BACKLOG] = guest;
    wake(listener);
}

static void defer_over(void *arg, uint64_t detail)
{
    struct sim_socket *guest = arg;

    (void)detail;
    if (guest->waits && hears(guest))
        offer(guest);
    else if (guest->waits)
        guest->closed = 1; /* lost with its host */
    event_over(guest);
}

static void piece_arrives(void *arg, uint64_t detail)
{
    struct sim_socket *to = arg;
    uint32_t hops = (uint32_t)(detail >> 32);

    if (hears(to) && to->closed) {
        reset_send(to->other);
    } else if (hears(to) && !to->reset) {
        to->arrived += (uint32_t)detail;
        if (hops > to->hops)
            to->hops = hops;
        if (to->waits)
            offer(to);
        else
            wake(to);
    }
    event_over(to);
}

static void window_opens(void *arg, uint64_t detail)
{
    struct sim_socket *to = arg;

    (void)detail;
    if (!to->closed)
        wake(to);
    event_over(to);
}

/* --- ends --- */

static void listener_close(struct sim_socket *it)
{
    struct sim_socket **at = &net.listeners[it->host];

    while (*at != it)
        at = &(*at)->next;
    *at = it->next;
    for (; it->backlog_count; it->backlog_count--) {
        struct sim_socket *guest = it->backlog[it->backlog_at++ % BACKLOG];

        guest->closed = 1;
        reset_send(guest->other);
    }
}

/* What the kernel does when the last descriptor goes. */
static void socket_close(struct sim_socket *it)
{
    struct sim_socket *other = it->other;
    size_t on_the_way;

    if (it->closed)
        return;
    it->closed = 1;
    if (it->phase == LISTENING)
        listener_close(it);
    if (!other || it->reset || !hears(it))
        return;
    on_the_way = other->end - other->at - other->arrived;
    if (it->arrived == 0 && !it->abrupt)
        due(other, in_order(other, delay_ns()), fin_arrives, 0);
    else if (on_the_way > SENT_AT_ONCE)
        due(other, delay_ns(), reset_arrives, 0); /* the rest was never sent */
    else
        reset_send(other);
}

void xccl_tcp_close(int *fd)
{
    struct sim_socket *it;

    if (*fd < 0)
        return;
    it = own_socket(*fd);
    if (it->watch_idx)
        sim_fail("host %d closed descriptor %d while its source is in the loop", it->host, *fd);
    net.open[it->host]--;
    net.sockets[*fd - SIM_FIRST_FD] = NULL;
    net.free_fds[net.free_count++] = *fd - SIM_FIRST_FD;
    *fd = -1;
    it->fd = -1;
    socket_close(it);
    socket_drop(it);
}

void xccl_tcp_reset_on_close(int fd)
{
    own_socket(fd)->abrupt = 1;
}

void sim_net_crash(int host)
{
    for (int i = 0; i < net.count; i++) {
        struct sim_socket *it = net.sockets[i];

        if (!it || it->host != host)
            continue;
        socket_close(it);
        it->err = ECONNRESET;
    }
}

/* --- listening --- */

static int host_of(const struct xccl_addr *addr)
{
    uint32_t ip = ntohl(addr->sa.in4.sin_addr.s_addr);
    int host = (int)(ip & 0xffffff) - 1;

    return ip >> 24 == 10 && host >= 0 && host < net.hosts ? host : -1;
}

void sim_host_addr(int host, struct xccl_addr *addr_out)
{
    memset(addr_out, 0, sizeof(*addr_out));
    addr_out->bytes = sizeof(struct sockaddr_in);
    addr_out->sa.in4.sin_family = AF_INET;
    addr_out->sa.in4.sin_addr.s_addr = htonl(10u << 24 | (uint32_t)(host + 1));
}

static struct sim_socket *listener_at(const struct xccl_addr *addr)
{
    int host = host_of(addr);

    for (struct sim_socket *at = host < 0 ? NULL : net.listeners[host]; at; at = at->next) {
        if (xccl_addr_port(&at->here) == xccl_addr_port(addr))
            return at;
    }
    return NULL;
}

static void check_addr(const struct xccl_addr *addr)
{
    if (addr->bytes != sizeof(struct sockaddr_in) || addr->sa.any.sa_family != AF_INET)
        sim_fail("host %d used an address that is not IPv4", sim_host());
}

xcclResult_t xccl_tcp_listen(const struct xccl_addr *addr, int *fd_out, struct xccl_addr *bound_out)
{
    return xccl_error_tell(xccl_tcp_listen_quietly(addr, fd_out, bound_out));
}

xcclResult_t xccl_tcp_listen_quietly(const struct xccl_addr *addr, int *fd_out,
                                     struct xccl_addr *bound_out)
{
    struct xccl_addr here = *addr;
    struct sim_socket *it;

    check_addr(addr);
    sim_host_addr(sim_host(), &here);
    xccl_addr_set_port(&here, xccl_addr_port(addr));
    while (xccl_addr_port(&here) == 0 || (!xccl_addr_port(addr) && listener_at(&here)))
        xccl_addr_set_port(&here, (uint16_t)(FIRST_PORT + net.next_port++ % FIRST_PORT));
    if (listener_at(&here))
        return xccl_fail_quietly(xcclSystemError, EADDRINUSE, "choose another address or port",
                                 "cannot listen on port %u", xccl_addr_port(&here));
    it = socket_make(sim_host(), LISTENING);
    it->here = here;
    it->backlog = calloc(BACKLOG, sizeof(struct sim_socket *));
    if (!it->backlog)
        abort();
    it->next = net.listeners[it->host];
    net.listeners[it->host] = it;
    fd_give(it);
    if (bound_out)
        *bound_out = here;
    *fd_out = it->fd;
    return xcclSuccess;
}

xcclResult_t xccl_tcp_accept(int listen_fd, int *fd_out, struct xccl_addr *peer_out)
{
    struct sim_socket *listener = own_socket(listen_fd), *guest;

    *fd_out = -1;
    if (listener->backlog_count == 0)
        return xcclSuccess;
    guest = listener->backlog[listener->backlog_at++ % BACKLOG];
    listener->backlog_count--;
    fd_give(guest);
    if (peer_out)
        *peer_out = guest->there;
    *fd_out = guest->fd;
    return xcclSuccess;
}

/* --- connecting --- */

static void refused(void *arg, uint64_t detail)
{
    struct sim_socket *it = arg;

    if (hears(it) && !it->closed && it->phase == CONNECTING) {
        it->phase = REFUSED;
        it->err = (int)detail;
        wake(it);
    }
    event_over(it);
}

static void connected(void *arg, uint64_t detail)
{
    struct sim_socket *it = arg;

    (void)detail;
    if (hears(it) && !it->closed) {
        it->phase = CONNECTED;
        wake(it);
    }
    event_over(it);
}

static void first_packet(void *arg, uint64_t try);

/* The packet is sent again after 1 s, 2 s, 4 s ... */
static void first_packet_lost(struct sim_socket *it, uint64_t try)
{
    if (try + 1 == CONNECT_TRIES)
        due(it, XCCL_NS_PER_S << try, refused, ETIMEDOUT);
    else
        due(it, (XCCL_NS_PER_S << try) + delay_ns(), first_packet, try + 1);
}

static void first_packet(void *arg, uint64_t try)
{
    struct sim_socket *it = arg, *guest;
    struct sim_socket *listener = listener_at(&it->there);
    int host = host_of(&it->there);

    if (it->closed || !hears(it))
        goto out;
    if ((host >= 0 && sim_host_health(host) == SIM_SILENT) ||
        (listener && listener->backlog_count == BACKLOG) ||
        (try < SLOW_TRIES && net.lost_in_row < 2 && sim_chance(net.settings.slow_per_mille))) {
        net.lost_in_row++;
        first_packet_lost(it, try);
        goto out;
    }
    net.lost_in_row = 0;
    if (!listener) {
        due(it, delay_ns(), refused, ECONNREFUSED);
        goto out;
    }
    guest = socket_make(host, CONNECTED);
    guest->here = it->there;
    guest->there = it->here;
    guest->other = it;
    guest->waits = 1;
    it->other = guest;
    due(it, in_order(it, delay_ns()), connected, 0);
    due(guest, DEFER_NS + delay_ns(), defer_over, 0);
out:
    event_over(it);
}

xcclResult_t xccl_tcp_connect_start(const struct xccl_addr *addr, int *fd_out)
{
    struct sim_socket *it = socket_make(sim_host(), CONNECTING);

    check_addr(addr);
    net.connect_err = 0;
    sim_host_addr(it->host, &it->here);
    xccl_addr_set_port(&it->here, (uint16_t)(FIRST_GUEST + net.next_guest++ % PORTS_OF_GUESTS));
    it->there = *addr;
    fd_give(it);
    net.connects++;
    due(it, delay_ns(), first_packet, 0);
    *fd_out = it->fd;
    return xcclSuccess;
}

xcclResult_t xccl_tcp_connect_test(int fd, const struct xccl_addr *addr, int *done_out)
{
    const struct sim_socket *it = own_socket(fd);
    char text[XCCL_ADDR_TEXT_BYTES];

    if (it->err) {
        net.connect_err = it->err;
        xccl_addr_format(addr, text);
        return xccl_fail_quietly(xcclRemoteError, it->err,
                                 "check that the peer runs and that no firewall is between",
                                 "cannot connect to %s", text);
    }
    *done_out = it->phase == CONNECTED;
    return xcclSuccess;
}

int xccl_tcp_connect_err(void)
{
    return net.connect_err;
}

int xccl_tcp_local_addr(int fd, struct xccl_addr *addr_out)
{
    *addr_out = own_socket(fd)->here;
    return 0;
}

int xccl_tcp_peer_addr(int fd, struct xccl_addr *addr_out)
{
    *addr_out = own_socket(fd)->there;
    return 0;
}

/* --- data --- */

static size_t window_left(const struct sim_socket *it)
{
    size_t used = it->other->end - it->other->at;

    return used < net.settings.window_bytes ? net.settings.window_bytes - used : 0;
}

static void data_keep(struct sim_socket *to, const void *data, size_t bytes)
{
    if (to->end + bytes > to->room) {
        if (to->at)
            memmove(to->data, to->data + to->at, to->end - to->at);
        to->end -= to->at;
        to->at = 0;
    }
    if (to->end + bytes > to->room) {
        to->room = to->end + bytes < 256 ? 256 : (to->end + bytes) * 2;
        to->data = realloc(to->data, to->room);
        if (!to->data)
            abort();
    }
    memcpy(to->data + to->end, data, bytes);
    to->end += bytes;
}

static void pieces_send(struct sim_socket *to, size_t bytes, uint32_t hops)
{
    int pieces = sim_chance(net.settings.split_per_mille) ? (int)sim_between(2, PIECES_MAX) : 1;

    for (; bytes > 0; pieces--) {
        size_t piece = pieces > 1 && bytes > 1 ? sim_between(1, bytes - 1) : bytes;

        due(to, in_order(to, delay_ns()), piece_arrives, (uint64_t)hops << 32 | piece);
        bytes -= piece;
    }
}

static xcclResult_t data_fail(const struct sim_socket *it, const char *doing)
{
    char peer[XCCL_ADDR_TEXT_BYTES];

    xccl_addr_format(&it->there, peer);
    return xccl_fail_quietly(xcclRemoteError, it->err ? it->err : ECONNRESET, NULL, "%s %s failed",
                             doing, peer);
}

xcclResult_t xccl_tcp_send_some(int fd, const void *data, size_t bytes, size_t *moved_out)
{
    struct sim_socket *it = own_socket(fd);
    size_t moved = bytes;

    if (it->err || it->reset || it->closed)
        return data_fail(it, "sending to");
    *moved_out = 0;
    if (it->phase != CONNECTED)
        return xcclSuccess;
    if (moved > window_left(it))
        moved = window_left(it);
    if (moved == 0)
        return xcclSuccess;
    data_keep(it->other, data, moved);
    pieces_send(it->other, moved, net.hops[it->host] + 1);
    net.bytes += moved;
    *moved_out = moved;
    return xcclSuccess;
}

xcclResult_t xccl_tcp_recv_some(int fd, void *data, size_t bytes, size_t *moved_out)
{
    struct sim_socket *it = own_socket(fd);
    char peer[XCCL_ADDR_TEXT_BYTES];
    size_t moved = bytes < it->arrived ? bytes : it->arrived;
    int was_full;

    if (it->err || (bytes && !moved && it->reset))
        return data_fail(it, "receiving from");
    if (bytes && !moved && it->fin) {
        xccl_addr_format(&it->there, peer);
        return xccl_fail_quietly(xcclRemoteError, 0, NULL, "%s closed the connection", peer);
    }
    *moved_out = moved;
    if (moved == 0)
        return xcclSuccess;
    was_full = window_left(it->other) == 0;
    memcpy(data, it->data + it->at, moved);
    it->at += moved;
    it->arrived -= moved;
    if (it->at == it->end)
        it->at = it->end = 0;
    if (it->hops > net.hops[it->host])
        net.hops[it->host] = it->hops;
    if (was_full)
        due(it->other, delay_ns(), window_opens, 0);
    return xcclSuccess;
}

int xccl_tcp_has_ended(int fd)
{
    const struct sim_socket *it = own_socket(fd);

    return it->err || (!it->arrived && (it->reset || it->fin));
}

void xccl_tcp_peer_text(int fd, char text_out[XCCL_ADDR_TEXT_BYTES])
{
    xccl_addr_format(&socket_of(fd)->there, text_out);
}

/* --- for the loop and the scenarios --- */

uint32_t sim_socket_events(int fd)
{
    const struct sim_socket *it = socket_of(fd);
    uint32_t events = 0;

    if (it->phase == LISTENING)
        events = it->backlog_count ? EPOLLIN : 0;
    else if (it->err || it->reset)
        events = EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLRDHUP;
    else if (it->phase == CONNECTED)
        events = (it->arrived || it->fin ? EPOLLIN : 0u) | (it->fin ? EPOLLRDHUP : 0u) |
                 (window_left(it) ? EPOLLOUT : 0u);
    return events;
}

void sim_socket_watch(int fd, uint32_t idx)
{
    int place = fd - SIM_FIRST_FD;

    if (idx)
        own_socket(fd)->watch_idx = idx;
    else if (place >= 0 && place < net.count && net.sockets[place])
        net.sockets[place]->watch_idx = 0;
}

int sim_net_open(int host)
{
    int open = 0;

    for (int i = 0; i < net.hosts; i++)
        open += host < 0 || i == host ? net.open[i] : 0;
    return open;
}

void sim_net_describe(int host, char *text_out, size_t bytes)
{
    static const char *const names[] = {"connecting to", "with", "refused by", "listens, not"};
    size_t used = 0;

    text_out[0] = '\0';
    for (int i = 0; i < net.count && used < bytes; i++) {
        const struct sim_socket *it = net.sockets[i];
        char there[XCCL_ADDR_TEXT_BYTES];

        if (!it || it->host != host)
            continue;
        xccl_addr_format(&it->there, there);
        used += (size_t)snprintf(text_out + used, bytes - used, "; %s %s%s%s%s", names[it->phase],
                                 there, it->fin ? " ended" : "", it->reset ? " reset" : "",
                                 it->arrived ? " unread" : "");
    }
}

int sim_net_listener(uint64_t random, struct xccl_addr *addr_out)
{
    for (int i = 0; i < net.hosts; i++) {
        const struct sim_socket *it = net.listeners[(random + (uint64_t)i) % (uint64_t)net.hosts];

        if (!it)
            continue;
        *addr_out = it->here;
        return 1;
    }
    return 0;
}

uint32_t sim_net_hops(int host)
{
    return net.hops[host];
}

void sim_net_clear_hops(void)
{
    for (int i = 0; i < net.hosts; i++)
        net.hops[i] = 0;
    for (int i = 0; i < net.count; i++) {
        if (net.sockets[i])
            net.sockets[i]->hops = 0;
    }
}

uint64_t sim_net_connects(void)
{
    return net.connects;
}

uint64_t sim_net_bytes(void)
{
    return net.bytes;
}

void sim_net_reset(const struct sim_net_settings *settings, int hosts)
{
    net.settings = *settings;
    net.hosts = hosts;
    net.listeners = calloc((size_t)hosts, sizeof(struct sim_socket *));
    net.hops = calloc((size_t)hosts, sizeof(*net.hops));
    net.open = calloc((size_t)hosts, sizeof(*net.open));
    if (!net.listeners || !net.hops || !net.open)
        abort();
    net.lost_in_row = net.next_port = net.next_guest = 0;
    net.connects = net.bytes = 0;
}

void sim_net_fini(void)
{
    if (sim_net_open(-1))
        sim_fail("%d descriptors are left open", sim_net_open(-1));
    free(net.listeners);
    free(net.hops);
    free(net.open);
    free(net.sockets);
    free(net.free_fds);
    net.listeners = NULL;
    net.hops = NULL;
    net.open = NULL;
    net.sockets = NULL;
    net.free_fds = NULL;
    net.count = net.room = net.free_count = 0;
}

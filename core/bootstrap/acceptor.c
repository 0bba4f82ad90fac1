/* SPDX-License-Identifier: BSD-3-Clause */
/* Listening sockets and their unproven connections, as sources of one event loop. The sockets of an
 * acceptor, one an address, share a port and everything else.
 *
 *   stranger --hello right--> known --CONFIRM right--> on_conn()
 *      |  ^                     |
 *      |  +-- challenged        |
 *      +--------- 5 s, 60 s, a wrong byte, or pushed out by a newer one ----> closed
 *
 * Strangers share 256 places among all acceptors of a loop, known ones have 256 an acceptor. Who
 * is pushed out is the oldest of the source that holds the most (crowd.h). The kernel hands over
 * most connections together with their first bytes (TCP_DEFER_ACCEPT), and these are read at once:
 * so a rank is known before anybody can push it out, and who says something wrong takes no place.
 *
 * A right hello may be a recorded one. Right hellos are remembered (tags.h), and a repeated one is
 * closed at once. A recorded hello that is new here becomes known, and its sender then says nothing
 * more; so when the known fill their places and the next to go has not proven itself for 250 ms, or
 * when hellos had to be forgotten, the acceptor is wary: a right hello is answered by a challenge,
 * and its sender is a stranger until it has answered. Senders that have answered hold the key and
 * are there now; they have 256 places of their own. A rank that is pushed out before that tries
 * again.
 *
 * Thread: whoever drives the loop; open and close from any, through the loop's lock. Lock order:
 * halls_lock is taken alone or inside a loop's lock. */
#include "bootstrap/acceptor.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/tags.h"
#include "bootstrap/conn_int.h"
#include "bootstrap/crowd.h"

#define PLACES_MAX       256 /* the last one is for whoever is at the door */
#define PLACES_A_SOURCE  64 /* of strangers, while others are there */
#define GUEST_NS         (5 * XCCL_NS_PER_S)
#define KNOWN_NS         XCCL_NS_PER_S /* a known one's time to prove itself undisturbed */
#define SUSPECT_NS       (250 * XCCL_NS_PER_MS)
#define WARY_NS          (10 * XCCL_NS_PER_S) /* after the last reason to be so */
#define VERSION_EVERY_NS (60 * XCCL_NS_PER_S)
#define KNOWN_MAX_NS     (60 * XCCL_NS_PER_S) /* it holds the key: slow, starved perhaps */
#define LATE_NS          (200 * XCCL_NS_PER_MS) /* after what had come by then was read */
#define ACCEPTS_A_TURN   64
#define PAUSE_NS         (200 * XCCL_NS_PER_MS) /* after an error such as EMFILE */
#define STARVED_NS       (3 * XCCL_NS_PER_S) /* of such errors, until the owner hears of it */
#define SPARE_BYTES      (1u << 20) /* of addresses; nothing is written there */
#define PORT_TRIES       8 /* until one is free at all addresses */
#define REFUSAL_EVERY_NS XCCL_NS_PER_S

/* The strangers of all acceptors of one loop. */
struct hall {
    struct xccl_loop *loop;
    struct xccl_crowd strangers; /* guarded by the loop's lock */
    int acceptor_count;
    struct hall *next; /* halls */
};

static struct hall *halls; /* guarded by halls_lock */

/* A fork's child has the parent's acceptors but not its loop's thread: it starts with none. */
static void halls_forget(void)
{
    halls = NULL;
}

static struct xccl_lock halls_lock = XCCL_LOCK(halls_forget);

/* An unproven connection. */
struct guest {
    struct xccl_source source;
    struct xccl_acceptor *acceptor;
    struct xccl_conn *conn;
    struct xccl_addr from;
    struct xccl_crowd *crowd; /* NULL: in none */
    struct xccl_crowd_member member;
    uint64_t came_ns;
    int answered; /* a challenge */
    int proven; /* waits to be handed over */
    int late; /* its time is over, and it has been read since */
    struct guest *next, *prev; /* acceptor->guests */
};

struct xccl_acceptor {
    struct xccl_acceptor_args args;
    struct xccl_source doors[XCCL_DOORS_MAX]; /* the first one's timer opens all of them again */
    struct xccl_addr addrs[XCCL_DOORS_MAX];
    int door_count;
    struct hall *hall;
    struct xccl_crowd known, answered; /* answered: a challenge, and known therefore */
    struct xccl_tags heard; /* hellos with a right proof */
    uint64_t wary_until_ns;
    struct guest *guests; /* all of them */
    int closed; /* for want of places or descriptors */
    uint64_t starved_ns; /* since when none could be accepted; 0: it could */
    int is_starving_told; /* the owner knows, so who comes yet is let in, to be told */
    int spare_fd; /* for one connection when there are no descriptors left; -1: none */
    void *spare_memory; /* likewise, and for all that its words need; NULL: none */
    uint64_t refusal_told_ns, version_told_ns;
    unsigned refusals_untold;
};

static struct guest *guest_of(struct xccl_crowd_member *member)
{
    return (struct guest *)((char *)member - offsetof(struct guest, member));
}

/* NULL: no memory. */
static struct hall *hall_get(struct xccl_loop *loop)
{
    struct hall *hall;

    xccl_lock_take(&halls_lock);
    for (hall = halls; hall && hall->loop != loop; hall = hall->next)
        ;
    if (!hall) {
        hall = xccl_calloc(1, sizeof(*hall));
        if (hall) {
            hall->loop = loop;
            hall->next = halls;
            halls = hall;
        }
    }
    if (hall)
        hall->acceptor_count++;
    xccl_lock_give(&halls_lock);
    return hall;
}

static void hall_put(struct hall *hall)
{
    struct hall **at = &halls;

    xccl_lock_take(&halls_lock);
    if (--hall->acceptor_count == 0) {
        while (*at && *at != hall)
            at = &(*at)->next;
        if (*at)
            *at = hall->next;
        xccl_free(hall);
    }
    xccl_lock_give(&halls_lock);
}

static void guest_unlink(struct guest *guest)
{
    struct xccl_acceptor *acceptor = guest->acceptor;

    xccl_loop_remove(&guest->source);
    if (guest->crowd)
        xccl_crowd_remove(guest->crowd, &guest->member);
    guest->crowd = NULL;
    if (guest->prev)
        guest->prev->next = guest->next;
    else
        acceptor->guests = guest->next;
    if (guest->next)
        guest->next->prev = guest->prev;
    /* There is a place, and a descriptor, again: the door opens in the next turn. */
    if (acceptor->closed)
        xccl_loop_set_timer(&acceptor->doors[0], xccl_clock_ns());
}

/* Known: the hello's proof was right. On a Unix socket the user was checked before the first byte
 * (peer_user_fine()). */
static int guest_is_known(const struct guest *guest)
{
    return guest->acceptor->addrs[0].sa.any.sa_family == AF_UNIX ||
           xccl_conn_hello_seen(guest->conn);
}

static void guest_close(struct guest *guest)
{
    guest_unlink(guest);
    /* Reset: the kernel keeps nothing for a stranger. */
    if (!guest_is_known(guest) && !xccl_conn_was_told(guest->conn))
        xccl_tcp_reset_on_close(xccl_conn_fd(guest->conn));
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

/* Warns of a rank of another version, at most once a minute. Its proof cannot be checked; it was
 * told too. */
static void version_tell(struct xccl_acceptor *acceptor)
{
    uint64_t now_ns = xccl_clock_ns();

    if (acceptor->version_told_ns && now_ns - acceptor->version_told_ns < VERSION_EVERY_NS)
        return;
    acceptor->version_told_ns = now_ns;
    xccl_log(XCCL_LOG_WARN, "refused a connection: %s", xccl_error_text());
}

/* Closes a guest whose handshake failed; the thread's error text says how. */
static void guest_refuse(struct guest *guest)
{
    if (xccl_conn_other_version(guest->conn))
        version_tell(guest->acceptor);
    else
        refusal_tell(guest->acceptor, xccl_error_text());
    if (!xccl_conn_was_told(guest->conn))
        xccl_tcp_reset_on_close(xccl_conn_fd(guest->conn));
    guest_close(guest);
}

static void guest_push_out(struct xccl_acceptor *acceptor, struct xccl_crowd_member *member)
{
    refusal_tell(acceptor, "too many unproven connections");
    guest_close(guest_of(member));
}

/* The known one that may be pushed out when it has been there for so long; NULL: none. *due_ns_out:
 * when there will be one. */
static struct xccl_crowd_member *known_to_go(const struct xccl_acceptor *acceptor, uint64_t age_ns,
                                             uint64_t *due_ns_out)
{
    struct xccl_crowd_member *member = xccl_crowd_first_to_go(&acceptor->known);
    uint64_t now_ns = xccl_clock_ns();

    *due_ns_out = now_ns + PAUSE_NS;
    if (!member)
        return NULL;
    *due_ns_out = guest_of(member)->came_ns + age_ns;
    return *due_ns_out <= now_ns ? member : NULL;
}

/* Whether right hellos may be recorded ones. */
static int is_wary(struct xccl_acceptor *acceptor)
{
    uint64_t due_ns;

    if (acceptor->heard.forgot)
        return 1;
    if (acceptor->known.count >= PLACES_MAX - 1 && known_to_go(acceptor, SUSPECT_NS, &due_ns))
        acceptor->wary_until_ns = xccl_clock_ns() + WARY_NS;
    return xccl_clock_ns() < acceptor->wary_until_ns;
}

/* Judges a hello with a right proof. One that answers a challenge fits this connection alone, so it
 * need not be remembered. */
static enum xccl_channel_opinion guest_judge(void *owner, uint64_t tag, int answered)
{
    struct guest *guest = owner;
    struct xccl_acceptor *acceptor = guest->acceptor;
    enum xccl_tags_answer answer;

    guest->answered = answered;
    if (answered)
        return XCCL_OPINION_FINE;
    answer = xccl_tags_add(&acceptor->heard, tag);
    if (answer == XCCL_TAGS_SEEN)
        return XCCL_OPINION_REPLAY;
    return answer == XCCL_TAGS_NO_MEMORY || is_wary(acceptor) ? XCCL_OPINION_CHALLENGE
                                                              : XCCL_OPINION_FINE;
}

static struct xccl_crowd *crowd_for(const struct guest *guest)
{
    struct xccl_acceptor *acceptor = guest->acceptor;

    if (!guest_is_known(guest))
        return &acceptor->hall->strangers;
    return guest->answered ? &acceptor->answered : &acceptor->known;
}

/* Pushes out one of a crowd that is full; the guest is the youngest, so it stays. */
static void make_place(const struct guest *guest, const struct xccl_crowd *crowd)
{
    struct xccl_acceptor *acceptor = guest->acceptor;
    uint64_t due_ns;

    if (crowd == &acceptor->known) {
        /* Not one that came just now, most likely a rank. The door is shut meanwhile, so there are
         * never more than the strangers that were inside become known. */
        struct xccl_crowd_member *old = known_to_go(acceptor, KNOWN_NS, &due_ns);

        if (old)
            guest_push_out(acceptor, old);
    } else if (crowd != &acceptor->answered) {
        guest_push_out(acceptor, xccl_crowd_first_to_go(crowd));
    }
}

/* Takes a place among the strangers or the known, whose first check has been passed. Others may be
 * pushed out; the newcomer never is, for it is the youngest. */
static xcclResult_t guest_take_place(struct guest *guest)
{
    struct xccl_acceptor *acceptor = guest->acceptor;
    struct xccl_crowd *crowd = crowd_for(guest);
    xcclResult_t rc;

    if (guest->crowd == crowd)
        return xcclSuccess;
    if (guest->crowd)
        xccl_crowd_remove(guest->crowd, &guest->member);
    guest->crowd = NULL;
    rc = xccl_crowd_add(crowd, &guest->member, &guest->from);
    if (rc)
        return rc;
    guest->crowd = crowd;
    if (xccl_conn_hello_seen(guest->conn)) {
        guest->late = 0;
        xccl_loop_set_timer(&guest->source, guest->came_ns + KNOWN_MAX_NS);
    }
    if (crowd->count >= PLACES_MAX)
        make_place(guest, crowd);
    else if (!guest_is_known(guest) && crowd->origin_count > 1 &&
             xccl_crowd_count_beside(&guest->member) > PLACES_A_SOURCE)
        guest_push_out(acceptor, xccl_crowd_oldest_beside(&guest->member));
    return xcclSuccess;
}

/* Hands a proven connection over; the acceptor may be gone when this returns. */
static void guest_hand_over(struct guest *guest)
{
    struct xccl_acceptor *acceptor = guest->acceptor;
    struct xccl_conn *conn = guest->conn;

    guest_unlink(guest);
    xccl_free(guest);
    acceptor->args.on_conn(acceptor->args.owner, conn);
}

static void guest_on_events(struct xccl_source *source, uint32_t events)
{
    struct guest *guest = source->owner;
    int done = 0;
    xcclResult_t rc;

    (void)events;
    rc = xccl_conn_shake(guest->conn, &done);
    if (!rc && done) {
        guest_hand_over(guest);
        return;
    }
    if (!rc)
        rc = xccl_loop_set_events(&guest->source, xccl_conn_shake_events(guest->conn));
    if (!rc)
        rc = guest_take_place(guest);
    if (rc)
        guest_refuse(guest);
}

static void guest_on_timer(struct xccl_source *source, uint64_t now_ns)
{
    struct guest *guest = source->owner;

    if (guest->proven) {
        guest_hand_over(guest);
        return;
    }
    /* A loop that was given no time has not read everybody yet. */
    if (!guest->late) {
        guest->late = 1;
        xccl_loop_set_timer(source, now_ns + LATE_NS);
        guest_on_events(source, 0);
        return;
    }
    refusal_tell(guest->acceptor, xccl_conn_hello_seen(guest->conn) ? "no proof within 60 s"
                                                                    : "no proof within 5 s");
    guest_close(guest);
}

/* A Unix socket tells who is there: only our own user, or root, may go on. */
static int peer_user_fine(const struct xccl_acceptor *acceptor, int fd)
{
    struct ucred cred = {0};
    socklen_t bytes = sizeof(cred);

    if (acceptor->addrs[0].sa.any.sa_family != AF_UNIX)
        return 1;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &bytes) != 0)
        return 0;
    return cred.uid == geteuid() || cred.uid == 0;
}

/* Reads what came along. One that is proven already is handed over by its timer in the next turn of
 * the loop, never from here: on_conn() may close the acceptor. */
static xcclResult_t guest_settle(struct guest *guest)
{
    int done = 0;
    xcclResult_t rc = xccl_conn_shake(guest->conn, &done);

    if (rc)
        return rc;
    guest->proven = done;
    guest->source.events = done ? 0 : xccl_conn_shake_events(guest->conn);
    guest->came_ns = xccl_clock_ns();
    guest->source.timer_ns = done ? guest->came_ns : guest->came_ns + GUEST_NS;
    rc = xccl_loop_add(guest->acceptor->args.loop, &guest->source);
    if (!rc && !done)
        rc = guest_take_place(guest);
    return rc;
}

/* Until a guest goes, or the time comes. */
static void acceptor_shut(struct xccl_acceptor *acceptor, uint64_t until_ns)
{
    for (int i = 0; i < acceptor->door_count; i++)
        (void)xccl_loop_set_events(&acceptor->doors[i], 0);
    xccl_loop_set_timer(&acceptor->doors[0], until_ns);
    acceptor->closed = 1;
}

static void spare_open_fd(struct xccl_acceptor *acceptor)
{
    if (acceptor->args.on_starved && acceptor->spare_fd < 0)
        acceptor->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void spare_open_memory(struct xccl_acceptor *acceptor)
{
    void *memory;

    if (!acceptor->args.on_starved || acceptor->spare_memory)
        return;
    memory = mmap(NULL, SPARE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    acceptor->spare_memory = memory == MAP_FAILED ? NULL : memory;
}

/* 1: there is a descriptor for one more, who can be told at least. */
static int spare_use_fd(struct xccl_acceptor *acceptor)
{
    if (acceptor->spare_fd < 0)
        return 0;
    close(acceptor->spare_fd);
    acceptor->spare_fd = -1;
    return 1;
}

/* 1: there is memory for one more. */
static int spare_use_memory(struct xccl_acceptor *acceptor)
{
    if (!acceptor->spare_memory)
        return 0;
    munmap(acceptor->spare_memory, SPARE_BYTES);
    acceptor->spare_memory = NULL;
    return 1;
}

/* None can be accepted, for the reason in the thread's error text. Asking again at once would only
 * spin. */
static void acceptor_starve(struct xccl_acceptor *acceptor, const char *todo)
{
    uint64_t now_ns = xccl_clock_ns();

    if (!acceptor->starved_ns)
        acceptor->starved_ns = now_ns;
    if (acceptor->args.on_starved && now_ns >= acceptor->starved_ns + STARVED_NS) {
        acceptor->starved_ns = now_ns;
        acceptor->is_starving_told = 1;
        acceptor->args.on_starved(acceptor->args.owner, xccl_error_text(), todo);
    }
    acceptor_shut(acceptor, now_ns + PAUSE_NS);
}

/* One was accepted. Where there is room for the next one as well, the want is over. */
static void acceptor_fed(struct xccl_acceptor *acceptor)
{
    spare_open_fd(acceptor);
    if (acceptor->spare_fd < 0 || !acceptor->spare_memory)
        return;
    acceptor->starved_ns = 0;
    acceptor->is_starving_told = 0;
}

/* 0: there is no memory for one more, and the thread's error text says so. */
static int has_memory(struct xccl_acceptor *acceptor)
{
    spare_open_memory(acceptor);
    if (!acceptor->args.on_starved || acceptor->spare_memory || acceptor->is_starving_told)
        return 1;
    (void)xccl_fail_quietly(xcclSystemError, ENOMEM, NULL, "no memory for one more connection");
    return 0;
}

/* NULL: no memory; fd is the caller's then. */
static struct guest *guest_make(struct xccl_acceptor *acceptor, int fd)
{
    struct xccl_hello self = {.rank = acceptor->args.rank, .nranks = acceptor->args.nranks};
    struct guest *guest = xccl_calloc(1, sizeof(*guest));
    struct xccl_channel_policy policy = {.any_comm_id = acceptor->args.any_comm_id,
                                         .any_target = acceptor->args.any_target,
                                         .judge = guest_judge,
                                         .owner = guest};

    if (!guest)
        return NULL;
    memcpy(self.comm_id, acceptor->args.comm_id, sizeof(self.comm_id));
    if (xccl_conn_adopt(fd, acceptor->args.key, &self, &policy, &guest->conn)) {
        xccl_free(guest);
        return NULL;
    }
    return guest;
}

/* Takes fd over. */
static void guest_add(struct xccl_acceptor *acceptor, int fd, const struct xccl_addr *from)
{
    struct guest *guest = guest_make(acceptor, fd);

    if (!guest && spare_use_memory(acceptor))
        guest = guest_make(acceptor, fd);
    if (!guest) {
        xccl_tcp_close(&fd);
        return;
    }
    guest->acceptor = acceptor;
    guest->from = *from;
    guest->source.fd = fd;
    guest->source.on_events = guest_on_events;
    guest->source.on_timer = guest_on_timer;
    guest->source.owner = guest;
    guest->next = acceptor->guests;
    if (acceptor->guests)
        acceptor->guests->prev = guest;
    acceptor->guests = guest;
    if (guest_settle(guest) != xcclSuccess)
        guest_refuse(guest);
}

/* Out of descriptors, most likely: strangers give theirs back, the most suspicious first, so that
 * ranks still get in. 0: there was nobody to push out. */
static int acceptor_make_room(struct xccl_acceptor *acceptor)
{
    struct xccl_crowd_member *member = xccl_crowd_first_to_go(&acceptor->hall->strangers);
    uint64_t due_ns;

    if (!member)
        member = known_to_go(acceptor, KNOWN_NS, &due_ns);
    refusal_tell(acceptor, xccl_error_text());
    if (!member)
        return 0;
    guest_close(guest_of(member));
    return 1;
}

/* Returns 1 when there are places for those who may become known. When many ranks connect at the
 * same time, the last ones wait in the kernel. */
static int door_may_open(struct xccl_acceptor *acceptor, uint64_t *due_ns_out)
{
    *due_ns_out = xccl_clock_ns() + PAUSE_NS;
    if (acceptor->answered.count >= PLACES_MAX)
        return 0;
    return acceptor->known.count < PLACES_MAX - 1 || is_wary(acceptor) ||
           known_to_go(acceptor, SUSPECT_NS, due_ns_out);
}

static void acceptor_on_events(struct xccl_source *source, uint32_t events)
{
    struct xccl_acceptor *acceptor = source->owner;

    (void)events;
    for (int i = 0; i < ACCEPTS_A_TURN; i++) {
        struct xccl_addr from = {0};
        uint64_t due_ns = 0;
        int fd = -1;

        if (!door_may_open(acceptor, &due_ns)) {
            acceptor_shut(acceptor, due_ns);
            return;
        }
        if (!has_memory(acceptor)) {
            acceptor_starve(acceptor, "free memory there, or raise its limit");
            return;
        }
        if (xccl_tcp_accept(source->fd, &fd, &from) != xcclSuccess) {
            if (acceptor_make_room(acceptor) || spare_use_fd(acceptor))
                continue;
            acceptor_starve(acceptor, "raise ulimit -n there, or close descriptors");
            return;
        }
        if (fd < 0)
            return;
        if (!peer_user_fine(acceptor, fd)) {
            refusal_tell(acceptor, "a process of another user");
            xccl_tcp_close(&fd);
            continue;
        }
        acceptor_fed(acceptor);
        guest_add(acceptor, fd, &from);
    }
}

static void acceptor_on_timer(struct xccl_source *source, uint64_t now_ns)
{
    struct xccl_acceptor *acceptor = source->owner;

    xcclResult_t rc = xcclSuccess;

    acceptor->closed = 0;
    if (!acceptor->starved_ns)
        spare_open_fd(acceptor);
    for (int i = 0; i < acceptor->door_count && !rc; i++)
        rc = xccl_loop_set_events(&acceptor->doors[i], EPOLLIN);
    if (rc)
        acceptor_shut(acceptor, now_ns + PAUSE_NS);
}

static void doors_close(struct xccl_acceptor *acceptor)
{
    for (int i = 0; i < acceptor->door_count; i++)
        xccl_tcp_close(&acceptor->doors[i].fd);
    acceptor->door_count = 0;
}

static xcclResult_t door_listen(struct xccl_acceptor *acceptor, const struct xccl_addr *addr,
                                int quietly)
{
    int i = acceptor->door_count;
    struct xccl_source *door = &acceptor->doors[i];
    xcclResult_t rc = quietly ? xccl_tcp_listen_quietly(addr, &door->fd, &acceptor->addrs[i])
                              : xccl_tcp_listen(addr, &door->fd, &acceptor->addrs[i]);

    if (rc)
        return rc;
    door->events = EPOLLIN;
    door->timer_ns = XCCL_NEVER_NS;
    door->on_events = acceptor_on_events;
    door->on_timer = acceptor_on_timer;
    door->owner = acceptor;
    acceptor->door_count++;
    return xcclSuccess;
}

/* Listens at all addresses, on one port. A port that is free at one address may be taken at
 * another, so several are tried before an address is left out. */
static xcclResult_t doors_listen(struct xccl_acceptor *acceptor)
{
    const struct xccl_acceptor_args *args = &acceptor->args;
    int tries = args->more_count && !xccl_addr_port(&args->addr) ? PORT_TRIES : 1, missed = 1;
    xcclResult_t rc = xcclSuccess;

    for (int try = 0; try < tries && missed && !rc; try++) {
        missed = 0;
        doors_close(acceptor);
        rc = door_listen(acceptor, &args->addr, 0);
        for (int i = 0; i < args->more_count && !rc; i++) {
            struct xccl_addr addr = args->more[i];

            xccl_addr_set_port(&addr, xccl_addr_port(&acceptor->addrs[0]));
            missed += door_listen(acceptor, &addr, 1) != xcclSuccess;
        }
    }
    if (!rc && missed)
        xccl_log(XCCL_LOG_INFO, "ranks cannot come in at every interface: %s", xccl_error_text());
    return rc;
}

/* Undone by the caller on failure. */
static xcclResult_t doors_add(struct xccl_acceptor *acceptor)
{
    xcclResult_t rc = xcclSuccess;

    for (int i = 0; i < acceptor->door_count && !rc; i++)
        rc = xccl_loop_add(acceptor->args.loop, &acceptor->doors[i]);
    return rc;
}

static void doors_remove(struct xccl_acceptor *acceptor)
{
    for (int i = 0; i < acceptor->door_count; i++)
        xccl_loop_remove(&acceptor->doors[i]);
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
    acceptor->spare_fd = -1;
    spare_open_fd(acceptor);
    spare_open_memory(acceptor);
    acceptor->hall = hall_get(args->loop);
    if (!acceptor->hall) {
        rc = xcclSystemError;
        goto err_acceptor;
    }
    rc = doors_listen(acceptor);
    if (rc)
        goto err_hall;
    /* The caller sees its acceptor before the first connection does. */
    xccl_loop_lock(args->loop);
    *acceptor_out = acceptor;
    rc = doors_add(acceptor);
    if (rc) {
        doors_remove(acceptor);
        *acceptor_out = NULL;
    }
    xccl_loop_unlock(args->loop);
    if (rc)
        goto err_hall;
    return xcclSuccess;
err_hall:
    doors_close(acceptor);
    hall_put(acceptor->hall);
err_acceptor:
    (void)spare_use_fd(acceptor);
    (void)spare_use_memory(acceptor);
    sodium_memzero(acceptor->args.key, sizeof(acceptor->args.key));
    xccl_free(acceptor);
    return rc;
}

const struct xccl_addr *xccl_acceptor_addr(const struct xccl_acceptor *acceptor)
{
    return &acceptor->addrs[0];
}

int xccl_acceptor_addrs(const struct xccl_acceptor *acceptor,
                        struct xccl_addr addrs_out[XCCL_DOORS_MAX])
{
    memcpy(addrs_out, acceptor->addrs, sizeof(acceptor->addrs));
    return acceptor->door_count;
}

void xccl_acceptor_set_rank(struct xccl_acceptor *acceptor, uint32_t rank, uint32_t nranks)
{
    acceptor->args.rank = rank;
    acceptor->args.nranks = nranks;
    acceptor->args.any_target = 0;
}

void xccl_acceptor_close(struct xccl_acceptor *acceptor)
{
    struct xccl_loop *loop;

    if (!acceptor)
        return;
    loop = acceptor->args.loop;
    xccl_loop_lock(loop);
    doors_remove(acceptor);
    while (acceptor->guests)
        guest_close(acceptor->guests);
    xccl_loop_unlock(loop);
    hall_put(acceptor->hall);
    doors_close(acceptor);
    (void)spare_use_fd(acceptor);
    (void)spare_use_memory(acceptor);
    xccl_tags_fini(&acceptor->heard);
    sodium_memzero(acceptor->args.key, sizeof(acceptor->args.key));
    xccl_free(acceptor);
}

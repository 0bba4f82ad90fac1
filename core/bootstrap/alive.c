/* SPDX-License-Identifier: BSD-3-Clause */
/* When a sign of life is due on a connection, and when the other end has been silent for too long.
 *
 * A process that was away itself (stopped, starved) listens for a while before it judges others,
 * and learns meanwhile that it was given up.
 *
 * Thread: see the header. */
#include "bootstrap/alive.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/os.h"
#include "base/param.h"

#define SILENT_BEATS  4
#define STARVED_BEATS 30 /* of a process that is seen to run */

static void self_get(uint32_t rank, struct xccl_boot_who *who_out)
{
    memset(who_out, 0, sizeof(*who_out));
    if (xccl_os_process_id(&who_out->process_id))
        who_out->process_id = 0; /* then nobody takes it for the same one */
    who_out->host_hash = xccl_os_host_hash();
    who_out->pid = (uint32_t)getpid();
    who_out->rank = rank;
    snprintf(who_out->host, sizeof(who_out->host), "%s", xccl_os_hostname());
}

void xccl_alive_say(const struct xccl_alive *alive, struct xccl_conn *conn, uint32_t rank)
{
    struct xccl_boot_who who;
    uint8_t body[XCCL_BOOT_ALIVE_MAX];

    self_get(rank, &who);
    who.beat_ms = (uint32_t)(alive->beat_ns / XCCL_NS_PER_MS);
    (void)xccl_conn_queue(conn, XCCL_BOOT_ALIVE, body, xccl_boot_alive_encode(&who, body));
}

uint64_t xccl_alive_begin(struct xccl_alive *alive, struct xccl_conn *conn, uint32_t rank)
{
    alive->beat_ns = (uint64_t)xccl_param_int(XCCL_P_HEARTBEAT_S) * XCCL_NS_PER_S;
    alive->heard_ns = xccl_clock_ns();
    alive->due_ns = alive->look_ns = alive->beat_ns ? alive->heard_ns + alive->beat_ns
                                                    : XCCL_NEVER_NS;
    xccl_alive_say(alive, conn, rank);
    return alive->look_ns;
}

void xccl_alive_hear(struct xccl_alive *alive)
{
    alive->heard_ns = xccl_clock_ns();
}

int xccl_alive_take(struct xccl_alive *alive, const struct xccl_frame *frame)
{
    if (xccl_boot_alive_decode(frame->body, frame->bytes, &alive->who) != 0)
        return -1;
    alive->known = 1;
    return 0;
}

int xccl_alive_is_here(const struct xccl_alive *alive)
{
    struct xccl_boot_who self;

    if (!alive->known || !alive->who.process_id)
        return 0;
    self_get(0, &self);
    return self.process_id == alive->who.process_id;
}

/* The heartbeat that the other end has promised, if this end watches at all; before it has said
 * anything, the own one. */
static uint64_t promised_ns(const struct xccl_alive *alive)
{
    if (!alive->beat_ns || !alive->known)
        return alive->beat_ns;
    return alive->who.beat_ms * XCCL_NS_PER_MS;
}

/* On a crowded machine a process may get no time for seconds. */
static int may_be_starved(const struct xccl_alive *alive)
{
    return !alive->known ||
           (alive->who.host_hash == xccl_os_host_hash() && xccl_os_process_runs(alive->who.pid));
}

static int is_silent(const struct xccl_alive *alive, uint64_t now_ns)
{
    uint64_t beat_ns = promised_ns(alive);

    if (!beat_ns || now_ns < alive->heard_ns + SILENT_BEATS * beat_ns)
        return 0;
    return now_ns >= alive->heard_ns + STARVED_BEATS * beat_ns || !may_be_starved(alive);
}

int xccl_alive_turn(struct xccl_alive *alive, struct xccl_conn *conn, uint32_t rank,
                    uint64_t now_ns, uint64_t *next_ns_out)
{
    uint64_t silent_ns;

    *next_ns_out = XCCL_NEVER_NS;
    if (!alive->beat_ns || xccl_alive_is_here(alive))
        return 0;
    if (now_ns > alive->look_ns + alive->beat_ns / 2)
        alive->heard_ns = now_ns; /* this process was away itself */
    if (is_silent(alive, now_ns))
        return 1;
    if (now_ns >= alive->due_ns) {
        xccl_alive_say(alive, conn, rank);
        alive->due_ns = now_ns + alive->beat_ns;
    }
    alive->look_ns = alive->due_ns;
    silent_ns = alive->heard_ns + SILENT_BEATS * promised_ns(alive);
    if (promised_ns(alive) && silent_ns > now_ns && silent_ns < alive->look_ns)
        alive->look_ns = silent_ns;
    *next_ns_out = alive->look_ns;
    return 0;
}

int xccl_alive_is_weak(const struct xccl_alive *alive, uint64_t now_ns)
{
    uint64_t beat_ns = promised_ns(alive);

    return beat_ns && alive->known && !xccl_alive_is_here(alive) &&
           now_ns > alive->heard_ns + 2 * beat_ns;
}

void xccl_alive_name(uint32_t rank, const struct xccl_boot_who *who,
                     char text_out[XCCL_BOOT_NAME_BYTES])
{
    if (who)
        snprintf(text_out, XCCL_BOOT_NAME_BYTES, "rank %u (host %s, pid %u)", rank, who->host,
                 who->pid);
    else
        snprintf(text_out, XCCL_BOOT_NAME_BYTES, "rank %u", rank);
}

int xccl_alive_find_self(const void *owner, int rank, struct xccl_rank_place *place_out)
{
    struct xccl_boot_who who;

    (void)owner;
    self_get((uint32_t)rank, &who);
    snprintf(place_out->host, sizeof(place_out->host), "%.63s", who.host);
    place_out->pid = who.pid;
    return 1;
}

int xccl_alive_is_given_up(const char *error, const char *self)
{
    const char *process = strchr(self, '('), *at = process ? strstr(error, process) : NULL;

    if (!at)
        return 0;
    at += strlen(process);
    if (strncmp(at, " at ", 4) == 0) /* an address */
        at += 4 + strcspn(at + 4, " ");
    return strncmp(at, " " XCCL_SILENT_TEXT, sizeof(XCCL_SILENT_TEXT)) == 0;
}

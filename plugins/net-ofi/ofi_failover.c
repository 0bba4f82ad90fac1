/* SPDX-License-Identifier: BSD-3-Clause */
/* A rail that fails drops out of its connection, and the others go on with what was under way.
 *
 *   who notices                                   the other end
 *   an error of an operation or of the queue:
 *     nothing is given to that rail any more
 *     0.05 s, in which the peer may say that it
 *     leaves, for that looks alike
 *   FAILS r (control connection) ------------->   the same, at once
 *   takes what its queue has, closes the          takes what its queue has, closes the
 *     endpoint                                      endpoint
 *   HAS m, for each message of the window of      ENDED r
 *     which something has come (receiver)
 *   ENDED r
 *   both said and heard: gone. The sender gives what went by r and has not come to other rails, the
 *   receiver awaits it there. Home of a message is the next rail that is not gone, so both ends
 *   agree without a word; what has a home that is ending waits until it is gone.
 *
 * Why nothing is lost: a provider calls a send complete whose bytes may be in a socket that dies.
 * So with several rails a send is done when the receiver has counted it: it tells of the first
 * message that has not come whole, as soon as that changes, and in a group of each one, for the
 * numbers there are not in the order of the sends. What is not counted is still the plugin's.
 *
 * Why nothing comes twice, and nothing late into memory that was given back: what the receiver has
 * is told after its endpoint is closed. By a closed endpoint nothing is received and no peer writes
 * (fi_endpoint(3): "Outstanding operations posted to the endpoint when fi_close is called will be
 * discarded"; a card drops what is for it, a socket is closed): so what HAS says of r is final, and
 * only what has not come, of messages that are not done, is given once more, by another rail. Its
 * receive is still the plugin's, and the first attempt can land nowhere, whatever of it is still in
 * the network or with the sender's card. The sender's memory is read until its own endpoint is
 * closed: its operations count as over, and the send may be done, only then. Notes alone may come
 * twice: they say the same again.
 *
 * The last rail's error ends the comm, as the only one's does. So does what hurts memory and not
 * the way (a key that is refused), any rail's of some providers (cannot_carry_on() below), and any
 * rail's where messages have been received into the memory of a device: what it has brought there
 * nobody else can flush (ofi_flush.c). A provider that binds registrations to endpoints
 * (FI_MR_ENDPOINT) does not let them close before those, which are the caller's: there an error
 * ends the comm. A rail does not come back. Thread: the comm's; nothing here is on the way of a
 * message. */
#include <stdio.h>
#include <string.h>

#include "ofi_int.h"

#define DOUBT_NS  (50 * XCCL_NS_PER_MS)
#define DRAINS    1024 /* looks at a queue, each of which brings something */
#define HAS_SHIFT 17 /* a message's number; below the head and pieces of it that have come */

static_assert(OFI_PIECES_MAX == 16 && OFI_HAS_HEAD == 1u << OFI_PIECES_MAX, "17 bits");
static_assert(OFI_TAG_NUMBER >> (32 - HAS_SHIFT) == 0, "and the number's 15");

int ofi_failover_can(const struct ofi_device *device)
{
    return device->member_count > 1 && !(device->info->domain_attr->mr_mode & FI_MR_ENDPOINT);
}

static uint32_t all_rails(const struct ofi_comm *comm)
{
    return (1u << comm->rail_count) - 1;
}

/* 1: net and tcp, which are one provider by two names, may read nothing any more behind a large
 * message that has come before its receive (up to libfabric 1.18; ofiwg/libfabric pull request
 * 8920). What a lost rail has not brought goes once more behind just those: the size that tells the
 * receiver of pieces which another rail has brought. And ofi_rxd bears no receive behind that of a
 * later message, as what goes once more has. */
static int cannot_carry_on(const struct ofi_comm *comm)
{
    const char *provider = comm->device->info->fabric_attr->prov_name;

    return comm->in_order || comm->drops || strcmp(provider, "tcp") == 0;
}

/* 1: the comm cannot do without those that have failed. */
static int is_last(const struct ofi_comm *comm)
{
    uint32_t failed = comm->failover.failed;

    return failed == all_rails(comm) || (failed && cannot_carry_on(comm)) ||
           (failed & ~ofi_failover_closed(comm) && ofi_flush_is_needed(comm));
}

/* Why not, to whom the peer has said that a rail fails. */
static const char *why_last(const struct ofi_comm *comm)
{
    if (comm->failover.failed == all_rails(comm))
        return "the peer has given up the last rail";
    if (cannot_carry_on(comm))
        return "the peer has given up this rail, and over this provider no other one can take what "
               "it has not brought";
    return "the peer has given up this rail, and no other one can flush what it has brought into "
           "the memory of a device";
}

uint32_t ofi_failover_home(const struct ofi_comm *comm, uint32_t number)
{
    uint32_t failed = comm->failover.failed, rail = number % comm->rail_count;

    if (!failed)
        return rail;
    for (uint32_t i = 0; i < comm->rail_count; i++, rail = (rail + 1) % comm->rail_count) {
        if (!(comm->failover.gone >> rail & 1))
            return failed >> rail & 1 ? OFI_RAILS_MAX : rail;
    }
    return OFI_RAILS_MAX;
}

uint32_t ofi_failover_next(const struct ofi_comm *comm, uint32_t number)
{
    uint32_t failed = comm->failover.failed, rail = OFI_RAILS_MAX;

    for (uint32_t i = 0; i < comm->rail_count; i++) {
        uint32_t at = (number + i) % comm->rail_count;

        if (failed >> at & 1)
            continue;
        if (!(comm->failover.doubted >> at & 1))
            return at;
        rail = rail == OFI_RAILS_MAX ? at : rail;
    }
    return rail;
}

/* --- an error --- */

static void doubt(struct ofi_comm *comm, uint32_t rail, int err, const char *detail)
{
    struct ofi_failover *over = &comm->failover;

    if (over->doubted >> rail & 1)
        return;
    over->doubted |= 1u << rail;
    over->since_ns[rail] = xccl_clock_ns();
    over->err[rail] = err;
    snprintf(over->detail[rail], sizeof(over->detail[rail]), "%s", detail);
}

/* 0: it hurts memory, by whatever way. */
static int is_of_way(int err)
{
    return err != FI_EACCES && err != FI_EKEYREJECTED;
}

/* A sender that is not up yet comes once more, without that rail. */
static int may_drop_out(const struct ofi_comm *comm)
{
    return comm->failover.on && (comm->is_up || !comm->is_send);
}

int ofi_failover_doubt(struct ofi_comm *comm, uint32_t rail, int err)
{
    uint32_t others = all_rails(comm) & ~(comm->failover.failed | 1u << rail);

    if (!may_drop_out(comm) || comm->peer_left || !others || !is_of_way(err))
        return 0;
    doubt(comm, rail, err, "");
    return 1;
}

void ofi_failover_fail(struct ofi_comm *comm, uint32_t rail, int err, const char *doing,
                       const char *detail)
{
    struct ofi_failover *over = &comm->failover;

    if (over->on && over->failed >> rail & 1)
        return; /* it is what follows */
    if (may_drop_out(comm) && is_of_way(err)) {
        doubt(comm, rail, err, detail);
        over->failed |= 1u << rail;
        if (!is_last(comm))
            return;
        if (!comm->is_up) /* a sender that comes once more may have said by which it does not */
            ofi_control_look(comm);
        if (comm->rc != xcclSuccess)
            return;
        ofi_control_fails(comm, rail);
    }
    ofi_comm_fail_rail(comm, &comm->rails[rail], err, doing, detail);
}

int ofi_failover_heard(struct ofi_comm *comm, uint32_t rail, int ended)
{
    struct ofi_failover *over = &comm->failover;

    if (!over->on || rail >= comm->rail_count || over->ended >> rail & 1)
        return 0;
    if (!may_drop_out(comm)) {
        ofi_comm_fail_rail(comm, &comm->rails[rail], FI_ECONNABORTED, "connecting to",
                           "the peer has dropped this rail");
        return 1;
    }
    doubt(comm, rail, FI_ECONNABORTED, "the peer has dropped this rail");
    over->failed |= 1u << rail;
    over->heard |= 1u << rail;
    over->ended |= (uint32_t)(ended != 0) << rail;
    if (is_last(comm))
        ofi_comm_fail_rail(comm, &comm->rails[rail], FI_ECONNABORTED,
                           comm->is_send ? "sending to" : "receiving from", why_last(comm));
    return 1;
}

uint32_t ofi_failover_bad(const struct ofi_comm *comm)
{
    const struct ofi_failover *over = &comm->failover;
    uint32_t bad = over->failed & (over->heard | ofi_failover_closed(comm));
    uint64_t now_ns = xccl_clock_ns();

    for (uint32_t i = 0; i < comm->rail_count; i++) {
        if (over->failed >> i & 1 && now_ns - over->since_ns[i] >= DOUBT_NS)
            bad |= 1u << i;
    }
    return bad;
}

/* --- closing --- */

static void drain(struct ofi_comm *comm, uint32_t rail)
{
    for (int i = 0; i < DRAINS && comm->rc == xcclSuccess; i++) {
        if (ofi_request_poll_rail(comm, rail) == 0)
            return;
    }
}

static void close_rail(struct ofi_comm *comm, uint32_t rail)
{
    ofi_control_fails(comm, rail);
    drain(comm, rail);
    ofi_comm_close_rail(comm, &comm->rails[rail]);
    /* Relaxed: a registration that comes too late for it does no harm. */
    atomic_store_explicit(&comm->failover.closed, ofi_failover_closed(comm) | 1u << rail,
                          memory_order_relaxed);
    ofi_request_over(comm, rail);
    ofi_piece_over(comm, rail);
    ofi_note_over(comm, rail);
}

/* 1: everything has been said. What is true stays so, and may be said again. From what the sender
 * knows to have come: no more than a window from there can have, in parts of its last group. */
static int tell_what_came(struct ofi_comm *comm)
{
    for (uint32_t i = 0; i < OFI_WINDOW + OFI_PARTS && !comm->is_send; i++) {
        uint32_t number = comm->counted + i, has;

        if ((int32_t)(number - comm->posted) >= 0)
            return 1;
        has = ofi_request_has(comm, number);
        if (has && !ofi_control_has(comm, (number & OFI_TAG_NUMBER) << HAS_SHIFT | has))
            return 0;
    }
    return 1;
}

void ofi_failover_tell(struct ofi_comm *comm, uint32_t number)
{
    uint32_t what = (number & OFI_TAG_NUMBER) << HAS_SHIFT | OFI_HAS_ALL;

    comm->failover.owes |= !ofi_control_has(comm, what);
}

int ofi_failover_has(struct ofi_comm *comm, uint32_t what)
{
    uint32_t ahead = ((what >> HAS_SHIFT) - comm->counted) & OFI_TAG_NUMBER;

    if (!comm->failover.on)
        return 0;
    if (ahead < OFI_MESSAGES)
        ofi_request_arrived(comm, comm->counted + ahead, what & OFI_HAS_ALL);
    return 1;
}

/* --- gone --- */

static void warn(const struct ofi_comm *comm, uint32_t rail, uint32_t again)
{
    const char *detail = comm->failover.detail[rail];
    char line[OFI_TEXT_BYTES];

    if (!comm->ctx->log)
        return;
    snprintf(line, sizeof(line),
             "rail %u of %u %s %s, %s (%s), has dropped out: %s%s%s; the others go on, with %u "
             "pieces %s",
             rail, comm->rail_count, comm->is_send ? "to" : "from", comm->peer_text,
             comm->rails[rail].device->name, comm->device->info->fabric_attr->prov_name,
             comm->ctx->library.strerror(comm->failover.err[rail]), *detail ? ", " : "", detail,
             again, comm->is_send ? "sent again" : "awaited again");
    comm->ctx->log(xcclNetLogWarn, line);
}

static void leave(struct ofi_comm *comm, uint32_t rail)
{
    uint32_t again;

    comm->failover.gone |= 1u << rail;
    again = ofi_request_again(comm, rail) + ofi_piece_again(comm, rail);
    ofi_note_again(comm, rail);
    xccl_net_count(&comm->counters.failover_count, 1);
    xccl_net_count(&comm->rails[rail].counters.failover_count, 1);
    if (comm->is_send) {
        xccl_net_count(&comm->counters.resend_count, again);
        xccl_net_count(&comm->rails[rail].counters.resend_count, again);
    }
    comm->refused |= again != 0;
    warn(comm, rail, again);
}

/* --- in turn --- */

/* 1: it is time. A peer that has left makes the same errors, and what it has sent before is still
 * to be taken. */
static int is_due(const struct ofi_comm *comm, uint32_t rail, uint64_t now_ns)
{
    const struct ofi_failover *over = &comm->failover;

    if (over->heard >> rail & 1)
        return 1;
    return !comm->peer_left && (int64_t)(now_ns - over->since_ns[rail]) >= (int64_t)DOUBT_NS;
}

static void turn(struct ofi_comm *comm, uint32_t rail, uint64_t now_ns)
{
    struct ofi_failover *over = &comm->failover;
    uint32_t bit = 1u << rail;

    if (!(ofi_failover_closed(comm) & bit)) {
        if (!is_due(comm, rail, now_ns))
            return;
        over->failed |= 1u << rail;
        if (is_last(comm)) {
            ofi_control_fails(comm, rail);
            ofi_comm_fail_rail(comm, &comm->rails[rail], over->err[rail],
                               comm->is_send ? "sending to" : "receiving from", over->detail[rail]);
            return;
        }
        close_rail(comm, rail);
    }
    if (!(over->told & bit) && tell_what_came(comm) && ofi_control_ended(comm, rail))
        over->told |= bit;
    if (over->told & over->ended & bit)
        leave(comm, rail);
}

void ofi_failover_move(struct ofi_comm *comm)
{
    struct ofi_failover *over = &comm->failover;
    uint64_t now_ns;

    if (over->owes)
        over->owes = !tell_what_came(comm);
    if (!(over->doubted & ~over->gone) || !comm->is_joined || comm->rc != xcclSuccess)
        return;
    ofi_control_look(comm);
    now_ns = xccl_clock_ns();
    for (uint32_t rail = 0; rail < comm->rail_count && comm->rc == xcclSuccess; rail++) {
        if (over->doubted & ~over->gone & 1u << rail)
            turn(comm, rail, now_ns);
    }
}

int ofi_failover_goes_on(const struct ofi_comm *comm)
{
    const struct ofi_failover *over = &comm->failover;

    return over->again || over->owes || (over->doubted & ~over->told);
}

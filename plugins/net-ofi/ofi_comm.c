/* SPDX-License-Identifier: BSD-3-Clause */
/* What both ends of a connection have: their life, the first error, which stays and is given to
 * each later call, and what is still to be done for a comm when nobody waits for it.
 *
 * A sender that is closed with nothing in flight lingers: its endpoint stays until the receiver has
 * counted all messages, has gone, or the instance ends and a second has passed; a provider with
 * manual progress may keep bytes of a send that it has called complete. With requests in flight the
 * endpoint closes at once, for their memory must not be touched any more.
 *
 * Thread: one at a time a comm; the lists have a lock, but in progress, which runs alone. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/tcp.h"
#include "ofi_int.h"

#define SETTLE_POLLS 4
#define BREAK_POLLS  64

/* Its own registrations, and what they are of. */
static void give_memory_back(struct ofi_comm *comm)
{
    ofi_dereg_mr(comm, comm->probe_mem);
    comm->probe_mem = NULL;
    ofi_dereg_mr(comm, comm->notes.mem);
    comm->notes.mem = NULL;
    if (comm->flusher) {
        ofi_dereg_mr(comm, comm->flusher->mem);
        comm->flusher->mem = NULL;
    }
}

#define LOOK_NS (50 * XCCL_NS_PER_MS) /* what one look counts for at most */

int ofi_patience_ends(struct ofi_patience *patience)
{
    uint64_t now_ns = xccl_clock_ns(), since_ns = now_ns - patience->last_ns;

    if (patience->last_ns)
        patience->waited_ns += since_ns < LOOK_NS ? since_ns : LOOK_NS;
    patience->last_ns = now_ns;
    return patience->waited_ns >= OFI_LATE_NS;
}

void ofi_comm_leave_out(const struct ofi_comm *comm, const struct ofi_device *card)
{
    char line[OFI_TEXT_BYTES];

    if (!comm->ctx->log)
        return;
    snprintf(line, sizeof(line),
             "a connection with %s comes up without its rail %s (%s): %.300s; the others go on",
             comm->peer_text, card->name, card->info->fabric_attr->prov_name, xccl_error_text());
    comm->ctx->log(xcclNetLogWarn, line);
}

/* Where rails may fail, one that cannot be opened is left out, as long as there is another. */
static xcclResult_t open_rails(struct ofi_comm *comm, uint32_t without)
{
    struct ofi_device *device = comm->device;
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = 0; i < device->member_count; i++) {
        struct ofi_rail *rail = &comm->rails[comm->rail_count];

        if (without >> i & 1)
            continue;
        rail->device = device->members[i];
        rail->member = i;
        rail->fabric_fd = -1;
        rc = ofi_endpoint_open(comm->ctx, rail->device, device, &rail->end);
        if (rc == xcclSuccess)
            comm->rail_count++;
        else if (!ofi_failover_can(device))
            return rc;
        else
            ofi_comm_leave_out(comm, rail->device);
    }
    comm->left_out = device->member_count - comm->rail_count;
    return comm->rail_count ? xcclSuccess : rc;
}

/* Counts the bits of a tag: the highest bit of the provider's format is the last it has. */
static uint32_t tag_bits_of(const struct ofi_device *device)
{
    uint64_t format = device->info->ep_attr->mem_tag_format;

    return format ? 64 - (uint32_t)__builtin_clzll(format) : 0;
}

struct ofi_comm *ofi_comm_create(struct ofi_ctx *ctx, struct ofi_device *device, int is_send,
                                 int fd, const struct xccl_addr *peer, uint32_t without)
{
    struct ofi_comm *comm = xccl_calloc_aligned(64, sizeof(*comm));

    if (!comm) {
        xccl_tcp_close(&fd);
        return NULL;
    }
    comm->ctx = ctx;
    comm->device = device;
    comm->is_send = is_send;
    ofi_control_add(comm, fd, OFI_RAILS_MAX);
    comm->bytes_max = ofi_device_send_bytes(device);
    comm->tells_size = device->info->domain_attr->cq_data_size >= sizeof(uint32_t);
    comm->tells_tag = ofi_device_parts(device) > 1;
    comm->tag_bits = tag_bits_of(device);
    comm->fetches = strstr(device->info->fabric_attr->prov_name, "ofi_rxm") != NULL;
    comm->failover.on = ofi_failover_can(device);
    comm->drops = strcmp(device->info->fabric_attr->prov_name, "net") == 0;
    comm->in_order = ofi_device_is_rxd(device);
    xccl_addr_format(peer, comm->peer_text);
    ofi_request_init(comm);
    xccl_net_tally_join(&device->tally, &comm->counters);
    if (open_rails(comm, without) == xcclSuccess)
        return comm;
    ofi_comm_destroy(comm);
    return NULL;
}

xcclResult_t ofi_comm_pair(struct ofi_comm *comm, uint32_t count, const uint32_t *ends,
                           uint8_t (*names)[OFI_ADDRESS_BYTES])
{
    struct ofi_rail rails[OFI_RAILS_MAX] = {{.device = NULL}};
    xcclResult_t rc = xcclSuccess;

    for (uint32_t i = 0; i < count; i++) {
        rails[i] = comm->rails[ends[i]];
        memset(&comm->rails[ends[i]].end, 0, sizeof(comm->rails[ends[i]].end));
    }
    for (uint32_t i = 0; i < comm->rail_count; i++)
        ofi_endpoint_close(&comm->rails[i].end);
    memcpy(comm->rails, rails, sizeof(rails));
    comm->rail_count = count;
    for (uint32_t i = 0; i < count && rc == xcclSuccess; i++)
        rc = ofi_endpoint_aim(comm, &comm->rails[i], names[i]);
    for (uint32_t i = 0; i < count && comm->device->member_count > 1; i++)
        xccl_net_tally_join(&comm->rails[i].device->tally, &comm->rails[i].counters);
    return rc;
}

uint32_t ofi_comm_tells(const struct ofi_comm *comm)
{
    return (comm->tells_size ? OFI_TELLS_SIZE : 0) | (comm->tells_tag ? OFI_TELLS_TAG : 0) |
           (comm->failover.on ? OFI_TELLS_FAIL : 0) | comm->tag_bits << OFI_TELLS_BITS;
}

void ofi_comm_hear(struct ofi_comm *comm, uint32_t tells)
{
    comm->tells_size = comm->tells_size && tells & OFI_TELLS_SIZE;
    comm->tells_tag = comm->tells_tag && tells & OFI_TELLS_TAG;
    comm->failover.on = comm->failover.on && tells & OFI_TELLS_FAIL && comm->rail_count > 1;
    if (comm->tag_bits > (tells >> OFI_TELLS_BITS & 0xff))
        comm->tag_bits = tells >> OFI_TELLS_BITS & 0xff;
}

void ofi_comm_key(struct ofi_comm *comm)
{
    uint64_t room = comm->tag_bits < 64 ? (1ull << comm->tag_bits) - 1 : UINT64_MAX;
    uint64_t secrets[2];

    kit_proof_key(&comm->links[0].side.proof, "ofi tags", secrets, sizeof(secrets));
    comm->secret = secrets[0] & room & ~(uint64_t)(OFI_TAG_NUMBER | OFI_TAG_PIECE);
    comm->beside = (uint32_t)secrets[1];
    explicit_bzero(secrets, sizeof(secrets));
}

xcclResult_t ofi_comm_equip(struct ofi_comm *comm, uint64_t piece_bytes, uint32_t tells)
{
    xcclResult_t rc;

    ofi_comm_hear(comm, tells);
    ofi_piece_agree(comm, piece_bytes);
    rc = ofi_mem_register(comm, comm->probe, sizeof(comm->probe), 0, &comm->probe_mem);
    if (rc == xcclSuccess)
        rc = ofi_note_create(comm);
    if (rc == xcclSuccess)
        rc = ofi_flush_create(comm);
    return rc == xcclSuccess ? ofi_piece_create(comm) : rc;
}

static void unlink_from(struct ofi_comm **list, struct ofi_comm *comm)
{
    for (struct ofi_comm **at = list; *at; at = &(*at)->next) {
        if (*at == comm) {
            *at = comm->next;
            return;
        }
    }
}

void ofi_comm_up(struct ofi_comm *comm)
{
    for (uint32_t i = 0; i < comm->rail_count; i++) {
        struct ofi_rail *rail = &comm->rails[i];

        rail->fabric_fd = ofi_manners_sockets(rail->end.name, rail->end.peer_name);
    }
    comm->is_joined = comm->is_up = 1;
    if (comm->left_out)
        xccl_net_count(&comm->counters.failover_count, comm->left_out);
    ofi_control_tune(comm);
    pthread_mutex_lock(&comm->ctx->lock);
    comm->next = comm->ctx->comms;
    comm->ctx->comms = comm;
    pthread_mutex_unlock(&comm->ctx->lock);
}

/* Before an endpoint closes in the middle of a message. ofi_rxm crashes when it closes one with a
 * read of a large message under way (seen in 1.17; libfabric #11828 has it of 2.4), or with a
 * peer's write half received (1.17): its flush of the queue below meets a request that is gone, or
 * an error without a context. So the connection is cut first, and the errors that
 * follow are taken the usual way. */
static void break_off(struct ofi_comm *comm, struct ofi_rail *rail)
{
    int flushes = ofi_flush_is_under_way(comm);

    if ((comm->moved == comm->posted && !flushes) || !comm->fetches || !rail->end.ep)
        return;
    ofi_manners_cut(rail->end.name, rail->end.peer_name);
    if (flushes)
        ofi_manners_cut(rail->end.name, rail->end.name);
    for (int i = 0; i < BREAK_POLLS; i++) {
        struct fi_cq_tagged_entry entries[OFI_POLL_ENTRIES];
        struct fi_cq_err_entry error = {.err_data_size = 0};

        if (fi_cq_read(rail->end.cq, entries, OFI_POLL_ENTRIES) == -FI_EAVAIL)
            (void)fi_cq_readerr(rail->end.cq, &error, 0);
    }
}

void ofi_comm_close_rail(struct ofi_comm *comm, struct ofi_rail *rail)
{
    break_off(comm, rail);
    ofi_endpoint_close(&rail->end);
    rail->fabric_fd = -1;
}

static void rails_close(struct ofi_comm *comm)
{
    for (uint32_t i = 0; i < comm->rail_count; i++) {
        struct ofi_rail *rail = &comm->rails[i];

        ofi_endpoint_close(&rail->end);
        xccl_net_tally_leave(&rail->device->tally, &rail->counters);
    }
}

void ofi_comm_destroy(struct ofi_comm *comm)
{
    if (!comm)
        return;
    ofi_wait_close(comm);
    for (uint32_t i = 0; i < comm->rail_count; i++)
        break_off(comm, &comm->rails[i]);
    /* The endpoint before its registration: nothing is received any more then. */
    if (comm->device->info->domain_attr->mr_mode & FI_MR_ENDPOINT)
        give_memory_back(comm);
    rails_close(comm);
    give_memory_back(comm);
    ofi_control_close(comm);
    ofi_piece_destroy(comm);
    ofi_flush_destroy(comm);
    xccl_free(comm->notes.bytes);
    xccl_net_tally_leave(&comm->device->tally, &comm->counters);
    xccl_free(comm);
}

/* 1: the receiver has not told of all messages, and can. */
static int uncounted(const struct ofi_comm *comm)
{
    return comm->is_send && ofi_control_is_open(comm) && comm->rc == xcclSuccess &&
           comm->counted != comm->posted;
}

/* 1: bytes of a message that the provider has called complete may still be here: since then it has
 * not been polled some times with room in its socket. One without a socket (efa, shm) has given
 * them away before it completes. */
static int owes(const struct ofi_comm *comm)
{
    /* What is said of them is not here any more once it is counted. */
    if (comm->failover.on && !comm->is_send)
        return ofi_control_owes(comm) ||
               (ofi_control_is_open(comm) && comm->front != comm->counted);
    if (!uncounted(comm))
        return 0;
    if (comm->settled < SETTLE_POLLS)
        return 1;
    for (uint32_t i = 0; i < comm->rail_count; i++) {
        struct pollfd room = {.fd = comm->rails[i].fabric_fd, .events = POLLOUT};

        if (room.fd >= 0 && poll(&room, 1, 0) == 0)
            return 1;
    }
    return 0;
}

/* 1: the endpoint must stay. What shm has given away lies in the endpoint's memory until it is
 * received; what a socket has taken is the kernel's, but net (1.17) drops at the end of a
 * connection what has come before its receive. */
static int must_linger(const struct ofi_comm *comm)
{
    if (!comm->is_send)
        return owes(comm);
    for (uint32_t i = 0; i < comm->rail_count; i++) {
        if (comm->rails[i].end.ep && (comm->rails[i].fabric_fd < 0 || comm->drops))
            return uncounted(comm);
    }
    return owes(comm);
}

xcclResult_t ofi_close_comm(void *comm_)
{
    struct ofi_comm *comm = comm_;
    struct ofi_ctx *ctx = comm->ctx;
    int lingers;

    if (comm->is_send)
        ofi_control_goodbye(comm);
    else if (comm->failover.on)
        ofi_control_look(comm); /* what lies here unread would take back what was told last */
    /* What the provider has not been given is not done, and is given up. */
    lingers = must_linger(comm) && comm->moved == comm->posted && !ofi_flush_is_under_way(comm);
    pthread_mutex_lock(&ctx->lock);
    unlink_from(&ctx->comms, comm);
    if (lingers) {
        comm->next = ctx->lingering;
        ctx->lingering = comm;
    }
    pthread_mutex_unlock(&ctx->lock);
    if (!lingers)
        ofi_comm_destroy(comm);
    ofi_comm_sweep(ctx, 0);
    return xcclSuccess;
}

/* 1: it is through. */
static int linger_move(struct ofi_comm *comm)
{
    ofi_request_poll(comm);
    ofi_control_look(comm);
    comm->settled++;
    return !must_linger(comm);
}

static struct ofi_comm *sweep_once(struct ofi_ctx *ctx, int *left_out)
{
    struct ofi_comm *gone = NULL, *next;

    pthread_mutex_lock(&ctx->lock);
    for (struct ofi_comm *comm = ctx->lingering; comm; comm = next) {
        next = comm->next;
        if (!linger_move(comm))
            continue;
        unlink_from(&ctx->lingering, comm);
        comm->next = gone;
        gone = comm;
    }
    *left_out = ctx->lingering != NULL;
    pthread_mutex_unlock(&ctx->lock);
    return gone;
}

static void destroy_all(struct ofi_comm *comm)
{
    while (comm) {
        struct ofi_comm *next = comm->next;

        ofi_comm_destroy(comm);
        comm = next;
    }
}

void ofi_comm_sweep(struct ofi_ctx *ctx, int wait_ms)
{
    uint64_t end_ns = xccl_clock_ns() + (uint64_t)wait_ms * XCCL_NS_PER_MS;
    struct timespec pause = {.tv_nsec = 100000};
    int left = 0;

    do {
        destroy_all(sweep_once(ctx, &left));
        if (!left || !wait_ms)
            return;
        nanosleep(&pause, NULL);
    } while (xccl_clock_ns() < end_ns);
    /* Only finalize waits, and runs alone. */
    destroy_all(ctx->lingering);
    ctx->lingering = NULL;
}

static int comm_progress(struct ofi_comm *comm)
{
    if (comm->rc != xcclSuccess)
        return 0;
    ofi_request_poll(comm);
    comm->settled++;
    /* What has come may let the next call give the provider more. */
    comm->refused |= comm->posted != comm->taken || comm->pieces.waiting || comm->notes.due ||
                     comm->notes.again || comm->failover.again;
    ofi_wait_arm(comm);
    return owes(comm);
}

xcclResult_t ofi_progress(xcclNetContext_t ctx_, int *pending_out)
{
    struct ofi_ctx *ctx = ctx_;
    int pending = 0;

    for (struct ofi_comm *comm = ctx->comms; comm; comm = comm->next)
        pending |= comm_progress(comm);
    for (struct ofi_comm *comm = ctx->lingering; comm; comm = comm->next)
        pending |= comm_progress(comm);
    *pending_out = pending;
    return xcclSuccess;
}

void ofi_comm_fail(struct ofi_comm *comm, xcclNetCause_t cause, xcclResult_t rc)
{
    if (comm->rc != xcclSuccess)
        return;
    comm->cause = cause;
    comm->rc = rc;
    snprintf(comm->error_text, sizeof(comm->error_text), "%s", xccl_error_text());
}

static xcclNetCause_t cause_of(int err)
{
    switch (err) {
    case FI_ECONNRESET:
    case FI_ECONNREFUSED:
    case FI_ECONNABORTED:
    case FI_ENOTCONN:
    case FI_ESHUTDOWN:
    case FI_EIO:
        return xcclNetCausePeerGone;
    case FI_ETIMEDOUT:
        return xcclNetCauseTimeout;
    case FI_EHOSTUNREACH:
    case FI_ENETUNREACH:
    case FI_ENETDOWN:
        return xcclNetCauseLinkDown;
    case FI_EACCES:
    case FI_EKEYREJECTED:
        return xcclNetCauseRemoteAccess;
    case FI_ENOMEM:
    case FI_EINVAL:
    case FI_EMSGSIZE:
    case FI_ENOSPC:
    case FI_ENOSYS:
    case FI_EOPNOTSUPP:
        return xcclNetCauseLocal;
    default: /* what was accepted here and failed on its way */
        return xcclNetCauseUnknown;
    }
}

static const char *todo_of(xcclNetCause_t cause, int err, const char *provider)
{
    if (err == FI_EHOSTUNREACH && strncmp(provider, "efa", 3) == 0)
        return "look at the security group: it must let all traffic in from itself";
    return cause == xcclNetCauseLocal ? NULL : "see the first error of that process";
}

void ofi_comm_fail_rail(struct ofi_comm *comm, const struct ofi_rail *rail, int err,
                        const char *doing, const char *detail)
{
    xcclNetCause_t cause = cause_of(err);
    const char *provider = comm->device->info->fabric_attr->prov_name;
    xcclResult_t rc = cause == xcclNetCauseLocal ? xcclSystemError : xcclRemoteError;

    if (comm->rc != xcclSuccess)
        return;
    comm->failed_rail = (uint32_t)(rail - comm->rails) + 1;
    ofi_comm_fail(comm, cause,
                  xccl_fail_quietly(rc, 0, todo_of(cause, err, provider),
                                    "%s %s on %s (%s): %s%s%s", doing, comm->peer_text,
                                    rail->device->name, provider, comm->ctx->library.strerror(err),
                                    *detail ? ", " : "", detail));
}

xcclResult_t ofi_comm_error(const struct ofi_comm *comm)
{
    xccl_error_set_text(comm->error_text);
    return comm->rc;
}

xcclResult_t ofi_error_detail(void *comm_, xcclNetError_v1 *error)
{
    const struct ofi_comm *comm = comm_;
    xcclNetError_v1 full = {.cause = xcclNetCauseNone, .peer = comm->peer_text, .text = ""};

    if (comm->rc != xcclSuccess) {
        full.cause = (int32_t)comm->cause;
        full.sysErrno = comm->sys_errno;
        full.vendorCode = comm->vendor;
        full.text = comm->error_text;
    }
    xccl_net_tell_error(&full, error);
    return xcclSuccess;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds out why a call does not end, and who is to blame: ranks in different calls, ranks that have
 * left or do not come, broken connections. Every text names ranks, hosts and calls in full, since
 * it is told to all ranks as it is. Thread: the crank's holder in the slow branch of a wait or at
 * the end of a call, but for xccl_comm_compare_calls. */
#include "watch/comm_verdict.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "comm/comm_progress.h"
#include "comm/comm_where.h"
#include "record/record.h"
#include "watch/control.h"

#define NAME_BYTES      128
#define CALL_BYTES      128
#define LEFT_VERDICT_NS (200 * XCCL_NS_PER_MS)
#define LATE_VERDICT_NS (2 * XCCL_NS_PER_S)
#define VERDICT_NAP_NS  1000000
#define BOARDS_A_LOOK   16

static int is_sized(const struct xccl_board_call *call)
{
    return (call->coll & XCCL_BOARD_SIZED) != 0;
}

/* "call 7: all-reduce of 12 float32, sum", "call 8: broadcast of 3 int8, root 2", "call 9:
 * all-gather-v of 20 int8 in all (counts 5f3c91d0)", "call 10: all-to-all-v of 7 int8 sent" */
static void describe_call(const struct xccl_board_call *call, char *text_out, size_t bytes)
{
    static const char *const types[xcclNumTypes] = {
        "int8",    "uint8",   "int32",   "uint32",   "int64",      "uint64",
        "float16", "float32", "float64", "bfloat16", "float8e4m3", "float8e5m2"};
    static const char *const ops[] = {"sum", "prod", "max", "min", "avg", "premulsum"};
    static_assert(sizeof ops / sizeof ops[0] == xcclNumOps + 1, "and one for the program's own");
    static const char *const colls[XCCL_COLL_COUNT] = {
        [XCCL_COLL_BROADCAST] = "broadcast",   [XCCL_COLL_REDUCE] = "reduce",
        [XCCL_COLL_ALL_GATHER] = "all-gather", [XCCL_COLL_REDUCE_SCATTER] = "reduce-scatter",
        [XCCL_COLL_ALL_REDUCE] = "all-reduce", [XCCL_COLL_ALL_TO_ALL] = "all-to-all",
        [XCCL_COLL_GATHER] = "gather",         [XCCL_COLL_SCATTER] = "scatter",
        [XCCL_COLL_BARRIER] = "barrier",
    };
    enum xccl_coll coll = (enum xccl_coll)(call->coll & ~XCCL_BOARD_SIZED);
    int known = (unsigned)coll < XCCL_COLL_COUNT, sized = is_sized(call), used;

    used = snprintf(text_out, bytes, "call %llu: %s%s", (unsigned long long)call->seq,
                    known && colls[coll] ? colls[coll] : "?", sized ? "-v" : "");
    if (known && coll != XCCL_COLL_BARRIER)
        used += snprintf(text_out + used, bytes - (size_t)used, " of %llu %s",
                         (unsigned long long)call->count,
                         call->type < xcclNumTypes ? types[call->type] : "?");
    if (sized && coll == XCCL_COLL_ALL_TO_ALL)
        used += snprintf(text_out + used, bytes - (size_t)used, " sent");
    else if (sized)
        used += snprintf(text_out + used, bytes - (size_t)used, " in total (hash of counts %08x)",
                         call->root);
    if (known && xccl_coll_reduces(coll))
        used += snprintf(text_out + used, bytes - (size_t)used, ", %s",
                         call->op <= xcclNumOps ? ops[call->op] : "?");
    if (known && xccl_coll_rooted(coll))
        snprintf(text_out + used, bytes - (size_t)used, ", root %u", call->root);
}

struct xccl_board_call xccl_comm_board_call(const struct xccl_call *call, uint64_t seq)
{
    const struct xccl_call_sizes *sizes = call->sizes;
    /* Numbers of the program's own operators are each rank's own. */
    xcclRedOp_t op = call->op < xcclNumOps ? call->op : xcclNumOps;
    struct xccl_board_call told = {.seq = seq,
                                   .count = call->count,
                                   .coll = (uint32_t)call->coll,
                                   .type = (uint32_t)call->type,
                                   .op = (uint32_t)op,
                                   .root = (uint32_t)call->root};

    if (__builtin_expect(sizes != NULL, 0)) {
        told.coll |= XCCL_BOARD_SIZED;
        told.count = sizes->total / xccl_type_bytes(call->type);
        told.root = (uint32_t)(sizes->hash ^ sizes->hash >> 32);
    }
    return told;
}

struct xccl_board_call xccl_comm_own_call(const struct xcclComm *comm)
{
    return xccl_comm_board_call(&comm->call, comm->seq);
}

xcclResult_t xccl_comm_fail_choice(const struct xcclComm *comm, const char *name)
{
    const char *tuner = xccl_comm_tuner_label(comm);

    if (!tuner)
        return xccl_fail(xcclInternalError, 0, "report this as a bug in the choice of algorithms",
                         "%s runs the same call differently than rank %d", name, comm->rank);
    return xccl_fail(xcclInvalidUsage, 0,
                     "correct the plugin according to xccl_tuner.h, or set XCCL_TUNER_PLUGIN=none",
                     "%s runs the same call differently than rank %d: tuner plugin %s chose "
                     "differently there (algorithm, protocol, parameter or tile)",
                     name, comm->rank, tuner);
}

/* The calls are the same, so it is how they are done. */
static xcclResult_t raise_choice(struct xcclComm *comm, const char *name, const char *call)
{
    const char *tuner = xccl_comm_tuner_label(comm);

    if (!tuner)
        return xccl_comm_fail(comm, xcclInternalError,
                              "ranks disagree: rank %d and %s are both in %s, but run it "
                              "differently; report this as a bug in the choice of algorithms",
                              comm->rank, name, call);
    return xccl_comm_fail(
        comm, xcclInvalidUsage,
        "ranks disagree: rank %d and %s are both in %s, but tuner plugin %s chose differently "
        "there (algorithm, protocol, parameter or tile); correct the plugin according to "
        "xccl_tuner.h, or set XCCL_TUNER_PLUGIN=none",
        comm->rank, name, call, tuner);
}

/* Ranks disagree: both calls go into the text. */
static xcclResult_t raise_mismatch(struct xcclComm *comm, int peer,
                                   const struct xccl_board_call *mine, const char *their_text)
{
    char name[NAME_BYTES], my_text[CALL_BYTES];

    describe_call(mine, my_text, sizeof my_text);
    xccl_comm_name_rank(comm, peer, name, sizeof name);
    if (strcmp(my_text, their_text) == 0)
        return raise_choice(comm, name, my_text);
    return xccl_comm_fail(comm, xcclInvalidUsage,
                          "ranks disagree: rank %d is in %s, but %s is in %s; all ranks must make "
                          "the same calls in the same order%s",
                          comm->rank, my_text, name, their_text,
                          is_sized(mine) && mine->root ? ", with the same counts" : "");
}

/* The other rank of this host does the same in the same way now. */
static int is_same_word(const struct xcclComm *comm, int index)
{
    /* Acquire: pairs with xccl_board_write(). */
    return atomic_load_explicit(&xccl_shm_board(comm->shm, index)->word, memory_order_acquire) ==
           atomic_load_explicit(&comm->board->word, memory_order_relaxed);
}

/* A message of another call came from peer; what it calls is known when it is on this host. */
static xcclResult_t fail_mismatch(struct xcclComm *comm, int peer)
{
    int index = comm->shm ? xccl_shm_index_of(comm->shm, peer) : -1;
    const char *tuner = xccl_comm_tuner_label(comm);
    struct xccl_board_call mine = xccl_comm_own_call(comm), theirs;
    char their_text[CALL_BYTES];

    /* Over a network it cannot be told whether the calls differ, or the choices. */
    snprintf(their_text, sizeof their_text, "a different call%s%.60s%s", tuner ? " (or tuner " : "",
             tuner ? tuner : "", tuner ? " chose differently there)" : "");

    if (index >= 0 && is_same_word(comm, index)) /* the message is older than the call */
        snprintf(their_text, sizeof their_text, "this call now, but made a different call before");
    else if (index >= 0 && xccl_board_read(xccl_shm_board(comm->shm, index), &theirs))
        describe_call(&theirs, their_text, sizeof their_text);
    return raise_mismatch(comm, peer, &mine, their_text);
}

/* Peer sends another number of elements than this rank takes: both in this all-to-all-v. */
static xcclResult_t fail_sizes(struct xcclComm *comm, int peer)
{
    const struct xccl_call_sizes *sizes = comm->call.sizes;
    struct xccl_board_call mine = xccl_comm_own_call(comm);
    char name[NAME_BYTES], text[CALL_BYTES];

    describe_call(&mine, text, sizeof text);
    xccl_comm_name_rank(comm, peer, name, sizeof name);
    return xccl_comm_fail(
        comm, xcclInvalidUsage,
        "ranks disagree: rank %d is in %s and expects %zu elements from rank %d, but %s sends a "
        "different number; sendcounts[%d] of rank %d must equal recvcounts[%d] of rank %d",
        comm->rank, text, sizes->sizes[XCCL_BUFFER_OUT][peer] / xccl_type_bytes(comm->call.type),
        peer, name, comm->rank, peer, peer, comm->rank);
}

/* The other rank went through a call of this number that asked nothing of it, and is further on. */
static xcclResult_t fail_past(struct xcclComm *comm, int peer)
{
    struct xccl_board_call mine = xccl_comm_own_call(comm);

    return raise_mismatch(comm, peer, &mine,
                          "a later call, and made a different call with this number");
}

void xccl_comm_compare_calls(struct xcclComm *comm, int peer, uint64_t word,
                             const struct xccl_board_call *theirs)
{
    struct xccl_board_call mine;
    uint64_t own = atomic_load_explicit(&comm->board->word, memory_order_acquire);
    char their_text[CALL_BYTES];

    if (!word || word >> 32 != own >> 32 || word == own)
        return;
    if (!xccl_board_read(comm->board, &mine) || mine.seq != theirs->seq)
        return;
    describe_call(theirs, their_text, sizeof their_text);
    (void)raise_mismatch(comm, peer, &mine, their_text);
}

xcclResult_t xccl_comm_same_call(struct xcclComm *comm, int peer,
                                 const struct xccl_board_call *theirs)
{
    struct xccl_board_call mine = xccl_comm_own_call(comm);
    char their_text[CALL_BYTES];

    if (mine.seq == theirs->seq && mine.count == theirs->count && mine.coll == theirs->coll &&
        mine.type == theirs->type && mine.op == theirs->op && mine.root == theirs->root)
        return xcclSuccess;
    describe_call(theirs, their_text, sizeof their_text);
    return raise_mismatch(comm, peer, &mine, their_text);
}

xcclResult_t xccl_comm_await_error(struct xcclComm *comm, uint64_t wait_ns)
{
    int waited = atomic_load_explicit(&comm->verdict_waited, memory_order_relaxed);
    uint64_t until_ns = xccl_clock_ns() + (waited ? 0 : wait_ns);

    while (!xccl_comm_error(comm) && xccl_clock_ns() < until_ns)
        nanosleep(&(struct timespec){.tv_nsec = VERDICT_NAP_NS}, NULL);
    return xccl_comm_error(comm);
}

/* 1: the others have had their time to say why a rank left. */
static int is_settled(struct xcclComm *comm)
{
    uint64_t now_ns = xccl_clock_ns();

    if (!comm->left_seen_ns)
        comm->left_seen_ns = now_ns;
    return now_ns - comm->left_seen_ns >= LEFT_VERDICT_NS;
}

/* again: 1 when the caller will ask again, so that no time is spent here. */
static xcclResult_t fail_left(struct xcclComm *comm, int rank, uint64_t last_seq, int again)
{
    char name[NAME_BYTES];

    if (again && !is_settled(comm))
        return xcclSuccess;
    if (xccl_comm_await_error(comm, again ? 0 : LEFT_VERDICT_NS))
        return xccl_comm_error(comm);
    xccl_comm_name_rank(comm, rank, name, sizeof name);
    return xccl_comm_fail(
        comm, xcclRemoteError,
        "%s has left the communicator after call %llu, but rank %d is in call %llu; "
        "all ranks must make the same calls",
        name, (unsigned long long)last_seq, comm->rank, (unsigned long long)comm->seq);
}

/* The other rank has begun a split that this one has not, before the call that this one is in. */
static xcclResult_t fail_split(struct xcclComm *comm, int peer)
{
    struct xccl_board_call mine = xccl_comm_own_call(comm);

    return raise_mismatch(comm, peer, &mine, "xcclCommSplit of this communicator");
}

/* Are the other ranks of this host in the same call? Also: has one left for good? Each board is a
 * page of its own, so of a crowd only some are looked at, the others next time. */
static xcclResult_t check_boards(struct xcclComm *comm)
{
    uint64_t own = atomic_load_explicit(&comm->board->word, memory_order_relaxed);
    uint32_t own_splits = atomic_load_explicit(&comm->board->splits, memory_order_relaxed);
    int nlocal = comm->shm ? xccl_shm_nlocal(comm->shm) : 0;
    int count = nlocal < BOARDS_A_LOOK ? nlocal : BOARDS_A_LOOK;

    for (; count > 0; count--) {
        int i = comm->board_next = comm->board_next + 1 < nlocal ? comm->board_next + 1 : 0;
        struct xccl_board *board = xccl_shm_board(comm->shm, i);
        /* Acquire: pairs with xccl_board_write(). outside first: nothing follows a 2; and splits
         * first: a call that came before one is in the word then. */
        uint32_t outside = atomic_load_explicit(&board->outside, memory_order_acquire);
        uint32_t splits = atomic_load_explicit(&board->splits, memory_order_acquire);
        uint64_t word = atomic_load_explicit(&board->word, memory_order_acquire);
        int rank = xccl_shm_rank_of(comm->shm, i);
        uint32_t past;

        if (word >> 32 == own >> 32 && word != own)
            return fail_mismatch(comm, rank);
        if (xccl_board_past(board, (uint32_t)(own >> 32), &past) && past != (uint32_t)own)
            return fail_past(comm, rank);
        if ((int32_t)(uint32_t)((word >> 32) - (own >> 32)) >= 0)
            continue;
        if (outside == 2)
            return fail_left(comm, rank, word >> 32, 1);
        if ((int32_t)(splits - own_splits) > 0)
            return fail_split(comm, rank);
    }
    return xcclSuccess;
}

xcclResult_t xccl_comm_check_left(struct xccl_run *run, int again)
{
    struct xcclComm *comm = run->owner;
    uint64_t last_seq;
    int rank = xccl_control_left_before(comm->control, comm->seq, &last_seq);

    return rank == XCCL_NOBODY ? xcclSuccess : fail_left(comm, rank, last_seq, again);
}

/* A list of ranks as text, as far as there is room. */
struct rank_list {
    char text[240];
    int used, count;
};

static void list_rank(struct rank_list *list, const struct xcclComm *comm, int rank,
                      const char *what)
{
    char name[NAME_BYTES];

    xccl_comm_name_rank(comm, rank, name, sizeof name);
    if (list->used < (int)sizeof list->text - 1)
        list->used += snprintf(list->text + list->used, sizeof list->text - (size_t)list->used,
                               "%s%s%s", list->count ? ", " : "", name, what);
    list->count++;
}

/* Ranks of this host whose board shows an older call. */
static void list_late_locals(struct rank_list *list, const struct xcclComm *comm)
{
    for (int i = 0; comm->shm && i < xccl_shm_nlocal(comm->shm); i++) {
        const struct xccl_board *board = xccl_shm_board(comm->shm, i);
        uint32_t outside = atomic_load_explicit(&board->outside, memory_order_relaxed);
        uint64_t word = atomic_load_explicit(&board->word, memory_order_acquire);
        char what[64];

        if ((int32_t)((uint32_t)(word >> 32) - (uint32_t)comm->seq) >= 0)
            continue;
        snprintf(what, sizeof what, outside ? " (between calls, its last was %u)" : " (in call %u)",
                 (unsigned)(word >> 32));
        list_rank(list, comm, xccl_shm_rank_of(comm->shm, i), what);
    }
}

/* Ranks of other hosts that are not known to be in this call, while connections are made for it. */
static void list_remotes(struct rank_list *list, const struct xcclComm *comm)
{
    for (int i = 0; i < comm->nranks; i++)
        if (!xccl_comm_is_local(comm, i) && !xccl_control_in_call(comm->control, i, comm->seq))
            list_rank(list, comm, i, "");
}

/* Ranks at the other ends of network links that are not done. all 0: not those that are known to be
 * in this call too, waiting like this rank. */
static void list_links(struct rank_list *list, const struct xcclComm *comm, int all)
{
    const struct xccl_binding *binding;

    if (!comm->run.plan) {
        list_remotes(list, comm);
        return;
    }
    binding = comm->run.plan->binding;
    for (uint32_t i = 0; i < binding->net_count; i++) {
        uint16_t conn = binding->net_conns[i];
        int rank = binding->schedule->conns[conn].peer;

        if (binding->schedule->conns[conn].dir != XCCL_CONN_RECV ||
            xccl_net_link_idle(binding->nets[conn]))
            continue;
        if (all || !xccl_control_in_call(comm->control, rank, comm->seq))
            list_rank(list, comm, rank, all ? " (in this call too)" : "");
    }
}

/* A rank that knows nobody late leaves the word to those who do: they stand next to the culprit. It
 * is asked again until their time is over. */
static xcclResult_t fail_timeout(struct xcclComm *comm, uint64_t waited_ns)
{
    struct xccl_board_call mine = xccl_comm_own_call(comm);
    struct rank_list late = {{0}, 0, 0};
    char call[CALL_BYTES];

    list_late_locals(&late, comm);
    if (!late.count)
        list_links(&late, comm, 0);
    if (!late.count && waited_ns < comm->timeout_ns + LATE_VERDICT_NS)
        return xcclSuccess;
    if (!late.count)
        list_links(&late, comm, 1);
    describe_call(&mine, call, sizeof call);
    return xccl_comm_fail(comm, xcclTimeout,
                          "rank %d has waited %llu s in %s, for %s; check what the other ranks do, "
                          "or raise XCCL_TIMEOUT_S",
                          comm->rank, (unsigned long long)(comm->timeout_ns / XCCL_NS_PER_S), call,
                          late.count ? late.text : "the network to accept the data that it sends");
}

xcclResult_t xccl_comm_check_call(struct xccl_run *run, uint64_t waited_ns)
{
    struct xcclComm *comm = run->owner;
    xcclResult_t rc;

    xccl_comm_progress_turn(comm); /* a peer may wait for what this rank's plugin still holds */
    xccl_record_waits(comm->record);
    rc = xccl_comm_error(comm);
    if (!rc)
        rc = check_boards(comm);
    if (!rc)
        rc = run->kind->check_left(run, 1);
    if (!rc && waited_ns > comm->timeout_ns)
        rc = fail_timeout(comm, waited_ns);
    return rc;
}

/* What a person can do about a connection that failed for this cause; "" when the plugin's text has
 * to do. */
static const char *advice_for(xcclNetCause_t cause)
{
    switch (cause) {
    case xcclNetCausePeerGone:
        return "; check what that rank logged last, and why it ended";
    case xcclNetCauseLinkDown:
        return "; check the network between the two hosts: interfaces, cables, routes";
    case xcclNetCauseTimeout:
        return "; check that the other host is up and reachable from this host";
    case xcclNetCauseProtocol:
        return "; install the same build of the plugin on both hosts; if this does not help, check "
               "the network";
    default:
        return "";
    }
}

/* A connection failed under a call. A neighbour may have left in order, or somebody may know
 * better; what the plugin said is then one line of this rank's log. */
static xcclResult_t fail_link(struct xcclComm *comm, xcclResult_t rc)
{
    struct xccl_run *run = &comm->run;
    const struct xccl_net_link *link = run->bad_net;
    char cause[XCCL_ERROR_TEXT_BYTES], name[NAME_BYTES];

    snprintf(cause, sizeof cause, "%s", xccl_error_text());
    xccl_comm_name_rank(comm, comm->run.bad_peer, name, sizeof name);
    if (xccl_comm_await_error(comm, VERDICT_NAP_NS) || run->kind->check_left(run, 0) ||
        xccl_comm_await_error(comm, XCCL_VERDICT_NS) || run->kind->check_left(run, 0)) {
        xccl_log(XCCL_LOG_INFO, "rank %d lost its connection with %s as well: %s", comm->rank, name,
                 cause);
        return xccl_comm_error(comm);
    }
    return xccl_comm_fail(comm, rc, "rank %d lost its connection with %s: %.220s%s", comm->rank,
                          name, cause, link ? advice_for(xccl_net_link_cause(link)) : "");
}

xcclResult_t xccl_comm_blame(struct xcclComm *comm, xcclResult_t rc)
{
    xcclResult_t known = xccl_comm_error(comm);

    if (known)
        return known;
    if (comm->run.kind->blame(&comm->run))
        return xccl_comm_error(comm);
    if (comm->run.other_size && comm->call.sizes && comm->call.coll == XCCL_COLL_ALL_TO_ALL)
        return fail_sizes(comm, comm->run.bad_peer);
    if (comm->run.bad_peer >= 0 && rc == xcclInvalidUsage)
        return fail_mismatch(comm, comm->run.bad_peer);
    if (comm->run.bad_peer >= 0)
        return fail_link(comm, rc);
    return xccl_comm_fail(comm, rc, "rank %d: %.400s", comm->rank, xccl_error_text());
}

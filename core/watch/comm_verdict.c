/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds out why a call does not end, and who is to blame: ranks in different calls, ranks that have
 * left or do not come, broken connections. Fills in verdicts, whose texts are in
 * verdict/verdict.def. Thread: the crank's holder in the slow branch of a wait or at the end of a
 * call, but for xccl_comm_compare_calls. */
#include "watch/comm_verdict.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "comm/comm_progress.h"
#include "comm/comm_where.h"
#include "comm/device_ops.h"
#include "record/record.h"
#include "verdict/call_text.h"
#include "watch/control.h"
#include "watch/standstill.h"

#define NAME_BYTES      128
#define LEFT_VERDICT_NS (200 * XCCL_NS_PER_MS)
#define LATE_VERDICT_NS (2 * XCCL_NS_PER_S)
#define VERDICT_NAP_NS  1000000
#define LAST_LOOK_NS    (50 * XCCL_NS_PER_MS) /* for a neighbour's answer, at the end */
#define BOARDS_A_LOOK   16
#define FAR_CALLS       (1u << 20) /* no rank is so many calls from another one */

static int is_sized(const struct xccl_board_call *call)
{
    return (call->coll & XCCL_BOARD_SIZED) != 0;
}

/* In an all-to-all with sizes each rank sends as many elements as it likes. */
static int has_own_count(const struct xccl_board_call *call)
{
    return (call->coll & ~XCCL_BOARD_CONNECTS) == (XCCL_BOARD_SIZED | XCCL_COLL_ALL_TO_ALL);
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

/* Names the plugin that chose; "": there is none. */
static void set_tuner(const struct xcclComm *comm, struct xccl_verdict *verdict)
{
    const char *tuner = xccl_comm_tuner_label(comm);

    if (tuner)
        snprintf(verdict->plugin, sizeof verdict->plugin, "%s", tuner);
}

xcclResult_t xccl_comm_fail_choice(const struct xcclComm *comm, int peer)
{
    enum xccl_trouble trouble = xccl_comm_tuner_label(comm) ? XCCL_TROUBLE_LINK_TUNER_DIFFERS
                                                            : XCCL_TROUBLE_LINK_CHOICE_DIFFERS;
    struct xccl_verdict verdict = xccl_comm_verdict(comm, trouble, peer);
    char text[XCCL_ERROR_TEXT_BYTES];

    set_tuner(comm, &verdict);
    (void)xccl_comm_verdict_text(comm, &verdict, text, sizeof text);
    return xccl_fail(xccl_verdict_rc(&verdict), 0, NULL, "%s", text);
}

static struct xccl_act act_of(const struct xccl_board_call *call)
{
    return (struct xccl_act){.kind = XCCL_ACT_CALL, .call = *call};
}

/* Trouble between this rank, in the call at hand, and another one. */
static struct xccl_verdict verdict_in_call(const struct xcclComm *comm, enum xccl_trouble trouble,
                                           int culprit)
{
    struct xccl_verdict verdict = xccl_comm_verdict(comm, trouble, culprit);
    struct xccl_board_call mine = xccl_comm_own_call(comm);

    verdict.mine = act_of(&mine);
    return verdict;
}

/* Two calls of one number. A rank that is past it "was in" it. */
struct difference {
    int peer, mine_is_past, theirs_is_past;
    struct xccl_board_call mine, theirs; /* seq 0: not known any more */
    uint64_t seq;
};

static struct xccl_act known_act(const struct xccl_board_call *call, uint64_t seq, int is_past)
{
    struct xccl_act act = act_of(call);

    act.is_past = is_past;
    if (!call->seq) {
        act.kind = XCCL_ACT_OTHER_CALL;
        act.call.seq = seq;
    }
    return act;
}

/* Texts of both calls are compared, and not the calls: these may come from another host, where a
 * field that a text does not have may hold anything. */
static int is_same_text(const struct xccl_board_call *mine, const struct xccl_board_call *theirs)
{
    struct xccl_board_call alike = *theirs;
    char my_text[NAME_BYTES], their_text[NAME_BYTES];

    if (!mine->seq || !theirs->seq)
        return 0;
    if (has_own_count(theirs))
        alike.count = mine->count;
    xccl_call_describe(mine, my_text, sizeof my_text);
    xccl_call_describe(&alike, their_text, sizeof their_text);
    return strcmp(my_text, their_text) == 0;
}

/* Ranks disagree. If the calls are the same, so it is how they are done. */
static xcclResult_t raise_difference(struct xcclComm *comm, const struct difference *differ)
{
    enum xccl_trouble trouble = XCCL_TROUBLE_CALLS_DIFFER;
    struct xccl_verdict verdict;

    if (is_same_text(&differ->mine, &differ->theirs))
        trouble = xccl_comm_tuner_label(comm) ? XCCL_TROUBLE_TUNER_DIFFERS
                                              : XCCL_TROUBLE_CHOICE_DIFFERS;
    else if (is_sized(&differ->mine) && differ->mine.root)
        trouble = XCCL_TROUBLE_COUNTS_DIFFER;
    verdict = xccl_comm_verdict(comm, trouble, differ->peer);
    verdict.mine = known_act(&differ->mine, differ->seq, differ->mine_is_past);
    verdict.theirs = known_act(&differ->theirs, differ->seq, differ->theirs_is_past);
    set_tuner(comm, &verdict);
    return xccl_comm_raise(comm, &verdict);
}

xcclResult_t xccl_comm_compare(struct xcclComm *comm, int peer,
                               const struct xccl_board_history *theirs)
{
    struct difference differ = {.peer = peer};
    struct xccl_board_history mine;
    uint32_t seq;
    int is_first;

    if (!theirs->word ||
        theirs->word == atomic_load_explicit(&comm->board->word, memory_order_relaxed))
        return xcclSuccess;
    xccl_board_copy(comm->board, (uint32_t)(theirs->word >> 32), &mine);
    if (!xccl_history_differ(&mine, theirs, &seq, &is_first))
        return xcclSuccess;
    differ.seq = seq;
    differ.mine_is_past = mine.newest != seq;
    differ.theirs_is_past = theirs->newest != seq;
    (void)xccl_history_call(&mine, seq, &differ.mine);
    (void)xccl_history_call(theirs, seq, &differ.theirs);
    return raise_difference(comm, &differ);
}

/* Compares with a rank of this host, by its board. */
static xcclResult_t compare_board(struct xcclComm *comm, int index)
{
    const struct xccl_board *board = xccl_shm_board(comm->shm, index);
    struct xccl_board_history theirs;
    /* Acquire: pairs with xccl_board_write(). */
    uint64_t word = atomic_load_explicit(&board->word, memory_order_acquire);
    uint64_t own = atomic_load_explicit(&comm->board->word, memory_order_relaxed);

    if (word == own)
        return xcclSuccess;
    xccl_board_copy(board, (uint32_t)(own >> 32), &theirs);
    return xccl_comm_compare(comm, xccl_shm_rank_of(comm->shm, index), &theirs);
}

xcclResult_t xccl_comm_look(struct xcclComm *comm)
{
    int nlocal = comm->shm ? xccl_shm_nlocal(comm->shm) : 0;
    int count = nlocal < BOARDS_A_LOOK ? nlocal : BOARDS_A_LOOK;
    xcclResult_t rc = xcclSuccess;

    /* The own word before the others': of two ranks one sees the other's at least. Pairs with this
     * fence there. */
    atomic_thread_fence(memory_order_seq_cst);
    for (int i = 1; i < count + 1 && !rc; i++)
        rc = compare_board(comm, (xccl_shm_index_of(comm->shm, comm->rank) + i) % nlocal);
    return rc;
}

int xccl_comm_may_end_early(const struct xcclComm *comm, const struct xccl_board_call *call)
{
    const uint32_t any = XCCL_BOARD_SIZED | XCCL_BOARD_CONNECTS;

    return comm->nranks > 1 &&
           ((call->coll & any) || !call->count || xccl_coll_rooted((enum xccl_coll)call->coll));
}

xcclResult_t xccl_comm_look_early(struct xcclComm *comm)
{
    xcclResult_t rc = xccl_comm_look(comm);

    xccl_control_hurry(comm->control);
    return rc;
}

xcclResult_t xccl_comm_last_look(struct xcclComm *comm)
{
    int next = (comm->rank + 1) % comm->nranks;
    uint64_t word = atomic_load_explicit(&comm->board->word, memory_order_relaxed);
    struct xccl_board_history theirs;
    xcclResult_t rc = xccl_comm_error(comm);

    /* Relaxed: see comm.h. */
    if (atomic_load_explicit(&comm->is_error_told, memory_order_relaxed))
        return xcclSuccess;
    if (rc)
        return rc == xcclInvalidUsage ? rc : xcclSuccess;
    (void)xccl_comm_look(comm);
    xccl_control_compare_left(comm->control);
    if (comm->ends_early && !xccl_comm_is_local(comm, next) && !xccl_comm_error(comm) &&
        !xccl_control_has_left(comm->control, next) &&
        xccl_control_ask(comm->control, next, word, LAST_LOOK_NS, &theirs))
        (void)xccl_comm_compare(comm, next, &theirs);
    rc = xccl_comm_error(comm);
    return rc == xcclInvalidUsage ? rc : xcclSuccess;
}

/* 1: this rank has made the call with this word, so all its messages have come already. */
static int is_over(const struct xcclComm *comm, uint64_t word)
{
    uint32_t low;

    return xccl_board_past(comm->board, (uint32_t)(word >> 32), &low) && low == (uint32_t)word;
}

/* Decides whether peer has sent the message that did not fit this rank's call. Peer is asked
 * whether it has begun the call that the message belongs to. 1: peer has not sent it: it has not
 * begun that call, or it is in the same call as this rank, and its message would fit.
 * theirs_out->word: 0 where nothing is known. */
static int is_strangers(struct xcclComm *comm, int peer, struct xccl_board_history *theirs_out)
{
    uint64_t word = atomic_load_explicit(&comm->board->word, memory_order_relaxed);
    uint64_t seq, signature;
    int is_other = comm->run.bad_net &&
                   xccl_net_link_other_call(comm->run.bad_net, &seq, &signature);
    enum xccl_begun begun;

    theirs_out->word = 0;
    if (is_other && (!seq || seq > comm->seq + FAR_CALLS || seq + FAR_CALLS < comm->seq))
        return 1; /* calls count from 1 */
    if (is_other)
        word = seq << 32 | xccl_flag_low(signature, seq);
    if (is_other && is_over(comm, word))
        return 1;
    begun = xccl_control_ask(comm->control, peer, word, XCCL_VERDICT_NS, theirs_out);
    if (begun == XCCL_BEGUN_UNKNOWN)
        theirs_out->word = 0;
    return begun == (is_other ? XCCL_BEGUN_NO : XCCL_BEGUN_YES);
}

/* A message of another call came from peer; what it calls is known when it is on this host, or
 * answers in time. */
static xcclResult_t fail_mismatch(struct xcclComm *comm, int peer)
{
    int index = comm->shm && !comm->run.bad_net ? xccl_shm_index_of(comm->shm, peer) : -1;
    struct xccl_verdict verdict = verdict_in_call(comm, XCCL_TROUBLE_CALL_UNKNOWN, peer);
    struct xccl_board_history theirs = {0};

    if (index < 0 && is_strangers(comm, peer, &theirs)) {
        verdict.trouble = XCCL_TROUBLE_STRANGER;
        return xccl_comm_raise(comm, &verdict);
    }
    if (xccl_comm_error(comm))
        return xccl_comm_error(comm);
    if (index >= 0)
        xccl_board_copy(xccl_shm_board(comm->shm, index), (uint32_t)comm->seq, &theirs);
    if (xccl_comm_compare(comm, peer, &theirs))
        return xccl_comm_error(comm);
    /* Over a network it cannot be told whether the calls differ, or the choices. */
    set_tuner(comm, &verdict);
    return xccl_comm_raise(comm, &verdict);
}

/* Peer sends another number of elements than this rank takes: both in this all-to-all-v. */
static xcclResult_t fail_sizes(struct xcclComm *comm, int peer)
{
    struct xccl_verdict verdict = verdict_in_call(comm, XCCL_TROUBLE_SIZES_DIFFER, peer);

    verdict.elements = comm->call.sizes->sizes[XCCL_BUFFER_OUT][peer] /
                       xccl_type_bytes(comm->call.type);
    return xccl_comm_raise(comm, &verdict);
}

static int is_equal(const struct xccl_board_call *a, const struct xccl_board_call *b)
{
    return (a->count == b->count || has_own_count(a)) && a->coll == b->coll && a->type == b->type &&
           a->op == b->op && a->root == b->root;
}

xcclResult_t xccl_comm_compare_calls(struct xcclComm *comm, int peer,
                                     const struct xccl_board_call *mine,
                                     const struct xccl_board_call *theirs)
{
    struct difference differ = {.peer = peer, .mine = *mine, .theirs = *theirs};

    if (mine->seq == theirs->seq && is_equal(mine, theirs))
        return xcclSuccess;
    return raise_difference(comm, &differ);
}

xcclResult_t xccl_comm_same_call(struct xcclComm *comm, int peer,
                                 const struct xccl_board_call *theirs)
{
    struct xccl_board_call mine = xccl_comm_own_call(comm);

    return xccl_comm_compare_calls(comm, peer, &mine, theirs);
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

/* own_seq: the call that this rank is in. again: 1 when the caller will ask again, so that no time
 * is spent here. */
static xcclResult_t fail_left(struct xcclComm *comm, int rank, uint64_t last_seq, uint64_t own_seq,
                              int again)
{
    struct xccl_verdict verdict = verdict_in_call(comm, XCCL_TROUBLE_LEFT, rank);

    if (again && !is_settled(comm))
        return xcclSuccess;
    if (xccl_comm_await_error(comm, again ? 0 : LEFT_VERDICT_NS))
        return xccl_comm_error(comm);
    verdict.mine.call.seq = own_seq;
    verdict.theirs.call.seq = last_seq;
    return xccl_comm_raise(comm, &verdict);
}

/* The other rank has begun a split that this one has not, before the call that this one is in. */
static xcclResult_t fail_split(struct xcclComm *comm, int peer)
{
    struct xccl_verdict verdict = verdict_in_call(comm, XCCL_TROUBLE_CALLS_DIFFER, peer);

    verdict.theirs.kind = XCCL_ACT_SPLIT;
    return xccl_comm_raise(comm, &verdict);
}

/* Compares this rank's call with those of other ranks of this host, and finds ranks that have left
 * for good. Each board is a page of its own: of a crowd only some are looked at, the others next
 * time. */
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
        xcclResult_t rc = compare_board(comm, i);

        if (rc)
            return rc;
        if ((int32_t)(uint32_t)((word >> 32) - (own >> 32)) >= 0)
            continue;
        if (outside == 2)
            return fail_left(comm, rank, word >> 32, comm->seq, 1);
        if ((int32_t)(splits - own_splits) > 0)
            return fail_split(comm, rank);
    }
    return xcclSuccess;
}

static xcclResult_t check_left_before(struct xcclComm *comm, uint64_t seq, int again)
{
    uint64_t last_seq;
    int rank = xccl_control_left_before(comm->control, seq, &last_seq);

    return rank == XCCL_NOBODY ? xcclSuccess : fail_left(comm, rank, last_seq, seq, again);
}

xcclResult_t xccl_comm_check_left(struct xccl_run *run, int again)
{
    struct xcclComm *comm = run->owner;

    return check_left_before(comm, comm->seq, again);
}

/* Lists ranks of this host that have not come to make these links for a device. */
static void list_late_talkers(struct xccl_verdict *verdict, const struct xcclComm *comm)
{
    for (int i = 0; comm->shm && i < xccl_shm_nlocal(comm->shm); i++) {
        const struct xccl_board *board = xccl_shm_board(comm->shm, i);
        uint32_t talks = atomic_load_explicit(&board->talks, memory_order_relaxed);

        if ((int32_t)(talks - (uint32_t)comm->seq) < 0)
            xccl_verdict_wait(verdict, (struct xccl_waited){.rank = xccl_shm_rank_of(comm->shm, i),
                                                            .why = XCCL_WAIT_NOT_BEGUN});
    }
}

/* Lists ranks of this host whose board shows an older call. */
static void list_late_locals(struct xccl_verdict *verdict, const struct xcclComm *comm)
{
    for (int i = 0; comm->shm && i < xccl_shm_nlocal(comm->shm); i++) {
        const struct xccl_board *board = xccl_shm_board(comm->shm, i);
        uint32_t outside = atomic_load_explicit(&board->outside, memory_order_relaxed);
        uint32_t queued = atomic_load_explicit(&board->queued, memory_order_relaxed);
        uint64_t word = atomic_load_explicit(&board->word, memory_order_acquire);
        uint32_t behind = (uint32_t)comm->seq - (uint32_t)(word >> 32);
        int is_queued = outside && queued >= behind;

        if ((int32_t)behind <= 0)
            continue;
        if (is_queued)
            verdict->trouble = XCCL_TROUBLE_DEVICE_LATE;
        xccl_verdict_wait(verdict, (struct xccl_waited){.rank = xccl_shm_rank_of(comm->shm, i),
                                                        .why = is_queued ? XCCL_WAIT_QUEUED
                                                               : outside ? XCCL_WAIT_BETWEEN
                                                                         : XCCL_WAIT_OLDER,
                                                        .call = (uint32_t)(word >> 32)});
    }
}

/* Lists ranks of other hosts that are not known to be in this call, while connections are made for
 * it. */
static void list_remotes(struct xccl_verdict *verdict, const struct xcclComm *comm)
{
    for (int i = 0; i < comm->nranks; i++)
        if (!xccl_comm_is_local(comm, i) && !xccl_control_in_call(comm->control, i, comm->seq))
            xccl_verdict_wait(verdict, (struct xccl_waited){.rank = i, .why = XCCL_WAIT_COMES});
}

/* Lists ranks at the other ends of network links that are not done. all 0: not those that are known
 * to be in this call too, waiting like this rank. */
static void list_links(struct xccl_verdict *verdict, const struct xcclComm *comm, int all)
{
    const struct xccl_binding *binding;

    if (!comm->run.plan) {
        list_remotes(verdict, comm);
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
            xccl_verdict_wait(
                verdict,
                (struct xccl_waited){.rank = rank, .why = all ? XCCL_WAIT_SAME : XCCL_WAIT_COMES});
    }
}

/* A rank that knows nobody late leaves the word to those who do: they stand next to the culprit. It
 * is asked again until their time is over. */
static xcclResult_t fail_timeout(struct xcclComm *comm, uint64_t waited_ns)
{
    struct xccl_verdict verdict = verdict_in_call(comm, XCCL_TROUBLE_LATE, XCCL_NOBODY);

    verdict.seconds = comm->timeout_ns / XCCL_NS_PER_S;
    if (comm->ops->tells_board && comm->connects)
        list_late_talkers(&verdict, comm);
    else
        list_late_locals(&verdict, comm);
    if (!verdict.wait_count)
        list_links(&verdict, comm, 0);
    if (!verdict.wait_count) {
        if (waited_ns < comm->timeout_ns + LATE_VERDICT_NS)
            return xcclSuccess;
        verdict.trouble = XCCL_TROUBLE_NO_PROGRESS;
        list_links(&verdict, comm, 1);
    }
    if (!verdict.wait_count)
        verdict.trouble = XCCL_TROUBLE_NETWORK_STUCK;
    else if (verdict.trouble == XCCL_TROUBLE_LATE && verdict.wait_count == 1)
        verdict.culprit = verdict.waits[0].rank;
    return xccl_comm_raise(comm, &verdict);
}

/* Says without which ranks the call at hand cannot end. Without a plan it makes links, for which
 * all must have begun it where there is a network. */
static enum xccl_still_needs needs_of(const struct xcclComm *comm)
{
    enum xccl_coll coll = comm->call.coll;
    int is_root = comm->rank == comm->call.root;

    if (!comm->run.plan && !comm->ops->tells_board)
        return XCCL_NEEDS_ALL;
    if (coll == XCCL_COLL_BROADCAST || coll == XCCL_COLL_SCATTER)
        return is_root ? XCCL_NEEDS_NOBODY : XCCL_NEEDS_ROOT;
    if (coll == XCCL_COLL_REDUCE || coll == XCCL_COLL_GATHER)
        return is_root ? XCCL_NEEDS_ALL : XCCL_NEEDS_NOBODY;
    return comm->call.sizes ? XCCL_NEEDS_NOBODY : XCCL_NEEDS_ALL;
}

static void stand_in_call(struct xcclComm *comm, struct xccl_still *own)
{
    own->kind = XCCL_STILL_CALL;
    own->needs = needs_of(comm);
    own->call = xccl_comm_own_call(comm);
    own->call.coll |= comm->connects == XCCL_CONNECTS_ALL ? XCCL_BOARD_CONNECTS : 0;
    own->item_count = 0;
}

/* A wait is looked at: the communicator's error, if there is one. */
static xcclResult_t check_begin(struct xcclComm *comm)
{
    xccl_comm_progress_turn(comm); /* a peer may wait for what this rank's plugin still holds */
    xccl_record_waits(comm->record);
    return xccl_comm_error(comm);
}

/* Ranks that left, circles of ranks, and the deadline, once boards show nothing. */
static xcclResult_t check_end(struct xccl_run *run, uint64_t waited_ns, xccl_still_fill *stand)
{
    struct xcclComm *comm = run->owner;
    xcclResult_t rc;

    xccl_control_compare_left(comm->control);
    rc = run->kind->check_left(run, 1);
    if (!rc)
        rc = xccl_standstill_check(comm, waited_ns, stand);
    if (!rc && waited_ns > comm->timeout_ns)
        rc = fail_timeout(comm, waited_ns);
    return rc;
}

xcclResult_t xccl_comm_check_call(struct xccl_run *run, uint64_t waited_ns)
{
    struct xcclComm *comm = run->owner;
    xcclResult_t rc = check_begin(comm);

    if (!rc)
        rc = check_boards(comm);
    return rc ? rc : check_end(run, waited_ns, stand_in_call);
}

/* --- a device's call that makes links --- */

/* The call that the links are for, as the board will tell it; 0: its number is not known. */
static int talk_call(struct xcclComm *comm, struct xccl_board_call *call_out)
{
    uint64_t seq = comm->ops->next_number(comm);

    if (!seq)
        return 0;
    *call_out = xccl_comm_board_call(&comm->call, seq);
    if (comm->connects == XCCL_CONNECTS_ALL)
        call_out->coll |= XCCL_BOARD_CONNECTS;
    return 1;
}

/* Another rank of this host is past the making of links, in another call of that number. */
static xcclResult_t compare_talk(struct xcclComm *comm, int index,
                                 const struct xccl_board_call *mine)
{
    struct difference differ = {
        .peer = xccl_shm_rank_of(comm->shm, index), .mine = *mine, .seq = mine->seq};
    const struct xccl_board *board = xccl_shm_board(comm->shm, index);
    struct xccl_board_history history;

    xccl_board_copy(board, (uint32_t)mine->seq, &history);
    if (history.word >> 32 != (uint32_t)mine->seq ||
        !xccl_history_call(&history, (uint32_t)mine->seq, &differ.theirs))
        return xcclSuccess;
    if (is_equal(mine, &differ.theirs))
        return xcclSuccess;
    differ.theirs_is_past = history.newest != (uint32_t)mine->seq;
    return raise_difference(comm, &differ);
}

/* Number of the last call that the board tells. */
static uint64_t last_told(const struct xcclComm *comm)
{
    return atomic_load_explicit(&comm->board->word, memory_order_relaxed) >> 32;
}

/* mine NULL: the call's number is not known. A rank that has left and has not come to make these
 * links never will. again: as in fail_left(). */
static xcclResult_t compare_talks(struct xcclComm *comm, const struct xccl_board_call *mine,
                                  int again)
{
    int nlocal = comm->shm ? xccl_shm_nlocal(comm->shm) : 0;
    xcclResult_t rc = xcclSuccess;

    for (int i = 0; i < nlocal && !rc; i++) {
        const struct xccl_board *board = xccl_shm_board(comm->shm, i);
        /* Acquire: nothing follows a 2. Pairs with xccl_board_write(). */
        uint32_t outside = atomic_load_explicit(&board->outside, memory_order_acquire);
        uint32_t talks = atomic_load_explicit(&board->talks, memory_order_relaxed);
        uint64_t word = atomic_load_explicit(&board->word, memory_order_acquire);

        if (mine && comm->connects == XCCL_CONNECTS_CALL)
            rc = compare_talk(comm, i, mine);
        if (!rc && outside == 2 && (int32_t)(talks - (uint32_t)comm->seq) < 0)
            rc = fail_left(comm, xccl_shm_rank_of(comm->shm, i), word >> 32,
                           mine ? mine->seq : last_told(comm), again);
    }
    return rc;
}

static void stand_in_talk(struct xcclComm *comm, struct xccl_still *own)
{
    own->kind = talk_call(comm, &own->call) ? XCCL_STILL_TALK : XCCL_STILL_NONE;
    own->needs = XCCL_NEEDS_ALL;
    own->item_count = 0;
    if (own->kind == XCCL_STILL_NONE)
        comm->ops->stand(comm, own);
}

xcclResult_t xccl_comm_check_left_talk(struct xccl_run *run, int again)
{
    struct xcclComm *comm = run->owner;
    uint64_t seq = comm->connects == XCCL_CONNECTS_CALL ? comm->ops->next_number(comm) : 0;

    return check_left_before(comm, seq ? seq : last_told(comm), again);
}

xcclResult_t xccl_comm_check_talk(struct xccl_run *run, uint64_t waited_ns)
{
    struct xcclComm *comm = run->owner;
    struct xccl_board_call mine;
    xcclResult_t rc = check_begin(comm);

    if (!rc)
        rc = compare_talks(comm, talk_call(comm, &mine) ? &mine : NULL, 1);
    return rc ? rc : check_end(run, waited_ns, stand_in_talk);
}

/* Trouble of a connection that failed for this cause. */
static enum xccl_trouble trouble_of(const struct xccl_net_link *link)
{
    switch (link ? xccl_net_link_cause(link) : xcclNetCauseUnknown) {
    case xcclNetCausePeerGone:
        return XCCL_TROUBLE_LINK_PEER_GONE;
    case xcclNetCauseLinkDown:
        return XCCL_TROUBLE_LINK_DOWN;
    case xcclNetCauseTimeout:
        return XCCL_TROUBLE_LINK_TIMEOUT;
    case xcclNetCauseProtocol:
        return XCCL_TROUBLE_LINK_PROTOCOL;
    default:
        return XCCL_TROUBLE_LINK_BROKEN;
    }
}

/* A connection failed under a call. A neighbour may have left in order, or somebody may know
 * better; what the plugin said is then one line of this rank's log. */
static xcclResult_t fail_link(struct xcclComm *comm, xcclResult_t rc)
{
    struct xccl_run *run = &comm->run;
    struct xccl_verdict verdict = xccl_comm_verdict(comm, trouble_of(run->bad_net), run->bad_peer);
    char name[NAME_BYTES];

    verdict.rc = rc;
    xccl_verdict_set_why(&verdict, xccl_error_text());
    xccl_control_compare_left(comm->control);
    if (xccl_comm_await_error(comm, VERDICT_NAP_NS) || run->kind->check_left(run, 0) ||
        xccl_comm_await_error(comm, XCCL_VERDICT_NS) || run->kind->check_left(run, 0)) {
        xccl_comm_name_rank(comm, run->bad_peer, name, sizeof name);
        xccl_log(XCCL_LOG_INFO, "rank %d lost its connection with %s as well: %s", comm->rank, name,
                 verdict.why);
        return xccl_comm_error(comm);
    }
    return xccl_comm_raise(comm, &verdict);
}

/* Something out of band failed while links were made. A rank that left has closed its end of that,
 * too, and a rank that splits says other things there. */
static xcclResult_t fail_talk(struct xcclComm *comm, xcclResult_t rc)
{
    char cause[XCCL_ERROR_TEXT_BYTES];
    int splitter;

    snprintf(cause, sizeof cause, "%s", xccl_error_text());
    if (xccl_comm_await_error(comm, LEFT_VERDICT_NS) || comm->run.kind->check_left(&comm->run, 0))
        return xccl_comm_error(comm);
    if (comm->ops->tells_board && comm->connects && compare_talks(comm, NULL, 0))
        return xccl_comm_error(comm);
    splitter = comm->run.kind->is_messages ? XCCL_NOBODY : xccl_standstill_splitter(comm);
    if (splitter != XCCL_NOBODY)
        return fail_split(comm, splitter);
    xccl_error_set_text(cause);
    return xccl_comm_fail_own(comm, rc, XCCL_TROUBLE_OTHER);
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
    if (!comm->run.plan && rc != xcclSystemError)
        return fail_talk(comm, rc);
    return xccl_comm_fail_own(comm, rc, XCCL_TROUBLE_OTHER);
}

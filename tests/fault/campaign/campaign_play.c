/* SPDX-License-Identifier: BSD-3-Clause */
/* The steps of a program, and what they must give: see the header. An element depends on the step,
 * the rank that gives it, whom it is for, and its place; sums are of 32 bits and wrap. */
#include "campaign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xt.h"

#define TEAMS_MAX 3 /* communicators of a player */
#define SLICE     (CAMPAIGN_ROOM / TEAMS_MAX) /* elements of a buffer that one has in a group */

enum kind {
    ALL_REDUCE,
    BROADCAST,
    REDUCE,
    ALL_GATHER,
    REDUCE_SCATTER,
    ALL_TO_ALL,
    GATHER,
    SCATTER,
    RING,
    ALL_GATHER_V,
    ALL_TO_ALL_V,
    BARRIER,
    STREAMED,
    SPLIT,
    IN_CHILD,
    IN_SECOND,
    IN_BOTH,
    IN_ALL,
    KINDS
};

static const char *const names[KINDS] = {
    "all-reduce", "broadcast", "reduce",       "all-gather",    "reduce-scatter", "all-to-all",
    "gather",     "scatter",   "ring",         "all-gatherv",   "all-to-allv",    "barrier",
    "streamed",   "split",     "in the child", "in the second", "in both",        "in all"};

/* A step of the program, equal on all ranks but for the odd call of one. */
struct step {
    enum kind kind;
    size_t count;
    int root, colors;
    uint32_t number;
    xcclDataType_t type;
    int blind; /* nobody knows what it gives */
};

static struct step step_draw(uint64_t seed, uint32_t number)
{
    static const size_t counts[] = {0, 1, 2, 7, 100, 1000, 3000, 20000, CAMPAIGN_COUNT_MAX};
    uint64_t dice = seed ^ number * 0x9e3779b97f4a7c15ull, drawn = xt_random(&dice);

    return (struct step){.kind = (enum kind)(drawn % KINDS),
                         .count = counts[(drawn >> 8) % 9],
                         .root = (int)((drawn >> 16) % 64),
                         .colors = 1 + (int)((drawn >> 24) % 3),
                         .number = number,
                         .type = xcclUint32};
}

void campaign_step_text(uint64_t seed, uint32_t step, char *text_out, size_t bytes)
{
    struct step drawn = step_draw(seed, step);

    snprintf(text_out, bytes, "step %u: %s of %zu", (unsigned)step, names[drawn.kind], drawn.count);
}

static uint32_t element(const struct step *step, int from, int to, size_t i)
{
    return (uint32_t)(from + 1) * 7919u + (uint32_t)to * 104729u + step->number * 31u + (uint32_t)i;
}

/* A communicator, and which ranks of the first one its ranks are. */
struct team {
    xcclComm_t comm;
    int rank, count, first, stride;
};

static int member(const struct team *team, int rank)
{
    return team->first + rank * team->stride;
}

static uint32_t sum_of(const struct team *team, const struct step *step, int to, size_t i)
{
    uint32_t sum = 0;

    for (int r = 0; r < team->count; r++)
        sum += element(step, member(team, r), to, i);
    return sum;
}

/* Elements for rank `to`, from place `at` of the input on. */
static void fill(struct player *player, const struct team *team, const struct step *step, size_t at,
                 int to, size_t count)
{
    for (size_t i = 0; i < count; i++)
        player->in[at + i] = element(step, member(team, team->rank), to, i);
    if (player->filled < at + count)
        player->filled = at + count;
}

/* The output from place `at` on is what rank `from` had for rank `to`. */
static void check_from(struct player *player, const struct team *team, const struct step *step,
                       size_t at, int from, int to, size_t count)
{
    for (size_t i = 0; i < count && !step->blind; i++)
        player->wrong += player->out[at + i] != element(step, member(team, from), to, i);
}

static void check_sum(struct player *player, const struct team *team, const struct step *step,
                      size_t at, int to, size_t count)
{
    for (size_t i = 0; i < count && !step->blind; i++)
        player->wrong += player->out[at + i] != sum_of(team, step, to, i);
}

/* ---- calls ---- */

static xcclResult_t play_all_reduce(struct player *player, const struct team *team,
                                    const struct step *step)
{
    int is_streamed = step->kind == STREAMED && !player->on_device;
    xcclStream_t stream = is_streamed ? player->stream : player_lane(player);
    xcclResult_t rc;

    fill(player, team, step, 0, 0, step->count);
    player_push(player);
    rc = xcclAllReduce(player_in(player, 0), player_out(player, 0), step->count, step->type,
                       xcclSum, team->comm, stream);
    if (!rc && is_streamed)
        rc = xcclStreamSynchronize(stream);
    rc = player_await(player, team->comm, rc);
    if (!rc)
        check_sum(player, team, step, 0, 0, step->count);
    return rc;
}

static xcclResult_t play_scatter(struct player *player, const struct team *team,
                                 const struct step *step)
{
    int root = step->root % team->count;
    xcclResult_t rc;

    for (int r = 0; root == team->rank && r < team->count; r++)
        fill(player, team, step, (size_t)r * step->count, r, step->count);
    player_push(player);
    rc = xcclScatter(player_in(player, 0), player_out(player, 0), step->count, step->type, root,
                     team->comm, player_lane(player));
    rc = player_await(player, team->comm, rc);
    if (!rc)
        check_from(player, team, step, 0, root, team->rank, step->count);
    return rc;
}

static xcclResult_t play_rooted(struct player *player, const struct team *team,
                                const struct step *step)
{
    int root = step->root % team->count, is_root = root == team->rank;
    void *in = player_in(player, 0), *out = player_out(player, 0);
    xcclStream_t stream = player_lane(player);
    size_t count = step->count;
    xcclResult_t rc;

    fill(player, team, step, 0, 0, count);
    player_push(player);
    if (step->kind == BROADCAST)
        rc = xcclBroadcast(in, out, count, step->type, root, team->comm, stream);
    else if (step->kind == REDUCE)
        rc = xcclReduce(in, out, count, step->type, xcclSum, root, team->comm, stream);
    else
        rc = xcclGather(in, out, count, step->type, root, team->comm, stream);
    rc = player_await(player, team->comm, rc);
    if (!rc && step->kind == BROADCAST)
        check_from(player, team, step, 0, root, 0, count);
    else if (!rc && is_root && step->kind == REDUCE)
        check_sum(player, team, step, 0, 0, count);
    for (int r = 0; !rc && is_root && step->kind == GATHER && r < team->count; r++)
        check_from(player, team, step, (size_t)r * count, r, 0, count);
    return rc;
}

static xcclResult_t play_blocks(struct player *player, const struct team *team,
                                const struct step *step)
{
    void *in = player_in(player, 0), *out = player_out(player, 0);
    xcclStream_t stream = player_lane(player);
    size_t count = step->count;
    xcclResult_t rc;

    for (int r = 0; r < team->count; r++)
        fill(player, team, step, (size_t)r * count, r, count);
    player_push(player);
    if (step->kind == REDUCE_SCATTER)
        rc = xcclReduceScatter(in, out, count, step->type, xcclSum, team->comm, stream);
    else if (step->kind == ALL_TO_ALL)
        rc = xcclAlltoAll(in, out, count, step->type, team->comm, stream);
    else
        rc = xcclAllGather(in, out, count, step->type, team->comm, stream);
    rc = player_await(player, team->comm, rc);
    if (!rc && step->kind == REDUCE_SCATTER) {
        check_sum(player, team, step, 0, team->rank, count);
        return rc;
    }
    for (int r = 0; !rc && r < team->count; r++)
        check_from(player, team, step, (size_t)r * count, r,
                   step->kind == ALL_TO_ALL ? team->rank : 0, count);
    return rc;
}

/* Elements that rank `from` has for rank `to`. */
static size_t share(const struct step *step, int from, int to)
{
    return step->count * (size_t)((from * 3 + to * 5 + (int)step->number) % 4) / 4;
}

static xcclResult_t play_all_gather_v(struct player *player, const struct team *team,
                                      const struct step *step)
{
    size_t counts[CAMPAIGN_RANKS_MAX], at[CAMPAIGN_RANKS_MAX], used = 0;
    xcclResult_t rc;

    for (int r = 0; r < team->count; r++) {
        counts[r] = share(step, r, 0);
        at[r] = used;
        used += counts[r];
    }
    fill(player, team, step, 0, 0, counts[team->rank]);
    player_push(player);
    rc = xcclAllGatherv(player_in(player, 0), counts[team->rank], player_out(player, 0), counts, at,
                        xcclUint32, team->comm, player_lane(player));
    rc = player_await(player, team->comm, rc);
    for (int r = 0; !rc && r < team->count; r++)
        check_from(player, team, step, at[r], r, 0, counts[r]);
    return rc;
}

static xcclResult_t play_all_to_all_v(struct player *player, const struct team *team,
                                      const struct step *step)
{
    size_t to[CAMPAIGN_RANKS_MAX], from[CAMPAIGN_RANKS_MAX], at[CAMPAIGN_RANKS_MAX];
    xcclResult_t rc;

    for (int r = 0; r < team->count; r++) {
        to[r] = share(step, team->rank, r);
        from[r] = share(step, r, team->rank);
        at[r] = (size_t)r * step->count;
        fill(player, team, step, at[r], r, to[r]);
    }
    player_push(player);
    rc = xcclAlltoAllv(player_in(player, 0), to, at, player_out(player, 0), from, at, xcclUint32,
                       team->comm, player_lane(player));
    rc = player_await(player, team->comm, rc);
    for (int r = 0; !rc && r < team->count; r++)
        check_from(player, team, step, at[r], r, team->rank, from[r]);
    return rc;
}

static xcclResult_t play_ring(struct player *player, const struct team *team,
                              const struct step *step)
{
    int shift = team->count > 1 ? 1 + step->root % (team->count - 1) : 0;
    int to = (team->rank + shift) % team->count;
    int from = (team->rank + team->count - shift) % team->count;
    xcclResult_t rc, end;

    fill(player, team, step, 0, to, step->count);
    player_push(player);
    XT_OK(xcclGroupStart());
    rc = xcclSend(player_in(player, 0), step->count, xcclUint32, to, team->comm,
                  player_lane(player));
    if (!rc)
        rc = xcclRecv(player_out(player, 0), step->count, xcclUint32, from, team->comm,
                      player_lane(player));
    end = xcclGroupEnd();
    rc = player_await(player, team->comm, rc ? rc : end);
    if (!rc)
        check_from(player, team, step, 0, from, team->rank, step->count);
    return rc;
}

/* One all-reduce in each of several communicators in a group, each with a slice of the memory. */
static xcclResult_t play_group(struct player *player, const struct team *const *teams, int count,
                               const struct step *step)
{
    xcclResult_t rc = xcclSuccess, end;

    for (int i = 0; i < count; i++)
        fill(player, teams[i], step, (size_t)i * SLICE, i, step->count);
    player_push(player);
    XT_OK(xcclGroupStart());
    for (int i = count - 1; i >= 0 && !rc; i--)
        rc = xcclAllReduce(player_in(player, (size_t)i * SLICE),
                           player_out(player, (size_t)i * SLICE), step->count, xcclUint32, xcclSum,
                           teams[i]->comm, player_lane(player));
    end = xcclGroupEnd();
    rc = rc ? rc : end;
    if (rc && rc != xcclInProgress)
        return rc;
    for (int i = 0; i < count; i++) {
        rc = player_await(player, teams[i]->comm, end);
        if (rc)
            return rc;
    }
    for (int i = 0; i < count; i++)
        check_sum(player, teams[i], step, (size_t)i * SLICE, i, step->count);
    return xcclSuccess;
}

/* ---- children ---- */

/* Ranks that are equal modulo the number of colors are together. */
static xcclResult_t split(struct player *player, const struct step *step)
{
    int colors = step->colors < player->nranks ? step->colors : player->nranks;
    xcclComm_t old = player->child;
    xcclResult_t rc;

    player->child = NULL;
    if (old)
        (void)xcclCommDestroy(old);
    rc = xcclCommSplit(player->comm, player->rank % colors, player->rank, &player->child, NULL);
    if (rc)
        return rc;
    player->child_first = player->rank % colors;
    player->child_stride = colors;
    player->child_rank = player->rank / colors;
    player->child_count = (player->nranks - player->child_first + colors - 1) / colors;
    return xcclSuccess;
}

static xcclResult_t play(struct player *player, const struct team *team, const struct step *step)
{
    switch (step->kind) {
    case ALL_REDUCE:
    case STREAMED:
        return play_all_reduce(player, team, step);
    case SCATTER:
        return play_scatter(player, team, step);
    case BROADCAST:
    case REDUCE:
    case GATHER:
        return play_rooted(player, team, step);
    case ALL_GATHER:
    case REDUCE_SCATTER:
    case ALL_TO_ALL:
        return play_blocks(player, team, step);
    case RING:
        return play_ring(player, team, step);
    case ALL_GATHER_V:
        return play_all_gather_v(player, team, step);
    case ALL_TO_ALL_V:
        return play_all_to_all_v(player, team, step);
    default:
        return player_await(player, team->comm, xcclBarrier(team->comm, player_lane(player)));
    }
}

/* ---- the odd call ---- */

/* All ranks wait for each other. */
static int waits_for_all(const struct step *step)
{
    return step->kind == BARRIER ||
           (step->count && (step->kind == ALL_REDUCE || step->kind == ALL_GATHER ||
                            step->kind == REDUCE_SCATTER || step->kind == ALL_TO_ALL));
}

/* The odd call is one of the first communicator, and so is the step after one that is left out:
 * ranks that wait for each other in two communicators are another matter. A message that is left
 * out may come after a call that need not wait, so that call is not the next one. */
static int odd_fits(const struct player *player, const struct step *step)
{
    struct step next;

    switch (player->odd) {
    case ODD_ROOT:
        return step->kind == BROADCAST || step->kind == REDUCE || step->kind == GATHER ||
               step->kind == SCATTER;
    case ODD_COUNT:
    case ODD_TYPE:
        return step->kind <= SCATTER;
    case ODD_CALL:
        return step->kind <= SCATTER || step->kind == BARRIER;
    case ODD_SKIP:
        next = step_draw(player->seed, step->number + 1);
        if (step->kind == RING)
            return waits_for_all(&next);
        return (step->kind <= SCATTER || step->kind == BARRIER) && next.kind <= SPLIT &&
               next.kind != step->kind;
    default:
        return 0;
    }
}

static void bend(const struct player *player, struct step *step)
{
    step->blind = 1;
    if (player->odd == ODD_ROOT)
        step->root = (step->root % player->nranks + 1) % player->nranks;
    else if (player->odd == ODD_COUNT)
        step->count++;
    else if (player->odd == ODD_TYPE)
        step->type = xcclFloat32;
    else
        step->kind = step->kind == ALL_REDUCE ? ALL_GATHER : ALL_REDUCE;
}

/* 1: the call is left out. */
static int make_odd(struct player *player, struct step *step)
{
    int skips = player->odd == ODD_SKIP;

    if (!odd_fits(player, step))
        return 0;
    if (!skips)
        bend(player, step);
    player->odd = ODDS;
    player->odd_leaves_message = step->kind == RING;
    player->before_odd(player);
    return skips;
}

/* ---- a step ---- */

static void keep_text(struct player *player, xcclComm_t comm)
{
    const char *text = xcclCommGetLastError(comm);

    player->failed_in = comm == player->comm && text[0] ? IN_MAIN : IN_OTHERS;
    snprintf(player->text, sizeof(player->text), "%s", text[0] ? text : xcclGetLastError(NULL));
}

/* A team for each communicator that the step uses; gives how many. */
static int choose(const struct player *player, const struct team *have, enum kind kind,
                  const struct team *teams_out[TEAMS_MAX])
{
    int is_main = kind != IN_CHILD && kind != IN_SECOND, count = 0;

    if (is_main)
        teams_out[count++] = &have[0];
    if (player->child && (kind == IN_CHILD || kind == IN_BOTH || kind == IN_ALL))
        teams_out[count++] = &have[1];
    if (player->second && (kind == IN_SECOND || kind == IN_ALL))
        teams_out[count++] = &have[2];
    if (count == 0)
        teams_out[count++] = &have[0];
    return count;
}

xcclResult_t player_step(struct player *player, uint32_t number)
{
    struct step step = step_draw(player->seed, number);
    const struct team have[TEAMS_MAX] = {{player->comm, player->rank, player->nranks, 0, 1},
                                         {player->child, player->child_rank, player->child_count,
                                          player->child_first, player->child_stride},
                                         {player->second, player->rank, player->nranks, 0, 1}};
    const struct team *teams[TEAMS_MAX];
    int count = choose(player, have, step.kind, teams);
    xcclResult_t rc;

    player->filled = 0;
    if (make_odd(player, &step))
        return xcclSuccess;
    if (step.kind == SPLIT) {
        rc = split(player, &step);
    } else if (count > 1) {
        rc = play_group(player, teams, count, &step);
    } else {
        if (step.kind > SPLIT)
            step.kind = (enum kind)(step.root % BARRIER);
        rc = play(player, teams[0], &step);
    }
    if (rc)
        keep_text(player, teams[0]->comm);
    return rc;
}

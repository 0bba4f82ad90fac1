/* SPDX-License-Identifier: BSD-3-Clause */
/* The entry of the verifier: one call in one way. First the least number of slots, from runs that
 * only count; then the run on values; and that once more with clocks, where two lanes of a rank
 * meet in a chunk. */
#include "schedule/verify.h"

#include "base/error.h"
#include "schedule/verify_int.h"

#define STEP_MAJOR_SLOTS_MAX 64 /* as many tiles are run */

/* Whether a tile ends with so many slots; the verdict tells. */
static xcclResult_t try_slots(const struct xccl_verify_net *net, uint32_t nslots,
                              struct xccl_verdict *verdict)
{
    const struct xccl_verify_how how = {
        .nslots = nslots,
        /* Where steps go through all tiles, more tiles than slots must go through. */
        .tiles = net->step_major ? nslots + 2 : 1,
    };
    struct xccl_verify_run run;
    xcclResult_t rc;

    verdict->kind = XCCL_VERDICT_PROVEN;
    rc = xccl_verify_run_init(&run, net, &how, NULL, verdict);
    if (rc)
        return rc;
    rc = xccl_verify_run_go(&run);
    xccl_verify_run_fini(&run);
    return rc;
}

xcclResult_t xccl_verify_minslots(const struct xccl_verify_net *net, struct xccl_verdict *verdict)
{
    uint32_t most = net->step_major ? STEP_MAJOR_SLOTS_MAX : XCCL_VERIFY_SLOTS_MAX;
    uint32_t enough = 1, scarce = 0;
    xcclResult_t rc = try_slots(net, enough, verdict);

    while (!rc && verdict->kind == XCCL_VERDICT_DEADLOCK && enough < most) {
        scarce = enough;
        enough *= 2;
        rc = try_slots(net, enough, verdict);
    }
    if (rc || verdict->kind != XCCL_VERDICT_PROVEN)
        return rc;
    while (!rc && enough - scarce > 1) {
        uint32_t middle = (enough + scarce) / 2;

        rc = try_slots(net, middle, verdict);
        if (verdict->kind == XCCL_VERDICT_PROVEN)
            enough = middle;
        else
            scarce = middle;
    }
    verdict->kind = XCCL_VERDICT_PROVEN;
    verdict->text[0] = '\0';
    verdict->minslots = (uint16_t)enough;
    return rc;
}

/* Takes off the marks for which a direct run stands still. */
static uint32_t unmark_stuck(const struct xccl_verify_run *run)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < run->net->nlanes; i++) {
        const struct xccl_verify_lane *at = &run->lanes[i], *from;
        struct xccl_step *step;
        const struct xccl_spot *spot;

        if (at->ended || at->block != XCCL_BLOCK_MARK)
            continue;
        step = &at->schedule->steps[at->step - at->schedule->steps];
        if (at->phase == XCCL_PHASE_POST) {
            count += (step->flags & XCCL_FLAG_DIRECT_RECV) != 0;
            step->flags &= (uint8_t)~XCCL_FLAG_DIRECT_RECV;
            continue;
        }
        spot = &run->marks[at->block_on].from;
        from = &run->lanes[spot->lane];
        step = &from->schedule->steps[from->schedule->lanes[from->lane].step0 + spot->step];
        count += (step->flags & XCCL_FLAG_DIRECT_SEND) != 0;
        step->flags &= (uint8_t)~XCCL_FLAG_DIRECT_SEND;
    }
    return count;
}

static xcclResult_t go_once(const struct xccl_verify_net *net, const struct xccl_verify_how *how,
                            struct xccl_rank_sets *sets, struct xccl_verdict *verdict,
                            struct xccl_verify_run *run)
{
    xcclResult_t rc;

    verdict->kind = XCCL_VERDICT_PROVEN;
    verdict->text[0] = '\0';
    rc = xccl_verify_run_init(run, net, how, sets, verdict);
    return rc ? rc : xccl_verify_run_go(run);
}

xcclResult_t xccl_verify_data(const struct xccl_verify_net *net, const struct xccl_verify_how *how,
                              struct xccl_rank_sets *sets, struct xccl_verdict *verdict,
                              uint32_t *unmarked_out)
{
    struct xccl_verify_how with_clocks = *how;
    struct xccl_verify_run run;
    xcclResult_t rc = go_once(net, how, sets, verdict, &run);

    if (!rc && run.contended) {
        xccl_verify_run_fini(&run);
        with_clocks.clocks = 1;
        rc = go_once(net, &with_clocks, sets, verdict, &run);
    }
    if (unmarked_out)
        *unmarked_out = 0;
    if (!rc && unmarked_out && verdict->kind == XCCL_VERDICT_DEADLOCK)
        *unmarked_out = unmark_stuck(&run);
    xccl_verify_run_fini(&run);
    return rc;
}

/* The run that was asked for, in a network that fits. */
static xcclResult_t verify_net(const struct xccl_verify_net *net, const struct xccl_verify_for *how,
                               struct xccl_verdict *verdict)
{
    struct xccl_verify_how data = {
        .in_place = how->in_place, .direct = how->direct, .values = 1, .sizes = how->sizes};
    struct xccl_rank_sets sets;
    xcclResult_t rc = xccl_verify_minslots(net, verdict);

    if (rc || verdict->kind != XCCL_VERDICT_PROVEN)
        return rc;
    data.nslots = how->nslots ? (uint32_t)how->nslots : verdict->minslots;
    data.tiles = how->tiles ? (uint32_t)how->tiles : xccl_verify_tiles(net, data.nslots);
    rc = xccl_rank_sets_init(&sets, (int)net->nranks);
    if (rc)
        return rc;
    rc = xccl_verify_data(net, &data, &sets, verdict, NULL);
    xccl_rank_sets_fini(&sets);
    return rc;
}

uint32_t xccl_verify_tiles(const struct xccl_verify_net *net, uint32_t nslots)
{
    if (net->coll == XCCL_COLL_BARRIER)
        return 1;
    return net->step_major && nslots > net->scrbufs ? nslots + 2 : net->scrbufs + 2;
}

xcclResult_t xccl_verify(struct xccl_schedule *const *schedules, int nranks,
                         const struct xccl_verify_for *how, struct xccl_verdict *verdict_out)
{
    struct xccl_verdict verdict = {.place.rank = -1, .other.rank = -1};
    struct xccl_verify_net net;
    xcclResult_t rc;

    if (how->nslots < 0 || how->tiles < 0 || how->tiles > UINT16_MAX || how->nslots > UINT16_MAX)
        return xccl_fail(xcclInvalidArgument, 0, NULL, "cannot verify for %d slots and %d tiles",
                         how->nslots, how->tiles);
    rc = xccl_verify_net_init(&net, schedules, nranks, &verdict);
    if (!rc && verdict.kind == XCCL_VERDICT_PROVEN) {
        rc = verify_net(&net, how, &verdict);
        xccl_verify_net_fini(&net);
    }
    if (!rc)
        *verdict_out = verdict;
    return rc;
}

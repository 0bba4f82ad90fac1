/* SPDX-License-Identifier: BSD-3-Clause */
/* Tells links where their messages go; ahead.h says how. A message whose move may not receive in
 * the buffers of this call is told of too, as one for its slot: links count messages.
 *
 * Thread: see the header. */
#include "exec/ahead.h"

#include "schedule/decode.h"

#define MAY_RECEIVE (XCCL_DIRECT_RECV | XCCL_DIRECT_RECV_IN_PLACE)
#define SEVERAL     (XCCL_NO_LANE - 1)

static int lane_receives(const struct xccl_binding *binding, uint32_t lane)
{
    const struct xccl_schedule_lane *from = &binding->schedule->lanes[lane];

    for (uint32_t i = 0; i < from->nstep; i++)
        if (binding->direct[from->step0 + i] & MAY_RECEIVE)
            return 1;
    return 0;
}

static void note_step(struct xccl_binding *binding, uint32_t lane, const struct xccl_step *step)
{
    for (uint32_t k = 0; k < (uint32_t)step->rep * step->cnt; k++) {
        struct xccl_event event;

        xccl_event_decode(binding->schedule, lane, step, k / step->cnt, k % step->cnt, &event);
        for (uint32_t i = 0; i < event.nrecv; i++) {
            uint16_t *at = &binding->ahead_lane[event.rconn + i];

            *at = *at == XCCL_NO_LANE || *at == lane ? (uint16_t)lane : SEVERAL;
        }
    }
}

void xccl_ahead_prepare(struct xccl_binding *binding)
{
    const struct xccl_schedule *schedule = binding->schedule;

    for (uint32_t i = 0; i < schedule->nconns; i++)
        binding->ahead_lane[i] = XCCL_NO_LANE;
    for (uint32_t i = 0; i < schedule->nlanes && schedule->nlanes < SEVERAL; i++)
        for (uint32_t j = 0; j < schedule->lanes[i].nstep; j++)
            note_step(binding, i, &schedule->steps[schedule->lanes[i].step0 + j]);
    for (uint32_t i = 0; i < schedule->nconns; i++) {
        uint16_t *at = &binding->ahead_lane[i];

        if (*at != XCCL_NO_LANE && (*at == SEVERAL || !lane_receives(binding, *at)))
            *at = XCCL_NO_LANE;
    }
}

int xccl_ahead_is_for(const struct xccl_binding *binding, uint16_t conn)
{
    return binding->nets[conn] && binding->reaches[conn] &&
           binding->schedule->conns[conn].dir == XCCL_CONN_RECV &&
           binding->ahead_lane[conn] != XCCL_NO_LANE;
}

void xccl_ahead_start(const struct xccl_run *run)
{
    const struct xccl_binding *binding = run->plan->binding;

    for (uint32_t i = 0; binding->ahead_count && i < binding->schedule->nlanes; i++)
        binding->aheads[i].run = NULL;
}

static void begin(struct xccl_ahead *ahead)
{
    const struct xccl_plan *plan = ahead->run->plan;

    ahead->next = 0;
    ahead->over = 0;
    ahead->place = xccl_place_first(plan, ahead->lane);
    xccl_move_make(plan, &ahead->place, &ahead->move);
}

/* Where the messages of the move go; NULL: into slots. */
static char *place_of(const struct xccl_ahead *ahead)
{
    const struct xccl_run *run = ahead->run;
    const struct xccl_move *move = &ahead->move;

    if (!(move->direct & run->direct & MAY_RECEIVE))
        return NULL;
    return run->buffers[move->dst_buffer] + move->dst;
}

/* Tells what the move receives; 0: a link has been told enough. */
static int tell(struct xccl_ahead *ahead)
{
    const struct xccl_binding *binding = ahead->run->plan->binding;

    for (; ahead->next < ahead->move.nrecv; ahead->next++) {
        uint16_t conn = (uint16_t)(ahead->move.recv - binding->links + ahead->next);

        if (xccl_ahead_is_for(binding, conn) && binding->ahead_lane[conn] == ahead->lane &&
            !xccl_net_link_expect(binding->nets[conn], place_of(ahead), ahead->move.bytes))
            return 0;
    }
    ahead->next = 0;
    return 1;
}

static void look(void *owner, struct xccl_net_link *link)
{
    struct xccl_ahead *ahead = owner;
    const struct xccl_plan *plan = ahead->run->plan;

    while (!ahead->over && !xccl_net_link_knows(link) && tell(ahead)) {
        ahead->over = !xccl_place_next(plan, &ahead->place);
        if (!ahead->over)
            xccl_move_make(plan, &ahead->place, &ahead->move);
    }
}

void xccl_ahead_for(const struct xccl_run *run, uint16_t conn, struct xccl_net_op *op)
{
    const struct xccl_plan *plan = run->plan;
    const struct xccl_binding *binding = plan->binding;
    struct xccl_ahead *ahead;

    if (!op->messages || plan->slice_bytes < XCCL_NET_DIRECT_MIN ||
        !xccl_ahead_is_for(binding, conn))
        return;
    ahead = &binding->aheads[binding->ahead_lane[conn]];
    if (!ahead->run) {
        ahead->run = run;
        ahead->lane = binding->ahead_lane[conn];
        begin(ahead);
    }
    op->ahead = look;
    op->ahead_owner = ahead;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* What is emitted step by step becomes few records, and these say the same: the builder proves that
 * by itself, so here are the numbers of records, the forms they take, and what is refused.
 *
 * Thread: one a test. */
#include "schedule/builder.h"

#include "base/error.h"
#include "base/inject.h"
#include "schedule/decode.h"
#include "xt.h"

static struct xccl_builder *begin(enum xccl_coll coll, int nranks, int nchunks)
{
    struct xccl_build_for what = {
        .name = "test", .coll = coll, .nranks = nranks, .nchunks = nchunks, .scrbufs = 1};
    struct xccl_builder *builder;

    XT_OK(xccl_build_begin(&what, &builder));
    return builder;
}

static struct xccl_schedule *end(struct xccl_builder *builder)
{
    struct xccl_schedule *schedule;

    XT_OK(xccl_build_end(builder, &schedule));
    return schedule;
}

static void end_refused(struct xccl_builder *builder, const char *text)
{
    struct xccl_schedule *schedule;

    XT_CHECK_RC(xccl_build_end(builder, &schedule), xcclInternalError);
    XT_CHECK_HAS(xccl_error_text(), text);
}

static void copy(struct xccl_builder *builder, int lane, struct xccl_chunks src,
                 struct xccl_chunks dst)
{
    xccl_build_step(
        builder, lane,
        &(struct xccl_emit){.op = XCCL_STEP_SRC | XCCL_STEP_DST, .src = src, .dst = dst});
}

static void send_one(struct xccl_builder *builder, int lane, int conn, int chunk)
{
    xccl_build_step(builder, lane,
                    &(struct xccl_emit){.op = XCCL_STEP_SRC | XCCL_STEP_SEND,
                                        .src = XCCL_ONE_CHUNK(XCCL_BUFFER_IN, chunk),
                                        .sconn = conn,
                                        .nsend = 1});
}

XT_TEST(a_loop_round_the_ring_is_one_record)
{
    struct xccl_builder *builder = begin(XCCL_COLL_ALL_REDUCE, 7, 7);
    int lane = xccl_build_lane(builder), conn;
    struct xccl_schedule *schedule;

    conn = xccl_build_conn(builder, lane, XCCL_CONN_SEND, 1, 0, 0);
    for (int i = 0; i < 20; i++)
        send_one(builder, lane, conn, 3 - 2 * i);
    schedule = end(builder);
    XT_CHECK_INT(schedule->nsteps, 1);
    XT_CHECK_INT(schedule->steps[0].rep, 20);
    XT_CHECK_INT(schedule->steps[0].dsrc, -2);
    xccl_schedule_destroy(schedule);
}

XT_TEST(a_loop_over_peers_is_one_record)
{
    struct xccl_builder *builder = begin(XCCL_COLL_ALL_TO_ALL, 9, 9);
    int lane = xccl_build_lane(builder);
    struct xccl_schedule *schedule;

    for (int i = 1; i < 9; i++)
        (void)xccl_build_conn(builder, lane, XCCL_CONN_SEND, i, 0, 0);
    for (int i = 1; i < 9; i++)
        send_one(builder, lane, i - 1, i);
    schedule = end(builder);
    XT_CHECK_INT(schedule->nsteps, 1);
    XT_CHECK_INT(schedule->steps[0].dconn, 1);
    XT_CHECK_INT(schedule->steps[0].rep, 8);
    xccl_schedule_destroy(schedule);
}

XT_TEST(steps_that_differ_in_more_than_numbers_stay_apart)
{
    struct xccl_builder *builder = begin(XCCL_COLL_ALL_REDUCE, 4, 4);
    int lane = xccl_build_lane(builder);
    struct xccl_schedule *schedule;

    (void)xccl_build_conn(builder, lane, XCCL_CONN_SEND, 1, 0, 0);
    send_one(builder, lane, 0, 0);
    send_one(builder, lane, 0, 1);
    send_one(builder, lane, 0, 3); /* another increment */
    copy(builder, lane, XCCL_ONE_CHUNK(XCCL_BUFFER_IN, 0), XCCL_ONE_CHUNK(XCCL_BUFFER_OUT, 0));
    schedule = end(builder);
    XT_CHECK_INT(schedule->nsteps, 3);
    xccl_schedule_destroy(schedule);
}

XT_TEST(chunks_in_hops_of_a_few_need_no_list)
{
    static const uint16_t hops[] = {2, 3, 6, 7, 10, 11};
    struct xccl_builder *builder = begin(XCCL_COLL_ALL_TO_ALL, 12, 12);
    int lane = xccl_build_lane(builder);
    struct xccl_schedule *schedule;

    copy(builder, lane, (struct xccl_chunks){XCCL_BUFFER_IN, 6, 0, 0, hops},
         (struct xccl_chunks){XCCL_BUFFER_SCRATCH, 6, 0, 0, hops});
    schedule = end(builder);
    XT_CHECK_INT(schedule->nlist, 0);
    XT_CHECK_INT(schedule->steps[0].run, 2);
    XT_CHECK_INT(schedule->steps[0].cstride, 4);
    XT_CHECK_INT(schedule->nscratch, 12);
    xccl_schedule_destroy(schedule);
}

XT_TEST(chunks_without_order_become_a_list)
{
    static const uint16_t wild[] = {5, 1, 2, 9};
    struct xccl_builder *builder = begin(XCCL_COLL_ALL_TO_ALL, 12, 12);
    int lane = xccl_build_lane(builder);
    struct xccl_schedule *schedule;
    struct xccl_event event;

    copy(builder, lane, (struct xccl_chunks){XCCL_BUFFER_IN, 4, 0, 0, wild},
         (struct xccl_chunks){XCCL_BUFFER_OUT, 4, 11, -3, NULL});
    schedule = end(builder);
    XT_CHECK_INT(schedule->nlist, 4);
    xccl_event_decode(schedule, 0, schedule->steps, 0, 3, &event);
    XT_CHECK_INT(event.src, 9);
    XT_CHECK_INT(event.dst, 2);
    xccl_schedule_destroy(schedule);
}

XT_TEST(what_an_exchange_receives_more_than_it_sends_becomes_a_step_behind_it)
{
    struct xccl_builder *builder = begin(XCCL_COLL_ALL_REDUCE, 4, 8);
    int lane = xccl_build_lane(builder);
    struct xccl_schedule *schedule;

    (void)xccl_build_conn(builder, lane, XCCL_CONN_SEND, 1, 0, 0);
    (void)xccl_build_conn(builder, lane, XCCL_CONN_RECV, 1, 0, 0);
    xccl_build_step(builder, lane,
                    &(struct xccl_emit){.op = XCCL_STEP_SRC | XCCL_STEP_DST | XCCL_STEP_RECV |
                                              XCCL_STEP_SEND | XCCL_STEP_XCHG | XCCL_STEP_ACC,
                                        .src = {XCCL_BUFFER_OUT, 2, 0, 1, NULL},
                                        .dst = {XCCL_BUFFER_OUT, 5, 3, 1, NULL},
                                        .rconn = 1,
                                        .nrecv = 1,
                                        .nsend = 1});
    schedule = end(builder);
    XT_CHECK_INT(schedule->nsteps, 2);
    XT_CHECK_INT(schedule->steps[0].cnt, 2);
    XT_CHECK_INT(schedule->steps[1].op, XCCL_STEP_SRC | XCCL_STEP_RECV | XCCL_STEP_DST);
    XT_CHECK_INT(schedule->steps[1].cnt, 3);
    XT_CHECK_INT(schedule->steps[1].src, 5);
    XT_CHECK_INT(schedule->steps[1].dst, 5);
    xccl_schedule_destroy(schedule);
}

XT_TEST(lanes_have_connections_and_waits_of_their_own)
{
    struct xccl_builder *builder = begin(XCCL_COLL_ALL_REDUCE, 3, 1);
    struct xccl_emit emit = {.op = XCCL_STEP_SRC | XCCL_STEP_DST,
                             .flags = XCCL_FLAG_SIGNAL,
                             .src = XCCL_ONE_CHUNK(XCCL_BUFFER_IN, 0),
                             .dst = XCCL_ONE_CHUNK(XCCL_BUFFER_OUT, 0),
                             .sig = 7};
    struct xccl_schedule *schedule;
    struct xccl_event event;
    int first = xccl_build_lane(builder), second;

    (void)xccl_build_conn(builder, first, XCCL_CONN_SEND, 2, 0, 0);
    xccl_build_step(builder, first, &emit);
    second = xccl_build_lane(builder);
    (void)xccl_build_conn(builder, second, XCCL_CONN_SEND, 1, 0, 0);
    emit.op = XCCL_STEP_SRC | XCCL_STEP_SEND;
    emit.flags = 0;
    emit.src.buffer = XCCL_BUFFER_OUT;
    emit.nsend = 1;
    emit.nwaits = 1;
    emit.waits[0] = (struct xccl_schedule_wait){.lane = (uint8_t)first, .sig = 7};
    xccl_build_step(builder, second, &emit);
    schedule = end(builder);
    XT_CHECK_INT(schedule->nlanes, 2);
    XT_CHECK_INT(xccl_step_waits(&schedule->steps[1]), 1);
    xccl_event_decode(schedule, 1, &schedule->steps[1], 0, 0, &event);
    XT_CHECK_INT(schedule->conns[event.sconn].peer, 1);
    xccl_schedule_destroy(schedule);
}

XT_TEST(what_cannot_be_is_refused_in_words)
{
    struct xccl_build_for none = {.name = "test", .nranks = 2, .rank = 2, .nchunks = 1};
    struct xccl_builder *builder;

    XT_CHECK_RC(xccl_build_begin(&none, &builder), xcclInvalidArgument);

    builder = begin(XCCL_COLL_ALL_REDUCE, 2, 2);
    copy(builder, 0, XCCL_ONE_CHUNK(XCCL_BUFFER_IN, 0), XCCL_ONE_CHUNK(XCCL_BUFFER_OUT, 0));
    end_refused(builder, "a step of a lane that does not exist");

    builder = begin(XCCL_COLL_ALL_REDUCE, 2, 2);
    copy(builder, xccl_build_lane(builder), (struct xccl_chunks){XCCL_BUFFER_IN, 2, 0, 1, NULL},
         XCCL_ONE_CHUNK(XCCL_BUFFER_OUT, 0));
    end_refused(builder, "different numbers of chunks");

    builder = begin(XCCL_COLL_ALL_REDUCE, 2, 2);
    send_one(builder, xccl_build_lane(builder), 0, 0);
    end_refused(builder, "not well-formed"); /* there is no connection */

    builder = begin(XCCL_COLL_BROADCAST, 2, 1);
    (void)xccl_build_lane(builder);
    (void)xccl_build_lane(builder);
    (void)xccl_build_conn(builder, 0, XCCL_CONN_SEND, 1, 0, 0);
    end_refused(builder, "not the last one");
}

XT_TEST(a_rank_names_no_buffer_that_only_the_root_has)
{
    struct xccl_build_for what = {.name = "test",
                                  .coll = XCCL_COLL_BROADCAST,
                                  .nranks = 2,
                                  .rank = 1,
                                  .nchunks = 1,
                                  .scrbufs = 1};
    struct xccl_builder *builder;

    XT_OK(xccl_build_begin(&what, &builder));
    copy(builder, xccl_build_lane(builder), XCCL_ONE_CHUNK(XCCL_BUFFER_IN, 0),
         XCCL_ONE_CHUNK(XCCL_BUFFER_OUT, 0));
    end_refused(builder, "no such buffer");
}

/* ---- scopes ---- */

/* A world of ranks 2 and 5, whose three chunks are 8 and 9, none, and 3. */
static const uint16_t scope_ranks[] = {2, 5}, scope_chunks[] = {8, 9, 3};
static const uint32_t scope_first[] = {0, 2, 2, 3};
static const struct xccl_build_scope scope_of_two = {
    .ranks = scope_ranks,
    .nranks = 2,
    .id0 = 10,
    .nids = 2,
    .clear = XCCL_FLAG_PRE,
    .in = {XCCL_BUFFER_OUT, 3, scope_first, scope_chunks},
    .out = {XCCL_BUFFER_OUT, 3, scope_first, scope_chunks},
    .nparts = 2,
};

XT_TEST(a_scope_means_other_ranks_chunks_and_connections)
{
    struct xccl_builder *builder = begin(XCCL_COLL_ALL_REDUCE, 8, 10);
    int lane = xccl_build_lane(builder), inside;
    struct xccl_schedule *schedule;

    send_one(builder, lane, xccl_build_conn(builder, lane, XCCL_CONN_SEND, 1, 0, 0), 0);
    xccl_build_enter(builder, &scope_of_two);
    inside = xccl_build_lane(builder);
    XT_CHECK_INT(xccl_build_conn(builder, inside, XCCL_CONN_SEND, 1, 1, 0), 0);
    xccl_build_step(builder, inside,
                    &(struct xccl_emit){.op = XCCL_STEP_SRC | XCCL_STEP_SEND,
                                        .flags = XCCL_FLAG_PRE,
                                        .src = {.buffer = XCCL_BUFFER_IN, .count = 3},
                                        .sconn = 0,
                                        .nsend = 1});
    xccl_build_leave(builder);
    schedule = end(builder);
    XT_CHECK_INT(schedule->nlanes, 1);
    XT_CHECK_INT(schedule->nconns, 2);
    XT_CHECK_INT(schedule->conns[1].peer, 5);
    XT_CHECK_INT(schedule->conns[1].id, 0); /* the only one of its pair */
    XT_CHECK_INT(schedule->nsteps, 2);
    XT_CHECK_INT(schedule->steps[1].sconn, 1);
    XT_CHECK_INT(schedule->steps[1].flags, 0);
    /* Chunk 0 three times, since it has no stride. */
    XT_CHECK_INT(schedule->steps[1].cnt, 6);
    xccl_schedule_destroy(schedule);
}

XT_TEST(what_a_scope_makes_pointless_does_not_come_about)
{
    struct xccl_builder *builder = begin(XCCL_COLL_ALL_REDUCE, 8, 10);
    struct xccl_schedule *schedule;

    xccl_build_enter(builder, &scope_of_two);
    (void)xccl_build_conn(builder, 0, XCCL_CONN_SEND, 1, 0, 0);
    (void)xccl_build_conn(builder, 0, XCCL_CONN_SEND, 1, 1, 0);
    copy(builder, 0, XCCL_ONE_CHUNK(XCCL_BUFFER_IN, 0), XCCL_ONE_CHUNK(XCCL_BUFFER_OUT, 0));
    send_one(builder, 0, 0, 1);
    xccl_build_step(builder, 0,
                    &(struct xccl_emit){.op = XCCL_STEP_SRC | XCCL_STEP_DST | XCCL_STEP_SEND,
                                        .src = XCCL_ONE_CHUNK(XCCL_BUFFER_IN, 2),
                                        .dst = XCCL_ONE_CHUNK(XCCL_BUFFER_OUT, 2),
                                        .sconn = 1,
                                        .nsend = 1});
    xccl_build_leave(builder);
    schedule = end(builder);
    XT_CHECK_INT(schedule->nsteps, 1);
    XT_CHECK_INT(schedule->steps[0].op, XCCL_STEP_SRC | XCCL_STEP_SEND);
    XT_CHECK_INT(schedule->steps[0].src, 3);
    XT_CHECK_INT(schedule->steps[0].sconn, 0);
    XT_CHECK_INT(schedule->nconns, 1);
    XT_CHECK_INT(schedule->conns[0].id, 0);
    xccl_schedule_destroy(schedule);
}

/* Links of a pair of ranks have few numbers. */
XT_TEST(connections_of_scopes_are_numbered_by_pairs_of_ranks)
{
    struct xccl_build_scope scope = scope_of_two;
    struct xccl_builder *builder = begin(XCCL_COLL_ALL_REDUCE, 8, 10);
    struct xccl_schedule *schedule;
    static const int id0[] = {30, 4, 17};

    for (int i = 0; i < 3; i++) {
        scope.id0 = id0[i];
        xccl_build_enter(builder, &scope);
        send_one(builder, 0, xccl_build_conn(builder, 0, XCCL_CONN_SEND, 1, i % 2, 0), 0);
        xccl_build_leave(builder);
    }
    schedule = end(builder);
    XT_CHECK_INT(schedule->nconns, 3);
    XT_CHECK_INT(schedule->conns[0].id, 2);
    XT_CHECK_INT(schedule->conns[1].id, 0);
    XT_CHECK_INT(schedule->conns[2].id, 1);
    xccl_schedule_destroy(schedule);
}

XT_TEST(a_scope_that_is_entered_again_has_the_same_connections)
{
    struct xccl_build_scope again = scope_of_two;
    struct xccl_builder *builder = begin(XCCL_COLL_ALL_REDUCE, 8, 10);
    struct xccl_schedule *schedule;

    again.nparts = 1;
    for (; again.part < 2; again.part++, again.again = 1) {
        xccl_build_enter(builder, &again);
        send_one(builder, 0, xccl_build_conn(builder, 0, XCCL_CONN_SEND, 1, 0, 0), 0);
        xccl_build_leave(builder);
    }
    schedule = end(builder);
    XT_CHECK_INT(schedule->nconns, 1);
    XT_CHECK_INT(schedule->nsteps, 1);
    XT_CHECK_INT(schedule->steps[0].rep, 2);
    xccl_schedule_destroy(schedule);

    again.part = again.again = 0;
    builder = begin(XCCL_COLL_ALL_REDUCE, 8, 10);
    for (; again.part < 2; again.part++, again.again = 1) {
        xccl_build_enter(builder, &again);
        (void)xccl_build_conn(builder, 0, XCCL_CONN_SEND, 1, again.part, 0);
        xccl_build_leave(builder);
    }
    end_refused(builder, "a scope that is not as it was before");
}

XT_TEST(what_a_scope_has_no_room_for_is_refused_in_words)
{
    struct xccl_builder *builder = begin(XCCL_COLL_ALL_REDUCE, 8, 10);
    struct xccl_schedule *schedule;

    xccl_build_enter(builder, &scope_of_two);
    xccl_build_enter(builder, &scope_of_two);
    end_refused(builder, "a scope is inside another scope");
    builder = begin(XCCL_COLL_ALL_REDUCE, 8, 10);
    xccl_build_enter(builder, &scope_of_two);
    (void)xccl_build_conn(builder, 0, XCCL_CONN_SEND, 2, 0, 0);
    end_refused(builder, "no rank or id");
    builder = begin(XCCL_COLL_ALL_REDUCE, 8, 10);
    xccl_build_enter(builder, &scope_of_two);
    (void)xccl_build_conn(builder, 0, XCCL_CONN_SEND, 1, 2, 0);
    end_refused(builder, "no rank or id");
    builder = begin(XCCL_COLL_ALL_REDUCE, 8, 10);
    xccl_build_enter(builder, &scope_of_two);
    (void)xccl_build_lane(builder);
    (void)xccl_build_lane(builder);
    XT_CHECK_RC(xccl_build_end(builder, &schedule), xcclInvalidArgument);
    XT_CHECK_HAS(xccl_error_text(), "several lanes");
    builder = begin(XCCL_COLL_ALL_REDUCE, 8, 10);
    xccl_build_enter(builder, &scope_of_two);
    copy(builder, 0, XCCL_ONE_CHUNK(XCCL_BUFFER_IN, 0), XCCL_ONE_CHUNK(XCCL_BUFFER_SCRATCH, 0));
    XT_CHECK_RC(xccl_build_end(builder, &schedule), xcclInvalidArgument);
    XT_CHECK_HAS(xccl_error_text(), "scratch memory");
}

XT_TEST(each_allocation_may_fail_and_nothing_leaks)
{
    xcclResult_t rc = xcclSystemError;

    for (int fail = 1; rc != xcclSuccess; fail++) {
        struct xccl_build_for what = {
            .name = "test", .coll = XCCL_COLL_ALL_REDUCE, .nranks = 3, .nchunks = 3, .scrbufs = 1};
        struct xccl_builder *builder;
        struct xccl_schedule *schedule;

        XT_CHECK(fail < 100);
        xccl_inject_arm((uint64_t)fail);
        rc = xccl_build_begin(&what, &builder);
        if (rc == xcclSuccess) {
            int lane = xccl_build_lane(builder);

            (void)xccl_build_conn(builder, lane, XCCL_CONN_SEND, 1, 0, 0);
            send_one(builder, lane, 0, 0);
            rc = xccl_build_end(builder, &schedule);
        }
        xccl_inject_arm(0);
        if (rc == xcclSuccess)
            xccl_schedule_destroy(schedule);
        else
            XT_CHECK_RC(rc, xcclSystemError);
    }
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* A communicator's record, written and read back: counters, events and their times, events that are
 * being written, forks. Where it lies is test_record_folder.c. Thread: one. */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "base/alloc.h"
#include "record_files.h"

static const uint8_t comm_id[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
static const struct xccl_record_who who = {
    .rank = 2, .nranks = 5, .id = comm_id, .name = "dp", .labels = "tp=0,dp=3"};

/* An all-reduce of count bytes. */
static void call_begin(struct xccl_record *record, uint64_t seq, uint64_t count)
{
    struct xccl_record_call call = {xccl_record_call_word(seq, 4, 0, 0, 0), count, count};

    xccl_record_set_call(record, &call);
    xccl_record_begin(record, record->call.word);
}

static void call_end(struct xccl_record *record)
{
    static const uint64_t sent[2] = {10, 3}, received[2] = {20, 4};

    xccl_record_end(record, sent, received);
}

static void check_algo(const struct xccl_record_algo *algo, const char *name, uint64_t least,
                       uint64_t most)
{
    XT_CHECK_TEXT(algo->name, name);
    XT_CHECK_INT(algo->least, least);
    XT_CHECK_INT(algo->most, most);
}

XT_TEST(what_was_written_is_read_back)
{
    const char *folder = record_folder_use();
    struct xccl_record *record = xccl_record_open(&who);
    const struct xccl_record_comm *comm;
    struct xccl_record_view view;

    XT_CHECK(record != NULL);
    xccl_record_phase(record, 3, "peers");
    view = record_view_of(folder);
    XT_CHECK_INT(view.count, 1);
    comm = &view.comms[0];
    XT_CHECK_INT(comm->state, XCCL_RECORD_JOINING);
    XT_CHECK_TEXT(comm->phase_name, "peers");
    XT_CHECK_TEXT(comm->name, "dp");
    XT_CHECK_TEXT(comm->labels, "tp=0,dp=3");
    XT_CHECK(memcmp(comm->id, comm_id, sizeof comm_id) == 0);
    XT_CHECK_INT(comm->rank, 2);
    XT_CHECK_INT(comm->nranks, 5);
    XT_CHECK_INT(view.info.pid, getpid());
    XT_CHECK(view.live);
    xccl_record_view_free(&view);

    xccl_record_ready(record, 3, "socket eth0+eth1", "0,2 | 1");
    xccl_record_set_algo(record, 4, "oneshot", 8);
    xccl_record_set_algo(record, 4, "a-name-of-more-letters", 4096);
    xccl_record_set_algo(record, 4, "ring", 9000);
    xccl_record_set_algo(record, 4, "a-name-of-more-letters", 16);
    xccl_record_set_algo(record, 4, "hier", 1 << 20);
    xccl_record_set_algo(record, 4, "hier", 1 << 22);
    call_begin(record, 1, 100);
    call_end(record);
    call_begin(record, 2, 50);
    view = record_view_of(folder);
    comm = &view.comms[0];
    XT_CHECK_INT(comm->state, XCCL_RECORD_READY);
    XT_CHECK_INT(comm->near_ranks, 3);
    XT_CHECK_TEXT(comm->cards, "socket eth0+eth1");
    XT_CHECK_TEXT(comm->order, "0,2 | 1");
    check_algo(&comm->algos[4][0], "oneshot", 8, 8);
    check_algo(&comm->algos[4][1], "a-name-of-more-", 16, 4096);
    check_algo(&comm->algos[4][2], "hier", 1 << 20, 1 << 22); /* the newest stays */
    XT_CHECK_TEXT(comm->algos[3][0].name, "");
    XT_CHECK_INT(comm->rows[4].issued_calls, 2);
    XT_CHECK_INT(comm->rows[4].issued_bytes, 150);
    XT_CHECK_INT(comm->rows[4].done_calls, 1);
    XT_CHECK_INT(comm->rows[4].done_bytes, 100);
    XT_CHECK_INT(comm->rows[4].sent_near, 10);
    XT_CHECK_INT(comm->rows[4].sent_far, 3);
    XT_CHECK_INT(comm->rows[4].received_near, 20);
    XT_CHECK_INT(comm->rows[4].received_far, 4);
    XT_CHECK_INT(comm->current >> 32, 2);
    XT_CHECK_INT(comm->current_count, 50);
    XT_CHECK_INT(comm->event_count, 5); /* phase, joined, issued, done, issued */
    for (uint32_t i = 0; i < 5; i++)
        XT_CHECK_INT(comm->events[i].number, i + 1);
    XT_CHECK_INT(comm->events[3].kind, XCCL_RECORD_DONE);
    XT_CHECK_INT(comm->events[3].value, 100);
    xccl_record_view_free(&view);
    xccl_record_close(&record);
    XT_CHECK(record == NULL);
    XT_CHECK_INT(xt_entries(folder), 0);
}

XT_TEST(ways_are_told_with_their_peers_and_reasons)
{
    const char *folder = record_folder_use();
    struct xccl_record *record = xccl_record_open(&who);
    const struct xccl_record_comm *comm;
    struct xccl_record_view view;
    char longer[2 * XCCL_RECORD_WHY_BYTES];

    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    xccl_record_set_way(NULL, 0, XCCL_RECORD_WAY_IPC, "no record is fine");
    xccl_record_set_ends(NULL, 0, 1, "1");
    xccl_record_set_way(record, 0, XCCL_RECORD_WAY_PEER_ACCESS, "");
    xccl_record_set_ends(record, 0, 1, "1");
    xccl_record_set_ends(record, 0, 1, "1-2");
    xccl_record_set_way(record, 2, XCCL_RECORD_WAY_PINNED, longer); /* row 1 stays free */
    xccl_record_set_ends(record, 2, 0, "4");
    xccl_record_set_way(record, XCCL_RECORD_WAYS, XCCL_RECORD_WAY_IPC, "there is no such row");
    view = record_view_of(folder);
    comm = &view.comms[0];
    XT_CHECK_INT(comm->way_count, 2);
    XT_CHECK_INT(comm->ways[0].kind, XCCL_RECORD_WAY_PEER_ACCESS);
    XT_CHECK_TEXT(comm->ways[0].to, "1-2");
    XT_CHECK_TEXT(comm->ways[0].from, "");
    XT_CHECK_TEXT(comm->ways[0].why, "");
    XT_CHECK_INT(comm->ways[1].kind, XCCL_RECORD_WAY_PINNED);
    XT_CHECK_TEXT(comm->ways[1].from, "4");
    XT_CHECK_INT(strlen(comm->ways[1].why), XCCL_RECORD_WHY_BYTES - 1);
    xccl_record_view_free(&view);
    xccl_record_close(&record);
}

XT_TEST(a_failure_is_told_with_its_text)
{
    const char *folder = record_folder_use();
    struct xccl_record *record = xccl_record_open(&who);
    struct xccl_record_cause cause = {
        .word = "rank_gone", .culprit = 3, .finder = who.rank, .remedy_at = 16};
    struct xccl_record_view view;

    XT_CHECK(record != NULL);
    xccl_record_ready(record, 1, "", "");
    call_begin(record, 1, 8);
    xccl_record_error(record, xcclRemoteError, "rank 3 is gone; look there", &cause);
    xccl_record_fail(record, xcclRemoteError);
    view = record_view_of(folder);
    XT_CHECK_INT(view.comms[0].error, xcclRemoteError);
    XT_CHECK_TEXT(view.comms[0].error_text, "rank 3 is gone; look there");
    XT_CHECK_TEXT(view.comms[0].error_kind, "rank_gone");
    XT_CHECK_INT(view.comms[0].culprit, 3);
    XT_CHECK_INT(view.comms[0].finder, who.rank);
    XT_CHECK_TEXT(view.comms[0].error_text + view.comms[0].remedy_at, "look there");
    XT_CHECK(view.comms[0].error_tick != 0);
    XT_CHECK_INT(view.comms[0].failed_calls, 1);
    XT_CHECK_INT(view.comms[0].rows[4].done_calls, 0);
    XT_CHECK_INT(view.comms[0].current, 0);
    XT_CHECK_INT(view.comms[0].events[view.comms[0].event_count - 1].kind, XCCL_RECORD_FAILED);
    xccl_record_view_free(&view);
    xccl_record_close(&record);
}

XT_TEST(sends_and_receives_count_for_themselves)
{
    const char *folder = record_folder_use();
    struct xccl_record *record = xccl_record_open(&who);
    struct xccl_record_view view;

    XT_CHECK(record != NULL);
    xccl_record_p2p_clear(record);
    xccl_record_p2p_add(record, 1, 1, 100);
    xccl_record_p2p_add(record, 1, 2, 30);
    xccl_record_p2p_add(record, 0, 2, 7);
    xccl_record_p2p_add(record, 1, 0, 5);
    xccl_record_p2p_add(record, 0, 0, 5);
    xccl_record_p2p_begin(record);
    xccl_record_p2p_end(record);
    view = record_view_of(folder);
    XT_CHECK_INT(view.comms[0].rows[XCCL_RECORD_SEND].issued_calls, 3);
    XT_CHECK_INT(view.comms[0].rows[XCCL_RECORD_SEND].done_bytes, 135);
    XT_CHECK_INT(view.comms[0].rows[XCCL_RECORD_SEND].sent_near, 100);
    XT_CHECK_INT(view.comms[0].rows[XCCL_RECORD_SEND].sent_far, 30);
    XT_CHECK_INT(view.comms[0].rows[XCCL_RECORD_RECV].done_calls, 2);
    XT_CHECK_INT(view.comms[0].rows[XCCL_RECORD_RECV].done_bytes, 12);
    XT_CHECK_INT(view.comms[0].rows[XCCL_RECORD_RECV].received_far, 7);
    xccl_record_view_free(&view);
    xccl_record_close(&record);
}

XT_TEST(the_ring_keeps_the_last_events)
{
    const char *folder;
    struct xccl_record *record;
    struct xccl_record_view view;

    xt_setenv("XCCL_RECORD_EVENTS", "100"); /* 128 */
    folder = record_folder_use();
    record = xccl_record_open(&who);
    XT_CHECK(record != NULL);
    for (uint64_t i = 1; i <= 500; i++) {
        call_begin(record, i, 1);
        call_end(record);
    }
    view = record_view_of(folder);
    XT_CHECK_INT(view.info.events, 128);
    XT_CHECK_INT(view.comms[0].event_count, 128);
    for (uint32_t i = 0; i < 128; i++)
        XT_CHECK_INT(view.comms[0].events[i].number, 1000 - 127 + i);
    XT_CHECK_INT(view.comms[0].events[127].call >> 32, 500);
    xccl_record_view_free(&view);
    xccl_record_close(&record);
}

/* A head and two copies of a block with events, as a file would have them. */
struct copies {
    struct xccl_record_info info;
    struct xccl_record_block *older, *newer;
    size_t bytes;
};

static struct copies copies_make(void)
{
    struct copies copies = {.info = {.events = 64}, .bytes = xccl_record_block_bytes(64)};
    struct xccl_record record = {.mask = 63, .next = 1, .clock = XCCL_RECORD_MONOTONIC};

    copies.older = xccl_calloc_aligned(64, copies.bytes);
    copies.newer = xccl_calloc_aligned(64, copies.bytes);
    XT_CHECK(copies.older && copies.newer);
    copies.info.block_bytes = (uint32_t)copies.bytes;
    record.block = copies.older;
    copies.older->state = XCCL_RECORD_READY;
    for (uint64_t i = 1; i <= 10; i++)
        xccl_record_event(&record, XCCL_RECORD_PLANNED, 1000 + i, i, 0);
    memcpy(copies.newer, copies.older, copies.bytes);
    return copies;
}

/* How many events are seen, and that number `not_this` is none of them. */
static uint32_t copies_count(const struct copies *copies, uint64_t not_this)
{
    struct xccl_record_comm comm;
    uint32_t count;

    XT_OK(xccl_record_parse_block(&copies->info, copies->older, copies->newer, copies->bytes, 64,
                                  &comm));
    for (uint32_t i = 0; i < comm.event_count; i++)
        XT_CHECK(comm.events[i].number != not_this &&
                 comm.events[i].value == comm.events[i].number);
    count = comm.event_count;
    xccl_free(comm.events);
    return count;
}

XT_TEST(an_event_that_is_being_written_is_left_out)
{
    struct copies copies = copies_make();

    XT_CHECK_INT(copies_count(&copies, 0), 10);
    /* Its writer was killed between the stores: both copies have the 0. */
    copies.older->events[4].word = 0;
    copies.newer->events[4].word = 0;
    copies.newer->events[4].value = copies.older->events[4].value = 77;
    XT_CHECK_INT(copies_count(&copies, 5), 9);
    /* It was written between the copies. */
    copies.newer->events[6].value = 70;
    XT_CHECK_INT(copies_count(&copies, 7), 8);
    copies.newer->events[6].value = 7;
    XT_CHECK_INT(copies_count(&copies, 5), 9);
    /* A number that does not belong there, an unknown kind. */
    copies.older->events[0].word = copies.newer->events[0].word = 2ull << 8 | XCCL_RECORD_PLANNED;
    XT_CHECK_INT(copies_count(&copies, 1), 8);
    copies.older->events[1].word = copies.newer->events[1].word = 2ull << 8 | 200;
    XT_CHECK_INT(copies_count(&copies, 2), 7);
    xccl_free(copies.older);
    xccl_free(copies.newer);
}

/* Times of events are told in seconds, also those of a wait that no clock was read for. */
XT_TEST(times_are_seconds)
{
    const char *folder = record_folder_use();
    struct xccl_record *record = xccl_record_open(&who);
    const struct xccl_record_seen *events;
    double start = xt_seconds(), took, seen;
    struct xccl_record_view view;

    XT_CHECK(record != NULL);
    xccl_record_ready(record, 1, "", "");
    took = xt_seconds();
    call_begin(record, 1, XCCL_RECORD_LARGE);
    while (xt_seconds() - took < 0.05)
        xccl_record_waits(record);
    call_end(record);
    took = xt_seconds() - start;
    view = record_view_of(folder);
    events = view.comms[0].events;
    XT_CHECK_INT(events[1].kind, XCCL_RECORD_ISSUED);
    XT_CHECK_INT(events[2].kind, XCCL_RECORD_DONE);
    seen = xccl_record_seconds(&view.info, events[1].tick, events[2].tick);
    XT_CHECK(seen > 0.045 && seen < took * 1.1 + xt_lost_seconds());
    seen = xccl_record_real_time(&view.info, events[2].tick) - (double)view.now.real_ns / 1e9;
    XT_CHECK(seen <= 0.001 && seen > -10);
    XT_CHECK(isnan(xccl_record_seconds(&view.info, 0, events[2].tick)));
    xccl_record_view_free(&view);
    xccl_record_close(&record);
}

XT_TEST(a_wait_tells_when_a_call_began)
{
    const char *folder = record_folder_use();
    struct xccl_record *record = xccl_record_open(&who);
    struct xccl_record_view view;
    int timed = 0;

    XT_CHECK(record != NULL);
    for (uint64_t i = 1; i <= 32; i++) {
        call_begin(record, i, 1);
        timed += record->timed;
        call_end(record);
    }
    XT_CHECK_INT(timed, 32 / XCCL_RECORD_SAMPLE);
    call_begin(record, 33, 1);
    call_end(record);
    call_begin(record, 34, 1);
    XT_CHECK(!record->timed);
    view = record_view_of(folder);
    XT_CHECK_INT(view.comms[0].current_tick, 0);
    xccl_record_view_free(&view);
    xccl_record_waits(record);
    view = record_view_of(folder);
    XT_CHECK(view.comms[0].current_tick != 0);
    XT_CHECK(view.comms[0].last_tick >= view.comms[0].current_tick);
    xccl_record_view_free(&view);
    xccl_record_close(&record);
}

/* What the child writes through the parent's record stays in the child; its own communicators have
 * a file of its own, which is gone when it has ended; the parent's stays. */
XT_TEST(a_forked_child_writes_no_record_of_its_parent)
{
    const char *folder = record_folder_use();
    struct xccl_record *record = xccl_record_open(&who), *own;
    struct xccl_record_view view;
    int status;
    pid_t pid;

    XT_CHECK(record != NULL);
    call_begin(record, 1, 1);
    pid = fork();
    XT_CHECK(pid >= 0);
    if (pid == 0) {
        call_end(record);
        own = xccl_record_open(&who);
        if (!own || own == record || xt_entries(folder) != 2)
            _exit(1);
        xccl_record_ready(own, 1, "", "");
        exit(0); /* in order, without closing: what is at exit runs */
    }
    XT_CHECK_INT(waitpid(pid, &status, 0), pid);
    XT_CHECK_INT(status, 0);
    view = record_view_of(folder);
    XT_CHECK_INT(view.info.pid, getpid());
    XT_CHECK_INT(view.comms[0].rows[4].done_calls, 0);
    XT_CHECK_INT(view.comms[0].current >> 32, 1);
    XT_CHECK(view.live);
    xccl_record_view_free(&view);
    xccl_record_close(&record);
    XT_CHECK_INT(xt_entries(folder), 0);
}

XT_TEST(a_killed_process_leaves_its_record)
{
    const char *folder = record_folder_use();
    struct xccl_record *record;
    struct xccl_record_view view;
    int status;
    pid_t pid = fork();

    XT_CHECK(pid >= 0);
    if (pid == 0) {
        record = xccl_record_open(&who);
        if (!record)
            _exit(1);
        xccl_record_ready(record, 1, "", "");
        for (uint64_t i = 1; i <= 17; i++) {
            call_begin(record, i, 1);
            if (i < 17)
                call_end(record);
        }
        raise(SIGKILL);
        _exit(1);
    }
    XT_CHECK_INT(waitpid(pid, &status, 0), pid);
    XT_CHECK(WIFSIGNALED(status));
    view = record_view_of(folder);
    XT_CHECK(!view.live);
    XT_CHECK_INT(view.info.pid, pid);
    XT_CHECK_INT(view.comms[0].rows[4].issued_calls, 17);
    XT_CHECK_INT(view.comms[0].rows[4].done_calls, 16);
    XT_CHECK_INT(view.comms[0].current >> 32, 17);
    XT_CHECK_INT(view.comms[0].events[view.comms[0].event_count - 1].kind, XCCL_RECORD_ISSUED);
    xccl_record_view_free(&view);
}

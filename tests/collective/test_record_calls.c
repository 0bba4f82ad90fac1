/* SPDX-License-Identifier: BSD-3-Clause */
/* What communicators write into their records: counters right after calls of every kind, over
 * shared memory and over a network plugin, of split communicators and failed ones; nothing where it
 * is switched off. Thread: one in each rank. */
#include "own_record.h"
#include "world.h"

#define RANKS 3

static void check_row(const struct xccl_record_comm *comm, uint32_t row, uint64_t calls,
                      uint64_t bytes)
{
    XT_CHECK_INT(comm->rows[row].issued_calls, calls);
    XT_CHECK_INT(comm->rows[row].done_calls, calls);
    XT_CHECK_INT(comm->rows[row].issued_bytes, bytes);
    XT_CHECK_INT(comm->rows[row].done_bytes, bytes);
    XT_CHECK_INT(comm->rows[row].sent_far, 0);
    XT_CHECK_INT(comm->rows[row].received_far, 0);
}

/* Rows are the numbers of collectives. */
enum { BROADCAST = 0, ALL_GATHER = 2, ALL_REDUCE = 4, BARRIER = 8 };

static void make_calls(xcclComm_t comm, int rank, int nranks)
{
    static char in[4000], out[4000];

    for (int i = 0; i < 5; i++)
        XT_OK(xcclAllReduce(in, out, 100, xcclFloat32, xcclSum, comm, NULL));
    for (int i = 0; i < 2; i++)
        XT_OK(xcclAllGather(in, out, 50, xcclInt8, comm, NULL));
    XT_OK(xcclBroadcast(in, out, 1000, xcclInt8, 0, comm, NULL));
    XT_OK(xcclBarrier(comm, NULL));
    XT_OK(xcclGroupStart());
    XT_OK(xcclSend(in, 77, xcclInt8, (rank + 1) % nranks, comm, NULL));
    XT_OK(xcclRecv(out, 77, xcclInt8, (rank + nranks - 1) % nranks, comm, NULL));
    XT_OK(xcclGroupEnd());
}

static void check_calls(const struct xccl_record_comm *comm)
{
    check_row(comm, ALL_REDUCE, 5, 2000);
    check_row(comm, ALL_GATHER, 2, 2 * RANKS * 50);
    check_row(comm, BROADCAST, 1, 1000);
    check_row(comm, BARRIER, 1, 0);
    check_row(comm, XCCL_RECORD_SEND, 1, 77);
    check_row(comm, XCCL_RECORD_RECV, 1, 77);
    /* Each block of the others comes once, whatever the algorithm. */
    XT_CHECK_INT(comm->rows[ALL_GATHER].received_near, 2 * (RANKS - 1) * 50);
    XT_CHECK_INT(comm->rows[XCCL_RECORD_SEND].sent_near, 77);
    XT_CHECK_INT(comm->rows[XCCL_RECORD_RECV].received_near, 77);
    XT_CHECK(comm->rows[ALL_REDUCE].received_near > 0);
    XT_CHECK_INT(comm->current, 0);
    XT_CHECK_INT(comm->failed_calls, 0);
}

static uint32_t count_events(const struct xccl_record_comm *comm, enum xccl_record_kind kind)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < comm->event_count; i++)
        count += comm->events[i].kind == kind;
    return count;
}

static void count_rank(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = world_join(world, rank, nranks);
    struct xccl_record_view view;

    make_calls(comm, rank, nranks);
    XT_CHECK(own_record(&view));
    XT_CHECK_INT(view.count, 1);
    XT_CHECK_INT(view.comms[0].state, XCCL_RECORD_READY);
    XT_CHECK_INT(view.comms[0].rank, rank);
    XT_CHECK_INT(view.comms[0].nranks, nranks);
    XT_CHECK_INT(view.comms[0].near_ranks, nranks);
    check_calls(&view.comms[0]);
    /* Nine calls and one group. */
    XT_CHECK_INT(count_events(&view.comms[0], XCCL_RECORD_ISSUED), 10);
    XT_CHECK_INT(count_events(&view.comms[0], XCCL_RECORD_DONE), 10);
    XT_CHECK_INT(count_events(&view.comms[0], XCCL_RECORD_PLANNED), 4);
    XT_CHECK_INT(count_events(&view.comms[0], XCCL_RECORD_JOINED), 1);
    XT_CHECK(count_events(&view.comms[0], XCCL_RECORD_LINKED) >= 2);
    xccl_record_view_free(&view);
    XT_OK(xcclCommDestroy(comm));
    XT_CHECK(!own_record(&view));
}

XT_TEST(counters_are_right_after_calls)
{
    xt_mp_run(RANKS, count_rank, world_create());
}

XT_TEST(counters_are_right_over_a_network)
{
    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_mp_run(RANKS, count_rank, world_create());
}

static void split_rank(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclConfig_t config = XCCL_CONFIG_INITIALIZER;
    xcclComm_t comm = world_join(world, rank, nranks), child = NULL;
    struct xccl_record_view view;

    config.commName = "tp";
    XT_OK(xcclCommSplit(comm, 0, nranks - rank, &child, &config));
    make_calls(child, nranks - 1 - rank, nranks);
    XT_CHECK(own_record(&view));
    XT_CHECK_INT(view.count, 2);
    XT_CHECK_INT(view.comms[0].rank, rank);
    XT_CHECK_INT(view.comms[1].rank, nranks - 1 - rank); /* by keys */
    XT_CHECK_TEXT(view.comms[1].name, "tp");
    XT_CHECK(memcmp(view.comms[0].id, view.comms[1].id, 16) != 0);
    XT_CHECK_INT(count_events(&view.comms[0], XCCL_RECORD_SPLIT), 1);
    XT_CHECK_INT(view.comms[0].rows[ALL_REDUCE].issued_calls, 0);
    check_calls(&view.comms[1]);
    xccl_record_view_free(&view);
    XT_OK(xcclCommDestroy(child));
    XT_CHECK(own_record(&view));
    XT_CHECK_INT(view.comms[1].state, XCCL_RECORD_LEFT);
    xccl_record_view_free(&view);
    XT_OK(xcclCommDestroy(comm));
    XT_CHECK(!own_record(&view));
}

XT_TEST(a_split_communicator_counts_for_itself)
{
    xt_mp_run(RANKS, split_rank, world_create());
}

/* Labels of the second communicator in the own record. */
static void check_labels(const char *want)
{
    struct xccl_record_view view;

    XT_CHECK(own_record(&view));
    XT_CHECK_INT(view.count, 2);
    XT_CHECK_TEXT(view.comms[0].labels, "tp=0,dp=3");
    XT_CHECK_TEXT(view.comms[1].labels, want);
    XT_CHECK_TEXT(view.comms[1].name, "");
    xccl_record_view_free(&view);
}

static void split_labels(xcclComm_t comm, const char *given, const char *want)
{
    xcclConfig_t config = XCCL_CONFIG_INITIALIZER;
    xcclComm_t child;

    config.commLabels = given;
    XT_OK(xcclCommSplit(comm, 0, 0, &child, &config));
    check_labels(want);
    XT_OK(xcclCommDestroy(child));
}

static void labelled_rank(int rank, int nranks, void *arg)
{
    xcclConfig_t config = XCCL_CONFIG_INITIALIZER;
    char long_labels[128], text[] = "tp=0,dp=3";
    xcclComm_t comm, child;

    memset(long_labels, 'x', sizeof long_labels);
    long_labels[127] = 0;
    config.commName = "tensor";
    config.commLabels = text;
    XT_OK(xcclCommInitRankConfig(&comm, nranks, world_id(arg, rank, 0), rank, &config));
    text[0] = '?'; /* nobody looks any more */
    XT_OK(xcclCommSplit(comm, 0, 0, &child, NULL));
    check_labels("tp=0,dp=3");
    XT_OK(xcclCommDestroy(child));
    split_labels(comm, NULL, "tp=0,dp=3");
    split_labels(comm, "", "");
    split_labels(comm, "pp", "pp");
    split_labels(comm, long_labels, long_labels);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(a_split_has_its_parents_labels_unless_it_is_given_some)
{
    xt_mp_run(2, labelled_rank, world_create());
}

static void failing_rank(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = world_join(world, rank, nranks);
    struct xccl_record_view view;
    char value = 0;

    if (rank == 0)
        XT_CHECK_RC(xcclBarrier(comm, NULL), xcclInvalidUsage);
    else
        XT_CHECK_RC(xcclAllReduce(&value, &value, 1, xcclInt8, xcclSum, comm, NULL),
                    xcclInvalidUsage);
    XT_CHECK(own_record(&view));
    XT_CHECK_INT(view.comms[0].failed_calls, 1);
    XT_CHECK_INT(view.comms[0].current, 0);
    XT_CHECK_INT(view.comms[0].error, xcclInvalidUsage);
    XT_CHECK_HAS(view.comms[0].error_text, "ranks disagree");
    xccl_record_view_free(&view);
    XT_OK(xcclCommAbort(comm));
    XT_CHECK(!own_record(&view));
}

XT_TEST(a_failed_communicator_says_why)
{
    xt_mp_run(2, failing_rank, world_create());
}

static void off_rank(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = world_join(world, rank, nranks);
    struct xccl_record_view view;

    make_calls(comm, rank, nranks);
    XT_CHECK(!own_record(&view));
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(without_records_all_else_is_the_same)
{
    xt_setenv("XCCL_RECORD", "0");
    xt_mp_run(2, off_rank, world_create());
}

/* At exit a record goes, though nobody destroyed the communicator. */
static void exit_rank(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    struct xccl_record_view view;

    xt_allow_leaks("the communicator is left to the end of the process");
    (void)world_join(world, rank, nranks);
    XT_CHECK(own_record(&view));
    xccl_record_view_free(&view);
    exit(0);
}

XT_TEST(a_process_that_ends_in_order_leaves_no_record)
{
    struct xt_mp *mp = xt_mp_start(2, exit_rank, world_create());
    char path[600];

    xt_mp_wait(mp, NULL);
    snprintf(path, sizeof path, "%s/xccl", getenv("XDG_RUNTIME_DIR"));
    XT_CHECK_INT(xt_entries(path), 0);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Every argument of the collectives with a block size for each rank, one wrong at a time: the error
 * names the call, the array and the index, nothing starts, and the communicator goes on. Three
 * ranks in one thread; what is wrong is refused before it matters who calls. */
#include "world.h"

#define N 3

static xcclComm_t comms[N];

static void join_all(void)
{
    xcclUniqueId id;

    xt_set_error_source(world_error);
    XT_OK(xcclGetUniqueId(&id));
    XT_OK(xcclGroupStart());
    for (int r = 0; r < N; r++)
        XT_OK(xcclCommInitRank(&comms[r], N, id, r));
    XT_OK(xcclGroupEnd());
}

static void leave_all(void)
{
    XT_OK(xcclGroupStart());
    for (int r = 0; r < N; r++)
        XT_OK(xcclCommDestroy(comms[r]));
    XT_OK(xcclGroupEnd());
}

/* Rank 1 calls: own block 4 elements of 2, 4, 3. */
static const size_t counts[N] = {2, 4, 3};
static int from[32], to[32];

static void expect(xcclResult_t rc, const char *part)
{
    XT_CHECK_RC(rc, xcclInvalidArgument);
    XT_CHECK_HAS(xcclGetLastError(NULL), part);
}

static xcclResult_t gather(const int *send, size_t count, int *recv, const size_t *recvcounts,
                           const size_t *displs)
{
    return xcclAllGatherv(send, count, recv, recvcounts, displs, xcclInt32, comms[1], NULL);
}

static xcclResult_t scatter(const int *send, const size_t *sendcounts, const size_t *displs,
                            int *recv, size_t count)
{
    return xcclReduceScatterv(send, sendcounts, displs, recv, count, xcclInt32, xcclSum, comms[1],
                              NULL);
}

/* Both sides have the same counts. */
static xcclResult_t exchange(const int *send, const size_t *sdispls, int *recv,
                             const size_t *rdispls)
{
    return xcclAlltoAllv(send, counts, sdispls, recv, counts, rdispls, xcclInt32, comms[1], NULL);
}

/* Behind all that is refused: the communicators are as new. */
static void all_gather_works(void)
{
    int out[N][9] = {{0}};

    XT_OK(xcclGroupStart());
    for (int r = 0; r < N; r++)
        XT_OK(xcclAllGatherv(from, counts[r], out[r], counts, NULL, xcclInt32, comms[r], NULL));
    XT_OK(xcclGroupEnd());
    for (int r = 0; r < N; r++)
        XT_CHECK_INT(out[r][8], from[2]);
}

XT_TEST(communicator_stream_type_and_operator_are_checked)
{
    uint64_t stream[2] = {0};

    from[2] = 77;
    join_all();
    expect(xcclAllGatherv(from, 4, to, counts, NULL, xcclInt32, NULL, NULL), "xcclAllGatherv: ");
    expect(xcclAllGatherv(from, 4, to, counts, NULL, (xcclDataType_t)12, comms[1], NULL),
           "xcclAllGatherv: datatype is 12");
    expect(xcclAllGatherv(from, 4, to, counts, NULL, xcclInt32, comms[1], stream),
           "xcclAllGatherv: stream is not a stream");
    expect(
        xcclReduceScatterv(from, counts, NULL, to, 4, xcclInt32, (xcclRedOp_t)77, comms[1], NULL),
        "xcclReduceScatterv: op is 77");
    all_gather_works();
    leave_all();
}

XT_TEST(arrays_and_buffers_that_are_missing_are_named)
{
    join_all();
    expect(gather(from, 4, to, NULL, NULL), "xcclAllGatherv: recvcounts is NULL");
    expect(scatter(from, NULL, NULL, to, 4), "xcclReduceScatterv: sendcounts is NULL");
    expect(xcclAlltoAllv(from, NULL, NULL, to, counts, NULL, xcclInt32, comms[1], NULL),
           "xcclAlltoAllv: sendcounts is NULL");
    expect(xcclAlltoAllv(from, counts, NULL, to, NULL, NULL, xcclInt32, comms[1], NULL),
           "xcclAlltoAllv: recvcounts is NULL");
    expect(gather(NULL, 4, to, counts, NULL),
           "xcclAllGatherv: sendbuff is NULL and sendcount is 4");
    expect(gather(from, 4, NULL, counts, NULL), "recvbuff is NULL and recvcounts[0] is 2");
    expect(scatter(NULL, counts, NULL, to, 4), "sendbuff is NULL and sendcounts[0] is 2");
    expect(scatter(from, counts, NULL, NULL, 4), "recvbuff is NULL and recvcount is 4");
    expect(exchange(NULL, NULL, to, NULL), "xcclAlltoAllv: sendbuff is NULL and sendcounts[0]");
    expect(exchange(from, NULL, NULL, NULL), "xcclAlltoAllv: recvbuff is NULL and recvcounts[0]");
    leave_all();
}

XT_TEST(the_own_count_must_be_its_entry)
{
    const size_t others[N] = {2, 5, 3};

    join_all();
    expect(gather(from, 3, to, counts, NULL), "sendcount is 3, but recvcounts[1], of this rank, is "
                                              "4");
    expect(scatter(from, counts, NULL, to, 5), "recvcount is 5, but sendcounts[1], of this rank, "
                                               "is 4");
    expect(xcclAlltoAllv(from, counts, NULL, to, others, NULL, xcclInt32, comms[1], NULL),
           "sendcounts[1] is 4, but recvcounts[1], of this rank too, is 5");
    leave_all();
}

XT_TEST(sizes_and_places_that_no_memory_holds_are_named)
{
    const size_t huge[N] = {2, 4, SIZE_MAX / 4 + 1}, many[N] = {SIZE_MAX / 24, 4, SIZE_MAX / 24};
    const size_t far_off[N] = {0, 10, SIZE_MAX / 4 + 2}, edge[N] = {0, 10, SIZE_MAX / 16};

    join_all();
    expect(gather(from, 4, to, huge, NULL), "xcclAllGatherv: recvcounts[2] is 46116860184273879");
    expect(gather(from, 4, to, many, NULL), "recvcounts[2] is");
    expect(gather(from, 4, to, counts, far_off), "recvcounts[2] is 3 and displs[2] 4611686018427");
    expect(scatter(from, counts, edge, to, 4), "sendcounts[2] is 3 and displs[2] ");
    expect(exchange(from, NULL, to, far_off), "recvcounts[2] is 3 and rdispls[2] ");
    expect(exchange(from, far_off, to, NULL), "sendcounts[2] is 3 and sdispls[2] ");
    expect(gather(from, SIZE_MAX / 2, to, counts, NULL), "sendcount is ");
    leave_all();
}

XT_TEST(blocks_that_are_written_must_not_overlap)
{
    const size_t overlap[N] = {0, 1, 8}, backwards[N] = {6, 0, 4};
    int out[N][12];

    join_all();
    expect(gather(from, 4, to, counts, overlap), "blocks 0 and 1 of recvbuff overlap: see "
                                                 "recvcounts and displs");
    expect(exchange(from, NULL, to, overlap), "xcclAlltoAllv: blocks 0 and 1 of recvbuff overlap: "
                                              "see recvcounts and rdispls");
    expect(exchange(from, NULL, to, backwards), "xcclAlltoAllv: blocks 2 and 0 of recvbuff");
    XT_OK(xcclGroupStart()); /* blocks that touch are fine, and so are sent ones that overlap */
    for (int r = 0; r < N; r++) {
        size_t same[N] = {counts[r], counts[r], counts[r]};

        XT_OK(xcclAlltoAllv(from, counts, overlap, out[r], same, NULL, xcclInt32, comms[r], NULL));
    }
    XT_OK(xcclGroupEnd());
    leave_all();
}

XT_TEST(buffers_that_overlap_but_in_place_are_refused)
{
    const size_t gaps[N] = {0, 10, 20}, others[N] = {0, 10, 12};

    join_all();
    expect(gather(to + 3, 4, to, counts, NULL), "xcclAllGatherv: sendbuff and block 1 of recvbuff "
                                                "overlap");
    expect(gather(to, 4, to, counts, NULL), "sendbuff and block 0 of recvbuff overlap");
    expect(scatter(to, counts, gaps, to + 11, 4), "xcclReduceScatterv: block 1 of sendbuff and "
                                                  "recvbuff overlap");
    expect(scatter(to, counts, others, to + 10, 4), "block 2 of sendbuff and recvbuff overlap");
    expect(exchange(to, NULL, to, NULL), "xcclAlltoAllv: block 0 of sendbuff and block 0 of "
                                         "recvbuff overlap");
    expect(exchange(to + 8, NULL, to, NULL), "xcclAlltoAllv: block 0 of sendbuff and block 2 of");
    leave_all();
}

/* Memory between blocks belongs to nobody. */
XT_TEST(buffers_may_lie_between_blocks_of_the_other_one)
{
    const size_t gaps[N] = {0, 6, 12}, zeros[N] = {0, 0, 0};
    int all[N][32];

    join_all();
    XT_OK(xcclGroupStart());
    for (int r = 0; r < N; r++) {
        memset(all[r], 0, sizeof all[r]);
        for (size_t i = 0; i < counts[r]; i++)
            all[r][16 + i] = r + 1;
        XT_OK(xcclAllGatherv(all[r] + 16, counts[r], all[r], counts, gaps, xcclInt32, comms[r],
                             NULL));
        XT_OK(xcclAllGatherv(NULL, 0, NULL, zeros, NULL, xcclInt32, comms[r], NULL));
        XT_OK(xcclAlltoAllv(NULL, zeros, NULL, NULL, zeros, gaps, xcclInt32, comms[r], NULL));
        XT_OK(xcclReduceScatterv(NULL, zeros, NULL, NULL, 0, xcclInt32, xcclMax, comms[r], NULL));
    }
    XT_OK(xcclGroupEnd());
    for (int r = 0; r < N; r++)
        XT_CHECK(all[r][0] == 1 && all[r][2] == 0 && all[r][9] == 2 && all[r][14] == 3);
    leave_all();
}

/* Nothing of it runs, and nothing stays behind. */
XT_TEST(a_wrong_call_in_a_group_keeps_the_group_from_starting)
{
    from[2] = 78;
    join_all();
    XT_OK(xcclGroupStart());
    XT_OK(gather(from, 4, to, counts, NULL));
    expect(gather(from, 5, to, counts, NULL), "sendcount is 5");
    XT_CHECK_RC(xcclGroupEnd(), xcclInvalidArgument);
    all_gather_works();
    leave_all();
}

XT_TEST(a_thread_of_several_ranks_needs_a_group_for_v_calls_too)
{
    join_all();
    XT_CHECK_RC(gather(from, 4, to, counts, NULL), xcclInvalidUsage);
    XT_CHECK_HAS(xcclGetLastError(NULL), "use a group");
    leave_all();
}

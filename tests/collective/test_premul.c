/* SPDX-License-Identifier: BSD-3-Clause */
/* Operators of a program's own: sums of contributions that each rank multiplies by a number of its
 * own, on all collectives that reduce, by every protocol; and what becomes of their numbers. */
#include "world.h"

#define COUNT_MAX 70000
#define RANKS_MAX 5
#define OPS_MAX   64 /* of a communicator */

/* Whole and small, so that every order of adding gives the same float; 0 is among them. */
static int scalar_of(int rank, int round)
{
    return (rank * 3 + round) % 7 - 2;
}

static int input(int rank, size_t i)
{
    return (int)((i * 7 + (size_t)rank * 13) % 31) - 15;
}

static int sum_of(size_t i, int nranks, int round)
{
    int sum = 0;

    for (int r = 0; r < nranks; r++)
        sum += input(r, i) * scalar_of(r, round);
    return sum;
}

/* Numbers of a type, in and out. */
static void put(void *at, xcclDataType_t type, size_t i, int value)
{
    if (type == xcclFloat32)
        ((float *)at)[i] = (float)value;
    else if (type == xcclFloat64)
        ((double *)at)[i] = (double)value;
    else if (type == xcclUint8)
        ((uint8_t *)at)[i] = (uint8_t)value;
    else
        ((int64_t *)at)[i] = value;
}

static void check(const void *at, xcclDataType_t type, size_t i, int want)
{
    long long got;

    if (type == xcclFloat32)
        got = (long long)((const float *)at)[i];
    else if (type == xcclFloat64)
        got = (long long)((const double *)at)[i];
    else if (type == xcclUint8)
        got = ((const uint8_t *)at)[i];
    else
        got = ((const int64_t *)at)[i];
    if (type == xcclUint8)
        want = (uint8_t)want; /* it wraps */
    if (got != want)
        XT_FAIL("element %zu of datatype %d is %lld, want %d", i, (int)type, got, want);
}

static xcclRedOp_t make(xcclComm_t comm, xcclDataType_t type, int value)
{
    xcclRedOp_t op = xcclSum;
    int64_t room = 0;

    put(&room, type, 0, value);
    XT_OK(xcclRedOpCreatePreMulSum(&op, &room, type, xcclScalarHostImmediate, comm));
    room = 0; /* it was copied */
    XT_CHECK(op >= xcclNumOps);
    return op;
}

/* --- all collectives --- */

struct job {
    xcclComm_t comm;
    int rank, nranks, round;
    xcclDataType_t type;
    size_t count; /* of a block */
    char *in, *out; /* nranks blocks */
};

static void fill(const struct job *job)
{
    for (size_t i = 0; i < job->count * (size_t)job->nranks; i++)
        put(job->in, job->type, i, input(job->rank, i));
}

static void all_reduce(const struct job *job, xcclRedOp_t op)
{
    XT_OK(xcclAllReduce(job->in, job->out, job->count, job->type, op, job->comm, NULL));
    for (size_t i = 0; i < job->count; i++)
        check(job->out, job->type, i, sum_of(i, job->nranks, job->round));
}

static void reduce(const struct job *job, xcclRedOp_t op)
{
    int root = job->nranks - 1;

    XT_OK(xcclReduce(job->in, job->out, job->count, job->type, op, root, job->comm, NULL));
    for (size_t i = 0; i < job->count && job->rank == root; i++)
        check(job->out, job->type, i, sum_of(i, job->nranks, job->round));
}

static void reduce_scatter(const struct job *job, xcclRedOp_t op)
{
    XT_OK(xcclReduceScatter(job->in, job->out, job->count, job->type, op, job->comm, NULL));
    for (size_t i = 0; i < job->count; i++)
        check(job->out, job->type, i,
              sum_of(i + job->count * (size_t)job->rank, job->nranks, job->round));
}

/* Reduce-scatter with a size for each rank, here equal ones. */
static void reduce_scatter_v(const struct job *job, xcclRedOp_t op)
{
    size_t counts[RANKS_MAX];

    for (int r = 0; r < job->nranks; r++)
        counts[r] = job->count;
    XT_OK(xcclReduceScatterv(job->in, counts, NULL, job->out, job->count, job->type, op, job->comm,
                             NULL));
    for (size_t i = 0; i < job->count; i++)
        check(job->out, job->type, i,
              sum_of(i + job->count * (size_t)job->rank, job->nranks, job->round));
}

static void in_place(const struct job *job, xcclRedOp_t op)
{
    XT_OK(xcclAllReduce(job->in, job->in, job->count, job->type, op, job->comm, NULL));
    for (size_t i = 0; i < job->count; i++)
        check(job->in, job->type, i, sum_of(i, job->nranks, job->round));
}

static void one_case(struct job *job)
{
    xcclRedOp_t op = make(job->comm, job->type, scalar_of(job->rank, job->round));

    fill(job);
    all_reduce(job, op);
    reduce(job, op);
    reduce_scatter(job, op);
    reduce_scatter_v(job, op);
    in_place(job, op);
    XT_OK(xcclRedOpDestroy(op, job->comm));
}

static void all_collectives(int rank, int nranks, void *arg)
{
    static const size_t counts[] = {0, 1, 3, 1000, 9000, COUNT_MAX};
    static const xcclDataType_t types[] = {xcclFloat32, xcclFloat64, xcclUint8, xcclInt64};
    struct world *world = arg;
    struct job job = {.rank = rank, .nranks = nranks};

    if (world->param)
        xt_setenv("XCCL_SHM_DISABLE", "1");
    job.comm = world_join(world, rank, nranks);
    job.in = calloc(COUNT_MAX * RANKS_MAX, 8);
    job.out = calloc(COUNT_MAX * RANKS_MAX, 8);
    XT_CHECK(job.in && job.out);
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
            job.count = counts[c];
            job.type = types[t];
            job.round++;
            one_case(&job);
        }
    XT_OK(xcclCommDestroy(job.comm));
    free(job.in);
    free(job.out);
}

static void run_all_collectives(int nranks, int sockets)
{
    struct world *world = world_create();

    world->param = sockets;
    xt_mp_run(nranks, all_collectives, world);
}

XT_TEST(each_rank_multiplies_by_its_own_number)
{
    run_all_collectives(RANKS_MAX, 0);
}
XT_TEST(each_rank_multiplies_by_its_own_number_over_sockets)
{
    run_all_collectives(3, 1);
}
XT_TEST(single_rank_multiplies_too)
{
    run_all_collectives(1, 0);
}

/* --- numbers --- */

static void check_sum(xcclComm_t comm, xcclRedOp_t op, int mine, int want)
{
    float value = (float)mine;

    XT_OK(xcclAllReduce(&value, &value, 1, xcclFloat32, op, comm, NULL));
    XT_CHECK_INT((int)value, want);
}

/* Plans are kept by the operator's number; an operator with another scalar must not meet them. */
static void renewed(int rank, int nranks, void *arg)
{
    xcclComm_t comm = world_join(arg, rank, nranks);
    xcclRedOp_t old = make(comm, xcclFloat32, 3), op;

    XT_CHECK_INT(old, xcclNumOps);
    check_sum(comm, old, 1, 3 * nranks);
    XT_OK(xcclRedOpDestroy(old, comm));
    op = make(comm, xcclFloat32, 3);
    XT_CHECK_INT(op, old); /* an equal one gets the plans that are there */
    XT_OK(xcclRedOpDestroy(op, comm));
    for (int i = 0; i < 3 * OPS_MAX; i++) {
        op = make(comm, i % 3 ? xcclFloat32 : xcclInt64, 10 + i);
        if (i % 3)
            check_sum(comm, op, 2, 2 * (10 + i) * nranks);
        XT_OK(xcclRedOpDestroy(op, comm));
    }
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(number_of_a_destroyed_operator_serves_another_one)
{
    xt_mp_run(2, renewed, world_create());
}

/* Rank 1 has more operators, so the same one has another number there. */
static void other_numbers(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm;
    xcclRedOp_t op;

    if (world->param)
        xt_setenv("XCCL_SHM_DISABLE", "1");
    comm = world_join(world, rank, nranks);
    for (int i = 0; i < rank * 5; i++)
        (void)make(comm, xcclFloat32, -1);
    op = make(comm, xcclFloat32, rank + 1);
    XT_CHECK_INT(op, xcclNumOps + rank * 5);
    check_sum(comm, op, 10, 30);
    XT_OK(xcclCommDestroy(comm)); /* with all of them */
}

XT_TEST(ranks_may_have_different_numbers_for_an_operator)
{
    xt_mp_run(2, other_numbers, world_create());
}
XT_TEST(ranks_over_sockets_may_have_different_numbers_for_an_operator)
{
    struct world *world = world_create();

    world->param = 1;
    xt_mp_run(2, other_numbers, world);
}

/* Made, used and destroyed before the group has begun to work. */
static void destroyed_in_a_group(int rank, int nranks, void *arg)
{
    xcclComm_t comm = world_join(arg, rank, nranks);
    float values[OPS_MAX];

    XT_OK(xcclGroupStart());
    for (int i = 0; i < OPS_MAX; i++) {
        xcclRedOp_t op = make(comm, xcclFloat32, i + 1);

        values[i] = 1;
        XT_OK(xcclAllReduce(&values[i], &values[i], 1, xcclFloat32, op, comm, NULL));
        XT_OK(xcclRedOpDestroy(op, comm));
    }
    XT_OK(xcclGroupEnd());
    for (int i = 0; i < OPS_MAX; i++)
        XT_CHECK_INT((int)values[i], nranks * (i + 1));
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(group_keeps_the_operators_of_its_calls)
{
    xt_mp_run(2, destroyed_in_a_group, world_create());
}

XT_TEST(too_many_operators_are_refused)
{
    xcclComm_t comm;
    xcclRedOp_t op = xcclSum;
    float scalar = 1;

    xt_set_error_source(world_error);
    XT_OK(xcclCommInitAll(&comm, 1, NULL));
    for (int i = 0; i < OPS_MAX; i++)
        XT_CHECK_INT(make(comm, xcclFloat32, 1), xcclNumOps + i);
    XT_CHECK_RC(xcclRedOpCreatePreMulSum(&op, &scalar, xcclFloat32, xcclScalarHostImmediate, comm),
                xcclInvalidUsage);
    XT_CHECK_HAS(xcclGetLastError(NULL), "already has 64 operators");
    XT_CHECK_INT(op, xcclSum);
    XT_OK(xcclRedOpDestroy((xcclRedOp_t)(xcclNumOps + 9), comm));
    XT_CHECK_INT(make(comm, xcclFloat64, 1), xcclNumOps + 9);
    XT_OK(xcclCommDestroy(comm));
}

/* A sum is no sum of products: both calls stand in the error. */
static void different_operators(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclRedOp_t op = xcclSum;
    xcclResult_t rc = xcclSuccess;
    float value = 1;
    xcclComm_t comm;

    comm = world_join(world, rank, nranks);
    if (rank == 1)
        op = make(comm, xcclFloat32, 1);
    for (int i = 0; i < 2 && !rc; i++)
        rc = xcclAllReduce(&value, &value, 1, xcclFloat32, op, comm, NULL);
    XT_CHECK_RC(rc, xcclInvalidUsage);
    XT_CHECK_HAS(xcclGetLastError(comm), "float32, premulsum");
    XT_CHECK_HAS(xcclGetLastError(comm), "float32, sum");
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(ranks_with_different_operators_disagree)
{
    xt_mp_run(2, different_operators, world_create());
}

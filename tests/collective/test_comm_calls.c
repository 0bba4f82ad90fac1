/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls that make a communicator out of another one, make all ranks at once, end one, and ask:
 * in processes and in groups of one thread, over shared memory and over sockets. What goes wrong on
 * the way of a split is in fault/test_split_errors.c. */
#include "world.h"

#include <dlfcn.h>

#define RANKS 6

static xcclResult_t async_error(xcclComm_t comm)
{
    xcclResult_t rc = xcclNumResults;

    XT_OK(xcclCommGetAsyncError(comm, &rc));
    return rc;
}

/* --- what a split should give --- */

/* A rule that says for each rank of the parent its color and key. */
struct rule {
    const char *name;
    int (*color)(int rank, int nranks);
    int (*key)(int rank, int nranks);
};

static int halves(int rank, int nranks)
{
    return rank < nranks / 2 ? 7 : 0;
}
static int parity(int rank, int nranks)
{
    (void)nranks;
    return rank & 1;
}
static int all(int rank, int nranks)
{
    (void)rank;
    (void)nranks;
    return 2147483647;
}
static int each(int rank, int nranks)
{
    (void)nranks;
    return rank;
}
static int not_the_last(int rank, int nranks)
{
    return rank == nranks - 1 ? XCCL_SPLIT_NOCOLOR : 0;
}
static int nobody(int rank, int nranks)
{
    (void)rank;
    (void)nranks;
    return XCCL_SPLIT_NOCOLOR;
}
static int equal(int rank, int nranks)
{
    (void)rank;
    (void)nranks;
    return 5;
}
static int reversed(int rank, int nranks)
{
    (void)nranks;
    return -rank;
}

static const struct rule rules[] = {
    {"halves", halves, equal},
    {"odd and even, reversed", parity, reversed},
    {"all of them, reversed", all, reversed},
    {"each alone", each, equal},
    {"without the last", not_the_last, equal},
    {"nobody", nobody, equal},
};
#define RULES ((int)(sizeof rules / sizeof rules[0]))

/* Ranks of the parent as the child orders them; returns how many. */
static int members(const struct rule *rule, int rank, int nranks, int *ranks_out)
{
    int count = 0;

    if (rule->color(rank, nranks) == XCCL_SPLIT_NOCOLOR)
        return 0;
    for (int r = 0; r < nranks; r++)
        if (rule->color(r, nranks) == rule->color(rank, nranks))
            ranks_out[count++] = r;
    for (int i = 0; rule->key == reversed && i < count / 2; i++) {
        int other = ranks_out[i];

        ranks_out[i] = ranks_out[count - 1 - i];
        ranks_out[count - 1 - i] = other;
    }
    return count;
}

static void check_place(const struct rule *rule, int rank, int nranks, xcclComm_t child)
{
    int ranks[RANKS], want = members(rule, rank, nranks, ranks), count = -1, self = -1;

    if (!want) {
        XT_CHECK(child == NULL);
        return;
    }
    XT_CHECK(child != NULL);
    XT_OK(xcclCommCount(child, &count));
    XT_OK(xcclCommUserRank(child, &self));
    XT_CHECK_INT(count, want);
    XT_CHECK_INT(ranks[self], rank);
}

/* got: what an all-gather of parent's ranks has put together. */
static void check_gathered(const struct rule *rule, int rank, int nranks, const int *got)
{
    int ranks[RANKS] = {0}, count = members(rule, rank, nranks, ranks);

    for (int i = 0; i < count; i++)
        XT_CHECK_INT(got[i], ranks[i]);
}

/* --- in processes --- */

static xcclComm_t split_by(const struct rule *rule, xcclComm_t parent)
{
    int rank, nranks, got[RANKS] = {0};
    xcclComm_t child = (xcclComm_t)&rank; /* it must be set */

    XT_OK(xcclCommUserRank(parent, &rank));
    XT_OK(xcclCommCount(parent, &nranks));
    XT_OK(xcclCommSplit(parent, rule->color(rank, nranks), rule->key(rank, nranks), &child, NULL));
    check_place(rule, rank, nranks, child);
    if (child)
        XT_OK(xcclAllGather(&rank, got, 1, xcclInt32, child, NULL));
    check_gathered(rule, rank, nranks, got);
    return child;
}

static void use(xcclComm_t comm)
{
    int one = 1, sum = 0, count;

    XT_OK(xcclAllReduce(&one, &sum, 1, xcclInt32, xcclSum, comm, NULL));
    XT_OK(xcclCommCount(comm, &count));
    XT_CHECK_INT(sum, count);
}

static void split_in_processes(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm, children[RULES], twice;

    if (world->param)
        xt_setenv("XCCL_SHM_DISABLE", "1");
    comm = world_join(world, rank, nranks);
    for (int i = 0; i < RULES; i++)
        children[i] = split_by(&rules[i], comm);
    twice = split_by(&rules[1], children[0]); /* a split of a split */
    use(comm);
    XT_OK(xcclCommDestroy(comm)); /* the children live on */
    use(twice);
    XT_OK(xcclCommDestroy(twice));
    for (int i = 0; i < RULES; i++) {
        if (children[i])
            use(children[i]);
        XT_OK(xcclCommDestroy(children[i]));
    }
}

static void run_in_processes(int nranks, int sockets)
{
    struct world *world = world_create();

    world->param = sockets;
    xt_mp_run(nranks, split_in_processes, world);
}

XT_TEST(processes_split_by_colors_and_keys)
{
    run_in_processes(4, 0);
}
XT_TEST(processes_split_by_colors_and_keys_over_sockets)
{
    run_in_processes(5, 1);
}
XT_TEST(one_process_splits_alone)
{
    run_in_processes(1, 0);
}

/* Repeats calls with other buffers, by themselves and beside a larger communicator's. */
static void repeat_alone(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = world_join(world, rank, nranks), alone = split_by(&rules[3], comm);

    for (int i = 0; i < 12; i++) {
        int in[3] = {i, i + rank, 1}, out[3] = {-1, -1, -1};
        double some = i + 0.5, same = -1;

        if (i % 3 == 0)
            XT_OK(xcclGroupStart());
        XT_OK(xcclAllReduce(&some, &same, 1, xcclFloat64, xcclAvg, alone, NULL));
        XT_OK(xcclAllReduce(in, out, 1, xcclInt32, xcclSum, comm, NULL));
        for (int k = 1; k < 3; k++)
            XT_OK(xcclAllReduce(&in[k], &out[k], 1, xcclInt32, xcclMax, alone, NULL));
        if (i % 3 == 0)
            XT_OK(xcclGroupEnd());
        XT_CHECK(same == some);
        XT_CHECK_INT(out[0], nranks * i);
        XT_CHECK_INT(out[1], in[1]);
        XT_CHECK_INT(out[2], in[2]);
    }
    XT_OK(xcclCommDestroy(alone));
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(a_rank_alone_repeats_its_calls_also_beside_others)
{
    xt_mp_run(2, repeat_alone, world_create());
}

/* --- in groups of one thread --- */

static void group_split(const struct rule *rule, xcclComm_t *comms, int nranks, xcclComm_t *out)
{
    XT_OK(xcclGroupStart());
    for (int r = nranks - 1; r >= 0; r--)
        XT_OK(xcclCommSplit(comms[r], rule->color(r, nranks), rule->key(r, nranks), &out[r], NULL));
    XT_OK(xcclGroupEnd());
    for (int r = 0; r < nranks; r++)
        check_place(rule, r, nranks, out[r]);
}

static void group_gather(const struct rule *rule, xcclComm_t *children, int nranks)
{
    int self[RANKS], got[RANKS][RANKS];

    XT_OK(xcclGroupStart());
    for (int r = 0; r < nranks; r++) {
        self[r] = r;
        if (children[r])
            XT_OK(xcclAllGather(&self[r], got[r], 1, xcclInt32, children[r], NULL));
    }
    XT_OK(xcclGroupEnd());
    for (int r = 0; r < nranks; r++)
        check_gathered(rule, r, nranks, got[r]);
}

static void group_destroy(xcclComm_t *comms, int count)
{
    XT_OK(xcclGroupStart());
    for (int r = 0; r < count; r++)
        XT_OK(xcclCommDestroy(comms[r]));
    XT_OK(xcclGroupEnd());
}

static void split_in_groups(void)
{
    xcclComm_t comms[RANKS], children[RULES][RANKS];

    XT_OK(xcclCommInitAll(comms, RANKS, NULL));
    for (int i = 0; i < RULES; i++) {
        group_split(&rules[i], comms, RANKS, children[i]);
        group_gather(&rules[i], children[i], RANKS);
    }
    group_destroy(comms, RANKS);
    for (int i = 0; i < RULES; i++) {
        group_gather(&rules[i], children[i], RANKS);
        group_destroy(children[i], RANKS);
    }
}

XT_TEST(one_thread_splits_all_its_ranks_in_a_group)
{
    xt_set_error_source(world_error);
    split_in_groups();
}
XT_TEST(one_thread_splits_all_its_ranks_in_a_group_over_sockets)
{
    xt_set_error_source(world_error);
    xt_setenv("XCCL_SHM_DISABLE", "1");
    split_in_groups();
}

/* Under a launcher all processes would get the same id. */
XT_TEST(all_ranks_of_a_process_meet_inside_it_whatever_the_environment_says)
{
    xcclComm_t comms[2], child[2];

    xt_set_error_source(world_error);
    xt_setenv("XCCL_COMM_ID", "192.0.2.1:9"); /* nobody is there */
    XT_OK(xcclCommInitAll(comms, 2, NULL));
    group_split(&rules[2], comms, 2, child);
    group_destroy(comms, 2);
    group_destroy(child, 2);
}

/* Rows and columns of a square in one group, beside a join, a call and a leave of the parent. */
static void rows_and_columns(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = world_join(world, rank, nranks), row, column, other;
    int value = 1, got[2];

    XT_OK(xcclGroupStart());
    XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL));
    XT_OK(xcclCommSplit(comm, rank / 2, 0, &row, NULL));
    XT_OK(xcclCommInitRank(&other, nranks, world_id(world, rank, 1), rank));
    XT_OK(xcclCommSplit(comm, rank % 2, 0, &column, NULL));
    XT_OK(xcclCommDestroy(comm));
    XT_CHECK_RC(xcclGroupEnd(), xcclSuccess);
    XT_CHECK_INT(value, nranks);
    XT_OK(xcclAllGather(&rank, got, 1, xcclInt32, row, NULL));
    XT_CHECK(got[0] == rank / 2 * 2 && got[1] == got[0] + 1);
    XT_OK(xcclAllGather(&rank, got, 1, xcclInt32, column, NULL));
    XT_CHECK(got[0] == rank % 2 && got[1] == got[0] + 2);
    use(other);
    XT_OK(xcclCommDestroy(row));
    XT_OK(xcclCommDestroy(column));
    XT_OK(xcclCommDestroy(other));
}

XT_TEST(splits_of_one_parent_take_turns_in_a_group)
{
    xt_mp_run(4, rows_and_columns, world_create());
}

XT_TEST(thread_with_several_ranks_must_split_in_a_group)
{
    xcclComm_t comms[2], child;

    xt_set_error_source(world_error);
    XT_OK(xcclCommInitAll(comms, 2, (const int[]){0, 0}));
    XT_CHECK_RC(xcclCommSplit(comms[0], 0, 0, &child, NULL), xcclInvalidUsage);
    XT_CHECK_HAS(xcclGetLastError(NULL), "use a group");
    XT_CHECK(child == NULL);
    XT_CHECK_INT(async_error(comms[0]), xcclSuccess);
    group_destroy(comms, 2);
}

/* --- config --- */

/* As headers before commName had it. */
static void old_config(int rank, int nranks, void *arg)
{
    xcclConfig_t config = XCCL_CONFIG_INITIALIZER;
    xcclComm_t comm, child;

    config.size = offsetof(xcclConfig_t, commName);
    config.commName = (const char *)(uintptr_t)1; /* nobody may look */
    config.blocking = 99;
    XT_OK(xcclCommInitRankConfig(&comm, nranks, world_id(arg, rank, 0), rank, &config));
    XT_OK(xcclCommSplit(comm, 0, 0, &child, &config));
    XT_OK(xcclCommDestroy(comm));
    use(child);
    XT_OK(xcclCommDestroy(child));
}

XT_TEST(config_of_an_older_header_is_taken_as_far_as_it_goes)
{
    xt_mp_run(2, old_config, world_create());
}

/* As headers before commLabels had it. */
static void unlabelled_config(int rank, int nranks, void *arg)
{
    xcclConfig_t config = XCCL_CONFIG_INITIALIZER;
    xcclComm_t comm;

    config.size = offsetof(xcclConfig_t, commLabels);
    config.commLabels = (const char *)(uintptr_t)1; /* nobody may look */
    XT_OK(xcclCommInitRankConfig(&comm, nranks, world_id(arg, rank, 0), rank, &config));
    use(comm);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(config_of_a_header_without_labels_is_taken)
{
    xt_mp_run(2, unlabelled_config, world_create());
}

/* Rank 1 ends the named communicator; rank 0 reads whose error it is. */
static void named(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclConfig_t config = XCCL_CONFIG_INITIALIZER;
    xcclComm_t comm = NULL, child = NULL;
    xcclResult_t rc = xcclSuccess;

    XT_OK(xcclCommInitRankConfig(&comm, nranks, world_id(world, rank, 0), rank, NULL));
    config.commName = "tensor";
    config.commLabels = "tp=0,dp=3";
    config.blocking = 1;
    config.splitShare = 1;
    XT_OK(xcclCommSplit(comm, 0, 0, &child, &config));
    XT_CHECK_INT(async_error(child), xcclSuccess);
    world_meet(world, nranks);
    if (rank == 1)
        XT_OK(xcclCommAbort(child));
    while (rank == 0 && !rc) /* bounded by the test's deadline */
        XT_OK(xcclCommGetAsyncError(child, &rc));
    if (rank == 0) {
        XT_CHECK_INT(rc, xcclRemoteError);
        XT_CHECK_HAS(xcclGetLastError(child), "communicator tensor (tp=0,dp=3): rank 1 ");
        XT_CHECK_TEXT(xcclCommGetLastError(child), xcclGetLastError(child));
        XT_OK(xcclCommDestroy(child));
    }
    use(comm); /* it is none of the parent's affairs */
    XT_CHECK_INT(async_error(comm), xcclSuccess);
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(text_of_a_communicator_is_never_that_of_the_thread)
{
    xcclUniqueId id;
    xcclComm_t comm;

    XT_OK(xcclGetUniqueId(&id));
    XT_OK(xcclCommInitRank(&comm, 1, id, 0));
    XT_CHECK_RC(xcclCommCount(comm, NULL), xcclInvalidArgument);
    XT_CHECK_HAS(xcclGetLastError(comm), "count is NULL");
    XT_CHECK_TEXT(xcclCommGetLastError(comm), "");
    XT_CHECK_TEXT(xcclCommGetLastError(NULL), "");
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(errors_of_a_named_communicator_have_its_name_and_labels)
{
    xt_mp_run(2, named, world_create());
}

/* --- the end --- */

static void finalized(int rank, int nranks, void *arg)
{
    xcclComm_t comm = world_join(arg, rank, nranks), child;
    int value = 1, number = -1;
    float scalar = 2;
    void *handle;
    xcclRedOp_t op;

    XT_OK(xcclRedOpCreatePreMulSum(&op, &scalar, xcclFloat32, xcclScalarHostImmediate, comm));
    XT_OK(xcclCommRegister(comm, &value, sizeof value, &handle));
    XT_OK(xcclGroupStart());
    XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL));
    XT_OK(xcclCommFinalize(comm));
    XT_OK(xcclGroupEnd());
    XT_CHECK_INT(value, nranks);
    XT_CHECK_RC(xcclBarrier(comm, NULL), xcclInvalidUsage);
    XT_CHECK_HAS(xcclGetLastError(comm), "xcclBarrier: comm, rank ");
    XT_CHECK_HAS(xcclGetLastError(comm), "was finalized");
    XT_CHECK_RC(xcclCommSplit(comm, 0, 0, &child, NULL), xcclInvalidUsage);
    XT_CHECK_RC(xcclCommFinalize(comm), xcclInvalidUsage);
    XT_OK(xcclCommCount(comm, &number));
    XT_CHECK_INT(number, nranks);
    XT_OK(xcclCommUserRank(comm, &number));
    XT_CHECK_INT(number, rank);
    XT_OK(xcclCommCuDevice(comm, &number));
    XT_CHECK_INT(number, XCCL_DEVICE_HOST);
    XT_CHECK_INT(async_error(comm), xcclSuccess);
    XT_OK(xcclRedOpDestroy(op, comm));
    XT_OK(xcclCommDeregister(comm, handle));
    world_meet(arg, nranks);
    XT_OK(rank ? xcclCommDestroy(comm) : xcclCommAbort(comm));
}

XT_TEST(finalized_communicator_answers_questions_and_is_destroyed)
{
    xt_mp_run(2, finalized, world_create());
}

/* --- memory --- */

XT_TEST(memory_from_the_library_is_whole_zeroed_pages_and_freed_once)
{
    char *memory = NULL;
    void *none = &none, *ignored;

    xt_set_error_source(world_error);
    XT_OK(xcclMemAlloc((void **)&memory, 5000));
    XT_CHECK((uintptr_t)memory % 4096 == 0);
    for (int i = 0; i < 8192; i++)
        XT_CHECK(memory[i] == 0);
    memory[8191] = 1;
    XT_CHECK_RC(xcclMemFree(memory + 1), xcclInvalidArgument);
    XT_CHECK_HAS(xcclGetLastError(NULL), "xcclMemFree: ptr is 0x");
    XT_OK(xcclMemFree(memory));
    XT_CHECK_RC(xcclMemFree(memory), xcclInvalidArgument);
    XT_OK(xcclMemFree(NULL));
    XT_OK(xcclMemAlloc(&none, 0));
    XT_CHECK(none == NULL);
    XT_CHECK_RC(xcclMemAlloc(NULL, 1), xcclInvalidArgument);
    XT_CHECK_RC(xcclMemAlloc(&ignored, SIZE_MAX), xcclInvalidArgument);
    XT_CHECK_RC(xcclMemAlloc(&ignored, SIZE_MAX / 2), xcclSystemError);
    XT_CHECK_HAS(xcclGetLastError(NULL), "Cannot allocate memory");
    XT_CHECK(ignored == NULL);
}

/* --- wrong arguments --- */

#define REFUSED(call, part)                                                                        \
    do {                                                                                           \
        XT_CHECK_RC(call, xcclInvalidArgument);                                                    \
        XT_CHECK_HAS(xcclGetLastError(NULL), part);                                                \
    } while (0)

static void refuse_configs(xcclComm_t comm)
{
    const char *call = "xcclCommSplit: ";
    xcclConfig_t config, good = XCCL_CONFIG_INITIALIZER;
    xcclComm_t child = comm;
    char name[65], labels[129];

#define REFUSED_CONFIG(part)                                                                       \
    do {                                                                                           \
        REFUSED(xcclCommSplit(comm, 0, 0, &child, &config), part);                                 \
        XT_CHECK_HAS(xcclGetLastError(NULL), call);                                                \
        config = good;                                                                             \
    } while (0)
    memset(&config, 0, sizeof config);
    REFUSED_CONFIG("config is not an initialized xcclConfig_t");
    config.size++;
    REFUSED_CONFIG("knows only the first");
    config.blocking = 7;
    REFUSED_CONFIG("blocking is 7, not 0..1");
    config.splitShare = -1;
    REFUSED_CONFIG("splitShare is -1, not 0..1");
    memset(name, 'n', sizeof name);
    name[64] = 0;
    memset(labels, 'l', sizeof labels);
    labels[128] = 0;
    config.commName = name;
    REFUSED_CONFIG("commName has more than 63 bytes");
    config.commName = "a\nb";
    REFUSED_CONFIG("commName has a control character at 1");
    config.commLabels = labels;
    REFUSED_CONFIG("commLabels has more than 127 bytes");
    config.commLabels = "tp=0\x1b[2J";
    REFUSED_CONFIG("commLabels has a control character at 4");
    config.commLabels = "\x7f";
    REFUSED_CONFIG("commLabels has a control character at 0");
    config.commLabels = ",tp=0";
    REFUSED_CONFIG("commLabels has an empty label at 0");
    config.commLabels = "tp=0,,dp=1";
    REFUSED_CONFIG("commLabels has an empty label at 5");
    config.commLabels = "tp=0,";
    REFUSED_CONFIG("commLabels has an empty label at 5");
#undef REFUSED_CONFIG
    XT_CHECK(child == comm);
}

static void refuse_memory_and_ops(xcclComm_t comm)
{
    float scalar = 1, value = 1;
    xcclRedOp_t op = xcclSum;
    void *handle;

    REFUSED(xcclCommRegister(comm, NULL, 1, &handle), "xcclCommRegister: buff is NULL");
    REFUSED(xcclCommRegister(comm, &value, 1, NULL), "xcclCommRegister: handle is NULL");
    REFUSED(xcclCommRegister(comm, &value, 0, &handle), "size is 0, which buff cannot have");
    REFUSED(xcclCommRegister(comm, &value, SIZE_MAX, &handle), "which buff cannot have");
    REFUSED(xcclCommDeregister(comm, &value), "which is not a handle of this communicator");
    REFUSED(xcclCommDeregister(comm, NULL), "which is not a handle of this communicator");
#define CREATE(op_out, from, type, residence)                                                      \
    xcclRedOpCreatePreMulSum(op_out, from, type, residence, comm)
    REFUSED(CREATE(NULL, &scalar, xcclFloat32, xcclScalarHostImmediate), "op is NULL");
    REFUSED(CREATE(&op, NULL, xcclFloat32, xcclScalarHostImmediate), "scalar is NULL");
    REFUSED(CREATE(&op, &scalar, xcclNumTypes, xcclScalarHostImmediate), "datatype is 12, not");
    REFUSED(CREATE(&op, &scalar, xcclFloat32, xcclScalarDevice), "residence is xcclScalarDevice");
    REFUSED(CREATE(&op, &scalar, xcclFloat32, (xcclScalarResidence_t)2), "residence is 2, not");
    REFUSED(xcclRedOpDestroy(xcclSum, comm), "op is 0, which is not an operator");
    REFUSED(xcclRedOpDestroy(xcclNumOps, comm), "op is 5, which is not an operator");
    XT_OK(CREATE(&op, &scalar, xcclFloat32, xcclScalarHostImmediate));
#undef CREATE
    REFUSED(xcclAllReduce(&value, &value, 1, xcclInt32, op, comm, NULL),
            "xcclAllReduce: op 5 was created for datatype 7, but datatype is 2");
    REFUSED(xcclAllReduce(&value, &value, 1, xcclFloat32, (xcclRedOp_t)6, comm, NULL),
            "xcclAllReduce: op is 6, not 0..4");
    XT_OK(xcclRedOpDestroy(op, comm));
    REFUSED(xcclAllReduce(&value, &value, 1, xcclFloat32, op, comm, NULL), "op is 5, not 0..4");
    REFUSED(xcclRedOpDestroy(op, comm), "op is 5, which is not an operator");
}

XT_TEST(every_wrong_argument_is_named_and_harmless)
{
    xcclUniqueId id = {{0}};
    xcclComm_t comm, child;
    int number;

    xt_set_error_source(world_error);
    REFUSED(xcclCommInitAll(NULL, 1, NULL), "xcclCommInitAll: comm_list is NULL");
    REFUSED(xcclCommInitAll(&comm, 0, NULL), "xcclCommInitAll: ndev is 0, not 1..");
    REFUSED(xcclCommInitAll(&comm, 1, (const int[]){-2}), "xcclCommInitAll: devlist[0] is -2");
    REFUSED(xcclCommInitRankConfig(NULL, 1, id, 0, NULL), "xcclCommInitRankConfig: comm is NULL");
    REFUSED(xcclCommInitRankConfig(&comm, 1, id, 1, NULL), "xcclCommInitRankConfig: rank is 1");
    REFUSED(xcclCommSplit(NULL, 0, 0, &child, NULL), "xcclCommSplit: comm is NULL");
    REFUSED(xcclCommFinalize(NULL), "xcclCommFinalize: comm is NULL");
    REFUSED(xcclCommCuDevice(NULL, &number), "xcclCommCuDevice: comm is NULL");
    XT_OK(xcclCommInitAll(&comm, 1, NULL));
    REFUSED(xcclCommGetAsyncError(comm, NULL), "xcclCommGetAsyncError: asyncError is NULL");
    REFUSED(xcclCommCuDevice(comm, NULL), "xcclCommCuDevice: device is NULL");
    REFUSED(xcclCommSplit(comm, 0, 0, NULL, NULL), "xcclCommSplit: newcomm is NULL");
    REFUSED(xcclCommSplit(comm, -2, 0, &child, NULL), "xcclCommSplit: color is -2");
    refuse_configs(comm);
    refuse_memory_and_ops(comm);
    use(comm);
    XT_OK(xcclCommDestroy(comm));
}

/* A split that is refused spoils its group, but not the communicator. */
static void refused_in_a_group(int rank, int nranks, void *arg)
{
    xcclComm_t comm = world_join(arg, rank, nranks), child = NULL;
    int value = 1;

    XT_OK(xcclGroupStart());
    XT_OK(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL));
    XT_OK(xcclCommSplit(comm, 0, 0, &child, NULL));
    REFUSED(xcclCommSplit(comm, -5, 0, &child, NULL), "color is -5");
    XT_CHECK_RC(xcclGroupEnd(), xcclInvalidArgument);
    XT_CHECK(child == NULL);
    XT_CHECK_INT(value, 1);
    child = split_by(&rules[0], comm);
    XT_OK(xcclCommDestroy(child));
    XT_OK(xcclCommDestroy(comm));
}

XT_TEST(refused_split_stops_its_group_and_can_be_made_again)
{
    xt_mp_run(2, refused_in_a_group, world_create());
}

/* --- a program for NCCL --- */

#define LOCALS 2 /* "devices" of a process */

/* One thread joins for several devices and calls for them in groups, as NCCL's users learn it
 * first; but for the prefix, there is nothing of XCCL's own in it. */
static void ported_program(int process, int nprocs, void *arg)
{
    enum { SIZE = 32 * 1024 };
    static float sendbuff[LOCALS][SIZE], recvbuff[LOCALS][SIZE];
    xcclUniqueId id = world_id(arg, process, 0);
    xcclComm_t comms[LOCALS];
    int nranks = nprocs * LOCALS, sum = nranks * (nranks - 1) / 2;

    for (int i = 0; i < LOCALS; i++)
        for (int j = 0; j < SIZE; j++)
            sendbuff[i][j] = (float)(process * LOCALS + i + j % 100);
    XT_OK(xcclGroupStart());
    for (int i = 0; i < LOCALS; i++)
        XT_OK(xcclCommInitRank(comms + i, nranks, id, process * LOCALS + i));
    XT_OK(xcclGroupEnd());
    XT_OK(xcclGroupStart());
    for (int i = 0; i < LOCALS; i++)
        XT_OK(xcclAllReduce(sendbuff[i], recvbuff[i], SIZE, xcclFloat, xcclSum, comms[i], NULL));
    XT_OK(xcclGroupEnd());
    for (int i = 0; i < LOCALS; i++) {
        for (int j = 0; j < SIZE; j++)
            XT_CHECK(recvbuff[i][j] == (float)(sum + nranks * (j % 100)));
        XT_OK(xcclCommFinalize(comms[i]));
    }
    for (int i = 0; i < LOCALS; i++)
        XT_OK(xcclCommDestroy(comms[i]));
}

XT_TEST(program_for_nccl_runs_with_its_calls_renamed)
{
    xt_mp_run(2, ported_program, world_create());
}

XT_TEST(every_call_about_communicators_has_a_twin)
{
    static const char *const names[] = {
        "xcclCommInitRankConfig",   "xcclCommInitAll",       "xcclCommSplit",
        "xcclCommFinalize",         "xcclCommGetAsyncError", "xcclCommCuDevice",
        "xcclCommGetLastError",     "xcclMemAlloc",          "xcclMemFree",
        "xcclCommRegister",         "xcclCommDeregister",    "xcclRedOpDestroy",
        "xcclRedOpCreatePreMulSum",
    };
    char twin[40];

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(twin, sizeof twin, "p%s", names[i]);
        XT_CHECK(dlsym(RTLD_DEFAULT, names[i]) != NULL);
        XT_CHECK(dlsym(RTLD_DEFAULT, names[i]) == dlsym(RTLD_DEFAULT, twin));
    }
}

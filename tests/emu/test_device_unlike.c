/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of CUDA communicators that do not belong together, drawn by a seed: a receive, or a send
 * of more than links hold, against a collective or a split, receives that wait for each other,
 * messages of another size, and a receive from a rank that leaves. All ranks have to fail in time,
 * whatever they do meanwhile, with one text that names both, and the ranks.
 *
 * Every case has a communicator of its own, split from one that stays whole. XT_MISMATCH_RUNS:
 * cases of each test, one of each class in turn. XT_MISMATCH_CLASS: one class. */
#include <unistd.h>

#define FEW 3 /* cases of a test by default */
#include "device_unlike.h"

#define SEND_BYTES   (4u << 20) /* more than links hold */
#define BUFFER_BYTES SEND_BYTES
#define AT_ONCE_S    1.0 /* a mismatch is an error within so many seconds */
#define SEND_S       5.0 /* so is a send without a partner over a network */
#define BUSY_S       4.0 /* longer, beside other programs */
#define FOLLOWING    3 /* right calls after the pair, until one fails */
#define DELAY_MAX_US 3000
#define SMALL        16 /* elements of a right call */
#define WHOLE_BYTES  8000 /* a message that comes as a whole, so that its size can be told */
#define SERIES       50 /* messages one behind the other, and from one to the next: */
#define SERIES_US    50000

/* clang-format off */
enum class {
    RECV_OR_COLLECTIVE,
    SEND_OR_COLLECTIVE,
    RECV_OR_SPLIT,
    SPLIT_OR_COLLECTIVE,
    RECV_AND_RECV,
    RECV_RING,
    NOTHING_SENT,
    NOTHING_RECEIVED,
    OTHER_SIZE,
    RECV_OF_ONE_THAT_LEAVES,
    CLASS_COUNT
};
/* clang-format on */

static const char *const class_names[CLASS_COUNT] = {
    "recv_or_collective",     "send_or_collective", "recv_or_split",
    "split_or_collective",    "recv_and_recv",      "recv_ring",
    "nothing_sent",           "nothing_received",   "other_size",
    "recv_of_one_that_leaves"};

struct drawn {
    enum class class;
    struct act acts[UNLIKE_RANKS_MAX]; /* LEAVE: nothing, but in the last class */
    int odd, peer; /* peer: of the odd one's message */
    int warm; /* the calls were made before, rightly, so that all links are there */
    int follows; /* right calls come after it */
    unsigned delay_us[UNLIKE_RANKS_MAX];
};

struct rank {
    struct page *page;
    int rank, nranks;
    struct on_device on;
    xcclComm_t whole;
};

/* --- drawing --- */

static enum class class_of(uint64_t number) {
    const char *only = getenv("XT_MISMATCH_CLASS");

    for (int i = 0; only && i < CLASS_COUNT;
         i++) if (!strcmp(only, class_names[i])) return (enum class)i;
    return (enum class)(number % CLASS_COUNT);
}

static struct act message(enum kind kind, size_t bytes, int peer)
{
    return (struct act){.kind = kind, .count = bytes, .type = xcclInt8, .peer = peer};
}

/* The odd one does this, and all others that. */
static void set_acts(struct drawn *drawn, int nranks, struct act odd, struct act even)
{
    for (int i = 0; i < nranks; i++)
        drawn->acts[i] = i == drawn->odd ? odd : even;
}

/* One that ends nowhere without the odd one. */
static struct act draw_even(uint64_t *random, int nranks)
{
    struct act even = draw_collective(random, nranks);

    while (is_rooted(even.coll))
        even = draw_collective(random, nranks);
    return even;
}

/* Two ranks have a message, the others nothing but the calls that follow. */
static void draw_two(struct drawn *drawn, uint64_t *random, int nranks)
{
    size_t bytes = 1 + xt_random(random) % (WHOLE_BYTES / 2), sent = bytes, received = bytes;
    int receives = drawn->class == RECV_AND_RECV || drawn->class == RECV_OF_ONE_THAT_LEAVES;

    set_acts(drawn, nranks, (struct act){.kind = LEAVE}, (struct act){.kind = LEAVE});
    if (drawn->class == NOTHING_SENT)
        sent = 0;
    if (drawn->class == NOTHING_RECEIVED)
        received = 0;
    if (drawn->class == OTHER_SIZE)
        sent += 1 + xt_random(random) % (WHOLE_BYTES / 2 - 1);
    drawn->acts[drawn->odd] = message(receives ? RECV : SEND, sent, drawn->peer);
    if (drawn->class != RECV_OF_ONE_THAT_LEAVES)
        drawn->acts[drawn->peer] = message(RECV, received, drawn->odd);
}

static void draw(struct drawn *drawn, uint64_t seed, int nranks)
{
    uint64_t random = seed;
    struct act recv, even;

    drawn->class = class_of(seed ^ seed >> 32);
    drawn->odd = (int)(xt_random(&random) % (unsigned)nranks);
    drawn->peer = (drawn->odd + 1 + (int)(xt_random(&random) % (unsigned)(nranks - 1))) % nranks;
    drawn->warm = (int)(xt_random(&random) % 2);
    drawn->follows = xt_random(&random) % 2 && drawn->class != RECV_OF_ONE_THAT_LEAVES;
    for (int i = 0; i < nranks; i++)
        drawn->delay_us[i] = (unsigned)(xt_random(&random) % DELAY_MAX_US);
    recv = message(RECV, draw_count(&random, 0), drawn->peer);
    even = draw_even(&random, nranks);
    switch (drawn->class) {
    case RECV_OR_COLLECTIVE:
        set_acts(drawn, nranks, recv, even);
        break;
    case SEND_OR_COLLECTIVE:
        set_acts(drawn, nranks, message(SEND, SEND_BYTES, drawn->peer), even);
        break;
    case RECV_OR_SPLIT:
        set_acts(drawn, nranks, recv, (struct act){.kind = SPLIT});
        break;
    case SPLIT_OR_COLLECTIVE:
        set_acts(drawn, nranks, (struct act){.kind = SPLIT}, even);
        break;
    case RECV_RING:
        for (int i = 0; i < nranks; i++)
            drawn->acts[i] = message(RECV, recv.count, (i + 1) % nranks);
        break;
    default:
        draw_two(drawn, &random, nranks);
        break;
    }
}

/* --- one case --- */

static double bound_of(const struct drawn *drawn, const struct page *page)
{
    int is_slow = drawn->class == SEND_OR_COLLECTIVE && !strcmp(page->way, "net");
    double quiet_s = is_slow ? SEND_S : AT_ONCE_S;

    return xt_bound(quiet_s, quiet_s + BUSY_S);
}

static xcclResult_t right_call(struct on_device *on)
{
    return xcclAllReduce(at(on->in, 0), at(on->out, 0), SMALL, xcclInt32, xcclSum, on->comm,
                         on->stream);
}

static xcclResult_t perform(const struct act *act, struct on_device *on)
{
    void *in = at(on->in, 0), *out = at(on->out, 0);
    xcclComm_t child = NULL;
    xcclResult_t rc;

    switch (act->kind) {
    case COLLECTIVE:
        return unlike_call(act, on->comm, in, out, on->stream);
    case SEND:
        return xcclSend(in, act->count, act->type, act->peer, on->comm, on->stream);
    case RECV:
        return xcclRecv(out, act->count, act->type, act->peer, on->comm, on->stream);
    case SPLIT:
        rc = xcclCommSplit(on->comm, 0, 0, &child, NULL);
        if (!rc)
            XT_OK(xcclCommDestroy(child));
        return rc;
    default:
        return xcclSuccess;
    }
}

/* Every rank makes the same calls, rightly, and sends to each other. */
static void warm_up(const struct drawn *drawn, struct rank *rank)
{
    struct on_device *on = &rank->on;

    XT_OK(xcclGroupStart());
    for (int i = 0; i < rank->nranks; i++) {
        XT_OK(xcclSend(at(on->in, 0), 4, xcclInt8, i, on->comm, on->stream));
        XT_OK(xcclRecv(at(on->out, 2 * (size_t)i), 4, xcclInt8, i, on->comm, on->stream));
    }
    XT_OK(xcclGroupEnd());
    for (int i = 0; i < rank->nranks; i++)
        if (drawn->acts[i].kind == COLLECTIVE)
            XT_OK(perform(&drawn->acts[i], on));
    CU(cuda->stream_sync(on->stream));
}

static int leaves(const struct drawn *drawn, int rank)
{
    return drawn->class == RECV_OF_ONE_THAT_LEAVES && rank == drawn->peer;
}

/* Does what follows until the error is there, or for as long as it may take. */
static xcclResult_t follow(const struct drawn *drawn, struct rank *rank)
{
    double until = xt_seconds() + bound_of(drawn, rank->page);
    xcclResult_t rc = xcclSuccess;

    for (int i = 0; drawn->follows && i < FOLLOWING && !rc; i++)
        rc = right_call(&rank->on);
    while (!rc && xt_seconds() < until) {
        usleep(1000);
        XT_OK(xcclCommGetAsyncError(rank->on.comm, &rc));
    }
    return rc;
}

/* Kernels of a communicator that has failed end. */
static void await_stream(struct on_device *on)
{
    double start = xt_seconds();

    for (; cuda->stream_query(on->stream) == XCCL_CU_NOT_READY; usleep(500))
        XT_CHECK(xt_seconds() - start < 20);
}

static void run_case(const struct drawn *drawn, struct rank *rank)
{
    struct outcome *outcome = &rank->page->outcomes[rank->rank];
    struct on_device *on = &rank->on;
    double began;

    XT_OK(xcclCommSplit(rank->whole, 0, rank->rank, &on->comm, NULL));
    if (drawn->warm)
        warm_up(drawn, rank);
    gate(rank->page, rank->rank, rank->nranks);
    *outcome = (struct outcome){.rc = xcclSuccess};
    began = xt_seconds();
    usleep(drawn->delay_us[rank->rank]);
    outcome->rc = perform(&drawn->acts[rank->rank], on);
    if (!outcome->rc && !leaves(drawn, rank->rank))
        outcome->rc = follow(drawn, rank);
    outcome->seconds = xt_seconds() - began;
    if (outcome->rc)
        snprintf(outcome->text, sizeof outcome->text, "%s", xcclGetLastError(on->comm));
    await_stream(on);
    (void)xcclCommDestroy(on->comm);
}

/* --- the verdict --- */

static const char *judge_one(const struct drawn *drawn, const struct page *page,
                             const struct outcome *outcome, int nranks)
{
    if (!outcome->rc)
        return "no error";
    if (outcome->seconds > bound_of(drawn, page))
        return "late";
    if (drawn->class == RECV_OF_ONE_THAT_LEAVES)
        return strstr(outcome->text, "has left") ? NULL : "it does not say who has left";
    if (outcome->rc != xcclInvalidUsage)
        return "another result";
    return unlike_text(drawn->acts, outcome->text, nranks);
}

static void show(const struct drawn *drawn, const struct page *page, int nranks, uint64_t seed,
                 int rank, const char *why)
{
    printf("FAIL %s by %s, %d ranks, case seed %#llx, warm %d, follows %d: rank %d: %s\n",
           class_names[drawn->class], page->way, nranks, (unsigned long long)seed, drawn->warm,
           drawn->follows, rank, why);
    unlike_show(page, drawn->acts, drawn->delay_us, nranks);
}

static int judge(const struct drawn *drawn, const struct page *page, int nranks, uint64_t seed)
{
    for (int i = 0; i < nranks; i++) {
        const char *why = leaves(drawn, i) ? NULL
                                           : judge_one(drawn, page, &page->outcomes[i], nranks);

        if (!why)
            continue;
        show(drawn, page, nranks, seed, i, why);
        return 1;
    }
    return 0;
}

/* --- ranks that are processes or threads --- */

static void run_cases(int number, int nranks, void *arg)
{
    struct page *page = arg;
    struct rank rank = {.page = page, .rank = number, .nranks = nranks};
    xccl_cu_ctx ctx;

    CU(cuda->ctx_retain(&ctx, 0));
    CU(cuda->ctx_set(ctx));
    rank.whole = world_join(&page->world, number, nranks);
    device_make(&rank.on, BUFFER_BYTES);
    for (int i = 0; i < page->runs; i++) {
        uint64_t seed = page->seed + (uint64_t)i;
        struct drawn drawn = {0};

        draw(&drawn, seed, nranks);
        run_case(&drawn, &rank);
        gate(page, number, nranks);
        if (number == 0)
            page->failed += judge(&drawn, page, nranks, seed);
        gate(page, number, nranks);
    }
    XT_OK(xcclCommDestroy(rank.whole));
    device_free(&rank.on);
}

/* --- what belongs together is no error, however long it takes --- */

static xcclComm_t join_warm(struct page *page, int rank, int nranks, struct on_device *on)
{
    device_settings(page->way);
    device_open();
    device_make(on, BUFFER_BYTES);
    on->comm = world_join(&page->world, rank, nranks);
    XT_OK(right_call(on));
    CU(cuda->stream_sync(on->stream));
    return on->comm;
}

/* Rank 1 is late to receive, and then waits in a call for rank 0, which is late after its send. */
static void late_after_a_send(int rank, int nranks, void *arg)
{
    struct act send = message(SEND, SEND_BYTES, 1), recv = message(RECV, SEND_BYTES, 0);
    struct on_device on;

    (void)join_warm(arg, rank, nranks, &on);
    if (rank == 1)
        usleep(700000);
    XT_OK(perform(rank ? &recv : &send, &on));
    CU(cuda->stream_sync(on.stream));
    if (rank == 0)
        usleep(700000);
    device_put(&on, SMALL, rank, 0);
    XT_OK(right_call(&on));
    CHECK_EACH(&on, SMALL, sum_of(nranks, i, 0));
    XT_OK(xcclCommDestroy(on.comm));
    device_free(&on);
}

XT_TEST(a_device_that_is_late_after_its_send_waits_for_nobody)
{
    xt_mp_run(2, late_after_a_send, page_create("p2p", 9, FEW));
}

/* Rank 1 waits for a message all the time, longer than it may wait for any of them. */
static void many_messages(int rank, int nranks, void *arg)
{
    struct act send = message(SEND, 4, 1), recv = message(RECV, 4, 0);
    struct on_device on;

    xt_setenv("XCCL_TIMEOUT_S", "1");
    (void)join_warm(arg, rank, nranks, &on);
    for (int i = 0; i < SERIES; i++) {
        if (rank == 0)
            usleep(SERIES_US);
        XT_OK(perform(rank ? &recv : &send, &on));
    }
    CU(cuda->stream_sync(on.stream));
    XT_OK(xcclCommDestroy(on.comm));
    device_free(&on);
}

XT_TEST(a_long_series_of_messages_of_devices_is_no_timeout)
{
    xt_mp_run(2, many_messages, page_create("p2p", 10, FEW));
}

/* --- a rank is in two at a time --- */

/* Rank 0 makes links for a call while its kernel waits for a message; the others wait in a call. */
static void receive_before_links(int rank, int nranks, void *arg)
{
    struct act recv = message(RECV, 64, 1);
    struct on_device on;
    double began;
    xcclResult_t rc;

    (void)join_warm(arg, rank, nranks, &on);
    gate(arg, rank, nranks);
    began = xt_seconds();
    rc = rank ? right_call(&on) : perform(&recv, &on);
    if (!rc && !rank)
        rc = xcclAllGather(at(on.in, 0), at(on.out, 0), 3, xcclInt8, on.comm, on.stream);
    for (; !rc && xt_seconds() - began < xt_bound(AT_ONCE_S, AT_ONCE_S + BUSY_S); usleep(1000))
        XT_OK(xcclCommGetAsyncError(on.comm, &rc));
    XT_CHECK_RC(rc, xcclInvalidUsage);
    XT_CHECK(xt_seconds() - began < xt_bound(AT_ONCE_S, AT_ONCE_S + BUSY_S));
    XT_CHECK_HAS(xcclGetLastError(on.comm), "rank 0");
    XT_CHECK_HAS(xcclGetLastError(on.comm), "receive of 64 bytes from rank 1");
    XT_CHECK_HAS(xcclGetLastError(on.comm), "call 2: all-reduce of 16 int32");
    gate(arg, rank, nranks);
    XT_OK(xcclCommDestroy(on.comm));
    device_free(&on);
}

XT_TEST(a_message_that_nobody_sends_is_found_while_links_are_made)
{
    xt_mp_run(3, receive_before_links, page_create("p2p", 12, FEW));
}

/* Each rank sends as much as its number to all: sums of ranks may differ. */
static xcclResult_t exchange(struct on_device *on, int rank, int nranks)
{
    size_t sends[UNLIKE_RANKS_MAX], receives[UNLIKE_RANKS_MAX], places[UNLIKE_RANKS_MAX];

    for (int i = 0; i < nranks; i++) {
        sends[i] = (size_t)rank;
        receives[i] = (size_t)i;
        places[i] = (size_t)i * SMALL;
    }
    return xcclAlltoAllv(at(on->in, 0), sends, places, at(on->out, 0), receives, places, xcclInt32,
                         on->comm, on->stream);
}

XT_TEST(ranks_of_a_thread_may_send_different_sums_in_an_all_to_all_v)
{
    int devices[3] = {0};
    struct on_device ons[3];
    xcclComm_t comms[3];

    device_settings("p2p");
    device_open();
    XT_OK(xcclCommInitAll(comms, 3, devices));
    XT_OK(xcclGroupStart());
    for (int r = 0; r < 3; r++) {
        device_make(&ons[r], 4096);
        ons[r].comm = comms[r];
        XT_OK(exchange(&ons[r], r, 3));
    }
    XT_OK(xcclGroupEnd());
    for (int r = 0; r < 3; r++)
        CU(cuda->stream_sync(ons[r].stream));
    XT_OK(xcclGroupStart());
    for (int r = 0; r < 3; r++)
        XT_OK(xcclCommDestroy(comms[r]));
    XT_OK(xcclGroupEnd());
    for (int r = 0; r < 3; r++)
        device_free(&ons[r]);
}

#define MATRIX(name, call)                                                                         \
    XT_TEST_DEADLINE(name, 60)                                                                     \
    {                                                                                              \
        call;                                                                                      \
    }

MATRIX(device_messages_of_two_processes_differ, processes(2, "p2p", 1))
MATRIX(device_messages_of_three_processes_differ, processes(3, "p2p", 2))
MATRIX(device_messages_of_five_processes_differ, processes(5, "p2p", 3))
MATRIX(device_messages_through_pinned_memory_differ, processes(3, "pinned", 4))
MATRIX(device_messages_of_two_ranks_over_sockets_differ, processes(2, "net", 5))
MATRIX(device_messages_of_three_ranks_over_sockets_differ, processes(3, "net", 6))
MATRIX(device_messages_of_two_threads_differ, threads(2, 7))
MATRIX(device_messages_of_three_threads_differ, threads(3, 8))

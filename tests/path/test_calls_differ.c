/* SPDX-License-Identifier: BSD-3-Clause */
/* The matrix of calls that do not belong together: every class of pairs, drawn by a seed, over each
 * transport, with 2, 3 and 5 ranks, and over two hosts. One rank, the odd one, does something other
 * than the rest. All ranks have to fail in time, wherever they are, with one text that names two
 * calls and the ranks that made them, both as they were.
 *
 * Every case has a communicator of its own, split from one that stays whole.
 * XT_MISMATCH_RUNS: cases of each test, one of each class in turn. XT_MISMATCH_CLASS: one class.
 * XT_MISMATCH_AFTER: one way to go on after the pair (enum after). XT_MISMATCH_DELAY_MS: how late
 * ranks may begin. XT_MISMATCH_FIGURES: a file that gets a line for each case. */
#include <unistd.h>

#include "../collective/world.h"
#include "path_hosts.h"
#include "unlike.h"

#define ELEMS      110000 /* in a buffer, of 8 bytes each */
#define SEND_BYTES (4u << 20) /* more than links hold */
#define AT_ONCE_S  1.0 /* a mismatch is an error within so many seconds */
#define SEND_S     5.0 /* so is a send without a partner */
#define BUSY_S     4.0 /* longer, beside other programs */
#define FOLLOWING  3 /* right calls after the pair, until one fails */
#define DELAY_MS   3 /* by which ranks begin later, at most */
#define FEW        4 /* cases of a test by default */

enum after { AFTER_CALLS, AFTER_NOTHING, AFTER_LEAVING, AFTER_COUNT };

/* clang-format off */
enum class { /* the first ones: enum unlike */
    RECV_OR_COLLECTIVE = UNLIKE_COUNT,
    RECV_AND_RECV,
    RECV_RING,
    NOTHING_SENT,
    NOTHING_RECEIVED,
    OTHER_SIZE,
    SEND_OR_COLLECTIVE,
    COLLECTIVE_OR_CONNECT,
    COLLECTIVE_OR_SPLIT,
    RECV_OR_SPLIT,
    LEFT,
    CLASS_COUNT
};
/* clang-format on */

static const char *const class_names[CLASS_COUNT] = {"other_root",
                                                     "other_count",
                                                     "nothing_or_some",
                                                     "other_type",
                                                     "other_operator",
                                                     "other_collective",
                                                     "recv_or_collective",
                                                     "recv_and_recv",
                                                     "recv_ring",
                                                     "nothing_sent",
                                                     "nothing_received",
                                                     "other_size",
                                                     "send_or_collective",
                                                     "collective_or_connect",
                                                     "collective_or_split",
                                                     "recv_or_split",
                                                     "left"};

struct drawn {
    enum class class;
    struct act acts[UNLIKE_RANKS_MAX];
    enum after after;
    int odd, warm; /* warm: the calls were made before, rightly, so that all links are there */
    unsigned delay_us[UNLIKE_RANKS_MAX];
};

/* --- what there is to do --- */

static xcclResult_t perform(const struct act *act, xcclComm_t comm, char *in, char *out)
{
    xcclComm_t child = NULL;
    xcclResult_t rc;

    switch (act->kind) {
    case COLLECTIVE:
        return unlike_call(act, comm, in, out, NULL);
    case SEND:
        return xcclSend(in, act->count, act->type, act->peer, comm, NULL);
    case RECV:
        return xcclRecv(out, act->count, act->type, act->peer, comm, NULL);
    case CONNECT:
        return xcclCommConnectAll(comm);
    case SPLIT:
        rc = xcclCommSplit(comm, 0, 0, &child, NULL);
        if (!rc)
            XT_OK(xcclCommDestroy(child));
        return rc;
    default:
        return xcclSuccess;
    }
}

static struct act message(enum kind kind, size_t bytes, int peer)
{
    return (struct act){.kind = kind, .count = bytes, .type = xcclInt8, .peer = peer};
}

static void draw_collectives(struct drawn *drawn, uint64_t *random, int nranks)
{
    struct act even, odd;

    unlike_draw((enum unlike)drawn->class, random, nranks, &even, &odd);
    for (int i = 0; i < nranks; i++)
        drawn->acts[i] = i == drawn->odd ? odd : even;
}

/* A collective, but one that ends on some ranks without the odd one does for those. */
static void draw_others(struct drawn *drawn, uint64_t *random, int nranks, struct act odd)
{
    struct act even = draw_collective(random, nranks);

    while (is_rooted(even.coll))
        even = draw_collective(random, nranks);
    for (int i = 0; i < nranks; i++)
        drawn->acts[i] = i == drawn->odd ? odd : even;
}

/* Two ranks have a message, the others nothing to do but the calls that follow. */
static void draw_messages(struct drawn *drawn, uint64_t *random, int nranks)
{
    int peer = (drawn->odd + 1 + (int)(xt_random(random) % (unsigned)(nranks - 1))) % nranks;
    size_t bytes = draw_count(random, 1), sent = bytes, received = bytes;

    if (drawn->class == RECV_RING)
        for (int i = 0; i < nranks; i++)
            drawn->acts[i] = message(RECV, bytes, (i + 1) % nranks);
    if (drawn->class == RECV_RING)
        return;
    for (int i = 0; i < nranks; i++)
        drawn->acts[i] = (struct act){.kind = LEAVE}; /* nothing */
    if (drawn->class == NOTHING_SENT)
        sent = 0;
    if (drawn->class == NOTHING_RECEIVED)
        received = 0;
    if (drawn->class == OTHER_SIZE)
        sent += 1 + xt_random(random) % 20000;
    drawn->acts[drawn->odd] = message(drawn->class == RECV_AND_RECV ? RECV : SEND, sent, peer);
    drawn->acts[peer] = message(RECV, received, drawn->odd);
}

static unsigned delay_ms(void)
{
    const char *text = getenv("XT_MISMATCH_DELAY_MS");

    return text && atoi(text) > 0 ? (unsigned)atoi(text) : DELAY_MS;
}

static void draw(struct drawn *drawn, uint64_t *random, int nranks)
{
    int peer;

    drawn->odd = (int)(xt_random(random) % (unsigned)nranks);
    drawn->warm = (int)(xt_random(random) % 2);
    drawn->after = (enum after)(xt_random(random) % AFTER_COUNT);
    if (getenv("XT_MISMATCH_AFTER"))
        drawn->after = (enum after)atoi(getenv("XT_MISMATCH_AFTER"));
    for (int i = 0; i < nranks; i++)
        drawn->delay_us[i] = (unsigned)(xt_random(random) % (1000 * delay_ms()));
    peer = (drawn->odd + 1 + (int)(xt_random(random) % (unsigned)(nranks - 1))) % nranks;
    switch (drawn->class) {
    case RECV_OR_COLLECTIVE:
        draw_others(drawn, random, nranks, message(RECV, draw_count(random, 1), peer));
        break;
    case SEND_OR_COLLECTIVE:
        draw_others(drawn, random, nranks, message(SEND, SEND_BYTES, peer));
        break;
    case COLLECTIVE_OR_CONNECT:
        draw_others(drawn, random, nranks, (struct act){.kind = CONNECT});
        break;
    case COLLECTIVE_OR_SPLIT:
        draw_others(drawn, random, nranks, (struct act){.kind = SPLIT});
        break;
    case LEFT:
        draw_others(drawn, random, nranks, (struct act){.kind = LEAVE});
        break;
    case RECV_OR_SPLIT:
        for (int i = 0; i < nranks; i++)
            drawn->acts[i] = i == drawn->odd ? message(RECV, draw_count(random, 1), peer)
                                             : (struct act){.kind = SPLIT};
        break;
    default:
        if (drawn->class < RECV_OR_COLLECTIVE)
            draw_collectives(drawn, random, nranks);
        else
            draw_messages(drawn, random, nranks);
        break;
    }
}

/* --- one case --- */

static double bound_of(const struct drawn *drawn)
{
    double late_s = delay_ms() / 1000.0;

    return late_s + (drawn->class == SEND_OR_COLLECTIVE ? xt_bound(SEND_S, SEND_S + BUSY_S)
                                                        : xt_bound(AT_ONCE_S, AT_ONCE_S + BUSY_S));
}

/* Does what follows until the error is there, or for as long as it may take. */
static xcclResult_t follow(const struct drawn *drawn, xcclComm_t comm, struct outcome *outcome)
{
    double until = world_seconds() + bound_of(drawn);
    xcclResult_t rc = xcclSuccess;
    int data[4] = {0};

    for (int i = 0; drawn->after == AFTER_CALLS && i < FOLLOWING && !rc; i++)
        rc = xcclAllReduce(data, data, 4, xcclInt32, xcclSum, comm, NULL);
    outcome->was_in_call = rc != xcclSuccess;
    while (!rc && world_seconds() < until) {
        usleep(1000);
        XT_OK(xcclCommGetAsyncError(comm, &rc));
    }
    return rc;
}

/* Every rank makes the same calls, rightly, and sends to each other. */
static void warm_up(const struct drawn *drawn, xcclComm_t comm, int nranks, char *in, char *out)
{
    XT_OK(xcclGroupStart());
    for (int i = 0; i < nranks; i++) {
        XT_OK(xcclSend(in, 4, xcclInt8, i, comm, NULL));
        XT_OK(xcclRecv(out + 8 * i, 4, xcclInt8, i, comm, NULL));
    }
    XT_OK(xcclGroupEnd());
    for (int i = 0; i < nranks; i++)
        if (drawn->acts[i].kind == COLLECTIVE)
            XT_OK(unlike_call(&drawn->acts[i], comm, in, out, NULL));
}

static void run_case(const struct drawn *drawn, struct page *page, xcclComm_t comm, int rank,
                     int nranks, char *buffers)
{
    struct outcome *outcome = &page->outcomes[rank];
    char *in = buffers, *out = buffers + UNLIKE_RANKS_MAX * 8 * ELEMS;
    int leaves = drawn->after == AFTER_LEAVING && drawn->class < RECV_OR_COLLECTIVE;
    double began;

    if (drawn->warm)
        warm_up(drawn, comm, nranks, in, out);
    gate(page, rank, nranks);
    began = world_seconds();
    usleep(drawn->delay_us[rank]);
    outcome->text[0] = 0;
    outcome->was_in_call = 0;
    outcome->rc = perform(&drawn->acts[rank], comm, in, out);
    if (outcome->rc)
        outcome->was_in_call = 1;
    else if (!leaves && (drawn->class != LEFT || rank != drawn->odd))
        outcome->rc = follow(drawn, comm, outcome);
    outcome->seconds = world_seconds() - began;
    if (outcome->rc)
        snprintf(outcome->text, sizeof outcome->text, "%s", xcclGetLastError(comm));
    if (leaves && !outcome->rc) {
        outcome->rc = xcclCommDestroy(comm);
        if (outcome->rc)
            snprintf(outcome->text, sizeof outcome->text, "%s", xcclGetLastError(NULL));
        return;
    }
    (void)xcclCommDestroy(comm);
}

/* --- the verdict --- */

static const char *judge_one(const struct drawn *drawn, const struct outcome *outcome, int nranks)
{
    if (!outcome->rc)
        return "no error";
    if (outcome->seconds > bound_of(drawn))
        return "late";
    if (drawn->class == LEFT)
        return strstr(outcome->text, "has left") ? NULL : "it does not say who has left";
    if (outcome->rc != xcclInvalidUsage)
        return "another result";
    return unlike_text(drawn->acts, outcome->text, nranks);
}

static void show(const struct drawn *drawn, const struct page *page, int nranks, uint64_t seed,
                 int rank, const char *why)
{
    printf("FAIL %s over %s, %d ranks, case seed %#llx, after %d, warm %d: rank %d: %s\n",
           class_names[drawn->class], page->way ? page->way : "memory", nranks,
           (unsigned long long)seed, (int)drawn->after, drawn->warm, rank, why);
    unlike_show(page, drawn->acts, drawn->delay_us, nranks);
}

/* A line of XT_MISMATCH_FIGURES: class, kind of links, ranks, bad, the longest seconds from a
 * rank's call to its error, ranks with an error. */
static void note_figures(const struct drawn *drawn, const struct page *page, int nranks, int bad)
{
    const char *path = getenv("XT_MISMATCH_FIGURES");
    FILE *file = path ? fopen(path, "a") : NULL;
    double longest = 0;
    int errors = 0;

    if (!file)
        return;
    for (int i = 0; i < nranks; i++) {
        const struct outcome *outcome = &page->outcomes[i];

        errors += outcome->rc != xcclSuccess;
        if (outcome->rc && outcome->seconds > longest)
            longest = outcome->seconds;
    }
    fprintf(file, "%s\t%s\t%d\t%d\t%.3f\t%d\n", class_names[drawn->class],
            page->way ? page->way : "memory", nranks, bad, longest, errors);
    fclose(file);
}

/* All ranks fail. Of those that leave right after the pair one at least. */
static int judge(const struct drawn *drawn, const struct page *page, int nranks, uint64_t seed)
{
    int leaves = drawn->after == AFTER_LEAVING && drawn->class < RECV_OR_COLLECTIVE, errors = 0;

    for (int i = 0; i < nranks; i++) {
        const struct outcome *outcome = &page->outcomes[i];
        const char *why;

        errors += outcome->rc != xcclSuccess;
        if ((leaves && !outcome->rc) || (drawn->class == LEFT && i == drawn->odd))
            continue;
        why = judge_one(drawn, outcome, nranks);
        if (!why)
            continue;
        show(drawn, page, nranks, seed, i, why);
        return 1;
    }
    if (!errors)
        show(drawn, page, nranks, seed, -1, "no error on any rank");
    return !errors;
}

/* --- all cases of a test --- */

static enum class class_of(uint64_t number) {
    const char *only = getenv("XT_MISMATCH_CLASS");

    for (int i = 0; only && i < CLASS_COUNT;
         i++) if (!strcmp(only, class_names[i])) return (enum class)i;
    return (enum class)(number % CLASS_COUNT);
}

static void set_up(const struct page *page)
{
    xt_setenv("XCCL_TIMEOUT_S", "8");
    if (!page->way)
        return;
    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_NET_PLUGIN", page->way);
    xt_setenv("XCCL_OFI_PROVIDER", "tcp;ofi_rxm");
    xt_setenv("FI_OFI_RXM_BUFFER_SIZE", "2048"); /* else a connection takes 80 MiB */
    xt_setenv("FI_OFI_RXM_MSG_RX_SIZE", "64");
    xt_setenv("UCX_TLS", "tcp,self");
    if (strcmp(page->way, "socket") != 0)
        xt_allow_leaks("the library below the plugin keeps threads and memory");
}

static void run_cases(int rank, int nranks, void *arg)
{
    struct page *page = arg;
    char *buffers = calloc(2 * UNLIKE_RANKS_MAX, 8 * ELEMS);
    xcclComm_t whole = world_join(&page->world, rank, nranks);

    XT_CHECK(buffers);
    for (int i = 0; i < page->runs; i++) {
        uint64_t seed = page->seed + (uint64_t)i, random = seed;
        struct drawn drawn = {.class = class_of(seed ^ seed >> 32)};
        xcclComm_t comm = NULL;

        draw(&drawn, &random, nranks);
        XT_OK(xcclCommSplit(whole, 0, rank, &comm, NULL));
        run_case(&drawn, page, comm, rank, nranks, buffers);
        gate(page, rank, nranks);
        if (rank == 0) {
            int bad = judge(&drawn, page, nranks, seed);

            note_figures(&drawn, page, nranks, bad);
            page->failed += bad;
        }
        gate(page, rank, nranks);
    }
    XT_OK(xcclCommDestroy(whole));
    free(buffers);
}

static void run_process(int rank, int nranks, void *arg)
{
    set_up(arg);
    run_cases(rank, nranks, arg);
    if (rank == 0)
        XT_CHECK_INT(((struct page *)arg)->failed, 0);
}

static void processes(int nranks, const char *plugin, uint64_t number)
{
    char path[256];

    snprintf(path, sizeof path, "%s/lib/xccl/libxccl-net-%s.so", XT_BUILD_DIR,
             plugin ? plugin : "");
    if (plugin && access(path, R_OK) != 0)
        XT_SKIP("plugin %s was not built", plugin);
    if (plugin && XT_TSAN && strcmp(plugin, "socket") != 0)
        XT_SKIP("the library of plugin %s is not instrumented", plugin);
    xt_mp_run(nranks, run_process, page_create(plugin, number, FEW));
}

/* Ranks on two hosts, over sockets between these. Made before the ranks start. */
static struct path_hosts hosts;
static int alternates; /* 1: each rank is on the other host than the one before it */

static void run_on_host(int rank, int nranks, void *arg)
{
    path_hosts_enter(&hosts, alternates ? rank % 2 : rank > 1);
    xt_setenv("XCCL_TIMEOUT_S", "8");
    xt_setenv("XCCL_NET_PLUGIN", "socket");
    run_cases(rank, nranks, arg);
    if (rank == 0)
        XT_CHECK_INT(((struct page *)arg)->failed, 0);
}

static void on_two_hosts(int nranks, int alternating, uint64_t number)
{
    const struct path_rail rails[] = {{.host = 1}};

    path_hosts_make(&hosts, rails, 1);
    alternates = alternating;
    xt_mp_run(nranks, run_on_host, page_create("hosts", number, FEW));
    path_hosts_drop(&hosts);
}

static void threads(int nranks, uint64_t number)
{
    struct page *page = page_create(NULL, number, FEW);

    set_up(page);
    xt_threads_run(nranks, run_cases, page);
    XT_CHECK_INT(page->failed, 0);
}

#define MATRIX(name, call)                                                                         \
    XT_TEST_DEADLINE(name, 60)                                                                     \
    {                                                                                              \
        call;                                                                                      \
    }

MATRIX(calls_of_two_processes_differ, processes(2, NULL, 1))
MATRIX(calls_of_three_processes_differ, processes(3, NULL, 2))
MATRIX(calls_of_five_processes_differ, processes(5, NULL, 3))
MATRIX(calls_of_two_threads_differ, threads(2, 4))
MATRIX(calls_of_three_threads_differ, threads(3, 5))
MATRIX(calls_of_five_threads_differ, threads(5, 6))
MATRIX(calls_of_two_ranks_over_sockets_differ, processes(2, "socket", 7))
MATRIX(calls_of_three_ranks_over_sockets_differ, processes(3, "socket", 8))
MATRIX(calls_of_five_ranks_over_sockets_differ, processes(5, "socket", 9))
MATRIX(calls_of_two_ranks_over_libfabric_differ, processes(2, "ofi", 10))
MATRIX(calls_of_three_ranks_over_libfabric_differ, processes(3, "ofi", 11))
MATRIX(calls_of_two_ranks_over_ucx_differ, processes(2, "ucx", 12))
MATRIX(calls_of_three_ranks_over_ucx_differ, processes(3, "ucx", 13))
MATRIX(calls_of_four_ranks_on_two_hosts_differ, on_two_hosts(4, 0, 14))
MATRIX(calls_of_five_ranks_on_two_hosts_differ, on_two_hosts(5, 0, 15))
MATRIX(calls_of_five_ranks_on_alternating_hosts_differ, on_two_hosts(5, 1, 16))

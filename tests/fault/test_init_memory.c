/* SPDX-License-Identifier: BSD-3-Clause */
/* Joining, the first call and leaving, with each chance to fail taken in turn: on one rank, one
 * allocation or system call fails, once. That rank gets over it or returns an error with a text;
 * the others soon end too; nothing is left behind in any of them. The program holds the library's
 * stages itself, because libxccl.so does not show core/base/inject.h; chances inside a plugin are
 * not reached.
 *
 * A round is one chance; many rounds share the rank processes, and a few cold ones have their own,
 * where what a process does only once may fail too. A sample is drawn with the seed; XT_ALL=1 tries
 * all. With two ranks a process one thread joins as both in a group. Thread: one in each process,
 * and the library's. */
#include "../collective/world.h"

#include "base/alloc.h"
#include "base/inject.h"

#ifdef XCCL_SANITIZED
#define SOON_S 4.0
#else
#define SOON_S xt_bound(2, 4)
#endif
#define RANKS_MAX  3
#define OWN_MAX    2 /* ranks of one process */
#define TEXT_BYTES 512
#define WHY_BYTES  800 /* of a failure text */
#define COUNT      2000
/* The library's deadlines are 5 s: a round that needs them is late, one beyond them hangs. */
#define LATE_S xt_bound(8, 12)
#define LOST_S 1.0

/* How one process's part of a round ended. */
struct outcome {
    xcclResult_t rc;
    const char *stage; /* of the error; a constant, and all ranks have the same program */
    double seconds; /* until everything was given back */
    double lost; /* in which the machine stood still */
    int leaked;
    char text[TEXT_BYTES];
};

/* Between the processes; written by the rank concerned, read by all after the next meeting. */
struct rounds {
    struct world world;
    int victim, own; /* a process; ranks of each process */
    uint64_t first, step; /* k of the first round, and from one to the next; step 0: one round */
    xcclUniqueId id;
    _Atomic int
        id_state; /* round * 2 + 1: rank 0 has put the id of that round; + 2: there is none */
    uint64_t chances; /* of the victim, in the last round */
    int rounds;
    struct outcome outcomes[RANKS_MAX];
};

struct belongings {
    int threads, fds;
    uint64_t blocks;
};

static struct belongings belongings_now(void)
{
    struct belongings now;

    /* Threads first: one that was still ending may hold the rest. */
    now.threads = xt_entries("/proc/self/task");
    now.fds = xt_entries("/proc/self/fd");
    now.blocks = xccl_alloc_live();
    return now;
}

/* Until no more is held than before; 0 when the time is over. */
static int gave_all_back(const struct belongings *before, double until)
{
    for (;;) {
        struct belongings now = belongings_now();

        if (now.threads <= before->threads && now.fds <= before->fds &&
            now.blocks <= before->blocks)
            return 1;
        if (world_seconds() > until) {
            printf("left behind: %d threads, %d descriptors, %lld blocks\n",
                   now.threads - before->threads, now.fds - before->fds,
                   (long long)(now.blocks - before->blocks));
            return 0;
        }
        sched_yield();
    }
}

static int check(struct outcome *outcome, xcclResult_t rc, const char *stage, xcclComm_t comm)
{
    if (!rc || outcome->rc)
        return !rc;
    outcome->rc = rc;
    outcome->stage = stage;
    snprintf(outcome->text, sizeof outcome->text, "%s", xcclGetLastError(comm));
    return 0;
}

/* Rank 0 makes the round's id; the others get it. 0: there is none. */
static int share_id(struct rounds *rounds, int rank, int round, struct outcome *outcome)
{
    int state;

    if (rank == 0) {
        int made = check(outcome, xcclGetUniqueId(&rounds->id), "id", NULL);

        /* Release: the id before the state. Pairs with the load below. */
        atomic_store_explicit(&rounds->id_state, round * 2 + (made ? 1 : 2), memory_order_release);
        return made;
    }
    while ((state = atomic_load_explicit(&rounds->id_state, memory_order_acquire)) <= round * 2)
        sched_yield();
    return state == round * 2 + 1;
}

static void join(const struct rounds *rounds, int process, int nprocs, xcclComm_t *comms,
                 struct outcome *outcome)
{
    int own = rounds->own;

    if (own == 1) {
        (void)check(outcome, xcclCommInitRank(comms, nprocs, rounds->id, process), "init", NULL);
        return;
    }
    XT_OK(xcclGroupStart());
    for (int i = 0; i < own; i++)
        (void)check(outcome,
                    xcclCommInitRank(&comms[i], nprocs * own, rounds->id, process * own + i),
                    "note", NULL);
    (void)check(outcome, xcclGroupEnd(), "init", NULL);
}

static void call(const struct rounds *rounds, int process, int nprocs, xcclComm_t *comms,
                 struct outcome *outcome)
{
    static int data[OWN_MAX][COUNT];
    int own = rounds->own, nranks = nprocs * own;

    XT_OK(xcclGroupStart());
    for (int r = 0; r < own; r++) {
        for (int i = 0; i < COUNT; i++)
            data[r][i] = i + process * own + r;
        (void)check(outcome,
                    xcclAllReduce(data[r], data[r], COUNT, xcclInt32, xcclSum, comms[r], NULL),
                    "note", NULL);
    }
    if (!check(outcome, xcclGroupEnd(), "call", NULL))
        return;
    for (int r = 0; r < own; r++)
        for (int i = 0; i < COUNT; i++)
            XT_CHECK_INT(data[r][i], nranks * i + nranks * (nranks - 1) / 2);
}

static void join_call_leave(struct rounds *rounds, int process, int nprocs, struct outcome *outcome)
{
    xcclComm_t comms[OWN_MAX] = {NULL};

    join(rounds, process, nprocs, comms, outcome);
    for (int i = 0; i < rounds->own; i++)
        XT_CHECK((comms[i] == NULL) == (outcome->rc != xcclSuccess));
    if (!outcome->rc)
        call(rounds, process, nprocs, comms, outcome);
    for (int i = 0; i < rounds->own; i++)
        (void)check(outcome, xcclCommDestroy(comms[i]), "destroy", NULL);
}

static void play_round(struct rounds *rounds, int rank, int nranks, int round, uint64_t k)
{
    struct outcome *outcome = &rounds->outcomes[rank];
    struct belongings before = belongings_now();
    double start = world_seconds(), lost = xt_lost_seconds();

    *outcome = (struct outcome){0};
    xccl_inject_arm(rank == rounds->victim ? k : 0);
    if (share_id(rounds, rank, round, outcome))
        join_call_leave(rounds, rank, nranks, outcome);
    if (rank == rounds->victim)
        rounds->chances = xccl_inject_chances();
    xccl_inject_arm(0);
    /* In the first round a process gets things that it keeps; the harness sees those in the end. */
    if (round > 0)
        outcome->leaked = !gave_all_back(&before, start + LATE_S);
    outcome->seconds = world_seconds() - start;
    outcome->lost = xt_lost_seconds() - lost;
}

/* 1 when the text names a rank of the process. */
static int names_process(const struct rounds *rounds, const char *text, int process)
{
    for (int i = 0; i < rounds->own; i++) {
        char name[16];

        snprintf(name, sizeof name, "rank %d", process * rounds->own + i);
        if (strstr(text, name))
            return 1;
    }
    return 0;
}

/* What is not as it should be in this round; NULL: nothing. */
static const char *judge(const struct rounds *rounds, int rank, uint64_t k)
{
    const struct outcome *outcome = &rounds->outcomes[rank];
    const struct outcome *victim = &rounds->outcomes[rounds->victim];

    if (outcome->leaked)
        return "something is left behind";
    if (outcome->seconds > LATE_S)
        return "it hung";
    /* The library's deadlines go on while the machine stands still; what they end says nothing. */
    if (outcome->lost > LOST_S || victim->lost > LOST_S)
        return NULL;
    if (outcome->rc && (k == UINT64_MAX || k > rounds->chances))
        return "nothing failed, but it got an error";
    if (outcome->rc && strlen(outcome->text) < 10)
        return "the error says nothing";
    if (outcome->seconds > SOON_S)
        return "it was late";
    /* What happens in its service thread looks different from everywhere. */
    if (outcome->rc && rank != rounds->victim && strncmp(victim->text, "cannot ", 7) == 0 &&
        !names_process(rounds, outcome->text, rounds->victim))
        return "the error does not name the rank that failed";
    return NULL;
}

/* The outcomes of a round in which that of `rank` is bad, each cut to what all have room for. */
static void tell_round(const struct rounds *rounds, int nranks, uint64_t k, int rank,
                       const char *why, char text[WHY_BYTES])
{
    int used = snprintf(text, WHY_BYTES, "chance %lld of rank %d: rank %d: %s", (long long)k,
                        rounds->victim, rank, why);

    for (int i = 0; i < nranks && used < WHY_BYTES; i++) {
        const struct outcome *outcome = &rounds->outcomes[i];

        used += snprintf(text + used, (size_t)(WHY_BYTES - used), "; rank %d, %.2f s: %s: %.*s", i,
                         outcome->seconds, outcome->rc ? outcome->stage : "fine",
                         WHY_BYTES / RANKS_MAX - 80, outcome->text);
    }
}

static void rank_main(int rank, int nranks, void *arg)
{
    struct rounds *rounds = arg;
    char text[WHY_BYTES], first[WHY_BYTES] = "";
    uint64_t k = rounds->first;
    int met = 0, bad = 0;

    /* A round without a failure first, unless the round is to be a cold one. */
    for (int round = rounds->step ? -1 : 0;; round++) {
        uint64_t now = round < 0 ? UINT64_MAX : k;

        play_round(rounds, rank, nranks, round + 1, now);
        world_meet(&rounds->world, met += nranks);
        for (int i = 0; i < nranks; i++) {
            const char *why = judge(rounds, i, now);

            if (!why)
                continue;
            tell_round(rounds, nranks, now, i, why, bad ? text : first);
            if (rank == 0 && bad < 40)
                printf("%s\n", bad ? text : first);
            bad++;
        }
        if (rank == 0)
            rounds->rounds++;
        k += round < 0 ? 0 : rounds->step;
        if (!rounds->step || (round >= 0 && now > rounds->chances))
            break;
        world_meet(&rounds->world, met += nranks); /* all have read the outcomes */
    }
    if (bad)
        XT_FAIL("%d outcomes were not as they should be; %s", bad, first);
}

static struct rounds *rounds_create(int victim, int own, uint64_t first, uint64_t step)
{
    struct rounds *rounds = mmap(NULL, sizeof *rounds, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    XT_CHECK(rounds != MAP_FAILED);
    rounds->victim = victim;
    rounds->own = own;
    rounds->first = first;
    rounds->step = step;
    return rounds;
}

/* About `samples` of the chances that process victim of nprocs has, and a quarter as many in cold
 * processes. */
static void fail_each_of(int nprocs, int own, int victim, uint64_t samples)
{
    struct rounds *rounds = rounds_create(victim, own, UINT64_MAX, 0);
    uint64_t seed = xt_seed(), step, chances;

    xt_set_error_source(world_error);
    xt_set_alloc_source(xccl_alloc_live);
    xt_setenv("XCCL_TIMEOUT_INIT_S", "5");
    xt_setenv("XCCL_TIMEOUT_S", "5");
    xt_setenv("XCCL_PLUGIN_PATH", XT_BUILD_DIR "/lib/xccl");
    xt_mp_run(nprocs, rank_main, rounds);
    chances = rounds->chances;
    step = getenv("XT_ALL") || chances <= samples ? 1 : chances / samples;
    munmap(rounds, sizeof *rounds);
    rounds = rounds_create(victim, own, 1 + xt_random(&seed) % step, step);
    xt_mp_run(nprocs, rank_main, rounds);
    printf("process %d of %d: %d rounds, %llu chances in a cold process\n", victim, nprocs,
           rounds->rounds, (unsigned long long)chances);
    munmap(rounds, sizeof *rounds);
    for (uint64_t i = 0; i < (step == 1 ? chances : samples / 4); i++) {
        rounds = rounds_create(victim, own, step == 1 ? i + 1 : 1 + xt_random(&seed) % chances, 0);
        xt_mp_run(nprocs, rank_main, rounds);
        munmap(rounds, sizeof *rounds);
    }
}

static void fail_each(int nranks, int victim, uint64_t samples)
{
    fail_each_of(nranks, 1, victim, samples);
}

XT_TEST_DEADLINE(one_rank_gets_over_or_reports_each_failure, 60)
{
    fail_each(1, 0, 100);
}

XT_TEST_DEADLINE(two_ranks_over_shared_memory_when_rank_0_meets_a_failure, 60)
{
    fail_each(2, 0, 16);
}

XT_TEST_DEADLINE(two_ranks_over_shared_memory_when_rank_1_meets_a_failure, 60)
{
    fail_each(2, 1, 16);
}

XT_TEST_DEADLINE(two_ranks_over_tcp_when_rank_0_meets_a_failure, 60)
{
    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_SOCKET_UNIX", "0");
    fail_each(2, 0, 16);
}

XT_TEST_DEADLINE(two_ranks_over_tcp_when_rank_1_meets_a_failure, 60)
{
    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_SOCKET_UNIX", "0");
    fail_each(2, 1, 16);
}

XT_TEST_DEADLINE(three_ranks_over_unix_sockets_when_rank_0_meets_a_failure, 60)
{
    xt_setenv("XCCL_SHM_DISABLE", "1");
    fail_each(3, 0, 10);
}

XT_TEST_DEADLINE(three_ranks_over_unix_sockets_when_rank_1_meets_a_failure, 60)
{
    xt_setenv("XCCL_SHM_DISABLE", "1");
    fail_each(3, 1, 10);
}

XT_TEST_DEADLINE(two_threads_with_two_ranks_each_when_the_first_meets_a_failure, 60)
{
    fail_each_of(2, 2, 0, 12);
}

XT_TEST_DEADLINE(two_threads_with_two_ranks_each_when_the_second_meets_a_failure, 60)
{
    fail_each_of(2, 2, 1, 12);
}

XT_TEST_DEADLINE(two_threads_with_two_ranks_each_over_sockets_when_the_second_meets_a_failure, 60)
{
    xt_setenv("XCCL_SHM_DISABLE", "1");
    fail_each_of(2, 2, 1, 8);
}

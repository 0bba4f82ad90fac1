/* SPDX-License-Identifier: BSD-3-Clause */
/* The campaign: random programs of checked calls (campaign.h), and in each one a random fault of
 * one rank, or of two, at a random time. Judged by themselves (campaign_judge.c): no element may be
 * wrong, no rank may hang past the deadline, and where a fault ends the job every other rank gets
 * an error, in time, that names who it was, leaves nothing behind, and destroys its communicators
 * at once. A fault that a job must get over is no error anywhere.
 *
 * Each round has a seed, which draws ranks, transport, program, fault, victim and time, and which
 * the text of a failure has. XT_ROUND=SEED plays that round alone; only the machine's load is not
 * drawn. XT_SEED draws the same rounds again; their faults come in turn. XT_ROUNDS: how many.
 * XT_FIRST: number of the first one, to go on where an earlier run has ended. XT_PART=K/N: one
 * round of N, from number K on. XT_SECONDS: no round begins later. XT_FAULT, XT_TRANSPORT: one for
 * all of them, by the names in campaign_round.c. XT_LOSS_MS: how long packets are lost. XT_KNOWN=1:
 * also what is known to be wrong. XT_FIGURES:
 * a file that gets a line for each round, of which ci/campaign_table.py makes a table.
 *
 * Thread: one in each rank, and the library's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "campaign_deed.h"
#include "campaign_judge.h"

#define ROUNDS    (XT_SANITIZED ? 6 : 20)
#define HANG_S    25 /* in one step: more than any deadline in a job */
#define JOINED_S  20
#define TRIES_MAX 20000
#define SETTLE_MS 2000 /* at most, that a rank with an error waits for the others' errors */

/* ---- a rank ---- */

static void note_odd(struct player *player)
{
    struct stage *stage = player->arg;

    stage->odd_leaves_message = player->odd_leaves_message;
    atomic_store_explicit(&stage->deeds[0].struck_ns, stage_now_ns(), memory_order_release);
}

static void keep_end(struct stage *stage, struct player *player, xcclResult_t rc)
{
    int rank = player->rank;

    stage->ranks[rank].rc = (int)rc;
    stage->ranks[rank].failed_in = player->failed_in;
    memcpy(stage->ranks[rank].text, player->text, sizeof(player->text));
    stage->ranks[rank].ended_ns = stage_now_ns();
    /* Release: all of it before the word. Pairs with the director's and the others' loads. */
    atomic_store_explicit(&stage->ranks[rank].over, 1, memory_order_release);
    atomic_fetch_add_explicit(&stage->over, 1, memory_order_release);
}

static void play(struct stage *stage, struct player *player)
{
    int rank = player->rank;
    xcclResult_t rc = xcclSuccess;

    for (uint32_t step = 0; step < stage->round.steps && !rc; step++) {
        if (deed_strike(stage, player)) {
            stage->ranks[rank].aborted = 1;
            break;
        }
        rc = player_step(player, step);
        atomic_store_explicit(&stage->ranks[rank].steps, step, memory_order_relaxed);
        stage->ranks[rank].wrong = player->wrong;
    }
    keep_end(stage, player, rc);
}

static xcclResult_t join_second(struct stage *stage, struct player *player)
{
    xcclConfig_t config = XCCL_CONFIG_INITIALIZER;
    xcclUniqueId id = world_id(&stage->world, player->rank, 1);
    xcclResult_t rc;

    config.blocking = 0;
    rc = xcclCommInitRankConfig(&player->second, player->nranks, id, player->rank, &config);
    return player_await(player, player->second, rc);
}

static xcclResult_t join(struct stage *stage, struct player *player)
{
    xcclUniqueId id = world_id(&stage->world, player->rank, 0);
    xcclResult_t rc = xcclCommInitRank(&player->comm, player->nranks, id, player->rank);

    if (!rc && stage->round.has_second)
        rc = join_second(stage, player);
    if (rc)
        snprintf(player->text, sizeof(player->text), "joining: %s", xcclGetLastError(NULL));
    return rc;
}

/* A rank that left at once would be what others see of a fault that hits a whole process. */
static void settle(const struct stage *stage)
{
    int out = 0;

    for (int i = 0; i < stage->round.deed_count; i++) {
        if (!deed_hits_process(&stage->round.deeds[i]))
            return;
        out += deed_ends_process(&stage->round.deeds[i]);
    }
    for (int ms = 0; ms < SETTLE_MS; ms++) {
        if (atomic_load_explicit(&stage->over, memory_order_acquire) + out >= stage->round.nranks)
            return;
        stage_nap_ms(1);
    }
}

static void destroy(struct stage *stage, struct player *player)
{
    xcclComm_t const comms[] = {player->child, player->second, player->comm};
    double *longest_s = &stage->ranks[player->rank].destroy_s;

    for (int i = 0; i < 3; i++) {
        double begin_s = xt_seconds(), took_s;

        (void)xcclCommDestroy(comms[i]);
        took_s = xt_seconds() - begin_s;
        *longest_s = took_s > *longest_s ? took_s : *longest_s;
    }
}

static void live(struct stage *stage, struct player *player)
{
    xcclResult_t rc = join(stage, player);

    atomic_fetch_add_explicit(&stage->joined, 1, memory_order_release);
    if (rc)
        keep_end(stage, player, rc);
    else
        play(stage, player);
    if (stage->ranks[player->rank].rc)
        settle(stage);
    destroy(stage, player);
}

static void player_run(int rank, int nranks, void *arg)
{
    struct stage *stage = arg;
    struct player player = {.seed = stage->round.seed,
                            .rank = rank,
                            .nranks = nranks,
                            .on_device = stage->round.transport == DEVICE,
                            .odd = ODDS,
                            .before_odd = note_odd,
                            .arg = stage};

    stage->ranks[rank].pid = (int)getpid();
    player_open(&player);
    live(stage, &player);
    player_close(&player);
}

/* Looks for what a rank has left, beside what the harness looks at. */
static void look_for_leaks(struct stage *stage, int rank, int fds)
{
    enum transport transport = stage->round.transport;
    int keeps = transport == OFI || transport == UCX || transport == DEVICE;
    int threads = xt_threads_left("xccl", 0), more = xt_entries("/proc/self/fd") - fds;

    if (threads || (more > 0 && !keeps))
        snprintf(stage->ranks[rank].leaks, sizeof(stage->ranks[rank].leaks),
                 "%d threads, %d descriptors", threads, more);
}

static void process_run(int rank, int nranks, void *arg)
{
    struct stage *stage = arg;
    int fds = xt_entries("/proc/self/fd");

    deed_prepare(stage, rank);
    if (stage->round.transport == THREADS)
        xt_threads_run(stage->round.nranks, player_run, stage);
    else
        player_run(rank, nranks, stage);
    look_for_leaks(stage, rank, fds);
}

/* ---- the director ---- */

static int has_ended(const struct stage *stage, struct xt_mp *mp, int rank)
{
    return deed_is_gone(xt_mp_pid(mp, deed_process(&stage->round, rank)));
}

/* 1: the rank has ended. 0: it hangs in a step, or after its program. */
static int await(const struct stage *stage, struct xt_mp *mp, int rank)
{
    uint32_t step = UINT32_MAX;
    double until = 0;

    while (!has_ended(stage, mp, rank)) {
        uint32_t now = stage_steps(stage, rank);

        if (now != step)
            until = xt_seconds() + HANG_S;
        if (xt_seconds() > until)
            return 0;
        step = now;
        stage_nap_ms(2);
    }
    return 1;
}

static int is_stopped(const struct round *round, int rank)
{
    for (int i = 0; i < round->deed_count; i++)
        if (round->deeds[i].fault == STOP && round->deeds[i].victim == rank)
            return 1;
    return 0;
}

/* Waits for all ranks, kills those that hang, and stopped victims last. Gives how many hang. */
static int await_all(struct stage *stage, struct xt_mp *mp)
{
    int hangs = 0;

    for (int r = 0; r < stage->round.nranks; r++) {
        if (is_stopped(&stage->round, r) || await(stage, mp, r))
            continue;
        hangs++;
        xt_mp_kill(mp, deed_process(&stage->round, r), SIGKILL);
    }
    for (int r = 0; r < stage->round.nranks; r++)
        if (is_stopped(&stage->round, r))
            xt_mp_kill(mp, r, SIGKILL);
    return hangs;
}

static void play_round(uint64_t seed, struct path_hosts *hosts)
{
    struct stage *stage = mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int statuses[CAMPAIGN_RANKS_MAX] = {0}, hangs;
    double until = xt_seconds() + JOINED_S;
    struct xt_mp *mp;

    XT_CHECK(stage != MAP_FAILED);
    stage->round = round_draw(seed);
    stage->hosts = hosts;
    if (stage->round.has_hosts && hosts->host_count == 0)
        deed_hosts_make(hosts);
    mp = xt_mp_start(stage->round.transport == THREADS ? 1 : stage->round.nranks, process_run,
                     stage);
    /* Acquire: pairs with the ranks' release. */
    while (atomic_load_explicit(&stage->joined, memory_order_acquire) < stage->round.nranks &&
           xt_seconds() < until)
        stage_nap_ms(1);
    deeds_direct(stage, mp);
    hangs = await_all(stage, mp);
    xt_mp_wait(mp, statuses);
    if (stage->round.has_hosts)
        deed_hosts_mend(hosts);
    judge_round(stage, hangs, statuses);
    munmap(stage, sizeof(*stage));
}

/* ---- many rounds ---- */

static long number_of(const char *setting, long otherwise)
{
    const char *text = getenv(setting);

    return text ? atol(text) : otherwise;
}

/* Whether a round is one of those that are asked for: by default of the fault whose turn it is. */
static int is_wanted(const struct round *round, enum fault turn)
{
    const char *fault = getenv("XT_FAULT"), *transport = getenv("XT_TRANSPORT");

    if (transport && strcmp(transport, transport_names[round->transport]) != 0)
        return 0;
    if (fault)
        return strcmp(fault, fault_kinds[round->fault].name) == 0;
    return transport || round->fault == turn;
}

/* The seed of round number i: the faults come in turn, each with a seed that draws it. */
static uint64_t seed_of(long i)
{
    uint64_t dice = xt_seed() ^ (uint64_t)i * 0x9e3779b97f4a7c15ull, seed = 0;
    enum fault turn = (enum fault)((xt_seed() + (uint64_t)i) % FAULTS);

    for (int tries = 0; tries < TRIES_MAX; tries++) {
        struct round round;

        seed = xt_random(&dice);
        round = round_draw(seed);
        if (is_wanted(&round, turn))
            return seed;
    }
    if (getenv("XT_FAULT") || getenv("XT_TRANSPORT"))
        XT_FAIL("no round has that fault over that transport");
    return seed; /* a fault that cannot be done here */
}

static void play_many(struct path_hosts *hosts)
{
    const char *part = getenv("XT_PART");
    long first = number_of("XT_FIRST", 0), end = first + number_of("XT_ROUNDS", ROUNDS);
    long seconds = number_of("XT_SECONDS", 0), by = 1, i;
    double until = xt_seconds() + (double)seconds;

    if (part) {
        XT_CHECK_INT(sscanf(part, "%ld/%ld", &i, &by), 2);
        first += i;
    }
    for (i = first; i < end && (!seconds || xt_seconds() < until); i += by)
        play_round(seed_of(i), hosts);
    printf("went on to XT_FIRST=%ld of XT_SEED=%#llx\n", i, (unsigned long long)xt_seed());
}

XT_TEST_DEADLINE(random_faults_in_random_programs_are_no_error_or_the_right_one, 240)
{
    const char *round = getenv("XT_ROUND");
    struct path_hosts hosts = {.host_count = 0};

    xt_setenv("XCCL_TIMEOUT_S", "10");
    xt_setenv("XCCL_TIMEOUT_INIT_S", "30"); /* libfabric takes 10 s where the load is 20 */
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xt_setenv("XCCL_PLUGIN_PATH", XT_BUILD_DIR "/lib/xccl");
    if (round)
        play_round(strtoull(round, NULL, 0), &hosts);
    else
        play_many(&hosts);
    if (hosts.host_count)
        path_hosts_drop(&hosts);
    judge_end();
}

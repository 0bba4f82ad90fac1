/* SPDX-License-Identifier: BSD-3-Clause */
/* The whole bootstrap in one thread, on a simulated network, many seeds each. What must hold: with
 * all ranks well, everybody joins and all data is right, whatever the network does; with one rank
 * hurt, everybody else ends in bounded time with an error that names it. Nothing is left behind.
 *
 * A failure prints how to run that world alone; README.md tells more. */
#include "sim_job.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "xt.h"

#define MIXED_RANKS_MAX 33
#define HOUR_NS         (3600 * XCCL_NS_PER_S)
/* How long after the first error the last rank may take to end, with network and all. */
#define TOLD_NS (10 * XCCL_NS_PER_S)
/* How long it may take where no packet is late, 0.3 s at the door included. */
#define SOON_NS (2 * XCCL_NS_PER_S)
/* How long after a rank fell silent the others may take to end. */
#define SILENT_NS (5 * XCCL_NS_PER_S)

static uint64_t dice;

static int throw_between(int low, int high)
{
    return low + (int)(xt_random(&dice) % (uint64_t)(high - low + 1));
}

static void report(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Figures of large worlds, for people: to the file that XT_SIM_REPORT names. */
static void report(const char *fmt, ...)
{
    const char *path = getenv("XT_SIM_REPORT");
    FILE *file = path ? fopen(path, "ae") : NULL;
    va_list args;

    va_start(args, fmt);
    vfprintf(file ? file : stdout, fmt, args);
    va_end(args);
    if (file)
        fclose(file);
}

static void use_sim(void)
{
    xt_set_alloc_source(xccl_alloc_live);
    xt_set_error_source(xccl_error_text);
}

/* 1: what is said arrives within the 0.3 to 0.5 s that a failed rank and a root leave the others.
 * Where packets take longer, a rank may find only that another has gone. */
static int no_late_packets;
/* A while in which much can happen in this world, and how much of it goes by with starting. */
static uint64_t moments_ns, settled_ns;

/* A world of ranks, their ids made on the hosts after theirs, or by the first ranks themselves. */
static void begin(uint64_t seed, int nranks, int id_count, int extras)
{
    struct sim_world_settings settings = sim_world_draw(seed, nranks);
    int on_ranks = extras == 0;

    dice = seed ^ 0x5eed;
    if (no_late_packets) {
        settings.net.late_per_mille = settings.net.slow_per_mille = 0;
        if (settings.net.delay_max_ns > 20 * XCCL_NS_PER_MS)
            settings.net.delay_max_ns = 20 * XCCL_NS_PER_MS;
    }
    settled_ns = settings.start_max_ns;
    moments_ns = settled_ns + 60 * settings.net.delay_max_ns;
    settings.extras = extras + (on_ranks ? 0 : id_count);
    settings.run = sim_job_run;
    sim_job_reset(seed, nranks);
    sim_job.no_splits = no_late_packets;
    sim_world_begin(&settings);
    sim_job_make_ids(id_count, on_ranks ? 0 : nranks + extras);
    sim_note("%d ids made by %s; ", id_count, on_ranks ? "ranks" : "others");
}

static void check_all_well(void)
{
    for (int i = 0; i < sim_job.nranks; i++) {
        const struct sim_rank *rank = sim_world_rank(i);

        if (rank->rc)
            sim_fail("rank %d of %d failed: %s", i, sim_job.nranks, rank->text);
    }
}

static void run_well(void)
{
    sim_world_start_all();
    sim_world_run(HOUR_NS);
    check_all_well();
    sim_world_end();
}

/* --- nobody is hurt --- */

static void join_only(uint64_t seed)
{
    begin(seed, 2 + (int)(seed % (MIXED_RANKS_MAX - 1)), 1, (int)(seed >> 32 & 1));
    sim_job.rest_ns = 90 * XCCL_NS_PER_S;
    run_well();
}

XT_TEST_DEADLINE(ranks_join_whatever_the_network_does, 60)
{
    use_sim();
    sim_seeds("ranks_join_whatever_the_network_does", 150, join_only);
}

static void all_operations(uint64_t seed)
{
    begin(seed, 1 + (int)(seed % 17), 1, (int)(seed >> 32 & 1));
    sim_job.op_count = 12;
    sim_job.rest_ns = (seed >> 33 & 3) ? 0 : 90 * XCCL_NS_PER_S;
    run_well();
}

XT_TEST_DEADLINE(every_operation_carries_the_right_data, 60)
{
    use_sim();
    sim_seeds("every_operation_carries_the_right_data", 100, all_operations);
}

/* Every connection is closed as soon as its message is out, so the next message to the same rank
 * goes over another one; and packets come late. */
static void short_of_descriptors(uint64_t seed)
{
    struct sim_world_settings settings = sim_world_draw(seed, 3 + (int)(seed % 10));

    settings.run = sim_job_run;
    settings.net.late_per_mille = 100;
    sim_job_reset(seed, settings.nranks);
    sim_world_begin(&settings);
    sim_job_make_ids(1, 0);
    sim_job.op_count = 10;
    run_well();
}

XT_TEST_DEADLINE(messages_keep_their_order_over_short_lived_connections, 60)
{
    use_sim();
    sim_descriptor_limit = 40; /* an eighth of it may rest open */
    sim_seeds("messages_keep_their_order_over_short_lived_connections", 60, short_of_descriptors);
}

static void several_roots(uint64_t seed)
{
    int nranks = 2 + (int)(seed % (MIXED_RANKS_MAX - 1));

    dice = seed;
    begin(seed, nranks, throw_between(2, nranks), (int)(seed >> 32 & 1));
    sim_job.op_count = 3;
    run_well();
}

XT_TEST_DEADLINE(ranks_with_several_roots_form_one_communicator, 60)
{
    use_sim();
    sim_seeds("ranks_with_several_roots_form_one_communicator", 80, several_roots);
}

/* Rank 0 listens at a known address, and may come last. */
static void known_address(uint64_t seed)
{
    struct sim_world_settings settings = sim_world_draw(seed, 2 + (int)(seed % 15));

    settings.run = sim_job_run;
    sim_job_reset(seed, settings.nranks);
    sim_world_begin(&settings);
    if (xccl_unique_id_at("10.0.0.1:4000", "salt", &sim_job.ids[0]))
        sim_fail("no id for an address: %s", xccl_error_text());
    sim_job.id_count = 1;
    sim_job.op_count = 2;
    run_well();
}

XT_TEST_DEADLINE(ranks_wait_for_rank_0_at_a_known_address, 60)
{
    use_sim();
    sim_seeds("ranks_wait_for_rank_0_at_a_known_address", 60, known_address);
}

static void many_ranks(uint64_t seed)
{
    const char *ranks = getenv("XT_SIM_RANKS");
    int nranks = ranks ? atoi(ranks) : 1000;
    struct sim_world_settings settings = sim_world_draw(seed, nranks);

    settings.extras = 1;
    settings.run = sim_job_run;
    settings.net.split_per_mille = 50;
    settings.net.slow_per_mille = 0;
    /* A proof takes under a second, even when both its packets are lost once. */
    if (settings.net.delay_max_ns > 20 * XCCL_NS_PER_MS)
        settings.net.delay_max_ns = 20 * XCCL_NS_PER_MS;
    settings.start_max_ns = 100 * XCCL_NS_PER_MS; /* as a launcher starts them */
    sim_job_reset(seed, nranks);
    sim_world_begin(&settings);
    sim_job_make_ids(1, nranks);
    sim_job.op_count = 3;
    sim_job.rest_ns = 90 * XCCL_NS_PER_S;
    sim_world_start_all();
    sim_world_run(HOUR_NS);
    check_all_well();
    report("%d ranks: %.3f s of virtual time, %llu steps, %llu connections, %.1f MB\n", nranks,
           (double)sim_now_ns() / 1e9 - 1, (unsigned long long)sim_step_count(),
           (unsigned long long)sim_net_connects(), (double)sim_net_bytes() / 1e6);
    sim_world_end();
}

XT_TEST_DEADLINE(a_thousand_ranks_join_work_and_rest, 120)
{
    use_sim();
    sim_seeds("a_thousand_ranks_join_work_and_rest", 1, many_ranks);
}

/* More at once than a root has places for unproven connections: none may be turned away for good.
 */
static void burst(uint64_t seed)
{
    struct sim_world_settings settings = sim_world_draw(seed, 700);

    settings.extras = 1;
    settings.run = sim_job_run;
    settings.net.delay_min_ns = 5 * XCCL_NS_PER_MS;
    settings.net.delay_max_ns = 20 * XCCL_NS_PER_MS;
    settings.net.late_per_mille = settings.net.slow_per_mille = 0;
    settings.start_max_ns = XCCL_NS_PER_MS;
    sim_job_reset(seed, settings.nranks);
    sim_world_begin(&settings);
    sim_job_make_ids(1, settings.nranks);
    run_well();
}

XT_TEST_DEADLINE(ranks_that_all_come_at_once_are_all_let_in, 60)
{
    use_sim();
    sim_seeds("ranks_that_all_come_at_once_are_all_let_in", 2, burst);
}

/* --- one is hurt --- */

/* Everybody but one, who is not to be found, ended with an error that names it. */
static void check_all_name(int culprit, const char *or_this)
{
    for (int i = 0; i < sim_job.nranks; i++) {
        const struct sim_rank *rank = sim_world_rank(i);

        if (i == culprit)
            continue;
        if (!rank->rc)
            sim_fail("rank %d ended without an error, though rank %d was hurt", i, culprit);
        if (no_late_packets && !sim_text_names(rank->text, culprit) &&
            !(or_this && strstr(rank->text, or_this)))
            sim_fail("rank %d does not name rank %d: %s", i, culprit, rank->text);
    }
}

static void crash_at_a_random_moment(uint64_t seed)
{
    int nranks = 2 + (int)(seed % (MIXED_RANKS_MAX - 1)), culprit;
    uint64_t after_ns, limit_ns;

    no_late_packets = (seed >> 40) % 4 != 0;
    begin(seed, nranks, 1, 1);
    sim_job.op_count = -1;
    culprit = throw_between(0, nranks - 1);
    after_ns = sim_between(0, moments_ns);
    sim_note("rank %d crashes after %.3f ms; ", culprit, (double)after_ns / 1e6);
    sim_world_start_all();
    sim_world_pass(after_ns);
    /* One that never reported is missed when the time to join is over. */
    limit_ns = sim_job.boots[culprit] && no_late_packets
                   ? SOON_NS
                   : sim_job.join_ms * XCCL_NS_PER_MS + TOLD_NS;
    sim_rank_hurt(culprit, SIM_CRASHED);
    sim_world_run(sim_now_ns() + limit_ns);
    check_all_name(culprit, NULL);
    sim_world_end();
}

XT_TEST_DEADLINE(a_rank_that_crashes_is_named_by_all_others, 60)
{
    use_sim();
    sim_seeds("a_rank_that_crashes_is_named_by_all_others", 150, crash_at_a_random_moment);
}

/* No word comes from it, so it is known by its absence alone: after four heartbeats to its root and
 * its neighbours on the ring, unless it has not even reported. */
static void check_silent(int culprit, uint64_t hurt_ns)
{
    char process[24];

    snprintf(process, sizeof(process), "pid %d)", 1000 + culprit); /* getpid() of its host */
    for (int i = 0; i < sim_job.nranks; i++) {
        const struct sim_rank *rank = sim_world_rank(i);

        if (i == culprit)
            continue;
        if (!rank->rc)
            sim_fail("rank %d ended without an error, though rank %d was hurt", i, culprit);
        if (!no_late_packets || strstr(rank->text, "missing: "))
            continue;
        if (!strstr(rank->text, process))
            sim_fail("rank %d does not name rank %d: %s", i, culprit, rank->text);
        if (rank->ended_ns > hurt_ns + SILENT_NS)
            sim_fail("rank %d ends %.3f s after rank %d was hurt: %s", i,
                     (double)(rank->ended_ns - hurt_ns) / 1e9, culprit, rank->text);
    }
}

static void falls_silent(uint64_t seed)
{
    int nranks = 2 + (int)(seed % (MIXED_RANKS_MAX - 1)), culprit;
    enum sim_health how = seed >> 32 & 1 ? SIM_SILENT : SIM_STOPPED;
    uint64_t after_ns, hurt_ns;

    no_late_packets = (seed >> 40) % 4 != 0;
    begin(seed, nranks, 1, 1);
    sim_job.op_count = -1;
    sim_job.join_ms = 20000;
    sim_job.op_ms = 10000;
    culprit = throw_between(0, nranks - 1);
    after_ns = sim_between(0, moments_ns);
    sim_note("rank %d %s after %.3f ms; ", culprit, how == SIM_SILENT ? "falls silent" : "stops",
             (double)after_ns / 1e6);
    sim_world_start_all();
    sim_world_pass(after_ns);
    hurt_ns = sim_now_ns();
    sim_rank_hurt(culprit, how);
    sim_world_run(sim_now_ns() + sim_job.join_ms * XCCL_NS_PER_MS + TOLD_NS);
    check_silent(culprit, hurt_ns);
    sim_world_end();
}

XT_TEST_DEADLINE(a_rank_that_falls_silent_is_named_by_all_others_in_5_s, 60)
{
    use_sim();
    sim_seeds("a_rank_that_falls_silent_is_named_by_all_others_in_5_s", 100, falls_silent);
}

static void host_of_the_root_crashes(uint64_t seed)
{
    int nranks = 2 + (int)(seed % 15);
    uint64_t after_ns;

    no_late_packets = (seed >> 40) % 4 != 0;
    begin(seed, nranks, 1, 0);
    sim_job.op_count = -1;
    after_ns = sim_between(0, moments_ns);
    sim_note("rank 0, with the root, crashes after %.3f ms; ", (double)after_ns / 1e6);
    sim_world_start_all();
    sim_world_pass(after_ns);
    sim_rank_hurt(0, SIM_CRASHED);
    sim_world_run(sim_now_ns() + sim_job.join_ms * XCCL_NS_PER_MS + TOLD_NS);
    check_all_name(0, "the root");
    sim_world_end();
}

XT_TEST_DEADLINE(a_root_that_crashes_hangs_nobody, 60)
{
    use_sim();
    sim_seeds("a_root_that_crashes_hangs_nobody", 80, host_of_the_root_crashes);
}

static void never_starts(uint64_t seed)
{
    int nranks = 2 + (int)(seed % (MIXED_RANKS_MAX - 1)), culprit;
    uint64_t start_max_ns = XCCL_NS_PER_S;

    begin(seed, nranks, seed >> 33 & 1 ? 1 + (int)(seed >> 34) % nranks % 5 : 1, 1);
    /* Of several roots only the missing rank's knows, and it gives up with the ranks of its share:
     * one that began much earlier, elsewhere, sees only that somebody does not go on. */
    if (sim_job.id_count > 1)
        start_max_ns = 100 * XCCL_NS_PER_MS;
    culprit = throw_between(0, nranks - 1);
    sim_job.join_ms = 30000;
    sim_note("rank %d never starts; ", culprit);
    for (int i = 0; i < nranks; i++) {
        if (i != culprit)
            sim_rank_start(i, sim_between(1, start_max_ns));
    }
    sim_world_run(sim_now_ns() + sim_job.join_ms * XCCL_NS_PER_MS + 2 * XCCL_NS_PER_S);
    check_all_name(culprit, NULL);
    sim_world_end();
}

XT_TEST_DEADLINE(a_rank_that_never_starts_is_on_the_list_of_the_missing, 60)
{
    use_sim();
    no_late_packets = 1;
    sim_seeds("a_rank_that_never_starts_is_on_the_list_of_the_missing", 80, never_starts);
}

/* One host says that it is another rank, or that there are more ranks. */
static void odd_one(uint64_t seed)
{
    int nranks = 3 + (int)(seed % (MIXED_RANKS_MAX - 2)), twin = (int)(seed >> 33 & 1);

    no_late_packets = 1;
    begin(seed, nranks, 1, 1);
    sim_job.odd_host = throw_between(0, nranks - 1);
    sim_job.odd_rank = sim_job.odd_host;
    sim_job.odd_nranks = nranks;
    if (twin)
        sim_job.odd_rank = (sim_job.odd_host + throw_between(1, nranks - 1)) % nranks;
    else
        sim_job.odd_nranks = nranks + throw_between(1, 5);
    sim_note("host %d says that it is rank %d of %d; ", sim_job.odd_host, sim_job.odd_rank,
             sim_job.odd_nranks);
    sim_world_start_all();
    sim_world_run(sim_now_ns() + sim_job.join_ms * XCCL_NS_PER_MS + TOLD_NS);
    for (int i = 0; i < nranks; i++) {
        const struct sim_rank *rank = sim_world_rank(i);

        if (!rank->rc)
            sim_fail("rank %d ended without an error", i);
        if (twin ? !strstr(rank->text, "twice") : !strstr(rank->text, "the same number"))
            sim_fail("rank %d does not say what is wrong: %s", i, rank->text);
        if (!sim_text_names(rank->text, sim_job.odd_rank))
            sim_fail("rank %d does not name rank %d: %s", i, sim_job.odd_rank, rank->text);
    }
    sim_world_end();
}

XT_TEST_DEADLINE(a_rank_number_given_twice_or_another_size_is_told_to_all, 60)
{
    use_sim();
    sim_seeds("a_rank_number_given_twice_or_another_size_is_told_to_all", 80, odd_one);
}

static void abort_one(void *arg, uint64_t rank)
{
    int before = sim_host_enter((int)rank);

    (void)arg;
    xccl_bootstrap_abort(sim_job.boots[rank]);
    sim_host_enter(before);
}

static void one_aborts(uint64_t seed)
{
    int nranks = 2 + (int)(seed % 15), culprit;
    uint64_t at_ns;

    no_late_packets = (seed >> 40) % 4 != 0;
    begin(seed, nranks, 1, 1);
    sim_job.op_count = -1;
    sim_job.no_splits = 1; /* an abort of the parent is none of its children */
    culprit = throw_between(0, nranks - 1);
    sim_world_start_all();
    while (!sim_job.boots[culprit] && sim_now_ns() < HOUR_NS)
        sim_world_pass(XCCL_NS_PER_MS);
    sim_world_pass(sim_between(0, moments_ns - settled_ns));
    if (!sim_job.boots[culprit])
        sim_fail("rank %d did not join: %s", culprit, sim_world_rank(culprit)->text);
    at_ns = sim_now_ns();
    sim_note("rank %d aborts at %.3f ms; ", culprit, (double)at_ns / 1e6 - 1e3);
    abort_one(NULL, (uint64_t)culprit);
    sim_world_run(at_ns + sim_job.op_ms * XCCL_NS_PER_MS + TOLD_NS);
    check_all_name(culprit, NULL);
    if (sim_world_rank(culprit)->rc != xcclInvalidUsage ||
        !strstr(sim_world_rank(culprit)->text, "abort"))
        sim_fail("the rank that aborted says %d: %s", sim_world_rank(culprit)->rc,
                 sim_world_rank(culprit)->text);
    if (sim_world_rank(culprit)->ended_ns > at_ns + XCCL_NS_PER_S)
        sim_fail("the rank that aborted took %.3f s to end",
                 (double)(sim_world_rank(culprit)->ended_ns - at_ns) / 1e9);
    sim_world_end();
}

XT_TEST_DEADLINE(an_abort_ends_the_rank_at_once_and_is_told_to_all, 60)
{
    use_sim();
    sim_seeds("an_abort_ends_the_rank_at_once_and_is_told_to_all", 80, one_aborts);
}

/* --- strangers --- */

#define STRANGERS 4

/* Connects to a listener, says nothing, garbage, or the beginning of a hello, stays a while. */
static void disturb(struct sim_rank *self, uint64_t *state)
{
    static const char beginning[] = "XCCL\1\0\1\0";
    uint8_t garbage[200];
    struct xccl_addr addr;
    uint64_t kind = xt_random(state) % 4;
    size_t moved = 0;
    int fd = -1, done = 0;

    self->doing = "disturbs";
    if (!sim_net_listener(xt_random(state), &addr)) {
        sim_sleep(XCCL_NS_PER_MS);
        return;
    }
    if (xccl_tcp_connect_start(&addr, &fd))
        sim_fail("a stranger cannot connect");
    for (int i = 0; i < 50 && !done; i++) {
        sim_sleep(1 + xt_random(state) % (10 * XCCL_NS_PER_MS));
        if (xccl_tcp_connect_test(fd, &addr, &done))
            break;
    }
    for (size_t i = 0; i < sizeof(garbage); i++)
        garbage[i] = (uint8_t)xt_random(state);
    if (kind == 2)
        memcpy(garbage, beginning, sizeof(beginning) - 1);
    if (done && kind > 0)
        (void)xccl_tcp_send_some(fd, garbage, 1 + xt_random(state) % sizeof(garbage), &moved);
    if (kind < 3)
        sim_sleep(1 + xt_random(state) % (2 * XCCL_NS_PER_S));
    xccl_tcp_close(&fd);
}

static void rank_or_stranger(struct sim_rank *self)
{
    uint64_t state = sim_job.seed + (uint64_t)self->rank;

    if (self->rank < sim_job.nranks) {
        sim_job_run(self);
        return;
    }
    while (sim_job.finished < sim_job.nranks)
        disturb(self, &state);
}

static void strangers(uint64_t seed)
{
    int nranks = 2 + (int)(seed % 15);
    struct sim_world_settings settings = sim_world_draw(seed, nranks);

    settings.extras = STRANGERS + 1;
    settings.run = rank_or_stranger;
    sim_job_reset(seed, nranks);
    sim_world_begin(&settings);
    sim_job_make_ids(1, nranks + STRANGERS);
    sim_job.op_count = 4;
    for (int i = 0; i < STRANGERS; i++)
        sim_rank_start(nranks + i, 0);
    run_well();
}

XT_TEST_DEADLINE(strangers_change_nothing, 60)
{
    use_sim();
    sim_seeds("strangers_change_nothing", 60, strangers);
}

/* --- how deep, and the simulation itself --- */

#define DEPTH_CASES 4

static const char *const depth_names[DEPTH_CASES] = {"barrier", "barrier again",
                                                     "8-byte all-gather", "all-gather again"};
static uint64_t depth_begin_ns;
static struct {
    uint32_t hops;
    uint64_t ns;
} depths[DEPTH_CASES];

static xcclResult_t measure_depths(struct sim_rank *self, struct xccl_bootstrap *boot)
{
    struct xccl_limit limit = xccl_limit_ms(600000, NULL);
    uint64_t *data = calloc((size_t)sim_job.nranks, sizeof(*data));
    xcclResult_t rc = xcclSuccess;

    if (!data)
        abort();
    self->doing = "depth";
    for (int i = 0; i < DEPTH_CASES && !rc; i++) {
        /* The first of each kind begins when everything has long been closed. */
        uint64_t begin_ns = depth_begin_ns + (uint64_t)(i / 2 * 200 + i % 2) * XCCL_NS_PER_S;
        uint64_t took_ns;

        sim_sleep(begin_ns - sim_now_ns());
        if (self->rank == 0)
            sim_net_clear_hops();
        sim_sleep(begin_ns + XCCL_NS_PER_MS - sim_now_ns());
        if (i < 2)
            rc = xccl_bootstrap_barrier(boot, NULL, &limit);
        else
            rc = xccl_bootstrap_allgather(boot, NULL, data, sizeof(*data), &limit);
        took_ns = sim_now_ns() - begin_ns - XCCL_NS_PER_MS;
        if (sim_net_hops(self->rank) > depths[i].hops)
            depths[i].hops = sim_net_hops(self->rank);
        if (took_ns > depths[i].ns)
            depths[i].ns = took_ns;
    }
    free(data);
    return rc;
}

static void depth_of(uint64_t seed, int nranks)
{
    struct sim_world_settings settings = {
        .nranks = nranks,
        .extras = 1,
        .net = {.delay_min_ns = 50000, .delay_max_ns = 50000, .window_bytes = 1 << 20},
        .turn_max_ns = 1000,
        .start_max_ns = XCCL_NS_PER_MS,
        .run = sim_job_run};

    memset(depths, 0, sizeof(depths));
    sim_job_reset(seed, nranks);
    sim_world_begin(&settings);
    sim_job_make_ids(1, nranks);
    sim_job.extra = measure_depths;
    depth_begin_ns = sim_now_ns() + 200 * XCCL_NS_PER_S;
    run_well();
}

static void depths_of_all(uint64_t seed)
{
    static const int sizes[] = {8, 64, 512, 4096};
    const char *most = getenv("XT_SIM_RANKS");

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint32_t rounds = (uint32_t)(__builtin_ctz((unsigned)sizes[i]));

        if (sizes[i] > (most ? atoi(most) : 1000))
            continue;
        depth_of(seed, sizes[i]);
        for (int k = 0; k < DEPTH_CASES; k++) {
            report("%5d ranks, %-18s %3u messages deep, %5.2f a round, %8.1f us\n", sizes[i],
                   depth_names[k], depths[k].hops, (double)depths[k].hops / rounds,
                   (double)depths[k].ns / 1e3);
            /* A connection takes hello, reply and proof, and one message more is the margin. */
            if (depths[k].hops > 4 * rounds || depths[k].hops < rounds)
                sim_fail("%s of %d ranks is %u messages deep", depth_names[k], sizes[i],
                         depths[k].hops);
        }
    }
}

XT_TEST_DEADLINE(barrier_and_small_all_gather_are_log2_n_messages_deep, 120)
{
    use_sim();
    sim_seeds("barrier_and_small_all_gather_are_log2_n_messages_deep", 1, depths_of_all);
}

static uint64_t traces[2];

static void traced(uint64_t seed)
{
    begin(seed, 9, 1, 1);
    sim_job.op_count = 6;
    sim_world_start_all();
    sim_world_run(HOUR_NS);
    traces[1] = traces[0];
    traces[0] = sim_trace();
    sim_world_end();
}

XT_TEST(a_seed_is_one_run)
{
    use_sim();
    xt_setenv("XT_SIM_WORLD", "0x1234567");
    sim_seeds("a_seed_is_one_run", 1, traced);
    sim_seeds("a_seed_is_one_run", 1, traced);
    XT_CHECK(traces[0] == traces[1]);
}

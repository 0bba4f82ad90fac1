/* SPDX-License-Identifier: BSD-3-Clause */
/* Draws rounds: see the header. The table of faults says over what each one may happen, what must
 * come of it, and how soon. A fault whose means this machine lacks is never drawn.
 *
 * Thread: any. */
#include "campaign_round.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STEPS        400 /* many, so that a fault finds the job at work */
#define STEPS_FEW    80 /* where a split opens endpoints of libraries of others, 32 MiB each */
#define STEPS_DEVICE 60
#define RANKS_FEW    4
#define AT_WORK_MS   300 /* the fault comes within them */
#define LOSS_MS      2000
#define FLAP_LONG_MS 9000 /* longer than heartbeats may be missing */

#define ON(transport) (1u << (transport))
#define ANY           ((1u << TRANSPORTS) - 1)
#define PROCESSES     (ANY & ~ON(THREADS))
#define BETWEEN_HOSTS (ON(TCP) | ON(OFI) | ON(UCX))
#define PLUGINS       (ON(UNIX) | BETWEEN_HOSTS)
#define PLAIN         (ON(SHM) | ON(UNIX) | ON(TCP))

/* Heartbeats: four of a second each, and a second until the next one is due. */
const struct fault_kind fault_kinds[FAULTS] = {
    [NONE] = {"nothing", ANY, HARMLESS, 0, 0},
    [KILL] = {"a kill", PROCESSES, DEADLY, 1, 4},
    [STOP] = {"a stop", PROCESSES, DEADLY, 5, 9},
    [PAUSE] = {"a pause", PROCESSES, HARMLESS, 0, 0},
    [LEAVE] = {"an exit", PROCESSES, DEADLY, 1, 4},
    [ABORT] = {"an abort", ANY, DEADLY, 1, 4},
    [CUT] = {"cut connections", ANY, EITHER, 5, 9},
    [FDS] = {"few descriptors", PLAIN | ON(OFI) | ON(UCX), EITHER, 1, 4},
    [MEMORY] = {"little memory", PLAIN, EITHER, 1, 4},
    [FULL] = {"a full tmpfs", PROCESSES, HARMLESS, 0, 0},
    [LOSS] = {"loss of packets", BETWEEN_HOSTS, HARMLESS, 15, 15},
    [FLAP] = {"a flapping link", BETWEEN_HOSTS, EITHER, 6, 10},
    [DOWN] = {"a link down", BETWEEN_HOSTS, DEADLY, 6, 10},
    [PLUGIN] = {"plugin faults", PLUGINS, EITHER, 1, 4},
    [MISMATCH] = {"another call", ANY, DEADLY, 1, 5},
    [TWO] = {"two faults", PROCESSES, DEADLY, 1, 4},
};

const char *const transport_names[TRANSPORTS] = {"shm", "threads", "unix",  "tcp",
                                                 "ofi", "ucx",     "device"};

uint64_t stage_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void stage_nap_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

uint32_t stage_steps(const struct stage *stage, int rank)
{
    return atomic_load_explicit(&stage->ranks[rank].steps, memory_order_relaxed);
}

/* Faults that are known and not mended are drawn with XT_KNOWN=1 only. UCX 1.13 ends a process by
 * an assertion (proto_am.c: packed_len) when it answers a large message on a connection that is
 * closed in the midst of others. */
static int is_known(enum fault fault, enum transport transport)
{
    if (getenv("XT_KNOWN"))
        return 0;
    return fault == PLUGIN && transport == UCX;
}

/* 0: what it needs was not built. */
static int has_transport(enum transport transport)
{
    char path[256];

    if (transport != OFI && transport != UCX && transport != DEVICE)
        return 1;
    if (transport == DEVICE)
        snprintf(path, sizeof(path), XT_BUILD_DIR "/tests/libxccl-emu-cuda.so");
    else
        snprintf(path, sizeof(path), XT_BUILD_DIR "/lib/xccl/libxccl-net-%s.so",
                 transport_names[transport]);
    return access(path, R_OK) == 0 && !(XT_TSAN && transport == DEVICE);
}

static int has_program(const char *name)
{
    char path[2][64];

    snprintf(path[0], sizeof(path[0]), "/usr/sbin/%s", name);
    snprintf(path[1], sizeof(path[1]), "/sbin/%s", name);
    return access(path[0], X_OK) == 0 || access(path[1], X_OK) == 0;
}

/* Whether a process may have mounts and a network of its own. */
static int has_namespaces(void)
{
    static int known, has;
    int status = -1;
    pid_t pid;

    if (known)
        return has;
    pid = fork();
    if (pid == 0)
        _exit(unshare(CLONE_NEWNS | CLONE_NEWNET) != 0 ||
              mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0);
    has = pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
    known = 1;
    return has;
}

/* 0: what it needs is not there. */
static int has_fault(enum fault fault)
{
    if (fault == LOSS || fault == FLAP || fault == DOWN)
        return has_namespaces() && has_program("ip") && (fault != LOSS || has_program("nft"));
    if (fault == FULL)
        return has_namespaces();
    return fault != MEMORY || !XT_SANITIZED; /* sanitizers end a process that gets no memory */
}

static long number_of(const char *setting, long otherwise)
{
    const char *text = getenv(setting);

    return text ? atol(text) : otherwise;
}

static enum fault fault_drawn(uint64_t *dice)
{
    enum fault fault;

    do
        fault = (enum fault)(xt_random(dice) % FAULTS);
    while (!has_fault(fault));
    return fault;
}

/* Shared memory and TCP are drawn more often. */
static enum transport transport_drawn(uint64_t *dice, enum fault fault)
{
    static const enum transport many[] = {SHM, SHM, THREADS, UNIX, TCP, TCP, OFI, UCX, DEVICE};
    enum transport transport;

    do
        transport = many[xt_random(dice) % 9];
    while (!(fault_kinds[fault].transports & ON(transport)) || !has_transport(transport) ||
           is_known(fault, transport));
    return transport;
}

static struct deed deed_drawn(uint64_t *dice, const struct round *round, enum fault fault)
{
    static const long flaps[] = {200, 600, 1500, FLAP_LONG_MS};
    uint64_t drawn = xt_random(dice);
    struct deed deed = {.fault = fault,
                        .victim = (int)((drawn >> 8) % (uint64_t)round->nranks),
                        .delay_ms = (long)((drawn >> 24) % AT_WORK_MS),
                        .dice = xt_random(dice)};

    if (fault == LOSS)
        deed.lasts_ms = number_of("XT_LOSS_MS", LOSS_MS);
    if (fault == FLAP)
        deed.lasts_ms = flaps[(drawn >> 40) % 4];
    return deed;
}

/* Two ranks, each with a fault that a job cannot get over, or a pause before one. */
static void two_drawn(uint64_t *dice, struct round *round)
{
    static const enum fault both[] = {KILL, STOP, LEAVE, ABORT, PAUSE};

    round->deed_count = 2;
    for (int i = 0; i < 2; i++)
        round->deeds[i] = deed_drawn(dice, round, both[xt_random(dice) % (i ? 4 : 5)]);
    if (round->deeds[0].victim == round->deeds[1].victim)
        round->deeds[1].victim = (round->deeds[1].victim + 1) % round->nranks;
}

struct round round_draw(uint64_t seed)
{
    uint64_t dice = seed;
    struct round round = {.seed = seed, .fault = fault_drawn(&dice), .deed_count = 1};
    uint64_t drawn;
    int is_small;

    round.transport = transport_drawn(&dice, round.fault);
    drawn = xt_random(&dice);
    is_small = round.transport == OFI || round.transport == UCX || round.transport == DEVICE;
    round.nranks = 2 + (int)(drawn % (uint64_t)((is_small ? RANKS_FEW : CAMPAIGN_RANKS_MAX) - 1));
    if (round.fault == TWO && round.nranks < 3)
        round.nranks = 3;
    round.has_second = (drawn >> 16) % 2 && !is_small;
    round.has_hosts = round.fault == LOSS || round.fault == FLAP || round.fault == DOWN;
    round.steps = round.transport == DEVICE ? STEPS_DEVICE : is_small ? STEPS_FEW : STEPS;
    if (round.fault == TWO)
        two_drawn(&dice, &round);
    else
        round.deeds[0] = deed_drawn(&dice, &round, round.fault);
    round.deeds[0].odd = (enum odd)(round.deeds[0].dice % ODDS);
    return round;
}

enum outcome deed_outcome(const struct deed *deed)
{
    if (deed->fault == LOSS && deed->lasts_ms > LOSS_MS)
        return EITHER;
    if (deed->fault == FLAP && deed->lasts_ms == FLAP_LONG_MS)
        return DEADLY;
    return fault_kinds[deed->fault].outcome;
}

int deed_hits_process(const struct deed *deed)
{
    static const unsigned hits = 1u << KILL | 1u << STOP | 1u << LEAVE | 1u << ABORT | 1u << PAUSE |
                                 1u << LOSS | 1u << FLAP | 1u << DOWN;

    return (hits >> deed->fault & 1) != 0;
}

int deed_ends_process(const struct deed *deed)
{
    return deed->fault == KILL || deed->fault == STOP || deed->fault == LEAVE;
}

void round_text(const struct round *round, char *text_out, size_t bytes)
{
    size_t used = 0;

    for (int i = 0; i < round->deed_count && used < bytes; i++) {
        const struct deed *deed = &round->deeds[i];

        used += (size_t)snprintf(text_out + used, bytes - used, "%s%s of rank %d after %ld ms",
                                 i ? ", " : "", fault_kinds[deed->fault].name, deed->victim,
                                 deed->delay_ms);
        if (deed->lasts_ms && used < bytes)
            used += (size_t)snprintf(text_out + used, bytes - used, " for %ld ms", deed->lasts_ms);
    }
}

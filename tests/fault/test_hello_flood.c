/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks join while the root is flooded with hellos: made up without the key, one recorded hello
 * again and again, and many recorded ones. Quiet and flooded rounds take turns, so a busy machine
 * slows both; the medians of a series are compared. A recorded hello is made here with the id's
 * secret, as an eavesdropper would find it on the wire; whoever sends it knows no secret and never
 * proves itself.
 *
 * The floods go to loopback, at a bounded rate, for as long as 16 ranks join. In the environment:
 * XT_FLOOD_RATE: hellos a second (6,000); XT_FLOOD_ROUNDS: rounds of each kind (7). */
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "bootstrap/channel.h"
#include "bootstrap/job.h"
#include "xccl.h"
#include "xt.h"

#ifdef XCCL_SANITIZED
#define SLOWER 10
#else
#define SLOWER 1
#endif

#define RANKS       16
#define SERIES      3
#define FLOOR_S     (xt_bound(0, 0.1) * SLOWER)
#define RATE        (SLOWER > 1 ? 1500 : 6000)
#define ROUNDS_MAX  64
#define HELD_MAX    8000 /* connections that the flood keeps open */
#define RECORDINGS  1000
#define WARM_UP_MS  600
#define KNOCK_PAUSE 1000000L /* ns between two bursts of the flood */

enum flood { QUIET, RANDOM, REPLAYED, RECORDED, FLOOD_KINDS };

static const char *const flood_names[] = {"no flood", "made-up hellos", "one recorded hello",
                                          "many recorded hellos"};

/* Shared by the test, the ranks and the flood. */
struct square {
    _Atomic int round, go, ready, joined, leave; /* each counts up once a round, or once a rank */
    _Atomic int flood_ends, sent;
    xcclUniqueId id;
    struct xccl_meeting meeting;
    double begin[RANKS], end[RANKS];
};

static double seconds(void)
{
    return (double)xccl_clock_ns() * 1e-9;
}

static int number_of(const char *name, int usual)
{
    const char *text = getenv(name);

    return text ? atoi(text) : usual;
}

static void nap(long ns)
{
    struct timespec time = {.tv_nsec = ns};

    (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
}

static int word_get(_Atomic int *word)
{
    /* Acquire: pairs with word_set() and word_add(). */
    return atomic_load_explicit(word, memory_order_acquire);
}

static void word_set(_Atomic int *word, int value)
{
    /* Release: what was written before is seen by who finds the value. */
    atomic_store_explicit(word, value, memory_order_release);
}

static void word_add(_Atomic int *word)
{
    /* Release: as in word_set(). */
    (void)atomic_fetch_add_explicit(word, 1, memory_order_release);
}

static void await(_Atomic int *word, int value)
{
    double limit = seconds() + 60 * SLOWER;

    while (word_get(word) < value && seconds() < limit)
        nap(200000);
    XT_CHECK(word_get(word) >= value);
}

/* --- ranks --- */

static void inhabitant(int rank, int nranks, void *arg)
{
    struct square *square = arg;

    for (int round = 1;; round++) {
        xcclComm_t comm = NULL;
        xcclResult_t rc;

        await(&square->round, round);
        if (word_get(&square->leave))
            return;
        if (rank == 0) {
            XT_OK(xcclGetUniqueId(&square->id));
            XT_OK(xccl_unique_id_decode(&square->id, &square->meeting));
        }
        word_add(&square->ready);
        await(&square->go, round);
        square->begin[rank] = seconds();
        rc = xcclCommInitRank(&comm, nranks, square->id, rank);
        square->end[rank] = seconds();
        if (rc)
            fprintf(stderr, "rank %d: %s\n", rank, xcclGetLastError(NULL));
        XT_OK(rc);
        word_add(&square->joined);
        await(&square->joined, round * nranks);
        XT_OK(xcclCommDestroy(comm));
    }
}

/* --- the flood --- */

struct spout {
    struct square *square;
    int fds[HELD_MAX], next; /* 0: none */
    int hello_count;
    uint8_t hellos[RECORDINGS][XCCL_HELLO_BYTES];
};

/* Makes the hellos that an eavesdropper has recorded, or that somebody without the key makes up. */
static void spout_fill(struct spout *spout, enum flood kind)
{
    const struct xccl_meeting *meeting = &spout->square->meeting;
    struct xccl_channel channel;

    spout->hello_count = kind == REPLAYED ? 1 : RECORDINGS;
    for (int i = 0; i < spout->hello_count; i++) {
        struct xccl_hello hello = {.rank = 1,
                                   .nranks = RANKS,
                                   .purpose = XCCL_PURPOSE_ROOT,
                                   .version = XCCL_VERSION_CODE,
                                   .target = XCCL_TARGET_ROOT};
        uint8_t key[32];

        memcpy(hello.comm_id, meeting->comm_id, sizeof(hello.comm_id));
        memcpy(key, meeting->secret, sizeof(key));
        key[0] ^= kind == RANDOM;
        xccl_channel_connect(&channel, key, &hello, spout->hellos[i]);
        xccl_channel_wipe(&channel);
    }
}

static void spout_send(struct spout *spout, int number)
{
    const struct xccl_addr *root = &spout->square->meeting.roots[0];
    const struct linger none = {.l_onoff = 1};
    int *fd = &spout->fds[spout->next];

    if (*fd > 0)
        close(*fd);
    spout->next = (spout->next + 1) % HELD_MAX;
    *fd = socket(root->sa.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd < 0)
        return;
    (void)setsockopt(*fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
    (void)connect(*fd, &root->sa.any, root->bytes);
    /* On loopback a connection that the door's line has room for is made by now. */
    (void)send(*fd, spout->hellos[number % spout->hello_count], XCCL_HELLO_BYTES, MSG_NOSIGNAL);
}

_Noreturn static void spout_run(struct square *square, enum flood kind)
{
    static struct spout spout;
    double rate = number_of("XT_FLOOD_RATE", RATE), begin;
    struct rlimit limit;
    int sent = 0;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    spout.square = square;
    spout_fill(&spout, kind);
    begin = seconds();
    while (!word_get(&square->flood_ends) && seconds() < begin + 120) {
        int due = (int)((seconds() - begin) * rate);

        for (; sent < due; sent++)
            spout_send(&spout, sent);
        word_set(&square->sent, sent);
        nap(KNOCK_PAUSE);
    }
    _exit(0);
}

/* --- the test --- */

/* Returns how long the slowest rank took, from the first one's beginning. */
static double round_run(struct square *square, int round, enum flood kind)
{
    double first = 1e30, last = 0;
    pid_t flood = 0;

    word_set(&square->flood_ends, 0);
    word_set(&square->sent, 0);
    word_set(&square->round, round);
    await(&square->ready, round * RANKS);
    if (kind != QUIET) {
        flood = fork();
        if (flood == 0)
            spout_run(square, kind);
        XT_CHECK(flood > 0);
        await(&square->sent, 1);
        nap(WARM_UP_MS * 1000000L);
    }
    word_set(&square->go, round);
    await(&square->joined, round * RANKS);
    word_set(&square->flood_ends, 1);
    if (flood)
        XT_CHECK_INT(waitpid(flood, NULL, 0), flood);
    for (int rank = 0; rank < RANKS; rank++) {
        first = square->begin[rank] < first ? square->begin[rank] : first;
        last = square->end[rank] > last ? square->end[rank] : last;
    }
    return last - first;
}

/* Runs rounds of each kind in turn. 1: under none of the floods joining took more than twice
 * the time without one. *round: the last one. */
static int series_run(struct square *square, int *round)
{
    static double times[FLOOD_KINDS][ROUNDS_MAX];
    double medians[FLOOD_KINDS];
    char line[200];
    int rounds = number_of("XT_FLOOD_ROUNDS", 7), as_quick = 1;

    XT_CHECK(rounds >= 1 && rounds <= ROUNDS_MAX);
    for (int i = 0; i < rounds; i++) {
        for (int kind = 0; kind < FLOOD_KINDS; kind++)
            times[kind][i] = round_run(square, ++*round, (enum flood)kind);
    }
    for (int kind = 0; kind < FLOOD_KINDS; kind++) {
        medians[kind] = xt_median(times[kind], rounds);
        snprintf(line, sizeof(line), "%s: %d ranks joined in %.1f ms (median of %d; %.1f to %.1f)",
                 flood_names[kind], RANKS, medians[kind] * 1e3, rounds, times[kind][0] * 1e3,
                 times[kind][rounds - 1] * 1e3);
        printf("%s\n", line);
        xt_figure("%s\n", line);
        as_quick &= medians[kind] <= 2 * medians[QUIET] + FLOOR_S;
    }
    return as_quick;
}

/* A busy machine slows a series down now and then; a library that strangers can slow down is slow
 * in all of them. */
XT_TEST_DEADLINE(hellos_of_strangers_do_not_slow_down_joining, 240)
{
    struct square *square = mmap(NULL, sizeof(*square), PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int statuses[RANKS], round = 1, as_quick = 0;
    struct xt_mp *mp;

    XT_CHECK(square != MAP_FAILED);
    XT_OK(xccl_channel_library_init());
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    mp = xt_mp_start(RANKS, inhabitant, square);
    (void)round_run(square, round, QUIET); /* the first one loads what all need */
    for (int series = 0; series < SERIES && !as_quick; series++)
        as_quick = series_run(square, &round);
    word_set(&square->leave, 1);
    word_set(&square->round, round + 1);
    xt_mp_wait(mp, statuses);
    for (int rank = 0; rank < RANKS; rank++)
        XT_CHECK_INT(statuses[rank], 0);
    XT_CHECK(as_quick);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* A round of the campaign, as its seed draws it: how many ranks, over what, which program, and what
 * is done to whom when. And the page that the processes of a round share.
 *
 * Thread: any; the page says who writes what. */
#ifndef XT_CAMPAIGN_ROUND_H
#define XT_CAMPAIGN_ROUND_H

#include "../../collective/world.h"
#include "campaign.h"
#include "path_hosts.h"

enum fault {
    NONE,
    KILL,
    STOP,
    PAUSE,
    LEAVE,
    ABORT,
    CUT,
    FDS,
    MEMORY,
    FULL,
    LOSS,
    FLAP,
    DOWN,
    PLUGIN,
    MISMATCH,
    TWO,
    FAULTS
};

enum transport { SHM, THREADS, UNIX, TCP, OFI, UCX, DEVICE, TRANSPORTS };

/* The end that a fault must have. */
enum outcome {
    HARMLESS, /* no error anywhere */
    EITHER, /* no error, or one on all ranks */
    DEADLY /* an error on all ranks that had not ended */
};

struct fault_kind {
    const char *name;
    unsigned transports; /* a bit for each on which there is this fault */
    enum outcome outcome;
    double quiet_s, busy_s; /* from the deed to the last error */
};
extern const struct fault_kind fault_kinds[FAULTS];
extern const char *const transport_names[TRANSPORTS];

struct deed {
    enum fault fault;
    int victim;
    long delay_ms; /* from when all have joined */
    long lasts_ms; /* LOSS, FLAP */
    enum odd odd; /* MISMATCH */
    uint64_t dice; /* for the rest */
};

#define DEEDS_MAX 2

struct round {
    uint64_t seed;
    enum fault fault; /* as it was drawn: TWO for two deeds */
    int nranks, has_second, has_hosts;
    uint32_t steps;
    enum transport transport;
    int deed_count;
    struct deed deeds[DEEDS_MAX];
};

/* Draws a round. Faults that cannot be done here become others. */
struct round round_draw(uint64_t seed);
enum outcome deed_outcome(const struct deed *deed);
/* Its fault is that of the whole process, so that all of its communicators find it. */
int deed_hits_process(const struct deed *deed);
/* The victim does not live to say anything. */
int deed_ends_process(const struct deed *deed);
/* "a kill of rank 2 after 30 ms", for a failure's text. */
void round_text(const struct round *round, char *text_out, size_t bytes);

/* Between the processes. */
struct stage {
    struct world world;
    _Atomic int joined;
    _Atomic int over; /* players that have ended their program */
    struct round round;
    struct path_hosts *hosts; /* of the test, before ranks are forked */
    int odd_leaves_message; /* of the victim's player */
    struct {
        _Atomic int strikes; /* the victim shall do it to itself */
        _Atomic uint64_t struck_ns;
    } deeds[DEEDS_MAX];
    struct {
        int pid, rc, aborted; /* aborted: it has ended its communicators itself */
        _Atomic uint32_t steps; /* relaxed: how far it is, looked at now and then */
        _Atomic int over;
        uint64_t wrong;
        uint64_t ended_ns;
        double destroy_s; /* the longest of its communicators */
        enum place failed_in;
        char text[CAMPAIGN_TEXT];
        char leaks[128];
    } ranks[CAMPAIGN_RANKS_MAX];
};

uint64_t stage_now_ns(void);
void stage_nap_ms(long ms);
uint32_t stage_steps(const struct stage *stage, int rank);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* The contract between XCCL and a tuner plugin, version 1.
 *
 * A tuner says how calls are done: by which algorithm and protocol, in how large pieces. It is a
 * shared library libxccl-tuner-NAME.so that exports one data symbol, xcclTunerPlugin_v1, a constant
 * xcclTunerPlugin_v1_t. It links against nothing of XCCL, and nothing runs when it is loaded.
 * XCCL_TUNER_PLUGIN names it, by name or path; without that libxccl-tuner.so is taken where network
 * plugins lie, if it is there. plugins/tuner is a complete one, and what a table can say needs none
 * of one's own: XCCL_TUNER_FILE names a table for it. */
#ifndef XCCL_TUNER_H
#define XCCL_TUNER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* When a communicator makes the plan of a call that is new to it (collective, size, type, operator,
 * root), it makes its built-in choice, lists all other ways as candidates, and hands them to
 * choose. That edits what it likes and returns; the candidate of the lowest cost is used. The plan
 * is kept, so a call that is repeated asks nobody. Calls with a size for each rank (all-gather-v
 * and the like), sends and receives, and communicators of one rank are not asked about.
 *
 * Algorithms, protocols and collectives are names, never numbers: a plugin leaves alone what it
 * does not know.
 *
 * How it grows: every struct and the table begin with their size in bytes, set by whoever fills
 * them. Fields and entries are only ever appended, none is moved, renamed or given another meaning.
 * A reader looks at no field beyond the other side's size. Candidates come as an array of pointers,
 * so that they may grow too.
 *
 * Rules:
 *
 *  1. The answer is the same on all ranks: it follows from what init and choose are given, and from
 *     what digest stands for, alone. Nothing says which rank asks. XCCL compares at the beginning:
 *     the plugin's file and digest, then the answers to a list of calls. A later difference is
 *     found when the ranks meet in the call. Either is an error that names ranks and tuner, never
 *     wrong numbers.
 *  2. Threads. init, choose and finalize of different communicators may run at the same time; those
 *     of one communicator come one after the other, from any thread. digest and lastError: any.
 *  3. choose takes microseconds: it waits for nobody, and neither logs each time nor reads files.
 *     It may be asked about the same call more than once.
 *  4. What is given to a function is good until that function returns, but for strings of the
 *     table, which are constant, and log, which is good until finalize has returned.
 *  5. Nothing of the process that belongs to the host program is changed: no signal handlers, no
 *     environment, no standard streams, no exit.
 *  6. Once loaded, a plugin stays until the process ends.
 *
 * What is no answer costs one warning a process, which names the plugin and what it did, and leaves
 * the built-in choice, for this call and each other one that is answered so:
 *
 *   init fails; choose returns anything but 0 and 1; it returns 1 and nothing was edited
 *   a cost is no number, or infinite; all candidates are forbidden
 *   a candidate that is not to be used has another cost than before
 *   the chosen one's tile, lanes or parameter are outside of their bounds, or no multiple
 *   a field was changed that is not to be edited: names, sizes, bounds
 *   the chosen algorithm came from an algorithm plugin, and is refused by its proof */

/* Takes one finished line without a line end; level is "warn", "info" or "debug". Any thread. */
typedef void (*xcclTunerLogger_t)(const char *level, const char *line);

/* The communicator. */
typedef struct xcclTunerComm {
    size_t size;
    uint64_t commId; /* equal on all ranks */
    int32_t nranks;
    int32_t nnodes; /* hosts */
    int32_t minRanksPerNode, maxRanksPerNode;
    int32_t allLocal; /* 1: all ranks share memory; 0: some, or all, talk through a network */
    int32_t reserved; /* 0 */
    xcclTunerLogger_t log;
    /* From here on only where size says so. */
    int32_t cores; /* that the ranks may use together; 0: not known, or several hosts */
    int32_t reserved1; /* 0 */
} xcclTunerComm_v1_t;

/* The call. */
typedef struct xcclTunerQuery {
    size_t size;
    const char *collective; /* all_reduce, reduce_scatter, all_gather, broadcast, reduce,
                               alltoall, gather, scatter, barrier */
    uint64_t bytes; /* of the vector (all_reduce, broadcast, reduce), else of one rank's block */
    int32_t elemBytes;
    int32_t root; /* of broadcast, reduce, gather, scatter; else 0 */
} xcclTunerQuery_v1_t;

/* One way of doing it. On entry the first candidate is the built-in choice. What may be edited says
 * so; all the rest is to be left as it is. */
typedef struct xcclTunerCandidate {
    size_t size;
    const char *algorithm; /* as `xccl algo list` has it */
    const char *protocol; /* lines, small or slices: how messages lie in shared memory; over a
                             network slices alone */
    /* Edit: the lowest wins, of equal ones the first. 0 forces; below 0 forbids. On entry 1 for
     * the built-in choice, 2 for each other algorithm in its usual protocol, 3 for its other
     * protocols, until predictions take their place: only their order means something. -1 on
     * entry: it is not to be used here (the algorithm does not serve these ranks, XCCL_ALGO or
     * XCCL_PROTO leave it out), and the cost stays below 0. */
    double cost;
    /* Edit: the parameter of algorithms that have one, as in pat:4; 0 is their own choice. Else
     * from paramMin to paramMax; both 0: it has none. */
    int32_t param, paramMin, paramMax;
    /* Edit, where lanesMax is not 0: independent lanes, from lanesMin to lanesMax; 0 is the
     * algorithm's own choice. No algorithm of this version leaves it open. */
    int32_t lanes, lanesMin, lanesMax;
    /* Edit: the largest piece that a message carries, a multiple of tileAlign from tileMin to
     * tileMax, on entry tileMax. Slots may turn out smaller, which is then the limit. */
    uint64_t tileBytes, tileMin, tileMax, tileAlign;
} xcclTunerCandidate_v1_t;

/* The table. Those that may be NULL say so. */
typedef struct xcclTunerPlugin {
    size_t size;
    const char *name; /* 1 to 31 of a-z 0-9 _ -, a letter first */

    /* A hash of all that answers follow from besides arguments: files, settings. Constant in a
     * process, asked before init; ranks that differ are told so. NULL: there is no such thing. */
    uint64_t (*digest)(void);
    /* A communicator begins: *ctx is what the other entries get. 0: good; else it failed, and
     * nothing is left behind. */
    int32_t (*init)(const xcclTunerComm_v1_t *comm, void **ctx);
    /* 1: candidates were edited; 0: no opinion on this call; below 0: it failed. */
    int32_t (*choose)(void *ctx, const xcclTunerQuery_v1_t *query,
                      xcclTunerCandidate_v1_t *const *candidates, int32_t count);
    /* The communicator ends, after an init that was good. */
    void (*finalize)(void *ctx);
    /* Why the last entry that failed in this thread did; good until its next call here. NULL: it
     * does not say. */
    const char *(*lastError)(void);
} xcclTunerPlugin_v1_t;

/* The symbol, as a plugin defines it:
 *     XCCL_TUNER_EXPORT const xcclTunerPlugin_v1_t xcclTunerPlugin_v1 = {sizeof(...), ...}; */
#if defined(__GNUC__)
#define XCCL_TUNER_EXPORT __attribute__((visibility("default")))
#else
#define XCCL_TUNER_EXPORT
#endif
extern XCCL_TUNER_EXPORT const xcclTunerPlugin_v1_t xcclTunerPlugin_v1;

/* Frozen: these numbers may grow at the end and never change otherwise. */
#if defined(__LP64__) && defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define XCCL_TUNER_FROZEN(what) _Static_assert(what, "a part of the contract")
#elif defined(__LP64__) && defined(__cplusplus) && __cplusplus >= 201103L
#define XCCL_TUNER_FROZEN(what) static_assert(what, "a part of the contract")
#else
#define XCCL_TUNER_FROZEN(what) extern int xcclTunerFrozen
#endif
XCCL_TUNER_FROZEN(offsetof(xcclTunerComm_v1_t, commId) == 8);
XCCL_TUNER_FROZEN(offsetof(xcclTunerComm_v1_t, allLocal) == 32);
XCCL_TUNER_FROZEN(offsetof(xcclTunerComm_v1_t, log) == 40);
XCCL_TUNER_FROZEN(offsetof(xcclTunerComm_v1_t, cores) == 48);
XCCL_TUNER_FROZEN(offsetof(xcclTunerQuery_v1_t, collective) == 8);
XCCL_TUNER_FROZEN(offsetof(xcclTunerQuery_v1_t, bytes) == 16);
XCCL_TUNER_FROZEN(offsetof(xcclTunerQuery_v1_t, root) == 28);
XCCL_TUNER_FROZEN(offsetof(xcclTunerCandidate_v1_t, algorithm) == 8);
XCCL_TUNER_FROZEN(offsetof(xcclTunerCandidate_v1_t, cost) == 24);
XCCL_TUNER_FROZEN(offsetof(xcclTunerCandidate_v1_t, param) == 32);
XCCL_TUNER_FROZEN(offsetof(xcclTunerCandidate_v1_t, lanesMax) == 52);
XCCL_TUNER_FROZEN(offsetof(xcclTunerCandidate_v1_t, tileBytes) == 56);
XCCL_TUNER_FROZEN(offsetof(xcclTunerCandidate_v1_t, tileAlign) == 80);
XCCL_TUNER_FROZEN(offsetof(xcclTunerPlugin_v1_t, name) == 8);
XCCL_TUNER_FROZEN(offsetof(xcclTunerPlugin_v1_t, choose) == 32);
XCCL_TUNER_FROZEN(offsetof(xcclTunerPlugin_v1_t, lastError) == 48);
#undef XCCL_TUNER_FROZEN

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* The contract between XCCL and an algorithm plugin, version 1.
 *
 * A plugin is a shared library libxccl-algo-NAME.so that exports one data symbol,
 * xcclAlgoPlugin_v1, a constant xcclAlgoPlugin_v1_t. It links against nothing of XCCL, and nothing
 * runs when it is loaded. XCCL_ALGO_PLUGIN names it. examples/algo-hello is a complete one. */
#ifndef XCCL_ALGO_H
#define XCCL_ALGO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What an algorithm is. It moves no data: for one rank at a time it says which steps that rank does
 * in a collective, once for all sizes and types. It has three stages:
 *
 *   match      serves(): is it for so many ranks?
 *   resources  connections, scratch memory and slots. Nobody states them: the proof finds them.
 *   emit       emit(): lanes, connections and steps, by calls of the builder that it is given.
 *
 * Before anything runs, XCCL has it emit for all ranks of the communicator and proves that it ends
 * for messages of any size, loses and mixes up nothing, and gives the right result. What is wrong
 * is refused, with the smallest counter-example: which rank, step and chunk. An algorithm that was
 * taken is asked for by its name like a built-in one, also inside of hierarchies.
 *
 *   xccl algo verify --plugin ./libxccl-algo-mine.so -n 1..16      proves it
 *   xccl algo show NAME --plugin ./libxccl-algo-mine.so -n 4       shows what each rank does
 *
 * How it grows: every struct that stands alone begins with its size in bytes, set by whoever fills
 * it. Fields and entries are only ever appended, none is moved, renamed or given another meaning. A
 * reader looks at no field beyond the other side's size. A step that is longer than XCCL knows,
 * with something else than zeros there, is an error; all other structs may be longer.
 *
 * Rules:
 *
 *  1. All functions of a plugin are pure: the same arguments give the same schedule, in each
 *     process of the job, on each call. They look at nothing but their arguments, call nothing of
 *     XCCL but the builder, and change nothing of the process.
 *  2. They may be called by several threads at the same time.
 *  3. A builder, and everything that is given to a function, is good until that function returns,
 *     and for that thread alone. What the plugin gives to the builder is copied.
 *  4. Errors stay in the builder: after the first one its calls do nothing, so emit need not look.
 *     The error names algorithm, rank and step, and refuses the algorithm for this communicator.
 *  5. Once loaded, a plugin stays until the process ends. */

/* The first five have NCCL's numbers, as tuners know them. */
typedef enum {
    xcclAlgoBroadcast = 0,
    xcclAlgoReduce = 1,
    xcclAlgoAllGather = 2,
    xcclAlgoReduceScatter = 3,
    xcclAlgoAllReduce = 4,
    xcclAlgoAllToAll = 5,
    xcclAlgoGather = 6,
    xcclAlgoScatter = 7,
    xcclAlgoBarrier = 8
} xcclAlgoColl_t;

/* The vector is cut into chunks, as many as the algorithm wants (xcclAlgorithm_v1_t.chunks) and as
 * large as they come out; a tile is a part of all chunks that is under way together. These buffers
 * have, in chunks of a vector of c (n is the number of ranks):
 *
 *                     In               Out              c must be
 *   all-reduce        c                c                any number
 *   broadcast         c, root alone    c                any number
 *   reduce            c                c, root alone    any number
 *   all-gather        1                c                n
 *   reduce-scatter    c                1                n
 *   all-to-all        c                c                n; In: by receiver, Out: by sender
 *   gather            1                c, root alone    n
 *   scatter           c, root alone    1                n
 *   barrier           0                0                any number; messages are Zero
 *
 * Scratch has as many as are named. Zero is no memory: a source that is a message without data, a
 * destination by which a message is dropped. In may be the same memory as Out; the proof tries
 * both. */
typedef enum {
    xcclAlgoIn = 0,
    xcclAlgoOut = 1,
    xcclAlgoScratch = 2,
    xcclAlgoZero = 3
} xcclAlgoBuffer_t;

typedef enum { xcclAlgoSend = 0, xcclAlgoRecv = 1 } xcclAlgoDir_t;

/* What a step does: a set of these, of which twelve have a meaning.
 *
 *   SRC | DST                      copies
 *   SRC | SEND                     sends
 *   RECV | DST                     stores what it receives
 *   RECV | SEND                    passes a message on
 *   RECV | DST | SEND              stores and passes it on
 *   SRC | DST | SEND               copies and sends
 *   SRC | RECV | DST               dst = src + message
 *   SRC | RECV | SEND              sends src + message
 *   SRC | RECV | DST | SEND        both
 *   SRC | DST | ACC                dst = dst + src
 *   SRC | RECV | DST | SEND | XCHG         sends src and, beside that, dst = message
 *   SRC | RECV | DST | SEND | XCHG | ACC   the same with dst = dst + message
 *
 * + is the collective's operator. Several messages (a fan) are added one behind the other.
 *
 * Exchanges in a row whose chunks and connections go on by equal numbers become one in which sends
 * may run ahead of receives. Where one sends what the one before it received, make the connections
 * so that the numbers differ, e.g. those to receive from in the opposite order; a mistake here is
 * refused like any other. */
#define XCCL_ALGO_SRC  1
#define XCCL_ALGO_DST  2
#define XCCL_ALGO_RECV 4
#define XCCL_ALGO_SEND 8
#define XCCL_ALGO_ACC  16
#define XCCL_ALGO_XCHG 32

/* Collectives that reduce use PRE and POST, the others neither. PRE: what is read from the source
 * is this rank's own contribution, as the user gave it. POST: what is stored is the final sum. Each
 * contribution has one PRE and each result one POST on its way. ORDERED:
 * messages of a fan and the source are added in order of rank, this rank's at its own place; the
 * fan is in rising order of peers. SIGNAL: waits of other lanes ask for this step, by its sig. */
#define XCCL_ALGO_PRE     1
#define XCCL_ALGO_POST    2
#define XCCL_ALGO_ORDERED 4
#define XCCL_ALGO_SIGNAL  8

/* As nrecv or nsend: all connections from the first one on that are of its group. */
#define XCCL_ALGO_FAN_ALL   15
#define XCCL_ALGO_WAITS_MAX 3

/* Chunks of one side of a step: count entries of list, or, where list is NULL, first, first +
 * stride, first + 2 * stride and so on. Those of In and Out count modulo the buffer's number of
 * chunks, whatever the sign. This struct does not grow. */
typedef struct xcclAlgoChunks {
    int32_t buffer; /* xcclAlgoBuffer_t */
    int32_t count, first, stride;
    const uint16_t *list;
} xcclAlgoChunks_t;

/* Until the step with that sig, of another lane of the same rank, is done in the tile dist before
 * this one. This struct does not grow. */
typedef struct xcclAlgoWait {
    int32_t lane, dist, sig;
} xcclAlgoWait_t;

/* One step. Only the fields that op names count. Both sides have the same number of chunks, all of
 * which the step does one behind the other; an exchange may send and receive different numbers. */
typedef struct xcclAlgoStep {
    size_t size;
    uint32_t op, flags; /* XCCL_ALGO_SRC and so on; XCCL_ALGO_PRE and so on */
    xcclAlgoChunks_t src, dst;
    int32_t rconn, nrecv; /* first connection to receive from, and how many: 1 to 14 or FAN_ALL */
    int32_t sconn, nsend; /* the same for sending: each gets the value */
    int32_t sig; /* 0 to 65535, with SIGNAL */
    int32_t nwaits;
    xcclAlgoWait_t waits[XCCL_ALGO_WAITS_MAX];
    int32_t reserved; /* 0 */
} xcclAlgoStep_v1_t;

struct xcclAlgorithm;

/* What a function of a plugin is asked for. */
typedef struct xcclAlgoFor {
    size_t size;
    const struct xcclAlgorithm *algorithm; /* the plugin's own: one function may serve several */
    int32_t nranks, rank;
    int32_t root; /* of broadcast, reduce, gather, scatter; else 0 */
    int32_t reserved; /* 0 */
} xcclAlgoFor_v1_t;

/* The builder, as emit gets it: build->step(build, lane, &step). */
typedef struct xcclAlgoBuilder {
    size_t size;

    /* A new lane; its number, 0 first. A lane runs its steps in order for each tile, and the lanes
     * of a rank run side by side. Most algorithms have one. */
    int32_t (*lane)(const struct xcclAlgoBuilder *build);
    /* A new connection of the last lane, to or from that rank; its number in the lane, 0 first. It
     * is of the group of the one before when sameGroup is not 0: a fan is connections of one group
     * that were made one behind the other. Both ends make it, with the same id, which tells
     * connections between the same two ranks apart. Messages arrive in the order in which they were
     * sent on it. */
    int32_t (*conn)(const struct xcclAlgoBuilder *build, int32_t lane, xcclAlgoDir_t dir,
                    int32_t peer, int32_t id, int32_t sameGroup);
    /* The next step of a lane, over connections that it has. */
    void (*step)(const struct xcclAlgoBuilder *build, int32_t lane, const xcclAlgoStep_v1_t *step);
    /* Gives up, for a reason of the algorithm's own. */
    void (*fail)(const struct xcclAlgoBuilder *build, const char *why);
    /* 1 after the first error: a long loop may end. */
    int32_t (*failed)(const struct xcclAlgoBuilder *build);
} xcclAlgoBuilder_v1_t;

/* One algorithm of one collective. */
typedef struct xcclAlgorithm {
    size_t size;
    const char *name; /* 1 to 31 of a-z 0-9 _ -, a letter first; not one that the collective has */
    const char *help; /* one line for `xccl algo list`, up to 120 characters of ASCII */
    int32_t coll; /* xcclAlgoColl_t */
    int32_t scrbufs; /* scratch memories by which tiles may overlap, up to 16; 0: 1 */
    /* Emits the steps of what->rank. Only for numbers of ranks that it serves. */
    void (*emit)(const xcclAlgoBuilder_v1_t *build, const xcclAlgoFor_v1_t *what);
    /* 1: it is for so many ranks and this root; what->rank is any. NULL: for all. */
    int32_t (*serves)(const xcclAlgoFor_v1_t *what);
    /* Chunks of the whole vector, 1 to 65535, the same for each rank. NULL: one a rank. */
    int32_t (*chunks)(const xcclAlgoFor_v1_t *what);
    const void *user; /* the plugin's own */
} xcclAlgorithm_v1_t;

typedef struct xcclAlgoPlugin {
    size_t size;
    const char *name; /* of the plugin, as an algorithm's */
    int32_t count; /* of algorithms: 1 or more */
    int32_t reserved; /* 0 */
    const xcclAlgorithm_v1_t *const *algorithms;
} xcclAlgoPlugin_v1_t;

/* The symbol, as a plugin defines it:
 *     XCCL_ALGO_EXPORT const xcclAlgoPlugin_v1_t xcclAlgoPlugin_v1 = {sizeof(...), ...}; */
#if defined(__GNUC__)
#define XCCL_ALGO_EXPORT __attribute__((visibility("default")))
#else
#define XCCL_ALGO_EXPORT
#endif
extern XCCL_ALGO_EXPORT const xcclAlgoPlugin_v1_t xcclAlgoPlugin_v1;

/* Frozen: these numbers may grow at the end and never change otherwise. */
#if defined(__LP64__) && defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define XCCL_ALGO_FROZEN(what) _Static_assert(what, "a part of the contract")
#elif defined(__LP64__) && defined(__cplusplus) && __cplusplus >= 201103L
#define XCCL_ALGO_FROZEN(what) static_assert(what, "a part of the contract")
#else
#define XCCL_ALGO_FROZEN(what) extern int xcclAlgoFrozen
#endif
XCCL_ALGO_FROZEN(sizeof(xcclAlgoChunks_t) == 24);
XCCL_ALGO_FROZEN(sizeof(xcclAlgoWait_t) == 12);
XCCL_ALGO_FROZEN(offsetof(xcclAlgoStep_v1_t, src) == 16);
XCCL_ALGO_FROZEN(offsetof(xcclAlgoStep_v1_t, dst) == 40);
XCCL_ALGO_FROZEN(offsetof(xcclAlgoStep_v1_t, rconn) == 64);
XCCL_ALGO_FROZEN(offsetof(xcclAlgoStep_v1_t, sig) == 80);
XCCL_ALGO_FROZEN(offsetof(xcclAlgoStep_v1_t, waits) == 88);
XCCL_ALGO_FROZEN(offsetof(xcclAlgoStep_v1_t, reserved) == 124);
XCCL_ALGO_FROZEN(offsetof(xcclAlgoFor_v1_t, nranks) == 16);
XCCL_ALGO_FROZEN(offsetof(xcclAlgoFor_v1_t, root) == 24);
XCCL_ALGO_FROZEN(offsetof(xcclAlgoBuilder_v1_t, lane) == 8);
XCCL_ALGO_FROZEN(offsetof(xcclAlgoBuilder_v1_t, failed) == 40);
XCCL_ALGO_FROZEN(offsetof(xcclAlgorithm_v1_t, coll) == 24);
XCCL_ALGO_FROZEN(offsetof(xcclAlgorithm_v1_t, emit) == 32);
XCCL_ALGO_FROZEN(offsetof(xcclAlgorithm_v1_t, user) == 56);
XCCL_ALGO_FROZEN(offsetof(xcclAlgoPlugin_v1_t, algorithms) == 24);
XCCL_ALGO_FROZEN(xcclAlgoBarrier == 8 && xcclAlgoZero == 3 && xcclAlgoRecv == 1);
#undef XCCL_ALGO_FROZEN

#ifdef __cplusplus
}
#endif
#endif

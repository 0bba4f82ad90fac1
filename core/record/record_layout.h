/* SPDX-License-Identifier: BSD-3-Clause */
/* The record file, as it lies on tmpfs (README.md): a head of one page, then blocks of equal size,
 * one for each communicator of the process. All numbers are little-endian and have their natural
 * alignment; texts end with 0. One thread at a time writes a block, without locks: the crank's
 * holder, and before the first call the thread that joins. Only error and state have writers of
 * their own. Readers are other processes, who get what was there at the time; an event that is
 * being written has the number 0.
 *
 * A new meaning of a byte is a new version. Thread: see each part. */
#ifndef XCCL_RECORD_RECORD_LAYOUT_H
#define XCCL_RECORD_RECORD_LAYOUT_H

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define XCCL_RECORD_MAGIC   0x314345524c434358ull /* "XCCLREC1" */
#define XCCL_RECORD_VERSION 6u
/* Since version 2 there are labels, 3 ways, 4 cards, 5 kinds of errors, 6 algorithms and order. */
#define XCCL_RECORD_PAGE        4096u
#define XCCL_RECORD_BLOCKS_MAX  64u
#define XCCL_RECORD_EVENTS_MIN  64u
#define XCCL_RECORD_EVENTS_MAX  (1u << 20)
#define XCCL_RECORD_TEXT_BYTES  512u
#define XCCL_RECORD_KIND_BYTES  24u
#define XCCL_RECORD_NAME_BYTES  64u
#define XCCL_RECORD_LABEL_BYTES 128u
#define XCCL_RECORD_CARDS_BYTES 128u
#define XCCL_RECORD_ORDER_BYTES 128u
#define XCCL_RECORD_ALGO_BYTES  16u
#define XCCL_RECORD_ALGOS       3u /* of a row */
#define XCCL_RECORD_WAYS        16u
#define XCCL_RECORD_ENDS_BYTES  64u
#define XCCL_RECORD_WHY_BYTES   176u

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is written as memory has it");

/* Rows of counters: the collective's number (schedule/schedule.h), and two of their own. */
#define XCCL_RECORD_ROWS 16u
#define XCCL_RECORD_P2P  9u /* in events: a group of sends and receives; it has no row */
#define XCCL_RECORD_SEND 14u
#define XCCL_RECORD_RECV 15u

/* What ticks are. */
enum xccl_record_clock {
    XCCL_RECORD_MONOTONIC = 1, /* nanoseconds of CLOCK_MONOTONIC */
    XCCL_RECORD_TSC = 2, /* cycles of an invariant time stamp counter */
};

/* One moment on three clocks. */
struct xccl_record_mark {
    uint64_t tick, mono_ns, real_ns;
};

/* The first page. Written when the file is made, but for blocks and marks, which change under the
 * process's lock. */
struct xccl_record_head {
    uint64_t magic;
    uint32_t version, head_bytes;
    uint32_t block_bytes, events; /* events: of a block, a power of two */
    _Atomic uint32_t blocks; /* that the file holds; release: they are zeroed or filled */
    uint32_t clock; /* enum xccl_record_clock */
    uint32_t pid, uid;
    uint64_t boot_hash; /* of the system's boot: its clocks can be asked while it is equal */
    /* marks[0] was taken at the beginning. marks[last] is the newest: written, then told of. */
    _Atomic uint32_t last;
    uint32_t reserved;
    struct xccl_record_mark marks[3];
    char host[XCCL_RECORD_NAME_BYTES], program[XCCL_RECORD_NAME_BYTES];
    char writer[16]; /* version of libxccl */
};
static_assert(sizeof(struct xccl_record_head) <= XCCL_RECORD_PAGE, "the head is one page");
static_assert(offsetof(struct xccl_record_head, marks) == 56, "as README.md says");

enum xccl_record_state {
    XCCL_RECORD_FREE = 0, /* nothing in the block is of any use */
    XCCL_RECORD_JOINING = 1,
    XCCL_RECORD_READY = 2, /* in a call, or between calls */
    XCCL_RECORD_LEFT = 3, /* destroyed in order; the block waits for another communicator */
    XCCL_RECORD_STATE_END
};

/* Counters of one collective: each only grows, but for a new communicator. USER bytes: what the
 * program hands over or gets, as `xccl perf` counts sizes. WIRE bytes: payload that crossed links,
 * to ranks of the own host (NEAR) or of others (FAR). What is multicast is sent once. */
struct xccl_record_row {
    _Atomic uint64_t issued_calls, issued_bytes, done_calls, done_bytes;
    _Atomic uint64_t sent_near, sent_far, received_near, received_far;
};
static_assert(sizeof(struct xccl_record_row) == 64, "one collective, one line");

enum xccl_record_kind {
    XCCL_RECORD_ISSUED = 1, /* value: count; call: which one */
    XCCL_RECORD_DONE = 2, /* value: count; call: which one */
    XCCL_RECORD_FAILED = 3, /* value: the result; call: which one */
    XCCL_RECORD_PLANNED = 4, /* a plan is new to this communicator; value: its tiles */
    XCCL_RECORD_LINKED = 5, /* value: peer << 32 | far << 1 | sends */
    XCCL_RECORD_PHASE = 6, /* of joining, begun; value: its number */
    XCCL_RECORD_JOINED = 7,
    XCCL_RECORD_SPLIT = 8, /* value: the color */
    XCCL_RECORD_LEAVING = 9,
    XCCL_RECORD_KIND_END
};

/* number << 8 | kind; numbers count from 1, and event n lies at (n - 1) mod events. Order of
 * writing: word = 0, the others, word. Release each, so that whoever sees a new field beside the
 * old word sees the 0 when he looks at the word again. */
struct xccl_record_event {
    _Atomic uint64_t word;
    _Atomic uint64_t tick; /* 0: no clock was read; it lies between its neighbours */
    _Atomic uint64_t value;
    _Atomic uint64_t call; /* 0: of none */
};
static_assert(sizeof(struct xccl_record_event) == 32, "an event is 32 bytes");

/* A call in a word: its number's low half << 32 | root << 16 | there is one << 15 | sizes << 14 |
 * row << 8 | type << 4 | operator (that of the program: all have xcclNumOps). */
#define XCCL_RECORD_CALL     (1ull << 15)
#define XCCL_RECORD_SIZED    (1ull << 14)
#define XCCL_RECORD_ROW_MASK 0x1fu

static inline uint64_t xccl_record_call_word(uint64_t seq, uint32_t row, uint32_t type, uint32_t op,
                                             uint32_t root)
{
    return seq << 32 | (uint64_t)(root & 0xffff) << 16 | XCCL_RECORD_CALL | (uint64_t)row << 8 |
           (uint64_t)type << 4 | op;
}

/* How links of a CUDA communicator lead to their peers. */
enum xccl_record_way_kind {
    XCCL_RECORD_WAY_NONE = 0, /* the row is free */
    XCCL_RECORD_WAY_SAME_DEVICE = 1,
    XCCL_RECORD_WAY_PEER_ACCESS = 2,
    XCCL_RECORD_WAY_HANDLE = 3, /* of another process, by a cuMem handle */
    XCCL_RECORD_WAY_IPC = 4, /* likewise, by legacy IPC */
    XCCL_RECORD_WAY_PINNED = 5,
    XCCL_RECORD_WAY_NET_DEVICE = 6, /* over a network, slots in device memory */
    XCCL_RECORD_WAY_NET_PINNED = 7,
    XCCL_RECORD_WAY_OTHER = 8, /* there are more ways than rows */
    XCCL_RECORD_WAY_FABRIC = 9, /* of another process, by a fabric handle */
    XCCL_RECORD_WAY_END
};

/* One way and why it is no better one, with the peers of links that go it. Links come one by one,
 * and the texts grow meanwhile: a reader may see an older list of peers. */
struct xccl_record_way {
    _Atomic uint32_t kind; /* release: its texts. Pairs with nothing: a reader copies. */
    uint32_t reserved[3];
    char to[XCCL_RECORD_ENDS_BYTES]; /* ranks: "1-3,7"; what has no room ends with ".." */
    char from[XCCL_RECORD_ENDS_BYTES];
    char why[XCCL_RECORD_WHY_BYTES]; /* "": nothing better is known */
};
static_assert(sizeof(struct xccl_record_way) == 320, "a way is 320 bytes");

/* An algorithm that plans of a collective run, and for which bytes of calls. One field after the
 * other is written: a reader may see a name without its bytes. */
struct xccl_record_algo {
    char name[XCCL_RECORD_ALGO_BYTES]; /* maybe cut short; "": the row is free */
    uint64_t least, most;
};
static_assert(sizeof(struct xccl_record_algo) == 32, "an algorithm is 32 bytes");

/* One communicator. */
struct xccl_record_block {
    /* Changes with the phases of its life. */
    _Atomic uint32_t state; /* release: what it speaks of. Pairs with nothing: a reader copies. */
    _Atomic uint32_t phase; /* of joining, from 0 */
    uint32_t rank, nranks; /* of a split known when it has found its ranks */
    uint32_t near_ranks, reserved; /* ranks of this host, itself included; 0: not known yet */
    uint64_t join_tick;
    uint8_t id[16];
    char name[XCCL_RECORD_NAME_BYTES]; /* of config.commName; "": none */
    char phase_name[24];
    /* The first error, by whoever raised it: all else, then the result with release. */
    _Atomic uint32_t error;
    int32_t error_finder; /* the rank that found it; -1: not known */
    _Atomic uint64_t error_tick;
    char error_text[XCCL_RECORD_TEXT_BYTES];
    int32_t error_culprit; /* the rank to blame; -1: none, several, or not known */
    uint32_t error_remedy; /* where the text says what to do; 0: not known */
    char error_kind[XCCL_RECORD_KIND_BYTES]; /* a word of verdict/verdict.def; "": not known */
    /* The call at work. current: as xccl_record_call_word, 0: outside of calls. tick: when it
     * began, as far as a clock was read, else 0; seen_tick: the last time that it was seen to wait.
     */
    alignas(64) _Atomic uint64_t current;
    _Atomic uint64_t current_count, current_tick, seen_tick;
    _Atomic uint64_t failed_calls;
    alignas(64) struct xccl_record_row rows[XCCL_RECORD_ROWS];
    char labels[XCCL_RECORD_LABEL_BYTES]; /* of config.commLabels, between commas; "": none */
    struct xccl_record_way ways[XCCL_RECORD_WAYS]; /* of a CUDA communicator; by who makes links */
    /* Way to other hosts: plugin, network cards and protection (XCCL_NET_ENCRYPT), such as "socket
     * eth0+eth1 (encrypted)"; "": none. */
    char cards[XCCL_RECORD_CARDS_BYTES];
    struct xccl_record_algo algos[XCCL_RECORD_ROWS][XCCL_RECORD_ALGOS];
    /* Ranks in the order of rings, chains and trees, a bar between hosts: "0,2,4 | 1,3,5"; what has
     * no room ends with "..". "": by number. */
    char order[XCCL_RECORD_ORDER_BYTES];
    alignas(64) struct xccl_record_event events[]; /* head.events of them */
};
static_assert(offsetof(struct xccl_record_block, id) == 32, "as README.md says");
static_assert(offsetof(struct xccl_record_block, error) == 136, "as README.md says");
static_assert(offsetof(struct xccl_record_block, error_culprit) == 664, "as README.md says");
static_assert(offsetof(struct xccl_record_block, current) == 704, "as README.md says");
static_assert(offsetof(struct xccl_record_block, rows) == 768, "as README.md says");
static_assert(offsetof(struct xccl_record_block, labels) == 1792, "as README.md says");
static_assert(offsetof(struct xccl_record_block, ways) == 1920, "as README.md says");
static_assert(offsetof(struct xccl_record_block, cards) == 7040, "as README.md says");
static_assert(offsetof(struct xccl_record_block, algos) == 7168, "as README.md says");
static_assert(offsetof(struct xccl_record_block, order) == 8704, "as README.md says");
static_assert(offsetof(struct xccl_record_block, events) == 8832, "as README.md says");

/* Whole pages. */
static inline size_t xccl_record_block_bytes(uint32_t events)
{
    size_t bytes = sizeof(struct xccl_record_block) +
                   (size_t)events * sizeof(struct xccl_record_event);

    return (bytes + XCCL_RECORD_PAGE - 1) & ~(size_t)(XCCL_RECORD_PAGE - 1);
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* The communicator: the owner of everything that one rank has in one group of ranks. Made by a
 * table of phases (comm_init.c), which one thread runs side by side for as many ranks as it joins
 * (comm_join.c), used by calls (comm_call.c), ended by destroy or abort, and told of by errors
 * (comm_error.c), of which the first one wins on all ranks.
 *
 * Thread: a call holds the crank; the service thread may touch error and error_text, too. */
#ifndef XCCL_COMM_COMM_H
#define XCCL_COMM_COMM_H

#include <pthread.h>

#include "base/error.h"
#include "base/loop.h"
#include "base/os.h"
#include "bootstrap/bootstrap.h"
#include "comm/comm_error.h"
#include "plan/plan.h"
#include "plugin/net_choose.h"
#include "proxy/crank.h"
#include "transport/shm.h"
#include "xccl.h"

#define XCCL_COMM_MAGIC   0x58434c434f4d4d31ull
#define XCCL_COMM_FORKED  0x58434c464f524b31ull /* in a child: see comm_list.c */
#define XCCL_COMM_FINAL   0x58434c46494e4c31ull /* finalized: only destroy and abort may follow */
#define XCCL_COMM_JOINING 0x58434c4a4f494e31ull /* non-blocking: see enum xccl_join_state */
#define XCCL_NOBODY       (-1)

#define XCCL_NET_LIST_BYTES    512 /* of XCCL_NET_PLUGIN or a config's netName */
#define XCCL_COMM_NAME_BYTES   64 /* of a config's commName */
#define XCCL_COMM_LABELS_BYTES 128 /* of a config's commLabels */

/* How far a non-blocking communicator is. The first call that finds it joined makes its magic that
 * of any other. */
enum xccl_join_state { XCCL_JOIN_ON, XCCL_JOIN_DONE, XCCL_JOIN_FAILED };

/* What every rank tells the others at the beginning. */
struct xccl_peer {
    uint64_t host_hash;
    char host[64];
    uint32_t pid, cores, version;
    uint64_t core_set[XCCL_CORE_WORDS]; /* those it may use */
    uint32_t algo; /* of XCCL_ALGO, XCCL_PROTO, algorithm plugins; equal everywhere */
    uint32_t shm; /* 1: shared memory is allowed */
    uint64_t buffer_bytes;
    struct xccl_addr unix_addr;
    uint64_t netns_hash; /* equal: in one network namespace; 0: not known */
    uint32_t tuner; /* of the tuner plugin; 0: none */
    char tuner_name[32];
    uint32_t direct; /* 1: memory may be read in place */
    uint64_t arena_bytes; /* of the process; 0: there is none to be read in place */
    uint64_t mark_at, mark_word; /* struct xccl_peer_mark of the process; 0: none */
    uint64_t process; /* equal: says that it is in one process; xccl_os_process_id() */
    uint32_t device_kind; /* of device_ops.h; of a CUDA device: */
    uint32_t ordinal; /* its number in the process */
    uint8_t uuid[16]; /* equal: one device */
};

struct xccl_comm_bind; /* comm_bind.c */
struct xccl_registered; /* comm_memory.c */
struct xccl_comm_links; /* comm_links.c */
struct xccl_comm_p2p; /* comm_p2p.c */
struct xccl_comm_progress; /* comm_progress.h */
struct xccl_tuner_library; /* plugin/tuner_library.h */
struct xccl_control; /* control.h */
struct xccl_standstill; /* standstill.h */
struct xccl_record; /* record/record.h */
struct xccl_comm_async; /* comm_async.h */
struct xccl_device_ops; /* device_ops.h */
struct xccl_cuda_comm; /* cuda_device.h */

/* Why a call does not take the short way. */
enum xccl_detour {
    XCCL_DETOUR_GROUP = 1, /* its thread owns another rank of the communicator too */
    XCCL_DETOUR_ASYNC = 2, /* it has been given asynchronous work: there may be some */
    XCCL_DETOUR_DEVICE = 4, /* its device does it: comm->ops */
};

struct xcclComm {
    /* What a call touches first. */
    _Atomic uint64_t magic;
    _Atomic uint32_t error; /* xcclResult_t of the first error; see comm_error.c */
    int rank, nranks;
    uint64_t seq; /* of the last call begun; the crank's holder */
    struct xccl_board *board; /* the own one in shared memory, or a private one */
    struct xccl_crank crank;
    _Atomic uint32_t inside; /* 1: a caller or an aborter is; for shared cranks, comm_progress.c */
    struct xccl_planner planner;
    struct xccl_wait_policy policy;
    uint64_t timeout_ns; /* XCCL_NEVER_NS: none */
    _Atomic uint32_t detour; /* a set of enum xccl_detour */
    int needs_fence; /* the system has no membarrier: see xccl_comm_abort() */
    struct xccl_run run;
    struct xccl_call call; /* of the run, also for error texts */
    uint64_t told_plans; /* planner.plans_made, when the board was told all of it; 0: may not come
                            again */
    struct xccl_run_args args; /* of the run */
    uint64_t signature; /* of the last call; args.mark is that of the calls before it */
    struct xccl_record *record; /* counters and events; NULL: none are kept */
    size_t scratch_bytes; /* behind args.scratch; as much as any plan has asked for */

    /* --- cold: by who writes it --- */

    /* The error word (comm_error.c). */
    pthread_mutex_t error_lock;
    char error_text[XCCL_ERROR_TEXT_BYTES];
    struct xccl_verdict verdict; /* of the error, as far as it is known here */
    _Atomic int has_abort_text; /* 1: it was aborted after it had failed, which is told instead */
    char abort_text[XCCL_ERROR_TEXT_BYTES];
    /* 1: a call has returned the error to the program. Relaxed: only destroy asks, after the calls.
     */
    _Atomic int is_error_told;
    xccl_comm_tell_fn *tell; /* of the control plane, while it is open; NULL: there is none */

    /* The list and registered memory (comm_list.c, comm_memory.c). */
    struct xcclComm *next; /* of this process */
    uint8_t id[16];
    int64_t thread_id; /* that joined */
    struct xccl_board private_board;
    struct xccl_registered *registered; /* buffers */

    /* Joining and leaving (core/join): who the ranks are. */
    char name[XCCL_COMM_NAME_BYTES]; /* for people; "": none */
    char labels[XCCL_COMM_LABELS_BYTES]; /* likewise */
    int device; /* of CUDA, or XCCL_DEVICE_HOST */
    const struct xccl_device_ops *ops; /* of its kind of device; see device_ops.h */
    struct xccl_peer *peers;
    struct xccl_loop *loop; /* the service thread's; NULL: not held */
    struct xccl_bootstrap *boot; /* out of band, until the end */
    struct xccl_shm *shm; /* NULL: no other rank on this host */
    int holds_arena;
    int is_nonblocking; /* 1: calls without a stream are asynchronous too */
    _Atomic uint32_t join_state; /* of a non-blocking one: enum xccl_join_state */
    int holds_thread; /* 1: it has a reference to the progress thread */
    _Atomic int aborted; /* 1: somebody is at it, or it is a shell */
    uint64_t joined_bytes; /* of memory, when it had joined; see comm_usage.h */
    /* What the planner and the tuner need. */
    uint8_t *multicast; /* by rank: shares memory with this one */
    int *nodes; /* by rank: the number of its host */
    uint16_t *order; /* ranks of a host side by side, hosts by number; NULL: that is by number */
    uint32_t slice_bytes; /* of large all-reduces */
    struct xccl_tuner_library *tuner; /* of the process; NULL: none */
    /* Network plugins, none when all ranks are on this host; more than one only when no plugin is
     * common to all ranks. net_list: what was asked for. */
    struct xccl_net *nets[XCCL_NETS_MAX];
    int net_count;
    uint8_t *net_idx; /* by rank */
    uint8_t *net_kind; /* by rank: of the device, enum xccl_net_kind */
    char net_list[XCCL_NET_LIST_BYTES];
    struct xccl_net_watch watch; /* who is inside a plugin; comm_nets.c looks */
    struct xccl_source watch_source;
    uint64_t watch_seen; /* the service thread's */
    int watch_looks;

    /* Delivery for plugins that need it (comm_progress.c); NULL: the plugin delivers by itself. */
    struct xccl_comm_progress *progress;

    /* Who is to blame (core/watch). */
    struct xccl_control *control;
    struct xccl_standstill *still; /* who waits for whom; NULL: too many ranks, or it has left */
    void (*tell_still)(struct xcclComm *comm, const uint8_t *body, size_t bytes); /* with it */
    /* By rank: messages that were sent there so far. NULL: none at all. */
    void (*count_sent)(const struct xcclComm *comm, uint32_t *sent_out);
    int board_next; /* of the others: where to look next; the crank's holder */
    uint64_t left_seen_ns; /* when a rank that left was first missed; 0: none */
    /* 1: others have had their time to say who is to blame. Relaxed: at worst a split of it, which
     * looks from another thread, waits in vain, or not at all. */
    _Atomic int verdict_waited;

    /* Links (core/connect). */
    struct xccl_comm_links *links;
    struct xccl_comm_bind *bind; /* giving a binding its links */

    /* Calls and groups (core/call). */
    struct xccl_comm_p2p *p2p; /* NULL: nothing was sent or received yet */
    int bind_talks; /* 1: an out-of-band operation for a binding is at work */
    int ends_early; /* 1: the last call may have ended before all ranks had begun it */
    int connects; /* enum xccl_connects: the call at work ends when it has its links and plan */
    uint32_t ahead; /* likewise of xccl_task */
    uint32_t left_out; /* by collective: a line told that it cannot be connected */

    /* A CUDA device (core/cuda alone), and asynchronous work (core/stream). */
    struct xccl_cuda_comm *cuda;
    _Atomic(struct xccl_comm_async *) async; /* NULL: it never had asynchronous work */
};

/* Acquire: what was there when it was set, maybe by another thread. */
static inline uint64_t xccl_comm_magic(const struct xcclComm *comm)
{
    return atomic_load_explicit(&comm->magic, memory_order_acquire);
}

/* Release: pairs with xccl_comm_magic(). */
static inline void xccl_comm_set_magic(struct xcclComm *comm, uint64_t magic)
{
    atomic_store_explicit(&comm->magic, magic, memory_order_release);
}

static inline void xccl_comm_set_told(struct xcclComm *comm)
{
    atomic_store_explicit(&comm->is_error_told, 1, memory_order_relaxed);
}

static inline void xccl_comm_set_waited(struct xcclComm *comm, int waited)
{
    atomic_store_explicit(&comm->verdict_waited, waited, memory_order_relaxed);
}

#endif

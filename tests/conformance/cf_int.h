/* SPDX-License-Identifier: BSD-3-Clause */
/* What a case of the suite is made of: the table, the two roles, the calls of the contract with a
 * watch over each, connections, buffers with guards, and the small channel between the roles.
 *
 * A role function returns when all is well. cf_fail() and cf_skip() end the process at once, from
 * any thread; nothing has to be tidied up before. Each case is a pure function of me->seed.
 *
 * Thread: a struct cf belongs to one thread; cf_share() makes one more for another thread. */
#ifndef XCCL_CF_INT_H
#define XCCL_CF_INT_H

#include <stdatomic.h>

#include "conformance.h"
#include "plugin/net_plugin.h"

#define CF_SINGLE     XCCL_CONFORMANCE_SINGLE
#define CF_THREADS    XCCL_CONFORMANCE_THREADS
#define CF_PROCESSES  XCCL_CONFORMANCE_PROCESSES
#define CF_NAMESPACES XCCL_CONFORMANCE_NAMESPACES
#define CF_REMOTE     XCCL_CONFORMANCE_REMOTE /* what has CF_NAMESPACES has this too */
#define CF_PAIRED     (CF_THREADS | CF_PROCESSES | CF_NAMESPACES)

/* Sanitized programs are slower. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CF_SLOW 4
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CF_SLOW 4
#endif
#endif
#ifndef CF_SLOW
#define CF_SLOW 1
#endif

#define CF_MS         1000000ull
#define CF_WAIT_MS    (10000ull * CF_SLOW) /* for what must come, at most */
#define CF_TEXT_BYTES 1500
#define CF_GUARD      64 /* bytes before and after a receive buffer */
#define CF_ROLES      2
/* In the text of a role that saw no more than that the other one was gone. */
#define CF_ENDED_EARLY "the other role has ended early"
/* In that of one that waited for something in vain, and of one that was ended by its deadline. */
#define CF_WAITED "did not happen within"
#define CF_LATE   "did not return in"

enum cf_role { CF_SENDER = 0, CF_RECEIVER = 1 };

enum cf_flag {
    CF_OWN = 1, /* NCCL's contracts cannot keep this rule; the case's `why` says why not */
    CF_UNOPENED = 2, /* the case opens the plugin itself */
    CF_FULL = 4, /* left out by --quick */
    CF_LONG = 8 /* repeats something many times: the last to run where time is limited */
};

struct cf;
typedef void cf_fn(struct cf *me);

struct cf_case {
    const char *name;
    int rule; /* of include/xccl_net.h; 0: the comment of an entry */
    const char *text; /* the rule in short, as the line shows it */
    unsigned forms, flags;
    cf_fn *send, *recv; /* two roles */
    cf_fn *solo; /* one thread, form single */
    const char *why; /* with CF_OWN */
};

extern const struct cf_case cf_cases_life[], cf_cases_device[], cf_cases_sizes[], cf_cases_tags[],
    cf_cases_requests[], cf_cases_threads[], cf_cases_memory[], cf_cases_close[], cf_cases_peer[],
    cf_cases_process[], cf_cases_extras[], cf_cases_onesided[];
/* The tables one after the other; NULL at the end. */
const struct cf_case *cf_case_at(int idx);

/* CF_LEFT_OUT is the runner's only: there was no time to start the case, or to end it. */
enum cf_verdict { CF_NONE = 0, CF_PASSED, CF_FAILED, CF_SKIPPED, CF_NOTED, CF_LEFT_OUT };

/* Memory shared by the runner and the processes of one case. */
struct cf_shared {
    _Atomic int verdict; /* the first one stays */
    _Atomic int text_ready;
    char text[CF_TEXT_BYTES];
    _Atomic(const char *) call[CF_ROLES]; /* the last one */
    _Atomic int in_call[CF_ROLES];
    _Atomic int may_die[CF_ROLES];
    _Atomic int took_long; /* an entry; the runner reads it after the end of the process */
    _Atomic int waited; /* what failed is a wait that came to its end; read likewise */
    _Atomic uint64_t entered_ns[CF_ROLES]; /* when the entry that runs began; 0: none runs */
    /* When an entry that may not wait is overdue beyond doubt; 0: such a one is not running. */
    _Atomic uint64_t overdue_ns[CF_ROLES];
    /* What the first look at the plugin found. */
    char name[64], contract[32], path[512], device[64];
    xcclNetProperties_v1 props; /* without what its pointers point to */
    int dev; /* what all cases use */
};

struct cf {
    const struct cf_case *test;
    const struct xccl_conformance_options *options;
    struct cf_shared *shared;
    struct xccl_net *net;
    xcclNetProperties_v1 props; /* of device dev */
    int dev;
    enum cf_role role;
    unsigned form;
    int own_contract; /* 0: one of NCCL's */
    int channel; /* to the other role; -1 */
    uint64_t seed, random; /* random: where the drawing stands */
    uint64_t max_bytes; /* of this plugin and these options */
    uint64_t largest_bytes; /* of a message of this case so far */
    int quick;
};

/* ---- cf_end.c: how a case ends ---- */

_Noreturn void cf_fail(struct cf *me, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* What the contract of NCCL allows, but an author wants to know. */
_Noreturn void cf_note(struct cf *me, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Reports a breach of a rule that NCCL's contract does not have: a failure, or with a plugin of
 * NCCL's a note. */
_Noreturn void cf_breach(struct cf *me, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void cf_skip(struct cf *me, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Keeps the verdict if it is the first. */
void cf_settle(struct cf_shared *shared, int verdict, const char *text);
/* Fails with the plugin's text unless rc is success. what: "regMr of 1 byte". */
void cf_ok(struct cf *me, xcclResult_t rc, const char *what);
const char *cf_result_name(xcclResult_t rc);
uint64_t cf_now(void); /* ns, while the machine runs (pulse.h) */
void cf_beat(void); /* the runner's, from time to time */
uint64_t cf_random(struct cf *me);
/* bytes, or the largest message where that is smaller. */
size_t cf_at_most(const struct cf *me, size_t bytes);
/* 0 .. below - 1. */
size_t cf_pick(struct cf *me, size_t below);
void cf_sleep_ms(uint64_t ms);
/* A copy of the case for another thread, with random numbers of its own. */
struct cf cf_share(struct cf *me, uint64_t salt);
/* A loop that waits for what must come: cf_turn() gives up the core, moves what the instance owes
 * and fails at the end with "WHAT did not happen in 10 s". */
struct cf_patience {
    uint64_t begin_ns;
    unsigned turns;
    const char *what;
};
struct cf_patience cf_patience(const char *what);
/* How long patience lasts in this process: less than the deadline of the case, and longer for large
 * messages. */
void cf_patience_set(uint64_t timeout_ms);
uint64_t cf_patience_ms(const struct cf *me);
void cf_turn(struct cf *me, struct cf_patience *patience);

/* ---- cf_channel.c: between the roles ---- */

void cf_tell(struct cf *me, const void *data, size_t bytes);
void cf_hear(struct cf *me, void *data, size_t bytes);
/* Both roles have come here. */
void cf_barrier(struct cf *me);

/* ---- cf_call.c: the entries, watched: a call that is left hanging is named by the runner, one
 * that takes long is a failure (rule 1) ---- */

xcclResult_t cf_init(struct cf *me, struct xccl_net **net_out);
void cf_fini(struct cf *me, struct xccl_net *net);
xcclResult_t cf_properties(struct cf *me, int dev, xcclNetProperties_v1 *props);
xcclResult_t cf_listen(struct cf *me, int dev, xcclNetHandle_t *handle,
                       xcclNetListenComm_t *listen);
xcclResult_t cf_connect(struct cf *me, int dev, const xcclNetHandle_t *handle,
                        xcclNetConnect_t *state, xcclNetSendComm_t *comm);
xcclResult_t cf_accept(struct cf *me, xcclNetListenComm_t listen, xcclNetRecvComm_t *comm);
xcclResult_t cf_reg(struct cf *me, void *comm, void *data, size_t bytes, xcclNetMem_t *mem);
xcclResult_t cf_dereg(struct cf *me, void *comm, xcclNetMem_t mem);
xcclResult_t cf_isend(struct cf *me, void *comm, const void *data, size_t bytes, uint32_t tag,
                      xcclNetMem_t mem, xcclNetRequest_t *request);
/* One or many receives at once. */
struct cf_recv {
    int count;
    void *data[XCCL_NET_MAX_RECVS];
    size_t bytes[XCCL_NET_MAX_RECVS];
    uint32_t tags[XCCL_NET_MAX_RECVS];
    xcclNetMem_t mems[XCCL_NET_MAX_RECVS];
};
xcclResult_t cf_irecv(struct cf *me, void *comm, const struct cf_recv *recv,
                      xcclNetRequest_t *request);
xcclResult_t cf_test(struct cf *me, xcclNetRequest_t request, int *done, size_t *bytes);
xcclResult_t cf_close_send(struct cf *me, xcclNetSendComm_t comm);
xcclResult_t cf_close_recv(struct cf *me, xcclNetRecvComm_t comm);
xcclResult_t cf_close_listen(struct cf *me, xcclNetListenComm_t comm);
xcclResult_t cf_close_connect(struct cf *me, xcclNetConnect_t state);
/* Around a call that has no wrapper. cf_enter_short: it may not wait, and the runner may end it
 * when it does. */
uint64_t cf_enter(struct cf *me, const char *call);
uint64_t cf_enter_short(struct cf *me, const char *call);
void cf_leave(struct cf *me, const char *call, uint64_t begin_ns);

/* ---- cf_link.c: connections and transfers ---- */

/* This role's end of one more connection; both roles call it. */
void *cf_open(struct cf *me);
/* Lets what is owed go out, then closes this role's end. */
void cf_close(struct cf *me, void *comm);
/* Calls progress until nothing is pending, at most a second; nothing without needsProgress. */
void cf_drain(struct cf *me);

/* Both ends in one thread. */
struct cf_pair {
    void *send, *recv;
};
void cf_pair_open(struct cf *me, struct cf_pair *pair);
void cf_pair_close(struct cf *me, struct cf_pair *pair);

/* Memory with guards around, known to comm. */
struct cf_buffer {
    char *data;
    size_t bytes;
    xcclNetMem_t mem;
    void *comm;
    char *base; /* as allocated */
    size_t base_bytes;
};
/* shift: how far data is from a 64-byte boundary. Skips the case when there is no memory. */
void cf_buffer_make(struct cf *me, void *comm, size_t bytes, size_t shift,
                    struct cf_buffer *buffer);
void cf_buffer_free(struct cf *me, struct cf_buffer *buffer);
/* Contents that depend on salt and place. */
void cf_fill(char *data, size_t bytes, uint64_t salt);
/* Fails, naming the first wrong byte. what: "message 3". */
void cf_expect(struct cf *me, const char *data, size_t bytes, uint64_t salt, const char *what);
/* What lies around the first `posted` bytes is as it was after cf_buffer_make or cf_wipe. */
void cf_expect_guards(struct cf *me, const struct cf_buffer *buffer, size_t posted,
                      const char *what);
void cf_wipe(struct cf_buffer *buffer);

/* Posts, asking again while it is busy. */
xcclNetRequest_t cf_send_post(struct cf *me, void *comm, const struct cf_buffer *buffer,
                              size_t bytes, uint32_t tag);
xcclNetRequest_t cf_recv_post(struct cf *me, void *comm, const struct cf_buffer *buffer,
                              size_t bytes, uint32_t tag);
xcclNetRequest_t cf_group_post(struct cf *me, void *comm, const struct cf_recv *recv);
/* Is the size that test gave the right one? NCCL needs none, so its plugins may tell none, which
 * is the largest number, or the size that was posted; but nothing smaller. */
int cf_size_is(const struct cf *me, size_t size, size_t bytes);
/* Tests until done; sizes: as test's bytes, at least XCCL_NET_MAX_RECVS, may be NULL. */
void cf_wait(struct cf *me, xcclNetRequest_t request, size_t *sizes, const char *what);
/* Tests a send and its receive in one thread until both are done, without an order between them. */
void cf_wait_both(struct cf *me, xcclNetRequest_t sending, xcclNetRequest_t receiving,
                  size_t *sizes, const char *what);
/* Tests until the request ends with an error, which it gives. Fails when the request is done. */
xcclResult_t cf_wait_error(struct cf *me, xcclNetRequest_t request, const char *what);
/* Whole messages: fills, sends and waits; posts, waits, and compares. */
void cf_send(struct cf *me, void *comm, struct cf_buffer *buffer, size_t bytes, uint64_t salt);
void cf_recv(struct cf *me, void *comm, struct cf_buffer *buffer, size_t bytes, uint64_t salt);
/* Posts a receive and a send, and fills requests by role. Under our contract the receive comes
 * first; under NCCL's it may be busy until the sender asks, so both ends ask in turn. */
void cf_pair_post(struct cf *me, struct cf_pair *pair, const struct cf_recv *to,
                  const struct cf_buffer *from, size_t bytes, xcclNetRequest_t requests[CF_ROLES]);
/* Under NCCL's contract one message, after which a connection takes what one end posts before the
 * other asks; under ours nothing. cf_warm: this role's end, with both roles calling it. */
void cf_pair_warm(struct cf *me, struct cf_pair *pair);
void cf_warm(struct cf *me, void *comm);
/* One message through a pair. */
void cf_pair_pass(struct cf *me, struct cf_pair *pair, size_t bytes, uint64_t salt);

/* ---- cf_world.c: what belongs to the process ---- */

struct cf_world;
struct cf_world *cf_world_take(struct cf *me);
/* Fails naming what differs from before: descriptors, threads, children, files left behind and, if
 * host is set, environment, signal handlers, folder and standard streams. Frees before. */
void cf_world_expect(struct cf *me, struct cf_world *before, int host, const char *when);
size_t cf_heap_bytes(void); /* allocated now */

#endif

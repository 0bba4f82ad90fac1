/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of this plugin share. An instance has a UCX context for networks a device and one
 * for the memory of this host. A comm has a link, which is a UCX worker and its endpoint. Over
 * networks two comms that go opposite ways between the same two instances share one, so whoever
 * touches a link that is shared claims it; it has all that is said below to be with the claim, of
 * both comms. Else threads share nothing but the contexts, which only regMr and deregMr touch after
 * init.
 *
 * Order: a claim before the locks; who has a lock only tries to claim. An instance's devices never
 * change after init. A comm belongs to one thread at a time. */
#ifndef UCX_INT_H
#define UCX_INT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/net_entry.h"
#include "base/netaddr.h"
#include "kit/kit_silent.h"
#include "kit/kit_side.h"
#include "ucx_library.h"
#include "ucx_wire.h"
#include "xccl_net.h"

#define UCX_DEVICES_MAX 16
#define UCX_RECVS       XCCL_NET_MAX_REQUESTS /* requests in flight of a receiver */
#define UCX_PARTS       XCCL_NET_MAX_RECVS /* receives of one of them */
#define UCX_SENDS       (UCX_RECVS * UCX_PARTS) /* in flight of a sender */
#define UCX_MESSAGE_MAX ((size_t)1 << 40)
/* Polls between two looks at the side socket, a system call each: powers of two. A caller that only
 * polls meets some sixty in the time of a small message. */
#define UCX_LOOK_POLLS 1024u
#define UCX_LOOK_WAITS 8u /* in vain, of a caller that sleeps */
#define UCX_LOOK_SENDS 256u /* sends that are done at once, for which nobody polls */
#define UCX_ROOM_FDS   24 /* a worker over tcp takes six, a connection of it two at either end */
#define UCX_ASK_POLLS  32 /* idle polls after which a worker is armed: who asks on pays nothing */
#define UCX_ARM_POLLS  16 /* idle polls after which a worker that is armed is armed anew */
/* The side socket's end may overtake what came before it through UCX. */
#define UCX_GRACE_NS      (XCCL_NS_PER_S / 5)
#define UCX_GRACE_BYE_NS  (2 * XCCL_NS_PER_S)
#define UCX_GRACE_MOST_NS (30 * XCCL_NS_PER_S) /* while what has been promised may come */
#define UCX_LINGER_NS     XCCL_NS_PER_S /* of closed comms, in finalize */

/* A registration, kept once for all who ask for its range. */
struct ucx_mem {
    struct ucx_mem *next;
    struct ucx_home *home;
    char *data;
    size_t bytes;
    int refs;
    ucp_mem_h memh; /* NULL: of zero bytes */
};

/* A UCX context and its registrations. */
struct ucx_home {
    ucp_context_h context; /* NULL: UCX has no such transports here */
    size_t request_bytes; /* of its requests */
    int answers_all; /* messages of any size may be answered to their sender */
    int by_hardware; /* networks that move memory by themselves, so its use must be revoked */
    pthread_mutex_t lock; /* guards mems; never taken on a message's path */
    struct ucx_mem *mems;
};

struct ucx_device {
    char name[UCX_NAME_BYTES];
    char pci_path[256]; /* "" when there is none */
    uint32_t speed_mbps;
    struct xccl_netif netif; /* of side sockets */
    struct ucx_home net;
    struct xccl_net_tally tally;
};

struct ucx_ctx {
    xcclNetLogger_t log;
    struct xccl_addr met; /* by which the ranks have met; bytes 0: not known */
    uint64_t host;
    struct ucx_home shm;
    int device_count;
    struct ucx_device devices[UCX_DEVICES_MAX];
    /* Guards the lists; progress, which nothing runs beside but readers, needs none. */
    pthread_mutex_t lock;
    struct ucx_comm *comms; /* that are up */
    struct ucx_comm *closed; /* whose last sends the peer may not have yet */
    uint64_t instance; /* random, so that peers know whose two connections are */
    int may_share; /* its links */
    pthread_mutex_t links_lock; /* guards what links say; taken inside lock, never the other way */
    struct ucx_link *links; /* that have place for a second comm */
};

/* A worker, its endpoint, and the one or two comms that use them; by is_send. */
struct ucx_link {
    struct ucx_ctx *ctx;
    struct ucx_home *home;
    int may_share; /* else it is one comm's, and the claim is not needed and costs nothing */
    _Atomic int claimed;
    /* With the claim. */
    ucp_worker_h worker; /* NULL: it has ended before its comms */
    ucp_ep_h ep; /* NULL: none yet */
    struct ucx_comm *comms[2];
    struct ucx_comm *parked; /* closed; UCX may still call back about them */
    int armed; /* the worker's descriptor will tell of what comes next */
    int turned; /* by test, since the last turn of progress */
    struct kit_silent crowd; /* at the worker's ports of TCP */
    /* With links_lock. */
    uint64_t id, peer_id, peer_instance; /* peer_id 0: not known yet */
    int refs, places; /* places: that have been taken, one bit each; they never come free */
    struct ucx_link *next, **place; /* in the list of the instance */
};

enum ucx_state { UCX_FREE, UCX_ACTIVE, UCX_DONE };

/* What UCX's callbacks get. */
struct ucx_part {
    struct ucx_request *request;
    size_t bytes; /* room, then what the message has */
};

struct ucx_request {
    struct ucx_comm *comm;
    enum ucx_state state;
    int count;
    int missing; /* parts that are not whole */
    uint32_t running; /* parts that UCX has, one bit each */
    struct ucx_part parts[UCX_PARTS];
};

struct ucx_comm {
    struct ucx_link *link;
    ucp_ep_h ep; /* the link's, or one of its own; NULL: none yet */
    struct ucx_ctx *ctx;
    struct ucx_device *device;
    struct ucx_home *home;
    enum ucx_mode mode;
    int is_send;
    uint64_t tag; /* of tag 0 */
    xcclResult_t rc; /* once set, it stays */
    xcclNetCause_t cause;
    int sys_errno;
    ucs_status_t status; /* UCX's, of the error or of the endpoint */
    int closing; /* callbacks come from requests that end */
    struct ucx_comm *next, **place; /* in the list of the instance; then in that of closed ones */
    /* Sends or answers that are done, that the peer has for certain, that the flush under way is
     * about. */
    uint64_t sent, flushed, flush_covers;
    int flush_runs;
    uint32_t owing; /* turns of progress since the last send */
    uint64_t owing_ns; /* since when */
    uint64_t received; /* messages that have come */
    int polled; /* by test, since the last turn of progress */
    struct xccl_net_counters counters;
    /* The side socket: who the peer is, and whether it is still there. */
    struct kit_side side;
    int gone; /* the peer, or the way to it */
    uint64_t gone_ns; /* since when */
    uint64_t quiet_ns; /* gone: since when nothing has come */
    uint64_t received_then; /* when that was looked at last */
    uint32_t polls, idle; /* all, and those in which nothing moved */
    uint8_t bye[KIT_SEALED(UCX_BYE_BYTES)];
    int bye_known;
    uint64_t bye_sent; /* sends that the peer has called done */
    /* To sleep on: the worker's descriptor, the side socket and a bell. -1: nobody has asked. */
    int wait_fd, bell_fd, bell_rung;
    /* Requests; those of UCX lie in store, stride bytes each, in the same order. */
    int slot_count, free_count;
    uint16_t free_slots[UCX_SENDS];
    size_t stride;
    char *store;
    struct ucx_request *requests;
    char error_text[XCCL_ERROR_TEXT_BYTES];
    char peer_text[XCCL_ADDR_TEXT_BYTES];
};

struct ucx_listen {
    struct ucx_ctx *ctx;
    struct ucx_device *device;
    struct kit_listener door;
    struct ucx_comm *comm; /* of the sender that has proved itself, else NULL */
    size_t out_bytes, out_sent, ready_have;
    uint8_t out[UCX_ANSWER_MAX], ready[KIT_SEALED(UCX_READY_BYTES)];
};

/* A connect under way. */
struct ucx_connect {
    struct ucx_ctx *ctx;
    struct ucx_device *device;
    struct ucx_handle handle;
    enum { UCX_GREET, UCX_HEAD, UCX_ANSWER, UCX_FLUSH, UCX_READY } phase;
    int fd; /* -1: the comm has it, from the answer on */
    struct ucx_comm *comm;
    struct kit_greeting greeting;
    size_t out_bytes;
    uint8_t out[KIT_SEALED(UCX_HELLO_MAX)], in[UCX_ANSWER_MAX];
    struct ucx_hello answer; /* once its head has come */
};

/* ucx_device.c */
xcclResult_t ucx_init(const xcclNetInit_v1 *init, xcclNetContext_t *ctx_out);
xcclResult_t ucx_finalize(xcclNetContext_t ctx);
xcclResult_t ucx_devices(xcclNetContext_t ctx, int *count_out);
xcclResult_t ucx_properties(xcclNetContext_t ctx, int dev, xcclNetProperties_v1 *props);
xcclResult_t ucx_stats(xcclNetContext_t ctx, int dev, xcclNetStats_v1 *stats);
/* NULL after an error when there is no such device. */
struct ucx_device *ucx_device_get(struct ucx_ctx *ctx, int dev);
/* Transports of a device, one bit a mode. */
uint32_t ucx_device_modes(const struct ucx_ctx *ctx, const struct ucx_device *device);

/* ucx_context.c */
struct ucx_survey {
    char tls[UCX_MODES][512]; /* names, separated by commas */
    int device_count;
    char devices[UCX_DEVICES_MAX][UCX_NAME_BYTES]; /* of networks, lo last */
};
/* An error where descriptors run short: UCX asserts that it gets them, some in its own thread. */
xcclResult_t ucx_room(void);
/* What UCX has here, under the settings. None at all is no error. */
xcclResult_t ucx_survey_make(struct ucx_survey *survey_out);
/* tls: names as above, of that mode; device: NULL for all. */
xcclResult_t ucx_home_open(struct ucx_home *home, enum ucx_mode mode, const char *tls,
                           const char *device);
void ucx_home_close(struct ucx_home *home);

/* ucx_connect.c, ucx_listen.c */
xcclResult_t ucx_connect(xcclNetContext_t ctx, int dev, const xcclNetHandle_t *handle,
                         xcclNetConnect_t *state, xcclNetSendComm_t *comm_out);
xcclResult_t ucx_close_connect(xcclNetContext_t ctx, xcclNetConnect_t state);
xcclResult_t ucx_listen(xcclNetContext_t ctx, int dev, xcclNetHandle_t *handle_out,
                        xcclNetListenComm_t *listen_out);
xcclResult_t ucx_close_listen(xcclNetListenComm_t listen);
xcclResult_t ucx_accept(xcclNetListenComm_t listen, xcclNetRecvComm_t *comm_out);

/* ucx_link.c */
/* Gives the comm a link: one that waits for a second comm to the same instance, or a new one.
 * hello: the sender's, at the receiver; NULL at the sender, where instance is the receiver's. The
 * caller has no claim. */
xcclResult_t ucx_link_take(struct ucx_comm *comm, uint64_t instance, const struct ucx_hello *hello);
/* All of these need the claim. */
xcclResult_t ucx_link_hello(struct ucx_comm *comm, uint8_t bytes_out[UCX_HELLO_MAX],
                            size_t *bytes_out_count);
/* An endpoint for what the other end's hello says. */
xcclResult_t ucx_link_join(struct ucx_comm *comm, const struct ucx_hello *hello,
                           const uint8_t *address);
/* Nobody shall come to it any more: one of its comms is about to close. */
void ucx_link_shut(struct ucx_link *link);
/* Gives the comm's memory back, at once or when UCX has forgotten it; the claim is gone then. A
 * transfer in the middle ends the link, and so the other comm: UCX cannot take back memory
 * otherwise. */
void ucx_link_leave(struct ucx_comm *comm);
/* One turn of the worker; what has moved. */
static inline unsigned ucx_link_turn(const struct ucx_link *link)
{
    return link->worker ? ucx.worker_progress(link->worker) : 0;
}
/* Something has moved: whoever sleeps on the other comm shall look. */
void ucx_link_moved(struct ucx_comm *by);

/* Acquire: what who had it before us has done. 0: somebody has it. */
static inline int ucx_link_claim(struct ucx_link *link)
{
    return !link->may_share || !atomic_exchange_explicit(&link->claimed, 1, memory_order_acquire);
}
/* Claims the link, waiting for its holder. That is short: a holder never waits for anything. */
void ucx_link_claim_wait(struct ucx_link *link);
/* Release: pairs with the next claim. */
static inline void ucx_link_give(struct ucx_link *link)
{
    if (link->may_share)
        atomic_store_explicit(&link->claimed, 0, memory_order_release);
}

/* ucx_comm.c */
/* Without a link, for ucx_link_take. */
xcclResult_t ucx_comm_create(struct ucx_ctx *ctx, struct ucx_device *device, enum ucx_mode mode,
                             int is_send, struct ucx_comm **comm_out);
/* Both ends have proved themselves: the keys of seals and tags. */
void ucx_comm_prove(struct ucx_comm *comm, const struct kit_proof *proof);
/* Takes fd, the side socket. */
void ucx_comm_side(struct ucx_comm *comm, int fd, const struct xccl_addr *peer);
/* Gives back all but the comm itself. */
void ucx_comm_strip(struct ucx_comm *comm);
/* UCX says that the way to the peer has broken. */
void ucx_comm_cut(struct ucx_comm *comm, ucs_status_t status);
/* From now on progress looks after it. */
void ucx_comm_up(struct ucx_comm *comm);
xcclResult_t ucx_close_comm(void *comm);
/* Asks after closed comms, up to limit_ns. */
void ucx_closed_sweep(struct ucx_ctx *ctx, uint64_t limit_ns);
/* The first error of a comm: the thread's error text becomes its own. */
void ucx_comm_fail(struct ucx_comm *comm, xcclNetCause_t cause, xcclResult_t rc);
/* Fails the comm with a status of UCX, if it has not failed before. */
void ucx_comm_fail_status(struct ucx_comm *comm, ucs_status_t status);
xcclResult_t ucx_comm_error(const struct ucx_comm *comm);
/* Is the peer still there? */
void ucx_comm_look_now(struct ucx_comm *comm, int moved);
xcclResult_t ucx_wait_fd(void *comm, int *fd_out);
/* Makes the descriptor tell of what comes from now on. */
void ucx_comm_arm(struct ucx_comm *comm);
/* Wakes who sleeps on it. */
void ucx_comm_ring(struct ucx_comm *comm);
xcclResult_t ucx_error_detail(void *comm, xcclNetError_v1 *error);

/* ucx_memory.c */
xcclResult_t ucx_reg_mr(void *comm, void *data, size_t bytes, uint32_t type, xcclNetMem_t *mem_out);
xcclResult_t ucx_dereg_mr(void *comm, xcclNetMem_t mem);

/* ucx_request.c */
xcclResult_t ucx_isend(xcclNetSendComm_t comm, const void *data, size_t bytes, uint32_t tag,
                       xcclNetMem_t mem, xcclNetRequest_t *request_out);
xcclResult_t ucx_irecv(xcclNetRecvComm_t comm, int count, void *const *data, const size_t *bytes,
                       const uint32_t *tags, const xcclNetMem_t *mems,
                       xcclNetRequest_t *request_out);
xcclResult_t ucx_test(xcclNetRequest_t request, int *done_out, size_t *bytes_out);
xcclResult_t ucx_progress(xcclNetContext_t ctx, int *pending_out);
/* One turn of the comm's worker; how much has moved. */
unsigned ucx_comm_poll(struct ucx_comm *comm);
/* Asks whether the peer has all sends so far. 1: it has. */
int ucx_comm_flush(struct ucx_comm *comm);
/* Ends what UCX still has of the comm's requests, but for transfers under way. */
void ucx_requests_cancel(struct ucx_comm *comm);
/* 1: UCX has requests of the comm, so memory of the user. */
int ucx_requests_run(const struct ucx_comm *comm);

/* After a poll in which something moved, or nothing. Whoever sleeps comes seldom, and the end of
 * the side socket wakes him again and again. The other comm of the link may move without an end, so
 * the side socket is looked at whatever moves. */
static inline void ucx_comm_look(struct ucx_comm *comm, int moved)
{
    comm->polls++;
    if (moved)
        comm->idle = 0;
    else
        comm->idle++;
    if (comm->gone || comm->polls % UCX_LOOK_POLLS == 0 ||
        (comm->wait_fd >= 0 && comm->idle % UCX_LOOK_WAITS == UCX_LOOK_WAITS - 1))
        ucx_comm_look_now(comm, moved);
}

#endif

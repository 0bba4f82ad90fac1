/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the fault hook share: the setting, numbers drawn from a seed, and the hook's
 * part of connects, comms and requests. Each object draws by itself, so that what is injected does
 * not depend on what other objects or threads do, nor on how often a caller asks again.
 * Thread: a comm's own; the setting never changes after init. */
#ifndef FAULT_INT_H
#define FAULT_INT_H

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/error.h"
#include "net_hook.h"

/* How often each fault comes, 0 to 1. */
struct fault_rates {
    double busy, delay, partial, reorder, slow_connect, error, dead, reg;
};

struct fault_setting {
    uint64_t seed;
    int seed_given;
    uint32_t delay_us; /* the longest delay */
    struct fault_rates rates;
};

struct fault_ctx {
    struct hook_ctx base;
    struct fault_setting setting;
};

/* Draw N of a stream is a pure function of its seed and N. */
struct fault_stream {
    uint64_t seed, draws;
};

enum fault_verdict { FAULT_NONE, FAULT_ERROR, FAULT_DEAD };

/* What becomes of one post, drawn in one go. */
struct fault_fate {
    uint64_t draw; /* its number */
    uint64_t seed; /* for what is drawn test by test */
    enum fault_verdict at_post, at_test;
    int busy;
    uint32_t hold; /* turns that a send waits before the wrapped plugin gets it */
    uint32_t late_us; /* between finished and told */
    uint32_t swap; /* tests for which a later request may be told first */
};

struct fault_connect {
    struct hook_connect base;
    int drawn, fails;
    uint64_t draw;
    uint32_t again; /* calls yet to be answered with "ask again" */
};

struct fault_listen {
    struct hook_listen base;
    int drawn;
    uint32_t again;
};

enum fault_state {
    FAULT_HELD, /* a send that the wrapped plugin does not know yet */
    FAULT_ACTIVE, /* in the wrapped plugin */
    FAULT_FINISHED /* finished there, not told */
};

struct fault_request {
    struct hook_request base;
    enum fault_state state;
    struct fault_fate fate;
    uint32_t tests;
    uint64_t tell_ns; /* not before; 0: at once */
    size_t bytes[XCCL_NET_MAX_RECVS]; /* sizes, once finished */
    /* A held send. */
    const void *data;
    size_t send_bytes;
    uint32_t tag;
    xcclNetMem_t mem;
    struct fault_request *next;
};

struct fault_comm {
    struct hook_comm base;
    struct fault_stream stream;
    uint64_t reg_seed;
    _Atomic uint64_t reg_draws; /* relaxed: registrations may come from a second thread */
    struct fault_fate fate; /* of the next post */
    int fate_drawn; /* that post was let through, but the wrapped plugin was busy */
    uint32_t told; /* number of the latest request told done */
    size_t max_bytes; /* of a message of this device */
    struct fault_request *held_first, *held_last; /* in order of posting */
    /* 0, or the error that each further call gets. Stored with release after the fields below, so
     * that a registration on a second thread (acquire) sees them. */
    _Atomic int rc;
    int injected;
    int cause; /* of an injected error; xcclNetCause_t */
    char error_text[XCCL_ERROR_TEXT_BYTES];
};

static_assert(offsetof(struct fault_comm, base) == 0, "begins with the hook's");
static_assert(offsetof(struct fault_request, base) == 0, "begins with the hook's");

/* fault_setting.c */

/* Reads a text as XCCL_NET_FAULT has it. xcclInvalidArgument names the word that is wrong. */
xcclResult_t fault_setting_parse(const char *text, struct fault_setting *setting_out);
/* The setting as a text that repeats the run. */
void fault_setting_format(const struct fault_setting *setting, char *text_out, size_t bytes);

/* fault_draw.c */
enum fault_object { FAULT_SEND_COMM, FAULT_RECV_COMM, FAULT_CONNECT, FAULT_LISTEN };
struct fault_stream fault_stream_open(const struct fault_ctx *ctx, enum fault_object object,
                                      uint32_t number);
/* The next draw's seed; its number is stream->draws afterwards. */
uint64_t fault_draw(struct fault_stream *stream);
/* Number idx of a seed, 64 random bits. */
uint64_t fault_bits(uint64_t seed, uint32_t idx);
int fault_chance(uint64_t bits, double rate);
/* 1 to most, or 0 by chance. */
uint32_t fault_amount(uint64_t seed, uint32_t idx, double rate, uint32_t most);
struct fault_fate fault_fate_draw(struct fault_stream *stream, const struct fault_setting *setting);

/* fault_connect.c */
xcclResult_t fault_init(const xcclNetInit_v1 *init, xcclNetContext_t *ctx_out);
xcclResult_t fault_connect(xcclNetContext_t ctx, int dev, const xcclNetHandle_t *handle,
                           xcclNetConnect_t *state_out, xcclNetSendComm_t *comm_out);
xcclResult_t fault_accept(xcclNetListenComm_t listen, xcclNetRecvComm_t *comm_out);

/* fault_request.c */
xcclResult_t fault_reg_mr(void *comm, void *data, size_t bytes, uint32_t type, xcclNetMem_t *mem);
xcclResult_t fault_reg_mr_dma_buf(void *comm, void *data, size_t bytes, uint32_t type,
                                  uint64_t offset, int fd, xcclNetMem_t *mem);
xcclResult_t fault_export_mr(xcclNetRecvComm_t comm, xcclNetMem_t mem, xcclNetMemKey_t *key);
xcclResult_t fault_isend(xcclNetSendComm_t comm, const void *data, size_t bytes, uint32_t tag,
                         xcclNetMem_t mem, xcclNetRequest_t *request_out);
xcclResult_t fault_irecv(xcclNetRecvComm_t comm, int count, void *const *data, const size_t *bytes,
                         const uint32_t *tags, const xcclNetMem_t *mems,
                         xcclNetRequest_t *request_out);
xcclResult_t fault_iflush(xcclNetRecvComm_t comm, int count, void *const *data, const size_t *bytes,
                          const xcclNetMem_t *mems, xcclNetRequest_t *request_out);
xcclResult_t fault_iput(xcclNetSendComm_t comm, const void *data, size_t bytes, xcclNetMem_t mem,
                        const xcclNetMemKey_t *key, uint64_t offset, xcclNetRequest_t *request_out);
xcclResult_t fault_iput_signal(xcclNetSendComm_t comm, const void *data, size_t bytes,
                               xcclNetMem_t mem, const xcclNetMemKey_t *key, uint64_t offset,
                               const xcclNetMemKey_t *signal_key, uint64_t signal_offset,
                               uint64_t value, xcclNetRequest_t *request_out);
xcclResult_t fault_test(xcclNetRequest_t request, int *done_out, size_t *bytes_out);
xcclResult_t fault_wait_fd(void *comm, int *fd_out);
xcclResult_t fault_error_detail(void *comm, xcclNetError_v1 *error);

#endif

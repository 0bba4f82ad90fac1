/* SPDX-License-Identifier: BSD-3-Clause */
/* A verdict: which kind of trouble there is, who is to blame, who found it, and the evidence. Plain
 * data, from which one function makes the text that users read. The kinds are rows of verdict.def;
 * whoever finds trouble fills in a verdict and writes no text of its own. core/watch judges,
 * comm/comm_error.h raises and keeps the first verdict of a communicator.
 *
 * Thread: any; no state, no memory is taken. */
#ifndef XCCL_VERDICT_VERDICT_H
#define XCCL_VERDICT_VERDICT_H

#include <stddef.h>

#include "verdict/board_call.h"
#include "xccl_types.h"

#define XCCL_VERDICT_NOBODY (-1)

#define XCCL_VERDICT_HOST_BYTES    64
#define XCCL_VERDICT_PLUGIN_BYTES  64
#define XCCL_VERDICT_ADDRESS_BYTES 80
#define XCCL_VERDICT_WHY_BYTES     400
#define XCCL_VERDICT_WAITS         6 /* ranks that a verdict names; others are counted */

/* Words of a rank that is silent; bootstrap/alive.c knows them again in a text. */
#define XCCL_SILENT_TEXT   "does not respond (stopped, or its host is unreachable)"
#define XCCL_SILENT_REMEDY "check that its process runs and that its host is reachable"

/* XCCL_TROUBLE_<NAME> for every row of verdict.def. */
enum xccl_trouble {
    XCCL_TROUBLE_NONE,
#define XCCL_TROUBLE(name, word, result, sentence, remedy) XCCL_TROUBLE_##name,
#include "verdict/verdict.def"
#undef XCCL_TROUBLE
    XCCL_TROUBLE_COUNT
};

struct xccl_trouble_row {
    const char *word, *sentence, *remedy;
    xcclResult_t rc;
};

enum xccl_act_kind {
    XCCL_ACT_NONE,
    XCCL_ACT_CALL,
    XCCL_ACT_OTHER_CALL, /* only its number is known, and that it differs */
    XCCL_ACT_SPLIT,
    XCCL_ACT_CONNECT, /* all ranks, outside of calls */
    XCCL_ACT_SEND,
    XCCL_ACT_RECV,
};

/* Something that a rank does. */
struct xccl_act {
    enum xccl_act_kind kind;
    int is_past; /* 1: it is done, and the rank has gone on */
    int peer; /* of a send or a receive */
    int is_least; /* 1: bytes is what there is of the message so far */
    uint64_t bytes; /* of a send or a receive; XCCL_ACT_OTHER_BYTES: only that it differs */
    struct xccl_board_call call;
};
#define XCCL_ACT_OTHER_BYTES UINT64_MAX

enum xccl_wait_why {
    XCCL_WAIT_COMES, /* it has not begun the call, as far as is known */
    XCCL_WAIT_NOT_BEGUN, /* it is known not to have begun it */
    XCCL_WAIT_QUEUED, /* its device has the call, and does not begin it */
    XCCL_WAIT_BETWEEN, /* it is between calls, and its last one was an older one */
    XCCL_WAIT_OLDER, /* it is in an older call */
    XCCL_WAIT_SAME, /* it waits in this call, too */
    XCCL_WAIT_SEND, /* to take a message */
    XCCL_WAIT_RECV, /* to send one */
};

/* A rank that is waited for. */
struct xccl_waited {
    int rank;
    enum xccl_wait_why why;
    uint32_t call; /* low half of the number of its last call, for BETWEEN and OLDER */
};

struct xccl_verdict {
    enum xccl_trouble trouble;
    xcclResult_t rc; /* xcclSuccess: that of the row */
    int finder; /* the rank that found it */
    int culprit; /* the rank to blame; XCCL_VERDICT_NOBODY: none, or several */
    struct xccl_act mine, theirs; /* of finder and culprit */
    uint64_t seconds, elements;
    uint32_t wait_count; /* of all; waits has the first ones */
    struct xccl_waited waits[XCCL_VERDICT_WAITS];
    char address[XCCL_VERDICT_ADDRESS_BYTES]; /* of the culprit; "": not known */
    char plugin[XCCL_VERDICT_PLUGIN_BYTES]; /* network or tuner plugin; "": none */
    char why[XCCL_VERDICT_WHY_BYTES]; /* text of an errno, a plugin, a bootstrap */
};

/* Where a rank runs. */
struct xccl_rank_place {
    char host[XCCL_VERDICT_HOST_BYTES];
    uint32_t pid;
};

/* How a text finds out where ranks run. 0: that is not known. */
struct xccl_rank_places {
    int (*find)(const void *owner, int rank, struct xccl_rank_place *place_out);
    const void *owner;
};

/* The row of a kind; that of XCCL_TROUBLE_OTHER for what is none. */
const struct xccl_trouble_row *xccl_trouble_row(enum xccl_trouble trouble);
/* The result that a verdict leads to. */
xcclResult_t xccl_verdict_rc(const struct xccl_verdict *verdict);

/* Adds a rank that is waited for. */
void xccl_verdict_wait(struct xccl_verdict *verdict, struct xccl_waited waited);
/* Keeps text as evidence, cut where it is too long. */
void xccl_verdict_set_why(struct xccl_verdict *verdict, const char *text);

/* Writes "sentence; remedy". A sentence that is too long is cut behind a whole character and ends
 * with "...", so that the remedy stays. Values are escaped as lines of the log are. Returns where
 * the remedy begins; 0: it has none of its own, or no room. */
size_t xccl_verdict_text(const struct xccl_verdict *verdict, const struct xccl_rank_places *places,
                         char *text_out, size_t bytes);
/* "rank 3 (host b, pid 91)", or "rank 3". */
void xccl_verdict_name(const struct xccl_rank_places *places, int rank, char *text_out,
                       size_t bytes);

#endif

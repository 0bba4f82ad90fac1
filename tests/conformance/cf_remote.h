/* SPDX-License-Identifier: BSD-3-Clause */
/* Form remote: what the runner's host and the one that serves say to each other, over TCP. Each
 * connection begins with a word of the runner's.
 *
 *   session   the whole run: answered by what the other host has; its end is the run's
 *   case      a case begins: answered, when it has ended there, by its verdict
 *   channel   of that case: from then on it belongs to the two roles
 *
 * Everything is little endian. The token keeps strangers out who are no thieves: it is not
 * encrypted. Thread: one. */
#ifndef XCCL_CF_REMOTE_H
#define XCCL_CF_REMOTE_H

#include "base/netaddr.h"
#include "cf_run.h"

#define CF_WORD_BYTES   140
#define CF_ANSWER_BYTES 312
#define CF_END_BYTES    (8 + CF_TEXT_BYTES)
#define CF_TOKEN_BYTES  32
#define CF_HOST_GONE    "the host with --serve has disconnected"
#define CF_DEADLINE_MS  3600000u /* of a case, at most */

enum cf_word_kind { CF_WORD_SESSION = 1, CF_WORD_CASE, CF_WORD_CHANNEL };

/* A session's has nothing but the kind. */
struct cf_word {
    uint32_t kind, role; /* role: of the one who serves */
    uint64_t id; /* of a case and its channel */
    uint64_t seed, max_bytes, timeout_ms;
    uint32_t quick;
    char name[56]; /* of the case */
};

struct cf_answer {
    uint32_t good;
    uint64_t max_bytes;
    char plugin[64], contract[32], why[200]; /* why: not good */
};

void cf_word_encode(const struct cf_word *word, const char *token, uint8_t out[CF_WORD_BYTES]);
/* 0: another token, or not what a runner says. What is taken, each of the three decoders would
 * write again byte for byte. */
int cf_word_decode(uint8_t bytes[CF_WORD_BYTES], const char *token, struct cf_word *word);
void cf_answer_encode(const struct cf_answer *answer, uint8_t out[CF_ANSWER_BYTES]);
int cf_answer_decode(uint8_t bytes[CF_ANSWER_BYTES], struct cf_answer *answer);
void cf_end_encode(int verdict, const char *text, uint8_t out[CF_END_BYTES]);
/* The verdict; CF_NONE: it is none. */
int cf_end_decode(uint8_t bytes[CF_END_BYTES], char text[CF_TEXT_BYTES]);

/* The kernel ends a session whose other host has vanished without a word, after 45 s. */
void cf_remote_keep(int fd);

/* ---- the runner's side ---- */

struct cf_remote {
    int fd; /* the session; -1 */
    char address[XCCL_ADDR_TEXT_BYTES];
};
/* HOST:PORT that option was given, in one line of an error when it is none: 0. */
int cf_address_read(const char *option, const char *text, struct xccl_addr *addr_out);
/* Looks up options->remote, which then is a numeric one, in remote. 0: it is none, which has been
 * told. */
int cf_remote_find(struct cf_remote *remote, struct xccl_conformance_options *options);
/* Waits up to 10 s for the one who serves. options->max_bytes becomes what both can. 0: no run,
 * which has been told. */
int cf_remote_open(struct cf_remote *remote, struct xccl_conformance_options *options,
                   const struct cf_shared *plugin);
void cf_remote_close(struct cf_remote *remote);
/* In the process of a case: has the other role started. 0: failed, the text says why. */
int cf_remote_call(const struct xccl_conformance_options *options, const struct cf_task *task,
                   int *channel_out, int *end_fd_out);
/* What became of it there goes into shared, if nothing better is known. The role of here has ended:
 * after a failure that of there gets a moment and is then ended. */
void cf_remote_hear_end(struct cf_shared *shared, int end_fd);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* Form remote, the runner's side, and the bytes of both sides. What comes from the network is
 * checked whole before it is used: a text ends where it should, a number is one that can be.
 *
 * Thread: one. */
#include "cf_remote.h"

#include <assert.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/tcp.h"
#include "base/wire.h"

#define MAGIC      UINT32_C(0x52434358) /* "XCCR" */
#define VERSION    3u
#define ARRIVAL_MS 10000u /* for the one who serves to be there */
#define ANSWER_MS  10000u
#define EXPLAIN_MS 1000u /* for the other host to say more about a failure of here */

static_assert(CF_WORD_BYTES == 4 * 5 + 8 * 4 + CF_TOKEN_BYTES + sizeof(((struct cf_word *)0)->name),
              "all fields of a word, and nothing else");
static_assert(CF_ANSWER_BYTES == 4 * 2 + 8 + sizeof(((struct cf_answer *)0)->plugin) +
                                     sizeof(((struct cf_answer *)0)->contract) +
                                     sizeof(((struct cf_answer *)0)->why),
              "all fields of an answer, and nothing else");

/* ---- bytes ---- */

static void token_bytes(const char *token, uint8_t out[CF_TOKEN_BYTES])
{
    memset(out, 0, CF_TOKEN_BYTES);
    memcpy(out, token, strnlen(token, CF_TOKEN_BYTES));
}

/* Texts lie in fields with at least one zero at the end, and nothing behind the first one. */
static int text_get(struct xccl_wire *wire, char *text, size_t bytes)
{
    int rest = 0;

    xccl_wire_get(wire, text, bytes);
    for (size_t i = strnlen(text, bytes); i < bytes; i++)
        rest |= text[i];
    return text[bytes - 1] == 0 && rest == 0;
}

void cf_word_encode(const struct cf_word *word, const char *token, uint8_t out[CF_WORD_BYTES])
{
    struct xccl_wire wire = xccl_wire_over(out, CF_WORD_BYTES);
    uint8_t secret[CF_TOKEN_BYTES];

    memset(out, 0, CF_WORD_BYTES);
    token_bytes(token, secret);
    xccl_wire_put_u32(&wire, MAGIC);
    xccl_wire_put_u32(&wire, VERSION);
    xccl_wire_put(&wire, secret, sizeof(secret));
    xccl_wire_put_u32(&wire, word->kind);
    xccl_wire_put_u32(&wire, word->role);
    xccl_wire_put_u64(&wire, word->id);
    xccl_wire_put_u64(&wire, word->seed);
    xccl_wire_put_u64(&wire, word->max_bytes);
    xccl_wire_put_u64(&wire, word->timeout_ms);
    xccl_wire_put_u32(&wire, word->quick);
    xccl_wire_put(&wire, word->name, sizeof(word->name));
}

static int is_one(const struct cf_word *word)
{
    if (word->kind == CF_WORD_SESSION)
        return !word->role && !word->id && !word->seed && !word->max_bytes && !word->timeout_ms &&
               !word->quick && !word->name[0];
    return (word->kind == CF_WORD_CASE || word->kind == CF_WORD_CHANNEL) && word->role < CF_ROLES &&
           word->quick <= 1 && word->timeout_ms <= CF_DEADLINE_MS;
}

int cf_word_decode(uint8_t bytes[CF_WORD_BYTES], const char *token, struct cf_word *word)
{
    struct xccl_wire wire = xccl_wire_over(bytes, CF_WORD_BYTES);
    uint32_t magic = xccl_wire_get_u32(&wire), version = xccl_wire_get_u32(&wire);
    uint8_t secret[CF_TOKEN_BYTES], told[CF_TOKEN_BYTES];

    token_bytes(token, secret);
    xccl_wire_get(&wire, told, sizeof(told));
    word->kind = xccl_wire_get_u32(&wire);
    word->role = xccl_wire_get_u32(&wire);
    word->id = xccl_wire_get_u64(&wire);
    word->seed = xccl_wire_get_u64(&wire);
    word->max_bytes = xccl_wire_get_u64(&wire);
    word->timeout_ms = xccl_wire_get_u64(&wire);
    word->quick = xccl_wire_get_u32(&wire);
    return text_get(&wire, word->name, sizeof(word->name)) &&
           sodium_memcmp(told, secret, sizeof(secret)) == 0 && magic == MAGIC &&
           version == VERSION && !wire.bad && is_one(word);
}

void cf_answer_encode(const struct cf_answer *answer, uint8_t out[CF_ANSWER_BYTES])
{
    struct xccl_wire wire = xccl_wire_over(out, CF_ANSWER_BYTES);

    memset(out, 0, CF_ANSWER_BYTES);
    xccl_wire_put_u32(&wire, MAGIC);
    xccl_wire_put_u32(&wire, answer->good);
    xccl_wire_put_u64(&wire, answer->max_bytes);
    xccl_wire_put(&wire, answer->plugin, sizeof(answer->plugin));
    xccl_wire_put(&wire, answer->contract, sizeof(answer->contract));
    xccl_wire_put(&wire, answer->why, sizeof(answer->why));
}

int cf_answer_decode(uint8_t bytes[CF_ANSWER_BYTES], struct cf_answer *answer)
{
    struct xccl_wire wire = xccl_wire_over(bytes, CF_ANSWER_BYTES);
    int good = xccl_wire_get_u32(&wire) == MAGIC;

    answer->good = xccl_wire_get_u32(&wire);
    answer->max_bytes = xccl_wire_get_u64(&wire);
    good &= text_get(&wire, answer->plugin, sizeof(answer->plugin));
    good &= text_get(&wire, answer->contract, sizeof(answer->contract));
    good &= text_get(&wire, answer->why, sizeof(answer->why));
    return good && answer->good <= 1 && !wire.bad;
}

void cf_end_encode(int verdict, const char *text, uint8_t out[CF_END_BYTES])
{
    struct xccl_wire wire = xccl_wire_over(out, CF_END_BYTES);

    memset(out, 0, CF_END_BYTES);
    xccl_wire_put_u32(&wire, MAGIC);
    xccl_wire_put_u32(&wire, (uint32_t)verdict);
    xccl_wire_put(&wire, text, strnlen(text, CF_TEXT_BYTES - 1));
}

int cf_end_decode(uint8_t bytes[CF_END_BYTES], char text[CF_TEXT_BYTES])
{
    struct xccl_wire wire = xccl_wire_over(bytes, CF_END_BYTES);
    uint32_t magic = xccl_wire_get_u32(&wire), verdict = xccl_wire_get_u32(&wire);

    if (!text_get(&wire, text, CF_TEXT_BYTES) || magic != MAGIC || verdict > CF_NOTED || wire.bad)
        return CF_NONE;
    return (int)verdict;
}

void cf_remote_keep(int fd)
{
    static const struct {
        int option, value;
    } list[] = {{TCP_KEEPIDLE, 15}, {TCP_KEEPINTVL, 5}, {TCP_KEEPCNT, 6}};
    int on = 1;

    /* Without them a vanished host is noticed late, and nothing else is wrong. */
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
        setsockopt(fd, IPPROTO_TCP, list[i].option, &list[i].value, sizeof(list[i].value));
}

/* ---- the runner's side ---- */

int cf_address_read(const char *option, const char *text, struct xccl_addr *addr_out)
{
    xcclResult_t rc = xccl_addr_parse(text, 1, addr_out);

    if (rc != xcclSuccess)
        fprintf(stderr, "xccl net check: %s: %s\n", option, xccl_error_text());
    return rc == xcclSuccess;
}

int cf_remote_find(struct cf_remote *remote, struct xccl_conformance_options *options)
{
    struct xccl_addr addr;

    if (!cf_address_read("--remote", options->remote, &addr))
        return 0;
    xccl_addr_format(&addr, remote->address);
    options->remote = remote->address;
    return 1;
}

/* A connection that has said its word. */
static xcclResult_t call(const struct xccl_conformance_options *options, const struct cf_word *word,
                         int *fd_out)
{
    struct xccl_limit limit = xccl_limit_ms(ARRIVAL_MS, NULL);
    struct xccl_addr addr;
    uint8_t bytes[CF_WORD_BYTES];
    xcclResult_t rc = xccl_addr_parse(options->remote, 1, &addr);

    *fd_out = -1;
    cf_word_encode(word, options->token, bytes);
    if (rc == xcclSuccess)
        rc = xccl_tcp_connect(&addr, &limit, fd_out);
    if (rc == xcclSuccess)
        rc = xccl_tcp_send_all(*fd_out, bytes, sizeof(bytes), &limit);
    if (rc != xcclSuccess)
        xccl_tcp_close(fd_out);
    return rc;
}

int cf_remote_open(struct cf_remote *remote, struct xccl_conformance_options *options,
                   const struct cf_shared *plugin)
{
    struct xccl_limit limit = xccl_limit_ms(ARRIVAL_MS + ANSWER_MS, NULL);
    struct cf_word word = {.kind = CF_WORD_SESSION};
    struct cf_answer answer;
    uint8_t bytes[CF_ANSWER_BYTES];
    xcclResult_t rc = call(options, &word, &remote->fd);

    if (rc == xcclSuccess)
        rc = xccl_tcp_recv_all(remote->fd, bytes, sizeof(bytes), &limit);
    if (rc != xcclSuccess)
        fprintf(stderr,
                "xccl net check: no server with this --token answers at %s: start `xccl net check "
                "--serve %s --token ... %s` there (%s)\n",
                options->remote, options->remote, options->item, xccl_error_text());
    else if (!cf_answer_decode(bytes, &answer))
        fprintf(
            stderr,
            "xccl net check: %s runs a different version; install the same version on both hosts\n",
            options->remote);
    else if (!answer.good)
        fprintf(stderr, "xccl net check: %s: %s\n", options->remote, answer.why);
    else if (strcmp(answer.plugin, plugin->name) != 0)
        fprintf(stderr,
                "xccl net check: %s has plugin %s, but this host has %s: name the same plugin on "
                "both hosts\n",
                options->remote, answer.plugin, plugin->name);
    else if (strcmp(answer.contract, plugin->contract) != 0)
        fprintf(stderr,
                "xccl net check: %s has contract %s, but this host has %s: name the same plugin "
                "and contract on both hosts\n",
                options->remote, answer.contract, plugin->contract);
    else {
        cf_remote_keep(remote->fd);
        if (answer.max_bytes < options->max_bytes)
            options->max_bytes = answer.max_bytes;
        return 1;
    }
    cf_remote_close(remote);
    return 0;
}

void cf_remote_close(struct cf_remote *remote)
{
    xccl_tcp_close(&remote->fd);
}

/* What is left of a case's time. */
static uint64_t left_ms(const struct cf_task *task)
{
    uint64_t now_ns = cf_now(), left = task->end_ns > now_ns ? (task->end_ns - now_ns) / CF_MS : 0;

    left = left ? left : 1;
    return left < CF_DEADLINE_MS ? left : CF_DEADLINE_MS;
}

int cf_remote_call(const struct xccl_conformance_options *options, const struct cf_task *task,
                   int *channel_out, int *end_fd_out)
{
    struct cf_word word = {.kind = CF_WORD_CASE,
                           .role = (uint32_t)(1 - task->role),
                           .id = task->begin_ns ^ (uint64_t)getpid() << 40,
                           .seed = task->seed,
                           .max_bytes = options->max_bytes,
                           .timeout_ms = left_ms(task),
                           .quick = options->quick != 0};

    snprintf(word.name, sizeof(word.name), "%s", task->test->name);
    if (call(options, &word, end_fd_out) != xcclSuccess)
        return 0;
    word.kind = CF_WORD_CHANNEL;
    if (call(options, &word, channel_out) != xcclSuccess)
        return 0;
    /* The roles' calls wait. */
    return fcntl(*channel_out, F_SETFL, fcntl(*channel_out, F_GETFL) & ~O_NONBLOCK) == 0;
}

/* What broke at the other end explains what was seen of it here. */
static int is_better(const char *there, const char *here)
{
    if (strstr(there, CF_KILLED_BY) && !strstr(there, CF_KILLED_BY "KILL"))
        return 1;
    return strstr(here, CF_ENDED_EARLY) && !strstr(there, CF_ENDED_EARLY);
}

/* Puts text in the place of what is known here, or before it. */
static void explain(struct cf_shared *shared, int verdict, const char *text, int keep)
{
    char both[2 * CF_TEXT_BYTES + 16];

    snprintf(both, sizeof(both), "%s%s%s", text, keep ? "; here: " : "", keep ? shared->text : "");
    atomic_store_explicit(&shared->verdict, CF_NONE, memory_order_release);
    cf_settle(shared, verdict, both);
}

/* Both ends have failed, and nobody knows which of them first. The call in which the other role
 * stays may be the reason why something did not come; else it stays because this one has gone. */
static int says_more(const char *there, const char *here)
{
    if (strstr(there, CF_LATE))
        return strstr(here, CF_WAITED) != NULL;
    return !strstr(there, CF_ENDED_EARLY) && !strstr(there, CF_KILLED_BY);
}

/* There is a verdict of here already: what that of there adds to it. */
static void weigh(struct cf_shared *shared, int there, const char *text)
{
    if (there == CF_NONE || there == CF_PASSED)
        return;
    if (is_better(text, shared->text))
        explain(shared, there, text, 0);
    else if (there == CF_FAILED && says_more(text, shared->text))
        explain(shared, there, text, 1);
}

void cf_remote_hear_end(struct cf_shared *shared, int end_fd)
{
    int here = atomic_load_explicit(&shared->verdict, memory_order_acquire), there;
    /* The deadline of there ends a wait for a role that goes on, and that of here comes later. */
    struct xccl_limit limit = {.deadline_ns = XCCL_NEVER_NS};
    uint8_t bytes[CF_END_BYTES];
    char text[CF_TEXT_BYTES];
    xcclResult_t rc;

    if (here == CF_SKIPPED || here == CF_NOTED)
        return;
    if (here == CF_FAILED) {
        limit = xccl_limit_ms(EXPLAIN_MS, NULL);
        shutdown(end_fd, SHUT_WR);
    }
    rc = xccl_tcp_recv_all(end_fd, bytes, sizeof(bytes), &limit);
    if (rc == xcclTimeout)
        return;
    if (rc != xcclSuccess) {
        explain(shared, CF_FAILED, CF_HOST_GONE, here == CF_FAILED);
        return;
    }
    there = cf_end_decode(bytes, text);
    if (here == CF_FAILED)
        weigh(shared, there, text);
    else if (there == CF_NONE)
        cf_settle(shared, CF_FAILED, "the host with --serve ended a case with an invalid verdict");
    else if (there != CF_PASSED)
        cf_settle(shared, there, text);
}

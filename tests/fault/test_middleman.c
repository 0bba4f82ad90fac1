/* SPDX-License-Identifier: BSD-3-Clause */
/* Somebody sits between two ends of the socket plugin, and all that they say goes through his
 * hands. After the ends have proved themselves he changes a bit, leaves bytes out, says some twice,
 * exchanges some, says some of his own, cuts a line, or keeps them for a while, in either direction
 * of any line. With XCCL_NET_ENCRYPT=mac and 1 no element is wrong, nothing hangs, what he does is
 * an error that says so, and what is only late arrives. He also writes down what he sees: with 1 it
 * has nothing of the payload, with mac and 0 it has all of it; and with 0 his changes are wrong
 * elements, so that the test is known to see them.
 *
 * Each seed is a process of its own, since settings are read once. XT_ROUNDS: how many seeds,
 * default 48. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "plugins/socket/sock_pair.h"

#define TAPS_MAX   24
#define MESSAGES   10
#define ROOM       ((size_t)200 << 10)
#define WAY_BYTES  16384 /* on the way in one direction */
#define KEPT_MAX   2000 /* that an attack takes hold of */
#define LIMIT_MS   15000 /* of one seed, which takes some 50 ms */
#define LATE_TURNS 20000
#define HELD_TURNS 2000
#define NOTED_MAX  ((size_t)4 << 20)

enum attack { ALTER, DROP, REPEAT, EXCHANGE, INJECT, CUT, DELAY, ATTACKS };
static const char *const attack_names[] = {"alter",  "drop", "repeat", "exchange",
                                           "inject", "cut",  "delay"};

/* A line through his hands. Direction 0 is from the sender. */
struct tap {
    int fds[2]; /* towards the sender, towards the receiver; -1: none */
    uint8_t bytes[2][WAY_BYTES + 2 * KEPT_MAX];
    size_t first[2], end[2];
    uint64_t passed[2]; /* bytes that were read of that direction */
};

struct plan {
    const char *encrypt;
    int streams, threads;
    enum attack attack;
    int way, line;
    uint64_t at; /* bytes of that line and way before it begins */
    size_t bytes; /* that it is about */
};

struct middle {
    int door;
    struct xccl_addr to; /* the receiver */
    struct tap taps[TAPS_MAX];
    int tap_count;
    const struct plan *plan;
    int struck, late;
    int held; /* turns that he has kept what comes before, for more to come */
    uint64_t state;
    char *noted; /* of direction 0; NULL: nothing is */
    size_t noted_bytes;
};

static int is_off(const struct plan *plan)
{
    return strcmp(plan->encrypt, "0") == 0;
}

/* ---- the middleman ---- */

static void middle_open(struct middle *middle, struct pair *pair, const struct plan *plan)
{
    struct xccl_addr here;

    memset(middle, 0, sizeof(*middle));
    middle->plan = plan;
    middle->to = handle_addr(&pair->handle);
    here = middle->to;
    xccl_addr_set_port(&here, 0);
    middle->door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    XT_CHECK_INT(bind(middle->door, &here.sa.any, here.bytes), 0);
    XT_CHECK_INT(listen(middle->door, 64), 0);
    XT_CHECK_INT(getsockname(middle->door, &here.sa.any, &here.bytes), 0);
    handle_set_addr(&pair->handle, &here);
}

static void tap_close(struct tap *tap)
{
    for (int i = 0; i < 2; i++) {
        if (tap->fds[i] >= 0)
            close(tap->fds[i]);
        tap->fds[i] = -1;
    }
}

static void middle_close(struct middle *middle)
{
    for (int i = 0; i < middle->tap_count; i++)
        tap_close(&middle->taps[i]);
    close(middle->door);
    free(middle->noted);
}

static void welcome(struct middle *middle)
{
    int fd = accept4(middle->door, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    const int on = 1;
    struct tap *tap;

    if (fd < 0 || middle->tap_count == TAPS_MAX) {
        if (fd >= 0)
            close(fd);
        return;
    }
    tap = &middle->taps[middle->tap_count++];
    tap->fds[0] = fd;
    tap->fds[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    XT_CHECK(tap->fds[1] >= 0);
    if (connect(tap->fds[1], &middle->to.sa.any, middle->to.bytes) != 0)
        tap_close(tap);
    for (int i = 0; i < 2 && tap->fds[i] >= 0; i++)
        (void)setsockopt(tap->fds[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

/* Attacks the plan's bytes, which lie at `at` of these, whole. The end may grow. */
static void strike(struct middle *middle, struct tap *tap, int way, size_t at)
{
    const struct plan *plan = middle->plan;
    uint8_t *bytes = tap->bytes[way] + tap->first[way] + at, kept[KEPT_MAX];
    size_t count = plan->bytes, behind = tap->end[way] - tap->first[way] - at;

    middle->struck = 1;
    switch (plan->attack) {
    case ALTER:
        bytes[0] ^= (uint8_t)(1u << count % 8);
        break;
    case DROP:
        memmove(bytes, bytes + count, behind - count);
        tap->end[way] -= count;
        break;
    case REPEAT:
    case INJECT:
        memmove(bytes + count, bytes, behind);
        for (size_t i = 0; i < count && plan->attack == INJECT; i++)
            bytes[i] = (uint8_t)xt_random(&middle->state);
        tap->end[way] += count;
        break;
    case EXCHANGE:
        memcpy(kept, bytes, count / 2);
        memmove(bytes, bytes + count / 2, count / 2);
        memcpy(bytes + count / 2, kept, count / 2);
        middle->struck = memcmp(kept, bytes, count / 2) != 0;
        break;
    case CUT:
        tap_close(tap);
        break;
    default:
        middle->late = LATE_TURNS;
    }
}

/* 1: these bytes are not given on yet: they lead up to what he waits for. */
static int consider(struct middle *middle, struct tap *tap, int way, int idx)
{
    const struct plan *plan = middle->plan;
    uint64_t begun = tap->passed[way] - (tap->end[way] - tap->first[way]);

    if (middle->struck || plan->attack == ATTACKS || way != plan->way || idx != plan->line ||
        tap->passed[way] <= plan->at)
        return 0;
    /* Some bytes behind them, so that what is left out is missed. */
    if (tap->passed[way] < plan->at + 2 * plan->bytes)
        return ++middle->held < HELD_TURNS;
    if (begun > plan->at)
        return 0;
    strike(middle, tap, way, (size_t)(plan->at - begun));
    return 0;
}

static void carry(struct middle *middle, int idx, int way)
{
    struct tap *tap = &middle->taps[idx];
    ssize_t moved;

    if (tap->fds[0] < 0)
        return;
    memmove(tap->bytes[way], tap->bytes[way] + tap->first[way], tap->end[way] - tap->first[way]);
    tap->end[way] -= tap->first[way];
    tap->first[way] = 0;
    if (tap->end[way] < WAY_BYTES) {
        moved = recv(tap->fds[way], tap->bytes[way] + tap->end[way], WAY_BYTES - tap->end[way],
                     MSG_DONTWAIT);
        if (moved == 0 || (moved < 0 && errno != EAGAIN)) {
            if (tap->first[way] == tap->end[way])
                tap_close(tap);
        } else if (moved > 0) {
            if (middle->noted && way == 0 && middle->noted_bytes + (size_t)moved <= NOTED_MAX) {
                memcpy(middle->noted + middle->noted_bytes, tap->bytes[way] + tap->end[way],
                       (size_t)moved);
                middle->noted_bytes += (size_t)moved;
            }
            tap->end[way] += (size_t)moved;
            tap->passed[way] += (uint64_t)moved;
        }
    }
    if (consider(middle, tap, way, idx) || tap->fds[0] < 0 || tap->first[way] == tap->end[way])
        return;
    moved = send(tap->fds[!way], tap->bytes[way] + tap->first[way], tap->end[way] - tap->first[way],
                 MSG_DONTWAIT | MSG_NOSIGNAL);
    if (moved > 0)
        tap->first[way] += (size_t)moved;
    else if (moved < 0 && errno != EAGAIN)
        tap_close(tap);
}

static void middle_turn(struct middle *middle)
{
    if (middle->late > 0 && middle->late-- > 1)
        return;
    welcome(middle);
    for (int i = 0; i < middle->tap_count; i++) {
        carry(middle, i, 0);
        carry(middle, i, 1);
    }
}

/* ---- the two ends ---- */

struct traffic {
    void *sends[MESSAGES], *recvs[MESSAGES];
    size_t sizes[MESSAGES], got[MESSAGES];
    int sent, received, wrong;
    char errors[2][XCCL_ERROR_TEXT_BYTES]; /* of the sender, of the receiver; "": none */
    char *in;
};

static void ends_meet(struct pair *pair, struct middle *middle)
{
    struct xccl_limit limit = xccl_limit_ms(LIMIT_MS, NULL);
    xcclNetConnect_t state = NULL;

    while (!pair->send || !pair->recv) {
        middle_turn(middle);
        if (!pair->send)
            XT_OK(pair->net->calls.connect(pair->net->ctx, 0, &pair->handle, &state, &pair->send));
        if (!pair->recv)
            XT_OK(pair->net->calls.accept(pair->listener, &pair->recv));
        XT_CHECK(!xccl_limit_passed(&limit));
    }
    XT_OK(pair->net->calls.regMr(pair->send, big, sizeof(big), XCCL_NET_PTR_HOST, &pair->send_mem));
    XT_OK(pair->net->calls.regMr(pair->recv, big, sizeof(big), XCCL_NET_PTR_HOST, &pair->recv_mem));
}

static int differs(const char *bytes, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != (char)(seed + i * 7 + (i >> 8)))
            return 1;
    }
    return 0;
}

static void keep_error(struct pair *pair, struct traffic *traffic, int end)
{
    if (!traffic->errors[end][0])
        snprintf(traffic->errors[end], sizeof(traffic->errors[end]), "%s",
                 pair->net->calls.lastError(pair->net->ctx));
}

static void look_at_send(struct pair *pair, struct traffic *traffic, int i)
{
    int done = 0;

    if (!traffic->sends[i] || !pair->send)
        return;
    if (pair->net->calls.test(traffic->sends[i], &done, NULL) != xcclSuccess)
        keep_error(pair, traffic, 0);
    else if (done) {
        traffic->sends[i] = NULL;
        traffic->sent++;
    }
}

static void look_at_recv(struct pair *pair, struct traffic *traffic, int i)
{
    int done = 0;

    if (!traffic->recvs[i] || !pair->recv)
        return;
    if (pair->net->calls.test(traffic->recvs[i], &done, &traffic->got[i]) != xcclSuccess)
        keep_error(pair, traffic, 1);
    else if (done) {
        traffic->recvs[i] = NULL;
        traffic->received++;
        traffic->wrong += traffic->got[i] != traffic->sizes[i] ||
                          differs(traffic->in + (size_t)i * ROOM, traffic->got[i], (uint64_t)i);
    }
}

static void post_all(struct pair *pair, struct traffic *traffic, uint64_t *state)
{
    traffic->in = big + MESSAGES * ROOM;
    for (int i = 0; i < MESSAGES; i++) {
        char *data = big + (size_t)i * ROOM;

        traffic->sizes[i] = i % 3 ? 1 + xt_random(state) % 6000 : ROOM - xt_random(state) % 3000;
        fill(data, traffic->sizes[i], (uint64_t)i);
        traffic->recvs[i] = post_recv(pair, traffic->in + (size_t)i * ROOM, ROOM);
        traffic->sends[i] = post_send(pair, data, traffic->sizes[i]);
        XT_CHECK(traffic->recvs[i] && traffic->sends[i]);
    }
}

/* Runs until both ends have ended, with all messages or an error. An end with an error is closed,
 * as the library does. 0: they hang. */
static int traffic_run(struct pair *pair, struct middle *middle, struct traffic *traffic)
{
    struct xccl_limit limit = xccl_limit_ms(LIMIT_MS, NULL);

    while ((traffic->sent < MESSAGES && !traffic->errors[0][0]) ||
           (traffic->received < MESSAGES && !traffic->errors[1][0])) {
        middle_turn(middle);
        for (int i = 0; i < MESSAGES && !traffic->errors[0][0]; i++)
            look_at_send(pair, traffic, i);
        for (int i = 0; i < MESSAGES && !traffic->errors[1][0]; i++)
            look_at_recv(pair, traffic, i);
        /* A sender of several lines is done when the receiver says so, who may have to be asked. */
        if (traffic->errors[0][0] && pair->send) {
            XT_OK(pair->net->calls.closeSend(pair->send));
            pair->send = NULL;
        }
        if (traffic->errors[1][0] && pair->recv) {
            XT_OK(pair->net->calls.closeRecv(pair->recv));
            pair->recv = NULL;
        }
        if (xccl_limit_passed(&limit))
            return 0;
    }
    return 1;
}

static void settings_make(const struct plan *plan)
{
    char text[8];

    xt_setenv("XCCL_NET_ENCRYPT", plan->encrypt);
    xt_setenv("XCCL_SOCKET_SILENCE_S", "3");
    snprintf(text, sizeof(text), "%d", plan->streams);
    xt_setenv("XCCL_SOCKET_STREAMS", text);
    snprintf(text, sizeof(text), "%d", plan->threads);
    xt_setenv("XCCL_SOCKET_THREADS", text);
}

static const char *say(const struct plan *plan)
{
    static char text[160];

    snprintf(text, sizeof(text),
             "%s, %d streams, %d threads: %s %zu bytes of line %d, way %d at %llu", plan->encrypt,
             plan->streams, plan->threads, attack_names[plan->attack], plan->bytes, plan->line,
             plan->way, (unsigned long long)plan->at);
    return text;
}

/* Checks the outcome of a plan. */
static void judge(const struct plan *plan, const struct middle *middle,
                  const struct traffic *traffic)
{
    const char *at_end = traffic->errors[!plan->way];

    if (traffic->wrong)
        XT_FAIL("%s: %d wrong messages", say(plan), traffic->wrong);
    if (plan->attack == DELAY || !middle->struck) {
        if (traffic->sent != MESSAGES || traffic->received != MESSAGES)
            XT_FAIL("%s: %d sent, %d received: %s; %s", say(plan), traffic->sent, traffic->received,
                    traffic->errors[0], traffic->errors[1]);
        return;
    }
    if (plan->attack == CUT)
        return;
    /* An end that was through before does not look any more. */
    if (!at_end[0] && (plan->way == 1 || traffic->received < MESSAGES))
        XT_CHECK_INT(traffic->sent, MESSAGES);
    else
        XT_CHECK_HAS(at_end, "was altered on the way");
}

static int seed_run(const struct plan *plan, uint64_t seed)
{
    static struct middle middle;
    static struct traffic traffic;
    struct pair pair;
    int ended;

    settings_make(plan);
    pair_listen(&pair);
    middle_open(&middle, &pair, plan);
    middle.state = seed;
    ends_meet(&pair, &middle);
    post_all(&pair, &traffic, &middle.state);
    ended = traffic_run(&pair, &middle, &traffic);
    if (is_off(plan))
        return !ended || traffic.wrong || traffic.errors[0][0] || traffic.errors[1][0];
    if (!ended)
        XT_FAIL("%s: a hang, %d sent, %d received, struck %d: %s; %s", say(plan), traffic.sent,
                traffic.received, middle.struck, traffic.errors[0], traffic.errors[1]);
    judge(plan, &middle, &traffic);
    pair_close(&pair);
    middle_close(&middle);
    return middle.struck;
}

static struct plan plan_draw(uint64_t *state, const char *encrypt)
{
    static const int streams[] = {1, 1, 3};
    struct plan plan = {.encrypt = encrypt};

    plan.streams = streams[xt_random(state) % 3];
    plan.threads = (int)(xt_random(state) % 2);
    plan.attack = (enum attack)(xt_random(state) % ATTACKS);
    /* Bytes that are left out are found when others follow, as a long message's do; and a cut of
     * several lines is test_net_socket_failover.c's. */
    if (plan.attack == CUT || plan.attack == DROP)
        plan.streams = 1;
    plan.line = plan.streams > 1 ? (int)(xt_random(state) % (uint64_t)(plan.streams + 1)) : 0;
    plan.way = plan.streams > 1 && plan.line == 0 && xt_random(state) % 3 == 0;
    /* Behind what proves the ends: 72 bytes, and 32 of the answer. */
    plan.at = plan.way ? 32 + xt_random(state) % 100 : 72 + xt_random(state) % 150000;
    if (plan.line == 0 && plan.streams > 1 && !plan.way)
        plan.at = 72 + xt_random(state) % 5000;
    plan.bytes = 2 + 2 * (xt_random(state) % (KEPT_MAX / 2 - 1));
    if (plan.way)
        plan.bytes = 2 + 2 * (xt_random(state) % 20);
    return plan;
}

/* Runs a seed in a process of its own. Returns what seed_run does. */
static int seed_apart(const struct plan *plan, uint64_t seed)
{
    int status, pid = fork();

    XT_CHECK(pid >= 0);
    if (pid == 0)
        _exit(seed_run(plan, seed) ? 10 : 11);
    XT_CHECK_INT(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || (WEXITSTATUS(status) != 10 && WEXITSTATUS(status) != 11))
        XT_FAIL("%s: status %d", say(plan), status);
    return WEXITSTATUS(status) == 10;
}

static int rounds(void)
{
    const char *text = getenv("XT_ROUNDS");

    return text ? atoi(text) : 48;
}

static void attack_with(const char *encrypt)
{
    uint64_t state = xt_seed();
    int struck = 0;

    for (int i = 0; i < rounds() / 2; i++) {
        struct plan plan = plan_draw(&state, encrypt);

        struck += seed_apart(&plan, xt_random(&state));
    }
    /* Some lines carry less than where he waits. */
    XT_CHECK(struck * 3 >= rounds() / 2);
}

XT_TEST_DEADLINE(who_changes_what_is_authenticated_is_found_out, 120)
{
    attack_with("mac");
}

XT_TEST_DEADLINE(who_changes_what_is_encrypted_is_found_out, 120)
{
    attack_with("1");
}

/* The tests above pass whatever happens if this one fails. */
XT_TEST_DEADLINE(a_changed_bit_is_a_wrong_element_without_the_setting, 60)
{
    struct plan plan = {
        .encrypt = "0", .streams = 1, .attack = ALTER, .at = 30000, .bytes = 4, .line = 0};

    XT_CHECK(seed_apart(&plan, xt_seed()));
}

/* ---- what he sees ---- */

/* 1: 16 bytes of the payload are in what was noted. */
static int sees(const char *encrypt)
{
    static const struct plan quiet = {.attack = ATTACKS};
    static struct middle middle;
    static struct traffic traffic;
    struct plan plan = quiet;
    uint64_t state = xt_seed();
    struct pair pair;
    int seen = 0;

    plan.encrypt = encrypt;
    plan.streams = 1;
    settings_make(&plan);
    pair_listen(&pair);
    middle_open(&middle, &pair, &plan);
    middle.noted = malloc(NOTED_MAX);
    XT_CHECK(middle.noted != NULL);
    ends_meet(&pair, &middle);
    post_all(&pair, &traffic, &state);
    XT_CHECK(traffic_run(&pair, &middle, &traffic));
    XT_CHECK_INT(traffic.received, MESSAGES);
    XT_CHECK_INT(traffic.wrong, 0);
    XT_CHECK(middle.noted_bytes > 4 * ROOM && middle.noted_bytes < NOTED_MAX);
    for (size_t at = 0; at + 16 <= traffic.sizes[0] && !seen; at += 997)
        seen = memmem(middle.noted, middle.noted_bytes, big + at, 16) != NULL;
    pair_close(&pair);
    middle_close(&middle);
    return seen;
}

XT_TEST(a_reader_sees_the_payload_without_the_setting)
{
    XT_CHECK(sees("0"));
}

XT_TEST(a_reader_sees_the_payload_with_mac)
{
    XT_CHECK(sees("mac"));
}

XT_TEST(a_reader_sees_nothing_of_the_payload_with_encryption)
{
    XT_CHECK(!sees("1"));
}

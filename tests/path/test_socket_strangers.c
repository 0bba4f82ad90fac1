/* SPDX-License-Identifier: BSD-3-Clause */
/* A process that receives over an open connection of the socket plugin listens for another sender,
 * and thousands of strangers come to that port instead: silent ones, garbage, half a hello, a hello
 * with a wrong token. The open connection keeps its speed, none of them is let in, the right sender
 * is among them within moments, and nothing of them stays in the process.
 *
 * Quiet and attacked windows take turns, and their medians are compared. The path is shaped to a
 * gigabit, so that the strangers' own work, on the same machine, is not what is measured. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "path_flow.h"
#include "plugins/socket/sock_pair.h"

#ifdef XCCL_SANITIZED
#define STRANGERS 500
#define SHARE     0.5 /* the process itself is what is slow */
#else
#define STRANGERS 5500 /* some are on their way when a window ends */
#define SHARE     0.9
#endif

#define KBIT      1000000
#define WINDOWS   3 /* of each kind, in a set */
#define SETS      3 /* at most: a machine that is busy otherwise may spoil one */
#define WINDOW_S  0.7
#define RIGHT_S   xt_bound(1, 3) /* until the right sender is in, among them */
#define GONE_S    xt_bound(8, 12) /* until nothing of the strangers is left: silent ones have 5 s */
#define STAYING   200 /* who come at once, and do not go */
#define CROWD_MAX 2048

struct stage {
    struct path_hosts hosts;
    struct path_meet traffic, right; /* the right one's handle is the one that is attacked */
    _Atomic uint32_t listening;
    _Atomic uint32_t window; /* odd: quiet, even: attacked, counting from 1; END */
    _Atomic uint32_t at_home; /* attacked windows whose strangers have all closed */
    _Atomic uint32_t right_go, right_in;
    _Atomic uint32_t over;
    uint32_t wanted; /* strangers in a set, fewer where descriptors are short */
    uint32_t came; /* those that were connected, in all */
    double right_begin_s;
};

#define END 1000u

/* ---- strangers ---- */

static_assert(STRANGERS / WINDOWS < CROWD_MAX && STAYING < CROWD_MAX, "a crowd has room");

struct crowd {
    int fds[CROWD_MAX];
    int count, max;
    int talked; /* of them, those that are connected and have said what they had to say */
    struct xccl_addr to;
    struct kit_proof right; /* an opening; nobody says it as it is */
    uint64_t state;
};

static void crowd_init(struct crowd *crowd, struct stage *stage)
{
    struct rlimit limit;

    memset(crowd, 0, sizeof(*crowd));
    crowd->state = xt_seed();
    crowd->max = STRANGERS / WINDOWS + 1;
    XT_CHECK_INT(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max < (rlim_t)crowd->max + 64)
        crowd->max = (int)limit.rlim_max - 64;
    stage->wanted = (uint32_t)crowd->max * WINDOWS * 10 / 11;
    crowd->to = handle_addr(&stage->right.handle);
    raw_opening(&stage->right.handle, 0, 1, &crowd->right);
}

/* 0: it is not connected yet. */
static int stranger_talk(struct crowd *crowd, int fd)
{
    uint64_t dice = xt_random(&crowd->state), kind = dice % 4;
    uint8_t said[200];
    size_t bytes = sizeof(said);

    for (size_t i = 0; i < sizeof(said); i++)
        said[i] = (uint8_t)xt_random(&crowd->state);
    if (kind > 1) {
        bytes = kind == 2 ? KIT_OPENING_BYTES / 2 : KIT_OPENING_BYTES;
        memcpy(said, crowd->right.opening, bytes);
        /* A bit of the nonce or the MAC. */
        said[KIT_OPENING_BYTES - 1 - dice / 4 % 32] ^= (uint8_t)(1u << dice / 128 % 8);
    }
    /* The silent ones, too, must have come. */
    return send(fd, said, kind == 0 ? 0 : bytes, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0 ||
           errno != EAGAIN;
}

static void stranger_come(struct crowd *crowd)
{
    int fd = socket(crowd->to.sa.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return;
    if (connect(fd, &crowd->to.sa.any, crowd->to.bytes) != 0 && errno != EINPROGRESS) {
        close(fd);
        return;
    }
    crowd->fds[crowd->count++] = fd;
}

static void crowd_talk(struct crowd *crowd)
{
    while (crowd->talked < crowd->count && stranger_talk(crowd, crowd->fds[crowd->talked]))
        crowd->talked++;
}

static void crowd_go_home(struct crowd *crowd)
{
    for (int i = 0; i < crowd->count; i++)
        close(crowd->fds[i]);
    crowd->count = 0;
    crowd->talked = 0;
}

/* They come evenly over eight tenths of a window, and stay for the rest of it. */
static void strangers_run(struct stage *stage)
{
    static struct crowd crowd;

    path_hosts_enter(&stage->hosts, 0);
    path_word_await(&stage->listening, 1);
    crowd_init(&crowd, stage);
    for (uint32_t i = 0;; i++) {
        double begin, share = 0;

        path_word_await(&stage->window, 2 * i + 2);
        if (path_word_get(&stage->window) == END)
            break;
        begin = path_seconds();
        while (path_word_get(&stage->window) == 2 * i + 2) {
            share = (path_seconds() - begin) / (0.8 * WINDOW_S);
            while (crowd.count < crowd.max && crowd.count < share * crowd.max)
                stranger_come(&crowd);
            path_nap_ms(1);
            crowd_talk(&crowd);
        }
        stage->came += (uint32_t)crowd.talked;
        crowd_go_home(&crowd);
        path_word_set(&stage->at_home, i + 1);
    }
}

/* ---- the sender ---- */

/* The second connection, once it is wanted. */
static void right_sender(struct stage *stage, const struct path_flow *traffic, int dev,
                         xcclNetConnect_t *state, void **comm)
{
    const xcclNetPlugin_v1_t *calls = &traffic->net->calls;

    if (*comm || !path_word_get(&stage->right_go))
        return;
    if (!*state)
        stage->right_begin_s = path_seconds();
    XT_OK(calls->connect(traffic->net->ctx, dev, &stage->right.handle, state, comm));
}

/* What proves that the two ends belong together. */
static void send_proof(const struct path_flow *traffic, void *comm)
{
    static char proof[8] = "it is me";
    const xcclNetPlugin_v1_t *calls = &traffic->net->calls;
    xcclNetRequest_t request = NULL;
    xcclNetMem_t mem;
    int done = 0;

    XT_OK(calls->regMr(comm, proof, sizeof(proof), XCCL_NET_PTR_HOST, &mem));
    XT_OK(calls->isend(comm, proof, sizeof(proof), 1, mem, &request));
    while (!done)
        XT_OK(calls->test(request, &done, NULL));
}

static void sender_run(struct stage *stage)
{
    struct path_flow flow = {.bytes = 256 << 10};
    xcclNetConnect_t state = NULL;
    struct xccl_net *net;
    void *comm = NULL;
    int dev, proved = 0;

    path_hosts_enter(&stage->hosts, 0);
    net = path_net_open(0);
    dev = path_net_device(net, 0);
    path_flow_open(&flow, net, dev, &stage->traffic, 1);
    while (!path_word_get(&stage->over)) {
        path_flow_turn(&flow);
        XT_CHECK_INT(flow.rc, xcclSuccess);
        right_sender(stage, &flow, dev, &state, &comm);
        if (!comm || proved)
            continue;
        send_proof(&flow, comm);
        proved = 1;
    }
    path_flow_end(&flow);
    path_flow_close(&flow);
    XT_CHECK(comm != NULL);
    XT_OK(net->calls.closeSend(comm));
    xccl_net_close(net);
}

/* ---- the receiver ---- */

struct guard {
    struct stage *stage;
    struct path_flow flow;
    xcclNetListenComm_t listener;
    void *right;
    double right_s; /* when it came */
    double next_s; /* the next look at the door */
    int fds_before, fds_most;
};

/* Traffic, and a look at the door each millisecond. */
static void guard_turn(struct guard *guard)
{
    const xcclNetPlugin_v1_t *calls = &guard->flow.net->calls;
    double now;

    path_flow_turn(&guard->flow);
    XT_CHECK_INT(guard->flow.rc, xcclSuccess);
    now = path_seconds();
    if (!guard->listener || guard->right || now < guard->next_s)
        return;
    guard->next_s = now + 1e-3;
    XT_OK(calls->accept(guard->listener, &guard->right));
    if (!guard->right)
        return;
    if (!path_word_get(&guard->stage->right_go))
        XT_FAIL("a stranger was let in");
    guard->right_s = path_seconds();
    path_word_set(&guard->stage->right_in, 1);
}

static void guard_run_for(struct guard *guard, double time_s)
{
    double end = path_seconds() + time_s;

    while (path_seconds() < end)
        guard_turn(guard);
}

static double window_rate(struct guard *guard, double time_s)
{
    double begin = path_seconds(), end;
    uint64_t payload = guard->flow.payload;

    guard_run_for(guard, time_s);
    end = path_seconds();
    return (double)(guard->flow.payload - payload) / (end - begin);
}

/* A quiet window, or an attacked one with all that follows until the strangers are home again. */
static double window_run(struct guard *guard, uint32_t number)
{
    struct stage *stage = guard->stage;
    double rate;
    int now;

    path_word_set(&stage->window, number);
    rate = window_rate(guard, WINDOW_S);
    if (number % 2)
        return rate;
    now = xt_entries("/proc/self/fd");
    guard->fds_most = now > guard->fds_most ? now : guard->fds_most;
    path_word_set(&stage->window, number + 1);
    while (path_word_get(&stage->at_home) < number / 2)
        guard_turn(guard);
    return rate;
}

/* Returns 1 when the connection kept its speed and all have come. */
static int set_run(struct guard *guard, uint32_t *number)
{
    struct stage *stage = guard->stage;
    double rates[2][WINDOWS], quiet, attacked;
    uint32_t before = stage->came;

    for (uint32_t i = 0; i < 2 * WINDOWS; i++)
        rates[i % 2][i / 2] = window_run(guard, ++*number);
    quiet = xt_median(rates[0], WINDOWS);
    attacked = xt_median(rates[1], WINDOWS);
    path_figure("strangers: %u came; quiet %.1f MB/s, attacked %.1f (%.3f of it); at most %d "
                "descriptors more",
                stage->came - before, quiet * 1e-6, attacked * 1e-6, attacked / quiet,
                guard->fds_most - guard->fds_before);
    return attacked >= SHARE * quiet && stage->came - before >= stage->wanted;
}

static void windows_run(struct guard *guard)
{
    struct stage *stage = guard->stage;
    uint32_t number = 0;
    int good = 0;

    for (int i = 0; i < SETS && !good; i++)
        good = set_run(guard, &number);
    /* Once more, with the right sender among them. */
    path_word_set(&stage->right_go, 1);
    (void)window_run(guard, number + 2);
    while (!guard->right && path_seconds() < stage->right_begin_s + 10)
        guard_turn(guard);
    path_word_set(&stage->window, END);
    XT_CHECK(guard->right != NULL);
    path_figure("strangers: the right sender was in after %.3f s",
                guard->right_s - stage->right_begin_s);
    XT_CHECK(guard->right_s - stage->right_begin_s <= RIGHT_S);
    XT_CHECK(good);
}

static void receive_proof(struct guard *guard)
{
    const xcclNetPlugin_v1_t *calls = &guard->flow.net->calls;
    static char proof[8];
    void *data = proof;
    size_t bytes = sizeof(proof);
    uint32_t tag = 1;
    xcclNetRequest_t request = NULL;
    xcclNetMem_t mem;
    int done = 0;

    XT_OK(calls->regMr(guard->right, proof, sizeof(proof), XCCL_NET_PTR_HOST, &mem));
    XT_OK(calls->irecv(guard->right, 1, &data, &bytes, &tag, &mem, &request));
    while (!done) {
        XT_OK(calls->test(request, &done, &bytes));
        guard_turn(guard);
    }
    XT_CHECK(bytes == sizeof(proof) && memcmp(proof, "it is me", sizeof(proof)) == 0);
}

/* The strangers have gone home; the listener has nothing of them any more once it has been asked,
 * or at the latest with its close. */
static void check_nothing_is_left(struct guard *guard)
{
    const xcclNetPlugin_v1_t *calls = &guard->flow.net->calls;

    XT_OK(calls->closeListen(guard->listener));
    guard->listener = NULL;
    XT_OK(calls->closeRecv(guard->right));
    XT_CHECK_INT(xt_entries("/proc/self/fd"), guard->fds_before);
}

static void receiver_run(struct stage *stage)
{
    struct guard guard = {.stage = stage, .flow = {.bytes = 256 << 10}};
    struct xccl_net *net;
    int dev;

    path_hosts_enter(&stage->hosts, 1);
    net = path_net_open(0);
    dev = path_net_device(net, 0);
    path_flow_open(&guard.flow, net, dev, &stage->traffic, 0);
    guard_run_for(&guard, 0.5);
    guard.fds_before = xt_entries("/proc/self/fd");
    XT_OK(net->calls.listen(net->ctx, dev, &stage->right.handle, &guard.listener));
    path_word_set(&stage->listening, 1);
    windows_run(&guard);
    receive_proof(&guard);
    check_nothing_is_left(&guard);
    path_word_set(&stage->over, 1);
    path_flow_end(&guard.flow);
    path_flow_close(&guard.flow);
    xccl_net_close(net);
}

static void rank_run(int rank, int nranks, void *arg)
{
    static void (*const roles[])(struct stage *) = {sender_run, receiver_run, strangers_run};

    (void)nranks;
    roles[rank](arg);
}

XT_TEST_DEADLINE(thousands_of_strangers_at_the_port_do_not_slow_down_an_open_connection, 90)
{
    static const struct path_rail rail = {.host = 1, .kbit = KBIT};
    struct stage *stage = path_shared(sizeof(*stage));

    path_hosts_make(&stage->hosts, &rail, 1);
    xt_setenv("XCCL_SOCKET_STREAMS", "1");
    xt_mp_run(3, rank_run, stage);
    path_hosts_drop(&stage->hosts);
}

/* ---- a listener that stays ---- */

static void crowd_of_silence(struct stage *stage, struct crowd *crowd)
{
    path_hosts_enter(&stage->hosts, 0);
    path_word_await(&stage->listening, 1);
    crowd_init(crowd, stage);
    while (crowd->count < STAYING)
        stranger_come(crowd);
    while (crowd->talked < crowd->count) {
        path_nap_ms(1);
        crowd_talk(crowd);
    }
    path_word_await(&stage->over, 1);
    crowd_go_home(crowd);
}

/* They stay connected: the plugin is the one to show them out. */
static void silence_run(int rank, int nranks, void *arg)
{
    struct stage *stage = arg;
    xcclNetListenComm_t listener = NULL;
    void *comm = NULL;
    double begin = path_seconds();
    static struct crowd crowd;
    struct xccl_net *net;
    int before, most = 0, now;

    (void)nranks;
    if (rank == 0) {
        crowd_of_silence(stage, &crowd);
        return;
    }
    path_hosts_enter(&stage->hosts, 1);
    net = path_net_open(0);
    XT_OK(net->calls.listen(net->ctx, path_net_device(net, 0), &stage->right.handle, &listener));
    before = xt_entries("/proc/self/fd");
    path_word_set(&stage->listening, 1);
    do {
        XT_OK(net->calls.accept(listener, &comm));
        XT_CHECK(comm == NULL);
        now = xt_entries("/proc/self/fd");
        most = now > most ? now : most;
        path_nap_ms(5);
        XT_CHECK(path_seconds() < begin + GONE_S);
    } while (most == before || now > before);
    path_figure("strangers: at most %d descriptors of %d who stayed, none after %.1f s",
                most - before, STAYING, path_seconds() - begin);
    path_word_set(&stage->over, 1);
    XT_OK(net->calls.closeListen(listener));
    xccl_net_close(net);
}

XT_TEST_DEADLINE(strangers_who_stay_are_shown_out_and_leave_no_descriptors, 60)
{
    static const struct path_rail rail = {.host = 1, .kbit = 0};
    struct stage *stage = path_shared(sizeof(*stage));

    path_hosts_make(&stage->hosts, &rail, 1);
    xt_mp_run(2, silence_run, stage);
    path_hosts_drop(&stage->hosts);
}

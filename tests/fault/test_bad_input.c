/* SPDX-License-Identifier: BSD-3-Clause */
/* Wrong input through the public calls: settings, ids and numbers that make no sense, servers that
 * are no root, and a recorded session that is played again. Each is one clear error where it
 * belongs, and a real job that joins at the same time does not notice. Ranks are processes; all
 * error texts are printed. */
#include "../collective/world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO        148 /* bytes of the bootstrap's wire, version 2 */
#define STREAM       24
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* The error names what was wrong with it, and says something to do. */
static void expect(const char *what, xcclResult_t got, xcclResult_t want, const char *part)
{
    const char *text = xcclGetLastError(NULL);

    printf("%.60s: %s\n", what, text);
    XT_CHECK_INT(got, want);
    XT_CHECK_HAS(text, part);
    XT_CHECK(strlen(text) < 512);
}

/* The real job: ranks 0 and 1 of whatever the test starts. */
static void real_job(int rank, struct world *world)
{
    struct world_case c = {1000, 0, xcclFloat32, 0, 1};
    xcclComm_t comm = NULL;

    XT_OK(xcclCommInitRank(&comm, 2, world_id(world, rank, 0), rank));
    world_all_reduce(comm, rank, 2, &c);
    XT_OK(xcclCommDestroy(comm));
}

/* ---- settings ---- */

static const struct {
    const char *name, *value, *part;
} settings[] = {
    {"XCCL_COMM_ID", "127.0.0.1:99999", "the port is not a number from 1 to 65535"},
    {"XCCL_COMM_ID", "127.0.0.1:-1", "the port is not a number from 1 to 65535"},
    {"XCCL_COMM_ID", "127.0.0.1:0", "the port is not a number from 1 to 65535"},
    {"XCCL_COMM_ID", "127.0.0.1:", "the port is not a number from 1 to 65535"},
    {"XCCL_COMM_ID", "127.0.0.1", "the port is missing"},
    {"XCCL_COMM_ID", "abc", "the port is missing"},
    {"XCCL_COMM_ID", ":4000", "the host before the port is missing"},
    {"XCCL_COMM_ID", "::1:4000", "brackets"},
    {"XCCL_COMM_ID", "[::1%a-very-long-zone-that-goes-on]:4000", "more than 15 bytes"},
    {"XCCL_COMM_ID", "[fe80::1%nosuchif]:4000", "not an interface"},
    {"XCCL_COMM_ID", "LONG", "too long"},
    {"XCCL_COMM_ID", "LONGZONE", "too long"},
    {"XCCL_COMM_ID", "256.0.0.1:4000", "neither an IPv4 address nor a name"},
    {"XCCL_PORT_RANGE", "5000", "XCCL_PORT_RANGE"},
    {"XCCL_PORT_RANGE", "6000-5000", "XCCL_PORT_RANGE"},
    {"XCCL_PORT_RANGE", "1-70000", "XCCL_PORT_RANGE"},
    {"XCCL_SOCKET_IFNAME", "=nosuchif", "XCCL_SOCKET_IFNAME"},
    {"XCCL_SOCKET_FAMILY", "ipv5", "any|ipv4|ipv6"},
    {"XCCL_TIMEOUT_INIT_S", "-3", "XCCL_TIMEOUT_INIT_S"},
    {"XCCL_JOB_KEY_FILE", "/nonexistent/key", ""},
};

static void bad_setting(int rank, int nranks, void *arg)
{
    static char value[1000];
    xcclUniqueId id;
    size_t at = (size_t)rank - 2;

    (void)nranks;
    if (rank < 2) {
        real_job(rank, arg);
        return;
    }
    snprintf(value, sizeof value, "%s", settings[at].value);
    if (strncmp(value, "LONG", 4) == 0) {
        const char *head = value[4] == 'Z' ? "[fe80::1%" : "", *tail = *head ? "]:4000" : ":4000";

        memset(value, 'a', sizeof value);
        memcpy(value, head, strlen(head));
        memcpy(value + sizeof value - strlen(tail) - 1, tail, strlen(tail) + 1);
    }
    xt_setenv(settings[at].name, value);
    if (strcmp(settings[at].name, "XCCL_JOB_KEY_FILE") == 0) {
        xt_setenv("XCCL_COMM_ID", "127.0.0.1:4000");
        expect(value, xcclGetUniqueId(&id), xcclSystemError, "/nonexistent/key");
        return;
    }
    expect(value, xcclGetUniqueId(&id),
           strcmp(settings[at].name, "XCCL_SOCKET_IFNAME") == 0 ? xcclInvalidUsage
                                                                : xcclInvalidArgument,
           settings[at].part);
}

XT_TEST(each_bad_setting_is_named_while_others_join)
{
    xt_mp_run(2 + (int)COUNT(settings), bad_setting, world_create());
}

/* ---- ids and numbers ---- */

/* Ranks 2 and 3 are both rank 0 of two, 4 and 5 disagree on how many they are, 6 has numbers and
 * ids that make no sense. */
static void bad_rank(int rank, int nranks, void *arg)
{
    struct world *world = arg;
    xcclComm_t comm = NULL;
    xcclUniqueId id;

    (void)nranks;
    xt_set_error_source(world_error);
    xt_setenv("XCCL_TIMEOUT_INIT_S", "10");
    if (rank < 2) {
        real_job(rank, arg);
    } else if (rank < 4) {
        xt_allow_leaks("the root stays until its deadline to tell late ranks");
        id = world_id(world, rank - 2, 1);
        expect("twice", xcclCommInitRank(&comm, 2, id, 0), xcclInvalidUsage, "is there twice");
    } else if (rank < 6) {
        xt_allow_leaks("the root stays until its deadline to tell late ranks");
        id = world_id(world, rank - 4, 2);
        expect("ranks", xcclCommInitRank(&comm, rank - 2, id, rank - 4), xcclInvalidUsage,
               "give all the same number");
    } else {
        id = world_id(world, 1, 0);
        expect("rank 2 of 2", xcclCommInitRank(&comm, 2, id, 2), xcclInvalidArgument, "rank");
        expect("rank -1", xcclCommInitRank(&comm, 2, id, -1), xcclInvalidArgument, "rank");
        expect("no ranks", xcclCommInitRank(&comm, 0, id, 0), xcclInvalidArgument, "ranks");
        expect("-5 ranks", xcclCommInitRank(&comm, -5, id, 0), xcclInvalidArgument, "ranks");
        expect("2^31-1 ranks", xcclCommInitRank(&comm, 0x7fffffff, id, 0), xcclInvalidArgument,
               "ranks");
        memset(&id, 0, sizeof id);
        expect("zero id", xcclCommInitRank(&comm, 2, id, 0), xcclInvalidArgument,
               "not a unique id");
        memset(&id, 0xff, sizeof id);
        expect("ones id", xcclCommInitRank(&comm, 2, id, 0), xcclInvalidArgument,
               "not a unique id");
        id = world_id(world, 1, 0);
        memset(id.internal + 57, 0, sizeof id - 57);
        expect("cut id", xcclCommInitRank(&comm, 2, id, 0), xcclInvalidArgument, "not a unique id");
        XT_CHECK_RC(xcclCommInitRank(NULL, 2, id, 0), xcclInvalidArgument);
        XT_CHECK_RC(xcclGetUniqueId(NULL), xcclInvalidArgument);
    }
    XT_CHECK(comm == NULL);
}

XT_TEST(each_bad_rank_and_id_is_named_while_others_join)
{
    xt_mp_run(7, bad_rank, world_create());
}

/* ---- servers that are no root ---- */

static int listen_somewhere(uint16_t *port_out)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof addr;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    XT_CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&addr, bytes) == 0 && listen(fd, 16) == 0);
    XT_CHECK(getsockname(fd, (struct sockaddr *)&addr, &bytes) == 0);
    *port_out = ntohs(addr.sin_port);
    return fd;
}

/* The id's first root address: family, zero, port, ..., at byte 56. */
static uint16_t id_port(const xcclUniqueId *id)
{
    const uint8_t *addr = (const uint8_t *)id->internal + 56;

    XT_CHECK(addr[0] == 4);
    return (uint16_t)(addr[2] | addr[3] << 8);
}

static void id_set_port(xcclUniqueId *id, uint16_t port)
{
    id->internal[58] = (char)(port & 255);
    id->internal[59] = (char)(port >> 8);
}

enum answer { ANSWER_ECHO, ANSWER_HTTP, ANSWER_NOTHING, ANSWER_NOISE, ANSWER_COUNT };

struct impostor {
    int listen_fd;
    enum answer answer;
    _Atomic int stop;
};

static void answer(int fd, enum answer answer)
{
    static const char http[] = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n<html></html>";
    uint8_t bytes[4096];
    ssize_t got;

    while ((got = recv(fd, bytes, sizeof bytes, 0)) > 0) {
        /* Twice: a reply is longer than a hello. */
        for (int i = 0; answer == ANSWER_ECHO && i < 2; i++)
            (void)send(fd, bytes, (size_t)got, MSG_NOSIGNAL);
        if (answer == ANSWER_HTTP)
            (void)send(fd, http, sizeof http, MSG_NOSIGNAL);
        if (answer == ANSWER_HTTP)
            break;
        memset(bytes, 0xa5, sizeof bytes);
        if (answer == ANSWER_NOISE)
            (void)send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
    }
}

static void *impostor_serve(void *arg)
{
    struct impostor *impostor = arg;

    /* Relaxed: the descriptor's shutdown wakes and orders. */
    while (!atomic_load_explicit(&impostor->stop, memory_order_relaxed)) {
        int fd = accept(impostor->listen_fd, NULL, NULL);

        if (fd < 0)
            break;
        answer(fd, impostor->answer);
        close(fd);
    }
    return NULL;
}

static void misled(int rank, int nranks, void *arg)
{
    static const char *const names[] = {"an echo", "a web server", "silence", "noise"};
    struct impostor impostor = {.answer = (enum answer)(rank - 2)};
    xcclComm_t comm = NULL;
    xcclUniqueId id;
    pthread_t thread;
    uint16_t port;
    double start;

    (void)nranks;
    xt_set_error_source(world_error);
    if (rank < 2) {
        real_job(rank, arg);
        return;
    }
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xt_setenv("XCCL_TIMEOUT_INIT_S", "3");
    xt_allow_leaks("the root that nobody came to stays until its deadline");
    impostor.listen_fd = listen_somewhere(&port);
    XT_CHECK_INT(pthread_create(&thread, NULL, impostor_serve, &impostor), 0);
    XT_OK(xcclGetUniqueId(&id));
    id_set_port(&id, port);
    start = world_seconds();
    expect(names[rank - 2], xcclCommInitRank(&comm, 2, id, 0),
           impostor.answer == ANSWER_NOTHING ? xcclTimeout : xcclRemoteError, "127.0.0.1:");
    XT_CHECK(world_seconds() - start < 10);
    atomic_store_explicit(&impostor.stop, 1, memory_order_relaxed);
    shutdown(impostor.listen_fd, SHUT_RDWR);
    XT_CHECK_INT(pthread_join(thread, NULL), 0);
    close(impostor.listen_fd);
}

XT_TEST(a_server_that_is_no_root_is_named_while_others_join)
{
    xt_mp_run(2 + ANSWER_COUNT, misled, world_create());
}

/* ---- a recorded session ---- */

struct relay {
    struct world *world;
    int listen_fd;
    uint16_t root_port;
    uint8_t said[2][4096]; /* by the rank, by the root */
    size_t bytes[2];
};

static int connect_port(uint16_t port)
{
    struct sockaddr_in addr = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    XT_CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&addr, sizeof addr) == 0);
    return fd;
}

/* Says bytes to the root and returns how many came back until it hung up, -1: it did not within ms.
 */
static int play(uint16_t port, const uint8_t *bytes, size_t count, int ms)
{
    int fd = connect_port(port), got = 0;
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    uint8_t back[4096];

    (void)send(fd, bytes, count, MSG_NOSIGNAL);
    for (;;) {
        ssize_t more = 0;

        if (poll(&wait, 1, ms) == 1)
            more = recv(fd, back, sizeof back, 0);
        else
            got = -1;
        if (more <= 0 || got < 0)
            break;
        got += (int)more;
    }
    close(fd);
    return got;
}

/* A hello that has been here is not answered, whatever comes behind it. */
static void relay_attack(struct relay *relay)
{
    const size_t all = relay->bytes[0];
    uint8_t altered[4096];

    XT_CHECK(all > HELLO + STREAM);
    for (int i = 0; i < 5; i++)
        XT_CHECK_INT(play(relay->root_port, relay->said[0], all, 4000), 0);
    for (size_t at = 0; at < all; at += 7) {
        memcpy(altered, relay->said[0], all);
        altered[at] ^= 0x20;
        XT_CHECK_INT(play(relay->root_port, altered, all, 4000), 0);
    }
    /* The root's own bytes thrown back, a frame of 4 GiB, and two sessions in one. */
    XT_CHECK_INT(play(relay->root_port, relay->said[1], relay->bytes[1], 4000), 0);
    memcpy(altered, relay->said[0], HELLO + STREAM);
    memset(altered + HELLO + STREAM, 0xff, 100);
    XT_CHECK_INT(play(relay->root_port, altered, HELLO + STREAM + 100, 4000), 0);
    memcpy(altered + HELLO, relay->said[0], HELLO);
    XT_CHECK_INT(play(relay->root_port, altered, 2 * HELLO, 4000), 0);
    XT_CHECK_INT(play(relay->root_port, relay->said[0], HELLO - 1, 500), -1);
    XT_CHECK_INT(play(relay->root_port, relay->said[0], 1, 500), -1);
}

/* Moves what one side said to the other; 0: it ended. */
static int relay_move(struct relay *relay, const int fds[2], int from)
{
    uint8_t *at = relay->said[from] + relay->bytes[from];
    ssize_t got = recv(fds[from], at, sizeof relay->said[from] - relay->bytes[from], 0);

    if (got <= 0)
        return 0;
    relay->bytes[from] += (size_t)got;
    return send(fds[!from], at, (size_t)got, MSG_NOSIGNAL) == got;
}

/* Rank 1's way to the root. When both have said all they can before rank 2 comes, it attacks. */
static void *relay_run(void *arg)
{
    struct relay *relay = arg;
    int fds[2], attacked = 0, on = 1;

    fds[0] = accept(relay->listen_fd, NULL, NULL);
    XT_CHECK(fds[0] >= 0);
    fds[1] = connect_port(relay->root_port);
    while (on) {
        struct pollfd wait[2] = {{.fd = fds[0], .events = POLLIN},
                                 {.fd = fds[1], .events = POLLIN}};

        if (poll(wait, 2, attacked ? -1 : 300) == 0 && relay->bytes[0] > HELLO + STREAM) {
            relay_attack(relay);
            attacked = 1;
            /* Release: pairs with the acquire in joins_last(). */
            atomic_store_explicit(&relay->world->ready[1], 1, memory_order_release);
        }
        for (int from = 0; from < 2 && on; from++) {
            if (wait[from].revents)
                on = relay_move(relay, fds, from);
        }
    }
    close(fds[0]);
    close(fds[1]);
    XT_CHECK(attacked);
    return NULL;
}

static void overheard(int rank, int nranks, void *arg)
{
    static struct relay relay;
    struct world_case c = {1000, 0, xcclFloat32, 0, 1};
    xcclComm_t comm = NULL;
    pthread_t thread;
    xcclUniqueId id;
    uint16_t port;

    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    id = world_id(arg, rank, 0);
    if (rank == 1) {
        relay.world = arg;
        relay.listen_fd = listen_somewhere(&port);
        relay.root_port = id_port(&id);
        id_set_port(&id, port);
        XT_CHECK_INT(pthread_create(&thread, NULL, relay_run, &relay), 0);
    }
    while (rank == 2 &&
           !atomic_load_explicit(&((struct world *)arg)->ready[1], memory_order_acquire))
        sched_yield(); /* bounded by the test's deadline */
    XT_OK(xcclCommInitRank(&comm, nranks, id, rank));
    world_all_reduce(comm, rank, nranks, &c);
    XT_OK(xcclCommDestroy(comm));
    if (rank == 1) {
        shutdown(relay.listen_fd, SHUT_RDWR);
        XT_CHECK_INT(pthread_join(thread, NULL), 0);
        close(relay.listen_fd);
    }
}

XT_TEST_DEADLINE(a_recorded_session_played_again_changes_nothing, 60)
{
    xt_mp_run(3, overheard, world_create());
}

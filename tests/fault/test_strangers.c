/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks join while strangers hold thousands of connections against the root and against the ports
 * of the ranks: half of them silent, half saying something wrong, from one address and from many.
 * Every second round the same strangers go to a decoy instead, which does as little as the kernel
 * allows; so the machine is as busy, and what differs is the library's. The medians are compared,
 * and the time that the decoy and the root take from a processor. Somebody who knocks at the decoy
 * meanwhile tells how long the kernel's line at an attacked door is. nmap's scans must change
 * nothing either.
 *
 * Strangers are processes of their own (descriptors, and no time of the ranks'); who is shown out
 * comes back, at a bounded rate. XT_STRANGERS_SECONDS: how long nmap scans (default 8). */
#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "xccl.h"
#include "xt.h"

#ifdef XCCL_SANITIZED
#define SLOWER 10
#else
#define SLOWER 1
#endif

#define RANKS        16
#define ROUNDS       10 /* of a series; every second one is attacked, the others the decoy */
#define SERIES       3
#define GANGS        10 /* processes of strangers */
#define GANG_MEMBERS (2400 / SLOWER) /* 1 in 6 goes to a rank's port, the others to the root's */
#define PORTS_MAX    64
#define SOURCES      200
#define BACK_MS      25 /* each gang lets one stranger come back in this time */
#define HALF_OPEN    256
#define IDLE_S       8.0 /* longer than the kernel keeps the silent, and the library the slow */
#define FLOOR_S      (0.02 * SLOWER)
#define FLOOR_CPU    (0.02 * (SLOWER > 1 ? 4 : 1))
#define DECOY_PORTS  16

/* Shared by the test, the ranks and the strangers. */
struct town {
    _Atomic uint32_t round; /* ranks begin round - 1 when it changes; ROUNDS_END ends them */
    _Atomic uint32_t go, there, joined, over; /* in this round: ranks may join, are ready, ... */
    _Atomic uint32_t attack; /* odd: strangers come; even: they go home; 1 << 30: for good */
    _Atomic uint32_t opened, gone_home, decoy_there;
    xcclUniqueId id;
    double begin[RANKS], end[RANKS];
    int port_count; /* ports[0..] of the root's process, then of all ranks */
    uint16_t ports[PORTS_MAX];
    uint16_t decoy_ports[DECOY_PORTS];
};

#define END (1u << 30)

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static const char *error_text(void)
{
    return xcclGetLastError(NULL);
}

/* Sets a word and wakes who waits for it. */
static void word_set(_Atomic uint32_t *word, uint32_t value)
{
    /* Release: what was written before is seen after word_await(). */
    atomic_store_explicit(word, value, memory_order_release);
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void word_add(_Atomic uint32_t *word)
{
    /* Release: as in word_set(). */
    atomic_fetch_add_explicit(word, 1, memory_order_release);
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Asleep until the word has reached value; 0 when that takes more than 60 s. */
static int word_await(_Atomic uint32_t *word, uint32_t value)
{
    double limit = seconds() + 60 * (SLOWER > 1 ? 2 : 1);
    struct timespec nap = {.tv_sec = 1};

    while (seconds() < limit) {
        /* Acquire: pairs with the releases in word_set() and word_add(). */
        uint32_t now = atomic_load_explicit(word, memory_order_acquire);

        if (now >= value)
            return 1;
        (void)syscall(SYS_futex, word, FUTEX_WAIT, now, &nap, NULL, 0);
    }
    return 0;
}

/* ---- ranks ---- */

static void check_sum(xcclComm_t comm, int rank, int nranks)
{
    int values[100], sums[100];

    for (int i = 0; i < 100; i++)
        values[i] = rank * 1000 + i;
    XT_OK(xcclAllReduce(values, sums, 100, xcclInt32, xcclSum, comm, NULL));
    for (int i = 0; i < 100; i++)
        XT_CHECK_INT(sums[i], nranks * (nranks - 1) / 2 * 1000 + i * nranks);
}

/* A communicator a round; that of the first stays, and its ports with it. */
static void inhabitant(int rank, int nranks, void *arg)
{
    struct town *town = arg;
    xcclComm_t first = NULL;

    xt_set_error_source(error_text);
    for (uint32_t round = 1;; round++) {
        xcclComm_t comm = NULL;

        XT_CHECK(word_await(&town->round, round));
        if (atomic_load_explicit(&town->round, memory_order_acquire) == END)
            break;
        if (rank == 0)
            XT_OK(xcclGetUniqueId(&town->id));
        word_add(&town->there);
        XT_CHECK(word_await(&town->go, round));
        town->begin[rank] = seconds();
        XT_OK(xcclCommInitRank(&comm, nranks, town->id, rank));
        town->end[rank] = seconds();
        word_add(&town->joined);
        XT_CHECK(word_await(&town->over, round));
        check_sum(comm, rank, nranks);
        if (!first)
            first = comm;
        else
            XT_OK(xcclCommDestroy(comm));
    }
    check_sum(first, rank, nranks);
    XT_OK(xcclCommDestroy(first));
}

/* ---- strangers ---- */

struct gang {
    struct town *town;
    int number, epoll_fd, count;
    int fds[GANG_MEMBERS]; /* -1: at home */
    int connected[GANG_MEMBERS];
    uint64_t state; /* of xt_random() */
};

static int gang_is_silent(const struct gang *gang)
{
    return gang->number % 2 == 0;
}

/* Of the silent and of the babbling gangs some come from one address, the ranks' own. */
static void stranger_leave_home(struct gang *gang, int i)
{
    const struct town *town = gang->town;
    struct sockaddr_in from = {.sin_family = AF_INET}, to = {.sin_family = AF_INET};
    const struct linger none = {.l_onoff = 1};
    struct epoll_event event = {.events = EPOLLOUT, .data.u32 = (uint32_t)i};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), yes = 1;
    int port = i % 6 == 5 ? i / 6 % town->port_count : 0;

    if (fd < 0)
        return;
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
    (void)setsockopt(fd, IPPROTO_IP, 24 /* IP_BIND_ADDRESS_NO_PORT */, &yes, sizeof(yes));
    from.sin_addr.s_addr = htonl(
        INADDR_LOOPBACK + (gang->number < 4 ? 0 : 1 + (uint32_t)(i + gang->number) % SOURCES));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(town->ports[port]);
    if (bind(fd, (struct sockaddr *)&from, sizeof(from)) != 0 ||
        (connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0 && errno != EINPROGRESS) ||
        epoll_ctl(gang->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        close(fd);
        return;
    }
    gang->fds[i] = fd;
    gang->connected[i] = 0;
}

/* Half of what is said is long enough to be judged at once. */
static void stranger_talk(struct gang *gang, int fd)
{
    static const char *const known[] = {"GET / HTTP/1.1\r\n\r\n", "XCCL\001", "SSH-2.0-x\r\n"};
    uint64_t dice = xt_random(&gang->state);
    size_t bytes = dice % 3 == 0 ? strlen(known[dice / 3 % 3]) : 1 + dice / 16 % 200;
    uint8_t said[256];

    for (size_t at = 0; at < sizeof(said); at++)
        said[at] = (uint8_t)xt_random(&gang->state);
    if (dice % 3 == 0)
        memcpy(said, known[dice / 3 % 3], bytes);
    (void)send(fd, said, bytes, MSG_NOSIGNAL);
}

/* What the gang's connections have to say, for at most ms. */
static void gang_listen(struct gang *gang, int ms)
{
    struct epoll_event events[256];
    int count = epoll_wait(gang->epoll_fd, events, 256, ms);

    for (int k = 0; k < count; k++) {
        int i = (int)events[k].data.u32;

        if (!gang->connected[i] && events[k].events == EPOLLOUT) {
            struct epoll_event event = {.events = EPOLLIN, .data.u32 = events[k].data.u32};

            gang->connected[i] = 1;
            atomic_fetch_add_explicit(&gang->town->opened, 1, memory_order_relaxed);
            if (!gang_is_silent(gang))
                stranger_talk(gang, gang->fds[i]);
            (void)epoll_ctl(gang->epoll_fd, EPOLL_CTL_MOD, gang->fds[i], &event);
        } else {
            close(gang->fds[i]);
            gang->fds[i] = -1;
        }
    }
}

static void gang_attack(struct gang *gang, uint32_t attack)
{
    double next_back = 0;
    int at = 0;

    for (int i = 0; i < gang->count; i++) {
        stranger_leave_home(gang, i);
        if (i % 32 == 31)
            gang_listen(gang, 1);
    }
    while (atomic_load_explicit(&gang->town->attack, memory_order_acquire) == attack) {
        gang_listen(gang, BACK_MS);
        if (seconds() < next_back)
            continue;
        next_back = seconds() + BACK_MS * 1e-3;
        for (int tries = 0; tries < gang->count && gang->fds[at] >= 0; tries++)
            at = (at + 1) % gang->count;
        if (gang->fds[at] < 0)
            stranger_leave_home(gang, at);
    }
    for (int i = 0; i < gang->count; i++) {
        if (gang->fds[i] >= 0)
            close(gang->fds[i]);
        gang->fds[i] = -1;
    }
}

_Noreturn static void gang_run(struct town *town, int number)
{
    static struct gang gang;
    struct rlimit limit;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    gang = (struct gang){.town = town, .number = number, .count = GANG_MEMBERS, .state = xt_seed()};
    gang.state += (uint64_t)number;
    gang.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    memset(gang.fds, -1, sizeof(gang.fds));
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
        if (limit.rlim_max < (rlim_t)gang.count + 64)
            gang.count = (int)limit.rlim_max - 64;
    }
    for (uint32_t attack = 1; word_await(&town->attack, attack); attack += 2) {
        if (atomic_load_explicit(&town->attack, memory_order_acquire) == END)
            break;
        gang_attack(&gang, attack);
        word_add(&town->gone_home);
    }
    _exit(0);
}

/* ---- the decoy ---- */

struct decoy {
    int epoll_fd, doors[DECOY_PORTS];
    int guests[HALF_OPEN], next; /* -1: none; the oldest goes first */
    int by_fd[1 << 16]; /* place of a guest + 1 */
};

static void decoy_watch(struct decoy *decoy, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

    XT_CHECK(epoll_ctl(decoy->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0);
}

static void decoy_close(struct decoy *decoy, int fd)
{
    const struct linger none = {.l_onoff = 1};

    decoy->guests[decoy->by_fd[fd] - 1] = -1;
    decoy->by_fd[fd] = 0;
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
    close(fd);
}

static void decoy_open(struct decoy *decoy, int i, uint16_t *port_out)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), patience_s = 5;

    XT_CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
    XT_CHECK(setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &patience_s, sizeof(patience_s)) == 0);
    XT_CHECK(listen(fd, SOMAXCONN) == 0);
    XT_CHECK(getsockname(fd, (struct sockaddr *)&addr, &bytes) == 0);
    *port_out = ntohs(addr.sin_port);
    decoy->doors[i] = fd;
    decoy_watch(decoy, fd);
}

static void decoy_accept(struct decoy *decoy, int door)
{
    uint8_t said[256];
    int fd = accept4(door, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd < 0 || fd >= 1 << 16)
        return;
    if (decoy->guests[decoy->next] >= 0)
        decoy_close(decoy, decoy->guests[decoy->next]);
    decoy->guests[decoy->next] = fd;
    decoy->by_fd[fd] = ++decoy->next;
    decoy->next %= HALF_OPEN;
    if (recv(fd, said, sizeof(said), 0) >= 0)
        decoy_close(decoy, fd);
    else
        decoy_watch(decoy, fd);
}

/* Lets everybody in, shuts out who says something, and the oldest of too many. */
_Noreturn static void decoy_run(struct town *town)
{
    static struct decoy decoy;
    struct epoll_event events[64];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    decoy.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    memset(decoy.guests, -1, sizeof(decoy.guests));
    for (int i = 0; i < DECOY_PORTS; i++)
        decoy_open(&decoy, i, &town->decoy_ports[i]);
    word_set(&town->decoy_there, 1);
    for (;;) {
        int count = epoll_wait(decoy.epoll_fd, events, 64, -1);

        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;

            if (decoy.by_fd[fd])
                decoy_close(&decoy, fd);
            else if (fd >= decoy.doors[0] && fd <= decoy.doors[DECOY_PORTS - 1])
                decoy_accept(&decoy, fd);
        }
    }
}

/* ---- looking at a process from outside ---- */

/* The inodes of its sockets and the number of all its descriptors. */
static int sockets_of(pid_t pid, unsigned long *inodes, int max, int *socket_count_out)
{
    char path[64], target[64];
    struct dirent *entry;
    int all = 0, sockets = 0;
    DIR *dir;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    dir = opendir(path);
    XT_CHECK(dir != NULL);
    while ((entry = readdir(dir))) {
        ssize_t bytes;

        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        all++;
        bytes = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);
        if (bytes < 0 || !inodes)
            continue;
        target[bytes] = '\0';
        if (sockets < max && strncmp(target, "socket:[", 8) == 0)
            inodes[sockets++] = strtoul(target + 8, NULL, 10);
    }
    closedir(dir);
    if (socket_count_out)
        *socket_count_out = sockets;
    return all;
}

/* Adds the ports of 127.0.0.1 where the process listens. */
static void ports_of(struct town *town, pid_t pid)
{
    unsigned long inodes[512], inode;
    unsigned address, port, state;
    int count = 0;
    char line[512];
    FILE *file;

    (void)sockets_of(pid, inodes, 512, &count);
    file = fopen("/proc/net/tcp", "re");
    XT_CHECK(file != NULL);
    while (fgets(line, sizeof(line), file)) {
        if (sscanf(line, " %*d: %x:%x %*x:%*x %x %*s %*s %*s %*u %*u %lu", &address, &port, &state,
                   &inode) != 4 ||
            state != 10 /* listening */ || address != htonl(INADDR_LOOPBACK))
            continue;
        for (int i = 0; i < count; i++) {
            if (inodes[i] == inode && town->port_count < PORTS_MAX)
                town->ports[town->port_count++] = (uint16_t)port;
        }
    }
    fclose(file);
}

/* Where the id says that the root is: family, zero, port, ..., at byte 56. */
static uint16_t root_port(const xcclUniqueId *id)
{
    const uint8_t *addr = (const uint8_t *)id->internal + 56;

    XT_CHECK_INT(addr[0], 4);
    return (uint16_t)(addr[2] | addr[3] << 8);
}

/* All ports of the ranks, the root's first. */
static void ports_find(struct town *town, struct xt_mp *mp)
{
    uint16_t port = root_port(&town->id);
    int at = 0;

    town->port_count = 0;
    for (int rank = 0; rank < RANKS; rank++)
        ports_of(town, xt_mp_pid(mp, rank));
    while (at < town->port_count && town->ports[at] != port)
        at++;
    XT_CHECK(at < town->port_count);
    town->ports[at] = town->ports[0];
    town->ports[0] = port;
}

static double cpu_of(pid_t pid)
{
    char path[64], text[1024], *after;
    unsigned long user = 0, sys = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    XT_CHECK(file != NULL);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    after = strrchr(text, ')');
    XT_CHECK(after != NULL);
    XT_CHECK_INT(
        sscanf(after + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &sys), 2);
    return (double)(user + sys) / (double)sysconf(_SC_CLK_TCK);
}

/* ---- the test ---- */

struct watch {
    int baseline, attacked, joined; /* descriptors of the root's process */
    double cpu; /* share of a core, while nobody but strangers comes */
    double knock; /* from connecting to the decoy until it has listened */
};

static void nap_ms(long ms)
{
    struct timespec nap = {.tv_nsec = ms * 1000000};

    (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL);
}

/* The most descriptors in so many seconds. */
static int most_descriptors(pid_t pid, double time)
{
    double end = seconds() + time;
    int most = 0;

    do {
        int now = sockets_of(pid, NULL, 0, NULL);

        most = now > most ? now : most;
        nap_ms(2);
    } while (seconds() < end);
    return most;
}

static double cpu_share(pid_t pid, double time)
{
    double begin = seconds(), begin_cpu = cpu_of(pid);

    while (seconds() < begin + time)
        nap_ms(50);
    return (cpu_of(pid) - begin_cpu) / (seconds() - begin);
}

/* All that will be let in are there, or half of the kernel's patience with a lost SYN is over. */
static void attack_begin(struct town *town, uint32_t attack)
{
    double limit = seconds() + 5;

    atomic_store_explicit(&town->opened, 0, memory_order_relaxed);
    word_set(&town->attack, attack);
    while (atomic_load_explicit(&town->opened, memory_order_relaxed) <
               GANGS * GANG_MEMBERS * 9 / 10 &&
           seconds() < limit)
        nap_ms(5);
}

static void attack_end(struct town *town, uint32_t attack)
{
    atomic_store_explicit(&town->gone_home, 0, memory_order_relaxed);
    word_set(&town->attack, attack + 1);
    XT_CHECK(word_await(&town->gone_home, GANGS));
}

/* The strangers go there instead. */
static void ports_lure(struct town *town)
{
    memcpy(town->ports, town->decoy_ports, sizeof(town->decoy_ports));
    town->port_count = DECOY_PORTS;
}

/* One who says something waits in line with the others until the decoy shuts him out. */
static double knock(const struct town *town)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    double begin = seconds();
    char byte = 'x';

    to.sin_port = htons(town->decoy_ports[0]);
    XT_CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
    XT_CHECK(send(fd, &byte, 1, MSG_NOSIGNAL) == 1);
    (void)recv(fd, &byte, 1, 0);
    close(fd);
    return seconds() - begin;
}

/* attack: 0: a quiet round. Strangers go to the decoy, unless that is 0. Returns how long joining
 * took. */
static double round_run(struct town *town, struct xt_mp *mp, uint32_t round, uint32_t attack,
                        pid_t decoy, struct watch *watch)
{
    pid_t root = xt_mp_pid(mp, 0);
    double first = 1e30, last = 0;

    atomic_store_explicit(&town->there, 0, memory_order_relaxed);
    atomic_store_explicit(&town->joined, 0, memory_order_relaxed);
    word_set(&town->round, round);
    XT_CHECK(word_await(&town->there, RANKS));
    ports_find(town, mp);
    if (decoy)
        ports_lure(town);
    watch->baseline = sockets_of(root, NULL, 0, NULL);
    if (attack) {
        attack_begin(town, attack);
        watch->attacked = most_descriptors(root, 0.1);
    }
    if (attack / 2 % (ROUNDS / 2) == ROUNDS / 2 - 1)
        watch->cpu = cpu_share(decoy ? decoy : root, IDLE_S);
    word_set(&town->go, round);
    if (decoy)
        watch->knock = knock(town);
    XT_CHECK(word_await(&town->joined, RANKS));
    watch->joined = sockets_of(root, NULL, 0, NULL);
    if (attack)
        attack_end(town, attack);
    word_set(&town->over, round);
    for (int rank = 0; rank < RANKS; rank++) {
        first = town->begin[rank] < first ? town->begin[rank] : first;
        last = town->end[rank] > last ? town->end[rank] : last;
    }
    return last - first;
}

static struct town *town_create(void)
{
    struct town *town = mmap(NULL, sizeof(*town), PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    XT_CHECK(town != MAP_FAILED);
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    return town;
}

static void town_end(struct town *town, struct xt_mp *mp)
{
    int statuses[RANKS];

    word_set(&town->round, END);
    xt_mp_wait(mp, statuses);
    for (int rank = 0; rank < RANKS; rank++)
        XT_CHECK_INT(statuses[rank], 0);
}

/* ROUNDS rounds, every second one attacked; 1: joining took no longer under attack than twice the
 * time beside one and in line, and the root no more than twice the decoy's time. */
static int series_run(struct town *town, struct xt_mp *mp, uint32_t series, pid_t decoy)
{
    double times[2][ROUNDS / 2], knocks[ROUNDS / 2] = {0}, cpu[2] = {0}, beside, line, attacked;

    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint32_t round = series * ROUNDS + i, is_own = i % 2;
        struct watch now = {0};

        times[is_own][i / 2] = round_run(town, mp, 2 + round, 2 * round + 1, is_own ? 0 : decoy,
                                         &now);
        printf("round %u, %u strangers at %s: joined in %.1f ms; descriptors of the root's "
               "process: %d before, %d attacked, %d after joining\n",
               round, atomic_load_explicit(&town->opened, memory_order_relaxed),
               is_own ? "the ranks" : "the decoy", times[is_own][i / 2] * 1e3, now.baseline,
               now.attacked, now.joined);
        XT_CHECK(now.attacked <= now.baseline + HALF_OPEN);
        cpu[is_own] = now.cpu > cpu[is_own] ? now.cpu : cpu[is_own];
        knocks[i / 2] += now.knock;
    }
    beside = xt_median(times[0], ROUNDS / 2);
    line = xt_median(knocks, ROUNDS / 2);
    attacked = xt_median(times[1], ROUNDS / 2);
    printf("idle under attack: %.1f %% of a core, the decoy %.1f %%\n", cpu[1] * 100, cpu[0] * 100);
    printf("median of joining: %.1f ms beside an attack, where a knock takes %.1f ms; %.1f ms "
           "attacked\n",
           beside * 1e3, line * 1e3, attacked * 1e3);
    return attacked <= 2 * (beside + line) + FLOOR_S && cpu[1] <= 2 * cpu[0] + FLOOR_CPU;
}

/* A busy machine slows a series down now and then; a library that strangers can slow down is slow
 * in all of them. */
XT_TEST_DEADLINE(thousands_of_strangers_do_not_slow_down_joining, 240)
{
    struct town *town = town_create();
    struct watch watch = {0};
    pid_t gangs[GANGS], decoy;
    struct xt_mp *mp;
    int as_quick = 0;

    decoy = fork();
    if (decoy == 0)
        decoy_run(town);
    XT_CHECK(decoy > 0 && word_await(&town->decoy_there, 1));

    for (int i = 0; i < GANGS; i++) {
        gangs[i] = fork();
        if (gangs[i] == 0)
            gang_run(town, i);
        XT_CHECK(gangs[i] > 0);
    }
    mp = xt_mp_start(RANKS, inhabitant, town);
    (void)round_run(town, mp, 1, 0, 0, &watch); /* the communicator that stays; nobody counts it */
    for (uint32_t series = 0; series < SERIES && !as_quick; series++)
        as_quick = series_run(town, mp, series, decoy);
    word_set(&town->attack, END);
    town_end(town, mp);
    for (int i = 0; i < GANGS; i++)
        XT_CHECK_INT(waitpid(gangs[i], NULL, 0), gangs[i]);
    XT_CHECK(kill(decoy, SIGKILL) == 0 && waitpid(decoy, NULL, 0) == decoy);
    XT_CHECK(as_quick);
}

/* ---- nmap ---- */

static int has_nmap(void)
{
    static const char *const argv[] = {"/bin/sh", "-c", "command -v nmap", NULL};
    const char *output;

    return xt_run_program(argv, &output) == 0;
}

/* Scans all ports of the ranks: connects, waits for a greeting, says what services understand. */
static pid_t nmap_start(const struct town *town)
{
    char ports[PORTS_MAX * 6 + 1] = "";
    pid_t pid;

    for (int i = 0; i < town->port_count; i++)
        snprintf(ports + strlen(ports), sizeof(ports) - strlen(ports), "%s%u", i ? "," : "",
                 town->ports[i]);
    pid = fork();
    XT_CHECK(pid >= 0);
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(null, 0);
        dup2(null, 1);
        dup2(null, 2);
        execlp("nmap", "nmap", "-sT", "-sV", "-Pn", "-n", "-T5", "-p", ports, "127.0.0.1",
               (char *)NULL);
        _exit(127);
    }
    return pid;
}

/* 1: it came to its end by itself. */
static int nmap_stop(pid_t pid, double time)
{
    double limit = seconds() + time;
    int status = 0;

    while (seconds() < limit) {
        if (waitpid(pid, &status, WNOHANG) == pid) {
            XT_CHECK_INT(status, 0);
            return 1;
        }
        nap_ms(20);
    }
    XT_CHECK_INT(kill(pid, SIGKILL), 0);
    XT_CHECK_INT(waitpid(pid, NULL, 0), pid);
    return 0;
}

XT_TEST_DEADLINE(port_scans_change_nothing, 120)
{
    const char *text = getenv("XT_STRANGERS_SECONDS");
    double time = text ? atof(text) : 8, end, slowest = 0;
    int scans = 0, ended = 0;
    struct town *town = town_create();
    struct watch watch;
    struct xt_mp *mp;

    if (!has_nmap())
        XT_SKIP("no nmap: run ci/install_packages check");
    mp = xt_mp_start(RANKS, inhabitant, town);
    (void)round_run(town, mp, 1, 0, 0, &watch);
    end = seconds() + time;
    for (uint32_t round = 2; seconds() < end; round++) {
        pid_t pid;
        double took;

        atomic_store_explicit(&town->there, 0, memory_order_relaxed);
        atomic_store_explicit(&town->joined, 0, memory_order_relaxed);
        word_set(&town->round, round);
        XT_CHECK(word_await(&town->there, RANKS));
        ports_find(town, mp);
        pid = nmap_start(town);
        nap_ms(100 + (long)round * 37 % 800); /* another stage of the scan each time */
        took = seconds();
        word_set(&town->go, round);
        XT_CHECK(word_await(&town->joined, RANKS));
        took = seconds() - took;
        slowest = took > slowest ? took : slowest;
        ended += nmap_stop(pid, time / 3);
        scans++;
        word_set(&town->over, round);
    }
    town_end(town, mp);
    printf("%d scans, %d to their end; the slowest joining took %.1f ms\n", scans, ended,
           slowest * 1e3);
    XT_CHECK(slowest < 2 * SLOWER);
}

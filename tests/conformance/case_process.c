/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases about the process that the plugin lives in: nothing is left behind, nothing of the host
 * program is changed, strangers are harmless. Thread: the role's, the only one of the process. */
#include "cf_int.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void pass_once(struct cf *me, size_t bytes)
{
    struct cf_pair pair;

    cf_pair_open(me, &pair);
    cf_pair_pass(me, &pair, bytes, bytes);
    cf_pair_close(me, &pair);
}

/* ---- nothing stays ---- */

static void comms_leave_nothing(struct cf *me)
{
    struct cf_world *world;

    pass_once(me, 1000);
    world = cf_world_take(me);
    for (size_t i = 0; i < 10; i++)
        pass_once(me, i * 1000);
    cf_world_expect(me, world, 0, "after ten connections were closed");
}

static void instances_leave_nothing(struct cf *me)
{
    struct cf_world *world = NULL;

    for (int i = 0; i < 4; i++) {
        if (i == 1)
            world = cf_world_take(me);
        if (cf_init(me, &me->net) != xcclSuccess)
            cf_fail(me, "init number %d failed", i + 1);
        pass_once(me, 1000);
        cf_fini(me, me->net);
        me->net = NULL;
    }
    cf_world_expect(me, world, 0, "after three instances were finalized");
}

/* A library may keep caches, but they stop to grow. */
#define WINDOWS    20
#define WARM_TURNS 75

/* A leak grows in every window. The loader of the system keeps something once in a while, and the
 * allocator counts what its threads cache as taken: that may grow for a hundred turns, and stops.
 */
static void expect_no_growth(struct cf *me, void (*turn)(struct cf *), int turns, const char *what)
{
    size_t before = 0, after = 0;

    /* It also takes its time until it reuses what it has, above all what belongs to threads. */
    for (int i = 0; i < (turns < WARM_TURNS ? WARM_TURNS : turns); i++)
        turn(me);
    for (int window = 0; window < WINDOWS; window++) {
        before = cf_heap_bytes();
        for (int i = 0; i < 2 * turns; i++)
            turn(me);
        after = cf_heap_bytes();
        if (after <= before + (size_t)turns * 2 * 16)
            return;
    }
    cf_fail(me, "memory grows by %zu bytes over %d repetitions of %s", after - before, 2 * turns,
            what);
}

static void one_comm(struct cf *me)
{
    pass_once(me, 1000);
}

static void one_instance(struct cf *me)
{
    if (cf_init(me, &me->net) != xcclSuccess)
        cf_fail(me, "init failed");
    pass_once(me, 1000);
    cf_fini(me, me->net);
    me->net = NULL;
}

static void one_failure(struct cf *me)
{
    xcclNetHandle_t handle;
    xcclNetListenComm_t listen = NULL;
    xcclNetConnect_t state = NULL;
    void *comm = NULL;

    memset(&handle, 0xff, sizeof(handle));
    if (cf_listen(me, me->net->device_count, &handle, &listen) == xcclSuccess)
        cf_fail(me, "listen on a device that does not exist succeeds");
    if (cf_connect(me, me->dev, &handle, &state, &comm) == xcclSuccess && state)
        cf_close_connect(me, state);
}

static void comms_free_memory(struct cf *me)
{
    expect_no_growth(me, one_comm, me->quick ? 10 : 50, "creating and closing a connection");
}

static void instances_free_memory(struct cf *me)
{
    expect_no_growth(me, one_instance, me->quick ? 5 : 20, "creating and finalizing an instance");
}

static void errors_free_memory(struct cf *me)
{
    expect_no_growth(me, one_failure, me->quick ? 10 : 50, "a failed listen and connect");
}

/* Rule 2, as far as it shows: no memory is taken by messages and kept. */
static void messages_keep_no_memory(struct cf *me)
{
    struct cf_pair pair;
    struct cf_buffer from, to;
    size_t before = 0, after;
    int rounds = me->quick ? 1000 : 10000;

    cf_pair_open(me, &pair);
    cf_pair_warm(me, &pair);
    cf_buffer_make(me, pair.send, 256, 0, &from);
    cf_buffer_make(me, pair.recv, 256, 0, &to);
    for (int i = 0; i < 2 * rounds; i++) {
        xcclNetRequest_t receiving, sending;

        if (i == rounds)
            before = cf_heap_bytes();
        receiving = cf_recv_post(me, pair.recv, &to, 256, 7);
        sending = cf_send_post(me, pair.send, &from, 256, 7);
        cf_wait_both(me, sending, receiving, NULL, "a small message");
    }
    after = cf_heap_bytes();
    if (after > before + 4096)
        cf_fail(me, "memory grows by %zu bytes over %d messages", after - before, rounds);
    cf_pair_close(me, &pair);
}

static void init_again(struct cf *me)
{
    int times = me->quick ? 10 : 50;

    for (int i = 0; i < times; i++)
        one_instance(me);
}

/* ---- the host program ---- */

static void host_untouched(struct cf *me)
{
    struct cf_world *world = cf_world_take(me);

    if (cf_init(me, &me->net) != xcclSuccess)
        cf_fail(me, "init failed");
    for (size_t i = 0; i < 5; i++)
        pass_once(me, i * 5000);
    cf_fini(me, me->net);
    me->net = NULL;
    cf_world_expect(me, world, 1, "after init to finalize");
}

/* Calls fn for each descriptor that is open; the folder's own is not. */
static void each_fd(struct cf *me, void (*fn)(struct cf *, int, const char *))
{
    DIR *dir = opendir("/proc/self/fd");
    const struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        char path[300], target[256];
        ssize_t got;
        int fd = atoi(entry->d_name);

        if (entry->d_name[0] == '.' || fd == dirfd(dir) || fd < 3)
            continue;
        snprintf(path, sizeof(path), "/proc/self/fd/%.20s", entry->d_name);
        got = readlink(path, target, sizeof(target) - 1);
        target[got > 0 ? got : 0] = 0;
        fn(me, fd, target);
    }
    if (dir)
        closedir(dir);
}

static unsigned char before_plugin[1024]; /* 1: this descriptor was there before */

static void keep_fd(struct cf *me, int fd, const char *target)
{
    (void)me, (void)target;
    if (fd < (int)sizeof(before_plugin))
        before_plugin[fd] = 1;
}

static void expect_cloexec(struct cf *me, int fd, const char *target)
{
    int flags = fcntl(fd, F_GETFD);

    if (fd < (int)sizeof(before_plugin) && before_plugin[fd])
        return;
    if (flags < 0 || flags & FD_CLOEXEC)
        return;
    cf_breach(
        me,
        "descriptor %d (%s) is not close-on-exec, so a program that the host starts inherits it",
        fd, target);
}

static void close_on_exec(struct cf *me)
{
    struct cf_pair pair;
    xcclNetHandle_t handle;
    xcclNetListenComm_t listen = NULL;
    int fd = -1;

    memset(&handle, 0, sizeof(handle));
    each_fd(me, keep_fd);
    if (cf_init(me, &me->net) != xcclSuccess)
        cf_fail(me, "init failed");
    cf_ok(me, cf_listen(me, me->dev, &handle, &listen), "listen");
    cf_pair_open(me, &pair);
    if (me->own_contract)
        cf_ok(me, me->net->calls.waitFd(pair.send, &fd), "waitFd");
    each_fd(me, expect_cloexec);
    cf_pair_pass(me, &pair, 60000, 1);
    each_fd(me, expect_cloexec);
    cf_ok(me, cf_close_listen(me, listen), "closeListen");
    cf_pair_close(me, &pair);
}

/* ---- strangers ---- */

#define STRANGERS 12

/* TCP sockets in state listen with this inode. 0: none. */
static int port_of_inode(const char *table, const char *inode, struct sockaddr_in6 *addr)
{
    FILE *file = fopen(table, "re");
    char line[512];
    int port = 0;

    while (file && !port && fgets(line, sizeof(line), file)) {
        char host[64] = "", number[32] = "";
        unsigned at = 0, state = 0;

        if (sscanf(line, " %*[^:]: %63[0-9A-F]:%x %*s %x %*s %*s %*s %*s %*s %31s", host, &at,
                   &state, number) == 4 &&
            state == 10 && strcmp(number, inode) == 0)
            port = (int)at;
        if (port && strlen(host) == 8) {
            struct sockaddr_in *in = (void *)addr;

            in->sin_family = AF_INET;
            in->sin_port = htons((uint16_t)port);
            in->sin_addr.s_addr = (in_addr_t)strtoul(host, NULL, 16);
        }
        for (int i = 0; port && strlen(host) == 32 && i < 4; i++) {
            char word[9] = {0};
            uint32_t part;

            memcpy(word, host + i * 8, 8);
            part = (uint32_t)strtoul(word, NULL, 16);
            memcpy((char *)&addr->sin6_addr + i * 4, &part, 4);
            addr->sin6_family = AF_INET6;
            addr->sin6_port = htons((uint16_t)port);
        }
    }
    if (file)
        fclose(file);
    return port;
}

static struct sockaddr_in6 found; /* where the listener is */

static void find_listener(struct cf *me, int fd, const char *target)
{
    char inode[32];
    size_t digits;

    (void)me, (void)fd;
    if (found.sin6_family || strncmp(target, "socket:[", 8) != 0)
        return;
    digits = strspn(target + 8, "0123456789");
    if (digits >= sizeof(inode))
        return;
    memcpy(inode, target + 8, digits);
    inode[digits] = 0;
    if (!port_of_inode("/proc/self/net/tcp", inode, &found))
        port_of_inode("/proc/self/net/tcp6", inode, &found);
}

/* Half of them say nonsense, the others nothing; all stay connected. */
static void come_strangers(struct cf *me, int fds[STRANGERS])
{
    socklen_t bytes = found.sin6_family == AF_INET ? sizeof(struct sockaddr_in)
                                                   : sizeof(struct sockaddr_in6);

    for (int i = 0; i < STRANGERS; i++) {
        char noise[300];

        fds[i] = socket(found.sin6_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fds[i] < 0)
            continue;
        connect(fds[i], (const struct sockaddr *)&found, bytes);
        for (size_t k = 0; k < sizeof(noise); k++)
            noise[k] = (char)cf_random(me);
        if (i % 2)
            send(fds[i], noise, (size_t)(i * 25), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

static void strangers(struct cf *me)
{
    struct cf_patience patience = cf_patience("a connection while unknown clients connect");
    int fds[STRANGERS];
    xcclNetHandle_t handle;
    xcclNetListenComm_t listen = NULL;
    xcclNetConnect_t state = NULL;
    struct cf_pair pair = {NULL, NULL};
    uint64_t begin_ns;

    memset(&handle, 0, sizeof(handle));
    cf_ok(me, cf_listen(me, me->dev, &handle, &listen), "listen");
    each_fd(me, find_listener);
    if (!found.sin6_family)
        cf_skip(me, "no listening TCP socket of the plugin is found in /proc/self/net");
    come_strangers(me, fds);
    for (int i = 0; i < 50; i++) {
        cf_ok(me, cf_accept(me, listen, &pair.recv), "accept while unknown clients connect");
        if (pair.recv)
            cf_fail(me, "accept returned a comm for an unknown client");
        cf_sleep_ms(1);
    }
    begin_ns = cf_now();
    while (!pair.send || !pair.recv) {
        if (!pair.send)
            cf_ok(me, cf_connect(me, me->dev, &handle, &state, &pair.send), "connect");
        if (!pair.recv)
            cf_ok(me, cf_accept(me, listen, &pair.recv), "accept");
        cf_turn(me, &patience);
    }
    if (cf_now() - begin_ns > 1000 * CF_SLOW * CF_MS)
        cf_fail(me, "unknown clients delay the real sender by %llu ms",
                (unsigned long long)((cf_now() - begin_ns) / CF_MS));
    cf_pair_pass(me, &pair, 1000, 1);
    cf_ok(me, cf_close_listen(me, listen), "closeListen while unknown clients are connected");
    cf_pair_close(me, &pair);
    for (int i = 0; i < STRANGERS; i++)
        close(fds[i]);
}

const struct cf_case cf_cases_process[] = {
    {.name = "comms_leave_nothing",
     .forms = CF_SINGLE,
     .solo = comms_leave_nothing,
     .text = "descriptors, threads, children and files of comms end with them"},
    {.name = "instances_leave_nothing",
     .forms = CF_SINGLE,
     .flags = CF_UNOPENED,
     .solo = instances_leave_nothing,
     .text = "descriptors, threads, children and files of instances end with finalize"},
    {.name = "comms_free_their_memory",
     .forms = CF_SINGLE,
     .flags = CF_LONG,
     .solo = comms_free_memory,
     .text = "memory does not grow with connections"},
    {.name = "instances_free_their_memory",
     .forms = CF_SINGLE,
     .flags = CF_UNOPENED | CF_LONG,
     .solo = instances_free_memory,
     .text = "memory does not grow with instances"},
    {.name = "errors_free_their_memory",
     .forms = CF_SINGLE,
     .flags = CF_OWN | CF_LONG,
     .solo = errors_free_memory,
     .text = "an entry that fails leaves nothing behind",
     .why = "its plugins trust the handle"},
    {.name = "messages_keep_no_memory",
     .rule = 2,
     .forms = CF_SINGLE,
     .flags = CF_LONG,
     .solo = messages_keep_no_memory,
     .text = "isend, irecv and test do not allocate"},
    {.name = "init_again_and_again",
     .forms = CF_SINGLE,
     .flags = CF_UNOPENED | CF_LONG,
     .solo = init_again,
     .text = "finalize, unload, load and init work again"},
    {.name = "host_program_is_untouched",
     .rule = 13,
     .forms = CF_SINGLE,
     .flags = CF_UNOPENED,
     .solo = host_untouched,
     .text = "environment, signals, folder and streams do not change"},
    {.name = "descriptors_close_on_exec",
     .rule = 13,
     .forms = CF_SINGLE,
     .flags = CF_UNOPENED,
     .solo = close_on_exec,
     .text = "no descriptor is inherited by a program"},
    {.name = "strangers_are_harmless",
     .forms = CF_SINGLE,
     .flags = CF_OWN,
     .solo = strangers,
     .text = "noisy and silent clients at the port do not delay the real sender",
     .why = "its handshake proves nothing"},
    {.name = NULL},
};

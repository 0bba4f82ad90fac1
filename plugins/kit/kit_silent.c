/* SPDX-License-Identifier: BSD-3-Clause */
/* How silent connections are found: each descriptor of the process is asked for its own port, and
 * those at a port that is watched for what the kernel has counted of them. The kernel's count of
 * milliseconds since the last data begins when the connection does, so nothing is kept here from
 * one look to the next.
 *
 * A descriptor is the library's, and its number may be given to another file at any time. So it is
 * first duplicated onto a spare one of ours, which needs no free number; that is looked at once
 * more and cut. Thread: any. */
#include "kit/kit_silent.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

#define SAYS_BYTES 8 /* fewer are nothing */
#define SILENT_MS  5000
#define QUIET_NS   (200 * XCCL_NS_PER_MS) /* between two looks */
#define CROWDED_NS (20 * XCCL_NS_PER_MS)
/* The state's number in the kernel. netinet/tcp.h names it, but has an older struct tcp_info. */
#define ESTABLISHED 1

struct silent {
    int fd;
    uint32_t ms;
};

/* With lock: endpoints that watch a port, and the two spare descriptors, -1 while nobody watches.
 * idle_fd is what spare_fd refers to when it does not refer to a connection. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint16_t watchers[65536];
static uint32_t watched;
static int idle_fd = -1, spare_fd = -1;
/* Relaxed: whoever moves it on looks, and orders nothing by it. */
static _Atomic uint64_t due_ns;

/* The port of this end of a connection over IP; 0: it is something else. */
static uint16_t own_port(int fd)
{
    struct sockaddr_storage addr = {.ss_family = AF_UNSPEC};
    socklen_t bytes = sizeof(addr);

    if (getsockname(fd, (struct sockaddr *)&addr, &bytes) != 0)
        return 0;
    if (addr.ss_family == AF_INET)
        return ntohs(((struct sockaddr_in *)&addr)->sin_port);
    return addr.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&addr)->sin6_port) : 0;
}

static int listens(int fd)
{
    int yes = 0;
    socklen_t bytes = sizeof(yes);

    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &yes, &bytes) == 0 && yes;
}

/* Milliseconds for which a connection at a watched port has said nothing; -1: it is none. */
static int64_t silent_ms(int fd)
{
    struct tcp_info info = {.tcpi_state = 0};
    socklen_t bytes = sizeof(info);
    uint16_t port = own_port(fd);

    if (!port || !watchers[port] || listens(fd) ||
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 ||
        bytes < offsetof(struct tcp_info, tcpi_bytes_received) + sizeof(info.tcpi_bytes_received) ||
        info.tcpi_state != ESTABLISHED || info.tcpi_bytes_received >= SAYS_BYTES)
        return -1;
    return info.tcpi_last_data_recv;
}

/* ---- which ports ---- */

static int has_bytes(const uint8_t *all, size_t bytes, uint16_t port)
{
    for (size_t i = 0; i + 1 < bytes; i++) {
        if (all[i] == port >> 8 && all[i + 1] == (port & 0xff))
            return 1;
    }
    return 0;
}

static int knows(const struct kit_silent *crowd, uint16_t port)
{
    for (int i = 0; i < crowd->count; i++) {
        if (crowd->ports[i] == port)
            return 1;
    }
    return 0;
}

static int open_spares(void)
{
    if (idle_fd < 0)
        idle_fd = eventfd(0, EFD_CLOEXEC);
    if (idle_fd >= 0 && spare_fd < 0)
        spare_fd = fcntl(idle_fd, F_DUPFD_CLOEXEC, 0);
    return spare_fd >= 0;
}

static void close_spares(void)
{
    if (spare_fd >= 0)
        close(spare_fd);
    if (idle_fd >= 0)
        close(idle_fd);
    spare_fd = idle_fd = -1;
}

void kit_silent_watch(struct kit_silent *crowd, const struct kit_fds *before, const void *address,
                      size_t bytes)
{
    pthread_mutex_lock(&lock);
    for (int fd = kit_fds_next(-1); fd >= 0 && crowd->count < KIT_SILENT_PORTS;
         fd = kit_fds_next(fd)) {
        uint16_t port = kit_fds_has(before, fd) ? 0 : own_port(fd);

        if (!port || !has_bytes(address, bytes, port) || knows(crowd, port) || !listens(fd) ||
            !open_spares())
            continue;
        crowd->ports[crowd->count++] = port;
        watchers[port]++;
        watched++;
    }
    pthread_mutex_unlock(&lock);
}

void kit_silent_forget(struct kit_silent *crowd)
{
    if (!crowd->count)
        return;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < crowd->count; i++)
        watchers[crowd->ports[i]]--;
    watched -= (uint32_t)crowd->count;
    crowd->count = 0;
    if (!watched)
        close_spares();
    pthread_mutex_unlock(&lock);
}

/* ---- who goes ---- */

/* Cuts the connection that the number refers to now, if it is one that has to go. */
static int cut(int fd, uint32_t ms)
{
    int64_t now_ms;
    int is_cut = 0;

    if (dup3(fd, spare_fd, O_CLOEXEC) != spare_fd)
        return 0;
    now_ms = silent_ms(spare_fd);
    if (now_ms >= 0 && (uint32_t)now_ms >= ms)
        is_cut = shutdown(spare_fd, SHUT_RDWR) == 0;
    (void)dup3(idle_fd, spare_fd, O_CLOEXEC);
    return is_cut;
}

static int by_silence(const void *a, const void *b)
{
    uint32_t x = ((const struct silent *)a)->ms, y = ((const struct silent *)b)->ms;

    return x < y ? 1 : x > y ? -1 : 0;
}

static int find_silent(struct silent *found, int max)
{
    int count = 0;

    for (int fd = kit_fds_next(-1); fd >= 0 && count < max; fd = kit_fds_next(fd)) {
        int64_t ms = silent_ms(fd);

        if (ms >= 0)
            found[count++] = (struct silent){.fd = fd, .ms = (uint32_t)ms};
    }
    return count;
}

static int thin_out(int *crowded_out)
{
    static struct silent found[4096]; /* with lock */
    int count = find_silent(found, 4096), cuts = 0;

    *crowded_out = count > KIT_SILENT_MAX / 2;
    qsort(found, (size_t)count, sizeof(found[0]), by_silence);
    for (int i = 0; i < count; i++) {
        if (found[i].ms < SILENT_MS && count - i <= KIT_SILENT_MAX)
            break;
        cuts += cut(found[i].fd, found[i].ms);
    }
    return cuts;
}

static void tell(xcclNetLogger_t log, int cuts)
{
    char line[128];

    if (!log || !cuts)
        return;
    snprintf(line, sizeof(line),
             "%d connections of strangers, which said nothing, are cut: see SECURITY.md", cuts);
    log(xcclNetLogInfo, line);
}

int kit_silent_look(xcclNetLogger_t log)
{
    uint64_t now_ns = xccl_clock_ns(), due = atomic_load_explicit(&due_ns, memory_order_relaxed);
    int cuts = 0, crowded = 0;

    if (now_ns < due ||
        !atomic_compare_exchange_strong_explicit(&due_ns, &due, now_ns + QUIET_NS,
                                                 memory_order_relaxed, memory_order_relaxed))
        return 0;
    if (pthread_mutex_trylock(&lock) != 0)
        return 0;
    if (watched)
        cuts = thin_out(&crowded);
    pthread_mutex_unlock(&lock);
    if (crowded)
        atomic_store_explicit(&due_ns, now_ns + CROWDED_NS, memory_order_relaxed);
    tell(log, cuts);
    return cuts;
}

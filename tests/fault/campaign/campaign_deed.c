/* SPDX-License-Identifier: BSD-3-Clause */
/* Deeds: see the header. Host 0 is the switch: a bridge of the rails that lead to the ranks' hosts,
 * where packets are lost. A full tmpfs is one that the rank alone sees, in a mount namespace. */
#include "campaign_deed.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define FEW_FDS      4 /* that a rank may still open */
#define FEW_BYTES    (24ul << 20)
#define LOSS_PERCENT 30

/* ---- settings of a rank ---- */

static const struct deed *deed_of(const struct round *round, int rank, enum fault fault)
{
    for (int i = 0; i < round->deed_count; i++)
        if (round->deeds[i].fault == fault && round->deeds[i].victim == rank)
            return &round->deeds[i];
    return NULL;
}

/* The hook around the plugin: one rank's fails now and then, or is only odd; the others' are odd.
 * Rates are of posts and tests, of which a rank has thousands. */
static void choose_hook(const struct round *round, int rank, const char *plugin)
{
    static const char *const rates[] = {"", ",error=0.002", ",error=0.0005", ",busy=0.05,reg=0.05"};
    const struct deed *deed = deed_of(round, rank, PLUGIN);
    char text[64];

    snprintf(text, sizeof(text), "fault:%s", plugin);
    xt_setenv("XCCL_NET_PLUGIN", text);
    snprintf(text, sizeof(text), "seed=%llu%s", (unsigned long long)(round->seed % 1000000007),
             deed ? rates[deed->dice % 4] : "");
    xt_setenv("XCCL_NET_FAULT", text);
}

static void choose_transport(const struct round *round, int rank)
{
    int is_others = round->transport == OFI || round->transport == UCX;
    const char *plugin = is_others ? transport_names[round->transport] : "socket";

    if (round->transport == DEVICE) {
        xt_setenv("XCCL_CUDA_LIBRARY", XT_BUILD_DIR "/tests/libxccl-emu-cuda.so");
        xt_setenv("XCCL_DEVICE", "cuda");
        xt_allow_leaks("a CUDA driver keeps threads and descriptors");
        return;
    }
    if (round->transport == SHM || round->transport == THREADS)
        return;
    xt_setenv("XCCL_SHM_DISABLE", "1");
    if (round->transport != UNIX)
        xt_setenv("XCCL_SOCKET_UNIX", "0");
    if (is_others) {
        xt_allow_leaks("libraries of others keep threads and memory");
        xt_setenv("XCCL_NET_PLUGIN", plugin);
        xt_setenv("XCCL_OFI_PROVIDER", "tcp;ofi_rxm");
        xt_setenv("UCX_TLS", "tcp");
        xt_setenv("UCX_TCP_CONN_NB", "y"); /* else it waits in connect() (net-ucx/README.md) */
    }
    if (round->fault == PLUGIN)
        choose_hook(round, rank, plugin);
}

/* Takes all room that is left in a folder's file system. */
static void fill_folder(const char *folder)
{
    static const char zeros[4096];
    char path[512];
    int fd;

    snprintf(path, sizeof(path), "%s/full", folder);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    XT_CHECK(fd >= 0);
    while (write(fd, zeros, sizeof(zeros)) == (ssize_t)sizeof(zeros))
        ;
    XT_CHECK_INT(errno, ENOSPC);
    close(fd);
}

static void fill_folders(void)
{
    fill_folder("/dev/shm");
    fill_folder(getenv("XDG_RUNTIME_DIR"));
}

/* Gives this process mounts of its own: no other one has what it mounts from here on. */
static void leave_mounts(void)
{
    XT_CHECK_INT(unshare(CLONE_NEWNS), 0);
    XT_CHECK_INT(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
}

/* Small file systems where the library may want room. */
static void mount_small(void)
{
    leave_mounts();
    XT_CHECK_INT(mount("small", "/dev/shm", "tmpfs", 0, "size=64k,mode=1777"), 0);
    XT_CHECK_INT(mount("small", getenv("XDG_RUNTIME_DIR"), "tmpfs", 0, "size=64k,mode=0700"), 0);
}

void deed_prepare(const struct stage *stage, int rank)
{
    const struct round *round = &stage->round;
    const struct deed *full = deed_of(round, rank, FULL);

    choose_transport(round, rank);
    if (round->has_hosts) {
        xt_setenv("XCCL_SOCKET_IFNAME", NULL);
        path_hosts_enter(stage->hosts, rank + 1);
        leave_mounts();
        XT_CHECK_INT(mount("sys", "/sys", "sysfs", 0, NULL), 0); /* UCX finds interfaces there */
    }
    if (full)
        mount_small();
    if (full && full->dice % 2)
        fill_folders();
}

/* ---- a rank hurts itself ---- */

/* Cuts all TCP connections of the process, as somebody between the hosts could. */
static void cut_connections(void)
{
    for (int fd = 0; fd < 1024; fd++) {
        int kind = 0, listens = 0, domain = 0;
        socklen_t bytes = sizeof(int);

        if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &bytes) == 0 && kind == SOCK_STREAM &&
            getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain != AF_UNIX &&
            getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) == 0 && !listens)
            (void)shutdown(fd, SHUT_RDWR);
    }
}

static uint64_t mapped_bytes(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");

    if (file && fscanf(file, "%lu", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void limit(int what, uint64_t to)
{
    struct rlimit limits;

    XT_CHECK_INT(getrlimit((__rlimit_resource_t)what, &limits), 0);
    limits.rlim_cur = to < limits.rlim_max ? to : limits.rlim_max;
    XT_CHECK_INT(setrlimit((__rlimit_resource_t)what, &limits), 0);
}

static void abort_all(struct player *player)
{
    xcclComm_t *const comms[] = {&player->comm, &player->second, &player->child};

    for (int i = 0; i < 3; i++) {
        if (*comms[i])
            (void)xcclCommAbort(*comms[i]);
        *comms[i] = NULL;
    }
}

static int strike(const struct deed *deed, struct player *player)
{
    switch (deed->fault) {
    case LEAVE:
        _exit(3);
    case ABORT:
        abort_all(player);
        return 1;
    case CUT:
        cut_connections();
        return 0;
    case FDS:
        limit(RLIMIT_NOFILE, (uint64_t)xt_entries("/proc/self/fd") + FEW_FDS);
        return 0;
    case MEMORY:
        limit(RLIMIT_AS, mapped_bytes() + FEW_BYTES);
        return 0;
    case FULL:
        if (deed->dice % 2 == 0)
            fill_folders();
        return 0;
    case MISMATCH:
        player->odd = (int)deed->odd;
        return 0;
    default:
        return 0;
    }
}

int deed_strike(struct stage *stage, struct player *player)
{
    for (int i = 0; i < stage->round.deed_count; i++) {
        const struct deed *deed = &stage->round.deeds[i];

        if (player->rank != deed->victim ||
            !atomic_exchange_explicit(&stage->deeds[i].strikes, 0, memory_order_acquire))
            continue;
        /* An odd call's time is when it is made. */
        if (deed->fault != MISMATCH)
            atomic_store_explicit(&stage->deeds[i].struck_ns, stage_now_ns(), memory_order_release);
        if (strike(deed, player))
            return 1;
    }
    return 0;
}

/* ---- from outside ---- */

int deed_process(const struct round *round, int rank)
{
    return round->transport == THREADS ? 0 : rank;
}

int deed_is_gone(pid_t pid)
{
    siginfo_t info = {.si_pid = 0};

    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == pid;
}

void deed_hosts_make(struct path_hosts *hosts)
{
    struct path_rail rails[CAMPAIGN_RANKS_MAX];

    for (int i = 0; i < CAMPAIGN_RANKS_MAX; i++)
        rails[i] = (struct path_rail){.host = i + 1};
    path_hosts_make(hosts, rails, CAMPAIGN_RANKS_MAX);
    path_hosts_run(hosts, 0,
                   "ip link add switch type bridge;"
                   "for i in 0 1 2 3 4 5; do ip addr flush dev rail$i;"
                   "ip link set rail$i master switch; done; ip link set switch up");
}

void deed_hosts_mend(const struct path_hosts *hosts)
{
    path_hosts_run(hosts, 0,
                   "nft delete table bridge loss 2>/dev/null || true;"
                   "for i in 0 1 2 3 4 5; do ip link set rail$i up; done");
    for (int i = 0; i < CAMPAIGN_RANKS_MAX; i++) {
        char script[64];

        snprintf(script, sizeof(script), "ip link set rail%d up", i);
        path_hosts_run(hosts, i + 1, script);
    }
}

/* Either end of the rail is set down: the rank's host loses its routes, or only the carrier. */
static void set_link(const struct stage *stage, const struct deed *deed, const char *to)
{
    char script[64];

    snprintf(script, sizeof(script), "ip link set rail%d %s", deed->victim, to);
    path_hosts_run(stage->hosts, deed->dice % 2 ? deed->victim + 1 : 0, script);
}

static void lose_packets(const struct stage *stage, const struct deed *deed)
{
    char script[512];

    snprintf(script, sizeof(script),
             "nft 'add table bridge loss;"
             "add chain bridge loss lose { type filter hook forward priority 0; };"
             "add rule bridge loss lose iifname rail%d numgen random mod 100 < %d drop;"
             "add rule bridge loss lose oifname rail%d numgen random mod 100 < %d drop'",
             deed->victim, LOSS_PERCENT, deed->victim, LOSS_PERCENT);
    path_hosts_run(stage->hosts, 0, script);
    stage_nap_ms(deed->lasts_ms);
    path_hosts_run(stage->hosts, 0, "nft delete table bridge loss");
}

static void do_from_outside(struct stage *stage, const struct deed *deed, struct xt_mp *mp)
{
    int process = deed_process(&stage->round, deed->victim);

    switch (deed->fault) {
    case KILL:
        xt_mp_kill(mp, process, SIGKILL);
        break;
    case STOP:
        xt_mp_kill(mp, process, SIGSTOP);
        break;
    case PAUSE:
        xt_mp_kill(mp, process, SIGSTOP);
        stage_nap_ms(PAUSE_MS);
        xt_mp_kill(mp, process, SIGCONT);
        break;
    case LOSS:
        lose_packets(stage, deed);
        break;
    case FLAP:
        set_link(stage, deed, "down");
        stage_nap_ms(deed->lasts_ms);
        set_link(stage, deed, "up");
        break;
    case DOWN:
        set_link(stage, deed, "down");
        break;
    default:
        break;
    }
}

static int is_from_outside(enum fault fault)
{
    static const unsigned from_outside = 1u << KILL | 1u << STOP | 1u << PAUSE | 1u << LOSS |
                                         1u << FLAP | 1u << DOWN;

    return (from_outside >> fault & 1) != 0;
}

void deeds_direct(struct stage *stage, struct xt_mp *mp)
{
    const struct round *round = &stage->round;
    int first = round->deed_count > 1 && round->deeds[1].delay_ms < round->deeds[0].delay_ms;
    uint64_t from_ns = stage_now_ns();

    for (int i = 0; i < round->deed_count; i++) {
        int at = first ? round->deed_count - 1 - i : i;
        const struct deed *deed = &round->deeds[at];
        int64_t left_ns = deed->delay_ms * 1000000 - (int64_t)(stage_now_ns() - from_ns);

        if (left_ns > 0)
            stage_nap_ms((long)(left_ns / 1000000));
        if (deed_is_gone(xt_mp_pid(mp, deed_process(round, deed->victim))))
            continue; /* the program was short */
        if (!is_from_outside(deed->fault)) {
            /* Release: pairs with the victim's exchange. */
            atomic_store_explicit(&stage->deeds[at].strikes, deed->fault != NONE,
                                  memory_order_release);
            continue;
        }
        atomic_store_explicit(&stage->deeds[at].struck_ns, stage_now_ns(), memory_order_release);
        do_from_outside(stage, deed, mp);
    }
}

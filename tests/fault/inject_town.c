/* SPDX-License-Identifier: BSD-3-Clause */
/* The ranks of an attacked job, and what became of them: see the header. The ranks end after the
 * same call: rank 0 names one that nobody can have begun yet.
 * Thread: the test's; the ranks and the attacker are processes. */
#include "inject_town.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "xt.h"

#define END_S        20 /* for the ranks to end, more than XCCL_TIMEOUT_S */
#define ELEMENT      7919
#define FIRST_SHOT_S 8

static void nap_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

int town_is_over(const struct town *town)
{
    return atomic_load_explicit(&town->stop, memory_order_relaxed) != 0;
}

/* ---- a rank ---- */

static int32_t element_of(int rank, uint64_t call, size_t i)
{
    return (int32_t)((uint32_t)(rank + 1) * ELEMENT + (uint32_t)call * 31 + (uint32_t)i);
}

static uint64_t wrong_of(const int32_t *sums, size_t count, int nranks, uint64_t call)
{
    uint64_t wrong = 0;

    for (size_t i = 0; i < count; i++) {
        uint32_t sum = 0;

        for (int rank = 0; rank < nranks; rank++)
            sum += (uint32_t)element_of(rank, call, i);
        wrong += sums[i] != (int32_t)sum;
    }
    return wrong;
}

/* 0: that was the last one. */
static int call_once(struct town *town, xcclComm_t comm, int rank, int nranks, uint64_t call,
                     int32_t *values)
{
    size_t count = town->counts[call % 3];
    int32_t *sums = values + count;
    uint64_t last;

    if (rank == 0 && town_is_over(town) &&
        !atomic_load_explicit(&town->last_call, memory_order_relaxed))
        /* Nobody ends call `call` before rank 0 has begun it, which releases this as well. */
        atomic_store_explicit(&town->last_call, call + 2, memory_order_release);
    for (size_t i = 0; i < count; i++)
        values[i] = element_of(rank, call, i);
    town->ranks[rank].rc = xcclAllReduce(values, sums, count, xcclInt32, xcclSum, comm, NULL);
    if (town->ranks[rank].rc) {
        snprintf(town->ranks[rank].text, TOWN_TEXT, "%s", xcclGetLastError(comm));
        return 0;
    }
    atomic_fetch_add_explicit(&town->ranks[rank].wrong, wrong_of(sums, count, nranks, call),
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&town->ranks[rank].calls, 1, memory_order_relaxed);
    last = atomic_load_explicit(&town->last_call, memory_order_acquire);
    return !last || call < last;
}

static void rank_run(int rank, int nranks, void *arg)
{
    struct town *town = arg;
    size_t most = 1;
    int32_t *values;
    xcclComm_t comm = NULL;
    double limit = xt_seconds() + END_S;

    xt_allow_leaks("what libraries of others keep");
    for (int i = 0; i < 3; i++)
        most = town->counts[i] > most ? town->counts[i] : most;
    values = calloc(2 * most, sizeof(*values));
    XT_CHECK(values != NULL);
    if (rank == 0) {
        XT_OK(xcclGetUniqueId(&town->id));
        /* Release: the id comes first. Pairs with the others' acquire. */
        atomic_store_explicit(&town->has_id, 1, memory_order_release);
    }
    /* Acquire: pairs with rank 0's release, which comes unless it has failed. */
    while (!atomic_load_explicit(&town->has_id, memory_order_acquire)) {
        XT_CHECK(xt_seconds() < limit);
        nap_ms(1);
    }
    town->ranks[rank].rc = xcclCommInitRank(&comm, nranks, town->id, rank);
    if (town->ranks[rank].rc) {
        snprintf(town->ranks[rank].text, TOWN_TEXT, "%s", xcclGetLastError(NULL));
        atomic_fetch_add_explicit(&town->up, 1, memory_order_release);
        free(values);
        return;
    }
    for (uint64_t call = 1; call_once(town, comm, rank, nranks, call, values); call++) {
        if (call == 3)
            atomic_fetch_add_explicit(&town->up, 1, memory_order_release);
    }
    town->ranks[rank].fds = xt_entries("/proc/self/fd");
    if (town->ranks[rank].rc)
        (void)xcclCommAbort(comm);
    else
        XT_OK(xcclCommDestroy(comm));
    free(values);
}

/* ---- where the ranks listen ---- */

static int inodes_of(pid_t pid, unsigned long *inodes_out, int max)
{
    char path[64], target[64];
    struct dirent *entry;
    int count = 0;
    DIR *dir;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    dir = opendir(path);
    while (dir && (entry = readdir(dir))) {
        ssize_t bytes = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);

        if (bytes < 0)
            continue;
        target[bytes] = '\0';
        if (count < max && strncmp(target, "socket:[", 8) == 0)
            inodes_out[count++] = strtoul(target + 8, NULL, 10);
    }
    if (dir)
        closedir(dir);
    return count;
}

/* Adds the ports of a table of the kernel: of TCP those that listen, of UDP all. */
static int ports_of(const char *table, unsigned want_state, pid_t pid, uint16_t *ports_out,
                    int count, int max)
{
    unsigned long inodes[1024], inode;
    int inode_count = inodes_of(pid, inodes, 1024);
    unsigned port, state;
    char line[512];
    FILE *file = fopen(table, "re");

    while (file && fgets(line, sizeof(line), file)) {
        if (sscanf(line, " %*d: %*x:%x %*x:%*x %x %*s %*s %*s %*u %*u %lu", &port, &state,
                   &inode) != 3 ||
            (want_state && state != want_state))
            continue;
        for (int i = 0; i < inode_count && count < max; i++) {
            if (inodes[i] == inode)
                ports_out[count++] = (uint16_t)port;
        }
    }
    if (file)
        fclose(file);
    return count;
}

static int add_ports(pid_t pid, uint16_t *ports_out, int count)
{
    count = ports_of("/proc/net/tcp", 10, pid, ports_out, count, TOWN_PORTS_MAX);
    count = ports_of("/proc/net/tcp6", 10, pid, ports_out, count, TOWN_PORTS_MAX);
    return ports_of("/proc/net/udp", 0, pid, ports_out, count, TOWN_PORTS_MAX);
}

int town_ports(pid_t pid, uint16_t *ports_out)
{
    return add_ports(pid, ports_out, 0);
}

/* ---- a job ---- */

static int is_gone(pid_t pid)
{
    siginfo_t info = {.si_pid = 0};

    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == pid;
}

/* Waits for the ranks, and kills those that hang. */
static void await_end(struct xt_mp *mp, int nranks, struct town_sum *sum)
{
    double limit = xt_seconds() + END_S;

    for (int rank = 0; rank < nranks; rank++) {
        while (!is_gone(xt_mp_pid(mp, rank)) && xt_seconds() < limit)
            nap_ms(2);
        if (is_gone(xt_mp_pid(mp, rank)))
            continue;
        sum->hung++;
        xt_mp_kill(mp, rank, SIGKILL);
    }
}

static void add_up(const struct town *town, int nranks, const int *statuses, struct town_sum *sum)
{
    int is_lost = 0;

    for (int rank = 0; rank < nranks; rank++) {
        sum->calls += atomic_load_explicit(&town->ranks[rank].calls, memory_order_relaxed);
        sum->wrong += atomic_load_explicit(&town->ranks[rank].wrong, memory_order_relaxed);
        sum->died += WIFSIGNALED(statuses[rank]) != 0;
        if (town->ranks[rank].fds > sum->fds)
            sum->fds = town->ranks[rank].fds;
        if (!WIFSIGNALED(statuses[rank]) && WEXITSTATUS(statuses[rank]))
            snprintf(sum->text, sizeof(sum->text), "rank %d failed a check", rank);
        is_lost |= statuses[rank] != 0 || town->ranks[rank].rc != 0;
        if (town->ranks[rank].rc && town->ranks[rank].text[0])
            memcpy(sum->text, town->ranks[rank].text, sizeof(sum->text));
    }
    sum->jobs++;
    sum->lost += (uint64_t)is_lost;
    sum->shots += atomic_load_explicit(&town->shots, memory_order_relaxed);
}

static pid_t attacker_start(struct town *town, struct xt_mp *mp, int nranks, town_attack_fn *attack,
                            uint64_t seed)
{
    static uint16_t ports[TOWN_PORTS_MAX];
    int port_count = 0;
    pid_t pid;

    for (int rank = 0; rank < nranks; rank++)
        port_count = add_ports(xt_mp_pid(mp, rank), ports, port_count);
    pid = fork();
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    attack(town, ports, port_count, seed);
    _exit(0);
}

void town_run(int nranks, const size_t *counts, town_attack_fn *attack, uint64_t seed,
              double attack_s, struct town_sum *sum)
{
    struct town *town = mmap(NULL, sizeof(*town), PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int statuses[TOWN_RANKS_MAX];
    struct xt_mp *mp;
    double limit = xt_seconds() + END_S;
    pid_t attacker;

    XT_CHECK(town != MAP_FAILED && nranks <= TOWN_RANKS_MAX);
    memcpy(town->counts, counts, sizeof(town->counts));
    mp = xt_mp_start(nranks, rank_run, town);
    /* Acquire: pairs with the ranks' release; they are connected then. */
    while (atomic_load_explicit(&town->up, memory_order_acquire) < (uint32_t)nranks &&
           xt_seconds() < limit)
        nap_ms(1);
    attacker = attacker_start(town, mp, nranks, attack, seed);
    XT_CHECK(attacker > 0);
    /* On a busy machine it takes the attacker some time to be connected. */
    limit = xt_seconds() + FIRST_SHOT_S;
    while (!atomic_load_explicit(&town->shots, memory_order_relaxed) && xt_seconds() < limit &&
           !is_gone(xt_mp_pid(mp, 0)))
        nap_ms(2);
    limit = xt_seconds() + attack_s;
    while (xt_seconds() < limit && !is_gone(xt_mp_pid(mp, 0)))
        nap_ms(2);
    atomic_store_explicit(&town->stop, 1, memory_order_relaxed);
    await_end(mp, nranks, sum);
    xt_mp_wait(mp, statuses);
    for (limit = xt_seconds() + 5; !is_gone(attacker) && xt_seconds() < limit;)
        nap_ms(2);
    (void)kill(attacker, SIGKILL);
    XT_CHECK(waitpid(attacker, NULL, 0) == attacker);
    add_up(town, nranks, statuses, sum);
    munmap(town, sizeof(*town));
}

static void tell(FILE *file, const char *what, const struct town_sum *sum)
{
    fprintf(file,
            "%s: %llu jobs, %llu calls, %llu shots; %llu wrong elements, %llu jobs lost, %llu "
            "ranks hung, %llu died\n",
            what, (unsigned long long)sum->jobs, (unsigned long long)sum->calls,
            (unsigned long long)sum->shots, (unsigned long long)sum->wrong,
            (unsigned long long)sum->lost, (unsigned long long)sum->hung,
            (unsigned long long)sum->died);
}

void town_run_seeds(const char *what, int nranks, const size_t *counts, town_attack_fn *attack,
                    uint64_t usual, double attack_s, struct town_sum *sum_out)
{
    const char *text = getenv("XT_INJECT_SEEDS");
    uint64_t count = text ? strtoull(text, NULL, 10) : usual;
    unsigned long long seed = xt_seed();
    FILE *file;

    *sum_out = (struct town_sum){.jobs = 0};
    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xt_setenv("XCCL_TIMEOUT_S", "10");
    for (uint64_t i = 0; i < count; i++) {
        uint64_t wrong = sum_out->wrong, lost = sum_out->lost;

        town_run(nranks, counts, attack, seed + i, attack_s, sum_out);
        if (sum_out->wrong != wrong || sum_out->lost != lost)
            printf("seed %#llx: %llu wrong elements%s%s\n", seed + i,
                   (unsigned long long)(sum_out->wrong - wrong),
                   sum_out->lost != lost ? ", lost: " : "",
                   sum_out->lost != lost ? sum_out->text : "");
    }
    tell(stdout, what, sum_out);
    text = getenv("XT_FIGURES");
    file = text ? fopen(text, "ae") : NULL;
    if (file) {
        tell(file, what, sum_out);
        fclose(file);
    }
}

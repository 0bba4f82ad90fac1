/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank is killed, stopped or cut off while ranks join or split a communicator, at a point that
 * the seed chooses: all others end within 5 s with an error that has its host and process, and one
 * that goes on later says that it was given up.
 *
 * A point is a number of sends of the hurt process, counted from when all ranks have reported to
 * the root and heard of it. This program has send() and recv() for the library, so the deed is done
 * inside the chosen one. For a cut the hurt rank is alone on a host (path_hosts.h), and the root is
 * on the other. XT_JOINING_POINTS: how many points of each kind, several at once.
 *
 * Thread: the main one of each process; the calls of the library count in its service thread. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "path_hosts.h"
#include "path_stage.h"
#include "xccl.h"
#include "xt.h"

#define RANKS_MAX    8
#define REPORT_SENDS 4 /* hello, proof, sign of life, report */
#define SPLIT_SENDS  30
#define SIDE_BY_SIDE 8
/* Exit states of a director: the harness's for a skip, and when the deed was not done. */
#define SKIPPED 77
#define MISSED  2

enum deed { KILL, STOP, CUT };

static const char *const deeds[] = {"killed", "stopped", "cut off"};

struct rank_end {
    pid_t pid;
    xcclResult_t rc;
    int splits; /* it was splitting */
    double at_s, destroy_s;
    char text[XCCL_ERROR_TEXT_BYTES];
};

/* One point, shared by the processes that play it. */
struct point {
    uint64_t seed;
    enum deed deed;
    int nranks, culprit, in_split;
    uint32_t sends; /* of the culprit before the deed */
    xcclUniqueId id;
    _Atomic uint32_t made, reported, done, cut, joined;
    _Atomic uint32_t over; /* the culprit joins and splits no more: too late for the deed */
    double done_s;
    struct rank_end ends[RANKS_MAX];
    struct path_hosts hosts;
    char failure[600];
};

/* This process's rank; NULL: it has none. */
static struct point *own;
static int own_rank;
static _Atomic uint32_t own_sends, own_heard;

/* --- the deed --- */

static void do_it(void)
{
    own->done_s = path_seconds();
    path_word_set(&own->done, 1);
    if (own->deed == KILL)
        kill(getpid(), SIGKILL);
    else if (own->deed == STOP)
        kill(getpid(), SIGSTOP);
    else
        path_word_await(&own->cut, 1);
}

/* Counts one send, before it happens. */
static void count_send(void)
{
    static _Atomic uint32_t counted;
    uint32_t needed = own ? (uint32_t)own->nranks : 0;

    /* Relaxed: only counts, of one thread in most cases. */
    atomic_fetch_add_explicit(&own_sends, 1, memory_order_relaxed);
    if (!own || own_rank != own->culprit || path_word_get(&own->over) ||
        path_word_get(&own->reported) < needed ||
        (own->in_split && path_word_get(&own->joined) < needed) || path_word_get(&own->done))
        return;
    if (atomic_fetch_add_explicit(&counted, 1, memory_order_relaxed) == own->sends)
        do_it();
}

__attribute__((visibility("default"))) ssize_t send(int fd, const void *data, size_t bytes,
                                                    int flags)
{
    count_send();
    return sendto(fd, data, bytes, flags, NULL, 0);
}

/* Notes the first message after a report, which comes from the root, or from a rank that it told of
 * it. */
__attribute__((visibility("default"))) ssize_t recv(int fd, void *data, size_t bytes, int flags)
{
    ssize_t got = recvfrom(fd, data, bytes, flags, NULL, NULL);

    if (own && got > 0 && !(flags & MSG_PEEK) &&
        atomic_load_explicit(&own_sends, memory_order_relaxed) >= REPORT_SENDS &&
        !atomic_exchange_explicit(&own_heard, 1, memory_order_relaxed))
        atomic_fetch_add_explicit(&own->reported, 1, memory_order_relaxed);
    return got;
}

/* --- a rank --- */

static int host_of(const struct point *point, int rank)
{
    return rank == point->culprit ? 2 : 1;
}

static xcclResult_t split(struct rank_end *end, xcclComm_t comm, int rank)
{
    xcclComm_t child = NULL;
    xcclResult_t rc;

    end->splits = 1;
    /* All in one, in reverse order, then halves. */
    rc = xcclCommSplit(comm, 0, -rank, &child, NULL);
    if (!rc)
        rc = xcclBarrier(child, NULL);
    if (child) {
        snprintf(end->text, sizeof(end->text), "%s", rc ? xcclGetLastError(child) : "");
        xcclCommDestroy(child);
    } else {
        snprintf(end->text, sizeof(end->text), "%s", xcclGetLastError(NULL));
    }
    return rc;
}

static void work(struct point *point, struct rank_end *end, int rank)
{
    xcclComm_t comm = NULL;
    xcclResult_t rc = xcclCommInitRank(&comm, point->nranks, point->id, rank);

    snprintf(end->text, sizeof(end->text), "%s", rc ? xcclGetLastError(NULL) : "");
    if (rank == point->culprit)
        path_word_set(&point->over, rc || !point->in_split);
    if (!rc) {
        atomic_fetch_add_explicit(&point->joined, 1, memory_order_relaxed);
        /* Nobody splits before the culprit counts. */
        for (int i = 0; i < 5000 && path_word_get(&point->joined) < (uint32_t)point->nranks &&
                        !path_word_get(&point->done);
             i++)
            usleep(1000);
    }
    for (int i = 0; i < 50 && !rc && point->in_split; i++)
        rc = split(end, comm, rank);
    if (rank == point->culprit)
        path_word_set(&point->over, 1);
    if (!rc && path_word_get(&point->done)) {
        rc = xcclBarrier(comm, NULL);
        snprintf(end->text, sizeof(end->text), "%s", xcclGetLastError(comm));
    }
    end->at_s = path_seconds();
    end->rc = rc;
    if (comm)
        xcclCommDestroy(comm);
    end->destroy_s = path_seconds() - end->at_s;
}

_Noreturn static void rank_run(struct point *point, int rank)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (point->deed == CUT)
        path_hosts_enter(&point->hosts, host_of(point, rank));
    xt_setenv("XCCL_SOCKET_IFNAME", point->deed == CUT ? NULL : "lo");
    xt_setenv("XCCL_COMM_ID", NULL);
    xt_setenv("XCCL_TIMEOUT_INIT_S", "60");
    xt_setenv("XCCL_TIMEOUT_S", "60");
    if (!getenv("XCCL_DEBUG"))
        xt_setenv("XCCL_DEBUG_FILE", "/dev/null");
    if (rank == (point->deed == CUT ? point->culprit == 0 : 0)) {
        if (xcclGetUniqueId(&point->id) != xcclSuccess)
            _exit(1);
        path_word_set(&point->made, 1);
    }
    path_word_await(&point->made, 1);
    own_rank = rank;
    own = point;
    work(point, &point->ends[rank], rank);
    own = NULL;
    _exit(0);
}

/* --- the director of a point --- */

static void fail(struct point *point, const char *what, int rank)
{
    const struct rank_end *end = &point->ends[rank];

    if (!point->failure[0])
        snprintf(point->failure, sizeof(point->failure),
                 "rank %d of %d %s after %u sends of a %s: rank %d %s: result %d, %.2f s later: %s",
                 point->culprit, point->nranks, deeds[point->deed], point->sends,
                 point->in_split ? "split" : "join", rank, what, (int)end->rc,
                 end->at_s - point->done_s, end->text);
}

/* Waits for a rank, so long after the deed. 0: it has not ended by then. */
static int await_end(struct point *point, int rank, double most_s)
{
    pid_t pid = point->ends[rank].pid;
    int status = 0;

    for (;;) {
        if (waitpid(pid, &status, WNOHANG) == pid)
            return 1;
        if (path_word_get(&point->done) && path_seconds() > point->done_s + most_s)
            return 0;
        usleep(2000);
    }
}

static void check_other(struct point *point, int rank)
{
    const struct rank_end *end = &point->ends[rank];
    char process[64];

    snprintf(process, sizeof(process), "pid %d)", (int)point->ends[point->culprit].pid);
    if (!end->rc && end->at_s <= point->done_s)
        return; /* it had all that it wanted by then */
    if (!end->rc)
        fail(point, "has no error", rank);
    else if (!strstr(end->text, process) || !strstr(end->text, "(host "))
        fail(point, "does not say who it was", rank);
    else if (end->at_s - point->done_s > xt_bound(5, 8))
        fail(point, "is late", rank);
    else if (end->destroy_s > xt_bound(0.3, 1.5))
        fail(point, "takes long to destroy the communicator", rank);
}

static void check_culprit(struct point *point)
{
    int rank = point->culprit;
    const struct rank_end *end = &point->ends[rank];
    char process[64];

    snprintf(process, sizeof(process), "pid %d)", (int)end->pid);
    if (point->deed == KILL)
        return;
    if (!end->rc)
        fail(point, "has no error", rank);
    else if (point->deed == STOP &&
             (!strstr(end->text, "have given up rank") || !strstr(end->text, process)))
        fail(point, "does not say that it was given up", rank);
    else if (point->deed == CUT && !strstr(end->text, "does not respond") &&
             !strstr(end->text, "hears nothing") && !strstr(end->text, "cannot reach"))
        fail(point, "does not say that nobody responds", rank);
}

/* 1: the deed was done. */
static int play(struct point *point)
{
    double most_s = xt_bound(5, 8) + 3;
    int done;

    for (int rank = 0; rank < point->nranks; rank++) {
        pid_t pid;

        fflush(NULL);
        pid = fork();
        XT_CHECK(pid >= 0);
        if (pid == 0)
            rank_run(point, rank);
        point->ends[rank].pid = pid; /* the ranks have it, too */
    }
    while (point->deed == CUT && !path_word_get(&point->done) && !path_word_get(&point->over))
        usleep(1000); /* bounded by the test's deadline */
    if (point->deed == CUT && path_word_get(&point->done)) {
        path_rail_cut(&point->hosts, 1, PATH_CUT_SILENT);
        point->done_s = path_seconds();
        path_word_set(&point->cut, 1);
    }
    for (int rank = 0; rank < point->nranks; rank++)
        if (rank != point->culprit && !await_end(point, rank, most_s))
            fail(point, "hangs", rank);
    done = (int)path_word_get(&point->done);
    if (done && point->deed == STOP)
        kill(point->ends[point->culprit].pid, SIGCONT);
    if (!await_end(point, point->culprit, path_seconds() - point->done_s + 3))
        fail(point, "hangs", point->culprit);
    for (int rank = 0; done && rank < point->nranks && !point->failure[0]; rank++) {
        if (rank != point->culprit)
            check_other(point, rank);
    }
    if (done && !point->failure[0])
        check_culprit(point);
    for (int rank = 0; rank < point->nranks; rank++)
        kill(point->ends[rank].pid, SIGKILL);
    return done;
}

_Noreturn static void direct(struct point *point)
{
    static const struct path_rail rails[] = {{1, 0, 0}, {2, 0, 1}};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (point->deed == CUT) {
        char script[512];

        path_hosts_make(&point->hosts, rails, 2);
        path_hosts_run(&point->hosts, 0, "echo 1 > /proc/sys/net/ipv4/ip_forward");
        for (int host = 1; host <= 2; host++) {
            char gate[PATH_ADDR_BYTES];

            path_rail_address(&point->hosts, host - 1, 0, 0, gate);
            snprintf(script, sizeof(script), "ip route add default via %s", gate);
            path_hosts_run(&point->hosts, host, script);
        }
    }
    _exit(play(point) ? 0 : MISSED);
}

/* --- many points --- */

static struct point *draw(uint64_t seed, enum deed deed, int in_split)
{
    struct point *point = path_shared(sizeof(*point));
    uint64_t dice = seed;

    point->seed = seed;
    point->deed = deed;
    point->in_split = in_split;
    point->nranks = 2 + (int)(xt_random(&dice) % (RANKS_MAX - 1));
    point->culprit = (int)(xt_random(&dice) % (uint64_t)point->nranks);
    /* Somewhat more than there are in a join. */
    point->sends = (uint32_t)(xt_random(&dice) %
                              (in_split ? SPLIT_SENDS : 20 + 5 * (uint64_t)point->nranks));
    return point;
}

/* Results of points of one kind. */
struct figures {
    int played, missed, skipped;
    double error_s, destroy_s; /* the most */
};

static void note_end(struct figures *figures, const struct point *point, const struct rank_end *end)
{
    double error_s = end->at_s - point->done_s;

    figures->error_s = error_s > figures->error_s ? error_s : figures->error_s;
    figures->destroy_s = end->destroy_s > figures->destroy_s ? end->destroy_s : figures->destroy_s;
}

/* Waits for a point's director. */
static void finish(const struct point *point, pid_t pid, struct figures *figures)
{
    int status = -1;

    XT_CHECK_INT(waitpid(pid, &status, 0), pid);
    if (point->failure[0])
        XT_FAIL("%s", point->failure);
    XT_CHECK(WIFEXITED(status));
    figures->skipped += WEXITSTATUS(status) == SKIPPED;
    figures->missed += WEXITSTATUS(status) == MISSED;
    figures->played += WEXITSTATUS(status) == 0;
    if (WEXITSTATUS(status) == SKIPPED || WEXITSTATUS(status) == MISSED)
        return;
    XT_CHECK_INT(WEXITSTATUS(status), 0);
    for (int rank = 0; rank < point->nranks; rank++)
        if (rank != point->culprit)
            note_end(figures, point, &point->ends[rank]);
}

/* Plays points of the kinds in turn, half of them in splits, several at once. */
static void play_all(const enum deed *kinds, int kind_count, int quick)
{
    const char *wanted = getenv("XT_JOINING_POINTS");
    int count = (wanted ? atoi(wanted) : quick) * kind_count;
    struct figures figures[CUT + 1];
    uint64_t dice = xt_seed() + kinds[0];

    memset(figures, 0, sizeof(figures));
    for (int at = 0; at < count; at += SIDE_BY_SIDE) {
        struct point *points[SIDE_BY_SIDE] = {NULL};
        pid_t pids[SIDE_BY_SIDE] = {0};
        int side = count - at < SIDE_BY_SIDE ? count - at : SIDE_BY_SIDE;

        for (int i = 0; i < side; i++) {
            points[i] = draw(xt_random(&dice), kinds[(at + i) % kind_count],
                             (at + i) / kind_count % 2);
            fflush(NULL);
            pids[i] = fork();
            XT_CHECK(pids[i] >= 0);
            if (pids[i] == 0)
                direct(points[i]);
        }
        for (int i = 0; i < side; i++) {
            finish(points[i], pids[i], &figures[points[i]->deed]);
            munmap(points[i], sizeof(*points[i]));
        }
    }
    for (int i = 0; i < kind_count; i++) {
        const struct figures *of = &figures[kinds[i]];

        path_figure("joining, a rank %s: %d points, %d beyond the end, %d not possible here; "
                    "error after %.2f s at most, destroy %.2f s at most",
                    deeds[kinds[i]], of->played, of->missed, of->skipped, of->error_s,
                    of->destroy_s);
        XT_CHECK(of->played || of->skipped);
    }
}

XT_TEST_DEADLINE(a_rank_killed_while_ranks_join_or_split_is_named, 30)
{
    static const enum deed kinds[] = {KILL};

    play_all(kinds, 1, 8);
}

XT_TEST_DEADLINE(a_rank_stopped_or_cut_off_while_ranks_join_or_split_is_named, 30)
{
    static const enum deed kinds[] = {STOP, CUT};

    play_all(kinds, 2, 4);
}

/* --- a root that has no room --- */

struct few {
    xcclUniqueId id;
    _Atomic uint32_t made;
    char text[3][XCCL_ERROR_TEXT_BYTES];
    double took_s[3];
};

_Noreturn static void join_few(struct few *few, int rank)
{
    xcclComm_t comm = NULL;
    double begin_s;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    path_word_await(&few->made, 1);
    begin_s = path_seconds();
    if (xcclCommInitRank(&comm, 3, few->id, rank) != xcclSuccess)
        snprintf(few->text[rank], sizeof(few->text[rank]), "%s", xcclGetLastError(NULL));
    few->took_s[rank] = path_seconds() - begin_s;
    _exit(0);
}

XT_TEST(a_root_without_descriptors_says_so_to_all_ranks)
{
    struct few *few = path_shared(sizeof(*few));
    struct rlimit files;
    pid_t pids[3];
    int fds[4096], count = 0;

    xt_setenv("XCCL_SOCKET_IFNAME", "lo");
    xt_setenv("XCCL_COMM_ID", NULL);
    for (int rank = 0; rank < 3; rank++) {
        fflush(NULL);
        pids[rank] = fork();
        XT_CHECK(pids[rank] >= 0);
        if (pids[rank] == 0)
            join_few(few, rank);
    }
    XT_CHECK_INT(xcclGetUniqueId(&few->id), xcclSuccess);
    XT_CHECK_INT(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = 256;
    XT_CHECK_INT(setrlimit(RLIMIT_NOFILE, &files), 0);
    while (count < 256 && (fds[count] = dup(0)) >= 0)
        count++;
    path_word_set(&few->made, 1);
    for (int rank = 0; rank < 3; rank++)
        XT_CHECK_INT(waitpid(pids[rank], NULL, 0), pids[rank]);
    while (count > 0)
        close(fds[--count]);
    for (int rank = 0; rank < 3; rank++) {
        XT_CHECK_HAS(few->text[rank], "the process with the root (host ");
        XT_CHECK_HAS(few->text[rank], "open files");
        XT_CHECK(few->took_s[rank] < xt_bound(5, 12));
    }
    munmap(few, sizeof(*few));
}

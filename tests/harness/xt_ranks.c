/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks of a test: forked processes with a captured output and a report each, or threads. When a
 * rank fails, the others get ten seconds to notice, then they are killed, so that the test fails
 * with the reason of the first and not as a hang. Thread: the main thread of the test. */
#include "xt_int.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define AFTER_FAILURE_MS (XT_SANITIZED ? 40000 : 10000)
#define SHOWN_BYTES      65536

struct rank {
    pid_t pid;
    int output_fd, status;
    bool ended, killed_late; /* killed_late: by the harness, for not returning */
};

struct xt_mp {
    int nranks;
    struct rank *ranks;
    struct xt_report *reports; /* shared with the ranks */
};

_Noreturn static void rank_main(struct xt_mp *mp, int rank, xt_rank_fn *fn, void *arg)
{
    struct xt_snapshot *before;

    xt_self.report = &mp->reports[rank];
    xt_self.is_rank = true;
    xt_capture_redirect(mp->ranks[rank].output_fd);
    for (int i = 0; i <= rank; i++)
        close(mp->ranks[i].output_fd);
    before = xt_snapshot_take();
    fn(rank, mp->nranks, arg);
    xt_finish(before);
}

struct xt_mp *xt_mp_start(int nranks, xt_rank_fn *fn, void *arg)
{
    struct xt_mp *mp = calloc(1, sizeof(*mp));

    if (!mp)
        abort();
    mp->nranks = nranks;
    mp->ranks = calloc((size_t)nranks, sizeof(*mp->ranks));
    if (!mp->ranks)
        abort();
    mp->reports = xt_shared_alloc(sizeof(*mp->reports) * (size_t)nranks);
    fflush(NULL);
    for (int i = 0; i < nranks; i++) {
        memcpy(mp->reports[i].tmp, xt_self.report->tmp, sizeof(mp->reports[i].tmp));
        mp->ranks[i].output_fd = xt_capture_open();
        mp->ranks[i].pid = fork();
        if (mp->ranks[i].pid < 0)
            XT_FAIL("cannot fork rank %d: %s", i, strerror(errno));
        if (mp->ranks[i].pid == 0)
            rank_main(mp, i, fn, arg);
        xt_forked(mp->ranks[i].pid);
    }
    return mp;
}

pid_t xt_mp_pid(struct xt_mp *mp, int rank)
{
    return mp->ranks[rank].pid;
}

void xt_mp_kill(struct xt_mp *mp, int rank, int signal_number)
{
    if (!mp->ranks[rank].ended)
        kill(mp->ranks[rank].pid, signal_number);
}

/* Reaps the ranks that have ended; returns how many have not, and sets *failed_out when one went
 * wrong. */
static int reap(struct xt_mp *mp, bool *failed_out)
{
    int running = 0;

    for (int i = 0; i < mp->nranks; i++) {
        struct rank *rank = &mp->ranks[i];

        if (!rank->ended && waitpid(rank->pid, &rank->status, WNOHANG) == rank->pid) {
            rank->ended = true;
            /* One that was killed could not write the time itself. */
            if (mp->reports[i].ended_ms == 0)
                mp->reports[i].ended_ms = xt_now_ms();
        }
        running += !rank->ended;
        if (rank->ended && rank->status != 0)
            *failed_out = true;
    }
    return running;
}

static void kill_running(struct xt_mp *mp)
{
    for (int i = 0; i < mp->nranks; i++) {
        if (mp->ranks[i].ended)
            continue;
        if (!mp->ranks[i].killed_late)
            xt_show_process(STDOUT_FILENO, mp->ranks[i].pid);
        mp->ranks[i].killed_late = true;
        kill(mp->ranks[i].pid, SIGKILL);
    }
}

/* patient: a failed rank is no reason to hurry the others; only the deadline of the test is. */
static void wait_all(struct xt_mp *mp, bool patient)
{
    const struct timespec nap = {.tv_nsec = 500000};
    /* A little before the runner's deadline, so that the output of the ranks can still be shown. */
    int64_t end_ms = xt_self.deadline_ms - (XT_SANITIZED ? 4000 : 1000);
    bool failed = false, hurried = false;

    while (reap(mp, &failed) > 0) {
        int64_t now_ms = xt_now_ms();

        if (failed && !patient && !hurried) {
            hurried = true;
            if (end_ms > now_ms + AFTER_FAILURE_MS)
                end_ms = now_ms + AFTER_FAILURE_MS;
        }
        if (now_ms >= end_ms)
            kill_running(mp);
        nanosleep(&nap, NULL);
    }
}

static void rank_text(const struct xt_mp *mp, int rank, char *text, size_t bytes)
{
    const struct xt_report *report = &mp->reports[rank];
    char status[128];

    xt_status_text(mp->ranks[rank].status, status, sizeof(status));
    if (mp->ranks[rank].killed_late)
        snprintf(text, bytes, "hang: did not return and was killed");
    else if (report->reason[0])
        snprintf(text, bytes, "%s", report->reason);
    else if (report->stage == XT_RUNNING)
        snprintf(text, bytes, "%s before its function returned", status);
    else
        snprintf(text, bytes, "%s after its function returned", status);
}

static bool rank_passed(const struct xt_mp *mp, int rank)
{
    return mp->ranks[rank].status == 0 && mp->reports[rank].stage == XT_RETURNED;
}

/* Copies the ranks' outputs to this test's own, which is shown when the test fails. */
static void show_outputs(const struct xt_mp *mp)
{
    for (int i = 0; i < mp->nranks; i++) {
        char prefix[32], reason[XT_REASON_BYTES + 64];
        char *text = xt_capture_read(mp->ranks[i].output_fd, SHOWN_BYTES);

        rank_text(mp, i, reason, sizeof(reason));
        snprintf(prefix, sizeof(prefix), "rank %d| ", i);
        xt_print_lines(prefix, text);
        if (!rank_passed(mp, i))
            printf("rank %d: %s\n", i, reason);
        free(text);
    }
}

static void mp_destroy(struct xt_mp *mp)
{
    for (int i = 0; i < mp->nranks; i++)
        close(mp->ranks[i].output_fd);
    xt_shared_free(mp->reports, sizeof(*mp->reports) * (size_t)mp->nranks);
    free(mp->ranks);
    free(mp);
}

void xt_mp_wait(struct xt_mp *mp, int *statuses_out)
{
    wait_all(mp, true);
    show_outputs(mp);
    for (int i = 0; statuses_out && i < mp->nranks; i++)
        statuses_out[i] = mp->ranks[i].status;
    mp_destroy(mp);
}

/* The failed rank that failed first; -1 if none did. One killed for hanging is never the first when
 * another failed by itself. A skip counts only when nobody failed. */
static int first_of(const struct xt_mp *mp, bool skipped)
{
    int first = -1;

    for (int i = 0; i < mp->nranks; i++) {
        bool is_skip = mp->reports[i].stage == XT_SKIPPED;

        if (rank_passed(mp, i) || is_skip != skipped)
            continue;
        if (first < 0 || mp->reports[i].ended_ms < mp->reports[first].ended_ms)
            first = i;
    }
    return first;
}

void xt_mp_run(int nranks, xt_rank_fn *fn, void *arg)
{
    struct xt_mp *mp = xt_mp_start(nranks, fn, arg);
    char text[XT_REASON_BYTES + 64];
    int failed, skipped;

    wait_all(mp, false);
    failed = first_of(mp, false);
    skipped = first_of(mp, true);
    if (failed >= 0) {
        show_outputs(mp);
        rank_text(mp, failed, text, sizeof(text));
        xt_fail_at("rank", failed, "%s", text);
    }
    if (skipped >= 0)
        xt_skip_at("rank", skipped, "%s", mp->reports[skipped].reason);
    mp_destroy(mp);
}

struct thread_rank {
    pthread_t thread;
    xt_rank_fn *fn;
    void *arg;
    int rank, nranks;
};

static void *thread_main(void *arg)
{
    const struct thread_rank *self = arg;

    self->fn(self->rank, self->nranks, self->arg);
    return NULL;
}

void xt_threads_run(int nranks, xt_rank_fn *fn, void *arg)
{
    struct thread_rank *ranks = calloc((size_t)nranks, sizeof(*ranks));

    if (!ranks)
        abort();
    for (int i = 0; i < nranks; i++) {
        int err;

        ranks[i] = (struct thread_rank){.fn = fn, .arg = arg, .rank = i, .nranks = nranks};
        err = pthread_create(&ranks[i].thread, NULL, thread_main, &ranks[i]);
        if (err)
            XT_FAIL("cannot start thread %d of %d: %s", i, nranks, strerror(err));
    }
    for (int i = 0; i < nranks; i++)
        pthread_join(ranks[i].thread, NULL);
    free(ranks);
}

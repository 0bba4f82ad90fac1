/* SPDX-License-Identifier: BSD-3-Clause */
/* Judges a rank by what was done to the job, and when.
 *
 * An error of the communicator of all ranks names who it was. A fault that hits a process is found
 * in each of its communicators. One that hits one communicator, another call above all, is an error
 * there; a rank that then ends leaves its other communicators, and in those the error of others
 * names that rank, which has an error of its own. */
#include "campaign_judge.h"

#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "campaign_deed.h"

#define DESTROY_QUIET_S 0.3
#define DESTROY_BUSY_S  1.5
#define SEND_S          4 /* longer than other calls that differ: a send without a partner */

enum verdict {
    WRONG,
    HUNG,
    UNNAMED,
    LATE,
    LEAKED,
    NO_ERROR,
    UNCALLED,
    FAILED,
    SLOW_DESTROY,
    VERDICTS
};

static const char *const verdict_names[VERDICTS] = {"wrong elements",
                                                    "a hang",
                                                    "an error that does not name who it was",
                                                    "a late error",
                                                    "leaks",
                                                    "no error",
                                                    "an error without a fault",
                                                    "a failed rank",
                                                    "a destroy that takes long"};

static struct {
    int rounds, bad_rounds, counts[VERDICTS];
    char first[1200];
} total;

/* The round that is judged. */
static struct {
    const struct stage *stage;
    int bad;
    uint64_t struck_ns; /* first deed that ends the job or may; 0: none was done */
    double bound_s;
} now;

__attribute__((format(printf, 3, 4))) static void blame(enum verdict verdict, int rank,
                                                        const char *fmt, ...)
{
    const struct round *round = &now.stage->round;
    char step[96], what[160], detail[160], line[1200];
    va_list args;

    va_start(args, fmt);
    vsnprintf(detail, sizeof(detail), fmt, args);
    va_end(args);
    campaign_step_text(round->seed, stage_steps(now.stage, rank), step, sizeof(step));
    round_text(round, what, sizeof(what));
    snprintf(line, sizeof(line), "%s%s: rank %d of %d over %s%s, %s (XT_ROUND=%#llx), at %s: %s",
             verdict_names[verdict], detail, rank, round->nranks, transport_names[round->transport],
             round->has_hosts ? " between hosts" : "", what, (unsigned long long)round->seed, step,
             now.stage->ranks[rank].text);
    printf("BAD %s\n", line);
    xt_figure("BAD %s\n", line);
    if (!total.first[0])
        memcpy(total.first, line, sizeof(line));
    total.counts[verdict]++;
    now.bad++;
}

/* Something was, or may have been, done to this rank. */
static int is_victim(const struct round *round, int rank)
{
    for (int i = 0; i < round->deed_count; i++)
        if (round->deeds[i].victim == rank)
            return 1;
    return 0;
}

/* Its process was ended, so that it cannot say anything. */
static int is_dead(const struct stage *stage, int rank)
{
    const struct round *round = &stage->round;

    for (int i = 0; i < round->deed_count; i++) {
        if (round->deeds[i].victim == rank && deed_ends_process(&round->deeds[i]) &&
            atomic_load_explicit(&stage->deeds[i].struck_ns, memory_order_acquire))
            return 1;
    }
    return 0;
}

static enum outcome outcome_of(const struct round *round)
{
    enum outcome most = HARMLESS;

    for (int i = 0; i < round->deed_count; i++)
        if (deed_outcome(&round->deeds[i]) > most)
            most = deed_outcome(&round->deeds[i]);
    return most;
}

/* When the time of errors begins, and how long it is. A plugin fails by chance, and a rank may
 * go on for long without another descriptor or more memory: then the first error is the deed. */
static void find_time(const struct stage *stage)
{
    const struct round *round = &stage->round;

    double pause_s = 0;

    now.struck_ns = 0;
    now.bound_s = 0;
    for (int i = 0; i < round->deed_count; i++) {
        const struct deed *deed = &round->deeds[i];
        const struct fault_kind *kind = &fault_kinds[deed->fault];
        uint64_t struck_ns = atomic_load_explicit(&stage->deeds[i].struck_ns, memory_order_acquire);
        double bound_s = xt_bound(kind->quiet_s, kind->busy_s) + (double)deed->lasts_ms * 1e-3;

        pause_s = deed->fault == PAUSE ? PAUSE_MS * 1e-3 : pause_s;
        now.bound_s = bound_s > now.bound_s ? bound_s : now.bound_s;
        if (struck_ns && deed_outcome(deed) != HARMLESS &&
            (!now.struck_ns || struck_ns < now.struck_ns))
            now.struck_ns = struck_ns;
    }
    now.bound_s += pause_s + (stage->odd_leaves_message ? SEND_S : 0);
    if (round->fault != PLUGIN && round->fault != FDS && round->fault != MEMORY)
        return;
    now.struck_ns = 0;
    for (int r = 0; r < round->nranks; r++)
        if (stage->ranks[r].rc && (!now.struck_ns || stage->ranks[r].ended_ns < now.struck_ns))
            now.struck_ns = stage->ranks[r].ended_ns;
}

/* The text has this rank's number, or its process where it has another number in a child. */
static int names(const struct stage *stage, const char *text, int rank)
{
    char number[32], pid[32];

    snprintf(number, sizeof(number), "rank %d ", rank);
    snprintf(pid, sizeof(pid), "pid %d)", stage->ranks[rank].pid);
    return strstr(text, number) || strstr(text, pid);
}

/* A rank that has an error, of another communicator than the one where this text is from. */
static int names_one_in_error(const struct stage *stage, const char *text, int in_main)
{
    for (int r = 0; r < stage->round.nranks; r++)
        if (stage->ranks[r].rc && (!in_main || stage->ranks[r].failed_in != IN_MAIN) &&
            names(stage, text, r))
            return 1;
    return 0;
}

/* 1: the text names a neighbour of the victim. Two ranks that do not reach each other both say that
 * the other is gone, and the victim's word may be heard first. */
static int names_neighbour(const struct stage *stage, const char *text, int victim)
{
    int nranks = stage->round.nranks;

    return names(stage, text, (victim + 1) % nranks) ||
           names(stage, text, (victim + nranks - 1) % nranks);
}

static int names_culprit(const struct stage *stage, int rank)
{
    const struct round *round = &stage->round;
    const char *text = stage->ranks[rank].text;
    int hits_process = 1, in_main = stage->ranks[rank].failed_in == IN_MAIN;

    for (int i = 0; i < round->deed_count; i++) {
        if (names(stage, text, round->deeds[i].victim) &&
            (round->fault != MISMATCH || !in_main || strstr(text, "ranks disagree") ||
             strstr(text, "has left")))
            return 1;
        hits_process &= deed_hits_process(&round->deeds[i]);
    }
    /* It knows best why it has failed itself, or hears nothing of the others. */
    if (is_victim(round, rank) && round->fault != MISMATCH)
        return 1;
    if ((round->fault == CUT || round->has_hosts) &&
        names_neighbour(stage, text, round->deeds[0].victim))
        return 1;
    return !hits_process && names_one_in_error(stage, text, in_main);
}

/* From the deed to a rank's error. */
static double error_s(int rank)
{
    return (double)(int64_t)(now.stage->ranks[rank].ended_ns - now.struck_ns) * 1e-9;
}

/* UCX waits for a second at most until a peer has the last sends, which none confirms over a link
 * that is down. */
static double destroy_bound_s(enum transport transport)
{
    double more_s = transport == UCX ? 1 : 0;

    return xt_bound(DESTROY_QUIET_S, DESTROY_BUSY_S) + more_s;
}

static void judge_error(const struct stage *stage, int rank)
{
    double seconds = error_s(rank);

    if (outcome_of(&stage->round) == HARMLESS || !now.struck_ns || seconds < 0) {
        blame(UNCALLED, rank, "%s", "");
        return;
    }
    if (!names_culprit(stage, rank))
        blame(UNNAMED, rank, "%s", "");
    if (seconds > now.bound_s)
        blame(LATE, rank, " after %.2f s", seconds);
    if (stage->ranks[rank].destroy_s > destroy_bound_s(stage->round.transport))
        blame(SLOW_DESTROY, rank, " of %.2f s", stage->ranks[rank].destroy_s);
}

/* Gives whether there are files of that pattern; removes: and removes them. */
static int has_files(const char *pattern, int removes, char *text_out, size_t bytes)
{
    glob_t files;
    int found = glob(pattern, 0, NULL, &files) == 0;

    if (found)
        snprintf(text_out, bytes, "%s", files.gl_pathv[0]);
    for (size_t i = 0; found && removes && i < files.gl_pathc; i++)
        (void)unlink(files.gl_pathv[i]);
    globfree(&files);
    return found;
}

/* Files of a process that has ended. One that was killed may leave its record, which goes now: a
 * later process may have the same number. */
static int leaves_files(const struct stage *stage, int rank, char *text_out, size_t bytes)
{
    const char *run = getenv("XDG_RUNTIME_DIR");
    int pid = stage->ranks[rank].pid, is_killed = is_dead(stage, rank), found = 0;
    char pattern[512];

    for (int is_draft = 0; is_draft < 2; is_draft++) {
        snprintf(pattern, sizeof(pattern), "%s/xccl/%s%d-*", run, is_draft ? "." : "", pid);
        found |= has_files(pattern, is_killed, text_out, bytes);
    }
    found &= !is_killed;
    snprintf(pattern, sizeof(pattern), "/dev/shm/*xccl*[-.]%d[-.]*", pid);
    return has_files(pattern, 0, text_out, bytes) || found;
}

static void judge_rank(const struct stage *stage, int rank, int hangs, int status)
{
    const struct round *round = &stage->round;
    char file[256];

    if (stage->ranks[rank].wrong)
        blame(WRONG, rank, ", %llu", (unsigned long long)stage->ranks[rank].wrong);
    if (leaves_files(stage, rank, file, sizeof(file)))
        blame(LEAKED, rank, ": %s", file);
    if (is_dead(stage, rank))
        return;
    if (hangs && WIFSIGNALED(status))
        blame(HUNG, rank, "%s", "");
    else if (stage->ranks[rank].leaks[0])
        blame(LEAKED, rank, ": %s", stage->ranks[rank].leaks);
    else if (status)
        blame(FAILED, rank, ", status %#x", (unsigned)status);
    if (stage->ranks[rank].rc)
        judge_error(stage, rank);
    else if (outcome_of(round) == DEADLY && now.struck_ns && !stage->ranks[rank].aborted &&
             stage_steps(stage, rank) + 1 < round->steps)
        blame(NO_ERROR, rank, "%s", "");
}

/* "SEED fault transport ranks calls bad destroy_s error_s ...". */
static void write_figures(const struct stage *stage)
{
    const struct round *round = &stage->round;
    double destroy_s = 0;
    char times[CAMPAIGN_RANKS_MAX * 16] = "";
    size_t used = 0;
    long calls = 0;

    for (int r = 0; r < round->nranks; r++) {
        int failed = stage->ranks[r].rc != 0;

        calls += stage_steps(stage, r) + 1;
        if (failed && stage->ranks[r].destroy_s > destroy_s)
            destroy_s = stage->ranks[r].destroy_s;
        if (failed && now.struck_ns)
            used += (size_t)snprintf(times + used, sizeof(times) - used, "\t%.4f", error_s(r));
    }
    xt_figure("%#llx\t%s\t%s\t%d\t%ld\t%d\t%.4f%s\n", (unsigned long long)round->seed,
              fault_kinds[round->fault].name, transport_names[round->transport], round->nranks,
              calls, now.bad, destroy_s, times);
}

void judge_round(const struct stage *stage, int hangs, const int *statuses)
{
    now.stage = stage;
    now.bad = 0;
    find_time(stage);
    for (int r = 0; r < stage->round.nranks; r++)
        judge_rank(stage, r, hangs, statuses[deed_process(&stage->round, r)]);
    write_figures(stage);
    total.rounds++;
    total.bad_rounds += now.bad > 0;
}

void judge_end(void)
{
    char counts[512];
    size_t used = 0;

    for (int i = 0; i < VERDICTS && used < sizeof(counts); i++)
        used += (size_t)snprintf(counts + used, sizeof(counts) - used, "%s%s %d", i ? ", " : "",
                                 verdict_names[i], total.counts[i]);
    printf("%d rounds, %d bad: %s\n", total.rounds, total.bad_rounds, counts);
    if (total.bad_rounds)
        XT_FAIL("%d of %d rounds are bad (%s). The first: %s", total.bad_rounds, total.rounds,
                counts, total.first);
}

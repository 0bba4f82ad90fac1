/* SPDX-License-Identifier: BSD-3-Clause */
/* The launcher's event loop. It ends in these steps, each of which is skipped when nobody is left:
 *
 *   RUNNING --a rank gave up (status, abort)--> DOUBT --50 ms, or one was killed--> GRACE
 *   RUNNING --a rank was killed, or told to end--> GRACE --grace passed--> TERM --2 s--> KILLED
 *                                  (ranks may tell their own error)  (SIGTERM)     (SIGKILL)
 *
 * DOUBT: a rank that is killed closes its sockets before it can be reaped, so others may have ended
 * already for want of it; the killed one is then the first that failed.
 *
 * Signals come in through a signalfd, so nothing here runs in a signal handler. A slow reader of
 * our output must not keep us from them: every write waits for the descriptor and the signals
 * together. What the launcher itself has to say is kept until no line is half written.
 *
 * Thread: the program's main thread. */
#include "run/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/loop.h"
#include "base/os.h"
#include "bootstrap/bootstrap.h"
#include "command.h"
#include "lines.h"
#include "option.h"
#include "run/spawn.h"

#define DOUBT_MS    50
#define TERM_MS     2000 /* from SIGTERM to SIGKILL */
#define READ_BYTES  (64u << 10)
#define OUT_BYTES   (2 * XCCL_LINES_MAX_LINE)
#define WRITE_BYTES 4096u /* a pipe that polls writable takes this much without blocking */
#define DRAIN_READS 32 /* more than the greatest pipe holds */
#define SPARE_FILES 64
#define ORPHANS_MAX 65536
#define NOTES_BYTES 2048
#define EXIT_SIGNAL 128 /* plus the signal's number */

enum phase { RUNNING, DOUBT, GRACE, TERM, KILLED };

/* One pipe from a rank. */
struct stream {
    struct xccl_source source; /* fd -1: closed */
    struct xccl_lines lines;
    struct launch *launch;
    int rank;
    int out_fd; /* ours: 1 or 2 */
};

struct rank {
    pid_t pid; /* 0: not started, or ended and reaped */
    struct stream streams[2];
};

struct launch {
    const struct xccl_launch_args *args;
    enum phase phase;
    uint64_t grace_ms; /* of this stop */
    struct rank *ranks;
    int alive;
    int status; /* of the first rank that failed; 0 while there is none */
    int failed_rank; /* -1: none */
    int suspect; /* the rank that seems to have failed first, while in doubt; -1: none */
    siginfo_t suspect_info;
    int told; /* the signal that told us to end, else 0 */
    int give_up; /* told twice: output that nobody takes is dropped */
    int out_gone[3]; /* by descriptor: nobody reads it any more */
    struct xccl_loop *loop;
    struct xccl_source signals, timer;
    struct xccl_root *root;
    struct xccl_spawn_env env;
    sigset_t old_mask;
    struct rlimit old_files;
    int mask_set, subreaper, null_fd;
    char *out; /* lines on their way to out_fd */
    size_t out_used;
    char *input;
    char notes[NOTES_BYTES];
    size_t notes_used;
};

static void take_signals(struct launch *launch);
static void timer_due(struct xccl_source *source, uint64_t now_ns);

/* Keeps a line of the launcher's own for show_notes(). One that has no room is dropped; there are
 * only a handful. */
static void note(struct launch *launch, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void note(struct launch *launch, const char *fmt, ...)
{
    char line[256];
    va_list args;
    int bytes = 0;

    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    bytes = snprintf(launch->notes + launch->notes_used, NOTES_BYTES - launch->notes_used,
                     "%s: %s\n", launch->args->title, line);
    if (bytes > 0 && launch->notes_used + bytes < NOTES_BYTES)
        launch->notes_used += bytes;
}

static void signal_all(struct launch *launch, int signal_number)
{
    for (int i = 0; i < launch->args->nranks; i++) {
        /* The rank is not reaped, so its number and its group's are still its own. */
        if (launch->ranks[i].pid > 0)
            kill(-launch->ranks[i].pid, signal_number);
    }
}

static void begin_stop(struct launch *launch, uint64_t grace_ms)
{
    if (launch->phase != RUNNING && launch->phase != DOUBT)
        return;
    launch->phase = GRACE;
    launch->grace_ms = grace_ms;
    xccl_loop_set_timer(&launch->timer, xccl_clock_ns() + grace_ms * XCCL_NS_PER_MS);
}

/* Waits until fd takes bytes, while signals and the timer go on. */
static void wait_writable(struct launch *launch, int fd)
{
    while (!launch->give_up) {
        struct pollfd polls[2] = {{.fd = fd, .events = POLLOUT},
                                  {.fd = launch->signals.fd, .events = POLLIN}};
        struct xccl_limit limit = {.deadline_ns = launch->timer.timer_ns};

        if (poll(polls, 2, xccl_limit_poll_ms(&limit)) < 0 && errno != EINTR)
            return;
        if (polls[1].revents)
            take_signals(launch);
        if (launch->timer.timer_ns <= xccl_clock_ns())
            timer_due(&launch->timer, xccl_clock_ns());
        if (polls[0].revents)
            return;
    }
}

static void write_out(struct launch *launch, int fd, const char *data, size_t bytes)
{
    while (bytes && !launch->out_gone[fd]) {
        size_t part = bytes < WRITE_BYTES ? bytes : WRITE_BYTES;
        ssize_t put = 0;

        wait_writable(launch, fd);
        if (launch->give_up)
            return;
        put = write(fd, data, part);
        if (put < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (put < 0) {
            /* As a pipeline ends: our reader has gone, so the job has no purpose any more. */
            launch->out_gone[fd] = 1;
            if (launch->status == 0)
                launch->status = EXIT_SIGNAL + SIGPIPE;
            begin_stop(launch, 0);
            return;
        }
        data += put;
        bytes -= (size_t)put;
    }
}

static void flush_lines(struct launch *launch, int fd)
{
    size_t bytes = launch->out_used;

    launch->out_used = 0;
    write_out(launch, fd, launch->out, bytes);
}

/* Gets each whole line of a rank. */
static void line_came(void *user, const char *line, size_t bytes)
{
    struct stream *stream = user;
    struct launch *launch = stream->launch;
    char prefix[16];
    size_t prefix_bytes = (size_t)snprintf(prefix, sizeof(prefix), "[%d] ", stream->rank);

    if (launch->out_used + prefix_bytes + bytes > OUT_BYTES)
        flush_lines(launch, stream->out_fd);
    memcpy(launch->out + launch->out_used, prefix, prefix_bytes);
    launch->out_used += prefix_bytes;
    memcpy(launch->out + launch->out_used, line, bytes);
    launch->out_used += bytes;
}

static void stream_close(struct stream *stream)
{
    if (stream->source.fd < 0)
        return;
    xccl_lines_finish(&stream->lines, line_came, stream);
    flush_lines(stream->launch, stream->out_fd);
    xccl_loop_remove(&stream->source);
    close(stream->source.fd);
    stream->source.fd = -1;
}

/* Reads once; 0 when there is nothing to read now, or nothing any more. */
static int stream_read(struct stream *stream)
{
    struct launch *launch = stream->launch;
    ssize_t got = 0;

    if (stream->source.fd < 0)
        return 0;
    got = read(stream->source.fd, launch->input, READ_BYTES);
    if (got > 0) {
        xccl_lines_feed(&stream->lines, launch->input, (size_t)got, line_came, stream);
        flush_lines(launch, stream->out_fd);
        return 1;
    }
    if (got < 0 && errno == EINTR)
        return 1;
    if (got < 0 && errno == EAGAIN)
        return 0;
    stream_close(stream);
    return 0;
}

static void stream_ready(struct xccl_source *source, uint32_t events)
{
    (void)events;
    stream_read(source->owner);
}

/* Takes what a rank has written so far. A stranger that it left behind may hold the pipe and write
 * on, so there is a bound. */
static void drain_rank(struct launch *launch, int rank)
{
    for (int i = 0; i < 2; i++) {
        struct stream *stream = &launch->ranks[rank].streams[i];

        for (int reads = 0; reads < DRAIN_READS && stream_read(stream); reads++)
            continue;
    }
}

static void show_notes(struct launch *launch)
{
    size_t bytes = launch->notes_used;

    if (bytes == 0)
        return;
    /* The rank's own last words come before what we say about it. */
    if (launch->failed_rank >= 0)
        drain_rank(launch, launch->failed_rank);
    launch->notes_used = 0;
    write_out(launch, STDERR_FILENO, launch->notes, bytes);
}

/* Ranks that wait at the root for the report of the one that failed hear why it does not come. */
static void tell_ranks(const struct launch *launch, const char *how)
{
    char text[256];

    snprintf(text, sizeof(text), "rank %d (host %s, pid %d) %.120s", launch->failed_rank,
             xccl_os_hostname(), (int)launch->suspect_info.si_pid, how);
    xccl_root_note_end(launch->root, (uint32_t)launch->failed_rank, (uint32_t)launch->args->nranks,
                       text);
}

/* The suspect is the first rank that failed. */
static void rank_failed(struct launch *launch)
{
    const siginfo_t *info = &launch->suspect_info;
    int rank = launch->suspect, code = info->si_status;
    char text[200];

    launch->failed_rank = rank;
    if (info->si_code == CLD_EXITED) {
        launch->status = code;
        snprintf(text, sizeof(text), "exited with status %d", code);
    } else {
        launch->status = EXIT_SIGNAL + code;
        snprintf(text, sizeof(text), "killed by signal %d (%s)%s", code, strsignal(code),
                 info->si_code == CLD_DUMPED ? ", core dumped" : "");
    }
    note(launch, "rank %d (pid %d) %s", rank, (int)info->si_pid, text);
    tell_ranks(launch, text);
    begin_stop(launch, launch->args->grace_ms);
}

static void timer_due(struct xccl_source *source, uint64_t now_ns)
{
    struct launch *launch = source->owner;

    if (launch->phase == DOUBT) {
        rank_failed(launch);
        return;
    }
    if (launch->phase == GRACE) {
        if (launch->alive && launch->grace_ms)
            note(launch, "%d %s still running %g s later; ending %s", launch->alive,
                 launch->alive == 1 ? "rank is" : "ranks are", (double)launch->grace_ms / 1000,
                 launch->alive == 1 ? "it" : "them");
        signal_all(launch, SIGTERM);
        launch->phase = TERM;
        xccl_loop_set_timer(source, now_ns + TERM_MS * XCCL_NS_PER_MS);
        return;
    }
    if (launch->phase == TERM) {
        signal_all(launch, SIGKILL);
        launch->phase = KILLED;
    }
    xccl_loop_set_timer(source, XCCL_NEVER_NS);
}

static int rank_of(const struct launch *launch, pid_t pid)
{
    for (int i = 0; i < launch->args->nranks; i++) {
        if (launch->ranks[i].pid == pid)
            return i;
    }
    return -1;
}

/* Ended by a signal that a program does not send itself when it gives up, as by abort(). */
static int is_sudden(const siginfo_t *info)
{
    return info->si_code != CLD_EXITED && info->si_status != SIGABRT &&
           info->si_status != SIGTERM && info->si_status != SIGINT && info->si_status != SIGHUP;
}

/* A rank ended, not well. One that was killed is a better suspect than one that gave up. */
static void suspect(struct launch *launch, int rank, const siginfo_t *info)
{
    if (launch->suspect >= 0 && (is_sudden(&launch->suspect_info) || !is_sudden(info)))
        return;
    launch->suspect = rank;
    launch->suspect_info = *info;
}

/* Reaps every rank that has ended, and judges once it is clear who failed first. */
static void reap(struct launch *launch)
{
    for (;;) {
        siginfo_t info = {.si_pid = 0};
        int rank = -1;

        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid == 0)
            break;
        rank = rank_of(launch, info.si_pid);
        /* What the rank left running ends with it. As long as the rank is not reaped, no other
         * process can have got its number. */
        if (rank >= 0)
            kill(-info.si_pid, SIGKILL);
        if (waitid(P_PID, (id_t)info.si_pid, &info, WEXITED | WNOHANG))
            break;
        if (rank < 0)
            continue; /* an orphan of a rank, or a child from before this program was started */
        launch->ranks[rank].pid = 0;
        launch->alive--;
        if (info.si_code != CLD_EXITED || info.si_status != 0)
            suspect(launch, rank, &info);
    }
    if (launch->suspect < 0 || launch->status != 0 || launch->told)
        return;
    if (is_sudden(&launch->suspect_info) || launch->alive == 0) {
        rank_failed(launch);
    } else if (launch->phase == RUNNING) {
        launch->phase = DOUBT;
        xccl_loop_set_timer(&launch->timer, xccl_clock_ns() + DOUBT_MS * XCCL_NS_PER_MS);
    }
}

/* Ctrl-C, or a request to end: the ranks get it too, and the grace begins. The second time they are
 * killed. */
static void told_to_end(struct launch *launch, int signal_number)
{
    if (launch->told) {
        launch->give_up = 1;
        launch->phase = KILLED;
        xccl_loop_set_timer(&launch->timer, XCCL_NEVER_NS);
        signal_all(launch, SIGKILL);
        return;
    }
    launch->told = signal_number;
    note(launch, "signal %d (%s) passed on to %d ranks; a second one kills them", signal_number,
         strsignal(signal_number), launch->alive);
    signal_all(launch, signal_number);
    begin_stop(launch, launch->args->grace_ms);
}

static void take_signals(struct launch *launch)
{
    struct signalfd_siginfo infos[8];
    ssize_t got = read(launch->signals.fd, infos, sizeof(infos));

    for (ssize_t i = 0; got > 0 && i < got / (ssize_t)sizeof(infos[0]); i++) {
        if (infos[i].ssi_signo == SIGCHLD)
            reap(launch);
        else
            told_to_end(launch, (int)infos[i].ssi_signo);
    }
}

static void signals_ready(struct xccl_source *source, uint32_t events)
{
    (void)events;
    take_signals(source->owner);
}

/* Signals become readable. Before any thread is made, so that it inherits the mask. What our
 * starter ignores (nohup, a shell's background job) stays ignored. */
static int open_signals(struct launch *launch)
{
    static const int endings[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction now;
    sigset_t mask;

    sigemptyset(&mask);
    sigaddset(&mask, SIGCHLD);
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        if (sigaction(endings[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaddset(&mask, endings[i]);
    }
    if (sigprocmask(SIG_BLOCK, &mask, &launch->old_mask))
        return 0;
    launch->mask_set = 1;
    if (signal(SIGPIPE, SIG_IGN) == SIG_ERR || signal(SIGCHLD, SIG_DFL) == SIG_ERR)
        return 0;
    launch->signals.fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    if (launch->signals.fd < 0) {
        xccl_fail(xcclSystemError, errno, "raise ulimit -n", "cannot open a signal descriptor");
        return 0;
    }
    return 1;
}

/* The number of one child of this thread, or 0. */
static pid_t any_child(void)
{
    char path[64];
    int pid = 0;
    FILE *file = NULL;

    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    file = fopen(path, "re");
    if (!file)
        return 0;
    if (fscanf(file, "%d", &pid) != 1)
        pid = 0;
    fclose(file);
    return pid;
}

/* Processes that leave their rank's group come to us when their parent ends. Not so where this
 * process has children already, from before exec: those are not ours to end. */
static void become_subreaper(struct launch *launch)
{
    if (any_child() == 0)
        launch->subreaper = prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
}

/* Two pipes and a connection to the root for each rank need descriptors. */
static int raise_file_limit(struct launch *launch)
{
    rlim_t needed = (rlim_t)launch->args->nranks * (launch->args->prefix ? 3 : 1) + SPARE_FILES;
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files))
        return 0;
    launch->old_files = files;
    if (files.rlim_cur >= needed)
        return 1;
    if (files.rlim_max < needed) {
        xccl_fail(xcclSystemError, 0, "raise ulimit -Hn, start fewer ranks, or use --no-prefix",
                  "%d ranks need %llu open files, but only %llu are allowed", launch->args->nranks,
                  (unsigned long long)needed, (unsigned long long)files.rlim_max);
        return 0;
    }
    files.rlim_cur = needed;
    return setrlimit(RLIMIT_NOFILE, &files) == 0;
}

/* The meeting point and what the ranks need to find it. */
static int open_root(struct launch *launch)
{
    struct xccl_addr addr = {.bytes = sizeof(addr.sa.in4)};
    char addr_text[XCCL_ADDR_TEXT_BYTES];
    char key[XCCL_JOB_KEY_TEXT_BYTES];
    uint8_t random[32];
    uint8_t secret[32];
    int ok = 0;

    addr.sa.in4.sin_family = AF_INET;
    addr.sa.in4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (xccl_os_random(random, sizeof(random)))
        return 0;
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(key + 2 * i, 3, "%02x", random[i]);
    xccl_job_key_secret(key, secret);
    if (xccl_root_create(&addr, secret, &launch->root) == xcclSuccess) {
        xccl_addr_format(&addr, addr_text);
        ok = xccl_spawn_env_init(&launch->env, launch->args->nranks, addr_text, key);
    }
    explicit_bzero(random, sizeof(random));
    explicit_bzero(secret, sizeof(secret));
    explicit_bzero(key, sizeof(key));
    return ok;
}

static int open_all(struct launch *launch)
{
    int nranks = launch->args->nranks;

    if (!open_signals(launch) || !raise_file_limit(launch))
        return 0;
    become_subreaper(launch);
    launch->null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (launch->null_fd < 0) {
        xccl_fail(xcclSystemError, errno, NULL, "cannot open /dev/null");
        return 0;
    }
    launch->out = xccl_calloc(1, OUT_BYTES);
    launch->input = xccl_calloc(1, READ_BYTES);
    launch->ranks = xccl_calloc(nranks, sizeof(*launch->ranks));
    if (!launch->out || !launch->input || !launch->ranks)
        return 0;
    for (int i = 0; i < 2 * nranks; i++)
        launch->ranks[i / 2].streams[i % 2].source.fd = -1;
    if (xccl_loop_create(&launch->loop))
        return 0;
    launch->signals.events = EPOLLIN;
    launch->signals.timer_ns = XCCL_NEVER_NS;
    launch->signals.on_events = signals_ready;
    launch->signals.owner = launch;
    launch->timer.on_timer = timer_due;
    launch->timer.owner = launch;
    if (xccl_loop_add(launch->loop, &launch->signals) ||
        xccl_loop_add(launch->loop, &launch->timer))
        return 0;
    return open_root(launch);
}

/* Our end of a pipe joins the loop; the rank's end is *write_fd_out. */
static int stream_open(struct launch *launch, int rank, int idx, int *write_fd_out)
{
    struct stream *stream = &launch->ranks[rank].streams[idx];
    int ends[2] = {-1, -1};

    if (pipe2(ends, O_CLOEXEC) || fcntl(ends[0], F_SETFL, O_NONBLOCK)) {
        xccl_fail(xcclSystemError, errno, "raise ulimit -n, or use --no-prefix",
                  "cannot create a pipe for rank %d", rank);
        goto err_ends;
    }
    stream->launch = launch;
    stream->rank = rank;
    stream->out_fd = STDOUT_FILENO + idx;
    stream->source.fd = ends[0];
    stream->source.events = EPOLLIN;
    stream->source.timer_ns = XCCL_NEVER_NS;
    stream->source.on_events = stream_ready;
    stream->source.owner = stream;
    if (xccl_loop_add(launch->loop, &stream->source)) {
        stream->source.fd = -1;
        goto err_ends;
    }
    *write_fd_out = ends[1];
    return 1;
err_ends:
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0)
            close(ends[i]);
    }
    return 0;
}

static int start_rank(struct launch *launch, int rank)
{
    const struct xccl_launch_args *args = launch->args;
    int pipes[2] = {-1, -1};
    int exec_failed = 0;
    int error = -1;
    struct xccl_spawn_args spawn = {.program = args->program,
                                    .argv = args->argv,
                                    .env = &launch->env,
                                    .rank = rank,
                                    .fds = {launch->null_fd, STDOUT_FILENO, STDERR_FILENO},
                                    .mask = &launch->old_mask,
                                    .files = &launch->old_files};

    /* A terminal stays with the launcher: a rank in a group of its own would be stopped by reading.
     */
    if (rank == 0 && !isatty(STDIN_FILENO))
        spawn.fds[0] = STDIN_FILENO;
    for (int i = 0; args->prefix && i < 2; i++) {
        if (!stream_open(launch, rank, i, &pipes[i]))
            goto out;
        spawn.fds[1 + i] = pipes[i];
    }
    error = xccl_spawn(&spawn, &launch->ranks[rank].pid, &exec_failed);
    if (exec_failed) {
        note(launch, "cannot start %s: %s", args->program, strerror(error));
        launch->status = error == ENOENT ? 127 : 126;
    } else if (error) {
        xccl_fail(xcclSystemError, error, "raise ulimit -u, or start fewer ranks",
                  "cannot start rank %d", rank);
    } else {
        launch->alive++;
    }
out:
    for (int i = 0; i < 2; i++) {
        if (pipes[i] >= 0)
            close(pipes[i]);
    }
    return error == 0;
}

/* Kills and reaps what ranks left behind outside their groups: as their subreaper this process has
 * become their parent. */
static void end_orphans(const struct launch *launch)
{
    for (int i = 0; launch->subreaper && i < ORPHANS_MAX; i++) {
        pid_t pid = any_child();

        if (pid <= 0)
            return;
        kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
}

/* Runs the loop until all ranks have ended, then takes what is left in the pipes. */
static void run_to_end(struct launch *launch)
{
    show_notes(launch);
    while (launch->alive > 0) {
        if (xccl_loop_run_once(launch->loop, -1)) {
            signal_all(launch, SIGKILL);
            launch->status = XCCL_EXIT_FAILURE;
            break;
        }
        show_notes(launch);
    }
    end_orphans(launch);
    for (int i = 0; i < launch->args->nranks; i++) {
        drain_rank(launch, i);
        stream_close(&launch->ranks[i].streams[0]);
        stream_close(&launch->ranks[i].streams[1]);
    }
    show_notes(launch);
}

static void close_all(struct launch *launch)
{
    /* Only after a failure of the loop itself are ranks left; they were killed and end for certain.
     */
    while (launch->alive > 0 && waitpid(-1, NULL, 0) > 0)
        launch->alive--;
    xccl_root_destroy(launch->root);
    xccl_spawn_env_fini(&launch->env);
    xccl_loop_remove(&launch->timer);
    xccl_loop_remove(&launch->signals);
    xccl_loop_destroy(launch->loop);
    xccl_free(launch->ranks);
    xccl_free(launch->input);
    xccl_free(launch->out);
    if (launch->null_fd >= 0)
        close(launch->null_fd);
    if (launch->signals.fd >= 0)
        close(launch->signals.fd);
    if (launch->subreaper)
        prctl(PR_SET_CHILD_SUBREAPER, 0);
    if (launch->mask_set)
        sigprocmask(SIG_SETMASK, &launch->old_mask, NULL);
}

int xccl_launch(const struct xccl_launch_args *args)
{
    struct launch launch = {.args = args,
                            .failed_rank = -1,
                            .suspect = -1,
                            .null_fd = -1,
                            .signals.fd = -1,
                            .timer = {.fd = -1, .timer_ns = XCCL_NEVER_NS}};
    int status = XCCL_EXIT_FAILURE;

    if (!open_all(&launch)) {
        xccl_option_tell_error(args->title);
        goto out;
    }
    for (int i = 0; i < args->nranks; i++) {
        if (start_rank(&launch, i))
            continue;
        if (launch.status == 0) {
            xccl_option_tell_error(args->title);
            launch.status = XCCL_EXIT_FAILURE;
        }
        signal_all(&launch, SIGKILL);
        break;
    }
    run_to_end(&launch);
    status = launch.told ? EXIT_SIGNAL + launch.told : launch.status;
out:
    close_all(&launch);
    return status;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* The child process of one case: the roles of the case as one thread, two threads on one instance,
 * two processes, two processes in two network namespaces, or one whose peer is on another host.
 *
 *   runner --fork--> case --fork--> sender, receiver        (processes, namespaces)
 *                        --thread-> sender, receiver        (threads)
 *
 * A role that fails ends its process with a verdict in the shared memory. All processes of a case
 * are one process group, which the runner ends.
 *
 * Thread: the process has one until it opens the plugin or starts the roles. */
#include "cf_remote.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"

const char *cf_form_name(unsigned form)
{
    static const char *const names[] = {"single", "threads", "processes", "namespaces", "remote"};

    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (form == 1u << i)
            return names[i];
    }
    return "";
}

/* Two namespaces are two hosts, so what can be there can be on two. */
int cf_has_form(const struct cf_case *test, unsigned form)
{
    return (test->forms & (form == CF_REMOTE ? CF_NAMESPACES : form)) != 0;
}

void cf_tell_end(const struct cf_shared *shared, int status, int role, char *text, size_t bytes)
{
    const char *call = atomic_load_explicit(&shared->call[role], memory_order_relaxed);
    int inside = atomic_load_explicit(&shared->in_call[role], memory_order_relaxed);
    const char *where = inside ? "inside" : "after";
    char how[64];

    if (WIFSIGNALED(status))
        snprintf(how, sizeof(how), CF_KILLED_BY "%s", sigabbrev_np(WTERMSIG(status)));
    else
        snprintf(how, sizeof(how), "exited with status %d", WEXITSTATUS(status));
    if (call)
        snprintf(text, bytes, "the process %s %s %s", how, where, call);
    else
        snprintf(text, bytes, "the process %s before its first call", how);
}

/* ---- one role ---- */

static void role_open(struct cf *me)
{
    if (me->test->flags & CF_UNOPENED)
        return;
    if (cf_init(me, &me->net) != xcclSuccess)
        cf_fail(me, "cannot open the plugin: %s", xccl_error_text());
}

static void role_shut(struct cf *me)
{
    if (me->net)
        cf_fini(me, me->net);
    me->net = NULL;
}

static cf_fn *role_fn(const struct cf *me)
{
    if (me->form == CF_SINGLE)
        return me->test->solo;
    return me->role == CF_SENDER ? me->test->send : me->test->recv;
}

static void role_run(struct cf *me)
{
    role_open(me);
    role_fn(me)(me);
    role_shut(me);
}

static struct cf role_make(const struct xccl_conformance_options *options,
                           const struct cf_task *task, int role, int channel)
{
    struct cf me = {
        .test = task->test,
        .options = options,
        .shared = task->shared,
        .props = task->shared->props,
        .dev = task->shared->dev,
        .role = role == CF_SENDER ? CF_SENDER : CF_RECEIVER,
        .form = task->form,
        .channel = channel,
        .seed = task->seed,
        .random = task->seed * 2 + (uint64_t)role,
        .max_bytes = options->max_bytes,
        .quick = options->quick,
    };

    me.own_contract = strncmp(task->shared->contract, "nccl", 4) != 0;
    if (me.props.maxBytes && me.max_bytes > me.props.maxBytes)
        me.max_bytes = me.props.maxBytes;
    return me;
}

/* ---- threads ---- */

static void *role_thread(void *arg)
{
    struct cf *me = arg;

    if (me->props.needsProgress) {
        role_run(me); /* progress may not run beside the other role's calls: an instance each */
    } else {
        role_fn(me)(me);
    }
    return NULL;
}

static void run_threads(struct cf roles[CF_ROLES])
{
    pthread_t sender;

    if (!roles[0].props.needsProgress) {
        role_open(&roles[0]);
        roles[1].net = roles[0].net;
    }
    if (pthread_create(&sender, NULL, role_thread, &roles[CF_SENDER]) != 0)
        cf_skip(&roles[0], "cannot start a thread on this machine");
    role_thread(&roles[CF_RECEIVER]);
    pthread_join(sender, NULL);
    role_shut(&roles[0]);
}

/* ---- processes ---- */

static pid_t role_start(struct cf *me, const struct cf_hosts *hosts, int others_channel)
{
    pid_t parent = getpid(), pid = fork();

    if (pid < 0)
        cf_skip(me, "cannot start a process on this machine");
    if (pid > 0)
        return pid;
    cf_die_with(parent);
    close(others_channel);
    if (me->form == CF_NAMESPACES) {
        /* They name interfaces of the host outside. */
        unsetenv("XCCL_SOCKET_IFNAME");
        unsetenv("NCCL_SOCKET_IFNAME");
        if (!cf_hosts_enter(hosts, (int)me->role))
            cf_skip(me, "cannot enter a network namespace: %s", strerrordesc_np(errno));
    }
    role_run(me);
    _exit(0);
}

/* A crash is the better explanation of what the other role saw of it. */
static void role_ended(struct cf_shared *shared, int status, int role)
{
    char text[200];
    int used;

    if (status == 0 || atomic_load_explicit(&shared->may_die[role], memory_order_relaxed))
        return;
    if (!WIFSIGNALED(status) && atomic_load_explicit(&shared->verdict, memory_order_acquire))
        return;
    used = snprintf(text, sizeof(text), "%s: ", role == CF_SENDER ? "sender" : "receiver");
    cf_tell_end(shared, status, role, text + used, sizeof(text) - (size_t)used);
    if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
        atomic_store_explicit(&shared->verdict, CF_NONE, memory_order_release);
    cf_settle(shared, CF_FAILED, text);
}

/* Skipped or noted: the other role has nothing more to say. */
static int is_over(const struct cf_shared *shared)
{
    int verdict = atomic_load_explicit(&shared->verdict, memory_order_acquire);

    return verdict == CF_SKIPPED || verdict == CF_NOTED;
}

/* Until both have ended, or one has failed and the other had its time to end. */
static void roles_wait(struct cf_shared *shared, const pid_t pids[CF_ROLES])
{
    uint64_t end_ns = 0;
    int left = CF_ROLES;

    while (left > 0) {
        int status = 0;
        pid_t pid = waitpid(-1, &status, end_ns ? WNOHANG : 0);
        int role = pid == pids[CF_SENDER] ? CF_SENDER : CF_RECEIVER;

        if (pid == 0) {
            if (cf_now() > end_ns)
                return;
            cf_sleep_ms(2);
            continue;
        }
        if (pid < 0)
            return;
        if (pid != pids[role])
            continue;
        left--;
        role_ended(shared, status, role);
        if (is_over(shared))
            return;
        if (status != 0 && !atomic_load_explicit(&shared->may_die[role], memory_order_relaxed))
            end_ns = cf_now() + 200 * CF_MS;
    }
}

static void run_processes(struct cf roles[CF_ROLES], const struct cf_hosts *hosts)
{
    struct cf_shared *shared = roles[0].shared;
    pid_t pids[CF_ROLES];

    for (int i = 0; i < CF_ROLES; i++)
        pids[i] = role_start(&roles[i], hosts, roles[1 - i].channel);
    for (int i = 0; i < CF_ROLES; i++)
        close(roles[i].channel);
    roles_wait(shared, pids);
    for (int i = 0; i < CF_ROLES; i++)
        kill(pids[i], SIGKILL);
}

/* ---- one here, one on another host ---- */

static void run_remote(struct cf *me, const struct cf_task *task)
{
    int end_fd = -1, status = 0;
    pid_t pid;

    if (me->channel < 0 && !cf_remote_call(me->options, task, &me->channel, &end_fd))
        cf_fail(me, "the host with --serve: %s", xccl_error_text());
    pid = role_start(me, NULL, -1);
    close(me->channel);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    role_ended(me->shared, status, (int)me->role);
    if (end_fd >= 0)
        cf_remote_hear_end(me->shared, end_fd);
}

/* ---- the process of a case ---- */

void cf_form_run(const struct xccl_conformance_options *options, const struct cf_hosts *hosts,
                 struct cf_task *task)
{
    int ends[2] = {-1, -1};
    struct cf roles[CF_ROLES];

    cf_patience_set(task->give_ms);
    if (task->form == CF_REMOTE) {
        roles[0] = role_make(options, task, task->role, task->channel);
        run_remote(&roles[0], task);
        _exit(atomic_load_explicit(&task->shared->verdict, memory_order_acquire) == CF_FAILED);
    }
    if (task->form != CF_SINGLE && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        _exit(4);
    for (int i = 0; i < CF_ROLES; i++)
        roles[i] = role_make(options, task, i, ends[i]);
    if (task->form == CF_SINGLE)
        role_run(&roles[CF_SENDER]);
    else if (task->form == CF_THREADS)
        run_threads(roles);
    else
        run_processes(roles, hosts);
    _exit(atomic_load_explicit(&task->shared->verdict, memory_order_acquire) == CF_FAILED);
}

void cf_form_look(const struct xccl_conformance_options *options, struct cf_shared *shared)
{
    static const struct cf_case look = {.name = "look", .forms = CF_SINGLE};
    struct cf me = {.test = &look, .options = options, .shared = shared, .channel = -1};

    me.form = CF_SINGLE;
    me.dev = (int)options->device;
    role_open(&me);
    if (me.dev >= me.net->device_count)
        cf_fail(&me, "device %d does not exist: the number of devices is %d", me.dev,
                me.net->device_count);
    shared->dev = me.dev;
    shared->props.size = sizeof(shared->props);
    cf_ok(&me, cf_properties(&me, me.dev, &shared->props), "properties");
    snprintf(shared->name, sizeof(shared->name), "%s", me.net->calls.name);
    snprintf(shared->contract, sizeof(shared->contract), "%s", me.net->contract);
    snprintf(shared->path, sizeof(shared->path), "%s", me.net->path);
    snprintf(shared->device, sizeof(shared->device), "%s",
             shared->props.name ? shared->props.name : "");
    shared->props.name = shared->props.pciPath = shared->props.provider = NULL;
    role_shut(&me);
    _exit(0);
}

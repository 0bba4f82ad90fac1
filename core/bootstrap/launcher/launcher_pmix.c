/* SPDX-License-Identifier: BSD-3-Clause */
/* PMIx: Open MPI's mpirun, prterun, srun --mpi=pmix. Rank 0 puts the id, all commit and fence with
 * the data collected, the others get it. libpmix.so.2 is loaded when a rank has been started by a
 * PMIx server, and never otherwise; the declarations below are those of the PMIx Standard, version
 * 4.1 (pmix.org; chapters 3 "Data structures and types", 5 "Initialization", 6 and 7 "Data
 * access"), whose layout is that of all libraries of this name from 3.0 on for 64 bits.
 *
 * The library counts who initialised it, so a program that uses MPI as well does no harm. Its calls
 * know no deadline that can be relied on; a thread makes them, and is given up when the deadline
 * passes: then PMIx is not touched again and the thread's memory stays with it.
 *
 * Thread: the caller's, under launcher.c's lock; at exit, the exiting one. */
#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "bootstrap/launcher/launcher_int.h"

/* --- of the standard --- */

#define PMIX_LIBRARY      "libpmix.so.2"
#define PMIX_OLDEST       3
#define PMIX_OK           0
#define PMIX_TYPE_BOOL    1
#define PMIX_TYPE_STRING  3
#define PMIX_TYPE_INT     6
#define PMIX_TYPE_UINT16  13
#define PMIX_TYPE_UINT32  14
#define PMIX_SCOPE_GLOBAL 3
#define PMIX_ANY_RANK     (UINT32_MAX - 1)
#define PMIX_KEY_SIZE     "pmix.job.size"
#define PMIX_KEY_LOCAL    "pmix.lrank"
#define PMIX_KEY_LOCALS   "pmix.local.size"
#define PMIX_KEY_COLLECT  "pmix.collect"
#define PMIX_KEY_TIMEOUT  "pmix.timeout"
#define PMIX_NSPACE_BYTES 256
#define PMIX_KEY_BYTES    512

struct pmix_proc {
    char nspace[PMIX_NSPACE_BYTES];
    uint32_t rank;
};

struct pmix_value {
    uint16_t type;
    union {
        uint8_t flag;
        int32_t integer;
        uint16_t uint16;
        uint32_t uint32;
        char *string;
        uint64_t room[3]; /* the greatest member's */
    } data;
};

struct pmix_info {
    char key[PMIX_KEY_BYTES];
    uint32_t flags;
    struct pmix_value value;
};

static_assert(sizeof(struct pmix_proc) == 260, "pmix_proc_t");
#if UINTPTR_MAX > UINT32_MAX
static_assert(sizeof(struct pmix_value) == 32, "pmix_value_t");
static_assert(sizeof(struct pmix_info) == 552, "pmix_info_t");
#endif

struct pmix_calls {
    int (*init)(struct pmix_proc *proc, struct pmix_info *infos, size_t info_count);
    int (*finalize)(const struct pmix_info *infos, size_t info_count);
    int (*put)(uint8_t scope, const char *key, struct pmix_value *value);
    int (*commit)(void);
    int (*fence)(const struct pmix_proc *procs, size_t proc_count, const struct pmix_info *infos,
                 size_t info_count);
    int (*get)(const struct pmix_proc *proc, const char *key, const struct pmix_info *infos,
               size_t info_count, struct pmix_value **value_out);
    const char *(*error_string)(int status);
    const char *(*get_version)(void);
};

/* --- ours --- */

#define FINALIZE_MS 5000

enum stage { APART, JOINED, BROKEN, ENDED };

static struct {
    enum stage stage;
    int must_finalize;
    pid_t pid;
    struct pmix_calls calls;
    struct pmix_proc self;
    int nranks, local_rank, local_nranks;
} pmix;

/* What the thread does, and what came of it. */
struct task {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    int done; /* under the lock */
    void (*run)(struct task *task);
    const char *call; /* the one that status is of */
    int status;
    struct pmix_proc self;
    int nranks, local_rank, local_nranks;
    int timeout_s;
    char key[64];
    char text[XCCL_LAUNCH_TEXT_BYTES];
};

static const char advice[] = "see the launcher's output, or set XCCL_RANK, XCCL_NRANKS, "
                             "XCCL_COMM_ID and XCCL_JOB_KEY";

static int pmix_present(void)
{
    return xccl_launcher_env_has("PMIX_NAMESPACE") && xccl_launcher_env_has("PMIX_RANK");
}

/* --- the thread --- */

static void *task_main(void *arg)
{
    struct task *task = arg;

    task->run(task);
    pthread_mutex_lock(&task->lock);
    task->done = 1;
    pthread_cond_signal(&task->ended);
    pthread_mutex_unlock(&task->lock);
    return NULL;
}

/* NULL: no memory (told). */
static struct task *task_create(void (*run)(struct task *task))
{
    struct task *task = xccl_calloc(1, sizeof(*task));
    pthread_condattr_t attr;

    if (!task)
        return NULL;
    task->run = run;
    task->self = pmix.self;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&task->ended, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&task->lock, NULL);
    return task;
}

static void task_destroy(struct task *task)
{
    pthread_cond_destroy(&task->ended);
    pthread_mutex_destroy(&task->lock);
    explicit_bzero(task, sizeof(*task));
    xccl_free(task);
}

/* 1: the task is done; 0: the limit has passed. */
static int task_wait(struct task *task, const struct xccl_limit *limit)
{
    struct timespec until;
    int left_ms = xccl_limit_poll_ms(limit), done = 0, error = 0;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += left_ms < 0 ? 1 << 30 : left_ms / 1000;
    until.tv_nsec += left_ms < 0 ? 0 : (long)(left_ms % 1000) * (long)XCCL_NS_PER_MS;
    if (until.tv_nsec >= (long)XCCL_NS_PER_S) {
        until.tv_sec++;
        until.tv_nsec -= (long)XCCL_NS_PER_S;
    }
    pthread_mutex_lock(&task->lock);
    while (!task->done && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&task->ended, &task->lock, &until);
    done = task->done;
    pthread_mutex_unlock(&task->lock);
    return done;
}

static xcclResult_t verdict(const struct task *task)
{
    if (task->status == PMIX_OK)
        return xcclSuccess;
    return xccl_fail(xcclRemoteError, 0, advice, "rank %u: %s failed: %s (%d)", pmix.self.rank,
                     task->call, pmix.calls.error_string(task->status), task->status);
}

/* Runs the task to its end within the limit. When an error comes back after the limit the task is
 * not the caller's any more, and *task is NULL. */
static xcclResult_t task_run(struct task **task, const struct xccl_limit *limit)
{
    sigset_t all, before;
    pthread_t thread;
    int error = 0;

    /* The program's signals are none of this thread's business. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&thread, NULL, task_main, *task);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return xccl_fail(xcclSystemError, error, "raise ulimit -u", "cannot start a thread");
    if (task_wait(*task, limit)) {
        pthread_join(thread, NULL);
        return verdict(*task);
    }
    pthread_detach(thread);
    *task = NULL;
    pmix.must_finalize = 0;
    pmix.stage = BROKEN;
    return xccl_fail(xcclTimeout, 0,
                     "check whether all ranks were started and make the same number of calls for "
                     "ids; XCCL_TIMEOUT_INIT_S sets the limit",
                     "rank %u: the launcher's PMIx server did not answer in time", pmix.self.rank);
}

/* --- what the thread does --- */

static void info_set(struct pmix_info *info, const char *key, uint16_t type, int value)
{
    *info = (struct pmix_info){.flags = 0};
    snprintf(info->key, sizeof(info->key), "%s", key);
    info->value.type = type;
    if (type == PMIX_TYPE_BOOL)
        info->value.data.flag = value != 0;
    else
        info->value.data.integer = value;
}

/* A number that the server knows; fallback when it does not. */
static int get_int(const struct pmix_proc *self, uint32_t rank, const char *key, int fallback)
{
    struct pmix_proc proc = *self;
    struct pmix_value *value = NULL;
    int number = fallback;

    proc.rank = rank;
    if (pmix.calls.get(&proc, key, NULL, 0, &value) != PMIX_OK || !value)
        return fallback;
    if (value->type == PMIX_TYPE_UINT32 && value->data.uint32 <= 1 << 20)
        number = (int)value->data.uint32;
    else if (value->type == PMIX_TYPE_UINT16)
        number = value->data.uint16;
    free(value);
    return number;
}

static void run_init(struct task *task)
{
    task->call = "PMIx_Init";
    task->status = pmix.calls.init(&task->self, NULL, 0);
    if (task->status)
        return;
    task->nranks = get_int(&task->self, PMIX_ANY_RANK, PMIX_KEY_SIZE, 0);
    task->local_rank = get_int(&task->self, task->self.rank, PMIX_KEY_LOCAL, -1);
    task->local_nranks = get_int(&task->self, PMIX_ANY_RANK, PMIX_KEY_LOCALS, 0);
}

/* Takes the text that rank 0 put. */
static void run_get(struct task *task)
{
    struct pmix_proc proc = task->self;
    struct pmix_value *value = NULL;

    proc.rank = 0;
    task->call = "PMIx_Get";
    task->status = pmix.calls.get(&proc, task->key, NULL, 0, &value);
    if (task->status || !value)
        return;
    if (value->type == PMIX_TYPE_STRING && value->data.string) {
        snprintf(task->text, sizeof(task->text), "%s", value->data.string);
        explicit_bzero(value->data.string, strlen(value->data.string));
        free(value->data.string);
    }
    free(value);
}

static void run_share(struct task *task)
{
    struct pmix_value value = {.type = PMIX_TYPE_STRING};
    struct pmix_info infos[2];

    if (task->self.rank == 0) {
        value.data.string = task->text;
        task->call = "PMIx_Put";
        task->status = pmix.calls.put(PMIX_SCOPE_GLOBAL, task->key, &value);
        if (task->status)
            return;
        task->call = "PMIx_Commit";
        task->status = pmix.calls.commit();
        if (task->status)
            return;
    }
    info_set(&infos[0], PMIX_KEY_COLLECT, PMIX_TYPE_BOOL, 1);
    info_set(&infos[1], PMIX_KEY_TIMEOUT, PMIX_TYPE_INT, task->timeout_s);
    task->call = "PMIx_Fence";
    task->status = pmix.calls.fence(NULL, 0, infos, 2);
    if (task->status == PMIX_OK && task->self.rank != 0)
        run_get(task);
}

static void run_finalize(struct task *task)
{
    task->call = "PMIx_Finalize";
    task->status = pmix.calls.finalize(NULL, 0);
}

/* --- joining --- */

static void *symbol(void *library, const char *name, xcclResult_t *rc)
{
    void *address = *rc ? NULL : dlsym(library, name);

    if (!address && !*rc) {
        *rc = xccl_fail(xcclSystemError, 0, "install libpmix 3.0 or newer (Debian: libpmix2)",
                        PMIX_LIBRARY " has no %s", name);
    }
    return address;
}

/* The first number of "OpenPMIx 4.2.2, ...". */
static xcclResult_t check_version(const char *text)
{
    size_t digits = text ? strcspn(text, "0123456789") : 0;
    long major = text ? strtol(text + digits, NULL, 10) : 0;

    if (major >= PMIX_OLDEST && sizeof(void *) == 8)
        return xcclSuccess;
    return xccl_fail(xcclSystemError, 0,
                     "install libpmix 3.0 or newer (Debian: libpmix2) for 64 bits",
                     PMIX_LIBRARY " is \"%.60s\", which cannot be used", text ? text : "");
}

static xcclResult_t load(void)
{
    const char *cannot = xccl_os_cannot_load();
    void *library = cannot ? NULL : dlopen(PMIX_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    struct pmix_calls calls;
    xcclResult_t rc = xcclSuccess;

    if (!library) {
        return xccl_fail(xcclSystemError, 0,
                         "install it (Debian: libpmix2), or add its folder to LD_LIBRARY_PATH, or "
                         "set XCCL_RANK, XCCL_NRANKS and XCCL_COMM_ID",
                         "a PMIx launcher started this rank, but %s", cannot ? cannot : dlerror());
    }
    /* POSIX promises that this conversion works. */
    *(void **)&calls.init = symbol(library, "PMIx_Init", &rc);
    *(void **)&calls.finalize = symbol(library, "PMIx_Finalize", &rc);
    *(void **)&calls.put = symbol(library, "PMIx_Put", &rc);
    *(void **)&calls.commit = symbol(library, "PMIx_Commit", &rc);
    *(void **)&calls.fence = symbol(library, "PMIx_Fence", &rc);
    *(void **)&calls.get = symbol(library, "PMIx_Get", &rc);
    *(void **)&calls.error_string = symbol(library, "PMIx_Error_string", &rc);
    *(void **)&calls.get_version = symbol(library, "PMIx_Get_version", &rc);
    if (!rc)
        rc = check_version(calls.get_version());
    if (rc) {
        dlclose(library);
        return rc;
    }
    /* It has threads of its own from now on, so it stays. */
    pmix.calls = calls;
    return xcclSuccess;
}

/* A launcher takes a process that goes without a word for a failed one. */
static void finalize_at_exit(void)
{
    struct xccl_limit limit = xccl_limit_ms(FINALIZE_MS, NULL);
    struct task *task = NULL;

    if (!pmix.must_finalize || pmix.pid != getpid())
        return;
    pmix.must_finalize = 0;
    pmix.stage = ENDED;
    task = task_create(run_finalize);
    if (!task)
        return;
    /* It may fail: the process is ending either way. */
    (void)task_run(&task, &limit);
    if (task)
        task_destroy(task);
}

static xcclResult_t take_place(const struct task *task)
{
    if (task->nranks < 1 || task->self.rank >= (uint32_t)task->nranks) {
        return xccl_fail(xcclRemoteError, 0, advice,
                         "the launcher's PMIx server reports rank %u of %d", task->self.rank,
                         task->nranks);
    }
    pmix.self = task->self;
    pmix.nranks = task->nranks;
    pmix.local_rank = task->local_rank;
    pmix.local_nranks = task->local_nranks;
    return xcclSuccess;
}

static xcclResult_t join_once(const struct xccl_limit *limit)
{
    struct task *task = NULL;
    xcclResult_t rc = load();

    if (rc)
        return rc;
    task = task_create(run_init);
    if (!task)
        return xcclSystemError;
    rc = task_run(&task, limit);
    if (task && !rc) {
        pmix.pid = getpid();
        pmix.must_finalize = 1;
        rc = take_place(task);
    }
    if (task)
        task_destroy(task);
    if (pmix.must_finalize && atexit(finalize_at_exit) && !rc)
        rc = xccl_fail(xcclSystemError, 0, NULL,
                       "cannot register a function to call at exit: out of memory");
    if (!rc)
        xccl_log(XCCL_LOG_DEBUG, "joined the launcher by PMIx, %s", pmix.calls.get_version());
    return rc;
}

static xcclResult_t join(const struct xccl_limit *limit)
{
    xcclResult_t rc = xcclSuccess;

    if (pmix.stage == JOINED)
        return xcclSuccess;
    if (pmix.stage != APART) {
        return xccl_fail(xcclInvalidUsage, 0, "restart the job",
                         "the PMIx connection to the launcher has %s",
                         pmix.stage == ENDED ? "ended" : "failed before");
    }
    rc = join_once(limit);
    pmix.stage = rc ? BROKEN : JOINED;
    return rc;
}

/* --- the launcher --- */

static xcclResult_t pmix_place(struct xccl_launch *launch, const struct xccl_limit *limit)
{
    xcclResult_t rc = join(limit);

    if (rc)
        return rc;
    launch->rank = (int)pmix.self.rank;
    launch->nranks = pmix.nranks;
    launch->local_rank = pmix.local_rank;
    launch->local_nranks = pmix.local_nranks;
    return xcclSuccess;
}

static xcclResult_t pmix_share(const struct xccl_launch *launch, unsigned number,
                               char text[XCCL_LAUNCH_TEXT_BYTES], const struct xccl_limit *limit)
{
    struct task *task = task_create(run_share);
    int left_ms = xccl_limit_poll_ms(limit);
    xcclResult_t rc = xcclSuccess;

    if (!task)
        return xcclSystemError;
    /* A little more than ours, so that it is this side that says what happened. */
    task->timeout_s = left_ms < 0 ? 0 : left_ms / 1000 + 5;
    snprintf(task->key, sizeof(task->key), "xccl-id-%u", number);
    if (launch->rank == 0)
        memcpy(task->text, text, sizeof(task->text));
    rc = task_run(&task, limit);
    if (task && !rc && launch->rank != 0)
        memcpy(text, task->text, sizeof(task->text));
    if (task)
        task_destroy(task);
    return rc;
}

static xcclResult_t pmix_meet(const struct xccl_launch *launch, unsigned number,
                              const struct xccl_limit *limit, xcclUniqueId *id_out)
{
    return xccl_launcher_carry(launch, number, pmix_share, limit, id_out);
}

const struct xccl_launcher xccl_launcher_pmix = {"PMIx (Open MPI's mpirun or Slurm)", pmix_present,
                                                 pmix_place, pmix_meet};

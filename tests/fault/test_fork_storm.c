/* SPDX-License-Identifier: BSD-3-Clause */
/* Forks by the hundred while other threads of the process join, call, allocate, and load a plugin.
 * No child may hang, whatever the other threads were at; what the library does not allow a child is
 * an error at once; and the parent's numbers stay right.
 *
 * XT_FORKS: how many forks a test makes. XT_FIGURES: a file that gets a line per test. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collective/world.h"

#define FORKS       300
#define AT_A_TIME   8
#define CHILD_S     5 /* within which a child has to end */
#define RANKS       2
#define COUNT       300
#define LARGE_COUNT 50000
#define NAP_NS      100000
#define PLUGIN      XT_BUILD_DIR "/lib/xccl/libxccl-net-socket.so"

/* The thread sanitizer takes what the handler does in a child, where only one thread is, for a race
 * with threads of the parent. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:^in_child$\n";
}

/* The tasks of children. */
enum task { EXEC, EXIT, EXIT_AT_ONCE, USE_COMM, USE_LIBRARY, USE_HEAP, TASKS };

static const char *const task_names[TASKS] = {
    "exec", "exit", "_exit", "calls on a communicator", "other calls", "heap and texts"};

enum { WRONG_RC = 3, WRONG_TEXT = 4, WRONG_HEAP = 5 }; /* exit codes of children */

/* State that the threads share. */
struct storm {
    _Atomic int stop;
    xcclComm_t comms[RANKS]; /* of the callers */
    xcclUniqueId id; /* of the joiners' next communicator */
    int goes_on; /* likewise: there is a next one */
    pthread_barrier_t joiners;
    /* Over dlclose() and forks whose child calls exit(): glibc (2.36) unloads code under a lock
     * that exit() takes, and lets the child have it as it is. */
    pthread_mutex_t unloading;
    _Atomic unsigned calls, joins, allocations, loads;
    _Atomic int failures; /* of any kind, in the parent */
};

static struct storm storm = {.unloading = PTHREAD_MUTEX_INITIALIZER};

static int stopped(void)
{
    return atomic_load_explicit(&storm.stop, memory_order_relaxed);
}

static void count(_Atomic unsigned *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* A check in a thread: the test fails when all have ended. */
static int fine(int is_true, const char *what)
{
    if (is_true)
        return 1;
    fprintf(stderr, "fail: %s: %s\n", what, xcclGetLastError(NULL));
    atomic_fetch_add_explicit(&storm.failures, 1, memory_order_relaxed);
    return 0;
}

/* --- threads of the parent --- */

static int reduce(xcclComm_t comm, int rank, size_t elems, int round, int32_t *buffer)
{
    for (size_t i = 0; i < elems; i++)
        buffer[i] = world_value(rank, i, round);
    if (!fine(xcclAllReduce(buffer, buffer, elems, xcclInt32, xcclSum, comm, NULL) == xcclSuccess,
              "all-reduce"))
        return 0;
    for (size_t i = 0; i < elems; i++)
        if (buffer[i] != world_value(0, i, round) + world_value(1, i, round))
            return fine(0, "a sum is wrong");
    return 1;
}

/* Runs a rank of the communicator that lasts. The last value says whether both ranks go on. */
static void *call(void *arg)
{
    int rank = (int)(intptr_t)arg, goes_on = 1, all = 0;
    int32_t *buffer = malloc(LARGE_COUNT * sizeof *buffer);

    for (int round = 0; goes_on && fine(buffer != NULL, "memory"); round++) {
        goes_on = reduce(storm.comms[rank], rank, round % 8 ? COUNT : LARGE_COUNT, round, buffer);
        all = stopped();
        goes_on = goes_on &&
                  fine(xcclAllReduce(&all, &all, 1, xcclInt32, xcclMax, storm.comms[rank], NULL) ==
                           xcclSuccess,
                       "all-reduce") &&
                  !all;
        count(&storm.calls);
    }
    free(buffer);
    return NULL;
}

/* Joins one communicator after the other. */
static void *join(void *arg)
{
    int rank = (int)(intptr_t)arg;
    int32_t buffer[COUNT];

    for (int round = 0;; round++) {
        xcclComm_t comm = NULL;

        if (rank == 0)
            storm.goes_on = !stopped() && fine(xcclGetUniqueId(&storm.id) == xcclSuccess, "id");
        pthread_barrier_wait(&storm.joiners);
        if (!storm.goes_on)
            break;
        if (fine(xcclCommInitRank(&comm, RANKS, storm.id, rank) == xcclSuccess, "join")) {
            reduce(comm, rank, COUNT, round, buffer);
            fine(xcclCommDestroy(comm) == xcclSuccess, "destroy");
        }
        count(&storm.joins);
        pthread_barrier_wait(&storm.joiners);
    }
    return NULL;
}

static void *allocate(void *arg)
{
    (void)arg;
    for (unsigned round = 1; !stopped(); round++) {
        size_t bytes = (size_t)4096 << (round % 10);
        xcclStream_t stream = NULL;
        void *memory = NULL;

        if (fine(xcclMemAlloc(&memory, bytes) == xcclSuccess, "memory")) {
            fine(((char *)memory)[bytes - 1] == 0, "memory is not zeroed");
            memset(memory, 7, bytes);
            fine(xcclMemFree(memory) == xcclSuccess, "free");
        }
        if (fine(xcclStreamCreate(&stream) == xcclSuccess, "stream"))
            fine(xcclStreamDestroy(stream) == xcclSuccess, "stream's end");
        count(&storm.allocations);
    }
    return NULL;
}

static void unload(void *plugin)
{
    pthread_mutex_lock(&storm.unloading);
    dlclose(plugin);
    pthread_mutex_unlock(&storm.unloading);
}

static void *load(void *arg)
{
    (void)arg;
    while (!stopped()) {
        void *plugin = dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL);

        if (fine(plugin && dlsym(plugin, "xcclNetPlugin_v1"), "a plugin does not load"))
            unload(plugin);
        count(&storm.loads);
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
    return NULL;
}

/* --- a child --- */

/* The call must have been refused, with the word in its text. */
static int refused(xcclResult_t rc)
{
    if (rc != xcclInvalidUsage)
        return WRONG_RC;
    return strstr(xcclGetLastError(NULL), "fork") ? 0 : WRONG_TEXT;
}

static int use_comm(void)
{
    xcclComm_t comm = storm.comms[0], part = NULL;
    int32_t value = 1;
    int number, code;
    xcclResult_t state;

    code = refused(xcclAllReduce(&value, &value, 1, xcclInt32, xcclSum, comm, NULL));
    code = code ? code : refused(xcclSend(&value, 1, xcclInt32, 1, comm, NULL));
    code = code ? code : refused(xcclBarrier(comm, NULL));
    code = code ? code : refused(xcclCommSplit(comm, 0, 0, &part, NULL));
    code = code ? code : refused(xcclCommCount(comm, &number));
    code = code ? code : refused(xcclCommGetAsyncError(comm, &state));
    code = code ? code : refused(xcclCommFinalize(comm));
    code = code ? code : refused(xcclCommAbort(comm));
    return code ? code : refused(xcclCommDestroy(comm));
}

static int use_library(void)
{
    xcclUniqueId id = storm.id;
    xcclComm_t comm = NULL, all[1];
    xcclStream_t stream = NULL;
    void *memory = NULL;
    int nranks, rank, code;

    code = refused(xcclMemAlloc(&memory, 1 << 16));
    code = code ? code : refused(xcclStreamCreate(&stream));
    code = code ? code : refused(xcclGetLaunch(&id, &nranks, &rank));
    code = code ? code : refused(xcclGetUniqueId(&id));
    code = code ? code : refused(xcclCommInitAll(all, 1, NULL));
    return code ? code : refused(xcclCommInitRank(&comm, 1, id, 0));
}

/* Uses calls that work in any child. */
static int use_heap(void)
{
    int version = 0;
    char *blocks[64], text[64];

    for (int i = 0; i < 64; i++) {
        blocks[i] = malloc((size_t)100 << (i % 12));
        if (!blocks[i])
            return WRONG_HEAP;
        blocks[i][0] = (char)i;
    }
    for (int i = 0; i < 64; i++) {
        if (blocks[i][0] != (char)i)
            return WRONG_HEAP;
        free(blocks[i]);
    }
    snprintf(text, sizeof text, "%s", xcclGetErrorString(xcclInvalidUsage));
    if (!text[0] || *xcclCommGetLastError(storm.comms[0]))
        return WRONG_TEXT;
    if (xcclGetVersion(&version) || version != XCCL_VERSION_CODE)
        return WRONG_RC;
    if (xcclGroupStart() || xcclGroupEnd())
        return WRONG_RC;
    return refused(xcclMemFree(text)); /* which is also logged */
}

static int has_work(enum task task)
{
    /* The address sanitizer's allocator is not made for forks of busy threads. */
    return !XT_SANITIZED || (task != USE_HEAP && task != EXIT);
}

_Noreturn static void be_child(enum task task)
{
    int code = 0, nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);

    dup2(nowhere, STDERR_FILENO); /* each refusal is logged */
    switch (task) {
    case EXEC:
        execl("/bin/true", "true", (char *)NULL);
        _exit(127);
    case EXIT:
        exit(0);
    case USE_COMM:
        code = use_comm();
        break;
    case USE_LIBRARY:
        code = use_library();
        break;
    case USE_HEAP:
        code = use_heap();
        break;
    default:
        break;
    }
    _exit(code);
}

/* --- the parent's own thread --- */

struct child {
    pid_t pid; /* 0: none */
    enum task task;
    double due;
};

struct tally {
    unsigned forks, hangs[TASKS], wrong[TASKS];
    double worst_ms, sum_ms;
    int shown;
};

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void fork_child(struct child *child, struct tally *tally)
{
    double begin = now_s(), ms;

    child->pid = fork();
    if (!child->pid)
        be_child(child->task);
    ms = (now_s() - begin) * 1e3;
    tally->sum_ms += ms;
    tally->worst_ms = ms > tally->worst_ms ? ms : tally->worst_ms;
}

static void start_child(struct child *child, struct tally *tally)
{
    child->task = (enum task)(tally->forks++ % TASKS);
    if (!has_work(child->task))
        child->task = EXIT_AT_ONCE;
    if (child->task == EXIT)
        pthread_mutex_lock(&storm.unloading);
    fork_child(child, tally);
    if (child->task == EXIT)
        pthread_mutex_unlock(&storm.unloading);
    XT_CHECK(child->pid > 0);
    child->due = now_s() + CHILD_S * (XT_SANITIZED ? 4 : 1);
}

static void judge(const struct child *child, int status, struct tally *tally)
{
    if (status == 0)
        return;
    tally->wrong[child->task]++;
    if (tally->shown++ < 10)
        fprintf(stderr, "fail: a child at \"%s\" ended with status %#x\n", task_names[child->task],
                (unsigned)status);
}

/* Takes the end of a child, or kills it when its time is over. */
static void look_after(struct child *child, struct tally *tally)
{
    int status = 0;

    if (waitpid(child->pid, &status, WNOHANG) == child->pid) {
        judge(child, status, tally);
        child->pid = 0;
    } else if (now_s() > child->due) {
        tally->hangs[child->task]++;
        kill(child->pid, SIGKILL);
        XT_CHECK(waitpid(child->pid, &status, 0) == child->pid);
        child->pid = 0;
    }
}

static void fork_many(unsigned forks, struct tally *tally)
{
    struct child children[AT_A_TIME] = {{0}};
    unsigned left = 1;

    while (left) {
        left = forks - tally->forks;
        for (int i = 0; i < AT_A_TIME; i++) {
            if (!children[i].pid && tally->forks < forks)
                start_child(&children[i], tally);
            else if (children[i].pid)
                look_after(&children[i], tally);
            left += children[i].pid != 0;
        }
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
}

static unsigned sum(const unsigned counts[TASKS], const char *what)
{
    unsigned all = 0;

    for (int i = 0; i < TASKS; i++) {
        if (counts[i])
            fprintf(stderr, "fail: %u children at \"%s\" %s\n", counts[i], task_names[i], what);
        all += counts[i];
    }
    return all;
}

static void note_figures(const char *name, const struct tally *tally, unsigned hangs,
                         unsigned wrong)
{
    char line[400];

    snprintf(line, sizeof line,
             "%s: %u forks, %u children hung, %u ended otherwise than they should; fork() took "
             "%.2f ms on average, %.1f ms at most; %u calls, %u joins, %u allocations, %u loads",
             name, tally->forks, hangs, wrong, tally->sum_ms / tally->forks, tally->worst_ms,
             storm.calls, storm.joins, storm.allocations, storm.loads);
    printf("%s\n", line);
    xt_figure("%s\n", line);
}

static void *const no_arg = NULL;

static const struct {
    void *(*run)(void *arg);
    int rank;
} threads[] = {{call, 0}, {call, 1}, {join, 0}, {join, 1}, {allocate, 0}, {load, 0}};

#define THREADS (sizeof threads / sizeof threads[0])

struct joiner {
    pthread_t thread;
    int rank;
    xcclResult_t rc;
};

static void *join_callers(void *arg)
{
    struct joiner *joiner = arg;

    joiner->rc = xcclCommInitRank(&storm.comms[joiner->rank], RANKS, storm.id, joiner->rank);
    return no_arg;
}

/* The communicator that lasts. */
static void make_comms(void)
{
    struct joiner joiners[RANKS];

    XT_OK(xcclGetUniqueId(&storm.id));
    for (int i = 0; i < RANKS; i++) {
        joiners[i].rank = i;
        XT_CHECK(pthread_create(&joiners[i].thread, NULL, join_callers, &joiners[i]) == 0);
    }
    for (int i = 0; i < RANKS; i++) {
        XT_CHECK(pthread_join(joiners[i].thread, NULL) == 0);
        XT_OK(joiners[i].rc);
    }
}

static void end_comms(void)
{
    XT_OK(xcclGroupStart());
    for (int i = 0; i < RANKS; i++)
        XT_OK(xcclCommDestroy(storm.comms[i]));
    XT_OK(xcclGroupEnd());
}

static void run_storm(const char *name)
{
    const char *forks = getenv("XT_FORKS"), *records = xt_tmpdir();
    struct tally tally = {0};
    pthread_t ids[THREADS];
    unsigned hangs, wrong;

    xt_setenv("XCCL_RECORD_DIR", records);
    xt_set_error_source(world_error);
    XT_CHECK(pthread_barrier_init(&storm.joiners, NULL, RANKS) == 0);
    make_comms();
    for (size_t i = 0; i < THREADS; i++)
        XT_CHECK(pthread_create(&ids[i], NULL, threads[i].run, (void *)(intptr_t)threads[i].rank) ==
                 0);
    fork_many(forks ? (unsigned)atoi(forks) : FORKS, &tally);
    atomic_store_explicit(&storm.stop, 1, memory_order_relaxed);
    for (size_t i = 0; i < THREADS; i++)
        XT_CHECK(pthread_join(ids[i], NULL) == 0);
    hangs = sum(tally.hangs, "hung");
    wrong = sum(tally.wrong, "ended otherwise than they should");
    note_figures(name, &tally, hangs, wrong);
    XT_CHECK_INT(xt_entries(records), 1); /* no child has removed the record */
    end_comms();
    pthread_barrier_destroy(&storm.joiners);
    XT_CHECK_INT(hangs, 0);
    XT_CHECK_INT(wrong, 0);
    XT_CHECK_INT(storm.failures, 0);
}

XT_TEST_DEADLINE(no_child_hangs_and_no_number_is_wrong_over_shared_memory, 60)
{
    run_storm("shared memory");
}

XT_TEST_DEADLINE(no_child_hangs_and_no_number_is_wrong_over_sockets, 60)
{
    xt_setenv("XCCL_SHM_DISABLE", "1");
    xt_setenv("XCCL_NET_PLUGIN", "socket");
    run_storm("sockets");
}

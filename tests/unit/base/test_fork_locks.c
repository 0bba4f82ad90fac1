/* SPDX-License-Identifier: BSD-3-Clause */
/* Locks of the process in a child of fork(): free whoever held them, with their data made anew,
 * also where many threads meet them first at that moment; and no handler outlives the code it is
 * in. */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fork.h"
#include "xccl_net.h"
#include "xt.h"

#define PLUGIN XT_BUILD_DIR "/lib/xccl/libxccl-net-socket.so"
#define ROUNDS 200

/* The thread sanitizer takes what the handler does in a child, where only one thread is, for a race
 * with threads of the parent; those that had ended there, nobody joins in the child. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:^in_child$\nthread:*\n";
}

static int value;

static void make_anew(void)
{
    value = 7;
}

static struct xccl_lock lock = XCCL_LOCK(make_anew), plain = XCCL_LOCK(NULL);
static _Atomic int held, done;

static void *hold(void *arg)
{
    (void)arg;
    xccl_lock_take(&lock);
    xccl_lock_take(&plain);
    value = 1; /* half of a change */
    atomic_store_explicit(&held, 1, memory_order_release);
    while (!atomic_load_explicit(&done, memory_order_acquire))
        sched_yield();
    value = 2;
    xccl_lock_give(&plain);
    xccl_lock_give(&lock);
    return NULL;
}

static int child_of(int (*run)(void))
{
    int status = -1;
    pid_t pid = fork();

    if (!pid) {
        alarm(5);
        _exit(run());
    }
    XT_CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    return status;
}

static int take_all(void)
{
    if (value != 7)
        return 1;
    if (!xccl_lock_try(&lock) || xccl_lock_try(&lock))
        return 2;
    xccl_lock_give(&lock);
    xccl_lock_take(&lock);
    xccl_lock_take(&plain);
    xccl_lock_give(&plain);
    xccl_lock_give(&lock);
    return 0;
}

XT_TEST(a_lock_that_another_thread_holds_is_free_in_a_child)
{
    pthread_t thread;

    value = 0;
    XT_CHECK(pthread_create(&thread, NULL, hold, NULL) == 0);
    while (!atomic_load_explicit(&held, memory_order_acquire))
        sched_yield();
    XT_CHECK_INT(child_of(take_all), 0);
    XT_CHECK(!xccl_lock_try(&lock)); /* in the parent it is as before */
    atomic_store_explicit(&done, 1, memory_order_release);
    XT_CHECK(pthread_join(thread, NULL) == 0);
    XT_CHECK_INT(value, 2);
    xccl_lock_take(&lock);
    xccl_lock_give(&lock);
}

static struct xccl_lock many[8] = {XCCL_LOCK(NULL), XCCL_LOCK(NULL), XCCL_LOCK(NULL),
                                   XCCL_LOCK(NULL), XCCL_LOCK(NULL), XCCL_LOCK(NULL),
                                   XCCL_LOCK(NULL), XCCL_LOCK(NULL)};

/* Takes locks that were never taken, in an order of its own. */
static void *meet(void *arg)
{
    size_t first = (size_t)(uintptr_t)arg;

    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < 8; i++) {
            struct xccl_lock *at = &many[(first + i) % 8];

            xccl_lock_take(at);
            atomic_store_explicit(&at->listed, 0, memory_order_relaxed); /* as if for the first */
            xccl_lock_give(at);
        }
    return NULL;
}

static int take_many(void)
{
    for (int i = 0; i < 8; i++) {
        xccl_lock_take(&many[i]);
        xccl_lock_give(&many[i]);
    }
    return 0;
}

XT_TEST(locks_may_be_met_while_another_thread_forks)
{
    pthread_t threads[4];

    for (uintptr_t i = 0; i < 4; i++)
        XT_CHECK(pthread_create(&threads[i], NULL, meet, (void *)(i * 2)) == 0);
    for (int i = 0; i < 20; i++)
        XT_CHECK_INT(child_of(take_many), 0);
    for (int i = 0; i < 4; i++)
        XT_CHECK(pthread_join(threads[i], NULL) == 0);
}

static int user; /* the process that has forbidden it */

static int is_refused(void)
{
    return xccl_fork_refused_by() != user;
}

static int is_allowed(void)
{
    return xccl_fork_refused_by() != 0;
}

static int grandchild_is_refused(void)
{
    return child_of(is_refused) != 0;
}

XT_TEST(children_are_refused_from_the_first_join_on_and_so_are_theirs)
{
    XT_CHECK_INT(child_of(is_allowed), 0);
    XT_CHECK(!xccl_fork_is_forbidden());
    xccl_fork_forbid();
    XT_CHECK(xccl_fork_is_forbidden());
    user = (int)getpid();
    XT_CHECK_INT(is_allowed(), 0);
    XT_CHECK_INT(child_of(is_refused), 0);
    XT_CHECK_INT(child_of(grandchild_is_refused), 0);
    XT_CHECK_INT(is_allowed(), 0);
}

static int end_well(void)
{
    return 0;
}

/* The C library drops handlers of code that is closed: here those of a plugin's copy of base/. */
XT_TEST(a_plugin_that_was_closed_leaves_no_handler)
{
    for (int i = 0; i < 20; i++) {
        xcclNetInit_v1 init = {.size = sizeof init, .nranks = 1, .commName = ""};
        void *plugin = dlopen(PLUGIN, RTLD_NOW | RTLD_LOCAL);
        const xcclNetPlugin_v1_t *table = plugin ? dlsym(plugin, "xcclNetPlugin_v1") : NULL;
        xcclNetContext_t ctx = NULL;

        XT_CHECK(table && table->init(&init, &ctx) == xcclSuccess); /* reads settings */
        XT_CHECK(table->finalize(ctx) == xcclSuccess);
        XT_CHECK_INT(child_of(end_well), 0);
        dlclose(plugin);
        XT_CHECK(!dlopen(PLUGIN, RTLD_NOW | RTLD_NOLOAD)); /* its code is gone */
        XT_CHECK_INT(child_of(end_well), 0);
    }
}

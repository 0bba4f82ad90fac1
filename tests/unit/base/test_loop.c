/* SPDX-License-Identifier: BSD-3-Clause */
/* The event loop and the service thread: what runs when, and that what was removed never runs
 * again. Sources watch eventfds. Threads: the test's drives the loop, unless a helper does. */
#include "base/loop.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/inject.h"
#include "xt.h"

__attribute__((constructor)) static void use_sources(void)
{
    xt_set_error_source(xccl_error_text);
    xt_set_alloc_source(xccl_alloc_live);
}

/* A source that counts; what else it does is up to the callback. */
struct item {
    struct xccl_source source;
    struct xccl_loop *loop;
    struct item *other;
    _Atomic int events, timers;
};

static void count_event(struct xccl_source *source, uint32_t events)
{
    struct item *item = source->owner;

    (void)events;
    atomic_fetch_add_explicit(&item->events, 1, memory_order_relaxed);
}

static void count_timer(struct xccl_source *source, uint64_t now_ns)
{
    struct item *item = source->owner;

    (void)now_ns;
    atomic_fetch_add_explicit(&item->timers, 1, memory_order_relaxed);
}

static int events_of(struct item *item)
{
    return atomic_load_explicit(&item->events, memory_order_relaxed);
}

static int timers_of(struct item *item)
{
    return atomic_load_explicit(&item->timers, memory_order_relaxed);
}

/* ready: the eventfd is readable from the start and stays so. */
static void item_init(struct item *item, struct xccl_loop *loop, int ready)
{
    *item = (struct item){.loop = loop};
    item->source.fd = eventfd(ready ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK);
    XT_CHECK(item->source.fd >= 0);
    item->source.events = EPOLLIN;
    item->source.timer_ns = XCCL_NEVER_NS;
    item->source.on_events = count_event;
    item->source.on_timer = count_timer;
    item->source.owner = item;
}

static void timer_init(struct item *item, struct xccl_loop *loop, uint64_t timer_ns)
{
    *item = (struct item){.loop = loop};
    item->source.fd = -1;
    item->source.timer_ns = timer_ns;
    item->source.on_timer = count_timer;
    item->source.owner = item;
}

static void item_fini(struct item *item)
{
    xccl_loop_remove(&item->source);
    if (item->source.fd >= 0)
        close(item->source.fd);
}

static struct xccl_loop *loop_new(void)
{
    struct xccl_loop *loop = NULL;

    XT_OK(xccl_loop_create(&loop));
    return loop;
}

XT_TEST(a_readable_descriptor_runs_its_callback)
{
    struct xccl_loop *loop = loop_new();
    struct item ready, quiet;

    item_init(&ready, loop, 1);
    item_init(&quiet, loop, 0);
    XT_OK(xccl_loop_add(loop, &ready.source));
    XT_OK(xccl_loop_add(loop, &quiet.source));
    XT_OK(xccl_loop_run_once(loop, -1));
    XT_CHECK_INT(events_of(&ready), 1);
    XT_CHECK_INT(events_of(&quiet), 0);
    item_fini(&ready);
    item_fini(&quiet);
    XT_OK(xccl_loop_run_once(loop, 0));
    XT_CHECK_INT(events_of(&ready), 1);
    xccl_loop_destroy(loop);
}

XT_TEST(events_that_are_not_asked_for_do_not_run)
{
    struct xccl_loop *loop = loop_new();
    struct item item;

    item_init(&item, loop, 1);
    item.source.events = 0;
    XT_OK(xccl_loop_set_events(&item.source, 0));
    XT_OK(xccl_loop_add(loop, &item.source));
    XT_OK(xccl_loop_run_once(loop, 0));
    XT_CHECK_INT(events_of(&item), 0);
    XT_OK(xccl_loop_set_events(&item.source, EPOLLIN | EPOLLOUT));
    XT_OK(xccl_loop_run_once(loop, -1));
    XT_CHECK_INT(events_of(&item), 1);
    item_fini(&item);
    xccl_loop_destroy(loop);
}

XT_TEST(a_timer_runs_once_when_it_is_due)
{
    struct xccl_loop *loop = loop_new();
    struct item item;

    timer_init(&item, loop, xccl_clock_ns() + 5 * XCCL_NS_PER_MS);
    XT_OK(xccl_loop_add(loop, &item.source));
    while (timers_of(&item) == 0)
        XT_OK(xccl_loop_run_once(loop, -1));
    XT_CHECK(item.source.timer_ns == XCCL_NEVER_NS);
    XT_OK(xccl_loop_run_once(loop, 0));
    XT_CHECK_INT(timers_of(&item), 1);
    xccl_loop_set_timer(&item.source, 1);
    XT_OK(xccl_loop_run_once(loop, -1));
    XT_CHECK_INT(timers_of(&item), 2);
    item_fini(&item);
    xccl_loop_destroy(loop);
}

static void rearm(struct xccl_source *source, uint64_t now_ns)
{
    count_timer(source, now_ns);
    xccl_loop_set_timer(source, 0);
}

XT_TEST(a_timer_that_is_always_due_runs_once_a_turn)
{
    struct xccl_loop *loop = loop_new();
    struct item item;

    timer_init(&item, loop, 0);
    item.source.on_timer = rearm;
    XT_OK(xccl_loop_add(loop, &item.source));
    for (int i = 0; i < 3; i++)
        XT_OK(xccl_loop_run_once(loop, -1));
    XT_CHECK_INT(timers_of(&item), 3);
    item_fini(&item);
    xccl_loop_destroy(loop);
}

XT_TEST(a_turn_ends_at_its_timeout)
{
    struct xccl_loop *loop = loop_new();
    uint64_t before_ns = xccl_clock_ns();

    XT_OK(xccl_loop_run_once(loop, 5));
    XT_CHECK(xccl_clock_ns() - before_ns >= 4 * XCCL_NS_PER_MS);
    xccl_loop_destroy(loop);
}

static void remove_both(struct xccl_source *source, uint32_t events)
{
    struct item *item = source->owner;

    count_event(source, events);
    xccl_loop_remove(&item->other->source);
    xccl_loop_remove(source);
}

XT_TEST(a_source_removed_by_another_of_the_same_batch_does_not_run)
{
    struct xccl_loop *loop = loop_new();
    struct item items[2];

    for (int i = 0; i < 2; i++) {
        item_init(&items[i], loop, 1);
        items[i].other = &items[1 - i];
        items[i].source.on_events = remove_both;
        XT_OK(xccl_loop_add(loop, &items[i].source));
    }
    XT_OK(xccl_loop_run_once(loop, -1));
    XT_CHECK_INT(events_of(&items[0]) + events_of(&items[1]), 1);
    XT_CHECK(items[0].source.loop == NULL && items[1].source.loop == NULL);
    item_fini(&items[0]);
    item_fini(&items[1]);
    xccl_loop_destroy(loop);
}

static void free_both(struct xccl_source *source, uint32_t events)
{
    struct item *item = source->owner;

    (void)events;
    item_fini(item->other);
    free(item->other);
    item_fini(item);
    free(item);
}

XT_TEST(a_callback_may_free_its_source_and_its_neighbour)
{
    struct xccl_loop *loop = loop_new();
    struct item *items[2];

    for (int i = 0; i < 2; i++) {
        items[i] = calloc(1, sizeof(struct item));
        item_init(items[i], loop, 1);
        items[i]->source.on_events = free_both;
        XT_OK(xccl_loop_add(loop, &items[i]->source));
    }
    items[0]->other = items[1];
    items[1]->other = items[0];
    XT_OK(xccl_loop_run_once(loop, -1));
    XT_OK(xccl_loop_run_once(loop, 0));
    xccl_loop_destroy(loop);
}

static void free_both_timers(struct xccl_source *source, uint64_t now_ns)
{
    (void)now_ns;
    free_both(source, 0);
}

XT_TEST(a_timer_may_free_its_source_and_the_next)
{
    struct xccl_loop *loop = loop_new();
    struct item *items[2], last;

    timer_init(&last, loop, 1);
    XT_OK(xccl_loop_add(loop, &last.source));
    for (int i = 0; i < 2; i++) {
        items[i] = calloc(1, sizeof(struct item));
        timer_init(items[i], loop, 1);
        items[i]->source.on_timer = free_both_timers;
        XT_OK(xccl_loop_add(loop, &items[i]->source));
    }
    items[0]->other = items[1];
    items[1]->other = items[0];
    XT_OK(xccl_loop_run_once(loop, -1));
    XT_CHECK_INT(timers_of(&last), 1);
    item_fini(&last);
    xccl_loop_destroy(loop);
}

static void stop_asking(struct xccl_source *source, uint32_t events)
{
    struct item *item = source->owner;

    count_event(source, events);
    XT_OK(xccl_loop_set_events(&item->other->source, 0));
}

XT_TEST(a_change_of_events_counts_within_the_batch)
{
    struct xccl_loop *loop = loop_new();
    struct item items[2];

    for (int i = 0; i < 2; i++) {
        item_init(&items[i], loop, 1);
        items[i].other = &items[1 - i];
        items[i].source.on_events = stop_asking;
        XT_OK(xccl_loop_add(loop, &items[i].source));
    }
    XT_OK(xccl_loop_run_once(loop, -1));
    XT_CHECK_INT(events_of(&items[0]) + events_of(&items[1]), 1);
    item_fini(&items[0]);
    item_fini(&items[1]);
    xccl_loop_destroy(loop);
}

static void run_again(struct xccl_source *source, uint32_t events)
{
    struct item *item = source->owner;

    count_event(source, events);
    XT_CHECK_RC(xccl_loop_run_once(item->loop, 0), xcclInternalError);
}

XT_TEST(a_callback_cannot_drive_its_own_loop)
{
    struct xccl_loop *loop = loop_new();
    struct item item;

    item_init(&item, loop, 1);
    item.source.on_events = run_again;
    XT_OK(xccl_loop_add(loop, &item.source));
    XT_OK(xccl_loop_run_once(loop, -1));
    XT_CHECK_INT(events_of(&item), 1);
    item_fini(&item);
    xccl_loop_destroy(loop);
}

XT_TEST(what_cannot_be_watched_is_an_error_and_stays_out)
{
    struct xccl_loop *loop = loop_new();
    struct item item, same;

    item_init(&item, loop, 1);
    XT_OK(xccl_loop_add(loop, &item.source));
    XT_CHECK_RC(xccl_loop_add(loop, &item.source), xcclInternalError);
    same = item;
    same.source.loop = NULL;
    XT_CHECK_RC(xccl_loop_add(loop, &same.source), xcclSystemError);
    XT_CHECK(same.source.loop == NULL);
    item_fini(&item);
    xccl_loop_destroy(loop);
}

/* ---- another thread drives ---- */

struct driver {
    struct xccl_loop *loop;
    pthread_t thread;
    _Atomic int stop, turns;
};

static void *driver_run(void *arg)
{
    struct driver *driver = arg;

    while (!atomic_load_explicit(&driver->stop, memory_order_acquire)) {
        XT_OK(xccl_loop_run_once(driver->loop, -1));
        atomic_fetch_add_explicit(&driver->turns, 1, memory_order_relaxed);
    }
    return NULL;
}

static void driver_start(struct driver *driver)
{
    *driver = (struct driver){.loop = loop_new()};
    XT_CHECK(pthread_create(&driver->thread, NULL, driver_run, driver) == 0);
}

static void driver_stop(struct driver *driver)
{
    atomic_store_explicit(&driver->stop, 1, memory_order_release);
    xccl_loop_wake(driver->loop);
    pthread_join(driver->thread, NULL);
    xccl_loop_destroy(driver->loop);
}

XT_TEST(a_sleeping_loop_sees_what_other_threads_add)
{
    struct driver driver;
    struct item item, timer;

    driver_start(&driver);
    item_init(&item, driver.loop, 1);
    XT_OK(xccl_loop_add(driver.loop, &item.source));
    while (events_of(&item) == 0)
        sched_yield();
    item_fini(&item);
    timer_init(&timer, driver.loop, xccl_clock_ns() + XCCL_NS_PER_MS);
    XT_OK(xccl_loop_add(driver.loop, &timer.source));
    while (timers_of(&timer) == 0)
        sched_yield();
    xccl_loop_set_timer(&timer.source, xccl_clock_ns() + XCCL_NS_PER_MS);
    while (timers_of(&timer) == 1)
        sched_yield();
    item_fini(&timer);
    driver_stop(&driver);
}

XT_TEST(a_callback_never_runs_after_remove_returned_in_another_thread)
{
    struct driver driver;

    driver_start(&driver);
    for (int round = 0; round < 300; round++) {
        /* Freed at once: a late callback is a use after free. */
        struct item *item = calloc(1, sizeof(*item));

        item_init(item, driver.loop, 1);
        item->source.timer_ns = 0;
        XT_OK(xccl_loop_add(driver.loop, &item->source));
        while (round % 2 && events_of(item) == 0)
            sched_yield();
        item_fini(item);
        memset(item, 0xff, sizeof(*item));
        free(item);
    }
    driver_stop(&driver);
}

XT_TEST(the_lock_keeps_callbacks_out)
{
    struct driver driver;
    struct item item;
    int before;

    driver_start(&driver);
    item_init(&item, driver.loop, 1);
    XT_OK(xccl_loop_add(driver.loop, &item.source));
    for (int round = 0; round < 50; round++) {
        xccl_loop_lock(driver.loop);
        before = events_of(&item);
        for (int i = 0; i < 20; i++)
            sched_yield();
        XT_CHECK_INT(events_of(&item), before);
        xccl_loop_unlock(driver.loop);
    }
    item_fini(&item);
    driver_stop(&driver);
}

/* ---- the service thread ---- */

struct look {
    struct item item;
    pthread_t thread;
    char name[16];
    sigset_t blocked;
};

static void look_around(struct xccl_source *source, uint64_t now_ns)
{
    struct look *look = source->owner;

    look->thread = pthread_self();
    pthread_getname_np(pthread_self(), look->name, sizeof(look->name));
    pthread_sigmask(SIG_BLOCK, NULL, &look->blocked);
    (void)now_ns;
    /* Release: what was seen above comes first. Pairs with the acquire in the test. */
    atomic_store_explicit(&look->item.timers, 1, memory_order_release);
}

XT_TEST(the_service_thread_has_a_name_and_takes_no_signals)
{
    struct xccl_loop *loop;
    struct look look;

    XT_OK(xccl_service_get(&loop));
    timer_init(&look.item, loop, 1);
    look.item.source.owner = &look;
    look.item.source.on_timer = look_around;
    XT_OK(xccl_loop_add(loop, &look.item.source));
    while (!atomic_load_explicit(&look.item.timers, memory_order_acquire))
        sched_yield();
    item_fini(&look.item);
    xccl_service_put();
    XT_CHECK_TEXT(look.name, "xccl-service");
    XT_CHECK(!pthread_equal(look.thread, pthread_self()));
    XT_CHECK(sigismember(&look.blocked, SIGINT) && sigismember(&look.blocked, SIGCHLD));
    XT_CHECK(pthread_sigmask(SIG_BLOCK, NULL, &look.blocked) == 0);
    XT_CHECK(!sigismember(&look.blocked, SIGINT));
}

XT_TEST(all_users_share_one_service_and_the_last_ends_it)
{
    struct xccl_loop *first, *second;

    for (int round = 0; round < 20; round++) {
        XT_OK(xccl_service_get(&first));
        XT_OK(xccl_service_get(&second));
        XT_CHECK(first == second);
        xccl_service_put();
        xccl_loop_wake(first);
        xccl_service_put();
    }
    xccl_service_put(); /* one too many does nothing */
}

static void get_and_put(int rank, int nranks, void *arg)
{
    struct xccl_loop *loop;
    struct item timer;

    (void)rank;
    (void)nranks;
    (void)arg;
    for (int round = 0; round < 50; round++) {
        XT_OK(xccl_service_get(&loop));
        timer_init(&timer, loop, 1);
        XT_OK(xccl_loop_add(loop, &timer.source));
        while (timers_of(&timer) == 0)
            sched_yield();
        item_fini(&timer);
        xccl_service_put();
    }
}

XT_TEST(the_service_comes_and_goes_under_many_threads)
{
    xt_threads_run(4, get_and_put, NULL);
}

static void leave_service(struct xccl_source *source, uint64_t now_ns)
{
    struct item *item = source->owner;

    (void)now_ns;
    xccl_loop_remove(source);
    if (item->other)
        xccl_service_put();
    else
        xccl_service_put_later();
    /* Release: pairs with the acquire in the test. */
    atomic_store_explicit(&item->timers, 1, memory_order_release);
}

XT_TEST(a_callback_may_drop_the_last_reference)
{
    struct xccl_loop *loop;
    struct item timer;

    for (int round = 0; round < 20; round++) {
        XT_OK(xccl_service_get(&loop));
        timer_init(&timer, loop, 1);
        timer.other = round % 2 ? &timer : NULL; /* odd rounds: by a plain put */
        timer.source.on_timer = leave_service;
        XT_OK(xccl_loop_add(loop, &timer.source));
        while (!atomic_load_explicit(&timer.timers, memory_order_acquire))
            sched_yield();
    }
}

XT_TEST(each_failure_in_turn_leaks_nothing_while_the_service_starts)
{
    struct xccl_loop *loop = NULL;
    uint64_t k;

    for (k = 1;; k++) {
        xcclResult_t rc;

        xccl_inject_arm(k);
        rc = xccl_service_get(&loop);
        if (rc == xcclSuccess)
            break;
        XT_CHECK_RC(rc, xcclSystemError);
        XT_CHECK(loop == NULL);
    }
    xccl_inject_arm(0);
    XT_CHECK(k >= 6); /* two allocations, epoll, eventfd, thread */
    xccl_service_put();
}

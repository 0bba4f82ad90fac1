/* SPDX-License-Identifier: BSD-3-Clause */
/* Virtual time, and base/loop.h over it: every host's service thread in one loop.
 *
 * A source that is ready gets a turn some time later, as its host's thread comes round to it; a
 * turn is level-triggered, so one that stays ready gets the next turn too. A timer is up to a
 * millisecond late, as epoll's are. Locks are nothing here: there is one thread, and it changes
 * hosts between events only. Events are kept in a heap, in order of time, then of a random number.
 *
 * Thread: the only one. */
#include "sim_loop.h"

#include <stdlib.h>
#include <sys/epoll.h>

#include "base/alloc.h"
#include "sim_net.h"

#define START_NS    XCCL_NS_PER_S /* of virtual time; nothing in the library may need it to be 0 */
#define TIMER_LATE  XCCL_NS_PER_MS
#define ALWAYS_TOLD (EPOLLERR | EPOLLHUP)

struct event {
    uint64_t at_ns, tie;
    sim_event_fn *run;
    void *arg;
    uint64_t detail;
};

/* A source in the loop. It outlives the source while an event points to it. */
struct watch {
    struct xccl_source *source; /* NULL: removed */
    int host;
    uint32_t idx; /* in watches, and in source->heap_idx */
    int events_due; /* that point here */
    int turn_due;
    uint64_t timer_due_ns; /* the earliest timer event; XCCL_NEVER_NS: none */
};

struct xccl_loop {
    int sources;
};

static struct {
    _Atomic uint64_t now_ns;
    uint64_t seed, trace, steps, turn_max_ns;
    struct event *heap; /* heap[0] comes next */
    size_t count, room;
    struct watch **watches; /* by idx; 0 is nobody's */
    uint32_t watch_count, watch_room;
    uint32_t *free_idx;
    uint32_t free_count;
    enum sim_health *health;
    int hosts, host;
    int in_callback;
    struct xccl_loop *service;
    int service_references;
} sim;

/* --- chance --- */

static uint64_t mix(uint64_t value)
{
    value ^= value >> 30;
    value *= 0xbf58476d1ce4e5b9ull;
    value ^= value >> 27;
    value *= 0x94d049bb133111ebull;
    return value ^ value >> 31;
}

static uint64_t draw(void)
{
    sim.seed += 0x9e3779b97f4a7c15ull;
    return mix(sim.seed);
}

uint64_t sim_between(uint64_t low, uint64_t high)
{
    uint64_t span = high - low + 1;

    return span ? low + draw() % span : draw();
}

int sim_chance(uint32_t per_mille)
{
    return per_mille && draw() % 1000 < per_mille;
}

/* --- events --- */

static int earlier(const struct event *a, const struct event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->tie < b->tie;
}

uint64_t sim_now_ns(void)
{
    /* Relaxed: one thread. */
    return atomic_load_explicit(&sim.now_ns, memory_order_relaxed);
}

void sim_after(uint64_t delay_ns, sim_event_fn *run, void *arg, uint64_t detail)
{
    struct event event = {sim_now_ns() + delay_ns, draw(), run, arg, detail};
    size_t at = sim.count++;

    if (sim.count > sim.room) {
        sim.room = sim.room ? sim.room * 2 : 1024;
        sim.heap = realloc(sim.heap, sim.room * sizeof(*sim.heap));
        if (!sim.heap)
            abort();
    }
    while (at > 0 && earlier(&event, &sim.heap[(at - 1) / 2])) {
        sim.heap[at] = sim.heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    sim.heap[at] = event;
}

static struct event take_first(void)
{
    struct event first = sim.heap[0], last = sim.heap[--sim.count];
    size_t at = 0;

    for (;;) {
        size_t child = at * 2 + 1;

        if (child + 1 < sim.count && earlier(&sim.heap[child + 1], &sim.heap[child]))
            child++;
        if (child >= sim.count || earlier(&last, &sim.heap[child]))
            break;
        sim.heap[at] = sim.heap[child];
        at = child;
    }
    sim.heap[at] = last;
    return first;
}

int sim_step(void)
{
    struct event event;

    if (sim.count == 0)
        return 0;
    event = take_first();
    sim.steps++;
    sim.trace = mix(sim.trace ^ event.at_ns ^ event.detail << 32);
    /* Relaxed: one thread. */
    atomic_store_explicit(&sim.now_ns, event.at_ns, memory_order_relaxed);
    event.run(event.arg, event.detail);
    return 1;
}

uint64_t sim_step_count(void)
{
    return sim.steps;
}

uint64_t sim_trace(void)
{
    return sim.trace;
}

/* --- hosts --- */

int sim_host(void)
{
    return sim.host;
}

int sim_host_enter(int host)
{
    int before = sim.host;

    if (host < 0 || host >= sim.hosts)
        sim_fail("there is no host %d", host);
    sim.host = host;
    return before;
}

enum sim_health sim_host_health(int host)
{
    return sim.health[host];
}

/* --- sources --- */

static void watch_drop(struct watch *watch)
{
    if (watch->source || watch->events_due > 0)
        return;
    sim.watches[watch->idx] = NULL;
    sim.free_idx[sim.free_count++] = watch->idx;
    free(watch);
}

static uint32_t watch_ready(const struct watch *watch)
{
    const struct xccl_source *source = watch->source;

    if (!source || source->fd < 0 || sim.health[watch->host] != SIM_WELL)
        return 0;
    return sim_socket_events(source->fd) & (source->events | ALWAYS_TOLD);
}

static void watch_turn(void *arg, uint64_t detail);

static void watch_poke(struct watch *watch)
{
    if (watch->turn_due || !watch_ready(watch))
        return;
    watch->turn_due = 1;
    watch->events_due++;
    sim_after(sim_between(1, sim.turn_max_ns), watch_turn, watch, watch->idx);
}

static void watch_turn(void *arg, uint64_t detail)
{
    struct watch *watch = arg;
    uint32_t ready = watch_ready(watch);

    (void)detail;
    watch->turn_due = 0;
    if (ready && watch->source->on_events) {
        int before = sim_host_enter(watch->host);

        sim.in_callback++;
        watch->source->on_events(watch->source, ready);
        sim.in_callback--;
        sim_host_enter(before);
    }
    watch->events_due--;
    watch_poke(watch);
    watch_drop(watch);
}

static void watch_timer(void *arg, uint64_t detail);

/* One event a watch is enough: it looks anew when it comes. */
static void watch_arm(struct watch *watch)
{
    const struct xccl_source *source = watch->source;
    uint64_t now_ns = sim_now_ns(), due_ns;

    if (!source->on_timer || source->timer_ns >= watch->timer_due_ns ||
        sim.health[watch->host] != SIM_WELL)
        return;
    due_ns = source->timer_ns > now_ns ? source->timer_ns : now_ns;
    watch->timer_due_ns = due_ns;
    watch->events_due++;
    sim_after(due_ns - now_ns + sim_between(1, TIMER_LATE), watch_timer, watch, due_ns);
}

static void watch_timer(void *arg, uint64_t detail)
{
    struct watch *watch = arg;
    struct xccl_source *source = watch->source;
    uint64_t now_ns = sim_now_ns();

    /* A timer that was set to an earlier time has two events; the later one does nothing. */
    if (watch->timer_due_ns == detail)
        watch->timer_due_ns = XCCL_NEVER_NS;
    if (source && sim.health[watch->host] == SIM_WELL && source->on_timer &&
        source->timer_ns <= now_ns) {
        int before = sim_host_enter(watch->host);

        source->timer_ns = XCCL_NEVER_NS;
        sim.in_callback++;
        source->on_timer(source, now_ns);
        sim.in_callback--;
        sim_host_enter(before);
    }
    watch->events_due--;
    if (watch->source)
        watch_arm(watch);
    watch_drop(watch);
}

void sim_source_poke(uint32_t idx)
{
    if (idx)
        watch_poke(sim.watches[idx]);
}

void sim_host_set_health(int host, enum sim_health health)
{
    sim.health[host] = health;
    if (health != SIM_WELL)
        return;
    for (uint32_t idx = 1; idx < sim.watch_count; idx++) {
        struct watch *watch = sim.watches[idx];

        if (watch && watch->source && watch->host == host) {
            watch_poke(watch);
            watch_arm(watch);
        }
    }
}

int sim_sources(int host)
{
    int count = 0;

    for (uint32_t idx = 1; idx < sim.watch_count; idx++) {
        const struct watch *watch = sim.watches[idx];

        count += watch && watch->source && (host < 0 || watch->host == host);
    }
    return count;
}

/* --- base/loop.h --- */

xcclResult_t xccl_loop_create(struct xccl_loop **loop_out)
{
    struct xccl_loop *loop = xccl_calloc(1, sizeof(*loop));

    if (!loop)
        return xcclSystemError;
    *loop_out = loop;
    return xcclSuccess;
}

void xccl_loop_destroy(struct xccl_loop *loop)
{
    if (loop && loop->sources)
        sim_fail("a loop was destroyed with %d sources in it", loop->sources);
    xccl_free(loop);
}

static uint32_t watch_place(void)
{
    if (sim.free_count)
        return sim.free_idx[--sim.free_count];
    if (sim.watch_count >= sim.watch_room) {
        sim.watch_room = sim.watch_room ? sim.watch_room * 2 : 1024;
        sim.watches = realloc(sim.watches, sim.watch_room * sizeof(struct watch *));
        sim.free_idx = realloc(sim.free_idx, sim.watch_room * sizeof(*sim.free_idx));
        if (!sim.watches || !sim.free_idx)
            abort();
    }
    return sim.watch_count++;
}

xcclResult_t xccl_loop_add(struct xccl_loop *loop, struct xccl_source *source)
{
    struct watch *watch;

    if (source->loop)
        sim_fail("descriptor %d was added to a loop twice", source->fd);
    watch = calloc(1, sizeof(*watch));
    if (!watch)
        abort();
    watch->source = source;
    watch->host = sim.host;
    watch->timer_due_ns = XCCL_NEVER_NS;
    watch->idx = watch_place();
    sim.watches[watch->idx] = watch;
    source->loop = loop;
    source->heap_idx = watch->idx;
    loop->sources++;
    if (source->fd >= 0)
        sim_socket_watch(source->fd, watch->idx);
    watch_poke(watch);
    watch_arm(watch);
    return xcclSuccess;
}

xcclResult_t xccl_loop_set_events(struct xccl_source *source, uint32_t events)
{
    source->events = events;
    if (source->loop)
        watch_poke(sim.watches[source->heap_idx]);
    return xcclSuccess;
}

void xccl_loop_set_timer(struct xccl_source *source, uint64_t timer_ns)
{
    source->timer_ns = timer_ns;
    if (source->loop)
        watch_arm(sim.watches[source->heap_idx]);
}

void xccl_loop_remove(struct xccl_source *source)
{
    struct watch *watch;

    if (!source->loop)
        return;
    watch = sim.watches[source->heap_idx];
    if (watch->source != source)
        sim_fail("a source was moved while it was in a loop");
    /* As epoll: a descriptor that was closed before is no harm. */
    if (source->fd >= 0)
        sim_socket_watch(source->fd, 0);
    source->loop->sources--;
    source->loop = NULL;
    source->heap_idx = 0;
    watch->source = NULL;
    watch_drop(watch);
}

xcclResult_t xccl_loop_run_once(struct xccl_loop *loop, int timeout_ms)
{
    (void)loop;
    (void)timeout_ms;
    sim_fail("the library drove a loop by itself; all must move in the service thread");
}

void xccl_loop_wake(struct xccl_loop *loop)
{
    (void)loop;
}

void xccl_loop_lock(struct xccl_loop *loop)
{
    (void)loop;
}

void xccl_loop_unlock(struct xccl_loop *loop)
{
    (void)loop;
}

/* --- the service --- */

xcclResult_t xccl_service_get(struct xccl_loop **loop_out)
{
    if (sim.service_references == 0) {
        xcclResult_t rc = xccl_loop_create(&sim.service);

        if (rc)
            return rc;
    }
    sim.service_references++;
    *loop_out = sim.service;
    return xcclSuccess;
}

static void service_release(void)
{
    if (sim.service_references == 0)
        sim_fail("the service was put more often than it was got");
    if (--sim.service_references == 0) {
        xccl_loop_destroy(sim.service);
        sim.service = NULL;
    }
}

void xccl_service_put(void)
{
    if (sim.in_callback)
        sim_fail("a callback put the service; the thread would join itself");
    service_release();
}

void xccl_service_put_later(void)
{
    service_release();
}

/* --- begin and end --- */

void sim_loop_reset(uint64_t seed, int hosts, uint64_t turn_max_ns)
{
    sim.seed = seed;
    sim.trace = sim.steps = 0;
    sim.turn_max_ns = turn_max_ns;
    sim.hosts = hosts;
    sim.host = 0;
    sim.watch_count = 1;
    sim.free_count = 0;
    sim.health = calloc((size_t)hosts, sizeof(*sim.health));
    if (!sim.health)
        abort();
    /* Relaxed: one thread. */
    atomic_store_explicit(&sim.now_ns, START_NS, memory_order_relaxed);
    xccl_clock_set_virtual(&sim.now_ns);
}

void sim_loop_fini(void)
{
    if (sim.service_references)
        sim_fail("%d references to the service are left", sim.service_references);
    for (uint32_t idx = 1; idx < sim.watch_count; idx++)
        free(sim.watches[idx]);
    free(sim.watches);
    free(sim.free_idx);
    free(sim.heap);
    free(sim.health);
    sim.watches = NULL;
    sim.free_idx = NULL;
    sim.heap = NULL;
    sim.health = NULL;
    sim.watch_room = sim.watch_count = 0;
    sim.count = sim.room = 0;
    xccl_clock_set_virtual(NULL);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* Fibers over ucontext, base/bell.h, what is asked of the system, and the worlds.
 *
 *   ready --its event comes--> running --xccl_bell_wait, sim_sleep--> waiting --ring, time--> ready
 *                              running --returns--> ended
 *
 * A rank that is hurt rests where it waits. At the end of the world its host is well again, but as
 * a process that has lost all connections, so that its code runs out and gives back what it has.
 *
 * Thread: the only one. */
#include "sim_rank.h"

#include <poll.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bell.h"
#include "base/log.h"
#include "base/os.h"
#include "xt.h"

#define STACK_BYTES   (512u << 10)
#define GUARD_BYTES   (64u << 10)
#define BELL_BUCKETS  1024
#define POLL_STEP_NS  (200 * 1000ull)
#define LINES_KEPT    30
#define LINE_BYTES    400
#define STEPS_PER_RUN 400000000ull /* more than any world needs: somebody goes round in circles */

enum fiber_state { FIBER_NEW, FIBER_READY, FIBER_RUNNING, FIBER_WAITING, FIBER_ENDED };

struct sim_fiber {
    struct sim_rank rank;
    enum fiber_state state;
    ucontext_t context;
    void *stack;
    uint64_t wait_no; /* events of waits before are stale */
    const struct xccl_bell *bell; /* NULL: only time */
    struct sim_fiber *next; /* in the bucket of its bell */
    char error_text[XCCL_ERROR_TEXT_BYTES];
};

static struct {
    struct sim_world_settings settings;
    struct sim_fiber *fibers;
    int count;
    struct sim_fiber *running;
    ucontext_t main;
    char main_error_text[XCCL_ERROR_TEXT_BYTES];
    struct sim_fiber *buckets[BELL_BUCKETS];
    uint64_t live_blocks; /* before the world */
    char note[1024];
    uint64_t seed;
    const char *name;
    int tell_all;
    char lines[LINES_KEPT][LINE_BYTES];
    unsigned line_count;
} world;

/* --- what a failure says --- */

static void keep_line(enum xccl_log_level level, const char *line)
{
    char *kept = world.lines[world.line_count++ % LINES_KEPT];

    snprintf(kept, LINE_BYTES, "%12.6f ms host %d %d: %s",
             (double)(sim_now_ns() - XCCL_NS_PER_S) / 1e6, sim_host(), (int)level, line);
    if (world.tell_all)
        fprintf(stderr, "%s\n", kept);
}

static void tell_lines(void)
{
    unsigned first = world.line_count > LINES_KEPT ? world.line_count - LINES_KEPT : 0;

    for (unsigned i = first; i < world.line_count && !world.tell_all; i++)
        fprintf(stderr, "%s\n", world.lines[i % LINES_KEPT]);
}

void sim_fail(const char *fmt, ...)
{
    char text[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    tell_lines();
    world.fibers = NULL; /* the simulation is over */
    fprintf(stderr, "world %#llx, %s: %s\n  again: XT_SIM_WORLD=%#llx test_sim_bootstrap %s\n",
            (unsigned long long)world.seed, world.name, world.note, (unsigned long long)world.seed,
            world.name);
    xt_fail_at(__FILE__, __LINE__, "%.600s; again: XT_SIM_WORLD=%#llx test_sim_bootstrap %s", text,
               (unsigned long long)world.seed, world.name);
}

void sim_note(const char *fmt, ...)
{
    size_t used = strlen(world.note);
    va_list args;

    va_start(args, fmt);
    vsnprintf(world.note + used, sizeof(world.note) - used, fmt, args);
    va_end(args);
}

/* --- what is asked of the system --- */

static struct {
    uint64_t state;
} bytes_from;

static uint32_t seeded_word(void)
{
    return (uint32_t)(xt_random(&bytes_from.state) >> 16);
}

static void seeded_bytes(void *const out, const size_t bytes)
{
    uint8_t *at = out;

    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        uint64_t word = xt_random(&bytes_from.state);

        memcpy(at + i, &word, bytes - i < sizeof(word) ? bytes - i : sizeof(word));
    }
}

static const char *seeded_name(void)
{
    return "sim";
}

static randombytes_implementation seeded = {
    .implementation_name = seeded_name,
    .random = seeded_word,
    .buf = seeded_bytes,
};

/* The linker puts these in the place of what base/os.h and base/netaddr.h have. */
xcclResult_t __wrap_xccl_os_random(void *bytes_out, size_t bytes);
xcclResult_t __wrap_xccl_os_random(void *bytes_out, size_t bytes)
{
    seeded_bytes(bytes_out, bytes);
    return xcclSuccess;
}

/* Every host is a process of its own; the harness is not in the simulation. */
pid_t __real_getpid(void);
pid_t __wrap_getpid(void);
pid_t __wrap_getpid(void)
{
    return world.fibers ? 1000 + sim_host() : __real_getpid();
}

/* Descriptors that each host may have. */
uint64_t sim_descriptor_limit = 1 << 21;

int __real_getrlimit(__rlimit_resource_t resource, struct rlimit *limit_out);
/* A sanitizer's run-time calls it before what it needs to check memory accesses is there. */
#define UNCHECKED __attribute__((no_sanitize("address", "thread")))
UNCHECKED int __wrap_getrlimit(__rlimit_resource_t resource, struct rlimit *limit_out);
int __wrap_getrlimit(__rlimit_resource_t resource, struct rlimit *limit_out)
{
    if (!world.fibers)
        return __real_getrlimit(resource, limit_out);
    limit_out->rlim_cur = limit_out->rlim_max = sim_descriptor_limit;
    return 0;
}

xcclResult_t __wrap_xccl_os_process_id(uint64_t *id_out);
xcclResult_t __wrap_xccl_os_process_id(uint64_t *id_out)
{
    *id_out = 1 + (uint64_t)sim_host();
    return xcclSuccess;
}

/* No host sees another one's processes. */
int __wrap_xccl_os_process_runs(uint32_t pid);
int __wrap_xccl_os_process_runs(uint32_t pid)
{
    (void)pid;
    return 0;
}

const char *__wrap_xccl_os_hostname(void);
const char *__wrap_xccl_os_hostname(void)
{
    static char names[8][24];
    static unsigned turn;
    char *name = names[turn++ % 8];

    snprintf(name, sizeof(names[0]), "host%d", sim_host());
    return name;
}

xcclResult_t __wrap_xccl_netif_choose(struct xccl_netif *ifs_out, int max, int *count_out);
xcclResult_t __wrap_xccl_netif_choose(struct xccl_netif *ifs_out, int max, int *count_out)
{
    if (max < 1)
        return xccl_fail(xcclInvalidArgument, 0, NULL, "no room for an interface");
    memset(ifs_out, 0, sizeof(*ifs_out));
    snprintf(ifs_out->name, sizeof(ifs_out->name), "sim0");
    sim_host_addr(sim_host(), &ifs_out->addr);
    *count_out = 1;
    return xcclSuccess;
}

xcclResult_t __wrap_xccl_netif_choose_near(const struct xccl_addr *near, struct xccl_netif *ifs_out,
                                           int max, int *count_out);
xcclResult_t __wrap_xccl_netif_choose_near(const struct xccl_addr *near, struct xccl_netif *ifs_out,
                                           int max, int *count_out)
{
    (void)near;
    return __wrap_xccl_netif_choose(ifs_out, max, count_out);
}

/* --- fibers --- */

static void swap_error_text(char *save, const char *set)
{
    snprintf(save, XCCL_ERROR_TEXT_BYTES, "%s", xccl_error_text());
    xccl_error_set_text(set);
}

static void fiber_main(void)
{
    struct sim_fiber *self = world.running;

    world.settings.run(&self->rank);
    self->rank.ended = 1;
    self->rank.ended_ns = sim_now_ns();
    self->rank.doing = "nothing any more";
    self->state = FIBER_ENDED;
    swapcontext(&self->context, &world.main);
}

static void fiber_make(struct sim_fiber *fiber)
{
    char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (stack == MAP_FAILED)
        abort();
    mprotect(stack, GUARD_BYTES, PROT_NONE);
    fiber->stack = stack;
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = stack + GUARD_BYTES;
    fiber->context.uc_stack.ss_size = STACK_BYTES - GUARD_BYTES;
    fiber->context.uc_link = NULL;
    makecontext(&fiber->context, fiber_main, 0);
}

/* Its event came: goes on until it waits or ends. */
static void fiber_resume(void *arg, uint64_t wait_no)
{
    struct sim_fiber *fiber = arg;
    int before;

    if (fiber->wait_no != wait_no || fiber->state == FIBER_ENDED ||
        sim_host_health(fiber->rank.rank) != SIM_WELL)
        return;
    if (!fiber->stack)
        fiber_make(fiber);
    fiber->wait_no++;
    fiber->state = FIBER_RUNNING;
    before = sim_host_enter(fiber->rank.rank);
    world.running = fiber;
    swap_error_text(world.main_error_text, fiber->error_text);
    swapcontext(&world.main, &fiber->context);
    swap_error_text(fiber->error_text, world.main_error_text);
    world.running = NULL;
    sim_host_enter(before);
    if (fiber->state == FIBER_ENDED) {
        munmap(fiber->stack, STACK_BYTES);
        fiber->stack = NULL;
    }
}

static struct sim_fiber **bucket_of(const struct xccl_bell *bell)
{
    return &world.buckets[((uintptr_t)bell >> 4) % BELL_BUCKETS];
}

static void fiber_wait(const struct xccl_bell *bell, uint64_t ns)
{
    struct sim_fiber *self = world.running;

    self->state = FIBER_WAITING;
    self->bell = bell;
    if (bell) {
        self->next = *bucket_of(bell);
        *bucket_of(bell) = self;
    }
    if (ns != XCCL_NEVER_NS)
        sim_after(ns, fiber_resume, self, self->wait_no);
    swapcontext(&self->context, &world.main);
    if (bell) {
        struct sim_fiber **at = bucket_of(bell);

        while (*at != self)
            at = &(*at)->next;
        *at = self->next;
    }
    self->bell = NULL;
}

void sim_sleep(uint64_t ns)
{
    fiber_wait(NULL, ns);
}

void xccl_bell_ring(struct xccl_bell *bell)
{
    /* Relaxed: one thread. */
    atomic_fetch_add_explicit(&bell->rings, 1, memory_order_relaxed);
    for (struct sim_fiber *at = *bucket_of(bell); at; at = at->next) {
        if (at->bell == bell)
            sim_after(sim_between(1, world.settings.turn_max_ns), fiber_resume, at, at->wait_no);
    }
}

uint32_t xccl_bell_listen(struct xccl_bell *bell)
{
    /* Relaxed: one thread. */
    return atomic_load_explicit(&bell->rings, memory_order_relaxed);
}

void xccl_bell_wait(struct xccl_bell *bell, uint32_t heard, const struct xccl_limit *limit)
{
    int ms = xccl_limit_poll_ms(limit);

    if (!world.running)
        sim_fail("the service thread of host %d waited for a bell", sim_host());
    /* Relaxed: one thread. */
    if (ms == 0 || atomic_load_explicit(&bell->rings, memory_order_relaxed) != heard)
        return;
    fiber_wait(bell, ms < 0 ? XCCL_NEVER_NS : (uint64_t)ms * XCCL_NS_PER_MS);
}

/* What a user's thread may do for a moment: poll, on descriptors of the simulation. */
int __real_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    uint64_t until_ns = timeout_ms < 0 ? XCCL_NEVER_NS
                                       : sim_now_ns() + (uint64_t)timeout_ms * XCCL_NS_PER_MS;

    if (!world.fibers || (count > 0 && fds[0].fd < SIM_FIRST_FD))
        return __real_poll(fds, count, timeout_ms);
    if (!world.running && timeout_ms != 0)
        sim_fail("the service thread of host %d waited in poll", sim_host());
    for (;;) {
        int ready = 0;

        for (nfds_t i = 0; i < count; i++) {
            uint32_t wanted = (uint32_t)(unsigned short)fds[i].events | POLLERR | POLLHUP;

            fds[i].revents = (short)(sim_socket_events(fds[i].fd) & wanted);
            ready += fds[i].revents != 0;
        }
        if (ready || timeout_ms == 0 || sim_now_ns() >= until_ns)
            return ready;
        sim_sleep(POLL_STEP_NS);
    }
}

/* --- ranks --- */

struct sim_rank *sim_world_rank(int rank)
{
    return &world.fibers[rank].rank;
}

void sim_rank_start(int rank, uint64_t after_ns)
{
    struct sim_fiber *fiber = &world.fibers[rank];

    fiber->rank.started = 1;
    fiber->state = FIBER_READY;
    sim_after(after_ns, fiber_resume, fiber, fiber->wait_no);
}

void sim_world_start_all(void)
{
    for (int rank = 0; rank < world.settings.nranks; rank++)
        sim_rank_start(rank, sim_between(1, world.settings.start_max_ns));
}

xcclResult_t sim_rank_keep(struct sim_rank *self, xcclResult_t rc)
{
    if (rc && !self->rc) {
        self->rc = rc;
        snprintf(self->text, sizeof(self->text), "%s", xccl_error_text());
    }
    return rc;
}

void sim_rank_hurt(int rank, enum sim_health health)
{
    sim_host_set_health(rank, health);
    if (health == SIM_CRASHED)
        sim_net_crash(rank);
}

/* --- worlds --- */

struct sim_world_settings sim_world_draw(uint64_t seed, int nranks)
{
    uint64_t state = seed;
    unsigned mood = (unsigned)(xt_random(&state) % 4);
    static const uint64_t longest_us[] = {100, 1000, 20000, 200000};
    struct sim_world_settings drawn = {
        .nranks = nranks,
        .net = {.delay_min_ns = 20000,
                .delay_max_ns = longest_us[mood] * 1000,
                .late_per_mille = mood >= 2 ? (uint32_t)(xt_random(&state) % 50) : 0,
                .late_ns = 400 * XCCL_NS_PER_MS,
                .split_per_mille = (uint32_t)(xt_random(&state) % 700),
                .slow_per_mille = mood == 3 ? (uint32_t)(xt_random(&state) % 100) : 0,
                .window_bytes = (size_t)32768 << xt_random(&state) % 5},
        .turn_max_ns = (uint64_t)1000 << xt_random(&state) % 12,
        .start_max_ns = XCCL_NS_PER_MS << xt_random(&state) % 12,
    };

    return drawn;
}

void sim_world_begin(const struct sim_world_settings *settings)
{
    int hosts = settings->nranks + settings->extras;
    const struct sim_net_settings *net = &settings->net;

    world.live_blocks = xccl_alloc_live();
    world.settings = *settings;
    world.count = hosts;
    world.line_count = 0;
    world.main_error_text[0] = '\0';
    world.fibers = calloc((size_t)hosts, sizeof(*world.fibers));
    if (!world.fibers)
        abort();
    sim_loop_reset(world.seed, hosts, settings->turn_max_ns);
    sim_net_reset(net, hosts);
    for (int i = 0; i < hosts; i++) {
        world.fibers[i].rank.rank = i;
        world.fibers[i].rank.doing = "has not begun";
        world.fibers[i].rank.fiber = &world.fibers[i];
    }
    sim_note("%d ranks, delay to %llu us, late %u/1000, split %u/1000, slow %u/1000, window %zu, "
             "turn to %llu us, start to %llu ms; ",
             settings->nranks, (unsigned long long)net->delay_max_ns / 1000, net->late_per_mille,
             net->split_per_mille, net->slow_per_mille, net->window_bytes,
             (unsigned long long)settings->turn_max_ns / 1000,
             (unsigned long long)(settings->start_max_ns / XCCL_NS_PER_MS));
}

static int still_runs(const struct sim_fiber *fiber)
{
    return fiber->rank.started && !fiber->rank.ended &&
           sim_host_health(fiber->rank.rank) == SIM_WELL;
}

static void fail_hang(void)
{
    char who[600] = "";
    size_t used = 0;
    int count = 0;

    for (int i = 0; i < world.count; i++) {
        const struct sim_fiber *fiber = &world.fibers[i];

        if (!still_runs(fiber))
            continue;
        if (count++ < 8)
            used += (size_t)snprintf(who + used, sizeof(who) - used, "; rank %d: %.30s", i,
                                     fiber->rank.doing);
    }
    sim_fail("%d ranks hang at %.3f s%s", count, (double)(sim_now_ns() - XCCL_NS_PER_S) / 1e9, who);
}

static int anyone_runs(void)
{
    for (int i = 0; i < world.count; i++) {
        if (still_runs(&world.fibers[i]))
            return 1;
    }
    return 0;
}

void sim_world_run(uint64_t until_ns)
{
    uint64_t steps = sim_step_count() + STEPS_PER_RUN;
    int first = 0;

    for (;;) {
        /* From the last one known to run on, or large worlds would spend their time in here. */
        while (first < world.count && !still_runs(&world.fibers[first]))
            first++;
        if (first == world.count) {
            if (!anyone_runs())
                return;
            first = 0;
        }
        if (sim_now_ns() > until_ns || !sim_step())
            fail_hang();
        if (sim_step_count() > steps)
            sim_fail("%llu steps and no end: something goes round in circles", STEPS_PER_RUN);
    }
}

static void passed(void *arg, uint64_t detail)
{
    (void)detail;
    *(int *)arg = 1;
}

void sim_world_pass(uint64_t ns)
{
    int over = 0;

    sim_after(ns, passed, &over, 0);
    while (!over && sim_step())
        continue;
}

static void revive(struct sim_fiber *fiber)
{
    int rank = fiber->rank.rank;

    if (sim_host_health(rank) == SIM_WELL)
        return;
    sim_net_crash(rank);
    sim_host_set_health(rank, SIM_WELL);
    if (!fiber->stack)
        fiber->rank.ended = 1; /* it died before it began */
    if (fiber->rank.started && !fiber->rank.ended)
        sim_after(1, fiber_resume, fiber, fiber->wait_no);
}

void sim_world_end(void)
{
    uint64_t steps = sim_step_count() + STEPS_PER_RUN, left;

    for (int i = 0; i < world.count; i++)
        revive(&world.fibers[i]);
    while (sim_step()) {
        if (sim_step_count() > steps)
            sim_fail("%llu steps after the end: something goes round in circles", STEPS_PER_RUN);
    }
    if (anyone_runs())
        fail_hang();
    if (sim_sources(-1))
        sim_fail("%d sources are left in the loop", sim_sources(-1));
    sim_net_fini();
    sim_loop_fini();
    left = xccl_alloc_live() - world.live_blocks;
    if (left)
        sim_fail("%lld blocks of memory are left", (long long)left);
    free(world.fibers);
    world.fibers = NULL;
}

/* --- seeds --- */

static void run_one(uint64_t seed, sim_scenario_fn *scenario)
{
    world.seed = seed;
    world.note[0] = '\0';
    bytes_from.state = ~seed;
    scenario(seed);
}

void sim_seeds(const char *name, int count, sim_scenario_fn *scenario)
{
    const char *one = getenv("XT_SIM_WORLD"), *times = getenv("XT_SIM_SEEDS");
    uint64_t state = xt_seed();
    long total = count * (times && atol(times) > 0 ? atol(times) : 1);

    randombytes_set_implementation(&seeded);
    world.name = name;
    world.tell_all = getenv("XT_SIM_LOG") != NULL;
    if (!world.tell_all)
        xt_setenv("XCCL_DEBUG_FILE", "/dev/null");
    xccl_log_reset();
    xccl_log_set_sink(keep_line);
    for (const char *at = name; *at; at++)
        state = state * 31 + (uint8_t)*at;
    if (one) {
        run_one(strtoull(one, NULL, 0), scenario);
        total = 0;
    }
    for (long i = 0; i < total; i++)
        run_one(xt_random(&state), scenario);
    xccl_log_set_sink(NULL);
    xccl_log_reset();
}

// SPDX-License-Identifier: BSD-3-Clause
/* Fibers: a stack each, and a switch that saves what a call saves. Stacks are kept for the next
 * launch. A fiber that waits at a barrier is passed over until the barrier opens.
 *
 * Thread: the device thread. */
#include "emu_fibers.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "exec/cuda/device_abi.h"

#define STACK_BYTES 65536u
#define STACK_COLOR 448u /* times EMU_THREADS: less than half a stack */

struct emu_fiber *emu_now;

struct emu_launch {
    void *kernel;
    std::vector<char> parameter;
    std::vector<struct emu_block> blocks;
    uint32_t running; /* blocks that have not ended, */
    uint32_t begun; /* and that have begun: those below it */
    uint32_t rounds; /* so far */
    uint32_t odd; /* the block that is favoured, or starved */
};

static void *scheduler; /* its stack pointer, while a fiber runs */
/* That nobody uses; they outlive the process' destructors, since the device thread may. */
static std::vector<char *> &stacks = *new std::vector<char *>;
static std::vector<char *> &shareds = *new std::vector<char *>;
static int has_moved; /* in this round */

/* ---- the order of things ---- */

#define FAVOUR       16u /* rounds of the favoured block, in one of the others */
#define STARVE       64u /* rounds of the others, in one of the starved block */
#define TURN_LOST_IN 32u /* accesses */

enum schedule { FAIR, FAVOUR_ONE, STARVE_ONE, RANDOM };

int emu_is_random;
static enum schedule schedule;
static uint64_t chance; /* the generator's state, never 0 */

static uint32_t draw(uint32_t below)
{
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    return (uint32_t)((chance >> 32) * below >> 32);
}

/* Once, by the first launch. */
static void read_schedule()
{
    const char *name = getenv("XCCL_EMU_SCHEDULE"), *seed = getenv("XCCL_EMU_SEED");
    static const char *const names[] = {"fair", "favour", "starve", "random"};
    int found = name == nullptr;

    if (chance)
        return;
    chance = ((seed ? strtoull(seed, nullptr, 0) : 1) + 1) * 0x9e3779b97f4a7c15ull | 1;
    for (int i = 0; name && i < 4; i++)
        if (strcmp(name, names[i]) == 0) {
            schedule = (enum schedule)i;
            found = 1;
        }
    if (!found) {
        fprintf(stderr, "error: XCCL_EMU_SCHEDULE is %s\n", name);
        abort();
    }
    emu_is_random = schedule == RANDOM;
}

/* ---- switching ---- */

#if defined(__x86_64__)
/* Callee-saved registers of the ABI; the mode of floating point is the same for all. */
extern "C" void emu_switch(void **save, void *load);
__asm__(".text\n.globl emu_switch\n.hidden emu_switch\n.type emu_switch,@function\nemu_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
        ".size emu_switch, .-emu_switch\n");

/* So that the first switch to it returns into `entry`, aligned as after a call. */
static void *first_frame(char *stack_end, void (*entry)())
{
    void **at = (void **)stack_end;

    *--at = nullptr; /* entry returns nowhere */
    *--at = (void *)entry;
    for (int i = 0; i < 6; i++)
        *--at = nullptr;
    return at;
}
#else
#error "the stand-in's fibers know x86-64 alone"
#endif

static void to_scheduler()
{
    emu_switch(&emu_now->stack_pointer, scheduler);
}

static void wait_for(const uint32_t *generation)
{
    emu_now->waits_for = generation;
    emu_now->seen = *generation;
    to_scheduler();
}

/* Not before the block's next turn. */
static void end_turn()
{
    emu_now->had_turn = 1;
    to_scheduler();
}

void emu_poll()
{
    end_turn();
}

void emu_lose_turn()
{
    if (draw(TURN_LOST_IN))
        return;
    has_moved = 1;
    end_turn();
}

void emu_sync_block()
{
    struct emu_block *block = emu_now->block;

    has_moved = 1;
    if (++block->arrived < block->running) {
        emu_now->had_turn = 1;
        wait_for(&block->generation);
        return;
    }
    block->arrived = 0;
    block->generation++;
}

int emu_vote_warp(int truth)
{
    struct emu_warp *warp = &emu_now->block->warps[emu_now->thread / EMU_WARP];

    warp->votes |= truth != 0;
    if (++warp->arrived < EMU_WARP) {
        wait_for(&warp->generation);
        return warp->result;
    }
    warp->result = warp->votes;
    warp->votes = 0;
    warp->arrived = 0;
    warp->generation++;
    return warp->result;
}

/* Other processes look at the same memory meanwhile. A line ends with its flag, so that whoever
 * loads that first and stores it last has all of the line, or sees that the flag is not there. */
static void do_part(struct emu_part *part, int stores)
{
    if (!part->active)
        return;
    if (stores) {
        __atomic_store_n(part->at, part->a, __ATOMIC_RELAXED);
        __atomic_store_n(part->at + 1, part->b, __ATOMIC_RELEASE);
    } else {
        part->b = __atomic_load_n(part->at + 1, __ATOMIC_ACQUIRE);
        part->a = __atomic_load_n(part->at, __ATOMIC_RELAXED);
    }
}

void emu_line(struct emu_part *part, int stores)
{
    struct emu_warp *warp = &emu_now->block->warps[emu_now->thread / EMU_WARP];

    warp->parts[emu_now->thread % EMU_WARP] = part;
    if (++warp->arrived < EMU_WARP) {
        wait_for(&warp->generation);
        return;
    }
    for (uint32_t i = 0; i < EMU_WARP; i++)
        do_part(warp->parts[stores ? i : EMU_WARP - 1 - i], stores);
    warp->arrived = 0;
    warp->generation++;
}

void emu_misaligned(const void *at, size_t bytes)
{
    fprintf(stderr, "error: a kernel accesses %zu bytes at %p, block %u, thread %u\n", bytes, at,
            emu_now->block->number, emu_now->thread);
    abort();
}

/* ---- fibers ---- */

/* By value, as kernels take them. */
static void call_kernel(const struct emu_launch *launch)
{
    if (launch->parameter.size() == sizeof(struct xccl_dev_messages_launch)) {
        auto *kernel = (void (*)(const struct xccl_dev_messages_launch))launch->kernel;

        kernel(*(const struct xccl_dev_messages_launch *)launch->parameter.data());
    } else {
        auto *kernel = (void (*)(const struct xccl_dev_launch))launch->kernel;

        kernel(*(const struct xccl_dev_launch *)launch->parameter.data());
    }
}

/* Barriers are for threads that have not ended, as on devices. */
static void run_fiber()
{
    struct emu_block *block = emu_now->block;

    call_kernel(block->launch);
    emu_now->is_over = 1;
    has_moved = 1;
    if (--block->running && block->arrived == block->running) {
        block->arrived = 0;
        block->generation++;
    }
    to_scheduler();
    abort(); /* nobody comes back */
}

static char *take(std::vector<char *> &pool, size_t bytes)
{
    char *memory;

    if (!pool.empty()) {
        memory = pool.back();
        pool.pop_back();
        return memory;
    }
    memory = (char *)mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    return memory;
}

static void start_block(struct emu_launch *launch, struct emu_block *block, uint32_t number)
{
    *block = {};
    block->launch = launch;
    block->number = number;
    block->running = EMU_THREADS;
    block->fibers = new struct emu_fiber[EMU_THREADS];
    block->shared = take(shareds, EMU_SHARED_BYTES);
    memset(block->shared, 0xc3, EMU_SHARED_BYTES); /* nobody may rely on zeroes */
    for (uint32_t i = 0; i < EMU_THREADS; i++) {
        struct emu_fiber *fiber = &block->fibers[i];

        *fiber = {};
        fiber->block = block;
        fiber->thread = i;
        fiber->stack = take(stacks, STACK_BYTES);
        /* Tops that are whole pages apart would all want the same cache lines. */
        fiber->stack_pointer = first_frame(fiber->stack + STACK_BYTES - i * STACK_COLOR, run_fiber);
    }
}

static void end_block(struct emu_block *block)
{
    for (uint32_t i = 0; block->fibers && i < EMU_THREADS; i++)
        stacks.push_back(block->fibers[i].stack);
    if (block->fibers)
        shareds.push_back(block->shared);
    delete[] block->fibers;
    block->fibers = nullptr;
}

static int can_go_on(const struct emu_fiber *fiber)
{
    return !fiber->is_over && !fiber->had_turn &&
           !(fiber->waits_for && *fiber->waits_for == fiber->seen);
}

/* Each fiber that does not wait, in this order; 1: some did. */
static int run_fibers(struct emu_block *block, uint32_t first)
{
    int some = 0;

    for (uint32_t i = 0; i < EMU_THREADS; i++) {
        struct emu_fiber *fiber = &block->fibers[(first + i) % EMU_THREADS];

        if (!can_go_on(fiber))
            continue;
        fiber->waits_for = nullptr;
        emu_now = fiber;
        emu_switch(&scheduler, fiber->stack_pointer);
        some = 1;
    }
    return some;
}

/* A turn of the block: all fibers, as long as none polls or waits for the block. The threads of a
 * warp do not wait for their turn in what they do together: a block that has few turns would need
 * one for each line of a message. */
static void run_block(struct emu_block *block)
{
    uint32_t first = emu_is_random ? draw(EMU_THREADS) : 0;

    for (uint32_t i = 0; i < EMU_THREADS; i++)
        block->fibers[i].had_turn = 0;
    while (run_fibers(block, first))
        ;
}

/* ---- launches ---- */

struct emu_launch *emu_launch_create(void *kernel, const void *parameter, size_t bytes,
                                     uint32_t blocks)
{
    auto *launch = new struct emu_launch;

    launch->kernel = kernel;
    launch->parameter.assign((const char *)parameter, (const char *)parameter + bytes);
    launch->blocks.resize(blocks);
    launch->running = blocks;
    read_schedule();
    launch->rounds = 0;
    launch->odd = draw(blocks);
    launch->begun = 0;
    return launch;
}

void emu_launch_destroy(struct emu_launch *launch)
{
    for (auto &block : launch->blocks)
        end_block(&block);
    delete launch;
}

/* How often this block runs in this round. */
static uint32_t turns_of(const struct emu_launch *launch, const struct emu_block *block)
{
    if (schedule == RANDOM)
        return draw(4) ? 1 : 0;
    if (schedule == FAIR || block->number != launch->odd)
        return 1;
    return schedule == FAVOUR_ONE ? FAVOUR : launch->rounds % STARVE == 0;
}

int emu_launch_round(struct emu_launch *launch, uint32_t *room)
{
    uint32_t count = (uint32_t)launch->blocks.size(), first = emu_is_random ? draw(count) : 0;

    has_moved = 0;
    launch->rounds++;
    for (; launch->begun < count && *room; --*room, launch->begun++) {
        start_block(launch, &launch->blocks[launch->begun], launch->begun);
        has_moved = 1;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct emu_block *block = &launch->blocks[(first + i) % count];
        uint32_t turns = block->fibers ? turns_of(launch, block) : 0;

        while (turns-- && block->running)
            run_block(block);
        if (block->running || !block->fibers)
            continue;
        end_block(block);
        launch->running--;
        ++*room;
    }
    return has_moved;
}

int emu_launch_is_over(const struct emu_launch *launch)
{
    return launch->running == 0;
}

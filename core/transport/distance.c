/* SPDX-License-Identifier: BSD-3-Clause */
/* The leader writes 1, 2, 3 ... on its board, the other one repeats each on its own. At the end the
 * leader writes the result, with the highest bit set. Thread: see the header. */
#include "transport/distance.h"

#include "base/clock.h"

#define TRIPS      8u /* of a batch */
#define BATCHES    6u
#define POLLS      2000 /* of a step: about as many times 5 ns */
#define RESULT     0x80000000u
#define NS_AT_MOST 1000000u

void xccl_distance_begin(struct xccl_distance *distance, struct xccl_board *own,
                         const struct xccl_board *other, int leads)
{
    *distance = (struct xccl_distance){
        .own = own, .other = other, .leads = leads, .limit_ns = xccl_clock_ns() + XCCL_DISTANCE_NS};
}

static void say(struct xccl_distance *distance, uint32_t word)
{
    /* Relaxed: nothing but the word itself is told. */
    atomic_store_explicit(&distance->own->ping, word, memory_order_relaxed);
}

static uint32_t hear(const struct xccl_distance *distance)
{
    return atomic_load_explicit(&distance->other->ping, memory_order_relaxed);
}

/* Until the other one has said word; 0: not yet. */
static int await(const struct xccl_distance *distance, uint32_t word)
{
    for (int polls = 0; polls < POLLS; polls++)
        if (hear(distance) == word)
            return 1;
    return 0;
}

static void end_batch(struct xccl_distance *distance)
{
    uint64_t took = (xccl_clock_ns() - distance->batch_ns) / (2 * TRIPS);

    if (took < NS_AT_MOST && (!distance->best_ns || took < distance->best_ns))
        distance->best_ns = took ? (uint32_t)took : 1;
    distance->batch_ns = 0;
}

static int lead(struct xccl_distance *distance)
{
    while (distance->trips < TRIPS * BATCHES) {
        if (distance->trips % TRIPS == 0 && !distance->batch_ns)
            distance->batch_ns = xccl_clock_ns();
        say(distance, distance->trips + 1);
        if (!await(distance, distance->trips + 1)) {
            if (xccl_clock_ns() < distance->limit_ns)
                return 0;
            distance->best_ns = 0;
            break;
        }
        if (++distance->trips % TRIPS == 0)
            end_batch(distance);
    }
    say(distance, RESULT | distance->best_ns);
    return 1;
}

static int follow(struct xccl_distance *distance)
{
    for (int polls = 0; polls < POLLS; polls++) {
        uint32_t word = hear(distance);

        if (word == distance->trips)
            continue;
        if (word != distance->trips + 1) { /* the result, or nothing that a leader says */
            distance->best_ns = word & RESULT ? word & ~RESULT : 0;
            return 1;
        }
        distance->trips = word;
        say(distance, word);
        polls = 0;
    }
    return xccl_clock_ns() >= distance->limit_ns;
}

int xccl_distance_step(struct xccl_distance *distance)
{
    return !distance->own || (distance->leads ? lead(distance) : follow(distance));
}
